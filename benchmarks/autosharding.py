"""How long automatic sharding takes, and how near to its bound it comes, on one core: prints a table, or JSON.

python benchmarks/autosharding.py [--json] [--quick]

*models*: training steps of models of the catalog on 64 accelerators, two axes and three, with and without a limit on
memory. *graphs*: chains of feed-forward networks of 1,000 operators and more, none of which is said to be repeated.
*drawn*: random small programs whose best sharding was found by trying all of them; how many came out the same.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from time import process_time
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.search.sharding.programs import chain, drawn
from tests.search.sharding.test_sharding import least_bytes

from cosmic.search.sharding.automatic_sharding import shard
from cosmic.search.sharding.sharding_result import Sharded

MODELS: list[dict[str, Any]] = [
    {"program": "gpt3-175b", "mesh": "dp=8,tp=8", "batch": 64},
    {"program": "llama3-8b", "mesh": "dp=8,tp=8", "batch": 64, "system": "dgx-h100"},
    {
        "program": "llama3-70b",
        "mesh": "dp=8,tp=8",
        "batch": 64,
        "sequence": 2048,
        "system": "dgx-h100",
        "memory": "80 GB",
    },
    {"program": "llama3-70b", "mesh": "dp=8,tp=8", "batch": 8, "system": "dgx-h100"},
    {"program": "gpt3-175b", "mesh": "dp=4,cp=2,tp=8", "batch": 16, "system": "dgx-a100"},
]
LAYERS = (100, 300)
SEEDS = 40


def measured(name: str, **options: Any) -> dict[str, Any]:
    """Return the seconds and the gap of one question."""
    start = process_time()
    found: Sharded = shard(**options)
    return {
        "name": name,
        "mesh": str(found.mesh),
        "operators": found.operators,
        "seconds": round(process_time() - start, 3),
        "value": found.value,
        "unit": found.unit,
        "gap": found.gap,
        "exact": found.exact,
    }


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quick", action="store_true", help="fewer of everything")
    asked = parser.parse_args()
    models = [measured(str(each["program"]), **each) for each in (MODELS[:2] if asked.quick else MODELS)]
    graphs = [
        measured(f"{layers} feed-forward networks", program=chain(layers), mesh=mesh)
        for layers in (LAYERS[:1] if asked.quick else LAYERS)
        for mesh in (("x=8,y=4",) if asked.quick else ("x=8,y=4", "x=4,y=4,z=2"))
    ]
    seeds = range(8 if asked.quick else SEEDS)
    same = sum(abs(shard(drawn(seed), "x=2", training=False).value - least_bytes(drawn(seed), 2)) < 1 for seed in seeds)
    data = {"models": models, "graphs": graphs, "drawn": {"programs": len(seeds), "same": same}}
    if asked.json:
        print(json.dumps(data, indent=1))
        return
    for row in (*models, *graphs):
        print(f"{row['name']:<26} {row['mesh']:<16} {row['operators']:>6} operators {row['seconds']:>8.2f} s"
              f"  gap {100 * row['gap']:.3g} %")  # fmt: skip
    print(f"random programs: {same} of {len(seeds)} as the best of all shardings")


if __name__ == "__main__":
    main()
