"""What bounds a step: the resource that holds back the part that takes longest. Everything that says so asks here.

Operators lie on a roofline by their flop, bytes and seconds. Its ridge is at peak / bandwidth flop per byte. The tensor
cores bound an operator to its right at best; memory bounds one to its left, however fast they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from cosmic.design.design_point import DesignPoint
from cosmic.step.accelerator_rates import peak_flop_per_s
from cosmic.step.network_load import NetworkLoad, network_loads
from cosmic.step.step_profile import StepProfile

# --------------------------------------------------------------------------------------
# Where the operators of a step lie on the roofline: their flop, bytes and seconds
# --------------------------------------------------------------------------------------


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


def workload_peak_flop_per_s(point: DesignPoint) -> float:
    """Return the peak flop per second in the number format of the workload."""
    return float(peak_flop_per_s(lambda key: getattr(point.compute, f"{key}_flop_per_s"), point.workload.precision))


def ridge_flop_per_byte(point: DesignPoint) -> float:
    """Return the flop per byte above which compute bounds an operator."""
    return workload_peak_flop_per_s(point) / point.memory.bandwidth_bytes_per_s


def roofline_operators(profile: StepProfile) -> list[RooflineOperator]:
    """Return the operators of a stage of a single design that compute anything.

    An operator that is fused with its neighbours moves less than its operands, and never more than the memory
    transfers in its time.
    """
    total: dict[tuple[str, str], list[float]] = {}
    for operator in profile.operators:
        use, runs = operator.use, float(operator.runs)
        name = f"{use.block} {use.name}, {use.phase}".replace("_", " ")
        entry = total.setdefault((name, use.kind), [0.0, 0.0, 0.0])
        for index, once in enumerate((use.flop, use.bytes, operator.seconds)):
            entry[index] += runs * float(np.asarray(once))
    bandwidth = profile.batch.base.memory.bandwidth_bytes_per_s
    return [
        RooflineOperator(name, kind, flop, min(moved, seconds * bandwidth), seconds)
        for (name, kind), (flop, moved, seconds) in total.items()
        if flop > 0 and moved > 0 and seconds > 0
    ]


# --------------------------------------------------------------------------------------
# What bounds a step: the resource that holds back the part that takes longest. Everything that says so asks here
# --------------------------------------------------------------------------------------

PART_TITLES = {
    "gemm": "GEMMs",
    "attention": "attention",
    "other": "memory-bound operators",
    "recompute": "recomputation",
    "launch": "kernel launches",
    "tp": "tensor-parallel communication",
    "cp": "context-parallel communication",
    "ep": "expert-parallel communication",
    "weights": "sharded weights and gradients",
    "dp": "gradient reduction",
    "pp": "pipeline transfers",
    "bubble": "the pipeline bubble",
    "optimizer": "the optimizer",
    "offload": "offloading",
    "compute": "compute",
    "communication": "exposed communication",
    "idle": "waiting",
    "engine": "the engine beside its kernels",
}
"""The parts of a step in words; then those of a simulated step, and what a serving engine adds."""
NETWORK_PARTS = ("tp", "cp", "ep", "weights", "dp", "pp", "communication")
"""Parts that the network holds back."""
GEMM_KINDS = ("einsum", "convolution")
PART_OPERATORS = {"gemm": GEMM_KINDS, "attention": ("attention",), "compute": (*GEMM_KINDS, "attention")}
"""Parts that either the tensor cores or the memory hold back, and the operators that they are made of."""
MOST_OF_PART = 0.5


def describe_bound(profile: StepProfile, breakdown: Mapping[str, float]) -> str:
    """Return what bounds a step, with its share: what holds back the part of *breakdown* that takes longest.

    Communication: the network dimension that it keeps busy longest. GEMMs and attention: the memory, where operators
    left of the ridge take most of their time. A simulated step has coarser parts: its communication may be waiting for
    other stages, its compute for kernel launches.
    """
    part = max(breakdown, key=lambda name: breakdown[name])
    seconds = breakdown[part]
    share = f"{100 * seconds / sum(breakdown.values()):.0f} % of the step"
    if part in NETWORK_PARTS:
        busy = busy_seconds_by_dimension(network_loads(profile), part)
        place = max(busy, key=lambda each: busy[each], default=None)
        if place is not None and (part != "communication" or busy[place] > MOST_OF_PART * seconds):
            return f"network dimension {place + 1} bounds it ({PART_TITLES[part]}, {share})"
        if part == "communication":
            return f"waiting for other stages and their messages bounds it ({share})"
    if part in PART_OPERATORS and _memory_bound(profile, part, seconds):
        return f"memory bandwidth bounds it ({PART_TITLES[part]}, {share})"
    return f"{PART_TITLES[part]} bound{'' if PART_TITLES[part].endswith('s') else 's'} it ({share})"


def _memory_bound(profile: StepProfile, part: str, seconds: float) -> bool:
    """Return whether operators left of the ridge take most of a part of the step, and most of such operators' time."""
    some = [operator for operator in roofline_operators(profile) if operator.kind in PART_OPERATORS[part]]
    ridge = ridge_flop_per_byte(profile.batch.base)
    left = sum(each.seconds for each in some if each.intensity < ridge)
    return left > MOST_OF_PART * max(seconds, sum(each.seconds for each in some))


def busy_seconds_by_dimension(loads: Iterable[NetworkLoad], part: str) -> dict[int, float]:
    """Return how long a part of the step keeps each network dimension busy; ``communication`` is all parts."""
    seconds: dict[int, float] = {}
    for load in loads:
        if part in (load.part, "communication"):
            seconds[load.dimension] = seconds.get(load.dimension, 0.0) + load.seconds
    return seconds
