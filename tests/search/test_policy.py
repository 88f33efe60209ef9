"""The policy learns from places, waits for enough to compare, and stays open."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.search.agent import Outcomes, Task, start_agent
from cosmic.search.agents.policy import PolicyAgent
from cosmic.search.space.diagram import Indices
from tests.search.problems import LANDSCAPES, SPACE, judged, nearest

TASK = Task(SPACE, trials=1500)


@pytest.mark.parametrize("landscape", LANDSCAPES)
def test_it_finds_the_goal_whatever_the_losses_look_like(landscape: Callable[[Indices], Outcomes]) -> None:
    """Of 23 parameters all but 4 are right after 1,500 trials; random search gets 11 wrong."""
    assert nearest(PolicyAgent(TASK, np.random.default_rng(0)), landscape) <= 4


@pytest.mark.parametrize(("setting", "value"), [("rate", 0.0), ("entropy", -1.0)])
def test_a_setting_without_sense_is_refused(setting: str, value: float) -> None:
    with pytest.raises(SpecError, match=f"policy.{setting}"):
        start_agent("policy", TASK, np.random.default_rng(0), {setting: value})


def test_a_value_that_led_to_better_points_becomes_likelier() -> None:
    agent = PolicyAgent(TASK, np.random.default_rng(0))
    before = agent.probabilities
    rows = SPACE.sample(agent.batch, np.random.default_rng(1))
    agent.tell(judged(rows, np.where(rows[:, 0] == 2, 1.0, 5.0)))
    change = (agent.probabilities - before)[: SPACE.sizes[0]]
    assert change[2] > 0
    assert (np.delete(change, 2) < 0).all()


def test_it_waits_until_there_is_something_to_compare() -> None:
    """Told one by one it learns as much as told at once."""
    whole, parts = (PolicyAgent(TASK, np.random.default_rng(0)) for _ in range(2))
    rows = SPACE.sample(whole.batch, np.random.default_rng(1))
    losses = np.arange(len(rows), dtype=float)
    whole.tell(judged(rows, losses))
    for place in range(len(rows)):
        assert not np.array_equal(parts.probabilities, whole.probabilities)
        parts.tell(judged(rows[[place]], losses[[place]]))
    assert np.array_equal(parts.probabilities, whole.probabilities)


def test_from_what_is_all_the_same_nothing_is_learned() -> None:
    agent = PolicyAgent(TASK, np.random.default_rng(0))
    before = agent.probabilities
    rows = SPACE.sample(agent.batch, np.random.default_rng(1))
    agent.tell(Outcomes(rows, np.full((len(rows), 1), np.nan), np.full(len(rows), np.inf)))
    assert np.allclose(agent.probabilities, before)


def test_entropy_keeps_the_policy_open() -> None:
    sure, open_minded = (PolicyAgent(TASK, np.random.default_rng(0), entropy=share) for share in (0.0, 1.0))
    for agent in (sure, open_minded):
        nearest(agent, LANDSCAPES[0])
    surprise = [-(agent.probabilities * np.log(agent.probabilities)).sum() for agent in (sure, open_minded)]
    assert surprise[1] > surprise[0] + 1
