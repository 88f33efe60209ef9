"""Strategies: tables of annotations that users can add to."""

from __future__ import annotations

from typing import Any

import pytest

from cosmic.base.errors import SpecError
from cosmic.design import catalog_entries
from cosmic.search.mapping.design_completion import load_design
from cosmic.workload.block_plans import (
    Strategy,
    annotate_graph,
    load_strategy,
    plan_blocks,
    read_strategy,
    strategies_of,
)
from cosmic.workload.model_blocks import blocks

GPT = load_design("gpt3-175b@cosmic-1024")
LAYER = next(block for block in blocks(GPT.model) if block.name == "layer")


@pytest.mark.parametrize("name", catalog_entries.entry_names("strategies"))
def test_every_strategy_of_the_catalog_reads_and_says_where_it_is_from(name: str) -> None:
    assert load_strategy(name).rules
    assert catalog_entries.read_entry("strategies", name)["source"]


def test_switches_of_a_workload_stand_for_strategies() -> None:
    names = strategies_of(GPT.workload)
    assert "zero3" in names
    assert "sequence_parallel" in names
    assert "ulysses" not in names


def test_axes_of_several_strategies_add_up_each_once_per_tensor() -> None:
    found = annotate_graph(LAYER.graph, ("data_parallel", "context_parallel", "sequence_parallel"))
    assert str(found["x"].sharding) == "batch: dp, sequence: cp tp"


def test_a_user_can_write_a_strategy_of_their_own() -> None:
    """Attention left whole on every rank: only the feed-forward network is split."""
    mine = read_strategy({"annotations": [{"tensors": ["weight"], "dims": {"ffn": ["tp"]}}]}, "ffn_only")
    planned = plan_blocks(GPT.model, ("data_parallel", mine), True, False)
    layer = next(each for each in planned if each.block.name == "layer")
    over_tp = [each for each in layer.partitioned.collectives if each.axes == ("tp",)]
    assert [(each.phase, each.kind, each.tensor) for each in over_tp] == [
        ("forward", "all_reduce", "ffn_down"),
        ("backward", "all_reduce", "d_ffn_norm"),
    ]


def test_gspmd_in_two_dimensions_gathers_activations_over_tp() -> None:
    planned = plan_blocks(GPT.model, ("gspmd_2d",), True, False)
    layer = next(each for each in planned if each.block.name == "layer")
    forward = [each for each in layer.partitioned.collectives if each.phase == "forward" and each.axes == ("tp",)]
    assert {(each.kind, each.tensor) for each in forward} >= {("reduce_scatter", "out"), ("reduce_scatter", "ffn_down")}


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({}, "mine.annotations = None: must be a list of rules"),
        ({"annotation": []}, "annotation = []: no such key; did you mean 'annotations'?"),
        ({"annotations": [3]}, "mine.annotations.0 = 3: must be a mapping of keys to values"),
        (
            {"annotations": [{"tensor": ["x"]}]},
            "mine.annotations.0.tensor = ['x']: no such key; did you mean 'tensors'?",
        ),
        ({"annotations": [{"tensors": ["x"], "dims": {"batch": ["dq"]}}]}, "no such mesh axis"),
        ({"annotations": [{"dims": {"batch": ["dp"]}}]}, "must give tensors, and dims with their axes"),
        ({"annotations": [], "stored": 1}, "mine.stored = 1: must be true or false"),
        (
            {"annotations": [{"tensors": ["x"], "dims": {"batch": ["edp", "ep"]}}]},
            "mine.annotations.0.dims.batch = ['edp', 'ep']: edp and ep split the ranks of experts: the axis of the "
            "batch is dp",
        ),
        (
            {"annotations": [{"tensors": ["x"], "partial": ["dq"]}]},
            "mine.annotations.0.partial = 'dq': no such mesh axis",
        ),
    ],
)
def test_a_mistake_in_a_strategy_is_said_with_its_place(tree: Any, message: str) -> None:
    with pytest.raises(SpecError) as error:
        read_strategy(tree, "mine")
    assert message in str(error.value)


def test_a_plan_is_made_once_for_each_structure() -> None:
    table = ("data_parallel", Strategy("none", ()))
    assert plan_blocks(GPT.model, table, True, False) is plan_blocks(GPT.model, table, True, False)
