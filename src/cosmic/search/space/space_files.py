"""Parameter sets in files: reading, export as JSON Schema, and sampled points as JSON lines."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cosmic.base.errors import SpecError, UnknownName, as_key, check_text, join_path, require
from cosmic.base.files import is_file
from cosmic.design import catalog_entries, schema
from cosmic.design.catalog_parts import PRICES_KEY
from cosmic.design.design_point import DesignPoint, full_path
from cosmic.design.loading import design_tree
from cosmic.design.systems import is_model_at_system
from cosmic.search.mapping.design_completion import load_design
from cosmic.search.mapping.mapping_choices import BUDGET, SERVED_MICRO_BATCH
from cosmic.search.mapping.mapping_space import usual_objective, write_mapping_space
from cosmic.search.mapping.suggested_mapping import MAPPING
from cosmic.search.provision.candidate_bandwidth import read_provision
from cosmic.search.space.diagram import Indices
from cosmic.search.space.expressions import PROVISIONED
from cosmic.search.space.parameter_set import FORMAT, ParameterSet, Share, provision_space, with_source
from cosmic.search.space.parameters import (
    Parameter,
    expand_key,
    full_key,
    read_parameters,
    read_systems,
    split_by_size,
    value_label,
    varies_system,
    without_system,
)
from cosmic.simulate.user_engines import BUILT_IN, UserEngine, engine_of, metrics_of

# --------------------------------------------------------------------------------------
# Parameter sets in files: reading, and export as JSON Schema
# --------------------------------------------------------------------------------------

OF_MODEL = ("precision", "strategies")
"""Fields of a workload that hold for training and for serving."""
ABOUT = ("version", "name", "title", "source", "notes")
MOST_CONSTRAINTS, MOST_WORKLOADS = 200, 200
"""Of one parameter set: far more than anybody writes."""
BANDWIDTHS = "network.dims.*.bandwidth"
KEYS = (
    *ABOUT,
    "engine",
    "base",
    "parameters",
    "derived",
    "constraints",
    "objective",
    "workloads",
    "stacks",
    "provision",
)


def load_space(source: str | Path | Mapping[str, Any], *, files: bool = True, engine: str = "") -> ParameterSet:
    """Return the parameter set that *source* describes: a name of the catalog, a YAML file, or its content.

    The mappings of a design are those that an *engine* of somebody else is to evaluate, if one is named.

    Without *files*, nothing in its content is taken for the path of a file: what somebody sent opens no file of ours.

    >>> load_space("cosmic-1024-paper").raw
    76859228160000
    """
    if isinstance(source, Mapping):
        return read_space(source, "space", Path() if files else None)
    if not files:
        raise SpecError("space", str(source), "must be the content of a file")
    path = Path(source)
    if names_design(source):
        return mapping_space(source, engine=engine)
    if path.suffix in (".yaml", ".yml", ".json") or is_file(path):
        return read_space(catalog_entries.load_mapping(path), path.stem, path.parent)
    return read_space(catalog_entries.read_entry("spaces", str(source)), str(source), Path())


def names_design(source: str | Path) -> bool:
    """Return whether *source* is a design, not a parameter set: MODEL@SYSTEM, or a file with a model of its own."""
    path = Path(source)
    if is_model_at_system(str(source)):
        return True
    if path.suffix in (".yaml", ".yml", ".json") or is_file(path):
        return "model" in catalog_entries.load_mapping(path)
    return False


def mapping_space(  # noqa: PLR0913  the options of the command, each by its name
    source: str | Path | Mapping[str, Any],
    overrides: Mapping[str, Any] | None = None,
    *,
    framework: str = "any",
    stacks: Sequence[str] = (),
    fix: Sequence[str] = (),
    vary: Mapping[str, Any] | None = None,
    constraints: Sequence[str] = (),
    engine: str = "",
) -> ParameterSet:
    """Return the set of all mappings of a design that a *framework* can launch.

    What *overrides* set is held, and so is what *fix* names; *vary* gives fields values of their own, as a parameter
    set does. *stacks* opens other layers besides the workload. dp follows from the other axes. Mappings that fill more
    than `BUDGET` of the memory do not count, unless *constraints* limit it otherwise, an *engine* knows no memory, or
    state takes what is left of HBM and goes further out from there.

    >>> mapping_space("llama3-8b@dgx-h100:8", {"micro_batch": 1}, framework="deepspeed").valid
    60
    """
    brought = _engine(engine)
    own = brought is not None and brought.fields is not None
    require(
        not own, "engine", engine, f"has fields of its own, and takes no designs: search a set with engine: {engine}"
    )
    base = load_design(source, overrides)
    tree = write_mapping_space(
        base, framework=framework, stacks=stacks, held=[*_held_fields(overrides), *fix], vary=vary
    )
    if (
        base.serving is None
        and "compute" not in stacks
        and not varies_system(vary)
        and not base.memory.placement.fills_hbm
        and not any(path.startswith("memory.placement") for path in vary or ())
        and not any(constraint.startswith("memory_bytes") for constraint in constraints)
        and "memory_bytes" in metrics_of(engine or BUILT_IN[0])
    ):
        tree["constraints"].append(f"memory_bytes <= {int(BUDGET * base.memory.capacity_bytes)}")
    tree["constraints"] += constraints
    if engine not in ("", *BUILT_IN):
        tree["engine"] = engine
    return read_space(tree, _name_of_mappings(source), Path())


def _held_fields(overrides: Mapping[str, Any] | None) -> list[str]:
    """Return the fields that overrides set; quotes are prices of parts, and hold no field of a mapping."""
    return [path for path in overrides or {} if path != PRICES_KEY]


def _name_of_mappings(source: str | Path | Mapping[str, Any]) -> str:
    """Return what to call the set of a design's mappings: as the design is called."""
    if isinstance(source, Mapping):
        model, system = source.get("model"), source.get("system")
        return f"{model}@{system}" if isinstance(model, str) and isinstance(system, str) else "mapping"
    return Path(source).stem if is_file(Path(source)) else str(source)


def read_space(tree: Mapping[str, Any], name: str, folder: Path | None) -> ParameterSet:
    """Return the parameter set that *tree* describes; paths in it are relative to *folder*, None: there are none."""
    for key in tree:
        if key not in KEYS:
            raise UnknownName.key(as_key(key), tree[key], KEYS)
    if tree.get("version", FORMAT) != FORMAT:
        raise SpecError("version", tree["version"], f"this release reads version {FORMAT}")
    engine = _engine(tree.get("engine", ""))
    if engine is not None and engine.fields is not None:
        return _own_space(tree, name, engine)
    base = _base(tree.get("base"), folder, plain=_varies_mapping(tree))
    resolved = design_tree(base)
    chosen, machines = _chosen_parameters(tree), None
    sized: list[str] = []
    if varies_system(chosen):
        base, machines = read_systems(base, chosen)
        chosen, sized = split_by_size(base, without_system(chosen), machines)
    parameters, derived = read_parameters(base, chosen, machines), _derived(base, tree.get("derived", {}))
    searched = {path for parameter in parameters for path in parameter.paths} | derived.keys()
    if not _states_micro_batch(tree.get("base"), folder) and (tree.get("workloads") or _serves(base)):
        resolved["workload"] = {key: value for key, value in resolved["workload"].items() if key != "micro_batch"}
        derived |= {} if tree.get("workloads") else _served_micro_batch(base, searched)
    shares = _workloads(resolved, tree.get("workloads", {}), searched, files=folder is not None)
    constraints = (*_constraints(tree.get("constraints", [])), *sized)
    limits = tuple(constraint for constraint in constraints if is_limit(constraint, tree.get("engine", "")))
    stacks = _stacks(tree.get("stacks"))
    whole = {key: value for key, value in tree.items() if key != "stacks"}
    space = ParameterSet(
        name=_text(tree.get("name", name), "name"),
        base=base,
        parameters=parameters,
        derived=derived,
        constraints=tuple(constraint for constraint in constraints if constraint not in limits),
        objective=_text(tree.get("objective", _usual(engine) or usual_objective(base)), "objective"),
        limits=limits,
        workloads=shares,
        engine="" if engine is None else engine.name,
    )
    if "provision" in tree:
        space = provision_space(space, read_provision(tree["provision"], len(base.network.dims)))
    space = with_source(space, {"name": name, **whole, "base": resolved})
    return space if stacks is None else space.restrict(stacks)


def _chosen_parameters(tree: Mapping[str, Any]) -> Any:
    """Return the parameters of a set, without bandwidth that is ``provisioned`` in all dimensions."""
    given = tree.get("parameters", {})
    if not isinstance(given, Mapping) or PROVISIONED not in given.values():
        return given
    for key, domain in given.items():
        if domain == PROVISIONED:
            where = join_path("parameters", as_key(key))
            require(
                full_key(as_key(key), where) == BANDWIDTHS,
                where,
                domain,
                f"all dimensions are provisioned together: {BANDWIDTHS}",
            )
            require("provision" in tree, where, domain, "needs a budget, such as provision: {budget: 500 GB/s}")
    return {key: domain for key, domain in given.items() if domain != PROVISIONED}


def _stacks(given: Any) -> list[str] | None:
    if given is None or (isinstance(given, list) and all(isinstance(each, str) for each in given)):
        return given
    raise SpecError("stacks", given, "must be a list of layers of the stack, such as [workload]")


def is_limit(constraint: Any, engine: str = "") -> bool:
    """Return whether a constraint is about a metric, which only evaluation gives: of COSMIC, or of an *engine*."""
    known = metrics_of(engine or BUILT_IN[0])
    return isinstance(constraint, str) and constraint.split("<")[0].split(">")[0].strip() in known


def _engine(name: Any) -> UserEngine | None:
    """Return the engine of somebody else that a set names; None where it names none, or one of COSMIC's."""
    if not isinstance(name, str):
        raise SpecError("engine", name, "must be the name of an engine")
    return engine_of(name) if name else None


def _usual(engine: UserEngine | None) -> str:
    return next(iter(engine.metrics)) if engine is not None else ""


def _own_space(tree: Mapping[str, Any], name: str, engine: UserEngine) -> ParameterSet:
    """Return the parameter set of an engine's own fields; what *tree* does not say of its base, the engine does."""
    for key in ("workloads", "provision"):
        require(key not in tree, key, tree.get(key), f"is for designs, and {engine.name} has fields of its own")
    given = tree.get("base", {})
    if not isinstance(given, Mapping):
        raise SpecError("base", given, f"must map fields of {engine.name} to values")
    base: Any = schema.read_value(engine.fields, given, "base")
    constraints = _constraints(tree.get("constraints", []))
    limits = tuple(constraint for constraint in constraints if is_limit(constraint, engine.name))
    space = ParameterSet(
        name=_text(tree.get("name", name), "name"),
        base=base,
        parameters=read_parameters(base, tree.get("parameters", {})),
        derived=_derived(base, tree.get("derived", {})),
        constraints=tuple(constraint for constraint in constraints if constraint not in limits),
        objective=_text(tree.get("objective", _usual(engine)), "objective"),
        limits=limits,
        engine=engine.name,
    )
    whole = {key: value for key, value in tree.items() if key != "stacks"}
    space = with_source(space, {"name": name, **whole, "base": schema.write_value(base)})
    stacks = _stacks(tree.get("stacks"))
    return space if stacks is None else space.restrict(stacks)


def _workloads(base: Mapping[str, Any], given: Any, searched: Collection[str], *, files: bool) -> tuple[Share, ...]:
    """Return the workloads of a mix: each changes some fields of the base, such as ``{weight: 200, task: decode}``."""
    if not isinstance(given, Mapping):
        raise SpecError("workloads", given, "must map names to what each changes in the base")
    require(len(given) <= MOST_WORKLOADS, "workloads", len(given), f"at most {MOST_WORKLOADS} are read")
    shares = []
    for key, changes in given.items():
        where = join_path("workloads", check_text(as_key(key), "workloads"))
        if not isinstance(changes, Mapping):
            raise SpecError(where, changes, "must map paths to values, with a weight if it is not 1")
        weight = changes.get("weight", 1)
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < 1e300:
            raise SpecError(join_path(where, "weight"), weight, "must be a number above 0")
        settings = {as_key(path): value for path, value in changes.items() if path != "weight"}
        try:
            tree = _of_other_kind(base, settings) if _changes_kind(base, settings) else base
            point = load_design(tree, settings, files=files, plain=True)
            own = frozenset(full_path(path) for path in settings)
        except SpecError as error:
            raise error.inside(where) from None
        stated = "micro_batch" in base["workload"] or settings.keys() & {"micro_batch", "workload.micro_batch"}
        follows = {} if stated else _served_micro_batch(point, searched)
        shares.append(Share(as_key(key), float(weight), point, follows, own))
    return tuple(shares)


def _changes_kind(base: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
    """Return whether a workload of a mix serves a load and the base does not, or the other way round."""
    stated = [value for path, value in settings.items() if full_path(path).partition(".")[0] == "serving"]
    serves = any(value is not None for value in stated) or (not stated and base.get("serving") is not None)
    return serves != (base.get("serving") is not None)


def _of_other_kind(base: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return *base* without its load, and without what of its workload is for one kind of task alone."""
    keys = {full_path(path).partition(".")[2] for path in settings}
    stated = [key for key in base["workload"] if key in keys]
    kept = {key: value for key, value in base["workload"].items() if key in (*OF_MODEL, *stated)}
    return {**{key: value for key, value in base.items() if key != "serving"}, "workload": kept}


def _varies_mapping(tree: Mapping[str, Any]) -> bool:
    """Return whether a set varies the mapping: what it does not vary must then go with all values that it does."""
    parts = [part for part in (tree.get("parameters"), tree.get("derived")) if isinstance(part, Mapping)]
    keys = [key for part in parts for key in part]
    names = [as_key(key).removeprefix("workload.").strip("{}").split(",") for key in keys]
    return any(name.strip() in MAPPING for each in names for name in each)


def _base(given: Any, folder: Path | None, *, plain: bool) -> DesignPoint:
    if isinstance(given, str) and "@" not in given:
        given = given if folder is None else folder / given
    elif not isinstance(given, str | Mapping):
        raise SpecError("base", given, "give MODEL@SYSTEM, a design file, or a design")
    try:
        return load_design(given, files=folder is not None, plain=plain)
    except SpecError as error:
        raise error.inside("base") from None


def _derived(base: DesignPoint, given: Any) -> dict[str, str]:
    if not isinstance(given, Mapping):
        raise SpecError("derived", given, "must map paths to expressions")
    found = {}
    for key, text in given.items():
        where = join_path("derived", as_key(key))
        for index, path in enumerate(expand_key(base, full_key(as_key(key), where, base), where)):
            here = "*" in as_key(key) and isinstance(text, str)
            found[path] = re.sub(r"\.\*", f".{index}", text) if here else text
    return found


def _serves(base: DesignPoint) -> bool:
    return base.workload.task != "training" and base.serving is None


def _served_micro_batch(base: DesignPoint, searched: Collection[str]) -> dict[str, str]:
    """Return how the microbatch follows a mapping that is searched for serving, where neither says it."""
    moved = {f"workload.{name}" for name in ("dp", "pp", "global_batch", "sequence")} & set(searched)
    if not _serves(base) or not moved or "workload.micro_batch" in searched:
        return {}
    return {"workload.micro_batch": SERVED_MICRO_BATCH[base.workload.task]}


def _states_micro_batch(given: Any, folder: Path | None) -> bool:
    """Return whether the base of a set gives the microbatch itself."""
    if isinstance(given, str):
        given = {} if "@" in given or folder is None else catalog_entries.load_mapping(folder / given)
    workload = given.get("workload", {})
    return isinstance(workload, Mapping) and "micro_batch" in workload


def _constraints(given: Any) -> tuple[str, ...]:
    if not isinstance(given, list):
        raise SpecError("constraints", given, "must be a list of expressions")
    require(len(given) <= MOST_CONSTRAINTS, "constraints", len(given), f"at most {MOST_CONSTRAINTS} are read")
    return tuple(given)


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise SpecError(where, value, "must be text")
    return check_text(value, where)


# ------------------------------------------------------------------------------------------- JSON Schema


def json_schema(space: ParameterSet) -> dict[str, Any]:
    """Return the set as JSON Schema, for agents and simulators of others.

    An object that validates is a point: a value for each parameter, as `cosmic space sample` writes it. What
    JSON Schema cannot express (constraints, derivations, the base design) is under ``x-cosmic``.
    """
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": space.name,
        "type": "object",
        "properties": {parameter.name: _property(parameter) for parameter in space.parameters}
        | {path: {"description": f"derived: {text}"} for path, text in space.derived.items()},
        "required": [parameter.name for parameter in space.parameters],
        "additionalProperties": False,
        "x-cosmic": {
            "format": FORMAT,
            "base": space.base.identity,
            "derived": dict(space.derived),
            "constraints": list(space.constraints),
            "limits": list(space.limits),
            "objective": space.objective,
            "raw": space.raw,
            "valid": space.valid,
        },
    }


def _property(parameter: Parameter) -> dict[str, Any]:
    return {
        "enum": list(parameter.labels),
        "x-cosmic": {"stack": parameter.stack, "ordered": parameter.ordered, "sets": list(parameter.paths)},
    }


# --------------------------------------------------------------------------------------
# Sampled points as JSON lines
# --------------------------------------------------------------------------------------

BATCH = 10_000


def sample_json_lines(space: ParameterSet, n: int, rng: np.random.Generator) -> Iterator[str]:
    """Yield *n* points drawn uniformly, one JSON object each, as files write them.

    Each value is formatted once.
    """
    texts = [[_member(parameter.name, value) for value in parameter.labels] for parameter in space.parameters]
    for start in range(0, n, BATCH):
        rows = space.sample(min(BATCH, n - start), rng)
        columns = [[text[index] for index in rows[:, place].tolist()] for place, text in enumerate(texts)]
        columns += [_derived_members(space, path, rows) for path in space.derived]
        for members in zip(*columns, strict=True):
            yield "{" + ", ".join(members) + "}"


def _derived_members(space: ParameterSet, path: str, rows: Indices) -> list[str]:
    values = space.derive(path, rows).tolist()
    texts = {value: _member(path, value_label(space.base, path, value)) for value in set(values)}
    return [texts[value] for value in values]


def _member(name: str, value: Any) -> str:
    return f"{json.dumps(name)}: {json.dumps(value)}"
