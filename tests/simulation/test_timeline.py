"""The timeline: what a trace viewer is given of a simulation."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from cosmic.errors import SpecError
from cosmic.simulation.event.engine import run
from cosmic.simulation.event.inputs import RemoteMemory
from cosmic.simulation.event.result import Result
from cosmic.simulation.event.timeline import BATCH, TRACKS, write_timeline
from tests.simulation.jobs import collective, computation, job, load, network, receive, send

NASTY = 'a "quoted" \\ name\n\x00 of \ud800 ü'
MEMORY = RemoteMemory(type="PER_NPU_MEMORY_EXPANSION", latency_ns=10, bandwidth_gb_per_s=1.0)


def played() -> Result:
    """Return four ranks that compute, add up, load, and pass messages round, two of the same tag and size."""
    ranks = [
        [
            computation(10**8, 10**6, name=NASTY),
            computation(10**8, 10**6),
            collective("all_reduce", 10**6),
            load(1000),
            send((rank + 1) % 4, 4096, 1, [0]),
            send((rank + 3) % 4, 4096, 1, [0]),
            receive((rank + 3) % 4, 4096, 1),
            receive((rank + 1) % 4, 4096, 1),
            computation(10**6, 10**6, [6, 7], on_cpu=1, duration_us=3),
        ]
        for rank in range(4)
    ]
    ranks[2][0] = computation(3 * 10**8, 10**6)
    return run(job(ranks, network(("Switch", 4, 50.0, 500.0)), memory=MEMORY))


@pytest.fixture(scope="module")
def result() -> Result:
    return played()


@pytest.fixture(scope="module")
def events(result: Result, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    path = tmp_path_factory.mktemp("timeline") / "out.json"
    write_timeline(result, path)
    document = json.loads(path.read_text())
    assert set(document) == {"displayTimeUnit", "traceEvents"}
    found: list[dict[str, Any]] = document["traceEvents"]
    return found


def of_phase(events: list[dict[str, Any]], phase: str) -> list[dict[str, Any]]:
    return [event for event in events if event["ph"] == phase]


def test_every_node_that_ran_is_a_span_within_the_run(result: Result, events: list[dict[str, Any]]) -> None:
    spans = of_phase(events, "X")
    assert len(spans) == sum(int((each.ended >= 0).sum()) for each in result.played) == 4 * 9
    assert all(span["ts"] >= 0 and span["dur"] >= 0 for span in spans)
    assert max(span["ts"] + span["dur"] for span in spans) == pytest.approx(result.cycles / 1000)


@pytest.mark.parametrize("track", ["compute", "communication", "cpu"])
def test_spans_of_a_track_do_not_overlap(events: list[dict[str, Any]], track: str) -> None:
    tracks = defaultdict(list)
    for span in of_phase(events, "X"):
        if span["cat"] == track:
            assert span["tid"] == TRACKS[track]
            tracks[span["pid"]].append((round(1000 * span["ts"]), round(1000 * (span["ts"] + span["dur"]))))
    assert tracks
    for spans in tracks.values():
        spans.sort()
        assert all(before[1] <= after[0] for before, after in pairwise(spans))


def test_every_send_has_an_arrow_to_the_receive_that_it_is_for(result: Result, events: list[dict[str, Any]]) -> None:
    starts, finishes = of_phase(events, "s"), of_phase(events, "f")
    sends = [event for event in of_phase(events, "X") if event["name"] in ("node 4", "node 5")]
    assert len(starts) == len(sends) == 8
    assert sorted(each["id"] for each in starts) == sorted(each["id"] for each in finishes)
    ends = {each["id"]: each for each in finishes}
    apart = set()
    for start in starts:
        end = ends[start["id"]]
        assert start["ts"] < end["ts"]
        source, target = (result.played[each["pid"]].ranks[0] for each in (start, end))
        apart.add((target - source) % 4)
    assert apart == {1, 3}


def test_processes_and_tracks_are_named(result: Result, events: list[dict[str, Any]]) -> None:
    named = [event["args"]["name"] for event in of_phase(events, "M") if event["name"] == "process_name"]
    assert len(named) == len(result.played)
    assert named[0].startswith("rank 0")


def test_names_are_escaped(events: list[dict[str, Any]]) -> None:
    assert NASTY in {event["name"] for event in of_phase(events, "X")}


def test_a_process_says_how_many_ranks_are_like_it(tmp_path: Path) -> None:
    write_timeline(run(job([[collective("all_reduce", 64)]] * 4, network(("Ring", 4, 50.0, 5.0)))), tmp_path / "out")
    found = json.loads((tmp_path / "out").read_text())["traceEvents"]
    assert found[0]["args"]["name"] == "rank 0 (and 3 alike)"


@pytest.mark.parametrize("nodes", [0, 1, BATCH // 2 - 20, BATCH])
def test_a_timeline_of_any_length_is_valid(tmp_path: Path, nodes: int) -> None:
    ranks = [[computation(1000, 1000) for _ in range(nodes)], []]
    write_timeline(run(job(ranks, network(("Ring", 2, 50.0, 5.0)))), tmp_path / "out")
    assert len(of_phase(json.loads((tmp_path / "out").read_text())["traceEvents"], "X")) == nodes


@pytest.mark.parametrize(
    ("name", "rule"), [("missing/out.json", "cannot be written: No such file"), ("a\0b", "is no name that a file can")]
)
def test_a_path_that_cannot_be_written_is_one_sentence(tmp_path: Path, result: Result, name: str, rule: str) -> None:
    with pytest.raises(SpecError, match=rule) as caught:
        write_timeline(result, tmp_path / name)
    assert str(caught.value).startswith("file = ")
    assert str(caught.value).isprintable()
