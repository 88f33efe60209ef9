"""CMA-ES: moves towards better points, and is told of its own draws."""

from __future__ import annotations

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.search.agent import Outcomes, Task, start_agent
from cosmic.search.agents.cmaes import CmaesAgent
from tests.search.searches import SPACE, searched, told


def test_it_moves_towards_better_points() -> None:
    seen = searched("cmaes", 260)
    early, late = seen[:60], seen[-60:]
    assert np.median(late[late < np.inf]) < np.median(early[early < np.inf]) - 5


def test_every_suggestion_is_told_the_outcome_of_the_point_it_was_repaired_to() -> None:
    agent = CmaesAgent(Task(SPACE, 100), np.random.default_rng(0))
    agent.tell(told(agent.ask(agent.batch)))
    trials = agent._study.trials
    suggested = np.array([[trial.params[name] for name in agent._distributions] for trial in trials])
    assert not SPACE.contains(suggested).all()
    near = told(SPACE.repair(suggested))
    able = near.feasible
    assert [trial.value for trial, runs in zip(trials, able, strict=True) if runs] == near.losses[able, 0].tolist()


def test_of_several_objectives_the_front_comes_first() -> None:
    agent = CmaesAgent(Task(SPACE, 100, objectives=2), np.random.default_rng(0))
    rows = SPACE.sample(4, np.random.default_rng(0))
    losses = np.array([[3.0, 3.0], [1.0, 2.0], [np.nan, np.nan], [2.0, 1.0]])
    agent.tell(Outcomes(rows, losses, np.array([0.0, 0.0, 1.0, 0.0])))
    worse, first, never, second = (agent.value(place)[0] for place in range(4))
    assert max(first, second) < worse < never


def test_its_batch_is_its_population() -> None:
    assert start_agent("cmaes", Task(SPACE), np.random.default_rng(0)).batch == 13
    assert start_agent("cmaes", Task(SPACE), np.random.default_rng(0), {"population": 20}).batch == 20
    with pytest.raises(SpecError, match=r"cmaes\.population = 3: must be at least 4"):
        start_agent("cmaes", Task(SPACE), np.random.default_rng(0), {"population": 3})
