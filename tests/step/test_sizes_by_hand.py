"""Sizes of a microbatch, what queries see, layers on stages, and bytes of numbers: each worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cosmic.design.design_batch import batch_of, batch_of_changes
from cosmic.design.model_layer import Experts, Image, Recommender
from cosmic.workload.attended_keys import visible_share
from cosmic.workload.block_plans import plan_of
from cosmic.workload.mesh_sizes import (
    blocks_on_stage,
    layers_of_part,
    layers_of_parts,
    microbatches,
    sizes_of,
    stage_number,
    structural_paths,
)
from cosmic.workload.model_blocks import touched_rows
from cosmic.workload.pipeline_cut import Cut, layers_per_part
from cosmic.workload.precision import RECIPES, SERVING, Recipe, recipe_of, weight_bytes
from tests.step.tiny import batch, point

# ---- sizes


def test_the_batch_dimension_is_that_of_all_replicas() -> None:
    found = sizes_of(batch(dp=4, ep=2, tp=3, cp=5, pp=6, micro_batch=7, sequence=11))
    axes = {axis: found[axis] for axis in ("dp", "edp", "ep", "tp", "cp", "pp")}
    assert axes == {"dp": 4, "edp": 2, "ep": 2, "tp": 3, "cp": 5, "pp": 6}
    tokens = {dim: found[dim] for dim in ("batch", "samples", "sequence", "context", "source")}
    assert tokens == {"batch": 28, "samples": 28, "sequence": 11, "context": 11, "source": 11}
    assert (found["hidden"], found["vocab"]) == (8, 10)


def test_decoding_has_one_query_in_a_context() -> None:
    found = sizes_of(batch(task="decode", sequence=11))
    assert (found["sequence"], found["context"], found["source"]) == (1, 11, 11)
    prefill = sizes_of(batch(task="prefill", sequence=11))
    assert prefill["sequence"] == 11


def test_sizes_of_many_designs_are_arrays() -> None:
    many = batch_of_changes(point(task="decode"), [{"workload.sequence": 4}, {"workload.sequence": 9}])
    assert np.asarray(sizes_of(many)["sequence"]).tolist() == [1, 1]
    assert np.asarray(sizes_of(many)["context"]).tolist() == [4, 9]


def test_designs_share_a_graph_if_switches_and_models_agree() -> None:
    many = batch_of_changes(point(), [{"model.layers": 2, "workload.tp": 1}, {"model.layers": 3, "workload.tp": 2}])
    paths = structural_paths(many)
    assert {"workload.task", "workload.recompute", "workload.precision", "model.layers"} <= set(paths)
    assert "workload.tp" not in paths
    assert "model.hidden" not in paths


@pytest.mark.parametrize(
    ("global_batch", "micro_batch", "dp", "count"),
    [(6, 1, 2, 3), (7, 1, 2, 4), (12, 2, 3, 2), (13, 2, 3, 3), (1, 2, 3, 1), (1, 1, 1, 1)],
)
def test_a_replica_passes_its_part_of_the_batch_in_microbatches(
    global_batch: int, micro_batch: int, dp: int, count: int
) -> None:
    assert microbatches(batch(global_batch=global_batch, micro_batch=micro_batch, dp=dp)) == count


def test_a_batch_of_designs_has_its_own_microbatches_each() -> None:
    many = batch_of_changes(point(global_batch=12), [{"workload.dp": 1}, {"workload.dp": 5}, {"workload.dp": 24}])
    assert np.asarray(microbatches(many)).tolist() == [12, 3, 1]


# ---- visible share


def seen(block: str = "layer", **changes: Any) -> float:
    made = batch(**changes)
    return float(visible_share(made, next(each.block for each in plan_of(made) if each.block.name == block)))


T5 = {"family": "encoder_decoder", "encoder_layers": 2, "position_buckets": 4}


@pytest.mark.parametrize(
    ("changes", "share"),
    [
        ({}, (1 + 2 + 3 + 4) / 16),
        ({"sequence": 5}, (1 + 2 + 3 + 4 + 5) / 25),
        ({"task": "prefill"}, 10 / 16),
        ({"task": "decode"}, 1.0),
        ({"model": {"family": "encoder"}}, 1.0),
        ({"model": T5}, 10 / 16),
        ({"model": {"window": 1}}, 4 / 16),
        ({"model": {"window": 2}}, (1 + 2 + 2 + 2) / 16),
        ({"model": {"window": 3}}, (1 + 2 + 3 + 3) / 16),
        ({"model": {"window": 4}}, 10 / 16),
        ({"model": {"window": 9}}, 10 / 16),
        ({"model": {"window": 3}, "task": "decode"}, 3 / 4),
        ({"model": {"window": 9}, "task": "decode"}, 1.0),
        # Each fourth layer attends to everything, the others to a window of 2.
        ({"model": {"window": 2, "full_attention_every": 4}}, (10 + 3 * 7) / 4 / 16),
        ({"model": {"window": 2, "full_attention_every": 1}}, 10 / 16),
        ({"model": {"window": 1, "full_attention_every": 4}, "task": "decode"}, (1 + 3 / 4) / 4),
        # Unbalanced, the last of two ranks has tokens 3 and 4.
        ({"cp": 2, "cp_balanced": False}, (3 + 4) / 8),
        ({"cp": 2, "cp_balanced": False, "model": {"window": 1}}, (1 + 1) / 8),
        ({"cp": 2, "cp_balanced": False, "model": {"window": 2}}, (2 + 2) / 8),
        ({"cp": 2, "cp_balanced": False, "model": {"window": 3}}, (3 + 3) / 8),
        ({"cp": 2, "cp_balanced": False, "model": {"window": 3, "full_attention_every": 2}}, (6 + 7) / 2 / 8),
        ({"cp": 4, "cp_balanced": False, "sequence": 8}, (7 + 8) / 16),
        ({"cp": 2, "cp_balanced": False, "sequence": 2}, 1.0),
        ({"cp": 1, "cp_balanced": False}, 10 / 16),
        ({"cp": 2}, 10 / 16),
        ({"cp": 2, "cp_balanced": False, "task": "decode"}, 1.0),
    ],
)
def test_a_query_sees_a_share_of_the_keys(changes: dict[str, Any], share: float) -> None:
    assert seen(**changes) == pytest.approx(share)


def test_an_encoder_beside_a_decoder_sees_everything() -> None:
    assert seen("encoder_layer", model=T5) == 1.0


def test_a_picture_is_seen_whole() -> None:
    image = Image(size=4, patch=2, class_token=False)
    assert seen(model={"family": "vision", "image": image}) == 1.0


def test_a_recommender_has_nothing_to_mask() -> None:
    model = Recommender(dense_features=3, tables=(5,), embedding=2, bottom=(2,), top=(1,))
    made = batch_of(replace(point(), model=model))
    assert visible_share(made, plan_of(made)[0].block) == 1.0


def test_a_batch_of_designs_sees_shares_of_its_own_sequences() -> None:
    many = batch_of_changes(point(), [{"workload.sequence": 2}, {"workload.sequence": 4}])
    layer = next(each.block for each in plan_of(many) if each.block.name == "layer")
    assert np.asarray(visible_share(many, layer)).tolist() == [3 / 4, 10 / 16]


# ---- stages


def on_stages(pp: int, *names: str, model: dict[str, Any], **workload: Any) -> list[list[float]]:
    """Return how much of some blocks each stage has."""
    made = batch(model=model, pp=pp, **workload)
    blocks = tuple(each.block for each in plan_of(made))
    found = [blocks_on_stage(made, place, blocks) for place in range(pp)]
    return [[float(each[name]) for name in names] for each in found]


def mixed(layers: int, **experts: Any) -> dict[str, Any]:
    return {"layers": layers, "experts": Experts(count=2, active=1, ffn=4, **experts)}


@pytest.mark.parametrize(
    ("layers", "pp", "expected"),
    [
        (8, 4, [2, 2, 2, 2]),
        (7, 3, [3, 2, 2]),
        (5, 4, [2, 1, 1, 1]),
        (61, 4, [16, 15, 15, 15]),
        (3, 1, [3]),
        (2, 3, [1, 1, 0]),
    ],
)
def test_stages_get_equal_layers_and_the_first_ones_what_is_left(layers: int, pp: int, expected: list[int]) -> None:
    assert on_stages(pp, "layer", model={"layers": layers}) == [[each] for each in expected]
    assert layers_per_part(layers, pp) == expected


@pytest.mark.parametrize(
    ("experts", "expected"),
    [
        # 7 layers on 3 stages: 3, 2, 2; dense ones first, then those with experts.
        ({"dense_first": 3}, [[3, 0], [0, 2], [0, 2]]),
        ({"dense_first": 4}, [[3, 0], [1, 1], [0, 2]]),
        ({"dense_first": 2}, [[2, 1], [0, 2], [0, 2]]),
        ({"dense_first": 6}, [[3, 0], [2, 0], [1, 1]]),
        # Layers 1, 3 and 5 have experts; after a dense one, 2, 4 and 6.
        ({"every": 2}, [[2, 1], [1, 1], [1, 1]]),
        ({"dense_first": 1, "every": 2}, [[2, 1], [1, 1], [1, 1]]),
        ({"dense_first": 4, "every": 2}, [[3, 0], [2, 0], [1, 1]]),  # layer 5 only
        ({"every": 3}, [[2, 1], [2, 0], [1, 1]]),  # layers 2 and 5
    ],
)
def test_layers_of_several_kinds_are_dealt_out_in_order(experts: dict[str, int], expected: list[list[int]]) -> None:
    assert on_stages(3, "layer", "moe_layer", model=mixed(7, **experts)) == expected


def test_layers_of_one_kind_that_has_experts_are_dealt_out_too() -> None:
    assert on_stages(3, "moe_layer", model=mixed(7)) == [[3], [2], [2]]


def test_an_encoder_comes_before_its_decoder() -> None:
    """3 encoder and 4 decoder layers on 2 stages: 4 and 3."""
    found = on_stages(2, "encoder_layer", "layer", model=T5 | {"encoder_layers": 3, "layers": 4})
    assert found == [[3, 1], [0, 3]]


def test_virtual_stages_are_dealt_out_one_after_the_other() -> None:
    """10 layers on 8 virtual stages: 2, 2, 1, 1, 1, 1, 1, 1; stage 0 has layers 0, 1 and 6, stage 1 has 2, 3 and 7."""
    virtual: dict[str, Any] = {"schedule": "interleaved", "virtual_stages": 2}
    model = mixed(10, dense_first=3)
    assert on_stages(4, "layer", "moe_layer", model=model, **virtual) == [[2, 1], [1, 2], [0, 2], [0, 2]]
    # A serving engine has no virtual stages: 3, 3, 2, 2.
    served = on_stages(4, "layer", "moe_layer", model=model, task="prefill", **virtual)
    assert served == [[3, 0], [0, 3], [0, 2], [0, 2]]


def test_a_bidirectional_schedule_has_the_mean_of_a_stage_and_its_mirror_image() -> None:
    """7 layers on 4 stages are 2, 2, 2, 1."""
    names = ("layer", "embedding", "head")
    found = on_stages(4, *names, model={"layers": 7}, schedule="dualpipe", global_batch=8)
    assert found == [[1.5, 0.5, 0.5], [2, 0, 0], [2, 0, 0], [1.5, 0.5, 0.5]]
    served = on_stages(4, *names, model={"layers": 7}, schedule="dualpipe", task="prefill")
    assert served == [[2, 1, 0], [2, 0, 0], [2, 0, 0], [1, 0, 1]]
    assert on_stages(1, *names, model={"layers": 7}, schedule="dualpipe") == [[7, 1, 1]]


def test_designs_of_a_batch_may_have_one_stage_or_both_directions() -> None:
    """7 layers on 4 stages are 2, 2, 2, 1."""
    many = batch_of_changes(
        point(model={"layers": 7}, schedule="dualpipe", global_batch=8), [{"workload.pp": 1}, {"workload.pp": 4}]
    )
    blocks = tuple(each.block for each in plan_of(many))
    found = blocks_on_stage(many, stage_number(many, "first", blocks), blocks)
    assert {name: np.asarray(count).tolist() for name, count in found.items()} == {
        "embedding": [1, 0.5],
        "layer": [7, 1.5],
        "head": [1, 0.5],
    }


def test_embedding_and_head_are_on_the_first_and_the_last_stage() -> None:
    assert on_stages(3, "embedding", "head", model={"layers": 3}) == [[1, 0], [0, 0], [0, 1]]
    assert on_stages(1, "embedding", "head", model={"layers": 3}) == [[1, 1]]


# ---- stated layers


@pytest.mark.parametrize(
    ("layers", "pp", "virtual", "first", "last", "expected"),
    [
        (8, 4, 1, 1, None, [1, 3, 2, 2]),  # 7 for three
        (8, 4, 1, None, 1, [3, 2, 2, 1]),
        (8, 4, 1, 3, 1, [3, 2, 2, 1]),
        (8, 4, 1, 0, 0, [0, 4, 4, 0]),
        (126, 16, 1, 7, 7, [7, *[8] * 14, 7]),  # LLaMA-3 405B
        (61, 16, 1, 3, 2, [3, *[4] * 14, 2]),  # DeepSeek-V3
        (5, 2, 1, 1, 4, [1, 4]),
        # Each virtual stage has an equal share: 8 layers for the four virtual stages of both stages between.
        (14, 4, 2, 4, 2, [2, 2, 2, 1, 2, 2, 2, 1]),
        (13, 4, 2, 4, 2, [2, 2, 2, 1, 2, 2, 1, 1]),
        (14, 3, 2, None, 2, [3, 3, 1, 3, 3, 1]),
        # 5 layers for six virtual stages: the head is alone, or the embedding.
        (7, 4, 2, 2, None, [1, 1, 1, 1, 1, 1, 1, 0]),
        (7, 4, 2, None, 2, [0, 1, 1, 1, 1, 1, 1, 1]),
    ],
)
def test_stages_without_stated_layers_share_the_rest(
    layers: int, pp: int, virtual: int, first: int | None, last: int | None, expected: list[int]
) -> None:
    assert layers_per_part(layers, pp, virtual, first, last) == expected
    changes: dict[str, Any] = {"first_stage_layers": first, "last_stage_layers": last, "virtual_stages": virtual}
    whole = [sum(expected[stage::pp]) for stage in range(pp)]
    assert on_stages(pp, "layer", model={"layers": layers}, **changes) == [[each] for each in whole]
    made = batch(model={"layers": layers}, pp=pp, **changes)
    assert layers_of_parts(made, [each.block for each in plan_of(made)]) == [{"layer": each} for each in expected]


def test_kinds_of_layers_go_where_stated_layers_put_them() -> None:
    """10 layers on 3 stages, the first three dense: 2, 4 and 4; with virtual stages 1, 2, 2, 1, 2, 2 in order."""
    model = mixed(10, dense_first=3)
    assert on_stages(3, "layer", "moe_layer", model=model, first_stage_layers=2) == [[2, 0], [1, 3], [0, 4]]
    virtual: dict[str, Any] = {"schedule": "interleaved", "virtual_stages": 2}
    found = on_stages(3, "layer", "moe_layer", model=model, first_stage_layers=2, **virtual)
    assert found == [[1, 1], [2, 2], [0, 4]]


def test_designs_of_a_batch_state_layers_or_do_not() -> None:
    """8 layers on 4 stages; 3, 2, 2, 1 where the last states 1, and 2 each where none is stated."""
    changes = [
        {"workload.first_stage_layers": first, "workload.last_stage_layers": last}
        for first, last in ((None, None), (None, 1), (1, None), (1, 1))
    ]
    many = batch_of_changes(point(model={"layers": 8}, pp=4, global_batch=4), changes)
    blocks = tuple(each.block for each in plan_of(many))
    found = [np.asarray(blocks_on_stage(many, place, blocks)["layer"]).tolist() for place in range(4)]
    assert list(zip(*found, strict=True)) == [(2, 2, 2, 2), (3, 2, 2, 1), (1, 3, 2, 2), (1, 3, 3, 1)]
    # Where layers are alike and none is stated, no stage has more than the first.
    assert np.asarray(stage_number(many, "middle", blocks)).tolist() == [0, 1, 1, 2]
    assert np.asarray(stage_number(many, "second", blocks)).tolist() == [0, 0, 1, 1]
    assert np.asarray(stage_number(many, "penultimate", blocks)).tolist() == [3, 2, 3, 2]


@pytest.mark.parametrize(
    ("layers", "first", "last", "place"),
    [(9, 1, None, 2), (9, None, 1, 1), (8, 1, None, 1), (9, 1, 1, 1), (10, None, 0, 1), (9, 4, 4, 1)],
)
def test_the_middle_of_stages_that_share_has_as_many_layers_as_any_of_them(
    layers: int, first: int | None, last: int | None, place: int
) -> None:
    """Of four stages; of five where the head is alone."""
    stages = 5 if last == 0 else 4
    made = batch(model={"layers": layers}, pp=stages, first_stage_layers=first, last_stage_layers=last)
    blocks = tuple(each.block for each in plan_of(made))
    assert int(stage_number(made, "middle", blocks)) == place


def test_every_block_of_a_model_lies_on_some_stage() -> None:
    made = batch(model=mixed(7, dense_first=2), pp=3)
    blocks = tuple(each.block for each in plan_of(made))
    found = [blocks_on_stage(made, place, blocks) for place in range(3)]
    for block in blocks:
        assert sum(float(each[block.name]) for each in found) == block.repeats


def test_a_batch_of_designs_has_its_own_stages_each() -> None:
    staged = [{"workload.pp": 1, "workload.virtual_stages": 1}, {"workload.pp": 2, "workload.virtual_stages": 3}]
    many = batch_of_changes(point(model=mixed(7, dense_first=1), schedule="interleaved", global_batch=4), staged)
    blocks = tuple(each.block for each in plan_of(many))
    # Virtual stages of 2, 1, 1, 1, 1, 1: stage 0 has layers 0, 1, 3 and 5.
    first = blocks_on_stage(many, stage_number(many, "first", blocks), blocks)
    assert {name: np.asarray(count).tolist() for name, count in first.items()} == {
        "embedding": [1, 1],
        "layer": [1, 1],
        "moe_layer": [6, 3],
        "head": [1, 0],
    }
    last = blocks_on_stage(many, stage_number(many, "last", blocks), blocks)
    assert {name: np.asarray(count).tolist() for name, count in last.items()} == {
        "embedding": [1, 0],
        "layer": [1, 0],
        "moe_layer": [6, 3],
        "head": [1, 1],
    }


@pytest.mark.parametrize(
    ("layers", "pp", "place"),
    [(8, 4, 2), (9, 4, 2), (10, 4, 1), (11, 4, 2), (7, 3, 1), (8, 3, 1), (9, 2, 1), (3, 1, 0)],
)
def test_the_middle_stage_has_as_many_layers_as_any(layers: int, pp: int, place: int) -> None:
    """The last of those that have a layer more than others; half way where only the first has one, or none."""
    made = batch(model={"layers": layers}, pp=pp)
    blocks = tuple(each.block for each in plan_of(made))
    assert [int(stage_number(made, stage, blocks)) for stage in ("first", "middle", "last")] == [0, place, pp - 1]


def test_virtual_stages_leave_the_middle_where_it_is() -> None:
    """14 layers on 8 virtual stages are 2 for six of them, 1 for two: 4, 4, 3, 3 on the four stages."""
    changes: dict[str, Any] = {"schedule": "interleaved", "virtual_stages": 2}
    assert on_stages(4, "layer", model={"layers": 14}, **changes) == [[4], [4], [3], [3]]
    made = batch(model={"layers": 14}, pp=4, **changes)
    assert int(stage_number(made, "middle", tuple(each.block for each in plan_of(made)))) == 1


def test_a_part_of_a_model_has_its_layers_of_each_kind() -> None:
    made = batch(model=mixed(7, dense_first=2), pp=3)
    blocks = tuple(each.block for each in plan_of(made))
    found = layers_of_part(made.base.model, blocks, Cut(7, 3), np.array([0, 1, 2]), 0)
    assert {name: np.asarray(count).tolist() for name, count in found.items()} == {
        "layer": [2, 0, 0],
        "moe_layer": [1, 2, 2],
    }
    assert layers_of_part(made.base.model, blocks, Cut(7, 4), 3, 0) == {"layer": 0, "moe_layer": 1}


# ---- precision


def numbers(recipe: Recipe) -> tuple[float, ...]:
    moved = (recipe.weight, recipe.gradient, recipe.master, recipe.moments, recipe.activation)
    return (*moved, recipe.cache, recipe.wide, recipe.optimizer)


@pytest.mark.parametrize(
    ("precision", "expected"),
    [
        # weight, gradient, master copy, two moments, activation; cache, wide weights; optimizer = master + moments
        ("fp32", (4, 4, 0, 8, 4, 4, 4, 8)),
        ("bf16", (2, 4, 4, 8, 2, 2, 2, 12)),
        ("fp16", (2, 2, 4, 8, 2, 2, 2, 12)),
        ("fp8", (2, 2, 4, 8, 2, 2, 2, 12)),
        ("fp4", (2, 2, 4, 8, 2, 2, 2, 12)),
        ("int4", (2, 4, 4, 8, 2, 2, 2, 12)),
        ("bf16_pure", (2, 2, 0, 4, 2, 2, 2, 4)),
    ],
)
def test_training_keeps_these_bytes_of_a_parameter(precision: str, expected: tuple[float, ...]) -> None:
    assert numbers(recipe_of(precision, "training")) == expected


@pytest.mark.parametrize(
    ("precision", "weight", "cache", "wide"),
    [
        ("fp32", 4, 4, 4),
        ("bf16", 2, 2, 2),
        ("fp16", 2, 2, 2),
        ("bf16_pure", 2, 2, 2),
        ("fp8", 1, 1, 2),
        ("fp4", (4 + 8 / 16) / 8, 1, 2),  # 4 bits, and 8 bits of scale for 16 numbers
        ("int4", (4 + 16 / 32) / 8, 2, 2),  # 4 bits, and 16 bits of scale for 32 numbers
    ],
)
def test_serving_keeps_these_bytes_of_weights_and_kv_cache(
    precision: str, weight: float, cache: float, wide: float
) -> None:
    for task in ("prefill", "decode"):
        found = recipe_of(precision, task)
        assert numbers(found) == (weight, 0, 0, 0, 4 if precision == "fp32" else 2, cache, wide, 0)


def test_every_precision_has_both_recipes() -> None:
    assert set(RECIPES) == set(SERVING) == {"fp32", "fp16", "bf16", "bf16_pure", "fp8", "fp4", "int4"}


TABLES = ("w_embedding", "w_vocabulary", "w_head", "w_positions")
ROUTERS = ("w_router", "b_router", "w_shared_gate")
SMALL = ("w_attention_norm", "w_final_norm", "b_q", "b_expert_down", "b_head", "w_sinks")
FFN = ("w_ffn_up", "w_ffn_gate", "w_ffn_down", "w_shared_ffn_up", "w_shared_ffn_gate", "w_shared_ffn_down")
EXPERTS = ("w_expert_ffn_up", "w_expert_ffn_gate", "w_expert_down")
ATTENTION = ("w_q", "w_k", "w_v", "w_out", "w_q_down", "w_kv_down", "w_k_up")


@pytest.mark.parametrize(("precision", "width"), [("fp8", 1.0), ("fp4", 0.5625), ("int4", 0.5625), ("bf16", 2.0)])
@pytest.mark.parametrize("moe", [False, True])
def test_a_format_covers_gemms_but_not_tables_routers_norms_and_offsets(
    precision: str, width: float, moe: bool
) -> None:
    recipe = SERVING[precision]
    assert {weight_bytes(recipe, name, moe=moe) for name in (*TABLES, *ROUTERS, *SMALL)} == {2.0}
    assert {weight_bytes(recipe, name, moe=moe) for name in (*FFN, *EXPERTS)} == {width}
    left = 2.0 if moe and width < 1 else width  # below 8 bits, an MoE's attention stays in 16
    assert {weight_bytes(recipe, name, moe=moe) for name in ATTENTION} == {left}


def test_wide_weights_are_as_wide_as_the_recipe_says() -> None:
    assert weight_bytes(SERVING["fp32"], "w_head", moe=False) == 4
    assert weight_bytes(RECIPES["fp8"], "w_q", moe=True) == 2


# ---- rows of tables


def test_the_rows_that_samples_look_up_are_fewer_than_their_lookups() -> None:
    """Of 4 rows, 3 lookups leave each untouched with (3/4)^3; a table of one row is touched by any."""
    model = Recommender(dense_features=1, tables=(4, 1), embedding=2, bottom=(2,), top=(1,))
    assert float(touched_rows(model, 3)) == pytest.approx(4 * (1 - 0.75**3) + 1)
    assert float(touched_rows(replace(model, lookups=2), 3)) == pytest.approx(4 * (1 - 0.75**6) + 1)
    assert np.asarray(touched_rows(model, np.array([1, 10**6]))).tolist() == pytest.approx([2, 5])
    large = replace(model, tables=(10**9,))
    assert float(touched_rows(large, 1000)) == pytest.approx(1000, rel=1e-6)  # hardly any twice
