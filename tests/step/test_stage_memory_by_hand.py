"""What a stage keeps where little is said of it elsewhere: compiled steps, adapters, programs, several heads.

Every number follows from the shapes of the tiny model of `tests.step.test_memory_by_hand`: 528 weights and 832 bytes of
activations in each of 2 layers, 80 weights of the embedding, 88 of the head, whose activations are 144 bytes. A
sequence has 4 tokens, so that 4 x 10 logits are made.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cosmic.base.numeric import Numeric
from cosmic.design.design_batch import Batch, batch_of
from cosmic.design.program_model import (
    ProgramAnnotation,
    ProgramDim,
    ProgramModel,
    ProgramOperator,
    ProgramPart,
    ProgramTensor,
    TensorRole,
)
from cosmic.step.communication import list_collectives
from cosmic.step.device_memory import footprint, stage_footprints
from cosmic.step.stage_memory import _worst_moment
from tests.step import tiny
from tests.step.test_memory_by_hand import design, moment, needs, parts

MIXED = {"ffn": 100, "experts": {"count": 4, "active": 2, "ffn": 4, "dense_first": 1}}
DENSE_KEPT = 4 * (2 * (64 + 2 * 100) + 16)
"""Bytes of a dense layer: 8 tensors of 8 numbers of each token, 2 of 100, and statistics of 2 norms and 2 heads."""
SPARSE_KEPT = 4 * (2 * (64 + 2 + 16 + 2 * 8) + 16)
"""Of one of experts: 2 choices, 2 copies of 8, and 2 tensors of 2 x 4."""
SIZES = {"batch": 2, "features": 8, "inner": 16, "classes": 4}

# ---- compiled steps


def test_a_compiled_backward_pass_ends_with_all_gradients_of_weights() -> None:
    """In its first layer, those of 1224 - 80 weights wait in 2 bytes, beside a layer's activations and gradients."""
    expected = (832, 0, 2 * (1224 - 80) + 320)
    assert moment(execution="compiled") == moment(execution="compiled", dp=2) == expected
    assert moment(execution="compiled", recompute="full") == expected  # the layer is whole again


def test_an_embedding_of_many_words_has_its_gradient_summed_in_fp32() -> None:
    """2 bytes of all weights' gradients, and 4 more of the table's; every activation is free by then."""
    whole = 2 * 528 + 8 + 2 * 8 * 1000
    assert moment({"vocab": 1000}, execution="compiled") == (0, 0, 2 * whole + 4 * 8 * 1000)


def test_gathered_activations_are_there_when_a_compiled_pass_ends() -> None:
    """Two ranks share a stream of 4 x 8 numbers, and gather it; of 632 weights of a rank 40 are the embedding's.

    A layer keeps 416 bytes (`test_sequence_parallelism_splits_the_stream_and_gathers_one_tensor_of_it`).
    """
    given: dict[str, Any] = {"tp": 2, "sequence_parallel": True, "execution": "compiled"}
    assert moment(**given) == (416, 0, 64 + 2 * (632 - 40) + 2 * (16 + 32 + 32))
    assert moment({"vocab": 1000}, **given) == (0, 0, 64 + 2 * (544 + 8 + 2 * 4000) + 4 * 4000)


def test_microbatches_that_wait_are_there_when_a_compiled_pass_ends() -> None:
    """Two of them on the first of two stages with 2 layers each: one waits, of the other one layer is left."""
    first, _ = stage_footprints(design({"layers": 4}, pp=2, global_batch=8, execution="compiled"))
    found = first.parts
    assert (found["activations"], found["loss"], found["buffers"]) == (1664 + 832, 0, 2 * 2 * 528 + 320)


def test_the_gradient_of_a_weight_is_apart_in_a_compiled_pass() -> None:
    """Of 1000 words, without an embedding on the stage: 8000 weights of the head in 2 bytes, beside the stream's."""
    _, last = stage_footprints(design({"layers": 2, "vocab": 1000}, pp=2, execution="compiled", set_to_none=False))
    found = last.parts
    assert found["activations"] == 832 + 144
    assert (found["loss"], found["buffers"]) == (2 * 4000, 2 * 32 + 2 * 8000)


def test_sharded_weights_of_a_compiled_step_have_no_graph_of_all_layers() -> None:
    """Each layer is a graph: 3 x 528 gathered weights and gradients in 2 bytes, and a layer's gradients.

    Of these there is a copy in 4 bytes, in which they are reduced.
    """
    given: dict[str, Any] = {"execution": "compiled", "dp": 2, "weight_sharding": "zero3", "set_to_none": False}
    assert moment(**given) == (1664, 0, 3 * 2 * 528 + 4 * 528 + 320)


def test_a_compiled_pass_over_adapters_ends_with_their_gradients_alone() -> None:
    """Of rank 8 a layer has 256 + 128 + 192 + 192 trained weights, whatever the replicas; the table of 50 words none.

    It keeps for each token x, its norm, queries, keys, values, attention, the stream and its norm, 8 each, 16 before
    and after the activation function, and 8 inside each of the four adapters: 128 numbers.
    """
    found = moment({"vocab": 50}, execution="compiled", dp=2, lora_rank=8)
    assert found == (4 * (2 * 128 + 8 + 8), 0, 2 * 2 * 768 + 320)


# ---- adapters


def test_the_largest_weight_gradient_of_adapters_is_an_adapters() -> None:
    """Without a master copy; the largest adapter of rank 2 is 16 x 2."""
    found = moment(loss="chunked", precision="bf16_pure", lora_rank=2, lora_targets=["linear_fc2"])
    assert found[2] == 320 + 2 * 32


def test_frozen_weights_are_gathered_for_two_layers_and_have_no_gradient() -> None:
    """528 weights and 192 of adapters of rank 2, in 2 bytes, twice."""
    assert moment(dp=2, weight_sharding="zero3", lora_rank=2, loss="retained")[2] == 2 * 2 * (528 + 192)


@pytest.mark.parametrize("precision", ["bf16", "bf16_pure"])
def test_sharded_frozen_weights_have_16_bits(precision: str) -> None:
    """Adapters of rank 2 have a master copy where there is one."""
    width = 4 if precision == "bf16" else 2
    found = parts(dp=2, weight_sharding="zero3", lora_rank=2, precision=precision)
    assert found["weights"] == (2 * 1224 + width * 2 * 192) / 2


def test_gradients_of_adapters_are_whole_until_they_are_reduced() -> None:
    found = parts(dp=2, lora_rank=2)
    assert (found["gradients"], found["optimizer"]) == (4 * 2 * 192, 12 * 2 * 192)


# ---- heads


def test_each_further_token_that_is_predicted_has_logits_of_its_own() -> None:
    """The next and the one after: twice 40 logits of 16 bytes; a layer more, and one stream of the head."""
    assert parts({"mtp_layers": 1}, loss="retained")["loss"] == 16 * 2 * 40
    gradient = moment({"mtp_layers": 1, "vocab": 1000}, sequence=1, precision="bf16_pure", loss="chunked")
    assert gradient[1:] == (0.25 * 2 * 1000, 2 * 8 + 2 * 8000)


def test_an_offset_of_the_head_makes_no_further_logits() -> None:
    assert parts({"biases": ["head"]}, loss="retained")["loss"] == 16 * 40
    assert parts({"biases": ["head"], "mtp_layers": 1}, loss="retained")["loss"] == 16 * 2 * 40


# ---- moments


def test_of_moments_with_the_same_sum_the_first_counts() -> None:
    first: dict[str, Numeric] = {"a": 3.0, "b": 1.0}
    second: dict[str, Numeric] = {"a": 1.0, "b": 3.0}
    third: dict[str, Numeric] = {"a": 2.0, "b": 3.0}
    assert {name: float(value) for name, value in _worst_moment([first, second]).items()} == first
    assert {name: float(value) for name, value in _worst_moment([first, third, second]).items()} == third
    each = _worst_moment([{"a": np.array([1.0, 5.0])}, {"a": np.array([2.0, 4.0])}])
    assert np.asarray(each["a"]).tolist() == [2, 5]


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_weights_that_are_offloaded_leave_room_for_two_of_the_largest_blocks(precision: str) -> None:
    """Of 6 layers, 4 leave; with adapters beside frozen weights as well."""
    width = 4 if precision == "fp32" else 2
    found = needs({"layers": 6}, offload=["weights"], precision=precision)
    assert found.offloaded["weights"] == width * (168 + 4 * 528)
    assert (
        needs({"layers": 6}, offload=["weights"], precision=precision, dp=2, weight_sharding="zero1").parts["weights"]
        == 2 * width * 528
    )
    adapted = needs({"layers": 6}, offload=["weights"], precision=precision, lora_rank=2, lora_adapters=3)  # one trains
    assert adapted.offloaded["weights"] == width * (168 + 4 * (528 + 192))


# ---- blocks


def test_a_layer_norm_keeps_a_mean_beside_its_scale() -> None:
    """4 bytes more of each token for each of 2 norms of a layer, and for that of the head."""
    found = moment({"norm": "layernorm"}, loss="retained")
    assert found[0] == 2 * (832 + 4 * 2 * 4) + 144 + 4 * 4


def test_a_stage_gathers_the_largest_of_its_own_blocks() -> None:
    """The middle one of three stages has layers alone: two of 528 weights gathered, and a gradient."""
    every = stage_footprints(design({"layers": 3, "vocab": 1000}, pp=3, dp=2, weight_sharding="zero3", loss="chunked"))
    assert [each.parts["buffers"] for each in every] == [
        6 * 8000 + 320,
        6 * 528 + 320,
        6 * 8008,
    ]  # the last at its loss


def test_a_served_stage_keeps_the_activations_of_its_own_layers() -> None:
    """A dense layer of ffn 100 is on the first of two stages, one of experts on the second."""
    first, last = stage_footprints(design(MIXED, pp=2, task="prefill"))
    assert (first.parts["activations"], last.parts["activations"]) == (DENSE_KEPT, SPARSE_KEPT)


def test_a_served_step_makes_the_logits_of_one_token_and_keeps_one_layer() -> None:
    """Of each sequence, in 2 bytes; nothing is recomputed, whatever is said of training."""
    assert parts(task="decode", micro_batch=3)["loss"] == 3 * 2 * 10
    found = parts(task="prefill", micro_batch=3, recompute="full")
    assert (found["loss"], found["activations"]) == (3 * 2 * 10, 3 * 832)
    *_, head = stage_footprints(design({"layers": 4}, pp=3, task="prefill", last_stage_layers=0))
    assert head.parts["activations"] == 0


def test_served_stages_hold_tied_embeddings_twice() -> None:
    model = {"tied_embeddings": True}
    assert parts(model, task="decode")["weights"] == 2 * (1224 - 80)
    assert [each.parts["weights"] for each in stage_footprints(design(model, pp=2, task="decode"))] == [
        2 * (528 + 80),
        2 * (528 + 88),
    ]


def test_offloaded_weights_in_8_bits_leave_two_blocks_in_their_formats() -> None:
    """A layer has 512 weights of a byte and two norms of 2 bytes; embedding and head have 2 bytes."""
    found = needs({"layers": 6}, task="decode", precision="fp8", offload=["weights"])
    assert found.offloaded["weights"] == 4 * (512 + 32) + 2 * 168
    assert found.parts["weights"] == 2 * (512 + 32)
    assert needs({"layers": 6}, task="decode", dp=2, offload=["weights"]).parts["weights"] == 2 * 2 * 528


def test_a_stage_recomputes_its_own_layers() -> None:
    """A dense layer of ffn 100 on the first stage; one of experts on the last, of which all is there again."""
    _, last = stage_footprints(design(MIXED, pp=2, recompute="full", loss="chunked"))
    assert last.parts["activations"] == 64 + SPARSE_KEPT - 64


# ---- programs


def tensor(name: str, *dims: str, role: TensorRole = "activation") -> ProgramTensor:
    return ProgramTensor(name=name, dims=dims, role=role)


def operator(kind: str, made: str, *inputs: str) -> ProgramOperator:
    return ProgramOperator(name=made, kind=kind, inputs=inputs, outputs=(made,))


PROGRAM = ProgramModel(
    dims=tuple(ProgramDim(name=name, size=size) for name, size in SIZES.items()),
    tensors=(
        tensor("given", "batch", "features", role="input"),
        *(tensor(name, "features", "inner", role="weight") for name in ("w_in", "w_up")),
        *(tensor(name, "inner", "features", role="weight") for name in ("w_mid", "w_down")),
        *(tensor(name, "batch", "inner") for name in ("wide", "up", "inside")),
        *(tensor(name, "batch", "features") for name in ("before", "after")),
        tensor("w_wide", "inner", "classes", role="weight"),
        tensor("w_after", "features", "classes", role="weight"),
        *(tensor(name, "batch", "classes") for name in ("of_wide", "of_after", "scores")),
        tensor("loss", "batch"),
    ),
    parts=(
        ProgramPart(
            name="stem",
            operators=(operator("einsum", "wide", "given", "w_in"), operator("einsum", "before", "wide", "w_mid")),
        ),
        ProgramPart(
            name="body",
            repeat=4,
            carries=("before", "after"),
            operators=(
                operator("einsum", "up", "before", "w_up"),
                operator("relu", "inside", "up"),
                operator("einsum", "after", "inside", "w_down"),
            ),
        ),
        ProgramPart(
            name="final",
            operators=(
                operator("einsum", "of_wide", "wide", "w_wide"),
                operator("einsum", "of_after", "after", "w_after"),
                operator("add", "scores", "of_wide", "of_after"),
                operator("loss", "loss", "scores"),
            ),
        ),
    ),
    annotations=tuple(
        ProgramAnnotation(tensor=name, axes=axes)
        for name, axes in {
            **dict.fromkeys(("w_in", "w_up"), ("", "tp")),
            **dict.fromkeys(("w_mid", "w_down", "w_wide"), ("tp", "")),
        }.items()
    ),
)
"""Two samples of 8 features: a stem, four layers of 8 x 16 and 16 x 8, and a head that reads the stem as well."""


def program(**workload: Any) -> Batch:
    return batch_of(replace(tiny.point(**{"micro_batch": 2, "global_batch": 2} | workload), model=PROGRAM))


def test_a_program_holds_the_weights_of_its_parts_and_gathers_no_stream() -> None:
    """Half of 5 x 256 weights and of 16 x 4, and 8 x 4 in bf16; nothing of it is called logits."""
    found = footprint(program(tp=2)).parts
    assert found["weights"] == 2 * (5 * 256 / 2 + 16 * 4 / 2 + 8 * 4)
    assert found["inputs"] == 2 * 2 * 8
    assert (found["loss"], found["buffers"]) == (0, 0)


@pytest.mark.parametrize(("tp", "elements"), [(1, 2 * 16 + 2 * 8), (2, 2 * 16 / 2 + 2 * 8 / 2)])
def test_stages_of_a_program_send_all_that_later_parts_read(tp: int, elements: float) -> None:
    """What the stem made, for the head, and what a layer hands on; ranks of tp send a part each."""
    sent = [use for use in list_collectives(program(tp=tp, pp=2, global_batch=6)) if use.role == "pp"]
    assert [(use.phase, use.bytes, use.calls) for use in sent] == [
        ("forward", 2 * elements, 3),
        ("backward", 2 * elements, 3),
    ]


@pytest.mark.parametrize(("tp", "elements"), [(1, 5 * 256 + 64 + 32), (2, (5 * 256 + 64) / 2 + 32)])
def test_replicas_of_a_program_share_its_states(tp: int, elements: float) -> None:
    """What no annotation splits is whole on each rank of tp; the two replicas share all of it out."""
    zero1 = footprint(program(tp=tp, dp=2, global_batch=4, weight_sharding="zero1")).parts
    assert (zero1["weights"], zero1["optimizer"]) == (2 * elements, 12 * elements / 2)
    zero3 = footprint(program(tp=tp, dp=2, global_batch=4, weight_sharding="zero3")).parts
    assert (zero3["weights"], zero3["optimizer"]) == (4 * elements / 2, 8 * elements / 2)


CARRYING = ProgramModel(
    dims=PROGRAM.dims,
    tensors=(
        *(tensor(name, "batch", "features", role="input") for name in ("state", "sum")),
        tensor("w_up", "features", "inner", role="weight"),
        tensor("w_down", "inner", "features", role="weight"),
        tensor("inside", "batch", "inner"),
        *(tensor(name, "batch", "features") for name in ("next_state", "next_sum")),
        tensor("w_out", "features", "classes", role="weight"),
        tensor("scores", "batch", "classes"),
        tensor("loss", "batch"),
    ),
    parts=(
        ProgramPart(
            name="body",
            repeat=4,
            carries=("state", "next_state", "sum", "next_sum"),
            operators=(
                operator("einsum", "inside", "state", "w_up"),
                operator("einsum", "next_state", "inside", "w_down"),
                operator("add", "next_sum", "sum", "next_state"),
            ),
        ),
        ProgramPart(
            name="final",
            operators=(operator("einsum", "scores", "next_sum", "w_out"), operator("loss", "loss", "scores")),
        ),
    ),
    annotations=(
        ProgramAnnotation(tensor="w_up", axes=("", "tp")),
        ProgramAnnotation(tensor="w_down", axes=("tp", "")),
    ),
)
"""Four layers that hand on a state and a sum, of which the head reads the sum."""


@pytest.mark.parametrize("tp", [1, 2])
def test_a_layer_of_a_program_sends_all_that_the_next_one_takes(tp: int) -> None:
    """Two tensors of 2 x 8 numbers in 2 bytes, shared out over tp; the head would take one of them."""
    batch = program(tp=tp, pp=2)
    sent = [use for use in list_collectives(batch_of(replace(batch.base, model=CARRYING))) if use.role == "pp"]
    assert [float(use.bytes) for use in sent] == [2 * 2 * 16 / tp] * 2


@pytest.mark.parametrize("execution", ["fused", "compiled"])
def test_one_rank_has_nobody_to_share_weights_with(execution: str) -> None:
    """All 1224 weights in 2 bytes, 4 of a gradient and 12 of states; with two ranks zero3 has 16 of half of them."""
    alone = {each: parts(weight_sharding=each, execution=execution) for each in ("none", "zero1", "zero2", "zero3")}
    assert all(found == alone["none"] for found in alone.values())
    assert [alone["zero3"][name] for name in ("weights", "gradients", "optimizer")] == [2448, 4896, 14688]
    shared = parts(weight_sharding="zero3", dp=2, execution=execution)
    assert [shared[name] for name in ("weights", "gradients", "optimizer")] == [2448, 2448, 4896]
