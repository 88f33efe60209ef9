"""A schedule as Chakra traces: a send and a receive for each message.

ASTRA-sim and `cosmic simulate` run them as a custom collective (``all-gather-implementation-custom`` and so on in the
system file), or as a workload of their own, in which a rank has one send in flight at a time. Ranks are positions in
the group where there is one group that needs nobody else, else those of the network.

A send waits for the receives that bring what it carries, and for the send before it to the same rank; a receive waits
for the receive before it from the same rank. Tags number the messages from one rank to another.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from cosmic.errors import require
from cosmic.graphs.schedule import Schedule
from cosmic.schedules.messages import Messages, messages_of, needs
from cosmic.traces.trace import NodeType, RankTrace, TraceSet, template_of


def traces_of(schedule: Schedule) -> TraceSet:
    """Return the traces of all ranks; ranks outside of the groups that relay nothing have no nodes."""
    messages = messages_of(schedule, "Chakra")
    position = _positions(schedule, messages)
    npus = len(position)
    rows: list[list[dict[str, Any]]] = [[] for _ in range(npus)]
    peers: list[dict[int, int]] = [{} for _ in range(npus)]
    before: dict[tuple[int, int, int], int] = {}
    tags: dict[tuple[int, int], int] = defaultdict(int)
    receives: dict[int, int] = {}
    waiting = needs(schedule, messages)

    def add(kind: NodeType, row: int, rank: int, peer: int, data: list[int]) -> int:
        """Add a node of a rank, which waits for the one before it to or from the same peer."""
        size = round(float(messages.size_bytes[row]))
        require(size >= 1, "size", float(messages.size_bytes[row]), "a message of Chakra has at least 1 byte")
        number = len(rows[rank])
        last = before.get((rank, peer, kind))
        before[rank, peer, kind] = number
        verb = (
            f"send chunk {messages.chunk[row]} to"
            if kind == NodeType.COMM_SEND
            else f"receive chunk {messages.chunk[row]} from"
        )
        rows[rank].append(
            {
                "id": number,
                "type": kind,
                "name": f"{verb} {peer}",
                "data": sorted(set(data)),
                "ctrl": [] if last is None or last in data else [last],
                "comm_size": size,
                "comm_tag": tags[(rank, peer) if kind == NodeType.COMM_SEND else (peer, rank)],
                "peer": peers[rank].setdefault(peer, len(peers[rank])),
            }
        )
        return number

    for row in range(messages.count):
        source, target = position[int(messages.source[row])], position[int(messages.target[row])]
        brought = [receives[each] for each in waiting[row] if each in receives]
        add(NodeType.COMM_SEND, row, source, target, brought)
        receives[row] = add(NodeType.COMM_RECV, row, target, source, [])
        tags[source, target] += 1
    traces = [RankTrace(template_of(rows[rank]), (), tuple(peers[rank]), rank) for rank in range(npus)]
    return TraceSet(tuple(traces), "schedule")


def _positions(schedule: Schedule, messages: Messages) -> dict[int, int]:
    """Return the rank of each node in the traces."""
    alone = len(schedule.groups) == 1
    members = schedule.groups[0] if alone else ()
    if alone and set(messages.source.tolist()) | set(messages.target.tolist()) <= set(members):
        return {member: place for place, member in enumerate(members)}
    return {node: node for node in range(schedule.graph.npus)}
