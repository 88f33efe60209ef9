"""Schedules in files: what is written reads back, and others' files get times."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.network.link_graph import LinkGraph, graph_of
from cosmic.network.schedules.collective_schedule import Kind, Schedule
from cosmic.network.schedules.msccl_xml import msccl_text, parse_msccl, time_steps
from cosmic.network.schedules.schedule_checking import check_schedule, infer_reducing
from cosmic.network.schedules.schedule_formats import ScheduleOptions, read_schedule, schedule_timeline_text
from cosmic.network.schedules.schedule_replay import to_nanoseconds
from cosmic.network.schedules.schedule_tables import StatedCollective, parse_table, schedule_csv
from cosmic.report.schedule_files import schedule_svg, traces_of_schedule
from cosmic.simulate.events.trace_simulation import simulate
from cosmic.traces.chakra.trace_writer import write_traces
from cosmic.traces.trace import CollectiveType, NodeType, RankTrace, TraceSet, template_of
from cosmic.traces.trace_checks import list_problems
from tests.network.schedules.made import gathered, of_kind, random_graph, ring, star

KINDS: tuple[Kind, ...] = ("all_gather", "reduce_scatter", "all_reduce")
TAU = 2e-6


def exchanged(k: int = 1) -> Schedule:
    """Return an all-to-all of three NPUs over a ring one way: what goes two links is relayed."""
    graph = graph_of(3, [(i, (i + 1) % 3, 1e9, 1e-6) for i in range(3)])
    size = 3000.0 * k
    rows = []
    for number in range(k):
        for origin in range(3):
            near, far = (origin + 3 * ((origin + hop) % 3) + 9 * number for hop in (1, 2))
            rows += [(origin, far, 3 * number * TAU), (origin, near, (3 * number + 1) * TAU)]
            rows += [((origin + 1) % 3, far, (3 * number + 2) * TAU)]
    link, chunk, start = (np.array(column) for column in zip(*sorted(rows, key=lambda each: each[2]), strict=True))
    return Schedule(graph, "all_to_all", size, k, ((0, 1, 2),), link, chunk, start, start + TAU)


def read(folder: Path, text: str, stated: ScheduleOptions, name: str = "schedule") -> Schedule:
    """Return the schedule of a file of this content."""
    (folder / name).write_text(text, encoding="utf-8")
    return read_schedule(folder / name, stated)


# ---- tables


@pytest.mark.parametrize("kind", KINDS)
def test_csv_reads_back_to_the_bit(tmp_path: Path, kind: Kind) -> None:
    rng = np.random.default_rng(5)
    schedule = of_kind(kind, gathered(random_graph(rng, 6), 2, rng=rng))
    stated = ScheduleOptions(schedule.graph, kind, schedule.size_bytes)
    back = read(tmp_path, schedule_csv(schedule), stated)
    assert back.chunks_per_npu == 2
    for name in ("link", "chunk", "start_s", "end_s"):
        assert getattr(back, name).tolist() == getattr(schedule, name).tolist()
    assert check_schedule(back).valid
    adding = infer_reducing(schedule)
    assert back.reduces is not None
    assert (back.reduces == adding).all()
    wrong = check_schedule(replace(back, reduces=~adding))
    assert (wrong.valid, wrong.counts["operation"]) == (False, schedule.transfers)


def test_a_table_says_of_each_transfer_whether_it_reduces(tmp_path: Path) -> None:
    """Two NPUs: each adds up one half, and sends the sum back. A table without the column means the same."""
    graph = graph_of(2, [(0, 1, 1e9, 0.0), (1, 0, 1e9, 0.0)])
    head, rows = "source,target,chunk,start_s,end_s,operation", ["0,1,1,0,1e-6,reduce", "1,0,0,0,1e-6,reduce"]
    rows += ["1,0,1,1e-6,2e-6,copy", "0,1,0,1e-6,2e-6,COPY"]
    stated = ScheduleOptions(graph, "all_reduce", 2000.0)
    schedule = read(tmp_path, "\n".join([head, *rows]) + "\n", stated)
    assert check_schedule(schedule).valid
    assert schedule.reduces is not None
    assert schedule.reduces.tolist() == [True, True, False, False]
    bare = "\n".join(line.rpartition(",")[0] for line in [head, *rows]) + "\n"
    assert infer_reducing(read(tmp_path, bare, stated)).tolist() == [True, True, False, False]
    with pytest.raises(SpecError, match="an operation is copy or reduce"):
        read(tmp_path, f"{head}\n0,1,0,0,1e-6,add\n", stated)


def test_parallel_links_are_told_apart_by_who_is_free(tmp_path: Path) -> None:
    graph = graph_of(2, [(0, 1, 1e9, 1e-6), (0, 1, 1e9, 1e-6), (1, 0, 5e8, 0.0), (1, 0, 1e9, 1e-6)])
    rows = "source,target,chunk,start_s,end_s\n0,1,0,0.0,2e-6\n0,1,2,0.0,2e-6\n1,0,1,0.0,2e-6\n1,0,3,0.0,2e-6\n"
    schedule = read(tmp_path, rows, ScheduleOptions(graph, size_bytes=4000.0))
    assert sorted(schedule.link.tolist()) == [0, 1, 2, 3]
    assert check_schedule(schedule).valid


def test_a_log_begins_as_long_before_its_arrival_as_its_link_takes(tmp_path: Path) -> None:
    """1,003 bytes are 334 for each of three NPUs; 0.334 us and 1 us of latency."""
    log = "src,dst,chunk,arrival_us\n0,1,0,1.334000\n1,2,1,1.334000\n2,0,2,1.334000\n"
    schedule = read(tmp_path, log, ScheduleOptions(ring(3), size_bytes=1003.0))
    assert schedule.start_s.tolist() == pytest.approx([0.0] * 3, abs=1e-15)
    assert schedule.chunk_bytes() == pytest.approx(334.0, rel=1e-15)


def test_the_first_tacos_csv_is_timed_in_the_order_of_each_link(tmp_path: Path) -> None:
    """A ring of three one way, 1 GiB/s and 1 us, chunks of 1 MiB: two transfers in a row."""
    text = "NPUs Count,3\nLinks Count,3\nChunks Count,3\nChunk Size,1048576\n"
    text += "SrcID,DestID,Latency (ns),Bandwidth (GB/s),Chunks...\n"
    text += "0,1,1000,1,0,2\n1,2,1000,1,1,0\n2,0,1000,1,2,1\n"
    schedule = read(tmp_path, text, ScheduleOptions())
    assert check_schedule(schedule).valid
    assert schedule.time_s == pytest.approx(2 * (1e-6 + 1 / 1024), rel=1e-12)
    assert schedule.size_bytes == 3 * 2**20
    spare = text.replace("0,1,1000,1,0,2", "0,1,1000,1,0") + "1,0,1000,1,None\n"
    assert check_schedule(read(tmp_path, spare, ScheduleOptions())).counts["missing"] == 1
    with pytest.raises(SpecError, match="never receive their chunk"):
        read(tmp_path, text.replace("2,0,1000,1,2,1", "2,0,1000,1,None"), ScheduleOptions())
    faster = ScheduleOptions(ring(3, 2.0**31))
    assert read(tmp_path, text, faster).time_s < schedule.time_s


# ---- MSCCL


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_msccl_reads_back_with_the_same_time(kind: Kind, seed: int) -> None:
    rng = np.random.default_rng(seed)
    schedule = of_kind(kind, gathered(random_graph(rng, 4 + seed), 1 + seed, rng=rng))
    program = parse_msccl(msccl_text(schedule), "x")
    assert (program.kind, program.chunks_per_npu) == (kind, schedule.chunks_per_npu)
    back = time_steps(program, schedule.graph, schedule.size_bytes)
    assert check_schedule(back).valid
    assert back.transfers == schedule.transfers
    assert to_nanoseconds(back.time_s) == to_nanoseconds(schedule.time_s)


def test_tacos_numbers_places_by_chunk() -> None:
    """It writes chunk c at offset c, where the usual order is from rank to rank."""
    schedule = gathered(ring(3), 2)
    text = re.sub(
        r'off="(\d+)"', lambda found: f'off="{int(found[1]) % 2 * 3 + int(found[1]) // 2}"', msccl_text(schedule)
    )
    assert text != msccl_text(schedule)
    back = time_steps(parse_msccl(text, "x"), schedule.graph, schedule.size_bytes)
    assert check_schedule(back).valid
    assert sorted(back.chunk.tolist()) == sorted(schedule.chunk.tolist())


def test_an_all_to_all_relays_in_scratch_and_copies_its_own() -> None:
    schedule = exchanged(2)
    assert check_schedule(schedule).valid
    text = msccl_text(schedule)
    root = ElementTree.fromstring(text)
    assert (root.get("coll"), root.get("outofplace"), root.get("nchunksperloop")) == ("alltoall", "1", "6")
    assert [gpu.get("s_chunks") for gpu in root] == ["2", "2", "2"]
    steps = [step.attrib for step in root.iter("step")]
    assert sum(step["type"] == "cpy" for step in steps) == 6
    back = time_steps(parse_msccl(text, "x"), schedule.graph, schedule.size_bytes)
    assert check_schedule(back).valid
    assert to_nanoseconds(back.time_s) == to_nanoseconds(schedule.time_s)


def test_a_step_that_sends_waits_for_the_step_that_received() -> None:
    text = msccl_text(gathered(ring(3)))
    for gpu in ElementTree.fromstring(text):
        blocks = {block.get("id"): list(block) for block in gpu}
        for step in gpu.iter("step"):
            if step.get("depid") != "-1":
                before = blocks[step.get("depid")][int(step.get("deps", ""))]
                assert before.get("type") == "r"
                assert before.get("dstoff") == step.get("srcoff")
                assert before.get("hasdep") == "1"


def test_through_switches_a_message_is_one_step(tmp_path: Path) -> None:
    graph = star(3)
    rows = [(0, 0, 0.0), (4, 0, TAU), (0, 0, TAU), (5, 0, 2 * TAU)]
    link, chunk, start = (np.array(column) for column in zip(*rows, strict=True))
    schedule = Schedule(graph, "broadcast", 1000.0, 1, ((0, 1, 2),), link, chunk, start, start + TAU)
    text = msccl_text(schedule)
    assert [step.get("type") for step in ElementTree.fromstring(text).iter("step")] == ["s", "s", "r", "r"]
    back = read(tmp_path, text, ScheduleOptions(graph, size_bytes=1000.0))
    assert check_schedule(back).valid
    assert to_nanoseconds(back.time_s) == to_nanoseconds(schedule.time_s)
    both = replace(graph, reducing=frozenset({3}))
    with pytest.raises(SpecError, match="has no switches that reduce"):
        msccl_text(replace(schedule, graph=both))


OTHERS = """<?xml version="1.0"?>
<algo name="theirs" proto="Simple" nchannels="1" nchunksperloop="2" ngpus="2" coll="allreduce" inplace="1">
  <gpu id="0" i_chunks="2" o_chunks="0" s_chunks="1">
    <tb id="0" send="1" recv="1" chan="0">
      <step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="s" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="1" type="rrcs" srcbuf="i" srcoff="1" dstbuf="i" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="2" type="r" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
    </tb>
  </gpu>
  <gpu id="1" i_chunks="2" o_chunks="0" s_chunks="1">
    <tb id="0" send="0" recv="0" chan="0">
      <step s="0" type="s" srcbuf="i" srcoff="1" dstbuf="i" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="1" type="r" srcbuf="i" srcoff="0" dstbuf="s" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="1"/>
      <step s="2" type="nop" depid="1" deps="0"/>
      <step s="3" type="s" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="1" deps="1" hasdep="0"/>
      <step s="4" type="r" srcbuf="i" srcoff="1" dstbuf="i" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
    </tb>
    <tb id="1" send="-1" recv="-1" chan="0">
      <step s="0" type="nop" depid="-1" deps="-1"/>
      <step s="1" type="re" srcbuf="s" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="0" deps="1" hasdep="1"/>
    </tb>
  </gpu>
</algo>
"""


def test_others_files_with_scratch_fused_steps_and_reductions_are_timed(tmp_path: Path) -> None:
    """Both directions carry a part and then a whole sum: two transfers in a row."""
    schedule = read(tmp_path, OTHERS, ScheduleOptions(ring(2), size_bytes=2000.0))
    assert (schedule.kind, schedule.transfers) == ("all_reduce", 4)
    assert check_schedule(schedule).valid
    assert to_nanoseconds(schedule.time_s) == to_nanoseconds(2 * TAU)


def test_messages_of_several_chunks_follow_one_another() -> None:
    text = """<algo ngpus="2" nchunksperloop="4" coll="all_gather" inplace="0">
      <gpu id="0"><tb id="0" send="1" recv="-1" chan="0">
        <step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="2"/></tb>
        <tb id="1" send="-1" recv="1" chan="0">
        <step s="0" type="r" srcbuf="i" srcoff="0" dstbuf="o" dstoff="2" cnt="2"/></tb></gpu>
      <gpu id="1"><tb id="0" send="0" recv="0" chan="0">
        <step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="o" dstoff="2" cnt="2"/>
        <step s="1" type="r" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="2"/></tb></gpu></algo>"""
    text = text.replace('cnt="2"/>', 'cnt="2" depid="-1" deps="-1"/>')
    pair = graph_of(2, [(0, 1, 1e9, 1e-6), (1, 0, 1e9, 1e-6)])
    schedule = time_steps(parse_msccl(text, "x"), pair, 4000.0)
    assert check_schedule(schedule).valid
    assert to_nanoseconds(schedule.time_s) == to_nanoseconds(2 * TAU)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("<algo", "<algorithm"), "is no valid XML"),
        (("<?xml", "<!DOCTYPE a>\n<?xml"), "a document type and entities are not read"),
        (('coll="allreduce"', 'coll="gather"'), "no such collective"),
        (('nchunksperloop="2"', 'nchunksperloop="3"'), "must be a multiple of the 2 GPUs"),
        (('ngpus="2"', 'ngpus="3"'), "must be a multiple of the 3 GPUs"),
        (('ngpus="2"', 'ngpus="1"'), "is no GPU: there are 1"),
        (('ngpus="2"', 'ngpus="x"'), "must be a whole number"),
        (('type="rrcs"', 'type="xyz"'), "no such type of step"),
        (('send="1" recv="1"', 'send="-1" recv="1"'), "sends to nobody"),
        (('send="1" recv="1"', 'send="9" recv="1"'), "is no GPU"),
        (('depid="1" deps="1"', 'depid="1" deps="7"'), "waits for a step that is not there"),
        (('depid="1" deps="0"', 'depid="0" deps="3"'), "for ever"),
        (('<step s="1" type="r" ', '<step s="9" type="r" '), "numbered from 0"),
        (('srcbuf="s"', 'srcbuf="q"'), "a buffer is one of"),
        (('srcbuf="s" srcoff="0"', 'srcbuf="s" srcoff="5"'), "holds nothing at that time"),
        (('type="rrcs" srcbuf="i" srcoff="1"', 'type="rrcs" srcbuf="i" srcoff="0"'), "are not the same"),
        (("<gpu id", "<cpu id"), "is no valid XML"),
    ],
)
def test_a_malformed_program_is_one_sentence(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    with pytest.raises(SpecError) as caught:
        read(tmp_path, OTHERS.replace(*change), ScheduleOptions(ring(2), size_bytes=2000.0))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "stated", "said"),
    [
        ("", ScheduleOptions(ring(2)), "is empty"),
        ("a,b\n", ScheduleOptions(ring(2)), "is no schedule that is known"),
        ("source,target,chunk,start_s,end_s\n0,1,0,0,1\n", ScheduleOptions(), "say on which network"),
        ("source,target,chunk,start_s,end_s\n0,9,0,0,1\n", ScheduleOptions(ring(2)), "no such node"),
        ("source,target,chunk,start_s,end_s\n0,2,0,0,1\n", ScheduleOptions(ring(4)), "no link of this network"),
        ("source,target,chunk,start_s,end_s\n0,1,x,0,1\n", ScheduleOptions(ring(2)), "must be a whole number"),
        ("source,target,chunk,start_s,end_s\n0,1,0,0,inf\n", ScheduleOptions(ring(2)), "must be a number"),
        ("source,target,chunk,start_s,end_s\n0,1,0,0\n", ScheduleOptions(ring(2)), "has other than 5 cells"),
        ("NPUs Count,2\n", ScheduleOptions(), "is cut"),
        (OTHERS, ScheduleOptions(), "say on which network"),
        (OTHERS, ScheduleOptions(ring(2), kind="all_gather"), "the file is of an all-reduce"),
        (OTHERS, ScheduleOptions(ring(2), chunks_per_npu=4), "the file has 1 chunks"),
        (OTHERS, ScheduleOptions(graph_of(1, [])), "the program has 2 GPUs"),
        (OTHERS, ScheduleOptions(ring(3), size_bytes=0.0), "must be positive"),
    ],
)
def test_what_is_no_schedule_is_one_sentence(tmp_path: Path, text: str, stated: ScheduleOptions, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        read(tmp_path, text, stated)


# ---- Chakra

SYSTEM = {
    "scheduling-policy": "LIFO",
    "endpoint-delay": 0,
    "active-chunks-per-dimension": 1,
    "preferred-dataset-splits": 1,
    "all-reduce-implementation": ["ring"],
    "reduce-scatter-implementation": ["ring"],
    "all-to-all-implementation": ["ring"],
    "collective-optimization": "localBWAware",
    "local-mem-bw": 1600,
    "boost-mode": 0,
}


def test_traces_run_as_a_custom_collective(tmp_path: Path) -> None:
    """On a ring of 50 GiB/s a direction and 500 ns, as in the schedule but for fractions of nanoseconds."""
    graph = ring(8, 50 * 2.0**30, 5e-7)
    schedule = gathered(graph, 2, 8 * 2.0**20)
    traces = traces_of_schedule(schedule)
    assert list_problems(traces, None) == []
    write_traces(traces, tmp_path / "gather")
    one = {"id": 0, "type": NodeType.COMM_COLL, "comm_type": CollectiveType.ALL_GATHER, "comm_size": 2**20}
    write_traces(TraceSet(tuple([RankTrace(template_of([one]))] * 8)), tmp_path / "job")
    custom = {"all-gather-implementation-custom": [str(tmp_path / "gather")]}
    (tmp_path / "system.json").write_text(json.dumps(SYSTEM | custom))
    (tmp_path / "network.yml").write_text("topology: [Ring]\nnpus_count: [8]\nbandwidth: [50.0]\nlatency: [500.0]\n")
    system, network = tmp_path / "system.json", tmp_path / "network.yml"
    took = simulate(workload=tmp_path / "job", system=system, network=network, backend="aware").cycles
    assert took == pytest.approx(schedule.time_s * 1e9, abs=schedule.transfers)


def test_ranks_of_traces_are_positions_in_a_group_alone() -> None:
    graph = ring(4)
    link, chunk = np.array([6, 2]), np.array([0, 1])
    schedule = Schedule(graph, "all_gather", 2000.0, 1, ((3, 2),), link, chunk, np.zeros(2), np.full(2, TAU))
    assert check_schedule(schedule).valid
    traces = traces_of_schedule(schedule)
    assert [trace.peers for trace in traces.ranks] == [(1,), (0,)]
    several = replace(schedule, groups=((3, 2), (0, 1)))
    assert len(traces_of_schedule(several).ranks) == 4


# ---- for the eye


def test_perfetto_has_a_span_for_each_transfer() -> None:
    schedule = gathered(ring(4), 2)
    tree = json.loads(schedule_timeline_text(schedule))
    spans = [event for event in tree["traceEvents"] if event["ph"] == "X"]
    assert len(spans) == schedule.transfers
    assert max(each["ts"] + each["dur"] for each in spans) == pytest.approx(schedule.time_s * 1e6)
    names = {each["args"]["name"] for each in tree["traceEvents"] if each["name"] == "process_name"}
    assert names == {f"NPU {rank}" for rank in range(4)}


def test_a_picture_shows_the_busiest_links() -> None:
    schedule = gathered(ring(40))
    svg = schedule_svg(schedule)
    root = ElementTree.fromstring(svg)
    assert "The 64 busiest of 80 links that are used." in svg
    assert "39→0" in svg or "0→1" in svg
    assert root.tag.endswith("svg")
    small = schedule_svg(gathered(ring(3)))
    assert small.count('<rect class="cc-f') == 6


def empty(graph: LinkGraph) -> Schedule:
    """Return a schedule of a group of one, without transfers."""
    none = np.zeros(0)
    return Schedule(graph, "all_gather", 1e6, 1, ((0,),), none.astype(np.int64), none.astype(np.int64), none, none)


def test_a_schedule_of_one_member_is_valid_and_has_nothing_to_show() -> None:
    schedule = empty(ring(2))
    assert check_schedule(schedule).valid
    assert schedule_csv(schedule) == "source,target,chunk,start_s,end_s,operation\n"
    alone = StatedCollective(schedule.graph, "all_gather", 1e6, 1, ((0,),))
    assert parse_table(schedule_csv(schedule), alone, "x").transfers == 0
    assert json.loads(schedule_timeline_text(schedule))["traceEvents"] == []
    assert ElementTree.fromstring(schedule_svg(schedule)) is not None
    assert parse_msccl(msccl_text(schedule), "x").kind == "all_gather"
    assert len(traces_of_schedule(schedule).ranks) == 1
