"""Objectives to improve and limits to meet: both are about the metrics of evaluated designs.

Pareto dominance, ranks, crowding and hypervolume; less is better throughout.

A point dominates another if it is nowhere worse and somewhere better. The front is the points that nothing dominates;
the next rank is the front of the rest, and so on. By Deb's rule, infeasible points come after all feasible ones, in the
order of their excess.

Deb, Pratap, Agarwal & Meyarivan, IEEE Trans. Evolutionary Computation 6(2), 2002: ranks, crowding and the rule.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cosmic.base import units
from cosmic.base.errors import SpecError, UnknownName, require
from cosmic.search.agent import Flags, Floats
from cosmic.search.space.diagram import Indices
from cosmic.simulate.metrics import BETTER
from cosmic.simulate.user_engines import direction

_LIMIT = re.compile(r"\s*(\w+)\s*([<>]=?)\s*([^\s=].*?)\s*")


def check_objectives(names: Sequence[str], metrics: Mapping[str, str] = BETTER) -> tuple[str, ...]:
    """Return *names* if each is one of the *metrics* metrics and none is there twice."""
    require(bool(names), "objective", list(names), "name at least one metric to improve")
    for name in names:
        if name not in metrics:
            raise UnknownName.among("objective", name, "objective", metrics)
        require(names.count(name) == 1, "objective", name, "is there twice")
    return tuple(names)


def loss(name: str, values: Floats) -> Floats:
    """Return a metric as a loss, less being better: the metric itself, or its inverse.

    >>> loss("step_s", np.array([2.0])), loss("tokens_per_s", np.array([2.0]))
    (array([2.]), array([0.5]))
    """
    if direction(name) == "less":
        return values
    with np.errstate(divide="ignore"):
        return np.asarray(1 / values)


def loss_ratio(least: float, larger: float) -> float:
    """Return how many times the loss *least* goes into *larger*: 1 for equal ones, infinite for 0 beside more.

    >>> loss_ratio(2.0, 5.0), loss_ratio(0.0, 0.0), loss_ratio(0.0, 5.0), loss_ratio(5.0, 0.0)
    (2.5, 1.0, inf, 0.0)
    """
    if least == larger:
        return 1.0
    return larger / least if least else float("inf")


def losses(names: Iterable[str], columns: Mapping[str, Floats]) -> Floats:
    """Return the losses of a batch of designs, a column for each objective."""
    return np.stack([loss(name, columns[name]) for name in names], axis=1)


@dataclass(frozen=True, slots=True)
class MetricLimit:
    """A bound on a metric: a design beyond it is infeasible."""

    text: str
    metric: str
    most: bool
    """Whether it is an upper bound."""
    bound: float

    def excess(self, values: Floats) -> Floats:
        """Return the share of the bound by which each value exceeds it; 0 for values within.

        >>> read_limit("memory_bytes <= 80 GB").excess(np.array([40e9, 100e9])).tolist()
        [0.0, 0.25]
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            beyond = values / self.bound - 1 if self.most else self.bound / values - 1
        return np.where(np.isnan(values), np.inf, np.where(beyond > 0, beyond, 0.0))


def read_limit(text: str, metrics: Mapping[str, str] = BETTER) -> MetricLimit:
    """Return the limit that *text* states: a metric, a comparison, and a number with or without its unit.

    >>> read_limit("ttft_s <= 500 ms").bound, read_limit("mfu >= 0.4").most
    (0.5, False)
    """
    match = _LIMIT.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise SpecError("constraint", text, "write METRIC <= VALUE, such as 'memory_bytes <= 80 GB'")
    metric, comparison, value = match.groups()
    if metric not in metrics:
        raise UnknownName.among("constraint", metric, "metric", metrics)
    bound = _read_bound(metric, value)
    require(0 < bound < np.inf, "constraint", text, "the bound must be a number above 0")
    shown = text if text.isprintable() else " ".join(text.split())  # it becomes a reason, which is one line
    return MetricLimit(shown, metric, comparison.startswith("<"), bound)


def _read_bound(metric: str, text: str) -> float:
    try:
        return float(text.replace("_", ""))
    except ValueError:
        pass
    if (count := units.read_count(text)) is not None:
        return count
    dimension = None if "_per_" in metric else units.split_name(metric)[1]
    if dimension is None:
        raise SpecError("constraint", text, f"{metric} is compared with a plain number")
    try:
        return units.read_quantity(text, dimension)
    except SpecError as error:
        raise SpecError(f"constraint on {metric}", text, error.rule) from None


# ---- Pareto dominance, ranks, crowding and hypervolume; less is better throughout

BLOCK_ROWS = 256
"""How many points are compared with all others at a time: bounds memory with three objectives or more."""

LARGE_SET, SAMPLE_SIZE, FILTER_SIZE = 50_000, 4096, 32
"""Of more rows than *many*, most are dropped first: those that the best of some *sample*, so many, dominate."""


def pareto_front(losses: Floats) -> Flags:
    """Return which rows no other dominates; equal rows do not dominate each other, and NaN is in no front.

    >>> pareto_front(np.array([[1.0, 4.0], [2.0, 2.0], [3.0, 3.0], [4.0, 1.0]])).tolist()
    [True, True, False, True]
    """
    inside = np.zeros(len(losses), dtype=bool)
    comparable = np.flatnonzero(~np.isnan(losses).any(axis=1))
    if len(comparable) and losses.shape[1] == 1:
        inside[comparable] = losses[comparable, 0] == losses[comparable, 0].min()
        return inside
    if len(comparable) > LARGE_SET:
        comparable = comparable[_survives_sample(losses[comparable])]
    if len(comparable):
        distinct, which = np.unique(losses[comparable] + 0.0, axis=0, return_inverse=True)  # -0.0 is 0.0
        best = _front_of_two(distinct) if losses.shape[1] <= 2 else _front_of_many(distinct)
        inside[comparable] = best[which.reshape(-1)]
    return inside


def _survives_sample(losses: Floats) -> Flags:
    """Return which of many rows the front of a small sample does not dominate: the whole front, and few others."""
    sample = losses[:: len(losses) // SAMPLE_SIZE]
    best = sample[pareto_front(sample)][:FILTER_SIZE]
    survives = np.ones(len(losses), dtype=bool)
    for row in best:
        survives &= ~((row <= losses).all(axis=1) & (row < losses).any(axis=1))
    return survives


def _front_of_two(distinct: Floats) -> Flags:
    """Return the front of distinct rows in lexicographic order: rows whose last objective is less than any before."""
    last_objective = distinct[:, -1]
    least_before = np.concatenate(([np.inf], np.minimum.accumulate(last_objective)[:-1]))
    on_front = last_objective < least_before
    on_front[0] = True  # nothing comes before it, even where its last objective is infinite
    return on_front


def _front_of_many(distinct: Floats) -> Flags:
    """Return the front of distinct rows, taken in the order of the sum of their ranks: no later row dominates one."""
    ranks = np.stack([np.unique(column, return_inverse=True)[1].reshape(-1) for column in distinct.T], axis=1)
    order = np.argsort(ranks.sum(axis=1), kind="stable")
    chosen = np.empty(0, dtype=np.intp)
    for start in range(0, len(order), BLOCK_ROWS):
        block = order[start : start + BLOCK_ROWS]
        block = block[~_dominated(ranks[block], ranks[chosen])]
        block = block[~_dominated(ranks[block], ranks[block])]
        chosen = np.concatenate((chosen, block))
    on_front = np.zeros(len(distinct), dtype=bool)
    on_front[chosen] = True
    return on_front


def _dominated(rows: Indices, rivals: Indices) -> Flags:
    """Return for each of *rows* whether one of *rivals* dominates it; no row equals another but itself."""
    no_worse = np.ones((len(rows), len(rivals)), dtype=bool)
    better = np.zeros_like(no_worse)
    for mine, theirs in zip(rows.T, rivals.T, strict=True):
        no_worse &= theirs[None, :] <= mine[:, None]
        better |= theirs[None, :] < mine[:, None]
    return np.asarray((no_worse & better).any(axis=1))


def pareto_ranks(losses: Floats, excess: Floats | None = None) -> Indices:
    """Return the rank of each row, 0 for the front; infeasible rows follow by their *excess*, NaN comes last.

    >>> pareto_ranks(np.array([[1.0, 1.0], [2.0, 3.0], [3.0, 2.0], [9.0, 9.0]])).tolist()
    [0, 1, 1, 2]
    >>> pareto_ranks(np.array([[5.0], [np.nan], [np.nan]]), excess=np.array([0.0, np.inf, 0.1])).tolist()
    [0, 2, 1]
    """
    missed = np.zeros(len(losses)) if excess is None else excess
    feasible = (missed == 0) & ~np.isnan(losses).any(axis=1)
    ranks = np.zeros(len(losses), dtype=np.intp)
    if feasible.any():
        ranks[feasible] = _ranks_of_feasible(losses[feasible])
    distances = np.where(missed > 0, missed, np.inf)[
        ~feasible
    ]  # a loss that is NaN although nothing is exceeded comes last
    ranks[~feasible] = np.unique(distances, return_inverse=True)[1].reshape(-1) + ranks[feasible].max(initial=-1) + 1
    return ranks


def _ranks_of_feasible(losses: Floats) -> Indices:
    distinct, which = np.unique(losses + 0.0, axis=0, return_inverse=True)  # -0.0 is 0.0
    if losses.shape[1] == 1:
        ranks = np.arange(len(distinct))
    elif losses.shape[1] == 2:
        ranks = _ranks_of_two(distinct)
    else:
        ranks = np.zeros(len(distinct), dtype=np.intp)
        remaining = np.arange(len(distinct))
        while len(remaining):
            best = _front_of_many(distinct[remaining])
            remaining = remaining[~best]
            ranks[remaining] += 1
    return ranks[which.reshape(-1)]


def _ranks_of_two(distinct: Floats) -> Indices:
    """Return the ranks of distinct rows in lexicographic order.

    A row joins the first front whose least second objective is above its own. Those least values grow from front to
    front, so bisection finds the front (Jensen, 2003).
    """
    least: list[float] = []
    ranks = []
    for second in distinct[:, 1].tolist():
        rank = bisect_right(least, second)
        least[rank : rank + 1] = [second]
        ranks.append(rank)
    return np.array(ranks, dtype=np.intp)


def crowding_distance(losses: Floats) -> Floats:
    """Return the crowding distance of each row of one front; infinite at the ends of each objective.

    The sum over objectives of the gap between the next smaller and the next larger value, as a share of the range.

    >>> crowding_distance(np.array([[0.0, 4.0], [1.0, 2.0], [4.0, 0.0]])).tolist()
    [inf, 2.0, inf]
    """
    distances = np.zeros(len(losses))
    for column in losses.T:
        order = np.argsort(column, kind="stable")
        inner = column[order]
        span = inner[-1] - inner[0] if len(inner) and np.isfinite(inner[[0, -1]]).all() else 0.0
        if span > 0:
            distances[order[1:-1]] += (inner[2:] - inner[:-2]) / span
        distances[order[[0, -1]] if len(order) else order] = np.inf
    return distances


def pareto_order(losses: Floats, excess: Floats) -> Indices:
    """Return the rows from best to worst: by rank, and with several objectives the least crowded of a rank first.

    Infeasible rows come after all feasible ones, by their excess.
    """
    if losses.shape[1] == 1:  # no ranks are needed, and this is twenty times as fast
        feasible = (excess == 0) & ~np.isnan(losses[:, 0])
        missed = np.where(feasible, 0.0, np.where(excess > 0, excess, np.inf))
        return np.lexsort((np.where(feasible, losses[:, 0], 0.0), missed))
    rank = pareto_ranks(losses, excess)
    distance = np.zeros(len(losses))
    feasible = np.flatnonzero(excess == 0)
    by_rank = feasible[np.argsort(rank[feasible], kind="stable")]
    starts = np.flatnonzero(np.diff(rank[by_rank], prepend=-1))
    for group in np.split(by_rank, starts[1:]):
        distance[group] = crowding_distance(losses[group])
    return np.lexsort((-distance, rank))


def hypervolume(losses: Floats, reference: Floats) -> float:
    """Return the exact volume that the rows dominate, up to the *reference* point.

    >>> hypervolume(np.array([[1.0, 2.0], [2.0, 1.0]]), np.array([3.0, 3.0]))
    3.0
    """
    with np.errstate(invalid="ignore"):
        better = losses[(losses < reference).all(axis=1)]
    return _volume(better[pareto_front(better)], np.asarray(reference, dtype=float))


def _volume(losses: Floats, reference: Floats) -> float:
    """Return the volume, sliced at each value of the last objective: a slice is the volume of the rows below it."""
    if not len(losses):
        return 0.0
    rows = losses[np.argsort(losses[:, -1], kind="stable")]
    thickness = np.diff(rows[:, -1], append=reference[-1])
    if losses.shape[1] == 1:
        return float(reference[0] - rows[0, 0])
    if losses.shape[1] == 2:
        return float((thickness * (reference[0] - np.minimum.accumulate(rows[:, 0]))).sum())
    total = 0.0
    for cut in np.flatnonzero(thickness).tolist():
        section = rows[: cut + 1, :-1]
        total += float(thickness[cut]) * _volume(section[pareto_front(section)], reference[:-1])
    return total
