"""Designs with a serving layer: the layer as files write it, and the workload that follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cosmic import catalog
from cosmic.catalog.systems import split_size
from cosmic.design import schema
from cosmic.design.point import OF_ANY_STEP, DesignPoint
from cosmic.design.serving import Serving
from cosmic.design.workload import Workload
from cosmic.errors import SpecError, UnknownName, require
from cosmic.mapping import suggesting as mappings
from cosmic.mapping.deployments import DEPLOYED

TASK = OF_ANY_STEP["task"]
"""The task of a workload that is served: prompts are part of the load."""


def read_serving(given: Any) -> Serving | None:
    """Return the serving layer of a design file; None if it has none."""
    if given is None:
        return None
    layer: Serving = schema.read(Serving, given, "serving")
    engines = catalog.names("engines")
    if layer.engine not in engines:
        raise UnknownName.among("serving.engine", layer.engine, "engine", engines)
    system = layer.prefill.system if layer.prefill else None
    if system is not None:
        where, sized = "serving.prefill.system", split_size(system)[1]
        require(not sized, where, system, "name it without a number: the pool's mapping says how many accelerators")
        if system not in catalog.names("systems"):
            raise UnknownName.among(where, system, "system", catalog.names("systems"))
    return layer


def in_place_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what overrides by path replace: a load has requests in flight or a rate, so that either drops the other.

    >>> in_place_of({"serving.load.rate": 5})
    {'serving.load.concurrency': None, 'serving.load.rounds': None}
    """
    replaced = {
        "serving.load.rate": ("serving.load.concurrency", "serving.load.rounds"),
        "serving.load.concurrency": ("serving.load.rate",),
    }
    dropped = (other for path, others in replaced.items() if given.get(path) is not None for other in others)
    return {path: None for path in dropped if path not in given}


def served(
    draft: DesignPoint, stated: Mapping[str, Any], usual: Mapping[str, Any], given: Mapping[str, Any]
) -> tuple[DesignPoint, tuple[str, ...], int]:
    """Return the design that serves the load of *draft*, which fields were suggested, and of how many mappings.

    Of the workload, *stated* is kept. Its sequence and batch have no meaning, as the load decides what a step has. A
    mesh that is not stated in full is the best of a search; so is tp of the prefill pool, unless
    *given* has it. With a stated dp, the pool has as many instances as take all that dp leaves, unless that is given.
    """
    layer = draft.serving
    assert layer is not None  # noqa: S101  only such designs come here
    if stated.get("task", TASK) != TASK:
        raise SpecError(
            "workload.task", stated["task"], "a design with a serving section serves requests: leave it out"
        )
    of_step = (*mappings.MAPPING, *mappings.SERVED, "sequence", "task")
    task = {key: value for key, value in usual.items() if key not in of_step} | dict(stated)
    task = {**OF_ANY_STEP, **task}
    base = replace(draft, workload=Workload(**{key: task[key] for key in task if key != "dp"}))
    pool = given.get("prefill") if isinstance(given, Mapping) else None
    free: tuple[str, ...] = ()
    if isinstance(pool, Mapping) and layer.prefill is not None and layer.disaggregated:
        fills = "dp" in stated and layer.prefill.system is None
        free = tuple(name for name in ("tp", *(["replicas"] if fills else [])) if name not in pool)
    held = {key: stated[key] for key in DEPLOYED if key in stated}
    found = mappings.suggest_deployment(base, held, dict.fromkeys(free, True))
    mesh = {key: found.mapping[key] for key in DEPLOYED}
    workload: Workload = schema.read(Workload, schema.write({**task, **mesh}), "workload")
    point = replace(base, workload=workload)
    suggested = [key for key in DEPLOYED if key not in stated]
    if free:
        names = [f"prefill.{name}" for name in free]
        point = point.changed({f"serving.{name}": found.mapping[name] for name in names})
        suggested += names
    return point, tuple(suggested) if found.searched else (), found.searched
