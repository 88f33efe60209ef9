"""Measured rows: reading CSV files, telling their kinds apart, and the verdict on a prediction.

The columns of a file say the kind of its rows. Each kind has a module in `cosmic.accuracy.rows` with a function

    compare_rows(rows: Sequence[Row]) -> list[Verdict]

that returns at least one verdict for each row: a measured and a predicted time, or why there is no prediction. A row
with two times (forward and backward, TTFT and TPOT) has two verdicts. A module gets all rows of a file at once, so that
it can predict them as arrays.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from io import StringIO
from math import isfinite
from pathlib import Path
from typing import Any

from cosmic.base.errors import SpecError, require
from cosmic.base.files import Unreadable, read_text
from cosmic.design.prediction_accuracy import Expectation, Range

Row = Mapping[str, str]
GIB = 2**30
CARRIED = Path(__file__).parent / "data"
"""The folder of the rows that the package carries."""
MOST_BYTES = 32 * 2**20
"""The most that a file of rows may have: a hundred thousand of the widest."""
SMALLEST, LARGEST = 1e-30, 1e30
"""Bounds of a number of a row, far beyond any that is measured: what is computed from such numbers is finite."""


OWN_ACCELERATOR = "h200-sxm-141gb"
"""The accelerator of rows that name none: our own."""
ACCELERATORS, MODELS = ("accel", "hardware", "system"), ("catalog_model", "model", "model_path", "workload")
STACKS = (("framework", "software_date"), ("backend", "backend_version"), ("execution",))
"""Columns that say where a row of any kind was measured, the most telling first."""


@dataclass(frozen=True, slots=True)
class RowProvenance:
    """Where a measurement comes from: whatever the errors of predictions may depend on, and a fold may leave out."""

    source: str
    """Who measured it: a paper, or the tables of a framework."""
    accelerator: str
    stack: str
    """The software and its date or version; empty where the row does not say."""
    model: str
    """Empty for rows of single kernels and collectives."""


def source_of(collection: str) -> str:
    """Return the source that a collection of rows belongs to: its name up to a hyphen or a number.

    >>> source_of("vtrain-multi"), source_of("nemo2407"), source_of("h200-training")
    ('vtrain', 'nemo', 'h200')
    """
    match = re.match(r"[^\W\d_]{2,}|[^-\s]+", collection)
    return match[0].lower() if match else collection


@dataclass(frozen=True, slots=True)
class MemoryFigure:
    """A measured figure of memory beside its prediction."""

    kind: str
    """What it counts: allocated, reserved, or what the device shows."""
    measured_bytes: float
    predicted_bytes: Range

    @property
    def error(self) -> float:
        """The relative error: predicted / measured - 1."""
        return self.predicted_bytes.p50 / self.measured_bytes - 1

    @property
    def in_range(self) -> bool:
        """Whether it is from P5 to P95."""
        return self.predicted_bytes.p05 <= self.measured_bytes <= self.predicted_bytes.p95


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A measurement and its prediction, or why there is none."""

    id: str = ""
    set: str = ""
    """The source, or a part of one, whose errors are summarised together."""
    kind: str = ""
    """The kind of its row."""
    row: Row = field(repr=False)
    """The row as read; errors can be summarised by its columns."""
    measured_s: float | None = None
    predicted_s: float | None = None
    low_s: float | None = None
    """The shortest and the longest time of the choices that are as likely as the predicted one, where the row leaves
    any open."""
    high_s: float | None = None
    skipped: str = ""
    """Why there is no prediction."""
    assumed: tuple[str, ...] = ()
    """What the row leaves open, and the assumptions made."""
    memory: MemoryFigure | None = None
    """What was measured of its memory."""
    ran: bool | None = None
    """Whether it ran, or ran out of memory; None where the row does not say."""
    fits: float | None = None
    """The predicted probability that it fits."""
    flop: float | None = None
    """Operations per accelerator, at six per active parameter and token: for the constant-efficiency baseline."""
    group: tuple[str, ...] = ()
    """Verdicts of one group do the same work with different mappings; Kendall's τ says how well they are ranked."""
    design: str = ""
    """The mapping: two measurements of one mapping are not ranked."""
    expected: Expectation | None = None
    """How far off the prediction may be; None of what is no whole step."""
    left_out: float | None = None
    """The relative error by constants that were fitted without the row's source, where that is known."""

    @property
    def error(self) -> float | None:
        """The relative error of the time: predicted / measured - 1."""
        return _relative(self.predicted_s, self.measured_s)

    @property
    def range_s(self) -> Range | None:
        """What is expected to be measured."""
        if self.expected is None or self.predicted_s is None:
            return None
        return self.expected.around(self.predicted_s, self.low_s, self.high_s)

    @property
    def in_range(self) -> bool | None:
        """Whether the measured time is from P5 to P95; None without a range.

        Of a row whose source the constants were fitted to, the error without it counts.
        """
        range_s, error = self.range_s, self.error if self.left_out is None else self.left_out
        if range_s is None or error is None:
            return None
        return range_s.p05 * (1 + error) <= range_s.p50 <= range_s.p95 * (1 + error)

    @property
    def provenance(self) -> RowProvenance:
        """Where the row was measured.

        >>> Verdict(set="nemo2407", row={"accel": "H100", "framework": "nemo", "software_date": "2024-07"}).provenance
        RowProvenance(source='nemo', accelerator='H100', stack='nemo 2024-07', model='')
        """
        accelerator, model = (next(filter(None, map(self.row.get, names)), "") for names in (ACCELERATORS, MODELS))
        stacks = (" ".join(filter(None, map(self.row.get, names))) for names in STACKS)
        return RowProvenance(source_of(self.set), accelerator or OWN_ACCELERATOR, next(filter(None, stacks), ""), model)

    @property
    def memory_error(self) -> float | None:
        """The relative error of peak memory."""
        return None if self.memory is None else self.memory.error

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as plain data."""
        start: dict[str, Any] = {"id": self.id, "set": self.set}
        if self.skipped:
            return start | {"skipped": self.skipped}
        start |= {"measured_s": self.measured_s, "predicted_s": self.predicted_s, "relative_error": self.error}
        if (range_s := self.range_s) is not None:
            start |= {"predicted_s_range": asdict(range_s), "in_range": self.in_range}
        if self.left_out is not None:
            start["left_out_error"] = self.left_out
        start["assumed"] = list(self.assumed)
        if self.low_s is not None and self.high_s is not None:
            start |= {"low_s": self.low_s, "high_s": self.high_s}
        if self.memory is not None:
            start |= {
                "memory_kind": self.memory.kind,
                "peak_bytes_measured": self.memory.measured_bytes,
                "peak_bytes_predicted": self.memory.predicted_bytes.p50,
                "peak_bytes_range": asdict(self.memory.predicted_bytes),
                "memory_error": self.memory_error,
            }
        if self.ran is not None:
            start |= {"ran": self.ran, "fits": self.fits}
        return start


def _relative(predicted: float | None, measured: float | None) -> float | None:
    return None if predicted is None or not measured else predicted / measured - 1


class Fields:
    """The cells of a row; `assumed` notes the values taken for empty ones."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.assumed: list[str] = []

    def text(self, name: str, default: str = "") -> str:
        """Return a cell as text, or *default* if it is empty; that is not noted."""
        return (self.row.get(name) or "").strip() or default

    def number(self, name: str) -> float | None:
        """Return a cell as a number above zero; None if it is empty."""
        text = self.text(name)
        if not text:
            return None
        try:
            value = float(text)
        except ValueError:
            raise SpecError(name, text, "must be a number") from None
        require(isfinite(value) and value > 0, name, text, "must be positive")
        require(SMALLEST <= value <= LARGEST, name, text, f"must be from {SMALLEST:g} to {LARGEST:g}")
        return value

    def whole(self, name: str, default: int | None = None, why: str = "") -> int:
        """Return a cell as a whole number, or *default* if it is empty, noted with *why*."""
        value = self.number(name)
        if value is None:
            require(default is not None, name, "", "is not given")
            return int(self.assume(name, default, why))
        require(value.is_integer() and value < 2**53, name, self.text(name), "must be a whole number")
        return int(value)

    def seconds(self, name: str, unit_s: float) -> float:
        """Return a time in seconds; *unit_s* is the unit of the cell."""
        value = self.number(name)
        require(value is not None, name, "", "is not given")
        return float(value or 0.0) * unit_s

    def assume(self, name: str, value: Any, why: str = "") -> Any:
        """Note that *value* was taken for *name*, and return it."""
        note = f"{name}: {value} assumed" + (f", {why}" if why else "")
        if note not in self.assumed:
            self.assumed.append(note)
        return value


def compare_row(row: Row, identity: str, collection: str, compare: Callable[[Fields], Verdict]) -> Verdict:
    """Return the verdict of *compare* on a row, or one that says why it is skipped: a row never stops a validation."""
    try:
        verdict = compare(Fields(row))
    except SpecError as error:
        return Verdict(id=identity, set=collection, row=row, skipped=str(error))
    return replace(verdict, id=identity, set=collection)


def _finite(verdict: Verdict) -> Verdict:
    """Return *verdict*, or one that says that it is skipped: one error that is no number would spoil every mean."""
    errors = (verdict.error, verdict.memory_error)
    known = verdict.error is not None or verdict.memory is not None or verdict.ran is not None
    if verdict.skipped or (known and all(isfinite(error or 0.0) for error in errors)):
        return verdict
    return Verdict(
        id=verdict.id, set=verdict.set, kind=verdict.kind, row=verdict.row, skipped="the prediction is not finite"
    )


# ---- kinds


@dataclass(frozen=True, slots=True)
class RowKind:
    """A kind of rows: its name, the columns that identify it, and the module that predicts it."""

    name: str
    columns: frozenset[str]
    module: str

    def compare_rows(self, rows: Sequence[Row]) -> list[Verdict]:
        """Return the verdicts on *rows*."""
        verdicts: list[Verdict] = import_module(f"cosmic.accuracy.rows.{self.module}").compare_rows(rows)
        return [_finite(replace(verdict, kind=self.name)) for verdict in verdicts]


def _kind(name: str, module: str, columns: str) -> RowKind:
    return RowKind(name, frozenset(columns.split()), module)


KINDS = (
    _kind(
        "memory of training runs",
        "memory_rows",
        "id model accel n_accel seq_len outcome allocated_gib reserved_gib device_gib",
    ),
    _kind("training runs", "training_rows", "id model n_layers accel n_accel seq_len gbs iter_time_s"),
    _kind("training steps of one GPU", "single_gpu_rows", "layers hidden heads ffn vocab seq style step_ms"),
    _kind("prefill and decode of one GPU", "single_gpu_rows", "layers hidden heads ffn phase batch context ms"),
    _kind("layers of one GPU", "single_gpu_rows", "what hidden heads ffn vocab batch sequence mode fwd_ms bwd_ms"),
    _kind("GEMMs", "kernel_rows", "m n k dtype ms"),
    _kind("GEMMs of several GPUs", "kernel_rows", "gemm_dtype m n k latency hardware"),
    _kind("attention", "kernel_rows", "batch heads kv_heads seq head_dim causal fwd_ms bwd_ms"),
    _kind("memory-bound operators", "kernel_rows", "op rows cols dtype bytes ms"),
    _kind("collectives", "collective_rows", "hardware collective n_ranks n_nodes size_bytes time_us"),
    _kind(
        "loads of one GPU", "serving_load_rows", "layers hidden scheduler isl osl requests ttft_mean_ms tpot_mean_ms"
    ),
    _kind("serving steps of one GPU", "serving_load_rows", "layers hidden step batch context tokens past device_ms"),
    _kind("bandwidth of LIBRA", "bandwidth_rows", "network topology workload total_bw_GBps objective gurobi_e2e_ns"),
    _kind("serving", "serving_rows", "id backend system isl osl silicon_ttft_ms silicon_tpot_ms"),
)
"""Every kind of rows; a file is of the first kind whose columns it has."""


def row_kind(columns: Sequence[str], where: str) -> RowKind:
    """Return the kind of rows with these *columns*."""
    for kind in KINDS:
        if kind.columns <= set(columns):
            return kind
    kinds = "; ".join(f"{kind.name} ({', '.join(sorted(kind.columns))})" for kind in KINDS)
    raise SpecError(where, ", ".join(columns), f"these columns are of no known kind, which are {kinds}")


def read_rows(path: Path | str) -> tuple[RowKind, list[Row]]:
    """Return the kind and the rows of the CSV file at *path*."""
    where = Path(path).name
    columns, rows = parse_table(read_text(path, "data", MOST_BYTES), path)
    kind = row_kind(columns, where)
    require(bool(rows), where, 0, "there are no rows")
    return kind, rows


def parse_table(text: str, path: Path | str) -> tuple[list[str], list[Row]]:
    """Return the columns and the rows of the text of a CSV file."""
    try:
        reader = csv.DictReader(StringIO(text.removeprefix("\ufeff"), newline=""), restval="")
        columns = [column.strip() for column in reader.fieldnames or ()]
        reader.fieldnames = columns
        rows: list[Row] = [{key: value for key, value in row.items() if key is not None} for row in reader]
    except csv.Error:
        raise Unreadable("data", str(path), "is not a CSV file") from None
    twice = [column for index, column in enumerate(columns) if column in columns[:index]]
    require(not twice, Path(path).name, ", ".join(twice), "is there twice among the columns")
    return columns, rows


def carried_files() -> list[Path]:
    """Return the files of rows that the package carries."""
    return sorted(CARRIED.glob("*.csv"))
