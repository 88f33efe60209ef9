"""Sends and receives of all ranks, and whether they match."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cosmic.base.errors import SpecError
from cosmic.traces.comm_groups import ranks_by_template
from cosmic.traces.findings import TraceFinding, make_finding, node_text, size_text
from cosmic.traces.trace import ABSENT, Ints, NodeType, TraceSet

SEND, RECEIVE = 0, 1


@dataclass(frozen=True, slots=True, eq=False)
class PointToPointMessages:
    """Sends and receives, one entry each; within a rank in the order of nodes."""

    side: Ints
    """`SEND` or `RECEIVE`."""
    rank: Ints
    row: Ints
    peer: Ints
    tag: Ints
    size: Ints

    def only(self, kept: Ints | npt.NDArray[np.bool_]) -> PointToPointMessages:
        """Return some of them, by index or mask."""
        return PointToPointMessages(
            self.side[kept], self.rank[kept], self.row[kept], self.peer[kept], self.tag[kept], self.size[kept]
        )


def messages_of(traces: TraceSet) -> PointToPointMessages:
    """Return the sends and receives that state a peer."""
    found = [np.empty((6, 0), np.int64)]
    for template, ranks in ranks_by_template(traces):
        exchanges = (template.type == NodeType.COMM_SEND) | (template.type == NodeType.COMM_RECV)
        rows = np.flatnonzero(exchanges & (template.peer != ABSENT))
        if len(rows):
            side = np.where(template.type[rows] == NodeType.COMM_SEND, SEND, RECEIVE)
            peers = np.array([traces.ranks[rank].peers for rank in ranks], np.int64)[:, template.peer[rows]]
            every = (len(ranks), len(rows))
            columns = (side, np.array(ranks)[:, None], rows, peers, template.comm_tag[rows], template.comm_size[rows])
            found.append(np.stack([np.broadcast_to(column, every).ravel() for column in columns]))
    return PointToPointMessages(*np.concatenate(found, axis=1))


def message_findings(traces: TraceSet, *, replayed: bool = False) -> Iterator[TraceFinding]:
    """Yield messages to or from ranks that are not in the job, and unmatched sends and receives.

    Where traces are *replayed*, a message whose other side is not recorded takes as long as it did.
    """
    messages, ranks = messages_of(traces), len(traces.ranks)
    outside = (messages.peer < 0) | (messages.peer >= ranks)
    strangers = messages.only((messages.peer < 0) if replayed else outside)
    yield make_finding(
        range(len(strangers.rank)),
        lambda place: SpecError(
            f"{_message_text(traces, strangers, place)} rank",
            int(strangers.peer[place]),
            f"the job has ranks 0 to {ranks - 1:,}",
        ),
    )
    lone = unmatched_messages(messages.only(np.zeros(0, np.int64) if replayed else ~outside), ranks)
    yield make_finding(range(len(lone.rank)), lambda place: _unmatched_error(traces, lone, place))


def unmatched_messages(messages: PointToPointMessages, ranks: int) -> PointToPointMessages:
    """Return sends without a receive, and receives without a send.

    The n-th send from a source to a destination with a tag and a size matches the n-th such receive there.
    """
    sends = messages.side == SEND
    source = np.where(sends, messages.rank, messages.peer)
    route = source * ranks + np.where(sends, messages.peer, messages.rank)
    order = np.lexsort((messages.side, messages.size, messages.tag, route))
    if not len(order):
        return messages
    keys = np.stack([route, messages.tag, messages.size])[:, order]
    starts = np.flatnonzero(np.concatenate([[True], (keys[:, 1:] != keys[:, :-1]).any(axis=0)]))
    entries = np.diff(np.append(starts, len(order)))
    sent = np.add.reduceat(sends[order], starts, dtype=np.int64)
    # Entries with equal keys are sends, then receives; the last of the more numerous are unmatched.
    first, sent, received = (np.repeat(each, entries) for each in (starts, sent, entries - sent))
    nth = np.arange(len(order)) - first
    left = np.where(sends[order], nth >= received, nth >= 2 * sent)
    return messages.only(np.sort(order[left]))


def _unmatched_error(traces: TraceSet, lone: PointToPointMessages, place: int) -> SpecError:
    tag, size = int(lone.tag[place]), int(lone.size[place])
    verb = "receive" if lone.side[place] == SEND else "send"
    rule = f"has no {verb} of {size_text(size)} with tag {tag}"
    # An unmatched message of the other side was often meant: the same tag with another size.
    meant = (lone.side != lone.side[place]) & (lone.rank == lone.peer[place]) & (lone.peer == lone.rank[place])
    if meant.any():
        near = int(np.argmax(meant * (1 + (lone.tag == tag))))
        other = f"{size_text(int(lone.size[near]))} with tag {lone.tag[near]}"
        rule += f", but {_node_text(traces, lone, near)} there {verb}s {other}"
    return SpecError(f"{_message_text(traces, lone, place)} rank", int(lone.peer[place]), rule)


def _message_text(traces: TraceSet, messages: PointToPointMessages, place: int) -> str:
    verb = "sends to" if messages.side[place] == SEND else "receives from"
    return f"{traces.where}: rank {messages.rank[place]}: {_node_text(traces, messages, place)} {verb}"


def _node_text(traces: TraceSet, messages: PointToPointMessages, place: int) -> str:
    return node_text(traces.ranks[messages.rank[place]].template, int(messages.row[place]))
