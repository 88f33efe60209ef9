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

Interval arithmetic over the operations of a recorded program.

An interval is two arrays, the least and the most that a number can be in each of many boxes of designs. Rounding keeps
order, so that what the same operations give at the ends bounds, to the bit, what they give in between.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cosmic.search.certify.skeletons import Group
from cosmic.search.space.diagram import Indices
from cosmic.simulate.recording.program_interpreters import compute_node
from cosmic.simulate.recording.program_tape import OPERATION_NAMES, OPERATIONS

# ---- Interval arithmetic over the operations of a recorded program

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


class Interval(NamedTuple):
    """The least and the most of a number; the same array twice where it is known."""

    least: Floats
    most: Floats

    @property
    def known(self) -> bool:
        """Whether it is one number in each box, by how it came about."""
        return self.least is self.most

    @property
    def fixed(self) -> Flags:
        """In which boxes it is one number."""
        return np.asarray(self.least == self.most)


def known_interval(value: Any) -> Interval:
    """Return a number that is known."""
    number = np.asarray(value, dtype=np.float64)
    return Interval(number, number)


def hull_of_intervals(parts: Sequence[Interval]) -> Interval:
    """Return the interval that holds all of *parts*.

    >>> hull_of_intervals([known_interval(1.0), Interval(np.array(0.0), np.array(3.0))])
    Interval(least=array(0.), most=array(3.))
    """
    least, most = parts[0]
    for part in parts[1:]:
        least, most = np.minimum(least, part.least), np.maximum(most, part.most)
    return Interval(np.asarray(least), np.asarray(most))


ROUNDED = ("floor", "ceil", "rint", "trunc")
RISING = (*ROUNDED, "sqrt", "cbrt", "expm1", "log", "log2", "add", "maximum", "minimum", "logical_or")
"""Operations that never fall when an operand rises."""


def apply_operation(name: str, operands: Sequence[Interval]) -> Interval:
    """Return the interval of an operation's result.

    >>> two = Interval(np.array(1.0), np.array(2.0))
    >>> apply_operation("subtract", [two, two])
    Interval(least=array(-1.), most=array(1.))
    >>> apply_operation("multiply", [Interval(np.array(-1.0), np.array(3.0)), two])
    Interval(least=array(-2.), most=array(6.))
    """
    with np.errstate(all="ignore"):
        if all(operand.known for operand in operands):
            return known_interval(OPERATIONS[name](*(operand.least for operand in operands)))
        if name in RISING:
            ends = (OPERATIONS[name](*side) for side in zip(*operands, strict=True))
            return _checked(*ends)
        rule: Callable[..., tuple[Any, Any]] = RULES.get(name, _unknown)
        return _checked(*rule(*operands))


def _checked(least: Any, most: Any) -> Interval:
    """Return an interval; where an end is no number, any number may be inside."""
    lost = np.isnan(least) | np.isnan(most)
    return Interval(np.where(lost, -np.inf, least), np.where(lost, np.inf, most))


def _unknown(*operands: Interval) -> tuple[Any, Any]:
    shape = np.broadcast_shapes(
        *(operand.least.shape for operand in operands), *(operand.most.shape for operand in operands)
    )
    return np.full(shape, -np.inf), np.full(shape, np.inf)


def _negative(operand: Interval) -> tuple[Any, Any]:
    return -operand.most, -operand.least


def _absolute_interval(operand: Interval) -> tuple[Any, Any]:
    ends = np.abs(operand.least), np.abs(operand.most)
    return np.where((operand.least <= 0) & (operand.most >= 0), 0.0, np.minimum(*ends)), np.maximum(*ends)


def _subtract(left: Interval, right: Interval) -> tuple[Any, Any]:
    return left.least - right.most, left.most - right.least


def _corners(function: Callable[..., Any], left: Interval, right: Interval) -> tuple[Any, Any]:
    ends = [function(first, second) for first in left for second in right]
    ends = [
        np.where(np.isnan(end_value), 0.0, end_value) for end_value in ends
    ]  # 0 times infinity is 0 at the end of an interval
    least, most = ends[0], ends[0]
    for end in ends[1:]:
        least, most = np.minimum(least, end), np.maximum(most, end)
    return least, most


def _multiply(left: Interval, right: Interval) -> tuple[Any, Any]:
    return _corners(np.multiply, left, right)


def _divide(left: Interval, right: Interval) -> tuple[Any, Any]:
    least, most = _corners(np.divide, left, right)
    through = (right.least <= 0) & (right.most >= 0)
    return np.where(through, -np.inf, least), np.where(through, np.inf, most)


def _floor_divide(left: Interval, right: Interval) -> tuple[Any, Any]:
    least, most = _divide(left, right)
    return np.floor(least) - 1, np.floor(most) + 1  # NumPy's floor of a rounded quotient may be one off


def _power_interval(base: Interval, exponent: Interval) -> tuple[Any, Any]:
    if np.all(base.least > 0):
        return _corners(OPERATIONS["power"], base, exponent)
    return _unknown(base, exponent)


def _compared(strictly: bool) -> Callable[[Interval, Interval], tuple[Any, Any]]:
    def rule(left: Interval, right: Interval) -> tuple[Any, Any]:
        always = left.most < right.least if strictly else left.most <= right.least
        never = left.least >= right.most if strictly else left.least > right.most
        return always * 1.0, 1.0 - never

    return rule


def _equal(left: Interval, right: Interval) -> tuple[Any, Any]:
    apart = (left.most < right.least) | (right.most < left.least)
    return (left.fixed & right.fixed & (left.least == right.least)) * 1.0, 1.0 - apart


def _not_equal(left: Interval, right: Interval) -> tuple[Any, Any]:
    least, most = _equal(left, right)
    return 1.0 - most, 1.0 - least


def _where_interval(condition: Interval, then: Interval, otherwise: Interval) -> tuple[Any, Any]:
    always, never = condition.least != 0, condition.most == 0
    either = hull_of_intervals([then, otherwise])
    least = np.where(always, then.least, np.where(never, otherwise.least, either.least))
    most = np.where(always, then.most, np.where(never, otherwise.most, either.most))
    return least, most


RULES: dict[str, Callable[..., tuple[Any, Any]]] = {
    "negative": _negative,
    "absolute": _absolute_interval,
    "logical_not": lambda operand: (1.0 - operand.most, 1.0 - operand.least),
    "subtract": _subtract,
    "multiply": _multiply,
    "logical_and": _multiply,
    "divide": _divide,
    "floor_divide": _floor_divide,
    "power": _power_interval,
    "less": _compared(strictly=True),
    "less_equal": _compared(strictly=False),
    "equal": _equal,
    "not_equal": _not_equal,
    "where": _where_interval,
}
"""How each operation that does not rise with all its operands bounds its result."""


# ---- Which nodes of a program to make variables, so that slopes with respect to them say most

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
    group: Group, results: Iterable[int], start: Mapping[int, Any], walk: Walk | None = None
) -> list[int]:
    """Return the nodes that some results need, in order; of *start* ones nothing more is asked.

    What selections that were *walk* to be the same in all skeletons do not select is not needed.
    """
    needed: set[int] = set()
    waiting = list(results)
    while waiting:
        node = waiting.pop()
        if node not in needed:
            needed.add(node)
            if node not in start:
                waiting += group.reading[node] if walk is None else selected_operands(group, walk, node)
    return sorted(needed)


def selected_operands(group: Group, walk: Walk, node: int) -> Sequence[int]:
    """Return what a node reads; of a selection that is the same in all skeletons, only what it selects."""
    operands = group.reading[node]
    if (
        group.operation(node) == "where"
        and operands[0] in walk.intervals
        and (condition := walk.intervals[operands[0]]).known
    ):
        if np.all(condition.least != 0):
            return [operands[0], operands[1]]
        if np.all(condition.least == 0):
            return [operands[0], operands[2]]
    return operands


class SlopeCut:
    """Chooses variables for one program."""

    def __init__(self, group: Group, walk: Walk, fixed: Collection[int] = ()) -> None:
        self._group, self._walk, self._fixed = group, walk, fixed
        self._open = {node for node, interval in walk.intervals.items() if not interval.known}
        self._leaves: dict[int, frozenset[int]] = {}

    def choose_variables(self, targets: Sequence[int]) -> list[int]:
        """Return the variables of which *targets* are taken as functions."""
        signed = {node for node in self._open if any(bool(np.all(operand)) for operand in self._walk.signs[node])}
        needed = find_needed_nodes(self._group, targets, dict.fromkeys(signed), self._walk)
        cut = {operand for node in needed if node not in signed for operand in self._read(node) if operand in signed}
        while replaced := {
            node
            for node in cut - set(self._fixed)
            if node not in signed or self._divides(node) or self._below(node, cut)
        }:
            cut = (cut - replaced) | {operand for node in replaced for operand in self._read(node)}
        return sorted(cut)

    def _read(self, node: int) -> list[int]:
        """Return what of a node's operands is open; of a selection that skeletons decide, what they select."""
        return [operand for operand in selected_operands(self._group, self._walk, node) if operand in self._open]

    def _is_linear(self, node: int) -> bool:
        """Return whether a node is a linear function of what it reads, with coefficients that skeletons decide."""
        name, read = self._group.operation(node), self._group.reading[node]
        if name in ("add", "subtract", "negative"):
            return True
        if name == "multiply":
            return sum(operand in self._open for operand in read) == 1
        return name in ("divide", "where") and read[1 if name == "divide" else 0] not in self._open

    def _divides(self, node: int) -> bool:
        """Return whether a variable had better be replaced by what it is a linear function of."""
        return node not in self._leaves_of(node)

    def _leaves_of(self, node: int) -> frozenset[int]:
        """Return the nodes of which a node is a linear function, and that are no such functions themselves."""
        if node not in self._leaves:
            is_leaf = node in self._fixed or not self._is_linear(node)
            parts = [] if is_leaf else [self._leaves_of(operand) for operand in self._read(node)]
            is_leaf = is_leaf or self._has_nested_extremum(parts)
            self._leaves[node] = frozenset([node]) if is_leaf else frozenset().union(*parts)
        return self._leaves[node]

    def _has_nested_extremum(self, parts: Sequence[frozenset[int]]) -> bool:
        """Return whether one part has a maximum of what another has."""
        for leaves in parts:
            extrema = [extremum for extremum in leaves if self._group.operation(extremum) in ("maximum", "minimum")]
            other_leaves = frozenset().union(*(part for part in parts if part is not leaves))
            if any(self._ancestors[extremum] >> leaf & 1 for extremum in extrema for leaf in other_leaves):
                return True
        return False

    @cached_property
    def _ancestors(self) -> dict[int, int]:
        """The open nodes that each open node depends on, as bits."""
        ancestors: dict[int, int] = {}
        for node in sorted(self._open):
            bits = 0
            for operand in self._read(node):
                bits |= ancestors[operand] | 1 << operand
            ancestors[node] = bits
        return ancestors

    def _below(self, node: int, cut: set[int]) -> bool:
        """Return whether a selection is one of what another variable is, too: what is hidden, and the whole of it."""
        is_selection = self._group.operation(node) in ("maximum", "minimum", "where")
        return is_selection and any(self._ancestors[node] >> variable & 1 for variable in cut)


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
BOXES_AT_ONCE = 2_000
"""Boxes whose slopes are bounded at a time."""


def worsening_inputs(group: Group) -> Walk:
    """Return the intervals and signs of what differs among the designs of a skeleton."""
    walk = Walk()
    for network_range in group.division.ranges:
        for index, path in enumerate(network_range.paths):
            if path in group.range_nodes:
                node, (slowest, fastest) = group.range_nodes[path], network_range.values[[0, -1], index]
                ends = np.asarray(min(slowest, fastest)), np.asarray(max(slowest, fastest))
                walk.intervals[node] = Interval(*ends) if slowest != fastest else known_interval(slowest)
                walk.signs[node] = (bool(fastest <= slowest), bool(slowest <= fastest))
    for comparison, answer in group.compared.items():
        walk.intervals[comparison], walk.signs[comparison] = known_interval(answer), CONSTANT
    for term in group.terms:
        worse = ORIENTATION.get(term.function, (0, 0))[term.side]
        least, most = term.least, term.most
        if np.array_equal(least, most):
            walk.intervals[term.node], walk.signs[term.node] = known_interval(least), CONSTANT
        else:
            walk.intervals[term.node], walk.signs[term.node] = Interval(least, most), (worse > 0, worse < 0)
    return walk


def walk_program(group: Group, results: Iterable[int], start: Walk) -> Walk:
    """Return the intervals and signs of all nodes that some results need, from *start* ones."""
    program = group.program
    walk = Walk()
    for index in find_needed_nodes(group, results, start.intervals):
        node, read = program.nodes[index].tolist(), group.reading[index]
        if index in start.intervals:
            walk.intervals[index], walk.signs[index] = start.intervals[index], start.signs[index]
        elif node[0] < 0:
            value = program.constants[index] if index in program.constants else group.inputs[index]
            walk.intervals[index], walk.signs[index] = known_interval(value), CONSTANT
        else:
            operands = [walk.intervals[operand] for operand in read]
            interval = _interval(group, node, operands)
            if not interval.known and interval.fixed.all():
                interval = known_interval(interval.least)
            walk.intervals[index] = interval
            signs = [walk.signs[operand] for operand in read]
            walk.signs[index] = (
                CONSTANT if interval.known else _sign(OPERATION_NAMES[node[0]], operands, signs, interval)
            )
    return walk


def _interval(group: Group, node: list[int], operands: list[Interval]) -> Interval:
    name = OPERATION_NAMES[node[0]]
    if all(operand.known for operand in operands):
        with np.errstate(all="ignore"):
            return known_interval(compute_node(group.program, node, [operand.least for operand in operands]))
    if name in OPERATIONS:
        return apply_operation(name, operands)
    return Interval(np.asarray(-np.inf), np.asarray(np.inf))


# ---- signs


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
    first, second = _scaled(signs[0], operands[1]), _scaled(signs[1], operands[0])
    return first[0] & second[0], first[1] & second[1]


def _quotient(operands: Sequence[Interval], signs: Sequence[Sign]) -> Sign:
    above = operands[1].least > 0
    divisor = _scaled((signs[1][1], signs[1][0]), operands[0])
    return signs[0][0] & divisor[0] & above, signs[0][1] & divisor[1] & above


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


# ---- slopes


def find_never_falling(group: Group, targets: Sequence[int]) -> Flags:
    """Return for which skeletons none of *targets* falls when all worsens.

    What cannot be shown of all skeletons at once is tried again with those that are left, at last each by itself.
    """
    proven = np.zeros(len(group.skeletons), dtype=bool)
    unproven, together = np.arange(len(proven)), True
    while len(unproven):
        monotone = _find_never_falling(group.select(unproven), targets, together=together)
        if not monotone.any():
            if not together:
                break
            together = False
        proven[unproven[monotone]] = True
        unproven = unproven[~monotone]
    return proven


def _find_never_falling(group: Group, targets: Sequence[int], *, together: bool) -> Flags:
    """Return for which skeletons none of *targets* falls when all worsens.

    Nodes that slopes show to rise where signs do not are given their sign, and all is walked again: they become
    variables themselves, so that what is exposed of a collective is one number wherever it is used.
    """
    start = worsening_inputs(group)
    fixed: set[int] = set()
    proven = {target: np.zeros(len(group.skeletons), dtype=bool) for target in targets}
    while True:
        walk = walk_program(group, targets, start)
        cut = SlopeCut(group, walk, fixed).choose_variables(targets)
        sloped = _find_slopes(group, targets, walk, cut, together=together) if cut else Walk()
        for target in targets:
            for signs in (walk.signs, sloped.signs):
                proven[target] |= signs.get(target, NEITHER)[0]
        learned = _signs_from_slopes(group, walk, sloped)
        monotone = np.logical_and.reduce(list(proven.values()))
        if monotone.all() or not learned - set(start.intervals):
            return np.asarray(monotone)
        for node in learned:
            start.intervals[node], start.signs[node] = sloped.intervals[node], sloped.signs[node]
        fixed |= {node for node in learned if not sloped.intervals[node].known}


def _signs_from_slopes(group: Group, walk: Walk, sloped: Walk) -> set[int]:
    """Return the nodes of which slopes say, in all boxes, what does not follow from the signs of their operands."""
    signs = dict(walk.signs)
    learned = set()
    for node in sorted(sloped.signs):
        read = group.reading[node]
        operands = [walk.intervals[operand] for operand in read]
        ruled = _sign(group.operation(node), operands, [signs[operand] for operand in read], walk.intervals[node])
        new = sloped.signs[node]
        if sloped.intervals[node].known or any(
            bool(np.all(sloped_sign)) and not bool(np.all(ruled_sign))
            for sloped_sign, ruled_sign in zip(new, ruled, strict=True)
        ):
            learned.add(node)
            signs[node] = new
        else:
            signs[node] = ruled
    return learned


def _find_slopes(group: Group, targets: Sequence[int], walk: Walk, cut: list[int], *, together: bool) -> Walk:
    """Return which nodes rise and fall by their slopes, and between which ends, for each skeleton.

    Skeletons whose numbers differ in nothing but the variables share a box, which holds the variables of all of them.
    """
    ends = {
        node
        for node in walk.intervals
        if (walk.intervals[node].known or any(operand not in walk.intervals for operand in group.reading[node]))
    }
    nodes = find_needed_nodes(group, targets, dict.fromkeys([*cut, *ends]), walk)
    count = len(group.skeletons)
    inner = [node for node in nodes if node not in cut]
    boxes = _boxes(walk, inner, count) if together else _Boxes(np.arange(count), np.arange(count))
    parts: dict[int, list[tuple[Any, ...]]] = {}
    for start in range(0, len(boxes.firsts), BOXES_AT_ONCE):
        box = _Box(group, walk, cut, boxes, slice(start, start + BOXES_AT_ONCE))
        for node in nodes:
            if node not in box.slopes:
                box.visit(node, is_end=node in ends)
            if node in box.slopes and node not in cut and node not in ends and group.reading[node]:
                piece = (*box.values[node], *box.direction(node))
                parts.setdefault(node, []).append(tuple(np.broadcast_to(number, box.count) for number in piece))
    sloped = Walk()
    for node, pieces in parts.items():
        least, most, rises, falls = (np.concatenate(piece)[boxes.which] for piece in zip(*pieces, strict=True))
        if np.array_equal(least, most) or (rises & falls).all():  # a constant, up to rounding
            sloped.intervals[node], sloped.signs[node] = known_interval(least), CONSTANT
        else:
            sloped.intervals[node], sloped.signs[node] = Interval(least, most), (rises, falls)
    return sloped


@dataclass(frozen=True)
class _Boxes:
    """Which skeletons share a box."""

    which: Indices
    firsts: Indices
    """A skeleton of each box."""

    def shared(self, values: Any) -> Any:
        """Return numbers that the skeletons of a box share."""
        return values[self.firsts] if np.ndim(values) else values

    def hull(self, interval: Interval) -> Interval:
        """Return the interval of all skeletons of each box."""
        if interval.known or not (interval.least.ndim or interval.most.ndim):
            return known_interval(self.shared(interval.least)) if interval.known else interval
        least, most = (np.broadcast_to(end, len(self.which)) for end in interval)
        lower, upper = np.full(len(self.firsts), np.inf), np.full(len(self.firsts), -np.inf)
        np.minimum.at(lower, self.which, least)
        np.maximum.at(upper, self.which, most)
        return Interval(lower, upper)


def _boxes(walk: Walk, nodes: list[int], count: int) -> _Boxes:
    """Return the boxes of skeletons that agree in every known number at *nodes*."""
    which = np.zeros(count, dtype=np.int64)
    for node in nodes:
        interval = walk.intervals[node]
        if interval.known and interval.least.ndim:
            _, codes = np.unique(interval.least, return_inverse=True)
            _, which = np.unique(which * (int(codes.max()) + 1) + codes.reshape(-1), return_inverse=True)
    _, firsts, which = np.unique(which, return_index=True, return_inverse=True)
    return _Boxes(which.reshape(-1), firsts)


class _Box:
    """The slopes of nodes with respect to the variables of a cut, in the boxes of some skeletons."""

    def __init__(self, group: Group, walk: Walk, cut: list[int], boxes: _Boxes, part: slice) -> None:
        self.group, self.walk, self.boxes, self.part = group, walk, boxes, part
        self.count = len(boxes.firsts[part])
        self.values: dict[int, Interval] = {}
        self.ends: dict[int, tuple[Any, Any]] = {}
        """What a node is where all variables are at their best, and where they are at their worst."""
        self.slopes: dict[int, Interval] = {}
        self.zero = known_interval(np.zeros((len(cut), 1)))
        self.lost = Interval(*(np.full((len(cut), 1), end) for end in (-np.inf, np.inf)))
        turned = np.ones((len(cut), 1))
        for number, node in enumerate(cut):
            unit = np.zeros((len(cut), 1))
            unit[number] = 1.0
            rises, falls = (bool(np.all(sign)) for sign in walk.signs[node])
            least, most = self._hull_at(node)
            self.slopes[node], self.values[node] = known_interval(unit), Interval(least, most)
            self.ends[node] = np.where(rises, least, most), np.where(rises, most, least)
            turned[number] = np.where(rises, 1.0, np.where(falls, -1.0, np.nan))
        self.turned = known_interval(turned)
        """1 for a variable that rises when all worsens, -1 for one that falls, no number for others."""

    def _hull_at(self, node: int) -> Interval:
        hull = self.boxes.hull(self.walk.intervals[node])
        if hull.known:
            return known_interval(hull.least[self.part] if hull.least.ndim else hull.least)
        return Interval(*(end[self.part] if end.ndim else end for end in hull))

    def direction(self, node: int) -> tuple[Flags, Flags]:
        """Return in which boxes a node rises, and in which it falls, when all worsens."""
        if node not in self.slopes:
            return np.asarray(True), np.asarray(True)
        with np.errstate(all="ignore"):
            ends = [slope * self.turned.least for slope in self.slopes[node]]
        least, most = np.minimum(*ends), np.maximum(*ends)
        return np.asarray((least >= 0).all(axis=0)), np.asarray((most <= 0).all(axis=0))

    def visit(self, index: int, *, is_end: bool) -> None:
        """Work out the slopes of a node, and its value where they say more than intervals do."""
        read, name = selected_operands(self.group, self.walk, index), self.group.operation(index)
        if name == "where" and len(read) == 2 and not is_end:
            chosen = read[1]
            self.values[index], self.ends[index] = self.values[chosen], self.ends[chosen]
            if chosen in self.slopes:
                self.slopes[index] = self.slopes[chosen]
            return
        if is_end or not any(operand in self.slopes for operand in read):
            self.values[index] = self._hull_at(index)
            self.ends[index] = self.values[index].least, self.values[index].most
            if not self.values[index].known:  # it differs among designs, and not by way of the variables
                self.slopes[index] = self.lost
            return
        operands = [self.values[operand] for operand in read]
        inner = [self.slopes.get(operand, self.zero) for operand in read]
        node = self.group.program.nodes[index].tolist()
        with np.errstate(all="ignore"):
            self.slopes[index] = _slope(name, operands, inner)
            best, worst = (
                compute_node(self.group.program, node, [self.ends[operand][side] for operand in read])
                for side in (0, 1)
            )
        self.ends[index] = best, worst
        least, most = apply_operation(name, operands)
        rises, falls = self.direction(index)
        with np.errstate(all="ignore"):
            room = ROUNDING * np.maximum(np.abs(best), np.abs(worst))
            lower = np.where(rises, best - room, np.where(falls, worst - room, -np.inf))
            upper = np.where(rises, worst + room, np.where(falls, best + room, np.inf))
        self.values[index] = Interval(np.fmax(least, lower), np.fmin(most, upper))


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
    shape = np.broadcast_shapes(*(interval.least.shape for interval in (*slopes, *values)))
    return Interval(np.full(shape, -np.inf), np.full(shape, np.inf))


def _slope_of_extremum(name: str, values: Sequence[Interval], slopes: Sequence[Interval]) -> Interval:
    """Return the slope of a maximum or minimum: of the operand that decides, or anything between both."""
    (first, second), (slope, other_slope) = values, slopes
    above, below = first.least > second.most, first.most < second.least
    upper, lower = (above, below) if name == "maximum" else (below, above)
    hull = hull_of_intervals([slope, other_slope])
    least = np.where(upper, slope.least, np.where(lower, other_slope.least, hull.least))
    most = np.where(upper, slope.most, np.where(lower, other_slope.most, hull.most))
    return Interval(least, most)
