"""Exhaustive search: every valid point, in order."""

from __future__ import annotations

import numpy as np

from cosmic.exploration.agent import Outcomes, Task, agents
from cosmic.exploration.learning.novelty import Novelty
from cosmic.psa.diagram import Indices


@agents.register("exhaustive")
class ExhaustiveAgent:
    """Enumerates the set without points that it was told of; at the end it starts again."""

    batch = 4096
    learns = False

    def __init__(self, task: Task, rng: np.random.Generator) -> None:
        self.space = task.space
        self._novelty = Novelty(task.space, rng)
        self._next = 0
        self._again = False

    def ask(self, n: int) -> Indices:
        """Return the next *n* points."""
        found = np.empty((0, len(self.space.parameters)), dtype=np.intp)
        while len(found) < n:
            rows = self.space.listed(self._next, min(n - len(found), self.space.valid - self._next))
            self._next += len(rows)
            if not self._again:
                rows = rows[~self._novelty.known(rows)]
            found = np.concatenate((found, rows))
            if self._next == self.space.valid:
                self._next, self._again = 0, True
        return found

    def tell(self, outcomes: Outcomes) -> None:
        """Remember which points are known; nothing else is learnt."""
        self._novelty.note(outcomes.rows)
