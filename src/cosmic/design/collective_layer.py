"""The collective layer: algorithms, chunks and scheduling of collectives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from cosmic.base.errors import require
from cosmic.base.registry import Registry, members_of
from cosmic.design.schema import check_bounds

Scheduling = Literal["lifo", "fifo"]
MultiDim = Literal["baseline", "blueconnect", "themis"]
AllToAll = Literal["hierarchical", "flat"]


CollectiveKind = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]
"""The payload of each is the whole buffer of one NPU: the output of an all-gather, the input of the others."""


class CollectiveAlgorithm(Protocol):
    """A collective algorithm for a group of p members in one network dimension.

    Its rounds describe it; all else follows from them (`cosmic.network.collective_rounds.ByRounds`), or is stated as a
    formula of numbers or arrays, which a test compares with the rounds.
    """

    @staticmethod
    def rounds(kind: Any, members: int) -> Any:
        """Return who sends which chunks to whom, round by round."""
        ...

    @staticmethod
    def alternatives(kind: Any, members: int) -> Any:
        """Return the ways in which it may send, of which a network takes the fastest."""
        ...

    @staticmethod
    def steps(kind: CollectiveKind, p: Any) -> Any:
        """Return the number of sequential messages."""
        ...

    @staticmethod
    def traffic(kind: CollectiveKind, p: Any) -> Any:
        """Return the bytes that the busiest NPU sends, per byte of payload."""
        ...

    @staticmethod
    def peers(p: Any) -> Any:
        """Return the number of peers that an NPU sends to at once."""
        ...

    @staticmethod
    def distance(p: Any) -> Any:
        """Return the mean distance that a byte travels along a line of all members; 1 is to a neighbour."""
        ...


algorithms: Registry[CollectiveAlgorithm] = Registry(
    "algorithm", "cosmic.network.collective_algorithms", "cosmic.collectives", members_of(CollectiveAlgorithm)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """Algorithms, chunks and scheduling of collectives."""

    scheduling: Scheduling = "lifo"
    """Which of several waiting collectives runs first: the newest (lifo) or the oldest (fifo)."""
    chunks: int = field(default=4, metadata={"most": 1024})
    """Chunks of a collective that are pipelined through the network dimensions."""
    multi_dim: MultiDim = "blueconnect"
    """Order in which chunks visit the network dimensions."""
    all_to_all: AllToAll = "hierarchical"
    """How an all-to-all crosses several dimensions: stage by stage, each among NPUs that differ in one dimension alone,
    with what goes to the same of them in one message (hierarchical: Tutel's 2DH, NCCL's PXN), or each message straight
    to its receiver, all at once (flat). Flat, copies of a token for one node cross one by one."""
    overlap_efficiency: float = 1.0
    """Largest share of weight gathers and gradient reductions that compute overlaps."""
    algorithms: tuple[str, ...] = field(metadata={"names": algorithms})
    """Algorithm of each network dimension, innermost first."""

    def __post_init__(self) -> None:
        check_bounds(self)
        require(self.chunks >= 1, "chunks", self.chunks, "must be at least 1")
        require(
            0 <= self.overlap_efficiency <= 1,
            "overlap_efficiency",
            self.overlap_efficiency,
            "must be a share, from 0 to 1",
        )
        for index, name in enumerate(self.algorithms):
            algorithms.check(name, f"algorithms.{index}")
