"""Evaluate one step of a design: the composition of every layer below.

    design ──▶ valid mapping? ──▶ memory ──▶ step profile ──▶ seconds, tokens/s, MFU, dollars, joules

A design that cannot run is a result, `Infeasible`, with reasons that a person can act on. What a design achieves under
a load of requests is for `cosmic.evaluation` to say, which calls this for single steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import log
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cosmic.base.errors import UnknownName
from cosmic.base.numeric import floats, sum_of
from cosmic.cluster.cluster_cost import cluster_cost, describe_missing_figures, owned_cluster_usd_per_s, unknown_parts
from cosmic.cluster.goodput import run_metrics, unknown_run_metrics
from cosmic.design.design_batch import Batch, batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.design.model_layer import has_tokens
from cosmic.design.network_layer import INCLUDED
from cosmic.design.prediction_accuracy import Expectation, Range, expected_error
from cosmic.simulate.analytic_step import BREAKDOWN, COMPUTE_PARTS, compute_step_seconds
from cosmic.simulate.metrics import (
    OF_CLUSTERS,
    OF_REQUESTS,
    OF_RUNS,
    OF_SAMPLES,
    OF_STEPS,
    OF_TOKENS,
    BatchOutcome,
    Infeasible,
    Metrics,
    Outcome,
    throughput,
)
from cosmic.simulate.recording.recorded_evaluation import Recorder, run_recorded_batch, run_recorded_point
from cosmic.step.accelerator_rates import peak_flop_per_s
from cosmic.step.device_memory import COMPONENTS, memory_of
from cosmic.step.operator_work import adapter_of, hardware_flop_per_token, model_flop_per_token
from cosmic.step.process_memory import (
    fit_probability,
    format_probability,
    has_process,
    left_bytes,
    used_range,
)
from cosmic.step.tier_traffic import full_tiers, tier_metrics
from cosmic.workload.attended_keys import document_length
from cosmic.workload.mapping_rules import RULES, evaluate_rules, invalid_reasons
from cosmic.workload.mesh_sizes import structural_paths

if TYPE_CHECKING:
    from cosmic.simulate.events.simulation_result import SimulationResult


GIB = 2**30
POSSIBLE = {"step_s": (1e-12, 1e30), "tokens_per_s": (1e-30, 1e30), "mfu": (0.0, 1.01), "memory_bytes": (0.0, 1e30)}
"""Smallest and largest number of the metrics from which the others follow: beyond them an answer would be wrong.
Samples count as tokens where a model has none."""
ENGINES = ("analytic", "event")


def evaluate_step(point: DesignPoint, engine: str = "analytic") -> Outcome:
    """Return the metrics of *point*, or why it cannot run.

    The engine `analytic` adds up a step in closed form; `event` simulates the design's own traces, node by node.
    """
    if engine not in ENGINES:
        raise UnknownName.among("engine", engine, "engine", ENGINES)
    outcome = _evaluate(point)
    if engine == "analytic" or isinstance(outcome, Infeasible):
        return outcome
    from cosmic.simulate.events.design_simulation import simulate_step  # noqa: PLC0415  only this engine needs it

    return metrics_as_simulated(outcome, simulate_step(point))


def metrics_as_simulated(metrics: Metrics, result: SimulationResult) -> Metrics:
    """Return the metrics of a design whose step takes as long as its simulated traces did."""
    last = max(result.per_npu, key=lambda npu: npu.cycles)
    seconds = last.cycles / 1e9
    slower = seconds / metrics.step_s
    disagreement = abs(log(slower))  # what the engines disagree by is one more error
    exposed = last.communication_cycles - last.hidden_cycles
    computing = last.cycles - last.idle_cycles - exposed
    return replace(
        metrics,
        step_s=seconds,
        ttft_s=seconds if metrics.ttft_s is not None else None,
        tpot_s=seconds if metrics.tpot_s is not None else None,
        tokens_per_s=_lengthen(metrics.tokens_per_s, slower),
        samples_per_s=_lengthen(metrics.samples_per_s, slower),
        cost_usd_per_sample=_lengthen(metrics.cost_usd_per_sample, 1 / slower),
        mfu=metrics.mfu / slower,
        hfu=metrics.hfu / slower,
        cost_usd_per_token=_lengthen(metrics.cost_usd_per_token, 1 / slower),
        energy_j=_lengthen(metrics.energy_j, 1 / slower),
        effective_tokens_per_s=_lengthen(metrics.effective_tokens_per_s, slower),
        train_days=_lengthen(metrics.train_days, 1 / slower),
        train_usd=_lengthen(metrics.train_usd, 1 / slower),
        train_energy_j=_lengthen(metrics.train_energy_j, 1 / slower),
        train_co2_kg=_lengthen(metrics.train_co2_kg, 1 / slower),
        perf_per_bandwidth=_lengthen(metrics.perf_per_bandwidth, slower),
        perf_per_network_cost=_lengthen(metrics.perf_per_network_cost, slower),
        breakdown={"compute": computing / 1e9, "communication": exposed / 1e9, "idle": last.idle_cycles / 1e9},
        expected_error=None,
        expected_on=_expected_in_closed_form(metrics),
        step_s_range=metrics.step_s_range.around(seconds, disagreement),
        tokens_per_s_range=_bracket_rate(metrics.tokens_per_s_range, metrics.tokens_per_s, slower, disagreement),
        samples_per_s_range=_bracket_rate(metrics.samples_per_s_range, metrics.samples_per_s, slower, disagreement),
    )


def _expected_in_closed_form(metrics: Metrics) -> str:
    """Return that the event engine predicted no measured run, and what the closed form's error is."""
    said = "not measured: no run like this was predicted by the event engine"
    if metrics.expected_error is None:
        return said
    return f"{said}; the closed form is off by {100 * metrics.expected_error:.0f} % {metrics.expected_on}"


def expected_in_words(metrics: Metrics) -> str:
    """Return how far off a step is expected to be, or that this was not measured."""
    if metrics.expected_error is None:
        return f"expected error {metrics.expected_on}; the range is that of other kinds, widened"
    return f"expected to be off by {100 * metrics.expected_error:.0f} % ({metrics.expected_on})"


def expected_step_error(point: DesignPoint, columns: Mapping[str, npt.NDArray[np.float64]]) -> Expectation:
    """Return how far off the step of *point* may be, by the metrics of a batch of it alone."""
    return expected_error(point, waiting_share({name: float(columns[name][0]) for name in WAITING}))


WAITING = ("breakdown.launch", "step_s")


def waiting_share(found: Mapping[str, float]) -> float:
    """Return the share of a step that accelerators wait for their hosts, by its metrics."""
    return found["breakdown.launch"] / found["step_s"]


def _lengthen(value: float | None, times: float) -> float | None:
    return None if value is None else value / times


def _bracket_rate(bracket: Range | None, rate: float | None, slower: float, disagreement: float) -> Range | None:
    return None if bracket is None or rate is None else bracket.around(rate / slower, disagreement)


def _evaluate(point: DesignPoint) -> Outcome:
    results = run_recorded_point(RECORDER, point)
    if results is None or any(np.isnan(_possible_metrics(results)[name]) for name in POSSIBLE):
        return _evaluate_directly(point)
    if reasons := tuple(rule.sentence(point) for name, rule in RULES.items() if not results[f"rule.{name}"]):
        return Infeasible(reasons)
    return _outcome_of_values(point, {name: results[name] for name in MEASURED})


def _evaluate_directly(point: DesignPoint) -> Outcome:
    """Return the metrics of *point* computed directly, without a recorded program, so that errors have sentences."""
    batch = batch_of(point)
    if reasons := invalid_reasons(batch):
        return Infeasible(reasons)
    try:
        values = {name: float(value) for name, value in _evaluate_group(batch).items()}
    except ArithmeticError as error:
        return Infeasible((f"its numbers are too large or too small to compute with: {error}",))
    return _outcome_of_values(point, values)


def _outcome_of_values(point: DesignPoint, values: dict[str, float]) -> Outcome:
    """Return the metrics of a design that meets all rules, or why it cannot run nonetheless."""
    if reason := _range_reason(values):
        return Infeasible((reason,))
    memory = {name: values[f"memory.{name}"] for name in COMPONENTS}
    if values["memory_needed"] > point.memory.left_bytes:
        return Infeasible((_memory_reason(point, memory, int(values["memory_stage"])),))
    if values["tier_excess"] > 0:
        return Infeasible(full_tiers(point))
    if (away := values["offloaded_bytes"]) > (outer := _outer_bytes(batch_of(point))):
        return Infeasible((f"offloads {away / GIB:.4g} GiB per NPU to outer tiers of {outer / GIB:.4g} GiB",))
    stage = int(values.pop("memory_stage"))
    for name in ("tier_excess", "memory_needed"):
        values.pop(name)
    plain = {name: None if np.isnan(value) else value for name, value in values.items() if "." not in name}
    breakdown = {name: values[f"breakdown.{name}"] for name in BREAKDOWN}
    expected = expected_error(point, waiting_share(values))
    return Metrics(
        **plain,  # type: ignore[arg-type]  # only what is open in `Metrics` may be missing
        memory=memory,
        memory_range=used_range(point, memory),
        fits=fit_probability(point, memory),
        memory_stage=stage,
        memory_tiers=tier_metrics(point),
        breakdown=breakdown,
        provenance=point.compute.provenance,
        expected_error=expected.error,
        expected_on=expected.on,
        step_s_range=expected.around(values["step_s"]),
        tokens_per_s_range=expected.around(values["tokens_per_s"]) if has_tokens(point.model) else None,
        samples_per_s_range=None if has_tokens(point.model) else expected.around(values["samples_per_s"]),
        unknown=unknown_metrics(point),
    )


NEEDS = {
    "train_usd": ("price", "power"),
    "train_energy_j": ("power",),
    "train_co2_kg": ("power",),
    "cost_usd": ("price",),
    "network_usd": ("network.price",),
    "cost_usd_per_token": ("price", "power"),
    "cost_usd_per_sample": ("price", "power"),
    "power_w": ("power",),
    "energy_j": ("power",),
    "energy_j_per_token": ("power",),
    "perf_per_network_cost": ("network.price",),
}
"""The quantities without which a metric is unknown (`cosmic.cluster.cluster_cost`)."""

IN_THE_NODE = "the network is part of the node, and has no price of its own"
NO_TOKENS = "the model has no sequence, so that samples are counted: see samples_per_s"


def unknown_metrics(point: DesignPoint) -> dict[str, str]:
    """Return the metrics of *point* that are unknown for want of a figure of a part, each with the reason."""
    quantities = {quantity for needed in NEEDS.values() for quantity in needed}
    missing = {quantity: unknown_parts(point, quantity) for quantity in quantities}
    lasts = point.run.tokens is not None and point.serving is None and point.workload.task == "training"
    left_out = {*(() if point.serving else OF_REQUESTS), *(() if lasts else OF_RUNS)}
    tokens = has_tokens(point.model)
    left_out |= set(OF_SAMPLES if tokens else OF_TOKENS)
    wanted = {metric: needed for metric, needed in NEEDS.items() if metric not in left_out}
    reasons = {
        metric: describe_missing_figures((quantity, missing[quantity]) for quantity in needed)
        for metric, needed in wanted.items()
    }
    if point.network.dims and all(dim.fabric.build == INCLUDED for dim in point.network.dims):
        reasons["perf_per_network_cost"] = IN_THE_NODE
    unknown = {metric: reason for metric, reason in reasons.items() if reason} | unknown_run_metrics(point)
    return unknown if tokens else unknown | dict.fromkeys(OF_TOKENS, NO_TOKENS)


def _memory_reason(point: DesignPoint, memory: dict[str, float], stage: int) -> str:
    largest = sorted(memory.items(), key=lambda item: -item[1])[:3]
    parts = ", ".join(f"{size / GIB:.3g} {name}" for name, size in largest)
    where = f"stage {stage + 1} of {point.workload.pp} " if point.workload.pp > 1 else ""
    room = f"{point.memory.left_bytes / GIB:.4g} GiB per NPU{' of HBM' if point.memory.tiers else ''}"
    sure = ""
    if has_process(point):
        sure = f" and fits with {format_probability(fit_probability(point, memory))} where {point.memory.fits:.0%} is asked"
    return f"{where}needs {sum(memory.values()) / GIB:.4g} GiB of {room}{sure}: {parts}"


def _range_reason(values: dict[str, float]) -> str:
    """Return which metric of a design is out of range; empty if none is."""
    for name, (least, most) in POSSIBLE.items():
        value = _possible_metrics(values)[name]
        if not least <= value <= most:
            return f"its numbers are too large or too small to compute with: {name} would be {value:.4g}"
    return ""


def _possible_metrics(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return *values* with samples in place of tokens where a model has none."""
    return {**values, "tokens_per_s": throughput({name: np.asarray(values[name]) for name in RATES})}


RATES = ("tokens_per_s", "samples_per_s")


def _outer_bytes(batch: Batch) -> Any:
    """Return the bytes of all outer tiers together; designs may differ in which they have."""
    if "memory.tiers" in batch.columns:
        varied: Any = batch.columns["memory.tiers"]
        return np.array([sum(tier.capacity_bytes for tier in tiers) for tiers in varied.tolist()])
    return sum_of(batch[f"memory.tiers.{index}.capacity"] for index in range(len(batch.base.memory.tiers)))


def evaluate_steps(batch: Batch) -> BatchOutcome:
    """Return the metrics of every design of *batch*: the same functions, over arrays."""
    results, unrecorded = run_recorded_batch(RECORDER, batch, len(RESULTS))
    if unrecorded:
        _run_directly(batch, np.concatenate(unrecorded), results)
    columns = {name: results[index] for index, name in enumerate(MEASURED) if name not in UNSEEN}
    full, needs = (results[MEASURED.index(name)] for name in ("tier_excess", "memory_needed"))
    columns |= dict.fromkeys(OF_REQUESTS, np.broadcast_to(np.nan, (batch.size,)))
    broken = {name: results[len(MEASURED) + index] == 0 for index, name in enumerate(RULES)}
    over = {}
    away = columns["offloaded_bytes"]
    for name, needed, most in (("memory", needs, left_bytes(batch)), ("offloaded", away, _outer_bytes(batch))):
        with np.errstate(divide="ignore", invalid="ignore"):  # where there are no outer tiers
            over[name] = np.where(needed > most, needed / most - 1, 0.0)
    over["offloaded"] = np.maximum(over["offloaded"], np.where(over["memory"] > 0, 0.0, np.nan_to_num(full)))
    invalid = np.logical_or.reduce(list(broken.values()))
    # A metric out of range: its numbers are too large or too small to compute with.
    possible = _possible_metrics(columns)
    inside = [(possible[name] >= least) & (possible[name] <= most) for name, (least, most) in POSSIBLE.items()]
    outside: npt.NDArray[np.bool_] = np.logical_not(np.logical_and.reduce(inside))  # a NaN is not inside
    broken["range"] = outside & ~invalid
    excess = over["memory"] + over["offloaded"]
    excess[invalid | broken["range"]] = np.inf
    broken |= {name: share > 0 for name, share in over.items()}
    return BatchOutcome(columns, {name: mask for name, mask in broken.items() if mask.any()}, excess)


def _run_directly(batch: Batch, rows: npt.NDArray[np.intp], results: npt.NDArray[np.float64]) -> None:
    """Write the results of designs that have no program: the physics itself, over arrays."""
    chosen = batch.take(rows, {})
    for indices, part in chosen.groups(structural_paths(chosen)):
        group_rows = rows[indices]
        for index, holds in enumerate(evaluate_rules(part).values()):
            results[len(MEASURED) + index, group_rows] = holds
        results[: len(MEASURED), group_rows] = np.nan
        for computable, values in _computable(part):
            for measured_row, name in enumerate(MEASURED):
                results[measured_row, group_rows[computable]] = values[name]


def _computable(part: Batch) -> Iterator[tuple[npt.NDArray[np.intp], dict[str, Any]]]:
    """Yield rows of designs that share one plan, with their metrics; rows whose numbers overflow are left out."""
    waiting = [np.arange(part.size)]
    while waiting:
        rows = waiting.pop()
        try:
            yield rows, _evaluate_group(part if len(rows) == part.size else part.take(rows, {}))
        except ArithmeticError:
            if len(rows) > 1:
                waiting += np.array_split(rows, 2)


def _evaluate_group(batch: Batch) -> dict[str, Any]:
    """Return every metric of designs that share one plan; raise an `ArithmeticError` where numbers overflow."""
    try:
        with np.errstate(over="raise", divide="raise", invalid="raise"):
            return _metrics(batch)
    finally:
        batch.known.clear()  # profiles refer to their batch: their arrays would wait for the garbage collector


def _metrics(batch: Batch) -> dict[str, Any]:
    workload, network = batch.base.workload, batch.base.network
    memory, step = memory_of(batch), compute_step_seconds(batch)
    seconds = step.seconds
    npus = batch.npus
    decoding = workload.task == "decode"
    # A decode step makes one token of each sequence.
    tokens = batch["workload.global_batch"] * (1 if decoding else batch["workload.sequence"])
    needed = model_flop_per_token(
        batch.base.model,
        batch["workload.sequence"],
        training=workload.task == "training",
        decoding=decoding,
        document=document_length(batch),
        lora=adapter_of(workload),
        prompt=workload.task == "prefill",
    )
    peak = peak_flop_per_s(lambda key: batch[f"compute.{key}"], workload.precision)
    dims = range(len(network.dims))
    rates = [batch[f"network.dims.{dim}.bandwidth"] for dim in dims]
    cost = cluster_cost(batch)
    drawn = cost.used_w(busy_share(step.parts, seconds))
    of_unit = {"per_s": tokens / seconds, "usd": owned_cluster_usd_per_s(batch, cost, drawn) * seconds / tokens}
    of_tokens, of_samples = (
        of_unit if has_tokens(batch.base.model) is applies else NEITHER for applies in (True, False)
    )
    runs = run_metrics(batch, cost, drawn, of_unit["per_s"])
    if of_tokens is NEITHER:
        runs["effective_tokens_per_s"] = np.nan
    return {
        "step_s": seconds,
        "ttft_s": seconds if workload.task == "prefill" else np.nan,
        "tpot_s": seconds if decoding else np.nan,
        "tokens_per_s": of_tokens["per_s"],
        # MFU counts the operations of the model, HFU also those that are recomputed; both over the GEMM peak.
        "mfu": needed * tokens / (seconds * npus * peak),
        "hfu": hardware_flop_per_token(batch) * tokens / (seconds * npus * peak),
        "memory_bytes": memory.peak,
        "memory_used_bytes": memory.total,
        "memory_needed": memory.must_fit,
        "memory_stage": memory.stage,
        "tier_excess": memory.excess,
        "offloaded_bytes": sum_of(memory.offloaded.values()),
        "cost_usd": cost.capital_usd,
        "network_usd": cost.network_usd,
        "cost_usd_per_token": of_tokens["usd"],
        "power_w": cost.power_w,
        "energy_j": drawn * seconds,
        **runs,
        "perf_per_bandwidth": _reciprocal(seconds * sum_of(rates)),
        "perf_per_network_cost": _reciprocal(seconds * cost.network_usd),
        "samples_per_s": of_samples["per_s"],
        "cost_usd_per_sample": of_samples["usd"],
        **{f"memory.{name}": value for name, value in memory.parts.items()},
        **{f"breakdown.{name}": value for name, value in step.parts.items()},
    }


NEITHER: dict[str, Any] = {"per_s": np.nan, "usd": np.nan}
"""Throughput and cost in tokens of a model that has none, or in samples of one that has tokens."""


def busy_share(parts: Mapping[str, Any], seconds: Any) -> Any:
    """Return the share of a step in which accelerators compute."""
    return sum_of(parts[name] for name in (*COMPUTE_PARTS, "recompute", "optimizer")) / seconds


MEASURED = (
    *OF_STEPS,
    *OF_CLUSTERS,
    *OF_RUNS,
    *OF_SAMPLES,
    "memory_stage",
    "memory_needed",
    "tier_excess",
    *(f"memory.{name}" for name in COMPONENTS),
    *(f"breakdown.{name}" for name in BREAKDOWN),
)
UNSEEN = ("memory_stage", "memory_needed", "tier_excess")
"""What is measured for others to say, and is no metric."""
RESULTS = (*MEASURED, *(f"rule.{name}" for name in RULES))
"""What is computed of every design: its metrics, and whether it meets each rule."""


def _metrics_of_designs(batch: Batch) -> dict[str, Any]:
    metrics = _metrics(batch)
    return {name: metrics[name] for name in MEASURED}


def _rules_of_designs(batch: Batch) -> dict[str, Any]:
    return {f"rule.{name}": holds for name, holds in evaluate_rules(batch).items()}


RECORDER = Recorder(_metrics_of_designs, _rules_of_designs)
"""The programs of all structures that were evaluated (see `cosmic.simulate.recording`)."""


def _reciprocal(value: Any) -> Any:
    """Return 1 / value; NaN for one accelerator, which has no network."""
    positive = floats(value) > 0
    return np.where(positive, 1 / np.where(positive, value, 1.0), np.nan)
