"""Access control: every request passes through here, and every answer gets its security headers here.

The page is for one person on this machine. Any other page in the same browser can send requests to 127.0.0.1, and read
answers by DNS rebinding; any other user can send them from a program. So a request needs exactly our host and the key
of a session, which only our page can know and send, and one that changes something also our origin and JSON. Without a
key there are only the files of the front end, the same for everybody. There is no CORS, and there are no cookies.

Tokens work once, and are exchanged for sessions. A token stands in the printed address, after the ``#``, which browsers
send to no server. The page posts it and gets the key of a session, which it keeps in its own storage and sends as a
header. Browsers send cookies to every port of an address, and so to the servers of other users of the machine; storage
belongs to one port.

A browser is started with an address among its arguments, which every user of the machine can read. So it gets the path
of a file that only its owner can read, and that leads to the page. The file is removed once it was used.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import shutil
import sys
import tempfile
import threading
import time
import traceback
import webbrowser
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from pathlib import Path
from threading import Lock
from typing import Any

from cosmic.base.files import write_text
from cosmic.report.live.connections import CONNECTION, Limits, Rates
from cosmic.report.live.request_checks import (
    BAD_METHOD,
    BAD_REQUEST,
    BAD_TYPE,
    BUSY,
    FORBIDDEN,
    LONG_ADDRESS,
    LONG_HEADERS,
    NOT_FOUND,
    TOO_LARGE,
    Refusal,
)

ADDRESS = "127.0.0.1"
"""There is no option for another: to look from elsewhere, tunnel the port."""
HOW_TO_ENTER = "press Enter where 'cosmic ui' runs, or start it again, and open the address that it prints"
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

    channel: str
    ends: float
    used: Callable[[], None]


def _do_nothing() -> None:
    """Do nothing."""


@dataclass(frozen=True)
class AccessKeys:
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

    def address(
        self, channel: str = PRINTED, seconds: float = float("inf"), used: Callable[[], None] = _do_nothing
    ) -> str:
        """Return a new address that lets one browser in, once, within *seconds*; it replaces the one of its channel."""
        token = secrets.token_urlsafe(32)
        with self._lock:
            for digest in [digest for digest, each in self._tokens.items() if each.channel == channel]:
                del self._tokens[digest]
            self._tokens[_digest_secret(token)] = Token(channel, self.clock() + seconds, used)
        return f"http://{ADDRESS}:{self.port}/#token={token}"

    def enter(self, token: str) -> str:
        """Return the key of a new session for a token, which is void from now on."""
        with self._lock:
            issued = self._tokens.pop(_digest_secret(token), None)
        if issued is None or issued.ends < self.clock():
            raise Refusal(FORBIDDEN, "token", "", f"was used, or is too old: {HOW_TO_ENTER}")
        issued.used()
        key = secrets.token_urlsafe(32)
        with self._lock:
            self._sessions[_digest_secret(key)] = Session()
            while len(self._sessions) > MOST_SESSIONS:
                self._sessions.popitem(last=False)
        return key

    def session(self, key: str) -> Session | None:
        """Return the session of a key; None if it is no key."""
        return self._sessions.get(_digest_secret(key))


def _digest_secret(secret: str) -> bytes:
    return sha256(secret.encode("utf-8", "replace")).digest()


Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]

KEY_HEADER = b"x-cosmic"
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
SECURITY_HEADERS = (
    (b"content-security-policy", CONTENT_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)
ENTRANCE_ADDRESS = "/api/enter"
FRONT_FILES = {"/app.js": "text/javascript; charset=utf-8", "/style.css": "text/css; charset=utf-8"}
"""The files of the front end, by address: no request names a file."""
PUBLIC_ADDRESSES = ("/", *FRONT_FILES)
"""Addresses that anybody may ask for."""
JSON_TYPES = (b"application/json", b"application/json;charset=utf-8")


class BrowserGone(Exception):  # noqa: N818  no error, but the end of a request
    """The browser left before it had sent its request."""


class RequestGuard:
    """The access control in front of an application."""

    def __init__(self, app: Asgi, keys: AccessKeys, limits: Limits, rates: Rates | None = None) -> None:
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
                ours = {name for name, _ in SECURITY_HEADERS}
                rest = [(name, value) for name, value in message.get("headers", []) if name.lower() not in ours]
                message["headers"] = [*rest, *SECURITY_HEADERS]
            await send(message)

        async def refused(status: int, said: str) -> None:
            if not began:
                await send_refusal(protected, scope["path"], status, said)

        try:
            await self._handle(scope, receive, protected)
        except BrowserGone:
            return
        except asyncio.CancelledError:  # the server ends: uvicorn would answer 500
            await refused(BUSY, "server = 'ending': it was interrupted")
        except Refusal as refusal:
            await refused(refusal.status, str(refusal))
        except Exception:
            _report_bug()
            if began:
                raise
            await refused(500, "server = 'error': this should not have happened")

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a browser in, or pass its request on."""
        if (key := self._admit(scope)) is not None:
            said = json.dumps({"key": key}).encode()
            await _send_response(send, 200, said, [(b"content-type", b"application/json")])
            return
        receive = await self._bounded(scope, receive)
        await self.app(scope, receive, send)

    # ------------------------------------------------------------------------------------------- admission

    def _admit(self, scope: Scope) -> str | None:
        """Refuse a request without access; return the key of a new session for one with a token."""
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        path, method = scope["path"], scope["method"]
        self._check_size(scope, headers)
        self._check_host(scope, headers)
        if path in PUBLIC_ADDRESSES and method == "GET":
            self.rates.check_public()
            return None
        secrets_sent = _header_values(headers, KEY_HEADER)
        secret = secrets_sent[0].decode("latin-1") if len(secrets_sent) == 1 else ""
        if path == ENTRANCE_ADDRESS and method == "POST":
            return self._enter(scope, headers, secret)
        session = self.keys.session(secret)
        self.rates.check(method, signed_in=session is not None)
        if session is None:
            if not path.startswith("/api"):
                raise Refusal(NOT_FOUND, "address", path, "nothing is at this address")
            raise Refusal(FORBIDDEN, "X-Cosmic", "", f"this browser was not let in: {HOW_TO_ENTER}")
        self._check_origin(method, headers)
        if method == "POST":
            _check_json(headers)
        _note_session(scope, session)
        return None

    def _enter(self, scope: Scope, headers: list[tuple[bytes, bytes]], token: str) -> str:
        """Return the key of a new session; only attempts that fail count against the rate of strangers."""
        try:
            self._check_origin(scope["method"], headers)
            key = self.keys.enter(token)
        except Refusal:
            self.rates.check(scope["method"], signed_in=False)
            raise
        _note_session(scope, None)
        return key

    def _check_size(self, scope: Scope, headers: list[tuple[bytes, bytes]]) -> None:
        address = len(scope.get("raw_path") or b"") + len(scope.get("query_string", b""))
        if address > self.limits.address_bytes:
            raise Refusal(LONG_ADDRESS, "address", address, f"may have {self.limits.address_bytes} bytes")
        size = sum(len(name) + len(value) for name, value in headers)
        if size > self.limits.header_bytes or len(headers) > self.limits.headers:
            raise Refusal(LONG_HEADERS, "headers", size, f"may have {self.limits.header_bytes} bytes in all")

    def _check_host(self, scope: Scope, headers: list[tuple[bytes, bytes]]) -> None:
        hosts = _header_values(headers, b"host")
        if hosts != [self.keys.host]:
            rule = f"is not this server, which is http://{self.keys.host.decode()}"
            raise Refusal(FORBIDDEN, "host", b", ".join(hosts).decode("latin-1"), rule)
        if not scope["path"].startswith("/"):
            raise Refusal(BAD_REQUEST, "address", scope["path"], "must begin with a slash")

    def _check_origin(self, method: str, headers: list[tuple[bytes, bytes]]) -> None:
        if method not in ("GET", "POST"):
            raise Refusal(BAD_METHOD, "method", method, "only GET and POST are answered")
        changes, ours = method == "POST", b"http://" + self.keys.host
        origins = _header_values(headers, b"origin")
        if origins != [ours] if changes else any(origin != ours for origin in origins):
            raise Refusal(FORBIDDEN, "origin", b", ".join(origins).decode("latin-1"), "is not this page's")
        allowed = (b"same-origin",) if changes else (b"same-origin", b"none")
        if any(site not in allowed for site in _header_values(headers, b"sec-fetch-site")):
            raise Refusal(FORBIDDEN, "sec-fetch-site", "", "is another site")

    # ------------------------------------------------------------------------------------------------ body

    async def _bounded(self, scope: Scope, receive: Receive) -> Receive:
        """Return the request with its body read, if it is not too long."""
        lengths = _header_values(scope["headers"], b"content-length")
        if any(not length.isdigit() or len(length) > 12 or int(length) > self.limits.body_bytes for length in lengths):
            raise Refusal(TOO_LARGE, "content-length", "", f"a body may have {self.limits.body_bytes} bytes")
        if scope["method"] != "POST":
            return receive
        body = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise BrowserGone
            body += message.get("body", b"")
            if len(body) > self.limits.body_bytes:
                raise Refusal(TOO_LARGE, "body", len(body), f"may have {self.limits.body_bytes} bytes")
            if not message.get("more_body"):
                break
        pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return pending.pop() if pending else await receive()

        return replay


def _note_session(scope: Scope, session: Session | None) -> None:
    """Tell the application whose request it is, and the connection that it is not a stranger's."""
    state = scope.setdefault("state", {})
    state["session"] = session
    if CONNECTION in state:
        state[CONNECTION].admitted()


def _check_json(headers: list[tuple[bytes, bytes]]) -> None:
    kinds = _header_values(headers, b"content-type")
    if len(kinds) != 1 or kinds[0].lower().replace(b" ", b"") not in JSON_TYPES:
        raise Refusal(BAD_TYPE, "content-type", b", ".join(kinds).decode("latin-1"), "must be application/json")


def _header_values(headers: list[tuple[bytes, bytes]], name: bytes) -> list[bytes]:
    return [value for key, value in headers if key.lower() == name]


def _report_bug() -> None:
    """Print the details of an error of ours at the terminal of the server: the page does not show them."""
    if sys.stderr is not None:
        sys.stderr.write(traceback.format_exc())


async def send_refusal(send: Send, path: str, status: int, said: str) -> None:
    """Answer with a sentence: JSON for programs, a small page for people."""
    extra = [(b"retry-after", b"1")] if status in (429, 503) else []
    if path.startswith("/api"):
        body, kind = json.dumps({"error": said}).encode(), b"application/json"
    else:
        body, kind = (
            problem_page(status, said).encode(errors="backslashreplace"),
            b"text/html; charset=utf-8",
        )
    await _send_response(send, status, body, [(b"content-type", kind), *extra])


async def _send_response(send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


BROWSER_START_S = 120.0
"""How long a browser may take to start."""
LAUNCH_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={address}">
<title>COSMIC</title>
</head>
<body><p><a href="{address}">Open the live page</a></p></body>
</html>
"""


class LaunchFile:
    """A private file with an address that lets one browser in."""

    def __init__(self, keys: AccessKeys, seconds: float = BROWSER_START_S) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="cosmic-ui-"))  # of mode 0700
        self.file = self._folder / "open.html"
        address = keys.address(LAUNCHED, seconds, self.remove)
        write_text(self.file, LAUNCH_PAGE.format(address=escape(address)))
        with suppress(OSError):
            self.file.chmod(0o600)
        self._timer = threading.Timer(seconds, self.remove)
        self._timer.daemon = True
        self._timer.start()

    def open(self) -> None:
        """Open the file in a browser; some run in this terminal until they are left."""
        threading.Thread(target=webbrowser.open, args=(self.file.as_uri(),), daemon=True).start()

    def remove(self) -> None:
        """Remove the file."""
        self._timer.cancel()
        shutil.rmtree(self._folder, ignore_errors=True)


PAGE_TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="data:,">
{links}</head>
<body>
{body}
</body>
</html>
"""
STYLE_LINK = '<link rel="stylesheet" href="/style.css">\n'
SCRIPT_TAG = '<script src="/app.js" defer></script>\n'


def application_page() -> str:
    """Return the page of the application."""
    return PAGE_TEMPLATE.format(
        title="COSMIC",
        links=STYLE_LINK + SCRIPT_TAG,
        body='<div id="app"></div>\n<noscript>This page needs JavaScript. The command line needs none: cosmic --help'
        "</noscript>",
    )


def problem_page(status: int, sentence: str) -> str:
    """Return the page of an error."""
    titles = {403: "Access denied", 404: "Not found", 429: "Too many requests"}
    title = titles.get(status, "Request failed")
    body = f'<main>\n<h1>{title}</h1>\n<p>{escape(sentence)}</p>\n<p><a href="/">All studies</a></p>\n</main>'
    return PAGE_TEMPLATE.format(title=f"{status} · COSMIC", links="" if status == 403 else STYLE_LINK, body=body)


@cache
def front_file(address: str) -> bytes:
    """Return a built file of the front end, one of `FRONT_FILES`."""
    return files("cosmic.report").joinpath("front", address.removeprefix("/")).read_bytes()
