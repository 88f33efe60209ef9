"""Threads: few, never used up, and told to stop when their time is over."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from importlib import import_module

import pytest

from cosmic.report.live.connections import Limits
from cosmic.report.live.request_checks import Refusal
from cosmic.report.live.server import JobThreads

SOON_S = 60.0


def threads() -> set[threading.Thread]:
    """Return the threads of pools; some may be those of an earlier test, about to end."""
    return {thread for thread in threading.enumerate() if thread.name == "cosmic-live"}


def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    ends = time.monotonic() + SOON_S
    while not holds() and time.monotonic() < ends:
        time.sleep(0.01)
    assert holds()


def endless() -> None:
    """Never end."""
    while True:
        pass


def swallowing() -> None:
    """Take the first request to stop for something else."""
    try:
        endless()
    except BaseException:
        endless()


@pytest.mark.parametrize("work", [endless, swallowing])
def test_what_is_written_in_python_is_stopped(work: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("cosmic.report.live.server"), "AGAIN_S", 0.05)
    before = threads()

    async def ask() -> int:
        pool = JobThreads(Limits(threads=2, waiting=0))
        for _ in range(5):
            with pytest.raises(Refusal, match="is the longest time of this answer"):
                await pool.run(work, seconds=0.02)
        found = await pool.run(lambda: 7, seconds=SOON_S)
        while pool.stuck:
            await asyncio.sleep(0.01)
        pool.close()
        return found

    assert asyncio.run(asyncio.wait_for(ask(), SOON_S)) == 7
    until(lambda: threads() <= before)


def test_what_waits_for_a_thread_gets_that_of_one_that_hangs() -> None:
    hold = threading.Event()

    async def ask() -> list[object]:
        pool = JobThreads(Limits(threads=1, waiting=3))
        hung = asyncio.create_task(pool.run(hold.wait, seconds=0.1))
        await asyncio.sleep(0)
        later = [asyncio.create_task(pool.run(lambda place=place: place, seconds=SOON_S)) for place in range(3)]
        found = await asyncio.gather(hung, *later, return_exceptions=True)
        assert pool.stuck == 1
        hold.set()
        while pool.stuck:
            await asyncio.sleep(0.01)
        pool.close()
        return found[1:]

    assert asyncio.run(ask()) == [0, 1, 2]


def test_what_was_given_up_before_it_began_never_begins() -> None:
    begun: list[int] = []

    async def ask() -> None:
        pool = JobThreads(Limits(threads=1, waiting=3))
        first = asyncio.create_task(pool.run(time.sleep, 0.2, seconds=SOON_S))
        await asyncio.sleep(0)
        with pytest.raises(Refusal):
            await pool.run(begun.append, 1, seconds=0.02)
        await first
        await pool.run(begun.append, 2, seconds=SOON_S)
        pool.close()

    asyncio.run(ask())
    assert begun == [2]


def test_errors_are_passed_on() -> None:
    async def ask() -> None:
        pool = JobThreads(Limits())
        with pytest.raises(ZeroDivisionError):
            await pool.run(lambda: 1 // 0)
        pool.close()

    asyncio.run(ask())
