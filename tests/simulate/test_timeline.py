"""The timeline: what a trace viewer is given of a simulation."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosmic.base.errors import SpecError
from cosmic.base.timelines import BATCH
from cosmic.simulate.events.astra_sim_inputs import RemoteMemory
from cosmic.simulate.events.design_simulation import simulate_design
from cosmic.simulate.events.simulation_result import SimulationResult
from cosmic.simulate.events.simulation_timeline import average_levels, split_spans, timeline_of_result
from cosmic.simulate.events.trace_simulation import simulate_job
from cosmic.simulate.step_timeline import (
    CLASS_CODES,
    CLASSES,
    SpanClass,
    Timeline,
    TimelineDrawing,
    critical_path,
    merge_spans,
    subtracks_of,
    write_timeline,
)
from tests.simulate.jobs import collective, computation, job, load, network, receive, send
from tests.simulate.timelines import check_events, check_value, of_phase, written
from tests.traces.test_generation import design

NASTY = 'a "quoted" \\ name\n\x00 of \ud800 ü'
MEMORY = RemoteMemory(type="PER_NPU_MEMORY_EXPANSION", latency_ns=10, bandwidth_gb_per_s=1.0)


def simulated() -> SimulationResult:
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
    return simulate_job(job(ranks, network(("Switch", 4, 50.0, 500.0)), memory=MEMORY))


@pytest.fixture(scope="module")
def result() -> SimulationResult:
    return simulated()


@pytest.fixture(scope="module")
def timeline(result: SimulationResult) -> Timeline:
    return timeline_of_result(result)


@pytest.fixture(scope="module")
def events(timeline: Timeline, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return written(timeline, tmp_path_factory.mktemp("timeline") / "out.json")


# ---- simulations


def test_a_simulations_timeline_and_its_file_are_whole(timeline: Timeline, events: list[dict[str, Any]]) -> None:
    check_value(timeline)
    check_events(timeline, events)
    assert timeline.engine == "event"


def test_every_node_that_ran_is_drawn_within_the_run(result: SimulationResult, timeline: Timeline) -> None:
    spans = timeline.spans
    process = np.array([track.process for track in timeline.tracks])[spans.track]
    nodes = timeline.details["node"]
    drawn = set(zip(process[nodes >= 0].tolist(), nodes[nodes >= 0].tolist(), strict=True))
    assert drawn == {(place, node) for place in range(len(result.rank_times)) for node in range(9)}
    assert spans.end_ns.max() == timeline.duration_ns == result.cycles
    for place, each in enumerate(result.rank_times):
        for node in (0, 1, 2, 3):
            mine = (process == place) & (nodes == node)
            assert spans.start_ns[mine].min() == each.begun[node]
            assert spans.end_ns[mine].max() == each.ended[node]
            assert spans.duration_ns[mine].sum() == each.ended[node] - each.begun[node]


def test_every_send_has_an_arrow_to_the_receive_that_it_is_for(result: SimulationResult, timeline: Timeline) -> None:
    spans, flows = timeline.spans, timeline.flows
    assert flows.count == 8
    process = np.array([track.process for track in timeline.tracks])[spans.track]
    nodes = timeline.details["node"]
    assert set(nodes[flows.source].tolist()) == {4, 5}
    assert set(nodes[flows.target].tolist()) == {6, 7}
    ranks = [each.ranks[0] for each in result.rank_times]
    pairs = zip(process[flows.source].tolist(), process[flows.target].tolist(), strict=True)
    assert {(ranks[target] - ranks[source]) % 4 for source, target in pairs} == {1, 3}
    assert (spans.start_ns[flows.source] <= spans.start_ns[flows.target]).all()


def test_overlapped_is_what_compute_covers(result: SimulationResult, timeline: Timeline) -> None:
    """Checked against the numbers of the result, for a rank that receives nothing before it is sent."""
    spans = timeline.spans
    process = np.array([track.process for track in timeline.tracks])[spans.track]
    for place, each in enumerate(result.rank_times):
        kinds = each.template.type
        computing = merge_spans(each.begun[kinds == 4], each.ended[kinds == 4])
        for name in ("hidden", "exposed"):
            mine = (process == place) & (spans.kind == CLASS_CODES[name])
            for start, end in zip(spans.start_ns[mine].tolist(), spans.end_ns[mine].tolist(), strict=True):
                shared = np.minimum(computing[1], end) - np.maximum(computing[0], start)
                assert shared.clip(0).sum() == (end - start if name == "hidden" else 0)
    assert timeline.totals.hidden_s > 0


def test_names_are_escaped(events: list[dict[str, Any]]) -> None:
    assert NASTY in {event["name"] for event in of_phase(events, "X")}
    assert {event["args"].get("collective") for event in of_phase(events, "X") if "args" in event} >= {"all_reduce"}


def test_a_process_says_how_many_ranks_are_like_it(tmp_path: Path) -> None:
    found = timeline_of_result(simulate_job(job([[collective("all_reduce", 64)]] * 4, network(("Ring", 4, 50.0, 5.0)))))
    assert [(each.name, each.ranks) for each in found.processes] == [("rank 0", 4)]
    assert written(found, tmp_path / "out")[0]["args"]["name"] == "rank 0 (×4)"


@pytest.mark.parametrize("nodes", [0, 1, BATCH // 2 - 20, BATCH])
def test_a_timeline_of_any_length_is_valid(tmp_path: Path, nodes: int) -> None:
    ranks = [[computation(1000, 1000) for _ in range(nodes)], []]
    found = timeline_of_result(simulate_job(job(ranks, network(("Ring", 2, 50.0, 5.0)))))
    check_value(found)
    events = written(found, tmp_path / "out")
    assert len([each for each in of_phase(events, "X") if each["cat"] == "compute"]) == nodes


@pytest.mark.parametrize(
    ("name", "rule"), [("missing/out.json", "cannot be written: No such file"), ("a\0b", "is no name that a file can")]
)
def test_a_path_that_cannot_be_written_is_one_sentence(
    tmp_path: Path, timeline: Timeline, name: str, rule: str
) -> None:
    with pytest.raises(SpecError, match=rule) as caught:
        write_timeline(timeline, tmp_path / name)
    assert str(caught.value).startswith("file = ")
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("name", "told", "tracks"),
    [
        ("gpt3-175b@dgx-h100:16", {"tp": 4, "dp": 4, "weight_sharding": "zero1"}, {"tp", "dp"}),
        ("mixtral-8x7b@dgx-h100:16", {"pp": 2, "dp": 8, "ep": 4, "weight_sharding": "zero1"}, {"ep", "dp", "pp"}),
        ("gpt3-175b@dgx-h100:16", {"cp": 4, "tp": 4, "cp_comm_type": "ring"}, {"cp", "tp"}),
    ],
)
def test_a_designs_own_traces_have_a_track_for_each_axis(
    name: str, told: dict[str, Any], tracks: set[str], tmp_path: Path
) -> None:
    point = design(name, 4, global_batch=16, **told)
    course = simulate_design(point)
    found = timeline_of_result(course, point)
    check_value(found)
    check_events(found, written(found, tmp_path / "out"))
    assert {track.name for track in found.tracks} >= {"compute", *tracks}
    assert not {"communication", "receive"} & {track.name for track in found.tracks}
    assert sum(each.ranks for each in found.processes) == point.network.npus
    last = max(course.per_npu, key=lambda npu: npu.cycles)
    assert found.totals.compute_s == pytest.approx(last.compute_cycles / 1e9, abs=1e-9)
    assert found.totals.exposed_s + found.totals.idle_s == pytest.approx(last.exposed_cycles / 1e9, abs=1e-9)
    assert found.totals.hidden_s <= last.hidden_cycles / 1e9 + 1e-9
    assert {counter.unit for counter in found.counters} == {"B/s"}


# ---- the critical path


def path_of(spans: list[tuple[int, SpanClass, int, int]], arrows: list[tuple[int, int]]) -> list[int]:
    """Return which of spans (process, class, start, end) lie on the critical path."""
    process, kind, start, end = np.array([(a, CLASS_CODES[b], c, d) for a, b, c, d in spans], np.int64).T
    flows = np.array(arrows, np.int64).reshape(-1, 2)
    return np.flatnonzero(critical_path(process, kind, start, end, (flows[:, 0], flows[:, 1]))).tolist()


def test_a_critical_path_worked_out_by_hand() -> None:
    """Two stages, two microbatches. Stage 1 waits for both messages, and stage 0 for the second gradient.

    0: F0 [0, 10]  F1 [10, 20]               ........ B1 [47, 60]  update [60, 65]
    1:        receive [10, 12] F0 [12, 20]  F1 [22, 30] B1 [30, 45]
                     hidden [20, 20]  exposed [20, 22]
    """
    spans: list[tuple[int, SpanClass, int, int]] = [
        (0, "compute", 0, 10),  # 0: F0
        (0, "compute", 10, 20),  # 1: F1
        (0, "idle", 20, 47),
        (0, "exposed", 45, 47),  # 3: gradients arrive
        (0, "compute", 47, 60),  # 4: B1
        (0, "optimizer", 60, 65),  # 5
        (1, "exposed", 10, 12),  # 6: activations of microbatch 0
        (1, "compute", 12, 20),  # 7: F0
        (1, "exposed", 20, 22),  # 8: activations of microbatch 1
        (1, "compute", 22, 30),  # 9: F1
        (1, "compute", 30, 45),  # 10: B1
        (1, "hidden", 22, 30),  # 11: something beside it
        (1, "optimizer", 45, 50),  # 12
    ]
    assert path_of(spans, [(0, 6), (1, 8), (10, 3)]) == [0, 1, 3, 4, 5, 8, 9, 10]


def test_what_arrives_in_time_is_not_critical() -> None:
    spans: list[tuple[int, SpanClass, int, int]] = [
        (0, "compute", 0, 3),
        (1, "compute", 0, 10),
        (1, "hidden", 3, 5),
        (1, "compute", 10, 12),
    ]
    assert path_of(spans, [(0, 2)]) == [1, 3]


def test_pieces_of_one_collective_are_on_the_path_together() -> None:
    """A gather runs from 0 to 10, beside compute from 2 to 5; what follows waits for it."""
    drawing = TimelineDrawing()
    compute, other = drawing.track(0, "compute"), drawing.track(0, "dp")
    drawing.add(compute, drawing.name("a"), "compute", np.array([2, 10]), np.array([5, 12]))
    spans = drawing.add(
        other,
        drawing.name("g"),
        np.array([CLASS_CODES["exposed"], CLASS_CODES["hidden"], CLASS_CODES["exposed"]]),
        np.array([0, 2, 5]),
        np.array([2, 5, 10]),
    )
    drawing.link(spans[:-1], spans[1:])
    tracks, names, found, _, _ = drawing.finish()
    assert [track.name for track in tracks] == ["compute", "dp"]
    assert names == ("a", "g")
    assert found.critical.tolist() == [False, True, True, True, True]


# ---- arithmetic

TIMES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), max_size=12)


@given(TIMES, TIMES)
def test_splitting_keeps_all_time_and_knows_what_is_covered(spans: list[Any], others: list[Any]) -> None:
    begun, ended = (np.array([a for a, _ in spans], np.int64), np.array([a + b for a, b in spans], np.int64))
    cover = merge_spans(np.array([a for a, _ in others], np.int64), np.array([a + b for a, b in others], np.int64))
    which, start, end, hidden = split_spans(begun, ended, *cover)
    busy = {moment for a, b in zip(*cover, strict=True) for moment in range(a, b)}
    for place in range(len(spans)):
        mine = which == place
        moments = [set(range(a, b)) for a, b in zip(start[mine].tolist(), end[mine].tolist(), strict=True)]
        assert set().union(*moments) == set(range(begun[place], ended[place]))
        assert sum(map(len, moments)) == ended[place] - begun[place]
        for piece, covers in zip(moments, hidden[mine].tolist(), strict=True):
            assert piece <= busy if covers else not piece & busy


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 12)), max_size=12))
def test_subtracks_are_as_few_as_can_be(spans: list[Any]) -> None:
    ordered = sorted((a, a + b) for a, b in spans)
    start, end = (np.array([each[side] for each in ordered], np.int64) for side in (0, 1))
    subtracks = subtracks_of(start, end)
    for subtrack in set(subtracks.tolist()):
        mine = subtracks == subtrack
        assert (start[mine][1:] >= end[mine][:-1]).all()
    deepest = max((int(((start <= moment) & (moment < end)).sum()) for moment in range(75)), default=0)
    assert subtracks.max(initial=-1) + 1 == deepest


def test_an_average_keeps_the_whole() -> None:
    rng = np.random.default_rng(0)
    times = np.unique(np.append(0, rng.integers(1, 1000, 50)))
    values = np.append(rng.random(len(times) - 1), 0.0)
    edges, means = average_levels(times, values, np.linspace(0, 1000, 8).astype(np.int64))
    before = (values[:-1] * np.diff(times)).sum()
    assert (means[:-1] * np.diff(edges)).sum() == pytest.approx(before)


def test_classes_are_those_of_the_pages() -> None:
    assert get_args(SpanClass) == CLASSES
