"""The plan of a model under some strategies: every block with its backward pass, partitioned over the mesh.

A strategy is a table of the shardings of some tensors; the rest of a layer follows by propagation. It is a YAML file of
the catalog or of a user: rules that name tensors (or all weights) and assign mesh axes to some of their dimensions.
Several strategies combine: their axes are appended, each axis once per tensor, in the order in which the strategies are
listed. Mesh axes: tp, cp, dp and pp; and for the weights of experts and the tokens sent to them, etp, ep and edp, which
split the ranks of tp, cp and dp another way (`cosmic.workload.sharding.graph_partition`).

A plan holds no sizes. It depends on the model and on switches, so one plan serves every degree of parallelism: an axis
of size one splits nothing, and its collectives are of groups of one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from cosmic.base.errors import SpecError, UnknownName
from cosmic.design import catalog_entries, schema
from cosmic.design.design_batch import Batch
from cosmic.design.model_layer import Model, served_model
from cosmic.design.program_model import ProgramModel
from cosmic.design.workload_layer import Workload
from cosmic.workload.lora_adapters import RANK, targets_of, trained_weights, workload_blocks
from cosmic.workload.model_blocks import Block, dimensions
from cosmic.workload.operator_graph import Graph, Sizes, Tensor
from cosmic.workload.sharding.autodiff import differentiate
from cosmic.workload.sharding.graph_partition import CROSSINGS, Partitioned, partition
from cosmic.workload.sharding.propagation import propagate
from cosmic.workload.sharding.tensor_sharding import Annotation, Sharding
from cosmic.workload.user_programs.program_blocks import add_equal_dims, forward_shardings, plan_part

# ---- strategies


AXES = ("dp", "cp", "tp", "pp", "edp", "ep", "etp")
WEIGHTS = "weight"
EXPERT_WEIGHTS = "expert_weight"
EXPERT_PREFIXES = ("w_expert_", "b_expert_")
RESIDUAL = "residual"
STREAM = frozenset(
    (
        *("x", "attended", "crossed", "y", "embedded", "arrived"),
        *("with_class", "with_positions", "with_segments", "with_distances"),
    )
)
"""The tensors of the residual stream, which ``residual`` names."""
KEYS = ("title", "source", "notes", "stored", "annotations")
RULE_KEYS = ("tensors", "dims", "instead", "partial")
USE, STREAM_LAST = 0, 1
"""Priorities: shardings of weights propagate within a layer before those of the residual stream. So heads stay split
over tp inside attention where the stream is split over tokens."""


@dataclass(frozen=True, slots=True)
class ShardingRule:
    """The axes of some dimensions, for the tensors that have them."""

    tensors: tuple[str, ...]
    """Names of tensors; ``weight`` for all weights but those of experts, ``expert_weight`` for these, ``residual`` for
    the residual stream."""
    dims: tuple[tuple[str, tuple[str, ...]], ...]
    """Dimensions with the axes that split them, major to minor."""
    instead: tuple[str, ...] = ()
    """Dimensions that are not split, whatever earlier rules say."""
    partial: tuple[str, ...] = ()
    """Axes along which the sum stays pending, unless they split a dimension."""

    def applies(self, tensor: Tensor) -> bool:
        """Return whether the rule names *tensor*."""
        named = EXPERT_WEIGHTS if tensor.name.startswith(EXPERT_PREFIXES) else WEIGHTS
        weight = tensor.role == "weight" and named in self.tensors
        residual = tensor.name in STREAM and RESIDUAL in self.tensors
        return weight or residual or tensor.name in self.tensors


@dataclass(frozen=True, slots=True)
class Strategy:
    """A named table of rules."""

    name: str
    rules: tuple[ShardingRule, ...]
    stored: bool = False
    """Whether it gives the sharding in which weights are stored, not used: they are gathered before they are read, and
    their gradients are reduce-scattered."""


@cache
def load_strategy(name: str) -> Strategy:
    """Return the strategy *name* of the catalog."""
    return read_strategy(catalog_entries.read_entry("strategies", name), name)


def read_strategy(tree: Mapping[str, Any], name: str) -> Strategy:
    """Return the strategy that the content of a file describes.

    >>> read_strategy({"annotations": [{"tensors": ["x"], "dims": {"batch": ["dp"]}}]}, "mine").rules[0].tensors
    ('x',)
    """
    for key in tree:
        if key not in KEYS:
            raise UnknownName.key(str(key), tree[key], KEYS)
    stored: bool = schema.read_value(bool, tree.get("stored", False), f"{name}.stored")
    rules = tree.get("annotations")
    if not isinstance(rules, list):
        raise SpecError(f"{name}.annotations", rules, "must be a list of rules")
    read = (_read_rule(rule, f"{name}.annotations.{index}") for index, rule in enumerate(rules))
    return Strategy(name, tuple(read), stored)


def _read_rule(tree: Any, where: str) -> ShardingRule:
    if not isinstance(tree, Mapping):
        raise SpecError(where, tree, "must be a mapping of keys to values")
    for key in tree:
        if key not in RULE_KEYS:
            raise UnknownName.key(f"{where}.{key}", tree[key], RULE_KEYS)
    names: tuple[str, ...] = schema.read_value(tuple[str, ...], tree.get("tensors", []), f"{where}.tensors")
    instead: tuple[str, ...] = schema.read_value(tuple[str, ...], tree.get("instead", []), f"{where}.instead")
    dims_tree = tree.get("dims", {})
    if not (names and isinstance(dims_tree, Mapping)):
        raise SpecError(where, dict(tree), "must give tensors, and dims with their axes")
    dims = tuple((str(dim), _read_axes(axes, f"{where}.dims.{dim}")) for dim, axes in dims_tree.items())
    return ShardingRule(names, dims, instead, _read_axes(tree.get("partial", []), f"{where}.partial"))


def _read_axes(tree: Any, where: str) -> tuple[str, ...]:
    axes: tuple[str, ...] = schema.read_value(tuple[str, ...], tree, where)
    for axis in axes:
        if axis not in AXES:
            raise UnknownName.among(where, axis, "mesh axis", AXES)
    if {"edp", "ep"} <= set(axes):
        raise SpecError(where, list(axes), "edp and ep split the ranks of experts: the axis of the batch is dp")
    return axes


@cache
def strategies_of(workload: Workload) -> tuple[str, ...]:
    """Return the names of the strategies that a workload implies by its switches, and lists."""
    names = ["data_parallel", "tensor_parallel", "expert_parallel", "expert_tensor_parallel", "table_parallel"]
    names.append("context_parallel")
    if workload.task == "training" and workload.sequence_parallel:
        names.append("sequence_parallel")
    if workload.cp_comm_type == "ulysses":
        names.append("ulysses")
    if workload.shards_weights:
        names.append("zero3")
    for index, name in enumerate(workload.strategies):
        if name not in catalog_entries.entry_names("strategies"):
            where = f"workload.strategies.{index}"
            raise UnknownName.among(where, name, "strategy", catalog_entries.entry_names("strategies"))
    return (*names, *workload.strategies)


def annotate_graph(graph: Graph, names: Iterable[str | Strategy]) -> dict[str, Annotation]:
    """Return the annotations of the tensors of *graph* that the strategies name."""
    tables = [table for table in _load_tables(names) if not table.stored]
    annotations = {}
    tensors = graph.tensors
    for tensor in tensors.values():
        primal = tensors.get(tensor.name.removeprefix("d_"), tensor)
        rules = _matching_rules(tables, tensor) or _matching_rules(
            tables, primal
        )  # a gradient has its tensor's, unless it is named
        if rules:
            stream = primal.name in STREAM or tensor.role == "input"
            named = {dim for rule in rules for dim in (*rule.instead, *(dim for dim, _ in rule.dims))}
            # Weights and the residual stream are as stated; of other tensors, dimensions that no rule names stay open.
            free = () if stream or primal.role == "weight" else tuple(dim for dim in tensor.dims if dim not in named)
            annotations[tensor.name] = Annotation(
                _split_tensor(tensor, rules, {}), free, STREAM_LAST if stream else USE
            )
    return annotations


def stored_shardings(
    graph: Graph, names: Iterable[str | Strategy], used: Mapping[str, Sharding]
) -> dict[str, Sharding]:
    """Return how weights and their gradients are stored: as they are *used*, split further by stored strategies."""
    tables = [table for table in _load_tables(names) if table.stored]
    shardings: dict[str, Sharding] = {}
    for weight in graph.weights:
        rules = _matching_rules(tables, weight)
        if rules:
            sharding = _split_tensor(weight, rules, dict(used[weight.name].dims))
            shardings |= {name: sharding for name in (weight.name, f"d_{weight.name}") if name in used}
    return shardings


def _load_tables(names: Iterable[str | Strategy]) -> list[Strategy]:
    return [load_strategy(name) if isinstance(name, str) else name for name in names]


def _matching_rules(tables: Iterable[Strategy], tensor: Tensor) -> list[ShardingRule]:
    return [rule for table in tables for rule in table.rules if rule.applies(tensor)]


def _split_tensor(tensor: Tensor, rules: Iterable[ShardingRule], start: Mapping[str, tuple[str, ...]]) -> Sharding:
    """Return the sharding of one tensor: *start*, with the axes of all rules added, each axis once."""
    dims, pending = dict(start), dict[str, None]()
    for rule in rules:
        pending |= dict.fromkeys(rule.partial)
        for dim in rule.instead:
            dims.pop(dim, None)
        for dim, axes in rule.dims:
            used = {axis for assigned in dims.values() for axis in assigned}
            if dim in tensor.dims:
                dims[dim] = dims.get(dim, ()) + tuple(axis for axis in axes if axis not in used)
    used = {axis for axes in dims.values() for axis in axes}
    return Sharding.of(dims, (axis for axis in pending if axis not in used))


# ---- plans


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
