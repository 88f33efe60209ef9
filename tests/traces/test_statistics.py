"""What traces hold, against what can be counted by hand."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import cache

import pytest
from hypothesis import given

from cosmic.base.errors import SpecError
from cosmic.traces.trace import NodeType, RankTrace, TraceSet, template_of
from cosmic.traces.trace_statistics import RankRange, node_seconds, summarize_traces
from tests.traces.graphs import Rows, collective, comp, graphs, one_rank, receive, send, waits


def job() -> TraceSet:
    """Return four ranks: two that send and two that receive, all of them in pairs and as a whole."""
    rows = [
        comp(1, num_ops=100, tensor_size=10, duration_us=5),
        collective(2, 0, 64, data=[1]),
        collective(3, 2, 32, data=[2], group=-1),
        collective(4, 0, 1, group=1),
    ]
    sender = template_of([*rows, send(5, size=7, data=[3], duration_us=2)])
    receiver = template_of([*rows, receive(5, size=7), comp(6, 4, num_ops=11)])
    ranks = [
        RankTrace(template, (pair, "9"), (peer,))
        for template, pair, peer in ((sender, "1", 2), (sender, "2", 3), (receiver, "1", 0), (receiver, "2", 1))
    ]
    return TraceSet(tuple(ranks))


def test_amounts_are_sums_over_ranks() -> None:
    found = summarize_traces(job(), {"1": [0, 2], "2": [1, 3]})
    assert (found.ranks, found.nodes, found.templates) == (4, 22, 2)
    assert found.nodes_by_type == {"COMP": 6, "COMM_SEND": 2, "COMM_COLL": 12, "COMM_RECV": 2}
    assert (found.sent_bytes, found.received_bytes, found.collective_bytes) == (14, 14, 4 * (64 + 32 + 1))
    assert (found.compute_flop, found.tensor_bytes) == (422, 40)
    assert found.duration_s == pytest.approx(24e-6)


def test_ranges_are_over_ranks() -> None:
    found = summarize_traces(job()).by_rank
    assert (found["nodes"], found["compute_flop"], found["sent_bytes"]) == (
        RankRange(5, 6),
        RankRange(100, 111),
        RankRange(0, 7),
    )


def test_collectives_are_told_apart_by_type_and_size_of_group() -> None:
    found = summarize_traces(job(), {"1": [0, 2], "2": [1, 3]}).collectives
    assert [(each.collective, each.group_size, each.nodes, each.bytes) for each in found] == [
        ("ALL_REDUCE", 2, 4, 256),
        ("ALL_GATHER", 4, 4, 128),
        ("ALL_REDUCE", None, 4, 4),
    ]


def test_statistics_are_plain_values() -> None:
    data = json.loads(json.dumps(asdict(summarize_traces(job()))))
    assert data["by_rank"]["nodes"] == {"least": 5, "most": 6}
    assert data["critical_path"]["nodes_by_type"] == {"COMP": 1, "COMM_SEND": 1, "COMM_COLL": 2}


def test_sums_are_exact_beyond_64_bits() -> None:
    rows = [comp(each, num_ops=2**63 - 1) for each in range(5)]
    assert summarize_traces(one_rank(rows)).compute_flop == 5 * (2**63 - 1)


@given(graphs())
def test_chains_are_as_long_as_brute_force_says(rows: Rows) -> None:
    wanted, time = waits(rows), {row["id"]: row["duration_us"] for row in rows}

    @cache
    def nodes(node: int) -> int:
        return 1 + max(map(nodes, wanted[node]), default=0)

    @cache
    def duration(node: int) -> int:
        return int(time[node]) + max(map(duration, wanted[node]), default=0)

    found = summarize_traces(one_rank(rows))
    assert found.longest_chain is not None
    assert found.critical_path is not None
    assert found.longest_chain.nodes == max(map(nodes, wanted))
    assert found.critical_path.seconds == pytest.approx(1e-6 * max(map(duration, wanted)))


def test_the_chain_of_the_rank_that_has_the_longest_is_reported() -> None:
    short = template_of([comp(1, duration_us=100)])
    long = template_of([comp(1, duration_us=3), collective(2, data=[1]), comp(3, 2, duration_us=4)])
    found = summarize_traces(TraceSet((RankTrace(short), RankTrace(long, ("1",)))))
    assert found.longest_chain is not None
    assert found.critical_path is not None
    assert (found.longest_chain.rank, found.longest_chain.nodes) == (1, 3)
    assert found.longest_chain.seconds_by_type == pytest.approx({"COMP": 7e-6, "COMM_COLL": 0.0})
    assert found.critical_path.rank == 0
    assert found.critical_path.seconds == pytest.approx(1e-4)


def test_where_nodes_wait_for_one_another_there_is_no_chain() -> None:
    found = summarize_traces(one_rank([comp(1, 2), comp(2, 1)]))
    assert (found.nodes, found.longest_chain, found.critical_path) == (2, None, None)


def test_dependencies_on_nothing_and_on_oneself_are_passed_over() -> None:
    found = summarize_traces(one_rank([comp(1, 1, 9), comp(2, 1)]))
    assert found.longest_chain is not None
    assert found.longest_chain.nodes == 2


def test_types_without_a_name_are_counted() -> None:
    found = summarize_traces(
        one_rank([{"id": 1, "type": 44}, collective(2, -1, group=-1), collective(3, 30, group=-1)])
    )
    assert found.nodes_by_type == {"COMM_COLL": 2, "type 44": 1}
    assert {each.collective for each in found.collectives} == {"unstated", "type 30"}


def test_a_job_may_be_empty() -> None:
    found = summarize_traces(TraceSet(()))
    assert (found.nodes, found.by_rank["nodes"], found.critical_path) == (0, RankRange(0, 0), None)
    assert summarize_traces(one_rank([])).nodes == 0


def test_rates_give_compute_nodes_the_time_of_the_roofline() -> None:
    rows = [
        comp(1, num_ops=600, tensor_size=8, duration_us=7),
        comp(2, num_ops=100, tensor_size=8),
        comp(3, duration_us=9),
        {"id": 4, "type": NodeType.MEM_LOAD, "tensor_size": 8, "duration_us": 3},
    ]
    template = template_of(rows)
    assert node_seconds(template) == pytest.approx([7e-6, 0, 9e-6, 3e-6])
    assert node_seconds(template, 100.0, 4.0) == pytest.approx([6, 2, 9e-6, 3e-6])
    assert node_seconds(template, flop_per_s=100.0) == pytest.approx([6, 1, 9e-6, 3e-6])
    assert node_seconds(template, bytes_per_s=1.0) == pytest.approx([8, 8, 9e-6, 3e-6])
    found = summarize_traces(TraceSet((RankTrace(template),)), flop_per_s=100.0).critical_path
    assert found is not None
    assert found.seconds == 6


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan")])
def test_a_rate_is_positive(rate: float) -> None:
    with pytest.raises(SpecError, match="must be positive"):
        node_seconds(template_of([comp(1)]), bytes_per_s=rate)
