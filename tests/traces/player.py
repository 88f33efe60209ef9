"""A plain player of generated jobs, to hold the event engine and the closed forms against.

One rank is played for each template, as ranks that share one do the same at the same time. A rank has one slot each
for compute, for communication (collectives and sends) and for outer memory; receives need none. Of the nodes that wait
for nothing more, the one with the lowest id starts when its slot is free. A collective begins when its last member
starts, which is at once where all of them share a template; a message arrives when its send ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np

from cosmic.traces.generation import Job
from cosmic.traces.order import dependencies
from cosmic.traces.trace import NodeType, RankTrace

SLOTS: dict[int, int] = {
    NodeType.COMP: 0,
    NodeType.COMM_COLL: 1,
    NodeType.COMM_SEND: 1,
    NodeType.MEM_LOAD: 2,
    NodeType.MEM_STORE: 2,
}


@dataclass
class Player:
    """One rank at work."""

    rank: RankTrace
    seconds: list[float]
    types: list[int] = field(init=False)
    waits: list[int] = field(init=False)
    """How many nodes each node still waits for; a receive also for its message."""
    after: list[list[int]] = field(init=False)
    streams: int = 1
    """With two, what compute waits for and what hides have a communication slot each."""
    slots: list[int] = field(init=False)
    ready: list[list[int]] = field(default_factory=lambda: [[] for _ in range(4)])
    busy: list[bool] = field(default_factory=lambda: [False] * 4)

    def __post_init__(self) -> None:
        template = self.rank.template
        starts, needed = dependencies(template)
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
class Stage:
    """All players, and the clock."""

    players: list[Player]
    inbox: dict[tuple[int, int], tuple[int, int]]
    """The receive of each send: player and row of both."""
    events: list[tuple[float, int, int]] = field(default_factory=list)
    now: float = 0.0

    def release(self, number: int, row: int) -> None:
        """Take note that one thing fewer keeps a node from starting."""
        player = self.players[number]
        player.waits[row] -= 1
        if player.waits[row] > 0:
            return
        if player.types[row] == NodeType.COMM_RECV:
            heappush(self.events, (self.now, number, row))
        else:
            heappush(player.ready[player.slots[row]], row)

    def start(self, number: int) -> None:
        """Start what can start."""
        player = self.players[number]
        for slot, waiting in enumerate(player.ready):
            if waiting and not player.busy[slot]:
                row = heappop(waiting)
                player.busy[slot] = True
                heappush(self.events, (self.now + player.seconds[row], number, row))

    def end(self) -> set[int]:
        """End the next node; return the players that may now start others."""
        self.now, number, row = heappop(self.events)
        player = self.players[number]
        kind = player.types[row]
        touched = {number}
        if kind != NodeType.COMM_RECV:
            player.busy[player.slots[row]] = False
        if kind == NodeType.COMM_SEND:
            target, receive = self.inbox[number, row]
            self.release(target, receive)
            touched.add(target)
        for later in player.after[row]:
            self.release(number, later)
        return touched


def play(job: Job, streams: int = 1) -> float:
    """Return when the last node of the job ends."""
    folded = job.traces.templates()
    first = {id(rank.template): rank for rank in reversed(job.traces.ranks)}
    players = [Player(first[id(template)], job.seconds_of(template).tolist(), streams) for template in folded]
    stage = Stage(players, matched(job, players))
    for number, player in enumerate(players):
        for row in [row for row, waits in enumerate(player.waits) if waits == 0]:
            player.waits[row] = 1
            stage.release(number, row)
        stage.start(number)
    ended = 0
    while stage.events:
        touched = stage.end()
        ended += 1
        while stage.events and stage.events[0][0] == stage.now:  # what happens at one time happens before what follows
            touched |= stage.end()
            ended += 1
        for number in touched:
            stage.start(number)
    total = sum(template.nodes for template in folded)
    assert ended == total, f"{total - ended} nodes never started"
    return stage.now


def matched(job: Job, players: list[Player]) -> dict[tuple[int, int], tuple[int, int]]:
    """Return the receive that belongs to each send, in terms of the ranks that are played; each must have one."""
    place = {id(player.rank.template): number for number, player in enumerate(players)}
    ends: dict[int, dict[tuple[int, int, int, int], tuple[int, int]]] = {NodeType.COMM_SEND: {}, NodeType.COMM_RECV: {}}
    for number, player in enumerate(players):
        template = player.rank.template
        for row in np.flatnonzero(template.peer != -1).tolist():
            peer = place[id(job.traces.ranks[player.rank.peers[template.peer[row]]].template)]
            sending = player.types[row] == NodeType.COMM_SEND
            way = (number, peer) if sending else (peer, number)
            key = (*way, int(template.comm_tag[row]), int(template.comm_size[row]))
            assert key not in ends[player.types[row]], "two messages of one tag"
            ends[player.types[row]][key] = (number, row)
    assert ends[NodeType.COMM_SEND].keys() == ends[NodeType.COMM_RECV].keys()
    return {send: ends[NodeType.COMM_RECV][key] for key, send in ends[NodeType.COMM_SEND].items()}
