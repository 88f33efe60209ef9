"""A small convex solver: a linear objective over products and linear constraints, by Newton's method on a barrier.

    minimise c z    subject to    z_i z_j ≥ m for some pairs (i, j),    G z ≤ h,    E z = e

A product constraint is a cone (for positive z), so that whatever is found is the optimum, not one of several. The
barrier - log(z_i z_j - m) is self-concordant: Newton's method converges from any interior point, whatever the units of
the variables are, and at the centre for weight τ the objective is within (2 products + inequalities) / τ of the optimum.
Equalities are met by moving in their null space alone.
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

    @property
    def parameter(self) -> float:
        """The barrier's parameter: by how much over the weight a centre may miss the optimum."""
        return 2.0 * len(self.least) + len(self.limits)


@dataclass(frozen=True, slots=True)
class Centre:
    """A point near the central path, and the multipliers that it implies."""

    point: Vector
    weight: float
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


def follow(program: Program, start: Vector, gap: float, floor: float = 0.0, enough: float = -np.inf) -> Centre:
    """Return the centre at which the objective is within *gap* of the optimum, relative to its size.

    *start* must lie inside all inequalities and products, and on all equalities. Sizes below *floor* count as *floor*.
    A centre whose objective is below *enough* is returned at once.
    """
    point, basis = start, null_space(program.equal, len(start))
    scale = max(abs(float(program.cost @ point)), floor, 1e-300)
    weight = program.parameter / scale
    while True:
        point = _centre(program, basis, point, weight)
        value = float(program.cost @ point)
        if program.parameter <= weight * gap * max(abs(value), floor) or value < enough:
            return _multipliers(program, point, weight)
        weight *= GROWTH


def _centre(program: Program, basis: Matrix, point: Vector, weight: float) -> Vector:
    """Return the point at which the weighted objective and the barrier balance."""
    if not basis.shape[1]:
        return point
    for _ in range(MOST_STEPS):
        gradient, hessian = _derivatives(program, point, weight)
        inner, curvature = basis.T @ gradient, basis.T @ hessian @ basis
        size = np.sqrt(np.diagonal(curvature))
        scaled = curvature / size[:, None] / size[None, :]  # of unit diagonal: variables differ by many orders
        step = basis @ (-_solve(scaled, inner / size) / size)
        decrement = float(-gradient @ step)
        if not decrement > CENTRED:
            return point
        moved = _moved(program, point, step, weight, decrement)
        if moved is None:
            return point
        point = moved
    return point


def _solve(matrix: Matrix, right: Vector) -> Vector:
    try:
        found: Vector = np.linalg.solve(matrix, right)
    except np.linalg.LinAlgError:
        found = np.linalg.lstsq(matrix, right, rcond=None)[0]
    return found


def _derivatives(program: Program, point: Vector, weight: float) -> tuple[Vector, Matrix]:
    size = len(point)
    a, b = point[program.left], point[program.right]
    room = a * b - program.least
    slack = program.limits - program.rows @ point
    scaled = program.rows / slack[:, None]
    gradient = weight * program.cost + scaled.sum(axis=0)
    gradient -= np.bincount(program.left, b / room, size) + np.bincount(program.right, a / room, size)
    left, right = program.left, program.right
    places = np.concatenate([left * size + left, right * size + right, left * size + right, right * size + left])
    cross = program.least / room**2
    entries = np.concatenate([(b / room) ** 2, (a / room) ** 2, cross, cross])
    hessian = np.bincount(places, entries, size * size).reshape(size, size) + scaled.T @ scaled
    return gradient, hessian


def _moved(program: Program, point: Vector, step: Vector, weight: float, decrement: float) -> Vector | None:
    """Return the point after a step that stays inside and goes down; None where rounding leaves none.

    What the merit falls by is added up from ratios: the merit itself is so large at the end that it would be lost.
    """
    a, b, da, db = point[program.left], point[program.right], step[program.left], step[program.right]
    room, slack = a * b - program.least, program.limits - program.rows @ point
    falls = weight * float(program.cost @ step)
    linear, square = (a * db + b * da) / room, da * db / room
    used = program.rows @ step / slack
    share = min(1.0, 0.9 / max(float(used.max(initial=0.0)), 1e-300))
    for _ in range(60):
        rooms, slacks = 1.0 + share * linear + share**2 * square, 1.0 - share * used
        positive = rooms.min(initial=1.0) > 0 and (a + share * da).min(initial=1.0) > 0
        if positive and slacks.min(initial=1.0) > 0:
            change = share * falls - float(np.log(rooms).sum()) - float(np.log(slacks).sum())
            if change <= -0.1 * share * decrement:
                return point + share * step
        share *= 0.5
    return None


def _multipliers(program: Program, point: Vector, weight: float) -> Centre:
    a, b = point[program.left], point[program.right]
    room, slack = a * b - program.least, program.limits - program.rows @ point
    return Centre(point, weight, b / room / weight, 1.0 / slack / weight)
