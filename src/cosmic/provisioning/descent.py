"""A deterministic search for the best bandwidth by any function that can be asked of many networks at once.

From a few starts it tries some hundreds of directions at once, keeps the best, and looks closer where none is better.
Directions change bandwidth in proportion, along all equalities; half of them also along the inequalities that are met
exactly, so that a limit can be followed. So nothing is assumed of the function but that it can be computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from cosmic.provisioning.barrier import Matrix, Vector, null_space
from cosmic.provisioning.problem import Limit

TRIED = 192
"""Directions that are tried at once."""
SPREAD = 8
"""Lengths of a step, each half of the one before, over which they are spread."""
FIRST, LAST = 0.5, 1e-8
"""The longest step, in proportion to bandwidth, and that at which the search ends."""
MOST_ROUNDS = 150
BETTER = 1e-13
"""By what share a step must be better to be taken."""
TOUCHING = 1e-9
SEED = 20240917


def descend(value: Callable[[Matrix], Vector], limits: Sequence[Limit], starts: Matrix) -> Vector:
    """Return the best bandwidth that is found from *starts*, which meet all *limits*: the better ones are followed."""
    rng = np.random.default_rng(SEED)
    first = value(starts)
    order = np.argsort(first, kind="stable")[:2]
    found = [_followed(value, limits, starts[place], float(first[place]), rng) for place in order]
    return min(found, key=lambda each: each[1])[0]


def _followed(
    value: Callable[[Matrix], Vector], limits: Sequence[Limit], point: Vector, best: float, rng: np.random.Generator
) -> tuple[Vector, float]:
    equal = np.array([limit.coefficients for limit in limits if limit.sense == "=="]).reshape(-1, len(point))
    bounds = [limit for limit in limits if limit.sense != "=="]
    signs = np.array([1.0 if limit.sense == "<=" else -1.0 for limit in bounds])
    rows = (np.array([limit.coefficients for limit in bounds]).T * signs).T.reshape(-1, len(point))
    values = np.array([limit.value for limit in bounds]) * signs
    length = FIRST
    for _ in range(MOST_ROUNDS):
        if length < LAST:
            break
        steps = _steps(equal, rows, values, point, rng) * length
        candidates = point * (1.0 + _inside(rows * point, values - rows @ point, steps)[:, None] * steps)
        found = value(candidates)
        place = int(np.argmin(found))
        if found[place] < best - BETTER * abs(best):
            point, best = candidates[place], float(found[place])
            length = min(FIRST, 2.0 * length)
        else:
            length *= 0.25
    return point, best


def _steps(equal: Matrix, rows: Matrix, values: Vector, point: Vector, rng: np.random.Generator) -> Matrix:
    """Return steps in proportion to *point*, of length at most one, along equalities and limits that are touched."""
    scaled = rows * point
    size = np.abs(scaled).max(axis=1, initial=0.0)
    touched = values - rows @ point <= TOUCHING * size
    found = []
    for fixed in (equal, np.vstack([equal, rows[touched]])):
        basis = null_space(fixed * point, len(point))
        axes = basis @ basis.T
        lengths = np.linalg.norm(axes, axis=1)
        axes = axes[lengths > TOUCHING] / lengths[lengths > TOUCHING, None]
        drawn = rng.normal(size=(TRIED, basis.shape[1])) @ basis.T
        norms = np.linalg.norm(drawn, axis=1)
        drawn = drawn[norms > 0] / norms[norms > 0, None]
        every = np.vstack([axes, -axes, drawn])
        found.append(every * 0.5 ** (np.arange(len(every)) % SPREAD)[:, None])
    return np.vstack(found)


def _inside(rows: Matrix, room: Vector, steps: Matrix) -> Vector:
    """Return the share of each step that stays within all limits, and that leaves bandwidth positive."""
    used = steps @ rows.T
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(used > 0, np.maximum(room, 0.0) / used, np.inf)
        least = np.where(steps < 0, 0.9 / -steps, np.inf)
    found: Vector = np.minimum(np.minimum(shares.min(axis=1, initial=np.inf), least.min(axis=1)), 1.0)
    return found
