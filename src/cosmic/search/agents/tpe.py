"""TPE, the tree-structured Parzen estimator, through Optuna.

Bergstra, Bardenet, Bengio & Kégl, NeurIPS 2011; with constraints and several objectives as in Watanabe & Hutter, 2023,
and Ozaki et al., 2022. Each parameter is categorical; the excess of a point is a constraint.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cosmic.base.errors import require
from cosmic.search.agent import Task, agents
from cosmic.search.learning.optuna_sampler import OptunaAgent


@agents.register("tpe")
class TpeAgent(OptunaAgent):
    """Optuna's TPE: proposes values that are common among the good points and rare among the others."""

    faithful = False

    def __init__(
        self, task: Task, rng: np.random.Generator, *, candidates: int = 24, startup: int = 0, batch: int = 8
    ) -> None:
        require(candidates >= 1, "tpe.candidates", candidates, "must be at least 1")
        require(startup >= 0, "tpe.startup", startup, "must not be negative; 0 lets it depend on the trials")
        require(batch >= 1, "tpe.batch", batch, "must be at least 1")
        self._candidates = candidates
        self.startup = startup or max(10, min(task.trials // 10, 2 * len(task.space.parameters)))
        super().__init__(task, rng, "tpe", batch)

    def sampler(self, seed: int) -> Any:
        """Return a multivariate sampler that takes pending proposals for bad ones (the constant liar)."""
        older = not hasattr(self.optuna.trial.Trial, "set_constraint")  # Optuna 4 needs a function to read constraints
        options = {"constraints_func": lambda trial: trial.system_attrs["constraints"]} if older else {}
        return self.optuna.samplers.TPESampler(
            n_startup_trials=0,
            n_ei_candidates=self._candidates,
            seed=seed,
            multivariate=True,
            constant_liar=True,
            **options,
        )

    def distribution(self, size: int) -> Any:
        """Return a categorical distribution."""
        return self.optuna.distributions.CategoricalDistribution(range(size))

    def value(self, index: int) -> list[float]:
        """Return the losses; infinite for an infeasible point, whose excess is in its constraint."""
        losses: list[float] = np.nan_to_num(self.history.losses[index], nan=np.inf).tolist()
        return losses
