"""Nodes that begin at one moment and take no time: in which order they ran, and that none waits for itself."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def without_cycles(node: Ints, wait: Ints, start: Ints, end: Ints) -> Mask:
    """Return which dependencies to keep, so that there is no cycle; *wait* ended before *node* began.

    Only nodes that take no time, at one moment, can wait for each other.

    >>> at = np.array([5, 5, 5])
    >>> without_cycles(np.array([0, 1, 2]), np.array([1, 0, 1]), at, at).tolist()
    [False, True, True]
    """
    tied = np.flatnonzero((start[node] == start[wait]) & (end[node] == end[wait]))
    kept = np.ones(len(node), bool)
    if len(tied):
        stuck = _stuck(node[tied], wait[tied])
        kept[tied[stuck & (wait[tied] >= node[tied])]] = False
    return kept


def _stuck(node: Ints, wait: Ints) -> Mask:
    """Return which dependencies are between nodes that can never run."""
    names, numbers = np.unique(np.concatenate([node, wait]), return_inverse=True)
    node, wait = numbers[: len(node)], numbers[len(node) :]
    ran = np.zeros(len(names), bool)
    ran[_topological(node, wait, np.arange(len(names)))] = True
    return ~ran[node]


def began_order(node: Ints, wait: Ints, start: Ints, end: Ints) -> Ints:
    """Return all nodes in the order in which they began, each after those that it waits for."""
    order = np.lexsort((end, start))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    late = place[wait] >= place[node]
    if not late.any():
        return order
    moments = (start[order[1:]] != start[order[:-1]]) | (end[order[1:]] != end[order[:-1]])
    group = np.concatenate([[0], np.cumsum(moments)])[place]  # of nodes with the same times
    wrong = np.zeros(int(group.max()) + 1, bool)
    wrong[group[node[late]]] = True
    inside = wrong[group[node]] & (group[node] == group[wait])
    rows = np.flatnonzero(wrong[group[order]])  # places in the order that are given anew
    number = np.full(len(order), -1)
    number[order[rows]] = np.arange(len(rows))
    again = _topological(number[node[inside]], number[wait[inside]], np.arange(len(rows)))
    members = order[rows]
    by_group = np.argsort(group[members[again]], kind="stable")
    order[rows] = members[again[by_group]]
    return order


def _topological(node: Ints, wait: Ints, nodes: Ints) -> Ints:
    """Return those *nodes* (0, 1 ...) that can run, each after what it waits for, otherwise the lowest number first."""
    waiting = np.bincount(node, minlength=len(nodes)).tolist()
    by_wait = np.argsort(wait, kind="stable")
    first = np.searchsorted(wait[by_wait], np.arange(len(nodes) + 1)).tolist()
    after = node[by_wait].tolist()
    ready = [at for at, count in enumerate(waiting) if not count]
    heapify(ready)
    order = []
    while ready:
        at = heappop(ready)
        order.append(at)
        for each in after[first[at] : first[at + 1]]:
            waiting[each] -= 1
            if not waiting[each]:
                heappush(ready, each)
    return np.array(order, np.int64)
