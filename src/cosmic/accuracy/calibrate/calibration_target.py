"""The system that is calibrated: named by the user, or by all of the measurements alike."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from cosmic.base.errors import SpecError, UnknownName, require
from cosmic.design import catalog_entries, schema
from cosmic.design.design_point import DesignPoint
from cosmic.design.measured_hardware import find_system
from cosmic.design.systems import YAML_ENDINGS, entry_dimensions, is_model_at_system, read_system_entry, split_size
from cosmic.search.mapping.design_completion import load_design

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
