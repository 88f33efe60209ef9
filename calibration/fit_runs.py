"""Fit the few parameters that only whole runs determine: ``python calibration/fit_runs.py``.

    overlap_efficiency        largest share of weight gathers and gradient reductions that compute overlaps
    straggler_slack           spread of the ranks' times; the slowest sets the pace
    steady, narrow_steady     share of the GEMM rate that accelerators of full nodes keep in long runs
    tp, ep                    share of tensor- and expert-parallel communication that compute beside it can hide

The fit uses every second row of each source and checks the others; with ``--leave-out`` it also predicts each source by
a fit to the others. The runs are those that the package carries (cosmic.validation). The loss is the mean over sources
of their mean absolute error, so that sources count equally, whatever their number of rows. With ``--write``
the catalog takes what is found; tp and ep go to `constants/overlap.yaml` there.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from fit_gemm import CATALOG, write_entry

from cosmic.design.batch import batch_of
from cosmic.design.point import DesignPoint
from cosmic.errors import SpecError
from cosmic.evaluation import evaluate_batch
from cosmic.step import network_costs
from cosmic.validation.rows import Fields, carried_files, read_rows
from cosmic.validation.training_rows import read_run, require_fit

SOURCES = ("korthikanti", "sc21", "vtrain-multi", "mosaic", "torchtitan", "simumax", "mbridge", "nemo", "mlperf")
START = {
    "overlap_efficiency": 0.6,
    "straggler_slack": 0.01,
    "tp": 0.5,
    "ep": 0.8,
    "steady h100": 0.94,
    "steady b200": 0.7,
    "narrow h100": 0.9,
}
LIKE = {"h200": "h100", "h800": "h100", "gh200": "h100", "b300": "b200"}
"""Accelerators that take the shares of another one, of which more runs were published. Those named nowhere keep their
whole rate, as the runs of A100, GB200 and GB300 show."""
LIMITS = {"overlap_efficiency": (0.0, 1.0), "straggler_slack": (0.0, 0.05), "tp": (0.0, 1.0), "ep": (0.0, 1.0)}
STEPS = (0.85, 0.95, 1.05, 1.15)
Parameters = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Case:
    """A published run."""

    source: str
    point: DesignPoint
    measured_s: float
    fitted: bool


def cases() -> list[Case]:
    """Return the runs that can be predicted; every second one of each source is for the fit."""
    found: list[Case] = []
    seen = dict.fromkeys(SOURCES, 0)
    path = next(path for path in carried_files() if path.name == "training_published.csv")
    for row in read_rows(path)[1]:
        source = next((name for name in SOURCES if row["set"].startswith(name)), None)
        if source is None:
            continue
        try:
            run = read_run(Fields(row))
            require_fit(run.point)
        except SpecError:
            continue
        seen[source] += 1
        found.append(Case(source, run.point, run.measured_s, seen[source] % 2 == 1))
    return found


def predicted(case: Case, given: Parameters) -> float:
    """Return the predicted seconds of a run with the parameters *given*."""
    kept = of_accelerator(case.point.compute.accelerator, given)
    compute = replace(case.point.compute, **kept)
    collective = replace(case.point.collective, overlap_efficiency=given["overlap_efficiency"])
    network_costs.OVERLAP = network_costs.OverlapEfficiency(tp=given["tp"], ep=given["ep"])
    point = replace(case.point, compute=compute, collective=collective)
    return float(evaluate_batch(batch_of(point)).columns["step_s"][0])


def of_accelerator(name: str, given: Parameters) -> dict[str, Any]:
    """Return the fields of an accelerator that the parameters set."""
    family = name.partition("-")[0]
    family = LIKE.get(family, family)
    return {
        "straggler_slack": given["straggler_slack"],
        "steady_efficiency": given.get(f"steady {family}", 1.0),
        "narrow_steady_efficiency": given.get(f"narrow {family}", 1.0),
    }


def write(given: Parameters) -> None:
    """Write the parameters into the files of accelerators and systems whose kernels and links were fitted."""
    for path in sorted(CATALOG.glob("*.yaml")):
        if "sms:" in path.read_text():
            fields = {key: f"{value:.3g}" for key, value in of_accelerator(path.stem, given).items()}
            write_entry(path.stem, fields, {"runs": "fitted by calibration/fit_runs.py on published runs"}, "runs")
    write_overlap(given, CATALOG.parent / "constants" / "overlap.yaml")
    for path in sorted((CATALOG.parent / "systems").glob("*.yaml")):
        path.write_text(
            re.sub(
                r"overlap_efficiency: [\d.]+",
                f"overlap_efficiency: {given['overlap_efficiency']:.3g}",
                path.read_text(),
            )
        )


def write_overlap(given: Parameters, path: Path) -> None:
    """Put the overlap efficiencies of tp and ep into their file."""
    text = path.read_text()
    for axis in ("tp", "ep"):
        if axis in given:
            text = re.sub(rf"(?m)^({axis}:\n  value: )[\d.]+", rf"\g<1>{given[axis]:.3g}", text)
    path.write_text(text)


def errors(found: list[Case], given: Parameters) -> dict[str, Any]:
    """Return the relative errors of each source."""
    table: dict[str, list[float]] = {}
    for case in found:
        table.setdefault(case.source, []).append(predicted(case, given) / case.measured_s - 1)
    return {source: np.array(values) for source, values in table.items()}


def loss(found: list[Case], given: Parameters) -> float:
    """Return the mean over sources of their mean absolute error."""
    return float(np.mean([np.abs(values).mean() for values in errors(found, given).values()]))


def fit(found: list[Case], start: Parameters, rounds: int, report: Callable[[str], None]) -> dict[str, float]:
    """Return the parameters that a coordinate search finds."""
    best, least = dict(start), loss(found, start)
    for _ in range(rounds):
        before = least
        for name in start:
            low, high = LIMITS.get(name, (0.5, 1.0))
            for step in STEPS:
                tried = best | {name: min(high, max(low, best[name] * step))}
                if tried != best and (value := loss(found, tried)) < least - 1e-6:
                    best, least = tried, value
        report(f"  loss {least:.4f}")
        if before - least < 1e-4:
            break
    return best


def show(title: str, table: Mapping[str, Any]) -> None:
    """Print the errors of each source."""
    for source, values in table.items():
        size = np.abs(values)
        print(
            f"{title:22} {source:14} n {len(values):4d} mean {size.mean():6.1%} median {np.median(size):6.1%}"
            f" worst {size.max():6.1%} bias {values.mean():+6.1%}"
        )


def main() -> None:
    """Fit on half, check on the other half, and leave out one source at a time."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="write the parameters into the catalog")
    parser.add_argument("--leave-out", action="store_true", help="also predict each source by a fit to the others")
    asked = parser.parse_args()
    found = cases()
    fitted, kept = [case for case in found if case.fitted], [case for case in found if not case.fitted]
    best = {name: round(value, 3) for name, value in fit(fitted, START, asked.rounds, print).items()}
    if asked.write:
        write(best)
    for name, value in best.items():
        print(f"{name:14} {value:.3g}")
    show("fitted", errors(fitted, best))
    show("kept to check", errors(kept, best))
    for source in SOURCES if asked.leave_out else ():
        without = fit([case for case in found if case.source != source], START, 1, lambda _: None)
        show("left out", errors([case for case in found if case.source == source], without))


if __name__ == "__main__":
    main()
