"""Chunks that spread from where they begin: what all-gather, all-to-all and broadcast are.

The other collectives are these with links and time turned round.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cosmic.graphs.graph import Floats, Ints, LinkGraph
from cosmic.graphs.schedule import Kind, chunk_bytes, chunk_count
from cosmic.synthesis.engine import Problem, Transfers
from cosmic.synthesis.members import Groups
from cosmic.synthesis.routing import Routes, routes_of
from cosmic.synthesis.symmetry import Symmetry, symmetry_of

MOST_ROUTES = 2_000_000
"""The most routes through switches; where there would be more, accelerators send to fewer others."""


@dataclass(frozen=True, eq=False)
class Spread:
    """One collective to be synthesised: its chunks begin somewhere, and are to reach some or all members."""

    graph: LinkGraph
    kind: Kind
    """All-gather, all-to-all or broadcast."""
    size_bytes: float
    groups: Groups
    root: int
    hubs: tuple[int, ...] = ()
    """Switches at which the sums of an all-reduce are complete: chunks begin there in turn, and reach all members."""

    def at(self, hubs: tuple[int, ...]) -> Spread:
        """Return the same with chunks that begin at switches."""
        return replace(self, hubs=hubs)

    @cached_property
    def symmetry(self) -> Symmetry | None:
        """The translations of the network, where the collective has them too."""
        whole = self.groups == (tuple(range(self.graph.npus)),)
        return symmetry_of(self.graph) if whole and self.kind != "broadcast" and not self.hubs else None

    @cached_property
    def routes(self) -> Routes:
        """Ways between nodes that keep data."""
        return routes_of(self.graph, MOST_ROUTES)

    @cached_property
    def relays(self) -> bool:
        """Whether chunks may have to pass nodes that do not need them."""
        members = sum(len(group) for group in self.groups)
        return self.kind == "all_to_all" or len(self.groups) > 1 or members < len(self.routes.keepers)

    def chunks(self, per_npu: int) -> int:
        """Return the number of chunks that are synthesised: with symmetry, those of accelerator 0."""
        if self.symmetry is not None:
            return per_npu * (self.graph.npus - 1 if self.kind == "all_to_all" else 1)
        return sum(chunk_count(self.kind, len(group), per_npu) for group in self.groups)

    def work(self, per_npu: int) -> int:
        """Return how many pairs of a chunk and a route there are: what a synthesis takes grows with them."""
        return self.chunks(per_npu) * self.routes.count

    def seconds(self, per_npu: int) -> Floats:
        """Return group by link what a chunk takes."""
        graph = self.graph
        sizes = [chunk_bytes(self.kind, self.size_bytes, len(group), per_npu) for group in self.groups]
        return np.array([graph.latency_s + size / graph.bandwidth_bytes_per_s for size in sizes])

    def problem(self, per_npu: int, release_s: Floats | None = None) -> tuple[Problem, Ints]:
        """Return what is to be carried with *per_npu* chunks of each member, and the numbers of the chunks."""
        nodes = len(self.routes.keepers)
        parts = [self._part(place, per_npu, nodes) for place in range(len(self.groups))]
        numbers, origin, need = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        size = np.repeat(np.arange(len(parts)), [len(part[0]) for part in parts])
        machine = np.arange(self.graph.links) if self.symmetry is None else self.symmetry.link_class
        release = np.zeros(len(numbers)) if release_s is None else release_s[numbers]
        return Problem(self.routes, machine, self.seconds(per_npu), size, origin, need, release), numbers

    def _part(self, place: int, per_npu: int, nodes: int) -> tuple[Ints, Ints, np.ndarray]:
        """Return the numbers, origins and needs of one group's chunks."""
        members = np.array(self.groups[place])
        count = len(members)
        before = sum(chunk_count(self.kind, len(group), per_npu) for group in self.groups[:place])
        chunk = np.arange(chunk_count(self.kind, count, per_npu))
        if self.symmetry is not None:
            chunk = chunk[chunk % count == 0]
        if self.kind == "all_to_all":
            chunk = chunk[chunk % count != chunk // count % count]
        elif self.kind == "broadcast" and count == 1:
            chunk = chunk[:0]
        need = np.zeros((len(chunk), nodes), np.uint8)
        rows = np.arange(len(chunk))
        origin = members[chunk % count] if self.kind != "broadcast" else np.full(len(chunk), members[self.root])
        if self.hubs:
            places = np.searchsorted(self.routes.keepers, np.array(self.hubs))
            origin = places[chunk % len(places)]
        if self.kind == "all_to_all":
            need[rows, members[chunk // count % count]] = 1
        else:
            need[:, members] = 1
            need[rows, origin] = 0
        return before + chunk, origin, need

    def complete(self, problem: Problem, transfers: Transfers) -> bool:
        """Return whether transfers bring all chunks where they are needed; no chunk is brought anywhere twice."""
        keeps = np.zeros(self.graph.nodes, bool)
        keeps[self.routes.keepers] = True
        return int(np.count_nonzero(keeps[self.graph.targets[transfers.link]])) == int(np.count_nonzero(problem.need))
