"""Several tasks of one training run: how many accelerators each gets.

Tasks share a model and have batches of their own (UFO, multi-task pretraining). Each has accelerators of its own,
which split its batch; after every step all of them reduce the gradients of what they share. The step waits for the
accelerator with the most samples, so that it takes what a data-parallel step takes in which all have as many:

    T = step of N accelerators with m = max over tasks of ⌈b_t / n_t⌉ samples each

    b_t  batch of task t        n_t  its accelerators, N in all

To give the next accelerators to the task with most samples on each, again and again, makes m as small as can be.
SE-MoE (Shen et al., arXiv 2205.10034) calls that elastic training: tasks with large batches get nodes of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from cosmic.base.arithmetic import divisors
from cosmic.base.errors import require
from cosmic.base.json_types import Share, unit
from cosmic.design.design_point import DesignPoint
from cosmic.evaluation import evaluate
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.metrics import Infeasible

DesignLoader = Callable[[str, Mapping[str, Any]], DesignPoint]


@dataclass(frozen=True, slots=True)
class TrainingTask:
    """One task, with what it was given."""

    batch: int
    """Its samples in a step."""
    npus: int
    """Its accelerators."""
    samples: int
    """On its fullest accelerator."""
    busy: Share
    """Share of the step's samples on the fullest accelerator of all that its own have."""


@dataclass(frozen=True, slots=True)
class SharedAccelerators:
    """Accelerators shared out among tasks."""

    npus: int
    """Accelerators in all."""
    tasks: tuple[TrainingTask, ...]
    """The tasks."""
    step_s: float
    """Seconds of a step."""
    samples_per_s: float
    """Samples of all tasks."""
    samples_per_s_per_npu: Annotated[float, unit("1/s")]
    """The same for each accelerator."""


def share_out(batches: Sequence[int], npus: int, unit: int = 1) -> tuple[int, ...]:
    """Return how many of so many *npus* each task gets, *unit* at a time, so that the most samples on one are fewest.

    >>> share_out((512, 256, 128, 128), 8), share_out((512, 256, 128, 128), 4)
    ((4, 2, 1, 1), (1, 1, 1, 1))
    """
    require(bool(batches), "batches", list(batches), "must be one at least")
    for batch in batches:
        require(batch >= 1, "batches", batch, "must be at least 1 sample")
    require(unit >= 1, "unit", unit, "must be at least 1 accelerator")
    least = unit * len(batches)
    require(npus >= least, "npus", npus, f"must be at least {least}: {unit} for each of {len(batches)} tasks")
    require(npus % unit == 0, "npus", npus, f"must be a multiple of the {unit} accelerators that are given at a time")
    # no task gets less than what its fair share leaves after one more for each other task: greedy steps start there
    tasks, units, samples = len(batches), npus // unit, sum(batches)
    shares = [unit * max(1, (units - tasks) * batch_size // samples - tasks) for batch_size in batches]
    for _ in range((npus - sum(shares)) // unit):
        fullest = max(range(len(batches)), key=lambda task: batches[task] / shares[task])
        shares[fullest] += unit
    return tuple(shares)


def evaluate_tasks(
    source: str,
    batches: Sequence[int],
    shares: Sequence[int],
    overrides: Mapping[str, Any] | None = None,
    load: DesignLoader = load_design,
) -> SharedAccelerators | Infeasible:
    """Return what tasks with *batches* achieve on so many accelerators each, or why the step cannot run.

    *source* is ``MODEL@SYSTEM``, without a size; what is stated of its mapping in *overrides* holds for every size.
    Microbatches that are not stated are the quickest of powers of two and of what divides the fullest accelerator's
    samples.
    """
    require(len(shares) == len(batches), "npus", list(shares), f"must be as many numbers as tasks, {len(batches)}")
    for share in shares:
        require(share >= 1, "npus", share, "must be at least 1 accelerator for each task")
    require("@" in source and ":" not in source.rpartition("@")[2], "design", source, "must be MODEL@SYSTEM, no size")
    npus = sum(shares)
    samples = [-(-batch // count) for batch, count in zip(batches, shares, strict=True)]
    most_samples = max(samples)
    settings = {path.removeprefix("workload."): value for path, value in (overrides or {}).items()}
    for key in ("dp", "global_batch"):
        require(key not in settings, key, settings.get(key), "follows from the batches of tasks: leave it out")
    for key in ("tp", "cp", "pp"):
        require(settings.get(key, 1) == 1, key, settings.get(key), "must be 1: tasks are data-parallel")
    mapping: dict[str, Any] = {"tp": 1, "cp": 1, "pp": 1, "weight_sharding": "none", "dp": npus, **settings}
    outcomes = []
    sizes = {*divisors(most_samples), *(2**power for power in range(most_samples.bit_length()))}
    for size in [settings["micro_batch"]] if "micro_batch" in settings else sorted(sizes):
        require(isinstance(size, int) and size >= 1, "micro_batch", size, "must be a whole number, 1 or more")
        batch_settings = {"micro_batch": size, "global_batch": -(-most_samples // size) * size * npus}
        outcomes.append(evaluate(load(f"{source}:{npus}", mapping | batch_settings)))
    outcome = min(outcomes, key=lambda share: np.inf if isinstance(share, Infeasible) else share.step_s)
    if isinstance(outcome, Infeasible):
        return outcome
    rate = sum(batches) / outcome.step_s
    tasks = tuple(
        TrainingTask(batch, count, task_samples, batch / count / most_samples)
        for batch, count, task_samples in zip(batches, shares, samples, strict=True)
    )
    return SharedAccelerators(npus, tasks, outcome.step_s, rate, rate / npus)


def share_among_tasks(
    design: str,
    *,
    batch: Sequence[int],
    npus: int | Sequence[int],
    unit: int = 1,
    settings: Mapping[str, Any] | None = None,
) -> dict[int, SharedAccelerators | Infeasible]:
    """Return, for each number of accelerators in *npus*, how many each task of a multi-task run gets, and its speed.

    *design* is ``MODEL@SYSTEM``, without a size. *batch* has the batch of each task; accelerators are given *unit* at a
    time.

    >>> import cosmic
    >>> shared = cosmic.cluster.tasks("bert-large@dgx-a100", batch=[512, 256, 128], npus=8)
    >>> [task.npus for task in shared[8].tasks]
    [5, 2, 1]
    """
    require(bool(batch), "batch", list(batch), "must be given once for each task")
    counts = [npus] if isinstance(npus, int) else list(npus)
    require(bool(counts), "npus", counts, "must be given")
    return {count: evaluate_tasks(design, batch, share_out(batch, count, unit), settings) for count in counts}
