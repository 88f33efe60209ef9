"""Evaluation on a Ray cluster: the same search, with its points distributed over many machines."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from typing import Any

from cosmic.errors import BackendError, one_line
from cosmic.exploration.extras import needs
from cosmic.exploration.problem import Problem, Results
from cosmic.exploration.workers import START_S, results_or_error
from cosmic.psa.diagram import Indices

ANSWER_S = 5.0
"""How long a cluster may take to answer; Ray itself would ask for minutes."""


def _require_answer(address: str) -> None:
    """Raise a `BackendError` if *address* names a machine and a port where nothing answers."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        return  # such as 'auto', which Ray looks up itself
    try:
        socket.create_connection((host.strip("[]"), int(port)), ANSWER_S).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BackendError(f"no Ray cluster answers at {address}: {one_line(reason)}") from None


class RayPool:
    """Actors on a Ray cluster, each with the problem loaded; one that dies is replaced."""

    def __init__(self, problem: Problem, workers: int, address: str) -> None:
        if address == "local":  # read when Ray is imported: below `uv run` it would make an environment for each worker
            os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
        self._ray: Any = needs("ray", "ray", "ray", "engine")
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
            self._ray.get([worker.ready.remote() for worker in self._workers], timeout=START_S)
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
