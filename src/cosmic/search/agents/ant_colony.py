"""Ant colony optimisation: each value of each parameter has a pheromone, which the best points reinforce."""

from __future__ import annotations

import numpy as np

from cosmic.base.errors import require
from cosmic.search.agent import Floats, Outcomes, Task, agents
from cosmic.search.learning.agent_memory import Elite, Novelty, Weights, generation_size
from cosmic.search.space.diagram import Indices


@agents.register("ant_colony")
class AntColonyAgent:
    """A MAX-MIN ant system: an ant draws the values of a valid point in proportion to their pheromone.

    With each generation, a share *evaporation* of the pheromone evaporates, and the best points of all, *elite* of a
    generation, lay as much again, better ones more. It stays between *least* and 1, so that every value can be drawn.
    With probability *greediness* an ant takes the value with the most pheromone.

    Stützle & Hoos, Future Generation Computer Systems 16(8), 2000.
    """

    def __init__(
        self,
        task: Task,
        rng: np.random.Generator,
        *,
        greediness: float = 0.1,
        evaporation: float = 0.2,
        least: float = 0.05,
        elite: float = 0.1,
    ) -> None:
        require(0 <= greediness <= 1, "ant_colony.greediness", greediness, "must lie between 0 and 1")
        require(0 < evaporation <= 1, "ant_colony.evaporation", evaporation, "must be above 0 and at most 1")
        require(0 < least <= 1, "ant_colony.least", least, "must be above 0 and at most 1")
        require(0 < elite <= 100, "ant_colony.elite", elite, "must be above 0 and at most 100 generations")
        self.rng = rng
        self.batch = generation_size(task.trials)
        self.greediness, self.evaporation, self.least = greediness, evaporation, least
        self._elite = Elite(task, max(1, round(elite * self.batch)))
        self._novelty = Novelty(task.space, rng)
        self._values = Weights(task.space)
        self.pheromone = np.ones(self._values.size)

    def ask(self, n: int) -> Indices:
        """Return the points of *n* ants."""
        return self._novelty.fresh(self._values.walk(self._attraction(), n, self.rng))

    def _attraction(self) -> Floats:
        """Return the probability of each value: a mixture of the greedy choice and of the pheromone."""
        strongest = (self.pheromone == self._values.largest(self.pheromone)).astype(float)
        followed, greedy = self._values.shares(self.pheromone), self._values.shares(strongest)
        # above 0: where constraints exclude the strongest value, another one must be drawn
        return np.asarray(np.maximum((1 - self.greediness) * followed + self.greediness * greedy, 1e-12))

    def tell(self, outcomes: Outcomes) -> None:
        """Let pheromone evaporate, in proportion to the number of outcomes, and reinforce the best points."""
        self._novelty.note(outcomes.rows)
        self._elite.add(outcomes)
        best = self._elite.outcomes.rows
        amount = np.log(len(best) + 1) - np.log(np.arange(len(best)) + 1)
        laid = self._values.totals(best, amount / amount.sum())
        remaining_share = (1 - self.evaporation) ** (len(outcomes) / self.batch)
        self.pheromone = np.clip(remaining_share * self.pheromone + (1 - remaining_share) * laid, self.least, 1.0)
