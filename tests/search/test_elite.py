"""The elite holds the best, each once, those that can run before those that cannot."""

from __future__ import annotations

import numpy as np

from cosmic.search.agent import Outcomes, Task
from cosmic.search.learning.agent_memory import Elite, generation_size
from tests.search.problems import SPACE, judged

ROWS = SPACE.sample(8, np.random.default_rng(0))


def test_the_best_of_all_tells_stay_in_order() -> None:
    elite = Elite(Task(SPACE), 3)
    elite.add(judged(ROWS[:4], np.array([5.0, 1.0, 4.0, 9.0])))
    elite.add(judged(ROWS[4:], np.array([8.0, 3.0, 7.0, 2.0])))
    assert elite.outcomes.losses[:, 0].tolist() == [1, 2, 3]
    assert np.array_equal(elite.outcomes.rows, ROWS[[1, 7, 5]])
    assert elite.outcomes_told == 8


def test_a_point_told_twice_has_one_place() -> None:
    elite = Elite(Task(SPACE), 5)
    elite.add(judged(ROWS[[0, 0, 1]], np.array([1.0, 1.0, 2.0])))
    elite.add(judged(ROWS[:1], np.array([1.0])))
    assert len(elite) == 2


def test_what_cannot_run_gives_way_to_what_can() -> None:
    elite = Elite(Task(SPACE), 2)
    elite.add(Outcomes(ROWS[:3], np.full((3, 1), np.nan), np.array([np.inf, 0.1, 0.5])))
    assert elite.outcomes.excess.tolist() == [0.1, 0.5]
    elite.add(judged(ROWS[3:4], np.array([1e9])))
    assert elite.outcomes.excess.tolist() == [0, 0.1]


def test_generations_grow_with_the_trials() -> None:
    sizes = [generation_size(trials) for trials in (1, 300, 20_000)]
    assert sizes == sorted(sizes)
    assert sizes[0] >= 2
