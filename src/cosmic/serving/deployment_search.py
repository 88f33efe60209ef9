"""Search deployments: every shape of an instance, in one pool or two, under every load that it bears.

Instances of a pool do not meet: k equal ones under k times the load do what one does. So a deployment is a kind
(`InstanceKind`) and numbers of instances. The closed form prices them in batches:

    front       kinds × requests in flight of an instance: tokens/s of an accelerator against tokens/s of a user
    cheapest    for each kind the fewest instances with which all limits hold at the load, found by narrowing, as
                times fall where there are more; then the kind that takes the fewest accelerators

In two pools, the one that prefills decides TTFT and the other TPOT. So the fewest instances are found for each pool
beside plenty of the other, all pairs are compared by their sum, and the best are priced as they are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from cosmic.design.design_point import DesignPoint
from cosmic.design.serving_engine import load_engine
from cosmic.serving.deployment import deployment_of
from cosmic.serving.deployment_candidates import (
    MOST_NPUS,
    Candidate,
    DeploymentRows,
    Flags,
    InstanceKind,
    InstanceShape,
    Ints,
    as_design,
    deployment_rows,
    holds_limits,
    list_shapes,
    load_of,
    named_load,
    serving_of,
)
from cosmic.serving.deployment_estimates import CROWD_CLIENTS, DeploymentEstimates, add_token_costs, plain_metrics
from cosmic.serving.simulation_check import scale_metrics
from cosmic.serving.slo import Slo

IN_FLIGHT = np.unique(np.rint(2 ** np.arange(0, 13.01, 0.5)).astype(np.int64))
"""Requests in flight of an instance that the front has."""
INSTANCE = 64
"""Accelerators that one instance has at most."""
CHUNKS, PROMISING = (2048, 16384), 16
"""Most tokens of a step that are tried beside the engine's own, for so many shapes."""
PLENTY = 2**14
"""Instances of a pool of which there are enough."""
PAIRS = 64
"""Pairs of pools that are priced as they are."""
POOLS = (1, 4)
"""Instances that decode, of the front in two pools."""
PREFILLERS = 3
"""Shapes for prefill that the front has: those with most prompts a second for an accelerator."""
BUSY = 0.85
"""Share of the time that a prefill pool of the front is busy at most."""
MOSTLY = 0.75
"""Share of a machine on which either pool is compared alone."""
SHARES = 8
"""Ways to share accelerators between two pools."""
AT_ONCE = 8
"""Numbers of instances of a kind that are tried at once."""
FIRST_MAPPINGS = 4
"""Mappings of which the best is said to be it: those that the closed form has first."""
WAITING_SHARE = 0.02
"""Share of requests that may wait for KV cache: a deployment with more is the next smaller one with a queue."""


@dataclass(frozen=True)
class FoundDeployments:
    """What a search in one pool, or in two, found."""

    front: tuple[Candidate, ...] = ()
    """No other has more tokens/s for an accelerator and for a user; slowest users first."""
    cheapest: tuple[Candidate, ...] = ()
    """For each kind that can hold the limits, the fewest instances that do; fewest accelerators first."""
    kinds: int = 0
    """Kinds that were compared."""
    priced: int = 0
    """Deployments that were priced."""
    exhaustive: bool = True
    seconds: float = 0.0


def search_in_one(
    base: DesignPoint, limits: Sequence[Slo], stated: Mapping[str, int] | None = None
) -> FoundDeployments:
    """Return the front in one pool, and the cheapest deployments that hold *limits* under the load of *base*."""
    began = time.monotonic()
    shapes = fitting_shapes(base, stated or {})
    if not shapes:
        return FoundDeployments(kinds=0, seconds=time.monotonic() - began)
    kinds = [InstanceKind(shape) for shape in shapes]
    front, priced = _front_in_one(base, kinds, limits)
    cheapest, more = _cheapest_of_kinds(base, kinds, limits)
    if cheapest and serving_of(base).max_num_batched_tokens is None:
        promising = [InstanceKind(each.kind.shape, chunk=chunk) for each in cheapest[:PROMISING] for chunk in CHUNKS]
        others, again = _cheapest_of_kinds(base, promising, limits)
        cheapest, more = _sort_candidates((*cheapest, *others)), more + again
    return FoundDeployments(front, cheapest, len(kinds), priced + more + len(shapes), seconds=time.monotonic() - began)


def cheapest_in_one(
    base: DesignPoint, limits: Sequence[Slo], stated: Mapping[str, int] | None = None
) -> tuple[Candidate, ...]:
    """Return the cheapest deployments in one pool that hold *limits* under the load of *base*."""
    shapes = fitting_shapes(base, stated or {})
    return _cheapest_of_kinds(base, [InstanceKind(shape) for shape in shapes], limits)[0] if shapes else ()


def fitting_shapes(base: DesignPoint, stated: Mapping[str, int]) -> list[InstanceShape]:
    """Return the shapes that have memory for the weights and a request."""
    shapes = list_shapes(base, stated, INSTANCE)
    if not shapes:
        return []
    found = deployment_rows(base, [InstanceKind(shape) for shape in shapes], "concurrency", 1).estimates()
    return [shape for shape, runs in zip(shapes, found.runs, strict=True) if runs]


def _fitting_pools(base: DesignPoint) -> list[InstanceShape]:
    """Return those of them that an engine takes as instances of two pools."""
    staged = load_engine(serving_of(base).engine).stages_in_pools
    return [fitting_shape for fitting_shape in fitting_shapes(base, {}) if staged or fitting_shape.pp == 1]


def _front_in_one(
    base: DesignPoint, kinds: Sequence[InstanceKind], limits: Sequence[Slo]
) -> tuple[tuple[Candidate, ...], int]:
    every = [kind for kind in kinds for _ in IN_FLIGHT]
    rows = deployment_rows(base, every, "concurrency", np.tile(IN_FLIGHT, len(kinds)))
    found = rows.estimates()
    best = _front_places(found, _is_kept(found, rows.loads / rows.instances, base, every))
    return tuple(candidates_at(rows, found, best, limits)), len(every)


def candidates_at(
    rows: DeploymentRows, found: DeploymentEstimates, places: Sequence[int], limits: Sequence[Slo]
) -> list[Candidate]:
    """Return the deployments at *places*, with totals and costs of their own accelerators.

    Rows are priced on the machine of their base: instances that fill it stand for those that there are.
    """
    machine = deployment_of(rows.base)
    result = []
    for candidate in rows.candidates(found, places, limits):
        seen = candidate.metrics
        own = scale_metrics(seen, seen.tokens_per_s_per_npu * candidate.npus / seen.output_tokens_per_s)
        costs = plain_metrics(add_token_costs(own, machine))
        share = candidate.npus / rows.base.network.npus
        usd, joules = (value and value * share for value in (costs.usd_per_million_tokens, costs.j_per_million_tokens))
        result.append(replace(candidate, metrics=replace(own, usd_per_million_tokens=usd, j_per_million_tokens=joules)))
    return result


def _is_kept(
    found: DeploymentEstimates, in_flight: npt.NDArray[np.float64], base: DesignPoint, kinds: Sequence[InstanceKind]
) -> Flags:
    """Return which deployments run and make few requests wait for KV cache."""
    there = np.array([base.network.npus // kind.shape.npus for kind in kinds])
    kept: Flags = found.runs & (np.asarray(found.metrics.waiting) <= WAITING_SHARE * in_flight * there)
    return kept


def _front_places(found: DeploymentEstimates, possible: Flags) -> list[int]:
    """Return the places of the front, slowest users first."""
    throughput, speed = (np.asarray(getattr(found.metrics, f"tokens_per_s_per_{name}")) for name in ("npu", "user"))
    order = np.lexsort((-throughput, -speed))
    kept: list[int] = []
    most = -np.inf
    for place in order[possible[order]]:
        if throughput[place] > most:
            kept.append(int(place))
            most = throughput[place]
    return kept[::-1]


def _cheapest_of_kinds(
    base: DesignPoint, kinds: Sequence[InstanceKind], limits: Sequence[Slo]
) -> tuple[tuple[Candidate, ...], int]:
    name, whole = named_load(load_of(base))

    def holds(counts: Ints) -> Flags:
        rows = deployment_rows(base, list(kinds) * len(counts), name, whole, counts.ravel())
        return holds_limits(rows.estimates(), limits).reshape(counts.shape)

    counts, rounds = least_holding(holds, _most_instances(base, kinds, name, whole))
    rows = deployment_rows(base, kinds, name, whole, np.maximum(counts, 1))
    found = rows.estimates()
    kept = np.flatnonzero((counts > 0) & holds_limits(found, limits)).tolist()
    return _sort_candidates(candidates_at(rows, found, kept, limits)), (rounds + 1) * len(kinds)


def _most_instances(base: DesignPoint, kinds: Sequence[InstanceKind], name: str, whole: float) -> Ints:
    """Return the most instances of each kind that make sense."""
    most = np.array([max(1, MOST_NPUS // kind.shape.npus) for kind in kinds])
    return np.minimum(most, int(whole)) if name == "concurrency" else most


def _sort_candidates(found: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Return deployments, fewest accelerators first; of those with as many, the one that is done soonest."""
    return tuple(sorted(found, key=lambda each: (each.npus, float(each.metrics.e2e.mean_s))))


def least_holding(holds: Callable[[Ints], Flags], highest: Ints) -> tuple[Ints, int]:
    """Return the least number from 1 to *highest* with which each row holds, 0 if none does, and the tries of a row.

    *holds* takes several numbers for each row, a line each: a call costs more than its rows.

    >>> least_holding(lambda counts: counts >= np.array([3, 1, 99]), np.array([8, 8, 8]))[0].tolist()
    [3, 1, 0]
    """
    possible = holds(highest[None])[0]
    low, high = np.zeros_like(highest), highest.copy()
    tries = 1
    while np.any(possible & (high - low > 1)):
        tried = _numbers_between(low, high)
        kept = holds(tried)
        tries += len(tried)
        first = np.argmax(kept, axis=0)
        some, place = kept.any(axis=0), np.arange(len(high))
        below = np.where(first > 0, tried[first - 1, place], low)
        unsettled = high - low > 1
        low = np.where(unsettled, np.where(some, below, tried[-1]), low)
        high = np.where(unsettled & some, tried[first, place], high)
    return np.where(possible, high, 0), tries


def _numbers_between(low: Ints, high: Ints) -> Ints:
    """Return numbers between others, evenly by their ratios: a line for each of `AT_ONCE`."""
    start = np.maximum(low, 1).astype(float)
    steps = (np.arange(AT_ONCE)[:, None] + 1) / (AT_ONCE + 1)
    found = np.rint(start * (np.maximum(high, 1) / start) ** steps).astype(np.int64)
    few = high - low <= AT_ONCE + 1
    found = np.where(few, low + 1 + np.arange(AT_ONCE)[:, None], found)
    clipped: Ints = np.maximum(np.clip(found, low + 1, np.maximum(high - 1, low + 1)), 1)
    return clipped


# ------------------------------------------------------------------------------------------------------- two pools


def search_in_two(base: DesignPoint, limits: Sequence[Slo], most: int | None = None) -> FoundDeployments:
    """Return the same for deployments in two pools, on *most* accelerators at most."""
    began = time.monotonic()
    shapes = _fitting_pools(base)
    if not shapes or (most or 2) < 2:
        return FoundDeployments(seconds=time.monotonic() - began)
    front, priced = _front_in_two(base, shapes, limits, most or base.network.npus)
    cheapest, more = _cheapest_in_two(base, shapes, limits)
    return FoundDeployments(front, cheapest, len(shapes) ** 2, priced + more, seconds=time.monotonic() - began)


def _cheapest_in_two(
    base: DesignPoint, shapes: Sequence[InstanceShape], limits: Sequence[Slo]
) -> tuple[tuple[Candidate, ...], int]:
    name, whole = named_load(load_of(base))
    fast = max(shapes, key=lambda each: (each.tp, -each.pp, each.ranks))
    decoding, filling = [InstanceKind(shape, fast) for shape in shapes], [InstanceKind(fast, shape) for shape in shapes]
    plenty = int(whole) if name == "concurrency" else PLENTY
    top = np.minimum(_most_instances(base, decoding, name, whole), PLENTY)

    def decode(counts: Ints) -> Flags:
        rows = deployment_rows(base, decoding * len(counts), name, whole, counts.ravel(), plenty)
        return holds_limits(rows.estimates(), limits).reshape(counts.shape)

    def prefill(counts: Ints) -> Flags:
        rows = deployment_rows(base, filling * len(counts), name, whole, plenty, counts.ravel())
        return holds_limits(rows.estimates(), limits).reshape(counts.shape)

    decoders, first = least_holding(decode, top)
    prefillers, second = least_holding(prefill, top)
    pairs = _pairs(shapes, decoders, prefillers)
    if not pairs:
        return (), (first + second) * len(shapes)
    kinds = [InstanceKind(shapes[one], shapes[other]) for one, other in pairs]
    counts = np.array([decoders[one] for one, _ in pairs]), np.array([prefillers[other] for _, other in pairs])
    kept: list[Candidate] = []
    priced = (first + second) * len(shapes)
    for more in range(3):  # where the pools are not quite apart, one more of each
        rows = deployment_rows(base, kinds, name, whole, counts[0] + more, counts[1] + more)
        found = rows.estimates()
        kept += candidates_at(rows, found, np.flatnonzero(holds_limits(found, limits)).tolist(), limits)
        priced += len(kinds)
        if kept:
            break
    return _sort_candidates(kept), priced


def _pairs(shapes: Sequence[InstanceShape], decoders: Ints, prefillers: Ints) -> list[tuple[int, int]]:
    """Return the pairs of decoding and prefilling shapes that take the fewest accelerators, by their places."""
    npus = np.array([shape.npus for shape in shapes])
    taken = np.where(decoders > 0, decoders * npus, np.inf)[:, None] + np.where(
        prefillers > 0, prefillers * npus, np.inf
    )
    order = np.argsort(taken, axis=None, kind="stable")[:PAIRS]
    ones, others = np.unravel_index(order, taken.shape)
    return [(int(one), int(other)) for one, other in zip(ones, others, strict=True) if np.isfinite(taken[one, other])]


def _front_in_two(
    base: DesignPoint, shapes: Sequence[InstanceShape], limits: Sequence[Slo], most: int
) -> tuple[tuple[Candidate, ...], int]:
    rates = _prompts_per_s(base, shapes, limits)
    order = np.argsort(-rates / np.array([each.npus for each in shapes]), kind="stable")[:PREFILLERS]
    decoding = [(shape, count) for shape in shapes for count in IN_FLIGHT[::2]]
    alone = deployment_rows(
        base,
        [InstanceKind(each, shapes[0]) for each, _ in decoding],
        "concurrency",
        [each for _, each in decoding],
        1,
        PLENTY,
    )
    speeds = np.nan_to_num(np.asarray(alone.estimates().metrics.requests_per_s, dtype=float))
    every: list[tuple[InstanceKind, int, int, int]] = []
    for place in order.tolist():
        for (shape, count), speed in zip(decoding, speeds, strict=True):
            for pool in POOLS:
                others = max(1, int(np.ceil(pool * speed / (BUSY * rates[place])))) if rates[place] > 0 else 0
                if others and pool * shape.npus + others * shapes[place].npus <= most:
                    every.append((InstanceKind(shape, shapes[place]), pool, others, int(count) * pool))
    if not every:
        return (), len(decoding)
    kinds, counts, prefillers, loads = (list(each) for each in zip(*every, strict=True))
    rows = deployment_rows(base, kinds, "concurrency", loads, counts, prefillers)
    found = rows.estimates()
    best = _front_places(found, found.runs & (np.asarray(found.metrics.waiting) <= WAITING_SHARE * rows.loads))
    return tuple(candidates_at(rows, found, best, limits)), len(every) + len(decoding)


def _prompts_per_s(
    base: DesignPoint, shapes: Sequence[InstanceShape], limits: Sequence[Slo]
) -> npt.NDArray[np.float64]:
    """Return the prompts a second that an instance of each shape prefills; 0 where TTFT does not hold even alone."""
    fast = max(shapes, key=lambda each: (each.tp, -each.pp, each.ranks))
    rate = 1e-3
    found = deployment_rows(base, [InstanceKind(fast, shape) for shape in shapes], "rate", rate, 1, 1).estimates()
    kept = found.runs.copy()
    for limit in limits:
        if limit.metric == "ttft":
            kept &= np.asarray(limit.holds(found.metrics))
    busy = np.asarray(found.metrics.utilisation["prefill"], dtype=float)
    return np.where(kept & (busy > 0), rate / np.where(busy > 0, busy, 1.0), 0.0)


# ------------------------------------------------------------------------------------------------ the best mapping


def best_mappings(base: DesignPoint, limits: Sequence[Slo], stated: Mapping[str, int]) -> tuple[list[DesignPoint], int]:
    """Return *base* with the few mappings that serve its load soonest within the limits, and how many were compared.

    The best is first. There is none where no mapping has memory for the weights and a request.
    """
    shapes = list_shapes(base, stated)
    if not shapes:
        return [], 0
    kinds, instances = (
        [InstanceKind(shape) for shape in shapes],
        np.array([base.network.npus // shape.npus for shape in shapes]),
    )
    name, whole = named_load(load_of(base))
    found = deployment_rows(base, kinds, name, whole, instances).estimates()
    if found.runs.any():
        broken = np.zeros(len(shapes), dtype=np.int64)
        for limit in limits:
            broken += ~np.asarray(limit.holds(found.metrics))
        order = np.lexsort((np.nan_to_num(found.metrics.e2e.mean_s, nan=np.inf), broken, ~found.runs))
    else:  # none bears the load: which one bears most?
        found = deployment_rows(base, kinds, "concurrency", CROWD_CLIENTS * base.network.npus, instances).estimates()
        order = np.argsort(-np.nan_to_num(found.metrics.requests_per_s), kind="stable")
    places = [int(place) for place in order[:FIRST_MAPPINGS] if found.runs[place]]
    laid = [as_design(base, kinds[place], int(instances[place])) for place in places]
    return [replace(each, serving=base.serving) for each in laid], len(shapes)


def best_split(base: DesignPoint, limits: Sequence[Slo]) -> Candidate | None:
    """Return how the accelerators of *base* serve its load best in two pools; None where they cannot."""
    npus = base.network.npus
    decoding, filling = _promising(
        base, [fitting_pool for fitting_pool in _fitting_pools(base) if fitting_pool.npus < npus]
    )
    every = [
        (InstanceKind(one, other), (npus - count * other.npus) // one.npus, count)
        for one in decoding
        for other in filling
        for count in _prefill_shares(npus, other.npus)
        if (npus - count * other.npus) % one.npus == 0
    ]
    if not every:
        return None
    kinds, decoders, prefillers = (list(each) for each in zip(*every, strict=True))
    name, whole = named_load(load_of(base))
    rows = deployment_rows(base, kinds, name, whole, decoders, prefillers)
    found = rows.estimates()
    if not found.runs.any():
        return None
    seconds = np.nan_to_num(np.asarray(found.metrics.e2e.mean_s, dtype=float), nan=np.inf)
    place = int(np.lexsort((seconds, ~holds_limits(found, limits), ~found.runs))[0])
    return candidates_at(rows, found, [place], limits)[0]


def _promising(
    base: DesignPoint, shapes: Sequence[InstanceShape]
) -> tuple[Sequence[InstanceShape], Sequence[InstanceShape]]:
    """Return the shapes that decode soonest, and that prefill soonest, on most of a machine beside plenty of others."""
    if len(shapes) <= PROMISING:
        return shapes, shapes
    fast = max(shapes, key=lambda each: (each.tp, -each.pp, each.ranks))
    name, whole = named_load(load_of(base))
    plenty = int(whole) if name == "concurrency" else PLENTY
    there = np.array([max(1, int(MOSTLY * base.network.npus) // shape.npus) for shape in shapes])
    there = np.minimum(there, max(1, int(whole))) if name == "concurrency" else there
    ways = (
        ([InstanceKind(shape, fast) for shape in shapes], there, plenty),
        ([InstanceKind(fast, shape) for shape in shapes], plenty, there),
    )
    found = []
    for kinds, decoders, prefillers in ways:
        seconds = deployment_rows(base, kinds, name, whole, decoders, prefillers).estimates().metrics.e2e.mean_s
        order = np.argsort(np.nan_to_num(np.asarray(seconds, dtype=float), nan=np.inf), kind="stable")
        found.append([shapes[place] for place in order[:PROMISING].tolist()])
    return found[0], found[1]


def _prefill_shares(npus: int, instance: int) -> list[int]:
    """Return how many instances of so many accelerators prefill, of those that there is room for: few, half, most."""
    most = (npus - 1) // instance
    return sorted({max(1, round(most * share / SHARES)) for share in range(1, SHARES + 1)}) if most else []
