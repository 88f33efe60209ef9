"""Memory pools behind switches, by hand: the slowest of port, node link and memory groups bounds a transfer."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.design.design_batch import Batch, batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.design.memory_layer import Memory, MemoryPool, MemoryTier, Placement
from cosmic.design.model_layer import Experts, Transformer, count_parameters
from cosmic.evaluation import evaluate
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.metrics import Metrics
from cosmic.simulate.step_evaluation import evaluate_steps
from cosmic.step.communication import CommunicationKind, list_collectives
from cosmic.step.tier_traffic import pool_seconds, replicas_in_node, tier_traffic
from cosmic.workload.mapping_rules import invalid_reasons

GB = 1e9
MODEL = Transformer(layers=2, hidden=512, heads=8, ffn=2048, vocab=1024)
POOL = {
    "groups": 4,
    "group_bandwidth_bytes_per_s": 100 * GB,
    "npus_per_node": 8,
    "node_bandwidth_bytes_per_s": 200 * GB,
}
EVERYWHERE = ("weights", "gradients", "optimizer")


def design(
    model: Transformer = MODEL,
    states: tuple[str, ...] = EVERYWHERE,
    pool: dict[str, Any] | None = None,
    **workload: Any,
) -> DesignPoint:
    base = load_design("gpt3-1.3b@dgx-a100:16", plain=True)
    given: dict[str, Any] = {"sequence": 64, "global_batch": 32, "dp": 16, "tp": 1, "pp": 1, "cp": 1, "micro_batch": 1}
    given |= {"weight_sharding": "zero3", "virtual_stages": 1, "schedule": "1f1b", "recompute": "none"}
    shared = None if pool is None else MemoryPool(**(POOL | pool))
    tier = MemoryTier(name="pool", capacity_bytes=1e12, bandwidth_bytes_per_s=50 * GB, latency_s=1e-6, pool=shared)
    memory = Memory(
        capacity_bytes=80 * GB,
        bandwidth_bytes_per_s=2e12,
        tiers=(tier,),
        placement=Placement(**dict.fromkeys(states, ("pool",))),
    )
    return replace(base, model=model, memory=memory, workload=replace(base.workload, **(given | workload)))


def metrics(point: DesignPoint, **options: Any) -> Metrics:
    found = evaluate(point, **options)
    assert isinstance(found, Metrics), found
    return found


@pytest.mark.parametrize(
    ("pool", "port", "memory", "replicas", "seconds"),
    [
        ({}, 1e9, 1e9, 1, 0.04),  # 8 GB of a node at 200 GB/s; ports take 0.02, 16 GB of all at 400 GB/s 0.04
        ({"groups": 2}, 1e9, 1e9, 1, 0.08),
        ({"node_bandwidth_bytes_per_s": 50 * GB}, 1e9, 1e9, 1, 0.16),
        ({"groups": 2}, 1e9, 0.1e9, 8, 0.02),  # gathered: a node gets 1 GB, memory reads 1.6 GB at 200 GB/s
        ({"groups": 1, "group_bandwidth_bytes_per_s": 10 * GB}, 1e9, 0.1e9, 8, 0.16),
        ({"node_bandwidth_bytes_per_s": 10 * GB}, 1e9, 0.1e9, 8, 0.1),
    ],
)
def test_the_slowest_part_of_a_pool_bounds_a_transfer(
    pool: dict[str, Any], port: float, memory: float, replicas: float, seconds: float
) -> None:
    found = pool_seconds(batch_of(design(pool=pool)), 0, port, memory, replicas)
    assert float(found) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(
    ("mesh", "replicas"),
    [({}, 8), ({"tp": 4, "dp": 4}, 2), ({"tp": 8, "dp": 2}, 1), ({"tp": 2, "cp": 2, "dp": 4}, 4)],
)
def test_replicas_in_a_node_want_the_same_weights(mesh: dict[str, Any], replicas: float) -> None:
    point = design(pool={}, placement=("tp", "cp", "dp", "pp"), **mesh)
    assert float(replicas_in_node(batch_of(point), 0, experts=False)) == replicas


@pytest.mark.parametrize(
    ("mesh", "replicas"),
    [
        ({"ep": 1}, 8),
        ({"ep": 2}, 4),
        ({"ep": 4}, 2),  # every fourth rank of 8 holds the same experts
        ({"ep": 8}, 1),
        ({"ep": 2, "tp": 2, "dp": 8}, 2),
    ],
)
def test_replicas_of_experts_in_a_node_are_a_group_of_them_apart(mesh: dict[str, Any], replicas: float) -> None:
    model = replace(MODEL, experts=Experts(count=8, active=2, ffn=512))
    point = design(model, pool={}, placement=("tp", "cp", "dp", "pp"), **mesh)
    assert float(replicas_in_node(batch_of(point), 0, experts=True)) == replicas


def _layer_elements() -> int:
    return count_parameters(replace(MODEL, layers=2)) - count_parameters(replace(MODEL, layers=1))


def test_switches_send_every_shard_once_and_ports_get_all_of_them() -> None:
    """2 bytes of every weight at each port of 50 GB/s; memory reads 4 of each, once, at 400 GB/s."""
    traffic = tier_traffic(batch_of(design(pool={"in_switch": True})))
    assert traffic is not None
    assert float(traffic.load_s("layer", "forward")) == pytest.approx(2 * _layer_elements() / (50 * GB) + 1e-6)
    slow = tier_traffic(batch_of(design(pool={"in_switch": True, "group_bandwidth_bytes_per_s": 1 * GB})))
    assert slow is not None
    assert float(slow.load_s("layer", "forward")) == pytest.approx(4 * _layer_elements() / (4 * GB) + 1e-6)


def test_without_them_accelerators_load_shards_and_gather_over_the_network() -> None:
    """A shard of a sixteenth, 4 bytes an element; all accelerators' at 400 GB/s, a node's at 200 GB/s."""
    point = design(pool={})
    traffic = tier_traffic(batch_of(point))
    assert traffic is not None
    shard = 4 * _layer_elements() / 16
    assert float(traffic.load_s("layer", "forward")) == pytest.approx(8 * shard / (200 * GB) + 1e-6)
    assert gathered(point) == {"all_gather", "reduce_scatter"}


def test_switches_that_reduce_add_to_what_memory_has() -> None:
    """2 microbatches: memory writes each shard's 4 bytes twice, and reads it once, 1.5 times 4 bytes on average."""
    traffic = tier_traffic(batch_of(design(pool={"in_switch": True, "group_bandwidth_bytes_per_s": 1 * GB})))
    assert traffic is not None
    assert float(traffic.store_s("layer", "backward")) == pytest.approx(1.5 * 4 * _layer_elements() / (4 * GB) + 1e-6)


def gathered(point: DesignPoint) -> set[CommunicationKind]:
    """Return the collectives of weights and gradients that cross the network."""
    each, both = (list_collectives(batch_of(point), together=together) for together in (False, True))
    alone, together = ({use.kind for use in uses if use.role == "weights" and use.group > 1} for uses in (each, both))
    assert alone == together
    return together


def test_what_switches_do_leaves_the_network() -> None:
    assert gathered(design(pool={"in_switch": True})) == set()
    assert gathered(design(states=("weights",), pool={"in_switch": True})) == {"reduce_scatter"}
    assert gathered(design(states=("gradients",), pool={"in_switch": True})) == {"all_gather"}


def test_switches_need_sharded_state_in_the_pool_alone() -> None:
    rule = "memory.tiers.*.pool.in_switch without sharded state in the pool"
    for point in (
        design(pool={"in_switch": True}, weight_sharding="zero1"),
        design(pool={"in_switch": True}, states=("optimizer",)),
    ):
        (reason,) = invalid_reasons(point)
        assert reason.startswith(rule)
    assert invalid_reasons(design(pool={"in_switch": True})) == ()


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"groups": 0}, "groups = 0: must be at least 1"),
        ({"npus_per_node": 0}, "npus_per_node = 0: must be at least 1"),
        ({"group_bandwidth_bytes_per_s": 0.0}, "group_bandwidth = 0.0: must be positive"),
        ({"node_bandwidth_bytes_per_s": -1.0}, "node_bandwidth"),
    ],
)
def test_a_pool_has_groups_and_links(changes: dict[str, Any], rule: str) -> None:
    with pytest.raises(SpecError, match=rule):
        MemoryPool(**(POOL | changes))


def _drawn(rng: random.Random) -> DesignPoint:
    experts = Experts(count=8, active=2, ffn=512) if rng.random() < 0.5 else None
    tp = rng.choice((1, 2, 4))
    mesh: dict[str, Any] = {"tp": tp, "dp": 16 // tp, "global_batch": 64, "sequence": 4096}
    if experts:
        mesh["ep"] = rng.choice((1, 2, 4))
    pool = {
        "groups": rng.choice((1, 4, 16)),
        "group_bandwidth_bytes_per_s": rng.choice((5, 50)) * GB,
        "node_bandwidth_bytes_per_s": rng.choice((20, 400)) * GB,
        "npus_per_node": rng.choice((1, 4, 8, 16)),
        "in_switch": rng.random() < 0.7,
    }
    return design(replace(MODEL, hidden=1024, ffn=4096, experts=experts), pool=pool, **mesh)


def test_engines_agree_on_pools_and_slower_ones_are_never_faster() -> None:
    rng = random.Random(7)
    for _ in range(8):
        point = _drawn(rng)
        tier = point.memory.tiers[0]
        assert tier.pool is not None
        closed = metrics(point)
        assert metrics(point, engine="event").step_s == pytest.approx(closed.step_s, rel=0.1)
        slower = replace(tier, pool=replace(tier.pool, group_bandwidth_bytes_per_s=1e9))
        assert metrics(replace(point, memory=replace(point.memory, tiers=(slower,)))).step_s >= closed.step_s
        alone = replace(point, memory=replace(point.memory, tiers=(replace(tier, pool=None),)))
        if not tier.pool.in_switch:
            assert closed.step_s >= metrics(alone).step_s


def test_a_batch_of_pools_is_its_designs() -> None:
    point = design(pool={"in_switch": True})
    rates = np.array([1e8, 1e9, 1e10])
    batch = Batch(point, {"memory.tiers.0.pool.group_bandwidth": rates})
    found = evaluate_steps(batch).columns["step_s"]
    for step, rate in zip(found.tolist(), rates.tolist(), strict=True):
        assert step == metrics(design(pool={"in_switch": True, "group_bandwidth_bytes_per_s": rate})).step_s


def test_a_pool_is_written_in_a_file() -> None:
    tier: dict[str, Any] = {"name": "pool", "capacity": "1 TB", "bandwidth": "256 GB/s"}
    tier["pool"] = {"groups": 256, "group_bandwidth": "100 GB/s", "node_bandwidth": "1 TB/s", "in_switch": True}
    placed = {state: ["pool"] for state in EVERYWHERE}
    point = load_design("llama3-8b@dgx-h100:16", {"memory.tiers": [tier], "memory.placement": placed,
                        "weight_sharding": "zero3", "tp": 1, "pp": 1, "cp": 1, "dp": 16}, plain=True)  # fmt: skip
    assert point.memory.tiers[0].pool == MemoryPool(
        groups=256, group_bandwidth_bytes_per_s=1e11, node_bandwidth_bytes_per_s=1e12, in_switch=True
    )


@pytest.mark.parametrize(
    ("pool", "bytes_per_s"),
    [
        (None, 50 * GB),  # a port
        ({}, 200 * GB / 8),  # eight accelerators share the link of their node
        ({"groups": 1}, 100 * GB / 16),  # all 16 share the only group of memory
    ],
)
def test_states_of_the_update_share_a_pool_as_all_others_do(pool: dict[str, Any] | None, bytes_per_s: float) -> None:
    """8 bytes of moments of each of a sixteenth of the weights come and go, after a microsecond."""
    found = tier_traffic(batch_of(design(states=("optimizer",), pool=pool)))
    assert found is not None
    moved = 2 * 8 * count_parameters(MODEL) / 16
    assert float(found.update.links_s) == pytest.approx(moved / bytes_per_s + 1e-6)


def test_gradients_share_a_pool_on_their_way_to_a_processor() -> None:
    """4 bytes of a sixteenth of the weights' gradients, at an eighth of a node's link."""
    point = design(states=("optimizer",), pool={}, optimizer_device="cpu")
    tier = replace(point.memory.tiers[0], processor_bandwidth_bytes_per_s=100 * GB)
    found = tier_traffic(batch_of(replace(point, memory=replace(point.memory, tiers=(tier,)))))
    assert found is not None
    assert float(found.gradients_out_s) == pytest.approx(4 * count_parameters(MODEL) / 16 / (25 * GB) + 1e-6)
