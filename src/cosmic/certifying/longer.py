"""Steps that are the longer of two: which nodes of a program they are the maximum of.

Any stage of a pipeline may bound a step. The closed form selects all parts of the longer one, so that the step is a sum
of selected parts, and its condition depends on everything: no sign or slope passes it. Here the sum is recognised as
what it is. A condition of the form

    where(|p - q| <= 1e-9 p,  …,  0 < p - q)

selects the larger of p and q, or one that is within 1e-9 of it. If the result is p wherever the condition is true,
operation by operation, and q wherever it is false, then it is their maximum up to 1e-9, and never falls if neither
does.
"""

from __future__ import annotations

from cosmic.certifying.programs import Group
from cosmic.recording.operations import OPERATIONS
from cosmic.recording.tape import NEUTRAL

LOOSEST = 1e-9
"""How far apart two steps may be for either to be taken as the longer."""


def longest(group: Group, target: int) -> list[int]:
    """Return the nodes whose maximum *target* is: itself, if it selects nothing."""
    for condition, (one, other) in _selections(group, target).items():
        if _same(group, target, condition, True, one) and _same(group, target, condition, False, other):
            return [*longest(group, one), *longest(group, other)]
    return [target]


def _selections(group: Group, target: int) -> dict[int, tuple[int, int]]:
    """Return the conditions below *target* that select the larger of two nodes, with these; the last come first."""
    found = {}
    for place in reversed(group.needed([target])):
        if (pair := _larger(group, place)) is not None:
            found[place] = pair
    return found


def _larger(group: Group, place: int) -> tuple[int, int] | None:
    """Return the two nodes of which a condition selects the larger; None for any other node."""
    named = group.named
    if named(place) != "where":
        return None
    alike, _, beyond = group.reading[place]
    if named(alike) != "less_equal" or named(beyond) != "less":
        return None
    distance, allowed = group.reading[alike]
    zero, apart = group.reading[beyond]
    constants = group.program.constants
    if constants.get(zero) != 0 or named(apart) != "subtract" or named(distance) != "absolute":
        return None
    one, other = group.reading[apart]
    if group.reading[distance][0] != apart or named(allowed) != "multiply" or one not in group.reading[allowed]:
        return None
    share = next((constants[each] for each in group.reading[allowed] if each in constants), None)
    return (one, other) if share is not None and 0 <= share <= LOOSEST else None


def _same(group: Group, target: int, condition: int, holds: bool, expected: int) -> bool:
    """Return whether *target* is the node *expected* where a condition holds, or where it does not."""
    numbers: dict[tuple[object, ...], int] = {}
    forms: dict[int, int] = {}
    constants: dict[int, float] = {}

    def number(form: tuple[object, ...]) -> int:
        return numbers.setdefault(form, len(numbers))

    def constant(value: float) -> int:
        found = number((value,))
        constants[found] = value
        return found

    for place in group.needed([target, expected]):
        name, read = group.named(place), [forms[each] for each in group.reading[place] if each in forms]
        if place == condition:
            forms[place] = constant(float(holds))
        elif place in group.program.constants:
            forms[place] = constant(group.program.constants[place])
        elif name not in OPERATIONS:
            forms[place] = number(("node", place))
        elif (simple := _simplified(name, read, constants)) is not None:
            forms[place] = simple
        else:
            forms[place] = number((name, *read))
    return forms[target] == forms[expected]


def _simplified(name: str, read: list[int], constants: dict[int, float]) -> int | None:
    """Return which operand an operation gives: of a known condition, and of x + 0 and the like."""
    if name == "where" and read[0] in constants:
        return read[1] if constants[read[0]] else read[2]
    if name in NEUTRAL:
        neutral, sides = NEUTRAL[name]
        for side in sides:
            if constants.get(read[side]) == neutral:
                return read[1 - side]
    return None
