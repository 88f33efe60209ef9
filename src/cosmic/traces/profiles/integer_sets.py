"""Sets of integers as sorted arrays: by sorting, which is faster for these than NumPy's own functions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def sorted_distinct(values: Ints) -> Ints:
    """Return the distinct *values*, ascending.

    >>> sorted_distinct(np.array([3, 1, 3])).tolist()
    [1, 3]
    """
    ordered = np.sort(values)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered


def distinct_rows(table: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the distinct rows of *table*, as they first appear, where they do, and the number of each row.

    >>> [each.tolist() for each in distinct_rows(np.array([[7, 1], [5, 2], [7, 1]]))]
    [[[7, 1], [5, 2]], [0, 1], [0, 1, 0]]
    """
    code, count = np.zeros(len(table), np.int64), 1
    for column in table.T:
        number, values = _rank_values(column)
        code, count = _rank_values(code * values + number)
    first = np.empty(count, np.int64)
    first[code[::-1]] = np.arange(len(table) - 1, -1, -1)  # of several assignments, the last one stays
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return table[first[order]], first[order], rank[code]


def _rank_values(values: Ints) -> tuple[Ints, int]:
    """Return a number for each value, from 0 on and ascending with it, and how many there are.

    Values that lie close together, as numbers of texts do, are looked up in a table; others are sorted, one a run.

    >>> _rank_values(np.array([7, 5, 7])), _rank_values(np.array([-(2**63), 2**62]))
    ((array([1, 0, 1]), 2), (array([0, 1]), 2))
    """
    if not len(values):
        return values, 0
    present = values != _LEAST
    low, high = int(values.min(where=present, initial=2**63 - 1)), int(values.max(where=present, initial=_LEAST))
    if high - low > 4 * len(values) + _SMALL:
        heads = np.append(True, values[1:] != values[:-1])
        distinct, number = np.unique(values[heads], return_inverse=True)
        return number[np.cumsum(heads) - 1], len(distinct)
    offset = np.where(present, values - low + 1, 0) if high >= low else np.zeros(len(values), np.int64)
    used = np.zeros(max(high - low, -1) + 2, bool)
    used[offset] = True
    rank = np.cumsum(used) - 1
    return rank[offset], int(rank[-1]) + 1


_LEAST, _SMALL = -(2**63), 1024
"""What stands for an absent value; a table of so many entries costs nothing."""


def is_in(values: Ints, members: Ints) -> Mask:
    """Return which *values* are among the ascending *members* ones.

    >>> is_in(np.array([3, 4, 9]), np.array([3, 5])).tolist()
    [True, False, False]
    """
    if not len(members):
        return np.zeros(len(values), bool)
    present: Mask = members[np.minimum(np.searchsorted(members, values), len(members) - 1)] == values
    return present


class CachedLookup:
    """Values by small numbers, each found out once."""

    def __init__(self) -> None:
        self._known = np.full(1024, _LEAST, np.int64)

    def look_up(self, numbers: Ints, find: Callable[[int], int]) -> Ints:
        """Return the value of each of *numbers*; *find* is asked for those that are new.

        >>> CachedLookup().look_up(np.array([3, 5, 3]), lambda number: 10 * number).tolist()
        [30, 50, 30]
        """
        most = int(numbers.max(initial=-1))
        if most >= len(self._known):
            self._known = np.append(self._known, np.full(2 * most - len(self._known) + 2, _LEAST))
        values = self._known[numbers]
        new = sorted_distinct(numbers[values == _LEAST])
        if len(new):
            self._known[new] = [find(number) for number in new.tolist()]
            values = self._known[numbers]
        return values
