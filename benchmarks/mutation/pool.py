"""Work in forked children: each sees what its parent has in memory, and what it changes dies with it."""

from __future__ import annotations

import os
import pickle
import resource
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")
MEMORY_BYTES = 6 * 2**30
"""What a child may allocate beside what it has from its parent."""
ASLEEP = 10
"""How much longer than its processor time a job may take."""


class Ended(NamedTuple, Generic[T]):
    """A job that ended: what it returned, and why not if it was stopped."""

    job: T
    result: Any
    stopped: str


def forked(
    jobs: Iterable[T],
    work: Callable[[T], Any],
    limit_s: Callable[[T], float],
    workers: int,
    silent: tuple[int, ...] = (1, 2),
) -> Iterator[Ended[T]]:
    """Yield what *work* returns for each job, in the order in which they end; so many run at once.

    A job that takes longer than *limit_s* or dies is stopped, and says why. *silent* are the streams that children
    may not write to.
    """
    waiting = iter(jobs)
    running: dict[int, tuple[T, IO[bytes]]] = {}
    exhausted = False
    while running or not exhausted:
        while not exhausted and len(running) < workers:
            try:
                job = next(waiting)
            except StopIteration:
                exhausted = True
                break
            child, answer = _start(job, work, limit_s(job), silent)
            running[child] = job, answer
        if running:
            child, status = os.wait()
            job, answer = running.pop(child)
            yield _ended(job, answer, status)


def _start(job: T, work: Callable[[T], Any], limit_s: float, silent: tuple[int, ...]) -> tuple[int, IO[bytes]]:
    answer = tempfile.TemporaryFile()  # noqa: SIM115  closed when the child has ended
    child = os.fork()
    if not child:
        status = 1
        try:
            _confine(limit_s, silent)
            answer.write(pickle.dumps(work(job)))
            status = 0
        except BaseException:
            answer.write(pickle.dumps(traceback.format_exc()))
        finally:
            answer.flush()
            os._exit(status)
    return child, answer


def _confine(limit_s: float, silent: tuple[int, ...]) -> None:
    """Make this process die when its time is up, fail where it wants much memory, and silence its streams.

    Its time is the processor's, as the machine may be busy; but it may not sleep for ever either.
    """
    signal.setitimer(signal.ITIMER_PROF, limit_s)
    signal.setitimer(signal.ITIMER_REAL, ASLEEP * limit_s)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, resource.RLIM_INFINITY))
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in silent:
        os.dup2(nothing, stream)


def _ended(job: T, answer: IO[bytes], status: int) -> Ended[T]:
    with answer:
        code = os.waitstatus_to_exitcode(status)
        answer.seek(0)
        if code == 0:
            return Ended(job, pickle.load(answer), "")
        if code == 1:
            return Ended(job, None, pickle.load(answer))
    return Ended(job, None, "time" if code in (-signal.SIGALRM, -signal.SIGPROF) else f"status {code}")
