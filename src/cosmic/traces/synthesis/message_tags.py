"""Tags of messages: which sends belong to which receives, whatever the number of copies.

Classes of sends and receives that meet in the source are a channel. Where messages of a channel arrive in the order in
which they are sent, the n-th send meets the n-th receive; elsewhere the tag of the source says which receive it meets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cosmic.traces.messages import SEND, messages_of
from cosmic.traces.synthesis.rank_roles import SourceJob
from cosmic.traces.trace import ABSENT, Ints, NodeType, Template


@dataclass(frozen=True, slots=True, eq=False)
class MessageChannels:
    """The channel of each send and receive of the source, role by role."""

    key: tuple[Ints, ...]
    """By row of a role's template: equal for messages that are told apart by their order; `ABSENT` for other nodes."""


def find_channels(job: SourceJob) -> MessageChannels:
    """Return the channels of a job's messages."""
    role_of = job.role_of
    classes, starts = _class_numbers(job)
    messages = messages_of(job.traces)
    if not len(messages.rank):
        return MessageChannels(tuple(np.full(role.template.nodes, ABSENT) for role in job.roles))
    # Messages between two ranks with a tag and a size arrive in the order in which they were sent.
    side, rank, row, peer, tag, size = (
        getattr(messages, name) for name in ("side", "rank", "row", "peer", "tag", "size")
    )
    departures, arrivals = np.flatnonzero(side == SEND), np.flatnonzero(side != SEND)
    first = np.lexsort((row[departures], size[departures], tag[departures], peer[departures], rank[departures]))
    second = np.lexsort((row[arrivals], size[arrivals], tag[arrivals], rank[arrivals], peer[arrivals]))
    sends, receives = (departures[first], arrivals[second])
    class_of_message = classes[starts[role_of[messages.rank]] + messages.row]
    channel = _components(class_of_message[sends], class_of_message[receives], int(classes.max()) + 1)
    # In a channel between two ranks, receives in the order of their sends must be in the order of their rows.
    route = messages.rank[sends] * len(job.traces.ranks) + messages.rank[receives]
    among = channel[class_of_message[sends]]
    order = np.lexsort((messages.row[sends], among, route))
    same = (np.diff(route[order]) == 0) & (np.diff(among[order]) == 0)
    crossed = np.unique(among[order][1:][same & (np.diff(messages.row[receives][order]) < 0)])
    return MessageChannels(
        tuple(_keys(job, index, channel, classes, starts, crossed) for index in range(len(job.roles)))
    )


def _class_numbers(job: SourceJob) -> tuple[Ints, Ints]:
    """Return the classes of all roles' rows, one role after the other, and where each role begins."""
    numbers, first, starts = [], 0, []
    position = 0
    for role in job.roles:
        numbers.append(role.classes + first)
        starts.append(position)
        first += int(role.classes.max()) + 1
        position += role.template.nodes
    return np.concatenate(numbers), np.array(starts)


def _components(left: Ints, right: Ints, nodes: int) -> Ints:
    """Return the number of each node's component in a graph of pairs.

    >>> _components(np.array([0, 2]), np.array([1, 1]), 4).tolist()
    [0, 0, 0, 3]
    """
    label = np.arange(nodes)
    pairs = np.unique(np.stack([left, right]), axis=1)
    while True:
        least = np.minimum(label[pairs[0]], label[pairs[1]])
        new = label.copy()
        np.minimum.at(new, pairs[0], least)
        np.minimum.at(new, pairs[1], least)
        if np.array_equal(new, label):
            return label
        label = new


def _keys(job: SourceJob, index: int, channel: Ints, classes: Ints, starts: Ints, crossed: Ints) -> Ints:
    template = job.roles[index].template
    exchanges = np.isin(template.type, (NodeType.COMM_SEND, NodeType.COMM_RECV))
    own = channel[classes[starts[index] : starts[index] + template.nodes]]
    tags = 1 + int(max(role.template.comm_tag.max() for role in job.roles))
    by_tag = np.where(np.isin(own, crossed), template.comm_tag + 1, 0)
    return np.where(exchanges, own * (tags + 1) + by_tag, ABSENT)


def tag_messages(columns: Sequence[tuple[Template, Ints]]) -> list[Ints]:
    """Return new tags for templates, each given with the keys of its messages: other numbers for each key."""
    ordinals = [_ordinals(template, keys) for template, keys in columns]
    every = np.unique(np.concatenate([keys for _, keys in columns]))
    every = every[every != ABSENT]
    lengths = np.zeros(len(every) + 1, np.int64)
    for (_, keys), nth in zip(columns, ordinals, strict=True):
        own = keys != ABSENT
        np.maximum.at(lengths, 1 + np.searchsorted(every, keys[own]), nth[own] + 1)
    base = np.cumsum(lengths)
    return [
        np.where(keys == ABSENT, ABSENT, base[np.searchsorted(every, keys)] + nth)
        for (_, keys), nth in zip(columns, ordinals, strict=True)
    ]


def _ordinals(template: Template, keys: Ints) -> Ints:
    """Return which message of its key, side and peer each is."""
    rows = np.flatnonzero(keys != ABSENT)
    order = rows[np.lexsort((rows, template.peer[rows], template.type[rows], keys[rows]))]
    marks = np.stack([keys[order], template.type[order], template.peer[order]])
    new = np.concatenate([[True], (marks[:, 1:] != marks[:, :-1]).any(axis=0)]) if len(order) else np.empty(0, bool)
    first = np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    nth = np.zeros(template.nodes, np.int64)
    nth[order] = np.arange(len(order)) - first
    return nth
