"""Dimensions whose links are looked at one by one: those that list them, and those with faults.

Costs are looked up by names and numbers (`cosmic.design.design_batch`). Such a dimension therefore has a name of its
own: that of its topology, ``~``, and the digest of its links and faults, its `Wiring`. Whoever makes the name keeps the
wiring, so that whoever looks something up by it finds the links again.

A dimension is there once for every choice of the other coordinates. Copies without faults are alike, and so are those
with the same ones: a wiring has each kind of copy once. A collective takes as long as in the slowest.

Graphs here are normalised: an NPU injects 1 byte per second at most, and the longest latency is 1 second.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

import numpy as np

from cosmic.base.caching import digest
from cosmic.base.errors import CosmicError
from cosmic.design.design_batch import Batch, Label, Names
from cosmic.design.network_layer import GRAPH, Fault, Link, Network, edges_of, injection_bytes_per_s, topologies
from cosmic.network.link_graph import Floats, Ints, LinkGraph
from cosmic.network.link_paths import hop_distances

MARK = "~"
_LISTED = re.compile(r"network\.dims\.\d+\.links")
_SIZE = re.compile(r"network\.dims\.\d+\.npus")


@dataclass(frozen=True, slots=True)
class Wiring:
    """The links of a dimension, and the faults of its copies."""

    links: tuple[Link, ...] = ()
    """None for a named topology."""
    copies: tuple[tuple[Fault, ...], ...] = ((),)
    """The faults of each kind of copy; NPUs and peers are numbered within it."""


PLAIN = Wiring()
_KEPT: dict[str, Wiring] = {}


def wiring_at(network: Network, index: int) -> Wiring:
    """Return the wiring of the dimension at *index*."""
    if not network.faults and not network.dims[index].links:
        return PLAIN
    stride = prod(dim.npus for dim in network.dims[:index])
    size = network.dims[index].npus
    faults_of_copy: dict[int, list[Fault]] = {}
    for fault in network.faults:
        if fault.dim == index and not fault_reason(network, fault):
            copy, peer = _copy_number(fault.npu, stride, size), fault.peer
            local = None if peer is None else peer // stride % size
            faults_of_copy.setdefault(copy, []).append(
                replace(fault, npu=fault.npu // stride % size, peer=local, dim=0)
            )
    # Copies without a fault are alike, and so are copies with equal faults: one of each kind is looked at.
    healthy = [()] if len(faults_of_copy) < network.npus // size else []
    return Wiring(network.dims[index].links, tuple(dict.fromkeys([*healthy, *map(tuple, faults_of_copy.values())])))


def _copy_number(npu: int, stride: int, size: int) -> int:
    """Return a number for the copy of a dimension that an NPU lies in."""
    return npu % stride + npu // (stride * size) * stride


def looks_at_links(network: Network, index: int) -> bool:
    """Return whether the dimension at *index* lists its links, or has faults."""
    return bool(network.dims[index].links) or any(fault.dim == index for fault in network.faults)


def fault_reason(network: Network, fault: Fault) -> str:
    """Return why a fault names no NPU or no peer of a network; empty if it does."""
    ranks = [fault.npu] if fault.peer is None else [fault.npu, fault.peer]
    for npu in ranks:
        if npu >= network.npus:
            return f"there is no NPU {npu}: the network has {network.npus}, from 0"
    stride, size = prod(dim.npus for dim in network.dims[: fault.dim]), network.dims[fault.dim].npus
    if len({_copy_number(npu, stride, size) for npu in ranks}) > 1:
        return f"NPU {fault.peer} is no peer of NPU {fault.npu} in dimension {fault.dim}"
    return ""


# ---- names


def label_of(topology: Label, wiring: Wiring) -> Label:
    """Return the name, or names, by which costs of a dimension are looked up; a plain one has its topology's."""
    if wiring == PLAIN:
        return topology
    mark = _keep_wiring(wiring)
    if isinstance(topology, str):
        return f"{topology}{MARK}{mark}"
    return Names(tuple(f"{name}{MARK}{mark}" for name in topology.names), topology.codes)


def dimension_label(batch: Batch, index: int) -> Label:
    """Return the name, or names, by which costs of the dimension at *index* are looked up."""
    topology: Label = batch[f"network.dims.{index}.topology"]
    return label_of(topology, wiring_at(batch.base.network, index))


@lru_cache(maxsize=256)
def _keep_wiring(wiring: Wiring) -> str:
    mark = digest(repr((wiring.links, wiring.copies)))[:24]
    _KEPT[mark] = wiring
    return mark


def topology_of(label: str) -> tuple[str, Wiring]:
    """Return the topology and the wiring that a name stands for.

    >>> topology_of("ring")
    ('ring', Wiring(links=(), copies=((),)))
    """
    name, _, mark = label.partition(MARK)
    return name, _KEPT[mark] if mark else PLAIN


# ---- graphs


def copies_of(label: str, npus: int) -> Iterator[LinkGraph]:
    """Yield the graph of each kind of copy of a dimension of *npus* NPUs, without its broken links."""
    topology, wiring = topology_of(label)
    for faults in wiring.copies:
        yield with_faults(healthy_graph(topology, npus, wiring.links), faults)


@lru_cache(maxsize=256)
def healthy_graph(topology: str, npus: int, links: tuple[Link, ...] = ()) -> LinkGraph:
    """Return the links of one dimension, without faults.

    >>> healthy_graph("ring", 4).bandwidth_bytes_per_s.tolist()
    [0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5]
    """
    if topology == GRAPH:
        return _listed_graph(npus, links)
    edges = np.array(list(edges_of(topologies[topology], npus)), np.float64).reshape(-1, 3)
    ends = edges[:, :2].astype(np.int64)
    switches = max(int(ends.max(initial=0)) + 1 - npus, 0)
    return LinkGraph(npus, ends[:, 0], ends[:, 1], edges[:, 2], np.ones(len(edges)), switches)


def _listed_graph(npus: int, links: tuple[Link, ...]) -> LinkGraph:
    """Return the graph of listed links; where none has a latency, each counts as 1."""
    ends: Ints = np.array([(link.source, link.target) for link in links], np.int64).reshape(-1, 2)
    rates: Floats = np.array([link.bandwidth_bytes_per_s for link in links]) / injection_bytes_per_s(links, npus)
    latencies: Floats = np.array([link.latency_s for link in links])
    longest = latencies.max(initial=0.0)
    latencies = latencies / longest if longest > 0 else np.ones(len(links))
    switches = max(int(ends.max(initial=0)) + 1 - npus, 0)
    return LinkGraph(npus, ends[:, 0], ends[:, 1], rates, latencies, switches)


def with_faults(graph: LinkGraph, faults: tuple[Fault, ...]) -> LinkGraph:
    """Return a graph with slow links slowed down and broken links removed.

    >>> broken = with_faults(healthy_graph("switch", 2), (Fault(npu=0, dim=0, speed=0.5),))
    >>> broken.bandwidth_bytes_per_s.tolist()
    [0.5, 0.5, 1.0, 1.0]
    """
    if not faults:
        return graph
    speed = np.ones(graph.links)
    for fault in faults:
        speed = np.where(links_of_fault(graph, fault), np.minimum(speed, fault.speed), speed)
    working = speed > 0
    rates = graph.bandwidth_bytes_per_s[working] * speed[working]
    ends, latencies = (graph.sources[working], graph.targets[working]), graph.latency_s[working]
    return LinkGraph(graph.npus, *ends, rates, latencies, graph.switches, graph.reducing, graph.names)


def links_of_fault(graph: LinkGraph, fault: Fault) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return which links of a graph a fault is about, both ways."""
    out, back = graph.sources == fault.npu, graph.targets == fault.npu
    if fault.peer is None:
        return np.asarray(out | back)
    return np.asarray((out & (graph.targets == fault.peer)) | (back & (graph.sources == fault.peer)))


# ---- designs


def is_wiring(path: str, beside_faults: bool) -> bool:
    """Return whether a field decides which links a network has: listed ones and faults, and sizes *beside faults*."""
    if path.startswith("network.faults") or _LISTED.match(path):
        return True
    return beside_faults and _SIZE.fullmatch(path) is not None


def wiring_paths(batch: Batch) -> list[str]:
    """Return the columns of a batch in which designs must agree to have the same links."""
    faulty = bool(batch.base.network.faults) or any(path.startswith("network.faults") for path in batch.columns)
    return [path for path in batch.columns if is_wiring(path, faulty)]


# ---- problems


@lru_cache(maxsize=4096)
def connection_terms(label: str, npus: float) -> tuple[float, float]:
    """Return 1 if a dimension's faults are those of links that it has and leave its NPUs connected, else 0."""
    return float(not disconnection_reason(label, int(npus))), 0.0


@lru_cache(maxsize=4096)
def disconnection_reason(label: str, npus: int) -> str:
    """Say why the NPUs of a dimension are not connected; empty if they are."""
    topology, wiring = topology_of(label)
    try:
        healthy = healthy_graph(topology, npus, wiring.links)
    except CosmicError as error:
        return str(error)
    for faults in wiring.copies:
        for fault in faults:
            if not links_of_fault(healthy, fault).any():
                to = "" if fault.peer is None else f" to NPU {fault.peer}"
                return f"NPU {fault.npu} of a {topology} of {npus} has no link{to} that could fail"
        degraded = with_faults(healthy, faults)
        if (hop_distances(degraded, np.arange(1))[0, :npus] < 0).any():
            return _cut_off(degraded, "from NPU 0")
        if (hop_distances(degraded.transposed(), np.arange(1))[0, :npus] < 0).any():
            return _cut_off(degraded.transposed(), "to NPU 0")
    return ""


def _cut_off(graph: LinkGraph, way: str) -> str:
    npu = int(np.flatnonzero(hop_distances(graph, np.arange(1))[0, : graph.npus] < 0)[0])
    return f"faults leave no path {way} {'to' if way.startswith('from') else 'from'} NPU {npu} of a dimension"
