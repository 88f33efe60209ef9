"""Fit the few parameters that only whole runs determine: ``python calibration/fit_runs.py``.

`run_parameters` says what they are, and what is known of them before. The runs are all that the package carries
(`cosmic.accuracy.validating`). With r the logarithm of predicted over measured time, the fit minimises

    Σ over runs  n^-½ h(r / c)  +  ½ Σ over parameters  ((x - mean) / spread)²

    n   runs of the source; a source so counts as √n runs: rows of one source err alike
    h   quadratic up to 1, growing like a root beyond: what these parameters cannot explain hardly moves them

by Gauss and Newton's method. Each source is then predicted by a fit to the others. All these fits go on at the same
time: every run is evaluated once a round, with all their parameters and a small change of each as arrays.
With ``--write`` the catalog takes what is found. The residuals of left-out sources, which `expected_errors.py` needs,
are always written to ``baselines/left_out.csv`` of the
package.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from run_parameters import QUANTITIES, Floats, Values, is_linked, names_of, paths, prior, start, value, write

from cosmic.accuracy.validating import LEFT_OUT, MeasuredStep, measured_steps
from cosmic.design.design_batch import Batch
from cosmic.simulate.analytic_step import compute_step_seconds
from cosmic.step import communication

SCALE = 0.06
"""c: errors of runs beyond it count less and less."""
COLLECTED = "training_collected"
"""The file of runs that were collected to test predictions: what they leave open is read from less."""
OF_COLLECTED = 0.1
"""The weight of such a run over that of others: they decide on accelerators that no other run has."""
CHANGE = 0.02
"""By how much a quantity's parameters are changed to find how the step depends on it."""
FARTHEST = 0.5
"""Largest change of a parameter in one round."""
ROUNDS = 4
REWEIGHTED = 12


@dataclass(frozen=True, slots=True)
class Runs:
    """Measured runs, and which parameters make each quantity of each."""

    steps: tuple[MeasuredStep, ...]
    names: tuple[str, ...]
    uses: npt.NDArray[np.float64]
    """1 where a parameter is part of a quantity of a run: runs × quantities × parameters."""

    @property
    def sources(self) -> npt.NDArray[Any]:
        """The source of each run."""
        return np.array([each.source for each in self.steps])

    @property
    def measured_s(self) -> Floats:
        """The measured seconds of each run."""
        return np.array([each.measured_s for each in self.steps])


def gather(found: Iterable[MeasuredStep]) -> Runs:
    """Return the runs of several accelerators with their parameters; one alone depends on none of these."""
    steps = tuple(each for each in found if each.point.network.npus > 1)
    parts = [names_of(each.point.compute.accelerator, linked=is_linked(each.point)) for each in steps]
    names = tuple(sorted({name for part in parts for used in part.values() for name in used}))
    uses = np.zeros((len(steps), len(QUANTITIES), len(names)))
    for place, part in enumerate(parts):
        for quantity, used in part.items():
            for name in used:
                uses[place, QUANTITIES.index(quantity), names.index(name)] = 1.0
    return Runs(steps, names, uses)


def predict(runs: Runs, tried: Floats) -> tuple[Floats, Floats]:
    """Return log seconds of every run with each set of parameters, and their slopes.

    *tried* is sets × parameters; the results are sets × runs, and sets × runs × quantities.
    """
    count, width = len(tried), len(QUANTITIES)
    logs = np.empty((count, len(runs.steps)))
    slopes = np.zeros((count, len(runs.steps), width))
    changes = np.concatenate([np.zeros((1, width)), CHANGE * np.eye(width)])
    kept = communication.OVERLAP
    try:
        for place, each in enumerate(runs.steps):
            totals = (runs.uses[place] @ tried.T).T[:, None, :] + changes  # sets × changes × quantities
            used = runs.uses[place].any(axis=1)
            found = np.log(_seconds(each, totals.reshape(-1, width), used)).reshape(count, width + 1)
            logs[:, place] = found[:, 0]
            slopes[:, place] = (found[:, 1:] - found[:, :1]) / CHANGE * used
    finally:
        communication.OVERLAP = kept
    return logs, slopes


def _seconds(run: MeasuredStep, totals: Floats, used: npt.NDArray[np.bool_]) -> Floats:
    """Return the seconds of a run with quantities by their *totals*: cases × quantities."""
    fields = paths(run.point)
    values = {
        kind: value(kind, totals[:, place])
        for place, kind in enumerate(QUANTITIES)
        if used[place] and (kind in fields or kind in ("tp", "ep"))
    }
    communication.OVERLAP = communication.OverlapEfficiency(tp=values["tp"], ep=values["ep"])
    batch = Batch(run.point, {fields[kind]: numbers for kind, numbers in values.items() if kind in fields})
    return np.broadcast_to(np.asarray(compute_step_seconds(batch).seconds, dtype=float), len(totals))


def weights(sources: npt.NDArray[Any], chosen: npt.NDArray[np.bool_], collected: npt.NDArray[np.bool_]) -> Floats:
    """Return the weight of each run: n^-½ of the *chosen*, less of those that were collected to test, else 0."""
    _, place, sizes = np.unique(sources, return_inverse=True, return_counts=True)
    return np.where(chosen, sizes[place] ** -0.5 * np.where(collected, OF_COLLECTED, 1.0), 0.0)


def improve(residual: Floats, slope: Floats, weight: Floats, now: Floats, priors: tuple[Floats, Floats]) -> Floats:
    """Return the parameters that minimise the loss of a linear model around *now*: *residual* + *slope* × change."""
    mean, spread = priors
    change: Floats = np.zeros_like(now)
    for _ in range(REWEIGHTED):
        size = np.abs(residual + slope @ change) / SCALE
        each = weight / np.maximum(size, 1.0) ** 1.5 / SCALE**2  # h by reweighting
        curve = slope.T @ (each[:, None] * slope) + np.diag(spread**-2.0)
        pull = -slope.T @ (each * residual) + (mean - now) / spread**2
        change = np.asarray(np.linalg.solve(curve, pull), dtype=np.float64)
    moved: Floats = now + np.clip(change, -FARTHEST, FARTHEST)
    return moved


@dataclass(frozen=True, slots=True)
class Fit:
    """What a fit found, and what fits without each source found."""

    runs: Runs
    values: Values
    without: Mapping[str, Values]
    error: Floats
    """Log of predicted over measured time of each run, by the fit to all."""
    left_out: Floats
    """The same, by the fit that did not see the run's source."""

    def spread(self, name: str) -> tuple[float, float]:
        """Return the least and the largest value of a parameter among the fits without a source."""
        place = self.values.names.index(name)
        found = [each.numbers[place] for each in self.without.values()]
        return min(found, default=0.0), max(found, default=0.0)


def fit(runs: Runs, rounds: int = ROUNDS) -> Iterator[Fit]:
    """Yield what is found after each round."""
    sources = runs.sources
    collected = np.array([each.collection == COLLECTED for each in runs.steps])
    left = sorted(set(sources))
    chosen = [np.full(len(sources), fill_value=True), *(sources != name for name in left)]
    known = [prior(name) for name in runs.names]
    priors = np.array([each.value for each in known]), np.array([each.spread for each in known])
    tried = np.tile(start(runs.names).numbers, (len(chosen), 1))
    target = np.log(runs.measured_s)
    for number in range(rounds + 1):
        sets = tried[:1] if number == 0 else tried  # all start alike
        logs, slopes = predict(runs, sets)
        if number == 0:
            logs, slopes = np.repeat(logs, len(chosen), 0), np.repeat(slopes, len(chosen), 0)
        error = logs - target
        own = np.array([error[1 + left.index(name), place] for place, name in enumerate(sources)])
        whole, *rest = (Values(runs.names, numbers.copy()) for numbers in tried)
        yield Fit(runs, whole, dict(zip(left, rest, strict=True)), error[0], own)
        if number < rounds:
            for place, those in enumerate(chosen):
                slope = np.einsum("rq,rqp->rp", slopes[place], runs.uses)
                weight = weights(sources, those, collected)
                tried[place] = improve(error[place], slope, weight, tried[place], priors)


# ------------------------------------------------------------------------------------------------- results


def show(found: Fit) -> None:
    """Print parameters with their spread, and the errors of each source, in sample and left out."""
    print(f"{'parameter':28} {'value':>9} {'least':>9} {'most':>9}   (least and most without one source)")
    for name, number in zip(found.values.names, found.values.numbers, strict=True):
        kind = name.partition(" ")[0]
        alone = name in found.values.of("").keys() | {"host old", "host new", "host grace"}
        shown = value if alone else lambda _, each: np.exp(each)
        said = [shown(kind, number), *sorted(shown(kind, each) for each in found.spread(name))]
        print(f"{name:28} " + " ".join(f"{each:9.3g}" for each in said) + ("" if alone else "   times the loss"))
    print(f"\n{'source':16} {'rows':>5} {'in sample':>10} {'left out':>10} {'median':>8} {'worst':>8} {'bias':>8}")
    sources = found.runs.sources
    means = []
    for name in sorted(set(sources)):
        inside, outside = (np.expm1(each[sources == name]) for each in (found.error, found.left_out))
        means.append((np.abs(inside).mean(), np.abs(outside).mean()))
        size = np.abs(outside)
        print(
            f"{name:16} {len(outside):5d} {means[-1][0]:10.1%} {size.mean():10.1%} {np.median(size):8.1%}"
            f" {size.max():8.1%} {outside.mean():+8.1%}"
        )
    every = np.abs(np.expm1(found.left_out))
    least, most = np.mean(means, axis=0)
    print(f"{'mean of sources':16} {'':5} {least:10.1%} {most:10.1%}")
    print(f"{'all rows':16} {len(every):5d} {np.abs(np.expm1(found.error)).mean():10.1%} {every.mean():10.1%}", end="")
    print(f" {np.median(every):8.1%} {every.max():8.1%}")


def write_left_out(found: Fit, path: Path = LEFT_OUT) -> None:
    """Write the error of every run by the fits to all and to the other sources."""
    with path.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("id", "source", "log_error", "log_error_left_out"))
        for each, inside, outside in zip(found.runs.steps, found.error, found.left_out, strict=True):
            table.writerow((each.id, each.source, f"{inside:.5f}", f"{outside:.5f}"))


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit to all sources, and to all but one; say what is found, and write it if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--write", action="store_true", help="write the parameters into the catalog")
    asked = parser.parse_args(arguments)
    runs = gather(measured_steps())
    for number, found in enumerate(fit(runs, asked.rounds)):
        inside, outside = (np.abs(np.expm1(each)).mean() for each in (found.error, found.left_out))
        print(f"round {number}: mean error {inside:.2%}, of left-out sources {outside:.2%}", flush=True)
    show(found)
    write_left_out(found)
    if asked.write:
        write(found.values)


if __name__ == "__main__":
    main()
