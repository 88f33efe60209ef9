"""What woke a thread up that had been idle: the last that another thread, or a collective, was done with."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cosmic.profiles.arrays import sorted_distinct

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Woken(NamedTuple):
    """What woke threads up."""

    by: Ints
    """Numbers of nodes, or of collectives; -1 where nothing did."""
    moment: Ints
    """When that was done."""
    is_exchange: Mask


class Wakers:
    """What threads were done with, to look up by time."""

    def __init__(self, first: Ints, began: Ints, ended: Ints, exchanges: Mapping[int, int]) -> None:
        """Take where the nodes of each thread begin, when nodes began and ended, and when collectives ended."""
        self._first, self._began, self._ended = first, began, ended
        in_order = sorted(exchanges.items(), key=lambda each: (each[1], -each[0]))
        self._exchanges = np.array(in_order, np.int64).reshape(-1, 2)
        """Numbers and ends, ascending by these."""

    def woken_by(self, thread: Ints, idle: Ints, start: Ints) -> Woken:
        """Return what ended last while each *thread* was idle, until *start*."""
        by, latest, is_exchange = np.full(len(start), -1), idle.copy(), np.zeros(len(start), bool)
        for other, (low, high) in enumerate(pairwise(self._first.tolist())):
            ends = sorted_distinct(np.maximum.accumulate(self._ended[low:high]))  # those later than all before
            starts = self._began[low:high]
            place = np.searchsorted(ends, start, "right") - 1
            end = ends[np.maximum(place, 0)]
            following = np.searchsorted(starts, end)
            went_on = (following < high - low) & (starts[np.minimum(following, high - low - 1)] < start)
            wakes = (
                (place >= 0) & (thread != other) & (end > latest) & (end >= 0) & ~went_on
            )  # nobody waits for one that did
            by[wakes], latest[wakes] = low + np.maximum(following - 1, 0)[wakes], end[wakes]
        if len(self._exchanges):
            place = np.searchsorted(self._exchanges[:, 1], start, "right") - 1
            number, end = self._exchanges[np.maximum(place, 0)].T
            is_exchange = (place >= 0) & (end > latest)
            by[is_exchange], latest[is_exchange] = number[is_exchange], end[is_exchange]
        return Woken(by, latest, is_exchange)
