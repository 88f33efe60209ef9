"""Evaluation on a Ray cluster: the same search, with its points distributed over many machines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cosmic.errors import BackendError, one_line
from cosmic.exploration.extras import needs
from cosmic.exploration.problem import Problem, Results
from cosmic.exploration.workers import results_or_error
from cosmic.psa.diagram import Indices


class RayPool:
    """Actors on a Ray cluster, each with the problem loaded; one that dies is replaced."""

    def __init__(self, problem: Problem, workers: int, address: str) -> None:
        self._ray: Any = needs("ray", "ray", "ray", "engine")
        self._started = not self._ray.is_initialized()
        if self._started and address == "local":
            self._ray.init(num_cpus=workers, include_dashboard=False, logging_level="error", log_to_driver=False)
        elif self._started:
            self._ray.init(address=address, logging_level="error", log_to_driver=False)
        errors = self._ray.exceptions
        self._died = (errors.RayActorError, errors.OutOfMemoryError, errors.NodeDiedError)
        self._problem = self._ray.put(problem)
        self._actor = self._ray.remote(num_cpus=1)(_Worker)
        self._workers = [self._actor.remote(self._problem) for _ in range(workers)]
        self._busy: dict[Any, int] = {}
        # A worker that cannot start must not count as one that a point killed.
        try:
            self._ray.get([worker.ready.remote() for worker in self._workers])
        except self._ray.exceptions.RayError as error:
            self.__exit__()
            raise BackendError(f"a Ray worker cannot start at {address}: {one_line(str(error))}") from None

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
