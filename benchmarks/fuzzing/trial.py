"""One trial: a command line, the files that it finds, and the streams that it is given."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from cosmic.base import files
from cosmic.cli.dispatch import split_command

from .stock import Stock

LONGEST_SHOWN = 400
"""Characters of a command line in reports."""
LARGEST_BYTES = 2**24
"""The most that a file that is to be spoilt may have: more was put there to disturb a command, not the fuzzer."""


@dataclass(frozen=True)
class Trial:
    """What one child runs."""

    number: int
    kind: str
    words: tuple[str, ...]
    """The arguments of ``cosmic``."""
    stdin: str = "nothing"
    """What it reads from: ``nothing``, a ``silent`` pipe that never answers, or ``closed``."""
    stdout: str = "file"
    """What it writes to: a ``file``, ``closed``, a pipe whose reader is ``gone``, or a disk that is ``full``."""
    encoding: str = "utf-8"
    interrupt_s: float | None = None
    """Ctrl-C comes so long after the start."""

    @property
    def wants_json(self) -> bool:
        """Whether JSON was asked for."""
        before = self.words[: self.words.index("--")] if "--" in self.words else self.words
        return "--json" in before and "--help" not in before

    @property
    def command(self) -> str:
        """The name of the command, as far as it is one."""
        return (split_command(self.words)[0] or " ".join(self.words[:1]))[:40]

    def line(self) -> str:
        """Return the command line for a shell, cut where it is very long."""
        whole = shlex.join(["cosmic", *self.words]).encode("utf-8", "backslashreplace").decode()
        shown = "".join(each if each.isprintable() else repr(each)[1:-1] for each in whole)
        return shown if len(shown) <= LONGEST_SHOWN else f"{shown[:LONGEST_SHOWN]}… ({len(shown):,} characters)"

    def to_json(self) -> str:
        """Return the trial as text, for the parent."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Trial:
        """Return the trial that a child has described."""
        given: dict[str, Any] = json.loads(text)
        return cls(**given | {"words": tuple(given["words"])})


@dataclass
class Maker:
    """What a generator draws from and writes into."""

    rng: Random
    folder: Path
    """The folder in which the command runs."""
    stock: Stock
    made: int = field(default=0)

    def chance(self, share: float) -> bool:
        """Return True in this *share* of the cases."""
        return self.rng.random() < share

    def new_name(self, ending: str = "") -> str:
        """Return a name that no file of the trial has yet."""
        self.made += 1
        return f"f{self.made}{ending}"

    def write(self, content: str | bytes, ending: str) -> str:
        """Write a file, and return its name."""
        name = self.new_name(ending)
        data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
        (self.folder / name).write_bytes(data)
        return name


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a file that is to be spoilt; raise a `ValueError` where something else was put there."""
    return files.read_bytes(path, most=LARGEST_BYTES)


Generator = Callable[[Maker], list[str]]
"""Makes the files of a trial, and returns the words of its command."""
