"""The ant colony lays pheromone where the best went, and never loses a value for good."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.search.agent import Outcomes, Task, start_agent
from cosmic.search.agents.ant_colony import AntColonyAgent
from cosmic.search.space.diagram import Indices
from tests.search.problems import LANDSCAPES, SPACE, judged, nearest

TASK = Task(SPACE, trials=1500)


@pytest.mark.parametrize("landscape", LANDSCAPES)
def test_it_finds_the_goal_whatever_the_losses_look_like(landscape: Callable[[Indices], Outcomes]) -> None:
    """Of 23 parameters all but 2 are right after 1,500 trials; random search gets 11 wrong."""
    assert nearest(AntColonyAgent(TASK, np.random.default_rng(0)), landscape) <= 2


@pytest.mark.parametrize(
    ("setting", "value"), [("greediness", 1.5), ("evaporation", 0.0), ("least", 0.0), ("elite", -0.1)]
)
def test_a_setting_without_sense_is_refused(setting: str, value: float) -> None:
    with pytest.raises(SpecError, match=f"ant_colony.{setting}"):
        start_agent("ant_colony", TASK, np.random.default_rng(0), {setting: value})


def test_the_best_is_reinforced_and_nothing_else() -> None:
    """The original laid a negative amount: what the best chose was avoided."""
    agent = AntColonyAgent(TASK, np.random.default_rng(0), elite=0.01)
    rows = SPACE.sample(30, np.random.default_rng(1))
    for _ in range(3):
        agent.tell(judged(rows, np.arange(30.0)))
    parts = np.split(agent.pheromone, np.cumsum(SPACE.sizes)[:-1])
    for value, part in zip(rows[0], parts, strict=True):
        assert part[value] == 1
        assert (np.delete(part, value) < 1).all()


def test_pheromone_stays_within_its_bounds() -> None:
    agent = AntColonyAgent(TASK, np.random.default_rng(0), evaporation=1.0, least=0.1)
    rows = SPACE.sample(50, np.random.default_rng(1))
    agent.tell(judged(rows, np.arange(50.0)))
    agent.tell(judged(rows, np.arange(50.0)))
    assert agent.pheromone.min() == 0.1
    assert agent.pheromone.max() <= 1


def test_the_greediest_colony_takes_what_is_strongest() -> None:
    agent = AntColonyAgent(TASK, np.random.default_rng(0), greediness=1.0, evaporation=1.0, elite=0.01)
    rows = SPACE.sample(80, np.random.default_rng(1))
    agent.tell(judged(rows, np.arange(80.0)))
    assert (agent.ask(20) != rows[0]).sum(axis=1).mean() < 5  # as near as novelty and validity let it


def test_telling_in_parts_evaporates_as_much_as_at_once() -> None:
    whole, parts = (AntColonyAgent(TASK, np.random.default_rng(0), elite=0.01) for _ in range(2))
    rows = SPACE.sample(40, np.random.default_rng(1))
    whole.tell(judged(rows, np.arange(40.0)))
    parts.tell(judged(rows[:10], np.arange(10.0)))
    parts.tell(judged(rows[10:], np.arange(10.0, 40.0)))
    assert np.allclose(whole.pheromone, parts.pheromone)
