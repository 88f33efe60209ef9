"""Bandwidth in whole ports: the best of all whole numbers near the continuous optimum."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from cosmic import units
from cosmic.design.network import topologies
from cosmic.errors import SpecError, require
from cosmic.provisioning.barrier import Vector
from cosmic.provisioning.problem import Limit

MOST = 60_000
"""Most combinations of ports that are tried."""
EXACT = 1e-9
"""By what share of its largest part a limit may be missed, for rounding."""


def port_bandwidth(port: str, names: Sequence[str], npus: Sequence[int], radix: int | None) -> Vector:
    """Return the bandwidth of a dimension that one more port on each link of an NPU adds.

    An NPU has one link to a switch, two in a ring, one to each other NPU where all are connected. Each port of an NPU
    goes to a switch of its own, which so needs a port for every NPU of the dimension: *radix* of them at most.

    >>> port_bandwidth("50 GB/s", ["ring", "switch"], [4, 32], 64).tolist()
    [100000000000.0, 50000000000.0]
    """
    try:
        size = units.read(port, units.BYTES_PER_S)
    except SpecError as error:
        raise SpecError("--ports", port, error.rule) from None
    require(size > 0, "--ports", port, "must be positive")
    for place, (name, count) in enumerate(zip(names, npus, strict=True)):
        if radix is not None and topologies[name].switched:
            rule = f"dimension {place} joins {count} NPUs, more than a switch has ports"
            require(count <= radix, "--radix", radix, rule)
    return np.array(
        [size * max(1, int(topologies[name].links(count))) for name, count in zip(names, npus, strict=True)]
    )


def whole_ports(
    value: Callable[[Vector], Vector], limits: Sequence[Limit], optimum: Vector, step: Vector, port: str
) -> Vector:
    """Return the best bandwidth in whole *step*s near *optimum*, at least one in every dimension.

    A budget is spent as far as whole ports go: what is left is less than the cheapest of them.
    """
    dims = len(step)
    reach = max(1, int(MOST ** (1 / dims) / 2))
    middle = np.floor(optimum / step)
    axes = [np.unique(np.maximum(1.0, middle[d] + np.arange(1 - reach, reach + 1))) for d in range(dims)]
    counts = np.stack([each.ravel() for each in np.meshgrid(*axes, indexing="ij")], axis=1)
    candidates = counts * step
    for limit in limits:
        candidates = candidates[_meets(limit, candidates, step)]
    rule = "no whole numbers of ports meet the budget and the limits near the best bandwidth"
    require(bool(len(candidates)), "--ports", port, rule)
    found = value(candidates)
    best = int(np.argmin(found))
    require(bool(np.isfinite(found[best])), "--ports", port, rule)
    chosen: Vector = candidates[best]
    return chosen


def _meets(limit: Limit, candidates: Vector, step: Vector) -> Vector:
    charged = np.array(limit.coefficients)
    size = np.maximum(np.abs(candidates * charged).max(axis=1), abs(limit.value))
    if limit.budget and limit.sense == "==":
        left = limit.value - candidates @ charged
        cheapest = float(np.min((charged * step)[charged > 0]))
        return np.asarray((left >= -EXACT * size) & (left < cheapest * (1 - EXACT)))
    return np.asarray(limit.excess(candidates) <= EXACT * size)
