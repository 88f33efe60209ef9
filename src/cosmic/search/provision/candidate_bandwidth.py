"""Bandwidth to measure for the candidates of a search, many at once: each gets what is best for it under one budget.

Every candidate has a search of its own (`bandwidth_descent`), and all take their rounds together: what they ask for is
evaluated as one batch. None knows of another, so that a candidate gets the same bits alone and among thousands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.base.errors import SpecError, UnknownName, as_key, join_path, require
from cosmic.base.linear_algebra import multiply
from cosmic.base.numeric import power
from cosmic.cluster.cluster_cost import network_usd
from cosmic.design.design_batch import Batch
from cosmic.evaluation import evaluate_batch
from cosmic.search.provision.bandwidth_descent import SEED, BandwidthWalk, Effort, walk_bandwidths
from cosmic.search.provision.bandwidth_limits import read_budget, read_limit
from cosmic.search.provision.bandwidth_optimum import find_interior
from cosmic.search.provision.bandwidth_problem import GIGA, OBJECTIVES, BandwidthProblem, Limit, Objective
from cosmic.search.provision.interior_point import Matrix, Vector

AT_ONCE = 64
"""Candidates whose searches take their rounds together."""
QUICK = Effort(tried=48, last=1e-5, better=1e-7, rounds=80, ridges=True)
"""How far the search of a candidate goes: shapes differ by more than what is left then."""
STARTS = 1024
"""Networks of which the search of a candidate begins with the best: an evaluation takes a microsecond."""
DECADES = 3.0
"""They are spread evenly over so many powers of ten, in each dimension and in what they spend."""
LEAST = 1e-3
"""A dimension keeps this share of its bandwidth at least, even if no collective uses it."""
MOST_LIMITS = 200

Indices = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Provision:
    """What candidates may spend on bandwidth, and what for."""

    budget: str
    objective: Objective = "time"
    limits: tuple[str, ...] = ()


def read_provision(given: Any, dims: int) -> Provision:
    """Return what the key ``provision`` of a parameter set states, for networks of so many dimensions.

    >>> read_provision({"budget": "500 GB/s"}, 2)
    Provision(budget='500 GB/s', objective='time', limits=())
    """
    where = "provision"
    require(dims > 0, where, "a budget", "the base is a single accelerator, which has no network")
    if not isinstance(given, Mapping):
        raise SpecError(where, given, "must state a budget, such as {budget: 500 GB/s}")
    for key in given:
        if key not in Provision.__slots__:
            raise UnknownName.key(join_path(where, as_key(key)), given[key], Provision.__slots__)
    budget, objective, limits = given.get("budget"), given.get("objective", "time"), given.get("limits", [])
    if not isinstance(budget, str):
        raise SpecError(join_path(where, "budget"), budget, "state one, such as 500 GB/s or 10 M USD")
    if objective not in OBJECTIVES:
        raise UnknownName.among(join_path(where, "objective"), objective, "objective", OBJECTIVES)
    if not isinstance(limits, list) or not all(isinstance(limit, str) for limit in limits):
        raise SpecError(join_path(where, "limits"), limits, "must be a list, such as ['B0 >= 100 GB/s']")
    require(len(limits) <= MOST_LIMITS, join_path(where, "limits"), len(limits), f"at most {MOST_LIMITS} are read")
    found = Provision(budget, objective, tuple(limits))
    try:  # words and units, whatever the prices: whether dollars can be met is known of each candidate
        ones = (1.0,) * dims
        stated = _stated(found, ones)
        require(stated[0].sense != ">=", "--budget", budget, "must say how much there is, not how much at least")
        if not any("USD" in each or "cost" in each for each in (budget, *limits)):
            _range(found, ones, (float("inf"),) * dims)
    except SpecError as error:
        key = "budget" if error.where == "--budget" else "limits"
        raise SpecError(join_path(where, key), error.value, error.rule) from None
    return found


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
        return [_prices(row[: self.dims], row[self.dims :]) for row in zip(*columns, strict=True)]

    def seconds(self, which: Indices, bandwidth: Matrix) -> Vector:
        """Return the weighted sum of the steps of the candidates at *which* with *bandwidth*; infinite if none runs."""
        columns = {f"network.dims.{index}.bandwidth": bandwidth[:, index] for index in range(self.dims)}
        total = np.zeros(len(which))
        for weight, batch in self.workloads:
            found = evaluate_batch(Batch(batch.base, {**batch.take(which, {}).columns, **columns}))
            total = total + weight * np.where(found.feasible, found.columns["step_s"], np.inf)
        return total


def provision_candidates(candidates: Candidates, provision: Provision) -> tuple[Matrix, Flags]:
    """Return the best bandwidth of each dimension for each of *candidates*, and for which of them there is any.

    One that cannot run gets what its search began with; where no bandwidth meets all limits, it is as in the base.
    """
    found, met = [np.empty((0, candidates.dims))], [np.empty(0, dtype=bool)]
    for first in range(0, candidates.size, AT_ONCE):
        rows = np.arange(first, min(first + AT_ONCE, candidates.size))
        best, possible = _search_together(candidates.part(rows), provision)
        found.append(best)
        met.append(possible)
    return np.concatenate(found), np.concatenate(met)


def _search_together(some: Candidates, provision: Provision) -> tuple[Matrix, Flags]:
    base = tuple(dim.bandwidth_bytes_per_s for dim in some.workloads[0][1].base.network.dims)
    best = np.tile(base, (some.size, 1))
    prices = some.prices()
    ranges: dict[int, _Range] = {}
    for index, usd in enumerate(prices):
        with suppress(SpecError):  # dollars may not buy what the limits ask for, or have no price here
            ranges[index] = _range(provision, usd, base)
    met = np.isin(np.arange(some.size), list(ranges))
    cost = np.array(prices) if provision.objective == "time_per_dollar" else None
    walks: dict[int, BandwidthWalk] = {}
    answers = _answers(some, {place: each.starts for place, each in ranges.items()}, cost)
    for place, values in answers.items():
        first = int(np.argmin(values))
        limits, best[place] = ranges[place].limits, ranges[place].starts[first]
        if np.isfinite(values[first]):
            walks[place] = walk_bandwidths(
                limits, best[place], float(values[first]), np.random.default_rng(SEED), QUICK
            )
    answers = {}
    while walks:
        asked: dict[int, Matrix] = {}
        for place, steps in list(walks.items()):
            found = _next_round(steps, answers.get(place))
            if isinstance(found, tuple):
                best[place] = found[0]
                del walks[place]
            else:
                asked[place] = found
        answers = _answers(some, asked, cost)
    return best, met


def _next_round(steps: BandwidthWalk, answer: Vector | None) -> Matrix | tuple[Vector, float]:
    """Return what a search asks for next, or what it has found."""
    try:
        return next(steps) if answer is None else steps.send(answer)
    except StopIteration as end:
        found: tuple[Vector, float] = end.value
        return found


def _answers(some: Candidates, asked: Mapping[int, Matrix], cost: Matrix | None) -> dict[int, Vector]:
    """Return what the networks are worth that each search asks for: all of them as one batch."""
    if not asked:
        return {}
    sizes = [len(each) for each in asked.values()]
    which = np.repeat(np.array(list(asked), dtype=np.intp), sizes)
    bandwidth = np.concatenate(list(asked.values()))
    value = _value_networks(some.seconds(which, bandwidth), bandwidth, which, cost)
    parts = np.split(value, np.cumsum(sizes)[:-1])
    return dict(zip(asked, parts, strict=True))


def _value_networks(seconds: Vector, bandwidth: Matrix, which: Indices, cost: Matrix | None) -> Vector:
    if cost is None:
        return seconds
    dollars = np.zeros(len(which))
    for index in range(bandwidth.shape[1]):  # in this order, whatever the size of the batch
        dollars = dollars + cost[which, index] * bandwidth[:, index]
    return seconds * dollars


# ------------------------------------------------------------------------------------------------------ limits


@dataclass(frozen=True, slots=True)
class _Range:
    """All limits on the networks of a candidate, and networks within them."""

    limits: tuple[Limit, ...]
    starts: Matrix


@lru_cache(maxsize=256)
def _range(provision: Provision, usd_per_bytes_per_s: tuple[float, ...], base: tuple[float, ...]) -> _Range:
    """Return the limits on networks of these prices: every dimension keeps a little of its bandwidth in the *base*."""
    stated = _stated(provision, usd_per_bytes_per_s)
    spent = stated[0]
    every = [*stated]
    for index, row in enumerate(np.eye(len(base))):
        least = LEAST * min(base[index], spent.value / spent.coefficients[index])
        every.append(Limit(f"B{index} >= {LEAST:g} of its bandwidth", tuple(row.tolist()), ">=", least))
    inside = find_interior(BandwidthProblem((), tuple(every), usd_per_bytes_per_s, provision.objective))[0]
    return _Range(tuple(every), np.vstack([inside, _spread(every)]))


def _spread(limits: Sequence[Limit]) -> Matrix:
    """Return networks all over what the budget buys, those that meet all *limits*; none if others are exact too."""
    rng = np.random.default_rng(SEED)
    spent, *others = limits
    shares = np.asarray(power(10.0, -DECADES * rng.random((STARTS, len(spent.coefficients)))))
    part = np.asarray(power(10.0, -DECADES * rng.random(STARTS))) if spent.sense == "<=" else np.ones(STARTS)
    part[::2] = 1.0
    found: Matrix = shares * (part * spent.value / multiply(shares, np.array(spent.coefficients)))[:, None]
    for limit in others:
        found = found[(limit.excess(found) <= 0) & (limit.sense != "==")]
    return found


def _stated(provision: Provision, usd_per_bytes_per_s: tuple[float, ...]) -> list[Limit]:
    stated = [read_budget(provision.budget, usd_per_bytes_per_s)]
    for text in provision.limits:
        stated += read_limit(text, usd_per_bytes_per_s)
    return stated


@lru_cache(maxsize=4096)
def _prices_of(names: tuple[str, ...], npus: tuple[int, ...]) -> tuple[float, ...]:
    every = np.eye(len(npus)) * GIGA
    return tuple(float(network_usd(names, npus, each.tolist())) / GIGA for each in every)


def _prices(names: Sequence[str], npus: Sequence[int]) -> tuple[float, ...]:
    return _prices_of(tuple(names), tuple(npus))
