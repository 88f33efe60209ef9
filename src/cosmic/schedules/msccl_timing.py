"""Run the steps of MSCCL-XML on a network: a schedule with times, in the order of their dependencies.

A step begins when the one before it in its thread block and the one that it waits for are done. One that sends is done
when its bytes have left their first link; one that receives, when they have come. The chunks of a message follow one
another. Each message takes the link between its ranks, or the quickest path of switches. What a place in a buffer holds
is followed from step to step, so that it is known which chunk a message carries.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import replace

import numpy as np

from cosmic.errors import SpecError, require
from cosmic.graphs.graph import LinkGraph
from cosmic.graphs.quickest import Routes
from cosmic.graphs.schedule import Schedule, chunk_bytes
from cosmic.schedules.links import link_finder
from cosmic.schedules.msccl import NONE
from cosmic.schedules.msccl_reading import RECEIVES, REDUCES, SENDS, STORES, Program, Step
from cosmic.schedules.tables import ordered
from cosmic.simulation.event.clock import Clock
from cosmic.simulation.event.wired import PICOSECONDS, Wired

Where = tuple[int, int, int]
"""A step: rank, thread block, number."""


def timed(program: Program, graph: LinkGraph, size_bytes: float, group: tuple[int, ...] | None = None) -> Schedule:
    """Return the schedule of a program on a network; its ranks are the members of *group*, or the first NPUs."""
    members = group if group is not None else tuple(range(len(program.ranks)))
    rule = f"the program has {len(program.ranks)} GPUs"
    require(len(members) == len(program.ranks), "group", len(members), rule)
    require(max(members) < graph.npus, "network", f"{graph.npus} NPUs", rule)
    try:
        run = _Run(program, graph, size_bytes, members)
        run.run()
    except SpecError as error:
        if program.kind != "all_gather" or program.chunks_per_npu == 1 or not program.in_place:
            raise
        try:
            run = _Run(replace(program, by_rank=False), graph, size_bytes, members)
            run.run()
        except SpecError:
            raise error from None
    columns = list(zip(*run.transfers, strict=True)) if run.transfers else [(), (), (), ()]
    return ordered(
        Schedule(
            graph,
            program.kind,
            size_bytes,
            program.chunks_per_npu,
            (members,),
            np.array(columns[0], np.int64),
            np.array(columns[1], np.int64),
            np.array(columns[2], np.float64),
            np.array(columns[3], np.float64),
            program.root,
        )
    )


class _Run:
    """Thread blocks at work."""

    def __init__(self, program: Program, graph: LinkGraph, size_bytes: float, members: tuple[int, ...]) -> None:
        self._program, self._graph, self._members = program, graph, members
        self._size = chunk_bytes(program.kind, size_bytes, len(members), program.chunks_per_npu)
        self._clock = Clock()
        self._routes = Routes(graph, self._size, relays=False)
        self._fabric = Wired(graph, self._clock, self._routes.path, PICOSECONDS)
        self._direct = link_finder(graph)
        self._turn: dict[tuple[int, int], int] = defaultdict(int)
        self._held = _initial(program)
        self._at = {(rank, number): 0 for rank, blocks in enumerate(program.ranks) for number in blocks}
        self._done: set[Where] = set()
        self._waiting: dict[Where, list[Where]] = defaultdict(list)
        self._inbox: dict[tuple[int, int, int], deque[list[int]]] = defaultdict(deque)
        self._listening: dict[tuple[int, int, int], deque[Where]] = defaultdict(deque)
        self.transfers: list[tuple[int, int, float, float]] = []

    def run(self) -> None:
        """Run all steps; refuse a program in which some wait for ever."""
        for rank, number in sorted(self._at):
            self._begin(rank, number)
        self._clock.run()
        total = sum(len(block.steps) for blocks in self._program.ranks for block in blocks.values())
        rule = "wait for each other for ever, or for messages that nobody sends"
        require(len(self._done) == total, "schedule", f"{total - len(self._done):,} steps", rule)

    def _step(self, where: Where) -> Step:
        return self._program.ranks[where[0]][where[1]].steps[where[2]]

    def _begin(self, rank: int, number: int) -> None:
        """Begin the next step of a thread block, if what it waits for is done."""
        at = self._at[rank, number]
        block = self._program.ranks[rank][number]
        if at == len(block.steps):
            return
        where, step = (rank, number, at), block.steps[at]
        if step.waits_for != (NONE, NONE) and (rank, *step.waits_for) not in self._done:
            self._waiting[rank, *step.waits_for].append(where)
            return
        if step.type in RECEIVES:
            source = (block.receive, rank, block.channel)
            self._listening[source].append(where)
            self._meet(source)
        else:
            self._work(where, None)

    def _meet(self, source: tuple[int, int, int]) -> None:
        """Hand messages that have come to the steps that wait for them."""
        while self._inbox[source] and self._listening[source]:
            self._work(self._listening[source].popleft(), self._inbox[source].popleft())

    def _work(self, where: Where, message: list[int] | None) -> None:
        """Do what a step does with its buffers, and send what it sends."""
        rank, number, _ = where
        step = self._step(where)
        chunks = [] if step.type == "nop" else self._chunks(where, step, message)
        if step.type in STORES:
            for place, chunk in enumerate(chunks):
                self._held[rank, *self._alias(rank, step.target[0], step.target[1] + place)] = chunk
        if step.type in SENDS:
            self._send(where, self._program.ranks[rank][number].send, chunks)
        else:
            self._finish(where)

    def _chunks(self, where: Where, step: Step, message: list[int] | None) -> list[int]:
        """Return the chunks that a step handles: those of its message, or those at its place."""
        rank, name = where[0], f"gpu {where[0]} tb {where[1]} step {where[2]}"
        if message is not None:
            rule = f"has {step.count} chunks, and its message has {len(message)}"
            require(len(message) == step.count, name, step.type, rule)
        own: list[int] = []
        if message is None or step.type in REDUCES:
            buffer, first = step.target if step.type == "rrc" else step.source
            for offset in range(first, first + step.count):
                found = self._held.get((rank, *self._alias(rank, buffer, offset)))
                require(found is not None, name, f"{buffer}[{offset}]", "holds nothing at that time")
                own.append(found if found is not None else NONE)
        if message is not None and own:
            require(own == message, name, f"{own} and {message}", "adds up chunks that are not the same")
        return own if message is None else message

    def _alias(self, rank: int, buffer: str, offset: int) -> tuple[str, int]:
        """Return the place that is meant: in place, input and output are one buffer."""
        kind, k = self._program.kind, self._program.chunks_per_npu
        if not self._program.in_place or buffer == "s":
            return buffer, offset
        if kind == "all_gather":
            return "o", offset + (rank * k if buffer == "i" else 0)
        if kind == "reduce_scatter":
            return "i", offset + (rank * k if buffer == "o" else 0)
        return ("io", offset) if kind != "all_to_all" else (buffer, offset)

    def _send(self, where: Where, peer: int, chunks: list[int]) -> None:
        rank = where[0]
        channel = self._program.ranks[rank][where[1]].channel
        source, target = self._members[rank], self._members[peer]
        for number, chunk in enumerate(chunks):
            last = chunks if number == len(chunks) - 1 else None
            path = self._path(source, target)
            self._hop((path, 0, chunk, where, (rank, peer, channel), last))

    def _path(self, source: int, target: int) -> tuple[int, ...]:
        """Return the links of a message; parallel ones take turns."""
        links = self._direct.get((source, target))
        if links is None:
            return self._routes.path(source, target)
        turn = self._turn[source, target]
        self._turn[source, target] = turn + 1
        return (links[turn % len(links)],)

    def _hop(self, state: tuple[tuple[int, ...], int, int, Where, tuple[int, int, int], list[int] | None]) -> None:
        self._fabric.carry(state[0][state[1]], self._size, self._passed, state)

    def _passed(self, state: tuple[tuple[int, ...], int, int, Where, tuple[int, int, int], list[int] | None]) -> None:
        path, passed, chunk, where, route, last = state
        now, link = self._fabric.now_s, path[passed]
        takes = self._graph.latency_s[link] + self._size / self._graph.bandwidth_bytes_per_s[link]
        self.transfers.append((link, chunk, now - float(takes), now))
        if passed < len(path) - 1:
            self._hop((path, passed + 1, chunk, where, route, last))
            self._fabric.now_s = now
        if last is None:
            return
        if passed == len(path) - 1:
            self._inbox[route].append(last)
            self._meet(route)
            self._fabric.now_s = now
        if passed == 0:
            self._finish(where)

    def _finish(self, where: Where) -> None:
        rank, number, at = where
        now = self._fabric.now_s
        self._done.add(where)
        self._at[rank, number] = at + 1
        self._clock.after(
            0, self._resume, (now, rank, number)
        )  # by the clock: steps without bytes may be many in a row
        for other in self._waiting.pop(where, []):
            self._clock.after(0, self._resume, (now, other[0], other[1]))

    def _resume(self, state: tuple[float, int, int]) -> None:
        self._fabric.now_s, rank, number = state
        self._begin(rank, number)


def _initial(program: Program) -> dict[tuple[int, str, int], int]:
    """Return which chunk each place holds at the beginning."""
    p, k = len(program.ranks), program.chunks_per_npu
    found: dict[tuple[int, str, int], int] = {}
    for rank in range(p):
        for number in range(k):
            if program.kind == "all_gather":
                place = ("o", rank * k + number) if program.in_place else ("i", number)
                if not program.by_rank:
                    place = ("o", number * p + rank)
                found[rank, *place] = number * p + rank
            elif program.kind in ("broadcast", "reduce"):
                if rank == program.root or program.kind == "reduce":
                    found[rank, "io" if program.in_place else "i", number] = number
            else:
                for other in range(p):
                    chunk = number * p + other
                    if program.kind == "all_to_all":
                        chunk = rank + p * (other + p * number)
                    buffer = "io" if program.in_place and program.kind == "all_reduce" else "i"
                    found[rank, buffer, other * k + number] = chunk
    return found
