"""Studies, reports and commands with an engine that somebody brought."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosmic.base.errors import SpecError, UnknownName
from cosmic.cli.dispatch import main
from cosmic.report.study_report import report
from cosmic.search.leaderboard import enter_agent, enter_design, make_board, show_board
from cosmic.search.problem import make_problem
from cosmic.search.search_loop import resume_study, search
from cosmic.search.space.space_files import json_schema, load_space
from cosmic.search.study.study import open_study, tell_runs
from cosmic.search.study.study_comparison import replay_study
from cosmic.simulate.metrics import Infeasible
from cosmic.simulate.user_engines import engine, engines
from tests.simulate.engines.conftest import METRICS, SPACE, Tiles, tiles

pytestmark = pytest.mark.usefixtures("brought")


def by_hand() -> dict[str, float]:
    """Return the best point by trying all."""
    found = {}
    for tile in (16, 32, 64, 128, 256, 512):
        for buffers in (1, 2):  # 4 break the limit on area
            for scratch in (65536.0, 2.0**20):
                if tile * buffers <= 1024 and 2 * tile**2 <= scratch:
                    found[tile, buffers] = 1 / tile**2 + 1e-6 * tile / buffers
    (tile, buffers), latency = min(found.items(), key=lambda each: each[1])
    return {"tile": tile, "buffers": buffers, "latency_s": latency}


def test_a_set_of_an_engines_own_fields_is_counted_and_described() -> None:
    space = load_space(SPACE)
    assert (space.raw, space.valid) == (72, 72 - 4)  # 512 with 4 buffers
    assert space.objective == "latency_s"
    assert space.limits == ("area_mm2 <= 3",)
    assert space.stacks == ("tile", "buffers", "scratch", "order")
    assert space.restrict(["tile"]).valid == 6
    assert json_schema(space)["properties"]["scratch"]["enum"] == ["64 KiB", "1 MiB"]
    point: Any = space.point(np.array([1, 2, 0, 0]))
    assert point == Tiles(tile=32, buffers=4)


def test_a_search_finds_the_best_and_says_why_others_have_no_metrics(tmp_path: Path) -> None:
    found = search(SPACE, out=tmp_path / "study")
    assert found.inputs.agent == "exhaustive"
    assert found.best is not None
    best = by_hand()
    assert found.best["point"]["tile"] == best["tile"]
    assert found.best["metrics"]["latency_s"] == best["latency_s"]
    reasons = found.trials.reasons()
    assert reasons["engine failed: ValueError: no columns; sorry"] == 6
    assert reasons["area_mm2 <= 3"] > 0
    assert found.trials.evaluated == 68  # failures count: each was asked


def test_a_study_is_kept_resumed_and_replayed(tmp_path: Path) -> None:
    options = {"agent": "genetic", "objectives": ["ops_per_s"], "seed": 3, "batch": 8}
    whole = search(SPACE, trials=40, out=tmp_path / "whole", **options)  # type: ignore[arg-type]
    search(SPACE, trials=16, out=tmp_path / "part", **options)  # type: ignore[arg-type]
    resumed = resume_study(tmp_path / "part", 40)
    assert resumed.computed < 40
    assert whole.best is not None
    assert resumed.trials.evaluated == whole.trials.evaluated == 40
    assert open_study(tmp_path / "whole").trials.results.columns.keys() == METRICS.keys()
    assert replay_study(tmp_path / "whole").same


def test_another_version_of_the_engine_is_not_resumed_and_a_replay_names_both(tmp_path: Path) -> None:
    search(SPACE, trials=16, agent="random", out=tmp_path / "study")
    before = engines["tiles"].identity
    del engines._variants["tiles"]
    engine("tiles", version="2", metrics=METRICS, fields=Tiles)(
        lambda point: found if isinstance(found := tiles(point), Infeasible) else {**found, "area_mm2": 1.0}
    )
    with pytest.raises(SpecError, match=r"begun with version 1 \(.*this is 2 \("):
        resume_study(tmp_path / "study", 32)
    again = replay_study(tmp_path / "study")
    assert not again.same
    assert again.written_by["engine tiles"] == before
    assert again.running["engine tiles"].startswith("2 (")


def test_a_report_shows_metrics_and_the_engine(tmp_path: Path) -> None:
    search(SPACE, out=tmp_path / "study")
    document = report(tmp_path / "study").document
    assert any(name == "engine" and value.startswith("tiles 1 (") for name, value in document["trust"]["inputs"])
    columns = {each["name"]: each["better"] for each in document["trials"]["columns"] if each["role"] == "metric"}
    assert columns == METRICS
    assert document["designs"] == []


def test_an_engine_takes_designs() -> None:
    engine("heat", version="1", metrics={"heat_w": "less", "cold_w": "more"})(
        lambda design: {"heat_w": design.workload.tp * 90.0, "cold_w": 1.0}
    )
    found = search("llama3-8b@dgx-h100:8", engine="heat", trials=30, constraints=["heat_w >= 180"])
    assert found.best is not None
    assert found.best["metrics"] == {"heat_w": 180.0, "cold_w": 1.0}
    assert found.problem.metrics == ("heat_w", "cold_w")


@pytest.mark.parametrize(
    ("space", "options", "said"),
    [
        (SPACE, {"objectives": ["latency"]}, "no such objective; did you mean 'latency_s'?"),
        (SPACE, {"constraints": ["mfu >= 0.4"]}, "no such metric"),
        (SPACE, {"engine": "event"}, "the set space is for the engine tiles"),
        ("cosmic-512-full-stack", {"engine": "tiles"}, "has fields of its own, and takes no designs"),
        ("cosmic-512-full-stack", {"engine": "heat"}, "heat gives heat_w: choose one"),
        ({**SPACE, "base": {"tiles": 3}}, {}, "no such key; did you mean 'tile'?"),
        ({**SPACE, "workloads": {"a": {}}}, {}, "is for designs, and tiles has fields of its own"),
        ({**SPACE, "engine": "tile"}, {}, "did you mean 'tiles'"),
        ({**SPACE, "constraints": ["tile * npus <= 3"]}, {}, "knows no"),
    ],
)
def test_what_does_not_go_together_is_said_in_a_sentence(space: Any, options: dict[str, Any], said: str) -> None:
    engine("heat", version="1", metrics={"heat_w": "less"})(lambda _: {"heat_w": 1.0})
    with pytest.raises((SpecError, UnknownName)) as raised:
        make_problem(load_space(space), **options)
    assert said in str(raised.value)


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        main(list(map(str, words)))
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out + printed.err


def test_commands_ask_an_engine(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status, said = run(capsys, "evaluate", "tiles", "--engine", "tiles", "--set", "tile=32", "--json")
    assert (status, json.loads(said)["metrics"]["area_mm2"]) == (0, 2.0)
    status, said = run(capsys, "evaluate", "tiles", "--engine", "tiles", "--set", "tile=512")
    assert (status, said) == (1, "cannot run: two tiles; both whole; do not fit\n")
    status, said = run(capsys, "evaluate", "tiles", "--engine", "tiles", "--set", "til=512")
    assert status == 2
    assert "did you mean 'tile'?" in said
    file = tmp_path / "point.yaml"
    file.write_text("engine: tiles\nfields: {tile: 16, order: column}\n")
    status, said = run(capsys, "evaluate", file, "--engine", "tiles")
    assert (status, said) == (1, "no answer: engine failed: ValueError: no columns; sorry\n")
    assert "tiles" in run(capsys, "catalog", "list", "engines")[1]
    assert run(capsys, "evaluate", "tiles", "--engine", "tiles", "--advice")[0] == 2


# ---- learning and measuring


def test_runs_of_an_engines_own_metrics_are_put_in_and_others_are_refused(tmp_path: Path) -> None:
    found = search(SPACE, out=tmp_path / "study")
    place = found.trials.best(found.problem)
    assert found.best is not None
    (tmp_path / "runs.csv").write_text(f"trial,latency_s\n{place},{2 * found.best['metrics']['latency_s']}\n")
    assert tell_runs(tmp_path / "study", tmp_path / "runs.csv") == (1, 1)
    beside = open_study(tmp_path / "study").evidence
    assert beside is not None
    assert (beside.metric, beside.rows[0].ratio) == ("latency_s", 2.0)
    (tmp_path / "runs.csv").write_text(f"trial,step_s\n{place},2\n")
    with pytest.raises(SpecError, match="a CSV file of runs has latency_s or ops_per_s or area_mm2"):
        tell_runs(tmp_path / "study", tmp_path / "runs.csv")


@pytest.mark.long
def test_a_study_of_an_engines_own_fields_teaches_and_its_runs_correct(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    whole = search(SPACE, out=tmp_path / "study")
    rows = np.flatnonzero(whole.trials.results.feasible)[:4].tolist()
    twice = [f"{place},{2 * whole.trials.results.columns['latency_s'][place]}" for place in rows]
    (tmp_path / "runs.csv").write_text("\n".join(["trial,latency_s", *twice]))
    tell_runs(tmp_path / "study", tmp_path / "runs.csv")
    found = search(SPACE, agent="surrogate", trials=12, learn=[tmp_path / "study"], out=tmp_path / "next")
    lessons = found.inputs.lessons
    assert lessons.prior is not None
    assert "study (the same set) teaches by 68 trials: matched tile, buffers, scratch, order." in lessons.notes
    assert any("latency_s is 2.000× as much" in note for note in lessons.notes)
    assert lessons.factor is not None
    assert np.exp(lessons.factor(whole.trials.rows[:2])) == pytest.approx(2)
    outcomes = found.problem.outcomes(whole.trials.rows[rows], whole.trials.results.select(np.array(rows)))
    assert lessons.corrected(found.problem, outcomes).losses == pytest.approx(2 * outcomes.losses)
    assert replay_study(tmp_path / "next").same


def test_rows_of_a_file_state_an_engines_own_fields(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("tile,buffers,latency_s\n32,1,0.003\n64,1,0.001\n")
    found = search(SPACE, agent="random", trials=4, learn=[tmp_path / "runs.csv"])
    one, other = (0.003 / (1 / 32**2 + 32e-6), 0.001 / (1 / 64**2 + 64e-6))  # measured over predicted
    assert found.inputs.lessons.factor is not None
    assert np.exp(found.inputs.lessons.factor(found.trials.rows[:1])) == pytest.approx((one * other) ** 0.5)
    (tmp_path / "runs.csv").write_text("design,latency_s\nllama3-8b@dgx-h100:8,1\n")
    with pytest.raises(SpecError, match="is no design of tiles"):
        search(SPACE, agent="random", trials=4, learn=[tmp_path / "runs.csv"])


@pytest.mark.long
def test_studies_of_other_engines_say_why_they_teach_nothing(tmp_path: Path) -> None:
    search(SPACE, out=tmp_path / "tiles")
    search("llama3-8b@dgx-h100:8", trials=20, agent="random", out=tmp_path / "designs")
    designs = search("llama3-8b@dgx-h100:8", trials=5, agent="random", learn=[tmp_path / "tiles"])
    assert designs.inputs.lessons.notes == ("tiles teaches nothing: its engine, tiles, gives no step_s.",)
    points = search(SPACE, trials=5, agent="random", learn=[tmp_path / "designs"])
    assert points.inputs.lessons.notes == ("designs teaches nothing: its engine, analytic, gives no latency_s.",)


def test_a_board_takes_agents_and_points_of_an_engines_own_fields(tmp_path: Path) -> None:
    (tmp_path / "tiles.yaml").write_text(json.dumps(SPACE))
    make_board(tmp_path / "board", str(tmp_path / "tiles.yaml"), trials=10, seeds=2)
    enter_agent(tmp_path / "board", "random")
    best = search(SPACE).best
    assert best is not None
    (tmp_path / "best.yaml").write_text(json.dumps({"engine": "tiles", "fields": best["point"]}))
    enter_design(tmp_path / "board", "best", tmp_path / "best.yaml")
    lines = show_board(tmp_path / "board")
    assert [line.confirmed for line in lines] == [True, True]
    assert (lines[0].name, lines[0].value) == ("best", by_hand()["latency_s"])
