"""Decision diagrams against brute force: the same combinations, the same number, each equally likely."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cosmic.base.errors import SpecError
from cosmic.search.space import diagram as diagrams
from cosmic.search.space.diagram import Diagram
from cosmic.search.space.expressions import Constant, Scope, Variable, make_operation
from tests.search.space.spaces import space

NAMES = ("dp", "tp", "cp", "pp")
SCOPE = Scope(space({"workload.dp": [1]}).base, frozenset(f"workload.{name}" for name in NAMES), {})

Test = Callable[[int, int, int, int], bool]
RULES: list[tuple[str, Test]] = [  # an expression, and the same in Python
    ("dp * tp * cp * pp == 12", lambda dp, tp, cp, pp: dp * tp * cp * pp == 12),
    ("dp * tp <= 6", lambda dp, tp, cp, pp: dp * tp <= 6),
    ("dp + tp + cp + pp in [5, 7]", lambda dp, tp, cp, pp: dp + tp + cp + pp in (5, 7)),
    ("cp % tp == 0", lambda dp, tp, cp, pp: cp % tp == 0),
    ("dp != pp or tp > 2", lambda dp, tp, cp, pp: dp != pp or tp > 2),
    ("min(dp, tp) < max(cp, pp)", lambda dp, tp, cp, pp: min(dp, tp) < max(cp, pp)),
    ("not (dp == tp and cp == pp)", lambda dp, tp, cp, pp: not (dp == tp and cp == pp)),
    ("(pp == 2) if dp > 2 else (cp <= 3)", lambda dp, tp, cp, pp: pp == 2 if dp > 2 else cp <= 3),
    ("dp ** 2 + tp ** 2 <= 20", lambda dp, tp, cp, pp: dp**2 + tp**2 <= 20),
    ("dp / tp < cp / pp", lambda dp, tp, cp, pp: Fraction(dp, tp) < Fraction(cp, pp)),
]
domains = st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=4, unique=True), min_size=4, max_size=4)
chosen_rules = st.lists(st.sampled_from(range(len(RULES))), max_size=3, unique=True)


def built(values: list[list[int]], rules: list[int]) -> Diagram:
    levels = [
        [{f"workload.{name}": Constant(Fraction(value))} for value in row]
        for name, row in zip(NAMES, values, strict=True)
    ]
    return diagrams.build_diagram(levels, [SCOPE.bind(RULES[rule][0], "here").expression for rule in rules])


def brute_force(values: list[list[int]], rules: list[int]) -> list[tuple[int, ...]]:
    """Every valid combination of indices, found by trying them all."""
    return [
        indices
        for indices in product(*(range(len(row)) for row in values))
        if all(RULES[rule][1](*(row[index] for row, index in zip(values, indices, strict=True))) for rule in rules)
    ]


def listed(diagram: Diagram) -> list[tuple[int, ...]]:
    return [tuple(row) for row in diagram.nth(np.arange(diagram.count)).tolist()]


@given(domains, chosen_rules)
@settings(max_examples=60)
def test_the_diagram_holds_exactly_the_valid_combinations(values: list[list[int]], rules: list[int]) -> None:
    diagram, valid = built(values, rules), brute_force(values, rules)
    assert diagram.count == len(valid)
    assert listed(diagram) == valid
    everything = np.array(list(product(*(range(len(row)) for row in values))), dtype=np.intp)
    assert [tuple(row) for row in everything[diagram.contains(everything)].tolist()] == valid


@given(domains, chosen_rules, st.integers(0, 1000))
def test_samples_and_repairs_are_valid(values: list[list[int]], rules: list[int], seed: int) -> None:
    diagram, valid = built(values, rules), set(brute_force(values, rules))
    assume(valid)
    rng = np.random.default_rng(seed)
    drawn = diagram.sample(50, rng)
    assert {tuple(row) for row in drawn.tolist()} <= valid
    assert np.array_equal(diagram.repair(drawn), drawn)
    wanted = np.stack([rng.integers(len(row), size=50) for row in values], axis=1)
    assert {tuple(row) for row in diagram.repair(wanted).tolist()} <= valid


@given(domains, chosen_rules)
def test_supported_values_are_those_that_occur(values: list[list[int]], rules: list[int]) -> None:
    diagram, valid = built(values, rules), brute_force(values, rules)
    assume(valid)
    for level, supported in enumerate(diagram.supported):
        assert supported.tolist() == sorted({combination[level] for combination in valid})


@given(domains, chosen_rules, st.integers(0, 3), st.integers(0, 1000))
def test_keeping_a_value_changes_what_it_must_and_no_more(
    values: list[list[int]], rules: list[int], level: int, seed: int
) -> None:
    """Level by level the nearest value with which some combination goes on that has what is kept: found by listing."""
    diagram, valid = built(values, rules), brute_force(values, rules)
    assume(valid)
    rng = np.random.default_rng(seed)
    wanted = np.stack([rng.integers(len(row), size=20) for row in values], axis=1)
    kept = rng.choice(diagram.supported[level], size=20)
    for row, value, found in zip(wanted, kept, diagram.keeping(wanted, np.full(20, level), kept).tolist(), strict=True):
        possible = [combination for combination in valid if combination[level] == value]
        for place, want in enumerate(row.tolist()):
            nearest = min((abs(each[place] - want), each[place]) for each in possible)[1]
            possible = [each for each in possible if each[place] == nearest]
        assert [tuple(found)] == possible


@given(domains, chosen_rules, st.integers(0, 1000))
def test_values_are_kept_at_different_levels_at_once_with_or_without_tables(
    values: list[list[int]], rules: list[int], seed: int
) -> None:
    diagram, valid = built(values, rules), set(brute_force(values, rules))
    assume(valid)
    rng = np.random.default_rng(seed)
    wanted = np.stack([rng.integers(len(row), size=30) for row in values], axis=1)
    levels = rng.integers(len(values), size=30)
    kept = np.array([rng.choice(diagram.supported[level]) for level in levels])
    found = diagram.keeping(wanted, levels, kept)
    assert {tuple(row) for row in found.tolist()} <= valid
    assert np.array_equal(found[np.arange(30), levels], kept)
    bare = Diagram(diagram.children)
    bare.__dict__["_keeps"] = None  # as of a diagram whose tables would be too large
    assert np.array_equal(bare.keeping(wanted, levels, kept), found)


def test_large_tables_are_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagrams, "MAX_CELLS", 3)
    assert built([[1, 2], [1, 2], [1], [1]], [0])._keeps is None


def test_a_place_in_the_list_is_found_however_long_the_list() -> None:
    """Seventy binary choices are more combinations than a machine word can count."""
    diagram = Diagram(tuple(np.zeros((1, 2), dtype=np.intp) for _ in range(70)))
    assert diagram.nth(np.array([2**70 - 1, 5], dtype=object)).tolist() == [[1] * 70, [0] * 67 + [1, 0, 1]]


def test_walking_draws_in_proportion_to_the_weights_of_values() -> None:
    """Pearson's chi-square against the product of the weights, shared among the valid combinations."""
    values = [[1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 6], [1, 2]]
    diagram, valid = built(values, [1, 4]), brute_force(values, [1, 4])
    weights = [np.array([1.0, 2.0, 3.0, 1.0]), np.array([4.0, 1.0, 1.0, 9.0]), np.ones(4), np.array([1.0, 3.0])]
    mass = {each: prod(float(weight[value]) for weight, value in zip(weights, each, strict=True)) for each in valid}
    draws = 20_000
    counts = Counter(tuple(row) for row in diagram.walk(weights, draws, np.random.default_rng(0)).tolist())
    assert counts.keys() <= mass.keys()
    expected = {each: draws * mass[each] / sum(mass.values()) for each in valid}
    chi_square = sum((counts[each] - expected[each]) ** 2 / expected[each] for each in valid)
    freedom = len(valid) - 1
    assert abs(chi_square - freedom) < 4 * (2 * freedom) ** 0.5


def test_sampling_is_uniform_over_valid_combinations() -> None:
    """Pearson's chi-square: with 33 degrees of freedom a fair sampler exceeds 63.9 once in a thousand seeds."""
    values = [[1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 6], [1, 2, 3, 6]]
    rules = [1, 4]  # dp * tp <= 6, and dp != pp or tp > 2: branches of very different sizes
    diagram, valid = built(values, rules), brute_force(values, rules)
    draws = 20_000
    counts = Counter(tuple(row) for row in diagram.sample(draws, np.random.default_rng(0)).tolist())
    expected = draws / len(valid)
    chi_square = sum((counts[combination] - expected) ** 2 / expected for combination in valid)
    freedom = len(valid) - 1
    assert abs(chi_square - freedom) < 4 * (2 * freedom) ** 0.5


def test_the_diagram_stays_narrow_where_the_space_is_wide() -> None:
    """Twelve parameters of eleven values: 3 billion combinations, and a node per partial product."""
    paths = [f"x{place}" for place in range(12)]
    levels = [[{path: Constant(Fraction(2**power))} for power in range(11)] for path in paths]
    whole = make_operation("product", tuple(Variable(path) for path in paths))
    diagram = diagrams.build_diagram(levels, [make_operation("==", (whole, Constant(Fraction(1024))))])
    stars_and_bars = prod(range(11, 22)) // prod(range(1, 12))  # ten factors of two into twelve places
    assert diagram.count == stars_and_bars
    assert max(len(table) for table in diagram.children) <= 111


def test_a_diagram_too_large_to_count_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagrams, "MAX_STEPS", 20)
    with pytest.raises(SpecError, match="tie too many values of their parameters together"):
        built([[1, 2, 3, 4]] * 4, [2])


def test_a_constraint_holds_for_no_point_where_it_divides_by_zero() -> None:
    assert space({"workload.dp": [1, 2]}, ["4 / (dp - 1) > 2"]).valid == 1


def test_the_nearest_live_value_is_found_without_comparing_all_pairs() -> None:
    rng = np.random.default_rng(3)
    for values in (1, 2, 7, 40):
        live = rng.random((30, values)) < 0.3
        live[0], live[1] = False, True
        children = np.where(live, 0, diagrams.DEAD)
        found = diagrams.Diagram((children,))._nearest[0]
        places = np.arange(values)
        distance = np.where(live[:, None, :], np.abs(places[:, None] - places)[None], values + 1)
        assert np.array_equal(found, distance.argmin(axis=2))
