"""What waits for what within a rank: an order in which its nodes can run, a cycle if there is none, longest chains.

Rows stand for nodes. All functions take time in proportion to nodes and dependencies.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, MutableSequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cosmic.errors import SpecError
from cosmic.traces.trace import Ints, Template

Numbers = npt.NDArray[np.int64] | npt.NDArray[np.float64]

WIDE = 32
"""Rows from which on a layer is faster peeled as an array than row by row."""

SPARSE = 8
"""Times the number of nodes that their ids may span to be looked up in a table."""


@dataclass(frozen=True, slots=True, eq=False)
class Waits:
    """Dependencies, data and control alike, in ascending order of the rows that wait."""

    nodes: int
    waiter: Ints
    """The row that waits."""
    wanted: Ints
    """The id of the node that it waits for."""
    row: Ints
    """The row of that node, or any if there is none."""
    absent: npt.NDArray[np.bool_]
    """Whether there is none."""

    def within(self) -> Waits:
        """Return those that lead from one row to another: the others can be reported, but not followed."""
        kept = ~self.absent & (self.row != self.waiter)
        if kept.all():
            return self
        return Waits(self.nodes, self.waiter[kept], self.wanted[kept], self.row[kept], self.absent[kept])


def waits_of(template: Template) -> Waits:
    """Return what the nodes of *template* wait for, whether or not it is there.

    >>> from cosmic.traces.trace import template_of
    >>> waits = waits_of(template_of([{"id": 4}, {"id": 7, "data": [4, 5], "ctrl": [4]}]))
    >>> waits.waiter.tolist(), waits.row.tolist(), waits.absent.tolist()
    ([1, 1, 1], [0, 0, 0], [False, True, False])
    """
    rows = np.arange(template.nodes)
    wanted, waiter = template.data_id, np.repeat(rows, np.diff(template.data_start))
    if len(template.ctrl_id):
        wanted = np.concatenate([wanted, template.ctrl_id])
        waiter = np.concatenate([waiter, np.repeat(rows, np.diff(template.ctrl_start))])
        order = np.argsort(waiter, kind="stable")
        wanted, waiter = wanted[order], waiter[order]
    row = _rows(template.id, wanted)
    return Waits(template.nodes, waiter, wanted, row, template.id[row] != wanted)


def dependencies(template: Template, where: str = "trace") -> tuple[Ints, Ints]:
    """Return, for each row, the rows it waits for, each once: where they start, and which.

    A node that waits for one that is not there, or for itself, is refused.

    >>> from cosmic.traces.trace import template_of
    >>> nodes = [{"id": 4, "type": 4}, {"id": 7, "type": 4, "data": [4], "ctrl": [4]}]
    >>> [column.tolist() for column in dependencies(template_of(nodes))]
    [[0, 0, 1], [0]]
    """
    waits = waits_of(template)
    for wrong, rule in (
        (waits.absent, "no node has this id"),
        (waits.row == waits.waiter, "a node cannot wait for itself"),
    ):
        if wrong.any():
            at = int(np.argmax(wrong))
            node = template.id[waits.waiter[at]]
            raise SpecError(f"{where}: node {node}: depends on", int(waits.wanted[at]), rule)
    pairs = np.unique(waits.waiter * max(template.nodes, 1) + waits.row)
    waiters, rows = np.divmod(pairs, max(template.nodes, 1))
    return np.searchsorted(waiters, np.arange(template.nodes + 1)), rows


def followers(template: Template, where: str = "trace") -> tuple[list[int], list[list[int]]]:
    """Return for how many rows each row waits, and which rows wait for it: what a player counts down.

    >>> from cosmic.traces.trace import template_of
    >>> followers(template_of([{"id": 4, "type": 4}, {"id": 7, "type": 4, "data": [4]}]))
    ([0, 1], [[1], []])
    """
    start, before = dependencies(template, where)
    after: list[list[int]] = [[] for _ in range(template.nodes)]
    waiters = np.repeat(np.arange(template.nodes), np.diff(start))
    for row, waiter in zip(before.tolist(), waiters.tolist(), strict=True):
        after[row].append(waiter)
    waits: list[int] = np.diff(start).tolist()
    return waits, after


def _rows(ids: Ints, wanted: Ints) -> Ints:
    """Return where *wanted* are among the ascending *ids*, and any place for those that are not there."""
    span = int(ids[-1]) - int(ids[0]) + 1 if len(ids) else 0
    if span > SPARSE * len(ids):
        return np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    table = np.zeros(span, np.int64)  # several times faster than a search
    table[ids - ids[:1]] = np.arange(len(ids))
    places: Ints = table[np.clip(wanted, ids[:1], ids[-1:]) - ids[:1]]
    return places


def runnable(waits: Waits) -> Ints:
    """Return the rows in an order in which they can run; it leaves some out where nodes wait for one another.

    *waits* are `Waits.within` a template.
    """
    if (waits.row < waits.waiter).all():
        return np.arange(waits.nodes)
    # Kahn's algorithm from the end: what nobody waits for comes last, and so on with what is left.
    start = np.searchsorted(waits.waiter, np.arange(waits.nodes + 1))
    waiting = np.bincount(waits.row, minlength=waits.nodes)
    layer, peeled = np.flatnonzero(waiting == 0), []
    while len(layer) >= WIDE:
        peeled.append(layer)
        lengths = start[layer + 1] - start[layer]
        places = np.repeat(start[layer] - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
        freed, times = np.unique(waits.row[places], return_counts=True)
        waiting[freed] -= times
        layer = freed[waiting[freed] == 0]
    peeled.append(_peel(layer, waiting, start, waits.row))
    return np.concatenate(peeled)[::-1]


def _peel(layer: Ints, waiting: Ints, start: Ints, row: Ints) -> Ints:
    """Return the rows that can be peeled from *layer* on, one by one: long chains have too many layers for arrays."""
    # Arrays of numbers, and bytes where they suffice, stay in the processor's cache as lists of objects do not.
    done, starts, rows = layer.tolist(), array("q", start.tobytes()), array("q", row.tobytes())
    left: MutableSequence[int] = bytearray(waiting.astype(np.uint8)) if waiting.max() < 256 else waiting.tolist()
    for each in done:  # it grows while it is read
        for freed in rows[starts[each] : starts[each + 1]]:
            left[freed] -= 1
            if not left[freed]:
                done.append(freed)
    return np.array(done, np.int64)


def cycle(waits: Waits, order: Ints) -> list[int]:
    """Return rows each of which waits for the next, and the last for the first; none if *order* holds every row."""
    stuck = np.ones(waits.nodes, bool)
    stuck[order] = False
    if not stuck.any():
        return []
    # Somebody who is stuck waits for each that is stuck: going from waiter to waiter must come round.
    kept = stuck[waits.waiter]
    waiter = np.full(waits.nodes, -1)
    waiter[waits.row[kept]] = waits.waiter[kept]
    next_waiter, at = waiter.tolist(), int(np.argmax(stuck))
    seen: dict[int, int] = {}
    while at not in seen:
        seen[at] = len(seen)
        at = next_waiter[at]
    around = list(seen)[seen[at] :][::-1]
    first = around.index(min(around))
    return around[first:] + around[:first]


def longest_chains(waits: Waits, order: Ints, weights: Iterable[Numbers]) -> list[Ints]:
    """Return, for each of *weights*, the rows of a chain of most weight (no weight is negative), first row first.

    *order* is what `runnable` gave for *waits*: all rows, as chains have no end in a cycle.
    """
    if not len(order):
        return [order for _ in weights]
    # Numbered in the order in which they run, rows are read from memory nearly one after the other.
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    late, early = place[waits.waiter], place[waits.row]
    if (late[1:] < late[:-1]).any():
        by_waiter = np.argsort(late, kind="stable")
        late, early = late[by_waiter], early[by_waiter]
    waiters, rows = late.tolist(), early.tolist()
    chains = []
    for weight in weights:
        own = weight[order]
        end = np.array(_ends(waiters, rows, own.tolist()))
        tight = end[early] + own[late] == end[late]
        before = np.full(len(order), -1)
        before[late[tight]] = early[tight]
        chains.append(order[_back(before.tolist(), int(np.argmax(end)))])
    return chains


def _ends(waiters: list[int], rows: list[int], weight: list[float]) -> list[float]:
    """Return the weight of the heaviest chain that ends in each row."""
    end = weight
    at, heaviest = 0, 0.0
    for waiter, row in zip(waiters, rows, strict=True):
        if waiter != at:
            end[at] += heaviest
            at, heaviest = waiter, end[row]
        elif end[row] > heaviest:
            heaviest = end[row]
    end[at] += heaviest
    return end


def _back(before: list[int], at: int) -> list[int]:
    """Return the chain that ends in row *at*, first row first."""
    chain = []
    while at >= 0:
        chain.append(at)
        at = before[at]
    return chain[::-1]
