"""The metrics of a deployment under its load: the values that both engines, closed form and simulation, give out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

QUANTILES = {"p50_s": 50, "p95_s": 95, "p99_s": 99}
"""The percentiles that are stated, by the field that has them."""


@dataclass(frozen=True, slots=True)
class Percentiles:
    """How a time is distributed over requests; numbers, or arrays over a batch of deployments."""

    mean_s: Any
    p50_s: Any
    p95_s: Any
    p99_s: Any

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
    def around_mean(cls, samples: npt.NDArray[np.float64], mean: Any) -> Percentiles:
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
    """What clients see of a deployment, and what it costs. Numbers, or arrays over a batch of deployments."""

    ttft: Percentiles
    """Time to first token."""
    tpot: Percentiles
    """Time per output token after the first, of each request its mean."""
    e2e: Percentiles
    """From a request's arrival to its last token."""
    requests_per_s: Any
    output_tokens_per_s: Any
    tokens_per_s_per_npu: Any
    """Output tokens, for each accelerator of all pools."""
    tokens_per_s_per_user: Any
    """Output tokens that one request gains a second while it decodes."""
    goodput_per_s: Any = None
    """Requests a second within the limits of their class; None where no class has any."""
    within_slo: Any = None
    """Share of requests within the limits of their class; None where no class has any."""
    running: Any
    """Mean requests that run at once: prefilling or decoding."""
    waiting: Any
    """Mean requests that wait to be admitted."""
    utilisation: Mapping[str, Any] = field(default_factory=dict)
    """Share of time that each pool is busy: ``all``, or ``prefill`` and ``decode``."""
    kv_use: Any
    """Mean share of the KV cache that is in use; of the pool that decodes."""
    prefill_share: Any
    """Share of the steps' time that prefills take."""
    usd_per_million_tokens: Any = None
    """To own, for a million output tokens; None where price or power of the accelerator are not known."""
    j_per_million_tokens: Any = None
    """Energy of a million output tokens; None where the power is not known."""
    decode_breakdown: Mapping[str, Any] = field(default_factory=dict)
    """Seconds of a mean decode step by part: those of a step (gemm, attention, other, tp, ep, pp) and ``engine``."""
    ttft_breakdown: Mapping[str, Any] = field(default_factory=dict)
    """Mean seconds of TTFT by part: ``queueing``, ``prefill``, ``front_end``, and ``transfer`` between pools."""
