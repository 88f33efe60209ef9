"""Validation: predict measured rows and summarise the errors by source, beside two baselines.

files ──▶ rows, of a kind ──▶ designs or kernels ──▶ predicted beside measured ──▶ errors by source

A source is a collection of rows that one party measured with one stack of software, such as a paper, or the tables of
a framework: what one of its rows is off by says something of the others. A part of a collection (``name-part``,
``name2024``) belongs to the same source.

Baselines: Calculon (Isaev et al., SC 2023) is an analytical model of the same scope; it predicted the runs that it can
describe. A constant efficiency knows only that a token takes six operations per active parameter, and fits the answer:
the efficiency of an accelerator is the median of what the rows of a source reach on it,

    predicted = flop / r        r = median over the source's rows on that accelerator of  flop / measured

Errors are summarised as mean, median and worst error, bias, and Kendall's τ of the order. Over n rows with measured
times m and predicted times p:

    e      = p / m - 1, the relative error of a row
    mean   = Σ |e| / n         median, worst  of |e|         bias = Σ e / n
    τ      = (C - D) / N       Kendall's, pooled over groups
    N        pairs of rows of one group, of different designs, whose measured times differ
    C, D     pairs that the predictions order alike, and inversely; equal predictions count as neither

Pooled: pairs of all groups are counted together, so large groups weigh more. A group is rows that do the same work on
the same machine with different mappings.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import chain, combinations
from math import expm1
from pathlib import Path
from statistics import fmean, median
from typing import Any

from cosmic.accuracy.measured_rows import Fields, Row, Verdict, carried_files, read_rows, source_of
from cosmic.accuracy.rows.single_gpu_rows import inference_design, training_design
from cosmic.accuracy.rows.training_rows import read_run, require_fit
from cosmic.base.errors import SpecError, UnknownName
from cosmic.base.json_types import Count, Ratio, Share, json_keys, json_object
from cosmic.design.design_point import DesignPoint

# ---- Error statistics

CLEAR = 0.05
"""Share by which measured times differ clearly: less is within what runs of one design differ by."""


@json_keys(
    "coverage",
    beside=("named",),
    without=("by", "name"),
    mean_abs_error="mean",
    median_abs_error="median",
    worst_abs_error="worst",
    range_width="width",
    mean_abs_error_left_out="left_out_mean",
    median_abs_error_left_out="left_out_median",
    kendall_tau="tau",
    kendall_tau_clear="clear_tau",
    pairs_clear="clear_pairs",
)
@dataclass(frozen=True, slots=True)
class Summary:
    """One value of the column of --by, which is the one further key."""

    by: str
    """The column."""
    name: str
    """Its value."""
    rows: Count
    """Measured rows."""
    predicted: Count
    """How many of them were predicted."""
    mean: Share | None
    """Mean absolute relative error."""
    median: Share | None
    """Median absolute relative error."""
    worst: Share | None
    """The largest absolute relative error."""
    bias: Share | None
    """Mean relative error with its sign."""
    tau: Ratio | None
    """Kendall's τ of the order of rows, from -1 to 1; None if there is no order."""
    pairs: Count
    """Pairs of rows that have an order."""
    clear_tau: Ratio | None
    """The same over pairs whose measured times differ by more than 5 %."""
    clear_pairs: Count
    """The number of such pairs."""
    ranged: Count
    """Rows whose prediction has a range."""
    in_range: Share | None
    """Share of those whose measured time is from P5 to P95; None if there are none."""
    width: Share | None
    """Mean distance of P95 from the prediction."""
    left_out_mean: Share | None
    """Mean absolute relative error by constants that were fitted without the row's source; None if no row has one."""
    left_out_median: Share | None
    """The median of the same."""
    skipped: Mapping[str, Count]
    """Rows that were not predicted, by reason."""

    @property
    def coverage(self) -> Share:
        """The same as a share."""
        return self.predicted / self.rows if self.rows else 0.0

    @property
    def named(self) -> Mapping[str, str]:
        """The value of the column, under its name."""
        return {self.by: self.name}


def summarise_errors(name: str, verdicts: Sequence[Verdict], *, memory: bool = False, by: str = "set") -> Summary:
    """Return the statistics of the errors of time, or of *memory*."""
    errors = [verdict.memory_error if memory else verdict.error for verdict in verdicts]
    known_errors = [error for error in errors if error is not None]
    sizes = sorted(map(abs, known_errors))
    ordered, pairs = (0, 0) if memory else concordance(verdicts)
    clearly, clear = (0, 0) if memory else concordance(verdicts, CLEAR)
    ranges = [] if memory else [seconds_range for verdict in verdicts if (seconds_range := verdict.range_s) is not None]
    if memory:
        in_range = [verdict.memory.in_range for verdict in verdicts if verdict.memory is not None]
    else:
        in_range = [within for verdict in verdicts if (within := verdict.in_range) is not None]
    left_out = [] if memory else [abs(verdict.left_out) for verdict in verdicts if verdict.left_out is not None]
    reasons: dict[str, int] = {}
    for verdict in verdicts:
        if verdict.skipped:
            reasons[verdict.skipped] = reasons.get(verdict.skipped, 0) + 1
    return Summary(
        by=by,
        name=name,
        rows=len(verdicts),
        predicted=len(known_errors),
        mean=fmean(sizes) if known_errors else None,
        median=median(sizes) if known_errors else None,
        worst=sizes[-1] if known_errors else None,
        bias=fmean(known_errors) if known_errors else None,
        tau=ordered / pairs if pairs else None,
        pairs=pairs,
        clear_tau=clearly / clear if clear else None,
        clear_pairs=clear,
        ranged=len(ranges),
        in_range=fmean(in_range) if in_range else None,
        width=fmean(verdict.p95 / verdict.p50 - 1 for verdict in ranges) if ranges else None,
        left_out_mean=fmean(left_out) if left_out else None,
        left_out_median=median(left_out) if left_out else None,
        skipped=dict(sorted(reasons.items(), key=lambda item: -item[1])),
    )


def concordance(verdicts: Iterable[Verdict], beyond: float = 0.0) -> tuple[int, int]:
    """Return C - D and N of all groups together, over pairs whose measured times differ by a share *beyond* this."""
    groups: dict[tuple[str, ...], list[tuple[float, float, str]]] = {}
    for verdict in verdicts:
        if verdict.group and verdict.measured_s is not None and verdict.predicted_s is not None:
            groups.setdefault(verdict.group, []).append((verdict.measured_s, verdict.predicted_s, verdict.design))
    ordered = pairs = 0
    for times in groups.values():
        ordered_alike, compared = _pairs(times, beyond)
        ordered, pairs = ordered + ordered_alike, pairs + compared
    return ordered, pairs


def _pairs(times: Sequence[tuple[float, float, str]], beyond: float = 0.0) -> tuple[int, int]:
    """Return C - D and N of one group, given measured time, predicted time and mapping of its rows.

    >>> _pairs([(1.0, 10.0, "a"), (2.0, 30.0, "b"), (3.0, 20.0, "c"), (4.0, 20.0, "c")])
    (1, 5)
    >>> _pairs([(1.0, 10.0, "a"), (1.04, 9.0, "b"), (2.0, 20.0, "c")], 0.05)
    (2, 2)
    """
    ordered = pairs = 0
    for (measured, predicted, design), (other_measured, expected, another) in combinations(times, 2):
        differs = max(measured, other_measured) > min(measured, other_measured) * (1 + beyond)
        if differs and (design != another or not design):
            pairs += 1
            ordered += ((measured > other_measured) - (measured < other_measured)) * (
                (predicted > expected) - (predicted < expected)
            )
    return ordered, pairs


# ---- Baselines: Calculon's predictions of the same runs, and a constant efficiency per accelerator

BASELINES = Path(__file__).parent / "baselines"
CALCULON = BASELINES / "calculon.csv"
LEFT_OUT = BASELINES / "left_out.csv"
"""Errors without a run's source: calibration/fit_runs.py writes it."""

COVERAGE = BASELINES / "coverage.csv"
"""How many runs of each source are in ranges learned from the others: calibration/expected_errors.py writes it."""
COVERED = ("source", "runs", "half", "nine_tenths", "width")
"""Its columns (`Covered` in calibration/conformal.py)."""


@cache
def left_out_errors() -> Mapping[tuple[str, str], float]:
    """Return log(predicted / measured) by constants fitted without a run's source, by source and id of the run."""
    if not LEFT_OUT.exists():
        return {}
    with LEFT_OUT.open(newline="") as file:
        return {(row["source"], row["id"]): float(row["log_error_left_out"]) for row in csv.DictReader(file)}


def read_coverage() -> list[dict[str, str]]:
    """Return how many runs of each source are in ranges that were learned from the other sources."""
    if not COVERAGE.exists():
        return []
    with COVERAGE.open(newline="") as file:
        return list(csv.DictReader(file))


@cache
def calculon_seconds() -> Mapping[str, float]:
    """Return Calculon's predictions by the id of the run."""
    with CALCULON.open(newline="") as file:
        return {row["id"]: float(row["predicted_s"]) for row in csv.DictReader(file)}


def calculon_verdicts(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Return the verdicts on the runs that Calculon predicted, with its predictions."""
    seconds_by_run = calculon_seconds()
    return [
        replace(verdict, predicted_s=seconds_by_run[verdict.id]) for verdict in verdicts if verdict.id in seconds_by_run
    ]


def constant_efficiency_verdicts(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Return the verdicts on the runs whose operations are known, predicted with a constant efficiency."""
    rates: dict[tuple[str, str], list[float]] = {}
    rated = [(verdict, verdict.flop, verdict.measured_s) for verdict in verdicts if verdict.flop and verdict.measured_s]
    for rated_verdict, flop, seconds in rated:
        rates.setdefault(_machine_of_verdict(rated_verdict), []).append((flop or 0.0) / (seconds or 1.0))
    usual = {name: median(efficiencies) for name, efficiencies in rates.items()}
    return [
        replace(verdict, predicted_s=(flop or 0.0) / usual[_machine_of_verdict(verdict)]) for verdict, flop, _ in rated
    ]


def _machine_of_verdict(verdict: Verdict) -> tuple[str, str]:
    return verdict.set, verdict.row.get("accel", "")


# ---- Measured steps of designs, by the source that published them


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """A measured step of a design."""

    id: str
    source: str
    point: DesignPoint
    measured_s: float
    group: tuple[str, ...] = ()
    """Steps of one group were measured by one party with one release of its software."""
    collection: str = ""
    """The file of its row, without its ending."""


def measured_steps(paths: Iterable[Path] | None = None) -> Iterator[MeasuredStep]:
    """Yield every measured step of the files at *paths*, by default those of the package; others are left out."""
    for path in carried_files() if paths is None else paths:
        kind, rows = read_rows(path)
        read = READERS.get(kind.name)
        for row in rows if read else ():
            try:
                step = read(row) if read else None
            except SpecError:  # validation skips it too, and says why
                continue
            if step is not None:
                yield replace(step, collection=path.stem)


def _published(row: Row) -> MeasuredStep:
    run = read_run(Fields(row))
    require_fit(run.point)
    collection = row.get("set") or "training"
    group = collection, row.get("source", "")
    return MeasuredStep(row.get("id", ""), source_of(collection), run.point, run.measured_s, group)


def _training(row: Row) -> MeasuredStep:
    fields = Fields(row)
    return MeasuredStep(
        "", source_of(row.get("set") or "h200"), training_design(fields), fields.seconds("step_ms", 1e-3)
    )


def _inference(row: Row) -> MeasuredStep:
    fields = Fields(row)
    return MeasuredStep("", source_of(row.get("set") or "h200"), inference_design(fields), fields.seconds("ms", 1e-3))


READERS = {
    "training runs": _published,
    "training steps of one GPU": _training,
    "prefill and decode of one GPU": _inference,
}
"""How a row of each kind becomes a measured step."""


# ---- Validation: predict measured rows and summarise the errors by source


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many measured times are from P5 to P95 of their prediction."""

    rows: int
    """Rows whose prediction has a range."""
    sources: int
    """Their sources."""
    of_rows: Share
    """Share of the rows."""
    of_sources: Share
    """Mean over sources of the share of their rows."""
    width: Share
    """Mean distance of P95 from the prediction, as a share."""


HALF, SURE = 0.5, 0.95
MEMORY_ROWS = "memory of training runs"
"""The kind of rows without times."""


@dataclass(frozen=True, slots=True)
class FitOutcomes:
    """Runs that ran or ran out of memory, beside the predicted probability that they fit."""

    runs: int
    """How many are known to have run, or to have run out of memory."""
    right: int
    """Of how many that was on the right side of 50 %."""
    sure: int
    """How many were said to fit with 95 % or more."""
    sure_ran: int
    """How many of these ran."""

    @property
    def sentence(self) -> str:
        """It in words."""
        return (
            f"{self.right} of {self.runs} runs that ran or ran out of memory are on the right side of 50 %; "
            f"of {self.sure} said to fit with 95 % or more, {self.sure_ran} ran"
        )


@dataclass(frozen=True, slots=True)
class Validation:
    """Verdicts on measured rows, and their error statistics."""

    verdicts: tuple[Verdict, ...]
    by: str
    """The column by which errors are summarised."""
    summary: tuple[Summary, ...]
    """Errors of times."""
    memory_summary: tuple[Summary, ...]
    """Errors of peak memory, of the rows that give it."""

    @property
    def skipped(self) -> list[tuple[int, str, str]]:
        """How many rows of a set were skipped for a reason, the set, and the reason; the most first."""
        reasons = [
            (count, each.name, why)
            for each in (*self.summary, *self.memory_summary)
            for why, count in each.skipped.items()
        ]
        return sorted(reasons, key=lambda item: -item[0])

    @property
    def coverage(self) -> Coverage | None:
        """How many measured times are in the range of their prediction; None where no prediction has one."""
        in_range_by_source: dict[str, list[bool]] = {}
        widths = []
        for verdict in self.verdicts:
            range_s, within = verdict.range_s, verdict.in_range
            if range_s is not None and within is not None:
                in_range_by_source.setdefault(verdict.provenance.source, []).append(within)
                widths.append(range_s.p95 / range_s.p50 - 1)
        if not widths:
            return None
        by_source = fmean(fmean(covered) for covered in in_range_by_source.values())
        return Coverage(
            len(widths), len(in_range_by_source), fmean(chain(*in_range_by_source.values())), by_source, fmean(widths)
        )

    @property
    def fits(self) -> FitOutcomes | None:
        """How runs that ran, or ran out of memory, came out beside the probability that they fit; None without any."""
        known = [(verdict.fits, verdict.ran) for verdict in self.verdicts if verdict.fits is not None]
        if not known:
            return None
        right = sum((fits > HALF) == ran for fits, ran in known)
        sure = [ran for fits, ran in known if fits >= SURE]
        return FitOutcomes(len(known), right, len(sure), sum(map(bool, sure)))

    def to_dict(self) -> dict[str, Any]:
        """Return it all as plain data, in SI units."""
        return {
            "rows": [verdict.to_dict() for verdict in self.verdicts],
            "summary": [json_object(summary) for summary in self.summary],
            "memory_summary": [json_object(summary) for summary in self.memory_summary],
            "coverage": None if (coverage := self.coverage) is None else asdict(coverage),
            "fits": None if (fits := self.fits) is None else asdict(fits),
        }


def validate(
    paths: Sequence[Path | str] | None = None, by: str = "set", report: Callable[[str], None] = lambda _: None
) -> Validation:
    """Predict every row of the CSV files at *paths*, by default those that the package carries, and compare.

    Errors are summarised *by* the rows' source, or by any of their columns. A file's columns say its kind (see
    `cosmic.accuracy.measured_rows.KINDS`). *report* gets a line of progress for each file.
    """
    files: Iterable[Path | str] = paths if paths is not None else carried_files()
    verdicts: list[Verdict] = []
    for path in files:
        kind, rows = read_rows(path)
        report(f"{Path(path).name}: {len(rows):,} rows")
        verdicts += map(_add_left_out, kind.compare_rows(rows))
    return assess_verdicts(verdicts, by)


def _add_left_out(verdict: Verdict) -> Verdict:
    """Return a verdict with its error by constants that were fitted without its source, if it is of the package."""
    left_out = left_out_errors().get((verdict.provenance.source, verdict.id)) if verdict.expected else None
    return verdict if left_out is None else replace(verdict, left_out=expm1(left_out))


def assess_verdicts(verdicts: Sequence[Verdict], by: str = "set") -> Validation:
    """Return the error statistics of *verdicts*."""
    columns = {"set", *(name for verdict in verdicts for name in verdict.row)}
    if by not in columns:
        raise UnknownName.among("--by", by, "column", columns)
    parts: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        name = verdict.set if by == "set" else verdict.row.get(by, "")
        parts.setdefault(name, []).append(verdict)
    timed = {name: [verdict for verdict in part if _has_time(verdict)] for name, part in parts.items()}
    summary = tuple(summarise_errors(name, part, by=by) for name, part in timed.items() if part)
    with_memory = {name: [verdict for verdict in part if _has_memory(verdict)] for name, part in parts.items()}
    memory = tuple(summarise_errors(name, part, memory=True, by=by) for name, part in with_memory.items() if part)
    return Validation(tuple(verdicts), by, summary, memory)


def _has_time(verdict: Verdict) -> bool:
    """Return whether a row has a time, or would have one if it were predicted."""
    return verdict.error is not None or bool(verdict.skipped and verdict.kind != MEMORY_ROWS)


def _has_memory(verdict: Verdict) -> bool:
    """Return whether a row has a figure of memory; of rows that are about nothing else, those that are skipped count."""
    return verdict.memory is not None or bool(verdict.skipped and verdict.kind == MEMORY_ROWS)
