"""YAML and JSON: plain data, nothing lost in silence, every failure one sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from cosmic.base.errors import SpecError, shorten
from cosmic.design import catalog_entries
from cosmic.design.plain_data import dump_yaml, load_yaml, parse_json, parse_yaml


def refusal(text: str | bytes) -> str:
    """Return what is said of a *text* that is no YAML."""
    with pytest.raises(SpecError) as caught:
        parse_yaml(text, "file.yaml")
    return str(caught.value)


def test_plain_data_is_read() -> None:
    assert parse_yaml("a: 1\nb: [x, 2.5, true, null]\n", "file.yaml") == {"a": 1, "b": ["x", 2.5, True, None]}
    assert parse_yaml("a: ü".encode(), "file.yaml") == {"a": "ü"}
    assert parse_yaml("", "file.yaml") is None


def test_a_repeated_key_is_refused_where_it_stands() -> None:
    said = refusal("workload:\n  tp: 1\n  pp: 2\n  tp: 4\n")
    assert said == "file.yaml line 4 column 3 = 'tp: 4': is no valid YAML: the key tp is there twice"


def test_a_mistake_of_syntax_is_refused_where_it_stands() -> None:
    assert refusal("a: 1\nb: c: 2\n") == (
        "file.yaml line 2 column 5 = 'b: c: 2': is no valid YAML: mapping values are not allowed in this context"
    )


@pytest.mark.parametrize(
    "text",
    [
        "a: !!bool maybe",
        "a: !!int ''",
        "a: !!float x",
        "a: !!timestamp soon",
        "a: 2001-13-45",
        "!!map text",
        "!!map [1]",
        "!!set [1]",
        "!!python/object:os.system {}",
        "? [a, list]\n: 1",
        "{? &a {b: *a} : 1}",
        "a: *nowhere",
        "--- 1\n--- 2\n",
        "\0",
        "\ud800",
        b"\xff\xfe\xff",
        b"\xc3\x28",
        "1" * 5000,
    ],
    ids=lambda text: repr(text)[:24],
)
def test_what_cannot_be_built_is_refused(text: str | bytes) -> None:
    assert "is no valid YAML" in refusal(text)


def test_a_file_that_would_overflow_the_stack_is_refused() -> None:
    """In a process of its own, as the C parser would end it."""
    program = "from cosmic.design.plain_data import parse_yaml\nparse_yaml('[' * 10**5, 'file.yaml')"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.strip().endswith("is no valid YAML: nested too deeply")


def test_depth_is_counted_not_length() -> None:
    assert len(parse_yaml("- [[x]]\n" * 1000, "file.yaml")) == 1000
    assert parse_yaml("[" * 100 + "]" * 100, "file.yaml")
    assert "nested too deeply" in refusal("[" * 101 + "]" * 101)


def unfolding(levels: int) -> str:
    """Return a short text that stands for 9 ** *levels* entries."""
    lines = ["a0: &a0 [x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels)]
    return "\n".join(lines)


def test_a_text_that_unfolds_without_end_is_quoted_briefly() -> None:
    tree = parse_yaml(unfolding(80), "file.yaml")
    assert len(shorten(tree)) <= 60
    assert len(str(SpecError("a79", tree["a79"], "rule"))) < 90


def test_merged_mappings_do_not_unfold() -> None:
    lines = ["a0: &a0 {x: 1, y: 2}"]
    lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 60)]
    assert parse_yaml("\n".join(lines), "file.yaml")["a59"] == {"x": 1, "y": 2}


def test_a_mapping_may_override_what_it_merges_and_be_merged_itself() -> None:
    text = "base: &base {x: 1, z: 3}\nouter: {b: &b {<<: *base, x: 2}}\nc: {<<: *b, y: 4}\n"
    tree = parse_yaml(text, "file.yaml")
    assert tree["outer"]["b"] == {"x": 2, "z": 3}
    assert tree["c"] == {"x": 2, "y": 4, "z": 3}


# ---- files


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "none.yaml"
    with pytest.raises(SpecError, match=r"cannot be read: No such file or directory$") as caught:
        load_yaml(path)
    assert caught.value.value == str(path)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"is a directory, not a file$"):
        load_yaml(tmp_path)


@pytest.mark.parametrize("name", ["a\0b.yaml", "\ud800.yaml"])
def test_a_name_that_no_file_can_have_is_refused(name: str) -> None:
    with pytest.raises(SpecError, match="is no name that a file can have"):
        load_yaml(Path(name))


@pytest.mark.parametrize(("text", "shown"), [("- 1", "[1]"), ("text", "'text'"), ("", "None"), ("5", "5")])
def test_a_file_must_hold_a_mapping(tmp_path: Path, text: str, shown: str) -> None:
    (tmp_path / "design.yaml").write_text(text)
    with pytest.raises(SpecError) as caught:
        catalog_entries.load_mapping(tmp_path / "design.yaml")
    assert str(caught.value) == f"design.yaml = {shown}: a file must hold a mapping of keys to values"


def test_json_is_read_as_json(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b'\xef\xbb\xbf{\n\t"eps": 1e-5,\n\t"name": "\\ud83d\\ude00"\n}')
    assert load_yaml(tmp_path / "config.json") == {"eps": 1e-5, "name": "😀"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1,\n "b" 2}', "c.json line 2 column 6 = '\"b\" 2}': is no valid JSON: Expecting ':' delimiter"),
        ('{"a": 1, "b": 2, "a": 3}', "is no valid JSON: the key a is there twice"),
        ("", "c.json line 1 column 1 = '': is no valid JSON: Expecting value"),
        ("[" * 10**5, "is no valid JSON: maximum recursion depth exceeded"),
        (b"\xff", "is no valid JSON: "),
        ("1" * 5000, "is no valid JSON: Exceeds the limit"),
    ],
    ids=lambda part: repr(part)[:24],
)
def test_what_is_no_json_is_refused(text: str | bytes, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_json(text, "c.json")
    assert message in str(caught.value)


# ---- writing


def test_inner_lists_and_mappings_are_written_on_one_line() -> None:
    tree = {"network": {"dims": [{"topology": "ring", "npus": 4}]}, "list": [1, 2]}
    assert dump_yaml(tree) == "network:\n  dims:\n  - {topology: ring, npus: 4}\nlist:\n- 1\n- 2\n"


def test_what_occurs_twice_is_written_twice() -> None:
    shared: dict[str, Any] = {"x": [1]}
    text = dump_yaml({"a": shared, "b": shared})
    assert "&" not in text
    assert yaml.safe_load(text) == {"a": {"x": [1]}, "b": {"x": [1]}}


@pytest.mark.parametrize(
    "text", ["yes", "null", "1e3", "0x10", "1:30", "2001-01-01", "a: b", "", " ", "ü\n\t", "x" * 300]
)
def test_texts_are_written_so_that_they_stay_texts(text: str) -> None:
    assert parse_yaml(dump_yaml({"a": {"name": text}}), "file.yaml") == {"a": {"name": text}}
