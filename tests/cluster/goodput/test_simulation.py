"""Runs simulated interruption by interruption agree with the closed form where its assumptions hold."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.cluster.goodput import goodput_from_terms
from cosmic.cluster.interruption_terms import InterruptionTerms, run_fields, run_terms
from cosmic.cluster.run_simulation import RunChance, interrupt_run, simulate_runs
from cosmic.design.run_layer import Run

DAY = 86400.0


def terms_of(run: Run, npus: int = 16_384, dp: int = 64, state_bytes: float = 3e8) -> InterruptionTerms:
    found = run_terms(run_fields(run), npus, dp, state_bytes)
    assert found is not None
    return found


def expected(given: InterruptionTerms) -> float:
    return float(goodput_from_terms(given).effective_share)


@pytest.mark.parametrize("checkpoint", ["blocking", "asynchronous", "in_memory"])
@pytest.mark.parametrize("recovery", ["restart", "replica", "elastic"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_runs_have_the_goodput_of_the_closed_form(checkpoint: Any, recovery: Any, seed: int) -> None:
    rng = np.random.default_rng([seed, len(checkpoint), len(recovery)])
    npus, dp, mtbf_s = int(2 ** rng.uniform(12, 20)), int(2 ** rng.integers(3, 8)), float(10 ** rng.uniform(2.3, 4.5))
    run = Run(
        npu_mtbf_s=mtbf_s * npus,
        checkpoint=checkpoint,
        recovery=recovery,
        detection_s=rng.uniform(0, 0.3) * mtbf_s,
        restart_s=rng.uniform(0, 1) * mtbf_s,
        reconfigure_s=rng.uniform(0, 0.3) * mtbf_s,
        checkpoint_interval_s=[None, 0.3 * mtbf_s][seed % 2],
        remote_share=float(rng.choice([0.0, 0.1])),
        remote_interval_s=2 * mtbf_s,
        repair_s=[None, 3 * mtbf_s][seed % 2],
        spare_npus=int(rng.choice([32, 80])),
        slow_node_share=1e-4,
        slow_node_factor=1.2,
    )
    given = terms_of(run, npus, dp, rng.uniform(0, 0.05) * mtbf_s * 122e6)
    share = expected(given)
    assert 0.03 < share < 0.97
    found = simulate_runs(given, 40_000 * mtbf_s * share, runs=4, seed=seed)
    assert found.effective_share.mean() == pytest.approx(share, rel=0.02)


def test_a_course_by_hand() -> None:
    # Interruptions after 100, 150 and 400 s, the run ends at 1,000 s; 10 s to notice, 20 s to restart: 30 s are lost
    # after each but the first part.
    run = Run(npu_mtbf_s=1e6, detection_s=10.0, restart_s=20.0, checkpoint="none")
    made = interrupt_run(terms_of(run), np.array([100.0, 50.0, 250.0, 600.0]), np.random.default_rng(0), 1.0)
    assert made.ends_s.tolist() == [100, 150, 400, 1000]
    assert made.productive_s.tolist() == [100, 20, 220, 570]
    assert made.state_lost.tolist() == [False, True, True, True]


def test_an_interruption_during_recovery_makes_it_begin_again() -> None:
    run = Run(npu_mtbf_s=1e6, detection_s=10.0, restart_s=20.0, checkpoint="none")
    made = interrupt_run(terms_of(run), np.array([100.0, 25.0, 100.0]), np.random.default_rng(0), 1.0)
    assert made.productive_s.tolist() == [100, 0, 70]


def test_a_replica_that_restarts_is_one_of_many() -> None:
    # All stall for 10 + 5 s; one of 64 is missing for 15 s more.
    run = Run(
        npu_mtbf_s=1e6, detection_s=10.0, restart_s=20.0, reconfigure_s=5.0, checkpoint="none", recovery="replica"
    )
    given = terms_of(run, state_bytes=0.0)
    made = interrupt_run(given, np.array([100.0, 200.0]), np.random.default_rng(0), 1.0)
    assert made.productive_s.tolist() == pytest.approx([100, 185 - 15 / 64])
    assert not made.state_lost.any()


def test_a_run_without_spares_waits_for_the_repair() -> None:
    # Fixed repairs of 100 s: broken at 100 and 150 s, back at 200 and 250 s. Without spares the run waits to 250 s.
    run = Run(npu_mtbf_s=1e6, detection_s=10.0, restart_s=20.0, checkpoint="none", repair_s=100.0)
    gaps, rng = np.array([100.0, 50.0, 400.0]), np.random.default_rng(0)
    assert interrupt_run(terms_of(run), gaps, rng, 0.0).productive_s.tolist() == [100, 0, 270]
    # With one spare only the second interruption waits, until 200 s.
    one = replace(run, spare_npus=8)
    assert interrupt_run(terms_of(one), gaps, rng, 0.0).productive_s.tolist() == [100, 20, 320]
    two = replace(run, spare_npus=16)
    assert interrupt_run(terms_of(two), gaps, rng, 0.0).productive_s.tolist() == [100, 20, 370]


def test_random_repairs_find_the_same_free_spare_as_fixed_ones_of_that_length() -> None:
    run = Run(npu_mtbf_s=1e7, repair_s=3e3, spare_npus=40)
    gaps = np.random.default_rng(1).exponential(600.0, 500)
    fixed = interrupt_run(terms_of(run), gaps, np.random.default_rng(0), 0.0)
    nearly = interrupt_run(terms_of(run), gaps, np.random.default_rng(0), 1e-6)
    assert nearly.productive_s == pytest.approx(fixed.productive_s, abs=0.5)


def test_an_elastic_run_goes_on_with_the_replicas_that_are_whole() -> None:
    # One domain is broken for the first 100 of 400 s: 1/64 is missing for a quarter of the part.
    run = Run(npu_mtbf_s=1e6, detection_s=0.0, restart_s=0.0, reconfigure_s=0.0, recovery="elastic", repair_s=100.0)
    made = interrupt_run(terms_of(run, state_bytes=0.0), np.array([100.0, 400.0]), np.random.default_rng(0), 0.0)
    assert made.speed.tolist() == pytest.approx([1, 1 - 1 / 64 / 4])


def test_days_to_train_are_spread_and_the_same_for_the_same_seed() -> None:
    given = terms_of(Run(npu_mtbf_s=1.8e8))
    found, again, other = (simulate_runs(given, 30 * DAY, runs=40, seed=seed) for seed in (1, 1, 2))
    assert found.days.tolist() == again.days.tolist() != other.days.tolist()
    assert 30 < found.days_at(0.05) < found.days_at(0.5) < found.days_at(0.95)
    assert np.mean(found.days <= found.days_at(0.95)) >= 0.95
    assert found.effective_share == pytest.approx(30 / found.days)


def test_a_run_that_is_never_interrupted_takes_its_work_and_its_checkpoints() -> None:
    # 1,000 s in intervals of 90 s: 11 checkpoints of 10 s before the last 10 s.
    given = terms_of(
        Run(npu_mtbf_s=1e15, checkpoint="blocking", checkpoint_interval_s=90.0), npus=16, state_bytes=1.22e9
    )
    assert simulate_runs(given, 1000.0, runs=2).days * DAY == pytest.approx(1110.0)


def test_bursts_of_interruptions_leave_more_than_even_ones() -> None:
    # Of the same number, most come while the run recovers anyway: the closed form is too pessimistic there.
    given = terms_of(Run(npu_mtbf_s=2e7, detection_s=60.0, restart_s=540.0))
    shares = [
        simulate_runs(given, 20 * DAY, runs=10, chance=RunChance(weibull_shape=shape)).effective_share.mean()
        for shape in (0.5, 1.0, 2.0)
    ]
    assert shares[0] > shares[1] * 1.1 > shares[2]


def test_a_million_accelerators_for_months() -> None:
    given = terms_of(Run(npu_mtbf_s=1.8e8, recovery="replica"), npus=1_000_000, dp=512, state_bytes=1e7)
    found = simulate_runs(given, 60 * DAY, runs=4)
    assert found.effective_share.mean() == pytest.approx(expected(given), rel=0.02)
    assert found.interruptions.mean() == pytest.approx(found.days.mean() * DAY / 180, rel=0.02)


def test_more_interruptions_than_can_be_simulated_are_extrapolated(monkeypatch: pytest.MonkeyPatch) -> None:
    given = terms_of(Run(npu_mtbf_s=1.8e8, detection_s=60.0, restart_s=540.0), npus=1_000_000, state_bytes=1e7)
    monkeypatch.setattr(import_module("cosmic.cluster.run_simulation"), "MOST_INTERRUPTIONS", 100_000)
    found = simulate_runs(given, 60 * DAY, runs=2)
    assert found.simulated_share < 0.1
    assert found.effective_share.mean() == pytest.approx(expected(given), rel=0.02)


def test_a_run_that_hardly_trains_does_not_end() -> None:
    given = terms_of(Run(npu_mtbf_s=1e7, detection_s=600.0, restart_s=1e4), npus=1_000_000)
    found = simulate_runs(given, DAY, runs=3)
    assert np.isinf(found.days).all()
    assert found.effective_share.tolist() == [0, 0, 0]


def test_what_cannot_be_simulated_is_refused() -> None:
    given = terms_of(Run(npu_mtbf_s=1.8e8))
    with pytest.raises(SpecError, match=r"work = 0: must be positive"):
        simulate_runs(given, 0)
    with pytest.raises(SpecError, match=r"runs = 0: must be at least 1"):
        simulate_runs(given, DAY, runs=0)
    with pytest.raises(SpecError, match="weibull_shape"):
        RunChance(weibull_shape=0.0)
