"""Bounds: what no mapping can be faster than, so that most of them need not be evaluated.

Recomputation adds work, communication that is not overlapped adds time, and offloading adds transfers. So the mapping
that does none of these is a lower bound of all that differ from it in these switches alone, whether it fits into memory
or not. There are few such mappings: one stands for twenty others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cosmic.design.batch import Batch, column_of
from cosmic.evaluation import evaluate_batch
from cosmic.exploration.agent import Floats
from cosmic.exploration.objectives import loss
from cosmic.exploration.problem import Problem
from cosmic.psa.diagram import Indices
from cosmic.psa.parameters import Parameter

FASTEST: dict[str, Any] = {
    "workload.recompute": "none",
    "workload.recompute_modules": ("core_attn",),
    "workload.tp_overlap": True,
    "workload.ep_overlap": True,
    "workload.offload": (),
}
"""The value of each switch with which a step takes least."""
EITHER = "workload.ep_overlap"
"""A switch of which either value may be faster: where a step waits for its host, overlap takes the seconds of compute
that would hide weights."""
BOUNDED = ("step_s", "ttft_s", "tpot_s", "tokens_per_s", "samples_per_s", "mfu")
"""Objectives that are better the less a step takes, all else equal."""


def bound_of(problem: Problem) -> Callable[[Indices], Floats] | None:
    """Return a function that gives a lower bound of the loss of points; None where a problem has no such bound."""
    if not problem.of_designs:
        return None
    one = len(problem.objectives) == 1 and problem.objectives[0] in BOUNDED
    served = problem.space.base.serving is not None  # its seconds are of many steps
    if not one or served or problem.engine != "analytic" or problem.space.workloads:
        return None
    if problem.space.provisioner is not None:  # the bandwidth of one mapping is not that of another
        return None
    if not any(path in FASTEST for parameter in problem.space.parameters for path in parameter.paths):
        return None
    return lambda rows: lower_bounds(problem, rows)


def lower_bounds(problem: Problem, rows: Indices) -> Floats:
    """Return for each point a loss that it cannot be below; 0 where that is not known."""
    space, objective = problem.space, problem.objectives[0]
    codes = np.stack([_alike(each)[rows[:, place]] for place, each in enumerate(space.parameters)], axis=1)
    _, first, group = np.unique(_packed(codes), return_index=True, return_inverse=True)
    fields = space.columns(rows[first])
    fields |= {path: column_of([value] * len(first)) for path, value in FASTEST.items() if path in fields}
    tried = [fields, *([fields | {EITHER: column_of([False] * len(first))}] if EITHER in fields else [])]
    least = np.min([loss(objective, evaluate_batch(Batch(space.base, each)).columns[objective]) for each in tried], 0)
    return np.asarray(np.where(np.isfinite(least), least, 0.0)[group.reshape(-1)])


def _alike(parameter: Parameter) -> Indices:
    """Return a number for each value: two have the same if they differ in switches of `FASTEST` alone."""
    known: dict[tuple[Any, ...], int] = {}
    kept = [place for place, path in enumerate(parameter.paths) if path not in FASTEST]
    values = [known.setdefault(tuple(row[place] for place in kept), len(known)) for row in parameter.values]
    return np.array(values, dtype=np.intp)


def _packed(codes: Indices) -> Indices:
    """Return one number for each row of small whole numbers, the same for equal rows."""
    packed = np.zeros(len(codes), dtype=np.int64)
    for column in codes.T:
        size = int(column.max(initial=0)) + 1
        if packed.max(initial=0) >= 2**62 // size:  # too many for one number: count those that there are
            packed = np.unique(packed, return_inverse=True)[1].reshape(-1)
        packed = packed * size + column
    return packed
