"""The best points so far: agents select parents from them, reinforce them, and restart from them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from cosmic.exploration.agent import Outcomes, Task
from cosmic.exploration.pareto import order


def generation_size(trials: int) -> int:
    """Return how many points a generation has: fewer for few trials, so that there are enough generations.

    >>> generation_size(300), generation_size(20_000)
    (15, 285)
    """
    return max(4, round(math.pow(trials, 0.7) / 3.6))


class Elite:
    """The best *size* points so far, best first, each once."""

    def __init__(self, task: Task, size: int) -> None:
        self.space = task.space
        self.size = size
        width = len(task.space.parameters)
        self.outcomes = Outcomes(np.empty((0, width), dtype=np.intp), np.empty((0, task.objectives)), np.empty(0))
        self.told = 0
        """How many outcomes were added."""

    def __len__(self) -> int:
        return len(self.outcomes)

    def add(self, outcomes: Outcomes) -> None:
        """Add *outcomes*, and keep the best *size* points."""
        self.told += len(outcomes)
        both = joined([self.outcomes, outcomes])
        last = {key: place for place, key in enumerate(self.space.keys(both.rows))}
        once = np.fromiter(last.values(), dtype=np.intp)
        best = once[order(both.losses[once], both.excess[once])][: self.size]
        self.outcomes = Outcomes(both.rows[best], both.losses[best], both.excess[best])


def joined(parts: Sequence[Outcomes]) -> Outcomes:
    """Return several outcomes as one, in their order."""
    return Outcomes(
        np.concatenate([each.rows for each in parts]),
        np.concatenate([each.losses for each in parts]),
        np.concatenate([each.excess for each in parts]),
    )
