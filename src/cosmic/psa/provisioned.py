"""Bandwidth that a parameter set does not list: each of its points gets what is best for it under a budget."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from cosmic.design.batch import Batch
from cosmic.errors import require
from cosmic.provisioning.candidates import Candidates, Provision, provision_candidates
from cosmic.psa.binding import PROVISIONED
from cosmic.psa.diagram import Flags, Indices

if TYPE_CHECKING:
    from cosmic.psa.space import ParameterSet

MOST_KNOWN = 200_000
"""Points whose bandwidth is kept in memory."""
DIGITS = 7
"""Of the bandwidth in a design: so many can be read and written, and more make no difference to a step."""

Rates = npt.NDArray[np.float64]


def bandwidth_paths(dims: int) -> list[str]:
    """Return the paths of what is provisioned in networks of so many dimensions.

    >>> bandwidth_paths(2)
    ['network.dims.0.bandwidth', 'network.dims.1.bandwidth']
    """
    return [f"network.dims.{place}.bandwidth" for place in range(dims)]


class Provisioner:
    """The bandwidth of the points of *space*, which itself has that of its base, for all its workloads together."""

    def __init__(self, space: ParameterSet, provision: Provision) -> None:
        self._space = space
        self.provision = provision
        self._base: Rates = np.array([dim.bandwidth_bytes_per_s for dim in space.base.network.dims])
        self._known: dict[Hashable, tuple[Rates, bool]] = {}

    @cached_property
    def _workloads(self) -> list[tuple[float, ParameterSet]]:
        """Each workload's weight, and the set around it."""
        from cosmic.psa.shares import replace_base  # noqa: PLC0415  shares need sets, which need provisioners

        if not self._space.workloads:
            return [(1.0, self._space)]
        return [(share.weight, replace_base(self._space, share)) for share in self._space.workloads]

    def column(self, rows: Indices, place: int) -> Rates:
        """Return the bandwidth of the dimension at *place* in points, in bytes per second."""
        found = self._of(rows)
        return np.array([rates[place] for rates, _ in found])

    def possible(self, rows: Indices) -> Flags:
        """Return for which points some bandwidth meets all limits."""
        return np.array([met for _, met in self._of(rows)], dtype=bool)

    def _of(self, rows: Indices) -> list[tuple[Rates, bool]]:
        keys = self._space.keys(rows)
        new = list({key: place for place, key in enumerate(keys) if key not in self._known}.values())
        if len(self._known) + len(new) > MOST_KNOWN:
            self._known.clear()
            return self._of(rows) if len(set(keys)) <= MOST_KNOWN else self._computed(rows)
        for place, found in zip(new, self._computed(rows[new]), strict=True):
            self._known[keys[place]] = found
        return [self._known[key] for key in keys]

    def _computed(self, rows: Indices) -> list[tuple[Rates, bool]]:
        """Return the bandwidth of each point; of one that is not valid, that of the base."""
        inside = np.flatnonzero(self._space.contains(rows))
        found = [(self._base, True)] * len(rows)
        workloads = tuple((weight, Batch(space.base, space.columns(rows[inside]))) for weight, space in self._workloads)
        best, met = provision_candidates(Candidates(workloads, len(inside)), self.provision)
        for place, rates, possible in zip(inside.tolist(), best.tolist(), met.tolist(), strict=True):
            found[place] = (np.array([float(f"{rate:.{DIGITS}g}") for rate in rates]), possible)
        return found


def provisioned(space: ParameterSet, provision: Provision | None) -> ParameterSet:
    """Return *space* with the bandwidth of each point provisioned; without *provision*, as the base has it."""
    derived = {path: text for path, text in space.derived.items() if text != PROVISIONED}
    bare = replace(space, derived=derived, provisioner=None)
    if provision is None:
        return bare
    check_provisioned(bare)
    every = derived | dict.fromkeys(bandwidth_paths(len(space.base.network.dims)), PROVISIONED)
    return replace(bare, derived=every, provisioner=Provisioner(bare, provision))


def check_provisioned(space: ParameterSet) -> None:
    """Refuse a parameter set whose bandwidth cannot be provisioned, or is chosen or derived as well."""
    paths = bandwidth_paths(len(space.base.network.dims))
    for each in space.parameters:
        for path in each.paths:
            require(path not in paths, f"parameters.{each.name}", list(each.labels), "is provisioned, so not chosen")
    for path in paths:
        require(path not in space.derived, f"derived.{path}", space.derived.get(path), "is provisioned, so not derived")
    for base in (space.base, *(share.base for share in space.workloads)):
        rule = "goes with steps: a design that serves a load is provisioned by one step of it"
        require(base.serving is None, "provision", base.model.name, rule)
    for share in space.workloads:
        own = sorted(path for path in share.own if path.startswith("network."))
        require(not own, f"workloads.{share.name}", ", ".join(own), "bandwidth is provisioned for one network of all")
