"""Worker pools: designs are evaluated in this process, in several on this machine, or on a Ray cluster.

The results are the same. A point may kill its worker: it runs out of memory, or a library crashes. Its chunk is then
halved until that point is alone; a point that has killed three workers is recorded as failed, and the search goes on.
Ray is an optional library: it is imported when a pool on a cluster starts.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from threading import current_thread, main_thread
from types import FrameType
from typing import Any, Protocol

import numpy as np

from cosmic.base.errors import BackendError, one_line, require
from cosmic.search.optional_libraries import import_optional
from cosmic.search.problem import Problem, Results
from cosmic.search.space.diagram import Indices

Evaluate = Callable[[Indices], Results]
MAX_DEATHS = 3
"""A point has failed once it has killed this many workers."""
FAILED_REASON = f"its worker died {MAX_DEATHS} times"
MAX_LOCAL_WORKERS = 32
"""Most worker processes of a small machine; a larger one may have four for each core."""
MAX_CLUSTER_WORKERS = 10_000
"""Most workers on a Ray cluster."""
MIN_CHUNK = 32
"""The smallest chunk of designs that are worth to send to another process if the analytic engine evaluates them."""
START_TIMEOUT_S = 300.0
"""How long workers may take to start: many at once on a busy machine take a while."""
END_TIMEOUT_S = 1.0
"""How long a process may take to end before it is killed."""


def check_workers(workers: int, address: str | None = None) -> None:
    """Raise a `SpecError` unless so many *workers* can be started: on this machine, or on Ray at an *address*."""
    require(workers >= 1, "workers", workers, "give at least one")
    cores = os.cpu_count() or 1
    most, where = max(MAX_LOCAL_WORKERS, 4 * cores), f"on this machine, which has {cores} cores"
    if address is not None and address != "local":
        most, where = MAX_CLUSTER_WORKERS, "on a cluster"
    require(workers <= most, "workers", workers, f"at most {most:,} are started {where}")


@contextmanager
def open_evaluator(problem: Problem, workers: int = 1, address: str | None = None) -> Iterator[Evaluate]:
    """Yield a function that evaluates points of *problem*: with an *address*, on Ray there (``local`` starts it)."""
    check_workers(workers, address)
    if address is not None:
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


@dataclass(eq=False, slots=True)
class _PoolJob:
    """A batch of points that workers evaluate, chunk by chunk."""

    rows: Indices
    order: Indices
    """The places of the points in the order in which chunks take them."""
    pending: int
    """How many points have no result yet."""
    done: dict[int, Results] = field(default_factory=dict)
    """Results of chunks, by where they start in that order."""

    def results(self) -> Results:
        """Return the results of all points, in the order of *rows*."""
        joined = Results.join(self.done[start] for start in sorted(self.done))
        if (self.order[1:] > self.order[:-1]).all():
            return joined
        positions = np.empty_like(self.order)
        positions[self.order] = np.arange(len(self.order))
        return joined.select(positions)


@dataclass(frozen=True, slots=True)
class _Chunk:
    job: _PoolJob
    start: int
    rows: Indices
    worker: int
    """Who had best take it: who took the like before has their plans."""
    deaths: int = 0


class PoolEvaluator:
    """Splits a batch into chunks for the workers, and joins their results in order."""

    def __init__(self, pool: WorkerPool, problem: Problem, workers: int) -> None:
        self._pool = pool
        self._workers = workers
        self._metrics = problem.metrics
        # The analytic engine has an overhead per batch; the event engine takes long enough for a single point.
        self._min_chunk = MIN_CHUNK if problem.engine == "analytic" else 1
        self._categorical = _categorical_columns(problem) if problem.engine == "analytic" else []
        self._waiting: deque[_Chunk] = deque()
        self._free, self._busy = set(range(workers)), dict[int, _Chunk]()
        self._started: list[_PoolJob] = []
        self.ahead = workers
        """How many batches after the one at hand `begin` is of use for."""

    def start(self, rows: Indices) -> None:
        """Let a worker begin with all of *rows*, an array that this will be called with later.

        The oldest of too many such arrays is forgotten.
        """
        if any(job.rows is rows for job in self._started):
            return
        if len(self._started) > self.ahead:
            self._waiting = deque(chunk for chunk in self._waiting if chunk.job is not self._started[0])
            del self._started[0]
        self._started.append(self._queue_chunks(rows, np.arange(len(rows)), 1))
        self._submit()

    def __call__(self, rows: Indices) -> Results:
        """Return the results of the points *rows*."""
        if not len(rows):
            return Results.failed(0, "", self._metrics)
        job = next((started for started in self._started if started.rows is rows), None)
        if job is None:
            job = self._split(rows)
        else:
            self._started.remove(job)
        while job.pending:
            self._submit()
            self._collect()
        return job.results()

    def _submit(self) -> None:
        """Give every free worker a waiting chunk, if possible the one that is meant for it."""
        while self._waiting and self._free:
            chunk = self._waiting.popleft()
            worker = chunk.worker if chunk.worker in self._free else min(self._free)
            self._free.remove(worker)
            self._busy[worker] = chunk
            self._pool.submit(worker, chunk.rows)

    def _collect(self) -> None:
        """Wait for a worker, and take the results of all that are done."""
        for worker, results in self._pool.collect():
            chunk = self._busy.pop(worker)
            self._free.add(worker)
            if results is None and (len(chunk.rows) > 1 or chunk.deaths + 1 < MAX_DEATHS):
                self._waiting.extendleft(reversed(_retries(chunk)))
                continue
            chunk.job.done[chunk.start] = (
                Results.failed(1, FAILED_REASON, self._metrics) if results is None else results
            )
            chunk.job.pending -= len(chunk.rows)

    def _split(self, rows: Indices) -> _PoolJob:
        """Return *rows* as a job for all workers."""
        parts = len(rows) if self._min_chunk == 1 else max(1, min(self._workers, len(rows) // self._min_chunk))
        order = np.arange(len(rows))
        if (
            parts > 1 and self._categorical
        ):  # designs with the same switches are evaluated together: not in several chunks
            order = np.lexsort([rows[:, column] for column in reversed(self._categorical)])
        return self._queue_chunks(rows, order, parts)

    def _queue_chunks(self, rows: Indices, order: Indices, parts: int) -> _PoolJob:
        """Return *rows* as a job whose chunks wait for workers: so many *parts* of the places in *order*."""
        job = _PoolJob(rows, order, len(rows))
        cuts = [len(rows) * part // parts for part in range(parts + 1)]
        self._waiting.extend(
            _Chunk(job, start, rows[order[start:end]], index % self._workers)
            for index, (start, end) in enumerate(pairwise(cuts))
        )
        return job


def _categorical_columns(problem: Problem) -> list[int]:
    """Return the columns of the switches of model and workload: designs that differ in them have other graphs."""
    parameters = enumerate(problem.space.parameters)
    return [
        column for column, parameter in parameters if parameter.stack in ("model", "workload") and not parameter.ordered
    ]


def _retries(chunk: _Chunk) -> list[_Chunk]:
    """Return the chunks to try after *chunk* has killed its worker: its halves, or its one point again."""
    if len(chunk.rows) == 1:
        return [replace(chunk, deaths=chunk.deaths + 1)]
    half = len(chunk.rows) // 2
    return [
        _Chunk(chunk.job, chunk.start, chunk.rows[:half], chunk.worker),
        _Chunk(chunk.job, chunk.start + half, chunk.rows[half:], chunk.worker),
    ]


# ---- processes


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
            process.join(END_TIMEOUT_S)
            process.kill()  # one that does not end when asked to
            process.join()

    def _start(self) -> tuple[Any, Connection]:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_serve_chunks, args=(theirs, self._problem), daemon=True)
        resource_tracker.ensure_running()  # which starts with the first process, and then lets interrupts through again
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
        for worker in [number for number, connection in self._busy.items() if connection in ready]:
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
    """Hold back Ctrl-C, also in processes that are started meanwhile: the parent alone answers it, afterwards.

    Processes inherit that the signal is blocked. Here it may still reach another thread, and Python then interrupts the
    main one: a process would be half started. So its handler waits, too.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    signals: list[tuple[int, FrameType | None]] = []
    handler: Any = None
    if current_thread() is main_thread():  # no other is interrupted, or may set a handler
        handler = signal.signal(signal.SIGINT, lambda *arguments: signals.append(arguments))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if handler is not None:
            signal.signal(signal.SIGINT, handler)
        if signals and callable(handler):
            handler(*signals[-1])


def _await_ready(process: Any, connection: Connection) -> None:
    """Wait until a worker has started: one that cannot start must not count as one that a point killed."""
    if not connection.poll(START_TIMEOUT_S):
        raise BackendError(f"a worker has not started within {START_TIMEOUT_S:.0f} s: use fewer --workers")
    try:
        connection.recv()
    except (EOFError, OSError):
        process.join(END_TIMEOUT_S)
        rule = "a script that searches with workers needs its own part under: if __name__ == '__main__'"
        failure = f"a worker ended before it could start, with status {process.exitcode}"
        raise BackendError(f"{failure}: {rule}, and a plugin must not end the process that imports it") from None


def _serve_chunks(connection: Connection, problem: Problem) -> None:
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


# ---- Evaluation on a Ray cluster: the same search, with its points distributed over many machines

ANSWER_TIMEOUT_S = 5.0
"""How long a cluster may take to answer; Ray itself would ask for minutes."""


def _require_answer(address: str) -> None:
    """Raise a `BackendError` if *address* names a machine and a port where nothing answers."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        return  # such as 'auto', which Ray looks up itself
    try:
        socket.create_connection((host.strip("[]"), int(port)), ANSWER_TIMEOUT_S).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BackendError(f"no Ray cluster answers at {address}: {one_line(reason)}") from None


class RayPool:
    """Actors on a Ray cluster, each with the problem loaded; one that dies is replaced."""

    def __init__(self, problem: Problem, workers: int, address: str) -> None:
        if address == "local":  # read when Ray is imported: below `uv run` it would make an environment for each worker
            os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
        self._ray: Any = import_optional("ray", "ray", "ray", "engine")
        self._started = not self._ray.is_initialized()
        if self._started:
            self._connect(workers, address)
        errors = self._ray.exceptions
        self._died = (errors.RayActorError, errors.OutOfMemoryError, errors.NodeDiedError)
        self._problem = self._ray.put(problem)
        self._actor = self._ray.remote(num_cpus=1)(_Worker)
        self._workers = [self._actor.remote(self._problem) for _ in range(workers)]
        self._busy: dict[Any, int] = {}
        # A worker that cannot start must not count as one that a point killed.
        try:
            self._ray.get([worker.ready.remote() for worker in self._workers], timeout=START_TIMEOUT_S)
        except self._ray.exceptions.RayError as error:
            self.__exit__()
            raise BackendError(f"a Ray worker cannot start at {address}: {one_line(str(error))}") from None

    def _connect(self, workers: int, address: str) -> None:
        """Start Ray on this machine, or connect to the cluster at *address*."""
        quiet = {"logging_level": "error", "log_to_driver": False}
        if address != "local":
            _require_answer(address)
        try:
            if address == "local":
                self._ray.init(num_cpus=workers, include_dashboard=False, **quiet)
            else:
                self._ray.init(address=address, **quiet)
        except (OSError, RuntimeError, ValueError) as error:
            raise BackendError(f"no Ray cluster can be used at {address}: {one_line(str(error))}") from None

    def __enter__(self) -> RayPool:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            self._ray.kill(worker, no_restart=True)
        if self._started:
            self._ray.shutdown()

    def submit(self, worker: int, rows: Indices) -> None:
        """Send *rows* to a free worker."""
        self._busy[self._workers[worker].evaluate.remote(rows)] = worker

    def collect(self) -> Iterator[tuple[int, Results | None]]:
        """Wait, then yield each worker that is done with its results, or with None where it died and was replaced."""
        ready, _ = self._ray.wait(list(self._busy), num_returns=1)
        for reference in ready:
            worker = self._busy.pop(reference)
            try:
                results = self._ray.get(reference)
            except self._died:
                self._workers[worker] = self._actor.remote(self._problem)
                yield worker, None
            else:
                if isinstance(results, BaseException):
                    raise results
                yield worker, results


class _Worker:
    """The actor that runs on the cluster."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem

    def ready(self) -> bool:
        return True

    def evaluate(self, rows: Indices) -> Results | BaseException:
        return results_or_error(self._problem, rows)
