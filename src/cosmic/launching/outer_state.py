"""Which state a design keeps outside its accelerators, in the words of training frameworks: on the host, or on NVMe."""

from __future__ import annotations

from typing import Literal

from cosmic.design.batch import batch_of
from cosmic.design.memory import HBM
from cosmic.design.point import DesignPoint
from cosmic.step.block_states import is_placed, tiers_of
from cosmic.step.memory import memory_of

Device = Literal["none", "cpu", "nvme"]


def device_of(point: DesignPoint, state: str) -> Device:
    """Return where a class of state lives: ``nvme`` if some of it may be in a tier behind the first.

    >>> from cosmic.mapping.completing import load_design
    >>> outer = {"tp": 8, "memory.placement.optimizer": ["host", "ssd"], "memory.placement.weights": ["hbm", "host"]}
    >>> point = load_design("llama3-8b@dgx-h100:8", outer)
    >>> [device_of(point, state) for state in ("optimizer", "weights", "activations")]
    ['nvme', 'cpu', 'none']
    """
    if not is_placed(point):
        return "cpu" if state in point.workload.offload else "none"
    copied = [each.name for each in point.memory.tiers if each.access == "copy"]
    listed = [name for name in tiers_of(point, state) if name in copied]
    return "none" if not listed else "nvme" if copied.index(listed[-1]) else "cpu"


def outer_share(point: DesignPoint, state: str) -> float:
    """Return the share of a class of state that is outside HBM."""
    placed = memory_of(batch_of(point)).placed if is_placed(point) else None
    if placed is None:
        return float(state in point.workload.offload)
    return 1.0 - float(placed.share(state, HBM)) if state in placed.sizes else 0.0
