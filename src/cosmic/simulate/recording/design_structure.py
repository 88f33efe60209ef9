"""What of a design decides which operations are computed, and what is a number in them.

Designs of one structure share a program: those with the same model, the same switches, the same names, and the same
figures that are known (a price, a rate of fp8). All other numbers are inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cosmic.design.design_batch import Column, Names
from cosmic.design.design_point import DesignPoint
from cosmic.design.model_layer import Model
from cosmic.network.dimension_wiring import is_wiring, label_of, wiring_at
from cosmic.network.transport_protocols import IDEAL
from cosmic.workload.mesh_sizes import STRUCTURE, is_memory_switch

STRUCTURAL = frozenset(f"workload.{name}" for name in STRUCTURE)
IGNORED = ("compute.accelerator", "compute.provenance")
"""Texts that no number follows from."""
REPEATED = "workload.virtual_stages"
"""How often some parts are computed: up to the next power of two of it."""


@dataclass(frozen=True, slots=True)
class Structure:
    """What designs must have in common to share a program."""

    model: Model
    fixed: tuple[tuple[str, Any], ...]
    """Every field that is no number, with its value."""
    numbers: tuple[str, ...]
    """The fields that are numbers, and so inputs."""
    names: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Fields whose name differs among the designs of a batch, and the names that they take."""
    repeats: int = 1
    """A power of two that no design's virtual stages exceed."""


def is_structural(path: str, column: Column) -> bool:
    """Return whether designs that differ in a column differ in their structure."""
    if path in STRUCTURAL or path.startswith("model.") or is_memory_switch(path):
        return True
    return not isinstance(column, Names) and column.dtype.kind not in "iuf"


def structure_of(base: DesignPoint, columns: Mapping[str, Column]) -> Structure:
    """Return the structure of designs whose numbers and names may differ in *columns*."""
    if not columns:
        structure: Structure = base.known.get(Structure) or base.known.setdefault(Structure, _structure_of(base, {}))
        return structure
    return _structure_of(base, columns)


def _structure_of(base: DesignPoint, columns: Mapping[str, Column]) -> Structure:
    # An ideal transport reads none of its settings: designs that differ only in these share a program.
    ideal = {
        f"network.dims.{index}.transport."
        for index, dim in enumerate(base.network.dims)
        if dim.transport == IDEAL and not any(path.startswith(f"network.dims.{index}.transport.") for path in columns)
    }
    fixed: list[tuple[str, Any]] = []
    numbers: list[str] = []
    names: list[tuple[str, tuple[str, ...]]] = []
    for path, value in base.fields.items():
        if path.startswith("model.") or path in IGNORED or f"{path.rpartition('.')[0]}." in ideal:
            continue
        if is_wiring(path, bool(base.network.faults)):
            fixed.append((path, value if not isinstance(value, tuple) else len(value)))
            continue
        column = columns.get(path)
        if isinstance(column, Names):
            names.append((path, column.names))
        elif (
            path not in STRUCTURAL
            and not is_memory_switch(path)
            and (column is not None or type(value) in (int, float))
        ):
            numbers.append(path)
        else:
            fixed.append((path, value))
    fixed += [(ideal_dim, "ideal") for ideal_dim in sorted(ideal)]
    # The dimensions whose links are looked at, with the names under which programs look up their costs
    labels = [label_of("", wiring_at(base.network, index)) for index in range(len(base.network.dims))]
    fixed += [(f"network.dims.{index} wired", label) for index, label in enumerate(labels) if label]
    virtual: Any = columns.get(REPEATED, base.workload.virtual_stages)
    repeats = 1 << int(np.max(virtual) - 1).bit_length()
    return Structure(base.model, tuple(fixed), tuple(numbers), tuple(names), repeats)
