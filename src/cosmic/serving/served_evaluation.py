"""The metrics of designs under a load, as `cosmic.evaluation` gives them out: one design, or many.

    designs ──▶ deployments ──▶ rules, memory ──▶ estimate ──▶ TTFT, TPOT, tokens/s, dollars, joules

The closed form says what clients see; a decode step of the mean batch says what the accelerators do: memory, MFU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import log
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
from cosmic.serving.serving_metrics import ServingMetrics
from cosmic.simulate.analytic_step import BREAKDOWN
from cosmic.simulate.metrics import BETTER, OF_RUNS, OF_SAMPLES, BatchOutcome, Infeasible, Metrics, Outcome
from cosmic.simulate.step_evaluation import POSSIBLE, evaluate_step, unknown_metrics
from cosmic.step.accelerator_rates import peak_flop_per_s
from cosmic.step.device_memory import COMPONENTS
from cosmic.step.operator_work import model_flop_per_token

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
ENGINE_PART = "engine"
"""The part of a step that an engine adds to kernels and collectives."""
STEP_PARTS = (*BREAKDOWN, ENGINE_PART)
COLUMNS = (*BETTER, *(f"memory.{name}" for name in COMPONENTS), *(f"breakdown.{name}" for name in STEP_PARTS))
NOT_MEASURED = "not measured: no run like this was simulated"
OVERLOAD = "rate"
"""The rule that requests are served as fast as they come."""
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
    return _metrics(point, values)


def simulate_served(point: DesignPoint, closed: Metrics) -> Outcome:
    """Return what a design that achieves *closed* in closed form achieves if its requests are simulated one by one."""
    from cosmic.serving.request_simulation import simulate_load  # noqa: PLC0415  only this engine needs it

    deployment = deployment_of(point)
    simulation = simulate_load(deployment)
    if isinstance(simulation, Infeasible):
        return simulation
    values = {name: float(value[0]) for name, value in _metric_columns(deployment, simulation.metrics, 1).items()}
    simulated = _metrics(point, {**dict.fromkeys(COLUMNS, np.nan), **values})
    tpot_difference = abs(log(simulated.tpot_s / closed.tpot_s)) if simulated.tpot_s and closed.tpot_s else 0.0
    return replace(
        simulated,
        expected_error=None,
        expected_on=f"{NOT_MEASURED}; in closed form {100 * (closed.expected_error or 0):.0f} %",
        step_s_range=closed.step_s_range.around(simulated.step_s, tpot_difference),
        tokens_per_s_range=tpot_expectation(point)
        .around(closed.throughput_per_s)
        .around(simulated.throughput_per_s, tpot_difference),
    )


def _metrics(point: DesignPoint, values: Mapping[str, float]) -> Metrics:
    plain = {name: None if np.isnan(values[name]) else values[name] for name in BETTER}
    expected = tpot_expectation(point)
    parts = {name: values[f"breakdown.{name}"] for name in STEP_PARTS}
    return Metrics(
        **plain,  # type: ignore[arg-type]  # only what is open in `Metrics` may be missing
        memory={name: values[f"memory.{name}"] for name in COMPONENTS},
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
        runs = np.flatnonzero(infeasible.excess == 0)
        if len(runs):
            all_run = len(runs) == len(rows)
            running_deployment, running_rows = deployment if all_run else deployment.select_rows(runs), rows[runs]
            values = _metric_columns(running_deployment, estimate_deployment(running_deployment), len(runs))
            for name, value in values.items():
                columns[name][running_rows] = value
            for name, flags in _lost_loads(running_deployment, values).items():
                broken.setdefault(name, np.zeros(batch.size, dtype=bool))[running_rows] = flags
                excess[running_rows] = np.where(flags, np.inf, excess[running_rows])
    return BatchOutcome(columns, {name: flags for name, flags in broken.items() if flags.any()}, excess)


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


def _check_deployments(deployment: Deployment, size: int) -> BatchOutcome:
    """Return which deployments of a group break a rule, or have too little memory for one request."""
    broken = {name: np.broadcast_to(flags, (size,)) for name, flags in broken_rules(deployment).items()}
    excess = np.zeros(size)
    for pool, prefix in _pools(deployment):
        task, tokens = _smallest(deployment, pool)
        outcome = pool.price.outcome(task, 1, tokens)
        broken |= {f"{prefix}{name}": np.broadcast_to(flags, (size,)) for name, flags in outcome.broken.items()}
        excess = excess + outcome.excess
    rules = [flags for name, flags in broken.items() if not name.endswith("memory")]
    excess = np.where(np.logical_or.reduce(rules), np.inf, excess)
    return BatchOutcome({}, broken, excess)


def _metric_columns(deployment: Deployment, metrics: ServingMetrics, size: int) -> dict[str, Any]:
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

    A pool on a system of its own is a machine beside the design's.
    """
    machines = [deployment.batch]
    layer = deployment.batch.base.serving
    if deployment.prefill and layer and layer.prefill and layer.prefill.system is not None:
        machines.append(deployment.prefill.batch)
    parts = [_machine_ownership(batch) for batch in machines]
    bought, wires, power, owned = (sum(part[index] for part in parts) for index in range(4))
    return bought, wires, power, owned


def _machine_ownership(batch: Batch) -> tuple[Any, Any, Any, Any]:
    """Return dollars of a machine, of its network alone, the watts that it draws, and dollars a second of owning it."""
    cost = cluster_cost(batch)
    return cost.capital_usd, cost.network_usd, cost.power_w, owned_cluster_usd_per_s(batch, cost, cost.power_w)
