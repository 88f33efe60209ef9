"""Bounds, signs and slopes, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cosmic.search.certify.branch_and_bound import Best, Boxes, BoxEvaluator, halve_boxes, stand_in_options
from cosmic.search.certify.monotonicity import Interval, _sign, _slope, apply_operation, known_interval
from cosmic.search.problem import make_problem
from tests.search.certify.spaces import small

HALF = Interval(np.array(-1.0), np.array(2.0))
ABOVE = Interval(np.array(1.0), np.array(4.0))


def ends(found: Interval) -> tuple[float, float]:
    return float(found.least), float(found.most)


@pytest.mark.parametrize(
    ("name", "operands", "expected"),
    [
        ("add", [HALF, ABOVE], (0.0, 6.0)),
        ("subtract", [HALF, ABOVE], (-5.0, 1.0)),
        ("multiply", [HALF, ABOVE], (-4.0, 8.0)),
        ("divide", [HALF, ABOVE], (-1.0, 2.0)),
        ("divide", [ABOVE, HALF], (-np.inf, np.inf)),
        ("negative", [HALF], (-2.0, 1.0)),
        ("absolute", [HALF], (0.0, 2.0)),
        ("absolute", [ABOVE], (1.0, 4.0)),
        ("maximum", [HALF, ABOVE], (1.0, 4.0)),
        ("minimum", [HALF, ABOVE], (-1.0, 2.0)),
        ("sqrt", [ABOVE], (1.0, 2.0)),
        ("sqrt", [HALF], (-np.inf, np.inf)),
        ("power", [ABOVE, known_interval(2.0)], (1.0, 16.0)),
        ("less", [HALF, ABOVE], (0.0, 1.0)),
        ("less", [HALF, known_interval(3.0)], (1.0, 1.0)),
        ("less", [ABOVE, known_interval(1.0)], (0.0, 0.0)),
        ("less_equal", [ABOVE, known_interval(1.0)], (0.0, 1.0)),
        ("equal", [HALF, known_interval(5.0)], (0.0, 0.0)),
        ("equal", [HALF, ABOVE], (0.0, 1.0)),
        ("not_equal", [HALF, known_interval(5.0)], (1.0, 1.0)),
        ("logical_not", [Interval(np.array(0.0), np.array(1.0))], (0.0, 1.0)),
        ("where", [known_interval(1.0), HALF, ABOVE], (-1.0, 2.0)),
        ("where", [known_interval(0.0), HALF, ABOVE], (1.0, 4.0)),
        ("where", [Interval(np.array(0.0), np.array(1.0)), HALF, ABOVE], (-1.0, 4.0)),
        ("remainder", [HALF, ABOVE], (-np.inf, np.inf)),
    ],
)
def test_intervals_by_hand(name: str, operands: list[Interval], expected: tuple[float, float]) -> None:
    assert ends(apply_operation(name, operands)) == expected


UP, DOWN, STILL, NONE = (True, False), (False, True), (True, True), (False, False)


@pytest.mark.parametrize(
    ("name", "operands", "signs", "expected"),
    [
        ("add", [HALF, ABOVE], [UP, UP], UP),
        ("add", [HALF, ABOVE], [UP, DOWN], NONE),
        ("subtract", [HALF, ABOVE], [UP, DOWN], UP),
        ("subtract", [HALF, ABOVE], [UP, UP], NONE),
        ("multiply", [ABOVE, ABOVE], [UP, UP], UP),
        ("multiply", [HALF, ABOVE], [UP, UP], NONE),
        ("multiply", [HALF, ABOVE], [UP, STILL], UP),
        ("multiply", [ABOVE, Interval(np.array(-2.0), np.array(-1.0))], [UP, STILL], DOWN),
        ("divide", [ABOVE, ABOVE], [UP, DOWN], UP),
        ("divide", [ABOVE, ABOVE], [UP, UP], NONE),
        ("divide", [ABOVE, HALF], [UP, STILL], NONE),
        ("negative", [HALF], [UP], DOWN),
        ("maximum", [HALF, HALF], [UP, UP], UP),
        ("minimum", [HALF, HALF], [UP, DOWN], NONE),
        ("less", [HALF, HALF], [DOWN, UP], UP),
        ("less", [HALF, HALF], [UP, UP], NONE),
        ("absolute", [HALF], [UP], NONE),
        ("absolute", [ABOVE], [UP], UP),
        ("where", [known_interval(1.0), HALF, HALF], [STILL, UP, DOWN], UP),
        ("where", [Interval(np.array(0.0), np.array(1.0)), HALF, HALF], [STILL, UP, UP], NONE),
        ("remainder", [HALF, HALF], [UP, UP], NONE),
    ],
)
def test_signs_by_hand(name: str, operands: list[Interval], signs: list[Any], expected: tuple[bool, bool]) -> None:
    found = _sign(name, operands, signs, HALF)
    assert tuple(bool(each) for each in found) == expected


def slope(name: str, values: list[Interval], slopes: list[tuple[float, float]]) -> tuple[float, float]:
    return ends(_slope(name, values, [Interval(np.array(least), np.array(most)) for least, most in slopes]))


def test_slopes_by_hand() -> None:
    one, none = (1.0, 1.0), (0.0, 0.0)
    assert slope("minimum", [HALF, ABOVE], [one, none]) == (0.0, 1.0)
    assert slope("minimum", [HALF, known_interval(3.0)], [one, none]) == (1.0, 1.0)
    assert slope("minimum", [ABOVE, known_interval(0.5)], [one, none]) == (0.0, 0.0)
    assert slope("maximum", [HALF, known_interval(3.0)], [one, none]) == (0.0, 0.0)
    assert slope("maximum", [ABOVE, known_interval(0.5)], [one, none]) == (1.0, 1.0)
    assert slope("subtract", [HALF, HALF], [one, (0.0, 1.0)]) == (0.0, 1.0)  # seconds - min(seconds, compute)
    assert slope("multiply", [HALF, ABOVE], [one, none]) == (1.0, 4.0)
    assert slope("multiply", [HALF, ABOVE], [one, one]) == (0.0, 6.0)
    assert slope("divide", [known_interval(2.0), ABOVE], [none, one]) == (-2.0, -0.125)
    assert slope("where", [known_interval(0.0), HALF, HALF], [none, one, (2.0, 2.0)]) == (2.0, 2.0)
    assert slope("where", [Interval(np.array(0.0), np.array(1.0)), HALF, HALF], [none, one, one]) == (-np.inf, np.inf)
    assert slope("sqrt", [ABOVE], [one]) == (-np.inf, np.inf)


def test_the_fastest_step_at_the_cheapest_price_is_the_bound() -> None:
    space = small()
    problem = make_problem(space, ["perf_per_bandwidth", "network_usd"])
    evaluator = BoxEvaluator(problem)
    division = evaluator.division
    able = int(evaluator.boundings[0].group.skeletons[0])
    low, high = np.array([[0, 1]]), np.array([[2, 3]])
    box = Boxes(np.array([able]), np.zeros((1, len(division.choices)), dtype=np.intp), low, high)
    found = evaluator.bound_boxes(box)
    fast, cheap = (problem.evaluate(division.rows(box.skeletons, box.options, each)).columns for each in (high, low))
    step = fast["step_s"][0]
    assert found.bounds[0, 0] == pytest.approx(step * (50e9 + 100e9 + 2 * _fixed(space)), rel=1e-12)
    assert found.bounds[0, 1] == cheap["network_usd"][0]
    assert found.losses[0, 0] == 1 / fast["perf_per_bandwidth"][0]
    worst = evaluator.worst(box)
    assert worst[0, 0] == pytest.approx(cheap["step_s"][0] * (350e9 + 200e9 + 2 * _fixed(space)), rel=1e-12)


def _fixed(space: Any) -> float:
    """Return the mean bandwidth of the two dimensions that are not searched."""
    dims = space.base.network.dims
    return float(dims[1].bandwidth_bytes_per_s + dims[2].bandwidth_bytes_per_s) / 2


def test_a_box_is_halved_at_its_widest_range() -> None:
    box = Boxes(np.array([7]), np.array([[1]]), np.array([[0, 2]]), np.array([[3, 4]]))
    found = halve_boxes(box)
    assert (found.low.tolist(), found.high.tolist()) == ([[0, 2], [2, 2]], [[1, 4], [3, 4]])
    assert found.sizes.sum() == box.sizes.sum()
    assert found.skeletons.tolist() == [7, 7]


def test_an_option_is_dominated_only_if_it_has_no_less_of_anything() -> None:
    assert stand_in_options(np.array([[1.0, 2.0], [2.0, 1.0]])).tolist() == [0, 1]
    assert stand_in_options(np.array([[1.0, 1.0], [2.0, 1.0]])).tolist() == [1, 1]
    assert stand_in_options(np.array([[1.0, 1.0 + 1e-15], [2.0, 2.0]])).tolist() == [0, 0]
    assert stand_in_options(np.array([[3.0, 2.0, 1.0], [1.0, 1.0, 1.0]])).tolist() == [2, 2, 2]


def test_the_best_is_the_same_in_any_order() -> None:
    losses, rows = np.array([[2.0], [1.0], [1.0]]), np.array([[5], [9], [3]])
    found = []
    for order in ([0, 1, 2], [2, 1, 0]):
        best = Best.none(1, 1, 0.0)
        best.offer(losses[order], lambda places, order=order: rows[order][places])  # type: ignore[misc]
        found.append((best.losses.tolist(), best.rows.tolist()))
    assert found == [([[1.0]], [[3]])] * 2
    assert best.covers(np.array([[1.0], [1.0 - 1e-6], [1.0 - 1e-12]])).tolist() == [True, False, True]


def test_a_front_covers_what_is_worse_in_everything() -> None:
    best = Best.none(2, 1, 0.0)
    best.offer(np.array([[1.0, 3.0], [2.0, 1.0], [2.0, 3.5]]), lambda places: places[:, None])
    assert best.losses.tolist() == [[1.0, 3.0], [2.0, 1.0]]
    assert best.covers(np.array([[1.5, 3.0], [1.5, 2.0], [2.0, 1.0]])).tolist() == [True, False, True]
