"""Make the transfers of a schedule as early as they can be, so that nothing waits for what it does not need.

Schedules have gaps that nobody needs: a link that first left a transfer to another, and took it on after all; and the
first transfers of an all-gather, which wait for the end of the whole reduce-scatter. Every link keeps the order of its
transfers. Each begins when the one before it has ended, and all that had come of its chunk is there; of what a switch
passes on, the message.
"""

from __future__ import annotations

from collections import defaultdict, deque

import numpy as np

from cosmic.graphs.graph import Ints, LinkGraph
from cosmic.synthesis.engine import Transfers

MOST_SETTLED = 300_000
"""Transfers that are looked at one by one; more stay as they are."""
MOST_PASSES = 8
"""Times that transfers of a network with switches are looked at."""
NO_GAP = 1e-12
"""Share of a time that is no gap, but rounding."""


def settled(graph: LinkGraph, transfers: Transfers) -> Transfers:
    """Return transfers, in the order of their starts, as early as possible; equal ones where there is no gap.

    >>> from cosmic.graphs.graph import graph_of
    >>> pair = graph_of(2, [(0, 1, 1.0, 0.0), (1, 0, 1.0, 0.0)])
    >>> late = Transfers(np.array([0, 1]), np.array([0, 1]), np.array([0.0, 2.0]), np.array([1.0, 3.0]))
    >>> settled(pair, late).time_s
    1.0
    """
    if len(transfers.link) > MOST_SETTLED:
        return transfers
    for _ in range(MOST_PASSES if graph.switches else 1):  # who is first at a switch may change
        before, transfers = transfers, _earlier(graph, transfers)
        if transfers is before:
            break
    return transfers


def _earlier(graph: LinkGraph, transfers: Transfers) -> Transfers:
    """Return transfers as early as their links and chunks allow, by who was first at switches so far."""
    old_start, old_end = transfers.start_s.tolist(), transfers.end_s.tolist()
    key = transfers.chunk * graph.nodes
    wanted, filled = key + graph.sources[transfers.link], key + graph.targets[transfers.link]
    first = _first_come(graph, transfers, wanted, filled)
    start, end = old_start[:], old_end[:]
    free, come = [0.0] * graph.links, dict.fromkeys(wanted.tolist(), 0.0)
    rows = zip(transfers.link.tolist(), wanted.tolist(), filled.tolist(), strict=True)
    for row, (link, needs, fills) in enumerate(rows):
        there = end[first[row]] if row in first else come[needs]
        begin = free[link] if free[link] > there else there
        if begin < old_start[row] - NO_GAP * old_end[row]:
            start[row], end[row] = begin, begin + (old_end[row] - old_start[row])
        free[link] = end[row]
        if come.get(fills, end[row]) < end[row]:
            come[fills] = end[row]
    if start == old_start:
        return transfers
    order = np.argsort(np.array(start), kind="stable")
    columns = np.array(start)[order], np.array(end)[order]
    return Transfers(transfers.link[order], transfers.chunk[order], *columns)


def _first_come(graph: LinkGraph, transfers: Transfers, wanted: Ints, filled: Ints) -> dict[int, int]:
    """Return of what switches pass on the transfer that brought it: they send first what came first of a chunk."""
    passes = np.arange(graph.nodes) >= graph.npus
    passes[list(graph.reducing)] = False
    into = np.flatnonzero(passes[graph.targets[transfers.link]])
    waiting: dict[int, deque[int]] = defaultdict(deque)
    for row in into[np.argsort(transfers.end_s[into], kind="stable")].tolist():
        waiting[int(filled[row])].append(row)
    out = np.flatnonzero(passes[graph.sources[transfers.link]]).tolist()
    return {row: waiting[int(wanted[row])].popleft() for row in out}
