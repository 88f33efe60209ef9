"""Files of communicator groups, and what traces state of groups."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosmic.base.errors import SpecError
from cosmic.traces.trace import (
    NodeType,
    RankTrace,
    TraceSet,
    known_groups,
    ranks_by_template,
    read_groups,
    stated_groups,
    template_of,
    write_groups,
)
from tests.traces.graphs import comp


def test_groups_are_read_in_their_order(tmp_path: Path) -> None:
    file = tmp_path / "groups.json"
    file.write_text('{"2": [3, 1], "1": [0]}')
    assert list(read_groups(file).items()) == [("2", (3, 1)), ("1", (0,))]
    file.write_text("{}")
    assert read_groups(str(file)) == {}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is not JSON: Expecting value: line 1 column 1 (char 0)"),
        ("{", "is not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("\ufeff{}", "is not JSON: Unexpected UTF-8 BOM (decode using utf-8-sig): line 1 column 1 (char 0)"),
        ("[" * 100_000, "is nested too deeply"),
    ],
)
def test_what_is_no_json_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "g.json"
    file.write_text(text)
    with pytest.raises(SpecError, match=r"^file = .*g\.json") as caught:
        read_groups(file)
    assert caught.value.rule == sentence


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[[0, 1]]", 'g.json = [[0, 1]]: must be an object, such as {"1": [0, 1], "2": [2, 3]}'),
        ("7", 'g.json = 7: must be an object, such as {"1": [0, 1], "2": [2, 3]}'),
        ('{"0": [0]}', "g.json: group = '0': is named by a whole number from 1 on"),
        ('{"-1": [0]}', "g.json: group = '-1': is named by a whole number from 1 on"),
        ('{"01": [0]}', "g.json: group = '01': is named by a whole number from 1 on"),
        ('{"tp": [0]}', "g.json: group = 'tp': is named by a whole number from 1 on"),
        ('{"\u0661": [0]}', "g.json: group = '\u0661': is named by a whole number from 1 on"),
        ('{"1": [0], "1": [1]}', "g.json: group = '1': is defined twice"),
        ('{"1": 0}', "g.json: group 1 = 0: must be a list of ranks"),
        ('{"1": {"0": 1}}', "g.json: group 1 = [('0', 1)]: must be a list of ranks"),
        ('{"1": []}', "g.json: group 1 = []: has no ranks"),
        ('{"1": [-1]}', "g.json: group 1 = -1: a rank is a whole number from 0 on"),
        ('{"1": [0.0]}', "g.json: group 1 = 0.0: a rank is a whole number from 0 on"),
        ('{"1": [true]}', "g.json: group 1 = True: a rank is a whole number from 0 on"),
        ('{"1": ["0"]}', "g.json: group 1 = '0': a rank is a whole number from 0 on"),
        ('{"1": [[0]]}', "g.json: group 1 = [0]: a rank is a whole number from 0 on"),
        ('{"1": [NaN]}', "g.json: group 1 = nan: a rank is a whole number from 0 on"),
        ('{"1": [2, 0, 2]}', "g.json: group 1 = 2: the rank is listed twice"),
    ],
)
def test_what_is_no_group_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "g.json"
    file.write_text(text)
    with pytest.raises(SpecError) as caught:
        read_groups(file)
    assert str(caught.value) == sentence


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"\xe9")
    for file, rule in (
        (tmp_path, "is a directory, not a file"),
        (tmp_path / "no", "No such file"),
        (tmp_path / "latin", "is not text in UTF-8"),
    ):
        with pytest.raises(SpecError, match=rule) as caught:
            read_groups(file)
        assert caught.value.value == str(file)
    with pytest.raises(SpecError, match="is no name that a file can have"):
        read_groups("a\0b")


@given(
    st.dictionaries(
        st.integers(1, 2**40).map(str), st.lists(st.integers(0, 2**40), min_size=1, unique=True).map(tuple), max_size=5
    )
)
def test_written_groups_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, groups: dict[str, tuple[int, ...]]
) -> None:
    file = tmp_path_factory.getbasetemp() / "written.json"
    write_groups(groups, file)
    assert read_groups(file) == groups


def test_groups_cannot_be_written_where_there_is_no_folder(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot be written: No such file or directory"):
        write_groups({}, tmp_path / "no" / "groups.json")
    with pytest.raises(SpecError, match="is no name that a file can have"):
        write_groups({}, "a\0b")


def traces(*texts: str) -> TraceSet:
    rows = [{"id": place, "type": NodeType.METADATA, "process_groups": text} for place, text in enumerate(texts)]
    return TraceSet((RankTrace(template_of(rows)),) * 4)


def test_process_groups_are_stated_as_pytorch_writes_them() -> None:
    text = """['[{"pg_name": "0", "ranks": []}, {"pg_name": "5", "pg_desc": "dp", "ranks": [1, 3]}, {"pg_name": 6}]']"""
    assert stated_groups(traces(text, text)) == {"0": (0, 1, 2, 3), "5": (1, 3), "6": (0, 1, 2, 3)}
    assert stated_groups(traces("['<None>', 4]", "")) == {}


@pytest.mark.parametrize(
    "text",
    [
        "[{oops}]",
        '[{"ranks": [0]}]',
        '[{"pg_name": "1", "ranks": 4}]',
        '[{"pg_name": "1", "ranks": ["x"]}]',
        '[{"a":1},3,{"b":2}]',
    ],
)
def test_process_groups_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(SpecError, match=r"^trace: process groups"):
        stated_groups(traces(text))


def test_given_groups_count_more_than_stated_ones() -> None:
    stated = traces('[{"pg_name": "1", "ranks": [0, 1]}]')
    assert known_groups(stated)["1"] == (0, 1)
    assert known_groups(stated, {"1": [2]})["1"] == (2,)
    assert known_groups(stated)[""] == known_groups(stated)["0"] == (0, 1, 2, 3)


def test_ranks_are_listed_by_the_template_they_share() -> None:
    one, other = template_of([comp(1)]), template_of([comp(1)])
    ranks = tuple(map(RankTrace, (one, other, one)))
    assert ranks_by_template(TraceSet(ranks)) == [(one, [0, 2]), (other, [1])]
