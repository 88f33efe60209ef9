"""The laws of topologies hold for every one, and a broken one does not pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cosmic.accuracy.suites import TopologySuite
from cosmic.base.registry import Registry
from cosmic.design.network_layer import Parts, topologies
from cosmic.network.topologies.switch import Switch


class TestEveryTopology(TopologySuite):
    """All that are registered."""

    names = topologies


broken: Registry[Any] = Registry("topology")


class Sound(Switch):
    """A switch under another name, of which the variants below break one law each."""


def breaking(name: str, **wrong: Any) -> None:
    """Register a topology in which some functions are *wrong*."""
    functions = {key: staticmethod(value) if callable(value) else value for key, value in wrong.items()}
    broken.register(name)(type(name, (Sound,), {"__doc__": "Broken.", **functions}))


broken.register("sound")(Sound)
breaking("undescribed", __doc__=None)
breaking("nameless_algorithm", algorithm="rign")
breaking("linkless", links=lambda npus: 0)
breaking("distant", diameter=lambda npus: npus + 1)
breaking("stretched", mean_hops=lambda npus: 2.1)
breaking("cut_too_thick", bisection=lambda npus: npus * npus)
breaking("shrinking", bisection=lambda npus: 1 + (npus == 4))
breaking("starved", share=lambda members, npus, step: 1.0 * (members == 1))
breaking("partial", share=lambda members, npus, step: 1.0 - 0.5 * (members == npus))
breaking("unlinked", hops=lambda members, npus, step: 0)
breaking("thin", bisection=lambda npus: 1, links=lambda npus: npus - 1)
breaking("free", parts=lambda npus: Parts(links=0))
breaking("scalar_only", bisection=lambda npus: 1 if np.ndim(npus) else npus // 2)


class Suite(TopologySuite):
    """The laws, of topologies that are nowhere else."""

    registry = broken


def test_a_sound_topology_obeys_every_law() -> None:
    laws = [name for name in dir(Suite) if name.startswith("test_")]
    assert len(laws) == 13
    for law in laws:
        getattr(Suite(), law)("sound")


@pytest.mark.parametrize(
    ("name", "law"),
    [
        ("undescribed", "test_it_says_what_it_is"),
        ("nameless_algorithm", "test_its_usual_algorithm_exists"),
        ("linkless", "test_every_npu_has_a_link"),
        ("distant", "test_the_diameter_is_at_least_one_link"),
        ("stretched", "test_the_mean_distance_is_at_most_the_diameter"),
        ("cut_too_thick", "test_halving_it_cuts_links"),
        ("shrinking", "test_doubling_it_never_makes_the_cut_smaller"),
        ("starved", "test_a_group_can_use_some_of_the_bandwidth_and_no_more_than_all"),
        ("partial", "test_the_whole_dimension_has_the_largest_share"),
        ("unlinked", "test_neighbours_in_a_group_are_linked"),
        ("thin", "test_an_all_gather_never_beats_the_cut"),
        ("free", "test_it_is_made_of_its_links"),
        ("scalar_only", "test_arrays_give_what_numbers_give"),
    ],
)
def test_a_broken_topology_breaks_the_law_it_should(name: str, law: str) -> None:
    with pytest.raises(AssertionError):
        getattr(Suite(), law)(name)
