"""Studies of designs that serve, beside those of steps that earlier releases wrote."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cosmic.search.problem import METRICS, make_problem
from cosmic.search.search_loop import search
from cosmic.search.space.space_files import load_space
from cosmic.search.study import trial_storage
from cosmic.search.study.trial_storage import TrialShape
from cosmic.search.trials import Trials
from cosmic.simulate.metrics import OF_CLUSTERS, OF_REQUESTS, OF_RUNS, OF_SAMPLES, OF_STEPS

STEPS = {"base": "llama3-8b@dgx-h100:8", "parameters": {"micro_batch": [1, 2, 4]}}
SERVED = {
    "base": {
        "model": "llama3-8b",
        "system": "dgx-h100:8",
        "workload": {"tp": 2, "pp": 1, "dp": 4},
        "serving": {"load": {"isl": 500, "osl": 50, "concurrency": 8}},
    },
    "parameters": {"concurrency": [8, 16, 32], "engine": ["vllm", "trtllm"]},
}


def trials_of(tree: object) -> tuple[Trials, TrialShape]:
    problem = make_problem(load_space(tree))  # type: ignore[arg-type]
    rows = problem.space.listed(0, problem.space.valid)
    return Trials(rows.astype(np.uint8), problem.evaluate(rows)), TrialShape.for_problem(problem)


def metrics_in(content: bytes) -> int:
    return int(trial_storage.HEADER_STRUCT.unpack_from(content)[2])


def test_studies_of_steps_are_written_as_before() -> None:
    trials, shape = trials_of(STEPS)
    content = trial_storage.pack_piece(trials)
    assert metrics_in(content) == len((*OF_STEPS, *OF_CLUSTERS, *OF_RUNS)) == 22
    again = trial_storage.unpack_piece(content, len(trials), shape)
    for name in METRICS:
        np.testing.assert_array_equal(again.results.columns[name], trials.results.columns[name])
    assert all(np.isnan(again.results.columns[name]).all() for name in OF_REQUESTS)


def test_studies_of_requests_have_their_metrics() -> None:
    trials, shape = trials_of(SERVED)
    content = trial_storage.pack_piece(trials)
    assert metrics_in(content) == len(METRICS) - len(OF_SAMPLES)  # a model with tokens has none of these
    again = trial_storage.unpack_piece(content, len(trials), shape)
    for name in METRICS:
        np.testing.assert_array_equal(again.results.columns[name], trials.results.columns[name])
    assert not np.isnan(again.results.columns["ttft_p95_s"]).any()


def test_a_study_of_deployments_goes_on_and_repeats(tmp_path: Path) -> None:
    first = search(load_space(SERVED), agent="random", trials=3, out=tmp_path / "a")
    again = search(load_space(SERVED), agent="random", trials=3, out=tmp_path / "b")
    for name in METRICS:
        np.testing.assert_array_equal(first.trials.results.columns[name], again.trials.results.columns[name])
