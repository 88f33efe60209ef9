"""Dependencies within a rank: topological order, cycles, longest chains, earliest starts.

Nodes are rows. All functions take time in proportion to nodes and dependencies.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, MutableSequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cosmic.base.errors import SpecError
from cosmic.traces.trace import ABSENT, Ints, Template

# ---- Dependencies within a rank: a topological order of its nodes, a cycle if there is none, longest chains

Numbers = npt.NDArray[np.int64] | npt.NDArray[np.float64]

WIDE = 32
"""From this many rows on, a layer is peeled faster as an array than row by row."""

SPARSE = 8
"""Ids that span up to this many times the number of nodes are looked up in a table."""


@dataclass(frozen=True, slots=True, eq=False)
class Dependencies:
    """Data and control dependencies, in ascending order of the dependent rows."""

    nodes: int
    dependent: Ints
    """The row that depends on another."""
    wanted: Ints
    """The id of the node that it depends on."""
    row: Ints
    """The row of that node; any row if the node is absent."""
    absent: npt.NDArray[np.bool_]
    """Whether no node has that id."""

    def within(self) -> Dependencies:
        """Return the dependencies between two different rows of the template."""
        inside = ~self.absent & (self.row != self.dependent)
        if inside.all():
            return self
        return Dependencies(
            self.nodes, self.dependent[inside], self.wanted[inside], self.row[inside], self.absent[inside]
        )


def dependencies_of(template: Template) -> Dependencies:
    """Return the dependencies of *template*, those on absent nodes included.

    >>> from cosmic.traces.trace import template_of
    >>> dependencies = dependencies_of(template_of([{"id": 4}, {"id": 7, "data": [4, 5], "ctrl": [4]}]))
    >>> dependencies.dependent.tolist(), dependencies.row.tolist(), dependencies.absent.tolist()
    ([1, 1, 1], [0, 0, 0], [False, True, False])
    """
    rows = np.arange(template.nodes)
    wanted, dependent = template.data_id, np.repeat(rows, np.diff(template.data_start))
    if len(template.ctrl_id):
        wanted = np.concatenate([wanted, template.ctrl_id])
        dependent = np.concatenate([dependent, np.repeat(rows, np.diff(template.ctrl_start))])
        order = np.argsort(dependent, kind="stable")
        wanted, dependent = wanted[order], dependent[order]
    row = _find_rows(template.id, wanted)
    return Dependencies(template.nodes, dependent, wanted, row, template.id[row] != wanted)


def checked_dependencies(template: Template, where: str = "trace") -> tuple[Ints, Ints]:
    """Return the distinct rows that each row depends on: where its list starts, and the rows.

    Refuse a node that depends on an absent node or on itself.

    >>> from cosmic.traces.trace import template_of
    >>> nodes = [{"id": 4, "type": 4}, {"id": 7, "type": 4, "data": [4], "ctrl": [4]}]
    >>> [column.tolist() for column in checked_dependencies(template_of(nodes))]
    [[0, 0, 1], [0]]
    """
    dependencies = dependencies_of(template)
    for wrong, rule in (
        (dependencies.absent, "no node has this id"),
        (dependencies.row == dependencies.dependent, "a node cannot wait for itself"),
    ):
        if wrong.any():
            first = int(np.argmax(wrong))
            node = template.id[dependencies.dependent[first]]
            raise SpecError(f"{where}: node {node}: depends on", int(dependencies.wanted[first]), rule)
    pairs = np.unique(dependencies.dependent * max(template.nodes, 1) + dependencies.row)
    dependents, rows = np.divmod(pairs, max(template.nodes, 1))
    return np.searchsorted(dependents, np.arange(template.nodes + 1)), rows


def list_dependents(template: Template, where: str = "trace") -> tuple[list[int], list[list[int]]]:
    """Return the number of rows that each row depends on, and the rows that depend on it.

    >>> from cosmic.traces.trace import template_of
    >>> list_dependents(template_of([{"id": 4, "type": 4}, {"id": 7, "type": 4, "data": [4]}]))
    ([0, 1], [[1], []])
    """
    start, before = checked_dependencies(template, where)
    after: list[list[int]] = [[] for _ in range(template.nodes)]
    dependents = np.repeat(np.arange(template.nodes), np.diff(start))
    for row, dependent in zip(before.tolist(), dependents.tolist(), strict=True):
        after[row].append(dependent)
    dependencies: list[int] = np.diff(start).tolist()
    return dependencies, after


def _find_rows(ids: Ints, wanted: Ints) -> Ints:
    """Return the indices of *wanted* among the ascending *ids*, and any index for those that are absent."""
    span = int(ids[-1]) - int(ids[0]) + 1 if len(ids) else 0
    if span > SPARSE * len(ids):
        return np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    table = np.zeros(span, np.int64)  # several times faster than a search
    table[ids - ids[:1]] = np.arange(len(ids))
    rows: Ints = table[np.clip(wanted, ids[:1], ids[-1:]) - ids[:1]]
    return rows


def topological_order(dependencies: Dependencies) -> Ints:
    """Return the rows in topological order, without those in a cycle and those that a cycle depends on.

    *dependencies* are `Dependencies.within` a template.
    """
    if (dependencies.row < dependencies.dependent).all():
        return np.arange(dependencies.nodes)
    # Kahn's algorithm from the end: rows without dependents come last, and so on.
    start = np.searchsorted(dependencies.dependent, np.arange(dependencies.nodes + 1))
    waiting = np.bincount(dependencies.row, minlength=dependencies.nodes)
    layer, peeled = np.flatnonzero(waiting == 0), []
    while len(layer) >= WIDE:
        peeled.append(layer)
        lengths = start[layer + 1] - start[layer]
        indices = np.repeat(start[layer] - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
        freed, times = np.unique(dependencies.row[indices], return_counts=True)
        waiting[freed] -= times
        layer = freed[waiting[freed] == 0]
    peeled.append(_peel_rows(layer, waiting, start, dependencies.row))
    return np.concatenate(peeled)[::-1]


def _peel_rows(layer: Ints, waiting: Ints, start: Ints, row: Ints) -> Ints:
    """Return the rows peeled from *layer* on, one by one: long chains have too many layers for arrays."""
    # Arrays of numbers, and bytes where they suffice, stay in the processor's cache; lists of objects do not.
    done, starts, rows = layer.tolist(), array("q", start.tobytes()), array("q", row.tobytes())
    unpeeled: MutableSequence[int] = bytearray(waiting.astype(np.uint8)) if waiting.max() < 256 else waiting.tolist()
    for peeled in done:  # it grows while it is read
        for freed in rows[starts[peeled] : starts[peeled + 1]]:
            unpeeled[freed] -= 1
            if not unpeeled[freed]:
                done.append(freed)
    return np.array(done, np.int64)


def find_cycle(dependencies: Dependencies, order: Ints) -> list[int]:
    """Return a cycle: each row depends on the next, and the last on the first; empty if *order* holds every row."""
    stuck = np.ones(dependencies.nodes, bool)
    stuck[order] = False
    if not stuck.any():
        return []
    # Every stuck row has a stuck dependent: going from dependent to dependent must close a cycle.
    inside = stuck[dependencies.dependent]
    dependent = np.full(dependencies.nodes, -1)
    dependent[dependencies.row[inside]] = dependencies.dependent[inside]
    next_dependent, row = dependent.tolist(), int(np.argmax(stuck))
    seen: dict[int, int] = {}
    while row not in seen:
        seen[row] = len(seen)
        row = next_dependent[row]
    around = list(seen)[seen[row] :][::-1]
    first = around.index(min(around))
    return around[first:] + around[:first]


def longest_chains(dependencies: Dependencies, order: Ints, weights: Iterable[Numbers]) -> list[Ints]:
    """Return, for each of *weights* (none negative), the rows of the heaviest chain, first row first.

    *order* is the `topological_order` of *dependencies*, and must hold all rows.
    """
    if not len(order):
        return [order for _ in weights]
    # Numbered in topological order, rows are read from memory nearly sequentially.
    position = np.empty_like(order)
    position[order] = np.arange(len(order))
    late, early = position[dependencies.dependent], position[dependencies.row]
    if (late[1:] < late[:-1]).any():
        by_dependent = np.argsort(late, kind="stable")
        late, early = late[by_dependent], early[by_dependent]
    dependents, rows = late.tolist(), early.tolist()
    chains = []
    for weight in weights:
        own = weight[order]
        # The weight of the heaviest chain that ends in each row
        chain_weights = own.tolist()
        current, heaviest = 0, 0.0
        for dependent, row in zip(dependents, rows, strict=True):
            if dependent != current:
                chain_weights[current] += heaviest
                current, heaviest = dependent, chain_weights[row]
            elif chain_weights[row] > heaviest:
                heaviest = chain_weights[row]
        chain_weights[current] += heaviest
        end = np.array(chain_weights)
        tight = end[early] + own[late] == end[late]
        before = np.full(len(order), -1)
        before[late[tight]] = early[tight]
        # The chain that ends in the heaviest row, first row first
        predecessors = before.tolist()
        tail = int(np.argmax(end))
        chain = []
        while tail >= 0:
            chain.append(tail)
            tail = predecessors[tail]
        chains.append(order[chain[::-1]])
    return chains


# ---- When the nodes of a trace would run, if each began as soon as those that it depends on are done


def earliest_starts(dependencies: Dependencies, order: Ints, durations: Ints, recorded: Ints | None = None) -> Ints:
    """Return the start of each row: when the last row that it depends on ends, 0 where it depends on none.

    *order* is the `topological_order` of *dependencies* and holds all rows. Rows with a *recorded* start keep it.

    >>> from cosmic.traces.dependencies import dependencies_of, topological_order
    >>> from cosmic.traces.trace import template_of
    >>> found = dependencies_of(template_of([{"id": 1}, {"id": 2, "data": [1]}, {"id": 3, "data": [1, 2]}]))
    >>> earliest_starts(found, topological_order(found), np.array([5, 7, 1])).tolist()
    [0, 5, 12]
    """
    first = np.searchsorted(dependencies.dependent, np.arange(dependencies.nodes + 1)).tolist()
    rows, lasting = dependencies.row.tolist(), durations.tolist()
    starts = [ABSENT] * dependencies.nodes if recorded is None else recorded.tolist()
    ends = [0] * dependencies.nodes
    for row in order.tolist():
        if starts[row] == ABSENT:
            starts[row] = max((ends[predecessor] for predecessor in rows[first[row] : first[row + 1]]), default=0)
        ends[row] = starts[row] + lasting[row]
    return np.array(starts, np.int64)


def recorded_critical_path(dependencies: Dependencies, starts: Ints, durations: Ints, queue: Ints) -> Ints:
    """Return the critical path of recorded rows, first row first: from the row that ends last, back to what it awaited.

    A row awaits those that it depends on, and the one before it in its *queue* (thread or stream): of those that began
    before it, the one that ends last held it up.

    >>> from cosmic.traces.dependencies import dependencies_of
    >>> from cosmic.traces.trace import template_of
    >>> found = dependencies_of(template_of([{"id": 1}, {"id": 2}, {"id": 3, "data": [2]}]))
    >>> recorded_critical_path(found, np.array([0, 0, 9]), np.array([8, 4, 1]), np.array([0, 1, 2])).tolist()
    [1, 2]
    >>> recorded_critical_path(found, np.array([0, 0, 9]), np.array([8, 4, 1]), np.array([0, 1, 0])).tolist()
    [0, 2]
    """
    if not dependencies.nodes:
        return np.zeros(0, np.int64)
    ends = starts + durations
    queued = np.lexsort((np.arange(dependencies.nodes), starts, queue))
    same = queue[queued[1:]] == queue[queued[:-1]]
    late = np.concatenate([dependencies.dependent, queued[1:][same]])
    early = np.concatenate([dependencies.row, queued[:-1][same]])
    # Only a row before it, in time and then in number: so that the way back ends.
    before = (starts[early] < starts[late]) | ((starts[early] == starts[late]) & (early < late))
    late, early = late[before], early[before]
    by_end = np.argsort(ends[early], kind="stable")
    wanted = np.full(dependencies.nodes, -1)
    wanted[late[by_end]] = early[by_end]
    back, row, path = wanted.tolist(), int(np.argmax(ends)), []
    while row >= 0:
        path.append(row)
        row = back[row]
    return np.array(path[::-1], np.int64)
