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

from cosmic.base.optimise import Steps, optimise
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
    list_shapes,
    load_of,
    named_load,
    serving_of,
)
from cosmic.serving.served_evaluation import CROWD_CLIENTS, add_token_costs
from cosmic.serving.serving_metrics import Slo, plain_metrics, scale_metrics

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


def search_in_one(base: DesignPoint, limits: Sequence[Slo], fixed: Mapping[str, int] | None = None) -> FoundDeployments:
    """Return the front in one pool, and the cheapest deployments that hold *limits* under the load of *base*."""
    began = time.monotonic()
    shapes = fitting_shapes(base, fixed or {})
    if not shapes:
        return FoundDeployments(kinds=0, seconds=time.monotonic() - began)
    kinds = [InstanceKind(shape) for shape in shapes]
    every = [kind for kind in kinds for _ in IN_FLIGHT]
    rows = deployment_rows(base, every, "concurrency", np.tile(IN_FLIGHT, len(kinds)))
    best = _front_rows(rows, rows.loads / rows.instances * (base.network.npus // rows.npus))
    front, priced = tuple(candidates_at(rows, best, limits)), len(every)
    cheapest, estimated = _cheapest_of_kinds(base, kinds, limits)
    if cheapest and serving_of(base).max_num_batched_tokens is None:
        promising = [
            InstanceKind(candidate.kind.shape, chunk=chunk) for candidate in cheapest[:PROMISING] for chunk in CHUNKS
        ]
        chunked, further = _cheapest_of_kinds(base, promising, limits)
        cheapest, estimated = _sort_candidates((*cheapest, *chunked)), estimated + further
    return FoundDeployments(
        front, cheapest, len(kinds), priced + estimated + len(shapes), seconds=time.monotonic() - began
    )


def cheapest_in_one(
    base: DesignPoint, limits: Sequence[Slo], fixed: Mapping[str, int] | None = None
) -> tuple[Candidate, ...]:
    """Return the cheapest deployments in one pool that hold *limits* under the load of *base*."""
    shapes = fitting_shapes(base, fixed or {})
    return _cheapest_of_kinds(base, [InstanceKind(shape) for shape in shapes], limits)[0] if shapes else ()


def fitting_shapes(base: DesignPoint, fixed: Mapping[str, int]) -> list[InstanceShape]:
    """Return the shapes that have memory for the weights and a request."""
    shapes = list_shapes(base, fixed, INSTANCE)
    if not shapes:
        return []
    estimates = deployment_rows(base, [InstanceKind(shape) for shape in shapes], "concurrency", 1).estimates
    return [shape for shape, runs in zip(shapes, estimates.runs, strict=True) if runs]


def _fitting_pools(base: DesignPoint) -> list[InstanceShape]:
    """Return those of them that an engine takes as instances of two pools."""
    staged = load_engine(serving_of(base).engine).stages_in_pools
    return [fitting_shape for fitting_shape in fitting_shapes(base, {}) if staged or fitting_shape.pp == 1]


def candidates_at(rows: DeploymentRows, chosen: Sequence[int], limits: Sequence[Slo]) -> list[Candidate]:
    """Return the deployments at *chosen*, with totals and costs of their own accelerators.

    Rows are priced on the machine of their base: instances that fill it stand for those that there are.
    """
    machine = deployment_of(rows.base)
    result = []
    for candidate in rows.candidates(chosen, limits):
        metrics = candidate.metrics
        scaled = scale_metrics(metrics, metrics.tokens_per_s_per_npu * candidate.npus / metrics.output_tokens_per_s)
        costs = plain_metrics(add_token_costs(scaled, machine))
        share = candidate.npus / rows.base.network.npus
        usd, joules = (value and value * share for value in (costs.usd_per_million_tokens, costs.j_per_million_tokens))
        result.append(
            replace(candidate, metrics=replace(scaled, usd_per_million_tokens=usd, j_per_million_tokens=joules))
        )
    return result


def _front_rows(rows: DeploymentRows, in_flight: npt.NDArray[np.float64]) -> list[int]:
    """Return the places of the front, slowest users first, of deployments that make few requests wait for KV cache."""
    metrics = rows.estimates.metrics
    possible = rows.estimates.runs & (np.asarray(metrics.waiting) <= WAITING_SHARE * in_flight)
    throughput, speed = (np.asarray(getattr(metrics, f"tokens_per_s_per_{name}")) for name in ("npu", "user"))
    order = np.lexsort((-throughput, -speed))
    front: list[int] = []
    highest = -np.inf
    for row in order[possible[order]]:
        if throughput[row] > highest:
            front.append(int(row))
            highest = throughput[row]
    return front[::-1]


def _cheapest_of_kinds(
    base: DesignPoint, kinds: Sequence[InstanceKind], limits: Sequence[Slo]
) -> tuple[tuple[Candidate, ...], int]:
    name, load_size = named_load(load_of(base))

    def holds(counts: Ints) -> Flags:
        rows = deployment_rows(base, list(kinds) * len(counts), name, load_size, counts.ravel())
        return rows.holding(limits).reshape(counts.shape)

    counts, rounds = least_holding(holds, _largest_counts(base, kinds, name, load_size))
    rows = deployment_rows(base, kinds, name, load_size, np.maximum(counts, 1))
    holding = np.flatnonzero((counts > 0) & rows.holding(limits)).tolist()
    return _sort_candidates(candidates_at(rows, holding, limits)), (rounds + 1) * len(kinds)


def _largest_counts(base: DesignPoint, kinds: Sequence[InstanceKind], name: str, load_size: float) -> Ints:
    """Return the most instances of each kind that make sense."""
    limits_of_instances = np.array([max(1, MOST_NPUS // kind.shape.npus) for kind in kinds])
    return np.minimum(limits_of_instances, int(load_size)) if name == "concurrency" else limits_of_instances


def _sort_candidates(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Return deployments, fewest accelerators first; of those with as many, the one that is done soonest."""
    return tuple(sorted(candidates, key=lambda candidate: (candidate.npus, float(candidate.metrics.e2e.mean_s))))


def least_holding(holds: Callable[[Ints], Flags], highest: Ints) -> tuple[Ints, int]:
    """Return the least number from 1 to *highest* with which each row holds, 0 if none does, and the tries of a row.

    *holds* takes several numbers for each row, a line each: a call costs more than its rows.

    >>> least_holding(lambda counts: counts >= np.array([3, 1, 99]), np.array([8, 8, 8]))[0].tolist()
    [3, 1, 0]
    """
    return optimise(_narrow_counts(highest), holds)


def _narrow_counts(highest: Ints) -> Steps[Ints, Flags, tuple[Ints, int]]:
    possible = (yield highest[None])[0]
    low, high = np.zeros_like(highest), highest.copy()
    tries = 1
    while np.any(possible & (high - low > 1)):
        tried = _numbers_between(low, high)
        holding = yield tried
        tries += len(tried)
        first = np.argmax(holding, axis=0)
        any_holding, column = holding.any(axis=0), np.arange(len(high))
        previous = np.where(first > 0, tried[first - 1, column], low)
        unsettled = high - low > 1
        low = np.where(unsettled, np.where(any_holding, previous, tried[-1]), low)
        high = np.where(unsettled & any_holding, tried[first, column], high)
    return np.where(possible, high, 0), tries


def _numbers_between(low: Ints, high: Ints) -> Ints:
    """Return numbers between others, evenly by their ratios: a line for each of `AT_ONCE`."""
    start = np.maximum(low, 1).astype(float)
    steps = (np.arange(AT_ONCE)[:, None] + 1) / (AT_ONCE + 1)
    numbers = np.rint(start * (np.maximum(high, 1) / start) ** steps).astype(np.int64)
    is_narrow = high - low <= AT_ONCE + 1
    numbers = np.where(is_narrow, low + 1 + np.arange(AT_ONCE)[:, None], numbers)
    clipped: Ints = np.maximum(np.clip(numbers, low + 1, np.maximum(high - 1, low + 1)), 1)
    return clipped


# ---- two pools


def search_in_two(base: DesignPoint, limits: Sequence[Slo], most_npus: int | None = None) -> FoundDeployments:
    """Return the same for deployments in two pools, on *most_npus* accelerators at most."""
    began = time.monotonic()
    shapes = _fitting_pools(base)
    if not shapes or (most_npus or 2) < 2:
        return FoundDeployments(seconds=time.monotonic() - began)
    front, priced = _front_in_two(base, shapes, limits, most_npus or base.network.npus)
    cheapest, estimated = _cheapest_in_two(base, shapes, limits)
    return FoundDeployments(front, cheapest, len(shapes) ** 2, priced + estimated, seconds=time.monotonic() - began)


def _cheapest_in_two(
    base: DesignPoint, shapes: Sequence[InstanceShape], limits: Sequence[Slo]
) -> tuple[tuple[Candidate, ...], int]:
    name, load_size = named_load(load_of(base))
    fast = _fastest(shapes)
    decoding, filling = [InstanceKind(shape, fast) for shape in shapes], [InstanceKind(fast, shape) for shape in shapes]
    plenty = _plenty(name, load_size)
    top = np.minimum(_largest_counts(base, decoding, name, load_size), PLENTY)

    def decode(counts: Ints) -> Flags:
        rows = deployment_rows(base, decoding * len(counts), name, load_size, counts.ravel(), plenty)
        return rows.holding(limits).reshape(counts.shape)

    def prefill(counts: Ints) -> Flags:
        rows = deployment_rows(base, filling * len(counts), name, load_size, plenty, counts.ravel())
        return rows.holding(limits).reshape(counts.shape)

    decoders, first = least_holding(decode, top)
    prefillers, second = least_holding(prefill, top)
    pairs = _pairs(shapes, decoders, prefillers)
    if not pairs:
        return (), (first + second) * len(shapes)
    kinds = [InstanceKind(shapes[decoder], shapes[prefiller]) for decoder, prefiller in pairs]
    counts = (
        np.array([decoders[decoder] for decoder, _ in pairs]),
        np.array([prefillers[prefiller] for _, prefiller in pairs]),
    )
    candidates: list[Candidate] = []
    priced = (first + second) * len(shapes)
    for extra in range(3):  # where the pools are not quite apart, one more of each
        rows = deployment_rows(base, kinds, name, load_size, counts[0] + extra, counts[1] + extra)
        candidates += candidates_at(rows, np.flatnonzero(rows.holding(limits)).tolist(), limits)
        priced += len(kinds)
        if candidates:
            break
    return _sort_candidates(candidates), priced


def _fastest(shapes: Sequence[InstanceShape]) -> InstanceShape:
    """Return the shape of instances that a pool of the other kind is found beside."""
    return max(shapes, key=lambda shape: (shape.tp, -shape.pp, shape.ranks))


def _plenty(name: str, load_size: float) -> int:
    """Return instances of a pool of which there are enough under a load."""
    return int(load_size) if name == "concurrency" else PLENTY


def _pairs(shapes: Sequence[InstanceShape], decoders: Ints, prefillers: Ints) -> list[tuple[int, int]]:
    """Return the pairs of decoding and prefilling shapes that take the fewest accelerators, by their places."""
    npus = np.array([shape.npus for shape in shapes])
    npus_of_pair = np.where(decoders > 0, decoders * npus, np.inf)[:, None] + np.where(
        prefillers > 0, prefillers * npus, np.inf
    )
    order = np.argsort(npus_of_pair, axis=None, kind="stable")[:PAIRS]
    decoder_indices, prefiller_indices = np.unravel_index(order, npus_of_pair.shape)
    return [
        (int(decoder), int(prefiller))
        for decoder, prefiller in zip(decoder_indices, prefiller_indices, strict=True)
        if np.isfinite(npus_of_pair[decoder, prefiller])
    ]


def _front_in_two(
    base: DesignPoint, shapes: Sequence[InstanceShape], limits: Sequence[Slo], most_npus: int
) -> tuple[tuple[Candidate, ...], int]:
    rates = _prompts_per_s(base, shapes, limits)
    order = np.argsort(-rates / np.array([shape.npus for shape in shapes]), kind="stable")[:PREFILLERS]
    decoding = [(shape, count) for shape in shapes for count in IN_FLIGHT[::2]]
    prefill_rows = deployment_rows(
        base,
        [InstanceKind(shape, shapes[0]) for shape, _ in decoding],
        "concurrency",
        [count for _, count in decoding],
        1,
        PLENTY,
    )
    speeds = np.nan_to_num(np.asarray(prefill_rows.estimates.metrics.requests_per_s, dtype=float))
    every: list[tuple[InstanceKind, int, int, int]] = []
    for prefiller in order.tolist():
        for (shape, count), speed in zip(decoding, speeds, strict=True):
            for pool in POOLS:
                prefillers_needed = (
                    max(1, int(np.ceil(pool * speed / (BUSY * rates[prefiller])))) if rates[prefiller] > 0 else 0
                )
                if prefillers_needed and pool * shape.npus + prefillers_needed * shapes[prefiller].npus <= most_npus:
                    every.append((InstanceKind(shape, shapes[prefiller]), pool, prefillers_needed, int(count) * pool))
    if not every:
        return (), len(decoding)
    kinds, counts, prefillers, loads = (list(column) for column in zip(*every, strict=True))
    rows = deployment_rows(base, kinds, "concurrency", loads, counts, prefillers)
    return tuple(candidates_at(rows, _front_rows(rows, rows.loads), limits)), len(every) + len(decoding)


def _prompts_per_s(
    base: DesignPoint, shapes: Sequence[InstanceShape], limits: Sequence[Slo]
) -> npt.NDArray[np.float64]:
    """Return the prompts a second that an instance of each shape prefills; 0 where TTFT does not hold even alone."""
    fast = _fastest(shapes)
    rate = 1e-3
    estimates = deployment_rows(base, [InstanceKind(fast, shape) for shape in shapes], "rate", rate, 1, 1).estimates
    holding = estimates.runs.copy()
    for limit in limits:
        if limit.metric == "ttft":
            holding &= np.asarray(limit.holds(estimates.metrics))
    busy = np.asarray(estimates.metrics.utilisation["prefill"], dtype=float)
    return np.where(holding & (busy > 0), rate / np.where(busy > 0, busy, 1.0), 0.0)


# ---- the best mapping


def best_mappings(base: DesignPoint, limits: Sequence[Slo], fixed: Mapping[str, int]) -> tuple[list[DesignPoint], int]:
    """Return *base* with the few mappings that serve its load soonest within the limits, and how many were compared.

    The best is first. There is none where no mapping has memory for the weights and a request.
    """
    shapes = list_shapes(base, fixed)
    if not shapes:
        return [], 0
    kinds, instances = (
        [InstanceKind(shape) for shape in shapes],
        np.array([base.network.npus // shape.npus for shape in shapes]),
    )
    name, load_size = named_load(load_of(base))
    estimates = deployment_rows(base, kinds, name, load_size, instances).estimates
    if estimates.runs.any():
        broken = np.zeros(len(shapes), dtype=np.int64)
        for limit in limits:
            broken += ~np.asarray(limit.holds(estimates.metrics))
        order = np.lexsort((np.nan_to_num(estimates.metrics.e2e.mean_s, nan=np.inf), broken, ~estimates.runs))
    else:  # none bears the load: which one bears most?
        estimates = deployment_rows(base, kinds, "concurrency", CROWD_CLIENTS * base.network.npus, instances).estimates
        order = np.argsort(-np.nan_to_num(estimates.metrics.requests_per_s), kind="stable")
    best_rows = [int(row) for row in order[:FIRST_MAPPINGS] if estimates.runs[row]]
    laid = [as_design(base, kinds[row], int(instances[row])) for row in best_rows]
    return [replace(design, serving=base.serving) for design in laid], len(shapes)


def best_split(base: DesignPoint, limits: Sequence[Slo]) -> Candidate | None:
    """Return how the accelerators of *base* serve its load best in two pools; None where they cannot."""
    npus = base.network.npus
    decoding, filling = _promising(
        base, [fitting_pool for fitting_pool in _fitting_pools(base) if fitting_pool.npus < npus]
    )
    every = [
        (InstanceKind(decoder, prefiller), (npus - count * prefiller.npus) // decoder.npus, count)
        for decoder in decoding
        for prefiller in filling
        for count in _prefill_shares(npus, prefiller.npus)
        if (npus - count * prefiller.npus) % decoder.npus == 0
    ]
    if not every:
        return None
    kinds, decoders, prefillers = (list(column) for column in zip(*every, strict=True))
    name, load_size = named_load(load_of(base))
    rows = deployment_rows(base, kinds, name, load_size, decoders, prefillers)
    estimates = rows.estimates
    if not estimates.runs.any():
        return None
    seconds = np.nan_to_num(np.asarray(estimates.metrics.e2e.mean_s, dtype=float), nan=np.inf)
    row = int(np.lexsort((seconds, ~rows.holding(limits), ~estimates.runs))[0])
    return candidates_at(rows, [row], limits)[0]


def _promising(
    base: DesignPoint, shapes: Sequence[InstanceShape]
) -> tuple[Sequence[InstanceShape], Sequence[InstanceShape]]:
    """Return the shapes that decode soonest, and that prefill soonest, on most of a machine beside plenty of others."""
    if len(shapes) <= PROMISING:
        return shapes, shapes
    fast = _fastest(shapes)
    name, load_size = named_load(load_of(base))
    plenty = _plenty(name, load_size)
    instances = np.array([max(1, int(MOSTLY * base.network.npus) // shape.npus) for shape in shapes])
    instances = np.minimum(instances, max(1, int(load_size))) if name == "concurrency" else instances
    kind_lists = (
        ([InstanceKind(shape, fast) for shape in shapes], instances, plenty),
        ([InstanceKind(fast, shape) for shape in shapes], plenty, instances),
    )
    promising = []
    for kinds, decoders, prefillers in kind_lists:
        seconds = deployment_rows(base, kinds, name, load_size, decoders, prefillers).estimates.metrics.e2e.mean_s
        order = np.argsort(np.nan_to_num(np.asarray(seconds, dtype=float), nan=np.inf), kind="stable")
        promising.append([shapes[row] for row in order[:PROMISING].tolist()])
    return promising[0], promising[1]


def _prefill_shares(npus: int, instance: int) -> list[int]:
    """Return how many instances of so many accelerators prefill, of those that there is room for: few, half, most."""
    most_instances = (npus - 1) // instance
    return (
        sorted({max(1, round(most_instances * share / SHARES)) for share in range(1, SHARES + 1)})
        if most_instances
        else []
    )
