"""Baseline algorithms on any network: rings, halving and doubling, double binary trees, C-Cube, MultiTree.

Textbook algorithms on any network: their messages on the quickest paths, with congestion on every link.

Members are in the order of their group. In each round of a ring, of halving and doubling or of a tree, a member sends
to one other and waits for one; a two-way ring sends half of the bytes each way; in direct exchange a member sends to
all at once. Messages are sent in one piece, or in several that follow one another through relays and switches,
whichever is faster.

Algorithms of trees on any network, as baselines: double binary trees, C-Cube and MultiTree.

Double binary trees (Sanders, Speck & Träff, 2009; NCCL): two trees, in each of which half of the data is added up
towards the root and then sent down again, in chunks that follow one another; members that are leaves of one tree have
children in the other. C-Cube (Cho et al., HPCA 2023) sends each chunk down as soon as it is added up, so that both
directions of a link are busy. Neighbours in a tree may be several links apart: messages take the quickest path.

MultiTree (Huang et al., ISCA 2021) grows a tree from every NPU over the links themselves, all at once: in each time
step the trees take turns to take one more free link each.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from cosmic.base.arithmetic import is_power_of_two
from cosmic.base.errors import require
from cosmic.base.event_clock import EventClock
from cosmic.network.link_graph import LinkGraph
from cosmic.network.link_paths import Routes
from cosmic.network.schedules.collective_schedule import Kind
from cosmic.network.schedules.schedule_replay import PICOSECONDS, WiredFabric

# ---- Textbook algorithms on any network: their messages on the quickest paths, with congestion on every link

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


def make_baselines(
    graph: LinkGraph, kind: Kind, size_bytes: float, groups: Sequence[Sequence[int]], root: int = 0
) -> list[Baseline]:
    """Return the times of all textbook algorithms that do a collective."""
    return [_time_baseline(graph, name, kind, size_bytes, groups, root) for name in ALGORITHMS[kind]]


ALGORITHMS: dict[Kind, tuple[str, ...]] = {
    "all_gather": ("ring", "two_way_ring", "direct", "halving_doubling"),
    "reduce_scatter": ("ring", "two_way_ring", "direct", "halving_doubling"),
    "all_reduce": ("ring", "two_way_ring", "direct", "halving_doubling"),
    "all_to_all": ("ring", "direct"),
    "broadcast": ("tree",),
    "reduce": ("tree",),
}


def _time_baseline(
    graph: LinkGraph, name: str, kind: Kind, size_bytes: float, groups: Sequence[Sequence[int]], root: int
) -> Baseline:
    # Recursive halving needs a partner for every member in each round.
    if name == "halving_doubling" and not all(is_power_of_two(len(group)) for group in groups):
        return Baseline(name, None, "needs a power of two of members")
    programs = [algorithm_rounds(name, kind, len(group), size_bytes, root) for group in groups]
    messages = sum(len(sends) for program in programs for sends in program)
    if messages > MOST_HOPS:
        return Baseline(name, None, f"has more than {MOST_HOPS:,} messages")
    largest = max((size for program in programs for sends in program for *_, size in sends), default=1.0)
    routes = Routes(graph, largest, balanced=True)
    hops, longest = _count_hops(routes, programs, groups)
    if hops > MOST_HOPS:
        return Baseline(name, None, f"has more than {MOST_HOPS:,} messages on links")
    tried = [pieces for pieces in PIECES if pieces == 1 or (longest > 1 and hops * pieces <= MOST_HOPS)]
    return Baseline(name, min(_AlgorithmRun(graph, routes, programs, groups, pieces).run() for pieces in tried))


def _count_hops(routes: Routes, programs: Sequence[list[Round]], groups: Sequence[Sequence[int]]) -> tuple[int, int]:
    """Return on how many links all messages are together, and the most of one."""
    total = longest = 0
    for program, group in zip(programs, groups, strict=True):
        for source, target, _ in (message for sends in program for message in sends):
            links = len(routes.path(group[source], group[target]))
            total, longest = total + links, max(longest, links)
    return total, longest


# ---- rounds


def algorithm_rounds(algorithm: str, kind: Kind, members: int, size_bytes: float, root: int = 0) -> list[Round]:
    """Return the rounds of a collective among *members*.

    >>> algorithm_rounds("ring", "all_gather", 2, 8.0)
    [[(0, 1, 4.0), (1, 0, 4.0)]]
    >>> [sum(size for *_, size in each) for each in algorithm_rounds("halving_doubling", "reduce_scatter", 4, 8.0)]
    [16.0, 8.0]
    """
    if kind == "all_reduce":
        parts: tuple[Kind, Kind] = ("reduce_scatter", "all_gather")
        return [
            algorithm_round
            for part in parts
            for algorithm_round in algorithm_rounds(algorithm, part, members, size_bytes, root)
        ]
    if members == 1:
        return []
    if algorithm == "ring":
        return list(_ring_rounds(kind, members, size_bytes))
    if algorithm == "two_way_ring":
        way = [[(i, (i + 1) % members, size_bytes / members / 2) for i in range(members)] for _ in range(1, members)]
        return [sends + [(target, source, size) for source, target, size in sends] for sends in way]
    if algorithm == "direct":
        shifts = range(1, members)
        return [[(i, (i + shift) % members, size_bytes / members) for shift in shifts for i in range(members)]]
    if algorithm == "tree":
        down = list(_tree_rounds(members, size_bytes, root))
        return down if kind == "broadcast" else [[(b, a, size) for a, b, size in sends] for sends in reversed(down)]
    halving = list(_halving_rounds(members, size_bytes))
    return halving if kind == "reduce_scatter" else halving[::-1]


def _ring_rounds(kind: Kind, members: int, size_bytes: float) -> Iterator[Round]:
    """Yield shards that go round; an all-to-all forwards all that is not for the receiver."""
    for step in range(1, members):
        shards = members - step if kind == "all_to_all" else 1
        yield [(i, (i + 1) % members, shards * size_bytes / members) for i in range(members)]


def _halving_rounds(members: int, size_bytes: float) -> Iterator[Round]:
    distance, part = members // 2, size_bytes / 2
    while distance:
        yield [(i, i ^ distance, part) for i in range(members)]
        distance, part = distance // 2, part / 2


def _tree_rounds(members: int, size_bytes: float, root: int) -> Iterator[Round]:
    """Yield the rounds of a binomial tree: all that have it send it to one more."""
    for power in count():
        have = 1 << power
        if have >= members:
            return
        pairs = [(i, i + have) for i in range(have) if i + have < members]
        yield [((root + a) % members, (root + b) % members, size_bytes) for a, b in pairs]


# ---- simulation


class _AlgorithmRun:
    """All groups at once: a member enters a round when it has received all of the round before."""

    def __init__(
        self,
        graph: LinkGraph,
        routes: Routes,
        programs: Sequence[list[Round]],
        groups: Sequence[Sequence[int]],
        pieces: int,
    ) -> None:
        self._clock = EventClock()
        self._fabric = WiredFabric(graph, self._clock, routes.path, PICOSECONDS)
        self._routes, self._groups, self._pieces = routes, groups, pieces
        self._sends: dict[tuple[int, int, int], list[tuple[int, float]]] = defaultdict(list)
        self._due: dict[tuple[int, int, int], int] = defaultdict(int)
        self._rounds = [len(program) for program in programs]
        for group, program in enumerate(programs):
            for step, sends in enumerate(program):
                for source, target, size in sends:
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


# ---- Algorithms of trees on any network, as baselines: double binary trees, C-Cube and MultiTree

CHUNKS = (1, 4, 16, 64)
"""Chunks of each tree that are tried."""
MOST_MESSAGES = 60_000
"""Messages that are simulated."""
MOST_TREES = 256


@dataclass(frozen=True, slots=True)
class Hop:
    """A message of a chunk from one NPU to another, after those of some other messages have arrived."""

    source: int
    target: int
    after: tuple[int, ...]


def binary_tree(members: Sequence[int]) -> dict[int, int]:
    """Return the parent of every member but the root, which is the first; every other member is a leaf.

    >>> binary_tree([0, 1, 2, 3, 4, 5, 6, 7])
    {1: 2, 2: 4, 3: 2, 4: 0, 5: 6, 6: 4, 7: 6}
    """
    parents = {}
    for index in range(1, len(members)):
        bit = index & -index
        above = (index ^ bit) | (bit << 1)
        parents[members[index]] = members[above if above < len(members) else index ^ bit]
    return parents


def double_trees(members: Sequence[int]) -> tuple[dict[int, int], dict[int, int]]:
    """Return two binary trees, the second mirrored or shifted: with an even number, each member is a leaf in one.

    Of an odd number it is shifted by one member, and one has children in both, or in none.
    """
    mirrored = [*members[1:], *members[:1]] if len(members) % 2 else members[::-1]
    return binary_tree(members), binary_tree(mirrored)


def double_tree_s(graph: LinkGraph, size_bytes: float, *, overlapped: bool) -> float | None:
    """Return the seconds of an all-reduce over two trees, with the best number of chunks; None if they are too many.

    With *overlapped* a chunk goes down as soon as it is added up (C-Cube), else after the last one has been.
    """
    trees = double_trees(range(graph.npus))
    times = []
    for chunks in CHUNKS:
        hops = list(_tree_hops(trees, chunks, overlapped))
        if len(hops) <= MOST_MESSAGES:
            times.append(_replay_s(graph, hops, size_bytes / (2 * chunks)))
    return min(times, default=None)


def _tree_hops(trees: Sequence[dict[int, int]], chunks: int, overlapped: bool) -> Iterator[Hop]:
    """Yield the messages of all chunks: up each tree, and down again."""
    number = 0
    up: list[list[dict[int, int]]] = []
    for _ in range(chunks):
        up.append([])
        for parents in trees:
            sent: dict[int, int] = {}
            children: dict[int, list[int]] = defaultdict(list)
            for child, parent in _walk_upwards(parents):
                yield Hop(child, parent, tuple(sent[grandchild] for grandchild in children[child]))
                sent[child], number = number, number + 1
                children[parent].append(child)
            up[-1].append(sent)
    for chunk in range(chunks):
        for which, parents in enumerate(trees):
            root = next(parent for parent in parents.values() if parent not in parents)
            added = up[chunk if overlapped else -1][which]
            ready = tuple(added[child] for child, parent in parents.items() if parent == root)
            came: dict[int, tuple[int, ...]] = {root: ready}
            for child, parent in reversed(list(_walk_upwards(parents))):
                yield Hop(parent, child, came[parent])
                came[child], number = (number,), number + 1


def _walk_upwards(parents: dict[int, int]) -> Iterator[tuple[int, int]]:
    """Yield members and their parents, children before parents."""
    waiting: dict[int, int] = defaultdict(int)
    for parent in parents.values():
        waiting[parent] += 1
    ready = deque(child for child in parents if not waiting[child])
    while ready:
        child = ready.popleft()
        parent = parents[child]
        yield child, parent
        waiting[parent] -= 1
        if not waiting[parent] and parent in parents:
            ready.append(parent)


def _replay_s(graph: LinkGraph, hops: Sequence[Hop], chunk_bytes: float) -> float:
    """Return the seconds until the last message has arrived, with congestion on every link."""
    routes = Routes(graph, chunk_bytes, balanced=True)
    clock = EventClock()
    fabric = WiredFabric(graph, clock, routes.path, PICOSECONDS)
    pending = [len(hop.after) for hop in hops]
    waiting: dict[int, list[int]] = defaultdict(list)
    for number, hop in enumerate(hops):
        for earlier in hop.after:
            waiting[earlier].append(number)
    last = 0.0

    def send(number: int) -> None:
        hop = hops[number]
        fabric.send_over(routes.path(hop.source, hop.target), chunk_bytes, arrived, number)

    def arrived(number: int) -> None:
        nonlocal last
        now = last = fabric.now_s
        for later in waiting[number]:
            pending[later] -= 1
            if not pending[later]:
                fabric.now_s = now
                send(later)
        fabric.now_s = now

    for number, hop in enumerate(hops):
        if not hop.after:
            fabric.now_s = 0.0
            send(number)
    clock.run()
    return last


def multitree_s(graph: LinkGraph, size_bytes: float) -> float | None:
    """Return the seconds of an all-reduce by MultiTree: a reduce-scatter, then an all-gather.

    Trees are of links between NPUs: a network with switches has none. None, too, where they are too many to grow.
    """
    if graph.switches or graph.npus > MOST_TREES:
        return None
    return sum(_gathered_s(direction, size_bytes) for direction in (graph.transposed(), graph))


def _gathered_s(graph: LinkGraph, size_bytes: float) -> float:
    """Return the seconds of an all-gather: transfers in the order in which trees took their links."""
    takes = (graph.latency_s + size_bytes / graph.npus / graph.bandwidth_bytes_per_s).tolist()
    sources, targets = graph.sources.tolist(), graph.targets.tolist()
    free = [0.0] * graph.links
    has = np.full((graph.npus, graph.npus), np.inf)
    np.fill_diagonal(has, 0.0)
    for link, tree in _grow_multitree(graph):
        start = max(free[link], float(has[tree, sources[link]]))
        free[link] = has[tree, targets[link]] = start + takes[link]
    return float(has.max())


def _grow_multitree(graph: LinkGraph) -> Iterator[tuple[int, int]]:
    """Yield links and the roots of the trees that take them, step by step; in a step each link is taken once."""
    out: list[list[tuple[int, int]]] = [[] for _ in range(graph.npus)]
    for link in np.argsort(-graph.bandwidth_bytes_per_s, kind="stable").tolist():
        out[int(graph.sources[link])].append((link, int(graph.targets[link])))
    held = [[root] for root in range(graph.npus)]
    has = [{root} for root in range(graph.npus)]
    growing = list(range(graph.npus))
    while growing:
        taken: set[int] = set()
        before = [members[:] for members in held]  # what arrives in a step is sent on in the next
        turn = growing
        # Trees take turns to grow by one node: none starves while links are left in this step.
        while turn:
            again = []
            for root in turn:
                free = (
                    (link, target)
                    for member in before[root]
                    for link, target in out[member]
                    if link not in taken and target not in has[root]
                )
                if edge := next(free, None):
                    link, target = edge
                    taken.add(link)
                    has[root].add(target)
                    held[root].append(target)
                    again.append(root)
                    yield link, root
            turn = again
        require(bool(taken), "network", f"{graph.npus} NPUs", "is not connected: some NPUs cannot be reached")
        growing = [root for root in growing if len(has[root]) < graph.npus]
