"""Flat and hierarchical all-to-alls, by hand."""

from __future__ import annotations

from math import e

import pytest

from cosmic.design.network_layer import Dimension
from cosmic.evaluation import evaluate
from cosmic.network.collective_costs import (
    busiest_link,
    collective_seconds,
    dimension_at,
    entering_flat,
    spine_shares,
    subgroups,
)
from cosmic.network.mesh_spans import Span
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.metrics import Metrics

RAILS = ("rail_optimized", 8, 8, 8, 1.0, 1.0)


def network(outer: str = "switch") -> tuple[Dimension, ...]:
    return (
        Dimension(topology="switch", npus=8, bandwidth_bytes_per_s=100e9, latency_s=0.0),
        Dimension(topology=outer, npus=4, bandwidth_bytes_per_s=10e9, latency_s=0.0),
    )


def took(how: str, outer: str = "switch", chunks: int = 1) -> float:
    dims = network(outer)
    lanes = [dimension_at(dims, place, "direct") for place in range(2)]
    group = subgroups(lanes, [Span(8.0, 1.0), Span(4.0, 1.0)])
    return float(collective_seconds(group, "all_to_all", 32e9, chunks, "blueconnect", all_to_all=how))


def test_stages_add_up_and_flat_dimensions_work_at_once() -> None:
    assert took("hierarchical") == pytest.approx(32 * 7 / 8 / 100 + 32 * 3 / 4 / 10)
    assert took("flat") == pytest.approx(32 * 3 / 4 / 10)


def test_messages_through_a_switch_do_not_cross_the_node() -> None:
    assert entering_flat([8, 4], [True, True]) == [0.25, 1.0]
    assert entering_flat([8, 4], [True, False]) == [1.0, 1.0]
    assert entering_flat([2, 3, 4], [True, False, True]) == [pytest.approx(6 / 24), pytest.approx(6 / 24), 1.0]


def test_the_busiest_of_two_links_follows_poisson() -> None:
    below = [1 / e, 2 / e, 2.5 / e, (2.5 + 1 / 6) / e, (2.5 + 1 / 6 + 1 / 24) / e]
    assert busiest_link(1.0, 2) == pytest.approx(sum(1 - each**2 for each in below), abs=3e-3)
    assert busiest_link(1e4, 64) == pytest.approx(1.0, abs=0.03)
    assert busiest_link(5.0, 1) == 1.0


def test_stages_stay_below_their_leaf_and_flat_messages_cross_the_spine() -> None:
    assert spine_shares(4, 4, 1, 1, *RAILS) == (1.0, 1.0)
    adaptive, hashed = spine_shares(4, 4, 1, 8, *RAILS)
    mean = 2 * 4 * 3 * 8 * (7 / 8) / 4  # messages of 4 NICs to 24 peers, of which 7/8 cross, on 4 uplinks
    assert [adaptive, hashed] == pytest.approx([1.0, 1 / (7 / 8 * busiest_link(mean, 64))])
    thin = ("rail_optimized", 8, 8, 6, 2.0, 1.0)  # 4 ports down, 2 up
    assert spine_shares(4, 4, 1, 8, *thin)[0] == pytest.approx(1 / (2 * 7 / 8))


def test_fat_trees_have_a_node_below_one_leaf() -> None:
    tree = ("fat_tree", 8, 8, 32, 2.0, 1.0)
    assert spine_shares(8, 8, 1, 8, *tree)[0] == spine_shares(8, 8, 1, 1, *tree)[0] < 1


def test_a_design_chooses_and_both_engines_charge_it() -> None:
    mesh = {"tp": 1, "cp": 1, "pp": 1, "dp": 16, "ep": 16, "global_batch": 16, "micro_batch": 1, "recompute": "full"}
    changes = {**mesh, "moe_token_dispatcher_type": "alltoall", "weight_sharding": "zero3", "sequence": 2048}
    point = load_design("qwen3-30b-a3b@dgx-h100:16", changes, plain=True)
    for how in ("hierarchical", "flat"):
        closed, events = (evaluate(point.changed({"collective.all_to_all": how}), engine=each) for each in ENGINES)
        assert isinstance(closed, Metrics)
        assert isinstance(events, Metrics)
        assert events.step_s == pytest.approx(closed.step_s, rel=0.03)
        taken[how] = closed.breakdown["ep"]
    assert taken["flat"] < taken["hierarchical"]  # a switch for all NICs: nothing to gain from stages


ENGINES = ("analytic", "event")
taken: dict[str, float] = {}
