"""The document of traces: times, rows, critical paths, what is wrong, and columns that read back as they were."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosmic.base.errors import SpecError
from cosmic.report import trace_page as trace_view
from cosmic.report.container import Binary, plain_data
from cosmic.report.html_file import render_trace
from cosmic.report.trace_page import document_of_traces, percent_of, schedule_of, tracks_of
from cosmic.traces.trace import NodeType, RankTrace, Template, TraceSet, template_of
from cosmic.traces.trace_statistics import union_length
from tests.report.publishing.pages import held_by
from tests.report.publishing.unpacking import numbers_of

COMP, COLL = NodeType.COMP, NodeType.COMM_COLL


def node(place: int, **stated: Any) -> dict[str, Any]:
    return {"id": place, "type": COMP, "name": f"n{place}", **stated}


def document(*ranks: RankTrace) -> tuple[dict[str, Any], bytes]:
    binary = Binary()
    found = plain_data(document_of_traces(TraceSet(ranks), "job", binary))
    return json.loads(json.dumps(found)), b"".join(binary.planes)


def view(template: Template) -> tuple[dict[str, Any], bytes]:
    found, binary = document(RankTrace(template))
    return found["views"][0], binary


def signed(column: dict[str, Any], binary: bytes) -> list[int]:
    written = numbers_of(column["numbers"], binary).astype(np.int64)
    values = np.where(written % 2, -(written + 1) // 2, written // 2)
    return list(np.cumsum(values) if column["running"] else values)


def facts(found: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {each["label"]: (each["text"], each["note"]) for each in found["facts"]}


# ---- times


def test_nodes_start_when_all_that_they_depend_on_is_done() -> None:
    schedule = schedule_of(
        template_of([node(1, duration_us=5), node(2, duration_us=7), node(3, data=[1], ctrl=[2], duration_us=1)])
    )
    assert (schedule.start.tolist(), schedule.end) == ([0, 0, 7], 8)
    assert (schedule.critical.tolist(), schedule.critical_length) == ([1, 2], 8)
    assert (schedule.unit, schedule.tick) == ("s", 1e-6)


def test_without_durations_each_node_takes_a_step() -> None:
    schedule = schedule_of(template_of([node(1), node(2, data=[1]), node(3, data=[1]), node(4, data=[2, 3])]))
    assert (schedule.start.tolist(), schedule.unit, schedule.end) == ([0, 1, 1, 2], "steps", 3)


def test_recorded_times_are_kept_and_unrecorded_nodes_follow_their_dependencies() -> None:
    schedule = schedule_of(
        template_of(
            [
                node(1, start_ns=100, duration_ns=50, stream=1, on_cpu=1),
                node(2, start_ns=170, duration_ns=30, stream=7, data=[1]),
                node(3, data=[2]),
            ]
        )
    )
    assert schedule.start.tolist() == [0, 70, 100]  # from the first start on
    assert (schedule.recorded, schedule.tick, schedule.timeless) == (True, 1e-9, 1)


def test_the_recorded_critical_path_counts_an_outer_node_until_its_inner_one_begins() -> None:
    schedule = schedule_of(
        template_of(
            [
                node(1, start_ns=0, duration_ns=100, stream=1, on_cpu=1),
                node(2, start_ns=20, duration_ns=30, stream=1, on_cpu=1, ctrl=[1]),
                node(3, start_ns=60, duration_ns=90, stream=7, data=[2]),
            ]
        )
    )
    assert schedule.critical.tolist() == [0, 1, 2]
    assert schedule.critical_length == 20 + 30 + 90  # it waits for 10 ns, of a span of 150


@given(st.lists(st.tuples(st.integers(0, 9), st.lists(st.integers(0, 30), max_size=3)), max_size=30))
def test_no_node_starts_before_what_it_depends_on_ends(rows: list[tuple[int, list[int]]]) -> None:
    nodes = [
        node(place, duration_us=lasting, data=[each for each in data if each < place])
        for place, (lasting, data) in enumerate(rows)
    ]
    schedule = schedule_of(template_of(nodes))
    ends = schedule.start + schedule.duration
    assert all(schedule.start[place] >= ends[each] for place, row in enumerate(nodes) for each in row["data"])
    assert schedule.critical_length == schedule.end
    tracks = tracks_of(template_of(nodes), schedule)
    assert len(tracks.of) == len(nodes)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=20))
def test_the_covered_time_is_that_of_the_union(spans: list[tuple[int, int]]) -> None:
    start = np.array([each[0] for each in spans], np.int64)
    length = np.array([each[1] for each in spans], np.int64)
    union = {instant for begin, lasting in spans for instant in range(begin, begin + lasting)}
    assert union_length(start, start + length) == len(union)


# ---- rows


def test_nested_nodes_of_a_thread_are_drawn_on_rows_below() -> None:
    template = template_of(
        [
            node(1, start_ns=0, duration_ns=100, stream=3, on_cpu=1),
            node(2, start_ns=10, duration_ns=20, stream=3, on_cpu=1),
            node(3, start_ns=40, duration_ns=20, stream=3, on_cpu=1),
            node(4, start_ns=50, duration_ns=20, stream=7),
            node(5, type=COLL, comm_type=0, start_ns=70, duration_ns=5, stream=20),
        ]
    )
    tracks = tracks_of(template, schedule_of(template))
    assert tracks.processes == ["CPU threads", "CUDA streams", "communication"]
    assert [tracks.names[each] for each in tracks.of] == [
        "thread 3",
        "thread 3, level 2",
        "thread 3, level 2",
        "stream 7",
        "stream 20",
    ]


def test_unrecorded_nodes_are_in_slots() -> None:
    template = template_of([node(1), node(2, type=COLL, data=[1]), node(3, on_cpu=1), node(4, type=NodeType.METADATA)])
    tracks = tracks_of(template, schedule_of(template))
    assert [tracks.names[each] for each in tracks.of] == ["compute", "communication", "CPU", "other"]


# ---- numbers


def test_shares_of_the_span_by_hand() -> None:
    found, _ = view(
        template_of(
            [
                node(1, start_ns=0, duration_ns=400, stream=7),
                node(2, type=COLL, comm_type=0, start_ns=300, duration_ns=300, stream=20, data=[1]),
                node(3, start_ns=800, duration_ns=200, stream=7, data=[2]),
            ]
        )
    )
    said = facts(found)
    assert said["span"] == ("1 µs", "as recorded")
    assert said["compute"][0] == "60 %"
    assert said["communication"] == ("30 %", "20 % exposed")
    assert said["idle"][0] == "20 %"
    assert said["critical path"] == ("800 ns", "3 nodes, 80 % of the span")  # 300 + 300 + 200


def test_operators_are_added_up_by_name() -> None:
    rows = [
        node(1, name="gemm", duration_us=3),
        node(2, name="gemm", duration_us=3),
        node(3, name="norm", duration_us=2),
    ]
    found, _ = view(template_of(rows))
    assert [(each["name"], each["count"], each["share"]) for each in found["operators"]] == [
        ("gemm", 2, 0.75),
        ("norm", 1, 0.25),
    ]
    assert found["operators"][0]["total"] == pytest.approx(6e-6)


def test_where_every_name_is_its_own_numbers_are_left_out() -> None:
    found, _ = view(
        template_of([node(place, name=f"mb{place}.layer{place % 7}.ffn", duration_us=1) for place in range(50)])
    )
    assert [(each["name"], each["count"]) for each in found["operators"]] == [("mb*.layer*.ffn", 50)]
    assert "* stands for a number" in found["operators_note"]


def test_kernels_are_added_up_by_class() -> None:
    rows = [node(1, work="gemm m=8 n=8"), node(2, work="gemm m=4 n=4"), node(3, work="copy"), node(4)]
    found, _ = view(template_of(rows))
    assert [(each["name"], each["count"]) for each in found["kernels"]] == [("gemm", 2), ("copy", 1)]


def test_shares_are_never_rounded_to_nothing_or_all() -> None:
    assert percent_of(1, 10**6) == "<0.1 %"
    assert percent_of(999_999, 10**6) == "99.9 %"
    assert percent_of(1, 1) == "100 %"


# ---- what is wrong


def test_a_cycle_is_said_and_the_rest_is_drawn() -> None:
    found, binary = view(template_of([node(1, data=[3]), node(2, data=[1]), node(3, data=[2])]))
    (said,) = found["problems"]
    assert "cycle, 1 → 3 → 2 → 1" in said
    assert signed(found["nodes"]["start"], binary) == [0, 1, 2]  # along dependencies on smaller ids
    assert not numbers_of(found["nodes"]["critical"], binary).any()
    assert "critical path" not in facts(found)


def test_dependencies_on_absent_nodes_and_on_itself_are_said_and_kept() -> None:
    found, binary = view(template_of([node(1, data=[9, 1]), node(2, ctrl=[8])]))
    own, absent = found["problems"]
    assert own == "1 dependency is of a node on itself; the first, of node 1."
    assert absent == "2 dependencies are on a node that the trace does not have; the first, of node 1."
    nodes = found["nodes"]
    assert numbers_of(nodes["absent"]["node"], binary).tolist() == [0, 1]
    assert numbers_of(nodes["absent"]["id"], binary).tolist() == [9, 8]
    assert numbers_of(nodes["data"]["counts"], binary).tolist() == [1, 0]


def test_an_empty_trace_is_said() -> None:
    found, _ = view(template_of([]))
    assert found["problems"] == ["The trace has no nodes."]
    assert (found["duration"], found["tracks"], found["operators"]) == (0, [], [])


def test_too_many_nodes_are_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_view, "MOST_NODES", 2)
    many = RankTrace(template_of([node(1), node(2), node(3)]))
    with pytest.raises(SpecError, match=r"has 3 nodes in ranks that differ, and a page holds 2 at most$"):
        document(many)
    with pytest.raises(SpecError, match=r"such as PREFIX\.0\.et"):
        document(many, many)
    few = template_of([node(1), node(2)])
    found, _ = document(*(RankTrace(few) for _ in range(9)))  # those that run the same count once
    assert len(found["ranks"]) == 9


# ---- columns


def test_columns_read_back_as_they_were() -> None:
    rows = [
        node(7, name="a", duration_us=4, num_ops=2**60, tensor_size=4096),
        node(2**40, type=COLL, name="b", comm_type=2, comm_size=8, group=0, comm_tag=5, data=[7], involved_dims=5),
        node(2**40 + 9, type=NodeType.COMM_SEND, name="a", peer=0, ctrl=[7], comm_priority=3, data=[2**40]),
    ]
    found, binary = document(RankTrace(template_of(rows), ("dp",), (6,)))
    one = found["views"][0]
    nodes = one["nodes"]
    assert signed(nodes["id"], binary) == [7, 2**40, 2**40 + 9]
    assert [one["names"][each] for each in numbers_of(nodes["name"], binary)] == ["a", "b", "a"]
    assert [one["types"][each] for each in numbers_of(nodes["type"], binary)] == ["COMP", "COMM_COLL", "COMM_SEND"]
    assert [found["kinds"][each] for each in numbers_of(nodes["kind"], binary)] == ["compute"] + 2 * ["communication"]
    assert numbers_of(nodes["duration"], binary).tolist() == [4, 0, 0]
    assert numbers_of(nodes["data"]["counts"], binary).tolist() == [0, 1, 1]
    assert signed(nodes["data"]["back"], binary) == [1, 1]
    assert signed(nodes["ctrl"]["back"], binary) == [2]
    stated = {
        each["name"]: [each["values"][code] for code in numbers_of(each["codes"], binary)]
        for each in nodes["attributes"]
    }
    assert stated == {
        "comm_type": [None, "ALL_GATHER", None],
        "num_ops": [2**60, None, None],
        "tensor_size": [4096, None, None],
        "comm_size": [None, 8, None],
        "group": [None, 0, None],
        "peer": [None, None, 0],
        "comm_tag": [None, 5, None],
        "comm_priority": [None, None, 3],
        "involved_dims": [None, "0 2", None],
    }
    assert found["ranks"] == [{"rank": 0, "view": 0, "groups": ["dp"], "peers": [6]}]


def test_attributes_of_many_values_are_numbers() -> None:
    count = trace_view.MOST_VALUES + 5
    found, binary = view(template_of([node(place, delay_ns=place if place else -1) for place in range(count)]))
    (delay,) = found["nodes"]["attributes"]
    assert numbers_of(delay["numbers"], binary).tolist() == [0, *range(2, count + 1)]
    assert delay["worth"] == 1e-9


def test_ranks_that_run_the_same_share_a_view() -> None:
    one, other = template_of([node(1)]), template_of([node(1), node(2)])
    found, _ = document(RankTrace(one, ("a",)), RankTrace(other), RankTrace(one, ("b",)))
    assert [(each["rank"], each["view"], each["groups"]) for each in found["ranks"]] == [
        (0, 0, ["a"]),
        (1, 1, []),
        (2, 0, ["b"]),
    ]
    said = {each["label"]: each["text"] for each in found["facts"]}
    assert said == {"ranks": "3", "nodes of all ranks": "4"}


# ---- page


def test_the_page_holds_its_document_and_hostile_names_as_text() -> None:
    binary = Binary()
    rows = [node(1, name='</script><script>alert("x")</script>'), node(2, name="\x00\x1b[31m")]
    made = document_of_traces(TraceSet((RankTrace(template_of(rows)),)), "<b>job</b>", binary)
    page = render_trace(made, binary)
    held, _ = held_by(page)
    assert held["views"][0]["names"][0] == '</script><script>alert("x")</script>'
    assert "alert" not in page
    assert "&lt;b&gt;job" in page
    assert re.search(r"default-src 'none'; script-src 'sha256-", page)
    assert '<th scope="row">nodes</th><td>2</td>' in page  # without scripts, too


STATED = ("duration_us", "start_ns", "duration_ns", "stream", "num_ops", "comm_size", "delay_ns")
HUGE = st.sampled_from([-(2**63), -2, -1, 0, 1, 7, 2**31, 2**53, 2**62, 2**63 - 1])


@settings(max_examples=40)
@given(
    st.lists(
        st.fixed_dictionaries(
            {"type": st.sampled_from([*range(9), 44]), "data": st.lists(st.integers(0, 9) | HUGE, max_size=3)},
            optional=dict.fromkeys(STATED, HUGE)
            | {"on_cpu": st.integers(0, 1), "name": st.text(max_size=5), "work": st.text(max_size=5)},
        ),
        max_size=8,
    ),
    st.booleans(),
)
def test_any_nodes_are_drawn_or_refused_in_a_sentence(rows: list[dict[str, Any]], far: bool) -> None:
    first = 2**63 - 9 if far else 0
    template = template_of([{**row, "id": first + place} for place, row in enumerate(rows)])
    try:
        found, binary = view(template)
    except SpecError as error:
        assert "add up to" in str(error)
        return
    start, duration = signed(found["nodes"]["start"], binary), numbers_of(found["nodes"]["duration"], binary)
    assert all(each >= 0 for each in start)
    assert found["duration"] == pytest.approx(max((np.array(start) + duration).tolist(), default=0) * found["tick"])
    assert len(numbers_of(found["nodes"]["track"], binary)) == len(rows)
