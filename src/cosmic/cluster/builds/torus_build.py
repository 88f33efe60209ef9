"""A torus: NPUs are cabled to their neighbours, without a switch.

A dimension of n NPUs is a ring of n cables (one for two NPUs), electrical from end to end: copper within a rack or
between neighbouring ones. Source: Google TPU v5e and v6e, whose 16 x 16 chips are one torus of copper (Cloud TPU
documentation); AWS Trainium inside a node.
"""

from __future__ import annotations

from cosmic.design.fabric import Bill, FabricTier, Site, builds

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
