"""Measure speed and quality of agents; print JSON.

python benchmarks/search.py [--trials 20000] [--seeds 3] [--agents genetic,random] [--spaces llama3-70b] [--only spaces]

*agents*: for each agent on the full stack, trials per second (one core, everything included), the agent's own time, and
the trials until it is within 5 % of the best that any agent found. Agents that fit a model get 300 trials. *spaces*:
`genetic` on each parameter set of `spaces.py`, trials stored, and what a trial costs: the agent and all else in the
loop, the evaluation, the storage; of the second search, and *first_trials_per_s* of the first, which records programs
unless the cache has them. *workload*: on the workload layer of each of COSMIC's spaces, the number of seeds in
which 300 trials end within 2 % of the exhaustive optimum. *stored_trials_per_s*: how fast a study stores trials.
*duel*: the number of seeds in which `genetic` beats `random` on the full stack.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from spaces import NAMES, benchmark_space

from cosmic.search.agent import agents
from cosmic.search.leaderboard import hold_tournament
from cosmic.search.problem import Results
from cosmic.search.search_inputs import Options, make_inputs
from cosmic.search.search_loop import explore_batches, search
from cosmic.search.space.diagram import Indices
from cosmic.search.space.space_files import load_space
from cosmic.search.study.study_comparison import NEAR, Course, course_of
from cosmic.search.study.trial_storage import BatchRecord, Storage
from cosmic.search.trials import Ledger, Trials

SPACES = tuple(f"cosmic-{npus}-full-stack" for npus in (512, 1024, 2048))
FITTED = ("bayesian", "cmaes", "surrogate", "tpe")
"""Agents whose own time grows with the trials: for expensive evaluations."""
FEW = 300


def timed(
    space: str, agent: str, trials: int, seed: int = 0, study: Path | None = None
) -> tuple[dict[str, Any], Course, list[float]]:
    """Return the figures and the course of a search, and when each of its evaluations was done.

    With a file for a *study*, trials are stored there.
    """
    inputs = make_inputs(benchmark_space(space), Options(agent=agent, trials=trials, seed=seed))
    problem, ledger = inputs.problem, Ledger(inputs.problem)
    problem.evaluate(problem.space.sample(1000, np.random.default_rng(0)))  # fill the cache of plans
    evaluating = 0.0

    def evaluate(rows: Indices) -> Results:
        nonlocal evaluating
        began = time.process_time()
        results = problem.evaluate(rows)
        evaluating += time.process_time() - began
        return results

    storing = 0.0
    with ExitStack() as stack:
        storage = stack.enter_context(Storage.opened(study, write=True)) if study else None
        began, clock, done = time.process_time(), time.perf_counter(), []
        for batch, (asked, rows, results, _) in enumerate(explore_batches(inputs, ledger, evaluate)):
            if storage is not None:
                then = time.process_time()
                storage.append(BatchRecord(batch, asked, len(rows)), Trials(rows, results), len(ledger) - len(rows))
                storing += time.process_time() - then
            done += [time.perf_counter() - clock] * int(results.counted.sum())
        cpu = time.process_time() - began
        elapsed = time.perf_counter() - clock
    course = course_of(agent, agent, seed, problem, ledger.trials)
    figures = {
        "agent": agent,
        "trials": course.evaluated,
        "trials_per_s": course.evaluated / elapsed,
        "batch": inputs.batch,
        "agent_us_per_trial": 1e6 * (cpu - evaluating - storing) / max(1, course.evaluated),
        "evaluation_us_per_trial": 1e6 * evaluating / max(1, course.evaluated),
        "loss": course.best,
    }
    if study is not None:
        figures["storage_us_per_trial"] = 1e6 * storing / max(1, course.evaluated)
    return figures, course, done


def measure_agents(space: str, names: list[str], trials: int) -> list[dict[str, Any]]:
    """Return each agent's speed, and the trials until it is near the best known."""
    wide = [name for name in names if name != "exhaustive"]  # it needs a space that it can exhaust
    runs = [timed(space, name, FEW if name in FITTED else trials) for name in wide]
    best = min(course.best for _, course, _ in runs)
    for figures, course, done in runs:
        near = course.near(best)
        figures["regret"] = course.best / best - 1
        figures["trials_to_5_percent"] = near
        figures["seconds_to_5_percent"] = None if near is None else done[max(0, near - 1)]
    return [figures for figures, _, _ in runs]


def measure_spaces(names: list[str], trials: int) -> dict[str, dict[str, Any]]:
    """Return what a trial of `genetic` costs on each space, stored as a study."""
    found = {}
    for name in names:
        with TemporaryDirectory() as folder:
            first, again = (
                timed(name, "genetic", trials, study=Path(folder) / f"{run}.db")[0] for run in ("first", "again")
            )
            found[name] = again | {"first_trials_per_s": first["trials_per_s"]}
    return found


def measure_workload(names: list[str], seeds: int) -> dict[str, dict[str, str]]:
    """Return for each space and agent the number of seeds that end within 2 % of the optimum."""
    found = {}
    for space in SPACES:
        options = Options(trials=FEW, stacks=["workload"])
        board = hold_tournament(load_space(space), names, seeds=seeds, options=options)
        found[space] = {row["agent"]: f"{row['within_2_percent']} of {row['seeds']}" for row in board.rows()}
    return found


def measure_duel(trials: int, seeds: int) -> dict[str, str]:
    """Return for each space the number of seeds in which `genetic` beats `random`."""
    found = {}
    for space in SPACES:
        wins = 0
        for seed in range(seeds):
            first, second = (search(space, agent=name, trials=trials, seed=seed) for name in ("genetic", "random"))
            wins += first.trials.curve(first.problem)[1][-1] > second.trials.curve(second.problem)[1][-1]
        found[space] = f"{wins} of {seeds}"
    return found


def measure_storage(space: str, trials: int) -> dict[str, float]:
    """Return the trials per second that a study stores, every batch committed to disk, by batch size."""
    problem = make_inputs(load_space(space), Options()).problem
    rows = problem.space.sample(trials, np.random.default_rng(0))
    results = problem.evaluate(rows)
    found = {}
    for size in (30, 256):
        with TemporaryDirectory() as folder, Storage.opened(Path(folder) / "trials.db", write=True) as storage:
            began = time.perf_counter()
            for batch, start in enumerate(range(0, trials, size)):
                places = np.arange(start, min(start + size, trials))
                storage.append(
                    BatchRecord(batch, size, len(places)), Trials(rows[places], results.select(places)), start
                )
            found[f"batches_of_{size}"] = trials / (time.perf_counter() - began)
    return found


def main() -> None:
    """Measure, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--space", default="cosmic-1024-full-stack")
    parser.add_argument("--trials", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--agents", default=",".join(agents))
    parser.add_argument("--spaces", default=",".join(NAMES))
    parser.add_argument("--only", default="agents,spaces,stored_trials_per_s,workload,duel", help="what to measure")
    parser.add_argument("--json", action="store_true", help="no effect: output is always JSON")
    options = parser.parse_args()
    names, only, trials = options.agents.split(","), options.only.split(","), options.trials
    parts: dict[str, Callable[[], Any]] = {
        "agents": lambda: measure_agents(options.space, names, trials),
        "spaces": lambda: measure_spaces(options.spaces.split(","), trials),
        "stored_trials_per_s": lambda: measure_storage(options.space, trials),
        "workload": lambda: measure_workload(names, options.seeds),
        "duel": lambda: measure_duel(trials, options.seeds),
    }
    found = {
        "space": options.space,
        "near": NEAR,
        **{name: part() for name, part in parts.items() if name in only},
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
