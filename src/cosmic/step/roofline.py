"""Where the operators of a step lie on the roofline: their flop, bytes and seconds.

The ridge of a roofline is at peak / bandwidth flop per byte. The tensor cores bound an operator to its right at best;
memory bounds one to its left, however fast they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cosmic.cost.compute import peak_flop_per_s
from cosmic.design.point import DesignPoint
from cosmic.step.profile import StepProfile


@dataclass(frozen=True, slots=True)
class RooflineOperator:
    """An operator with all its runs in a step, recomputation included."""

    name: str
    kind: str
    """As in the graph: ``einsum`` is a GEMM."""
    flop: float
    bytes: float
    seconds: float

    @property
    def intensity(self) -> float:
        """Flop per byte."""
        return self.flop / self.bytes


def peak_of(point: DesignPoint) -> float:
    """Return the peak flop per second in the number format of the workload."""
    return float(peak_flop_per_s(lambda key: getattr(point.compute, f"{key}_flop_per_s"), point.workload.precision))


def ridge_of(point: DesignPoint) -> float:
    """Return the flop per byte above which compute bounds an operator."""
    return peak_of(point) / point.memory.bandwidth_bytes_per_s


def roofline_operators(profile: StepProfile) -> list[RooflineOperator]:
    """Return the operators of a stage of a single design that compute anything.

    An operator that is fused with its neighbours moves less than its operands, and never more than the memory
    transfers in its time.
    """
    total: dict[tuple[str, str], list[float]] = {}
    for each in profile.operators:
        use, runs = each.use, float(each.runs)
        name = f"{use.block} {use.name}, {use.phase}".replace("_", " ")
        entry = total.setdefault((name, use.kind), [0.0, 0.0, 0.0])
        for place, once in enumerate((use.flop, use.bytes, each.seconds)):
            entry[place] += runs * float(np.asarray(once))
    bandwidth = profile.batch.base.memory.bandwidth_bytes_per_s
    return [
        RooflineOperator(name, kind, flop, min(moved, seconds * bandwidth), seconds)
        for (name, kind), (flop, moved, seconds) in total.items()
        if flop > 0 and moved > 0 and seconds > 0
    ]
