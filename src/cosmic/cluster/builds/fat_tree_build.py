"""A fat tree: all NICs of a node on one leaf switch, leaves joined by spines, pods by cores.

    L = ⌈n / ⌊d / i⌋⌉  leaves, with ⌊d / i⌋ whole nodes each and u = ⌈i ⌊d / i⌋ / o⌉ links up

n  nodes         d  most ports of a leaf that lead down: the largest with d / (k - d) <= o
i  NICs of each  k  radix         o  oversubscription

Nodes with more NICs than d are spread over ⌈i / d⌉ leaves of their own. What is above is `cosmic.cluster.switch_trees`.
At 1:1 a tree of k ports reaches k NICs with one tier, k² / 2 with two and k³ / 4 with three (Leiserson 1985; Al-Fares
et al., SIGCOMM 2008), less what whole nodes leave free.
"""

from __future__ import annotations

from cosmic.cluster.switch_trees import (
    LeafTier,
    count_groups,
    down_ports,
    single_switch_bill,
    tree_bill,
    tree_tiers,
    up_ports,
)
from cosmic.design.fabric import Bill, FabricTier, Site, builds


@builds.register("fat_tree")
class FatTreeBuild:
    """All NICs of a node on one leaf; all leaves joined, in one, two or three tiers as the size needs."""

    @staticmethod
    def tiers(site: Site) -> tuple[FabricTier, ...]:
        """Return leaf and pod.

        >>> FatTreeBuild.tiers(Site(64, 8, 8, 64, 1.0, 1.0))
        (FabricTier(npus=4, oversubscription=1.0),)
        """
        return () if site.npus * site.inside <= site.radix else tree_tiers(_leaves(site), site)

    @staticmethod
    def bill(site: Site) -> Bill:
        """Return the parts; instances of one node's NICs share the tree, groups outside have one each.

        64 nodes of 8: 16 leaves of 4 nodes, each with 32 links up to 8 spines; 512 NICs have a link each besides.

        >>> FatTreeBuild.bill(Site(64, 8, 8, 64, 1.0, 1.0))
        Bill(switches=24, optics=2048, cables=1024, circuit_ports=0)
        """
        nics, trees = site.npus * site.inside, max(1, site.instances // site.inside)
        return single_switch_bill(nics, trees) if nics <= site.radix else tree_bill(nics, _leaves(site), site, trees)


def _leaves(site: Site) -> LeafTier:
    down = down_ports(site.radix, site.oversubscription)
    nodes = down // site.inside
    if nodes:
        count = count_groups(site.npus, nodes)
        return LeafTier(count, up_ports(nodes * site.inside, site.oversubscription), nodes)
    leaves_per_node = count_groups(site.inside, down)
    return LeafTier(
        site.npus * leaves_per_node,
        up_ports(count_groups(site.inside, leaves_per_node), site.oversubscription),
        1,
        leaves_per_node,
    )
