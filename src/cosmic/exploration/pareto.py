"""Which points are better than which: dominance, ranks, crowding and hypervolume, less being better throughout.

A point dominates another if it is nowhere worse and somewhere better. The front is what nothing dominates; the next
rank is the front of the rest, and so on. Deb's rule adds the points that cannot run: they come after all that can, the
nearer to running the earlier.

Deb, Pratap, Agarwal & Meyarivan, IEEE Trans. Evolutionary Computation 6(2), 2002: ranks, crowding and the rule.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from cosmic.exploration.agent import Flags, Floats
from cosmic.psa.diagram import Indices

BLOCK = 256
"""How many points are compared with all others at a time: bounds memory where there are three objectives or more."""


def front(losses: Floats) -> Flags:
    """Return which rows nothing dominates; equal rows do not dominate each other, and NaN is in no front.

    >>> front(np.array([[1.0, 4.0], [2.0, 2.0], [3.0, 3.0], [4.0, 1.0]])).tolist()
    [True, True, False, True]
    """
    inside = np.zeros(len(losses), dtype=bool)
    known = np.flatnonzero(~np.isnan(losses).any(axis=1))
    if len(known):
        distinct, which = np.unique(losses[known] + 0.0, axis=0, return_inverse=True)  # -0.0 is 0.0
        best = _front_of_two(distinct) if losses.shape[1] <= 2 else _front_of_many(distinct)
        inside[known] = best[which.reshape(-1)]
    return inside


def _front_of_two(distinct: Floats) -> Flags:
    """Of distinct rows in lexicographic order, those whose last objective is less than any before."""
    last = distinct[:, -1]
    least_before = np.concatenate(([np.inf], np.minimum.accumulate(last)[:-1]))
    found = last < least_before
    found[0] = True  # nothing comes before it, though its last objective be infinite
    return found


def _front_of_many(distinct: Floats) -> Flags:
    """Of distinct rows: in order of the sum of their places, so that nothing is dominated by what comes later."""
    places = np.stack([np.unique(column, return_inverse=True)[1].reshape(-1) for column in distinct.T], axis=1)
    order = np.argsort(places.sum(axis=1), kind="stable")
    chosen = np.empty(0, dtype=np.intp)
    for start in range(0, len(order), BLOCK):
        block = order[start : start + BLOCK]
        block = block[~_dominated(places[block], places[chosen])]
        block = block[~_dominated(places[block], places[block])]
        chosen = np.concatenate((chosen, block))
    found = np.zeros(len(distinct), dtype=bool)
    found[chosen] = True
    return found


def _dominated(rows: Indices, others: Indices) -> Flags:
    """Return for each of *rows* whether one of *others* dominates it, where no two are equal but itself."""
    no_worse = np.ones((len(rows), len(others)), dtype=bool)
    better = np.zeros_like(no_worse)
    for mine, theirs in zip(rows.T, others.T, strict=True):
        no_worse &= theirs[None, :] <= mine[:, None]
        better |= theirs[None, :] < mine[:, None]
    return np.asarray((no_worse & better).any(axis=1))


def ranks(losses: Floats, excess: Floats | None = None) -> Indices:
    """Return the rank of each row, 0 for the front; those that cannot run follow by their *excess*, NaN comes last.

    >>> ranks(np.array([[1.0, 1.0], [2.0, 3.0], [3.0, 2.0], [9.0, 9.0]])).tolist()
    [0, 1, 1, 2]
    >>> ranks(np.array([[5.0], [np.nan], [np.nan]]), excess=np.array([0.0, np.inf, 0.1])).tolist()
    [0, 2, 1]
    """
    missed = np.zeros(len(losses)) if excess is None else excess
    known = (missed == 0) & ~np.isnan(losses).any(axis=1)
    found = np.zeros(len(losses), dtype=np.intp)
    if known.any():
        found[known] = _ranks_of_known(losses[known])
    rest = np.where(missed > 0, missed, np.inf)[~known]  # a loss that is no number, without a reason: as bad as can be
    found[~known] = np.unique(rest, return_inverse=True)[1].reshape(-1) + found[known].max(initial=-1) + 1
    return found


def _ranks_of_known(losses: Floats) -> Indices:
    distinct, which = np.unique(losses + 0.0, axis=0, return_inverse=True)  # -0.0 is 0.0
    if losses.shape[1] == 1:
        found = np.arange(len(distinct))
    elif losses.shape[1] == 2:
        found = _ranks_of_two(distinct)
    else:
        found = np.zeros(len(distinct), dtype=np.intp)
        left = np.arange(len(distinct))
        while len(left):
            best = _front_of_many(distinct[left])
            left = left[~best]
            found[left] += 1
    return found[which.reshape(-1)]


def _ranks_of_two(distinct: Floats) -> Indices:
    """Of distinct rows in lexicographic order: each joins the first front whose least second objective is above its.

    Those least values grow from front to front, so that the front is found by bisection (Jensen, 2003).
    """
    least: list[float] = []
    found = []
    for second in distinct[:, 1].tolist():
        place = bisect_right(least, second)
        least[place : place + 1] = [second]
        found.append(place)
    return np.array(found, dtype=np.intp)


def crowding(losses: Floats) -> Floats:
    """Return for each row of one front how far apart its neighbours are; infinite at the ends of each objective.

    The sum over objectives of the gap between the next smaller and the next larger value, as a share of the range.

    >>> crowding(np.array([[0.0, 4.0], [1.0, 2.0], [4.0, 0.0]])).tolist()
    [inf, 2.0, inf]
    """
    found = np.zeros(len(losses))
    for column in losses.T:
        order = np.argsort(column, kind="stable")
        inner = column[order]
        span = inner[-1] - inner[0] if len(inner) and np.isfinite(inner[[0, -1]]).all() else 0.0
        if span > 0:
            found[order[1:-1]] += (inner[2:] - inner[:-2]) / span
        found[order[[0, -1]] if len(order) else order] = np.inf
    return found


def order(losses: Floats, excess: Floats) -> Indices:
    """Return the rows from best to worst: by rank, and within the ranks of several objectives the least crowded first.

    What cannot run comes after all that can, by its excess.
    """
    rank = ranks(losses, excess)
    if losses.shape[1] == 1:
        return np.argsort(rank, kind="stable")
    lonely = np.zeros(len(losses))
    able = np.flatnonzero(excess == 0)
    by_rank = able[np.argsort(rank[able], kind="stable")]
    starts = np.flatnonzero(np.diff(rank[by_rank], prepend=-1))
    for group in np.split(by_rank, starts[1:]):
        lonely[group] = crowding(losses[group])
    return np.lexsort((-lonely, rank))


def hypervolume(losses: Floats, reference: Floats) -> float:
    """Return the volume of all that some row dominates and that dominates the *reference* point; exact.

    >>> hypervolume(np.array([[1.0, 2.0], [2.0, 1.0]]), np.array([3.0, 3.0]))
    3.0
    """
    with np.errstate(invalid="ignore"):
        better = losses[(losses < reference).all(axis=1)]
    return _volume(better[front(better)], np.asarray(reference, dtype=float))


def _volume(losses: Floats, reference: Floats) -> float:
    """Cut at each value of the last objective: between two cuts the section is that of the rows before, without it."""
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
        total += float(thickness[cut]) * _volume(section[front(section)], reference[:-1])
    return total
