"""Schedules of symmetric networks: the transfers of accelerator 0's chunks stand for those of all others.

While the chunk of accelerator 0 crosses link l, that of accelerator r crosses the link that l becomes when 0 goes to r.
These are different links, so links of one class are used alike, and one orbit says all.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from cosmic.errors import require
from cosmic.graphs.graph import Floats, Ints, LinkGraph
from cosmic.graphs.schedule import Kind, Schedule
from cosmic.synthesis.engine import Transfers
from cosmic.synthesis.symmetry import Symmetry

MOST_TRANSFERS = 20_000_000
"""The most transfers that are written out one by one."""


class OrbitSchedule(Schedule):
    """The schedule of a symmetric network: transfers of accelerator 0's chunks; the others are made when asked for."""

    orbit: Transfers
    """Transfers of the chunks of accelerator 0; with chunks numbered as in the whole schedule."""
    symmetry: Symmetry

    def __init__(
        self,
        graph: LinkGraph,
        kind: Kind,
        size_bytes: float,
        chunks_per_npu: int,
        orbit: Transfers,
        symmetry: Symmetry,
    ) -> None:
        stated = {
            "graph": graph,
            "kind": kind,
            "size_bytes": size_bytes,
            "chunks_per_npu": chunks_per_npu,
            "groups": (tuple(range(graph.npus)),),
            "root": 0,
            "orbit": orbit,
            "symmetry": symmetry,
        }
        for name, value in stated.items():
            object.__setattr__(self, name, value)

    @property
    def time_s(self) -> float:
        """Seconds until the last transfer has ended."""
        return self.orbit.time_s

    @property
    def transfers(self) -> int:
        """Number of transfers, of all accelerators' chunks."""
        return len(self.orbit.link) * self.graph.npus

    @cached_property
    def link(self) -> Ints:
        """The link of each transfer; transfers are in the order of their starts."""
        self._check()
        symmetry, orbit = self.symmetry, self.orbit
        anchors = symmetry.plus(symmetry.anchor[orbit.link][:, None], np.arange(self.graph.npus)[None, :])
        return symmetry.link_at[symmetry.link_class[orbit.link][:, None], anchors].ravel()

    @cached_property
    def chunk(self) -> Ints:
        """The chunk of each transfer."""
        self._check()
        npus, roots = self.graph.npus, np.arange(self.graph.npus)[None, :]
        if self.kind != "all_to_all":
            return (self.orbit.chunk[:, None] + roots).ravel()
        to = self.orbit.chunk // npus % npus
        part = self.orbit.chunk // npus**2
        return (part[:, None] * npus**2 + self.symmetry.plus(to[:, None], roots) * npus + roots).ravel()

    @cached_property
    def start_s(self) -> Floats:
        """When each transfer begins."""
        self._check()
        return np.repeat(self.orbit.start_s, self.graph.npus)

    @cached_property
    def end_s(self) -> Floats:
        """When each transfer ends."""
        self._check()
        return np.repeat(self.orbit.end_s, self.graph.npus)

    def _check(self) -> None:
        rule = f"at most {MOST_TRANSFERS:,} can be written out one by one; the time is known without"
        require(self.transfers <= MOST_TRANSFERS, "schedule.transfers", self.transfers, rule)
