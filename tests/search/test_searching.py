"""The loop: asked, evaluated, told; repeatable, resumable, never worse than the base."""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosmic.base.errors import SpecError, UnknownName
from cosmic.search.search_inputs import Options, make_inputs
from cosmic.search.search_loop import Found, Progress, read_interrupted, resume_study, search
from cosmic.search.space import space_files
from cosmic.search.space.parameter_set import ParameterSet
from cosmic.search.space.space_files import load_space
from cosmic.search.study.study import open_study
from cosmic.search.trials import Trials
from tests.search.test_problem import SMALL

FULL = "cosmic-512-full-stack"


def same(first: Trials, second: Trials) -> bool:
    return (
        np.array_equal(first.rows, second.rows)
        and first.results.reasons == second.results.reasons
        and all(
            first.results.columns[name].tobytes() == second.results.columns[name].tobytes()
            for name in first.results.columns
        )
    )


def test_the_same_seed_gives_the_same_trials_and_another_seed_others() -> None:
    first, second, other = (search(FULL, trials=150, seed=seed) for seed in (3, 3, 4))
    assert same(first.trials, second.trials)
    assert not np.array_equal(first.trials.rows, other.trials.rows)


def test_a_budget_counts_designs_that_were_evaluated() -> None:
    found = search(FULL, agent="random", trials=200, seed=1)
    assert found.stopped == "trials"
    assert found.trials.evaluated == 200
    assert len(found.trials) > 200
    assert set(found.problem.space.keys(found.trials.rows[:1])) != set()
    assert len(set(found.problem.space.keys(found.trials.rows))) == len(found.trials)


def test_a_small_space_is_searched_to_its_end() -> None:
    found = search(FULL, agent="random", trials=10_000, stacks=["workload"])
    assert found.stopped == "exhausted"
    assert len(found.trials) == found.problem.space.valid


def test_an_agent_that_has_nothing_new_to_say_ends_the_search(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    only = load_space(FULL).sample(1, np.random.default_rng(0))

    def stubborn(self: Any, n: int) -> Any:
        return np.tile(only, (n, 1))

    monkeypatch.setattr(import_module("cosmic.search.agents.random").RandomAgent, "ask", stubborn)
    found = search(FULL, agent="random", trials=100, out=tmp_path / "study")
    assert found.stopped == "stalled"
    assert open_study(tmp_path / "study").stopped == "stalled"
    assert len(found.trials) == 2  # the base is the other


def test_the_base_comes_first_where_it_is_a_point_of_the_set() -> None:
    found = search(FULL, agent="random", trials=5, stacks=["collective"])
    assert found.problem.space.point(found.trials.rows[0]) == found.problem.space.base
    assert found.best is not None
    base = found.problem.base.columns["perf_per_bandwidth"][0]
    assert found.best["metrics"]["perf_per_bandwidth"] >= base


def test_the_best_is_the_best_of_all_that_can_run() -> None:
    found = search(FULL, trials=300, objectives=["step_s"])
    columns = found.trials.results.columns
    assert found.best is not None
    assert found.best["metrics"]["step_s"] == np.nanmin(columns["step_s"])
    point = found.problem.space.point(found.trials.rows[found.best["trial"]])
    assert found.best["point"]["workload.dp"] == point.workload.dp


def test_best_so_far_never_worsens() -> None:
    found = search(FULL, trials=300)
    evaluations, values = found.trials.curve(found.problem)
    assert (np.diff(values) > 0).all()  # perf_per_bandwidth: more is better
    assert (np.diff(evaluations) >= 0).all()
    assert found.best is not None
    assert values[-1] == found.best["metrics"]["perf_per_bandwidth"]


def test_a_front_is_what_nothing_dominates() -> None:
    found = search(FULL, trials=300, objectives=["step_s", "network_usd"])
    front = [(each["metrics"]["step_s"], each["metrics"]["network_usd"]) for each in found.front]
    assert len(front) > 1
    assert front == sorted(front)
    assert all(later[1] < earlier[1] for earlier, later in pairwise(front))
    assert 0 < found.trials.hypervolume(found.problem) <= 1


def test_where_nothing_can_run_there_is_no_best() -> None:
    found = search(FULL, agent="random", trials=30, constraints=["memory_bytes <= 1 kB"])
    assert found.best is None
    assert found.front == []
    assert found.trials.reasons()["memory_bytes <= 1 kB"] >= 30


def test_progress_is_told_after_each_batch() -> None:
    told: list[Progress] = []
    search(FULL, agent="random", trials=90, batch=30, watch=told.append)
    assert [each.trials for each in told] == [90] * len(told)
    assert told[-1].evaluated == 90
    assert all(before.best >= after.best for before, after in pairwise(told))


def kept(folder: Path, **options: Any) -> Found:
    return search(FULL, trials=120, batch=30, seed=5, out=folder, **options)


def test_a_study_holds_what_the_search_found(tmp_path: Path) -> None:
    found = kept(tmp_path / "study")
    again = read_interrupted(tmp_path / "study")
    assert again is not None
    assert same(found.trials, again.trials)
    assert found.path == tmp_path / "study"


def test_a_search_that_was_interrupted_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    class Enough(Exception):  # noqa: N818  it is none
        pass

    def stop(progress: Progress) -> None:
        if progress.evaluated >= 60:
            raise Enough

    with pytest.raises(Enough):
        kept(tmp_path, watch=stop)
    part = read_interrupted(tmp_path)
    assert part is not None
    assert 60 <= part.trials.evaluated < 120
    resumed = kept(tmp_path, resume=True)
    assert same(resumed.trials, search(FULL, trials=120, batch=30, seed=5).trials)
    assert resumed.computed == len(resumed.trials) - len(part.trials)


def test_more_trials_can_be_added_to_a_study(tmp_path: Path) -> None:
    first = kept(tmp_path)
    longer = resume_study(tmp_path, trials=200)
    assert longer.trials.evaluated == 200
    assert np.array_equal(longer.trials.rows[: len(first.trials)], first.trials.rows)
    again = resume_study(tmp_path)
    assert again.computed == 0
    assert same(again.trials, longer.trials)


def test_a_study_is_not_overwritten(tmp_path: Path) -> None:
    kept(tmp_path)
    with pytest.raises(SpecError, match="holds a study already"):
        kept(tmp_path)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"agent": "random"}, "agent = 'random': the study was begun with 'genetic'"),
        ({"objectives": ["mfu"]}, "objectives"),
        ({"stacks": ["network"]}, "begun with"),
        ({"constraints": ["mfu >= 0.1"]}, "constraints"),
    ],
)
def test_a_study_is_resumed_with_what_it_was_begun_with(changed: dict[str, Any], message: str, tmp_path: Path) -> None:
    kept(tmp_path)
    with pytest.raises(SpecError, match="was begun with") as caught:
        kept(tmp_path, resume=True, **changed)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "options", [{"trials": 0}, {"seed": -1}, {"workers": 0}, {"engine": "evnt"}, {"resume": True}, {"stacks": ["wrk"]}]
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(SpecError):
        search(FULL, **({"trials": 5} | options))


def test_a_setting_that_an_agent_does_not_have_is_refused() -> None:
    with pytest.raises(UnknownName, match=r"genetic\.populaton = 3: no such key; did you mean 'population'"):
        search(FULL, trials=5, settings={"populaton": 3})
    with pytest.raises(SpecError, match="must be of type int"):
        search(FULL, trials=5, settings={"population": "many"})


def test_a_set_without_a_file_can_be_searched_but_not_kept() -> None:
    space = load_space(SMALL)
    parts = ParameterSet("parts", space.base, space.parameters, {}, ())
    with pytest.raises(SpecError, match="load it with"):
        search(parts, trials=5)


def test_a_set_that_was_changed_after_it_was_loaded_is_refused() -> None:
    changed = replace(load_space(SMALL), constraints=("workload.tp <= 4",))
    with pytest.raises(SpecError, match="load it with"):
        search(changed, trials=5)


def test_a_space_is_loaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    original = space_files.read_space

    def noted(tree: Any, name: str, folder: Path) -> ParameterSet:
        read.append(name)
        return original(tree, name, folder)

    monkeypatch.setattr(space_files, "read_space", noted)
    search(FULL, trials=20, out=tmp_path / "study")
    assert len(read) == 1
    search(FULL, trials=30, out=tmp_path / "study", resume=True)
    assert len(read) == 2
    resume_study(tmp_path / "study", trials=40)
    assert len(read) == 3


def test_a_set_that_is_restricted_already_can_be_searched() -> None:
    space = load_space(FULL).restrict(["workload"])
    first, second = search(space, trials=30), search(FULL, trials=30, stacks=["workload"])
    assert np.array_equal(first.trials.rows, second.trials.rows)


def test_what_is_missing_is_found_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not installed
    with pytest.raises(SpecError, match=r"engine = 'ray': needs ray; install it with: pip install '\.\[ray\]'"):
        search(FULL, trials=5, address="local", out=tmp_path / "study")
    assert not (tmp_path / "study").exists()


def test_a_batch_of_expensive_evaluations_is_small() -> None:
    expensive = search(SMALL, agent="random", trials=3, engine="event")
    assert expensive.inputs.batch == 3
    options = Options(agent="random", trials=5000)
    assert make_inputs(load_space(SMALL), replace(options, engine="event")).batch == 32
    assert make_inputs(load_space(SMALL), options).batch > 1000


def test_the_best_of_several_objectives_is_on_the_front() -> None:
    """All designs on one network cost equally much: the fastest of them is the best."""
    found = search(FULL, trials=300, stacks=["workload"], objectives=["network_usd", "step_s"])
    assert found.best is not None
    assert [each["trial"] for each in found.front] == [found.best["trial"]]
    assert found.best["metrics"]["step_s"] == np.nanmin(found.trials.results.columns["step_s"])
