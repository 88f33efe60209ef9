"""Learn how far off predictions are: ``python calibration/expected_errors.py``.

The script takes the errors of published runs, each predicted by constants that were fitted without its source
(`fit_runs.py` writes them), and those of our own steps, which depend on none of these constants. From them it learns
the ranges that `cosmic evaluate` prints, and how far off ratios of predictions are (`conformal`). It writes both into
the catalog, and prints how many runs of each source are within ranges that were learned without that source. Run it last, after ``fit_runs.py --write``.
"""

from __future__ import annotations

import csv

import numpy as np
from conformal import (
    Covered,
    SourceResiduals,
    learn_pairs,
    learn_scale,
    measure_coverage,
    measured_residuals,
)

from cosmic.accuracy.validating import COVERAGE, COVERED
from cosmic.design import catalog_entries
from cosmic.design.prediction_accuracy import KnownRuns, LearnedErrors

TARGET = catalog_entries.CATALOG_FOLDER / "accuracy.yaml"
HEADER = """\
# How far off predicted steps are: written by calibration/expected_errors.py from measured runs, each predicted by
# constants that were fitted without its source. cosmic.design.prediction_accuracy says what it means.
"""


def text_of(found: LearnedErrors, pairs: dict[str, dict[str, object]]) -> str:
    """Return the file of the catalog."""
    lines = ["scale: # of errors: the logarithm is a sum over features"]
    lines += [f"  {name}: {value:.3f}" for name, value in found.coefficients.items()]
    lines += ["quantiles: # of errors over their scale"]
    lines += [f"  {name}: {getattr(found, name):.3f}" for name in ("mean", "half", "nine_tenths")]
    lines += ["pairs: # errors of ratios of two predictions over their scale, at each tenth of the pairs and at 0.95"]
    lines += [f"  {name}: {_flow(entry)}" for name, entry in pairs.items()]
    lines += ["measured: # runs by source and traits, with their mean error"]
    lines += [f"  - {_flow(_fields(each))}" for each in found.known]
    return HEADER + "\n".join(lines) + "\n"


def _fields(each: KnownRuns) -> dict[str, object]:
    return {name: getattr(each, name) for name in KnownRuns.__slots__}


def _flow(entry: dict[str, object]) -> str:
    return "{" + ", ".join(f"{key}: {_plain(value)}" for key, value in entry.items()) + "}"


def _plain(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_plain, value))}]"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def write_coverage(table: list[Covered]) -> None:
    """Write the coverage of each source, left out, for the page on accuracy."""
    with COVERAGE.open("w", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(COVERED)
        lines.writerows([_plain(getattr(each, key)) for key in COVERED] for each in table)


def show(table: list[Covered]) -> None:
    """Print the coverage of each source, left out."""
    print(f"{'source':16} {'runs':>5} {'P25-P75':>8} {'P5-P95':>8} {'width':>8}")
    for each in table:
        print(f"{each.source:16} {each.runs:5d} {each.half:8.0%} {each.nine_tenths:8.0%} {'±':>2}{each.width:6.0%}")
    runs = np.array([each.runs for each in table])
    for name, weight in (("mean of sources", np.ones(len(table))), ("all runs", runs)):
        half, nine, width = (
            np.average([getattr(each, key) for each in table], weights=weight)
            for key in ("half", "nine_tenths", "width")
        )
        print(f"{name:16} {runs.sum():5d} {half:8.1%} {nine:8.1%} {'±':>2}{width:6.0%}")


def main() -> None:
    """Learn, write, and say how many runs are within their ranges."""
    found = measured_residuals()
    gathered = SourceResiduals([each.residual for each in found])
    known = learn_scale(gathered)
    TARGET.write_text(text_of(known, learn_pairs(found, known)))
    print(TARGET.read_text().partition("measured:")[0])
    table = measure_coverage(gathered)
    write_coverage(table)
    show(table)


if __name__ == "__main__":
    main()
