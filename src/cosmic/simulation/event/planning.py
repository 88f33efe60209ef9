"""Plan a collective before it runs: its chunks, the dimensions that each visits, and their queues.

An all-reduce is a reduce-scatter through the dimensions upwards, an all-reduce in the last, and an all-gather
downwards. Themis chooses each chunk's order of dimensions by the load they have carried so far.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from cosmic.cost.themis import ThemisInput, ThemisKind, chunks
from cosmic.errors import SpecError
from cosmic.simulation.event.inputs import Algorithm
from cosmic.simulation.event.rings import GIVEN, Ring
from cosmic.traces.trace import CollectiveType, RankTrace

if TYPE_CHECKING:
    from cosmic.simulation.event.world import World

THEMIS: dict[CollectiveType, ThemisKind] = {
    CollectiveType.ALL_REDUCE: "all_reduce",
    CollectiveType.ALL_GATHER: "all_gather",
    CollectiveType.REDUCE_SCATTER: "reduce_scatter",
}


class Level(NamedTuple):
    """The part of a dimension that a group occupies, and the algorithm there."""

    dim: int
    ring: Ring
    algorithm: Algorithm


class CollectivePlacement(NamedTuple):
    """The group, dimensions and priority of a collective."""

    slot: int
    levels: list[Level]
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
class Turns:
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


class Planner:
    """Plans the collectives of a rank, and keeps its round-robin counters."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.turns = [Turns(world.queues_per_dim) for _ in world.network.dims]
        self._rotation = 0
        self._known: dict[tuple[CollectiveType, int, int], list[tuple[ChunkPhase, ...]]] = {}
        self._trees: dict[tuple[CollectiveType, int], int] = {}

    def streams(self, kind: CollectiveType, size: int, levels: list[Level]) -> list[tuple[ChunkPhase, ...]]:
        """Return the phases of every chunk of a collective; none for a group of one."""
        key = (kind, size, id(levels))
        if key in self._known:
            return self._known[key]
        given = levels[0].algorithm.name == GIVEN
        cut = [(size, [0])] if given else self._chunks(kind, size, levels)
        planned = [self._plan(kind, chunk, [levels[place] for place in order]) for chunk, order in cut]
        found = [phases for phases in planned if phases]
        if not self._takes_turns(levels):
            self._known[key] = found
        return found

    def _takes_turns(self, levels: list[Level]) -> bool:
        """Return whether the next plan of the same collective differs."""
        rotates = self._world.system.inter_dimension_scheduling == "roundRobin"
        trees = any(level.algorithm.name == "doubleBinaryTree" for level in levels)
        return rotates or trees or self._world.queues_per_dim > 1

    def _chunks(self, kind: CollectiveType, size: int, levels: list[Level]) -> list[tuple[int, list[int]]]:
        """Return the size of every chunk, and the order in which it visits the dimensions."""
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
        found = []
        for _ in range(-(-size // chunk)):
            found.append((chunk, order))
            if inter == "roundRobin":
                found[-1] = (chunk, order[self._rotation :] + order[: self._rotation])
                self._rotation = (self._rotation + 1) % len(levels)
        return found

    def _themis(self, kind: CollectiveType, size: int, levels: list[Level]) -> list[tuple[int, list[int]]]:
        system, dims = self._world.system, self._world.network.dims
        plan = ThemisInput(
            npus=tuple(len(level.ring) for level in levels),
            bandwidths=tuple(dims[level.dim].bandwidth_gib_per_s for level in levels),
            size_bytes=size,
            splits=system.splits,
            flexible=system.inter_dimension_scheduling == "offlineGreedyFlex",
            as_in_astra_sim=self._world.compat,
        )
        return [(chunk.size_bytes, list(chunk.order)) for chunk in chunks(THEMIS[kind], plan)]

    def _plan(self, kind: CollectiveType, size: int, levels: list[Level]) -> tuple[ChunkPhase, ...]:
        """Return the phases of a chunk that visits *levels* in this order.

        An all-reduce is a reduce-scatter upwards, an all-reduce in the last dimension and an all-gather downwards;
        Themis uses reduce-scatter and all-gather in the last one too. The baseline is a whole all-reduce in each.
        """
        system = self._world.system
        active = [level for level in levels if len(level.ring) > 1]
        anywhere, first, last = Turns.next_any, Turns.next_first, Turns.next_last
        scatter, gather = CollectiveType.REDUCE_SCATTER, CollectiveType.ALL_GATHER
        if kind != CollectiveType.ALL_REDUCE or system.collective_optimization == "baseline":
            visits = [(level, kind, anywhere) for level in active]
        else:
            lower = active
            visits = []
            if not system.inter_dimension_scheduling.startswith("offlineGreedy"):
                lower = active[:-1]
                visits = [(level, kind, first) for level in active[-1:]]
            visits = [
                *((level, scatter, first) for level in lower),
                *visits,
                *((level, gather, last) for level in reversed(lower)),
            ]
        phases = []
        for level, phase_kind, turn in visits:
            queue, clockwise = turn(self.turns[level.dim])
            final = after(level.algorithm, phase_kind, size, len(level.ring))
            tree = self._next_tree(kind, level) if level.algorithm.name == "doubleBinaryTree" else 0
            queue += level.dim * self._world.queues_per_dim
            phases.append(ChunkPhase(queue, phase_kind, level.ring, level.algorithm, size, final, clockwise, tree))
            size = final
        return tuple(phases)

    def _next_tree(self, kind: CollectiveType, level: Level) -> int:
        key = (kind, level.dim)
        tree = self._trees.get(key, 0)
        self._trees[key] = 1 - tree
        return tree


def after(algorithm: Algorithm, kind: CollectiveType, size: int, members: int) -> int:
    """Return the bytes that a rank holds after a phase."""
    if algorithm.name == "doubleBinaryTree":
        return size
    if kind == CollectiveType.REDUCE_SCATTER:
        return size // members
    return size * members if kind == CollectiveType.ALL_GATHER else size
