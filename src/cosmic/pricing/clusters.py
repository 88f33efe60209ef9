"""What a cluster costs and draws, part by part: accelerators, hosts, network. Numbers, or arrays over a batch.

    capital   K = (n a + ⌈n / m⌉ h + network) (1 + s)            dollars to buy
    power     P = (n w + ⌈n / m⌉ H + network) e                  watts at the meter, all of it busy

    n  accelerators, spares in whole nodes among them    a, w  price and power of one   s  other capital, as a share
    m  in use of a node    h, H  price and power of a node's host    e  power usage effectiveness

The network is the sum over its dimensions: of counted switches, optics and cables where a dimension says how it is
built (`cosmic.design.fabric`), of LIBRA's rates by bandwidth where it does not. Spare nodes have NICs and ports too.
Of a node of which only a part is in use, the host is bought whole, and of its accelerators those in use. What is
unknown is NaN, never zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from cosmic.cost.power import CONSTANTS, drawn_w
from cosmic.cost.tiers import ports_of
from cosmic.design.batch import Batch, Names, first_known, known
from cosmic.design.combinations import Combinations
from cosmic.design.fabric import BY_BANDWIDTH, INCLUDED, Bill, Site, builds
from cosmic.graphs.wired import dimension_label
from cosmic.numeric import Numeric, choose, sum_of
from cosmic.pricing.network import dimension_total
from cosmic.pricing.ownership import owned_usd_per_s

PRICES = {
    "switches": "switch_price",
    "optics": "optic_price",
    "cables": "cable_price",
    "circuit_ports": "circuit_port_price",
}
POWERS = {"switches": "switch_power", "optics": "optic_power", "circuit_ports": "circuit_port_power"}
"""Key of the fabric that has the figure of each part; a cable draws nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterCost:
    """Dollars and rated watts of a cluster by part; NaN where a figure is unknown."""

    accelerators_usd: Numeric
    hosts_usd: Numeric
    network_usd: Numeric
    other_usd: Numeric
    accelerators_w: Numeric
    hosts_w: Numeric
    network_w: Numeric
    pue: Numeric

    @property
    def capital_usd(self) -> Numeric:
        """To buy: all parts."""
        return self.accelerators_usd + self.hosts_usd + self.network_usd + self.other_usd

    @property
    def power_w(self) -> Numeric:
        """At the meter, everything at its rated power."""
        return (self.accelerators_w + self.hosts_w + self.network_w) * self.pue

    def used_w(self, busy: Numeric) -> Numeric:
        """Return the mean power at the meter of a cluster whose accelerators compute for a share *busy* of the time.

            (w (i + (1 - i) busy)  +  H u  +  network) e

        i  share of its power that an idle accelerator draws        u  share of their rated power that hosts draw
        """
        idle = CONSTANTS.idle_share
        accelerators = self.accelerators_w * (idle + (1 - idle) * busy)
        return (accelerators + self.hosts_w * CONSTANTS.host_share + self.network_w) * self.pue


def cluster_cost(batch: Batch) -> ClusterCost:
    """Return what the clusters of a batch cost and draw."""
    npus = batch.npus + _spare_npus(batch)
    places = range(len(batch.base.network.dims))
    nodes = np.ceil(npus / _npus_of_a_node(batch))
    hosts = batch.base.node.name != "" or "node.name" in batch.columns
    network_usd = sum_of((_dimension(batch, place, "price") for place in places), 0.0)
    accelerators_usd = known(batch["compute.price"]) * npus
    hosts_usd = nodes * known(batch["node.host_price"]) if hosts else 0.0
    return ClusterCost(
        accelerators_usd=accelerators_usd,
        hosts_usd=hosts_usd,
        network_usd=network_usd,
        other_usd=(accelerators_usd + hosts_usd + network_usd) * batch["facility.other_share"],
        accelerators_w=npus * drawn_w(lambda key: batch[f"compute.{key}"]),
        hosts_w=nodes * known(batch["node.host_power"]) if hosts else 0.0,
        network_w=sum_of((_dimension(batch, place, "power") for place in places), 0.0),
        pue=batch["facility.pue"],
    )


def _spare_npus(batch: Batch) -> Numeric:
    """Return the accelerators of spare nodes: whole ones, of as many accelerators as others have in use."""
    node = _npus_of_a_node(batch)
    spare: Numeric = np.ceil(batch["run.spare_npus"] / node) * node
    return spare


def _npus_of_a_node(batch: Batch) -> Numeric:
    """Return how many accelerators of a node are in use: as many whole groups of its own network as it holds.

    Of racks of 72, groups of 64 use one each, of which 8 accelerators are not bought; groups of 4 use all 8 of a node.
    """
    size: Numeric = batch["node.npus"]
    group: Numeric = 1
    for place, dim in enumerate(batch.base.network.dims):
        build, npus = batch[f"network.dims.{place}.fabric.build"], batch[f"network.dims.{place}.npus"]
        if isinstance(build, Names):
            group = group * choose(build == INCLUDED, npus, 1)
        elif dim.fabric.build == INCLUDED:
            group = group * npus
    return choose(group <= size, size // group * group, size)


def owned_per_s(batch: Batch, cost: ClusterCost, drawn_w: Numeric) -> Numeric:
    """Return the dollars of owning a cluster for a second in which it draws *drawn_w* at the meter."""
    years, upkeep, price = (batch[f"facility.{key}"] for key in ("years", "upkeep_per_year", "usd_per_kwh"))
    return owned_usd_per_s(cost.capital_usd, drawn_w, years, upkeep, price)


def _dimension(batch: Batch, place: int, quantity: Any) -> Numeric:
    """Return the dollars or watts of the dimension at *place*, of all its instances."""
    build = batch[f"network.dims.{place}.fabric.build"]
    plain = build == BY_BANDWIDTH
    if isinstance(build, Names):
        return choose(plain, _by_bandwidth(batch, place, quantity), _counted(batch, place, quantity))
    return _by_bandwidth(batch, place, quantity) if plain else _counted(batch, place, quantity)


def _by_bandwidth(batch: Batch, place: int, quantity: Any) -> Numeric:
    where, dims = f"network.dims.{place}", len(batch.base.network.dims)
    name = dimension_label(batch, place)
    size, bandwidth = batch[f"{where}.npus"], batch[f"{where}.bandwidth"]
    total = dimension_total(quantity, name, size, batch.npus, bandwidth, place, dims)
    whole: Numeric = total * (1 + _spare_npus(batch) / batch.npus)
    return whole


def _counted(batch: Batch, place: int, quantity: Any) -> Numeric:
    """Return the dollars or watts of the parts of one dimension."""
    counts, rates = parts_of(batch, place), PRICES if quantity == "price" else POWERS
    total: Numeric = 0.0
    for part, key in rates.items():
        count = counts[part]
        rate = known(batch[f"network.dims.{place}.fabric.{key}"])
        each = rate * _faster(batch, place) if part == "optics" else rate
        total = total + np.where(count > 0, count * each, 0.0)[()]  # what is not there costs nothing, known or not
    return total


def _faster(batch: Batch, place: int) -> Numeric:
    """Return the bandwidth of a dimension over that of a switch's port, which transceivers are of."""
    bandwidth = batch[f"network.dims.{place}.bandwidth"]
    stated = batch[f"network.dims.{place}.fabric.port_bandwidth"]
    found: Numeric = 1.0 if stated is None else bandwidth / first_known(stated, bandwidth)
    return found


def parts_of(batch: Batch, place: int) -> dict[str, Numeric]:
    """Return how many of each part the dimension at *place* has, in all instances together."""
    where = f"network.dims.{place}"
    sizes = [batch[f"network.dims.{each}.npus"] for each in range(place)]
    inside: Any = 1
    for size in sizes:
        inside = inside * size
    npus, more = batch[f"{where}.npus"], _more_npus(batch, place, inside)
    rings = np.where(more > 0, 0, np.ceil(_spare_npus(batch) / npus))[()]
    site = (npus + more, inside, batch.npus // npus + rings, ports_of(batch, place))
    shares = (batch[f"{where}.oversubscription"], batch[f"{where}.fabric.core_oversubscription"])
    combinations = Combinations(batch[f"{where}.fabric.build"], *site, *shares)
    switches, optics = combinations.look_up(bill_terms, "switches", "optics")
    cables, ports = combinations.look_up(bill_terms, "cables", "circuit_ports")
    return {"switches": switches, "optics": optics, "cables": cables, "circuit_ports": ports}


def _more_npus(batch: Batch, place: int, inside: Numeric) -> Numeric:
    """Return how many spare nodes the dimension at *place* joins to the others.

    Those that switches between nodes have ports for; inside nodes, and where neighbours are cabled, spares are further
    instances of a dimension.
    """
    if place != len(batch.base.network.dims) - 1:
        return 0
    build: Any = batch[f"network.dims.{place}.fabric.build"]
    spare: Numeric = np.ceil(_spare_npus(batch) / inside)
    for name in (build,) if isinstance(build, str) else build.names:
        if getattr(builds[name], "topologies", ()):
            spare = np.where(build == name, 0, spare)[()]
    return spare


def bill_of(build: str, site: Site) -> Bill:
    """Return the parts of all instances of a dimension that is built so."""
    return builds[build].bill(site)


@cache
def bill_terms(first: str, second: str, build: str, *numbers: float) -> tuple[float, float]:
    """Return two counts of a bill."""
    npus, inside, instances, radix, leaf, core = numbers
    found = bill_of(build, Site(int(npus), int(inside), int(instances), int(radix), leaf, core))
    return float(getattr(found, first)), float(getattr(found, second))
