"""Repair traces that others wrote, so that they can be simulated, and say what was done.

What is wrong is repaired in this order. Within a rank, once for all that share a template: repeated ids,
dependencies that cannot be satisfied (on absent nodes, on the node itself, repeated ones), types and attributes that
communication needs, cycles, nodes without a type. Between ranks: groups, types and sizes of collectives, which the
other members of a group state, and on request unmatched messages. What is right stays: a valid trace is returned
itself.

**Cycles.** Dependencies are added one by one, the most credible first; one that would close a cycle with those
before it is left out. So every cycle loses its least credible dependency, and no dependency is left out without a
cycle. An order of the nodes is kept as dependencies are added (Pearce and Kelly 2006, A dynamic topological sort
algorithm for directed acyclic graphs): only one that contradicts the order needs a search. All but that search are
array operations, and it looks only at nodes between cycles.

A `Repair` is a kind of repair, how often it was done, and an example.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, overload

import numpy as np
import numpy.typing as npt

from cosmic.base.errors import SpecError, require, shorten
from cosmic.traces.chakra.wire_format import INTEGER_LIMIT
from cosmic.traces.dependencies import Dependencies, dependencies_of, topological_order
from cosmic.traces.trace import (
    ABSENT,
    ALL_RANKS,
    COLUMNS,
    GROUP_ID,
    CollectiveType,
    Ints,
    NodeType,
    RankTrace,
    Template,
    TraceSet,
    known_groups,
    ranks_by_template,
)
from cosmic.traces.trace_checks import (
    LAST_TYPE,
    RankCollectives,
    list_problems,
    messages_of,
    node_text,
    rank_text,
    size_text,
    unmatched_messages,
)
from cosmic.traces.trace_views import enum_name

Mask = npt.NDArray[np.bool_]
MOST_VISITS = 5_000_000
"""Nodes that all searches may visit together: seconds. Then what contradicts the order is left out without a search."""


@dataclass(frozen=True, slots=True)
class ClosingDependencies:
    """Which dependencies of each kind close a cycle."""

    certain: list[Mask]
    unsure: list[Mask]
    """Those that contradict the order of the others, when there are too many to search for cycles."""


def find_closing_dependencies(
    both: Dependencies, kinds: Sequence[Dependencies], credibility: Ints, most: int = MOST_VISITS
) -> ClosingDependencies:
    """Return which dependencies of *kinds*, the most credible kind first, close a cycle; *both* are all of them.

    Of a kind, those on a row with a later *credibility* are less credible. All must be satisfiable.
    """
    nothing = [np.zeros(len(of_kind.row), bool) for of_kind in kinds]
    stuck = _rows_between_cycles(both)
    if not stuck.any():
        return ClosingDependencies(nothing, nothing)
    rows = np.flatnonzero(stuck)
    rows = rows[np.argsort(credibility[rows], kind="stable")]
    number = np.full(both.nodes, -1)
    number[rows] = np.arange(len(rows))
    order, closing = _IncrementalOrder(len(rows), most), ClosingDependencies(nothing, [mask.copy() for mask in nothing])
    for kind, certain, unsure in zip(kinds, closing.certain, closing.unsure, strict=True):
        inside = np.flatnonzero(stuck[kind.dependent] & stuck[kind.row])
        after, before = number[kind.dependent[inside]], number[kind.row[inside]]
        credible = np.argsort(before > after, kind="stable")
        triples = zip(*(column[credible].tolist() for column in (inside, before, after)), strict=True)
        for index, first, then in triples:
            if not order.add(first, then):
                (unsure if order.gave_up else certain)[index] = True
    return closing


def _rows_between_cycles(dependencies: Dependencies) -> Mask:
    """Return the rows in cycles, and those between two cycles."""
    stuck = np.ones(dependencies.nodes, bool)
    stuck[topological_order(dependencies)] = False
    if not stuck.any():
        return stuck
    # What only waits for a cycle is peeled; what only a cycle waits for is left: the same again, the other way round.
    inside = stuck[dependencies.dependent] & stuck[dependencies.row]
    dependent, row = dependencies.row[inside], dependencies.dependent[inside]
    order = np.argsort(dependent, kind="stable")
    turned = Dependencies(dependencies.nodes, dependent[order], row[order], row[order], np.zeros(len(row), bool))
    stuck[topological_order(turned)] = False
    return stuck


class _IncrementalOrder:
    """Nodes in an order in which each comes after those that it waits for."""

    def __init__(self, nodes: int, most: int) -> None:
        self._place = list(range(nodes))
        self._after: list[list[int]] = [[] for _ in range(nodes)]
        self._before: list[list[int]] = [[] for _ in range(nodes)]
        self._left = most
        self.gave_up = False
        """Whether the last node was refused without a search."""

    def add(self, first: int, then: int) -> bool:
        """Note that *then* waits for *first*, and return whether that closes no cycle."""
        position = self._place
        self.gave_up = False
        if position[first] > position[then]:
            if self._left <= 0:
                self.gave_up = True
                return False
            later = self._reachable(then, self._after, range(position[then], position[first] + 1))
            if first in later:
                return False
            earlier = self._reachable(first, self._before, range(position[then], position[first] + 1))
            self._reorder(earlier, later)
        self._after[first].append(then)
        self._before[then].append(first)
        return True

    def _reachable(self, start: int, ways: list[list[int]], within: range) -> set[int]:
        """Return the nodes reachable from *start* whose position is *within* a range."""
        seen, waiting = {start}, [start]
        while waiting:
            ahead = ways[waiting.pop()]
            self._left -= 1 + len(ahead)
            fresh = [node for node in ahead if node not in seen and self._place[node] in within]
            seen.update(fresh)
            waiting += fresh
        return seen

    def _reorder(self, earlier: set[int], later: set[int]) -> None:
        """Move *earlier* nodes before *later* ones, within the positions that both hold."""
        by_place = self._place.__getitem__
        nodes = sorted(earlier, key=by_place) + sorted(later, key=by_place)
        for node, position in zip(nodes, sorted(map(by_place, nodes)), strict=True):
            self._place[node] = position


@dataclass(frozen=True, slots=True)
class Repair:
    """One kind of repair."""

    what: str
    """What was done, as a plural: 'self dependencies dropped'."""
    count: int
    """How often, in all ranks."""
    example: str
    """A sentence about the first."""


@dataclass(frozen=True, slots=True)
class TemplateRanks:
    """The ranks that run one template, for counts and sentences."""

    where: str
    """The prefix of the files."""
    ranks: Sequence[int]

    def repair(self, what: str, count: int, example: str) -> list[Repair]:
        """Return the repair that was done *count* times in each of these ranks; an empty list if *count* is 0."""
        if not count:
            return []
        return [Repair(what, count * len(self.ranks), f"{rank_text(self.where, self.ranks)}: {example}")]


def merge_repairs(repairs: Iterable[Repair]) -> tuple[Repair, ...]:
    """Return one repair of each kind, in the order of their first, with the first example.

    >>> merge_repairs([Repair("nodes dropped", 2, "a"), Repair("nodes dropped", 3, "b")])
    (Repair(what='nodes dropped', count=5, example='a'),)
    """
    merged: dict[str, Repair] = {}
    for repair in repairs:
        before = merged.get(repair.what)
        merged[repair.what] = repair if before is None else replace(before, count=before.count + repair.count)
    return tuple(merged.values())


Kind = Literal["data", "ctrl"]
KINDS: dict[Kind, str] = {"data": "data", "ctrl": "control"}
"""Kinds of dependencies, as columns and sentences call them."""
MOST_DEPENDENCIES = 2**27
"""The most dependencies that a template may have once nodes are dropped."""


def dependencies_of_kind(template: Template, kind: Kind) -> Dependencies:
    """Return the dependencies of one kind, those on absent nodes included, in the order of the template."""
    start, ids = (template.data_start, template.data_id) if kind == "data" else (template.ctrl_start, template.ctrl_id)
    none = np.zeros(template.nodes + 1, np.int64)
    return dependencies_of(replace(template, data_start=start, data_id=ids, ctrl_start=none, ctrl_id=none[:0]))


def with_dependencies(template: Template, kind: Kind, dependent: Ints, wanted: Ints) -> Template:
    """Return the template with other dependencies of a kind: *dependent* rows, ascending, and the ids they wait for."""
    start = np.concatenate([[0], np.cumsum(np.bincount(dependent, minlength=template.nodes))])
    if kind == "data":
        return replace(template, data_start=start, data_id=wanted)
    return replace(template, ctrl_start=start, ctrl_id=wanted)


def with_satisfiable_dependencies(template: Template, ranks: TemplateRanks) -> tuple[Template, list[Repair]]:
    """Return the template without dependencies on absent nodes, on the node itself, and repeated ones.

    >>> from cosmic.traces.trace import template_of
    >>> nodes = [{"id": 4}, {"id": 7, "data": [4, 5, 4, 7]}]
    >>> made, done = with_satisfiable_dependencies(template_of(nodes), TemplateRanks("job", [0]))
    >>> made.data_id.tolist(), [each.count for each in done]
    ([4], [1, 1, 1])
    """
    done: list[Repair] = []
    for kind, called in KINDS.items():
        dependencies = dependencies_of_kind(template, kind)
        itself = ~dependencies.absent & (dependencies.row == dependencies.dependent)
        unsatisfiable = {
            "dependencies on absent nodes dropped": dependencies.absent,
            "self dependencies dropped": itself,
            "repeated dependencies dropped": _repeated_dependencies(dependencies, ~dependencies.absent & ~itself),
        }
        dropped = np.zeros(len(dependencies.wanted), bool)
        for what, mask in unsatisfiable.items():
            dropped |= mask
            done += _dropped_repair(template, dependencies, mask, ranks, f"{called} {what}")
        if dropped.any():
            template = with_dependencies(
                template, kind, dependencies.dependent[~dropped], dependencies.wanted[~dropped]
            )
    return template, done


def _repeated_dependencies(dependencies: Dependencies, among: Mask) -> Mask:
    """Return which dependencies, of those *among*, repeat an earlier one."""
    repeated = np.zeros(len(dependencies.wanted), bool)
    indices = np.flatnonzero(among)
    pairs = dependencies.dependent[indices] * dependencies.nodes + dependencies.row[indices]
    ordered = np.sort(pairs)
    if (ordered[1:] != ordered[:-1]).all():
        return repeated
    repeated[indices] = True
    repeated[indices[np.unique(pairs, return_index=True)[1]]] = False
    return repeated


def _dropped_repair(
    template: Template, dependencies: Dependencies, dropped: Mask, ranks: TemplateRanks, what: str
) -> list[Repair]:
    """Return the repair that *dropped* dependencies were dropped."""
    if not dropped.any():
        return []
    first = int(np.argmax(dropped))
    node = node_text(template, int(dependencies.dependent[first]))
    return ranks.repair(what, int(dropped.sum()), f"{node} waited for node {dependencies.wanted[first]}")


# ---- cycles


def without_cycles(template: Template, ranks: TemplateRanks) -> tuple[Template, list[Repair]]:
    """Return the template without cycles: of each, the least credible dependency is dropped.

    Control dependencies are less credible than data, and those on nodes that started later, or have a higher id where
    no start is recorded, less than others.
    """
    both = dependencies_of(template)
    kinds = {kind: dependencies_of_kind(template, kind) for kind in KINDS}
    closing = find_closing_dependencies(both, list(kinds.values()), _time_order(template))
    done: list[Repair] = []
    for (kind, dependencies), certain, unsure in zip(kinds.items(), closing.certain, closing.unsure, strict=True):
        done += _dropped_repair(
            template, dependencies, certain, ranks, f"{KINDS[kind]} dependencies that closed a cycle dropped"
        )
        done += _dropped_repair(
            template, dependencies, unsure, ranks, f"{KINDS[kind]} dependencies that may close a cycle dropped"
        )
        remaining = ~(certain | unsure)
        if not remaining.all():
            template = with_dependencies(
                template, kind, dependencies.dependent[remaining], dependencies.wanted[remaining]
            )
    return template, done


def _time_order(template: Template) -> Ints:
    """Return each row's position in the order of recorded starts; a row without a start follows its id.

    >>> from cosmic.traces.trace import template_of
    >>> _time_order(template_of([{"id": 4, "start_ns": 9}, {"id": 5}, {"id": 7, "start_ns": 3}])).tolist()
    [1, 2, 0]
    """
    starts = template.start_ns
    recorded = starts >= 0
    if not recorded.any():
        return np.arange(template.nodes)
    last = np.maximum.accumulate(np.where(recorded, np.arange(template.nodes), -1))
    order = np.argsort(np.where(last >= 0, starts[last], -1), kind="stable")
    position = np.empty_like(order)
    position[order] = np.arange(len(order))
    return position


# ---- dropped nodes


class ChosenNames(Sequence[str]):
    """Some of the names of nodes, looked up on access.

    >>> names = ChosenNames(["add", "mul", "sub"], np.array([2, 0]))
    >>> len(names), names[0], list(names[1:])
    (2, 'sub', ['add'])
    """

    def __init__(self, names: Sequence[str], rows: Ints) -> None:
        self._names = names
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> ChosenNames: ...
    def __getitem__(self, index: int | slice) -> str | ChosenNames:
        if isinstance(index, slice):
            return ChosenNames(self._names, self._rows[index])
        return self._names[int(self._rows[index])]


def select_rows(template: Template, rows: Ints) -> Template:
    """Return the template of some *rows*, in this order; its dependencies stay ids."""
    chosen: dict[str, Ints] = {name: getattr(template, name)[rows] for name in COLUMNS}
    for kind in KINDS:
        start, ids = getattr(template, f"{kind}_start"), getattr(template, f"{kind}_id")
        counts = np.diff(start)[rows]
        ends = np.cumsum(counts)
        chosen[f"{kind}_start"] = np.concatenate([[0], ends])
        chosen[f"{kind}_id"] = ids[np.arange(counts.sum()) + np.repeat(start[rows] - ends + counts, counts)]
    texts = template.process_groups
    return Template(
        **chosen,
        names=ChosenNames(template.names, rows),
        kernels=template.kernels,
        process_groups={index: texts[row] for index, row in enumerate(rows.tolist()) if row in texts} if texts else {},
    )


def without_nodes(template: Template, dropped: Mask, where: str) -> Template:
    """Return the template without some nodes: what waited for one waits for what it waited for.

    Dependencies must be satisfiable and without cycles.

    >>> from cosmic.traces.trace import template_of
    >>> nodes = [{"id": 4}, {"id": 5, "ctrl": [4]}, {"id": 6, "data": [5]}, {"id": 9, "data": [6]}]
    >>> made = without_nodes(template_of(nodes), np.array([False, True, True, False]), "job")
    >>> made.id.tolist(), made.data_id.tolist(), made.ctrl_id.tolist()
    ([4, 9], [], [4])
    """
    edges = _RowDependencies.from_template(template)
    while dropped[edges.row].any():  # chains of dropped nodes shorten to half in each round
        edges = edges.bypass(dropped, where)
    for kind, chosen in zip(KINDS, (~edges.ctrl, edges.ctrl), strict=True):
        template = with_dependencies(template, kind, edges.dependent[chosen], template.id[edges.row[chosen]])
    return select_rows(template, np.flatnonzero(~dropped))


@dataclass(frozen=True, slots=True, eq=False)
class _RowDependencies:
    """Dependencies between rows, in ascending order of the dependent ones."""

    dependent: Ints
    row: Ints
    ctrl: Mask

    @classmethod
    def from_template(cls, template: Template) -> _RowDependencies:
        data, ctrl = (dependencies_of_kind(template, kind) for kind in KINDS)
        is_ctrl = np.repeat([False, True], [len(data.row), len(ctrl.row)])
        return cls(
            np.concatenate([data.dependent, ctrl.dependent]), np.concatenate([data.row, ctrl.row]), is_ctrl
        )._sorted()

    def _sorted(self) -> _RowDependencies:
        order = np.argsort(self.dependent, kind="stable")
        return _RowDependencies(self.dependent[order], self.row[order], self.ctrl[order])

    def bypass(self, dropped: Mask, where: str) -> _RowDependencies:
        """Return the edges with each that leads to a dropped row replaced by the edges of that row.

        The way through a dropped row is of data only if both of its parts are.
        """
        nodes = len(dropped)
        start = np.searchsorted(self.dependent, np.arange(nodes + 1))
        through = dropped[self.row]
        counts = np.where(through, np.diff(start)[self.row], 1)
        total = int(counts.sum())
        rule = f"their dependents would wait for {total:,} nodes, more than the {MOST_DEPENDENCIES:,} that can be held"
        require(total <= MOST_DEPENDENCIES, f"{where}: nodes to drop", int(dropped.sum()), rule)
        ends = np.cumsum(counts)
        offset = np.arange(total) - np.repeat(ends - counts, counts)
        source = np.repeat(np.arange(len(self.row)), counts)
        onward = np.where(through[source], start[self.row[source]] + offset, source)
        ctrl = self.ctrl[onward] | self.ctrl[source]
        # Many ways lead to the same row: one is kept of each kind.
        keys = (self.dependent[source] * nodes + self.row[onward]) * 2 + ctrl
        first = np.sort(np.unique(keys, return_index=True)[1])
        return _RowDependencies(self.dependent[source][first], self.row[onward][first], ctrl[first])


# ---- ids


def with_distinct_ids(template: Template, ranks: TemplateRanks) -> tuple[Template, list[Repair]]:
    """Return the template with an id for each node: copies of a node are dropped, others get the next free id.

    What waits for the id waits for the first node that had it.

    >>> from cosmic.traces.trace import template_of
    >>> nodes = [{"id": 4, "type": 4}, {"id": 4, "type": 4}, {"id": 4, "type": 2}, {"id": 5, "type": 4}]
    >>> made, done = with_distinct_ids(template_of(nodes), TemplateRanks("job", [0]))
    >>> made.id.tolist(), made.type.tolist(), [each.count for each in done]
    ([4, 5, 6], [4, 4, 2], [1, 1])
    """
    again = np.concatenate([[False], template.id[1:] == template.id[:-1]])[: template.nodes]
    if not again.any():
        return template, []
    # Which of the nodes that have an earlier node's id are equal to one of these in everything
    copies = np.zeros(template.nodes, bool)
    seen: dict[tuple[object, ...], int] = {}
    columns = [getattr(template, name) for name in COLUMNS]
    shared = again | np.concatenate([again[1:], [False]])
    for row in np.flatnonzero(shared).tolist():
        lists = (
            getattr(template, f"{kind}_id")[slice(*getattr(template, f"{kind}_start")[row : row + 2])].tobytes()
            for kind in KINDS
        )
        numbers = tuple(int(column[row]) for column in columns)
        key = (*numbers, template.names[row], *lists, template.process_groups.get(row))
        copies[row] = seen.setdefault(key, row) != row
    done = ranks.repair(
        "copies of nodes dropped", int(copies.sum()), _first_node_sentence(template, copies, "was there before")
    )
    moved = np.flatnonzero(again & ~copies)
    ids = template.id.copy()
    # The next ids that no node has, for each of rows; after the last id come the first ones
    used, free, free_ids = set(template.id.tolist()), -1, []
    for wanted in template.id[moved].tolist():
        free = max(free + 1, wanted)
        while free in used or free >= INTEGER_LIMIT:
            free = free + 1 if free < INTEGER_LIMIT else 0
        used.add(free)
        free_ids.append(free)
    ids[moved] = free_ids
    if len(moved):
        example = f"{node_text(template, int(moved[0]))} is node {ids[moved[0]]} now: an earlier node has its id"
        done += ranks.repair("nodes with the id of another node renumbered", len(moved), example)
    remaining = np.flatnonzero(~copies)
    return select_rows(replace(template, id=ids), remaining[np.argsort(ids[remaining], kind="stable")]), done


def _first_node_sentence(template: Template, chosen: Mask, text: str) -> str:
    """Return a sentence about the first of some nodes."""
    return f"{node_text(template, int(np.argmax(chosen)))} {text}" if chosen.any() else ""


# ---- types


def with_types(template: Template, ranks: TemplateRanks) -> tuple[Template, list[Repair]]:
    """Return the template with a type for each node that has none, where its attributes say one."""
    unknown = (template.type <= NodeType.INVALID) | (template.type > LAST_TYPE)
    if not unknown.any():
        return template, []
    collective = unknown & (template.comm_type != ABSENT)
    has_work = (template.num_ops != ABSENT) | (template.tensor_size != ABSENT) | (template.kernel != ABSENT)
    compute = unknown & ~collective & (has_work | (template.duration_us > 0) | (template.duration_ns > 0))
    kind, done = template.type.copy(), list[Repair]()
    for node_type, rows in ((NodeType.COMM_COLL, collective), (NodeType.COMP, compute)):
        kind[rows] = node_type
        example = _first_node_sentence(template, rows, "states what such a node does")
        done += ranks.repair(f"nodes without a type made {node_type.name}", int(rows.sum()), example)
    return replace(template, type=kind), done


def without_untyped(template: Template, ranks: TemplateRanks) -> tuple[Template, list[Repair]]:
    """Return the template without nodes of no type; what waited for one waits for what it waited for.

    Dependencies must be satisfiable and without cycles.
    """
    unknown = (template.type <= NodeType.INVALID) | (template.type > LAST_TYPE)
    if not unknown.any():
        return template, []
    example = _first_node_sentence(template, unknown, "does nothing; what waited for it waits for what it waited for")
    repaired = without_nodes(template, unknown, ranks.where)
    return repaired, ranks.repair("nodes without a type dropped", int(unknown.sum()), example)


# ---- communication

COLLECTIVE_WORDS = {
    "reducescatter": CollectiveType.REDUCE_SCATTER,
    "allreduce": CollectiveType.ALL_REDUCE,
    "allgather": CollectiveType.ALL_GATHER,
    "alltoall": CollectiveType.ALL_TO_ALL,
    "broadcast": CollectiveType.BROADCAST,
    "barrier": CollectiveType.BARRIER,
    "reduce": CollectiveType.REDUCE,
    "scatter": CollectiveType.SCATTER,
    "gather": CollectiveType.GATHER,
}
"""What names of collectives hold, the longer words first."""


def collective_named(name: str) -> int:
    """Return the type of collective that a node's name says; `ABSENT` if it says none.

    >>> CollectiveType(collective_named("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL")).name
    'REDUCE_SCATTER'
    >>> collective_named("nccl:_all_gather_base") == CollectiveType.ALL_GATHER, collective_named("step")
    (True, -1)
    """
    letters = re.sub(r"[^a-z]", "", name.lower())
    return next((int(kind) for word, kind in COLLECTIVE_WORDS.items() if word in letters), ABSENT)


def with_communication(template: Template, ranks: TemplateRanks) -> tuple[Template, list[Repair]]:
    """Return the template whose communication runs on the accelerator, and has types and tags where these are known."""
    template, done = _without_launches(template, ranks)
    for step in (_on_accelerator, _with_named_types, _with_tags):
        template, more = step(template, ranks)
        done += more
    return template, done


def _without_launches(template: Template, ranks: TemplateRanks) -> tuple[Template, list[Repair]]:
    """Make operators that launch a collective, and are marked as one, the compute on the CPU that they are."""
    lacking = (template.comm_type == ABSENT) & (template.comm_size == ABSENT)
    launches = (template.type == NodeType.COMM_COLL) & (template.on_cpu != 0) & lacking
    if not launches.any():
        return template, []
    what = "collectives on the CPU without type and size made COMP"
    done = ranks.repair(
        what, int(launches.sum()), _first_node_sentence(template, launches, "only launches a collective")
    )
    return replace(template, type=np.where(launches, int(NodeType.COMP), template.type)), done


def _on_accelerator(template: Template, ranks: TemplateRanks) -> tuple[Template, list[Repair]]:
    misplaced = (template.type >= NodeType.COMM_SEND) & (template.type <= NodeType.COMM_COLL) & (template.on_cpu != 0)
    if not misplaced.any():
        return template, []
    what = "communication nodes moved from the CPU to the accelerator"
    done = ranks.repair(what, int(misplaced.sum()), _first_node_sentence(template, misplaced, "had is_cpu_op"))
    return replace(template, on_cpu=np.where(misplaced, 0, template.on_cpu)), done


def _with_named_types(template: Template, ranks: TemplateRanks) -> tuple[Template, list[Repair]]:
    lacking = np.flatnonzero((template.type == NodeType.COMM_COLL) & (template.comm_type == ABSENT))
    kind = template.comm_type.copy()
    kind[lacking] = [collective_named(template.names[row]) for row in lacking.tolist()]
    named = kind != template.comm_type
    if not named.any():
        return template, []
    text = f"is an {enum_name(CollectiveType, int(kind[np.argmax(named)]))} by its name"
    done = ranks.repair(
        "types of collectives taken from names", int(named.sum()), _first_node_sentence(template, named, text)
    )
    return replace(template, comm_type=kind), done


def _with_tags(template: Template, ranks: TemplateRanks) -> tuple[Template, list[Repair]]:
    exchanges = (template.type == NodeType.COMM_SEND) | (template.type == NodeType.COMM_RECV)
    lacking = exchanges & (template.comm_tag == ABSENT)
    if not lacking.any():
        return template, []
    what = "sends and receives without a tag given tag 0"
    done = ranks.repair(what, int(lacking.sum()), _first_node_sentence(template, lacking, "stated none"))
    return replace(template, comm_tag=np.where(lacking, 0, template.comm_tag)), done


Groups = Mapping[str, Sequence[int]]


def with_changes(
    traces: TraceSet, changes: Mapping[int, Ints], change: Callable[[Template, Ints], Template]
) -> TraceSet:
    """Return traces in which some ranks have a changed template; those with equal changes share it again."""
    if not changes:
        return traces
    changed: dict[tuple[int, bytes], Template] = {}
    ranks = list(traces.ranks)
    for rank, values in changes.items():
        template = ranks[rank].template
        key = id(template), values.tobytes()
        if key not in changed:
            changed[key] = change(template, values)
        ranks[rank] = replace(ranks[rank], template=changed[key])
    return TraceSet(tuple(ranks), traces.where)


# ---- groups


def with_groups(traces: TraceSet, groups: Groups | None) -> tuple[TraceSet, Groups | None, list[Repair]]:
    """Return traces whose collectives name known groups, those groups, and what was done."""
    try:
        members = known_groups(traces, groups)
    except SpecError:  # metadata nodes contradict each other: which is right cannot be known
        return traces, groups, []
    users, done = RankCollectives(traces, members).users, list[Repair]()
    undefined = {name: tuple(sorted(users[name])) for name in users if name not in members}
    # Simulators know no other names of groups than whole numbers.
    used, free, names = {*members, *(name for rank in traces.ranks for name in rank.groups)}, 1, {}
    for group in undefined:
        if GROUP_ID.fullmatch(group):
            names[group] = group
            continue
        while str(free) in used:
            free += 1
        used.add(str(free))
        names[group] = str(free)
    renamed = {old: new for old, new in names.items() if old != new}
    if renamed:
        renamed_ranks = (
            replace(rank, groups=tuple(renamed.get(name, name) for name in rank.groups)) for rank in traces.ranks
        )
        traces = TraceSet(tuple(renamed_ranks), traces.where)
        old, new = next(iter(renamed.items()))
        what = "groups that are not named by a number renamed"
        done.append(Repair(what, len(renamed), f"{traces.where}: group {shorten(old)} is {new} now"))
    if undefined:
        name, ranks = next(iter(undefined.items()))
        example = f"{traces.where}: group {names[name]} has {_ranks_text(ranks)}"
        done.append(Repair("groups without ranks given the ranks that use them", len(undefined), example))
        groups = {**(groups or {}), **{names[name]: ranks for name, ranks in undefined.items()}}
    traces, more = _with_group_of_users(traces, known_groups(traces, groups))
    return traces, groups, [*done, *more]


def _ranks_text(ranks: Sequence[int]) -> str:
    """Return ranks in words.

    >>> _ranks_text([3]), _ranks_text([0, 1, 2, 5]), _ranks_text(range(20))
    ('rank 3', 'ranks 0, 1, 2, 5', '20 ranks, 0 to 19')
    """
    if len(ranks) > 8:
        return f"{len(ranks):,} ranks, {min(ranks)} to {max(ranks)}"
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def _with_group_of_users(traces: TraceSet, members: Groups) -> tuple[TraceSet, list[Repair]]:
    """Give collectives without a group one, if not all ranks run such, and exactly one group has those that do."""
    users = {rank for template, ranks in ranks_by_template(traces) if _without_group(template).any() for rank in ranks}
    fitting = [name for name, ranks in members.items() if name not in ALL_RANKS and set(ranks) == users]
    if len(users) in (0, len(traces.ranks)) or len(fitting) != 1:
        return traces, []
    changes = {rank: np.array([len(traces.ranks[rank].groups)]) for rank in sorted(users)}
    grouped = with_changes(
        traces,
        changes,
        lambda template, index: replace(template, group=np.where(_without_group(template), index[0], template.group)),
    )
    ranks = list(grouped.ranks)
    for rank in users:
        ranks[rank] = replace(ranks[rank], groups=(*ranks[rank].groups, fitting[0]))
    count = sum(int(_without_group(traces.ranks[rank].template).sum()) for rank in users)
    first = min(users)
    template = traces.ranks[first].template
    node = node_text(template, int(np.argmax(_without_group(template))))
    example = f"{traces.where}: rank {first}: {node} runs in group {fitting[0]}, whose members alone run such"
    return TraceSet(tuple(ranks), traces.where), [Repair("collectives without a group given one", count, example)]


def _without_group(template: Template) -> Mask:
    groupless: Mask = (template.type == NodeType.COMM_COLL) & (template.group == ABSENT)
    return groupless


# ---- collectives


def with_sizes_of_others(traces: TraceSet, groups: Groups | None) -> tuple[TraceSet, list[Repair]]:
    """Return traces in which collectives without type or size have those of the other members of their group.

    The n-th collective of a group is the same for all members, if they run equally many, of equal types where stated.
    """
    if not any(len(_lacking_collectives(template)) for template in traces.templates()):
        return traces, []
    try:
        members = known_groups(traces, groups)
    except SpecError:
        return traces, []
    collectives, columns_of = RankCollectives(traces, members), dict[int, Ints]()
    for name, users in collectives.users.items():
        for rank, filled in _fill_from_members(
            collectives, name, [member for member in members.get(name, ()) if member in users]
        ).items():
            template, rows = traces.ranks[rank].template, collectives.rows(name, rank)
            columns = columns_of.setdefault(rank, np.array([template.comm_type, template.comm_size]))
            columns[:, rows] = filled
    changes = {
        rank: columns
        for rank, columns in columns_of.items()
        if _changed_columns(traces.ranks[rank].template, columns).any()
    }
    done = [
        repair
        for column, what in enumerate(("types", "sizes"))
        for repair in _column_repair(traces, changes, column, f"{what} of collectives taken from other ranks")
    ]
    filled_traces = with_changes(
        traces, changes, lambda template, columns: replace(template, comm_type=columns[0], comm_size=columns[1])
    )
    return filled_traces, done


def _changed_columns(template: Template, columns: Ints) -> Mask:
    """Return which types and sizes differ from those of the template."""
    changed: Mask = columns != np.array([template.comm_type, template.comm_size])
    return changed


def _lacking_collectives(template: Template) -> Ints:
    """Return the collectives that lack a type or a size."""
    lacks = (template.comm_type == ABSENT) | (template.comm_size == ABSENT)
    return np.flatnonzero((template.type == NodeType.COMM_COLL) & lacks)


def _fill_from_members(collectives: RankCollectives, name: str, members: Sequence[int]) -> dict[int, Ints]:
    """Return types and sizes of the collectives of members that lack some, as far as the other members state them."""
    classes: dict[tuple[int, ...], list[int]] = {}
    for rank in members:
        classes.setdefault(collectives.collective_class(name, rank), []).append(rank)
    if len(classes) < 2:
        return {}
    stated_of_classes = [collectives.types_and_sizes(name, ranks[0]) for ranks in classes.values()]
    filled_of_ranks: dict[int, Ints] = {}
    for ranks, mine in zip(classes.values(), stated_of_classes, strict=True):
        if (mine == ABSENT).any():
            agreeing = [
                candidate
                for candidate in stated_of_classes
                if candidate.shape == mine.shape and _agree_where_stated(candidate[0], mine[0])
            ]
            values = np.array(agreeing)
            largest = np.iinfo(np.int64).max
            smallest = np.where(values == ABSENT, largest, values).min(axis=0)
            least_stated: Ints = np.where(smallest == largest, ABSENT, smallest)
            most, least = np.max(agreeing, axis=0), least_stated
            filled = np.where((mine == ABSENT) & (most == least), most, mine)
            filled_of_ranks.update(dict.fromkeys(ranks, filled))
    return filled_of_ranks


def _agree_where_stated(mine: Ints, theirs: Ints) -> bool:
    """Return whether two lists are equal where both state a value."""
    return bool(((mine == theirs) | (mine == ABSENT) | (theirs == ABSENT)).all())


def _column_repair(traces: TraceSet, changes: Mapping[int, Ints], column: int, what: str) -> list[Repair]:
    """Return the repair of one column of some ranks."""
    counts = {rank: _changed_columns(traces.ranks[rank].template, columns)[column] for rank, columns in changes.items()}
    ranks = [rank for rank, changed in counts.items() if changed.any()]
    if not ranks:
        return []
    template, row = traces.ranks[ranks[0]].template, int(np.argmax(counts[ranks[0]]))
    value = int(changes[ranks[0]][column, row])
    value_text = size_text(value) if column else enum_name(CollectiveType, value)
    example = f"{rank_text(traces.where, ranks[:1])}: {node_text(template, row)} has {value_text}, as other ranks say"
    return [Repair(what, sum(int(count.sum()) for count in counts.values()), example)]


# ---- messages


def without_unmatched(traces: TraceSet) -> tuple[TraceSet, list[Repair]]:
    """Return traces without sends and receives that no other rank matches; what waited for one waits for the rest."""
    messages, count = messages_of(traces), len(traces.ranks)
    outside = (messages.peer < 0) | (messages.peer >= count)
    unmatched = unmatched_messages(messages.select(~outside), count)
    dropped: dict[int, list[Ints]] = {}
    for part in (messages.select(outside), unmatched):
        for rank in np.unique(part.rank).tolist():
            dropped.setdefault(rank, []).append(part.row[part.rank == rank])
    for template, ranks in ranks_by_template(traces):
        exchanges = (template.type == NodeType.COMM_SEND) | (template.type == NodeType.COMM_RECV)
        if len(rows := np.flatnonzero(exchanges & (template.peer == ABSENT))):
            for rank in ranks:
                dropped.setdefault(rank, []).append(rows)
    changes = {rank: np.sort(np.concatenate(rows)) for rank, rows in sorted(dropped.items())}
    if not changes:
        return traces, []
    rank, rows = next(iter(changes.items()))
    node = node_text(traces.ranks[rank].template, int(rows[0]))
    example = f"{traces.where}: rank {rank}: {node} matches nothing"
    matched = with_changes(traces, changes, lambda template, rows: _without_rows(template, rows, traces.where))
    total = sum(map(len, changes.values()))
    return matched, [Repair("unmatched sends and receives dropped", total, example)]


def _without_rows(template: Template, rows: Ints, where: str) -> Template:
    dropped = np.zeros(template.nodes, bool)
    dropped[rows] = True
    return without_nodes(template, dropped, where)


def copy_to_ranks(trace: RankTrace, ranks: int, where: str) -> TraceSet:
    """Return a job in which every rank runs the nodes of one *trace*; peers stay as far away as they were.

    >>> from cosmic.traces.trace import template_of
    >>> [each.peers for each in copy_to_ranks(RankTrace(template_of([]), (), (1, 3), 0), 4, "job").ranks]
    [(1, 3), (2, 0), (3, 1), (0, 2)]
    """
    own = trace.own_rank or 0
    copies = (
        replace(trace, peers=tuple((peer - own + rank) % ranks for peer in trace.peers), own_rank=None)
        for rank in range(ranks)
    )
    return TraceSet(tuple(copies), where)


STEPS = (
    with_distinct_ids,
    with_satisfiable_dependencies,
    with_types,
    with_communication,
    without_cycles,
    without_untyped,
)
"""Repairs within a rank, in order: later ones need what earlier ones mend."""


@dataclass(frozen=True, slots=True)
class RepairedTraces:
    """Repaired traces."""

    traces: TraceSet
    groups: Groups | None
    """The groups given, and those that were missing; None if there are neither."""
    done: tuple[Repair, ...]
    left: tuple[str, ...]
    """What could not be mended, as `cosmic.traces.trace_checks.list_problems` says it."""


def repair_traces(traces: TraceSet, groups: Groups | None = None, *, drop_unmatched: bool = False) -> RepairedTraces:
    """Return *traces* repaired, with what was done and what is left.

    >>> from cosmic.traces.trace import RankTrace, template_of
    >>> nodes = [{"id": 4, "type": 4, "data": [3]}, {"id": 7, "type": 4, "ctrl": [7], "data": [4]}]
    >>> result = repair_traces(TraceSet((RankTrace(template_of(nodes)),)))
    >>> [(each.count, each.what) for each in result.done], result.left
    ([(1, 'data dependencies on absent nodes dropped'), (1, 'control self dependencies dropped')], ())
    """
    traces, done = _repair_templates(traces)
    traces, groups, more = with_groups(traces, groups)
    done += more
    traces, more = with_sizes_of_others(traces, groups)
    done += more
    if drop_unmatched:
        traces, more = without_unmatched(traces)
        done += more
    return RepairedTraces(traces, groups, merge_repairs(done), tuple(list_problems(traces, groups)))


def _repair_templates(traces: TraceSet) -> tuple[TraceSet, list[Repair]]:
    """Return traces with every template repaired."""
    done: list[Repair] = []
    repaired: dict[int, Template] = {}
    for template, ranks in ranks_by_template(traces):
        template_ranks, mended = TemplateRanks(traces.where, ranks), template
        for step in STEPS:
            mended, more = step(mended, template_ranks)
            done += more
        if mended is not template:
            repaired[id(template)] = mended
    if not repaired:
        return traces, done
    ranks_made = (replace(rank, template=repaired.get(id(rank.template), rank.template)) for rank in traces.ranks)
    return TraceSet(tuple(ranks_made), traces.where), done
