"""Ranks on the mesh: their coordinates, groups and neighbours.

The first axis of the placement varies fastest: rank = a0 + n0 (a1 + n1 (a2 + …)), as in a network whose dimension 0 is
the innermost. Experts count the ranks of a pipeline stage through, tp first, then the other axes in the order of the
placement, and split this count into etp, ep and edp, etp fastest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cosmic.cost.shapes import strides
from cosmic.design.program import ProgramCut
from cosmic.design.workload import AXES, Workload
from cosmic.traces.trace import Ints
from cosmic.workload.islands import INSIDE, OUTSIDE
from cosmic.workload.sizes import folded_order

EXPERT_PARTS = ("tep", "oep")
"""The parts of ep inside and outside tp."""
EXPERT_AXES = ("etp", *EXPERT_PARTS, "edp")


@dataclass(frozen=True)
class Mesh:
    """The mesh coordinates of all ranks."""

    workload: Workload
    islands: int = 1
    """Parts that the outermost network dimension joins."""
    cuts: tuple[ProgramCut, ...] = ()
    """Axes that are cut into sub-axes."""

    @cached_property
    def ranks(self) -> Ints:
        """Every rank."""
        return np.arange(self.workload.ranks, dtype=np.int64)

    @cached_property
    def _sizes(self) -> dict[str, int]:
        sizes = {axis: int(getattr(self.workload, axis)) for axis in AXES}
        return sizes | {name: size for each in self.cuts for name, size in each.sizes.items()}

    @cached_property
    def _strides(self) -> dict[str, int]:
        found = dict(strides(self.workload.placement, {axis: self._sizes[axis] for axis in AXES}))
        for each in self.cuts:
            apart = found[each.axis]
            for name, size in reversed(each.sizes.items()):
                found[name], apart = apart, apart * size
        return found

    def along(self, axis: str) -> Ints:
        """Return the coordinate of each rank along an axis."""
        return self.ranks // self._strides[axis] % self._sizes[axis]

    def beside(self, axes: Sequence[str], steps: int) -> Ints:
        """Return, for each rank, the rank *steps* further along some axes, the first of them fastest, cyclically."""
        sizes = [self._sizes[axis] for axis in axes]
        here, inside = np.zeros_like(self.ranks), 1
        for axis, size in zip(axes, sizes, strict=True):
            here, inside = here + inside * self.along(axis), inside * size
        there, moved, rest = (here + steps) % inside, self.ranks, inside
        for axis, size in zip(reversed(axes), reversed(sizes), strict=True):
            rest //= size
            moved = moved + (there // rest % size - self.along(axis)) * self._strides[axis]
        return moved

    def keys(self, axes: Iterable[str]) -> Ints:
        """Return a number for each rank, equal for ranks that differ along *axes* only.

        The axes are those of dense layers, or those of experts.
        """
        wanted = {part for axis in axes for part in (EXPERT_PARTS if axis == "ep" else (axis,))}
        experts = wanted & {*EXPERT_AXES, "iedp", "oedp"}
        mesh: dict[str, Ints] = dict(self._experts) if experts else {axis: self.along(axis) for axis in AXES}
        for each in self.cuts:
            if not wanted.isdisjoint(each.sizes):
                mesh = {axis: column for axis, column in mesh.items() if axis != each.axis}
                mesh |= {name: self.along(name) for name in each.sizes}
        whole = "edp" if experts else "dp"
        if not wanted.isdisjoint({INSIDE[whole], OUTSIDE[whole]}):
            coordinate = mesh.pop(whole)
            within = max(1, (int(coordinate.max()) + 1) // self.islands)
            mesh |= {INSIDE[whole]: coordinate % within, OUTSIDE[whole]: coordinate // within}
        key = np.zeros_like(self.ranks)
        for axis, column in mesh.items():
            if axis not in wanted:
                key = key * (int(column.max()) + 1) + column
        return key

    @cached_property
    def _experts(self) -> dict[str, Ints]:
        """The coordinates of each rank on the mesh of experts; ep is two of them, inside and outside tp."""
        workload = self.workload
        count, inside = np.zeros_like(self.ranks), 1
        for axis in folded_order(workload.placement):
            count = count + inside * self.along(axis)
            inside *= int(getattr(workload, axis))
        etp = workload.expert_tensor
        ep = count // etp % workload.ep
        within = max(1, workload.tp // etp)
        coordinates = {"etp": count % etp, "tep": ep % within, "oep": ep // within, "edp": count // (etp * workload.ep)}
        return {**coordinates, "pp": self.along("pp")}


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
