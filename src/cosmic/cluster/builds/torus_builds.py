"""Tori, of copper alone or of cubes that are joined by optical circuit switches.

A torus: NPUs are cabled to their neighbours, without a switch.

A dimension of n NPUs is a ring of n cables (one for two NPUs), electrical from end to end: copper within a rack or
between neighbouring ones. Source: Google TPU v5e and v6e, whose 16 x 16 chips are one torus of copper (Cloud TPU
documentation); AWS Trainium inside a node.

A torus of cubes: 4 x 4 x 4 chips by copper, joined at their faces by optical circuit switches.

A ring of n chips passes m = ⌈n / 4⌉ cubes (none for less than four chips, which are part of one). Where it leaves a
cube and enters the next, each end has a transceiver and a fibre to a port of a circuit switch:

    n - m copper cables        2 m fibres, transceivers and ports

A cube has 96 such ports, 16 at each of its 6 faces: 4,096 chips have 6,144, which are 48 switches of 128. Source:
Jouppi et al., TPU v4, ISCA 2023 (arXiv 2304.01433); v5p and v7 are taken to be built alike.
"""

from __future__ import annotations

from cosmic.cluster.builds.tree_builds import count_groups
from cosmic.design.network_layer import Bill, FabricTier, Site, builds

RINGS = ("ring", "line")


def ring_cables(npus: int) -> int:
    """Return the cables of a ring.

    >>> ring_cables(16), ring_cables(3), ring_cables(2)
    (16, 3, 1)
    """
    return npus if npus > 2 else npus - 1


@builds.register("torus")
class TorusBuild:
    """Cables between neighbours, no switches."""

    topologies = RINGS
    """What neighbours that are cabled make; `cosmic.workload.mapping_rules` refuses others."""

    @staticmethod
    def tiers(site: Site) -> tuple[FabricTier, ...]:
        """Return none: there are no switches to stay below."""
        return ()

    @staticmethod
    def bill(site: Site) -> Bill:
        """Return one dimension: a ring for each instance.

        16 x 16 chips: 16 rings of 16 in each dimension.

        >>> TorusBuild.bill(Site(16, 1, 16, 2, 1.0, 1.0)).cables
        256
        """
        return Bill(cables=site.instances * ring_cables(site.npus))


CUBE = 4
"""Chips along an edge of a cube."""


@builds.register("optical_torus")
class OpticalTorusBuild:
    """Cubes of 4 x 4 x 4 by copper, joined by optical circuit switches."""

    topologies = RINGS
    """What neighbours that are cabled make; `cosmic.workload.mapping_rules` refuses others."""

    @staticmethod
    def tiers(site: Site) -> tuple[FabricTier, ...]:
        """Return none: circuits are as wide as the links that they join."""
        return ()

    @staticmethod
    def bill(site: Site) -> Bill:
        """Return one dimension: a ring for each instance.

        16 x 16 x 16 chips have 256 rings in each dimension, of 12 copper cables and 4 faces crossed.

        >>> OpticalTorusBuild.bill(Site(16, 1, 256, 2, 1.0, 1.0))
        Bill(switches=0, optics=2048, cables=5120, circuit_ports=2048)
        """
        rings = site.instances
        if site.npus < CUBE:
            return Bill(cables=rings * ring_cables(site.npus))
        ends = 2 * count_groups(site.npus, CUBE)
        copper = site.npus - ends // 2
        return Bill(optics=rings * ends, cables=rings * (copper + ends), circuit_ports=rings * ends)
