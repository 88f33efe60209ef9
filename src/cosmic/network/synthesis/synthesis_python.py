"""Trees for chunks, and transfers in time: what synthesis.c does, where it is not there, with the same results.

*Trees.* From where a chunk begins, its tree takes in one node after the other, always by the route of the smallest key

    μ · depth of its beginning + Σ over its links of seconds · (μ + (load / target)^8)

so that links which have enough to do become expensive, and deep trees are avoided. Load is what all trees so far put on
a link. In later rounds each tree is taken away and grown again beside those of the others.

*Transfers.* Whenever links have become free, or chunks have arrived, every idle link begins the planned transfer that
has the longest way behind it. Where none is ready it may carry what was planned for another link but would come no
later by this one, those first that the fewest nodes have. Without a plan, everything is carried so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from cosmic.base.event_clock import EventClock
from cosmic.network.link_graph import Floats

if TYPE_CHECKING:
    from cosmic.network.synthesis.synthesis_native import Growing, Playing, SpreadProblem, Transfers


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


def plan_trees(problem: SpreadProblem, growing: Growing, load: Floats) -> bool:
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


def play_transfers(problem: SpreadProblem, playing: Playing) -> Transfers:
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
        from cosmic.network.synthesis.synthesis_native import Transfers  # noqa: PLC0415  which imports this module

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
