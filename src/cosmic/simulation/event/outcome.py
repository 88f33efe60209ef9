"""What a simulation leaves behind, in Python or compiled: the input of results and of errors about deadlocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from cosmic.simulation.event.planning import CollectivePlacement
from cosmic.traces.trace import Ints


class Simulated(Protocol):
    """A rank that was simulated."""

    rank: int
    end_ns: int
    compute_ns: int

    @property
    def begun_ns(self) -> list[int] | Ints:
        """When each node began; -1 where it did not."""

    @property
    def ended_ns(self) -> list[int] | Ints:
        """When each node ended; -1 where it did not."""

    def action_of(self, row: int) -> int:
        """Return what issuing a node does."""

    def placement_of(self, row: int) -> CollectivePlacement:
        """Return the placement of a collective."""

    def streams_of(self, slot: int) -> int:
        """Return the number of streams that the group in *slot* has begun."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Simulation:
    """One rank of each class, simulated."""

    ranks: Sequence[Simulated]
    entity_of: Sequence[int]
    """The index in `ranks` of the one simulated for each rank."""
    sent_bytes: Sequence[Sequence[int]] | Ints
    """By entity and dimension."""
    busy_ns: Mapping[str, int]
    """Of every link that was used, by name."""
    events: int
