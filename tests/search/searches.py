"""A search with a known answer, for the tests of agents."""

from __future__ import annotations

import numpy as np

from cosmic.search.agent import Floats, Outcomes, Task, start_agent
from cosmic.search.space.diagram import Indices
from cosmic.search.space.space_files import load_space

SPACE = load_space("cosmic-1024-full-stack")
GOAL = SPACE.sample(1, np.random.default_rng(42))[0]
ORDERED = np.array([each.ordered for each in SPACE.parameters])


def told(rows: Indices) -> Outcomes:
    """Return losses that are least at the goal, and below 0; points that are far up in the first two cannot run."""
    steps = np.where(ORDERED, np.abs(rows - GOAL), 3 * (rows != GOAL)).sum(axis=1)
    excess = np.maximum(rows[:, :2].sum(axis=1) - 8.0, 0.0)
    return Outcomes(rows, np.where(excess > 0, np.nan, steps - 1000.0)[:, None], excess)


def searched(name: str, trials: int, seed: int = 0) -> Floats:
    """Return the losses that an agent saw, in order; infinite for what cannot run."""
    agent = start_agent(name, Task(SPACE, trials), np.random.default_rng(seed))
    seen: list[Floats] = []
    while sum(map(len, seen)) < trials:
        outcomes = told(agent.ask(agent.batch))
        agent.tell(outcomes)
        seen.append(np.nan_to_num(outcomes.losses[:, 0], nan=np.inf))
    return np.concatenate(seen)[:trials]
