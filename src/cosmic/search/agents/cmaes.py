"""CMA-ES, the covariance matrix adaptation evolution strategy, through Optuna.

Hansen & Ostermeier, Evolutionary Computation 9(2), 2001. Each parameter is a coordinate, and its values are evenly
spaced in their order. Names have the order in which they are written, so this agent suits spaces of numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cosmic.base.errors import require
from cosmic.search.agent import Task, agents
from cosmic.search.learning.optuna_sampler import OptunaAgent
from cosmic.search.objectives import pareto_order
from cosmic.search.optional_libraries import import_optional

INFEASIBLE_VALUE = 1e200
"""Above any loss: infeasible points have this value, scaled by their excess."""


@agents.register("cmaes")
class CmaesAgent(OptunaAgent):
    """CMA-ES on the indices of values."""

    faithful = True

    def __init__(self, task: Task, rng: np.random.Generator, *, population: int = 0) -> None:
        rule = "must be at least 4; 0 lets it depend on the parameters"
        require(population == 0 or population >= 4, "cmaes.population", population, rule)
        import_optional("cmaes", "search", "cmaes")
        size = population or 4 + int(3 * np.log(max(1, len(task.space.parameters))))
        super().__init__(task, rng, "cmaes", size)

    def sampler(self, seed: int) -> Any:
        """Return a sampler that starts at the centre with a sixth of the range."""
        return self.optuna.samplers.CmaEsSampler(
            seed=seed, popsize=self.batch, n_startup_trials=0, warn_independent_sampling=False, with_margin=True
        )

    def distribution(self, size: int) -> Any:
        """Return the integers below *size*."""
        return self.optuna.distributions.IntDistribution(0, size - 1)

    def value(self, index: int) -> list[float]:
        """Return the loss; with several objectives, the share of known points that rank before this one."""
        history = self.history
        if history.losses.shape[1] > 1:
            ahead = np.flatnonzero(pareto_order(history.losses, history.excess) == index)[0]
            return [float(ahead) / len(history)]
        if history.excess[index] > 0:
            return [INFEASIBLE_VALUE * (1 + min(float(history.excess[index]), 1e6))]
        return [float(history.losses[index, 0])]
