"""Systems of the catalog at any size: ``dgx-h100:512`` has 512 NPUs."""

from __future__ import annotations

from math import prod
from typing import Any

from cosmic import catalog
from cosmic.arithmetic import divisors, even_split
from cosmic.design import schema
from cosmic.design.network import Dimension
from cosmic.errors import SpecError, require

REST = "rest"
"""Marks a dimension, in a system's file, that grows with the number of NPUs."""
LARGE_DOMAIN = 16
"""NPUs from which the innermost dimension is a rack, which jobs may use in part, and not a host."""
OF_LINK = ("latency", "transport")
"""Keys that a dimension takes from its link, unless it has its own."""


def system(name: str) -> dict[str, Any]:
    """Return the entry of a system with dimensions of the size that *name* asks for (``NAME`` or ``NAME:NPUS``).

    Fixed dimensions are filled from the inside. Where 72 NPUs of a rack do not divide the size, the largest divisor
    below is used: 256 NPUs are 64 in each of 4 racks.

    >>> [dim["npus"] for dim in system("dgx-h100:512")["network"]["dims"]]
    [8, 64]
    >>> [dim["npus"] for dim in system("gb200-nvl72:256")["network"]["dims"]]
    [64, 4]
    """
    stem, _, count = name.partition(":")
    entry = catalog.entry("systems", stem)
    npus = _count(name, count) if count else entry["npus"]
    dims = dimensions(stem)
    sizes = _sizes(name, npus, [dim["npus"] for dim in dims])
    kept = [place for place, size in enumerate(sizes) if size > 1]
    resized = {**entry, "npus": npus, "network": {"dims": [{**dims[place], "npus": sizes[place]} for place in kept]}}
    collective = entry.get("collective", {})
    if len(collective.get("algorithms", [])) == len(sizes):
        algorithms = [collective["algorithms"][place] for place in kept]
        resized["collective"] = {**collective, "algorithms": algorithms}
    return resized


def dimensions(name: str) -> list[dict[str, Any]]:
    """Return the dimensions of a system as in its file, completed from the entries of their links.

    >>> dimensions("dgx-h100")[0]["npus"], sorted(set(dimensions("dgx-h100")[0]) - {"npus"})
    (8, ['bandwidth', 'latency', 'topology', 'transport'])
    """
    dims = catalog.entry("systems", name)["network"].get("dims")
    where = f"systems/{name}.yaml network.dims"
    require(isinstance(dims, list), where, dims, "must be a list of dimensions, innermost first")
    for place, dim in enumerate(dims):
        size = dim.get("npus") if isinstance(dim, dict) else None
        whole = size == REST or (isinstance(size, int) and not isinstance(size, bool) and size >= 2)
        require(whole, f"{where}.{place}.npus", size, f"must be a whole number of at least 2, or {REST}")
    return [_linked(dim) for dim in dims]


def link_dimension(link: str, npus: int, topology: str = "switch") -> Dimension:
    """Return a dimension of *npus* NPUs over a link of the catalog, at its bandwidth.

    >>> link_dimension("nvlink4", 8).bandwidth_bytes_per_s
    450000000000.0
    """
    bandwidth = catalog.entry("links", link)["bandwidth"]
    tree = _linked({"link": link, "topology": topology, "npus": npus, "bandwidth": bandwidth})
    dim: Dimension = schema.read(Dimension, tree, "network.dims")
    return dim


def _linked(dim: dict[str, Any]) -> dict[str, Any]:
    """Return a dimension with its link's keys in place of the link's name."""
    if "link" not in dim:
        return dim
    of_link = catalog.entry("links", dim["link"])
    known = {key: of_link[key] for key in OF_LINK if key in of_link}
    return known | {key: value for key, value in dim.items() if key != "link"}


def _count(name: str, text: str) -> int:
    if not (text.isdecimal() and text.isascii() and 1 <= len(text) <= 9 and int(text) >= 1):
        raise SpecError("system", name, "what follows the colon must be a number of NPUs")
    return int(text)


def _sizes(name: str, npus: int, pattern: list[Any]) -> list[int]:
    """Return the size of each dimension for *npus* NPUs: fixed ones fill from the inside, others share the rest."""
    if REST not in pattern and npus != prod(pattern):
        raise SpecError("system", name, f"has a fixed size of {prod(pattern)} NPUs")
    left = npus
    sizes = []
    for size in pattern:
        if size == REST:
            break
        filled = min(size, left)
        if size >= LARGE_DOMAIN:
            filled = max(part for part in divisors(left) if part <= size)
        elif left % filled or size % filled:
            raise SpecError("system", name, f"must be a multiple or a divisor of {size} NPUs, its innermost group")
        sizes.append(filled)
        left //= filled
    return [*sizes, *even_split(left, len(pattern) - len(sizes))]
