"""Textbook algorithms on any network: their messages on the quickest paths, with congestion on every link.

Members are in the order of their group. In each round of a ring, of halving and doubling or of a tree, a member sends
to one other and waits for one; a two-way ring sends half of the bytes each way; in direct exchange a member sends to
all at once. Messages are sent in one piece, or in several that follow one another through relays and switches,
whichever is faster.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from cosmic.arithmetic import is_power_of_two
from cosmic.graphs.graph import LinkGraph
from cosmic.graphs.quickest import Routes
from cosmic.graphs.schedule import Kind
from cosmic.simulation.event.clock import Clock
from cosmic.simulation.event.wired import PICOSECONDS, Wired

Round = list[tuple[int, int, float]]
"""Messages that go out at once: from and to positions in a group, and bytes."""
PIECES = (1, 8)
MOST_HOPS = 200_000
"""Messages times links that are simulated."""


@dataclass(frozen=True)
class Baseline:
    """An algorithm's time on a network, or why there is none."""

    algorithm: str
    time_s: float | None
    reason: str = ""


def baselines(
    graph: LinkGraph, kind: Kind, size_bytes: float, groups: Sequence[Sequence[int]], root: int = 0
) -> list[Baseline]:
    """Return the times of all textbook algorithms that do a collective."""
    return [_baseline(graph, name, kind, size_bytes, groups, root) for name in ALGORITHMS[kind]]


ALGORITHMS: dict[Kind, tuple[str, ...]] = {
    "all_gather": ("ring", "two_way_ring", "direct", "halving_doubling"),
    "reduce_scatter": ("ring", "two_way_ring", "direct", "halving_doubling"),
    "all_reduce": ("ring", "two_way_ring", "direct", "halving_doubling"),
    "all_to_all": ("ring", "direct"),
    "broadcast": ("tree",),
    "reduce": ("tree",),
}


def _baseline(
    graph: LinkGraph, name: str, kind: Kind, size_bytes: float, groups: Sequence[Sequence[int]], root: int
) -> Baseline:
    if name == "halving_doubling" and not all(is_power_of_two(len(group)) for group in groups):
        return Baseline(name, None, "needs a power of two of members")
    programs = [rounds(name, kind, len(group), size_bytes, root) for group in groups]
    messages = sum(len(each) for program in programs for each in program)
    if messages > MOST_HOPS:
        return Baseline(name, None, f"has more than {MOST_HOPS:,} messages")
    largest = max((size for program in programs for each in program for *_, size in each), default=1.0)
    routes = Routes(graph, largest, balanced=True)
    hops, longest = _hops(routes, programs, groups)
    if hops > MOST_HOPS:
        return Baseline(name, None, f"has more than {MOST_HOPS:,} messages on links")
    tried = [pieces for pieces in PIECES if pieces == 1 or (longest > 1 and hops * pieces <= MOST_HOPS)]
    return Baseline(name, min(_Play(graph, routes, programs, groups, pieces).run() for pieces in tried))


def _hops(routes: Routes, programs: Sequence[list[Round]], groups: Sequence[Sequence[int]]) -> tuple[int, int]:
    """Return on how many links all messages are together, and the most of one."""
    total = longest = 0
    for program, group in zip(programs, groups, strict=True):
        for source, target, _ in (message for each in program for message in each):
            links = len(routes.path(group[source], group[target]))
            total, longest = total + links, max(longest, links)
    return total, longest


# ------------------------------------------------------------------------------------------------------------ rounds


def rounds(algorithm: str, kind: Kind, members: int, size_bytes: float, root: int = 0) -> list[Round]:
    """Return the rounds of a collective among *members*.

    >>> rounds("ring", "all_gather", 2, 8.0)
    [[(0, 1, 4.0), (1, 0, 4.0)]]
    >>> [sum(size for *_, size in each) for each in rounds("halving_doubling", "reduce_scatter", 4, 8.0)]
    [16.0, 8.0]
    """
    if kind == "all_reduce":
        parts: tuple[Kind, Kind] = ("reduce_scatter", "all_gather")
        return [each for part in parts for each in rounds(algorithm, part, members, size_bytes, root)]
    if members == 1:
        return []
    if algorithm == "ring":
        return list(_ring(kind, members, size_bytes))
    if algorithm == "two_way_ring":
        way = [[(i, (i + 1) % members, size_bytes / members / 2) for i in range(members)] for _ in range(1, members)]
        return [each + [(target, source, size) for source, target, size in each] for each in way]
    if algorithm == "direct":
        shifts = range(1, members)
        return [[(i, (i + shift) % members, size_bytes / members) for shift in shifts for i in range(members)]]
    if algorithm == "tree":
        down = list(_tree(members, size_bytes, root))
        return down if kind == "broadcast" else [[(b, a, size) for a, b, size in each] for each in reversed(down)]
    halving = list(_halving(members, size_bytes))
    return halving if kind == "reduce_scatter" else halving[::-1]


def _ring(kind: Kind, members: int, size_bytes: float) -> Iterator[Round]:
    """Yield shards that go round; an all-to-all forwards all that is not for the receiver."""
    for step in range(1, members):
        shards = members - step if kind == "all_to_all" else 1
        yield [(i, (i + 1) % members, shards * size_bytes / members) for i in range(members)]


def _halving(members: int, size_bytes: float) -> Iterator[Round]:
    distance, part = members // 2, size_bytes / 2
    while distance:
        yield [(i, i ^ distance, part) for i in range(members)]
        distance, part = distance // 2, part / 2


def _tree(members: int, size_bytes: float, root: int) -> Iterator[Round]:
    """Yield the rounds of a binomial tree: all that have it send it to one more."""
    for power in count():
        have = 1 << power
        if have >= members:
            return
        pairs = [(i, i + have) for i in range(have) if i + have < members]
        yield [((root + a) % members, (root + b) % members, size_bytes) for a, b in pairs]


# ------------------------------------------------------------------------------------------------------- simulation


class _Play:
    """All groups at once: a member enters a round when it has received all of the round before."""

    def __init__(
        self,
        graph: LinkGraph,
        routes: Routes,
        programs: Sequence[list[Round]],
        groups: Sequence[Sequence[int]],
        pieces: int,
    ) -> None:
        self._clock = Clock()
        self._fabric = Wired(graph, self._clock, routes.path, PICOSECONDS)
        self._routes, self._groups, self._pieces = routes, groups, pieces
        self._sends: dict[tuple[int, int, int], list[tuple[int, float]]] = defaultdict(list)
        self._due: dict[tuple[int, int, int], int] = defaultdict(int)
        self._rounds = [len(program) for program in programs]
        for group, program in enumerate(programs):
            for step, each in enumerate(program):
                for source, target, size in each:
                    self._sends[group, source, step].append((target, size))
                    self._due[group, target, step] += pieces
        self._at: dict[tuple[int, int], int] = {}
        self._last_s = 0.0

    def run(self) -> float:
        """Return the seconds until the last message has arrived."""
        for group, members in enumerate(self._groups):
            for member in range(len(members)):
                self._at[group, member] = -1
                self._enter(group, member)
        self._clock.run()
        return self._last_s

    def _enter(self, group: int, member: int) -> None:
        """Send what each round has for a member, as far as it has received what comes before."""
        while self._at[group, member] + 1 < self._rounds[group]:
            step = self._at[group, member]
            if step >= 0 and self._due[group, member, step]:
                return
            self._at[group, member] = step = step + 1
            source = self._groups[group][member]
            now = self._fabric.now_s
            for target, size in self._sends[group, member, step]:
                path = self._routes.path(source, self._groups[group][target])
                for _ in range(self._pieces):
                    self._fabric.send_over(path, size / self._pieces, self._arrived, (group, target, step))
                self._fabric.now_s = now

    def _arrived(self, state: tuple[int, int, int]) -> None:
        group, member, step = state
        self._due[state] -= 1
        now = self._last_s = self._fabric.now_s
        if not self._due[state] and self._at[group, member] == step:
            self._enter(group, member)
        self._fabric.now_s = now
