"""Worker pools: designs are evaluated in this process, in several on this machine, or on a Ray cluster.

The results are the same. A point may kill its worker: it runs out of memory, or a library crashes. Its chunk is then
halved until that point is alone; a point that has killed three workers is recorded as failed, and the search goes on.
"""

from __future__ import annotations

import multiprocessing
import os
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
"""A point has failed once it has killed this many workers."""
FAILED = f"its worker died {DEATHS} times"
MOST_HERE = 32
"""Most worker processes of a small machine; a larger one may have four for each core."""
MOST_ON_CLUSTER = 10_000
"""Most workers on a Ray cluster."""
START_S = 300.0
"""How long workers may take to start: many at once on a busy machine take a while."""
END_S = 1.0
"""How long a process may take to end before it is killed."""


def check_workers(workers: int, address: str | None = None) -> None:
    """Raise a `SpecError` unless so many *workers* can be started: on this machine, or on Ray at an *address*."""
    require(workers >= 1, "workers", workers, "give at least one")
    cores = os.cpu_count() or 1
    most, where = max(MOST_HERE, 4 * cores), f"on this machine, which has {cores} cores"
    if address is not None and address != "local":
        most, where = MOST_ON_CLUSTER, "on a cluster"
    require(workers <= most, "workers", workers, f"at most {most:,} are started {where}")


@contextmanager
def evaluator(problem: Problem, workers: int = 1, address: str | None = None) -> Iterator[Evaluate]:
    """Yield a function that evaluates points of *problem*: with an *address*, on Ray there (``local`` starts it)."""
    check_workers(workers, address)
    if address is not None:
        from cosmic.exploration.ray_cluster import RayPool  # noqa: PLC0415  an extra

        with RayPool(problem, workers, address) as cluster:
            yield PoolEvaluator(cluster, problem, workers)
    elif workers == 1:
        yield problem.evaluate
    else:
        with ProcessPool(problem, workers) as pool:
            yield PoolEvaluator(pool, problem, workers)


class WorkerPool(Protocol):
    """Numbered workers, each of which evaluates one chunk of points at a time."""

    def submit(self, worker: int, rows: Indices) -> None:
        """Send *rows* to a free worker."""
        ...

    def collect(self) -> Iterator[tuple[int, Results | None]]:
        """Wait, then yield each worker that is done with its results, or with None where it died and was replaced."""
        ...


@dataclass(frozen=True, slots=True)
class _Chunk:
    start: int
    rows: Indices
    deaths: int = 0


class PoolEvaluator:
    """Splits a batch into chunks for the workers, and joins their results in order."""

    def __init__(self, pool: WorkerPool, problem: Problem, workers: int) -> None:
        self._pool = pool
        self._workers = workers
        # The analytic engine has an overhead per batch; the event engine takes long enough for a single point.
        self._smallest = 256 if problem.engine == "analytic" else 1

    def __call__(self, rows: Indices) -> Results:
        """Return the results of the points *rows*."""
        if not len(rows):
            return Results.failed(0, "")
        waiting = deque(self._chunks(rows))
        free, busy = list(range(self._workers)), dict[int, _Chunk]()
        done: dict[int, Results] = {}
        while waiting or busy:
            while waiting and free:
                chunk, worker = waiting.popleft(), free.pop()
                self._pool.submit(worker, chunk.rows)
                busy[worker] = chunk
            for worker, results in self._pool.collect():
                chunk = busy.pop(worker)
                free.append(worker)
                if results is not None:
                    done[chunk.start] = results
                elif len(chunk.rows) == 1 and chunk.deaths + 1 >= DEATHS:
                    done[chunk.start] = Results.failed(1, FAILED)
                else:
                    waiting.extendleft(reversed(_retries(chunk)))
        return Results.join(done[start] for start in sorted(done))

    def _chunks(self, rows: Indices) -> list[_Chunk]:
        size = max(self._smallest, -(-len(rows) // self._workers) if self._smallest > 1 else 1)
        return [_Chunk(start, rows[start : start + size]) for start in range(0, len(rows), size)]


def _retries(chunk: _Chunk) -> list[_Chunk]:
    """Return the chunks to try after *chunk* has killed its worker: its halves, or its one point again."""
    if len(chunk.rows) == 1:
        return [_Chunk(chunk.start, chunk.rows, chunk.deaths + 1)]
    half = len(chunk.rows) // 2
    return [_Chunk(chunk.start, chunk.rows[:half]), _Chunk(chunk.start + half, chunk.rows[half:])]


# ------------------------------------------------------------------------------------------------- processes


class ProcessPool:
    """Processes on this machine, each with the problem loaded; one that dies is replaced."""

    def __init__(self, problem: Problem, workers: int) -> None:
        self._problem = problem
        self._context = multiprocessing.get_context("spawn")  # the threads of libraries do not survive a fork
        self._workers: list[tuple[Any, Connection]] = []
        self._busy: dict[int, Connection] = {}
        try:
            for _ in range(workers):
                self._workers.append(self._start())
            for process, connection in self._workers:
                _await_ready(process, connection)
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> ProcessPool:
        return self

    def __exit__(self, *_: object) -> None:
        for process, connection in self._workers:
            connection.close()
            process.terminate()
        for process, _connection in self._workers:
            process.join(END_S)
            process.kill()  # one that does not end when asked to
            process.join()

    def _start(self) -> tuple[Any, Connection]:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(theirs, self._problem), daemon=True)
        with _without_interrupts():
            process.start()
        theirs.close()
        return process, ours

    def submit(self, worker: int, rows: Indices) -> None:
        """Send *rows* to a free worker; `collect` notices if it is dead."""
        connection = self._workers[worker][1]
        self._busy[worker] = connection
        with suppress(ConnectionError):
            connection.send(rows)

    def collect(self) -> Iterator[tuple[int, Results | None]]:
        """Wait, then yield each worker that is done with its results, or with None where it died and was replaced."""
        ready = wait(list(self._busy.values()))  # a dead worker is ready too: its end of the pipe is closed
        for worker in [each for each, connection in self._busy.items() if connection in ready]:
            connection = self._busy.pop(worker)
            try:
                results = connection.recv()
            except (EOFError, OSError):  # an OSError where it died while it sent its results
                self._workers[worker][0].join()
                connection.close()
                self._workers[worker] = self._start()
                _await_ready(*self._workers[worker])
                yield worker, None
            else:
                if isinstance(results, BaseException):
                    raise results
                yield worker, results


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Hold back Ctrl-C, also in processes that are started meanwhile: the parent alone answers it."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _await_ready(process: Any, connection: Connection) -> None:
    """Wait until a worker has started: one that cannot start must not count as one that a point killed."""
    if not connection.poll(START_S):
        raise BackendError(f"a worker has not started within {START_S:.0f} s: use fewer --workers")
    try:
        connection.recv()
    except (EOFError, OSError):
        process.join(END_S)
        rule = "a script that searches with workers needs its own part under: if __name__ == '__main__'"
        said = f"a worker ended before it could start, with status {process.exitcode}"
        raise BackendError(f"{said}: {rule}, and a plugin must not end the process that imports it") from None


def _serve(connection: Connection, problem: Problem) -> None:
    """Evaluate chunks until the parent closes the connection; the parent handles Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(EOFError, ConnectionError):  # the parent may end at any moment
        connection.send(True)
        while True:
            connection.send(results_or_error(problem, connection.recv()))


def results_or_error(problem: Problem, rows: Indices) -> Results | BaseException:
    """Return the results of *rows*, or the exception for the parent to raise."""
    try:
        return problem.evaluate(np.asarray(rows))
    except Exception as error:
        return error
