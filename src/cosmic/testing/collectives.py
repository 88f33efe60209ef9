"""What must hold of every collective algorithm."""

from __future__ import annotations

from math import log2

from cosmic.design.collective import algorithms
from cosmic.testing.suite import Suite

SIZES = (2, 3, 4, 5, 6, 7, 8, 12, 16, 31, 64, 100)


class CollectiveSuite(Suite):
    """Laws of an all-reduce among p NPUs, powers of two or not."""

    registry = algorithms

    def test_a_group_of_one_sends_nothing(self, name: str) -> None:
        """There is nobody to talk to."""
        assert self.registry[name].steps(1) == 0
        assert self.registry[name].traffic(1) == 0

    def test_it_never_beats_the_bandwidth_bound(self, name: str) -> None:
        """The busiest NPU sends at least 2 (p - 1) / p of the data (Patarasuk & Yuan 2009)."""
        for npus in SIZES:
            assert self.registry[name].traffic(npus) >= 2 * (npus - 1) / npus - 1e-12

    def test_it_takes_the_steps_that_news_needs_to_spread(self, name: str) -> None:
        """With one partner a step, data reaches p NPUs in log2 p steps; a direct exchange may do it in two."""
        for npus in SIZES:
            assert self.registry[name].steps(npus) >= min(2, log2(npus))
