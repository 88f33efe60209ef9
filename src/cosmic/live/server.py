"""The server: one socket on this machine's own address, until it is told to end."""

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
from cosmic.live.designs import asked
from cosmic.live.guard import Keys
from cosmic.live.limits import Limits
from cosmic.live.paths import Root

ADDRESS = "127.0.0.1"
"""There is no option for another: whoever wants to look from elsewhere tunnels the port."""
BACKLOG = 64
MOST_CONNECTIONS = 128
IDLE_S = 20
ENDING_S = 3


class Server(uvicorn.Server):
    """Uvicorn, that tells streams to end when it is to end itself: they would keep it waiting."""

    def __init__(self, config: uvicorn.Config, site: Site) -> None:
        super().__init__(config)
        self.site = site

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End, soon."""
        self.site.streams.closing = True
        super().handle_exit(sig, frame)


@dataclass(frozen=True)
class Open:
    """A server that is ready to run."""

    site: Site
    listening: socket.socket

    def run(self) -> None:
        """Serve until interrupted; then end searches that were begun here, which can be resumed."""
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
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # it would print what strangers send
        server = Server(config, self.site)
        threading.Thread(target=warm, args=(self.site,), daemon=True).start()
        try:
            server.run(sockets=[self.listening])
        finally:
            self.site.close()
            self.listening.close()


def opened(root: Root, port: int = 0, limits: Limits | None = None) -> Open:
    """Return a server that listens, on a free port if *port* is 0."""
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
    """Do once what the first question would otherwise wait for: registries, the catalog, a design."""
    steps: tuple[Callable[[], Any], ...] = (
        forms.offered,
        lambda: views.design(asked(site.library, {"design": "gpt3-175b@cosmic-1024"})),
    )
    for step in steps:
        step()
