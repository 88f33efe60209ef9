"""The genetic algorithm keeps the best, breeds from them and spreads along a front."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.search.agent import Outcomes, Task, start_agent
from cosmic.search.agents.genetic import GeneticAgent
from cosmic.search.objectives import hypervolume, pareto_front
from cosmic.search.space.diagram import Indices
from tests.search.problems import LANDSCAPES, SPACE, judged, nearest, opposed

TASK = Task(SPACE, trials=1500)


@pytest.mark.parametrize("landscape", LANDSCAPES)
def test_it_finds_the_goal_whatever_the_losses_look_like(landscape: Callable[[Indices], Outcomes]) -> None:
    """Of 23 parameters all but 1 are right after 1,500 trials; random search gets 11 wrong."""
    assert nearest(GeneticAgent(TASK, np.random.default_rng(0)), landscape) <= 1


def test_many_trials_have_several_litters_of_the_same_parents_at_once() -> None:
    few, many = (GeneticAgent(Task(SPACE, trials=trials), np.random.default_rng(0)) for trials in (5000, 20_000))
    assert (few.batch, few.population) == (108, 108)
    assert (many.batch, many.population) == (4 * 285, 285)


@pytest.mark.parametrize(
    ("setting", "value"), [("population", -1), ("tournament", 0), ("crossover", 1.5), ("mutation", -1.0), ("near", 2.0)]
)
def test_a_setting_without_sense_is_refused(setting: str, value: float) -> None:
    with pytest.raises(SpecError, match=f"genetic.{setting}"):
        start_agent("genetic", TASK, np.random.default_rng(0), {setting: value})


def test_without_mutation_children_have_the_values_of_their_parents() -> None:
    """Free parameters, that is; tied ones are repaired."""
    agent = GeneticAgent(TASK, np.random.default_rng(0), mutation=0.0)
    parents = SPACE.sample(agent.population, np.random.default_rng(1))
    parents[:, SPACE.components[-1].columns] = 3
    agent.tell(judged(parents, np.arange(len(parents), dtype=float)))
    children = agent.ask(20)
    assert (children[:, SPACE.components[-1].columns] == 3).all()
    assert not {tuple(row) for row in children.tolist()} & {tuple(row) for row in parents.tolist()}


def test_the_best_breed_the_most() -> None:
    agent = GeneticAgent(TASK, np.random.default_rng(0), mutation=0.0, crossover=0.0, tournament=5)
    parents = SPACE.sample(agent.population, np.random.default_rng(1))
    agent.tell(judged(parents, np.arange(len(parents), dtype=float)))
    apart = (agent.ask(60)[:, None, :] != parents[None, :, :]).sum(axis=2).argmin(axis=1)
    assert np.mean(apart < len(parents) / 2) > 0.9


def test_several_objectives_give_a_front_and_not_a_point() -> None:
    agent = GeneticAgent(Task(SPACE, trials=1500, objectives=2), np.random.default_rng(0))
    told = []
    for _ in range(20):
        rows = agent.ask(agent.batch)
        told.append(opposed(rows))
        agent.tell(told[-1])
    losses = np.concatenate([each.losses for each in told])
    found = np.unique(losses[pareto_front(losses)], axis=0)
    assert len(found) >= 6
    unguided = opposed(SPACE.sample(len(losses), np.random.default_rng(3))).losses
    reference = np.array([24.0, 100.0])
    assert hypervolume(losses, reference) > 1.3 * hypervolume(unguided, reference)
