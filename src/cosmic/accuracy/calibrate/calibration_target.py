"""What is calibrated: a system, and the parameters of it that measurements can move.

The system is named by the user, or by all of the measurements alike. A parameter says which fields of it are changed,
and by how much it may be off.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np

from cosmic.accuracy.calibrate.map_estimate import Array, Prior
from cosmic.base.errors import SpecError, UnknownName, require
from cosmic.design import catalog_entries, schema
from cosmic.design.catalog_entries import load_mapping
from cosmic.design.compute_layer import SHARES
from cosmic.design.design_point import DesignPoint
from cosmic.design.measured_hardware import find_system
from cosmic.design.systems import YAML_ENDINGS, entry_dimensions, is_model_at_system, read_system_entry, split_size
from cosmic.search.mapping.design_completion import load_design
from cosmic.step.accelerator_rates import gemm_efficiency

TINY = {"family": "decoder", "layers": 1, "hidden": 64, "heads": 1, "ffn": 64, "vocab": 2}
"""A model for designs of which only the hardware is asked."""
HINT = "say which with --system NAME, or --on DESIGN"


@dataclass(frozen=True, slots=True)
class Target:
    """A system, and the design that measurements without one are of."""

    name: str
    """The system that was calibrated; empty for the hardware of a design file."""
    entry: dict[str, Any]
    """What its file holds."""
    machine: DesignPoint
    """The system at its usual size, under a model that does not matter."""
    design: DesignPoint | None = None

    def sized(self, npus: int) -> DesignPoint:
        """Return the hardware at a size of *npus*."""
        return _machine(self.name, npus) if self.name else self.machine


def target_of(system: str, on: str, named: Iterable[str]) -> Target:
    """Return the system that *system* or the design *on* says, else the one that all measurements name."""
    if system:
        require(not on, "--system", system, "give either --system or --on")
        return _of_name(split_size(system)[0], None)
    if on:
        point = load_design(on)
        name = system_of_design(on)
        return _of_name(name, point) if name else Target("", _entry_of(point), point, point)
    names = sorted(set(named))
    require(bool(names), "--system", "", f"no measurement names its system: {HINT}")
    listed = ", ".join(names)
    require(
        len(names) == 1, "system", listed, f"the measurements are of different systems: {HINT}, and leave others out"
    )
    return _of_name(names[0], None)


def _of_name(name: str, design: DesignPoint | None) -> Target:
    name = name if name.endswith(YAML_ENDINGS) else catalog_entries.resolve_name("systems", name) or name
    if not name.endswith(YAML_ENDINGS) and name not in catalog_entries.entry_names("systems"):
        raise UnknownName.among("--system", name, "system", catalog_entries.entry_names("systems"))
    return Target(name, read_system_entry(name), _machine(name, None), design)


def system_of_design(source: str) -> str:
    """Return the system that a design names, without its size; empty where it spells out its hardware."""
    if is_model_at_system(source):
        return split_size(source.rpartition("@")[2])[0]
    if not source.endswith(YAML_ENDINGS):
        return ""  # the reader of designs refuses it
    named = catalog_entries.load_mapping(Path(source)).get("system")
    if not isinstance(named, str):
        return ""
    stem = split_size(named)[0]
    return str(Path(source).parent / stem) if stem.endswith(YAML_ENDINGS) else stem


@cache
def _machine(name: str, npus: int | None) -> DesignPoint:
    sized = name if npus is None else f"{name}:{npus}"
    mesh = {"sequence": 1, "global_batch": 1, "tp": 1, "cp": 1, "pp": 1}
    return load_design({"model": TINY, "system": sized, "workload": mesh})


def _entry_of(point: DesignPoint) -> dict[str, Any]:
    """Return the entry of a system with the hardware of *point*."""
    return {
        "source": "a design file",
        "accelerator": point.compute.accelerator,
        "npus": point.network.npus,
        "network": schema.write_value(point.network, brief=True),
        "compute": {
            key: value for key, value in schema.write_value(point.compute, brief=True).items() if key != "accelerator"
        },
        "memory": schema.write_value(point.memory, brief=True),
        "collective": schema.write_value(point.collective),
    }


def target_dimensions(target: Target) -> list[dict[str, Any]]:
    """Return the dimensions of the target's file, completed from their links."""
    return entry_dimensions(target.entry, target.name or "design")


def system_of_device(name: str) -> str:
    """Return the usual system of an accelerator by the name that its driver gives; empty if there is none.

    >>> system_of_device("NVIDIA H200"), system_of_device("NVIDIA A100-SXM4-80GB"), system_of_device("Tesla T4")
    ('dgx-h200', 'dgx-a100', '')
    """
    return find_system(name)


def check_accelerator(target: Target, system: str, where: str, reason: str) -> None:
    """Refuse a measurement of another accelerator than the target's."""
    if system and system in catalog_entries.entry_names("systems"):
        accelerator = catalog_entries.read_entry("systems", system)["accelerator"].partition("-")[0]
        ours = str(target.entry["accelerator"]).partition("-")[0]
        if accelerator != ours:
            raise SpecError(where, reason, f"is another accelerator than that of {target.name or 'the design'}: {ours}")


# ---- the parameters that measurements can move


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
