"""Sends meet the receives that they met before, however many copies there are."""

from __future__ import annotations

import numpy as np
import pytest

from cosmic.traces.synthesis.rank_roles import source_job
from cosmic.traces.synthesis.trace_model import TraceLength, find_channels, fit_model, roles_deadlock, synthesize
from cosmic.traces.trace import RankTrace, TraceSet, template_of
from cosmic.traces.trace_checks import list_problems
from tests.traces.synthesis.jobs import COMP, RECEIVE, SEND, Rows, pipeline


def exchange(received: list[int]) -> TraceSet:
    """Return two ranks: one sends tags 5 and 6, the other receives tags in an order, and computes after each."""
    first: Rows = [
        {"id": at, "type": SEND, "name": "send", "peer": 0, "comm_tag": tag, "comm_size": 8}
        for at, tag in enumerate((5, 6))
    ]
    second: Rows = []
    for at, tag in enumerate(received):
        second.append({"id": 2 * at, "type": RECEIVE, "name": "get", "peer": 0, "comm_tag": tag, "comm_size": 8})
        second.append({"id": 2 * at + 1, "type": COMP, "name": f"use of {tag}", "data": [2 * at], "duration_us": tag})
    return TraceSet((RankTrace(template_of(first), (), (1,), 0), RankTrace(template_of(second), (), (0,), 1)))


def test_messages_in_order_are_one_channel() -> None:
    keys = find_channels(source_job(exchange([5, 6]))).key
    assert len(set(keys[0].tolist())) == 1
    assert set(keys[0].tolist()) == set(keys[1].tolist()) - {-1}


def test_messages_that_overtake_each_other_keep_their_tags_apart() -> None:
    keys = find_channels(source_job(exchange([6, 5]))).key
    assert keys[1].tolist() == [keys[0][1], -1, keys[0][0], -1]


@pytest.mark.parametrize("received", [[5, 6], [6, 5]])
def test_a_send_still_meets_the_receive_that_it_met(received: list[int]) -> None:
    made = synthesize(fit_model([(exchange(received), None)]), TraceLength(blocks=3, of=1)).traces
    assert list_problems(made) == []
    sends, receives = (rank.template for rank in made.ranks)
    order = [sends.comm_tag.tolist().index(tag) % 2 for tag in receives.comm_tag.tolist() if tag >= 0]
    assert order == [each - 5 for each in received] * 3


def test_ranks_that_wait_for_each_other_are_found() -> None:
    made = synthesize(fit_model([pipeline(4)]))
    model = fit_model([pipeline(4)])
    role = model.jobs[0].source.role_of
    bindings = type("Roles", (), {"role": role, "groups": made.groups})()
    assert not roles_deadlock(made.traces, bindings)
    first = made.traces.ranks[0].template
    # Its first send waits for its last receive, which answers it.
    last = int(np.flatnonzero(first.type == RECEIVE)[-1])
    send = int(np.flatnonzero(first.type == SEND)[0])
    rows = [
        {
            "id": row,
            "type": int(first.type[row]),
            "peer": int(first.peer[row]),
            "comm_tag": int(first.comm_tag[row]),
            "comm_size": int(first.comm_size[row]),
            "comm_type": int(first.comm_type[row]),
            "group": int(first.group[row]),
            "data": [last] if row == send else [],
        }
        for row in range(first.nodes)
    ]
    stuck = template_of(rows)
    ranks = [RankTrace(stuck, each.groups, each.peers, each.own_rank) for each in made.traces.ranks[:2]]
    assert roles_deadlock(TraceSet((*ranks, *made.traces.ranks[2:])), bindings)
