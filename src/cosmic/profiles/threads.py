"""Threads of a host: which operator is around each event, and how events share a thread's time.

Both are loops in which each event needs the one before: in C, and the same in Python.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cosmic.native import library
from cosmic.profiles.kineto import CALL, Host

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Nesting:
    """The events of a host, thread by thread."""

    order: Ints
    """Entries in `Kineto.host`: thread by thread, in the order in which they began."""
    around: Ints
    """By entry: the entry of the operator or annotation around it; -1 if there is none."""


def nesting_of(host: Host) -> Nesting:
    """Return what is inside what; of two events that begin together, the longer one holds the other."""
    order = np.lexsort((host.category, -host.end, host.start, host.thread))
    place = _around(host.thread[order], host.start[order], host.end[order], host.category[order] != CALL)
    around = np.empty(len(order), np.int64)
    around[order] = np.where(place >= 0, order[place], -1) if len(order) else place
    return Nesting(order, around)


def _around(thread: Ints, start: Ints, end: Ints, holds: Mask) -> Ints:
    found = np.empty(len(thread), np.int64)
    native = library()
    if native is not None:
        columns = (thread, start, end, holds, found)
        native.cosmic_link_around(ctypes.c_int64(len(thread)), *map(_pointer, columns))
        return found
    top, before = -1, -1
    starts, ends, holding, around = start.tolist(), end.tolist(), holds.tolist(), [-1] * len(thread)
    for at, number in enumerate(thread.tolist()):
        if number != before:
            top, before = -1, number
        while top >= 0 and ends[top] <= starts[at]:
            top = around[top]
        around[at] = top
        if holding[at]:
            top = at
    found[:] = around
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Shares:
    """What decides when the nodes of threads begin and end: an entry for each node, thread by thread."""

    thread: Ints
    start: Ints
    """When the event began."""
    follows: Ints
    """When the next one of the thread began; for the last, when the thread was done."""
    latest: Ints
    """When it must have ended: what it launched began."""
    held: Ints
    """When what it waited for ended; 0 if it did not wait."""
    woken: Mask
    """Whether the thread was idle, and then woken up by another."""
    reach: Ints
    """Until when the thread had been busy before."""

    def cut(self) -> tuple[Ints, Ints]:
        """Return when each node begins and ends."""
        start, end = self.start.copy(), np.zeros(len(self.start), np.int64)
        woken = self.woken.astype(np.int64)
        native = library()
        if native is not None:
            columns = (self.thread, self.follows, self.latest, self.held, woken, self.reach, start, end)
            native.cosmic_link_cut(ctypes.c_int64(len(start)), *map(_pointer, columns))
            return start, end
        given = (self.thread, self.start, self.follows, self.latest, self.held, woken, self.reach)
        starts, ends = [0] * len(start), [0] * len(start)
        before = -1
        for at, (thread, began, follows, latest, held, is_woken, reach) in enumerate(
            zip(*(column.tolist() for column in given), strict=True)
        ):
            first, before = thread != before, thread
            begins = began if first else ends[at - 1]
            if is_woken and not first:
                ends[at - 1] = max(starts[at - 1], min(ends[at - 1], reach))
                begins = max(began, ends[at - 1])
            starts[at] = max(begins, held)
            ends[at] = max(starts[at], min(follows, latest))
        return np.array(starts, np.int64), np.array(ends, np.int64)


def _pointer(column: npt.NDArray[np.generic]) -> ctypes.c_void_p:
    return ctypes.c_void_p(column.ctypes.data)
