"""A schedule in Chrome's trace format, which Perfetto opens: a track for each link, grouped by the node that sends."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np

from cosmic.graphs.schedule import Schedule


def perfetto_text(schedule: Schedule) -> str:
    """Return the events of a schedule as JSON; times are microseconds."""
    about = {"collective": schedule.kind, "size_bytes": schedule.size_bytes, "time_s": schedule.time_s}
    lines = ",\n".join(_events(schedule))
    return f'{{"displayTimeUnit": "ns", "otherData": {json.dumps(about)}, "traceEvents": [\n{lines}\n]}}\n'


def _events(schedule: Schedule) -> Iterator[str]:
    """Yield names of processes and tracks, then a complete event for each transfer."""
    graph = schedule.graph
    used = np.unique(schedule.link)
    for node in np.unique(graph.sources[used]).tolist():
        name = f"{'NPU' if node < graph.npus else 'switch'} {graph.name(node)}"
        yield json.dumps({"ph": "M", "name": "process_name", "pid": node, "args": {"name": name}})
        yield json.dumps({"ph": "M", "name": "process_sort_index", "pid": node, "args": {"sort_index": node}})
    for link in used.tolist():
        common = {"ph": "M", "pid": int(graph.sources[link]), "tid": link + 1}
        yield json.dumps(common | {"name": "thread_name", "args": {"name": graph.describe(link)}})
    rows = zip(
        schedule.link.tolist(), schedule.chunk.tolist(), schedule.start_s.tolist(), schedule.end_s.tolist(), strict=True
    )
    nodes = graph.sources.tolist()
    for link, chunk, start, end in rows:
        times = f'"ts":{start * 1e6!r},"dur":{(end - start) * 1e6!r}'
        yield f'{{"ph":"X","name":"chunk {chunk}","cat":"transfer","pid":{nodes[link]},"tid":{link + 1},{times}}}'
