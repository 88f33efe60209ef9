"""The limits of the server: sizes, rates, streams, connections, threads and seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from cosmic.report.live.request_checks import TOO_MANY, Refusal


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
    """Requests without a key, all together: they do not count against those with one."""
    public_per_s: float = 50.0
    """Requests for the files of the page, which anybody may have."""
    burst_s: float = 3.0
    """Seconds of each rate that may come in one burst."""
    streams: int = 12
    threads: int = 4
    waiting: int = 24
    """Requests that may wait for a thread."""
    seconds: float = 60.0
    """The longest time of an answer."""
    design_s: float = 10.0
    """The longest time of a design that is evaluated and drawn."""
    designs: int = 6
    """Designs of one browser that may wait while another is evaluated: one is, at a time."""
    stuck: int = 8
    """Threads that did not end when they were told to; each is replaced, up to this number."""
    strangers: int = 256
    """Connections over which no key came."""
    connections: int = 128
    """Connections of browsers that were let in."""
    header_s: float = 5.0
    body_s: float = 10.0
    idle_s: float = 20.0
    """Between two requests of a connection."""
    stalled_s: float = 20.0
    """How long an answer may wait for its reader."""


class Bucket:
    """A token bucket: tokens come at a rate, each request takes one.

    >>> times = iter([0.0, 0.0, 0.0, 0.1])
    >>> bucket = Bucket(10.0, 0.1, lambda: next(times))
    >>> [bucket.spend() for _ in range(3)]
    [True, False, True]
    """

    def __init__(self, per_s: float, burst_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s, self._most = per_s, max(1.0, per_s * burst_s)
        self._clock = clock
        self._tokens, self._at = self._most, clock()

    def spend(self) -> bool:
        """Take a token; return whether there was one."""
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
    public: Bucket = field(init=False)

    def __post_init__(self) -> None:
        for name, per_s in (
            ("everything", self.limits.requests_per_s),
            ("posts", self.limits.posts_per_s),
            ("strangers", self.limits.strangers_per_s),
            ("public", self.limits.public_per_s),
        ):
            setattr(self, name, Bucket(per_s, self.limits.burst_s, self.clock))

    def check(self, method: str, *, signed_in: bool) -> None:
        """Refuse a request that comes too soon after others."""
        buckets = (self.everything, *([self.posts] if method == "POST" else [])) if signed_in else (self.strangers,)
        if not all(bucket.spend() for bucket in buckets):
            raise Refusal(TOO_MANY, "requests", method, "come too fast; try again in a second")

    def check_public(self) -> None:
        """Refuse a request for a file of the page, which needs no key, if there are too many of them."""
        if not self.public.spend():
            raise Refusal(TOO_MANY, "requests", "GET", "come too fast; try again in a second")


class Streams:
    """The count of open event streams."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.open = 0
        self.closing = False

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Count one stream while it is open; refuse one too many."""
        if self.open >= self.most:
            raise Refusal(
                TOO_MANY, "streams", self.open, "is the most that can be watched at once; ask for the status instead"
            )
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1
