"""Anonymized traces: nothing of the original is left to read, and simulators find what they found before."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosmic.base.errors import SpecError
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate import trace_generation
from cosmic.simulate.events.astra_sim_inputs import System, system_from_keys
from cosmic.simulate.events.simulation_job import Job
from cosmic.simulate.events.trace_simulation import simulate_job
from cosmic.traces.anonymization import KERNEL_WORDS, Anonymized, Policy, anonymize, parse_policy, positive_values
from cosmic.traces.chakra.trace_reader import read_traces
from cosmic.traces.chakra.trace_writer import trace_files, write_traces
from cosmic.traces.chakra.wire_format import encode_varint
from cosmic.traces.trace import (
    ABSENT,
    COLUMNS,
    CollectiveType,
    NodeType,
    RankTrace,
    Template,
    TraceSet,
    groups_text,
    known_groups,
    template_of,
)
from cosmic.traces.trace_checks import list_problems
from tests.simulate.jobs import KINDS, network
from tests.traces import encoding
from tests.traces.graphs import Rows, collective, comp, graphs, one_rank, receive, send

ALONE = {"dp": 1, "tp": 1, "cp": 1, "pp": 1, "ep": 1, "weight_sharding": "none"}
DENSE = ("gpt3-13b@dgx-h100:16", {"dp": 8, "tp": 2, "weight_sharding": "zero3", "global_batch": 16})
PIPELINE = ("gpt3-13b@dgx-h100:16", {"dp": 2, "tp": 2, "pp": 4, "global_batch": 8})
EXPERTS = ("mixtral-8x7b@dgx-h100:16", {"dp": 8, "tp": 2, "ep": 4, "global_batch": 8})
ALGORITHMS = {"Ring": "ring", "FullyConnected": "direct", "Switch": "halvingDoubling"}
NETWORKS = (
    ("Switch", "Switch", 450.0, 50.0),
    ("Ring", "Ring", 50.0, 20.0),
    ("FullyConnected", "Switch", 100.0, 40.0),
    ("Switch", "Switch", 300.0, 25.0),
    ("Switch", "Switch", 200.0, 100.0),
    ("FullyConnected", "Ring", 60.0, 80.0),
    ("Ring", "Switch", 350.0, 12.5),
    ("Ring", "Ring", 250.0, 120.0),
    ("Switch", "Ring", 900.0, 200.0),
    ("Switch", "FullyConnected", 150.0, 6.25),
)
FORMAT = {*NodeType.__members__, *CollectiveType.__members__, *KERNEL_WORDS}
"""Words of the format: a new name may hold them, whatever the old ones were."""


def job_of(name: str, workload: dict[str, Any], layers: int = 4) -> trace_generation.StepTraces:
    """Return the traces of a design with a few layers."""
    stated = {f"workload.{key}": value for key, value in (ALONE | workload).items()}
    return trace_generation.generate_traces(load_design(name, {**stated, "model.layers": layers}, plain=True))


@pytest.fixture(scope="module", params=[DENSE, PIPELINE, EXPERTS], ids=["dense", "pipeline", "experts"])
def job(request: pytest.FixtureRequest) -> trace_generation.StepTraces:
    return job_of(*request.param)


def made_of(job: trace_generation.StepTraces, seed: int = 1, **policy: Any) -> Anonymized:
    return anonymize(job.traces, job.groups, Policy(**policy), seed)


def simulated_ns(
    traces: TraceSet, groups: dict[str, tuple[int, ...]], networks: int, *, roofline: bool = False
) -> list[int]:
    """Return the time on the first *networks* networks of 16 NPUs."""
    times = []
    for first, second, fast, slow in NETWORKS[:networks]:
        chosen = {f"{kind}-implementation": [ALGORITHMS[first], ALGORITHMS[second]] for kind in KINDS}
        chosen["all-to-all-implementation"] = ["direct", "direct"]
        common = {"preferred-dataset-splits": 4, "peak-perf": 500, "local-mem-bw": 2000}
        system: System = system_from_keys({**common, **chosen, "roofline-enabled": int(roofline)})
        net = network((first, 8, fast, 700.0), (second, 2, slow, 2500.0))
        times.append(simulate_job(Job(traces=traces, groups=groups, system=system, network=net)).cycles)
    return times


def written(made: Anonymized) -> bytes:
    """Return the bytes of all files."""
    files = b"".join(data for _, data in trace_files(made.traces, "x"))
    return files + groups_text(made.groups).encode()


# ---- what is hidden

SECRET_GROUPS = '[\'[{"pg_name": "tensor_secret", "pg_desc": "Aurora run", "ranks": [0, 1]}]\']'


@pytest.fixture
def nasty(tmp_path: Path) -> TraceSet:
    """Return traces of two ranks, read from files that have texts wherever the format allows one."""
    for rank in range(2):
        peer = 1 - rank
        unknown = (
            encoding.attribute("tensor_note", "string", "projectnimbus weights"),
            encoding.attribute("owner_name", "bytes", b"Grace_Hopper_77"),
            encoding.attribute("finish_ts", "int64", 1_699_999_999_123),
        )
        nodes = [
            encoding.node(5, encoding.field(8, encoding.field(1, SECRET_GROUPS.encode())), kind=1, name="pg:init"),
            encoding.node(6, encoding.field(8, encoding.field(1, b"['launch --secret-flag']")), kind=1, name="args"),
            encoding.node(
                40,
                encoding.attribute("num_ops", "int64", 123_456_789_000),
                encoding.attribute("tensor_size", "uint64", 50_331_648),
                encoding.attribute("kernel", "string", "gemm bf16 secret_epilogue_v3 4096 3072 1024"),
                encoding.attribute("stream", "int64", 7_654_321),
                *unknown,
                name="megamodel/layer7::\u00fcber_attention<sm90, 'O\"Hara'>",
            ),
            encoding.node(
                71,
                encoding.ids("data_deps", 40),
                encoding.attribute("comm_type", "int64", 0),
                encoding.attribute("comm_size", "int64", 98_765_432),
                encoding.attribute("pg_name", "string", "tensor_secret"),
                kind=7,
                name="megamodel/layer7::grad_sync",
            ),
        ]
        for kind, own, other in ((5, "comm_src", "comm_dst"), (6, "comm_dst", "comm_src")):
            parts = [
                encoding.attribute(own, "int32", rank),
                encoding.attribute(other, "int32", peer),
                encoding.attribute("comm_tag", "int32", 1_234_567_890),
                encoding.attribute("comm_size", "int64", 33_554_432),
            ]
            nodes.append(encoding.node(80 + kind, *parts, kind=kind, name="megamodel/activations_out"))
        metadata = encoding.field(1, b"1.0.0") + encoding.field(2, encoding.field(1, b"hostname nodezx81"))
        (tmp_path / f"old.{rank}.et").write_bytes(encoding.file(*nodes, metadata=metadata))
    return read_traces(tmp_path / "old")


NASTY_TEXTS = """megamodel layer7 über_attention sm90 O"Hara grad_sync activations_out tensor_secret Aurora pg_desc
 init args secret_epilogue_v3 secret launch flag projectnimbus tensor_note weights owner_name Grace_Hopper
 hostname nodezx81 finish_ts 4096 3072 1024"""


def test_no_text_of_a_nasty_trace_survives(nasty: TraceSet) -> None:
    assert list_problems(nasty) == []
    made = anonymize(nasty, None, Policy(), 5)
    data = written(made)
    for text in NASTY_TEXTS.split():
        assert text.encode() not in data, text
    for number in (123_456_789_000, 50_331_648, 7_654_321, 98_765_432, 33_554_432, 1_234_567_890, 1_699_999_999_123):
        assert encode_varint(number) not in data, number
    assert list_problems(made.traces, made.groups) == list_problems(made.traces) == []
    assert made.groups == {"1": (0, 1)}
    assert known_groups(made.traces)["1"] == (0, 1)  # the metadata nodes say so, too


def test_a_kernel_keeps_its_class_and_number_format_and_near_sizes(nasty: TraceSet) -> None:
    (text,) = anonymize(nasty, None, Policy(), 5).traces.ranks[0].template.kernels
    word, number_format, unknown, *sizes = text.split()
    assert (word, number_format, unknown) == ("gemm", "bf16", "kernel_1")
    old = np.array([4096, 3072, 1024])
    ratio = np.array(list(map(int, sizes))) / old
    assert (ratio != 1).all()
    assert np.maximum(ratio, 1 / ratio).prod() <= 1.05
    assert all(int(size) % 2 == 0 for size in sizes)
    for kernels, texts in (("class", ["gemm bf16 kernel_1"]), ("drop", [])):
        template = anonymize(nasty, None, Policy(kernels=kernels), 5).traces.ranks[0].template
        assert list(template.kernels) == texts
        assert set(template.kernel.tolist()) == ({ABSENT, 0} if texts else {ABSENT})


def texts_of(job: trace_generation.StepTraces) -> Iterator[str]:
    """Yield the names of nodes, whole and in parts, that are no words of the format."""
    for template in job.traces.templates():
        for name in set(template.names):
            yield from (part for part in (name, *re.split(r"\W", name)) if len(part) >= 4)


@pytest.mark.parametrize("sizes", ["perturb", "bucket"])
def test_no_name_and_no_large_size_of_a_step_survives(job: trace_generation.StepTraces, sizes: str) -> None:
    made = made_of(job, sizes=sizes, times=sizes)
    data = written(made)
    left = {text for text in texts_of(job) if text.encode() in data}
    assert left <= {text for text in left if text.upper() in FORMAT}
    for column in ("comm_size", "tensor_size", "num_ops"):
        old, new = (
            positive_values(getattr(template, column) for template in traces.templates())
            for traces in (job.traces, made.traces)
        )
        both = np.intersect1d(old, new)
        assert not (both > 1000).any(), column  # smaller ones may have no other value within the tolerance
        if sizes == "perturb":
            assert len(old) == len(new)


def test_equal_names_stay_equal_and_keep_only_their_type() -> None:
    rows = [
        comp(0, name="secret"),
        comp(1, name="other"),
        comp(2, name="secret"),
        comp(3),
        collective(4, name="secret"),
    ]
    traces = TraceSet((RankTrace(template_of(rows), ("7",)),))
    names = anonymize(traces, {"7": (0,)}, Policy(), 0).traces.ranks[0].template.names
    assert list(names) == ["COMP_1", "COMP_2", "COMP_1", "", "ALL_REDUCE_1"]
    dropped = anonymize(traces, {"7": (0,)}, Policy(names="drop"), 0)
    assert list(dropped.traces.ranks[0].template.names) == [""] * 5
    assert dropped.changes[0].distinct == 2


def test_ids_lose_their_values_and_keep_their_order_and_dependencies() -> None:
    rows = [comp(900, 77), comp(77), comp(2**40, 900, 55)]
    template = anonymize(one_rank(rows), None, Policy(), 0).traces.ranks[0].template
    assert template.id.tolist() == [0, 1, 2]
    assert np.split(template.data_id, template.data_start[1:-1])[1].tolist() == [0]
    assert template.data_id.tolist() == [0, 1, 3]  # 55 is no node's id, and neither is 3
    assert template.data_start.tolist() == [0, 0, 1, 3]


def test_unused_groups_are_left_out_and_others_are_numbered_from_1() -> None:
    template = template_of([collective(1)])
    ranks = tuple(RankTrace(template, (name,)) for name in ("12", "12", "8"))
    made = anonymize(TraceSet(ranks), {"8": (2,), "12": (0, 1), "99": (0, 2)}, Policy(), 0)
    assert made.groups == {"1": (0, 1), "2": (2,)}
    assert [rank.groups for rank in made.traces.ranks] == [("1",), ("1",), ("2",)]


# ---- what stays


def test_the_graph_and_all_that_simulators_need_stays(job: trace_generation.StepTraces) -> None:
    made = made_of(job)
    assert list_problems(made.traces, made.groups) == list_problems(job.traces, job.groups) == []
    for old, new in zip(job.traces.templates(), made.traces.templates(), strict=True):
        for column in ("type", "comm_type", "comm_priority", "group", "peer", "involved_dims", "on_cpu", "data_start"):
            np.testing.assert_array_equal(getattr(old, column), getattr(new, column))
    assert [rank.peers for rank in made.traces.ranks] == [rank.peers for rank in job.traces.ranks]
    assert {made.mapping()["groups"][name]: ranks for name, ranks in made.groups.items()}.items() <= job.groups.items()


@pytest.mark.parametrize("roofline", [False, True])
def test_simulated_times_are_within_5_percent_on_three_networks(
    job: trace_generation.StepTraces, roofline: bool
) -> None:
    made = made_of(job)
    before = simulated_ns(job.traces, job.groups, 3, roofline=roofline)
    after = simulated_ns(made.traces, made.groups, 3, roofline=roofline)
    assert before != after
    assert after == pytest.approx(before, rel=0.05)


def test_ten_networks_are_ranked_as_before(job: trace_generation.StepTraces) -> None:
    made = made_of(job, seed=3)
    before, after = simulated_ns(job.traces, job.groups, 10), simulated_ns(made.traces, made.groups, 10)
    pairs = list(combinations(range(10), 2))
    tau = sum(np.sign(before[a] - before[b]) * np.sign(after[a] - after[b]) for a, b in pairs) / len(pairs)
    assert tau >= 0.9


def test_kept_sizes_and_times_simulate_exactly_as_before(job: trace_generation.StepTraces) -> None:
    made = made_of(job, sizes="keep", times="keep")
    assert simulated_ns(job.traces, job.groups, 2) == simulated_ns(made.traces, made.groups, 2)


def test_a_permutation_of_ranks_moves_peers_groups_and_traces_together() -> None:
    job = job_of(*PIPELINE)
    made = made_of(job, seed=4, ranks="permute")
    assert list_problems(made.traces, made.groups) == []
    old_of = made.mapping()["ranks"]
    assert sorted(old_of) == list(range(16)) != old_of
    for new, old in enumerate(old_of):
        mine, theirs = made.traces.ranks[new], job.traces.ranks[old]
        assert mine.own_rank == new
        assert [old_of[peer] for peer in mine.peers] == list(theirs.peers)
    named = {made.mapping()["groups"][name]: [old_of[rank] for rank in ranks] for name, ranks in made.groups.items()}
    assert named == {name: list(job.groups[name]) for name in named}


def test_the_same_seed_gives_the_same_traces_and_another_gives_others(job: trace_generation.StepTraces) -> None:
    first, again, other = (written(made_of(job, seed)) for seed in (1, 1, 2))
    assert first == again != other


def test_the_mapping_leads_back_to_the_original(job: trace_generation.StepTraces) -> None:
    made = made_of(job)
    for old, new in zip(job.traces.templates(), made.traces.templates(), strict=True):
        assert [made.mapping()["names"][name] for name in new.names] == list(old.names)
        sizes = made.mapping()["bytes"]
        assert [sizes.get(str(size), size) for size in new.comm_size.tolist()] == old.comm_size.tolist()


def test_files_of_anonymized_traces_read_back_the_same(nasty: TraceSet, tmp_path: Path) -> None:
    made = anonymize(nasty, None, Policy(), 5)
    write_traces(made.traces, tmp_path / "new")
    for old, new in zip(made.traces.ranks, read_traces(tmp_path / "new").ranks, strict=True):
        assert list(old.template.names) == list(new.template.names)
        assert old.template.process_groups == new.template.process_groups
        for column in COLUMNS:
            np.testing.assert_array_equal(getattr(old.template, column), getattr(new.template, column), column)


@pytest.mark.parametrize("ranks", [1, 1024])
def test_empty_and_single_nodes_and_many_ranks_are_anonymized(ranks: int) -> None:
    for rows in ([], [comp(3, name="x")]):
        template = template_of(rows)
        made = anonymize(TraceSet(tuple(RankTrace(template) for _ in range(ranks))), None, Policy(), 0)
        assert made.visible.nodes == ranks * len(rows)
        assert made.visible.ranks == ranks
        assert len(made.traces.templates()) == 1


def test_a_send_still_meets_its_receive_where_sizes_and_tags_repeat() -> None:
    sender = template_of([send(place, tag=place % 3, size=1000 * (1 + place % 2)) for place in range(6)])
    receiver = template_of([receive(place, tag=place % 3, size=1000 * (1 + place % 2)) for place in range(6)])
    traces = TraceSet((RankTrace(sender, peers=(1,)), RankTrace(receiver, peers=(0,))))
    for seed in range(10):
        made = anonymize(traces, None, Policy(), seed)
        assert list_problems(made.traces) == []
        assert len(set(made.traces.ranks[0].template.comm_tag.tolist())) == 3


# ---- times


def recorded(rows: Rows, draw: Any) -> Template:
    """Return nodes that begin after, or within, the ones that they depend on, as recorded."""
    by_id: dict[int, tuple[int, int]] = {}
    made = []
    for row in sorted(rows, key=lambda each: _depth(each["id"], rows)):
        before = [by_id[node] for node in (*row["data"], *row["ctrl"])]
        base = max((end if draw(st.booleans()) else begin for begin, end in before), default=0)
        begin, length = base + draw(st.integers(0, 5000)), draw(st.integers(0, 100_000))
        by_id[row["id"]] = begin, begin + length
        made.append({**row, "start_ns": begin, "duration_ns": length, "duration_us": length // 1000})
    return template_of(made)


def _depth(node: int, rows: Rows) -> int:
    waits = {row["id"]: (*row["data"], *row["ctrl"]) for row in rows}
    return 1 + max((_depth(each, rows) for each in waits[node]), default=0)


@settings(max_examples=25)
@given(st.data(), graphs(6), st.sampled_from(["perturb", "bucket"]))
def test_recorded_starts_stay_within_the_tolerance_and_after_what_had_ended(
    data: st.DataObject, rows: Rows, times: str
) -> None:
    old = recorded(rows, data.draw)
    new = anonymize(TraceSet((RankTrace(old),)), None, Policy(times=times), 1).traces.ranks[0].template
    assert (new.start_ns <= np.floor(old.start_ns * 1.05)).all()
    assert (new.start_ns >= np.ceil(old.start_ns / 1.05)).all()
    np.testing.assert_array_equal(new.duration_us, new.duration_ns // 1000)
    for row in range(old.nodes):
        waits = [*old.data_id[old.data_start[row] : old.data_start[row + 1]].tolist()]
        for before in np.searchsorted(old.id, waits).tolist():
            if old.start_ns[before] + old.duration_ns[before] <= old.start_ns[row]:
                assert new.start_ns[before] + new.duration_ns[before] <= new.start_ns[row]


def test_starts_move_with_durations_and_delays_or_are_dropped() -> None:
    rows = [
        comp(0, start_ns=1_000_000, duration_ns=2_000_000, duration_us=2000, stream=7),
        comp(1, 0, start_ns=3_500_000, duration_ns=2_000_000, duration_us=2000, delay_ns=500_000, stream=9),
    ]
    traces = one_rank(rows)
    template = anonymize(traces, None, Policy(), 2).traces.ranks[0].template
    first, second = template.duration_ns.tolist()
    assert first == second != 2_000_000
    assert template.start_ns[1] == template.start_ns[0] + first + template.delay_ns[1]
    assert sorted(template.stream.tolist()) == [0, 1]
    dropped = anonymize(traces, None, Policy(starts="drop"), 2).traces.ranks[0].template
    assert dropped.start_ns.tolist() == [ABSENT, ABSENT]
    assert dropped.duration_ns[0] == dropped.duration_ns[1] != 2_000_000
    kept = anonymize(traces, None, Policy(times="keep"), 2).traces.ranks[0].template
    assert kept.start_ns.tolist() == [1_000_000, 3_500_000]


def test_starts_of_a_cycle_are_refused_and_may_be_dropped() -> None:
    traces = one_rank([comp(0, 1, start_ns=5), comp(1, 0, start_ns=9)])
    with pytest.raises(SpecError, match="starts=drop"):
        anonymize(traces, None, Policy(), 0)
    made = anonymize(traces, None, Policy(starts="drop"), 0)
    assert len(list_problems(made.traces)) == len(list_problems(traces)) == 1


# ---- policy


@pytest.mark.parametrize(
    ("parts", "tolerance", "sentence"),
    [
        (["sizes"], 0.05, "is written PART=WAY"),
        (["size=keep"], 0.05, "no such part of a trace; did you mean 'sizes'"),
        (["names=keep"], 0.05, "no such way; choose from class, drop"),
        (["sizes=keep", "sizes=bucket"], 0.05, "is also said to be keep"),
        ([], 0.0, "must be above 0 %"),
        ([], 1.5, "at most 100 %"),
        ([], float("nan"), "must be above 0 %"),
    ],
)
def test_bad_policies_are_refused_in_a_sentence(parts: list[str], tolerance: float, sentence: str) -> None:
    with pytest.raises(SpecError, match=sentence):
        parse_policy(parts, tolerance)


def test_metadata_that_cannot_be_rewritten_is_refused() -> None:
    rows = [{"id": 0, "type": NodeType.METADATA, "process_groups": "['[{\"pg_name\": broken}]']"}]
    with pytest.raises(SpecError, match="must be a JSON list"):
        anonymize(one_rank(rows), None, Policy(), 0)


def test_problems_are_the_same_as_before_where_a_trace_has_some() -> None:
    rows = [comp(4, 77), {**collective(9), "group": ABSENT, "comm_size": ABSENT}, send(11, size=5000)]
    traces = replace(one_rank(rows), ranks=(RankTrace(template_of(rows), ("1",), (3,)),))
    made = anonymize(traces, None, Policy(), 0)
    assert len(list_problems(made.traces)) == len(list_problems(traces)) > 0
