"""The clock: the order of events, rounds within one time, bounds, and what is cancelled."""

from __future__ import annotations

import pytest

from cosmic.base.errors import SpecError
from cosmic.base.event_clock import LAST_NS, EventClock


@pytest.fixture
def log() -> list[object]:
    """What ran, in its order."""
    return []


@pytest.fixture
def clock() -> EventClock[int]:
    """A clock at 0."""
    return EventClock()


def test_events_of_one_time_run_by_order_then_tie_then_as_scheduled(clock: EventClock[int], log: list[object]) -> None:
    for name, order, tie in (("d", 1, 0), ("b", 0, 2), ("a", 0, 1), ("c", 0, 2), ("e", 1, 0)):
        clock.at(3, log.append, name, order, tie)
    clock.run()
    assert log == ["a", "b", "c", "d", "e"]


def test_an_order_that_has_passed_waits_for_the_next_round(clock: EventClock[int], log: list[object]) -> None:
    def again(name: str) -> None:
        log.append(name)
        if name == "first":
            clock.at(clock.now, again, "second", 0)
            clock.at(clock.now, again, "beside", 1)
            clock.at(clock.now, again, "settled", 2)

    clock.at(5, again, "first", 1)
    clock.at(5, again, "later", 3)
    clock.run()
    assert log == ["first", "beside", "settled", "later", "second"]


def test_a_run_is_bounded_by_time_or_by_events_and_goes_on(clock: EventClock[int], log: list[object]) -> None:
    for time in (1, 2, 3, 4):
        clock.at(time, log.append, time)
    clock.run(latest=2)
    assert (log, clock.now) == ([1, 2], 2)
    clock.run(most=1)
    assert (log, clock.now) == ([1, 2, 3], 3)
    clock.run()
    assert log == [1, 2, 3, 4]


def test_cancelled_events_do_not_run_and_take_no_time(clock: EventClock[int], log: list[object]) -> None:
    cancelled = clock.at(9, log.append, "cancelled")
    clock.at(1, clock.cancel, cancelled)
    clock.run()
    assert (log, clock.now) == ([], 1)


def test_a_simulation_can_be_stopped(clock: EventClock[int], log: list[object]) -> None:
    clock.at(1, lambda _: clock.stop(), None)
    clock.at(2, log.append, "never")
    clock.run()
    assert (log, clock.now) == ([], 1)
    clock.run()
    assert log == []


def test_events_that_one_rank_schedules_run_together(clock: EventClock[int], log: list[object]) -> None:
    clock.of_rank(0, 5, log.append, "rank 0")
    clock.after(5, log.append, "message")
    clock.of_rank(0, 5, log.append, "rank 0 again")
    clock.run()
    assert log == ["rank 0", "rank 0 again", "message"]


def test_times_beyond_a_century_are_refused(clock: EventClock[int]) -> None:
    clock.at(LAST_NS + 1, lambda _: None, None)
    with pytest.raises(SpecError, match="simulated time"):
        clock.run()
