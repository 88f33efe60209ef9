"""Errors, each one sentence: *where = value: the rule*.

    CosmicError
    ├── SpecError        a description is malformed: its author must change it
    │   └── UnknownName  a name is in no registry, catalog or set of keys
    └── BackendError     something outside this package failed

A design that is well formed but cannot run is no error but an `Infeasible` result (see `cosmic.evaluation`).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches
from pathlib import PurePath
from reprlib import Repr
from typing import Any, Self

SHOWN_CHARACTERS = 60
LONGEST_NAME = 200
"""The most characters of a name: of a model, an accelerator, a set, a variant."""
LONGEST_PATH = 4096
"""The most characters of text that may be a name or the path of a file."""


class _BriefRepr(Repr):
    """As messages quote values: a path is what its author wrote, text."""

    def repr1(self, x: Any, level: int) -> str:
        return super().repr1(str(x) if isinstance(x, PurePath) else x, level)


_BRIEF_REPR = _BriefRepr()  # bounds depth and breadth: a small file can unfold into a huge tree
_BRIEF_REPR.maxlevel, _BRIEF_REPR.maxstring, _BRIEF_REPR.maxother = 4, SHOWN_CHARACTERS, SHOWN_CHARACTERS


RENAMED = {
    "context_balanced": "cp_balanced",
    "context_parallel": "cp_comm_type",
    "expert_overlap": "ep_overlap",
    "hidden": "overlap_efficiency",
    "host": "launch",
    "jitter": "straggler_slack",
    "kv_rank": "kv_lora_rank",
    "latent": "mla",
    "matrix": "gemm",
    "matrix_efficiency": "gemm_efficiency",
    "overlap": "dp_overlap",
    "query_rank": "q_lora_rank",
    "rope_dim": "qk_rope_head_dim",
    "rp": "edp",
    "sp": "cp",
    "tensor_overlap": "tp_overlap",
    "units": "sms",
    "value_dim": "v_head_dim",
}
"""Keys of earlier releases and their new names. An old key is refused with its new name."""


class CosmicError(Exception):
    """Base of every error this package raises on purpose."""


class SpecError(CosmicError, ValueError):
    """A description is malformed: the caller must change it.

    >>> print(SpecError("network.dims.1.npus", 1, "a dimension joins at least 2 NPUs"))
    network.dims.1.npus = 1: a dimension joins at least 2 NPUs
    """

    def __init__(self, where: str, value: Any, rule: str) -> None:
        super().__init__(where, value, rule)
        self.where = where
        self.value = value
        self.rule = rule

    def __str__(self) -> str:
        return one_line(f"{self.where} = {shorten(self.value)}: {self.rule}")

    def inside(self, outer: str) -> Self:
        """Return the same error one level further out: *outer* precedes its place."""
        where = join_path(outer, self.where)
        return type(self)(where, self.value, self.rule)


class UnknownName(SpecError):  # noqa: N818  its base says that it is an error
    """A name that does not exist."""

    @classmethod
    def among(cls, where: str, name: Any, kind: str, names: Iterable[str]) -> UnknownName:
        """Return the error that no *kind* is called *name*, with what was probably meant.

        >>> print(UnknownName.among("topology", "rign", "topology", ["ring", "switch"]))
        topology = 'rign': no such topology; did you mean 'ring'?
        """
        return cls(where, name, f"no such {kind}{suggest_names(as_key(name), names)}")

    @classmethod
    def key(cls, where: str, value: Any, names: Iterable[str]) -> UnknownName:
        """Return the error that *where* ends in an unknown key; keys are never silently ignored.

        >>> print(UnknownName.key("model.hiden", 4, ["hidden", "heads"]))
        model.hiden = 4: no such key; did you mean 'hidden'?
        """
        return cls(where, value, f"no such key{suggest_names(where.rpartition('.')[2], names)}")


class BackendError(CosmicError):
    """Something outside this package (a simulator, a worker) failed; the message is its output."""


def require(holds: bool, where: str, value: Any, rule: str) -> None:
    """Raise a `SpecError` unless *holds*."""
    if not holds:
        raise SpecError(where, value, rule)


def check_text(text: str, where: str, most: int = LONGEST_NAME) -> str:
    r"""Return *text*, a name; refuse what would leave its line in a script or move the cursor of a terminal.

    >>> check_text("llama\n", "model.name")
    Traceback (most recent call last):
    cosmic.base.errors.SpecError: model.name = 'llama\n': must be printable text on one line, and has U+000A
    """
    for letter in (character for character in text if not character.isprintable()):
        named = f"U+{ord(letter):04X}{unicodedata.name(letter, '') and ', ' + unicodedata.name(letter).lower()}"
        raise SpecError(where, text, f"must be printable text on one line, and has {named}")
    require(len(text) <= most, where, text, f"has {len(text):,} characters, more than the {most:,} that it may have")
    return text


def join_path(outer: str, inner: str) -> str:
    """Return the dotted path of *inner* within *outer*; either may be empty."""
    return f"{outer}.{inner}" if outer and inner else outer or inner


def as_key(key: Any) -> str:
    """Return *key* of a mapping as paths show it: text as it is, anything else quoted."""
    return key if isinstance(key, str) else shorten(key)


def one_line(text: str) -> str:
    r"""Return *text* on one line, with unprintable characters escaped.

    >>> print(one_line("a\tb"))
    a\tb
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def describe_error(error: BaseException) -> str:
    """Return what somebody else's error says, on one line: its type and its text, if it has one.

    >>> describe_error(ZeroDivisionError("by zero")), describe_error(SystemExit(3))
    ('ZeroDivisionError: by zero', 'SystemExit: 3')
    """
    try:
        text = str(error)
    except Exception:  # its text may be a program, too
        text = ""
    return one_line(": ".join(filter(None, [type(error).__name__, text])))


def suggest_names(name: str, names: Iterable[str], shown: int = 12) -> str:
    """Return a hint for an unknown *name*: its new name, a near miss, or a short list.

    >>> suggest_names("workload.sp", ["workload.cp", "workload.dp"])
    "; it is called 'workload.cp' now"
    """
    candidates = sorted(names)
    if (renamed := _find_new_name(name)) in candidates:
        return f"; it is called '{renamed}' now"
    if near := get_close_matches(name.lower(), [candidate.lower() for candidate in candidates], n=1, cutoff=0.6):
        spellings = [
            candidate for candidate in candidates if candidate.lower() == near[0]
        ]  # 'Gib' and 'GiB' differ in case only
        return f"; did you mean '{max(spellings, key=lambda spelling: SequenceMatcher(None, name, spelling).ratio())}'?"
    within = [candidate for candidate in candidates if len(name) > 2 and name.lower() in candidate.lower()]
    if within:
        return f"; did you mean {' or '.join(map(repr, within[:3]))}?"
    if len(candidates) <= shown:
        return f"; choose from {', '.join(candidates)}" if candidates else ""
    return f"; there are {len(candidates)}, for example {', '.join(candidates[:3])}"


def _find_new_name(name: str) -> str:
    """Return the new name of a renamed key, under the same path; empty if it was not renamed."""
    outer, _, key = name.rpartition(".")
    return join_path(outer, RENAMED[key]) if key in RENAMED else ""


def shorten(value: Any) -> str:
    """Return *value* as messages quote it: its repr on one line, cut if long; a path as its text.

    >>> from pathlib import PurePosixPath
    >>> print(shorten(PurePosixPath("a/b.csv")), shorten([PurePosixPath("c")]))
    'a/b.csv' ['c']
    """
    try:
        text = _BRIEF_REPR.repr(value)
    except ValueError:  # an int of thousands of digits has no repr
        text = f"<{type(value).__name__}>"
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 1]}…"
