"""A number, or an array of numbers with one for each design of a batch: the types, and what works on both alike.

NumPy's own functions take both, but promise `Any`, and take longer than Python's for a single number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, ParamSpec, cast

import numpy as np
import numpy.typing as npt

Numeric = float | npt.NDArray[np.floating[Any]]
"""A number, or one for each design of a batch. As `float` covers whole numbers, this covers arrays of them."""
Condition = bool | npt.NDArray[np.bool_]
"""Whether something holds, or whether it holds in each design of a batch."""
P = ParamSpec("P")


def larger(left: Numeric, right: Numeric) -> Numeric:
    """Return the larger of two numbers, or of two arrays element by element.

    >>> larger(1, 2), larger(np.array([1.0, 3.0]), 2.0).tolist()
    (2, [2.0, 3.0])
    """
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        return cast(Numeric, np.maximum(left, right))
    return max(left, right)


def smaller(left: Numeric, right: Numeric) -> Numeric:
    """Return the smaller of two numbers, or of two arrays element by element.

    >>> smaller(1, 2), smaller(np.array([1.0, 3.0]), 2.0).tolist()
    (1, [1.0, 2.0])
    """
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        return cast(Numeric, np.minimum(left, right))
    return min(left, right)


def choose(condition: Condition, then: Numeric, otherwise: Numeric) -> Numeric:
    """Return one of two values; where the condition is an array, an array of the value that each element selects.

    >>> choose(True, 1.0, 2.0), choose(np.array([True, False]), 1.0, 2.0).tolist()
    (1.0, [1.0, 2.0])
    """
    if isinstance(condition, np.ndarray):
        return np.where(condition, then, otherwise)
    return then if condition else otherwise


def where(condition: Condition, then: Numeric, otherwise: Numeric) -> Numeric:
    """Return one of two values, in the shape of all three arguments together; a number if all of them are numbers.

    >>> where(True, 1.0, np.array([2.0, 3.0])).tolist(), float(where(False, 1.0, 2.0))
    ([1.0, 1.0], 2.0)
    """
    return cast(Numeric, np.where(condition, then, otherwise)[()])


def anywhere(condition: Condition | Numeric) -> bool:
    """Return whether a condition holds, or a number is not zero, in any design.

    >>> anywhere(False), anywhere(np.array([0.0, 0.5]))
    (False, True)
    """
    return bool(condition.any()) if isinstance(condition, np.ndarray) else bool(condition)


def sum_of(values: Iterable[Numeric], start: Numeric = 0) -> Numeric:
    """Return the sum of numbers or arrays, added one after the other.

    Python's `sum` corrects the rounding of floats from version 3.12 on, and so gives other bits for numbers than for
    arrays.

    >>> sum_of([1, 2.5]), sum_of((), 0.0)
    (3.5, 0.0)
    """
    for value in values:
        start = start + value
    return start


def floats(value: Numeric) -> npt.NDArray[np.float64]:
    """Return a number or an array as an array of floating point; one that is recorded stays recorded.

    >>> floats(3).dtype, floats(np.array([1, 2])).tolist()
    (dtype('float64'), [1.0, 2.0])
    """
    if isinstance(value, np.ndarray):
        array: npt.NDArray[np.float64] = value.astype(np.float64, copy=False)
        return array
    return np.asarray(value, dtype=np.float64)


def largest_whole(value: Numeric) -> int:
    """Return a whole number that no design exceeds: how often to repeat what some designs repeat.

    >>> largest_whole(3), largest_whole(np.array([1, 4]))
    (3, 4)
    """
    return int(value.max()) if isinstance(value, np.ndarray) else int(value)


def recorder(*values: Any) -> Any:
    """Return the tape on which some of *values* are recorded (see `cosmic.simulate.recording`); None if none is."""
    return next((tape for tape in (getattr(value, "tape", None) for value in values) if tape is not None), None)


def elementwise(function: Callable[P, Numeric]) -> Callable[P, Numeric]:
    """Mark an elementwise function of numbers and arrays; a recording keeps it as one operation.

    For what array operations alone do not say: a loop whose length depends on the design.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> Numeric:
        tape = recorder(*args)
        return function(*args, **kwargs) if tape is None else cast(Numeric, tape.call(call, args))

    return call


# What libraries round differently: NumPy's own loops, and those of the C library. These give the same bits everywhere
# on one machine, for a number, an array, and in a recorded program.


def _vectorize_libm(function: Callable[..., float], operands: int = 1) -> Callable[..., Numeric]:
    """Return a function of Python's `math`, which is that of the C library, for arrays too.

    What is too large, or undefined, is as NumPy's `errstate` says: an error, or infinity and NaN.
    """

    def scalar(*values: float) -> float:
        try:
            return function(*values)
        except (OverflowError, ValueError) as error:
            if np.geterr()["over"] == "raise":
                raise FloatingPointError(f"{error} in {function.__name__}") from None
            return math.inf if isinstance(error, OverflowError) else math.nan

    # NumPy's own functions differ from libm in the last bit; equal results whatever the batch need the same function.
    vectorized = np.frompyfunc(scalar, operands, 1)

    def compute(*values: Numeric) -> Numeric:
        if not any(isinstance(value, np.ndarray) for value in values):
            return float(scalar(*cast(tuple[float, ...], values)))
        return cast(Numeric, np.asarray(vectorized(*values), dtype=np.float64)[()])

    return compute


_LOG, _LOG2, _EXPM1 = (_vectorize_libm(each) for each in (math.log, math.log2, math.expm1))
_POWER = _vectorize_libm(math.pow, 2)


@elementwise
def log(value: Numeric) -> Numeric:
    """Return the natural logarithm.

    >>> float(log(1.0)), log(np.array([1.0, math.e])).tolist()
    (0.0, [0.0, 1.0])
    """
    return _LOG(value)


@elementwise
def log2(value: Numeric) -> Numeric:
    """Return the logarithm to base 2.

    >>> float(log2(8.0))
    3.0
    """
    return _LOG2(value)


@elementwise
def expm1(value: Numeric) -> Numeric:
    """Return e^x - 1.

    >>> float(expm1(0.0))
    0.0
    """
    return _EXPM1(value)


@elementwise
def power(base: Numeric, exponent: Numeric) -> Numeric:
    """Return a power.

    >>> float(power(2, 10)), power(np.array([2.0, 3.0]), 2).tolist()
    (1024.0, [4.0, 9.0])
    """
    return _POWER(base, exponent)


@elementwise
def cbrt(value: Numeric) -> Numeric:
    """Return the cube root: x = m 2^(3 e), and steps of Halley and Newton from a quadratic guess of the root of m.

    >>> cbrt(np.array([0.0, 8.0, 1e-9])).tolist(), float(cbrt(27.0))
    ([0.0, 2.0, 0.001], 3.0)
    """
    size = np.abs(floats(value))
    usual = (size >= 2.0**-1000) & (size < np.inf)
    m, exponent = np.frexp(np.where(usual, size, 1.0))
    third = ((exponent.astype(np.int64) + 3072) * 21846 >> 16) - 1024 + 1
    m = np.ldexp(m, exponent - 3 * third)
    root = 0.31447 + m * (1.32 - m * 0.64)
    for _ in range(2):
        cube = root * root * root
        root = root * (cube + 2 * m) / (2 * cube + m)
    root = root - (root * root * root - m) / (3 * root * root)
    return cast(Numeric, np.where(usual, np.copysign(root * np.ldexp(1.0, third), value), value)[()])
