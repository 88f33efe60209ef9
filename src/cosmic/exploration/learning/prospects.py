"""What agents with a model share: all that they were told, candidates to rank, and proposals that are new."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cosmic.exploration.agent import Floats, Outcomes, Task
from cosmic.exploration.learning.history import History, targets
from cosmic.exploration.learning.novelty import Novelty
from cosmic.psa.diagram import Indices
from cosmic.psa.moves import Moves


class Prospects:
    """Asks a model which candidates are promising, once enough is known for one."""

    def __init__(self, task: Task, rng: np.random.Generator, *, candidates: int, start: int) -> None:
        self.space, self.rng = task.space, rng
        self.moves = Moves(task.space)
        self.history = History(task.space, task.objectives)
        self._novelty = Novelty(task.space, rng, self.moves)
        self._candidates, self._start = candidates, start
        self._everything = np.array(list(task.space.enumerate())) if task.space.valid <= candidates else None

    @property
    def listed(self) -> bool:
        """Whether every point of the set is a candidate."""
        return self._everything is not None

    def tell(self, outcomes: Outcomes) -> None:
        """Remember what became of some points."""
        self.history.add(outcomes)
        self._novelty.note(outcomes.rows)

    def ask(self, n: int, promising: Callable[[int], Indices]) -> Indices:
        """Return up to *n* points that are *promising*, and random ones for the rest; none that is known."""
        rows = self.space.sample(n, self.rng)
        if n and len(self.history) >= self._start:
            chosen = promising(n)
            rows[: len(chosen)] = chosen
        rows = self._novelty.fresh(rows)
        self.history.proposed(rows)
        return rows

    def losses(self) -> Floats:
        """Return one number for each point told of, to be made small; infinite for those that cannot run."""
        feasible = self.history.feasible
        found = np.full(len(self.history), np.inf)
        if feasible.any():
            found[feasible] = targets(self.history.losses[feasible], self.rng)
        return found

    def pool(self, losses: Floats, share: float, bred: Callable[[Indices, Indices], list[Indices]]) -> Indices:
        """Return unknown points to rank: all, or random ones and what is *bred* from good ones, in pairs.

        They are drawn from the best *share* of those that can run, the better the more often.
        """
        if self._everything is not None:
            return self.history.unknown(self._everything)
        third = self._candidates // 3
        found = [self.space.sample(third, self.rng)]
        best = self.history.rows[np.argsort(losses, kind="stable")[: np.isfinite(losses).sum()]]
        if len(best):
            parents = best[: max(5, int(share * len(best)))]
            found += bred(*(parents[self._favouring(len(parents), third)] for _ in range(2)))
        return self.history.unknown(np.concatenate(found))

    def _favouring(self, size: int, n: int) -> Indices:
        """Return *n* places below *size*, the smaller the more often."""
        return np.asarray((size * self.rng.random(n) ** 2).astype(np.intp))
