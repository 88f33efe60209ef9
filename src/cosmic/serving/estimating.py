"""The closed form over many deployments, in whatever groups they come, and one of them in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.design.batch import Batch, batch_of
from cosmic.design.point import DesignPoint
from cosmic.metrics import Infeasible
from cosmic.serving.closed_form import capacity, estimate
from cosmic.serving.costs import with_costs
from cosmic.serving.deployment import Deployment, deployment_of, deployments_of
from cosmic.serving.evaluating import evaluate_served
from cosmic.serving.outcome import Percentiles, ServingMetrics
from cosmic.serving.rules import within_context

Flags = npt.NDArray[np.bool_]
BORNE = 0.98
"""Share of the requests of an open loop that must come out: with less, the queue grows without end."""
CROWD = 2000
"""Requests in flight for an accelerator, of a deployment that is never idle."""


@dataclass(frozen=True)
class Estimates:
    """What many deployments achieve."""

    metrics: ServingMetrics
    """Arrays; NaN where a deployment does not run."""
    runs: Flags
    """Which have memory for weights and a request, and bear their load."""

    def at(self, place: int) -> ServingMetrics:
        """Return the metrics of one of them."""
        return plain(_of_leaves({name: np.ravel(value)[place] for name, value in _leaves(self.metrics)}))


def estimates(batch: Batch) -> Estimates:
    """Return what each deployment of *batch* achieves. Of their network only its kind counts, not how much of it."""
    columns: dict[str, Any] = {}
    runs = np.zeros(batch.size, dtype=bool)
    for rows, deployment in deployments_of(batch):
        places = np.flatnonzero(_valid(deployment, len(rows)))
        if not len(places):
            continue
        some = deployment if len(places) == len(rows) else deployment.take(places)
        found = dict(_leaves(with_costs(estimate(some), some)))
        kept = rows[places]
        for name, value in found.items():
            column = columns.setdefault(name, np.full(batch.size, np.nan))
            column[kept] = np.nan if value is None else value
        runs[kept] = np.isfinite(columns["ttft.mean_s"][kept]) & np.isfinite(columns["e2e.mean_s"][kept])
        runs[kept] &= columns["requests_per_s"][kept] >= BORNE * _asked(some)
    if not columns:
        columns = {name: np.full(batch.size, np.nan) for name in PLAIN}
    return Estimates(_of_leaves(columns), runs)


def estimated(design: DesignPoint) -> ServingMetrics | Infeasible:
    """Return what one design with a load achieves in closed form, or why it cannot run."""
    found = estimates(batch_of(design))
    if found.runs[0]:
        return found.at(0)
    rate = design.serving.load.rate if design.serving else None
    most = _most_requests_per_s(design) if rate is not None else 0.0
    if rate is not None and most > 0:
        return Infeasible((f"{rate:,.4g} requests/s are more than the {most:,.3g} that it bears",))
    outcome = evaluate_served(design)
    if isinstance(outcome, Infeasible):
        return outcome
    return Infeasible(("its numbers are too large or too small to compute with",))


def _asked(deployment: Deployment) -> Any:
    """Return the requests a second of an open loop; 0 of a closed one."""
    rate = deployment.batch["serving.load.rate"]
    return 0.0 if rate is None else np.asarray(rate, dtype=float)


def _most_requests_per_s(design: DesignPoint) -> float:
    """Return the requests a second that a design can serve; 0 if it cannot run at all."""
    assert design.serving is not None  # noqa: S101  only such designs come here
    load = replace(design.serving.load, rate=None, concurrency=int(CROWD * design.network.npus))
    found = estimates(batch_of(replace(design, serving=replace(design.serving, load=load))))
    if not found.runs[0]:
        return 0.0
    deployment = deployment_of(design)
    most = found.metrics.requests_per_s if deployment.prefill else capacity(deployment)
    return float(np.ravel(most)[0])


def _valid(deployment: Deployment, size: int) -> Flags:
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


# ------------------------------------------------------------------------------------------------------- leaves

TIMES = ("ttft", "tpot", "e2e")
OPEN = ("goodput_per_s", "within_slo", "usd_per_million_tokens", "j_per_million_tokens")
"""Metrics that may be unknown."""
PLAIN = (
    *(f"{name}.{each}" for name in TIMES for each in Percentiles.__slots__),
    *("requests_per_s", "output_tokens_per_s", "tokens_per_s_per_npu", "tokens_per_s_per_user", *OPEN),
    *("running", "waiting", "kv_use", "prefill_share"),
)


def plain(metrics: ServingMetrics) -> ServingMetrics:
    """Return the metrics of one deployment as numbers; None where one is unknown."""
    values = {name: np.nan if value is None else float(np.ravel(value)[0]) for name, value in _leaves(metrics)}
    return _of_leaves({name: None if name in OPEN and np.isnan(value) else value for name, value in values.items()})


def _leaves(metrics: ServingMetrics) -> Iterator[tuple[str, Any]]:
    for name in ServingMetrics.__slots__:
        value = getattr(metrics, name)
        if isinstance(value, Percentiles):
            yield from ((f"{name}.{each}", getattr(value, each)) for each in Percentiles.__slots__)
        elif isinstance(value, Mapping):
            yield from ((f"{name}.{each}", part) for each, part in value.items())
        else:
            yield name, value


def _of_leaves(columns: Mapping[str, Any]) -> ServingMetrics:
    found: dict[str, Any] = {}
    for name, value in columns.items():
        outer, dot, each = name.partition(".")
        if dot:
            found.setdefault(outer, {})[each] = value
        else:
            found[name] = value
    return ServingMetrics(**{**found, **{name: Percentiles(**found[name]) for name in TIMES}})
