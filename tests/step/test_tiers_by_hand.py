"""Tiers of memory by hand: what lives where, what crosses which link, and what layers wait for.

Of the tiny design (`tests.step.tiny`), weights of the embedding have 160 bytes, of a layer 1056, of the head 176; in a
prefill they take 0.72, 33.6 and 2.66 s, in a decode step 0.18, 17.28 and 2.66 s. The host's link moves 10 bytes/s and
takes half a second to begin: transfers of one block take 16.5, 106.1 and 18.1 s.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cosmic.base.errors import SpecError
from cosmic.design.design_batch import Batch, batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.design.memory_layer import Memory, MemoryTier, Placement
from cosmic.design.model_layer import Experts
from cosmic.evaluation import evaluate
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.analytic_step import dissect_step
from cosmic.simulate.metrics import Infeasible, Metrics
from cosmic.step.device_memory import memory_of
from cosmic.step.kernel_costs import KernelCosts
from cosmic.step.tier_traffic import TierTraffic, kernel_bandwidth_bytes_per_s, tier_traffic
from tests.step import tiny

HOST = MemoryTier(
    name="host",
    capacity_bytes=1e6,
    bandwidth_bytes_per_s=10.0,
    latency_s=0.5,
    processor_bandwidth_bytes_per_s=20.0,
)
SSD = MemoryTier(name="ssd", capacity_bytes=1e6, bandwidth_bytes_per_s=4.0, latency_s=2.0)
CXL = MemoryTier(name="cxl", capacity_bytes=1e9, bandwidth_bytes_per_s=25.0, access="load_store")
WORKSPACE = 67_108_864
LAYER, WHOLE = 1056, 160 + 2 * 1056 + 176


def placed(*tiers: MemoryTier, memory: dict[str, Any] | None = None, model: Any = None, **given: Any) -> Batch:
    """Return the tiny design with tiers; keys of `Placement` are placed, all others are of the workload."""
    states = {key: given.pop(key) for key in list(given) if key in Placement.__dataclass_fields__}
    layer = {"tiers": tiers, "placement": Placement(**states), **(memory or {})}
    return tiny.batch(memory=layer, model=model, **given)


def traffic(batch: Batch) -> TierTraffic:
    found = tier_traffic(batch)
    assert found is not None
    return found


def seconds(batch: Batch) -> float:
    return float(dissect_step(batch).step.seconds)


# ---- homes


def test_state_that_lives_outside_has_buffers_for_two_layers_inside() -> None:
    memory = memory_of(placed(HOST, weights=("host",), task="decode"))
    assert memory.placed is not None
    assert memory.placed.homes["host", "weights"] == WHOLE
    assert memory.parts["weights"] == 2 * LAYER
    assert memory.offloaded["weights"] == WHOLE


def test_a_ring_of_k_buffers_takes_k_of_n_layers() -> None:
    """K of 10 layers resident: 3 buffers instead of 10 layers, embedding and head."""
    ring = placed(HOST, weights=("host",), task="decode", model={"layers": 10}, memory={"resident_layers": 3})
    assert memory_of(ring).parts["weights"] == 3 * LAYER
    assert memory_of(tiny.batch(task="decode", model={"layers": 10})).parts["weights"] == 10 * LAYER + 160 + 176


def test_what_does_not_fit_goes_on_to_the_next_tier() -> None:
    """HBM has room for the workspace, 1000 bytes more than all else, and two buffers: 1000 of 2448 bytes stay."""
    whole = memory_of(tiny.batch(task="decode"))
    room = float(whole.total) - WHOLE + 2 * LAYER + 100
    small = replace(HOST, capacity_bytes=1000.0)
    memory = memory_of(
        placed(small, SSD, weights=("hbm", "host", "ssd"), task="decode", memory={"capacity_bytes": room})
    )
    assert memory.placed is not None
    homes = {tier: float(size) for (tier, state), size in memory.placed.homes.items() if state == "weights"}
    assert homes == pytest.approx({"hbm": 100, "host": 1000, "ssd": WHOLE - 1100})
    assert float(memory.total) == pytest.approx(room)


def test_what_fits_stays_and_nothing_travels() -> None:
    inside, spilling = tiny.batch(task="decode"), placed(HOST, weights=("hbm", "host"), task="decode")
    assert memory_of(spilling).parts == memory_of(inside).parts
    assert seconds(spilling) == seconds(inside)


def test_a_tier_is_full_by_what_it_holds() -> None:
    point = placed(replace(HOST, capacity_bytes=2000.0), weights=("host",), task="decode").base
    found = evaluate(point)
    assert isinstance(found, Infeasible)
    assert found.reasons == ("host is full: needs 2.28e-06 GiB of 1.863e-06 GiB per NPU: 2.28e-06 weights",)


def test_what_has_one_tier_alone_gets_its_room_first() -> None:
    """Activations may go on to the drive, optimizer states (14,688 bytes) may not: the host has room for these."""
    batch = placed(replace(HOST, capacity_bytes=15e3), SSD, activations=("host", "ssd"), optimizer=("host",))
    memory = memory_of(batch)
    assert memory.placed is not None
    assert float(memory.placed.homes["host", "optimizer"]) == 14_688
    assert float(memory.placed.homes["host", "activations"]) == pytest.approx(15e3 - 14_688)
    assert memory.excess == 0


# ---- SE-MoE


def test_the_capacity_rules_of_se_moe_come_out() -> None:
    """GPU 16 D + 4 a S / L, CPU 16 a S, SSD 12 S, for D dense and S sparse parameters in L layers, a of them active.

    A layer has 4 experts of 2 x 8 x 16 weights. Its others are attention (4 x 64), norms (16) and the router (32).
    """
    batch = placed(
        HOST,
        SSD,
        experts=("ssd",),
        expert_optimizer=("ssd",),
        expert_gradients=("host",),
        model={"experts": Experts(count=4, active=1, ffn=16)},
        memory={"resident_layers": 1, "active_experts": 0.25, "expert_cache": 0.25},
        precision="fp16",
    )
    layers, share = 2, 0.25
    sparse = layers * 4 * (528 - 256 - 16)
    dense = layers * (256 + 16 + 4 * 8) + 80 + 88
    memory = memory_of(batch)
    assert memory.placed is not None
    states = sum(float(memory.parts[name]) for name in ("weights", "gradients", "optimizer"))
    assert states == pytest.approx(16 * dense + 4 * share * sparse / layers)
    assert float(memory.placed.used["host"]) == pytest.approx(16 * share * sparse)
    assert float(memory.placed.used["ssd"]) == pytest.approx(12 * sparse)


# ---- time


def test_bytes_of_the_second_tier_cross_both_links_one_after_the_other() -> None:
    """1056 bytes at 4 bytes/s after 2 s, then at 10 bytes/s after 0.5 s."""
    near, far = (traffic(placed(HOST, SSD, weights=(tier,), task="decode")) for tier in ("host", "ssd"))
    assert float(near.load_s("layer", "forward")) == pytest.approx(0.5 + 105.6)
    assert float(far.load_s("layer", "forward")) == pytest.approx(0.5 + 105.6 + 2 + 264)


def test_a_decode_step_has_the_longer_of_transfer_and_layer_before() -> None:
    """16.5 behind the head's 2.66, 106.1 behind the embedding, 106.1 and 18.1 behind 17.28 of a layer."""
    found = dissect_step(placed(HOST, weights=("host",), task="decode")).step
    assert float(found.seconds) == pytest.approx(16.5 + 2 * 106.1 + 18.1)
    assert float(found.parts["offload"]) == pytest.approx(16.5 + 2 * 106.1 + 18.1 - 37.4)


def test_the_first_block_of_a_prefill_waits_for_all_of_its_transfer() -> None:
    """16.5 before anything runs, in place of what the head of the prompt before would have hidden of it."""
    found = seconds(placed(HOST, weights=("host",), task="prefill"))
    assert found == pytest.approx(2.66 + 16.5 + 2 * 106.1 + 33.6)


def test_a_ring_never_stalls_if_transfers_take_no_longer_than_layers() -> None:
    """1056 bytes in 17.28 s of compute are 61.2 bytes/s; the first layer has 0.18 s of the embedding before it.

    So layers never stall at 61.2 bytes/s; the two blocks that follow shorter ones do.
    """
    quick = replace(HOST, bandwidth_bytes_per_s=LAYER / 17.28, latency_s=0.0)
    found = dissect_step(placed(quick, weights=("host",), task="decode", model={"layers": 10}))
    assert float(found.step.parts["offload"]) == pytest.approx(17.28 - 0.18)
    slow = replace(quick, bandwidth_bytes_per_s=LAYER / 18.28)
    slower = dissect_step(placed(slow, weights=("host",), task="decode", model={"layers": 10}))
    more = float(slower.step.seconds - found.step.seconds)
    ends = 160 * 18.28 / LAYER - 2.66  # of the embedding, which now takes longer than the head
    assert more == pytest.approx(10 * 1.0 + max(0.0, ends))


def test_one_buffer_hides_nothing() -> None:
    alone = seconds(placed(HOST, weights=("host",), task="decode", memory={"resident_layers": 1}))
    assert alone == pytest.approx(37.4 + 16.5 + 2 * 106.1 + 18.1)


def test_prefetch_over_a_whole_step_has_links_side_by_side_without_latency() -> None:
    """2448 bytes at 10 bytes/s beside 37.4 s; from the drive at 4 bytes/s."""
    step = {"prefetch": "step"}
    assert seconds(placed(HOST, SSD, weights=("host",), task="decode", memory=step)) == pytest.approx(244.8)
    assert seconds(placed(HOST, SSD, weights=("ssd",), task="decode", memory=step)) == pytest.approx(612.0)


def test_keys_and_values_come_in_when_decoding_and_go_out_in_a_prefill() -> None:
    """A layer caches 4 tokens of 2 x 2 x 4 numbers of 2 bytes: 128 bytes."""
    decode = traffic(placed(HOST, kv_cache=("host",), task="decode", model={"layers": 4}))
    prefill = traffic(placed(HOST, kv_cache=("host",), task="prefill", model={"layers": 4}))
    assert [float(decode.loads("layer", "forward")[0]), float(decode.stores("layer", "forward")[0])] == [128, 0]
    assert [float(prefill.loads("layer", "forward")[0]), float(prefill.stores("layer", "forward")[0])] == [0, 128]


def test_gradients_go_out_and_come_in_again_for_all_but_the_first_microbatch() -> None:
    """2112 bytes of a layer; of 4 microbatches, three add to what is there."""
    found = traffic(placed(HOST, gradients=("host",), global_batch=4))
    assert float(found.stores("layer", "backward")[0]) == 2112
    assert float(found.loads("layer", "backward")[0]) == 0.75 * 2112
    assert float(found.update.links[0]) == 4896  # read once by the update


def test_the_accelerator_updates_states_that_come_and_go() -> None:
    """14,688 bytes in and out at 10 bytes/s, after 0.5 s."""
    found = traffic(placed(HOST, optimizer=("host",))).update
    assert float(found.links_s) == pytest.approx(2 * 1468.8 + 0.5)
    assert found.processor_s == 0


def test_the_hosts_processor_takes_gradients_and_gives_weights() -> None:
    """1224 weights: 4896 bytes of gradients down, 2448 bytes of weights up; 30 bytes of each at 20 bytes/s.

    Master copy and two moments are read and written (24 bytes), gradients read (4), weights written (2).
    """
    found = traffic(placed(HOST, optimizer=("host",), optimizer_device="cpu")).update
    assert float(found.gradient_links[0]) == 4896
    assert float(found.links_s) == pytest.approx(244.8 + 0.5)
    assert float(found.processor_s) == pytest.approx(1224 * 30 / 20)
    assert found.in_hbm == 0


def test_states_on_a_drive_come_to_the_hosts_processor_alone() -> None:
    """14,688 bytes in and out at 4 bytes/s, after 2 s: none of them cross the link of the accelerator."""
    found = traffic(placed(HOST, SSD, optimizer=("ssd",), optimizer_device="cpu")).update
    assert [float(each) for each in found.links] == [2448, 2 * 14_688]
    assert float(found.links_s) == pytest.approx(2 * 14_688 / 4 + 2)


def test_a_layer_hides_dense_and_sparse_fetches_at_the_same_time() -> None:
    """SE-MoE's two dimensions: weights that replicas gather over the network, experts that come from the host.

    The step has the longest of compute with its communication, of gathers and of transfers, not their sum.
    """
    shape = {"experts": Experts(count=4, active=1, ffn=16)}
    given: dict[str, Any] = {"model": shape, "dp": 2, "weight_sharding": "zero3", "precision": "bf16_pure"}
    inside = dissect_step(tiny.batch(**given))
    fast = replace(HOST, bandwidth_bytes_per_s=1e5, latency_s=0.0)
    quick = dissect_step(placed(fast, experts=("host",), **given))
    assert float(quick.step.parts["weights"]) == float(inside.step.parts["weights"]) > 0
    assert sum(map(float, quick.stage.stalled.values())) == 0
    slow = dissect_step(placed(replace(HOST, latency_s=0.0), experts=("host",), **given))
    sent = traffic(slow.profile.batch)
    moved = sum(2 * float(sent.block_s("moe_layer" if "moe_layer" in slow.profile.counts else "layer", phase))
                for phase in ("forward", "backward"))  # fmt: skip
    assert float(slow.step.seconds) - float(inside.step.seconds) < moved


# ---- load and store


def test_kernels_read_expanded_memory_at_its_bandwidth() -> None:
    """All but the weights are in HBM: f of all bytes are at 25 bytes/s, the others at 100."""
    batch = placed(CXL, weights=("cxl",), task="decode")
    memory = memory_of(batch)
    share = WHOLE / (float(memory.peak) + WHOLE)
    assert float(kernel_bandwidth_bytes_per_s(batch)) == pytest.approx(1 / (share / 25 + (1 - share) / 100))
    beside = placed(CXL, weights=("cxl",), task="decode", memory={"expansion": "parallel"})
    assert float(kernel_bandwidth_bytes_per_s(beside)) == pytest.approx(1 / max(share / 25, (1 - share) / 100))
    assert memory.parts["weights"] == 0  # no copies, and so no buffers
    assert traffic(batch).loads("layer", "forward") == []


def test_optimizer_states_in_load_store_memory_slow_the_update_alone() -> None:
    batch = placed(CXL, optimizer=("cxl",))
    memory = memory_of(batch)
    assert float(kernel_bandwidth_bytes_per_s(batch)) == 100.0
    outside = float(memory.outer)
    share = outside / (outside + float(memory.parts["weights"]) + float(memory.parts["gradients"]))
    by_hand = 1 / (share / 25 + (1 - share) / 100)
    assert float(kernel_bandwidth_bytes_per_s(batch, update=True)) == pytest.approx(by_hand, rel=1e-6)
    alike = placed(CXL, optimizer=("cxl",), weights=("cxl",))  # one pool of pages
    assert kernel_bandwidth_bytes_per_s(alike) == kernel_bandwidth_bytes_per_s(alike, update=True)


# ---- names


def test_a_placement_names_tiers_that_are_there_nearest_first() -> None:
    usual: dict[str, Any] = {"capacity_bytes": 1.0, "bandwidth_bytes_per_s": 1.0, "tiers": (HOST, SSD)}
    for listed, rule in (
        (("cxl",), "no such tier"),
        (("ssd", "host"), "nearest first"),
        (("host", "host"), "once"),
        ((), "a tier at least"),
    ):
        with pytest.raises(SpecError, match=rule):
            Memory(**usual, placement=Placement(optimizer=listed))
    with pytest.raises(SpecError, match="already there"):
        Memory(**usual | {"tiers": (HOST, HOST)}, placement=Placement(optimizer=("host",)))
    with pytest.raises(SpecError, match="own memory"):
        replace(HOST, name="hbm")


def test_a_processor_of_unknown_bandwidth_updates_nothing() -> None:
    blind = replace(HOST, processor_bandwidth_bytes_per_s=None)
    for batch, reason in (
        (placed(blind, optimizer=("host",), optimizer_device="cpu"), "the bandwidth of host's processor is not known"),
        (tiny.batch(optimizer_device="cpu"), "no optimizer states are in an outer tier"),
    ):
        found = evaluate(batch.base)
        assert isinstance(found, Infeasible)
        assert reason in found.reasons[0]


def test_a_design_takes_the_memory_of_its_node_if_something_lives_there() -> None:
    plain = load_design("llama3-8b@dgx-h100:8", {"tp": 8})
    assert plain.memory.tiers == ()
    outer = load_design("llama3-8b@dgx-h100:8", {"tp": 8, "memory.placement.optimizer": ["host", "ssd"]})
    assert [(each.name, each.capacity_bytes) for each in outer.memory.tiers] == [("host", 250e9), ("ssd", 3.84e12)]
    with pytest.raises(SpecError, match="no memory behind the accelerators is known of mi300x-8x"):
        load_design("llama3-8b@mi300x:8", {"tp": 8, "memory.tiers": "node"})


def test_offloading_and_placing_the_optimizer_take_the_same_time() -> None:
    given = {"tp": 8, "global_batch": 8, "memory.tiers": [{"name": "host", "capacity": "1 TB", "bandwidth": "50 GB/s"}]}
    one, other = (
        evaluate(load_design("llama3-8b@dgx-h100:8", given | more, plain=True))
        for more in ({"offload": ["optimizer"]}, {"memory.placement.optimizer": ["host"]})
    )
    assert isinstance(one, Metrics)
    assert isinstance(other, Metrics)
    assert one.step_s == pytest.approx(other.step_s, rel=1e-12)
    assert one.memory_tiers["host"] == other.memory_tiers["host"]


def test_metrics_say_what_every_tier_holds() -> None:
    point: DesignPoint = placed(HOST, SSD, weights=("host",), task="decode").base
    found = evaluate(point)
    assert isinstance(found, Metrics)
    assert found.memory_tiers["host"] == {
        "capacity_bytes": 1e6, "used_bytes": WHOLE, "traffic_bytes": WHOLE, "weights": WHOLE
    }  # fmt: skip
    assert found.memory_tiers["ssd"]["used_bytes"] == 0
    assert found.memory_tiers["hbm"]["used_bytes"] == found.memory_used_bytes
    assert evaluate(tiny.point(task="decode")).memory_tiers == {}  # type: ignore[union-attr]
    assert float(memory_of(batch_of(point)).total) == found.memory_used_bytes


def test_the_optimizer_streams_states_at_the_rate_of_where_they_are() -> None:
    batch = placed(CXL, optimizer=("cxl",))
    rate = float(kernel_bandwidth_bytes_per_s(batch, update=True))
    assert rate < 100
    found, moved = KernelCosts(batch).update(10.0)
    assert float(found) == pytest.approx(float(moved) / rate)
