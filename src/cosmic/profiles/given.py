"""What streams had been given when the host made one of them wait for an event."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import numpy as np
import numpy.typing as npt

from cosmic.profiles.kineto import Device

Ints = npt.NDArray[np.int64]
ANY = -1
"""Stands for all threads."""
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

    def before(self, moment: int, waited: int = -1, but: int = -1, until: int | None = None) -> list[int]:
        """Return the last kernel that each stream had been given; of *waited* alone, if it is stated, and not of *but*.

        With *until*, the last of them that had ended by then.
        """
        found = []
        for stream in self._all if waited < 0 else [waited]:
            moments, entries = self._streams.get(stream, ([], []))
            at = bisect_left(moments, moment) - 1
            while until is not None and at >= 0 and self._ends[entries[at]] > until:
                at -= 1
            if stream != but and at >= 0:
                found.append(entries[at])
        return found


class Launches:
    """The kernels that each thread launched."""

    def __init__(self, thread: Ints, began: Ints, launch_of: Ints, stream: Ints) -> None:
        """Take the threads and moments of calls, and of each kernel its call and its stream."""
        kernels = np.flatnonzero(launch_of >= 0)
        calls, first = np.unique(launch_of[kernels], return_index=True)
        self._by_thread: dict[tuple[int, int], tuple[list[int], list[int]]] = {}
        """By thread or `ANY`, and by stream or -1 for all: when the host launched, ascending, and the kernels."""
        order = np.argsort(began[calls], kind="stable")
        calls, first = calls[order], first[order]
        rows = zip(thread[calls].tolist(), began[calls].tolist(), kernels[first].tolist(), strict=True)
        for number, moment, kernel in rows:
            for key in ((number, -1), (ANY, -1), (ANY, int(stream[kernel]))):
                moments, entries = self._by_thread.setdefault(key, ([], []))
                moments.append(moment)
                entries.append(kernel)

    def first_after(self, moment: int, stream: int) -> int | None:
        """Return the first kernel that was launched after *moment*, on *stream* unless that is -1; None if none.

        Whichever thread launched it: autograd's thread makes a stream wait, and the main thread runs the optimizer.
        """
        moments, entries = self._by_thread.get((ANY, stream), ([], []))
        at = bisect_right(moments, moment)
        return entries[at] if at < len(entries) else None

    def last_before(self, thread: int, moment: int) -> int | None:
        """Return the last kernel that *thread* launched before *moment*; None if none."""
        moments, entries = self._by_thread.get((thread, -1), ([], []))
        at = bisect_left(moments, moment) - 1
        return entries[at] if at >= 0 else None
