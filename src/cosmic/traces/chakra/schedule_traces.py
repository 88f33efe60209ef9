"""A schedule as Chakra traces: a send and a receive for each message.

ASTRA-sim and `cosmic simulate` run them as a custom collective (``all-gather-implementation-custom`` and so on in the
system file), or as a workload of their own, in which a rank has one send in flight at a time. Ranks are positions in
the group where there is one group that needs nobody else, else those of the network.

A send waits for the receives that bring what it carries, and for the send before it to the same rank; a receive waits
for the receive before it from the same rank. Through switches, messages to several ranks share a link, and the next may
be on its way before the last has arrived: there a send waits for the last messages that its rank had sent or received
in whole when it was to begin, so that ranks send in the order of the schedule. Tags number the messages from one rank
to another.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from typing import Any

from cosmic.base.errors import require
from cosmic.network.schedules.collective_schedule import Schedule
from cosmic.network.schedules.schedule_transfers import Messages, messages_of, needed_messages
from cosmic.traces.trace import NodeType, RankTrace, TraceSet, template_of


def traces_of_schedule(schedule: Schedule) -> TraceSet:
    """Return the traces of all ranks; ranks outside of the groups that relay nothing have no nodes."""
    messages = messages_of(schedule, "Chakra")
    position = _positions(schedule, messages)
    npus = len(position)
    rows: list[list[dict[str, Any]]] = [[] for _ in range(npus)]
    peers: list[dict[int, int]] = [{} for _ in range(npus)]
    before: dict[tuple[int, int], tuple[list[int], list[int]]] = {}
    done: list[list[tuple[float, int]]] = [[] for _ in range(npus)]
    tags: dict[tuple[int, int], int] = defaultdict(int)
    receives: dict[int, int] = {}
    waiting = needed_messages(schedule, messages)
    tolerance = 1e-9 * schedule.time_s + 1e-12

    def add(kind: NodeType, row: int, rank: int, peer: int, data: list[int], last: list[int]) -> int:
        """Add a node of a rank, which carries what nodes *data* bring, and waits for the *last* ones before it too."""
        size = round(float(messages.size_bytes[row]))
        require(size >= 1, "size", float(messages.size_bytes[row]), "a message of Chakra has at least 1 byte")
        number = len(rows[rank])
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
                "ctrl": sorted(set(last) - set(data)),
                "comm_size": size,
                "comm_tag": tags[(rank, peer) if kind == NodeType.COMM_SEND else (peer, rank)],
                "peer": peers[rank].setdefault(peer, len(peers[rank])),
            }
        )
        return number

    for row in range(messages.count):
        source, target = position[int(messages.source[row])], position[int(messages.target[row])]
        brought = [receives[message] for message in waiting[row] if message in receives]
        sent, received = before.get((source, target), ([], []))
        if schedule.graph.switches:
            sent = _last_nodes(done[source], float(messages.start_s[row]), tolerance)
        send = add(NodeType.COMM_SEND, row, source, target, brought, sent)
        receives[row] = add(NodeType.COMM_RECV, row, target, source, [], received)
        before[source, target] = ([send], [receives[row]])
        insort(done[source], (float(messages.end_s[row]), send))
        insort(done[target], (float(messages.end_s[row]), receives[row]))
        tags[source, target] += 1
    traces = [RankTrace(template_of(rows[rank]), (), tuple(peers[rank]), rank) for rank in range(npus)]
    return TraceSet(tuple(traces), "schedule")


def _last_nodes(done: list[tuple[float, int]], start_s: float, tolerance_s: float) -> list[int]:
    """Return the last of some nodes, in the order of their ends, to end before another starts; all that end together.

    >>> _last_nodes([(1.0, 4), (2.0, 3), (2.0, 7), (3.0, 5)], 2.5, 0.1), _last_nodes([(1.0, 4)], 0.5, 0.1)
    ([3, 7], [])
    """
    stop = bisect_right(done, start_s + tolerance_s, key=_end_of_nodes)
    first = bisect_left(done, done[stop - 1][0] - tolerance_s, key=_end_of_nodes) if stop else 0
    return [node for _, node in done[first:stop]]


def _end_of_nodes(done: tuple[float, int]) -> float:
    return done[0]


def _positions(schedule: Schedule, messages: Messages) -> dict[int, int]:
    """Return the rank of each node in the traces."""
    alone = len(schedule.groups) == 1
    members = schedule.groups[0] if alone else ()
    if alone and set(messages.source.tolist()) | set(messages.target.tolist()) <= set(members):
        return {member: index for index, member in enumerate(members)}
    return {node: node for node in range(schedule.graph.npus)}
