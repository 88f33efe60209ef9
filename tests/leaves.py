"""A build whose leaves and pods do not depend on how oversubscribed they are: what tests count on."""

from __future__ import annotations

from cosmic.design.network_layer import Bill, FabricTier, Site

LEAVES = "leaves"


class Leaves:
    """Half of a switch's ports lead down to nodes; a pod has 4 leaves."""

    @staticmethod
    def tiers(site: Site) -> tuple[FabricTier, ...]:
        """Return leaf and pod; none where all are below one leaf."""
        leaf, pod = site.radix // 2, 4 * (site.radix // 2)
        tiers = (FabricTier(leaf, site.oversubscription), FabricTier(pod, site.core_oversubscription))
        return tuple(tier for tier in tiers if tier.npus < site.npus)

    @staticmethod
    def bill(site: Site) -> Bill:
        """Return no parts."""
        return Bill()
