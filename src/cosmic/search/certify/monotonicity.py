"""Whether a step can only get longer when its network gets slower, shown from the recorded program.

A program is a list of operations, so that its derivative can be bounded by walking it. Two walks:

    signs    each node rises, falls, does neither, or is not known to, when everything worsens at once: bandwidths
             fall, latencies and what is looked up rise. Sums, products of what is not negative, maxima … keep order
    slopes   where signs do not reach the step (seconds - min(seconds, compute) is a difference of two that rise), the
             last nodes with a sign are made variables. With respect to each, the slope of every later node is an
             interval: of min(a, b) anything between both slopes, as Clarke's generalised gradient has it. The step
             never falls if its least slope is not negative

Signs are exact in floating point, as rounding keeps order; slopes are those of real numbers, so that a claim that rests
on them holds up to rounding, far below 1e-9. A choice between two values (`where`) whose condition may change inside
the box is no proof. Nothing is assumed about what the operations mean.

Which nodes become variables (`SlopeCut`): any choice is sound; a poor one proves nothing. Slopes are exact as long as
operations are linear with coefficients that the skeleton decides, and become intervals at maxima and minima. So
variables are best the seconds of collectives: behind the maximum over the network's dimensions, before any of it is
hidden behind compute. From the last nodes with a sign we go back through linear operations, but not into a sum that has
a term and its maximum with others, such as t1 + t2 + (C - 1) max(t1, t2): as a whole it has slope 1, and taken apart
its slope is an interval. A maximum or minimum of what is a variable already is taken apart.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from cosmic.search.certify.interval_arithmetic import (
    RISING,
    Flags,
    Interval,
    apply_operation,
    hull_of_intervals,
    known_interval,
)
from cosmic.search.certify.skeletons import Group, compute_node
from cosmic.search.space.diagram import Indices
from cosmic.simulate.recording.program_tape import OPERATION_NAMES, OPERATIONS

# --------------------------------------------------------------------------------------
# Which nodes of a program to make variables, so that slopes with respect to them say most
# --------------------------------------------------------------------------------------

Sign = tuple[Any, Any]
"""In which boxes a number rises, and in which it falls, when all worsens; both where it is constant."""
CONSTANT: Sign = (True, True)
NEITHER: Sign = (False, False)


@dataclass(frozen=True)
class Walk:
    """Intervals and signs of nodes of a program, over all designs of each skeleton."""

    intervals: dict[int, Interval] = field(default_factory=dict)
    signs: dict[int, Sign] = field(default_factory=dict)


def find_needed_nodes(
    group: Group, wanted: Iterable[int], given: Mapping[int, Any], found: Walk | None = None
) -> list[int]:
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
                waiting += group.reading[place] if found is None else selected_operands(group, found, place)
    return sorted(needed)


def selected_operands(group: Group, found: Walk, place: int) -> Sequence[int]:
    """Return what a node reads; of a selection that is the same in all skeletons, only what it selects."""
    read = group.reading[place]
    if group.named(place) == "where" and read[0] in found.intervals and (asked := found.intervals[read[0]]).known:
        if np.all(asked.least != 0):
            return [read[0], read[1]]
        if np.all(asked.least == 0):
            return [read[0], read[2]]
    return read


class SlopeCut:
    """Chooses variables for one program."""

    def __init__(self, group: Group, found: Walk, held: Collection[int] = ()) -> None:
        self._group, self._found, self._held = group, found, held
        self._open = {place for place, interval in found.intervals.items() if not interval.known}
        self._leaves: dict[int, frozenset[int]] = {}

    def of(self, targets: Sequence[int]) -> list[int]:
        """Return the variables of which *targets* are taken as functions."""
        signed = {place for place in self._open if any(bool(np.all(each)) for each in self._found.signs[place])}
        needed = find_needed_nodes(self._group, targets, dict.fromkeys(signed), self._found)
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
        return [operand for operand in selected_operands(self._group, self._found, place) if operand in self._open]

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
            others = frozenset().union(*(part for part in parts if part is not one))
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


# --------------------------------------------------------------------------------------
# Whether a step can only get longer when its network gets slower, shown from the recorded program
# --------------------------------------------------------------------------------------

ORIENTATION = {
    "collective_terms": (1, 1),
    "point_to_point_terms": (1, -1),
    "block_terms": (1, -1),
    "tier_terms": (-1, 1),
    "message_terms": (-1, 1),
    "library_terms": (-1, -1),
}
"""Which way each number that is looked up is worse."""
ROUNDING = 1e-12
"""Share by which an operation's rounding may move a number, with room to spare."""
AT_ONCE = 2_000
"""Boxes whose slopes are bounded at a time."""


def worsening_inputs(group: Group) -> Walk:
    """Return the intervals and signs of what differs among the designs of a skeleton."""
    found = Walk()
    for each in group.division.ranges:
        for index, path in enumerate(each.paths):
            if path in group.range_nodes:
                node, (slowest, fastest) = group.range_nodes[path], each.values[[0, -1], index]
                ends = np.asarray(min(slowest, fastest)), np.asarray(max(slowest, fastest))
                found.intervals[node] = Interval(*ends) if slowest != fastest else known_interval(slowest)
                found.signs[node] = (bool(fastest <= slowest), bool(slowest <= fastest))
    for place, answer in group.compared.items():
        found.intervals[place], found.signs[place] = known_interval(answer), CONSTANT
    for term in group.terms:
        worse = ORIENTATION.get(term.function, (0, 0))[term.side]
        least, most = term.least, term.most
        if np.array_equal(least, most):
            found.intervals[term.node], found.signs[term.node] = known_interval(least), CONSTANT
        else:
            found.intervals[term.node], found.signs[term.node] = Interval(least, most), (worse > 0, worse < 0)
    return found


def walk_program(group: Group, wanted: Iterable[int], given: Walk) -> Walk:
    """Return the intervals and signs of all nodes that some results need, from *given* ones."""
    program = group.program
    found = Walk()
    for place in find_needed_nodes(group, wanted, given.intervals):
        node, read = program.nodes[place].tolist(), group.reading[place]
        if place in given.intervals:
            found.intervals[place], found.signs[place] = given.intervals[place], given.signs[place]
        elif node[0] < 0:
            value = program.constants[place] if place in program.constants else group.inputs[place]
            found.intervals[place], found.signs[place] = known_interval(value), CONSTANT
        else:
            operands = [found.intervals[each] for each in read]
            interval = _interval(group, node, operands)
            if not interval.known and interval.fixed.all():
                interval = known_interval(interval.least)
            found.intervals[place] = interval
            signs = [found.signs[each] for each in read]
            found.signs[place] = (
                CONSTANT if interval.known else _sign(OPERATION_NAMES[node[0]], operands, signs, interval)
            )
    return found


def _interval(group: Group, node: list[int], operands: list[Interval]) -> Interval:
    name = OPERATION_NAMES[node[0]]
    if all(operand.known for operand in operands):
        with np.errstate(all="ignore"):
            return known_interval(compute_node(group.program, node, [operand.least for operand in operands]))
    if name in OPERATIONS:
        return apply_operation(name, operands)
    return Interval(np.asarray(-np.inf), np.asarray(np.inf))


# ------------------------------------------------------------------------------------------------- signs


def _sign(name: str, operands: Sequence[Interval], signs: Sequence[Sign], result: Interval) -> Sign:
    """Return whether an operation's result rises or falls when all worsens."""
    rule = SIGNS.get(name)
    if name in RISING:
        rises, falls = signs[0]
        for up, down in signs[1:]:
            rises, falls = rises & up, falls & down
    else:
        rises, falls = NEITHER if rule is None else rule(operands, signs)
    fixed = result.fixed  # e.g. a maximum that one operand always exceeds
    return rises | fixed, falls | fixed


def _swapped(operands: Sequence[Interval], signs: Sequence[Sign]) -> Sign:
    return signs[0][1], signs[0][0]


def _difference(operands: Sequence[Interval], signs: Sequence[Sign]) -> Sign:
    (up, down), (other_up, other_down) = signs
    return up & other_down, down & other_up


def _scaled(sign: Sign, factor: Interval) -> Sign:
    """Return the sign of what is multiplied by *factor*, held still."""
    (rises, falls), up, down = sign, factor.least >= 0, factor.most <= 0
    constant = rises & falls
    return (rises & up) | (falls & down) | constant, (falls & up) | (rises & down) | constant


def _product(operands: Sequence[Interval], signs: Sequence[Sign]) -> Sign:
    one, other = _scaled(signs[0], operands[1]), _scaled(signs[1], operands[0])
    return one[0] & other[0], one[1] & other[1]


def _quotient(operands: Sequence[Interval], signs: Sequence[Sign]) -> Sign:
    above = operands[1].least > 0
    other = _scaled((signs[1][1], signs[1][0]), operands[0])
    return signs[0][0] & other[0] & above, signs[0][1] & other[1] & above


def _power(operands: Sequence[Interval], signs: Sequence[Sign]) -> Sign:
    plain = (operands[0].least >= 0) & (operands[1].least >= 0) & operands[1].fixed
    return signs[0][0] & plain, signs[0][1] & plain


def _absolute(operands: Sequence[Interval], signs: Sequence[Sign]) -> Sign:
    plain = operands[0].least >= 0
    return signs[0][0] & plain, signs[0][1] & plain


def _less(operands: Sequence[Interval], signs: Sequence[Sign]) -> Sign:
    (up, down), (other_up, other_down) = signs
    return down & other_up, up & other_down


def _where(operands: Sequence[Interval], signs: Sequence[Sign]) -> Sign:
    condition, _, _ = operands
    always, never = condition.least != 0, condition.most == 0
    rises = (always & signs[1][0]) | (never & signs[2][0])
    falls = (always & signs[1][1]) | (never & signs[2][1])
    return rises, falls


SIGNS: dict[str, Callable[[Sequence[Interval], Sequence[Sign]], Sign]] = {
    "negative": _swapped,
    "logical_not": _swapped,
    "subtract": _difference,
    "multiply": _product,
    "logical_and": _product,
    "divide": _quotient,
    "floor_divide": _quotient,
    "power": _power,
    "absolute": _absolute,
    "less": _less,
    "less_equal": _less,
    "where": _where,
}
"""How operations that do not rise with all their operands pass signs on."""


# ------------------------------------------------------------------------------------------------ slopes


def never_falls(group: Group, targets: Sequence[int]) -> Flags:
    """Return for which skeletons none of *targets* falls when all worsens.

    What cannot be shown of all skeletons at once is tried again with those that are left, at last each by itself.
    """
    proven = np.zeros(len(group.skeletons), dtype=bool)
    left, together = np.arange(len(proven)), True
    while len(left):
        found = _never_falls(group.take(left), targets, together=together)
        if not found.any():
            if not together:
                break
            together = False
        proven[left[found]] = True
        left = left[~found]
    return proven


def _never_falls(group: Group, targets: Sequence[int], *, together: bool) -> Flags:
    """Return for which skeletons none of *targets* falls when all worsens.

    Nodes that slopes show to rise where signs do not are given their sign, and all is walked again: they become
    variables themselves, so that what is exposed of a collective is one number wherever it is used.
    """
    given = worsening_inputs(group)
    held: set[int] = set()
    proven = {target: np.zeros(len(group.skeletons), dtype=bool) for target in targets}
    while True:
        found = walk_program(group, targets, given)
        cut = SlopeCut(group, found, held).of(targets)
        sloped = _find_slopes(group, targets, found, cut, together=together) if cut else Walk()
        for target in targets:
            for signs in (found.signs, sloped.signs):
                proven[target] |= signs.get(target, NEITHER)[0]
        learned = _signs_from_slopes(group, found, sloped)
        whole = np.logical_and.reduce(list(proven.values()))
        if whole.all() or not learned - set(given.intervals):
            return np.asarray(whole)
        for place in learned:
            given.intervals[place], given.signs[place] = sloped.intervals[place], sloped.signs[place]
        held |= {place for place in learned if not sloped.intervals[place].known}


def _signs_from_slopes(group: Group, found: Walk, sloped: Walk) -> set[int]:
    """Return the nodes of which slopes say, in all boxes, what does not follow from the signs of their operands."""
    signs = dict(found.signs)
    learned = set()
    for place in sorted(sloped.signs):
        read = group.reading[place]
        operands = [found.intervals[each] for each in read]
        ruled = _sign(group.named(place), operands, [signs[each] for each in read], found.intervals[place])
        new = sloped.signs[place]
        if sloped.intervals[place].known or any(
            bool(np.all(one)) and not bool(np.all(other)) for one, other in zip(new, ruled, strict=True)
        ):
            learned.add(place)
            signs[place] = new
        else:
            signs[place] = ruled
    return learned


def _find_slopes(group: Group, targets: Sequence[int], found: Walk, cut: list[int], *, together: bool) -> Walk:
    """Return which nodes rise and fall by their slopes, and between which ends, for each skeleton.

    Skeletons whose numbers differ in nothing but the variables share a box, which holds the variables of all of them.
    """
    ends = {place for place in found.intervals if _is_end(group, found, place)}
    places = find_needed_nodes(group, targets, dict.fromkeys([*cut, *ends]), found)
    count = len(group.skeletons)
    inner = [place for place in places if place not in cut]
    boxes = _boxes(found, inner, count) if together else _Boxes(np.arange(count), np.arange(count))
    parts: dict[int, list[tuple[Any, ...]]] = {}
    for start in range(0, len(boxes.firsts), AT_ONCE):
        box = _Box(group, found, cut, boxes, slice(start, start + AT_ONCE))
        for place in places:
            if place not in box.slopes:
                box.visit(place, given=place in ends)
            if place in box.slopes and place not in cut and place not in ends and group.reading[place]:
                each = (*box.values[place], *box.direction(place))
                parts.setdefault(place, []).append(tuple(np.broadcast_to(one, box.count) for one in each))
    sloped = Walk()
    for place, pieces in parts.items():
        least, most, rises, falls = (np.concatenate(each)[boxes.which] for each in zip(*pieces, strict=True))
        if np.array_equal(least, most) or (rises & falls).all():  # a constant, up to rounding
            sloped.intervals[place], sloped.signs[place] = known_interval(least), CONSTANT
        else:
            sloped.intervals[place], sloped.signs[place] = Interval(least, most), (rises, falls)
    return sloped


def _is_end(group: Group, found: Walk, place: int) -> bool:
    """Return whether a node is known, or given: what it reads need not be looked at."""
    return found.intervals[place].known or any(each not in found.intervals for each in group.reading[place])


@dataclass(frozen=True)
class _Boxes:
    """Which skeletons share a box."""

    which: Indices
    firsts: Indices
    """A skeleton of each box."""

    def known(self, values: Any) -> Any:
        """Return numbers that the skeletons of a box share."""
        return values[self.firsts] if np.ndim(values) else values

    def hull(self, interval: Interval) -> Interval:
        """Return the interval of all skeletons of each box."""
        if interval.known or not (interval.least.ndim or interval.most.ndim):
            return known_interval(self.known(interval.least)) if interval.known else interval
        least, most = (np.broadcast_to(each, len(self.which)) for each in interval)
        lower, upper = np.full(len(self.firsts), np.inf), np.full(len(self.firsts), -np.inf)
        np.minimum.at(lower, self.which, least)
        np.maximum.at(upper, self.which, most)
        return Interval(lower, upper)


def _boxes(found: Walk, places: list[int], count: int) -> _Boxes:
    """Return the boxes of skeletons that agree in every known number at *places*."""
    which = np.zeros(count, dtype=np.int64)
    for place in places:
        interval = found.intervals[place]
        if interval.known and interval.least.ndim:
            _, codes = np.unique(interval.least, return_inverse=True)
            _, which = np.unique(which * (int(codes.max()) + 1) + codes.reshape(-1), return_inverse=True)
    _, firsts, which = np.unique(which, return_index=True, return_inverse=True)
    return _Boxes(which.reshape(-1), firsts)


class _Box:
    """The slopes of nodes with respect to the variables of a cut, in the boxes of some skeletons."""

    def __init__(self, group: Group, found: Walk, cut: list[int], boxes: _Boxes, part: slice) -> None:
        self.group, self.found, self.boxes, self.part = group, found, boxes, part
        self.count = len(boxes.firsts[part])
        self.values: dict[int, Interval] = {}
        self.ends: dict[int, tuple[Any, Any]] = {}
        """What a node is where all variables are at their best, and where they are at their worst."""
        self.slopes: dict[int, Interval] = {}
        self.zero = known_interval(np.zeros((len(cut), 1)))
        self.lost = Interval(*(np.full((len(cut), 1), end) for end in (-np.inf, np.inf)))
        turned = np.ones((len(cut), 1))
        for number, place in enumerate(cut):
            unit = np.zeros((len(cut), 1))
            unit[number] = 1.0
            rises, falls = (bool(np.all(each)) for each in found.signs[place])
            least, most = self._taken(place)
            self.slopes[place], self.values[place] = known_interval(unit), Interval(least, most)
            self.ends[place] = np.where(rises, least, most), np.where(rises, most, least)
            turned[number] = np.where(rises, 1.0, np.where(falls, -1.0, np.nan))
        self.turned = known_interval(turned)
        """1 for a variable that rises when all worsens, -1 for one that falls, no number for others."""

    def _taken(self, place: int) -> Interval:
        held = self.boxes.hull(self.found.intervals[place])
        if held.known:
            return known_interval(held.least[self.part] if held.least.ndim else held.least)
        return Interval(*(each[self.part] if each.ndim else each for each in held))

    def direction(self, place: int) -> tuple[Flags, Flags]:
        """Return in which boxes a node rises, and in which it falls, when all worsens."""
        if place not in self.slopes:
            return np.asarray(True), np.asarray(True)
        with np.errstate(all="ignore"):
            ends = [each * self.turned.least for each in self.slopes[place]]
        least, most = np.minimum(*ends), np.maximum(*ends)
        return np.asarray((least >= 0).all(axis=0)), np.asarray((most <= 0).all(axis=0))

    def visit(self, place: int, *, given: bool) -> None:
        """Work out the slopes of a node, and its value where they say more than intervals do."""
        read, name = selected_operands(self.group, self.found, place), self.group.named(place)
        if name == "where" and len(read) == 2 and not given:
            chosen = read[1]
            self.values[place], self.ends[place] = self.values[chosen], self.ends[chosen]
            if chosen in self.slopes:
                self.slopes[place] = self.slopes[chosen]
            return
        if given or not any(each in self.slopes for each in read):
            self.values[place] = self._taken(place)
            self.ends[place] = self.values[place].least, self.values[place].most
            if not self.values[place].known:  # it differs among designs, and not by way of the variables
                self.slopes[place] = self.lost
            return
        operands = [self.values[each] for each in read]
        inner = [self.slopes.get(each, self.zero) for each in read]
        node = self.group.program.nodes[place].tolist()
        with np.errstate(all="ignore"):
            self.slopes[place] = _slope(name, operands, inner)
            best, worst = (
                compute_node(self.group.program, node, [self.ends[each][side] for each in read]) for side in (0, 1)
            )
        self.ends[place] = best, worst
        least, most = apply_operation(name, operands)
        rises, falls = self.direction(place)
        with np.errstate(all="ignore"):
            room = ROUNDING * np.maximum(np.abs(best), np.abs(worst))
            lower = np.where(rises, best - room, np.where(falls, worst - room, -np.inf))
            upper = np.where(rises, worst + room, np.where(falls, best + room, np.inf))
        self.values[place] = Interval(np.fmax(least, lower), np.fmin(most, upper))


def _slope(name: str, values: Sequence[Interval], slopes: Sequence[Interval]) -> Interval:
    """Return the interval of an operation's slope from those of its operands."""
    if name in ("add", "subtract", "negative"):
        return apply_operation(name, slopes)
    if name in ("maximum", "minimum"):
        return _slope_of_extremum(name, values, slopes)
    if name == "multiply":
        parts = [
            apply_operation("multiply", [slopes[0], values[1]]),
            apply_operation("multiply", [slopes[1], values[0]]),
        ]
        return apply_operation("add", parts)
    if name == "divide":
        inverse = apply_operation("divide", [known_interval(1.0), values[1]])
        squared = apply_operation("multiply", [apply_operation("divide", [values[0], values[1]]), inverse])
        parts = [apply_operation("multiply", [slopes[0], inverse]), apply_operation("multiply", [slopes[1], squared])]
        return apply_operation("subtract", parts)
    if name == "where":
        condition, _, _ = values
        _, then, otherwise = slopes
        decided = (condition.least != 0) | (condition.most == 0)
        always = condition.least != 0
        least = np.where(always, then.least, otherwise.least)
        most = np.where(always, then.most, otherwise.most)
        return Interval(np.where(decided, least, -np.inf), np.where(decided, most, np.inf))
    if all(slope.known and not slope.least.any() for slope in slopes):
        return slopes[0]
    shape = np.broadcast_shapes(*(each.least.shape for each in (*slopes, *values)))
    return Interval(np.full(shape, -np.inf), np.full(shape, np.inf))


def _slope_of_extremum(name: str, values: Sequence[Interval], slopes: Sequence[Interval]) -> Interval:
    """Return the slope of a maximum or minimum: of the operand that decides, or anything between both."""
    (one, other), (slope, other_slope) = values, slopes
    above, below = one.least > other.most, one.most < other.least
    first, second = (above, below) if name == "maximum" else (below, above)
    both = hull_of_intervals([slope, other_slope])
    least = np.where(first, slope.least, np.where(second, other_slope.least, both.least))
    most = np.where(first, slope.most, np.where(second, other_slope.most, both.most))
    return Interval(least, most)
