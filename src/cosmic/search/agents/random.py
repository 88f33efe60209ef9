"""Uniform random search: the baseline that every other agent must beat."""

from __future__ import annotations

import numpy as np

from cosmic.search.agent import Outcomes, Task, agents
from cosmic.search.learning.agent_memory import Novelty
from cosmic.search.space.diagram import Indices


@agents.register("random")
class RandomAgent:
    """Draws valid points uniformly, without repetition."""

    batch = 4096
    learns = False

    def __init__(self, task: Task, rng: np.random.Generator) -> None:
        self.space = task.space
        self.rng = rng
        self._novelty = Novelty(task.space, rng)

    def ask(self, n: int) -> Indices:
        """Return *n* points drawn uniformly."""
        return self._novelty.fresh(self.space.sample(n, self.rng), tries=1)

    def tell(self, outcomes: Outcomes) -> None:
        """Remember which points are known; nothing else is learnt."""
        self._novelty.note(outcomes.rows)
