"""Trials in columns that grow: a batch is added without touching those before it, and all of them are one value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.exploration.agent import Floats
from cosmic.exploration.problem import METRICS, Results
from cosmic.exploration.reasons import Reasons
from cosmic.psa.diagram import Indices

LEAST = 256
"""Rows that a column has room for at first."""


def index_type(most: int) -> np.dtype[Any]:
    """Return the smallest type of unsigned whole numbers that holds 0 to *most*.

    >>> [index_type(most).name for most in (0, 255, 256, 70_000)]
    ['uint8', 'uint8', 'uint16', 'uint32']
    """
    return np.dtype("u1" if most < 2**8 else "u2" if most < 2**16 else "u4")


class Column:
    """One column."""

    __slots__ = ("_room", "_used")

    def __init__(self, start: npt.NDArray[Any]) -> None:
        self._room, self._used = start, len(start)

    def extend(self, more: npt.NDArray[Any], room: int = LEAST) -> None:
        """Add values at the end; arrays that were given out before stay as they are.

        A column that has to grow gets *room* for so many values at least.
        """
        end = self._used + len(more)
        kind = np.promote_types(self._room.dtype, more.dtype)
        if end > len(self._room) or kind != self._room.dtype:
            grown = np.empty((max(room, end, 3 * self._used // 2), *self._room.shape[1:]), dtype=kind)
            grown[: self._used] = self._room[: self._used]
            self._room = grown
        self._room[self._used : end] = more
        self._used = end

    @property
    def values(self) -> npt.NDArray[Any]:
        """All values so far."""
        return self._room[: self._used]


class Columns:
    """Points and their results, column by column.

    A metric that no point has takes no room: its column is one NaN, seen many times.
    """

    def __init__(
        self,
        points: Indices,
        results: Results | None = None,
        room: int = LEAST,
        metrics: Sequence[str] = METRICS,
    ) -> None:
        """Begin with trials, which are not copied; without *results*, with none. There will be *room* for so many."""
        self._least = room
        some = Results.failed(0, "", metrics) if results is None else results
        self._names = tuple(some.columns)
        coded = some.coded
        self._points = Column(points if results is not None else points[:0])
        self._excess, self._counted = Column(some.excess), Column(some.counted)
        self._texts: dict[str, int] = {text: code for code, text in enumerate(coded.texts) if len(coded)}
        self._codes = Column(coded.codes)
        self._metrics = {name: Column(column) for name, column in some.columns.items() if _has_some(column)}

    def __len__(self) -> int:
        return len(self.points)

    @property
    def points(self) -> Indices:
        """Every point, in the smallest type of whole numbers."""
        return self._points.values

    def extend(self, points: npt.NDArray[Any], results: Results) -> None:
        """Add trials at the end."""
        before, room = len(self), self._least
        self._points.extend(points, room)
        self._excess.extend(results.excess, room)
        self._counted.extend(results.counted, room)
        self._codes.extend(results.coded.codes_in(self._texts), room)
        for name in self._names:
            column, known = results.columns[name], self._metrics.get(name)
            if known is None and _has_some(column):
                known = self._metrics[name] = Column(np.full(before, np.nan))
            if known is not None:
                known.extend(column, room)

    @property
    def results(self) -> Results:
        """All results; nothing is copied."""
        known = self._metrics
        absent: Floats = np.broadcast_to(np.nan, (len(self),))
        columns = {name: known[name].values if name in known else absent for name in self._names}
        reasons = Reasons(tuple(self._texts), self._codes.values)
        return Results(columns, self._excess.values, reasons, self._counted.values)


def _has_some(column: Floats) -> bool:
    """Return whether some value is a number; one that has been seen many times is looked at once."""
    seen = column[:1] if column.strides == (0,) else column
    return not np.isnan(seen).all()
