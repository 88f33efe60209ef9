"""Functions of few distinct combinations: worked out once for each combination, and looked up for every design.

A batch of designs has few distinct combinations of topology, algorithm, size, members and step. What depends on them
alone may be any Python, a plugin's too: it is called with plain names and numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, TypeGuard, cast

import numpy as np
import numpy.typing as npt

from cosmic.design.batch import Column, Label, Names, combined, numbered
from cosmic.numeric import Numeric, recorder

CODE_LIMIT = 2**19
"""Whole numbers from 0 to below it are part of a design's code as they are."""


class Combinations:
    """The distinct rows of some columns, and which of them each design has.

    >>> sizes = Combinations(Names(("ring", "switch"), np.array([0, 1, 0])), 4)
    >>> [each.tolist() for each in sizes.look_up(lambda name, size: (len(name), size))]
    [[4, 6, 4], [4.0, 4.0, 4.0]]
    """

    def __init__(self, *columns: Label | Numeric) -> None:
        self.columns = columns

    @cached_property
    def distinct(self) -> tuple[list[tuple[Any, ...]], npt.NDArray[np.intp] | None]:
        """The distinct combinations; and which one each design has, None if there is one for all."""
        length = max((len(column) for column in self.columns if _varies(column)), default=0)
        if not length:
            return [tuple(each if isinstance(each, str) else float(cast(float, each)) for each in self.columns)], None
        _, first, which = np.unique(_codes(self.columns, length), return_index=True, return_inverse=True)
        rows = zip(*(_values(column, first) for column in self.columns), strict=True)
        return list(rows), which.reshape(-1)

    def look_up(self, function: Callable[..., tuple[float, float]], *leading: str) -> tuple[Any, Any]:
        """Return each design's own of the two numbers that *function* gives for its combination.

        Its first arguments are *leading*; then come the names and numbers of the combination.
        """
        tape = recorder(*(column.codes if isinstance(column, Names) else column for column in self.columns))
        if tape is not None:
            found: tuple[Any, Any] = tape.look_up(function, leading, self.columns)
            return found
        rows, which = self.distinct
        values = [function(*leading, *row) for row in rows]
        if which is None:
            return values[0]
        first, second = (np.array(each)[which] for each in zip(*values, strict=True))
        return first, second


def _codes(columns: Sequence[Label | Numeric], length: int) -> npt.NDArray[np.int64]:
    """Return a code for each design; two designs have the same only if they agree in all *columns*.

    Whole numbers, as sizes nearly always are, become part of the code as they are; other values are numbered first.
    """
    return combined(filter(None, map(_part, columns)), length)


def _part(column: Label | Numeric) -> tuple[int, npt.NDArray[Any]] | None:
    """Return how many codes a column has room for, and the code of each design; None for a name that all share."""
    if not isinstance(column, Names | str):
        values = np.asarray(column)
        if np.all((values >= 0) & (values < CODE_LIMIT) & (values == np.floor(values))):
            return CODE_LIMIT, values.astype(np.int64)
    return numbered(column) if _varies(column) else None


def _varies(column: Label | Numeric) -> TypeGuard[Column]:
    """Return whether *column* has a value for each design, not one for all."""
    return isinstance(column, Names) or (isinstance(column, np.ndarray) and column.ndim > 0)


def _values(column: Label | Numeric, rows: npt.NDArray[np.intp]) -> list[Any]:
    """Return the values of the designs at *rows*."""
    if isinstance(column, Names) or (isinstance(column, np.ndarray) and column.ndim > 0):
        found: list[Any] = column[rows].tolist()
        return found
    return [column if isinstance(column, str) else float(column)] * len(rows)  # an array of no dimension is no key
