"""A number, or an array of numbers with one for each design of a batch: the types, and what works on both alike.

NumPy's own functions take both, but promise `Any`, and take longer than Python's for a single number.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt

Numeric = float | npt.NDArray[np.floating[Any]]
"""A number, or one for each design of a batch. As `float` covers whole numbers, this covers arrays of them."""
Condition = bool | npt.NDArray[np.bool_]
"""Whether something holds, or whether it holds in each design of a batch."""


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
