"""Small profiles: when nodes begin and end, what they wait for, and after which delay, as worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosmic.traces.profiles import event_linking
from cosmic.traces.profiles.event_linking import ThreadIntervals, nesting_of
from cosmic.traces.profiles.profile_conversion import ConvertedProfiles
from cosmic.traces.replay import replay_traces
from tests.traces.profiles.making import (
    Event,
    call,
    converted,
    delays,
    event,
    kernel,
    kineto_of,
    operator,
    timeline,
    waits,
)


def replayed(made: ConvertedProfiles) -> None:
    """Check that a trace replays as it was recorded."""
    times = replay_traces(made.traces, made.groups)
    for begun, rank in zip(times.begun, made.traces.ranks, strict=True):
        assert begun.tolist() == rank.template.start_ns.tolist()


def test_a_launch_ends_when_its_kernel_starts_and_the_next_node_takes_the_rest(tmp_path: Path) -> None:
    events = [
        operator("mm", 0, 30),
        call("cudaLaunchKernel", 5, 15, 1),
        kernel("gemm", 12, 50, 1),
        operator("add", 40, 10),
    ]
    made = converted(tmp_path, events)
    template = made.traces.ranks[0].template
    assert timeline(template) == [
        ("mm", 0, 5_000),
        ("cudaLaunchKernel", 5_000, 7_000),
        ("add", 12_000, 38_000),
        ("gemm", 12_000, 50_000),
    ]
    assert waits(template) == {
        "mm": [],
        "cudaLaunchKernel": ["mm"],
        "add": ["cudaLaunchKernel"],
        "gemm": ["cudaLaunchKernel"],
    }
    assert delays(template) == {"mm": 0, "cudaLaunchKernel": 0, "add": 0, "gemm": 0}
    replayed(made)


def test_a_kernel_starts_after_the_latency_of_its_launch_or_the_gap_to_the_one_before(tmp_path: Path) -> None:
    events = [
        call("cudaLaunchKernel", 0, 2, 1),
        call("cudaLaunchKernel", 2, 2, 2),
        kernel("one", 9, 10, 1),
        kernel("two", 20, 5, 2),
    ]
    template = converted(tmp_path, events).traces.ranks[0].template
    assert waits(template)["two"] == ["cudaLaunchKernel", "one"]
    assert delays(template)["one"] == 7_000
    assert delays(template)["two"] == 1_000


def test_a_call_that_synchronizes_begins_when_the_last_kernel_has_ended(tmp_path: Path) -> None:
    events = [
        call("cudaLaunchKernel", 0, 2, 1),
        kernel("gemm", 5, 20, 1),
        call("cudaDeviceSynchronize", 3, 23, 2),
        operator("print", 30, 1),
    ]
    made = converted(tmp_path, events)
    template = made.traces.ranks[0].template
    assert waits(template)["cudaDeviceSynchronize"] == ["cudaLaunchKernel", "gemm"]
    assert ("cudaDeviceSynchronize", 25_000, 5_000) in timeline(template)
    replayed(made)


def test_what_follows_a_blocking_copy_waits_for_it(tmp_path: Path) -> None:
    copy = event("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 4, 10, correlation=1, stream=7, bytes=64)
    made = converted(tmp_path, [call("cudaMemcpyAsync", 0, 16, 1), copy, operator("item", 17, 3)])
    template = made.traces.ranks[0].template
    assert waits(template)["item"] == ["cudaMemcpyAsync", "Memcpy DtoH (Device -> Pageable)"]
    assert timeline(template)[2] == ("item", 14_000, 6_000)
    replayed(made)


STREAMS = [
    call("cudaLaunchKernel", 0, 1, 1),
    kernel("left", 10, 10, 1, stream=7),
    call("cudaLaunchKernel", 1, 1, 2),
    kernel("middle", 10, 5, 2, stream=9),
    call("cudaStreamWaitEvent", 3, 1, 3),
    call("cudaLaunchKernel", 4, 1, 4),
    kernel("right", 21, 5, 4, stream=8),
]
SYNC = {"cuda_sync_kind": "Stream Wait Event", "correlation": 3, "stream": 8, "wait_on_stream": 7, "device": 0}


@pytest.mark.parametrize(
    ("more", "expected"), [([], ["left", "middle"]), ([event("cuda_sync", "", 3, 1, **SYNC)], ["left"])]
)
def test_a_stream_that_waits_for_an_event_waits_for_other_streams(
    tmp_path: Path, more: list[Event], expected: list[str]
) -> None:
    made = converted(tmp_path, STREAMS + more)
    found = [each for each in waits(made.traces.ranks[0].template)["right"] if each != "cudaLaunchKernel"]
    assert sorted(found) == expected
    replayed(made)


def test_a_thread_that_was_idle_waits_for_the_one_that_woke_it(tmp_path: Path) -> None:
    events = [operator("loss", 0, 10), operator("backward", 50, 20, tid=2), operator("step", 75, 5)]
    made = converted(tmp_path, events)
    template = made.traces.ranks[0].template
    assert waits(template) == {"loss": [], "backward": ["loss"], "step": ["loss", "backward"]}
    assert timeline(template) == [("loss", 0, 10_000), ("backward", 50_000, 20_000), ("step", 75_000, 5_000)]
    assert delays(template) == {"loss": 0, "backward": 40_000, "step": 5_000}
    replayed(made)


def test_all_kernels_of_a_graph_wait_for_its_one_launch(tmp_path: Path) -> None:
    events = [call("cudaGraphLaunch", 0, 5, 1), *(kernel(f"k{at}", 10 + 10 * at, 10, 1) for at in range(3))]
    template = converted(tmp_path, events).traces.ranks[0].template
    assert waits(template) == {
        "cudaGraphLaunch": [],
        "k0": ["cudaGraphLaunch"],
        "k1": ["cudaGraphLaunch", "k0"],
        "k2": ["cudaGraphLaunch", "k1"],
    }


def test_kernels_of_a_graph_wait_for_the_last_of_another_stream_that_had_ended(tmp_path: Path) -> None:
    # On stream 8, b0 ends at 22 us and b1 at 60: k1, which starts at 30 us on stream 7, can have waited for b0 only.
    rows = (("k0", 10, 10, 7), ("b0", 12, 10, 8), ("b1", 24, 36, 8), ("k1", 30, 5, 7), ("k2", 61, 5, 7))
    events = [call("cudaGraphLaunch", 0, 5, 1)]
    events += [kernel(name, start, took, 1, stream=stream) for name, start, took, stream in rows]
    found = waits(converted(tmp_path, events).traces.ranks[0].template)
    assert {name: set(each) - {"cudaGraphLaunch"} for name, each in found.items() if name != "cudaGraphLaunch"} == {
        "k0": set(),
        "b0": set(),
        "b1": {"b0", "k0"},
        "k1": {"k0", "b0"},
        "k2": {"k1", "b1"},
    }


def test_streams_of_two_devices_are_not_confused(tmp_path: Path) -> None:
    first, second = kernel("here", 0, 10), kernel("there", 20, 10)
    second["args"]["device"] = 1
    template = converted(tmp_path, [first, second]).traces.ranks[0].template
    assert waits(template)["there"] == []
    assert len(set(template.stream.tolist())) == 2


def test_a_kernel_that_starts_before_its_launch_does_not_wait_for_it(tmp_path: Path) -> None:
    made = converted(tmp_path, [operator("mm", 0, 5), call("cudaLaunchKernel", 10, 5, 1), kernel("gemm", 2, 5, 1)])
    template = made.traces.ranks[0].template
    assert "cudaLaunchKernel" not in waits(template)["gemm"]
    replayed(made)


def test_nodes_are_the_same_with_and_without_the_compiled_library(tmp_path: Path, monkeypatch: Any) -> None:
    events = [
        operator("a", 0, 9),
        operator("b", 1, 2),
        operator("c", 2, 4),
        operator("d", 12, 1),
        call("cudaX", 13, 4, 1),
    ]
    host = kineto_of(tmp_path, [*events, operator("e", 0, 3, tid=2)]).host
    generator = np.random.default_rng(1)
    columns = [np.sort(generator.integers(0, 99, 50)), *generator.integers(0, 99, (3, 50))]
    start, follows, latest, held = columns
    woken, reach = generator.random(50) < 0.3, generator.integers(0, 99, 50)
    shares = ThreadIntervals(np.repeat([0, 1], 25), start, follows, latest, held, woken, reach)
    compiled = nesting_of(host), shares.cut()
    monkeypatch.setattr(event_linking, "native_library", lambda: None)
    plain = nesting_of(host), shares.cut()
    assert compiled[0].around.tolist() == plain[0].around.tolist() == [-1, 0, 1, -1, -1, -1]
    assert np.array_equal(compiled[1], plain[1])
