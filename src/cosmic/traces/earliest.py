"""When the nodes of a trace would run, if each began as soon as those that it depends on are done."""

from __future__ import annotations

import numpy as np

from cosmic.traces.order import Dependencies
from cosmic.traces.trace import ABSENT, Ints


def earliest_starts(dependencies: Dependencies, order: Ints, durations: Ints, known: Ints | None = None) -> Ints:
    """Return the start of each row: when the last row that it depends on ends, 0 where it depends on none.

    *order* is the `topological_order` of *dependencies* and holds all rows. Rows with a *known* start keep it.

    >>> from cosmic.traces.order import dependencies_of, topological_order
    >>> from cosmic.traces.trace import template_of
    >>> found = dependencies_of(template_of([{"id": 1}, {"id": 2, "data": [1]}, {"id": 3, "data": [1, 2]}]))
    >>> earliest_starts(found, topological_order(found), np.array([5, 7, 1])).tolist()
    [0, 5, 12]
    """
    first = np.searchsorted(dependencies.dependent, np.arange(dependencies.nodes + 1)).tolist()
    rows, lasting = dependencies.row.tolist(), durations.tolist()
    starts = [ABSENT] * dependencies.nodes if known is None else known.tolist()
    ends = [0] * dependencies.nodes
    for row in order.tolist():
        if starts[row] == ABSENT:
            starts[row] = max((ends[each] for each in rows[first[row] : first[row + 1]]), default=0)
        ends[row] = starts[row] + lasting[row]
    return np.array(starts, np.int64)


def last_to_end(dependencies: Dependencies, starts: Ints, durations: Ints, queue: Ints) -> Ints:
    """Return the critical path of recorded rows, first row first: from the row that ends last, back to what it awaited.

    A row awaits those that it depends on, and the one before it in its *queue* (thread or stream): of those that began
    before it, the one that ends last held it up.

    >>> from cosmic.traces.order import dependencies_of
    >>> from cosmic.traces.trace import template_of
    >>> found = dependencies_of(template_of([{"id": 1}, {"id": 2}, {"id": 3, "data": [2]}]))
    >>> last_to_end(found, np.array([0, 0, 9]), np.array([8, 4, 1]), np.array([0, 1, 2])).tolist()
    [1, 2]
    >>> last_to_end(found, np.array([0, 0, 9]), np.array([8, 4, 1]), np.array([0, 1, 0])).tolist()
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
    back, at, path = wanted.tolist(), int(np.argmax(ends)), []
    while at >= 0:
        path.append(at)
        at = back[at]
    return np.array(path[::-1], np.int64)
