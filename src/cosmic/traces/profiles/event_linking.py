"""Link what a host did to what it launched: every event of a Kineto trace becomes a node with what it waited for.

Host. The operators, annotations and calls of a thread follow each other in the order in which they began. Each takes
the thread from where the one before left off until the next begins, so that no time of a thread is lost. Three nodes
end earlier or begin later. A launch ends when its kernel starts, if that is before the call returns; the next node
takes what is left. A call that waits for the device (cudaStreamSynchronize, a copy to pageable memory) begins when
the last kernel that it waited for has ended. And where a thread was idle until another thread, or a collective on
the host, was done, the next node waits for that. What a thread does after its last launch or wait is a node of its
own.

Device. A kernel waits for its launch, for the kernel before it in its stream, and, where the host made its stream
wait for an event, for what other streams had been given by then, as far as that had ended. A collective of a single
process runs no kernel; it waits for what its stream had been given, and for the collective before it, as one of
several would.

A node's delay is what passed between the end of the last node that it waited for and its start: the latency of a
launch, the gap between two kernels. So the recorded timeline follows from durations, delays and dependencies alone.

The parts: `Nesting` says which operator is around each event, `ThreadIntervals` how events share a thread's time (both loops
in C, `native/linking.c`, and the same in Python); `NumberedNodes` are the events that become nodes; `StreamKernels`
says what streams had been given when the host made one of them wait; `ThreadDependencies` finds what woke an idle thread;
`began_order` orders nodes that begin at one moment and take no time.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cosmic.base.graphs import sort_after_waits
from cosmic.base.native.library import native_library
from cosmic.traces.profiles.integer_sets import is_in, sorted_distinct
from cosmic.traces.profiles.kineto import ANNOTATION, CALL, Device, Host, Kineto
from cosmic.traces.profiles.profiled_collectives import Communication

# ---- What streams had been given when the host made one of them wait for an event

Ints = npt.NDArray[np.int64]
ANY = -1
"""Stands for all threads, or all streams."""
BLOCK = 512
"""Of so many moments, the earliest is known."""
MOST_STREAMS = 64
"""Where a profile does not say which stream was waited for, all are, up to so many."""


class StreamKernels:
    """The kernels of each stream, in the order in which they were launched."""

    def __init__(self, kernels: Ints, moment: Ints, device: Device) -> None:
        """Take *kernels*, entries of *device*, and when each was launched."""
        stream = device.stream[kernels]
        order = np.lexsort((kernels, device.start[kernels], moment, stream))
        bounds = np.flatnonzero(np.diff(stream[order], prepend=-1, append=-1))
        self._streams: dict[int, tuple[list[int], list[int]]] = {}
        """By stream: when its kernels were launched, ascending, and their entries."""
        for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            part = order[first:last]
            self._streams[int(stream[part[0]])] = moment[part].tolist(), kernels[part].tolist()
        self._all = list(self._streams)[:MOST_STREAMS]
        self._ends = device.end
        self._ended: dict[int, EndLookup] = {}

    def before(self, moment: int, waited: int = -1, but: int = -1, until: int | None = None) -> list[int]:
        """Return the last kernel that each stream had been given; of *waited* alone, if it is stated, and not of *but*.

        With *until*, the last of them that had ended by then.
        """
        kernels = []
        for stream in self._all if waited < 0 else [waited]:
            moments, entries = self._streams.get(stream, ([], []))
            index = bisect_left(moments, moment) - 1
            if until is not None and index >= 0 and self._ends[entries[index]] > until:
                index = self._of(stream).last(index, until)
            if stream != but and index >= 0:
                kernels.append(entries[index])
        return kernels

    def _of(self, stream: int) -> EndLookup:
        """Return when the kernels of a stream ended."""
        if stream not in self._ended:
            self._ended[stream] = EndLookup(self._ends[self._streams[stream][1]])
        return self._ended[stream]


class EndLookup:
    """Moments to look up: which of the first ones is the last that is early enough, without a look at each."""

    def __init__(self, ends: Ints) -> None:
        self._ends = ends
        self._earliest = np.minimum.reduceat(ends, np.arange(0, len(ends), BLOCK)) if len(ends) else ends
        """Of each block."""

    def last(self, index: int, until: int) -> int:
        """Return the last index up to *index* whose end is not later than *until*; -1 if there is none.

        >>> EndLookup(np.array([5, 9, 7])).last(2, 6), EndLookup(np.array([5])).last(0, 4)
        (0, -1)
        """
        block = index // BLOCK
        ended = np.flatnonzero(self._ends[block * BLOCK : index + 1] <= until)
        if not len(ended):
            early = np.flatnonzero(self._earliest[:block] <= until)
            if not len(early):
                return -1
            block = int(early[-1])
            ended = np.flatnonzero(self._ends[block * BLOCK : (block + 1) * BLOCK] <= until)
        return block * BLOCK + int(ended[-1])


class Launches:
    """The kernels that each thread launched."""

    def __init__(self, thread: Ints, began: Ints, launch_of: Ints, stream: Ints) -> None:
        """Take the threads and moments of calls, and of each kernel its call and its stream."""
        kernels = np.flatnonzero(launch_of >= 0)
        calls, first = np.unique(launch_of[kernels], return_index=True)
        order = np.argsort(began[calls], kind="stable")
        calls, entries = calls[order], kernels[first[order]]
        moments = began[calls]
        self._by_thread = _part_by_key(thread[calls], moments, entries)
        """When the host launched, ascending, and the kernels."""
        self._by_stream = _part_by_key(stream[entries], moments, entries)
        self._by_thread[ANY] = self._by_stream[ANY] = moments.tolist(), entries.tolist()

    def first_after(self, moment: int, stream: int) -> int | None:
        """Return the first kernel that was launched after *moment*, on *stream* unless that is -1; None if none.

        Whichever thread launched it: autograd's thread makes a stream wait, and the main thread runs the optimizer.
        """
        moments, entries = self._by_stream.get(stream, ([], []))
        index = bisect_right(moments, moment)
        return entries[index] if index < len(entries) else None

    def last_before(self, thread: int, moment: int) -> int | None:
        """Return the last kernel that *thread* launched before *moment*; None if none."""
        moments, entries = self._by_thread.get(thread, ([], []))
        index = bisect_left(moments, moment) - 1
        return entries[index] if index >= 0 else None


def _part_by_key(key: Ints, moments: Ints, entries: Ints) -> dict[int, tuple[list[int], list[int]]]:
    """Return moments and entries by their *key*, in the order that they have."""
    order = np.argsort(key, kind="stable")
    bounds = np.flatnonzero(np.diff(key[order], prepend=-2, append=-2)).tolist()
    parts = (order[first:last] for first, last in pairwise(bounds))
    return {int(key[part[0]]): (moments[part].tolist(), entries[part].tolist()) for part in parts}


# ---- Threads of a host: which operator is around each event, and how events share a thread's time

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Nesting:
    """The events of a host, thread by thread."""

    order: Ints
    """Entries in `Kineto.host`: thread by thread, in the order in which they began."""
    around: Ints
    """By entry: the entry of the operator or annotation around it; -1 if there is none."""


def nesting_of(host: Host) -> Nesting:
    """Return the nesting of a host's events; of two that begin together, the longer one encloses the other."""
    order = np.lexsort((host.category, -host.end, host.start, host.thread))
    parents = _enclosing_entries(host.thread[order], host.start[order], host.end[order], host.category[order] != CALL)
    around = np.empty(len(order), np.int64)
    around[order] = np.where(parents >= 0, order[parents], -1) if len(order) else parents
    return Nesting(order, around)


def _enclosing_entries(thread: Ints, start: Ints, end: Ints, can_enclose: Mask) -> Ints:
    """Return for each event the position of the innermost one around it, of those that can enclose others; else -1."""
    parents = np.empty(len(thread), np.int64)
    native = native_library()
    if native is not None:
        columns = (thread, start, end, can_enclose, parents)
        native.cosmic_link_around(len(thread), *(column.ctypes.data for column in columns))
        return parents
    # A stack of open entries, linked by `around` itself; C does the same.
    top, before = -1, -1
    starts, ends, opens, around = start.tolist(), end.tolist(), can_enclose.tolist(), [-1] * len(thread)
    for index, number in enumerate(thread.tolist()):
        if number != before:
            top, before = -1, number
        while top >= 0 and ends[top] <= starts[index]:
            top = around[top]
        around[index] = top
        if opens[index]:
            top = index
    parents[:] = around
    return parents


@dataclass(frozen=True, slots=True, eq=False)
class ThreadIntervals:
    """What decides when the nodes of threads begin and end: an entry for each node, thread by thread."""

    thread: Ints
    start: Ints
    """When the event began."""
    follows: Ints
    """When the next one of the thread began; for the last, when the thread was done."""
    latest: Ints
    """When it must have ended: what it launched began."""
    wait_end: Ints
    """When what it waited for ended; 0 if it did not wait."""
    woken: Mask
    """Whether the thread was idle until its waker was done, another thread or a collective."""
    busy_until: Ints
    """Until when the thread had been busy before the event: if that is earlier than `start`, it was idle in between."""

    def cut(self) -> tuple[Ints, Ints]:
        """Return when each node begins and ends."""
        start, end = self.start.copy(), np.zeros(len(self.start), np.int64)
        woken = self.woken.astype(np.int64)
        native = native_library()
        if native is not None:
            columns = (self.thread, self.follows, self.latest, self.wait_end, woken, self.busy_until, start, end)
            native.cosmic_link_cut(len(start), *(column.ctypes.data for column in columns))
            return start, end
        shares = (self.thread, self.start, self.follows, self.latest, self.wait_end, woken, self.busy_until)
        starts, ends = [0] * len(start), [0] * len(start)
        before = -1
        for index, (thread, began, follows, latest, wait_end, is_woken, busy_until) in enumerate(
            zip(*(column.tolist() for column in shares), strict=True)
        ):
            first, before = thread != before, thread
            begins = began if first else ends[index - 1]
            if is_woken and not first:
                ends[index - 1] = max(starts[index - 1], min(ends[index - 1], busy_until))
                begins = max(began, ends[index - 1])
            starts[index] = max(begins, wait_end)
            ends[index] = max(starts[index], min(follows, latest))
        return np.array(starts, np.int64), np.array(ends, np.int64)


# ---- What of a profile becomes nodes: entries of threads and of the device, in their order, and what launched what

WAITS_FOR_EVENT = re.compile(r"(cuda|hip|cu)StreamWaitEvent")
IS_NO_NODE = re.compile(
    r"(cuda|hip|cu)(StreamWaitEvent|EventRecord|EventRecordWithFlags|EventDestroy|StreamCreate\w*)$"
)
IDLE_NS = 20_000
"""A thread that does nothing for longer may have waited for another."""


def match_names(pattern: re.Pattern[str], trace: Kineto, name: Ints) -> Mask:
    """Return whether the names of entries match."""
    matches = np.array([pattern.match(text) is not None for text in trace.names], bool)
    return matches[name] if len(matches) else np.zeros(len(name), bool)


def add_remainders(trace: Kineto, window: tuple[int, int] | None, nesting: Nesting) -> Nesting:
    """Add to *trace* what threads did at their end, where no event of theirs has that time; return the nesting.

    A launch ends when its kernel starts, and a thread that waits for another (in `backward()`) goes on when that is
    done. A thread has at most one such entry: from then until its operators and annotations end.
    """
    host = trace.host
    begin, stop = window or (0, int(host.end.max(initial=0)) + 1)
    order = nesting.order[(host.start[nesting.order] >= begin) & (host.start[nesting.order] < stop)]
    bounds = np.flatnonzero(np.diff(host.thread[order], prepend=-1, append=-1)).tolist()
    parts = [order[first:last] for first, last in pairwise(bounds)]
    silent = (host.category == CALL) & match_names(IS_NO_NODE, trace, host.name)
    launches = (host.category == CALL) & is_in(host.correlation, sorted_distinct(trace.device.correlation))
    launches &= host.correlation >= 0
    ends = [host.end[part[host.category[part] != ANNOTATION]] for part in parts]
    latest = [int(thread_ends.max(initial=-1)) for thread_ends in ends]
    rests: list[tuple[int, int, int, int]] = []
    """The last event, what it is in, and from when to when the rest takes."""
    for number, entries in enumerate(parts):
        nodes = entries[~silent[entries]]
        if not len(nodes):
            continue
        last, around = int(nodes[-1]), int(entries[np.argmax(host.end[entries])])
        done, end = int(host.end[last]), min(int(host.end[around]), stop)
        ends_elsewhere = [
            (latest[thread] if latest[thread] <= end else int(ends[thread][ends[thread] <= end].max(initial=-1)))
            for thread in range(len(parts))
            if thread != number
        ]
        woken = max([done, *ends_elsewhere])
        waited = woken - done > IDLE_NS
        if (launches[last] or waited) and end > (woken if waited else done):
            rests.append((last, around, woken if waited else done, end))
    if not rests:
        return nesting
    return _with_entries(trace, nesting, np.array(rests, np.int64))


def _with_entries(trace: Kineto, nesting: Nesting, rests: Ints) -> Nesting:
    """Add entries to the host of *trace*, each after another of its thread."""
    host = trace.host
    last, around, starts, ends = rests.T
    numbers = len(trace.names) + np.arange(len(rests))
    trace.names += [f"rest of {trace.names[name]}" for name in host.name[around].tolist()]
    absent, count = np.full(len(rests), -1), len(host.start)
    trace.host = Host(
        name=np.append(host.name, numbers),
        start=np.append(host.start, starts),
        end=np.append(host.end, ends),
        thread=np.append(host.thread, host.thread[last]),
        category=np.append(host.category, np.full(len(rests), ANNOTATION)),
        function=np.append(host.function, absent),
        correlation=np.append(host.correlation, absent),
    )
    position = np.empty(count, np.int64)
    position[nesting.order] = np.arange(count)
    order = np.insert(nesting.order, position[last] + 1, count + np.arange(len(rests)))
    return Nesting(order, np.append(nesting.around, around))


class NumberedNodes:
    """The nodes of a trace, numbered, of those that the host began within a window."""

    def __init__(
        self,
        trace: Kineto,
        communications: Sequence[Communication],
        window: tuple[int, int] | None,
        nesting: Nesting,
    ) -> None:
        self.trace, self.communications = trace, communications
        ends = (int(times.max(initial=0)) for times in (trace.host.end, trace.device.end))
        self.begin, self.stop = window or (0, max(ends) + 1)
        self.stop = max(self.stop, self.begin + 1)
        self.pairs: list[tuple[Ints, Ints]] = []
        """Nodes, and those that they wait for."""
        self.waiting: list[int] = []
        """The same, one by one."""
        self.waited: list[int] = []
        self._take_host(nesting)
        self._take_device()
        self.exchanges = [
            index
            for index, communication in enumerate(communications)
            if communication.kernel is None and self.begin <= communication.start <= self.stop
        ]

    def _take_host(self, nesting: Nesting) -> None:
        """Number the nodes of the host: thread by thread, the one that began first first."""
        host = self.trace.host
        selected = (host.start >= self.begin) & (host.start < self.stop)
        skipped = [entry for communication in self.communications for entry in communication.annotations]
        selected[np.array(skipped, np.int64)] = False
        silent = selected & (host.category == CALL) & match_names(IS_NO_NODE, self.trace, host.name)
        waits = match_names(WAITS_FOR_EVENT, self.trace, host.name)
        self.event_waits, self.event_records = np.flatnonzero(silent & waits), np.flatnonzero(silent & ~waits)
        selected &= ~silent
        entry = nesting.order[selected[nesting.order]]
        thread = host.thread[entry]
        bounds = np.flatnonzero(np.diff(thread, prepend=-1, append=-1))
        heads = entry[bounds[:-1]]
        order = np.lexsort((heads, host.category[heads], -host.end[heads], host.start[heads]))
        spans = [(int(bounds[thread_index]), int(bounds[thread_index + 1])) for thread_index in order.tolist()]
        self.entry = np.concatenate([np.zeros(0, np.int64), *(entry[first:last] for first, last in spans)])
        sizes = [last - first for first, last in spans]
        self.first = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)
        """Of each thread, its first node."""
        self.thread = np.repeat(np.arange(len(spans)), sizes)
        self.thread_of = {
            int(host.thread[self.entry[thread_index]]): index
            for index, thread_index in enumerate(self.first[:-1].tolist())
        }
        self.began, self.ended = host.start[self.entry], host.end[self.entry]
        self.is_call = host.category[self.entry] == CALL
        self.node_of_host = np.full(len(host.start), -1)
        self.node_of_host[self.entry] = np.arange(len(self.entry))
        self.parent = self._parents(nesting, selected)

    def _parents(self, nesting: Nesting, selected: Mask) -> Ints:
        """Return the node of the operator around each node of the host, of those that are nodes."""
        host = self.trace.host
        around = nesting.around[self.entry]
        pending = np.arange(len(around))
        while True:
            parents = around[pending]
            wrong = (parents >= 0) & ~(selected[parents] & (host.end[parents] > self.began[pending]))
            pending, parents = pending[wrong], parents[wrong]
            if not len(pending):
                return np.where(around >= 0, self.node_of_host[around], -1)
            around[pending] = np.where(host.start[parents] < self.begin, -1, nesting.around[parents])

    def _take_device(self) -> None:
        """Number the nodes of the device, and find what launched them."""
        host, device = self.trace.host, self.trace.device
        self.launch_of = _last_calls(host.correlation[self.entry], np.flatnonzero(self.is_call), device.correlation)
        inside = (device.start >= self.begin) & (device.start < self.stop)
        if not len(self.entry):
            inside[:] = True
        calls = sorted_distinct(host.correlation[(host.category == CALL) & (host.correlation >= 0)])
        outside = is_in(device.correlation, calls)
        selected = np.flatnonzero((self.launch_of >= 0) | (inside & ~outside))
        self.kernels = selected[np.lexsort((selected, device.end[selected], device.start[selected]))]
        self.node_of_device = np.full(len(device.start), -1)
        self.node_of_device[self.kernels] = len(self.entry) + np.arange(len(self.kernels))


def _last_calls(correlation: Ints, calls: Ints, wanted: Ints) -> Ints:
    """Return for each *wanted* correlation the last of the *calls* (indices) with it; -1 without one.

    >>> _last_calls(np.array([7, 8, 7]), np.array([0, 1, 2]), np.array([7, 9])).tolist()
    [2, -1]
    """
    calls = calls[correlation[calls] >= 0]
    calls = calls[np.argsort(correlation[calls], kind="stable")]
    if not len(calls):
        return np.full(len(wanted), -1)
    index = np.searchsorted(correlation[calls], wanted, "right") - 1
    same = (index >= 0) & (correlation[calls[index]] == wanted)
    return np.where(same, calls[index], -1)


# ---- Nodes that begin at one moment and take no time: in which order they ran, and that none waits for itself


def without_cycles(node: Ints, wait: Ints, start: Ints, end: Ints) -> Mask:
    """Return which dependencies to keep, so that there is no cycle; *wait* ended before *node* began.

    Only nodes that take no time, at one moment, can wait for each other.

    >>> at = np.array([5, 5, 5])
    >>> without_cycles(np.array([0, 1, 2]), np.array([1, 0, 1]), at, at).tolist()
    [False, True, True]
    """
    tied = np.flatnonzero((start[node] == start[wait]) & (end[node] == end[wait]))
    acyclic = np.ones(len(node), bool)
    if len(tied):
        # Which of them are between nodes that can never run
        dependent = node[tied]
        waited = wait[tied]
        names, numbers = np.unique(np.concatenate([dependent, waited]), return_inverse=True)
        dependent, waited = numbers[: len(dependent)], numbers[len(dependent) :]
        ran = np.zeros(len(names), bool)
        ran[_sort_after_waits(dependent, waited, len(names))] = True
        stuck = ~ran[dependent]
        acyclic[tied[stuck & (wait[tied] >= node[tied])]] = False
    return acyclic


def began_order(node: Ints, wait: Ints, start: Ints, end: Ints) -> Ints:
    """Return all nodes in the order in which they began, each after those that it waits for."""
    order = np.lexsort((end, start))
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    late = position[wait] >= position[node]
    if not late.any():
        return order
    moments = (start[order[1:]] != start[order[:-1]]) | (end[order[1:]] != end[order[:-1]])
    group = np.concatenate([[0], np.cumsum(moments)])[position]  # of nodes with the same times
    misordered = np.zeros(int(group.max()) + 1, bool)
    misordered[group[node[late]]] = True
    inside = misordered[group[node]] & (group[node] == group[wait])
    rows = np.flatnonzero(misordered[group[order]])  # places in the order that are given anew
    number = np.full(len(order), -1)
    number[order[rows]] = np.arange(len(rows))
    again = _sort_after_waits(number[node[inside]], number[wait[inside]], len(rows))
    members = order[rows]
    by_group = np.argsort(group[members[again]], kind="stable")
    order[rows] = members[again[by_group]]
    return order


def _sort_after_waits(node: Ints, wait: Ints, nodes: int) -> Ints:
    """Return the nodes 0, 1 ... that can run, each after those that it waits for, the lowest number first."""
    waits: list[list[int]] = [[] for _ in range(nodes)]
    for waiting, waited in zip(node.tolist(), wait.tolist(), strict=True):
        waits[waiting].append(waited)
    return np.array(sort_after_waits(waits, range(nodes)), np.int64)


# ---- Wakers of idle threads: what another thread, or a collective, was done with last before the thread went on


class Wakeups(NamedTuple):
    """The wakers of idle threads, an entry for each time that a thread was idle."""

    by: Ints
    """The number of the waker, a node or a collective; -1 where there is none."""
    moment: Ints
    """When the waker was done."""
    is_exchange: Mask
    """Whether the waker is a collective."""


class ThreadDependencies:
    """What threads and collectives were done with, to look up wakers by time.

    A profile does not say that one thread of a host waited for another, as the main thread does for autograd's in
    `backward()`. It is taken from their times: where a thread does nothing for longer than `IDLE_NS`, its *waker* is
    the event of another thread, or the collective, that ended last in that time. A thread that began its next event
    before the idle one went on is nobody's waker.
    """

    def __init__(self, first: Ints, began: Ints, ended: Ints, exchanges: Mapping[int, int]) -> None:
        """Take where the nodes of each thread begin, when nodes began and ended, and when collectives ended."""
        self._first, self._began, self._ended = first, began, ended
        in_order = sorted(exchanges.items(), key=lambda item: (item[1], -item[0]))
        self._exchanges = np.array(in_order, np.int64).reshape(-1, 2)
        """Numbers and ends, ascending by these."""

    def find_wakers(self, thread: Ints, idle: Ints, start: Ints) -> Wakeups:
        """Return the waker of each *thread*, which did nothing from *idle* to *start*."""
        by, latest, is_exchange = np.full(len(start), -1), idle.copy(), np.zeros(len(start), bool)
        for other, (low, high) in enumerate(pairwise(self._first.tolist())):
            ends = sorted_distinct(np.maximum.accumulate(self._ended[low:high]))  # those later than all before
            starts = self._began[low:high]
            index = np.searchsorted(ends, start, "right") - 1
            end = ends[np.maximum(index, 0)]
            following = np.searchsorted(starts, end)
            went_on = (following < high - low) & (starts[np.minimum(following, high - low - 1)] < start)
            # Nobody waits for a thread that went on before the idle one did.
            wakes = (index >= 0) & (thread != other) & (end > latest) & (end >= 0) & ~went_on
            by[wakes], latest[wakes] = low + np.maximum(following - 1, 0)[wakes], end[wakes]
        if len(self._exchanges):
            index = np.searchsorted(self._exchanges[:, 1], start, "right") - 1
            number, end = self._exchanges[np.maximum(index, 0)].T
            is_exchange = (index >= 0) & (end > latest)
            by[is_exchange], latest[is_exchange] = number[is_exchange], end[is_exchange]
        return Wakeups(by, latest, is_exchange)


# ---- Link what a host did to what it launched: every event of a Kineto trace becomes a node with what it waited for

TOLERANCE_NS = 1_000
"""How much later than the end of a call a kernel that it waited for may seem to end: two clocks."""
QUEUE = 1000
"""A launch that finds so many before it waits for one of them to start: a queue of CUDA has 1,024 places."""
OVERLAPPING = 4
"""Kernels of a stream may overlap, with programmatic launches: one waits for one of so many before it."""
TRIMMED_NS = 2_000
"""By so much a kernel is cut short where the next of its stream begins: it waits for it all the same."""
SYNCHRONIZES = re.compile(
    r"(cuda|hip|cu)(Device|Stream|Event|Ctx)Synchronize|(cuda|hip)Memcpy$|(cuda|hip)MemcpyWithStream$"
)
COPIES = re.compile(r"Memcpy|CopyHostToDevice|CopyDeviceToHost")
PAGEABLE = re.compile(r".*Pageable")
"""In the name of a copy whose call waits for it; other copies wait only if their call is synchronous."""
COPIES_AND_WAITS = re.compile(r"(cuda|hip|cu)Memcpy(WithStream|HtoD_v2|DtoH_v2|2D|3D|ToSymbol|FromSymbol)?$")
ALL_STREAMS = re.compile(r"(cuda|hip|cu)(Device|Ctx)Synchronize")
HOST, DEVICE, EXCHANGE = 0, 1, 2
"""Kinds of nodes: on the host, on the device, and collectives that no kernel runs."""
_NEVER = 2**62


@dataclass(frozen=True, slots=True, eq=False)
class LinkedEvents:
    """Nodes, one entry each: first those of the host, then the device's, then the collectives of the host."""

    kind: Ints
    entry: Ints
    """Where it is in `Kineto.host` or `Kineto.device`; of a collective without a kernel, its number."""
    start: Ints
    end: Ints
    delay: Ints
    parent: Ints
    """The node of the operator around a node of the host; the operator that launched a kernel; -1 if none."""
    node: Ints
    """Of each dependency, ascending: the node that waited ..."""
    wait: Ints
    """... and the one that it waited for."""
    lag: int = 0
    """How much longer kernels waited for others that are no nodes: the device was behind the host by that."""


def link_events(
    trace: Kineto,
    communications: Sequence[Communication],
    window: tuple[int, int] | None = None,
    nesting: Nesting | None = None,
) -> LinkedEvents:
    """Return the nodes of *trace*, those that the host began within *window* only."""
    nesting = add_remainders(trace, window, nesting or nesting_of(trace.host))
    return _Linker(trace, communications, window, nesting).link_all()


class _Linker(NumberedNodes):
    """A trace that is being linked."""

    # ------------------------------------------------------------------------------------------ nodes

    def link_all(self) -> LinkedEvents:
        """Return all nodes."""
        device, count = self.trace.device, len(self.entry) + len(self.kernels)
        self.node_of_exchange = {exchange: count + index for index, exchange in enumerate(self.exchanges)}
        start, end = self._cut_threads()
        moments = self._place_exchanges()
        self.start = np.concatenate([start, device.start[self.kernels], moments[:, 0]])
        self.end = np.concatenate([end, self._trim_kernels(), moments[:, 1]])
        for node, done in self.woke:
            self.end[node] = max(self.start[node], min(self.end[node], done))
        call = self.launch_of[self.kernels]
        launched = np.where(call >= 0, self.parent[call], -1) if len(self.entry) else np.full(len(call), -1)
        self.parent = np.concatenate([self.parent, launched, np.full(len(moments), -1)])
        self._link_device()
        self._link_exchanges()
        entry = np.concatenate([self.entry, self.kernels, np.array(self.exchanges, np.int64)])
        kind = np.repeat([HOST, DEVICE, EXCHANGE], [len(self.entry), len(self.kernels), len(moments)])
        return self._valid_nodes(kind, entry)

    def _place_exchanges(self) -> Ints:
        """Return when collectives without a kernel began and ended; note what those of a single process wait for.

        Gloo shows them at work. Those of one process take no time, and would begin when all that their stream had been
        given was done, and the collective before them.
        """
        device = self.trace.device
        streams, launches = self._stream_kernels, self._launches
        moments, before, done = [], -1, 0
        for exchange in self.exchanges:
            communication, node = self.communications[exchange], self.node_of_exchange[exchange]
            start, end = communication.start, max(communication.end, communication.start)
            if not communication.annotations:
                kernel = launches.last_before(
                    self.thread_of.get(int(self.trace.host.thread[communication.operator]), -1), communication.issued
                )
                kernels = streams.before(communication.issued, int(device.stream[kernel])) if kernel is not None else []
                start = end = max([start, done, *(int(device.end[ended_kernel]) for ended_kernel in kernels)])
                for each_kernel in kernels:
                    self._add_dependency(node, int(self.node_of_device[each_kernel]))
                done = end
            if before >= 0:  # one after the other, as on a stream of their own, unless they overlapped
                self._add_dependency(node, before)
            before = node
            moments.append((start, end))
        return np.array(moments, np.int64).reshape(-1, 2)

    @cached_property
    def _launches(self) -> Launches:
        """Which kernels each thread launched, and when."""
        return Launches(self.thread, self.began, self.launch_of, self.trace.device.stream)

    def _valid_nodes(self, kind: Ints, entry: Ints) -> LinkedEvents:
        """Return all nodes, without dependencies on nodes that ended after the dependent one began."""
        start, end, parent, count = self.start, self.end, self.parent, max(len(self.start), 1)
        parent[(parent >= 0) & (end[parent] > start)] = -1
        self.pairs.append((np.array(self.waiting, np.int64), np.array(self.waited, np.int64)))
        node, wait = (np.concatenate(column) for column in zip(*self.pairs, strict=True))
        possible = (end[wait] <= start[node]) & (node != wait)
        node, wait = np.divmod(sorted_distinct(node[possible] * count + wait[possible]), count)
        child = np.flatnonzero(parent >= 0)
        acyclic = without_cycles(np.append(node, child), np.append(wait, parent[child]), start, end)
        parent[child[~acyclic[len(node) :]]] = -1
        node, wait = node[acyclic[: len(node)]], wait[acyclic[: len(node)]]
        before = np.where(parent >= 0, end[parent], 0)
        np.maximum.at(before, node, end[wait])
        behind = self._waited_until()
        late = np.maximum(behind - before, 0)
        return LinkedEvents(
            kind, entry, start, end, start - before - late, parent, node, wait, int(late.max(initial=0))
        )

    def _waited_until(self) -> Ints:
        """Return until when launches, and the first kernel of each stream, waited for kernels of earlier steps; else 0.

        The device may be a step behind the host. A step takes what it launched takes, not what it waited for.
        """
        device = self.trace.device
        latest = np.zeros(len(self.start), np.int64)
        latest[: len(self.entry)] = self.behind
        earlier = np.ones(len(device.start), bool)
        earlier[self.kernels] = False
        if not earlier.any():
            return latest
        streams, first = np.unique(device.stream[self.kernels], return_index=True)
        for stream, index in zip(streams.tolist(), first.tolist(), strict=True):
            kernel = self.kernels[index]
            ends = device.end[earlier & (device.stream == stream) & (device.end <= device.start[kernel])]
            latest[len(self.entry) + index] = int(ends.max(initial=0))
        return latest

    # ------------------------------------------------------------------------------------------ threads

    def _cut_threads(self) -> tuple[Ints, Ints]:
        """Return when the nodes of threads begin and end; note what they wait for."""
        device, count = self.trace.device, len(self.entry)
        node = np.arange(count)
        is_first = np.zeros(count, bool)
        is_first[self.first[:-1]] = True
        self.pairs.append((node[~is_first], node[~is_first] - 1))
        follows = np.zeros(count, np.int64)
        follows[:-1] = self.began[1:]
        ends = [min(int(self.ended[first:last].max()), self.stop) for first, last in self._spans()]
        follows[self.first[1:] - 1] = ends
        busy_until = self._busy_until()
        woken = self._link_wakers(np.flatnonzero(self.began - busy_until > IDLE_NS), busy_until, is_first)
        latest, wait_end = np.full(count, _NEVER), np.zeros(count, np.int64)
        kernels = np.flatnonzero(self.launch_of >= 0)
        np.minimum.at(latest, self.launch_of[kernels], np.minimum(device.start, self._call_ends())[kernels])
        self._link_blocking(kernels, wait_end, woken)
        self._link_synchronized(wait_end)
        self._link_queued(wait_end)
        for exchange in self.exchanges:
            issuer = self._find_issuer(exchange, follows)
            if issuer is not None:  # it begins while its operator goes on
                latest[issuer] = min(int(latest[issuer]), self.communications[exchange].start)
                self._add_dependency(self.node_of_exchange[exchange], issuer)
        return ThreadIntervals(self.thread, self.began, follows, latest, wait_end, woken, busy_until).cut()

    def _spans(self) -> list[tuple[int, int]]:
        return list(zip(self.first[:-1].tolist(), self.first[1:].tolist(), strict=True))

    def _add_dependency(self, node: int, waits: int) -> None:
        self.waiting.append(node)
        self.waited.append(waits)

    def _call_ends(self) -> Ints:
        """Return when the calls ended that launched what the device ran."""
        return np.where(self.launch_of >= 0, self.ended[self.launch_of], _NEVER) if len(self.entry) else self.launch_of

    def _busy_until(self) -> Ints:
        """Return until when each thread was busy before each of its nodes."""
        is_annotation = self.trace.host.category[self.entry] == ANNOTATION
        busy = np.where(is_annotation, self.began, self.ended)
        busy_until = np.zeros(len(busy), np.int64)
        for first, last in self._spans():
            busy_until[first + 1 : last] = np.maximum.accumulate(busy[first : last - 1])
        return busy_until

    def _link_wakers(self, idle: Ints, busy_until: Ints, is_first: Mask) -> Mask:
        """Return which of the *idle* nodes have a waker (see `ThreadDependencies`), and let each wait for its own.

        *idle* are the nodes before which their thread did nothing for long, *busy_until* says since when.
        """
        is_woken = np.zeros(len(busy_until), bool)
        self.woke: list[tuple[int, int]] = []
        """Nodes that another thread waited for, and when they were done."""
        if len(self.first) <= 2 and not self.exchanges:
            return is_woken
        ended = {
            exchange: communication.end
            for exchange in self.exchanges
            if (communication := self.communications[exchange]).annotations
        }
        since = np.where(is_first[idle], -1, busy_until[idle])
        wakeups = ThreadDependencies(self.first, self.began, self._ends_to_wait_for(), ended).find_wakers(
            self.thread[idle], since, self.began[idle]
        )
        for node, by, moment, is_exchange in zip(idle.tolist(), *(column.tolist() for column in wakeups), strict=True):
            if by >= 0:
                waker = self.node_of_exchange[by] if is_exchange else by
                is_woken[node] = True
                self._add_dependency(node, waker)
                self.woke.append((waker, moment))
        return is_woken

    def _ends_to_wait_for(self) -> Ints:
        """Return when nodes ended, -1 for annotations, which nobody waits for."""
        return np.where(self.trace.host.category[self.entry] == ANNOTATION, -1, self.ended)

    def _link_blocking(self, kernels: Ints, wait_end: Ints, woken: Mask) -> None:
        """Let what follows a call that waited for its copy wait for the copy."""
        device = self.trace.device
        blocks = match_names(COPIES, self.trace, device.name) & (device.end <= self._call_ends())
        waits = match_names(COPIES_AND_WAITS, self.trace, self.trace.host.name[self.entry])
        blocks &= match_names(PAGEABLE, self.trace, device.name) | np.append(waits, False)[self.launch_of]
        copies = kernels[blocks[kernels]]
        calls, first = np.unique(self.launch_of[copies], return_index=True)
        after, copies = calls + 1, copies[first]
        resumes = np.append(self.thread, -1)[after] == self.thread[calls]
        resumes &= ~np.append(woken, False)[after]
        self.pairs.append((after[resumes], self.node_of_device[copies[resumes]]))
        wait_end[after[resumes]] = device.end[copies[resumes]]

    def _link_synchronized(self, wait_end: Ints) -> None:
        """Let calls that synchronize wait for what they waited for, or would have, had it not been done already."""
        device = self.trace.device
        calls = np.flatnonzero(self.is_call & match_names(SYNCHRONIZES, self.trace, self.trace.host.name[self.entry]))
        if not len(calls):
            return
        waits_for_all = match_names(ALL_STREAMS, self.trace, self.trace.host.name[self.entry])
        streams, launches = self._stream_kernels, self._launches
        for call in calls.tolist():
            began, until = int(self.began[call]), int(self.ended[call]) + TOLERANCE_NS
            kernels = streams.before(began, until=until)
            if not waits_for_all[call]:
                kernels = self._kernels_of_stream(call, kernels, launches)
            for kernel in kernels:
                self._add_dependency(call, int(self.node_of_device[kernel]))
                wait_end[call] = max(int(wait_end[call]), min(int(device.end[kernel]), until))

    def _link_queued(self, wait_end: Ints) -> None:
        """Let launches that found the queue of the device full wait for the kernel that left it as they went on."""
        host, device = self.trace.host, self.trace.device
        self.behind = np.zeros(len(self.entry), np.int64)
        """Of such launches, until when they waited for a kernel that is no node."""
        launched = is_in(host.correlation, sorted_distinct(device.correlation))
        launches = np.flatnonzero((host.category == CALL) & launched)
        if len(launches) < QUEUE:
            return
        began, started = np.sort(host.start[launches]), np.sort(device.start)
        calls = self.node_of_host[launches]
        calls = calls[calls >= 0]
        waiting = np.searchsorted(began, self.began[calls]) - np.searchsorted(started, self.began[calls])
        calls = calls[(waiting >= QUEUE) & (self.ended[calls] - self.began[calls] > IDLE_NS)]
        by_end = np.argsort(device.end, kind="stable")
        index = np.searchsorted(device.end[by_end], self.ended[calls], "right") - 1
        running = by_end[np.maximum(index, 0)]
        waits = (index >= 0) & (device.end[running] > self.began[calls])
        calls, running = calls[waits], running[waits]
        wait_end[calls] = np.maximum(wait_end[calls], device.end[running])
        node = self.node_of_device[running]
        self.pairs.append((calls[node >= 0], node[node >= 0]))
        self.behind[calls[node < 0]] = device.end[running[node < 0]]

    def _kernels_of_stream(self, call: int, kernels: list[int], launches: Launches) -> list[int]:
        """Return which of the last kernels of streams a call waited for: as stated, else that of its thread's stream.

        Unless another explains why it took so long.
        """
        device = self.trace.device
        synced = self.trace.syncs.get(int(self.trace.host.correlation[self.entry[call]]))
        if synced is not None:
            return [kernel for kernel in kernels if synced in (-1, int(device.stream[kernel]))]
        began = int(self.began[call])
        own = launches.last_before(int(self.thread[call]), began)
        usual = [kernel for kernel in kernels if own is not None and device.stream[kernel] == device.stream[own]]
        latest = max(kernels, key=lambda kernel: int(device.end[kernel]), default=None)
        blocked = latest is not None and device.end[latest] > began
        if usual and (not blocked or device.end[usual[0]] > began):
            return usual
        return [latest] if latest is not None and blocked else usual

    def _find_issuer(self, exchange: int, follows: Ints) -> int | None:
        """Return the node at work when a collective without a kernel began, on the thread that issued it."""
        communication = self.communications[exchange]
        thread = self.thread_of.get(int(self.trace.host.thread[communication.operator]))
        if thread is None:
            return None
        first, last = int(self.first[thread]), int(self.first[thread + 1])
        index = first + int(np.searchsorted(follows[first : last - 1], communication.start, "right"))
        return index if index < last - 1 or communication.start <= follows[last - 1] else None

    # ------------------------------------------------------------------------------------------ streams

    def _link_device(self) -> None:
        device = self.trace.device
        node = np.arange(len(self.entry), len(self.entry) + len(self.kernels))
        call = self.launch_of[self.kernels]
        # A kernel waits for the call that launched it, and for the last kernel of its stream that had ended
        # when it began: kernels of one stream may overlap, so that this is not always the one before.
        self.pairs.append((node[call >= 0], call[call >= 0]))
        stream = device.stream[self.kernels]
        order = np.argsort(stream, kind="stable")
        before = np.full(len(order), -1)
        ends = self.end[node]
        for distance in range(OVERLAPPING, 0, -1):
            late, early = order[distance:], order[:-distance]
            done = ends[early] <= device.start[self.kernels[late]]
            same = done & (stream[late] == stream[early])
            before[late[same]] = early[same]
        self.pairs.append((node[before >= 0], node[before[before >= 0]]))
        self._link_graphs(node, call, stream)
        self._link_to_host(node[(call < 0) & (before < 0)])
        if self.exchanges or len(sorted_distinct(stream)) > 1:
            self._link_events()

    def _trim_kernels(self) -> Ints:
        """Return when kernels end, cut short where the next of the stream begins a moment before that."""
        device = self.trace.device
        ends, stream = device.end[self.kernels].copy(), device.stream[self.kernels]
        order = np.argsort(stream, kind="stable")
        early, late = order[:-1], order[1:]
        begins = device.start[self.kernels[late]]
        overlap = ends[early] - begins
        cut = (stream[early] == stream[late]) & (overlap > 0) & (overlap <= TRIMMED_NS)
        cut &= begins > device.start[self.kernels[early]]
        ends[early[cut]] = begins[cut]
        return ends

    def _link_graphs(self, node: Ints, call: Ints, stream: Ints) -> None:
        """Let kernels of a CUDA graph on several streams wait for what its other streams were done with last."""
        device = self.trace.device
        by_call = np.argsort(call, kind="stable")
        bounds = np.flatnonzero(np.diff(call[by_call], prepend=-1, append=-2))
        several = np.flatnonzero(np.diff(bounds) > 1)
        for start, stop in zip(bounds[several].tolist(), bounds[several + 1].tolist(), strict=True):
            rows = by_call[start:stop]
            if len(sorted_distinct(stream[rows])) < 2:
                continue
            running: dict[int, list[tuple[int, int]]] = {}
            """By stream, of the first ones of a graph: ends and rows of what had not ended, the first to end first."""
            done: dict[int, int] = {}
            for row in rows.tolist():  # in the order in which they started
                kernel, own = int(self.kernels[row]), int(stream[row])
                for other, queue in running.items():
                    while queue and queue[0][0] <= device.start[kernel]:
                        done[other] = max(done.get(other, -1), heappop(queue)[1])
                    if other != own and other in done:
                        self._add_dependency(int(node[row]), int(node[done[other]]))
                if own in running or len(running) < MOST_STREAMS:
                    heappush(running.setdefault(own, []), (int(device.end[kernel]), row))

    def _link_to_host(self, lost: Ints) -> None:
        """Let kernels without a known launch wait for what the host did last before they started."""
        if len(self.entry) and len(lost):
            ends = self.end[: len(self.entry)]
            by_end = np.argsort(ends, kind="stable")
            index = np.searchsorted(ends[by_end], self.start[lost], "right") - 1
            self.pairs.append((lost[index >= 0], by_end[index[index >= 0]]))

    def _link_events(self) -> None:
        """Let the first kernel after a wait for an event wait for what other streams had been given by then."""
        host, device = self.trace.host, self.trace.device
        streams, launches = self._stream_kernels, self._launches
        issued = [self.communications[exchange].issued for exchange in self.exchanges]
        by_correlation = {
            int(host.correlation[event_record]): int(host.start[event_record])
            for event_record in self.event_records.tolist()
        }
        for wait in self.event_waits.tolist():
            correlation = int(host.correlation[wait])
            moment = int(host.start[wait])
            target, waited = self.trace.waits.get(correlation, (-1, -1))
            kernel = launches.first_after(moment, target)
            if kernel is None:
                continue
            node, until = int(self.node_of_device[kernel]), int(device.start[kernel])
            moment = by_correlation.get(self.trace.records.get(correlation, -1), moment)
            for before in streams.before(moment, waited, int(device.stream[kernel]), until):
                self._add_dependency(node, int(self.node_of_device[before]))
            count = bisect_left(issued, moment)
            if count:  # the last collective without a kernel that had been begun when the stream was to wait
                self._add_dependency(node, self.node_of_exchange[self.exchanges[count - 1]])

    @cached_property
    def _stream_kernels(self) -> StreamKernels:
        """What each stream had been given when; a kernel without a known launch was given as it started."""
        call = self.launch_of[self.kernels]
        moment = self.trace.device.start[self.kernels]
        if len(self.entry):
            moment = np.where(call >= 0, self.began[call], moment)
        return StreamKernels(self.kernels, moment, self.trace.device)

    def _link_exchanges(self) -> None:
        """Let collectives without a kernel wait for the operator that began them, and for what the device had to do."""
        if not self.exchanges:
            return
        streams = self._stream_kernels
        for exchange in self.exchanges:
            communication, node = self.communications[exchange], self.node_of_exchange[exchange]
            self.parent[node] = self.node_of_host[communication.operator]
            for before in streams.before(int(self.trace.host.start[communication.operator])):
                self._add_dependency(node, int(self.node_of_device[before]))
