"""A number, or an array of numbers with one for each design of a batch: the types, and what works on both alike.

NumPy's own functions take both, but promise `Any`, and take longer than Python's for a single number.

Small dense linear algebra with the same bits on every processor.

BLAS and LAPACK choose their kernels by processor (Haswell, Zen, Skylake-X, …), which add in other orders and fuse other
multiplications: the last digits of a product or a solution differ, and with them which of two equally good answers is
found first. What decides an answer is computed here, by additions and multiplications of NumPy in a fixed order, which
round alike everywhere. It is for systems of some dozens of unknowns; models that are learned (`cosmic.search.learning`,
`cosmic.accuracy`) stay on LAPACK.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, wraps
from math import isqrt
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


# ---- Divisors and factorizations of whole numbers, for meshes and network dimensions


@cache
def divisors(number: int) -> tuple[int, ...]:
    """Return the divisors of a positive *number*, smallest first.

    >>> divisors(12)
    (1, 2, 3, 4, 6, 12)
    """
    small = [factor for factor in range(1, isqrt(number) + 1) if number % factor == 0]
    large = [number // factor for factor in reversed(small) if factor * factor != number]
    return (*small, *large)


def factorizations(number: int, parts: int, *, powers_of_two: bool = False) -> Iterator[tuple[int, ...]]:
    """Yield every ordered way to write *number* as a product of *parts* whole numbers.

    >>> list(factorizations(4, 2)), list(factorizations(6, 2, powers_of_two=True))
    ([(1, 4), (2, 2), (4, 1)], [])
    """
    if powers_of_two and not is_power_of_two(number):
        return
    if parts == 1:
        yield (number,)
        return
    for factor in divisors(number):
        for rest in factorizations(number // factor, parts - 1):
            yield (factor, *rest)


@cache
def even_factors(number: int, parts: int) -> tuple[int, ...]:
    """Return *parts* factors of *number*, as equal as possible, smallest first.

    The largest is as small as possible, then the smallest as large as possible.

    >>> even_factors(512, 3), even_factors(128, 3), even_factors(7, 2)
    ((8, 8, 8), (4, 4, 8), (1, 7))
    """
    if parts == 0:
        return ()
    ascending = (split for split in factorizations(number, parts) if list(split) == sorted(split))
    return min(ascending, key=lambda split: (split[-1], [-part for part in split]))


def is_power_of_two(number: int) -> bool:
    """Return whether *number* is 1, 2, 4, 8 and so on."""
    return number > 0 and number & (number - 1) == 0


# ---- Small dense linear algebra with the same bits on every processor


Array = npt.NDArray[np.float64]

ROUNDING = float(np.finfo(np.float64).eps)


def multiply(left: npt.NDArray[Any], right: npt.NDArray[Any]) -> Array:
    """Return what ``left @ right`` means for vectors and matrices.

    >>> multiply(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[5.0], [6.0]])).tolist()
    [[17.0], [39.0]]
    >>> multiply(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([5.0, 6.0])).tolist(), float(multiply(np.ones(3), np.ones(3)))
    ([17.0, 39.0], 3.0)
    """
    if right.ndim == 1:
        return np.asarray(np.add.reduce(left * right, axis=-1))
    if left.ndim == 1:
        return np.asarray(np.add.reduce(left[:, None] * right, axis=0))
    total = np.zeros((left.shape[0], right.shape[1]))
    for index in range(len(right)):
        total += left[:, index, None] * right[index]
    return total


@dataclass(frozen=True, slots=True)
class Factors:
    """A square matrix as L U with its rows in another order: solves for many right-hand sides."""

    triangles: Array
    """U in and above the diagonal; below it L, whose diagonal is one."""
    order: npt.NDArray[np.intp]

    def solve(self, right: Array) -> Array:
        """Return x with A x = *right*, a vector or a matrix.

        >>> factorize(np.array([[0.0, 2.0], [4.0, 2.0]])).solve(np.array([2.0, 10.0])).tolist()
        [2.0, 1.0]
        """
        solution = np.array(right[self.order], dtype=np.float64)
        if solution.ndim == 1:
            return np.array(_solve_triangles(self.triangles.tolist(), solution.tolist()))
        for index in range(len(solution)):
            solution[index + 1 :] -= self.triangles[index + 1 :, index, None] * solution[index]
        for index in reversed(range(len(solution))):
            solution[index] /= self.triangles[index, index]
            solution[:index] -= self.triangles[:index, index, None] * solution[index]
        return solution


def _solve_triangles(triangles: list[list[float]], solution: list[float]) -> list[float]:
    """Solve for one right-hand side: for some dozens of unknowns, numbers take less time than arrays."""
    for index, row in enumerate(triangles):
        total = solution[index]
        for before in range(index):
            total -= row[before] * solution[before]
        solution[index] = total
    for index in reversed(range(len(solution))):
        row, total = triangles[index], solution[index]
        for after in range(index + 1, len(solution)):
            total -= row[after] * solution[after]
        solution[index] = total / row[index]
    return solution


def factorize(matrix: Array) -> Factors:
    """Return the factors of a square matrix, by elimination with the largest pivot of each column.

    Raises `numpy.linalg.LinAlgError` where the matrix is singular.
    """
    triangles, order = np.array(matrix, dtype=np.float64), np.arange(len(matrix))
    for index in range(len(matrix)):
        pivot = index + int(np.argmax(np.abs(triangles[index:, index])))
        if not triangles[pivot, index]:
            raise np.linalg.LinAlgError("the matrix is singular")
        if pivot != index:
            triangles[[index, pivot]], order[[index, pivot]] = triangles[[pivot, index]], order[[pivot, index]]
        triangles[index + 1 :, index] /= triangles[index, index]
        triangles[index + 1 :, index + 1 :] -= triangles[index + 1 :, index, None] * triangles[index, index + 1 :]
    return Factors(triangles, order)


def null_space(matrix: Array, tolerance: float) -> Array:
    """Return orthonormal columns that span all x with ``matrix @ x = 0``.

    A row counts as a combination of others where less than *tolerance* of the longest is left of it.

    >>> null_space(np.array([[1.0, 1.0], [2.0, 2.0]]), 1e-11).round(4).tolist()
    [[-0.7071], [0.7071]]
    """
    reduced = _Reflected.of(np.transpose(matrix), tolerance)
    basis = np.eye(len(reduced.reflected))[:, reduced.rank :]
    return np.ascontiguousarray(reduced.reflect_back(basis))


def least_squares(matrix: Array, right: Array) -> Array:
    """Return the shortest x among those for which ``matrix @ x`` is nearest to the vector *right*.

    >>> least_squares(np.array([[1.0, 1.0], [1.0, 1.0]]), np.array([2.0, 4.0])).round(12).tolist()
    [1.5, 1.5]
    """
    size = matrix.shape[1]
    if not matrix.size:
        return np.zeros(size)
    reduced = _Reflected.of(matrix, ROUNDING * max(matrix.shape))
    rank = reduced.rank
    wanted = reduced.reflect(np.asarray(right, dtype=np.float64)[:, None])[:rank, 0]
    trapezoid = reduced.reflected[:rank]  # upper, its columns in the order of the pivots
    found = np.zeros(size)
    if rank == size:
        found[reduced.order] = _solve_upper(trapezoid, wanted)
        return found
    across = _Reflected.of(trapezoid.T, 0.0, pivoted=False)  # trapezoid = (Q R)': the shortest lies along Q
    inner = np.zeros((size, 1))
    inner[:rank, 0] = _solve_lower(across.reflected[:rank].T, wanted)
    found[reduced.order] = across.reflect_back(inner)[:, 0]
    return found


def _solve_upper(triangle: Array, right: Array) -> Array:
    solution = right.copy()
    for index in reversed(range(len(solution))):
        solution[index] /= triangle[index, index]
        solution[:index] -= triangle[:index, index] * solution[index]
    return solution


def _solve_lower(triangle: Array, right: Array) -> Array:
    solution = right.copy()
    for index in range(len(solution)):
        solution[index] /= triangle[index, index]
        solution[index + 1 :] -= triangle[index + 1 :, index] * solution[index]
    return solution


@dataclass(frozen=True, slots=True)
class _Reflected:
    """A matrix made upper triangular by Householder's reflections, the longest column that is left first."""

    reflected: Array
    normals: tuple[Array, ...]
    """Of each reflection, of length √2: x becomes x - v (v x)."""
    order: npt.NDArray[np.intp]
    """Which column stands where."""
    rank: int

    @classmethod
    def of(cls, matrix: Array, tolerance: float, *, pivoted: bool = True) -> _Reflected:
        """Reflect a matrix until what is left of its columns is *tolerance* of the longest, or less."""
        reflected, order = np.array(matrix, dtype=np.float64), np.arange(matrix.shape[1])
        normals: list[Array] = []
        longest = 0.0
        for index in range(min(reflected.shape)):
            lengths = np.sqrt(np.add.reduce(reflected[index:, index:] ** 2, axis=0))
            pivot = index + (int(np.argmax(lengths)) if pivoted else 0)
            length = float(lengths[pivot - index])
            longest = max(longest, length)
            if pivoted and length <= tolerance * longest:
                break
            if pivot != index:
                reflected[:, [index, pivot]], order[[index, pivot]] = (
                    reflected[:, [pivot, index]],
                    order[[pivot, index]],
                )
            normal = np.zeros(len(reflected))
            normal[index:] = reflected[index:, index]
            normal[index] += length if normal[index] >= 0 else -length
            size = np.sqrt(np.add.reduce(normal**2) / 2)
            normal = normal / size if size else normal
            normals.append(normal)
            reflected -= normal[:, None] * multiply(normal, reflected)
        return cls(reflected, tuple(normals), order, len(normals))

    def reflect(self, columns: Array) -> Array:
        """Return columns after all reflections, in their order."""
        for normal in self.normals:
            columns = columns - normal[:, None] * multiply(normal, columns)
        return columns

    def reflect_back(self, columns: Array) -> Array:
        """Return columns after all reflections, the last one first."""
        for normal in reversed(self.normals):
            columns = columns - normal[:, None] * multiply(normal, columns)
        return columns
