"""What a metamorphic relation is, how engines answer for a design and its changed copies, and what shows a violation.

A relation says how an answer must change when a design does: twice the bandwidth is never slower. It needs no reference
number, so it can be checked on any design that can be drawn. A violation names the command that shows it: a model and a
system of the catalog, and what differs from them.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Any, TypeAlias

import numpy as np

from cosmic.base.errors import SpecError
from cosmic.design import catalog_entries, schema
from cosmic.design.design_batch import batch_of_changes
from cosmic.design.design_point import STACK_LAYERS, DesignPoint
from cosmic.evaluation import evaluate, evaluate_batch
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.events.design_simulation import simulate_design
from cosmic.simulate.metrics import Infeasible
from cosmic.workload.mapping_rules import invalid_reasons

ROOMY = "1e15 B"
"""Memory of a design that does not fit, so that its step is shown."""
MESH = ("tp", "cp", "pp")
STATED = ("task", "dp", *MESH, "ep", "sequence", "global_batch", "micro_batch", "virtual_stages")
"""Keys that every command states: their defaults depend on each other."""


def command_of(point: DesignPoint) -> str:
    """Return the command that evaluates *point*; with room for it, if it does not fit."""
    source, settings = nearest_catalog_design(point)
    if _misses_memory(point):
        settings["memory.capacity"] = ROOMY
    return " ".join(["cosmic evaluate", source, *(_option(path, value) for path, value in settings.items())])


def settings_of(point: DesignPoint, changed: DesignPoint) -> str:
    """Return the options that turn the command of *point* into that of *changed*."""
    return " ".join(_option(path, value) for path, value in _differences(point, changed).items())


def nearest_catalog_design(point: DesignPoint) -> tuple[str, dict[str, Any]]:
    """Return the design of the catalog that differs least from *point*, and what to set in it."""
    candidates = [(source, _differences(bare, point)) for source, bare in _candidates(point)]
    if not candidates:
        return point.model.name, {}
    source, settings = min(candidates, key=lambda candidate: len(candidate[1]))
    kept_settings = {key: getattr(point.workload, key) for key in STATED}
    return source, {**kept_settings, **settings}


def _misses_memory(point: DesignPoint) -> bool:
    outcome = evaluate(point)
    return isinstance(outcome, Infeasible) and any("GiB" in reason for reason in outcome.reasons)


def _candidates(point: DesignPoint) -> Iterator[tuple[str, DesignPoint]]:
    """Yield the designs of the catalog with the model and the number of accelerators of *point*."""
    workload = point.workload
    for name in catalog_entries.entry_names("systems"):
        for source in (f"{point.model.name}@{name}:{point.network.npus}", f"{point.model.name}@{name}"):
            bare = _bare_design(source, workload.task, workload.tp, workload.cp, workload.pp)
            if bare is not None and len(bare.network.dims) == len(point.network.dims):
                yield source, bare


@lru_cache(maxsize=4096)
def _bare_design(source: str, task: str, *degrees: int) -> DesignPoint | None:
    try:
        return load_design(source, {"task": task, **dict(zip(MESH, degrees, strict=True))}, plain=True)
    except SpecError:
        return None


def _differences(first: DesignPoint, second: DesignPoint) -> dict[str, Any]:
    """Return what to set in *first* to get *second*, as it stands in files, keys of the workload by their short name."""
    settings: dict[str, Any] = {}
    for layer in STACK_LAYERS:
        trees = [_flatten_layer(schema.write_value(getattr(point, layer)) or {}, layer) for point in (first, second)]
        for path in dict.fromkeys((*trees[1], *trees[0])):
            if trees[0].get(path) != trees[1].get(path):
                settings[path.removeprefix("workload.")] = trees[1].get(path)
    return settings


def _flatten_layer(tree: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return the leaves of a layer by path: dimensions of the network by place, other lists as a whole."""
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        path = f"{prefix}.{key}"
        if isinstance(value, Mapping):
            leaves |= _flatten_layer(value, path)
        elif path == "network.dims":
            for index, item in enumerate(value):
                leaves |= _flatten_layer(item, f"{path}.{index}")
        else:
            leaves[path] = value
    return leaves


def _option(path: str, value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)  # JSON is YAML in one line
    return f"--set {shlex.quote(f'{path}={text}')}"


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
class RelatedAnswer:
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
        changed_text = f"\n      with {self.changed}" if self.changed else ""
        return f"{self.relation}: {self.finding.text}\n      {self.command}{changed_text}"


Law: TypeAlias = Callable[[RelatedAnswer, RelatedAnswer], Iterable[Finding]]
"""What must hold between the answers for a design before and after a change."""
Variants: TypeAlias = Callable[[DesignPoint, Random], Sequence[Changes]]
"""Changes of a design; none where a relation says nothing of it."""
Engine: TypeAlias = Callable[[DesignPoint, Sequence[Changes]], list[RelatedAnswer | None]]


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation that every design must satisfy."""

    name: str
    sentence: str
    violations: Callable[[DesignPoint, Random], list[Violation]]
    """Returns what contradicts it in a design, empty where nothing does."""


def answer_in_closed_form(point: DesignPoint, changes: Sequence[Changes]) -> list[RelatedAnswer | None]:
    """Return what the closed form says of *point* with each of *changes*, as one batch; None where it cannot run."""
    outcome = evaluate_batch(batch_of_changes(point, changes))
    size = len(changes)
    columns = {name: np.broadcast_to(column, size) for name, column in outcome.columns.items()}
    answers = (
        RelatedAnswer({name: float(column[row]) for name, column in columns.items()}, float(outcome.excess[row]))
        for row in range(size)
    )
    return [None if np.isinf(answer.excess) else answer for answer in answers]


def answer_by_events(point: DesignPoint, changes: Sequence[Changes]) -> list[RelatedAnswer | None]:
    """Return what the event engine says of *point* with each of *changes*; None where it cannot run."""
    answers: list[RelatedAnswer | None] = []
    for change in changes:
        changed = point.changed(change) if change else point
        answers.append(
            None if invalid_reasons(changed) else RelatedAnswer({"step_s": simulate_design(changed).cycles / 1e9})
        )
    return answers


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
    engine: Engine = answer_in_closed_form,
    between: Sequence[tuple[int, int]] | None = None,
) -> Relation:
    """Return the relation that *laws* hold between a design and each of its *variants*.

    With *between*, they hold between the variants of these places instead.
    """

    def violations(point: DesignPoint, rng: Random) -> list[Violation]:
        changes = [dict(variant) for variant in variants(point, rng)]
        if not changes:
            return []
        tried: list[Changes] = [{}, *changes] if between is None else list(changes)
        pairs = [(0, index) for index in range(1, len(tried))] if between is None else between
        answers = _answered(engine, point, tried)
        if isinstance(answers, SpecError):
            return []
        broken = []
        for before, after in pairs:
            if (
                after >= len(tried)
                or (answer_before := answers[before]) is None
                or (answer_after := answers[after]) is None
            ):
                continue
            for finding in (violated for law in laws for violated in law(answer_before, answer_after)):
                broken.append(make_violation(name, finding, point, tried[before], tried[after], engine))
        return broken

    return Relation(name, sentence, violations)


def _answered(engine: Engine, point: DesignPoint, tried: Sequence[Changes]) -> list[RelatedAnswer | None] | SpecError:
    """Return the answers, or why a layer refuses a change."""
    try:
        return engine(point, tried)
    except SpecError as error:
        return error


def make_violation(
    name: str,
    finding: Finding,
    point: DesignPoint,
    before: Changes,
    after: Changes,
    engine: Engine = answer_in_closed_form,
) -> Violation:
    """Return a violation with the command of *point* after one change, and the options that add the other."""
    first = point.changed(before) if before else point
    second = point.changed(after) if after else point
    command = command_of(first) + (" --engine event" if engine is answer_by_events else "")
    return Violation(name, finding, command, settings_of(first, second))


# ---- laws


def at_most(metric: str, rounding: float = ROUNDING) -> Law:
    """Return the law that a metric does not rise."""

    def law(before: RelatedAnswer, after: RelatedAnswer) -> Iterable[Finding]:
        if after[metric] > before[metric] * (1 + rounding):
            yield Finding(
                f"{metric} {before[metric]:.6g} -> {after[metric]:.6g}", relative_difference(before, after, metric)
            )

    return law


def at_least(metric: str, rounding: float = ROUNDING) -> Law:
    """Return the law that a metric does not fall."""

    def law(before: RelatedAnswer, after: RelatedAnswer) -> Iterable[Finding]:
        if after[metric] < before[metric] * (1 - rounding):
            yield Finding(
                f"{metric} {before[metric]:.6g} -> {after[metric]:.6g}", relative_difference(before, after, metric)
            )

    return law


def stays_equal(*metrics: str) -> Law:
    """Return the law that metrics stay as they are; the one that changes most is found."""

    def law(before: RelatedAnswer, after: RelatedAnswer) -> Iterable[Finding]:
        metric = max(metrics, key=lambda name: relative_difference(before, after, name))
        size = relative_difference(before, after, metric)
        if size > ROUNDING:
            yield Finding(f"{metric} {before[metric]:.6g} -> {after[metric]:.6g}", size)

    return law


def stays_feasible(before: RelatedAnswer, after: RelatedAnswer) -> Iterable[Finding]:
    """Yield a finding where a design fitted before a change and does not after it."""
    if before.excess == 0 and after.excess > 0:
        yield Finding(f"fitted, now needs {100 * after.excess:.3g} % more memory than there is", after.excess)


def relative_difference(before: RelatedAnswer, after: RelatedAnswer, metric: str) -> float:
    """Return the relative difference of a metric; 0 where a task has none."""
    value_before, value_after = before[metric], after[metric]
    if value_before == value_after or (np.isnan(value_before) and np.isnan(value_after)):
        return 0.0
    return float(abs(value_after - value_before) / max(abs(value_before), abs(value_after)))
