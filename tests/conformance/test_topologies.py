"""The laws of topologies hold of every one, and a broken one does not pass."""

from __future__ import annotations

from typing import Any

import pytest

from cosmic.design.network import topologies
from cosmic.registry import Registry
from cosmic.testing import TopologySuite


class TestEveryTopology(TopologySuite):
    """All that are registered."""

    names = topologies


broken: Registry[Any] = Registry("topology")


class Mesh:
    """Sound: the three laws that the variants below break hold here."""

    algorithm = "ring"

    @staticmethod
    def links(npus: int) -> int:
        """Return 1."""
        return 1

    @staticmethod
    def diameter(npus: int) -> int:
        """Return 2."""
        return 2

    @staticmethod
    def bisection(npus: int) -> int:
        """Return 1."""
        return 1


broken.register("sound")(Mesh)
broken.register("undescribed")(type("Undescribed", (Mesh,), {"__doc__": None}))
broken.register("nameless_algorithm")(type("Nameless", (Mesh,), {"algorithm": "rign"}))
broken.register("linkless")(type("Linkless", (Mesh,), {"links": staticmethod(lambda npus: 0)}))
broken.register("distant")(type("Distant", (Mesh,), {"diameter": staticmethod(lambda npus: npus + 1)}))
broken.register("cut_too_thick")(type("Thick", (Mesh,), {"bisection": staticmethod(lambda npus: npus * npus)}))
broken.register("shrinking")(type("Shrinking", (Mesh,), {"bisection": staticmethod(lambda npus: 1 + (npus == 3))}))


class Suite(TopologySuite):
    """The laws, of topologies that are nowhere else."""

    registry = broken


def test_a_sound_topology_obeys_every_law() -> None:
    laws = [name for name in dir(Suite) if name.startswith("test_")]
    assert len(laws) == 6
    for law in laws:
        getattr(Suite(), law)("sound")


@pytest.mark.parametrize(
    ("name", "law"),
    [
        ("undescribed", "test_it_says_what_it_is"),
        ("nameless_algorithm", "test_its_usual_algorithm_exists"),
        ("linkless", "test_every_npu_has_a_link"),
        ("distant", "test_the_diameter_is_at_least_one_link"),
        ("cut_too_thick", "test_halving_it_cuts_links"),
        ("shrinking", "test_more_npus_never_have_a_smaller_cut"),
    ],
)
def test_a_broken_topology_breaks_the_law_it_should(name: str, law: str) -> None:
    with pytest.raises(AssertionError):
        getattr(Suite(), law)(name)
