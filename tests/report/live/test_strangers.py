"""Strangers on the same machine can neither keep the owner out nor keep the server from ending."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest
from fastapi.routing import APIRoute

from cosmic.report.live.connections import ConnectionCrowd, Limits
from cosmic.report.live.server import ListeningServer, make_application, open_server
from cosmic.report.live.study_paths import StudyRoot
from cosmic.search.study.trial_storage import StudyError
from tests.report.live.asking import Client, site_at, tell, token_of
from tests.report.live.attacking import Owner, close, connected, dribble, is_closed, nonsense, status_of
from tests.search.crafted import crafted_studies

QUICK = Limits(header_s=0.6, body_s=0.6, idle_s=0.6, stalled_s=0.6, requests_per_s=1e6, strangers_per_s=1e6)
PATIENT = Limits(header_s=600, body_s=600, requests_per_s=1e6, strangers_per_s=1e6)
SOON_S = 30.0
MANY = 520


def running(server: ListeningServer) -> Iterator[Owner]:
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
    yield from running(open_server(StudyRoot.resolve(tmp_path_factory.mktemp("quick")), 0, QUICK))


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[Owner]:
    """A server that lets strangers wait as long as there is room."""
    yield from running(open_server(StudyRoot.resolve(tmp_path), 0, PATIENT))


def head(port: int, key: str = "", length: int = 10) -> bytes:
    """Return the head of a request with a body."""
    own = f"X-Cosmic: {key}\r\nOrigin: http://127.0.0.1:{port}\r\nContent-Type: application/json\r\n" if key else ""
    return f"POST /api/count HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{own}Content-Length: {length}\r\n\r\n".encode()


@pytest.mark.long
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


@pytest.mark.long
@pytest.mark.parametrize("length", [0, 10_000])
def test_a_byte_now_and_then_gains_no_time(quick: Owner, length: int) -> None:
    begun = head(quick.port, quick.key, length) if length else b"GET / HTTP/1.1\r\nA: "
    slow = connected(quick.port, 5, begun)
    assert dribble(slow, SOON_S, 0.1) == 5
    close(slow)


@pytest.mark.long
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
        for target in ("/api/session", "/api/studies", "/") * 4:
            patient.measure(target)
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
        crowd = ConnectionCrowd(Limits(), files)
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


# ---- crafted studies

CRAFTED = (
    *("inputs_are_endless", "sql_column_generated", "schema_generated"),
    *("json_nested_deeply", "json_nested_somewhat", "json_too_large", "json_number_of_thousands_of_digits"),
    *("study_json_is_pipe", "trials_db_is_link", "lock_is_folder", "input_objectives_0", "input_trials_6"),
    *("base_network_4", "space_constraints_3", "trials_page_repeated", "batch_numbers_far"),
)


@pytest.mark.long
def test_crafted_studies_are_listed_with_a_sentence_and_nothing_fails(tmp_path: Path) -> None:
    runs, statuses = tmp_path / "runs", Counter[int]()
    names = list(crafted_studies(runs, CRAFTED))
    with Client(site_at(runs)) as client:
        client.site.streams.closing = True
        client.site.searches.most = 0
        listed = client.get("/api/studies")
        assert listed.status == 200
        assert {row["id"] for row in listed.json["studies"]} == {"good", *names}
        routes = [each for each in make_application(client.site).routes if isinstance(each, APIRoute)]
        asked = [(each.path, method) for each in routes for method in each.methods or () if "{study}" in each.path]
        assert len(asked) >= 10
        for name in names:
            for path, method in asked:
                target = path.replace("{study}", name).replace("{trial}", "3")
                answer = client.get(target) if method == "GET" else client.post(target, {})
                statuses[answer.status] += 1
                assert answer.status < 500, (name, target, answer.body)
                if answer.status >= 400:
                    assert str(tmp_path) not in answer.error
                    assert "(IndexError)" not in answer.error, "what is known to be wrong is said"
            statuses[client.post("/api/designs", {"study": name}).status] += 1
        assert client.get("/api/studies/good/trials/3").status == 200
    tell(f"{len(names)} crafted studies: {dict(sorted(statuses.items()))}")
    assert max(statuses) < 500
    assert statuses[409] > 5 * len(names)


def test_a_study_is_blamed_for_what_nobody_foresaw(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(import_module("cosmic.report.live.study_library"), "parse_study", fail)
    row = client.get("/api/studies/study/status").json
    assert (row["state"], row["problem"]) == (
        "damaged",
        "study: is not what a search writes; try 'cosmic study doctor' (ZeroDivisionError)",
    )
    monkeypatch.setattr(import_module("cosmic.report.live.search_form"), "schema_of", fail)
    answer = client.get("/api/studies/study/schema")
    assert (answer.status, answer.error) == (409, row["problem"])


def test_what_took_long_to_fail_is_not_tried_again(client: Client, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def fail(*_: object) -> None:
        tried.append(1)
        raise StudyError("takes too long")

    monkeypatch.setattr(import_module("cosmic.report.live.study_library"), "parse_study", fail)
    monkeypatch.setattr(import_module("cosmic.report.live.study_library"), "SLOW_S", 0.0)
    for _ in range(3):
        assert client.get("/api/studies/study/status").json["problem"] == "takes too long"
    assert len(tried) == 1
    os.utime(runs / "study" / "study.json")
    client.get("/api/studies/study/status")
    assert len(tried) == 2
    monkeypatch.setattr(import_module("cosmic.report.live.study_library"), "LISTING_S", -1.0)
    client.site.library._failed.clear()
    problems = {row["id"]: row["problem"] for row in client.get("/api/studies").json["studies"]}
    assert problems["study"] == "study: was not read yet, as others took long"


# ---- Ctrl-C

HANGING = """
import sys, threading, time
from cosmic.report.live import study_library as library
def rows(self):
    sys.stderr.write("hangs\\n")
    sys.stderr.flush()
    {how}
library.Library.rows = rows
from cosmic.cli.dispatch import main
sys.argv = ["cosmic", "ui", sys.argv[1], "--no-browser", "--json"]
main()
"""


@pytest.mark.long
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
