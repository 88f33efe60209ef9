"""The inner loops of the synthesis, in C or else in Python with the same results, and the routes that they take.

Accelerators keep what they receive, and so do switches that add up and copy. Other switches pass each message on once.
"""

from __future__ import annotations

from collections.abc import Iterable
from ctypes import Structure, byref, c_int64, c_void_p
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.base.native.library import native_library
from cosmic.network.link_graph import Floats, Ints, LinkGraph
from cosmic.network.synthesis import synthesis_python

# ---- The ways from one node that keeps data to the next: a link, or links through switches


@dataclass(frozen=True, eq=False)
class SwitchRoutes:
    """Routes between the nodes that keep data, sorted by where they begin."""

    keepers: Ints
    """The node of the network behind each node that keeps data."""
    from_: Ints
    to: Ints
    """Ends of each route, as places among the keepers."""
    hop_first: Ints
    """Where the links of each route begin in `hops`; one more than routes."""
    hops: Ints

    @property
    def count(self) -> int:
        """Number of routes."""
        return len(self.from_)


def routes_of(graph: LinkGraph, limit: int) -> SwitchRoutes:
    """Return the routes of a network; at most about *limit* where switches would offer more."""
    keepers = np.array([*range(graph.npus), *sorted(graph.reducing)], np.int64)
    if not graph.switches:
        order = np.argsort(graph.sources, kind="stable")
        first = np.arange(graph.links + 1)
        return SwitchRoutes(keepers, graph.sources[order], graph.targets[order], first, order)
    routes = sorted(_list_routes(graph, keepers, limit), key=lambda route: route[0])
    lengths = [len(route[2]) for route in routes]
    return SwitchRoutes(
        keepers,
        np.array([route[0] for route in routes], np.int64),
        np.array([route[1] for route in routes], np.int64),
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        np.array([link for route in routes for link in route[2]], np.int64),
    )


Route = tuple[int, int, tuple[int, ...]]


def _list_routes(graph: LinkGraph, keepers: Ints, most: int) -> Iterable[Route]:
    """Yield the routes: of each first link, the shortest to every keeper behind it."""
    index_of = {int(node): index for index, node in enumerate(keepers)}
    sources, targets = graph.sources.tolist(), graph.targets.tolist()
    out: list[list[int]] = [[] for _ in range(graph.nodes)]
    for link, source in enumerate(sources):
        out[source].append(link)
    few = _allowed_distances(graph, len(keepers), most)
    behind: dict[int, dict[int, list[int]]] = {}
    for node, position in index_of.items():
        for link in out[node]:
            entry = targets[link]
            if entry in index_of:
                yield position, index_of[entry], (link,)
                continue
            if entry not in behind:
                behind[entry] = _reach_through_switches(entry, out, targets, index_of)
            for last in behind[entry]:
                if (
                    last in index_of
                    and last != node
                    and (few is None or (index_of[last] - position) % len(index_of) in few)
                ):
                    ways = _trace_path(entry, last, behind[entry], sources, position + index_of[last])
                    yield position, index_of[last], (link, *ways)


def _allowed_distances(graph: LinkGraph, keepers: int, limit: int) -> set[int] | None:
    """Return the distances of numbers that routes through switches may have, where all would be too many."""
    ports = int(np.count_nonzero((graph.sources < graph.npus) & (graph.targets >= graph.npus)))
    if ports * keepers <= limit:
        return None
    return {1 << power for power in range(keepers.bit_length())} | {keepers - 1}


def _reach_through_switches(
    entry: int, out: list[list[int]], targets: list[int], index_of: dict[int, int]
) -> dict[int, list[int]]:
    """Return the nodes reached from a switch through switches only, and the last links of the shortest paths."""
    last: dict[int, list[int]] = {entry: []}
    edge = [entry]
    while edge:
        reached: dict[int, list[int]] = {}
        for node in edge:
            for link in out[node]:
                if targets[link] not in last:
                    reached.setdefault(targets[link], []).append(link)
        last |= reached
        edge = [node for node in reached if node not in index_of]
    return last


def _trace_path(entry: int, end: int, last: dict[int, list[int]], sources: list[int], turn: int) -> list[int]:
    """Return the links from a switch to *end*; where ways are equally short, *turn* decides."""
    links: list[int] = []
    node = end
    while node != entry:
        choices = last[node]
        links.append(choices[turn % len(choices)])
        node = sources[links[-1]]
    return links[::-1]


# ---- The inner loops of the synthesis, in C where the library is there, else in Python with the same results

Small = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class SpreadProblem:
    """What is to be carried over which routes, and the plan for it, which is filled in."""

    routes: SwitchRoutes
    machine: Ints
    """Of each link: links that are always used alike are one machine."""
    seconds: Floats
    """Size by link: how long a chunk of each size holds each link."""
    size: Ints
    """Of each chunk: which of the sizes."""
    origin: Ints
    """Of each chunk: the place among the keepers where it begins."""
    need: Bytes
    """Chunk by keeper: 1 where it must arrive, 2 where the plan has it pass."""
    release_s: Floats = field(default_factory=lambda: np.zeros(0))
    """Of each chunk: when it is there; 0 for all where empty."""
    plan: Small = field(init=False)
    """Chunk by keeper: the route by which the chunk arrives; -1 where it does not."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "plan", np.full(self.need.shape, -1, np.int32))
        if not len(self.release_s):
            object.__setattr__(self, "release_s", np.zeros(len(self.origin)))

    @property
    def machines(self) -> int:
        """Number of machines."""
        return int(self.machine.max()) + 1

    def room(self) -> int:
        """Return how many transfers there are at most."""
        longest = int(np.diff(self.routes.hop_first).max(initial=1))
        return int(np.count_nonzero(self.need)) * longest


@dataclass(frozen=True)
class Growing:
    """How trees are grown: cheap in what links carry already, and short."""

    target_s: float
    """Seconds that no link should be busy for longer."""
    mu: float
    """What a second of depth costs, against a second of a link that is busy for the whole target."""
    paths: bool = False
    """Whether chunks go to one node each, so that ways are to be short, not trees small."""
    rounds: int = 1
    seed: int = 0


@dataclass(frozen=True)
class Playing:
    """How transfers are chosen."""

    steal: bool = True
    """Whether an idle link may carry what was planned for another."""
    window: int = 16
    """How many transfers it then looks at."""
    lenient: bool = True
    """Whether it may carry what the planned link cannot carry yet."""
    in_turn: bool = False
    """Whether planned transfers go in the order of chunks, not by what is behind them."""
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Transfers:
    """Transfers in the order of their starts, as columns."""

    link: Ints
    chunk: Ints
    start_s: Floats
    end_s: Floats

    @property
    def time_s(self) -> float:
        """Seconds until the last has ended."""
        return float(self.end_s.max()) if len(self.end_s) else 0.0


def plan_trees(problem: SpreadProblem, growing: Growing) -> bool:
    """Fill in trees for all chunks; return whether every chunk reaches all that need it."""
    problem.plan[:] = -1
    problem.need[problem.need == 2] = 0
    load = np.zeros(problem.machines)
    library = native_library()
    if library is None:
        return synthesis_python.plan_trees(problem, growing, load)
    inputs = _make_inputs(problem)
    numbers = (growing.target_s, growing.mu, int(growing.paths), growing.rounds, growing.seed)
    status = library.cosmic_synthesis_plan(byref(inputs.structure), *numbers, load.ctypes.data)
    if status < 0:
        raise MemoryError
    problem.need[:], problem.plan[:] = inputs.need, inputs.plan
    return bool(status)


def play_transfers(problem: SpreadProblem, playing: Playing) -> Transfers:
    """Return the transfers that follow the plan of a problem, or greedy ones where it has no plan."""
    room = problem.room()
    library = native_library()
    if library is None:
        return synthesis_python.play_transfers(problem, playing)
    inputs = _make_inputs(problem)
    integers = [np.empty(room, np.int32) for _ in range(2)]
    reals = [np.empty(room, np.float64) for _ in range(2)]
    numbers = (int(playing.steal), playing.window, int(playing.lenient), int(playing.in_turn), playing.seed, room)
    pointers = [column.ctypes.data for column in integers] + [column.ctypes.data for column in reals]
    done = library.cosmic_synthesis_play(byref(inputs.structure), *numbers, *pointers)
    if done < 0:
        raise MemoryError
    link, chunk = (column[:done].astype(np.int64) for column in integers)
    return Transfers(link, chunk, reals[0][:done].copy(), reals[1][:done].copy())


class _Structure(Structure):
    """`SpreadProblem` of synthesis.c."""

    _fields_ = [
        *((name, c_int64) for name in ("nodes", "routes", "links", "machines", "chunks")),
        *((name, c_void_p) for name in ("from_", "to", "hop_first", "hops", "out_first", "machine")),
        *((name, c_void_p) for name in ("seconds", "size", "origin", "need", "plan", "release_s")),
    ]


@dataclass(frozen=True, eq=False)
class _Inputs:
    structure: _Structure
    need: Bytes
    plan: Small
    kept: dict[str, Any]


def out_first(problem: SpreadProblem) -> Ints:
    """Return where the routes of each keeper begin; one more than keepers."""
    return np.searchsorted(problem.routes.from_, np.arange(len(problem.routes.keepers) + 1))


def _make_inputs(problem: SpreadProblem) -> _Inputs:
    routes = problem.routes
    integers = {
        "from_": routes.from_,
        "to": routes.to,
        "hop_first": routes.hop_first,
        "hops": routes.hops,
        "out_first": out_first(problem),
        "machine": problem.machine,
        "size": problem.size,
        "origin": problem.origin,
    }
    arrays: dict[str, Any] = {name: np.ascontiguousarray(values, np.int32) for name, values in integers.items()}
    arrays |= {"seconds": np.ascontiguousarray(problem.seconds), "release_s": np.ascontiguousarray(problem.release_s)}
    arrays |= {"need": problem.need.copy(), "plan": problem.plan.copy()}
    counts = {
        "nodes": len(routes.keepers),
        "routes": routes.count,
        "links": len(problem.machine),
        "machines": problem.machines,
        "chunks": len(problem.origin),
    }
    structure = _Structure(**counts, **{name: array.ctypes.data for name, array in arrays.items()})
    return _Inputs(structure, arrays["need"], arrays["plan"], arrays)
