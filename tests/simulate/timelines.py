"""What every timeline must be, and every file of one."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from cosmic.simulate.step_timeline import CLASSES, PASSIVE_CLASSES, Timeline, write_timeline


def written(timeline: Timeline, path: Path) -> list[dict[str, Any]]:
    """Return the events of a timeline that was written and read again."""
    write_timeline(timeline, path)
    document = json.loads(path.read_text())
    assert set(document) == {"displayTimeUnit", "otherData", "traceEvents"}
    assert document["otherData"]["reading"] == timeline.reading
    found: list[dict[str, Any]] = document["traceEvents"]
    return found


def of_phase(events: list[dict[str, Any]], phase: str) -> list[dict[str, Any]]:
    """Return the events of one kind."""
    return [event for event in events if event["ph"] == phase]


def check_value(timeline: Timeline) -> None:
    """Check that spans are sorted, apart and within the step, and that everything points to something."""
    spans = timeline.spans
    same = np.diff(spans.track) == 0
    assert (np.diff(spans.track) >= 0).all()
    assert (spans.start_ns[1:][same] >= spans.end_ns[:-1][same]).all()
    assert (spans.duration_ns >= 0).all()
    assert (spans.start_ns >= 0).all()
    assert spans.end_ns.max(initial=0) <= timeline.duration_ns
    assert set(spans.track.tolist()) == set(range(len(timeline.tracks)))
    assert spans.name.max(initial=-1) < len(timeline.names)
    assert spans.kind.max(initial=0) < len(CLASSES)
    processes = range(len(timeline.processes))
    assert all(track.process in processes for track in timeline.tracks)
    assert [track.process for track in timeline.tracks] == sorted(track.process for track in timeline.tracks)
    for ends in (timeline.flows.source, timeline.flows.target):
        assert ((ends >= 0) & (ends < spans.count)).all()
    for counter in timeline.counters:
        assert counter.process in processes
        assert (np.diff(counter.times_ns) > 0).all()
        assert len(counter.times_ns) == len(counter.values)
        assert (counter.values >= 0).all()
    check_path(timeline)
    totals = timeline.totals
    assert min(totals.compute_s, totals.exposed_s, totals.hidden_s, totals.idle_s) >= 0
    assert (
        abs(totals.compute_s + totals.exposed_s + totals.idle_s - timeline.duration_s)
        < 2e-9 + 1e-11 * timeline.duration_s
    )


def check_path(timeline: Timeline) -> None:
    """Check that the critical path ends with the last span, and that its spans are never two at a time by much."""
    spans = timeline.spans
    active = ~np.isin(spans.kind, PASSIVE_CLASSES)
    if not active.any():
        assert not spans.critical.any()
        return
    assert spans.critical.any()
    assert spans.end_ns[spans.critical].max() == spans.end_ns[active].max()
    assert not spans.critical[spans.kind == CLASSES.index("idle")].any()


def check_events(timeline: Timeline, events: list[dict[str, Any]]) -> None:
    """Check that a file says what the value does, and that arrows end within spans."""
    assert {event["ph"] for event in events} <= set("MXsfC")
    spans = of_phase(events, "X")
    assert len(spans) == timeline.spans.count
    tracks = defaultdict(list)
    for span in spans:
        assert span["cat"] in CLASSES
        tracks[span["pid"], span["tid"]].append((round(1000 * span["ts"]), round(1000 * (span["ts"] + span["dur"]))))
    named = {(each["pid"], each["tid"]) for each in of_phase(events, "M") if each["name"] == "thread_name"}
    assert named == set(tracks)
    for found in tracks.values():
        assert all(before[1] <= after[0] for before, after in pairwise(found))
    starts, ends = of_phase(events, "s"), of_phase(events, "f")
    assert len(starts) == timeline.flows.count
    assert [each["id"] for each in starts] == [each["id"] for each in ends]
    within = {key: (np.array([each[0] for each in found]), found) for key, found in tracks.items()}
    for start, end in zip(starts, ends, strict=True):
        assert start["ts"] <= end["ts"]
        assert end["bp"] == "e"
        for each in (start, end):
            begun, found = within[each["pid"], each["tid"]]
            moment = round(1000 * each["ts"])
            place = int(np.searchsorted(begun, moment, "right")) - 1
            assert place >= 0
            assert found[place][0] <= moment <= found[place][1]
    assert len(of_phase(events, "C")) == sum(len(each.values) for each in timeline.counters)
