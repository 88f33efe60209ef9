"""Bayesian optimisation: a Gaussian process says where an improvement is to be expected.

The ranks of points that can run are learnt by one process, and whether a point can run by
another. The next point is the one with the largest expected improvement times its chance to run, looked for inside
the valid set: among random points, moves from the best ones, and moves from the most promising of those. Further
points of a batch are chosen as if those before had turned out as predicted (the kriging believer: Ginsbourger, Le
Riche & Carraro, 2010): predictions stay and doubt shrinks around them.
"""

from __future__ import annotations

import numpy as np

from cosmic.errors import require
from cosmic.exploration.agent import Flags, Floats, Outcomes, Task, agents
from cosmic.exploration.extras import needs
from cosmic.exploration.learning.gaussian import Process, improvement
from cosmic.exploration.learning.prospects import Prospects
from cosmic.psa.diagram import Indices
from cosmic.psa.encodings import coordinates

CLIMBERS = 4
CLIMBS = 3
WAITING = 64
"""How many proposals that are still out are thought of."""


@agents.register("bayesian")
class BayesianAgent:
    """Proposes where a Gaussian process expects the most improvement among points that can run."""

    def __init__(
        self, task: Task, rng: np.random.Generator, *, candidates: int = 1200, points: int = 250, batch: int = 8
    ) -> None:
        require(candidates >= 10, "bayesian.candidates", candidates, "must be at least 10")
        require(points >= 10, "bayesian.points", points, "must be at least 10")
        require(batch >= 1, "bayesian.batch", batch, "must be at least 1")
        self._normal = needs("scipy.special", "search", "bayesian").ndtr
        self._losses, self._limits = Process("bayesian"), Process("bayesian")
        self.rng, self.batch = rng, batch
        self._candidates, self._points = candidates, points
        start = max(8, min(task.trials // 10, 2 * len(task.space.parameters)))
        self._prospects = Prospects(task, rng, candidates=candidates, start=start)
        self._history, self._moves = self._prospects.history, self._prospects.moves
        self._encode = coordinates(task.space)
        self._best = 0.0

    def tell(self, outcomes: Outcomes) -> None:
        """Remember what became of some points."""
        self._prospects.tell(outcomes)

    def ask(self, n: int) -> Indices:
        """Return the *n* most promising points; random ones until something is known."""
        return self._prospects.ask(n, self._promising)

    def _promising(self, n: int) -> Indices:
        """Return up to *n* unknown points, the most promising first."""
        losses = self._prospects.losses()
        feasible = self._history.feasible
        self._best = float(losses.min(initial=0.0, where=feasible))
        self._learn(losses, feasible)
        pool = self._prospects.pool(losses, 0.1, self._moved)
        if len(pool) <= n:
            return pool
        return self._spread(pool if self._prospects.listed else self._climb(pool), n)

    def _learn(self, losses: Floats, feasible: Flags) -> None:
        """Show the processes the latest points and the best of all others: the time goes with the cube."""
        history, coded = self._history, self._encode(self._history.rows)
        merit = losses.copy()
        merit[len(merit) - self._points // 2 :] = -np.inf
        shown = np.sort(np.argsort(merit, kind="stable")[: self._points])
        missed = np.where(feasible, -1.0, np.minimum(0.2 + history.excess, 1.0))  # 0 is as likely to run as not
        self._limits.learn(coded[shown], missed[shown])
        shown = shown[feasible[shown]]
        if len(shown):
            self._losses.learn(coded[shown], losses[shown], float(losses[shown].mean()))

    def _moved(self, some: Indices, others: Indices) -> list[Indices]:
        """Return what is a step away from good points, and what is a few changes away from them."""
        rate = min(0.5, 3 / max(1, len(self._moves.open)))
        return [self._moves.neighbour(some, self.rng, near=True), self._moves.mutate(others, self.rng, rate)]

    def _climb(self, pool: Indices) -> Indices:
        """Return *pool* and all that is one move away from its most promising points, and so on."""
        merit = self._merit(pool)
        for _ in range(CLIMBS):
            leaders = pool[np.argsort(-merit, kind="stable")[:CLIMBERS]]
            around = np.concatenate([self._moves.neighbourhood(row) for row in leaders])
            around = self._history.unknown(around)
            pool, merit = np.concatenate([pool, around]), np.concatenate([merit, self._merit(around)])
        pool = pool[np.argsort(-merit, kind="stable")[: self._candidates // 3]]
        return self._history.unknown(pool)

    def _merit(self, rows: Indices) -> Floats:
        """Return the expected improvement times the chance to run; the latter alone while nothing runs."""
        coded = self._encode(rows)
        chance = self._chance(coded)
        if not self._losses.known:
            return chance
        found = self._losses.at(coded)
        return chance * improvement(found.mean, found.doubt, self._best, self._normal)

    def _chance(self, coded: Floats) -> Floats:
        limits = self._limits.at(coded)
        return np.asarray(self._normal(-limits.mean / limits.doubt))

    def _spread(self, pool: Indices, n: int) -> Indices:
        """Return up to *n* of *pool*, each as if those before it, and those still out, were as expected."""
        waiting = list(self._history.waiting.values())[-WAITING:]
        coded = self._encode(np.array([*pool, *waiting]))
        process = self._losses if self._losses.known else self._limits
        beliefs, chance = process.at(coded), self._chance(coded)
        for place in range(len(pool), len(coded)):
            beliefs.believe(place)
        chosen: list[int] = []
        for _ in range(min(n, len(pool))):
            gain = improvement(beliefs.mean, beliefs.doubt, self._best, self._normal) * chance
            gain[[*chosen, *range(len(pool), len(coded))]] = -np.inf
            chosen.append(int(gain.argmax()))
            beliefs.believe(chosen[-1])
        return pool[chosen]
