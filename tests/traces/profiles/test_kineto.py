"""What is read from Kineto traces of several versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from cosmic.base.errors import SpecError
from cosmic.traces.profiles.kineto import ANNOTATION, CALL, OPERATOR, CollectiveCall
from tests.traces.profiles.making import call, event, kernel, kineto_of, operator, write_kineto


def test_events_become_columns_in_nanoseconds_from_the_first_on(tmp_path: Path) -> None:
    events = [
        {"ph": "M", "name": "process_name", "args": {"name": "python"}},
        operator(
            "aten::mm", 1000.5, 2.25, **{"Record function id": 4, "Input Dims": [[2, 3]], "Input type": ["float"]}
        ),
        event("user_annotation", "ProfilerStep#1", 1000.125, 9),
        call("cudaLaunchKernel", 1001, 1, 8),
        call("cudaGetDevice", 1001, 1, 9),
        kernel("gemm", 1002, 3, 8, stream=20, grid=[1, 2, 3], block=[4, 1, 1]),
        event("python_function", "main", 0, 9999),
    ]
    found = kineto_of(tmp_path, events, baseTimeNanoseconds=7, deviceProperties=[{"name": "GPU"}])
    host, device = found.host, found.device
    assert [found.names[at] for at in host.name] == ["aten::mm", "ProfilerStep#1", "cudaLaunchKernel"]
    assert (host.start.tolist(), host.end.tolist()) == ([375, 0, 875], [2625, 9000, 1875])
    assert host.category.tolist() == [OPERATOR, ANNOTATION, CALL]
    assert (host.function.tolist(), host.correlation.tolist()) == ([4, -1, -1], [-1, -1, 8])
    assert found.inputs == {0: (b"[[2, 3]]", b'["float"]', b"")}
    assert (device.start.tolist(), device.stream.tolist(), device.launch) == ([1875], [20], [b"[1, 2, 3][4, 1, 1]"])
    assert (found.base_ns, found.device_name, found.threads) == (1_000_125 + 7, "GPU", [("100", "1")])


def test_categories_of_the_first_versions_and_numbers_in_strings_are_read(tmp_path: Path) -> None:
    old = event("Memcpy", "Memcpy HtoD", 5, 1, stream="9", bytes=16)
    found = kineto_of(
        tmp_path,
        [event("Operator", "aten::add", 0, 1) | {"ts": "0", "dur": "2.5"}, event("Runtime", "cudaMemcpy", 1, 1), old],
    )
    assert found.host.category.tolist() == [OPERATOR, CALL]
    assert found.host.end.tolist() == [2500, 2000]
    assert (found.device.stream.tolist(), found.device.bytes.tolist()) == ([9], [16])


def test_microseconds_since_1970_keep_their_nanoseconds(tmp_path: Path) -> None:
    path = tmp_path / "k.json"
    first, second = 1694039959123456, 1694039959123457
    events = [operator("a", 0, 1), operator("b", 0, 1)]
    write_kineto(path, events)
    text = path.read_text().replace('"ts": 0', f'"ts": {first}.001', 1).replace('"ts": 0', f'"ts": {second}.004', 1)
    path.write_text(text)
    from cosmic.traces.profiles.kineto import read_kineto  # noqa: PLC0415  the file was changed

    assert read_kineto(path).host.start.tolist() == [0, 1003]


def test_streams_of_other_devices_have_numbers_of_their_own(tmp_path: Path) -> None:
    one, two = kernel("a", 0, 1, 1, stream=7), kernel("b", 0, 1, 2, stream=7)
    two["args"]["device"] = 1
    sync = {"cuda_sync_kind": "Stream Wait Event", "correlation": 5, "stream": 7, "wait_on_stream": 3, "device": 1}
    found = kineto_of(tmp_path, [one, two, event("cuda_sync", "", 0, 1, **sync)])
    assert found.device.stream.tolist() == [7, 15]
    assert found.waits == {5: (15, 11)}


def test_collectives_and_groups_are_read(tmp_path: Path) -> None:
    said = {"Collective name": "send", "In msg nelems": 5, "dtype": "Float", "Group size": 2, "Dst Rank": 1}
    job = {"rank": 1, "world_size": 2, "pg_config": [{"pg_name": "0", "ranks": [0, 1]}, "odd"]}
    found = kineto_of(tmp_path, [operator("record_param_comms", 0, 1, **said)], distributedInfo=job)
    assert found.calls == {("host", 0): CollectiveCall("send", 5, -1, "Float", "", 2, (), None, 1)}
    assert (found.rank, found.world_size, found.groups) == (1, 2, {"0": (0, 1)})


@pytest.mark.parametrize(
    ("key", "value"), [("ts", "soon"), ("ts", None), ("dur", -1), ("ts", 10**30), ("name", None), ("args", [])]
)
def test_events_of_the_host_must_say_when_they_were(tmp_path: Path, key: str, value: object) -> None:
    with pytest.raises(SpecError):
        kineto_of(tmp_path, [{**operator("a", 0, 1), key: value}])
    assert not len(kineto_of(tmp_path, [{**event("python_function", "a", 0, 1), key: value}]).host.name)
