"""Sets of integers as sorted arrays: by sorting, which is faster for these than NumPy's own functions."""

from __future__ import annotations

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


def distinct(table: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the distinct rows of *table*, as they first appear, where they do, and the number of each row.

    >>> [each.tolist() for each in distinct(np.array([[7, 1], [5, 2], [7, 1]]))]
    [[[7, 1], [5, 2]], [0, 1], [0, 1, 0]]
    """
    code = np.zeros(len(table), np.int64)
    for column in table.T:
        value, number = np.unique(column, return_inverse=True)
        _, code = np.unique(code * len(value) + number, return_inverse=True)
    _, first, code = np.unique(code, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return table[first[order]], first[order], place[code]


def is_in(values: Ints, known: Ints) -> Mask:
    """Return which *values* are among the ascending *known* ones.

    >>> is_in(np.array([3, 4, 9]), np.array([3, 5])).tolist()
    [True, False, False]
    """
    if not len(known):
        return np.zeros(len(values), bool)
    found: Mask = known[np.minimum(np.searchsorted(known, values), len(known) - 1)] == values
    return found
