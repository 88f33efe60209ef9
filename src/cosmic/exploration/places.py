"""Where points are in a list of trials: a hash table of numbers, a few bytes for each point.

A dictionary would take a hundred bytes a point, and a search of a million trials keeps several. Points are looked up
and added many at a time.
"""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

from cosmic.psa.diagram import Flags, Indices
from cosmic.psa.space import ParameterSet

Keys = npt.NDArray[np.uint64]
LEAST_SLOTS = 1024
FULLEST = 4
"""There are at least so many slots for each point: most are found at the first look."""
AT_ONCE = 65_536
"""How many points are turned into keys at a time."""


class Places:
    """The places of points: equal points have one place."""

    def __init__(self, space: ParameterSet) -> None:
        self._exact = space.raw < 2**62
        """Whether different points have different keys; otherwise points with equal keys are compared."""
        # A secret factor, so that nobody can write a study whose points all fall into the same slots.
        secret = np.frombuffer(os.urandom(8 * (1 + len(space.sizes))), dtype=np.uint64) | np.uint64(1)
        self._factor = secret[0]
        self._weights = _place_values(space.sizes) if self._exact else secret[1:]
        self._keys: Keys = np.empty(0, dtype=np.uint64)
        self._slots = np.full(LEAST_SLOTS, -1, dtype=np.int32)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def keys(self, points: Indices) -> Keys:
        """Return a number for each point: equal for equal points."""
        found = np.empty(len(points), dtype=np.uint64)
        for start in range(0, len(points), AT_ONCE):
            part = slice(start, start + AT_ONCE)
            found[part] = points[part].astype(np.uint64) @ self._weights
        return found

    def find(self, keys: Keys, rows: Indices, points: Indices) -> Indices:
        """Return the place of each of *rows*, which have these *keys*; -1 for an unknown one.

        *points* are all points that were added.
        """
        found = np.full(len(keys), -1, dtype=np.intp)
        left, slots = np.arange(len(keys)), self._first(keys)
        while len(left):
            there = self._slots[slots]
            taken = there >= 0
            hit = taken & (self._keys[there] == keys[left]) if self._count else taken
            if not self._exact and hit.any():
                hit[hit] = (points[there[hit]] == rows[left[hit]]).all(axis=1)
            found[left[hit]] = there[hit]
            on = taken & ~hit
            left, slots = left[on], self._next(slots[on])
        return found

    def first_of(self, keys: Keys, points: Indices) -> Flags:
        """Return which of *points* do not equal one before them."""
        ordered = np.sort(keys)
        if not (ordered[1:] == ordered[:-1]).any():  # as usual; to sort alone is far quicker than what follows
            return np.ones(len(keys), dtype=bool)
        _, first, which = np.unique(keys, return_index=True, return_inverse=True)
        earliest = first[which.reshape(-1)]
        found = earliest == np.arange(len(keys))
        if not self._exact:
            again = np.flatnonzero(~found)
            found[again] = (points[again] != points[earliest[again]]).any(axis=1)
        return np.asarray(found)

    def add(self, keys: Keys, new: Flags | None = None) -> None:
        """Add points at the next places; those that are not *new* keep the place that they have."""
        start, end = self._count, self._count + len(keys)
        if end > len(self._keys):
            grown = np.empty(max(end, 2 * len(self._keys), LEAST_SLOTS // FULLEST), dtype=np.uint64)
            grown[:start] = self._keys[:start]
            self._keys = grown
        self._keys[start:end] = keys
        self._count = end
        places = np.arange(start, end, dtype=np.int32)
        places = places if new is None else places[new]
        if FULLEST * end > len(self._slots):
            places = np.concatenate((self._slots[self._slots >= 0], places))
            self._slots = np.full(1 << (FULLEST * end - 1).bit_length(), -1, dtype=np.int32)
        self._enter(places)

    def _enter(self, places: npt.NDArray[np.int32]) -> None:
        slots = self._first(self._keys[places])
        while len(places):
            free = self._slots[slots] < 0
            self._slots[slots[free]] = places[free]
            on = self._slots[slots] != places  # another point has the slot, one of these or one before them
            places, slots = places[on], self._next(slots[on])

    def _first(self, keys: Keys) -> Indices:
        """Return the first slot to look at: the highest bits of a product."""
        bits = len(self._slots).bit_length() - 1
        return np.asarray((keys * self._factor) >> np.uint64(64 - bits)).astype(np.intp)

    def _next(self, slots: Indices) -> Indices:
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
