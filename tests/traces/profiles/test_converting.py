"""Whole profiles: ranks, groups, clocks, and nodes that must not change."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from cosmic.base.errors import SpecError
from cosmic.traces.chakra.trace_writer import trace_files
from cosmic.traces.profiles.profile_conversion import RankProfile, convert_profiles
from cosmic.traces.replay import replay_traces
from cosmic.traces.trace_checks import list_problems
from tests.traces.profiles.making import (
    Event,
    call,
    converted,
    et_node,
    event,
    kernel,
    operator,
    timeline,
    waits,
    write_execution_trace,
    write_kineto,
)


def recorded_step(first: float, number: int) -> list[Event]:
    """Return a step that has a little of everything: two threads, two streams, a copy, a collective, a wait."""
    base, function = first, 100 * number
    inputs = {"Input Dims": [[64, 32], [32, 16]], "Input type": ["float", "float"], "Concrete Inputs": ["", ""]}
    said = {
        "Collective name": "allreduce",
        "In msg nelems": 64,
        "dtype": "Float",
        "Process Group Name": "0",
        "Group size": 2,
    }
    return [
        event("user_annotation", f"ProfilerStep#{number}", base, 400, **{"Record function id": function + 1}),
        operator("aten::linear", base + 1, 40, **{"Record function id": function + 2}, **inputs),
        operator("aten::mm", base + 5, 30, **{"Record function id": function + 3}, **inputs),
        call("cudaLaunchKernel", base + 10, 8, function + 1),
        kernel("sgemm_128x64", base + 16, 60, function + 1, grid=[8, 1, 1], block=[128, 1, 1]),
        call("cudaEventRecord", base + 45, 1, function + 2),
        call("cudaStreamWaitEvent", base + 47, 1, function + 3),
        operator("record_param_comms", base + 50, 10, **{"Record function id": function + 4}, **said),
        call("cudaLaunchKernelExC", base + 52, 4, function + 4),
        kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", base + 80, 25, function + 4, stream=20, **said),
        operator("autograd::engine", base + 130, 50, tid=2, **{"Record function id": function + 5}),
        call("cudaMemcpyAsync", base + 135, 30, function + 5, tid=2),
        event("gpu_memcpy", "Memcpy DtoH", base + 140, 20, correlation=function + 5, stream=7, device=0, bytes=64),
        operator("Optimizer.step", base + 220, 60, **{"Record function id": function + 6}),
        call("cudaDeviceSynchronize", base + 300, 20, function + 6),
    ]


def test_nodes_of_a_recording_stay_what_they_are(tmp_path: Path) -> None:
    events = [each for number in range(3) for each in recorded_step(1000 + 450 * number, number)]
    one, two = [1, 2, 0, 2048, 4, "cuda:0"], [3, 4, 0, 512, 4, "cuda:0"]
    details = {"values": [one, two], "shapes": [[64, 32], [32, 16]], "types": ["Tensor(float)", "Tensor(float)"]}
    results = {"values": [[5, 6, 0, 1024, 4, "cuda:0"]], "shapes": [[64, 16]], "types": ["Tensor(float)"]}
    nodes = [et_node(10 + at, "aten::mm", 100 * at + 3, inputs=details, outputs=results) for at in range(3)]
    job = {"rank": 0, "world_size": 2, "pg_config": [{"pg_name": "0", "ranks": [0, 1]}]}
    made = converted(tmp_path, events, nodes, distributedInfo=job)
    content = b"".join(content for _, content in trace_files(made.traces, "x", made.metadata))
    assert sha256(content).hexdigest()[:16] == "c0047564427f7020"
    assert (made.traces.nodes, made.kernels, made.described, made.groups) == (40, 3, 3, {"1": (0, 1)})
    assert all("group" in each for each in list_problems(made.traces, made.groups))
    times = replay_traces(made.traces, made.groups)
    assert times.begun[0].tolist() == made.traces.ranks[0].template.start_ns.tolist()


def test_one_step_can_be_chosen(tmp_path: Path) -> None:
    events = [each for number in range(3) for each in recorded_step(1000 + 450 * number, number)]
    path = write_kineto(tmp_path / "k.json.gz", events)
    made = convert_profiles([RankProfile(path)], step=1)
    assert made.traces.nodes == 14
    assert made.metadata[0]["step_ns"] == "400000"
    with pytest.raises(SpecError, match="marked are ProfilerStep#0, ProfilerStep#1, ProfilerStep#2"):
        convert_profiles([RankProfile(path)], step=5)


def ranks_of(folder: Path, ranks: list[tuple[list[Any], dict[str, Any]]]) -> list[RankProfile]:
    """Return the profiles of a job's ranks."""
    return [RankProfile(write_kineto(folder / f"{at}.json", events, **rest)) for at, (events, rest) in enumerate(ranks)]


def job(rank: int, size: int = 2) -> dict[str, Any]:
    """Return what a rank's file says of its job."""
    return {
        "distributedInfo": {
            "rank": rank,
            "world_size": size,
            "pg_config": [{"pg_name": "0", "ranks": list(range(size))}],
        }
    }


def test_ranks_are_sorted_by_what_they_state(tmp_path: Path) -> None:
    made = convert_profiles(ranks_of(tmp_path, [([operator("one", 0, 1)], job(1)), ([operator("zero", 0, 1)], job(0))]))
    assert [rank.template.names[0] for rank in made.traces.ranks] == ["zero", "one"]


@pytest.mark.parametrize(("numbers", "rule"), [((0, 0), "is of this rank, too"), ((0, 2), "rank 1 is missing")])
def test_ranks_that_are_twice_or_not_there_are_refused(tmp_path: Path, numbers: tuple[int, int], rule: str) -> None:
    with pytest.raises(SpecError, match=rule):
        convert_profiles(ranks_of(tmp_path, [([operator("a", 0, 1)], job(number, 3)) for number in numbers]))


def test_one_rank_of_eight_is_converted_with_a_note(tmp_path: Path) -> None:
    made = convert_profiles(ranks_of(tmp_path, [(recorded_step(0, 1), job(5, 8))]))
    assert "one rank of 8" in made.notes[0]
    assert all("group" in each or "problems in all" in each for each in list_problems(made.traces, made.groups))


def test_ranks_with_other_numbers_of_collectives_are_converted(tmp_path: Path) -> None:
    made = convert_profiles(
        ranks_of(tmp_path, [(recorded_step(0, 1) + recorded_step(450, 2), job(0)), (recorded_step(0, 1), job(1))])
    )
    assert [rank.template.nodes for rank in made.traces.ranks] == [27, 14]
    replay_traces(made.traces, made.groups)


def test_clocks_that_differ_by_hours_are_laid_together_by_collectives(tmp_path: Path) -> None:
    hours = 5 * 3600 * 10**9
    ranks = [(recorded_step(0, 1), job(0)), (recorded_step(3, 1), job(1) | {"baseTimeNanoseconds": hours})]
    made = convert_profiles(ranks_of(tmp_path, ranks))
    ends = [
        int((rank.template.start_ns + rank.template.duration_ns)[rank.template.comm_type == 0][0])
        for rank in made.traces.ranks
    ]
    assert ends[0] == ends[1]
    assert min(int(rank.template.start_ns.min()) for rank in made.traces.ranks) == 0


def test_too_many_ranks_are_refused(tmp_path: Path) -> None:
    rest = {"distributedInfo": {"rank": 0, "world_size": 2**30}}
    with pytest.raises(SpecError, match="up to 1,048,576 ranks"):
        convert_profiles(ranks_of(tmp_path, [([operator("a", 0, 1)], rest)]))


def test_the_execution_trace_of_another_run_is_refused(tmp_path: Path) -> None:
    kineto = write_kineto(tmp_path / "k.json", recorded_step(0, 0))
    other = write_execution_trace(tmp_path / "et.json", [et_node(9, "aten::conv2d", 3)])
    with pytest.raises(SpecError, match="another recording"):
        convert_profiles([RankProfile(kineto, other)])


@pytest.mark.parametrize(("took", "known"), [(9, 0), (11, 1)])
def test_a_kernel_has_no_work_that_it_cannot_have_done(tmp_path: Path, took: float, known: int) -> None:
    # 640,000 floats are read and written: 5.12 MB, of which two blocks move 2 x 256 bytes a nanosecond: 10 us
    inputs = {"Input Dims": [[640, 1000]], "Input type": ["float"], "Concrete Inputs": [""]}
    events = [
        operator("aten::neg", 0, 40, **inputs),
        call("cudaLaunchKernel", 5, 8, 1),
        kernel("void at::native::vectorized_elementwise_kernel", 20, took, 1, grid=[2, 1, 1], block=[128, 1, 1]),
    ]

    made = converted(tmp_path, events)

    assert (made.kernels, made.described) == (1, known)


def test_products_inside_a_recurrence_are_no_streams(tmp_path: Path) -> None:
    inputs = {"Input Dims": [[64, 32, 256]], "Input type": ["float"], "Concrete Inputs": [""]}
    name = "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x64x32_execute_segment_k_off_kernel__5x_cudnn"
    events = [
        operator("aten::_cudnn_rnn", 0, 40, **inputs),
        call("cudaLaunchKernel", 5, 8, 1),
        kernel(name, 20, 5000, 1, grid=[36, 1, 1], block=[384, 1, 1]),
    ]

    assert converted(tmp_path, events).described == 0


@pytest.mark.parametrize(("start", "rest"), [(15, 15), (25, 22)])
def test_what_the_host_does_after_its_last_launch_takes_its_time(tmp_path: Path, start: float, rest: float) -> None:
    events = [
        event("user_annotation", "ProfilerStep#1", 0, 1000),
        operator("aten::neg", 10, 20),
        call("cudaLaunchKernel", 12, 10, 1),
        kernel("vectorized_elementwise_kernel", start, 10, 1),
        call("cudaEventRecord", 28, 1, 2),
    ]

    made = converted(tmp_path, events)

    template = made.traces.ranks[0].template
    assert ("rest of ProfilerStep#1", rest * 1000, (1000 - rest) * 1000) in timeline(template)
    times = replay_traces(made.traces, made.groups)
    assert int(times.ended[0].max()) == 1_000_000
    assert times.begun[0].tolist() == template.start_ns.tolist()


def test_a_thread_that_waits_for_another_at_its_end_goes_on_when_that_is_done(tmp_path: Path) -> None:
    events = [
        event("user_annotation", "ProfilerStep#1", 0, 1000),
        operator("aten::sum", 10, 20),
        call("cudaLaunchKernel", 12, 10, 1),
        kernel("reduce_kernel", 15, 10, 1),
        operator("autograd::engine", 100, 600, tid=2),
    ]

    made = converted(tmp_path, events)

    template = made.traces.ranks[0].template
    assert ("rest of ProfilerStep#1", 700_000, 300_000) in timeline(template)
    assert "autograd::engine" in waits(template)["rest of ProfilerStep#1"]
    assert int(replay_traces(made.traces, made.groups).ended[0].max()) == 1_000_000


def product(device: str) -> dict[str, Any]:
    """Return the inputs of a product of two matrices."""
    one, two = [1, 2, 0, 2048, 4, device], [3, 4, 0, 512, 4, device]
    return {"values": [one, two], "shapes": [[64, 32], [32, 16]], "types": ["Tensor(float)", "Tensor(float)"]}


@pytest.mark.parametrize(("device", "moved"), [("cpu", True), ("cuda:0", False)])
def test_operators_of_a_cpu_are_predicted_as_kernels(tmp_path: Path, device: str, moved: bool) -> None:
    path = write_execution_trace(tmp_path / "et.json", [et_node(10, "aten::mm", 3, inputs=product(device))])

    made = convert_profiles([RankProfile(execution_trace=path)], accelerator="h100")

    assert (made.kernels, made.described) == (1, 1)
    assert "gemm fp32 1 64 16 32" in made.traces.ranks[0].template.kernels
    assert any("it ran on a CPU" in note for note in made.notes) == moved


def test_a_predicted_step_has_what_other_threads_did(tmp_path: Path) -> None:
    nodes = [
        et_node(10, "ProfilerStep#1", 1),
        et_node(11, "aten::mm", 2, inputs=product("cuda:0"), ctrl_deps=10),
        et_node(12, "aten::mm", 3, inputs=product("cuda:0")),  # of backward(): it is in no other node
    ]
    path = write_execution_trace(tmp_path / "et.json", nodes)

    made = convert_profiles([RankProfile(execution_trace=path)], accelerator="h100")

    assert made.kernels == 2


def test_the_work_of_a_recurrence_is_not_known(tmp_path: Path) -> None:
    path = write_execution_trace(tmp_path / "et.json", [et_node(10, "aten::_cudnn_rnn", 3, inputs=product("cuda:0"))])

    made = convert_profiles([RankProfile(execution_trace=path)], accelerator="h100")

    assert (made.kernels, made.described) == (1, 0)
    assert any("the work of 1 operators is not known" in note for note in made.notes)


def test_a_step_does_not_wait_for_kernels_of_the_one_before(tmp_path: Path) -> None:
    events = [
        event("user_annotation", "ProfilerStep#1", 0, 90),
        call("cudaLaunchKernel", 5, 5, 1),
        kernel("first", 20, 980, 1),
        event("user_annotation", "ProfilerStep#2", 100, 100),
        call("cudaLaunchKernel", 110, 5, 2),
        kernel("second", 1001, 50, 2),
    ]
    path = write_kineto(tmp_path / "k.json", events)

    made = convert_profiles([RankProfile(path)], step=2)

    found = {name: (start, start + took) for name, start, took in timeline(made.traces.ranks[0].template)}
    step = found["ProfilerStep#2"][0]
    # 1 us after the first kernel, so 1 us after its launch; the host is done at 200 us, when the kernel is, too
    assert [each - step for each in found["second"]] == [16_000, 66_000]
    assert replay_traces(made.traces, made.groups).span_ns == 100_000


def test_a_launch_waits_where_the_queue_of_the_device_is_full(tmp_path: Path) -> None:
    # kernel n runs from 20 + 100 n to 120 + 100 n; launch 1200 finds 1,080 before it, and goes on as one has ended
    events = []
    for number in range(1201):
        events.append(call("cudaLaunchKernel", 10 * number, 5 if number < 1200 else 500, number + 1))
        events.append(kernel(f"k{number}", 20 + 100 * number, 100, number + 1))

    template = converted(tmp_path, events).traces.ranks[0].template

    last = max(row for row, name in enumerate(template.names) if name == "cudaLaunchKernel")
    assert template.start_ns[last] == 12_420_000
    early = template.data_id[template.data_start[last] : template.data_start[last + 1]].tolist()
    assert "k123" in [template.names[each] for each in early]


def test_operators_of_several_processes_are_noted(tmp_path: Path) -> None:
    made = converted(tmp_path, [operator("aten::mm", 0, 10), operator("aten::mm", 20, 10, pid=101)])

    assert any("operators are of processes 100, 101, taken as one rank" in note for note in made.notes)


def test_ranks_that_begin_far_apart_are_noted(tmp_path: Path) -> None:
    ranks = [([operator("aten::mm", 1000 * rank, 2000)], job(rank)) for rank in range(2)]

    made = convert_profiles(ranks_of(tmp_path, ranks))

    apart = "ranks began up to 1 ms apart: the longest takes 2 ms, all of them 3 ms"
    assert any(note.startswith(apart) for note in made.notes)


def test_a_mark_without_a_duration_cuts_nothing_off(tmp_path: Path) -> None:
    made = converted(tmp_path, [event("user_annotation", "ProfilerStep#1", 0, 0), operator("aten::mm", 5, 10)])

    assert (made.traces.nodes, made.metadata[0].get("step_ns")) == (2, None)
