"""What one own step is worth: calibrate on one run of a group, predict the others of the group.

python calibration/calibrate_on_one.py [--by-source] [RUNS.csv …]

A group is one model in one precision on one accelerator, of one source; by source, all of its runs on one accelerator.
Printed are mean errors without calibration, by
a plain factor (measured over predicted of the one run), and by `cosmic calibrate run`; over groups, and over rows.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cosmic.accuracy.calibrate.calibration import calibrate_target
from cosmic.accuracy.calibrate.calibration_target import Target, target_of
from cosmic.accuracy.calibrate.predicted_measurements import PredictedMeasurements, observed_step
from cosmic.accuracy.measured_rows import Fields, carried_files, read_rows
from cosmic.accuracy.rows.training_rows import read_run, require_fit
from cosmic.base.errors import SpecError
from cosmic.design.measured_hardware import find_system

GROUP = ("set", "accel", "model", "precision", "hidden", "n_layers")
MOST = 8
"""Runs of a group that are calibrated on, and as many that are predicted: hundreds are alike."""


def groups(paths: Sequence[Path], by: Sequence[str]) -> dict[tuple[str, ...], list[PredictedMeasurements]]:
    """Return the runs of the files by group; those that cannot be predicted are left out."""
    found: dict[tuple[str, ...], list[PredictedMeasurements]] = defaultdict(list)
    for path in paths:
        kind, rows = read_rows(path)
        for row in rows if kind.name == "training runs" else ():
            try:
                run = read_run(Fields(row))
                require_fit(run.point)
            except SpecError:
                continue
            key = tuple(row.get(name) or "" for name in by)
            found[key].append(observed_step(row["id"], run.point, run.measured_s))
    return {key: each for key, each in found.items() if len(each) > 1}


def target(accelerator: str) -> Target:
    """Return the usual system of an accelerator."""
    return target_of(find_system(accelerator), "", ())


def errors(key: tuple[str, ...], runs: list[PredictedMeasurements]) -> np.ndarray:
    """Return the mean errors of a group: before, by a plain factor, calibrated."""
    kept = [runs[place] for place in np.linspace(0, len(runs) - 1, min(MOST, len(runs))).astype(int)]
    plain = [float(run.seconds([{}])[0, 0]) for run in kept]
    found = []
    for place, one in enumerate(kept):
        learned = calibrate_target(target(key[1]), [one])
        ratio = one.measured_s[0] / plain[place]
        for other, run in enumerate(kept):
            if other != place:
                after = float(run.seconds([learned.changes(run.hardware)])[0, 0])
                predicted = np.array([plain[other], plain[other] * ratio, after])
                found.append(np.abs(predicted / run.measured_s[0] - 1))
    return np.asarray(np.mean(found, axis=0))


def main() -> None:
    """Print the errors of every group, and their means."""
    words = [word for word in sys.argv[1:] if word != "--by-source"]
    by = GROUP[:2] if "--by-source" in sys.argv else GROUP
    found = {
        key: (len(runs), errors(key, runs)) for key, runs in groups([*map(Path, words)] or carried_files(), by).items()
    }
    for key, (count, each) in sorted(found.items(), key=lambda item: -item[1][1][0]):
        print(
            f"{count:4d} runs  {100 * each[0]:5.1f} {100 * each[1]:5.1f} {100 * each[2]:5.1f} %  {' · '.join(key[:4])}"
        )
    counts = [count for count, _ in found.values()]
    means = np.array([each for _, each in found.values()])
    for label, mean in (("groups", means.mean(axis=0)), ("rows", np.average(means, axis=0, weights=counts))):
        before, plain, ours = 100 * mean
        print(f"mean over {label}: before {before:.1f} %, plain factor {plain:.1f} %, calibrated {ours:.1f} %")


if __name__ == "__main__":
    main()
