"""The grammar of expressions."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosmic.base.errors import SpecError
from cosmic.base.expression_syntax import Call, Literal, Path, Syntax, parse_expression
from cosmic.base.units import BYTES_PER_S, NUMBER, Quantity


def number(value: int) -> Literal:
    return Literal(Quantity(Fraction(value), NUMBER))


def test_a_product_binds_tighter_than_a_sum() -> None:
    assert parse_expression("1 + 2 * 3") == Call("+", (number(1), Call("*", (number(2), number(3)))))


def test_brackets_come_first() -> None:
    assert parse_expression("(1 + 2) * 3") == Call("*", (Call("+", (number(1), number(2))), number(3)))


def test_a_minus_sign_binds_looser_than_a_power() -> None:
    assert parse_expression("-2 ** 2") == Call("*", (number(-1), Call("**", (number(2), number(2)))))


def test_comparisons_can_be_chained() -> None:
    a, b, c = Path("a"), Path("b"), Path("c")
    assert parse_expression("a < b <= c") == Call("and", (Call("<", (a, b)), Call("<=", (b, c))))


def test_not_in_is_one_comparison() -> None:
    membership = Call("in", (Path("a"), Call("list", (number(1), number(2)))))
    assert parse_expression("a not in [1, 2]") == Call("not", (membership,))


def test_a_choice_reads_as_in_python() -> None:
    assert parse_expression("a if b else c") == Call("if", (Path("b"), Path("a"), Path("c")))


def test_a_number_may_carry_a_unit() -> None:
    assert parse_expression("50 GB/s") == Literal(Quantity(Fraction(50 * 10**9), BYTES_PER_S))


def test_a_word_of_the_language_is_no_unit() -> None:
    assert parse_expression("1 if a else 2") == Call("if", (Path("a"), number(1), number(2)))
    assert parse_expression("1 in [1]") == Call("in", (number(1), Call("list", (number(1),))))


def test_a_path_may_stand_for_every_entry_of_a_list() -> None:
    expected: Syntax = Call("product", (Path("network.dims.*.npus"),))
    assert parse_expression("product(network.dims.*.npus)") == expected


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "ends too early"),
        ("dp *", "ends too early"),
        ("* dp", "lacks a value before '*'"),
        ("(dp", "lacks ')'"),
        ("dp cp", "stops making sense at 'cp'"),
        ("dp = 4", "cannot be understood from '= 4' on"),
        ("dp if cp", "lacks 'else'"),
        ("50 GB/h2", "stops making sense at '2'"),
        ("5 furlongs", "'furlongs' is no unit"),
        ("__import__('os')", ""),
    ],
)
def test_what_cannot_be_understood_is_said_with_its_place(text: str, rule: str) -> None:
    if not rule:  # harmless: a call of a function that does not exist, refused when names are looked up
        assert isinstance(parse_expression(text), Call)
        return
    with pytest.raises(SpecError) as error:
        parse_expression(text)
    assert rule in error.value.rule


def test_brackets_without_end_are_refused_not_followed() -> None:
    with pytest.raises(SpecError, match="nested too deeply"):
        parse_expression("(" * 10_000)
    with pytest.raises(SpecError, match="nested too deeply"):
        parse_expression("2" + " ** 2" * 10_000)


@pytest.mark.long
@given(st.text(max_size=40))
def test_any_text_is_an_expression_or_one_clear_error(text: str) -> None:
    try:
        parse_expression(text)
    except SpecError as error:
        assert error.where == "expression"


@given(st.text(alphabet="dpsx019.+-*/%()[]<>=! andorifels,\"' GB", max_size=40))
def test_any_jumble_of_symbols_is_an_expression_or_one_clear_error(text: str) -> None:
    try:
        parse_expression(text)
    except SpecError as error:
        assert error.where == "expression"
