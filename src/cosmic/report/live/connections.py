"""Connections: how long each may take to ask, and how many there may be of strangers and of those who were let in.

Anybody on this machine can connect, say nothing, and stay. So a request has to be complete within seconds, however its
bytes are spread; and strangers share a number of places, of which a newcomer takes the one of the oldest: they can only
push out each other. A connection over which a key came is counted apart.

`Limits` are those of the server: sizes, rates, streams, connections, threads and seconds.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import h11
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol

from cosmic.report.live.request_checks import TOO_MANY, Refusal

CONNECTION = "connection"
"""The key of a connection in the state of its requests."""
ANSWERING, HEADER, BODY, IDLE = "answering", "header", "body", "idle"
WANTED_FILES = 4096
"""File descriptors that are asked for; the operating system may grant fewer."""
RESERVED_FILES = 160
"""Of these, what is left for studies, searches and connections that were just accepted."""


class Connection(H11Protocol):
    """One connection, which is closed when its request or its reader is too slow."""

    crowd: ConnectionCrowd

    def __init__(
        self,
        config: Config,
        server_state: Any,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, {**app_state, CONNECTION: self}, _loop)
        self.known = False
        self._phase = ""
        self._timer: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None

    @property
    def phase(self) -> str:
        """What the connection waits for."""
        if self.cycle is not None and not self.cycle.response_complete and self.conn.their_state is not h11.SEND_BODY:
            return ANSWERING
        if self.conn.their_state is h11.SEND_BODY:
            return BODY
        asked = self.cycle is not None
        return IDLE if asked and not self.conn.trailing_data[0] else HEADER

    def admitted(self) -> None:
        """Count the connection with those who were let in."""
        if not self.known:
            self.known = True
            self.crowd.admit(self)

    def drop(self) -> None:
        """Close the connection at once."""
        for timer in (self._timer, self._stalled):
            if timer is not None:
                timer.cancel()
        self._timer = self._stalled = None
        if self.transport is not None:
            self.transport.abort()

    def _follow(self) -> None:
        """Start the clock of a new phase; more bytes of the same one gain no time."""
        phase = self.phase
        if phase == self._phase or self.transport.is_closing():
            return
        self._phase = phase
        if self._timer is not None:
            self._timer.cancel()
        limits = self.crowd.limits
        seconds = {HEADER: limits.header_s, BODY: limits.body_s, IDLE: limits.idle_s}.get(phase)
        self._timer = None if seconds is None else self.loop.call_later(seconds, self.drop)

    # ------------------------------------------------------------------------------------- what uvicorn calls

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a place."""
        super().connection_made(transport)
        self.crowd.enter(self)
        self._follow()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        self.drop()
        self.crowd.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on."""
        try:
            super().data_received(data)
        except h11.LocalProtocolError:  # nonsense after half an answer: there is nothing left to say
            self.drop()
            return
        self._follow()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        with suppress(h11.LocalProtocolError):
            super().on_response_complete()
        self._follow()

    def pause_writing(self) -> None:
        """Note that the other side reads too slowly."""
        super().pause_writing()
        if self._stalled is None:
            self._stalled = self.loop.call_later(self.crowd.limits.stalled_s, self.drop)

    def resume_writing(self) -> None:
        """Note that the other side reads again."""
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def shutdown(self) -> None:
        """End: at once, unless an answer is being worked on."""
        if self.phase == ANSWERING:
            super().shutdown()
        else:
            self.drop()


class ConnectionCrowd:
    """The open connections, the oldest first."""

    def __init__(self, limits: Limits, files: int | None = None) -> None:
        self.limits = limits
        free = max(24, (file_descriptors() if files is None else files) - RESERVED_FILES)
        self.most_strangers = min(limits.strangers, free * 2 // 3)
        self.most_known = min(limits.connections, free // 3)
        self.strangers: dict[Connection, None] = {}
        self.known: dict[Connection, None] = {}

    def enter(self, connection: Connection) -> None:
        """Give a new connection a place."""
        self._make_room(self.strangers, self.most_strangers)
        self.strangers[connection] = None

    def admit(self, connection: Connection) -> None:
        """Count a connection with those who were let in."""
        if connection in self.strangers:
            del self.strangers[connection]
            self._make_room(self.known, self.most_known)
            self.known[connection] = None

    def leave(self, connection: Connection) -> None:
        """Give a place back."""
        self.strangers.pop(connection, None)
        self.known.pop(connection, None)

    @staticmethod
    def _make_room(places: dict[Connection, None], most: int) -> None:
        """Drop the oldest connection that is owed no answer; if all are, the oldest."""
        while len(places) >= most:
            oldest = next((candidate for candidate in places if candidate.phase != ANSWERING), None) or next(
                iter(places)
            )
            del places[oldest]
            oldest.drop()


def connection_class(crowd: ConnectionCrowd) -> type[Connection]:
    """Return the class of the connections of one server."""
    return type("Connection", (Connection,), {"crowd": crowd})


def file_descriptors() -> int:
    """Return how many files this process may have open, after asking for enough."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_FILES if hard == resource.RLIM_INFINITY else min(WANTED_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            return wanted
    return WANTED_FILES if soft == resource.RLIM_INFINITY else soft


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
