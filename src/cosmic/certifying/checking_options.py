"""Checks that options stand for others only where they have no more of anything: from the listed step itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cosmic.certifying.checking_parts import Whole, refuse_unless
from cosmic.cost.fabric import collective_terms, point_to_point_terms
from cosmic.cost.tiers import Tiers, message_terms, tier_terms
from cosmic.design.batch import Batch
from cosmic.pricing.network import block_terms, tiers
from cosmic.step.profile import profile
from cosmic.workload.sizes import structural_paths

if TYPE_CHECKING:
    from cosmic.certifying.checking_leaves import Leaves

PRICES = {
    "network_usd": ("price",),
    "cost_usd": ("price",),
    "perf_per_network_cost": ("price",),
    "cost_usd_per_token": ("price", "power"),
    "cost_usd_per_sample": ("price", "power"),
    "power_w": ("power",),
    "energy_j": ("power",),
    "train_usd": ("price", "power"),
    "train_energy_j": ("power",),
    "train_co2_kg": ("power",),
}
ALIKE = 1e-12


def check_options(leaves: Leaves) -> str:
    """Check every option that stands for another, in every kind of skeleton."""
    parts, checked = leaves.parts, 0
    metrics = {*leaves.problem.objectives, *(each.metric for each in leaves.problem.limits)}
    quantities = {each for metric in metrics for each in PRICES.get(metric, ())}
    able = np.flatnonzero(leaves.able)
    whole = Batch(parts.space.base, parts.space.columns(parts.skeletons[able]))
    for rows, part in whole.groups(structural_paths(whole)):
        for number, dimension in enumerate(parts.dimensions):
            tables = leaves.which[number][rows]
            for use in _uses(part, dimension):
                checked += _check_use(leaves, number, tables, use)
            npus = part[f"network.dims.{dimension}.npus"]
            for quantity in sorted(quantities):
                checked += _check_price(leaves, number, tables, quantity, npus)
    return f"{checked:,} options that stand for others have no more of anything"


class _Use(NamedTuple):
    """A kind of communication that crosses a dimension; numbers for each skeleton."""

    kind: str
    npus: Any
    members: Any
    step: Any
    tiers: Tiers | None

    @property
    def columns(self) -> tuple[Any, ...]:
        sizes = (self.npus, self.members, self.step)
        if self.tiers is None:
            return sizes
        build, *numbers = self.tiers.columns
        return *sizes, 0 if isinstance(build, str) else build.codes, *numbers  # type: ignore[union-attr]  # a name

    def tiers_of(self, row: list[float]) -> tuple[Any, ...]:
        """Return what costs of tiers take, from the part of a row behind the sizes."""
        build: Any = None if self.tiers is None else self.tiers.build
        return (build if isinstance(build, str) else build.names[int(row[0])], *row[1:]) if row else ()


def _uses(part: Batch, dimension: int) -> Iterator[_Use]:
    """Yield every kind of communication that crosses a dimension."""
    listed = profile(part)
    network = listed.network
    seen = {(each.kind, each.axes) for each in listed.traffic}
    for kind, axes in sorted(seen):
        for each in network.group(axes):
            if each.dimension is network.dims[dimension]:
                yield _Use(kind, each.dimension.npus, each.span.members, each.span.step, each.dimension.tiers)


def _names(leaves: Leaves, number: int) -> list[tuple[str, str]]:
    """Return topology and algorithm of each option."""
    parts, dimension = leaves.parts, leaves.parts.dimensions[number]
    base = parts.space.base
    found = []
    for option in parts.options[number].tolist():
        topology, algorithm = base.network.dims[dimension].topology, base.collective.algorithms[dimension]
        for column, index in zip(parts.choice_columns[number], option, strict=True):
            parameter = parts.space.parameters[column]
            if parameter.paths[0].startswith("collective."):
                algorithm = parameter.values[index][0]
            else:
                topology = parameter.values[index][0]
        found.append((topology, algorithm))
    return found


def _distinct(tables: Whole, *columns: Any) -> list[list[float]]:
    joined = np.stack(np.broadcast_arrays(tables.astype(np.float64), *columns), axis=1)
    found: list[list[float]] = np.unique(joined, axis=0).tolist()
    return found


def _check_use(leaves: Leaves, number: int, tables: Whole, use: _Use) -> int:
    names, checked = _names(leaves, number), 0
    for table, size, many, apart, *rest in _distinct(tables, *use.columns):
        if many <= 1:
            continue
        costs = np.array([_costs(use.kind, each, (size, many, apart), use.tiers_of(rest)) for each in names])
        checked += _check_stands(leaves.tables[number][int(table)], costs, f"a {use.kind}")
    return checked


def _costs(kind: Any, names: tuple[str, str], sizes: tuple[float, ...], tiers: tuple[Any, ...]) -> list[float]:
    """Return what an option must have no more of: links, traffic, and both where tiers of switches are crossed."""
    message = kind in ("send", "collective_permute")
    hops, traffic = point_to_point_terms(*names, *sizes) if message else collective_terms(kind, *names, *sizes)
    found = [hops, 1 / traffic if message else traffic]
    if tiers:
        crossed = message_terms(*names, *sizes, *tiers) if message else tier_terms(kind, *names, *sizes, *tiers)
        found += [1 / crossed[0], crossed[1]]
    return found


def _check_price(leaves: Leaves, number: int, tables: Whole, quantity: Any, npus: Any) -> int:
    tier = tiers(len(leaves.parts.space.base.network.dims))[leaves.parts.dimensions[number]]
    names, checked = _names(leaves, number), 0
    for table, size in _distinct(tables, npus):
        blocks = [block_terms(quantity, tier, topology, size) for topology, _ in names]
        costs = np.array([(block / links,) for block, links in blocks])
        checked += _check_stands(leaves.tables[number][int(table)], costs, f"the {quantity}")
    return checked


def _check_stands(stands: Whole, costs: Any, what: str) -> int:
    better = (costs[stands] <= costs * (1 + ALIKE)).all(axis=1)
    refuse_unless(bool(better.all()), f"an option stands for another that takes less of {what}")
    return int(np.count_nonzero(stands != np.arange(len(stands))))
