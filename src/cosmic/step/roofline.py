"""What every operator of a step reaches: its operations and bytes, and the seconds that they take.

An operator above the ridge of a roofline, operations per byte = peak / bandwidth, is held back by the matrix units at
best; one below it by the memory, however fast those are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cosmic.cost.compute import peak_flop_per_s
from cosmic.design.batch import batch_of
from cosmic.design.point import DesignPoint
from cosmic.step.compute import operators
from cosmic.step.costs import Prices
from cosmic.workload.sizes import Stage, block_shares


@dataclass(frozen=True, slots=True)
class Reached:
    """An operator with all its runs in a step, recomputation included."""

    name: str
    kind: str
    """As in the graph: ``einsum`` is a matrix product."""
    flop: float
    bytes: float
    seconds: float

    @property
    def intensity(self) -> float:
        """Operations for each byte."""
        return self.flop / self.bytes


def peak_of(point: DesignPoint) -> float:
    """Return the operations a second of the matrix units in the number format of the workload."""
    return float(peak_flop_per_s(lambda key: getattr(point.compute, f"{key}_flop_per_s"), point.workload.precision))


def reached(point: DesignPoint, stage: Stage | None = None) -> list[Reached]:
    """Return the operators of a pipeline stage that compute anything: of the fullest, unless layers differ by *stage*.

    An operator that runs in one kernel with its neighbours moves less than its operands, and never more than the
    memory brings in its time.
    """
    batch = batch_of(point)
    prices, uses = Prices(batch), operators(batch, stage or "first")
    shares = block_shares(stage, point.workload.pp, head=any(use.block == "head" for use in uses))
    total: dict[tuple[str, str], list[float]] = {}
    for use in uses:
        runs = float(use.times) * shares.get(use.block, 1.0)
        name = f"{use.block} {use.name}, {use.phase}".replace("_", " ")
        entry = total.setdefault((name, use.kind), [0.0, 0.0, 0.0])
        for place, once in enumerate((use.flop, use.bytes, prices.operator(use))):
            entry[place] += runs * float(np.asarray(once))
    bandwidth = point.memory.bandwidth_bytes_per_s
    return [
        Reached(name, kind, flop, min(moved, seconds * bandwidth), seconds)
        for (name, kind), (flop, moved, seconds) in total.items()
        if flop > 0 and moved > 0 and seconds > 0
    ]
