"""Bounded search: every valid point but those that a bound shows to be worse than the best."""

from __future__ import annotations

import numpy as np

from cosmic.search.agent import Flags, Floats, Outcomes, Task, agents
from cosmic.search.agents.exhaustive import MAX_SORTED, ExhaustiveAgent, list_by_structure, number_structures
from cosmic.search.plateau import TIE_SHARE
from cosmic.search.space.diagram import Indices

ROUNDING = 1e-9
"""A bound and the loss that it bounds are computed in different orders."""
STRUCTURES_AT_ONCE = 8
"""Structures that are asked for at once: each costs as much as thousands of points, and the best may rule it out."""


@agents.register("bounded")
class BoundedAgent:
    """Asks for points, the most promising structure first, until no other can be on the plateau of the best.

    When it has nothing left to ask for, the best is proven, and so is how many designs are as good. A set too large to
    be sorted, or one without bounds, it lists as `exhaustive` does.
    """

    batch = 4096

    def __init__(self, task: Task, rng: np.random.Generator) -> None:
        self._task = task
        plain = task.bound is None or task.space.valid > MAX_SORTED
        self._plain = ExhaustiveAgent(task, rng) if plain else None
        self._points: Indices = np.empty((0, 0), dtype=np.intp)
        self._starts: Indices = np.empty(0, dtype=np.intp)
        """Where each structure begins among the points."""
        self._bounds: Floats = np.empty(0)
        """Of points that are not known yet; infinite for others."""
        self._told_rows: list[Indices] = []
        """Points that were told before any was asked for."""
        self._last_asked: Indices = np.empty((0, 0), dtype=np.intp)
        self._best = np.inf

    @property
    def finished(self) -> bool:
        """Whether every other point is known, or cannot be as good as the best."""
        return len(self._bounds) > 0 and not self._open().any()

    def ask(self, n: int) -> Indices:
        """Return up to *n* points that may be as good as the best, of the structures that promise most."""
        if self._plain is not None:
            return self._plain.ask(n)
        if not len(self._bounds):
            self._prepare()
        least = np.minimum.reduceat(self._bounds, self._starts)
        ends = np.append(self._starts[1:], len(self._bounds))
        chosen = np.argsort(least, kind="stable")[:STRUCTURES_AT_ONCE]
        positions = np.concatenate([np.arange(self._starts[structure], ends[structure]) for structure in chosen])
        positions = positions[self._open()[positions]][:n]
        self._bounds[positions] = np.inf
        self._last_asked = self._points[positions].astype(np.intp)
        return self._last_asked

    def tell(self, outcomes: Outcomes) -> None:
        """Learn the best loss so far, and which points are known."""
        if self._plain is not None:
            self._plain.tell(outcomes)
        elif not len(self._bounds):
            self._told_rows.append(outcomes.rows)
        elif not np.array_equal(outcomes.rows, self._last_asked):
            self._forget(outcomes.rows)
        runs = outcomes.losses[outcomes.feasible, 0]
        self._best = min(self._best, float(runs.min(initial=np.inf)))

    def _open(self) -> Flags:
        """Return which points are unknown and may be as good as the best."""
        most = self._best * (1 + TIE_SHARE) * (1 + ROUNDING)
        return np.asarray(np.isfinite(self._bounds) & (self._bounds <= most))

    def _prepare(self) -> None:
        space, bound = self._task.space, self._task.bound
        self._points = list_by_structure(space)
        self._starts = np.flatnonzero(np.diff(number_structures(space, self._points), prepend=-1))
        rows = self._points.astype(np.intp)
        self._bounds = np.zeros(len(rows)) if bound is None else bound(rows)  # None only where it lists plainly
        for rows_told in self._told_rows:
            self._forget(rows_told)

    def _forget(self, rows: Indices) -> None:
        """Ask no more for points that others have found: the base design, what a study knows."""
        for row in rows:
            self._bounds[(self._points == row).all(axis=1)] = np.inf
