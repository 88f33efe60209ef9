"""Small dense linear algebra with the same bits on every processor.

BLAS and LAPACK choose their kernels by processor (Haswell, Zen, Skylake-X, …), which add in other orders and fuse other
multiplications: the last digits of a product or a solution differ, and with them which of two equally good answers is
found first. What decides an answer is computed here, by additions and multiplications of NumPy in a fixed order, which
round alike everywhere. It is for systems of some dozens of unknowns; models that are learned (`cosmic.search.learning`,
`cosmic.accuracy`) stay on LAPACK.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

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
