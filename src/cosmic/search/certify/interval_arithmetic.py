"""Interval arithmetic over the operations of a recorded program.

An interval is two arrays, the least and the most that a number can be in each of many boxes of designs. Rounding keeps
order, so that what the same operations give at the ends bounds, to the bit, what they give in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cosmic.simulate.recording.program_tape import OPERATIONS

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


def _absolute(operand: Interval) -> tuple[Any, Any]:
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


def _power(base: Interval, exponent: Interval) -> tuple[Any, Any]:
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


def _where(condition: Interval, then: Interval, otherwise: Interval) -> tuple[Any, Any]:
    always, never = condition.least != 0, condition.most == 0
    either = hull_of_intervals([then, otherwise])
    least = np.where(always, then.least, np.where(never, otherwise.least, either.least))
    most = np.where(always, then.most, np.where(never, otherwise.most, either.most))
    return least, most


RULES: dict[str, Callable[..., tuple[Any, Any]]] = {
    "negative": _negative,
    "absolute": _absolute,
    "logical_not": lambda operand: (1.0 - operand.most, 1.0 - operand.least),
    "subtract": _subtract,
    "multiply": _multiply,
    "logical_and": _multiply,
    "divide": _divide,
    "floor_divide": _floor_divide,
    "power": _power,
    "less": _compared(strictly=True),
    "less_equal": _compared(strictly=False),
    "equal": _equal,
    "not_equal": _not_equal,
    "where": _where,
}
"""How each operation that does not rise with all its operands bounds its result."""
