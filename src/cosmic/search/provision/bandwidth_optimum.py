"""The best bandwidth of a problem, proven: one convex program for both objectives, its bound, prices and whole ports.

Times are sums of max over d of m_d / B_d, and of constants. With s = 1 the program is

    minimise   sum of w max(m_d / x_d, a / s)   over x = B, s > 0,   rows x ≤ limits s.

Time multiplied by cost, p·B, is not convex in B. But with u = B / cost and s = 1 / cost

    time(B) · p·B  =  sum of w max(m_d / u_d, a / s),   p·u = 1,   rows u ≤ limits s:

the same program, with p·u = 1 in place of s = 1. So both objectives, under any linear limits, have one optimum, and the
multipliers of its limits prove it: for weights λ that add up to w in every max, and multipliers ν of the rows,

    sum of w max(…)  ≥  sum over j of q_j / x_j + g_j x_j - ν·values  ≥  sum of 2 sqrt(q_j g_j) - ν·values

where q_j adds up λ m_j, and g_j what the rows charge for x_j. `find_whole_ports` takes the best of all whole numbers of
ports near the continuous optimum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cosmic.base import units
from cosmic.base.errors import SpecError, require
from cosmic.base.numeric import least_squares, multiply
from cosmic.design.network_layer import topologies
from cosmic.search.provision.bandwidth_problem import (
    BandwidthProblem,
    Binding,
    Limit,
    Price,
    Solution,
    Traffic,
    TrafficLoad,
)
from cosmic.search.provision.interior_point import ConvexProgram, Matrix, Vector, find_optimum, follow_central_path

# ---- What the solver's program is made of, and what its multipliers prove and price

TIE_SHARE = 1e-4
"""Dimensions within this share of the slowest bind a collective together."""
FREE_SHARE = 1e-6
"""A limit binds that is met with less than this share of its largest part to spare."""


@dataclass(frozen=True, slots=True)
class LimitRows:
    """Limits as rows over bandwidth: inequalities, and equalities; each with its place among the limits."""

    rows: Matrix
    limits: Vector
    of_rows: tuple[int, ...]
    equal: Matrix
    values: Vector
    of_equal: tuple[int, ...]

    @classmethod
    def from_problem(cls, problem: BandwidthProblem) -> LimitRows:
        """Return the limits of *problem*."""
        upper = [index for index, limit in enumerate(problem.limits) if limit.sense != "=="]
        equal = [index for index, limit in enumerate(problem.limits) if limit.sense == "=="]
        signs = {"<=": 1.0, ">=": -1.0, "==": 1.0}

        def matrix(indices: list[int]) -> tuple[Matrix, Vector]:
            chosen = [(signs[limit.sense], limit) for limit in (problem.limits[index] for index in indices)]
            rows = np.array([np.multiply(sign, limit.coefficients) for sign, limit in chosen])
            return rows.reshape(-1, problem.dims), np.array([sign * limit.value for sign, limit in chosen])

        return cls(*matrix(upper), tuple(upper), *matrix(equal), tuple(equal))


@dataclass(frozen=True, slots=True)
class GroupedTimes:
    """The times of a problem with what is alike put together.

    Collectives whose bytes are in proportion are one, as max is. A group is what runs beside compute: it takes as long
    as the longer of the two.
    """

    traffic: Matrix
    """Bytes by kind of collective and dimension, the largest entry of each being one."""
    exposed: Vector
    """Bytes of each kind in the open, weighted."""
    groups: Matrix
    """Bytes of each kind within each group."""
    hiding_s: Vector
    weights: Vector
    """Of each group."""
    compute_s: float

    @classmethod
    def from_problem(cls, problem: BandwidthProblem) -> GroupedTimes:
        """Return the times of *problem*."""
        kinds: dict[tuple[float, ...], int] = {}
        exposed: dict[int, float] = {}
        groups: list[dict[int, float]] = []
        for load in problem.loads:
            for traffic in load.exposed:
                _add_traffic(exposed, kinds, traffic, load.weight)
            if _hides(load):
                groups.append({})
                for traffic in load.hidden:
                    _add_traffic(groups[-1], kinds, traffic, 1.0)
        hiding = [load for load in problem.loads if _hides(load)]
        alone = sum(load.weight * load.hiding_s for load in problem.loads if not _hides(load))
        count = len(kinds)
        return cls(
            np.array(list(kinds)).reshape(count, problem.dims),
            np.array([exposed.get(kind, 0.0) for kind in range(count)]),
            np.array([[group.get(kind, 0.0) for kind in range(count)] for group in groups]).reshape(len(groups), count),
            np.array([load.hiding_s for load in hiding]),
            np.array([load.weight for load in hiding]),
            alone + sum(load.weight * load.compute_s for load in problem.loads),
        )


def _hides(load: TrafficLoad) -> bool:
    """Return whether anything is sent beside compute."""
    return any(max(traffic.bytes_of_dims) * traffic.times > 0 for traffic in load.hidden)


def _add_traffic(
    times_by_kind: dict[int, float], kinds: dict[tuple[float, ...], int], traffic: Traffic, weight: float
) -> None:
    most = max(traffic.bytes_of_dims)
    if most * traffic.times * weight > 0:
        kind = kinds.setdefault(relative_bytes(traffic), len(kinds))
        times_by_kind[kind] = times_by_kind.get(kind, 0.0) + weight * traffic.times * most


@dataclass(frozen=True, slots=True)
class UnitProgram:
    """A program with the units of its variables: x and s, then times of kinds, of groups, and compute."""

    program: ConvexProgram
    start: Vector
    unit: Vector
    """What x and s are multiplied by."""
    whole: float
    """What the program's objective is multiplied by."""
    kinds: int
    groups: int
    upper: int
    """Rows of the inequalities that are limits; they come first."""
    sizes: Vector
    """What the rows of the limits, and then the equalities, were divided by."""


@dataclass(frozen=True, slots=True)
class ProgramPoint:
    """A point of the program with multipliers of its products and inequalities."""

    point: Vector
    products: Vector
    inequalities: Vector


@dataclass(frozen=True, slots=True)
class _Duals:
    """Multipliers made consistent: those of one max add up to its weight exactly, so that they prove a bound."""

    amounts: Vector
    """q: of x and s, what is divided by them."""
    of_kinds: Matrix
    """λ by kind and dimension."""
    inequalities: Vector
    equalities: Vector


def read_solution(
    problem: BandwidthProblem, rows: LimitRows, shape: GroupedTimes, model: UnitProgram, optimum: ProgramPoint
) -> Solution:
    """Return a point of the program as bandwidth, with the bound and the prices that its multipliers give."""
    duals = _duals(problem, model, optimum)
    inner = optimum.point[: problem.dims + 1] * model.unit
    bandwidth, per_usd = inner[:-1] / inner[-1], float(inner[-1])
    value = float(problem.value(bandwidth))
    outside = shape.compute_s if problem.objective == "time" else 0.0
    traded_s = duals.amounts[:-1] / optimum.point[: problem.dims] * model.whole * per_usd
    per_row = np.concatenate([duals.inequalities[: len(rows.limits)], duals.equalities[:-1]])
    worth = per_row * model.whole * per_usd / model.sizes
    prices = dict(zip((*rows.of_rows, *rows.of_equal), worth.tolist(), strict=True))
    return Solution(
        tuple(bandwidth.tolist()),
        float(problem.seconds(bandwidth)),
        float(problem.usd(bandwidth)),
        value,
        min(value, outside + model.whole * float(_bound(problem, model, duals))),
        tuple(Price(limit, prices[index], _binds(limit, bandwidth)) for index, limit in enumerate(problem.limits)),
        tuple((traded_s / bandwidth).tolist()),
        _bindings(problem, shape, duals, bandwidth),
    )


def _binds(limit: Limit, bandwidth: Vector) -> bool:
    size = float(np.abs(np.array(limit.coefficients) * bandwidth).max())
    return bool(limit.sense == "==" or limit.excess(bandwidth) > -FREE_SHARE * size)


def _duals(problem: BandwidthProblem, model: UnitProgram, optimum: ProgramPoint) -> _Duals:
    """Return multipliers that keep to the rules of the bound, from those of the barrier, which nearly do."""
    program, dims = model.program, problem.dims
    upper = model.upper
    cost = program.cost[dims + 1 :]
    of_kinds, of_groups = cost[: model.kinds], cost[model.kinds : model.kinds + model.groups]
    beside = np.minimum(optimum.inequalities[upper : upper + model.groups], of_groups)
    timed = program.left - dims - 1
    hiding = (timed >= model.kinds) & (timed < model.kinds + model.groups)
    beside = np.where(np.isin(np.arange(model.groups), timed[hiding] - model.kinds), beside, of_groups)
    groups = program.rows[upper : upper + model.groups, dims + 1 : dims + 1 + model.kinds]
    weights_wanted = np.concatenate(
        [of_kinds + multiply(beside, groups), of_groups - beside, cost[model.kinds + model.groups :]]
    )
    summed = np.bincount(timed, optimum.products, len(weights_wanted))
    share = np.divide(weights_wanted, summed, out=np.zeros(len(weights_wanted)), where=summed > 0)
    weights = optimum.products * share[timed]
    amounts: Vector = np.bincount(program.right, weights * program.least, dims + 1).astype(np.float64)
    matrix = np.zeros((model.kinds, dims))
    kinds = timed < model.kinds
    matrix[timed[kinds], program.right[kinds]] = weights[kinds]
    inequalities = optimum.inequalities[:upper]
    charged = multiply(inequalities, program.rows[:upper, : dims + 1])
    variables = optimum.point[: dims + 1]
    equal = program.equal[:, : dims + 1]
    # Stationary: q / x² = g. Multipliers of equalities follow from it; each x counts by what it carries.
    equalities = least_squares((equal * variables).T, amounts / variables - charged * variables)
    return _Duals(amounts, matrix, inequalities, equalities)


def _bound(problem: BandwidthProblem, model: UnitProgram, duals: _Duals) -> float:
    """Return a lower bound of the program's objective that holds whatever the multipliers are: the best of a few.

    Where the rows charge less than nothing for a variable, by rounding, one of them that charges for it is raised.
    """
    dims, upper = problem.dims, model.upper
    rows = np.vstack([model.program.rows[:upper, : dims + 1], model.program.equal[:, : dims + 1]])
    charges = np.concatenate([duals.inequalities, duals.equalities])
    free = dims if problem.objective == "time" else dims + 1  # in time, s is 1
    best = max(0.0, _bound_of(rows, charges, duals.amounts, free))
    short = multiply(charges, rows)
    lacking = np.flatnonzero(short[:free] < 0)
    for index, row in enumerate(rows):
        if lacking.size and np.all(row[:free] >= 0) and np.all(row[lacking] > 0):
            raised = charges.copy()
            raised[index] += float(np.max(-short[lacking] / row[lacking])) * (1 + 1e-12)
            best = max(best, _bound_of(rows, raised, duals.amounts, free))
    return best


def _bound_of(rows: Matrix, charges: Vector, amounts: Vector, free: int) -> float:
    """Return the least value of amounts / x + charged x over the first *free* variables; s is 1 if it is not free."""
    charged = multiply(charges, rows)
    total = -float(charges[-1]) + float(np.sum(amounts[free:] + charged[free:]))
    most = _upper_bounds(rows[:, :free], np.append(-rows[:-1, -1], 1.0), only_last=free == rows.shape[1])
    for amount, charge, end in zip(amounts[:free], charged[:free], most, strict=True):
        if charge >= 0 and amount <= charge * end**2:
            total += 2.0 * float(np.sqrt(amount * charge))
        else:  # the least is at the largest value there can be
            total += float(amount / end + charge * end) if np.isfinite(end) else -np.inf
    return total


def _upper_bounds(rows: Matrix, limits: Vector, *, only_last: bool) -> Vector:
    """Return an upper bound of each variable, from single rows without negative entries."""
    most = np.full(rows.shape[1], np.inf)
    last_row = len(rows) - 1
    for index, (row, limit) in enumerate(zip(rows, limits, strict=True)):
        if np.all(row >= 0) and (not only_last or index == last_row):
            with np.errstate(divide="ignore"):
                most = np.minimum(most, np.divide(limit, row, out=np.full(len(row), np.inf), where=row > 0))
    return most


def _bindings(problem: BandwidthProblem, shape: GroupedTimes, duals: _Duals, bandwidth: Vector) -> tuple[Binding, ...]:
    bindings: dict[tuple[str, str, tuple[float, ...]], Binding] = {}
    kinds = {tuple(row): index for index, row in enumerate(shape.traffic.tolist())}
    for load in problem.loads:
        for traffic in (*load.exposed, *load.hidden):
            if max(traffic.bytes_of_dims) > 0:
                key = relative_bytes(traffic)
                old = bindings.get((load.name, traffic.name, key))
                seconds = load.weight * float(traffic.seconds(bandwidth)) + (old.seconds if old else 0.0)
                weights = duals.of_kinds[kinds[key]]
                share = weights / weights.sum() if weights.sum() > 0 else weights
                times = np.divide(key, bandwidth)
                dims = tuple(np.flatnonzero(times >= (1 - TIE_SHARE) * times.max()).tolist())
                bindings[load.name, traffic.name, key] = Binding(
                    load.name, traffic.name, seconds, dims, tuple(share.tolist())
                )
    return tuple(bindings.values())


def relative_bytes(traffic: Traffic) -> tuple[float, ...]:
    """Return the bytes of each dimension relative to the largest: collectives of one kind are in proportion."""
    most = max(traffic.bytes_of_dims)
    return tuple(round(sent / most, 14) for sent in traffic.bytes_of_dims)


# ---- Bandwidth in whole ports: the best of all whole numbers near the continuous optimum

MAX_ROUNDINGS = 60_000
"""Most combinations of ports that are tried."""
LIMIT_TOLERANCE = 1e-9
"""By what share of its largest part a limit may be missed, for rounding."""


def port_bandwidth(port: str, names: Sequence[str], npus: Sequence[int], radix: int | None) -> Vector:
    """Return the bandwidth of a dimension that one more port on each link of an NPU adds.

    An NPU has one link to a switch, two in a ring, one to each other NPU where all are connected. Each port of an NPU
    goes to a switch of its own, which so needs a port for every NPU of the dimension: *radix* of them at most.

    >>> port_bandwidth("50 GB/s", ["ring", "switch"], [4, 32], 64).tolist()
    [100000000000.0, 50000000000.0]
    """
    try:
        size = units.read_quantity(port, units.BYTES_PER_S)
    except SpecError as error:
        raise SpecError("--ports", port, error.rule) from None
    require(size > 0, "--ports", port, "must be positive")
    for index, (name, count) in enumerate(zip(names, npus, strict=True)):
        if radix is not None and topologies[name].switched:
            rule = f"dimension {index} joins {count} NPUs, more than a switch has ports"
            require(count <= radix, "--radix", radix, rule)
    return np.array(
        [size * max(1, int(topologies[name].links(count))) for name, count in zip(names, npus, strict=True)]
    )


def find_whole_ports(
    value: Callable[[Vector], Vector], limits: Sequence[Limit], optimum: Vector, step: Vector, port: str
) -> Vector:
    """Return the best bandwidth in whole *step*s near *optimum*, at least one in every dimension.

    A budget is spent as far as whole ports go: what is left is less than the cheapest of them.
    """
    dims = len(step)
    reach = max(1, int(MAX_ROUNDINGS ** (1 / dims) / 2))
    middle = np.floor(optimum / step)
    axes = [np.unique(np.maximum(1.0, middle[d] + np.arange(1 - reach, reach + 1))) for d in range(dims)]
    counts = np.stack([grid.ravel() for grid in np.meshgrid(*axes, indexing="ij")], axis=1)
    candidates = counts * step
    for limit in limits:
        candidates = candidates[_within_limit(limit, candidates, step)]
    rule = "no whole numbers of ports meet the budget and the limits near the best bandwidth"
    require(bool(len(candidates)), "--ports", port, rule)
    values = value(candidates)
    best = int(np.argmin(values))
    require(bool(np.isfinite(values[best])), "--ports", port, rule)
    chosen: Vector = candidates[best]
    return chosen


def _within_limit(limit: Limit, candidates: Vector, step: Vector) -> Vector:
    charged = np.array(limit.coefficients)
    size = np.maximum(np.abs(candidates * charged).max(axis=1), abs(limit.value))
    if limit.budget and limit.sense == "==":
        unspent = limit.value - multiply(candidates, charged)
        cheapest = float(np.min((charged * step)[charged > 0]))
        return np.asarray((unspent >= -LIMIT_TOLERANCE * size) & (unspent < cheapest * (1 - LIMIT_TOLERANCE)))
    return np.asarray(limit.excess(candidates) <= LIMIT_TOLERANCE * size)


MIN_INTERIOR = 1e-9
"""The least room within all limits, relative to them, that counts as an interior; with less, limits are widened by so
much as they meet in a single point."""
ENDLESS, UNBOUNDED = 1e9, 1e6
"""How many times the bandwidth inside the limits counts as endless, and what is reached only on the way there."""
VANISHING = 1e-5
"""How little of it counts as none at all."""


def solve_bandwidth(problem: BandwidthProblem) -> Solution:
    """Return the best bandwidth within the limits; a `SpecError` where there is none."""
    inside, rows = find_interior(problem)
    shape = GroupedTimes.from_problem(problem)
    model = _build_program(problem, rows, shape, inside)
    program = model.program
    if np.any(program.cost):
        centre = find_optimum(program, model.start)
        point, products, multipliers = centre.point, centre.products, centre.inequalities
    else:  # nothing communicates: any bandwidth is as good
        point, products, multipliers = model.start, np.zeros(len(program.least)), np.zeros(len(program.limits))
    scaled = point[: problem.dims + 1] * model.unit
    _check_bounded(problem, scaled[:-1] / scaled[-1], inside)
    return read_solution(problem, rows, shape, model, ProgramPoint(point, products, multipliers))


# ---- limits as rows


def find_interior(problem: BandwidthProblem) -> tuple[Vector, LimitRows]:
    """Return bandwidth well inside all limits, and the limits, widened where they leave a single point."""
    rows = LimitRows.from_problem(problem)
    all_rows, values = np.vstack([rows.rows, rows.equal]), np.concatenate([rows.limits, rows.values])
    largest = np.abs(all_rows).max(axis=1, initial=0.0)
    require(bool(np.all(largest > 0)), "--limit", "", "says nothing of any bandwidth")
    unit = float(np.max(np.abs(values) / largest, initial=0.0)) or 1.0
    size, count = problem.dims, len(rows.limits)
    scale = largest * unit  # all rows about one, in units of the largest bandwidth that a limit names
    first = least_squares(all_rows[count:] * unit / scale[count:, None], values[count:] / scale[count:])
    misses = multiply(all_rows[count:], first) * unit - values[count:] if len(rows.values) else np.zeros(0)
    if np.any(np.abs(misses) > 1e-9 * scale[count:]):
        raise _infeasible_error([problem.limits[index] for index in rows.of_equal])
    inner = np.vstack([all_rows[:count] * unit / scale[:count, None], -np.eye(size)])
    bounds = np.concatenate([values[:count] / scale[:count], np.zeros(size)])
    inner = np.vstack([np.hstack([inner, np.ones((count + size, 1))]), np.eye(1, size + 1, size)])
    bounds = np.append(bounds, 1.0)
    equal = np.hstack([all_rows[count:] * unit / scale[count:, None], np.zeros((len(rows.values), 1))])
    room = float(np.min(bounds[:-1] - multiply(inner[:-1, :-1], first), initial=1.0)) - 1.0
    nothing = np.zeros(0, dtype=np.intp)
    cost = -np.eye(1, size + 1, size)[0]
    program = ConvexProgram(cost, nothing, nothing, np.zeros(0), inner, bounds, equal, values[count:] / scale[count:])
    centre = follow_central_path(program, np.append(first, min(room, 0.5)), 1e-2, floor=MIN_INTERIOR)
    interior, room = centre.point[:-1] * unit, centre.point[-1]
    if room <= -MIN_INTERIOR or np.any(interior <= 0):
        charged = centre.inequalities[:count] > 1e-3
        meeting = [problem.limits[index] for index, is_charged in zip(rows.of_rows, charged, strict=True) if is_charged]
        raise _infeasible_error(meeting + [problem.limits[index] for index in rows.of_equal])
    if room > MIN_INTERIOR or not count:
        return interior, rows
    return interior, replace(rows, limits=rows.limits + 2 * MIN_INTERIOR * scale[:count])


def _infeasible_error(limits: list[Limit]) -> SpecError:
    first, *other_limits = sorted(limits, key=lambda limit: not limit.budget)
    together = (
        f" together with {' and '.join(other.text for other in other_limits)}"
        if other_limits
        else " by positive bandwidth"
    )
    return SpecError("--budget" if first.budget else "--limit", first.text, f"cannot be met{together}")


def _check_bounded(problem: BandwidthProblem, bandwidth: Vector, inside: Vector) -> None:
    """Refuse what is best without end: time with all the bandwidth there is, time for its cost with none."""
    if np.max(bandwidth / inside) > UNBOUNDED:
        dim = int(np.argmax(bandwidth / inside))
        raise SpecError("--budget", "", f"nothing bounds the bandwidth of dimension {dim}: state a budget")
    if problem.objective == "time_per_dollar" and np.max(bandwidth / inside) < VANISHING:
        rule = "time multiplied by cost is least without a network: say what is to be spent, such as '= 500 GB/s'"
        raise SpecError("--objective", problem.objective, rule)


# ---- the program


def _reference_point(problem: BandwidthProblem, inside: Vector) -> Vector:
    """Return the bandwidth inside the limits, and s, in the program's terms: the unit of each of its variables."""
    if problem.objective == "time":
        return np.append(inside, 1.0)
    return np.append(inside, 1.0) / problem.usd(inside)


def _build_program(problem: BandwidthProblem, rows: LimitRows, shape: GroupedTimes, inside: Vector) -> UnitProgram:
    """Return the program over x and s, in units of a point inside, and over the times of kinds, groups and compute."""
    unit, dims = _reference_point(problem, inside), problem.dims
    kinds, groups = len(shape.traffic), len(shape.weights)
    compute = shape.compute_s / unit[-1] if problem.objective == "time_per_dollar" else 0.0
    size = dims + 1 + kinds + groups + (compute > 0)
    kind_at, group_at = dims + 1 + np.arange(kinds), dims + 1 + kinds + np.arange(groups)
    which, where = np.nonzero(shape.traffic)
    busy = np.flatnonzero(shape.hiding_s)
    sent = shape.traffic / unit[:-1]
    time = sent.max(axis=1, initial=0.0)  # of a byte of each kind at the reference
    hiding = shape.hiding_s / unit[-1]
    longest = np.maximum(multiply(shape.groups, time), hiding)
    objective_unit = float(multiply(shape.exposed, time) + multiply(shape.weights, longest)) + compute or 1.0
    product_left, product_right = [kind_at[which], group_at[busy]], [where, np.full(len(busy), dims)]
    least = [sent[which, where] / time[which], hiding[busy] / longest[busy]]
    cost = np.zeros(size)
    cost[kind_at], cost[group_at] = shape.exposed * time / objective_unit, shape.weights * longest / objective_unit
    start = np.concatenate([np.ones(dims + 1), np.full(kinds, 2.0), np.full(size - dims - 1 - kinds, 3.0)])
    if compute:
        product_left, product_right, least = (
            [*product_left, np.array([size - 1])],
            [*product_right, np.array([dims])],
            [*least, np.ones(1)],
        )
        cost[-1] = compute / objective_unit
    upper, upper_size = _scale_rows(rows.rows, rows.limits, unit, size)
    equal, equal_size = _scale_rows(rows.equal, rows.values, unit, size)
    normalisation = np.zeros((1, size))
    normalisation[0, : dims + 1] = (
        np.append(np.zeros(dims), 1.0) if problem.objective == "time" else _price_limits(problem, unit)
    )
    beside = np.zeros((groups, size))
    beside[:, kind_at] = shape.groups * time / longest[:, None]
    beside[np.arange(groups), group_at] = -1.0
    # x is positive, and far from endless, so that what nothing bounds is found out instead of running away.
    inner = np.vstack([upper, beside, -np.eye(dims + 1, size), np.eye(dims, size)])
    program = ConvexProgram(
        cost,
        np.concatenate(product_left).astype(np.intp),
        np.concatenate(product_right).astype(np.intp),
        np.concatenate(least),
        inner,
        np.concatenate([np.zeros(len(inner) - dims), np.full(dims, ENDLESS)]),
        np.vstack([equal, normalisation]),
        np.append(np.zeros(len(equal)), 1.0),
    )
    return UnitProgram(
        program, start, unit, objective_unit, kinds, groups, len(upper), np.concatenate([upper_size, equal_size])
    )


def _scale_rows(rows: Matrix, limits: Vector, unit: Vector, size: int) -> tuple[Matrix, Vector]:
    """Return rows x - limits s, each with a largest entry of one, and what they were divided by."""
    scaled = np.hstack([rows, -limits[:, None]]) * unit
    largest = np.abs(scaled).max(axis=1, initial=0.0)
    return np.hstack([scaled / largest[:, None], np.zeros((len(rows), size - len(unit)))]), largest


def _price_limits(problem: BandwidthProblem, unit: Vector) -> Vector:
    return np.append(problem.usd_per_bytes_per_s, 0.0) * unit
