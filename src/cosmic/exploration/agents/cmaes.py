"""The covariance matrix adaptation evolution strategy, through Optuna: a cloud of points that moves and stretches.

Hansen & Ostermeier, Evolutionary Computation 9(2), 2001. Each parameter is a coordinate, its values evenly spaced in
their order; names have the order in which they are written, which makes this the agent for spaces of numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cosmic.errors import require
from cosmic.exploration.agent import Task, agents
from cosmic.exploration.extras import needs
from cosmic.exploration.learning.optuna_bridge import Bridge
from cosmic.exploration.pareto import order

WORST = 1e200
"""Above any loss: where what cannot run begins, by its excess."""


@agents.register("cmaes")
class CmaesAgent(Bridge):
    """CMA-ES on the indices of values: draws a population, moves towards its better half."""

    faithful = True

    def __init__(self, task: Task, rng: np.random.Generator, *, population: int = 0) -> None:
        rule = "must be at least 4; 0 lets it depend on the parameters"
        require(population == 0 or population >= 4, "cmaes.population", population, rule)
        needs("cmaes", "search", "cmaes")
        size = population or 4 + int(3 * np.log(max(1, len(task.space.parameters))))
        super().__init__(task, rng, "cmaes", size)

    def sampler(self, seed: int) -> Any:
        """Return a sampler that starts from the middle with a sixth of the range."""
        return self.optuna.samplers.CmaEsSampler(
            seed=seed, popsize=self.batch, n_startup_trials=0, warn_independent_sampling=False, with_margin=True
        )

    def distribution(self, size: int) -> Any:
        """Return whole numbers."""
        return self.optuna.distributions.IntDistribution(0, size - 1)

    def value(self, place: int) -> list[float]:
        """Return the loss; of several objectives, which share of all points known is ahead in the order of ranks."""
        history = self.history
        if history.losses.shape[1] > 1:
            ahead = np.flatnonzero(order(history.losses, history.excess) == place)[0]
            return [float(ahead) / len(history)]
        if history.excess[place] > 0:
            return [WORST * (1 + min(float(history.excess[place]), 1e6))]
        return [float(history.losses[place, 0])]
