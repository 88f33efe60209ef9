"""Objectives to improve and limits to meet: both are about the metrics of evaluated designs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cosmic.base import units
from cosmic.base.errors import SpecError, UnknownName, require
from cosmic.simulate.metrics import BETTER
from cosmic.simulate.user_engines import direction

Floats = npt.NDArray[np.float64]
_LIMIT = re.compile(r"\s*(\w+)\s*([<>]=?)\s*([^\s=].*?)\s*")


def check_objectives(names: Sequence[str], metrics: Mapping[str, str] = BETTER) -> tuple[str, ...]:
    """Return *names* if each is one of the *metrics* metrics and none is there twice."""
    require(bool(names), "objective", list(names), "name at least one metric to improve")
    for name in names:
        if name not in metrics:
            raise UnknownName.among("objective", name, "objective", metrics)
        require(names.count(name) == 1, "objective", name, "is there twice")
    return tuple(names)


def loss(name: str, values: Floats) -> Floats:
    """Return a metric as a loss, less being better: the metric itself, or its inverse.

    >>> loss("step_s", np.array([2.0])), loss("tokens_per_s", np.array([2.0]))
    (array([2.]), array([0.5]))
    """
    if direction(name) == "less":
        return values
    with np.errstate(divide="ignore"):
        return np.asarray(1 / values)


def loss_ratio(least: float, larger: float) -> float:
    """Return how many times the loss *least* goes into *larger*: 1 for equal ones, infinite for 0 beside more.

    >>> loss_ratio(2.0, 5.0), loss_ratio(0.0, 0.0), loss_ratio(0.0, 5.0), loss_ratio(5.0, 0.0)
    (2.5, 1.0, inf, 0.0)
    """
    if least == larger:
        return 1.0
    return larger / least if least else float("inf")


def losses(names: Iterable[str], columns: Mapping[str, Floats]) -> Floats:
    """Return the losses of a batch of designs, a column for each objective."""
    return np.stack([loss(name, columns[name]) for name in names], axis=1)


@dataclass(frozen=True, slots=True)
class MetricLimit:
    """A bound on a metric: a design beyond it is infeasible."""

    text: str
    metric: str
    most: bool
    """Whether it is an upper bound."""
    bound: float

    def excess(self, values: Floats) -> Floats:
        """Return the share of the bound by which each value exceeds it; 0 for values within.

        >>> read_limit("memory_bytes <= 80 GB").excess(np.array([40e9, 100e9])).tolist()
        [0.0, 0.25]
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            beyond = values / self.bound - 1 if self.most else self.bound / values - 1
        return np.where(np.isnan(values), np.inf, np.where(beyond > 0, beyond, 0.0))


def read_limit(text: str, metrics: Mapping[str, str] = BETTER) -> MetricLimit:
    """Return the limit that *text* states: a metric, a comparison, and a number with or without its unit.

    >>> read_limit("ttft_s <= 500 ms").bound, read_limit("mfu >= 0.4").most
    (0.5, False)
    """
    match = _LIMIT.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise SpecError("constraint", text, "write METRIC <= VALUE, such as 'memory_bytes <= 80 GB'")
    metric, comparison, value = match.groups()
    if metric not in metrics:
        raise UnknownName.among("constraint", metric, "metric", metrics)
    bound = _read_bound(metric, value)
    require(0 < bound < np.inf, "constraint", text, "the bound must be a number above 0")
    shown = text if text.isprintable() else " ".join(text.split())  # it becomes a reason, which is one line
    return MetricLimit(shown, metric, comparison.startswith("<"), bound)


def _read_bound(metric: str, text: str) -> float:
    try:
        return float(text.replace("_", ""))
    except ValueError:
        pass
    if (count := units.read_count(text)) is not None:
        return count
    dimension = None if "_per_" in metric else units.split_name(metric)[1]
    if dimension is None:
        raise SpecError("constraint", text, f"{metric} is compared with a plain number")
    try:
        return units.read_quantity(text, dimension)
    except SpecError as error:
        raise SpecError(f"constraint on {metric}", text, error.rule) from None
