"""The cost and power of a cluster, part by part: accelerators, hosts, network. Numbers, or arrays over a batch.

    capital   K = (n a + ⌈n / m⌉ h + network) (1 + s)            dollars to buy
    power     P = (n w + ⌈n / m⌉ H + network) e                  watts at the meter, all of it busy

    n  accelerators, spares in whole nodes among them    a, w  price and power of one   s  other capital, as a share
    m  in use of a node    h, H  price and power of a node's host    e  power usage effectiveness

The network is the sum over its dimensions: of counted switches, optics and cables where a dimension says how it is
built (`cosmic.design.network_layer`), of LIBRA's rates by bandwidth where it does not. Spare nodes have NICs and ports too.
Of a node of which only a part is in use, the host is bought whole, and of its accelerators those in use. What is
unknown is NaN, never zero.

A network priced by bandwidth follows COSMIC's and LIBRA's model: links, switch ports and NICs have a price per
bandwidth that depends on the tier, that is, on how far the dimension reaches (`network_usd`, `network_w`).

Owning a cluster costs depreciation, upkeep and energy (`owned_usd_per_s`). `needed_figures` and `unknown_parts` say
which prices and powers nobody knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any, Literal

import numpy as np

from cosmic.base import units
from cosmic.base.numeric import Numeric, choose, sum_of
from cosmic.design.catalog_entries import CATALOG_FOLDER, load_mapping
from cosmic.design.design_batch import Batch, Combinations, Label, Names, batch_of, first_known, none_to_nan
from cosmic.design.design_point import DesignPoint
from cosmic.design.network_layer import BY_BANDWIDTH, GRAPH, INCLUDED, Site, builds, topologies
from cosmic.network.dimension_wiring import dimension_label, healthy_graph, topology_of
from cosmic.network.switch_tiers import ports_of
from cosmic.step.accelerator_rates import POWER_CONSTANTS, FieldLookup

Quantity = Literal["price", "power"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TierRates:
    """Dollars or watts of a link, switch port and NIC at a bandwidth of *per_bytes_per_s*."""

    per_bytes_per_s: float
    link: float
    switch_port: float
    nic: float


@cache
def tier_rates(quantity: Quantity) -> dict[str, TierRates]:
    """Return the rates of each tier in `catalog/prices.yaml`, innermost first.

    >>> tier_rates("price")["pod"]
    TierRates(per_bytes_per_s=1000000000.0, link=7.8, switch_port=18.0, nic=31.6)
    """
    data = load_mapping(CATALOG_FOLDER / "prices.yaml")
    dimension = units.USD if quantity == "price" else units.WATTS
    per = units.read_quantity(data[quantity]["per"], units.BYTES_PER_S)
    return {
        tier: TierRates(
            per_bytes_per_s=per, **{p: units.read_quantity(v, dimension) for p, v in data[quantity][tier].items()}
        )
        for tier in data["tiers"]
    }


def dimension_tiers(dims: int) -> tuple[str, ...]:
    """Return the tier of each dimension: the outer three are package, node and pod, those inside are chiplets.

    Two dimensions are package and pod, a single one is a package, as in COSMIC's CostModel.cc.

    >>> dimension_tiers(2), dimension_tiers(4)
    (('package', 'pod'), ('chiplet', 'package', 'node', 'pod'))
    """
    if dims <= 2:
        return ("package", "pod")[:dims]
    return ("chiplet",) * (dims - 3) + ("package", "node", "pod")


def network_usd(names: Sequence[Label], npus: Sequence[Numeric], bandwidth_bytes_per_s: Sequence[Numeric]) -> Numeric:
    """Return the dollars of a network: topology, NPUs and injection bandwidth per NPU of each dimension.

        sum over dimensions of  N / n * B / k * (L link + S switch + C nic)

    N  NPUs of the network        B  injection bandwidth, over the k links of an NPU
    n  NPUs of the dimension      L, S, C  links, switch ports and NICs that join them (`Topology.parts`)

    and link, switch, nic the prices of the dimension's tier. A ring has 2 n links, a fully connected dimension
    n (n - 1), a switch 2 n links, n ports and n NICs (which cost only in pods). The source has no price of a switch
    between chiplets: it costs as much as one of the next tier. Oversubscription makes nothing cheaper.
    Source: LIBRA, and ASTRA-sim's CostModel.cc as COSMIC ran it; exact on the totals in COSMIC's logs.

    >>> float(network_usd(("ring", "switch", "ring", "switch"), (8, 4, 4, 8), (100e9,) * 4))
    9441280.0
    """
    return _network_total("price", names, npus, bandwidth_bytes_per_s)


def network_w(names: Sequence[Label], npus: Sequence[Numeric], bandwidth_bytes_per_s: Sequence[Numeric]) -> Numeric:
    """Return the watts that a network draws, idle or busy: `network_usd` with watts for dollars. An estimate.

    From data sheets of 400 Gbit/s parts, in proportion to bandwidth: 25 W a NIC, 747 W / 64 a switch port, 8 W the
    optics of one direction of a cable. Only pods have NICs and optics; the accelerators drive the links inside.

    >>> round(float(network_w(("switch", "switch"), (8, 64), (450e9, 50e9)) / 512), 1)  # per NPU: 105.0 + 52.7
    157.7
    """
    return _network_total("power", names, npus, bandwidth_bytes_per_s)


def _network_total(
    quantity: Quantity,
    names: Sequence[Label],
    npus: Sequence[Numeric],
    bandwidth_bytes_per_s: Sequence[Numeric],
) -> Numeric:
    """Return the sum over dimensions and parts of bandwidth times the tier's rate."""
    total: Numeric = 0.0
    for index, (name, size, bandwidth) in enumerate(zip(names, npus, bandwidth_bytes_per_s, strict=True)):
        total = total + dimension_total(quantity, name, size, prod(npus), bandwidth, index, len(names))
    return total


def dimension_total(
    quantity: Quantity, name: Label, size: Numeric, npus: Numeric, bandwidth: Numeric, dimension: int, dims: int
) -> Numeric:
    """Return the dollars or watts of the dimension at *dimension* of *dims*: of all its instances among *npus* NPUs."""
    tier = dimension_tiers(dims)[dimension]
    rate = tier_rates(quantity)[tier]
    block, links = Combinations(name, size).look_up(block_terms, quantity, tier)
    # Divided last, so that whole dollars stay whole.
    total: Numeric = (npus // size) * block * (bandwidth / rate.per_bytes_per_s) / links
    return total


@cache
def block_terms(quantity: Quantity, tier: str, name: str, npus: float) -> tuple[float, float]:
    """Return the dollars (or watts) of one dimension of *npus* NPUs for each unit of bandwidth, and an NPU's links.

    An NPU alone has none, and costs nothing: one is returned, as bandwidth is divided by it. Faults make nothing
    cheaper. Links that are listed each cost by their own bandwidth; one that leaves a switch has a port there, and one
    from an NPU to a switch a NIC.
    """
    rate, (plain, wiring) = tier_rates(quantity)[tier], topology_of(name)
    if plain == GRAPH:
        graph = healthy_graph(plain, int(npus), wiring.links)
        forwards, enters = graph.sources >= graph.npus, (graph.sources < graph.npus) & (graph.targets >= graph.npus)
        rate_per_npu = rate.link + rate.switch_port * forwards + rate.nic * enters
        return float((graph.bandwidth_bytes_per_s * rate_per_npu).sum()), 1.0
    topology = topologies[plain]
    parts = topology.parts(int(npus))
    total = parts.links * rate.link + parts.switch_ports * rate.switch_port + parts.nics * rate.nic
    return float(total), float(max(1, topology.links(int(npus))))


SECONDS_PER_YEAR = 365.25 * 86400
JOULES_PER_KWH = 3.6e6


def owned_usd_per_s(
    capital_usd: Numeric, power_w: Numeric, years: Numeric, upkeep_per_year: Numeric, usd_per_kwh: Numeric
) -> Numeric:
    """Return the total cost of ownership, in dollars for each second that a cluster runs.

        K (1 / T + u) / year  +  P c

    K  capital                      P  power at the meter
    T  years of depreciation        c  price of energy
    u  upkeep, of K each year

    Assumes straight-line depreciation and a cluster that never idles (`cosmic.design.facility_layer` has the terms).

    >>> round(owned_usd_per_s(30_000, 1_250, 4, 0.05, 0.08) * 3600, 3)  # dollars per hour of one: 1.027 + 0.1
    1.127
    """
    machines = capital_usd * (1 / years + upkeep_per_year) / SECONDS_PER_YEAR
    return machines + power_w * usd_per_kwh / JOULES_PER_KWH


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
        idle = POWER_CONSTANTS.idle_share
        accelerators = self.accelerators_w * (idle + (1 - idle) * busy)
        return (accelerators + self.hosts_w * POWER_CONSTANTS.host_share + self.network_w) * self.pue


def cluster_cost(batch: Batch) -> ClusterCost:
    """Return what the clusters of a batch cost and draw."""
    npus = batch.npus + _spare_npus(batch)
    dimensions = range(len(batch.base.network.dims))
    nodes = np.ceil(npus / _npus_of_a_node(batch))
    hosts = batch.base.node.name != "" or "node.name" in batch.columns
    network_usd = sum_of((_dimension_quantity(batch, dimension, "price") for dimension in dimensions), 0.0)
    accelerators_usd = none_to_nan(batch["compute.price"]) * npus
    hosts_usd = nodes * none_to_nan(batch["node.host_price"]) if hosts else 0.0
    return ClusterCost(
        accelerators_usd=accelerators_usd,
        hosts_usd=hosts_usd,
        network_usd=network_usd,
        other_usd=(accelerators_usd + hosts_usd + network_usd) * batch["facility.other_share"],
        accelerators_w=npus * drawn_w(lambda key: batch[f"compute.{key}"]),
        hosts_w=nodes * none_to_nan(batch["node.host_power"]) if hosts else 0.0,
        network_w=sum_of((_dimension_quantity(batch, dimension, "power") for dimension in dimensions), 0.0),
        pue=batch["facility.pue"],
    )


def drawn_w(compute: FieldLookup) -> Numeric:
    """Return the power that an accelerator draws at full load: its cap, or its thermal design power.

    >>> drawn_w({"power_cap": 500.0, "power": 700.0}.get), drawn_w({"power_cap": None, "power": 700.0}.get)
    (500.0, 700.0)
    """
    cap, tdp = compute("power_cap"), none_to_nan(compute("power"))
    watts: Numeric = tdp if cap is None else first_known(cap, tdp)
    return watts


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
    for index, dim in enumerate(batch.base.network.dims):
        build, npus = batch[f"network.dims.{index}.fabric.build"], batch[f"network.dims.{index}.npus"]
        if isinstance(build, Names):
            group = group * choose(build == INCLUDED, npus, 1)
        elif dim.fabric.build == INCLUDED:
            group = group * npus
    return choose(group <= size, size // group * group, size)


def owned_cluster_usd_per_s(batch: Batch, cost: ClusterCost, drawn_w: Numeric) -> Numeric:
    """Return the dollars of owning a cluster for a second in which it draws *drawn_w* at the meter."""
    years, upkeep, price = (batch[f"facility.{key}"] for key in ("years", "upkeep_per_year", "usd_per_kwh"))
    return owned_usd_per_s(cost.capital_usd, drawn_w, years, upkeep, price)


def _dimension_quantity(batch: Batch, dimension: int, quantity: Any) -> Numeric:
    """Return the dollars or watts of the dimension at *dimension*, of all its instances."""
    build = batch[f"network.dims.{dimension}.fabric.build"]
    plain = build == BY_BANDWIDTH
    if isinstance(build, Names):
        return choose(
            plain, _quantity_by_bandwidth(batch, dimension, quantity), _quantity_of_parts(batch, dimension, quantity)
        )
    return (
        _quantity_by_bandwidth(batch, dimension, quantity) if plain else _quantity_of_parts(batch, dimension, quantity)
    )


def _quantity_by_bandwidth(batch: Batch, dimension: int, quantity: Any) -> Numeric:
    path, dims = f"network.dims.{dimension}", len(batch.base.network.dims)
    name = dimension_label(batch, dimension)
    size, bandwidth = batch[f"{path}.npus"], batch[f"{path}.bandwidth"]
    total = dimension_total(quantity, name, size, batch.npus, bandwidth, dimension, dims)
    with_spares: Numeric = total * (1 + _spare_npus(batch) / batch.npus)
    return with_spares


def _quantity_of_parts(batch: Batch, dimension: int, quantity: Any) -> Numeric:
    """Return the dollars or watts of the parts of one dimension."""
    counts, rates = dimension_parts(batch, dimension), PRICES if quantity == "price" else POWERS
    total: Numeric = 0.0
    for part, key in rates.items():
        count = counts[part]
        rate = none_to_nan(batch[f"network.dims.{dimension}.fabric.{key}"])
        part_rate = rate * _bandwidth_over_port(batch, dimension) if part == "optics" else rate
        total = total + np.where(count > 0, count * part_rate, 0.0)[()]  # what is not there costs nothing, known or not
    return total


def _bandwidth_over_port(batch: Batch, dimension: int) -> Numeric:
    """Return the bandwidth of a dimension over that of a switch's port, which transceivers are of."""
    bandwidth = batch[f"network.dims.{dimension}.bandwidth"]
    port_bandwidth = batch[f"network.dims.{dimension}.fabric.port_bandwidth"]
    ratio: Numeric = 1.0 if port_bandwidth is None else bandwidth / first_known(port_bandwidth, bandwidth)
    return ratio


def dimension_parts(batch: Batch, dimension: int) -> dict[str, Numeric]:
    """Return how many of each part the dimension at *dimension* has, in all instances together."""
    path = f"network.dims.{dimension}"
    sizes = [batch[f"network.dims.{inner}.npus"] for inner in range(dimension)]
    npus_inside: Any = 1
    for size in sizes:
        npus_inside = npus_inside * size
    npus, spare_nodes = batch[f"{path}.npus"], _spare_nodes_joined(batch, dimension, npus_inside)
    rings = np.where(spare_nodes > 0, 0, np.ceil(_spare_npus(batch) / npus))[()]
    site = (npus + spare_nodes, npus_inside, batch.npus // npus + rings, ports_of(batch, dimension))
    shares = (batch[f"{path}.oversubscription"], batch[f"{path}.fabric.core_oversubscription"])
    combinations = Combinations(batch[f"{path}.fabric.build"], *site, *shares)
    switches, optics = combinations.look_up(bill_terms, "switches", "optics")
    cables, ports = combinations.look_up(bill_terms, "cables", "circuit_ports")
    return {"switches": switches, "optics": optics, "cables": cables, "circuit_ports": ports}


def _spare_nodes_joined(batch: Batch, dimension: int, npus_inside: Numeric) -> Numeric:
    """Return how many spare nodes the dimension at *dimension* joins to the others.

    Those that switches between nodes have ports for; inside nodes, and where neighbours are cabled, spares are further
    instances of a dimension.
    """
    if dimension != len(batch.base.network.dims) - 1:
        return 0
    build: Any = batch[f"network.dims.{dimension}.fabric.build"]
    spare: Numeric = np.ceil(_spare_npus(batch) / npus_inside)
    for name in (build,) if isinstance(build, str) else build.names:
        if getattr(builds[name], "topologies", ()):
            spare = np.where(build == name, 0, spare)[()]
    return spare


@cache
def bill_terms(first: str, second: str, build: str, *numbers: float) -> tuple[float, float]:
    """Return two counts of a bill."""
    npus, nics_of_node, instances, radix, leaf, core = numbers
    bill = builds[build].bill(Site(int(npus), int(nics_of_node), int(instances), int(radix), leaf, core))
    return float(getattr(bill, first)), float(getattr(bill, second))


NETWORK_PREFIX = "network."
"""How quantities begin that are of the network alone."""
PART_TITLES = {"circuit_ports": "ports of circuit switches"}
"""Parts that are called otherwise than in a bill."""


def needed_figures(point: DesignPoint, quantity: str) -> dict[str, str]:
    """Return the paths of all figures that a quantity of *point* is made of, each with the part it is of.

    A *quantity* is ``price`` or ``power`` of the cluster, or ``network.price`` of its network alone.

    >>> from cosmic.search.mapping.design_completion import load_design
    >>> needed_figures(load_design("llama3-8b@dgx-h100:16"), "power")
    {'compute.power': 'h100-sxm-80gb', 'node.host_power': 'the host of dgx-h100', \
'network.dims.1.fabric.switch_power': 'switches of network.dims.1', \
'network.dims.1.fabric.optic_power': 'optics of network.dims.1'}
    """
    return dict(_figure_paths(point, quantity, only_unknown=False))


def unknown_parts(point: DesignPoint, quantity: str) -> tuple[str, ...]:
    """Return the parts of *point* of which a *quantity* needs a figure that is unknown."""
    return tuple(part for _, part in _figure_paths(point, quantity, only_unknown=True))


def _figure_paths(point: DesignPoint, quantity: str, *, only_unknown: bool) -> Iterator[tuple[str, str]]:
    """Yield the paths of figures with their parts; parts are counted only where that is needed."""
    kind = quantity.removeprefix(NETWORK_PREFIX)
    if kind == quantity:
        accelerator, host = (point.compute.price_usd, point.node.host_price_usd)
        if kind == "power":
            accelerator, host = (point.compute.power_w, point.node.host_power_w)
        if accelerator is None or not only_unknown:
            yield f"compute.{kind}", point.compute.accelerator or "the accelerator"
        if point.node.name and (host is None or not only_unknown):
            yield f"node.host_{kind}", f"the host of {point.node.name}"
    for index, dim in enumerate(point.network.dims):
        if dim.fabric.build in (BY_BANDWIDTH, INCLUDED):
            continue
        path, suffix = f"network.dims.{index}", "_usd" if kind == "price" else "_w"
        for part, key in (PRICES if kind == "price" else POWERS).items():
            unknown = getattr(dim.fabric, key + suffix) is None
            if (unknown or not only_unknown) and dimension_parts(batch_of(point), index)[part] > 0:
                yield f"{path}.fabric.{key}", f"{PART_TITLES.get(part, part)} of {path}"


def describe_missing_figures(missing: Iterable[tuple[str, tuple[str, ...]]]) -> str:
    """Return why something is unknown: of each quantity, the parts that want it; empty if none does.

    >>> describe_missing_figures([("price", ("a",)), ("power", ("a",))]), describe_missing_figures([("price", ("a", "b")), ("power", ())])
    ('no price and no power is known for a', 'no price is known for a, b')
    """
    by_parts: dict[tuple[str, ...], list[str]] = {}
    for quantity, parts in missing:
        if parts:
            by_parts.setdefault(parts, []).append(quantity.removeprefix(NETWORK_PREFIX))
    sentences = (
        f"no {' and no '.join(figures)} is known for {_list_parts(parts)}" for parts, figures in by_parts.items()
    )
    return "; ".join(sentences)


def _list_parts(parts: tuple[str, ...]) -> str:
    """Return parts of several dimensions together, where they are of one kind.

    >>> _list_parts(("tpu-v4", "cables of network.dims.0", "cables of network.dims.1"))
    'tpu-v4, cables of network.dims.0 and 1'
    """
    dimensions_of_kind: dict[str, list[str]] = {}
    for part in parts:
        kind, separator, dimension = part.partition(" of network.dims.")
        dimensions_of_kind.setdefault(kind + separator, []).append(dimension)
    return ", ".join(kind + " and ".join(filter(None, dimensions)) for kind, dimensions in dimensions_of_kind.items())
