"""Sizes clusters: for each system, the number of accelerators that fits, its best mapping, and what the run takes.

    systems ──▶ numbers that fit (price, power) ──▶ best mapping of each ──▶ checkpoints and recovery ──▶ the best row

Mappings are searched (`cosmic.mapping`), not taken from a rule of thumb. All that is tried is kept, and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice, product
from math import lcm
from typing import Any

import numpy as np

from cosmic import catalog
from cosmic.catalog.systems import dimensions, smallest_whole
from cosmic.catalog.systems import system as catalog_system
from cosmic.design import schema
from cosmic.design.batch import batch_of, batch_of_changes
from cosmic.design.paths import full_path
from cosmic.design.point import DesignPoint
from cosmic.errors import SpecError, require
from cosmic.evaluation import Infeasible, Metrics, evaluate, evaluate_batch
from cosmic.loading.designs import load_machine
from cosmic.mapping.completing import load
from cosmic.pricing.clusters import ClusterCost, cluster_cost
from cosmic.sizing.counts import (
    around,
    batch_near,
    counts_within,
    fewest,
    finer_counts,
    largest_within,
    rungs,
    smaller_counts,
)
from cosmic.sizing.question import Question, systems_asked
from cosmic.sizing.scaling import scaled

CHECKPOINTS = ("asynchronous", "in_memory", "blocking")
"""Ways to keep the state that are tried, if nobody states one."""
LARGER_IS_NO_BETTER = "larger is no better"
FINER = 16
"""Whole-node numbers near the limit that are tried besides, as long as one could be the best."""
IN_VAIN = 8
"""After so many of them in a row that train no sooner, no more are tried."""
FINER_AGAIN = 4
"""The same where an input is changed a little."""
HARDLY_WORSE = 3
"""Where a quarter of a cluster takes less than so many times as long, smaller ones may be better still."""
NO_FACTORS: Mapping[str, float] = {}
OF_MAPPING = ("model", "workload")
"""Layers that the search of mappings reads; all others say what the machine is."""


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
    """The limit that allows no larger number: budget, power or accelerators; or why none is wanted: the deadline is
    met, or `LARGER_IS_NO_BETTER`."""


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
    sizer.check()
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
        if machine.run.npu_mtbf_s is None:
            raise UnsizedError(f"no rate of interruptions is known for {machine.compute.accelerator}: set run.npu_mtbf")
        node = lcm(max(1, machine.node.npus), smallest_whole(system))
        fits, bound = self._fits(system, factors, asked)
        counts = counts_within(node, fits, asked.accelerators)
        if not counts:
            raise UnsizedError(self._too_large(system, node, factors, asked))
        tries = _Tries(lambda npus: self._try(system, npus, factors, asked))
        until = asked.deadline_days
        enough = None if until is None else fewest(node, counts[0], lambda npus: tries.days(npus) <= until)
        most = largest_within(node, fits, asked.accelerators)
        if until is not None and enough is not None:
            self._try_below(tries, node, enough, until)
        else:
            changed = bool(factors) or question is not None
            some = self._try_within(tries, node, counts)
            if some and until is None and asked.objective == "train_days":
                self._try_finer(tries, node, most, changed)
            self._try_smaller(tries, node, most, asked)
            if until is not None and (timely := [each for each in tries.found if _in_time(each, asked)]):
                self._try_below(tries, node, min(each.accelerators for each in timely), until)
        found = [each for each in tries.found if getattr(each.metrics, asked.objective) is not None]
        if not found:
            raise UnsizedError(tries.reason or self._why_unknown(system))
        if not factors and question is None:
            self.tried += found
        best = min(found, key=lambda each: self.loss(each.metrics, asked))
        if _in_time(best, asked):
            return Row(best, "deadline")
        tried = max(tries.known) > best.accelerators  # where none was, no batch is near for what is left of the limit
        return Row(best, LARGER_IS_NO_BETTER if tried else bound(most + node) or LARGER_IS_NO_BETTER)

    @staticmethod
    def _try_within(tries: _Tries, node: int, counts: list[int]) -> bool:
        """Try *counts*, and return whether some can run; ever fewer where the batch or the model is too small."""
        for npus in counts:
            tries.get(npus)
        if tries.found:
            return True
        for npus in smaller_counts(node, counts[-1]):
            power = node * 2 ** ((npus // node).bit_length() - 1)
            if isinstance(tries.get(power), Tried):
                for share in (5, 6, 7):  # between this power of two of nodes and the next
                    tries.get(power * share // 4 // node * node)
                break
        return False

    def _try_below(self, tries: _Tries, node: int, enough: int, until: float) -> None:
        """Try fewer whole nodes than are *enough*, down to a number that was tried and is late."""
        for npus in islice(finer_counts(node, enough - node, self._usual_batch), FINER):
            if npus in tries.known and tries.days(npus) > until:
                return
            tries.get(npus)

    def _try_finer(self, tries: _Tries, node: int, largest: int, changed: bool) -> None:
        """Try more numbers of whole nodes, from the largest that fits downwards, while one could train sooner.

        It could if each of its accelerators were as quick as those of the cluster that uses them best: smaller numbers
        than that train later, however well they are used.
        """
        left, soonest = FINER_AGAIN if changed else FINER, float("inf")
        in_vain = 0
        for npus in finer_counts(node, largest, self._usual_batch):
            if npus in tries.known:
                continue
            days = [(each.metrics.train_days, each.accelerators) for each in tries.found if each.metrics.train_days]
            quickest = min((each * of for each, of in days), default=0.0)  # accelerator-days
            before, soonest = soonest, min((each for each, _ in days), default=float("inf"))
            in_vain = 0 if soonest < before else in_vain + 1
            if not left or in_vain > IN_VAIN or (days and quickest >= npus * soonest):
                return
            tries.get(npus)
            left -= 1

    def _try_smaller(self, tries: _Tries, node: int, most: int, asked: Question) -> None:
        """Try ever fewer accelerators unless a part of the *most* is far worse, then numbers around the best of all.

        Where the batch gives each accelerator little to do, a far smaller cluster can be the better one.
        """

        def loss(each: Tried) -> float:
            wanted = getattr(each.metrics, asked.objective)
            return float("inf") if wanted is None else float(wanted)

        if not tries.found:
            return
        best = min(tries.found, key=loss)
        parts = [each for each in tries.found if most <= 8 * each.accelerators <= 8 * best.accelerators]
        if any(loss(each) >= HARDLY_WORSE * loss(best) for each in parts):
            return
        much_worse = 0
        for npus in rungs(node, most):
            tried = tries.get(npus)
            if isinstance(tried, str):
                continue
            best = min(best, tried, key=loss)
            much_worse = much_worse + 1 if npus < best.accelerators and loss(tried) >= 2 * loss(best) else 0
            if much_worse > 1:
                break
        last = None
        while last != best:
            last = best
            for npus in around(node, best.accelerators, most):
                tries.get(npus)
            best = min(tries.found, key=loss)

    def _try(self, system: str, npus: int, factors: Mapping[str, float], asked: Question) -> Tried | str:
        """Return a cluster with its best mapping and checkpoints, or why there is none."""
        point = self._best_mapping(system, npus)
        return point if isinstance(point, str) else self._run(system, point, factors, asked)

    def loss(self, metrics: Metrics, question: Question | None = None) -> tuple[float, ...]:
        """Return what is to be small: the objective; with a deadline, days too late, then dollars or the objective."""
        asked = question or self.question
        wanted = getattr(metrics, asked.objective)
        days = metrics.train_days
        if asked.deadline_days is None or days is None or wanted is None:
            return (float("inf") if wanted is None else wanted,)
        late = max(0.0, days - asked.deadline_days)
        if asked.objective != "train_days":
            return (late, wanted, days)
        spent = metrics.cost_usd if metrics.cost_usd is not None else metrics.train_usd
        return (late, float("inf") if spent is None else spent, days)

    # ------------------------------------------------------------------------------------------------ machines

    def _tree(self, system: str, npus: int) -> dict[str, Any]:
        return {"model": self.question.model, "system": f"{system}:{npus}", "run": {"tokens": self.question.tokens}}

    def _machine(self, system: str, factors: Mapping[str, float], npus: int | None = None) -> DesignPoint:
        entry = catalog.entry("systems", system)
        source = self._tree(system, npus if npus is not None else entry["npus"])
        stated = self._stated(system, npus)
        of_machine = {path: value for path, value in stated.items() if not path.startswith(OF_MAPPING)}
        return scaled(load_machine(source, of_machine), factors)

    def _stated(self, system: str, npus: int | None) -> dict[str, Any]:
        """Return the overrides at their full paths, less those of dimensions that so few accelerators do not have."""
        whole = {full_path(path): value for path, value in self.question.overrides.items()}
        if npus is None:
            return whole
        there = len(catalog_system(f"{system}:{npus}")["network"]["dims"])
        gone = tuple(f"network.dims.{place}." for place in range(there, len(dimensions(system))))
        return {path: value for path, value in whole.items() if not path.startswith(gone)}

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
        try:
            cost = self._cost(system, npus, factors)
        except SpecError as error:
            if error.where != "system":
                raise
            return error.rule
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
        if asked.accelerators is None:
            return ""
        machine = self._machine(system, factors, npus)
        node = max(1, machine.node.npus)
        spare = -(-machine.run.spare_npus // node) * node  # as they are bought: in whole nodes
        return "accelerators" if npus + spare > asked.accelerators else ""

    def _too_large(self, system: str, node: int, factors: Mapping[str, float], asked: Question) -> str:
        """Return in words why one node is too much, with what it takes."""
        cost, limit = self._cost(system, node, factors), self._broken(system, node, factors, asked)
        says = {
            "budget": f"budget of {asked.budget_usd or 0:,.0f} USD, and it costs {float(cost.capital_usd):,.0f} USD",
            "power": f"power of {asked.power_w or 0:,.0f} W, and it draws {float(cost.power_w):,.0f} W",
            "accelerators": f"at most {asked.accelerators} accelerators",
        }
        return f"one node of {node} does not fit: {says.get(limit, limit)}"

    def _cost(self, system: str, npus: int, factors: Mapping[str, float]) -> ClusterCost:
        return cluster_cost(batch_of(self._machine(system, factors, npus)))

    # ------------------------------------------------------------------------------------------------ mappings

    def check(self) -> None:
        """Raise a `SpecError` where a field of model or workload that the question states has no value of its kind."""
        usual = self._usual
        for path, value in self.question.overrides.items():
            whole = full_path(path)
            if not whole.startswith(OF_MAPPING) or "." not in whole:
                continue
            slot = schema.slot_at(usual, whole)
            read = schema.read(slot.hint, value, whole, slot.dimension)
            require(whole != "workload.task" or read == "training", whole, value, "only training is sized")
            try:
                schema.assign(usual, {whole: read})
            except SpecError as error:
                if error.where == whole:  # the value itself, not how it fits the others of this design
                    raise

    def _best_mapping(self, system: str, npus: int) -> DesignPoint | str:
        """Return the design with the best mapping on so many accelerators, or why there is none."""
        if (system, npus) not in self._mapped:
            self._mapped[system, npus] = self._search(system, npus)
        return self._mapped[system, npus]

    def _search(self, system: str, npus: int) -> DesignPoint | str:
        tree = self._tree(system, npus)
        overrides = self._stated(system, npus)
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
        return self._usual.workload.global_batch

    @cached_property
    def _usual(self) -> DesignPoint:
        """The model with a usual workload."""
        return load(f"{self.question.model}@dgx-h100:1024", {"recompute": "full"}).point

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

    def _why_unknown(self, system: str) -> str:
        unknown = evaluate(self._best_mapping_of(system)).unknown  # type: ignore[union-attr]
        return unknown.get(self.question.objective, f"{self.question.objective} is unknown")

    def _best_mapping_of(self, system: str) -> DesignPoint:
        found = [each for (name, _), each in self._mapped.items() if name == system]
        return next(each for each in found if isinstance(each, DesignPoint))


@dataclass
class _Tries:
    """Numbers of accelerators of one system that were tried, each once."""

    run: Callable[[int], Tried | str]
    known: dict[int, Tried | str] = field(default_factory=dict)

    def get(self, npus: int) -> Tried | str:
        """Return what came of a number."""
        if npus not in self.known:
            self.known[npus] = self.run(npus)
        return self.known[npus]

    def days(self, npus: int) -> float:
        """Return the days of a number to train; infinite where there is no answer."""
        tried = self.get(npus)
        days = None if isinstance(tried, str) else tried.metrics.train_days
        return float("inf") if days is None else days

    @property
    def found(self) -> list[Tried]:
        """The clusters that there are."""
        return [each for each in self.known.values() if isinstance(each, Tried)]

    @property
    def reason(self) -> str:
        """Why the largest number has no answer; empty if all have one."""
        said = {npus: each for npus, each in self.known.items() if isinstance(each, str)}
        return f"{max(said):,}: {said[max(said)]}" if said else ""


def _in_time(tried: Tried, asked: Question) -> bool:
    days = tried.metrics.train_days
    return asked.deadline_days is not None and days is not None and days <= asked.deadline_days
