"""Switches in trees: fat tree, rail-only, rail-optimized.

A fat tree: all NICs of a node on one leaf switch, leaves joined by spines, pods by cores.

    L = ⌈n / ⌊d / i⌋⌉  leaves, with ⌊d / i⌋ whole nodes each and u = ⌈i ⌊d / i⌋ / o⌉ links up

n  nodes         d  most ports of a leaf that lead down: the largest with d / (k - d) <= o
i  NICs of each  k  radix         o  oversubscription

Nodes with more NICs than d are spread over ⌈i / d⌉ leaves of their own. What is above is `cosmic.cluster.switch_trees`.
At 1:1 a tree of k ports reaches k NICs with one tier, k² / 2 with two and k³ / 4 with three (Leiserson 1985; Al-Fares
et al., SIGCOMM 2008), less what whole nodes leave free.

Rail-only: every rail is a network of its own, and nothing joins them but the links inside nodes.

    n <= k nodes    one switch a rail; rails that fit on one together share it: ⌈i / ⌊k / n⌋⌉ switches
    n > k           a fat tree of n NICs for each rail

i  rails: NICs of a node        k  radix

Traffic between ranks of different rails goes through a node first. Source: Wang et al., Rail-only, arXiv 2307.12169,
which publishes a network cost 38 to 77 % below that of a full fat tree, and 8 to 11 % more time of all-to-all. It is
cheaper where a rail needs a tier less than a tree of all NICs would: up to k nodes, and from k² / (2 i) to k² / 2.

Rail-optimized: NIC j of every node is on a leaf of rail j, and spines join the leaves of all rails.

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


@builds.register("rail_optimized")
class RailOptimizedBuild:
    """NIC j of every node on a leaf of rail j; spines join all rails."""

    @staticmethod
    def tiers(site: Site) -> tuple[FabricTier, ...]:
        """Return leaf and pod.

        >>> RailOptimizedBuild.tiers(Site(127, 8, 8, 64, 1.0, 1.0))
        (FabricTier(npus=32, oversubscription=1.0),)
        """
        return () if site.npus * site.inside <= site.radix else tree_tiers(_rail_leaves(site), site)

    @staticmethod
    def bill(site: Site) -> Bill:
        """Return the parts of all rails; groups outside have their own.

        127 nodes of 8: 8 rails of 4 leaves, 32 links up each to 16 spines; 1,016 NICs.

        >>> RailOptimizedBuild.bill(Site(127, 8, 8, 64, 1.0, 1.0))
        Bill(switches=48, optics=4080, cables=2040, circuit_ports=0)
        """
        nics, trees = site.npus * site.inside, max(1, site.instances // site.inside)
        return (
            single_switch_bill(nics, trees) if nics <= site.radix else tree_bill(nics, _rail_leaves(site), site, trees)
        )


def _rail_leaves(site: Site) -> LeafTier:
    """Return the leaves.

    12 nodes of 8: a leaf of 32 ports down holds two rails, so that there are 4, not 8.

    >>> _rail_leaves(Site(12, 8, 8, 64, 1.0, 1.0))
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
