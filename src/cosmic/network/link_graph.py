"""A network as a value: nodes, directed links between them, and which nodes reach which.

Nodes 0 to npus - 1 are accelerators, the next ones are switches, which forward data and keep none. A link carries one
transfer at a time, which holds it for

    latency + bytes / bandwidth

A cable that carries both directions is two links. Several links may join the same two nodes.

`reachable_nodes` and `require_connected` say which nodes of a network reach which.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from cosmic.base.caching import digest
from cosmic.base.errors import require
from cosmic.base.json_types import Count, PositiveCount

# ---- A network as a value: nodes, and directed links between them

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LinkGraph:
    """Accelerators and switches, and the links between them, as columns; equal graphs have equal digests."""

    npus: PositiveCount
    """NPUs of the network."""
    sources: Ints
    targets: Ints
    bandwidth_bytes_per_s: Floats
    latency_s: Floats
    switches: Count = 0
    """Switches of the network."""
    reducing: frozenset[int] = frozenset()
    """Switches that add up what passes through them, and copy one message to several links (SHARP, NVLS)."""
    names: tuple[str, ...] = ()
    """Of all nodes, where the file that the graph was read from has names; else none."""

    def __post_init__(self) -> None:
        require(self.npus >= 1, "npus", self.npus, "a network has at least 1 NPU")
        require(self.switches >= 0, "switches", self.switches, "must not be negative")
        for link in np.flatnonzero(~(np.isfinite(self.bandwidth_bytes_per_s) & (self.bandwidth_bytes_per_s > 0))):
            value = float(self.bandwidth_bytes_per_s[link])
            require(False, f"{self.describe(int(link))}.bandwidth", value, "must be positive")
        for link in np.flatnonzero(~(np.isfinite(self.latency_s) & (self.latency_s >= 0))):
            value = float(self.latency_s[link])
            require(False, f"{self.describe(int(link))}.latency", value, "must not be negative")
        for ends in (self.sources, self.targets):
            for link in np.flatnonzero((ends < 0) | (ends >= self.nodes)):
                rule = f"is no node: there are {self.nodes}, from 0"
                require(False, f"links.{int(link)}", int(ends[link]), rule)
        for link in np.flatnonzero(self.sources == self.targets):
            require(False, f"links.{int(link)}", int(self.sources[link]), "a link joins two different nodes")

    @property
    def nodes(self) -> int:
        """Accelerators and switches."""
        return self.npus + self.switches

    @property
    def links(self) -> Count:
        """Links of the network, each direction by itself."""
        return len(self.sources)

    def name(self, node: int) -> str:
        """Return what a node is called: its name in its file, or its number, and of switches s0 and so on."""
        if self.names:
            return self.names[node]
        return str(node) if node < self.npus else f"s{node - self.npus}"

    def describe(self, link: int) -> str:
        """Return a link in words, such as ``link 3→7``."""
        source, target = int(self.sources[link]), int(self.targets[link])
        exists = max(source, target) < self.nodes and min(source, target) >= 0
        return f"link {self.name(source)}→{self.name(target)}" if exists else f"links.{link}"

    @cached_property
    def digest(self) -> str:
        """A digest that does not depend on the order of links and the names of nodes."""
        order = np.lexsort((self.latency_s, self.bandwidth_bytes_per_s, self.targets, self.sources))
        columns = (self.sources, self.targets, self.bandwidth_bytes_per_s, self.latency_s)
        sizes = f"{self.npus} {self.switches} {sorted(self.reducing)}"
        return digest(sizes, *(column[order].tobytes() for column in columns))[:24]

    def transposed(self) -> LinkGraph:
        """Return the network with every link turned round."""
        return LinkGraph(
            self.npus,
            self.targets,
            self.sources,
            self.bandwidth_bytes_per_s,
            self.latency_s,
            self.switches,
            self.reducing,
            self.names,
        )


def graph_of(npus: int, links: Sequence[tuple[int, int, float, float]], switches: int = 0) -> LinkGraph:
    """Return the network of *links*: source, target, bytes per second and seconds of latency each.

    >>> graph_of(2, [(0, 1, 1e9, 0.0), (1, 0, 1e9, 0.0)]).links
    2
    """
    columns = list(zip(*links, strict=True)) if links else [(), (), (), ()]
    return LinkGraph(
        npus,
        np.array(columns[0], np.int64),
        np.array(columns[1], np.int64),
        np.array(columns[2], np.float64),
        np.array(columns[3], np.float64),
        switches,
    )


# ---- Which nodes of a network reach which


def reachable_nodes(graph: LinkGraph, start: int) -> npt.NDArray[np.bool_]:
    """Return which nodes a message from *start* can reach.

    >>> from cosmic.network.link_graph import graph_of
    >>> reachable_nodes(graph_of(3, [(0, 1, 1e9, 0.0)]), 0).tolist()
    [True, True, False]
    """
    order = np.argsort(graph.sources, kind="stable")
    targets: Ints = graph.targets[order]
    first = np.searchsorted(graph.sources[order], np.arange(graph.nodes + 1))
    reached = np.zeros(graph.nodes, np.bool_)
    reached[start] = True
    front = np.array([start])
    found_by = np.zeros(graph.nodes, np.int64)
    while len(front):
        counts = first[front + 1] - first[front]
        # The links of all nodes of the front at once: ranges of the sorted links, one after the other.
        rows = np.repeat(first[front + 1] - np.cumsum(counts), counts) + np.arange(counts.sum())
        front = targets[rows]
        front = front[~reached[front]]
        places = np.arange(len(front))
        found_by[front] = places  # several links may lead to a node: one of them finds it
        front = front[found_by[front] == places]
        reached[front] = True
    return reached


def require_connected(graph: LinkGraph, groups: Sequence[Sequence[int]] | None = None, where: str = "network") -> None:
    """Refuse a network in which a member of a group cannot reach another one; without *groups*, all NPUs are one."""
    back = graph.transposed()
    for group in groups or [range(graph.npus)]:
        members = np.asarray(group, np.int64)
        start = int(members[0])
        for reached, words in (
            (reachable_nodes(graph, start), "from {} to {}"),
            (reachable_nodes(back, start), "from {1} to {0}"),
        ):
            for lost in members[~reached[members]][:1]:
                path = words.format(graph.name(start), graph.name(int(lost)))
                require(False, where, f"{graph.npus} NPUs", f"is not connected: no path leads {path}")
