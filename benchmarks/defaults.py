"""How good the default mappings are: the step of each default over the best step that a search finds, as JSON.

    python benchmarks/defaults.py exhaustive llama3-70b@dgx-h100:512 …     every mapping evaluated: a minute each
    python benchmarks/defaults.py all [--every 7] [--task decode]            models × systems of the catalog

``all`` takes every pair of a model and a system, or each *every*-th, at the system's own size and, real machines, at 8,
64, 256 and 1,024 accelerators. Its reference for serving is every mapping; for training, which has up to a million, a
search with twenty times the evaluations of the quick one, over all numbers instead of some.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from cosmic.base.errors import CosmicError
from cosmic.design import catalog_entries
from cosmic.design.design_batch import Batch
from cosmic.design.model_layer import is_moe
from cosmic.evaluation import evaluate, evaluate_batch
from cosmic.search.mapping import mapping_search
from cosmic.search.mapping.design_completion import complete_design
from cosmic.search.mapping.mapping_search import build_grid
from cosmic.search.space.parameter_set import ParameterSet
from cosmic.search.space.space_files import mapping_space
from cosmic.simulate.metrics import Metrics
from cosmic.simulate.recording import recorded_evaluation
from cosmic.simulate.recording.recorded_program import STRUCTURAL

SIZES = (8, 64, 256, 1024)
TASKS = ("training", "prefill", "decode")
PAPER = "cosmic-"
MORE = 20
"""How many times the evaluations of the quick search the reference has."""
MOST_ROWS = 3_000


def main() -> None:
    """Measure what the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("reference", choices=("exhaustive", "all"))
    parser.add_argument("designs", nargs="*")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--offset", type=int, default=0)
    parser.add_argument("--task", choices=TASKS)
    arguments = parser.parse_args()
    recorded_evaluation.MANY = recorded_evaluation.PATIENCE = (
        10**9
    )  # physics over arrays: a program would serve one evaluation
    named = [(name, "training") for name in arguments.designs]
    pairs = named or list(_pairs(arguments.task))[arguments.offset :: arguments.every]
    for name, task in pairs:
        try:
            row = measure(name, task, exhaustive=arguments.reference == "exhaustive")
        except CosmicError as error:
            row = {"design": name, "task": task, "error": str(error)}
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()


def _pairs(task: str | None) -> Iterator[tuple[str, str]]:
    for system in catalog_entries.entry_names("systems"):
        sizes = [""] if system.startswith(PAPER) else ["", *(f":{size}" for size in SIZES)]
        for model in catalog_entries.entry_names("models"):
            yield from ((f"{model}@{system}{size}", each) for size in sizes for each in TASKS if task in (None, each))


def measure(name: str, task: str, *, exhaustive: bool) -> dict[str, Any]:
    """Return the default's step, the best step, their ratio, and how long the default took to find."""
    started = time.process_time()
    loaded = complete_design(name, {"task": task})
    seconds = time.process_time() - started
    outcome = evaluate(loaded.point)
    default = outcome.step_s if isinstance(outcome, Metrics) else float("inf")
    best = default
    if loaded.suggested and task == "training" and not exhaustive:
        best = min(best, _longer_search(name, task))
    elif loaded.suggested:
        best = min(best, best_of(mapping_space(name, {"task": task})))
    ratio = default / best if np.isfinite(best) else None
    return {
        "design": name,
        "task": task,
        "default_s": default if np.isfinite(default) else None,
        "best_s": best if np.isfinite(best) else None,
        "ratio": ratio,
        "searched": loaded.searched,
        "seconds": round(seconds, 3),
    }


def best_of(space: ParameterSet) -> float:
    """Return the shortest step of all points of a set, structure by structure."""
    rows = space.listed(0, space.valid)
    code = np.zeros(len(rows), dtype=np.int64)
    for column, parameter in enumerate(space.parameters):
        places = [place for place, path in enumerate(parameter.paths) if path in STRUCTURAL]
        seen: dict[Any, int] = {}
        codes = [seen.setdefault(tuple(value[place] for place in places), len(seen)) for value in parameter.values]
        code = code * len(seen) + np.array(codes)[rows[:, column]]
    order = np.argsort(code, kind="stable")
    best = float("inf")
    for part in np.split(rows[order], np.flatnonzero(np.diff(code[order])) + 1):
        outcome = evaluate_batch(Batch(space.base, space.columns(part)))
        best = min(best, float(np.where(outcome.feasible, outcome.columns["step_s"], np.inf).min()))
    return best


def _longer_search(name: str, task: str) -> float:
    """Return the step of a search with many more evaluations, over all numbers at once, for any gain."""
    point = complete_design(name, {"task": task}).point
    free = replace(point.workload, etp=1 if is_moe(point.model) else None)
    grid = build_grid(replace(point, workload=free), {})
    usual = (
        mapping_search.COARSE_ROWS,
        mapping_search.MIN_GAIN,
        mapping_search.MAX_EVALUATIONS,
        mapping_search.REFINED_MESHES,
        mapping_search.KEPT_ACTIVATIONS,
    )
    mapping_search.COARSE_ROWS, mapping_search.MIN_GAIN, mapping_search.MAX_EVALUATIONS = (
        MOST_ROWS,
        0.0,
        MORE * mapping_search.MAX_EVALUATIONS,
    )
    mapping_search.REFINED_MESHES, mapping_search.KEPT_ACTIVATIONS = (
        10 * mapping_search.REFINED_MESHES,
        dict.fromkeys(mapping_search.KEPT_ACTIVATIONS, 0.0),
    )
    try:
        found = None if grid is None else mapping_search.search_mapping(replace(point, workload=free), {})
    finally:
        (
            mapping_search.COARSE_ROWS,
            mapping_search.MIN_GAIN,
            mapping_search.MAX_EVALUATIONS,
            mapping_search.REFINED_MESHES,
            mapping_search.KEPT_ACTIVATIONS,
        ) = usual
    if found is None or not found.fits:
        return float("inf")
    outcome = evaluate(replace(point, workload=replace(point.workload, **{"etp": None, **found.best})))
    return outcome.step_s if isinstance(outcome, Metrics) else float("inf")


if __name__ == "__main__":
    main()
