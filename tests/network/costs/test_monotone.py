"""More bandwidth or less latency of any dimension never makes a collective slower: random pairs of every kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from typing import Any, get_args

import numpy as np
import pytest

from cosmic.design.collective_layer import CollectiveKind, algorithms
from cosmic.design.design_batch import Names
from cosmic.design.network_layer import Transport, topologies
from cosmic.network.collective_costs import (
    NetworkDimension,
    Subgroup,
    barrier_seconds,
    broadcast_seconds,
    collective_seconds,
    send_seconds,
    subgroups,
)
from cosmic.network.mesh_spans import Span
from cosmic.network.transport_protocols import IDEAL, TransportColumns

KINDS: tuple[CollectiveKind, ...] = get_args(CollectiveKind)
MODES = ("baseline", "blueconnect", "themis")
ROUNDING = 1e-12
PAIRS = 1500
LATE = ("overhead_s", "bulk_s", "bulk_latency_s", "reduction_s")

FORMULAS = [name for name in algorithms if name != "synthesized"]
"""Algorithms whose cost is a formula: schedules take long to make, and have tests of their own."""


def names(rng: np.random.Generator, of: Any, count: int) -> Names:
    known = tuple(sorted(of))
    return Names(known, rng.integers(0, len(known), count))


def transports(rng: np.random.Generator, count: int) -> TransportColumns:
    """Return what libraries might make of links, fields drawn far beyond those of the catalog."""

    def seconds() -> Any:
        return rng.choice([0.0, 1e-6, 2e-5], count) * rng.uniform(0.5, 2, count)

    found = {each.name: seconds() for each in fields(Transport)}
    found |= {name: rng.uniform(0.1, 1, count) for name in ("efficiency", "direct_share", "direct_small_share")}
    for name in ("small_efficiency", "reduction_efficiency"):
        found[name] = rng.choice([0.0, 1.0], count) * rng.uniform(0.05, 1, count)
    found["copy_share"] = rng.choice([0.0, 0.3], count)
    found["contention"] = rng.choice([0.0, 0.2], count)
    return TransportColumns(**found)


def networks(rng: np.random.Generator, dims: int, count: int, measured: bool) -> list[NetworkDimension]:
    found = []
    for _ in range(dims):
        bandwidth = np.where(rng.random(count) < 0.5, rng.choice(np.arange(1, 11) * 50e9, count), 0.0)
        bandwidth = np.where(bandwidth > 0, bandwidth, 10 ** rng.uniform(9, 12, count))
        latency = rng.choice([0.0, 1e-7, 1e-6, 1e-5], count) * rng.uniform(0.5, 2, count)
        npus = rng.choice([2.0, 3.0, 4.0, 6.0, 8.0, 16.0, 64.0], count)
        topology, algorithm = names(rng, topologies, count), names(rng, FORMULAS, count)
        transport = transports(rng, count) if measured else IDEAL
        found.append(NetworkDimension(topology, npus, bandwidth, latency, algorithm, transport))
    return found


def members(rng: np.random.Generator, dim: NetworkDimension) -> Any:
    """Return members of groups: one, all NPUs, some, or an average of them."""
    count = len(np.atleast_1d(dim.npus))
    share = rng.choice([0.0, 0.5, 1.0, 1.0, 0.37], count)
    return np.maximum(1.0, share * dim.npus)


def better(rng: np.random.Generator, dims: list[NetworkDimension], count: int) -> list[NetworkDimension]:
    """Return the networks with one field of one dimension better, each design's own."""
    which, what = rng.integers(0, len(dims), count), rng.choice(["bandwidth", "latency", *LATE], count)
    found = []
    for place, dim in enumerate(dims):
        mine = which == place
        more = rng.choice([0.0, 50e9], count) + dim.bandwidth_bytes_per_s * rng.choice([1.001, 1.3, 2, 16], count)
        less = rng.choice([0.0, 0.5, 0.99], count)
        changes = {
            "bandwidth_bytes_per_s": np.where(mine & (what == "bandwidth"), more, dim.bandwidth_bytes_per_s),
            "latency_s": np.where(mine & (what == "latency"), less * dim.latency_s, dim.latency_s),
        }
        transport = dim.transport
        if isinstance(transport, TransportColumns):
            late = {name: getattr(transport, name) for name in LATE}
            late = {name: np.where(mine & (what == name), less * value, value) for name, value in late.items()}
            transport = replace(transport, **late)
        found.append(replace(dim, **changes, transport=transport))  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize("measured", [False, True])
@pytest.mark.parametrize("dims", [1, 2, 3, 4, 5])
def test_better_links_are_never_slower(dims: int, measured: bool) -> None:
    assert slower(dims, measured, PAIRS, 0) == {}


def slower(dims: int, measured: bool, pairs: int, seed: int) -> dict[str, float]:
    """Return by how much collectives are slower on better links at worst, by kind; nothing where none is."""
    rng = np.random.default_rng([dims, measured, seed])
    before = networks(rng, dims, pairs, measured)
    after = better(rng, before, pairs)
    spans = [Span(members(rng, dim), rng.choice([1.0, 2.0], pairs)) for dim in before]
    size = 10 ** rng.uniform(0, 10, pairs)
    chunks = rng.integers(1, 33, pairs).astype(float)
    mode = names(rng, MODES, pairs)
    copies = rng.choice([1.0, 8.0], pairs)
    prices: dict[str, Callable[[list[Subgroup]], Any]] = {
        kind: partial(_collective, kind, size, chunks, mode, copies) for kind in KINDS
    }
    prices |= {"send": lambda group: send_seconds(group, size), "barrier": barrier_seconds}
    prices |= {"broadcast": lambda group: broadcast_seconds(group, size)}
    found = {}
    for name, price in prices.items():
        slow, fast = (price(subgroups(each, spans)) for each in (before, after))
        found[name] = float(np.max(fast / np.maximum(slow, 1e-300) - 1))
    return {name: worst for name, worst in found.items() if not worst <= ROUNDING}


def _collective(kind: CollectiveKind, size: Any, chunks: Any, mode: Names, copies: Any, group: list[Subgroup]) -> Any:
    return collective_seconds(group, kind, size, chunks, mode, copies)
