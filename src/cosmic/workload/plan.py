"""The plan of a model under some strategies: every block with its backward pass, partitioned over the mesh.

A plan holds no sizes. It depends on the model and on switches, so that one plan serves every degree of
parallelism: an axis of size one splits nothing and its collectives have nobody to talk to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from cosmic.design.batch import Batch
from cosmic.design.model import Model
from cosmic.workload.blocks import Block, blocks, dimensions
from cosmic.workload.graph import Graph, Sizes
from cosmic.workload.sharding import Partitioned, Propagation, Sharding, differentiate, partition, propagate
from cosmic.workload.strategies import Strategy, annotate_graph, stored_shardings, strategies_of

PLANNING = {"edp": 2, "ep": 2, "cp": 2, "tp": 4, "pp": 1, "batch": 4, "sequence": 1024, "context": 1024, "source": 1024}
PLANNING |= {"samples": 4}
"""Sizes at which ways to partition are compared, beside the model's own: any mapping of ordinary proportions."""


@dataclass(frozen=True, slots=True, eq=False)  # made once for each structure, and told apart by that
class BlockPlan:
    """One block of a model as each device runs it, forward and backward."""

    block: Block
    partitioned: Partitioned

    @property
    def shardings(self) -> Mapping[str, Sharding]:
        """How each tensor is kept."""
        return self.partitioned.shardings


def plan_of(batch: Batch) -> tuple[BlockPlan, ...]:
    """Return the plan that all designs of *batch* share (see `cosmic.workload.sizes.structural_paths`)."""
    if plan_of not in batch.known:
        workload = batch.base.workload
        names, training = strategies_of(workload), workload.task == "training"
        batch.known[plan_of] = plan(batch.base.model, names, training, workload.dropout)
    found: tuple[BlockPlan, ...] = batch.known[plan_of]
    return found


@cache
def plan(model: Model, strategies: tuple[str | Strategy, ...], training: bool, dropout: bool) -> tuple[BlockPlan, ...]:
    """Return the blocks of *model* partitioned as the *strategies* say, with gradients if *training*."""
    return tuple(
        _plan_block(block, strategies, {**dimensions(model), **PLANNING}, training) for block in blocks(model, dropout)
    )


def _plan_block(block: Block, strategies: tuple[str | Strategy, ...], sizes: Sizes, training: bool) -> BlockPlan:
    graph = block.graph
    if training:
        results = [
            operator.outputs[0].name for operator in graph.operators if _is_result(graph, operator.outputs[0].name)
        ]
        graph = Graph((*graph.operators, *differentiate(graph, results).operators))
    found = propagate(graph, annotate_graph(graph, strategies), sizes=sizes)
    kept = {**found.shardings, **stored_shardings(graph, strategies, found.shardings)}
    placed = partition(graph, Propagation(kept, found.conflicts), sizes=sizes, mode="as_written")
    return BlockPlan(block, placed)


def _is_result(graph: Graph, name: str) -> bool:
    """Return whether nothing in *graph* reads the tensor called *name*: its gradient comes from outside."""
    return not any(tensor.name == name for operator in graph.operators for tensor in operator.inputs)
