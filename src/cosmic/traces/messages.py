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

    def select(self, selected: Ints | npt.NDArray[np.bool_]) -> PointToPointMessages:
        """Return the messages at some indices, or where a mask is true."""
        return PointToPointMessages(
            self.side[selected],
            self.rank[selected],
            self.row[selected],
            self.peer[selected],
            self.tag[selected],
            self.size[selected],
        )


def messages_of(traces: TraceSet) -> PointToPointMessages:
    """Return the sends and receives that state a peer."""
    columns_of_templates = [np.empty((6, 0), np.int64)]
    for template, ranks in ranks_by_template(traces):
        exchanges = (template.type == NodeType.COMM_SEND) | (template.type == NodeType.COMM_RECV)
        rows = np.flatnonzero(exchanges & (template.peer != ABSENT))
        if len(rows):
            side = np.where(template.type[rows] == NodeType.COMM_SEND, SEND, RECEIVE)
            peers = np.array([traces.ranks[rank].peers for rank in ranks], np.int64)[:, template.peer[rows]]
            every = (len(ranks), len(rows))
            columns = (side, np.array(ranks)[:, None], rows, peers, template.comm_tag[rows], template.comm_size[rows])
            columns_of_templates.append(np.stack([np.broadcast_to(column, every).ravel() for column in columns]))
    return PointToPointMessages(*np.concatenate(columns_of_templates, axis=1))


def message_findings(traces: TraceSet, *, replayed: bool = False) -> Iterator[TraceFinding]:
    """Yield messages to or from ranks that are not in the job, and unmatched sends and receives.

    Where traces are *replayed*, a message whose other side is not recorded takes as long as it did.
    """
    messages, ranks = messages_of(traces), len(traces.ranks)
    outside = (messages.peer < 0) | (messages.peer >= ranks)
    strangers = messages.select((messages.peer < 0) if replayed else outside)
    yield make_finding(
        range(len(strangers.rank)),
        lambda index: SpecError(
            f"{_message_text(traces, strangers, index)} rank",
            int(strangers.peer[index]),
            f"the job has ranks 0 to {ranks - 1:,}",
        ),
    )
    unmatched = unmatched_messages(messages.select(np.zeros(0, np.int64) if replayed else ~outside), ranks)
    yield make_finding(range(len(unmatched.rank)), lambda index: _unmatched_error(traces, unmatched, index))


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
    first, sent, received = (np.repeat(counts, entries) for counts in (starts, sent, entries - sent))
    nth = np.arange(len(order)) - first
    unmatched = np.where(sends[order], nth >= received, nth >= 2 * sent)
    return messages.select(np.sort(order[unmatched]))


def _unmatched_error(traces: TraceSet, unmatched: PointToPointMessages, index: int) -> SpecError:
    tag, size = int(unmatched.tag[index]), int(unmatched.size[index])
    verb = "receive" if unmatched.side[index] == SEND else "send"
    rule = f"has no {verb} of {size_text(size)} with tag {tag}"
    # An unmatched message of the other side was often meant: the same tag with another size.
    meant = (
        (unmatched.side != unmatched.side[index])
        & (unmatched.rank == unmatched.peer[index])
        & (unmatched.peer == unmatched.rank[index])
    )
    if meant.any():
        near = int(np.argmax(meant * (1 + (unmatched.tag == tag))))
        candidate = f"{size_text(int(unmatched.size[near]))} with tag {unmatched.tag[near]}"
        rule += f", but {_node_text(traces, unmatched, near)} there {verb}s {candidate}"
    return SpecError(f"{_message_text(traces, unmatched, index)} rank", int(unmatched.peer[index]), rule)


def _message_text(traces: TraceSet, messages: PointToPointMessages, index: int) -> str:
    verb = "sends to" if messages.side[index] == SEND else "receives from"
    return f"{traces.where}: rank {messages.rank[index]}: {_node_text(traces, messages, index)} {verb}"


def _node_text(traces: TraceSet, messages: PointToPointMessages, index: int) -> str:
    return node_text(traces.ranks[messages.rank[index]].template, int(messages.row[index]))
