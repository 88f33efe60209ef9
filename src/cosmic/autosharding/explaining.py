"""Why each tensor is sharded as it is, in a sentence, and what to look at again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cosmic.autosharding.costs import Fixed
from cosmic.autosharding.parts import Part, Parts
from cosmic.autosharding.planned import Planned
from cosmic.autosharding.result import Annotated, Sent
from cosmic.workload.graph import SizeTable, Tensor
from cosmic.workload.sharding import Sharding
from cosmic.workload.sharding.annotation import group_size

WORDS = {
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "all_reduce": "all-reduce",
    "all_to_all": "all-to-all",
    "collective_permute": "collective-permute",
}
"""Collectives as people write them."""


def explained(
    parts: Parts, kept: Mapping[str, Mapping[str, Sharding]], fixed: Fixed, sent: Sequence[Sent]
) -> tuple[Annotated, ...]:
    """Return the shardings of all tensors, each with the collectives that it costs, or what makes it need none."""
    found = []
    for part in parts.parts:
        for tensor in part.graph.tensors.values():
            sharding = kept[part.name][tensor.name]
            given = f"{part.name}/{tensor.name}" in fixed
            here = [each for each in sent if each.part == part.name and each.tensor == tensor.name]
            if tensor.role == "weight":
                here += [each for each in sent if each.part == part.name and each.tensor == f"d_{tensor.name}"]
            reason = _reason(part, tensor, kept[part.name], here)
            found.append(Annotated(part.name, tensor.name, tensor.role, tensor.dims, sharding, given, reason))
    return tuple(found)


def _reason(part: Part, tensor: Tensor, kept: Mapping[str, Sharding], sent: Sequence[Sent]) -> str:
    if sent:
        said = dict.fromkeys(
            f"{WORDS[each.kind]} over {' '.join(each.axes)} in the {each.phase} pass, {in_bytes(each.bytes)}"
            for each in sent
        )
        return "costs " + "; ".join(said)
    like = _follows(part, tensor, kept)
    return f"no collective: as {like}" if like else "no collective"


def _follows(part: Part, tensor: Tensor, kept: Mapping[str, Sharding]) -> str | None:
    """Return a tensor of an operator beside it that is split over the same axes along a dimension of both."""
    own = kept[tensor.name]
    for operator in part.graph.operators:
        names = {each.name: each for each in operator.tensors}
        if tensor.name not in names or not own.dims:
            continue
        for name in names:
            if name != tensor.name and any(kept[name].axes(dim) == axes for dim, axes in own.dims):
                return name
    return None


def in_bytes(value: float) -> str:
    """Return bytes as people write them.

    >>> in_bytes(134217728), in_bytes(512)
    ('134 MB', '512 B')
    """
    for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g} B"


def warned(found: Sequence[Planned], sizes_of: Callable[[Part], SizeTable]) -> tuple[str, ...]:
    """Return what XLA would warn of: tensors that are made whole on every device only to be split another way.

    Also dimensions that do not divide: devices compute on padding.
    """
    said: dict[str, None] = {}
    for account in found:
        sizes = sizes_of(account.part)
        for each in account.partitioned.operators:
            for transfer in (*each.inputs, *each.outputs):
                whole = [step for step in transfer.steps if step.kind == "all_gather" and not step.after.dims]
                sliced = [step for step in transfer.steps if step.kind == "slice"]
                if whole and sliced and transfer.steps.index(whole[0]) < transfer.steps.index(sliced[-1]):
                    said[
                        f"{account.part.name}: involuntary full rematerialisation of {transfer.tensor.name} "
                        f"at {each.operator.name}, from [{transfer.source}] to [{transfer.target}]"
                    ] = None
        for name, sharding in account.partitioned.shardings.items():
            for dim, axes in sharding.dims:
                ways = float(group_size(axes, sizes))
                if sizes[dim] % ways:
                    waste = -(-sizes[dim] // ways) * ways / sizes[dim] - 1
                    said[
                        f"{account.part.name}: {dim} = {sizes[dim]:.10g} of {name} does not divide by {ways:.10g} "
                        f"({'+'.join(axes)}): {100 * waste:.2g} % padding"
                    ] = None
    return tuple(said)
