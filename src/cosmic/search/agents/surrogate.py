"""A surrogate model, after CubicML: rank many points by predicted loss, evaluate the most promising, refit.

Boosted trees predict the loss from the parameters, from arithmetic on them (`Task.arithmetic`: microbatches, bubble,
memory) and from cheap features (`Task.describe`: closed forms where the evaluation is a simulation); a classifier
predicts feasibility. Points that are known not to fit (`Task.fits`) are not proposed.

What is known before (`Task.prior`) chooses some of the first points, closed forms half of them, earlier studies a
third. Then it is what the model starts from: a linear trend in it is fitted first, and the trees learn the residual.
One that ranks the first trials badly is dropped.

It pays where an evaluation takes longer than a prediction: simulations and measurements. How well the model ranks
trials that it did not learn from is judged at each fit; while that is bad, it proposes mutations of good points and
random ones.

Wen et al., CubicML, arXiv 2409.04585.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cosmic.base.errors import require
from cosmic.search.agent import Floats, Outcomes, Task, agents
from cosmic.search.learning.agent_memory import Prospects
from cosmic.search.learning.design_features import encode_coordinates
from cosmic.search.learning.prediction_quality import Learned, Quality, measure_quality
from cosmic.search.learning.surrogate_models import Ensemble
from cosmic.search.space.diagram import Indices

NEARNESS_PENALTY = 0.5
"""The share of its merit that a point loses to a chosen one that differs in one parameter; squared for two."""
RANDOM_ONE_IN_PRIOR = 2
"""Of so many first points one is random, the others are chosen by a closed form."""
TAUGHT_ONE_IN = 3
"""Of so many first points one is chosen by what other studies taught, the others are random."""
JUDGED_TRIALS = 8
"""Trials that can run from which on what was known before them is judged."""
MIN_PRIOR_TAU = 0.3
"""Kendall's tau on the first trials below which what was known before is dropped."""
BROAD_POOL = 8
"""So many times as many candidates are ranked by what other studies taught as by the model: few of them are chosen."""
REFIT_GROWTH = 1.1
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
        self._describe, self._prior, self._starts = task.describe, task.prior, task.starts
        coded, worked_out = encode_coordinates(task.space), task.arithmetic
        self._encode: Callable[[Indices], Floats] = (
            coded if worked_out is None else lambda rows: np.concatenate([coded(rows), worked_out(rows)], axis=1)
        )
        start = min(2 * self.batch, 2 * len(task.space.parameters))
        self._prospects = Prospects(task, rng, candidates=candidates, start=start)
        self._history, self._moves = self._prospects.history, self._prospects.moves
        sample = task.space.sample(1, np.random.default_rng(0))
        self._features = self._features_of(sample)[:0]
        described_width = self._features.shape[1] - self._encode(sample).shape[1]
        self._new: Callable[[], Ensemble] = lambda: Ensemble("surrogate", members, rng, described_width)
        self._ensemble = self._new()
        self._learnt = 0
        self._start = start
        self._trusted = self._helps = True
        self._foreseen: Floats = np.empty(0)
        self._first: Quality | None = None
        self._proposals = self._fallbacks = 0

    @property
    def learned(self) -> Learned:
        """How good its model is, and how often it did without."""
        return Learned(
            self._ensemble.quality, self._proposals, self._fallbacks, tuple(filter(None, [self._prior_text()]))
        )

    def _prior_text(self) -> str:
        """Return how well what was known before ranks the first trials, in words; empty where that is not known."""
        if self._first is None:
            return ""
        verdict = "" if self._trusted else ": it is dropped"
        return f"What was known before the first trial ranks the first ones: {self._first.in_words()}{verdict}."

    def _assess_prior(self) -> None:
        """Judge what was known before by the first trials, once: it was made before them, so all are held out."""
        runs = self._history.feasible
        if self._prior is None or self._first is not None or runs.sum() < JUDGED_TRIALS or len(runs) < self._start:
            return  # of few trials tau says little
        self._first = measure_quality(self._foreseen[runs], self._history.losses[runs, 0])
        self._trusted = self._first is None or self._first.tau >= MIN_PRIOR_TAU

    def _features_of(self, rows: Indices) -> Floats:
        """Return the features of *rows*."""
        features = [self._encode(rows)]
        if self._describe is not None:
            features.append(self._describe(rows))
        if self._prior is not None:
            features.append(self._prior(rows)[:, None])
        return np.concatenate(features, axis=1)

    def _mask_prior(self, features: Floats) -> Floats:
        """Return *features* as the model sees them: without what was known before if that does not help."""
        if self._prior is None or (self._trusted and self._helps):
            return features
        return np.concatenate([features[:, :-1], np.zeros((len(features), 1))], axis=1)

    def _learn(self, losses: Floats) -> None:
        """Fit the model; what other studies taught is part of it only while it ranks held-out trials better so."""
        feasible = self._history.feasible
        self._learnt, self._helps = len(losses), True
        self._ensemble.learn(self._mask_prior(self._features), losses, feasible)
        if self._prior is None or not self._trusted or self._describe is not None:
            return
        self._helps, without = False, self._new()
        without.learn(self._mask_prior(self._features), losses, feasible)
        judged = self._ensemble.quality, without.quality
        self._helps = judged[0] is None or judged[1] is None or judged[0].tau >= judged[1].tau
        if not self._helps:
            self._ensemble = without

    def tell(self, outcomes: Outcomes) -> None:
        """Remember the outcomes of some points."""
        seen_count = len(self._history)
        self._prospects.tell(outcomes)
        if len(self._history) > seen_count:
            new = self._features_of(self._history.rows[seen_count:])
            self._features = np.concatenate([self._features, new])
            if self._prior is not None:
                self._foreseen = np.concatenate([self._foreseen, new[:, -1]])
        self._assess_prior()

    def ask(self, n: int) -> Indices:
        """Return *n* promising points; until enough outcomes are known, by what was known before, or random ones."""
        prior = self._prior
        if prior is not None and self._trusted and len(self._history) < self._start:
            return self._prospects.ask(n, lambda most: self._propose_by_prior(most, prior), least=0)
        return self._prospects.ask(n, self._propose)

    def _propose_by_prior(self, n: int, prior: Callable[[Indices], Floats]) -> Indices:
        """Return up to *n* unknown points that are best by what was known before, far enough apart.

        The others of a batch are random: they tell whether that was right.
        """
        taught, best = self._describe is None, self._prospects
        pool = best.broad(BROAD_POOL) if taught else best.pool(best.losses(), 0.2, self._breed)
        if self._starts is not None:
            pool = self._history.unknown(np.concatenate([self._starts, pool]))
        rank = np.empty(len(pool))
        rank[np.argsort(prior(pool), kind="stable")] = np.arange(len(pool))
        most = max(1, n // TAUGHT_ONE_IN) if taught else n - n // RANDOM_ONE_IN_PRIOR
        return self._apart(pool, np.exp(-rank / (2 * n)), most)

    def _propose(self, n: int) -> Indices:
        """Return up to *n* unknown points, the most promising first."""
        losses = self._prospects.losses()
        if len(losses) >= REFIT_GROWTH * self._learnt:
            self._learn(losses)
        pool = self._prospects.pool(losses, 0.2, self._breed)
        self._proposals += 1
        quality = self._ensemble.quality
        if quality is not None and not quality.good:
            self._fallbacks += 1
            return pool[self.rng.permutation(len(pool))[:n]]
        return self._spread(pool, n) if len(pool) > n else pool

    def _breed(self, mothers: Indices, fathers: Indices) -> list[Indices]:
        """Return mutations of good points, and neighbours of their children."""
        rate = min(0.5, 2 / max(1, len(self._moves.open)))
        crossed = self._moves.crossover(mothers, fathers, self.rng)
        return [self._moves.mutate(mothers, self.rng, rate), self._moves.neighbour(crossed, self.rng, near=True)]

    def _spread(self, pool: Indices, n: int) -> Indices:
        """Return up to *n* of *pool*, the most promising first; points similar to a chosen one lose merit."""
        features = self._mask_prior(self._features_of(pool))
        mean, std = self._ensemble.predict(features)
        bound = mean - self._boldness * std  # the lower confidence bound
        return self._apart(pool, self._ensemble.feasibility(features) * (bound.max() - bound), n)

    @staticmethod
    def _apart(pool: Indices, merit: Floats, n: int) -> Indices:
        """Return up to *n* of *pool*, the most merit first; points similar to a chosen one lose merit."""
        chosen: list[int] = []
        for _ in range(min(n, len(pool))):
            best = int(merit.argmax())
            chosen.append(best)
            apart = (pool != pool[best]).sum(axis=1)
            merit = merit * (1 - NEARNESS_PENALTY ** np.maximum(apart, 1))
            merit[best] = -np.inf
        return pool[chosen]
