"""Small parameter sets whose every design can be evaluated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from cosmic.base.errors import SpecError
from cosmic.search.problem import Problem
from cosmic.search.space.diagram import Indices
from cosmic.search.space.parameter_set import ParameterSet
from cosmic.search.space.space_files import load_space

SMALL: dict[str, Any] = {
    "version": 1,
    "base": "gpt3-175b@cosmic-512",
    "parameters": {
        "workload.dp": [16, 64],
        "workload.cp": [1, 2],
        "workload.weight_sharding": ["zero3"],
        "collective.chunks": [4, 16],
        "collective.algorithms.0": ["ring", "direct"],
        "collective.algorithms.3": ["direct", "halving_doubling"],
        "network.dims.0.topology": ["ring", "fully_connected"],
        "network.dims.3.topology": ["fully_connected", "switch"],
        "network.dims.0.bandwidth": {"from": "50 GB/s", "to": "500 GB/s", "step": "150 GB/s"},
        "network.dims.3.bandwidth": {"from": "50 GB/s", "to": "250 GB/s", "step": "50 GB/s"},
    },
    "derived": {"workload.tp": "npus // (dp * cp * pp)"},
    "constraints": ["dp * cp * pp <= npus"],
    "objective": "perf_per_bandwidth",
}


def small(**changed: Any) -> ParameterSet:
    """Return a set of 2,560 designs, with other keys where asked for."""
    return load_space({**SMALL, **changed})


def with_parameters(**parameters: Any) -> ParameterSet:
    """Return the small set with further parameters, dots as double underscores."""
    more = {name.replace("__", "."): value for name, value in parameters.items()}
    return small(parameters={**SMALL["parameters"], **more})


def restricted(space: ParameterSet, rng: np.random.Generator, least: int = 500, most: int = 20_000) -> ParameterSet:
    """Return *space* with a few values of each parameter, drawn at random."""
    while True:
        kept = []
        for parameter in space.parameters:
            count = int(rng.integers(1, min(len(parameter.values), 3) + 1))
            places = sorted(rng.choice(len(parameter.values), count, replace=False).tolist())
            if parameter.name == "workload.weight_sharding":
                places = [1]  # without it nothing fits
            kept.append(replace(parameter, values=tuple(parameter.values[place] for place in places)))
        try:
            found = replace(space, parameters=tuple(kept))
        except SpecError:
            continue
        if least <= found.valid <= most:
            return found


def all_losses(problem: Problem) -> tuple[Indices, Any]:
    """Return every row of a problem and its losses; infinite where it cannot run."""
    rows = problem.space.listed(0, problem.space.valid)
    results = problem.evaluate(rows)
    found = problem.outcomes(rows, results).losses.copy()
    found[~results.feasible | np.isnan(found).any(axis=1)] = np.inf
    return rows, found
