"""ASTRA-sim: system JSON, network YAML, remote-memory JSON, communicator groups and traces of one step.

Traces carry the compute durations of the analytic engine, which the system replays; ASTRA-sim simulates the
communication. Its links have no protocols: bandwidth is what large messages reach, latency what they take per hop.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from cosmic.base.errors import require
from cosmic.design.design_point import DesignPoint
from cosmic.design.network_layer import Dimension
from cosmic.design.plain_data import dump_yaml
from cosmic.evaluation import step_of
from cosmic.frameworks.launch import TRACE_PREFIX, Draft, Launch, describe_launch, quote_options, targets
from cosmic.network.switch_tiers import tiers_of
from cosmic.simulate.trace_generation import StepTraces, generate_traces
from cosmic.step.state_placement import is_state_placed
from cosmic.traces.trace import MEMORY_TYPES as MEMORY_NODES
from cosmic.traces.trace import Template

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
def launch_astra_sim(point: DesignPoint) -> Launch:
    """Return the inputs with which ASTRA-sim simulates a step of *point*."""
    served = point.serving
    point = step_of(point)
    dims = point.network.dims
    require(bool(dims), "network.dims", [], "ASTRA-sim simulates networks; a single NPU has none")
    job = generate_traces(point)
    draft = Draft()
    draft.warn(
        f"the load is left out: this is one step of {point.workload.task}, of all instances", when=served is not None
    )
    draft.warn("instances that only prefill are left out", when=served is not None and served.disaggregated)
    draft.add("--workload-configuration", TRACE_PREFIX)
    draft.add("--comm-group-configuration", GROUPS)
    draft.add("--system-configuration", SYSTEM)
    draft.add("--remote-memory-configuration", MEMORY)
    draft.add("--network-configuration", NETWORK)
    files = {
        SYSTEM: _json(_system(draft, point)),
        NETWORK: dump_yaml(_network(draft, point)),
        MEMORY: _json(_step_memory(draft, job)),
        GROUPS: json.dumps({name: list(ranks) for name, ranks in job.groups.items()}) + "\n",
    }
    return Launch(
        about=describe_launch(point, "ASTRA-sim's inputs"),
        command=(PROGRAM, *quote_options(draft.arguments, equals=True)),
        arguments=draft.arguments,
        files=files,
        warnings=tuple(draft.warnings),
        traces=job.traces,
    )


def machine_files(point: DesignPoint, roofline: bool) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the machine of *point* as ASTRA-sim's files, by name, and what they leave out.

    By *roofline*, compute takes what its flop and bytes need; otherwise, the durations that traces state.
    """
    require(bool(point.network.dims), "network.dims", [], "a single NPU has no network to simulate traces on")
    draft = Draft()
    system = _system(draft, point) | {"roofline-enabled": int(roofline)}
    files = {SYSTEM: _json(system), NETWORK: dump_yaml(_network(draft, point)), MEMORY: _json(_memory(draft, point))}
    return files, tuple(draft.warnings)


def _json(data: dict[str, Any]) -> str:
    return json.dumps(data, indent=2) + "\n"


# ---- system


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


# ---- network


def _network(draft: Draft, point: DesignPoint) -> dict[str, Any]:
    dims = point.network.dims
    for dim in dims:
        is_supported = dim.topology in TOPOLOGIES
        draft.warn(
            f"ASTRA-sim has no {dim.topology}: a switch of the same bandwidth replaces it", when=not is_supported
        )
    for index, dim in enumerate(dims):
        tiers = [tier for tier in tiers_of(dims, index) if tier.oversubscription > 1 and tier.npus < dim.npus]
        for tier in tiers:
            draft.warn(
                f"ASTRA-sim's dimensions have one bandwidth: dimension {index} has that of an NPU, also where traffic "
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


# ---- memory


NO_MEMORY = {"memory-type": "NO_MEMORY_EXPANSION"}
POOLS = "ASTRA-sim's pool serves one request at a time: every NPU gets the rate that yours has when all use it"
READ_IN_PLACE = "ASTRA-sim has no memory that kernels read in place: durations of compute have it"


def _memory(draft: Draft, point: DesignPoint) -> dict[str, Any]:
    """Return the outer memory of a machine: its nearest tier."""
    tiers = [tier for tier in point.memory.tiers if tier.access == "copy"]
    if not tiers:
        return NO_MEMORY
    nearest = tiers[0]
    draft.warn(f"ASTRA-sim has one outer tier of memory: it is {nearest.name}, the nearest", when=len(tiers) > 1)
    draft.warn(POOLS, when=nearest.pool is not None)
    return _private_memory(nearest.latency_s, nearest.bandwidth_bytes_per_s)


def _step_memory(draft: Draft, job: StepTraces) -> dict[str, Any]:
    """Return the outer memory of a step: each of its transfers takes a latency, and its bytes at one rate.

    The rate is that of all transfers of the step together; where there is one tier, that of each.
    """
    tiers = job.point.memory.tiers
    draft.warn(READ_IN_PLACE, when=any(tier.access == "load_store" for tier in tiers))
    moved = [_transfers(job, template) for template in job.traces.templates()]
    count, size, seconds = (sum(column) for column in zip(*moved, strict=True))
    if not count:
        return NO_MEMORY
    copied = [tier for tier in tiers if tier.access == "copy"]
    single_tier = len(copied) == 1 and copied[0].pool is None and not job.point.workload.updates_on_host
    draft.warn(
        "ASTRA-sim has one outer tier of memory: it gets the rate of all transfers of the step together",
        when=not single_tier,
    )
    draft.warn(POOLS, when=any(tier.pool is not None for tier in copied))
    draft.warn("ASTRA-sim gives no statistics of overlap for steps with memory nodes, only their cycles")
    # Transfers that start ahead of their use hide the latency of their tier.
    late = (
        copied[0].latency_s
        if single_tier and is_state_placed(job.point) and job.point.memory.prefetch != "step"
        else 0.0
    )
    return _private_memory(late, size / (seconds - count * late))


def _transfers(job: StepTraces, template: Template) -> tuple[int, float, float]:
    """Return how many nodes of a rank move bytes between tiers, their bytes and their seconds."""
    is_transfer = np.isin(template.type, [int(memory_node) for memory_node in MEMORY_NODES])
    return (
        int(is_transfer.sum()),
        float(template.tensor_size[is_transfer].sum()),
        float(job.seconds_of(template)[is_transfer].sum()),
    )


def _private_memory(latency_s: float, rate: float) -> dict[str, Any]:
    late = {"remote-mem-latency": round(1e9 * latency_s), "remote-mem-bw": round(rate / 1e9, 6)}
    return {"memory-type": "PER_NPU_MEMORY_EXPANSION", **late}
