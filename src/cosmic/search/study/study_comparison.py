"""Studies compared: what each search found, and after how many trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cosmic.base.errors import SpecError, require
from cosmic.design.design_point import DesignPoint
from cosmic.design.prediction_accuracy import assess_certainty
from cosmic.search.agent import Floats
from cosmic.search.objectives import loss, loss_ratio
from cosmic.search.problem import Problem
from cosmic.search.space.diagram import Indices
from cosmic.search.study.study import Study
from cosmic.search.trials import Trials

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
