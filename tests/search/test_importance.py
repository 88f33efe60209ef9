"""Shares of the variance: known ones, worked out by hand."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.search.agent import Flags, Floats
from cosmic.search.importance import measure_importance
from cosmic.search.problem import METRICS, Problem, Results, make_problem
from cosmic.search.search_loop import search
from cosmic.search.space.diagram import Indices
from cosmic.search.space.space_files import load_space
from cosmic.search.trials import Trials
from tests.commands import output, run

SPACE = load_space(
    {
        "base": "gpt3-125m@dgx-h100:8",
        "parameters": {
            "workload.micro_batch": [1, 2, 4, 8],
            "workload.global_batch": [64, 128, 256],
            "workload.weight_sharding": ["none", "zero1"],
            "workload.{dp,tp}": [[8, 1], [4, 2], [2, 4]],
        },
    }
)
PROBLEM = make_problem(SPACE)
GRID = np.stack(np.meshgrid(*(np.arange(size) for size in SPACE.sizes), indexing="ij"), axis=-1).reshape(-1, 4)


def trials(rows: Indices, values: Floats, runs: Flags | None = None) -> Trials:
    """Return trials whose step takes so many seconds, of which some do not run."""
    excess = np.zeros(len(rows)) if runs is None else np.where(runs, 0.0, 1.0)
    columns = {name: np.full(len(rows), np.nan) for name in METRICS} | {"step_s": values}
    return Trials(rows, Results(columns, excess, [""] * len(rows), np.ones(len(rows), dtype=bool)))


def shares(problem: Problem, made: Trials, kind: str = "alone") -> dict[str, float | None]:
    return {each.name: getattr(each, kind) for each in measure_importance(problem, made).factors}


def known(rows: Indices) -> Floats:
    """Return seconds whose logarithm is 2 a + b c, with a in 0..3, b in -1..1 and c in -1, 1.

    Its variance is 4 x 5/4 from a, and 2/3 x 1 from b and c together; none from b or c alone.
    """
    a, b, c = rows[:, 0], rows[:, 1] - 1, 2 * rows[:, 2] - 1
    return np.exp(2.0 * a + b * c)


def test_shares_that_are_known_by_hand() -> None:
    found = measure_importance(PROBLEM, trials(GRID, known(GRID)))
    n, between, within = 72, 72 * 5.0, 72 * 2 / 3
    by_chance = 3 * within / (n - 4)
    by_name = {each.name: each for each in found.factors}
    assert by_name["workload.micro_batch"].alone == pytest.approx((between - by_chance) / (between + within))
    assert [by_name[f"workload.{name}"].alone for name in ("global_batch", "weight_sharding", "{dp,tp}")] == [0, 0, 0]
    assert found.deviation == pytest.approx(np.sqrt(5 + 2 / 3))
    assert (found.objective, found.trials, found.logarithm) == ("step_s", 72, True)


def test_totals_count_what_parameters_do_together() -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is an extra")
    rows = np.concatenate([GRID] * 4)
    found = measure_importance(PROBLEM, trials(rows, known(rows)))
    totals = {each.name: each.total for each in found.factors}
    together = (2 / 3) / (5 + 2 / 3)
    assert totals["workload.micro_batch"] == pytest.approx(1 - together, abs=0.1)
    assert totals["workload.global_batch"] == pytest.approx(together, abs=0.04)
    assert totals["workload.weight_sharding"] == pytest.approx(together, abs=0.04)
    assert totals["workload.{dp,tp}"] == pytest.approx(0, abs=0.01)
    assert totals["workload.dp"] is None
    assert found.fit is not None
    assert found.fit > 0.9
    assert found.factors[0].name == "workload.micro_batch"


def test_the_fields_of_a_joint_parameter_have_shares_of_their_own() -> None:
    made = trials(GRID, np.exp(GRID[:, 3] == 0))  # only dp = 8, tp = 1 differs
    factors = measure_importance(PROBLEM, made).factors
    assert [each.name for each in factors[:3]] == ["workload.{dp,tp}", "workload.dp", "workload.tp"]
    assert [each.of for each in factors[:3]] == [None, "workload.{dp,tp}", "workload.{dp,tp}"]
    assert [each.alone for each in factors[:3]] == pytest.approx([1, 1, 1])


def test_what_cannot_run_does_not_count() -> None:
    values = known(GRID)
    runs = GRID[:, 1] > 0
    found = measure_importance(PROBLEM, trials(GRID, np.where(runs, values, np.nan), runs))
    assert found.trials == runs.sum()
    assert shares(PROBLEM, trials(GRID[runs], values[runs])) == {each.name: each.alone for each in found.factors}


def test_chance_explains_nothing() -> None:
    rng = np.random.default_rng(3)
    rows = SPACE.sample(400, rng)
    found = shares(PROBLEM, trials(rows, np.exp(rng.normal(size=400))))
    assert all(share is not None and share < 0.03 for share in found.values())


@pytest.mark.parametrize("value", [2.5, 0.0])
def test_where_all_trials_are_the_same_nothing_matters(value: float) -> None:
    found = measure_importance(PROBLEM, trials(GRID, np.full(len(GRID), value)))
    assert {each.alone for each in found.factors} == {0.0}
    assert found.deviation == 0


def test_values_of_few_trials_have_no_share() -> None:
    made = trials(GRID[::15], known(GRID[::15]))  # five trials
    assert shares(PROBLEM, made)["workload.micro_batch"] is None
    with pytest.raises(SpecError, match="only 2 trials can run and have it; shares need at least 3"):
        measure_importance(PROBLEM, made.part(slice(2)))
    with pytest.raises(SpecError, match="no such objective"):
        measure_importance(PROBLEM, made, "steps")
    with pytest.raises(SpecError, match="only 0 trials"):
        measure_importance(PROBLEM, made, "ttft_s")


def test_without_the_library_there_are_shares_but_no_totals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    search("cosmic-512-full-stack", trials=60, out=tmp_path / "s")
    for module in [*sys.modules, "sklearn.ensemble"]:
        if module.partition(".")[0] == "sklearn":
            monkeypatch.setitem(sys.modules, module, None)
    text = output(capsys, "study", "importance", str(tmp_path / "s"))
    assert "The total needs scikit-learn; install it with: pip install '.[search]'" in text
    assert "The agent 'genetic' chose the trials" in text
    found = json.loads(output(capsys, "study", "importance", str(tmp_path / "s"), "--json"))
    assert found["fit"] is None
    assert {each["total"] for each in found["factors"]} == {None}
    status, _, err = run(capsys, "study", "importance", str(tmp_path / "s"), "--objective", "step")
    assert (status, err.count("\n")) == (2, 1)
