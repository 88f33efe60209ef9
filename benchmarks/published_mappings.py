"""For every published Megatron-Bridge, NeMo and TorchTitan run: the best mapping against the published one, predicted.

    python benchmarks/published_mappings.py published.csv [--limit 10] > mappings.json

A run keeps its model, machine, batch, sequence, precision and software; its mapping is searched among all that its
framework can launch. Where the best is more than 5 % faster, the differences that explain most of it are named.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from pathlib import Path
from typing import Any

from cosmic.comparing import compare_designs
from cosmic.design.point import DesignPoint
from cosmic.errors import CosmicError
from cosmic.evaluation import Metrics, evaluate
from cosmic.exploration.inputs import Options, make_inputs
from cosmic.exploration.searching import PoolOptions, run
from cosmic.exploration.verdict import best_point
from cosmic.loading.designs import design_tree
from cosmic.psa.files import mapping_space
from cosmic.reporting.words import mapping_in_words
from cosmic.validation.rows import Fields
from cosmic.validation.training_rows import read_run

SOURCES = {"mbridge": "megatron", "nemo": "megatron", "torchtitan": "torchtitan"}
"""Sets of rows, by how their names begin, and the framework that ran them."""
FAR = 0.05
NAMED = 3
"""Differences that are named, at most."""


def main() -> None:
    """Print one JSON object for each row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--limit", type=int, default=10**9, help="rows to judge")
    chosen = parser.parse_args()
    known: dict[str, dict[str, Any]] = {}
    with chosen.rows.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if framework_of(row)]
    for row in rows[: chosen.limit]:
        print(json.dumps({"id": row["id"], "set": row["set"], **judged(row, known)}), flush=True)


def framework_of(row: dict[str, str]) -> str:
    """Return the framework of a row; an empty text for other sources."""
    return next((name for start, name in SOURCES.items() if row["set"].startswith(start)), "")


def judged(row: dict[str, str], known: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the published and the best mapping of a row with their predictions, or why there are none."""
    try:
        found = read_run(Fields(row))
        published = evaluate(found.point)
        base = {
            "measured_s": found.measured_s,
            "published": mapping_in_words(found.point),
            "published_s": published.step_s if isinstance(published, Metrics) else None,
        }
        if not isinstance(published, Metrics):
            base["published_cannot_run"] = "; ".join(published.reasons)
        key = found.point.identity
        if key not in known:
            known[key] = best_of(found.point, framework_of(row))
    except CosmicError as error:
        return {"skipped": str(error)}
    result = {**base, **known[key]}
    if result["published_s"] is not None and result["best_s"] is not None:
        result["ratio"] = result["published_s"] / result["best_s"]
    return result


def best_of(point: DesignPoint, framework: str) -> dict[str, Any]:
    """Return the best mapping of *point* that *framework* can launch, and what makes it better."""
    began = time.perf_counter()
    space = mapping_space(design_tree(point), framework=framework)
    found = run(make_inputs(space, Options()), PoolOptions())
    best = best_point(found)
    told: dict[str, Any] = {"mappings": space.valid, "proven": found.stopped == "exhausted", "best_s": None}
    if best is not None:
        outcome = evaluate(best)
        told |= {"best": mapping_in_words(best), "best_s": getattr(outcome, "step_s", None)}
        told["differences"] = differences(point, best)
    return {**told, "seconds": time.perf_counter() - began}


def differences(published: DesignPoint, best: DesignPoint) -> list[str]:
    """Return what explains most of the gain, largest first, with its share of the published step."""
    contrast = compare_designs(published, best)
    step = contrast.a.metrics.get("step_s")
    if not step:
        return []
    told = []
    for each in contrast.differences[:NAMED]:
        fields = ", ".join(f"{path.rpartition('.')[2]} {each.a.get(path)} → {each.b.get(path)}" for path in each.b)
        worth = "" if each.worth_s is None else f": {100 * each.worth_s / step:+.1f} %"
        told.append(f"{fields}{worth}")
    return told


if __name__ == "__main__":
    main()
