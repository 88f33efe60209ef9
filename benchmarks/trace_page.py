"""Measure the size of pages of traces and their time in a browser, for recorded traces of some sizes; print JSON.

python benchmarks/trace_page.py --nodes 10000 100000 --json

Bytes are those of the HTML file; the shell is the page of a single node. If there is a Chromium (or CHROMIUM names
one), it opens each page from disk: `ready_ms` is the median time from the start of the navigation until the timeline is
drawn.
Budget: 2 s for 100,000 nodes.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from cosmic.report.trace_page import write_trace_page
from cosmic.traces.trace import NodeType, RankTrace, TraceSet, template_of
from report import read_in_browser

STREAMS = 4
EACH = 4
"""Nodes of an operator: two nested on the CPU, a launch, a kernel."""


def recorded(nodes: int) -> TraceSet:
    """Return a recorded trace of about *nodes* nodes: operators on a thread launch kernels on streams."""
    rows: list[dict[str, Any]] = []
    random, at = Random(1), 0
    for step in range(max(1, nodes // EACH)):
        at, first = at + random.randrange(16_000, 24_000), EACH * step
        cpu = {"type": NodeType.COMP, "on_cpu": 1, "stream": 1}
        rows += [
            {
                **cpu,
                "id": first,
                "name": "aten::linear",
                "start_ns": at,
                "duration_ns": random.randrange(12_000, 16_000),
            },
            {
                **cpu,
                "id": first + 1,
                "name": "aten::addmm",
                "start_ns": at + 1000,
                "duration_ns": 9000,
                "ctrl": [first],
            },
            {**cpu, "id": first + 2, "name": "launch", "start_ns": at + 3000, "duration_ns": 2000, "ctrl": [first + 1]},
            {
                "id": first + 3,
                "type": NodeType.COMP,
                "name": f"gemm_{step % 97}",
                "start_ns": at + 9000,
                "duration_ns": random.randrange(2000, 60_000),
                "stream": 7 + step % STREAMS,
                "data": [first + 2, *([first + 3 - STREAMS * EACH] if step >= STREAMS else [])],
            },
        ]
    return TraceSet((RankTrace(template_of(rows)),))


def opened(page: Path) -> dict[str, Any]:
    """Return the time of the page in a browser."""
    version, ready = read_in_browser(page, lambda tab: float(tab.evaluate("document.documentElement.dataset.ready")))
    return {"browser": version, "ready_ms": median(ready), "slowest_ms": max(ready)} if ready else {"browser": None}


def main() -> None:
    """Print size and times of pages of traces of each size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--json", action="store_true", help="no effect: output is always JSON")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "trace.html"
        shell_bytes = write_trace_page(TraceSet((RankTrace(template_of([{"id": 0, "type": 4}])),)), "shell", page)
        for nodes in options.nodes:
            traces = recorded(nodes)
            start = time.perf_counter()
            size = write_trace_page(traces, "benchmark", page)
            took = time.perf_counter() - start
            each = (size - shell_bytes) / traces.nodes
            found = {"nodes": traces.nodes, "bytes": size, "bytes_per_node": each, "write_s": took}
            rows.append({**found, **opened(page)})
    print(json.dumps({"shell_bytes": shell_bytes, "pages": rows}, indent=2))


if __name__ == "__main__":
    main()
