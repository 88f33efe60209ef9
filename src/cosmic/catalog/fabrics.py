"""Switches of the catalog as figures of a fabric: ports, prices and watts at the bandwidth of a port."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cosmic import catalog, units
from cosmic.errors import UnknownName

SWITCHES = ("switch", "circuit_switch")
"""Kinds of links that a fabric may name as its switch."""
FIGURES = (
    *("radix", "port_bandwidth", "switch_price", "switch_power", "optic_price", "optic_power", "cable_price"),
    *("circuit_port_price", "circuit_port_power"),
)
"""Keys of a fabric that a named switch brings along."""


def switches() -> tuple[str, ...]:
    """Return the names of all switches of the catalog."""
    return tuple(name for name in catalog.names("links") if catalog.entry("links", name)["kind"] in SWITCHES)


def switch_name(name: Any, where: str) -> str:
    """Return the name under which the catalog has a switch; raise an `UnknownName` if it has none.

    >>> switch_name("Quantum-2", "switch")
    'quantum-2-qm9700-ndr-64x400g'
    """
    known = catalog.known_as("links", name) if isinstance(name, str) else None
    if known is None or catalog.entry("links", known)["kind"] not in SWITCHES:
        raise UnknownName.among(where, name, "switch", switches())
    return known


def fabric_of(switch: str, quoted: Mapping[str, float] | None = None) -> dict[str, Any]:
    """Return the figures of a fabric of a *switch* of the catalog, as a design file states them; unknown ones not.

    They are of the switch as it is sold, whatever the bandwidth of the dimension: `cosmic.cost.tiers.ports_of` splits
    and joins its ports. A circuit switch joins both links of a torus dimension, each of half its bandwidth, so that a
    transceiver of 400 Gbit/s serves a dimension of 800. Where dollars by name are *quoted*, only prices that they set
    are returned.

    >>> [fabric_of("tomahawk-5")[key] for key in ("radix", "port_bandwidth", "optic_price")]
    [64, '100 GB/s', '1000 USD']
    >>> fabric_of("palomar-ocs")["port_bandwidth"]
    '100 GB/s'
    >>> fabric_of("tomahawk-5", {"800g-2xdr4-transceiver": 600.0})
    {'optic_price': '600 USD'}
    """
    name = switch_name(switch, "switch")
    entry = catalog.entry("links", name)
    ports = entry["ports"]
    circuit = entry["kind"] == "circuit_switch"
    own = units.read(entry["port_bandwidth"], units.BYTES_PER_S) if "port_bandwidth" in entry else None
    shares = {name: ("circuit_port", 1 / ports) if circuit else ("switch", 1.0)}
    if "optic" in entry:
        whole = units.read(catalog.entry("links", entry["optic"])["port_bandwidth"], units.BYTES_PER_S)
        shares[entry["optic"]] = ("optic", (own or whole) / whole)
        own = own or (2 if circuit else 1) * whole
    found: dict[str, Any] = {"radix": ports}
    if own:
        found["port_bandwidth"] = units.show(own, units.BYTES_PER_S)
    if "cable" in entry:
        shares[entry["cable"]] = ("cable", 1.0)
    if quoted is not None:
        priced = ((part, quoted[each] * share) for each, (part, share) in shares.items() if each in quoted)
        return {f"{part}_price": units.show(dollars, units.USD) for part, dollars in priced}
    for each, (part, share) in shares.items():
        found |= _figures(catalog.entry("links", each), part, share)
    return found


def _figures(entry: Mapping[str, Any], part: str, share: float) -> dict[str, str]:
    """Return price and power of a *share* of a part; a cable draws nothing."""
    keys = (("price", units.USD), ("power", units.WATTS)) if part != "cable" else (("price", units.USD),)
    known = ((key, of) for key, of in keys if key in entry)
    return {f"{part}_{key}": units.show(units.read(entry[key], of) * share, of) for key, of in known}


def with_switches(network: Any) -> Any:
    """Return a *network*, as a design file states it, with the figures of the switches that its fabrics name.

    What a fabric states itself stands. What cannot be read is left as it is, for the reader of networks to refuse.
    """
    dims = network.get("dims") if isinstance(network, Mapping) else None
    if not isinstance(dims, list):
        return network
    return {**network, "dims": [_with_switch(dim, f"dims.{place}.fabric.switch") for place, dim in enumerate(dims)]}


def _with_switch(dim: Any, where: str) -> Any:
    fabric = dim.get("fabric") if isinstance(dim, Mapping) else None
    if not isinstance(fabric, Mapping) or not fabric.get("switch"):
        return dim
    name = switch_name(fabric["switch"], f"network.{where}")
    return {**dim, "fabric": {**fabric_of(name), **fabric, "switch": name}}
