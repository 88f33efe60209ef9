"""Rows of single kernels: GEMMs, fused attention, and operators that stream through memory.

Each file is predicted as arrays, by the cost functions of a step. The prediction follows how a kernel was measured:
aiconfigurator replays GEMMs from a CUDA graph, a few times on a cool chip. The project's own rows are eager PyTorch,
many times: the chip is warm, and the host adds an offset between the events (`offsets`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.accuracy.measured_rows import OWN_ACCELERATOR, Fields, Row, Verdict, compare_row
from cosmic.base.errors import SpecError, require
from cosmic.design import catalog_entries, schema
from cosmic.design.compute_layer import Compute
from cosmic.design.machine_layers import accelerator_layers
from cosmic.design.measured_hardware import AICONFIGURATOR
from cosmic.design.memory_layer import Memory
from cosmic.step.attention import Attention, AttentionRates, attention_backward_seconds, attention_seconds
from cosmic.step.gemm import ChipLoad, gemm_seconds, matrix_unit
from cosmic.step.streaming import PassPhase, Stream, memory_traffic, optimizer_seconds, streaming_seconds

FORMATS = {"bf16": "bf16", "bfloat16": "bf16", "fp16": "fp16", "fp8": "fp8", "fp8_block": "fp8_block", "nvfp4": "fp4"}
FORWARD: tuple[PassPhase, ...] = ("forward",)
OPERATORS: dict[str, tuple[str, tuple[PassPhase, ...]]] = {
    "copy": ("copy", FORWARD),
    "add": ("add", FORWARD),
    "gelu": ("gelu", FORWARD),
    "layernorm": ("norm", FORWARD),
    "rmsnorm": ("norm", FORWARD),
    "softmax": ("softmax", FORWARD),
    "cross_entropy": ("loss", ("forward", "backward")),
}
"""Kind of a measured operator in the workload, and the passes that were measured. A copy is not listed among the
kinds: it reads and writes each element once."""
ADAMW_BYTES = 14
"""Bytes that fused AdamW moves per parameter in pure bf16: 4 numbers read, 3 written."""
MILLI = 1e-3
Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offsets:
    """Seconds between the events around an eager kernel, beyond the kernel: host time in our own measurements."""

    gemm_s: float
    attention_forward_s: float
    attention_backward_s: float
    streaming_s: float


@cache
def offsets() -> Offsets:
    """Return the offsets that the calibration fitted."""
    entry = catalog_entries.load_mapping(catalog_entries.CATALOG_FOLDER / "measurement_offsets.yaml")
    fitted: Offsets = schema.read_value(Offsets, entry["offsets"], "measurement_offsets.yaml offsets")
    return fitted


def compare_rows(rows: Sequence[Row]) -> list[Verdict]:
    """Return a verdict on each kernel, or two where a row has a forward and a backward time."""
    if "gemm_dtype" in rows[0]:
        return _grouped(rows, ("hardware", "gemm_dtype"), _graph_gemms)
    if "k" in rows[0]:
        return _grouped(rows, ("dtype",), _own_gemms)
    if "fwd_ms" in rows[0]:
        return [verdict for row in rows for verdict in _attention(row)]
    return [_streamed(row) for row in rows]


def _grouped(
    rows: Sequence[Row], keys: tuple[str, ...], compare_group: Callable[[Sequence[Row]], list[Verdict]]
) -> list[Verdict]:
    """Return the verdicts on rows, grouped by the columns *keys*."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(key, "") for key in keys), []).append(row)
    verdicts = []
    for group in groups.values():
        try:
            verdicts += compare_group(group)
        except SpecError as error:
            verdicts += [_skipped_verdict(row, error) for row in group]
    return verdicts


def _skipped_verdict(row: Row, error: SpecError) -> Verdict:
    return Verdict(id=_name(row), set=_gemm_set(row), row=row, skipped=str(error))


# ---- GEMMs


def _graph_gemms(rows: Sequence[Row]) -> list[Verdict]:
    name = rows[0]["hardware"]
    require(name in AICONFIGURATOR, "hardware", name, f"must be one of {', '.join(AICONFIGURATOR)}")
    return _gemms(rows, AICONFIGURATOR[name], ("latency", MILLI), "alone")


def _own_gemms(rows: Sequence[Row]) -> list[Verdict]:
    return _gemms(rows, OWN_ACCELERATOR, ("ms", MILLI), "repeated")


def _gemms(rows: Sequence[Row], accelerator: str, time: tuple[str, float], load: ChipLoad) -> list[Verdict]:
    number = rows[0].get("gemm_dtype") or rows[0].get("dtype", "")
    require(number in FORMATS, "dtype", number, f"must be one of {', '.join(FORMATS)}")
    compute, memory = accelerator_layers(accelerator, "accelerator")
    unit = matrix_unit(_field(compute), memory.bandwidth_bytes_per_s, FORMATS[number], load=load)
    read, verdicts = list[tuple[Row, Numbers]](), list[Verdict]()
    for row in rows:
        try:
            read.append((row, _cells(row, time)))
        except SpecError as error:  # of this row: the others are predicted
            verdicts.append(_skipped_verdict(row, error))
    m, n, k, measured = np.array([cells for _, cells in read]).reshape(-1, 4).T
    seconds = np.asarray(gemm_seconds(1, m, n, k, unit)) + (offsets().gemm_s if load == "repeated" else 0.0)
    verdicts += [
        Verdict(
            id=_name(row),
            set=_gemm_set(row),
            row={**row, "size": _size(row)},
            measured_s=float(measured_s),
            predicted_s=float(expected),
        )
        for (row, _), measured_s, expected in zip(read, measured, seconds, strict=True)
    ]
    return verdicts


def _cells(row: Row, time: tuple[str, float]) -> Numbers:
    """Return the sizes of a GEMM and its measured time in seconds."""
    fields = Fields(row)
    return np.array([*(fields.whole(name) for name in ("m", "n", "k")), fields.seconds(*time)], dtype=float)


def _field(compute: Compute) -> Callable[[str], Any]:
    """Return a function that looks up an accelerator's fields by key."""
    slots = schema.slots(Compute)
    return lambda key: getattr(compute, slots[key].name)


def _name(row: Row) -> str:
    sizes = "x".join(row.get(name, "") for name in ("m", "n", "k"))
    return "-".join(filter(None, (row.get("hardware", ""), row.get("gemm_dtype") or row.get("dtype", ""), sizes)))


def _gemm_set(row: Row) -> str:
    hardware = row.get("hardware")
    number = row.get("gemm_dtype") or row.get("dtype", "")
    return f"gemm {hardware} {number} {_size(row)}" if hardware else f"h200-gemm {_size(row)}"


def _size(row: Row) -> str:
    """Return the size class of a GEMM by its operations."""
    try:
        flop = 2 * float(row["m"]) * float(row["n"]) * float(row["k"])
    except (KeyError, ValueError):
        return "unknown"
    return "≥ 10 GFLOP" if flop >= 1e10 else "1–10 GFLOP" if flop >= 1e9 else "< 1 GFLOP"


# ---- attention, streaming


def _attention(row: Row) -> list[Verdict]:
    fields = Fields(row)
    names = ("batch", "heads", "kv_heads", "seq", "head_dim")
    name = "attention-" + "-".join(row.get(column, "") for column in (*names, "causal"))
    try:
        batch, heads, kv_heads, tokens, width = (fields.whole(column) for column in names)
        times = {phase: fields.seconds(f"{phase}_ms", MILLI) for phase in ("fwd", "bwd")}
    except SpecError as error:
        return [Verdict(id=name, set="h200-attention", row=row, skipped=str(error))]
    causal = fields.text("causal", "0") == "1"
    visible = (1 + 1 / tokens) / 2 if causal else 1.0
    work = Attention(batch, heads, kv_heads, tokens, tokens, width, width, visible)
    rates = attention_rates(*accelerator_layers(OWN_ACCELERATOR, "accelerator"))
    seconds = {"fwd": attention_seconds(work, rates), "bwd": attention_backward_seconds(work, rates)}
    added = {"fwd": offsets().attention_forward_s, "bwd": offsets().attention_backward_s}
    return [
        Verdict(
            id=f"{name}-{phase}",
            set=f"h200-attention {phase}",
            row=row,
            measured_s=times[phase],
            predicted_s=float(seconds[phase]) + added[phase],
        )
        for phase in times
    ]


def attention_rates(compute: Compute, memory: Memory) -> AttentionRates:
    """Return what an accelerator's attention kernels reach."""
    return AttentionRates(
        peak_flop_per_s=compute.bf16_flop_per_s,
        bytes_per_s=memory.bandwidth_bytes_per_s * compute.memory_efficiency,
        efficiency=compute.attention_efficiency,
        backward_efficiency=compute.attention_backward_efficiency,
        ramp_s=compute.attention_ramp_s,
        sms=compute.sms,
    )


def _streamed(row: Row) -> Verdict:
    name = "-".join(row.get(column, "") for column in ("op", "rows", "cols"))
    return compare_row(row, name, f"h200-memory {_amount(row)}", _streaming)


def _amount(row: Row) -> str:
    """Return the size class of an operator by the bytes that it moves."""
    try:
        return "≥ 64 MB" if float(row["bytes"]) >= 64e6 else "< 64 MB"
    except ValueError:
        return "unknown"


def _streaming(fields: Fields) -> Verdict:
    operator, elements = fields.text("op"), fields.whole("rows") * fields.whole("cols", 1)
    compute, memory = accelerator_layers(OWN_ACCELERATOR, "accelerator")
    stream = Stream(memory.bandwidth_bytes_per_s * compute.memory_efficiency, compute.stream_ramp_bytes)
    if operator.startswith("adamw"):
        seconds = optimizer_seconds(elements, ADAMW_BYTES, stream)
    else:
        require(operator in OPERATORS, "op", operator, "no operator of a step")
        kind, phases = OPERATORS[operator]
        seconds = sum(streaming_seconds(memory_traffic(kind, phase), elements, 2, stream) for phase in phases)
    return Verdict(
        row=fields.row, measured_s=fields.seconds("ms", MILLI), predicted_s=float(seconds) + offsets().streaming_s
    )
