"""Make the transfers of a schedule as early as they can be, so that nothing waits for what it does not need.

Schedules have gaps that nobody needs: a link that first left a transfer to another, and took it on after all; and the
first transfers of an all-gather, which wait for the end of the whole reduce-scatter. Every link keeps the order of its
transfers. Each begins when the one before it has ended, and all that had come of its chunk is there; of what a switch
passes on, the message.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from cosmic.graphs.graph import LinkGraph
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
    link, chunk = transfers.link.tolist(), transfers.chunk.tolist()
    old_start, old_end = transfers.start_s.tolist(), transfers.end_s.tolist()
    source, target = graph.sources[transfers.link].tolist(), graph.targets[transfers.link].tolist()
    start, end = old_start[:], old_end[:]
    free, held = [0.0] * graph.links, _Held(graph)
    for row, on in enumerate(link):
        slack = NO_GAP * old_end[row]
        begin = max(free[on], held.since_s(chunk[row], source[row], old_start[row] + slack))
        if begin < old_start[row] - slack:
            start[row], end[row] = begin, begin + (old_end[row] - old_start[row])
        free[on] = end[row]
        held.add(chunk[row], target[row], old_end[row], end[row])
    if start == old_start:
        return transfers
    order = np.argsort(np.array(start), kind="stable")
    columns = np.array(start)[order], np.array(end)[order]
    return Transfers(transfers.link[order], transfers.chunk[order], *columns)


class _Held:
    """What has come to every node: the ends of transfers before and after they were made earlier."""

    def __init__(self, graph: LinkGraph) -> None:
        self._passes = [node >= graph.npus and node not in graph.reducing for node in range(graph.nodes)]
        self._come: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
        self._sent: dict[tuple[int, int], int] = defaultdict(int)

    def add(self, chunk: int, node: int, old_s: float, new_s: float) -> None:
        """Note that a chunk comes to a node."""
        self._come[chunk, node].append((old_s, new_s))

    def since_s(self, chunk: int, node: int, by_s: float) -> float:
        """Return when all was there that had come by a time; a switch passes on what came first, one by one."""
        place = chunk, node
        come = sorted(each for each in self._come[place] if each[0] <= by_s)
        if self._passes[node]:
            self._sent[place] += 1
            come = come[self._sent[place] - 1 : self._sent[place]]
        return max((new for _, new in come), default=0.0)
