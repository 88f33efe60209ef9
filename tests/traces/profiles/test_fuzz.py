"""Profiles of any content: each is converted into a trace that replays as recorded, or refused in one sentence."""

from __future__ import annotations

import gzip
import json
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosmic.base.errors import CosmicError
from cosmic.traces.chakra.trace_reader import read_traces
from cosmic.traces.chakra.trace_writer import write_traces
from cosmic.traces.profiles.kineto import Device, Host, read_kineto
from cosmic.traces.profiles.profile_conversion import ConvertedProfiles, RankProfile, convert_profiles
from cosmic.traces.replay import replay_traces
from cosmic.traces.trace_checks import list_problems
from tests.traces.profiles.making import write_execution_trace, write_kineto

NAMES = (
    "aten::mm",
    "c10d::allreduce_",
    "record_param_comms",
    "gloo:all_reduce",
    "ProfilerStep#3",
    "cudaLaunchKernel",
    "cudaStreamSynchronize",
    "cudaMemcpyAsync",
    "cudaStreamWaitEvent",
    "cudaEventRecord",
    "cudaGraphLaunch",
    "Memcpy HtoD",
    "ncclDevKernel_AllReduce_Sum",
    "ncclDevKernel_SendRecv",
    "gemm",
)
CATEGORIES = ("cpu_op", "user_annotation", "cuda_runtime", "kernel", "gpu_memcpy", "gpu_memset", "cuda_sync", "Kernel")
COARSE = st.integers(0, 12).map(lambda each: each * 10)
TIME = COARSE | st.integers(0, 60) | st.integers(0, 400_000).map(lambda each: each / 1000)
SMALL = st.integers(-1, 6)
ARGS = {
    "correlation": SMALL,
    "stream": st.integers(0, 3),
    "device": st.integers(0, 1),
    "Record function id": st.integers(0, 9),
    "bytes": st.integers(0, 100),
    "Input Dims": st.just([[2, 3], [3, 4]]),
    "Input type": st.just(["float", "float"]),
    "Collective name": st.sampled_from(["allreduce", "_allgather_base", "send", "recv", "barrier", "wait"]),
    "In msg nelems": st.integers(0, 99),
    "dtype": st.sampled_from(["Float", "BFloat16", "odd"]),
    "Group size": st.integers(1, 4),
    "Process Group Name": st.sampled_from(["0", "1"]),
    "Process Group Ranks": st.sampled_from(["[0, 1]", "[0, ..., 3]"]),
    "Dst Rank": st.integers(0, 3),
    "cuda_sync_kind": st.just("Stream Wait Event"),
    "wait_on_stream": st.integers(-1, 3),
}
EVENT = st.fixed_dictionaries(
    {
        "ph": st.just("X"),
        "cat": st.sampled_from(CATEGORIES),
        "name": st.sampled_from(NAMES),
        "pid": st.sampled_from([1, 2, "x"]),
        "tid": st.integers(1, 3),
        "ts": TIME,
        "dur": TIME | st.just(0),
        "args": st.fixed_dictionaries({}, optional=ARGS),
    }
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(NAMES),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["ts", "args", "name", "a"]), inner),
    max_leaves=6,
)
WRONG = st.one_of(
    JSON,
    st.builds(
        lambda event, key, value: {**event, key: value},
        EVENT,
        st.sampled_from([*"ab", "ph", "cat", "name", "pid", "tid", "ts", "dur", "args"]),
        JSON,
    ),
    st.builds(
        lambda event, key, value: {**event, "args": {**event["args"], key: value}},
        EVENT,
        st.sampled_from(list(ARGS)),
        JSON,
    ),
)


def check_single(made: ConvertedProfiles, folder: Path) -> None:
    """Check that a rank alone can run, and replays as it was recorded."""
    template = made.traces.ranks[0].template
    found = [
        each
        for each in list_problems(made.traces, made.groups)
        if "depends" in each or "cycle" in each or "two nodes" in each
    ]
    assert not found
    times = replay_traces(made.traces, made.groups)
    assert (times.begun[0] == template.start_ns).all()
    assert (times.ended[0] == template.start_ns + template.duration_ns).all()
    assert template.start_ns.min(initial=0) == 0
    assert (template.delay_ns >= 0).all()
    write_traces(made.traces, folder / "made")
    again = read_traces(str(folder / "made")).ranks[0].template
    assert (again.start_ns == template.start_ns).all()


@settings(max_examples=30, deadline=None)
@given(st.lists(EVENT, min_size=1, max_size=24))
def test_any_events_of_a_rank_replay_exactly_as_they_were_recorded(events: list[Any]) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        try:
            made = convert_profiles([RankProfile(write_kineto(folder / "k.json", events))])
        except CosmicError:
            assert all(each["cat"] == "cuda_sync" for each in events)
            return
        check_single(made, folder)


@settings(max_examples=30, deadline=None)
@given(st.lists(EVENT | WRONG, max_size=6), st.booleans())
def test_events_of_wrong_types_are_refused_in_one_sentence_or_left_out(events: list[Any], packed: bool) -> None:
    with TemporaryDirectory() as name:
        path = Path(name) / ("k.json.gz" if packed else "k.json")
        try:
            made = convert_profiles([RankProfile(write_kineto(path, events))])
        except CosmicError as error:
            assert "\n" not in str(error)
            return
        check_single(made, Path(name))


NODE = st.fixed_dictionaries(
    {
        "id": st.integers(1, 9) | JSON,
        "name": st.sampled_from([*NAMES, "## process_group:init ##", "_c10d_functional::all_reduce"]) | JSON,
        "ctrl_deps": st.integers(1, 9) | JSON,
    },
    optional={
        "inputs": st.just(
            {"values": ['[{"pg_name": "0", "ranks": [0]}]'], "shapes": [[2, 3]], "types": ["Tensor(float)"]}
        )
        | JSON,
        "outputs": JSON,
        "attrs": st.lists(
            st.fixed_dictionaries(
                {"name": st.sampled_from(["rf_id", "collective_name", "dtype", "in_msg_nelems", "pg_name", "tid"])},
                optional={"type": st.just("uint64"), "value": st.integers(0, 9) | st.just("allreduce") | JSON},
            ),
            max_size=3,
        )
        | JSON,
        "rf_id": st.integers(0, 9) | JSON,
        "parent": st.integers(0, 9) | JSON,
        "tid": st.integers(0, 3) | JSON,
        "input_shapes": JSON,
    },
)


@settings(max_examples=30, deadline=None)
@given(st.lists(EVENT, min_size=1, max_size=8), st.lists(NODE | JSON, max_size=6), st.booleans())
def test_execution_traces_of_wrong_types_are_refused_in_one_sentence(events: Any, nodes: Any, numbered: bool) -> None:
    if not numbered:
        for each in events:
            each["args"].pop("Record function id", None)
    with TemporaryDirectory() as name:
        folder = Path(name)
        paths = write_kineto(folder / "k.json", events), write_execution_trace(folder / "et.json", nodes)
        try:
            made = convert_profiles([RankProfile(*paths)])
        except CosmicError as error:
            assert "\n" not in str(error)
            return
        check_single(made, folder)


RANK = st.fixed_dictionaries(
    {},
    optional={
        "baseTimeNanoseconds": st.integers(-(2**70), 2**70) | JSON,
        "deviceProperties": st.just([{"name": "GPU"}]) | JSON,
        "distributedInfo": st.fixed_dictionaries(
            {},
            optional={
                "rank": st.integers(0, 2) | JSON,
                "world_size": st.integers(0, 4) | JSON,
                "pg_config": st.just([{"pg_name": "0", "ranks": [0, 1]}, {"pg_name": "1", "ranks": [1]}]) | JSON,
            },
        )
        | JSON,
    },
)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.lists(EVENT, max_size=10), RANK), min_size=1, max_size=3))
def test_ranks_of_any_content_are_converted_or_refused_in_one_sentence(ranks: Any) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        profiles = [
            RankProfile(write_kineto(folder / f"{number}.json", events, **rest))
            for number, (events, rest) in enumerate(ranks)
        ]
        try:
            made = convert_profiles(profiles)
            for rank in made.traces.ranks:
                assert (rank.template.start_ns >= 0).all()
            write_traces(made.traces, folder / "made")
            replay_traces(made.traces, made.groups)
        except CosmicError as error:
            assert "\n" not in str(error)


@settings(max_examples=30, deadline=None)
@given(st.lists(EVENT, max_size=5), st.data())
def test_broken_files_are_refused_in_one_sentence(events: list[Any], data: st.DataObject) -> None:
    text = json.dumps({"traceEvents": events, "schemaVersion": 1}).encode()
    packed = data.draw(st.booleans())
    content = bytearray(gzip.compress(text) if packed else text)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(content) - 1))
        what = data.draw(st.sampled_from(["cut", "change", "insert"]))
        if what == "cut":
            del content[place + 1 :]
        elif what == "change":
            content[place] = data.draw(st.integers(0, 255))
        else:
            content[place:place] = data.draw(st.sampled_from([b"[", b"}", b'"', b"\\", b",", b"NaN", b"\xff", b"\0"]))
    with TemporaryDirectory() as name:
        path = Path(name) / "k.json"
        path.write_bytes(content)
        try:
            convert_profiles([RankProfile(str(path))])
        except CosmicError as error:
            assert "\n" not in str(error)


@settings(max_examples=30, deadline=None)
@given(st.lists(EVENT | WRONG, max_size=8))
def test_events_are_read_alike_with_and_without_the_compiled_library(events: list[Any]) -> None:
    from cosmic.traces.profiles import json_stream  # noqa: PLC0415  it is changed here

    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        path = write_kineto(Path(name) / "k.json", events)
        found = [_read(path)]
        patch.setattr(json_stream, "native_library", lambda: None)
        found.append(_read(path))
    assert found[0] == found[1]


def _read(path: str) -> Any:
    try:
        trace = read_kineto(path)
    except CosmicError:
        return None
    names = [trace.names[at] for at in (*trace.host.name.tolist(), *trace.device.name.tolist())]
    host = [getattr(trace.host, each.name).tolist() for each in fields(Host) if each.name != "name"]
    device = [
        list(np.array(getattr(trace.device, each.name)).tolist()) for each in fields(Device) if each.name != "name"
    ]
    return names, trace.threads, host, device, trace.inputs, trace.calls, trace.waits, trace.base_ns
