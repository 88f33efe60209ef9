"""What a metamorphic relation is, and how both engines answer for a design and its changed copies.

A relation says how an answer must change when a design does: twice the bandwidth is never slower. It needs no reference
number, so it can be checked on any design that can be drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeAlias

import numpy as np

from cosmic.design.batch import batch_of_changes
from cosmic.design.point import DesignPoint
from cosmic.errors import SpecError
from cosmic.evaluation import evaluate_batch
from cosmic.simulation.event.from_design import simulate_design
from cosmic.testing.relations.commands import command_of, settings_of
from cosmic.workload.checks import invalid_reasons

ROUNDING = 1e-9
"""Relative error of sums in another order."""
PLAYED_ROUNDING = 1e-3
"""The same where each node is rounded to whole nanoseconds."""
MOST_RANKS = 64
MOST_TASKS = 64
"""Of designs that the event engine plays at once: ranks, and microbatches times stages."""

Changes: TypeAlias = Mapping[str, Any]
"""New contents of some fields, by path."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What an engine says of a design."""

    columns: Mapping[str, float]
    excess: float = 0.0
    """As in `cosmic.evaluation.BatchOutcome`."""

    def __getitem__(self, name: str) -> float:
        return self.columns[name]


@dataclass(frozen=True, slots=True)
class Finding:
    """What contradicts a relation."""

    text: str
    """Both numbers."""
    size: float
    """How large the contradiction is: a relative difference."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A design that contradicts a relation."""

    relation: str
    finding: Finding
    command: str
    """Shows the design."""
    changed: str
    """Options to add to the command, for the other number; empty if one design contradicts itself."""

    def __str__(self) -> str:
        beside = f"\n      with {self.changed}" if self.changed else ""
        return f"{self.relation}: {self.finding.text}\n      {self.command}{beside}"


Law: TypeAlias = Callable[[Answer, Answer], Iterable[Finding]]
"""What must hold between the answers for a design before and after a change."""
Variants: TypeAlias = Callable[[DesignPoint, Random], Sequence[Changes]]
"""Changes of a design; none where a relation says nothing of it."""
Engine: TypeAlias = Callable[[DesignPoint, Sequence[Changes]], list[Answer | None]]


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation that every design must satisfy."""

    name: str
    sentence: str
    violations: Callable[[DesignPoint, Random], list[Violation]]
    """Returns what contradicts it in a design, empty where nothing does."""


def closed(point: DesignPoint, changes: Sequence[Changes]) -> list[Answer | None]:
    """Return what the closed form says of *point* with each of *changes*, as one batch; None where it cannot run."""
    found = evaluate_batch(batch_of_changes(point, changes))
    size = len(changes)
    columns = {name: np.broadcast_to(column, size) for name, column in found.columns.items()}
    answers = (
        Answer({name: float(column[row]) for name, column in columns.items()}, float(found.excess[row]))
        for row in range(size)
    )
    return [None if np.isinf(answer.excess) else answer for answer in answers]


def played(point: DesignPoint, changes: Sequence[Changes]) -> list[Answer | None]:
    """Return what the event engine says of *point* with each of *changes*; None where it cannot run."""
    found: list[Answer | None] = []
    for each in changes:
        changed = point.changed(each) if each else point
        found.append(None if invalid_reasons(changed) else Answer({"step_s": simulate_design(changed).cycles / 1e9}))
    return found


def is_small(point: DesignPoint) -> bool:
    """Return whether the event engine plays a design at once."""
    workload = point.workload
    count = workload.global_batch // (workload.dp * workload.micro_batch)
    return workload.ranks <= MOST_RANKS and count * workload.pp * workload.virtual_stages <= MOST_TASKS


def comparison(
    name: str,
    sentence: str,
    variants: Variants,
    *laws: Law,
    engine: Engine = closed,
    between: Sequence[tuple[int, int]] | None = None,
) -> Relation:
    """Return the relation that *laws* hold between a design and each of its *variants*.

    With *between*, they hold between the variants of these places instead.
    """

    def violations(point: DesignPoint, rng: Random) -> list[Violation]:
        changes = [dict(each) for each in variants(point, rng)]
        if not changes:
            return []
        tried: list[Changes] = [{}, *changes] if between is None else list(changes)
        pairs = [(0, place) for place in range(1, len(tried))] if between is None else between
        answers = _answered(engine, point, tried)
        if isinstance(answers, SpecError):
            return []
        found = []
        for before, after in pairs:
            if after >= len(tried) or (one := answers[before]) is None or (other := answers[after]) is None:
                continue
            for finding in (each for law in laws for each in law(one, other)):
                found.append(violation(name, finding, point, tried[before], tried[after], engine))
        return found

    return Relation(name, sentence, violations)


def _answered(engine: Engine, point: DesignPoint, tried: Sequence[Changes]) -> list[Answer | None] | SpecError:
    """Return the answers, or why a layer refuses a change."""
    try:
        return engine(point, tried)
    except SpecError as error:
        return error


def violation(
    name: str,
    finding: Finding,
    point: DesignPoint,
    before: Changes,
    after: Changes,
    engine: Engine = closed,
) -> Violation:
    """Return a violation with the command of *point* after one change, and the options that add the other."""
    first = point.changed(before) if before else point
    second = point.changed(after) if after else point
    command = command_of(first) + (" --engine event" if engine is played else "")
    return Violation(name, finding, command, settings_of(first, second))


# --------------------------------------------------------------------------------------------------- laws


def at_most(metric: str, rounding: float = ROUNDING) -> Law:
    """Return the law that a metric does not rise."""

    def law(before: Answer, after: Answer) -> Iterable[Finding]:
        if after[metric] > before[metric] * (1 + rounding):
            yield Finding(f"{metric} {before[metric]:.6g} -> {after[metric]:.6g}", relative(before, after, metric))

    return law


def at_least(metric: str, rounding: float = ROUNDING) -> Law:
    """Return the law that a metric does not fall."""

    def law(before: Answer, after: Answer) -> Iterable[Finding]:
        if after[metric] < before[metric] * (1 - rounding):
            yield Finding(f"{metric} {before[metric]:.6g} -> {after[metric]:.6g}", relative(before, after, metric))

    return law


def equal(*metrics: str) -> Law:
    """Return the law that metrics stay as they are; the one that changes most is found."""

    def law(before: Answer, after: Answer) -> Iterable[Finding]:
        metric = max(metrics, key=lambda name: relative(before, after, name))
        size = relative(before, after, metric)
        if size > ROUNDING:
            yield Finding(f"{metric} {before[metric]:.6g} -> {after[metric]:.6g}", size)

    return law


def stays_feasible(before: Answer, after: Answer) -> Iterable[Finding]:
    """Yield a finding where a design fitted before a change and does not after it."""
    if before.excess == 0 and after.excess > 0:
        yield Finding(f"fitted, now needs {100 * after.excess:.3g} % more memory than there is", after.excess)


def relative(before: Answer, after: Answer, metric: str) -> float:
    """Return the relative difference of a metric; 0 where a task has none."""
    one, other = before[metric], after[metric]
    if one == other or (np.isnan(one) and np.isnan(other)):
        return 0.0
    return float(abs(other - one) / max(abs(one), abs(other)))
