"""Requests as nobody should send them: every address, with something wrong in its name, query, headers or body."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from tests.report.live.asking import ORIGIN, PORT, spoken
from tests.report.live.traversal import STRINGS

METHODS = ("GET",) * 6 + ("POST",) * 10 + ("HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "X", "")
NAMES = ("study", "best", "base", "0", "59", "60", "-1", "1e3", "cosmic-512-full-stack", "piped", "x", "0" * 30)
KEYS = {
    "/api/designs": ("study", "trial", "design", "settings"),
    "/api/searches": (
        *("space", "name", "stacks", "restrict", "fixed", "agent", "settings", "objectives", "constraints"),
        *("trials", "seed", "engine"),
    ),
    "/api/count": ("space", "stacks", "restrict", "fixed"),
}
FIELDS = (
    *("workload.tp", "workload.pp", "workload.dp", "workload.cp", "workload.micro_batch", "workload.global_batch"),
    *("workload.sequence", "workload.recompute", "workload.schedule", "workload.task", "workload", "collective.chunks"),
    *("network.dims.0.bandwidth", "network.dims.0.npus", "network.dims.9.npus", "network.dims", "model.layers"),
    *("model.hidden", "model.heads", "model.vocab", "model.family", "memory.capacity", "compute.bf16", "x", ""),
    *("workload.precision", "workload.interleave", "collective.algorithms.0", "model.experts", "workload..tp", "."),
)
TEXTS = (
    *(
        "gpt3-175b@cosmic-512",
        "gpt3-125m@dgx-h100:8",
        "dlrm-criteo@dgx-a100:16",
        "vit-base@dgx-h100:8",
        "@",
        "x@",
        "a@b",
    ),
    *(
        "cosmic-512-full-stack",
        "study",
        "best",
        "genetic",
        "random",
        "analytic",
        "event",
        "workload",
        "network",
        "step_s",
    ),
    *("memory_bytes <= 80 GB", "mfu >= x", "400 GB/s", "-1 GB", "1e400 GB", "0", "full", "decode", "none", "zero3"),
    *("=", "--out=/etc/x", "NaN", "\x00", "\u2028", "<script>", "🙂", "é" * 300, "%s%n", "{}", "__class__"),
)
NUMBERS = (0, 1, 2, 3, 7, 8, 512, -1, 10**6, 2**31, 2**53, 2**63, 10**19, 0.5, -0.0, 1e-300, 1e300, 3.7)
RAW = (
    *(b"", b"{", b"[]", b"null", b"true", b'"x"', b"1", b"NaN", b"{}{}", b'{"a":1,"a":2}', b"\xff\xfe", b"\x00"),
    *(b'{"trials": NaN}', b'{"trials": 1e999}', b'{"trials": -Infinity}', b'{"x": "\\ud800"}', b'{"\\ud800": 1}'),
    *(b"[" * 5000, b'{"a":' * 3000 + b"1" + b"}" * 3000, b'{"trials": ' + b"9" * 5000 + b"}", b"\xef\xbb\xbf{}"),
    *(b"a=1&b=2", b"<xml/>", b"{'a': 1}", b'{"a": 1,}', b"// {}", b'{"settings": ' + b"[" * 40 + b"]" * 40 + b"}"),
)


@dataclass(frozen=True)
class Asked:
    """One request."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


def requests(routes: list[BaseRoute], key: str, seed: int) -> Iterator[Asked]:
    """Yield requests for ever."""
    rng = random.Random(seed)
    paths = [(route.path, sorted(route.methods or ())) for route in routes if isinstance(route, APIRoute)]
    while True:
        path, methods = rng.choice(paths)
        method = rng.choice(methods) if rng.random() < 0.85 else rng.choice(METHODS)
        target = re.sub(r"{\w+}", lambda _: _name(rng), path)
        if rng.random() < 0.05:
            target = rng.choice(("/", "/api", "/api/", target + "/", target + "/x", "//", target.upper(), "*"))
        if rng.random() < 0.35:
            target += "?" + _query(rng)
        body = _body(rng, path) if method == "POST" or rng.random() < 0.05 else b""
        yield Asked(method, target, tuple(_headers(rng, key, method)), body)


def _name(rng: random.Random) -> str:
    if rng.random() < 0.6:
        return "study" if rng.random() < 0.6 else rng.choice(NAMES)
    return spoken(rng.choice(STRINGS)) if rng.random() < 0.7 else rng.choice(STRINGS)


def _query(rng: random.Random) -> str:
    keys = ("after", "study", "stacks", "x", "", "%00", "after[]", "token")
    values = (
        "",
        "0",
        "5",
        "-1",
        "1e9",
        "9" * 40,
        "study",
        "workload",
        "workload,",
        "%ff",
        "%",
        "+",
        "\u0661",
        "study&study=x",
    )
    return "&".join(f"{rng.choice(keys)}={rng.choice(values)}" for _ in range(rng.randint(0, 3)))


def _headers(rng: random.Random, key: str, method: str) -> list[tuple[str, str]]:
    headers = {"host": f"127.0.0.1:{PORT}", "x-cosmic": key, "sec-fetch-site": "same-origin"}
    if method == "POST":
        headers |= {"origin": ORIGIN, "content-type": "application/json"}
    if rng.random() < 0.12:
        changed = rng.choice(
            (*headers, "if-none-match", "last-event-id", "content-length", "range", "accept", "expect")
        )
        headers[changed] = rng.choice(("", "x", "0", "-1", "\xff", "1" * 50, '"', "*", "bytes=0-", key + ", " + key))
    if rng.random() < 0.03:
        headers.pop(rng.choice(list(headers)))
    return list(headers.items())


def _body(rng: random.Random, path: str) -> bytes:
    if rng.random() < 0.2:
        return rng.choice(RAW)
    keys = next((known for prefix, known in KEYS.items() if path.startswith(prefix)), ("trials", "x"))
    body = {key: _value(rng, key) for key in keys if rng.random() < 0.45}
    if "space" in keys and rng.random() < 0.7:
        body["space"] = "cosmic-512-full-stack"
    if path.startswith("/api/designs") and rng.random() < 0.6:
        body = (
            {"design": rng.choice(TEXTS[:4])} if rng.random() < 0.5 else {"study": "study", "trial": rng.randint(0, 70)}
        )
        body["settings"] = {rng.choice(FIELDS): _any(rng, 2) for _ in range(rng.randint(0, 2))}
    return json.dumps(body).encode()


def _value(rng: random.Random, key: str) -> Any:
    if rng.random() < 0.4:
        return _any(rng, 3)
    if key in ("settings", "restrict", "fixed"):
        names = (*FIELDS, "collective.scheduling", "network.dims.0.topology", "population")
        return {rng.choice(names): _any(rng, 2) for _ in range(rng.randint(0, 3))}
    if key in ("stacks", "objectives", "constraints"):
        return [_any(rng, 1) for _ in range(rng.randint(0, 3))]
    return rng.choice(NUMBERS) if key in ("trials", "seed", "trial") else rng.choice(TEXTS)


def _any(rng: random.Random, depth: int) -> Any:
    kind = rng.randint(0, 9)
    if kind < 4:
        return rng.choice(NUMBERS)
    if kind < 7:
        return rng.choice((*TEXTS, *STRINGS[:40]))
    if kind == 7 or depth == 0:
        return rng.choice((None, True, False, "", [], {}))
    if kind == 8:
        return [_any(rng, depth - 1) for _ in range(rng.randint(0, 4))]
    return {rng.choice((*FIELDS, "base", "npus", "0")): _any(rng, depth - 1) for _ in range(rng.randint(0, 3))}
