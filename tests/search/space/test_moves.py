"""Moves: always from valid points to valid points, and to all of them in the end."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosmic.search.learning.agent_memory import Moves
from cosmic.search.space.space_files import load_space
from tests.search.space.spaces import space

FULL = load_space("cosmic-1024-full-stack")
MOVES = Moves(FULL)
POINTS = FULL.sample(500, np.random.default_rng(0))


@given(st.integers(0, 10_000), st.booleans())
def test_a_neighbour_is_valid_and_another_point(seed: int, near: bool) -> None:
    moved = MOVES.neighbour(POINTS, np.random.default_rng(seed), near=near)
    assert FULL.contains(moved).all()
    assert (moved != POINTS).any(axis=1).all()


@given(st.integers(0, 10_000))
def test_mutation_and_crossover_stay_inside(seed: int) -> None:
    rng = np.random.default_rng(seed)
    assert FULL.contains(MOVES.mutate(POINTS, rng, 0.2)).all()
    assert FULL.contains(MOVES.crossover(POINTS[:250], POINTS[250:], rng)).all()


def test_a_mutation_rate_is_about_the_share_of_parameters_changed() -> None:
    moved = MOVES.mutate(POINTS, np.random.default_rng(1), 0.1)
    assert 0.08 < (moved != POINTS).mean() < 0.16  # tied parameters change along


def test_nothing_mutates_at_rate_zero() -> None:
    assert np.array_equal(MOVES.mutate(POINTS, np.random.default_rng(1), 0.0), POINTS)


def test_a_near_neighbour_moves_one_step_on_a_scale() -> None:
    line = space({"workload.micro_batch": [1, 2, 4, 8]})
    moved = Moves(line).neighbour(np.full((200, 1), 1), np.random.default_rng(0), near=True)
    assert set(moved[:, 0].tolist()) == {0, 2}
    ends = Moves(line).neighbour(np.array([[0], [3]]), np.random.default_rng(0), near=True)
    assert ends.tolist() == [[1], [2]]


def test_what_is_tied_moves_along() -> None:
    """Where two sizes must multiply to eight, doubling one halves the other."""
    tied = space({"workload.dp": [1, 2, 4, 8], "workload.tp": [1, 2, 4, 8]}, ["dp * tp == 8"])
    row = np.array([[1, 2]])  # 2 x 4
    found = {tuple(Moves(tied).neighbour(row, np.random.default_rng(seed))[0].tolist()) for seed in range(60)}
    assert found == {(0, 3), (2, 1), (3, 0)}


def test_children_of_equal_parents_are_their_parents() -> None:
    assert np.array_equal(MOVES.crossover(POINTS, POINTS, np.random.default_rng(2)), POINTS)


def test_the_neighbourhood_is_every_single_change() -> None:
    grid = space({"workload.dp": [1, 2, 4], "collective.chunks": [2, 4]})
    around = Moves(grid).neighbourhood(np.array([0, 0]))
    assert sorted(map(tuple, around.tolist())) == [(0, 1), (1, 0), (2, 0)]


def test_the_neighbourhood_in_a_real_space_is_valid_and_without_the_point_itself() -> None:
    around = MOVES.neighbourhood(POINTS[0])
    assert FULL.contains(around).all()
    assert not (around == POINTS[0]).all(axis=1).any()
    assert len(np.unique(around, axis=0)) == len(around) > 50


def test_every_valid_point_can_be_reached() -> None:
    tied = load_space("cosmic-1024-full-stack").restrict(["workload"])
    moves = Moves(tied)
    seen = {tuple(next(tied.enumerate()).tolist())}
    frontier = list(seen)
    while frontier:
        around = {tuple(row) for row in moves.neighbourhood(np.array(frontier.pop())).tolist()}
        frontier += around - seen
        seen |= around
    assert len(seen) == tied.valid


@pytest.mark.parametrize("given", [{}, {"workload.dp": [4]}])
def test_where_nothing_can_change_nothing_does(given: dict[str, list[int]]) -> None:
    fixed = space(given)
    row = fixed.sample(2, np.random.default_rng(0))
    assert np.array_equal(Moves(fixed).neighbour(row, np.random.default_rng(0)), row)
    assert len(Moves(fixed).neighbourhood(row[0])) == 0
