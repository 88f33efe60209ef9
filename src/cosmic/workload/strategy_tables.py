"""Strategies: tables of the shardings of some tensors. The rest of a layer follows by propagation.

A strategy is a YAML file of the catalog or of a user: rules that name tensors (or all weights) and assign mesh axes to
some of their dimensions. Several strategies combine: their axes are appended, each axis once per tensor, in the order
in which the strategies are listed.

Mesh axes: tp, cp, dp and pp; and for the weights of experts and the tokens sent to them, etp, ep and edp, which split
the ranks of tp, cp and dp another way (`cosmic.workload.sharding.graph_partition`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from cosmic.base.errors import SpecError, UnknownName
from cosmic.design import catalog_entries, schema
from cosmic.design.workload_layer import Workload
from cosmic.workload.operator_graph import Graph, Tensor
from cosmic.workload.sharding.tensor_sharding import Annotation, Sharding

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
