"""What bounds a design, and what would help it most: every neighbouring design, evaluated and ranked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cosmic.design import schema
from cosmic.design.batch import batch_of, batch_of_changes
from cosmic.design.collective import algorithms
from cosmic.design.point import DesignPoint
from cosmic.design.workload import AXES
from cosmic.errors import SpecError
from cosmic.evaluation import Metrics, evaluate_batch
from cosmic.simulation.analytic import bounding_profile
from cosmic.step.bound import bounded_by

FASTER = 1.001
"""By how much a neighbour must be faster to be worth a line."""


@dataclass(frozen=True, slots=True)
class Change:
    """A neighbouring design, and how much faster it is."""

    settings: dict[str, Any]
    """What it sets, as in files."""
    speedup: float


def bound_of(point: DesignPoint, metrics: Metrics) -> str:
    """Return in words what bounds a design that achieves *metrics*."""
    return bounded_by(bounding_profile(batch_of(point)), metrics.breakdown)


def improvements(point: DesignPoint, base: Metrics, most: int = 5) -> list[Change]:
    """Return the neighbouring designs that are fastest, best first, of those faster than *base*."""
    tried = [changes for changes in neighbours(point) if _exists(point, changes)]
    outcome = evaluate_batch(batch_of_changes(point, tried))
    speedups = outcome.columns["tokens_per_s"] / base.tokens_per_s
    found = [
        Change(_as_written(point, changes), float(speedup))
        for changes, speedup, runs in zip(tried, speedups, outcome.feasible, strict=True)
        if runs and speedup > FASTER
    ]
    return sorted(found, key=lambda change: -change.speedup)[:most]


def _exists(point: DesignPoint, changes: dict[str, Any]) -> bool:
    """Return whether every layer accepts the changed values."""
    try:
        schema.assign(point, changes)
    except SpecError:
        return False
    return True


def _as_written(point: DesignPoint, changes: dict[str, Any]) -> dict[str, Any]:
    return {path: schema.write(value, schema.slot_at(point, path).dimension) for path, value in changes.items()}


def neighbours(point: DesignPoint) -> Iterator[dict[str, Any]]:
    """Yield changes of one parameter to a neighbouring value; of two, where ranks move from axis to axis."""
    workload = point.workload
    for giver in AXES:
        for taker in AXES:
            ranks = getattr(workload, giver)
            if giver != taker and ranks % 2 == 0:
                moved = {f"workload.{giver}": ranks // 2, f"workload.{taker}": getattr(workload, taker) * 2}
                yield moved | _served_with(point, giver, taker)
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


def _served_with(point: DesignPoint, giver: str, taker: str) -> dict[str, Any]:
    """Return the microbatch with which a replica that gained or lost ranks still serves its batch in as few passes."""
    if point.workload.task == "training" or "dp" not in (giver, taker):
        return {}
    size = point.workload.micro_batch
    return {"workload.micro_batch": size * 2 if giver == "dp" else max(1, size // 2)}


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
    rates = ("bf16", "fp8", "tf32", "achieved_bf16")  # what GEMMs reach grows with the peak
    found = {f"compute.{name}": getattr(point.compute, f"{name}_flop_per_s") for name in rates}
    yield {path: 2 * rate for path, rate in found.items() if rate is not None}
