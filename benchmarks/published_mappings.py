"""For every published Megatron-Bridge, NeMo and TorchTitan run: the best mapping against the published one, predicted.

    python benchmarks/published_mappings.py [published.csv] [--limit 10] > mappings.jsonl
    python benchmarks/published_mappings.py --page docs/reference/published-mappings.md < mappings.jsonl

A run keeps its model, machine, batch, sequence, precision and software; its mapping is searched among all that its
framework can launch. Where the best is more than 5 % faster, the differences that explain most of it are named.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from cosmic.accuracy.measured_rows import Fields
from cosmic.accuracy.rows.training_rows import read_run
from cosmic.base.errors import CosmicError, require
from cosmic.design.design_point import DesignPoint
from cosmic.design.loading import design_tree
from cosmic.evaluation import evaluate
from cosmic.search.compare.design_differences import compare_designs
from cosmic.search.design_wording import mapping_in_words
from cosmic.search.search_inputs import Options, make_inputs
from cosmic.search.search_loop import PoolOptions, run_search
from cosmic.search.search_verdict import best_point
from cosmic.search.space.space_files import mapping_space
from cosmic.simulate.metrics import Metrics

SOURCES = {"mbridge": "megatron", "nemo": "megatron", "torchtitan": "torchtitan"}
"""Sets of rows, by how their names begin, and the framework that ran them."""
CARRIED = Path(__file__).parents[1] / "src" / "cosmic" / "accuracy" / "data" / "training_published.csv"
FAR = 0.05
WORTH_NAMING = 0.01
"""Share of the published step that a difference must be worth to be named."""
NAMED = 3
"""Differences that are named, at most."""


SURE = 0.95
"""The probability with which the best mapping fits; a published one ran."""


def main() -> None:
    """Print one JSON object for each row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path, nargs="?", default=CARRIED, help="published runs; by default those carried")
    parser.add_argument("--limit", type=int, default=10**9, help="rows to judge")
    parser.add_argument("--page", type=Path, help="write what standard input says of each row as a page")
    chosen = parser.parse_args()
    if chosen.page:
        chosen.page.write_text(page([json.loads(line) for line in sys.stdin]))
        return
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
        require("lora" not in row["set"], "set", row["set"], "training of adapters is left out")
        found = read_run(Fields(row))
        published = evaluate(found.point)
        base = {
            "measured_s": found.measured_s,
            "published": mapping_in_words(found.point),
            "published_s": published.step_s if isinstance(published, Metrics) else None,
        }
        if not isinstance(published, Metrics):
            base["published_cannot_run"] = "; ".join(published.reasons)
        else:
            base["published_memory"] = published.memory_bytes / found.point.memory.capacity_bytes
        key = found.point.identity
        if key not in known:
            sure = replace(found.point, memory=replace(found.point.memory, fits=SURE))
            known[key] = best_of(sure, framework_of(row))
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
    found = run_search(make_inputs(space, Options()), PoolOptions())
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
        if each.worth_s is not None and abs(each.worth_s) >= WORTH_NAMING * step:
            told.append(f"{fields}: {100 * each.worth_s / step:+.1f} %")
    return told


# ---- the page


ABOUT = """# Published mappings against the best

For every published run of Megatron-Bridge, NeMo and TorchTitan that validation reads: the prediction of its own mapping
beside that of the best mapping which its framework can launch, for the same model, machine, batch, sequence and number
format. The best is proven: all mappings were gone through, and fit with 95 %. Both are predictions:
[accuracy](accuracy.md) says how far off they are.

```bash
python benchmarks/published_mappings.py > mappings.jsonl
python benchmarks/published_mappings.py --page docs/reference/published-mappings.md < mappings.jsonl
```
"""
REASONS = """Most recipes before Megatron-Bridge 26.06 do not overlap expert parallelism, which the framework can; some
recompute attention because it was not fused; TorchTitan's tables show features (tensor, context and pipeline
parallelism), not the fastest mapping. A ratio below 1 is a published mapping that fits with less than 95 %.
"""


def page(rows: list[dict[str, Any]]) -> str:
    """Return the page that compares published mappings with the best."""
    judged_rows = [row for row in rows if "ratio" in row and "lora" not in row["set"]]
    ratios = sorted(row["ratio"] for row in judged_rows)
    near = [row for row in judged_rows if abs(row["ratio"] - 1) <= FAR]
    far = [row for row in judged_rows if row not in near]
    first = Counter(_kind(row) for row in far)
    skipped = Counter(row.get("skipped", "the model says that it does not fit").rpartition(": ")[2] for row in rows)
    for row in judged_rows:
        skipped[row.get("skipped", "the model says that it does not fit").rpartition(": ")[2]] -= 1
    typical = f"the median is {median(ratios):.2f}×, and nine in ten are within {ratios[int(0.9 * len(ratios))]:.2f}×"
    left_out = ", ".join(f"{count} ({why})" for why, count in skipped.items() if count > 0)
    lines = [
        ABOUT,
        f"Of {len(judged_rows)} runs, {len(near)} are within 5 % of the best; {typical}.",
        f"What makes the largest difference in the other {len(far)}:",
        "",
        "| difference | runs |",
        "|---|---|",
        *(f"| {kind} | {count} |" for kind, count in first.most_common()),
        "",
        REASONS,
        f"Not compared: {left_out}.",
        "",
        "## More than 5 % apart",
        "",
        *_table(far),
        "",
        "## Within 5 %",
        "",
        *_table(near),
    ]
    return "\n".join(lines) + "\n"


def _kind(row: dict[str, Any]) -> str:
    """Return what the largest difference of a row is about."""
    first = next(iter(row["differences"]), "")
    for sign, kind in (("ep_overlap", "expert parallelism overlaps"), ("recompute", "less recomputation")):
        if first.startswith(sign):
            return kind
    return "another mesh" if first else "small differences together"


def _table(rows: list[dict[str, Any]]) -> list[str]:
    """Return a table with a line for each pair of mappings; runs of several releases share one."""
    pairs: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        pairs.setdefault((row["published"], row["best"], f"{row['ratio']:.2f}"), []).append(row)
    lines = ["| runs | published, s | best, s | ratio | why |", "|---|---|---|---|---|"]
    for same in sorted(pairs.values(), key=lambda same: -same[0]["ratio"]):
        row = same[0]
        ids = row["id"] + (f" and {len(same) - 1} more" if len(same) > 1 else "")
        lines.append(
            f"| {ids} | {row['published']}: {row['published_s']:.2f} | {row['best']}: {row['best_s']:.2f} "
            f"| {row['ratio']:.2f} | {'; '.join(row['differences'])} |"
        )
    return lines


if __name__ == "__main__":
    main()
