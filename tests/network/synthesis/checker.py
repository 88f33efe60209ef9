"""A schedule replayed transfer by transfer, by rules of its own: an independent check for these tests."""

from __future__ import annotations

from collections import deque

import numpy as np

from cosmic.network.link_graph import LinkGraph, graph_of
from cosmic.network.schedules.collective_schedule import Schedule, chunk_count

Holds = dict[tuple[int, int], frozenset[int]]


def check(schedule: Schedule) -> None:
    """Fail unless transfers last as long as they should, hold links alone, are causal, and bring all chunks home."""
    of_chunk, wanted = _chunks(schedule)
    graph = schedule.graph
    links, chunks = schedule.link.tolist(), schedule.chunk.tolist()
    starts, ends = schedule.start_s.tolist(), schedule.end_s.tolist()
    assert starts == sorted(starts)
    _check_links(schedule, of_chunk)
    holds: Holds = {}
    for chunk, (_, parts) in enumerate(wanted):
        for node, part in parts.items():
            holds[chunk, node] = part
    passing: dict[tuple[int, int], deque[frozenset[int]]] = {}
    sent: dict[int, frozenset[int]] = {}
    events = sorted(
        [(start, 1, place) for place, start in enumerate(starts)] + [(end, 0, place) for place, end in enumerate(ends)]
    )
    for _, begins, place in events:
        chunk, link = chunks[place], links[place]
        source, target = int(graph.sources[link]), int(graph.targets[link])
        everyone = frozenset(schedule.groups[of_chunk[chunk]])
        if begins:
            if source >= graph.npus and source not in graph.reducing:
                assert passing.get((chunk, source)), f"switch {source} has no message of chunk {chunk}"
                sent[place] = passing[chunk, source].popleft()
            else:
                assert holds.get((chunk, source)), f"node {source} sends chunk {chunk}, which it does not have"
                sent[place] = holds[chunk, source]
        elif target >= graph.npus and target not in graph.reducing:
            passing.setdefault((chunk, target), deque()).append(sent[place])
        else:
            _receive(schedule, holds, (chunk, target), sent[place], everyone)
    assert not any(passing.values()), "a switch keeps a message"
    for chunk, (targets, _) in enumerate(wanted):
        full = _full(schedule, chunk, of_chunk[chunk])
        for node in targets:
            assert holds.get((chunk, node)) == full, f"chunk {chunk} is not at node {node}"


def _receive(
    schedule: Schedule, holds: Holds, key: tuple[int, int], message: frozenset[int], everyone: frozenset[int]
) -> None:
    before = holds.get(key, frozenset())
    if schedule.kind in ("all_gather", "all_to_all", "broadcast"):
        assert not before, f"chunk {key[0]} comes to node {key[1]} twice"
        holds[key] = message
    elif message == everyone:
        assert before != everyone, f"the sum of chunk {key[0]} comes to node {key[1]} twice"
        holds[key] = message
    else:
        assert not before & message, f"parts of chunk {key[0]} are added twice at node {key[1]}"
        holds[key] = before | message


def _check_links(schedule: Schedule, of_chunk: list[int]) -> None:
    graph = schedule.graph
    sizes = np.array([schedule.chunk_bytes(group) for group in range(len(schedule.groups))])
    size = sizes[np.array(of_chunk, np.int64)[schedule.chunk]] if len(schedule.chunk) else np.zeros(0)
    lasts = graph.latency_s[schedule.link] + size / graph.bandwidth_bytes_per_s[schedule.link]
    assert np.allclose(schedule.end_s - schedule.start_s, lasts, rtol=1e-6, atol=1e-12 * schedule.time_s)
    assert np.all(schedule.start_s >= 0)
    for link in np.unique(schedule.link):
        own = np.flatnonzero(schedule.link == link)
        assert np.all(schedule.start_s[own][1:] >= schedule.end_s[own][:-1]), f"link {link} carries two at once"


def _full(schedule: Schedule, chunk: int, group: int) -> frozenset[int]:
    if schedule.kind in ("all_gather", "all_to_all", "broadcast"):
        return frozenset([-1])
    return frozenset(schedule.groups[group])


def _chunks(schedule: Schedule) -> tuple[list[int], list[tuple[set[int], dict[int, frozenset[int]]]]]:
    """Return the group of each chunk, and where it must end and where it begins."""
    of_chunk, wanted = [], []
    for place, group in enumerate(schedule.groups):
        count = len(group)
        parts = {member: frozenset([member]) for member in group}
        for chunk in range(chunk_count(schedule.kind, count, schedule.chunks_per_npu)):
            of_chunk.append(place)
            own, to, root = group[chunk % count], group[chunk // count % count], group[schedule.root]
            wanted.append(
                {
                    "all_gather": (set(group), {own: frozenset([-1])}),
                    "all_to_all": ({to}, {own: frozenset([-1])}),
                    "broadcast": (set(group), {root: frozenset([-1])}),
                    "reduce_scatter": ({own}, parts),
                    "reduce": ({root}, parts),
                    "all_reduce": (set(group), parts),
                }[schedule.kind]
            )
    return of_chunk, wanted


def random_network(seed: int, *, switches: bool = False) -> LinkGraph:
    """Return a strongly connected network of 2 to 12 nodes, with links of different kinds."""
    rng = np.random.default_rng(seed)
    npus = int(rng.integers(2, 9 if switches else 13))
    count = int(rng.integers(1, 4)) if switches else 0
    nodes = npus + count

    def kind() -> tuple[float, float]:
        return float(rng.choice([25, 50, 100])) * 1e9, float(rng.choice([0, 5e-7, 2e-6]))

    links = []
    order = rng.permutation(nodes)
    for place in range(nodes if nodes > 2 else 1):
        left, right = int(order[place]), int(order[(place + 1) % nodes])
        links += [(left, right, *kind()), (right, left, *kind())]
    for _ in range(int(rng.integers(0, 2 * nodes))):
        left, right = (int(each) for each in rng.choice(nodes, 2, replace=False))
        links.append((left, right, *kind()))
    return graph_of(npus, links, count)


def star(npus: int, bandwidth: float = 1e9, latency_s: float = 0.0) -> LinkGraph:
    """Return one switch that joins all NPUs."""
    up = [(npu, npus, bandwidth, latency_s) for npu in range(npus)]
    down = [(npus, npu, bandwidth, latency_s) for npu in range(npus)]
    return graph_of(npus, up + down, 1)


def grid(*sizes: int, wrap: bool = True, bandwidth: float = 50 * 2.0**30, latency_s: float = 5e-7) -> LinkGraph:
    """Return a torus, or a mesh."""
    links, npus = [], int(np.prod(sizes))
    for npu in range(npus):
        stride = 1
        for size in sizes:
            at = npu // stride % size
            near = {(at + 1) % size, (at - 1) % size} if wrap else {at + 1, at - 1} & set(range(size))
            links += [(npu, npu + (to - at) * stride, bandwidth, latency_s) for to in sorted(near - {at})]
            stride *= size
    return graph_of(npus, links)
