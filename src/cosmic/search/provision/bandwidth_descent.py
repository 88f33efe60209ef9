"""A deterministic search for the best bandwidth by any function that can be asked of many networks at once.

From a few starts it tries some hundreds of directions at once, keeps the best, and looks closer where none is better.
Directions change bandwidth in proportion, along all equalities; half of them also along the inequalities that are met
exactly, so that a limit can be followed. So nothing is assumed of the function but that it can be computed.

The candidates of a search each get the bandwidth that is best for them under one budget, many at once. Every candidate
has steps of its own, and all take their rounds together: what they ask for is evaluated as one batch. None knows of
another, so that a candidate gets the same bits alone and among thousands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.base.errors import SpecError, UnknownName, as_key, join_path, require
from cosmic.base.numeric import multiply, null_space, power
from cosmic.base.optimise import Steps, optimise, optimise_together
from cosmic.cluster.cluster_cost import network_usd
from cosmic.design.design_batch import Batch
from cosmic.evaluation import evaluate_batch
from cosmic.search.provision.bandwidth_optimum import find_interior
from cosmic.search.provision.bandwidth_problem import (
    GIGA,
    OBJECTIVES,
    BandwidthProblem,
    Limit,
    Objective,
    read_budget,
    read_limit,
)
from cosmic.search.provision.interior_point import RANK_TOLERANCE, Matrix, Vector

STEP_LENGTHS = 8
"""Lengths of a step, each half of the one before, over which directions are spread."""
FIRST_STEP = 0.5
"""The longest step, in proportion to bandwidth."""
TOUCH_TOLERANCE = 1e-9
SEED = 20240917


@dataclass(frozen=True, slots=True)
class Effort:
    """How far a search goes."""

    tried: int = 192
    """Directions that are tried at once."""
    last: float = 1e-8
    """The length of a step, in proportion to bandwidth, at which it ends."""
    better: float = 1e-13
    """By what share a step must be better to be taken."""
    rounds: int = 150
    ridges: bool = False
    """Whether sums and differences of two dimensions are tried too: kinks of a step lie along such."""


BandwidthWalk = Steps[Matrix, Vector, tuple[Vector, float]]
"""Steps that ask for networks, and return the best and its worth."""


def descend(value: Callable[[Matrix], Vector], limits: Sequence[Limit], starts: Matrix) -> Vector:
    """Return the best bandwidth that is found from *starts*, which meet all *limits*: the better ones are followed."""
    rng = np.random.default_rng(SEED)
    first = value(starts)
    order = np.argsort(first, kind="stable")[:2]
    ends = [optimise(walk_bandwidths(limits, starts[start], float(first[start]), rng), value) for start in order]
    return min(ends, key=lambda end: end[1])[0]


def walk_bandwidths(
    limits: Sequence[Limit], point: Vector, best: float, rng: np.random.Generator, effort: Effort | None = None
) -> BandwidthWalk:
    """Yield rounds of networks within *limits* around the best so far, from *point* on, whose worth is *best*."""
    limits_of_search = effort or Effort()
    equal = np.array([limit.coefficients for limit in limits if limit.sense == "=="]).reshape(-1, len(point))
    bounds = [limit for limit in limits if limit.sense != "=="]
    signs = np.array([1.0 if limit.sense == "<=" else -1.0 for limit in bounds])
    rows = (np.array([limit.coefficients for limit in bounds]).T * signs).T.reshape(-1, len(point))
    values = np.array([limit.value for limit in bounds]) * signs
    length = FIRST_STEP
    for _ in range(limits_of_search.rounds):
        steps = _propose_steps(equal, rows, values, point, rng, limits_of_search) * length
        if not len(steps):  # limits leave this one network
            break
        candidates = point * (
            1.0 + _feasible_share(rows * point, values - multiply(rows, point), steps)[:, None] * steps
        )
        worths = yield candidates
        best_index = int(np.argmin(worths))
        if worths[best_index] < best - limits_of_search.better * abs(best):
            point, best = candidates[best_index], float(worths[best_index])
            length = min(FIRST_STEP, 2.0 * length)
        else:
            length *= 0.25
            if length < limits_of_search.last:
                break
    return point, best


def _propose_steps(
    equal: Matrix, rows: Matrix, values: Vector, point: Vector, rng: np.random.Generator, effort: Effort
) -> Matrix:
    """Return steps in proportion to *point*, of length at most one, along equalities and limits that are touched."""
    scaled = rows * point
    size = np.abs(scaled).max(axis=1, initial=0.0)
    touched = values - multiply(rows, point) <= TOUCH_TOLERANCE * size
    step_sets = []
    for fixed in (equal, np.vstack([equal, rows[touched]])):
        basis = null_space(fixed * point, RANK_TOLERANCE)
        axes = multiply(basis, basis.T)
        if effort.ridges:
            axes = multiply(_ridges(len(point)), axes)
        lengths = np.linalg.norm(axes, axis=1)
        axes = axes[lengths > TOUCH_TOLERANCE] / lengths[lengths > TOUCH_TOLERANCE, None]
        drawn = multiply(rng.normal(size=(effort.tried, basis.shape[1])), basis.T)
        norms = np.linalg.norm(drawn, axis=1)
        drawn = drawn[norms > 0] / norms[norms > 0, None]
        directions = np.vstack([axes, -axes, drawn])
        step_sets.append(directions * 0.5 ** (np.arange(len(directions)) % STEP_LENGTHS)[:, None])
    return np.vstack(step_sets)


@lru_cache(maxsize=64)
def _ridges(dims: int) -> Matrix:
    """Return directions of single dimensions, of sums and differences of two, and of all together."""
    ones = np.eye(dims)
    pairs = [ones[a] + sign * ones[b] for a, b in combinations(range(dims), 2) for sign in (1.0, -1.0)]
    return np.vstack([ones, *pairs, np.ones(dims)])


def _feasible_share(rows: Matrix, room: Vector, steps: Matrix) -> Vector:
    """Return the share of each step that stays within all limits, and that leaves bandwidth positive."""
    used = multiply(steps, rows.T)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(used > 0, np.maximum(room, 0.0) / used, np.inf)
        least = np.where(steps < 0, 0.9 / -steps, np.inf)
    shares_within: Vector = np.minimum(np.minimum(shares.min(axis=1, initial=np.inf), least.min(axis=1)), 1.0)
    return shares_within


# ---- Bandwidth to measure for the candidates of a search, many at once: each gets what is best for it under one budget

CANDIDATES_AT_ONCE = 64
"""Candidates whose searches take their rounds together."""
CANDIDATE_EFFORT = Effort(tried=48, last=1e-5, better=1e-7, rounds=80, ridges=True)
"""How far the search of a candidate goes: shapes differ by more than what is left then."""
START_NETWORKS = 1024
"""Networks of which the search of a candidate begins with the best: an evaluation takes a microsecond."""
START_DECADES = 3.0
"""They are spread evenly over so many powers of ten, in each dimension and in what they spend."""
MIN_SHARE = 1e-3
"""A dimension keeps this share of its bandwidth at least, even if no collective uses it."""
MAX_LIMITS = 200

Indices = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Provision:
    """What candidates may spend on bandwidth, and what for."""

    budget: str
    objective: Objective = "time"
    limits: tuple[str, ...] = ()


def read_provision(tree: Any, dims: int) -> Provision:
    """Return what the key ``provision`` of a parameter set states, for networks of so many dimensions.

    >>> read_provision({"budget": "500 GB/s"}, 2)
    Provision(budget='500 GB/s', objective='time', limits=())
    """
    where = "provision"
    require(dims > 0, where, "a budget", "the base is a single accelerator, which has no network")
    if not isinstance(tree, Mapping):
        raise SpecError(where, tree, "must state a budget, such as {budget: 500 GB/s}")
    for key in tree:
        if key not in Provision.__slots__:
            raise UnknownName.key(join_path(where, as_key(key)), tree[key], Provision.__slots__)
    budget, objective, limits = tree.get("budget"), tree.get("objective", "time"), tree.get("limits", [])
    if not isinstance(budget, str):
        raise SpecError(join_path(where, "budget"), budget, "state one, such as 500 GB/s or 10 M USD")
    if objective not in OBJECTIVES:
        raise UnknownName.among(join_path(where, "objective"), objective, "objective", OBJECTIVES)
    if not isinstance(limits, list) or not all(isinstance(limit, str) for limit in limits):
        raise SpecError(join_path(where, "limits"), limits, "must be a list, such as ['B0 >= 100 GB/s']")
    require(len(limits) <= MAX_LIMITS, join_path(where, "limits"), len(limits), f"at most {MAX_LIMITS} are read")
    provision = Provision(budget, objective, tuple(limits))
    try:  # words and units, whatever the prices: whether dollars can be met is known of each candidate
        ones = (1.0,) * dims
        limit_list = _read_limits(provision, ones)
        require(limit_list[0].sense != ">=", "--budget", budget, "must say how much there is, not how much at least")
        if not any("USD" in text or "cost" in text for text in (budget, *limits)):
            _search_range(provision, ones, (float("inf"),) * dims)
    except SpecError as error:
        key = "budget" if error.where == "--budget" else "limits"
        raise SpecError(join_path(where, key), error.value, error.rule) from None
    return provision


@dataclass(frozen=True, slots=True)
class Candidates:
    """Candidates of a search: workloads on the same networks, each with its weight."""

    workloads: tuple[tuple[float, Batch], ...]
    size: int

    @property
    def dims(self) -> int:
        """How many dimensions their networks have."""
        return len(self.workloads[0][1].base.network.dims)

    def part(self, rows: Indices) -> Candidates:
        """Return the candidates at *rows*."""
        workloads = tuple((weight, batch.take(rows, {})) for weight, batch in self.workloads)
        return Candidates(workloads, len(rows))

    def prices(self) -> list[tuple[float, ...]]:
        """Return the dollars of a byte/s in each dimension, of each candidate."""
        batch = self.workloads[0][1]
        fields = [batch[f"network.dims.{index}.{name}"] for name in ("topology", "npus") for index in range(self.dims)]
        columns = [[field] * self.size if isinstance(field, str | int) else field.tolist() for field in fields]
        return [_cached_prices(tuple(row[: self.dims]), tuple(row[self.dims :])) for row in zip(*columns, strict=True)]

    def seconds(self, which: Indices, bandwidth: Matrix) -> Vector:
        """Return the weighted sum of the steps of the candidates at *which* with *bandwidth*; infinite if none runs."""
        columns = {f"network.dims.{index}.bandwidth": bandwidth[:, index] for index in range(self.dims)}
        total = np.zeros(len(which))
        for weight, batch in self.workloads:
            outcome = evaluate_batch(Batch(batch.base, {**batch.take(which, {}).columns, **columns}))
            total = total + weight * np.where(outcome.feasible, outcome.columns["step_s"], np.inf)
        return total


def provision_candidates(candidates: Candidates, provision: Provision) -> tuple[Matrix, Flags]:
    """Return the best bandwidth of each dimension for each of *candidates*, and for which of them there is any.

    One that cannot run gets what its search began with; where no bandwidth meets all limits, it is as in the base.
    """
    best_parts, possible_parts = [np.empty((0, candidates.dims))], [np.empty(0, dtype=bool)]
    for first in range(0, candidates.size, CANDIDATES_AT_ONCE):
        rows = np.arange(first, min(first + CANDIDATES_AT_ONCE, candidates.size))
        best, possible = _search_together(candidates.part(rows), provision)
        best_parts.append(best)
        possible_parts.append(possible)
    return np.concatenate(best_parts), np.concatenate(possible_parts)


def _search_together(candidates: Candidates, provision: Provision) -> tuple[Matrix, Flags]:
    base = tuple(dim.bandwidth_bytes_per_s for dim in candidates.workloads[0][1].base.network.dims)
    best = np.tile(base, (candidates.size, 1))
    prices = candidates.prices()
    ranges: dict[int, _SearchRange] = {}
    for index, usd in enumerate(prices):
        with suppress(SpecError):  # dollars may not buy what the limits ask for, or have no price here
            ranges[index] = _search_range(provision, usd, base)
    met = np.isin(np.arange(candidates.size), list(ranges))
    cost = np.array(prices) if provision.objective == "time_per_dollar" else None
    walks: dict[int, BandwidthWalk] = {}
    answers = _evaluate_requests(
        candidates, {candidate: search_range.starts for candidate, search_range in ranges.items()}, cost
    )
    for candidate, values in answers.items():
        first = int(np.argmin(values))
        limits, best[candidate] = ranges[candidate].limits, ranges[candidate].starts[first]
        if np.isfinite(values[first]):
            walks[candidate] = walk_bandwidths(
                limits, best[candidate], float(values[first]), np.random.default_rng(SEED), CANDIDATE_EFFORT
            )
    found = optimise_together(walks, lambda requests: _evaluate_requests(candidates, requests, cost))
    for candidate, (bandwidth, _) in found.items():
        best[candidate] = bandwidth
    return best, met


def _evaluate_requests(
    candidates: Candidates, requests: Mapping[int, Matrix], cost: Matrix | None
) -> dict[int, Vector]:
    """Return what the networks are worth that each search asks for: all of them as one batch."""
    if not requests:
        return {}
    sizes = [len(networks) for networks in requests.values()]
    which = np.repeat(np.array(list(requests), dtype=np.intp), sizes)
    bandwidth = np.concatenate(list(requests.values()))
    value = _value_networks(candidates.seconds(which, bandwidth), bandwidth, which, cost)
    parts = np.split(value, np.cumsum(sizes)[:-1])
    return dict(zip(requests, parts, strict=True))


def _value_networks(seconds: Vector, bandwidth: Matrix, which: Indices, cost: Matrix | None) -> Vector:
    if cost is None:
        return seconds
    dollars = np.zeros(len(which))
    for index in range(bandwidth.shape[1]):  # in this order, whatever the size of the batch
        dollars = dollars + cost[which, index] * bandwidth[:, index]
    return seconds * dollars


# ---- limits


@dataclass(frozen=True, slots=True)
class _SearchRange:
    """All limits on the networks of a candidate, and networks within them."""

    limits: tuple[Limit, ...]
    starts: Matrix


@lru_cache(maxsize=256)
def _search_range(
    provision: Provision, usd_per_bytes_per_s: tuple[float, ...], base: tuple[float, ...]
) -> _SearchRange:
    """Return the limits on networks of these prices: every dimension keeps a little of its bandwidth in the *base*."""
    limits = _read_limits(provision, usd_per_bytes_per_s)
    spent = limits[0]
    all_limits = [*limits]
    for index, row in enumerate(np.eye(len(base))):
        least = MIN_SHARE * min(base[index], spent.value / spent.coefficients[index])
        all_limits.append(Limit(f"B{index} >= {MIN_SHARE:g} of its bandwidth", tuple(row.tolist()), ">=", least))
    inside = find_interior(BandwidthProblem((), tuple(all_limits), usd_per_bytes_per_s, provision.objective))[0]
    return _SearchRange(tuple(all_limits), np.vstack([inside, _spread_starts(all_limits)]))


def _spread_starts(limits: Sequence[Limit]) -> Matrix:
    """Return networks all over what the budget buys, those that meet all *limits*; none if others are exact too."""
    rng = np.random.default_rng(SEED)
    spent, *other_limits = limits
    shares = np.asarray(power(10.0, -START_DECADES * rng.random((START_NETWORKS, len(spent.coefficients)))))
    part = (
        np.asarray(power(10.0, -START_DECADES * rng.random(START_NETWORKS)))
        if spent.sense == "<="
        else np.ones(START_NETWORKS)
    )
    part[::2] = 1.0
    networks: Matrix = shares * (part * spent.value / multiply(shares, np.array(spent.coefficients)))[:, None]
    for limit in other_limits:
        networks = networks[(limit.excess(networks) <= 0) & (limit.sense != "==")]
    return networks


def _read_limits(provision: Provision, usd_per_bytes_per_s: tuple[float, ...]) -> list[Limit]:
    limits = [read_budget(provision.budget, usd_per_bytes_per_s)]
    for text in provision.limits:
        limits += read_limit(text, usd_per_bytes_per_s)
    return limits


@lru_cache(maxsize=4096)
def _cached_prices(names: tuple[str, ...], npus: tuple[int, ...]) -> tuple[float, ...]:
    unit_bandwidth = np.eye(len(npus)) * GIGA
    return tuple(float(network_usd(names, npus, row.tolist())) / GIGA for row in unit_bandwidth)
