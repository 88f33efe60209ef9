"""Memory of tiny models, byte by byte: every expected number is worked out here, from the shapes alone.

The model has 2 layers, hidden 8, 2 heads of 4, ffn 16, vocab 10 and RMS norms; a sequence has 4 tokens. So a layer has

    2 norms of 8, four projections of 8 × 8, two matrices of 8 × 16      16 + 256 + 256 = 528 weights

and keeps for its backward pass, for each token, in 2 bytes each,

    x 8, its norm 8, queries 8, keys 8, values 8, attention 8, the stream 8, its norm 8, up 16, inner 16     96 numbers

beside 4 bytes for each norm of a token, and for each head of a token: 4 (96 · 2 + 2 · 4 + 2 · 4) = 832 bytes.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from cosmic.design.design_batch import batch_of, batch_of_changes
from cosmic.design.design_point import DesignPoint
from cosmic.design.memory_layer import MemoryTier
from cosmic.search.mapping.design_completion import load_design
from cosmic.step.device_memory import COMPONENTS, Footprint, footprint, stage_footprints
from cosmic.step.process_memory import PROCESS
from cosmic.step.stage_memory import LogitBytes, interleaved_bytes
from cosmic.workload.pipeline_schedule import schedules
from tests.relations.random_designs import random_design

EMBEDDING = 10 * 8
NORMS = 2 * 8
MATRICES = 4 * 8 * 8 + 2 * 8 * 16
LAYER = NORMS + MATRICES
HEAD = 8 + 10 * 8
"""The final norm and the matrix to the vocabulary."""
ALL = EMBEDDING + 2 * LAYER + HEAD
KEPT = 4 * (2 * 96 + 4 * 2 + 4 * 2)
"""Bytes of one layer, one microbatch of one sequence."""
HEAD_KEPT = 4 * (2 * (8 + 8) + 4)
"""Of the head: what enters it, its norm, and the norm's statistic."""
LOGITS = 4 * 10
WORKSPACE = 64 * 2**20

MODEL = {"layers": 2, "hidden": 8, "heads": 2, "ffn": 16, "vocab": 10, "norm": "rmsnorm"}
EXPERTS = {"count": 4, "active": 2, "ffn": 4}
AXES = {"dp": 1, "tp": 1, "cp": 1, "pp": 1, "ep": 1}
PLAIN = {"sequence": 4, "micro_batch": 1, "recompute": "none", "weight_sharding": "none", "sequence_parallel": False}


def design(model: dict[str, Any] | None = None, **workload: Any) -> DesignPoint:
    """Return the tiny model, changed by *model*, on as many accelerators as the mapping needs."""
    work = {**AXES, **PLAIN, **workload}
    work.setdefault("global_batch", work["dp"] * work["micro_batch"])
    npus = work["dp"] * work["tp"] * work["cp"] * work["pp"]
    dims = [{"topology": "switch", "npus": npus, "bandwidth": "100 GB/s", "latency": "1 us"}] if npus > 1 else []
    host = {"name": "host", "capacity": "1 TB", "bandwidth": "10 GB/s"}
    return load_design(
        {
            "model": model if model and "tables" in model else {**MODEL, **(model or {})},
            "compute": {"bf16": "100 TFLOP/s"},
            "memory": {"capacity": "1 GiB", "context": "0 B", "bandwidth": "1 TB/s", "tiers": [host]},
            "network": {"dims": dims},
            "workload": work,
        },
        plain=True,
    )


def needs(model: dict[str, Any] | None = None, **workload: Any) -> Footprint:
    return footprint(batch_of(design(model, **workload)))


def parts(model: dict[str, Any] | None = None, **workload: Any) -> dict[str, float]:
    return {name: float(value) for name, value in needs(model, **workload).parts.items()}


def states(model: dict[str, Any] | None = None, **workload: Any) -> tuple[float, float, float]:
    found = parts(model, **workload)
    return found["weights"], found["gradients"], found["optimizer"]


def moment(model: dict[str, Any] | None = None, **workload: Any) -> tuple[float, float, float]:
    found = parts(model, **workload)
    return found["activations"], found["loss"], found["buffers"]


# ---- the whole


def test_one_accelerator_holds_weights_states_activations_and_logits() -> None:
    found = needs()
    moving = 2 * KEPT + HEAD_KEPT + 8 * LOGITS  # at the loss
    assert dict(found.parts) == pytest.approx(
        {
            "weights": 2 * 1224,
            "gradients": 4 * 1224,
            "optimizer": 12 * 1224,
            "inputs": 4 * 16,  # a token id and its label, 8 bytes each
            "workspace": 67_108_864,
            "activations": 2 * 832 + 144,
            "loss": 320,
            "buffers": 0,
            "kv_cache": 0,
            "fragmentation": 0.03 * (1664 + 144 + 320),
            "cached": 0,
            "context": 0,
            "communicators": 0,
        }
    )
    static = 18 * 1224 + 64 + WORKSPACE
    assert found.static == pytest.approx(static)
    assert found.peak == pytest.approx(static + moving, abs=1e-6)
    assert found.total == pytest.approx(static + 1.03 * moving, abs=1e-6)
    assert found.offloaded == {}
    assert found.offload_traffic == 0
    assert isinstance(found.parts["weights"], float)


def test_a_footprint_without_offloading_has_no_traffic() -> None:
    found = Footprint(dict.fromkeys(COMPONENTS, 0.0) | {"weights": 3.0, **dict.fromkeys(PROCESS, 1.0)})
    assert (found.total, found.peak, found.offload_traffic) == (7, 3, 0)


def test_two_sequences_in_a_microbatch_keep_twice_the_activations() -> None:
    found = parts(micro_batch=2)
    assert found["activations"] == 2 * (2 * 832 + 144)
    assert found["loss"] == 2 * 320
    assert found["inputs"] == 2 * 64
    assert found["weights"] == 2 * 1224


def test_microbatches_that_follow_each_other_keep_what_one_does() -> None:
    assert moment(global_batch=8) == (1664 + 144, 320, 0)


# ---- weights, gradients, states


@pytest.mark.parametrize(
    ("precision", "weight", "gradient", "optimizer"),
    [
        ("fp32", 4, 4, 8),
        ("fp16", 2, 2, 12),
        ("bf16", 2, 4, 12),
        ("int4", 2, 4, 12),
        ("bf16_pure", 2, 2, 4),
    ],
)
def test_each_recipe_of_training_has_its_bytes(precision: str, weight: int, gradient: int, optimizer: int) -> None:
    assert states(precision=precision) == (weight * 1224, gradient * 1224, optimizer * 1224)


def test_weights_in_8_and_4_bits_are_beside_those_in_16() -> None:
    """A copy along rows and one along columns, of all matrices but the embedding and the head.

    In NVFP4 they have 1/2 + 1/16 bytes each.
    """
    assert states(precision="fp8") == (2 * 1224 + 2 * 2 * MATRICES, 2 * 1224, 12 * 1224)
    assert states(precision="fp4") == (2 * 1224 + 2 * 0.5625 * 2 * MATRICES, 2 * 1224, 12 * 1224)


def test_gradients_and_moments_have_the_formats_that_are_asked_for() -> None:
    """Where there is a master copy; fp32 and pure bf16 have no choice."""
    assert states(grad_reduce_in_fp32=False) == (2 * 1224, 2 * 1224, 12 * 1224)
    assert states(grad_reduce_in_fp32=True, precision="fp8")[1:] == (4 * 1224, 12 * 1224)
    assert states(moments="bf16") == (2 * 1224, 4 * 1224, (4 + 4) * 1224)
    assert states(grad_reduce_in_fp32=True, moments="fp32", precision="bf16_pure") == (2 * 1224, 2 * 1224, 4 * 1224)
    assert states(grad_reduce_in_fp32=False, moments="bf16", precision="fp32") == (4 * 1224, 4 * 1224, 8 * 1224)


@pytest.mark.parametrize(
    ("sharding", "weight", "gradient", "optimizer"),
    [
        ("none", 2, 4, 12),
        ("zero1", 2, 4, 12 / 4),
        ("zero2", 2, 4 / 4, 12 / 4),
        ("zero3", 4 / 4, 4 / 4, 8 / 4),  # the fp32 master copy is the weights
    ],
)
@pytest.mark.parametrize(("dp", "cp"), [(4, 1), (2, 2), (1, 4)])
def test_sharding_splits_states_over_four_replicas(
    sharding: str, weight: float, gradient: float, optimizer: float, dp: int, cp: int
) -> None:
    found = states(dp=dp, cp=cp, weight_sharding=sharding, reduce_every="microbatch")
    assert found == pytest.approx((weight * 1224, gradient * 1224, optimizer * 1224))


def test_gradients_that_are_reduced_once_a_step_stay_whole_until_then() -> None:
    assert states(dp=4, weight_sharding="zero2") == (2 * 1224, 4 * 1224, 12 / 4 * 1224)
    assert states(dp=4, weight_sharding="zero3") == (4 / 4 * 1224, 4 / 4 * 1224, 8 / 4 * 1224)


@pytest.mark.parametrize(("precision", "weight", "moments"), [("fp32", 4, 8), ("bf16_pure", 2, 4)])
def test_without_a_master_copy_the_weights_themselves_are_sharded(precision: str, weight: int, moments: int) -> None:
    found = states(precision=precision, dp=2, weight_sharding="zero3")
    assert found == pytest.approx((weight * 612, weight * 612, moments * 612))


def test_tensor_parallelism_splits_matrices_and_repeats_norms() -> None:
    split = 2 * (16 + 512 / 2) + 80 / 2 + 8 + 80 / 2
    assert states(tp=2) == (2 * split, 4 * split, 12 * split)


def test_what_tensor_parallelism_does_not_divide_is_padded() -> None:
    """Of 11 tokens of the vocabulary a device holds 6 rows; of one KV head, each device a copy."""
    model = {"vocab": 11, "kv_heads": 1}
    layer = 16 + (64 + 64) / 2 + 2 * 8 * 4 + 256 / 2
    assert parts(model, tp=2)["weights"] == 2 * (2 * layer + 6 * 8 + 8 + 6 * 8)


def test_sharding_divides_what_tensor_parallelism_leaves() -> None:
    split = 2 * (16 + 512 / 2) + 80 / 2 + 8 + 80 / 2
    assert states(tp=2, dp=2, weight_sharding="zero3") == (4 * split / 2, 4 * split / 2, 8 * split / 2)


def test_tied_embeddings_count_once_where_one_stage_holds_both() -> None:
    assert states({"tied_embeddings": True}) == (2 * (1224 - 80), 4 * (1224 - 80), 12 * (1224 - 80))
    assert parts({"tied_embeddings": True}, tp=2)["weights"] == 2 * (2 * (16 + 256) + 40 + 8)
    sharded = states({"tied_embeddings": True}, dp=2, weight_sharding="zero3")
    assert sharded == (4 * 1144 / 2, 4 * 1144 / 2, 8 * 1144 / 2)


def test_tied_embeddings_lie_on_the_first_and_on_the_last_stage() -> None:
    """Without more microbatches the last stage is the fuller: the final norm and the head's activations."""
    assert parts({"tied_embeddings": True}, pp=2)["weights"] == 2 * (528 + 8 + 80)
    assert parts({"layers": 4, "tied_embeddings": True}, pp=2, global_batch=8)["weights"] == 2 * (2 * 528 + 80)


# ---- experts

SPARSE = 16 + 256 + 8 * 4
"""Of a layer with experts: norms, attention and the router."""
ROUTED = 4 * 2 * 8 * 4
"""Its four experts: two matrices of 8 × 4 each."""


def test_experts_are_split_over_ep_and_their_states_over_the_replicas_left() -> None:
    others = 2 * SPARSE + 80 + 88
    experts = 2 * ROUTED / 2
    found = states({"experts": EXPERTS}, dp=4, ep=2, weight_sharding="zero1")
    assert found[:2] == (2 * (others + experts), 4 * (others + experts))
    assert found[2] == 12 * (others / 4 + experts / 2)


def test_context_parallel_ranks_are_replicas_of_experts_too() -> None:
    found = states({"experts": EXPERTS}, dp=2, cp=2, ep=2, weight_sharding="zero3")
    others, experts = (2 * SPARSE + 80 + 88) / 4, 2 * ROUTED / 2 / 2
    assert found == (4 * (others + experts), 4 * (others + experts), 8 * (others + experts))


@pytest.mark.parametrize(
    ("mapping", "ways"), [({}, 2), ({"etp": 1}, 1), ({"ep": 2}, 2), ({"ep": 4, "dp": 2}, 4), ({"ep": 2, "dp": 2}, 4)]
)
def test_tensor_parallelism_splits_experts_unless_it_may_not(mapping: dict[str, int], ways: int) -> None:
    """Over ep, and over as much of tp as ep leaves."""
    model = {"experts": {**EXPERTS, "shared_ffn": 6}}
    layer = 16 + 256 / 2 + 32 + ROUTED / ways + 2 * 8 * 6 / 2
    assert parts(model, tp=2, **mapping)["weights"] == 2 * (2 * layer + 40 + 8 + 40)


def test_layers_before_the_first_expert_are_dense() -> None:
    """On two stages the dense layer is with the embedding, the one with experts is with the head."""
    model = {"experts": {**EXPERTS, "dense_first": 1}}
    assert parts(model)["weights"] == 2 * (80 + LAYER + SPARSE + ROUTED + 88)
    assert parts(model, pp=2, loss="retained")["weights"] == 2 * (SPARSE + ROUTED + 88)


def test_a_layer_with_experts_keeps_what_is_sent_to_each() -> None:
    """A token passes two experts: 2 · 8 numbers sent, 2 · 4 inside, twice, and 2 choices.

    What experts return is added up: their shares multiply what is inside them.
    """
    layer = 4 * (2 * (8 * 8 + 2 + 16 + 8 + 8) + 8 + 8)
    for axes in ({}, {"dp": 4, "ep": 2}):
        assert moment({"experts": EXPERTS}, loss="retained", **axes) == (2 * layer + HEAD_KEPT, 16 * 40, 0)


def test_the_gradients_of_an_expert_layer_are_those_of_its_input_and_inner_activations() -> None:
    model = {"experts": {**EXPERTS, "ffn": 6}}
    layer = 4 * (2 * (8 * 8 + 2 + 16 + 12 + 12) + 8 + 8)
    assert moment(model, loss="chunked") == (2 * layer, 0, 2 * 4 * (8 + 12 + 12))


# ---- recommenders


RECOMMENDER = {
    "family": "recommender",
    "dense_features": 4,
    "tables": [6, 10],
    "embedding": 2,
    "bottom": [3, 2],
    "top": [3, 1],
}


def test_a_recommender_holds_its_share_of_the_tables_and_all_of_its_perceptrons() -> None:
    """Two tables of 8 rows on average; 3 interactions and the 2 dense outputs enter the top perceptron."""
    perceptrons = (4 + 1) * 3 + (3 + 1) * 2 + (5 + 1) * 3 + (3 + 1) * 1
    found = parts(RECOMMENDER, dp=2, micro_batch=4, sequence=1)
    assert perceptrons == 45
    assert found["weights"] == 2 * (45 + 2 * 8 * 2 / 2)
    per_sample = 3 + 2 + 2 * 2 + 5 + 3 + 1  # two layers, looked-up rows, interactions, two layers
    assert (found["activations"], found["loss"], found["kv_cache"]) == (4 * 2 * per_sample, 0, 0)
    assert found["buffers"] == 4 * 4 * 2  # the gradient of the features
    keys = 4 * 2 + 8 * 1  # of its 4 samples for 2 tables, and of all 8 samples for its own table
    assert found["inputs"] == 4 * 4 * 2 + 16 * keys


def test_a_recommender_has_no_logits() -> None:
    """One sample of one feature: hardly any gradient, so that a loss would show."""
    found = moment({**RECOMMENDER, "dense_features": 1}, sequence=1, micro_batch=1, loss="retained")
    assert found == (2 * 18, 0, 2 * 1)


def test_a_table_keeps_a_number_for_each_row_and_the_gradients_of_rows_that_are_looked_up() -> None:
    """One of two tables of 8 rows of 2 on average; 8 samples look up 6 (1 - (5/6)^8) + 10 (1 - (9/10)^8) in both."""
    found = parts(RECOMMENDER, dp=2, micro_batch=4, global_batch=8, sequence=1, weight_sharding="zero1")
    touched = (6 * (1 - (5 / 6) ** 8) + 10 * (1 - 0.9**8)) / 2
    assert found["weights"] == pytest.approx(2 * (45 + 8 * 2))
    assert found["gradients"] == pytest.approx(4 * (45 + 2 * touched))
    assert found["optimizer"] == pytest.approx(12 * 45 / 2 + 4 * 8)  # Adam's states, and Adagrad's for rows
    pooled = parts({**RECOMMENDER, "lookups": 3}, dp=2, micro_batch=4, global_batch=8, sequence=1)
    more = (6 * (1 - (5 / 6) ** 24) + 10 * (1 - 0.9**24)) / 2
    assert pooled["gradients"] == pytest.approx(4 * (45 + 2 * more))
    assert pooled["optimizer"] == pytest.approx(12 * 45 + 4 * 8)


def test_a_recommender_caches_nothing_when_it_serves() -> None:
    assert parts(RECOMMENDER, dp=2, micro_batch=4, sequence=1, task="prefill")["kv_cache"] == 0


# ---- pipeline stages

STAGED = {"layers": 4}
"""Two layers on each of two stages."""
FIRST_STAGE = 80 + 2 * 528
LAST_STAGE = 88 + 2 * 528


@pytest.mark.parametrize(
    ("schedule", "in_flight"),
    [("1f1b", 2), ("interleaved", 2.5)],  # stages between a forward and its backward; two virtual stages on each
)
def test_the_first_stage_is_the_fuller_where_more_is_in_flight_there(schedule: str, in_flight: float) -> None:
    found = parts(STAGED, pp=2, schedule=schedule, global_batch=8)
    assert found["weights"] == 2 * FIRST_STAGE
    assert found["activations"] == 2 * 832 * in_flight
    assert found["loss"] == 0
    assert found["buffers"] == 2 * 4 * (8 + 16 + 16)  # gradients of a layer
    assert found["fragmentation"] == pytest.approx(0.03 * (1664 * in_flight + 320))


@pytest.mark.parametrize(("schedule", "in_flight"), [("gpipe", 8), ("zero_bubble", 2)])
def test_the_last_stage_is_the_fuller_where_as_much_is_in_flight(schedule: str, in_flight: int) -> None:
    found = parts(STAGED, pp=2, schedule=schedule, global_batch=8)
    assert found["weights"] == 2 * LAST_STAGE
    assert found["gradients"] == 4 * LAST_STAGE
    assert found["optimizer"] == 12 * LAST_STAGE
    assert found["activations"] == 2 * 832 * in_flight + 144
    assert (found["loss"], found["buffers"]) == (320, 0)


def test_dualpipe_has_a_stage_and_its_mirror_image_on_each_device() -> None:
    """Both stages hold all four layers, the embedding and the head: two microbatches one way, one the other."""
    for stage in (0, 1):
        found = stage_footprints(design(STAGED, pp=2, schedule="dualpipe", global_batch=8))[stage].parts
        assert (found["weights"], found["gradients"]) == (2 * (80 + 4 * 528 + 88), 4 * (80 + 4 * 528 + 88))
        assert (found["activations"], found["loss"]) == ((2 + 1) * 2 * 832 + 144, 320)


def test_dualpipe_weighs_each_direction_by_its_microbatches() -> None:
    """Of four stages the first has a dense layer; it has 4 microbatches there, and 1 in the layer of experts."""
    model = {"layers": 4, "experts": {**EXPERTS, "dense_first": 1}}
    sparse = 4 * (2 * (8 * 8 + 2 + 16 + 8 + 8) + 8 + 8)
    first, second, *_ = stage_footprints(design(model, pp=4, schedule="dualpipe", global_batch=8, loss="retained"))
    assert first.parts["activations"] == 4 * 832 + 1 * sparse + 144
    assert second.parts["activations"] == (3 + 2) * sparse
    assert first.parts["weights"] == 2 * (80 + LAYER + SPARSE + ROUTED + 88)
    tied = stage_footprints(design({**STAGED, "tied_embeddings": True}, pp=2, schedule="dualpipe", global_batch=8))
    assert tied[0].parts["weights"] == 2 * (4 * 528 + 80 + 8)


def test_virtual_stages_of_different_layers_have_their_own_microbatches_in_flight() -> None:
    """Three layers are three virtual stages of one layer and one of none; 4 forwards run ahead, and one more.

    Of these five, three are in the first virtual stage of the first stage, two in its second. On the last stage, three
    run ahead: all of them are in its first virtual stage when both that were in the second are done.
    """
    found = stage_footprints(design({"layers": 3}, pp=2, schedule="interleaved", virtual_stages=2, global_batch=8))
    assert found[0].parts["activations"] == 832 * (3 + 2)
    assert found[1].parts["activations"] == 832 * 3 + 144
    whole = stage_footprints(design({"layers": 5}, pp=2, schedule="interleaved", virtual_stages=2, global_batch=8))
    assert whole[0].parts["activations"] == 832 * (2 * 4 + 1)  # when the next round has begun


def test_an_embedding_may_have_a_virtual_stage_of_its_own() -> None:
    """Two layers in four parts: the embedding, a layer, a layer, the head."""
    found = stage_footprints(design(pp=2, schedule="interleaved", virtual_stages=2, global_batch=8))
    assert [each.parts["weights"] for each in found] == [2 * (80 + 528), 2 * (528 + 88)]
    assert found[0].parts["activations"] == 832 * 2


def test_a_stage_has_the_weights_and_activations_of_its_stated_layers() -> None:
    """Five layers on three stages, one on the first and one on the last: the second has three, of two microbatches."""
    stated = {"first_stage_layers": 1, "last_stage_layers": 1}
    every = stage_footprints(design({"layers": 5}, pp=3, global_batch=8, **stated))
    assert [each.parts["weights"] for each in every] == [2 * (80 + 528), 2 * 3 * 528, 2 * (528 + 88)]
    assert [each.parts["activations"] for each in every[:2]] == [832 * 3, 3 * 832 * 2]
    found = needs({"layers": 5}, pp=3, global_batch=8, **stated)
    assert (found.stage, found.total) == (1, every[1].total)


def test_a_stage_of_a_head_alone_keeps_what_enters_the_head() -> None:
    found = stage_footprints(design({"layers": 4}, pp=3, global_batch=8, last_stage_layers=0))
    assert [each.parts["weights"] for each in found] == [2 * (80 + 2 * 528), 2 * 2 * 528, 2 * 88]
    assert (found[2].parts["activations"], found[2].parts["loss"]) == (144, 320)


def test_virtual_stages_keep_half_stages() -> None:
    """Two halves a stage: the first runs 2 + 2 halves ahead and one more."""
    found = parts(STAGED, pp=2, schedule="interleaved", virtual_stages=2, global_batch=8)
    assert found["activations"] == 2 * 832 * 5 / 2
    assert found["weights"] == 2 * FIRST_STAGE


@pytest.mark.parametrize(("stages", "virtual", "count"), [(4, 3, 8), (4, 2, 4), (2, 4, 6), (8, 2, 16), (1, 3, 2)])
def test_what_virtual_stages_keep_is_what_their_order_says(stages: int, virtual: int, count: int) -> None:
    """Sizes of virtual stages are powers of three, so that it matters which of them holds what."""
    sizes = [float(3**chunk) for chunk in range(virtual)]
    for stage in range(stages):
        held, most = 0.0, 0.0
        for task in schedules["interleaved"].order(stage, stages, count, virtual):
            held += sizes[task.chunk] if task.kind == "F" else -sizes[task.chunk]
            most = max(most, held)
        assert interleaved_bytes(stage, stages, count, virtual, *sizes) == most


@pytest.mark.parametrize("seed", range(3))
def test_the_fullest_of_all_stages_counts(seed: int) -> None:
    """Sixty random designs a seed, against a loop over all stages."""
    rng = Random(seed)
    designs = [random_design(rng, accelerators=rng.choice((8, 16, 32))) for _ in range(60)]
    for point in (point for point in designs if point.workload.pp > 1):
        every = [float(each.total) for each in stage_footprints(point)]
        found = footprint(batch_of(point))
        assert float(found.total) == pytest.approx(max(every), rel=1e-12), point.workload
        assert every[int(found.stage)] == pytest.approx(max(every), rel=1e-12)


def test_no_more_microbatches_are_kept_than_there_are() -> None:
    found = parts(STAGED, pp=2, global_batch=1)
    assert (found["weights"], found["activations"]) == (2 * LAST_STAGE, 2 * 832 + 144)


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "zero_bubble", "dualpipe"])
def test_one_stage_keeps_one_microbatch_and_one_copy(schedule: str) -> None:
    found = parts(schedule=schedule, global_batch=8)
    assert (found["weights"], found["activations"]) == (2 * 1224, 2 * 832 + 144)


def test_layers_are_dealt_out_in_order_and_the_last_stage_gets_the_rest() -> None:
    """Five layers on three stages are 2, 2 and 1."""
    model = {"layers": 5, "vocab": 1000}
    found = parts(model, pp=3, loss="retained", global_batch=8)
    assert found["weights"] == 2 * (528 + 8 + 8000)
    assert found["activations"] == 832 + 144  # the last stage has one microbatch in flight
    assert found["loss"] == 16 * 4000
    first = parts({"layers": 5}, pp=3, global_batch=8)
    assert first["weights"] == 2 * (2 * 528 + 80)
    assert (first["activations"], first["loss"]) == (2 * 832 * 3, 0)


def test_the_first_stages_take_the_layers_that_are_left() -> None:
    """Five layers on four stages are 2, 1, 1 and 1."""
    found = parts({"layers": 5, "vocab": 1000}, pp=4, loss="retained", global_batch=8)
    assert found["weights"] == 2 * (528 + 8 + 8000)
    assert found["activations"] == 832 + 144


MIXED = {"layers": 4, "experts": {**EXPERTS, "ffn": 40, "dense_first": 1}}
"""A layer of experts has 16 + 256 + 32 + 4 · 2 · 8 · 40 weights, much more than a dense one."""


def test_a_stage_in_the_middle_may_be_the_fullest() -> None:
    """The first stage has the dense layer; of the next two, with experts, the earlier has more in flight."""
    found = needs(MIXED, pp=4, global_batch=8)
    assert found.stage == 1
    assert found.parts["weights"] == 2 * (16 + 256 + 32 + 2560)
    every = stage_footprints(design(MIXED, pp=4, global_batch=8))
    assert [each.stage for each in every] == [0, 1, 2, 3]
    assert found.total == max(each.total for each in every)
    assert sum(each.parts["weights"] for each in every) == parts(MIXED)["weights"]


@pytest.mark.parametrize("dp", [1, 2])
def test_weights_over_all_ranks_are_the_models_times_replicas(dp: int) -> None:
    every = stage_footprints(design(MIXED, pp=4, dp=dp, ep=dp, global_batch=8 * dp))
    others, experts = 4 * (16 + 256) + 256 + 3 * 32 + 80 + 88, 3 * 2560
    assert dp * sum(each.parts["weights"] for each in every) == 2 * (dp * others + experts)


def test_the_first_stage_alone_has_the_embedding_and_the_last_alone_the_head() -> None:
    """With as much in flight on both, a vocabulary of 10 leaves 8 weights of the final norm between them."""
    found = parts(STAGED, pp=2, schedule="gpipe", global_batch=2)
    assert found["weights"] == 2 * (88 + 2 * 528)
    assert found["inputs"] == 64


def test_the_first_of_two_stages_that_are_as_full_counts() -> None:
    """With DualPipe, both hold the same."""
    assert needs(STAGED, pp=2, schedule="dualpipe", global_batch=8).stage == 0
    assert needs(STAGED, pp=2, schedule="gpipe", global_batch=8).stage == 1


NARROW = {"layers": 4, "ffn": 1}
"""A layer of 16 + 256 + 16 weights, whose gradients are smaller than what the head needs."""
NARROW_KEPT = 4 * (2 * (64 + 2) + 16)


def test_a_stage_without_the_head_computes_no_loss_and_no_gradient_of_it() -> None:
    found = moment(NARROW, pp=2, global_batch=8)
    assert found == (2 * NARROW_KEPT * 2, 0, 2 * 4 * (8 + 1 + 1))
    found = moment(NARROW, pp=2, global_batch=8, precision="bf16_pure")
    assert found == (2 * NARROW_KEPT * 2, 0, 2 * 4 * (8 + 1 + 1) + 2 * 64)


# ---- moments


def test_the_loss_is_the_worst_moment_of_an_eager_step() -> None:
    """Logits 8 bytes each (320) beat their gradient (160) with the stream's (64), and a layer's gradients (320)."""
    assert moment() == (1664 + 144, 320, 0)


def test_the_gradient_of_a_large_head_is_the_worst_moment_where_nothing_adds_to_it_in_place() -> None:
    """Without a master copy the head's weight gradient, 1000 × 8 in 2 bytes, is apart from what it is added to."""
    found = moment({"vocab": 1000}, precision="bf16_pure", loss="chunked")
    assert found == (1664 + 144, 0.25 * 4000, 2 * 32 + 2 * 8000)


def test_the_gradients_of_a_layer_are_the_worst_moment_where_the_loss_is_small() -> None:
    """Its input and both wide activations: 4 tokens of 8 + 16 + 16 numbers."""
    assert moment(loss="chunked") == (1664, 0, 320)


def test_a_layer_adds_its_largest_weight_gradient_where_no_master_copy_is_kept() -> None:
    assert moment(loss="chunked", precision="bf16_pure") == (1664, 0, 320 + 2 * 128)
    assert moment(loss="chunked", precision="bf16_pure", tp=2)[2] == 2 * 4 * (8 + 8 + 8) + 2 * 64


@pytest.mark.parametrize(
    ("loss", "at_loss"), [("chunked", 0.5), ("fused", 2), ("half", 6), ("eager", 8), ("retained", 16)]
)
def test_each_way_to_compute_the_loss_has_its_bytes_per_logit(loss: str, at_loss: float) -> None:
    stream = 2 * 32 * (loss == "fused")  # as much at the gradient of the logits, and that of the stream
    assert moment({"vocab": 4000}, loss=loss) == (1664 + 144, at_loss * 16_000, stream)


@pytest.mark.parametrize(
    ("loss", "at_gradient"), [("chunked", 0.25), ("fused", 2), ("half", 2), ("eager", 4), ("retained", 8)]
)
def test_each_way_to_compute_the_loss_has_its_bytes_per_gradient_of_a_logit(loss: str, at_gradient: float) -> None:
    """One token, so that the head's weight gradient is larger than its logits."""
    found = moment({"vocab": 1000}, loss=loss, sequence=1, precision="bf16_pure")
    assert found[1:] == (at_gradient * 1000, 2 * 8 + 2 * 8000)


def test_a_loss_that_is_not_chosen_is_fused_by_a_compiler_and_eager_otherwise() -> None:
    ways = LogitBytes(1, 2, 3, 4, 5)
    names = ("chunked", "fused", "half", "eager", "retained")
    assert [ways.of_loss(design(loss=name).workload) for name in names] == [1, 2, 3, 4, 5]
    assert [ways.of_loss(design(execution=name).workload) for name in ("fused", "eager", "compiled")] == [4, 4, 2]
    assert ways.of_loss(design(execution="compiled", loss="eager").workload) == 4


def test_the_logits_are_split_over_tensor_and_context_parallel_ranks() -> None:
    assert parts(tp=2)["loss"] == 8 * 4 * 5
    assert parts(cp=2)["loss"] == 8 * 2 * 10


# ---- recomputing


def test_full_recomputation_keeps_each_layers_input_and_one_whole_layer() -> None:
    """While a layer runs backward, all that it would have kept beside its input is there again."""
    assert moment(recompute="full") == (2 * 64 + (832 - 64), 0, 320)


def test_full_recomputation_keeps_the_inputs_of_all_microbatches_in_flight() -> None:
    found = moment({"layers": 8}, pp=2, recompute="full", global_batch=8)
    assert found == (4 * 64 * 2 + (832 - 64), 0, 320)


def test_the_largest_kind_of_layer_is_the_one_that_counts_as_recomputed() -> None:
    """A dense layer of ffn 100 keeps 208 more numbers a token than one of experts."""
    model = {"ffn": 100, "experts": {**EXPERTS, "dense_first": 1}}
    dense = 4 * (2 * (64 + 200) + 16)
    assert moment(model, recompute="full", loss="chunked") == (2 * 64 + dense - 64, 0, 2 * 4 * (8 + 200))


def test_selective_recomputation_drops_the_scores_alone() -> None:
    """Unfused attention keeps 5 bytes for each of 2 · 4 · 4 scores, instead of 4 for each of 2 · 4 rows."""
    scores = 5 * 2 * 4 * 4
    assert moment(attention="unfused", loss="retained")[0] == 2 * (832 - 32 + scores) + 144
    assert moment(attention="unfused", recompute="selective", loss="retained")[0] == 2 * (832 - 32) + 144


def test_recomputed_scores_are_there_while_a_layer_runs_backward() -> None:
    scores = 5 * 2 * 4 * 4
    assert moment(attention="unfused", recompute="selective", loss="chunked") == (2 * (832 - 32) + scores, 0, 320)


def test_the_first_layers_of_each_virtual_stage_recompute() -> None:
    """Of four layers one, or one of each half; the others keep everything."""
    some = {"recompute": "full", "loss": "retained", "recompute_num_layers": 1}
    assert moment({**STAGED, "vocab": 1000}, **some)[0] == 64 + 3 * 832 + 144
    assert moment({**STAGED, "vocab": 1000}, **{**some, "recompute_num_layers": 0})[0] == 4 * 832 + 144
    assert moment({**STAGED, "vocab": 1000}, **{**some, "recompute_num_layers": 9})[0] == 4 * 64 + 144
    staged = stage_footprints(design({"layers": 4}, pp=2, global_batch=8, **some))
    assert staged[0].parts["activations"] == 2 * (64 + 832)  # a layer's worth is free when the other runs again
    halves = {"pp": 2, "schedule": "interleaved", "virtual_stages": 2, "global_batch": 8}
    staged = stage_footprints(design({"layers": 8}, **halves, **some))
    assert staged[0].parts["activations"] == 5 * (64 + 832)
    large = {"layers": 3, "ffn": 100, "experts": {**EXPERTS, "dense_first": 1}}
    dense, sparse = 4 * (2 * (64 + 200) + 16), 4 * (2 * (8 * 8 + 2 + 16 + 8 + 8) + 8 + 8)
    found = moment(large, recompute="full", recompute_num_layers=2, loss="chunked")
    assert found[0] == 2 * 64 + sparse + (dense - 64) - sparse


@pytest.mark.parametrize("attention", ["fused", "unfused"])
@pytest.mark.parametrize("model", [{}, {"gated": True}, {"experts": EXPERTS}])
def test_the_more_is_recomputed_the_less_is_kept(model: dict[str, Any], attention: str) -> None:
    ways = ("none", "selective", "alternate", "full")
    found = [needs({"layers": 8, **model}, recompute=way, attention=attention, sequence=64).total for way in ways]
    assert sorted(found, reverse=True) == found


def test_alternate_recomputation_keeps_the_input_attention_and_every_second_gemm() -> None:
    """Of q, k, v, out, up and down, every second is k, out and down: with x and attention 5 · 8 numbers a token."""
    found = moment({"vocab": 1000}, recompute="alternate", loss="retained")
    assert found == (2 * (4 * 40 * 2) + 144, 16 * 4000, 0)


def test_the_head_is_never_recomputed() -> None:
    assert moment({"vocab": 1000}, recompute="full", loss="retained")[0] == 2 * 64 + 144


# ---- buffers


def test_sharded_weights_are_gathered_for_two_layers_and_one_gradient() -> None:
    """528 weights in 2 bytes: the layer in use, the next one, and a gradient."""
    assert moment(dp=2, weight_sharding="zero3") == (1664 + 144, 320, 3 * 2 * 528)
    assert moment(cp=2, weight_sharding="zero3")[2] == 3 * 2 * 528


def test_the_largest_block_may_be_the_head() -> None:
    assert moment({"vocab": 1000}, dp=2, weight_sharding="zero3")[2] == 3 * 2 * (8 + 8000)


def test_weights_without_replicas_are_gathered_from_nobody() -> None:
    assert moment(weight_sharding="zero3") == (1664 + 144, 320, 0)


@pytest.mark.parametrize("sharding", ["none", "zero1", "zero2"])
def test_only_sharded_weights_need_a_buffer(sharding: str) -> None:
    assert moment(dp=2, weight_sharding=sharding)[2] == 0


def test_a_gathered_layer_has_its_gradient_in_the_buffer_already() -> None:
    found = moment(dp=2, weight_sharding="zero3", precision="bf16_pure", loss="chunked")
    assert found == (1664, 0, 3 * 2 * 528 + 320)


def test_gathered_weights_are_there_at_the_gradient_of_the_head() -> None:
    """A sixteenth of the gradients of 40 logits, and the gradient of the stream, beside the gathered weights."""
    found = moment({"ffn": 1}, dp=2, weight_sharding="zero3", loss="chunked")
    assert found == (2 * NARROW_KEPT + 144, 0.25 * 40, 3 * 2 * 288 + 2 * 32)


def test_gathered_weights_are_split_over_tensor_parallel_ranks() -> None:
    assert moment(dp=2, tp=2, weight_sharding="zero3")[2] == 3 * 2 * (16 + 256)


def test_sequence_parallelism_splits_the_stream_and_gathers_one_tensor_of_it() -> None:
    """On each of two ranks: half of five streams, half of the heads and of ffn; 4 × 8 numbers are gathered."""
    layer = 2 * 4 * (4 * 4 + 4 * 4 + 8 + 8) + 2 * 4 * 2 + 4 * 4
    head = 2 * 2 * 16 + 4 * 2
    assert moment(tp=2, sequence_parallel=True) == (2 * layer + head, 8 * 20, 2 * 32)
    assert moment(sequence_parallel=True)[2] == 0
    assert moment(tp=2)[2] == 0
    assert moment({"final_norm": False}, tp=2, sequence_parallel=True)[2] == 2 * 32


def test_a_model_without_a_final_norm_can_be_sequence_parallel() -> None:
    assert parts({"final_norm": False}, tp=2, sequence_parallel=True)["weights"] == 2 * (2 * (16 + 256) + 40 + 40)


def test_buffers_of_weights_and_of_the_stream_add_up() -> None:
    found = moment(tp=2, dp=2, sequence_parallel=True, weight_sharding="zero3")
    assert found[2] == 3 * 2 * (16 + 256) + 2 * 32


# ---- inputs


def test_inputs_are_the_tokens_of_a_rank() -> None:
    assert parts(cp=2)["inputs"] == 2 * 16
    assert parts(tp=2)["inputs"] == 4 * 16
    assert parts(dp=2, micro_batch=3)["inputs"] == 3 * 4 * 16


def test_pictures_are_patches_in_the_activations_format() -> None:
    """Pictures of 4 × 4 in patches of 2 × 2 and 3 channels: 4 patches of 12 numbers, and a class token."""
    model = {"family": "vision", "image": {"size": 4, "patch": 2}}
    assert parts(model, sequence=5)["inputs"] == 5 * 12 * 2
    assert parts(model, sequence=5, precision="fp32")["inputs"] == 5 * 12 * 4


# ---- serving


ONE_NORM = {"parallel_block": True, "norms_per_layer": 1}
"""Attention and the feed-forward network read the same norm of a layer."""


@pytest.mark.parametrize(
    ("precision", "matrix", "wide"),
    [
        ("fp32", 4, 4),
        ("fp16", 2, 2),
        ("bf16", 2, 2),
        ("bf16_pure", 2, 2),
        ("fp8", 1, 2),
        ("fp4", 0.5625, 2),
        ("int4", 0.5625, 2),
    ],
)
def test_served_weights_are_in_their_format_but_for_norms_embedding_and_head(
    precision: str, matrix: float, wide: int
) -> None:
    found = parts(ONE_NORM, task="prefill", precision=precision)
    assert found["weights"] == matrix * 2 * 512 + wide * (2 * 8 + 80 + 88)
    assert (found["gradients"], found["optimizer"], found["buffers"]) == (0, 0, 0)


@pytest.mark.parametrize(("precision", "attention", "expert"), [("fp8", 1, 1), ("fp4", 2, 0.5625), ("int4", 2, 0.5625)])
def test_of_a_model_with_experts_four_bits_cover_the_experts_alone(
    precision: str, attention: int, expert: float
) -> None:
    layer = 2 * 8 + attention * 256 + 2 * 32 + expert * ROUTED
    found = parts({**ONE_NORM, "experts": EXPERTS}, task="decode", precision=precision)
    assert found["weights"] == 2 * layer + 2 * (80 + 88)


def test_serving_splits_experts_over_tensor_parallel_ranks_too() -> None:
    found = parts({"experts": EXPERTS}, task="decode", tp=2)
    assert found["weights"] == 2 * (2 * (16 + 128 + 32 + ROUTED / 2) + 40 + 48)


def test_a_tied_table_is_served_once_in_sixteen_bits() -> None:
    found = parts({**ONE_NORM, "tied_embeddings": True}, task="decode", precision="fp8")
    assert found["weights"] == 2 * 512 + 2 * (2 * 8 + 80 + 8)


def test_served_weights_can_be_sharded_over_replicas() -> None:
    assert parts(task="prefill", dp=2, weight_sharding="zero3")["weights"] == 2 * 1224 / 2
    assert parts(task="prefill", dp=2, weight_sharding="zero2")["weights"] == 2 * 1224
    tied = parts({"tied_embeddings": True}, task="prefill", dp=2, weight_sharding="zero3")
    assert tied["weights"] == 2 * 1144 / 2


def test_a_prefill_holds_weights_cache_logits_and_one_layers_activations() -> None:
    found = needs(task="prefill")
    assert dict(found.parts) == pytest.approx(
        {
            "weights": 2 * 1224,
            "gradients": 0,
            "optimizer": 0,
            "inputs": 64,
            "activations": 832,
            "loss": 2 * 10,  # of the last token
            "buffers": 0,
            "kv_cache": 2 * 4 * 16 * 2,  # layers, tokens, keys and values of 8, bytes
            "workspace": WORKSPACE,
            "fragmentation": 0.03 * (832 + 20),
            "cached": 0,
            "context": 0,
            "communicators": 0,
        }
    )


def test_the_widest_layer_passes_when_serving() -> None:
    """A dense layer of ffn 100 keeps more than one of experts."""
    model = {"ffn": 100, "experts": {**EXPERTS, "dense_first": 1}}
    assert parts(model, task="prefill")["activations"] == 4 * (2 * (64 + 200) + 16)
    assert parts({"experts": {**EXPERTS, "dense_first": 1, "ffn": 100}}, task="prefill")["activations"] == 4 * (
        2 * (64 + 2 + 16 + 200 + 200) + 16
    )


def test_a_decoded_token_has_one_row_of_logits_and_one_input() -> None:
    found = parts(task="decode")
    assert (found["loss"], found["inputs"]) == (2 * 10, 16)
    assert found["activations"] == 2 * (96 - 16) + 2 * 4 + 2 * 4  # keys and values are in the cache


def test_an_encoder_gives_all_its_tokens_to_the_head_and_caches_nothing() -> None:
    found = parts({"family": "encoder"}, task="prefill")
    assert (found["loss"], found["kv_cache"]) == (2 * 40, 0)


def test_a_prompt_that_is_split_over_ranks_has_its_last_token_on_one() -> None:
    assert parts(task="prefill", cp=2)["loss"] == 2 * 10
    assert parts(task="prefill", micro_batch=3)["loss"] == 2 * 30


def test_serving_holds_one_copy_of_the_weights_whatever_the_schedule() -> None:
    found = parts(STAGED, task="decode", pp=2, schedule="dualpipe")
    assert found["weights"] == 2 * (2 * 528 + 88)


def test_the_last_stage_serves_the_logits() -> None:
    found = parts(task="prefill", pp=2)
    assert (found["weights"], found["loss"], found["kv_cache"]) == (2 * (528 + 88), 20, 128)


def test_a_first_stage_with_more_layers_serves_no_logits() -> None:
    found = parts({"layers": 3}, task="prefill", pp=2)
    assert (found["weights"], found["loss"], found["kv_cache"]) == (2 * (2 * 528 + 80), 0, 256)


def test_serving_keeps_one_microbatch_whatever_the_schedule() -> None:
    found = parts(STAGED, task="prefill", pp=2, schedule="gpipe", global_batch=8)
    assert found["activations"] == 832


# ---- KV cache


def cache(model: dict[str, Any] | None = None, **workload: Any) -> float:
    return parts(model, **{"task": "decode", **workload})["kv_cache"]


def test_the_cache_holds_keys_and_values_of_every_token_of_every_sequence() -> None:
    """2 layers of 2 · 2 heads · 4 numbers in 2 bytes."""
    assert cache() == 2 * 4 * 16 * 2
    assert cache(sequence=100) == 2 * 100 * 16 * 2
    assert cache(global_batch=6, micro_batch=2) == 6 * 256
    assert cache(dp=2, global_batch=6) == 3 * 256


def test_replicas_share_sequences_and_the_fullest_counts() -> None:
    assert cache(dp=2, global_batch=5) == 3 * 256


@pytest.mark.parametrize(("precision", "width"), [("fp32", 4), ("bf16", 2), ("int4", 2), ("fp8", 1), ("fp4", 1)])
def test_the_cache_has_a_format_of_its_own(precision: str, width: int) -> None:
    assert cache(precision=precision) == width * 2 * 4 * 16


def test_kv_heads_are_split_over_tensor_parallel_ranks_and_rounded_up() -> None:
    grouped = {"heads": 6, "kv_heads": 3, "head_dim": 4}
    assert cache(grouped) == 2 * 4 * 2 * 3 * 4 * 2
    assert cache(grouped, tp=2) == 2 * 4 * 2 * 2 * 4 * 2
    assert cache(grouped, tp=6) == 2 * 4 * 2 * 1 * 4 * 2


def test_mla_caches_one_compressed_vector_that_every_rank_reads() -> None:
    latent = {"mla": {"kv_lora_rank": 6, "qk_rope_head_dim": 2, "v_head_dim": 4}}
    assert cache(latent) == cache(latent, tp=2) == 2 * 4 * (6 + 2) * 2


def test_a_sliding_window_caches_its_last_tokens() -> None:
    per_token = 2 * 16 * 2
    assert cache({"window": 3}, sequence=8) == per_token * 3
    assert cache({"window": 20}, sequence=8) == per_token * 8
    assert cache({"window": 2, "full_attention_every": 4}, sequence=8) == per_token * (8 / 4 + 2 * 3 / 4)
    assert cache({"window": 2, "full_attention_every": 1}, sequence=8) == per_token * 8


def test_context_parallel_ranks_cache_their_own_tokens() -> None:
    assert cache(cp=2, sequence=8) == 2 * 4 * 16 * 2
    assert cache({"window": 3}, cp=2, sequence=8) == 2 * 3 * 16 * 2


def test_a_decoder_caches_what_it_reads_of_an_encoder_which_caches_nothing() -> None:
    model = {"family": "encoder_decoder", "encoder_layers": 3}
    assert cache(model) == 2 * (4 + 4) * 16 * 2
    assert cache(model, cp=2, sequence=8) == 2 * (4 + 4) * 16 * 2


def test_a_stage_caches_its_own_layers() -> None:
    assert cache(STAGED, pp=2) == 2 * 4 * 16 * 2
    mixed = {"layers": 3, "experts": {**EXPERTS, "dense_first": 1}}
    assert cache(mixed) == 3 * 4 * 16 * 2


# ---- offloading


DEEP = {"layers": 5}
DEEP_WEIGHTS = 168 + 5 * 528
AWAY = {"weights": 2 * (DEEP_WEIGHTS - 2 * 528), "optimizer": 12 * DEEP_WEIGHTS, "activations": 3 * 832}
"""All but two layers, which are on the device: the one in use and the next."""


def test_what_is_offloaded_leaves_the_device_and_travels_for_every_microbatch() -> None:
    """Three microbatches: weights come in for both passes of each, activations go and come back, states once a step."""
    found = needs(DEEP, offload=["weights", "optimizer", "activations"], global_batch=3)
    assert dict(found.offloaded) == AWAY
    assert found.offload_traffic == 6 * AWAY["weights"] + 2 * AWAY["optimizer"] + 6 * AWAY["activations"]
    assert [found.parts[name] for name in ("weights", "optimizer", "activations")] == [4 * 528, 0, 2 * 832 + 144]
    assert (found.parts["gradients"], found.parts["loss"]) == (4 * DEEP_WEIGHTS, 320)
    assert found.parts["fragmentation"] == pytest.approx(0.03 * (2 * 832 + 144 + 320))


@pytest.mark.parametrize(("what", "trips"), [("weights", 6), ("optimizer", 2), ("activations", 6)])
def test_each_thing_can_be_offloaded_by_itself(what: str, trips: int) -> None:
    found, here = needs(DEEP, offload=[what], global_batch=3), needs(DEEP, global_batch=3)
    assert dict(found.offloaded) == {what: AWAY[what]}
    assert found.offload_traffic == pytest.approx(trips * AWAY[what])
    assert found.peak == pytest.approx(here.peak - AWAY[what])


def test_activations_travel_once_for_each_microbatch_however_many_are_in_flight() -> None:
    """Eight layers on two stages, of which the first has two microbatches in flight; 2 · 832 bytes are in use."""
    found = stage_footprints(design({"layers": 8}, pp=2, global_batch=8, offload=["activations"]))[0]
    assert found.offloaded["activations"] == 2 * 4 * 832 - 2 * 832
    assert found.offload_traffic == 2 * 8 * (4 * 832) * (8 - 2) / 8


def test_some_layers_can_be_offloaded() -> None:
    found = needs(DEEP, offload=["activations"], offload_num_layers=4, global_batch=3)
    assert found.offloaded["activations"] == pytest.approx((4 - 2) * 832)
    assert needs(DEEP, offload=["activations"], offload_num_layers=9).offloaded["activations"] == 3 * 832


@pytest.mark.parametrize("task", ["prefill", "decode"])
def test_served_weights_come_in_once_for_each_microbatch(task: str) -> None:
    found = needs(DEEP, task=task, offload=["weights", "activations"], global_batch=3)
    assert found.offload_traffic == 3 * AWAY["weights"]
    assert found.offloaded["activations"] == 0


def test_gathered_weights_leave_the_device_altogether() -> None:
    found = needs(DEEP, dp=2, weight_sharding="zero3", offload=["weights"])
    assert (found.parts["weights"], found.offloaded["weights"]) == (0, 4 * DEEP_WEIGHTS / 2)


def tiered(*capacities: float, **workload: Any) -> Footprint:
    point = design(DEEP, **workload)
    tiers = tuple(
        MemoryTier(name=f"tier{place}", capacity_bytes=size, bandwidth_bytes_per_s=1)
        for place, size in enumerate(capacities)
    )
    return footprint(batch_of(replace(point, memory=replace(point.memory, tiers=tiers))))


def test_the_nearest_tier_is_filled_first_with_what_travels_most() -> None:
    """3,504 bytes of weights, which travel twice, then 2,496 of activations (twice), then 33,696 of states (twice)."""
    every = {"offload": ["optimizer", "activations", "weights"]}
    assert tiered(1e9, 1e9, **every).tier_traffic == (2 * 3504 + 2 * 2496 + 2 * 33_696, 0)
    assert tiered(3000, 1e9, **every).tier_traffic == (2 * 3000, 2 * 504 + 2 * 2496 + 2 * 33_696)
    assert list(tiered(4000, 2000, 1e9, **every).tier_traffic) == pytest.approx([2 * 4000, 2 * 2000, 2 * 33_696])
    assert tiered(10, **every).tier_traffic == (2 * 3504 + 2 * 2496 + 2 * 33_696,)


# ---- batches


def test_a_batch_of_one_structure_has_an_array_for_each_component() -> None:
    """One stage at its loss, two stages with the first the fuller, and two microbatches on one stage."""
    changes = [{"workload.pp": 1}, {"workload.pp": 2, "workload.global_batch": 8}, {"workload.pp": 1}]
    found = footprint(batch_of_changes(design(STAGED), changes))
    assert np.asarray(found.parts["weights"]).tolist() == [2 * (80 + 88 + 4 * 528), 2 * FIRST_STAGE, 2 * (168 + 2112)]
    assert np.asarray(found.parts["activations"]).tolist() == [4 * 832 + 144, 2 * 2 * 832, 4 * 832 + 144]
    assert np.asarray(found.parts["loss"]).tolist() == [320, 0, 320]


def test_what_a_batch_offloads_leaves_every_design() -> None:
    point = design({"layers": 6}, offload=["weights"])
    found = footprint(batch_of_changes(point, [{"workload.pp": 1}, {"workload.pp": 2, "workload.global_batch": 1}]))
    assert np.asarray(found.parts["weights"]).tolist() == [4 * 528, 4 * 528]
    assert np.asarray(found.offloaded["weights"]).tolist() == [2 * (168 + 4 * 528), 2 * (528 + 88)]
    assert np.asarray(found.offload_traffic).tolist() == [4 * (168 + 4 * 528), 4 * (528 + 88)]
    assert np.asarray(found.stage).tolist() == [0, 1]


def test_each_design_of_a_batch_has_its_own_worst_moment() -> None:
    """Short sequences are worst at the head's gradient, long ones in a layer."""
    changes = [{"workload.sequence": 4}, {"workload.sequence": 4000}]
    point = design({"vocab": 50}, precision="bf16_pure", loss="chunked")
    found = footprint(batch_of_changes(point, changes))
    assert np.asarray(found.parts["loss"]).tolist() == [0.25 * 200, 0]
    assert np.asarray(found.parts["buffers"]).tolist() == [2 * 32 + 2 * 400, 2 * 4000 * 40 + 2 * 128]
    assert np.asarray(found.parts["activations"]).tolist() == [1664 + 144, 2 * 832_000]


def test_a_batch_may_mix_structures() -> None:
    """Each format and each choice of what to offload has a plan of its own; the rows come back in their order.

    Without a master copy fp32 is worst in a layer, whose weight gradient is apart: no head is kept then.
    """
    changes: list[dict[str, Any]] = [
        {"workload.precision": "bf16", "workload.offload": ()},
        {"workload.precision": "fp32", "workload.offload": ("optimizer",)},
        {"workload.precision": "bf16", "workload.offload": ("weights", "activations")},
        {"workload.precision": "bf16", "workload.offload": ()},
    ]
    found = footprint(batch_of_changes(design(), changes))
    assert set(found.parts) == set(COMPONENTS)
    assert np.asarray(found.parts["weights"]).tolist() == [2448, 4896, 4 * 528, 2448]
    assert np.asarray(found.parts["optimizer"]).tolist() == [14_688, 0, 14_688, 14_688]
    assert np.asarray(found.parts["activations"]).tolist() == [1808, 2 * (4 * 4 * 96 + 64), 1808, 1808]
    assert {name: np.asarray(value).tolist() for name, value in found.offloaded.items()} == {
        "activations": [0, 0, 0, 0],
        "optimizer": [0, 8 * 1224, 0, 0],
        "weights": [0, 0, 2 * 168, 0],
    }
    assert np.asarray(found.offload_traffic).tolist() == [0, 2 * 8 * 1224, 2 * 2 * 168, 0]
    alone = 18 * 1224 + 64 + WORKSPACE + 1.03 * (1808 + 320)
    assert np.asarray(found.total)[[0, 3]].tolist() == pytest.approx([alone, alone])


@pytest.mark.parametrize(("model", "first"), [("jamba-1.5-mini", None), ("deepseek-v4-flash", 0)])
def test_the_fullest_stage_of_a_pattern_counts_wherever_it_is(model: str, first: int | None) -> None:
    """One layer in eight attends, or kinds take turns behind a stage that has the embedding alone."""
    changes = {"pp": 16, "tp": 1, "cp": 1, "dp": 1, "ep": 1, "schedule": "gpipe", "global_batch": 64, "micro_batch": 1}
    point = load_design(
        f"{model}@dgx-h100:16", {**changes, "first_stage_layers": first, "attention": "unfused"}, plain=True
    )
    every = [float(each.total) for each in stage_footprints(point)]
    assert float(footprint(batch_of(point)).total) == max(every)
    assert every.index(max(every)) > 1
