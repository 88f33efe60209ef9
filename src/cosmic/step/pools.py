"""What a memory pool takes: ports of accelerators, links of nodes to the pool's switches, groups of memory behind them.

    memory groups ══ switches ══ node link ══ switch of the node ══ port of each accelerator

All N accelerators move as much at the same time, n of them behind each node's link. Chunks are on all three ways at the
same time, so that the slowest bounds a transfer. Of P bytes at each port

    port          P / b
    node link     P n / (r B_node)            r  accelerators of a node that want the same bytes
    groups        M N / (G B_group)           M  bytes that memory reads or writes for each accelerator

With switches that gather, the n accelerators of a node that are replicas of each other get the same bytes (r of them),
and memory reads every shard once: M is the shard as it is stored. With switches that reduce, gradients go the other
way, and memory adds them up: M is the shard written, and read before where there is something to add to. Otherwise
r = 1 and M = P. Words: Won et al., ASTRA-sim2.0, ISPASS 2023, arXiv 2303.14006, which simulates such a pool; the
formulas are ours.
"""

from __future__ import annotations

import numpy as np

from cosmic.cost.shapes import folded, shape, strides
from cosmic.design.batch import Batch
from cosmic.design.workload import AXES
from cosmic.numeric import Numeric, larger
from cosmic.workload.sizes import expert_degrees, folded_order


def pool_seconds(
    batch: Batch, place: int, port_bytes: Numeric, memory_bytes: Numeric, replicas_in_node: Numeric = 1.0
) -> Numeric:
    """Return the seconds, without latency, of a transfer between each accelerator and the pool that is a tier."""
    tier = f"memory.tiers.{place}"
    in_node = np.minimum(batch[f"{tier}.pool.npus_per_node"], batch.npus)
    port = port_bytes / batch[f"{tier}.bandwidth"]
    node = port_bytes * in_node / (replicas_in_node * batch[f"{tier}.pool.node_bandwidth"])
    rate = batch[f"{tier}.pool.groups"] * batch[f"{tier}.pool.group_bandwidth"]
    return larger(larger(port, node), memory_bytes * batch.npus / rate)


def replicas_in_node(batch: Batch, place: int, *, experts: bool) -> Numeric:
    """Return how many accelerators of a node hold shards of the same weights: ranks of dp and cp, of experts edp."""
    node = (np.minimum(batch[f"memory.tiers.{place}.pool.npus_per_node"], batch.npus),)
    degrees: dict[str, Numeric] = {axis: batch[f"workload.{axis}"] for axis in AXES}
    placed = strides(batch.base.workload.placement, degrees)
    if not experts:
        replicas, contexts = (shape(node, placed[axis], degrees[axis])[0].members for axis in ("dp", "cp"))
        return replicas * contexts
    of = expert_degrees(batch)
    order = [(placed[axis], degrees[axis]) for axis in folded_order(batch.base.workload.placement)]
    inside = of["etp"] * of["ep"]
    return folded(node, order, inside, inside * of["edp"])[0].members
