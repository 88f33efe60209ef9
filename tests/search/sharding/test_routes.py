"""All reshardings at once, against the planner's, a pair at a time."""

from __future__ import annotations

import random

import pytest

from cosmic.search.sharding.sharding_costs import all_shardings, find_resharding_routes, tensor_shardings
from cosmic.workload.operator_graph import Tensor
from cosmic.workload.sharding.resharding import reshard, wire_share
from cosmic.workload.sharding.tensor_sharding import group_size

SIZES = {"b": 8, "s": 32, "h": 64, "x": 4, "y": 2, "z": 2}


@pytest.mark.parametrize(("axes", "pairs"), [("xy", 150), ("xyz", 40)])
def test_all_reshardings_cost_what_the_planner_finds_for_each(axes: str, pairs: int) -> None:
    dims = ("b", "s", "h")
    states = all_shardings(dims, tuple(axes), SIZES)
    found = find_resharding_routes(
        dims, states, SIZES, lambda kind, over, n: float(wire_share(kind, group_size(over, SIZES))) * n
    )
    random.seed(1)
    for _ in range(pairs):
        source, target = random.choice(states), random.choice(states)
        assert found.between(source, target) == pytest.approx(reshard(dims, source, target, SIZES)[1])


def test_no_device_is_left_without_a_part() -> None:
    kept = tensor_shardings(Tensor("t", ("b", "h")), ("x", "y"), {**SIZES, "b": 4})
    assert "b: x y" not in map(str, kept)
    assert "b: x, h: y" in map(str, kept)
    assert "h: y x" in map(str, kept)
