"""The operations of a recorded program, by the numbers that `native/program.c` knows them by.

All values are float64: whole numbers below 2^53 and truth values (0 and 1) are exact in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cosmic import numeric

Array = Any
"""An array of float64, or one number."""


def _truth(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda *values: np.multiply(function(*values), 1.0)


def _whole(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda *values: np.multiply(function(*(np.asarray(each).astype(np.int64) for each in values)), 1.0)


OPERATIONS: dict[str, Callable[..., Array]] = {
    "negative": np.negative,
    "absolute": np.absolute,
    "floor": np.floor,
    "ceil": np.ceil,
    "rint": np.rint,
    "sqrt": np.sqrt,
    "cbrt": numeric.cbrt,
    "expm1": numeric.expm1,
    "log": numeric.log,
    "log2": numeric.log2,
    "trunc": np.trunc,
    "isnan": _truth(np.isnan),
    "logical_not": lambda value: 1.0 - value,
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "floor_divide": np.floor_divide,
    "remainder": np.remainder,
    "power": numeric.power,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "less": _truth(np.less),
    "less_equal": _truth(np.less_equal),
    "equal": _truth(np.equal),
    "not_equal": _truth(np.not_equal),
    "logical_and": np.multiply,
    "logical_or": np.maximum,
    "gcd": _whole(np.gcd),
    "where": lambda condition, then, otherwise: np.where(np.asarray(condition) != 0, then, otherwise),
}
"""What each operation does, in NumPy: the reference, and the fallback."""
NAMES = (*OPERATIONS, "index", "gather", "interleaved_bytes")
NUMBERS = {name: number for number, name in enumerate(NAMES)}
"""The number of each operation. The last are no plain arithmetic: *index* is the place of a combination of several
columns in a table (`tables`), *gather* a number of such a table; the last is a function of the physics that is
recorded as a whole (`cosmic.numeric.elementwise`)."""
