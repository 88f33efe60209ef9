"""Classes of state by hand: what blocks have of them, which tiers they are in, and what tiers are said to hold.

A layer of the tiny design (`tests.step.tiny`) has 528 weights, embedding and head 80 and 88; adapters of rank 2
add 192.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cosmic.cli.evaluate_command import describe_tiers
from cosmic.design.design_batch import batch_of
from cosmic.design.memory_layer import HBM, MemoryTier
from cosmic.design.model_layer import SparseAttention, StateSpace, Transformer, layer_kinds
from cosmic.step.block_memory import TableUse, cache_bytes
from cosmic.step.device_memory import memory_of
from cosmic.step.operator_work import padded_sizes, picked_expert_share
from cosmic.step.stage_memory import model_memory
from cosmic.step.state_placement import active_expert_share, block_states, expert_cache_hits, placed_states, state_tiers
from cosmic.step.tier_traffic import expanded_bytes_per_s, full_tiers, kernel_bandwidth_bytes_per_s, tier_metrics
from cosmic.workload.expert_routing import cached_hits
from cosmic.workload.precision import recipe_of
from tests.step import tiny
from tests.step.test_placement_by_hand import HOST, MOE, SSD, footprint, placed

GIB = 2**30
CXL = MemoryTier(name="cxl", capacity_bytes=1e9, bandwidth_bytes_per_s=25.0, access="load_store")

# ---- blocks


@pytest.mark.parametrize(("sharding", "stored"), [("none", 2 * 528), ("zero3", 2 * 528 / 2)])
def test_a_served_layer_is_stored_whole_unless_its_replicas_share_it(sharding: str, stored: float) -> None:
    """In 2 bytes; GEMMs read all of it. There are neither gradients nor states."""
    batch = tiny.batch(task="decode", dp=2, weight_sharding=sharding)
    found = block_states(model_memory(batch), "layer", experts=False)
    assert (float(found.weights), float(found.used)) == (stored, 2 * 528)
    assert (found.gradients, found.optimizer, found.updated) == (0, 0, 0)


def test_sharded_adapters_have_a_master_copy_and_frozen_weights_none() -> None:
    """Half of 192 weights of 4 bytes, and of 528 of 2; gradients and moments of adapters alone."""
    batch = tiny.batch(dp=2, weight_sharding="zero3", lora_rank=2, sequence_parallel=False)
    found = block_states(model_memory(batch), "layer", experts=False)
    assert float(found.weights) == (4 * 192 + 2 * 528) / 2
    assert float(found.used) == 2 * (192 + 528)
    assert (float(found.gradients), float(found.optimizer), float(found.updated)) == (4 * 96, 8 * 96, 96)


def test_what_is_offloaded_and_not_placed_is_in_all_outer_tiers() -> None:
    point = tiny.point(memory={"tiers": (HOST, SSD)}, offload=("weights", "optimizer"))
    outer = ("host", "ssd")
    assert placed_states(point) == dict.fromkeys(("weights", "experts", "optimizer", "expert_optimizer"), outer)
    assert state_tiers(point, "gradients") == (HBM,)
    stated = placed(HOST, SSD, optimizer=("ssd",), offload=("weights",)).base
    assert (state_tiers(stated, "optimizer"), state_tiers(stated, "weights")) == (("ssd",), outer)


def test_experts_padded_to_more_tokens_than_there_are_are_all_in_use() -> None:
    """One of four experts for each token, times a capacity of 6: one and a half of all tokens."""
    given: dict[str, Any] = {"moe_expert_capacity_factor": 6.0, "moe_pad_expert_input_to_capacity": True}
    assert float(active_expert_share(tiny.batch(model=MOE, **given))) == 1


def test_hits_of_a_cache_are_those_of_the_tokens_of_its_experts() -> None:
    """4 sequences of 4 tokens, for which two groups of ranks have the same experts: 8 tokens for each of them."""
    batch = tiny.batch(dp=4, ep=2, model=MOE, memory={"expert_cache": 0.25}, moe_routing_skew=1.0)
    assert float(expert_cache_hits(batch)) == cached_hits("4 1 0 0", 0.25, 1.0, 8.0)[0]
    assert cached_hits("4 1 0 0", 0.25, 1.0, 8.0)[0] != cached_hits("4 1 0 0", 0.25, 1.0, 16.0)[0]


# ---- memory read in place


def test_layers_see_hbm_where_only_states_are_elsewhere() -> None:
    assert kernel_bandwidth_bytes_per_s(placed(CXL, optimizer=("cxl",))) == 100.0


def test_states_that_are_apart_do_not_dilute_what_layers_read() -> None:
    """All weights are in CXL, and a million bytes of their states; the others are in HBM, for the update alone."""
    given: dict[str, Any] = {"weights": ("cxl",), "optimizer": ("hbm", "cxl"), "model": {"vocab": 100_000}}
    whole = float(footprint(placed(replace(CXL, capacity_bytes=1e12), **given))[0].total)
    batch = placed(replace(CXL, capacity_bytes=1e12), memory={"capacity_bytes": whole - 1e6}, **given)
    memory, found = footprint(batch)
    assert float(found.homes["cxl", "optimizer"]) == pytest.approx(1e6)
    away = 2 * (2 * 528 + 8 + 2 * 8 * 100_000)
    near = sum(float(size) for name, size in memory.parts.items() if name not in ("fragmentation", "optimizer"))
    share = away / (away + near)
    assert float(kernel_bandwidth_bytes_per_s(batch)) == pytest.approx(1 / (share / 25 + (1 - share) / 100), rel=1e-9)
    states = 12 * away / 2
    updated = float(memory.parts["gradients"]) + states
    outside = (away + 1e6) / (updated + away)
    expected = 1 / (outside / 25 + (1 - outside) / 100)
    assert float(kernel_bandwidth_bytes_per_s(batch, update=True)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("parallel", "rate"), [(False, 1 / (0.5 / 100 + 0.25 / 25 + 0.25 / 10)), (True, 1 / (0.25 / 10))]
)
def test_three_memories_are_read_one_after_the_other_or_at_once(parallel: bool, rate: float) -> None:
    assert expanded_bytes_per_s(100.0, [(0.25, 25.0), (0.25, 10.0)], parallel=parallel) == pytest.approx(rate)


def test_states_of_experts_apart_from_those_of_others_are_apart_from_what_layers_read() -> None:
    """Weights of 2 x 304, both ends of 100,000 words and 2 x 1024 of experts in CXL, all states of experts in HBM."""
    model = {**MOE, "vocab": 100_000}
    given: dict[str, Any] = {**dict.fromkeys(("weights", "experts", "optimizer"), ("cxl",)), "expert_optimizer": (HBM,)}
    memory, _ = footprint(batch := placed(CXL, model=model, **given))
    away = 2 * (2 * 304 + 8 + 2 * 8 * 100_000 + 2 * 1024)
    near = sum(float(size) for name, size in memory.parts.items() if name not in ("fragmentation", "optimizer"))
    assert float(memory.parts["optimizer"]) == 12 * 2048
    share = away / (away + near)
    assert float(kernel_bandwidth_bytes_per_s(batch)) == pytest.approx(1 / (share / 25 + (1 - share) / 100), rel=1e-9)


# ---- caches and tables


def test_attention_to_few_keys_caches_a_window_blocks_and_an_index() -> None:
    """8 of 16 tokens on each of two ranks of cp, 3 of 6 sequences on each replica, in 2 bytes.

    A window of 2 vectors of 4; of small blocks 8 / 4 of 4 and of 3 for the index, of large ones 8 / 8 of 4.
    """
    sparse = SparseAttention(
        q_lora_rank=4, o_lora_rank=4, o_groups=1, window=2, block=4, picked=2, large_block=8, index_heads=1, index_dim=3
    )
    model = Transformer(
        layers=4, hidden=8, heads=2, kv_heads=1, head_dim=4, ffn=16, vocab=10, pattern="WCCH", sparse=sparse
    )
    given: dict[str, Any] = {"task": "decode", "sequence": 16, "cp": 2, "dp": 2, "global_batch": 6}
    batch = batch_of(replace(tiny.point(**given), model=model))
    window, small, large = 2 * 4, 8 / 4 * (4 + 3), 8 / 8 * 4
    counts = {kind: float(count) for kind, count in layer_kinds(model).items()}
    assert sorted(counts.values()) == [1, 1, 2]
    held = 4 * window + 2 * small + large
    assert float(cache_bytes(batch, counts, {}, recipe_of("bf16", "decode"))) == 3 * 2 * held


def test_ranks_of_tp_and_cp_share_the_states_of_a_state_space() -> None:
    """4 bytes of 32 x 16 states, 2 of 3 x 96 numbers before the convolution; attention caches 8 x 8 numbers."""
    ssm = StateSpace(heads=4, head_dim=8, groups=2, state=16, chunk=4)
    model = Transformer(layers=2, hidden=8, heads=2, head_dim=4, ffn=6, vocab=10, pattern="M*", ssm=ssm)
    given: dict[str, Any] = {"task": "decode", "sequence": 16, "tp": 2, "cp": 2, "global_batch": 6, "micro_batch": 6}
    found = memory_of(batch_of(replace(tiny.point(**given), model=model))).parts["kv_cache"]
    assert float(found) == 6 * 2 * (2 * 4 * 8) + 6 * (4 * 32 * 16 + 2 * 3 * 96) / 4


def test_an_update_of_tables_streams_the_rows_that_were_looked_up() -> None:
    """3 rows of 4: gradients of 4 bytes read, weights of 2 and a state of 4 for each row read and written."""
    use = TableUse(elements=80.0, rows=20.0, touched=3.0, width=4, recipe=recipe_of("bf16", "training"))
    assert use.update_bytes == 3 * 4 * 4 + 2 * 3 * 4 * 2 + 2 * 3 * 4
    assert (use.weight_bytes, use.gradient_bytes, use.state_bytes) == (160, 48, 80)
    none = TableUse()
    assert (none.update_bytes, none.weight_bytes, none.gradient_bytes, none.state_bytes) == (0, 0, 0, 0)


def test_more_uneven_experts_leave_more_of_them_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a variance of half the square of the mean: 3/4 (1 + 1/2 · 1/4 · 3 / (3/4))⁻² = 1/3 are not picked."""
    monkeypatch.setattr("cosmic.step.operator_work.POPULARITY", 0.5)
    assert float(picked_expert_share(0.25, 4, even=False)) == pytest.approx(2 / 3)
    assert float(picked_expert_share(0.25, 0.5, even=False)) == pytest.approx(0.25)  # a token at least
    assert float(picked_expert_share(0.25, 0.5, even=True)) == pytest.approx(0.25)
    assert float(picked_expert_share(1.0, 4, even=False)) == pytest.approx(1)


def test_only_what_tp_pads_is_larger() -> None:
    """2 heads and a width of 16 over 3 ranks, if they may be padded."""
    padded, plain = tiny.batch(tp=3, uneven_tp="pad"), tiny.batch(tp=2)
    found = padded_sizes(padded, padded.base.model)
    assert (int(found["heads"]), int(found["ffn"])) == (3, 18)
    assert padded_sizes(plain, plain.base.model) == {}


# ---- words


def test_a_full_tier_names_its_three_largest_classes() -> None:
    """The largest first; what is small is left out."""
    states: dict[str, Any] = dict.fromkeys(("weights", "optimizer", "gradients", "activations"), ("host",))
    (said,) = full_tiers(placed(replace(HOST, capacity_bytes=100.0), **states).base)
    assert said.endswith(f": {14_688 / GIB:.3g} optimizer, {4896 / GIB:.3g} gradients, {2448 / GIB:.3g} weights")


def test_hbm_that_is_full_on_several_stages_is_named_once() -> None:
    """Each stage needs 64 MiB of workspace alone; the first is named."""
    (said,) = full_tiers(placed(HOST, weights=("host",), pp=2, memory={"capacity_bytes": 1e6}).base)
    assert said.startswith("stage 1 needs 0.0")
    assert said.endswith(f"of {1e6 / GIB:.4g} GiB per NPU of HBM")


def test_a_tier_that_is_just_full_is_not_too_full() -> None:
    room = 14_688.0
    assert full_tiers(placed(replace(HOST, capacity_bytes=room), optimizer=("host",)).base) == ()
    assert len(full_tiers(placed(replace(HOST, capacity_bytes=room - 1), optimizer=("host",)).base)) == 1


def test_what_is_offloaded_fills_the_nearest_tier_first() -> None:
    """336 bytes of weights, beside buffers for two layers, and 664 of 14,688 of states fill 1000 bytes of the host.

    Weights come in twice; states come in and go out.
    """
    tiers = (replace(HOST, capacity_bytes=1000.0), SSD)
    found = tier_metrics(tiny.point(memory={"tiers": tiers}, offload=("weights", "optimizer")))
    moved = 2 * 336 + 2 * 14_688
    assert found["host"] == {
        "capacity_bytes": 1000,
        "used_bytes": 1000,
        "traffic_bytes": pytest.approx(moved),
        "weights": 336,
        "optimizer": 664,
    }
    far = 14_688 - 664
    assert found["ssd"] == {
        "capacity_bytes": 1e6, "used_bytes": far, "traffic_bytes": pytest.approx(2 * far), "optimizer": far
    }  # fmt: skip
    assert found[HBM]["weights"] == 2 * 1056
    assert found[HBM]["traffic_bytes"] == 0


def test_metrics_of_tiers_are_empty_where_nothing_is_outside() -> None:
    assert tier_metrics(tiny.point()) == tier_metrics(tiny.point(memory={"tiers": (HOST,)})) == {}
    assert tier_metrics(tiny.point(offload=("optimizer",))) == {}


def test_metrics_of_placed_state_have_what_crosses_each_link() -> None:
    """Weights of two layers and both ends come in for a forward and a backward pass."""
    found = tier_metrics(placed(HOST, weights=("host",)).base)["host"]
    assert (found["weights"], found["used_bytes"], found["traffic_bytes"]) == (2448, 2448, 2 * 2448)


def test_a_line_says_what_a_tier_holds_and_what_crosses_its_link() -> None:
    sizes = {"capacity_bytes": 4.0 * GIB, "used_bytes": 3.0 * GIB, "traffic_bytes": 6.0 * GIB, "weights": 3.0 * GIB}
    still = {"capacity_bytes": 4.0 * GIB, "used_bytes": 0.0, "traffic_bytes": 0.0}
    assert describe_tiers({"host": sizes, "ssd": still}) == [
        "host: 3 of 4 GiB (3 weights); 6 GiB cross its link in a step",
        "ssd: 0 of 4 GiB",
    ]
