"""Tests of many items fail with a message for each item that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.batches import check_all


def equal(first: int, second: int) -> None:
    if first != second:
        raise ValueError(f"{first} is not {second}")


def test_each_failure_is_named_and_the_others_still_run() -> None:
    check = check_all("first, second", [(1, 1), (1, 2), (3, 3), (3, 4)])(equal)
    with pytest.raises(
        AssertionError, match=r"2 of 4 fail\n\(1, 2\): ValueError: 1 is not 2\n\(3, 4\): ValueError: 3 is"
    ):
        check()


def test_items_are_dealt_out_among_the_tests() -> None:
    check = check_all("first, second", [(1, 1), (1, 2), (3, 3), (3, 4)], tests=2)(equal)
    check(batch=0)
    with pytest.raises(AssertionError, match="2 of 2 fail"):
        check(batch=1)


@check_all("power", range(3))
@check_all("base", [1, 2])
def test_checks_combine_and_ask_for_fixtures(base: int, power: int, tmp_path: Path) -> None:
    assert base**power in (1, 2, 4)
    assert tmp_path.is_dir()
