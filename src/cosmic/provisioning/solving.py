"""The best bandwidth of a problem, proven: one convex program for both objectives.

Times are sums of max over d of m_d / B_d, and of constants. With s = 1 the program is

    minimise   sum of w max(m_d / x_d, a / s)   over x = B, s > 0,   rows x ≤ limits s.

Time multiplied by cost, p·B, is not convex in B. But with u = B / cost and s = 1 / cost

    time(B) · p·B  =  sum of w max(m_d / u_d, a / s),   p·u = 1,   rows u ≤ limits s:

the same program, with p·u = 1 in place of s = 1. So both objectives, under any linear limits, have one optimum, and the
multipliers of its limits prove it: for weights λ that add up to w in every max, and multipliers ν of the rows,

    sum of w max(…)  ≥  sum over j of q_j / x_j + g_j x_j - ν·values  ≥  sum of 2 sqrt(q_j g_j) - ν·values

where q_j adds up λ m_j, and g_j what the rows charge for x_j.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cosmic.errors import SpecError, require
from cosmic.provisioning.barrier import Matrix, Program, Vector, follow
from cosmic.provisioning.certificate import Found, Model, Rows, Shape, solution_of
from cosmic.provisioning.primal_dual import optimum
from cosmic.provisioning.problem import Limit, Problem, Solution

INSIDE = 1e-9
"""The least room within all limits, relative to them, that counts as an interior; with less, limits are widened by so
much as they meet in a single point."""
ENDLESS, UNBOUNDED = 1e9, 1e6
"""How many times the bandwidth inside the limits counts as endless, and what is reached only on the way there."""
NOTHING = 1e-5
"""How little of it counts as none at all."""


def solve(problem: Problem) -> Solution:
    """Return the best bandwidth within the limits; a `SpecError` where there is none."""
    inside, rows = interior(problem)
    shape = Shape.of(problem)
    model = _program(problem, rows, shape, inside)
    program = model.program
    if np.any(program.cost):
        centre = optimum(program, model.start)
        point, products, multipliers = centre.point, centre.products, centre.inequalities
    else:  # nothing communicates: any bandwidth is as good
        point, products, multipliers = model.start, np.zeros(len(program.least)), np.zeros(len(program.limits))
    scaled = point[: problem.dims + 1] * model.unit
    _bounded(problem, scaled[:-1] / scaled[-1], inside)
    return solution_of(problem, rows, shape, model, Found(point, products, multipliers))


# ------------------------------------------------------------------------------------------------ limits as rows


def interior(problem: Problem) -> tuple[Vector, Rows]:
    """Return bandwidth well inside all limits, and the limits, widened where they leave a single point."""
    rows = Rows.of(problem)
    every, values = np.vstack([rows.rows, rows.equal]), np.concatenate([rows.limits, rows.values])
    largest = np.abs(every).max(axis=1, initial=0.0)
    require(bool(np.all(largest > 0)), "--limit", "", "says nothing of any bandwidth")
    unit = float(np.max(np.abs(values) / largest, initial=0.0)) or 1.0
    size, count = problem.dims, len(rows.limits)
    scale = largest * unit  # all rows about one, in units of the largest bandwidth that a limit names
    first = np.linalg.lstsq(every[count:] * unit / scale[count:, None], values[count:] / scale[count:], rcond=None)[0]
    misses = every[count:] @ first * unit - values[count:] if len(rows.values) else np.zeros(0)
    if np.any(np.abs(misses) > 1e-9 * scale[count:]):
        raise _infeasible([problem.limits[place] for place in rows.of_equal])
    inner = np.vstack([every[:count] * unit / scale[:count, None], -np.eye(size)])
    bounds = np.concatenate([values[:count] / scale[:count], np.zeros(size)])
    inner = np.vstack([np.hstack([inner, np.ones((count + size, 1))]), np.eye(1, size + 1, size)])
    bounds = np.append(bounds, 1.0)
    equal = np.hstack([every[count:] * unit / scale[count:, None], np.zeros((len(rows.values), 1))])
    room = float(np.min(bounds[:-1] - inner[:-1, :-1] @ first, initial=1.0)) - 1.0
    nothing = np.zeros(0, dtype=np.intp)
    cost = -np.eye(1, size + 1, size)[0]
    program = Program(cost, nothing, nothing, np.zeros(0), inner, bounds, equal, values[count:] / scale[count:])
    centre = follow(program, np.append(first, min(room, 0.5)), 1e-2, floor=INSIDE)
    found, room = centre.point[:-1] * unit, centre.point[-1]
    if room <= -INSIDE or np.any(found <= 0):
        charged = centre.inequalities[:count] > 1e-3
        meeting = [problem.limits[place] for place, each in zip(rows.of_rows, charged, strict=True) if each]
        raise _infeasible(meeting + [problem.limits[place] for place in rows.of_equal])
    if room > INSIDE or not count:
        return found, rows
    return found, replace(rows, limits=rows.limits + 2 * INSIDE * scale[:count])


def _infeasible(limits: list[Limit]) -> SpecError:
    first, *others = sorted(limits, key=lambda each: not each.budget)
    together = f" together with {' and '.join(each.text for each in others)}" if others else " by positive bandwidth"
    return SpecError("--budget" if first.budget else "--limit", first.text, f"cannot be met{together}")


def _bounded(problem: Problem, bandwidth: Vector, inside: Vector) -> None:
    """Refuse what is best without end: time with all the bandwidth there is, time for its cost with none."""
    if np.max(bandwidth / inside) > UNBOUNDED:
        place = int(np.argmax(bandwidth / inside))
        raise SpecError("--budget", "", f"nothing bounds the bandwidth of dimension {place}: state a budget")
    if problem.objective == "time_per_dollar" and np.max(bandwidth / inside) < NOTHING:
        rule = "time multiplied by cost is least without a network: say what is to be spent, such as '= 500 GB/s'"
        raise SpecError("--objective", problem.objective, rule)


# ------------------------------------------------------------------------------------------------ the program


def _reference(problem: Problem, inside: Vector) -> Vector:
    """Return the bandwidth inside the limits, and s, in the program's terms: the unit of each of its variables."""
    if problem.objective == "time":
        return np.append(inside, 1.0)
    return np.append(inside, 1.0) / problem.usd(inside)


def _program(problem: Problem, rows: Rows, shape: Shape, inside: Vector) -> Model:
    """Return the program over x and s, in units of a point inside, and over the times of kinds, groups and compute."""
    unit, dims = _reference(problem, inside), problem.dims
    kinds, groups = len(shape.traffic), len(shape.weights)
    compute = shape.compute_s / unit[-1] if problem.objective == "time_per_dollar" else 0.0
    size = dims + 1 + kinds + groups + (compute > 0)
    kind_at, group_at = dims + 1 + np.arange(kinds), dims + 1 + kinds + np.arange(groups)
    which, where = np.nonzero(shape.traffic)
    busy = np.flatnonzero(shape.hiding_s)
    sent = shape.traffic / unit[:-1]
    time = sent.max(axis=1, initial=0.0)  # of a byte of each kind at the reference
    hiding = shape.hiding_s / unit[-1]
    longest = np.maximum(shape.groups @ time, hiding)
    whole = float(shape.exposed @ time + shape.weights @ longest) + compute or 1.0
    left, right = [kind_at[which], group_at[busy]], [where, np.full(len(busy), dims)]
    least = [sent[which, where] / time[which], hiding[busy] / longest[busy]]
    cost = np.zeros(size)
    cost[kind_at], cost[group_at] = shape.exposed * time / whole, shape.weights * longest / whole
    start = np.concatenate([np.ones(dims + 1), np.full(kinds, 2.0), np.full(size - dims - 1 - kinds, 3.0)])
    if compute:
        left, right, least = [*left, np.array([size - 1])], [*right, np.array([dims])], [*least, np.ones(1)]
        cost[-1] = compute / whole
    upper, upper_size = _scaled(rows.rows, rows.limits, unit, size)
    equal, equal_size = _scaled(rows.equal, rows.values, unit, size)
    one = np.zeros((1, size))
    one[0, : dims + 1] = np.append(np.zeros(dims), 1.0) if problem.objective == "time" else _priced(problem, unit)
    beside = np.zeros((groups, size))
    beside[:, kind_at] = shape.groups * time / longest[:, None]
    beside[np.arange(groups), group_at] = -1.0
    # x is positive, and far from endless, so that what nothing bounds is found out instead of running away.
    inner = np.vstack([upper, beside, -np.eye(dims + 1, size), np.eye(dims, size)])
    program = Program(
        cost,
        np.concatenate(left).astype(np.intp),
        np.concatenate(right).astype(np.intp),
        np.concatenate(least),
        inner,
        np.concatenate([np.zeros(len(inner) - dims), np.full(dims, ENDLESS)]),
        np.vstack([equal, one]),
        np.append(np.zeros(len(equal)), 1.0),
    )
    return Model(program, start, unit, whole, kinds, groups, len(upper), np.concatenate([upper_size, equal_size]))


def _scaled(rows: Matrix, limits: Vector, unit: Vector, size: int) -> tuple[Matrix, Vector]:
    """Return rows x - limits s, each with a largest entry of one, and what they were divided by."""
    scaled = np.hstack([rows, -limits[:, None]]) * unit
    largest = np.abs(scaled).max(axis=1, initial=0.0)
    return np.hstack([scaled / largest[:, None], np.zeros((len(rows), size - len(unit)))]), largest


def _priced(problem: Problem, unit: Vector) -> Vector:
    return np.append(problem.usd_per_bytes_per_s, 0.0) * unit
