"""What streams had been given: looked up, not walked through."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cosmic.traces.profiles.event_linking import ANY, BLOCK, EndLookup, Launches, StreamKernels
from cosmic.traces.profiles.integer_sets import distinct_rows
from cosmic.traces.profiles.kineto import Device


@pytest.mark.parametrize("until", [0, 1, 2, 7, 9])
def test_the_last_that_ended_in_time_is_that_of_a_walk_back(until: int) -> None:
    ends = np.random.default_rng(3).integers(1, 2000, 3 * BLOCK + 5)
    ended = EndLookup(ends)
    for at in (0, 1, BLOCK - 1, BLOCK, 2 * BLOCK + 3, len(ends) - 1):
        walked = at
        while walked >= 0 and ends[walked] > until:
            walked -= 1
        assert ended.last(at, until) == walked


def test_a_stream_whose_kernels_all_end_late_gives_its_first_one() -> None:
    # Kernel 0 ends at 5, all others at 10^6: at moment 1000, with until = 10, only kernel 0 had ended.
    count = 1200
    device = Device(stream=np.zeros(count, np.int64), start=np.arange(count), end=np.full(count, 10**6))
    device.end[0] = 5
    given = StreamKernels(np.arange(count), np.arange(count), device)
    assert given.before(1000, until=10) == [0]
    assert given.before(1000, until=4) == []
    assert given.before(1000) == [999]


def test_launches_are_found_by_thread_and_by_stream() -> None:
    # Calls 0 to 3 begin at 10, 20, 30, 40 on threads 0, 1, 0, 1; kernels 0 to 3 are theirs, on streams 7, 7, 8, 7.
    launches = Launches(
        np.array([0, 1, 0, 1]), np.array([10, 20, 30, 40]), np.array([0, 1, 2, 3]), np.array([7, 7, 8, 7])
    )
    assert (launches.last_before(0, 30), launches.last_before(1, 40), launches.last_before(ANY, 35)) == (0, 1, 2)
    assert (launches.first_after(10, 7), launches.first_after(20, 8), launches.first_after(20, ANY)) == (1, 2, 2)
    assert launches.first_after(40, 7) is None
    assert launches.last_before(5, 99) is None


@pytest.mark.parametrize("spread", [1, 10**6, 2**60])
def test_distinct_rows_are_numbered_as_they_first_appear(spread: int) -> None:
    rows = np.random.default_rng(1).integers(0, 4, (50, 2)) * spread
    rows[rows[:, 0] == 0, 0] = -(2**63)
    found, first, number = distinct_rows(rows)
    seen: dict[Any, int] = {}
    expected = [seen.setdefault(tuple(row), len(seen)) for row in rows.tolist()]
    assert number.tolist() == expected
    assert [tuple(row) for row in found.tolist()] == list(seen)
    assert first.tolist() == [expected.index(at) for at in range(len(seen))]
