"""Made-up searches that are over in a moment."""

from __future__ import annotations

import numpy as np

from cosmic.search.agent import Agent, Floats, Outcomes
from cosmic.search.space.diagram import Indices
from cosmic.search.space.space_files import load_space

SPACE = load_space("cosmic-1024-full-stack")
GOAL = SPACE.sample(1, np.random.default_rng(42))[0]


def distance(rows: Indices) -> Floats:
    """How many parameters differ from a point that nobody knows."""
    return np.asarray((rows != GOAL).sum(axis=1), dtype=float)


def judged(rows: Indices, losses: Floats) -> Outcomes:
    """Outcomes of points that can run."""
    return Outcomes(rows, losses.reshape(len(rows), -1), np.zeros(len(rows)))


def steep(rows: Indices) -> Outcomes:
    """Losses over twenty orders of magnitude: what counts is only which is less."""
    return judged(rows, 10 ** (distance(rows) - 3))


def below_zero(rows: Indices) -> Outcomes:
    """What is to be maximised comes negated."""
    return judged(rows, -(2.0 ** -distance(rows)))


def around_zero(rows: Indices) -> Outcomes:
    """Losses of either sign, and zero."""
    return judged(rows, distance(rows) - 4)


def fenced(rows: Indices) -> Outcomes:
    """Only points near the goal can run; the others know how far they are off."""
    far = np.maximum(distance(rows) - 8, 0.0)
    return Outcomes(rows, np.where(far == 0, 1 + distance(rows), np.nan)[:, None], far)


def opposed(rows: Indices) -> Outcomes:
    """Two objectives: near to the goal, and few high indices."""
    return judged(rows, np.stack([1 + distance(rows), 1.0 + rows.sum(axis=1)], axis=1))


LANDSCAPES = [steep, below_zero, around_zero, fenced]


def nearest(agent: Agent, landscape: object, trials: int = 1500) -> float:
    """Search for a while and return how near to the goal the agent came."""
    assert callable(landscape)
    best = np.inf
    for _ in range(-(-trials // agent.batch)):
        rows = agent.ask(agent.batch)
        best = min(best, distance(rows).min())
        agent.tell(landscape(rows))
    return float(best)
