"""Dimensions of which no switch is counted: priced by bandwidth, or part of a node."""

from __future__ import annotations

from cosmic.design.fabric import BY_BANDWIDTH, INCLUDED, Bill, FabricTier, Site, builds


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
