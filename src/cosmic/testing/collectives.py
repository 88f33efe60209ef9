"""What must hold for every collective algorithm."""

from __future__ import annotations

from typing import get_args

import numpy as np

from cosmic.design.collective import CollectiveKind, algorithms
from cosmic.testing.suite import Suite

SIZES = (2, 3, 4, 5, 6, 7, 8, 12, 16, 31, 64, 100)
KINDS: tuple[CollectiveKind, ...] = get_args(CollectiveKind)


class CollectiveSuite(Suite):
    """Laws of collectives in groups of any size."""

    registry = algorithms

    def test_a_group_of_one_sends_nothing(self, name: str) -> None:
        """A group of one has no steps and no traffic."""
        for kind in KINDS:
            assert self.registry[name].steps(kind, 1) == 0
            assert self.registry[name].traffic(kind, 1) == 0

    def test_it_never_beats_the_bandwidth_bound(self, name: str) -> None:
        """Everything but an NPU's own shard must travel at least once."""
        for kind in KINDS:
            for npus in SIZES:
                assert self.registry[name].traffic(kind, npus) >= (npus - 1) / npus - 1e-12

    def test_an_all_reduce_costs_no_less_than_a_gather(self, name: str) -> None:
        """It ends like an all-gather, with the whole buffer on every NPU."""
        for npus in SIZES:
            variant = self.registry[name]
            assert variant.traffic("all_reduce", npus) >= variant.traffic("all_gather", npus)
            assert variant.steps("all_reduce", npus) >= variant.steps("all_gather", npus) >= 1

    def test_peers_exist_within_the_group(self, name: str) -> None:
        """An NPU has at least one peer, at a distance from 1 to the size of the group."""
        for npus in SIZES:
            assert 1 <= self.registry[name].peers(npus) <= max(npus - 1, 1)
            assert 1 <= self.registry[name].distance(npus) <= npus

    def test_arrays_give_what_numbers_give(self, name: str) -> None:
        """The formulas work on arrays as on numbers."""
        variant, sizes = self.registry[name], np.array(SIZES)
        for kind in KINDS:
            together = np.broadcast_to(variant.traffic(kind, sizes), sizes.shape)
            assert np.allclose(together, [float(variant.traffic(kind, npus)) for npus in SIZES])
            together = np.broadcast_to(variant.steps(kind, sizes), sizes.shape)
            assert np.allclose(together, [float(variant.steps(kind, npus)) for npus in SIZES])
