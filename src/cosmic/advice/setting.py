"""What must be set so that a design loads as a changed one: the change, and what would otherwise be chosen anew."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cosmic.advice.trying import written
from cosmic.design import schema
from cosmic.design.paths import full_path
from cosmic.design.point import DesignPoint
from cosmic.errors import SpecError
from cosmic.loading.designs import load_design, stated_fields

MESH = ("workload.tp", "workload.cp", "workload.pp")
"""A mesh that is stated is kept; where it is not, one is looked for."""
ROUNDS = 4


def settings_of(
    source: str | Path | Mapping[str, Any], overrides: Mapping[str, Any], point: DesignPoint, change: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return the overrides with which *source* loads as *point* with a *change*; None if there are none.

    *point* is what it loads as with *overrides*; they stay in force, where the change is not about the same field.

    >>> point = load_design("llama3-8b@dgx-h100:8", {"micro_batch": 2})
    >>> settings_of("llama3-8b@dgx-h100:8", {"micro_batch": 2}, point, {"workload.micro_batch": 1})["workload.tp"]
    1
    """
    target = changed(point, change)
    given = {full_path(path): value for path, value in overrides.items()}
    wholes = {path: _whole(path, given) for path in change}
    settings = given | {whole: written(target, whole, schema.get(target, whole)) for whole in wholes.values()}
    settings |= {path: change[path] for path, whole in wholes.items() if whole == path}
    stated = stated_fields(source, settings)
    settings |= {path: target.fields[path] for path in MESH if path not in stated}
    for _ in range(ROUNDS):
        try:
            found = load_design(source, settings)
        except SpecError:
            return None
        apart = [path for path, value in found.fields.items() if target.fields.get(path) != value]
        if not apart:
            return settings if found == target else None
        if any(path in settings or not path.startswith("workload.") for path in apart):
            return None
        settings |= {path: written(target, path, target.fields[path]) for path in apart}
    return None


def changed(point: DesignPoint, change: Mapping[str, Any]) -> DesignPoint:
    """Return *point* with some fields changed to values as files write them."""
    slots = {path: schema.slot_at(point, path) for path in change}
    read = {path: schema.read(slot.hint, change[path], path, slot.dimension) for path, slot in slots.items()}
    found: DesignPoint = schema.assign(point, read)
    return found


def _whole(path: str, given: Mapping[str, Any]) -> str:
    """Return the path to set: a list or a layer around *path*, where that was given as a whole."""
    return next((each for each in given if path.startswith(f"{each}.")), path)
