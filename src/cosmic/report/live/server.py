"""The server: one socket on the loopback address, until it is interrupted."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import uvicorn

from cosmic.base.errors import SpecError
from cosmic.report.live import search_form, study_library
from cosmic.report.live.access_control import ADDRESS, AccessKeys
from cosmic.report.live.application import LiveSite, make_guarded_application
from cosmic.report.live.connections import ConnectionCrowd, Limits, connection_class
from cosmic.report.live.requested_designs import requested_design
from cosmic.report.live.study_paths import StudyRoot

ACCEPTED = 64
"""Connections that are accepted in one go, before room is made for them."""
BACKLOG = 2048
"""Connections that the operating system holds ready: a browser that finds no place there tries again a second later."""
ANSWERING_S = 1
"""How long answers may take to end once the server is interrupted."""
ENDING_S = 2.8
"""How long everything may take to end."""
INTERRUPTED = 130
INTERRUPTS = (signal.SIGINT, signal.SIGTERM)


class LoopbackServer(uvicorn.Server):
    """Uvicorn that ends in time whatever is going on: it would wait for streams, threads and silent connections."""

    def __init__(self, config: uvicorn.Config, opened: ListeningServer) -> None:
        super().__init__(config)
        self._opened = opened

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen with a long queue, and take signals from here on."""
        signal.pthread_sigmask(signal.SIG_UNBLOCK, INTERRUPTS)
        asyncio.get_running_loop().set_exception_handler(_ignore_lost_connections)
        await super().startup(sockets)
        for each in sockets or ():
            each.listen(BACKLOG)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End the streams and searches, then the server; the second time at once."""
        if self.should_exit:
            self._opened.abandon(INTERRUPTED)
        self._opened.site.streams.closing = True
        threading.Thread(target=self._see_to_it, daemon=True).start()
        super().handle_exit(sig, frame)

    def _see_to_it(self) -> None:
        """Interrupt the searches, and end the process if it has not ended in time."""
        self._opened.site.searches.interrupt()
        time.sleep(ENDING_S)
        self._opened.abandon(0)


@dataclass(frozen=True)
class ListeningServer:
    """A server that is ready to run."""

    site: LiveSite
    listening: socket.socket
    endings: list[Callable[[], None]] = field(default_factory=list)
    """Called when it ends."""

    def run(self) -> None:
        """Serve until interrupted; then interrupt the searches that were started here."""
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # it would print bytes of refused requests
        server = self.server()
        signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTS)  # until the server has its handlers
        warming = threading.Thread(target=warm_up, args=(self.site,), daemon=True)
        warming.start()
        try:
            server.run(sockets=[self.listening])
        finally:
            self.close()
            warming.join(ENDING_S)  # libraries abort where the process ends while a thread is inside them

    def server(self) -> LoopbackServer:
        """Return the server, which is not running yet."""
        limits = self.site.limits
        config = uvicorn.Config(
            make_guarded_application(self.site),
            http=connection_class(ConnectionCrowd(limits)),
            loop="asyncio",
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=False,
            backlog=ACCEPTED,
            h11_max_incomplete_event_size=limits.header_bytes + limits.address_bytes,
            timeout_keep_alive=int(limits.idle_s) + 1,  # a connection looks after itself
            timeout_graceful_shutdown=ANSWERING_S,
        )
        return LoopbackServer(config, self)

    def close(self) -> None:
        """End everything that was begun."""
        for ending in self.endings:
            ending()
        self.listening.close()
        self.site.close()

    def abandon(self, status: int) -> None:
        """End the process without waiting for anything."""
        self.site.searches.kill()
        for ending in self.endings:
            ending()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)


def _ignore_lost_connections(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Say nothing of connections that failed: whoever caused it is not at this terminal."""
    if not isinstance(context.get("exception"), OSError):
        loop.default_exception_handler(context)


def open_server(root: StudyRoot, port: int = 0, limits: Limits | None = None) -> ListeningServer:
    """Return a listening server, on a free port if *port* is 0."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((ADDRESS, port))
        listening.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        listening.close()
        reason = getattr(error, "strerror", None) or "is no port"
        raise SpecError("--port", port, f"cannot be listened on ({reason}); 0 takes one that is free") from None
    listening.set_inheritable(False)
    keys = AccessKeys(listening.getsockname()[1])
    return ListeningServer(LiveSite(root, keys, limits or Limits()), listening)


def warm_up(site: LiveSite) -> None:
    """Load registries and catalog and evaluate a design, so that the first request does not wait for it."""
    steps: tuple[Callable[[], Any], ...] = (
        search_form.form_choices,
        lambda: study_library.pack_design(requested_design(site.library, {"design": "gpt3-175b@cosmic-1024"})),
    )
    for step in steps:
        step()
