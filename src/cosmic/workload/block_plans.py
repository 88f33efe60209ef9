"""The plan of a model under some strategies: every block with its backward pass, partitioned over the mesh.

A plan holds no sizes. It depends on the model and on switches, so one plan serves every degree of parallelism: an axis
of size one splits nothing, and its collectives are of groups of one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from cosmic.design.design_batch import Batch
from cosmic.design.model_layer import Model, served_model
from cosmic.design.program_model import ProgramModel
from cosmic.workload.lora_adapters import RANK, targets_of, trained_weights, workload_blocks
from cosmic.workload.model_blocks import Block, dimensions
from cosmic.workload.operator_graph import Graph, Sizes
from cosmic.workload.sharding.autodiff import differentiate
from cosmic.workload.sharding.graph_partition import CROSSINGS, Partitioned, partition
from cosmic.workload.sharding.propagation import propagate
from cosmic.workload.sharding.tensor_sharding import Sharding
from cosmic.workload.strategy_tables import Strategy, annotate_graph, stored_shardings, strategies_of
from cosmic.workload.user_programs.program_blocks import add_equal_dims
from cosmic.workload.user_programs.program_plan import forward_shardings, plan_part

PLANNING = {"dp": 4, "cp": 2, "tp": 4, "pp": 1, "batch": 4, "sequence": 1024, "context": 1024, "source": 1024}
PLANNING |= {RANK: 32, "samples": 4, "tokens": 4096, "index_context": 128}
PLANNING |= {"edp": 2, "ep": 8, "etp": 2, "tep": 2, "oep": 4}
"""Sizes, beside the model's own, at which partitionings are compared: any mapping of ordinary proportions."""
DATA_AXES = ("dp", "cp")


@dataclass(frozen=True, slots=True, eq=False)  # made once for each structure, and compared by identity
class BlockPlan:
    """One block of a model as each accelerator runs it, forward and backward."""

    block: Block
    partitioned: Partitioned
    shardings: Mapping[str, Sharding]
    """The sharding in which each tensor is kept."""
    used: Mapping[str, Sharding] | None = None
    """Of a program, the sharding in which each tensor is used, whatever shards its weights are stored in."""
    split: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Data-parallel axes that split weights while they are used, by the names of these: no replicas are along them."""


def plan_of(batch: Batch) -> tuple[BlockPlan, ...]:
    """Return the plan that all designs of *batch* share (see `cosmic.workload.mesh_sizes.structural_paths`)."""
    workload = batch.base.workload
    training = workload.task == "training"
    dropout = training and workload.dropout
    targets = targets_of(workload)
    return batch.once(
        plan_of, lambda: plan_blocks(batch.base.model, strategies_of(workload), training, dropout, targets)
    )


@cache
def plan_blocks(
    model: Model,
    strategies: tuple[str | Strategy, ...],
    training: bool,
    dropout: bool,
    targets: tuple[str, ...] = (),
) -> tuple[BlockPlan, ...]:
    """Return the blocks of *model* partitioned by the *strategies*, with gradients if *training*.

    With *targets*, these modules have adapters, and all other weights are frozen.
    """
    model = model if training else served_model(model)
    sizes = {**dimensions(model), **PLANNING}
    if isinstance(model, ProgramModel):
        return _plan_program(model, strategies, sizes, training)
    return tuple(
        _plan_block(block, strategies, sizes, training, bool(targets))
        for block in workload_blocks(model, dropout, targets)
    )


def _plan_program(
    model: ProgramModel, strategies: tuple[str | Strategy, ...], sizes: Sizes, training: bool
) -> tuple[BlockPlan, ...]:
    """Return the parts of a program, partitioned as its own annotations say; of strategies only ZeRO-3 matters."""
    sizes = add_equal_dims(model, {**sizes, **model.cut_sizes})
    shardings = forward_shardings(model, sizes)
    plans = []
    for block in workload_blocks(model, False, ()):
        partitioned, used = plan_part(model, block, shardings, sizes, training, sharded="zero3" in strategies)
        plans.append(BlockPlan(block, partitioned, partitioned.shardings, used=used))
    return tuple(plans)


def _plan_block(
    block: Block, strategies: tuple[str | Strategy, ...], sizes: Sizes, training: bool, adapted: bool
) -> BlockPlan:
    graph = block.graph
    trained = trained_weights(block, adapted)
    if training and (trained or block.part != "first"):  # nothing before the first adapter has a gradient
        # Gradients enter a block at what no operator of it reads: its output, or the loss.
        results = [
            operator.outputs[0].name for operator in graph.operators if _is_result(graph, operator.outputs[0].name)
        ]
        frozen = frozenset(weight.name for weight in graph.weights) - trained
        graph = Graph((*graph.operators, *differentiate(graph, results, frozen).operators))
    used = propagate(graph, annotate_graph(graph, strategies), sizes=sizes, crossings=CROSSINGS)
    # ZeRO stores weights and gradients in smaller shards than the operators use: the difference is gathered.
    stored = {**used, **stored_shardings(graph, strategies, used)}
    partitioned = partition(graph, stored, sizes=sizes, mode="as_written", crossings=CROSSINGS)
    # Weights that are split over dp in use have no replicas along it, and no gradients to all-reduce.
    split = {
        weight.name: tuple(axis for axis in DATA_AXES if axis in used[weight.name].used) for weight in graph.weights
    }
    return BlockPlan(
        block, partitioned, partitioned.shardings, split={name: axes for name, axes in split.items() if axes}
    )


def _is_result(graph: Graph, name: str) -> bool:
    """Return whether no operator of *graph* reads the tensor *name*: its gradient comes from outside."""
    return not any(tensor.name == name for operator in graph.operators for tensor in operator.inputs)
