"""Replaces known points by new ones: an evaluation spent on a known design is lost."""

from __future__ import annotations

import numpy as np

from cosmic.exploration.places import Places
from cosmic.psa.diagram import Flags, Indices
from cosmic.psa.moves import Moves
from cosmic.psa.space import ParameterSet

LISTED = 100_000
"""Sets up to this size are enumerated when sampling finds nothing new in them."""


class Novelty:
    """Remembers which points are known, and replaces them by others."""

    def __init__(self, space: ParameterSet, rng: np.random.Generator, moves: Moves | None = None) -> None:
        self.space = space
        self.moves = moves or Moves(space)
        self._rng = rng
        self._seen = Places(space)
        self._listed: Indices | None = None

    def note(self, rows: Indices) -> None:
        """Mark *rows* as known."""
        self._seen.claim(rows)

    def known(self, rows: Indices) -> Flags:
        """Return which of *rows* are known."""
        return np.asarray(self._seen.find(rows) >= 0)

    def fresh(self, rows: Indices, tries: int = 3) -> Indices:
        """Return *rows* with known and repeated ones replaced by a neighbour, or else by a random point.

        A small set runs out of new points only once all of it is known.
        """
        found = rows.copy()
        stale = self._claim(found, np.arange(len(found)))
        for attempt in range(2 * tries):
            if not len(stale):
                return found
            near = attempt < tries
            found[stale] = (
                self.moves.neighbour(found[stale], self._rng) if near else self.space.sample(len(stale), self._rng)
            )
            stale = self._claim(found, stale)
        if self.space.valid <= LISTED:
            self._fill(found, stale)
        return found

    def _claim(self, rows: Indices, places: Indices) -> Indices:
        """Mark the points at *places* as known; return the places of those that were known already."""
        return np.asarray(places[~self._seen.claim(rows[places])])

    def _fill(self, found: Indices, stale: Indices) -> None:
        """Fill the stale places with the unknown points of a small set, in random order."""
        if self._listed is None:
            self._listed = self._rng.permutation(np.array(list(self.space.enumerate())))
        self._listed = self._listed[~self.known(self._listed)]
        taken = self._listed[: len(stale)]
        found[stale[: len(taken)]] = taken
        self.note(taken)
