"""Replay recorded traces: every node takes what it took, and starts when what it waited for has ended.

    start(n) = max over d in waits(n) of end(d)  +  delay(n)            end(n) = start(n) + duration(n)

A collective ends together. What each member took after the last one had entered is what the collective itself takes; a
member that left before that (the root of a broadcast) did not wait. So, with s the members' recorded starts,

    end(m) = max over members of start  +  (recorded end(m) - max s)    if that is not negative,
             start(m) + duration(m)                                     otherwise,

and likewise for a send and its receive. Durations and transfers may be given anew: `ReplayChanges` is how a trace is
put on
another machine. There are no queues or slots here: streams and threads are in the dependencies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cosmic.base.errors import SpecError
from cosmic.traces.dependencies import checked_dependencies
from cosmic.traces.trace import ABSENT, Ints, NodeType, Template, TraceSet
from cosmic.traces.trace_checks import SEND, messages_of, node_text


@dataclass(frozen=True, slots=True, eq=False)
class ReplayChanges:
    """What differs from the recording, by rank: nanoseconds of its nodes, by row."""

    duration_ns: tuple[Ints, ...]
    delay_ns: tuple[Ints, ...]
    transfer_ns: Mapping[tuple[int, int], int] = field(default_factory=dict)
    """What a collective, send or receive takes once all have entered, by rank and row; others as recorded."""


@dataclass(frozen=True, slots=True, eq=False)
class Replayed:
    """When every node began and ended, by rank and row, in nanoseconds."""

    begun: tuple[Ints, ...]
    ended: tuple[Ints, ...]

    @property
    def span_ns(self) -> int:
        """From the first start to the last end."""
        starts = [int(times.min()) for times in self.begun if len(times)]
        return max((int(times.max()) for times in self.ended if len(times)), default=0) - min(starts, default=0)


def durations_ns(template_us: Ints, template_ns: Ints) -> Ints:
    """Return nanoseconds, exact where they are recorded, else from microseconds."""
    return np.where(template_ns == ABSENT, 1000 * template_us, template_ns)


def recorded_times(traces: TraceSet) -> ReplayChanges:
    """Return durations and delays as they were recorded."""
    return ReplayChanges(
        tuple(durations_ns(rank.template.duration_us, rank.template.duration_ns) for rank in traces.ranks),
        tuple(np.maximum(rank.template.delay_ns, 0) for rank in traces.ranks),
    )


def replay_traces(
    traces: TraceSet, groups: Mapping[str, Sequence[int]], changes: ReplayChanges | None = None
) -> Replayed:
    """Return when every node of *traces* runs: as recorded, or with *changes*."""
    for number, rank in enumerate(traces.ranks):
        if not rank.template.is_recorded and rank.template.nodes:
            rule = "does not say when it ran: only recorded traces can be replayed, others need a system and a network"
            raise SpecError("trace", f"{traces.where}.{number}.et", rule)
    return _Replay(traces, groups, changes or recorded_times(traces)).run()


class _Replay:
    """A replay under way."""

    def __init__(self, traces: TraceSet, groups: Mapping[str, Sequence[int]], changes: ReplayChanges) -> None:
        self.traces, self.changes = traces, changes
        self.base = np.concatenate([[0], np.cumsum([rank.template.nodes for rank in traces.ranks])]).tolist()
        self.count = self.base[-1]
        self.recorded = recorded_times(traces).duration_ns
        self.meetings = _find_meetings(traces, groups)

    def run(self) -> Replayed:
        """Run all nodes in an order that their dependencies allow."""
        waits, start, child = self._dependents()
        duration = np.concatenate(self.changes.duration_ns).tolist() if self.count else []
        ready = np.concatenate(self.changes.delay_ns).tolist() if self.count else []
        delay = list(ready)
        meeting, members, takes = self._meetings_of_nodes()
        begins, ended = [0] * self.count, [-1] * self.count
        missing = [len(member) for member in members]
        queue = [node for node, count in enumerate(waits) if not count]
        done = 0
        while done < len(queue):
            node = queue[done]
            done += 1
            begins[node] = ready[node]
            meeting_of = meeting[node]
            finished: list[int] = []
            if takes[node] is None:  # it waits for no other rank
                ended[node] = ready[node] + duration[node]
                finished.append(node)
            if meeting_of >= 0:
                missing[meeting_of] -= 1
                if not missing[meeting_of]:
                    finished += _end_together(members[meeting_of], takes, begins, ended)
            for ended_node in finished:
                end = ended[ended_node]
                for after in child[start[ended_node] : start[ended_node + 1]]:
                    ready[after] = max(ready[after], end + delay[after])
                    waits[after] -= 1
                    if not waits[after]:
                        queue.append(after)
        if any(end < 0 for end in ended):
            self._raise_stuck(ended)
        return self._as_replayed(begins, ended)

    def _dependents(self) -> tuple[list[int], list[int], list[int]]:
        """Return how many nodes each waits for, and those that wait for it, over all ranks."""
        waits, owners, nodes = [], [], []
        for rank, base in zip(self.traces.ranks, self.base[:-1], strict=True):
            first, before = checked_dependencies(rank.template, self.traces.where)
            counts = np.diff(first)
            waits.append(counts)
            owners.append(before + base)
            nodes.append(np.repeat(np.arange(rank.template.nodes), counts) + base)
        owner, node = np.concatenate([[], *owners]).astype(np.int64), np.concatenate([[], *nodes]).astype(np.int64)
        order = np.argsort(owner, kind="stable")
        start = np.searchsorted(owner[order], np.arange(self.count + 1))
        return np.concatenate([[], *waits]).astype(np.int64).tolist(), start.tolist(), node[order].tolist()

    def _meetings_of_nodes(self) -> tuple[list[int], list[tuple[int, ...]], list[int | None]]:
        """Return the meeting of each node (-1 if none), the nodes of each, and what nodes take once all are there."""
        meeting = [-1] * self.count
        takes: list[int | None] = [None] * self.count
        members = []
        for index, meeting_nodes in enumerate(self.meetings):
            nodes = tuple(self.base[rank] + row for rank, row in meeting_nodes)
            for node, transfer in zip(nodes, self._transfer_times(meeting_nodes), strict=True):
                meeting[node], takes[node] = index, transfer
            members.append(nodes)
        return meeting, members, takes

    def _transfer_times(self, members: Sequence[tuple[int, int]]) -> list[int | None]:
        """Return the nanoseconds of each member once all have entered; None if it does not wait."""
        starts, ends = [], []
        for rank, row in members:
            template = self.traces.ranks[rank].template
            starts.append(int(template.start_ns[row]))
            ends.append(int(template.start_ns[row] + self.recorded[rank][row]))
        last = max(starts)
        transfers: list[int | None] = []
        for (rank, row), end in zip(members, ends, strict=True):
            changed_ns = self.changes.transfer_ns.get((rank, row))
            transfers.append(changed_ns if changed_ns is not None else end - last if end >= last else None)
        return transfers

    def _raise_stuck(self, ended: Sequence[int]) -> None:
        node = next(index for index, end in enumerate(ended) if end < 0)
        rank = int(np.searchsorted(self.base, node, "right")) - 1
        text = node_text(self.traces.ranks[rank].template, node - self.base[rank])
        raise SpecError(
            f"{self.traces.where}: rank {rank}",
            text,
            "never runs: it waits for itself, or for a rank that waits for it",
        )

    def _as_replayed(self, begins: list[int], ended: list[int]) -> Replayed:
        parts = list(zip(self.base[:-1], self.base[1:], strict=True))
        starts, ends = np.array(begins, np.int64), np.array(ended, np.int64)
        return Replayed(
            tuple(starts[first:last] for first, last in parts), tuple(ends[first:last] for first, last in parts)
        )


def _end_together(
    nodes: Sequence[int], takes: Sequence[int | None], begins: Sequence[int], ended: list[int]
) -> list[int]:
    """Set when the members of a collective end that waited for all; return these."""
    last = max(begins[node] for node in nodes)
    finished = []
    for node in nodes:
        transfer = takes[node]
        if transfer is not None:
            ended[node] = last + transfer
            finished.append(node)
    return finished


def _find_meetings(traces: TraceSet, groups: Mapping[str, Sequence[int]]) -> list[list[tuple[int, int]]]:
    """Return the nodes that wait for each other: of each collective, and of each send and receive, as rank and row.

    Collectives of a group with equal tags are the same. Without tags, the n-th is the same on all of the group's ranks
    whose traces are here.
    """
    collectives: dict[tuple[str, bool, int], list[tuple[int, int]]] = {}
    for number, rank in enumerate(traces.ranks):
        template = rank.template
        counts: dict[str, int] = {}
        for row in issue_order(template):
            group, tag = int(template.group[row]), int(template.comm_tag[row])
            name = "" if group == ABSENT else rank.groups[group]
            count = counts[name] = counts.get(name, -1) + (tag == ABSENT)
            if not name or number in groups.get(name, ()):
                collectives.setdefault((name, tag != ABSENT, count if tag == ABSENT else tag), []).append((number, row))
    together = [members for members in collectives.values() if _is_same_collective(traces, members)]
    return together + _match_messages(traces)


def _is_same_collective(traces: TraceSet, members: Sequence[tuple[int, int]]) -> bool:
    """Return whether nodes are one collective: of several ranks, once on each, and of one kind."""
    kinds = {int(traces.ranks[rank].template.comm_type[row]) for rank, row in members}
    return len(kinds) == 1 and len({rank for rank, _ in members}) == len(members) > 1


def issue_order(template: Template) -> list[int]:
    """Return the rows of collectives in the order in which they were issued: that of the operators that began them."""
    rows = np.flatnonzero(template.type == NodeType.COMM_COLL)
    start = template.ctrl_start[rows]
    has_issuer = template.ctrl_start[rows + 1] > start
    issued = np.where(has_issuer, np.append(template.ctrl_id, 0)[np.where(has_issuer, start, -1)], template.id[rows])
    order: list[int] = rows[np.lexsort((template.id[rows], issued))].tolist()
    return order


def _match_messages(traces: TraceSet) -> list[list[tuple[int, int]]]:
    """Return each send with its receive: the n-th from one rank to another with a tag and a size."""
    messages = messages_of(traces)
    waiting: dict[tuple[int, ...], deque[tuple[int, int]]] = {}
    exchanges = []
    columns = (messages.side, messages.rank, messages.row, messages.peer, messages.tag, messages.size)
    for side, rank, row, peer, tag, size in zip(*(column.tolist() for column in columns), strict=True):
        route = (rank, peer) if side == SEND else (peer, rank)
        partners = waiting.get((*route, tag, size, 1 - side))
        if partners:
            exchanges.append([partners.popleft(), (rank, row)])
        else:
            waiting.setdefault((*route, tag, size, side), deque()).append((rank, row))
    return exchanges
