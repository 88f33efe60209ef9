"""The metrics of a deployment under its load, which both engines give out: closed form and simulation.

Limits that users promise and ask for (`Slo`) are on them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from cosmic.base.errors import SpecError, require
from cosmic.base.json_types import Number, NumberOrNull, one_of, unit
from cosmic.base.units import SECONDS, format_quantity, read_quantity
from cosmic.design.serving_layer import Load

Floats = npt.NDArray[np.float64]
QUANTILES = {"p50_s": 50, "p95_s": 95, "p99_s": 99}
"""The percentiles that are stated, by the field that has them."""


@dataclass(frozen=True, slots=True)
class Percentiles:
    """A time that clients see, over requests."""

    # numbers, or arrays over a batch of deployments
    mean_s: NumberOrNull
    """Its mean over requests."""
    p50_s: NumberOrNull
    """Half of the requests are below."""
    p95_s: NumberOrNull
    """95 % of them are."""
    p99_s: NumberOrNull
    """99 % of them are."""

    @classmethod
    def from_sample(cls, seconds: npt.ArrayLike) -> Percentiles:
        """Return those of a sample.

        >>> Percentiles.from_sample([1.0, 2.0, 3.0]).p50_s
        2.0
        """
        values = np.asarray(seconds, dtype=float)
        if not values.size:
            return cls(np.nan, np.nan, np.nan, np.nan)
        return cls(
            float(values.mean()), *(float(quantile) for quantile in np.percentile(values, list(QUANTILES.values())))
        )

    @classmethod
    def around_mean(cls, samples: Floats, mean: Any) -> Percentiles:
        """Return those of *samples*, a column for each deployment, beside an exact *mean*; NaN where that is NaN.

        >>> Percentiles.around_mean(np.array([[1.0], [2.0], [3.0]]), np.array([2.5])).p50_s
        array([2.])
        """
        quantiles = np.percentile(samples, list(QUANTILES.values()), axis=0)
        return cls(mean, *(np.where(np.isnan(mean), np.nan, quantile) for quantile in quantiles))

    def at(self, statistic: str) -> Any:
        """Return one of them by its name: mean, p50, p95 or p99."""
        return getattr(self, f"{statistic}_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingMetrics:
    """What clients see, and what it costs."""

    # numbers, or arrays over a batch of deployments
    ttft: Percentiles
    """Time to first token."""
    tpot: Percentiles
    """Time per output token after the first, of each request its mean."""
    e2e: Percentiles
    """From a request's arrival to its last token."""
    requests_per_s: Number
    """Requests that end."""
    output_tokens_per_s: Number
    """Output tokens of all requests."""
    tokens_per_s_per_npu: Annotated[Number, unit("tokens/s")]
    """Output tokens, for each accelerator."""
    tokens_per_s_per_user: Annotated[NumberOrNull, unit("tokens/s")]
    """Output tokens of one request while it decodes; None where it has one token."""
    goodput_per_s: NumberOrNull = None
    """Requests within the limits; None where there are none."""
    within_slo: Annotated[NumberOrNull, unit("share")] = None
    """Share of requests within the limits; None where there are none."""
    running: Annotated[Number, unit("1")]
    """Requests that run at once."""
    waiting: Annotated[Number, unit("1")]
    """Requests that wait to be admitted."""
    utilisation: Mapping[str, Annotated[Number, unit("share")]] = field(default_factory=dict)
    """Share of time that each pool is busy: all, or prefill and decode."""
    kv_use: Annotated[Number, unit("share")]
    """Share of the KV cache in use."""
    prefill_share: Number
    """Share of the steps' time that prefills take."""
    usd_per_million_tokens: Annotated[NumberOrNull, unit("USD")] = None
    """To own and power the machine, for a million output tokens; None where price or power are not known."""
    j_per_million_tokens: Annotated[NumberOrNull, unit("J")] = None
    """Energy of a million output tokens; None where the power is not known."""
    decode_breakdown: Mapping[str, Annotated[Number, unit("s")]] = field(default_factory=dict)
    """A mean decode step by part."""
    ttft_breakdown: Mapping[str, Annotated[Number, unit("s")]] = field(default_factory=dict)
    """Mean TTFT by part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedLoad:
    """What a closed form finds of a load on a deployment, from which its metrics follow; arrays over a batch.

    NaN where weights leave no room for a request, or where requests come faster than they are served.
    """

    isl: Any
    """Mean tokens of a prompt."""
    osl: Any
    """Mean tokens of an answer."""
    ttft_s: Any
    """Means over requests."""
    tpot_s: Any
    ttft_samples_s: Floats
    """Of some requests, along the first axis."""
    tpot_samples_s: Floats
    e2e_samples_s: Floats
    own_s: Any = 0.0
    """What of TTFT grows with a request's own prompt."""
    requests_per_s: Any
    running: Any
    waiting: Any
    utilisation: Mapping[str, Any]
    kv_use: Any
    prefill_share: Any
    decode_breakdown: Mapping[str, Any]
    ttft_breakdown: Mapping[str, Any]

    @property
    def e2e_s(self) -> Any:
        """Mean from a request's arrival to its last token."""
        return self.ttft_s + np.maximum(self.osl - 1, 0.0) * self.tpot_s


# ---- Each number of them by its name

TIMES = ("ttft", "tpot", "e2e")
OPEN = ("goodput_per_s", "within_slo", "usd_per_million_tokens", "j_per_million_tokens")
"""Metrics that may be unknown."""
BY_PART = ("utilisation", "decode_breakdown", "ttft_breakdown")
TOTALS = ("requests_per_s", "output_tokens_per_s", "goodput_per_s", "running", "waiting")
"""Metrics of all instances together."""


PLAIN = (
    *(f"{name}.{slot}" for name in TIMES for slot in Percentiles.__slots__),
    *(name for name in ServingMetrics.__slots__ if name not in TIMES and name not in BY_PART),
)
"""The numbers that all deployments have, by name."""


def plain_metrics(metrics: ServingMetrics) -> ServingMetrics:
    """Return the metrics of one deployment as numbers; None where one is unknown."""
    values = {name: np.nan if value is None else float(np.ravel(value)[0]) for name, value in metric_leaves(metrics)}
    return metrics_of_leaves(
        {name: None if name in OPEN and np.isnan(value) else value for name, value in values.items()}
    )


def scale_metrics(metrics: ServingMetrics, times: float) -> ServingMetrics:
    """Return the metrics of so many times the instances under as many times the load; costs stay those of a token."""
    totals = {name: getattr(metrics, name) for name in TOTALS}
    return replace(metrics, **{name: value * times for name, value in totals.items() if value is not None})


def metric_leaves(metrics: ServingMetrics) -> Iterator[tuple[str, Any]]:
    """Yield every number of some metrics by a name of its own, such as ``ttft.p95_s``."""
    for name in ServingMetrics.__slots__:
        value = getattr(metrics, name)
        if isinstance(value, Percentiles):
            yield from ((f"{name}.{slot}", getattr(value, slot)) for slot in Percentiles.__slots__)
        elif isinstance(value, Mapping):
            yield from ((f"{name}.{key}", part) for key, part in value.items())
        else:
            yield name, value


def metrics_of_leaves(columns: Mapping[str, Any]) -> ServingMetrics:
    """Return the metrics with such numbers."""
    metrics: dict[str, Any] = {}
    for name, value in columns.items():
        outer, dot, key = name.partition(".")
        if dot:
            metrics.setdefault(outer, {})[key] = value
        else:
            metrics[name] = value
    return ServingMetrics(**{**metrics, **{name: Percentiles(**metrics[name]) for name in TIMES}})


# ---- Limits on times (``p95 <= 1 s``) and rates (``1000 req/s``), as users write them

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
    """A limit that was asked for, on a time that clients see."""

    metric: Annotated[str, one_of(*TIMES)]
    """What it is on."""
    statistic: Annotated[str, one_of(*STATISTICS)]
    """Which statistic over requests."""
    limit_s: float
    """The limit."""

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
    return sorted(by_metric.values(), key=lambda limit: TIMES.index(limit.metric))


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
