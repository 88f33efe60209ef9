"""Recorded traces on other machines: what follows from a hand-made step, and from carried recordings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.step.kernel_prices import kernel_seconds, parse_work
from cosmic.traces.profiles.profile_conversion import ConvertedProfiles, RankProfile, convert_profiles
from cosmic.traces.profiles.trace_projection import (
    LayerRun,
    ProjectedTraces,
    RankGroup,
    WhatIf,
    count_step_tokens,
    find_layer_runs,
    machine_named,
    project_traces,
    recorded_machine,
    scale_layers,
    scale_works,
)
from cosmic.traces.trace import CollectiveType, NodeType, RankTrace, TraceSet, template_of

RECORDINGS = Path(__file__).parents[3] / "examples" / "profiles"
H200 = "NVIDIA H200"
GEMM = "gemm bf16 1 4096 4096 4096"


def recording(name: str) -> ConvertedProfiles:
    """Return a carried recording, converted."""
    return convert_profiles([RankProfile(*(str(RECORDINGS / f"{name}.{kind}.json.gz") for kind in ("kineto", "et")))])


def put(made: ConvertedProfiles, **asked: Any) -> ProjectedTraces:
    """Return a recording on another machine."""
    return project_traces(made.traces, made.groups, made.metadata[0]["device"], WhatIf(**asked))


def step(size: int = 10**9, ranks: int = 1) -> TraceSet:
    """A launch of 10 us, a GEMM of 200 us, then an all-reduce that took no time, and an all-gather of a shard."""
    rows: list[dict[str, Any]] = [
        {"id": 0, "on_cpu": 1, "duration_ns": 10_000, "start_ns": 0, "name": "cudaLaunchKernel", "stream": 0},
        {
            "id": 1,
            "duration_ns": 200_000,
            "start_ns": 12_000,
            "delay_ns": 2_000,
            "data": [0],
            "work": GEMM,
            "stream": 7,
        },
        {"id": 2, "comm_type": CollectiveType.ALL_REDUCE, "comm_size": size, "start_ns": 212_000, "data": [1]},
        {"id": 3, "comm_type": CollectiveType.ALL_GATHER, "comm_size": size // ranks, "start_ns": 212_000, "data": [2]},
    ]
    for row in rows:
        row["type"] = NodeType.COMM_COLL if "comm_type" in row else NodeType.COMP
        row.setdefault("stream", 8)
        row.setdefault("duration_ns", 0)
    return TraceSet((RankTrace(template_of(rows)),) * ranks, "step")


def test_nothing_changes_where_nothing_is_asked() -> None:
    found = project_traces(step(), {}, H200, WhatIf())
    assert found.old.span_s == found.new.span_s == pytest.approx(212e-6)


def test_kernels_take_the_ratio_of_their_predicted_times() -> None:
    found = project_traces(step(), {}, H200, WhatIf(machine="b200"))
    machines = [machine_named(name, 1).point for name in ("h200", "b200")]
    old, new = (kernel_seconds([parse_work(GEMM)], each.compute, each.memory)[0] for each in machines)
    assert found.new.kernel_s == pytest.approx(200e-6 * new / old, rel=0.1)  # power depends on idle time, too
    assert found.new.kernel_s < 0.7 * found.old.kernel_s


def test_from_shapes_kernels_take_their_predicted_time() -> None:
    found = project_traces(step(), {}, H200, WhatIf(from_shapes=True))
    point = machine_named("h200", 1).point
    alone = kernel_seconds([parse_work(GEMM)], point.compute, point.memory)[0]
    assert found.new.kernel_s == pytest.approx(alone, rel=0.1)


def test_a_wider_data_parallelism_keeps_the_whole_buffer() -> None:
    found = project_traces(step(), {}, H200, WhatIf(dp=8))
    machine = machine_named("h200", 8)
    reduced, gathered = (
        machine.collective_s(kind, 1e9, RankGroup(8, 1))
        for kind in (CollectiveType.ALL_REDUCE, CollectiveType.ALL_GATHER)
    )
    assert found.ranks == 8
    assert found.new.communication_s == pytest.approx(reduced + gathered, rel=1e-6)
    assert found.new.span_s == pytest.approx(212e-6 + reduced + gathered, rel=1e-6)


def test_ranks_that_were_recorded_together_keep_the_whole_too() -> None:
    """Two ranks hold half of an all-gather each; on eight it is the same whole."""
    two = project_traces(step(ranks=2), {}, H200, WhatIf(dp=8))
    one = project_traces(step(), {}, H200, WhatIf(dp=8))
    assert two.ranks == one.ranks == 8
    assert two.new.communication_s == pytest.approx(one.new.communication_s)


def test_slower_links_take_longer_and_settings_reach_them() -> None:
    fast = project_traces(step(), {}, H200, WhatIf(dp=64))
    slow = project_traces(step(), {}, H200, WhatIf(dp=64, settings={"network.dims.1.bandwidth": "100 Gbps"}))
    assert slow.new.communication_s > 1.5 * fast.new.communication_s


def test_without_the_host_only_the_device_is_left() -> None:
    found = project_traces(step(), {}, H200, WhatIf(host=0))
    assert found.new.span_s == pytest.approx(200.4e-6)  # a launch takes no longer than the gap between kernels


def test_the_outermost_groups_are_data_parallel() -> None:
    """Of groups (0, 1) and (0, 2), the second is further apart."""
    rows = [
        {"id": at, "type": NodeType.COMM_COLL, "comm_type": CollectiveType.ALL_REDUCE, "comm_size": 10**9, "group": at}
        | {"start_ns": 0, "duration_ns": 0, "stream": 8, "data": [at - 1] if at else []}
        for at in range(2)
    ]
    ranks = tuple(RankTrace(template_of(rows), groups) for groups in (("1", "2"), ("1", "3"), ("4", "2"), ("4", "3")))
    groups = {"1": (0, 1), "2": (0, 2), "3": (1, 3), "4": (2, 3)}
    found = project_traces(TraceSet(ranks, "mesh"), groups, H200, WhatIf(dp=8))
    assert found.ranks == 16
    assert any("2 apart" in note for note in found.notes)
    machine = machine_named("h200", 16)
    expected = machine.collective_s(CollectiveType.ALL_REDUCE, 1e9, RankGroup(2, 1))
    expected += machine.collective_s(CollectiveType.ALL_REDUCE, 1e9, RankGroup(8, 2))
    assert found.new.span_s == pytest.approx(expected, rel=1e-6)


def test_an_unknown_device_takes_predicted_times_and_needs_a_name() -> None:
    with pytest.raises(SpecError, match="name the accelerator"):
        project_traces(step(), {}, "GeForce RTX 2080 Ti", WhatIf())
    found = project_traces(step(), {}, "GeForce RTX 2080 Ti", WhatIf(machine="h100"))
    assert any("predicted times" in note for note in found.notes)


@pytest.mark.parametrize(
    ("asked", "words"), [({"host": -1}, "host = -1"), ({"batch": 0}, "batch = 0"), ({"layers": 0}, "0")]
)
def test_impossible_questions_are_refused(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        project_traces(step(), {}, H200, WhatIf(**asked))


# ---- recordings


def test_a_recorded_step_is_replayed_and_repriced() -> None:
    made = recording("gpt")
    assert (made.kernels, made.described) == (159, 159)
    same, shapes = put(made), put(made, from_shapes=True)
    assert same.new.span_s == pytest.approx(int(made.metadata[0]["step_ns"]) / 1e9, rel=1e-9)
    assert shapes.new.span_s == pytest.approx(same.new.span_s, rel=0.03)
    assert shapes.new.kernel_s == pytest.approx(same.new.kernel_s, rel=0.10)


def test_without_its_host_a_launch_bound_step_is_as_fast_as_a_cuda_graph() -> None:
    """The same step compiled and replayed from CUDA graphs took 2.8 ms, unprofiled; eager, 7.2 ms."""
    found = put(recording("gpt"), host=0)
    assert found.old.span_s > 30e-3
    assert 2.4e-3 < found.new.span_s < 3.3e-3


def test_a_launch_bound_step_gains_nothing_from_a_faster_accelerator() -> None:
    found = put(recording("gpt"), machine="b200")
    assert found.speedup == pytest.approx(1.0, abs=0.01)
    assert found.new.kernel_s < 0.8 * found.old.kernel_s


def test_kernels_of_a_graph_without_operators_are_scaled_and_said() -> None:
    found = put(recording("decode_graph"), machine="b200")
    assert found.priced_share == 0
    assert found.speedup > 1.5
    assert any("is not known" in note for note in found.notes)


def test_layers_are_found_and_repeated() -> None:
    made = recording("gpt")
    twice, half = put(made, layers=2), put(made, layers=0.5)
    blocks = (twice.new.kernels - twice.old.kernels) / 4, (half.old.kernels - half.new.kernels) / 2
    assert blocks[0] == blocks[1] > 20
    assert 1.5 < twice.new.span_s / twice.old.span_s < 2
    assert 0.5 < half.new.span_s / half.old.span_s < 0.75


@pytest.mark.parametrize(("layers", "rule"), [(1e6, "2,000,000 nodes"), (float("inf"), "at most 1,000,000")])
def test_too_many_layers_are_refused(layers: float, rule: str) -> None:
    with pytest.raises(SpecError, match=rule):
        put(recording("gpt"), layers=layers)


@pytest.mark.parametrize("asked", [{"machine": "b200"}, {"host": 0.0}, {"batch": 2.0}, {"dp": 8}])
def test_a_trace_without_kernels_is_refused_whatever_is_asked(asked: dict[str, Any]) -> None:
    rows = [{"id": 0, "on_cpu": 1, "duration_ns": 10_000, "start_ns": 0, "name": "aten::mm", "stream": 0}]
    traces = TraceSet((RankTrace(template_of(rows), (), ()),), "trace")

    with pytest.raises(SpecError, match="has no kernels of a device: convert its execution traces alone"):
        project_traces(traces, {}, "", WhatIf(**asked))


# ---- parts


def test_runs_are_found_forward_and_backward() -> None:
    codes = np.array([7, *[1, 2, 3] * 4, 8, 9, *[3, 2, 5, 1] * 4, 6])
    assert find_layer_runs(codes) == [LayerRun(1, 3, 4), LayerRun(15, 4, 4)]


def test_a_trace_without_layers_says_so() -> None:
    with pytest.raises(SpecError, match="no blocks of kernels that repeat"):
        scale_layers(step().ranks[0], 2)


def test_tokens_are_the_size_that_most_products_have() -> None:
    forward, weight, head = (
        parse_work(f"gemm bf16 1 {m} {n} {k}") for m, n, k in ((512, 64, 64), (64, 64, 512), (512, 1000, 64))
    )
    assert count_step_tokens([forward, weight, head, None]) == 512
    assert count_step_tokens([None, parse_work("memset uint8 4")]) == 0


def test_activations_scale_with_tokens_and_weights_do_not() -> None:
    texts = {
        "gemm bf16 1 512 64 64": "gemm bf16 1 1024 64 64",
        "gemm bf16 1 64 64 512": "gemm bf16 1 64 64 1024",
        "attention bf16 4 8 8 128 128 64 64 1": "attention bf16 8 8 8 128 128 64 64 1",
        "stream bf16 elementwise 200 100 50 50 2 128": "stream bf16 elementwise 400 200 100 100 4 128",
        "stream bf16 optimizer 200 100 50 50 2 128": "stream bf16 optimizer 200 100 50 50 2 128",
        "copy_h2d uint8 4": "copy_h2d uint8 4",
    }
    found = scale_works([*map(parse_work, texts), None], 2)
    assert [None if work is None else work.text for work in found] == [*texts.values(), None]


def test_machines_are_named_by_system_accelerator_or_design() -> None:
    names = {
        name: machine_named(name, 8).point.compute.accelerator for name in ("dgx-h100", "h100", "llama3-8b@dgx-h100:8")
    }
    assert set(names.values()) == {"h100-sxm-80gb"}
    assert recorded_machine("Tesla T4", 1) is None
    with pytest.raises(SpecError, match="no such accelerator or system"):
        machine_named("nosuch", 8)


def test_a_group_beyond_the_machine_is_refused() -> None:
    with pytest.raises(SpecError, match="has 8 accelerators"):
        machine_named("h100:8", 8).collective_s(CollectiveType.ALL_REDUCE, 1e6, RankGroup(16, 1))


def test_a_group_of_one_communicates_nothing() -> None:
    assert machine_named("h100", 8).collective_s(CollectiveType.ALL_REDUCE, 1e9, RankGroup(1, 1)) == 0
