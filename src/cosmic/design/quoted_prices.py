"""A user's quotes: prices of accelerators, nodes, switches, optics, cables and energy, put into a design's fields.

    accelerators: {h100-sxm-80gb: 25 kUSD}
    nodes: {dgx-h100: 280 kUSD}                # a whole one, with its accelerators
    switches: {quantum-2: 30 kUSD}             # of a circuit switch, with all its ports
    optics: {400g-dr4-transceiver: 400 USD}
    cables: {mpo-fibre: 120 USD}
    energy: 0.06 USD/kWh

Names are those of the catalog, also of a user's own. A quote of what a design does not have is not used. What is set
of a design besides (``--set compute.price=…``) stands before a quote, and a quote before the catalog.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cosmic.base import units
from cosmic.base.errors import UnknownName, as_key, require
from cosmic.design import catalog_entries
from cosmic.design.catalog_parts import switch_figures
from cosmic.design.plain_data import merge_trees, unflatten_paths

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


def read_prices(given: Any) -> Quotes:
    """Return the quotes of a file's content; unknown kinds and names are errors.

    >>> read_prices({"switches": {"quantum-2": "30 kUSD"}, "energy": "0.06 USD/kWh"})
    {'switches': {'quantum-2-qm9700-ndr-64x400g': 30000.0}, 'energy': {'': 0.06}}
    """
    require(isinstance(given, Mapping), PRICES_KEY, given, "must map kinds of parts to prices by name")
    found: Quotes = {}
    for key, value in given.items():
        kind = as_key(key)
        where = f"{PRICES_KEY}.{kind}"
        if kind == ENERGY_KEY:
            rate = units.read_quantity(value, USD_PER_J) if isinstance(value, str) else None
            require(rate is not None and rate >= 0, where, value, "must be a price of energy, such as 0.06 USD/kWh")
            found[kind] = {"": round((rate or 0.0) * J_PER_KWH, 12)}
        elif kind in QUOTE_KINDS:
            require(isinstance(value, Mapping), where, value, "must map names of the catalog to prices")
            found[kind] = dict(_read_quote(kind, as_key(name), price) for name, price in value.items())
        else:
            raise UnknownName.key(where, value, (*QUOTE_KINDS, ENERGY_KEY))
    return found


def _read_quote(kind: str, name: str, price: Any) -> tuple[str, float]:
    """Return the name under which the catalog has a part, and the dollars that are quoted for it."""
    of, called = QUOTE_KINDS[kind]
    where = f"{PRICES_KEY}.{kind}.{name}"
    known = catalog_entries.resolve_name(of, name)
    if known is None or (called and catalog_entries.read_entry(of, known)["kind"] not in called):
        entries = [
            entry_name
            for entry_name in catalog_entries.entry_names(of)
            if not called or catalog_entries.read_entry(of, entry_name)["kind"] in called
        ]
        raise UnknownName.among(where, name, "part", entries)
    require(isinstance(price, str), where, price, "must be a price, such as 30 kUSD")
    dollars = units.read_quantity(price, units.USD)
    require(dollars >= 0, where, price, "must not be negative")
    return known, dollars


def apply_prices(tree: Mapping[str, Any], prices: Any) -> dict[str, Any]:
    """Return a design's *tree* with quoted prices in place of its own.

    The tree says in full what the machine is: accelerator, node, and dimensions with their fabrics.

    >>> tree = {"compute": {"accelerator": "h100-sxm-80gb", "price": "28 kUSD"}}
    >>> apply_prices(tree, {"accelerators": {"h100-sxm-80gb": "25 kUSD"}})["compute"]["price"]
    '25000 USD'
    """
    found: dict[str, Any] = merge_trees(tree, unflatten_paths(price_fields(tree, prices)))
    return found


def price_fields(tree: Mapping[str, Any], prices: Any) -> dict[str, Any]:
    """Return the fields that quotes set, by path, as a file has them."""
    quotes = read_prices(prices)
    compute, node = tree.get("compute", {}), tree.get("node", {})
    found: dict[str, Any] = {}
    own = quotes.get("accelerators", {}).get(compute.get("accelerator", ""))
    if own is not None:
        found["compute.price"] = units.format_quantity(own, units.USD)
    whole = quotes.get("nodes", {}).get(node.get("name", ""))
    if whole is not None:
        found["node.host_price"] = _host_price(whole, own, node)
    for index, dim in enumerate(tree.get("network", {}).get("dims", ())):
        where = f"network.dims.{index}"
        found |= {f"{where}.fabric.{key}": price for key, price in _fabric_prices(dim, quotes).items()}
    if ENERGY_KEY in quotes:
        found["facility.usd_per_kwh"] = quotes[ENERGY_KEY][""]
    return found


def _host_price(whole: float, own: float | None, node: Mapping[str, Any]) -> str:
    """Return what is left of the price of a node: its accelerators cost what is quoted, or what the catalog has."""
    name, accelerator, npus = node["name"], node.get("accelerator", ""), node.get("npus", 1)
    listed = catalog_entries.read_entry("accelerators", accelerator)["compute"].get("price")
    each = own if own is not None else units.read_quantity(listed, units.USD) if listed else None
    where = f"{PRICES_KEY}.nodes.{name}"
    require(each is not None, where, whole, f"its host is what {accelerator} leaves of it: quote its price as well")
    left = whole - npus * (each or 0.0)
    require(left >= 0, where, whole, f"is less than its {npus} accelerators have together: quote theirs as well")
    return units.format_quantity(left, units.USD)


def _fabric_prices(dim: Mapping[str, Any], quotes: Quotes) -> dict[str, str]:
    """Return the prices of a fabric's parts that are quoted."""
    switch = dim.get("fabric", {}).get("switch")
    if not switch:
        return {}
    dollars = {name: price for kind in ("switches", "optics", "cables") for name, price in quotes.get(kind, {}).items()}
    return switch_figures(switch, quoted=dollars)
