"""The page's form of a search: what it offers, and the search that it sends, checked."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from cosmic import catalog
from cosmic.errors import UnknownName, require
from cosmic.evaluation import BETTER, ENGINES
from cosmic.exploration.agent import agents, settings_of
from cosmic.exploration.inputs import AUTO, TRIALS, Inputs, Options, make_inputs
from cosmic.live.bodies import integer, items, mapping, only, text, texts
from cosmic.live.catalogued import TASKS, design_name, is_design, task_name
from cosmic.psa.files import json_schema, load_space, mapping_space
from cosmic.psa.parameters import Parameter
from cosmic.psa.space import ParameterSet
from cosmic.reporting.words import metric_label, metric_unit

MOST_TRIALS = 1_000_000
MOST_SEED = 2**63 - 1
SAFE = 2**53
"""Whole numbers from here on are not exact in a browser: they are sent as text."""
WANTED = ("space", "task", "name", "stacks", "restrict", "fixed", "agent", "settings", "objectives", "constraints")
SEARCH = (*WANTED, "trials", "seed", "engine")
SET = ("space", "task", "stacks", "restrict", "fixed")


# ------------------------------------------------------------------------------------------------------ choices


@lru_cache(maxsize=1)
def offered() -> dict[str, Any]:
    """Return the choices of the form: spaces, agents, metrics, engines, models, systems, tasks."""
    return {
        "spaces": [_space(name) for name in catalog.names("spaces")],
        "agents": [_agent(name) for name in agents],
        "metrics": [
            {"name": name, "better": way, "label": metric_label(name), "unit": metric_unit(name)}
            for name, way in BETTER.items()
        ],
        "engines": list(ENGINES),
        "models": list(catalog.names("models")),
        "systems": list(catalog.names("systems")),
        "tasks": list(TASKS),
    }


def _space(name: str) -> dict[str, Any]:
    entry = catalog.entry("spaces", name)
    about = {"title": entry.get("title", ""), "base": entry["base"], "objective": entry.get("objective", "step_s")}
    return {"name": name, **about}


def _agent(name: str) -> dict[str, Any]:
    settings = [
        {"name": key, "type": type(value).__name__, "default": value} for key, value in settings_of(name).items()
    ]
    summary = (inspect.getdoc(agents[name]) or "").split("\n")[0]
    return {"name": name, "summary": summary, "settings": settings}


# --------------------------------------------------------------------------------------------- parameter sets


@lru_cache(maxsize=16)
def space_of(name: str, stacks: tuple[str, ...] = (), task: str = "") -> ParameterSet:
    """Return a parameter set of the catalog, or the mappings of MODEL@SYSTEM:NPUS; a request never names a file.

    *task* is what the model does there: training, if it is empty.
    """
    if is_design(name):
        space = mapping_space(design_name(name), {"workload.task": task_name(task)} if task else None)
        return space.restrict(stacks) if stacks else space
    if name not in catalog.names("spaces"):
        raise UnknownName.among("space", name, "space", catalog.names("spaces"))
    require(not task, "task", task, "is that of the parameter set: give MODEL@SYSTEM to choose one")
    space = load_space(name)
    return space.restrict(stacks) if stacks else space


def schema_of(space: ParameterSet) -> dict[str, Any]:
    """Return a parameter set as JSON Schema, with its layers, and with counts that are exact in a browser."""
    found = json_schema(space)
    about = found["x-cosmic"]
    sizes = {"raw": countable(about["raw"]), "valid": countable(about["valid"])}
    return found | {"x-cosmic": about | sizes | {"stacks": list(space.stacks)}}


def countable(number: int) -> int | str:
    """Return a whole number for JSON: as text where a browser would round it.

    >>> countable(12), countable(2**60)
    (12, '1152921504606846976')
    """
    return number if number < SAFE else str(number)


def narrowed(body: Mapping[str, Any]) -> ParameterSet:
    """Return the parameter set of a request: one of the catalog, some values left out, some parameters fixed."""
    only(body, SET)
    space = space_of(text(body, "space"), task=_task(body))
    wanted = {name: [label] for name, label in mapping(body, "fixed").items()}
    for name, labels in mapping(body, "restrict").items():
        require(name not in wanted, f"restrict.{name}", labels, "is fixed: restrict it or fix it")
        wanted[name] = items(labels, f"restrict.{name}")
    if wanted:
        space = load_space(_with_values(space, wanted))
    stacks = texts(body, "stacks")
    return space.restrict(stacks) if stacks else space


def _task(body: Mapping[str, Any]) -> str:
    return text(body, "task") if "task" in body else ""


def _with_values(space: ParameterSet, wanted: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Return the content of a file for *space* with only the *wanted* values of some parameters."""
    parameters = {each.name: each for each in space.parameters}
    for name, labels in wanted.items():
        if name not in parameters:
            raise UnknownName.among("parameter", name, "parameter", parameters)
        _check_labels(parameters[name], labels)
    kept = {
        name: [label for label in each.labels if name not in wanted or label in wanted[name]]
        for name, each in parameters.items()
    }
    domains = {name: _domain(parameters[name], labels) for name, labels in kept.items()}
    return {**(space.source or {}), "name": f"{space.name}-narrowed", "parameters": domains}


def _domain(parameter: Parameter, labels: list[Any]) -> Any:
    """Return values as a file lists them; a parameter of all entries of a list is marked as shared."""
    return {"values": labels, "shared": True} if "*" in parameter.name and "{" not in parameter.name else labels


def _check_labels(parameter: Parameter, labels: Sequence[Any]) -> None:
    require(len(labels) > 0, f"restrict.{parameter.name}", labels, "leave at least one value")
    for label in labels:
        if find(parameter, label) is None:
            known = [str(each) for each in parameter.labels]
            raise UnknownName.among(parameter.name, label, "value of it", known)


def find(parameter: Parameter, label: Any) -> int | None:
    """Return the index of a value among those of a parameter; True is not 1."""
    for place, known in enumerate(parameter.labels):
        if known == label and isinstance(known, bool) == isinstance(label, bool):
            return place
    return None


# --------------------------------------------------------------------------------------------------- searches


@dataclass(frozen=True, slots=True)
class Wanted:
    """A search to start, checked."""

    name: str
    space: str | Mapping[str, Any]
    """A name of the catalog, MODEL@SYSTEM:NPUS, or the content of a file."""
    inputs: Inputs


def search_of(body: Mapping[str, Any]) -> Wanted:
    """Return the search of a request, with everything checked that can be before it runs."""
    only(body, SEARCH)
    whole = narrowed({key: body[key] for key in ("space", "task", "restrict", "fixed") if key in body})
    options = Options(
        agent=text(body, "agent", Options.agent),
        settings=mapping(body, "settings"),
        objectives=texts(body, "objectives"),
        constraints=texts(body, "constraints"),
        stacks=texts(body, "stacks"),
        trials=integer(body, "trials", TRIALS, (1, MOST_TRIALS)) if "trials" in body else None,
        seed=integer(body, "seed", 0, (0, MOST_SEED)),
        engine=text(body, "engine", "analytic"),
    )
    if options.agent != AUTO and options.agent not in agents:
        raise UnknownName.among("agent", options.agent, "agent", list(agents))
    inputs = make_inputs(whole, options)
    catalogued = not (body.get("restrict") or body.get("fixed") or body.get("task"))
    called = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{body['space']}-{_task(body)}".strip("-"))
    name = text(body, "name", f"{called}-{inputs.agent}-{options.seed}")
    return Wanted(name, body["space"] if catalogued else dict(inputs.space), inputs)
