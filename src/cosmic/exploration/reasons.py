"""Why points cannot run, for many points: few texts, and a code into them for each point."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from cosmic.psa.diagram import Flags, Indices

Codes = npt.NDArray[np.uint32]


class Reasons(Sequence[str]):
    """A sequence of texts in which few are different: a million of them take 4 MB.

    >>> some = Reasons.of(["memory", "", "memory"])
    >>> some.texts, some.codes.tolist(), some[2], list(some[1:])
    (('memory', ''), [0, 1, 0], 'memory', ['', 'memory'])
    """

    __slots__ = ("codes", "texts")

    def __init__(self, texts: tuple[str, ...], codes: Codes) -> None:
        self.texts = texts
        """All different, and maybe some that no code points to."""
        self.codes = codes

    @classmethod
    def of(cls, texts: Sequence[str]) -> Reasons:
        """Return *texts* as codes."""
        if isinstance(texts, Reasons):
            return texts
        code: dict[str, int] = {}
        codes = [code.setdefault(text, len(code)) for text in texts]
        return cls(tuple(code), np.array(codes, dtype=np.uint32))

    @classmethod
    def same(cls, text: str, n: int) -> Reasons:
        """Return one text *n* times."""
        return cls((text,), np.zeros(n, dtype=np.uint32))

    @classmethod
    def join(cls, parts: Iterable[Reasons]) -> Reasons:
        """Return several sequences as one."""
        code: dict[str, int] = {}
        codes = [part.codes_in(code) for part in parts]
        return cls(tuple(code), np.concatenate(codes) if codes else np.empty(0, dtype=np.uint32))

    def codes_in(self, code: dict[str, int]) -> Codes:
        """Return the codes of these texts in another table, to which unknown texts are added."""
        table = np.array([code.setdefault(text, len(code)) for text in self.texts], dtype=np.uint32)
        return table[self.codes] if len(self.codes) else self.codes

    def take(self, places: Indices) -> Reasons:
        """Return the texts at *places*."""
        return Reasons(self.texts, self.codes[places])

    def counts(self) -> dict[str, int]:
        """Return how often each text is there, in the order in which they first appear."""
        used, first, count = np.unique(self.codes, return_index=True, return_counts=True)
        found = sorted(zip(first.tolist(), used.tolist(), count.tolist(), strict=True))
        return {self.texts[code]: times for _, code, times in found}

    def differs(self, other: Reasons) -> Flags:
        """Return at which places two sequences of the same length have different texts."""
        code: dict[str, int] = {}
        return np.asarray(self.codes_in(code) != other.codes_in(code))

    def __len__(self) -> int:
        return len(self.codes)

    def __iter__(self) -> Iterator[str]:
        return map(self.texts.__getitem__, self.codes.tolist())

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> Reasons: ...
    def __getitem__(self, place: int | slice) -> str | Reasons:
        if isinstance(place, slice):
            return Reasons(self.texts, self.codes[place])
        return self.texts[int(self.codes[place])]

    def __eq__(self, other: Any) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and not self.differs(Reasons.of(other)).any()

    __hash__ = None  # type: ignore[assignment]  # like a list

    def __repr__(self) -> str:
        return f"Reasons.of({list(self)!r})"
