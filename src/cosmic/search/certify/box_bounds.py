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
from cosmic.search.certify.monotonicity import CONSTANT, Walk, find_never_falling, walk_program
from cosmic.search.certify.skeletons import Floats, Group, NotProvable
from cosmic.search.objectives import MetricLimit, loss
from cosmic.search.space.diagram import Indices
from cosmic.simulate.metrics import BETTER
from cosmic.simulate.recording.program_interpreters import ProgramPlan
from cosmic.simulate.recording.program_tape import INPUT, LISTED
from cosmic.simulate.recording.recorded_program import RecordedProgram
from cosmic.simulate.step_evaluation import POSSIBLE

STEP = "step_s"
PRICED_PREFIX = "thrift."
BOUND_PREFIX = "bound."
FEASIBILITY_METRICS = ("memory_bytes", "offloaded_bytes", "tier_excess")
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

    def select(self, rows: Indices | Flags | slice) -> Boxes:
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
class BoxVerdicts:
    """What is known of some boxes."""

    bounds: Floats
    """Losses that no design inside can beat, a column for each objective; infinite where no design inside can run."""
    losses: Floats
    """Losses of the fastest corner; infinite where it cannot run."""


def add_bound_results(
    program: RecordedProgram, ranges: dict[str, int], metrics: Sequence[str], operands_of: Sequence[Sequence[int]]
) -> RecordedProgram:
    """Return a program with a bound for each of *metrics*: inputs other than by way of the step are doubled."""
    step = program.results[STEP]
    nodes: list[list[int]] = program.nodes.tolist()
    lists = program.lists.tolist()
    inputs = dict(program.inputs)
    copies: dict[int, int] = {}
    for path, node in ranges.items():
        copies[node] = inputs[PRICED_PREFIX + path] = len(nodes)
        nodes.append([INPUT, 0, 0, 0])
    result_nodes = {name: program.results[name] for name in metrics}
    for node_index in _nodes_beside_step(operands_of, list(result_nodes.values()), step):
        if not any(operand in copies for operand in operands_of[node_index]):
            continue
        moved = [copies.get(operand, operand) for operand in operands_of[node_index]]
        copied = list(nodes[node_index])
        if copied[0] in LISTED:
            copied[2] = len(lists)
            lists += moved
        else:
            copied[1 : 1 + len(moved)] = moved
        copies[node_index] = len(nodes)
        nodes.append(copied)
    bounds = {BOUND_PREFIX + name: copies.get(node, node) for name, node in result_nodes.items()}
    measured = {
        name: program.results[name] for name in dict.fromkeys((*metrics, STEP, *POSSIBLE, *FEASIBILITY_METRICS))
    }
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


def _nodes_beside_step(operands_of: Sequence[Sequence[int]], results: Sequence[int], step: int) -> list[int]:
    """Return the nodes that some results need, in order, without what they need by way of the step."""
    nodes: set[int] = set()
    waiting = [operand for operand in results if operand != step]
    while waiting:
        node = waiting.pop()
        if node not in nodes:
            nodes.add(node)
            waiting += [operand for operand in operands_of[node] if operand != step]
    return sorted(nodes)


class GroupBounds:
    """Bounds of the boxes of one group of skeletons that can run."""

    def __init__(self, group: Group, objectives: Sequence[str], limits: Sequence[MetricLimit]) -> None:
        self.objectives, self.limits = tuple(objectives), tuple(limits)
        self.metrics = tuple(dict.fromkeys((*objectives, *(limit.metric for limit in limits))))
        self._group = group
        self._check_skeletons_decide(group)
        self.program = add_bound_results(group.program, group.range_nodes, self.metrics, group.reading)
        self._paths = (*group.paths, *(PRICED_PREFIX + path for path in group.range_nodes))
        self._plan = ProgramPlan(self.program, self._paths, group.uniform)
        self._rows = {name: index for index, name in enumerate(self.program.results)}
        self.local = np.full(int(group.skeletons.max(initial=0)) + 1, -1, dtype=np.intp)
        self.local[group.skeletons] = np.arange(len(group.skeletons))

    def _check_skeletons_decide(self, group: Group) -> None:
        judged = [group.program.results[name] for name in FEASIBILITY_METRICS]
        judged += [node for name, node in group.program.results.items() if name.startswith("rule.")]
        if group.depends_on_network[judged].any():
            raise NotProvable("whether a design can run depends on more of its network than sizes")

    @cached_property
    def group(self) -> Group:
        """The skeletons that can run."""
        return self._group.select(np.flatnonzero(self.feasible))

    @cached_property
    def feasible(self) -> Flags:
        """Which of the group's skeletons can run: mapping, memory and outer tiers, which no network decides."""
        group = self._group
        count = len(group.skeletons)
        results = np.empty((len(self.program.results), count))
        columns = np.vstack([group.columns, *(np.zeros((1, count)) for _ in group.range_nodes)])
        for index, path in enumerate(group.range_nodes, start=len(group.paths)):
            columns[index] = columns[group.paths.index(path)]
        self._run(np.ascontiguousarray(columns), results)
        rules = [results[position] != 0 for name, position in self._rows.items() if name.startswith("rule.")]
        base = group.division.space.base
        columns_by_path = {path: columns[position] for position, path in enumerate(group.paths)}
        capacity_bytes = columns_by_path.get("memory.capacity", base.memory.capacity_bytes)
        tiers_bytes = sum(
            columns_by_path.get(f"memory.tiers.{position}.capacity", tier.capacity_bytes)
            for position, tier in enumerate(base.memory.tiers)
        )
        fits = (results[self._rows["memory_bytes"]] <= capacity_bytes) & (
            results[self._rows["offloaded_bytes"]] <= tiers_bytes
        )
        fits &= results[self._rows["tier_excess"]] <= 0
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
        monotone = find_never_falling(group, [step])
        if not monotone.all():
            raise NotProvable(
                f"the step of {np.count_nonzero(~monotone):,} of {len(monotone):,} skeletons is not shown "
                "never to fall when the network gets slower"
            )
        self._prove_metrics(group, step)

    def _prove_metrics(self, group: Group, step: int) -> None:
        """Raise `NotProvable` unless every metric worsens with the step and with what is bought."""
        doubled = replace(group, program=self.program, uniform={**group.uniform})
        start = Walk()
        start.intervals[step] = Interval(*(np.asarray(network_range) for network_range in POSSIBLE[STEP]))
        start.signs[step] = (True, False)
        for network_range in group.division.ranges:
            for index, path in enumerate(network_range.paths):
                if path in group.range_nodes:
                    node, ends = self.program.inputs[PRICED_PREFIX + path], network_range.values[[0, -1], index]
                    start.intervals[node] = Interval(np.asarray(ends.min()), np.asarray(ends.max()))
                    start.signs[node] = (bool(ends[0] <= ends[1]), bool(ends[1] <= ends[0]))
        for term in group.terms:  # of one option: it does not differ inside a box
            start.intervals[term.node], start.signs[term.node] = Interval(term.least, term.most), CONSTANT
        for node_index, answer in group.compared.items():
            start.intervals[node_index], start.signs[node_index] = (
                Interval(np.asarray(answer), np.asarray(answer)),
                CONSTANT,
            )
        nodes = {name: self.program.results[BOUND_PREFIX + name] for name in self.metrics}
        walk = walk_program(doubled, [node for node in nodes.values() if node != step], start)
        for name, node in nodes.items():
            rises, falls = (True, False) if node == step else walk.signs[node]
            if not np.all(rises if BETTER[name] == "less" else falls):
                raise NotProvable(f"{name} is not shown to worsen with the step and with what is bought")

    # --------------------------------------------------------------------------------------------- boxes

    def bound_boxes(self, boxes: Boxes) -> BoxVerdicts:
        """Return the bounds of boxes of this group, and the losses of their fastest corners."""
        values = self._values(boxes, boxes.high, boxes.low)
        measured = {name: values[name] for name in self.program.results if not name.startswith((BOUND_PREFIX, "rule."))}
        losses = self._losses(measured)
        infeasible = np.zeros(len(boxes), dtype=bool)
        for name, (least, most) in POSSIBLE.items():
            infeasible |= ~((measured[name] >= least) & (measured[name] <= most))
        for limit in self.limits:
            infeasible |= limit.excess(measured[limit.metric]) > 0
        losses[infeasible | np.isnan(losses).any(axis=1)] = np.inf
        best_values = {name: values[BOUND_PREFIX + name] for name in self.metrics}
        bounds = self._losses(best_values)
        bounds[np.isnan(bounds)] = -np.inf  # a corner whose numbers overflow says nothing
        for monotone_limit in self._monotone_limits:
            bounds[monotone_limit.excess(best_values[monotone_limit.metric]) > 0] = np.inf
        single = boxes.single
        bounds[single] = losses[single]
        return BoxVerdicts(bounds, losses)

    @cached_property
    def _monotone_limits(self) -> list[MetricLimit]:
        """Limits that a worse design breaks: a box breaks them if its bound does."""
        return [limit for limit in self.limits if limit.most == (BETTER[limit.metric] == "less")]

    def worst(self, boxes: Boxes) -> Floats:
        """Return losses that no design of a box exceeds, if its fastest corner can run; infinite if some may not."""
        results = self._values(boxes, boxes.low, boxes.high)
        values = {name: results[BOUND_PREFIX + name] for name in self.metrics}
        losses = self._losses(values)
        unbounded = np.isnan(losses).any(axis=1) | (len(self._monotone_limits) < len(self.limits))
        for limit in self._monotone_limits:
            unbounded |= limit.excess(values[limit.metric]) > 0
        losses[unbounded] = np.inf
        return losses

    def _losses(self, values: dict[str, Floats]) -> Floats:
        with np.errstate(all="ignore"):
            return np.stack([loss(name, values[name]) for name in self.objectives], axis=1)

    def _values(self, boxes: Boxes, fast: Indices, thrift: Indices) -> dict[str, Floats]:
        columns = self._columns(boxes, fast, thrift)
        results = np.empty((len(self.program.results), len(boxes)))
        self._run(columns, results)
        return {name: results[row] for name, row in self._rows.items()}

    def _columns(self, boxes: Boxes, fast: Indices, thrift: Indices) -> Floats:
        group = self._group
        columns = np.empty((len(self._paths), len(boxes)))
        columns[: len(group.paths)] = group.columns[:, self.local[boxes.skeletons]]
        rows = {path: position for position, path in enumerate(self._paths)}
        for number, choice in enumerate(group.division.choices):
            for index, path in enumerate(choice.paths):
                codes = np.array([group.codes[path][value] for value in choice.options[:, index].tolist()])
                columns[rows[path]] = codes[boxes.options[:, number]]
        for number, network_range in enumerate(group.division.ranges):
            for position, path in enumerate(network_range.paths):
                columns[rows[path]] = network_range.values[fast[:, number], position]
                if PRICED_PREFIX + path in rows:
                    columns[rows[PRICED_PREFIX + path]] = network_range.values[thrift[:, number], position]
        return columns
