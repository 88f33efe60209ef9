"""Tables of what few combinations of names and numbers decide, filled as combinations are met.

A combination is a row: its numbers, with the codes of names. The functions of it that programs look up (`Lookup`) each
have two columns of numbers. Programs of one process share tables; the C interpreter reads them where they lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.recording.tape import Known, Lookup

MOST_KEYS = 12
"""Columns of a combination, at most (native/program.c)."""
FIRST_ROOM = 256
MOST_ROWS = 2**20
"""Rows after which a table starts anew: numbers that are no sizes have no end."""


class Table:
    """The combinations of some columns that were met so far."""

    def __init__(self, known: Known) -> None:
        self.known = known
        self.keys = sum(not isinstance(each, str) for each in known)
        self.lookups: dict[Lookup, int] = {}
        self.places: dict[tuple[float, ...], int] = {}
        self.version = 0
        """Raised when the arrays move."""
        self._failed: dict[tuple[int, int], Exception] = {}
        self._make(FIRST_ROOM)

    def _make(self, room: int) -> None:
        self.room = room
        self.rows = np.zeros((room, max(1, self.keys)))
        self.slots = np.full((4 * room, 2), -1, dtype=np.int64)
        self.values = np.full((2 * max(1, len(self.lookups)), room), np.nan)
        self.version += 1

    def column(self, lookup: Lookup) -> int:
        """Return where the first number of a function is kept."""
        place = self.lookups.get(lookup)
        if place is None:
            place = self.lookups[lookup] = len(self.lookups)
            kept = self.values
            self.values = np.full((2 * len(self.lookups), self.room), np.nan)
            self.values[: 2 * place] = kept[: 2 * place]
            self.version += 1
            for row, key in enumerate(self.places):
                self._fill(row, key, lookup)
        return 2 * place

    def add(self, keys: npt.NDArray[np.float64]) -> None:
        """Add combinations, and work out what they decide."""
        for given in keys.tolist():
            key = tuple(each + 0.0 for each in given)
            if key in self.places:
                continue
            if len(self.places) >= MOST_ROWS:
                self.places.clear()
                self._failed.clear()
                self._make(FIRST_ROOM)
            if len(self.places) == self.room:
                self._grow()
            row = self.places[key] = len(self.places)
            self.rows[row, : self.keys] = key
            self._place(row, key)
            for lookup in self.lookups:
                self._fill(row, key, lookup)

    def _grow(self) -> None:
        rows, values = self.rows, self.values
        self._make(2 * self.room)
        self.rows[: len(rows)], self.values[:, : values.shape[1]] = rows, values
        for key, row in self.places.items():
            self._place(row, key)

    def _place(self, row: int, key: tuple[float, ...]) -> None:
        found, mask = hashed(key), len(self.slots) - 1
        slot = found & mask
        while self.slots[slot, 1] >= 0:
            slot = (slot + 1) & mask
        self.slots[slot] = found - (found >> 63 << 64), row  # as a signed number

    def _fill(self, row: int, key: tuple[float, ...], lookup: Lookup) -> None:
        place = 2 * self.lookups[lookup]
        try:
            self.values[place : place + 2, row] = lookup.function(*lookup.leading, *self.arguments(key))
        except Exception as error:
            self._failed[row, place] = error

    def arguments(self, key: Sequence[float]) -> list[Any]:
        """Return the names and numbers of a combination."""
        left = iter(key)
        return [
            each if isinstance(each, str) else each[int(next(left))] if isinstance(each, tuple) else next(left)
            for each in self.known
        ]

    def places_of(self, keys: npt.NDArray[np.float64]) -> npt.NDArray[np.intp]:
        """Return the rows of combinations, new ones too."""
        distinct, which = np.unique(keys + 0.0, axis=0, return_inverse=True)
        self.add(distinct)
        rows = np.array([self.places[tuple(each)] for each in distinct.tolist()], dtype=np.intp)
        return rows[which.reshape(-1)]

    def value(self, column: int, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.float64]:
        """Return one number for each of some rows."""
        found: npt.NDArray[np.float64] = self.values[column, rows]
        for row in np.unique(rows[np.isnan(found)]).tolist():
            self.explain(row, column)
        return found

    def explain(self, row: int, column: int) -> None:
        """Raise what went wrong when a number was worked out."""
        if error := self._failed.get((row, column - column % 2)):
            raise error


_TABLES: dict[Known, Table] = {}


def table_of(known: Known) -> Table:
    """Return the table of combinations with such names."""
    if known not in _TABLES:
        _TABLES[known] = Table(known)
    return _TABLES[known]


def forget_tables() -> None:
    """Begin all tables anew."""
    _TABLES.clear()


MASK = 2**64 - 1


def hashed(key: Sequence[float]) -> int:
    """Return the hash of a combination, as native/program.c computes it."""
    found = 0x9E3779B97F4A7C15
    for bits in np.array(key, dtype=np.float64).view(np.uint64).tolist():
        found = ((found ^ (bits ^ (bits >> 29))) * 0xFF51AFD7ED558CCD) & MASK
        found ^= found >> 32
    return found
