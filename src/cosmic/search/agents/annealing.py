"""Simulated annealing: many chains of small moves at once, accepting worse points less and less."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from cosmic.base.errors import require
from cosmic.search.agent import Floats, Outcomes, Task, agents
from cosmic.search.learning.agent_memory import Elite, Novelty, generation_size
from cosmic.search.space.diagram import Indices


@agents.register("annealing")
class AnnealingAgent:
    """Each chain moves to a better proposal, and to a worse one with a probability that falls with the trials left.

        P(move) = min(1, (loss / proposed loss)^(1 / T)),    T from *hot* down to *cold*, evenly in its logarithm

    A chain moves to an infeasible proposal only if its own point has at least the same excess. A chain that has not
    improved for *patience* proposals restarts from one of the best points of all. With several objectives, each chain
    has random weights for their logarithms. Other settings: *chains* (0: by the trials); *changes*, how many parameters
    a proposal changes on average; *near*, the share of those changes that move a number by one step only.
    """

    def __init__(
        self,
        task: Task,
        rng: np.random.Generator,
        *,
        chains: int = 0,
        hot: float = 0.3,
        cold: float = 0.003,
        patience: int = 20,
        changes: float = 1.3,
        near: float = 0.5,
    ) -> None:
        require(chains >= 0, "annealing.chains", chains, "must be positive, or 0 to follow the trials")
        require(0 < cold <= hot < np.inf, "annealing.hot", hot, f"must be finite and at least cold = {cold}, above 0")
        require(patience >= 1, "annealing.patience", patience, "must be at least 1")
        require(1 <= changes <= 100, "annealing.changes", changes, "must lie between 1 and 100")
        require(0 <= near <= 1, "annealing.near", near, "must lie between 0 and 1")
        self.task, self.rng = task, rng
        self.batch = generation_size(task.trials)
        self.chains = chains or max(3, self.batch // 6)
        self.hot, self.cold, self.patience, self.changes, self.near = hot, cold, patience, changes, near
        self._novelty = Novelty(task.space, rng)
        self._elite = Elite(task, self.chains)
        self._rows = task.space.sample(self.chains, rng)
        self._losses = np.full((self.chains, task.objectives), np.nan)
        self._excess = np.full(self.chains, np.inf)
        self._started = np.zeros(self.chains, dtype=bool)
        self._stuck = np.zeros(self.chains, dtype=np.intp)
        self._weights = rng.dirichlet(np.ones(task.objectives), size=self.chains)
        self._unit = np.full(task.objectives, np.inf)
        self._turn = 0
        self._proposed: dict[Hashable, int] = {}

    def ask(self, n: int) -> Indices:
        """Return *n* proposals, from each chain in turn; a chain that has not started proposes a random point."""
        chains = self._next(n)
        going = self._started[chains]
        rows = self.task.space.sample(n, self.rng)
        times = 1 + self.rng.poisson(self.changes - 1, size=int(going.sum()))
        rows[going] = self._novelty.moves.change(self._rows[chains[going]], times, self.rng, self.near)
        rows = self._novelty.fresh(rows)
        self._proposed.update(zip(self.task.space.keys(rows), chains.tolist(), strict=True))
        return rows

    def _next(self, n: int) -> Indices:
        """Return the chains whose turn it is."""
        chains = (self._turn + np.arange(n)) % self.chains
        self._turn = (self._turn + n) % self.chains
        return chains

    def tell(self, outcomes: Outcomes) -> None:
        """Let each chain consider its proposals, one after the other; points of others go to the chain in turn."""
        self._novelty.note(outcomes.rows)
        self._elite.add(outcomes)
        sizes = np.abs(outcomes.losses[outcomes.feasible])
        self._unit = np.minimum(self._unit, np.where(sizes > 0, sizes, np.inf).min(axis=0, initial=np.inf))
        chains = np.array([self._proposed.pop(key, -1) for key in self.task.space.keys(outcomes.rows)], dtype=np.intp)
        chains[chains < 0] = self._next(int((chains < 0).sum()))
        order = np.argsort(chains, kind="stable")
        first = np.flatnonzero(np.diff(chains[order], prepend=-1))
        turn = np.arange(len(order)) - np.repeat(first, np.diff(first, append=len(order)))
        for round_number in range(int(turn.max(initial=-1)) + 1):
            self._consider(outcomes, order[turn == round_number], chains[order[turn == round_number]])
        self._restart()

    def _consider(self, outcomes: Outcomes, indices: Indices, chains: Indices) -> None:
        """Move each of *chains*, all different, that accepts its outcome at *indices*."""
        losses, excess = outcomes.losses[indices], outcomes.excess[indices]
        before = self._excess[chains]
        gain = np.where(excess == before, 0.0, np.where(excess < before, np.inf, -np.inf))
        both_feasible = np.flatnonzero((excess == 0) & (before == 0))
        gain[both_feasible] = self._height(self._losses[chains[both_feasible]], chains[both_feasible]) - self._height(
            losses[both_feasible], chains[both_feasible]
        )
        begun = self._started[chains]
        passed = min(1.0, self._elite.outcomes_told / self.task.trials)
        temperature = self.hot * (self.cold / self.hot) ** passed
        # Metropolis: accepted with probability min(1, exp(gain / T)), in logarithms; 1 - u is never 0.
        accepted = ~begun | (gain >= temperature * np.log(1 - self.rng.random(len(gain))))
        self._stuck[chains] = np.where(begun & (gain <= 0), self._stuck[chains] + 1, 0)
        moving = chains[accepted]
        self._rows[moving], self._losses[moving] = outcomes.rows[indices[accepted]], losses[accepted]
        self._excess[moving], self._started[moving] = excess[accepted], True

    def _height(self, losses: Floats, chains: Indices) -> Floats:
        """Return what a chain minimises: log-like in losses of either sign, since asinh x is near log 2x where x > 1.

        The unit is the least absolute loss so far, so that only 0 is below it.
        """
        unit = np.where(np.isfinite(self._unit), self._unit, 1.0)
        return np.asarray((np.arcsinh(losses / unit) * self._weights[chains]).sum(axis=1))

    def _restart(self) -> None:
        """Restart stuck chains from one of the best points; better ones are likelier."""
        stuck = np.flatnonzero(self._stuck >= self.patience)
        if len(stuck):
            best = self._elite.outcomes
            chosen = self.rng.integers(len(best), size=(len(stuck), 2)).min(axis=1)
            self._rows[stuck], self._losses[stuck] = best.rows[chosen], best.losses[chosen]
            self._excess[stuck], self._stuck[stuck] = best.excess[chosen], 0
