"""Files damaged at random, as disks and people do it."""

from __future__ import annotations

import random
from pathlib import Path

PAGE = 4096


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Return *content* with some bits flipped, its end cut off, a page zeroed, or a page in the place of another."""
    changed = bytearray(content)
    kind = rng.choice(("flip", "flip", "flips", "cut", "zero", "move"))
    if kind in ("flip", "flips"):
        for _ in range(1 if kind == "flip" else rng.randint(2, 40)):
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    elif kind == "cut":
        del changed[rng.randrange(len(changed)) :]
    else:
        pages = len(changed) // PAGE
        target, source = (rng.randrange(pages) * PAGE for _ in range(2))
        changed[target : target + PAGE] = bytes(PAGE) if kind == "zero" else changed[source : source + PAGE]
    return bytes(changed)


def damage(path: Path, seed: int) -> None:
    """Damage the file *path*."""
    path.write_bytes(damaged(path.read_bytes(), random.Random(seed)))
