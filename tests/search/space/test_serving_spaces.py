"""Parameter sets of deployments, and of training and serving together: counted, searched, certified."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.search.agent import agents
from cosmic.search.certify.certifying import certify
from cosmic.search.problem import make_problem
from cosmic.search.search_loop import search
from cosmic.search.space.space_files import load_space, mapping_space

SERVING, MIXED = "llama3-70b-serving-64-h100", "llama3-8b-train-and-serve-64-h100"
SMALL: dict[str, Any] = {
    "base": {
        "model": "llama3-8b",
        "system": "dgx-h100:8",
        "workload": {"tp": 1, "pp": 1, "dp": 8},
        "serving": {
            "load": {"isl": 1000, "osl": 100, "concurrency": 32, "ttft_slo": "1 s"},
            "prefill": {"replicas": 0},
        },
    },
    "parameters": {
        "tp": [1, 2, 4],
        "engine": ["vllm", "trtllm"],
        "max_num_batched_tokens": [2048, 8192],
        "prefill.replicas": [0, 1, 2, 4],
        "network.dims.0.bandwidth": ["225 GB/s", "450 GB/s"],
    },
    "derived": {"dp": "(npus - prefill.replicas * prefill.tp) // tp"},
    "constraints": ["dp * tp + prefill.replicas * prefill.tp == npus", "ttft_p95_s <= 5 s"],
    "objective": "tokens_per_s_per_npu",
}


def test_deployments_are_counted_by_hand() -> None:
    space = load_space(SERVING)
    # tp 2 and 4 go with 7 pools of tp 4 and with 5 of tp 8 (none, and all 64, are left out); tp 8 with 5 and 5
    meshes = 2 * (7 + 5) + (5 + 5)
    assert space.raw == 3 * 7 * 2 * 3 * 3 * 2 * 2
    assert space.valid == meshes * 3 * 3 * 2 * 2 == 1224
    assert load_space(MIXED).valid == 3 * 3 * 2 * 2 * 2
    # replicas 0, 2 and 4 leave 8, 6 and 4, which tp 1 and 2 divide, and 4 twice; one leaves 7, for tp 1 alone
    assert load_space(SMALL).valid == (4 + 3 + 2) * 2 * 2 * 2


def test_the_layers_of_a_deployment_are_in_one_set() -> None:
    space = load_space(SERVING)
    assert space.stacks == ("workload", "network", "compute", "serving")
    rows = space.sample(50, np.random.default_rng(0))
    for row in rows[:5]:
        point = space.point(row)
        assert point.serving is not None
        assert point.serving.prefill is not None
        assert point.workload.ranks + point.serving.prefill.npus == 64


@pytest.mark.parametrize("agent", [name for name in agents if name not in ("surrogate", "bayesian", "tpe", "cmaes")])
def test_every_agent_searches_deployments(agent: str, tmp_path: Any) -> None:
    found = search(load_space(SMALL), agent=agent, trials=12, out=tmp_path / agent)
    assert found.trials.results.feasible.any()


def test_limits_and_objectives_are_those_of_requests() -> None:
    problem = make_problem(load_space(SMALL), ["goodput_per_s", "tpot_p95_s"], ["ttft_p95_s <= 1 us"])
    rows = problem.space.sample(20, np.random.default_rng(0))
    results = problem.evaluate(rows)
    assert not results.feasible.any()
    assert all("ttft_p95_s <= 1 us" in text for text in results.reasons)
    free = make_problem(load_space(SMALL), ["goodput_per_s"]).evaluate(rows)
    assert free.feasible.any()
    assert (free.columns["goodput_per_s"][free.feasible] > 0).all()


def test_metrics_of_requests_are_refused_where_nobody_serves() -> None:
    plain = {"base": "llama3-8b@dgx-h100:8", "parameters": {"micro_batch": [1, 2]}}
    with pytest.raises(SpecError, match="it is a metric of serving a load, and the task is training"):
        make_problem(load_space(plain), ["ttft_p95_s"])
    base = {**SMALL["base"], "serving": {"load": {"isl": 10, "osl": 10, "rate": 1}, "prefill": {"replicas": 0}}}
    with pytest.raises(SpecError, match="no request has a limit"):
        make_problem(load_space({**SMALL, "base": base}), ["goodput_per_s"])


def test_a_design_that_serves_opens_its_mapping() -> None:
    load = {"isl": 1000, "osl": 100, "concurrency": 32}
    space = mapping_space("llama3-8b@dgx-h100:8", load, stacks=["serving"])
    assert space.objective == "tokens_per_s"
    names = {each.name for each in space.parameters}
    assert {"workload.tp", "serving.engine", "serving.max_num_batched_tokens"} <= names
    assert make_problem(space).evaluate(space.listed(0, 10)).feasible.any()
    pools = mapping_space("llama3-8b@dgx-h100:8", {**load, "prefill.replicas": 2, "prefill.tp": 1}, stacks=["serving"])
    rows = pools.sample(20, np.random.default_rng(0))
    assert not any("pools" in text for text in make_problem(pools).evaluate(rows).reasons)
    with pytest.raises(SpecError, match="has no serving section"):
        mapping_space("llama3-8b@dgx-h100:8", stacks=["serving"])


def test_training_and_serving_share_a_machine() -> None:
    space = load_space(MIXED)
    chat, training = space.workloads
    assert chat.base.serving is not None
    assert training.base.serving is None
    assert training.base.workload.task == "training"
    problem = make_problem(space)
    parts, results = problem.evaluate_shares(space.listed(0, space.valid))
    assert results.feasible.any()
    # what training states of its mapping is its own, whatever is searched: its step varies with the machine alone
    assert len(set(parts[1].columns["step_s"].tolist())) == 2 * 2 * 2
    rounds = 2000 * parts[0].columns["step_s"] + parts[1].columns["step_s"]
    runs = results.feasible
    assert results.columns["step_s"][runs] == pytest.approx(rounds[runs])
    assert results.columns["ttft_p95_s"][runs] == pytest.approx(parts[0].columns["ttft_p95_s"][runs])
    assert results.columns["tokens_per_s_per_npu"][runs] == pytest.approx(
        parts[0].columns["tokens_per_s_per_npu"][runs]
    )


def test_a_base_that_trains_takes_a_workload_that_serves() -> None:
    base = {"model": "llama3-8b", "system": "dgx-h100:8", "workload": {"sequence": 4096, "global_batch": 64}}
    chat = {"isl": 1000, "osl": 100, "concurrency": 32, "tp": 2, "pp": 1, "dp": 4}
    tree = {"base": base, "workloads": {"train": {}, "chat": chat}, "parameters": {"collective.chunks": [4, 16]}}
    space = load_space(tree)
    assert space.workloads[1].base.serving is not None
    assert (space.workloads[1].base.workload.tp, space.workloads[1].base.workload.task) == (2, "decode")
    assert make_problem(space, ["tpot_p95_s"]).evaluate(space.listed(0, 2)).feasible.all()


def test_certificates_of_deployments_enumerate() -> None:
    found = certify(load_space(SMALL))
    assert (found.method, found.proven) == ("enumerated", True)
    assert "under a load" in found.why
    many = {name: {"from": 1, "to": 400, "step": 1} for name in ("isl", "osl", "concurrency")}
    huge = {**SMALL, "parameters": {**SMALL["parameters"], **many}}
    with pytest.raises(SpecError, match="too many to go through, and cannot be bounded"):
        certify(load_space(huge))
