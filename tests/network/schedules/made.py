"""Networks and valid schedules for tests, made by a greedy rule of their own."""

from __future__ import annotations

from dataclasses import replace
from heapq import heappop, heappush

import numpy as np

from cosmic.network.link_graph import LinkGraph, graph_of
from cosmic.network.schedules.collective_schedule import Kind, Schedule
from cosmic.network.schedules.schedule_tables import sort_transfers


def ring(npus: int, rate: float = 1e9, latency_s: float = 1e-6) -> LinkGraph:
    """Return a ring with links in both directions, of which the first *npus* go forward."""
    forward = [(i, (i + 1) % npus, rate, latency_s) for i in range(npus)]
    return graph_of(npus, forward + [(b, a, r, late) for a, b, r, late in forward])


def random_graph(rng: np.random.Generator, npus: int) -> LinkGraph:
    """Return a connected network of links of several speeds: a ring both ways, and some more pairs."""
    pairs = [(i, (i + 1) % npus) for i in range(npus)] + [tuple(rng.permutation(npus)[:2]) for _ in range(npus)]
    links = []
    for a, b in sorted({(int(min(pair)), int(max(pair))) for pair in pairs}):
        rate, late = float(rng.choice([1e9, 2e9, 5e8])), float(rng.choice([1e-6, 5e-7]))
        links += [(a, b, rate, late), (b, a, rate, late)]
    return graph_of(npus, links)


def gathered(graph: LinkGraph, k: int = 1, size_bytes: float = 8e6, rng: np.random.Generator | None = None) -> Schedule:
    """Return an all-gather: whenever a link is free, it takes a chunk that its target lacks and does not expect."""
    n = graph.npus
    size = size_bytes / (n * k)
    takes = graph.latency_s + size / graph.bandwidth_bytes_per_s
    have = [{c for c in range(n * k) if c % n == node} for node in range(n)]
    expected = [set(each) for each in have]
    rows: list[tuple[int, int, float, float]] = []
    events: list[tuple[float, int, int]] = [(0.0, link, -1) for link in range(graph.links)]
    idle: set[int] = set()
    while events:
        now = events[0][0]
        while events and events[0][0] == now:
            _, link, chunk = heappop(events)
            if chunk >= 0:
                have[int(graph.targets[link])].add(chunk)
            idle.add(link)
        order = sorted(idle) if rng is None else rng.permutation(sorted(idle)).tolist()
        for link in order:
            source, target = int(graph.sources[link]), int(graph.targets[link])
            wanted = sorted(have[source] - expected[target])
            if wanted:
                picked = wanted[0] if rng is None else int(rng.choice(wanted))
                expected[target].add(picked)
                end = now + float(takes[link])
                rows.append((link, picked, now, end))
                heappush(events, (end, link, picked))
                idle.discard(link)
    table = np.array(rows)
    links, chunks = table[:, 0].astype(np.int64), table[:, 1].astype(np.int64)
    everyone = (tuple(range(n)),)
    return sort_transfers(
        Schedule(graph, "all_gather", size_bytes, k, everyone, links, chunks, table[:, 2], table[:, 3])
    )


def scattered(gather: Schedule) -> Schedule:
    """Return the reduce-scatter that is an all-gather backwards, on the network turned round."""
    time = gather.time_s
    turned = replace(gather, graph=gather.graph.transposed(), kind="reduce_scatter")
    return sort_transfers(replace(turned, start_s=time - gather.end_s, end_s=time - gather.start_s))


def reduced(gather: Schedule) -> Schedule:
    """Return an all-reduce on a network whose links have a partner: the reduce-scatter, then the all-gather."""
    graph = gather.graph
    place = {pair: at for at, pair in enumerate(zip(graph.sources.tolist(), graph.targets.tolist(), strict=True))}
    back = np.array([place[b, a] for a, b in place])
    scatter = scattered(gather)
    time = scatter.time_s
    return sort_transfers(
        replace(
            gather,
            kind="all_reduce",
            link=np.concatenate([back[scatter.link], gather.link]),
            chunk=np.concatenate([scatter.chunk, gather.chunk]),
            start_s=np.concatenate([scatter.start_s, gather.start_s + time]),
            end_s=np.concatenate([scatter.end_s, gather.end_s + time]),
        )
    )


def of_kind(kind: Kind, gather: Schedule) -> Schedule:
    """Return the schedule of a kind that is made from an all-gather."""
    made = {"all_gather": lambda: gather, "reduce_scatter": lambda: scattered(gather)}
    return made.get(kind, lambda: reduced(gather))()


def star(npus: int, rate: float = 1e9, latency_s: float = 1e-6) -> LinkGraph:
    """Return NPUs around one switch: links up first, then links down."""
    up = [(i, npus, rate, latency_s) for i in range(npus)]
    return graph_of(npus, up + [(b, a, r, late) for a, b, r, late in up], 1)
