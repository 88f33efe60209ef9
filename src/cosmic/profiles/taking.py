"""What of a profile becomes nodes: entries of threads and of the device, in their order, and what launched what."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from cosmic.profiles.arrays import is_in, sorted_distinct
from cosmic.profiles.collectives import Communication
from cosmic.profiles.kineto import ANNOTATION, CALL, Host, Kineto
from cosmic.profiles.threads import Nesting

WAITS_FOR_EVENT = re.compile(r"(cuda|hip|cu)StreamWaitEvent")
IS_NO_NODE = re.compile(
    r"(cuda|hip|cu)(StreamWaitEvent|EventRecord|EventRecordWithFlags|EventDestroy|StreamCreate\w*)$"
)
IDLE_NS = 20_000
"""A thread that does nothing for longer may have waited for another."""
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def named(pattern: re.Pattern[str], trace: Kineto, name: Ints) -> Mask:
    """Return whether the names of entries match."""
    known = np.array([pattern.match(each) is not None for each in trace.names], bool)
    return known[name] if len(known) else np.zeros(len(name), bool)


def with_rests(trace: Kineto, window: tuple[int, int] | None, nesting: Nesting) -> Nesting:
    """Add to *trace* what threads did at their end, where no event of theirs has that time; return the nesting.

    A launch ends when its kernel starts, and a thread that waits for another (in `backward()`) goes on when that is
    done. A thread has at most one such entry: from then until its operators and annotations end.
    """
    host = trace.host
    begin, stop = window or (0, int(host.end.max(initial=0)) + 1)
    order = nesting.order[(host.start[nesting.order] >= begin) & (host.start[nesting.order] < stop)]
    bounds = np.flatnonzero(np.diff(host.thread[order], prepend=-1, append=-1)).tolist()
    parts = [order[first:last] for first, last in pairwise(bounds)]
    silent = (host.category == CALL) & named(IS_NO_NODE, trace, host.name)
    launches = (host.category == CALL) & is_in(host.correlation, sorted_distinct(trace.device.correlation))
    launches &= host.correlation >= 0
    ends = [host.end[each[host.category[each] != ANNOTATION]] for each in parts]
    latest = [int(each.max(initial=-1)) for each in ends]
    found: list[tuple[int, int, int, int]] = []
    """The last event, what it is in, and from when to when the rest takes."""
    for number, entries in enumerate(parts):
        nodes = entries[~silent[entries]]
        if not len(nodes):
            continue
        last, around = int(nodes[-1]), int(entries[np.argmax(host.end[entries])])
        done, end = int(host.end[last]), min(int(host.end[around]), stop)
        others = [_latest(ends[at], latest[at], end) for at in range(len(parts)) if at != number]
        woken = max([done, *others])
        waited = woken - done > IDLE_NS
        if (launches[last] or waited) and end > (woken if waited else done):
            found.append((last, around, woken if waited else done, end))
    if not found:
        return nesting
    return _with_entries(trace, nesting, np.array(found, np.int64))


def _latest(ends: Ints, latest: int, until: int) -> int:
    """Return the latest of *ends* that is not later than *until*; -1 if there is none."""
    return latest if latest <= until else int(ends[ends <= until].max(initial=-1))


def _with_entries(trace: Kineto, nesting: Nesting, found: Ints) -> Nesting:
    """Add entries to the host of *trace*, each after another of its thread."""
    host = trace.host
    last, around, starts, ends = found.T
    numbers = len(trace.names) + np.arange(len(found))
    trace.names += [f"rest of {trace.names[each]}" for each in host.name[around].tolist()]
    absent, count = np.full(len(found), -1), len(host.start)
    trace.host = Host(
        name=np.append(host.name, numbers),
        start=np.append(host.start, starts),
        end=np.append(host.end, ends),
        thread=np.append(host.thread, host.thread[last]),
        category=np.append(host.category, np.full(len(found), ANNOTATION)),
        function=np.append(host.function, absent),
        correlation=np.append(host.correlation, absent),
    )
    place = np.empty(count, np.int64)
    place[nesting.order] = np.arange(count)
    order = np.insert(nesting.order, place[last] + 1, count + np.arange(len(found)))
    return Nesting(order, np.append(nesting.around, around))


class Taken:
    """The nodes of a trace, numbered, of those that the host began within a window."""

    def __init__(
        self,
        trace: Kineto,
        communications: Sequence[Communication],
        window: tuple[int, int] | None,
        nesting: Nesting,
    ) -> None:
        self.trace, self.communications = trace, communications
        ends = (int(each.max(initial=0)) for each in (trace.host.end, trace.device.end))
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
            place
            for place, each in enumerate(communications)
            if each.kernel is None and self.begin <= each.start <= self.stop
        ]

    def _take_host(self, nesting: Nesting) -> None:
        """Number the nodes of the host: thread by thread, the one that began first first."""
        host = self.trace.host
        kept = (host.start >= self.begin) & (host.start < self.stop)
        skipped = [entry for each in self.communications for entry in each.annotations]
        kept[np.array(skipped, np.int64)] = False
        silent = kept & (host.category == CALL) & named(IS_NO_NODE, self.trace, host.name)
        waits = named(WAITS_FOR_EVENT, self.trace, host.name)
        self.event_waits, self.event_records = np.flatnonzero(silent & waits), np.flatnonzero(silent & ~waits)
        kept &= ~silent
        entry = nesting.order[kept[nesting.order]]
        thread = host.thread[entry]
        bounds = np.flatnonzero(np.diff(thread, prepend=-1, append=-1))
        heads = entry[bounds[:-1]]
        order = np.lexsort((heads, host.category[heads], -host.end[heads], host.start[heads]))
        spans = [(int(bounds[at]), int(bounds[at + 1])) for at in order.tolist()]
        self.entry = np.concatenate([np.zeros(0, np.int64), *(entry[first:last] for first, last in spans)])
        sizes = [last - first for first, last in spans]
        self.first = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)
        """Of each thread, its first node."""
        self.thread = np.repeat(np.arange(len(spans)), sizes)
        self.thread_of = {int(host.thread[self.entry[at]]): place for place, at in enumerate(self.first[:-1].tolist())}
        self.began, self.ended = host.start[self.entry], host.end[self.entry]
        self.is_call = host.category[self.entry] == CALL
        self.node_of_host = np.full(len(host.start), -1)
        self.node_of_host[self.entry] = np.arange(len(self.entry))
        self.parent = self._parents(nesting, kept)

    def _parents(self, nesting: Nesting, kept: Mask) -> Ints:
        """Return the node of the operator around each node of the host, of those that are nodes."""
        host = self.trace.host
        around = nesting.around[self.entry]
        left = np.arange(len(around))
        while True:
            at = around[left]
            wrong = (at >= 0) & ~(kept[at] & (host.end[at] > self.began[left]))
            left, at = left[wrong], at[wrong]
            if not len(left):
                return np.where(around >= 0, self.node_of_host[around], -1)
            around[left] = np.where(host.start[at] < self.begin, -1, nesting.around[at])

    def _take_device(self) -> None:
        """Number the nodes of the device, and find what launched them."""
        host, device = self.trace.host, self.trace.device
        self.launch_of = _found(host.correlation[self.entry], np.flatnonzero(self.is_call), device.correlation)
        inside = (device.start >= self.begin) & (device.start < self.stop)
        if not len(self.entry):
            inside[:] = True
        calls = sorted_distinct(host.correlation[(host.category == CALL) & (host.correlation >= 0)])
        outside = is_in(device.correlation, calls)
        kept = np.flatnonzero((self.launch_of >= 0) | (inside & ~outside))
        self.kernels = kept[np.lexsort((kept, device.end[kept], device.start[kept]))]
        self.node_of_device = np.full(len(device.start), -1)
        self.node_of_device[self.kernels] = len(self.entry) + np.arange(len(self.kernels))


def _found(correlation: Ints, calls: Ints, wanted: Ints) -> Ints:
    """Return for each *wanted* correlation the last of the *calls* with it, which are places in *correlation*; else -1.

    >>> _found(np.array([7, 8, 7]), np.array([0, 1, 2]), np.array([7, 9])).tolist()
    [2, -1]
    """
    calls = calls[correlation[calls] >= 0]
    calls = calls[np.argsort(correlation[calls], kind="stable")]
    if not len(calls):
        return np.full(len(wanted), -1)
    place = np.searchsorted(correlation[calls], wanted, "right") - 1
    same = (place >= 0) & (correlation[calls[place]] == wanted)
    return np.where(same, calls[place], -1)
