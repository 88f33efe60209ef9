"""Linear algebra whose last digits no processor decides: by hand, against NumPy's, and where systems have no rank."""

from __future__ import annotations

import numpy as np
import pytest

from cosmic.base.numeric import factorize, least_squares, multiply, null_space

RNG = np.random.default_rng(5)


def test_a_system_is_solved_by_hand() -> None:
    """For x + 2y = 5 and 3x + 4y = 11; then 2z = 6 beside it, with the rows in another order."""
    assert factorize(np.array([[1.0, 2.0], [3.0, 4.0]])).solve(np.array([5.0, 11.0])) == pytest.approx([1.0, 2.0])
    matrix = np.array([[0.0, 0.0, 2.0], [1.0, 2.0, 0.0], [3.0, 4.0, 0.0]])
    found = factorize(matrix).solve(np.array([[6.0, 2.0], [5.0, 0.0], [11.0, 0.0]]))
    assert found == pytest.approx(np.array([[1.0, 0.0], [2.0, 0.0], [3.0, 1.0]]))


def test_a_singular_system_is_refused() -> None:
    with pytest.raises(np.linalg.LinAlgError):
        factorize(np.array([[1.0, 2.0], [2.0, 4.0]]))


def test_the_shortest_of_the_best_is_found_by_hand() -> None:
    """The equation x + y = 2 has (1, 1) as its shortest solution; x = 1 and x = 3 are missed least by x = 2."""
    assert least_squares(np.array([[1.0, 1.0]]), np.array([2.0])) == pytest.approx([1.0, 1.0])
    assert least_squares(np.array([[1.0], [1.0]]), np.array([1.0, 3.0])) == pytest.approx([2.0])
    assert least_squares(np.zeros((0, 3)), np.zeros(0)).tolist() == [0.0, 0.0, 0.0]
    assert least_squares(np.zeros((2, 3)), np.ones(2)).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("rank", [1, 2, 4])
@pytest.mark.parametrize(("rows", "columns"), [(4, 4), (7, 4), (4, 9)])
def test_it_is_what_lapack_finds_but_for_rounding(rows: int, columns: int, rank: int) -> None:
    matrix = multiply(RNG.normal(size=(rows, rank)), RNG.normal(size=(rank, columns)))
    right = RNG.normal(size=rows)
    wanted = np.linalg.lstsq(matrix, right, rcond=None)[0]
    assert least_squares(matrix, right) == pytest.approx(wanted, rel=1e-7, abs=1e-9)
    basis = null_space(matrix, 1e-11)
    assert basis.shape == (columns, columns - rank)
    assert basis.T @ basis == pytest.approx(np.eye(columns - rank), abs=1e-12)
    assert matrix @ basis == pytest.approx(np.zeros((rows, columns - rank)), abs=1e-11)


def test_products_are_those_of_matmul_but_for_rounding() -> None:
    left, right, vector = RNG.normal(size=(5, 7)), RNG.normal(size=(7, 3)), RNG.normal(size=7)
    assert multiply(left, right) == pytest.approx(left @ right)
    assert multiply(left, vector) == pytest.approx(left @ vector)
    assert multiply(vector, right) == pytest.approx(vector @ right)
    assert float(multiply(vector, vector)) == pytest.approx(vector @ vector)
    assert multiply(np.zeros((0, 7)), vector).shape == (0,)
