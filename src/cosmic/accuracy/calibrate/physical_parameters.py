"""The parameters that measurements can move: which fields of a system each changes, and by how much it may be off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np

from cosmic.accuracy.calibrate.map_estimate import Array, Prior
from cosmic.base.errors import SpecError
from cosmic.design import schema
from cosmic.design.catalog_entries import load_mapping
from cosmic.design.compute_layer import SHARES
from cosmic.step.accelerator_rates import gemm_efficiency

PRIORS = Path(__file__).parent / "priors.yaml"
FARTHEST = 3.0
"""No parameter moves farther than this many prior spreads: what disagrees more is no matter of one parameter."""
ROOM = 1e-9
Changes = Mapping[str, float]
"""Contents of fields by path, in SI units."""


@dataclass(frozen=True, slots=True)
class PhysicalParameter:
    """One physical parameter, as a factor of some fields."""

    name: str
    title: str
    spread: float
    fields: Mapping[str, int]
    """Paths, and whether the parameter multiplies (1) or divides (-1) what is there."""


@dataclass(frozen=True, slots=True)
class MeasurementNoise:
    """Standard deviations of the errors of measurements, in logs."""

    step: float
    kernel: float
    collective: float
    launch: float
    alike: float
    """Measurements of one kind of kernel that count as independent, at most."""
    host: float
    """Of the host's time, from run to run."""


@cache
def measurement_noise() -> MeasurementNoise:
    """Return how far measurements scatter."""
    return MeasurementNoise(**{name: float(entry["value"]) for name, entry in load_mapping(PRIORS)["noise"].items()})


@cache
def factor_spread() -> float:
    """Return how far whole steps are off, beside what parameters explain."""
    return float(load_mapping(PRIORS)["factor"]["value"])


@cache
def list_parameters(dimensions: int) -> tuple[PhysicalParameter, ...]:
    """Return the parameters of a system with so many network dimensions."""
    parameters = []
    for name, entry in load_mapping(PRIORS)["parameters"].items():
        if not any("{}" in path for path in entry["fields"]):
            parameters.append(PhysicalParameter(name, entry["title"], entry["spread"], entry["fields"]))
            continue
        for index in range(dimensions):
            fields = {path.format(index): sign for path, sign in entry["fields"].items()}
            title = f"{entry['title']}, {_dimension_title(index, dimensions)}"
            parameters.append(PhysicalParameter(f"{name}_{index}", title, entry["spread"], fields))
    return tuple(parameters)


def _dimension_title(dimension: int, dimensions: int) -> str:
    return "inside a node" if dimension == 0 else "between nodes" if dimensions == 2 else f"dimension {dimension}"


def value_at(hardware: Any, path: str) -> float | None:
    """Return the number at *path*, or what stands for it where it is not stated; None where there is none."""
    try:
        value = schema.get_field(hardware, path)
    except SpecError:  # a network with fewer dimensions
        return None
    if value is None and path == "compute.gemm_efficiency":
        return float(gemm_efficiency(lambda key: schema.get_field(hardware, f"compute.{key}")))
    return float(value) if value else None


def changed_fields(
    hardware: Any, chosen: Sequence[PhysicalParameter], theta: Sequence[float] | Array
) -> dict[str, float]:
    """Return the fields of *hardware* that parameters change, with their new values; shares stay at most 1."""
    values_by_path: dict[str, float] = {}
    for parameter, log_factor in zip(chosen, theta, strict=True):
        for path, sign in parameter.fields.items():
            value = value_at(hardware, path)
            if value is not None:
                changed = value * exp(sign * float(log_factor))
                values_by_path[path] = min(changed, 1.0) if _is_share(path) else changed
    return values_by_path


def prior_of(hardware: Any, chosen: Sequence[PhysicalParameter], scale: float = 1.0) -> Prior:
    """Return the prior of parameters on *hardware*: their spreads, and bounds that keep shares at most 1."""
    spread = scale * np.array([parameter.spread for parameter in chosen])
    bounds = np.array([_bounds(hardware, parameter) for parameter in chosen]).reshape(-1, 2)
    return Prior(spread, np.maximum(bounds[:, 0], -FARTHEST * spread), np.minimum(bounds[:, 1], FARTHEST * spread))


def _bounds(hardware: Any, parameter: PhysicalParameter) -> tuple[float, float]:
    """Return how far a parameter may go until the last of its shares is 1: others stay there before."""
    values = [(path, sign, value_at(hardware, path)) for path, sign in parameter.fields.items()]
    known_values = [(path, sign, value) for path, sign, value in values if value is not None]
    if not known_values:
        return 0.0, 0.0
    if not all(_is_share(path) for path, _, _ in known_values):
        return -np.inf, np.inf
    room = max(max(-log(value), ROOM) for _, _, value in known_values)
    return (-np.inf, room) if known_values[0][1] > 0 else (-room, np.inf)


def _is_share(path: str) -> bool:
    key = path.rpartition(".")[2]
    return key in SHARES or key in ("overlap_efficiency", "efficiency", "small_efficiency", "reduction_efficiency")
