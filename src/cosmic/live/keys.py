"""Who is let in: tokens that work once, and the sessions that they are exchanged for.

A token stands in the printed address, after the ``#``, which browsers send to no server. The page posts it and gets the
key of a session, which it keeps in its own storage and sends as a header. There are no cookies: browsers send those to
every port of an address, and so to the servers of other users of the machine. Storage belongs to one port.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from threading import Lock

from cosmic.live.refusals import FORBIDDEN, Refusal

ADDRESS = "127.0.0.1"
"""There is no option for another: to look from elsewhere, tunnel the port."""
ANOTHER = "press Enter where 'cosmic ui' runs, or start it again, and open the address that it prints"
MOST_SESSIONS = 64
"""The oldest is dropped for a new one."""
PRINTED, LAUNCHED = "printed", "launched"
"""Where a token is used: in the address in the terminal, or in the file that is opened in a browser."""


@dataclass
class Session:
    """One browser that was let in."""

    asking: int = 0
    """Its designs that are being evaluated, or wait for it."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(frozen=True)
class Token:
    """A secret that lets one browser in."""

    place: str
    ends: float
    used: Callable[[], None]


def _nothing() -> None:
    """Do nothing."""


@dataclass(frozen=True)
class Keys:
    """The secrets of a server. Only hashes are kept, so that to look one up tells nothing by the time it takes."""

    port: int
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)
    _tokens: dict[bytes, Token] = field(default_factory=dict, repr=False)
    _sessions: OrderedDict[bytes, Session] = field(default_factory=OrderedDict, repr=False)
    _lock: Lock = field(default_factory=Lock, repr=False)

    @property
    def host(self) -> bytes:
        """The one Host header that is accepted: another user may serve ``localhost``, which can be another address."""
        return f"{ADDRESS}:{self.port}".encode()

    def address(self, place: str = PRINTED, seconds: float = float("inf"), used: Callable[[], None] = _nothing) -> str:
        """Return a new address that lets one browser in, once, within *seconds*; it replaces the one in its place."""
        token = secrets.token_urlsafe(32)
        with self._lock:
            for digest in [digest for digest, each in self._tokens.items() if each.place == place]:
                del self._tokens[digest]
            self._tokens[_digest(token)] = Token(place, self.clock() + seconds, used)
        return f"http://{ADDRESS}:{self.port}/#token={token}"

    def enter(self, token: str) -> str:
        """Return the key of a new session for a token, which is void from now on."""
        with self._lock:
            found = self._tokens.pop(_digest(token), None)
        if found is None or found.ends < self.clock():
            raise Refusal(FORBIDDEN, "token", "", f"was used, or is too old: {ANOTHER}")
        found.used()
        key = secrets.token_urlsafe(32)
        with self._lock:
            self._sessions[_digest(key)] = Session()
            while len(self._sessions) > MOST_SESSIONS:
                self._sessions.popitem(last=False)
        return key

    def session(self, key: str) -> Session | None:
        """Return the session of a key; None if it is no key."""
        return self._sessions.get(_digest(key))


def _digest(secret: str) -> bytes:
    return sha256(secret.encode("utf-8", "replace")).digest()
