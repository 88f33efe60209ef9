"""What must hold of every agent."""

from __future__ import annotations

import numpy as np

from cosmic.psa.diagram import Indices
from cosmic.psa.files import load_space
from cosmic.psa.space import ParameterSet
from cosmic.search.agent import Agent, agents
from cosmic.testing.suite import Suite


def small_space() -> ParameterSet:
    """Return a space with constraints that is quick to search."""
    return load_space("cosmic-512-full-stack").restrict(["workload", "network"])


def worth(rows: Indices) -> list[float]:
    """Return a made-up objective: the sum of all indices."""
    return [float(total) for total in rows.sum(axis=1)]


class AgentSuite(Suite):
    """Laws of asking and telling."""

    registry = agents

    def started(self, name: str, space: ParameterSet, seed: int = 0) -> Agent:
        """Return the agent *name*, ready to be asked."""
        agent: Agent = self.registry[name](space, np.random.default_rng(seed))
        return agent

    def test_it_proposes_as_many_points_as_asked(self, name: str) -> None:
        """Batches of any size, none included."""
        space = small_space()
        for n in (0, 1, 7):
            assert self.started(name, space).ask(n).shape == (n, len(space.parameters))

    def test_it_proposes_valid_points_only(self, name: str) -> None:
        """Every proposal satisfies every constraint, before and after learning."""
        space = small_space()
        agent = self.started(name, space)
        for _ in range(5):
            rows = agent.ask(20)
            assert space.contains(rows).all()
            agent.tell(rows, worth(rows))

    def test_the_same_seed_gives_the_same_search(self, name: str) -> None:
        """Two agents with one seed that are told the same propose the same."""
        space = small_space()
        first, second = self.started(name, space, seed=3), self.started(name, space, seed=3)
        for _ in range(3):
            rows, twin = first.ask(10), second.ask(10)
            assert np.array_equal(rows, twin)
            first.tell(rows, worth(rows))
            second.tell(twin, worth(twin))

    def test_it_survives_points_that_cannot_run(self, name: str) -> None:
        """A batch in which nothing is feasible is a lesson like any other."""
        space = small_space()
        agent = self.started(name, space)
        agent.tell(agent.ask(10), [None] * 10)
        assert space.contains(agent.ask(10)).all()

    def test_it_may_be_told_late_or_of_strangers(self, name: str) -> None:
        """Asking twice before telling, and telling of points it never proposed, is fine."""
        space = small_space()
        agent = self.started(name, space)
        early = agent.ask(4)
        agent.ask(4)
        agent.tell(early, worth(early))
        strangers = space.sample(4, np.random.default_rng(9))
        agent.tell(strangers, worth(strangers))
        assert space.contains(agent.ask(4)).all()
