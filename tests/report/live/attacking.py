"""What strangers do to a server: connect and say nothing, say it slowly, say nonsense. And its owner, who waits."""

from __future__ import annotations

import http.client
import json
import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

SOON_S = 60.0
WORDS = (
    *(b"GET", b"POST", b"PUT", b"", b"get", b"G\x00T", b"\xff"),
    *(b"/", b"/api/studies", b"/api/designs", b"//", b"*", b"/%", b"/%00", b"/" + b"x" * 9000, b"http://evil.com/"),
    *(b"HTTP/1.1", b"HTTP/1.0", b"HTTP/9", b"HTTP/1.1 HTTP/1.1", b"\t", b" "),
)
FIELDS = (
    *(b"Host: 127.0.0.1:%d", b"Host: evil.com", b"Host:", b"Host : x", b" folded", b":", b"\x00: x", b"X: \xff\xfe"),
    *(b"Content-Length: 5", b"Content-Length: -1", b"Content-Length: 99999999999999999999", b"Content-Length: 5, 6"),
    *(b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip, chunked", b"Expect: 100-continue"),
    *(b"Upgrade: websocket", b"Connection: upgrade", b"Connection: keep-alive", b"X-Cosmic: x", b"A: " + b"x" * 30_000),
    *(b"Sec-Fetch-Site: cross-site", b"Origin: null", b"Content-Type: application/json"),
)
BODIES = (
    b"",
    b"{}",
    b"5\r\nhello\r\n0\r\n\r\n",
    b"FFFFFFFFFFFFFFFF\r\n",
    b"-1\r\n\r\n",
    b"\x16\x03\x01",
    b"GET / HTTP/1.1\r\n\r\n",
)


@dataclass
class Owner:
    """The one who was let in, and asks again and again how long it takes."""

    port: int
    key: str
    seconds: list[float] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)

    def ask(self, method: str, target: str, body: Any = None) -> tuple[int, bytes]:
        """Return status and body of an answer, over a connection of its own."""
        own = {"X-Cosmic": self.key}
        if method == "POST":
            own |= {"Origin": f"http://127.0.0.1:{self.port}", "Content-Type": "application/json"}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SOON_S)
        try:
            connection.request(method, target, None if body is None else json.dumps(body), own)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def measure(self, target: str) -> None:
        """Ask once and note how long it took."""
        began = time.monotonic()
        try:
            status = self.ask("GET", target)[0]
        except OSError:
            status = 0
        self.seconds.append(time.monotonic() - began)
        self.statuses.append(status)

    @contextmanager
    def waiting(self, *targets: str, every_s: float = 0.05) -> Iterator[None]:
        """Ask again and again while something else is done."""
        done = threading.Event()

        def go_on() -> None:
            while not done.is_set():
                for target in targets:
                    self.measure(target)
                done.wait(every_s)

        thread = threading.Thread(target=go_on, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join(SOON_S)


def connected(port: int, count: int, first: bytes = b"") -> list[socket.socket]:
    """Return connections that have said *first*, and nothing since."""
    found = []
    for _ in range(count):
        each = socket.create_connection(("127.0.0.1", port), timeout=SOON_S)
        with suppress(OSError):
            each.sendall(first)
        found.append(each)
    return found


def is_closed(connection: socket.socket) -> bool:
    """Return whether the other side has closed a connection; what it said is thrown away."""
    connection.setblocking(False)
    try:
        while connection.recv(65536):
            pass
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def dribble(connections: list[socket.socket], seconds: float, every_s: float = 1.0) -> int:
    """Send a byte over each connection again and again; return how many were cut off."""
    left, ends = list(connections), time.monotonic() + seconds
    while left and time.monotonic() < ends:
        for each in list(left):
            try:
                each.setblocking(False)
                each.send(b"x")
                cut = is_closed(each)
            except BlockingIOError:
                cut = False
            except OSError:
                cut = True
            if cut:
                left.remove(each)
        time.sleep(every_s)
    return len(connections) - len(left)


def close(connections: list[socket.socket]) -> None:
    """Close connections."""
    for each in connections:
        each.close()


def nonsense(port: int, count: int, seed: int, key: str = "") -> Iterator[bytes]:
    """Yield requests that no browser would send; some with the key, so that they come further."""
    rng = random.Random(seed)
    for _ in range(count):
        line = b" ".join(rng.choice(WORDS) for _ in range(rng.choice((1, 2, 3, 3, 3, 3, 4))))
        if rng.random() < 0.5:
            line = rng.choice(
                (b"GET /api/studies HTTP/1.1", b"POST /api/designs HTTP/1.1", b"POST /api/enter HTTP/1.1")
            )
        fields = [rng.choice(FIELDS) for _ in range(rng.randint(0, 6))]
        if rng.random() < 0.6:
            fields.insert(0, b"Host: 127.0.0.1:%d")
        if key and rng.random() < 0.5:
            fields += [b"X-Cosmic: " + key.encode(), b"Origin: http://127.0.0.1:%d"]
        lines = [each.replace(b"%d", str(port).encode()) for each in (line, *fields)]
        end = rng.choice((b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r"))
        request = end.join(lines) + end * 2 + rng.choice(BODIES)
        yield bytes(rng.randrange(256) for _ in range(rng.randint(1, 200))) if rng.random() < 0.1 else request


def status_of(port: int, request: bytes) -> int:
    """Return the status of the answer to some bytes; 0 where none came before the connection was closed."""
    with socket.create_connection(("127.0.0.1", port), timeout=SOON_S) as connection:
        with suppress(OSError):
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
        answer = b""
        with suppress(OSError):
            while len(answer) < 12 and (more := connection.recv(65536)):
                answer += more
    word = answer[9:12]
    return int(word) if answer.startswith(b"HTTP/1.1 ") and word.isdigit() else 0
