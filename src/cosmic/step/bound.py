"""What bounds a step: the resource that holds back the part that takes longest. Everything that says so asks here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cosmic.step.network_load import NetworkLoad, network_loads
from cosmic.step.profile import StepProfile
from cosmic.step.roofline import ridge_of, roofline_operators

PARTS = {
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
NETWORK = ("tp", "cp", "ep", "weights", "dp", "pp", "communication")
"""Parts that the network holds back."""
PRODUCTS = ("einsum", "convolution")
OPERATORS = {"gemm": PRODUCTS, "attention": ("attention",), "compute": (*PRODUCTS, "attention")}
"""Parts that either the tensor cores or the memory hold back, and the operators that they are made of."""
MOSTLY = 0.5


def bounded_by(profile: StepProfile, breakdown: Mapping[str, float]) -> str:
    """Return what bounds a step, with its share: what holds back the part of *breakdown* that takes longest.

    Communication: the network dimension that it keeps busy longest. GEMMs and attention: the memory, where operators
    left of the ridge take most of their time. A simulated step has coarser parts: its communication may be waiting for
    other stages, its compute for kernel launches.
    """
    part = max(breakdown, key=lambda name: breakdown[name])
    seconds = breakdown[part]
    share = f"{100 * seconds / sum(breakdown.values()):.0f} % of the step"
    if part in NETWORK:
        busy = busy_seconds(network_loads(profile), part)
        place = max(busy, key=lambda each: busy[each], default=None)
        if place is not None and (part != "communication" or busy[place] > MOSTLY * seconds):
            return f"network dimension {place + 1} bounds it ({PARTS[part]}, {share})"
        if part == "communication":
            return f"waiting for other stages and their messages bounds it ({share})"
    if part in OPERATORS and _memory_bound(profile, part, seconds):
        return f"memory bandwidth bounds it ({PARTS[part]}, {share})"
    return f"{PARTS[part]} bound{'' if PARTS[part].endswith('s') else 's'} it ({share})"


def _memory_bound(profile: StepProfile, part: str, seconds: float) -> bool:
    """Return whether operators left of the ridge take most of a part of the step, and most of such operators' time."""
    some = [each for each in roofline_operators(profile) if each.kind in OPERATORS[part]]
    ridge = ridge_of(profile.batch.base)
    left = sum(each.seconds for each in some if each.intensity < ridge)
    return left > MOSTLY * max(seconds, sum(each.seconds for each in some))


def busy_seconds(loads: Iterable[NetworkLoad], part: str) -> dict[int, float]:
    """Return how long a part of the step keeps each network dimension busy; ``communication`` is all parts."""
    seconds: dict[int, float] = {}
    for load in loads:
        if part in (load.part, "communication"):
            seconds[load.dimension] = seconds.get(load.dimension, 0.0) + load.seconds
    return seconds
