"""Which metrics no design of a parameter set has, and why."""

from __future__ import annotations

from cosmic.design.fabric import INCLUDED
from cosmic.design.model import has_tokens
from cosmic.evaluation import IN_THE_NODE, NEEDS, NO_TOKENS, unknown_metrics
from cosmic.metrics import OF_REQUESTS, OF_RUNS, OF_SAMPLES, OF_TOKENS
from cosmic.pricing.unknown import needed_figures
from cosmic.psa.space import ParameterSet

SERVING = "serving a load"
TASKS = {"ttft_s": ("prefill", SERVING), "tpot_s": ("decode", SERVING), **dict.fromkeys(OF_REQUESTS, (SERVING,))}
TASKS |= dict.fromkeys(OF_RUNS, ("training",))
"""Metrics of some tasks alone."""
LIMITS = ("ttft_slo", "tpot_slo")
"""Limits of requests, without which none counts as good."""
OF_NETWORK = ("perf_per_bandwidth", "perf_per_network_cost")
OF_LENGTH = ("train_days", "train_usd", "train_energy_j", "train_co2_kg")
"""Metrics of training runs that have a length."""


def never_known(space: ParameterSet, metric: str) -> str:
    """Return why no design of *space* has a *metric*: for want of a figure, a network or a task; empty if some do."""
    if reason := _of_other_tasks(space, metric) or _counted_otherwise(space, metric):
        return reason
    if metric == "goodput_per_s" and not _has_limits(space):
        return "no request has a limit: give serving.load.ttft_slo or tpot_slo"
    if metric in OF_NETWORK and not space.base.network.dims:
        return "one accelerator has no network"
    if metric in OF_RUNS and all(value is None for value in space.values_of("run.npu_mtbf")):
        return "no rate of interruptions is known for any of the accelerators: set run.npu_mtbf"
    if metric in OF_LENGTH and all(value is None for value in space.values_of("run.tokens")):
        return "the run has no length: set run.tokens, such as 15T"
    if metric == OF_NETWORK[1] and _all_included(space):
        return IN_THE_NODE
    for quantity in NEEDS.get(metric, ()):
        for path, part in needed_figures(space.base, quantity).items():
            if all(value is None for value in space.values_of(path)) and not _builds_vary(space, path):
                of = "any of the accelerators" if path.startswith("compute.") else part
                return unknown_metrics(space.base).get(metric, f"no {quantity.rpartition('.')[2]} is known for {of}")
    return ""


def _of_other_tasks(space: ParameterSet, metric: str) -> str:
    """Return that a *metric* is one of other tasks than those of *space*."""
    tasks = _tasks(space)
    if metric not in TASKS or set(TASKS[metric]) & set(tasks):
        return ""
    return f"it is a metric of {' or '.join(TASKS[metric])}, and the task is {' or '.join(tasks)}"


def _counted_otherwise(space: ParameterSet, metric: str) -> str:
    """Return why a *metric* counts what the model of *space* does not have: tokens, or samples without any."""
    tokens = has_tokens(space.base.model)
    if metric in OF_SAMPLES and tokens:
        return "the model has a sequence, so that tokens are counted: see tokens_per_s"
    return NO_TOKENS if metric in OF_TOKENS and not tokens else ""


def _all_included(space: ParameterSet) -> bool:
    """Return whether every dimension of every design of *space* is part of a node."""
    places = range(len(space.base.network.dims))
    return {name for place in places for name in space.values_of(f"network.dims.{place}.fabric.build")} == {INCLUDED}


def _builds_vary(space: ParameterSet, path: str) -> bool:
    """Return whether designs of *space* have the dimension of a figure at *path* built in several ways."""
    where, fabric, _ = path.partition(".fabric.")
    return bool(fabric) and len(set(space.values_of(f"{where}.fabric.build"))) > 1


def _tasks(space: ParameterSet) -> list[str]:
    """Return what designs of *space* do: tasks of a step, or serving."""
    bases = [share.base for share in space.workloads] or [space.base]
    found = {SERVING if base.serving is not None else base.workload.task for base in bases}
    if not space.workloads and space.base.serving is None:
        found = set(space.values_of("workload.task"))
    return sorted(found)


def _has_limits(space: ParameterSet) -> bool:
    """Return whether some request of some design has a limit."""
    if any(path.rpartition(".")[2] in LIMITS for each in space.parameters for path in each.paths):
        return True
    loads = [each.serving.load for each in (space.base, *(share.base for share in space.workloads)) if each.serving]
    return any(getattr(kind, f"{name}_s") is not None for load in loads for kind in load.all_classes for name in LIMITS)
