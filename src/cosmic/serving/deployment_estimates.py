"""The closed form over many deployments, in whatever groups they come, and one of them in words; and what tokens cost.

Dollars and joules of tokens are what pools cost to own and what they draw, over the tokens that come out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.cluster.cluster_cost import cluster_cost, owned_cluster_usd_per_s
from cosmic.design.design_batch import Batch, batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.serving.closed_form import deployment_capacity, estimate_deployment
from cosmic.serving.deployment import Deployment, deployment_of, deployments_of, within_context
from cosmic.serving.served_evaluation import evaluate_served
from cosmic.serving.serving_metrics import Percentiles, ServingMetrics
from cosmic.simulate.metrics import Infeasible

# ---- Dollars and joules of tokens: what pools cost to own and what they draw, over the tokens that come out

MILLION = 1e6


def add_token_costs(metrics: ServingMetrics, deployment: Deployment) -> ServingMetrics:
    """Return *metrics* with dollars and joules of a million output tokens: of the machine that all pools share.

    A prefill pool on a system of its own is a machine beside it. Accelerators and network at full power, whether they
    are busy or not. Unknown prices and powers are NaN.
    """
    usd_per_s: Any = 0.0
    watts: Any = 0.0
    for machine in _deployment_machines(deployment):
        cost = cluster_cost(machine)
        owned, power = owned_cluster_usd_per_s(machine, cost, cost.power_w), cost.power_w
        usd_per_s = usd_per_s + owned
        watts = watts + power
    seconds = MILLION / np.asarray(metrics.output_tokens_per_s, dtype=float)
    return replace(metrics, usd_per_million_tokens=usd_per_s * seconds, j_per_million_tokens=watts * seconds)


def _deployment_machines(deployment: Deployment) -> list[Batch]:
    """Return the machines of a deployment: the design's, and that of a prefill pool with a system of its own."""
    serving = deployment.batch.base.serving
    has_own_system = serving is not None and serving.prefill is not None and serving.prefill.system is not None
    prefill_machines = [deployment.prefill.batch] if deployment.prefill is not None and has_own_system else []
    return [deployment.batch, *prefill_machines]


Flags = npt.NDArray[np.bool_]
BORNE_SHARE = 0.98
"""Share of the requests of an open loop that must come out: with less, the queue grows without end."""
CROWD_CLIENTS = 2000
"""Requests in flight for an accelerator, of a deployment that is never idle."""


@dataclass(frozen=True)
class DeploymentEstimates:
    """What many deployments achieve."""

    metrics: ServingMetrics
    """Arrays; NaN where a deployment does not run."""
    runs: Flags
    """Which have memory for weights and a request, and bear their load."""

    def metrics_at(self, row: int) -> ServingMetrics:
        """Return the metrics of one of them."""
        return plain_metrics(
            _metrics_of_leaves({name: np.ravel(value)[row] for name, value in _metric_leaves(self.metrics)})
        )


def estimate_deployments(batch: Batch) -> DeploymentEstimates:
    """Return what each deployment of *batch* achieves. Of their network only its kind counts, not how much of it."""
    columns: dict[str, Any] = {}
    runs = np.zeros(batch.size, dtype=bool)
    for rows, deployment in deployments_of(batch):
        valid = np.flatnonzero(_valid_deployments(deployment, len(rows)))
        if not len(valid):
            continue
        valid_deployment = deployment if len(valid) == len(rows) else deployment.select_rows(valid)
        leaves = dict(_metric_leaves(add_token_costs(estimate_deployment(valid_deployment), valid_deployment)))
        valid_rows = rows[valid]
        for name, value in leaves.items():
            column = columns.setdefault(name, np.full(batch.size, np.nan))
            column[valid_rows] = np.nan if value is None else value
        runs[valid_rows] = np.isfinite(columns["ttft.mean_s"][valid_rows]) & np.isfinite(
            columns["e2e.mean_s"][valid_rows]
        )
        runs[valid_rows] &= columns["requests_per_s"][valid_rows] >= BORNE_SHARE * _asked_requests_per_s(
            valid_deployment
        )
    if not columns:
        columns = {name: np.full(batch.size, np.nan) for name in PLAIN}
    return DeploymentEstimates(_metrics_of_leaves(columns), runs)


def estimate_design(design: DesignPoint) -> ServingMetrics | Infeasible:
    """Return what one design with a load achieves in closed form, or why it cannot run."""
    estimates = estimate_deployments(batch_of(design))
    if estimates.runs[0]:
        return estimates.metrics_at(0)
    rate = design.serving.load.rate if design.serving else None
    most_per_s = _most_requests_per_s(design) if rate is not None else 0.0
    if rate is not None and most_per_s > 0:
        return Infeasible((f"{rate:,.4g} requests/s are more than the {most_per_s:,.3g} that it bears",))
    outcome = evaluate_served(design)
    if isinstance(outcome, Infeasible):
        return outcome
    return Infeasible(("its numbers are too large or too small to compute with",))


def _asked_requests_per_s(deployment: Deployment) -> Any:
    """Return the requests a second of an open loop; 0 of a closed one."""
    rate = deployment.batch["serving.load.rate"]
    return 0.0 if rate is None else np.asarray(rate, dtype=float)


def _most_requests_per_s(design: DesignPoint) -> float:
    """Return the requests a second that a design can serve; 0 if it cannot run at all."""
    assert design.serving is not None  # noqa: S101  only such designs come here
    load = replace(design.serving.load, rate=None, concurrency=int(CROWD_CLIENTS * design.network.npus))
    estimates = estimate_deployments(batch_of(replace(design, serving=replace(design.serving, load=load))))
    if not estimates.runs[0]:
        return 0.0
    deployment = deployment_of(design)
    most_per_s = estimates.metrics.requests_per_s if deployment.prefill else deployment_capacity(deployment)
    return float(np.ravel(most_per_s)[0])


def _valid_deployments(deployment: Deployment, size: int) -> Flags:
    """Return which deployments have valid mappings, and memory for a request."""
    valid = np.broadcast_to(within_context(deployment.batch), (size,)).copy()
    for pool in (deployment.pool, deployment.prefill):
        if pool is None:
            continue
        filling = pool is deployment.prefill
        tokens = np.asarray(deployment.mean("isl") + (0 if filling else deployment.mean("osl")), dtype=float)
        outcome = pool.price.outcome("prefill" if filling else "decode", 1, np.ceil(tokens))
        valid &= (outcome.excess == 0) & (np.asarray(pool.batch["workload.dp"]) % pool.ranks == 0)
    return valid


# ---- leaves

TIMES = ("ttft", "tpot", "e2e")
OPEN = ("goodput_per_s", "within_slo", "usd_per_million_tokens", "j_per_million_tokens")
"""Metrics that may be unknown."""
PLAIN = (
    *(f"{name}.{slot}" for name in TIMES for slot in Percentiles.__slots__),
    *("requests_per_s", "output_tokens_per_s", "tokens_per_s_per_npu", "tokens_per_s_per_user", *OPEN),
    *("running", "waiting", "kv_use", "prefill_share"),
)


def plain_metrics(metrics: ServingMetrics) -> ServingMetrics:
    """Return the metrics of one deployment as numbers; None where one is unknown."""
    values = {name: np.nan if value is None else float(np.ravel(value)[0]) for name, value in _metric_leaves(metrics)}
    return _metrics_of_leaves(
        {name: None if name in OPEN and np.isnan(value) else value for name, value in values.items()}
    )


def _metric_leaves(metrics: ServingMetrics) -> Iterator[tuple[str, Any]]:
    for name in ServingMetrics.__slots__:
        value = getattr(metrics, name)
        if isinstance(value, Percentiles):
            yield from ((f"{name}.{slot}", getattr(value, slot)) for slot in Percentiles.__slots__)
        elif isinstance(value, Mapping):
            yield from ((f"{name}.{key}", part) for key, part in value.items())
        else:
            yield name, value


def _metrics_of_leaves(columns: Mapping[str, Any]) -> ServingMetrics:
    metrics: dict[str, Any] = {}
    for name, value in columns.items():
        outer, dot, key = name.partition(".")
        if dot:
            metrics.setdefault(outer, {})[key] = value
        else:
            metrics[name] = value
    return ServingMetrics(**{**metrics, **{name: Percentiles(**metrics[name]) for name in TIMES}})
