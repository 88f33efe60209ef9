"""Uniform random search: the baseline that every other agent must beat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cosmic.psa.diagram import Indices
from cosmic.psa.space import ParameterSet
from cosmic.search.agent import agents


@agents.register("random")
@dataclass(frozen=True)
class RandomAgent:
    """Draws valid points, each as likely as any other."""

    space: ParameterSet
    rng: np.random.Generator

    def ask(self, n: int) -> Indices:
        """Return *n* points drawn independently."""
        return self.space.sample(n, self.rng)

    def tell(self, rows: Indices, outcomes: Sequence[float | None]) -> None:
        """Random search learns nothing."""
