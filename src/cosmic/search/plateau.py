"""The plateau: all designs that are as good as the best, as far as a model can tell, and which of them to take.

A model that is off by a few percent cannot rank designs that differ by less. Of those within `TIE_SHARE` of the best, the
cheapest to buy is taken, then the simplest to run, then the one that loses least where links, memory or compute
turn out slower than their catalog says. A design that is worse than the base is never taken: nobody would change for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cosmic.design.design_batch import batch_of_changes
from cosmic.design.design_point import DesignPoint
from cosmic.design.model_layer import is_moe
from cosmic.design.workload_layer import AXES
from cosmic.evaluation import evaluate_batch
from cosmic.search.objectives import losses
from cosmic.search.problem import Problem
from cosmic.search.space.diagram import Indices
from cosmic.search.trials import Trials

TIE_SHARE = 0.01
"""Designs whose loss is at most this share above the least are equal: the order of mappings is no surer than that."""
SAME_PRICE = 1e-6
"""Share by which prices may differ and be the same."""
COMPARED_DESIGNS = 256
"""Of equally cheap designs, how many of the best are compared for simplicity."""
DEGRADED_RATE = 0.9
"""What is left of a rate, where a design is tried against slower parts than its catalog has."""


@dataclass(frozen=True, slots=True)
class Plateau:
    """Designs that are as good as the best."""

    within: float
    """The share of the least loss that still counts as equal."""
    count: int
    """Trials that are on it."""
    place: int
    """The trial to take."""
    above: float
    """By what share its loss is above the least."""
    error: float | None = None
    """The expected error of the best design's step; None where it was not measured."""
    within_error: int = 0
    """Trials whose loss is within that error of the least."""


def find_plateau(problem: Problem, trials: Trials, within: float = TIE_SHARE) -> Plateau | None:
    """Return the plateau of a search by its first objective, and the design to take; None where nothing can run.

    With several objectives, or several workloads, the best trial is taken: the front says what there is to choose.
    """
    best = trials.best(problem)
    if best is None:
        return None
    trial_losses = losses(problem.objectives[:1], trials.results.columns)[:, 0]
    if not problem.of_designs:  # nobody knows how far off it is, nor which of two is simpler
        return Plateau(0.0, 1, best, 0.0)
    least = trial_losses[best]
    with np.errstate(invalid="ignore"):
        equal = np.flatnonzero(trials.results.feasible & (trial_losses <= least * (1 + within)))
    alone = len(problem.objectives) > 1 or bool(problem.space.workloads) or problem.engine != "analytic"
    trial = best
    if not alone:
        offered = equal[trial_losses[equal] <= max(least, problem.base_loss)]
        trial = _choose_design(problem, trials, offered[np.argsort(trial_losses[offered], kind="stable")])
    above = float(trial_losses[trial] / least - 1) if least else 0.0
    error = None if problem.space.workloads else _expected_error(problem.space.point(trials.row(best)))
    with np.errstate(invalid="ignore"):
        near = int((trials.results.feasible & (trial_losses <= least * (1 + (error or 0.0)))).sum())
    return Plateau(within, len(equal), trial, above, error, near)


def _expected_error(point: DesignPoint) -> float | None:
    from cosmic.design.prediction_accuracy import expected_error  # noqa: PLC0415  its tables are read when first asked for
    from cosmic.serving.serving_accuracy import tpot_expectation  # noqa: PLC0415  the same

    return (expected_error(point) if point.serving is None else tpot_expectation(point)).error


def _choose_design(problem: Problem, trials: Trials, equal: Indices) -> int:
    """Return which of *equal* trials, the best first, to take."""
    prices = trials.results.columns["cost_usd"][equal]
    if not np.isnan(prices).any():
        equal = equal[prices <= prices.min() * (1 + SAME_PRICE)]
    points = [problem.space.point(trials.row(int(index))) for index in equal[:COMPARED_DESIGNS]]
    effort = np.array([mapping_complexity(point) for point in points])
    simplest = np.flatnonzero(effort == effort.min())
    if len(simplest) == 1:
        return int(equal[simplest[0]])
    worst = [worst_case_loss(points[index], problem.objectives[0]) for index in simplest]
    return int(equal[simplest[int(np.argmin(worst))]])


def mapping_complexity(point: DesignPoint) -> int:
    """Return how much there is to set up and to go wrong in a mapping: one for each axis and each unusual switch.

    >>> from cosmic.search.mapping.design_completion import load_design
    >>> mesh = {"tp": 4, "pp": 1, "cp": 1, "schedule": "1f1b", "recompute": "none", "tp_overlap": False}
    >>> plain = load_design("llama3-8b@dgx-h100:8", {**mesh, "weight_sharding": "zero1"})
    >>> mapping_complexity(plain), mapping_complexity(load_design("llama3-8b@dgx-h100:8", {**mesh, "weight_sharding": "zero3"}))
    (2, 3)
    """
    workload = point.workload
    switches = (
        workload.virtual_stages > 1,
        workload.pp > 1 and workload.schedule not in ("1f1b", "interleaved"),
        workload.shards_gradients,
        workload.recompute != "none",
        workload.recompute == "selective" and len(workload.recompute_modules) > 1,
        workload.tp_overlap and workload.tp > 1,
        workload.ep_overlap and workload.ep > 1,
        workload.cp > 1 and workload.cp_comm_type != "ring",
        workload.pp > 1 and workload.placement != AXES,
        is_moe(point.model) and workload.ep > 1,
        is_moe(point.model) and workload.expert_tensor > 1,
    )
    axes = [axis for axis in AXES if getattr(workload, axis) > 1]
    return len(axes) + sum(map(bool, switches)) + len(workload.offload)


def worst_case_loss(point: DesignPoint, objective: str) -> float:
    """Return the greatest loss of a design among those whose links, memory or compute are slower than stated."""
    outcome = evaluate_batch(batch_of_changes(point, list(_degrade_parts(point))))
    degraded_losses: npt.NDArray[np.float64] = losses([objective], outcome.columns)[:, 0]
    return float(np.max(np.where(outcome.feasible, degraded_losses, np.inf)))


def _degrade_parts(point: DesignPoint) -> Iterator[dict[str, float]]:
    for index, dim in enumerate(point.network.dims):
        yield {f"network.dims.{index}.bandwidth": DEGRADED_RATE * dim.bandwidth_bytes_per_s}
    yield {"memory.bandwidth": DEGRADED_RATE * point.memory.bandwidth_bytes_per_s}
    rates = {name: getattr(point.compute, f"{name}_flop_per_s") for name in ("bf16", "fp8", "tf32", "achieved_bf16")}
    yield {f"compute.{name}": DEGRADED_RATE * rate for name, rate in rates.items() if rate is not None}
