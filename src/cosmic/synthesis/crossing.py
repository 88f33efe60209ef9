"""Cuts that are cheap to try: between the first nodes of a network, by number, and the rest; of a few nodes, all.

In grids and in hierarchies numbered from within, the narrowest waists are among them. They hold for several groups at
once, which share the links that cross.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from cosmic.graphs.graph import Floats, Ints, LinkGraph
from cosmic.graphs.schedule import Kind

FEW_NODES = 12
"""Nodes of which all cuts are tried."""
Cut = tuple[float, tuple[int, ...]]
"""Seconds that a cut takes, and the nodes on its smaller side."""


def smaller_side(before: npt.NDArray[np.uint8]) -> tuple[int, ...]:
    """Return the nodes on the smaller side of a cut, of which *before* tells one."""
    inside, outside = np.flatnonzero(before), np.flatnonzero(before == 0)
    return tuple((inside if len(inside) <= len(outside) else outside).tolist())


def crossing_bandwidth(graph: LinkGraph, side: Sequence[int]) -> tuple[float, float]:
    """Return the bandwidth out of a set of nodes, and into it."""
    inside = np.zeros(graph.nodes, bool)
    inside[list(side)] = True
    begins, ends = inside[graph.sources], inside[graph.targets]
    bandwidth = graph.bandwidth_bytes_per_s
    return float(bandwidth[begins & ~ends].sum()), float(bandwidth[ends & ~begins].sum())


def joint_cut(graph: LinkGraph, kind: Kind, size_bytes: float, groups: Sequence[Ints], root: int) -> Cut:
    """Return the tightest of these cuts for all *groups* together."""
    if kind in ("all_gather", "all_to_all", "broadcast"):
        return _tightest(graph, kind, size_bytes, groups, root)
    back = graph.transposed()
    if kind in ("reduce_scatter", "reduce"):
        return _tightest(back, "all_gather" if kind == "reduce_scatter" else "broadcast", size_bytes, groups, root)
    return max(_tightest(each, "all_reduce", size_bytes, groups, root) for each in (back, graph))


def _tightest(graph: LinkGraph, kind: Kind, size_bytes: float, groups: Sequence[Ints], root: int) -> Cut:
    if 1 < graph.nodes <= FEW_NODES:
        return _tightest_of_all(graph, kind, size_bytes, groups, root)
    rank = _ranks(graph)
    forward, bandwidth = _bandwidth(graph, rank), graph.bandwidth_bytes_per_s
    if not len(forward):
        return 0.0, ()
    wanted = np.zeros(len(forward))
    for group in groups:
        inside = np.cumsum(np.bincount(rank[group], minlength=graph.nodes))[:-1]
        begun = np.arange(len(forward)) >= rank[group[root]]
        wanted += _leaving_bytes(kind, size_bytes, len(group), inside, begun)
    wide = forward > 1e-9 * bandwidth.max()  # less is what rounding left of nothing
    times = np.where(wide, wanted / np.where(wide, forward, 1.0), 0.0)
    worst = int(np.argmax(times))
    return float(times[worst]), smaller_side((rank <= worst).astype(np.uint8))


def _tightest_of_all(graph: LinkGraph, kind: Kind, size_bytes: float, groups: Sequence[Ints], root: int) -> Cut:
    """Return the tightest of all cuts of a few nodes."""
    sides = (np.arange(1, 2**graph.nodes - 1)[:, None] >> np.arange(graph.nodes)) & 1 == 1
    crosses = sides[:, graph.sources] & ~sides[:, graph.targets]
    forward = crosses @ graph.bandwidth_bytes_per_s
    wanted = np.zeros(len(sides))
    for group in groups:
        inside = sides[:, group].sum(axis=1)
        wanted += _leaving_bytes(kind, size_bytes, len(group), inside, sides[:, group[root]])
    times = np.where(forward > 0, wanted / np.where(forward > 0, forward, 1.0), 0.0)
    worst = int(np.argmax(times))
    return float(times[worst]), smaller_side(sides[worst].astype(np.uint8))


def _ranks(graph: LinkGraph) -> Ints:
    """Return the place of each node in order; a switch stands behind the first NPU that it joins."""
    place = np.arange(graph.nodes).astype(float)
    place[graph.npus :] = graph.npus
    for ends, others in ((graph.sources, graph.targets), (graph.targets, graph.sources)):
        joined = (ends >= graph.npus) & (others < graph.npus)
        np.minimum.at(place, ends[joined], others[joined] + 0.5)
    rank = np.empty(graph.nodes, np.int64)
    rank[np.argsort(place, kind="stable")] = np.arange(graph.nodes)
    return rank


def _bandwidth(graph: LinkGraph, rank: Ints) -> Floats:
    """Return the bandwidth from the first node to the rest, from the first two, and so on."""
    begins, ends = rank[graph.sources], rank[graph.targets]
    forward = begins < ends
    change = np.zeros(graph.nodes)
    np.add.at(change, begins[forward], graph.bandwidth_bytes_per_s[forward])
    np.add.at(change, ends[forward], -graph.bandwidth_bytes_per_s[forward])
    return np.cumsum(change)[:-1]


def _leaving_bytes(kind: Kind, size_bytes: float, count: int, inside: Ints, begun: npt.NDArray[np.bool_]) -> Floats:
    """Return what must leave nodes that *inside* of *count* members are among, and the root where *begun*."""
    outside = count - inside
    if kind == "all_to_all":
        return np.asarray(size_bytes / count * inside * outside, np.float64)
    if kind == "all_reduce":
        return size_bytes * ((inside > 0) & (outside > 0)).astype(float)
    if kind == "broadcast":
        return size_bytes * (begun & (outside > 0)).astype(float)
    return np.asarray(size_bytes / count * inside * (outside > 0), np.float64)
