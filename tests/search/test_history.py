"""What models learn from: each point once, and losses of any scale."""

from __future__ import annotations

import numpy as np

from cosmic.accuracy.suites import small_space, sum_outcomes
from cosmic.search.agent import Outcomes
from cosmic.search.learning.agent_memory import History, make_targets

SPACE = small_space()


def test_a_point_told_twice_is_kept_once_as_it_was_first() -> None:
    history = History(SPACE, 1)
    rows = SPACE.sample(5, np.random.default_rng(0))
    history.add(sum_outcomes(rows))
    history.add(Outcomes(rows, np.full((5, 1), -1.0), np.zeros(5)))
    assert len(history) == 5
    assert history.losses.min() >= 0


def test_only_what_was_neither_told_nor_proposed_is_unknown() -> None:
    history = History(SPACE, 1)
    rows = SPACE.sample(9, np.random.default_rng(0))
    history.add(sum_outcomes(rows[:3]))
    history.proposed(rows[3:6])
    assert np.array_equal(history.unknown(np.concatenate([rows, rows])), rows[6:])
    history.add(sum_outcomes(rows[3:6]))
    assert not history.waiting


def test_targets_are_in_the_order_of_losses_of_any_sign_and_scale() -> None:
    losses = np.array([[-1e300], [-2.0], [0.0], [1e-9], [5.0]])
    found = make_targets(losses, np.random.default_rng(0))
    assert (np.diff(found) > 0).all()
    assert np.isfinite(found).all()


def test_equal_losses_have_equal_targets() -> None:
    assert make_targets(np.full((4, 1), 3.0), np.random.default_rng(0)).tolist() == [0.0] * 4


def test_what_is_worse_in_every_objective_never_has_the_better_target() -> None:
    rng = np.random.default_rng(0)
    losses = np.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]])
    for _ in range(20):
        assert (np.diff(make_targets(losses, rng)) > 0).all()


def test_both_ends_of_a_front_are_best_now_and_then() -> None:
    rng = np.random.default_rng(0)
    losses = np.array([[1.0, 3.0], [2.0, 2.0], [3.0, 1.0]])
    assert {int(make_targets(losses, rng).argmin()) for _ in range(50)} == {0, 1, 2}
