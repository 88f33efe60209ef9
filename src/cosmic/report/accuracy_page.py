"""The page on the accuracy of predictions: tables, plots, a comparison with other models, known weaknesses.

It is made from a validation alone, so that it has the same numbers as `cosmic calibrate validate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from cosmic.accuracy.measured_rows import Verdict, source_of
from cosmic.accuracy.validating import (
    Summary,
    Validation,
    calculon_verdicts,
    constant_efficiency_verdicts,
    read_coverage,
    summarise_errors,
)
from cosmic.report.charts.drawing import Axis, Series
from cosmic.report.charts.plots import agreement_plot
from cosmic.report.page import Code, Figure, Heading, Items, Page, Part, Table, Text, paragraphs

RUNS = "Training runs"
RUN_COLUMNS = (
    *("set", "rows", "predicted", "left out: mean", "median", "in sample: mean", "median", "worst", "bias"),
    *("in P5–P95", "τ"),
)
COLUMNS = ("rows", "predicted", "mean", "median", "worst", "bias")
DEVICE_KINDS = ("training steps of one GPU", "prefill and decode of one GPU", "layers of one GPU")
SECTIONS = (
    (RUNS, ("training runs",)),
    ("One H200", DEVICE_KINDS),
    ("Serving", ("serving", "loads of one GPU", "serving steps of one GPU")),
    ("GEMM", ("GEMMs", "GEMMs of several GPUs")),
    ("Attention and memory-bound operators", ("attention", "memory-bound operators")),
    ("Collectives", ("collectives",)),
)
"""Sections of the page, and the kinds of rows in each."""
PLOTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("runs-a100", "Training runs, Megatron and LLM Foundry", ("mosaic", "vtrain", "korthikanti", "sc21")),
    ("runs-recent", "Training runs since 2024", ("mbridge", "mlperf", "nemo", "torchtitan", "simumax")),
    ("one-device", "One H200", ("h200-training", "h200-layers", "h200-head", "h200-prefill", "h200-decode")),
    ("gemm", "GEMM", ("gemm a", "gemm h", "gemm b", "gemm g", "h200-gemm")),
    ("kernels", "Attention and memory-bound operators", ("h200-attention", "h200-memory")),
    ("collectives", "Collectives", tuple(f"collectives {name}" for name in "ahbglr")),
    ("serving", "Serving", ("serving agg ttft", "serving agg tpot")),
)
"""Figures: the name, the title, and the prefixes of the names of its sets, a series for each."""
NAMES = {
    "gemm a": "A100",
    "gemm h": "H100, H200",
    "gemm b": "B200, B300",
    "gemm g": "GB200, GB300",
    "h200-gemm": "H200, eager",
    "serving agg ttft": "time to first token",
    "serving agg tpot": "time per output token",
    "collectives a": "A100",
    "collectives h": "H100, H200",
    "collectives b": "B200, B300",
    "collectives g": "GB200, GB300",
    "collectives l": "L40S",
    "collectives r": "RTX Pro 6000",
}
"""Names of series whose prefix is not a name."""
LEFT_OUT_CAPTION = "Training runs, each source predicted by constants that were fitted to the other sources."
RANGES_CAPTION = (
    "How many runs of a source are in ranges that were learned without it, neither its errors nor its hardware being "
    "known (calibration/expected_errors.py). Half should be in the first, nine in ten in the second. The last column "
    "is by how much P95 is above the prediction, on average."
)
MEMORY_CAPTION = (
    "Figures are what a source reports: tensors at their peak, what the allocator reserved, or what the device shows of "
    "the process. Each is compared with the same components, and with their range."
)
INTRODUCTION, _, WEAKNESSES = (
    (Path(__file__).parent / "accuracy_page.md").read_text(encoding="utf-8").partition("\n---\n")
)
REMARKS = tuple(paragraphs(WEAKNESSES))
"""Where predictions are off, and why."""


def accuracy_page(validation: Validation, name: str = "accuracy") -> Page:
    """Return the page of a validation."""
    verdicts = validation.verdicts
    parts: list[Part] = [
        Text(INTRODUCTION.replace("*", "")),
        Code("cosmic calibrate validate --page docs/reference/accuracy.md", "console"),
    ]
    for title, kinds in SECTIONS:
        judged = [verdict for verdict in verdicts if verdict.kind in kinds]
        if not judged:
            continue
        parts.append(Heading(title))
        if title == RUNS:
            parts += [
                *_left_out_errors(judged),
                Table(RUN_COLUMNS, [_run_row(errors) for errors in _summarise_sets(judged)]),
            ]
        else:
            parts.append(Table(("set", *COLUMNS, "τ"), [_summary_row(errors) for errors in _summarise_sets(judged)]))
        parts += _agreement_figures(judged)
        if title == RUNS:
            parts += [*_ranges_table(), *_compare_models(judged)]
    parts += _memory_table(validation)
    parts += [Heading("Where predictions are off, and why"), Items(REMARKS)]
    parts += _skipped_table(verdicts)
    parts += [Heading("Where the rows are from"), Table(("set", "source"), _sources_of_sets(verdicts))]
    return Page("How accurate predictions are", parts, name)


def _summarise_sets(verdicts: Sequence[Verdict], *, memory: bool = False) -> list[Summary]:
    parts: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        parts.setdefault(_set_name(verdict), []).append(verdict)
    return [summarise_errors(name, part, memory=memory) for name, part in parts.items()]


def _set_name(verdict: Verdict) -> str:
    """Return the name of the set on the page: GEMMs of one accelerator in all number formats together."""
    if verdict.kind == "GEMMs of several GPUs" and "size" in verdict.row:
        return f"gemm {verdict.row['hardware']} {verdict.row['size']}"
    return verdict.set


def _summary_row(each: Summary) -> list[Any]:
    errors = [_percent(value) for value in (each.mean, each.median, each.worst)]
    return [each.name, each.rows, each.predicted, *errors, _percent(each.bias, "+"), _tau(each)]


def _run_row(each: Summary) -> list[Any]:
    """Return a row on training runs: errors left out first, in sample beside, and how many are in their range."""
    shares = (each.left_out_mean, each.left_out_median, each.mean, each.median, each.worst)
    counts = [each.name, each.rows, each.predicted]
    return [*counts, *map(_percent, shares), _percent(each.bias, "+"), _percent(each.in_range), _tau(each)]


def _tau(each: Summary) -> str | None:
    return None if each.clear_tau is None else f"{each.clear_tau:.2f}"


def _left_out_errors(verdicts: Sequence[Verdict]) -> list[Part]:
    """Return the errors of whole sources by constants that were fitted to the others; nothing if no row has one."""
    sources: dict[str, list[float]] = {}
    for verdict in verdicts:
        if verdict.left_out is not None:
            sources.setdefault(source_of(verdict.set), []).append(abs(verdict.left_out))
    if not sources:
        return []
    every = [error for errors in sources.values() for error in errors]
    means = [fmean(errors) for errors in sources.values()]
    rows = [
        ["all runs", len(every), _percent(fmean(every)), _percent(median(every)), _percent(max(every))],
        ["mean of sources", len(sources), _percent(fmean(means)), _percent(median(means)), _percent(max(means))],
    ]
    return [Table(("left out", "number", "mean", "median", "worst"), rows, LEFT_OUT_CAPTION)]


def _ranges_table() -> list[Part]:
    """Return how many runs of each source are in ranges that were learned without that source."""
    table = read_coverage()
    if not table:
        return []
    keys = ("half", "nine_tenths", "width")
    rows = [[each["source"], int(each["runs"]), *(_percent(float(each[key])) for key in keys)] for each in table]
    counts = [int(each["runs"]) for each in table]
    for name, weights in (("mean of sources", [1] * len(table)), ("all runs", counts)):
        means = [
            sum(w * float(each[key]) for w, each in zip(weights, table, strict=True)) / sum(weights) for key in keys
        ]
        rows.append([name, sum(counts), *map(_percent, means)])
    return [
        Heading("Ranges", 3),
        Table(("source", "runs", "in P25–P75", "in P5–P95", "P95 above"), rows, RANGES_CAPTION),
    ]


def _percent(share: float | None, sign: str = "") -> str | None:
    return None if share is None else f"{100 * share:{sign}.1f} %"


def _agreement_figures(verdicts: Sequence[Verdict]) -> list[Part]:
    """Return the figures whose sets are among those of *verdicts*."""
    figures: list[Part] = []
    for name, title, starts in PLOTS:
        series = []
        for start in starts:
            points = [
                (verdict.measured_s, verdict.predicted_s)
                for verdict in verdicts
                if verdict.set.startswith(start) and verdict.measured_s is not None and verdict.predicted_s is not None
            ]
            if points:
                series.append(Series(NAMES.get(start, start), points))
        if series:
            chart = agreement_plot(series, x=Axis("measured", "s"), y=Axis("predicted", "s"), title=title, within=0.2)
            figures.append(Figure(chart, name))
    return figures


def _compare_models(verdicts: Sequence[Verdict]) -> list[Part]:
    """Return the mean errors of COSMIC and of other models, on the rows that these predict."""
    rows = []
    theirs = {"Calculon": calculon_verdicts(verdicts), "constant efficiency": constant_efficiency_verdicts(verdicts)}
    for own in _summarise_sets(verdicts):
        cells: list[Any] = [own.name, own.predicted, _percent(own.left_out_mean), _percent(own.mean)]
        for predictions in theirs.values():
            same = summarise_errors(own.name, [prediction for prediction in predictions if prediction.set == own.name])
            cells.append(_percent(same.mean))
        rows.append(cells)
    caption = (
        "Mean error of COSMIC, left out and in sample, of Calculon on the runs that it can describe, and of a model "
        "that uses only parameters, tokens and, for each source and accelerator, the median efficiency of these rows."
    )
    return [Heading("Other models", 3), Table(("set", "rows", "COSMIC, left out", "COSMIC", *theirs), rows, caption)]


def _memory_table(validation: Validation) -> list[Part]:
    """Return the errors of memory, whatever the figures of a set count, and whether runs fitted that were to fit."""
    weighed = [verdict for verdict in validation.verdicts if verdict.memory is not None]
    if not weighed:
        return []
    summaries = [*_summarise_sets(weighed, memory=True), summarise_errors("all", weighed, memory=True)]
    rows = [[*_summary_row(errors)[:-1], _percent(errors.in_range)] for errors in summaries]
    parts: list[Part] = [Heading("Peak memory"), Table(("set", *COLUMNS, "in P5–P95"), rows, MEMORY_CAPTION)]
    return parts if (fits := validation.fits) is None else [*parts, Text(fits.sentence + ".")]


def _skipped_table(verdicts: Sequence[Verdict]) -> list[Part]:
    rows = [
        (errors.name, count, reason) for errors in _summarise_sets(verdicts) for reason, count in errors.skipped.items()
    ]
    if not rows:
        return []
    return [Heading("What is not predicted"), Table(("set", "rows", "reason"), rows)]


def _sources_of_sets(verdicts: Sequence[Verdict]) -> list[tuple[str, str]]:
    """Return the source of each set: that of its rows, or our own measurement."""
    sources: dict[str, dict[str, None]] = {}
    for verdict in verdicts:
        where = verdict.row.get("url") or verdict.row.get("source") or "measured by this project on one H200"
        name = verdict.set.partition(" ")[0] if verdict.kind != "training runs" else verdict.set
        sources.setdefault(name, {})[where] = None
    return [(name, ", ".join(places)) for name, places in sources.items()]
