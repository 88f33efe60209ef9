"""Bound expressions: exact, and equal to what Python makes of the same text."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosmic.base.errors import SpecError
from cosmic.search.space.expressions import (
    UNDEFINED,
    Constant,
    Scope,
    as_exact,
    constant_value,
    make_operation,
    substitute,
    variables,
)
from tests.search.space.spaces import space

VALUES = {"workload.dp": 3, "workload.tp": 5, "workload.pp": 2}
SCOPE = Scope(space({"workload.dp": [1]}).base, frozenset(VALUES), {})

numbers = st.one_of(st.sampled_from(["dp", "tp", "pp"]), st.integers(0, 9).map(str))


def combined(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operators = st.sampled_from(["+", "-", "*", "//", "%"])
    pairs = st.tuples(parts, operators, parts).map(lambda each: f"({each[0]} {each[1]} {each[2]})")
    calls = st.tuples(st.sampled_from(["min", "max"]), parts, parts).map(
        lambda each: f"{each[0]}({each[1]}, {each[2]})"
    )
    return pairs | calls


arithmetic = st.recursive(numbers, combined, max_leaves=6)
comparison = st.tuples(arithmetic, st.sampled_from(["<", "<=", "==", "!=", ">", ">="]), arithmetic).map(" ".join)
truths = st.recursive(
    comparison,
    lambda parts: (
        st.tuples(parts, st.sampled_from(["and", "or"]), parts).map(lambda each: f"({' '.join(each)})")
        | parts.map(lambda each: f"(not {each})")
    ),
    max_leaves=4,
)
conditional = st.tuples(arithmetic, truths, arithmetic).map(lambda each: f"({each[0]} if {each[1]} else {each[2]})")


def settings(names: dict[str, int]) -> dict[str, Constant]:
    return {path: Constant(Fraction(value)) for path, value in names.items()}


@given(arithmetic | truths | conditional, st.permutations(sorted(VALUES)))
def test_an_expression_means_what_it_means_in_python(text: str, order: list[str]) -> None:
    short = {path.rpartition(".")[2]: value for path, value in VALUES.items()}
    expression = SCOPE.bind(text, "here").expression
    for path in order:  # one after the other, in any order: simplification must not change the meaning
        expression = substitute(expression, settings({path: VALUES[path]}))
    try:
        expected = eval(text, {"__builtins__": {}, "min": min, "max": max}, short)
    except ZeroDivisionError:
        return  # what we make of it is tested below
    assert constant_value(expression, "here", text) == expected


def test_a_division_by_zero_is_an_error_only_where_it_is_reached() -> None:
    expression = SCOPE.bind("dp // (dp - 3) if dp != 3 else 7", "here").expression
    assert constant_value(substitute(expression, settings({"workload.dp": 3})), "here", "") == 7
    with pytest.raises(SpecError, match="divides by zero"):
        constant_value(
            substitute(SCOPE.bind("1 / (dp - 3)", "x").expression, settings({"workload.dp": 3})), "x", "1 / …"
        )


def test_numbers_are_exact() -> None:
    assert as_exact(0.1) + as_exact(0.2) == as_exact(0.3)  # type: ignore[operator]  # numbers, not texts
    assert as_exact(1e23) == 10**23


def test_what_looks_the_same_after_substitution_is_the_same() -> None:
    expression = SCOPE.bind("dp * tp * pp <= 64", "here").expression
    once = substitute(expression, settings({"workload.dp": 2, "workload.tp": 8}))
    other = substitute(expression, settings({"workload.dp": 4, "workload.tp": 4}))
    assert once == other
    assert variables(once) == {"workload.pp"}


def test_one_false_part_settles_a_conjunction() -> None:
    unknown = SCOPE.bind("dp > 1", "here").expression
    assert make_operation("all", (unknown, Constant(False))) == Constant(False)
    assert make_operation("any", (unknown, Constant(True))) == Constant(True)


def test_a_power_beyond_reason_is_not_computed() -> None:
    assert make_operation("**", (Constant(Fraction(10)), Constant(Fraction(10**9)))) == UNDEFINED
    assert make_operation("**", (Constant(Fraction(2)), Constant(Fraction(-2)))) == Constant(Fraction(1, 4))
