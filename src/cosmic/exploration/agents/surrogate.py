"""A surrogate model, after CubicML: rank many points by predicted loss, evaluate the most promising, refit.

Boosted trees predict the loss from the parameters and from cheap features (`Task.describe`: closed forms where the
evaluation is a simulation); a classifier predicts feasibility. It pays where an evaluation takes longer than a
prediction: simulations and measurements.

Wen et al., CubicML, arXiv 2409.04585.
"""

from __future__ import annotations

import numpy as np

from cosmic.errors import require
from cosmic.exploration.agent import Floats, Outcomes, Task, agents
from cosmic.exploration.learning.prospects import Prospects
from cosmic.exploration.learning.trees import Ensemble
from cosmic.psa.diagram import Indices
from cosmic.psa.encodings import coordinates

NEARNESS = 0.5
"""The share of its merit that a point loses to a chosen one that differs in one parameter; squared for two."""
GROWTH = 1.1
"""The model is refitted when this many times as many points are known."""


@agents.register("surrogate")
class SurrogateAgent:
    """Predicts losses, and proposes points with the best lower confidence bounds, far enough apart."""

    def __init__(
        self,
        task: Task,
        rng: np.random.Generator,
        *,
        candidates: int = 3000,
        members: int = 5,
        boldness: float = 2.0,
        batch: int = 0,
    ) -> None:
        require(candidates >= 10, "surrogate.candidates", candidates, "must be at least 10")
        require(members >= 2, "surrogate.members", members, "must be at least 2: their spread is the uncertainty")
        require(boldness >= 0, "surrogate.boldness", boldness, "must not be negative")
        require(batch >= 0, "surrogate.batch", batch, "must not be negative; 0 lets it depend on the trials")
        self.rng = rng
        self.batch = batch or max(4, task.trials // 15)
        self._boldness = boldness
        self._describe = task.describe
        self._encode = coordinates(task.space)
        start = min(2 * self.batch, 2 * len(task.space.parameters))
        self._prospects = Prospects(task, rng, candidates=candidates, start=start)
        self._history, self._moves = self._prospects.history, self._prospects.moves
        some = task.space.sample(1, np.random.default_rng(0))
        self._features = self._of(some)[:0]
        described = self._features.shape[1] - self._encode(some).shape[1]
        self._ensemble = Ensemble("surrogate", members, rng, described)
        self._learnt = 0

    def _of(self, rows: Indices) -> Floats:
        """Return the features of *rows*."""
        coded = self._encode(rows)
        return coded if self._describe is None else np.concatenate([coded, self._describe(rows)], axis=1)

    def tell(self, outcomes: Outcomes) -> None:
        """Remember the outcomes of some points."""
        known = len(self._history)
        self._prospects.tell(outcomes)
        if len(self._history) > known:
            new = self._of(self._history.rows[known:])
            self._features = np.concatenate([self._features, new])

    def ask(self, n: int) -> Indices:
        """Return *n* promising points; random ones until enough outcomes are known."""
        return self._prospects.ask(n, self._promising)

    def _promising(self, n: int) -> Indices:
        """Return up to *n* unknown points, the most promising first."""
        losses = self._prospects.losses()
        if len(self._history) >= GROWTH * self._learnt:
            self._learnt = len(self._history)
            self._ensemble.learn(self._features, losses, self._history.feasible)
        pool = self._prospects.pool(losses, 0.2, self._bred)
        return self._spread(pool, n) if len(pool) > n else pool

    def _bred(self, mothers: Indices, fathers: Indices) -> list[Indices]:
        """Return mutations of good points, and neighbours of their children."""
        rate = min(0.5, 2 / max(1, len(self._moves.open)))
        crossed = self._moves.crossover(mothers, fathers, self.rng)
        return [self._moves.mutate(mothers, self.rng, rate), self._moves.neighbour(crossed, self.rng, near=True)]

    def _spread(self, pool: Indices, n: int) -> Indices:
        """Return up to *n* of *pool*, the most promising first; points similar to a chosen one lose merit."""
        features = self._of(pool)
        mean, std = self._ensemble.predict(features)
        bound = mean - self._boldness * std  # the lower confidence bound
        merit = self._ensemble.feasibility(features) * (bound.max() - bound)
        chosen: list[int] = []
        for _ in range(min(n, len(pool))):
            best = int(merit.argmax())
            chosen.append(best)
            apart = (pool != pool[best]).sum(axis=1)
            merit = merit * (1 - NEARNESS ** np.maximum(apart, 1))
            merit[best] = -np.inf
        return pool[chosen]
