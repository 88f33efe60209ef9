"""The plateau: designs that are as good as the best, and which of them is taken."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cosmic.design import schema
from cosmic.search.mapping.design_completion import load_design
from cosmic.search.plateau import DEGRADED_RATE, find_plateau, mapping_complexity, worst_case_loss
from cosmic.search.problem import Problem, Results
from cosmic.search.search_loop import search
from cosmic.search.search_verdict import judge_search, proof_of
from cosmic.search.space.diagram import Indices
from cosmic.search.space.space_files import load_space
from cosmic.search.trials import Trials

PLAIN = {"tp": 2, "pp": 1, "cp": 1, "schedule": "1f1b", "recompute": "none", "tp_overlap": False, "ep_overlap": False}
MINE = load_design("llama3-8b@dgx-h100:16", {**PLAIN, "weight_sharding": "zero1", "micro_batch": 1})


@pytest.mark.parametrize(
    ("changes", "more"),
    [
        ({}, 0),
        ({"workload.tp_overlap": True}, 1),
        ({"workload.recompute": "full"}, 1),
        ({"workload.recompute": "selective", "workload.recompute_modules": ("mlp", "layernorm")}, 2),
        ({"workload.weight_sharding": "zero3"}, 1),
        ({"workload.pp": 2, "workload.dp": 4}, 1),
        ({"workload.pp": 2, "workload.dp": 4, "workload.schedule": "zero_bubble"}, 2),
        ({"workload.pp": 2, "workload.dp": 4, "workload.schedule": "interleaved", "workload.virtual_stages": 2}, 2),
        ({"workload.pp": 2, "workload.dp": 4, "workload.placement": ("tp", "cp", "pp", "dp")}, 2),
        ({"workload.cp": 2, "workload.dp": 4, "workload.cp_comm_type": "ulysses"}, 2),
        ({"workload.ep_overlap": True}, 0),  # without experts it does nothing
    ],
)
def test_each_axis_and_each_unusual_switch_counts_once(changes: dict[str, object], more: int) -> None:
    assert mapping_complexity(schema.assign_fields(MINE, changes)) - mapping_complexity(MINE) == more


def test_the_worst_case_is_with_the_slowest_part_that_matters() -> None:
    """A training step is bound by compute: with a tenth less of it, it takes nearly a ninth longer."""
    step = judge_search(search({"base": _base(), "parameters": {"workload.micro_batch": [1]}})).metrics
    assert step is not None
    assert 1.05 * step.step_s < worst_case_loss(MINE, "step_s") < step.step_s / DEGRADED_RATE


def _base(**workload: object) -> dict[str, object]:
    """Return a base whose memory has room for all designs of the space."""
    work = {**PLAIN, "weight_sharding": "zero1", **workload}
    return {"model": "llama3-8b", "system": "dgx-h100:16", "memory": {"capacity": "1 TiB"}, "workload": work}


SPACE = {
    "base": _base(),
    "parameters": {
        "workload.reduce_every": ["step", "microbatch"],
        "workload.tp_overlap": [False, True],
        "workload.micro_batch": [1, 2],
    },
}


def test_of_equal_designs_the_simplest_is_taken() -> None:
    """A switch of zero2 makes no difference to zero1, so every design has a twin; overlap is worth more than a tie."""
    found = search(SPACE, agent="exhaustive")
    assert (found.inputs.agent, found.stopped) == ("exhaustive", "exhausted")
    assert proof_of(found) == "proven best of 8 mappings"
    ground = find_plateau(found.problem, found.trials, within=0.5)
    assert ground is not None
    assert ground.count == 8
    assert not found.problem.space.point(found.trials.row(ground.place)).workload.tp_overlap
    assert ground.above > 0
    strict = find_plateau(found.problem, found.trials, within=0.0)
    assert strict is not None
    assert strict.above == 0.0
    assert strict.count >= 2


def test_a_design_that_is_worse_than_the_base_is_never_taken() -> None:
    """The simplest within half is slower than a base that overlaps: it would be called the best, and worse."""
    base = _base(tp_overlap=True)
    found = search({**SPACE, "base": base}, agent="exhaustive")
    ground = find_plateau(found.problem, found.trials, within=0.5)
    assert ground is not None
    assert ground.count == 8
    steps, base_s = found.trials.results.columns["step_s"], found.problem.base.columns["step_s"][0]
    assert steps[ground.place] <= base_s < np.nanmax(steps)
    assert found.problem.space.point(found.trials.row(ground.place)).workload.tp_overlap


def test_a_design_beside_the_best_is_not_called_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    found = search(SPACE, agent="exhaustive")
    ground = find_plateau(found.problem, found.trials, within=0.5)
    assert ground is not None
    monkeypatch.setattr(type(found), "plateau", ground)
    assert judge_search(found).sentence.startswith(f"{100 * ground.above:.1f} % from the proven best of 8 mappings; ")


def test_what_is_called_the_best_is_beaten_by_nothing_that_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the best of one layer, a design of the plateau that is worse is not called the best; the best is."""
    found = search(SPACE, agent="exhaustive")
    best = judge_search(found, {"workload": found})
    assert best.sentence.startswith("proven best of 8 mappings; ")
    assert all(gain.times is not None and gain.times >= 1 for gain in best.gains)
    ground = find_plateau(found.problem, found.trials, within=0.5)
    assert ground is not None
    monkeypatch.setattr(type(found), "plateau", ground)
    shown = judge_search(replace(found), {"workload": found})
    assert not shown.sentence.startswith("proven best")
    assert "but the best of workload alone is" in shown.sentence


def test_the_base_design_is_evaluated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated: list[int] = []
    evaluate = Problem.evaluate

    def counted(problem: Problem, rows: Indices) -> Results:
        evaluated.append(rows.shape[1])
        return evaluate(problem, rows)

    monkeypatch.setattr(Problem, "evaluate", counted)
    found = search(SPACE, agent="exhaustive")
    for _ in range(2):
        judge_search(found)
    assert evaluated.count(0) == 1  # the base alone has no parameters


def test_the_cheapest_comes_before_the_simplest() -> None:
    """At twice the bandwidth a step is hardly faster: half the network is taken, though nothing else differs."""
    space = {**SPACE, "parameters": {"network.dims.1.bandwidth": ["400 Gbps", "800 Gbps"]}}
    found = search(space, agent="exhaustive")
    ground = find_plateau(found.problem, found.trials, within=0.5)
    assert ground is not None
    best = found.trials.best(found.problem)
    assert best is not None
    prices = found.trials.results.columns["cost_usd"]
    assert prices[ground.place] < prices[best]
    assert ground.place != best


def test_designs_of_the_plateau_are_counted() -> None:
    found = search(SPACE, agent="exhaustive")
    steps = found.trials.results.columns["step_s"]
    for within in (0.0, 0.01, 0.1):
        ground = find_plateau(found.problem, found.trials, within)
        assert ground is not None
        assert ground.count == int((steps <= np.nanmin(steps) * (1 + within)).sum())
    assert ground is not None
    assert ground.error is not None
    assert ground.within_error == int((steps <= np.nanmin(steps) * (1 + ground.error)).sum())


def test_nothing_that_runs_has_no_plateau() -> None:
    space = load_space({**SPACE, "base": {**_base(), "memory": {"capacity": "1 GB"}}})
    found = search(space, agent="exhaustive")
    assert find_plateau(found.problem, found.trials) is None
    assert judge_search(found).plateau is None


def test_with_several_objectives_the_first_of_the_front_is_taken() -> None:
    found = search(SPACE, agent="exhaustive", objectives=["step_s", "memory_bytes"])
    ground = find_plateau(found.problem, found.trials, within=0.5)
    assert ground is not None
    assert ground.place == found.trials.best(found.problem)
    assert proof_of(found) == "proven front of 8 mappings"
    assert isinstance(found.trials, Trials)
