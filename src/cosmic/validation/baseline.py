"""Baselines: Calculon's predictions of the same runs, and a constant efficiency per accelerator.

The second knows only that a token takes six operations per active parameter, and fits the answer: the efficiency of an
accelerator is the median of what the rows of a source reach on it,

    predicted = flop / r        r = median over the source's rows on that accelerator of  flop / measured

Calculon (Isaev et al., SC 2023) is an analytical model of the same scope; it predicted the runs that it can describe.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import median

from cosmic.validation.rows import Verdict

BASELINES = Path(__file__).parent / "baselines"
CALCULON = BASELINES / "calculon.csv"
LEFT_OUT = BASELINES / "left_out.csv"
"""Errors without a run's source: calibration/fit_runs.py writes it."""

COVERAGE = BASELINES / "coverage.csv"
"""How many runs of each source are in ranges learned from the others: calibration/expected_errors.py writes it."""
COVERED = ("source", "runs", "half", "nine_tenths", "width")
"""Its columns (`cosmic.validation.conformal.Covered`)."""


@cache
def left_out_errors() -> Mapping[tuple[str, str], float]:
    """Return log(predicted / measured) by constants fitted without a run's source, by source and id of the run."""
    if not LEFT_OUT.exists():
        return {}
    with LEFT_OUT.open(newline="") as file:
        return {(row["source"], row["id"]): float(row["log_error_left_out"]) for row in csv.DictReader(file)}


def coverage() -> list[dict[str, str]]:
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


def calculon(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Return the verdicts on the runs that Calculon predicted, with its predictions."""
    known = calculon_seconds()
    return [replace(each, predicted_s=known[each.id]) for each in verdicts if each.id in known]


def constant_efficiency(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Return the verdicts on the runs whose operations are known, predicted with a constant efficiency."""
    rates: dict[tuple[str, str], list[float]] = {}
    known = [(each, each.flop, each.measured_s) for each in verdicts if each.flop and each.measured_s]
    for each, flop, seconds in known:
        rates.setdefault(_machine(each), []).append((flop or 0.0) / (seconds or 1.0))
    usual = {name: median(found) for name, found in rates.items()}
    return [replace(each, predicted_s=(flop or 0.0) / usual[_machine(each)]) for each, flop, _ in known]


def _machine(verdict: Verdict) -> tuple[str, str]:
    return verdict.set, verdict.row.get("accel", "")
