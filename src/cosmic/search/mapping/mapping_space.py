"""The parameter set of a design's mapping: made for one model on one machine, not written by hand."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, get_args

from cosmic.base.errors import SpecError, UnknownName
from cosmic.design import catalog_entries, schema
from cosmic.design.collective_layer import AllToAll, MultiDim, Scheduling
from cosmic.design.design_point import DesignPoint, full_path
from cosmic.design.loading import design_tree
from cosmic.design.model_layer import Recommender, is_moe
from cosmic.network.collective_algorithms.synthesized import SYNTHESIZED
from cosmic.network.dimension_wiring import looks_at_links
from cosmic.search.mapping.mapping_choices import (
    ANY,
    FRAMEWORKS,
    SERVED_MICRO_BATCH,
    Framework,
    framework_named,
    list_choices,
    list_rules,
)
from cosmic.search.space.parameter_set import ParameterSet

REPLICAS_EXPRESSION = "npus // (tp * cp * pp)"
MESH_EXPRESSION = "dp * tp * cp * pp"
PREFILL_EXPRESSION = "prefill.replicas * prefill.tp * prefill.pp * prefill.dp"
"""Accelerators of a prefill pool."""
TOKEN_BUDGETS = (2048, 4096, 8192, 16384)
"""Tokens that engines are usually limited to in a step."""


def write_mapping_space(
    base: DesignPoint,
    *,
    framework: str = "any",
    stacks: Sequence[str] = (),
    fixed_paths: Collection[str] = (),
    vary: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the set of all mappings of *base* that a *framework* can launch, as the content of a file.

    The fields at *fixed_paths* keep their value; *vary* gives fields values of their own, as a parameter set does. *stacks*
    opens other layers besides the workload.
    """
    varied = {full_path(path): values for path, values in (vary or {}).items()}
    fixed = {full_path(path) for path in fixed_paths}
    for path in fixed & varied.keys():
        raise SpecError("--vary", path, "is held as well: leave out one of the two")
    for path in fixed:
        schema.slot_at(base, path)  # refuses what does not exist
    base = _with_expert_tensor(base)
    return {
        "base": design_tree(base),
        "parameters": _list_parameters(base, framework, ["workload", *stacks], fixed, varied),
        "derived": _derived_fields(base, fixed | varied.keys()),
        "constraints": _mapping_rules(base, framework),
    }


def _mapping_rules(base: DesignPoint, framework: str) -> list[str]:
    """Return the rules between the parts of a mapping; a load of requests has no batch to divide."""
    rules = list_rules(base, framework_named(framework))
    if base.serving is None:
        return rules
    rules = [rule for rule in rules if "global_batch" not in rule]
    return [
        f"{MESH_EXPRESSION} + {PREFILL_EXPRESSION} == npus"
        if rule == f"{MESH_EXPRESSION} == npus" and _shares_machine(base)
        else rule
        for rule in rules
    ]


def _with_expert_tensor(base: DesignPoint) -> DesignPoint:
    """Return *base* with the etp that it has, said: where it is searched, leaving it out is none of its values."""
    if not is_moe(base.model) or base.workload.task != "training":
        return base
    with_etp: DesignPoint = schema.assign_fields(base, {"workload.etp": base.workload.expert_tensor})
    return with_etp


def _derived_fields(base: DesignPoint, set_paths: Collection[str]) -> dict[str, str]:
    """Return what follows from the mapping: the replicas, and serving what one pass of each takes."""
    expressions = {
        "workload.dp": f"(npus - {PREFILL_EXPRESSION}) // (tp * cp * pp)"
        if _shares_machine(base)
        else REPLICAS_EXPRESSION
    }
    if base.serving is None and base.workload.task != "training" and not isinstance(base.model, Recommender):
        expressions["workload.micro_batch"] = SERVED_MICRO_BATCH[base.workload.task]
    return {path: text for path, text in expressions.items() if path not in set_paths}


def _shares_machine(base: DesignPoint) -> bool:
    """Return whether a prefill pool takes some of the design's accelerators."""
    pool = None if base.serving is None else base.serving.prefill
    return pool is not None and pool.system is None


def launchable_frameworks(point: DesignPoint) -> list[str]:
    """Return the frameworks that can launch the mapping of *point* as it is.

    >>> from cosmic.search.mapping.design_completion import load_design
    >>> mesh = {"tp": 1, "pp": 4, "cp": 1, "schedule": "zero_bubble", "weight_sharding": "zero3", "recompute": "none"}
    >>> launchable_frameworks(load_design("llama3-8b@dgx-h100:8", {**mesh, "tp_overlap": False}))
    ['torchtitan']
    """
    if point.workload.task != "training" or isinstance(point.model, Recommender):
        return []
    return [name for name, framework in FRAMEWORKS.items() if name != ANY and _can_launch(framework, point)]


def _can_launch(framework: Framework, point: DesignPoint) -> bool:
    w, experts = point.workload, is_moe(point.model)
    if not framework.launches(w) or (w.pp > 1 and "activations" in w.offload):
        return False
    rules = (*framework.rules, *(framework.expert_rules if experts else ()))
    try:  # a set without parameters has one point, or none if a rule does not hold
        ParameterSet("rules", _with_expert_tensor(point), (), {}, rules)
    except SpecError:
        return False
    return True


LayerChoices = Iterator[tuple[tuple[str, ...], list[tuple[Any, ...]]]]
"""Decisions: the paths that each sets, and the values that it may give them."""


def _list_parameters(
    base: DesignPoint, framework: str, stacks: Sequence[str], fixed: Collection[str], varied: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the parameters of the set, as a file has them."""
    for stack in stacks:
        if stack not in LAYER_CHOICES:
            raise UnknownName.among("--stacks", stack, "layer that can be opened", LAYER_CHOICES)
    parameters: dict[str, Any] = {}
    for stack in stacks:
        for paths, rows in LAYER_CHOICES[stack](base, framework):
            open_paths, values = _remove_fixed(base, paths, rows, {*fixed, *varied})
            if len(values) > 1 or (values and values[0] != tuple(schema.get_field(base, path) for path in open_paths)):
                parameters[_parameter_key(open_paths)] = [_write_row(base, open_paths, row) for row in values]
    return parameters | dict(varied)


def _remove_fixed(
    base: DesignPoint, paths: tuple[str, ...], rows: list[tuple[Any, ...]], fixed: Collection[str]
) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """Return a decision without the fields that are *fixed*: only what goes with their values in the base is left."""
    fixed = {path for path in paths if path in fixed}
    open_indices = [index for index, path in enumerate(paths) if path not in fixed]
    if not open_indices:
        return (), []
    fixed_values = {index: schema.get_field(base, path) for index, path in enumerate(paths) if path in fixed}
    matching = [row for row in rows if all(row[position] == value for position, value in fixed_values.items())]
    open_rows = [tuple(row[position] for position in open_indices) for row in matching or rows]
    return tuple(paths[position] for position in open_indices), list(dict.fromkeys(open_rows))


def _parameter_key(paths: tuple[str, ...]) -> str:
    """Return the key of a parameter that sets *paths*.

    >>> _parameter_key(("workload.tp",)), _parameter_key(("workload.pp", "workload.placement"))
    ('workload.tp', 'workload.{pp,placement}')
    """
    if len(paths) == 1:
        return paths[0]
    return f"{paths[0].rpartition('.')[0]}.{{{','.join(path.rpartition('.')[2] for path in paths)}}}"


def _write_row(base: DesignPoint, paths: tuple[str, ...], row: tuple[Any, ...]) -> Any:
    parts = [
        schema.write_value(value, schema.slot_at(base, path).dimension) for path, value in zip(paths, row, strict=True)
    ]
    return parts[0] if len(parts) == 1 else parts


# ---- layers


def _workload_choices(base: DesignPoint, framework: str) -> LayerChoices:
    for choice in list_choices(base, framework_named(framework)):
        base_values = [tuple(getattr(base.workload, field) for field in choice.fields)]
        if framework != ANY and not all(type(part) is int for part in base_values[0]):
            base_values = []  # a switch that the framework may not have
        yield tuple(f"workload.{field}" for field in choice.fields), list(dict.fromkeys((*choice.values, *base_values)))


def _collective_choices(base: DesignPoint, _: str) -> LayerChoices:
    """Yield what a communication library can be told: algorithms, how dimensions are used together, chunks, order."""
    for index, chosen in enumerate(base.collective.algorithms):
        algorithms = (*COLLECTIVES, SYNTHESIZED) if looks_at_links(base.network, index) else COLLECTIVES
        names = [chosen, *(name for name in algorithms if name != chosen)]
        yield (f"collective.algorithms.{index}",), [(name,) for name in names]
    yield ("collective.multi_dim",), [(get_argument,) for get_argument in get_args(MultiDim)]
    if is_moe(base.model) and len(base.network.dims) > 1:
        yield ("collective.all_to_all",), [(get_argument,) for get_argument in get_args(AllToAll)]
    yield ("collective.scheduling",), [(get_argument,) for get_argument in get_args(Scheduling)]
    yield ("collective.chunks",), [(chunks,) for chunks in (1, 4, 16, 64)]


def _network_choices(base: DesignPoint, _: str) -> LayerChoices:
    """Yield networks that could be built in its place: other topologies, from half to four times the bandwidth."""
    for index, dim in enumerate(base.network.dims):
        where = f"network.dims.{index}"
        if not dim.links:
            yield (f"{where}.topology",), [(fromkey,) for fromkey in dict.fromkeys((dim.topology, *TOPOLOGIES))]
        yield (f"{where}.bandwidth",), [(factor * dim.bandwidth_bytes_per_s,) for factor in (0.5, 1.0, 2.0, 4.0)]


def _compute_choices(base: DesignPoint, _: str) -> LayerChoices:
    """Yield accelerators of the same vendor."""
    accelerator, accelerators = base.compute.accelerator, catalog_entries.entry_names("accelerators")
    vendors = {name: catalog_entries.read_entry("accelerators", name).get("vendor") for name in accelerators}
    if vendors.get(accelerator) is not None:
        same_vendor = (name for name in accelerators if vendors[name] == vendors[accelerator])
        yield ("compute.accelerator",), [(name,) for name in dict.fromkeys((accelerator, *same_vendor))]


def _serving_choices(base: DesignPoint, _: str) -> LayerChoices:
    """Yield engines, the tokens of a step and, where there is a pool for prefill, its instances."""
    layer = base.serving
    if layer is None:
        raise SpecError("--stacks", "serving", "the design has no serving section: give its load, such as isl and osl")
    yield ("serving.engine",), [(name,) for name in catalog_entries.entry_names("engines")]
    yield ("serving.max_num_batched_tokens",), [(chunk,) for chunk in TOKEN_BUDGETS]
    if layer.prefill is not None:
        most = base.network.npus // (layer.prefill.npus // max(1, layer.prefill.replicas) or 1)
        yield ("serving.prefill.replicas",), [(replicas,) for replicas in range(min(most, 64) + 1)]


COLLECTIVES = ("auto", "ring", "direct", "halving_doubling", "double_binary_tree")
TOPOLOGIES = ("switch", "fully_connected", "ring")
LAYER_CHOICES: dict[str, Callable[[DesignPoint, str], LayerChoices]] = {
    "workload": _workload_choices,
    "collective": _collective_choices,
    "network": _network_choices,
    "compute": _compute_choices,
    "serving": _serving_choices,
}
"""What each layer opens."""
