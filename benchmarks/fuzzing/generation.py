"""Which trial has which number: all of it follows from the seed, the number and the kinds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random

from .documents import designs, expressions, spaces
from .profiles import profiles, questions
from .settings import settings
from .stock import Stock
from .studies import studies
from .tables import configurations, rows
from .traces import simulations, traces
from .trial import Generator, Maker, Trial
from .words import SERVES, outputs, walk

LONG = (
    "search cosmic-1024-full-stack -n 1000000 --agent random --out s",
    "search cosmic-1024-full-stack -n 1000000 --agent genetic --json",
    "search cosmic-512-full-stack -n 1000000 --agent bayesian",
    "study tournament cosmic-1024-full-stack -n 100000 --seeds 9 --agents random,genetic",
    "demo -n 1000000",
    "calibrate validate --json",
    "space sample cosmic-1024-full-stack -n 10000000 --json",
    "evaluate llama3-405b@dgx-h100:512 --engine event",
    "design sweep llama3-70b@dgx-h100:64 --vary tp=1,2,4,8 --vary pp=1,2,4,8 --vary micro_batch=1,2,4,8 --vary cp=1,2,4",
    "design export llama3-8b@dgx-h100:8 --to astra-sim --out launch",
    "trace generate llama3-70b@dgx-h100:16 --out t/x",
    "ui --no-browser",
    "ui --no-browser --json studies",
)
"""Commands that take seconds or hours."""


def interrupts(maker: Maker) -> list[str]:
    """Return the words of a command that is interrupted while it works."""
    return maker.rng.choice(LONG).split()


KINDS: Mapping[str, tuple[float, Generator]] = {
    "commands": (28, walk),
    "outputs": (4, outputs),
    "settings": (16, settings),
    "designs": (11, designs),
    "configurations": (2, configurations),
    "rows": (3, rows),
    "spaces": (11, spaces),
    "expressions": (10, expressions),
    "studies": (12, studies),
    "traces": (7, traces),
    "simulations": (5, simulations),
    "profiles": (4, profiles),
    "questions": (3, questions),
    "interrupts": (0.7, interrupts),
}
"""Kinds of trials with their shares."""
NEEDS_STUDIES = ("commands", "outputs", "studies")
NEEDS_TRACES = ("commands", "outputs", "traces", "simulations", "questions")


def make_trial(seed: int, number: int, folder: Path, stock: Stock, kinds: tuple[str, ...]) -> Trial:
    """Return trial *number*, with its files written to *folder*."""
    rng = Random(f"{seed}/{number}")
    kind = rng.choices(kinds, [KINDS[each][0] for each in kinds])[0]
    words = [word.replace("\0", "") for word in KINDS[kind][1](Maker(rng, folder, stock))]
    waits = kind == "interrupts" or words[:1] == list(SERVES)
    return Trial(
        number,
        kind,
        tuple(words),
        stdin=rng.choices(("nothing", "silent", "closed"), (8, 1, 1))[0],
        stdout="file" if waits else rng.choices(("file", "closed", "gone", "full"), (94, 2, 2, 2))[0],
        encoding=rng.choices(("utf-8", "ascii", "latin-1"), (90, 8, 2))[0],
        interrupt_s=rng.choice((0.1, 1, 3)) * rng.random() if waits else None,
    )
