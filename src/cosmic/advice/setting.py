"""What must be set so that a design loads as a changed one: the change, and what would otherwise be chosen anew."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from cosmic.advice.trying import FASTER, Change, improvements, repairs, written
from cosmic.caching import keep, recall
from cosmic.design import schema
from cosmic.design.collective import algorithms
from cosmic.design.fabric import Fabric
from cosmic.design.paths import full_path
from cosmic.design.point import DesignPoint
from cosmic.design.workload import schedules
from cosmic.errors import SpecError
from cosmic.evaluation import Metrics, evaluate
from cosmic.loading.designs import stated_fields
from cosmic.mapping.completing import load_design
from cosmic.mapping.suggesting import MAPPING

MESH = ("workload.tp", "workload.cp", "workload.pp")
"""A mesh that is stated is kept; where it is not, one is looked for."""
ROUNDS = 4
Source = str | Path | Mapping[str, Any]
"""A design as `load_design` takes it."""
Advised = tuple[Change, dict[str, Any]]
"""A change, and everything to set for it."""


def advise(source: Source, overrides: Mapping[str, Any], point: DesignPoint, base: Metrics | None) -> list[Advised]:
    """Return what helps a design that achieves *base* most, or makes it run if that is None, with what to set for it.

    *point* is what *source* loads as with *overrides*. The answer is kept for other processes.
    """
    stated = sorted(stated_fields(source, overrides))
    key = f"{str(source)!r} {dict(overrides)} {stated} {point.identity} {base is None} {[*algorithms, *schedules]}"
    if content := recall("advice", key):
        with suppress(ValueError, TypeError):
            return [(Change(**change), settings) for change, settings in json.loads(content)]
    changes = repairs(point) if base is None else improvements(point, base)
    if base is None:
        changes = [_remapped(source, overrides, point, change) for change in changes]
        changes.sort(key=lambda each: (each.kind == "purchase", bool(each.condition), each.step_s))
    found = [(change, settings_of(source, overrides, point, change.settings)) for change in changes]
    known = [(change, settings) for change, settings in found if settings is not None]
    with suppress(TypeError):  # an override that is no JSON
        keep("advice", key, json.dumps([(asdict(change), settings) for change, settings in known]).encode())
    return known


def _remapped(source: Source, overrides: Mapping[str, Any], point: DesignPoint, change: Change) -> Change:
    """Return a change that makes a design run with the mapping that is looked for where none is stated, if faster.

    A design that cannot run has a mapping that nobody chose: what fits is better laid out anew.
    """
    mapping = [f"workload.{name}" for name in MAPPING]
    own = {path: value for path, value in change.settings.items() if path not in mapping}
    if not own:
        return change
    given = {full_path(path): value for path, value in overrides.items()}
    try:
        found = load_design(source, given | own)
        metrics = evaluate(found)
    except SpecError:
        return change
    if not isinstance(metrics, Metrics) or metrics.step_s * FASTER > change.step_s:
        return change
    moved = {path: value for path in mapping if (value := schema.get(found, path)) != schema.get(point, path)}
    settings = own | {path: written(found, path, value) for path, value in moved.items()}
    if _unbuilt(changed(point, settings)) != _unbuilt(found):
        return change
    return replace(
        change,
        settings=settings,
        step_s=metrics.step_s,
        memory_bytes=metrics.memory_bytes,
        tokens_per_s=metrics.tokens_per_s,
        samples_per_s=metrics.samples_per_s,
    )


def _without_tiers(source: Source, settings: dict[str, Any], found: DesignPoint) -> dict[str, Any]:
    """Return *settings* without tiers of memory that a design takes from its node anyway."""
    shorter = {path: value for path, value in settings.items() if path != "memory.tiers"}
    if len(shorter) == len(settings):
        return settings
    try:
        return shorter if load_design(source, shorter) == found else settings
    except SpecError:  # state is placed in tiers that the node does not have
        return settings


def settings_of(
    source: Source, overrides: Mapping[str, Any], point: DesignPoint, change: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return the overrides with which *source* loads as *point* with a *change*; None if there are none.

    *point* is what it loads as with *overrides*; they stay in force, where the change is not about the same field.

    >>> point = load_design("llama3-8b@dgx-h100:8", {"tp": 8, "pp": 1})
    >>> found = settings_of("llama3-8b@dgx-h100:8", {"tp": 8, "pp": 1}, point, {"workload.tp": 4, "workload.dp": 2})
    >>> load_design("llama3-8b@dgx-h100:8", found) == changed(point, {"workload.tp": 4, "workload.dp": 2})
    True
    """
    target = changed(point, change)
    given = {full_path(path): value for path, value in overrides.items()}
    wholes = {path: _whole(path, given) for path in change}
    settings = given | {whole: written(target, whole, schema.get(target, whole)) for whole in wholes.values()}
    settings |= {path: change[path] for path, whole in wholes.items() if whole == path}
    stated = stated_fields(source, settings)
    settings |= {path: target.fields[path] for path in MESH if path not in stated}
    for turn in range(ROUNDS):
        try:
            found = load_design(source, settings)
        except SpecError:
            return None
        apart = _apart(found, target)
        if not apart:
            return _without_tiers(source, settings, found) if _unbuilt(found) == _unbuilt(target) else None
        if any(path in settings or not path.startswith("workload.") for path in apart):
            return None
        if turn == ROUNDS - 2:  # each change of the rest moves something else: state all of the mapping
            apart += [f"workload.{name}" for name in MAPPING if f"workload.{name}" not in settings]
        settings |= {path: written(target, path, schema.get(target, path)) for path in apart}
    return None


def _apart(found: DesignPoint, target: DesignPoint) -> list[str]:
    """Return the fields in which two designs differ; a list of the workload is one field.

    A design that is loaded with another bandwidth gets the ports and optics that its switch has at that.
    """
    one, other = _unbuilt(found).fields, _unbuilt(target).fields
    paths = [path for path in one | other if one.get(path) != other.get(path)]
    return list(
        dict.fromkeys(".".join(path.split(".")[:2]) if path.startswith("workload.") else path for path in paths)
    )


def _unbuilt(point: DesignPoint) -> DesignPoint:
    """Return a design that does not say how its network is built."""
    dims = tuple(replace(dim, fabric=Fabric()) for dim in point.network.dims)
    return replace(point, network=replace(point.network, dims=dims))


def changed(point: DesignPoint, change: Mapping[str, Any]) -> DesignPoint:
    """Return *point* with some fields changed to values as files write them."""
    slots = {path: schema.slot_at(point, path) for path in change}
    read = {path: schema.read(slot.hint, change[path], path, slot.dimension) for path, slot in slots.items()}
    found: DesignPoint = schema.assign(point, read)
    return found


def _whole(path: str, given: Mapping[str, Any]) -> str:
    """Return the path to set: a list or a layer around *path*, where that was given as a whole."""
    return next((each for each in given if path.startswith(f"{each}.")), path)
