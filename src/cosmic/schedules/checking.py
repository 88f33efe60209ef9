"""Whether a schedule can run as it is, and does what it is for. It shares no code with what makes schedules.

    not_causal    a chunk leaves a node before it is there, or before the collective begins
    overlapping   two transfers are on one link at once
    too_short     a transfer takes less than latency + bytes / bandwidth
    duplicate     a chunk arrives where it already is, a part is added twice, or a switch never forwards it
    missing       a chunk does not arrive where it is to be, or a sum is not whole there

Copies are judged by the times that the schedule states: a chunk that arrives counts as there, even if it was sent too
early. Sums are followed: what was sent too early brings nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Literal, get_args

import numpy as np

from cosmic.errors import require
from cosmic.graphs.graph import Ints
from cosmic.graphs.schedule import KINDS, Schedule
from cosmic.schedules.chunks import NOWHERE, SUMS, Chunks, check_groups, chunks_of
from cosmic.schedules.flows import Flow, flow_of, follow_copies
from cosmic.schedules.sums import follow_sums

Violation = Literal["not_causal", "overlapping", "too_short", "duplicate", "missing"]
VIOLATIONS: tuple[Violation, ...] = get_args(Violation)
SHOWN = 5
"""Violations of a kind that are put in words."""


@dataclass(frozen=True, eq=False)
class Verdict:
    """What a check found."""

    transfers: int
    time_s: float
    counts: Mapping[Violation, int]
    """How many violations there are, by kind."""
    examples: Mapping[Violation, tuple[str, ...]]
    """The first few in words."""

    @property
    def valid(self) -> bool:
        """Whether there is no violation."""
        return not any(self.counts.values())


def check(schedule: Schedule) -> Verdict:
    """Return what is wrong with a schedule, if anything.

    >>> from cosmic.graphs.graph import graph_of
    >>> ring = graph_of(2, [(0, 1, 1e9, 1e-6), (1, 0, 1e9, 1e-6)])
    >>> one = np.array([0, 1]), np.array([0, 1]), np.zeros(2), np.full(2, 2e-6)
    >>> check(Schedule(ring, "all_gather", 2000.0, 1, ((0, 1),), *one)).valid
    True
    """
    _check_columns(schedule)
    flow, chunks = flow_of(schedule), chunks_of(schedule)
    if schedule.kind in SUMS:
        odd = follow_sums(schedule, flow, chunks)
        early, needless = np.array(odd.early, np.int64), np.array(odd.needless, np.int64)
        missing, lost = len(odd.missing), iter(odd.missing)
    else:
        found = follow_copies(flow, chunks.home, np.zeros(chunks.count))
        early, needless = found.early, found.needless
        missing, lost = _missing(schedule, flow, chunks, found.held)
    early = np.union1d(early, np.flatnonzero(schedule.start_s < -flow.tolerance_s))
    rows: dict[Violation, Ints] = {
        "not_causal": early,
        "overlapping": _overlapping(schedule, flow),
        "too_short": _too_short(schedule, flow, chunks),
        "duplicate": np.unique(needless),
    }
    counts: dict[Violation, int] = {kind: len(found_rows) for kind, found_rows in rows.items()}
    counts["missing"] = missing
    examples = {kind: tuple(_words(schedule, kind, found_rows[:SHOWN])) for kind, found_rows in rows.items()}
    examples["missing"] = tuple(_missing_words(schedule, islice(lost, SHOWN)))
    return Verdict(schedule.transfers, schedule.time_s, counts, examples)


def _check_columns(schedule: Schedule) -> None:
    """Refuse values that are no schedule at all."""
    require(schedule.kind in KINDS, "collective", schedule.kind, f"choose from {', '.join(KINDS)}")
    require(schedule.size_bytes > 0, "size", schedule.size_bytes, "must be positive")
    require(schedule.chunks_per_npu >= 1, "chunks", schedule.chunks_per_npu, "an NPU has at least 1 chunk")
    require(bool(schedule.groups), "group", [], "there is at least 1 group")
    check_groups(schedule.graph, schedule.groups, schedule.root)
    columns = (schedule.link, schedule.chunk, schedule.start_s, schedule.end_s)
    rule = "a transfer has a link, a chunk, a start and an end"
    require(len({len(column) for column in columns}) == 1, "schedule", [len(each) for each in columns], rule)
    finite = np.isfinite(schedule.start_s) & np.isfinite(schedule.end_s)
    for row in np.flatnonzero(~finite)[:1]:
        require(False, f"transfer {row}", float(schedule.end_s[row]), "begins and ends at a time")
    total = len(chunks_of(schedule).group)
    for name, column, most in (("link", schedule.link, schedule.graph.links), ("chunk", schedule.chunk, total)):
        for row in np.flatnonzero((column < 0) | (column >= most))[:1]:
            require(False, f"transfer {row}: {name}", int(column[row]), f"is none: there are {most:,}, from 0")


def _overlapping(schedule: Schedule, flow: Flow) -> Ints:
    """Return transfers that begin before all that began earlier on their link have ended."""
    order = np.lexsort((schedule.end_s, schedule.start_s, schedule.link))
    link, start, end = schedule.link[order], schedule.start_s[order], schedule.end_s[order]
    clash = (link[1:] == link[:-1]) & (start[1:] < end[:-1] - flow.tolerance_s)
    found: list[int] = []
    for bad in np.unique(link[1:][clash]).tolist():  # few: one after the other, as a long one may cover several
        first, stop = np.searchsorted(link, [bad, bad + 1])
        latest = -np.inf
        for place in range(first, stop):
            if start[place] < latest - flow.tolerance_s:
                found.append(int(order[place]))
            latest = max(latest, end[place])
    return np.array(sorted(found), np.int64)


def _too_short(schedule: Schedule, flow: Flow, chunks: Chunks) -> Ints:
    """Return transfers that take less than their link needs."""
    graph = schedule.graph
    needed = chunks.size_bytes[schedule.chunk] / graph.bandwidth_bytes_per_s[schedule.link]
    needed = graph.latency_s[schedule.link] + needed
    found: Ints = np.flatnonzero(schedule.end_s - schedule.start_s < needed - flow.tolerance_s)
    return found


def _missing(schedule: Schedule, flow: Flow, chunks: Chunks, held: Ints) -> tuple[int, Iterator[tuple[int, int]]]:
    """Return how many deliveries of copies are missing, and which: chunks and nodes."""
    chunk, node = held // flow.nodes, held % flow.nodes
    single = chunks.target != NOWHERE
    wanted = np.where(single[chunk], node == chunks.target[chunk], chunks.member_of[node] == chunks.group[chunk])
    sizes = np.array([len(group) for group in schedule.groups])[chunks.group]
    needed = np.where(single, chunks.target != chunks.home, sizes - 1)
    lack = needed - np.bincount(chunk[wanted], minlength=chunks.count)
    present = set(held.tolist()) if lack.any() else set()
    return int(lack.sum()), _lost(schedule, flow, chunks, np.flatnonzero(lack), present)


def _lost(schedule: Schedule, flow: Flow, chunks: Chunks, short: Ints, present: set[int]) -> Iterator[tuple[int, int]]:
    for chunk in short.tolist():
        target, home = int(chunks.target[chunk]), int(chunks.home[chunk])
        members = schedule.groups[int(chunks.group[chunk])] if target == NOWHERE else (target,)
        for node in members:
            if node != home and chunk * flow.nodes + node not in present:
                yield chunk, node


def _words(schedule: Schedule, kind: Violation, rows: Ints) -> Iterator[str]:
    """Yield transfers in words."""
    graph = schedule.graph
    why = {
        "not_causal": "before it is there",
        "overlapping": "while another transfer is on the link",
        "too_short": "in less time than its bytes take",
        "duplicate": "where it is already, or goes no further",
    }[kind]
    for row in rows.tolist():
        ends = [graph.name(int(column[schedule.link[row]])) for column in (graph.sources, graph.targets)]
        start, end = schedule.start_s[row] * 1e6, schedule.end_s[row] * 1e6
        yield f"chunk {schedule.chunk[row]} goes {ends[0]}→{ends[1]} from {start:.6f} to {end:.6f} us, {why}"


def _missing_words(schedule: Schedule, lost: Iterable[tuple[int, int]]) -> Iterator[str]:
    what = "the whole sum of chunk {} is not at {}" if schedule.kind in SUMS else "chunk {} does not reach {}"
    for chunk, node in lost:
        yield what.format(chunk, schedule.graph.name(node))
