"""Systems at any size: ``dgx-h100:512`` of the catalog, or a file of one's own, ``my-system.yaml:512``."""

from __future__ import annotations

from itertools import groupby
from math import prod
from pathlib import Path
from typing import Any

from cosmic.base.errors import SpecError, require
from cosmic.base.files import is_file
from cosmic.base.numeric import divisors, even_factors
from cosmic.base.units import BYTES_PER_S, format_quantity, read_quantity
from cosmic.design import catalog_entries, schema
from cosmic.design.network_layer import Dimension

REST_OF_NPUS = "rest"
"""Marks a dimension, in a system's file, that grows with the number of NPUs."""
LARGE_DOMAIN = 16
"""NPUs from which the innermost dimension is a rack, which jobs may use in part, and not a host."""
LEAST_SHARE = 3 / 4
"""Of each of several racks, in use: nobody spreads a job over more racks than that."""
DATA_CENTRE = {"topology": "switch", "bandwidth": "6.25 GB/s", "link": "data-centre"}
"""What joins islands of a system whose entry has nothing ``between`` them: 400 Gb/s for a host of 8, 6.25 GB/s each."""
LINK_KEYS = ("latency", "transport")
"""Keys that a dimension takes from its link, unless it has its own."""


YAML_ENDINGS = (".yaml", ".yml")
NO_FILES_RULE = "is not in the catalog, and what a study keeps refers to no file"


def split_size(name: str) -> tuple[str, str]:
    """Return a system's name, or the path of its file, and the size that it is asked for, as text.

    >>> split_size("dgx-h100:512"), split_size("c:/my.yaml"), split_size("a:b/my.yaml:64")
    (('dgx-h100', '512'), ('c:/my.yaml', ''), ('a:b/my.yaml', '64'))
    """
    if name.endswith(YAML_ENDINGS):
        return name, ""
    path, _, count = name.rpartition(":")
    if path.endswith(YAML_ENDINGS):
        return path, count
    stem, _, count = name.partition(":")
    return stem, count


def is_model_at_system(source: str) -> bool:
    """Return whether *source* is MODEL@SYSTEM, not the path of a file; SYSTEM may be the path of one.

    >>> is_model_at_system("llama3-8b@dgx-h100:8"), is_model_at_system("llama3-8b@my-system.yaml"), is_model_at_system("design.yaml")
    (True, True, False)
    """
    return "@" in source and not (source.endswith(YAML_ENDINGS) and is_file(source))


def read_system_entry(stem: str, folder: Path | None = Path()) -> dict[str, Any]:
    """Return the entry of a system of the catalog, or of the file that *stem* names, in *folder*; None: no files."""
    if not stem.endswith(YAML_ENDINGS):
        return catalog_entries.read_entry("systems", stem)
    if folder is None:
        raise SpecError("system", stem, NO_FILES_RULE)
    return catalog_entries.read_entry_at("systems", folder / stem)


def read_system(name: str, folder: Path | None = Path()) -> dict[str, Any]:
    """Return the entry of a system with dimensions of the size that *name* asks for (``NAME`` or ``NAME:NPUS``).

    ``NAME:SLICESxNPUS`` is so many slices of so many NPUs each, joined by what the entry has ``between`` slices.

    NAME may be the path of a YAML file, relative to *folder*; where that is None, nothing is taken for a path.
    Fixed dimensions are filled from the inside. Where 72 NPUs of a rack do not divide the size, the largest divisor
    below is used: 256 NPUs are 64 in each of 4 racks. A size that would leave more than a quarter of each of several
    racks idle, as 100 in two racks of 50, is refused.

    >>> [dim["npus"] for dim in read_system("dgx-h100:512")["network"]["dims"]]
    [8, 64]
    >>> [dim["npus"] for dim in read_system("gb200-nvl72:256")["network"]["dims"]]
    [64, 4]
    >>> [dim["npus"] for dim in read_system("tpu-v5p:2x64")["network"]["dims"]]
    [4, 4, 4, 2]
    """
    stem, count = split_size(name)
    entry = read_system_entry(stem, folder)
    compute = entry.get("compute", {})
    require(isinstance(compute, dict), f"{stem} compute", compute, "must be a mapping of keys to values")
    slices, times, slice_npus = count.rpartition("x")
    npus = _parse_count(name, slice_npus) if count else entry["npus"]
    dims = entry_dimensions(entry, stem if stem.endswith(YAML_ENDINGS) else f"systems/{stem}.yaml")
    sizes = _square_sizes(dims, _dimension_sizes(name, npus, [dim["npus"] for dim in dims]))
    if times:
        dims, sizes = [*dims, _slice_dimension(entry, name)], [*sizes, _parse_count(name, slices)]
        npus *= sizes[-1]
    used = [index for index, size in enumerate(sizes) if size > 1]
    resized = {
        **entry,
        "npus": npus,
        "network": {"dims": [_resize_dimension(dims[index], sizes[index]) for index in used]},
    }
    collective = entry.get("collective", {})
    if len(collective.get("algorithms", [])) == len(sizes):
        algorithms = [collective["algorithms"][index] for index in used]
        resized["collective"] = {**collective, "algorithms": algorithms}
    return resized


def system_dimensions(name: str) -> list[dict[str, Any]]:
    """Return the dimensions of a system as in its file, completed from the entries of their links.

    >>> system_dimensions("dgx-h100")[0]["npus"], sorted(set(system_dimensions("dgx-h100")[0]) - {"npus"})
    (8, ['bandwidth', 'fabric', 'latency', 'topology', 'transport'])
    """
    return entry_dimensions(catalog_entries.read_entry("systems", name), f"systems/{name}.yaml")


def count_instance_npus(name: str) -> int:
    """Return the NPUs of one instance of the dimensions that do not grow with a system: those of a node or rack.

    >>> count_instance_npus("gh200"), count_instance_npus("trn2"), count_instance_npus("tpu-v4")
    (4, 16, 1)
    """
    return prod(dim["npus"] for dim in system_dimensions(name) if dim["npus"] != REST_OF_NPUS)


def entry_dimensions(entry: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the dimensions of the *entry* of a system, completed from the entries of their links."""
    dims = entry["network"].get("dims")
    where = f"{name} network.dims"
    require(isinstance(dims, list), where, dims, "must be a list of dimensions, innermost first")
    for index, dim in enumerate(dims):
        size = dim.get("npus") if isinstance(dim, dict) else None
        valid = size == REST_OF_NPUS or (isinstance(size, int) and not isinstance(size, bool) and size >= 2)
        require(valid, f"{where}.{index}.npus", size, f"must be a whole number of at least 2, or {REST_OF_NPUS}")
    return [_fill_link(dim) for dim in dims]


def link_dimension(link: str, npus: int, topology: str = "switch") -> Dimension:
    """Return a dimension of *npus* NPUs over a link of the catalog, at its bandwidth.

    >>> link_dimension("nvlink4", 8).bandwidth_bytes_per_s
    450000000000.0
    """
    bandwidth = catalog_entries.read_entry("links", link)["bandwidth"]
    tree = _fill_link({"link": link, "topology": topology, "npus": npus, "bandwidth": bandwidth})
    dim: Dimension = schema.read_value(Dimension, tree, "network.dims")
    return dim


def _fill_link(dim: dict[str, Any]) -> dict[str, Any]:
    """Return a dimension with its link's keys in place of the link's name."""
    if "link" not in dim:
        return dim
    of_link = catalog_entries.read_entry("links", dim["link"])
    link_keys = {key: of_link[key] for key in LINK_KEYS if key in of_link}
    return link_keys | {key: value for key, value in dim.items() if key != "link"}


def _slice_dimension(entry: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the dimension between slices of a system."""
    dim = entry["network"].get("between", DATA_CENTRE)
    require(isinstance(dim, dict), "system", name, "has no slices: give its NPUs alone")
    return _fill_link(dim)


def _parse_count(name: str, text: str) -> int:
    if not (text.isdecimal() and text.isascii() and 1 <= len(text) <= 9 and int(text) >= 1):
        raise SpecError("system", name, "what follows the colon must be a number of NPUs")
    return int(text)


def _resize_dimension(dim: dict[str, Any], npus: int) -> dict[str, Any]:
    """Resize a dimension to *npus* NPUs; a smaller fully connected group has fewer links per NPU."""
    resized, full_size = {**dim, "npus": npus}, dim.get("npus", REST_OF_NPUS)
    if full_size in (REST_OF_NPUS, npus) or dim.get("topology") != "fully_connected":
        return resized
    # A link to every other NPU: with fewer NPUs an NPU has fewer links, each as fast as before.
    bandwidth = read_quantity(dim.get("bandwidth"), BYTES_PER_S) * (npus - 1) / (full_size - 1)
    return {**resized, "bandwidth": format_quantity(bandwidth, BYTES_PER_S)}


def _square_sizes(dims: list[dict[str, Any]], sizes: list[int]) -> list[int]:
    """Return *sizes* with a part of a torus, dimensions alike, as nearly square as can be: 8 of 4 × 4 are 2 × 4."""
    squared: list[int] = []
    for _, run in groupby(range(len(dims)), lambda index: dims[index]):
        indices = list(run)
        filled = [sizes[index] for index in indices]
        squared += (
            filled if filled == [dims[index]["npus"] for index in indices] else even_factors(prod(filled), len(filled))
        )
    return squared


def _require_filled(name: str, npus: int, step: int, filled: int, several: bool, size: int) -> None:
    """Refuse a size that uses little of each of *several* racks: name the nearest of whole ones."""
    if not several or filled >= LEAST_SHARE * size:
        return
    below = npus // step * step
    rule = f"would use {filled} of the {size} NPUs of each rack: take whole ones, {below} or {below + step} NPUs"
    raise SpecError("system", name, rule)


def _dimension_sizes(name: str, npus: int, pattern: list[Any]) -> list[int]:
    """Return the size of each dimension for *npus* NPUs: fixed ones fill from the inside, others share the rest."""
    if REST_OF_NPUS not in pattern and npus != prod(pattern):
        raise SpecError("system", name, f"has a fixed size of {prod(pattern)} NPUs")
    remaining = npus
    sizes = []
    for size in pattern:
        if size == REST_OF_NPUS:
            break
        # Fixed dimensions fill from the inside: a node, then a rack; what is left goes to those that share the rest.
        filled = min(size, remaining)
        if size >= LARGE_DOMAIN:
            filled = max(part for part in divisors(remaining) if part <= size)
            _require_filled(name, npus, npus // remaining * size, filled, remaining > size, size)
        elif remaining % filled or size % filled:
            raise SpecError("system", name, f"must be a multiple or a divisor of {size} NPUs, its innermost group")
        sizes.append(filled)
        remaining //= filled
    return [*sizes, *even_factors(remaining, len(pattern) - len(sizes))]
