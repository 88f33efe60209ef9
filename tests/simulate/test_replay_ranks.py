"""Replays of several ranks: which collectives meet, worked out by hand in nanoseconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosmic.traces.chakra.trace_reader import read_traces
from cosmic.traces.chakra.trace_writer import write_traces
from cosmic.traces.replay import ReplayChanges, Replayed, recorded_times, replay_traces
from cosmic.traces.trace import ABSENT, CollectiveType, NodeType, RankTrace, TraceSet, template_of


def collective(number: int, start: int, took: int, tag: int = ABSENT, **more: Any) -> dict[str, Any]:
    """Return a recorded all-reduce that waits for the node before it."""
    kind = {"type": NodeType.COMM_COLL, "comm_type": CollectiveType.ALL_REDUCE, "comm_size": 8, "comm_tag": tag}
    times = {"start_ns": start, "duration_ns": took, "delay_ns": 0, "data": [number - 1] if number else []}
    return {"id": number, **kind, **times, **more}


def late(traces: TraceSet, groups: dict[str, tuple[int, ...]] | None = None) -> Replayed:
    """Replay with the first node of rank 1 100 ns later."""
    same = recorded_times(traces)
    delay = [each.copy() for each in same.delay_ns]
    delay[1][0] += 100
    return replay_traces(traces, groups or {}, ReplayChanges(same.duration_ns, tuple(delay)))


def job(*ranks: list[dict[str, Any]], groups: tuple[str, ...] = ()) -> TraceSet:
    """Return the traces of some ranks."""
    return TraceSet(tuple(RankTrace(template_of(rows), groups) for rows in ranks))


FIRST, SECOND = [collective(0, 0, 10), collective(1, 10, 10)], [collective(0, 0, 10), collective(1, 10, 10)]


def ended(found: Replayed) -> list[list[int]]:
    """Return when nodes end, by rank."""
    return [each.tolist() for each in found.ended]


def test_collectives_without_tags_meet_in_order() -> None:
    assert ended(late(job(FIRST, SECOND))) == [[110, 120], [110, 120]]


def test_collectives_meet_by_their_tags() -> None:
    """The second of rank 0 is the first of rank 1; the others are alone."""
    first = [collective(0, 0, 10, 4), collective(1, 10, 10, 5)]
    second = [collective(0, 0, 20, 5), collective(1, 20, 10, 6)]
    assert ended(replay_traces(job(first, second), {})) == [[10, 20], [20, 30]]
    assert ended(late(job(first, second))) == [[10, 110], [110, 120]]  # what it takes once both are there is 10


def test_collectives_with_tags_of_their_own_do_not_meet() -> None:
    first, second = ([each | {"comm_tag": 2 * rank + at} for at, each in enumerate(FIRST)] for rank in range(2))
    assert ended(late(job(first, second))) == [[10, 20], [110, 120]]


def test_tags_count_within_a_group() -> None:
    first = [collective(0, 0, 10, 0, group=0), collective(1, 10, 10, 0, group=1)]
    second = [collective(0, 0, 20, 0, group=1)]
    traces = job(first, second, groups=("a", "b"))
    assert ended(late(traces, {"a": (0, 1), "b": (0, 1)})) == [[10, 110], [110]]  # 10 once both are in b


def test_a_rank_that_is_not_in_a_group_does_not_meet() -> None:
    first, second = ([each | {"group": 0} for each in rank] for rank in (FIRST, SECOND))
    assert ended(late(job(first, second, groups=("a",)), {"a": (0, 2)})) == [[10, 20], [110, 120]]


def test_equal_tags_of_one_rank_are_no_collective() -> None:
    first, second = ([each | {"comm_tag": 3} for each in rank] for rank in (FIRST, SECOND))
    assert ended(late(job(first, second))) == [[10, 20], [110, 120]]


def test_collectives_of_two_kinds_do_not_meet() -> None:
    second = [each | {"comm_type": CollectiveType.ALL_GATHER} for each in SECOND]
    assert ended(late(job(FIRST, second))) == [[10, 20], [110, 120]]


@pytest.mark.parametrize("tags", [(4, 5), (5, 6)])
def test_tags_of_collectives_are_kept_in_files(tmp_path: Path, tags: tuple[int, int]) -> None:
    first = [collective(0, 0, 10, 4), collective(1, 10, 10, 5)]
    second = [collective(0, 0, 10, tags[0]), collective(1, 10, 10, tags[1])]
    made = job(first, second)
    write_traces(made, tmp_path / "x")
    read = read_traces(tmp_path / "x")
    assert [rank.template.comm_tag.tolist() for rank in read.ranks] == [[4, 5], list(tags)]
    assert ended(late(read)) == ended(late(made))
    assert np.array_equal(late(read).begun[0], late(made).begun[0])


def test_a_rank_that_left_before_another_entered_does_not_wait_for_it() -> None:
    """Rank 0 broadcasts and then sends what rank 1 receives before it enters the broadcast."""
    kinds = {"comm_type": CollectiveType.BROADCAST}
    message = {"comm_tag": 0, "comm_type": ABSENT, "peer": 0}
    first = [collective(0, 0, 5, **kinds), collective(1, 5, 10, **message | {"type": NodeType.COMM_SEND})]
    second = [collective(0, 0, 15, **message | {"type": NodeType.COMM_RECV}), collective(1, 15, 5, **kinds)]
    peers = ((1,), (0,))
    made = TraceSet(tuple(RankTrace(template_of(rows), (), peers[at]) for at, rows in enumerate((first, second))))
    assert ended(replay_traces(made, {})) == [[5, 15], [15, 20]]
    same = recorded_times(made)
    slow = (np.array([50, 10]), same.duration_ns[1])
    assert ended(replay_traces(made, {}, ReplayChanges(slow, same.delay_ns))) == [[50, 60], [60, 65]]
