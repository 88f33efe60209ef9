"""Designs that a request names: a model of the catalog on a system of the catalog, never a file."""

from __future__ import annotations

from typing import get_args

from cosmic import catalog
from cosmic.design.workload import Task
from cosmic.errors import UnknownName, require

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
        if catalog.known_as(kind, word) is None:
            raise UnknownName.among(kind.removesuffix("s"), word, kind.removesuffix("s"), catalog.names(kind))
    if colon:
        number = int(npus) if npus.isascii() and npus.isdigit() and len(npus) <= len(str(MOST_NPUS)) else 0
        require(0 < number <= MOST_NPUS, "accelerators", npus, f"must be a whole number from 1 to {MOST_NPUS:,}")
    return name


def task_name(task: str) -> str:
    """Return *task* if there is such a task."""
    if task not in TASKS:
        raise UnknownName.among("task", task, "task", TASKS)
    return task
