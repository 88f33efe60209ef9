"""Traces and ASTRA-sim's inputs, spoilt."""

from __future__ import annotations

import copy
import gzip
import json
from pathlib import Path
from typing import Any

import yaml

from . import wire
from .documents import garble, spoil
from .trial import LARGEST_BYTES, Maker
from .values import FILES, plain


def traces(maker: Maker) -> list[str]:
    """Return the words of a command that reads spoilt traces."""
    rng = maker.rng
    folder = maker.stock.copy(rng.choice(maker.stock.traces), maker.folder / "t")
    for _ in range(rng.choice((1, 1, 2))):
        (_groups if maker.chance(0.25) else _spoil_trace)(maker, folder)
    words = rng.choice(
        (
            ["trace", "show", "t/t.0.et"],
            ["trace", "show", "t/t.0.et", "--dot"],
            ["trace", "stats", "t/t"],
            ["trace", "stats", "t/t", "--groups", "t/t.json", "--peak", "900 TFLOP/s", "--bandwidth", "3 TB/s"],
            ["trace", "check", "t/t", "--groups", "t/t.json"],
            ["trace", "check", "t/t"],
            ["trace", "repair", "t/t", "--groups", "t/t.json", "--out", "m/t"],
            ["trace", "repair", "t/t.0.et", "--ranks", "2", "--out", "m/t"],
            ["trace", "anonymize", "t/t", "--groups", "t/t.json", "--out", "m/t"],
            ["trace", "synthesize", "t/t", "--groups", "t/t.json", "--out", "m/t", "--scale", "2"],
            ["trace", "diff", "t/t", "t/t"],
            ["trace", "show", "t/t", "--html", "m.html"],
            ["trace", "show", "t/t.0.et", "--graphml", "m.graphml"],
        )
    )
    prints = not {"--dot", "--html", "--graphml"} & set(words)
    return [*words, *(["--json"] if maker.chance(0.3) and prints else [])]


def _spoil_trace(maker: Maker, folder: Path) -> None:
    """Change the trace of one rank, or of all alike."""
    rng = maker.rng
    files = sorted(folder.glob("*.et"))
    if not files:
        return
    path = rng.choice(files)
    drawn = rng.random()
    if not path.is_file() or path.stat().st_size > LARGEST_BYTES:  # something else was put there
        return
    if drawn < 0.08:
        path.unlink()
        if maker.chance(0.6):
            FILES[rng.choice(tuple(FILES))](path)
        return
    data = path.read_bytes()
    if drawn < 0.15:
        path.write_bytes(gzip.compress(data) if maker.chance(0.5) else garble(maker, gzip.compress(data)))
    elif drawn < 0.2:
        path.rename(folder / f"t.{rng.choice((99, 10**9, '01', 'x', -1))}.et")
    elif drawn < 0.25:
        path.write_bytes(data + rng.choice((b"\xff" * 12, b"\x80" * 30, data[:100], b"\xff\xff\xff\xff\x0f")))
    else:
        spoilt = garble(maker, data) if maker.chance(0.3) else _rewired(maker, data)
        for each in files if maker.chance(0.4) else [path]:
            if each.is_file():
                each.write_bytes(spoilt)


def _rewired(maker: Maker, data: bytes) -> bytes:
    try:
        return wire.spoil(maker.rng, data)
    except (IndexError, ValueError):  # it is spoilt already
        return garble(maker, data)


def _groups(maker: Maker, folder: Path) -> None:
    path = folder / "t.json"
    if path.is_file():
        _spoil_json(maker, path)


def _load(path: Path) -> Any:
    data = path.read_text(encoding="utf-8")
    return json.loads(data) if data.startswith("{") else yaml.safe_load(data)


def _spoil_json(maker: Maker, path: Path) -> None:
    """Spoil the tree of a small file, or its text."""
    try:
        tree = None if maker.chance(0.2) else _load(path)
    except (ValueError, yaml.YAMLError):  # it is spoilt already
        tree = None
    if tree is None:
        path.write_bytes(garble(maker, path.read_bytes()))
        return
    tree = spoil(maker, copy.deepcopy(tree)) if maker.chance(0.95) else plain(maker.rng)
    path.write_text(json.dumps(tree, default=str), encoding="utf-8", errors="surrogatepass")  # JSON is YAML too


def simulations(maker: Maker) -> list[str]:
    """Return the words of a simulation whose inputs are spoilt."""
    rng = maker.rng
    folder = maker.stock.copy(rng.choice(maker.stock.inputs), maker.folder / "a")
    for _ in range(rng.choice((1, 1, 1, 2))):
        name = rng.choice(
            ("system.json", "system.json", "network.yml", "network.yml", "memory.json", "comm_groups.json", "et")
        )
        if name == "et":
            _spoil_trace(maker, folder)
        else:
            _spoil_json(maker, folder / name)
    words = ["simulate", "--workload", "a/trace", "--system", "a/system.json", "--network", "a/network.yml"]
    if maker.chance(0.8):
        words += ["--comm-groups", "a/comm_groups.json"]
    words += ["--remote-memory", "a/memory.json"] if maker.chance(0.5) else []
    words += ["--backend", "aware"] if maker.chance(0.3) else []
    words += ["--no-compat"] if maker.chance(0.2) else []
    words += ["--rendezvous"] if maker.chance(0.2) else []
    words += ["--timeline", "timeline.json"] if maker.chance(0.2) else []
    words += ["--queues-per-dim", rng.choice(("0", "-1", "2", "1000000000000"))] if maker.chance(0.1) else []
    words += ["--injection-scale", rng.choice(("0", "-1", "nan", "inf", "1e300"))] if maker.chance(0.1) else []
    return [*words, *(["--json"] if maker.chance(0.4) else [])]
