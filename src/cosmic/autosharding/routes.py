"""Reshardings between all shardings of a tensor at once.

The planner (`cosmic.workload.sharding.resharding`) finds the steps of fewest bytes from one sharding to another, a pair
at a time. Here its steps are the edges of a graph of all shardings, and each target is relaxed backwards: of fewest
elements on the wire, then of fewest steps, then of the smallest groups. What a path costs is added up beside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations, permutations

import numpy as np
import numpy.typing as npt

from cosmic.workload.graph import Sizes
from cosmic.workload.sharding.annotation import Axes, Sharding, group_size
from cosmic.workload.sharding.resharding import Move, Step, moves_of, wire_share

Price = Callable[[Move, Axes, float], float]
"""What a collective costs: of its kind, its axes and the elements of its payload."""
Floats = npt.NDArray[np.float64]
FEW = 1e-9
"""A step more weighs as much as this share of the tensor on the wire: it decides between equals only."""


@dataclass(frozen=True)
class Routes:
    """What it costs to take a tensor from each of some shardings to each other."""

    places: dict[Sharding, int]
    cost: Floats
    """By source and target; infinite where there is no way."""

    def between(self, source: Sharding, target: Sharding) -> float:
        """Return what it costs to get from *source* to *target*."""
        return float(self.cost[self.places[source], self.places[target]])


def routes(dims: tuple[str, ...], states: tuple[Sharding, ...], sizes: Sizes, price: Price) -> Routes:
    """Return the cheapest reshardings between *states*, the shardings of a tensor with *dims*."""
    places = {state: place for place, state in enumerate(states)}
    mesh = tuple(dict.fromkeys(axis for state in states for axis in state.used))
    held = [float(state.elements(dims, sizes)) for state in states]
    unit = FEW * max(held)
    found: list[tuple[int, int, Step, float, float]] = []
    for state, place in places.items():
        for step in _steps(dims, state, mesh):
            other = places.get(step.after)
            if other is not None:
                group = float(group_size(step.axes, sizes))
                payload = held[other] if step.kind == "all_gather" else held[place]
                weight = float(wire_share(step.kind, group)) * payload + unit * (1 + FEW * group)
                found.append((place, other, step, weight, price(step.kind, step.axes, payload)))
    if not found:
        return Routes(places, np.zeros((1, 1)))
    begin, end = (np.array([each[side] for each in found]) for side in (0, 1))
    wire, cost = (np.array([each[side] for each in found]) for side in (3, 4))
    kinds, named = _kinds([each[2] for each in found])
    total = np.empty((len(states), len(states)))
    for target, place in places.items():
        allowed = np.flatnonzero(np.array([_leads(step, target) for step in named])[kinds])
        total[:, place] = _relaxed(place, len(states), begin[allowed], end[allowed], wire[allowed], cost[allowed])
    return Routes(places, total)


def _relaxed(
    target: int, count: int, begin: npt.NDArray[np.intp], end: npt.NDArray[np.intp], wire: Floats, cost: Floats
) -> Floats:
    """Return what the paths of fewest elements to *target* cost, from every state (Bellman and Ford)."""
    far = np.full(count, np.inf)
    paid = np.full(count, np.inf)
    far[target] = paid[target] = 0.0
    order = np.argsort(begin, kind="stable")
    begin, end, wire, cost = begin[order], end[order], wire[order], cost[order]
    firsts = np.flatnonzero(np.r_[True, begin[1:] != begin[:-1]])
    owners = begin[firsts]
    while True:
        offered = wire + far[end]
        best = np.minimum.reduceat(offered, firsts)
        better = best < far[owners]
        if not better.any():
            return paid
        chosen = _first_of(offered, best, firsts)
        far[owners[better]] = best[better]
        paid[owners[better]] = (cost + paid[end])[chosen[better]]


def _first_of(offered: Floats, best: Floats, firsts: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """Return the place of the first offer of each group that is its best."""
    counts = np.diff(np.r_[firsts, len(offered)])
    hits = np.flatnonzero(offered == np.repeat(best, counts))
    groups = np.searchsorted(firsts, hits, side="right") - 1
    found = np.zeros(len(firsts), dtype=np.intp)
    found[groups[::-1]] = hits[::-1]
    return found


def _kinds(steps: list[Step]) -> tuple[npt.NDArray[np.intp], list[Step]]:
    """Return which steps are alike to `_leads`, and one of each kind."""
    kinds: dict[object, int] = {}
    numbers: list[int] = []
    named: list[Step] = []
    for step in steps:
        axis, key = step.axes[0], None
        onto = next((dim for dim, axes in step.after.dims if axis in axes), "")
        if step.kind in ("slice", "mask", "all_reduce", "reduce_scatter"):
            key = (step.kind, step.axes, onto, step.before.partial)
        if kinds.setdefault(key, len(kinds)) == len(named):
            named.append(step)
        numbers.append(kinds[key])
    return np.array(numbers), named


def _leads(step: Step, target: Sharding) -> bool:
    """Return whether the planner takes *step* on a way to *target*."""
    axis = step.axes[0]
    if step.kind == "slice":
        return target.holds(axis) is not None and axis in step.after.axes(target.holds(axis) or "")
    if step.kind == "mask":
        return axis in target.partial
    if step.kind == "all_reduce":
        return step.axes == tuple(
            each for each in step.before.partial if each not in target.partial and target.holds(each) is None
        )
    if step.kind != "reduce_scatter":
        return True
    if any(each in target.partial for each in step.axes):
        return False
    if len(step.axes) == 1 and target.holds(axis) is None:
        return True
    onto = next(dim for dim, axes in step.after.dims if axis in axes)
    here = tuple(each for each in target.axes(onto) if each in step.before.partial)
    return any(here[at : at + len(step.axes)] == step.axes for at in range(len(here)))


def _steps(dims: tuple[str, ...], state: Sharding, mesh: Axes) -> Iterator[Step]:
    """Yield every step from *state* on a mesh of these axes."""
    used = state.used
    for axis in mesh:
        if axis not in used:
            yield Step("mask", (axis,), state, state.pending((*state.partial, axis)))
            for dim in dims:
                yield Step("slice", (axis,), state, state.split(dim, (*state.axes(dim), axis)))
    yield from _reductions(dims, state)
    for dim, axes in state.dims:
        yield Step("mask", axes[-1:], state, state.split(dim, axes[:-1]).pending((*state.partial, axes[-1])))
        yield from moves_of(dim, dims, state)


def _reductions(dims: tuple[str, ...], state: Sharding) -> Iterator[Step]:
    """Yield the reductions of pending sums: some of them to all, or onto one dimension."""
    pending = state.partial
    for count in range(1, len(pending) + 1):
        for gone in combinations(pending, count):
            rest = state.pending(axis for axis in pending if axis not in gone)
            yield Step("all_reduce", gone, state, rest)
            for axes in permutations(gone):
                for dim in dims:
                    yield Step("reduce_scatter", axes, state, rest.split(dim, rest.axes(dim) + axes))
