"""Switches in trees: fat tree, rail-only, rail-optimized. Ports of leaves and the tiers above them, in whole numbers.

Every link is a cable with a transceiver at each end, also from a NIC to its leaf: nodes of ten kilowatts stand apart
from their switches, and large clusters of 400 Gbit/s reach them over fibre (NVIDIA's reference architecture of
DGX SuperPOD). A link to a switch of the same rack could be copper; nobody counts on that here.

A fat tree: all NICs of a node on one leaf switch, leaves joined by spines, pods by cores.

    L = ⌈n / ⌊d / i⌋⌉  leaves, with ⌊d / i⌋ whole nodes each and u = ⌈i ⌊d / i⌋ / o⌉ links up

n  nodes         d  most ports of a leaf that lead down: the largest with d / (k - d) <= o
i  NICs of each  k  radix         o  oversubscription

Nodes with more NICs than d are spread over ⌈i / d⌉ leaves of their own. At 1:1 a tree of k ports reaches k NICs with one tier, k² / 2 with two and k³ / 4 with three (Leiserson 1985; Al-Fares
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

from typing import NamedTuple

from cosmic.design.network_layer import BY_BANDWIDTH, INCLUDED, Bill, FabricTier, Site, builds


class LeafTier(NamedTuple):
    """The lowest tier of a tree."""

    number: int
    up: int
    """Links of each into the tier above."""
    npus: int
    """NPUs of one instance of the dimension below one leaf."""
    leaves_per_npu: int = 1
    """Leaves that the NPUs of one node are spread over: more than one where a node has more NICs than a leaf."""


def down_ports(radix: int, oversubscription: float) -> int:
    """Return the most ports d of *radix* k that may lead down: the largest with d / (k - d) <= o, at least one.

    >>> down_ports(64, 1), down_ports(64, 3), down_ports(64, 4), down_ports(3, 1)
    (32, 48, 51, 1)
    """
    down = min(radix - 1, int(radix * oversubscription / (1 + oversubscription)) + 1)  # one more, against rounding
    while down > 1 and down > oversubscription * (radix - down):
        down -= 1
    return down


def up_ports(down: int, oversubscription: float) -> int:
    """Return the links up that *down* links need: the smallest u with d / u <= o.

    >>> up_ports(32, 1), up_ports(48, 4), up_ports(50, 4)
    (32, 12, 13)
    """
    up = max(1, int(down / oversubscription))
    return up if down <= oversubscription * up else up + 1


def count_groups(count: int, size: int) -> int:
    """Return how many groups of at most *size* hold *count*: the quotient, rounded up.

    >>> count_groups(9, 4), count_groups(8, 4)
    (3, 2)
    """
    return -(-count // size)


def single_switch_bill(nics: int, trees: int) -> Bill:
    """Return the bill of *trees* switches with *nics* NICs each."""
    return Bill(switches=trees, optics=2 * nics * trees, cables=nics * trees)


def tree_bill(nics: int, leaves: LeafTier, site: Site, trees: int) -> Bill:
    """Return the bill of *trees* trees of *nics* NICs each, with so many tiers as their leaves need.

        two tiers     S = ⌈L u / k⌉ spines                                    for L <= k leaves of u links up
        three tiers   ⌈L u / d⌉ switches in pods of d leaves, each with ⌈d / c⌉ links up; of those ⌈links / k⌉ cores

    k  radix      c  oversubscription of pods      d  `down_ports` of k and c

    Beyond the reach of three tiers a further one follows, at full bandwidth.
    """
    switches_below, links, core = leaves.number, leaves.number * leaves.up, site.core_oversubscription
    switches, cables = leaves.number, nics + links
    while switches_below > site.radix:
        down = down_ports(site.radix, core)
        count = count_groups(links, down)
        links = count * up_ports(down, core)
        switches, cables = switches + count, cables + links
        switches_below, core = (
            count_groups(switches_below, max(2, down)),
            1.0,
        )  # switches of two or three ports: no tree ends, and this must
    switches += count_groups(links, site.radix)
    return Bill(switches=switches * trees, optics=2 * cables * trees, cables=cables * trees)


def tree_tiers(leaves: LeafTier, site: Site) -> tuple[FabricTier, ...]:
    """Return the tiers that traffic may stay below: a leaf and, where there are three tiers or more, a pod."""
    leaf = FabricTier(leaves.npus, site.oversubscription)
    if leaves.number <= site.radix:
        return (leaf,)
    pods = down_ports(site.radix, site.core_oversubscription) // leaves.leaves_per_npu
    pod = min(site.npus, max(leaves.npus, pods * leaves.npus))
    return (leaf, FabricTier(pod, site.core_oversubscription))


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


# ---- Dimensions of which no switch is counted: priced by bandwidth, or part of a node


class _UncountedBuild:
    """All NPUs on one switch, of which nothing is counted."""

    @staticmethod
    def tiers(site: Site) -> tuple[FabricTier, ...]:
        """Return none: `Dimension.oversubscription` acts on all traffic of the dimension."""
        return ()

    @staticmethod
    def bill(site: Site) -> Bill:
        """Return no parts."""
        return Bill()


@builds.register(BY_BANDWIDTH)
class BandwidthBuild(_UncountedBuild):
    """Links, ports and NICs cost in proportion to bandwidth: COSMIC's and LIBRA's model."""


@builds.register(INCLUDED)
class IncludedBuild(_UncountedBuild):
    """Part of a node or rack as it is sold: it costs and draws nothing besides."""
