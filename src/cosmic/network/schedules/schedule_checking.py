"""Check whether a schedule can run as it is, and does what it is for. Shares no code with what makes schedules.

    not_causal    a chunk leaves a node before it is there, or before the collective begins
    overlapping   two transfers are on one link at once
    too_short     a transfer takes less than latency + bytes / bandwidth
    duplicate     a chunk arrives where it already is, a part is added twice, or a switch never forwards it
    missing       a chunk does not arrive where it is to be, or a sum is not whole there
    operation     the schedule says that a transfer copies what is a part of a sum, or adds up what is whole

Copies are judged by the times that the schedule states: a chunk that arrives counts as there, even if it was sent too
early. Sums are followed: what was sent too early brings nothing.

Partial sums are to be added up once each, and the whole sum is to arrive where it belongs.

Most schedules are plain: along a tree to its home, every member sends its partial sum of a chunk once, after all that
it receives; from there the whole sum is copied. Chunks that are not plain are followed event by event, with the set of
the members whose parts each node has added up.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal, get_args

import numpy as np

from cosmic.base.errors import require
from cosmic.base.json_types import Count, json_keys
from cosmic.network.link_graph import Floats, Ints
from cosmic.network.schedules.collective_schedule import (
    KINDS,
    NOWHERE,
    SCHEDULE_KEYS,
    SUMS,
    Chunks,
    Schedule,
    check_groups,
    chunks_of,
)
from cosmic.network.schedules.schedule_transfers import (
    Bools,
    TransferFlow,
    flow_of,
    follow_copies,
    follow_switched,
    forwarded_pairs,
    look_up,
)

# ---- Sums: whether partial sums are added up once each, and the whole sum arrives where it is to be


@dataclass
class OddSums:
    """What is wrong with sums: transfers by their numbers, and deliveries by chunk and node."""

    early: list[int] = field(default_factory=list)
    needless: list[int] = field(default_factory=list)
    missing: list[tuple[int, int]] = field(default_factory=list)


def follow_sums(schedule: Schedule, flow: TransferFlow, chunks: Chunks) -> OddSums:
    """Return the violations of a schedule of sums."""
    odd = np.flatnonzero(~_find_plain_chunks(schedule, flow, chunks))
    problems = OddSums()
    order = np.argsort(flow.chunk, kind="stable")
    first = np.searchsorted(flow.chunk[order], np.arange(chunks.count + 1))
    for chunk in odd.tolist():
        _ChunkSums(schedule, flow, chunks, chunk).run(order[first[chunk] : first[chunk + 1]], problems)
    return problems


# ---- plain ones, at once


def _find_plain_chunks(schedule: Schedule, flow: TransferFlow, chunks: Chunks) -> Bools:
    """Return the chunks whose transfers form trees, as they must."""
    if schedule.kind != "all_reduce":
        return _find_trees(schedule, flow, chunks)
    # An all-reduce is a sum along a tree to the home, then copies along a tree from it; transfers that end before the
    # home first sends are of the sum. A chunk that fits neither is followed bit by bit.
    begun, before_sum, after_sum = _around_sums(flow, chunks)
    plain = np.ones(chunks.count, np.bool_)
    plain[flow.chunk[before_sum == after_sum]] = False
    plain &= _find_trees(schedule, flow.of(before_sum & ~after_sum), chunks)
    copied = flow.of(after_sum & ~before_sum)
    followed = follow_copies(copied, chunks.home, begun)
    for wrong in (followed.early, followed.needless):
        plain[copied.chunk[wrong]] = False
    chunk, node = followed.held // flow.nodes, followed.held % flow.nodes
    members = chunks.member_of[node] == chunks.group[chunk]  # not nodes that only relay
    counts: Ints = np.bincount(chunk[members], minlength=chunks.count)
    plain &= counts == _other_members(schedule, chunks)
    return plain


def _around_sums(flow: TransferFlow, chunks: Chunks) -> tuple[Floats, Bools, Bools]:
    """Return when the home of each chunk first sends, and which transfers end before, or begin after that."""
    begun = np.full(chunks.count, np.inf)
    own = flow.source == chunks.home[flow.chunk]
    np.minimum.at(begun, flow.chunk[own], flow.start_s[own])
    tolerance = flow.tolerance_s
    return begun, flow.end_s <= begun[flow.chunk] + tolerance, flow.start_s >= begun[flow.chunk] - tolerance


def _other_members(schedule: Schedule, chunks: Chunks) -> Ints:
    """Return the number of members but one, by chunk."""
    return np.array([len(group) - 1 for group in schedule.groups])[chunks.group]


def _find_trees(schedule: Schedule, flow: TransferFlow, chunks: Chunks) -> Bools:
    """Return the chunks whose parts all reach the home along a tree."""
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
    row, present = look_up(key, sender)
    ready = np.where(present, arrival[row] if len(key) else 0.0, np.where(member, 0.0, np.inf))
    plain[chunk[(flow.start_s[sent] < ready - flow.tolerance_s) | (source == chunks.home[chunk])]] = False
    distinct, counts = np.unique(sender, return_counts=True)
    # A node that sends its sum twice would count it twice.
    plain[distinct[counts > 1] // flow.nodes] = False
    plain &= np.bincount(chunk[member], minlength=chunks.count) == _other_members(schedule, chunks)
    relay = chunks.member_of[key % flow.nodes] != chunks.group[key // flow.nodes]
    forwarded = look_up(distinct, key)[1]
    plain[key[relay & ~forwarded] // flow.nodes] = False
    for wrong in follow_switched(flow):
        plain[flow.chunk[wrong]] = False
    return plain


# ---- what each transfer carries: a part that is added up, or a whole that is copied


def reducing_transfers(schedule: Schedule) -> Bools:
    """Return which transfers reduce: as the schedule says, else as follows from what each carries."""
    return schedule.reduces if schedule.reduces is not None else infer_reducing(schedule)


def infer_reducing(schedule: Schedule) -> Bools:
    """Return which transfers carry a part of a sum; of copies none, of a reduce-scatter and a reduction all.

    An all-reduce copies what has the parts of all members: plain chunks from when their home sends them; of others the
    parts are followed from transfer to transfer.
    """
    if schedule.kind != "all_reduce":
        return np.full(schedule.transfers, schedule.kind in SUMS)
    flow, chunks = flow_of(schedule), chunks_of(schedule)
    plain = _find_plain_chunks(schedule, flow, chunks)
    reduces = _around_sums(flow, chunks)[1]
    rows = np.flatnonzero(~plain[flow.chunk])
    groups = {int(chunk): schedule.groups[int(chunks.group[chunk])] for chunk in np.unique(flow.chunk[rows]).tolist()}
    held = {(chunk, member): 1 << bit for chunk, group in groups.items() for bit, member in enumerate(group)}
    # Arrivals before departures at the same time: what has just come may be sent on.
    events = [(float(flow.end_s[row]), 0, row) for row in rows.tolist()]
    events += [
        (min(float(flow.start_s[row]) + flow.tolerance_s, float(flow.end_s[row])), 1, row) for row in rows.tolist()
    ]
    into, out, match = forwarded_pairs(flow)
    passed_on = {int(after): int(into[before]) for after, before in zip(out, match, strict=True) if before >= 0}
    carried: dict[int, int] = {}
    for _, is_send, row in sorted(events):
        chunk, source, target = (int(column[row]) for column in (flow.chunk, flow.source, flow.target))
        if is_send:
            before = passed_on.get(row)
            carried[row] = held.get((chunk, source), 0) if before is None else carried.get(before, 0)
            reduces[row] = carried[row] != (1 << len(groups[chunk])) - 1
        elif flow.keeps[target]:
            held[chunk, target] = held.get((chunk, target), 0) | carried.get(row, 0)
    return reduces


# ---- others, event by event


class _ChunkSums:
    """One chunk: which members' parts each node has added up, as the bits of a number."""

    def __init__(self, schedule: Schedule, flow: TransferFlow, chunks: Chunks, chunk: int) -> None:
        self._flow, self._chunk = flow, chunk
        members = schedule.groups[int(chunks.group[chunk])]
        self._whole = (1 << len(members)) - 1
        self._content: dict[int, int] = defaultdict(int)
        self._content |= {member: 1 << index for index, member in enumerate(members)}
        self._waiting: dict[int, deque[tuple[int, int]]] = defaultdict(deque)
        self._in_flight: dict[int, int] = {}
        home = int(chunks.home[chunk])
        self._wanted = members if schedule.kind == "all_reduce" else (home,)

    def run(self, transfers: Ints, problems: OddSums) -> None:
        """Follow the *transfers* of the flow, and add violations to *problems*."""
        flow = self._flow
        events: list[tuple[float, int, int]] = []
        for transfer in transfers.tolist():
            start, end = float(flow.start_s[transfer]), float(flow.end_s[transfer])
            # Arrivals before departures at the same time: what has just come may be sent on.
            events += [(end, 0, transfer), (min(start + flow.tolerance_s, end), 1, transfer)]
        for _, is_send, transfer in sorted(events):
            if is_send or transfer not in self._in_flight:
                self._send(transfer, problems)
            if not is_send:
                self._arrive(transfer, problems)
        problems.needless += [int(flow.row[transfer]) for waiting in self._waiting.values() for transfer, _ in waiting]
        problems.missing += [(self._chunk, node) for node in self._wanted if self._content[node] != self._whole]

    def _send(self, transfer: int, problems: OddSums) -> None:
        if transfer in self._in_flight:
            return
        source = int(self._flow.source[transfer])
        if self._flow.keeps[source]:
            message = self._content[source]
        else:
            message = self._forwarded(source, int(self._flow.target[transfer]))
        if not message:
            problems.early.append(int(self._flow.row[transfer]))
        self._in_flight[transfer] = message

    def _forwarded(self, switch: int, target: int) -> int:
        """Return what a switch sends on: of several messages, the first that adds to what the target has."""
        waiting = self._waiting[switch]
        if not waiting:
            return 0
        own = self._content[target] if self._flow.keeps[target] else 0
        chosen = next((message for message in waiting if not message[1] & own), waiting[0])
        waiting.remove(chosen)
        return chosen[1]

    def _arrive(self, transfer: int, problems: OddSums) -> None:
        target, message = int(self._flow.target[transfer]), self._in_flight[transfer]
        if not self._flow.keeps[target]:
            self._waiting[target].append((transfer, message))
            return
        own = self._content[target]
        if message and (own == self._whole or (message != self._whole and message & own)):
            problems.needless.append(int(self._flow.row[transfer]))
        elif message == self._whole:
            self._content[target] = message
        else:
            self._content[target] = own | message


# ---- Whether a schedule can run as it is, and does what it is for. It shares no code with what makes schedules

Violation = Literal["not_causal", "overlapping", "too_short", "duplicate", "operation", "missing"]
VIOLATIONS: tuple[Violation, ...] = get_args(Violation)
SHOWN = 5
"""Violations of a kind that are put in words."""


@dataclass(frozen=True, slots=True)
class ScheduleViolations:
    """Violations of one kind."""

    count: Count
    """How many there are."""
    examples: tuple[str, ...]
    """The first few, a sentence each."""


@json_keys("valid", "violations", own=False, **SCHEDULE_KEYS)
@dataclass(frozen=True, eq=False)
class ScheduleVerdict:
    """Whether a schedule can run as it is and does what it is for. Exit code 1 if not."""

    schedule: Schedule
    counts: Mapping[Violation, int]
    """How many violations there are, by kind."""
    examples: Mapping[Violation, tuple[str, ...]]
    """The first few in words."""

    @property
    def transfers(self) -> int:
        """How many transfers were checked."""
        return self.schedule.transfers

    @property
    def time_s(self) -> float:
        """Time until the last transfer has ended."""
        return self.schedule.time_s

    @property
    def valid(self) -> bool:
        """Whether there is no violation."""
        return not any(self.counts.values())

    @property
    def violations(self) -> dict[str, ScheduleViolations]:
        """Violations by kind: not_causal, overlapping, too_short, duplicate, missing."""
        return {kind: ScheduleViolations(count, self.examples[kind]) for kind, count in self.counts.items()}


def check_schedule(schedule: Schedule) -> ScheduleVerdict:
    """Return the violations of a schedule.

    >>> from cosmic.network.link_graph import graph_of
    >>> ring = graph_of(2, [(0, 1, 1e9, 1e-6), (1, 0, 1e9, 1e-6)])
    >>> one = np.array([0, 1]), np.array([0, 1]), np.zeros(2), np.full(2, 2e-6)
    >>> check_schedule(Schedule(ring, "all_gather", 2000.0, 1, ((0, 1),), *one)).valid
    True
    """
    _check_columns(schedule)
    flow, chunks = flow_of(schedule), chunks_of(schedule)
    if schedule.kind in SUMS:
        odd = follow_sums(schedule, flow, chunks)
        early, needless = np.array(odd.early, np.int64), np.array(odd.needless, np.int64)
        missing, lost = len(odd.missing), iter(odd.missing)
    else:
        followed = follow_copies(flow, chunks.home, np.zeros(chunks.count))
        early, needless = followed.early, followed.needless
        missing, lost = _find_missing(schedule, flow, chunks, followed.held)
    early = np.union1d(early, np.flatnonzero(schedule.start_s < -flow.tolerance_s))
    rows: dict[Violation, Ints] = {
        "not_causal": early,
        "overlapping": _find_overlapping(schedule, flow),
        "too_short": _find_too_short(schedule, flow, chunks),
        "duplicate": np.unique(needless),
        "operation": _find_wrong_operations(schedule),
    }
    counts: dict[Violation, int] = {kind: len(found_rows) for kind, found_rows in rows.items()}
    counts["missing"] = missing
    examples = {kind: tuple(_transfer_words(schedule, kind, found_rows[:SHOWN])) for kind, found_rows in rows.items()}
    examples["missing"] = tuple(_missing_words(schedule, islice(lost, SHOWN)))
    return ScheduleVerdict(schedule, counts, examples)


def _check_columns(schedule: Schedule) -> None:
    """Refuse values that are no schedule at all."""
    require(schedule.kind in KINDS, "collective", schedule.kind, f"choose from {', '.join(KINDS)}")
    require(schedule.size_bytes > 0, "size", schedule.size_bytes, "must be positive")
    require(schedule.chunks_per_npu >= 1, "chunks", schedule.chunks_per_npu, "an NPU has at least 1 chunk")
    require(bool(schedule.groups), "group", [], "there is at least 1 group")
    check_groups(schedule.graph, schedule.groups, schedule.root)
    columns = (schedule.link, schedule.chunk, schedule.start_s, schedule.end_s)
    rule = "a transfer has a link, a chunk, a start and an end"
    require(len({len(column) for column in columns}) == 1, "schedule", [len(column) for column in columns], rule)
    finite = np.isfinite(schedule.start_s) & np.isfinite(schedule.end_s)
    for row in np.flatnonzero(~finite)[:1]:
        require(False, f"transfer {row}", float(schedule.end_s[row]), "begins and ends at a time")
    total = len(chunks_of(schedule).group)
    for name, column, most in (("link", schedule.link, schedule.graph.links), ("chunk", schedule.chunk, total)):
        for row in np.flatnonzero((column < 0) | (column >= most))[:1]:
            require(False, f"transfer {row}: {name}", int(column[row]), f"is none: there are {most:,}, from 0")


def _find_wrong_operations(schedule: Schedule) -> Ints:
    """Return transfers of which a schedule says something else than follows from what they carry."""
    none: Ints = np.zeros(0, np.int64)
    return none if schedule.reduces is None else np.flatnonzero(schedule.reduces != infer_reducing(schedule))


def _find_overlapping(schedule: Schedule, flow: TransferFlow) -> Ints:
    """Return transfers that begin before all that began earlier on their link have ended."""
    order = np.lexsort((schedule.end_s, schedule.start_s, schedule.link))
    link, start, end = schedule.link[order], schedule.start_s[order], schedule.end_s[order]
    clash = (link[1:] == link[:-1]) & (start[1:] < end[:-1] - flow.tolerance_s)
    rows: list[int] = []
    for bad in np.unique(link[1:][clash]).tolist():  # few: one after the other, as a long one may cover several
        first, stop = np.searchsorted(link, [bad, bad + 1])
        latest = -np.inf
        for index in range(first, stop):
            if start[index] < latest - flow.tolerance_s:
                rows.append(int(order[index]))
            latest = max(latest, end[index])
    return np.array(sorted(rows), np.int64)


def _find_too_short(schedule: Schedule, flow: TransferFlow, chunks: Chunks) -> Ints:
    """Return transfers that take less than their link needs."""
    graph = schedule.graph
    needed = chunks.size_bytes[schedule.chunk] / graph.bandwidth_bytes_per_s[schedule.link]
    needed = graph.latency_s[schedule.link] + needed
    rows: Ints = np.flatnonzero(schedule.end_s - schedule.start_s < needed - flow.tolerance_s)
    return rows


def _find_missing(
    schedule: Schedule, flow: TransferFlow, chunks: Chunks, held: Ints
) -> tuple[int, Iterator[tuple[int, int]]]:
    """Return how many deliveries of copies are missing, and which: chunks and nodes."""
    chunk, node = held // flow.nodes, held % flow.nodes
    single = chunks.target != NOWHERE
    wanted = np.where(single[chunk], node == chunks.target[chunk], chunks.member_of[node] == chunks.group[chunk])
    sizes = np.array([len(group) for group in schedule.groups])[chunks.group]
    needed = np.where(single, chunks.target != chunks.home, sizes - 1)
    lack = needed - np.bincount(chunk[wanted], minlength=chunks.count)
    present = set(held.tolist()) if lack.any() else set()
    return int(lack.sum()), _lost_parts(schedule, flow, chunks, np.flatnonzero(lack), present)


def _lost_parts(
    schedule: Schedule, flow: TransferFlow, chunks: Chunks, short: Ints, present: set[int]
) -> Iterator[tuple[int, int]]:
    for chunk in short.tolist():
        target, home = int(chunks.target[chunk]), int(chunks.home[chunk])
        members = schedule.groups[int(chunks.group[chunk])] if target == NOWHERE else (target,)
        for node in members:
            if node != home and chunk * flow.nodes + node not in present:
                yield chunk, node


def _transfer_words(schedule: Schedule, kind: Violation, rows: Ints) -> Iterator[str]:
    """Yield transfers in words."""
    graph = schedule.graph
    why = {
        "not_causal": "before it is there",
        "overlapping": "while another transfer is on the link",
        "too_short": "in less time than its bytes take",
        "duplicate": "where it is already, or goes no further",
        "operation": "and is a part of a sum to add up, or a whole to copy, as the schedule does not say",
    }[kind]
    for row in rows.tolist():
        ends = [graph.name(int(column[schedule.link[row]])) for column in (graph.sources, graph.targets)]
        start, end = schedule.start_s[row] * 1e6, schedule.end_s[row] * 1e6
        yield f"chunk {schedule.chunk[row]} goes {ends[0]}→{ends[1]} from {start:.6f} to {end:.6f} us, {why}"


def _missing_words(schedule: Schedule, lost: Iterable[tuple[int, int]]) -> Iterator[str]:
    sentence = "the whole sum of chunk {} is not at {}" if schedule.kind in SUMS else "chunk {} does not reach {}"
    for chunk, node in lost:
        yield sentence.format(chunk, schedule.graph.name(node))
