"""Rail-optimized: NIC j of every node is on a leaf of rail j, and spines join the leaves of all rails.

    L = i ⌈n / d⌉ leaves, with d nodes each and u = ⌈min(d, n) / o⌉ links up            n > d / 2 nodes
    L = ⌈i / ⌊d / n⌋⌉ leaves, with ⌊d / n⌋ rails each                                  fewer: a leaf holds several rails

n  nodes         d  most ports of a leaf that lead down: the largest with d / (k - d) <= o (k / 2 at 1:1)
i  rails: NICs of a node         k  radix         o  oversubscription

GPUs of one rank in their nodes meet on one leaf: collectives of NCCL that use a rail each stay below it for d nodes,
eight times as many as in a fat tree. Source: NVIDIA DGX SuperPOD reference architecture (H100): 127 nodes have 32
leaves and 16 spines of 64 ports.
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


@builds.register("rail_optimized")
class RailOptimizedBuild:
    """NIC j of every node on a leaf of rail j; spines join all rails."""

    @staticmethod
    def tiers(site: Site) -> tuple[FabricTier, ...]:
        """Return leaf and pod.

        >>> RailOptimizedBuild.tiers(Site(127, 8, 8, 64, 1.0, 1.0))
        (FabricTier(npus=32, oversubscription=1.0),)
        """
        return () if site.npus * site.inside <= site.radix else tree_tiers(_leaves(site), site)

    @staticmethod
    def bill(site: Site) -> Bill:
        """Return the parts of all rails; groups outside have their own.

        127 nodes of 8: 8 rails of 4 leaves, 32 links up each to 16 spines; 1,016 NICs.

        >>> RailOptimizedBuild.bill(Site(127, 8, 8, 64, 1.0, 1.0))
        Bill(switches=48, optics=4080, cables=2040, circuit_ports=0)
        """
        nics, trees = site.npus * site.inside, max(1, site.instances // site.inside)
        return single_switch_bill(nics, trees) if nics <= site.radix else tree_bill(nics, _leaves(site), site, trees)


def _leaves(site: Site) -> LeafTier:
    """Return the leaves.

    12 nodes of 8: a leaf of 32 ports down holds two rails, so that there are 4, not 8.

    >>> _leaves(Site(12, 8, 8, 64, 1.0, 1.0))
    LeafTier(number=4, up=24, npus=12, leaves_per_npu=4)
    """
    down = down_ports(site.radix, site.oversubscription)
    nodes, rails = min(site.npus, down), min(site.inside, max(1, down // site.npus))
    leaves_per_node = count_groups(site.inside, rails)
    return LeafTier(
        leaves_per_node * count_groups(site.npus, nodes),
        up_ports(count_groups(nodes * site.inside, leaves_per_node), site.oversubscription),
        nodes,
        leaves_per_node,
    )
