"""A fleet as a timeline for Perfetto: rows of accelerators with the jobs that have them, and who waits.

The format is Chrome's (see `cosmic.simulation.perfetto`). Where jobs share a row at the same time, as those that take
turns do, it has a line for each.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cosmic.fleets.result import Fleet
from cosmic.simulation.perfetto import write_events

MOST_ROWS = 64
MICRO = 1e6
_compact = json.JSONEncoder(separators=(",", ":")).encode


def write_fleet_timeline(fleet: Fleet, path: str | Path, where: str = "file") -> None:
    """Write who had which accelerators when to *path*; messages name the file by *where*."""
    write_events(map(_compact, events(fleet)), {"system": fleet.system, "npus": fleet.npus}, "ms", path, where)


def rows_of(fleet: Fleet) -> int:
    """Return the accelerators of a row: what the smallest job has, but no more than `MOST_ROWS` rows."""
    least = min((end - first for job in fleet.jobs for first, end in job.accelerators), default=fleet.npus)
    return max(least, -(-fleet.npus // MOST_ROWS))


def lines_of(fleet: Fleet) -> dict[tuple[int, int], list[tuple[float, float, int]]]:
    """Return for each row, and each of its lines, who has it: from when until when, and the job's place."""
    size = rows_of(fleet)
    rows: dict[int, list[tuple[float, float, int]]] = {}
    for place, job in enumerate(fleet.jobs):
        covered = {row for first, end in job.accelerators for row in range(first // size, (end - 1) // size + 1)}
        for row in covered:
            rows.setdefault(row, []).append((job.start_s, job.end_s, place))
    found: dict[tuple[int, int], list[tuple[float, float, int]]] = {}
    for row in sorted(rows):
        ends: list[float] = []
        for start_s, end_s, place in sorted(rows[row]):
            line = next((line for line, free_s in enumerate(ends) if free_s <= start_s), len(ends))
            ends[line : line + 1] = [end_s]
            found.setdefault((row, line), []).append((start_s, end_s, place))
    return found


def events(fleet: Fleet) -> Iterator[dict[str, Any]]:
    """Yield the events of the timeline."""
    size = rows_of(fleet)
    yield {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": f"accelerators of {fleet.system}"}}
    for number, ((row, line), spans) in enumerate(sorted(lines_of(fleet).items())):
        common = {"pid": 0, "tid": number + 1}
        last = min(fleet.npus, (row + 1) * size) - 1
        name = f"{row * size}-{last}" if last > row * size else f"{last}"
        yield {"ph": "M", "name": "thread_name", **common, "args": {"name": f"{name} ({line + 1})" if line else name}}
        yield {"ph": "M", "name": "thread_sort_index", **common, "args": {"sort_index": number}}
        for start_s, end_s, place in spans:
            job = fleet.jobs[place]
            about = {"accelerators": job.npus, "slowdown": job.slowdown, "device": job.device_s / (job.run_s or 1.0)}
            when = {"ts": start_s * MICRO, "dur": (end_s - start_s) * MICRO}
            yield {"ph": "X", "name": job.name, "cat": "job", **when, **common, "args": about}
    changes = sorted([(job.arrival_s, 1) for job in fleet.jobs] + [(job.start_s, -1) for job in fleet.jobs])
    waiting = 0
    for place, (time_s, change) in enumerate(changes):
        waiting += change
        if place + 1 == len(changes) or changes[place + 1][0] > time_s:
            yield {"ph": "C", "name": "waiting", "pid": 0, "ts": time_s * MICRO, "args": {"jobs": waiting}}
