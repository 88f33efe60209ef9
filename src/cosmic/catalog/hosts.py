"""Nodes as they are sold, taken apart: what of their price and power is of accelerators, and what of hosts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cosmic import catalog, units
from cosmic.errors import require


def node_of(name: str) -> dict[str, Any]:
    """Return the node layer of an entry of the catalog, as a design file states it.

    A host is what is left of a node without its accelerators. Where a price or a power of either is not known, that of
    the host is not.

    >>> node = node_of("dgx-h100")
    >>> node["accelerator"], node["npus"], node["host_price"], node["host_power"]
    ('h100-sxm-80gb', 8, '76000 USD', '4.6 kW')
    """
    entry = catalog.entry("nodes", name)
    accelerator, npus = str(entry.get("accelerator", "")), int(entry.get("npus", 1))
    require(bool(accelerator), f"nodes/{name}.yaml accelerator", None, "a node says which accelerator it has")
    own = catalog.entry("accelerators", accelerator)["compute"]
    found = {"name": catalog.known_as("nodes", name) or name, "accelerator": accelerator, "npus": npus}
    for key, dimension in (("price", units.USD), ("power", units.WATTS)):
        if key in entry and key in own:
            left = units.read(entry[key], dimension) - npus * units.read(own[key], dimension)
            rule = f"is less than its {npus} accelerators have together"
            require(left >= 0, f"nodes/{name}.yaml {key}", entry[key], rule)
            found[f"host_{key}"] = units.show(left, dimension)
    return found


def outer_tiers(node: str, system: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """Return the memory behind one accelerator of a node, or of a *system* that states it: host, drives.

    Empty where it is not known: many nodes are sold with any amount.

    >>> [(each["name"], each["capacity"]) for each in outer_tiers("dgx-h100")], outer_tiers("mi300x-8x")
    ([('host', '250 GB'), ('ssd', '3.84 TB')], [])
    """
    if system and "tiers" in system:
        return [dict(each) for each in system["tiers"]]
    known = catalog.known_as("nodes", node) if node else None
    return [dict(each) for each in catalog.entry("nodes", known).get("tiers", [])] if known else []
