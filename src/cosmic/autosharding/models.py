"""Models of the catalog as programs: their blocks, joined by the residual stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from cosmic import catalog
from cosmic.autosharding.mesh import Mesh
from cosmic.autosharding.parts import Part, Parts, as_computed
from cosmic.design.batch import batch_of
from cosmic.design.point import DesignPoint
from cosmic.errors import require
from cosmic.mapping.completing import load_design
from cosmic.workload.attended import visible_share
from cosmic.workload.blocks import Block, blocks
from cosmic.workload.sizes import sizes_of
from cosmic.workload.strategies import STREAM

DESIGN_AXES = ("dp", "cp", "tp")
"""The axes of a design over which tensors of dense layers are split, outermost first."""
PLAIN_SYSTEM = "dgx-h100"
"""Whose defaults a model without a system has; nothing is priced on it."""


def axis_names(mesh: Mesh) -> dict[str, str]:
    """Return what each axis of *mesh* is called in a design: its own name, else dp, cp and tp from the outside.

    >>> from cosmic.autosharding.mesh import read_mesh
    >>> axis_names(read_mesh("x=8,y=16")), axis_names(read_mesh("tp=8,x=2"))
    ({'x': 'dp', 'y': 'tp'}, {'tp': 'tp', 'x': 'dp'})
    """
    free = [axis for axis in DESIGN_AXES if axis not in mesh.sizes]
    others = [name for name in mesh.sizes if name not in DESIGN_AXES]
    if len(others) == len(DESIGN_AXES) - 1 and len(free) == len(DESIGN_AXES):
        free = ["dp", "tp"]
    given = dict(zip(others, free, strict=False))
    return {name: given.get(name, name) for name in mesh.sizes}


def design_of(
    model: str, system: str | None, mesh: Mesh, *, batch: int | None, sequence: int | None, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the design that a model, sharded over a mesh on a system, is."""
    named = axis_names(mesh)
    degrees = dict.fromkeys(DESIGN_AXES, 1) | {named[axis]: size for axis, size in mesh.axes}
    global_batch = batch if batch is not None else 2 * mesh.devices
    require(global_batch >= 1, "batch", global_batch, "must be at least 1")
    dp = degrees["dp"]
    require(global_batch % dp == 0, "batch", global_batch, f"must be a multiple of the {dp} devices of the outer axis")
    workload: dict[str, Any] = {
        **degrees,
        "pp": 1,
        "ep": 1,
        "global_batch": global_batch,
        "micro_batch": global_batch // dp,
        "placement": [*(named[name] for name in reversed(mesh.sizes)), *_unplaced(named), "pp"],
        "weight_sharding": "none",
        "sequence_parallel": False,
        "cp_comm_type": "all_gather",
        "recompute": "none",
        **({"sequence": sequence} if sequence is not None else {}),
        **settings,
    }
    return {"model": model, "system": f"{system or PLAIN_SYSTEM}:{mesh.devices}", "workload": workload}


def _unplaced(named: Mapping[str, str]) -> list[str]:
    return [axis for axis in reversed(DESIGN_AXES) if axis not in named.values()]


def model_parts(name: str, point: DesignPoint, *, training: bool) -> Parts:
    """Return the blocks of a design's model as parts that the residual stream joins."""
    batch = batch_of(point)
    found = []
    all_blocks = blocks(point.model, training and point.workload.dropout)
    named = Counter(weight.name for block in all_blocks for weight in block.graph.weights)
    for block in all_blocks:
        extra = {"visible": float(visible_share(batch, block))}
        # A strategy has one sharding for a name, and an embedding may be the head's weight too.
        shared = {weight.name: weight.name for weight in block.graph.weights if named[weight.name] > 1}
        stream = {**_stream(block), **shared}
        found.append(Part(block.name, as_computed(block.graph), training, block.repeats, stream, extra=extra))
    sizes = {key: float(value) for key, value in sizes_of(batch).items()}
    return Parts(name, tuple(found), sizes)


def _stream(block: Block) -> dict[str, str]:
    """Return the tensors of a block that are the residual stream between blocks: what enters, and what leaves."""
    tensors = block.graph.tensors
    found = {}
    if "x" in tensors and tensors["x"].role == "activation":
        found["x"] = f"stream[{','.join(tensors['x'].dims)}]"
    leaving = block.graph.operators[-1].outputs[0]
    if block.part != "last" and leaving.name in STREAM:
        found[leaving.name] = f"stream[{','.join(leaving.dims)}]"
    return found


def is_model(name: str) -> bool:
    """Return whether *name* is a model of the catalog, or a folder or file of Hugging Face."""
    return catalog.known_as("models", name) is not None


def load_point(tree: Mapping[str, Any]) -> DesignPoint:
    """Return the design of `design_of`, complete."""
    return load_design(tree, plain=True)
