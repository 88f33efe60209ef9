"""Switches of the catalog as figures of a fabric: ports, prices and watts at the bandwidth of a dimension."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cosmic import catalog, units
from cosmic.errors import SpecError, UnknownName

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


def fabric_of(
    switch: str, bandwidth_bytes_per_s: float | None = None, quoted: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """Return the figures of a fabric of a *switch* of the catalog, as a design file states them; unknown ones not.

        radix = ⌊ports · port bandwidth / bandwidth⌋

    Ports are split or joined to the bandwidth of a NIC, and transceivers cost and draw in proportion to it: two ports
    of 400 Gbit/s share one of 800. A circuit switch joins both links of a torus dimension, each of half its bandwidth.
    Where dollars by name are *quoted*, only prices that they set are returned.

    >>> fabric_of("quantum-2", 50e9)["radix"], fabric_of("tomahawk-5", 50e9)["radix"], fabric_of("tomahawk-5")["radix"]
    (64, 128, 64)
    >>> fabric_of("tomahawk-5", 50e9)["optic_price"], fabric_of("palomar-ocs", 100e9)["optic_power"]
    ('500 USD', '8 W')
    >>> fabric_of("tomahawk-5", 50e9, {"800g-2xdr4-transceiver": 600.0})
    {'optic_price': '300 USD'}
    """
    name = switch_name(switch, "switch")
    entry = catalog.entry("links", name)
    ports = entry["ports"]
    circuit = entry["kind"] == "circuit_switch"
    own = units.read(entry["port_bandwidth"], units.BYTES_PER_S) if "port_bandwidth" in entry else None
    rate = bandwidth_bytes_per_s / 2 if circuit and bandwidth_bytes_per_s else bandwidth_bytes_per_s or own
    found: dict[str, Any] = {"radix": int(ports * own / rate + 1e-9) if own and rate else ports}
    if bandwidth_bytes_per_s:
        found["port_bandwidth"] = units.show(bandwidth_bytes_per_s, units.BYTES_PER_S)
    shares = {name: ("circuit_port", 1 / ports) if circuit else ("switch", 1.0)}
    if "optic" in entry:
        whole = units.read(catalog.entry("links", entry["optic"])["port_bandwidth"], units.BYTES_PER_S)
        shares[entry["optic"]] = ("optic", (rate or whole) / whole)
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
    return {**dim, "fabric": {**fabric_of(name, _bandwidth(dim)), **fabric, "switch": name}}


def _bandwidth(dim: Mapping[str, Any]) -> float | None:
    try:
        return units.read(dim["bandwidth"], units.BYTES_PER_S) if "bandwidth" in dim else None
    except SpecError:
        return None
