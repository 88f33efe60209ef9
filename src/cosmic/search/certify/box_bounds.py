"""What no design of a box can beat: a program that runs the fastest corner at the cheapest corner's price.

A box is a skeleton, an option of every choice, and a stretch of every range. The step of its fastest corner is not
longer than that of any design inside (`monotonicity`), and its cheapest corner costs no more. In the program of the
bound, what follows from a bandwidth other than by way of the step reads a second input, *thrift*:

    perf_per_bandwidth = 1 / (step(bandwidth) * sum(bandwidth))      the metric
                         1 / (step(fastest)   * sum(cheapest))       its bound

With both inputs the same, it is the metric of a design, so that one run gives a bound and a candidate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cosmic.search.certify.interval_arithmetic import Flags, Interval
from cosmic.search.certify.monotonicity import CONSTANT, Walk, never_falls, walk_program
from cosmic.search.certify.skeletons import Floats, Group, NotProvable
from cosmic.search.objectives import MetricLimit, loss
from cosmic.search.space.diagram import Indices
from cosmic.simulate.metrics import BETTER
from cosmic.simulate.recording.program_interpreters import ProgramPlan
from cosmic.simulate.recording.program_tape import INPUT, LISTED
from cosmic.simulate.recording.recorded_program import RecordedProgram
from cosmic.simulate.step_evaluation import POSSIBLE

STEP = "step_s"
THRIFT = "thrift."
BOUND = "bound."
JUDGED = ("memory_bytes", "offloaded_bytes", "tier_excess")
"""Metrics that decide whether a design can run."""


@dataclass(frozen=True, eq=False)
class Boxes:
    """Boxes of designs of any group."""

    skeletons: Indices
    options: Indices
    """An option of every choice, a row for each box."""
    low: Indices
    """The slowest and cheapest place of every range."""
    high: Indices
    """The fastest and dearest."""

    def __len__(self) -> int:
        return len(self.skeletons)

    def take(self, rows: Indices | Flags | slice) -> Boxes:
        """Return some of the boxes."""
        return Boxes(self.skeletons[rows], self.options[rows], self.low[rows], self.high[rows])

    @staticmethod
    def join(parts: Sequence[Boxes]) -> Boxes:
        """Return several lists of boxes as one."""
        names = ("skeletons", "options", "low", "high")
        return Boxes(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    @property
    def single(self) -> Flags:
        """Which boxes are one design."""
        return np.asarray((self.low == self.high).all(axis=1))

    @property
    def sizes(self) -> Indices:
        """How many places each box has."""
        return np.asarray((self.high - self.low + 1).astype(np.int64).prod(axis=1))


@dataclass(frozen=True, slots=True)
class Judged:
    """What is known of some boxes."""

    bounds: Floats
    """Losses that no design inside can beat, a column for each objective; infinite where no design inside can run."""
    losses: Floats
    """Losses of the fastest corner; infinite where it cannot run."""


def add_bounds(
    program: RecordedProgram, ranges: dict[str, int], metrics: Sequence[str], reading: Sequence[Sequence[int]]
) -> RecordedProgram:
    """Return a program with a bound for each of *metrics*: inputs other than by way of the step are doubled."""
    step = program.results[STEP]
    nodes: list[list[int]] = program.nodes.tolist()
    lists = program.lists.tolist()
    inputs = dict(program.inputs)
    copies: dict[int, int] = {}
    for path, node in ranges.items():
        copies[node] = inputs[THRIFT + path] = len(nodes)
        nodes.append([INPUT, 0, 0, 0])
    wanted = {name: program.results[name] for name in metrics}
    for place in _nodes_beside_step(reading, list(wanted.values()), step):
        if not any(each in copies for each in reading[place]):
            continue
        moved = [copies.get(each, each) for each in reading[place]]
        copied = list(nodes[place])
        if copied[0] in LISTED:
            copied[2] = len(lists)
            lists += moved
        else:
            copied[1 : 1 + len(moved)] = moved
        copies[place] = len(nodes)
        nodes.append(copied)
    bounds = {BOUND + name: copies.get(node, node) for name, node in wanted.items()}
    measured = {name: program.results[name] for name in dict.fromkeys((*metrics, STEP, *POSSIBLE, *JUDGED))}
    rules = {name: node for name, node in program.results.items() if name.startswith("rule.")}
    return replace(
        program,
        nodes=np.array(nodes, dtype=np.int32),
        lists=np.array(lists, dtype=np.int32),
        inputs=inputs,
        results={**measured, **bounds, **rules},
        measured=len(measured) + len(bounds),
        known={},
    )


def _nodes_beside_step(reading: Sequence[Sequence[int]], wanted: Sequence[int], step: int) -> list[int]:
    """Return the nodes that some results need, in order, without what they need by way of the step."""
    found: set[int] = set()
    waiting = [each for each in wanted if each != step]
    while waiting:
        place = waiting.pop()
        if place not in found:
            found.add(place)
            waiting += [each for each in reading[place] if each != step]
    return sorted(found)


class Bounding:
    """Bounds of the boxes of one group of skeletons that can run."""

    def __init__(self, group: Group, objectives: Sequence[str], limits: Sequence[MetricLimit]) -> None:
        self.objectives, self.limits = tuple(objectives), tuple(limits)
        self.metrics = tuple(dict.fromkeys((*objectives, *(limit.metric for limit in limits))))
        self._whole = group
        self._check_skeletons_decide(group)
        self.program = add_bounds(group.program, group.range_nodes, self.metrics, group.reading)
        self._paths = (*group.paths, *(THRIFT + path for path in group.range_nodes))
        self._plan = ProgramPlan(self.program, self._paths, group.uniform)
        self._places = {name: index for index, name in enumerate(self.program.results)}
        self.local = np.full(int(group.skeletons.max(initial=0)) + 1, -1, dtype=np.intp)
        self.local[group.skeletons] = np.arange(len(group.skeletons))

    def _check_skeletons_decide(self, group: Group) -> None:
        judged = [group.program.results[name] for name in JUDGED]
        judged += [node for name, node in group.program.results.items() if name.startswith("rule.")]
        if group.opened[judged].any():
            raise NotProvable("whether a design can run depends on more of its network than sizes")

    @cached_property
    def group(self) -> Group:
        """The skeletons that can run."""
        return self._whole.take(np.flatnonzero(self.able))

    @cached_property
    def able(self) -> Flags:
        """Which of the group's skeletons can run: mapping, memory and outer tiers, which no network decides."""
        group = self._whole
        count = len(group.skeletons)
        results = np.empty((len(self.program.results), count))
        columns = np.vstack([group.columns, *(np.zeros((1, count)) for _ in group.range_nodes)])
        for index, path in enumerate(group.range_nodes, start=len(group.paths)):
            columns[index] = columns[group.paths.index(path)]
        self._run(np.ascontiguousarray(columns), results)
        rules = [results[place] != 0 for name, place in self._places.items() if name.startswith("rule.")]
        base = group.division.space.base
        given = {path: columns[place] for place, path in enumerate(group.paths)}
        room = given.get("memory.capacity", base.memory.capacity_bytes)
        outer = sum(
            given.get(f"memory.tiers.{place}.capacity", tier.capacity_bytes)
            for place, tier in enumerate(base.memory.tiers)
        )
        fits = (results[self._places["memory_bytes"]] <= room) & (results[self._places["offloaded_bytes"]] <= outer)
        fits &= results[self._places["tier_excess"]] <= 0
        return np.asarray(np.logical_and.reduce([fits, *rules]))

    def _run(self, columns: Floats, results: Floats) -> None:
        if not self._plan.run(columns, np.arange(columns.shape[1]), results):
            raise NotProvable("no one program runs all designs")

    # --------------------------------------------------------------------------------------------- proofs

    def prove(self) -> None:
        """Raise `NotProvable` unless the corners of a box bound it, in every skeleton that can run."""
        group = self.group
        if not len(group.skeletons):
            return
        step = group.program.results[STEP]
        held = never_falls(group, [step])
        if not held.all():
            raise NotProvable(
                f"the step of {np.count_nonzero(~held):,} of {len(held):,} skeletons is not shown "
                "never to fall when the network gets slower"
            )
        self._prove_metrics(group, step)

    def _prove_metrics(self, group: Group, step: int) -> None:
        """Raise `NotProvable` unless every metric worsens with the step and with what is bought."""
        doubled = replace(group, program=self.program, uniform={**group.uniform})
        given = Walk()
        given.intervals[step] = Interval(*(np.asarray(each) for each in POSSIBLE[STEP]))
        given.signs[step] = (True, False)
        for each in group.division.ranges:
            for index, path in enumerate(each.paths):
                if path in group.range_nodes:
                    node, ends = self.program.inputs[THRIFT + path], each.values[[0, -1], index]
                    given.intervals[node] = Interval(np.asarray(ends.min()), np.asarray(ends.max()))
                    given.signs[node] = (bool(ends[0] <= ends[1]), bool(ends[1] <= ends[0]))
        for term in group.terms:  # of one option: it does not differ inside a box
            given.intervals[term.node], given.signs[term.node] = Interval(term.least, term.most), CONSTANT
        for place, answer in group.compared.items():
            given.intervals[place], given.signs[place] = Interval(np.asarray(answer), np.asarray(answer)), CONSTANT
        nodes = {name: self.program.results[BOUND + name] for name in self.metrics}
        found = walk_program(doubled, [node for node in nodes.values() if node != step], given)
        for name, node in nodes.items():
            rises, falls = (True, False) if node == step else found.signs[node]
            if not np.all(rises if BETTER[name] == "less" else falls):
                raise NotProvable(f"{name} is not shown to worsen with the step and with what is bought")

    # --------------------------------------------------------------------------------------------- boxes

    def judge(self, boxes: Boxes) -> Judged:
        """Return the bounds of boxes of this group, and the losses of their fastest corners."""
        found = self._values(boxes, boxes.high, boxes.low)
        real = {name: found[name] for name in self.program.results if not name.startswith((BOUND, "rule."))}
        losses = self._losses(real)
        out = np.zeros(len(boxes), dtype=bool)
        for name, (least, most) in POSSIBLE.items():
            out |= ~((real[name] >= least) & (real[name] <= most))
        for limit in self.limits:
            out |= limit.excess(real[limit.metric]) > 0
        losses[out | np.isnan(losses).any(axis=1)] = np.inf
        best = {name: found[BOUND + name] for name in self.metrics}
        bounds = self._losses(best)
        bounds[np.isnan(bounds)] = -np.inf  # a corner whose numbers overflow says nothing
        for each in self._usual:
            bounds[each.excess(best[each.metric]) > 0] = np.inf
        single = boxes.single
        bounds[single] = losses[single]
        return Judged(bounds, losses)

    @cached_property
    def _usual(self) -> list[MetricLimit]:
        """Limits that a worse design breaks: a box breaks them if its bound does."""
        return [limit for limit in self.limits if limit.most == (BETTER[limit.metric] == "less")]

    def worst(self, boxes: Boxes) -> Floats:
        """Return losses that no design of a box exceeds, if its fastest corner can run; infinite if some may not."""
        found = self._values(boxes, boxes.low, boxes.high)
        values = {name: found[BOUND + name] for name in self.metrics}
        losses = self._losses(values)
        out = np.isnan(losses).any(axis=1) | (len(self._usual) < len(self.limits))
        for each in self._usual:
            out |= each.excess(values[each.metric]) > 0
        losses[out] = np.inf
        return losses

    def _losses(self, values: dict[str, Floats]) -> Floats:
        with np.errstate(all="ignore"):
            return np.stack([loss(name, values[name]) for name in self.objectives], axis=1)

    def _values(self, boxes: Boxes, fast: Indices, thrift: Indices) -> dict[str, Floats]:
        columns = self._columns(boxes, fast, thrift)
        results = np.empty((len(self.program.results), len(boxes)))
        self._run(columns, results)
        return {name: results[place] for name, place in self._places.items()}

    def _columns(self, boxes: Boxes, fast: Indices, thrift: Indices) -> Floats:
        group = self._whole
        columns = np.empty((len(self._paths), len(boxes)))
        columns[: len(group.paths)] = group.columns[:, self.local[boxes.skeletons]]
        rows = {path: place for place, path in enumerate(self._paths)}
        for number, choice in enumerate(group.division.choices):
            for index, path in enumerate(choice.paths):
                codes = np.array([group.codes[path][value] for value in choice.options[:, index].tolist()])
                columns[rows[path]] = codes[boxes.options[:, number]]
        for number, each in enumerate(group.division.ranges):
            for place, path in enumerate(each.paths):
                columns[rows[path]] = each.values[fast[:, number], place]
                if THRIFT + path in rows:
                    columns[rows[THRIFT + path]] = each.values[thrift[:, number], place]
        return columns
