"""Elimination of variables, against all choices."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest

from cosmic.search.sharding.elimination import PairwiseCosts, improve_states, minimise_costs, refine_states


def drawn(seed: int, variables: int = 6, states: int = 3) -> PairwiseCosts:
    rng = np.random.default_rng(seed)
    single = [rng.integers(0, 9, states).astype(float) for _ in range(variables)]
    met = [pair for pair in combinations(range(variables), 2) if rng.random() < 0.5]
    return PairwiseCosts(
        [states] * variables, single, {pair: rng.integers(0, 20, (states, states)).astype(float) for pair in met}
    )


@pytest.mark.parametrize("seed", range(25))
def test_the_least_sum_is_found_and_proven(seed: int) -> None:
    problem = drawn(seed)
    least = min(problem.value(list(states)) for states in product(range(3), repeat=6))
    found = minimise_costs(problem)
    assert found.exact
    assert found.value == least == found.bound == problem.value(found.states)


@pytest.mark.parametrize("seed", range(15))
def test_split_tables_still_give_a_bound(seed: int) -> None:
    problem = drawn(seed)
    least = min(problem.value(list(states)) for states in product(range(3), repeat=6))
    found = minimise_costs(problem, most_entries=9)
    assert found.bound <= least <= found.value


def test_single_and_joint_changes_only_improve() -> None:
    for seed in range(10):
        problem = drawn(seed, states=4)
        start = [0] * 6
        alone = improve_states(problem, start)
        labels = [[np.array([0, 0, 1, 1])] * 6, [np.array([0, 1, 0, 1])] * 6]
        together = refine_states(problem, start, labels)
        assert problem.value(alone) <= problem.value(start)
        assert problem.value(together) <= problem.value(start)
