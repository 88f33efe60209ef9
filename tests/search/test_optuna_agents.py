"""What TPE and CMA-ES share: Optuna asked and told in memory."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from cosmic.accuracy.suites import sum_outcomes
from cosmic.search.agent import Outcomes, Task, start_agent
from cosmic.search.learning.optuna_sampler import OptunaAgent
from tests.search.searches import SPACE, told

optuna = pytest.importorskip("optuna")
NAMES = ("tpe", "cmaes")


def started(name: str, trials: int = 100, objectives: int = 1) -> OptunaAgent:
    """Return the agent *name*."""
    agent = start_agent(name, Task(SPACE, trials, objectives), np.random.default_rng(0))
    assert isinstance(agent, OptunaAgent)
    return agent


@pytest.mark.parametrize("name", NAMES)
def test_points_of_others_become_trials_of_the_study(name: str) -> None:
    agent = started(name)
    agent.tell(told(SPACE.sample(7, np.random.default_rng(5))))
    assert len(agent._study.trials) == 7


@pytest.mark.parametrize("name", NAMES)
def test_optuna_says_nothing_and_stays_as_it_was(name: str, caplog: pytest.LogCaptureFixture) -> None:
    before = optuna.logging.get_verbosity()
    optuna.logging.enable_propagation()
    try:
        with caplog.at_level(logging.DEBUG):
            agent = started(name, trials=20)
            for _ in range(4):
                agent.tell(told(agent.ask(10)))
    finally:
        optuna.logging.disable_propagation()
    assert caplog.records == []
    assert optuna.logging.get_verbosity() == before


@pytest.mark.parametrize("name", NAMES)
def test_a_suggestion_of_a_known_point_costs_no_evaluation(name: str) -> None:
    space = SPACE.restrict(["collective"])
    agent = start_agent(name, Task(space, 60), np.random.default_rng(0))
    seen = []
    for _ in range(15):
        rows = agent.ask(8)
        agent.tell(sum_outcomes(rows))
        seen += space.keys(rows)
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize("name", NAMES)
def test_what_cannot_run_is_worse_than_all_that_can(name: str) -> None:
    agent = started(name)
    rows = SPACE.sample(3, np.random.default_rng(0))
    agent.tell(Outcomes(rows, np.array([[5.0], [np.nan], [np.nan]]), np.array([0.0, 0.5, np.inf])))
    able, near, never = (agent.value(place)[0] for place in range(3))
    assert able < near <= never
    assert able == 5.0
