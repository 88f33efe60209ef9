"""Errors: one sentence, where = value: the rule, whatever was given."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosmic.base.errors import (
    SHOWN_CHARACTERS,
    CosmicError,
    SpecError,
    UnknownName,
    as_key,
    join_path,
    one_line,
    require,
    shorten,
    suggest_names,
)


def repr_of_kind(value: Any) -> str:
    """Return what pytest may call a value: some here have no repr."""
    return type(value).__name__


def test_a_spec_error_is_a_value_error_that_says_where_what_and_why() -> None:
    error = SpecError("network.dims.1.npus", 1, "a dimension joins at least 2 NPUs")
    assert str(error) == "network.dims.1.npus = 1: a dimension joins at least 2 NPUs"
    assert isinstance(error, ValueError)
    assert isinstance(error, CosmicError)


def test_an_error_can_be_seen_from_further_out() -> None:
    error = UnknownName("npus", 1, "no").inside("dims.0").inside("").inside("network")
    assert error.where == "network.dims.0.npus"
    assert type(error) is UnknownName


@pytest.mark.parametrize("kind", [SpecError, UnknownName])
def test_errors_travel_between_processes(kind: type[SpecError]) -> None:
    error = pickle.loads(pickle.dumps(kind("a.b", [1, "x"], "the rule")))
    assert (type(error), str(error)) == (kind, "a.b = [1, 'x']: the rule")


def test_a_message_stays_on_one_line_whatever_it_quotes() -> None:
    error = SpecError("a\nb", "c\nd\ud800", "rule of\x1b[31m 'x\ty'")
    assert str(error) == r"a\nb = 'c\nd\ud800': rule of\x1b[31m 'x\ty'"


@pytest.mark.long
@given(st.text(), st.text())
def test_every_message_can_be_printed(where: str, value: str) -> None:
    assert str(SpecError(where, value, "rule")).isprintable()


def test_one_line_leaves_printable_text_alone() -> None:
    assert one_line("8 × 4 … 'µ'") == "8 × 4 … 'µ'"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1, "1"),
        ("ring", "'ring'"),
        (10**5000, "<int>"),
        ([10**5000], "<list>"),
        ([[[[[[[1]]]]]]], "[[[[[...]]]]]"),
        (list(range(100)), "[0, 1, 2, 3, 4, 5, ...]"),
    ],
    ids=repr_of_kind,
)
def test_a_value_is_quoted_briefly(value: Any, text: str) -> None:
    assert shorten(value) == text


@pytest.mark.parametrize("value", ["x" * 10**6, {str(i) * 50: "y" * 100 for i in range(50)}, [["z" * 99] * 99] * 99])
def test_a_long_value_is_cut(value: Any) -> None:
    assert len(shorten(value)) <= SHOWN_CHARACTERS


def test_a_value_that_unfolds_without_end_is_cut_as_quickly() -> None:
    bomb: list[Any] = ["x"]
    for _ in range(60):
        bomb = [bomb] * 9  # 9 ** 60 entries, if anybody looked at all of them
    assert len(str(UnknownName.among("task", bomb, "choice", ["training"]))) < 2 * SHOWN_CHARACTERS + 60


def test_a_near_miss_is_suggested_whatever_its_case() -> None:
    assert suggest_names("RIGN", ["ring", "switch"]) == "; did you mean 'ring'?"


def test_names_that_contain_what_was_written_are_suggested() -> None:
    known = ["a100-sxm-80gb", "h100-pcie-80gb", "h100-sxm-80gb"]
    assert suggest_names("H100", known) == "; did you mean 'h100-pcie-80gb' or 'h100-sxm-80gb'?"
    assert suggest_names("80", known) == "; choose from a100-sxm-80gb, h100-pcie-80gb, h100-sxm-80gb"


def test_the_case_decides_between_names_that_differ_in_nothing_else() -> None:
    assert suggest_names("GIB", ["GiB", "Gib"]) == "; did you mean 'GiB'?"
    assert suggest_names("gib", ["GiB", "Gib"]) == "; did you mean 'Gib'?"


def test_without_a_near_miss_a_short_list_is_given_in_full_and_a_long_one_in_part() -> None:
    assert suggest_names("x", ["ring", "direct"]) == "; choose from direct, ring"
    assert (
        suggest_names("x", [f"name{i:02}" for i in range(13)]) == "; there are 13, for example name00, name01, name02"
    )
    assert suggest_names("x", []) == ""


def test_an_unknown_key_suggests_among_the_keys_of_its_place() -> None:
    error = UnknownName.key("model.hiden", 4, ["hidden", "heads"])
    assert str(error) == "model.hiden = 4: no such key; did you mean 'hidden'?"


def test_keys_that_are_no_text_are_quoted() -> None:
    assert [as_key(key) for key in ("tp", 1, None, 10**5000)] == ["tp", "1", "None", "<int>"]


def test_require_raises_unless_its_condition_holds() -> None:
    require(True, "a", 1, "rule")
    with pytest.raises(SpecError, match=r"^a = 1: rule$"):
        require(False, "a", 1, "rule")


def test_places_are_joined_by_dots_and_either_may_be_empty() -> None:
    assert [join_path("a", "b"), join_path("", "b"), join_path("a", ""), join_path("", "")] == ["a.b", "b", "a", ""]
