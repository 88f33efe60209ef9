"""The transfers of a schedule as columns, which of them are in order, and the messages that they form.

A node *keeps* what it receives if it is an accelerator, or a switch that reduces. Any other switch forwards each
message that it receives once.

A schedule as messages between accelerators: what passes through switches is one message from end to end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from cosmic.base.errors import require
from cosmic.network.link_graph import Floats, Ints
from cosmic.network.schedules.collective_schedule import SUMS, Schedule, chunks_of

# ---- Transfers as columns, and what of them is in order: every copy held before it is sent on, none delivered twice

Bools = npt.NDArray[np.bool_]
OF_TIME, OF_CLOCK_S = 1e-9, 1e-12
"""What counts as the same time: a share of the schedule's time, and what logs are rounded to."""


@dataclass(frozen=True, eq=False)
class TransferFlow:
    """Transfers, a row each."""

    row: Ints
    """The number of each transfer in its schedule."""
    chunk: Ints
    source: Ints
    target: Ints
    start_s: Floats
    end_s: Floats
    keeps: Bools
    """By node."""
    tolerance_s: float

    @property
    def nodes(self) -> int:
        """Number of nodes of the network."""
        return len(self.keeps)

    def of(self, chosen: Bools) -> TransferFlow:
        """Return some of the transfers."""
        row, chunk, source, target = (column[chosen] for column in (self.row, self.chunk, self.source, self.target))
        return replace(
            self,
            row=row,
            chunk=chunk,
            source=source,
            target=target,
            start_s=self.start_s[chosen],
            end_s=self.end_s[chosen],
        )


def flow_of(schedule: Schedule) -> TransferFlow:
    """Return the transfers of a schedule."""
    graph = schedule.graph
    keeps = np.arange(graph.nodes) < graph.npus
    keeps[list(graph.reducing)] = True
    return TransferFlow(
        np.arange(schedule.transfers),
        schedule.chunk,
        graph.sources[schedule.link],
        graph.targets[schedule.link],
        schedule.start_s,
        schedule.end_s,
        keeps,
        OF_TIME * schedule.time_s + OF_CLOCK_S,
    )


@dataclass(frozen=True, eq=False)
class FollowedTransfers:
    """What was found of transfers: places among the rows of a flow, not numbers of transfers."""

    early: Ints
    """Sent before the sender has it."""
    needless: Ints
    """Delivered where it already is, or never forwarded by a switch."""
    held: Ints
    """Sorted keys (chunk times nodes plus node) of all deliveries to nodes that keep them, homes left out."""


def follow_copies(flow: TransferFlow, home: Ints, since_s: Floats) -> FollowedTransfers:
    """Return the violations of copies that start at each chunk's *home* from its time *since_s* on."""
    key = flow.chunk * flow.nodes + flow.target
    receptions = np.flatnonzero(flow.keeps[flow.target])
    order = receptions[np.lexsort((flow.end_s[receptions], key[receptions]))]
    at_home = flow.target[order] == home[flow.chunk[order]]
    ordered = key[order]
    # True where a new chunk and target begin: of several deliveries, the earliest.
    first = np.concatenate([[True], ordered[1:] != ordered[:-1]]) if len(ordered) else np.zeros(0, np.bool_)
    needless = order[~first | at_home]
    held, arrival = key[order][first & ~at_home], flow.end_s[order][first & ~at_home]

    sent = np.flatnonzero(flow.keeps[flow.source])
    chunk, source = flow.chunk[sent], flow.source[sent]
    row, present = look_up(held, chunk * flow.nodes + source)
    ready = np.where(present, arrival[row] if len(held) else np.inf, np.inf)
    ready = np.where(source == home[chunk], since_s[chunk], ready)
    early = sent[flow.start_s[sent] < ready - flow.tolerance_s]
    early_switched, stuck = follow_switched(flow)
    return FollowedTransfers(np.concatenate([early, early_switched]), np.concatenate([needless, stuck]), held)


def follow_switched(flow: TransferFlow) -> tuple[Ints, Ints]:
    """Return what switches send before they have it, and what they never forward; first come, first forwarded."""
    into, out, match = switched_pairs(flow)
    matched = match >= 0
    come = flow.end_s[into[match]] if len(into) else np.zeros(len(out))
    late = np.where(matched, come, np.inf) > flow.start_s[out] + flow.tolerance_s
    unmatched = np.ones(len(into), np.bool_)
    unmatched[match[matched]] = False
    return out[late], into[unmatched]


def switched_pairs(flow: TransferFlow) -> tuple[Ints, Ints, Ints]:
    """Return transfers into switches that keep nothing, those out of them, and of each of these its place among those.

    The n-th message of a chunk that leaves a switch is the n-th that came; -1 where there is none.
    """
    into, out = np.flatnonzero(~flow.keeps[flow.target]), np.flatnonzero(~flow.keeps[flow.source])
    key_in = flow.chunk[into] * flow.nodes + flow.target[into]
    key_out = flow.chunk[out] * flow.nodes + flow.source[out]
    order_in, order_out = np.lexsort((flow.end_s[into], key_in)), np.lexsort((flow.start_s[out], key_out))
    into, key_in, out, key_out = into[order_in], key_in[order_in], out[order_out], key_out[order_out]
    first = np.searchsorted(key_in, key_out, "left")
    rank = np.arange(len(out)) - np.searchsorted(key_out, key_out, "left")
    match = np.where(first + rank < np.searchsorted(key_in, key_out, "right"), first + rank, -1)
    return into, out, match


def forwarded_pairs(flow: TransferFlow) -> tuple[Ints, Ints, Ints]:
    """Return `switched_pairs` in which a switch sends what came last, as if it forwarded messages at once.

    Arrivals are opening brackets and departures closing ones, each with its depth; a departure belongs to the arrival
    before it of the same depth. Where some departure has none, the first to come is the first to leave.
    """
    into, out, match = switched_pairs(flow)
    rows = np.concatenate([into, out])
    leaves = np.arange(len(rows)) >= len(into)
    node = np.where(leaves, flow.source[rows], flow.target[rows])
    key = flow.chunk[rows] * flow.nodes + node
    time = np.where(leaves, flow.start_s[rows] + flow.tolerance_s, flow.end_s[rows])
    order = np.lexsort((leaves, time, key))
    closes = leaves[order]
    # Arrivals and departures at a switch as brackets: a departure takes the latest arrival that is still open.
    depth = np.cumsum(np.where(closes, -1, 1)) + closes
    group = np.lexsort((np.arange(len(order)), depth, key[order]))
    same = (depth[group][1:] == depth[group][:-1]) & (key[order][group][1:] == key[order][group][:-1])
    pair = same & closes[group][1:] & ~closes[group][:-1]
    matches = np.full(len(out), -1)
    matches[order[group[1:][pair]] - len(into)] = order[group[:-1][pair]]
    return into, out, (matches if (matches >= 0).all() else match)


def look_up(keys: Ints, wanted: Ints) -> tuple[Ints, Bools]:
    """Return the place of each of the *wanted* among sorted *keys*, and whether it is there."""
    if not len(keys):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.bool_)
    position = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return position, keys[position] == wanted


# ---- A schedule as messages between accelerators: what passes through switches is one message from end to end


@dataclass(frozen=True, eq=False)
class Messages:
    """A row for each message, in the order of their starts."""

    source: Ints
    target: Ints
    chunk: Ints
    size_bytes: Floats
    start_s: Floats
    end_s: Floats

    @property
    def count(self) -> int:
        """Number of messages."""
        return len(self.chunk)


def messages_of(schedule: Schedule, format_name: str) -> Messages:
    """Return the messages of a schedule, for the format *format_name*, which knows no switches."""
    graph, flow = schedule.graph, flow_of(schedule)
    used = graph.reducing & set(flow.target.tolist())
    rule = f"{format_name} has no switches that reduce or copy, and this schedule uses one"
    require(not used, "network", sorted(graph.name(node) for node in used), rule)
    into, out, match = forwarded_pairs(flow)
    stuck = len(into) - len(np.unique(match[match >= 0]))
    require(bool((match >= 0).all()) and not stuck, "schedule", stuck, "a switch forwards each message once")
    following = np.full(schedule.transfers, -1)
    if len(out):
        following[into[match]] = out
    first = np.flatnonzero(flow.source < graph.npus)
    last = first.copy()
    while (on_way := flow.target[last] >= graph.npus).any():
        last[on_way] = following[last[on_way]]
    sizes = chunks_of(schedule).size_bytes
    order = np.lexsort((flow.end_s[last], flow.chunk[first], flow.start_s[first]))
    first, last = first[order], last[order]
    return Messages(
        flow.source[first],
        flow.target[last],
        flow.chunk[first],
        sizes[flow.chunk[first]],
        flow.start_s[first],
        flow.end_s[last],
    )


def needed_messages(schedule: Schedule, messages: Messages) -> list[list[int]]:
    """Return the messages that must arrive before each message is sent: those that bring its data.

    Of copies, that is the first that brings the chunk; of sums, all that have come when it is sent.
    """
    tolerance = 1e-9 * schedule.time_s + 1e-12
    come: dict[tuple[int, int], list[tuple[float, int]]] = {}
    ends, chunks, targets = messages.end_s.tolist(), messages.chunk.tolist(), messages.target.tolist()
    for row, key in enumerate(zip(chunks, targets, strict=True)):
        come.setdefault(key, []).append((ends[row], row))
    for arrivals in come.values():
        arrivals.sort()
    home = chunks_of(schedule).home
    needed: list[list[int]] = []
    for source, chunk, start in zip(messages.source.tolist(), chunks, messages.start_s.tolist(), strict=True):
        arrivals = come.get((chunk, source), [])
        if schedule.kind in SUMS:
            needed.append([row for end, row in arrivals if end <= start + tolerance])
        else:
            needed.append([] if source == home[chunk] else [row for _, row in arrivals[:1]])
    return needed


def carries_whole(schedule: Schedule, messages: Messages) -> list[bool]:
    """Return which messages carry a whole sum, and not a part that the receiver adds to its own."""
    chunks = chunks_of(schedule)
    parts: dict[tuple[int, int], int] = {}
    for index, group in enumerate(schedule.groups):
        bits = [(member, 1 << position) for position, member in enumerate(group)]
        for chunk in range(int(chunks.first[index]), int(chunks.first[index + 1])):
            parts.update({(chunk, member): bit for member, bit in bits})
    tolerance = 1e-9 * schedule.time_s + 1e-12
    starts, ends = messages.start_s.tolist(), messages.end_s.tolist()
    events = sorted([(end, 0, row) for row, end in enumerate(ends)])
    events += [(start + tolerance, 1, row) for row, start in enumerate(starts)]
    carried, complete = [0] * messages.count, [False] * messages.count
    for _, is_send, row in sorted(events):
        chunk = int(messages.chunk[row])
        full = (1 << len(schedule.groups[int(chunks.group[chunk])])) - 1
        if is_send:
            carried[row] = parts.get((chunk, int(messages.source[row])), 0)
            complete[row] = carried[row] == full
        else:
            key = (chunk, int(messages.target[row]))
            parts[key] = parts.get(key, 0) | carried[row]
    return complete
