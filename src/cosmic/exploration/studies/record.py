"""The batches of a study: checked while a resumed search repeats them, then appended to."""

from __future__ import annotations

import numpy as np

from cosmic.exploration.problem import Problem, Results
from cosmic.exploration.studies.cells import BatchRecord
from cosmic.exploration.studies.database import StudyError
from cosmic.exploration.studies.storage import Storage
from cosmic.exploration.trials import Ledger, Trials
from cosmic.exploration.workers import Evaluate
from cosmic.psa.diagram import Indices


class Record:
    """The batches of a study, written and to be written; without *storage*, nothing is kept."""

    def __init__(self, problem: Problem, storage: Storage | None) -> None:
        self._storage = storage
        self.batches: list[BatchRecord] = []
        """The batches that were there."""
        self.written: Trials | None = None
        """Their trials; None once all are repeated, as the search then has them."""
        self._saved = Ledger(problem)
        """Results of points that are in no batch: what the doctor saved, and what is evaluated beside them."""
        self._at = 0
        self.computed = 0
        """How many points this run evaluated."""
        if storage is not None:
            self.batches, self.written = storage.history()
            saved = storage.trials("salvaged")
            new = self._saved.unknown(saved.rows)
            self._saved.add(saved.rows[new], saved.results.take(new))

    def remembered(self, evaluate: Evaluate, ledger: Ledger) -> Evaluate:
        """Return *evaluate*, with results that the study holds looked up instead; *ledger* has its trials ahead."""

        def look_up(rows: Indices) -> Results:
            ahead = ledger.holds(rows)
            if ahead.all():
                return ledger.recall(rows)
            if not ahead.any():
                return self._saved_or(evaluate, rows)
            both = Results.join([ledger.recall(rows[ahead]), self._saved_or(evaluate, rows[~ahead])])
            order = np.concatenate((np.flatnonzero(ahead), np.flatnonzero(~ahead)))
            return both.take(np.argsort(order, kind="stable"))

        return look_up

    def _saved_or(self, evaluate: Evaluate, rows: Indices) -> Results:
        """Return the results of *rows*, of which those that were saved are looked up."""
        unknown = self._saved.unknown(rows) if len(self._saved) else np.arange(len(rows))
        self.computed += len(unknown)
        if len(unknown) == len(rows):
            return evaluate(rows)
        if len(unknown):
            self._saved.add(rows[unknown], evaluate(rows[unknown]))
        return self._saved.recall(rows)

    def add(self, asked: int, trials: Trials, first: int) -> None:
        """Write a batch, or check that it equals the one that was written."""
        if self._storage is None:
            return
        batch = BatchRecord(self._at, asked, len(trials))
        if self._at >= len(self.batches):
            self._storage.append(batch, trials, first)
        elif self.batches[self._at] != batch or not self._proposed(trials.points, first):
            version = "another release of COSMIC, or of a library that its agent uses, wrote it"
            raise StudyError(f"{self._storage.path.parent}: cannot be resumed from batch {self._at}: {version}")
        self._at += 1
        if self._at >= len(self.batches):
            self.written = None

    def _proposed(self, points: Indices, first: int) -> bool:
        """Return whether *points* equal those of the study from its trial *first* on."""
        return not len(points) or (
            self.written is not None and np.array_equal(self.written.points[first : first + len(points)], points)
        )
