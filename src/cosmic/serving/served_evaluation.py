"""The metrics of designs under a load in closed form, as `cosmic.evaluation` gives them out: one design, or many.

    designs ──▶ deployments ──▶ rules, memory ──▶ estimate ──▶ TTFT, TPOT, tokens/s, dollars, joules

The closed form says what clients see; a decode step of the mean batch says what the accelerators do: memory, MFU.
Dollars and joules of tokens are what pools cost to own and what they draw, over the tokens that come out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.cluster.cluster_cost import cluster_cost, owned_cluster_usd_per_s
from cosmic.design.design_batch import Batch, batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.serving.closed_form import deployment_capacity, estimate_deployment
from cosmic.serving.deployment import (
    PREFILL,
    Deployment,
    Pool,
    broken_rules,
    deployment_of,
    deployment_reasons,
    deployments_of,
)
from cosmic.serving.serving_accuracy import tpot_expectation
from cosmic.serving.serving_metrics import (
    PLAIN,
    ServingMetrics,
    metric_leaves,
    metrics_of_leaves,
    plain_metrics,
)
from cosmic.simulate.analytic_step import BREAKDOWN
from cosmic.simulate.metrics import BETTER, OF_RUNS, OF_SAMPLES, BatchOutcome, Infeasible, Metrics, Outcome
from cosmic.simulate.step_evaluation import POSSIBLE, evaluate_step, unknown_metrics
from cosmic.step.accelerator_rates import peak_flop_per_s
from cosmic.step.device_memory import COMPONENTS
from cosmic.step.operator_work import model_flop_per_token
from cosmic.step.process_memory import fit_probability, used_range

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
ENGINE_PART = "engine"
"""The part of a step that an engine adds to kernels and collectives."""
STEP_PARTS = (*BREAKDOWN, ENGINE_PART)
COLUMNS = (*BETTER, *(f"memory.{name}" for name in COMPONENTS), *(f"breakdown.{name}" for name in STEP_PARTS))
NOT_MEASURED = "not measured: no run like this was simulated"
OVERLOAD = "rate"
"""The rule that requests are served as fast as they come."""
OF_NETWORK = ("pools", "ranks")
"""Rules of the number of accelerators."""
MILLION = 1e6
BORNE_SHARE = 0.98
"""Share of the requests of an open loop that must come out: with less, the queue grows without end."""
CROWD_CLIENTS = 2000
"""Requests in flight for an accelerator, of a deployment that is never idle."""
NO_ROOM = "cache"
"""The rule that a request's KV cache fits beside the weights and what the engine needs."""


def evaluate_served(point: DesignPoint) -> Outcome:
    """Return what a design achieves under its load in closed form, or why it cannot run."""
    if reasons := _broken_rule_sentences(point):
        return Infeasible(reasons)
    outcome = evaluate_served_batch(batch_of(point))
    if not outcome.feasible[0]:
        return Infeasible(_explain_failure(point, outcome))
    values = {name: float(column[0]) for name, column in outcome.columns.items()}
    return metrics_of_point(point, values)


def metrics_of_point(point: DesignPoint, values: Mapping[str, float]) -> Metrics:
    """Return the metrics of one design, given each column of them; NaN where one is unknown."""
    values = {**dict.fromkeys(COLUMNS, np.nan), **values}
    plain = {name: None if np.isnan(values[name]) else values[name] for name in BETTER}
    expected = tpot_expectation(point)
    parts = {name: values[f"breakdown.{name}"] for name in STEP_PARTS}
    memory = {name: values[f"memory.{name}"] for name in COMPONENTS}
    return Metrics(
        **plain,  # type: ignore[arg-type]  # only what is open in `Metrics` may be missing
        memory=memory,
        memory_range=used_range(point, memory),
        fits=fit_probability(point, memory),
        memory_stage=0,
        breakdown={name: 0.0 if np.isnan(value) else value for name, value in parts.items()},
        provenance=point.compute.provenance,
        expected_error=expected.error,
        expected_on=expected.on,
        step_s_range=expected.around(values["step_s"]),
        tokens_per_s_range=expected.around(values["tokens_per_s"]),
        unknown=unknown_metrics(point) | _without_limits(point),
    )


def _without_limits(point: DesignPoint) -> dict[str, str]:
    """Return that goodput is unknown where no class of requests has a limit."""
    load = deployment_of(point).load
    limited = any(request_class.ttft_slo_s or request_class.tpot_slo_s for request_class in load.all_classes)
    return {} if limited else {"goodput_per_s": "no request has a limit: give ttft_slo or tpot_slo"}


def _broken_rule_sentences(point: DesignPoint) -> tuple[str, ...]:
    """Return which rules of deployments and of mappings a design breaks, a sentence each."""
    deployment = deployment_of(point)
    sentences = list(deployment_reasons(point))
    for pool, prefix in _pools(deployment):
        outcome = evaluate_step(_single_step(deployment, pool))
        if isinstance(outcome, Infeasible):
            sentences += [f"{prefix}{reason}" for reason in outcome.reasons]
    return tuple(sentences)


def _pools(deployment: Deployment) -> list[tuple[Pool, str]]:
    return [(deployment.pool, ""), *([(deployment.prefill, PREFILL)] if deployment.prefill else [])]


def _single_step(deployment: Deployment, pool: Pool) -> DesignPoint:
    """Return one step of a pool as a design: of one request for each rank."""
    task, tokens = _smallest(deployment, pool)
    base = pool.price.batch.base
    sizes = {"task": task, "sequence": int(tokens), "global_batch": base.workload.dp, "micro_batch": 1}
    return base.changed({f"workload.{name}": value for name, value in sizes.items()})


def decode_step_of(point: DesignPoint) -> DesignPoint:
    """Return a decode step of a served design as a design of its own: as many requests as are in flight."""
    deployment = deployment_of(point)
    single = _single_step(deployment, deployment.pool)
    requests = max(1, round((deployment.load.concurrency or 1) / single.workload.dp))
    sizes = {"global_batch": requests * single.workload.dp, "micro_batch": requests}
    return single.changed({f"workload.{name}": value for name, value in sizes.items()})


def _smallest(deployment: Deployment, pool: Pool) -> tuple[str, Any]:
    """Return the task and tokens of the smallest step that a pool must have memory for."""
    filling = pool is deployment.prefill
    tokens = deployment.mean("isl") + (0 if filling else deployment.mean("osl"))
    return "prefill" if filling else "decode", np.ceil(np.asarray(tokens, dtype=float))


def _explain_failure(point: DesignPoint, outcome: BatchOutcome) -> tuple[str, ...]:
    """Return why a design that meets all rules cannot run."""
    if OVERLOAD in outcome.broken:
        deployment = deployment_of(point)
        most_per_s = (
            ""
            if deployment.prefill
            else f", of which it serves {float(np.ravel(deployment_capacity(deployment))[0]):.4g}"
        )
        return (f"requests come faster than they are served: {deployment.load.rate:.4g} a second{most_per_s}",)
    if NO_ROOM in outcome.broken:
        return ("its weights leave no room for the KV cache of a request: raise tp or pp, or memory_fraction",)
    names = ", ".join(outcome.broken)
    return (f"its numbers are too large or too small to compute with: {names}",)


# ---- many


def evaluate_served_batch(batch: Batch) -> BatchOutcome:
    """Return the metrics of every design of *batch*, all of which have a serving layer."""
    columns = {name: np.full(batch.size, np.nan) for name in COLUMNS}
    broken: dict[str, Flags] = {}
    excess = np.zeros(batch.size)
    for rows, deployment in deployments_of(batch):
        infeasible = _check_deployments(deployment, len(rows))
        for name, flags in infeasible.broken.items():
            broken.setdefault(name, np.zeros(batch.size, dtype=bool))[rows] = flags
        excess[rows] = infeasible.excess
        running_rows, running = _running_deployments(rows, deployment, infeasible)
        if len(running_rows):
            values = served_columns(running, estimate_deployment(running), len(running_rows))
            for name, value in values.items():
                columns[name][running_rows] = value
            for name, flags in _lost_loads(running, values).items():
                broken.setdefault(name, np.zeros(batch.size, dtype=bool))[running_rows] = flags
                excess[running_rows] = np.where(flags, np.inf, excess[running_rows])
    return BatchOutcome(columns, {name: flags for name, flags in broken.items() if flags.any()}, excess)


def _running_deployments(
    rows: npt.NDArray[np.intp], deployment: Deployment, outcome: BatchOutcome
) -> tuple[npt.NDArray[np.intp], Deployment]:
    """Return the deployments of a group that can run, and their rows."""
    runs = np.flatnonzero(outcome.excess == 0)
    return rows[runs], deployment if len(runs) == len(rows) else deployment.select_rows(runs)


def _lost_loads(deployment: Deployment, values: Mapping[str, Floats]) -> dict[str, Flags]:
    """Return which deployments that meet all rules cannot serve their load: too little room, too many requests."""
    lost = ~np.isfinite(values["ttft_s"] + values["tokens_per_s"])
    cache_rooms = [
        pool.price.held_requests(_smallest(deployment, pool)[1])
        for pool in (deployment.pool, deployment.prefill)
        if pool
    ]
    full = lost & np.logical_or.reduce([np.broadcast_to(cache_room, lost.shape) < 1 for cache_room in cache_rooms])
    late = lost & ~full & (deployment.load.rate is not None)
    out_of_range = (lost | _out_of_range(values)) & ~full & ~late
    return {NO_ROOM: full, OVERLOAD: late, "range": out_of_range}


def _out_of_range(columns: Mapping[str, Floats]) -> Flags:
    in_range = [(columns[name] >= lower) & (columns[name] <= upper) for name, (lower, upper) in POSSIBLE.items()]
    out_of_range: Flags = np.logical_not(np.logical_and.reduce(in_range))
    return out_of_range


def _check_deployments(deployment: Deployment, size: int, *, of_network: bool = True) -> BatchOutcome:
    """Return which deployments of a group break a rule, or have too little memory for one request.

    Not *of_network*: how many accelerators there are in all does not count.
    """
    broken = {
        name: np.broadcast_to(flags, (size,))
        for name, flags in broken_rules(deployment).items()
        if of_network or name not in OF_NETWORK
    }
    excess = np.zeros(size)
    for pool, prefix in _pools(deployment):
        task, tokens = _smallest(deployment, pool)
        outcome = pool.price.outcome(task, 1, tokens)
        broken |= {f"{prefix}{name}": np.broadcast_to(flags, (size,)) for name, flags in outcome.broken.items()}
        excess = excess + outcome.excess
    rules = [flags for name, flags in broken.items() if not name.endswith("memory")]
    excess = np.where(np.logical_or.reduce(rules), np.inf, excess)
    return BatchOutcome({}, broken, excess)


def served_columns(deployment: Deployment, metrics: ServingMetrics, size: int) -> dict[str, Any]:
    """Return every metric of deployments of which clients have *metrics* so much."""
    # Memory and MFU are those of a decode step of the mean batch.
    pool = deployment.pool
    context = np.asarray(deployment.mean("isl") + deployment.mean("osl") / 2, dtype=float)
    requests = np.maximum(
        np.nan_to_num(np.asarray(metrics.running, dtype=float), nan=1.0) / pool.batch["workload.dp"], 1
    )
    step = pool.price.steps("decode", requests, context)
    seconds = sum(metrics.decode_breakdown.values())
    single = np.isnan(metrics.tpot.mean_s) & np.isfinite(metrics.e2e.mean_s)  # no next token: what one would take
    bought, wires, power, owned = _deployment_ownership(deployment)
    per_token = 1 / np.asarray(metrics.output_tokens_per_s)
    bandwidth = sum(_network_dimensions(deployment.batch)[2]) if deployment.batch.base.network.dims else np.nan
    columns = {
        "step_s": seconds,
        "ttft_s": metrics.ttft.mean_s,
        "tpot_s": np.where(single, seconds, metrics.tpot.mean_s),
        "tokens_per_s": metrics.output_tokens_per_s,
        "mfu": (mfu := _mfu(deployment, metrics)),
        "hfu": mfu,
        "memory_bytes": step["memory_bytes"],
        "memory_used_bytes": step["memory_used_bytes"],
        "offloaded_bytes": step["offloaded_bytes"],
        "cost_usd": bought,
        "network_usd": wires,
        "cost_usd_per_token": owned * per_token,
        "power_w": power,
        "energy_j": power * seconds,
        **dict.fromkeys((*OF_RUNS, *OF_SAMPLES), np.nan),
        "perf_per_bandwidth": 1 / (seconds * bandwidth),
        "perf_per_network_cost": 1 / (seconds * np.where(np.asarray(wires) > 0, wires, np.nan)),
        "ttft_p95_s": metrics.ttft.p95_s,
        "tpot_p95_s": np.where(single, seconds, metrics.tpot.p95_s),
        "goodput_per_s": np.nan if metrics.goodput_per_s is None else metrics.goodput_per_s,
        "tokens_per_s_per_npu": metrics.tokens_per_s_per_npu,
        "tokens_per_s_per_user": np.where(single, 1 / seconds, metrics.tokens_per_s_per_user),
        "energy_j_per_token": power * per_token,
        **{f"memory.{name}": step[f"memory.{name}"] for name in COMPONENTS},
        **{f"breakdown.{name}": value for name, value in metrics.decode_breakdown.items()},
    }
    return {name: np.broadcast_to(np.asarray(value, dtype=float), (size,)) for name, value in columns.items()}


def _mfu(deployment: Deployment, metrics: ServingMetrics) -> Any:
    """Return the flop of all prompts and outputs of a second, over the peak of the accelerators of all pools."""
    model, isl, osl = deployment.batch.base.model, deployment.mean("isl"), deployment.mean("osl")
    fresh = isl * (1 - np.asarray(deployment.mean("prefix_hit"), dtype=float))
    flop = fresh * model_flop_per_token(model, isl, training=False, decoding=False)
    flop = flop + osl * model_flop_per_token(model, isl + osl / 2, training=False, decoding=True)
    peak = sum(pool.npus * _peak(pool.batch) for pool, _ in _pools(deployment))
    return flop * metrics.output_tokens_per_s / (osl * peak)


def _peak(batch: Batch) -> Any:
    return peak_flop_per_s(lambda key: batch[f"compute.{key}"], batch.base.workload.precision)


def _network_dimensions(batch: Batch) -> list[list[Any]]:
    dimensions = range(len(batch.base.network.dims))
    return [
        [batch[f"network.dims.{dimension}.{key}"] for dimension in dimensions]
        for key in ("topology", "npus", "bandwidth")
    ]


def _deployment_ownership(deployment: Deployment) -> tuple[Any, Any, Any, Any]:
    """Return dollars of a deployment, of its networks alone, the watts it draws, and dollars a second of owning it.

    A pool on a system of its own is a machine beside the design's. Accelerators and network draw full power, whether
    they are busy or not. Unknown prices and powers are NaN.
    """
    machines = [deployment.batch]
    layer = deployment.batch.base.serving
    if deployment.prefill and layer and layer.prefill and layer.prefill.system is not None:
        machines.append(deployment.prefill.batch)
    costs = [cluster_cost(machine) for machine in machines]
    owned = [owned_cluster_usd_per_s(batch, cost, cost.power_w) for batch, cost in zip(machines, costs, strict=True)]
    summed = (sum(getattr(cost, name) for cost in costs) for name in ("capital_usd", "network_usd", "power_w"))
    return (*summed, sum(owned))


def add_token_costs(metrics: ServingMetrics, deployment: Deployment) -> ServingMetrics:
    """Return *metrics* with dollars and joules of a million output tokens: of the machine that all pools share."""
    *_, watts, usd_per_s = _deployment_ownership(deployment)
    seconds = MILLION / np.asarray(metrics.output_tokens_per_s, dtype=float)
    return replace(metrics, usd_per_million_tokens=usd_per_s * seconds, j_per_million_tokens=watts * seconds)


# ---- what clients see of many deployments, in whatever groups they come, and of one in words


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
            metrics_of_leaves({name: np.ravel(value)[row] for name, value in metric_leaves(self.metrics)})
        )


def estimate_deployments(batch: Batch) -> DeploymentEstimates:
    """Return what each deployment of *batch* achieves. Of their network only its kind counts, not how much of it."""
    columns = {name: np.full(batch.size, np.nan) for name in PLAIN}
    runs = np.zeros(batch.size, dtype=bool)
    for rows, deployment in deployments_of(batch):
        outcome = _check_deployments(deployment, len(rows), of_network=False)
        running_rows, running = _running_deployments(rows, deployment, outcome)
        if not len(running_rows):
            continue
        for name, value in metric_leaves(add_token_costs(estimate_deployment(running), running)):
            column = columns.setdefault(name, np.full(batch.size, np.nan))
            column[running_rows] = np.nan if value is None else value
        asked = 0.0 if running.load.rate is None else running.number("load.rate")
        finite = np.isfinite(columns["ttft.mean_s"] + columns["e2e.mean_s"])[running_rows]
        runs[running_rows] = finite & (columns["requests_per_s"][running_rows] >= BORNE_SHARE * asked)
    return DeploymentEstimates(metrics_of_leaves(columns), runs)


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
