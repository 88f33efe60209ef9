"""Compare the event engine with the closed form over random designs, by class.

python benchmarks/engines.py -n 1000              a table, and the commands of the ten worst
python benchmarks/engines.py -n 1000 --page       writes the table into docs/explanation/event-engine.md
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.relations.engine_agreement import (
    EngineComparison,
    agreement_table,
    by_class,
    compare_engines,
    renew_table,
    small_design,
)
from tests.relations.metamorphic import command_of

from cosmic.workload.block_plans import plan_blocks

PAGE = Path(__file__).parents[1] / "docs" / "explanation" / "event-engine.md"
WORST = 10
PLANNED = 100
"""Designs after which the cache of plans is emptied."""


def main() -> None:
    """Compare, and print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=1000, dest="number", help="designs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--page", action="store_true", help="write the table into docs/explanation/event-engine.md")
    options = parser.parse_args()
    rows = compare(options.number, options.seed, options.processes)
    worst = sorted(rows, key=lambda row: -abs(row.ratio - 1))[:WORST]
    if options.page:
        PAGE.write_text(renew_table(PAGE.read_text(encoding="utf-8"), rows), encoding="utf-8")
    print(
        json.dumps(as_data(rows, worst, options.seed), indent=2) if options.json else as_text(rows, worst, options.seed)
    )


def compare(number: int, seed: int, processes: int) -> list[EngineComparison]:
    """Return *number* designs as both engines see them."""
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        jobs = [pool.submit(_share, range(place, number, processes), seed) for place in range(processes)]
        return sorted((row for job in jobs for row in job.result()), key=lambda row: row.place)


def _share(places: range, seed: int) -> list[EngineComparison]:
    found = []
    for done, place in enumerate(places):
        if done % PLANNED == 0:
            plan_blocks.cache_clear()
        row = compare_engines(small_design(seed, place), place)
        if row is not None:
            found.append(row)
    return found


def as_text(rows: Sequence[EngineComparison], worst: Sequence[EngineComparison], seed: int) -> str:
    """Return the table, and the commands of the worst."""
    commands = [f"{row.ratio:.3f}  {command_of(small_design(seed, row.place))} --engine event" for row in worst]
    return "\n".join([agreement_table(rows), "", "event / closed form", *commands])


def as_data(rows: Sequence[EngineComparison], worst: Sequence[EngineComparison], seed: int) -> dict[str, Any]:
    """Return the table and the commands of the worst as plain data."""
    table = [{"class": name, "value": value, **asdict(found)} for name, value, found in by_class(rows)]
    commands = [{"ratio": row.ratio, "command": command_of(small_design(seed, row.place))} for row in worst]
    return {"seed": seed, "table": table, "worst": commands}


if __name__ == "__main__":
    main()
