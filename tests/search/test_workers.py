"""Who evaluates does not matter: one process, several, or Ray; and a point that kills its worker is survived."""

from __future__ import annotations

import importlib.util
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosmic.base.errors import BackendError, SpecError
from cosmic.search import worker_pools
from cosmic.search.problem import Problem, Results, make_problem
from cosmic.search.search_inputs import Options, make_inputs
from cosmic.search.search_loop import explore_batches, search
from cosmic.search.space.diagram import Indices
from cosmic.search.space.space_files import load_space
from cosmic.search.trials import Ledger, Trials
from cosmic.search.worker_pools import FAILED_REASON, PoolEvaluator, check_workers, open_evaluator
from tests.search.deadly import Deadly, DeadlyOnce, Refused, Unborn, parts
from tests.search.test_problem import SMALL
from tests.search.test_searching import FULL, same

MAPPINGS = {
    "base": "gpt3-13b@dgx-a100:16",
    "parameters": {
        "workload.{dp,tp,pp}": {"split": "npus"},
        "micro_batch": [1, 2, 3, 4],
        "recompute": ["none", "full"],
    },
}
"""A small set with its base design in it and mappings that are invalid."""


@pytest.fixture(scope="module")
def problem() -> Problem:
    return make_problem(load_space(FULL))


def some(problem: Problem, n: int) -> Indices:
    return problem.space.sample(n, np.random.default_rng(0))


def test_a_point_comes_to_the_same_in_whatever_company(problem: Problem) -> None:
    rows = some(problem, 3000)
    cuts = np.sort(np.random.default_rng(1).choice(3000, 40, replace=False))
    joined = Results.join(problem.evaluate(part) for part in np.split(rows, cuts))
    assert same(Trials(rows, joined), Trials(rows, problem.evaluate(rows)))


@pytest.mark.long
def test_two_workers_find_what_one_finds() -> None:
    options: dict[str, Any] = {"agent": "random", "trials": 900, "batch": 800, "seed": 2}
    assert same(search(FULL, **options).trials, search(FULL, workers=2, **options).trials)


class Here:
    """Workers that are this process, and answer when they are asked; the last that got something is done first."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.got: list[tuple[int, Indices]] = []
        self.chunks: list[Indices] = []

    def submit(self, worker: int, rows: Indices) -> None:
        """Keep *rows* for later."""
        self.got.append((worker, rows))
        self.chunks.append(rows)

    @property
    def sizes(self) -> list[int]:
        """How many points each chunk had."""
        return [len(rows) for rows in self.chunks]

    def collect(self) -> Iterator[tuple[int, Results | None]]:
        """Yield what the last worker has."""
        worker, rows = self.got.pop()
        yield worker, self.problem.evaluate(rows)


@pytest.mark.parametrize("agent", ["random", "exhaustive", "genetic"])
@pytest.mark.parametrize("space", [FULL, MAPPINGS])
def test_batches_that_are_begun_early_change_no_trial(space: Any, agent: str) -> None:
    """Also where the base design comes first, where mappings are invalid, and where the set is exhausted."""
    inputs = make_inputs(load_space(space), Options(agent=agent, trials=700, batch=60, seed=4))
    problem, pool = inputs.problem, Here(inputs.problem)
    ours, theirs = Ledger(problem), Ledger(problem)
    several = PoolEvaluator(pool, problem, 3)
    plain = [asked for asked, *_ in explore_batches(inputs, ours, problem.evaluate)]
    assert [asked for asked, *_ in explore_batches(inputs, theirs, several, (), several)] == plain
    assert same(ours.trials, theirs.trials)


def test_a_batch_that_is_begun_goes_to_one_worker_and_others_are_shared_evenly(problem: Problem) -> None:
    pool = Here(problem)
    evaluate = PoolEvaluator(pool, problem, 2)
    rows = some(problem, 600)
    batches = [rows[:100], rows[100:300], rows[300:]]
    for batch in (*batches, batches[1]):
        evaluate.start(batch)
    assert pool.sizes == [100, 200]
    for batch in batches:
        assert same(Trials(batch, evaluate(batch)), Trials(batch, problem.evaluate(batch)))
    assert pool.sizes == [100, 200, 300]
    evaluate(rows)
    assert pool.sizes[3:] == [300, 300]
    few = rows[:40]
    evaluate(few)
    assert pool.sizes[5:] == [40]


def test_a_problem_travels_to_workers_without_what_is_cached_about_its_designs(problem: Problem) -> None:
    rows = some(problem, 5)
    before = problem.evaluate(rows)
    problem.space.base.known["a thing that cannot travel"] = lambda: None
    there = pickle.loads(pickle.dumps(problem))
    assert not there.space.base.known
    assert there.space.base == problem.space.base
    assert same(Trials(rows, there.evaluate(rows)), Trials(rows, before))


def test_what_is_begun_and_never_asked_for_is_forgotten(problem: Problem) -> None:
    pool = Here(problem)
    evaluate = PoolEvaluator(pool, problem, 1)
    rows = some(problem, 60)
    for start in range(0, 60, 10):
        evaluate.start(rows[start : start + 10])
    assert same(Trials(rows, evaluate(rows)), Trials(rows, problem.evaluate(rows)))
    assert pool.sizes == [10, 10, 10, 60]


def test_designs_with_the_same_switches_share_a_chunk(problem: Problem) -> None:
    pool = Here(problem)
    PoolEvaluator(pool, problem, 2)(some(problem, 200))
    switch = [each.name for each in problem.space.parameters].index("workload.weight_sharding")
    first, second = (part[:, switch] for part in pool.chunks)
    assert first.max() <= second.min()


@pytest.mark.long
def test_designs_that_are_simulated_are_distributed_one_by_one() -> None:
    options: dict[str, Any] = {"agent": "random", "trials": 2, "engine": "event"}
    assert same(search(SMALL, **options).trials, search(SMALL, workers=2, **options).trials)


@pytest.mark.long
def test_a_point_that_kills_three_workers_is_passed_over(problem: Problem) -> None:
    rows = some(problem, 2)
    deadly = Deadly(**parts(problem, victim=tuple(rows[1].tolist())))
    with open_evaluator(deadly, 2) as evaluate:
        found = evaluate(rows)
        again = evaluate(rows[:1])
    assert found.reasons[1] == FAILED_REASON == "its worker died 3 times"
    assert not found.feasible[1]
    assert found.counted[1]
    first = np.array([0])
    alone = Trials(rows[:1], problem.evaluate(rows[:1]))
    assert same(Trials(rows[:1], found.select(first)), alone)
    assert same(Trials(rows[:1], again), alone)


def test_workers_that_cannot_start_are_no_verdict_on_points(problem: Problem) -> None:
    with (
        pytest.raises(BackendError, match="a worker ended before it could start"),
        open_evaluator(Unborn(**parts(problem)), 2),
    ):
        pass


def test_more_workers_than_a_machine_can_use_are_refused(problem: Problem) -> None:
    with pytest.raises(SpecError, match=r"^workers = 100000: at most .* are started on this machine, which has"):
        search(FULL, workers=100_000, trials=1)
    check_workers(10_000, "head:6379")
    with pytest.raises(SpecError, match=r"^workers = 10001: at most 10,000 are started on a cluster$"):
        check_workers(10_001, "head:6379")


@pytest.mark.long
def test_a_cluster_that_does_not_answer_is_one_sentence(problem: Problem) -> None:
    pytest.importorskip("ray")
    with (
        pytest.raises(BackendError, match=r"^no Ray cluster answers at localhost:1: Connection refused$"),
        open_evaluator(problem, 2, "localhost:1"),
    ):
        pass


def test_more_trials_than_can_be_kept_are_refused() -> None:
    with pytest.raises(SpecError, match=r"^trials = 99999999999999999999: at most 10,000,000 are kept$"):
        search(FULL, trials=99999999999999999999)


def test_what_a_worker_raises_is_raised_here_and_no_points_are_no_work(problem: Problem) -> None:
    with open_evaluator(Refused(**parts(problem)), 2) as evaluate:
        assert len(evaluate(np.empty((0, len(problem.space.parameters)), dtype=np.intp))) == 0
        with pytest.raises(SpecError, match="rows = 3: are refused"):
            evaluate(some(problem, 3))


@pytest.mark.long
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is an extra")
@pytest.mark.filterwarnings("ignore")
def test_ray_finds_the_same_though_a_worker_dies(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    rows = some(problem, 300)
    mortal = DeadlyOnce(**parts(problem, marker=str(tmp_path / "died")))
    with open_evaluator(mortal, 2, "local") as evaluate:
        found = evaluate(rows)
    assert (tmp_path / "died").exists()
    assert same(Trials(rows, found), Trials(rows, problem.evaluate(rows)))


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="signals cannot be blocked here")
def test_ctrl_c_waits_until_a_worker_has_been_started_whichever_thread_hears_it() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    listening = threading.Event()
    hearer = threading.Thread(target=listening.wait, args=(60,), daemon=True)
    hearer.start()
    started = []

    def start() -> None:
        with worker_pools._without_interrupts():
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(1000):
                time.sleep(0)
            started.append("a worker")

    try:
        with pytest.raises(KeyboardInterrupt):
            start()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        listening.set()
        hearer.join()
        signal.signal(signal.SIGINT, before)
    assert started == ["a worker"]


STARTED = """
import multiprocessing
from cosmic.search.worker_pools import ProcessPool
pool = object.__new__(ProcessPool)
pool._context, pool._problem, pool._workers = multiprocessing.get_context("spawn"), None, []
for _ in range(2):
    pool._workers.append(pool._start())
    with open(f"/proc/{pool._workers[-1][0].pid}/status") as status:
        print(next(line for line in status if line.startswith("SigBlk")).split()[1])
pool.__exit__()
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="this system does not say what a process blocks")
def test_every_worker_starts_with_interrupts_blocked() -> None:
    found = subprocess.run([sys.executable, "-c", STARTED], capture_output=True, text=True, check=True)
    bit = 1 << (signal.SIGINT - 1)
    assert [int(mask, 16) & bit for mask in found.stdout.split()] == [bit, bit]
