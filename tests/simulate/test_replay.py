"""Recorded traces, replayed by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.traces.replay import ReplayChanges, recorded_times, replay_traces
from cosmic.traces.trace import CollectiveType, NodeType, RankTrace, TraceSet, template_of


def node(number: int, start: int, took: int, delay: int, data: list[int], **more: Any) -> dict[str, Any]:
    """Return a recorded node."""
    times = {"start_ns": start, "duration_ns": took, "delay_ns": delay}
    return {"id": number, "type": NodeType.COMP, "data": data, **times, **more}


def job(*ranks: list[dict[str, Any]], peers: tuple[tuple[int, ...], ...] = ()) -> TraceSet:
    """Return the traces of some ranks."""
    found = [RankTrace(template_of(rows), (), peers[at] if peers else ()) for at, rows in enumerate(ranks)]
    return TraceSet(tuple(found))


CHAIN = [node(0, 0, 10, 0, []), node(1, 12, 20, 2, [0]), node(2, 10, 5, 0, [0]), node(3, 35, 1, 3, [1, 2])]


def test_a_node_starts_when_the_last_that_it_waited_for_has_ended() -> None:
    found = replay_traces(job(CHAIN), {})
    assert found.begun[0].tolist() == [0, 12, 10, 35]
    assert found.ended[0].tolist() == [10, 32, 15, 36]
    assert found.span_ns == 36


def test_a_slower_node_moves_what_follows_it() -> None:
    traces = job(CHAIN)
    changed = recorded_times(traces)
    found = replay_traces(traces, {}, ReplayChanges((np.array([10, 20, 40, 1]),), changed.delay_ns))
    assert found.begun[0].tolist() == [0, 12, 10, 53]


COLLECTIVE = {"type": NodeType.COMM_COLL, "comm_type": CollectiveType.ALL_REDUCE, "comm_size": 8}


def test_a_collective_ends_after_its_last_member_has_entered() -> None:
    first = [node(0, 0, 10, 0, []), node(1, 10, 30, 0, [0], **COLLECTIVE), node(2, 40, 1, 0, [1])]
    second = [node(0, 0, 25, 0, []), node(1, 25, 15, 0, [0], **COLLECTIVE), node(2, 40, 1, 0, [1])]
    traces = job(first, second)
    assert [each.tolist() for each in replay_traces(traces, {}).begun] == [[0, 10, 40], [0, 25, 40]]
    durations = (np.array([10, 30, 1]), np.array([5, 15, 1]))
    faster = replay_traces(traces, {}, ReplayChanges(durations, recorded_times(traces).delay_ns))
    assert [each.tolist() for each in faster.begun] == [[0, 10, 25], [0, 5, 25]]  # 15 ns after both have entered
    taken = replay_traces(traces, {}, ReplayChanges(durations, recorded_times(traces).delay_ns, {(0, 1): 2, (1, 1): 2}))
    assert [each.tolist() for each in taken.ended] == [[10, 12, 13], [5, 12, 13]]


def test_a_receive_waits_for_its_send() -> None:
    send = node(1, 50, 5, 0, [0], type=NodeType.COMM_SEND, comm_size=8, comm_tag=0, peer=0)
    receive = node(0, 0, 60, 0, [], type=NodeType.COMM_RECV, comm_size=8, comm_tag=0, peer=0)
    traces = job([node(0, 0, 50, 0, []), send], [receive, node(1, 60, 1, 0, [0])], peers=((1,), (0,)))
    assert replay_traces(traces, {}).begun[1].tolist() == [0, 60]
    late = ReplayChanges((np.array([80, 5]), np.array([60, 1])), recorded_times(traces).delay_ns)
    assert replay_traces(traces, {}, late).begun[1].tolist() == [0, 90]  # 10 ns after the send began


def test_traces_without_times_and_nodes_that_never_run_are_refused() -> None:
    with pytest.raises(SpecError, match="only recorded traces"):
        replay_traces(job([{"id": 0, "type": NodeType.COMP}]), {})
    with pytest.raises(SpecError, match="never runs"):
        replay_traces(job([node(0, 0, 1, 0, [1]), node(1, 0, 1, 0, [0])]), {})
