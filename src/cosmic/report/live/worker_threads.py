"""Work in threads: bounded in number and time. A thread that takes too long is told to stop, and replaced.

The threads are daemons: one that hangs in a library does not keep the server from ending.
"""

from __future__ import annotations

import asyncio
import ctypes
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from cosmic.report.live.limits import Limits
from cosmic.report.live.request_checks import BUSY, Refusal

WorkResult = TypeVar("WorkResult")
QUEUED, RUNNING, STOPPED, OVER = "queued", "running", "stopped", "over"
TOO_LONG = "is the longest time of this answer; ask for less, or use the command line"
AGAIN_S = 1.0
"""How often a thread is told to stop: code of others may swallow it."""


class Overdue(BaseException):
    """Raised in a thread whose time is over. No `Exception`: nobody catches it by accident."""


@dataclass(eq=False)
class ThreadJob:
    """One call, and where its result goes."""

    call: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    state: str = QUEUED
    thread: int = 0
    guard: threading.Lock = field(default_factory=threading.Lock)
    """Held to change the state: a thread is told to stop only while it is at this very job."""

    def run(self) -> bool:
        """Make the call and pass its result on; return False if it was told to stop."""
        try:
            with self.guard:
                if self.state == OVER:  # given up before it began
                    return True
                self.state, self.thread = RUNNING, threading.get_ident()
            result, failure = self._called()
            with self.guard:
                finished, self.state = self.state == RUNNING, OVER
            for _ in range(0 if finished else 100):
                time.sleep(0.01)  # it is about to be raised, and must not be raised elsewhere
        except Overdue:
            with self.guard:
                self.state = OVER
            return False
        if finished:
            with suppress(RuntimeError):  # the server has ended
                self.loop.call_soon_threadsafe(self._settle, result, failure)
        return finished

    def _called(self) -> tuple[Any, Exception | None]:
        try:
            return self.call(), None
        except Exception as error:
            return None, error

    def _settle(self, result: Any, failure: Exception | None) -> None:
        if self.future.done():
            return
        if failure is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(failure)

    def stop(self) -> bool:
        """Tell the thread of a job to stop; return whether it is at it."""
        with self.guard:
            if self.state in (QUEUED, OVER):
                self.state = OVER
                return False
            self.state = STOPPED
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.thread), ctypes.py_object(Overdue))
            return True


class JobThreads:
    """A bounded number of threads with a bounded queue, and a time limit for each request."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._waiting: deque[ThreadJob] = deque()
        self._changed = threading.Condition()
        self._threads = 0
        self._idle = 0
        self._pending = 0
        self._closed = False
        self.stuck = 0
        """Threads that were told to stop and have not ended yet."""

    async def run(self, work: Callable[..., WorkResult], *given: Any, seconds: float | None = None) -> WorkResult:
        """Call *work* in a thread and return its result; after *seconds* the thread is told to stop."""
        most = self._limits.seconds if seconds is None else seconds
        if self._pending >= self._limits.threads + self._limits.waiting:
            raise Refusal(BUSY, "requests", self._pending, "are being worked on; try again in a few seconds")
        if self.stuck >= self._limits.stuck:
            raise Refusal(BUSY, "requests", self.stuck, "do not end; end 'cosmic ui' and start it again")
        loop = asyncio.get_running_loop()
        job = ThreadJob(lambda: work(*given), loop, loop.create_future())
        self._pending += 1
        self._put(job)
        try:
            return await asyncio.wait_for(job.future, most)
        except TimeoutError:
            raise Refusal(BUSY, "seconds", most, TOO_LONG) from None
        finally:
            self._pending -= 1
            if job.state != OVER:
                self._give_up(job)

    def _put(self, job: ThreadJob) -> None:
        with self._changed:
            self._waiting.append(job)
            self._man()
            self._changed.notify()

    def _man(self) -> None:
        """Start a thread if one is missing."""
        if self._idle < len(self._waiting) and self._threads < self._limits.threads:
            self._threads += 1
            threading.Thread(target=self._work, name="cosmic-live", daemon=True).start()

    def _give_up(self, job: ThreadJob) -> None:
        """Stop a job that nobody waits for; its thread no longer counts, so that another can take its place."""
        with self._changed:
            with suppress(ValueError):
                self._waiting.remove(job)
            if job.stop():
                self._threads -= 1
                self.stuck += 1
                self._man()
                job.loop.call_later(AGAIN_S, self._insist, job)

    def _insist(self, job: ThreadJob) -> None:
        if job.stop() and not self._closed:
            job.loop.call_later(AGAIN_S, self._insist, job)

    def _work(self) -> None:
        """Take jobs until one was stopped, or the server ends."""
        while (job := self._next()) is not None:
            if not job.run():
                with self._changed:
                    self.stuck -= 1
                return

    def _next(self) -> ThreadJob | None:
        with self._changed:
            self._idle += 1
            while not self._waiting and not self._closed:
                self._changed.wait()
            self._idle -= 1
            return None if self._closed else self._waiting.popleft()

    def close(self) -> None:
        """Take no more work."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify_all()
