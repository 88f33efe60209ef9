"""The parameter set of a design's mapping: made for one model on one machine, not written by hand."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, get_args

from cosmic import catalog
from cosmic.design import schema
from cosmic.design.collective import MultiDim, Scheduling
from cosmic.design.model import Recommender, is_moe
from cosmic.design.paths import full_path
from cosmic.design.point import DesignPoint
from cosmic.errors import SpecError, UnknownName
from cosmic.loading.designs import design_tree
from cosmic.mapping.choices import SERVED_MICRO_BATCH, choices, rules
from cosmic.mapping.frameworks import framework_named

DP = "npus // (tp * cp * pp)"


def mapping_tree(
    base: DesignPoint,
    *,
    framework: str = "any",
    stacks: Sequence[str] = (),
    held: Collection[str] = (),
    vary: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the set of all mappings of *base* that a *framework* can launch, as the content of a file.

    The fields at *held* keep their value; *vary* gives fields values of their own, as a parameter set does. *stacks*
    opens other layers besides the workload.
    """
    varied = {full_path(path): values for path, values in (vary or {}).items()}
    fixed = {full_path(path) for path in held}
    for path in fixed & varied.keys():
        raise SpecError("--vary", path, "is held as well: leave out one of the two")
    for path in fixed:
        schema.slot_at(base, path)  # refuses what does not exist
    base = _with_expert_tensor(base)
    return {
        "base": design_tree(base),
        "parameters": _parameters(base, framework, ["workload", *stacks], fixed, varied),
        "derived": _derived(base, fixed | varied.keys()),
        "constraints": rules(base, framework_named(framework)),
    }


def _with_expert_tensor(base: DesignPoint) -> DesignPoint:
    """Return *base* with the etp that it has, said: where it is searched, leaving it out is none of its values."""
    if not is_moe(base.model) or base.workload.task != "training":
        return base
    stated: DesignPoint = schema.assign(base, {"workload.etp": base.workload.expert_tensor})
    return stated


def _derived(base: DesignPoint, taken: Collection[str]) -> dict[str, str]:
    """Return what follows from the mapping: the replicas, and serving what one pass of each takes."""
    found = {"workload.dp": DP}
    if base.workload.task != "training" and not isinstance(base.model, Recommender):
        found["workload.micro_batch"] = SERVED_MICRO_BATCH[base.workload.task]
    return {path: text for path, text in found.items() if path not in taken}


Opened = Iterator[tuple[tuple[str, ...], list[tuple[Any, ...]]]]
"""Decisions: the paths that each sets, and the values that it may give them."""


def _parameters(
    base: DesignPoint, framework: str, stacks: Sequence[str], held: Collection[str], varied: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the parameters of the set, as a file has them."""
    for stack in stacks:
        if stack not in OPENED:
            raise UnknownName.among("--stacks", stack, "layer that can be opened", OPENED)
    found: dict[str, Any] = {}
    for stack in stacks:
        for paths, rows in OPENED[stack](base, framework):
            kept, values = _without(base, paths, rows, {*held, *varied})
            if len(values) > 1 or (values and values[0] != tuple(schema.get(base, path) for path in kept)):
                found[_key(kept)] = [_written(base, kept, row) for row in values]
    return found | dict(varied)


def _without(
    base: DesignPoint, paths: tuple[str, ...], rows: list[tuple[Any, ...]], held: Collection[str]
) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """Return a decision without the fields that are *held*: only what goes with their values in the base is left."""
    held = {path for path in paths if path in held}
    places = [place for place, path in enumerate(paths) if path not in held]
    if not places:
        return (), []
    matching = [
        row for row in rows if all(schema.get(base, p) == v for p, v in zip(paths, row, strict=True) if p in held)
    ]
    left = [tuple(row[place] for place in places) for row in matching or rows]
    return tuple(paths[place] for place in places), list(dict.fromkeys(left))


def _key(paths: tuple[str, ...]) -> str:
    """Return the key of a parameter that sets *paths*.

    >>> _key(("workload.tp",)), _key(("workload.pp", "workload.placement"))
    ('workload.tp', 'workload.{pp,placement}')
    """
    if len(paths) == 1:
        return paths[0]
    return f"{paths[0].rpartition('.')[0]}.{{{','.join(path.rpartition('.')[2] for path in paths)}}}"


def _written(base: DesignPoint, paths: tuple[str, ...], row: tuple[Any, ...]) -> Any:
    parts = [schema.write(value, schema.slot_at(base, path).dimension) for path, value in zip(paths, row, strict=True)]
    return parts[0] if len(parts) == 1 else parts


# ------------------------------------------------------------------------------------------------- layers


def _workload(base: DesignPoint, framework: str) -> Opened:
    for each in choices(base, framework_named(framework)):
        own = tuple(getattr(base.workload, field) for field in each.fields)
        values = (*each.values, own) if framework == "any" else each.values  # others need not know what the base does
        yield tuple(f"workload.{field}" for field in each.fields), list(dict.fromkeys(values))


def _collective(base: DesignPoint, _: str) -> Opened:
    """Yield what a communication library can be told: algorithms, how dimensions are used together, chunks, order."""
    for place, chosen in enumerate(base.collective.algorithms):
        names = [chosen, *(name for name in COLLECTIVES if name != chosen)]
        yield (f"collective.algorithms.{place}",), [(name,) for name in names]
    yield ("collective.multi_dim",), [(each,) for each in get_args(MultiDim)]
    yield ("collective.scheduling",), [(each,) for each in get_args(Scheduling)]
    yield ("collective.chunks",), [(each,) for each in (1, 4, 16, 64)]


def _network(base: DesignPoint, _: str) -> Opened:
    """Yield networks that could be built in its place: other topologies, from half to four times the bandwidth."""
    for place, dim in enumerate(base.network.dims):
        where = f"network.dims.{place}"
        yield (f"{where}.topology",), [(each,) for each in dict.fromkeys((dim.topology, *TOPOLOGIES))]
        yield (f"{where}.bandwidth",), [(factor * dim.bandwidth_bytes_per_s,) for factor in (0.5, 1.0, 2.0, 4.0)]


def _compute(base: DesignPoint, _: str) -> Opened:
    """Yield accelerators of the same vendor."""
    own = base.compute.accelerator
    vendor = catalog.entry("accelerators", own).get("vendor") if own in catalog.names("accelerators") else None
    others = [
        name for name in catalog.names("accelerators") if catalog.entry("accelerators", name).get("vendor") == vendor
    ]
    if vendor is not None:
        yield ("compute.accelerator",), [(name,) for name in dict.fromkeys((own, *others))]


COLLECTIVES = ("auto", "ring", "direct", "halving_doubling", "double_binary_tree")
TOPOLOGIES = ("switch", "fully_connected", "ring")
OPENED: dict[str, Callable[[DesignPoint, str], Opened]] = {
    "workload": _workload,
    "collective": _collective,
    "network": _network,
    "compute": _compute,
}
"""What each layer opens."""
