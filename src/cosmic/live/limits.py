"""How much the server does for whom: sizes, rates, connections, threads and seconds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from cosmic.live.refusals import BUSY, TOO_MANY, Refusal

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Limits:
    """Every limit of the server, in one place."""

    body_bytes: int = 2**18
    address_bytes: int = 2**13
    header_bytes: int = 2**14
    headers: int = 64
    requests_per_s: float = 200.0
    posts_per_s: float = 25.0
    strangers_per_s: float = 20.0
    """Of all together who have no cookie: they cannot use up what belongs to who has one."""
    burst_s: float = 3.0
    """Seconds of each rate that may come at once."""
    streams: int = 12
    threads: int = 4
    waiting: int = 24
    """Requests that may wait for a thread."""
    seconds: float = 60.0
    """That an answer may take."""


class Bucket:
    """Tokens that come at a rate: each request takes one.

    >>> times = iter([0.0, 0.0, 0.0, 0.1])
    >>> bucket = Bucket(10.0, 0.1, lambda: next(times))
    >>> [bucket.take() for _ in range(3)]
    [True, False, True]
    """

    def __init__(self, per_s: float, burst_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s, self._most = per_s, max(1.0, per_s * burst_s)
        self._clock = clock
        self._tokens, self._at = self._most, clock()

    def take(self) -> bool:
        """Return whether there was a token, which is gone then."""
        now = self._clock()
        self._tokens = min(self._most, self._tokens + (now - self._at) * self._per_s)
        self._at = now
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True


@dataclass
class Rates:
    """The buckets of a server."""

    limits: Limits
    clock: Callable[[], float] = time.monotonic
    everything: Bucket = field(init=False)
    posts: Bucket = field(init=False)
    strangers: Bucket = field(init=False)

    def __post_init__(self) -> None:
        for name, per_s in (
            ("everything", self.limits.requests_per_s),
            ("posts", self.limits.posts_per_s),
            ("strangers", self.limits.strangers_per_s),
        ):
            setattr(self, name, Bucket(per_s, self.limits.burst_s, self.clock))

    def check(self, method: str, *, known: bool) -> None:
        """Refuse a request that comes too soon after others."""
        buckets = (self.everything, *([self.posts] if method == "POST" else [])) if known else (self.strangers,)
        if not all(bucket.take() for bucket in buckets):
            raise Refusal(TOO_MANY, "requests", method, "come too fast; try again in a second")


class Streams:
    """Connections that stay open, counted."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.open = 0
        self.closing = False

    @contextmanager
    def place(self) -> Iterator[None]:
        """Hold a place, or refuse."""
        if self.open >= self.most:
            raise Refusal(TOO_MANY, "streams", self.open, "no more can be watched at once; ask for the status instead")
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1


class Pool:
    """Threads for work that takes a while: so many, with so many waiting, none asked to wait longer than a limit."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._threads = ThreadPoolExecutor(limits.threads, "cosmic-live")
        self._pending = 0

    async def run(self, work: Callable[..., T], *given: Any) -> T:
        """Return what *work* returns, done in a thread. A thread that takes too long keeps its place until it ends."""
        if self._pending >= self._limits.threads + self._limits.waiting:
            raise Refusal(BUSY, "requests", self._pending, "are being worked on; try again in a few seconds")
        self._pending += 1
        future = asyncio.get_running_loop().run_in_executor(self._threads, work, *given)
        future.add_done_callback(self._done)
        try:
            return await asyncio.wait_for(asyncio.shield(future), self._limits.seconds)
        except TimeoutError:
            rule = "is how long an answer may take; ask for less, or use the command line"
            raise Refusal(BUSY, "seconds", self._limits.seconds, rule) from None

    def _done(self, future: asyncio.Future[Any]) -> None:
        self._pending -= 1
        if not future.cancelled():
            future.exception()  # seen, also where nobody waits for it any more

    def close(self) -> None:
        """Take no more work."""
        self._threads.shutdown(wait=False, cancel_futures=True)
