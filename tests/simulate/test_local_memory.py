"""Local memory over the time of a simulation: lifetimes of tensors, worked out by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cosmic.base.errors import SpecError
from cosmic.simulate.events.simulation_timeline import timeline_of_result
from cosmic.simulate.events.trace_simulation import simulate
from cosmic.traces.chakra.wire_format import ATTRIBUTE_NAME, VALUE_FIELDS
from tests.commands import run
from tests.simulate.files import NETWORK, SYSTEM, words, write_job
from tests.traces import encoding

Stated = Sequence[tuple[str, int]]


def listed(name: str, tensors: Stated) -> bytes:
    texts = b"".join(encoding.field(1, word.encode()) for each in tensors for word in (each[0], str(each[1])))
    content = encoding.field(ATTRIBUTE_NAME, name.encode()) + encoding.field(VALUE_FIELDS["string"] + 1, texts)
    return encoding.raw_attribute(content)


def computation(number: int, micros: int, reads: Stated, writes: Stated, after: Sequence[int] = ()) -> bytes:
    parts = [encoding.number("duration_micros", micros), listed("inputs", reads), listed("outputs", writes)]
    parts += [encoding.ids("data_deps", *after)] if after else []
    size = encoding.attribute("tensor_size", "int64", 8) + encoding.attribute("num_ops", "int64", 8)
    return encoding.node(number, *parts, size)


CHAIN = [
    computation(0, 1, [("w", 100)], [("a", 30)]),
    computation(1, 2, [("a", 30)], [("b", 50)], after=[0]),
    computation(2, 3, [("b", 50), ("w", 100)], [("out", 7)], after=[1]),
]
"""w is there from the start; a from 0 to 3000 ns, b from 1000 to 6000, out from 3000 on."""


@pytest.fixture
def job(tmp_path: Path) -> dict[str, Any]:
    return written(tmp_path, CHAIN, CHAIN)


def written(folder: Path, *ranks: Sequence[bytes], **system: Any) -> dict[str, Any]:
    files = write_job(folder, None, system=SYSTEM | {"roofline-enabled": 0} | system, network=NETWORK)
    for rank, nodes in enumerate(ranks):
        (folder / f"job.{rank}.et").write_bytes(encoding.file(*nodes))
    return files


def test_a_tensor_lives_from_its_first_write_to_its_last_read(job: dict[str, Any]) -> None:
    result = simulate(**job, track_local_mem=True)
    first, second = result.local_memory
    assert first.times_ns.tolist() == [0, 1000, 3000, 6000]
    assert first.bytes.tolist() == [130, 180, 157, 7]
    assert (first.peak_bytes, first.peak_ns, first.start_bytes, first.end_bytes) == (180, 1000, 130, 7)
    assert [(each.tensor, each.bytes) for each in first.largest] == [("w", 100), ("b", 50), ("a", 30)]
    assert (second.npu, second.peak_bytes) == (1, 180)


def test_ranks_that_run_alike_may_have_other_tensors(tmp_path: Path) -> None:
    larger = [computation(0, 1, [("w", 1000)], [("a", 30)]), *CHAIN[1:]]
    result = simulate(**written(tmp_path, CHAIN, larger), track_local_mem=True)
    assert [each.peak_bytes for each in result.local_memory] == [180, 1080]


def test_what_is_read_before_it_is_written_was_there_from_the_start(tmp_path: Path) -> None:
    nodes = [computation(0, 1, [("x", 5)], []), computation(1, 1, [], [("x", 5)], after=[0])]
    nodes += [computation(2, 1, [("x", 5)], [], after=[1])]
    (found, _) = simulate(**written(tmp_path, nodes, nodes), track_local_mem=True).local_memory
    assert (found.start_bytes, found.end_bytes) == (5, 0)
    assert found.times_ns.tolist() == [0, 3000]


def test_the_system_file_may_ask_for_it_as_in_astra_sim(tmp_path: Path) -> None:
    result = simulate(**written(tmp_path, CHAIN, CHAIN, **{"track-local-mem": 1}))
    assert result.local_memory[0].peak_bytes == 180
    assert simulate(**written(tmp_path, CHAIN, CHAIN)).local_memory == ()


def test_traces_without_tensors_are_refused(tmp_path: Path) -> None:
    plain = encoding.node(0, encoding.number("duration_micros", 1))
    with pytest.raises(SpecError, match="no node states the tensors"):
        simulate(**written(tmp_path, [plain], [plain]), track_local_mem=True)


def test_nodes_that_state_none_are_counted(tmp_path: Path) -> None:
    plain = encoding.node(3, encoding.number("duration_micros", 1))
    result = simulate(**written(tmp_path, [*CHAIN, plain], CHAIN), track_local_mem=True)
    assert "1 nodes state no tensors: their memory is not counted" in result.warnings


@pytest.mark.parametrize(
    ("tensors", "rule"),
    [([("w", -1)], "whole number of bytes"), ([("w", 10**30)], "whole number of bytes")],
)
def test_bytes_are_whole_numbers(tmp_path: Path, tensors: Stated, rule: str) -> None:
    nodes = [computation(0, 1, tensors, [])]
    with pytest.raises(SpecError, match=rule):
        simulate(**written(tmp_path, nodes, nodes), track_local_mem=True)


def test_the_command_shows_peak_and_timeline(capsys: pytest.CaptureFixture[str], job: dict[str, Any]) -> None:
    status, out, _ = run(capsys, "simulate", *words(job), "--track-local-mem")
    assert status == 0
    assert "peak of local memory" in out
    assert "180 B" in out
    status, out, _ = run(capsys, "simulate", *words(job), "--track-local-mem", "--json")
    assert json.loads(out)["local_memory"][0]["timeline"] == [[0, 130], [1000, 180], [3000, 157], [6000, 7]]


def test_the_timeline_draws_it(job: dict[str, Any]) -> None:
    drawn = timeline_of_result(simulate(**job, track_local_mem=True))
    (counter,) = [each for each in drawn.counters if each.name == "local memory"]
    assert counter.values.tolist() == [130, 180, 157, 7]
