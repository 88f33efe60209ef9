"""Profiles of PyTorch, spoilt, and what is asked of traces that were recorded."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from .documents import garble, spoil
from .trial import Maker
from .values import FILES, plain

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "profiles"
PAIRS = ("streams", "decode_graph", "ddp.0", "ddp.1")
"""Small recordings."""
FEW_EVENTS = 40
"""Events that are left of a recording, so that spoiling them is felt."""
QUESTIONS = (
    ["trace", "stats", "r/p"],
    ["trace", "project", "r/p", "--accelerator", "b200", "--dp", "8"],
    ["trace", "project", "r/p", "--from-shapes", "--batch", "2", "--host", "0"],
    ["trace", "project", "r/p", "--accelerator", "h100", "--scale-layers", "2"],
    ["trace", "diff", "r/p", "r/p"],
    ["trace", "anonymize", "r/p", "--out", "r/a"],
    ["trace", "repair", "r/p", "--out", "r/m"],
    ["trace", "show", "r/p.0.et", "--html", "r/p.html"],
    ["simulate", "--workload", "r/p"],
    ["simulate", "--workload", "r/p", "--on", "dgx-b200"],
)


def profiles(maker: Maker) -> list[str]:
    """Return the words of a conversion of spoilt profiles."""
    rng = maker.rng
    folder = maker.folder / "p"
    folder.mkdir(parents=True, exist_ok=True)
    names = [rng.choice(PAIRS) for _ in range(rng.choice((1, 1, 2)))]
    files = []
    for place, name in enumerate(names):
        for kind in rng.choice((("kineto",), ("et", "kineto"), ("et", "kineto"), ("kineto", "et"), ("et",))):
            path = folder / f"{place}.{kind}.json"
            _spoil(maker, EXAMPLES / f"{name}.{kind}.json.gz", path)
            files.append(f"p/{path.name}")
    words = ["trace", "convert", *files, "--out", "r/p"]
    words += ["--step", rng.choice(("0", "2", "3", "-1", "x"))] if maker.chance(0.1) else []
    words += ["--accelerator", rng.choice(("h100", "nosuch", ""))] if maker.chance(0.2) else []
    return [*words, *(["--json"] if maker.chance(0.3) else [])]


def _spoil(maker: Maker, source: Path, target: Path) -> None:
    """Write a recording with something wrong in its text, its tree, or what its events say."""
    drawn = maker.rng.random()
    text = gzip.decompress(source.read_bytes())
    if drawn < 0.05:
        FILES[maker.rng.choice(tuple(FILES))](target)
    elif drawn < 0.15:
        target.write_bytes(garble(maker, maker.rng.choice((text, source.read_bytes()))))
    elif drawn < 0.2:
        target.write_text(json.dumps(plain(maker.rng), default=str), errors="surrogatepass")
    else:
        tree: dict[str, Any] = json.loads(text)
        key = "traceEvents" if "traceEvents" in tree else "nodes"
        events = tree[key]
        first = maker.rng.randrange(max(1, len(events) - FEW_EVENTS))
        tree[key] = events[first : first + FEW_EVENTS] if maker.chance(0.5) else events
        for _ in range(maker.rng.choice((1, 3, 20))):
            if tree[key]:
                place = maker.rng.randrange(len(tree[key]))
                tree[key][place] = spoil(maker, tree[key][place])
        target.write_text(json.dumps(tree, default=str), errors="surrogatepass")


def questions(maker: Maker) -> list[str]:
    """Return the words of a question about recorded traces, which were spoilt after they were converted."""
    folder = maker.stock.copy(maker.rng.choice(maker.stock.recorded), maker.folder / "r")
    if maker.chance(0.7):
        files = [path for path in sorted(folder.glob("p.*")) if path.is_file()]
        path = maker.rng.choice(files)
        path.write_bytes(garble(maker, path.read_bytes()))
    words = maker.rng.choice(QUESTIONS)
    return [*words, *(["--json"] if maker.chance(0.3) and "show" not in words else [])]
