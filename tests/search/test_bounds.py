"""Bounds rule out what cannot be as good as the best, and nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cosmic.design.workload_layer import Workload
from cosmic.report.study_report import found_in_study
from cosmic.search.plateau import find_plateau
from cosmic.search.problem import FASTEST_SWITCHES, lower_bounds, make_loss_bound, make_problem
from cosmic.search.search_loop import search
from cosmic.search.search_verdict import judge_search
from cosmic.search.space.space_files import mapping_space
from cosmic.search.study.study import open_study

DESIGNS = [
    ("llama3-70b@dgx-h100:64", {}),
    ("mixtral-8x7b@dgx-h100:32", {"sequence": 4096}),
    pytest.param("deepseek-v3@gb200-nvl72:144", {}, marks=pytest.mark.long),
    ("gpt3-175b@cosmic-1024", {}),
    ("llama3-8b@tpu-v5p:64", {}),
    ("t5-11b@dgx-a100:32", {}),
    ("vit-huge@l40s:8", {}),
    ("llama3-8b@dgx-a100:16", {"execution": "eager"}),
    ("qwen3-30b-a3b@mi300x:16", {"precision": "fp8"}),
]


@pytest.mark.long
@pytest.mark.parametrize(("name", "settings"), DESIGNS)
def test_no_mapping_takes_less_than_its_bound(name: str, settings: dict[str, object]) -> None:
    problem = make_problem(mapping_space(name, settings))
    rows = problem.space.sample(24, np.random.default_rng(4))
    found = problem.evaluate(rows).columns["step_s"]
    bounds = lower_bounds(problem, rows)
    runs = np.isfinite(found)
    assert runs.any()
    assert (bounds[runs] <= found[runs] * (1 + 1e-9)).all()
    assert (bounds > 0).all()


def test_the_bound_is_the_mapping_that_neither_recomputes_nor_waits() -> None:
    problem = make_problem(mapping_space("llama3-8b@dgx-h100:16", {"global_batch": 512}))
    space = problem.space
    rows = space.sample(120, np.random.default_rng(0))
    fastest = {path for path in FASTEST_SWITCHES if any(path in each.paths for each in space.parameters)}
    assert fastest >= {"workload.recompute", "workload.tp_overlap"}
    own = [row for row in rows if _fastest(space.point(row).workload)]
    found = problem.evaluate(np.array(own))
    exact = found.feasible
    assert exact.any()
    assert lower_bounds(problem, np.array(own))[exact] == pytest.approx(found.columns["step_s"][exact], rel=1e-12)


def _fastest(workload: Workload) -> bool:
    return workload.recompute == "none" and (workload.tp_overlap or workload.tp == 1)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "settings", "framework"),
    [
        ("llama3-8b@dgx-h100:8", {"micro_batch": 1, "cp": 1, "weight_sharding": "zero1"}, "megatron"),
        ("mixtral-8x7b@dgx-h200:16", {"sequence": 4096, "micro_batch": 1, "cp": 1, "pp": 1}, "megatron"),
        ("llama3-70b@dgx-h200:32", {"micro_batch": 1, "cp": 1}, "torchtitan"),
    ],
)
def test_what_bounds_rule_out_does_not_matter(name: str, settings: dict[str, object], framework: str) -> None:
    """The best, and how many are as good, are those of going through everything; most was not evaluated."""
    space = mapping_space(name, settings, framework=framework)
    bounded, listed = search(space), search(space, agent="exhaustive", trials=space.valid)
    assert (bounded.inputs.agent, bounded.stopped, listed.stopped) == ("bounded", "exhausted", "exhausted")
    assert len(bounded.trials) < len(listed.trials) == space.valid
    one, other = (find_plateau(each.problem, each.trials) for each in (bounded, listed))
    assert one is not None
    assert other is not None
    assert (one.count, one.above) == (other.count, other.above)
    assert space.labels(bounded.trials.row(one.place)) == space.labels(listed.trials.row(other.place))


@pytest.mark.long
def test_a_proof_is_read_back_with_its_study(tmp_path: Path) -> None:
    space = mapping_space("llama3-8b@dgx-h100:8", {"micro_batch": 1, "cp": 1, "weight_sharding": "zero1"})
    found = search(space, out=tmp_path / "study")
    assert len(found.trials) < space.valid
    again = found_in_study(open_study(tmp_path / "study"))
    assert (found.stopped, again.stopped) == ("exhausted", "exhausted")
    assert judge_search(again).sentence == judge_search(found).sentence
    assert judge_search(again).proof == f"proven best of {space.valid:,} mappings"
    assert judge_search(again).caveats == judge_search(found).caveats == ()


def test_other_objectives_have_no_bound() -> None:
    space = mapping_space("llama3-8b@dgx-h100:8", {"micro_batch": 1})
    assert make_loss_bound(make_problem(space, ["memory_bytes"])) is None
    assert make_loss_bound(make_problem(space, ["step_s", "memory_bytes"])) is None
    assert make_loss_bound(make_problem(space, ["tokens_per_s"])) is not None
    assert make_loss_bound(make_problem(mapping_space("llama3-8b@dgx-h100:8", {"task": "decode"}))) is None


def test_bounded_searches_are_the_same_with_workers() -> None:
    space = mapping_space("llama3-8b@dgx-h100:8", {"micro_batch": 1}, framework="deepspeed")
    one, two = search(space), search(space, workers=2)
    assert np.array_equal(one.trials.points, two.trials.points)
    assert np.array_equal(one.trials.results.columns["step_s"], two.trials.results.columns["step_s"], equal_nan=True)
