"""Evaluate a design: the one composition of every layer. Read this first.

    design ──▶ valid mapping? ──▶ memory ──▶ step profile ──▶ seconds, tokens/s, MFU, dollars, joules

A design that cannot run is a result, `Infeasible`, with reasons that a person can act on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cosmic.catalog.accuracy import expected_error
from cosmic.cost.compute import peak_flop_per_s
from cosmic.design.batch import Batch, batch_of, known
from cosmic.design.point import DesignPoint
from cosmic.errors import UnknownName
from cosmic.numeric import floats, sum_of
from cosmic.pricing.network import network_usd, network_w
from cosmic.pricing.ownership import capital_usd, owned_usd_per_s
from cosmic.recording.recorder import Recorder
from cosmic.recording.running import run_batch, run_point
from cosmic.simulation.analytic import BREAKDOWN, step
from cosmic.step.compute import hardware_flop_per_token, model_flop_per_token
from cosmic.step.memory import COMPONENTS
from cosmic.step.profile import memory_of
from cosmic.workload.checks import RULES, held, invalid_reasons
from cosmic.workload.sizes import structural_paths

if TYPE_CHECKING:
    from cosmic.simulation.event.result import Result

GIB = 2**30
BETTER = {
    "step_s": "less",
    "ttft_s": "less",
    "tpot_s": "less",
    "tokens_per_s": "more",
    "mfu": "more",
    "hfu": "more",
    "memory_bytes": "less",
    "offloaded_bytes": "less",
    "cost_usd": "less",
    "network_usd": "less",
    "cost_usd_per_token": "less",
    "energy_j": "less",
    "perf_per_bandwidth": "more",
    "perf_per_network_cost": "more",
}
"""Every metric that is one number, and which way it is better."""
POSSIBLE = {"step_s": (1e-12, 1e30), "tokens_per_s": (1e-30, 1e30), "mfu": (0.0, 1.01), "memory_bytes": (0.0, 1e30)}
"""Smallest and largest number of the metrics from which the others follow: beyond them an answer would be wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """What a design that can run achieves."""

    step_s: float
    """Seconds of a training step, of a prefill, or of one decoded token (for all sequences at once)."""
    ttft_s: float | None
    """Time to first token: of a prefill."""
    tpot_s: float | None
    """Time per output token: of decoding."""
    tokens_per_s: float
    mfu: float
    """Model FLOP utilisation: the flop of the model over the peak of the accelerators."""
    hfu: float
    """Hardware FLOP utilisation: recomputation counts as work."""
    memory_bytes: float
    memory: dict[str, float]
    memory_stage: int
    """Number of the pipeline stage whose accelerators need that much, from 0 on."""
    offloaded_bytes: float
    """Bytes offloaded to the outer tiers, for each accelerator."""
    cost_usd: float | None
    """To buy: accelerators and network; None where no price of the accelerator is known."""
    network_usd: float
    cost_usd_per_token: float | None
    """To own: depreciation, power and upkeep, while the step runs; None where price or power are not known."""
    energy_j: float | None
    """Of one step, all accelerators and the network at full power; None where no power is known."""
    perf_per_bandwidth: float | None
    """Steps a second for each byte/s that an accelerator can send into its network: COSMIC's first reward."""
    perf_per_network_cost: float | None
    """Steps a second for each dollar of the network: COSMIC's second."""
    breakdown: dict[str, float]
    """Seconds of the step by part; they sum to it. If simulated, of the rank that finishes last."""
    provenance: str
    """Origin of the accelerator's efficiencies: measured, calibrated, or an estimate."""
    expected_error: float | None
    """Mean relative error of the step that validation found for designs like this one; None where none was measured."""
    expected_on: str
    """How many measured runs it rests on, and what they share with the design."""
    unknown: dict[str, str]
    """Metrics that are unknown, each with the reason."""


@dataclass(frozen=True, slots=True)
class Infeasible:
    """A well-formed design that cannot run, and why."""

    reasons: tuple[str, ...]


Outcome = Metrics | Infeasible


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """What many designs achieve: an array for each metric, and which of them can run."""

    columns: dict[str, npt.NDArray[np.float64]]
    """Each metric of `BETTER`, and ``memory.*`` and ``breakdown.*``; NaN where a task has no such metric, or where it
    is unknown (`unknown_metrics`)."""
    broken: dict[str, npt.NDArray[np.bool_]]
    """For each rule that some design breaks, which do: those of `cosmic.workload.checks`, ``memory``, ``offloaded``,
    and ``range`` where a metric would be no possible number."""
    excess: npt.NDArray[np.float64]
    """By what share a design needs more memory than there is; infinite where its mapping is invalid."""

    @property
    def feasible(self) -> npt.NDArray[np.bool_]:
        """Which of the designs can run."""
        return np.asarray(self.excess == 0)


ENGINES = ("analytic", "event")


def evaluate(point: DesignPoint, engine: str = "analytic") -> Outcome:
    """Return what *point* achieves, or why it cannot run.

    The engine `analytic` adds up a step in closed form; `event` simulates the design's own traces, node by node.
    """
    if engine not in ENGINES:
        raise UnknownName.among("engine", engine, "engine", ENGINES)
    outcome = _evaluate(point)
    if engine == "analytic" or isinstance(outcome, Infeasible):
        return outcome
    from cosmic.simulation.event.from_design import simulate_design  # noqa: PLC0415  only this engine needs it

    return as_simulated(outcome, simulate_design(point))


def as_simulated(metrics: Metrics, result: Result) -> Metrics:
    """Return what a design achieves if its step takes as long as its simulated traces did."""
    last = max(result.per_npu, key=lambda npu: npu.cycles)
    seconds = last.cycles / 1e9
    slower = seconds / metrics.step_s
    exposed = last.communication_cycles - last.hidden_cycles
    computing = last.cycles - last.idle_cycles - exposed
    return replace(
        metrics,
        step_s=seconds,
        ttft_s=seconds if metrics.ttft_s is not None else None,
        tpot_s=seconds if metrics.tpot_s is not None else None,
        tokens_per_s=metrics.tokens_per_s / slower,
        mfu=metrics.mfu / slower,
        hfu=metrics.hfu / slower,
        cost_usd_per_token=_slower(metrics.cost_usd_per_token, 1 / slower),
        energy_j=_slower(metrics.energy_j, 1 / slower),
        perf_per_bandwidth=_slower(metrics.perf_per_bandwidth, slower),
        perf_per_network_cost=_slower(metrics.perf_per_network_cost, slower),
        breakdown={"compute": computing / 1e9, "communication": exposed / 1e9, "idle": last.idle_cycles / 1e9},
        expected_error=None,
        expected_on=_expected_in_closed_form(metrics),
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
        return f"expected error {metrics.expected_on}"
    return f"expected to be off by {100 * metrics.expected_error:.0f} % ({metrics.expected_on})"


def _slower(value: float | None, times: float) -> float | None:
    return None if value is None else value / times


def _evaluate(point: DesignPoint) -> Outcome:
    found = run_point(RECORDER, point)
    if found is None or any(np.isnan(found[name]) for name in POSSIBLE):
        return _evaluate_directly(point)
    if reasons := tuple(rule.sentence(point) for name, rule in RULES.items() if not found[f"rule.{name}"]):
        return Infeasible(reasons)
    return _outcome(point, {name: found[name] for name in MEASURED})


def _evaluate_directly(point: DesignPoint) -> Outcome:
    """Return what *point* achieves by the physics itself, without a program: what is wrong has a sentence then."""
    batch = batch_of(point)
    if reasons := invalid_reasons(batch):
        return Infeasible(reasons)
    try:
        values = {name: float(value) for name, value in _evaluate_group(batch).items()}
    except ArithmeticError as error:
        return Infeasible((f"its numbers are too large or too small to compute with: {error}",))
    return _outcome(point, values)


def _outcome(point: DesignPoint, values: dict[str, float]) -> Outcome:
    """Return the metrics of a design that meets all rules, or why it cannot run nonetheless."""
    if reason := _range_reason(values):
        return Infeasible((reason,))
    memory = {name: values[f"memory.{name}"] for name in COMPONENTS}
    if values["memory_bytes"] > point.memory.capacity_bytes:
        return Infeasible((_memory_reason(point, values["memory_bytes"], memory, int(values["memory_stage"])),))
    if (away := values["offloaded_bytes"]) > (outer := _outer_bytes(batch_of(point))):
        return Infeasible((f"offloads {away / GIB:.4g} GiB per NPU to outer tiers of {outer / GIB:.4g} GiB",))
    stage = int(values.pop("memory_stage"))
    plain = {name: None if np.isnan(value) else value for name, value in values.items() if "." not in name}
    breakdown = {name: values[f"breakdown.{name}"] for name in BREAKDOWN}
    expected = expected_error(point)
    return Metrics(
        **plain,  # type: ignore[arg-type]  # only what is open in `Metrics` may be missing
        memory=memory,
        memory_stage=stage,
        breakdown=breakdown,
        provenance=point.compute.provenance,
        expected_error=expected.error,
        expected_on=expected.on,
        unknown=unknown_metrics(point),
    )


NEEDS = {"cost_usd": ("price",), "cost_usd_per_token": ("price", "power"), "energy_j": ("power",)}
"""The figures of an accelerator without which a metric is unknown."""


def unknown_metrics(point: DesignPoint) -> dict[str, str]:
    """Return the metrics of *point* that are unknown for want of a figure of its accelerator, each with the reason."""
    figures = {"price": point.compute.price_usd, "power": point.compute.power_w}
    name = point.compute.accelerator or "the accelerator"
    missing = {metric: [each for each in needed if figures[each] is None] for metric, needed in NEEDS.items()}
    return {metric: f"no {' and no '.join(these)} is known for {name}" for metric, these in missing.items() if these}


def _memory_reason(point: DesignPoint, needed: float, memory: dict[str, float], stage: int) -> str:
    largest = sorted(memory.items(), key=lambda item: -item[1])[:3]
    parts = ", ".join(f"{size / GIB:.3g} {name}" for name, size in largest)
    where = f"stage {stage + 1} of {point.workload.pp} " if point.workload.pp > 1 else ""
    return f"{where}needs {needed / GIB:.4g} GiB of {point.memory.capacity_bytes / GIB:.4g} GiB per NPU: {parts}"


def _range_reason(values: dict[str, float]) -> str:
    """Return which metric of a design is out of range; empty if none is."""
    for name, (least, most) in POSSIBLE.items():
        if not least <= values[name] <= most:
            return f"its numbers are too large or too small to compute with: {name} would be {values[name]:.4g}"
    return ""


def _out_of_range(columns: dict[str, npt.NDArray[np.float64]]) -> npt.NDArray[np.bool_]:
    """Return which designs have a metric that is out of range."""
    inside = [(columns[name] >= least) & (columns[name] <= most) for name, (least, most) in POSSIBLE.items()]
    outside: npt.NDArray[np.bool_] = np.logical_not(np.logical_and.reduce(inside))  # a NaN is not inside
    return outside


def _outer_bytes(batch: Batch) -> Any:
    return sum_of(batch[f"memory.tiers.{place}.capacity"] for place in range(len(batch.base.memory.tiers)))


def evaluate_batch(batch: Batch) -> BatchOutcome:
    """Return the metrics of every design of *batch*: the same functions, over arrays."""
    results, unrecorded = run_batch(RECORDER, batch, len(RESULTS))
    if unrecorded:
        _run_directly(batch, np.concatenate(unrecorded), results)
    columns = {name: results[place] for place, name in enumerate(MEASURED) if name != "memory_stage"}
    broken = {name: results[len(MEASURED) + place] == 0 for place, name in enumerate(RULES)}
    over = {}
    for name, most in (("memory", batch["memory.capacity"]), ("offloaded", _outer_bytes(batch))):
        needed = columns[f"{name}_bytes"]
        with np.errstate(divide="ignore", invalid="ignore"):  # where there are no outer tiers
            over[name] = np.where(needed > most, needed / most - 1, 0.0)
    invalid = np.logical_or.reduce(list(broken.values()))
    broken["range"] = _out_of_range(columns) & ~invalid
    excess = over["memory"] + over["offloaded"]
    excess[invalid | broken["range"]] = np.inf
    broken |= {name: share > 0 for name, share in over.items()}
    return BatchOutcome(columns, {name: those for name, those in broken.items() if those.any()}, excess)


def _run_directly(batch: Batch, rows: npt.NDArray[np.intp], results: npt.NDArray[np.float64]) -> None:
    """Write the results of designs that have no program: the physics itself, over arrays."""
    chosen = batch.take(rows, {})
    for places, part in chosen.groups(structural_paths(chosen)):
        here = rows[places]
        for place, holds in enumerate(held(part).values()):
            results[len(MEASURED) + place, here] = holds
        results[: len(MEASURED), here] = np.nan
        for found, values in _computable(part):
            for place, name in enumerate(MEASURED):
                results[place, here[found]] = values[name]


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
    memory, took = memory_of(batch), step(batch)
    seconds = took.seconds
    npus = batch.npus
    decoding = workload.task == "decode"
    tokens = batch["workload.global_batch"] * (1 if decoding else batch["workload.sequence"])
    training = workload.task == "training"
    needed = model_flop_per_token(batch.base.model, batch["workload.sequence"], training=training, decoding=decoding)
    peak = peak_flop_per_s(lambda key: batch[f"compute.{key}"], workload.precision)
    keys, places = ("topology", "npus", "bandwidth"), range(len(network.dims))
    dims = [[batch[f"network.dims.{place}.{key}"] for place in places] for key in keys]
    wires = network_usd(*dims)
    bought = capital_usd(known(batch["compute.price"]), npus, wires)
    power = npus * known(batch["compute.power"]) + network_w(*dims)
    return {
        "step_s": seconds,
        "ttft_s": seconds if workload.task == "prefill" else np.nan,
        "tpot_s": seconds if decoding else np.nan,
        "tokens_per_s": tokens / seconds,
        "mfu": needed * tokens / (seconds * npus * peak),
        "hfu": hardware_flop_per_token(batch) * tokens / (seconds * npus * peak),
        "memory_bytes": memory.total,
        "memory_stage": memory.stage,
        "offloaded_bytes": sum_of(memory.offloaded.values()),
        "cost_usd": bought,
        "network_usd": wires,
        "cost_usd_per_token": owned_usd_per_s(bought, power) * seconds / tokens,
        "energy_j": power * seconds,
        "perf_per_bandwidth": _inverse(seconds * sum_of(dims[2])),
        "perf_per_network_cost": _inverse(seconds * wires),
        **{f"memory.{name}": value for name, value in memory.parts.items()},
        **{f"breakdown.{name}": value for name, value in took.parts.items()},
    }


MEASURED = (
    *BETTER,
    "memory_stage",
    *(f"memory.{name}" for name in COMPONENTS),
    *(f"breakdown.{name}" for name in BREAKDOWN),
)
RESULTS = (*MEASURED, *(f"rule.{name}" for name in RULES))
"""What is computed of every design: its metrics, and whether it meets each rule."""


def _measured(batch: Batch) -> dict[str, Any]:
    found = _metrics(batch)
    return {name: found[name] for name in MEASURED}


def _judged(batch: Batch) -> dict[str, Any]:
    return {f"rule.{name}": holds for name, holds in held(batch).items()}


RECORDER = Recorder(_measured, _judged)
"""The programs of all structures that were evaluated (see `cosmic.recording`)."""


def _inverse(value: Any) -> Any:
    """Return 1 / value; NaN for one accelerator, which has no network."""
    positive = floats(value) > 0
    return np.where(positive, 1 / np.where(positive, value, 1.0), np.nan)
