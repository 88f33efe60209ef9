"""What streams had been given when the host made one of them wait for an event."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from cosmic.profiles.kineto import Device

Ints = npt.NDArray[np.int64]
ANY = -1
"""Stands for all threads, or all streams."""
BLOCK = 512
"""Of so many moments, the earliest is known."""
MOST_STREAMS = 64
"""Where a profile does not say which stream was waited for, all are, up to so many."""


class Given:
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
        self._ended: dict[int, Ended] = {}

    def before(self, moment: int, waited: int = -1, but: int = -1, until: int | None = None) -> list[int]:
        """Return the last kernel that each stream had been given; of *waited* alone, if it is stated, and not of *but*.

        With *until*, the last of them that had ended by then.
        """
        found = []
        for stream in self._all if waited < 0 else [waited]:
            moments, entries = self._streams.get(stream, ([], []))
            at = bisect_left(moments, moment) - 1
            if until is not None and at >= 0 and self._ends[entries[at]] > until:
                at = self._of(stream).last(at, until)
            if stream != but and at >= 0:
                found.append(entries[at])
        return found

    def _of(self, stream: int) -> Ended:
        """Return when the kernels of a stream ended."""
        if stream not in self._ended:
            self._ended[stream] = Ended(self._ends[self._streams[stream][1]])
        return self._ended[stream]


class Ended:
    """Moments to look up: which of the first ones is the last that is early enough, without a look at each."""

    def __init__(self, ends: Ints) -> None:
        self._ends = ends
        self._earliest = np.minimum.reduceat(ends, np.arange(0, len(ends), BLOCK)) if len(ends) else ends
        """Of each block."""

    def last(self, at: int, until: int) -> int:
        """Return the last place up to *at* that is not later than *until*; -1 if none is.

        >>> Ended(np.array([5, 9, 7])).last(2, 6), Ended(np.array([5])).last(0, 4)
        (0, -1)
        """
        block = at // BLOCK
        found = np.flatnonzero(self._ends[block * BLOCK : at + 1] <= until)
        if not len(found):
            early = np.flatnonzero(self._earliest[:block] <= until)
            if not len(early):
                return -1
            block = int(early[-1])
            found = np.flatnonzero(self._ends[block * BLOCK : (block + 1) * BLOCK] <= until)
        return block * BLOCK + int(found[-1])


class Launches:
    """The kernels that each thread launched."""

    def __init__(self, thread: Ints, began: Ints, launch_of: Ints, stream: Ints) -> None:
        """Take the threads and moments of calls, and of each kernel its call and its stream."""
        kernels = np.flatnonzero(launch_of >= 0)
        calls, first = np.unique(launch_of[kernels], return_index=True)
        order = np.argsort(began[calls], kind="stable")
        calls, entries = calls[order], kernels[first[order]]
        moments = began[calls]
        self._by_thread = _parted(thread[calls], moments, entries)
        """When the host launched, ascending, and the kernels."""
        self._by_stream = _parted(stream[entries], moments, entries)
        self._by_thread[ANY] = self._by_stream[ANY] = moments.tolist(), entries.tolist()

    def first_after(self, moment: int, stream: int) -> int | None:
        """Return the first kernel that was launched after *moment*, on *stream* unless that is -1; None if none.

        Whichever thread launched it: autograd's thread makes a stream wait, and the main thread runs the optimizer.
        """
        moments, entries = self._by_stream.get(stream, ([], []))
        at = bisect_right(moments, moment)
        return entries[at] if at < len(entries) else None

    def last_before(self, thread: int, moment: int) -> int | None:
        """Return the last kernel that *thread* launched before *moment*; None if none."""
        moments, entries = self._by_thread.get(thread, ([], []))
        at = bisect_left(moments, moment) - 1
        return entries[at] if at >= 0 else None


def _parted(key: Ints, moments: Ints, entries: Ints) -> dict[int, tuple[list[int], list[int]]]:
    """Return moments and entries by their *key*, in the order that they have."""
    order = np.argsort(key, kind="stable")
    bounds = np.flatnonzero(np.diff(key[order], prepend=-2, append=-2)).tolist()
    parts = (order[first:last] for first, last in pairwise(bounds))
    return {int(key[part[0]]): (moments[part].tolist(), entries[part].tolist()) for part in parts}
