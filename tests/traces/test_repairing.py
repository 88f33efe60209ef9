"""What is wrong with traces is mended, and said; what is right stays as it is."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosmic.base.errors import SpecError
from cosmic.traces import repaired_traces
from cosmic.traces.chakra.trace_reader import read_trace, read_traces
from cosmic.traces.chakra.trace_writer import write_traces
from cosmic.traces.dependencies import dependencies_of, topological_order
from cosmic.traces.repaired_traces import (
    KINDS,
    RepairedTraces,
    copy_to_ranks,
    dependencies_of_kind,
    find_closing_dependencies,
    repair_traces,
    without_nodes,
)
from cosmic.traces.trace import COLUMNS, CollectiveType, NodeType, RankTrace, Template, TraceSet, template_of
from cosmic.traces.trace_checks import list_problems
from tests.traces.graphs import Rows, collective, comp, graphs, one_rank, receive, send

REFERENCE = Path(__file__).parents[3] / "shared" / "reference" / "chakra"
needs_reference = pytest.mark.skipif(not REFERENCE.is_dir(), reason="the collection of traces is not there")


def job(*ranks: Rows, groups: tuple[str, ...] = ("1",), peers: tuple[tuple[int, ...], ...] = ()) -> TraceSet:
    """Return a job of these ranks' nodes."""
    given = peers or ((0,),) * len(ranks)
    return TraceSet(
        tuple(RankTrace(template_of(rows), groups, others) for rows, others in zip(ranks, given, strict=True))
    )


def waits(template: Template, kind: str) -> dict[int, list[int]]:
    """Return the ids that each node waits for."""
    start, ids = getattr(template, f"{kind}_start").tolist(), getattr(template, f"{kind}_id").tolist()
    return {node: ids[a:b] for node, (a, b) in zip(template.id.tolist(), pairwise(start), strict=True) if a < b}


def done(result: RepairedTraces) -> list[tuple[int, str]]:
    """Return what was done, and how often."""
    return [(each.count, each.what) for each in result.done]


def same(one: Template, other: Template) -> bool:
    """Return whether two templates are equal in everything."""
    names = [*COLUMNS, "data_start", "data_id", "ctrl_start", "ctrl_id"]
    return (
        all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)
        and list(one.names) == list(other.names)
        and dict(one.process_groups) == dict(other.process_groups)
    )


# ---- what is right


@settings(max_examples=30)
@given(graphs(8))
def test_a_valid_trace_is_returned_itself(rows: Rows) -> None:
    for row in rows:
        row["data"], row["ctrl"] = list(dict.fromkeys(row["data"])), list(dict.fromkeys(row["ctrl"]))
    traces = one_rank(rows)
    result = repair_traces(traces, drop_unmatched=True)
    assert (result.done, result.left, result.groups) == ((), (), None)
    assert result.traces is traces


def test_a_valid_job_with_groups_and_messages_is_returned_itself() -> None:
    rows = [comp(1), collective(2, data=[1]), send(3), receive(4), collective(5, CollectiveType.BARRIER, -1)]
    traces = job(rows, rows, peers=((1,), (0,)))
    groups = {"1": (0, 1)}
    assert list_problems(traces, groups) == []
    result = repair_traces(traces, groups, drop_unmatched=True)
    assert (result.done, result.left) == ((), ())
    assert result.traces is traces
    assert result.groups is groups


@st.composite
def broken(draw: st.DrawFn) -> TraceSet:
    """Draw a job in which anything may be wrong."""
    ranks = draw(st.integers(1, 3))
    number, ids = st.integers(-1, 2), st.integers(0, 9)
    node = st.fixed_dictionaries(
        {
            "id": ids,
            "type": st.integers(0, 7),
            "data": st.lists(ids, max_size=3),
            "ctrl": st.lists(ids, max_size=2),
            "on_cpu": st.integers(0, 1),
            "duration_us": st.integers(0, 1),
            "start_ns": st.integers(-1, 4),
            "comm_type": number,
            "comm_size": number,
            "comm_tag": number,
            "num_ops": number,
            "group": number,
            "peer": st.integers(-1, 1),
            "name": st.sampled_from(["", "ncclKernel_AllReduce", "step"]),
        }
    )
    templates = [template_of(draw(st.lists(node, max_size=8))) for _ in range(draw(st.integers(1, 2)))]
    name = st.sampled_from(["1", "2", "tp", "0", "", "7"])
    bound = [
        RankTrace(
            draw(st.sampled_from(templates)),
            tuple(draw(st.lists(name, min_size=3, max_size=3, unique=True))),
            tuple(draw(st.lists(st.integers(-1, 3), min_size=2, max_size=2, unique=True))),
        )
        for _ in range(ranks)
    ]
    return TraceSet(tuple(bound))


@settings(max_examples=40)
@given(broken(), st.booleans(), st.sampled_from([None, {"1": (0,)}, {"2": (0, 1)}]))
def test_a_repair_leaves_only_what_no_rank_can_know_and_is_done_once(
    traces: TraceSet, drop: bool, groups: dict[str, tuple[int, ...]] | None
) -> None:
    result = repair_traces(traces, groups, drop_unmatched=drop)
    for rank in result.traces.ranks:
        template = rank.template
        assert (np.diff(template.id) > 0).all()
        found = dependencies_of(template)
        assert not found.absent.any()
        assert not (found.row == found.dependent).any()
        assert len(topological_order(found)) == template.nodes
        assert ((template.type > NodeType.INVALID) & (template.type <= NodeType.COMM_COLL)).all()
        assert not ((template.type >= NodeType.COMM_SEND) & (template.on_cpu != 0)).any()
    for sentence in result.left:
        assert "cycle" not in sentence
        assert "depends on" not in sentence
        assert "type = 0" not in sentence
        assert not (drop and "sends to" in sentence)
    again = repair_traces(result.traces, result.groups, drop_unmatched=drop)
    assert again.done == ()
    assert again.left == result.left
    assert all(
        one.template is other.template for one, other in zip(result.traces.ranks, again.traces.ranks, strict=True)
    )


# ---- dependencies


def test_dependencies_that_cannot_be_satisfied_are_dropped_and_counted() -> None:
    rows = [comp(4, 9, name="matmul"), comp(7, 4, 7, 4, ctrl=[4, 3])]
    result = repair_traces(one_rank(rows))
    template = result.traces.ranks[0].template
    assert (waits(template, "data"), waits(template, "ctrl")) == ({7: [4]}, {7: [4]})
    assert done(result) == [
        (1, "data dependencies on absent nodes dropped"),
        (1, "data self dependencies dropped"),
        (1, "data repeated dependencies dropped"),
        (1, "control dependencies on absent nodes dropped"),
    ]
    assert result.done[0].example == "trace: rank 0: node 4 'matmul' waited for node 9"
    assert result.left == ()


def test_repairs_count_all_ranks_of_a_template() -> None:
    traces = TraceSet((RankTrace(template_of([comp(4, 9)])),) * 3, "job")
    result = repair_traces(traces)
    assert done(result) == [(3, "data dependencies on absent nodes dropped")]
    assert result.done[0].example == "job: rank 0 and 2 more: node 4 waited for node 9"
    assert len(result.traces.templates()) == 1


@pytest.mark.parametrize(
    ("rows", "data", "ctrl"),
    [
        # control goes before data, though it is the one that points to an earlier node
        ([comp(4, 7), comp(7, ctrl=[4])], {4: [7]}, {}),
        # of two control dependencies, the one on the higher id
        ([comp(4, ctrl=[7]), comp(7, ctrl=[4])], {}, {7: [4]}),
        # of two data dependencies, the one on the node that started later
        ([comp(4, 7, start_ns=9), comp(7, 4, start_ns=2)], {4: [7]}, {}),
        # one dependency closes both cycles
        ([comp(1, 3), comp(2, 1), comp(3, 1, 2)], {2: [1], 3: [1, 2]}, {}),
        # what waits for a cycle, what a cycle waits for, and what is between two cycles stays
        (
            [comp(1), comp(2, 1, ctrl=[3]), comp(3, 2), comp(4, 3), comp(5, 4, ctrl=[6]), comp(6, 5), comp(7, 6)],
            {2: [1], 3: [2], 4: [3], 5: [4], 6: [5], 7: [6]},
            {},
        ),
    ],
)
def test_a_cycle_loses_its_least_credible_dependency(
    rows: Rows, data: dict[int, list[int]], ctrl: dict[int, list[int]]
) -> None:
    result = repair_traces(one_rank(rows))
    template = result.traces.ranks[0].template
    assert (waits(template, "data"), waits(template, "ctrl")) == (data, ctrl)
    assert result.left == ()
    assert all("closed a cycle" in each.what for each in result.done)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7), st.booleans()), max_size=24))
def test_what_is_dropped_would_close_a_cycle_with_what_is_kept(edges: list[tuple[int, int, bool]]) -> None:
    edges = list(dict.fromkeys(edge for edge in edges if edge[0] != edge[1]))
    rows = [
        comp(
            node,
            *(b for a, b, is_ctrl in edges if a == node and not is_ctrl),
            ctrl=[b for a, b, c in edges if a == node and c],
        )
        for node in range(8)
    ]
    template = repair_traces(one_rank(rows)).traces.ranks[0].template
    kept = {(a, b) for kind in KINDS for a, ids in waits(template, kind).items() for b in ids}
    reached = _reached(kept)
    for a, b, is_ctrl in edges:
        if b not in waits(template, "ctrl" if is_ctrl else "data").get(a, []):
            assert a in reached[b]


def _reached(edges: set[tuple[int, int]]) -> dict[int, set[int]]:
    """Return what each node waits for, directly or not."""
    found: dict[int, set[int]] = {node: {b for a, b in edges if a == node} for node in range(8)}
    for _ in range(8):
        for ids in found.values():
            ids |= {further for each in ids for further in found[each]}
    return found


def test_too_many_cycles_are_broken_without_a_search() -> None:
    template = template_of([comp(1, 2), comp(2, 3), comp(3, 1)])
    kinds = [dependencies_of_kind(template, kind) for kind in KINDS]
    closing = find_closing_dependencies(dependencies_of(template), kinds, np.arange(3), most=0)
    assert [each.tolist() for each in closing.unsure] == [[True, True, False], []]
    assert not any(each.any() for each in closing.certain)


# ---- nodes


def test_nodes_with_the_same_id_are_renumbered_and_copies_dropped() -> None:
    rows = [comp(4, name="a"), comp(4, name="b"), comp(4, name="b"), comp(5, 4), comp(7, 4)]
    result = repair_traces(one_rank(rows))
    template = result.traces.ranks[0].template
    assert list(zip(template.id.tolist(), template.names, strict=True)) == [(4, "a"), (5, ""), (6, "b"), (7, "")]
    assert waits(template, "data") == {5: [4], 7: [4]}
    assert done(result) == [(1, "copies of nodes dropped"), (1, "nodes with the id of another node renumbered")]
    assert result.done[1].example == "trace: rank 0: node 4 'b' is node 6 now: an earlier node has its id"


def test_an_id_without_a_next_one_gets_the_first_free_one() -> None:
    last = 2**63 - 1
    template = repair_traces(one_rank([comp(0), comp(last, name="a"), comp(last, name="b")])).traces.ranks[0].template
    assert list(zip(template.id.tolist(), template.names, strict=True)) == [(0, ""), (1, "b"), (last, "a")]


def test_the_reader_keeps_nodes_with_the_same_id_only_on_request(tmp_path: Path) -> None:
    traces = one_rank([comp(4, name="a"), comp(4, name="b")])
    write_traces(traces, tmp_path / "job")
    with pytest.raises(SpecError, match="two nodes have this id"):
        read_traces(tmp_path / "job")
    assert read_traces(tmp_path / "job", distinct_ids=False).ranks[0].template.id.tolist() == [4, 4]
    write_traces(TraceSet(traces.ranks * 2), tmp_path / "job")
    kept = read_traces(tmp_path / "job", distinct_ids=False)
    assert [list(rank.template.names) for rank in kept.ranks] == [["a", "b"]] * 2


def test_a_node_without_a_type_becomes_what_its_attributes_say() -> None:
    rows = [
        {"id": 1, "comm_type": 2, "comm_size": 8},
        {"id": 2, "num_ops": 5},
        {"id": 3, "duration_us": 5},
        {"id": 4, "type": 9, "tensor_size": 0},
    ]
    result = repair_traces(one_rank(rows))
    assert result.traces.ranks[0].template.type.tolist() == [NodeType.COMM_COLL, *[NodeType.COMP] * 3]
    assert done(result) == [(1, "nodes without a type made COMM_COLL"), (3, "nodes without a type made COMP")]


def test_what_waited_for_a_dropped_node_waits_for_what_it_waited_for() -> None:
    rows = [comp(1), comp(2), {"id": 3, "data": [1], "ctrl": [2]}, {"id": 4, "data": [3]}, comp(5, 4, 1, ctrl=[3])]
    result = repair_traces(one_rank(rows))
    template = result.traces.ranks[0].template
    assert template.id.tolist() == [1, 2, 5]
    assert (waits(template, "data"), waits(template, "ctrl")) == ({5: [1]}, {5: [2, 1]})
    assert done(result) == [(2, "nodes without a type dropped")]


@settings(max_examples=40)
@given(graphs(8), st.data())
def test_dropping_nodes_keeps_who_waits_for_whom(rows: Rows, data: st.DataObject) -> None:
    template = template_of(rows)
    dropped = np.array(data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))))
    made = without_nodes(template, dropped, "trace")

    def ancestors(of: Template) -> dict[int, set[int]]:
        found: dict[int, set[int]] = {}
        data, ctrl = waits(of, "data"), waits(of, "ctrl")
        direct = {node: {*data.get(node, ()), *ctrl.get(node, ())} for node in of.id.tolist()}
        for row in topological_order(dependencies_of(of)).tolist():
            node = int(of.id[row])
            found[node] = direct[node].union(*(found[each] for each in direct[node]))
        return found

    kept = set(made.id.tolist())
    assert ancestors(made) == {node: ids & kept for node, ids in ancestors(template).items() if node in kept}


def test_dropping_nodes_says_when_too_many_dependencies_would_come_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repaired_traces, "MOST_DEPENDENCIES", 8)
    rows = [comp(1), comp(2), comp(3), {"id": 4, "data": [1, 2, 3]}, *(comp(node, 4) for node in (5, 6, 7))]
    with pytest.raises(SpecError, match="nodes to drop = 1: their dependents would wait for 12 nodes, more than the 8"):
        repair_traces(one_rank(rows))


# ---- communication


def test_communication_runs_on_the_accelerator_and_operators_that_launch_it_are_compute() -> None:
    launch = {"id": 1, "type": 7, "on_cpu": 1, "name": "c10d::allreduce_(0)"}
    result = repair_traces(one_rank([launch, collective(2, on_cpu=1, group=-1, data=[1])]))
    template = result.traces.ranks[0].template
    assert template.type.tolist() == [NodeType.COMP, NodeType.COMM_COLL]
    assert template.on_cpu.tolist() == [1, 0]
    assert done(result) == [
        (1, "collectives on the CPU without type and size made COMP"),
        (1, "communication nodes moved from the CPU to the accelerator"),
    ]


def test_the_type_of_a_collective_is_taken_from_its_name() -> None:
    names = ["ncclDevKernel_AllGather_RING_LL(x)", "nccl:_reduce_scatter_base", "c10d::alltoall_base_", "?"]
    rows = [collective(node, -1, group=-1, name=name) for node, name in enumerate(names)]
    result = repair_traces(one_rank(rows))
    assert result.traces.ranks[0].template.comm_type.tolist() == [2, 7, 6, -1]
    assert done(result) == [(3, "types of collectives taken from names")]
    assert result.left == ("trace: rank 0: node 3 '?': comm_type = None: a COMM_COLL node needs it",)


def test_types_and_sizes_come_from_the_same_collective_of_other_ranks() -> None:
    whole = [collective(1, 2, 64), collective(2, 0, 32)]
    lacking = [collective(5, 2, -1), collective(9, -1, 32, name="x")]
    traces = job(whole, lacking, whole)
    result = repair_traces(traces, {"1": (0, 1, 2)})
    template = result.traces.ranks[1].template
    assert (template.comm_type.tolist(), template.comm_size.tolist()) == ([2, 0], [64, 32])
    assert done(result) == [
        (1, "types of collectives taken from other ranks"),
        (1, "sizes of collectives taken from other ranks"),
    ]
    assert result.done[1].example == "trace: rank 1: node 5 has 64 bytes, as other ranks say"
    assert result.left == ()
    assert result.traces.ranks[0].template is traces.ranks[0].template


@pytest.mark.parametrize(
    "others",
    [
        [[collective(1, 2, 64)], [collective(1, 2, 32)]],  # they contradict each other
        [[collective(1, 0, 64)]],  # another type
        [[collective(1, 2, 64), collective(2, 2, 64)]],  # more of them: which is the same?
    ],
)
def test_a_size_that_other_ranks_do_not_agree_on_stays_open(others: list[Rows]) -> None:
    traces = job([collective(1, 2, -1)], *others)
    result = repair_traces(traces, {"1": tuple(range(len(traces.ranks)))})
    assert result.done == ()
    assert result.traces is traces
    assert "trace: rank 0: node 1: comm_size = None: a COMM_COLL node needs it" in result.left


def test_ranks_of_one_template_may_get_different_sizes() -> None:
    shared = template_of([collective(1, 2, -1)])
    other = [RankTrace(template_of([collective(1, 2, size)]), (name,)) for size, name in ((8, "1"), (16, "2"))]
    traces = TraceSet((RankTrace(shared, ("1",)), RankTrace(shared, ("2",)), *other))
    result = repair_traces(traces, {"1": (0, 2), "2": (1, 3)})
    assert [rank.template.comm_size.tolist() for rank in result.traces.ranks] == [[8], [16], [8], [16]]
    assert result.left == ()


def test_a_group_without_ranks_has_those_that_use_it_and_a_number() -> None:
    traces = job([collective(1)], [collective(1)], [comp(1)], groups=("tp",))
    result = repair_traces(traces, {"1": (1, 2)})
    assert result.groups == {"1": (1, 2), "2": (0, 1)}
    assert [rank.groups for rank in result.traces.ranks] == [("2",)] * 3
    assert result.left == ()
    assert done(result) == [
        (1, "groups that are not named by a number renamed"),
        (1, "groups without ranks given the ranks that use them"),
    ]


def test_collectives_without_a_group_get_the_one_whose_members_run_them() -> None:
    shared = RankTrace(template_of([collective(1, group=-1)]))
    traces = TraceSet((shared, shared, RankTrace(template_of([comp(1)]))))
    result = repair_traces(traces, {"1": (0, 1), "2": (1, 2)})
    assert result.left == ()
    assert done(result) == [(2, "collectives without a group given one")]
    assert [rank.groups for rank in result.traces.ranks] == [("1",), ("1",), ()]
    assert len(result.traces.templates()) == 2
    assert repair_traces(traces, {"2": (1, 2)}).done == ()  # no group fits


def test_collectives_without_a_group_may_get_one_that_was_not_defined() -> None:
    shared = RankTrace(template_of([collective(1), collective(2, group=-1)]), ("dp",))
    result = repair_traces(TraceSet((shared, shared, RankTrace(template_of([comp(1)])))))
    assert (result.left, result.groups) == ((), {"1": (0, 1)})
    assert [count for count, _ in done(result)] == [1, 1, 2]
    assert repair_traces(result.traces, result.groups).done == ()


def test_unmatched_messages_are_dropped_on_request_only() -> None:
    rows = [comp(1), send(2, data=[1]), receive(3, tag=1), comp(4, 2, 3)]
    traces = job(rows, [receive(1)], peers=((1,), (0,)))
    kept = repair_traces(traces)
    assert kept.traces is traces
    assert len(kept.left) == 1
    result = repair_traces(traces, drop_unmatched=True)
    assert result.left == ()
    assert waits(result.traces.ranks[0].template, "data") == {2: [1], 4: [2]}
    assert done(result) == [(1, "unmatched sends and receives dropped")]
    assert result.done[0].example == "trace: rank 0: node 3 matches nothing"


def test_messages_to_nobody_are_dropped_on_request_and_lacking_tags_are_0() -> None:
    rows = [send(1, tag=-1), send(2, peer=-1), send(3, peer=1)]
    traces = job(rows, [receive(7)], peers=((1, 5), (0,)))
    result = repair_traces(traces, drop_unmatched=True)
    assert result.traces.ranks[0].template.id.tolist() == [1]
    assert result.left == ()
    assert done(result) == [
        (1, "sends and receives without a tag given tag 0"),
        (2, "unmatched sends and receives dropped"),
    ]


def test_one_rank_is_copied_to_others_with_its_peers_as_far_away() -> None:
    trace = RankTrace(template_of([send(1), receive(2, peer=1)]), (), (3, 1), 2)
    traces = copy_to_ranks(trace, 4, "ring")
    assert list_problems(traces) == []
    assert [rank.peers for rank in traces.ranks] == [(1, 3), (2, 0), (3, 1), (0, 2)]


# ---- edge cases


@pytest.mark.parametrize("rows", [[], [comp(0)], [{"id": 0}]])
def test_next_to_nothing_is_repaired(rows: Rows) -> None:
    result = repair_traces(one_rank(rows))
    assert result.left == ()
    assert result.traces.nodes == sum(row.get("type", 0) for row in rows) / NodeType.COMP


def test_a_thousand_ranks_of_one_template_stay_one_template() -> None:
    template = template_of([comp(1, 9), collective(2, -1, name="allreduce")])
    traces = TraceSet((RankTrace(template, ("dp",)),) * 1024)
    result = repair_traces(traces)
    assert len(result.traces.templates()) == 1
    assert result.groups == {"1": tuple(range(1024))}
    assert result.left == ()


def test_names_and_process_groups_move_with_their_nodes() -> None:
    text = """['[{"pg_name": "1", "ranks": [0]}]']"""
    rows: list[dict[str, Any]] = [
        {"id": 1},
        {"id": 2, "type": 1, "name": "init", "process_groups": text},
        comp(3, 1, 2),
    ]
    made = repair_traces(one_rank(rows)).traces.ranks[0].template
    wanted = template_of([rows[1], comp(3, 2)])
    assert same(made, wanted)


@needs_reference
def test_a_trace_of_chakra_s_own_tests_is_repaired(tmp_path: Path) -> None:
    trace = read_trace(REFERENCE / "chakra_tests" / "chakra.0.et.gz")
    result = repair_traces(copy_to_ranks(trace, 2, "chakra"))
    assert done(result) == [
        (2 * 1277, "control dependencies on absent nodes dropped"),
        (2 * 383, "control self dependencies dropped"),
        (2 * 14, "collectives on the CPU without type and size made COMP"),
        (2 * 554, "control dependencies that closed a cycle dropped"),
    ]
    assert result.left == ()
    template = result.traces.ranks[0].template
    assert (template.nodes, len(template.data_id)) == (3664, 181_878)
    write_traces(result.traces, tmp_path / "chakra")
    assert same(read_traces(tmp_path / "chakra").ranks[1].template, template)
