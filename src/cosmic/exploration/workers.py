"""Who evaluates: this process, several on this machine, or a Ray cluster. All give the same results.

A worker may die of a point: out of memory, or a fault in a library. Its points are then halved until the one that does
it is alone; a point that has killed three workers is recorded as failed, and the search goes on.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

import numpy as np

from cosmic.errors import BackendError, require
from cosmic.exploration.problem import Problem, Results
from cosmic.psa.diagram import Indices

Evaluate = Callable[[Indices], Results]
DEATHS = 3
"""So many dead workers condemn a point."""
FAILED = f"its worker died {DEATHS} times"


@contextmanager
def evaluator(problem: Problem, workers: int = 1, address: str | None = None) -> Iterator[Evaluate]:
    """Yield what evaluates points of *problem*: with an *address*, on the Ray cluster there (``local`` starts one)."""
    require(workers >= 1, "workers", workers, "give at least one")
    if address is not None:
        from cosmic.exploration.ray_cluster import RayCrew  # noqa: PLC0415  an extra

        with RayCrew(problem, workers, address) as cluster:
            yield Sharing(cluster, problem, workers)
    elif workers == 1:
        yield problem.evaluate
    else:
        with ProcessCrew(problem, workers) as crew:
            yield Sharing(crew, problem, workers)


class Team(Protocol):
    """Workers that take some points each."""

    def submit(self, worker: int, rows: Indices) -> None:
        """Give *rows* to a worker that is free."""
        ...

    def collect(self) -> Iterator[tuple[int, Results | None]]:
        """Wait, then yield the workers that are done with their results, or with None if they died and are new."""
        ...


@dataclass(frozen=True, slots=True)
class _Part:
    start: int
    rows: Indices
    deaths: int = 0


class Sharing:
    """Shares a batch out among workers and puts their results in order again."""

    def __init__(self, team: Team, problem: Problem, workers: int) -> None:
        self._team = team
        self._workers = workers
        # Closed forms are quick and come at a price for each batch; a point that is played takes long enough alone.
        self._smallest = 256 if problem.engine == "analytic" else 1

    def __call__(self, rows: Indices) -> Results:
        """Return what becomes of the points *rows*."""
        if not len(rows):
            return Results.failed(0, "")
        waiting = deque(self._parts(rows))
        free, busy = list(range(self._workers)), dict[int, _Part]()
        done: dict[int, Results] = {}
        while waiting or busy:
            while waiting and free:
                part, worker = waiting.popleft(), free.pop()
                self._team.submit(worker, part.rows)
                busy[worker] = part
            for worker, results in self._team.collect():
                part = busy.pop(worker)
                free.append(worker)
                if results is not None:
                    done[part.start] = results
                elif len(part.rows) == 1 and part.deaths + 1 >= DEATHS:
                    done[part.start] = Results.failed(1, FAILED)
                else:
                    waiting.extendleft(reversed(_smaller(part)))
        return Results.join(done[start] for start in sorted(done))

    def _parts(self, rows: Indices) -> list[_Part]:
        size = max(self._smallest, -(-len(rows) // self._workers) if self._smallest > 1 else 1)
        return [_Part(start, rows[start : start + size]) for start in range(0, len(rows), size)]


def _smaller(part: _Part) -> list[_Part]:
    """Return what to try next of a part whose worker died: its halves, or the one point again."""
    if len(part.rows) == 1:
        return [_Part(part.start, part.rows, part.deaths + 1)]
    half = len(part.rows) // 2
    return [_Part(part.start, part.rows[:half]), _Part(part.start + half, part.rows[half:])]


# ------------------------------------------------------------------------------------------------- processes


class ProcessCrew:
    """Processes on this machine, each with the problem loaded; one that dies is replaced."""

    def __init__(self, problem: Problem, workers: int) -> None:
        self._problem = problem
        self._context = multiprocessing.get_context("spawn")  # threads of libraries do not survive a fork
        self._workers: list[tuple[Any, Connection]] = []
        self._busy: dict[int, Connection] = {}
        try:
            self._workers = [self._hire() for _ in range(workers)]
            for _process, connection in self._workers:
                _await_ready(connection)
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> ProcessCrew:
        return self

    def __exit__(self, *_: object) -> None:
        for process, connection in self._workers:
            connection.close()
            process.terminate()
        for process, _connection in self._workers:
            process.join()

    def _hire(self) -> tuple[Any, Connection]:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_work, args=(theirs, self._problem), daemon=True)
        process.start()
        theirs.close()
        return process, ours

    def submit(self, worker: int, rows: Indices) -> None:
        """Give *rows* to a worker that is free; whether it lives is seen when its results are due."""
        connection = self._workers[worker][1]
        self._busy[worker] = connection
        with suppress(ConnectionError):
            connection.send(rows)

    def collect(self) -> Iterator[tuple[int, Results | None]]:
        """Wait, then yield the workers that are done, or died and were replaced."""
        ready = wait(list(self._busy.values()))  # who died is ready too: its end of the pipe is closed
        for worker in [each for each, connection in self._busy.items() if connection in ready]:
            connection = self._busy.pop(worker)
            try:
                results = connection.recv()
            except (EOFError, OSError):  # the latter where it died in the middle of its answer
                self._workers[worker][0].join()
                connection.close()
                self._workers[worker] = self._hire()
                _await_ready(self._workers[worker][1])
                yield worker, None
            else:
                if isinstance(results, BaseException):
                    raise results
                yield worker, results


def _await_ready(connection: Connection) -> None:
    """Wait until a worker has started: one that cannot start must not be taken for one that died of its points."""
    try:
        connection.recv()
    except (EOFError, OSError):
        rule = "a script that searches with workers needs its own part under: if __name__ == '__main__'"
        raise BackendError(f"a worker ended before it could start: {rule}") from None


def _work(connection: Connection, problem: Problem) -> None:
    """Evaluate what comes until nobody asks any more; Ctrl-C is for the process that asks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(EOFError, ConnectionError):  # whoever asked may be gone at any moment
        connection.send(True)
        while True:
            connection.send(answer(problem, connection.recv()))


def answer(problem: Problem, rows: Indices) -> Results | BaseException:
    """Return the results of *rows*, or what went wrong, for whoever asked to raise."""
    try:
        return problem.evaluate(np.asarray(rows))
    except Exception as error:
        return error
