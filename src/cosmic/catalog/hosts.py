"""Nodes as they are sold, taken apart: what of their price and power is of accelerators, and what of hosts."""

from __future__ import annotations

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
    require("accelerator" in entry, f"nodes/{name}.yaml accelerator", None, "a node says which accelerator it has")
    accelerator, npus = entry["accelerator"], entry["npus"]
    own = catalog.entry("accelerators", accelerator)["compute"]
    found = {"name": catalog.known_as("nodes", name) or name, "accelerator": accelerator, "npus": npus}
    for key, dimension in (("price", units.USD), ("power", units.WATTS)):
        if key in entry and key in own:
            left = units.read(entry[key], dimension) - npus * units.read(own[key], dimension)
            rule = f"is less than its {npus} accelerators have together"
            require(left >= 0, f"nodes/{name}.yaml {key}", entry[key], rule)
            found[f"host_{key}"] = units.show(left, dimension)
    return found
