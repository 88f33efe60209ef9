"""Long arrays are read in pieces, wherever blocks end."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosmic.base.errors import SpecError
from cosmic.base.native.library import native_library
from cosmic.traces.profiles import json_stream
from cosmic.traces.profiles.json_stream import ABSENT, TEXT, TIME, WHOLE, JsonDocument, Key, RowReader

ELEMENTS = [{"a": 'x]}\\"', "n": at, "t": at + 0.25, "args": {"b": [1, [2]], "c": "é" * at}} for at in range(40)]
TEXT_OF_ALL = json.dumps({"before": [1, 2], "long": ELEMENTS, "after": {"long": 3}}, ensure_ascii=False).encode()
KEYS = (Key("n", WHOLE), Key("t", TIME), Key("a", TEXT), Key("c", TEXT, 1))


@pytest.mark.parametrize("size", [7, 64, 1000, 10**6])
@pytest.mark.parametrize("native", [True, False])
def test_elements_are_the_same_wherever_blocks_end(tmp_path: Path, monkeypatch: Any, size: int, native: bool) -> None:
    monkeypatch.setattr(json_stream, "BLOCK_BYTES", size)
    if not native:
        monkeypatch.setattr(json_stream, "native_library", lambda: None)
        monkeypatch.setattr(json_stream, "native_library", lambda: None)
    (tmp_path / "x.json").write_bytes(TEXT_OF_ALL)
    document = JsonDocument(tmp_path / "x.json", "long")
    assert [each for text in document.elements() for each in json.loads(text)] == ELEMENTS
    assert document.rest == {"before": [1, 2], "long": [], "after": {"long": 3}}
    reader = RowReader(JsonDocument(tmp_path / "x.json", "long"), KEYS, "args")
    elements, rows = [], []
    for batch in reader.batches():
        elements += [json.loads(batch.element(row)) for row in range(len(batch.table))]
        rows += [batch.table[row].tolist() for row in range(len(batch.table)) if row not in batch.irregular]
    assert elements == ELEMENTS
    assert rows == []  # every element has an escaped character, or there is no C


def test_rows_hold_integers_nanoseconds_and_numbers_of_texts(tmp_path: Path) -> None:
    text = '{"long": [{"n": -3, "t": 1.5, "a": "x", "args": {"c": "x"}}, {"a": "y"}, {"n": null}, {"n": 1e3}, 7]}'
    (tmp_path / "x.json").write_text(text)
    reader = RowReader(JsonDocument(tmp_path / "x.json", "long"), KEYS, "args")
    (batch,) = reader.batches()
    if native_library() is None:
        pytest.skip("there is no compiled library")
    assert batch.table[:3].tolist() == [[-3, 1500, 0, 0], [ABSENT, ABSENT, 1, ABSENT], [ABSENT] * 4]
    assert reader.texts.listed() == [b"x", b"y"]
    assert batch.irregular.tolist() == [3, 4]


@given(st.binary(max_size=40), st.integers(1, 9))
def test_brackets_are_found_alike_in_c_and_with_arrays(content: bytes, size: int) -> None:
    if native_library() is None:
        pytest.skip("there is no compiled library")
    compiled, arrays = json_stream._Scan("x"), json_stream._Scan("x")
    for start in range(0, len(content), size):
        block = content[start : start + size]
        found = compiled._compiled(block)
        assert found == arrays._by_arrays(block)
        if found is None:
            return


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ('{"long": [{"n": 1}', "the file ends within it"),
        ('{"long": [{"n": 1}}', "closes nothing"),
        ('{"long": []} x', "no valid JSON"),
        ('["long"]', "must hold an object"),
    ],
)
def test_what_is_no_json_is_refused(tmp_path: Path, text: str, rule: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(SpecError, match=rule):
        list(RowReader(JsonDocument(tmp_path / "x.json", "long"), KEYS).batches())


def test_a_file_that_was_cut_or_grows_without_end_is_refused(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "cut.gz").write_bytes(gzip.compress(TEXT_OF_ALL)[:-9])
    with pytest.raises(SpecError, match="ends early"):
        list(JsonDocument(tmp_path / "cut.gz", "long").elements())
    monkeypatch.setattr(json_stream, "MOST_BYTES", 1000)
    (tmp_path / "big.gz").write_bytes(gzip.compress(TEXT_OF_ALL))
    with pytest.raises(SpecError, match="more than"):
        list(JsonDocument(tmp_path / "big.gz", "long").elements())
    monkeypatch.undo()
    monkeypatch.setattr(json_stream, "MOST_ELEMENT_BYTES", 100)
    monkeypatch.setattr(json_stream, "BLOCK_BYTES", 50)
    (tmp_path / "long.json").write_text('{"long": ["' + "a" * 1000)
    with pytest.raises(SpecError, match="in one element"):
        list(JsonDocument(tmp_path / "long.json", "long").elements())
