"""Points drawn by numbers for their values: as likely as those say, and valid."""

from __future__ import annotations

import numpy as np

from cosmic.search.learning.agent_memory import Weights
from cosmic.search.space.space_files import load_space

SPACE = load_space("cosmic-512-full-stack")


def test_free_values_are_drawn_as_often_as_their_numbers_say() -> None:
    weights = Weights(SPACE)
    numbers = np.random.default_rng(0).random(weights.size) + 0.1
    rows = weights.walk(numbers, 40_000, np.random.default_rng(1))
    assert SPACE.contains(rows).all()
    shares = np.split(weights.shares(numbers), np.cumsum(SPACE.sizes)[:-1])
    assert len(SPACE.free) > 10
    for column in SPACE.free.tolist():
        drawn = np.bincount(rows[:, column], minlength=SPACE.sizes[column]) / len(rows)
        assert np.abs(drawn - shares[column]).max() < 0.015


def test_a_value_that_has_all_the_weight_is_always_drawn() -> None:
    weights = Weights(SPACE)
    goal = SPACE.sample(1, np.random.default_rng(2))
    numbers = np.where(weights.totals(goal, np.ones(1)) > 0, 1.0, 1e-15)
    assert (weights.walk(numbers, 200, np.random.default_rng(3)) == goal).all()


def test_totals_shares_and_largest_are_by_parameter() -> None:
    weights = Weights(SPACE)
    rows = SPACE.sample(10, np.random.default_rng(4))
    totals = weights.totals(rows, np.arange(10.0))
    assert totals.sum() == 45 * len(SPACE.sizes)
    assert np.allclose(weights.sums(weights.shares(totals + 1)), 1)
    assert (weights.largest(totals) >= totals).all()
