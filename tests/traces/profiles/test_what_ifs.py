"""Dependencies of converted profiles: one duration is changed, and what follows is worked out by hand.

A replay that is exact does not show that dependencies are right: a missing one hides in a delay.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosmic.traces.profiles.profile_conversion import ConvertedProfiles, RankProfile, convert_profiles
from cosmic.traces.profiles.trace_projection import RankGroup, WhatIf, machine_named, project_traces
from cosmic.traces.replay import ReplayChanges, recorded_times, replay_traces
from cosmic.traces.trace import CollectiveType

H200 = "NVIDIA H200"


class Recording:
    """A Kineto trace that is being written; times are microseconds."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._calls = 0

    def event(self, category: str, name: str, start: float, took: float, tid: int = 1, **args: Any) -> None:
        """Add an event."""
        self.events.append(
            {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": tid, "ts": start, "dur": took, "args": args}
        )

    def op(self, name: str, start: float, took: float, tid: int = 1, **args: Any) -> None:
        """Add an operator."""
        number = len(self.events) + 1
        self.event("cpu_op", name, start, took, tid, **{"External id": number, "Record function id": number, **args})

    def call(self, name: str, start: float, took: float = 5, tid: int = 1) -> int:
        """Add a call of the runtime, and return its correlation id."""
        self._calls += 1
        self.event("cuda_runtime", name, start, took, tid, correlation=self._calls)
        return self._calls

    def ran(self, name: str, start: float, took: float, call: int, stream: int = 7, **args: Any) -> None:
        """Add what a call launched."""
        category = "gpu_memcpy" if name.startswith("Memcpy") else "kernel"
        self.event(category, name, start, took, stream, correlation=call, stream=stream, device=0, **args)

    def kernel(self, name: str, launch: float, start: float, took: float, stream: int = 7, tid: int = 1) -> int:
        """Add a kernel with its launch, and return the correlation id."""
        call = self.call("cudaLaunchKernel", launch, tid=tid)
        self.ran(name, start, took, call, stream)
        return call

    def converted(self, folder: Path) -> ConvertedProfiles:
        """Return the trace, converted."""
        path = folder / "kineto.json"
        path.write_text(json.dumps({"deviceProperties": [{"name": H200}], "traceEvents": self.events}))
        return convert_profiles([RankProfile(str(path))])


def slower(made: ConvertedProfiles, name: str, factor: float) -> dict[str, tuple[float, float]]:
    """Return when nodes begin and end, in us by name, if those called *name* took *factor* times as long."""
    template = made.traces.ranks[0].template
    base = recorded_times(made.traces)
    chosen = np.array([each == name for each in template.names])
    durations = np.where(chosen, np.rint(base.duration_ns[0] * factor), base.duration_ns[0]).astype(np.int64)
    found = replay_traces(made.traces, made.groups, ReplayChanges((durations,), base.delay_ns))
    return {
        each: (begun / 1e3, ended / 1e3)
        for each, begun, ended in zip(template.names, found.begun[0].tolist(), found.ended[0].tolist(), strict=True)
    }


def test_the_kernel_of_another_thread_waits_for_an_event_that_the_first_made_its_stream_wait_for(
    tmp_path: Path,
) -> None:
    """At the end of backward, autograd's thread waits for the all-reduce, and the main thread runs the optimizer."""
    made = Recording()
    made.op("backward", 0, 120, tid=2)
    made.kernel("gemm", 10, 20, 100, tid=2)
    made.kernel("all_reduce", 30, 122, 300, stream=20, tid=2)
    made.call("cudaStreamWaitEvent", 60, tid=2)
    made.op("step", 200, 100)
    made.kernel("adam", 250, 424, 50)
    trace = made.converted(tmp_path)
    assert slower(trace, "all_reduce", 2)["adam"] == (724, 774)
    assert slower(trace, "all_reduce", 0.25)["adam"][0] == pytest.approx(257)  # its launch ends at 255, and 2 us pass


@pytest.mark.parametrize("stated", [False, True])
def test_a_wait_is_for_what_had_ended_not_for_what_was_given_last(tmp_path: Path, stated: bool) -> None:
    """A gather is prefetched before the host makes the compute stream wait for the one before it."""
    made = Recording()
    made.op("forward", 0, 100)
    made.kernel("gather_1", 0, 10, 100, stream=20)
    record = made.call("cudaEventRecord", 8, 1)
    made.kernel("gather_2", 10, 110, 200, stream=20)
    wait = made.call("cudaStreamWaitEvent", 20)
    if stated:
        known = {"cuda_sync_kind": "Stream Wait Event", "stream": 7, "wait_on_stream": 20, "correlation": wait}
        made.event("cuda_sync", "Stream Wait Event", 20, 1, 7, wait_on_cuda_event_record_corr_id=record, **known)
    made.kernel("gemm", 30, 112, 50)
    trace = made.converted(tmp_path)
    assert slower(trace, "gather_1", 4)["gemm"] == (412, 462)
    assert slower(trace, "gather_2", 4)["gemm"] == (112, 162)


def test_a_stream_synchronized_is_that_of_the_thread(tmp_path: Path) -> None:
    """The all-reduce on another stream ends within the call, by chance."""
    made = Recording()
    made.op("loop", 0, 200)
    made.kernel("all_reduce", 0, 10, 70, stream=20)
    made.kernel("gemm", 10, 20, 70)
    made.call("cudaStreamSynchronize", 30, 65)
    made.kernel("after", 100, 106, 10)
    trace = made.converted(tmp_path)
    assert slower(trace, "all_reduce", 4)["after"] == (106, 116)
    assert slower(trace, "gemm", 2)["after"][0] == pytest.approx(106 + 70)


def test_a_call_that_found_the_device_done_waits_for_it_all_the_same(tmp_path: Path) -> None:
    made = Recording()
    made.op("loop", 0, 100)
    made.kernel("gemm", 10, 20, 20)
    made.op("item", 50, 20)
    made.call("cudaDeviceSynchronize", 60, 5)
    made.kernel("after", 70, 80, 10)
    trace = made.converted(tmp_path)
    assert slower(trace, "gemm", 10)["after"][0] == pytest.approx(220 + (80 - 60))  # from the call on as recorded


def test_a_copy_to_pinned_memory_does_not_hold_the_host_and_one_to_pageable_memory_does(tmp_path: Path) -> None:
    found = {}
    for kind in ("Pinned", "Pageable"):
        made = Recording()
        made.op("loop", 0, 200)
        call = made.call("cudaMemcpyAsync", 0, 60)
        made.ran(f"Memcpy DtoH (Device -> {kind})", 10, 40, call, bytes=4)
        made.kernel("after", 70, 80, 10)
        found[kind] = slower(made.converted(tmp_path), f"Memcpy DtoH (Device -> {kind})", 3)["after"][0]
    assert found == {"Pinned": 130 + 5, "Pageable": 80 + 80}  # in the same stream; the host goes on 80 later


def test_streams_of_a_cuda_graph_fork_and_join(tmp_path: Path) -> None:
    made = Recording()
    call = made.call("cudaGraphLaunch", 0, 10)
    for name, start, stream in (("a", 20, 7), ("b", 121, 8), ("c", 222, 7)):
        made.ran(name, start, 100, call, stream)
    found = slower(made.converted(tmp_path), "a", 2)
    assert (found["b"], found["c"]) == ((221, 321), (322, 422))


def test_collectives_of_one_process_wait_for_their_gradients_and_for_each_other(tmp_path: Path) -> None:
    made = Recording()
    made.op("backward", 0, 90)
    made.kernel("gemm", 10, 20, 100)
    for start in (30, 50):
        stated: dict[str, Any] = {
            "Collective name": "allreduce",
            "In msg nelems": 250_000_000,
            "Out msg nelems": 250_000_000,
        }
        stated |= {"dtype": "Float", "Group size": 1, "Process Group Name": "0", "Process Group Ranks": "[0]"}
        made.op("record_param_comms", start, 10, **stated)
    made.call("cudaStreamWaitEvent", 70, 1)
    made.kernel("adam", 80, 122, 10)
    trace = made.converted(tmp_path)
    found = project_traces(trace.traces, trace.groups, H200, WhatIf(dp=8))
    each = machine_named("h200", 8).collective_s(CollectiveType.ALL_REDUCE, 1e9, RankGroup(8, 1))
    template = found.traces.ranks[0].template
    rows = [row for row in range(template.nodes) if template.names[row] == "allreduce"]
    assert (template.start_ns[rows] / 1e9).tolist() == pytest.approx([120e-6, 120e-6 + each])
    adam = list(template.names).index("adam")
    assert template.start_ns[adam] / 1e9 == pytest.approx(122e-6 + 2 * each)
    assert len(found.job().ranks) == found.ranks == 8
    assert found.new.communication_s == pytest.approx(2 * each)


def test_the_same_machine_changes_nothing(tmp_path: Path) -> None:
    made = Recording()
    made.op("step", 0, 100)
    made.kernel("gemm", 0, 10, 10)
    made.kernel("ncclDevKernel_AllReduce_Sum_f32", 10, 20, 50, stream=20)
    trace = made.converted(tmp_path)
    found = project_traces(trace.traces, trace.groups, H200, WhatIf(machine="h200"))
    assert found.new.span_s == found.old.span_s


def test_kernels_of_a_stream_that_overlap_a_moment_stay_in_order(tmp_path: Path) -> None:
    made = Recording()
    made.op("step", 0, 100)
    made.kernel("first", 0, 10, 50)
    made.kernel("second", 10, 59, 50)
    assert slower(made.converted(tmp_path), "first", 2)["second"] == (108, 158)  # cut to 49, twice as long
