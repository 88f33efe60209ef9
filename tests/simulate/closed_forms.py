"""What ASTRA-sim's congestion-unaware analytical back end reports for one collective, to the nanosecond.

It follows that simulator's integers, not physics: bandwidth is binary (1 "GB/s" is 2**30 bytes/s), a message's time is
truncated to nanoseconds, each step passes an endpoint delay, and a reduction is two reads and a write of local memory.

All ranks start together and behave alike, so one rank's time is everybody's. Not so for a double binary tree of
several chunks (leaves start the next chunk early), for a direct all-reduce on a physical ring (near peers start the
second round early), or for groups on a ring of more NPUs: the first two are upper bounds here, the last is refused.

Source: ASTRA-sim at commit 518bd51, read and run; its size convention is kept: an all-gather is given the shard of one
rank, the others the whole buffer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import count
from math import prod

from cosmic.base.errors import SpecError, UnknownName, require
from cosmic.base.numeric import is_power_of_two
from cosmic.design.collective_layer import CollectiveKind

GROUP_ENDPOINT_DELAY_NS = 10  # within a group smaller than the network the simulator ignores its setting
HOPS: dict[str, Callable[[int, int], int]] = {
    "ring": lambda distance, npus: min(distance, npus - distance),
    "fully_connected": lambda distance, npus: 1,
    "switch": lambda distance, npus: 2,
}
"""Links between two members that are *distance* apart, by topology."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """One dimension of the network and the algorithm that runs in it."""

    topology: str
    npus: int
    """Members of the collective in this dimension."""
    algorithm: str
    window: int | None = None
    """How many peers `direct` serves at once; all of them if None."""
    bandwidth_gib_per_s: float
    latency_ns: float

    def __post_init__(self) -> None:
        if self.topology not in HOPS:
            raise UnknownName.among("topology", self.topology, "topology", HOPS)
        if self.algorithm not in PHASES:
            raise UnknownName.among("algorithm", self.algorithm, "algorithm", PHASES)
        require(self.npus >= 2, "npus", self.npus, "a dimension joins at least 2 NPUs")
        require(self.window is None or self.window >= 1, "window", self.window, "must be at least 1")
        halves = self.algorithm in ("halving_doubling", "double_binary_tree")
        require(not halves or is_power_of_two(self.npus), "npus", self.npus, f"{self.algorithm} needs a power of two")


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """How each rank cuts, queues, receives and reduces."""

    memory_bandwidth_gb_per_s: float
    """Local memory, in decimal GB/s: bytes per nanosecond."""
    splits: int = 1
    """Chunks that a collective is cut into."""
    active_chunks: int = 1
    """Chunks that run at once in each dimension; the network does not slow them down."""
    endpoint_delay_ns: int = 10
    all_reduce_in_every_dimension: bool = False
    """`baseline`: whole all-reduces one after the other, instead of reduce-scatters up and all-gathers down."""
    group_of: int | None = None
    """NPUs in the network, if the collective joins a group of fewer."""

    def __post_init__(self) -> None:
        for name in ("splits", "active_chunks", "memory_bandwidth_gb_per_s"):
            require(getattr(self, name) > 0, name, getattr(self, name), "must be positive")


def message_ns(size_bytes: int, hops: int, bandwidth_gib_per_s: float, latency_ns: float) -> int:
    """Return the time of one message: t = trunc(h a + m / B).

    m  bytes    h  links on the way, passed at once    a  latency of a link [ns]    B  bandwidth [bytes/ns]

    Assumes no contention; bytes are serialised once, however many the links.

    >>> message_ns(2**20, 2, 100, 200), message_ns(2**20, 1, 50, 500)
    (10165, 20031)
    """
    return int(hops * latency_ns + size_bytes / (bandwidth_gib_per_s * 2**30 / 1e9))


def reduction_ns(size_bytes: int, memory_bandwidth_gb_per_s: float) -> int:
    """Return the time to add one message to another: two reads and a write, R = 3 trunc(m / M).

    >>> reduction_ns(2**20, 50)
    62913
    """
    return 3 * int(size_bytes / (memory_bandwidth_gb_per_s * 1e9) * 1e9)  # in this order: its rounding shows


def chunks_of(kind: CollectiveKind, size_bytes: int, splits: int, npus: int) -> tuple[int, int]:
    """Return the bytes of a chunk and how many there are: c = max(S div n, N), ceil(S / c) of them.

    S  bytes of the collective    n  splits    N  NPUs in the network; an all-gather's chunks may be smaller

    A remainder becomes one more chunk of full size.

    >>> chunks_of("all_gather", 7, 4, 2), chunks_of("all_reduce", 10, 4, 8)
    ((1, 7), (8, 4))
    """
    chunk = size_bytes // splits
    if kind != "all_gather" and chunk < npus:
        return npus, splits
    require(chunk > 0, "size_bytes", size_bytes, "must be at least one byte per split")
    return chunk, -(-size_bytes // chunk)


# ---- one chunk in one dimension


def _message(dim: Dimension, size_bytes: int, distance: int) -> int:
    hops = HOPS[dim.topology](distance, dim.npus)
    return message_ns(size_bytes, hops, dim.bandwidth_gib_per_s, dim.latency_ns)


def ring_ns(kind: CollectiveKind, size_bytes: int, dim: Dimension, system: System) -> int:
    """Return the time of N members that pass parts to their next neighbour.

        all-reduce      (2N - 1) d + 2 (N - 1) L + (N - 1) R      all-gather  N d + (N - 1) L
        reduce-scatter  N d + (N - 1) (L + R)                     all-to-all  (s + 1) d + s L,  s = N (N - 1) / 2

    d  endpoint delay    L  time of a message of a part    R  time to reduce it

    >>> dim = Dimension(topology="ring", npus=8, algorithm="ring", bandwidth_gib_per_s=50, latency_ns=500)
    >>> ring_ns("all_reduce", 256, dim, System(memory_bandwidth_gb_per_s=50))
    7150
    """
    n = dim.npus
    part = size_bytes if kind == "all_gather" else size_bytes // n
    reduce = reduction_ns(part, system.memory_bandwidth_gb_per_s) if kind in ("all_reduce", "reduce_scatter") else 0
    messages = {"all_reduce": 2 * (n - 1), "all_to_all": n * (n - 1) // 2}.get(kind, n - 1)
    return (messages + 1) * system.endpoint_delay_ns + messages * _message(dim, part, 1) + (n - 1) * reduce


def direct_ns(kind: CollectiveKind, size_bytes: int, dim: Dimension, system: System) -> int:
    """Return the time of N members that send to all others, W at a time: the messages to peers 1 ... N-1 form W lanes.

        t = d + max over lanes [ sum over its k messages (L + d)  +  ceil(k / 2) R ]      R if it reduces

    An all-reduce is two such rounds, of which the first reduces. In a group it reduces in both.

    >>> dim = Dimension(topology="switch", npus=4, algorithm="direct", bandwidth_gib_per_s=100, latency_ns=200)
    >>> direct_ns("all_to_all", 2**22, dim, System(memory_bandwidth_gb_per_s=50))  # 2 d + L
    10185
    """
    part = size_bytes if kind == "all_gather" else size_bytes // dim.npus
    sends = [_message(dim, part, distance) + system.endpoint_delay_ns for distance in range(1, dim.npus)]
    lanes = [sends[first :: dim.window or len(sends)] for first in range(min(dim.window or len(sends), len(sends)))]
    plain = max(sum(lane) for lane in lanes)
    reduce = reduction_ns(part, system.memory_bandwidth_gb_per_s)
    reducing = max(sum(lane) + -(-len(lane) // 2) * reduce for lane in lanes)
    second = reducing if system.group_of else plain
    rounds = {"all_reduce": reducing + second, "reduce_scatter": reducing}.get(kind, plain)
    return system.endpoint_delay_ns + rounds


def halving_doubling_ns(kind: CollectiveKind, size_bytes: int, dim: Dimension, system: System) -> int:
    """Return the time of N = 2**k members that exchange halves: step i sends M / 2**(i+1) over a distance of 2**i.

        reduce-scatter  (k + 1) d + sum L(m_i) + sum over i >= 1 of R(m_i)
        all-reduce     (2k + 1) d + 2 sum L(m_i) + sum over i >= 1 of R(m_i)
        all-gather      (k + 1) d + sum L(M 2**i), the distances in reverse

    A reduction is charged at the size of the next message, so the last one is free.

    >>> dim = Dimension(topology="ring", npus=8, algorithm="halving_doubling", bandwidth_gib_per_s=50, latency_ns=500)
    >>> halving_doubling_ns("all_gather", 256, dim, System(memory_bandwidth_gb_per_s=50))
    3572
    """
    if kind == "all_to_all":
        raise SpecError("algorithm", dim.algorithm, "has no all-to-all")
    steps = dim.npus.bit_length() - 1
    if kind == "all_gather":
        sends = sum(_message(dim, size_bytes << i, dim.npus >> (i + 1)) for i in range(steps))
        return (steps + 1) * system.endpoint_delay_ns + sends
    sends = sum(_message(dim, size_bytes >> (i + 1), 1 << i) for i in range(steps))
    reductions = sum(reduction_ns(size_bytes >> (i + 1), system.memory_bandwidth_gb_per_s) for i in range(1, steps))
    times = 2 if kind == "all_reduce" else 1
    return (times * steps + 1) * system.endpoint_delay_ns + times * sends + reductions


def double_binary_tree_ns(kind: CollectiveKind, size_bytes: int, dim: Dimension, system: System) -> int:
    """Return the time of an all-reduce up and down a tree of depth k: (2k + 1) d + 2k L(M) + (2k - 1) R(M).

    Whole chunks travel, and are charged a reduction on the way down too.

    >>> tree = "double_binary_tree"
    >>> dim = Dimension(topology="switch", npus=4, algorithm=tree, bandwidth_gib_per_s=100, latency_ns=500)
    >>> double_binary_tree_ns("all_reduce", 2**26, dim, System(memory_bandwidth_gb_per_s=50))
    14583643
    """
    if kind != "all_reduce":
        raise SpecError("algorithm", dim.algorithm, "knows only all-reduce")
    depth = dim.npus.bit_length() - 1
    reduce = reduction_ns(size_bytes, system.memory_bandwidth_gb_per_s)
    sends = 2 * depth * _message(dim, size_bytes, 1)
    return (2 * depth + 1) * system.endpoint_delay_ns + sends + (2 * depth - 1) * reduce


PHASES: dict[str, Callable[[CollectiveKind, int, Dimension, System], int]] = {
    "ring": ring_ns,
    "direct": direct_ns,
    "halving_doubling": halving_doubling_ns,
    "double_binary_tree": double_binary_tree_ns,
}


# ---- a whole collective


def collective_ns(kind: CollectiveKind, size_bytes: int, dimensions: Sequence[Dimension], system: System) -> int:
    """Return the time of one collective that all NPUs of *dimensions* start together.

    In one dimension that is T ceil(n / a) for n chunks of time T, a of which run at once; over several dimensions
    chunks follow each other through first-come-first-served queues.

    >>> dim = Dimension(topology="ring", npus=8, algorithm="ring", bandwidth_gib_per_s=50, latency_ns=500)
    >>> collective_ns("all_reduce", 1024, [dim], System(memory_bandwidth_gb_per_s=50, splits=4))
    28600
    """
    if system.group_of:
        alike = len(dimensions) == 1 and dimensions[0].topology != "ring"
        require(alike, "group_of", system.group_of, "a group has a closed form on one switch or fully connected group")
        system = replace(system, endpoint_delay_ns=GROUP_ENDPOINT_DELAY_NS)
    npus = system.group_of or prod(dim.npus for dim in dimensions)
    chunk, chunks = chunks_of(kind, size_bytes, system.splits, npus)
    phases = [
        (place, PHASES[dimensions[place].algorithm](phase, size, dimensions[place], system))
        for phase, place, size in plan(kind, chunk, dimensions, in_every=system.all_reduce_in_every_dimension)
    ]
    return pipeline_ns(phases, chunks, system.active_chunks)


def plan(
    kind: CollectiveKind, chunk_bytes: int, dimensions: Sequence[Dimension], *, in_every: bool
) -> Iterator[tuple[CollectiveKind, int, int]]:
    """Yield what a chunk does: which collective, in which dimension, with how many bytes.

    An all-reduce scatters upwards, reduces in the last dimension and gathers downwards.
    """
    size, phases = chunk_bytes, [(kind, place) for place in range(len(dimensions))]
    if kind == "all_gather":
        phases.reverse()
    if kind == "all_reduce" and not in_every:
        *lower, last = range(len(dimensions))
        phases = [("reduce_scatter", place) for place in lower]
        phases += [("all_reduce", last), *(("all_gather", place) for place in reversed(lower))]
    for phase, place in phases:
        yield phase, place, size
        if phase == "reduce_scatter":
            size //= dimensions[place].npus
        elif phase == "all_gather":
            size *= dimensions[place].npus


def pipeline_ns(phases: Sequence[tuple[int, int]], chunks: int, active: int) -> int:
    """Return when *chunks* alike have passed *phases*: (dimension, time) each, *active* at once in a dimension.

    A chunk that ends a phase joins the next dimension's queue before the one it leaves is served.

    >>> pipeline_ns([(0, 5), (1, 3)], 3, 1), pipeline_ns([(0, 5)], 3, 2)
    (18, 10)
    """
    waiting: dict[int, deque[int]] = {place: deque() for place, _ in phases}
    free = dict.fromkeys(waiting, active)
    running: list[tuple[int, int, int]] = []
    serial, now = count(), 0

    def serve(place: int) -> None:
        while free[place] and waiting[place]:
            phase = waiting[place].popleft()
            free[place] -= 1
            heappush(running, (now + phases[phase][1], next(serial), phase))

    waiting[phases[0][0]].extend([0] * chunks)
    serve(phases[0][0])
    while running:
        now, _, phase = heappop(running)
        left = phases[phase][0]
        free[left] += 1
        if phase + 1 < len(phases):
            entered = phases[phase + 1][0]
            waiting[entered].append(phase + 1)
            serve(entered)
        serve(left)
    return now
