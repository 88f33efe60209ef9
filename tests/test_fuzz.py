"""Whatever is thrown at the readers, they give a value or one `SpecError`: nothing else ever comes out."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cosmic.base.errors import SpecError
from cosmic.design import catalog_entries, schema
from cosmic.design.design_point import DesignPoint, design_to_tree
from cosmic.design.loading import parse_overrides
from cosmic.design.plain_data import dump_yaml, parse_yaml
from cosmic.search.mapping.design_completion import load_design
from cosmic.search.space.parameter_set import ParameterSet
from cosmic.search.space.space_files import KEYS, load_space

BASES = ["gpt3-175b@cosmic-1024", "deepseek-v3@dgx-h100:64", "dlrm-criteo@dgx-a100:8", "vit-base@tpu-v4:8"]
TREES = [design_to_tree(load_design(name)) for name in BASES]
SPACES = [dict(catalog_entries.read_entry("spaces", name)) for name in catalog_entries.entry_names("spaces")]


def parts(tree: Any) -> Iterator[tuple[list[Any], Any]]:
    """Yield every place in *tree*, as the keys that lead to it, and what stands there."""
    yield [], tree
    entries = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, entry in entries:
        for path, value in parts(entry):
            yield [key, *path], value


REAL_KEYS = sorted(
    {str(key) for tree in (*TREES, *SPACES) for path, _ in parts(tree) for key in path} | {"base", "system"}
)
REAL_VALUES = [value for tree in (*TREES, *SPACES) for _, value in parts(tree) if not isinstance(value, dict | list)]
AWKWARD: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    1,
    2**31,
    2**63,
    -(2**63),
    10**30,
    10**4000,
    0.5,
    float("nan"),
    float("inf"),
    1e308,
]
AWKWARD += ["", ".", "..", "*", "a.b", "0", "-1", "9" * 5000, "x" * 5000, "\0", "\ud800", "/", "1 GB", "1e999 GB"]
AWKWARD += ["nan GB", "@", "a@b", "a@b@c", "x.yaml", "x.json", "\0.yaml", "npus", "rest", b"bytes", (1, 2), {1, 2}]
SCALARS = (
    st.sampled_from(REAL_VALUES + AWKWARD)
    | st.sampled_from(
        [*REAL_KEYS, *BASES, *catalog_entries.entry_names("models"), *catalog_entries.entry_names("systems")]
    )
    | st.text(max_size=6)
    | st.integers()
    | st.floats()
)
KEYS_OF_ANYTHING = st.sampled_from(REAL_KEYS) | st.text(max_size=4) | st.sampled_from([0, 1, None, True, 0.5, 10**4000])
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS_OF_ANYTHING, inner, max_size=4),
    max_leaves=8,
)
DESIGNS = st.fixed_dictionaries(
    {},
    optional={
        "model": st.sampled_from([tree["model"] for tree in TREES])
        | st.sampled_from(["gpt3-13b", "bert-base"])
        | ANYTHING,
        "system": st.sampled_from(catalog_entries.entry_names("systems")) | SCALARS,
        "workload": st.sampled_from([tree["workload"] for tree in TREES]) | ANYTHING,
        "collective": st.sampled_from([tree["collective"] for tree in TREES]) | ANYTHING,
        "network": st.sampled_from([tree["network"] for tree in TREES]) | ANYTHING,
        "compute": st.sampled_from([tree["compute"] for tree in TREES]) | ANYTHING,
        "memory": st.sampled_from([tree["memory"] for tree in TREES]) | ANYTHING,
    },
)

fuzz = settings(
    max_examples=40,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)


def check_design(source: Any, overrides: Any = None) -> None:
    """Load *source*: it is a design, or its mistake is one printable sentence."""
    try:
        point = load_design(source, overrides)
    except SpecError as error:
        assert str(error).isprintable()
        return
    assert isinstance(point, DesignPoint)
    assert schema.read_value(DesignPoint, design_to_tree(point), "") == point


def check_space(source: Any) -> None:
    """Load *source*: it is a parameter set, or its mistake is one printable sentence."""
    try:
        space = load_space(source)
    except SpecError as error:
        assert str(error).isprintable()
        return
    assert isinstance(space, ParameterSet)
    assert space.valid >= 1


@st.composite
def damaged(draw: st.DrawFn, trees: list[Any]) -> Any:
    """Draw one of *trees* with one or two of its parts replaced by something else, removed or renamed."""
    tree = copy.deepcopy(draw(st.sampled_from(trees)))
    for _ in range(draw(st.integers(1, 2))):
        paths = [path for path, _ in parts(tree) if path]
        *parents, last = draw(st.sampled_from(paths))
        node = tree
        for key in parents:
            node = node[key]
        if isinstance(node, dict) and draw(st.booleans()):
            value = node.pop(last)
            if draw(st.booleans()):
                node[draw(KEYS_OF_ANYTHING)] = value
        else:
            node[last] = draw(ANYTHING)
    return tree


@given(st.dictionaries(KEYS_OF_ANYTHING, ANYTHING, max_size=5) | DESIGNS)
@fuzz
def test_any_mapping_is_a_design_or_refused(tree: Any) -> None:
    check_design(tree)


@given(damaged(TREES))
@fuzz
def test_a_damaged_design_is_a_design_or_refused(tree: Any) -> None:
    check_design(tree)


@given(
    st.sampled_from(BASES),
    st.dictionaries(st.lists(st.sampled_from(REAL_KEYS) | st.text(max_size=3)).map(".".join), SCALARS),
)
@fuzz
def test_any_overrides_give_a_design_or_are_refused(base: str, overrides: dict[str, Any]) -> None:
    check_design(base, overrides)


@given(st.text() | st.sampled_from([value for value in AWKWARD if isinstance(value, str)]))
@fuzz
def test_any_text_names_a_design_or_a_space_or_is_refused(text: str) -> None:
    for source in (text, f"{text}@dgx-h100", f"gpt3-13b@{text}", f"gpt3-13b@dgx-h100:{text}", f"{text}.yaml"):
        check_design(source)
        check_space(source)


@given(st.lists(st.text()))
@fuzz
def test_any_settings_are_overrides_or_refused(texts: list[str]) -> None:
    try:
        assert isinstance(parse_overrides(texts), dict)
    except SpecError as error:
        assert str(error).isprintable()


SNIPPETS = [
    "a: ",
    "- ",
    "{",
    "}",
    "[",
    "]",
    "&a ",
    "*a",
    "<<: ",
    "!!int ",
    "!!bool ",
    "!!map ",
    "? ",
    ": ",
    "|\n",
    "\n",
    "  ",
]
SNIPPETS += [
    "'",
    '"',
    "#",
    "%",
    "---\n",
    "0x",
    "1e5",
    "\t",
    "\\",
    "2001-01-01",
    "~",
    "model: gpt3-13b\n",
    "system: dgx-h100\n",
]
TEXTS = st.lists(st.sampled_from(SNIPPETS) | st.text(max_size=3)).map("".join)


@pytest.mark.long
@given(TEXTS.map(str.encode) | st.binary() | damaged(TREES).map(repr).map(lambda text: text.encode(errors="replace")))
@fuzz
@example(b"0x" + b"f" * 100 + b": 1")
@example(b"model: !!binary ''\nsystem: !!set {a}\n")
def test_any_file_is_a_design_or_refused(tmp_path: Path, content: bytes) -> None:
    for name in ("file.yaml", "file.json"):
        (tmp_path / name).write_bytes(content)
    check_design(tmp_path / "file.yaml")
    check_design(tmp_path / "file.json")
    check_design({"model": str(tmp_path / "file.json"), "system": "dgx-h100"})
    check_space(tmp_path / "file.yaml")


@given(TEXTS)
@fuzz
def test_any_text_is_yaml_or_refused(text: str) -> None:
    try:
        tree = parse_yaml(text, "file")
    except SpecError as error:
        assert str(error).isprintable()
        return
    if tree is None or isinstance(tree, str | int | bool):
        assert parse_yaml(dump_yaml({"a": tree}), "file") == {"a": tree}


BEYOND_TEXT = 10**5000
"""Python refuses to write it, so that it must not find its way into a sentence."""


@pytest.mark.parametrize("key", ["model", "system", "workload", "collective", "network", "compute", "memory"])
def test_a_number_that_cannot_be_written_is_refused_anywhere(key: str) -> None:
    check_design({**TREES[0], key: BEYOND_TEXT})
    check_design({**TREES[0], key: {BEYOND_TEXT: 1}})
    for path, _ in schema.leaf_fields(load_design(BASES[1])):
        if path.startswith(key):
            check_design(BASES[1], {path: BEYOND_TEXT})
    check_design({BEYOND_TEXT: 1})


@pytest.mark.parametrize("key", KEYS)
def test_a_number_that_cannot_be_written_is_refused_in_a_parameter_set(key: str) -> None:
    for value in (BEYOND_TEXT, [BEYOND_TEXT], {BEYOND_TEXT: 1}, {"workload.tp": [BEYOND_TEXT]}):
        check_space({**SPACES[0], key: value})
    for domain in ({"powers_of_two": [1, BEYOND_TEXT]}, {"from": 1, "to": BEYOND_TEXT, "step": 1}, {BEYOND_TEXT: 1}):
        check_space({**SPACES[0], "parameters": {"workload.tp": domain}})


# ---- parameter sets

WORDS = ["dp", "workload.tp", "npus", "network.dims.*.npus", "network.dims.0.npus", "*", "/", "//", "%", "**", "+", "-"]
WORDS += ["(", ")", "[", "]", ",", "==", "<", "in", "not", "and", "or", "if", "else", "1", "0", "2.5", "1 GB", "1e999"]
WORDS += [
    "product(",
    "sum(",
    "min(",
    "all(",
    "'ring'",
    "true",
    "model.name",
    "compute.price",
    "dims",
    ".",
    "$",
    "9" * 5000,
]
EXPRESSIONS = st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join) | st.text(max_size=8)
PATHS = ["workload.tp", "workload.dp", "workload.{dp,tp}", "network.dims.*.npus", "network.dims.0.bandwidth"]
PATHS += [
    "compute.accelerator",
    "compute.fp8",
    "model.experts",
    "model.layers",
    "workload.placement",
    "network",
    "*",
    "a.*",
]
PATHS += [
    "collective.algorithms.*",
    "collective.algorithms",
    "memory.capacity",
    "network.dims",
    "workload.{dp}",
    "{",
    "model",
]
PATHS += ["network.dims.*", "network.dims.9.npus", "workload", "workload.", ".", "network.dims.*.*", "network.{dims}"]
DOMAINS = st.one_of(
    st.lists(SCALARS, max_size=3),
    st.lists(st.lists(SCALARS, max_size=2), max_size=2),
    st.builds(lambda low, high, step: {"from": low, "to": high, "step": step}, SCALARS, SCALARS, SCALARS),
    st.builds(lambda low, high: {"powers_of_two": [low, high]}, st.integers(-1, 99), st.integers(-1, 99)),
    st.builds(lambda number, binary: {"split": number, "powers_of_two": binary}, SCALARS, SCALARS),
    st.builds(lambda values, shared: {"values": values, "shared": shared}, st.lists(SCALARS, max_size=3), SCALARS),
    ANYTHING,
)
SETS = st.fixed_dictionaries(
    {"base": st.sampled_from(BASES)},
    optional={
        "parameters": st.dictionaries(st.sampled_from(PATHS), DOMAINS, max_size=3) | ANYTHING,
        "derived": st.dictionaries(st.sampled_from(PATHS), EXPRESSIONS, max_size=2) | ANYTHING,
        "constraints": st.lists(EXPRESSIONS, max_size=3) | ANYTHING,
        "objective": SCALARS,
        "version": st.just(1) | SCALARS,
        "name": SCALARS,
    },
)


@given(st.dictionaries(st.sampled_from(KEYS) | KEYS_OF_ANYTHING, ANYTHING, max_size=5) | SETS)
@fuzz
def test_any_mapping_is_a_parameter_set_or_refused(tree: Any) -> None:
    check_space(tree)


@pytest.mark.parametrize("path", ["workload.placement", "network", "network.dims", "network.dims.0", "model"])
def test_only_single_fields_are_derived(path: str) -> None:
    with pytest.raises(SpecError, match="holds several fields: derive them one by one"):
        load_space({"base": BASES[0], "derived": {path: "dp"}})


@given(damaged(SPACES))
@fuzz
def test_a_damaged_parameter_set_is_one_or_refused(tree: Any) -> None:
    check_space(tree)


@given(st.sampled_from(["constraints", "derived"]), EXPRESSIONS)
@fuzz
def test_any_expression_is_understood_or_refused(key: str, text: str) -> None:
    parameters = {"workload.dp": [1, 2], "network.dims.*.npus": [2, 4]}
    given_there = [text] if key == "constraints" else {"workload.tp": text}
    check_space({"base": BASES[0], "parameters": parameters, key: given_there})


@pytest.mark.parametrize(
    "text",
    [
        "1" + " + 1" * 5000 + " < 2",
        "1 < 2" + " and 1 < 2" * 5000,
        "dp" + " / dp" * 5000 + " < 2",
        "not " * 5000 + "true",
        "(" * 5000,
        "-" * 5000 + "1 < 2",
        "2 " + "** 2 " * 5000,
        "9" * 5000 + " < 1",
        "1e999 * 1e999 < 2",
        "9 ** 9 ** 9 ** 9 < 2",
        "dp in [" + "1, " * 5000 + "1]",
        "sum(" + "dp, " * 5000 + "dp) < 2",
    ],
    ids=lambda text: text[:12],
)
def test_an_expression_without_end_is_understood_or_refused(text: str) -> None:
    check_space({"base": BASES[0], "parameters": {"workload.dp": [1, 2]}, "constraints": [text]})
