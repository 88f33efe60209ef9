"""The design point: one complete, concrete system."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

from cosmic.design import schema
from cosmic.design.collective import Collective
from cosmic.design.compute import Compute
from cosmic.design.memory import Memory
from cosmic.design.model import Model
from cosmic.design.network import Network
from cosmic.design.workload import Workload
from cosmic.errors import require

MOST_CHANGED = 1_000
"""Most changed designs that a design caches."""
STACKS = ("model", "workload", "collective", "network", "compute", "memory")
"""The layers of the stack: a search opens one, several or all of them."""


@dataclass(frozen=True, kw_only=True)
class DesignPoint:
    """One complete system: everything that evaluation needs, nothing left to default."""

    model: Model
    workload: Workload
    collective: Collective
    network: Network
    compute: Compute
    memory: Memory

    def __post_init__(self) -> None:
        given, wanted = len(self.collective.algorithms), len(self.network.dims)
        rule = f"the network has {wanted} dimensions, and each takes one algorithm"
        require(given == wanted, "collective.algorithms", list(self.collective.algorithms), rule)

    def __getstate__(self) -> dict[str, Any]:
        """Return the layers alone: caches may hold what no other process can read."""
        return {stack: self.__dict__[stack] for stack in STACKS}

    @cached_property
    def fields(self) -> dict[str, Any]:
        """Every leaf field, by its path."""
        return dict(schema.leaves(self))

    def changed(self, changes: Mapping[str, Any]) -> DesignPoint:
        """Return this design with some fields changed; equal changes return the same cached design."""
        key = tuple(changes.items())
        if key not in self._changed:
            if len(self._changed) >= MOST_CHANGED:
                self._changed.clear()
            self._changed[key] = schema.assign(self, changes)
        return self._changed[key]

    @cached_property
    def _changed(self) -> dict[tuple[tuple[str, Any], ...], DesignPoint]:
        return {}

    @cached_property
    def known(self) -> dict[Any, Any]:
        """Cache: what others have worked out about the design."""
        return {}

    @cached_property
    def identity(self) -> str:
        """A short hash that names the design in caches and studies; designs that share it are equal.

        It covers the fields that differ from their defaults, so a field added later does not change it.
        """
        return sha256(json.dumps(schema.write(self, brief=True), sort_keys=True).encode()).hexdigest()[:16]


def to_tree(point: DesignPoint) -> dict[str, Any]:
    """Return *point* as the plain data of a design file: workload and collective in full, others without defaults."""
    tree: dict[str, Any] = schema.write(point, brief=True)
    return tree | {"workload": schema.write(point.workload), "collective": schema.write(point.collective)}
