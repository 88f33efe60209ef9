"""What each device sends: the counts that practitioners know, out of one mechanism."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from cosmic.design.design_batch import Batch, batch_of
from cosmic.search.mapping.design_completion import load_design
from cosmic.search.space.space_files import load_space
from cosmic.step.communication import CollectiveUse, list_collectives
from cosmic.workload.mesh_sizes import structural_paths

BIG = 1e6
"""Bytes below which a collective is that of an offset or a scale."""


def uses(design: str, block: str = "layer", **workload: Any) -> list[CollectiveUse]:
    """Return the collectives of any size that a block of a design has, groups of one left out."""
    point = load_design(design, {f"workload.{key}": value for key, value in workload.items()}, plain=True)
    found = list_collectives(batch_of(point))
    return [use for use in found if use.block == block and use.group > 1 and use.bytes > BIG and use.kind != "send"]


def tally(found: list[CollectiveUse], axis: str) -> dict[tuple[str, str], int]:
    return dict(Counter((use.phase, use.kind) for use in found if axis in use.axes))


GPT = "gpt3-175b@dgx-h100:512"


def test_tensor_parallelism_has_two_all_reduces_each_way() -> None:
    found = uses(GPT, tp=8, dp=8, pp=8, cp=1, sequence_parallel=False, weight_sharding="none")
    assert tally(found, "tp") == {("forward", "all_reduce"): 2, ("backward", "all_reduce"): 2}
    payload = 2 * 2048 * 12288  # a microbatch of one in bf16
    assert {use.bytes for use in found if use.axes == ("tp",)} == {payload}


def test_sequence_parallelism_has_pairs_instead_and_gathers_again_for_weight_gradients() -> None:
    found = uses(GPT, tp=8, dp=8, pp=8, cp=1, sequence_parallel=True, weight_sharding="none")
    assert tally(found, "tp") == {
        ("forward", "all_gather"): 2,
        ("forward", "reduce_scatter"): 2,
        ("backward", "all_gather"): 4,  # two of gradients, two of what the column-parallel products read
        ("backward", "reduce_scatter"): 2,
    }


def test_data_parallelism_reduces_each_weight_once_a_step() -> None:
    found = [use for use in uses(GPT, tp=8, dp=8, pp=8, cp=1, weight_sharding="none") if "dp" in use.axes]
    assert {(use.phase, use.kind) for use in found} == {("step", "all_reduce")}
    assert sorted(use.tensor for use in found) == ["d_w_ffn_down", "d_w_ffn_up", "d_w_k", "d_w_out", "d_w_q", "d_w_v"]
    assert {use.calls for use in found} == {1}  # for one layer
    per_layer = 12 * 12288**2 / 8
    assert sum(use.bytes for use in found) == 4 * per_layer  # accumulated in fp32


def test_sharded_optimizer_states_scatter_gradients_and_gather_weights() -> None:
    found = [use for use in uses(GPT, tp=8, dp=8, pp=8, cp=1, weight_sharding="zero1") if "dp" in use.axes]
    assert {(use.phase, use.kind) for use in found} == {("step", "reduce_scatter"), ("step", "all_gather")}


def test_sharded_weights_are_gathered_twice_and_their_gradients_scattered_once() -> None:
    found = uses(GPT, tp=1, dp=512, pp=1, cp=1, weight_sharding="zero3", global_batch=512)
    weights = Counter((use.tensor.removeprefix("d_"), use.phase, use.kind) for use in found)
    for name in ("w_q", "w_k", "w_v", "w_out", "w_ffn_up", "w_ffn_down"):
        assert weights[name, "forward", "all_gather"] == 1
        assert weights[name, "backward", "all_gather"] == 1
        assert weights[name, "backward", "reduce_scatter"] == 1
    assert sum(weights.values()) == 18
    assert all(use.overlaps for use in found)


def test_a_mixture_of_experts_has_four_all_to_alls() -> None:
    found = uses("mixtral-8x7b@dgx-h100:64", "moe_layer", ep=8, dp=64, tp=1, pp=1, cp=1, weight_sharding="none")
    assert tally(found, "ep") == {
        ("forward", "all_to_all"): 2,
        ("backward", "all_to_all"): 2,
        ("step", "all_reduce"): 6,
    } or {key: count for key, count in tally(found, "ep").items() if key[1] == "all_to_all"} == {
        ("forward", "all_to_all"): 2,
        ("backward", "all_to_all"): 2,
    }
    sent = next(use for use in found if use.tensor == "sent")
    point = load_design("mixtral-8x7b@dgx-h100:64", {"workload.ep": 8}, plain=True)
    assert sent.bytes == 2 * point.workload.sequence * 2 * 4096  # every token to two experts


def test_experts_are_reduced_over_their_own_replicas() -> None:
    found = uses("mixtral-8x7b@dgx-h100:64", "moe_layer", ep=8, dp=64, tp=1, pp=1, cp=1, weight_sharding="none")
    groups = {use.tensor: use.group for use in found if use.phase == "step"}
    assert groups["d_w_expert_down"] == 8
    assert groups["d_w_q"] == 64


LONG: dict[str, Any] = {"cp": 4, "tp": 1, "dp": 2, "pp": 1, "sequence": 32768, "weight_sharding": "none"}


def test_ring_attention_passes_keys_and_values_round() -> None:
    found = [use for use in uses("llama3-8b@dgx-h100:8", cp_comm_type="ring", **LONG) if use.axes == ("cp",)]
    assert {use.kind for use in found} == {"collective_permute"}
    forward = [use for use in found if use.phase == "forward"]
    assert {use.tensor for use in forward} == {"key", "value"}
    key = 2 * 32768 / 4 * 8 * 128  # one rank's keys in bf16
    assert {(use.bytes, use.calls / 32) for use in forward} == {(key, 3 * forward[0].calls / 32 / 3)}
    assert all(use.overlaps for use in found)


def test_gathering_attention_gathers_keys_and_values() -> None:
    found = [use for use in uses("llama3-8b@dgx-h100:8", cp_comm_type="all_gather", **LONG) if use.axes == ("cp",)]
    assert Counter((use.phase, use.kind) for use in found) == {
        ("forward", "all_gather"): 2,
        ("backward", "all_gather"): 2,
        ("backward", "reduce_scatter"): 2,
    }


def test_ulysses_exchanges_tokens_for_heads() -> None:
    found = [use for use in uses("llama3-8b@dgx-h100:8", cp_comm_type="ulysses", **LONG) if use.axes == ("cp",)]
    assert Counter((use.phase, use.kind) for use in found) == {
        ("forward", "all_to_all"): 4,  # queries, keys and values in, what attention made out
        ("backward", "all_to_all"): 4,
    }


def test_stages_send_activations_forward_and_gradients_back() -> None:
    point = load_design(
        GPT, {"workload.tp": 8, "workload.dp": 8, "workload.pp": 8, "workload.global_batch": 512}, plain=True
    )
    sends = [use for use in list_collectives(batch_of(point)) if use.kind == "send"]
    assert [(use.phase, use.calls) for use in sends] == [("forward", 64), ("backward", 64)]
    assert {use.bytes for use in sends} == {2 * 2048 * 12288 / 8}


def test_recomputation_repeats_the_forward_collectives() -> None:
    once = uses(GPT, tp=8, dp=8, pp=8, cp=1, recompute="none", weight_sharding="none")
    twice = uses(GPT, tp=8, dp=8, pp=8, cp=1, recompute="full", weight_sharding="none")
    to_end = uses(GPT, tp=8, dp=8, pp=8, cp=1, recompute="full", recompute_to_end=True, weight_sharding="none")
    found = [{use.tensor: use.calls for use in each if use.phase == "forward"} for each in (once, twice, to_end)]
    assert found[2] == {tensor: 2 * times for tensor, times in found[0].items()}
    assert {tensor for tensor in found[0] if found[1][tensor] == found[0][tensor]} == {"ffn_down"}  # nobody needs it


def test_a_batch_gives_what_its_points_give() -> None:
    space = load_space("cosmic-1024-full-stack")
    rows = space.sample(12, np.random.default_rng(0))
    whole = Batch(space.base, space.columns(rows))
    for places, part in whole.groups(structural_paths(whole)):
        together = list_collectives(part)
        for inner, place in enumerate(places):
            for use, alone in zip(together, list_collectives(batch_of(space.point(rows[place]))), strict=True):
                traffic = np.broadcast_to(use.bytes * use.calls, len(places))[inner]
                assert traffic == pytest.approx(alone.bytes * alone.calls)
