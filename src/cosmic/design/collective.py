"""The collective layer: how the devices of a group exchange data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from cosmic.errors import require
from cosmic.registry import Registry

Scheduling = Literal["lifo", "fifo"]
MultiDim = Literal["baseline", "blueconnect", "themis"]


Kind = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]
"""What a group does together. The payload of each is the whole buffer of one NPU: what an all-gather ends with, what
the others start from."""


class Algorithm(Protocol):
    """A way to run collectives within one network dimension, among p members of a group.

    All functions take numbers or arrays.
    """

    @staticmethod
    def steps(kind: Kind, p: Any) -> Any:
        """Return how many messages follow one another."""
        ...

    @staticmethod
    def traffic(kind: Kind, p: Any) -> Any:
        """Return the bytes that the busiest NPU sends, per byte of payload."""
        ...

    @staticmethod
    def peers(p: Any) -> Any:
        """Return with how many others an NPU talks at once."""
        ...

    @staticmethod
    def distance(p: Any) -> Any:
        """Return how far apart the partners are in a line of all members, on average over bytes; 1 is next door."""
        ...


algorithms: Registry[Algorithm] = Registry("algorithm", "cosmic.cost.collectives", "cosmic.collectives")


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """Algorithms, chunks and their order."""

    scheduling: Scheduling = "lifo"
    """Which of several waiting collectives goes first: the newest or the oldest."""
    chunks: int = 4
    """Parts of a collective that follow each other through the network's dimensions."""
    multi_dim: MultiDim = "blueconnect"
    """In which order a chunk visits the dimensions."""
    overlap_efficiency: float = 1.0
    """Share that computation can hide at best of gathering weights and of reducing gradients."""
    algorithms: tuple[str, ...] = field(metadata={"names": algorithms})
    """One for each network dimension, innermost first."""

    def __post_init__(self) -> None:
        require(self.chunks >= 1, "chunks", self.chunks, "must be at least 1")
        require(
            0 <= self.overlap_efficiency <= 1,
            "overlap_efficiency",
            self.overlap_efficiency,
            "must be a share, from 0 to 1",
        )
        for place, name in enumerate(self.algorithms):
            algorithms.check(name, f"algorithms.{place}")
