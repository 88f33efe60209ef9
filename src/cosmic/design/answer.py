"""What every question is answered with: a verdict, how sure it is, what it needs, and what to do next.

A result of a question (`Answered`) has its own numbers, and says of itself what all of them share: its `Answer`. The
terminal, `--json` and notebooks show this one value. None or empty means that it is not known, or was not asked for;
nothing is guessed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from cosmic.base._version import __version__
from cosmic.base.json_types import Ratio, Share, unit

Question = Literal["evaluation", "mapping", "deployment", "purchase", "collective", "sharding", "difference"]


@dataclass(frozen=True, slots=True)
class NextCommand:
    """A command and what it is for."""

    command: str
    """As it is typed, quoted for a shell."""
    purpose: str
    """What it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Improvement:
    """Something that would help."""

    what: str
    """What changes."""
    gain: Ratio | None
    """Times as good by what was asked; None where the design cannot run as it is."""
    condition: str = ""
    """When it is open, such as 'if accuracy allows'; empty if always."""
    command: str = ""
    """The command that tries it, quoted for a shell."""


@dataclass(frozen=True, slots=True)
class ExpectedRange:
    """What is expected to be measured."""

    metric: str
    """The metric, in the unit of its name."""
    p05: Annotated[float, unit("that of the metric")]
    """One measurement in twenty is below."""
    p50: Annotated[float, unit("that of the metric")]
    """Every second is below."""
    p95: Annotated[float, unit("that of the metric")]
    """One in twenty is above."""


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """The memory of the accelerator that needs most."""

    used_bytes: float
    """What it needs."""
    capacity_bytes: float | None
    """What the driver leaves of it; None where no machine is named."""
    fits: Share | None = None
    """The probability that it fits; None where that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """What an answer follows from: the same of it gives the same answer."""

    inputs: Mapping[str, Any]
    """What was asked, by the name of the argument."""
    seed: int | None = None
    """Of all random numbers; None where none are drawn."""
    constants: str = ""
    """Origin of the accelerator's efficiencies: measured, calibrated, or an estimate; empty where none are used."""
    version: str = __version__
    """Version of the program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a question is answered with, whatever was asked; null or empty where that is not known, or not asked for."""

    question: Question
    """What was asked."""
    verdict: str
    """The answer in a sentence."""
    reasons: tuple[str, ...] = ()
    """Why there is nothing of what was asked for, a sentence each; empty if there is."""
    proof: str = ""
    """What was proven, in words; empty where better may be left."""
    gap: Share | None = None
    """By what share something may be better, at most; null where that is not known."""
    expected: ExpectedRange | None = None
    """What is expected to be measured; null where no run like it was."""
    assumptions: tuple[str, ...] = ()
    """What was assumed as nobody said it, and what qualifies the verdict, a sentence each."""
    memory: MemoryNeed | None = None
    """What it needs of the fullest accelerator; null where that is no part of the question."""
    improvements: tuple[Improvement, ...] = ()
    """What would help, best first; empty where that was not asked for."""
    launch: tuple[NextCommand, ...] = ()
    """How to launch it."""
    next: tuple[NextCommand, ...] = ()
    """What to run next."""
    provenance: Provenance = field(default_factory=lambda: Provenance(inputs={}))
    """What the answer follows from."""

    def _repr_html_(self) -> str:
        """Return the answer as a notebook shows it: the verdict, then what is known besides."""
        from html import escape  # noqa: PLC0415  only notebooks need it

        rows = {
            "cannot": "; ".join(self.reasons),
            "proof": self.proof,
            "expected": _range_text(self.expected),
            "assumed": "; ".join(self.assumptions),
            "memory": _memory_text(self.memory),
            "would help": "; ".join(each.what for each in self.improvements),
            "launch": "\n".join(each.command for each in self.launch),
            "next": "\n".join(each.command for each in self.next),
        }
        cells = [f"<tr><th>{name}</th><td><pre>{escape(text)}</pre></td></tr>" for name, text in rows.items() if text]
        return f"<p><b>{escape(self.verdict)}</b></p><table>{''.join(cells)}</table>"


def _range_text(expected: ExpectedRange | None) -> str:
    return "" if expected is None else f"{expected.metric} {expected.p05:.4g} – {expected.p95:.4g}"


def _memory_text(memory: MemoryNeed | None) -> str:
    if memory is None:
        return ""
    of = "" if memory.capacity_bytes is None else f" of {memory.capacity_bytes / 2**30:.4g}"
    return f"{memory.used_bytes / 2**30:.4g}{of} GiB"


class Answered:
    """The result of a question, which says its answer."""

    __slots__ = ()

    @property
    @abstractmethod
    def answer(self) -> Answer:
        """What every question is answered with."""

    @property
    def verdict(self) -> str:
        """The answer in a sentence."""
        return self.answer.verdict

    def _repr_html_(self) -> str:
        """Return the answer as a notebook shows it."""
        return self.answer._repr_html_()
