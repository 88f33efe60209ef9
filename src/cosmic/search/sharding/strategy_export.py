"""What was found as a strategy, for `workload.strategies` of a design.

A rule of a strategy holds for a tensor wherever its name occurs; those found here split nothing else of it (`instead`),
whatever strategies a design implies. Weights that are split over dp or cp are stored so, and gathered before use: that
is a second table, of the kind that ZeRO-3 is.
"""

from __future__ import annotations

from typing import Any

from cosmic.base.errors import SpecError
from cosmic.design.loading import design_tree
from cosmic.search.sharding.sharded_programs import axis_names, load_sharded_design
from cosmic.search.sharding.sharding_result import ShardingResult, TensorAnnotation

DATA_AXES = ("dp", "cp")
STORED_SUFFIX = "weights"
"""How the name of the second table ends."""


def strategy_tables(result: ShardingResult, name: str) -> dict[str, dict[str, Any]]:
    """Return the tables of strategies that say what was *result*, by their names: one, or two."""
    if not result.design:
        raise SpecError("out", name, "a strategy is of a model on a system: give both")
    if any("experts" in entry.dims for entry in result.annotations):
        raise SpecError("out", name, "experts have a mesh of their own in a design: search ep there")
    shardings: dict[str, TensorAnnotation] = {}
    for annotation in result.annotations:
        previous = shardings.setdefault(annotation.tensor, annotation)
        if previous.sharding != annotation.sharding and previous.dims == annotation.dims:
            rule = f"is [{previous.sharding}] in {previous.part} and [{annotation.sharding}] in {annotation.part}: a strategy has one"
            raise SpecError("out", annotation.tensor, rule)
    named = axis_names(result.mesh)
    used = {
        tensor: sharding
        for tensor, sharding in shardings.items()
        if sharding.role != "weight" or not stores_sharded_weights(result)
    }
    source = f"cosmic shard {result.program} --mesh {result.mesh}"
    tables = {name: _strategy_table(f"Sharding of {result.program}, found", source, used, named)}
    if stores_sharded_weights(result):
        weights = {tensor: sharding for tensor, sharding in shardings.items() if sharding.role == "weight"}
        table = _strategy_table(f"Stored weights of {result.program}, found", source, weights, named)
        tables[f"{name}_{STORED_SUFFIX}"] = {**table, "stored": True}
    return tables


def stores_sharded_weights(result: ShardingResult) -> bool:
    """Return whether weights are split over data-parallel axes: gathered before use."""
    named = axis_names(result.mesh)
    return any(
        named[axis] in DATA_AXES
        for annotation in result.annotations
        if annotation.role == "weight"
        for axis in annotation.sharding.used
    )


def _strategy_table(
    title: str, source: str, tensors: dict[str, TensorAnnotation], named: dict[str, str]
) -> dict[str, Any]:
    tensors_by_rule: dict[tuple[object, ...], list[str]] = {}
    rules: dict[tuple[object, ...], dict[str, Any]] = {}
    for tensor, annotation in tensors.items():
        dims = {dim: [named[axis] for axis in axes] for dim, axes in annotation.sharding.dims}
        partial = [named[axis] for axis in annotation.sharding.partial]
        key = (annotation.dims, str(dims), str(partial))
        tensors_by_rule.setdefault(key, []).append(tensor)
        rules[key] = {"dims": dims, "instead": list(dict.fromkeys(annotation.dims))} | (
            {"partial": partial} if partial else {}
        )
    annotations = [{"tensors": names, **rules[key]} for key, names in tensors_by_rule.items()]
    return {"title": title, "source": source, "annotations": annotations}


def design_with_strategies(result: ShardingResult, names: list[str]) -> dict[str, Any]:
    """Return the design that has these strategies."""
    tree = design_tree(load_sharded_design(result.design))  # complete, so that nothing of it is searched
    return {**tree, "workload": {**tree["workload"], "strategies": names}}
