"""Designs of the ASTRA-sim 2.0 page: wafer-scale and conventional networks, and memory of a mixture in a pool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cosmic import evaluate, load_design
from cosmic.design import DesignPoint, Infeasible, Metrics, NetworkCosts, batch_of

NPUS = 512
Dims = tuple[tuple[str, int, float], ...]
"""Topology, NPUs, and bandwidth of an NPU in GB/s, of each dimension."""
EQUAL: Mapping[str, Dims] = {
    "wafer, 1-D": (("switch", 512, 600),),
    "wafer, 2-D": (("switch", 32, 300), ("switch", 16, 300)),
    "conventional, 3-D": (("ring", 16, 350), ("fully_connected", 8, 200), ("switch", 4, 50)),
    "conventional, 4-D": (("ring", 2, 250), ("fully_connected", 8, 200), ("ring", 8, 100), ("switch", 4, 50)),
}
"""600 GB/s of each NPU, in networks of different shape: on a wafer all of it reaches far."""
ASSUMED: Mapping[str, Dims] = {
    "wafer, 1-D, 350": (("switch", 512, 350),),
    "wafer, 1-D, 500": (("switch", 512, 500),),
    "wafer, 1-D, 600": (("switch", 512, 600),),
    "wafer, 2-D, 500": (("switch", 32, 250), ("switch", 16, 250)),
    "conventional, 3-D, 350": (("ring", 16, 200), ("fully_connected", 8, 100), ("switch", 4, 50)),
    "conventional, 4-D, 600": (("ring", 2, 250), ("fully_connected", 8, 200), ("ring", 8, 100), ("switch", 4, 50)),
}
"""Networks as the paper is thought to compare them, with the bandwidth of an NPU, GB/s: assumed, not checked."""
NETWORKS = {**EQUAL, **ASSUMED}
LATENCY = {"switch": "500 ns", "ring": "50 ns", "fully_connected": "50 ns"}
ALGORITHM = {"switch": "halving_doubling", "ring": "ring", "fully_connected": "direct"}
REPLICAS = {"tp": 1, "dp": NPUS, "weight_sharding": "none", "recompute": "none"}
MAPPINGS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "DLRM": ("dlrm-73b", {**REPLICAS, "global_batch": 64 * NPUS, "micro_batch": 64}),
    "GPT-3 175B": ("gpt3-175b", {"tp": 16, "dp": 32, "global_batch": 512, "micro_batch": 4}),
    "Transformer-1T": ("megatron-1008b", {"tp": 128, "dp": 4, "global_batch": 512, "micro_batch": 16}),
}
SCHEDULINGS = {"in order": "blueconnect", "levelled": "themis"}


def on_network(network: str, model: str, workload: Mapping[str, Any], scheduling: str = "in order") -> DesignPoint:
    """Return a model on 512 A100 with one of the networks, its parameters sharded over data parallelism."""
    dims = [
        {"topology": topology, "npus": npus, "bandwidth": f"{rate:g} GB/s", "latency": LATENCY[topology]}
        for topology, npus, rate in NETWORKS[network]
    ]
    collective = {
        "scheduling": "lifo",
        "chunks": 64,
        "multi_dim": SCHEDULINGS[scheduling],
        "algorithms": [ALGORITHM[topology] for topology, _, _ in NETWORKS[network]],
    }
    fixed = {"pp": 1, "cp": 1, "weight_sharding": "zero2", "recompute": "full", "uneven_tp": "pad"}
    settings = {"network": {"dims": dims}, "collective": collective, "memory.capacity": "1 TB", **fixed}
    return load_design(f"{model}@dgx-a100:{NPUS}", {**settings, **workload}, plain=True)


def total_gb_per_s(network: str) -> float:
    """Return the bandwidth of an NPU in all dimensions."""
    return sum(rate for _, _, rate in NETWORKS[network])


def metrics_of(point: DesignPoint, engine: str = "analytic") -> Metrics:
    """Return the metrics of a design that fits."""
    found = evaluate(point, engine=engine)
    if isinstance(found, Infeasible):
        raise SystemExit("; ".join(found.reasons))
    return found


def all_reduce_s(network: str, size_bytes: float, scheduling: str) -> float:
    """Return the seconds of an all-reduce among all NPUs."""
    point = on_network(network, "gpt3-175b", {"tp": 1, "dp": NPUS, "global_batch": NPUS, "micro_batch": 1}, scheduling)
    return float(NetworkCosts(batch_of(point)).seconds("all_reduce", ("dp",), size_bytes))


# ---------------------------------------------------------------------------------------------------- memory

MIXTURE, MIXTURE_NPUS = "kimi-k2", 256
PORT_GB_PER_S = 100.0


@dataclass(frozen=True)
class Memories:
    """One way to keep the state of a mixture outside of accelerators."""

    name: str
    tier: Mapping[str, Any]


def memories(rate_gb_per_s: float = PORT_GB_PER_S) -> list[Memories]:
    """Return memory of each accelerator's own, and pools with as much bandwidth, without and with their switches."""
    own = {"capacity": "1 TB", "bandwidth": f"{rate_gb_per_s:g} GB/s", "latency": "2 us"}
    pool = {
        "groups": MIXTURE_NPUS,
        "group_bandwidth": f"{rate_gb_per_s:g} GB/s",
        "npus_per_node": 16,
        "node_bandwidth": f"{16 * rate_gb_per_s:g} GB/s",
    }
    port = {**own, "bandwidth": f"{PORT_TIMES * rate_gb_per_s:g} GB/s"}
    return [
        Memories("host memory of each (ZeRO-Infinity)", {"name": "host", **own}),
        Memories("pool", {"name": "pool", **own, "pool": pool}),
        Memories("pool, in-switch gather and reduce", {"name": "pool", **own, "pool": {**pool, "in_switch": True}}),
        Memories("pool, in-switch, wider ports", {"name": "pool", **port, "pool": {**pool, "in_switch": True}}),
    ]


PORT_TIMES = 5
"""Of the bandwidth of memory: a switch that copies what it gets can fill wider ports."""


def mixture(each: Memories, **workload: Any) -> DesignPoint:
    """Return the mixture with weights, gradients and optimizer states in a tier."""
    name = each.tier["name"]
    placed = {state: [name] for state in ("weights", "gradients", "optimizer")}
    mesh = {"tp": 1, "cp": 1, "pp": 1, "dp": MIXTURE_NPUS, "ep": 16, "global_batch": 512, "micro_batch": 2}
    settings = {"memory.tiers": [each.tier], "memory.placement": placed, "memory.capacity": "80 GB"}
    settings |= {"weight_sharding": "zero3", "recompute": "full"}
    return load_design(f"{MIXTURE}@dgx-a100:{MIXTURE_NPUS}", {**settings, **mesh, **workload}, plain=True)
