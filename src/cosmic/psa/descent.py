"""Ways down a decision diagram as flat tables: many rows go down a level with two look-ups.

A cell stands for a node, a goal and a wanted value. It holds the value that is taken there, and the first cell of the
node below. Goals are what a way down is for: *this value at that level*, or nothing in particular.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Descent:
    """The tables of all levels, one after the other."""

    widths: Indices
    """Per level: how many values it has."""
    taken: npt.NDArray[Any]
    """Per cell: the value that is taken, or what is asked about it."""
    below: Indices
    """Per cell: the first cell of the node to which that value leads."""

    def go(self, wanted: Indices, goals: Indices | None = None) -> npt.NDArray[Any]:
        """Return what is taken for each row of *wanted* values on its way to one of the *goals*, or to the only one."""
        cells = wanted.T.copy() if goals is None else np.multiply.outer(self.widths, goals) + wanted.T
        for level in range(1, len(cells)):
            cells[level] += self.below.take(cells[level - 1])
        return self.taken.take(cells).T


def descent(children: Sequence[Indices], choices: Sequence[Indices], taken: Sequence[Any] = ()) -> Descent:
    """Return the ways down a diagram, of which *choices* has per level, for each node, goal and wanted value: a value.

    A value that leads nowhere is on no way to its goal; what is below it does not matter. Where *taken* is given, rows
    become that on their way instead of the values.
    """
    widths = np.array([table.shape[1] for table in children], dtype=np.intp)
    starts = np.cumsum([0, *(choice.size for choice in choices)])
    below = []
    for level, (table, choice) in enumerate(zip(children, choices, strict=True)):
        last = level + 1 == len(children)
        size = 0 if last else choices[level + 1][0].size
        node = np.maximum(table[np.arange(len(table))[:, None, None], choice], 0)
        below.append((0 if last else starts[level + 1]) + node * size)
    flat = [np.concatenate([each.reshape(-1) for each in parts]) for parts in (taken or choices, below)]
    return Descent(widths, *flat)


def nearest(possible: Flags) -> Indices:
    """Return for each wanted value (the last axis) the possible one whose index is nearest; 0 where none is.

    >>> nearest(np.array([[False, True, False, False, True]])).tolist()
    [[1, 1, 1, 4, 4]]
    """
    values, far = np.arange(possible.shape[-1]), 3 * possible.shape[-1]
    below = np.maximum.accumulate(np.where(possible, values, -far), axis=-1)
    above = np.minimum.accumulate(np.where(possible, values, far)[..., ::-1], axis=-1)[..., ::-1]
    found = np.where(values - below <= above - values, below, above)
    return np.where(possible.any(axis=-1, keepdims=True), found, 0)
