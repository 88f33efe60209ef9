"""The page that says how far predictions are off: tables, plots, other models beside ours, and what is left open.

It is made from a validation alone, so that the page and the numbers that `cosmic validate` prints are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cosmic.reporting.curves import Series
from cosmic.reporting.page import Code, Figure, Heading, Items, Page, Part, Table, Text
from cosmic.reporting.scales import Axis
from cosmic.reporting.scatter import agreement
from cosmic.validation.baseline import calculon, constant_efficiency
from cosmic.validation.rows import Verdict
from cosmic.validation.statistics import Summary, summarise
from cosmic.validation.validating import Validation

COLUMNS = ("rows", "predicted", "mean", "median", "worst", "bias")
DEVICE_KINDS = ("training steps of one GPU", "prefill and decode of one GPU", "layers of one GPU")
SECTIONS = (
    ("Training runs", ("training runs",)),
    ("One device", DEVICE_KINDS),
    ("Serving", ("serving",)),
    ("Matrix products", ("GEMMs", "GEMMs of several GPUs")),
    ("Attention and memory-bound operators", ("attention", "memory-bound operators")),
    ("Collectives", ("collectives",)),
)
"""Sections of the page, and the kinds of rows in each."""
PLOTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("runs-a100", "Training runs, Megatron and LLM Foundry", ("mosaic", "vtrain", "korthikanti", "sc21")),
    ("runs-recent", "Training runs since 2024", ("mbridge", "mlperf", "nemo", "torchtitan", "simumax")),
    ("one-device", "One H200", ("h200-training", "h200-layers", "h200-head", "h200-prefill", "h200-decode")),
    ("gemm", "Matrix products", ("gemm a", "gemm h", "gemm b", "gemm g", "h200-gemm")),
    ("kernels", "Attention and memory-bound operators", ("h200-attention", "h200-memory")),
    ("collectives", "Collectives", tuple(f"collectives {name}" for name in "ahbglr")),
    ("serving", "Serving", ("serving agg ttft", "serving agg tpot")),
)
"""Figures: the name, the title, and how the names of the sets in it begin, a series for each."""
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
"""What series are called whose sets' beginnings are no names."""
REMARKS = (
    "Part of the rows are those that parameters were fitted on: of training runs every second one, of kernels and "
    "links all. Errors of the rows that a fit did not see are printed by the scripts in `calibration/`, and stand in "
    "the catalog beside what was fitted.",
    "Training runs, fitted without one source at a time and asked of that source: korthikanti 4.0 %, sc21 4.0 %, "
    "vtrain-multi 6.5 %, mosaic 5.8 %, torchtitan 7.3 %, mbridge 12.2 %, nemo 6.7 %, mlperf 7.6 %, simumax 15.8 % "
    "(`calibration/fit_runs.py --leave-out`).",
    "One H200: steps of small models wait for the host, and hosts differ from day to day. The worst row (12 layers of "
    "3072, 1,536 tokens, recomputed; 55 ms, predicted 41) took 41 ms when it was measured again; another (12 layers of "
    "512, recomputed; 38 ms) took 59 (calibration/data/h200_steps_again.csv).",
    "Small models on one A100 node (vtrain-single) wait for their host. What it takes for a launch is read off these "
    "same rows, so that their mean error checks the order of designs and how they scale, not that number.",
    "vTrain on several nodes: measured neighbours differ by up to 15 % without order (39.1B with tp 4 and pp 8 takes "
    "16.1, 17.4 and 16.1 s with microbatches of 2, 4 and 6), and one run, with microbatches of 64, takes twice as long "
    "as its neighbour. Over pairs that differ by more than 5 % τ is 0.82, by more than 10 % it is 0.89.",
    "MosaicML: MPT-30B on 8 accelerators with one sequence of 8,192 is some 30 % slower than its runs with half the "
    "length explain.",
    "Megatron-Bridge: what is recomputed is not published, and what is assumed is part of the error; `--json` says it "
    "row by row. Many rows are one design measured with several releases of the software, up to 1.8 times as fast in "
    "the end as in the beginning. Whoever predicted the median of each design would still be off by 5 % on average.",
    "B200 in 16 bits: the node of SimuMax keeps 0.7 of what short products reach. The figure is taken for every B200, "
    "as nearly all runs in 16 bits are from that node; one that is cooled or fed better may be faster than predicted.",
    "TorchTitan: long contexts come out too slow (LLaMA-3 8B with cp 2 by 27 %, the others by 17 % at most).",
    "V100: all-reduces from 1 MiB on, in one DGX-1, are all that was measured; smaller messages, other collectives and "
    "what joins nodes are estimates.",
    "Mixtures of experts are predicted as if tokens were spread evenly. Runs that say so force it; others lose time to "
    "the fullest expert.",
    "Time to first token: queues at the front end are not modelled, only what engines add to a request on average. "
    "Disaggregated deployments, and experts spread over more than a node, are left out.",
    "Not modelled: layers that are no attention (Nemotron-3, a hybrid with Mamba), DeepSeek-V4, training of adapters "
    "(LoRA).",
)
"""Where predictions are off, and why."""
INTRODUCTION = """
Every row below was measured: published training runs, our own steps and kernels on one H200, products and collectives
of other collections. The design of each is built from what the row says, predicted, and compared. Errors are relative,
predicted / measured - 1: *mean*, *median* and *worst* of their size, *bias* with its sign. *τ* is Kendall's, over pairs
of rows that do the same work on the same machine with different mappings.

The rows are carried in the package; the page is made by
"""


def accuracy_page(validation: Validation, name: str = "accuracy") -> Page:
    """Return the page of a validation."""
    verdicts = validation.verdicts
    parts: list[Part] = [
        Text(INTRODUCTION.replace("*", "")),
        Code("cosmic validate --page docs/accuracy.md", "console"),
    ]
    for title, kinds in SECTIONS:
        here = [verdict for verdict in verdicts if verdict.kind in kinds]
        if here:
            parts += [Heading(title), Table(("set", *COLUMNS, "τ"), [_row(each) for each in _by_set(here)])]
            parts += _plots(here)
        if here and title == "Training runs":
            parts += _beside(here)
    parts += _memory(verdicts)
    parts += [Heading("Where predictions are off, and why"), Items(REMARKS)]
    parts += _left_out(verdicts)
    parts += [Heading("Where the rows are from"), Table(("set", "source"), _sources(verdicts))]
    return Page("How accurate predictions are", parts, name)


def _by_set(verdicts: Sequence[Verdict], *, memory: bool = False) -> list[Summary]:
    parts: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        parts.setdefault(_name(verdict), []).append(verdict)
    return [summarise(name, part, memory=memory) for name, part in parts.items()]


def _name(verdict: Verdict) -> str:
    """Return the set as the page has it: products of one accelerator in all number formats together."""
    if verdict.kind == "GEMMs of several GPUs" and "size" in verdict.row:
        return f"gemm {verdict.row['hardware']} {verdict.row['size']}"
    return verdict.set


def _row(each: Summary) -> list[Any]:
    errors = [_percent(value) for value in (each.mean, each.median, each.worst)]
    tau = None if each.tau is None else f"{each.tau:.2f}"
    return [each.name, each.rows, each.predicted, *errors, _percent(each.bias, "+"), tau]


def _percent(share: float | None, sign: str = "") -> str | None:
    return None if share is None else f"{100 * share:{sign}.1f} %"


def _plots(verdicts: Sequence[Verdict]) -> list[Part]:
    """Return the figures whose sets are among those of *verdicts*."""
    found: list[Part] = []
    for name, title, starts in PLOTS:
        series = []
        for start in starts:
            points = [
                (each.measured_s, each.predicted_s)
                for each in verdicts
                if each.set.startswith(start) and each.measured_s is not None and each.predicted_s is not None
            ]
            if points:
                series.append(Series(NAMES.get(start, start), points))
        if series:
            chart = agreement(series, x=Axis("measured", "s"), y=Axis("predicted", "s"), title=title, within=0.2)
            found.append(Figure(chart, name))
    return found


def _beside(verdicts: Sequence[Verdict]) -> list[Part]:
    """Return our mean error beside others', on the rows that they predict."""
    rows = []
    theirs = {"Calculon": calculon(verdicts), "constant efficiency": constant_efficiency(verdicts)}
    for own in _by_set(verdicts):
        cells: list[Any] = [own.name, own.predicted, _percent(own.mean)]
        for predictions in theirs.values():
            same = summarise(own.name, [each for each in predictions if each.set == own.name])
            cells.append(_percent(same.mean))
        rows.append(cells)
    caption = (
        "Mean error, beside that of Calculon on the runs that it can describe, and of a model that knows nothing but "
        "parameters and tokens and is told, for each source and accelerator, the median efficiency of these same rows."
    )
    return [Heading("Beside others", 3), Table(("set", "rows", "COSMIC", *theirs), rows, caption)]


def _memory(verdicts: Sequence[Verdict]) -> list[Part]:
    weighed = [verdict for verdict in verdicts if verdict.peak_bytes_measured]
    if not weighed:
        return []
    rows = [_row(each)[:-1] for each in _by_set(weighed, memory=True)]
    return [Heading("Peak of memory"), Table(("set", *COLUMNS), rows)]


def _left_out(verdicts: Sequence[Verdict]) -> list[Part]:
    rows = [(each.name, count, reason) for each in _by_set(verdicts) for reason, count in each.skipped.items()]
    if not rows:
        return []
    return [Heading("What is not predicted"), Table(("set", "rows", "reason"), rows)]


def _sources(verdicts: Sequence[Verdict]) -> list[tuple[str, str]]:
    """Return where each set is from: what its rows say, or measured here."""
    found: dict[str, dict[str, None]] = {}
    for verdict in verdicts:
        where = verdict.row.get("url") or verdict.row.get("source") or "measured by this project on one H200"
        name = verdict.set.partition(" ")[0] if verdict.kind != "training runs" else verdict.set
        found.setdefault(name, {})[where] = None
    return [(name, ", ".join(places)) for name, places in found.items()]
