"""The problem: results of points, with one workload or several, in closed form or simulated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cosmic.base.errors import SpecError, UnknownName
from cosmic.evaluation import evaluate
from cosmic.search.problem import METRICS, Results, design_of_row, make_problem
from cosmic.search.space.parameter_set import ParameterSet
from cosmic.search.space.space_files import load_space
from cosmic.simulate.metrics import Infeasible, Metrics

SMALL: dict[str, Any] = {
    "base": {
        "model": "gpt3-125m",
        "system": "dgx-h100:8",
        "workload": {"sequence": 1024, "global_batch": 64, "dp": 8, "tp": 1, "cp": 1, "pp": 1},
    },
    "parameters": {"workload.{dp,tp,pp}": {"split": "npus"}, "workload.weight_sharding": ["none", "zero3"]},
}


def small(**changes: Any) -> ParameterSet:
    return load_space(SMALL | changes)


def every(space: ParameterSet) -> np.ndarray[Any, np.dtype[np.intp]]:
    return np.array(list(space.enumerate()))


@pytest.mark.long
def test_a_batch_is_worth_what_its_points_are_worth_alone() -> None:
    space = load_space("cosmic-512-full-stack")
    rows = space.sample(40, np.random.default_rng(0))
    results = make_problem(space, ["step_s"]).evaluate(rows)
    assert 0 < results.feasible.sum() < 40
    for place, row in enumerate(rows):
        outcome = evaluate(space.point(row))
        assert results.feasible[place] == isinstance(outcome, Metrics)
        if isinstance(outcome, Metrics):
            for name in METRICS:
                alone = getattr(outcome, name)
                assert results.columns[name][place] == pytest.approx(np.nan if alone is None else alone, nan_ok=True)


def test_a_point_that_cannot_run_has_reasons_and_no_metrics() -> None:
    space = load_space("cosmic-1024-full-stack")
    rows = space.sample(200, np.random.default_rng(1))
    problem = make_problem(space)
    results = problem.evaluate(rows)
    for place in np.flatnonzero(~results.feasible).tolist():
        assert results.reasons[place]
        assert all(np.isnan(results.columns[name][place]) for name in METRICS)
    assert all(results.reasons[place] == "" for place in np.flatnonzero(results.feasible).tolist())
    invalid = next(place for place, reason in enumerate(results.reasons) if reason == "heads")
    assert not results.counted[invalid]
    assert "heads: choose a divisor, or set uneven_tp to pad" in problem.explain(rows[invalid])[0]
    hungry = next(place for place, reason in enumerate(results.reasons) if reason == "memory")
    assert results.counted[hungry]
    assert 0 < results.excess[hungry] < np.inf
    assert "GiB per NPU" in problem.explain(rows[hungry])[0]


def test_a_limit_makes_infeasible_what_is_beyond_it() -> None:
    space = small()
    free = make_problem(space, ["step_s"]).evaluate(every(space))
    bound = float(np.nanmedian(free.columns["memory_bytes"]))
    problem = make_problem(space, ["step_s"], [f"memory_bytes <= {bound}"])
    held = problem.evaluate(every(space))
    assert 0 < held.feasible.sum() < free.feasible.sum()
    assert np.nanmax(held.columns["memory_bytes"]) <= bound
    beyond = int(np.flatnonzero(free.feasible & ~held.feasible)[0])
    assert held.reasons[beyond] == f"memory_bytes <= {bound}"
    assert held.counted[beyond]
    assert problem.explain(every(space)[beyond]) == (f"exceeds the limit memory_bytes <= {bound}",)


def test_limits_of_a_file_are_those_of_the_problem() -> None:
    space = small(constraints=["memory_bytes <= 2 GB", "tp <= 4"])
    assert space.limits == ("memory_bytes <= 2 GB",)
    assert space.constraints == ("tp <= 4",)
    assert [each.text for each in make_problem(space, (), ["mfu >= 0.1"]).limits] == [
        "memory_bytes <= 2 GB",
        "mfu >= 0.1",
    ]


def test_a_mix_adds_up_what_runs_as_often_as_its_weight_says() -> None:
    mix = {
        "prefill": {"workload.task": "prefill"},
        "decode": {"weight": 200, "workload.task": "decode"},
    }
    space = small(workloads=mix)
    rows = every(space)
    whole = make_problem(space, ["step_s"]).evaluate(rows)
    parts = []
    for share in space.workloads:
        tree = SMALL["base"] | {"workload": SMALL["base"]["workload"] | {"task": share.base.workload.task}}
        parts.append(make_problem(small(base=tree), ["step_s"]).evaluate(rows))
    prefill, decode = (part.columns for part in parts)
    both = parts[0].feasible & parts[1].feasible
    assert both.any()
    assert (whole.feasible == both).all()
    seconds = prefill["step_s"] + 200 * decode["step_s"]
    tokens = prefill["tokens_per_s"] * prefill["step_s"] + 200 * decode["tokens_per_s"] * decode["step_s"]
    for name, wanted in {
        "step_s": seconds,
        "tokens_per_s": tokens / seconds,
        "memory_bytes": np.maximum(prefill["memory_bytes"], decode["memory_bytes"]),
        "ttft_s": prefill["step_s"],
        "tpot_s": decode["step_s"],
        "cost_usd": prefill["cost_usd"],
        "energy_j": prefill["energy_j"] + 200 * decode["energy_j"],
        "mfu": (prefill["mfu"] * prefill["step_s"] + 200 * decode["mfu"] * decode["step_s"]) / seconds,
        "network_usd": prefill["network_usd"],
    }.items():
        assert whole.columns[name][both] == pytest.approx(wanted[both]), name


def test_a_mix_names_the_workload_that_does_not_run() -> None:
    space = small(workloads={"big": {"model": "gpt3-175b"}, "little": {}})
    results = make_problem(space).evaluate(every(space))
    assert not results.feasible.any()
    assert any("big: memory" in reason for reason in results.reasons)
    assert not any("little: memory" in reason for reason in results.reasons)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"a": {"weight": 0}}, "workloads.a.weight = 0: must be a number above 0"),
        ({"a": {"weight": True}}, "must be a number above 0"),
        ({"a": 3}, "workloads.a = 3: must map paths to values"),
        ([1], "must map names to what each changes"),
        ({"a": {"workload.tsk": "decode"}}, "workloads.a.workload.tsk"),
    ],
)
def test_a_mix_that_makes_no_sense_is_refused(given: Any, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        small(workloads=given)
    assert message in str(caught.value)


def test_the_event_engine_simulates_what_can_run() -> None:
    space = small()
    rows = every(space)[:6]
    closed = make_problem(space, ["step_s"]).evaluate(rows)
    simulated = make_problem(space, ["step_s"], engine="event").evaluate(rows)
    assert (simulated.feasible == closed.feasible).all()
    for place in np.flatnonzero(closed.feasible)[:2]:
        outcome = evaluate(space.point(rows[place]), "event")
        assert not isinstance(outcome, Infeasible)
        assert simulated.columns["step_s"][place] == pytest.approx(outcome.step_s)
    assert not np.array_equal(simulated.columns["step_s"], closed.columns["step_s"], equal_nan=True)


def test_results_can_be_taken_apart_and_joined() -> None:
    space = load_space("cosmic-512-full-stack")
    results = make_problem(space).evaluate(space.sample(30, np.random.default_rng(2)))
    joined = Results.join([results.select(np.arange(0, 11)), results.select(np.arange(11, 30))])
    assert joined.reasons == results.reasons
    assert np.array_equal(joined.excess, results.excess)
    assert np.array_equal(joined.columns["mfu"], results.columns["mfu"], equal_nan=True)


def test_the_base_is_what_evaluation_says_of_it() -> None:
    space = load_space("cosmic-1024-full-stack")
    outcome = evaluate(space.base)
    assert isinstance(outcome, Metrics)
    assert make_problem(space).base.columns["step_s"][0] == pytest.approx(outcome.step_s)


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(UnknownName, match="did you mean 'event'"):
        make_problem(small(), engine="evnt")


# ---- unknown metrics


def priced(*accelerators: str, **changes: Any) -> ParameterSet:
    """Return a set of accelerators for a small model."""
    base = {"model": "gpt3-125m", "system": "dgx-h100:8", "compute": accelerators[0]}
    return load_space({"base": base, "parameters": {"compute.accelerator": list(accelerators)}, **changes})


def test_a_metric_that_no_design_has_is_no_objective_and_no_limit() -> None:
    unpriced = priced("tpu-v4", "tpu-v5p")
    for objective in ("cost_usd", "cost_usd_per_token"):
        with pytest.raises(SpecError, match=f"objective = '{objective}': is unknown for every design: no price"):
            make_problem(unpriced, [objective])
    with pytest.raises(SpecError, match="cost_usd is unknown for every design: no price is known for tpu-v4"):
        make_problem(unpriced, ["step_s"], ["cost_usd <= 1e6"])
    assert make_problem(unpriced, ["energy_j"])  # tpu-v4 has a power
    assert make_problem(unpriced, ["network_usd"])


def test_a_design_whose_objective_is_unknown_is_no_winner() -> None:
    space = priced("tpu-v5p", "h100-sxm-80gb")
    problem = make_problem(space, ["cost_usd"])
    found = problem.evaluate(every(space))
    assert found.feasible.tolist() == [False, True]
    assert list(found.reasons) == ["cost_usd is unknown", ""]
    assert found.counted.tolist() == [True, True]
    assert problem.explain(every(space)[0]) == ("cost_usd is unknown",)
    assert not problem.base.feasible.any()  # the base is a TPU
    by_time = make_problem(space, ["step_s"]).evaluate(every(space))
    assert by_time.feasible.tolist() == [True, True]
    assert np.isnan(by_time.columns["cost_usd"]).tolist() == [True, False]


def test_a_workload_without_any_searched_field_is_the_same_in_all_points() -> None:
    load = {"isl": 1000, "osl": 100, "concurrency": 16}
    space = load_space(
        {
            "name": "mixed",
            "base": {
                "model": "llama3-8b",
                "system": "dgx-h100:8",
                "workload": {"tp": 2, "dp": 4, "pp": 1},
                "serving": {"load": load, "max_num_batched_tokens": 8192},
            },
            "workloads": {
                "train": {"serving": None, "task": "training", "sequence": 2048, "global_batch": 8},
                "chat": {},
            },
            "parameters": {"serving.max_num_batched_tokens": [512, 8192]},
        }
    )
    problem = make_problem(space, ["tokens_per_s"])
    parts, found = problem.evaluate_shares(every(space))
    assert found.feasible.all()
    assert parts[0].columns["step_s"].tolist() == [parts[0].columns["step_s"][0]] * 2
    assert parts[1].columns["ttft_s"][0] != parts[1].columns["ttft_s"][1]
    training = evaluate(design_of_row(space, problem.shares[0], every(space)[0]))
    assert isinstance(training, Metrics)
    assert training.step_s == pytest.approx(parts[0].columns["step_s"][0])
    assert training.ttft_s is None
