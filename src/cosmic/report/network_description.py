"""Networks of links in words: what there is of nodes and links, and what bounds them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cosmic.base import units
from cosmic.design.design_point import DesignPoint
from cosmic.design.network_layer import Dimension, Network
from cosmic.network.collective_algorithms.synthesized import SYNTHESIZED
from cosmic.network.dimension_wiring import PLAIN, copies_of, disconnection_reason, label_of, wiring_at
from cosmic.network.link_graph import LinkGraph

MOST_CUT = 256
"""NPUs up to which the tightest cut is looked for."""
MOST_NAMED_NODES = 8
"""Nodes of a cut that are named."""


def network_in_words(network: Network) -> list[str]:
    """Return lines about each dimension that lists its links or has faults; none for a network without such."""
    lines = []
    for index, dim in enumerate(network.dims):
        wiring = wiring_at(network, index)
        if wiring == PLAIN:
            continue
        label = str(label_of(dim.topology, wiring))
        if disconnection_reason(label, dim.npus):
            continue  # said among the reasons why it cannot run
        for number, graph in enumerate(copies_of(label, dim.npus)):
            faults = len(wiring.copies[number])
            if not faults and not dim.links:
                continue  # the copies of a named topology that have none
            lines += [
                f"network dimension {index}, {_name_dimension(dim, faults)}: {line}"
                for line in _describe_copy(graph, dim)
            ]
    return lines


def _name_dimension(dim: Dimension, faults: int) -> str:
    name = dim.topology.replace("_", " ")
    return f"{name} with {faults} fault{'s' if faults > 1 else ''}" if faults else name


def _describe_copy(graph: LinkGraph, dim: Dimension) -> Iterator[str]:
    """Yield what a copy of a dimension is made of, and its bottlenecks."""
    degrees = np.bincount(graph.sources, minlength=graph.nodes)[: graph.npus]
    spread = f"{degrees.min()}" if degrees.min() == degrees.max() else f"{degrees.min()} to {degrees.max()}"
    switches = f", {graph.switches} switch{'es' if graph.switches > 1 else ''}" if graph.switches else ""
    rate = dim.bandwidth_bytes_per_s / dim.blocking
    slowest = int(graph.bandwidth_bytes_per_s.argmin())
    speed = units.format_quantity(float(f"{graph.bandwidth_bytes_per_s[slowest] * rate:.4g}"), units.BYTES_PER_S)
    yield (
        f"{graph.npus} NPUs{switches}, {graph.links:,} links, {spread} out of each NPU; the slowest is "
        f"{graph.describe(slowest)} at {speed}"
    )
    if graph.npus <= MOST_CUT:
        yield describe_tightest_cut(graph, rate)


def describe_tightest_cut(graph: LinkGraph, rate_bytes_per_s: float) -> str:
    """Return which nodes bound an all-gather of all NPUs, and the rate at which it can pass at most."""
    from cosmic.network.synthesis.lower_bounds import collective_bounds  # noqa: PLC0415  hardly ever needed

    size = float(graph.npus)
    bounds = collective_bounds(graph, "all_gather", size)
    seconds = max(bounds.node_s, bounds.cut_s)
    reached = units.format_quantity(float(f"{size / seconds * rate_bytes_per_s:.4g}"), units.BYTES_PER_S)
    inside = np.isin(np.arange(graph.nodes), bounds.cut)
    begins, ends = inside[graph.sources], inside[graph.targets]
    leave, enter = (float(graph.bandwidth_bytes_per_s[each].sum()) for each in (begins & ~ends, ends & ~begins))
    if not bounds.cut or not leave or not enter:
        return f"an all-gather of all of them ends at {reached} of data at most"
    own = int(inside[: graph.npus].sum())
    way, crossing = ("leave", leave) if own / leave > (graph.npus - own) / enter else ("enter", enter)
    names = ", ".join(graph.name(node) for node in bounds.cut[:MOST_NAMED_NODES]) + (
        " …" if len(bounds.cut) > MOST_NAMED_NODES else ""
    )
    width = units.format_quantity(float(f"{crossing * rate_bytes_per_s:.4g}"), units.BYTES_PER_S)
    return f"an all-gather of all of them ends at {reached} of data at most: {width} {way} {names}"


def network_notes(point: DesignPoint) -> list[str]:
    """Return in which dimensions of a design links are listed, have faults, or get collectives of their own."""
    notes = []
    for index, (dim, name) in enumerate(zip(point.network.dims, point.collective.algorithms, strict=True)):
        faults = sum(fault.dim == index for fault in point.network.faults)
        words = [f"{len(dim.links):,} listed links"] if dim.links else []
        words += [f"{faults} fault{'s' if faults > 1 else ''}"] if faults else []
        words += ["collectives synthesised for its links"] if name == SYNTHESIZED else []
        if words:
            notes.append(f"network dimension {index} has {' and '.join(words)}")
    return notes
