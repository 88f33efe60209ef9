"""Check metamorphic relations on random designs: a table, the worst contradictions, exit status 1 if there are any.

python benchmarks/metamorphic.py -n 5000
python benchmarks/metamorphic.py -n 200 --seed 3 --relation "network bandwidth" --json
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.relations.all_relations import RELATIONS
from tests.relations.metamorphic import Finding, Violation, make_violation
from tests.relations.random_designs import random_design

from cosmic.base.errors import UnknownName
from cosmic.design.design_point import DesignPoint
from cosmic.workload.block_plans import plan_blocks

WORST = 3
"""Examples printed of each relation."""


@dataclass
class Tally:
    """What was found, by relation."""

    tried: Counter[str] = field(default_factory=Counter)
    violated: Counter[str] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Add what another process found."""
        self.tried += other.tried
        self.violated += other.violated
        self.seconds += other.seconds
        self.violations += other.violations


def main() -> int:
    """Check the relations; return 1 if some design contradicts one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=1000, dest="number", help="designs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--relation", action="append", help="only this one; may be repeated")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    names = options.relation or list(RELATIONS)
    for name in names:
        if name not in RELATIONS:
            raise UnknownName.among("--relation", name, "relation", RELATIONS)
    found = check(options.number, options.seed, names, options.processes)
    print(json.dumps(as_data(found), indent=2) if options.json else as_text(found, names))
    return 1 if found.violations else 0


def check(number: int, seed: int, names: Sequence[str], processes: int) -> Tally:
    """Return what *number* designs say of relations; each process draws the same designs and takes its share."""
    whole = Tally()
    if processes == 1:
        whole.add(_share(number, seed, names, 0, 1))
        return whole
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        jobs = [pool.submit(_share, number, seed, names, place, processes) for place in range(processes)]
        for job in jobs:
            whole.add(job.result())
    return whole


def _share(number: int, seed: int, names: Sequence[str], place: int, processes: int) -> Tally:
    found = Tally()
    previous = ""
    for row, point in _drawn(number, seed, place, processes):
        if point.model.name != previous:  # plans of other models are not needed again
            plan_blocks.cache_clear()
            previous = point.model.name
        for name in names:
            _try(found, name, point, Random(f"{seed} {row} {name}"))
    return found


def _drawn(number: int, seed: int, place: int, processes: int) -> Iterator[tuple[int, DesignPoint]]:
    """Yield a process's share of the designs, those of one model together: they share plans."""
    designs = ((row, random_design(Random(f"{seed} {row}"))) for row in range(number) if row % processes == place)
    yield from sorted(designs, key=lambda each: (each[1].model.name, each[0]))


def _try(found: Tally, name: str, point: DesignPoint, rng: Random) -> None:
    start = time.process_time()
    try:
        violations = RELATIONS[name].violations(point, rng)
    except Exception as error:  # whatever stops an evaluation is a finding
        violations = [make_violation(name, Finding(f"raises {type(error).__name__}: {error}", 1.0), point, {}, {})]
    found.tried[name] += 1
    found.violated[name] += bool(violations)
    found.violations += violations
    found.seconds[name] += time.process_time() - start  # type: ignore[assignment]  # a counter of seconds


def as_text(found: Tally, names: Sequence[str]) -> str:
    """Return a table of relations, and the worst examples of each that is violated."""
    width = max(map(len, names))
    lines = [f"{'relation':{width}}  designs  contradict  seconds"]
    lines += [
        f"{name:{width}}  {found.tried[name]:7,}  {found.violated[name]:10,}  {found.seconds[name]:7.1f}"
        for name in names
    ]
    for name in names:
        own = sorted((each for each in found.violations if each.relation == name), key=lambda each: -each.finding.size)
        if own:
            lines += ["", f"{name}: {RELATIONS[name].sentence}", *(f"  {each}" for each in own[:WORST])]
    return "\n".join(lines)


def as_data(found: Tally) -> dict[str, Any]:
    """Return everything that was found as plain data."""
    relations = {
        name: {"designs": found.tried[name], "contradict": found.violated[name], "cpu_s": found.seconds[name]}
        for name in found.tried
    }
    violations = [
        {
            "relation": each.relation,
            "found": each.finding.text,
            "size": each.finding.size,
            "command": each.command,
            "changed": each.changed,
        }
        for each in found.violations
    ]
    return {"relations": relations, "violations": violations}


if __name__ == "__main__":
    sys.exit(main())
