"""Studies: one writer, many readers, and whatever interrupts them, they go on as if nothing had happened."""

from __future__ import annotations

import errno
import importlib.metadata
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from cosmic.base.errors import CosmicError, SpecError
from cosmic.search.problem import Problem, Results
from cosmic.search.search_loop import Found, resume_study, search
from cosmic.search.space.diagram import Indices
from cosmic.search.study.doctor import examine_study
from cosmic.search.study.study import lock_study, open_study, parse_study, software_versions
from cosmic.search.study.trial_storage import Storage, StudyError
from tests.search.damage import damaged
from tests.search.test_searching import same

SPACE = "cosmic-512-full-stack"
OPTIONS: dict[str, Any] = {"agent": "random", "trials": 300, "batch": 30, "seed": 11}


def again(folder: Path, **changes: Any) -> Found:
    return search(SPACE, **OPTIONS | changes, out=folder, resume=True)


def test_a_second_writer_is_refused_while_readers_read_on(study: Path) -> None:
    with lock_study(study):
        with pytest.raises(StudyError, match=f"process {os.getpid()} on .* is writing to this study; wait for it"):
            again(study)
        assert len(open_study(study).trials) > 300
    assert again(study).computed == 0


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ValueError, MemoryError])
def test_whatever_ends_a_search_it_can_be_resumed(
    error: type[BaseException], original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate, calls = Problem.evaluate, [0]

    def failing(self: Problem, rows: Indices) -> Results:
        calls[0] += 1
        if calls[0] == 6:
            raise error
        return evaluate(self, rows)

    with monkeypatch.context() as patched:
        patched.setattr(Problem, "evaluate", failing)
        with pytest.raises(error):
            search(SPACE, **OPTIONS, out=tmp_path / "s")
    found = examine_study(tmp_path / "s")
    assert (found.whole, found.batches) == (True, 5)
    resumed = resume_study(tmp_path / "s")
    assert same(resumed.trials, open_study(original).trials)
    assert resumed.computed == len(resumed.trials) - found.trials


@pytest.mark.parametrize("pages", [4, 6, 9, 12])
def test_a_full_disk_ends_a_search_with_a_sentence_and_it_goes_on_when_there_is_room(
    pages: int, original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = Storage._prepare

    def small(self: Storage) -> None:
        self._connection.execute(f"PRAGMA max_page_count = {pages}")
        prepare(self)

    with monkeypatch.context() as patched:
        patched.setattr(Storage, "_prepare", small)
        with pytest.raises(StudyError, match="the disk is full"):
            search(SPACE, **OPTIONS, out=tmp_path / "s")
    assert same(again(tmp_path / "s").trials, open_study(original).trials)


def test_a_disk_that_is_full_from_the_beginning_is_survived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", full)
        with pytest.raises(StudyError, match="the disk is full"):
            search(SPACE, agent="random", trials=5, out=tmp_path)
    with pytest.raises(SpecError, match="is no study"):
        open_study(tmp_path)
    assert search(SPACE, agent="random", trials=5, out=tmp_path).trials.evaluated == 5


def test_a_directory_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StudyError, match="cannot be written"):
        search(SPACE, agent="random", trials=5, out=tmp_path / "file" / "study")


@pytest.mark.parametrize("left", ["nothing", "an empty database", "tables"])
def test_a_search_killed_at_its_birth_begins_again(left: str, tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    if left == "an empty database":
        (tmp_path / "trials.db").touch()
    elif left == "tables":
        with Storage.opened(tmp_path / "trials.db", write=True) as storage:
            storage.set_inputs("{}")
    found = search(SPACE, agent="random", trials=5, out=tmp_path)
    assert found.trials.evaluated == 5
    assert examine_study(tmp_path).whole


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"seed": 12}, "seed"),
        ({"agent": "genetic"}, "agent"),
        ({"objectives": ["mfu"]}, "objectives"),
        ({"constraints": ["mfu >= 0.1"]}, "constraints"),
        ({"stacks": ["network"]}, "stacks"),
        ({"engine": "event"}, "engine"),
    ],
)
def test_other_inputs_are_refused_by_name(changes: dict[str, Any], name: str, study: Path) -> None:
    with pytest.raises(SpecError, match="was begun with") as caught:
        again(study, **changes)
    assert caught.value.where == name
    assert same(again(study).trials, open_study(study).trials)


def test_another_space_is_refused(study: Path) -> None:
    with pytest.raises(SpecError, match="was begun with") as caught:
        search("cosmic-1024-full-stack", **OPTIONS, out=study, resume=True)
    assert caught.value.where == "space"


def test_more_trials_extend_a_study_and_keep_its_birthday(study: Path) -> None:
    before = open_study(study)
    known = len(before.trials)
    longer = again(study, trials=400)
    after = open_study(study)
    assert longer.computed == len(longer.trials) - known
    assert after.inputs.trials == 400
    assert after.created == before.created
    assert examine_study(study).whole


def test_resuming_what_is_complete_changes_no_input(study: Path) -> None:
    before = (study / "study.json").read_bytes()
    assert again(study).computed == 0
    assert (study / "study.json").read_bytes() == before


def test_a_damaged_study_json_is_said_or_harmless(original: Path, tmp_path: Path) -> None:
    content = (original / "study.json").read_bytes()
    whole = open_study(original)
    said = 0
    for seed in range(300):
        (tmp_path / "study.json").write_bytes(damaged(content.ljust(8192), random.Random(seed)))
        try:
            found = open_study(tmp_path)
            assert (found.inputs, found.created, found.written_by) == (whole.inputs, whole.created, whole.written_by)
        except CosmicError:
            said += 1
    assert said > 50


@pytest.mark.parametrize("text", ["", "null", "[]", "3", '{"format": 2}', '{"format": 2, "inputs": []}', "[" * 100_000])
def test_what_is_no_study_json_is_said(text: str, tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="is not what was written"):
        parse_study(tmp_path, text)


def test_a_study_of_a_later_release_is_said(study: Path) -> None:
    content = json.loads((study / "study.json").read_text())
    with pytest.raises(SpecError, match="this release reads format 2"):
        parse_study(study, json.dumps(content | {"format": 3}))


def test_a_study_says_which_libraries_may_have_decided_it() -> None:
    found = software_versions()
    assert {"cosmic", "python", "numpy", "platform"} <= set(found)
    assert found["scikit-learn"] == importlib.metadata.version("scikit-learn")
    assert all(found.values())
