"""Trees of switches: ports of leaves, and the tiers above them, in whole numbers.

Every link is a cable with a transceiver at each end, also from a NIC to its leaf: nodes of ten kilowatts stand apart
from their switches, and large clusters of 400 Gbit/s reach them over fibre (NVIDIA's reference architecture of
DGX SuperPOD). A link to a switch of the same rack could be copper; nobody counts on that here.
"""

from __future__ import annotations

from typing import NamedTuple

from cosmic.design.fabric import Bill, FabricTier, Site


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
