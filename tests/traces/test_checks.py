"""What is wrong with traces is found, and said in sentences that name it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosmic.base.errors import SpecError
from cosmic.traces.chakra.trace_reader import read_traces
from cosmic.traces.trace import CollectiveType, NodeType, RankTrace, TraceSet, template_of
from cosmic.traces.trace_checks import (
    SHOWN,
    SHOWN_OF_A_KIND,
    PointToPointMessages,
    check_traces,
    is_replayed,
    list_problems,
    unmatched_messages,
)
from tests.traces.graphs import Rows, collective, comp, graphs, one_rank, receive, send

REFERENCE = Path(__file__).parents[3] / "shared" / "reference" / "chakra"


def job(*ranks: tuple[Rows, str | tuple[str, ...], tuple[int, ...]]) -> TraceSet:
    """Return a job: for each rank its nodes, the names of its groups and its peers."""
    return TraceSet(tuple(RankTrace(template_of(rows), tuple(groups), peers) for rows, groups, peers in ranks))


# ---- within a rank


@given(graphs())
def test_nodes_without_a_cycle_are_fine(rows: Rows) -> None:
    assert list_problems(one_rank(rows)) == []
    check_traces(one_rank(rows))


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([comp(4, 9, name="matmul")], "trace: rank 0: node 4 'matmul': depends on = 9: no node has this id"),
        ([comp(4, 4)], "trace: rank 0: node 4: depends on = 4: a node cannot wait for itself"),
        ([comp(4), comp(5, ctrl=[5])], "trace: rank 0: node 5: depends on = 5: a node cannot wait for itself"),
        (
            [comp(4, 7, name="matmul"), comp(7, ctrl=[4])],
            "trace: rank 0: nodes in a cycle = 2: each waits for the next: node 4 'matmul' -> node 7 -> node 4",
        ),
        ([comp(4), comp(4)], "trace: rank 0: node = 4: two nodes have this id"),
        ([comp(4) | {"type": 0}], "trace: rank 0: node 4: type = 0: no such type of node"),
        ([comp(4) | {"type": 8}], "trace: rank 0: node 4: type = 8: no such type of node"),
        ([collective(4, 10)], "trace: rank 0: node 4: comm_type = 10: no such collective"),
        ([collective(4, -1)], "trace: rank 0: node 4: comm_type = None: a COMM_COLL node needs it"),
        ([collective(4, size=-1)], "trace: rank 0: node 4: comm_size = None: a COMM_COLL node needs it"),
        ([send(4, peer=-1)], "trace: rank 0: node 4: comm_dst = None: a COMM_SEND node needs it"),
        ([receive(4, peer=-1)], "trace: rank 0: node 4: comm_src = None: a COMM_RECV node needs it"),
    ],
)
def test_what_cannot_run_is_named(rows: Rows, sentence: str) -> None:
    traces = TraceSet((RankTrace(template_of(rows), ("1",), (0,)),))
    assert list_problems(traces, {"1": [0]}) == [sentence]
    with pytest.raises(SpecError) as caught:
        check_traces(traces, {"1": [0]})
    assert str(caught.value) == sentence


def test_a_barrier_needs_no_size_and_a_rank_no_nodes() -> None:
    assert list_problems(one_rank([collective(4, 9, -1, group=-1)])) == []
    assert list_problems(one_rank([])) == []


def test_a_long_cycle_is_cut_short() -> None:
    (sentence,) = list_problems(one_rank([comp(each, (each + 1) % 1000) for each in range(1000)]))
    assert sentence.endswith("node 0 -> node 1 -> node 2 -> node 3 -> node 4 -> node 5 -> (994 more) -> node 0")


def test_ranks_that_share_a_template_are_named_once() -> None:
    template = template_of([comp(4, 9)])
    sentences = list_problems(TraceSet((RankTrace(template),) * 3, "gpt"))
    assert sentences == ["gpt: rank 0 and 2 more: node 4: depends on = 9: no node has this id"]


def test_many_problems_are_counted_and_none_hides_another_kind() -> None:
    rows = [comp(each, 9999) for each in range(100)] + [comp(each, each) for each in range(200, 300)]
    sentences = list_problems(one_rank(rows))
    assert len(sentences) == 2 * SHOWN_OF_A_KIND + 1
    assert sentences[0].endswith("no node has this id")
    assert sentences[-2].endswith("a node cannot wait for itself")
    assert sentences[-1] == "trace: 200 problems in all"
    assert len(list_problems(one_rank(rows), shown=3)) == 4
    several = TraceSet(tuple(RankTrace(template_of(rows)) for _ in range(20)))
    assert len(list_problems(several)) == SHOWN + 1


def test_a_trace_says_whose_it_is() -> None:
    traces = TraceSet((RankTrace(template_of([comp(1)]), own_rank=1),))
    assert list_problems(traces) == ["trace: rank 0: its own rank = 1: the trace belongs to another rank"]


# ---- messages


def test_a_send_belongs_to_a_receive() -> None:
    assert list_problems(job(([send(1)], "", (1,)), ([receive(2)], "", (0,)))) == []


@pytest.mark.parametrize(
    ("sends", "receives", "sentences"),
    [
        (
            [send(1, name="act")],
            [],
            ["trace: rank 0: node 1 'act' sends to rank = 1: has no receive of 64 bytes with tag 0"],
        ),
        ([], [receive(1)], ["trace: rank 1: node 1 receives from rank = 0: has no send of 64 bytes with tag 0"]),
        (
            [send(1), send(2), send(3)],
            [receive(8)],
            [f"trace: rank 0: node {node} sends to rank = 1: has no receive of 64 bytes with tag 0" for node in (2, 3)],
        ),
        (
            [send(1, tag=5), send(2, tag=6)],
            [receive(7, tag=6, size=32), receive(8, tag=5)],
            [
                "trace: rank 0: node 2 sends to rank = 1: has no receive of 64 bytes with tag 6, "
                "but node 7 there receives 32 bytes with tag 6",
                "trace: rank 1: node 7 receives from rank = 0: has no send of 32 bytes with tag 6, "
                "but node 2 there sends 64 bytes with tag 6",
            ],
        ),
    ],
)
def test_a_message_without_its_other_side_is_found(sends: Rows, receives: Rows, sentences: list[str]) -> None:
    assert list_problems(job((sends, "", (1,)), (receives, "", (0,)))) == sentences


def test_a_peer_outside_the_job_is_found() -> None:
    sentences = list_problems(job(([send(1), receive(2, peer=1)], "", (2, -7))))
    assert sentences == [
        "trace: rank 0: node 1 sends to rank = 2: the job has ranks 0 to 0",
        "trace: rank 0: node 2 receives from rank = -7: the job has ranks 0 to 0",
    ]


@given(st.lists(st.tuples(*(st.integers(0, most) for most in (1, 2, 2, 1, 1))), max_size=40))
def test_messages_are_left_over_as_many_as_counting_says(found: list[tuple[int, ...]]) -> None:
    side, rank, peer, tag, size = np.array(found, np.int64).reshape(-1, 5).T
    lone = unmatched_messages(PointToPointMessages(side, rank, np.arange(len(side)), peer, tag, size), 3)
    counts: dict[tuple[int, ...], int] = {}
    for its_side, its_rank, its_peer, *rest in found:
        route = (its_rank, its_peer) if its_side == 0 else (its_peer, its_rank)
        counts[(*route, *rest)] = counts.get((*route, *rest), 0) + (1 if its_side == 0 else -1)
    assert len(lone.rank) == sum(map(abs, counts.values()))
    assert (lone.side == 0).sum() == sum(count for count in counts.values() if count > 0)


# ---- groups


def twins(mine: Rows, theirs: Rows, name: str = "1") -> TraceSet:
    return job((mine, (name,), ()), (theirs, (name,), ()))


@pytest.mark.parametrize("name", ["1", "0", ""])
def test_members_that_run_the_same_collectives_agree(name: str) -> None:
    rows = [collective(1), collective(2, 2)]
    assert list_problems(twins(rows, [collective(5), collective(9, 2)], name), {"1": [0, 1]}) == []


@pytest.mark.parametrize(
    ("mine", "theirs", "sentence"),
    [
        (
            [collective(1)],
            [collective(1, 2, name="gather")],
            "collective 1 of group 1 = \"ALL_GATHER of 64 bytes, node 1 'gather'\": "
            "rank 0 has ALL_REDUCE of 64 bytes, node 1 there",
        ),
        (
            [collective(1), collective(2)],
            [collective(3), collective(4, size=1024)],
            "collective 2 of group 1 = 'ALL_REDUCE of 1,024 bytes, node 4': "
            "rank 0 has ALL_REDUCE of 64 bytes, node 2 there",
        ),
        (
            [collective(1), collective(2)],
            [collective(3)],
            "collective 2 of group 1 = 'none': rank 0 has ALL_REDUCE of 64 bytes, node 2 there",
        ),
        (
            [comp(1)],
            [collective(3)],
            "collective 1 of group 1 = 'ALL_REDUCE of 64 bytes, node 3': rank 0 has none there",
        ),
        (
            [collective(1), collective(2, 2)],
            [collective(1, 2), collective(2)],
            "collective 1 of group 1 = 'ALL_GATHER of 64 bytes, node 1': "
            "rank 0 has ALL_REDUCE of 64 bytes, node 1 there",
        ),
    ],
)
def test_the_first_difference_between_members_is_named(mine: Rows, theirs: Rows, sentence: str) -> None:
    assert list_problems(twins(mine, theirs), {"1": [0, 1]}) == [f"trace: rank 1: {sentence}"]


def test_all_ranks_are_a_group_under_any_of_its_names() -> None:
    traces = job(
        ([collective(1, group=-1), collective(2, 2)], ("0",), ()), ([collective(3), collective(4, group=-1)], ("",), ())
    )
    assert list_problems(traces) == [
        "trace: rank 1: collective 2 of all ranks = 'ALL_REDUCE of 64 bytes, node 4': "
        "rank 0 has ALL_GATHER of 64 bytes, node 2 there"
    ]


@pytest.mark.parametrize(
    ("groups", "sentences"),
    [
        (None, ["trace: rank 0: node 1: group = '1': no ranks are given for this group"]),
        ({}, ["trace: rank 0: node 1: group = '1': no such group"]),
        ({"1": [0]}, ["trace: rank 1: node 1: group = '1': the rank is not in this group"]),
        ({"1": [0, 1], "2": []}, ["trace: group = '2': has no ranks"]),
        ({"1": [0, 1], "2": [1, 0, 1]}, ["trace: group 2 = 1: the rank is listed twice"]),
        ({"1": [0, 1, 5]}, ["trace: group 1 = 5: the job has ranks 0 to 1"]),
    ],
)
def test_groups_fit_the_job(groups: Any, sentences: list[str]) -> None:
    assert list_problems(twins([collective(1)], [collective(1)]), groups) == sentences


def test_groups_that_nothing_defines_are_one_problem_where_none_are_given() -> None:
    traces = job(([collective(1), collective(2, group=1)], ("7", "8"), ()))
    assert list_problems(traces) == ["trace: rank 0: node 1: group = '7': no ranks are given for this group and 1 more"]
    assert len(list_problems(traces, {})) == 2


def metadata(text: str) -> dict[str, Any]:
    return {"id": 0, "type": NodeType.METADATA, "process_groups": text}


def test_groups_that_metadata_states_are_known() -> None:
    rows = [metadata("""['[{"pg_name": "3", "ranks": [0, 1]}]']"""), collective(1)]
    assert list_problems(twins(rows, rows, "3")) == []
    other = [metadata("""['[{"pg_name": "3", "ranks": [1]}]']"""), collective(1)]
    assert list_problems(twins(rows, other, "3")) == ["trace: process group 3 = [1]: another node says [0, 1]"]
    assert list_problems(twins(rows, other, "3"), {"3": [0, 1]}) != []


# ---- real traces


@pytest.mark.skipif(not REFERENCE.is_dir(), reason="needs the reference traces")
@pytest.mark.parametrize(
    ("prefix", "endings"),
    [
        ("astra_sim/custom_ring_allreduce_8npus_1MB/custom_allreduce", set()),
        ("astra_sim/all_to_all_4npus_1MB/all_to_all", set()),
        ("generated/dp", set()),
        ("generated/one_comm_send_node", {"a COMM_SEND node needs it"}),
        (
            "chakra_tests/chakra",
            {
                "no node has this id",
                "a node cannot wait for itself",
                "node 6345 'aten::copy_(0)' -> node 6347 'aten::copy_(1)' -> node 6345",
                "a COMM_COLL node needs it",
                "1,689 problems in all",
            },
        ),
    ],
)
def test_reference_traces_have_the_problems_they_are_known_for(prefix: str, endings: set[str]) -> None:
    sentences = list_problems(read_traces(REFERENCE / prefix))
    assert {sentence.rpartition(": ")[2] for sentence in sentences} == endings


def test_many_ranks_in_a_ring_agree() -> None:
    template = template_of([collective(1), send(2, peer=0), receive(3, peer=1)])
    count = 2000
    ranks = (RankTrace(template, ("1",), ((each + 1) % count, (each - 1) % count), each) for each in range(count))
    traces = TraceSet(tuple(ranks))
    assert list_problems(traces, {"1": range(count)}) == []


def recorded(*sizes: tuple[int, ...], kind: CollectiveType = CollectiveType.ALL_REDUCE) -> TraceSet:
    """Return ranks that recorded collectives of so many bytes in group 1."""
    nodes = [
        [
            {
                "id": at,
                "type": NodeType.COMM_COLL,
                "comm_type": int(kind),
                "comm_size": size,
                "start_ns": at,
                "group": 0,
            }
            for at, size in enumerate(each)
        ]
        for each in sizes
    ]
    return TraceSet(tuple(RankTrace(template_of(each), ("1",)) for each in nodes))


def test_one_rank_of_a_job_may_be_replayed_alone() -> None:
    # Its group has ranks 0 and 1, of which only 0 is there: the replay takes its waits as they were recorded.
    alone = recorded((8, 16))
    assert list_problems(alone, {"1": (0, 1)}, replayed=is_replayed(alone)) == []
    assert list_problems(alone, {"1": (0, 1)}) == ["trace: group 1 = 1: the job has ranks 0 to 0"]
    assert list_problems(alone, {"1": (0, -1)}, replayed=True) == [
        "trace: group 1 = -1: the job has ranks 0 to 2,147,483,647"
    ]


def test_recorded_ranks_may_have_other_numbers_of_collectives_and_uneven_all_to_alls() -> None:
    groups = {"1": (0, 1)}
    assert list_problems(recorded((8, 16), (8,)), groups, replayed=True) == []
    assert len(list_problems(recorded((8, 16), (8,)), groups)) == 1
    assert list_problems(recorded((8,), (24,), kind=CollectiveType.ALL_TO_ALL), groups, replayed=True) == []
    assert (
        len(list_problems(recorded((8,), (24,)), groups, replayed=True)) == 1
    )  # an all-reduce moves as much everywhere
