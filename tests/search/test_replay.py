"""A study run again: the same bit for bit, or what differs is said."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cosmic.search.search_loop import resume_study, search
from cosmic.search.study.study import open_study, render_inputs
from cosmic.search.study.study_comparison import replay_study
from cosmic.search.study.trial_storage import Storage
from tests.commands import run


def change(folder: Path, trial: int, metric: str, factor: float) -> None:
    """Change one metric of one trial, as if another release had written it."""
    with Storage.opened(folder / "trials.db") as storage:
        batches, trials = storage.history()
    trials.results.columns[metric][trial] *= factor
    (folder / "trials.db").unlink()
    with Storage.opened(folder / "trials.db", write=True) as storage:
        storage.restore(batches, trials, trials.part(slice(0)))


def a_feasible_trial(folder: Path) -> int:
    return int(np.flatnonzero(open_study(folder).trials.results.feasible)[5])


@pytest.mark.parametrize("agent", ["random", "genetic"])
def test_a_study_is_the_same_again(agent: str, tmp_path: Path) -> None:
    search("cosmic-512-full-stack", agent=agent, trials=100, batch=30, seed=2, out=tmp_path)
    resume_study(tmp_path, trials=140)  # its fifth batch has fewer points than the others
    found = replay_study(tmp_path)
    assert found.same
    assert found.trials == len(open_study(tmp_path).trials)
    assert found.differing == 0
    assert found.written_by == found.running


def test_a_result_that_differs_is_found_with_its_size(study: Path) -> None:
    trial = a_feasible_trial(study)
    change(study, trial, "step_s", 1 + 1e-9)
    found = replay_study(study)
    assert (found.first, found.differing, found.other_points) == (trial, 1, False)
    assert list(found.largest) == ["step_s"]
    assert found.largest["step_s"] == pytest.approx(1e-9, rel=1e-3)


def test_other_points_are_found(study: Path) -> None:
    inputs = open_study(study).inputs
    (study / "study.json").write_text(render_inputs(replace(inputs, seed=12)))
    found = replay_study(study)
    assert found.other_points
    assert found.first == 1  # the base comes first whatever the seed
    assert found.differing >= found.trials - 1


def test_the_command_says_so_and_exits_with_1_if_asked(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "study", "replay", str(study), "--check")
    assert status == 0
    assert out.endswith("trials are the same, bit for bit\n")
    trial = a_feasible_trial(study)
    change(study, trial, "mfu", 0.5)
    assert run(capsys, "study", "replay", str(study))[0] == 0
    status, out, _ = run(capsys, "study", "replay", str(study), "--check")
    assert status == 1
    assert f"1 of {len(open_study(study).trials):,} trials differ, first trial {trial:,}: its results differ" in out
    assert "written by" in out
    status, out, _ = run(capsys, "study", "replay", str(study), "--json")
    found = json.loads(out)
    assert (found["same"], found["first"], found["largest"]) == (False, trial, {"mfu": 0.5})
