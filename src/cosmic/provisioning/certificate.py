"""What the solver's program is made of, and what its multipliers prove and price."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cosmic.provisioning.barrier import Matrix, Program, Vector
from cosmic.provisioning.problem import Binding, Limit, Load, Price, Problem, Solution, Traffic

TIED = 1e-4
"""Dimensions within this share of the slowest bind a collective together."""
FREE = 1e-6
"""A limit binds that is met with less than this share of its largest part to spare."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Limits as rows over bandwidth: inequalities, and equalities; each with its place among the limits."""

    rows: Matrix
    limits: Vector
    of_rows: tuple[int, ...]
    equal: Matrix
    values: Vector
    of_equal: tuple[int, ...]

    @classmethod
    def of(cls, problem: Problem) -> Rows:
        """Return the limits of *problem*."""
        upper = [place for place, each in enumerate(problem.limits) if each.sense != "=="]
        equal = [place for place, each in enumerate(problem.limits) if each.sense == "=="]
        signs = {"<=": 1.0, ">=": -1.0, "==": 1.0}

        def matrix(places: list[int]) -> tuple[Matrix, Vector]:
            chosen = [(signs[each.sense], each) for each in (problem.limits[place] for place in places)]
            rows = np.array([np.multiply(sign, each.coefficients) for sign, each in chosen])
            return rows.reshape(-1, problem.dims), np.array([sign * each.value for sign, each in chosen])

        return cls(*matrix(upper), tuple(upper), *matrix(equal), tuple(equal))


@dataclass(frozen=True, slots=True)
class Shape:
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
    def of(cls, problem: Problem) -> Shape:
        """Return the times of *problem*."""
        kinds: dict[tuple[float, ...], int] = {}
        exposed: dict[int, float] = {}
        groups: list[dict[int, float]] = []
        for load in problem.loads:
            for each in load.exposed:
                _add(exposed, kinds, each, load.weight)
            if _hides(load):
                groups.append({})
                for each in load.hidden:
                    _add(groups[-1], kinds, each, 1.0)
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


def _hides(load: Load) -> bool:
    """Return whether anything is sent beside compute."""
    return any(max(each.bytes_of_dims) * each.times > 0 for each in load.hidden)


def _add(found: dict[int, float], kinds: dict[tuple[float, ...], int], each: Traffic, weight: float) -> None:
    most = max(each.bytes_of_dims)
    if most * each.times * weight > 0:
        kind = kinds.setdefault(kind_of(each), len(kinds))
        found[kind] = found.get(kind, 0.0) + weight * each.times * most


@dataclass(frozen=True, slots=True)
class Model:
    """A program with the units of its variables: x and s, then times of kinds, of groups, and compute."""

    program: Program
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
class Found:
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


def solution_of(problem: Problem, rows: Rows, shape: Shape, model: Model, found: Found) -> Solution:
    """Return a point of the program as bandwidth, with the bound and the prices that its multipliers give."""
    duals = _duals(problem, model, found)
    inner = found.point[: problem.dims + 1] * model.unit
    bandwidth, per_usd = inner[:-1] / inner[-1], float(inner[-1])
    value = float(problem.value(bandwidth))
    outside = shape.compute_s if problem.objective == "time" else 0.0
    taken = duals.amounts[:-1] / found.point[: problem.dims] * model.whole * per_usd
    per_row = np.concatenate([duals.inequalities[: len(rows.limits)], duals.equalities[:-1]])
    worth = per_row * model.whole * per_usd / model.sizes
    prices = dict(zip((*rows.of_rows, *rows.of_equal), worth.tolist(), strict=True))
    return Solution(
        tuple(bandwidth.tolist()),
        float(problem.seconds(bandwidth)),
        float(problem.usd(bandwidth)),
        value,
        min(value, outside + model.whole * float(_bound(problem, model, duals))),
        tuple(Price(limit, prices[place], _binds(limit, bandwidth)) for place, limit in enumerate(problem.limits)),
        tuple((taken / bandwidth).tolist()),
        _bindings(problem, shape, duals, bandwidth),
    )


def _binds(limit: Limit, bandwidth: Vector) -> bool:
    size = float(np.abs(np.array(limit.coefficients) * bandwidth).max())
    return bool(limit.sense == "==" or limit.excess(bandwidth) > -FREE * size)


def _duals(problem: Problem, model: Model, found: Found) -> _Duals:
    """Return multipliers that keep to the rules of the bound, from those of the barrier, which nearly do."""
    program, dims = model.program, problem.dims
    upper = model.upper
    cost = program.cost[dims + 1 :]
    of_kinds, of_groups = cost[: model.kinds], cost[model.kinds : model.kinds + model.groups]
    beside = np.minimum(found.inequalities[upper : upper + model.groups], of_groups)
    timed = program.left - dims - 1
    hiding = (timed >= model.kinds) & (timed < model.kinds + model.groups)
    beside = np.where(np.isin(np.arange(model.groups), timed[hiding] - model.kinds), beside, of_groups)
    groups = program.rows[upper : upper + model.groups, dims + 1 : dims + 1 + model.kinds]
    wanted = np.concatenate([of_kinds + beside @ groups, of_groups - beside, cost[model.kinds + model.groups :]])
    summed = np.bincount(timed, found.products, len(wanted))
    share = np.divide(wanted, summed, out=np.zeros(len(wanted)), where=summed > 0)
    weights = found.products * share[timed]
    amounts: Vector = np.bincount(program.right, weights * program.least, dims + 1).astype(np.float64)
    matrix = np.zeros((model.kinds, dims))
    kinds = timed < model.kinds
    matrix[timed[kinds], program.right[kinds]] = weights[kinds]
    inequalities = found.inequalities[:upper]
    charged = inequalities @ program.rows[:upper, : dims + 1]
    place = found.point[: dims + 1]
    equal = program.equal[:, : dims + 1]
    # Stationary: q / x² = g. Multipliers of equalities follow from it; each x counts by what it carries.
    equalities: Vector = np.linalg.lstsq((equal * place).T, amounts / place - charged * place, rcond=None)[0].astype(
        np.float64
    )
    return _Duals(amounts, matrix, inequalities, equalities)


def _bound(problem: Problem, model: Model, duals: _Duals) -> float:
    """Return a lower bound of the program's objective that holds whatever the multipliers are: the best of a few.

    Where the rows charge less than nothing for a variable, by rounding, one of them that charges for it is raised.
    """
    dims, upper = problem.dims, model.upper
    rows = np.vstack([model.program.rows[:upper, : dims + 1], model.program.equal[:, : dims + 1]])
    charges = np.concatenate([duals.inequalities, duals.equalities])
    free = dims if problem.objective == "time" else dims + 1  # in time, s is 1
    best = max(0.0, _bound_of(rows, charges, duals.amounts, free))
    short = charges @ rows
    lacking = np.flatnonzero(short[:free] < 0)
    for place, row in enumerate(rows):
        if lacking.size and np.all(row[:free] >= 0) and np.all(row[lacking] > 0):
            raised = charges.copy()
            raised[place] += float(np.max(-short[lacking] / row[lacking])) * (1 + 1e-12)
            best = max(best, _bound_of(rows, raised, duals.amounts, free))
    return best


def _bound_of(rows: Matrix, charges: Vector, amounts: Vector, free: int) -> float:
    """Return the least value of amounts / x + charged x over the first *free* variables; s is 1 if it is not free."""
    charged = charges @ rows
    total = -float(charges[-1]) + float(np.sum(amounts[free:] + charged[free:]))
    most = _most(rows[:, :free], np.append(-rows[:-1, -1], 1.0), only_last=free == rows.shape[1])
    for amount, charge, end in zip(amounts[:free], charged[:free], most, strict=True):
        if charge >= 0 and amount <= charge * end**2:
            total += 2.0 * float(np.sqrt(amount * charge))
        else:  # the least is at the largest value there can be
            total += float(amount / end + charge * end) if np.isfinite(end) else -np.inf
    return total


def _most(rows: Matrix, limits: Vector, *, only_last: bool) -> Vector:
    """Return an upper bound of each variable, from single rows without negative entries."""
    most = np.full(rows.shape[1], np.inf)
    last = len(rows) - 1
    for place, (row, limit) in enumerate(zip(rows, limits, strict=True)):
        if np.all(row >= 0) and (not only_last or place == last):
            with np.errstate(divide="ignore"):
                most = np.minimum(most, np.divide(limit, row, out=np.full(len(row), np.inf), where=row > 0))
    return most


def _bindings(problem: Problem, shape: Shape, duals: _Duals, bandwidth: Vector) -> tuple[Binding, ...]:
    found: dict[tuple[str, str, tuple[float, ...]], Binding] = {}
    kinds = {tuple(row): place for place, row in enumerate(shape.traffic.tolist())}
    for load in problem.loads:
        for each in (*load.exposed, *load.hidden):
            if max(each.bytes_of_dims) > 0:
                key = kind_of(each)
                old = found.get((load.name, each.name, key))
                seconds = load.weight * float(each.seconds(bandwidth)) + (old.seconds if old else 0.0)
                weights = duals.of_kinds[kinds[key]]
                share = weights / weights.sum() if weights.sum() > 0 else weights
                times = np.divide(key, bandwidth)
                dims = tuple(np.flatnonzero(times >= (1 - TIED) * times.max()).tolist())
                found[load.name, each.name, key] = Binding(load.name, each.name, seconds, dims, tuple(share.tolist()))
    return tuple(found.values())


def kind_of(traffic: Traffic) -> tuple[float, ...]:
    """Return the bytes of each dimension relative to the largest: collectives of one kind are in proportion."""
    most = max(traffic.bytes_of_dims)
    return tuple(round(sent / most, 14) for sent in traffic.bytes_of_dims)
