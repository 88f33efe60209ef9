"""Strangers on the same machine can neither keep the owner out nor keep the server from ending."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from cosmic.live.connections import Crowd
from cosmic.live.limits import Limits
from cosmic.live.paths import Root
from cosmic.live.server import Open, opened
from tests.live.asking import tell, token_of
from tests.live.attacking import Owner, close, connected, dribble, is_closed, nonsense, status_of

QUICK = Limits(header_s=0.6, body_s=0.6, idle_s=0.6, stalled_s=0.6, requests_per_s=1e6, strangers_per_s=1e6)
PATIENT = Limits(header_s=600, body_s=600, requests_per_s=1e6, strangers_per_s=1e6)
SOON_S = 30.0
MANY = 520


def running(server: Open) -> Iterator[Owner]:
    """Yield the owner of a server that runs in a thread."""
    uvicorn = server.server()
    thread = threading.Thread(target=uvicorn.run, kwargs={"sockets": [server.listening]}, daemon=True)
    thread.start()
    keys = server.site.keys
    yield Owner(keys.port, keys.enter(token_of(keys.address())))
    server.site.streams.closing = True
    uvicorn.should_exit = True
    thread.join(SOON_S)
    server.close()
    assert not thread.is_alive()


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Owner]:
    """A server with little patience."""
    yield from running(opened(Root.at(tmp_path_factory.mktemp("quick")), 0, QUICK))


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[Owner]:
    """A server that lets strangers wait as long as there is room."""
    yield from running(opened(Root.at(tmp_path), 0, PATIENT))


def head(port: int, key: str = "", length: int = 10) -> bytes:
    """Return the head of a request with a body."""
    own = f"X-Cosmic: {key}\r\nOrigin: http://127.0.0.1:{port}\r\nContent-Type: application/json\r\n" if key else ""
    return f"POST /api/count HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{own}Content-Length: {length}\r\n\r\n".encode()


def test_whoever_does_not_finish_asking_is_cut_off(quick: Owner) -> None:
    ways = {
        "silent": b"",
        "half a line": b"GET / HT",
        "half a head": b"GET / HTTP/1.1\r\nHost: x\r\nA: ",
        "half a body of a stranger": head(quick.port),
        "half a body": head(quick.port, quick.key) + b'{"s',
        "done": f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{quick.port}\r\n\r\n".encode(),
    }
    all_of_them = {name: connected(quick.port, 1, first)[0] for name, first in ways.items()}
    left, ends = list(all_of_them), time.monotonic() + SOON_S
    while left and time.monotonic() < ends:
        left = [name for name in left if not is_closed(all_of_them[name])]
        time.sleep(0.05)
    close(list(all_of_them.values()))
    assert not left, "nobody stays for ever"


@pytest.mark.parametrize("length", [0, 10_000])
def test_a_byte_now_and_then_gains_no_time(quick: Owner, length: int) -> None:
    begun = head(quick.port, quick.key, length) if length else b"GET / HTTP/1.1\r\nA: "
    slow = connected(quick.port, 5, begun)
    assert dribble(slow, SOON_S, 0.1) == 5
    close(slow)


def test_who_does_not_read_is_cut_off(quick: Owner) -> None:
    request = f"GET /app.js HTTP/1.1\r\nHost: 127.0.0.1:{quick.port}\r\n\r\n".encode()
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", quick.port))
        with suppress(OSError):
            slow.settimeout(SOON_S)
            slow.sendall(request * 200)
        time.sleep(2.0)
        slow.settimeout(SOON_S)
        received = 0
        with suppress(OSError):  # it is reset
            while more := slow.recv(2**20):
                received += len(more)
    assert received < 200 * 2**16


def test_silent_connections_push_out_each_other_and_not_the_owner(patient: Owner) -> None:
    kept = connected(patient.port, 1)[0]
    usual = f"GET /api/session HTTP/1.1\r\nHost: 127.0.0.1:{patient.port}\r\nX-Cosmic: {patient.key}\r\n\r\n".encode()
    kept.sendall(usual)
    assert kept.recv(12) == b"HTTP/1.1 200"
    with patient.waiting("/api/session", "/api/studies", "/"):
        silent = connected(patient.port, MANY)
        slow = connected(patient.port, 100, b"POST /api/enter HTTP/1.1\r\nA: ")
        time.sleep(0.5)
    assert set(patient.statuses) == {200}
    assert sum(map(is_closed, silent)) >= MANY + 100 - PATIENT.strangers
    is_closed(kept)  # throws away what it has said
    kept.setblocking(True)
    kept.sendall(usual)
    assert kept.recv(12) == b"HTTP/1.1 200", "a connection with a key is not a stranger's"
    tell(f"{len(patient.seconds)} answers among {MANY + 100} strangers, the slowest in {max(patient.seconds):.2f} s")
    assert sorted(patient.seconds)[len(patient.seconds) // 2] < 1.0
    close([*silent, *slow, kept])


def test_few_files_leave_room_for_fewer_connections() -> None:
    for files in (10, 256, 1024, 4096):
        crowd = Crowd(Limits(), files)
        assert crowd.most_strangers >= 16
        assert crowd.most_known >= 8
        assert crowd.most_strangers + crowd.most_known < max(files, 25)
    assert (crowd.most_strangers, crowd.most_known) == (256, 128)


def test_nonsense_is_answered_with_a_status_below_500(quick: Owner) -> None:
    statuses: Counter[int] = Counter()
    for request in nonsense(quick.port, 400, 1, quick.key):
        statuses[status_of(quick.port, request)] += 1
    tell(f"nonsense: {dict(sorted(statuses.items()))}")
    assert all(status < 500 for status in statuses)
    assert statuses[400] > 50
    assert quick.ask("GET", "/api/session")[0] == 200


# ------------------------------------------------------------------------------------------------------ Ctrl-C

HANGING = """
import sys, threading, time
from cosmic.live import library
def rows(self):
    sys.stderr.write("hangs\\n")
    sys.stderr.flush()
    {how}
library.Library.rows = rows
from cosmic.cli import main
sys.argv = ["cosmic", "ui", sys.argv[1], "--no-browser", "--json"]
main()
"""


@pytest.mark.parametrize(("how", "signals"), [("threading.Event().wait()", 1), ("while True: pass", 2)])
def test_ctrl_c_ends_it_whatever_is_going_on(tmp_path: Path, how: str, signals: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HANGING.format(how=how), str(tmp_path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        about = json.loads("".join(iter(process.stdout.readline, "}\n")) + "}")
        port = about["port"]
        owner = Owner(port, token_of(about["url"]))
        owner.key = json.loads(owner.ask("POST", "/api/enter")[1])["key"]
        usual = f"GET /api/studies HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nX-Cosmic: {owner.key}\r\n\r\n".encode()
        held = [*connected(port, 20), *connected(port, 1, usual), *connected(port, 5, head(port, owner.key))]
        assert process.stderr.readline() == "hangs\n"
        began = time.monotonic()
        for _ in range(signals):
            process.send_signal(signal.SIGINT)
            time.sleep(0.3)
        out, err = process.communicate(timeout=SOON_S)
        took = time.monotonic() - began
        close(held)
    assert process.returncode == (0 if signals == 1 else 130)
    assert (out, err) == ("", "")
    tell(f"{signals} Ctrl-C: {took:.1f} s")
    assert took < 10
