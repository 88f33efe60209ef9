"""The tree-structured Parzen estimator of Optuna: densities of good and of other points, and where they differ.

Bergstra, Bardenet, Bengio & Kégl, NeurIPS 2011; with constraints and several objectives as in Watanabe & Hutter, 2023,
and Ozaki et al., 2022. Each parameter is a choice without order; how far a point is from being able to run is a
constraint.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cosmic.errors import require
from cosmic.exploration.agent import Task, agents
from cosmic.exploration.learning.optuna_bridge import Bridge


@agents.register("tpe")
class TpeAgent(Bridge):
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
        """Return a sampler that takes parameters together, and proposals still out for bad ones."""
        older = not hasattr(self.optuna.trial.Trial, "set_constraint")  # Optuna 4 reads constraints only if told so
        more = {"constraints_func": lambda trial: trial.system_attrs["constraints"]} if older else {}
        return self.optuna.samplers.TPESampler(
            n_startup_trials=0,
            n_ei_candidates=self._candidates,
            seed=seed,
            multivariate=True,
            constant_liar=True,
            **more,
        )

    def distribution(self, size: int) -> Any:
        """Return a choice without order."""
        return self.optuna.distributions.CategoricalDistribution(range(size))

    def value(self, place: int) -> list[float]:
        """Return the losses; infinite ones where it cannot run, of which the constraint says how bad it is."""
        losses: list[float] = np.nan_to_num(self.history.losses[place], nan=np.inf).tolist()
        return losses
