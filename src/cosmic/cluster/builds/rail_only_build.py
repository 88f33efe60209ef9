"""Rail-only: every rail is a network of its own, and nothing joins them but the links inside nodes.

    n <= k nodes    one switch a rail; rails that fit on one together share it: ⌈i / ⌊k / n⌋⌉ switches
    n > k           a fat tree of n NICs for each rail

i  rails: NICs of a node        k  radix

Traffic between ranks of different rails goes through a node first. Source: Wang et al., Rail-only, arXiv 2307.12169,
which publishes a network cost 38 to 77 % below that of a full fat tree, and 8 to 11 % more time of all-to-all. It is
cheaper where a rail needs a tier less than a tree of all NICs would: up to k nodes, and from k² / (2 i) to k² / 2.
"""

from __future__ import annotations

from cosmic.cluster.builds.fat_tree_build import FatTreeBuild
from cosmic.cluster.switch_trees import count_groups
from cosmic.design.fabric import Bill, FabricTier, Site, builds


@builds.register("rail_only")
class RailOnlyBuild:
    """A network for each rail; rails are not joined."""

    @staticmethod
    def tiers(site: Site) -> tuple[FabricTier, ...]:
        """Return the tiers of one rail; none up to `radix` nodes.

        >>> RailOnlyBuild.tiers(Site(64, 8, 8, 64, 1.0, 1.0)), RailOnlyBuild.tiers(Site(65, 8, 8, 64, 1.0, 1.0))
        ((), (FabricTier(npus=32, oversubscription=1.0),))
        """
        return FatTreeBuild.tiers(_rail_site(site))

    @staticmethod
    def bill(site: Site) -> Bill:
        """Return the parts of all rails.

        64 nodes of 8: 8 rails of one switch each; 512 NICs.

        >>> RailOnlyBuild.bill(Site(64, 8, 8, 64, 1.0, 1.0))
        Bill(switches=8, optics=1024, cables=512, circuit_ports=0)
        """
        if site.npus > site.radix:
            return FatTreeBuild.bill(_rail_site(site))
        groups, nics = max(1, site.instances // site.inside), site.npus * site.instances
        switches = groups * count_groups(site.inside, site.radix // site.npus)
        return Bill(switches=switches, optics=2 * nics, cables=nics)


def _rail_site(site: Site) -> Site:
    """Return a rail as a network in which a node has one NIC; there are as many as instances."""
    return site._replace(inside=1)
