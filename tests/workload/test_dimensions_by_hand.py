"""Sizes of dimensions and axes that few designs have, and which fields decide on a graph."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cosmic.design.design_batch import batch_of, batch_of_changes
from cosmic.design.model_layer import Experts, Recommender
from cosmic.workload.block_plans import plan_of
from cosmic.workload.mesh_sizes import (
    _fill_gaps,
    blocks_on_stage,
    expert_degrees,
    is_memory_switch,
    layers_by_part,
    layers_of_parts,
    sizes_of,
    structural_paths,
)
from tests.step.tiny import batch, point, switch
from tests.workload.test_attended_by_hand import SPARSE

EXPERTS = {"experts": Experts(count=4, active=1, ffn=4)}


@pytest.mark.parametrize(
    ("path", "decides"),
    [
        ("memory.tiers.0.name", True),
        ("memory.tiers.1.access", True),
        ("memory.tiers.0.pool", True),
        ("memory.tiers.0.in_switch", True),
        ("memory.tiers.0.bandwidth", False),
        ("network.dims.0.name", False),
        ("memory.placement.weights", True),
        ("memory.tiers", True),
        ("memory.placement", True),
        ("memory.prefetch", True),
        ("memory.expansion", True),
        ("memory.active_experts", True),
        ("memory.capacity", False),
        ("memory.resident_layers", False),
    ],
)
def test_fields_of_memory_that_are_no_numbers_decide_on_a_graph(path: str, decides: bool) -> None:
    assert is_memory_switch(path) == decides


def test_designs_that_differ_in_a_switch_of_memory_have_graphs_of_their_own() -> None:
    changes: list[dict[str, Any]] = [{"memory.prefetch": each, "memory.capacity": 1e9} for each in ("layer", "step")]
    paths = structural_paths(batch_of_changes(point(), changes))
    assert "memory.prefetch" in paths
    assert "memory.capacity" not in paths
    assert "compute.fp4" not in paths


def test_accelerators_that_multiply_no_4_bits_have_kernels_of_their_own() -> None:
    changes: list[dict[str, Any]] = [{"compute.fp4": None}, {"compute.fp4": 4000.0}]
    assert "compute.fp4" in structural_paths(batch_of_changes(point(), changes))
    changes = [{"compute.fp4": 2000.0}, {"compute.fp4": 4000.0}]
    assert "compute.fp4" not in structural_paths(batch_of_changes(point(), changes))


@pytest.mark.parametrize(("task", "keys"), [("decode", 4), ("prefill", 2), ("training", 2)])
def test_an_index_reads_the_compressed_keys_before_a_query(task: str, keys: int) -> None:
    """Keys of 2 of 8 tokens: 4 for the last query, half as many on average over all."""
    model = {"layers": 1, "pattern": "C", "sparse": SPARSE}
    assert sizes_of(batch(task=task, sequence=8, model=model))["index_context"] == keys


def test_an_index_has_a_context_only_where_keys_are_compressed() -> None:
    assert "index_context" not in sizes_of(batch(sequence=8))


@pytest.mark.parametrize(("task", "tokens"), [("training", 2 * 3 * 8), ("prefill", 2 * 3 * 8), ("decode", 2 * 3 * 2)])
def test_experts_get_all_tokens_of_all_replicas(task: str, tokens: int) -> None:
    """3 sequences of 8 tokens on each of two replicas; both ranks of cp decode the same tokens."""
    found = sizes_of(batch(task=task, sequence=8, dp=2, cp=2, micro_batch=3, model=EXPERTS))
    assert found["tokens"] == tokens
    assert found.get("popularity") == (None if task == "training" else 1)


def test_a_model_without_experts_has_none_of_their_sizes() -> None:
    found = sizes_of(batch(dp=4, ep=2))
    assert (found["etp"], found["ep"], found["edp"]) == (1, 2, 2)
    assert "tokens" not in found
    assert "odp" not in found


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # 16 ranks of tp, cp and dp: etp is what they have in common with tp once ep has taken its part.
        ({"ep": 4}, {"etp": 4, "ep": 4, "edp": 1, "tep": 1, "oep": 4}),
        ({"ep": 8}, {"etp": 2, "ep": 8, "edp": 1, "tep": 2, "oep": 4}),
        ({"ep": 4, "etp": 1}, {"etp": 1, "ep": 4, "edp": 4, "tep": 4, "oep": 1}),
        ({"ep": 2, "etp": 2}, {"etp": 2, "ep": 2, "edp": 4, "tep": 2, "oep": 1}),
    ],
)
def test_the_axes_of_experts_split_the_same_ranks(changes: dict[str, int], expected: dict[str, float]) -> None:
    found = expert_degrees(batch(tp=4, cp=2, dp=2, model={"experts": Experts(count=8, active=1, ffn=4)}, **changes))
    assert {name: float(found[name]) for name in expected} == expected


def test_designs_of_a_batch_state_etp_or_do_not() -> None:
    usual = np.array([4, 2, 8])
    assert np.asarray(_fill_gaps(np.array([None, 1, None], dtype=object), usual)).tolist() == [4, 1, 8]
    assert _fill_gaps(None, 4) == 4
    assert _fill_gaps(2, 4) == 2


def test_islands_split_replicas_of_layers_and_of_experts() -> None:
    """8 replicas on 2 islands: 4 in each; those of experts, over ep 2 of all ranks, 2."""
    dims = (switch(4), switch(2))
    found = sizes_of(batch(dp=8, ep=2, dims=dims, sync_period=4, model=EXPERTS))
    axes = {axis: float(found[axis]) for axis in ("odp", "idp", "oedp", "iedp")}
    assert axes == {"odp": 2, "idp": 4, "oedp": 2, "iedp": 2}


def test_adapters_are_as_many_as_requests_name() -> None:
    """Two requests that name one of 4 adapters each: 4 (1 - (3 / 4)^2); a training step has one."""
    lora: dict[str, Any] = {"lora_rank": 3, "lora_adapters": 4, "micro_batch": 2}
    found = sizes_of(batch(task="prefill", **lora))
    assert [found["adapters"]] == pytest.approx([4 * (1 - 9 / 16)])
    trained = sizes_of(batch(lora_rank=3))
    assert "adapters" not in trained
    assert [value for name, value in trained.items() if name not in sizes_of(batch())] == [3]


def test_what_tp_does_not_divide_is_padded_if_that_is_asked_for() -> None:
    """2 heads and a width of 16 on 3 ranks."""
    padded, refused = (sizes_of(batch(tp=3, uneven_tp=each)) for each in ("pad", "refuse"))
    assert (padded["heads"], padded["ffn"]) == (3, 18)
    assert (refused["heads"], refused["ffn"]) == (2, 16)
    model = Recommender(dense_features=3, tables=(5,), embedding=2, bottom=(2,), top=(1,))
    tables = replace(point(tp=3, uneven_tp="pad"), model=model)
    assert "heads" not in sizes_of(batch_of(tables))


# ---- stages


def test_stated_layers_leave_nothing_to_balance() -> None:
    """5 layers on 3 stages: 1 is stated for the first, and others share the rest; a head would take some of them."""
    made = batch(
        model={"layers": 5, "vocab": 1000}, pp=3, first_stage_layers=1, stage_layers="balanced", global_batch=6
    )
    blocks = tuple(each.block for each in plan_of(made))
    assert [float(blocks_on_stage(made, place, blocks)["layer"]) for place in range(3)] == [1, 2, 2]


def test_only_the_first_layers_of_each_virtual_stage_count_if_asked() -> None:
    """9 layers on 2 x 2 virtual stages are 3, 2, 2, 2: the first stage has 3 and 2 of them."""
    made = batch(model={"layers": 9}, pp=2, schedule="interleaved", virtual_stages=2, global_batch=4)
    blocks = tuple(each.block for each in plan_of(made))
    for most, expected in ((None, [3, 2]), (2, [2, 2]), (1, [1, 1]), (5, [3, 2])):
        found = layers_by_part(made, 0, blocks, most)
        assert [float(each["layer"]) for each in found] == expected


def test_a_single_stage_has_no_virtual_ones() -> None:
    made = batch(model={"layers": 9}, schedule="interleaved", virtual_stages=3, global_batch=4)
    assert layers_of_parts(made, [each.block for each in plan_of(made)]) == [{"layer": 9}]


PATTERN: dict[str, Any] = {"layers": 8, "pattern": "WWWWWWCC", "sparse": SPARSE}


def test_layers_of_a_pattern_are_dealt_out_in_its_order() -> None:
    """8 layers on 3 stages: 3, 3 and 2, the last two of another kind, which have more parameters."""
    made = batch(model=PATTERN, pp=3)
    blocks = tuple(each.block for each in plan_of(made))
    found = [blocks_on_stage(made, place, blocks) for place in range(3)]
    assert [(float(each["window_layer"]), float(each["sparse_layer"])) for each in found] == [(3, 0), (3, 0), (0, 2)]


def test_layers_of_an_encoder_come_before_those_with_experts() -> None:
    """4 layers of an encoder on one stage; the next has the first of the decoder, which is dense, and 3 with experts."""
    experts = Experts(count=2, active=1, ffn=6, dense_first=1)
    model = {"layers": 4, "family": "encoder_decoder", "encoder_layers": 4, "experts": experts}
    made = batch(model=model, pp=2, global_batch=2)
    blocks = tuple(each.block for each in plan_of(made))
    found = [blocks_on_stage(made, place, blocks) for place in range(2)]
    names = ("encoder_layer", "layer", "moe_layer")
    assert [[float(each[name]) for name in names] for each in found] == [[4, 0, 0], [0, 1, 3]]
