"""What one asks of a parameter set: a function for each command of spaces, with the words of the command.

A space is a name of the catalog, the path of a YAML file, its content, or a `ParameterSet`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from cosmic.base.errors import SpecError
from cosmic.base.json_types import Count
from cosmic.search.space.parameter_set import ParameterSet
from cosmic.search.space.space_files import SAMPLED_AT_ONCE, json_schema, load_space

SpaceSource = str | Path | Mapping[str, Any] | ParameterSet


def open_space(space: SpaceSource, stacks: Iterable[str] = ()) -> ParameterSet:
    """Return a parameter set that opens the layers *stacks* alone, all others frozen; all of its own without any."""
    loaded = space if isinstance(space, ParameterSet) else load_space(space)
    opened = list(stacks)
    return loaded.restrict(opened) if opened else loaded


def show_space(space: SpaceSource, *, stacks: Iterable[str] = ()) -> dict[str, Any]:
    """Return what may vary: parameters by layer, derived fields, constraints, workloads and the objective.

    >>> import cosmic
    >>> shown = cosmic.space.show("cosmic-1024-paper")
    >>> [parameter["name"] for parameter in shown["parameters"]][:2]
    ['workload.{dp,cp,pp,tp}', 'collective.scheduling']
    """
    opened = open_space(space, stacks)
    return {
        "name": opened.name,
        "base": opened.base.identity,
        "parameters": [
            {"name": parameter.name, "stack": parameter.stack, "sets": parameter.paths, "values": parameter.labels}
            for parameter in opened.parameters
        ],
        "derived": opened.derived,
        "constraints": opened.constraints,
        "limits": opened.limits,
        "workloads": {workload.name: workload.weight for workload in opened.workloads},
        "objective": opened.objective,
    }


@dataclass(frozen=True, slots=True)
class StackSize:
    """One layer."""

    raw: Count
    """All combinations of values."""
    valid: Count
    """Those that the constraints allow, all else as in the base design."""


@dataclass(frozen=True, slots=True)
class SpaceSize:
    """The number of points."""

    raw: Count
    """All combinations of values."""
    valid: Count
    """Those that the constraints allow."""
    by_stack: Mapping[str, StackSize]
    """The numbers of the set that opens one layer alone, by layer."""


def count_points(space: SpaceSource, *, stacks: Iterable[str] = ()) -> SpaceSize:
    """Return how many points a set has: raw, and valid.

    >>> import cosmic
    >>> cosmic.space.count("cosmic-1024-paper").raw
    76859228160000
    """
    opened = open_space(space, stacks)
    sizes = {}
    for stack in opened.stacks:
        raw = prod(len(parameter.values) for parameter in opened.parameters if parameter.stack == stack)
        try:
            valid = opened.restrict([stack]).valid
        except SpecError:  # the base design breaks a constraint, whatever this layer is
            valid = 0
        sizes[stack] = StackSize(raw, valid)
    return SpaceSize(opened.raw, opened.valid, sizes)


def sample_points(
    space: SpaceSource, *, number: int = 10, seed: int = 0, stacks: Iterable[str] = ()
) -> list[dict[str, Any]]:
    """Return valid points, drawn uniformly: the value of each parameter and derived field.

    >>> import cosmic
    >>> points = cosmic.space.sample("cosmic-1024-paper", number=3, seed=1)
    >>> len(points), points == cosmic.space.sample("cosmic-1024-paper", number=3, seed=1)
    (3, True)
    """
    opened, random = open_space(space, stacks), np.random.default_rng(seed)
    batches = (
        opened.sample(min(number - first, SAMPLED_AT_ONCE), random) for first in range(0, number, SAMPLED_AT_ONCE)
    )
    return list(islice((opened.labels(row) for rows in batches for row in rows), number))


def schema_of_space(space: SpaceSource, *, stacks: Iterable[str] = ()) -> dict[str, Any]:
    """Return a parameter set as JSON Schema, for agents and simulators.

    >>> import cosmic
    >>> cosmic.space.schema("cosmic-1024-paper")["$schema"]
    'https://json-schema.org/draft/2020-12/schema'
    """
    return json_schema(open_space(space, stacks))
