"""Server-sent events of a study that grows: counts and state only; the page requests the trials separately."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from cosmic.errors import CosmicError
from cosmic.live.library import Pulse
from cosmic.live.limits import Streams

INTERVAL_S = 0.5
"""At most two events a second."""
HEARTBEAT_S = 15.0
RETRY_MS = 2000


def spoken(pulse: Pulse) -> str:
    r"""Return an event as it is sent.

    >>> spoken(Pulse(10, 0.5, "running"))
    'id: 40\ndata: {"seq": 40, "n": 10, "best": 0.5, "state": "running"}\n\n'
    """
    return f"id: {pulse.seq}\ndata: {json.dumps(pulse.event)}\n\n"


async def watch(look: Callable[[], Awaitable[Pulse]], streams: Streams, last: str = "") -> AsyncIterator[str]:
    """Yield an event whenever a study changes, until the server ends.

    *look* returns its progress, *last* is the id of the last event seen.
    """
    seen = int(last) if last.isascii() and last.isdigit() and len(last) < 16 else None
    yield f"retry: {RETRY_MS}\n\n"
    spoke = time.monotonic()
    while not streams.closing:
        try:
            pulse = await look()
        except CosmicError:  # it was removed, or the server is busy: the page asks again
            return
        if pulse.seq != seen:
            seen, spoke = pulse.seq, time.monotonic()
            yield spoken(pulse)
        elif time.monotonic() - spoke >= HEARTBEAT_S:
            spoke = time.monotonic()
            yield ": still here\n\n"
        await asyncio.sleep(INTERVAL_S)
