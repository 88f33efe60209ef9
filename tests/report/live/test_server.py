"""The server as people start it: a process, a socket, Ctrl-C."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cosmic.search.study.doctor import examine_study
from cosmic.search.study.study import open_study
from tests.commands import run
from tests.report.live.asking import tell, token_of
from tests.report.live.conftest import SPACE

SOON_S = 60.0


@dataclass
class Running:
    """A server in a process of its own, and a browser that was let in."""

    process: subprocess.Popen[str]
    url: str
    port: int
    root: Path
    key: str = ""

    def ask(self, method: str, target: str, body: Any = None, **headers: str) -> tuple[int, bytes, Any]:
        """Return status, body and headers of an answer."""
        own = {"X-Cosmic": self.key, **headers}
        if method == "POST":
            own |= {"Origin": f"http://127.0.0.1:{self.port}", "Content-Type": "application/json"}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SOON_S)
        try:
            connection.request(method, target, None if body is None else json.dumps(body), own)
            answer = connection.getresponse()
            return answer.status, answer.read(), answer.headers
        finally:
            connection.close()

    def json(self, target: str) -> Any:
        """Return plain data."""
        status, body, _ = self.ask("GET", target)
        assert status == 200, body
        return json.loads(body)

    def until(self, target: str, more_than: int = 0, **wanted: Any) -> Any:
        """Return a row once it is as wanted, and has more trials than so many."""
        ends = time.monotonic() + SOON_S
        while time.monotonic() < ends:
            row = self.json(target)
            if all(row[key] == value for key, value in wanted.items()) and (row["n"] or 0) > more_than:
                return row
            time.sleep(0.1)
        raise AssertionError((wanted, more_than, row))

    def raw(self, sent: bytes) -> bytes:
        """Return what comes back for bytes as they are."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=SOON_S) as connection:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: connection.recv(65536), b""))


def start(root: Path) -> Running:
    """Return a server that answers."""
    process = subprocess.Popen(
        [sys.executable, "-m", "cosmic", "ui", str(root), "--no-browser", "--json"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    about = told(process)
    server = Running(process, about["url"], about["port"], root)
    status, body, _ = server.ask("POST", "/api/enter", **{"X-Cosmic": token_of(server.url)})
    assert status == 200, body
    server.key = json.loads(body)["key"]
    return server


def told(process: subprocess.Popen[str]) -> Any:
    """Return what a server prints next."""
    assert process.stdout is not None
    return json.loads("".join(iter(process.stdout.readline, "}\n")) + "}")


def end(server: Running) -> tuple[int, str, float]:
    """Return the status with which a server ends on Ctrl-C, what it said, and how long that took."""
    began = time.monotonic()
    server.process.send_signal(signal.SIGINT)
    out, err = server.process.communicate(timeout=SOON_S)
    return server.process.returncode, out + err, time.monotonic() - began


@contextmanager
def serving(original: Path, root: Path) -> Iterator[Running]:
    """Yield a server over one study."""
    shutil.copytree(original, root / "study")
    running = start(root)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.kill()
            running.process.communicate()


@pytest.fixture
def server(original: Path, tmp_path: Path) -> Iterator[Running]:
    """A server of a test's own, which may end it."""
    with serving(original, tmp_path / "runs") as running:
        yield running


@pytest.fixture(scope="module")
def shared(original: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server for those who only ask."""
    with serving(original, tmp_path_factory.mktemp("shared") / "runs") as running:
        yield running


@pytest.mark.long
def test_a_search_is_started_watched_stopped_resumed_and_survives_the_servers_end(server: Running) -> None:
    status, body, _ = server.ask(
        "POST", "/api/searches", {"space": SPACE, "agent": "random", "trials": 900_000, "fixed": {"workload.pp": 1}}
    )
    assert status == 201, body
    name = json.loads(body)["study"]
    target = f"/api/studies/{name}/status"
    assert server.json(target)["state"] == "running"
    row = server.until(target)
    assert (row["state"], row["ours"], row["space"]) == ("running", True, f"{SPACE}-narrowed")

    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=SOON_S)
    connection.request("GET", f"/api/studies/{name}/events", headers={"X-Cosmic": server.key})
    stream = connection.getresponse()
    assert stream.headers["content-type"].startswith("text/event-stream")
    events: list[dict[str, Any]] = []
    times = []
    while len(events) < 3:
        line = stream.readline().decode()
        assert line, "the stream ended"
        if line.startswith("data: "):
            events.append(json.loads(line.removeprefix("data: ")))
            times.append(time.monotonic())
    connection.close()
    assert [event["n"] for event in events] == sorted({event["n"] for event in events})
    assert times[2] - times[0] > 0.7, "at most two a second"

    assert server.ask("POST", f"/api/studies/{name}/resume", {})[0] == 409
    assert server.ask("POST", f"/api/studies/{name}/stop", {})[0] == 202
    row = server.until(target, state="stopped")
    assert (row["ours"], row["failure"]) == (False, None)
    assert 0 < row["n"] < 900_000
    assert server.ask("POST", f"/api/studies/{name}/stop", {})[0] == 409
    assert server.ask("POST", f"/api/studies/{name}/resume", {"trials": 5})[0] == 422
    assert server.ask("POST", f"/api/studies/{name}/resume", {"trials": 900_001})[0] == 202
    server.until(target, row["n"])
    status, said, _ = end(server)
    assert status == 0
    assert "Traceback" not in said
    assert token_of(server.url) not in said
    study = open_study(server.root / name)
    assert row["n"] < len(study.trials) < 900_000
    assert study.inputs.trials == 900_001
    assert examine_study(server.root / name).whole
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert str(server.root).encode() not in process.read_bytes(), "a search is left"
        except OSError:
            continue


def test_the_socket_is_this_machines_alone(shared: Running) -> None:
    for address in ("127.0.0.2", "127.1.1.1"):
        with pytest.raises(OSError, match=r"."), socket.create_connection((address, shared.port), timeout=2):
            pass
    host = f"Host: 127.0.0.1:{shared.port}\r\nX-Cosmic: {shared.key}\r\n"
    good = shared.raw(f"GET /api/session HTTP/1.1\r\n{host}Connection: close\r\n\r\n".encode())
    assert good.startswith(b"HTTP/1.1 200")
    assert b"server:" not in good.lower()
    for request, wanted in (
        (f"GET http://evil.com/api/studies HTTP/1.1\r\n{host}\r\n", (b"400", b"404")),
        (f"GET /api/studies HTTP/1.1\r\n{host}Host: evil.com\r\n\r\n", (b"400", b"403")),
        (f"GET /api/studies HTTP/1.1\r\nHost: evil.com:{shared.port}\r\n\r\n", (b"403",)),
        ("GET /api/studies HTTP/1.1\r\n\r\n", (b"400", b"403")),
        (f"GET /api/studies HTTP/1.0\r\nX-Cosmic: {shared.key}\r\n\r\n", (b"403",)),
        (f"GET /api/studies/..%2f..%2fetc HTTP/1.1\r\n{host}Connection: close\r\n\r\n", (b"404",)),
        (f"GET /{'x' * 30000} HTTP/1.1\r\n{host}\r\n", (b"400", b"414")),
        (f"GET / HTTP/1.1\r\n{host}X: {'x' * 60000}\r\n\r\n", (b"400", b"431")),
        ("\x16\x03\x01\x02\x00\x01", (b"400", b"")),
        ("GARBAGE\r\n\r\n", (b"400",)),
    ):
        answer = shared.raw(request.encode("latin-1"))
        assert answer.partition(b" ")[2][:3] in wanted, (request[:60], answer[:60])
    assert shared.process.poll() is None


def test_enter_prints_an_address_for_another_browser(shared: Running) -> None:
    def entered(url: str) -> int:
        return shared.ask("POST", "/api/enter", **{"X-Cosmic": token_of(url)})[0]

    assert entered(shared.url) == 403, "the first one was used"
    assert shared.process.stdin is not None
    shared.process.stdin.write("\n")
    shared.process.stdin.flush()
    url = told(shared.process)["url"]
    assert (entered(url), entered(url)) == (200, 403)


@pytest.mark.long
def test_three_viewers_that_poll_take_bounded_memory(shared: Running) -> None:
    def resident() -> int:
        return int(Path(f"/proc/{shared.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def view(rounds: int) -> None:
        for _ in range(rounds):
            for target in ("/api/studies", "/api/studies/study", "/api/studies/study/block?after=10"):
                assert shared.ask("GET", target)[0] in (200, 409, 429)  # a loaded machine may refuse

    def poll(rounds: int) -> None:
        viewers = [threading.Thread(target=view, args=(rounds,)) for _ in range(3)]
        for viewer in viewers:
            viewer.start()
        for viewer in viewers:
            viewer.join()

    assert (
        shared.ask("POST", "/api/designs", {"design": "gpt3-175b@cosmic-1024"})[0] == 200
    )  # as the server does itself
    poll(5)
    before = resident()
    poll(30)
    grown = resident() - before
    tell(f"{before / 2**20:.0f} MiB, {grown / 2**20:.1f} MiB more after 270 answers")
    assert grown < 16 * 2**20


@pytest.mark.long
def test_an_end_while_somebody_watches_is_quick_and_clean(server: Running) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=SOON_S)
    connection.request("GET", "/api/studies/study/events", headers={"X-Cosmic": server.key})
    assert connection.getresponse().readline() == b"retry: 2000\n"
    status, said, took = end(server)
    connection.close()
    assert (status, said.strip()) == (0, "")
    assert took < 10


def test_bad_options_are_sentences(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    status, _, err = run(capsys, "ui", str(tmp_path / "file"), "--no-browser")
    assert (status, err.endswith("is no directory\n")) == (2, True)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        status, _, err = run(capsys, "ui", str(tmp_path), "--no-browser", "--port", str(port))
    assert status == 2
    assert f"--port = {port}: cannot be listened on" in err


def test_without_the_extra_it_says_what_to_install(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fastapi", None)
    status, _, err = run(capsys, "ui", str(tmp_path), "--no-browser")
    assert status == 2
    assert "command = 'ui': needs fastapi; install it with: pip install '.[web]' in a clone" in err
    assert err.count("\n") == 1
