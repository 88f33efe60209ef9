"""A point well inside linear limits, by Newton's method on a barrier; and the program that the solver is given.

    minimise c z    subject to    z_i z_j ≥ m for some pairs (i, j),    G z ≤ h,    E z = e

`follow` takes programs without products. The barrier - log(h - G z) is self-concordant: Newton's method converges from
any point inside, whatever the units of the variables are, and at the centre for weight τ the objective is within
(inequalities) / τ of the optimum. Equalities are met by moving in their null space alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]
Matrix = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]

GROWTH = 40.0
"""By how much the weight of the objective grows from one centre to the next."""
MOST_STEPS = 60
"""Newton steps to one centre; a dozen are usual."""
CENTRED = 1e-9
"""The square of Newton's decrement at which a centre is reached."""
RANK = 1e-11
"""Singular values below this share of the largest count as zero: the equality follows from others."""


@dataclass(frozen=True, slots=True)
class Program:
    """A linear objective, products, inequalities and equalities."""

    cost: Vector
    left: Places
    right: Places
    least: Vector
    """Of each product: z[left] z[right] ≥ least, which is positive."""
    rows: Matrix
    limits: Vector
    """Inequalities: rows z ≤ limits."""
    equal: Matrix
    values: Vector
    """Equalities: equal z = values."""


@dataclass(frozen=True, slots=True)
class Centre:
    """A point near the central path, and the multipliers that it implies."""

    point: Vector
    products: Vector
    """Multiplier of each product at z[left], as z[left] ≥ least / z[right]."""
    inequalities: Vector
    """Multiplier of each inequality, not negative."""


def null_space(equal: Matrix, size: int) -> Matrix:
    """Return an orthonormal basis of the directions along which no equality changes."""
    if not len(equal):
        return np.eye(size)
    _, singular, right = np.linalg.svd(equal)
    rank = int(np.sum(singular > RANK * singular[0])) if singular.size and singular[0] > 0 else 0
    return np.ascontiguousarray(right[rank:].T)


def follow(program: Program, start: Vector, gap: float, floor: float) -> Centre:
    """Return the centre at which the objective is within *gap* of the optimum, relative to its size.

    *start* must lie inside all inequalities, and on all equalities. Sizes below *floor* count as *floor*.
    """
    point, basis, parameter = start, null_space(program.equal, len(start)), len(program.limits)
    weight = parameter / max(abs(float(program.cost @ point)), floor)
    while True:
        point = _centre(program, basis, point, weight)
        if parameter <= weight * gap * max(abs(float(program.cost @ point)), floor):
            slack = program.limits - program.rows @ point
            return Centre(point, np.zeros(0), 1.0 / slack / weight)
        weight *= GROWTH


def _centre(program: Program, basis: Matrix, point: Vector, weight: float) -> Vector:
    """Return the point at which the weighted objective and the barrier balance."""
    if not basis.shape[1]:
        return point
    for _ in range(MOST_STEPS):
        scaled = program.rows / (program.limits - program.rows @ point)[:, None]
        gradient = weight * program.cost + scaled.sum(axis=0)
        along = scaled @ basis
        size = np.linalg.norm(along, axis=0)  # to a unit diagonal: variables differ by many orders
        matrix = (along / size).T @ (along / size)
        step: Vector = basis @ (np.linalg.lstsq(matrix, -(basis.T @ gradient) / size, rcond=None)[0] / size)
        decrement = float(-gradient @ step)
        moved = _moved(program, point, step, weight, decrement) if decrement > CENTRED else None
        if moved is None:
            return point
        point = moved
    return point


def _moved(program: Program, point: Vector, step: Vector, weight: float, decrement: float) -> Vector | None:
    """Return the point after a step that stays inside and goes down; None where rounding leaves none.

    What the merit falls by is added up from ratios: the merit itself is so large at the end that it would be lost.
    """
    falls = weight * float(program.cost @ step)
    used = program.rows @ step / (program.limits - program.rows @ point)
    share = min(1.0, 0.9 / max(float(used.max(initial=0.0)), 1e-300))
    for _ in range(60):
        if share * falls - float(np.log1p(-share * used).sum()) <= -0.1 * share * decrement:
            return point + share * step
        share *= 0.5
    return None
