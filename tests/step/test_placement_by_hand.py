"""Where state lives by hand: what tiers share out, what experts travel, and what waits beside them.

Of the tiny design (`tests.step.tiny`) a layer has 1056 bytes of weights, embedding and head 160 and 176; in training
1224 weights have 12 bytes of optimizer states each. With four experts of 2 x 8 x 16 weights a layer has 304 others.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cosmic.design.design_batch import Batch, batch_of
from cosmic.design.memory_layer import HBM, MemoryTier, Placement
from cosmic.design.model_layer import Experts, Recommender
from cosmic.step.device_memory import Footprint, memory_of, stage_footprints
from cosmic.step.stage_memory import model_memory
from cosmic.step.state_placement import (
    PlacedState,
    active_expert_share,
    block_states,
    expert_cache_hits,
    has_master_copy_only,
    is_state_placed,
)
from cosmic.step.tier_traffic import (
    TierTraffic,
    bytes_in_tier,
    full_tiers,
    kernel_bandwidth_bytes_per_s,
    tier_metrics,
    tier_traffic,
)
from tests.step import tiny

HOST = MemoryTier(name="host", capacity_bytes=1e6, bandwidth_bytes_per_s=10.0, processor_bandwidth_bytes_per_s=20.0)
SSD = MemoryTier(name="ssd", capacity_bytes=1e6, bandwidth_bytes_per_s=4.0)
MOE = {"experts": Experts(count=4, active=1, ffn=16)}
SPARSE, DENSE = 4 * 256, 304
"""Weights of a layer's experts, and its others."""
CACHE = {"active_experts": 0.25, "expert_cache": 0.25}


def placed(*tiers: MemoryTier, memory: dict[str, Any] | None = None, model: Any = None, **given: Any) -> Batch:
    """Return the tiny design with tiers; keys of `Placement` are placed, all others are of the workload."""
    states = {key: given.pop(key) for key in list(given) if key in Placement.__dataclass_fields__}
    layer = {"tiers": tiers, "placement": Placement(**states), **(memory or {})}
    return tiny.batch(memory=layer, model=model, **given)


def footprint(batch: Batch) -> tuple[Footprint, PlacedState]:
    memory = memory_of(batch)
    assert memory.placed is not None
    return memory, memory.placed


def traffic(batch: Batch) -> TierTraffic:
    found = tier_traffic(batch)
    assert found is not None
    return found


def numbers(links: Any) -> list[float]:
    return [float(each) for each in links]


# ---- what fits


def test_components_that_live_outside_are_told_apart() -> None:
    """2448 bytes of weights; 14,688 of optimizer states."""
    _, found = footprint(placed(HOST, weights=("host",), optimizer=("host",)))
    assert (float(found.away("weights")), float(found.away("optimizer"))) == (2448, 14_688)


def test_what_just_fits_needs_no_buffer() -> None:
    """Ten bytes more than all of it."""
    room = float(memory_of(tiny.batch(task="decode")).total) + 10
    _, found = footprint(placed(HOST, weights=("hbm", "host"), task="decode", memory={"capacity_bytes": room}))
    assert float(found.homes[HBM, "weights"]) == 2448


@pytest.mark.parametrize("dp", [1, 2])
def test_what_hbm_is_short_of_lives_outside(dp: int) -> None:
    """Optimizer states need no buffer: as many bytes go as there is too little room for."""
    given: dict[str, Any] = {"dp": dp, "weight_sharding": "none"}
    room = float(memory_of(tiny.batch(**given)).total) - 100
    _, found = footprint(placed(HOST, optimizer=("hbm", "host"), memory={"capacity_bytes": room}, **given))
    assert float(found.homes["host", "optimizer"]) == pytest.approx(100, abs=1e-6)


def test_classes_share_what_hbm_has_left() -> None:
    """10 layers cache 1280 bytes. 356 are left beside the weights, 256 of them for buffers: 100 stay.

    Without room for all weights, these take what there is, with their buffers, and nothing is left for the cache.
    """
    given: dict[str, Any] = {"task": "decode", "model": {"layers": 10}}
    whole = float(memory_of(tiny.batch(**given)).total)
    both: dict[str, Any] = {"weights": ("hbm", "host"), "kv_cache": ("hbm", "host"), **given}
    _, found = footprint(placed(HOST, memory={"capacity_bytes": whole - 1280 + 356}, **both))
    assert numbers(found.homes[tier, "kv_cache"] for tier in (HBM, "host")) == pytest.approx([100, 1180])
    _, less = footprint(placed(HOST, memory={"capacity_bytes": whole - 1280 - 10}, **both))
    assert float(less.homes["host", "weights"]) == pytest.approx(10 + 2 * 1056)
    assert float(less.homes["host", "kv_cache"]) == 1280


def test_buffers_are_of_the_layers_that_a_stage_has() -> None:
    """9 layers on 3 stages, and 1000 words: the middle one has no embedding, and buffers for 2 layers."""
    batch = placed(HOST, weights=("host",), pp=3, model={"layers": 9, "vocab": 1000})
    middle = list(stage_footprints(batch.base))[1]
    assert float(middle.parts["weights"]) == 2 * 1056


def test_two_of_ten_layers_of_the_cache_are_resident() -> None:
    memory, _ = footprint(placed(HOST, kv_cache=("host",), task="decode", model={"layers": 10}))
    assert float(memory.parts["kv_cache"]) == 2 * 128


def test_two_of_four_layers_of_activations_are_resident() -> None:
    """Layers keep 832 bytes each, what is around them 144."""
    plain = memory_of(tiny.batch(model={"layers": 4}))
    assert float(plain.parts["activations"]) == 4 * 832 + 144
    memory, found = footprint(placed(HOST, activations=("host",), model={"layers": 4}))
    assert float(memory.parts["activations"]) == 2 * 832 + 144
    assert float(found.homes["host", "activations"]) == 4 * 832


def test_inference_keeps_no_activations() -> None:
    _, found = footprint(placed(HOST, activations=("host",), weights=("host",), task="prefill"))
    assert float(found.homes["host", "activations"]) == 0


def test_what_is_offloaded_is_placed_if_something_says_how() -> None:
    assert not is_state_placed(tiny.point(memory={"tiers": (HOST,), "prefetch": "step"}))
    assert not is_state_placed(tiny.point(memory={"tiers": (HOST,)}, offload=("optimizer",)))
    assert is_state_placed(tiny.point(memory={"tiers": (HOST,)}, offload=("optimizer",), optimizer_device="cpu"))
    assert is_state_placed(tiny.point(memory={"tiers": (HOST,), "prefetch": "step"}, offload=("optimizer",)))
    assert not is_state_placed(tiny.point(offload=("optimizer",), memory={"prefetch": "step"}))


# ---- experts


def test_experts_stay_where_other_weights_go() -> None:
    """(2 · 304 + 80 + 88) · 2 bytes go; 2 · 1024 · 2 stay, with buffers of two layers' other weights."""
    memory, found = footprint(placed(HOST, weights=("host",), experts=("hbm",), task="decode", model=MOE))
    assert float(found.homes["host", "weights"]) == 2 * (2 * DENSE + 80 + 88)
    assert float(memory.parts["weights"]) == 2 * 2 * SPARSE + 2 * 2 * DENSE


def test_experts_that_fit_stay() -> None:
    room = float(memory_of(tiny.batch(task="decode", model=MOE)).total) + 1
    _, found = footprint(
        placed(HOST, experts=("hbm", "host"), task="decode", model=MOE, memory={"capacity_bytes": room})
    )
    assert float(found.homes[HBM, "experts"]) == 2 * 2 * SPARSE


def test_cached_experts_take_their_room_and_save_the_farther_link() -> None:
    """A quarter of 4096 bytes cached in the host; a token picks one of four experts, 512 bytes of a layer.

    All of them cross the link of the host, three quarters that of the drive.
    """
    batch = placed(HOST, SSD, experts=("ssd",), task="decode", model=MOE, memory=CACHE)
    _, found = footprint(batch)
    assert float(found.copies["host"]) == 1024
    assert numbers(traffic(batch).loads("moe_layer", "forward")) == pytest.approx([512, 384])


def test_experts_cached_in_hbm_are_part_of_its_weights() -> None:
    """1552 bytes of others, a quarter of 4096 cached, and buffers for a quarter of two layers' experts."""
    memory, _ = footprint(placed(HOST, experts=("host",), task="decode", model=MOE, memory=CACHE))
    assert float(memory.parts["weights"]) == 1552 + 1024 + 1024


def master(*tiers: str, **changed: Any) -> Batch:
    """Return experts in training that live with their optimizer states, as the master copy alone."""
    given: dict[str, Any] = {"experts": tiers, "expert_optimizer": tiers, "precision": "fp16", "model": MOE, **changed}
    return placed(replace(HOST, capacity_bytes=1000.0), SSD, memory=CACHE, **given)


def test_experts_of_the_master_copy_travel_with_its_bytes() -> None:
    """A quarter of 1024 weights of 4 bytes: all cross the host's link, three quarters that of the drive."""
    assert numbers(traffic(master("ssd")).loads("moe_layer", "forward")) == pytest.approx([1024, 768])


def test_the_master_copy_is_one_only_where_experts_and_their_states_are_together() -> None:
    assert has_master_copy_only(master("ssd").base)
    assert not has_master_copy_only(master("ssd", expert_optimizer=("host",)).base)
    assert not has_master_copy_only(master("ssd", task="prefill").base)


def test_cached_experts_of_the_master_copy_have_their_16_bits_beside() -> None:
    """The host has 1000 of 2048 · 12 bytes, the drive 23,576: a quarter of these, and of 4096, is cached nearer."""
    _, found = footprint(master("host", "ssd"))
    assert float(found.copies["host"]) == 23_576 / 4 + 4096 / 4


def test_tokens_pick_some_of_the_experts() -> None:
    """One token picks one of four; four tokens leave each one alone with (3/4)⁴."""
    assert float(active_expert_share(tiny.batch(task="decode", model=MOE))) == pytest.approx(1 / 4)
    assert float(active_expert_share(tiny.batch(model=MOE))) == pytest.approx(1 - 0.75**4)
    assert active_expert_share(tiny.batch()) == 1.0


def test_tokens_of_a_served_model_pick_popular_experts() -> None:
    """Four tokens leave an expert alone with 3/4 / (1 + 3 · 1/4 / (3/4)) = 3/8."""
    assert float(
        active_expert_share(tiny.batch(task="decode", model=MOE, global_batch=4, micro_batch=4))
    ) == pytest.approx(5 / 8)


def test_popular_experts_are_found_in_the_cache_more_often() -> None:
    even, skewed = (
        float(expert_cache_hits(tiny.batch(task="decode", model=MOE, memory=CACHE, moe_routing_skew=skew)))
        for skew in (0, 1)
    )
    assert even == pytest.approx(0.25)
    assert skewed > 0.3


# ---- what travels


def test_gradients_that_the_host_adds_to_do_not_come_back() -> None:
    """Four microbatches: 2112 bytes of a layer go out each time; they are there when the processor updates."""
    found = traffic(placed(HOST, gradients=("host",), optimizer=("host",), optimizer_device="cpu", global_batch=4))
    assert numbers(found.loads("layer", "backward")) == [0]
    assert numbers(found.stores("layer", "backward")) == [2112]
    assert numbers(found.update.gradient_links) == [0]


def test_gradients_of_experts_go_down_unless_they_are_there() -> None:
    """A quarter of 2048 weights, 4 bytes each. The processor updates a quarter of these: all others stay in HBM."""
    given: dict[str, Any] = {"expert_optimizer": ("host",), "optimizer_device": "cpu", "model": MOE, "memory": CACHE}
    away = traffic(placed(HOST, **given)).update
    there = traffic(placed(HOST, expert_gradients=("host",), **given)).update
    assert numbers(away.gradient_links) == [2048]
    assert numbers(there.gradient_links) == [0]
    assert float(away.in_hbm) == pytest.approx(776 / (776 + 512))
    assert numbers(away.links) == [1024]  # of weights, back to the accelerator


def test_all_passes_of_a_stage_cross_the_link_one_after_the_other() -> None:
    """Two layers of 1056 bytes, forward and backward, of four microbatches, at 10 bytes/s."""
    found = traffic(placed(HOST, weights=("host",), memory={"prefetch": "step"}, global_batch=4))
    assert float(found.passes_s({"layer": 2.0})) == pytest.approx(1056 * 2 * 2 * 4 / 10)
    assert numbers(found.step_bytes()) == [2448 * 2 * 4]


def test_activations_that_travel_are_the_mean_of_layers_that_recompute_and_others() -> None:
    """One of four layers recomputes."""
    given: dict[str, Any] = {"activations": ("host",), "recompute": "full", "model": {"layers": 4}}
    some, every, none = (
        float(traffic(placed(HOST, **given | changed)).stores("layer", "forward")[0])
        for changed in ({"recompute_num_layers": 1}, {}, {"recompute": "none"})
    )
    assert every < none
    assert some == pytest.approx((every + 3 * none) / 4)


@pytest.mark.parametrize(("state", "weights"), [("gradients", 4 * DENSE + 168), ("expert_gradients", 4 * SPARSE / 4)])
def test_an_update_reads_the_gradients_of_its_own_class(state: str, weights: float) -> None:
    """4 bytes of each weight of 4 layers; of experts, the quarter that is in use."""
    given: dict[str, Any] = {"gradients": ("hbm",), "expert_gradients": ("hbm",), state: ("host",)}
    found = traffic(placed(HOST, model={**MOE, "layers": 4}, memory=CACHE, **given)).update
    assert numbers(found.links) == [4 * weights]


def test_gradients_for_the_hosts_processor_cross_the_first_link_alone() -> None:
    found = traffic(placed(HOST, SSD, optimizer=("ssd",), optimizer_device="cpu")).update
    assert numbers(found.gradient_links) == [4896, 0]


def test_rows_that_are_looked_up_bring_their_states() -> None:
    """Of tables of 2 and 1 rows, 2 samples look up 1.5 and 1. Adagrad has 4 bytes for each, in and out: 20."""
    model = Recommender(dense_features=1, tables=(2, 1), embedding=4, bottom=(4,), top=(1,))
    batch = batch_of(replace(placed(HOST, optimizer=("host",), global_batch=2).base, model=model))
    found = traffic(batch)
    (name,) = found.model.blocks
    dense = block_states(found.model, name, experts=False)
    assert float(dense.optimizer) > 0
    assert numbers(found.update.links) == pytest.approx([2 * float(dense.optimizer) + 20])


def test_memory_is_expanded_only_by_what_lives_there() -> None:
    """Ten million words: 2 · 160 MB of 25 bytes/s, beside what HBM has at 100."""
    cxl = MemoryTier(name="cxl", capacity_bytes=1e9, bandwidth_bytes_per_s=25.0, access="load_store")
    given: dict[str, Any] = {"task": "decode", "model": {"vocab": 10_000_000}}
    memory, _ = footprint(batch := placed(cxl, weights=("cxl",), **given))
    away = 2 * (2 * 8 * 10_000_000 + 2 * 528 + 8)
    share = away / (float(memory.total) - float(memory.parts["fragmentation"]) + away)
    assert share > 0.5
    assert float(kernel_bandwidth_bytes_per_s(batch)) == pytest.approx(1 / (share / 25 + (1 - share) / 100))
    assert kernel_bandwidth_bytes_per_s(tiny.batch(memory={"tiers": (cxl,)}, **given)) == 100


def test_only_the_update_reads_optimizer_states_that_are_apart() -> None:
    """14,688 of 22,032 bytes at 25 bytes/s, with weights and gradients at 100: 100 / 3. Layers see HBM."""
    cxl = MemoryTier(name="cxl", capacity_bytes=1e9, bandwidth_bytes_per_s=25.0, access="load_store")
    batch = placed(cxl, optimizer=("cxl",))
    assert float(kernel_bandwidth_bytes_per_s(batch, update=True)) == pytest.approx(100 / 3)
    assert float(kernel_bandwidth_bytes_per_s(batch)) == pytest.approx(100)


# ---- blocks and words


@pytest.mark.parametrize(
    ("sharding", "stored", "updated"),
    [
        ("none", 528 * 2, 528),
        ("zero1", 528 * 2, 264),
        ("zero3", 264 * 4, 264),  # the master copy alone
    ],
)
def test_replicas_share_what_a_layer_updates(sharding: str, stored: float, updated: float) -> None:
    """A layer of 528 weights on two replicas; GEMMs read 2 bytes of each."""
    found = block_states(model_memory(tiny.batch(dp=2, weight_sharding=sharding)), "layer", experts=False)
    assert (float(found.weights), float(found.used), float(found.updated)) == (stored, 528 * 2, updated)


def test_islands_keep_what_they_exchanged_last_and_its_momentum() -> None:
    """8 bytes beside the 12 of Adam with a master copy."""
    found = block_states(model_memory(tiny.batch(dp=2, weight_sharding="none", sync_period=4)), "layer", experts=False)
    assert float(found.optimizer) == 528 * 20


def test_every_served_adapter_is_held() -> None:
    """Of rank 2: 64 weights for q, k and v, 32 for the output, 48 for each GEMM of the network; 2 bytes, thrice."""
    batch = tiny.batch(task="decode", lora_rank=2, lora_adapters=3, sequence_parallel=False)
    found = block_states(model_memory(batch), "layer", experts=False)
    assert float(found.weights) == float(found.used) == 2 * 528 + 3 * 2 * (64 + 32 + 48 + 48)


def test_a_layer_without_experts_has_none() -> None:
    found = block_states(model_memory(tiny.batch()), "layer", experts=True)
    assert (found.weights, found.used, found.gradients, found.optimizer, found.updated) == (0, 0, 0, 0, 0)


def test_a_dense_model_has_the_hits_that_are_stated() -> None:
    assert expert_cache_hits(tiny.batch(memory={"expert_cache": 0.3})) == 0.3


def test_the_first_stage_that_overfills_a_tier_is_named() -> None:
    """Three layers on two stages: 2 · 1056 + 160 bytes, and 1056 + 176."""
    batch = placed(replace(HOST, capacity_bytes=100.0), weights=("host",), pp=2, model={"layers": 3})
    (said,) = full_tiers(batch.base)
    assert said.startswith(f"host is full: needs {2272 / 2**30:.4g} GiB of {100 / 2**30:.4g} GiB")


def test_nothing_is_held_where_nothing_is_placed() -> None:
    assert bytes_in_tier(memory_of(tiny.batch()), "host") == {}


def test_metrics_of_what_is_offloaded_have_hbm_too() -> None:
    """14,688 bytes of optimizer states: 10,000 in the first tier, the rest in the second."""
    small = replace(HOST, capacity_bytes=10_000.0)
    found = tier_metrics(tiny.point(memory={"tiers": (small, SSD)}, offload=("optimizer",)))
    assert list(found) == ["hbm", "host", "ssd"]
    assert (found["host"]["optimizer"], found["ssd"]["optimizer"]) == (10_000, 4688)
    assert found["hbm"]["used_bytes"] == pytest.approx(float(memory_of(tiny.batch()).total) - 14_688, rel=1e-6)
