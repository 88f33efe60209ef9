"""Dollars and joules of tokens: what pools cost to own and what they draw, over the tokens that come out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from cosmic.design.batch import Batch
from cosmic.pricing.clusters import cluster_cost, owned_per_s
from cosmic.serving.deployment import Deployment
from cosmic.serving.outcome import ServingMetrics

MILLION = 1e6


def with_costs(metrics: ServingMetrics, deployment: Deployment) -> ServingMetrics:
    """Return *metrics* with dollars and joules of a million output tokens: of the machine that all pools share.

    A prefill pool on a system of its own is a machine beside it. Accelerators and network at full power, whether they
    are busy or not. Unknown prices and powers are NaN.
    """
    usd_per_s: Any = 0.0
    watts: Any = 0.0
    for machine in _machines(deployment):
        owned, power = _machine(machine)
        usd_per_s = usd_per_s + owned
        watts = watts + power
    seconds = MILLION / np.asarray(metrics.output_tokens_per_s, dtype=float)
    return replace(metrics, usd_per_million_tokens=usd_per_s * seconds, j_per_million_tokens=watts * seconds)


def _machines(deployment: Deployment) -> list[Batch]:
    """Return the machines of a deployment: the design's, and that of a prefill pool with a system of its own."""
    serving = deployment.batch.base.serving
    apart = serving is not None and serving.prefill is not None and serving.prefill.system is not None
    own = [deployment.prefill.batch] if deployment.prefill is not None and apart else []
    return [deployment.batch, *own]


def _machine(batch: Batch) -> tuple[Any, Any]:
    """Return the dollars a second of owning a machine, and the power that it draws: at its rated power."""
    cost = cluster_cost(batch)
    return owned_per_s(batch, cost, cost.power_w), cost.power_w
