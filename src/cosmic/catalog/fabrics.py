"""Switches of the catalog as figures of a fabric: ports, prices and watts at the bandwidth of a dimension."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cosmic import catalog, units
from cosmic.errors import SpecError, UnknownName

SWITCHES = ("switch", "circuit_switch")
"""Kinds of links that a fabric may name as its switch."""
FIGURES = (
    *("radix", "switch_price", "switch_power", "optic_price", "optic_power", "cable_price"),
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


def fabric_of(switch: str, bandwidth_bytes_per_s: float | None = None) -> dict[str, Any]:
    """Return the figures of a fabric of a *switch* of the catalog, as a design file states them; unknown ones not.

        radix = ⌊ports · port bandwidth / bandwidth⌋

    Ports are split or joined to the bandwidth of a NIC, and transceivers cost and draw in proportion to it: two ports
    of 400 Gbit/s share one of 800. A circuit switch joins both links of a torus dimension, each of half its bandwidth.

    >>> fabric_of("quantum-2", 50e9)["radix"], fabric_of("tomahawk-5", 50e9)["radix"], fabric_of("tomahawk-5")["radix"]
    (64, 128, 64)
    >>> fabric_of("tomahawk-5", 50e9)["optic_price"], fabric_of("palomar-ocs", 100e9)["optic_power"]
    ('500 USD', '8 W')
    """
    entry = catalog.entry("links", switch_name(switch, "switch"))
    ports = entry["ports"]
    circuit = entry["kind"] == "circuit_switch"
    own = units.read(entry["port_bandwidth"], units.BYTES_PER_S) if "port_bandwidth" in entry else None
    rate = bandwidth_bytes_per_s / 2 if circuit and bandwidth_bytes_per_s else bandwidth_bytes_per_s or own
    found: dict[str, Any] = {"radix": int(ports * own / rate + 1e-9) if own and rate else ports}
    found |= _figures(entry, "circuit_port", 1 / ports) if circuit else _figures(entry, "switch")
    if "optic" in entry:
        optic = catalog.entry("links", entry["optic"])
        whole = units.read(optic["port_bandwidth"], units.BYTES_PER_S)
        found |= _figures(optic, "optic", (rate or whole) / whole)
    if "cable" in entry:
        found |= _figures(catalog.entry("links", entry["cable"]), "cable")
    return found


def _figures(entry: Mapping[str, Any], part: str, share: float = 1.0) -> dict[str, str]:
    """Return price and power of a *share* of a part; a cable draws nothing."""
    keys = (("price", units.USD), ("power", units.WATTS)) if part != "cable" else (("price", units.USD),)
    known = ((key, dimension) for key, dimension in keys if key in entry)
    return {f"{part}_{key}": units.show(units.read(entry[key], dimension) * share, dimension) for key, dimension in known}


def with_switches(network: Mapping[str, Any]) -> dict[str, Any]:
    """Return a *network*, as a design file states it, with the figures of the switches that its fabrics name.

    What a fabric states itself stands. What cannot be read is left as it is, for the reader of networks to refuse.
    """
    dims = network.get("dims")
    if not isinstance(dims, list):
        return dict(network)
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
