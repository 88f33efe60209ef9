"""Bayesian optimisation: Gaussian processes predict where an improvement is likely.

One process learns the ranks of feasible points, another learns feasibility. The next point has the largest expected
improvement times its probability of being feasible, among valid candidates: random points, moves from the best ones,
and moves from the most promising of those. Further points of a batch are chosen as if the ones before had come out as
predicted (the kriging believer: Ginsbourger, Le Riche & Carraro, 2010): the mean stays, the variance shrinks. While
the process ranks points that it is not fitted to badly, candidates are taken at random instead.
"""

from __future__ import annotations

import numpy as np

from cosmic.base.errors import require
from cosmic.search.agent import Flags, Floats, Outcomes, Task, agents
from cosmic.search.learning.agent_memory import Prospects
from cosmic.search.learning.design_features import encode_coordinates
from cosmic.search.learning.prediction_quality import Learned
from cosmic.search.learning.surrogate_models import GaussianProcess, expected_improvement
from cosmic.search.optional_libraries import import_optional
from cosmic.search.space.diagram import Indices

CLIMBERS = 4
CLIMB_ROUNDS = 3
MAX_PENDING = 64
"""How many pending proposals the posterior is conditioned on."""


@agents.register("bayesian")
class BayesianAgent:
    """Proposes the points with the largest expected improvement, weighted by the probability of being feasible."""

    def __init__(
        self, task: Task, rng: np.random.Generator, *, candidates: int = 1200, points: int = 250, batch: int = 8
    ) -> None:
        require(candidates >= 10, "bayesian.candidates", candidates, "must be at least 10")
        require(points >= 10, "bayesian.points", points, "must be at least 10")
        require(batch >= 1, "bayesian.batch", batch, "must be at least 1")
        self._normal = import_optional("scipy.special", "search", "bayesian").ndtr
        self._losses, self._limits = GaussianProcess("bayesian"), GaussianProcess("bayesian")
        self.rng, self.batch = rng, batch
        self._candidates, self._points = candidates, points
        start = max(8, min(task.trials // 10, 2 * len(task.space.parameters)))
        self._prospects = Prospects(task, rng, candidates=candidates, start=start)
        self._history, self._moves = self._prospects.history, self._prospects.moves
        self._encode = encode_coordinates(task.space)
        self._best = 0.0
        self._proposals = self._fallbacks = 0

    @property
    def learned(self) -> Learned:
        """How good its process is, and how often it did without."""
        return Learned(self._losses.quality(), self._proposals, self._fallbacks)

    def tell(self, outcomes: Outcomes) -> None:
        """Remember the outcomes of some points."""
        self._prospects.tell(outcomes)

    def ask(self, n: int) -> Indices:
        """Return the *n* most promising points; random ones until enough outcomes are known."""
        return self._prospects.ask(n, self._propose)

    def _propose(self, n: int) -> Indices:
        """Return up to *n* unknown points, the most promising first."""
        losses = self._prospects.losses()
        feasible = self._history.feasible
        self._best = float(losses.min(initial=0.0, where=feasible))
        self._learn(losses, feasible)
        pool = self._prospects.pool(losses, 0.1, self._move_good_points)
        self._proposals += 1
        if len(pool) <= n:
            return pool
        quality = self._losses.quality()
        if quality is not None and not quality.good:
            self._fallbacks += 1
            return pool[self.rng.permutation(len(pool))[:n]]
        return self._spread(pool if self._prospects.listed else self._climb(pool), n)

    def _learn(self, losses: Floats, feasible: Flags) -> None:
        """Fit the processes to the latest points and the best of the others: the time is cubic in their number."""
        history, coded = self._history, self._encode(self._history.rows)
        merit = losses.copy()
        merit[len(merit) - self._points // 2 :] = -np.inf
        shown = np.sort(np.argsort(merit, kind="stable")[: self._points])
        missed = np.where(feasible, -1.0, np.minimum(0.2 + history.excess, 1.0))  # 0 is a probability of one half
        self._limits.learn(coded[shown], missed[shown])
        shown = shown[feasible[shown]]
        if len(shown):
            self._losses.learn(coded[shown], losses[shown], float(losses[shown].mean()))

    def _move_good_points(self, starts: Indices, parents: Indices) -> list[Indices]:
        """Return neighbours of good points, and mutations of good points."""
        rate = min(0.5, 3 / max(1, len(self._moves.open)))
        return [self._moves.neighbour(starts, self.rng, near=True), self._moves.mutate(parents, self.rng, rate)]

    def _climb(self, pool: Indices) -> Indices:
        """Return the best of *pool* and of the neighbourhoods of its most promising points, repeatedly."""
        merit = self._merit(pool)
        for _ in range(CLIMB_ROUNDS):
            leaders = pool[np.argsort(-merit, kind="stable")[:CLIMBERS]]
            around = np.concatenate([self._moves.neighbourhood(row) for row in leaders])
            around = self._history.unknown(around)
            pool, merit = np.concatenate([pool, around]), np.concatenate([merit, self._merit(around)])
        pool = pool[np.argsort(-merit, kind="stable")[: self._candidates // 3]]
        return self._history.unknown(pool)

    def _merit(self, rows: Indices) -> Floats:
        """Return the expected improvement times the probability of being feasible; that alone while nothing is."""
        coded = self._encode(rows)
        chance = self._chance(coded)
        if not self._losses.is_fitted:
            return chance
        posterior = self._losses.posterior(coded)
        return chance * expected_improvement(posterior.mean, posterior.std, self._best, self._normal)

    def _chance(self, coded: Floats) -> Floats:
        limits = self._limits.posterior(coded)
        return np.asarray(self._normal(-limits.mean / limits.std))

    def _spread(self, pool: Indices, n: int) -> Indices:
        """Return up to *n* of *pool*, each chosen as if the ones before it, and pending ones, came out as predicted."""
        waiting = list(self._history.waiting.values())[-MAX_PENDING:]
        coded = self._encode(np.array([*pool, *waiting]))
        process = self._losses if self._losses.is_fitted else self._limits
        posterior, chance = process.posterior(coded), self._chance(coded)
        for index in range(len(pool), len(coded)):
            posterior.condition_on(index)
        chosen: list[int] = []
        for _ in range(min(n, len(pool))):
            gain = expected_improvement(posterior.mean, posterior.std, self._best, self._normal) * chance
            gain[[*chosen, *range(len(pool), len(coded))]] = -np.inf
            chosen.append(int(gain.argmax()))
            posterior.condition_on(chosen[-1])
        return pool[chosen]
