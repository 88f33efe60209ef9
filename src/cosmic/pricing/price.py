"""What a network and a cluster cost, and what the network draws.

COSMIC's and LIBRA's model: parts (links, switch ports, NICs) are paid for by their bandwidth, at a price that depends
on the tier, that is, on how far the dimension reaches. All functions take numbers or arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from math import prod
from typing import Literal

import yaml

from cosmic import units
from cosmic.catalog.fitted import fitted
from cosmic.design.batch import Label, by_name
from cosmic.design.network import topologies
from cosmic.numeric import Numeric

Quantity = Literal["price", "power"]
SECONDS_PER_YEAR = 365.25 * 86400
JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Dollars or watts of each part at a bandwidth of *per_bytes_per_s*."""

    per_bytes_per_s: float
    link: float
    switch_port: float
    nic: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """What owning a cluster costs beside its price."""

    years: float
    """Until it is worth nothing."""
    upkeep_per_year: float
    """Share of the capital."""
    pue: float
    """Power usage effectiveness: watts of the building for each watt of the cluster."""
    usd_per_kwh: float


OWNERSHIP = fitted("ownership", Ownership)
"""Where public estimates centre."""


@cache
def rates(quantity: Quantity) -> dict[str, Rates]:
    """Return what parts cost (or draw) in each tier, innermost first, as `catalog/prices.yaml` says.

    >>> rates("price")["pod"]
    Rates(per_bytes_per_s=1000000000.0, link=7.8, switch_port=18.0, nic=31.6)
    """
    data = yaml.safe_load(files("cosmic").joinpath("catalog", "prices.yaml").read_text(encoding="utf-8"))
    dimension = units.USD if quantity == "price" else units.WATTS
    per = units.read(data[quantity]["per"], units.BYTES_PER_S)
    return {
        tier: Rates(per_bytes_per_s=per, **{p: units.read(v, dimension) for p, v in data[quantity][tier].items()})
        for tier in data["tiers"]
    }


def tiers(dims: int) -> tuple[str, ...]:
    """Return the tier of each of so many dimensions: the outer three are package, node, pod, those inside chiplet.

    Of two dimensions the inner is the package, a single one is that, as in COSMIC's CostModel.cc.

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

    and link, switch, nic the prices of the dimension's tier. A ring costs 2 n links, a fully connected dimension
    n (n - 1), a switch 2 n links, n ports and n NICs (which only pods pay for). The source has no price of a switch
    between chiplets: here it has that of the next tier. Oversubscription makes nothing cheaper.
    Source: LIBRA, and ASTRA-sim's CostModel.cc as COSMIC ran it; exact on the totals in COSMIC's logs.

    >>> float(network_usd(("ring", "switch", "ring", "switch"), (8, 4, 4, 8), (100e9,) * 4))
    9441280.0
    """
    return _total("price", names, npus, bandwidth_bytes_per_s)


def network_w(names: Sequence[Label], npus: Sequence[Numeric], bandwidth_bytes_per_s: Sequence[Numeric]) -> Numeric:
    """Return the watts that a network draws, idle or not: `network_usd` with watts for dollars. An estimate.

    From data sheets of 400 Gbit/s parts, in proportion to bandwidth: 25 W a NIC, 747 W / 64 a switch port, 8 W the
    optics of one direction of a cable. NICs and optics are in pods only; links inside are part of the accelerators.

    >>> round(float(network_w(("switch", "switch"), (8, 64), (450e9, 50e9)) / 512), 1)  # per NPU: 105.0 + 52.7
    157.7
    """
    return _total("power", names, npus, bandwidth_bytes_per_s)


def capital_usd(accelerator_price_usd: Numeric, npus: Numeric, network_usd: Numeric) -> Numeric:
    """Return the price of so many accelerators and their network; hosts, storage and buildings are not in it.

    >>> capital_usd(30_000, 1024, 9_441_280)
    40161280
    """
    return accelerator_price_usd * npus + network_usd


def owned_usd_per_s(capital_usd: Numeric, power_w: Numeric, terms: Ownership = OWNERSHIP) -> Numeric:
    """Return the total cost of ownership, in dollars for each second that a cluster runs.

        K (1 / T + u) / year  +  P e c

    K  capital                      P  power that accelerators and network draw
    T  years until it is worth 0    e  power usage effectiveness: what the building draws, per watt of P
    u  upkeep, of K each year       c  price of energy

    Assumes straight-line depreciation and a cluster that never idles. The default
    terms are where public estimates of accelerator clusters centre, not a quote.

    >>> round(owned_usd_per_s(30_000, 1_000) * 3600, 3)  # dollars per hour of one accelerator: 1.027 + 0.1
    1.127
    """
    machines = capital_usd * (1 / terms.years + terms.upkeep_per_year) / SECONDS_PER_YEAR
    return machines + power_w * terms.pue * terms.usd_per_kwh / JOULES_PER_KWH


def _total(
    quantity: Quantity,
    names: Sequence[Label],
    npus: Sequence[Numeric],
    bandwidth_bytes_per_s: Sequence[Numeric],
) -> Numeric:
    """Return the sum over dimensions, blocks and parts of bandwidth times the tier's rate."""
    total: Numeric = 0.0
    dims = zip(names, npus, bandwidth_bytes_per_s, tiers(len(names)), strict=True)
    for name, size, bandwidth, tier in dims:
        rate = rates(quantity)[tier]
        block, links = by_name(name, partial(_block, npus=size, rate=rate)), by_name(name, partial(_links, npus=size))
        # Divided last, so that whole dollars stay whole.
        total = total + (prod(npus) // size) * block * (bandwidth / rate.per_bytes_per_s) / links
    return total


def _links(name: str, npus: Numeric) -> Numeric:
    links: Numeric = topologies[name].links(npus)
    return links


def _block(name: str, npus: Numeric, rate: Rates) -> Numeric:
    """Return what the parts that join *npus* NPUs cost (or draw) for each unit of bandwidth."""
    parts = topologies[name].parts(npus)
    total: Numeric = parts.links * rate.link + parts.switch_ports * rate.switch_port + parts.nics * rate.nic
    return total
