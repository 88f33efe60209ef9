"""What bounds a design, and what would help it most: every neighbouring design, evaluated and ranked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cosmic.design import schema
from cosmic.design.collective import algorithms
from cosmic.design.point import DesignPoint
from cosmic.design.workload import AXES
from cosmic.errors import SpecError
from cosmic.evaluation import Metrics, Outcome, evaluate

NAMES = {
    "gemm": "matrix products",
    "attention": "attention",
    "other": "memory-bound operators",
    "recompute": "recomputation",
    "launch": "launching kernels from the host",
    "tp": "tensor-parallel communication",
    "cp": "context-parallel communication",
    "ep": "expert-parallel communication",
    "weights": "sharded weights and gradients",
    "dp": "gradient reduction",
    "pp": "pipeline transfers",
    "bubble": "the pipeline's bubble",
    "optimizer": "the optimizer",
    "offload": "offloading",
    "compute": "computation",
    "communication": "communication that compute waits for",
    "idle": "waiting",
}
"""The parts of a step in words; the last three are those of a step that was played."""


@dataclass(frozen=True, slots=True)
class Change:
    """A neighbouring design, and how much faster it is."""

    settings: dict[str, Any]
    """What it sets, as in files."""
    speedup: float
    metrics: Metrics


def bottleneck(metrics: Metrics) -> str:
    """Return in words what takes most of the step."""
    name = max(metrics.breakdown, key=lambda part: metrics.breakdown[part])
    return f"{NAMES[name]} ({100 * metrics.breakdown[name] / metrics.step_s:.0f} % of the step)"


def improvements(point: DesignPoint, base: Metrics, most: int = 5) -> list[Change]:
    """Return the neighbouring designs that are fastest, best first, of those faster than *base*."""
    found = []
    for changes in neighbours(point):
        outcome = _outcome(point, changes)
        if isinstance(outcome, Metrics) and outcome.tokens_per_s > base.tokens_per_s * 1.001:
            settings = {
                path: schema.write(value, schema.slot_at(point, path).dimension) for path, value in changes.items()
            }
            found.append(Change(settings, outcome.tokens_per_s / base.tokens_per_s, outcome))
    return sorted(found, key=lambda change: -change.speedup)[:most]


def _outcome(point: DesignPoint, changes: dict[str, Any]) -> Outcome | None:
    try:
        return evaluate(schema.assign(point, changes))
    except SpecError:  # a layer refuses the value: no neighbour there
        return None


def neighbours(point: DesignPoint) -> Iterator[dict[str, Any]]:
    """Yield changes of one parameter to a neighbouring value (of two, where ranks move from axis to axis)."""
    workload = point.workload
    for giver in AXES:
        for taker in AXES:
            ranks = getattr(workload, giver)
            if giver != taker and ranks % 2 == 0:
                yield {f"workload.{giver}": ranks // 2, f"workload.{taker}": getattr(workload, taker) * 2}
    for path in ("workload.micro_batch", "workload.ep", "collective.chunks"):
        value = schema.get(point, path)
        yield {path: value * 2}
        if value % 2 == 0:
            yield {path: value // 2}
    yield {"workload.sequence_parallel": not workload.sequence_parallel}
    for path, values in SWITCHES.items():
        yield from ({path: value} for value in values if value != schema.get(point, path))
    for place, name in enumerate(point.collective.algorithms):
        yield from ({f"collective.algorithms.{place}": other} for other in algorithms if other != name)
    yield from _purchases(point)


SWITCHES: dict[str, tuple[str, ...]] = {
    "workload.weight_sharding": ("none", "zero1", "zero2", "zero3"),
    "workload.recompute": ("none", "selective", "full"),
    "workload.cp_comm_type": ("ring", "all_gather", "ulysses"),
    "collective.multi_dim": ("baseline", "blueconnect", "themis"),
}


def _purchases(point: DesignPoint) -> Iterator[dict[str, Any]]:
    """Yield what could be bought: twice the bandwidth of a dimension, of the memory, twice the compute."""
    for place, dim in enumerate(point.network.dims):
        yield {f"network.dims.{place}.bandwidth": 2 * dim.bandwidth_bytes_per_s}
    yield {"memory.bandwidth": 2 * point.memory.bandwidth_bytes_per_s}
    rates = ("bf16", "fp8", "tf32", "achieved_bf16")  # what kernels reach grows with the peak
    found = {f"compute.{name}": getattr(point.compute, f"{name}_flop_per_s") for name in rates}
    yield {path: 2 * rate for path, rate in found.items() if rate is not None}
