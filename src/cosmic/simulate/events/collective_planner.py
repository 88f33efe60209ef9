"""Plan a collective before it runs: its chunks, the dimensions that each visits, and their queues.

An all-reduce is a reduce-scatter through the dimensions upwards, an all-reduce in the last, and an all-gather
downwards. Themis chooses each chunk's order of dimensions by the load they have carried so far.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from cosmic.base.errors import SpecError
from cosmic.network.themis_chunks import ThemisInput, ThemisKind, themis_chunks
from cosmic.simulate.events.astra_sim_inputs import Algorithm, System
from cosmic.simulate.events.collective_rings import GIVEN, Ring
from cosmic.traces.trace import CollectiveType, RankTrace

if TYPE_CHECKING:
    from cosmic.simulate.events.simulation_world import World


THEMIS: dict[CollectiveType, ThemisKind] = {
    CollectiveType.ALL_REDUCE: "all_reduce",
    CollectiveType.ALL_GATHER: "all_gather",
    CollectiveType.REDUCE_SCATTER: "reduce_scatter",
}


class GroupLevel(NamedTuple):
    """The part of a dimension that a group occupies, and the algorithm there."""

    dim: int
    ring: Ring
    algorithm: Algorithm


class CollectivePlacement(NamedTuple):
    """The group, dimensions and priority of a collective."""

    slot: int
    levels: list[GroupLevel]
    priority: int
    script: RankTrace | None = None


class ChunkPhase(NamedTuple):
    """The phase of a chunk in one dimension."""

    queue: int
    kind: CollectiveType
    ring: Ring
    algorithm: Algorithm
    size: int
    final: int
    """Bytes afterwards."""
    clockwise: bool
    tree: int
    """Index of the tree that a double binary tree uses."""


@dataclass(slots=True)
class QueueTurns:
    """Round-robin counters over the queues of a dimension."""

    queues: int
    any: int = 0
    first: int = 0
    last: int = 0

    def next_any(self) -> tuple[int, bool]:
        """Return the next queue, and whether its rings run clockwise: those of the upper half do not."""
        queue = self.any
        self.any = (queue + 1) % self.queues
        return queue, not (self.queues > 1 and queue >= self.queues // 2)

    def next_first(self) -> tuple[int, bool]:
        """Return the next queue of the first half."""
        queue = self.first
        self.first = (queue + 1) % max(1, self.queues // 2)
        return queue, True

    def next_last(self) -> tuple[int, bool]:
        """Return the next queue of the second half."""
        half = self.queues // 2
        queue = half + self.last
        self.last = (self.last + 1) % (self.queues - half)
        return queue, False


class PlannedVisit(NamedTuple):
    """A phase of a chunk, before it has a queue."""

    level: int
    """Index among the levels of the placement."""
    kind: CollectiveType
    turn: Callable[[QueueTurns], tuple[int, bool]]
    """How its queue is chosen."""
    size: int
    final: int


class CollectivePlanner:
    """Plans the collectives of a rank, and keeps its round-robin counters."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.turns = [QueueTurns(world.queues_per_dim) for _ in world.network.dims]
        self._rotation = 0
        self._known: dict[tuple[CollectiveType, int, int], list[tuple[ChunkPhase, ...]]] = {}
        self._trees: dict[tuple[CollectiveType, int], int] = {}

    def streams(self, kind: CollectiveType, size: int, levels: list[GroupLevel]) -> list[tuple[ChunkPhase, ...]]:
        """Return the phases of every chunk of a collective; none for a group of one."""
        key = (kind, size, id(levels))
        if key in self._known:
            return self._known[key]
        cut = self.cut(kind, size, levels)
        planned = [self._plan(kind, chunk, order, levels) for chunk, order in self._rotated(cut, levels)]
        streams = [phases for phases in planned if phases]
        if not self._takes_turns(levels):
            self._known[key] = streams
        return streams

    def rotates(self, levels: list[GroupLevel]) -> bool:
        """Return whether each chunk begins in another dimension than the one before."""
        inter = self._world.system.inter_dimension_scheduling
        return inter == "roundRobin" and levels[0].algorithm.name != GIVEN

    def _takes_turns(self, levels: list[GroupLevel]) -> bool:
        """Return whether the next plan of the same collective differs."""
        rotates = self._world.system.inter_dimension_scheduling == "roundRobin"
        trees = any(level.algorithm.name == "doubleBinaryTree" for level in levels)
        return rotates or trees or self._world.queues_per_dim > 1

    def cut(self, kind: CollectiveType, size: int, levels: list[GroupLevel]) -> list[tuple[int, list[int]]]:
        """Return the size of every chunk, and the order in which it visits the levels if it does not rotate."""
        if levels[0].algorithm.name == GIVEN:
            return [(size, [0])]
        system = self._world.system
        chunk = size // system.splits
        if kind != CollectiveType.ALL_GATHER and chunk < self._world.network.npus:
            chunk = self._world.network.npus
            size = system.splits * chunk
        if chunk == 0:
            raise SpecError("comm_size", size, f"an all-gather in {system.splits} chunks needs a byte for each")
        order = list(range(len(levels)))
        if kind == CollectiveType.ALL_GATHER:
            order.reverse()
        inter = system.inter_dimension_scheduling
        if inter.startswith("offlineGreedy") and kind in THEMIS and len(levels) > 1:
            return self._themis(kind, size, levels)
        return [(chunk, order)] * -(-size // chunk)

    def _rotated(self, cut: list[tuple[int, list[int]]], levels: list[GroupLevel]) -> list[tuple[int, list[int]]]:
        if not self.rotates(levels):
            return cut
        visits = []
        for chunk, order in cut:
            visits.append((chunk, rotate_dimensions(order, self._rotation)))
            self._rotation = (self._rotation + 1) % len(levels)
        return visits

    def _themis(self, kind: CollectiveType, size: int, levels: list[GroupLevel]) -> list[tuple[int, list[int]]]:
        system, dims = self._world.system, self._world.network.dims
        plan = ThemisInput(
            npus=tuple(len(level.ring) for level in levels),
            bandwidths=tuple(dims[level.dim].bandwidth_gib_per_s for level in levels),
            size_bytes=size,
            splits=system.splits,
            flexible=system.inter_dimension_scheduling == "offlineGreedyFlex",
            as_in_astra_sim=self._world.compat,
        )
        return [(chunk.size_bytes, list(chunk.order)) for chunk in themis_chunks(THEMIS[kind], plan)]

    def _plan(
        self, kind: CollectiveType, size: int, order: list[int], levels: list[GroupLevel]
    ) -> tuple[ChunkPhase, ...]:
        """Return the phases of a chunk that visits *levels* in this order."""
        phases = []
        for visit in plan_visits(self._world.system, kind, size, order, levels):
            level = levels[visit.level]
            queue, clockwise = visit.turn(self.turns[level.dim])
            tree = self._next_tree(kind, level) if level.algorithm.name == "doubleBinaryTree" else 0
            queue += level.dim * self._world.queues_per_dim
            phase = ChunkPhase(queue, visit.kind, level.ring, level.algorithm, visit.size, visit.final, clockwise, tree)
            phases.append(phase)
        return tuple(phases)

    def _next_tree(self, kind: CollectiveType, level: GroupLevel) -> int:
        key = (kind, level.dim)
        tree = self._trees.get(key, 0)
        self._trees[key] = 1 - tree
        return tree


def rotate_dimensions(order: list[int], by: int) -> list[int]:
    """Return an order of dimensions that begins *by* later.

    >>> rotate_dimensions([0, 1, 2], 1)
    [1, 2, 0]
    """
    return order[by:] + order[:by]


def plan_visits(
    system: System, kind: CollectiveType, size: int, order: list[int], levels: list[GroupLevel]
) -> list[PlannedVisit]:
    """Return the visits of a chunk to *levels* in this order.

    An all-reduce is a reduce-scatter upwards, an all-reduce in the last dimension and an all-gather downwards; Themis
    uses reduce-scatter and all-gather in the last one too. The baseline is a whole all-reduce in each.
    """
    active = [index for index in order if len(levels[index].ring) > 1]
    anywhere, first, last = QueueTurns.next_any, QueueTurns.next_first, QueueTurns.next_last
    scatter, gather = CollectiveType.REDUCE_SCATTER, CollectiveType.ALL_GATHER
    if kind != CollectiveType.ALL_REDUCE or system.collective_optimization == "baseline":
        planned = [(index, kind, anywhere) for index in active]
    else:
        lower = active
        planned = []
        if not system.inter_dimension_scheduling.startswith("offlineGreedy"):
            lower = active[:-1]
            planned = [(index, kind, first) for index in active[-1:]]
        planned = [
            *((index, scatter, first) for index in lower),
            *planned,
            *((index, gather, last) for index in reversed(lower)),
        ]
    visits = []
    for index, phase_kind, turn in planned:
        final = bytes_after_phase(levels[index].algorithm, phase_kind, size, len(levels[index].ring))
        visits.append(PlannedVisit(index, phase_kind, turn, size, final))
        size = final
    return visits


def bytes_after_phase(algorithm: Algorithm, kind: CollectiveType, size: int, members: int) -> int:
    """Return the bytes that a rank holds after a phase."""
    if algorithm.name == "doubleBinaryTree":
        return size
    if kind == CollectiveType.REDUCE_SCATTER:
        return size // members
    return size * members if kind == CollectiveType.ALL_GATHER else size
