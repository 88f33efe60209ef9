"""Sums: whether partial sums are added up once each, and the whole sum arrives where it is to be.

Most schedules are plain: along a tree to its home, every member sends its partial sum of a chunk once, after all that
it receives; from there the whole sum is copied. Chunks that are not plain are followed event by event, with the set of
the members whose parts each node has added up.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field

import numpy as np

from cosmic.graphs.graph import Ints
from cosmic.graphs.schedule import Schedule
from cosmic.schedules.chunks import Chunks
from cosmic.schedules.flows import Bools, Flow, follow_copies, follow_switched, look_up


@dataclass
class Odd:
    """What is wrong with sums: transfers by their numbers, and deliveries by chunk and node."""

    early: list[int] = field(default_factory=list)
    needless: list[int] = field(default_factory=list)
    missing: list[tuple[int, int]] = field(default_factory=list)


def follow_sums(schedule: Schedule, flow: Flow, chunks: Chunks) -> Odd:
    """Return what is wrong with a schedule that adds up."""
    odd = np.flatnonzero(~_plain(schedule, flow, chunks))
    found = Odd()
    order = np.argsort(flow.chunk, kind="stable")
    first = np.searchsorted(flow.chunk[order], np.arange(chunks.count + 1))
    for chunk in odd.tolist():
        _Exact(schedule, flow, chunks, chunk).run(order[first[chunk] : first[chunk + 1]], found)
    return found


# ------------------------------------------------------------------------------------------------ plain ones, at once


def _plain(schedule: Schedule, flow: Flow, chunks: Chunks) -> Bools:
    """Return of which chunks all transfers are as they must be along a tree."""
    if schedule.kind != "all_reduce":
        return _are_trees(schedule, flow, chunks)
    begun = np.full(chunks.count, np.inf)  # when its home first sends the whole sum
    own = flow.source == chunks.home[flow.chunk]
    np.minimum.at(begun, flow.chunk[own], flow.start_s[own])
    tolerance = flow.tolerance_s
    partial = flow.end_s <= begun[flow.chunk] + tolerance
    whole = flow.start_s >= begun[flow.chunk] - tolerance
    plain = np.ones(chunks.count, np.bool_)
    plain[flow.chunk[partial == whole]] = False
    plain &= _are_trees(schedule, flow.of(partial & ~whole), chunks)
    copied = flow.of(whole & ~partial)
    found = follow_copies(copied, chunks.home, begun)
    for wrong in (found.early, found.needless):
        plain[copied.chunk[wrong]] = False
    plain &= _member_deliveries(found.held, flow.nodes, chunks) == _others(schedule, chunks)
    return plain


def _others(schedule: Schedule, chunks: Chunks) -> Ints:
    """Return the number of members but one, by chunk."""
    return np.array([len(group) - 1 for group in schedule.groups])[chunks.group]


def _member_deliveries(held: Ints, nodes: int, chunks: Chunks) -> Ints:
    """Return how many members have received each chunk."""
    chunk, node = held // nodes, held % nodes
    members = chunks.member_of[node] == chunks.group[chunk]
    counts: Ints = np.bincount(chunk[members], minlength=chunks.count)
    return counts


def _are_trees(schedule: Schedule, flow: Flow, chunks: Chunks) -> Bools:
    """Return of which chunks every part reaches the home along a tree."""
    plain = np.ones(chunks.count, np.bool_)
    received = np.flatnonzero(flow.keeps[flow.target])
    key = (flow.chunk * flow.nodes + flow.target)[received]
    received = received[np.lexsort((flow.end_s[received], key))]
    key = (flow.chunk * flow.nodes + flow.target)[received]
    last = np.concatenate([key[1:] != key[:-1], [True]]) if len(key) else np.zeros(0, np.bool_)
    key, arrival = key[last], flow.end_s[received][last]

    sent = np.flatnonzero(flow.keeps[flow.source])
    chunk, source = flow.chunk[sent], flow.source[sent]
    sender = chunk * flow.nodes + source
    member = chunks.member_of[source] == chunks.group[chunk]
    place, there = look_up(key, sender)
    ready = np.where(there, arrival[place] if len(key) else 0.0, np.where(member, 0.0, np.inf))
    plain[chunk[(flow.start_s[sent] < ready - flow.tolerance_s) | (source == chunks.home[chunk])]] = False
    distinct, counts = np.unique(sender, return_counts=True)
    plain[distinct[counts > 1] // flow.nodes] = False
    plain &= np.bincount(chunk[member], minlength=chunks.count) == _others(schedule, chunks)
    relay = chunks.member_of[key % flow.nodes] != chunks.group[key // flow.nodes]
    forwarded = look_up(distinct, key)[1]
    plain[key[relay & ~forwarded] // flow.nodes] = False
    for wrong in follow_switched(flow):
        plain[flow.chunk[wrong]] = False
    return plain


# ---------------------------------------------------------------------------------------------- others, event by event


class _Exact:
    """One chunk: which members' parts each node has added up, as the bits of a number."""

    def __init__(self, schedule: Schedule, flow: Flow, chunks: Chunks, chunk: int) -> None:
        self._flow, self._chunk = flow, chunk
        members = schedule.groups[int(chunks.group[chunk])]
        self._whole = (1 << len(members)) - 1
        self._content: dict[int, int] = defaultdict(int)
        self._content |= {member: 1 << place for place, member in enumerate(members)}
        self._waiting: dict[int, deque[tuple[int, int]]] = defaultdict(deque)
        self._in_flight: dict[int, int] = {}
        home = int(chunks.home[chunk])
        self._wanted = members if schedule.kind == "all_reduce" else (home,)

    def run(self, places: Ints, found: Odd) -> None:
        """Follow the transfers at *places* of the flow, and add what is wrong to *found*."""
        flow = self._flow
        events: list[tuple[float, int, int]] = []
        for place in places.tolist():
            start, end = float(flow.start_s[place]), float(flow.end_s[place])
            events += [(end, 0, place), (min(start + flow.tolerance_s, end), 1, place)]
        for _, is_send, place in sorted(events):
            if is_send or place not in self._in_flight:
                self._send(place, found)
            if not is_send:
                self._arrive(place, found)
        found.needless += [int(flow.row[place]) for waiting in self._waiting.values() for place, _ in waiting]
        found.missing += [(self._chunk, node) for node in self._wanted if self._content[node] != self._whole]

    def _send(self, place: int, found: Odd) -> None:
        if place in self._in_flight:
            return
        source = int(self._flow.source[place])
        if self._flow.keeps[source]:
            message = self._content[source]
        else:
            message = self._forwarded(source, int(self._flow.target[place]))
        if not message:
            found.early.append(int(self._flow.row[place]))
        self._in_flight[place] = message

    def _forwarded(self, switch: int, target: int) -> int:
        """Return what a switch sends on: of several messages, the first that adds to what the target has."""
        waiting = self._waiting[switch]
        if not waiting:
            return 0
        own = self._content[target] if self._flow.keeps[target] else 0
        chosen = next((each for each in waiting if not each[1] & own), waiting[0])
        waiting.remove(chosen)
        return chosen[1]

    def _arrive(self, place: int, found: Odd) -> None:
        target, message = int(self._flow.target[place]), self._in_flight[place]
        if not self._flow.keeps[target]:
            self._waiting[target].append((place, message))
            return
        own = self._content[target]
        if message and (own == self._whole or (message != self._whole and message & own)):
            found.needless.append(int(self._flow.row[place]))
        elif message == self._whole:
            self._content[target] = message
        else:
            self._content[target] = own | message
