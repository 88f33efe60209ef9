"""A deterministic search for the best bandwidth by any function that can be asked of many networks at once.

From a few starts it tries some hundreds of directions at once, keeps the best, and looks closer where none is better.
Directions change bandwidth in proportion, along all equalities; half of them also along the inequalities that are met
exactly, so that a limit can be followed. So nothing is assumed of the function but that it can be computed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np

from cosmic.base.linear_algebra import multiply, null_space
from cosmic.search.provision.bandwidth_problem import Limit
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


BandwidthWalk = Generator[Matrix, Vector, tuple[Vector, float]]
"""A search that yields the networks it asks for, is sent what each is worth, and returns the best and its worth."""


def descend(value: Callable[[Matrix], Vector], limits: Sequence[Limit], starts: Matrix) -> Vector:
    """Return the best bandwidth that is found from *starts*, which meet all *limits*: the better ones are followed."""
    rng = np.random.default_rng(SEED)
    first = value(starts)
    order = np.argsort(first, kind="stable")[:2]
    ends = [_follow_walk(value, walk_bandwidths(limits, starts[start], float(first[start]), rng)) for start in order]
    return min(ends, key=lambda end: end[1])[0]


def _follow_walk(value: Callable[[Matrix], Vector], steps: BandwidthWalk) -> tuple[Vector, float]:
    answer: Vector | None = None
    while True:
        try:
            networks = next(steps) if answer is None else steps.send(answer)
        except StopIteration as end:
            best: tuple[Vector, float] = end.value
            return best
        answer = value(networks)


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
