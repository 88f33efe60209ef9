"""What must hold of every collective algorithm."""

from __future__ import annotations

from typing import get_args

import numpy as np

from cosmic.design.collective import Kind, algorithms
from cosmic.testing.suite import Suite

SIZES = (2, 3, 4, 5, 6, 7, 8, 12, 16, 31, 64, 100)
KINDS: tuple[Kind, ...] = get_args(Kind)


class CollectiveSuite(Suite):
    """Laws of collectives among p NPUs, powers of two or not."""

    registry = algorithms

    def test_a_group_of_one_sends_nothing(self, name: str) -> None:
        """There is nobody to talk to."""
        for kind in KINDS:
            assert self.registry[name].steps(kind, 1) == 0
            assert self.registry[name].traffic(kind, 1) == 0

    def test_it_never_beats_the_bandwidth_bound(self, name: str) -> None:
        """All but one's own part must travel; an all-reduce among end points moves it twice, in a switch once."""
        for kind in KINDS:
            for npus in SIZES:
                assert self.registry[name].traffic(kind, npus) >= (npus - 1) / npus - 1e-12

    def test_an_all_reduce_costs_no_less_than_a_gather(self, name: str) -> None:
        """It ends with everybody holding everything, too."""
        for npus in SIZES:
            variant = self.registry[name]
            assert variant.traffic("all_reduce", npus) >= variant.traffic("all_gather", npus)
            assert variant.steps("all_reduce", npus) >= variant.steps("all_gather", npus) >= 1

    def test_partners_exist_and_are_at_least_next_door(self, name: str) -> None:
        """Somebody is talked to, at a distance of one or more, and no farther than the line is long."""
        for npus in SIZES:
            assert 1 <= self.registry[name].peers(npus) <= max(npus - 1, 1)
            assert 1 <= self.registry[name].distance(npus) <= npus

    def test_arrays_give_what_numbers_give(self, name: str) -> None:
        """One formula for one design and for a million."""
        variant, sizes = self.registry[name], np.array(SIZES)
        for kind in KINDS:
            together = np.broadcast_to(variant.traffic(kind, sizes), sizes.shape)
            assert np.allclose(together, [float(variant.traffic(kind, npus)) for npus in SIZES])
            together = np.broadcast_to(variant.steps(kind, sizes), sizes.shape)
            assert np.allclose(together, [float(variant.steps(kind, npus)) for npus in SIZES])
