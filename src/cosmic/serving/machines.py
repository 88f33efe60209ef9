"""The machines of a pool: its share of the design's network, or a system of the catalog."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from math import prod
from typing import Any

import numpy as np

from cosmic import catalog
from cosmic.arithmetic import divisors, even_split, splits
from cosmic.catalog.fabrics import with_switches
from cosmic.catalog.hosts import node_of
from cosmic.catalog.systems import REST, dimensions_of, system_entry
from cosmic.design import schema
from cosmic.design.batch import Label
from cosmic.design.collective import Collective
from cosmic.design.compute import Compute
from cosmic.design.memory import Memory
from cosmic.design.network import Network, topologies
from cosmic.design.node import Node

AS_MANY = 2
"""Stands for the size of a dimension that grows with the accelerators, until a pool cuts its own."""


def sizes_within(dims: tuple[int, ...], npus: int, instance: int, alike: tuple[bool, ...] = ()) -> tuple[int, ...]:
    """Return the size of each dimension, innermost first, for *npus* accelerators of a network with *dims*.

    Dimensions are filled from the inside, the last takes the rest. Instances of so many accelerators stay whole: 12
    accelerators of nodes of 8 are 3 nodes of 4 if an instance has 4 or 2.

    Neighbouring dimensions that are *alike* (a flag for each, which says so of it and the one before) are one torus,
    filled as a slice of its own, as Cloud TPUs are allotted: as near to a cube as the number allows, whatever the size
    of the machine that it is cut out of.

    >>> [sizes_within((8, 8), npus, one) for npus, one in ((24, 8), (12, 4), (4, 4), (32, 16))]
    [(8, 3), (4, 3), (4, 1), (8, 4)]
    >>> [sizes_within(torus, 8, 8, (False, True)) for torus in ((2, 4), (4, 4), (16, 16), (3, 8))]
    [(2, 4), (2, 4), (2, 4), (2, 4)]
    """
    if npus == instance == prod(dims):
        return dims
    return tuple(_filled(_tori(dims, alike), npus, instance))


def _tori(dims: tuple[int, ...], alike: tuple[bool, ...]) -> list[tuple[int, ...]]:
    """Return dimensions in groups of those that are alike.

    >>> _tori((4, 4, 4, 8), (False, True, True, False))
    [(4, 4, 4), (8,)]
    """
    found: list[tuple[int, ...]] = []
    for place, size in enumerate(dims):
        if place and alike and alike[place]:
            found[-1] = (*found[-1], size)
        else:
            found.append((size,))
    return found


def _filled(tori: list[tuple[int, ...]], npus: int, instance: int) -> Iterator[int]:
    for torus in tori[:-1]:
        fitting = (part for part in reversed(divisors(npus)) if part % instance == 0 or instance % part == 0)
        chosen = next(found for part in fitting if (found := _slice_of(torus, part)))  # of one accelerator, any torus
        yield from chosen
        taken = prod(chosen)
        npus, instance = npus // taken, max(1, instance // taken)
    for torus in tori[-1:]:
        yield from _slice_of(torus, npus) or even_split(npus, len(torus))


@cache
def _slice_of(torus: tuple[int, ...], npus: int) -> tuple[int, ...]:
    """Return the sizes of *npus* accelerators of a torus, as equal as it has room for; none where it has not.

    >>> _slice_of((4, 4), 4), _slice_of((2, 16), 16), _slice_of((4, 4), 6), _slice_of((4, 4), 10)
    ((2, 2), (2, 8), (2, 3), ())
    """
    room = sorted(torus)
    even = even_split(npus, len(torus))
    if _fits(even, room):
        return even
    fitting = (each for each in splits(npus, len(torus)) if list(each) == sorted(each) and _fits(each, room))
    return min(fitting, key=lambda each: each[::-1], default=())


def _fits(sizes: tuple[int, ...], room: list[int]) -> bool:
    return all(size <= most for size, most in zip(sizes, room, strict=True))


def kept_share(topology: Label, npus: Any, cut: Any) -> Any:
    """Return the share of its bandwidth that an accelerator keeps where *cut* of the *npus* of a dimension are cut out.

    Where each has a link to every other, links to those outside do not help.

    >>> float(kept_share("fully_connected", 8, 4)), float(kept_share("switch", 8, 4))
    (0.42857142857142855, 1.0)
    """
    npus, cut = np.asarray(npus, dtype=float), np.asarray(cut, dtype=float)
    share = np.where((cut > 1) & (cut < npus), (cut - 1) / np.maximum(npus - 1, 1), 1.0)
    return np.where(topology == "fully_connected", share, 1.0)


@cache
def machine_of(system: str) -> tuple[Compute, Memory, Network, Collective, Node]:
    """Return the layers of the machines of a system of the catalog; how many there are is for a pool to say."""
    entry = system_entry(system, None)
    accelerator = catalog.entry("accelerators", entry["accelerator"])
    where = f"systems/{system}.yaml"
    compute = {**accelerator["compute"], **entry.get("compute", {}), "accelerator": entry["accelerator"]}
    memory = {**accelerator["memory"], **entry.get("memory", {})}
    dims = [_sized(dim) for dim in dimensions_of(entry, where)]
    network: Network = schema.read(Network, with_switches({"dims": dims}), f"{where} network")
    given = entry.get("collective", {})
    if len(given.get("algorithms", [])) != len(dims):
        given = {**given, "algorithms": [topologies[dim.topology].algorithm for dim in network.dims]}
    return (
        schema.read(Compute, compute, f"{where} compute"),
        schema.read(Memory, memory, f"{where} memory"),
        network,
        schema.read(Collective, given, f"{where} collective"),
        schema.read(Node, node_of(entry["node"]) if "node" in entry else {}, f"{where} node"),
    )


def _sized(dim: dict[str, Any]) -> dict[str, Any]:
    return {**dim, "npus": AS_MANY} if dim["npus"] == REST else dim
