"""Algorithms of trees that only this table compares with: two trees that wait for each other, C-Cube and MultiTree.

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

import numpy as np

from cosmic.base.errors import require
from cosmic.base.event_clock import EventClock
from cosmic.network.collective_algorithms.double_binary_tree import NO_PARENT, double_tree_parents
from cosmic.network.link_graph import LinkGraph
from cosmic.network.link_paths import Routes
from cosmic.network.schedules.schedule_replay import PICOSECONDS, WiredFabric

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


def double_trees(members: int) -> tuple[dict[int, int], dict[int, int]]:
    """Return the parent of every member but the root, in both trees of the double binary tree, from leaf 1 of each."""
    first, second = (parents.tolist() for parents in double_tree_parents(members))
    own = range(1, members)
    place = [(index + 1) % members if members % 2 else members - 1 - index for index in range(members)]
    return (
        {child: first[child] for child in own},
        {place[child]: second[place[child]] for child in own if second[place[child]] != NO_PARENT},
    )


def double_tree_s(graph: LinkGraph, size_bytes: float, *, overlapped: bool) -> float | None:
    """Return the seconds of an all-reduce over two trees, with the best number of chunks; None if they are too many.

    With *overlapped* a chunk goes down as soon as it is added up (C-Cube), else after the last one has been.
    """
    trees = double_trees(graph.npus)
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
