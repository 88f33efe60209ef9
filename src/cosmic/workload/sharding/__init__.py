"""Sharding: from annotations on a few tensors to the collectives of a whole graph.

    graph ──propagate──▶ a sharding for every tensor ──partition──▶ local operators and collectives

For a training step, `differentiate` adds the backward operators first.
"""

from cosmic.workload.sharding.annotation import REPLICATED, Annotation, Axes, Sharding, annotate
from cosmic.workload.sharding.autodiff import differentiate, prune
from cosmic.workload.sharding.folding import CROSSINGS
from cosmic.workload.sharding.partition import Mode, partition
from cosmic.workload.sharding.partitioned import CollectiveOp, Partitioned, PartitionedOperator, Transfer
from cosmic.workload.sharding.propagation import propagate
from cosmic.workload.sharding.resharding import Collective, Step, reshard, wire_share

__all__ = [
    "CROSSINGS",
    "REPLICATED",
    "Annotation",
    "Axes",
    "Collective",
    "CollectiveOp",
    "Mode",
    "Partitioned",
    "PartitionedOperator",
    "Sharding",
    "Step",
    "Transfer",
    "annotate",
    "differentiate",
    "partition",
    "propagate",
    "prune",
    "reshard",
    "wire_share",
]
