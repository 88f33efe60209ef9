"""Files of measurements: told apart by what they hold, then read as measurements of one system.

CSV    published training runs, and the kinds of rows of `cosmic calibrate validate` that one system explains
       ``design``, a time, and columns that are fields of the design
       a column ``kind``: what `cosmic calibrate probe` writes, rows of several kinds
text   the output of nccl-tests
JSON   a trace of Kineto

The output of nccl-tests (all_reduce_perf and its siblings) becomes rows of collectives:

    # nThread 1 nGpus 8 minBytes 8 maxBytes 8589934592 …
    #  Rank  0 Group  0 Pid  12 on  node-1 device  0 [0x1b] NVIDIA H100 80GB HBM3
    #       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
             8           2     float     sum      -1    10.37    0.00    0.00      0    10.12    0.00    0.00      0

The name of the program says the collective, if its line is there; otherwise how bus bandwidth follows from algorithm
bandwidth tells an all-reduce from others. Sizes are whole buffers. Of out-of-place and in-place times the
smaller counts.

Of a Kineto trace (PyTorch's profiler) count the step, and the seconds of its kernels by class. Steps begin where the host marks ``ProfilerStep#``; the last ends with its mark, or with its last kernel. The profiler
slows the host down: the time of a step counts only where kernels fill most of it. Kernels of NCCL wait for other ranks
inside, and are not used.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from cosmic.accuracy.calibrate.calibration_target import (
    Changes,
    Target,
    check_accelerator,
    measurement_noise,
    system_of_design,
    system_of_device,
)
from cosmic.accuracy.calibrate.map_estimate import Array
from cosmic.accuracy.calibrate.predicted_measurements import (
    PredictedMeasurements,
    observed_attention,
    observed_collectives,
    observed_gemms,
    observed_launches,
    observed_memory,
    observed_step,
    on_machine,
    require_valid,
    step_seconds,
)
from cosmic.accuracy.measured_rows import KINDS, MOST_BYTES, Fields, Row, parse_table
from cosmic.accuracy.rows.single_gpu_rows import inference_design, training_design
from cosmic.accuracy.rows.training_rows import read_run, require_fit
from cosmic.base.errors import SpecError, require
from cosmic.base.files import LARGEST_BYTES, Unreadable, read_bytes
from cosmic.base.numeric import sum_of
from cosmic.design.design_batch import batch_of_changes
from cosmic.design.design_point import DesignPoint, full_path
from cosmic.design.measured_hardware import AICONFIGURATOR, find_system
from cosmic.design.plain_data import parse_yaml
from cosmic.search.mapping.design_completion import complete_design
from cosmic.search.study.measured_runs import LABEL_COLUMNS, SHORT_COLUMNS
from cosmic.step.attention import Attention
from cosmic.step.gemm import Gemm
from cosmic.step.step_profile import profile_step

TIMES = ("step_s", "step_ms", "tokens_per_s", "tokens_per_s_per_accel", "tflops", "tflops_per_accel")
"""Columns that give a step's time, of which a row needs one."""
SIZES = ("gpus", "n_accel", "npus")
OF_SYSTEM = ("system", "compute", "memory", "network")


Reader = Callable[[Sequence[Row], Target, list[str]], list[PredictedMeasurements]]
"""From rows of a kind to measurements of a system; what is left out is noted in the list, a sentence each."""


@dataclass(frozen=True, slots=True)
class MeasurementTable:
    """Measurements of a file: the systems that they name, and how they become measurements of one."""

    name: str
    systems: frozenset[str]
    rows: int
    observed: Callable[[Target], list[PredictedMeasurements]]
    skipped: list[str]
    """Rows that are left out, a sentence each; known once they are asked for."""


def read_tables(path: str | Path) -> list[MeasurementTable]:
    """Return the measurements in the file at *path*."""
    name = Path(path).name
    data = read_bytes(path, "data", MOST_BYTES)
    if is_kineto(data):
        return [_trace(data, name)]
    require(
        b"\0" not in data, "data", str(path), "is neither a CSV file, nor the output of nccl-tests, nor a Kineto trace"
    )
    try:
        text = data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError:
        raise Unreadable("data", str(path), "is not text in UTF-8") from None
    if is_nccl_tests(text):
        return [_of_rows(name, "collective", read_nccl_tests(text, name))]
    return _csv(text, path, name)


def _csv(text: str, path: str | Path, name: str) -> list[MeasurementTable]:
    columns, rows = parse_table(text, path)
    require(bool(rows), name, 0, "there are no rows")
    if "kind" in columns and not {"design", *TIMES} & set(columns) - {"step_ms"}:
        kinds = dict.fromkeys(row["kind"].strip() for row in rows)
        return [_of_rows(name, kind, [row for row in rows if row["kind"].strip() == kind]) for kind in kinds]
    row_kind = next((kind for kind in KINDS if kind.columns <= set(columns)), None)
    if row_kind is not None:
        require(
            row_kind.name in CARRIED,
            name,
            row_kind.name,
            f"rows of this kind say nothing about one system; {_expected_columns()}",
        )
        return [_of_rows(name, CARRIED[row_kind.name], rows)]
    if set(TIMES) & set(columns):
        return [_of_rows(name, "design", rows)]
    raise SpecError(name, ", ".join(columns), f"these columns are of no known kind; {_expected_columns()}")


def _expected_columns() -> str:
    return f"give design and one of {', '.join(TIMES)}, or the columns of {', '.join(CARRIED)}"


CARRIED = {
    "training runs": "run",
    "training steps of one GPU": "step",
    "prefill and decode of one GPU": "served",
    "GEMMs": "gemm",
    "GEMMs of several GPUs": "gemm",
    "attention": "attention",
    "memory-bound operators": "memory",
    "collectives": "collective",
}
"""Kinds of rows that `cosmic calibrate validate` knows, as kinds of this package."""


def _of_rows(name: str, kind: str, rows: Sequence[Row]) -> MeasurementTable:
    require(kind in READERS, f"{name} kind", kind, f"must be one of {', '.join(READERS)}")
    named = {_system(row, kind) for row in rows}
    skipped: list[str] = []

    def observed(target: Target) -> list[PredictedMeasurements]:
        try:
            return READERS[kind](rows, target, skipped)
        except SpecError as error:
            raise error.inside(name) from None

    return MeasurementTable(name, frozenset(named - {""}), len(rows), observed, skipped)


def _system(row: Row, kind: str) -> str:
    """Return the system that a row names; empty if none."""
    if kind == "run":
        return find_system(row.get("accel") or "")
    if kind == "design":
        source = (row.get("design") or "").strip()
        return system_of_design(source) if source else ""
    hardware = row.get("hardware") or ""
    return find_system(AICONFIGURATOR.get(hardware, "")) or system_of_device(row.get("device") or "")


# ---- steps


def _designs(rows: Sequence[Row], target: Target, _: list[str]) -> list[PredictedMeasurements]:
    return [_design_row(row, index, target) for index, row in enumerate(rows, 1)]


def _design_row(row: Row, number: int, target: Target) -> PredictedMeasurements:
    fields = Fields(row)
    name = fields.text("id") or fields.text("name") or f"row {number}"
    source = fields.text("design")
    try:
        point, assumed = _point(source, _settings(row), target)
        require_valid(point)
        return observed_step(name, point, _step_s(fields, point), assumed)
    except SpecError as error:
        raise error.inside(f"row {number}") from None


def _point(source: str, settings: Mapping[str, Any], target: Target) -> tuple[DesignPoint, list[str]]:
    if not source:
        if target.design is None:
            raise SpecError("design", "", "is not given: name a design in each row, or one for all with --on")
        completed = complete_design(_as_tree(target.design), dict(settings))
    else:
        check_accelerator(target, system_of_design(source), "design", source)
        completed = complete_design(source, dict(settings))
        if target.name and system_of_design(source) != target.name:
            completed = replace(
                completed, point=on_machine(completed.point, target.sized(completed.point.network.npus))
            )
    return completed.point, completed.mapping_in_words("cosmic search")


def _as_tree(point: DesignPoint) -> Mapping[str, Any]:
    from cosmic.design.loading import design_tree  # noqa: PLC0415  only where --on is given

    return design_tree(point)


def _settings(row: Row) -> dict[str, Any]:
    """Return the fields of the design that columns set; empty cells set none."""
    settings = {}
    for column, cell in row.items():
        if column in (*LABEL_COLUMNS, *TIMES, "design") or not (cell or "").strip():
            continue
        path = SHORT_COLUMNS.get(column, column)
        require(path not in SIZES, column, cell, "write the size behind the system: MODEL@SYSTEM:SIZE")
        field_path = full_path(path)
        rule = "is a field of the system, not of a run: write a system's file, and name it with --system"
        require(not field_path.startswith(OF_SYSTEM), column, cell, rule)
        settings[field_path] = parse_yaml(cell.strip(), column)
    return settings


def _step_s(fields: Fields, point: DesignPoint) -> float:
    stated_times = [name for name in TIMES if fields.text(name)]
    require(len(stated_times) == 1, "time", ", ".join(stated_times), f"give one of {', '.join(TIMES)}")
    value = float(fields.number(stated_times[0]) or 0.0)
    if stated_times[0] in ("step_s", "step_ms"):
        return value * (1e-3 if stated_times[0] == "step_ms" else 1.0)
    if stated_times[0].startswith("tokens"):
        return step_seconds(point, tokens_per_s=value * (point.network.npus if "per_accel" in stated_times[0] else 1))
    return step_seconds(point, tera=value)


def _runs(rows: Sequence[Row], target: Target, skipped: list[str]) -> list[PredictedMeasurements]:
    """Return published runs; one that leaves too much open is skipped, unless all do."""
    runs = []
    for index, row in enumerate(rows, 1):
        fields = Fields(row)
        name = fields.text("id", f"row {index}")
        check_accelerator(target, _system(row, "run"), f"{name}.accel", fields.text("accel"))
        try:
            run = read_run(fields)
            require_fit(run.point)
            runs.append(observed_step(name, run.point, run.measured_s, fields.assumed))
        except SpecError as error:
            skipped.append(str(error.inside(name)))
            if len(skipped) == len(rows):
                raise error.inside(name) from None
    return runs


def _single(design: Callable[[Fields], DesignPoint], time: str) -> Reader:
    def read(rows: Sequence[Row], target: Target, _: list[str]) -> list[PredictedMeasurements]:
        rows_read = []
        for index, row in enumerate(rows, 1):
            check_accelerator(target, system_of_device(row.get("device") or ""), "device", row.get("device") or "")
            fields = Fields(row)
            point = on_machine(design(fields), target.sized(1))
            name = fields.text("id") or f"{fields.text('style') or fields.text('phase')} step {index}"
            rows_read.append(observed_step(name, point, fields.seconds(time, 1e-3)))
        return rows_read

    return read


def _trace(data: bytes, name: str) -> MeasurementTable:
    step = read_kineto(data, name)
    skipped: list[str] = []

    def observed(target: Target) -> list[PredictedMeasurements]:
        check_accelerator(target, system_of_device(step.device), name, step.device)
        if target.design is None:
            raise SpecError(name, "", "does not say which design it is of: name it with --on DESIGN")
        require_valid(target.design)
        return observed_trace(step, target.design, name, skipped)

    return MeasurementTable(name, frozenset({system_of_device(step.device)} - {""}), 1, observed, skipped)


READERS: dict[str, Reader] = {
    "design": _designs,
    "run": _runs,
    "step": _single(training_design, "step_ms"),
    "served": _single(inference_design, "ms"),
    "gemm": observed_gemms,
    "attention": observed_attention,
    "memory": observed_memory,
    "launch": observed_launches,
    "collective": observed_collectives,
}
"""How rows of each kind are read."""


PROGRAMS: Mapping[str, str] = {
    "all_reduce_perf": "all_reduce",
    "all_gather_perf": "all_gather",
    "reduce_scatter_perf": "reduce_scatter",
    "alltoall_perf": "all_to_all",
}
TITLES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
}
_RANK = re.compile(r"^#\s*Rank\s+(\d+)\b.*?\bon\s+(\S+)", re.MULTILINE)
_DEVICE = re.compile(r"^#\s*Rank\s+\d+\b.*?device\s+\d+\s+\[[^\]]*\]\s*(.+?)\s*$", re.MULTILINE)
_GPUS = re.compile(r"\bnGpus\s+(\d+)")
_ROW = re.compile(r"^\s*(\d+)\s+(\d+)\s+(\S+)\s+(.*)$")
SMALLEST = 2**20
"""Bytes from which two bandwidths are large enough to tell collectives apart."""
COLUMNS = 4
"""Of each way: time, algbw, busbw, #wrong."""


def is_nccl_tests(text: str) -> bool:
    """Return whether *text* looks like the output of nccl-tests."""
    return "algbw" in text and "busbw" in text


def read_nccl_tests(text: str, where: str) -> list[Row]:
    """Return the rows of an output: one for each size."""
    ranks, nodes = _ranks(text, where)
    measurements = [measurement for line in text.splitlines() if (measurement := _measured(line)) is not None]
    require(bool(measurements), where, 0, "there is no measured size in this output of nccl-tests")
    kind = _collective(f"{where} {text}") or _by_bandwidth(measurements, ranks)
    require(
        bool(kind), where, "", f"does not say its collective: name the file after its program: {', '.join(PROGRAMS)}"
    )
    device = _DEVICE.search(text)
    return [
        {
            "collective": kind,
            "n_ranks": str(ranks),
            "n_nodes": str(nodes),
            "size_bytes": str(size),
            "time_us": repr(min(times)),
            "device": device[1] if device else "",
        }
        for size, times, _, _ in measurements
    ]


def _ranks(text: str, where: str) -> tuple[int, int]:
    """Return how many ranks there are, and on how many hosts."""
    listed = dict(_RANK.findall(text))
    if listed:
        return len(listed), len(set(listed.values()))
    gpus = _GPUS.search(text)
    if gpus is None or int(gpus[1]) < 2:
        raise SpecError(where, "", "the header does not list its ranks: keep the lines that begin with '#'")
    return int(gpus[1]), 1


def _measured(line: str) -> tuple[int, list[float], float, float] | None:
    """Return size, times in µs, and the algorithm and bus bandwidth of a line; None if it is none of a size.

    What stands between the type and the times (redop, root) differs from program to program.

    >>> _measured("  1048576  262144  float  sum  -1  61.3  17.1  29.9  0  60.2  17.4  30.5  0")
    (1048576, [61.3, 60.2], 17.1, 29.9)
    """
    match = _ROW.match(line)
    if match is None:
        return None
    cells = match[4].split()
    timing_cells = cells[-2 * COLUMNS :] if len(cells) >= 2 * COLUMNS else cells[-COLUMNS:]
    if len(timing_cells) < COLUMNS - 1:
        return None
    try:
        times = [float(timing_cells[index]) for index in range(0, len(timing_cells), COLUMNS)]
        algorithm, bus = float(timing_cells[1]), float(timing_cells[2])
    except ValueError:
        return None
    positive_times = [time for time in times if time > 0]
    return (int(match[1]), positive_times, algorithm, bus) if positive_times and int(match[1]) > 0 else None


def _collective(text: str) -> str:
    """Return the collective that a line names: the program, or the title of newer releases."""
    for program, kind in PROGRAMS.items():
        if program in text:
            return kind
    title = re.search(r"Collective test starting: (\w+)_perf", text)
    return TITLES.get(title[1].lower().replace("_", ""), "") if title else ""


def _by_bandwidth(rows: list[tuple[int, list[float], float, float]], ranks: int) -> str:
    """Return an all-reduce where bus bandwidth is 2 (p - 1) / p of the algorithm's; others cannot be told apart."""
    large = [bus / algorithm for size, _, algorithm, bus in rows if size >= SMALLEST and algorithm > 0]
    if not large:
        return ""
    ratio = sorted(large)[len(large) // 2]
    all_reduce_factor, one_way_factor = 2 * (ranks - 1) / ranks, (ranks - 1) / ranks
    return "all_reduce" if abs(ratio - all_reduce_factor) < abs(ratio - one_way_factor) else ""


MICRO = 1e-6
CLASSES = (
    ("collectives", re.compile(r"nccl|rccl", re.IGNORECASE)),
    ("attention", re.compile(r"flash|fmha|sdpa|attention|compute_dot_do_o|convert_dq", re.IGNORECASE)),
    ("optimizer", re.compile(r"multi_tensor_apply|adam", re.IGNORECASE)),
    ("GEMMs", re.compile(r"gemm|nvjet|xmma|cutlass|cublas|Cijk_|_mm_|matmul", re.IGNORECASE)),
)
"""Classes of kernels by what their names contain; all others stream through memory."""
STREAMED = "memory operators"
USED = ("GEMMs", "attention", STREAMED)
DEVICE_EVENTS = ("kernel", "gpu_memcpy", "gpu_memset")
STEP = re.compile(r"ProfilerStep#\d+")
FULL = 0.7
"""A step counts where kernels run for at least this share of it."""


@dataclass(frozen=True, slots=True)
class TracedStep:
    """What one step of a trace took on the device, on average over its steps."""

    step_s: float
    seconds: Mapping[str, float]
    """By class of kernels."""
    steps: int
    device: str

    @property
    def busy(self) -> float:
        """The share of the step in which kernels run; more than 1 where they overlap."""
        return sum(self.seconds.values()) / self.step_s


def is_kineto(data: bytes) -> bool:
    """Return whether *data* looks like a trace of Kineto, compressed or not."""
    return data[:2] == b"\x1f\x8b" or b'"traceEvents"' in data


def read_kineto(data: bytes, where: str) -> TracedStep:
    """Return the steps of a trace."""
    tree = _tree(data, where)
    events = tree.get("traceEvents") if isinstance(tree, dict) else None
    require(isinstance(events, list), where, type(tree).__name__, "is no trace of Kineto: it has no traceEvents")
    kernels = [_Kernel.of(event) for event in events or [] if _category(event) in DEVICE_EVENTS]
    spans = _spans(events or [], max((kernel.end for kernel in kernels), default=0.0))
    require(bool(spans), where, 0, "there are no steps in this trace: call the profiler's step() after each")
    totals: dict[str, float] = defaultdict(float)
    for kernel in kernels:
        if any(first <= kernel.start < last for first, last in spans):
            totals[_class(kernel.name)] += kernel.took * MICRO
    require(bool(totals), where, 0, "there are no kernels in the steps of this trace: trace CUDA, too")
    step_s = median(last - first for first, last in spans) * MICRO
    return TracedStep(step_s, {kind: total / len(spans) for kind, total in totals.items()}, len(spans), _device(tree))


@dataclass(frozen=True, slots=True)
class _Kernel:
    """What ran on the device, in µs."""

    name: str
    start: float
    took: float

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> _Kernel:
        return cls(str(event.get("name", "")), _number(event.get("ts")), _number(event.get("dur")))

    @property
    def end(self) -> float:
        return self.start + self.took


def observed_trace(step: TracedStep, point: DesignPoint, name: str, skipped: list[str]) -> list[PredictedMeasurements]:
    """Return the step of a trace and its classes of kernels, which the design *point* predicts.

    What is not used is noted in *skipped*.
    """
    steps = [observed_step(name, point, step.step_s)]
    if step.busy < FULL:
        idle = f"its step is left out: the device is idle for {100 * (1 - step.busy):.0f} % of it"
        skipped.append(f"{name}: {idle}, as the profiler slows the host down")
        steps = []
    if point.workload.pp > 1:  # the stage of the traced rank is not known
        return steps
    kinds = [kind for kind in USED if step.seconds.get(kind, 0.0) > 0]

    def seconds(changes: Sequence[Changes]) -> Array:
        first = "compute.time_factor"
        full_changes = [{first: point.compute.time_factor, **change} for change in changes]
        totals = _predicted(point, full_changes)
        return np.stack(
            [np.broadcast_to(np.asarray(totals[kind], dtype=float), len(full_changes)) for kind in kinds], axis=1
        )

    names = tuple(f"{name}: {kind}" for kind in kinds)
    measured = np.array([step.seconds[kind] for kind in kinds])
    spread = np.full(len(kinds), measurement_noise().kernel)
    return [
        *steps,
        *([PredictedMeasurements("kernels of steps", names, measured, spread, point, seconds)] if kinds else []),
    ]


def _predicted(point: DesignPoint, changes: Sequence[Changes]) -> dict[str, Any]:
    """Return the predicted seconds of a step by class of kernels, an array over *changes* each."""
    costs = profile_step(batch_of_changes(point, changes), "first").operators
    classes: dict[str, list[Any]] = {kind: [0.0] for kind in USED}
    for cost in costs:
        shape = cost.use.kernel.shape
        kind = "GEMMs" if isinstance(shape, Gemm) else "attention" if isinstance(shape, Attention) else STREAMED
        classes[kind].append(cost.runs * cost.seconds)
    return {kind: sum_of(parts) for kind, parts in classes.items()}


def _tree(data: bytes, where: str) -> Any:
    if data[:2] == b"\x1f\x8b":
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as opened:
                data = opened.read(LARGEST_BYTES + 1)
        except (OSError, EOFError, zlib.error):
            raise SpecError(where, data[:20], "is not a valid gzip file") from None
        require(
            len(data) <= LARGEST_BYTES, where, "unpacked", f"has more than the {LARGEST_BYTES:,} bytes that it may have"
        )
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise SpecError(where, data[:40], f"is no valid JSON: {error}") from None


def _spans(events: Sequence[Any], last_s: float) -> list[tuple[float, float]]:
    """Return start and end of each step, in µs."""
    marks = {}
    for event in events:
        if _category(event) == "user_annotation" and STEP.fullmatch(str(event.get("name", ""))):
            start = _number(event.get("ts"))
            marks[start] = start + _number(event.get("dur"))
    starts = sorted(marks)
    ends = [*starts[1:], *([max(marks[starts[-1]], last_s)] if starts else [])]
    return [(first, last) for first, last in zip(starts, ends, strict=True) if last > first]


def _category(event: Any) -> Any:
    return event.get("cat") if isinstance(event, dict) else None


def _class(name: str) -> str:
    return next((kind for kind, pattern in CLASSES if pattern.search(name)), STREAMED)


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and np.isfinite(value) and value >= 0 else 0.0


def _device(tree: Mapping[str, Any]) -> str:
    listed = tree.get("deviceProperties")
    first = listed[0] if isinstance(listed, list) and listed else {}
    return str(first.get("name", "")) if isinstance(first, dict) else ""
