"""The analytic engine's timeline: the order of the schedule with the closed form's times."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.design import schema
from cosmic.design.design_batch import batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.evaluation import evaluate
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate import schedule_timeline
from cosmic.simulate.analytic_step import COMMUNICATED, COMPUTE_PARTS, compute_step_seconds, dissect_step
from cosmic.simulate.metrics import Metrics
from cosmic.simulate.schedule_timeline import MOST_SPANS, StepTimes, draw_design_timeline, simulate_tasks, step_times
from cosmic.simulate.step_timeline import CLASS_CODES, Timeline
from cosmic.step.device_memory import footprint
from cosmic.step.stage_time import FETCHED_AHEAD
from cosmic.workload.mapping_rules import invalid_reasons
from cosmic.workload.mesh_sizes import microbatches
from cosmic.workload.pipeline_schedule import PipelineTask, TaskKind, schedules
from tests.commands import run
from tests.simulate.timelines import check_events, check_value, written
from tests.traces.test_generation import design

SCHEDULES = ("gpipe", "1f1b", "interleaved", "zero_bubble", "dualpipe")
EXACT = ("gpipe", "1f1b")
"""Whose closed forms hold as well where the last stage is slower than the others."""


def parts_of(point: DesignPoint) -> dict[str, float]:
    batch = batch_of(point)
    return {name: float(value) for name, value in compute_step_seconds(batch).parts.items()}


def drawn(rng: random.Random) -> DesignPoint:
    """Return a random design with a valid mapping; its memory does not matter here."""
    while True:
        tp, cp, pp = rng.choice([1, 2, 4, 8]), rng.choice([1, 1, 2]), rng.choice([1, 2, 4, 8])
        told: dict[str, Any] = {"tp": tp, "cp": cp, "pp": pp, "dp": max(1, rng.choice([16, 64, 256]) // (tp * cp * pp))}
        told |= {
            "task": rng.choice(["training", "training", "training", "prefill", "decode"]),
            "weight_sharding": rng.choice(["none", "zero1", "zero2", "zero3"]),
            "schedule": rng.choice(SCHEDULES),
            "recompute": rng.choice(["none", "full", "selective"]),
            "cp_comm_type": rng.choice(["ring", "all_gather", "ulysses"]),
            "sequence_parallel": rng.random() < 0.5,
            "global_batch": told["dp"] * rng.choice([1, 2, 4, 8, 16, 32]),
        }
        told["virtual_stages"] = rng.choice([1, 2]) if told["schedule"] == "interleaved" and pp > 1 else 1
        model = rng.choice(["gpt3-175b", "gpt3-13b", "llama3-70b", "mixtral-8x22b", "deepseek-v2", "vit-large"])
        told["ep"] = rng.choice([1, 2, 4]) if model in {"mixtral-8x22b", "deepseek-v2"} else 1
        try:
            point = load_design(
                f"{model}@dgx-h100:{told['dp'] * tp * cp * pp}",
                {f"workload.{key}": value for key, value in told.items()},
                plain=True,
            )
        except SpecError:  # a layer refuses the combination
            continue
        order = {
            "collective.scheduling": rng.choice(["lifo", "fifo"]),
            "collective.overlap_efficiency": rng.choice([1.0, 0.8]),
        }
        ordered: DesignPoint = schema.assign_fields(point, order)
        if not invalid_reasons(batch_of(ordered)):
            return ordered


def seconds_of(timeline: Timeline, process: int, *kinds: str) -> float:
    owner = np.array([track.process for track in timeline.tracks])[timeline.spans.track]
    mine = (owner == process) & np.isin(timeline.spans.kind, [CLASS_CODES[kind] for kind in kinds])  # type: ignore[index]
    return float(timeline.spans.duration_ns[mine].sum()) / 1e9


# ---- agreement with the closed form


@pytest.mark.parametrize("seed", range(6))
def test_random_designs_are_drawn_as_the_closed_form_has_them(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(8):
        point = drawn(rng)
        check_agreement(point, draw_design_timeline(point))


def check_agreement(point: DesignPoint, timeline: Timeline) -> None:
    """Check the length of the step, its parts and its memory."""
    check_value(timeline)
    workload, parts = point.workload, parts_of(point)
    whole = sum(parts.values())
    assert timeline.spans.end_ns.max() == timeline.duration_ns
    exact = workload.pp == 1 or workload.task == "prefill"
    if exact or (workload.task == "training" and workload.schedule in EXACT):
        crossing = parts["pp"]  # how many of them hide depends on the stages, which closed forms take for equal
        fetched = (workload.pp - 1) * parts["weights"] / float(microbatches(batch_of(point)))  # while stages wait
        assert timeline.duration_s == pytest.approx(whole, rel=1e-6, abs=1e-8 + crossing + fetched)
    apart = abs(timeline.duration_s / whole - 1) > 1.1e-3
    assert ("closed form" in timeline.reading) == apart or abs(timeline.duration_s / whole - 1) > 0.9e-3
    totals, bounding = timeline.totals, int(dissect_step(batch_of(point)).profile.stage_index)
    computing = sum(parts[name] for name in (*COMPUTE_PARTS, "recompute", "optimizer"))
    assert totals.compute_s == pytest.approx(computing, rel=1e-5, abs=1e-7)
    if workload.pp == 1:
        assert totals.exposed_s == pytest.approx(sum(parts[name] for name in COMMUNICATED), rel=1e-5, abs=1e-7)
        assert totals.idle_s == pytest.approx(parts["launch"] + parts["offload"] + parts["bubble"], rel=1e-4, abs=1e-7)
    assert totals.compute_s == pytest.approx(seconds_of(timeline, bounding, "compute", "optimizer"), abs=1e-9)
    levels = [counter for counter in timeline.counters if counter.name == "memory"]
    assert len(levels) == workload.pp
    fullest = footprint(batch_of(point))
    assert levels[int(fullest.stage)].values.max() == pytest.approx(float(fullest.total))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("stages", [1, 2, 4, 8])
def test_every_schedule_is_drawn_in_its_order(schedule: str, stages: int, tmp_path: Path) -> None:
    virtual = 2 if schedule == "interleaved" and stages > 1 else 1
    told = {"pp": stages, "tp": 8, "global_batch": 32, "schedule": schedule, "virtual_stages": virtual}
    point = design(f"gpt3-175b@dgx-h100:{8 * stages}", 32, **told)
    timeline = draw_design_timeline(point)
    check_agreement(point, timeline)
    check_events(timeline, written(timeline, tmp_path / "out"))
    compute = [place for place, track in enumerate(timeline.tracks) if track.name == "compute"]
    for stage, track in enumerate(compute):
        rows = np.flatnonzero(timeline.spans.track == track)
        found = [timeline.names[code] for code in timeline.spans.name[rows].tolist()]
        names = [name for name in found if name[0] in "FBW" and name[1].isdigit()]
        tasks = schedules[schedule].order(stage, stages, 32, virtual)
        chunk = "" if virtual == 1 else "."
        told_names = [f"{task.kind[0]}{task.microbatch}{chunk}{task.chunk if chunk else ''}" for task in tasks]
        assert names == told_names
    crossings = 0 if stages == 1 else 2 * 32 * (stages * virtual - 1)
    assert timeline.flows.count == crossings
    whole = sum(parts_of(point).values())
    within = 0.02 if schedule == "dualpipe" else 0.01  # stages in the middle have neither embedding nor head
    assert timeline.duration_s == pytest.approx(whole, rel=within)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_bubble_of_equal_stages_is_the_schedules_closed_form(schedule: str) -> None:
    """Simulated with equal stages and free transfers, each order takes what its closed form says."""
    stages, count, virtual = 4, 8, 2 if schedule == "interleaved" else 1
    times = {"F": 1.0, "B": 1.25, "W": 0.75, "BW": 2.0}
    orders = [schedules[schedule].order(stage, stages, count, virtual) for stage in range(stages)]
    simulated = simulate_tasks(orders, stages * virtual, lambda _, task: times[task.kind] / virtual, (0.0, 0.0))
    bubble = float(schedules[schedule].bubble(stages, count, 1.0, 1.25, 0.75, virtual))
    assert simulated.end.max() == pytest.approx(3.0 * count + bubble)
    assert len(simulated.tasks) == sum(map(len, orders))


def test_a_crossing_delays_what_waits_for_it() -> None:
    orders = [[PipelineTask("F", 0), PipelineTask("BW", 0)], [PipelineTask("F", 0), PipelineTask("BW", 0)]]
    simulated = simulate_tasks(orders, 2, lambda _, task: 1.0 if task.kind == "F" else 2.0, (0.5, 0.25))
    rows = zip(simulated.stage.tolist(), simulated.tasks, simulated.start.tolist(), strict=True)
    by_stage = {(stage, task.kind): start for stage, task, start in rows}
    assert by_stage == {(0, "F"): 0.0, (1, "F"): 1.5, (1, "BW"): 2.5, (0, "BW"): 4.75}
    assert simulated.sent.tolist() == [1.0, 4.5]
    assert simulated.arrived.tolist() == [1.5, 4.75]


def test_the_critical_path_of_a_pipeline() -> None:
    """1F1B on two stages: the first forward, then everything on the last stage, then the last backward."""
    point = design("gpt3-175b@dgx-h100:16", 32, pp=2, tp=8, global_batch=4, schedule="1f1b")
    timeline = draw_design_timeline(point)
    spans = timeline.spans
    on_compute = np.isin(spans.track, [place for place, track in enumerate(timeline.tracks) if track.name == "compute"])
    owner = np.array([track.process for track in timeline.tracks])[spans.track]
    rows = np.flatnonzero(spans.critical & on_compute)
    rows = rows[np.argsort(spans.start_ns[rows])]
    found = [(int(owner[row]), timeline.names[spans.name[row]]) for row in rows.tolist()]
    last = [(1, f"{kind}{each}") for each in range(4) for kind in "FB"]
    assert found == [(0, "F0"), *last, (0, "B3"), (0, "optimizer")]
    covered_s = spans.duration_ns[spans.critical].sum() / 1e9
    assert covered_s == pytest.approx(timeline.duration_s, rel=1e-6)


def _weights_s(times: StepTimes, kind: TaskKind, parts: list[int]) -> float:
    """Return the mean seconds that a task waits for sharded weights."""
    pieces = [piece for part in parts for piece in times.tasks[kind, part].pieces if piece.track == "weights"]
    return sum(piece.seconds for piece in pieces if piece.kind == "exposed") / len(parts)


def test_tasks_add_up_to_the_passes_of_the_closed_form() -> None:
    point = design("gpt3-175b@dgx-h100:64", 32, pp=4, tp=8, dp=2, weight_sharding="zero3", recompute="full")
    batch = batch_of(point)
    found = dissect_step(batch)
    times, count = step_times(found), float(microbatches(batch))
    bounding = int(found.profile.stage_index)
    others = [part for part in range(4) if part != bounding]
    mean = {kind: sum(times.tasks[kind, part].seconds for part in others) / 3 for kind in ("F", "B", "W", "BW")}
    weights = {kind: _weights_s(times, kind, others) for kind in ("F", "BW")}
    ahead = FETCHED_AHEAD / 8  # of 8 layers on each of these stages: fetched while it waits
    passed = [mean["F"] - ahead * weights["F"], mean["B"] - ahead * weights["BW"], mean["W"]]
    assert passed == pytest.approx(list(map(float, found.others)), rel=0.06)
    assert mean["B"] + mean["W"] == pytest.approx(mean["BW"])
    parts = found.step.parts
    own = times.tasks["F", bounding].seconds + times.tasks["BW", bounding].seconds
    busy = sum(parts[name] for name in (*COMPUTE_PARTS, "recompute", "launch", "tp", "cp", "ep", "weights"))
    assert own * count == pytest.approx(float(busy))


# ---- its size


@pytest.mark.parametrize("name", ["gpt3-175b@cosmic-1024", "llama3-70b@dgx-h100:512"])
def test_it_lasts_as_long_as_the_step_and_stays_small(name: str) -> None:
    point = load_design(name, plain=True)
    timeline = draw_design_timeline(point)
    outcome = evaluate(point)
    assert isinstance(outcome, Metrics)
    assert timeline.duration_s == pytest.approx(outcome.step_s, rel=1e-8)
    assert 0 < timeline.spans.count <= MOST_SPANS


@pytest.mark.long
@pytest.mark.parametrize(
    ("batch", "said", "stages"),
    [
        (3000, "each task is one span", 4),
        (2**15, "tasks of a stage are one span", 2),
        (2**20, "of the microbatches are drawn", 2),
        (2**26, "of the microbatches are drawn", 1),
    ],
)
def test_a_long_step_is_drawn_coarsely_and_says_so(batch: int, said: str, stages: int) -> None:
    point = design(f"gpt3-13b@dgx-h100:{8 * stages}", None, tp=8, pp=stages, global_batch=batch, micro_batch=1)
    fine = draw_design_timeline(design(f"gpt3-13b@dgx-h100:{8 * stages}", None, tp=8, pp=stages, global_batch=64))
    timeline = draw_design_timeline(point)
    check_value(timeline)
    assert timeline.spans.count <= MOST_SPANS
    assert said in timeline.reading
    assert said not in fine.reading
    parts = parts_of(point)
    assert timeline.duration_s == pytest.approx(sum(parts.values()), rel=1e-3)
    computing = sum(parts[name] for name in (*COMPUTE_PARTS, "recompute", "optimizer"))
    assert timeline.totals.compute_s == pytest.approx(computing, rel=1e-5)
    assert timeline.totals.exposed_s == pytest.approx(parts["tp"], rel=1e-2)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_step_with_microbatches_left_out_is_as_long_as_with_all(
    monkeypatch: pytest.MonkeyPatch, schedule: str
) -> None:
    virtual = 2 if schedule == "interleaved" else 1
    told = {"pp": 4, "tp": 8, "global_batch": 320, "schedule": schedule, "virtual_stages": virtual}
    point = design("gpt3-175b@dgx-h100:32", 32, **told)
    whole = draw_design_timeline(point)
    monkeypatch.setattr(schedule_timeline, "MOST_TASKS", 12 * virtual * 64)
    part = draw_design_timeline(point)
    check_value(part)
    assert part.spans.count < whole.spans.count / 2
    assert "only 64 of the microbatches are drawn" in part.reading
    if "one by one" in part.reading:
        within = 0.01 if schedule == "dualpipe" else 0.002
        assert part.duration_s == pytest.approx(whole.duration_s, rel=within)
        assert part.totals.compute_s == pytest.approx(whole.totals.compute_s, rel=within)
    else:
        assert schedule in {"interleaved", "dualpipe"}
        assert part.duration_s < whole.duration_s


def test_coarse_and_fine_drawings_have_the_same_totals(monkeypatch: pytest.MonkeyPatch) -> None:
    point = design("gpt3-175b@dgx-h100:32", 32, pp=4, tp=8, global_batch=32)
    fine = draw_design_timeline(point)
    for most in (400, 100):
        monkeypatch.setattr(schedule_timeline, "MOST_SPANS", most)
        coarse = draw_design_timeline(point)
        check_value(coarse)
        assert coarse.spans.count < fine.spans.count
        assert coarse.totals == fine.totals
        assert coarse.duration_ns == fine.duration_ns


# ---- the command


@pytest.mark.parametrize(("engine", "process"), [("analytic", "stage 0"), ("event", "rank 0")])
def test_evaluate_writes_the_timeline_of_its_engine(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, engine: str, process: str
) -> None:
    words = ("evaluate", "llama3-8b@dgx-h100:8", "--set", "model.layers=4", "--engine", engine, "--json")
    plain = run(capsys, *words)
    path = tmp_path / "out.json"
    assert run(capsys, *words, "--timeline", str(path)) == plain
    assert plain[0] == 0
    found = json.loads(path.read_text())["traceEvents"]
    assert found[0]["args"]["name"].startswith(process)
    ends = max(each["ts"] + each["dur"] for each in found if each["ph"] == "X")
    assert ends / 1e6 == pytest.approx(json.loads(plain[1])["step_s"], rel=1e-6)


def test_a_design_that_cannot_run_has_no_timeline(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    status, _, _ = run(capsys, "evaluate", "gpt3-175b@dgx-h100:8", "--timeline", str(path))
    assert status == 1
    assert not path.exists()
