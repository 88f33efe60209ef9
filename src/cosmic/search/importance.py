"""Which parameters matter for an objective, by the trials of a search.

Two shares of the variance of the objective over the trials that can run; of its logarithm where it is positive, since
designs differ by factors.

*alone*: what the value of the parameter explains by itself. Between the means of its values there is a part of the sum
of squares; what as many values would explain by chance is taken off (Kelley's epsilon squared, an unbiased form of eta
squared). It needs no library.

*total*: what is lost when the parameter is drawn anew and all else is kept, so with everything it does together with
others (Sobol's total effect by Jansen's estimator: half the mean square of the change). The change is that of a random
forest fitted to the trials, and needs scikit-learn.

Both are about the trials there are. An agent that converges tries good values more often and combines them with each
other, so that what it has settled varies little and appears to matter less; a study of random trials has no such bias.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from cosmic.base.errors import SpecError, require
from cosmic.base.json_types import Keywords, Share, unit
from cosmic.search.agent import Floats
from cosmic.search.objectives import check_objectives
from cosmic.search.optional_libraries import import_optional
from cosmic.search.problem import Problem
from cosmic.search.space.diagram import Indices
from cosmic.search.space.parameters import Parameter
from cosmic.search.trials import Trials
from cosmic.simulate.user_engines import metrics_of

MIN_TRIALS = 3
"""Fewer trials have no shares."""
MAX_FOREST_TRIALS = 3000
"""How many trials a forest is fitted to at most; of more, so many are drawn."""
TREES = 64
MIN_FIT = 0.5
"""Totals of a forest that predicts less of the variance are not to be trusted."""
SAME_SHARE = 1e-12
"""Objectives that differ by less, relative to their size, are the same."""


@dataclass(frozen=True, slots=True)
class Factor:
    """How much one parameter matters."""

    name: str
    """The parameter; or a field, where a parameter sets several."""
    values: int
    """How many different values the trials have."""
    alone: Share | None
    """The share of the variance that it explains by itself; None where most trials have a value of their own."""
    total: Share | None
    """The share that is lost without it, with all interactions; None without scikit-learn, and for a field."""
    of: str | None = None
    """The parameter that sets this field together with others."""


@dataclass(frozen=True, slots=True)
class Importance:
    """Which parameters of a search matter for an objective."""

    objective: str
    """The metric whose variance is shared out."""
    trials: Annotated[int, Keywords(minimum=MIN_TRIALS)]
    """Trials that can run and have the metric."""
    logarithm: bool
    """Whether it is the variance of the logarithm, as for metrics that are positive."""
    deviation: Annotated[float, unit("that of the objective, or of its logarithm"), Keywords(minimum=0)]
    """The standard deviation that the parameters share in."""
    fit: Share | None
    """Share of the variance that the forest behind the totals predicts for trials it has not seen; None without
    scikit-learn."""  # below MIN_FIT, distrust totals
    factors: tuple[Factor, ...]
    """The parameters, the most important first; fields follow the parameter that sets them."""


def measure_importance(problem: Problem, trials: Trials, objective: str = "") -> Importance:
    """Return which parameters matter for *objective*; by default, for the first one of the search."""
    name = objective or problem.objectives[0]
    check_objectives([name], metrics_of(problem.engine))
    metric = trials.results.columns[name]
    indices = np.flatnonzero(trials.results.feasible & ~np.isnan(metric))
    rule = f"only {len(indices):,} trials can run and have it; shares need at least {MIN_TRIALS}"
    require(len(indices) >= MIN_TRIALS, "objective", name, rule)
    values, rows = metric[indices], trials.points[indices].astype(np.intp)
    logarithm = bool((values > 0).all())
    target = np.log(values) if logarithm else values
    target = target - target.mean()
    scale = max(1.0, float(np.abs(np.log(values) if logarithm else values).max()))
    if float(np.abs(target).max()) <= SAME_SHARE * scale:
        target = np.zeros(len(target))
    parameters = problem.space.parameters
    totals, fit = _total_shares(parameters, rows, target)
    groups = [
        _measure_factors(parameter, rows[:, index], target, totals[index] if totals else None)
        for index, parameter in enumerate(parameters)
    ]
    trusted = fit is not None and fit >= MIN_FIT
    groups.sort(key=lambda group: -_sort_weight(group[0], trusted))
    return Importance(
        objective=name,
        trials=len(indices),
        logarithm=logarithm,
        deviation=float(target.std()),
        fit=fit,
        factors=tuple(factor for group in groups for factor in group),
    )


def _sort_weight(factor: Factor, trusted: bool = False) -> float:
    """Return what parameters are sorted by: the total if the forest is to be *trusted*."""
    return (factor.total if trusted else factor.alone) or 0.0


# ---- by itself


def _measure_factors(parameter: Parameter, chosen: Indices, target: Floats, total: float | None) -> list[Factor]:
    """Return how much a parameter matters, and each of the fields that it sets to different values."""
    count, share = _share_alone(chosen, target)
    parameter_factor = Factor(parameter.name, count, share, total)
    if "{" not in parameter.name:
        return [parameter_factor]
    fields = []
    for path, contents in zip(parameter.paths, zip(*parameter.values, strict=True), strict=True):
        count, share = _share_alone(_equal_codes(contents)[chosen], target)
        fields.append(Factor(path, count, share, None, parameter.name))
    return [parameter_factor, *sorted(fields, key=lambda factor: -_sort_weight(factor))]


def _equal_codes(values: tuple[Any, ...]) -> Indices:
    """Return for each value the place of the first that equals it."""
    first: dict[Any, int] = {}
    return np.array([first.setdefault(value, index) for index, value in enumerate(values)], dtype=np.intp)


def _share_alone(chosen: Indices, target: Floats) -> tuple[int, float | None]:
    """Return how many values there are, and what they explain of *target*, whose mean is 0.

    Two values with means 1 and -1, and as much again within each:

    >>> _share_alone(np.array([0, 0, 1, 1] * 50), np.array([2.0, 0.0, 0.0, -2.0] * 50))
    (2, 0.49747474747474746)
    """
    used, codes = np.unique(chosen, return_inverse=True)
    codes, count, n = codes.reshape(-1), len(used), len(target)
    total = float(np.square(target).sum())
    if total == 0 or count == 1:
        return count, 0.0
    if 2 * count > n:  # almost every trial has a value of its own: chance alone would explain all
        return count, None
    sums = np.bincount(codes, weights=target, minlength=count)
    # Sum of squares between the means of values: n_v mean_v², as the target has mean 0.
    between = float((np.square(sums) / np.bincount(codes, minlength=count)).sum())
    by_chance = (count - 1) * max(0.0, total - between) / (n - count)
    return count, min(1.0, max(0.0, (between - by_chance) / total))


# ---- with the others


def _total_shares(
    parameters: tuple[Parameter, ...], rows: Indices, target: Floats
) -> tuple[list[float] | None, float | None]:
    """Return the total share of each parameter and how well the forest predicts; None without scikit-learn."""
    try:
        forests = import_optional("sklearn.ensemble", "search", "importance")
        limits = import_optional("threadpoolctl", "search", "importance").threadpool_limits
    except SpecError:
        return None, None
    if not target.any():
        return [0.0] * len(parameters), None
    rng = np.random.default_rng(0)
    if len(rows) > MAX_FOREST_TRIALS:
        drawn = rng.choice(len(rows), MAX_FOREST_TRIALS, replace=False)
        rows, target = rows[drawn], target[drawn]
    groups = [_tree_features(parameter, rows[:, column]) for column, parameter in enumerate(parameters)]
    forest = forests.RandomForestRegressor(TREES, oob_score=True, random_state=0)
    with limits(1):
        forest.fit(np.hstack(groups), target)
        before = forest.predict(np.hstack(groups))
        variance = float(before.var())
        totals = []
        for index, group in enumerate(groups):
            moved = [*groups[:index], group[rng.permutation(len(rows))], *groups[index + 1 :]]
            change = forest.predict(np.hstack(moved)) - before if len(np.unique(rows[:, index])) > 1 else np.zeros(1)
            totals.append(min(1.0, float(np.square(change).mean()) / (2 * variance)) if variance > 0 else 0.0)
    return totals, float(forest.oob_score_)


def _tree_features(parameter: Parameter, chosen: Indices) -> npt.NDArray[np.float32]:
    """Return a parameter as trees take it: its numbers, or a column for each name that was tried."""
    if parameter.ordered:
        return np.array(parameter.values, dtype=np.float32)[chosen]
    return np.asarray(chosen[:, None] == np.unique(chosen), dtype=np.float32)
