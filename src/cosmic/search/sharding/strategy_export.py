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
from cosmic.search.sharding.sharding_result import Annotated, Sharded

DATA_AXES = ("dp", "cp")
STORED = "weights"
"""How the name of the second table ends."""


def strategy_tables(found: Sharded, name: str) -> dict[str, dict[str, Any]]:
    """Return the tables of strategies that say what was *found*, by their names: one, or two."""
    if not found.design:
        raise SpecError("out", name, "a strategy is of a model on a system: give both")
    if any("experts" in each.dims for each in found.annotations):
        raise SpecError("out", name, "experts have a mesh of their own in a design: search ep there")
    shardings: dict[str, Annotated] = {}
    for annotation in found.annotations:
        known = shardings.setdefault(annotation.tensor, annotation)
        if known.sharding != annotation.sharding and known.dims == annotation.dims:
            rule = f"is [{known.sharding}] in {known.part} and [{annotation.sharding}] in {annotation.part}: a strategy has one"
            raise SpecError("out", annotation.tensor, rule)
    named = axis_names(found.mesh)
    used = {
        tensor: sharding
        for tensor, sharding in shardings.items()
        if sharding.role != "weight" or not stores_sharded_weights(found)
    }
    source = f"cosmic model shard {found.program} --mesh {found.mesh}"
    tables = {name: _table(f"Sharding of {found.program}, found", source, used, named)}
    if stores_sharded_weights(found):
        weights = {tensor: sharding for tensor, sharding in shardings.items() if sharding.role == "weight"}
        table = _table(f"Stored weights of {found.program}, found", source, weights, named)
        tables[f"{name}_{STORED}"] = {**table, "stored": True}
    return tables


def stores_sharded_weights(found: Sharded) -> bool:
    """Return whether weights are split over data-parallel axes: gathered before use."""
    named = axis_names(found.mesh)
    return any(
        named[axis] in DATA_AXES
        for annotation in found.annotations
        if annotation.role == "weight"
        for axis in annotation.sharding.used
    )


def _table(title: str, source: str, tensors: dict[str, Annotated], named: dict[str, str]) -> dict[str, Any]:
    together: dict[tuple[object, ...], list[str]] = {}
    rules: dict[tuple[object, ...], dict[str, Any]] = {}
    for tensor, each in tensors.items():
        dims = {dim: [named[axis] for axis in axes] for dim, axes in each.sharding.dims}
        partial = [named[axis] for axis in each.sharding.partial]
        key = (each.dims, str(dims), str(partial))
        together.setdefault(key, []).append(tensor)
        rules[key] = {"dims": dims, "instead": list(dict.fromkeys(each.dims))} | (
            {"partial": partial} if partial else {}
        )
    annotations = [{"tensors": names, **rules[key]} for key, names in together.items()]
    return {"title": title, "source": source, "annotations": annotations}


def design_with(found: Sharded, names: list[str]) -> dict[str, Any]:
    """Return the design that has these strategies."""
    tree = design_tree(load_sharded_design(found.design))  # complete, so that nothing of it is searched
    return {**tree, "workload": {**tree["workload"], "strategies": names}}
