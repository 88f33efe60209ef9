"""Studies compared: what each search found, and after how many trials.

A study replayed: its search is run again from its inputs, and compared with the study.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from cosmic.base.errors import SpecError, require
from cosmic.base.json_types import Count, ShareOrNull, json_keys
from cosmic.design.design_point import DesignPoint
from cosmic.design.prediction_accuracy import assess_certainty
from cosmic.search.agent import Flags, Floats
from cosmic.search.objectives import loss, loss_ratio
from cosmic.search.problem import Problem, Results
from cosmic.search.search_loop import PoolOptions, explore_batches
from cosmic.search.space.diagram import Indices
from cosmic.search.study.study import Study, name_study, open_study, software_versions
from cosmic.search.trials import Ledger, Trials
from cosmic.search.worker_pools import open_evaluator

TIME_METRICS = ("step_s", "ttft_s", "tpot_s", "tokens_per_s", "samples_per_s", "mfu")
"""Objectives whose ratio is that of two times."""
NEAR = 0.05
"""A search is near the best known loss when it is within this share of it."""


@dataclass(frozen=True)
class Course:
    """How one search converged, by its first objective."""

    name: str
    agent: str
    seed: int
    evaluated: int
    feasible: int
    evaluations: Indices
    """The evaluations at which the best so far improved."""
    losses: Floats
    """The least loss from each of them on."""
    point: DesignPoint | None = None
    """The best design; None where nothing can run, or with several workloads."""

    @property
    def best(self) -> float:
        """The least loss at the end; infinite where nothing could run."""
        return float(self.losses[-1]) if len(self.losses) else np.inf

    def near(self, target: float) -> int | None:
        """Return after how many evaluations the search was within `NEAR` of *target*; None if it never was."""
        positions = np.flatnonzero(self.losses <= target * (1 + NEAR))
        return int(self.evaluations[positions[0]]) if len(positions) else None


def course_of(name: str, agent: str, seed: int, problem: Problem, trials: Trials) -> Course:
    """Return how a search with these *trials* converged."""
    evaluations, values = trials.curve(problem)
    best_losses = loss(problem.objectives[0], values)
    return Course(name, agent, seed, trials.evaluated, trials.feasible, evaluations, best_losses)


def _best_point(problem: Problem, trials: Trials) -> DesignPoint | None:
    """Return the best design of a search; None where nothing can run, or with several workloads."""
    best = None if problem.space.workloads else trials.best(problem)
    return None if best is None else problem.space.point(trials.row(best))


@dataclass(frozen=True)
class Comparison:
    """Several searches for one objective."""

    objective: str
    courses: tuple[Course, ...]

    @property
    def target(self) -> float:
        """The least loss that any of the searches found."""
        return min((course.best for course in self.courses), default=np.inf)

    def rows(self) -> list[dict[str, Any]]:
        """Return a line for each search, in the order given."""
        return [
            {
                "study": course.name,
                "agent": course.agent,
                "seed": course.seed,
                "trials": course.evaluated,
                "feasible": course.feasible,
                "best": metric_of_loss(self.objective, course.best),
                "behind": share_behind(course.best, self.target) if np.isfinite(course.best) else None,
                "trials_to_5_percent": course.near(self.target),
                "told_apart": self._told_apart(course),
            }
            for course in self.courses
        ]

    def _told_apart(self, candidate: Course) -> bool | None:
        """Return whether the best design of a search is surely slower than the best of all.

        None where that is itself, or where the objective is no rate or time.
        """
        first = min(self.courses, key=lambda course: course.best)
        if (
            self.objective not in TIME_METRICS
            or candidate.point is None
            or first.point is None
            or candidate.best == first.best
        ):
            return None
        return assess_certainty(first.point, candidate.point, candidate.best / first.best).told_apart


def share_behind(best: float, target: float) -> float:
    """Return by what share of *target* the loss *best* is above it; infinite where nothing could run.

    >>> share_behind(3.0, 2.0), share_behind(0.0, 0.0), share_behind(1.0, 0.0)
    (0.5, 0.0, inf)
    """
    return loss_ratio(target, best) - 1 if np.isfinite(best) else np.inf


def metric_of_loss(objective: str, least: float) -> float | None:
    """Return the metric with the loss *least*; `loss` is its own inverse, so it is applied again."""
    return float(loss(objective, np.array([least]))[0]) if np.isfinite(least) else None


def compare_studies(studies: Sequence[Study]) -> Comparison:
    """Return a comparison of *studies*; all must have the same first objective."""
    require(bool(studies), "studies", [], "give at least one study")
    objective = studies[0].problem.objectives[0]
    for study in studies:
        study_objective = study.problem.objectives[0]
        if study_objective != objective:
            rule = (
                f"its objective is {study_objective}, that of the first study is {objective}: they cannot be compared"
            )
            raise SpecError("study", str(study.path), rule)
    courses = []
    for study in studies:
        course = course_of(study.path.name, study.inputs.agent, study.inputs.seed, study.problem, study.trials)
        courses.append(replace(course, point=_best_point(study.problem, study.trials)))
    return Comparison(objective, tuple(courses))


# ---- A study replayed: its search is run again from its inputs, and compared with the study


@json_keys("same")
@dataclass(frozen=True, slots=True)
class ReplayedStudy:
    """A study compared with its replay."""

    trials: Count
    """Trials of the study."""
    first: int | None
    """The first trial that differs; None if none does."""
    other_points: bool
    """Whether the agent proposes other points from there on; otherwise results differ."""
    differing: Count
    """How many trials differ."""  # after a different point, all of them
    largest: Mapping[str, ShareOrNull]
    """The largest difference of each metric that differs, by name."""
    written_by: Mapping[str, str]
    """Versions that wrote the study."""
    running: Mapping[str, str]
    """Versions that run now."""

    @property
    def same(self) -> bool:
        """Whether all trials are the same, bit for bit."""
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
