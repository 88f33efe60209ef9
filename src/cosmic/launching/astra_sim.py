"""ASTRA-sim: system JSON, network YAML, remote-memory JSON, communicator groups and traces of one step.

Traces carry the compute durations of the analytic engine, which the system replays; ASTRA-sim simulates the
communication. Its links have no protocols: bandwidth is what large messages reach, latency what they take per hop.
"""

from __future__ import annotations

import json
from typing import Any

from cosmic.catalog.yaml_files import dump_yaml
from cosmic.cost.tiers import tiers_of
from cosmic.design.network import Dimension
from cosmic.design.point import DesignPoint
from cosmic.errors import require
from cosmic.evaluation import step_of
from cosmic.launching.launch import TRACES, Draft, Launch, about, targets
from cosmic.launching.quoting import options
from cosmic.traces.generation import generate

SYSTEM, NETWORK, MEMORY, GROUPS = "system.json", "network.yml", "memory.json", "comm_groups.json"
PROGRAM = "AstraSim_Analytical_Congestion_Unaware"
TOPOLOGIES = {"ring": "Ring", "fully_connected": "FullyConnected", "switch": "Switch", "fat_tree": "Switch"}
ALGORITHMS = {
    "ring": "ring",
    "halving_doubling": "halvingDoubling",
    "double_binary_tree": "doubleBinaryTree",
}
GIB = 2**30


@targets.register("astra-sim")
def astra_sim(point: DesignPoint) -> Launch:
    """Return the inputs with which ASTRA-sim simulates a step of *point*."""
    served = point.serving
    point = step_of(point)
    dims = point.network.dims
    require(bool(dims), "network.dims", [], "ASTRA-sim simulates networks; a single NPU has none")
    job = generate(point)
    draft = Draft()
    draft.warn(
        f"the load is left out: this is one step of {point.workload.task}, of all instances", when=served is not None
    )
    draft.warn("instances that only prefill are left out", when=served is not None and served.disaggregated)
    draft.add("--workload-configuration", TRACES)
    draft.add("--comm-group-configuration", GROUPS)
    draft.add("--system-configuration", SYSTEM)
    draft.add("--remote-memory-configuration", MEMORY)
    draft.add("--network-configuration", NETWORK)
    files = {
        SYSTEM: _json(_system(draft, point)),
        NETWORK: dump_yaml(_network(draft, point)),
        MEMORY: _json(_memory(draft, point)),
        GROUPS: json.dumps({name: list(ranks) for name, ranks in job.groups.items()}) + "\n",
    }
    return Launch(
        about=about(point, "ASTRA-sim's inputs"),
        command=(PROGRAM, *options(draft.arguments, equals=True)),
        arguments=draft.arguments,
        files=files,
        warnings=tuple(draft.warnings),
        traces=job.traces,
    )


def _json(data: dict[str, Any]) -> str:
    return json.dumps(data, indent=2) + "\n"


# ------------------------------------------------------------------------------------------------------ system


def _system(draft: Draft, point: DesignPoint) -> dict[str, Any]:
    collective = point.collective
    pairs = list(zip(collective.algorithms, point.network.dims, strict=True))
    sums = [_algorithm(draft, name, dim) for name, dim in pairs]
    plain = ["ring" if name == "doubleBinaryTree" else name for name in sums]  # trees run all-reduces only
    return {
        "scheduling-policy": collective.scheduling.upper(),
        "endpoint-delay": 0,
        "active-chunks-per-dimension": 1,
        "preferred-dataset-splits": collective.chunks,
        "all-reduce-implementation": sums,
        "all-gather-implementation": plain,
        "reduce-scatter-implementation": plain,
        "all-to-all-implementation": [_direct(dim) for dim in point.network.dims],
        "collective-optimization": "baseline" if collective.multi_dim == "baseline" else "localBWAware",
        "inter-dimension-scheduling": "offlineGreedy" if collective.multi_dim == "themis" else "ascending",
        "local-mem-bw": point.memory.bandwidth_bytes_per_s / 1e9,
        "peak-perf": point.compute.bf16_flop_per_s / 1e12,
        "roofline-enabled": 0,
    }


def _algorithm(draft: Draft, name: str, dim: Dimension) -> str:
    """Return ASTRA-sim's name of an algorithm; one that it lacks becomes a ring."""
    doubling = name == "halving_doubling" and dim.npus & (dim.npus - 1) != 0
    if name == "direct" or (name == "auto" and dim.topology == "fully_connected"):
        return _direct(dim)
    if name == "auto":
        return "ring"
    if name not in ALGORITHMS or doubling:
        draft.warn(f"ASTRA-sim runs no {name} among {dim.npus} NPUs: a ring replaces it")
        return "ring"
    return ALGORITHMS[name]


def _direct(dim: Dimension) -> str:
    """Return the direct algorithm: to all peers at once if each has its own link, else one by one."""
    return "direct" if dim.topology == "fully_connected" else "direct1"


# ----------------------------------------------------------------------------------------------------- network


def _network(draft: Draft, point: DesignPoint) -> dict[str, Any]:
    dims = point.network.dims
    for dim in dims:
        known = dim.topology in TOPOLOGIES
        draft.warn(f"ASTRA-sim has no {dim.topology}: a switch of the same bandwidth replaces it", when=not known)
    for place, dim in enumerate(dims):
        tiers = [each for each in tiers_of(dims, place) if each.oversubscription > 1 and each.npus < dim.npus]
        for tier in tiers:
            draft.warn(
                f"ASTRA-sim's dimensions have one bandwidth: dimension {place} has that of an NPU, also where traffic "
                f"leaves {tier.npus} NPUs, at {tier.oversubscription:g}:1"
            )
    timed = any(dim.transport.overhead_s or dim.transport.bulk_s for dim in dims)
    draft.warn("ASTRA-sim's links have no protocols: the overhead of a call is left out", when=timed)
    return {
        "topology": [TOPOLOGIES.get(dim.topology, "Switch") for dim in dims],
        "npus_count": [dim.npus for dim in dims],
        "bandwidth": [_bandwidth(dim) for dim in dims],
        "latency": [round(1e9 * (dim.latency_s + dim.transport.bulk_latency_s), 3) for dim in dims],
    }


def _bandwidth(dim: Dimension) -> float:
    """Return the rate of a message in GiB/s, ASTRA-sim's unit.

    ASTRA-sim's messages do not share an NPU's bandwidth: on a fully connected dimension each peer has its own link.
    """
    reached = dim.bandwidth_bytes_per_s * dim.transport.efficiency / dim.blocking
    at_once = dim.npus - 1 if dim.topology == "fully_connected" else 1
    return round(reached / at_once / GIB, 6)


# ------------------------------------------------------------------------------------------------------ memory


def _memory(draft: Draft, point: DesignPoint) -> dict[str, Any]:
    tiers = point.memory.tiers
    if not (tiers and point.workload.offload):
        return {"memory-type": "NO_MEMORY_EXPANSION"}
    draft.warn("ASTRA-sim has one outer memory tier: it gets the rate of the slowest", when=len(tiers) > 1)
    slowest = min(tier.bandwidth_bytes_per_s for tier in tiers)
    return {"memory-type": "PER_NPU_MEMORY_EXPANSION", "remote-mem-latency": 0, "remote-mem-bw": slowest / 1e9}
