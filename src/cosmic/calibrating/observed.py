"""Measurements, each with how it is predicted on a system whose fields are changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cosmic.calibrating.parameters import Changes, noise
from cosmic.calibrating.posterior import Array
from cosmic.design import schema
from cosmic.design.batch import batch_of_changes
from cosmic.design.point import DesignPoint
from cosmic.errors import SpecError, require
from cosmic.evaluation import evaluate_batch
from cosmic.step.compute import model_flop_per_token
from cosmic.workload.checks import invalid_reasons

STEP = "steps"
LEAST_S, MOST_S = 1e-9, 1e7
"""Bounds of a measured time: beyond them the unit is wrong."""


@dataclass(frozen=True, slots=True)
class Observed:
    """Measurements of one kind that are predicted together."""

    kind: str
    names: tuple[str, ...]
    measured_s: Array
    noise: Array
    """Standard deviation of the log of each."""
    hardware: Any
    """What has the fields that parameters change: a design, whose layers they are."""
    seconds: Callable[[Sequence[Changes]], Array]
    """From changes of the hardware to predictions: a row for each change, a column for each measurement."""
    assumed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, took in zip(self.names, self.measured_s, strict=True):
            rule = f"a measured time must be from {LEAST_S:g} to {MOST_S:g} s: check its unit"
            require(bool(LEAST_S <= took <= MOST_S), name, f"{took:g} s", rule)


def require_valid(point: DesignPoint) -> None:
    """Refuse the mapping of a design that cannot run."""
    if reasons := invalid_reasons(point):
        raise SpecError("design", point.workload.task, f"cannot run: {'; '.join(reasons)}")


def observed_step(name: str, point: DesignPoint, measured_s: float, assumed: Sequence[str] = ()) -> Observed:
    """Return a measured training step, prefill or decoded token of a design."""

    def seconds(changes: Sequence[Changes]) -> Array:
        first = next(iter(changes[0]), "compute.time_factor")
        whole = [each or {first: schema.get(point, first)} for each in changes]
        return np.asarray(evaluate_batch(batch_of_changes(point, whole)).columns["step_s"], dtype=float)[:, None]

    return Observed(
        STEP, (name,), np.array([measured_s]), np.array([noise().step]), point, seconds, tuple(dict.fromkeys(assumed))
    )


def observed_kernels(
    kind: str,
    names: Sequence[str],
    measured_s: Sequence[float] | Array,
    machine: DesignPoint,
    predict: Callable[[DesignPoint], Array],
    spread: float,
) -> Observed:
    """Return measured kernels of one kind, which *predict* predicts for a machine; many alike count as a few."""
    shared = spread * max(1.0, len(names) / noise().alike) ** 0.5

    def seconds(changes: Sequence[Changes]) -> Array:
        return np.array([predict(schema.assign(machine, each) if each else machine) for each in changes], dtype=float)

    return Observed(kind, tuple(names), np.asarray(measured_s, float), np.full(len(names), shared), machine, seconds)


def on_machine(point: DesignPoint, machine: DesignPoint) -> DesignPoint:
    """Return the design *point* on the hardware of *machine*."""
    return replace(
        point,
        compute=machine.compute,
        memory=replace(machine.memory, tiers=point.memory.tiers or machine.memory.tiers),
        network=machine.network,
        collective=machine.collective,
    )


def step_seconds(point: DesignPoint, tokens_per_s: float | None = None, tera: float | None = None) -> float:
    """Return the seconds of a step from its tokens a second, or from the model's TFLOP/s of one accelerator."""
    tokens = point.workload.global_batch * point.workload.sequence
    if tokens_per_s is not None:
        return tokens / tokens_per_s
    training = point.workload.task == "training"
    decoding = point.workload.task == "decode"
    flop = model_flop_per_token(point.model, point.workload.sequence, training=training, decoding=decoding)
    return float(flop) * tokens / (float(tera or 0) * 1e12 * point.network.npus)
