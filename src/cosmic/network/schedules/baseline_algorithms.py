"""Textbook algorithms on any network: their seconds with congestion on every link, and their schedules.

What an algorithm sends is in its rounds (`cosmic.network.collective_rounds`). Members are in the order of their group.
Messages take the quickest paths, in one piece, or in several that follow one another through relays and switches,
whichever is faster; what goes up and down trees is cut in chunks that follow one another through their levels.

`textbook_schedule` writes an algorithm down chunk by chunk and link by link: to export, to check, to draw.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import numpy as np

from cosmic.base.errors import SpecError, UnknownName, require
from cosmic.base.event_clock import EventClock
from cosmic.design.collective_layer import CollectiveKind, algorithms
from cosmic.network.collective_algorithms.binomial_tree import BinomialTree
from cosmic.network.collective_algorithms.in_network import IN_NETWORK
from cosmic.network.collective_algorithms.ring_algorithm import one_way_ring
from cosmic.network.collective_algorithms.synthesized import SYNTHESIZED
from cosmic.network.collective_rounds import NO_CHUNK, NOTHING, Rounds, rounds_of
from cosmic.network.link_costs import sends_to_all_at_once
from cosmic.network.link_graph import LinkGraph
from cosmic.network.link_paths import Routes
from cosmic.network.schedules.collective_schedule import Kind, Schedule, chunk_count
from cosmic.network.schedules.schedule_replay import PICOSECONDS, WiredFabric, replay_schedule

Sends = list[tuple[int, int, float]]
"""Messages that go out at once: from and to positions in a group, and bytes."""
PIECES = (1, 8)
"""Pieces of a message on its path that are tried."""
TREE_CHUNKS = (1, 4, 16, 64)
"""Chunks of a buffer on its way through levels of trees that are tried."""
MOST_HOPS = 200_000
"""Messages times links that are simulated."""
MOST_TRANSFERS = 1_000_000
"""Transfers of a schedule that is written down."""
CHOICES = ("auto", SYNTHESIZED, IN_NETWORK)
"""Names that stand for no algorithm among NPUs: a library's choice, a search, and what switches do."""


# ---- which algorithms there are, and their rounds


def algorithms_of(kind: Kind) -> dict[str, Callable[[int], Rounds]]:
    """Return the textbook algorithms that do a collective among any number of members, and those of extensions.

    A ring is there twice: one way round, as most papers draw it, and both ways at once.

    >>> list(algorithms_of("all_to_all"))
    ['ring', 'two_way_ring', 'direct', 'halving_doubling']
    """
    if kind in ("broadcast", "reduce"):
        return {"tree": partial(BinomialTree.rounds, kind)}
    listed: dict[str, Callable[[int], Rounds]] = {"ring": partial(one_way_ring, cast("CollectiveKind", kind))}
    names = ["ring", "direct", "halving_doubling", *sorted(set(algorithms) - {"ring", "direct", "halving_doubling"})]
    for name in names:
        # Three members tell whether all messages are sets of chunks, as a schedule needs. Trees have no all-to-all of
        # their own, but a direct exchange.
        is_exchange = kind == "all_to_all" and name != "direct" and sends_to_all_at_once(name, kind)
        if name not in CHOICES and rounds_of(algorithms[name], kind, 3).executable and not is_exchange:
            listed["two_way_ring" if name == "ring" else name] = partial(rounds_of, algorithms[name], kind)
    return listed


def algorithm_rounds(algorithm: str, kind: Kind, members: int, size_bytes: float, root: int = 0) -> list[Sends]:
    """Return what is sent at once, one after the other, in a collective among *members*.

    >>> algorithm_rounds("ring", "all_gather", 2, 8.0)
    [[(1, 0, 4.0), (0, 1, 4.0)]]
    >>> [sum(size for *_, size in sends) for sends in algorithm_rounds("halving_doubling", "reduce_scatter", 4, 8.0)]
    [16.0, 8.0]
    """
    return list(_expand(_rounds_named(algorithm, kind, members), size_bytes, root))


def _rounds_named(algorithm: str, kind: Kind, members: int) -> Rounds:
    known = algorithms_of(kind)
    if algorithm not in known:
        raise UnknownName.among("--algorithm", algorithm, f"algorithm of an {kind.replace('_', '-')}", known)
    return known[algorithm](members) if members > 1 else NOTHING


def _expand(rounds: Rounds, size_bytes: float, root: int) -> Iterator[Sends]:
    """Yield rounds one by one, and those of trees level by level; members are counted from the *root*."""
    for each in rounds.rounds:
        source, target = (each.source + root) % rounds.members, (each.target + root) % rounds.members
        rows = list(zip(source.tolist(), target.tolist(), (each.sizes * size_bytes).tolist(), strict=True))
        for _ in range(each.times):
            if each.level is None:
                yield rows
            else:
                for level in range(each.levels):
                    yield [row for row, own in zip(rows, each.level.tolist(), strict=True) if own == level]


# ---- their seconds on a network


@dataclass(frozen=True)
class Baseline:
    """An algorithm's time on a network, or why there is none."""

    algorithm: str
    """Its name, such as ring."""
    time_s: float | None
    """Its time; None where it was not simulated."""
    reason: str = ""
    """Why it was not simulated; empty if it was."""


def make_baselines(
    graph: LinkGraph, kind: Kind, size_bytes: float, groups: Sequence[Sequence[int]], root: int = 0
) -> list[Baseline]:
    """Return the times of all textbook algorithms that do a collective."""
    return [_time_baseline(graph, name, kind, size_bytes, groups, root) for name in algorithms_of(kind)]


def _time_baseline(
    graph: LinkGraph, name: str, kind: Kind, size_bytes: float, groups: Sequence[Sequence[int]], root: int
) -> Baseline:
    described = [_rounds_named(name, kind, len(group)) for group in groups]
    programs = [list(_expand(rounds, size_bytes, root)) for rounds in described]
    messages = sum(len(sends) for program in programs for sends in program)
    if messages > MOST_HOPS:
        return Baseline(name, None, f"has more than {MOST_HOPS:,} messages")
    largest = max((size for program in programs for sends in program for *_, size in sends), default=1.0)
    routes = Routes(graph, largest, balanced=True)
    hops, longest = _count_hops(routes, programs, groups)
    if hops > MOST_HOPS:
        return Baseline(name, None, f"has more than {MOST_HOPS:,} messages on links")
    tried = [(1, pieces) for pieces in PIECES if pieces == 1 or longest > 1]
    if any(each.levels > 1 for rounds in described for each in rounds.rounds):
        tried = [(chunks, 1) for chunks in TREE_CHUNKS]
    return Baseline(
        name,
        min(
            _AlgorithmRun(graph, routes, programs, groups, chunks, pieces).run()
            for chunks, pieces in tried
            if chunks * pieces == 1 or hops * chunks * pieces <= MOST_HOPS
        ),
    )


def _count_hops(routes: Routes, programs: Sequence[list[Sends]], groups: Sequence[Sequence[int]]) -> tuple[int, int]:
    """Return on how many links all messages are together, and the most of one."""
    total = longest = 0
    for program, group in zip(programs, groups, strict=True):
        for source, target, _ in (message for sends in program for message in sends):
            links = len(routes.path(group[source], group[target]))
            total, longest = total + links, max(longest, links)
    return total, longest


class _AlgorithmRun:
    """All groups at once, each chunk by itself: a member enters a round when it has received all of those before."""

    def __init__(
        self,
        graph: LinkGraph,
        routes: Routes,
        programs: Sequence[list[Sends]],
        groups: Sequence[Sequence[int]],
        chunks: int,
        pieces: int,
    ) -> None:
        self._clock = EventClock()
        self._fabric = WiredFabric(graph, self._clock, routes.path, PICOSECONDS)
        self._routes, self._pieces = routes, pieces
        self._runs = [(program, group) for _ in range(chunks) for program, group in zip(programs, groups, strict=True)]
        self._sends: dict[tuple[int, int, int], list[tuple[int, float]]] = defaultdict(list)
        self._due: dict[tuple[int, int, int], int] = defaultdict(int)
        for run, (program, _) in enumerate(self._runs):
            for step, sends in enumerate(program):
                for source, target, size in sends:
                    self._sends[run, source, step].append((target, size / chunks))
                    self._due[run, target, step] += pieces
        self._at: dict[tuple[int, int], int] = {}
        self._last_s = 0.0

    def run(self) -> float:
        """Return the seconds until the last message has arrived."""
        for run, (_, group) in enumerate(self._runs):
            for member in range(len(group)):
                self._at[run, member] = -1
                self._enter(run, member)
        self._clock.run()
        return self._last_s

    def _enter(self, run: int, member: int) -> None:
        """Send what each round has for a member, as far as it has received what comes before."""
        program, group = self._runs[run]
        while self._at[run, member] + 1 < len(program):
            step = self._at[run, member]
            if step >= 0 and self._due[run, member, step]:
                return
            self._at[run, member] = step = step + 1
            now = self._fabric.now_s
            for target, size in self._sends[run, member, step]:
                path = self._routes.path(group[member], group[target])
                for _ in range(self._pieces):
                    self._fabric.send_over(path, size / self._pieces, self._arrived, (run, target, step))
                self._fabric.now_s = now

    def _arrived(self, state: tuple[int, int, int]) -> None:
        run, member, step = state
        self._due[state] -= 1
        now = self._last_s = self._fabric.now_s
        if not self._due[state] and self._at[run, member] == step:
            self._enter(run, member)
        self._fabric.now_s = now


# ---- their schedules


def textbook_schedule(
    graph: LinkGraph,
    algorithm: str | Callable[[int], Rounds],
    kind: Kind,
    size_bytes: float,
    groups: Sequence[Sequence[int]],
    root: int = 0,
    chunks_per_npu: int | None = None,
) -> Schedule:
    """Return an algorithm as a schedule: every chunk of every message on the links of its path, as early as it can go.

    Between two members there is a link, or a path of switches: what a member receives to pass it on is a part of a
    schedule's sums, and so messages cannot go through members that they are not for. *chunks_per_npu* is a multiple of what the algorithm
    needs: more of them follow one another through trees and relays.
    """
    named = partial(_rounds_named, algorithm, kind) if isinstance(algorithm, str) else algorithm
    described = [named(len(group)) for group in groups]
    least = max((rounds.chunks_per_npu for rounds in described), default=1)
    k = chunks_per_npu or least
    require(
        all(k % rounds.chunks_per_npu == 0 for rounds in described), "--chunks", k, f"must be a multiple of {least}"
    )
    routes = Routes(graph, size_bytes / max(map(len, groups), default=1), relays=False, balanced=True)
    rows: list[tuple[int, int, int, bool]] = []  # link, chunk, turn, whether it adds up
    first = 0
    for rounds, group in zip(described, groups, strict=True):
        base, repeats = first, k // rounds.chunks_per_npu
        own = chunk_count(kind, len(group), rounds.chunks_per_npu)
        for path, chunk, turn, adds in _chunk_messages(rounds, routes, group, root):
            for hop, link in enumerate(path):
                rows += [(link, base + chunk + own * again, turn + hop, adds) for again in range(repeats)]
        rule = f"has more than {MOST_TRANSFERS:,} transfers"
        require(len(rows) <= MOST_TRANSFERS, "--algorithm", algorithm, rule)
        first += own * repeats
    links, chunks, turns, sums = (np.array([row[column] for row in rows], np.int64) for column in range(4))
    start = turns.astype(np.float64)
    members = tuple(tuple(group) for group in groups)
    stated = Schedule(
        graph, kind, size_bytes, k, members, links, chunks, start, start + 1.0, root, reduces=sums.astype(np.bool_)
    )
    return replay_schedule(stated)


def _chunk_messages(
    rounds: Rounds, routes: Routes, group: Sequence[int], root: int
) -> Iterator[tuple[tuple[int, ...], int, int, bool]]:
    """Yield the path of each chunk of each message, the turn in which it leaves, and whether it is added up."""
    turn = 0
    for each in rounds.rounds:
        ends = [
            (group[(source + root) % len(group)], group[(target + root) % len(group)])
            for source, target in zip(each.source.tolist(), each.target.tolist(), strict=True)
        ]
        paths = [routes.path(*pair) for pair in ends]
        longest = max(map(len, paths), default=1)
        if each.chunks is None:
            raise SpecError("--algorithm", "", "has seconds, but no schedule: its messages are no sets of chunks")
        levels = each.level.tolist() if each.level is not None else [0] * len(paths)
        for repetition in range(each.times):
            for path, level, chunks in zip(paths, levels, each.chunks(repetition).tolist(), strict=True):
                for chunk in chunks:
                    if chunk != NO_CHUNK:
                        yield path, chunk, turn + level * longest, each.reduces
            turn += each.levels * longest
