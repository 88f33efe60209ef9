"""A study replayed: its search is run again from its inputs, and compared with the study."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from cosmic.search.agent import Flags, Floats
from cosmic.search.problem import Results
from cosmic.search.search_loop import PoolOptions, explore_batches
from cosmic.search.study.study import name_study, open_study, software_versions
from cosmic.search.trials import Ledger, Trials
from cosmic.search.worker_pools import open_evaluator


@dataclass(frozen=True, slots=True)
class ReplayedStudy:
    """A study compared with its replay."""

    trials: int
    """How many trials the study holds."""
    first: int | None
    """The first trial that differs; None where none does."""
    other_points: bool
    """Whether the agent proposes other points from there on; otherwise the same points have other results."""
    differing: int
    """How many trials differ; after a different point, all of them."""
    largest: Mapping[str, float]
    """For each metric that differs, its largest relative difference."""
    written_by: Mapping[str, str]
    running: Mapping[str, str]

    @property
    def same(self) -> bool:
        """Whether the two are the same, bit for bit."""
        return self.first is None


def replay_study(path: str | Path, pool: PoolOptions | None = None) -> ReplayedStudy:
    """Return a comparison of the study in the directory *path* with the same search, run again."""
    study = open_study(path)
    batches, recorded = study.history
    pool, ledger, replayed = pool or PoolOptions(), Ledger(study.problem), 0
    with name_study(path), open_evaluator(study.problem, pool.workers, pool.address) as evaluate:
        steps = explore_batches(study.inputs, ledger, evaluate, batches)
        for _, rows, _, _ in islice(steps, len(batches)):
            same = np.array_equal(rows, recorded.points[replayed : replayed + len(rows)])
            replayed += len(rows)
            if not same:  # after one different point, all later proposals differ
                break
    first, largest, differing = compare_replay(recorded, ledger.trials)
    other_points = first is not None and not (first < _count_common(recorded, ledger.trials))
    return ReplayedStudy(
        len(recorded), first, other_points, differing, largest, study.written_by, software_versions(study.inputs.engine)
    )


def compare_replay(recorded: Trials, replayed: Trials) -> tuple[int | None, dict[str, float], int]:
    """Return the first trial that differs, the largest relative difference of each metric, and how many trials differ.

    Results are compared up to the first different point; after it, every trial differs.
    """
    common = _count_common(recorded, replayed)
    differs = _differing_trials(recorded.results, replayed.results, common)
    complete = common == len(recorded) == len(replayed)
    if complete and not differs.any():
        return None, {}, 0
    first = int(np.argmax(differs)) if differs.any() else common
    pairs = {
        name: (recorded.results.columns[name][:common], replayed.results.columns[name][:common])
        for name in recorded.results.columns
    }
    largest = {name: float(relative_difference(*pair).max(initial=0.0)) for name, pair in pairs.items()}
    differing = int(differs.sum()) + max(len(recorded) - common, 1 if len(replayed) > common else 0)
    return first, {name: value for name, value in largest.items() if value}, differing


def _count_common(recorded: Trials, replayed: Trials) -> int:
    """Return how many points from the first on are the same in two searches."""
    shorter = min(len(recorded), len(replayed))
    if not shorter:
        return 0
    same = (recorded.points[:shorter] == replayed.points[:shorter]).all(axis=1)
    return shorter if same.all() else int(np.argmin(same))


def _differing_trials(ours: Results, theirs: Results, n: int) -> Flags:
    """Return for each of the first *n* points whether its results differ."""
    differs = ours.counted[:n] != theirs.counted[:n]
    differs |= ours.coded[:n].differs(theirs.coded[:n])
    differs |= relative_difference(ours.excess[:n], theirs.excess[:n]) > 0
    for name in ours.columns:
        differs |= relative_difference(ours.columns[name][:n], theirs.columns[name][:n]) > 0
    return np.asarray(differs, dtype=bool)


def relative_difference(ours: Floats, theirs: Floats) -> Floats:
    """Return the difference of two numbers as a share of the larger; infinite where only one of them is NaN.

    >>> relative_difference(np.array([1.0, np.nan, np.nan, 4.0]), np.array([1.0, np.nan, 2.0, 3.0])).tolist()
    [0.0, 0.0, inf, 0.25]
    """
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.abs(ours - theirs) / np.fmax(np.abs(ours), np.abs(theirs))
    return np.where(same, 0.0, np.where(np.isfinite(share), share, np.inf))
