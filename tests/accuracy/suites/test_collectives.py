"""The laws of collective algorithms hold for every one, and a broken one does not pass."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from cosmic.accuracy.suites import CollectiveSuite
from cosmic.base.registry import Registry
from cosmic.design.collective_layer import algorithms
from cosmic.network.collective_rounds import ByRounds, Round, Rounds, message_round


class TestEveryAlgorithm(CollectiveSuite):
    """All that are registered."""

    names = algorithms


broken: Registry[Any] = Registry("algorithm")


class Chatty(ByRounds):
    """Sound, if wasteful: every NPU sends everything, twice for each other NPU."""

    @staticmethod
    def rounds(kind: Any, members: int) -> Rounds:
        """Return that all send to the next."""
        own = np.arange(members)
        return Rounds(members, (Round(own, (own + 1) % members, Fraction(1), times=2 * (members - 1)),))

    @staticmethod
    def steps(kind: str, p: Any) -> Any:
        """Return twice as many as there are others."""
        return 2 * (p - 1)

    @staticmethod
    def traffic(kind: str, p: Any) -> Any:
        """Return twice as much as there are others."""
        return 2 * (p - 1)

    @staticmethod
    def peers(p: Any) -> Any:
        """Return 1."""
        return 1.0

    @staticmethod
    def distance(p: Any) -> Any:
        """Return 1."""
        return 1.0


def variant(name: str, **methods: Any) -> None:
    """Register what Chatty does, but for some methods."""
    broken.register(name)(type(name, (Chatty,), {"__doc__": "Broken.", **methods}))


broken.register("sound")(Chatty)
variant("undescribed", __doc__="")
variant("restless", steps=staticmethod(lambda kind, p: p))
variant("miraculous", traffic=staticmethod(lambda kind, p: (p - 1) / (2 * p)))
variant("hasty", steps=staticmethod(lambda kind, p: (p > 1) * (1 if kind == "all_reduce" else 2)))
variant("lonely", peers=staticmethod(lambda p: 0))
variant("far", distance=staticmethod(lambda p: 2 * p))
variant("scalar", traffic=staticmethod(lambda kind, p: 2 * (p - 1) if not hasattr(p, "shape") else 2 * p))


def half_of_a_gather(kind: Any, members: int) -> Rounds:
    """Return a collective in which one half of the members sends its parts to the next."""
    own = np.arange(members // 2)
    return Rounds(members, (message_round(own, own + 1, own[:, None], Fraction(1, members)),))


variant("miscounted", steps=staticmethod(lambda kind, p: 3 * (p - 1)))
variant("lossy", rounds=staticmethod(half_of_a_gather))


class Suite(CollectiveSuite):
    """The laws, of algorithms that are nowhere else."""

    registry = broken


def test_a_sound_algorithm_obeys_every_law() -> None:
    laws = [name for name in dir(Suite) if name.startswith("test_")]
    assert len(laws) == 8
    for law in laws:
        getattr(Suite(), law)("sound")


@pytest.mark.parametrize(
    ("name", "law"),
    [
        ("undescribed", "test_it_says_what_it_is"),
        ("restless", "test_a_group_of_one_sends_nothing"),
        ("miraculous", "test_it_never_beats_the_bandwidth_bound"),
        ("hasty", "test_an_all_reduce_costs_no_less_than_a_gather"),
        ("lonely", "test_peers_exist_within_the_group"),
        ("far", "test_peers_exist_within_the_group"),
        ("miscounted", "test_the_closed_form_is_the_sum_over_rounds"),
        ("lossy", "test_it_does_what_its_collective_is_for"),
        ("scalar", "test_arrays_give_what_numbers_give"),
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
        ("halving_doubling", 9, 8, 3.75),
        ("in_network", 8, 1, 1.0),
        ("double_binary_tree", 8, 6, 2.0),
        ("double_binary_tree", 2, 2, 1.0),
    ],
)
def test_steps_and_traffic_are_those_of_the_literature(name: str, npus: int, steps: float, traffic: float) -> None:
    found = algorithms[name]
    assert (found.steps("all_reduce", npus), found.traffic("all_reduce", npus)) == (steps, traffic)
