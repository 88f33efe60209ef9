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
from cosmic.search.mapping.design_completion import MAPPING, load_design
from cosmic.search.mapping.mapping_choices import SERVED_MICRO_BATCH
from cosmic.search.mapping.mapping_space import write_mapping_space
from cosmic.search.space.diagram import Indices
from cosmic.search.space.expressions import PROVISIONED
from cosmic.search.space.parameter_set import FORMAT, ParameterSet, Share, provision_space, with_source
from cosmic.search.space.parameters import (
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

# ---- Parameter sets in files: reading, and export as JSON Schema

MODEL_FIELDS = ("precision", "strategies")
"""Fields of a workload that hold for training and for serving."""
DESCRIPTIVE_KEYS = ("version", "name", "title", "source", "notes")
MAX_CONSTRAINTS, MAX_WORKLOADS = 200, 200
"""Of one parameter set: far more than anybody writes."""
BANDWIDTHS = "network.dims.*.bandwidth"
KEYS = (
    *DESCRIPTIVE_KEYS,
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
    name = str(source)
    if catalog_entries.resolve_name("spaces", name) is None and catalog_entries.resolve_name("models", name):
        raise SpecError(
            "space", name, f"is a model: say on which system, as in {name}@dgx-h100:64 ('cosmic catalog list systems')"
        )
    return read_space(catalog_entries.read_entry("spaces", name), name, Path())


def names_design(source: str | Path) -> bool:
    """Return whether *source* is a design, not a parameter set: MODEL@SYSTEM, or a file with a model of its own."""
    path = Path(source)
    if is_model_at_system(str(source)):
        return True
    if path.suffix in (".yaml", ".yml", ".json") or is_file(path):
        return "model" in catalog_entries.load_mapping(path)
    return False


def mapping_space(
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
    set does. *stacks* opens other layers besides the workload. dp follows from the other axes. Mappings count that fit into
    the memory with the design's `memory.fits`, and meet all *constraints*.

    >>> mapping_space("llama3-8b@dgx-h100:8", {"micro_batch": 1}, framework="deepspeed").valid
    60
    """
    user_engine = _find_user_engine(engine)
    has_own_fields = user_engine is not None and user_engine.fields is not None
    require(
        not has_own_fields,
        "engine",
        engine,
        f"has fields of its own, and takes no designs: search a set with engine: {engine}",
    )
    base = load_design(source, overrides)
    tree = write_mapping_space(
        base,
        framework=framework,
        stacks=stacks,
        fixed_paths=[*[path for path in overrides or {} if path != PRICES_KEY], *fix],
        vary=vary,
    )
    tree["constraints"] += constraints
    if engine not in ("", *BUILT_IN):
        tree["engine"] = engine
    return read_space(tree, _name_of_mappings(source), Path())


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
    engine = _find_user_engine(tree.get("engine", ""))
    if engine is not None and engine.fields is not None:
        return _read_engine_space(tree, name, engine)
    base = _load_base(tree.get("base"), folder, plain=_varies_mapping(tree))
    base_tree = design_tree(base)
    domains, machines = _read_domains(tree), None
    size_rules: list[str] = []
    if varies_system(domains):
        base, machines = read_systems(base, domains)
        domains, size_rules = split_by_size(base, without_system(domains), machines)
    parameters, derived = read_parameters(base, domains, machines), _read_derived(base, tree.get("derived", {}))
    searched = {path for parameter in parameters for path in parameter.paths} | derived.keys()
    if not _sets_micro_batch(tree.get("base"), folder) and (tree.get("workloads") or _serves(base)):
        base_tree["workload"] = {key: value for key, value in base_tree["workload"].items() if key != "micro_batch"}
        derived |= {} if tree.get("workloads") else _served_micro_batch(base, searched)
    shares = _read_workloads(base_tree, tree.get("workloads", {}), searched, files=folder is not None)
    constraints = (*_read_constraints(tree.get("constraints", [])), *size_rules)
    limits = tuple(constraint for constraint in constraints if is_limit(constraint, tree.get("engine", "")))
    stacks = _read_stacks(tree.get("stacks"))
    content = {key: value for key, value in tree.items() if key != "stacks"}
    space = ParameterSet(
        name=_read_text(tree.get("name", name), "name"),
        base=base,
        parameters=parameters,
        derived=derived,
        constraints=tuple(constraint for constraint in constraints if constraint not in limits),
        objective=_read_text(tree.get("objective", _default_objective(engine) or _usual_objective(base)), "objective"),
        limits=limits,
        workloads=shares,
        engine="" if engine is None else engine.name,
    )
    if "provision" in tree:
        from cosmic.search.provision.bandwidth_descent import read_provision  # noqa: PLC0415  the solver is heavy

        space = provision_space(space, read_provision(tree["provision"], len(base.network.dims)))
    space = with_source(space, {"name": name, **content, "base": base_tree})
    return space if stacks is None else space.restrict(stacks)


def _read_domains(tree: Mapping[str, Any]) -> Any:
    """Return the parameters of a set, without bandwidth that is ``provisioned`` in all dimensions."""
    domains = tree.get("parameters", {})
    if not isinstance(domains, Mapping) or PROVISIONED not in domains.values():
        return domains
    for key, domain in domains.items():
        if domain == PROVISIONED:
            where = join_path("parameters", as_key(key))
            require(
                full_key(as_key(key), where) == BANDWIDTHS,
                where,
                domain,
                f"all dimensions are provisioned together: {BANDWIDTHS}",
            )
            require("provision" in tree, where, domain, "needs a budget, such as provision: {budget: 500 GB/s}")
    return {key: domain for key, domain in domains.items() if domain != PROVISIONED}


def _read_stacks(stacks: Any) -> list[str] | None:
    if stacks is None or (isinstance(stacks, list) and all(isinstance(stack, str) for stack in stacks)):
        return stacks
    raise SpecError("stacks", stacks, "must be a list of layers of the stack, such as [workload]")


def is_limit(constraint: Any, engine: str = "") -> bool:
    """Return whether a constraint is about a metric, which only evaluation gives: of COSMIC, or of an *engine*."""
    metrics = metrics_of(engine or BUILT_IN[0])
    return isinstance(constraint, str) and constraint.split("<")[0].split(">")[0].strip() in metrics


def _find_user_engine(name: Any) -> UserEngine | None:
    """Return the engine of somebody else that a set names; None where it names none, or one of COSMIC's."""
    if not isinstance(name, str):
        raise SpecError("engine", name, "must be the name of an engine")
    return engine_of(name) if name else None


def _default_objective(engine: UserEngine | None) -> str:
    return next(iter(engine.metrics)) if engine is not None else ""


def _usual_objective(base: DesignPoint) -> str:
    """Return what to improve where nobody says it: the step; of a closed loop of clients tokens, else their time."""
    if base.serving is None:
        return "step_s"
    return "tokens_per_s" if base.serving.load.rate is None else "tpot_s"


def _read_engine_space(tree: Mapping[str, Any], name: str, engine: UserEngine) -> ParameterSet:
    """Return the parameter set of an engine's own fields; what *tree* does not say of its base, the engine does."""
    for key in ("workloads", "provision"):
        require(key not in tree, key, tree.get(key), f"is for designs, and {engine.name} has fields of its own")
    base_fields = tree.get("base", {})
    if not isinstance(base_fields, Mapping):
        raise SpecError("base", base_fields, f"must map fields of {engine.name} to values")
    base: Any = schema.read_value(engine.fields, base_fields, "base")
    constraints = _read_constraints(tree.get("constraints", []))
    limits = tuple(constraint for constraint in constraints if is_limit(constraint, engine.name))
    space = ParameterSet(
        name=_read_text(tree.get("name", name), "name"),
        base=base,
        parameters=read_parameters(base, tree.get("parameters", {})),
        derived=_read_derived(base, tree.get("derived", {})),
        constraints=tuple(constraint for constraint in constraints if constraint not in limits),
        objective=_read_text(tree.get("objective", _default_objective(engine)), "objective"),
        limits=limits,
        engine=engine.name,
    )
    content = {key: value for key, value in tree.items() if key != "stacks"}
    space = with_source(space, {"name": name, **content, "base": schema.write_value(base)})
    stacks = _read_stacks(tree.get("stacks"))
    return space if stacks is None else space.restrict(stacks)


def _read_workloads(
    base: Mapping[str, Any], workloads: Any, searched: Collection[str], *, files: bool
) -> tuple[Share, ...]:
    """Return the workloads of a mix: each changes some fields of the base, such as ``{weight: 200, task: decode}``."""
    if not isinstance(workloads, Mapping):
        raise SpecError("workloads", workloads, "must map names to what each changes in the base")
    require(len(workloads) <= MAX_WORKLOADS, "workloads", len(workloads), f"at most {MAX_WORKLOADS} are read")
    shares = []
    for key, changes in workloads.items():
        where = join_path("workloads", check_text(as_key(key), "workloads"))
        if not isinstance(changes, Mapping):
            raise SpecError(where, changes, "must map paths to values, with a weight if it is not 1")
        weight = changes.get("weight", 1)
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < 1e300:
            raise SpecError(join_path(where, "weight"), weight, "must be a number above 0")
        settings = {as_key(path): value for path, value in changes.items() if path != "weight"}
        try:
            tree = _strip_task_fields(base, settings) if _changes_task(base, settings) else base
            point = load_design(tree, settings, files=files, plain=True)
            own_fields = frozenset(full_path(path) for path in settings)
        except SpecError as error:
            raise error.inside(where) from None
        sets_micro_batch = "micro_batch" in base["workload"] or settings.keys() & {
            "micro_batch",
            "workload.micro_batch",
        }
        follows = {} if sets_micro_batch else _served_micro_batch(point, searched)
        shares.append(Share(as_key(key), float(weight), point, follows, own_fields))
    return tuple(shares)


def _changes_task(base: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
    """Return whether a workload of a mix serves a load and the base does not, or the other way round."""
    loads = [value for path, value in settings.items() if full_path(path).partition(".")[0] == "serving"]
    serves = any(value is not None for value in loads) or (not loads and base.get("serving") is not None)
    return serves != (base.get("serving") is not None)


def _strip_task_fields(base: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return *base* without its load, and without what of its workload is for one kind of task alone."""
    keys = {full_path(path).partition(".")[2] for path in settings}
    set_keys = [key for key in base["workload"] if key in keys]
    workload = {key: value for key, value in base["workload"].items() if key in (*MODEL_FIELDS, *set_keys)}
    return {**{key: value for key, value in base.items() if key != "serving"}, "workload": workload}


def _varies_mapping(tree: Mapping[str, Any]) -> bool:
    """Return whether a set varies the mapping: what it does not vary must then go with all values that it does."""
    parts = [part for part in (tree.get("parameters"), tree.get("derived")) if isinstance(part, Mapping)]
    keys = [key for part in parts for key in part]
    names = [as_key(key).removeprefix("workload.").strip("{}").split(",") for key in keys]
    return any(name.strip() in MAPPING for name_group in names for name in name_group)


def _load_base(base: Any, folder: Path | None, *, plain: bool) -> DesignPoint:
    if isinstance(base, str) and "@" not in base:
        base = base if folder is None else folder / base
    elif not isinstance(base, str | Mapping):
        raise SpecError("base", base, "give MODEL@SYSTEM, a design file, or a design")
    try:
        return load_design(base, files=folder is not None, plain=plain)
    except SpecError as error:
        raise error.inside("base") from None


def _read_derived(base: DesignPoint, derived: Any) -> dict[str, str]:
    if not isinstance(derived, Mapping):
        raise SpecError("derived", derived, "must map paths to expressions")
    expressions = {}
    for key, text in derived.items():
        where = join_path("derived", as_key(key))
        for index, path in enumerate(expand_key(base, full_key(as_key(key), where, base), where)):
            repeated = "*" in as_key(key) and isinstance(text, str)
            expressions[path] = re.sub(r"\.\*", f".{index}", text) if repeated else text
    return expressions


def _serves(base: DesignPoint) -> bool:
    return base.workload.task != "training" and base.serving is None


def _served_micro_batch(base: DesignPoint, searched: Collection[str]) -> dict[str, str]:
    """Return how the microbatch follows a mapping that is searched for serving, where neither says it."""
    searched_axes = {f"workload.{name}" for name in ("dp", "pp", "global_batch", "sequence")} & set(searched)
    if not _serves(base) or not searched_axes or "workload.micro_batch" in searched:
        return {}
    return {"workload.micro_batch": SERVED_MICRO_BATCH[base.workload.task]}


def _sets_micro_batch(base: Any, folder: Path | None) -> bool:
    """Return whether the base of a set gives the microbatch itself."""
    if isinstance(base, str):
        base = {} if "@" in base or folder is None else catalog_entries.load_mapping(folder / base)
    workload = base.get("workload", {})
    return isinstance(workload, Mapping) and "micro_batch" in workload


def _read_constraints(constraints: Any) -> tuple[str, ...]:
    if not isinstance(constraints, list):
        raise SpecError("constraints", constraints, "must be a list of expressions")
    require(len(constraints) <= MAX_CONSTRAINTS, "constraints", len(constraints), f"at most {MAX_CONSTRAINTS} are read")
    return tuple(constraints)


def _read_text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise SpecError(where, value, "must be text")
    return check_text(value, where)


# ---- JSON Schema


def json_schema(space: ParameterSet) -> dict[str, Any]:
    """Return the set as JSON Schema, for agents and simulators of others.

    An object that validates is a point: a value for each parameter, as `cosmic space sample` writes it. What
    JSON Schema cannot express (constraints, derivations, the base design) is under ``x-cosmic``.
    """
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": space.name,
        "type": "object",
        "properties": {
            parameter.name: {
                "enum": list(parameter.labels),
                "x-cosmic": {"stack": parameter.stack, "ordered": parameter.ordered, "sets": list(parameter.paths)},
            }
            for parameter in space.parameters
        }
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


# ---- Sampled points as JSON lines

SAMPLED_AT_ONCE = 10_000


def sample_json_lines(space: ParameterSet, n: int, rng: np.random.Generator) -> Iterator[str]:
    """Yield *n* points drawn uniformly, one JSON object each, as files write them.

    Each value is formatted once.
    """
    texts = [[_format_member(parameter.name, value) for value in parameter.labels] for parameter in space.parameters]
    for start in range(0, n, SAMPLED_AT_ONCE):
        rows = space.sample(min(SAMPLED_AT_ONCE, n - start), rng)
        columns = [[text[index] for index in rows[:, column].tolist()] for column, text in enumerate(texts)]
        columns += [_format_derived(space, path, rows) for path in space.derived]
        for members in zip(*columns, strict=True):
            yield "{" + ", ".join(members) + "}"


def _format_derived(space: ParameterSet, path: str, rows: Indices) -> list[str]:
    values = space.derive(path, rows).tolist()
    texts = {value: _format_member(path, value_label(space.base, path, value)) for value in set(values)}
    return [texts[value] for value in values]


def _format_member(name: str, value: Any) -> str:
    return f"{json.dumps(name)}: {json.dumps(value)}"
