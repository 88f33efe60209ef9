"""Interior-point methods for the convex program of provisioning: a barrier to begin with, a primal-dual method to end.

    minimise c z    subject to    z_i z_j ≥ m for some pairs (i, j),    G z ≤ h,    E z = e

`follow_central_path` takes programs without products and finds a point well inside the limits. The barrier
- log(h - G z) is self-concordant: Newton's method converges from any point inside, whatever the units of the variables
are, and at the centre for weight τ the objective is within (inequalities) / τ of the optimum. Equalities are met by
moving in their null space alone.

`find_optimum` moves point, room and multipliers together, by Newton's method. A product z_i z_j ≥ m is taken as
m / z_j - z_i + room = 0 with room > 0. Only room and multipliers must stay positive on the way, and rooms need not fit
the point until the end; so a step may leave the curved edge of a product, along which a barrier alone could only creep.
Each step first looks where the optimum seems to be, and aims accordingly (Mehrotra). At the end multipliers prove how
good the point is (`bandwidth_optimum`), whatever happened.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cosmic.base.numeric import factorize, least_squares, multiply, null_space

# ---- A point well inside linear limits, by Newton's method on a barrier; and the program that the solver is given

Vector = npt.NDArray[np.float64]
Matrix = npt.NDArray[np.float64]
Positions = npt.NDArray[np.intp]

WEIGHT_GROWTH = 40.0
"""By how much the weight of the objective grows from one centre to the next."""
MAX_CENTRING_STEPS = 60
"""Newton steps to one centre; a dozen are usual."""
CENTRING_TOLERANCE = 1e-9
"""The square of Newton's decrement at which a centre is reached."""
RANK_TOLERANCE = 1e-11
"""An equality of which less than this share is left beside the others follows from them."""


@dataclass(frozen=True, slots=True)
class ConvexProgram:
    """A linear objective, products, inequalities and equalities."""

    cost: Vector
    left: Positions
    right: Positions
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


def follow_central_path(program: ConvexProgram, start: Vector, gap: float, floor: float) -> Centre:
    """Return the centre at which the objective is within *gap* of the optimum, relative to its size.

    *start* must lie inside all inequalities, and on all equalities. Sizes below *floor* count as *floor*.
    """
    point, basis, parameter = start, null_space(program.equal, RANK_TOLERANCE), len(program.limits)
    weight = parameter / max(abs(float(multiply(program.cost, point))), floor)
    while True:
        point = _find_centre(program, basis, point, weight)
        if parameter <= weight * gap * max(abs(float(multiply(program.cost, point))), floor):
            slack = program.limits - multiply(program.rows, point)
            return Centre(point, np.zeros(0), 1.0 / slack / weight)
        weight *= WEIGHT_GROWTH


def _find_centre(program: ConvexProgram, basis: Matrix, point: Vector, weight: float) -> Vector:
    """Return the point at which the weighted objective and the barrier balance."""
    if not basis.shape[1]:
        return point
    for _ in range(MAX_CENTRING_STEPS):
        scaled = program.rows / (program.limits - multiply(program.rows, point))[:, None]
        gradient = weight * program.cost + scaled.sum(axis=0)
        along = multiply(scaled, basis)
        size = np.linalg.norm(along, axis=0)  # to a unit diagonal: variables differ by many orders
        matrix = multiply((along / size).T, along / size)
        step: Vector = multiply(basis, least_squares(matrix, -multiply(basis.T, gradient) / size) / size)
        decrement = float(-multiply(gradient, step))
        moved = _move_inside(program, point, step, weight, decrement) if decrement > CENTRING_TOLERANCE else None
        if moved is None:
            return point
        point = moved
    return point


def _move_inside(program: ConvexProgram, point: Vector, step: Vector, weight: float, decrement: float) -> Vector | None:
    """Return the point after a step that stays inside and goes down; None where rounding leaves none.

    What the merit falls by is added up from ratios: the merit itself is so large at the end that it would be lost.
    """
    falls = weight * float(multiply(program.cost, step))
    used = multiply(program.rows, step) / (program.limits - multiply(program.rows, point))
    share = min(1.0, 0.9 / max(float(used.max(initial=0.0)), 1e-300))
    for _ in range(60):
        if share * falls - sum(math.log1p(-share * each) for each in used.tolist()) <= -0.1 * share * decrement:
            return point + share * step
        share *= 0.5
    return None


# ---- The solver's program by a primal-dual method: point, room and multipliers move together, by Newton's method

MAX_PRIMAL_DUAL_STEPS = 120
OPTIMUM_TOLERANCE = 1e-12
"""At which room times multipliers, and what is amiss with the equations, count as nothing."""
STEP_BACK = 0.95
"""How much of the way to the nearest edge a step goes."""
BALANCE = 0.1
"""Room times multipliers is not brought further down than this share of what else is amiss: it would be in the way."""
MIN_STEP = 0.1
"""A step of which less can be taken is not worth it: the next one aims at the middle."""


@dataclass(frozen=True, slots=True)
class _State:
    point: Vector
    room: Vector
    charged: Vector
    """Multipliers of products and inequalities."""
    fixed: Vector
    """Multipliers of equalities."""


def find_optimum(program: ConvexProgram, start: Vector) -> Centre:
    """Return a point near the optimum with its multipliers; *start* lies inside all products and inequalities."""
    room = _room(program, start)
    level = max(float(multiply(program.cost, start)), 1e-300) / len(room)
    state = _State(start, room, level / room, np.zeros(len(program.values)))
    best, least = state, np.inf
    for _ in range(MAX_PRIMAL_DUAL_STEPS):
        moved, amiss = _advance_state(program, state)
        if amiss < least:
            best, least = state, amiss
        if amiss < OPTIMUM_TOLERANCE or moved is None:
            break
        state = moved
    products = len(program.least)
    return Centre(best.point, best.charged[:products], best.charged[products:])


def _room(program: ConvexProgram, point: Vector) -> Vector:
    return np.concatenate(
        [point[program.left] - program.least / point[program.right], program.limits - multiply(program.rows, point)]
    )


def _advance_state(program: ConvexProgram, state: _State) -> tuple[_State | None, float]:
    """Return the state after one step, None where there is none, and how far the present one is from the optimum."""
    jacobian = _Jacobian.at_point(program, state.point)
    short = state.room - _room(program, state.point)
    dual = program.cost + jacobian.transposed_times(state.charged) + multiply(program.equal.T, state.fixed)
    equal = multiply(program.equal, state.point) - program.values
    level = float(multiply(state.room, state.charged)) / len(state.room)
    size = max(abs(float(multiply(program.cost, state.point))), 1e-300)
    unmet = max(
        float(np.abs(dual * state.point).max()) / size,
        float(np.abs(short).max(initial=0.0)),
        float(np.abs(equal).max(initial=0.0)),
    )
    amiss = max(level * len(state.room) / size, unmet)
    if not np.isfinite(amiss):
        return None, np.inf
    try:
        newton = _Newton(program, state, jacobian)
        predictor = newton.step(dual, short, equal, state.room * state.charged)
        ahead = multiply(
            state.room + _positive_share(state.room, predictor[1]) * predictor[1],
            state.charged + _positive_share(state.charged, predictor[2]) * predictor[2],
        )
        aim = min(1.0, (float(ahead) / len(state.room) / level) ** 3) * level
        aim = max(aim, min(level, BALANCE * unmet * size / len(state.room)))
        curved = state.room * state.charged + predictor[1] * predictor[2] - aim
        step = newton.step(dual, short, equal, curved)
        if (
            min(
                _positive_share(state.room, step[1]),
                _positive_share(state.charged, step[2]),
                _positive_share(state.point, step[0]),
            )
            < MIN_STEP
        ):
            step = newton.step(dual, short, equal, state.room * state.charged - level)  # back to the middle first
    except np.linalg.LinAlgError:
        return None, amiss
    if not all(np.all(np.isfinite(part)) for part in step):
        return None, amiss
    primal = min(
        STEP_BACK * _positive_share(state.room, step[1]), 1.0, STEP_BACK * _positive_share(state.point, step[0])
    )
    charged = min(STEP_BACK * _positive_share(state.charged, step[2]), 1.0)
    return (
        _State(
            state.point + primal * step[0],
            state.room + primal * step[1],
            state.charged + charged * step[2],
            state.fixed + charged * step[3],
        ),
        amiss,
    )


def _positive_share(values: Vector, steps: Vector) -> float:
    """Return how much of the steps leaves all values positive, at most ten times."""
    down = steps < 0
    return min(10.0, float(np.min(-values[down] / steps[down], initial=10.0)))


@dataclass(frozen=True, slots=True)
class _Jacobian:
    """How what must be zero changes with the point: a product in two variables, an inequality in any."""

    program: ConvexProgram
    slope: Vector
    """Of each product in z[right]; in z[left] it is -1."""

    @classmethod
    def at_point(cls, program: ConvexProgram, point: Vector) -> _Jacobian:
        return cls(program, -program.least / point[program.right] ** 2)

    def times(self, step: Vector) -> Vector:
        program = self.program
        return np.concatenate([self.slope * step[program.right] - step[program.left], multiply(program.rows, step)])

    def transposed_times(self, charged: Vector) -> Vector:
        program, count, size = self.program, len(self.slope), len(self.program.cost)
        gathered = np.bincount(program.right, self.slope * charged[:count], size) + multiply(
            program.rows.T, charged[count:]
        )
        total: Vector = gathered - np.bincount(program.left, charged[:count], size)
        return total

    def squared(self, ratio: Vector) -> Matrix:
        """Return the sum of the outer products of all rows, each times its *ratio*."""
        program, count, size = self.program, len(self.slope), len(self.program.cost)
        rows_left, rows_right, product_ratio = program.left, program.right, ratio[:count]
        positions = np.concatenate(
            [
                rows_left * size + rows_left,
                rows_right * size + rows_right,
                rows_left * size + rows_right,
                rows_right * size + rows_left,
            ]
        )
        entries = np.concatenate(
            [product_ratio, product_ratio * self.slope**2, -product_ratio * self.slope, -product_ratio * self.slope]
        )
        products = np.bincount(positions, entries, size * size).reshape(size, size)
        total: Matrix = products + multiply(program.rows.T, program.rows * ratio[count:, None])
        return total


class _Newton:
    """The equations of one step, which two right-hand sides share."""

    def __init__(self, program: ConvexProgram, state: _State, jacobian: _Jacobian) -> None:
        self.state, self.jacobian, self.size = state, jacobian, len(state.point)
        self.ratio = state.charged / state.room
        bent = (
            2.0
            * program.least
            / (state.point[program.right] * state.point[program.right] ** 2)
            * state.charged[: len(program.least)]
        )
        matrix = jacobian.squared(self.ratio)
        matrix[np.diag_indices(self.size)] += np.bincount(program.right, bent, self.size)
        # Variables differ by many orders: scaled to a curvature of one, they keep their digits.
        self.unit = 1.0 / np.sqrt(np.diagonal(matrix))
        rows = program.equal * self.unit
        self.norm = np.linalg.norm(rows, axis=1)
        rows = rows / self.norm[:, None]
        system = np.zeros((self.size + len(rows), self.size + len(rows)))
        system[: self.size, : self.size] = matrix * self.unit[:, None] * self.unit
        system[self.size :, : self.size], system[: self.size, self.size :] = rows, rows.T
        self.factors = factorize(system)

    def step(
        self, dual: Vector, short: Vector, equal: Vector, product: Vector
    ) -> tuple[Vector, Vector, Vector, Vector]:
        """Return how point, room and multipliers move so that all of these become zero."""
        state = self.state
        right = -dual - self.jacobian.transposed_times(self.ratio * short - product / state.room)
        right = np.append(right * self.unit, -equal / self.norm)
        solved = self.factors.solve(right)
        point = solved[: self.size] * self.unit
        room = -short - self.jacobian.times(point)
        charged = -(product + state.charged * room) / state.room
        return point, room, charged, solved[self.size :] / self.norm
