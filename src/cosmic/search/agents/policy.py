"""A policy gradient (REINFORCE): probabilities of values, raised where their points were better than average."""

from __future__ import annotations

import numpy as np

from cosmic.base.errors import require
from cosmic.search.agent import Floats, Outcomes, Task, agents
from cosmic.search.learning.agent_memory import Elite, Novelty, Weights, generation_size, join_outcomes
from cosmic.search.objectives import pareto_ranks
from cosmic.search.space.diagram import Indices

MIN_PROBABILITY = 1e-9
"""The least probability: logarithms stay finite, and every valid point can be drawn."""


@agents.register("policy")
class PolicyAgent:
    """A logit for each value of each parameter; points are drawn in proportion to the exponential of their sum.

    For such a policy over valid points, the gradient of log p(x) is 1 for the values of x, minus its expectation.
    Weighted by an advantage with mean 0 (the baseline), the expectation cancels:

        logits += *rate* · (mean of advantage · [x has the value]  +  *entropy* · gradient of the entropy)

    The advantage follows from the rank within a generation, not from the loss, whose scale is not known. The best
    points of all, *memory* of a generation, are ranked with each generation, so that they are not forgotten.

    Williams, Machine Learning 8, 1992; the memory: Oh et al., ICML 2018.
    """

    def __init__(
        self, task: Task, rng: np.random.Generator, *, rate: float = 0.5, entropy: float = 0.02, memory: float = 0.3
    ) -> None:
        require(0 < rate <= 100, "policy.rate", rate, "must be above 0 and at most 100")
        require(0 <= entropy <= 1, "policy.entropy", entropy, "must lie between 0 and 1")
        require(0 <= memory <= 100, "policy.memory", memory, "must lie between 0 and 100 generations")
        self.rng = rng
        self.batch = generation_size(task.trials)
        self.rate, self.entropy = rate, entropy
        self._novelty = Novelty(task.space, rng)
        self._values = Weights(task.space)
        self._logits = np.zeros(self._values.size)
        self._best = Elite(task, round(memory * self.batch))
        self._waiting: list[Outcomes] = []

    @property
    def probabilities(self) -> Floats:
        """The probability of each value, parameter after parameter, ignoring constraints."""
        raised = np.exp(self._logits - self._values.largest(self._logits))
        return np.maximum(self._values.shares(raised), MIN_PROBABILITY)

    def ask(self, n: int) -> Indices:
        """Return *n* points drawn by the policy."""
        return self._novelty.fresh(self._values.walk(self.probabilities, n, self.rng))

    def tell(self, outcomes: Outcomes) -> None:
        """Learn once a generation is complete: an advantage is relative to other points."""
        self._novelty.note(outcomes.rows)
        self._waiting.append(outcomes)
        if sum(map(len, self._waiting)) >= self.batch:
            generation = join_outcomes(self._waiting)
            with_memory = join_outcomes([self._best.outcomes, generation])
            self._waiting.clear()
            self._best.add(generation)
            self._learn(with_memory.rows, rank_advantages(pareto_ranks(with_memory.losses, with_memory.excess)))

    def _learn(self, rows: Indices, advantage: Floats) -> None:
        probability = self.probabilities
        surprise = -np.log(probability)
        expected = self._values.sums(probability * surprise)
        towards = self._values.totals(rows, advantage) / len(rows)
        self._logits += self.rate * (towards + self.entropy * probability * (surprise - expected))


def rank_advantages(rank: Indices) -> Floats:
    """Return the advantage of each rank: logarithmic, as the best matter most; mean 0, standard deviation 1.

    Equal ranks have equal advantages; where all are equal, all advantages are 0.

    >>> rank_advantages(np.array([0, 1, 1, 3])).round(2).tolist()
    [1.64, -0.29, -0.29, -1.07]
    """
    _, which, number = np.unique(rank, return_inverse=True, return_counts=True)
    if len(number) == 1:
        return np.zeros(len(rank))
    quantile = ((number.cumsum() - number / 2) / len(rank))[which.reshape(-1)]
    worth = -np.log(quantile)
    return np.asarray((worth - worth.mean()) / worth.std())
