"""Programs on disk: found again, never trusted, never needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from cosmic.base import caching
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate import step_evaluation as evaluation
from cosmic.simulate.recording import recorded_evaluation
from cosmic.simulate.recording.recorded_evaluation import Recorder, run_recorded_point
from cosmic.simulate.recording.recorded_program import RecordedProgram, structure_of
from cosmic.simulate.step_evaluation import RESULTS
from tests.relations.random_designs import FAMILIES, random_design

POINT = load_design("llama3-8b@dgx-h100:8")
STRUCTURE = structure_of(POINT, {})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COSMIC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def program() -> RecordedProgram:
    recorder = Recorder(evaluation._metrics_of_designs, evaluation._rules_of_designs)
    assert run_recorded_point(recorder, POINT) is not None
    return recorder.variants(STRUCTURE)[0]


def entries(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_a_program_comes_back_as_it_was(folder: Path, program: RecordedProgram) -> None:
    recorded_evaluation.store_program(STRUCTURE, program, 0)
    [again] = recorded_evaluation.load_programs(STRUCTURE)
    assert np.array_equal(again.nodes, program.nodes)
    assert np.array_equal(again.lists, program.lists)
    for name in ("constants", "inputs", "tables", "lookups", "guards", "results", "measured"):
        assert repr(getattr(again, name)) == repr(getattr(program, name))  # NaN is like NaN
    assert list(again.results) == list(RESULTS)


def test_another_process_finds_what_this_one_recorded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run_recorded_point(Recorder(evaluation._metrics_of_designs, evaluation._rules_of_designs), POINT)
    assert len(entries(folder)) == 1

    def never(*_: Any) -> Any:
        raise AssertionError("recorded again")

    second = run_recorded_point(Recorder(never, never), POINT)
    assert repr(first) == repr(second)


@pytest.mark.parametrize("content", [b"", b"garbage", b"cosmic cache 1\n" + bytes(64)])
def test_a_damaged_file_is_no_program(folder: Path, program: RecordedProgram, content: bytes) -> None:
    recorded_evaluation.store_program(STRUCTURE, program, 0)
    [path] = entries(folder)
    path.write_bytes(content)
    assert list(recorded_evaluation.load_programs(STRUCTURE)) == []
    assert run_recorded_point(Recorder(evaluation._metrics_of_designs, evaluation._rules_of_designs), POINT) is not None


@pytest.mark.parametrize("place", range(0, 4000, 131))
def test_a_changed_bit_is_noticed(folder: Path, program: RecordedProgram, place: int) -> None:
    recorded_evaluation.store_program(STRUCTURE, program, 0)
    [path] = entries(folder)
    data = bytearray(path.read_bytes())
    data[place % len(data)] ^= 1
    path.write_bytes(data)
    assert list(recorded_evaluation.load_programs(STRUCTURE)) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda program: {"nodes": _with(program.nodes, (len(program.nodes) - 1, 1), len(program.nodes))},
        lambda program: {"nodes": _with(program.nodes, (len(program.nodes) - 1, 1), -1)},
        lambda program: {"nodes": _with(program.nodes, (len(program.nodes) - 1, 0), 99)},
        lambda program: {"nodes": _with(program.nodes, (0, 0), -3)},
        lambda program: {"lists": _with(program.lists, (0,), 10**6)},
        lambda program: {"results": {**program.results, "step_s": len(program.nodes)}},
        lambda program: {"inputs": {**program.inputs, "memory.bandwidth": -1}},
        lambda program: {"constants": {}},
        lambda program: {"tables": ()},
        lambda program: {"lookups": program.lookups[:1]},
        lambda program: {"lists": program.lists[:-1]},
    ],
)
def test_a_crafted_program_is_refused(folder: Path, program: RecordedProgram, change: Any) -> None:
    """C reads where a program says: what comes from a file is checked before."""
    fields = {name: getattr(program, name) for name in RecordedProgram.__dataclass_fields__ if name != "known"}
    crafted = RecordedProgram(**{**fields, **change(program)})
    content = recorded_evaluation._encode_program(crafted)
    with pytest.raises((ValueError, KeyError, IndexError)):
        recorded_evaluation._decode_program(content)
    caching.keep_cached("programs", f"0 {STRUCTURE}", content)
    assert list(recorded_evaluation.load_programs(STRUCTURE)) == []


def _with(array: np.ndarray[Any, Any], place: tuple[int, ...], value: int) -> np.ndarray[Any, Any]:
    changed = array.copy()
    changed[place] = value
    return changed


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b":collective_terms", b":collective_forms"),
        (b"cosmic.network", b"cosmix.network"),
    ],
)
def test_functions_are_ours(folder: Path, program: RecordedProgram, old: bytes, new: bytes) -> None:
    content = recorded_evaluation._encode_program(program)
    assert old in content
    with pytest.raises(ValueError, match=r"no (function|program)"):
        recorded_evaluation._decode_program(content.replace(old, new))


def test_every_stored_program_is_read_by_a_fresh_process(folder: Path) -> None:
    kept, looked_up = 0, set()
    for index, family in enumerate(FAMILIES * 2):
        point = random_design(Random(f"stored {index}"), family=family, wired=index % 5 == 0)
        recorder = Recorder(evaluation._metrics_of_designs, evaluation._rules_of_designs)
        before = len(entries(folder))
        assert run_recorded_point(recorder, point) is not None
        [recorded] = recorder.variants(structure_of(point, {}))[:1]
        again = list(recorded_evaluation.load_programs(structure_of(point, {})))
        if len(entries(folder)) > before:
            assert repr(again[0].lookups) == repr(recorded.lookups), point
            looked_up |= {lookup.function.__name__ for lookup in recorded.lookups}
            kept += 1
    assert kept > len(FAMILIES)
    assert {"collective_terms", "fullest_rank", "layers_in_pattern", "tier_terms"} <= looked_up
    script = (
        "import sys; from pathlib import Path; from cosmic.base import caching; "
        "from cosmic.simulate.recording.recorded_evaluation import _decode_program; "
        "programs = [_decode_program(path.read_bytes()[caching.HEAD :]) for path in Path(sys.argv[1]).rglob('*') "
        "if path.is_file() and 'programs' in path.parts]; print(len(programs))"
    )
    read = subprocess.run([sys.executable, "-c", script, str(folder)], capture_output=True, text=True, check=True)
    assert int(read.stdout) >= kept


def test_another_user_s_file_is_not_read(
    folder: Path, program: RecordedProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded_evaluation.store_program(STRUCTURE, program, 0)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    assert list(recorded_evaluation.load_programs(STRUCTURE)) == []


def test_a_schedule_of_somebody_else_is_not_kept(
    folder: Path, program: RecordedProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cosmic.workload.pipeline_schedule import schedules  # noqa: PLC0415  it is changed here

    odd = type("Odd", (type(schedules["1f1b"]) if not isinstance(schedules["1f1b"], type) else schedules["1f1b"],), {})
    odd.__module__ = "somebody.else"
    monkeypatch.setitem(schedules._variants, POINT.workload.schedule, odd)
    recorded_evaluation.store_program(STRUCTURE, program, 0)
    assert entries(folder) == []


def test_other_sources_are_another_version(
    folder: Path, program: RecordedProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded_evaluation.store_program(STRUCTURE, program, 0)
    monkeypatch.setattr(caching, "source_version", lambda: "another")
    assert list(recorded_evaluation.load_programs(STRUCTURE)) == []


def test_only_the_last_versions_are_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(6):
        monkeypatch.setattr(caching, "source_version", lambda number=number: f"version-{number}")
        caching.keep_cached("programs", "key", b"content")
        newest = folder / "programs" / f"version-{number}"
        os.utime(newest, (number, number))
    assert sorted(path.name for path in (folder / "programs").iterdir()) == ["version-3", "version-4", "version-5"]


def test_an_empty_variable_turns_the_cache_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSMIC_CACHE", "")
    assert caching.cache_folder() is None
    caching.keep_cached("programs", "key", b"content")
    assert caching.read_cached("programs", "key") is None


def test_user_folders_turn_the_cache_off(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSMIC_PATH", str(tmp_path))
    caching.keep_cached("programs", "key", b"content")
    assert entries(folder) == []


@pytest.mark.long
def test_no_compiler_and_no_cache_give_the_same_answer(tmp_path: Path) -> None:
    """A machine without a compiler, whose home cannot be written."""
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    words = [sys.executable, "-m", "cosmic", "evaluate", "llama3-8b@dgx-h100:16", "--json"]
    answers = []
    for extra in (
        {"COSMIC_CACHE": str(tmp_path / "cache")},
        {"COSMIC_CACHE": str(tmp_path / "cache")},
        {"COSMIC_CACHE": str(blocked / "inside"), "COSMIC_NATIVE": "0"},
    ):
        found = subprocess.run(words, env={**os.environ, **extra}, capture_output=True, check=True, text=True)
        answers.append(json.loads(found.stdout))
        assert found.stderr == ""
    assert answers[0] == answers[1] == answers[2]


EXECUTED = """
import sys
from pathlib import Path
from cosmic.base import caching
ran = set()
from cosmic.evaluation import evaluate
from cosmic.search.mapping.design_completion import load_design
sys.setprofile(lambda frame, event, _: ran.add(frame.f_code.co_filename))
for name in ("llama3-8b@dgx-h100:64", "mixtral-8x7b@dgx-h100:64", "gpt3-175b@cosmic-1024"):
    evaluate(load_design(name))
sys.setprofile(None)
package = caching.PACKAGE
inside = {Path(name).relative_to(package).as_posix() for name in ran if Path(name).is_relative_to(package)}
assert len(inside) > 50
print(*sorted(name for name in inside if name not in caching.FILES and not name.startswith(caching.SOURCES)))
"""


def test_the_version_of_the_cache_covers_what_an_evaluation_executes() -> None:
    env = {**os.environ, "COSMIC_CACHE": ""}
    found = subprocess.run([sys.executable, "-c", EXECUTED], env=env, capture_output=True, text=True, check=True)
    assert found.stdout.split() == []
