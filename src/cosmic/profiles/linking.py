"""Link what a host did to what it launched: every event of a Kineto trace becomes a node with what it waited for.

Host. The operators, annotations and calls of a thread follow each other in the order in which they began. Each takes
the thread from where the one before left off until the next begins, so that no time of a thread is lost. Three nodes
end earlier or begin later. A launch ends when its kernel starts, if that is before the call returns; the next node
takes what is left. A call that waits for the device (cudaStreamSynchronize, a copy to pageable memory) begins when
the last kernel that it waited for has ended. And where a thread was idle until another thread, or a collective on the
host, was done, the next node waits for that. What a thread does after its last launch or wait is a node of its own.

Device. A kernel waits for its launch, for the kernel before it in its stream, and, where the host made its stream wait
for an event, for what other streams had been given by then, as far as that had ended. A collective of a single process
runs no kernel; it waits for what its stream had been given, and for the collective before it, as one of several would.

A node's delay is what passed between the end of the last node that it waited for and its start: the latency of a
launch, the gap between two kernels. So the recorded timeline follows from durations, delays and dependencies alone.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt

from cosmic.profiles.arrays import is_in, sorted_distinct
from cosmic.profiles.collectives import Communication
from cosmic.profiles.given import MOST_STREAMS, Given, Launches
from cosmic.profiles.kineto import ANNOTATION, CALL, Kineto
from cosmic.profiles.taking import IDLE_NS, Taken, named, with_rests
from cosmic.profiles.threads import Nesting, Shares, nesting_of
from cosmic.profiles.ties import without_cycles
from cosmic.profiles.wakers import Wakers

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
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Linked:
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


def link(
    trace: Kineto,
    communications: Sequence[Communication],
    window: tuple[int, int] | None = None,
    nesting: Nesting | None = None,
) -> Linked:
    """Return the nodes of *trace*, those that the host began within *window* only."""
    nesting = with_rests(trace, window, nesting or nesting_of(trace.host))
    return _Linker(trace, communications, window, nesting).linked()


class _Linker(Taken):
    """A trace that is being linked."""

    # ------------------------------------------------------------------------------------------ nodes

    def linked(self) -> Linked:
        """Return all nodes."""
        device, count = self.trace.device, len(self.entry) + len(self.kernels)
        self.node_of_exchange = {place: count + at for at, place in enumerate(self.exchanges)}
        start, end = self._cut()
        moments = self._exchanged()
        self.start = np.concatenate([start, device.start[self.kernels], moments[:, 0]])
        self.end = np.concatenate([end, self._trimmed(), moments[:, 1]])
        for node, done in self.woke:
            self.end[node] = max(self.start[node], min(self.end[node], done))
        call = self.launch_of[self.kernels]
        launched = np.where(call >= 0, self.parent[call], -1) if len(self.entry) else np.full(len(call), -1)
        self.parent = np.concatenate([self.parent, launched, np.full(len(moments), -1)])
        self._link_device()
        self._link_exchanges()
        entry = np.concatenate([self.entry, self.kernels, np.array(self.exchanges, np.int64)])
        kind = np.repeat([HOST, DEVICE, EXCHANGE], [len(self.entry), len(self.kernels), len(moments)])
        return self._finished(kind, entry)

    def _exchanged(self) -> Ints:
        """Return when collectives without a kernel began and ended; note what those of a single process wait for.

        Gloo shows them at work. Those of one process take no time, and would begin when all that their stream had been
        given was done, and the collective before them.
        """
        device = self.trace.device
        given, launches = self._given, self._launches
        moments, before, done = [], -1, 0
        for place in self.exchanges:
            each, node = self.communications[place], self.node_of_exchange[place]
            start, end = each.start, max(each.end, each.start)
            if not each.annotations:
                kernel = launches.last_before(
                    self.thread_of.get(int(self.trace.host.thread[each.operator]), -1), each.issued
                )
                kernels = given.before(each.issued, int(device.stream[kernel])) if kernel is not None else []
                start = end = max([start, done, *(int(device.end[each]) for each in kernels)])
                for each_kernel in kernels:
                    self._wait(node, int(self.node_of_device[each_kernel]))
                done = end
            if before >= 0:  # one after the other, as on a stream of their own, unless they overlapped
                self._wait(node, before)
            before = node
            moments.append((start, end))
        return np.array(moments, np.int64).reshape(-1, 2)

    @cached_property
    def _launches(self) -> Launches:
        return Launches(self.thread, self.began, self.launch_of, self.trace.device.stream)

    def _finished(self, kind: Ints, entry: Ints) -> Linked:
        """Return the nodes with dependencies that hold: nobody waited for what ended later."""
        start, end, parent, count = self.start, self.end, self.parent, max(len(self.start), 1)
        parent[(parent >= 0) & (end[parent] > start)] = -1
        self.pairs.append((np.array(self.waiting, np.int64), np.array(self.waited, np.int64)))
        node, wait = (np.concatenate(each) for each in zip(*self.pairs, strict=True))
        held = (end[wait] <= start[node]) & (node != wait)
        node, wait = np.divmod(sorted_distinct(node[held] * count + wait[held]), count)
        child = np.flatnonzero(parent >= 0)
        kept = without_cycles(np.append(node, child), np.append(wait, parent[child]), start, end)
        parent[child[~kept[len(node) :]]] = -1
        node, wait = node[kept[: len(node)]], wait[kept[: len(node)]]
        before = np.where(parent >= 0, end[parent], 0)
        np.maximum.at(before, node, end[wait])
        behind = self._behind()
        late = np.maximum(behind - before, 0)
        return Linked(kind, entry, start, end, start - before - late, parent, node, wait, int(late.max(initial=0)))

    def _behind(self) -> Ints:
        """Return until when launches, and the first kernel of each stream, waited for kernels of earlier steps; else 0.

        The device may be a step behind the host. A step takes what it launched takes, not what it waited for.
        """
        device = self.trace.device
        found = np.zeros(len(self.start), np.int64)
        found[: len(self.entry)] = self.behind
        earlier = np.ones(len(device.start), bool)
        earlier[self.kernels] = False
        if not earlier.any():
            return found
        streams, first = np.unique(device.stream[self.kernels], return_index=True)
        for stream, at in zip(streams.tolist(), first.tolist(), strict=True):
            kernel = self.kernels[at]
            ends = device.end[earlier & (device.stream == stream) & (device.end <= device.start[kernel])]
            found[len(self.entry) + at] = int(ends.max(initial=0))
        return found

    # ------------------------------------------------------------------------------------------ threads

    def _cut(self) -> tuple[Ints, Ints]:
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
        reach = self._reach()
        woken = self._woken(np.flatnonzero(self.began - reach > IDLE_NS), reach, is_first)
        latest, held = np.full(count, _NEVER), np.zeros(count, np.int64)
        kernels = np.flatnonzero(self.launch_of >= 0)
        np.minimum.at(latest, self.launch_of[kernels], np.minimum(device.start, self._call_ends())[kernels])
        self._link_blocking(kernels, held, woken)
        self._link_synchronized(held)
        self._link_queued(held)
        for place in self.exchanges:
            issuer = self._issuer(place, follows)
            if issuer is not None:  # it begins while its operator goes on
                latest[issuer] = min(int(latest[issuer]), self.communications[place].start)
                self._wait(self.node_of_exchange[place], issuer)
        return Shares(self.thread, self.began, follows, latest, held, woken, reach).cut()

    def _spans(self) -> list[tuple[int, int]]:
        return list(zip(self.first[:-1].tolist(), self.first[1:].tolist(), strict=True))

    def _wait(self, node: int, waits: int) -> None:
        self.waiting.append(node)
        self.waited.append(waits)

    def _call_ends(self) -> Ints:
        """Return when the calls ended that launched what the device ran."""
        return np.where(self.launch_of >= 0, self.ended[self.launch_of], _NEVER) if len(self.entry) else self.launch_of

    def _reach(self) -> Ints:
        """Return until when each thread was busy before each of its nodes."""
        is_annotation = self.trace.host.category[self.entry] == ANNOTATION
        busy = np.where(is_annotation, self.began, self.ended)
        found = np.zeros(len(busy), np.int64)
        for first, last in self._spans():
            found[first + 1 : last] = np.maximum.accumulate(busy[first : last - 1])
        return found

    def _woken(self, idle: Ints, reach: Ints, is_first: Mask) -> Mask:
        """Return which nodes were woken up by another thread or by a collective; note what they wait for."""
        found = np.zeros(len(reach), bool)
        self.woke: list[tuple[int, int]] = []
        """Nodes that another thread waited for, and when they were done."""
        if len(self.first) <= 2 and not self.exchanges:
            return found
        ended = {place: each.end for place in self.exchanges if (each := self.communications[place]).annotations}
        since = np.where(is_first[idle], -1, reach[idle])
        woken = Wakers(self.first, self.began, self._ended_late(), ended).woken_by(
            self.thread[idle], since, self.began[idle]
        )
        for node, by, moment, is_exchange in zip(idle.tolist(), *(each.tolist() for each in woken), strict=True):
            if by >= 0:
                waker = self.node_of_exchange[by] if is_exchange else by
                found[node] = True
                self._wait(node, waker)
                self.woke.append((waker, moment))
        return found

    def _ended_late(self) -> Ints:
        """Return when nodes ended, -1 for annotations, which nobody waits for."""
        return np.where(self.trace.host.category[self.entry] == ANNOTATION, -1, self.ended)

    def _link_blocking(self, kernels: Ints, held: Ints, woken: Mask) -> None:
        """Let what follows a call that waited for its copy wait for the copy."""
        device = self.trace.device
        blocks = named(COPIES, self.trace, device.name) & (device.end <= self._call_ends())
        waits = named(COPIES_AND_WAITS, self.trace, self.trace.host.name[self.entry])
        blocks &= named(PAGEABLE, self.trace, device.name) | np.append(waits, False)[self.launch_of]
        copies = kernels[blocks[kernels]]
        calls, first = np.unique(self.launch_of[copies], return_index=True)
        after, copies = calls + 1, copies[first]
        resumes = np.append(self.thread, -1)[after] == self.thread[calls]
        resumes &= ~np.append(woken, False)[after]
        self.pairs.append((after[resumes], self.node_of_device[copies[resumes]]))
        held[after[resumes]] = device.end[copies[resumes]]

    def _link_synchronized(self, held: Ints) -> None:
        """Let calls that synchronize wait for what they waited for, or would have, had it not been done already."""
        device = self.trace.device
        calls = np.flatnonzero(self.is_call & named(SYNCHRONIZES, self.trace, self.trace.host.name[self.entry]))
        if not len(calls):
            return
        whole = named(ALL_STREAMS, self.trace, self.trace.host.name[self.entry])
        given, launches = self._given, self._launches
        for call in calls.tolist():
            began, until = int(self.began[call]), int(self.ended[call]) + TOLERANCE_NS
            found = given.before(began, until=until)
            if not whole[call]:
                found = self._of_one_stream(call, found, launches)
            for kernel in found:
                self._wait(call, int(self.node_of_device[kernel]))
                held[call] = max(int(held[call]), min(int(device.end[kernel]), until))

    def _link_queued(self, held: Ints) -> None:
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
        place = np.searchsorted(device.end[by_end], self.ended[calls], "right") - 1
        left = by_end[np.maximum(place, 0)]
        found = (place >= 0) & (device.end[left] > self.began[calls])
        calls, left = calls[found], left[found]
        held[calls] = np.maximum(held[calls], device.end[left])
        node = self.node_of_device[left]
        self.pairs.append((calls[node >= 0], node[node >= 0]))
        self.behind[calls[node < 0]] = device.end[left[node < 0]]

    def _of_one_stream(self, call: int, kernels: list[int], launches: Launches) -> list[int]:
        """Return which of the last kernels of streams a call waited for: as stated, else that of its thread's stream.

        Unless another explains why it took so long.
        """
        device = self.trace.device
        stated = self.trace.syncs.get(int(self.trace.host.correlation[self.entry[call]]))
        if stated is not None:
            return [kernel for kernel in kernels if stated in (-1, int(device.stream[kernel]))]
        began = int(self.began[call])
        own = launches.last_before(int(self.thread[call]), began)
        usual = [kernel for kernel in kernels if own is not None and device.stream[kernel] == device.stream[own]]
        latest = max(kernels, key=lambda kernel: int(device.end[kernel]), default=None)
        blocked = latest is not None and device.end[latest] > began
        if usual and (not blocked or device.end[usual[0]] > began):
            return usual
        return [latest] if latest is not None and blocked else usual

    def _issuer(self, place: int, follows: Ints) -> int | None:
        """Return the node at work when a collective without a kernel began, on the thread that issued it."""
        each = self.communications[place]
        thread = self.thread_of.get(int(self.trace.host.thread[each.operator]))
        if thread is None:
            return None
        first, last = int(self.first[thread]), int(self.first[thread + 1])
        at = first + int(np.searchsorted(follows[first : last - 1], each.start, "right"))
        return at if at < last - 1 or each.start <= follows[last - 1] else None

    # ------------------------------------------------------------------------------------------ streams

    def _link_device(self) -> None:
        device = self.trace.device
        node = np.arange(len(self.entry), len(self.entry) + len(self.kernels))
        call = self.launch_of[self.kernels]
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

    def _trimmed(self) -> Ints:
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
        for at, stop in zip(bounds[several].tolist(), bounds[several + 1].tolist(), strict=True):
            rows = by_call[at:stop]
            if len(sorted_distinct(stream[rows])) < 2:
                continue
            running: dict[int, list[tuple[int, int]]] = {}
            """By stream, of the first ones of a graph: ends and rows of what had not ended, the first to end first."""
            done: dict[int, int] = {}
            for row in rows.tolist():  # in the order in which they started
                kernel, own = int(self.kernels[row]), int(stream[row])
                for other, left in running.items():
                    while left and left[0][0] <= device.start[kernel]:
                        done[other] = max(done.get(other, -1), heappop(left)[1])
                    if other != own and other in done:
                        self._wait(int(node[row]), int(node[done[other]]))
                if own in running or len(running) < MOST_STREAMS:
                    heappush(running.setdefault(own, []), (int(device.end[kernel]), row))

    def _link_to_host(self, lost: Ints) -> None:
        """Let kernels without a known launch wait for what the host did last before they started."""
        if len(self.entry) and len(lost):
            ends = self.end[: len(self.entry)]
            by_end = np.argsort(ends, kind="stable")
            place = np.searchsorted(ends[by_end], self.start[lost], "right") - 1
            self.pairs.append((lost[place >= 0], by_end[place[place >= 0]]))

    def _link_events(self) -> None:
        """Let the first kernel after a wait for an event wait for what other streams had been given by then."""
        host, device = self.trace.host, self.trace.device
        given, launches = self._given, self._launches
        issued = [self.communications[place].issued for place in self.exchanges]
        by_correlation = {int(host.correlation[each]): int(host.start[each]) for each in self.event_records.tolist()}
        for wait in self.event_waits.tolist():
            correlation = int(host.correlation[wait])
            moment = int(host.start[wait])
            target, waited = self.trace.waits.get(correlation, (-1, -1))
            kernel = launches.first_after(moment, target)
            if kernel is None:
                continue
            node, until = int(self.node_of_device[kernel]), int(device.start[kernel])
            moment = by_correlation.get(self.trace.records.get(correlation, -1), moment)
            for before in given.before(moment, waited, int(device.stream[kernel]), until):
                self._wait(node, int(self.node_of_device[before]))
            begun = bisect_left(issued, moment)
            if begun:  # the last collective without a kernel that had been begun when the stream was to wait
                self._wait(node, self.node_of_exchange[self.exchanges[begun - 1]])

    @cached_property
    def _given(self) -> Given:
        call = self.launch_of[self.kernels]
        moment = self.trace.device.start[self.kernels]
        if len(self.entry):
            moment = np.where(call >= 0, self.began[call], moment)
        return Given(self.kernels, moment, self.trace.device)

    def _link_exchanges(self) -> None:
        """Let collectives without a kernel wait for the operator that began them, and for what the device had to do."""
        if not self.exchanges:
            return
        given = self._given
        for place in self.exchanges:
            each, node = self.communications[place], self.node_of_exchange[place]
            self.parent[node] = self.node_of_host[each.operator]
            for before in given.before(int(self.trace.host.start[each.operator])):
                self._wait(node, int(self.node_of_device[before]))
