"""The page's form of a search: what it offers, and the search that it sends, checked.

A request names a parameter set of the catalog, or a model of the catalog on a system of the catalog, never a file.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, get_args

from cosmic.base.errors import UnknownName, require
from cosmic.design import catalog_entries
from cosmic.design.workload_layer import Task
from cosmic.report.live.request_checks import (
    check_keys,
    read_integer,
    read_items,
    read_mapping,
    read_text_field,
    read_texts,
)
from cosmic.search.agent import agent_settings, agents
from cosmic.search.design_wording import metric_label, metric_unit
from cosmic.search.search_inputs import AUTO, DEFAULT_TRIALS, Inputs, Options, make_inputs
from cosmic.search.space.parameter_set import ParameterSet
from cosmic.search.space.parameters import Parameter
from cosmic.search.space.space_files import json_schema, load_space, mapping_space
from cosmic.simulate.metrics import BETTER
from cosmic.simulate.step_evaluation import ENGINES

MOST_NPUS = 2**22
TASKS: tuple[str, ...] = get_args(Task)


def is_design(name: str) -> bool:
    """Return whether a request names a design rather than a parameter set."""
    return "@" in name


def design_name(name: str) -> str:
    """Return *name* if it is MODEL@SYSTEM or MODEL@SYSTEM:NPUS, both of the catalog.

    >>> design_name("llama3-8b@dgx-h100:16")
    'llama3-8b@dgx-h100:16'
    """
    model, _, system = name.rpartition("@")
    stem, colon, npus = system.partition(":")
    for kind, word in (("models", model), ("systems", stem)):
        if catalog_entries.resolve_name(kind, word) is None:
            raise UnknownName.among(
                kind.removesuffix("s"), word, kind.removesuffix("s"), catalog_entries.entry_names(kind)
            )
    if colon:
        number = int(npus) if npus.isascii() and npus.isdigit() and len(npus) <= len(str(MOST_NPUS)) else 0
        require(0 < number <= MOST_NPUS, "accelerators", npus, f"must be a whole number from 1 to {MOST_NPUS:,}")
    return name


def task_name(task: str) -> str:
    """Return *task* if there is such a task."""
    if task not in TASKS:
        raise UnknownName.among("task", task, "task", TASKS)
    return task


MOST_TRIALS = 1_000_000
MOST_SEED = 2**63 - 1
LEAST_INEXACT = 2**53
"""Whole numbers from here on are not exact in a browser: they are sent as text."""
SEARCH_SETUP_KEYS = (
    "space",
    "task",
    "name",
    "stacks",
    "restrict",
    "fixed",
    "agent",
    "settings",
    "objectives",
    "constraints",
)
SEARCH_KEYS = (*SEARCH_SETUP_KEYS, "trials", "seed", "engine")
SPACE_KEYS = ("space", "task", "stacks", "restrict", "fixed")


# ---- choices


@lru_cache(maxsize=1)
def form_choices() -> dict[str, Any]:
    """Return the choices of the form: spaces, agents, metrics, engines, models, systems, tasks."""
    return {
        "spaces": [_space_choice(name) for name in catalog_entries.entry_names("spaces")],
        "agents": [_agent_choice(name) for name in agents],
        "metrics": [
            {"name": name, "better": way, "label": metric_label(name), "unit": metric_unit(name)}
            for name, way in BETTER.items()
        ],
        "engines": list(ENGINES),
        "models": list(catalog_entries.entry_names("models")),
        "systems": list(catalog_entries.entry_names("systems")),
        "tasks": list(TASKS),
    }


def _space_choice(name: str) -> dict[str, Any]:
    entry = catalog_entries.read_entry("spaces", name)
    about = {"title": entry.get("title", ""), "base": entry["base"], "objective": entry.get("objective", "step_s")}
    return {"name": name, **about}


def _agent_choice(name: str) -> dict[str, Any]:
    settings = [
        {"name": key, "type": type(value).__name__, "default": value} for key, value in agent_settings(name).items()
    ]
    summary = (inspect.getdoc(agents[name]) or "").split("\n")[0]
    return {"name": name, "summary": summary, "settings": settings}


# ---- parameter sets


@lru_cache(maxsize=16)
def space_of(name: str, stacks: tuple[str, ...] = (), task: str = "") -> ParameterSet:
    """Return a parameter set of the catalog, or the mappings of MODEL@SYSTEM:NPUS; a request never names a file.

    *task* is what the model does there: training, if it is empty.
    """
    if is_design(name):
        space = mapping_space(design_name(name), {"workload.task": task_name(task)} if task else None)
        return space.restrict(stacks) if stacks else space
    if name not in catalog_entries.entry_names("spaces"):
        raise UnknownName.among("space", name, "space", catalog_entries.entry_names("spaces"))
    require(not task, "task", task, "is that of the parameter set: give MODEL@SYSTEM to choose one")
    space = load_space(name)
    return space.restrict(stacks) if stacks else space


def schema_of(space: ParameterSet) -> dict[str, Any]:
    """Return a parameter set as JSON Schema, with its layers, and with counts that are exact in a browser."""
    schema = json_schema(space)
    about = schema["x-cosmic"]
    sizes = {"raw": exact_count(about["raw"]), "valid": exact_count(about["valid"])}
    return schema | {"x-cosmic": about | sizes | {"stacks": list(space.stacks)}}


def exact_count(number: int) -> int | str:
    """Return a whole number for JSON: as text where a browser would round it.

    >>> exact_count(12), exact_count(2**60)
    (12, '1152921504606846976')
    """
    return number if number < LEAST_INEXACT else str(number)


def narrowed_space(body: Mapping[str, Any]) -> ParameterSet:
    """Return the parameter set of a request: one of the catalog, some values left out, some parameters fixed."""
    check_keys(body, SPACE_KEYS)
    space = space_of(read_text_field(body, "space"), task=_task_of(body))
    wanted = {name: [label] for name, label in read_mapping(body, "fixed").items()}
    for name, labels in read_mapping(body, "restrict").items():
        require(name not in wanted, f"restrict.{name}", labels, "is fixed: restrict it or fix it")
        wanted[name] = read_items(labels, f"restrict.{name}")
    if wanted:
        space = load_space(_with_values(space, wanted))
    stacks = read_texts(body, "stacks")
    return space.restrict(stacks) if stacks else space


def _task_of(body: Mapping[str, Any]) -> str:
    return read_text_field(body, "task") if "task" in body else ""


def _with_values(space: ParameterSet, wanted: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Return the content of a file for *space* with only the *wanted* values of some parameters."""
    parameters = {parameter.name: parameter for parameter in space.parameters}
    for name, labels in wanted.items():
        if name not in parameters:
            raise UnknownName.among("parameter", name, "parameter", parameters)
        _check_labels(parameters[name], labels)
    narrowed = {
        name: [label for label in parameter.labels if name not in wanted or label in wanted[name]]
        for name, parameter in parameters.items()
    }
    domains = {name: _domain_of(parameters[name], labels) for name, labels in narrowed.items()}
    return {**(space.source or {}), "name": f"{space.name}-narrowed", "parameters": domains}


def _domain_of(parameter: Parameter, labels: list[Any]) -> Any:
    """Return values as a file lists them; a parameter of all entries of a list is marked as shared."""
    return {"values": labels, "shared": True} if "*" in parameter.name and "{" not in parameter.name else labels


def _check_labels(parameter: Parameter, labels: Sequence[Any]) -> None:
    require(len(labels) > 0, f"restrict.{parameter.name}", labels, "leave at least one value")
    for label in labels:
        if index_of_label(parameter, label) is None:
            texts = [str(each) for each in parameter.labels]
            raise UnknownName.among(parameter.name, label, "value of it", texts)


def index_of_label(parameter: Parameter, label: Any) -> int | None:
    """Return the index of a value among those of a parameter; True is not 1."""
    for index, candidate in enumerate(parameter.labels):
        if candidate == label and isinstance(candidate, bool) == isinstance(label, bool):
            return index
    return None


# ---- searches


@dataclass(frozen=True, slots=True)
class Wanted:
    """A search to start, checked."""

    name: str
    space: str | Mapping[str, Any]
    """A name of the catalog, MODEL@SYSTEM:NPUS, or the content of a file."""
    inputs: Inputs


def search_of(body: Mapping[str, Any]) -> Wanted:
    """Return the search of a request, with everything checked that can be before it runs."""
    check_keys(body, SEARCH_KEYS)
    narrowed = narrowed_space({key: body[key] for key in ("space", "task", "restrict", "fixed") if key in body})
    options = Options(
        agent=read_text_field(body, "agent", Options.agent),
        settings=read_mapping(body, "settings"),
        objectives=read_texts(body, "objectives"),
        constraints=read_texts(body, "constraints"),
        stacks=read_texts(body, "stacks"),
        trials=read_integer(body, "trials", DEFAULT_TRIALS, (1, MOST_TRIALS)) if "trials" in body else None,
        seed=read_integer(body, "seed", 0, (0, MOST_SEED)),
        engine=read_text_field(body, "engine", "analytic"),
    )
    if options.agent != AUTO and options.agent not in agents:
        raise UnknownName.among("agent", options.agent, "agent", list(agents))
    inputs = make_inputs(narrowed, options)
    catalogued = not (body.get("restrict") or body.get("fixed") or body.get("task"))
    called = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{body['space']}-{_task_of(body)}".strip("-"))
    name = read_text_field(body, "name", f"{called}-{inputs.agent}-{options.seed}")
    return Wanted(name, body["space"] if catalogued else dict(inputs.space), inputs)
