"""The inner loops of the synthesis, in C or else in Python with the same results, and the routes that they take.

Accelerators keep what they receive, and so do switches that add up and copy. Other switches pass each message on once.

*Trees.* From where a chunk begins, its tree takes in one node after the other, always by the route of the smallest key

    μ · depth of its beginning + Σ over its links of seconds · (μ + (load / target)^8)

so that links which have enough to do become expensive, and deep trees are avoided. Load is what all trees so far put on
a link. In later rounds each tree is taken away and grown again beside those of the others.

*Transfers.* Whenever links have become free, or chunks have arrived, every idle link begins the planned transfer that
has the longest way behind it. Where none is ready it may carry what was planned for another link but would come no
later by this one, those first that the fewest nodes have. Without a plan, everything is carried so.
"""

from __future__ import annotations

from collections.abc import Iterable
from ctypes import Structure, byref, c_int64, c_void_p
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.base.event_clock import EventClock
from cosmic.base.native.library import native_library
from cosmic.network.link_graph import Floats, Ints, LinkGraph

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
        return plan_trees_in_python(problem, growing, load)
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
        return play_transfers_in_python(problem, playing)
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


# ---- the same in Python, where there is no C


_WORD = (1 << 64) - 1
FINISHES, DISPATCHES = range(2)
"""The order of events at one time: transfers end, then links that are free begin others."""


def mix_digits(seed: int, chunk: int, position: int) -> int:
    """Return digits that decide between equals: those of splitmix64."""
    z = (seed * 0x9E3779B97F4A7C15 + chunk * 0xD1B54A32D192ED03 + position * 0x8CB92BA72F3D8DD7) & _WORD
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _WORD
    return (z ^ (z >> 31)) >> 32


class _Routes:
    """The routes of a problem as lists."""

    def __init__(self, problem: SpreadProblem) -> None:
        routes = problem.routes
        first, hops = routes.hop_first.tolist(), routes.hops.tolist()
        self.from_: list[int] = routes.from_.tolist()
        self.to: list[int] = routes.to.tolist()
        self.hops: list[list[int]] = [hops[begin:end] for begin, end in pairwise(first)]
        starts = np.searchsorted(routes.from_, np.arange(len(routes.keepers) + 1)).tolist()
        self.out = [range(begin, end) for begin, end in pairwise(starts)]
        self.machine: list[int] = problem.machine.tolist()
        self.by_size: list[list[float]] = problem.seconds.tolist()
        self.size: list[int] = problem.size.tolist()
        self.origin: list[int] = problem.origin.tolist()

    def seconds(self, chunk: int, route: int) -> float:
        """Return what a chunk takes on a route."""
        hop_s, total = self.by_size[self.size[chunk]], 0.0
        for hop in self.hops[route]:
            total += hop_s[hop]
        return total


def plan_trees_in_python(problem: SpreadProblem, growing: Growing, load: Floats) -> bool:
    """Fill in trees for all chunks; return whether every chunk reaches all that need it."""
    trees = _TreeGrowth(problem, growing)
    for round_ in range(growing.rounds):
        for chunk in range(len(problem.origin)):
            if not trees.grow(chunk, growing.seed + round_):
                return False
    load[:] = trees.load
    return True


class _TreeGrowth:
    def __init__(self, problem: SpreadProblem, growing: Growing) -> None:
        self.problem, self.growing, self.routes = problem, growing, _Routes(problem)
        self.load = [0.0] * problem.machines
        self.depth = [0.0] * problem.need.shape[1]

    def _key(self, hop_s: list[float], route: int) -> tuple[float, float]:
        """Return the key of a route, and the depth of its end."""
        mu, target = self.growing.mu, self.growing.target_s
        own = length = 0.0
        for hop in self.routes.hops[route]:
            # A link's price grows with the eighth power of its load, as in synthesis.c; powers by squaring, so that
            # both give the same bits.
            full = self.load[self.routes.machine[hop]] / target
            two = full * full
            four = two * two
            own += hop_s[hop] * (mu + four * four)
            length += hop_s[hop]
        above = self.depth[self.routes.from_[route]]
        key = (above if self.growing.paths else mu * above) + own
        return key, key if self.growing.paths else above + length

    def _charge(self, hop_s: list[float], route: int, sign: float) -> None:
        for hop in self.routes.hops[route]:
            self.load[self.routes.machine[hop]] += sign * hop_s[hop]

    def grow(self, chunk: int, seed: int) -> bool:
        """Grow the tree of one chunk anew; return whether it reaches all that need it."""
        routes, need, plan = self.routes, self.problem.need[chunk], self.problem.plan[chunk]
        hop_s, paths = routes.by_size[routes.size[chunk]], self.growing.paths
        for node in np.flatnonzero(plan >= 0).tolist():
            self._charge(hop_s, int(plan[node]), -1.0)
        plan[:] = -1
        need[need == 2] = 0
        open_ = int(np.count_nonzero(need == 1))
        done: set[int] = {routes.origin[chunk]}
        order: list[int] = []
        heap: list[tuple[float, int, int]] = []
        self.depth[routes.origin[chunk]] = 0.0
        node = routes.origin[chunk]
        while True:
            for route in routes.out[node]:
                if routes.to[route] not in done:
                    heappush(heap, (self._key(hop_s, route)[0], mix_digits(seed, chunk, route), route))
            grown = self._next(hop_s, heap, done) if open_ else None
            if grown is None:
                break
            node, depth, route = grown
            self.depth[node] = depth
            plan[node] = route
            order.append(node)
            done.add(node)
            if not paths:
                self._charge(hop_s, route, 1.0)
            open_ -= int(need[node] == 1)
        self._prune(chunk, hop_s, order)
        return open_ == 0

    def _next(
        self, hop_s: list[float], heap: list[tuple[float, int, int]], done: set[int]
    ) -> tuple[int, float, int] | None:
        """Return the next node of the tree, its depth, and its route; keys that have grown since are put back."""
        while heap:
            old, tie, route = heappop(heap)
            if self.routes.to[route] in done:
                continue
            key, depth = self._key(hop_s, route)
            # Loads have grown since the key was computed: the route is put back where it now belongs.
            if key > old:
                heappush(heap, (key, tie, route))
                continue
            return self.routes.to[route], depth, route
        return None

    def _prune(self, chunk: int, hop_s: list[float], order: list[int]) -> None:
        """Cut off what leads to nobody who needs the chunk."""
        need, plan, children = self.problem.need[chunk], self.problem.plan[chunk], dict.fromkeys(order, 0)
        for node in reversed(order):
            route = int(plan[node])
            if not need[node] and not children[node]:
                if not self.growing.paths:
                    self._charge(hop_s, route, -1.0)
                plan[node] = -1
                continue
            if not need[node]:
                need[node] = 2
            begin = self.routes.from_[route]
            children[begin] = children.get(begin, 0) + 1
            if self.growing.paths:
                self._charge(hop_s, route, 1.0)


@dataclass
class _LinkQueue:
    """One link, or links that are always used alike."""

    ready: list[tuple[float, int, int, int]] = field(default_factory=list)
    """Planned transfers whose chunk is there: by what is behind them, digits, route, chunk."""
    waiting: list[tuple[int, int, int]] = field(default_factory=list)
    """At a switch, to be passed on: chunk, route, hop."""
    others: list[tuple[int, int]] = field(default_factory=list)
    """Transfers that are possible, planned or not: chunk, route."""
    first_waiting: int = 0
    first_other: int = 0
    now: tuple[int, int, int] = (0, 0, 0)
    free_s: float = 0.0
    promised_s: float = 0.0
    busy: bool = False
    touched: bool = False


def play_transfers_in_python(problem: SpreadProblem, playing: Playing) -> Transfers:
    """Return the transfers that follow the plan of a problem."""
    return _TransferPlay(problem, playing).run()


class _TransferPlay:
    def __init__(self, problem: SpreadProblem, playing: Playing) -> None:
        self.playing, self.routes = playing, _Routes(problem)
        self.need, self.plan = problem.need.tolist(), problem.plan.tolist()
        self.state = [[0] * len(row) for row in self.need]
        self.machines = [_LinkQueue() for _ in range(problem.machines)]
        self.holders = [1] * len(self.need)
        self.touched: list[int] = []
        count = len(self.machines)
        self.clock: EventClock[float] = EventClock()
        for chunk, release in enumerate(problem.release_s.tolist()):
            self.clock.at(release, self._finish_transfer, count + chunk, FINISHES, count + chunk)
        self.tail = [self._tails(chunk) for chunk in range(len(self.need))]
        self.done: list[tuple[int, int, float, float]] = []

    def run(self) -> Transfers:
        """Return all transfers."""
        self.clock.run()
        columns = list(zip(*self.done, strict=True)) if self.done else [(), (), (), ()]
        integers = [np.array(column, np.int64) for column in columns[:2]]
        reals = [np.array(column, np.float64) for column in columns[2:]]
        return Transfers(integers[0], integers[1], reals[0], reals[1])

    def _tails(self, chunk: int) -> list[float]:
        """Return of each node the seconds from a chunk's arrival until all behind it have it."""
        plan, tail = self.plan[chunk], [0.0] * len(self.plan[chunk])
        for node in range(len(plan)):
            current = node
            while plan[current] >= 0:
                up, through = (
                    self.routes.from_[plan[current]],
                    tail[current] + self.routes.seconds(chunk, plan[current]),
                )
                if through <= tail[up]:
                    break
                tail[up] = through
                current = up
        return tail

    def _touch(self, machine: int) -> None:
        if not self.machines[machine].touched:
            self.machines[machine].touched = True
            if not self.touched:
                self.clock.at(self.clock.now, self._dispatch_touched, None, DISPATCHES)
            self.touched.append(machine)

    def _dispatch_touched(self, _: None) -> None:
        """Let links that are free begin a transfer, in the order in which something came to them."""
        for machine in self.touched:  # grows by none: what begins now ends later, or in another round
            self.machines[machine].touched = False
            self._dispatch(machine, self.clock.now)
        self.touched = []

    def _arrive(self, chunk: int, node: int) -> None:
        routes, state, need = self.routes, self.state[chunk], self.need[chunk]
        state[node] = 2
        for route in routes.out[node]:
            to = routes.to[route]
            if not need[to] or state[to]:
                continue
            index = routes.machine[routes.hops[route][0]]
            machine, planned = self.machines[index], self.plan[chunk][to] == route
            if planned:
                first = float(chunk) if self.playing.in_turn else -self.tail[chunk][to]
                item = (first, mix_digits(self.playing.seed, chunk, to), route, chunk)
                heappush(machine.ready, item)
            # Transfers that no tree plans, but that would bring a chunk to somebody who needs it.
            if self.playing.steal:
                machine.others.append((chunk, route))
            if (planned or self.playing.steal) and not machine.busy:
                self._touch(index)

    def _begin(self, index: int, entry: tuple[int, int, int], now: float) -> None:
        chunk, route, hop = entry
        link, machine = self.routes.hops[route][hop], self.machines[index]
        end = now + self.routes.by_size[self.routes.size[chunk]][link]
        machine.busy, machine.now, machine.free_s = True, entry, end
        self.done.append((link, chunk, now, end))
        self.clock.at(end, self._finish_transfer, index, FINISHES, index)

    def _arrival(self, chunk: int, route: int, now: float, promise: bool) -> float:
        """Return when a transfer that begins now would arrive, given what switches have been promised."""
        hop_s, hops = self.routes.by_size[self.routes.size[chunk]], self.routes.hops[route]
        time = now + hop_s[hops[0]]
        for hop in hops[1:]:
            machine = self.machines[self.routes.machine[hop]]
            time = max(machine.promised_s, time) + hop_s[hop]
            if promise:
                machine.promised_s = time
        return time

    def _claim(self, index: int, chunk: int, route: int, now: float) -> None:
        self.state[chunk][self.routes.to[route]] = 1
        self.holders[chunk] += 1
        self._arrival(chunk, route, now, True)
        self._begin(index, (chunk, route, 0), now)

    def _is_worth_sending(self, chunk: int, route: int, arrives: float) -> bool:
        """Return whether a transfer that is not planned comes no later than the planned one could."""
        routes = self.routes
        planned = self.plan[chunk][routes.to[route]]
        if planned < 0 or planned == route:
            return True
        other = routes.seconds(chunk, planned)
        if self.state[chunk][routes.from_[planned]] != 2:
            return self.playing.lenient and routes.seconds(chunk, route) <= other
        return arrives <= self.machines[routes.machine[routes.hops[planned][0]]].free_s + other

    def _claim_unplanned(self, index: int, now: float) -> None:
        machine, seen = self.machines[index], 0
        best: tuple[float, int, int] | None = None
        chosen = (0, 0)
        position = machine.first_other
        while position < len(machine.others) and seen < self.playing.window:
            chunk, route = machine.others[position]
            position += 1
            if self.state[chunk][self.routes.to[route]]:
                machine.first_other += position - 1 == machine.first_other
                continue
            seen += 1
            arrives = self._arrival(chunk, route, now, False)
            if not self._is_worth_sending(chunk, route, arrives):
                continue
            score = arrives, self.holders[chunk], mix_digits(self.playing.seed, chunk, self.routes.to[route])
            if best is None or score < best:
                best, chosen = score, (chunk, route)
        if best is not None:
            self.plan[chosen[0]][self.routes.to[chosen[1]]] = chosen[1]
            self._claim(index, *chosen, now)

    def _dispatch(self, index: int, now: float) -> None:
        machine = self.machines[index]
        if machine.busy:
            return
        if machine.first_waiting < len(machine.waiting):
            machine.first_waiting += 1
            self._begin(index, machine.waiting[machine.first_waiting - 1], now)
            return
        while machine.ready:
            *_, route, chunk = heappop(machine.ready)
            if not self.state[chunk][self.routes.to[route]]:
                self._claim(index, chunk, route, now)
                return
        if self.playing.steal:
            self._claim_unplanned(index, now)

    def _finish_transfer(self, index: int) -> None:
        if index >= len(self.machines):  # a chunk that was not there before
            chunk = index - len(self.machines)
            self._arrive(chunk, self.routes.origin[chunk])
            return
        machine, routes = self.machines[index], self.routes
        chunk, route, hop = machine.now
        machine.busy = False
        self._touch(index)
        if hop + 1 == len(routes.hops[route]):
            self._arrive(chunk, routes.to[route])
            return
        after = routes.machine[routes.hops[route][hop + 1]]
        self._touch(after)
        self.machines[after].waiting.append((chunk, route, hop + 1))
