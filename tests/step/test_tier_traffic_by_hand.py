"""What crosses links to tiers and pools, by hand: experts, rows of tables, switches that gather and reduce.

Of the tiny design (`tests.step.tiny`) with four experts of 2 x 8 x 16 weights a layer has 304 others. A pool serves 4
accelerators in nodes of 2: ports of 10 bytes/s, links of nodes of 8, one group of memory. Two of the accelerators hold
the same two experts: they are in different nodes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cosmic.design.design_batch import Batch, batch_of
from cosmic.design.memory_layer import HBM, MemoryPool, MemoryTier
from cosmic.design.model_layer import Experts, Recommender
from cosmic.step.device_memory import memory_of, updated_elements
from cosmic.step.tier_traffic import TierTraffic
from tests.step import tiny
from tests.step.test_placement_by_hand import HOST, MOE, SSD, footprint, numbers, placed, traffic

DENSE, EXPERT = 304, 256
CLASSES = ("weights", "experts", "gradients", "expert_gradients")


def pool(group_bytes_per_s: float, **changed: Any) -> MemoryTier:
    shared = MemoryPool(groups=1, group_bandwidth_bytes_per_s=group_bytes_per_s, npus_per_node=2,
                  node_bandwidth_bytes_per_s=8.0, in_switch=True)  # fmt: skip
    return MemoryTier(name="pool", capacity_bytes=1e6, bandwidth_bytes_per_s=10.0, pool=shared, **changed)


def pooled(*tiers: MemoryTier, **changed: Any) -> TierTraffic:
    """Return four layers with experts on 4 accelerators, all whose sharded weights and gradients are in the pool."""
    given: dict[str, Any] = {"dp": 4, "ep": 2, "weight_sharding": "zero3", "model": {**MOE, "layers": 4}}
    given |= {"memory": {"active_experts": 0.5}, **dict.fromkeys(CLASSES, ("pool",)), **changed}
    return traffic(placed(*tiers, **given))


# ---- pools


def test_every_replica_sends_gradients_to_switches_that_reduce() -> None:
    """4 bytes of 304 weights, and of half of 2 experts."""
    assert numbers(pooled(pool(5.0)).stores("moe_layer", "backward")) == [4 * DENSE + 4 * EXPERT]


def test_every_port_gets_weights_from_switches_that_gather() -> None:
    """2 bytes of 304 weights, and of half of 2 experts; gradients are added where they are."""
    assert numbers(pooled(pool(5.0)).loads("moe_layer", "forward")) == [2 * DENSE + 2 * EXPERT]
    assert numbers(pooled(pool(5.0)).loads("moe_layer", "backward")) == [2 * DENSE + 2 * EXPERT]


@pytest.mark.parametrize(
    ("group", "others", "experts"),
    [
        (5.0, DENSE * 4 / 4 * 4 / 5, EXPERT * 4 / 2 * 4 / 5),  # memory writes each sum of 4, or 2, replicas
        (500.0, DENSE * 4 * 2 / 2 / 8, EXPERT * 4 * 2 / 8),  # replicas of a node share its link, of experts none is
    ],
)
def test_the_slowest_part_of_a_pool_takes_the_gradients(group: float, others: float, experts: float) -> None:
    assert float(pooled(pool(group)).store_s("moe_layer", "backward")) == pytest.approx(others + experts)


@pytest.mark.parametrize(
    ("group", "others", "experts"),
    [
        (5.0, DENSE / 4 * 4 * 4 / 5, EXPERT / 2 * 4 * 4 / 5),  # memory reads a master copy of each shard once
        (500.0, DENSE * 2 * 2 / 2 / 8, EXPERT * 2 * 2 / 8),
    ],
)
def test_the_slowest_part_of_a_pool_gives_the_weights(group: float, others: float, experts: float) -> None:
    assert float(pooled(pool(group)).load_s("moe_layer", "forward")) == pytest.approx(others + experts)


def test_memory_of_a_pool_reads_gradients_that_it_adds_to() -> None:
    """Of 4 microbatches the first writes alone: 7 transfers of a shard for 4 of them."""
    found = pooled(pool(5.0), global_batch=16, model={**MOE, "layers": 4})
    once = DENSE * 4 / 4 * 4 / 5 + EXPERT * 4 / 2 * 4 / 5
    assert float(found.store_s("moe_layer", "backward")) == pytest.approx(once * 7 / 4)


def test_a_pool_behind_a_host_is_one_of_two_links() -> None:
    """100 bytes cross the host's link as they are; switches of the pool take as long as its port would for 160."""
    found = pooled(replace(HOST, capacity_bytes=1e6), pool(5.0))
    assert numbers(found.link_time_bytes({"weights": 100.0}, "moe_layer")) == pytest.approx(
        [100, 100 * 0.5 * 4 / 5 * 10]
    )
    assert numbers(found.link_time_bytes({"optimizer": 100.0}, "moe_layer")) == [0, 0]


def test_without_switches_that_work_all_that_accelerators_read_is_read_in_memory() -> None:
    """A shard of 76 weights of 4 bytes for each of 4 accelerators, at 5 bytes/s."""
    tier = pool(5.0)
    assert tier.pool is not None
    found = pooled(replace(tier, pool=replace(tier.pool, in_switch=False)), experts=(HBM,))
    assert float(found.load_s("moe_layer", "forward")) == pytest.approx(76 * 4 * 4 / 5)


# ---- experts


def test_an_update_reads_and_writes_the_states_of_experts_in_use() -> None:
    """A quarter of 2 x 1024 weights, 12 bytes each, in and out."""
    batch = placed(HOST, expert_optimizer=("host",), model=MOE, memory={"active_experts": 0.25})
    assert numbers(traffic(batch).update.links) == [2 * 12 * 2 * 1024 / 4]


def test_the_processor_updates_experts_in_use_and_all_others() -> None:
    """776 others and a quarter of 2048 weights; 2 bytes of each come back. 20 bytes/s for 30 bytes of each.

    A processor reads a gradient (4), a master copy and two moments, and writes these three and the weight (2).
    """
    given: dict[str, Any] = {"optimizer": ("host",), "expert_optimizer": ("host",), "optimizer_device": "cpu"}
    found = traffic(placed(HOST, model=MOE, memory={"active_experts": 0.25}, **given)).update
    updated = 776 + 512
    assert numbers(found.links) == [2 * updated]
    assert numbers(found.gradient_links) == [4 * updated]
    assert float(found.in_hbm) == 0
    assert float(found.processor_s) == pytest.approx(30 * updated / 20)


# ---- tables


def recommender(**placement: Any) -> Batch:
    """Return tables of 4 and 2 rows of 4; 2 samples look up 4 (1 - (3/4)²) + 2 (1 - (1/2)²) = 3.25 of them."""
    model = Recommender(dense_features=1, tables=(4, 2), embedding=4, bottom=(4,), top=(1,))
    return batch_of(replace(placed(HOST, global_batch=2, micro_batch=1, **placement).base, model=model))


def test_rows_that_are_looked_up_travel_though_the_rest_stays() -> None:
    """Two microbatches share 3.25 rows of 4 in 2 bytes. The perceptrons, one block, are buffered, and stay.

    16 weights: 1 x 4 and 4 of the first, 1 x 7 and 1 of the second, which reads 4 outputs and 3 interactions.
    """
    batch = recommender(weights=("host",))
    found = traffic(batch)
    (name,) = found.model.blocks
    perceptrons = 2 * (4 + 4 + 7 + 1)
    assert float(memory_of(batch).parts["weights"]) == perceptrons
    for phase in ("forward", "backward"):
        assert numbers(found.loads(name, phase)) == pytest.approx([3.25 * 4 * 2 / 2])
    assert numbers(found.step_bytes()) == pytest.approx([2 * 2 * 3.25 * 4])


def test_rows_in_hbm_do_not_travel() -> None:
    found = traffic(recommender(gradients=("host",)))
    (name,) = found.model.blocks
    assert numbers(found.loads(name, "forward")) == [0]


# ---- placement


def test_what_is_in_hbm_and_may_live_further_out_can_move() -> None:
    """All weights stay, and could go; the optimizer's states are out already."""
    _, found = footprint(placed(HOST, weights=("hbm", "host"), optimizer=("host",)))
    assert float(found.movable) == 2448
    _, away = footprint(placed(HOST, weights=("host",)))
    assert float(away.movable) == 0


@pytest.mark.parametrize("changes", [{}, {"weight_sharding": "zero3"}, {"loss": "chunked"}])
def test_buffers_leave_less_of_hbm_and_gaps(changes: dict[str, Any]) -> None:
    """As many bytes of the optimizer's states go as there is too little room for, whatever else there is."""
    given: dict[str, Any] = {"dp": 2, "weight_sharding": "none", **changes}
    room = float(memory_of(tiny.batch(**given)).total) - 100
    batch = placed(HOST, optimizer=("hbm", "host"), memory={"capacity_bytes": room}, **given)
    memory, found = footprint(batch)
    assert float(found.homes["host", "optimizer"]) == pytest.approx(100, abs=1e-6)
    assert float(memory.total) == pytest.approx(room, abs=1e-6)


def test_sharded_weights_that_live_outside_are_buffered_as_they_are_stored() -> None:
    """Two of four layers of 528 weights, half on each of two replicas, as the master copy of 4 bytes."""
    memory, found = footprint(placed(HOST, weights=("host",), dp=2, weight_sharding="zero3", model={"layers": 4}))
    assert float(memory.parts["weights"]) == 2 * 528 / 2 * 4
    assert float(found.homes["host", "weights"]) == (4 * 528 + 168) / 2 * 4


def test_a_link_further_out_carries_what_lives_beyond_it() -> None:
    """Weights of one layer fit into the host: 2448 - 1000 bytes are on the drive."""
    batch = placed(replace(HOST, capacity_bytes=1000.0), SSD, weights=("host", "ssd"), task="decode",
                   memory={"resident_layers": 1})  # fmt: skip
    share = (2448 - 1000) / 2448
    assert numbers(traffic(batch).loads("layer", "forward")) == pytest.approx([1056, 1056 * share])


def test_layers_without_experts_take_none_from_outside() -> None:
    """A dense layer before one of experts: 528 weights, none of which is an expert's."""
    model = {"experts": Experts(count=4, active=1, ffn=16, dense_first=1), "layers": 4}
    found = traffic(placed(HOST, weights=("host",), experts=("host",), task="decode", model=model))
    assert numbers(found.loads("layer", "forward")) == [1056]
    assert numbers(found.loads("moe_layer", "forward")) == [2 * DENSE + 2 * EXPERT]


def test_gradients_of_experts_stay_where_the_others_go() -> None:
    """(2 · 304 + 80 + 88) · 4 bytes go; of the optimizer's states likewise 12 of each."""
    stay: dict[str, Any] = {"expert_gradients": (HBM,), "expert_optimizer": (HBM,)}
    _, found = footprint(placed(HOST, gradients=("host",), optimizer=("host",), model=MOE, **stay))
    assert float(found.homes["host", "gradients"]) == 4 * (2 * DENSE + 168)
    assert float(found.homes["host", "optimizer"]) == 12 * (2 * DENSE + 168)


def test_two_layers_of_a_microbatch_of_the_cache_are_resident() -> None:
    """A layer caches 128 bytes of a sequence; 4 sequences are 4 microbatches."""
    memory, found = footprint(placed(HOST, kv_cache=("host",), task="decode", global_batch=4, model={"layers": 10}))
    assert float(memory.parts["kv_cache"]) == 2 * 128
    assert float(found.homes["host", "kv_cache"]) == 4 * 10 * 128


@pytest.mark.parametrize(("chosen", "away"), [(None, 4), (0, 0), (1, 1), (3, 3), (9, 4)])
def test_activations_of_some_layers_are_placed(chosen: int | None, away: int) -> None:
    """So many of four layers of 832 bytes."""
    _, found = footprint(placed(HOST, activations=("host",), offload_num_layers=chosen, model={"layers": 4}))
    assert float(found.homes["host", "activations"]) == pytest.approx(away * 832)


def test_experts_without_a_master_copy_live_beside_their_states() -> None:
    """2 x 1024 weights of 2 bytes, and moments of 4; each travels in its own bytes."""
    batch = placed(HOST, experts=("host",), expert_optimizer=("host",), model=MOE, precision="bf16_pure",
                   memory={"active_experts": 0.25, "resident_layers": 1})  # fmt: skip
    _, found = footprint(batch)
    assert float(found.homes["host", "experts"]) == 2 * 2048
    assert float(found.homes["host", "expert_optimizer"]) == 4 * 2048
    assert numbers(traffic(batch).loads("moe_layer", "forward")) == [2 * 1024 / 4]


def test_experts_apart_from_their_states_have_16_bits() -> None:
    """The states are in HBM: 2 bytes of 2048 weights live outside, a quarter of 1024 travels for a layer."""
    batch = placed(HOST, experts=("host",), model=MOE, memory={"active_experts": 0.25, "resident_layers": 1})
    _, found = footprint(batch)
    assert float(found.homes["host", "experts"]) == 2 * 2048
    assert numbers(traffic(batch).loads("moe_layer", "forward")) == [2 * 1024 / 4]


# ---- room


def test_what_kernels_read_in_place_has_no_buffer() -> None:
    """Weights are in CXL alone, though a host's memory is there as well."""
    cxl = MemoryTier(name="cxl", capacity_bytes=1e6, bandwidth_bytes_per_s=25.0, access="load_store")
    memory, found = footprint(placed(HOST, cxl, weights=("cxl",)))
    assert float(memory.parts["weights"]) == 0
    assert (float(found.homes["cxl", "weights"]), float(found.used["host"])) == (2448, 0)


def test_buffers_of_activations_leave_gaps_too() -> None:
    """Without 100 bytes of what is needed beside activations that live outside, as many bytes of states go."""
    given: dict[str, Any] = {"activations": ("host",), "model": {"layers": 4}}
    room = float(memory_of(placed(HOST, **given)).total) - 100
    memory, found = footprint(placed(HOST, optimizer=("hbm", "host"), memory={"capacity_bytes": room}, **given))
    assert float(found.homes["host", "optimizer"]) == pytest.approx(100, abs=1e-6)
    assert float(memory.total) == pytest.approx(room, abs=1e-6)


def test_activations_fill_hbm_with_their_gaps() -> None:
    """Ten layers of 832 bytes; what stays, and buffers for two of them, take all of HBM."""
    given: dict[str, Any] = {"activations": ("hbm", "host"), "model": {"layers": 10}}
    whole = float(memory_of(tiny.batch(model={"layers": 10})).total)
    memory, found = footprint(placed(HOST, memory={"capacity_bytes": whole - 100}, **given))
    assert float(memory.total) == pytest.approx(whole - 100, abs=1e-6)
    assert float(found.homes["host", "activations"]) == pytest.approx(2 * 832 + 100 / 1.03, abs=1e-6)


def test_hbm_without_room_holds_nothing_that_may_live_outside() -> None:
    _, found = footprint(placed(HOST, optimizer=("hbm", "host"), memory={"capacity_bytes": 1.0}))
    assert numbers(found.homes[tier, "optimizer"] for tier in (HBM, "host")) == [0, 14_688]


def test_a_tier_that_is_too_full_takes_nothing_that_may_go_further() -> None:
    """Weights must be in a host of 100 bytes: it holds 23.48 times more than it has."""
    _, found = footprint(placed(replace(HOST, capacity_bytes=100.0), SSD, weights=("host",), optimizer=("host", "ssd")))
    assert numbers(found.homes[tier, "optimizer"] for tier in ("host", "ssd")) == [0, 14_688]
    assert float(found.excess) == pytest.approx(23.48)


def test_only_gradients_of_experts_in_use_are_buffered() -> None:
    """4 bytes of 776 others, and of a quarter of both layers' 1024."""
    memory, found = footprint(placed(HOST, expert_gradients=("host",), model=MOE, memory={"active_experts": 0.25}))
    assert float(memory.parts["gradients"]) == 4 * 776 + 4 * 2 * 1024 / 4
    assert float(found.homes["host", "expert_gradients"]) == 4 * 2 * 1024 / 4


# ---- cached experts


def test_a_cached_expert_has_its_states_with_it() -> None:
    """A quarter of 2 x 1024 weights of 2 bytes and moments of 4, which are on the drive, is in the host."""
    given: dict[str, Any] = {"experts": ("ssd",), "expert_optimizer": ("ssd",), "precision": "bf16_pure"}
    _, found = footprint(placed(HOST, SSD, model=MOE, memory={"active_experts": 0.25, "expert_cache": 0.25}, **given))
    assert float(found.copies["host"]) == 2048 * (2 + 4) / 4


@pytest.mark.parametrize(("sharding", "cached"), [("zero3", 2 * 1024 * (4 / 2 + 2) / 4), ("none", 2 * 1024 * 2 / 4)])
def test_a_cached_expert_of_a_master_copy_has_its_16_bits_beside(sharding: str, cached: float) -> None:
    """Of zero3's two replicas each stores half of 4 bytes; cached ones are whole in 2 bytes besides.

    Buffers for a quarter of the experts of two layers are as large as a quarter of 2 x 1024 weights in 2 bytes.
    """
    memory = {"active_experts": 0.25, "expert_cache": 0.25}
    _, found = footprint(placed(HOST, experts=("host",), model=MOE, dp=2, weight_sharding=sharding, memory=memory))
    assert float(found.copies[HBM]) == pytest.approx(cached + 1024)
    _, plain = footprint(placed(HOST, weights=("host",), experts=(HBM,), model=MOE, memory=memory))
    assert float(plain.copies[HBM]) == 2 * 2 * DENSE  # buffers of two layers


# ---- passes


def test_gradients_of_experts_come_in_for_all_but_the_first_microbatch() -> None:
    """Of 4 layers, 4 bytes of a quarter of 1024 weights, in 3 of 4 microbatches."""
    found = traffic(
        placed(
            *(HOST,),
            expert_gradients=("host",),
            model={**MOE, "layers": 4},
            memory={"active_experts": 0.25},
            global_batch=4,
        )
    )
    assert numbers(found.loads("moe_layer", "backward")) == [4 * 1024 / 4 * 3 / 4]
    assert numbers(found.stores("moe_layer", "backward")) == [4 * 1024 / 4]


@pytest.mark.parametrize(("layers", "first", "kept"), [(8, 9, 64), (2, 1, 64), (8, 1, (64 + 3 * 832) / 4)])
def test_layers_that_recompute_send_out_what_enters_them(layers: int, first: int, kept: float) -> None:
    """On two stages: 64 bytes of a layer's input, of all that recompute, and 832 of the others; on average."""
    given: dict[str, Any] = {"activations": ("host",), "recompute": "full", "recompute_num_layers": first}
    given |= {"pp": 2, "schedule": "gpipe", "global_batch": 4}
    found = traffic(placed(HOST, model={"layers": layers}, memory={"resident_layers": 1}, **given))
    assert numbers(found.stores("layer", "forward")) == pytest.approx([kept])


def test_a_microbatch_reads_its_part_of_the_cache() -> None:
    """128 bytes of each of 4 sequences in a layer."""
    found = traffic(placed(HOST, kv_cache=("host",), task="decode", global_batch=4, model={"layers": 10}))
    assert numbers(found.loads("layer", "forward")) == [128]


def test_a_slower_clock_slows_transfers_and_the_update() -> None:
    """Twice 1056 bytes at 10 bytes/s; states of 14,688 bytes in and out; 30 bytes of 1224 weights at 20 bytes/s."""
    slow: dict[str, Any] = {"compute": {"time_factor": 2.0}}
    found = traffic(placed(HOST, weights=("host",), optimizer=("host",), **slow))
    assert float(found.load_s("layer", "forward")) == pytest.approx(2 * 1056 / 10)
    assert float(found.update.links_s) == pytest.approx(2 * 2 * 14_688 / 10)
    there = traffic(placed(HOST, optimizer=("host",), optimizer_device="cpu", **slow)).update
    assert float(there.processor_s) == pytest.approx(2 * 30 * 1224 / 20)


def test_an_update_waits_for_links_that_carry_something() -> None:
    """States in the host, in and out at 10 bytes/s, and half a second; nothing is on the drive. HBM updates all."""
    far = (replace(HOST, latency_s=0.5), replace(SSD, latency_s=1e6))
    found = traffic(placed(*far, optimizer=("host",))).update
    assert float(found.links_s) == pytest.approx(2 * 14_688 / 10 + 0.5)
    assert (found.in_hbm, numbers(found.gradient_links)) == (1, [0, 0])


def test_a_served_model_updates_nothing() -> None:
    found = traffic(placed(HOST, weights=("host",), task="decode")).update
    assert (found.links, found.links_s, found.processor_s, found.in_hbm) == ([0], 0, 0, 1)


# ---- stages


@pytest.mark.parametrize(("vocab", "stage"), [(150, 0), (200, 1)])
def test_the_fullest_stage_is_so_with_what_lives_outside(vocab: int, stage: int) -> None:
    """Two layers and the embedding, or one and the head with 16 bytes of 4 logits of each word; states are outside.

    With 150 words 15,520 + 27,072 bytes and 20,992 + 20,832; with 200 words 17,920 + 31,872 and 26,592 + 25,632,
    beside what both have.
    """
    given: dict[str, Any] = {"optimizer": ("host",), "loss": "retained", "pp": 2, "global_batch": 1}
    memory, _ = footprint(placed(HOST, model={"layers": 3, "vocab": vocab}, **given))
    assert memory.stage == stage
    assert float(memory.offloaded["optimizer"]) == 12 * (2 * 528 + 8 * vocab if stage == 0 else 528 + 8 + 8 * vocab)


def test_hbm_that_is_too_small_is_the_fullest_tier() -> None:
    """It has two thirds of what it needs; the host is nearly empty."""
    whole = float(memory_of(placed(HOST, weights=("host",))).total)
    memory, _ = footprint(placed(HOST, weights=("host",), memory={"capacity_bytes": whole / 1.5}))
    assert float(memory.excess) == pytest.approx(0.5)


@pytest.mark.parametrize(("sharding", "weights"), [("none", 1224), ("zero1", 612), ("zero3", 612)])
def test_replicas_that_shard_states_share_the_update(sharding: str, weights: float) -> None:
    assert float(updated_elements(tiny.batch(dp=2, weight_sharding=sharding), 0)) == weights
