"""Errors added up, by hand."""

from __future__ import annotations

from dataclasses import replace
from math import exp

import pytest

from cosmic.accuracy.measured_rows import Verdict
from cosmic.accuracy.validating import concordance, summarise_errors
from cosmic.design.prediction_accuracy import Expectation


def row(measured: float, predicted: float | None, group: str = "", design: str = "", skipped: str = "") -> Verdict:
    groups = (group,) if group else ()
    return Verdict(row={}, measured_s=measured, predicted_s=predicted, group=groups, design=design, skipped=skipped)


def test_mean_median_worst_and_bias_are_those_of_the_relative_errors() -> None:
    found = summarise_errors("s", [row(1, 1.1), row(1, 0.8), row(2, 2.0), row(1, None, skipped="no model")])
    assert (found.rows, found.predicted, found.coverage) == (4, 3, 0.75)
    assert found.mean == pytest.approx(0.1)
    assert found.median == pytest.approx(0.1)
    assert found.worst == pytest.approx(0.2)
    assert found.bias == pytest.approx(-0.1 / 3)
    assert found.skipped == {"no model": 1}


def test_nothing_is_said_of_rows_that_are_not_predicted() -> None:
    found = summarise_errors("s", [row(1, None, skipped="no model")])
    assert (found.mean, found.bias, found.tau, found.coverage) == (None, None, None, 0.0)


def test_tau_is_one_in_order_and_minus_one_in_reverse() -> None:
    times = [1.0, 2.0, 3.0, 4.0]
    assert summarise_errors("s", [row(each, 10 * each, "g") for each in times]).tau == 1
    assert summarise_errors("s", [row(each, -each, "g") for each in times]).tau == -1


def test_only_pairs_of_one_group_with_different_designs_and_times_are_compared() -> None:
    verdicts = [
        row(1, 1, "g", "a"),
        row(2, 2, "g", "b"),
        row(2, 3, "g", "c"),  # as long as the one before: no order to get right
        row(3, 2, "g", "b"),  # the design of the second, measured again
        row(9, 0, "h", "a"),  # alone in its group
        row(9, 0, "", "a"),  # in none
    ]
    concordant, compared = concordance(verdicts)
    assert compared == 4  # a-b, a-c, a-b again, c-b
    assert concordant == 1 + 1 + 1 - 1


def test_pairs_that_differ_little_have_no_clear_order() -> None:
    found = summarise_errors("s", [row(1.0, 2.0, "g", "a"), row(1.04, 1.0, "g", "b"), row(2.0, 3.0, "g", "c")])
    assert found.tau == pytest.approx(1 / 3)
    assert found.pairs == 3
    assert (found.clear_tau, found.clear_pairs) == (1.0, 2)


def test_measured_times_in_their_range_are_counted() -> None:
    expected = Expectation(0.1, 9, "x", 3, half=0.05, nine_tenths=0.2)
    inside = replace(row(1.0, 1.2), expected=expected)
    outside = replace(row(1.0, 1.3), expected=expected)
    opened = replace(outside, low_s=0.9)
    seen = replace(row(1.0, 1.0), expected=expected, left_out=0.5)  # good only as its source was fitted to
    assert [each.in_range for each in (inside, outside, opened, seen)] == [True, False, True, False]
    found = summarise_errors("s", [inside, outside, opened, seen, row(1.0, 1.0)])
    assert (found.ranged, found.in_range) == (4, 0.5)
    assert (found.left_out_mean, found.left_out_median) == (0.5, 0.5)
    assert found.width == pytest.approx(exp(0.2) - 1)


def test_predictions_that_are_equal_count_as_neither() -> None:
    assert concordance([row(1, 5, "g", "a"), row(2, 5, "g", "b"), row(3, 6, "g", "c")]) == (2, 3)
