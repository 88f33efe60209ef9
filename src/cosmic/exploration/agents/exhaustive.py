"""Exhaustive search: every valid point, in order."""

from __future__ import annotations

import numpy as np

from cosmic.exploration.agent import Outcomes, Task, agents
from cosmic.exploration.learning.novelty import Novelty
from cosmic.psa.diagram import Indices


@agents.register("exhaustive")
class ExhaustiveAgent:
    """Lists the whole set, leaving out what it was told of by others; then it starts again from the beginning."""

    batch = 4096

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
        """Exhaustive search learns nothing but what is known."""
        self._novelty.note(outcomes.rows)
