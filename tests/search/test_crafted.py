"""A study that somebody sent is data: it makes us read no other file, wait for ever, or end in a traceback."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from cosmic.base import files
from cosmic.base.errors import CosmicError, SpecError
from cosmic.cli.dispatch import call_command, split_command
from cosmic.design import plain_data
from cosmic.search.search_inputs import with_problem
from cosmic.search.search_loop import resume_study, search
from cosmic.search.space.parameter_set import ParameterSet
from cosmic.search.space.space_files import load_space
from cosmic.search.study import trial_storage as storing
from cosmic.search.study import trial_storage as study_database
from cosmic.search.study.doctor import examine_study, repair_study
from cosmic.search.study.study import Study, lock_study, open_study
from cosmic.search.study.trial_storage import DamagedTrials, Storage, StudyError
from tests.search import crafted, crafted_databases, crafted_inputs, crafted_packed
from tests.search.spoiling import SECRET, copied

pytestmark = pytest.mark.xdist_group("crafted")  # what its tests share is made once

HARMLESS = {
    # what may be so, or what nothing relies on
    *("input_settings_1", "input_agent_0", "agent_is_file", "input_objectives_7", "about_nobody_0", "json_key_twice"),
    *("index_of_log_is_garbage", "log_is_garbage", "trials_db_sparse"),
    *("sql_other_page_size", "sql_inputs_deleted", "sql_copy_is_a_blob", "sql_copy_is_large", "sql_ending_is_a_blob"),
    *("sql_ending_is_long", "inputs_are_dropped", "new_trials_are_a_link", "batch_asked_6"),
    *("space_objective_1", "schema_same_page"),
    *("packed_all_the_same", "packed_nothing_counted", "packed_kind_0_1", "packed_kind_14_1"),
    *("packed_salvaged_are_dropped", "packed_sql_salvaged_of_a_batch", "packed_sql_salvaged_nonsense"),
}
"""Crafted studies that can be read all the same: with them, commands go on."""
READING = {
    "report": ["report", "STUDY", "--isolated", "0"],
    "compare": ["study", "compare", "STUDY"],
    "export": ["study", "export", "STUDY", "--to", "-"],
    "replay": ["study", "replay", "STUDY"],
    "resume": ["search", "--resume", "--out", "STUDY"],
    "check": ["study", "doctor", "STUDY", "--check"],
    "doctor": ["study", "doctor", "STUDY"],
    "doctor, as JSON": ["study", "doctor", "STUDY", "--check", "--json"],
}
"""Every command that reads a study; the last ones may repair it."""
TRIED = (
    *("base_is_file", "trials_db_is_pipe", "lock_is_dangling_link", "saved_trials_are_a_link", "saved_log_is_a_folder"),
    *("journal_names_another_file", "json_nested_deeply", "input_settings_3", "batches_never_come"),
    *("trials_page_repeated", "batch_asked_0", "batch_numbers_far"),
    *("packed_bomb", "packed_never_come", "packed_header_parameters_4294967295", "packed_text_1", "packed_overlaps"),
)
"""Crafted studies that every command is tried with."""
SAMPLED = [*list(crafted.SPOILED)[::2], *crafted_packed.SPOILED, *TRIED]


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Crafted studies; nobody changes them."""
    return crafted.crafted_studies(tmp_path_factory.mktemp("crafted"), SAMPLED)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load the same parameter set once."""
    known: dict[str, ParameterSet] = {}

    def once(space: Mapping[str, Any], *, files: bool) -> ParameterSet:
        assert not files
        text = json.dumps(space)
        if text not in known:
            known[text] = load_space(space, files=files)
        return known[text]

    monkeypatch.setattr(import_module("cosmic.search.search_inputs"), "load_space", once)


def good(studies: dict[str, Path]) -> Study:
    return open_study(studies["base_is_file"].parent / "good")


def said(name: str, study: Path, error: CosmicError) -> None:
    """Check a sentence about a crafted study."""
    text = str(error)
    assert str(study) in text, (name, text)
    assert len(text.splitlines()) == 1, (name, text)
    assert len(text) < 600 + 3 * len(str(study)), (name, text)
    assert SECRET not in text, (name, text)
    assert "root:" not in text, (name, text)


def test_there_are_many_of_them() -> None:
    assert len(crafted.SPOILED) >= 300
    assert crafted.SPOILED.keys() >= HARMLESS
    assert crafted.SPOILED.keys() >= set(TRIED)


def test_crafted_inputs_are_refused_in_a_sentence(studies: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    read, around = files.read_bytes, studies["base_is_file"].parent

    def watched(path: Path, *rest: Any, **named: Any) -> bytes:
        assert not path.resolve().is_relative_to(around), f"{path} was read"
        assert not str(path).startswith(("/etc", "/dev")), f"{path} was read"
        return read(path, *rest, **named)

    monkeypatch.setattr(plain_data, "read_bytes", watched)
    problem, refused = good(studies).problem, set()
    for name in studies.keys() & crafted_inputs.SPOILED.keys():
        try:
            opened = open_study(studies[name])
            if opened.inputs == good(studies).inputs:
                with_problem(opened.inputs, problem)
            _ = opened.trials
        except CosmicError as error:
            said(name, studies[name], error)
            refused.add(name)
    assert studies.keys() & crafted_inputs.SPOILED.keys() - refused <= HARMLESS
    assert refused & HARMLESS == set()


def test_crafted_trials_are_refused_in_a_sentence(studies: dict[str, Path]) -> None:
    problem, refused = good(studies).problem, set()
    databases = crafted_databases.SPOILED.keys() | crafted_packed.SPOILED.keys()
    for name in studies.keys() & databases:
        try:
            with Storage.opened(studies[name] / "trials.db", problem=problem) as storage:
                storage.history()
        except StudyError as error:
            said(name, studies[name], error)
            assert "cosmic study doctor" in str(error), (name, str(error))
            refused.add(name)
    assert studies.keys() & databases - refused <= HARMLESS
    assert refused & HARMLESS == set()


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", TRIED)
def test_every_command_says_one_sentence(
    name: str, studies: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    around = studies[name].parent
    study = crafted.crafted_study(around / "good", name)  # afresh: the last command repairs it
    before = {path: path.read_bytes() for path in around.iterdir() if path.is_file()}
    for words in READING.values():
        command, following = split_command([str(study) if word == "STUDY" else word for word in words])
        status = call_command(command, following)
        out, err = capsys.readouterr()
        assert status in (0, 1, 2), (words, err)
        assert err.count("\n") == (0 if command == "study doctor" else 1), (words, err)
        assert SECRET not in out + err
    assert not (around / "written-outside").exists()
    assert {path: path.read_bytes() for path in around.iterdir() if path.is_file()} == before


@pytest.mark.parametrize(
    "name",
    [
        *("packed_never_come", "sql_trigger_endless", "batch_trials_0"),
        *("packed_number_1", "packed_sql_trigger", "packed_cut_at_100", "packed_bomb", "packed_overlaps"),
        *("packed_sql_salvaged_nonsense", "packed_first_2", "packed_batch_3"),
    ],
)
def test_the_doctor_saves_what_a_search_may_have_written(name: str, studies: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(studies["base_is_file"].parent / "good", tmp_path / "good")
    study = copied(tmp_path / "good", "study")
    crafted.SPOILED[name](study)
    assert not examine_study(study).whole
    assert repair_study(study).after.whole
    assert len(resume_study(study).trials) == len(open_study(tmp_path / "good").trials)


# ---- one by one


def test_a_query_ends_after_as_many_steps_as_the_file_explains(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storing, "MIN_STEPS", 1_000_000)
    monkeypatch.setattr(storing, "STEPS_PER_BYTE", 0)
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n WHERE x < 0"
    with Storage.opened(study / "trials.db") as storage:
        with pytest.raises(DamagedTrials, match="more steps than its size explains"):
            storage.rows(endless)
        assert len(storage.history()[1]) > 300  # and the next query has all its steps


def test_rows_that_share_pages_do_not_fill_the_memory(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Storage, "_bytes", lambda _: 100)
    with Storage.opened(study / "trials.db") as storage, pytest.raises(DamagedTrials, match="longer than the file"):
        storage.history()


def test_a_database_that_is_read_cannot_be_written(study: Path) -> None:
    with Storage.opened(study / "trials.db") as storage, pytest.raises(StudyError, match="readonly"):
        storage.rows("DELETE FROM packed")


def test_the_tables_of_a_new_study_are_the_known_ones(study: Path) -> None:
    with Storage.opened(study / "trials.db", strict=False) as storage:
        assert storage.foreign() == []
        assert all(storage.has(table) for table in study_database.SCHEMA)


def test_a_new_search_does_not_write_through_links(tmp_path: Path) -> None:
    for name in ("lock", "trials.db", "study.json"):
        folder = tmp_path / name.partition(".")[0]
        folder.mkdir()
        (folder / name).symlink_to(tmp_path / "elsewhere")
        with pytest.raises(StudyError, match="is a link"):
            search("cosmic-512-full-stack", agent="random", trials=5, out=folder)
        assert not (tmp_path / "elsewhere").exists()


def test_what_a_study_could_not_keep_is_refused_before_the_search(tmp_path: Path) -> None:
    (tmp_path / "model.yaml").write_text(
        "model: {family: decoder, layers: 4, hidden: 64, heads: 4, ffn: 256, vocab: 100}\n"
    )
    base = {"model": "gpt3-175b", "system": "cosmic-1024"}
    space = {"base": base, "parameters": {"workload.micro_batch": [1, 2]}}
    mix = {"a": {"weight": 1}, "b": {"model": str(tmp_path / "model.yaml")}}
    assert len(load_space({**space, "workloads": mix}).workloads) == 2  # a user's own file
    with pytest.raises(SpecError, match="refers to no file"):
        search({**space, "workloads": mix}, agent="random", trials=2)
    with pytest.raises(SpecError, match="1,000,000"):
        search(space, agent="random", trials=2, batch=10**7)
    with pytest.raises(SpecError, match="printable"):
        load_space({**space, "workloads": {"a\x1b": {"weight": 1}}})


@pytest.mark.parametrize("base", ["x.yaml", "gpt3-175b@x.yaml", "x.json@cosmic-1024", {"model": "x.yaml"}])
def test_a_set_from_data_takes_nothing_for_a_path(base: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.yaml").write_text(f"password: {SECRET}\n")
    (tmp_path / "x.json").write_text(json.dumps({"password": SECRET}))
    with pytest.raises(SpecError) as caught:
        load_space({"base": base, "parameters": {"workload.micro_batch": [1, 2]}}, files=False)
    assert SECRET not in str(caught.value)
    with pytest.raises(SpecError, match="content"):
        load_space("cosmic-1024-paper", files=False)


def test_the_lock_of_a_study_is_named_on_one_line(study: Path) -> None:
    with lock_study(study):
        (study / "lock").write_bytes(b"\x1b[2Jprocess\n1")
        with pytest.raises(StudyError) as caught, lock_study(study):
            pass
    assert str(caught.value).isprintable()
