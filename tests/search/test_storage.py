"""Trials on disk: batches whole or not at all, damage found, a full disk survived."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from cosmic.search.problem import METRICS, Results
from cosmic.search.study.study import open_study
from cosmic.search.study.trial_storage import BatchRecord, DamagedTrials, Storage, StudyError, holds_trials
from cosmic.search.trials import Trials
from tests.search.damage import damaged
from tests.search.test_searching import same

FLIPS = 300


def made(n: int, value: float = 1.0) -> Trials:
    columns = {name: np.full(n, value) for name in METRICS}
    return Trials(np.arange(3 * n).reshape(n, 3), Results(columns, np.zeros(n), [""] * n, np.ones(n, dtype=bool)))


def test_what_is_written_is_read_bit_for_bit(tmp_path: Path) -> None:
    awkward = [0.1, -0.0, 1e-150, 1e150, 1 / 3, np.nan, 3.0, 2.0**60]
    n = len(awkward)
    columns = {name: np.array(awkward) for name in METRICS}
    excess = np.array([0.0, -0.0, np.inf, 0.25, 1.7976931348623157e308, 2.0, 5e-324, 0.0])
    reasons = ["", "a, b", "ünïcode", "x" * 5000, "'", '"', " ", "="]
    rows = np.array([[0, 65_535, 99_999]] * n)
    trials = Trials(rows, Results(columns, excess, reasons, np.array([True, False] * (n // 2))))
    with Storage.opened(tmp_path / "t.db", write=True) as storage:
        storage.append(BatchRecord(0, 9, n), trials, 0)
    with Storage.opened(tmp_path / "t.db") as storage:
        batches, found = storage.history()
    assert batches == [BatchRecord(0, 9, n)]
    assert np.array_equal(found.rows, rows)
    assert found.results.reasons == reasons
    assert np.array_equal(found.results.excess, excess)
    assert np.array_equal(found.results.counted, trials.results.counted)
    for name in METRICS:
        assert np.array_equal(found.results.columns[name], columns[name], equal_nan=True)


def test_a_batch_that_fails_half_way_is_not_there(tmp_path: Path) -> None:
    with Storage.opened(tmp_path / "t.db", write=True) as storage:
        storage.append(BatchRecord(0, 4, 4), made(4), 0)
        with pytest.raises(StudyError):
            storage.append(BatchRecord(0, 4, 4), made(4), 4)  # batch 0 is there already
        assert storage.history()[0] == [BatchRecord(0, 4, 4)]
        storage.append(BatchRecord(1, 4, 4), made(4), 4)
        assert len(storage.history()[1]) == 8


def test_readers_read_on_while_somebody_writes(tmp_path: Path) -> None:
    with Storage.opened(tmp_path / "t.db", write=True) as writer:
        writer.append(BatchRecord(0, 4, 4), made(4), 0)
        with Storage.opened(tmp_path / "t.db") as reader, closing(sqlite3.connect(tmp_path / "t.db")) as other:
            other.execute("BEGIN IMMEDIATE")
            assert len(reader.history()[1]) == 4
            other.execute("ROLLBACK")
            writer.append(BatchRecord(1, 4, 4), made(4), 4)
            assert len(reader.history()[1]) == 8


def test_a_reader_does_not_write(tmp_path: Path) -> None:
    with Storage.opened(tmp_path / "t.db", write=True) as writer:
        writer.append(BatchRecord(0, 4, 4), made(4), 0)
    with Storage.opened(tmp_path / "t.db") as reader, pytest.raises(StudyError, match="readonly"):
        reader.append(BatchRecord(1, 4, 4), made(4), 4)


def test_a_full_disk_is_said_in_a_sentence_and_nothing_is_lost(tmp_path: Path) -> None:
    with Storage.opened(tmp_path / "t.db", write=True) as storage:
        storage.append(BatchRecord(0, 40, 40), made(40), 0)
        pages = storage._connection.execute("PRAGMA page_count").fetchone()[0]
        storage._connection.execute(f"PRAGMA max_page_count = {pages + 2}")
        with pytest.raises(StudyError, match="the disk is full; every finished batch is safe: make room"):
            storage.append(BatchRecord(1, 400, 400), made(400), 40)
        assert storage.history()[0] == [BatchRecord(0, 40, 40)]
        storage._connection.execute("PRAGMA max_page_count = 1000000")
        storage.append(BatchRecord(1, 400, 400), made(400), 40)
        assert len(storage.history()[1]) == 440


def test_trials_that_are_missing_are_noticed_though_every_row_is_whole(study: Path) -> None:
    with closing(sqlite3.connect(study / "trials.db")) as database:
        first, count = database.execute("SELECT first, trials FROM packed ORDER BY first DESC LIMIT 1").fetchone()
        database.execute("DELETE FROM packed WHERE first = ?", (first,))
        database.commit()
    with pytest.raises(DamagedTrials, match=f"{first + count} trials were written, {first} are there"):
        _ = open_study(study).trials


@pytest.mark.parametrize("table", ["batches", "packed"])
def test_a_gap_is_noticed(table: str, study: Path) -> None:
    with closing(sqlite3.connect(study / "trials.db")) as database:
        database.execute(f"DELETE FROM {table} WHERE batch = 3")
        database.commit()
    with pytest.raises(DamagedTrials, match=r"(batch 3|trial \d+) is not what was written"):
        _ = open_study(study).trials


def test_a_database_without_a_batch_holds_no_trials(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    assert not holds_trials(path)
    path.touch()
    assert not holds_trials(path)
    with Storage.opened(path, write=True):
        pass
    assert not holds_trials(path)
    path.write_bytes(b"not a database" * 1000)
    assert holds_trials(path)


@pytest.mark.parametrize("part", range(3))
def test_damage_is_either_harmless_or_said_never_a_wrong_value(part: int, original: Path, tmp_path: Path) -> None:
    whole, content = open_study(original).trials, (original / "trials.db").read_bytes()
    path, said = tmp_path / "trials.db", 0
    for seed in range(part, FLIPS // 2, 3):
        path.write_bytes(damaged(content, random.Random(seed)))
        try:
            with Storage.opened(path) as storage:
                assert same(storage.history()[1], whole), seed
        except StudyError as error:
            said += 1
            assert "cosmic study doctor" in str(error), seed
    assert said > FLIPS // 2 // 3 // 2
