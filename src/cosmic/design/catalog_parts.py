"""Nodes and switches that a design names, and the figures that the catalog has of them.

A switch brings ports, prices and watts at the bandwidth of a port. A node as it is sold is taken apart: what of its
price and power is of accelerators, and what of the host. What a design states itself stands before the catalog.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cosmic.base import units
from cosmic.base.errors import UnknownName, as_key, require
from cosmic.design import catalog_entries, schema
from cosmic.design.design_point import DesignPoint
from cosmic.design.plain_data import merge_trees, unflatten_paths

# ---- Switches of the catalog as figures of a fabric: ports, prices and watts at the bandwidth of a port

SWITCH_KINDS = ("switch", "circuit_switch")
"""Kinds of links that a fabric may name as its switch."""
FABRIC_KEYS = (
    *("radix", "port_bandwidth", "switch_price", "switch_power", "optic_price", "optic_power", "cable_price"),
    *("circuit_port_price", "circuit_port_power"),
)
"""Keys of a fabric that a named switch brings along."""


def switch_names() -> tuple[str, ...]:
    """Return the names of all switches of the catalog."""
    return tuple(
        name
        for name in catalog_entries.entry_names("links")
        if catalog_entries.read_entry("links", name)["kind"] in SWITCH_KINDS
    )


def switch_name(name: Any, where: str) -> str:
    """Return the name under which the catalog has a switch; raise an `UnknownName` if it has none.

    >>> switch_name("Quantum-2", "switch")
    'quantum-2-qm9700-ndr-64x400g'
    """
    resolved = catalog_entries.resolve_name("links", name) if isinstance(name, str) else None
    if resolved is None or catalog_entries.read_entry("links", resolved)["kind"] not in SWITCH_KINDS:
        raise UnknownName.among(where, name, "switch", switch_names())
    return resolved


def switch_figures(switch: str, quoted: Mapping[str, float] | None = None) -> dict[str, Any]:
    """Return the figures of a fabric of a *switch* of the catalog, as a design file states them; unknown ones not.

    They are of the switch as it is sold, whatever the bandwidth of the dimension:
    `cosmic.network.switch_tiers.ports_of` splits
    and joins its ports. A circuit switch joins both links of a torus dimension, each of half its bandwidth, so that a
    transceiver of 400 Gbit/s serves a dimension of 800. Where dollars by name are *quoted*, only prices that they set
    are returned.

    >>> [switch_figures("tomahawk-5")[key] for key in ("radix", "port_bandwidth", "optic_price")]
    [64, '100 GB/s', '1000 USD']
    >>> switch_figures("palomar-ocs")["port_bandwidth"]
    '100 GB/s'
    >>> switch_figures("tomahawk-5", {"800g-2xdr4-transceiver": 600.0})
    {'optic_price': '600 USD'}
    """
    name = switch_name(switch, "switch")
    entry = catalog_entries.read_entry("links", name)
    ports = entry["ports"]
    # Packet switches are sold whole; a circuit switch is priced by the port, as fabrics share it.
    circuit = entry["kind"] == "circuit_switch"
    own = units.read_quantity(entry["port_bandwidth"], units.BYTES_PER_S) if "port_bandwidth" in entry else None
    shares = {name: ("circuit_port", 1 / ports) if circuit else ("switch", 1.0)}
    if "optic" in entry:
        optic_bandwidth = units.read_quantity(
            catalog_entries.read_entry("links", entry["optic"])["port_bandwidth"], units.BYTES_PER_S
        )
        shares[entry["optic"]] = ("optic", (own or optic_bandwidth) / optic_bandwidth)
        own = own or (2 if circuit else 1) * optic_bandwidth
    figures: dict[str, Any] = {"radix": ports}
    if own:
        figures["port_bandwidth"] = units.format_quantity(own, units.BYTES_PER_S)
    if "cable" in entry:
        shares[entry["cable"]] = ("cable", 1.0)
    if quoted is not None:
        priced = (
            (part, quoted[entry_name] * share) for entry_name, (part, share) in shares.items() if entry_name in quoted
        )
        return {f"{part}_price": units.format_quantity(dollars, units.USD) for part, dollars in priced}
    for entry_name, (part, share) in shares.items():
        figures |= _part_figures(catalog_entries.read_entry("links", entry_name), part, share)
    return figures


def _part_figures(entry: Mapping[str, Any], part: str, share: float) -> dict[str, str]:
    """Return price and power of a *share* of a part; a cable draws nothing."""
    keys = (("price", units.USD), ("power", units.WATTS)) if part != "cable" else (("price", units.USD),)
    quantities = ((key, dimension) for key, dimension in keys if key in entry)
    return {
        f"{part}_{key}": units.format_quantity(units.read_quantity(entry[key], dimension) * share, dimension)
        for key, dimension in quantities
    }


def fill_switches(network: Any) -> Any:
    """Return a *network*, as a design file states it, with the figures of the switches that its fabrics name.

    What a fabric states itself stands. What cannot be read is left as it is, for the reader of networks to refuse.
    """
    dims = network.get("dims") if isinstance(network, Mapping) else None
    if not isinstance(dims, list):
        return network
    return {**network, "dims": [_fill_switch(dim, f"dims.{index}.fabric.switch") for index, dim in enumerate(dims)]}


def _fill_switch(dim: Any, where: str) -> Any:
    fabric = dim.get("fabric") if isinstance(dim, Mapping) else None
    if not isinstance(fabric, Mapping) or not fabric.get("switch"):
        return dim
    name = switch_name(fabric["switch"], f"network.{where}")
    return {**dim, "fabric": {**switch_figures(name), **fabric, "switch": name}}


# ---- Nodes as they are sold, taken apart: what of their price and power is of accelerators, and what of hosts


def node_figures(name: str) -> dict[str, Any]:
    """Return the node layer of an entry of the catalog, as a design file states it.

    A host is what is left of a node without its accelerators. Where a price or a power of either is not known, that of
    the host is not.

    >>> node = node_figures("dgx-h100")
    >>> node["accelerator"], node["npus"], node["host_price"], node["host_power"]
    ('h100-sxm-80gb', 8, '76000 USD', '4.6 kW')
    """
    entry = catalog_entries.read_entry("nodes", name)
    accelerator, npus = str(entry.get("accelerator", "")), int(entry.get("npus", 1))
    require(bool(accelerator), f"nodes/{name}.yaml accelerator", None, "a node says which accelerator it has")
    own = catalog_entries.read_entry("accelerators", accelerator)["compute"]
    figures = {"name": catalog_entries.resolve_name("nodes", name) or name, "accelerator": accelerator, "npus": npus}
    for key, dimension in (("price", units.USD), ("power", units.WATTS)):
        if key in entry and key in own:
            # A node's price and power include its accelerators: the rest is the host's.
            host = units.read_quantity(entry[key], dimension) - npus * units.read_quantity(own[key], dimension)
            rule = f"is less than its {npus} accelerators have together"
            require(host >= 0, f"nodes/{name}.yaml {key}", entry[key], rule)
            figures[f"host_{key}"] = units.format_quantity(host, dimension)
    return figures


def outer_tiers(node: str, system: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """Return the memory behind one accelerator of a node, or of a *system* that states it: host, drives.

    Empty where it is not known: many nodes are sold with any amount.

    >>> [(each["name"], each["capacity"]) for each in outer_tiers("dgx-h100")], outer_tiers("mi300x-8x")
    ([('host', '250 GB'), ('ssd', '3.84 TB')], [])
    """
    if system and "tiers" in system:
        return [dict(tier) for tier in system["tiers"]]
    resolved = catalog_entries.resolve_name("nodes", node) if node else None
    return [dict(tier) for tier in catalog_entries.read_entry("nodes", resolved).get("tiers", [])] if resolved else []


# ---- Parts that a design names, and the figures that the catalog has of them: nodes and switches

NODE_KEYS = ("accelerator", "npus", "host_price", "host_power", "host_idle_power")


def state_parts(point: DesignPoint, tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return the *tree* of a design with all figures of its node and switches written out.

    What the catalog knows and *point* leaves open, or at its default, loading would fill in.
    """
    completed = dict(tree)
    if point.node.name:
        figures = node_figures(point.node.name) if catalog_entries.resolve_name("nodes", point.node.name) else {}
        completed["node"] = _write_fields(point.node, figures) | completed["node"]
    dims = [
        {**dim, "fabric": _write_fields(dimension.fabric, FABRIC_KEYS) | dim["fabric"]}
        if dimension.fabric.switch
        else dim
        for dimension, dim in zip(point.network.dims, completed["network"]["dims"], strict=True)
    ]
    return completed | {"network": {**completed["network"], "dims": dims}}


def _write_fields(value: Any, keys: Any) -> dict[str, Any]:
    written = schema.write_value(value)
    return {key: written.get(key) for key in keys}


def drop_replaced_parts(tree: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return a *tree* without figures of parts that *overrides*, values by path, names others in place of.

    A saved design states every figure of its switch: those are not of the one that is named now.

    >>> drop_replaced_parts({"node": {"name": "dgx-h100", "host_price": "1 USD"}}, {"node.name": "dgx-h200"})
    {'node': {'name': 'dgx-h100'}}
    """
    reduced = dict(tree)
    if "node.name" in overrides and isinstance(reduced.get("node"), Mapping):
        reduced["node"] = _drop_keys(reduced["node"], NODE_KEYS)
    network = reduced.get("network")
    dims = network.get("dims") if isinstance(network, Mapping) else None
    if isinstance(dims, list):
        changed = {index for index in range(len(dims)) if f"network.dims.{index}.fabric.switch" in overrides}
        kept_dims = [_drop_fabric_figures(dim) if index in changed else dim for index, dim in enumerate(dims)]
        reduced["network"] = {**network, "dims": kept_dims} if isinstance(network, Mapping) else network
    return reduced


def _drop_fabric_figures(dim: Any) -> Any:
    has_fabric = isinstance(dim, Mapping) and isinstance(dim.get("fabric"), Mapping)
    return {**dim, "fabric": _drop_keys(dim["fabric"], FABRIC_KEYS)} if has_fabric else dim


def _drop_keys(tree: Mapping[Any, Any], keys: tuple[str, ...]) -> dict[Any, Any]:
    return {key: value for key, value in tree.items() if as_key(key) not in keys}


# ---- A user's quotes: prices of parts and energy, put into a design's fields

PRICES_KEY = "prices"
"""Key of a design file, and of overrides, that holds quotes."""
ENERGY_KEY = "energy"
QUOTE_KINDS = {
    "accelerators": ("accelerators", ()),
    "nodes": ("nodes", ()),
    "switches": ("links", ("switch", "circuit_switch")),
    "optics": ("links", ("optic",)),
    "cables": ("links", ("cable",)),
}
"""Kinds of quotes: the catalog's kind, and what an entry of it says it is."""
USD_PER_J = units.PhysicalDimension(usd=1, joule=-1)
J_PER_KWH = 3.6e6

Quotes = dict[str, dict[str, float]]
"""Dollars by kind and name of the catalog; energy in dollars a kWh, under an empty name."""


def quotes_override(prices: str | Path | Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the override that puts the quotes of a file, or its content, into a design; none without any."""
    if prices is None:
        return {}
    return {PRICES_KEY: prices if isinstance(prices, Mapping) else catalog_entries.load_mapping(Path(prices))}


def read_prices(tree: Any) -> Quotes:
    """Return the quotes of a file's content; unknown kinds and names are errors.

    >>> read_prices({"switches": {"quantum-2": "30 kUSD"}, "energy": "0.06 USD/kWh"})
    {'switches': {'quantum-2-qm9700-ndr-64x400g': 30000.0}, 'energy': {'': 0.06}}
    """
    require(isinstance(tree, Mapping), PRICES_KEY, tree, "must map kinds of parts to prices by name")
    quotes: Quotes = {}
    for key, value in tree.items():
        kind = as_key(key)
        where = f"{PRICES_KEY}.{kind}"
        if kind == ENERGY_KEY:
            rate = units.read_quantity(value, USD_PER_J) if isinstance(value, str) else None
            require(rate is not None and rate >= 0, where, value, "must be a price of energy, such as 0.06 USD/kWh")
            quotes[kind] = {"": round((rate or 0.0) * J_PER_KWH, 12)}
        elif kind in QUOTE_KINDS:
            require(isinstance(value, Mapping), where, value, "must map names of the catalog to prices")
            quotes[kind] = dict(_read_quote(kind, as_key(name), price) for name, price in value.items())
        else:
            raise UnknownName.key(where, value, (*QUOTE_KINDS, ENERGY_KEY))
    return quotes


def _read_quote(kind: str, name: str, price: Any) -> tuple[str, float]:
    """Return the name under which the catalog has a part, and the dollars that are quoted for it."""
    entry_kind, link_kinds = QUOTE_KINDS[kind]
    where = f"{PRICES_KEY}.{kind}.{name}"
    resolved = catalog_entries.resolve_name(entry_kind, name)
    if resolved is None or (link_kinds and catalog_entries.read_entry(entry_kind, resolved)["kind"] not in link_kinds):
        entries = [
            entry_name
            for entry_name in catalog_entries.entry_names(entry_kind)
            if not link_kinds or catalog_entries.read_entry(entry_kind, entry_name)["kind"] in link_kinds
        ]
        raise UnknownName.among(where, name, "part", entries)
    require(isinstance(price, str), where, price, "must be a price, such as 30 kUSD")
    dollars = units.read_quantity(price, units.USD)
    require(dollars >= 0, where, price, "must not be negative")
    return resolved, dollars


def apply_prices(tree: Mapping[str, Any], prices: Any) -> dict[str, Any]:
    """Return a design's *tree* with quoted prices in place of its own.

    The tree says in full what the machine is: accelerator, node, and dimensions with their fabrics.

    >>> tree = {"compute": {"accelerator": "h100-sxm-80gb", "price": "28 kUSD"}}
    >>> apply_prices(tree, {"accelerators": {"h100-sxm-80gb": "25 kUSD"}})["compute"]["price"]
    '25000 USD'
    """
    priced: dict[str, Any] = merge_trees(tree, unflatten_paths(price_fields(tree, prices)))
    return priced


def price_fields(tree: Mapping[str, Any], prices: Any) -> dict[str, Any]:
    """Return the fields that quotes set, by path, as a file has them."""
    quotes = read_prices(prices)
    compute, node = tree.get("compute", {}), tree.get("node", {})
    fields: dict[str, Any] = {}
    own = quotes.get("accelerators", {}).get(compute.get("accelerator", ""))
    if own is not None:
        fields["compute.price"] = units.format_quantity(own, units.USD)
    node_price = quotes.get("nodes", {}).get(node.get("name", ""))
    if node_price is not None:
        fields["node.host_price"] = _host_price(node_price, own, node)
    for index, dim in enumerate(tree.get("network", {}).get("dims", ())):
        where = f"network.dims.{index}"
        fields |= {f"{where}.fabric.{key}": price for key, price in _fabric_prices(dim, quotes).items()}
    if ENERGY_KEY in quotes:
        fields["facility.usd_per_kwh"] = quotes[ENERGY_KEY][""]
    return fields


def _host_price(node_price: float, own: float | None, node: Mapping[str, Any]) -> str:
    """Return the host's part of a node's price: less the quoted or listed prices of its accelerators."""
    name, accelerator, npus = node["name"], node.get("accelerator", ""), node.get("npus", 1)
    listed = catalog_entries.read_entry("accelerators", accelerator)["compute"].get("price")
    accelerator_price = own if own is not None else units.read_quantity(listed, units.USD) if listed else None
    where = f"{PRICES_KEY}.nodes.{name}"
    require(
        accelerator_price is not None,
        where,
        node_price,
        f"its host is what {accelerator} leaves of it: quote its price as well",
    )
    host_price = node_price - npus * (accelerator_price or 0.0)
    require(
        host_price >= 0, where, node_price, f"is less than its {npus} accelerators have together: quote theirs as well"
    )
    return units.format_quantity(host_price, units.USD)


def _fabric_prices(dim: Mapping[str, Any], quotes: Quotes) -> dict[str, str]:
    """Return the prices of a fabric's parts that are quoted."""
    switch = dim.get("fabric", {}).get("switch")
    if not switch:
        return {}
    dollars = {name: price for kind in ("switches", "optics", "cables") for name, price in quotes.get(kind, {}).items()}
    return switch_figures(switch, quoted=dollars)
