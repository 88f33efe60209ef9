"""Attack the live page as other users of the machine can, and as studies of strangers can; print what came of it.

    python -m benchmarks.live_attack [--studies NAME …]

starts `cosmic ui` over crafted studies, and prints as JSON, for each kind of attack, how often it was tried, the
statuses of the answers, and how long the owner waited meanwhile. No answer should be a 500, and no wait longer than a
second.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess  # the command is the product's own
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fastapi.routing import APIRoute
from tests.report.live.asking import token_of
from tests.report.live.attacking import Owner, close, connected, dribble, is_closed, nonsense, status_of
from tests.search.crafted import crafted_studies

from cosmic.report.live.access_control import AccessKeys
from cosmic.report.live.server import LiveSite, make_application
from cosmic.report.live.study_paths import StudyRoot

SILENT = 600
SLOW = 200
SLOW_S = 16.0
FLOOD_S = 5.0
NONSENSE = 2000
AT_ONCE = 4
ENDED_S = 60.0


def routes_of(folder: Path) -> list[tuple[str, str]]:
    """Return the methods and addresses of all routes of the API, found by walking the application."""
    app = make_application(LiveSite(StudyRoot.resolve(folder), AccessKeys(1)))
    found = [(method, each.path) for each in app.routes if isinstance(each, APIRoute) for method in each.methods or ()]
    return [(method, path) for method, path in found if path.startswith("/api") and not path.endswith("/events")]


def silent(owner: Owner) -> Counter[str]:
    """Connect, and say nothing."""
    held = connected(owner.port, SILENT)
    time.sleep(2.0)
    found = Counter("pushed out" if is_closed(each) else "held" for each in held)
    time.sleep(6.0)
    found["closed after a while"] = sum(map(is_closed, held))
    close(held)
    return found


def flood(owner: Owner) -> Counter[str]:
    """Connect again and again, as fast as it goes."""
    found: Counter[str] = Counter()
    ends = time.monotonic() + FLOOD_S
    while time.monotonic() < ends:
        held = connected(owner.port, 100)
        found["connected"] += len(held)
        close(held)
    return found


def slow(begun: bytes) -> Callable[[Owner], Counter[str]]:
    """Return an attack that sends the rest of a request byte by byte."""

    def attack(owner: Owner) -> Counter[str]:
        held = connected(owner.port, SLOW, begun.replace(b"%d", str(owner.port).encode()))
        cut = dribble(held, SLOW_S)
        close(held)
        return Counter({"cut off": cut, "held": SLOW - cut})

    return attack


def malformed(owner: Owner) -> Counter[str]:
    """Send nonsense, half of it with the key."""
    return Counter(str(status_of(owner.port, each)) for each in nonsense(owner.port, NONSENSE, 7, owner.key))


def crafted(
    names: list[str], routes: list[tuple[str, str]], slowest: dict[str, float]
) -> Callable[[Owner], Counter[str]]:
    """Return an attack that asks every route for every crafted study."""

    def ask(owner: Owner, method: str, target: str, body: Any) -> str:
        began = time.monotonic()
        for _ in range(200):
            status, _ = owner.ask(method, target, body)
            if status != 429:
                break
            time.sleep(0.05)
        slowest[f"{method} {target}"] = time.monotonic() - began
        return str(status)

    def attack(owner: Owner) -> Counter[str]:
        asked: list[tuple[str, str, Any]] = []
        for name in names:
            for method, path in routes:
                if "{study}" in path and not path.endswith("/resume"):  # which starts a search, in a process of its own
                    target = path.replace("{study}", quote(name))
                    asked += [(method, re.sub(r"{\w+}", trial, target), {}) for trial in ("best", "base", "3")]
            asked += [("POST", "/api/designs", {"study": name, "trial": trial}) for trial in ("best", 3)]
            asked.append(("GET", f"/api/compare?study={quote(name)}&study=good", None))
        asked = list({json.dumps(each): each for each in asked}.values())
        asked.append(("GET", "/api/studies", None))
        with ThreadPoolExecutor(AT_ONCE) as threads:
            return Counter(threads.map(lambda each: ask(owner, *each), asked))

    return attack


def attacked(owner: Owner, attack: Callable[[Owner], Counter[str]]) -> dict[str, Any]:
    """Return what came of an attack."""
    owner.seconds, owner.statuses = [], []
    began = time.monotonic()
    with owner.waiting("/api/session", "/"):
        statuses = attack(owner)
    return {
        "tried": sum(statuses.values()),
        "statuses": dict(sorted(statuses.items())),
        "seconds": round(time.monotonic() - began, 2),
        "owner": {
            "answers": len(owner.seconds),
            "statuses": dict(Counter(map(str, owner.statuses))),
            "slowest_s": round(max(owner.seconds), 3),
        },
    }


def main() -> None:
    """Attack a server and print the findings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", nargs="*", default=[], help="only these crafted studies")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        runs = Path(place) / "runs"
        names = list(crafted_studies(runs, options.studies))
        routes = routes_of(runs)
        command = [sys.executable, "-m", "cosmic", "ui", str(runs), "--no-browser", "--json"]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
            about = json.loads("".join(iter((process.stdout or sys.stdin).readline, "}\n")) + "}")
            owner = Owner(about["port"], token_of(about["url"]))
            owner.key = json.loads(owner.ask("POST", "/api/enter")[1])["key"]
            slowest: dict[str, float] = {}
            attacks = {
                "silent": silent,
                "flood": flood,
                "slow_head": slow(b"GET / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nA: "),
                "slow_body": slow(
                    b"POST /api/count HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nOrigin: http://127.0.0.1:%d\r\nContent-Type: "
                    b"application/json\r\nContent-Length: 9999\r\nX-Cosmic: " + owner.key.encode() + b"\r\n\r\n"
                ),
                "malformed": malformed,
                "crafted": crafted(names, routes, slowest),
            }
            found = {name: attacked(owner, attack) for name, attack in attacks.items()}
            began = time.monotonic()
            process.send_signal(signal.SIGINT)
            process.wait(ENDED_S)
            ended = {"status": process.returncode, "seconds": round(time.monotonic() - began, 2)}
    worst = sorted(slowest, key=lambda each: -slowest[each])[:8]
    total = {
        "answers_500": sum(each["statuses"].get("500", 0) for each in found.values()),
        "owner_slowest_s": max(each["owner"]["slowest_s"] for each in found.values()),
        "crafted_studies": len(names),
        "slowest_answers_s": {each: round(slowest[each], 2) for each in worst},
        "ctrl_c": ended,
    }
    print(json.dumps({**total, "attacks": found}, indent=2))


if __name__ == "__main__":
    main()
