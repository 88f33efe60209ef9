"""Agents that do as they like: what they propose is checked, and searches end whatever there is to find."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cosmic.base.errors import BackendError, SpecError
from cosmic.search.agent import agents
from cosmic.search.leaderboard import hold_tournament
from cosmic.search.search_inputs import Options
from cosmic.search.search_loop import search
from cosmic.search.search_verdict import judge_search
from cosmic.search.space.parameter_set import ParameterSet
from cosmic.search.space.space_files import load_space
from cosmic.search.study.study_comparison import course_of
from cosmic.simulate.metrics import BETTER
from tests.batches import check_all

BASE = "llama3-8b@dgx-h100:64"


def space(parameters: Any, constraints: Any = (), base: Any = BASE) -> ParameterSet:
    derived = {"dp": "npus // tp"} if "tp" in parameters else {}
    return load_space(
        {"base": base, "parameters": parameters, "constraints": list(constraints), "derived": derived, "name": "small"}
    )


SMALL = {"tp": [1, 2, 4, 8], "workload.global_batch": [64, 128]}


def proposing(monkeypatch: pytest.MonkeyPatch, answer: Callable[[int], Any]) -> str:
    class Wild:
        batch = 4

        def __init__(self, task: Any, rng: Any) -> None: ...

        def ask(self, n: int) -> Any:
            return answer(n)

        def tell(self, outcomes: Any) -> None: ...

    len(agents)  # loads them
    monkeypatch.setitem(agents._variants, "wild", Wild)
    return "wild"


@pytest.mark.parametrize(
    "answer",
    [
        lambda n: np.full((n, 2), -1),
        lambda n: np.full((n, 2), 4),
        lambda n: np.full((n, 3), 0),
        lambda n: np.zeros(n, dtype=int),
        lambda n: np.zeros((n, 2)),
        lambda n: np.full((n, 2), np.nan),
        lambda n: np.full((n, 2), True),
        lambda n: np.zeros((n + 1, 2), dtype=int),
        lambda n: [[0, 0], [0]],
        lambda n: [["a", 0]] * n,
        lambda n: sys.exit(7),
        lambda n: None,
        lambda n: 1 / 0,
    ],
)
def test_a_proposal_that_is_no_point_is_an_error_that_names_the_agent(
    monkeypatch: pytest.MonkeyPatch, answer: Callable[[int], Any]
) -> None:
    with pytest.raises(BackendError, match="agent wild: "):
        search(space(SMALL), agent=proposing(monkeypatch, answer), trials=5)


def test_a_list_of_rows_is_an_answer_and_what_an_agent_prints_is_no_result(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def talkative(n: int) -> list[list[int]]:
        sys.stdout.write("thinking")
        return [[0, 0], [1, 0]][:n]

    found = search(space(SMALL), agent=proposing(monkeypatch, talkative), trials=2)
    assert len(found.trials) >= 2
    assert capsys.readouterr().out == ""


def test_a_proposal_that_breaks_a_constraint_never_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = np.array([[tp, batch] for tp in range(4) for batch in range(2)])
    name = proposing(monkeypatch, lambda n: everything[:n])
    for constraint, valid in (("tp <= 2", {1, 2}), ("8 / (tp - 4) < 0", {1, 2}), ("8 / (tp - 4) > 0", {8})):
        found = search(space(SMALL, [constraint]), agent=name, trials=8, batch=8)
        refused = [place for place, reason in enumerate(found.trials.results.reasons) if reason == "constraints.0"]
        told = [found.trials.describe(found.problem, place)["point"]["workload.tp"] for place in range(8)]
        assert {told[place] for place in refused} == {1, 2, 4, 8} - valid
        assert not found.trials.results.feasible[refused].any()
        assert found.trials.results.counted.all()
        assert found.best is None or found.best["point"]["workload.tp"] in valid
        assert constraint in found.problem.explain(found.trials.rows[refused[0]])[0]


@pytest.mark.parametrize("agent", ["random", "genetic", "annealing", "ant_colony", "policy", "exhaustive"])
@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"tp": [1]},
        {"tp": [1, 2]},
        {"workload.micro_batch": [1, 2, 4, 8]},
        {"tp": [1, 2], "memory.capacity": ["1 GB", "2 GB"]},
        {"workload.cp": [3, 5, 7], "workload.global_batch": [64, 128]},
    ],
)
def test_every_search_of_a_small_space_ends(agent: str, parameters: Any) -> None:
    for trials in (1, 40):
        found = search(space(parameters), agent=agent, trials=trials)
        assert found.stopped in ("trials", "exhausted")
        assert judge_search(found).sentence


def test_a_search_for_one_trial_need_not_try_invalid_mappings_one_by_one() -> None:
    found = search("cosmic-1024-paper", agent="exhaustive", trials=1)
    assert found.trials.evaluated == 1
    assert found.stopped == "trials"


SERVED = {"model": "llama3-8b", "system": "dgx-h100:8"}
SPACES = [
    space(SMALL),
    space({"tp": [1, 2]}, base={**SERVED, "workload": {"task": "decode"}}),
    space({"tp": [1, 2]}, base={**SERVED, "workload": {"task": "prefill"}}),
    space({"workload.global_batch": [1, 2]}, base="llama3-8b@dgx-h100:1"),
]


@check_all("objective", BETTER, tests=3)
@check_all("place", range(len(SPACES)))
def test_every_metric_is_an_objective_or_refused_before_the_search(objective: str, place: int) -> None:
    try:
        found = search(SPACES[place], trials=2, objectives=[objective])
    except SpecError as error:
        assert "is unknown for every design" in str(error)
        return
    assert judge_search(found).sentence
    if found.best is not None:
        assert found.best["metrics"][objective] is not None
    assert course_of("", "", 0, found.problem, found.trials).evaluated
    both = [objective, "step_s" if objective != "step_s" else "mfu"]
    assert 0 <= search(SPACES[place], trials=2, objectives=both).trials.hypervolume(found.problem) <= 1
    board = hold_tournament(SPACES[place], ["random"], seeds=1, options=Options(trials=2, objectives=[objective]))
    assert all(entry.checked for standing in board.standings for entry in standing.entries)


@pytest.mark.parametrize(
    "wrong", [{"trials": 10**20}, {"seed": 10**40}, {"seed": -1}, {"batch": 10**20}, {"workers": 10**20}]
)
def test_numbers_that_no_search_can_have_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(SpecError):
        search(SPACES[0], **{"trials": 5, **wrong})  # type: ignore[arg-type]  # some of its options
    with pytest.raises(SpecError, match="at most"):
        search(SPACES[0], trials=5, settings={"population": 10**20})
