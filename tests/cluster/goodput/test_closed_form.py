"""Where the time of a run goes: by hand, at its limits, and over batches."""

from __future__ import annotations

from dataclasses import fields, replace
from math import exp, expm1, inf, log, sqrt
from typing import Any

import numpy as np
import pytest

from cosmic.cluster.goodput import Goodput, optimal_interval_s, run_goodput, saved_share
from cosmic.cluster.interruption_terms import USUAL_RUN, run_fields, run_terms
from cosmic.design.design_batch import Names
from cosmic.design.run_layer import Run
from cosmic.simulate.recording.program_interpreters import replay_program
from cosmic.simulate.recording.program_tape import Tape
from cosmic.simulate.recording.recorded_program import program_of_tape

SHARES = tuple(each.name for each in fields(Goodput) if each.name.endswith("_share"))
CHECKPOINTS, RECOVERIES = ("none", "blocking", "asynchronous", "in_memory"), ("restart", "replica", "elastic")
PLAIN = Run(npu_mtbf_s=1e7, detection_s=30.0, restart_s=270.0, checkpoint="blocking")
"""On 1,000 accelerators: 10,000 s between interruptions."""


def measured(run: Run, npus: Any = 1000, dp: Any = 10, state_bytes: Any = 0.0, work_s: Any = None) -> Goodput:
    found = run_goodput(run_fields(run), npus, dp, state_bytes, work_s)
    assert found is not None
    return found


def share(run: Run, *args: Any, **kwargs: Any) -> float:
    return float(measured(run, *args, **kwargs).effective_share)


def total(found: Goodput) -> Any:
    return sum(np.asarray(getattr(found, name)) for name in SHARES)


def some_runs(count: int, seed: int) -> list[tuple[Run, int, int, float]]:
    """Return random runs with accelerators, replicas and bytes of state, of every kind and size."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        npus = int(2 ** rng.uniform(4, 20))
        run = Run(
            npu_mtbf_s=10 ** rng.uniform(7, 9),
            checkpoint=str(rng.choice(CHECKPOINTS)),  # type: ignore[arg-type]
            recovery=str(rng.choice(RECOVERIES)),  # type: ignore[arg-type]
            detection_s=float(rng.choice([0, 60, 600])),
            restart_s=float(rng.choice([0, 60, 3600])),
            restart_per_npu_s=float(rng.choice([0, 0.001])),
            checkpoint_interval_s=None if rng.random() < 0.5 else 10 ** rng.uniform(0, 5),
            remote_share=float(rng.choice([0, 0.2, 1])),
            spare_npus=int(rng.choice([0, 64, 4096])),
            repair_s=None if rng.random() < 0.5 else 10 ** rng.uniform(2, 6),
            slow_node_share=float(rng.choice([0, 1e-4, 1])),
            slow_node_factor=float(rng.choice([1, 1.5])),
        )
        found.append((run, npus, int(2 ** rng.integers(0, 12)), float(rng.choice([0, 1e6, 1e9, 1e11]))))
    return found


def test_a_run_that_stops_as_a_whole_by_hand() -> None:
    # M = 1e7 / 1,000 = 10,000 s, C = 1.22e9 / 122e6 = 10 s, which loading takes too: W = 30 + 270 + 10 = 310 s.
    # With t = 440 s: (440/10,000) e^(-310/10,000) / (e^(450/10,000) - 1).
    run = replace(PLAIN, checkpoint_interval_s=440.0)
    found = measured(run, state_bytes=1.22e9)
    assert found.mtbf_s == 10_000
    assert found.effective_share == pytest.approx(0.044 * exp(-0.031) / expm1(0.045), rel=1e-12)
    assert found.checkpoint_share == pytest.approx(found.effective_share * 10 / 440, rel=1e-12)
    assert found.detection_share == pytest.approx(1 - exp(-0.003), rel=1e-12)
    assert found.restart_share == pytest.approx(exp(-0.003) - exp(-0.031), rel=1e-12)
    assert found.stall_share == found.repair_share == found.slow_share == 0


def test_rare_interruptions_give_the_first_order_formula() -> None:
    # 1 - C/t - (t/2 + D + R)/M = 1 - 10/2,000 - (1,000 + 30 + 280)/1e6 = 0.99369; products of these are 1e-5.
    run = replace(PLAIN, npu_mtbf_s=1e9, checkpoint_interval_s=2000.0)
    assert share(run, state_bytes=1.22e9) == pytest.approx(0.99369, abs=4e-5)


def test_an_asynchronous_checkpoint_blocks_for_the_copy_and_counts_when_it_is_written() -> None:
    # State 12.2 GB: written in 100 s, copied in 0.61 s; t = 500 s, W = 300 + 100.
    run = replace(PLAIN, checkpoint="asynchronous", checkpoint_interval_s=500.0)
    expected = 0.05 * exp(-0.04) * exp(-0.01) / expm1(0.050061)
    assert share(run, state_bytes=1.22e10) == pytest.approx(expected, rel=1e-12)


def test_an_asynchronous_checkpoint_waits_for_the_one_before() -> None:
    found = measured(replace(PLAIN, checkpoint="asynchronous", checkpoint_interval_s=5.0), state_bytes=1.22e10)
    assert found.interval_s == pytest.approx(100 - 0.61)


def test_a_checkpoint_in_memory_goes_to_host_and_peer_and_is_loaded_from_there() -> None:
    # 20 GB at 20 GB/s: C = H = load = 1 s; t = 50 s, W = 301 s.
    run = replace(PLAIN, checkpoint="in_memory", checkpoint_interval_s=50.0)
    expected = 0.005 * exp(-0.0301) * exp(-0.0001) / expm1(0.0051)
    assert share(run, state_bytes=2e10) == pytest.approx(expected, rel=1e-12)


def test_interruptions_that_go_back_to_remote_storage_lose_more() -> None:
    # A tenth of them, every 100,000 s: x = 1,000/100,000, H = 0 as there is no state: 0.01 / (e^0.01 - 1).
    run = replace(PLAIN, checkpoint="in_memory", checkpoint_interval_s=50.0)
    back = replace(run, remote_share=0.1, remote_interval_s=1000.0)
    assert share(back) / share(run) == pytest.approx(0.01 / expm1(0.01), rel=1e-12)


def test_a_run_without_checkpoints_begins_again() -> None:
    # 5,000 s of work in one piece: 0.5 e^(-0.03) / (e^0.5 - 1).
    run = replace(PLAIN, checkpoint="none")
    assert share(run, work_s=5000.0) == pytest.approx(0.5 * exp(-0.03) / expm1(0.5), rel=1e-12)
    assert share(run) == pytest.approx(0, abs=1e-12)


def test_replicas_go_on_while_one_restarts() -> None:
    # D 30 s and S 120 s stop all: e^(-0.015); a tenth is missing for 270 - 120 s: e^(-150/100,000).
    run = replace(PLAIN, checkpoint="none", recovery="replica", reconfigure_s=120.0)
    found = measured(run)
    assert found.stall_share == pytest.approx(exp(-0.003) - exp(-0.015), rel=1e-12)
    assert found.restart_share == pytest.approx(exp(-0.015) * (1 - exp(-0.0015)), rel=1e-9)
    assert found.effective_share == pytest.approx(exp(-0.0165), rel=1e-6)


def test_one_replica_is_the_whole_run() -> None:
    for kind in CHECKPOINTS[1:]:
        whole = replace(PLAIN, checkpoint=kind, checkpoint_bandwidth_bytes_per_s=20e9)  # type: ignore[arg-type]
        alone = replace(whole, recovery="replica", reconfigure_s=100.0)
        assert share(alone, dp=1, state_bytes=1e9) == pytest.approx(share(whole, state_bytes=1e9), rel=1e-12)


def test_a_run_without_spares_waits_for_repairs_and_an_elastic_one_does_not() -> None:
    # 125 nodes of 8, down 12,500 of 1.25e6 + 12,500 s: all are up in (1/1.01)^125 of the time. Elastic: each replica
    # of ten is whole with ((1 + 0.01 * 0.9) / 1.01)^125.
    run = replace(PLAIN, repair_s=12_500.0)
    assert share(run) / share(PLAIN) == pytest.approx(1.01**-125, rel=1e-9)
    assert measured(run).repair_share == pytest.approx(1 - 1.01**-125, rel=1e-9)
    elastic = replace(run, recovery="elastic")
    without = replace(elastic, repair_s=None)
    assert share(elastic) / share(without) == pytest.approx((1.009 / 1.01) ** 125, rel=1e-9)
    assert share(replace(run, spare_npus=200)) == pytest.approx(share(PLAIN), rel=1e-9)


def test_all_wait_for_one_slow_node() -> None:
    # 125 nodes, each slow in 1 % of the time: some is in 1 - 0.99^125 = 0.7153 of it, and a step takes 1.25 then.
    run = replace(PLAIN, slow_node_share=0.01, slow_node_factor=1.25)
    assert share(run) / share(PLAIN) == pytest.approx(1 - (1 - 0.99**125) * 0.2, rel=1e-9)


def test_restarts_grow_with_the_accelerators_that_restart() -> None:
    # 0.1 s for each of 1,000: 100 s more; of one replica of ten: 10 s more for a tenth.
    run = replace(PLAIN, restart_per_npu_s=0.1)
    assert share(run) / share(PLAIN) == pytest.approx(exp(-0.01), rel=1e-12)
    one = replace(PLAIN, recovery="replica")
    longer = replace(one, restart_per_npu_s=0.1)
    assert share(longer) / share(one) == pytest.approx(exp(-0.0001), rel=1e-6)


def test_what_is_not_stated_is_usual() -> None:
    plain = run_terms(run_fields(Run(npu_mtbf_s=1e7)), 1000, 10, 0.0)
    assert plain is not None
    assert (plain.detection_s, plain.restart_s) == (USUAL_RUN.detection_s, USUAL_RUN.restart_s) == (60, 540)
    assert plain.domains == 125


def test_unknown_rates_are_unknown_goodput() -> None:
    assert run_goodput(run_fields(Run()), 1000, 10, 0.0) is None
    assert run_goodput(run_fields(Run(), "mi300x"), 1000, 10, 0.0) is None
    assert run_goodput(run_fields(Run(), "h100-sxm-80gb"), 1000, 10, 0.0) is not None


def test_the_optimal_interval_is_that_of_young_and_daly() -> None:
    # C = 10 s, M = 10,000 s: sqrt(2 * 10 * 10,000) = 447.2, less 2 * 10 / 3 = 440.5; exact is 1 - x = e^-(x + c).
    found = float(optimal_interval_s(1e-4, 10.0))
    assert found == pytest.approx(sqrt(2 * 10 * 1e4) - 20 / 3, abs=0.1)
    assert 1 - found * 1e-4 == pytest.approx(exp(-(found * 1e-4 + 0.001)), rel=1e-12)


@pytest.mark.parametrize("block_s", [1e-9, 1e-3, 1.0, 1e3, 1e6])
def test_no_interval_beats_the_optimal_one(block_s: float) -> None:
    best = optimal_interval_s(1e-4, block_s)
    others = np.geomspace(1e-4, 1e8, 4001)
    assert saved_share(1e-4, best, block_s, 0.0) >= np.max(saved_share(1e-4, others, block_s, 0.0)) * (1 - 1e-9)


def test_no_stated_interval_beats_the_automatic_one() -> None:
    for run, npus, dp, state in some_runs(200, seed=1):
        best = share(replace(run, checkpoint_interval_s=None), npus, dp, state)
        for interval in (1.0, 10.0, 100.0, 1e3, 1e4, 1e6):
            assert share(replace(run, checkpoint_interval_s=interval), npus, dp, state) <= best * (1 + 1e-9) + 1e-12


def test_shares_are_shares_and_sum_to_one_from_16_to_a_million_accelerators() -> None:
    seen = []
    for run, npus, dp, state in some_runs(400, seed=2):
        found = measured(run, npus, dp, state)
        for name in SHARES:
            value = float(getattr(found, name))
            assert -1e-12 <= value <= 1 + 1e-12, name
        assert total(found) == pytest.approx(1, abs=1e-9)
        assert 0 < found.interval_s < inf
        seen.append(float(found.effective_share))
    assert min(seen) < 1e-3
    assert max(seen) > 0.95


@pytest.mark.parametrize("npus", [16, 1024, 16_384, 131_072, 1_000_000])
@pytest.mark.parametrize("mtbf_s", [60.0, 120.0, 1e4, 1e15])
def test_any_rate_at_any_size_gives_a_share(npus: int, mtbf_s: float) -> None:
    for recovery in RECOVERIES:
        run = Run(npu_mtbf_s=min(mtbf_s * npus, 1e15), recovery=recovery)  # type: ignore[arg-type]
        assert 0 <= share(run, npus, 16, 1e9) <= 1


def test_without_interruptions_only_checkpoints_cost() -> None:
    run = replace(PLAIN, npu_mtbf_s=1e15, checkpoint_interval_s=90.0)
    assert share(run, npus=16, state_bytes=1.22e9) == pytest.approx(0.9, rel=1e-9)  # 90 of 90 + 10 s
    assert share(replace(run, checkpoint_interval_s=None), npus=16, state_bytes=1.22e9) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(
    ("field", "factor"),
    [
        ("npu_mtbf_s", 0.5),
        ("restart_s", 2.0),
        ("detection_s", 2.0),
        ("repair_s", 2.0),
        ("slow_node_factor", 2.0),
        ("restart_per_npu_s", 2.0),
        ("checkpoint_bandwidth_bytes_per_s", 0.5),
        ("local_checkpoint_bandwidth_bytes_per_s", 0.5),
    ],
)
def test_what_is_worse_never_helps(field: str, factor: float) -> None:
    given = {"checkpoint_bandwidth_bytes_per_s": 1e8, "local_checkpoint_bandwidth_bytes_per_s": 1e10}
    worse_somewhere = False
    for each, npus, dp, state in some_runs(200, seed=3):
        # Slow storage can make up for a stated interval that is too short.
        interval = None if "bandwidth" in field else each.checkpoint_interval_s
        run = replace(each, checkpoint_interval_s=interval, **given)  # type: ignore[arg-type]
        if getattr(run, field) is None:
            continue
        worse = replace(run, **{field: getattr(run, field) * factor})
        better, found = share(run, npus, dp, state), share(worse, npus, dp, state)
        assert found <= better * (1 + 1e-9) + 1e-12, (run, npus, dp, state)
        worse_somewhere |= found < better * 0.999
    assert worse_somewhere


def test_a_batch_has_the_goodput_of_its_designs() -> None:
    kinds = Names(CHECKPOINTS, np.array([1, 2, 3, 0, 2]))
    recoveries = Names(RECOVERIES, np.array([0, 0, 1, 2, 2]))
    npus, dp = np.array([16, 1024, 16_384, 100_000, 1_000_000]), np.array([1, 4, 128, 64, 512])
    intervals = np.array([None, 600.0, None, None, 60.0], dtype=object)
    base = run_fields(Run(npu_mtbf_s=1.8e8, spare_npus=64, repair_s=3600.0))
    changed = {"checkpoint": kinds, "recovery": recoveries, "checkpoint_interval": intervals}
    found = run_goodput(lambda key: changed.get(key, base(key)), npus, dp, 1e9)
    assert found is not None
    for row in range(5):
        run = Run(
            npu_mtbf_s=1.8e8,
            spare_npus=64,
            repair_s=3600.0,
            checkpoint=kinds[row],
            recovery=recoveries[row],
            checkpoint_interval_s=intervals[row],
        )
        one = measured(run, int(npus[row]), int(dp[row]), 1e9)
        for name in (*SHARES, "interval_s", "mtbf_s"):
            assert np.broadcast_to(getattr(found, name), 5)[row] == getattr(one, name), name


@pytest.mark.long
@pytest.mark.parametrize("repair_s", [None, 3600.0])
def test_goodput_can_be_recorded(repair_s: float | None) -> None:
    values = {
        "run.checkpoint": np.array([1, 2, 3]),
        "run.recovery": np.array([0, 1, 2]),
        "run.npu_mtbf": np.array([1e7, 1e8, 2e8]),
        "workload.dp": np.array([4, 16, 64]),
        "network.npus": np.array([64, 4096, 65_536]),
    }
    columns: dict[str, Any] = {
        "checkpoint": Names(CHECKPOINTS, values["run.checkpoint"]),
        "recovery": Names(RECOVERIES, values["run.recovery"]),
        "npu_mtbf": values["run.npu_mtbf"],
    }
    base = run_fields(Run(npu_mtbf_s=1.0, slow_node_share=0.001, slow_node_factor=1.5, repair_s=repair_s, spare_npus=8))
    plain = run_goodput(lambda key: columns.get(key, base(key)), values["network.npus"], values["workload.dp"], 1e9)
    tape = Tape(values, tuple(values))
    noted = {path: tape.column(path) for path in values}
    recorded: dict[str, Any] = {
        "checkpoint": Names(CHECKPOINTS, noted["run.checkpoint"]),
        "recovery": Names(RECOVERIES, noted["run.recovery"]),
        "npu_mtbf": noted["run.npu_mtbf"],
    }
    made = run_goodput(lambda key: recorded.get(key, base(key)), noted["network.npus"], noted["workload.dp"], 1e9)
    assert plain is not None
    assert made is not None
    names = [name for name in SHARES if name != "repair_share" or repair_s]  # 0 for all without repairs
    program = program_of_tape(tape, {name: getattr(made, name) for name in names}, {})
    inputs = np.array([values[path].astype(float) for path in program.inputs])
    results = np.empty((len(names), 3))
    replay_program(program, {}, inputs, tuple(program.inputs), results)
    for row, name in enumerate(names):
        assert results[row].tolist() == np.broadcast_to(getattr(plain, name), 3).tolist(), name


def test_half_the_training_goes_when_recovery_takes_log_2_of_the_time_between_interruptions() -> None:
    run = Run(npu_mtbf_s=1e9, recovery="replica", detection_s=1000 * log(2), reconfigure_s=0.0, restart_s=0.0)
    assert share(run, npus=1_000_000, dp=1000) == pytest.approx(0.5, rel=1e-9)
