"""What must hold of every topology."""

from __future__ import annotations

from cosmic.design.collective import algorithms
from cosmic.design.network import topologies
from cosmic.testing.suite import Suite

SIZES = (2, 3, 4, 5, 8, 12, 16, 64)


class TopologySuite(Suite):
    """Laws of links: there are some, they join everybody, and there are enough of them to be cut."""

    registry = topologies

    def test_its_usual_algorithm_exists(self, name: str) -> None:
        """The algorithm it recommends is registered."""
        assert self.registry[name].algorithm in algorithms

    def test_every_npu_has_a_link(self, name: str) -> None:
        """From two NPUs on, each has at least one link, and no more than there are others."""
        for npus in SIZES:
            assert 1 <= self.registry[name].links(npus) <= npus - 1

    def test_the_diameter_is_at_least_one_link(self, name: str) -> None:
        """Two NPUs are at least one link apart and no farther than a walk past everybody and one switch."""
        for npus in SIZES:
            assert 1 <= self.registry[name].diameter(npus) <= npus

    def test_halving_it_cuts_links(self, name: str) -> None:
        """The two halves are joined, by no more links than leave one half."""
        for npus in SIZES:
            cut = self.registry[name].bisection(npus)
            assert 1 <= cut <= self.registry[name].links(npus) * (npus - npus // 2)

    def test_more_npus_never_have_a_smaller_cut(self, name: str) -> None:
        """Growing keeps at least the links across the middle."""
        cuts = [self.registry[name].bisection(npus) for npus in SIZES]
        assert cuts == sorted(cuts)
