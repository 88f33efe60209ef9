"""What users promise and ask for, as they write it: limits on times (``p95 <= 1 s``) and rates (``1000 req/s``)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cosmic.base.errors import SpecError, require
from cosmic.base.units import SECONDS, format_quantity, read_quantity
from cosmic.design.serving_layer import Load
from cosmic.serving.serving_metrics import Percentiles, ServingMetrics

METRICS = ("ttft", "tpot", "e2e")
STATISTICS = ("mean", "p50", "p95", "p99")
USUAL_STATISTIC = "p95"
"""The statistic of a limit that names none."""
_LIMIT = re.compile(r"\s*(?:([A-Za-z]\w*)\s*(?:<=|≤|<)|(?:<=|≤|<))?\s*(.+?)\s*", re.DOTALL)
_RATE = re.compile(
    r"\s*(\d+(?:[.,]\d+)*(?:e[+-]?\d{1,2})?)\s*(?:(?:req|requests?|r)?\s*(?:/|per)\s*(s|sec|second|min|minute|h|hour)|(rps|qps))?\s*"
)
_SECONDS = {"s": 1, "sec": 1, "second": 1, "min": 60, "minute": 60, "h": 3600, "hour": 3600}
MOST_RATE = 1e9
"""Requests a second."""
MOST_S = 1e9
LONGEST_WAIT = 0.5
"""Share of a request's time that it may wait where nobody limits that."""


@dataclass(frozen=True, slots=True)
class Slo:
    """A limit on a time that clients see."""

    metric: str
    """``ttft``, ``tpot`` or ``e2e``."""
    statistic: str
    limit_s: float

    def __str__(self) -> str:
        """Return it as it can be written."""
        return f"{self.statistic} <= {format_quantity(self.limit_s, SECONDS)}"

    def value(self, metrics: ServingMetrics) -> Any:
        """Return what the limit is on; an array where the metrics are arrays."""
        times: Percentiles = getattr(metrics, self.metric)
        return times.at(self.statistic)

    def holds(self, metrics: ServingMetrics) -> Any:
        """Return whether it is kept; an array where the metrics are arrays. A single token has no TPOT to limit."""
        value = np.asarray(self.value(metrics), dtype=float)
        single = np.isnan(value) & np.isfinite(np.asarray(metrics.e2e.mean_s, dtype=float))
        within = (value <= self.limit_s) | (single & (self.metric == "tpot"))
        return bool(within) if within.ndim == 0 else within


def all_hold(metrics: ServingMetrics, limits: Sequence[Slo]) -> Any:
    """Return whether all limits are kept; an array where the metrics are arrays.

    Where none is on TTFT, or on all of the time, a request must not wait for longer than it is served: a deployment
    that is too small would hold a limit on TPOT alone by making its clients wait.
    """
    holding: Any = True
    if not any(limit.metric in ("ttft", "e2e") for limit in limits):
        waited = np.asarray(metrics.ttft_breakdown.get("queueing", 0.0), dtype=float)
        holding = waited <= LONGEST_WAIT * np.asarray(metrics.e2e.mean_s, dtype=float)
    for limit in limits:
        holding = holding & np.asarray(limit.holds(metrics))
    return holding


def shares_used(metrics: ServingMetrics, limits: Sequence[Slo]) -> list[Any]:
    """Return how much of each limit is used: 1 where it just holds. The last may be the wait, as in `all_hold`."""
    shares = [np.asarray(limit.value(metrics), dtype=float) / limit.limit_s for limit in limits]
    if not any(limit.metric in ("ttft", "e2e") for limit in limits):
        waited = np.asarray(metrics.ttft_breakdown.get("queueing", 0.0), dtype=float)
        shares.append(waited / (LONGEST_WAIT * np.asarray(metrics.e2e.mean_s, dtype=float)))
    return shares


def limits_of(load: Load, stated: Sequence[Slo] = ()) -> list[Slo]:
    """Return the limits that are *stated*, and those of a load's requests on other times: of 95 requests in 100.

    Of several classes of requests, the tightest limit counts.

    >>> [str(each) for each in limits_of(Load(isl=1, osl=1, rate=1, ttft_slo_s=2.0), [Slo("tpot", "p99", 0.03)])]
    ['p95 <= 2 s', 'p99 <= 30 ms']
    """
    by_metric = {limit.metric: limit for limit in stated}
    for metric in ("ttft", "tpot"):
        limits = [getattr(request_class, f"{metric}_slo_s") for request_class in load.all_classes]
        set_limits = [limit for limit in limits if limit is not None]
        if set_limits and metric not in by_metric:
            by_metric[metric] = Slo(metric, USUAL_STATISTIC, min(set_limits))
    return sorted(by_metric.values(), key=lambda limit: METRICS.index(limit.metric))


def read_slo(text: str, metric: str) -> Slo:
    """Return the limit on a *metric* that *text* states; without a statistic it is on the 95th percentile.

    >>> str(read_slo("p99 <= 1.5 s", "ttft")), str(read_slo("30 ms", "tpot")), str(read_slo("mean<2min", "e2e"))
    ('p99 <= 1.5 s', 'p95 <= 30 ms', 'mean <= 120 s')
    """
    where, rule = f"--{metric}", "write a limit on a time, such as 'p95 <= 1 s' or '30 ms'"
    match = _LIMIT.fullmatch(text)
    if match is None:
        raise SpecError(where, text, rule)
    statistic = (match[1] or USUAL_STATISTIC).lower()
    statistic = {"median": "p50", "average": "mean", "avg": "mean"}.get(statistic, statistic)
    require(statistic in STATISTICS, where, text, f"a limit is on the {', '.join(STATISTICS[:-1])} or {STATISTICS[-1]}")
    try:
        limit = read_quantity(match[2], SECONDS)
    except SpecError:
        raise SpecError(where, text, rule) from None
    require(0 < limit <= MOST_S, where, text, "must be a time above 0")
    return Slo(metric, statistic, limit)


def read_rate(text: str, where: str = "--rate") -> float:
    """Return requests a second.

    >>> read_rate("1,000 req/s"), read_rate("90 requests/min"), read_rate("10"), read_rate("5 qps")
    (1000.0, 1.5, 10.0, 5.0)
    """
    match = _RATE.fullmatch(text)
    if match is None:
        raise SpecError(where, text, "write requests a second, such as '10 req/s' or '600 req/min'")
    number = re.sub(r",(?=\d{3}(?:\D|$))", "", match[1])
    try:
        rate = float(number) / _SECONDS[match[2] or "s"]
    except ValueError:
        raise SpecError(where, text, "write requests a second, such as '10 req/s' or '600 req/min'") from None
    require(0 < rate <= MOST_RATE, where, text, f"must be above 0, and at most {MOST_RATE:,.0f} requests a second")
    return rate
