"""What is proven is what going through every design gives."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import cosmic
from cosmic.base.errors import SpecError
from cosmic.search.certify import branch_and_bound
from cosmic.search.certify.certificate_checker import check_certificate
from cosmic.search.certify.certifying import Certified, certify, loss_threshold
from cosmic.search.objectives import pareto_front
from cosmic.search.problem import make_problem
from cosmic.search.space.parameter_set import ParameterSet
from cosmic.simulate.metrics import OF_STEPS
from tests.leaves import LEAVES
from tests.search.certify.spaces import all_losses, restricted, small, with_parameters

FULL = ("cosmic-512-full-stack", "cosmic-1024-full-stack", "cosmic-2048-full-stack")
NEVER_KNOWN = ("ttft_s", "tpot_s", "cost_usd", "cost_usd_per_token", "energy_j")
OBJECTIVES = [name for name in OF_STEPS if name not in NEVER_KNOWN]


def agree(space: ParameterSet, objectives: list[str], limits: tuple[str, ...] = (), share: float = 0.05) -> Certified:
    """Return what is proven, after comparing it with every design."""
    problem = make_problem(space, objectives, limits)
    _, losses = all_losses(problem)
    able = losses[np.isfinite(losses).all(axis=1)]
    one = len(objectives) == 1
    found = certify(space, objectives, limits, within=share if one else None)
    assert found.proven
    assert found.feasible == bool(len(able))
    if not len(able):
        return found
    if one:
        assert found.losses[0, 0] == pytest.approx(able.min(), rel=1e-9)
        assert found.within is not None
        assert found.within[1] == np.count_nonzero(
            able[:, 0] <= loss_threshold(problem, float(found.losses[0, 0]), share)
        )
    else:
        best = np.unique(able[pareto_front(able)], axis=0)
        for ours, theirs in ((found.losses, best), (best, found.losses)):
            assert all((np.abs(ours - each) <= 1e-9 * each).all(axis=1).any() for each in theirs)
    return found


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_optimum_and_the_count_are_those_of_all_designs(objective: str) -> None:
    assert agree(small(), [objective], share=0.3).method == "bounded"


def test_the_front_is_that_of_all_designs() -> None:
    assert agree(small(), ["step_s", "network_usd"]).method == "bounded"
    assert agree(small(), ["step_s", "network_usd", "perf_per_bandwidth"]).method == "bounded"


@pytest.mark.parametrize("seed", range(6))
def test_random_restrictions_agree_with_all_designs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    space = restricted(cosmic.load_space(FULL[seed % 3]), rng, most=8_000)
    chosen = [["perf_per_bandwidth"], ["step_s"], ["step_s", "network_usd"]][seed % 3]
    assert agree(space, chosen).method == "bounded"


@pytest.mark.parametrize(
    "limit", ["network_usd <= 2e6", "step_s <= 45", "step_s >= 40", "mfu >= 0.4", "mfu <= 0.4", "network_usd >= 4e6"]
)
def test_limits_on_metrics_hold(limit: str) -> None:
    agree(small(), ["perf_per_bandwidth"], (limit,))


def test_latency_can_be_a_range() -> None:
    space = with_parameters(network__dims__3__latency=["500 ns", "1700 ns", "5 us"])
    found = agree(space, ["step_s"])
    assert found.method == "bounded"
    assert {each.paths for each in branch_and_bound.BoxEvaluator(found.problem).division.ranges} >= {
        ("network.dims.3.latency",)
    }


@pytest.mark.long
def test_themis_is_proven_or_gone_through() -> None:
    agree(with_parameters(collective__multi_dim=["blueconnect", "themis"]), ["step_s"])


def test_other_sets_are_gone_through() -> None:
    space = cosmic.load_space(
        {
            "base": "llama3-8b@dgx-h100:16",
            "parameters": {
                "workload.tp": [1, 2, 4],
                "workload.micro_batch": [1, 2],
                "workload.recompute": ["none", "full"],
            },
            "derived": {"workload.dp": "npus // (tp * pp)"},
        }
    )
    found = agree(space, ["step_s"])
    assert (found.method, bool(found.why), found.gap) == ("enumerated", True, 0.0)


def test_several_workloads_are_gone_through() -> None:
    space = small(workloads={"short": {"weight": 2}, "other": {"workload.sequence": 1024}})
    assert "several workloads" in agree(space, ["step_s"]).why


def test_a_large_set_that_cannot_be_bounded_is_refused_with_the_reason() -> None:
    many = {"from": "50 GB/s", "to": "500 GB/s", "step": "5 GB/s"}
    tied = small(
        parameters={**small().source["parameters"], **{f"network.dims.{place}.bandwidth": many for place in range(4)}},  # type: ignore[index]
        constraints=["network.dims.0.bandwidth + network.dims.1.bandwidth + network.dims.2.bandwidth >= 100 GB/s"],
    )
    with pytest.raises(SpecError, match="too many to go through, and cannot be bounded"):
        certify(tied)


def test_any_number_of_workers_gives_the_same_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branch_and_bound, "BOXES_PER_TASK", 300)
    alone, two = (certify(small(), within=0.1, workers=workers) for workers in (1, 2))
    assert json.dumps(alone.certificate) == json.dumps(two.certificate)


def test_nothing_that_runs_is_proven_too() -> None:
    found = certify(small(), constraints=["step_s <= 1 s"])
    assert (found.feasible, found.proven, found.gap) == (False, True, None)


def test_a_gap_is_left_where_time_runs_out() -> None:
    found = certify(small(), limit_s=1e-6)
    assert not found.proven
    assert found.gap is not None
    assert 0 < found.gap < 1


def test_a_gap_that_is_allowed_saves_work() -> None:
    exact, loose = (certify(small(), gap=gap) for gap in (0.0, 0.2))
    assert loose.proven
    assert loose.judged < exact.judged
    assert loose.losses[0, 0] * (1 - 0.2) <= exact.losses[0, 0]
    assert loose.gap is not None
    assert loose.gap <= 0.2


@pytest.mark.parametrize(
    ("options", "where"),
    [({"gap": 1.0}, "gap"), ({"within": -0.1}, "within"), ({"limit_s": 0.0}, "limit"), ({"workers": 0}, "workers")],
)
def test_what_makes_no_sense_is_refused(options: dict[str, float], where: str) -> None:
    with pytest.raises(SpecError, match=where):
        certify(small(), **options)  # type: ignore[arg-type]


def test_a_count_is_asked_of_one_objective() -> None:
    with pytest.raises(SpecError, match="one objective"):
        certify(small(), ["step_s", "network_usd"], within=0.1)


@pytest.mark.long
@pytest.mark.usefixtures("leaves")
def test_networks_in_tiers_are_bounded_too() -> None:
    """8 NPUs in the outermost dimension: all below one leaf, or two on each of four."""
    tiers: dict[str, Any] = {
        "network__dims__3__fabric__build": ["by_bandwidth", LEAVES],
        "network__dims__3__fabric__radix": [4, 64],
        "network__dims__3__oversubscription": [1.0, 8.0],
        "collective__chunks": [4],
    }
    found = agree(with_parameters(**tiers), ["step_s"])
    assert found.method == "bounded"
    assert check_certificate(json.loads(json.dumps(found.certificate)))
