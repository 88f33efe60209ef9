"""Bayesian optimisation: better than chance soon, also where much cannot run."""

from __future__ import annotations

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.search.agent import Outcomes, Task, start_agent
from tests.search.searches import SPACE, searched, told


@pytest.mark.long
def test_it_comes_nearer_to_the_goal_than_chance_does() -> None:
    assert searched("bayesian", 120).min() < searched("random", 120).min() - 5


def test_it_learns_to_avoid_what_cannot_run() -> None:
    agent = start_agent("bayesian", Task(SPACE, 100), np.random.default_rng(0))
    rows = SPACE.sample(60, np.random.default_rng(1))
    able = rows[:, :3].sum(axis=1) <= 4
    agent.tell(Outcomes(rows, np.where(able, 1.0, np.nan)[:, None], np.where(able, 0.0, np.inf)))
    assert (agent.ask(8)[:, :3].sum(axis=1) <= 5).all()


def test_it_looks_elsewhere_while_proposals_are_out() -> None:
    agent = start_agent("bayesian", Task(SPACE, 100), np.random.default_rng(0))
    agent.tell(told(SPACE.sample(40, np.random.default_rng(1))))
    first, second = agent.ask(8), agent.ask(8)
    assert len(np.unique(np.concatenate([first, second]), axis=0)) == 16


def test_what_it_shows_its_processes_is_bounded() -> None:
    agent = start_agent("bayesian", Task(SPACE, 100), np.random.default_rng(0), {"points": 30})
    agent.tell(told(SPACE.sample(500, np.random.default_rng(1))))
    assert SPACE.contains(agent.ask(4)).all()
    assert len(agent._limits._model.X_train_) == 30  # type: ignore[attr-defined]


@pytest.mark.parametrize("setting", ["candidates", "points", "batch"])
def test_a_setting_that_makes_no_sense_is_refused(setting: str) -> None:
    with pytest.raises(SpecError, match=rf"bayesian\.{setting} = 0: must be at least"):
        start_agent("bayesian", Task(SPACE), np.random.default_rng(0), {setting: 0})
