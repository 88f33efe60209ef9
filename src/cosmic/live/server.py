"""The server: one socket on the loopback address, until it is interrupted."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

import uvicorn

from cosmic.errors import SpecError
from cosmic.live import forms, views
from cosmic.live.app import Site, guarded
from cosmic.live.guard import Keys
from cosmic.live.limits import Limits
from cosmic.live.paths import Root
from cosmic.live.requested_designs import requested

ADDRESS = "127.0.0.1"
"""There is no option for another: to look from elsewhere, tunnel the port."""
BACKLOG = 64
MOST_CONNECTIONS = 128
IDLE_S = 20
ENDING_S = 3


class Server(uvicorn.Server):
    """Uvicorn that also ends event streams when it ends: it would wait for them."""

    def __init__(self, config: uvicorn.Config, site: Site) -> None:
        super().__init__(config)
        self.site = site

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End the streams, then the server."""
        self.site.streams.closing = True
        super().handle_exit(sig, frame)


@dataclass(frozen=True)
class Open:
    """A server that is ready to run."""

    site: Site
    listening: socket.socket

    def run(self) -> None:
        """Serve until interrupted; then interrupt the searches that were started here."""
        config = uvicorn.Config(
            guarded(self.site),
            http="h11",
            loop="asyncio",
            ws="none",
            lifespan="off",
            access_log=False,  # addresses may hold the token
            log_config=None,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=MOST_CONNECTIONS,
            h11_max_incomplete_event_size=self.site.limits.header_bytes + self.site.limits.address_bytes,
            timeout_keep_alive=IDLE_S,
            timeout_graceful_shutdown=ENDING_S,
        )
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # it would print bytes of refused requests
        server = Server(config, self.site)
        threading.Thread(target=warm, args=(self.site,), daemon=True).start()
        try:
            server.run(sockets=[self.listening])
        finally:
            self.site.close()
            self.listening.close()


def opened(root: Root, port: int = 0, limits: Limits | None = None) -> Open:
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
    keys = Keys(listening.getsockname()[1])
    return Open(Site(root, keys, limits or Limits()), listening)


def warm(site: Site) -> None:
    """Load registries and catalog and evaluate a design, so that the first request does not wait for it."""
    steps: tuple[Callable[[], Any], ...] = (
        forms.offered,
        lambda: views.design(requested(site.library, {"design": "gpt3-175b@cosmic-1024"})),
    )
    for step in steps:
        step()
