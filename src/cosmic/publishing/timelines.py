"""The timeline of a step, packed: a byte or two for each property of a span."""

from __future__ import annotations

from typing import Any

import numpy as np

from cosmic.publishing.container import Binary, gzipped, head
from cosmic.publishing.contract import Packed, Timeline
from cosmic.simulation.timeline import CLASSES, Counter
from cosmic.simulation.timeline import Timeline as StepTimeline


def packed_timeline(timeline: StepTimeline, binary: Binary) -> Timeline:
    """Return a timeline with its numbers added to *binary*; times are codes into the distinct ones."""
    spans, flows = timeline.spans, timeline.flows
    gaps = _gaps(spans.track, spans.start_ns, spans.duration_ns)
    waits = [np.diff(each.times_ns, prepend=0) for each in timeline.counters]
    times, codes = np.unique(np.concatenate([gaps, spans.duration_ns, *waits]), return_inverse=True)
    count = len(gaps)
    gap, duration, *samples = np.split(codes, np.cumsum([count, count, *map(len, waits)])[:-1])
    return {
        "engine": timeline.engine,
        "duration_s": timeline.duration_s,
        "processes": [{"name": each.name, "ranks": each.ranks} for each in timeline.processes],
        "tracks": [{"process": each.process, "name": each.name} for each in timeline.tracks],
        "names": list(timeline.names),
        "classes": list(CLASSES),
        "spans": {
            "count": count,
            "track": binary.add_codes(spans.track, len(timeline.tracks)),
            "name": binary.add_codes(spans.name, len(timeline.names)),
            "class": binary.add_codes(spans.kind, len(CLASSES)),
            "gap": binary.add_codes(gap, len(times)),
            "duration": binary.add_codes(duration, len(times)),
            "critical": binary.add_codes(spans.critical, 2),
        },
        "seconds": (times / 1e9).tolist(),
        "flows": {
            "count": len(flows.source),
            "from": binary.add_codes(flows.source, count),
            "to": binary.add_codes(flows.target, count),
        },
        "counters": [
            _counter(each, binary.add_codes(since, len(times)), binary)
            for each, since in zip(timeline.counters, samples, strict=True)
        ],
        "totals": {
            "compute_s": timeline.totals.compute_s,
            "exposed_s": timeline.totals.exposed_s,
            "hidden_s": timeline.totals.hidden_s,
            "idle_s": timeline.totals.idle_s,
        },
        "reading": timeline.reading,
    }


def packed_size(timeline: StepTimeline) -> int:
    """Return the bytes that a timeline takes in a page, gzipped."""
    binary = Binary()
    return len(gzipped([head(packed_timeline(timeline, binary)), *binary.planes]))


def _gaps(track: Any, start: Any, duration: Any) -> Any:
    """Return the time between each span and the one before it on its track; negative where they overlap."""
    if not len(start):
        return np.zeros(0, dtype=np.int64)
    ends = start + duration
    before = np.concatenate([[0], ends[:-1]])
    first = np.concatenate([[True], track[1:] != track[:-1]])
    return start - np.where(first, 0, before)


def _counter(counter: Counter, times: Packed, binary: Binary) -> dict[str, Any]:
    """Return a counter: *times* are codes of the time since the last sample, values are codes into its levels."""
    levels, codes = np.unique(counter.values, return_inverse=True)
    return {
        "process": counter.process,
        "name": counter.name,
        "unit": counter.unit,
        "most": counter.most,
        "times": times,
        "values": binary.add_codes(codes, len(levels)),
        "levels": levels.tolist(),
    }
