"""Measurements, each with how it is predicted on a system whose fields are changed.

Whole steps are predicted by evaluation; single kernels, collectives and launches by the cost functions of a step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np

from cosmic.accuracy.calibrate.calibration_target import (
    Changes,
    Target,
    check_accelerator,
    measurement_noise,
    system_of_device,
)
from cosmic.accuracy.calibrate.map_estimate import Array
from cosmic.accuracy.measured_rows import Fields, Row
from cosmic.accuracy.rows.kernel_rows import ADAMW_BYTES, FORMATS, OPERATORS, attention_rates, offsets
from cosmic.base.errors import SpecError, require
from cosmic.design import schema
from cosmic.design.collective_layer import CollectiveKind
from cosmic.design.design_batch import batch_of, batch_of_changes
from cosmic.design.design_point import DesignPoint
from cosmic.design.measured_hardware import AICONFIGURATOR, find_system_with
from cosmic.evaluation import evaluate_batch
from cosmic.network.collective_costs import NetworkDimension, collective_seconds, subgroups
from cosmic.network.mesh_spans import Span
from cosmic.step.attention import Attention, attention_backward_seconds, attention_seconds
from cosmic.step.gemm import ChipLoad, gemm_seconds, matrix_unit
from cosmic.step.operator_work import model_flop_per_token
from cosmic.step.streaming import Stream, memory_traffic, optimizer_seconds, streaming_seconds
from cosmic.workload.mapping_rules import invalid_reasons

STEP = "steps"
LEAST_S, MOST_S = 1e-9, 1e7
"""Bounds of a measured time: beyond them the unit is wrong."""


@dataclass(frozen=True, slots=True)
class PredictedMeasurements:
    """Measurements of one kind that are predicted together."""

    kind: str
    names: tuple[str, ...]
    measured_s: Array
    noise: Array
    """Standard deviation of the log of each."""
    hardware: Any
    """What has the fields that parameters change: a design, whose layers they are."""
    seconds: Callable[[Sequence[Changes]], Array]
    """From changes of the hardware to predictions: a row for each change, a column for each measurement."""
    assumed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, seconds in zip(self.names, self.measured_s, strict=True):
            rule = f"a measured time must be from {LEAST_S:g} to {MOST_S:g} s: check its unit"
            require(bool(LEAST_S <= seconds <= MOST_S), name, f"{seconds:g} s", rule)


def require_valid(point: DesignPoint) -> None:
    """Refuse the mapping of a design that cannot run."""
    if reasons := invalid_reasons(point):
        raise SpecError("design", point.workload.task, f"cannot run: {'; '.join(reasons)}")


def observed_step(
    name: str, point: DesignPoint, measured_s: float, assumed: Sequence[str] = ()
) -> PredictedMeasurements:
    """Return a measured training step, prefill or decoded token of a design."""

    def seconds(changes: Sequence[Changes]) -> Array:
        first = next(iter(changes[0]), "compute.time_factor")
        full_changes = [change or {first: schema.get_field(point, first)} for change in changes]
        return np.asarray(evaluate_batch(batch_of_changes(point, full_changes)).columns["step_s"], dtype=float)[:, None]

    return PredictedMeasurements(
        STEP,
        (name,),
        np.array([measured_s]),
        np.array([measurement_noise().step]),
        point,
        seconds,
        tuple(dict.fromkeys(assumed)),
    )


def observed_kernels(
    kind: str,
    names: Sequence[str],
    measured_s: Sequence[float] | Array,
    machine: DesignPoint,
    predict: Callable[[DesignPoint], Array],
    spread: float,
) -> PredictedMeasurements:
    """Return measured kernels of one kind, which *predict* predicts for a machine; many alike count as a few."""
    shared = spread * max(1.0, len(names) / measurement_noise().alike) ** 0.5

    def seconds(changes: Sequence[Changes]) -> Array:
        return np.array(
            [predict(schema.assign_fields(machine, change) if change else machine) for change in changes], dtype=float
        )

    return PredictedMeasurements(
        kind, tuple(names), np.asarray(measured_s, float), np.full(len(names), shared), machine, seconds
    )


def on_machine(point: DesignPoint, machine: DesignPoint) -> DesignPoint:
    """Return the design *point* on the hardware of *machine*."""
    return replace(
        point,
        compute=machine.compute,
        memory=replace(machine.memory, tiers=point.memory.tiers or machine.memory.tiers),
        network=machine.network,
        collective=machine.collective,
    )


def step_seconds(point: DesignPoint, tokens_per_s: float | None = None, tera: float | None = None) -> float:
    """Return the seconds of a step from its tokens a second, or from the model's TFLOP/s of one accelerator."""
    tokens = point.workload.global_batch * point.workload.sequence
    if tokens_per_s is not None:
        return tokens / tokens_per_s
    training = point.workload.task == "training"
    decoding = point.workload.task == "decode"
    flop = model_flop_per_token(point.model, point.workload.sequence, training=training, decoding=decoding)
    return float(flop) * tokens / (float(tera or 0) * 1e12 * point.network.npus)


MILLI, MICRO = 1e-3, 1e-6
QUEUED = ("queued", "graph")
"""How kernels were timed where no host time is in between: mean of queued calls, or replayed from a CUDA graph."""
KINDS = {"alltoall": "all_to_all"}


def _timing(fields: Fields) -> bool:
    """Return whether a row's time has host time in it, as where events are recorded around a single eager call."""
    text = fields.text("timing", "events")
    require(text in (*QUEUED, "events"), "timing", text, f"must be events, {' or '.join(QUEUED)}")
    return text == "events"


def _check_hardware(target: Target, row: Row) -> None:
    name = row.get("hardware") or ""
    if name in AICONFIGURATOR:
        check_accelerator(target, find_system_with(AICONFIGURATOR[name]), "hardware", name)
    device = row.get("device") or ""
    check_accelerator(target, system_of_device(device), "device", device)


def observed_gemms(rows: Sequence[Row], target: Target, _: list[str]) -> list[PredictedMeasurements]:
    """Return GEMMs: one group for each number format and way of timing."""
    groups: dict[tuple[str, bool, bool, bool], list[tuple[str, list[float]]]] = {}
    for row in rows:
        _check_hardware(target, row)
        fields = Fields(row)
        number = fields.text("dtype") or fields.text("gemm_dtype")
        require(number in FORMATS, "dtype", number, f"must be one of {', '.join(FORMATS)}")
        is_alone = "latency" in row
        seconds = fields.seconds("latency" if is_alone else "ms", MILLI)
        sizes = [fields.whole(name) for name in ("m", "n", "k")]
        name = f"GEMM {'x'.join(map(str, sizes))} {number}"
        timing = FORMATS[number], is_alone, not is_alone and _timing(fields), fields.text("mode") == "precast"
        groups.setdefault(timing, []).append((name, [*sizes, seconds]))
    groups_observed = []
    for (number, is_alone, eager, cast), group in groups.items():
        m, n, k, seconds = np.array([cells for _, cells in group]).T
        added = offsets().gemm_s if eager else 0.0

        def predict(
            point: DesignPoint,
            sizes: tuple[Array, Array, Array] = (m, n, k),
            number: str = number,
            load: ChipLoad = "alone" if is_alone else "repeated",
            added: float = added,
            cast: bool = cast,
        ) -> Array:
            unit = matrix_unit(
                lambda key: schema.get_field(point, f"compute.{key}"),
                point.memory.bandwidth_bytes_per_s,
                number,
                load=load,
            )
            unit = replace(unit, cast_s=0.0, cast_s_per_element=0.0) if cast else unit
            return np.asarray(gemm_seconds(1, *sizes, unit), dtype=float) + added

        names = [name for name, _ in group]
        groups_observed.append(
            observed_kernels("GEMMs", names, seconds, target.machine, predict, measurement_noise().kernel)
        )
    return groups_observed


def observed_attention(rows: Sequence[Row], target: Target, _: list[str]) -> list[PredictedMeasurements]:
    """Return fused attention, forward and backward; a row may have either time or both."""
    works, names, times = list[tuple[Attention, str, float]](), list[str](), list[float]()
    for row in rows:
        _check_hardware(target, row)
        fields = Fields(row)
        batch, heads, kv_heads, tokens, width = (
            fields.whole(name) for name in ("batch", "heads", "kv_heads", "seq", "head_dim")
        )
        causal = fields.text("causal", "0").lower() in ("1", "1.0", "true", "yes")
        visible = (1 + 1 / tokens) / 2 if causal else 1.0
        work = Attention(batch, heads, kv_heads, tokens, tokens, width, width, visible)
        eager = _timing(fields)
        phases = [phase for phase in ("fwd", "bwd") if fields.text(f"{phase}_ms")]
        require(bool(phases), "fwd_ms", "", "is not given, nor bwd_ms")
        for phase in phases:
            added = offsets().attention_forward_s if phase == "fwd" else offsets().attention_backward_s
            works.append((work, phase, added if eager else 0.0))
            names.append(f"attention {batch}x{heads}x{tokens}x{width} {phase}")
            times.append(fields.seconds(f"{phase}_ms", MILLI))

    def predict(point: DesignPoint) -> Array:
        rates = attention_rates(point.compute, point.memory)
        run = {"fwd": attention_seconds, "bwd": attention_backward_seconds}
        return np.array([float(run[phase](work, rates)) + added for work, phase, added in works])

    return [observed_kernels("attention", names, times, target.machine, predict, measurement_noise().kernel)]


def observed_memory(rows: Sequence[Row], target: Target, skipped: list[str]) -> list[PredictedMeasurements]:
    """Return operators that stream through memory."""
    works, names, times = list[tuple[str, int, float]](), list[str](), list[float]()
    for row in rows:
        _check_hardware(target, row)
        fields = Fields(row)
        operator, elements = fields.text("op"), fields.whole("rows") * fields.whole("cols", 1)
        if operator not in OPERATORS and not operator.startswith("adamw"):
            skipped.append(
                str(SpecError("op", operator, f"is no operator of a step, which are {', '.join(OPERATORS)}, adamw"))
            )
            continue
        works.append((operator, elements, offsets().streaming_s if _timing(fields) else 0.0))
        names.append(f"{operator} {elements:,}")
        times.append(fields.seconds("ms", MILLI))

    def predict(point: DesignPoint) -> Array:
        compute = point.compute
        rate = point.memory.bandwidth_bytes_per_s * compute.memory_efficiency
        stream = Stream(rate, compute.stream_ramp_bytes)
        return np.array([_streamed(operator, elements, stream) + added for operator, elements, added in works])

    if not names:
        return []
    return [observed_kernels("memory operators", names, times, target.machine, predict, measurement_noise().kernel)]


def _streamed(operator: str, elements: int, stream: Stream) -> float:
    if operator.startswith("adamw"):
        return float(optimizer_seconds(elements, ADAMW_BYTES, stream))
    kind, phases = OPERATORS[operator]
    return sum(float(streaming_seconds(memory_traffic(kind, phase), elements, 2, stream)) for phase in phases)


def observed_launches(rows: Sequence[Row], target: Target, skipped: list[str]) -> list[PredictedMeasurements]:
    """Return the host's time to launch a kernel of a training step's forward pass; others say nothing of a field."""
    names, times = list[str](), list[float]()
    for row in rows:
        fields = Fields(row)
        mode = fields.text("mode", "autograd")
        if mode == "autograd":
            names.append("launch")
            times.append(fields.seconds("host_us", MICRO))
        else:
            skipped.append(f"launches {mode}: no field of a system says what they take")
    if not names:
        return []
    require(target.machine.compute.host_launch_s > 0, "compute.host_launch", 0, "the system states none to calibrate")
    count = len(names)
    predict = lambda point: np.full(count, point.compute.host_launch_s)  # noqa: E731  as short as its name
    return [observed_kernels("launches", names, times, target.machine, predict, measurement_noise().launch)]


def observed_collectives(rows: Sequence[Row], target: Target, _: list[str]) -> list[PredictedMeasurements]:
    """Return collectives, as nccl-tests measures them: the size is the whole buffer."""
    dims = target.machine.network.dims
    require(bool(dims), "network", "one accelerator", "there is no link to calibrate")
    sizes: dict[tuple[CollectiveKind, tuple[Span, ...]], list[tuple[int, int]]] = {}
    names, times = list[str](), list[float]()
    for index, row in enumerate(rows):
        fields = Fields(row)
        stated_kind = fields.text("collective")
        kind = KINDS.get(stated_kind, stated_kind)
        require(kind in get_args(CollectiveKind), "collective", stated_kind, "no such collective")
        ranks, nodes = fields.whole("n_ranks"), fields.whole("n_nodes", 1)
        require(ranks % nodes == 0, "n_nodes", nodes, f"must divide the {ranks} ranks")
        require(ranks > 1, "n_ranks", ranks, "a collective has at least 2 ranks")
        size = fields.whole("size_bytes")
        checked_kind: CollectiveKind = kind  # type: ignore[assignment]  # it was checked above
        sizes.setdefault((checked_kind, _spans(target, ranks, nodes)), []).append((index, size))
        names.append(f"{kind} {size:,} B, {ranks} ranks")
        times.append(fields.seconds("time_us", MICRO))

    def predict(point: DesignPoint) -> Array:
        batch = batch_of(point)
        lanes = [NetworkDimension.of(batch, index) for index in range(len(dims))]
        predicted = np.empty(len(names))
        for (kind, spans), group in sizes.items():
            indices, bytes_of_group = np.array(group).T
            predicted[indices] = _collective(lanes, spans, kind, bytes_of_group.astype(float), point.collective.chunks)
        return predicted

    return [observed_kernels("collectives", names, times, target.machine, predict, measurement_noise().collective)]


def _collective(
    lanes: Sequence[NetworkDimension], spans: Sequence[Span], kind: CollectiveKind, size: Array, chunks: int
) -> Array:
    """Return the seconds of collectives of several sizes."""
    used = [index for index, span in enumerate(spans) if float(span.members) > 1]
    group = subgroups([lanes[index] for index in used], [spans[index] for index in used])
    seconds = collective_seconds(group, kind, size, chunks if len(used) > 1 else 1, "blueconnect")
    return np.broadcast_to(np.asarray(seconds, dtype=float), size.shape)


def _spans(target: Target, ranks: int, nodes: int) -> tuple[Span, ...]:
    """Return how many ranks are in each dimension of the system; a rack's dimension joins hosts, too."""
    dims = target.machine.network.dims
    ranks_inside = ranks // nodes
    if ranks <= dims[0].npus and (nodes == 1 or (ranks_inside * nodes <= dims[0].npus and dims[0].npus > 16)):
        ranks_inside, nodes = ranks, 1
    if ranks_inside > dims[0].npus:
        raise SpecError("n_ranks", ranks, f"a node has at most {dims[0].npus} accelerators: say n_nodes")
    if nodes > 1 and len(dims) == 1:
        raise SpecError("n_nodes", nodes, "the system has no network between nodes")
    members = [ranks_inside, nodes, *[1] * len(dims)][: len(dims)]
    return tuple(Span(float(member), 1.0) for member in members)
