"""What a network costs and how much power it draws.

COSMIC's and LIBRA's model: links, switch ports and NICs have a price per bandwidth that depends on the tier, that is,
on how far the dimension reaches. All functions take numbers or arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Literal

from cosmic import units
from cosmic.catalog import FOLDER, load_mapping
from cosmic.design.batch import Label
from cosmic.design.combinations import Combinations
from cosmic.design.network import GRAPH, topologies
from cosmic.graphs.wired import healthy_graph, topology_of
from cosmic.numeric import Numeric

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
    data = load_mapping(FOLDER / "prices.yaml")
    dimension = units.USD if quantity == "price" else units.WATTS
    per = units.read(data[quantity]["per"], units.BYTES_PER_S)
    return {
        tier: TierRates(per_bytes_per_s=per, **{p: units.read(v, dimension) for p, v in data[quantity][tier].items()})
        for tier in data["tiers"]
    }


def tiers(dims: int) -> tuple[str, ...]:
    """Return the tier of each dimension: the outer three are package, node and pod, those inside are chiplets.

    Two dimensions are package and pod, a single one is a package, as in COSMIC's CostModel.cc.

    >>> tiers(2), tiers(4)
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
    return _total("price", names, npus, bandwidth_bytes_per_s)


def network_w(names: Sequence[Label], npus: Sequence[Numeric], bandwidth_bytes_per_s: Sequence[Numeric]) -> Numeric:
    """Return the watts that a network draws, idle or busy: `network_usd` with watts for dollars. An estimate.

    From data sheets of 400 Gbit/s parts, in proportion to bandwidth: 25 W a NIC, 747 W / 64 a switch port, 8 W the
    optics of one direction of a cable. Only pods have NICs and optics; the accelerators drive the links inside.

    >>> round(float(network_w(("switch", "switch"), (8, 64), (450e9, 50e9)) / 512), 1)  # per NPU: 105.0 + 52.7
    157.7
    """
    return _total("power", names, npus, bandwidth_bytes_per_s)


def _total(
    quantity: Quantity,
    names: Sequence[Label],
    npus: Sequence[Numeric],
    bandwidth_bytes_per_s: Sequence[Numeric],
) -> Numeric:
    """Return the sum over dimensions and parts of bandwidth times the tier's rate."""
    total: Numeric = 0.0
    for place, (name, size, bandwidth) in enumerate(zip(names, npus, bandwidth_bytes_per_s, strict=True)):
        total = total + dimension_total(quantity, name, size, prod(npus), bandwidth, place, len(names))
    return total


def dimension_total(  # noqa: PLR0913, PLR0917  one dimension, and where it stands
    quantity: Quantity, name: Label, size: Numeric, npus: Numeric, bandwidth: Numeric, place: int, dims: int
) -> Numeric:
    """Return the dollars or watts of the dimension at *place* of *dims*: of all its instances among *npus* NPUs."""
    tier = tiers(dims)[place]
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
        each = rate.link + rate.switch_port * forwards + rate.nic * enters
        return float((graph.bandwidth_bytes_per_s * each).sum()), 1.0
    topology = topologies[plain]
    parts = topology.parts(int(npus))
    total = parts.links * rate.link + parts.switch_ports * rate.switch_port + parts.nics * rate.nic
    return float(total), float(max(1, topology.links(int(npus))))
