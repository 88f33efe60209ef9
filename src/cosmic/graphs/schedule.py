"""A schedule as a value: which chunk crosses which link when.

Chunks are numbered group after group. In a group of p members m[0] to m[p - 1], with k chunks for each of them:

    all-gather        p k chunks; chunk c begins at m[c mod p], and is to reach all members
    reduce-scatter    p k chunks; all members have a part of chunk c, and its sum is to be at m[c mod p]
    all-reduce        p k chunks; all members have a part of chunk c, and its sum is to reach all of them
    all-to-all        p p k chunks; chunk c begins at m[c mod p], and is to reach m[(c div p) mod p]
    broadcast         k chunks; each begins at the root, and is to reach all members
    reduce            k chunks; all members have a part of each, and its sum is to be at the root

The root is m[root]. A transfer of partial sums adds to what its receiver has; a transfer of a whole sum replaces it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from cosmic.graphs.graph import Floats, Ints, LinkGraph

Kind = Literal["all_gather", "reduce_scatter", "all_reduce", "all_to_all", "broadcast", "reduce"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, eq=False)
class Schedule:
    """A collective, or the same one in several groups at once, as transfers over the links of a network."""

    graph: LinkGraph
    kind: Kind
    size_bytes: float
    """The whole buffer of one NPU: the output of an all-gather, the input of the others."""
    chunks_per_npu: int
    """Chunks of a member: k above."""
    groups: tuple[tuple[int, ...], ...]
    """The members of each group, in order; the groups have no member in common."""
    link: Ints
    """The link of each transfer; transfers are in the order of their starts."""
    chunk: Ints
    start_s: Floats
    end_s: Floats
    root: int = 0
    """Position of the root among the members of each group."""

    @property
    def time_s(self) -> float:
        """Seconds until the last transfer has ended."""
        return float(self.end_s.max()) if len(self.end_s) else 0.0

    @property
    def transfers(self) -> int:
        """Number of transfers."""
        return len(self.link)

    def chunk_bytes(self, group: int = 0) -> float:
        """Return the bytes of one chunk of a group."""
        return chunk_bytes(self.kind, self.size_bytes, len(self.groups[group]), self.chunks_per_npu)


def chunk_bytes(kind: Kind, size_bytes: float, members: int, chunks_per_npu: int) -> float:
    """Return the bytes of one chunk.

    >>> chunk_bytes("all_gather", 1024, 8, 2), chunk_bytes("broadcast", 1024, 8, 2)
    (64.0, 512.0)
    """
    parts = 1 if kind in ("broadcast", "reduce") else members
    return size_bytes / (parts * chunks_per_npu)


def chunk_count(kind: Kind, members: int, chunks_per_npu: int) -> int:
    """Return the number of chunks of a group.

    >>> chunk_count("all_gather", 8, 2), chunk_count("all_to_all", 8, 1), chunk_count("broadcast", 8, 4)
    (16, 64, 4)
    """
    return chunks_per_npu * {"all_to_all": members * members, "broadcast": 1, "reduce": 1}.get(kind, members)
