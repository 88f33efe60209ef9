"""Systems of the catalog, brought to size: ``dgx-h100:512`` is 512 of them."""

from __future__ import annotations

from math import prod
from typing import Any

from cosmic import catalog
from cosmic.arithmetic import even_split
from cosmic.errors import SpecError

REST = "rest"
"""Marks a dimension, in a system's file, that grows with the number of NPUs."""


def system(name: str) -> dict[str, Any]:
    """Return the entry of a system, its dimensions made as large as *name* asks (``NAME`` or ``NAME:NPUS``).

    >>> [dim["npus"] for dim in system("dgx-h100:512")["network"]["dims"]]
    [8, 64]
    """
    stem, _, count = name.partition(":")
    entry = catalog.entry("systems", stem)
    npus = _count(name, count) if count else entry["npus"]
    dims = entry["network"]["dims"]
    sizes = _sizes(name, npus, [dim["npus"] for dim in dims])
    resized = [{**dim, "npus": size} for dim, size in zip(dims, sizes, strict=True) if size > 1]
    return {**entry, "npus": npus, "network": {"dims": resized}}


def _count(name: str, text: str) -> int:
    if not (text.isdecimal() and text.isascii() and 1 <= len(text) <= 9 and int(text) >= 1):
        raise SpecError("system", name, "what follows the colon must be a number of NPUs")
    return int(text)


def _sizes(name: str, npus: int, pattern: list[Any]) -> list[int]:
    """Return the size of each dimension for *npus* NPUs: fixed ones fill up from the inside, the rest share."""
    if REST not in pattern and npus != prod(pattern):
        raise SpecError("system", name, f"has a fixed size of {prod(pattern)} NPUs")
    left = npus
    sizes = []
    for size in pattern:
        if size == REST:
            break
        filled = min(size, left)
        if left % filled or size % filled:
            raise SpecError("system", name, f"must be a multiple or a divisor of {size} NPUs, its innermost group")
        sizes.append(filled)
        left //= filled
    return [*sizes, *even_split(left, len(pattern) - len(sizes))]
