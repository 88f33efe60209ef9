"""Judges boxes of all groups, in this process or in several; the numbers are the same."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np

from cosmic.certifying.bounding import Bounding, Boxes, Judged
from cosmic.certifying.dominance import Dominance, dominances
from cosmic.certifying.intervals import Floats
from cosmic.certifying.programs import NotProvable, groups
from cosmic.certifying.skeletons import divide
from cosmic.exploration.problem import Problem

AT_ONCE = 50_000
"""Boxes that are judged at a time."""


class Judging:
    """The groups of a problem's skeletons, and what is known of their boxes."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.division = divide(problem.space)
        if not self.division.ranges and not self.division.choices:
            raise NotProvable("no parameter of the network can be bounded apart from the rest")
        found = groups(self.division)
        self.boundings = tuple(Bounding(each, problem.objectives, problem.limits) for each in found)
        self._owner = np.zeros(self.division.count, dtype=np.int16)
        for number, each in enumerate(found):
            self._owner[each.skeletons] = number
        self._pool: Executor | None = None
        self._workers = 1

    def prove(self) -> None:
        """Raise `NotProvable` unless corners bound boxes in every group."""
        for each in self.boundings:
            each.prove()

    @cached_property
    def dominances(self) -> list[tuple[Any, tuple[Dominance, ...]]]:
        """The skeletons of each group that can run, and which options are dominated in them."""
        return [
            (each.group.skeletons, dominances(each.group, [each.group.program.results[name] for name in each.metrics]))
            for each in self.boundings
        ]

    def judge(self, boxes: Boxes) -> Judged:
        """Return the bounds of boxes, and the losses of their fastest corners."""
        bounds, losses = np.empty((2, len(boxes), len(self.problem.objectives)))
        for rows, found in self._mapped("judge", boxes):
            bounds[rows], losses[rows] = found
        return Judged(bounds, losses)

    def worst(self, boxes: Boxes) -> Floats:
        """Return losses that no design of a box exceeds (see `Bounding.worst`)."""
        losses = np.empty((len(boxes), len(self.problem.objectives)))
        for rows, found in self._mapped("worst", boxes):
            losses[rows] = found
        return losses

    def _mapped(self, name: str, boxes: Boxes) -> Iterator[tuple[Any, Any]]:
        owner = self._owner[boxes.skeletons]
        jobs = []
        for number in np.unique(owner).tolist():
            mine = np.flatnonzero(owner == number)
            jobs += [(number, mine[start : start + AT_ONCE]) for start in range(0, len(mine), AT_ONCE)]
        if self._pool is None or len(jobs) < 2:
            for number, rows in jobs:
                yield rows, _judged(self.boundings[number], name, boxes.take(rows))
            return
        tasks = [self._pool.submit(_remote, number, name, boxes.take(rows)) for number, rows in jobs]
        for (_, rows), task in zip(jobs, tasks, strict=True):
            yield rows, task.result()

    @contextmanager
    def workers(self, count: int) -> Iterator[None]:
        """Let so many processes judge boxes."""
        if count == 1:
            yield
            return
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(count, mp_context=context, initializer=_start, initargs=(self.problem,)) as pool:
            self._pool = pool
            try:
                yield
            finally:
                self._pool = None
                pool.shutdown(wait=False, cancel_futures=True)


def _judged(bounding: Bounding, name: str, boxes: Boxes) -> Any:
    if name == "worst":
        return bounding.worst(boxes)
    found = bounding.judge(boxes)
    return found.bounds, found.losses


_HERE: list[Judging] = []


def _start(problem: Problem) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent answers it
    _HERE[:] = [Judging(problem)]


def _remote(number: int, name: str, boxes: Boxes) -> Any:
    return _judged(_HERE[0].boundings[number], name, boxes)
