"""The collective layer: how the devices of a group exchange data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol

from cosmic.errors import require
from cosmic.registry import Registry

Scheduling = Literal["lifo", "fifo"]
MultiDim = Literal["baseline", "blueconnect", "themis"]


class Algorithm(Protocol):
    """A way to all-reduce within one network dimension of *npus* members."""

    steps: Callable[[int], float]
    """Messages that follow one another."""
    traffic: Callable[[int], float]
    """Bytes that the busiest NPU sends, per byte it contributes."""


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
    algorithms: tuple[str, ...] = field(metadata={"names": algorithms})
    """One for each network dimension, innermost first."""

    def __post_init__(self) -> None:
        require(self.chunks >= 1, "chunks", self.chunks, "must be at least 1")
        for place, name in enumerate(self.algorithms):
            algorithms.check(name, f"algorithms.{place}")
