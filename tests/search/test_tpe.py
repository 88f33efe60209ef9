"""TPE: better than chance, with constraints and several objectives."""

from __future__ import annotations

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.search.agent import Outcomes, Task, start_agent
from cosmic.search.agents.tpe import TpeAgent
from tests.search.searches import SPACE, searched


@pytest.mark.long
def test_it_comes_nearer_to_the_goal_than_chance_does() -> None:
    runs = [(searched("tpe", 200, seed).min(), searched("random", 200, seed).min()) for seed in range(2)]
    assert all(found < drawn - 3 for found, drawn in runs)


def test_it_learns_to_avoid_what_cannot_run() -> None:
    agent = start_agent("tpe", Task(SPACE, 100), np.random.default_rng(0))
    rows = SPACE.sample(80, np.random.default_rng(1))
    sharded = rows[:, 3] == 1
    excess = np.where(sharded, 0.0, np.linspace(0.1, 1, 80))
    agent.tell(Outcomes(rows, np.where(sharded, 1.0, np.nan)[:, None], excess))
    assert (agent.ask(20)[:, 3] == 1).mean() > 0.8


def test_several_objectives_are_several_values_of_a_trial() -> None:
    agent = TpeAgent(Task(SPACE, 40, objectives=2), np.random.default_rng(0))
    rows = SPACE.sample(2, np.random.default_rng(0))
    agent.tell(Outcomes(rows, np.array([[1.0, 2.0], [np.nan, np.nan]]), np.array([0.0, np.inf])))
    assert [trial.values for trial in agent._study.trials] == [[1.0, 2.0], [np.inf, np.inf]]


@pytest.mark.parametrize(("setting", "value"), [("candidates", 0), ("startup", -1), ("batch", 0)])
def test_a_setting_that_makes_no_sense_is_refused(setting: str, value: int) -> None:
    with pytest.raises(SpecError, match=rf"tpe\.{setting} = "):
        start_agent("tpe", Task(SPACE), np.random.default_rng(0), {setting: value})
