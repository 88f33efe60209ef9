"""Bound expressions: exact, hashable, and simplified step by step as parameters take values.

Numbers are fractions, so that ``0.1 + 0.2 == 0.3`` holds and the order of a sum does not matter. An
expression with values substituted for some parameters is again an expression. Equal expressions have equal
results from then on, so combinations can be counted without enumerating the space (`cosmic.psa.diagram`).

A division by zero has no value (`UNDEFINED`), nor has anything computed from it. Only a part that decides alone does
away with it: ``tp == 1 or x / (tp - 1) > 2`` holds at tp = 1, in whichever order its parts are written.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

from cosmic.errors import SpecError

Scalar = Fraction | str | bool
MAX_BITS = 4096
"""The largest size in bits of a power that is computed."""
MOST_BITS = 2**18
"""The largest size in bits of any number that is computed."""
NO_VALUE = "it divides by zero, takes an impossible power or uses a figure that is not known"


@dataclass(frozen=True, slots=True)
class Constant:
    """A known value."""

    value: Scalar


@dataclass(frozen=True, slots=True)
class Undefined:
    """No value: of a division by zero, of an impossible power, of a figure that is not known."""


@dataclass(frozen=True, slots=True)
class Variable:
    """A field whose value is not known yet."""

    path: str


@dataclass(frozen=True, slots=True)
class Operation:
    """An operator applied to expressions."""

    name: str
    arguments: tuple[Expression, ...]


Expression = Constant | Undefined | Variable | Operation
Known = Constant | Undefined

TRUE, FALSE, UNDEFINED = Constant(True), Constant(False), Undefined()

_FOLDS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": operator.add,
    "product": operator.mul,
    "min": min,
    "max": max,
    "all": lambda left, right: left and right,
    "any": lambda left, right: left or right,
}
_DECIDED = {"all": FALSE, "any": TRUE}  # one such argument decides the result
_NEUTRAL = {"sum": Fraction(0), "product": Fraction(1), "all": True, "any": False}
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


_DIVISIONS: dict[str, Callable[[Any, Any], Any]] = {
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
}
ZERO = Constant(Fraction(0))


def exact(value: Any) -> Scalar:
    """Return *value* as expressions hold it: a number as the fraction of its decimal digits.

    >>> exact(0.1) + exact(0.2) == exact(0.3)
    True
    """
    if isinstance(value, bool | str | Fraction):
        return value
    return Fraction(repr(value)) if isinstance(value, float) else Fraction(value)


@cache
def variables(expression: Expression) -> frozenset[str]:
    """Return the paths of the fields that *expression* still depends on."""
    if isinstance(expression, Variable):
        return frozenset((expression.path,))
    if isinstance(expression, Operation):
        return frozenset().union(*(variables(argument) for argument in expression.arguments))
    return frozenset()


def substitute(expression: Expression, values: Mapping[str, Known]) -> Expression:
    """Return *expression* with *values* substituted, simplified."""
    if isinstance(expression, Variable):
        return values.get(expression.path, expression)
    if not isinstance(expression, Operation) or variables(expression).isdisjoint(values):
        return expression
    return operation(expression.name, tuple(substitute(argument, values) for argument in expression.arguments))


def operation(name: str, arguments: tuple[Expression, ...]) -> Expression:
    """Return the simplest expression equal to the operator *name* applied to *arguments*."""
    if name in _FOLDS:
        return _fold(name, arguments)
    if name == "if":
        condition, then, otherwise = arguments
        if isinstance(condition, Constant):
            return then if condition.value else otherwise
        return UNDEFINED if condition == UNDEFINED else Operation(name, arguments)
    if any(isinstance(each, Undefined) for each in arguments) or (name in _DIVISIONS and arguments[1] == ZERO):
        return UNDEFINED
    known = [argument.value for argument in arguments if isinstance(argument, Constant)]
    if len(known) < len(arguments):
        return Operation(name, arguments)
    if name in _COMPARISONS:
        return Constant(_COMPARISONS[name](*known))
    if name == "not":
        return Constant(not known[0])
    if name == "in":
        return Constant(known[0] in known[1:])
    result = _arithmetic(name, known[0], known[1])
    return UNDEFINED if result is None else Constant(result)


def _fold(name: str, arguments: tuple[Expression, ...]) -> Expression:
    """Combine the known arguments of a sum, product, … into one, placed first, and flatten nested ones."""
    combine = _FOLDS[name]
    known: Any = _NEUTRAL.get(name)
    unknown: list[Expression] = []
    undefined = False
    pending = list(reversed(arguments))
    while pending:
        argument = pending.pop()
        if isinstance(argument, Constant):
            if argument == _DECIDED.get(name):
                return argument
            known = argument.value if known is None else combine(known, argument.value)
            undefined = undefined or _is_huge(known)
        elif isinstance(argument, Undefined):
            undefined = True
        elif isinstance(argument, Operation) and argument.name == name:
            pending.extend(reversed(argument.arguments))
        else:
            unknown.append(argument)
    if undefined:  # an unknown part may still decide without it; nothing else can
        return Operation(name, (UNDEFINED, *unknown)) if unknown and name in _DECIDED else UNDEFINED
    if not unknown:
        return Constant(known)
    if known is not None and known != _NEUTRAL.get(name):
        unknown.insert(0, Constant(known))
    return unknown[0] if len(unknown) == 1 else Operation(name, tuple(unknown))


def _is_huge(value: Any) -> bool:
    return isinstance(value, Fraction) and max(value.numerator.bit_length(), value.denominator.bit_length()) > MOST_BITS


def _arithmetic(name: str, left: Any, right: Any) -> Fraction | None:
    """Return the result of an operator on two numbers; None where it is undefined (a division by zero)."""
    if name == "**":
        bits = max(left.numerator.bit_length(), left.denominator.bit_length())
        if right.denominator != 1 or abs(right) * bits > MAX_BITS or (left == 0 and right < 0):
            return None
        return Fraction(left ** int(right))
    if right == 0:
        return None
    result = Fraction(_DIVISIONS[name](left, right))
    return None if _is_huge(result) else result


def value_of(expression: Expression, where: str, text: str) -> Scalar:
    """Return the value of an expression without variables; an error quotes *where* and *text*."""
    if isinstance(expression, Constant):
        return expression.value
    raise SpecError(where, text, f"has no value: {NO_VALUE}")


def in_order(expression: Expression, column: Mapping[str, int]) -> list[int]:
    """Return the columns that *expression* depends on, in the order in which it mentions them.

    Parameters mentioned side by side become neighbouring levels of the diagram, which keeps it narrow.
    """
    found: list[int] = []
    pending = [expression]
    while pending:
        each = pending.pop()
        found += [column[path] for path in variables(each) if not hasattr(each, "arguments")]
        pending.extend(reversed(getattr(each, "arguments", ())))
    return list(dict.fromkeys(found))
