"""The laws of agents hold for every one, and a broken one does not pass."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest

from cosmic.accuracy.suites import AgentSuite
from cosmic.base.registry import Registry
from cosmic.search.agent import Outcomes, agents
from cosmic.search.agents.random import RandomAgent
from cosmic.search.space.diagram import Indices


@pytest.mark.long
class TestEveryAgent(AgentSuite):
    """All that are registered."""

    names = agents


broken: Registry[Any] = Registry("agent")


@broken.register("blind")
class Blind(RandomAgent):
    """Ignores the constraints."""

    def ask(self, n: int) -> Indices:
        """Return combinations of any values."""
        return self.rng.integers(np.array(self.space.sizes), size=(n, len(self.space.sizes)))


@broken.register("stingy")
class Stingy(RandomAgent):
    """Proposes one point whatever was asked for."""

    def ask(self, n: int) -> Indices:
        """Return one point."""
        return super().ask(1)


@broken.register("forgetful")
class Forgetful(RandomAgent):
    """Does not use the seed that it was given."""

    def ask(self, n: int) -> Indices:
        """Return points that another generator draws."""
        return self.space.sample(n, np.random.default_rng())


@broken.register("fragile")
class Fragile(RandomAgent):
    """Cannot learn from failure."""

    def tell(self, outcomes: Outcomes) -> None:
        """Insist on numbers."""
        assert outcomes.feasible.all()


@broken.register("jealous")
class Jealous(RandomAgent):
    """Learns only of what it proposed last."""

    last: ClassVar[list[Indices]] = []

    def ask(self, n: int) -> Indices:
        """Remember what was proposed."""
        self.last[:] = [super().ask(n)]
        return self.last[0]

    def tell(self, outcomes: Outcomes) -> None:
        """Insist on that."""
        assert np.array_equal(outcomes.rows, self.last[0])


@broken.register("repetitive")
class Repetitive(RandomAgent):
    """Draws what it has drawn before."""

    def ask(self, n: int) -> Indices:
        """Return any points."""
        return self.space.sample(n, self.rng)


class Suite(AgentSuite):
    """The laws, of agents that are nowhere else."""

    registry = broken


@pytest.mark.parametrize(
    ("name", "law"),
    [
        ("stingy", "test_it_proposes_as_many_points_as_asked"),
        ("blind", "test_it_proposes_valid_points_only"),
        ("forgetful", "test_the_same_seed_gives_the_same_search"),
        ("fragile", "test_it_survives_points_that_cannot_run"),
        ("repetitive", "test_it_ends_a_small_space"),
        ("jealous", "test_a_tell_may_be_late_partial_or_of_other_points"),
    ],
)
def test_a_broken_agent_breaks_the_law_it_should(name: str, law: str) -> None:
    with pytest.raises(AssertionError):
        getattr(Suite(), law)(name)
