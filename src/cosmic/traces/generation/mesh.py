"""Ranks on the mesh: their coordinates, groups and neighbours.

The first axis of the placement varies fastest: rank = a0 + n0 (a1 + n1 (a2 + …)), as in a network whose dimension 0 is
the innermost. Data parallelism is two axes, `ep` and `edp`; the ranks of an `ep` group are neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cosmic.cost.shapes import strides
from cosmic.design.workload import AXES, Workload
from cosmic.traces.trace import Ints


@dataclass(frozen=True)
class Mesh:
    """The mesh coordinates of all ranks."""

    workload: Workload

    @cached_property
    def ranks(self) -> Ints:
        """Every rank."""
        return np.arange(self.workload.ranks, dtype=np.int64)

    @cached_property
    def _strides(self) -> dict[str, int]:
        return strides(self.workload.placement, {axis: getattr(self.workload, axis) for axis in AXES})

    def along(self, axis: str) -> Ints:
        """Return the coordinate of each rank along an axis."""
        return self.ranks // self._strides[axis] % int(getattr(self.workload, axis))

    def beside(self, axis: str, steps: int) -> Ints:
        """Return, for each rank, the rank *steps* further along an axis, cyclically."""
        here = self.along(axis)
        there = (here + steps) % int(getattr(self.workload, axis))
        return self.ranks + (there - here) * self._strides[axis]

    def keys(self, axes: Iterable[str]) -> Ints:
        """Return a number for each rank, equal for ranks that differ along *axes* only.

        Experts are distributed over dp or, where ep is larger than that, over dp and cp together.
        """
        wanted = set(axes)
        data, tokens = self.along("dp"), self.along("cp")
        ep = self.workload.ep
        inside = self.workload.dp % ep == 0
        joint = data if inside else data + self.workload.dp * tokens
        fixed = [] if "cp" in wanted or (not inside and "ep" in wanted and "edp" not in wanted) else [tokens]
        if "ep" not in wanted:
            fixed.append(joint % ep if "edp" in wanted else data)
        elif "edp" not in wanted:
            fixed.append(joint // ep)
        fixed += [self.along(axis) for axis in ("tp", "pp") if axis not in wanted]
        key = np.zeros_like(self.ranks)
        for column in fixed:
            key = key * (int(column.max()) + 1) + column
        return key


def name_groups(mesh: Mesh, kinds: Sequence[tuple[str, ...]]) -> tuple[dict[str, tuple[int, ...]], list[list[str]]]:
    """Return the communicator groups along each of *kinds*, numbered from 1, and each rank's group of each kind."""
    groups: dict[str, tuple[int, ...]] = {}
    names: list[list[str]] = []
    for axes in kinds:
        _, which = np.unique(mesh.keys(axes), return_inverse=True)
        order = np.argsort(which, kind="stable")
        bounds = np.cumsum(np.bincount(which))[:-1]
        first = len(groups) + 1
        members = [tuple(group.tolist()) for group in np.split(order, bounds)]
        groups |= {str(first + place): ranks for place, ranks in enumerate(members)}
        labels = [str(first + place) for place in range(len(members))]
        names.append([labels[place] for place in which.tolist()])
    return groups, names
