"""Which nodes of a program to make variables, so that slopes with respect to them say most.

Any choice is sound; a poor one proves nothing. Slopes are exact as long as operations are linear with coefficients that
the skeleton decides, and become intervals at maxima and minima. So variables are best the seconds of collectives:
behind the maximum over the network's dimensions, before any of it is hidden behind compute.

From the last nodes with a sign we go back through linear operations, but not into a sum that has a term and its
maximum with others, such as t1 + t2 + (C - 1) max(t1, t2): as a whole it has slope 1, and taken apart its slope is an
interval. A maximum or minimum of what is a variable already is taken apart.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from cosmic.certifying.intervals import Interval
from cosmic.certifying.programs import Group

Sign = tuple[Any, Any]
"""In which boxes a number rises, and in which it falls, when all worsens; both where it is constant."""
CONSTANT: Sign = (True, True)
NEITHER: Sign = (False, False)


@dataclass(frozen=True)
class Walk:
    """Intervals and signs of nodes of a program, over all designs of each skeleton."""

    intervals: dict[int, Interval] = field(default_factory=dict)
    signs: dict[int, Sign] = field(default_factory=dict)


def needed_until(group: Group, wanted: Iterable[int], given: Mapping[int, Any], found: Walk | None = None) -> list[int]:
    """Return the nodes that some results need, in order; of *given* ones nothing more is asked.

    What selections that were *found* to be the same in all skeletons do not select is not needed.
    """
    needed: set[int] = set()
    waiting = list(wanted)
    while waiting:
        place = waiting.pop()
        if place not in needed:
            needed.add(place)
            if place not in given:
                waiting += group.reading[place] if found is None else selected(group, found, place)
    return sorted(needed)


def selected(group: Group, found: Walk, place: int) -> Sequence[int]:
    """Return what a node reads; of a selection that is the same in all skeletons, only what it selects."""
    read = group.reading[place]
    if group.named(place) == "where" and read[0] in found.intervals and (asked := found.intervals[read[0]]).known:
        if np.all(asked.least != 0):
            return [read[0], read[1]]
        if np.all(asked.least == 0):
            return [read[0], read[2]]
    return read


class Cut:
    """Chooses variables for one program."""

    def __init__(self, group: Group, found: Walk, held: Collection[int] = ()) -> None:
        self._group, self._found, self._held = group, found, held
        self._open = {place for place, interval in found.intervals.items() if not interval.known}
        self._leaves: dict[int, frozenset[int]] = {}

    def of(self, targets: Sequence[int]) -> list[int]:
        """Return the variables of which *targets* are taken as functions."""
        signed = {place for place in self._open if any(bool(np.all(each)) for each in self._found.signs[place])}
        needed = needed_until(self._group, targets, dict.fromkeys(signed), self._found)
        cut = {each for place in needed if place not in signed for each in self._read(place) if each in signed}
        while taken := {
            place
            for place in cut - set(self._held)
            if place not in signed or self._divides(place) or self._below(place, cut)
        }:
            cut = (cut - taken) | {each for place in taken for each in self._read(place)}
        return sorted(cut)

    def _read(self, place: int) -> list[int]:
        """Return what of a node's operands is open; of a selection that skeletons decide, what they select."""
        return [each for each in selected(self._group, self._found, place) if each in self._open]

    def _is_linear(self, place: int) -> bool:
        """Return whether a node is a linear function of what it reads, with coefficients that skeletons decide."""
        name, read = self._group.named(place), self._group.reading[place]
        if name in ("add", "subtract", "negative"):
            return True
        if name == "multiply":
            return sum(each in self._open for each in read) == 1
        return name in ("divide", "where") and read[1 if name == "divide" else 0] not in self._open

    def _divides(self, place: int) -> bool:
        """Return whether a variable had better be replaced by what it is a linear function of."""
        return place not in self._leaves_of(place)

    def _leaves_of(self, place: int) -> frozenset[int]:
        """Return the nodes of which a node is a linear function, and that are no such functions themselves."""
        if place not in self._leaves:
            whole = place in self._held or not self._is_linear(place)
            parts = [] if whole else [self._leaves_of(each) for each in self._read(place)]
            whole = whole or self._meets(parts)
            self._leaves[place] = frozenset([place]) if whole else frozenset().union(*parts)
        return self._leaves[place]

    def _meets(self, parts: Sequence[frozenset[int]]) -> bool:
        """Return whether one part has a maximum of what another has."""
        for one in parts:
            bent = [each for each in one if self._group.named(each) in ("maximum", "minimum")]
            others = frozenset().union(*(each for each in parts if each is not one))
            if any(self._ancestors[each] >> leaf & 1 for each in bent for leaf in others):
                return True
        return False

    @cached_property
    def _ancestors(self) -> dict[int, int]:
        """The open nodes that each open node depends on, as bits."""
        found: dict[int, int] = {}
        for place in sorted(self._open):
            bits = 0
            for each in self._read(place):
                bits |= found[each] | 1 << each
            found[place] = bits
        return found

    def _below(self, place: int, cut: set[int]) -> bool:
        """Return whether a selection is one of what another variable is, too: what is hidden, and the whole of it."""
        bent = self._group.named(place) in ("maximum", "minimum", "where")
        return bent and any(self._ancestors[place] >> each & 1 for each in cut)
