"""The cheapest sequence of collectives from one sharding of a tensor to another.

Wire elements of a step, sent by one device of a group of *n*:

    all-gather          (n - 1) / n of its output
    reduce-scatter      (n - 1) / n of its input
    all-reduce          2 (n - 1) / n of the tensor
    all-to-all          (n - 1) / n of the tensor
    collective-permute  all of the tensor
    slice, mask         nothing: a device keeps its shard, or zeros in place of the shards of others

These are the bounds of bandwidth-optimal algorithms on any network. The sequence is a shortest path over shardings
(Dijkstra), where ties go to fewer steps, then to smaller groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations, permutations, takewhile
from typing import Any, Literal, get_args

import numpy as np

from cosmic.base.errors import SpecError
from cosmic.base.graphs import nearest_first
from cosmic.base.numeric import Numeric
from cosmic.workload.operator_graph import Sizes
from cosmic.workload.sharding.tensor_sharding import REPLICATED, Axes, Sharding, group_size

Collective = Literal["all_gather", "reduce_scatter", "all_reduce", "all_to_all", "collective_permute"]
COLLECTIVES: tuple[Collective, ...] = get_args(Collective)
Move = Literal["slice", "mask"] | Collective


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a resharding, among devices that differ in *axes* only."""

    kind: Move
    axes: Axes
    before: Sharding
    after: Sharding
    halo: tuple[str, int] | None = None
    """Where only boundary rows move: their dimension, and how many of them."""

    @property
    def payload(self) -> Sharding:
        """The sharding of the collective's payload: the larger of its input and its output."""
        return self.after if self.kind == "all_gather" else self.before

    def elements(self, dims: tuple[str, ...], sizes: Sizes) -> Numeric:
        """Return the elements of its payload on a device, of a tensor with *dims*."""
        return payload_elements(self.payload, dims, self.halo, sizes)


def payload_elements(sharding: Sharding, dims: tuple[str, ...], halo: tuple[str, int] | None, sizes: Sizes) -> Numeric:
    """Return the elements of a payload; of a *halo*, its rows only, at most all that the other shards have.

    >>> rows, sizes = Sharding.of({"height": "tp"}), {"height": 32, "width": 8, "tp": 4}
    >>> [float(payload_elements(rows, ("height", "width"), ("height", reach), sizes)) for reach in (1, 10, 40)]
    [8.0, 80.0, 192.0]
    """
    total = sharding.elements(dims, sizes)
    if halo is None:
        return total
    dim, rows = halo
    local = sharding.local(dim, sizes)
    missing = local * (group_size(sharding.axes(dim), sizes) - 1)
    return total * np.minimum(rows, missing) / local


def wire_share(kind: Move, n: Numeric) -> Numeric:
    """Return the share of its payload that each of *n* devices sends in a collective.

    >>> wire_share("all_reduce", 4)
    1.5
    """
    if kind in ("slice", "mask"):
        return 0 * n
    if kind == "collective_permute":
        return 0 * n + 1
    return (2 if kind == "all_reduce" else 1) * (n - 1) / n


def reshard(dims: tuple[str, ...], source: Sharding, target: Sharding, sizes: Sizes) -> tuple[tuple[Step, ...], float]:
    """Return the cheapest steps that take a tensor with *dims* from *source* to *target*, and their wire elements.

    >>> two = Sharding.of({"heads": "tp"}), Sharding.of({"sequence": "tp"})
    >>> steps, wire = reshard(("sequence", "heads"), *two, {"sequence": 64, "heads": 8, "tp": 4})
    >>> [step.kind for step in steps], wire
    (['all_to_all'], 96.0)
    """
    if source == target:
        return (), 0.0
    axes = sorted({*source.used, *target.used})
    relevant = (*((dim, sizes[dim]) for dim in dims), *((axis, sizes[axis]) for axis in axes))
    return _plan_steps(dims, source, target, relevant)


RelevantSizes = tuple[tuple[str, Numeric], ...]
"""The sizes that matter to a resharding, as a hashable value."""


@lru_cache(maxsize=65536)
def _plan_steps(
    dims: tuple[str, ...], source: Sharding, target: Sharding, relevant: RelevantSizes
) -> tuple[tuple[Step, ...], float]:
    """Leave out the major axes on which both ends agree, and find the shortest path of the rest."""
    stays = Sharding(
        tuple((dim, common) for dim, axes in source.dims if (common := _common_prefix(axes, target.axes(dim)))),
        tuple(axis for axis in source.partial if axis in target.partial),
    )
    sizes = dict(relevant)
    local = tuple((dim, stays.local(dim, sizes)) for dim in dims)
    mesh = tuple((axis, size) for axis, size in relevant if axis not in dims and axis not in stays.used)
    start, end = _remove_common(source, stays), _remove_common(target, stays)
    find = _plan_all_reduce if end == REPLICATED and not start.dims else _search_shortest
    steps, wire = find(dims, start, end, local + mesh)
    return tuple(
        replace(s, before=_restore_common(s.before, stays), after=_restore_common(s.after, stays)) for s in steps
    ), wire


def _common_prefix(first: Axes, second: Axes) -> Axes:
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))
    return tuple(axis for axis, _ in pairs)


def _remove_common(sharding: Sharding, stays: Sharding) -> Sharding:
    dims = tuple((dim, rest) for dim, axes in sharding.dims if (rest := axes[len(stays.axes(dim)) :]))
    return Sharding(dims, tuple(axis for axis in sharding.partial if axis not in stays.partial))


def _restore_common(sharding: Sharding, stays: Sharding) -> Sharding:
    joined = {dim: stays.axes(dim) + sharding.axes(dim) for dim, _ in (*stays.dims, *sharding.dims)}
    return Sharding(tuple(sorted(joined.items())), tuple(sorted(stays.partial + sharding.partial)))


def _plan_all_reduce(
    dims: tuple[str, ...], source: Sharding, target: Sharding, relevant: RelevantSizes
) -> tuple[tuple[Step, ...], float]:
    """Return the shortest path from sums that are pending only to a replicated tensor, one all-reduce.

    Any other path scatters some sums and gathers them again. It sends at least as much, 2 (n - 1) / n of the tensor, in
    more steps. Most gradients of weights go this way, and `_search_shortest` would try many others first.
    """
    sizes = dict(relevant)
    wire = wire_share("all_reduce", float(group_size(source.partial, sizes))) * source.elements(dims, sizes)
    return (Step("all_reduce", source.partial, source, target),), float(wire)


@lru_cache(maxsize=65536)
def _search_shortest(
    dims: tuple[str, ...], source: Sharding, target: Sharding, relevant: RelevantSizes
) -> tuple[tuple[Step, ...], float]:
    sizes = dict(relevant)

    def moves(state: Sharding, cost: tuple[float, int, float]) -> Iterator[tuple[Sharding, Any, Step]]:
        # By elements on the wire, then by steps, then by ranks in all groups; ties go to the path found first.
        wire, length, ranks = cost
        held = state.elements(dims, sizes)
        for step in list_moves(dims, state, target):
            payload = step.after.elements(dims, sizes) if step.kind == "all_gather" else held
            group = float(group_size(step.axes, sizes))
            yield step.after, (wire + float(wire_share(step.kind, group) * payload), length + 1, ranks + group), step

    came: dict[Sharding, Step] = {}
    for state, cost, step in nearest_first(source, (0.0, 0, 0.0), moves):
        came[state] = step
        if state == target:
            return _trace_steps(came, source, target), cost[0]
    raise SpecError("reshard", str(target), f"cannot be reached from {source}")


def _trace_steps(came: dict[Sharding, Step], source: Sharding, target: Sharding) -> tuple[Step, ...]:
    steps: list[Step] = []
    while target != source:
        steps.append(came[target])
        target = steps[-1].before
    return tuple(reversed(steps))


# ---- moves


def list_moves(dims: tuple[str, ...], state: Sharding, target: Sharding) -> Iterator[Step]:
    """Yield every step from *state* that may be on a shortest path to *target*."""
    yield from _list_local_moves(state, target)
    yield from _list_reductions(dims, state, target)
    for dim, _ in state.dims:
        yield from list_dim_moves(dim, dims, state)


def list_dim_moves(dim: str, dims: tuple[str, ...], state: Sharding) -> Iterator[Step]:
    """Yield every step that takes axes from one dimension: gathers, to another dimension, into another order."""
    axes = state.axes(dim)
    for count in range(1, len(axes) + 1):
        remaining, moved = axes[:-count], axes[-count:]
        without = state.split(dim, remaining)
        yield Step("all_gather", moved, state, without)
        for other_dim in dims:
            if other_dim != dim:
                yield Step("all_to_all", moved, state, without.split(other_dim, without.axes(other_dim) + moved))
    for order in permutations(axes):
        if order != axes:
            # The permute is among the axes from the first to the last that change position.
            changed = [index for index, axis in enumerate(axes) if axis != order[index]]
            yield Step("collective_permute", axes[changed[0] : changed[-1] + 1], state, state.split(dim, order))


def _list_local_moves(state: Sharding, target: Sharding) -> Iterator[Step]:
    """Yield local steps: slice a replicated dimension, or mask a tensor into partial sums."""
    used = state.used
    for dim, axes in target.dims:
        for axis in axes:
            if axis not in used:
                yield Step("slice", (axis,), state, state.split(dim, (*state.axes(dim), axis)))
    for axis in target.partial:
        pending = (*state.partial, axis)
        if axis not in used:
            yield Step("mask", (axis,), state, state.pending(pending))
        for dim, axes in state.dims:
            if axes[-1] == axis:
                yield Step("mask", (axis,), state, state.split(dim, axes[:-1]).pending(pending))


def _list_reductions(dims: tuple[str, ...], state: Sharding, target: Sharding) -> Iterator[Step]:
    """Yield reductions of pending sums: onto the dimension that wants their axis, else all at once, or one onto any."""
    pending = [axis for axis in state.partial if axis not in target.partial]
    unwanted = tuple(axis for axis in pending if target.holds(axis) is None)
    if unwanted:
        yield Step("all_reduce", unwanted, state, state.pending(axis for axis in state.partial if axis not in unwanted))
    scattered: list[tuple[Axes, str]] = [((axis,), dim) for axis in unwanted for dim in dims]
    for dim, axes in target.dims:
        scatterable = tuple(axis for axis in axes if axis in pending)
        scattered += [(scatterable[first:last], dim) for first, last in combinations(range(len(scatterable) + 1), 2)]
    for axes, dim in scattered:
        rest = state.pending(axis for axis in state.partial if axis not in axes)
        yield Step("reduce_scatter", axes, state, rest.split(dim, rest.axes(dim) + axes))
