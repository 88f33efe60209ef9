"""What was done to traces: a kind of repair, how often, and an example."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from cosmic.traces.findings import rank_text


@dataclass(frozen=True, slots=True)
class Repair:
    """One kind of repair."""

    what: str
    """What was done, as a plural: 'self dependencies dropped'."""
    count: int
    """How often, in all ranks."""
    example: str
    """A sentence about the first."""


@dataclass(frozen=True, slots=True)
class Place:
    """The ranks that run one template, for counts and sentences."""

    where: str
    """The prefix of the files."""
    ranks: Sequence[int]

    def repair(self, what: str, count: int, example: str) -> list[Repair]:
        """Return what was done *count* times in each of these ranks; nothing if that is 0 times."""
        if not count:
            return []
        return [Repair(what, count * len(self.ranks), f"{rank_text(self.where, self.ranks)}: {example}")]


def merged(repairs: Iterable[Repair]) -> tuple[Repair, ...]:
    """Return one repair of each kind, in the order of their first, with the first example.

    >>> merged([Repair("nodes dropped", 2, "a"), Repair("nodes dropped", 3, "b")])
    (Repair(what='nodes dropped', count=5, example='a'),)
    """
    found: dict[str, Repair] = {}
    for each in repairs:
        before = found.get(each.what)
        found[each.what] = each if before is None else replace(before, count=before.count + each.count)
    return tuple(found.values())
