"""Access control: every request passes through here, and every answer gets its security headers here.

The page is for one person on this machine. Any other page in the same browser can send requests to 127.0.0.1, and read
answers by DNS rebinding. So a request needs exactly our host and our cookie, and one that changes something also our
origin, our header and JSON. Nothing is matched by prefix or pattern; there is no CORS.
"""

from __future__ import annotations

import json
import secrets
import sys
import traceback
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from hmac import compare_digest
from typing import Any
from urllib.parse import parse_qsl

from cosmic.live import pages
from cosmic.live.limits import Limits, Rates
from cosmic.live.refusals import (
    BAD_METHOD,
    BAD_REQUEST,
    BAD_TYPE,
    FORBIDDEN,
    LONG_ADDRESS,
    LONG_HEADERS,
    TOO_LARGE,
    Refusal,
)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]

HEADER = b"x-cosmic"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
PROTECTION = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)
ENTRANCE = "/"


@dataclass(frozen=True)
class Keys:
    """The secrets that admit a browser: the token in the printed address, and the cookie that it is exchanged for."""

    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    cookie: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    @property
    def name(self) -> str:
        """The name of the cookie, with the port: browsers share cookies between ports."""
        return f"cosmic-{self.port}"

    @property
    def hosts(self) -> tuple[bytes, ...]:
        """The Host headers that are accepted."""
        return tuple(f"{name}:{self.port}".encode() for name in ("127.0.0.1", "localhost"))

    @property
    def address(self) -> str:
        """The address to open, with the token."""
        return f"http://127.0.0.1:{self.port}/?token={self.token}"

    def opens(self, given: str, wanted: str) -> bool:
        """Return whether a secret is right, in constant time."""
        return compare_digest(given.encode("utf-8", "replace"), wanted.encode())


class Guard:
    """The access control in front of an application."""

    def __init__(self, app: Asgi, keys: Keys, limits: Limits, rates: Rates | None = None) -> None:
        self.app, self.keys, self.limits = app, keys, limits
        self.rates = rates or Rates(limits)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = False

        async def protected(message: Message) -> None:
            nonlocal began
            if message["type"] == "http.response.start":
                began = True
                ours = {name for name, _ in PROTECTION}
                rest = [(name, value) for name, value in message.get("headers", []) if name.lower() not in ours]
                message["headers"] = [*rest, *PROTECTION]
            await send(message)

        try:
            if (cookie := self._admit(scope)) is not None:
                await _respond(protected, 303, b"", [(b"location", b"/"), (b"set-cookie", cookie)])
                return
            receive = await self._bounded(scope, receive)
            await self.app(scope, receive, protected)
        except Refusal as refusal:
            if not began:
                await refuse(protected, scope["path"], refusal.status, str(refusal))
        except Exception:
            # A bug: the details go to the terminal of the server, not to the page.
            if sys.stderr is not None:
                sys.stderr.write(traceback.format_exc())
            if began:
                raise
            await refuse(protected, scope["path"], 500, "server = 'error': this should not have happened")

    # ------------------------------------------------------------------------------------------- admission

    def _admit(self, scope: Scope) -> bytes | None:
        """Refuse a request without access; return the cookie for one with the token."""
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        self._check_size(scope, headers)
        self._check_host(scope, headers)
        known = self._has_cookie(headers)
        self.rates.check(scope["method"], known=known)
        if scope["path"] == ENTRANCE and scope["method"] == "GET" and self._has_token(scope):
            return f"{self.keys.name}={self.keys.cookie}; Path=/; HttpOnly; SameSite=Strict".encode()
        if not known:
            raise Refusal(FORBIDDEN, "cookie", "", "open the address that 'cosmic ui' printed")
        self._check_origin(scope, headers)
        return None

    def _check_size(self, scope: Scope, headers: list[tuple[bytes, bytes]]) -> None:
        address = len(scope.get("raw_path") or b"") + len(scope.get("query_string", b""))
        if address > self.limits.address_bytes:
            raise Refusal(LONG_ADDRESS, "address", address, f"may have {self.limits.address_bytes} bytes")
        size = sum(len(name) + len(value) for name, value in headers)
        if size > self.limits.header_bytes or len(headers) > self.limits.headers:
            raise Refusal(LONG_HEADERS, "headers", size, f"may have {self.limits.header_bytes} bytes in all")

    def _check_host(self, scope: Scope, headers: list[tuple[bytes, bytes]]) -> None:
        hosts = _all(headers, b"host")
        if len(hosts) != 1 or hosts[0] not in self.keys.hosts:
            raise Refusal(FORBIDDEN, "host", b", ".join(hosts).decode("latin-1"), "is not this server")
        if not scope["path"].startswith("/"):
            raise Refusal(BAD_REQUEST, "address", scope["path"], "must begin with a slash")

    def _has_cookie(self, headers: list[tuple[bytes, bytes]]) -> bool:
        cookies = b";".join(_all(headers, b"cookie")).decode("latin-1").split(";")
        pairs = (cookie.strip().partition("=") for cookie in cookies)
        return any(self.keys.opens(value, self.keys.cookie) for name, _, value in pairs if name == self.keys.name)

    def _has_token(self, scope: Scope) -> bool:
        try:
            query = scope["query_string"].decode("ascii")
            pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=20)
        except ValueError:
            return False
        given = [value for name, value in pairs if name == "token"]
        return len(given) == 1 and self.keys.opens(given[0], self.keys.token)

    def _check_origin(self, scope: Scope, headers: list[tuple[bytes, bytes]]) -> None:
        method, changes = scope["method"], scope["method"] != "GET"
        if method not in ("GET", "POST"):
            raise Refusal(BAD_METHOD, "method", method, "only GET and POST are answered")
        origins, (host,) = _all(headers, b"origin"), _all(headers, b"host")
        if origins != [b"http://" + host] if changes else any(each != b"http://" + host for each in origins):
            raise Refusal(FORBIDDEN, "origin", b", ".join(origins).decode("latin-1"), "is not this page's")
        allowed = (b"same-origin",) if changes else (b"same-origin", b"none")
        if any(site not in allowed for site in _all(headers, b"sec-fetch-site")):
            raise Refusal(FORBIDDEN, "sec-fetch-site", "", "is another site")
        if changes:
            if _all(headers, HEADER) != [b"1"]:
                raise Refusal(FORBIDDEN, "X-Cosmic", "", "must be 1: only this page's own script can send it")
            kinds = _all(headers, b"content-type")
            if len(kinds) != 1 or kinds[0].lower().replace(b" ", b"") not in JSON_TYPES:
                raise Refusal(BAD_TYPE, "content-type", b", ".join(kinds).decode("latin-1"), "must be application/json")

    # ------------------------------------------------------------------------------------------------ body

    async def _bounded(self, scope: Scope, receive: Receive) -> Receive:
        """Return the request with its body read, if it is not too long."""
        lengths = _all(scope["headers"], b"content-length")
        if any(not length.isdigit() or len(length) > 12 or int(length) > self.limits.body_bytes for length in lengths):
            raise Refusal(TOO_LARGE, "content-length", "", f"a body may have {self.limits.body_bytes} bytes")
        if scope["method"] != "POST":
            return receive
        body = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return receive
            body += message.get("body", b"")
            if len(body) > self.limits.body_bytes:
                raise Refusal(TOO_LARGE, "body", len(body), f"may have {self.limits.body_bytes} bytes")
            if not message.get("more_body"):
                break
        pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return pending.pop() if pending else await receive()

        return replay


JSON_TYPES = (b"application/json", b"application/json;charset=utf-8")


def _all(headers: list[tuple[bytes, bytes]], name: bytes) -> list[bytes]:
    return [value for key, value in headers if key.lower() == name]


async def refuse(send: Send, path: str, status: int, said: str) -> None:
    """Answer with a sentence: JSON for programs, a small page for people."""
    extra = [(b"retry-after", b"1")] if status in (429, 503) else []
    if path.startswith("/api"):
        body, kind = json.dumps({"error": said}).encode(), b"application/json"
    else:
        body, kind = pages.problem(status, said).encode(errors="backslashreplace"), b"text/html; charset=utf-8"
    await _respond(send, status, body, [(b"content-type", kind), *extra])


async def _respond(send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})
