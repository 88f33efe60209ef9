"""The learnt stand-in: better than chance, more so where closed forms are known."""

from __future__ import annotations

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.search.agent import Floats, Task, start_agent
from cosmic.search.space.diagram import Indices
from tests.search.searches import SPACE, searched, told


@pytest.mark.long
def test_it_comes_nearer_to_the_goal_than_chance_does() -> None:
    assert searched("surrogate", 120).min() < searched("random", 120).min() - 5


def test_it_uses_what_is_known_of_points_beforehand() -> None:
    def describe(rows: Indices) -> Floats:
        return np.nan_to_num(told(rows).losses, nan=0.0)

    def proposed(task: Task) -> Floats:
        agent = start_agent("surrogate", task, np.random.default_rng(0))
        agent.tell(told(SPACE.sample(60, np.random.default_rng(1))))
        return told(agent.ask(10)).losses[:, 0]

    blind, seeing = proposed(Task(SPACE, 120)), proposed(Task(SPACE, 120, describe=describe))
    assert np.nanmean(seeing) < np.nanmean(blind)
    assert np.isfinite(seeing).all()


def test_no_two_points_of_a_batch_are_the_same() -> None:
    agent = start_agent("surrogate", Task(SPACE, 300), np.random.default_rng(0))
    agent.tell(told(SPACE.sample(60, np.random.default_rng(1))))
    rows = agent.ask(20)
    apart = (rows[:, None, :] != rows[None, :, :]).sum(axis=2)
    assert apart[~np.eye(20, dtype=bool)].min() >= 1
    assert apart.mean() > 2


def test_it_takes_a_fifteenth_of_the_trials_at_a_time() -> None:
    assert start_agent("surrogate", Task(SPACE, 300), np.random.default_rng(0)).batch == 20


@pytest.mark.parametrize(("setting", "value"), [("candidates", 1), ("members", 1), ("boldness", -1), ("batch", -1)])
def test_a_setting_that_makes_no_sense_is_refused(setting: str, value: int) -> None:
    with pytest.raises(SpecError, match=rf"surrogate\.{setting} = "):
        start_agent("surrogate", Task(SPACE), np.random.default_rng(0), {setting: value})
