"""Recorded times under noise: durations and delays change, and starts move with what they waited for."""

from __future__ import annotations

import numpy as np

from cosmic.errors import SpecError
from cosmic.traces.noise import Table
from cosmic.traces.order import Dependencies, dependencies_of, topological_order
from cosmic.traces.trace import ABSENT, Ints, Template


def nanoseconds(template: Template) -> Ints:
    """Return how long each node took: `duration_ns` where recorded, else its microseconds."""
    return np.where(template.duration_ns != ABSENT, template.duration_ns, 1000 * template.duration_us)


def gaps(template: Template) -> Ints:
    """Return the time from the last event that a node may have waited for to its start; `ABSENT` where it has none.

    An event is the end of a node that it depends on, or, where that ended later, its start; without any, the
    beginning of the trace.

    >>> from cosmic.traces.trace import template_of
    >>> nodes = [{"id": 0, "start_ns": 5, "duration_ns": 10}, {"id": 1, "start_ns": 18, "data": [0]}]
    >>> gaps(template_of(nodes)).tolist()
    [5, 3]
    """
    return _Anchors(template).gap


class _Anchors:
    """The event that each node's start is counted from."""

    def __init__(self, template: Template) -> None:
        start = template.start_ns
        end = start + nanoseconds(template)
        self.edges = _recorded(dependencies_of(template).within(), start)
        early, late = self.edges.row, self.edges.dependent
        self.ended = end[early] <= start[late]
        event = np.where(self.ended, end[early], np.where(start[early] <= start[late], start[early], ABSENT))
        last = np.full(template.nodes, ABSENT)
        np.maximum.at(last, late, event)
        tight = np.flatnonzero((event == last[late]) & (event != ABSENT))
        self.edge = np.full(template.nodes, ABSENT)
        self.edge[late[tight]] = tight
        self.gap = np.where(start == ABSENT, ABSENT, start - np.maximum(last, 0))


def _recorded(edges: Dependencies, start: Ints) -> Dependencies:
    """Return the dependencies between nodes that state when they began."""
    kept = (start[edges.row] != ABSENT) & (start[edges.dependent] != ABSENT)
    return Dependencies(edges.nodes, edges.dependent[kept], edges.wanted[kept], edges.row[kept], edges.absent[kept])


def moved_starts(template: Template, durations: Ints, table: Table, where: str) -> Ints:
    """Return new starts for new *durations*: each is its event's new time and its gap by *table*.

    So every start is within the tolerance of the old one, and what had ended before a node began still has. Refuse
    dependencies with a cycle.
    """
    anchors = _Anchors(template)
    order = topological_order(anchors.edges)
    if len(order) < template.nodes:
        rule = "dependencies have a cycle, so that start times cannot follow them: --policy starts=drop leaves them out"
        raise SpecError(f"{where}: nodes in order", len(order), rule)
    gap = table.of(anchors.gap).tolist()
    first = np.searchsorted(anchors.edges.dependent, np.arange(template.nodes + 1)).tolist()
    early, ended, edge = anchors.edges.row.tolist(), anchors.ended.tolist(), anchors.edge.tolist()
    start, end = template.start_ns.tolist(), template.start_ns.tolist()
    lengths = durations.tolist()
    for row in order.tolist():
        if start[row] == ABSENT:
            continue
        at = edge[row]
        base = 0 if at == ABSENT else (end if ended[at] else start)[early[at]]
        begin = base + gap[row]
        for place in range(first[row], first[row + 1]):
            if ended[place] and end[early[place]] > begin:
                begin = end[early[place]]
        start[row], end[row] = begin, begin + lengths[row]
    return np.array(start, np.int64)
