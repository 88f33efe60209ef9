"""The laws of collective algorithms hold of every one, and a broken one does not pass."""

from __future__ import annotations

from typing import Any

import pytest

from cosmic.design.collective import algorithms
from cosmic.registry import Registry
from cosmic.testing import CollectiveSuite


class TestEveryAlgorithm(CollectiveSuite):
    """All that are registered."""

    names = algorithms


broken: Registry[Any] = Registry("algorithm")


class Chatty:
    """Sound, if wasteful: everybody sends everything, once for each NPU."""

    @staticmethod
    def steps(npus: int) -> float:
        """Return twice as many as there are others."""
        return 2 * (npus - 1)

    @staticmethod
    def traffic(npus: int) -> float:
        """Return twice as much as there are others."""
        return 2 * (npus - 1)


broken.register("sound")(Chatty)
broken.register("undescribed")(type("Undescribed", (Chatty,), {"__doc__": ""}))
broken.register("restless")(type("Restless", (Chatty,), {"steps": staticmethod(lambda npus: npus)}))
broken.register("miraculous")(type("Miraculous", (Chatty,), {"traffic": staticmethod(lambda npus: (npus - 1) / npus)}))
broken.register("telepathic")(type("Telepathic", (Chatty,), {"steps": staticmethod(lambda npus: 0)}))


class Suite(CollectiveSuite):
    """The laws, of algorithms that are nowhere else."""

    registry = broken


def test_a_sound_algorithm_obeys_every_law() -> None:
    laws = [name for name in dir(Suite) if name.startswith("test_")]
    assert len(laws) == 4
    for law in laws:
        getattr(Suite(), law)("sound")


@pytest.mark.parametrize(
    ("name", "law"),
    [
        ("undescribed", "test_it_says_what_it_is"),
        ("restless", "test_a_group_of_one_sends_nothing"),
        ("miraculous", "test_it_never_beats_the_bandwidth_bound"),
        ("telepathic", "test_it_takes_the_steps_that_news_needs_to_spread"),
    ],
)
def test_a_broken_algorithm_breaks_the_law_it_should(name: str, law: str) -> None:
    with pytest.raises(AssertionError):
        getattr(Suite(), law)(name)


@pytest.mark.parametrize(
    ("name", "npus", "steps", "traffic"),
    [
        ("ring", 8, 14, 1.75),
        ("ring", 2, 2, 1.0),
        ("direct", 8, 2, 1.75),
        ("halving_doubling", 8, 6, 1.75),
        ("halving_doubling", 9, 8, 2.75),
        ("double_binary_tree", 8, 6, 2.0),
        ("double_binary_tree", 2, 2, 1.0),
    ],
)
def test_steps_and_traffic_are_those_of_the_literature(name: str, npus: int, steps: float, traffic: float) -> None:
    assert (algorithms[name].steps(npus), algorithms[name].traffic(npus)) == (steps, traffic)
