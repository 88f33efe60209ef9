"""Sizes clusters: for each system, the number of accelerators that fits, its best mapping, and what the run takes.

    systems ──▶ numbers that fit (price, power) ──▶ best mapping of each ──▶ checkpoints and recovery ──▶ the best row

Mappings are searched (`cosmic.mapping`), not taken from a rule of thumb. All that is tried is kept, and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from math import ceil
from typing import Any

import numpy as np

from cosmic import catalog
from cosmic.cost.compute import peak_flop_per_s
from cosmic.design import schema
from cosmic.design.batch import batch_of, batch_of_changes
from cosmic.design.paths import full_path
from cosmic.design.point import DesignPoint
from cosmic.errors import SpecError, require
from cosmic.evaluation import Infeasible, Metrics, evaluate, evaluate_batch
from cosmic.goodput.designs import SECONDS_PER_DAY
from cosmic.loading.designs import load, load_machine
from cosmic.pricing.clusters import cluster_cost
from cosmic.sizing.counts import MOST, Loss, batch_near, counts_within, next_count, searched
from cosmic.sizing.question import Question, systems_asked
from cosmic.step.compute import model_flop_per_token

CHECKPOINTS = ("asynchronous", "in_memory", "blocking")
"""Ways to keep the state that are tried, if nobody states one."""
LEAST_MFU = 1 / 64
"""Of clusters that are worth a look: with less, more accelerators would hardly be sooner done."""
NO_FACTORS: Mapping[str, float] = {}


@dataclass(frozen=True, slots=True)
class Tried:
    """One cluster that was looked at, with the best mapping and checkpoints found for it."""

    system: str
    accelerators: int
    point: DesignPoint
    metrics: Metrics


@dataclass(frozen=True, slots=True)
class Row:
    """The answer for one system."""

    best: Tried
    bound_by: str
    """The limit that allows no larger number: budget, power, accelerators; ``deadline`` that allows no smaller one that
    was tried; ``mapping`` if a larger one is no better."""


@dataclass(frozen=True, slots=True)
class Counted:
    """What was gone through."""

    systems: int = 0
    sizes: int = 0
    mappings: int = 0
    designs: int = 0


@dataclass(frozen=True)
class Sizing:
    """What to buy: a row for each system that can be sized, best first, and why others cannot."""

    question: Question
    rows: tuple[Row, ...]
    refused: Mapping[str, str]
    """Systems without an answer, each with the reason."""
    tried: tuple[Tried, ...]
    counted: Counted
    seconds: float = 0.0

    @property
    def best(self) -> Row | None:
        """The best of all systems."""
        return self.rows[0] if self.rows else None


def size(question: Question, systems: Sequence[str] = (), progress: Callable[[str], None] = lambda _: None) -> Sizing:
    """Return what to buy of each of *systems*; of all recent ones that are sold, if none is named."""
    sizer = Sizer(question)
    rows, refused = [], {}
    for name in systems_asked(tuple(systems)):
        progress(name)
        try:
            found = sizer.row(name)
        except UnsizedError as error:
            refused[name] = str(error)
            continue
        rows.append(found)
    rows.sort(key=lambda row: sizer.loss(row.best.metrics))
    return Sizing(question, tuple(rows), refused, tuple(sizer.tried), replace(sizer.counted, systems=len(rows)))


class UnsizedError(Exception):
    """Why a system has no answer, in words."""


@dataclass
class Sizer:
    """Answers a question for one system after the other; mappings that were searched are kept."""

    question: Question
    tried: list[Tried] = field(default_factory=list)
    counted: Counted = Counted()
    _mapped: dict[tuple[str, int], DesignPoint | str] = field(default_factory=dict)

    def row(self, system: str, factors: Mapping[str, float] = NO_FACTORS, question: Question | None = None) -> Row:
        """Return the answer for a system; numbers of the design at paths of *factors* are multiplied by them."""
        asked = question or self.question
        machine = self._machine(system, factors)
        fits, bound = self._fits(system, factors, asked)
        node = max(1, machine.node.npus)
        counts = counts_within(node, fits, _most(machine, asked))
        if not counts:
            raise UnsizedError(f"one node of {node} does not fit: {bound(node) or 'accelerators'}")
        runs: dict[int, Tried] = {}

        def loss_of(npus: int) -> Loss | None:
            point = self._best_mapping(system, npus)
            if isinstance(point, str):
                return None
            run = self._run(system, point, factors, asked)
            if getattr(run.metrics, asked.objective) is None:
                raise UnsizedError(_why_unknown(run.metrics, asked.objective))
            runs[npus] = run
            return self.loss(run.metrics, asked)

        numbers = searched(counts, node, loss_of)
        if not runs:
            smallest = min(numbers)  # larger ones have too many parts for a batch; this one says what a part needs
            raise UnsizedError(f"{smallest:,}: {self._best_mapping(system, smallest)}")
        if not factors and question is None:
            self.tried += [runs[npus] for npus in sorted(runs, reverse=True)]
        best = min(runs.values(), key=lambda each: self.loss(each.metrics, asked))
        return Row(best, self._bound_by(best, asked, counts[0], bound(next_count(best.accelerators, node))))

    @staticmethod
    def _bound_by(best: Tried, asked: Question, most: int, limit: str) -> str:
        """Return what decides the number: a limit that more would break, or the deadline that fewer would miss."""
        days = best.metrics.train_days
        if asked.deadline_days is not None and days is not None and days <= asked.deadline_days:
            return "deadline"
        return (best.accelerators == most and limit) or "mapping"

    def loss(self, metrics: Metrics, question: Question | None = None) -> tuple[float, ...]:
        """Return what is to be small: the objective; with a deadline, dollars among those that meet it."""
        asked = question or self.question
        wanted = getattr(metrics, asked.objective)
        days = metrics.train_days
        if asked.deadline_days is None or days is None:
            return (float("inf") if wanted is None else wanted,)
        late = max(0.0, days - asked.deadline_days)
        return (late, metrics.cost_usd if metrics.cost_usd is not None else metrics.train_usd or 0.0, days)

    # ------------------------------------------------------------------------------------------------ machines

    def _tree(self, system: str, npus: int) -> dict[str, Any]:
        return {"model": self.question.model, "system": f"{system}:{npus}", "run": {"tokens": self.question.tokens}}

    def _machine(self, system: str, factors: Mapping[str, float], npus: int | None = None) -> DesignPoint:
        entry = catalog.entry("systems", system)
        source = self._tree(system, npus if npus is not None else entry["npus"])
        return scaled(load_machine(source, self._of_machine), factors)

    @cached_property
    def _of_machine(self) -> dict[str, Any]:
        """What of the overrides is no workload: that is for the search of mappings."""
        whole = {full_path(path): value for path, value in self.question.overrides.items()}
        return {path: value for path, value in whole.items() if path.partition(".")[0] not in ("workload", "model")}

    def _fits(
        self, system: str, factors: Mapping[str, float], asked: Question
    ) -> tuple[Callable[[int], bool], Callable[[int], str]]:
        """Return whether so many accelerators are within the limits, and which limit they break."""
        known: dict[int, str] = {}

        def broken(npus: int) -> str:
            if npus not in known:
                known[npus] = self._broken(system, npus, factors, asked)
            return known[npus]

        return lambda npus: not broken(npus), broken

    def _broken(self, system: str, npus: int, factors: Mapping[str, float], asked: Question) -> str:
        """Return the limit that so many accelerators break; empty where they break none."""
        cost = cluster_cost(batch_of(self._machine(system, factors, npus)))
        for limit, spent, most in (
            ("budget", float(cost.capital_usd), asked.budget_usd),
            ("power", float(cost.power_w), asked.power_w),
        ):
            if most is None:
                continue
            if np.isnan(spent):
                raise UnsizedError(f"no {'price' if limit == 'budget' else 'power'} is known")
            if spent > most:
                return limit
        return "accelerators" if asked.accelerators is not None and npus > asked.accelerators else ""

    # ------------------------------------------------------------------------------------------------ mappings

    def _best_mapping(self, system: str, npus: int) -> DesignPoint | str:
        """Return the design with the best mapping on so many accelerators, or why there is none."""
        if (system, npus) not in self._mapped:
            self._mapped[system, npus] = self._search(system, npus)
        return self._mapped[system, npus]

    def _search(self, system: str, npus: int) -> DesignPoint | str:
        tree = self._tree(system, npus)
        overrides = {full_path(path): value for path, value in self.question.overrides.items()}
        try:
            if "workload.global_batch" not in overrides:
                overrides["workload.global_batch"] = batch_near(self._usual_batch, npus)
            loaded = load(tree, overrides)
        except SpecError as error:
            return error.rule
        self.counted = replace(
            self.counted, sizes=self.counted.sizes + 1, mappings=self.counted.mappings + loaded.searched
        )
        outcome = evaluate(loaded.point)
        return outcome.reasons[0] if isinstance(outcome, Infeasible) else loaded.point

    @cached_property
    def _usual_batch(self) -> int:
        """The global batch of the model where nobody states one."""
        usual = load(f"{self.question.model}@dgx-h100:1024", {"recompute": "full"}).point
        return usual.workload.global_batch

    def _run(self, system: str, point: DesignPoint, factors: Mapping[str, float], asked: Question) -> Tried:
        """Return a cluster with the best checkpoints for its run."""
        point = scaled(schema.assign(point, {"run.tokens": asked.tokens}), factors)
        stated = {full_path(path) for path in self.question.overrides}
        kinds = (point.run.checkpoint,) if "run.checkpoint" in stated else CHECKPOINTS
        changes = [{"run.checkpoint": kind} for (kind,) in product(kinds)]
        outcome = evaluate_batch(batch_of_changes(point, changes))
        self.counted = replace(self.counted, designs=self.counted.designs + len(changes))
        shares = outcome.columns["goodput"]
        best = 0 if np.isnan(shares).all() else int(np.nanargmax(shares))
        chosen = point.changed(changes[best])
        metrics = evaluate(chosen)
        assert isinstance(metrics, Metrics)  # noqa: S101  its mapping was evaluated, and checkpoints take no memory
        return Tried(system, point.network.npus, chosen, metrics)


def _why_unknown(metrics: Metrics, objective: str) -> str:
    return metrics.unknown.get(objective, f"{objective} is unknown")


def _most(machine: DesignPoint, asked: Question) -> int | None:
    """Return the most accelerators worth a try; None if nothing bounds them.

    With a deadline, these are as many as make it at a sixty-fourth of their peak: more of them would meet it no better.
    """
    if asked.deadline_days is None:
        return asked.accelerators
    peak = float(peak_flop_per_s(lambda key: schema.get(machine.compute, key), "bf16"))
    flop = float(model_flop_per_token(machine.model, 1.0)) * asked.tokens
    enough = max(machine.node.npus, ceil(flop / peak / (asked.deadline_days * SECONDS_PER_DAY * LEAST_MFU)))
    return min(enough, MOST, asked.accelerators or MOST)


def scaled(point: DesignPoint, factors: Mapping[str, float]) -> DesignPoint:
    """Return a design with numbers multiplied; what is not known stays so."""
    changes = {}
    for path, factor in factors.items():
        value = schema.get(point, path)
        require(value is None or isinstance(value, int | float), path, value, "is no number")
        if value is not None:
            changes[path] = value * factor
    scaled: DesignPoint = schema.assign(point, changes) if changes else point
    return scaled
