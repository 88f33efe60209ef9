"""Dominance against brute force, crowding by hand, hypervolume against another way to compute it."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosmic.search.agent import Floats
from cosmic.search.objectives import crowding_distance, hypervolume, pareto_front, pareto_order, pareto_ranks

NAN = float("nan")


@st.composite
def tables(draw: st.DrawFn) -> Floats:
    """Small tables of few different values, so that ties and equal rows are common; some rows are NaN."""
    width = draw(st.integers(1, 4))
    number = st.sampled_from([-2.0, -1.0, -0.0, 0.0, 1.0, 2.0, 3.0, float("inf")])
    rows = draw(st.lists(st.lists(number, min_size=width, max_size=width), max_size=25))
    table = np.array(rows, dtype=float).reshape(len(rows), width)
    for row in draw(st.sets(st.integers(0, 24), max_size=3)):
        if row < len(table):
            table[row, 0] = NAN
    return table


def dominates(one: Floats, other: Floats) -> bool:
    return bool((one <= other).all() and (one < other).any())


def brute_front(losses: Floats, among: list[int]) -> list[int]:
    return [row for row in among if not any(dominates(losses[other], losses[row]) for other in among)]


def known(losses: Floats) -> list[int]:
    return np.flatnonzero(~np.isnan(losses).any(axis=1)).tolist()


@given(tables())
def test_the_front_is_what_nothing_dominates(losses: Floats) -> None:
    assert np.flatnonzero(pareto_front(losses)).tolist() == brute_front(losses, known(losses))


@given(tables())
def test_each_rank_is_the_front_of_the_rest(losses: Floats) -> None:
    found, left, rank = pareto_ranks(losses), known(losses), 0
    while left:
        best = brute_front(losses, left)
        assert np.flatnonzero(found == rank).tolist() == best
        left, rank = [row for row in left if row not in best], rank + 1
    assert (found[np.isnan(losses).any(axis=1)] == rank).all()


@pytest.mark.parametrize("objectives", [3, 4])
def test_fronts_of_more_points_than_a_block_are_the_same(objectives: int) -> None:
    losses = np.random.default_rng(0).random((700, objectives))
    assert np.flatnonzero(pareto_front(losses)).tolist() == brute_front(losses, list(range(700)))


def test_a_front_of_a_hundred_thousand_points_takes_no_time() -> None:
    losses = np.random.default_rng(0).random((100_000, 2))
    start = time.process_time()
    pareto_front(losses)
    assert time.process_time() - start < 2


def test_what_cannot_run_ranks_last_by_its_excess() -> None:
    losses = np.array([[NAN, NAN], [9.0, 9.0], [NAN, NAN], [1.0, 1.0], [NAN, NAN]])
    assert pareto_ranks(losses, np.array([np.inf, 0, 0.2, 0, 0.1])).tolist() == [4, 1, 3, 0, 2]


def test_the_least_crowded_come_first_within_a_rank() -> None:
    losses = np.array([[9.0, 9.0], [1.0, 4.0], [1.2, 3.8], [2.0, 2.0], [4.0, 1.0], [NAN, NAN]])
    found = pareto_order(losses, np.array([0, 0, 0, 0, 0, np.inf])).tolist()
    assert set(found[:2]) == {1, 4}
    assert found[2:] == [3, 2, 0, 5]


def test_crowding_is_the_gap_between_neighbours_as_a_share_of_the_range() -> None:
    losses = np.array([[0.0, 10.0], [2.0, 6.0], [10.0, 0.0], [3.0, 5.0]])
    assert crowding_distance(losses).tolist() == pytest.approx([np.inf, 0.3 + 0.5, np.inf, 0.8 + 0.6])


def test_crowding_of_equal_points_is_nothing() -> None:
    assert crowding_distance(np.ones((4, 2)))[1:3].tolist() == [0, 0]
    assert len(crowding_distance(np.empty((0, 2)))) == 0


def test_hypervolume_by_hand() -> None:
    assert hypervolume(np.array([[1.0]]), np.array([4.0])) == 3
    assert hypervolume(np.array([[1.0, 2.0], [2.0, 1.0], [2.0, 2.0]]), np.array([3.0, 3.0])) == 3
    cube = np.array([[0.0, 0.0, 1.0], [1.0, 1.0, 0.0]])  # 2·2·1 + 1·1·2 - 1·1·1
    assert hypervolume(cube, np.array([2.0, 2.0, 2.0])) == 5


def test_what_misses_the_reference_adds_no_volume() -> None:
    losses = np.array([[1.0, 1.0], [0.0, 2.0], [5.0, 0.0], [NAN, NAN]])
    assert hypervolume(losses, np.array([2.0, 2.0])) == 1
    assert hypervolume(np.empty((0, 2)), np.array([2.0, 2.0])) == 0


@given(st.integers(1, 4), st.integers(0, 1000))
def test_hypervolume_counts_the_cells_of_a_grid(objectives: int, seed: int) -> None:
    """Whole-numbered points: the volume is the number of unit cells that some point dominates."""
    losses = np.random.default_rng(seed).integers(0, 5, size=(8, objectives)).astype(float)
    cells = np.stack(np.meshgrid(*[np.arange(5)] * objectives), axis=-1).reshape(-1, objectives)
    inside = [bool((losses <= cell).all(axis=1).any()) for cell in cells]
    assert hypervolume(losses, np.full(objectives, 5.0)) == pytest.approx(sum(inside))
