"""Variables and expressions of recipes."""

from __future__ import annotations

from typing import Any

import pytest

from cosmic.base.errors import SpecError
from cosmic.cli.recipes import evaluate_expression, fill_references

SCOPE: dict[str, Any] = {"nodes": 3, "model": "llama3-8b", "tuned": {"best": {"step_s": 0.25}, "front": [{"mfu": 0.5}]}}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("nodes", 3),
        ("nodes * 8 - 4", 20),
        ("nodes / 2", 1.5),
        ("2 ** nodes", 8),
        ("tuned.best.step_s * 4 == 1", True),
        ("tuned.front.0.mfu", 0.5),
        ("nodes in [1, 3] and not nodes == 1", True),
        ("min(nodes, 2) + max(nodes, 7)", 9),
        ("8 if nodes > 2 else 4", 8),
        ("tuned.best", {"step_s": 0.25}),
        ("model == 'llama3-8b'", True),
    ],
)
def test_an_expression_has_the_value_that_arithmetic_gives(text: str, value: Any) -> None:
    assert evaluate_expression(text, SCOPE, "here") == value


def test_a_text_that_is_one_reference_keeps_its_type_and_a_longer_one_is_text() -> None:
    asked = {"trials": "${nodes}", "design": "${model}@dgx-h100:${nodes * 8}", "list": ["${nodes}", 1.5, None]}
    assert fill_references(asked, SCOPE, "s") == {
        "trials": 3,
        "design": "llama3-8b@dgx-h100:24",
        "list": [3, 1.5, None],
    }


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("node", "knows no 'node'; did you mean 'nodes'"),
        ("tuned.worst", "'tuned' has no 'worst'"),
        ("tuned.front.1.mfu", "'tuned.front' has no '1'"),
        ("nodes / 0", "has no value"),
        ("nodes +", "here = 'nodes +'"),
        ("power(nodes)", "knows no function 'power'"),
        ("tuned + 1", "neither a number"),
        ("model * 2", "does not go with these values"),
    ],
)
def test_what_has_no_value_is_refused_with_its_place(text: str, rule: str) -> None:
    with pytest.raises(SpecError) as caught:
        evaluate_expression(text, SCOPE, "here")
    assert rule in str(caught.value)


def test_a_table_cannot_stand_inside_a_text() -> None:
    with pytest.raises(SpecError, match="can only stand alone"):
        fill_references("x ${tuned}", SCOPE, "here")
