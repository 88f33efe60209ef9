"""Optuna's samplers as agents: their suggestions are repaired to valid points."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from cosmic.search.agent import Outcomes, Task
from cosmic.search.learning.agent_memory import History, Novelty
from cosmic.search.optional_libraries import import_optional
from cosmic.search.space.diagram import Indices

MAX_EXCESS = 1e6
"""The constraint value of an infinite excess."""
SUGGESTIONS_PER_POINT = 4
"""How many suggestions a sampler may take, per point asked for, before random points are used."""


class OptunaAgent(ABC):
    """An Optuna study over one parameter set; its parameters are the indices of values.

    Optuna has no constraints between parameters, so its suggestions are repaired. An agent defines `sampler`,
    `distribution` and `value`.
    """

    faithful: bool
    """Whether Optuna is told the outcome of the repaired point as that of its own suggestion, as evolution strategies
    need; otherwise as that of the repaired point."""
    startup = 0
    """How many points must be known before the sampler is asked."""

    def __init__(self, task: Task, rng: np.random.Generator, who: str, batch: int) -> None:
        self.optuna = import_optional("optuna", "search", who)
        self.space, self.rng, self.batch = task.space, rng, batch
        self.history = History(task.space, task.objectives)
        self._novelty = Novelty(task.space, rng)
        self._suggested: dict[Hashable, list[Any]] = {}
        with self._quiet():
            self._distributions = {str(index): self.distribution(size) for index, size in enumerate(self.space.sizes)}
            sampler = self.sampler(int(rng.integers(2**31)))
            values = 1 if self.faithful else task.objectives
            self._study = self.optuna.create_study(sampler=sampler, directions=["minimize"] * values)

    @abstractmethod
    def sampler(self, seed: int) -> Any:
        """Return the study's sampler."""

    @abstractmethod
    def distribution(self, size: int) -> Any:
        """Return the distribution of a parameter with *size* values."""

    @abstractmethod
    def value(self, index: int) -> list[float]:
        """Return the values to minimise of the point at *index* of the history."""

    @contextmanager
    def _quiet(self) -> Iterator[None]:
        """Silence Optuna's log messages and warnings."""
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
        """Return *n* new valid points: random ones at first, then those nearest to the sampler's suggestions."""
        rows = self.space.sample(n, self.rng)
        count, patience = 0, SUGGESTIONS_PER_POINT * n if len(self.history) >= self.startup else 0
        with self._quiet():
            while count < n and patience and len(self.history) < self.space.valid:
                patience -= 1
                near = self._suggestion()
                if near is not None:
                    rows[count] = near
                    count += 1
        rows = self._novelty.fresh(rows)
        self.history.proposed(rows)
        return rows

    def _suggestion(self) -> Indices | None:
        """Return the valid point nearest to a suggestion; None if it is known or pending."""
        trial = self._study.ask(self._distributions)
        suggested = np.array([[round(trial.params[name]) for name in self._distributions]], dtype=np.intp)
        near = self.space.repair(suggested)
        key = self.space.keys(near)[0]
        self._suggested.setdefault(key, []).append(trial)
        index = self.history.find(key)
        if index is not None:
            self._tell_suggestions(key, index)
        if index is not None or key in self.history.waiting:
            return None
        self.history.proposed(near)
        return np.asarray(near[0])

    def tell(self, outcomes: Outcomes) -> None:
        """Tell the study the outcomes of some points, suggested by its sampler or not."""
        seen_count = len(self.history)
        self.history.add(outcomes)
        self._novelty.note(outcomes.rows)
        keys = self.space.keys(self.history.rows[seen_count:])
        with self._quiet():
            for index, key in enumerate(keys, seen_count):
                if not (self.faithful and key in self._suggested):
                    self._study.add_trial(self._finished_trial(index))
                self._tell_suggestions(key, index)

    def _tell_suggestions(self, key: Hashable, index: int) -> None:
        """Finish every suggestion that was repaired to the point at *index*."""
        for trial in self._suggested.pop(key, ()):
            if self.faithful:
                self._study.tell(trial, self.value(index))
            else:
                self._study.tell(trial, state=self.optuna.trial.TrialState.FAIL)

    def _finished_trial(self, index: int) -> Any:
        """Return the point at *index* as a finished Optuna trial, with its excess as a constraint."""
        excess = min(float(self.history.excess[index]), MAX_EXCESS)
        return self.optuna.trial.create_trial(
            params=dict(zip(self._distributions, self.history.rows[index].tolist(), strict=True)),
            distributions=self._distributions,
            values=self.value(index),
            system_attrs={"constraints": [excess]},
        )
