"""A plain simulator of generated jobs, to compare the event engine and the closed forms with.

It simulates one rank for each template: ranks that share one do the same at the same time. A rank has one slot each for
compute, for communication (collectives and sends) and for outer memory; receives need none. Of the nodes whose
dependencies are done, the one with the lowest id starts when its slot is free. A collective begins when its last member
starts, which is at once where all of them share a template; a message arrives when its send ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np

from cosmic.simulate.trace_generation import StepTraces
from cosmic.traces.dependencies import checked_dependencies
from cosmic.traces.trace import NodeType, RankTrace

SLOTS: dict[int, int] = {
    NodeType.COMP: 0,
    NodeType.COMM_COLL: 1,
    NodeType.COMM_SEND: 1,
    NodeType.MEM_LOAD: 2,
    NodeType.MEM_STORE: 2,
}


@dataclass
class SimulatedRank:
    """One rank."""

    trace: RankTrace
    seconds: list[float]
    types: list[int] = field(init=False)
    waits: list[int] = field(init=False)
    """How many nodes each node still waits for; a receive also for its message."""
    after: list[list[int]] = field(init=False)
    streams: int = 1
    """With two, exposed and overlapped communication have a slot each."""
    slots: list[int] = field(init=False)
    ready: list[list[int]] = field(default_factory=lambda: [[] for _ in range(4)])
    busy: list[bool] = field(default_factory=lambda: [False] * 4)

    def __post_init__(self) -> None:
        template = self.trace.template
        starts, needed = checked_dependencies(template)
        self.types = template.type.tolist()
        hidden = (template.comm_priority == 0).tolist()
        own = [SLOTS.get(kind, 0) for kind in self.types]
        self.slots = [
            3 if slot == 1 and hides and self.streams == 2 else slot for slot, hides in zip(own, hidden, strict=True)
        ]
        self.waits = np.diff(starts).tolist()
        self.after = [[] for _ in self.types]
        owners = np.repeat(np.arange(template.nodes), np.diff(starts))
        for row, owner in zip(needed.tolist(), owners.tolist(), strict=True):
            self.after[row].append(owner)
        for row, kind in enumerate(self.types):
            self.waits[row] += kind == NodeType.COMM_RECV


@dataclass
class Simulation:
    """All ranks, and the clock."""

    ranks: list[SimulatedRank]
    inbox: dict[tuple[int, int], tuple[int, int]]
    """The receive of each send: rank and row of both."""
    events: list[tuple[float, int, int]] = field(default_factory=list)
    now: float = 0.0

    def release(self, number: int, row: int) -> None:
        """Count one dependency of a node as done, and make the node ready if it was the last."""
        rank = self.ranks[number]
        rank.waits[row] -= 1
        if rank.waits[row] > 0:
            return
        if rank.types[row] == NodeType.COMM_RECV:
            heappush(self.events, (self.now, number, row))
        else:
            heappush(rank.ready[rank.slots[row]], row)

    def start(self, number: int) -> None:
        """Start what can start."""
        rank = self.ranks[number]
        for slot, waiting in enumerate(rank.ready):
            if waiting and not rank.busy[slot]:
                row = heappop(waiting)
                rank.busy[slot] = True
                heappush(self.events, (self.now + rank.seconds[row], number, row))

    def end(self) -> set[int]:
        """End the next node; return the ranks that may now start others."""
        self.now, number, row = heappop(self.events)
        rank = self.ranks[number]
        kind = rank.types[row]
        touched = {number}
        if kind != NodeType.COMM_RECV:
            rank.busy[rank.slots[row]] = False
        if kind == NodeType.COMM_SEND:
            target, receive = self.inbox[number, row]
            self.release(target, receive)
            touched.add(target)
        for later in rank.after[row]:
            self.release(number, later)
        return touched


def simulate_job(job: StepTraces, streams: int = 1) -> float:
    """Return when the last node of the job ends."""
    folded = job.traces.templates()
    first = {id(rank.template): rank for rank in reversed(job.traces.ranks)}
    ranks = [SimulatedRank(first[id(template)], job.seconds_of(template).tolist(), streams) for template in folded]
    simulation = Simulation(ranks, matched(job, ranks))
    for number, rank in enumerate(ranks):
        for row in [row for row, waits in enumerate(rank.waits) if waits == 0]:
            rank.waits[row] = 1
            simulation.release(number, row)
        simulation.start(number)
    ended = 0
    while simulation.events:
        touched = simulation.end()
        ended += 1
        while simulation.events and simulation.events[0][0] == simulation.now:  # all events of one moment
            touched |= simulation.end()
            ended += 1
        for number in touched:
            simulation.start(number)
    total = sum(template.nodes for template in folded)
    assert ended == total, f"{total - ended} nodes never started"
    return simulation.now


def matched(job: StepTraces, ranks: list[SimulatedRank]) -> dict[tuple[int, int], tuple[int, int]]:
    """Return the receive of each send, by simulated rank and row; each must have one."""
    place = {id(rank.trace.template): number for number, rank in enumerate(ranks)}
    ends: dict[int, dict[tuple[int, int, int, int], tuple[int, int]]] = {NodeType.COMM_SEND: {}, NodeType.COMM_RECV: {}}
    for number, rank in enumerate(ranks):
        template = rank.trace.template
        for row in np.flatnonzero(template.peer != -1).tolist():
            peer = place[id(job.traces.ranks[rank.trace.peers[template.peer[row]]].template)]
            sending = rank.types[row] == NodeType.COMM_SEND
            way = (number, peer) if sending else (peer, number)
            key = (*way, int(template.comm_tag[row]), int(template.comm_size[row]))
            assert key not in ends[rank.types[row]], "two messages of one tag"
            ends[rank.types[row]][key] = (number, row)
    assert ends[NodeType.COMM_SEND].keys() == ends[NodeType.COMM_RECV].keys()
    return {send: ends[NodeType.COMM_RECV][key] for key, send in ends[NodeType.COMM_SEND].items()}
