"""Exhaustive search lists everything, lazily, and then again."""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np

from cosmic.search.agent import Task
from cosmic.search.agents.exhaustive import ExhaustiveAgent, list_by_structure
from cosmic.simulate.recording.recorded_program import STRUCTURAL
from tests.search.problems import SPACE, judged

SMALL = SPACE.restrict(["workload"])


def asked(agent: ExhaustiveAgent, n: int) -> list[tuple[int, ...]]:
    return [tuple(row) for row in agent.ask(n).tolist()]


def test_it_lists_every_point_in_order_and_then_starts_again() -> None:
    agent = ExhaustiveAgent(Task(SMALL), np.random.default_rng(0))
    everything = [tuple(row) for row in list_by_structure(SMALL).tolist()]
    assert set(everything) == {tuple(row.tolist()) for row in SMALL.enumerate()}
    assert len(everything) == SMALL.valid
    assert asked(agent, 200) + asked(agent, SMALL.valid - 200) == everything
    assert asked(agent, 10) + asked(agent, SMALL.valid) == everything[:10] + everything[10:] + everything[:10]


def test_what_others_told_of_is_left_out() -> None:
    """A study that goes on where another ended spends nothing on what is known."""
    agent = ExhaustiveAgent(Task(SMALL), np.random.default_rng(0))
    everything = list_by_structure(SMALL)
    agent.tell(judged(everything[5:50], np.zeros(45)))
    assert np.array_equal(agent.ask(10), np.concatenate((everything[:5], everything[50:55])))


def test_points_with_equal_switches_follow_each_other() -> None:
    """So that a program is recorded, or the physics walked, once for all of them."""
    switches = [place for place, each in enumerate(SMALL.parameters) if any(path in STRUCTURAL for path in each.paths)]
    assert switches
    codes = [tuple(row) for row in list_by_structure(SMALL)[:, switches].tolist()]
    changes = sum(before != after for before, after in pairwise(codes))
    assert changes == len(set(codes)) - 1


def test_a_huge_set_is_listed_in_no_time() -> None:
    start = time.process_time()
    rows = ExhaustiveAgent(Task(SPACE), np.random.default_rng(0)).ask(1000)
    assert time.process_time() - start < 0.5
    assert SPACE.contains(rows).all()
    assert len(np.unique(rows, axis=0)) == 1000
