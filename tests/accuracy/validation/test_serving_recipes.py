"""Recipes of published serving runs: entries are found by columns, and nothing of the file goes unread."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cosmic.accuracy.rows.serving_recipes import Instances, Setting, read_instances, recipe_of, split_of, unknown_keys
from cosmic.base.errors import SpecError

ROW = Setting(
    engine="trtllm",
    version="0.8.1.post2",
    model="deepseek-v3",
    system="gb200",
    precision="fp4",
    isl=1024,
    osl=1024,
    concurrency=4301,
    source="db-dump/2026-04-27; measured=2026-03-23T00:00:00.000Z",
)


def test_every_key_of_the_file_is_read() -> None:
    assert unknown_keys() == set()


def test_a_row_says_its_day_client_and_file() -> None:
    assert (ROW.day, ROW.client, ROW.file) == ("2026-03-23", "drawn", "db")
    other = replace(ROW, source="source_file=aic-auto-gap-analysis/x.csv")
    assert (other.day, other.client, other.file) == ("", "exact", "csv")


def test_splits_of_one_load_are_told_apart_by_their_gpus() -> None:
    narrow = split_of(ROW, npus=12)
    wide = split_of(ROW, npus=24)
    assert narrow is not None
    assert wide is not None
    assert (narrow.decode, narrow.batch) == (Instances(1, 1, 8), 512)
    assert (wide.decode, wide.batch) == (Instances(1, 1, 16), 256)
    assert split_of(ROW, decode=(1, 16)) == wide
    assert split_of(ROW, npus=13) is None
    assert split_of(replace(ROW, concurrency=4302)) is None


def test_a_split_is_of_its_time() -> None:
    early = replace(ROW, concurrency=1075, source="measured=2025-11-17")
    assert split_of(early, npus=20) is not None
    assert split_of(replace(early, source="measured=2026-11-17"), npus=20) is None
    assert split_of(replace(early, source=""), npus=20) is None  # without a day nothing dated fits


def test_later_entries_override() -> None:
    assert recipe_of(replace(ROW, split=True)).chunk(1024) == 8192
    assert recipe_of(replace(ROW, split=True, osl=8192)).chunk(1024) == 16384
    assert recipe_of(replace(ROW, split=True, isl=8192)).chunk(8192) == 8448


@pytest.mark.parametrize("text", ["tp8", "4 pp8", "4 tp", ""])
def test_instances_that_are_not_understood_are_refused(text: str) -> None:
    with pytest.raises(SpecError):
        read_instances(text)
