"""What must hold for every topology."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from cosmic.arithmetic import divisors
from cosmic.design.collective import algorithms
from cosmic.design.network import topologies
from cosmic.testing.suite import Suite

SIZES = (2, 3, 4, 5, 8, 12, 16, 64)
SHAPES = ("links", "diameter", "mean_hops", "bisection")


def groups(sizes: tuple[int, ...] = SIZES, fewest: int = 2) -> Iterator[tuple[int, int, int]]:
    """Yield the members, NPUs and step of every way to divide a dimension into groups that fill it."""
    for npus in sizes:
        for members in divisors(npus):
            if members >= fewest:
                yield from ((members, npus, step) for step in divisors(npus // members))


class TopologySuite(Suite):
    """Laws of links: every NPU has some, they join all NPUs, and no traffic exceeds their bandwidth."""

    registry = topologies

    def test_its_usual_algorithm_exists(self, name: str) -> None:
        """The algorithm it recommends is registered."""
        assert self.registry[name].algorithm in algorithms

    def test_every_npu_has_a_link(self, name: str) -> None:
        """From two NPUs on, each has at least one link, and at most one per other NPU."""
        for npus in SIZES:
            assert 1 <= self.registry[name].links(npus) <= npus - 1

    def test_the_diameter_is_at_least_one_link(self, name: str) -> None:
        """Two NPUs are at least one hop apart, and at most as many as there are NPUs."""
        for npus in SIZES:
            assert 1 <= self.registry[name].diameter(npus) <= npus

    def test_the_mean_distance_is_at_most_the_diameter(self, name: str) -> None:
        """The mean distance is at least one hop, and at most the diameter."""
        for npus in SIZES:
            assert 1 <= self.registry[name].mean_hops(npus) <= self.registry[name].diameter(npus)

    def test_halving_it_cuts_links(self, name: str) -> None:
        """The halves are joined, by at most as many links as leave one half."""
        for npus in SIZES:
            cut = self.registry[name].bisection(npus)
            assert 1 <= cut <= self.registry[name].links(npus) * (npus - npus // 2)

    def test_doubling_it_never_makes_the_cut_smaller(self, name: str) -> None:
        """Twice the NPUs keep at least the links across the middle (17 on a grid, not 4 by 4, may have fewer)."""
        cuts = [self.registry[name].bisection(2**power) for power in range(1, 12)]
        assert cuts == sorted(cuts)

    def test_a_group_can_use_some_of_the_bandwidth_and_no_more_than_all(self, name: str) -> None:
        """The share of any group is above 0 and at most 1; that of a group of one is 1."""
        for members, npus, step in groups(fewest=1):
            share = self.registry[name].share(members, npus, step)
            assert 0 < share <= 1
            assert share == 1 or members > 1

    def test_the_whole_dimension_has_the_largest_share(self, name: str) -> None:
        """No group uses more of an NPU's links than the whole dimension does."""
        share = self.registry[name].share
        assert all(share(members, npus, step) <= share(npus, npus, 1) for members, npus, step in groups())

    def test_neighbours_in_a_group_are_linked(self, name: str) -> None:
        """They are at least one hop apart, and at most the diameter."""
        for members, npus, step in groups():
            assert 1 <= self.registry[name].hops(members, npus, step) <= self.registry[name].diameter(npus)

    def test_an_all_gather_never_beats_the_cut(self, name: str) -> None:
        """The data that crosses the bisection takes at least the time of its links.

        With M bytes in all, each NPU receives M (p - 1) / p at the rate B share, while ceil(p / 2) M / p cross
        `bisection` links of B / links each: share ceil(p / 2) links <= (p - 1) bisection.
        """
        for npus in SIZES:
            shape = self.registry[name]
            needed = shape.share(npus, npus, 1) * (npus - npus // 2) * shape.links(npus)
            assert needed <= (npus - 1) * shape.bisection(npus) * (1 + 1e-12)

    def test_it_is_made_of_its_links(self, name: str) -> None:
        """There are links to reach every NPU, and no more than leave the NPUs unless there are switches."""
        for npus in SIZES:
            shape = self.registry[name]
            parts, leaving = shape.parts(npus), npus * shape.links(npus)
            assert parts.links >= 2 * (npus - 1)
            assert parts.links <= leaving or (shape.switched and parts.switch_ports >= npus)

    def test_arrays_give_what_numbers_give(self, name: str) -> None:
        """A batch of sizes, or of groups, has the results of its elements."""
        shape = self.registry[name]
        for function in SHAPES:
            assert _same(getattr(shape, function), [(npus,) for npus in SIZES])
        for function in ("share", "hops"):
            assert _same(getattr(shape, function), list(groups(fewest=1)))
        for part in ("links", "switch_ports", "nics"):
            assert _same(lambda npus, part=part: getattr(shape.parts(npus), part), [(npus,) for npus in SIZES])


def _same(function: Any, calls: list[tuple[int, ...]]) -> bool:
    """Return whether *function* of arrays is the array of its values."""
    batch = function(*(np.array(column) for column in zip(*calls, strict=True)))
    return bool(np.all(batch == np.array([function(*call) for call in calls])))
