"""A dragonfly: groups of switches, all joined within a group, and groups joined by global links.

A switch of k ports has p NICs, l links to switches of its group and h to other groups. With g groups, uniform traffic
of its NICs needs

    h = p (g - 1) / g / o          of its bytes, (g - 1) / g leave the group
    l = p (2 - 1 / g)              they cross one link of the group they come from, and of the group they reach
    k = p + l + h

which for many groups is the balanced dragonfly, a = 2p = 2h with a switches in a group (Kim et al., ISCA 2008), and
for one group a fully connected one. Of the numbers of groups that reach all NICs the smallest is built: it has the
most NICs on a switch. Where groups have fewer switches than ports, links are doubled.

It costs no more than a fat tree of any size from 64 ports on, and from 32 on if a switch costs by its ports. Below,
near the k² / 2 NICs that a tree of two tiers reaches, it is dearer: that has 3 / k switches a NIC, a dragonfly of
several groups 1 / p with p = k / 4 rounded down to whole ports. At 16 ports and 128 NICs that is 32 switches for 24:
3 % more if they cost by their ports, 20 % if each costs what one of 64 ports does.

Local links are copper cables: a group is a rack or two, as of Slingshot. NICs and global links have optics at both
ends. `oversubscription` thins the global links (o above): Frontier has about 60 % of full global bandwidth.
"""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from cosmic.cluster.builds.tree_builds import count_groups, single_switch_bill
from cosmic.design.network_layer import Bill, FabricTier, Site, builds


class _DragonflyPlan(NamedTuple):
    """Ports of a switch by use, and how many groups and switches there are."""

    nics: int
    local: int
    far: int
    groups: int
    switches: int


@builds.register("dragonfly")
class DragonflyBuild:
    """Groups of switches that are all joined; global links between groups."""

    @staticmethod
    def tiers(site: Site) -> tuple[FabricTier, ...]:
        """Return switch and group: traffic within a group has its full bandwidth, between groups what `o` leaves.

        8,192 NICs at o = 2: 12 groups of 38 switches, with 18 NICs, 37 local and 9 global links each.

        >>> DragonflyBuild.tiers(Site(1024, 8, 8, 64, 2.0, 1.0))
        (FabricTier(npus=2, oversubscription=1.0), FabricTier(npus=85, oversubscription=2.0))
        """
        if site.npus * site.inside <= site.radix:
            return ()
        plan = _plan_dragonfly(site)
        switch = FabricTier(max(1, plan.nics // site.inside), 1.0)
        if plan.groups == 1:
            return (switch,)
        group = count_groups(plan.switches, plan.groups) * plan.nics // site.inside
        return (switch, FabricTier(min(site.npus, max(switch.npus, group)), site.oversubscription))

    @staticmethod
    def bill(site: Site) -> Bill:
        """Return the parts; groups of dimensions outside have a dragonfly each.

        1,056 NICs with 64 ports fit into one group: 33 switches of 32 NICs, 33 · 32 / 2 = 528 links between them.

        >>> DragonflyBuild.bill(Site(132, 8, 8, 64, 1.0, 1.0))
        Bill(switches=33, optics=2112, cables=1584, circuit_ports=0)
        """
        nics, copies = site.npus * site.inside, max(1, site.instances // site.inside)
        if nics <= site.radix:
            return single_switch_bill(nics, copies)
        plan = _plan_dragonfly(site)
        local, global_links = plan.switches * plan.local // 2, plan.switches * plan.far // 2
        return Bill(
            switches=plan.switches * copies,
            optics=2 * (nics + global_links) * copies,
            cables=(nics + local + global_links) * copies,
        )


def _plan_dragonfly(site: Site) -> _DragonflyPlan:
    """Return the plan with the fewest groups that reaches all NICs; the balanced one where none does."""
    radix, nics, thinned = site.radix, site.npus * site.inside, site.oversubscription
    groups = 1
    while True:
        outside_share = (groups - 1) / groups
        nic_ports = max(1, int(radix / (3 - 1 / groups + outside_share / thinned)))
        global_ports = min(radix - nic_ports, ceil(nic_ports * outside_share / thinned))
        local = radix - nic_ports - global_ports
        switches = count_groups(nics, nic_ports)
        reached = groups * (local + 1) * nic_ports
        if reached >= nics or (local + 1) * global_ports < groups - 1 or groups > 4 * radix * radix:
            return _DragonflyPlan(nic_ports, local, global_ports, groups, switches)
        groups += 1
