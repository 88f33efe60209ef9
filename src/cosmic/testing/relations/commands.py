"""The command that shows a design: a model and a system of the catalog, and what differs from them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from cosmic import catalog
from cosmic.design import schema
from cosmic.design.point import STACKS, DesignPoint
from cosmic.errors import SpecError
from cosmic.evaluation import Infeasible, evaluate
from cosmic.mapping.completing import load_design

ROOMY = "1e15 B"
"""Memory of a design that does not fit, so that its step is shown."""
MESH = ("tp", "cp", "pp")
STATED = ("task", "dp", *MESH, "ep", "sequence", "global_batch", "micro_batch", "virtual_stages")
"""Keys that every command states: their defaults depend on each other."""


def command_of(point: DesignPoint) -> str:
    """Return the command that evaluates *point*; with room for it, if it does not fit."""
    source, settings = nearest(point)
    if _misses_memory(point):
        settings["memory.capacity"] = ROOMY
    return " ".join(["cosmic evaluate", source, *(_option(path, value) for path, value in settings.items())])


def settings_of(point: DesignPoint, changed: DesignPoint) -> str:
    """Return the options that turn the command of *point* into that of *changed*."""
    return " ".join(_option(path, value) for path, value in _differences(point, changed).items())


def nearest(point: DesignPoint) -> tuple[str, dict[str, Any]]:
    """Return the design of the catalog that differs least from *point*, and what to set in it."""
    found = [(source, _differences(bare, point)) for source, bare in _candidates(point)]
    if not found:
        return point.model.name, {}
    source, settings = min(found, key=lambda each: len(each[1]))
    stated = {key: getattr(point.workload, key) for key in STATED}
    return source, {**stated, **settings}


def _misses_memory(point: DesignPoint) -> bool:
    outcome = evaluate(point)
    return isinstance(outcome, Infeasible) and any("GiB" in reason for reason in outcome.reasons)


def _candidates(point: DesignPoint) -> Iterator[tuple[str, DesignPoint]]:
    """Yield the designs of the catalog with the model and the number of accelerators of *point*."""
    workload = point.workload
    for name in catalog.names("systems"):
        for source in (f"{point.model.name}@{name}:{point.network.npus}", f"{point.model.name}@{name}"):
            bare = _bare(source, workload.task, workload.tp, workload.cp, workload.pp)
            if bare is not None and len(bare.network.dims) == len(point.network.dims):
                yield source, bare


@lru_cache(maxsize=4096)
def _bare(source: str, task: str, *degrees: int) -> DesignPoint | None:
    try:
        return load_design(source, {"task": task, **dict(zip(MESH, degrees, strict=True))}, plain=True)
    except SpecError:
        return None


def _differences(one: DesignPoint, other: DesignPoint) -> dict[str, Any]:
    """Return what to set in *one* to get *other*, as it stands in files, keys of the workload by their short name."""
    settings: dict[str, Any] = {}
    for layer in STACKS:
        written = [_flat(schema.write(getattr(point, layer)) or {}, layer) for point in (one, other)]
        for path in dict.fromkeys((*written[1], *written[0])):
            if written[0].get(path) != written[1].get(path):
                settings[path.removeprefix("workload.")] = written[1].get(path)
    return settings


def _flat(tree: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return the leaves of a layer by path: dimensions of the network by place, other lists as a whole."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        path = f"{prefix}.{key}"
        if isinstance(value, Mapping):
            found |= _flat(value, path)
        elif path == "network.dims":
            for place, each in enumerate(value):
                found |= _flat(each, f"{path}.{place}")
        else:
            found[path] = value
    return found


def _option(path: str, value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)  # JSON is YAML in one line
    return f"--set {shlex.quote(f'{path}={text}')}"
