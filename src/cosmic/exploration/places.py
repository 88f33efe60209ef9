"""Where points are in a list: a dictionary while they are few, then a hash table of numbers.

An entry of a dictionary takes more than a hundred bytes, one of the table thirty, and a search of a million trials
keeps several. The table is looked up for many points at a time; for few of them, a dictionary is quicker.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt

from cosmic.exploration.columns import Column, index_type
from cosmic.psa.diagram import Flags, Indices
from cosmic.psa.space import ParameterSet

Keys = npt.NDArray[np.uint64]
FEW = 65_536
"""Up to so many points are in a dictionary."""
SPARE = 4
"""The table has at least so many slots for each point: most are found at the first look."""
AT_ONCE = 65_536
"""How many points are turned into keys at a time."""


class Places:
    """The places of points, which count from 0 in the order in which they are added; equal points have the first."""

    def __init__(self, space: ParameterSet) -> None:
        self._exact = space.raw < 2**62
        """Whether different points have different keys; otherwise points with equal keys are compared."""
        # A secret factor, so that nobody can write a study whose points all fall into the same slots.
        secret = np.frombuffer(os.urandom(8 * (1 + len(space.sizes))), dtype=np.uint64) | np.uint64(1)
        self._factor = secret[0]
        self._weights = _place_values(space.sizes) if self._exact else secret[1:]
        self._keys = Column(np.empty(0, dtype=np.uint64))
        kind = index_type(max(space.sizes, default=1) - 1)
        self._points = Column(np.empty((0, 0 if self._exact else len(space.sizes)), dtype=kind))
        self._few: dict[Hashable, int] | None = {}
        """The dictionary; None once there are too many."""
        self._slots = np.empty(0, dtype=np.int32)

    def __len__(self) -> int:
        return len(self._keys.values)

    def find(self, rows: Indices) -> Indices:
        """Return the place of each of *rows*; -1 for an unknown one."""
        keys = self._keys_of(rows)
        if self._few is not None:
            get = self._few.get
            return np.array([get(name, -1) for name in self._names(keys, rows)], dtype=np.intp)
        return self._look(keys, rows)

    def add(self, rows: Indices) -> bool:
        """Add points at the next places; one that is there already keeps its place. Return whether none was."""
        keys, start = self._keys_of(rows), len(self)
        self._keep(keys, rows)
        if self._few is not None:
            for place, name in enumerate(self._names(keys, rows), start):
                self._few.setdefault(name, place)
            return len(self._few) == len(self)
        new = self._first_of(keys, rows)
        if start:
            new &= self._look(keys, rows) < 0
        self._enter(start + np.flatnonzero(new))
        return bool(new.all())

    def claim(self, rows: Indices) -> Flags:
        """Add those of *rows* that are not there; return which these are, each point once."""
        keys = self._keys_of(rows)
        if self._few is not None:
            few, at = self._few, len(self)
            names = self._names(keys, rows)
            new = np.array([few.setdefault(name, at + place) == at + place for place, name in enumerate(names)], bool)
            if not new.all():  # places have no gaps
                few |= {names[place]: at + nth for nth, place in enumerate(np.flatnonzero(new).tolist())}
            self._keep(keys[new], rows[new])  # which makes a table of the dictionary where that is due
            return new
        new = self._look(keys, rows) < 0
        new[new] = self._first_of(keys[new], rows[new])
        start = len(self)
        self._keep(keys[new], rows[new])
        self._enter(np.arange(start, len(self)))
        return new

    def first_of(self, rows: Indices) -> Flags:
        """Return which of *rows* do not equal one before them."""
        return self._first_of(self._keys_of(rows), rows)

    # ------------------------------------------------------------------------------------------------ keys

    def _keys_of(self, rows: Indices) -> Keys:
        """Return a number for each point: equal for equal points."""
        if len(rows) <= AT_ONCE:
            return np.asarray(rows.astype(np.uint64) @ self._weights)
        return np.concatenate([self._keys_of(rows[at : at + AT_ONCE]) for at in range(0, len(rows), AT_ONCE)])

    def _names(self, keys: Keys, rows: Indices) -> Sequence[Hashable]:
        """Return what points are called in the dictionary."""
        return keys.tolist() if self._exact else [row.tobytes() for row in rows.astype(np.int64)]

    def _first_of(self, keys: Keys, rows: Indices) -> Flags:
        ordered = np.sort(keys)
        if not (ordered[1:] == ordered[:-1]).any():  # as usual; to sort alone is far quicker than what follows
            return np.ones(len(keys), dtype=bool)
        _, first, which = np.unique(keys, return_index=True, return_inverse=True)
        earliest = first[which.reshape(-1)]
        if not self._exact and not np.array_equal(rows, rows[earliest]):  # different points with one key: hardly ever
            named: dict[bytes, int] = {}
            places = [named.setdefault(row.tobytes(), place) for place, row in enumerate(rows)]
            earliest = np.array(places, dtype=np.intp)
        return np.asarray(earliest == np.arange(len(keys)))

    # ----------------------------------------------------------------------------------------------- table

    def _keep(self, keys: Keys, rows: Indices) -> None:
        """Keep points at the next places; the table is made or made larger where that is due."""
        self._keys.extend(keys)
        if not self._exact:
            self._points.extend(rows.astype(self._points.values.dtype))
        if len(self) <= FEW or SPARE * len(self) <= len(self._slots):
            return
        entered = self._slots[self._slots >= 0]
        if self._few is not None:
            entered, self._few = np.array(list(self._few.values()), dtype=np.int32), None
        self._slots = np.full(1 << (SPARE * len(self) - 1).bit_length(), -1, dtype=np.int32)
        self._enter(entered)

    def _look(self, keys: Keys, rows: Indices) -> Indices:
        found = np.full(len(keys), -1, dtype=np.intp)
        known, points = self._keys.values, self._points.values
        left, slots = np.arange(len(keys)), self._first_slot(keys)
        while len(left):
            there = self._slots[slots]
            taken = there >= 0
            hit = taken & (known[there] == keys[left])
            if not self._exact and hit.any():
                hit[hit] = (points[there[hit]] == rows[left[hit]]).all(axis=1)
            found[left[hit]] = there[hit]
            on = taken & ~hit
            left, slots = left[on], self._next_slot(slots[on])
        return found

    def _enter(self, places: npt.NDArray[np.signedinteger]) -> None:
        """Enter points, of which none equals another, into the table."""
        slots = self._first_slot(self._keys.values[places])
        while len(places):
            free = self._slots[slots] < 0
            self._slots[slots[free]] = places[free]
            on = self._slots[slots] != places  # another point has the slot, one of these or one before them
            places, slots = places[on], self._next_slot(slots[on])

    def _first_slot(self, keys: Keys) -> Indices:
        """Return the first slot to look at: the highest bits of a product."""
        bits = len(self._slots).bit_length() - 1
        return np.asarray((keys * self._factor) >> np.uint64(64 - bits)).astype(np.intp)

    def _next_slot(self, slots: Indices) -> Indices:
        return np.asarray((slots + 1) & (len(self._slots) - 1))


def _place_values(sizes: tuple[int, ...]) -> Keys:
    """Return the place value of each parameter in a mixed-radix number.

    >>> _place_values((10, 2, 5)).tolist()
    [10, 5, 1]
    """
    values = [1]
    for size in sizes[:0:-1]:
        values.append(values[-1] * size)
    return np.array(values[::-1][: len(sizes)], dtype=np.uint64)
