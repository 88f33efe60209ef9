"""What model-based agents share: the history, candidates to rank, and new proposals."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cosmic.exploration.agent import Floats, Outcomes, Task
from cosmic.exploration.learning.history import History, targets
from cosmic.exploration.learning.novelty import Novelty
from cosmic.psa.diagram import Indices
from cosmic.psa.moves import Moves

TRIES = 50
"""How often points are drawn again if too few of them fit."""


class Prospects:
    """Proposes candidates that a model finds promising, once enough points are known."""

    def __init__(self, task: Task, rng: np.random.Generator, *, candidates: int, start: int) -> None:
        self.space, self.rng = task.space, rng
        self.moves = Moves(task.space)
        self.history = History(task.space, task.objectives)
        self._novelty = Novelty(task.space, rng, self.moves)
        self._candidates, self._start = candidates, start
        self._fits = task.fits
        self._everything = np.array(list(task.space.enumerate())) if task.space.valid <= candidates else None

    @property
    def listed(self) -> bool:
        """Whether every point of the set is a candidate."""
        return self._everything is not None

    def tell(self, outcomes: Outcomes) -> None:
        """Remember the outcomes of some points."""
        self.history.add(outcomes)
        self._novelty.note(outcomes.rows)

    def ask(self, n: int, promising: Callable[[int], Indices], least: int | None = None) -> Indices:
        """Return *n* new points: *promising* ones first, random ones for the rest.

        Nothing is promising before *least* points are known, by default as many as were said.
        """
        rows = self._sample(n)
        if n and len(self.history) >= (self._start if least is None else least):
            chosen = promising(n)
            rows[: len(chosen)] = chosen
        rows = self._novelty.fresh(rows)
        self.history.proposed(rows)
        return rows

    def losses(self) -> Floats:
        """Return one target to minimise for each known point; infinite for infeasible ones."""
        feasible = self.history.feasible
        found = np.full(len(self.history), np.inf)
        if feasible.any():
            found[feasible] = targets(self.history.losses[feasible], self.rng)
        return found

    def pool(self, losses: Floats, share: float, bred: Callable[[Indices, Indices], list[Indices]]) -> Indices:
        """Return new candidates: all of a small set, else random points and what *bred* makes of pairs of good points.

        Good points are drawn from the best *share* of the feasible ones, better ones more often.
        """
        if self._everything is not None:
            return self._fitting(self.history.unknown(self._everything))
        third = self._candidates // 3
        found = [self._sample(third)]
        best = self.history.rows[np.argsort(losses, kind="stable")[: np.isfinite(losses).sum()]]
        if len(best):
            parents = best[: max(5, int(share * len(best)))]
            found += bred(*(parents[self._favouring(len(parents), third)] for _ in range(2)))
        return self._fitting(self.history.unknown(np.concatenate(found)))

    def broad(self, times: int) -> Indices:
        """Return new candidates of all the set: all of a small one, else so many *times* the usual number."""
        if self._everything is not None:
            return self._fitting(self.history.unknown(self._everything))
        return self._fitting(self.history.unknown(self.space.sample(times * self._candidates, self.rng)))

    def _sample(self, n: int) -> Indices:
        """Return *n* random points, of which as many fit as a few draws find."""
        rows = self.space.sample(n, self.rng)
        if self._fits is None or not n:
            return rows
        for _ in range(TRIES):
            places = np.flatnonzero(~self._fits(rows))
            if not len(places):
                break
            rows[places] = self.space.sample(len(places), self.rng)
        return rows

    def _fitting(self, rows: Indices) -> Indices:
        """Return those of *rows* that fit; all of them where none does, as then it matters by how much they do not."""
        if self._fits is None or not len(rows):
            return rows
        some = rows[self._fits(rows)]
        return some if len(some) else rows

    def _favouring(self, size: int, n: int) -> Indices:
        """Return *n* places below *size*, small ones more often."""
        return np.asarray((size * self.rng.random(n) ** 2).astype(np.intp))
