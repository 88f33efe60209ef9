"""Requests put straight to the application, byte for byte as a server would hand them on."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import quote, unquote

from cosmic.report.live.access_control import AccessKeys, RequestGuard
from cosmic.report.live.connections import Limits
from cosmic.report.live.server import LiveSite, make_guarded_application
from cosmic.report.live.study_paths import StudyRoot

PORT = 8123
ORIGIN = f"http://127.0.0.1:{PORT}"
Headers = Sequence[tuple[str, str]]


@dataclass
class Answer:
    """What came back."""

    status: int = 0
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""

    def header(self, name: str) -> str | None:
        """Return the one header of that name."""
        found = [value for key, value in self.headers if key.lower() == name]
        assert len(found) <= 1, found
        return found[0] if found else None

    @property
    def json(self) -> Any:
        """The body as plain data."""
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """The sentence of a refusal: there is nothing else in it."""
        content = self.json
        assert list(content) == ["error"], content
        return str(content["error"])


class Client:
    """A browser that was let in, and does as it is told."""

    def __init__(self, site: LiveSite, guard: RequestGuard | None = None) -> None:
        self.site = site
        self.guard = guard or make_guarded_application(site)
        self.loop = asyncio.new_event_loop()
        self.key = site.keys.enter(token_of(site.keys.address()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.site.close()
        self.loop.close()

    @property
    def usual(self) -> list[tuple[str, str]]:
        """The headers of a request of the page's own."""
        return [("host", f"127.0.0.1:{PORT}"), ("x-cosmic", self.key), ("sec-fetch-site", "same-origin")]

    def get(self, target: str, headers: Headers = ()) -> Answer:
        """Ask for something."""
        return self.ask("GET", target, [*self.usual, *headers])

    def post(self, target: str, body: Any) -> Answer:
        """Send something, as the page does."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        own = [("origin", ORIGIN), ("content-type", "application/json")]
        return self.ask("POST", target, [*self.usual, *own], content)

    def ask(self, method: str, target: str, headers: Headers, body: bytes = b"") -> Answer:
        """Return the answer to a request, which may have anything in it."""
        return self.loop.run_until_complete(self._ask(method, target, headers, body))

    async def _ask(self, method: str, target: str, headers: Headers, body: bytes) -> Answer:
        raw, _, query = target.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(raw, errors="replace"),
            "raw_path": raw.encode("utf-8", "surrogatepass"),
            "query_string": query.encode("utf-8", "surrogatepass"),
            "root_path": "",
            "headers": [
                (name.lower().encode("latin-1", "replace"), value.encode("latin-1", "replace"))
                for name, value in headers
            ],
            "client": ("127.0.0.1", 50000),
            "server": ("127.0.0.1", PORT),
        }
        answer, parts = Answer(), [body[at : at + 65536] for at in range(0, len(body), 65536)] or [b""]
        sent = iter(parts)
        left = len(parts)

        async def receive() -> dict[str, Any]:
            nonlocal left
            if left:
                left -= 1
                return {"type": "http.request", "body": next(sent), "more_body": left > 0}
            await asyncio.sleep(3600)
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                assert not answer.status, "two answers"
                answer.status = message["status"]
                answer.headers = [(key.decode("latin-1"), value.decode("latin-1")) for key, value in message["headers"]]
            else:
                answer.body += message.get("body", b"")

        await self.guard(scope, receive, send)
        return answer


def token_of(address: str) -> str:
    """Return the token of an address."""
    return address.partition("#token=")[2]


def spoken(name: str) -> str:
    """Return a name as a careful client puts it into an address."""
    return quote(name.encode("utf-8", "surrogatepass"), safe="")


def site_at(root: Any, **limits: Any) -> LiveSite:
    """Return a site that is in no hurry: rates are tested apart."""
    usual = {"requests_per_s": 1e9, "posts_per_s": 1e9, "strangers_per_s": 1e9}
    return LiveSite(StudyRoot.resolve(root), AccessKeys(PORT), Limits(**{**usual, **limits}))


def tell(text: str) -> None:
    """Print how much was tried: shown with -s, and where a test fails."""
    sys.stdout.write(text + "\n")
