"""From what a user writes to an open design: names resolved, defaults filled in, overrides applied.

An open design has all of a system but its mapping, which its author may leave out. What it leaves open is filled in by
`cosmic.search.mapping.design_completion`, whose `load_design` is what most callers want.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cosmic.base.errors import SpecError, UnknownName, as_key, require
from cosmic.base.files import exists, is_file, is_folder
from cosmic.design import catalog_entries, schema
from cosmic.design.catalog_parts import PRICES_KEY, drop_replaced_parts, price_fields, state_parts
from cosmic.design.design_point import DesignPoint, design_to_tree, full_path
from cosmic.design.facility_layer import Facility
from cosmic.design.huggingface import folder_name, model_from_config, stated_checkpoint
from cosmic.design.machine_layers import build_machine_layers, read_run_layer, spell_out_layers, write_machine_layers
from cosmic.design.model_layer import Model, Transformer
from cosmic.design.plain_data import dump_yaml, load_yaml, merge_at_key, merge_trees, parse_yaml, unflatten_paths
from cosmic.design.program_model import PROGRAM_KEY, ProgramModel, is_program, load_program_reader
from cosmic.design.run_layer import npu_mtbf_s
from cosmic.design.serving_layer import Serving
from cosmic.design.systems import NO_FILES_RULE, YAML_ENDINGS, is_model_at_system, read_system, split_size
from cosmic.design.workload_layer import Workload

DESIGN_KEYS = (
    "model",
    "system",
    "workload",
    "collective",
    "network",
    "compute",
    "memory",
    "node",
    "facility",
    "run",
    "serving",
)
_PATHS = "write PATH=VALUE, such as tp=8"
OPTION_EXAMPLES = {"--set": _PATHS, "--set-b": _PATHS, "--setting": "write NAME=VALUE, such as population=50"}
"""How the options are written that set something."""


Source = str | Path | Mapping[str, Any]
"""What describes a design: ``MODEL@SYSTEM`` of the catalog, the path of a YAML file, or such a file's content."""


def stated_tree(
    source: Source, overrides: Mapping[str, Any] | None, *, files: bool = True
) -> tuple[dict[str, Any], dict[str, Any], Path | None]:
    """Return what *source* says with its quotes in place, *overrides* in full, and the folder of paths in either."""
    tree, folder = _read_source_tree(source) if files else (_read_data_tree(source), None)
    tree = spell_out_layers(tree)
    settings = {_expand_path(path, value): value for path, value in (overrides or {}).items()}
    # A load is a number in flight or a rate: the one that is set replaces the other.
    if "serving" in tree:
        settings = {**replaced_overrides(settings), **settings}
    tree = drop_replaced_parts(tree, settings)
    quotes = settings.pop(PRICES_KEY, tree.pop(PRICES_KEY, None))
    if quotes is not None:
        tree = merge_trees(
            tree,
            unflatten_paths(
                price_fields(write_machine_layers(merge_trees(tree, unflatten_paths(settings)), folder), quotes)
            ),
        )
    return tree, settings, folder


def stated_fields(source: str | Path | Mapping[str, Any], overrides: Mapping[str, Any] | None = None) -> frozenset[str]:
    """Return the paths of the workload's fields that *source* and *overrides* state, as for `load_design`.

    >>> sorted(stated_fields("gpt3-175b@cosmic-1024", {"tp": 8}))
    ['workload.tp']
    """
    workload = _read_stated(source, overrides).get("workload", {})
    return frozenset(f"workload.{key}" for key in workload) if isinstance(workload, Mapping) else frozenset()


def stated_memory(source: str | Path | Mapping[str, Any], overrides: Mapping[str, Any] | None = None) -> frozenset[str]:
    """Return the paths of the memory's fields that *source* and *overrides* state, those of every tier too.

    >>> sorted(stated_memory("gpt3-175b@dgx-h100:8", {"optimizer": ["host"], "memory.tiers": [{"name": "host"}]}))
    ['memory.placement.optimizer', 'memory.tiers.0.name']
    """
    return frozenset(_walk_paths("memory", _read_stated(source, overrides).get("memory", {})))


def _read_stated(source: str | Path | Mapping[str, Any], overrides: Mapping[str, Any] | None) -> dict[str, Any]:
    tree, _ = _read_source_tree(source)
    settings = {_expand_path(path, value): value for path, value in (overrides or {}).items()}
    merged: dict[str, Any] = merge_trees(spell_out_layers(tree), unflatten_paths(settings))
    return merged


def _walk_paths(path: str, value: Any) -> Iterator[str]:
    """Yield the paths of all values in a tree; a list of names is one."""
    listed = isinstance(value, list) and bool(value) and all(isinstance(child, Mapping) for child in value)
    if not (listed or isinstance(value, Mapping)):
        yield path
        return
    for key, child in enumerate(value) if listed else value.items():
        yield from _walk_paths(f"{path}.{key}", child)


def model_assumptions(
    source: str | Path | Mapping[str, Any], overrides: Mapping[str, Any] | None = None
) -> tuple[str, ...]:
    """Return what was assumed about the model of a design that `load_design` takes: what its file leaves open.

    Only a Hugging Face configuration of an unknown architecture leaves something open.
    """
    tree, folder = _read_source_tree(source)
    model = (overrides or {}).get("model", spell_out_layers(tree).get("model"))
    name = model.get("base") if isinstance(model, Mapping) else model
    if not isinstance(name, str) or catalog_entries.resolve_name("models", name):
        return ()
    return tuple(_model_entry(name, folder)[0].get("assumed", ()))


def _expand_path(path: str, value: Any) -> str:
    try:
        return full_path(path)
    except SpecError as error:
        raise type(error)(path, value, error.rule) from None


def dump_design(point: DesignPoint) -> str:
    """Return *point* as the text of a design file; loading it gives an equal point."""
    return dump_yaml(design_tree(point))


def design_tree(point: DesignPoint) -> dict[str, Any]:
    """Return *point* as the content of a design file: loading it gives an equal point."""
    tree = design_to_tree(point)
    name = point.compute.accelerator
    entry = (
        catalog_entries.read_entry("accelerators", name)["compute"]
        if name in catalog_entries.entry_names("accelerators")
        else {}
    )
    # What the catalog knows and *point* leaves open, or at its default, must be said, or loading would fill it in.
    compute = schema.write_value(point.compute)
    run = {"npu_mtbf": schema.write_value(point.run).get("npu_mtbf")} if npu_mtbf_s(name)[0] is not None else {}
    stated = {"compute": {key: compute.get(key) for key in entry} | tree["compute"]}
    return state_parts(point, tree | stated | ({"run": {**tree.get("run", {}), **run}} if run else {}))


def _read_source_tree(source: str | Path | Mapping[str, Any]) -> tuple[Mapping[str, Any], Path]:
    """Return what *source* says, and the folder that paths in it are relative to."""
    if isinstance(source, Mapping):
        return source, Path()
    path = Path(source)
    if isinstance(source, str) and is_model_at_system(source):
        model, _, system_name = source.rpartition("@")
        return {"model": model, "system": system_name}, Path()
    if path.suffix not in YAML_ENDINGS and not is_file(path):
        raise SpecError("design", str(source), _explain_unknown(str(source)))
    return catalog_entries.load_mapping(path), path.parent


def _read_data_tree(source: str | Path | Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what *source* says, which is no file."""
    if isinstance(source, Mapping):
        return source
    model, separator, system_name = str(source).rpartition("@")
    require(bool(separator), "design", str(source), NO_FILES_RULE)
    return {"model": model, "system": system_name}


def _explain_unknown(name: str) -> str:
    """Return why *name* is no design, and what would be one: half of it may be there."""
    if catalog_entries.resolve_name("models", name):
        return f"is a model: say on which system, as in {name}@dgx-h100:64 ('cosmic catalog list systems')"
    if catalog_entries.resolve_name("systems", name.partition(":")[0]):
        return f"is a system: say which model it runs, as in llama3-70b@{name} ('cosmic catalog list models')"
    if exists(name) and not is_folder(name) and not is_file(name):
        return "is a pipe or a device, which may never end: save it to a file first"
    return "is neither MODEL@SYSTEM nor the path of a YAML file"


# ---- resolution


def load_machine(source: Source, overrides: Mapping[str, Any] | None = None) -> DesignPoint:
    """Return the design that `load_design` returns, but for its workload: no mapping is searched.

    >>> load_machine("llama3-405b@dgx-h100:16384").node.name
    'dgx-h100'
    """
    tree, settings, folder = stated_tree(source, overrides)
    return draft_design(spell_out_layers(merge_trees(tree, unflatten_paths(settings))), folder)[0]


def draft_design(tree: Mapping[str, Any], folder: Path | None) -> tuple[DesignPoint, dict[str, Any]]:
    """Return the design of a *tree* without its workload, and the workload's defaults."""
    for key in tree:
        if key not in DESIGN_KEYS:
            raise UnknownName.key(as_key(key), tree[key], DESIGN_KEYS)
    base = read_system(schema.read_value(str, tree["system"], "system"), folder) if "system" in tree else {}
    model, of_model = _resolve_model(tree.get("model", schema.Absent()), folder)
    usual = {**of_model, **base.get("workload", {})}
    machine = build_machine_layers(tree, base, folder)
    draft = DesignPoint(
        model=model,
        workload=Workload(sequence=1, global_batch=1),
        **machine,
        run=read_run_layer(tree.get("run", {}), machine["compute"].accelerator),
        facility=schema.read_value(Facility, tree.get("facility", {}), "facility"),
        serving=read_serving(tree.get("serving")),
    )
    return draft, usual


def _resolve_model(tree: Any, folder: Path | None) -> tuple[Model, Mapping[str, Any]]:
    """Return the model, and the workload's defaults (sequence, batch) that go with it."""
    defaults: Mapping[str, Any] = {}
    if isinstance(tree, Mapping) and PROGRAM_KEY in tree:
        tree = load_program_reader().model_tree(tree, folder)
    elif isinstance(tree, Mapping) and tree.get("family") == "program" and isinstance(tree.get("annotations"), Mapping):
        plain: Any = schema.read_value(
            Model, {key: value for key, value in tree.items() if key != "annotations"}, "model"
        )
        tree = schema.write_value(load_program_reader().annotate_model(plain, tree["annotations"]))
    if isinstance(tree, Mapping) and "base" in tree:
        base = schema.read_source(tree["base"], "model")
        entry, name = _model_entry(base, folder)
        defaults = entry.get("workload", {})
        changes = {key: value for key, value in tree.items() if key != "base"}
        if is_program(entry):
            return _resolve_model(load_program_reader().program_tree(entry, name, changes), folder)
        if entry["model"].get("family") == "program" and "annotations" in changes:
            written = {**entry["model"], "annotations": entry["model"].get("annotations", [])}
            model_given: Any = schema.read_value(Model, {"name": name, **written}, "model")
            return _resolve_model(
                {**schema.write_value(load_program_reader().annotate_model(model_given, changes["annotations"]))},
                folder,
            )
        merged = {"name": name, **entry["model"]}
        if merged.get("family") != "recommender" and (checkpoint := stated_checkpoint(base, name, folder)):
            merged = {"checkpoint": checkpoint, **merged}
        tree = merge_at_key(merged, changes, "model")
    elif isinstance(tree, Mapping):
        tree = {"family": "decoder", **tree}
    model: Model = schema.read_value(Model, tree, "model")
    return model, {**_fixed_sequence(model), **read_partial_workload(defaults, "model workload")}


def _fixed_sequence(model: Model) -> dict[str, int]:
    """Return the tokens of one sample where the model itself fixes them: pictures, and what has no tokens."""
    if isinstance(model, Transformer):
        return {"sequence": model.image.tokens} if model.image else {}
    if isinstance(model, ProgramModel):
        return load_program_reader().usual_workload(model)
    return {"sequence": 1}


def _model_entry(name: str, folder: Path | None) -> tuple[Mapping[str, Any], str]:
    """Return the entry of a model, by its name in the catalog or by the path of a file, and what to call it."""
    if folder is None:
        require(catalog_entries.resolve_name("models", name) is not None, "model", name, NO_FILES_RULE)
        return catalog_entries.read_entry("models", name), catalog_entries.resolve_name("models", name) or name
    path = folder / name
    if is_file(path / "config.json"):
        path = path / "config.json"
    if path.suffix == ".json":
        return model_from_config(load_yaml(path), path.name), folder_name(path)
    if path.suffix in YAML_ENDINGS:
        entry = catalog_entries.load_mapping(path)
        if is_program(entry):
            return entry, path.stem
        require(isinstance(entry.get("model"), dict), path.name, entry, "a model file needs a mapping 'model'")
        return entry, path.stem
    return catalog_entries.read_entry("models", name), catalog_entries.resolve_name("models", name) or name


def read_model(entry: Mapping[str, Any], name: str) -> Model:
    """Return the model that an *entry* of the catalog describes."""
    model: Model = schema.read_value(Model, {"name": name, **entry["model"]}, "model")
    return model


def read_partial_workload(tree: Any, where: str) -> dict[str, Any]:
    """Read the keys of a partial workload one by one, so that rules can compute with them."""
    if not isinstance(tree, Mapping):
        raise SpecError(where, tree, "must be a mapping of keys to values")
    workload: Workload = schema.read_value(Workload, {"sequence": 1, "global_batch": 1, **tree}, where)
    return {key: getattr(workload, schema.slots(Workload)[key].name) for key in tree}


def parse_overrides(settings: list[str], option: str = "--set") -> dict[str, Any]:
    """Return the overrides in texts such as ``workload.tp=8``, values of the command-line *option*.

    >>> parse_overrides(["workload.tp=8", "memory.capacity=80 GiB"])
    {'workload.tp': 8, 'memory.capacity': '80 GiB'}
    """
    overrides = {}
    for setting in settings:
        path, equals, text = setting.partition("=")
        require(bool(path and equals), option, setting, OPTION_EXAMPLES[option])
        overrides[path.strip()] = parse_yaml(text, path)
    return overrides


def read_serving(tree: Any) -> Serving | None:
    """Return the serving layer of a design file; None if it has none."""
    if tree is None:
        return None
    layer: Serving = schema.read_value(Serving, tree, "serving")
    engines = catalog_entries.entry_names("engines")
    if layer.engine not in engines:
        raise UnknownName.among("serving.engine", layer.engine, "engine", engines)
    system = layer.prefill.system if layer.prefill else None
    if system is not None:
        where, sized = "serving.prefill.system", split_size(system)[1]
        require(not sized, where, system, "name it without a number: the pool's mapping says how many accelerators")
        if system not in catalog_entries.entry_names("systems"):
            raise UnknownName.among(where, system, "system", catalog_entries.entry_names("systems"))
    return layer


def replaced_overrides(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return what overrides by path replace: a load has requests in flight or a rate, so that either drops the other.

    >>> replaced_overrides({"serving.load.rate": 5})
    {'serving.load.concurrency': None, 'serving.load.rounds': None}
    """
    replaced = {
        "serving.load.rate": ("serving.load.concurrency", "serving.load.rounds"),
        "serving.load.concurrency": ("serving.load.rate",),
    }
    dropped = (
        dropped_path
        for path, dropped_paths in replaced.items()
        if overrides.get(path) is not None
        for dropped_path in dropped_paths
    )
    return {path: None for path in dropped if path not in overrides}
