"""Branch and bound over boxes: what is left after pruning holds the optimum.

    roots       every skeleton that can run × the options that are kept, each with its whole ranges
    a round     bounds of all boxes; those that cannot hold anything better are leaves, the others are halved
    halving     at the range with most places left (the first of equal ones), into slow and fast

A round is judged as a whole (`BoxEvaluator`: in this process or in several, with the same numbers), so that the same
boxes are split whatever the number of workers. The candidates are the fastest corners, which are designs, and what a
few descents from the most promising boxes find.

`count_within` counts the designs within a share of the best: every design counts, dominated ones too.

What no design of a box can beat: a program that runs the fastest corner at the cheapest corner's price.

A box is a skeleton, an option of every choice, and a stretch of every range. The step of its fastest corner is not
longer than that of any design inside (`monotonicity`), and its cheapest corner costs no more. In the program of the
bound, what follows from a bandwidth other than by way of the step reads a second input, *thrift*:

    perf_per_bandwidth = 1 / (step(bandwidth) * sum(bandwidth))      the metric
                         1 / (step(fastest)   * sum(cheapest))       its bound

With both inputs the same, it is the metric of a design, so that one run gives a bound and a candidate.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from time import monotonic
from typing import Any

import numpy as np

from cosmic.base.numeric import log, multiply
from cosmic.search.certify.monotonicity import (
    CONSTANT,
    ORIENTATION,
    Flags,
    Floats,
    Interval,
    Walk,
    find_never_falling,
    walk_program,
)
from cosmic.search.certify.skeletons import Division, Group, NotProvable, Term, divide_space, group_skeletons
from cosmic.search.objectives import MetricLimit, loss, pareto_front
from cosmic.search.problem import Problem
from cosmic.search.space.diagram import Indices
from cosmic.simulate.metrics import BETTER
from cosmic.simulate.recording.program_interpreters import ProgramPlan
from cosmic.simulate.recording.program_tape import INPUT, LISTED
from cosmic.simulate.recording.recorded_program import RecordedProgram
from cosmic.simulate.step_evaluation import POSSIBLE

# ---- What no design of a box can beat: a program that runs the fastest corner at the cheapest corner's price

STEP = "step_s"
PRICED_PREFIX = "thrift."
BOUND_PREFIX = "bound."
FEASIBILITY_METRICS = ("memory_needed", "offloaded_bytes", "tier_excess")
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
        memory = base.memory
        left = columns_by_path.get("memory.usable", memory.usable) * columns_by_path.get(
            "memory.capacity", memory.capacity_bytes
        )
        tiers_bytes = sum(
            columns_by_path.get(f"memory.tiers.{position}.capacity", tier.capacity_bytes)
            for position, tier in enumerate(base.memory.tiers)
        )
        fits = (results[self._rows["memory_needed"]] <= left) & (results[self._rows["offloaded_bytes"]] <= tiers_bytes)
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


# ---- Which options of a dimension another one makes needless

ROUNDING = 1e-12
"""Share by which rounding may move what is equal."""


@dataclass(frozen=True)
class Dominance:
    """For one choice and one group: kinds of skeletons, and which option stands for which."""

    which: Indices
    """The kind of each skeleton of the group."""
    stands: Indices
    """By kind and option: the kept option that is at least as good; itself for one that is kept."""

    def undominated(self, kind: int) -> Indices:
        """Return the options that are kept for a kind of skeleton."""
        return np.unique(self.stands[kind])


def find_dominances(group: Group, results: Iterable[int]) -> tuple[Dominance, ...]:
    """Return which options are dominated, for each choice, as far as the nodes *results* are concerned."""
    needed = set(group.needed(results))
    terms = [term for term in group.terms if term.node in needed]
    return tuple(_find_dominance(group, number, terms) for number in range(len(group.division.choices)))


def _find_dominance(group: Group, choice: int, terms: Sequence[Term]) -> Dominance:
    mine = [term for term in terms if term.choice == choice]
    options, count = len(group.division.choices[choice].options), len(group.skeletons)
    columns = list(_compared_numbers(group, mine))
    which = np.zeros(count, dtype=np.int64)
    for kinds, _ in columns:
        _, which = np.unique(which * (int(kinds.max(initial=0)) + 1) + kinds, return_inverse=True)
    _, firsts, which = np.unique(which, return_index=True, return_inverse=True)
    rows = [
        stand_in_options(
            np.stack([values[kinds[first]] for kinds, values in columns]) if columns else np.zeros((1, options))
        )
        for first in firsts.tolist()
    ]
    return Dominance(which.reshape(-1), np.stack(rows) if rows else np.zeros((0, options), dtype=np.intp))


def _compared_numbers(group: Group, terms: Sequence[Term]) -> Iterable[tuple[Indices, Floats]]:
    """Yield what must not be more in an option that dominates: kinds of skeletons, and numbers by kind and option."""
    priced = [price for price in terms if price.function == "block_terms"]
    for term in terms:
        if term in priced:
            continue
        if term.function not in ORIENTATION:
            raise NotProvable(f"which way {term.function} is worse is not known")
        yield term.which, term.values * ORIENTATION[term.function][term.side]
    for block in (price for price in priced if price.side == 0):
        links = next(
            (price for price in priced if price.side == 1 and _is_proportional(group, block.node, price.node)), None
        )
        if links is None:
            raise NotProvable("a price is not in proportion to the parts of a dimension over its links")
        yield block.which, block.values / links.values


def _is_proportional(group: Group, block: int, links: int) -> bool:
    """Return whether all that is made of *block* is a product with it over *links*: in proportion to their quotient."""
    node = block
    while True:
        readers = [reader for reader, read in enumerate(group.reading) if node in read]
        if len(readers) != 1:
            return False
        name, read = group.operation(readers[0]), group.reading[readers[0]]
        if name == "divide":
            only = [reader for reader, operands in enumerate(group.reading) if links in operands] == readers
            return read[0] == node and read[1] == links and only
        if name != "multiply":
            return False
        node = readers[0]


def stand_in_options(worse: Floats) -> Indices:
    """Return for each option the kept one that has no more in any row of *worse*; the first of equal ones is kept.

    >>> stand_in_options(np.array([[1.0, 2.0, 1.0, 3.0], [5.0, 5.0, 5.0, 4.0]])).tolist()
    [0, 0, 0, 3]
    """
    room = ROUNDING * np.abs(worse)
    better = np.asarray(
        (worse[:, :, None] <= (worse + room)[:, None, :]).all(axis=0)
    )  # is the first no worse than the second?
    options = np.arange(worse.shape[1])
    drops = better & (~better.T | (options[:, None] < options[None, :]))
    np.fill_diagonal(drops, val=False)
    undominated = np.asarray(~drops.any(axis=0))
    first = np.argmax(better & undominated[:, None], axis=0)
    return np.where(undominated, options, first)


BoundBoxes = Callable[[Boxes], BoxVerdicts]
SLACK = 1e-9
"""Share by which something better than the best may go unnoticed: far above what rounding does."""
DESCENT_STARTS = 24
"""Boxes from which descents begin, for each way to weigh objectives."""
WEIGHTINGS = 17
"""Ways to weigh two objectives."""
MAX_DESCENT_STEPS = 40
"""Steps of a descent, at most."""
MAX_ROUNDS = 10_000
RETRY_ROUNDS = 1
"""Rounds after which a front is approached again."""
REMEMBERED_DESIGNS = 10
"""Good designs that are remembered."""
MAX_BOXES = 40_000_000
"""Boxes of one round, at most: gigabytes."""


@dataclass
class Tree:
    """What was split: the same rounds of boxes follow from it."""

    splits: list[Flags] = field(default_factory=list)
    """For each round, which of its boxes were split."""


@dataclass(eq=False)
class Best:
    """The best losses so far, with their designs: one, or the front of several objectives."""

    losses: Floats
    rows: Indices
    gap: float = SLACK
    met: tuple[Floats, Indices] | None = None
    """With one objective: the losses and rows of the best designs that were met, not proven to be the next best."""

    @classmethod
    def none(cls, objectives: int, columns: int, gap: float) -> Best:
        """Return that nothing is known yet."""
        return cls(np.empty((0, objectives)), np.empty((0, columns), dtype=np.intp), max(gap, SLACK))

    def offer(self, losses: Floats, rows: Callable[[Indices], Indices]) -> None:
        """Take what is better among designs; *rows* gives the rows of some of them."""
        feasible = np.flatnonzero(np.isfinite(losses).all(axis=1))
        if losses.shape[1] == 1 and len(feasible):
            self._remember(losses[:, 0], feasible, rows)
        feasible = feasible[~self.covers(losses[feasible], 0.0)] if len(self.losses) else feasible
        if not len(feasible):
            return
        feasible = feasible[pareto_front(losses[feasible])]
        joined = np.vstack([self.losses, losses[feasible]])
        designs = np.vstack([self.rows, rows(feasible)])
        order = np.lexsort((*designs.T[::-1], *joined.T[::-1]))  # by loss, then by row: the same whoever finds it
        joined, designs = joined[order], designs[order]
        _, first = np.unique(joined, axis=0, return_index=True)
        first = np.sort(first[pareto_front(joined[first])])
        self.losses, self.rows = joined[first], designs[first]

    def _remember(self, losses: Floats, feasible: Indices, rows: Callable[[Indices], Indices]) -> None:
        most = np.inf if self.met is None or len(self.met[0]) < REMEMBERED_DESIGNS else self.met[0][-1]
        candidates = feasible[losses[feasible] < most]
        candidates = candidates[np.argsort(losses[candidates], kind="stable")[: 2 * REMEMBERED_DESIGNS]]
        if not len(candidates):
            return
        met_losses, designs = losses[candidates], rows(candidates)
        if self.met is not None:
            met_losses, designs = np.concatenate([self.met[0], met_losses]), np.vstack([self.met[1], designs])
        order = np.lexsort((*designs.T[::-1], met_losses))
        met_losses, designs = met_losses[order], designs[order]
        repeated = np.concatenate([[False], (designs[1:] == designs[:-1]).all(axis=1)])
        self.met = met_losses[~repeated][:REMEMBERED_DESIGNS], designs[~repeated][:REMEMBERED_DESIGNS]

    def covers(self, bounds: Floats, gap: float | None = None) -> Flags:
        """Return which bounds no design can beat by more than the gap: something known is as good in all objectives."""
        slack = 1 - (self.gap if gap is None else gap)
        covered = np.zeros(len(bounds), dtype=bool)
        if bounds.shape[1] == 1:
            return np.asarray(bounds[:, 0] >= self.losses[:, 0].min(initial=np.inf) * slack)
        for best in self.losses * slack:
            uncovered = np.flatnonzero(~covered)
            covered[uncovered] = (bounds[uncovered] >= best).all(axis=1)
        return covered


def root_boxes(division: Division, groups: Sequence[tuple[Indices, Sequence[Dominance]]]) -> Boxes:
    """Return a box for every skeleton and every combination of kept options, in their order.

    *groups* are the skeletons of each group, and what dominates what in them.
    """
    parts = [_group_roots(skeletons, dominance) for skeletons, dominance in groups if len(skeletons)]
    skeletons = np.concatenate([part[0] for part in parts]) if parts else np.empty(0, dtype=np.intp)
    options = np.concatenate([part[1] for part in parts]) if parts else np.empty((0, len(division.choices)), np.intp)
    order = np.lexsort((*options.T[::-1], skeletons))
    low = np.zeros((len(order), len(division.ranges)), dtype=np.intp)
    high = low + np.array([len(network_range.values) - 1 for network_range in division.ranges], dtype=np.intp)
    return Boxes(skeletons[order], options[order], low, high)


def _group_roots(skeletons: Indices, dominance: Sequence[Dominance]) -> tuple[Indices, Indices]:
    kinds = (
        np.stack([dominance_of.which for dominance_of in dominance], axis=1)
        if dominance
        else np.zeros((len(skeletons), 0), np.intp)
    )
    distinct, inverse = np.unique(kinds, axis=0, return_inverse=True)
    numbers, options = [], []
    for index, kind in enumerate(distinct.tolist()):
        members = skeletons[inverse.reshape(-1) == index]
        grids = np.meshgrid(
            *(dominance_of.undominated(option_kind) for dominance_of, option_kind in zip(dominance, kind, strict=True)),
            indexing="ij",
        )
        combined = np.stack([grid.reshape(-1) for grid in grids], axis=1) if grids else np.zeros((1, 0), np.intp)
        numbers.append(np.repeat(members, len(combined)))
        options.append(np.tile(combined, (len(members), 1)))
    return np.concatenate(numbers), np.concatenate(options).astype(np.intp)


def halve_boxes(boxes: Boxes) -> Boxes:
    """Return both halves of each box, side by side: the slow one first."""
    width = boxes.high - boxes.low
    longest = width.argmax(axis=1)
    rows = np.arange(len(boxes))
    middle = boxes.low[rows, longest] + width[rows, longest] // 2
    slow_high, fast_low = boxes.high.copy(), boxes.low.copy()
    slow_high[rows, longest], fast_low[rows, longest] = middle, middle + 1
    low, high = np.stack([boxes.low, fast_low], axis=1), np.stack([slow_high, boxes.high], axis=1)
    twice = np.repeat(rows, 2)
    return Boxes(
        boxes.skeletons[twice], boxes.options[twice], low.reshape(-1, low.shape[2]), high.reshape(-1, low.shape[2])
    )


@dataclass
class BranchingProgress:
    """Where a search stands after a round."""

    rounds: int
    judged: int
    open: int
    best: Best
    lower: float
    """No loss is below it; with several objectives, none of the first."""


@dataclass
class Outcome:
    """What branching proved."""

    best: Best
    tree: Tree
    lower: float
    """The least bound of any leaf: no loss is below it."""
    judged: int
    done: bool
    """Whether nothing is left open."""


def branch_boxes(
    division: Division,
    start: Boxes,
    bound_boxes: BoundBoxes,
    best: Best,
    until: float = np.inf,
    report: Callable[[BranchingProgress], None] = lambda _: None,
) -> Outcome:
    """Return the best designs of the boxes *start*; stop with a gap at the time *until*."""
    boxes, tree = start, Tree()
    single_objective = best.losses.shape[1] == 1
    lower, open_bound, judged = np.inf, -np.inf, 0
    for rounds in range(MAX_ROUNDS):
        if not len(boxes):
            break
        try:
            verdicts = bound_boxes(boxes)
            judged += len(boxes)
            best.offer(verdicts.losses, partial(corner_rows, division, boxes))
        except KeyboardInterrupt:
            if rounds == 0:
                raise
            tree.splits.append(np.zeros(len(boxes), dtype=bool))
            return Outcome(best, tree, min(lower, open_bound) if single_objective else np.nan, judged, done=False)
        try:
            if rounds == 0 or (rounds <= RETRY_ROUNDS and not single_objective):
                judged += _descend(division, boxes, verdicts, bound_boxes, best)
        except KeyboardInterrupt:
            until = -np.inf  # this round is the last
        leaf = best.covers(verdicts.bounds) | boxes.single
        lower = min(lower, float(verdicts.bounds[leaf, 0].min(initial=np.inf)))
        open_bound = float(verdicts.bounds[~leaf, 0].min(initial=np.inf))
        if (monotonic() > until or 2 * np.count_nonzero(~leaf) > MAX_BOXES) and not leaf.all():
            tree.splits.append(np.zeros(len(boxes), dtype=bool))
            return Outcome(best, tree, min(lower, open_bound) if single_objective else np.nan, judged, done=False)
        tree.splits.append(~leaf)
        boxes = halve_boxes(boxes.select(~leaf))
        report(BranchingProgress(rounds, judged, len(boxes), best, min(lower, open_bound)))
    return Outcome(best, tree, lower if single_objective else np.nan, judged, done=True)


def corner_rows(division: Division, boxes: Boxes, indices: Indices) -> Indices:
    """Return the rows of the fastest corners of some boxes."""
    return division.rows(boxes.skeletons[indices], boxes.options[indices], boxes.high[indices])


def _descend(division: Division, boxes: Boxes, verdicts: BoxVerdicts, bound_boxes: BoundBoxes, best: Best) -> int:
    """Offer what is found by changing one range or option at a time, from the most promising boxes; return the price.

    Several objectives are weighed in many ways, as products of powers, so that all of the front is approached.
    """
    judged = 0
    with np.errstate(all="ignore"):
        logs = np.asarray(log(np.clip(verdicts.bounds, 1e-300, 1e300)))
    for weights in _weights(verdicts.bounds.shape[1]):
        weighed_bounds = multiply(logs, weights)
        order = np.argsort(weighed_bounds, kind="stable")[: 20 * DESCENT_STARTS]
        _, first = np.unique(boxes.skeletons[order], return_index=True)  # from different skeletons
        current = boxes.select(order[np.sort(first)[:DESCENT_STARTS]])
        current = Boxes(current.skeletons, current.options, current.high, current.high)
        for _ in range(MAX_DESCENT_STEPS):
            neighbours, owner = _neighbours(division, current)  # each is among its own neighbours
            neighbour_verdicts = bound_boxes(neighbours)
            judged += len(neighbours)
            best.offer(neighbour_verdicts.losses, partial(corner_rows, division, neighbours))
            with np.errstate(all="ignore"):
                weighed = multiply(np.asarray(log(np.clip(neighbour_verdicts.losses, 1e-300, 1e300))), weights)
            order = np.lexsort((weighed, owner))
            first = order[np.searchsorted(owner[order], np.arange(len(current)))]
            moved = neighbours.select(first)
            if np.array_equal(moved.high, current.high) and np.array_equal(moved.options, current.options):
                break
            current = moved
    return judged


def _weights(objectives: int) -> Floats:
    """Return how several objectives are weighed: one after the other, and mixed."""
    if objectives == 1:
        return np.ones((1, 1))
    if objectives == 2:
        shares = np.linspace(0.0, 1.0, WEIGHTINGS)
        return np.stack([shares, 1 - shares], axis=1)
    rng = np.random.default_rng(0)
    return np.vstack([np.eye(objectives), rng.dirichlet(np.ones(objectives), WEIGHTINGS)])


def _neighbours(division: Division, boxes: Boxes) -> tuple[Boxes, Indices]:
    """Return all designs that differ from some in one range or option, and which they differ from."""
    options, corners = [], []
    for number, choice in enumerate(division.choices):
        for option in range(len(choice.options)):
            changed = boxes.options.copy()
            changed[:, number] = option
            options.append(changed)
            corners.append(boxes.high)
    for number, network_range in enumerate(division.ranges):
        for index in range(len(network_range.values)):
            moved = boxes.high.copy()
            moved[:, number] = index
            options.append(boxes.options)
            corners.append(moved)
    owner = np.tile(np.arange(len(boxes)), len(options))
    high = np.concatenate(corners)
    return Boxes(boxes.skeletons[owner], np.concatenate(options), high, high), owner


# ---- How many designs are within a share of the best: every design counts, dominated ones too

COUNTED_AT_ONCE = 200_000
"""Boxes of a heap that are looked at together: those found last first, so that few wait."""


def count_within(
    roots: Boxes,
    groups: Sequence[tuple[Indices, Sequence[Dominance]]],
    bound_boxes: Callable[[Boxes], BoxVerdicts],
    worst_losses: Callable[[Boxes], Floats],
    max_loss: float,
    until: float = np.inf,
) -> int | None:
    """Return how many designs have a loss of at most *max_loss*; None where time runs out.

    A box whose bound is beyond has none of them, one whose worst is within is made of them; any other is halved. A root
    stands for all combinations of options that its own dominate: where its own are within, they are told apart, one
    choice after the other.
    """
    stands = _stand_in_tables(groups)
    heap: list[tuple[int, Boxes]] = [
        (0, roots.select(slice(start, start + COUNTED_AT_ONCE))) for start in range(0, len(roots), COUNTED_AT_ONCE)
    ]
    choices, total = roots.options.shape[1], 0
    while heap:
        if monotonic() > until:
            return None
        choice, boxes = heap.pop()
        verdicts = bound_boxes(boxes)
        within_reach = verdicts.bounds[:, 0] <= max_loss * (1 + SLACK)
        boxes, losses = boxes.select(within_reach), verdicts.losses[within_reach, 0]
        if not len(boxes):
            continue
        inside = np.isfinite(losses) & (worst_losses(boxes)[:, 0] <= max_loss * (1 - SLACK))
        if choice < choices:
            ready = inside | boxes.single
            _push_boxes(heap, choice, halve_boxes(boxes.select(~ready)))
            _push_boxes(heap, choice + 1, _split_stand_ins(boxes.select(ready), choice, stands[choice]))
            continue
        total += int(boxes.sizes[inside].sum())
        boxes, losses = boxes.select(~inside), losses[~inside]
        single = boxes.single
        total += int(np.count_nonzero(losses[single] <= max_loss))
        _push_boxes(heap, choice, halve_boxes(boxes.select(~single)))
    return total


def _push_boxes(heap: list[tuple[int, Boxes]], choice: int, boxes: Boxes) -> None:
    heap += [
        (choice, boxes.select(slice(start, start + COUNTED_AT_ONCE))) for start in range(0, len(boxes), COUNTED_AT_ONCE)
    ]


def _stand_in_tables(groups: Sequence[tuple[Indices, Sequence[Dominance]]]) -> list[tuple[Indices, Indices]]:
    """Return for each choice the table of each skeleton, and the tables: which option stands for which."""
    largest = max((int(skeletons.max(initial=-1)) for skeletons, _ in groups), default=-1) + 1
    tables_by_choice = []
    for choice in range(max((len(dominance) for _, dominance in groups), default=0)):
        which, tables, shift = np.zeros(largest, dtype=np.intp), [], 0
        for skeletons, dominance in groups:
            if len(skeletons):
                which[skeletons] = dominance[choice].which + shift
                tables.append(dominance[choice].stands)
                shift += len(dominance[choice].stands)
        tables_by_choice.append((which, np.concatenate(tables)))
    return tables_by_choice


def _split_stand_ins(boxes: Boxes, choice: int, stands: tuple[Indices, Indices]) -> Boxes:
    """Return a box for each option that a box's own stands for."""
    which, tables = stands
    members = tables[which[boxes.skeletons]] == boxes.options[:, choice][:, None]
    rows, options = np.nonzero(members)
    members_boxes = boxes.select(rows)
    chosen = members_boxes.options.copy()
    chosen[:, choice] = options
    return Boxes(members_boxes.skeletons, chosen, members_boxes.low, members_boxes.high)


# ---- Judges boxes of all groups, in this process or in several; the numbers are the same

BOXES_PER_TASK = 50_000
"""Boxes that are judged at a time."""


class BoxEvaluator:
    """The groups of a problem's skeletons, and what is known of their boxes."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.division = divide_space(problem.space)
        if not self.division.ranges and not self.division.choices:
            raise NotProvable("no parameter of the network can be bounded apart from the rest")
        groups = group_skeletons(self.division)
        self.boundings = tuple(GroupBounds(group, problem.objectives, problem.limits) for group in groups)
        self._owner = np.zeros(self.division.count, dtype=np.int16)
        for number, group in enumerate(groups):
            self._owner[group.skeletons] = number
        self._pool: Executor | None = None
        self._workers = 1

    def prove(self) -> None:
        """Raise `NotProvable` unless corners bound boxes in every group."""
        for bounding in self.boundings:
            bounding.prove()

    @cached_property
    def dominances(self) -> list[tuple[Any, tuple[Dominance, ...]]]:
        """The skeletons of each group that can run, and which options are dominated in them."""
        return [
            (
                bounding.group.skeletons,
                find_dominances(bounding.group, [bounding.group.program.results[name] for name in bounding.metrics]),
            )
            for bounding in self.boundings
        ]

    def bound_boxes(self, boxes: Boxes) -> BoxVerdicts:
        """Return the bounds of boxes, and the losses of their fastest corners."""
        bounds, losses = np.empty((2, len(boxes), len(self.problem.objectives)))
        for rows, answer in self._run_tasks("judge", boxes):
            bounds[rows], losses[rows] = answer
        return BoxVerdicts(bounds, losses)

    def worst(self, boxes: Boxes) -> Floats:
        """Return losses that no design of a box exceeds (see `Bounding.worst`)."""
        losses = np.empty((len(boxes), len(self.problem.objectives)))
        for rows, answer in self._run_tasks("worst", boxes):
            losses[rows] = answer
        return losses

    def _run_tasks(self, name: str, boxes: Boxes) -> Iterator[tuple[Any, Any]]:
        owner = self._owner[boxes.skeletons]
        jobs = []
        for number in np.unique(owner).tolist():
            box_indices = np.flatnonzero(owner == number)
            jobs += [
                (number, box_indices[start : start + BOXES_PER_TASK])
                for start in range(0, len(box_indices), BOXES_PER_TASK)
            ]
        if self._pool is None or len(jobs) < 2:
            for number, rows in jobs:
                yield rows, _evaluate_boxes(self.boundings[number], name, boxes.select(rows))
            return
        tasks = [self._pool.submit(_evaluate_in_worker, number, name, boxes.select(rows)) for number, rows in jobs]
        for (_, rows), task in zip(jobs, tasks, strict=True):
            yield rows, task.result()

    @contextmanager
    def workers(self, count: int) -> Iterator[None]:
        """Let so many processes judge boxes."""
        if count == 1:
            yield
            return
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(
            count, mp_context=context, initializer=_start_worker, initargs=(self.problem,)
        ) as pool:
            self._pool = pool
            try:
                yield
            finally:
                self._pool = None
                pool.shutdown(wait=False, cancel_futures=True)


def _evaluate_boxes(bounding: GroupBounds, name: str, boxes: Boxes) -> Any:
    if name == "worst":
        return bounding.worst(boxes)
    verdicts = bounding.bound_boxes(boxes)
    return verdicts.bounds, verdicts.losses


_WORKER_EVALUATOR: list[BoxEvaluator] = []


def _start_worker(problem: Problem) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent answers it
    _WORKER_EVALUATOR[:] = [BoxEvaluator(problem)]


def _evaluate_in_worker(number: int, name: str, boxes: Boxes) -> Any:
    return _evaluate_boxes(_WORKER_EVALUATOR[0].boundings[number], name, boxes)
