"""Optuna's samplers as agents: asked and told in memory, their wishes repaired into the valid set."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from cosmic.exploration.agent import Outcomes, Task
from cosmic.exploration.extras import needs
from cosmic.exploration.learning.history import History
from cosmic.exploration.learning.novelty import Novelty
from cosmic.psa.diagram import Indices

MOST = 1e6
"""What stands for an excess that nobody can state."""
PATIENCE = 4
"""How often, for each point wanted, a sampler may wish for something that is known already."""


class Bridge(ABC):
    """A study of Optuna's over one parameter set, whose parameters are the indices of values.

    Optuna knows no constraints between parameters: what it wishes for is repaired. An agent says in `sampler`,
    `distribution` and `value` how it wants to be asked and told. With `faithful` what became of the repaired point is
    told of the wish itself (evolution strategies must hear of their own draws), otherwise of the repaired point.
    """

    faithful: bool
    startup = 0
    """How many points it must know before it is asked."""

    def __init__(self, task: Task, rng: np.random.Generator, who: str, batch: int) -> None:
        self.optuna = needs("optuna", "search", who)
        self.space, self.rng, self.batch = task.space, rng, batch
        self.history = History(task.space, task.objectives)
        self._novelty = Novelty(task.space, rng)
        self._wishes: dict[Hashable, list[Any]] = {}
        with self._quiet():
            self._distributions = {str(place): self.distribution(size) for place, size in enumerate(self.space.sizes)}
            sampler = self.sampler(int(rng.integers(2**31)))
            values = 1 if self.faithful else task.objectives
            self._study = self.optuna.create_study(sampler=sampler, directions=["minimize"] * values)

    @abstractmethod
    def sampler(self, seed: int) -> Any:
        """Return the sampler that the study asks."""

    @abstractmethod
    def distribution(self, size: int) -> Any:
        """Return what a parameter with *size* values is to Optuna."""

    @abstractmethod
    def value(self, place: int) -> list[float]:
        """Return what the study is told of the point at *place* of the history: numbers to be made small."""

    @contextmanager
    def _quiet(self) -> Iterator[None]:
        """Let Optuna keep to itself what it says of new studies, and of what may change in it."""
        logging = self.optuna.logging
        before = logging.get_verbosity()
        logging.set_verbosity(logging.ERROR)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        finally:
            logging.set_verbosity(before)

    # -------------------------------------------------------------------------------------- asking, telling

    def ask(self, n: int) -> Indices:
        """Return *n* valid points, none of them known: drawn evenly at first, then near what the study wishes for."""
        rows = self.space.sample(n, self.rng)
        found, patience = 0, PATIENCE * n if len(self.history) >= self.startup else 0
        with self._quiet():
            while found < n and patience and len(self.history) < self.space.valid:
                patience -= 1
                near = self._wish()
                if near is not None:
                    rows[found] = near
                    found += 1
        rows = self._novelty.fresh(rows)
        self.history.proposed(rows)
        return rows

    def _wish(self) -> Indices | None:
        """Return a valid point near what the study wishes for; nothing if that is known, or was proposed before."""
        trial = self._study.ask(self._distributions)
        wished = np.array([[round(trial.params[name]) for name in self._distributions]], dtype=np.intp)
        near = self.space.repair(wished)
        key = self.space.keys(near)[0]
        self._wishes.setdefault(key, []).append(trial)
        place = self.history.find(key)
        if place is not None:
            self._answer(key, place)
        if place is not None or key in self.history.waiting:
            return None
        self.history.proposed(near)
        return np.asarray(near[0])

    def tell(self, outcomes: Outcomes) -> None:
        """Tell the study what became of some points, whether it wished for them or not."""
        known = len(self.history)
        self.history.add(outcomes)
        self._novelty.note(outcomes.rows)
        keys = self.space.keys(self.history.rows[known:])
        with self._quiet():
            for place, key in enumerate(keys, known):
                if not (self.faithful and key in self._wishes):
                    self._study.add_trial(self._stranger(place))
                self._answer(key, place)

    def _answer(self, key: Hashable, place: int) -> None:
        """Close every wish that came down to the point at *place*."""
        for trial in self._wishes.pop(key, ()):
            if self.faithful:
                self._study.tell(trial, self.value(place))
            else:
                self._study.tell(trial, state=self.optuna.trial.TrialState.FAIL)

    def _stranger(self, place: int) -> Any:
        """Return the point at *place* as a finished trial, its excess as a constraint."""
        excess = min(float(self.history.excess[place]), MOST)
        return self.optuna.trial.create_trial(
            params=dict(zip(self._distributions, self.history.rows[place].tolist(), strict=True)),
            distributions=self._distributions,
            values=self.value(place),
            system_attrs={"constraints": [excess]},
        )
