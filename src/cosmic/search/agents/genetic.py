"""A genetic algorithm: elitism, tournament selection, crossover and mutation.

The population is an elite: the best of all points so far, sorted as NSGA-II sorts them, so that no good point is ever
lost to chance. Each parent wins a tournament, the larger the more the best are preferred. Crossover lets a child take
each parameter from either parent; mutation then changes a few, which brings back values that the elite has lost. Both
keep to the constraints: every child is a valid point.
"""

from __future__ import annotations

import numpy as np

from cosmic.base.errors import require
from cosmic.search.agent import Outcomes, Task, agents
from cosmic.search.learning.agent_memory import Elite, Novelty, generation_size
from cosmic.search.space.diagram import Indices

SMALL_BUDGET, MAX_LITTERS = 5_000, 4
"""Up to `SMALL_BUDGET` trials there are as many children at once as parents; then more in proportion, up to
`MAX_LITTERS` times as many."""


def litter_size(trials: int) -> int:
    """Return how many children are evaluated at once: a multiple of the population where trials are many.

    A design costs less in a larger batch, and there are generations enough: ten at least.

    >>> [litter_size(trials) / generation_size(trials) for trials in (300, 5_000, 10_000, 20_000, 1_000_000)]
    [1.0, 1.0, 2.0, 4.0, 4.0]
    """
    return round(generation_size(trials) * min(max(trials / SMALL_BUDGET, 1), MAX_LITTERS))


@agents.register("genetic")
class GeneticAgent:
    """NSGA-II on valid points: parents are the best of all points so far.

    Settings: *population*, the number of parents (0: as many as suit the trials); *tournament*, the size of a
    tournament; *crossover*, the share of children with two parents; *mutation*, how many parameters of a child change
    on average; *near*, the share of those changes that move a number by one step only.
    """

    def __init__(
        self,
        task: Task,
        rng: np.random.Generator,
        *,
        population: int = 0,
        tournament: int = 2,
        crossover: float = 0.7,
        mutation: float = 1.0,
        near: float = 0.5,
    ) -> None:
        require(population >= 0, "genetic.population", population, "must be positive, or 0 to follow the trials")
        require(1 <= tournament <= 1000, "genetic.tournament", tournament, "must lie between 1 and 1,000")
        require(0 <= crossover <= 1, "genetic.crossover", crossover, "must lie between 0 and 1")
        require(0 <= mutation <= 100, "genetic.mutation", mutation, "must lie between 0 and 100 changes")
        require(0 <= near <= 1, "genetic.near", near, "must lie between 0 and 1")
        self.rng = rng
        self.batch = litter_size(task.trials)
        self.population = population or generation_size(task.trials)
        self.tournament, self.crossover, self.mutation, self.near = tournament, crossover, mutation, near
        self._elite = Elite(task, self.population)
        self._novelty = Novelty(task.space, rng)

    def ask(self, n: int) -> Indices:
        """Return *n* children of the population, new ones where there are any; random points until it is full."""
        if self._elite.outcomes_told < self.population:
            return self._novelty.fresh(self._novelty.space.sample(n, self.rng))
        return self._novelty.fresh(self._children(n))

    def _children(self, n: int) -> Indices:
        """Return *n* children: crossed over in a share of them, copies of one parent in the rest, then all mutated."""
        rows, moves = self._elite.outcomes.rows, self._novelty.moves
        mothers, fathers = rows[self._parents(n)], rows[self._parents(n)]
        single = self.rng.random(n) >= self.crossover
        fathers[single] = mothers[single]  # of two equal parents, crossover makes a copy
        children = moves.crossover(mothers, fathers, self.rng)
        return moves.change(children, self.rng.poisson(self.mutation, size=n), self.rng, self.near)

    def _parents(self, n: int) -> Indices:
        """Return the winners of *n* tournaments by their places in the elite.

        Contestants are drawn with replacement. As the elite is sorted, best first, the lowest place wins.
        """
        return np.asarray(self.rng.integers(len(self._elite), size=(n, self.tournament)).min(axis=1))

    def tell(self, outcomes: Outcomes) -> None:
        """Add *outcomes* to the population, and keep the best of both."""
        self._novelty.note(outcomes.rows)
        self._elite.add(outcomes)
