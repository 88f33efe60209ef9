"""The doctor: what is whole in a damaged study is saved, and the search ends as if nothing had happened."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from cosmic.base.errors import SpecError
from cosmic.search.search_loop import resume_study, search
from cosmic.search.study.doctor import examine_study, repair_study
from cosmic.search.study.study import lock_study, open_study
from cosmic.search.study.trial_storage import Storage, StudyError
from tests.commands import run
from tests.search.damage import PAGE, damage
from tests.search.test_searching import same


def test_a_whole_study_is_left_alone(study: Path) -> None:
    before = {path.name: path.read_bytes() for path in study.iterdir()}
    repaired = repair_study(study)
    assert repaired.before.whole
    assert repaired.done == ()
    assert repaired.before.trials == len(open_study(study).trials)
    assert {name: (study / name).read_bytes() for name in before if name != "lock"}.items() <= before.items()


@pytest.mark.parametrize("content", [None, b""])
def test_a_study_without_its_trials_is_not_resumed_in_silence(
    content: bytes | None, study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As it would be begun anew, and a worse best found."""
    for path in study.glob("trials.db*"):
        path.unlink()
    if content is not None:
        (study / "trials.db").write_bytes(content)
    with pytest.raises(StudyError, match=r"trials\.db: is missing or empty"):
        resume_study(study)
    assert (study / "study.json").exists()
    status, _, stderr = run(capsys, "search", "--resume", "--out", str(study))
    assert status != 0
    assert "is missing or empty: bring it back, or begin anew in another folder" in stderr


@pytest.mark.parametrize("content", [None, "", "{}", "[1]", "\udcff", "["])
def test_study_json_is_restored_from_the_trials(content: str | None, study: Path) -> None:
    before = (study / "study.json").read_bytes()
    (study / "study.json").unlink()
    if content is not None:
        (study / "study.json").write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(StudyError, match="cosmic study doctor"):
        open_study(study)
    repaired = repair_study(study)
    assert repaired.done == ("study.json was restored from its copy in trials.db",)
    assert repaired.after.whole
    assert (study / "study.json").read_bytes() == before


def test_a_changed_input_is_noticed_and_restored(study: Path) -> None:
    text = (study / "study.json").read_text()
    for old, new in (('"seed": 11', '"seed": 12'), ('"created": "2', '"created": "3')):
        assert old in text
        (study / "study.json").write_text(text.replace(old, new))
        assert repair_study(study).before.findings == ("study.json is not what was written",)
        assert (study / "study.json").read_text() == text


def test_the_study_json_of_another_study_does_not_pass(study: Path, tmp_path: Path) -> None:
    search("cosmic-512-full-stack", agent="random", trials=5, seed=12, out=tmp_path / "other")
    shutil.copy(tmp_path / "other" / "study.json", study)
    repaired = repair_study(study)
    assert "differ" in repaired.before.findings[0]
    assert repaired.after.whole
    assert open_study(study).inputs.seed == 11


@pytest.mark.parametrize("statement", ["DELETE FROM inputs", "UPDATE inputs SET content = substr(content, 2)"])
def test_the_copy_among_the_trials_is_restored_from_study_json(statement: str, study: Path) -> None:
    with closing(sqlite3.connect(study / "trials.db")) as database:
        database.execute(statement)
        database.commit()
    repaired = repair_study(study)
    assert repaired.done == ("the copy of study.json in trials.db was written again",)
    assert repaired.after.whole
    with Storage.opened(study / "trials.db") as storage:
        assert storage.inputs() == (study / "study.json").read_text()


def test_where_the_inputs_are_lost_altogether_nothing_is_touched(study: Path) -> None:
    with closing(sqlite3.connect(study / "trials.db")) as database:
        database.execute("DROP TABLE inputs")
        database.commit()
        database.execute("VACUUM")
    (study / "study.json").write_text("{}")
    before = (study / "trials.db").read_bytes()
    repaired = repair_study(study)
    assert not repaired.after.whole
    assert repaired.done[0].startswith("nothing could be saved")
    assert (study / "trials.db").read_bytes() == before


@pytest.mark.parametrize("pages", [(5,), (6, 8), (7, 8, 10)])
def test_every_batch_that_is_whole_is_saved(pages: tuple[int, ...], study: Path) -> None:
    batches, whole = open_study(study).history
    content = bytearray((study / "trials.db").read_bytes())
    for page in pages:
        content[page * PAGE + 1000 : page * PAGE + 1100] = bytes(100)
    (study / "trials.db").write_bytes(content)
    repaired = repair_study(study)
    assert repaired.after.whole
    longest = max(batch.trials for batch in batches)  # of which two may share a page
    assert len(whole) - 2 * longest * len(pages) <= repaired.after.trials + repaired.after.salvaged
    resumed = resume_study(study)
    assert same(resumed.trials, whole)
    assert resumed.computed == len(whole) - repaired.after.trials - repaired.after.salvaged


def test_a_database_of_which_nothing_is_left_is_searched_again(study: Path) -> None:
    whole = open_study(study).trials
    (study / "trials.db").write_bytes(b"gone" * 1000)
    repaired = repair_study(study)
    assert repaired.after.whole
    assert repaired.after.trials + repaired.after.salvaged == 0
    assert same(resume_study(study).trials, whole)


@pytest.mark.parametrize("seed", range(6))
def test_a_damaged_study_ends_as_if_nothing_had_happened(seed: int, study: Path) -> None:
    whole = open_study(study).trials
    damage(study / "trials.db", seed)
    repaired = repair_study(study)
    assert repaired.after.whole
    resumed = resume_study(study)
    assert same(resumed.trials, whole)
    assert resumed.computed == len(whole) - repaired.after.trials - repaired.after.salvaged
    if repaired.kept is not None:
        assert repaired.kept.name == "trials.damaged.db"
        assert repaired.kept.exists()


def test_damage_after_damage_is_treated_as_well(study: Path) -> None:
    whole = open_study(study).trials
    for seed in (2, 1, 0):
        content = bytearray((study / "trials.db").read_bytes())
        place = random.Random(seed).randrange(len(content) // 3, len(content) - 4096)
        content[place : place + 4096] = bytes(4096)
        (study / "trials.db").write_bytes(content)
        assert repair_study(study).after.whole
    assert {path.name for path in study.glob("trials.damaged*.db")} == {
        "trials.damaged.db",
        "trials.damaged-2.db",
        "trials.damaged-3.db",
    }
    assert same(resume_study(study).trials, whole)


def test_a_study_that_somebody_writes_to_is_not_touched(study: Path) -> None:
    (study / "study.json").unlink()
    with lock_study(study), pytest.raises(StudyError, match="is writing to this study; wait for it, or stop it first"):
        repair_study(study)
    assert not (study / "study.json").exists()


def test_a_database_that_somebody_else_locks_is_not_replaced(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = bytearray((study / "trials.db").read_bytes())
    content[9 * PAGE : 10 * PAGE] = bytes(PAGE)
    (study / "trials.db").write_bytes(content)

    def locked_out(self: Storage, table: str) -> None:
        raise StudyError(f"{table}: database is locked")

    monkeypatch.setattr(Storage, "readable", locked_out)
    with pytest.raises(StudyError, match="database is locked"):
        repair_study(study)
    assert (study / "trials.db").read_bytes() == content


def test_what_is_no_study_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(SpecError, match="is no study"):
            repair_study(path)
    assert not (tmp_path / "nowhere").exists()


def test_trials_that_are_gone_can_be_searched_again(study: Path) -> None:
    whole = open_study(study).trials
    (study / "trials.db").unlink()
    assert repair_study(study).after.whole
    assert same(resume_study(study).trials, whole)


# ---- the command


def test_the_command_says_that_a_study_is_whole(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    count = len(open_study(study).trials)
    for words in ([], ["--check"]):
        status, out, err = run(capsys, "study", "doctor", str(study), *words)
        assert (status, err) == (0, "")
        assert out.startswith(f"{study} is intact: {count} trials in ")


def test_the_command_examines_and_saves(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = bytearray((study / "trials.db").read_bytes())
    content[len(content) * 3 // 4] ^= 1
    (study / "trials.db").write_bytes(content)
    status, out, _ = run(capsys, "study", "doctor", str(study), "--check")
    assert status == 1
    assert out.startswith("trials.db is damaged: ")
    assert f"'cosmic study doctor {study}' repairs it" in out
    assert not examine_study(study).whole
    status, out, _ = run(capsys, "study", "doctor", str(study), "--json")
    found = json.loads(out)
    assert status == 0
    assert found["whole"]
    assert found["salvaged"] > 0
    assert found["damaged"].endswith("trials.damaged.db")
    assert examine_study(study).whole


def test_the_command_exits_with_1_where_nothing_can_be_saved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "trials.db").write_bytes(b"no database" * 999)
    status, out, _ = run(capsys, "study", "doctor", str(tmp_path))
    assert status == 1
    assert "nothing could be saved" in out
