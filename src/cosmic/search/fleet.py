"""Several jobs on one cluster: read, price, place and run them. Read this first.

What a job takes on the cluster is its design on so many accelerators, evaluated by the cost model (`DemandCatalogue`).

Several tasks of one training run: how many accelerators each gets.

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
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any, get_args

import numpy as np

from cosmic.base.errors import SpecError, UnknownName, join_path, require
from cosmic.base.json_types import Share, unit
from cosmic.base.numeric import divisors
from cosmic.cluster.fleet_jobs import (
    OBJECTIVES,
    Fleet,
    FleetJob,
    GangResult,
    JobList,
    JobResult,
    Placement,
    Policy,
    RefusedJob,
    SharingRules,
    TenantTurns,
    read_jobs,
)
from cosmic.cluster.fleet_sharing import FullestMoment, gang_size, run_in_turns, run_partitioned, simulate_turns
from cosmic.cluster.job_requests import (
    Demand,
    JobOption,
    JobRequest,
    JobRun,
    SharedTier,
    UplinkTraffic,
    alone_step_s,
    place_job,
    shared_tier,
)
from cosmic.design import schema
from cosmic.design.design_batch import batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.design.network_layer import Network
from cosmic.design.systems import read_system, split_size
from cosmic.evaluation import evaluate
from cosmic.network.mesh_spans import joint_spans
from cosmic.search.mapping.design_completion import complete_tree, load_design
from cosmic.simulate.metrics import Infeasible
from cosmic.step.bottleneck import network_loads, sent_collectives
from cosmic.step.step_profile import profile_step

# ---- What a job takes on a cluster: its design on so many accelerators, evaluated by the cost model

CONTENTION_POINTS = 9
"""How many factors of contention a step is evaluated at; in between it is interpolated."""


class DemandCatalogue:
    """The demands of all jobs on one cluster, each found once: many jobs are alike."""

    def __init__(self, name: str, folder: Path, tier: SharedTier) -> None:
        self._name, self._folder, self._tier = name, folder, tier
        self._cache: dict[tuple[str, int], Demand | Infeasible] = {}

    def options(self, job: FleetJob) -> tuple[Demand, ...] | Infeasible:
        """Return what a job takes on each number of accelerators that it may have, fewest first; or why none will do.

        Where none is stated, it is the least on which it runs.
        """
        most = self._tier.npus
        allowed = job.terms.npus
        numbers = [npus for npus in allowed or self._sizes() if npus <= most]
        if not numbers:
            allowed_text = " or ".join(f"{npus:,}" for npus in allowed)
            return Infeasible((f"it asks for {allowed_text} accelerators of {most:,}",))
        demands: list[Demand] = []
        reasons: tuple[str, ...] = ()
        for number in numbers:
            demand = self._demand(job, number)
            if isinstance(demand, Infeasible):
                reasons = demand.reasons
            else:
                demands.append(demand)
                if not allowed:
                    break
        return tuple(demands) or Infeasible(reasons)

    def _sizes(self) -> list[int]:
        """Return the numbers of accelerators that are tried where none is stated: parts of a node, then nodes."""
        node, most = self._tier.node, self._tier.npus
        inside = [
            part for part in (1 << power for power in range(node.bit_length())) if node % part == 0 and part < node
        ]
        return [*inside, *(node << power for power in range((most // node).bit_length()))]

    def _demand(self, job: FleetJob, npus: int) -> Demand | Infeasible:
        key = _job_key(job), npus
        if key not in self._cache:
            self._cache[key] = self._evaluate_demand(job, npus)
        return self._cache[key]

    def _evaluate_demand(self, job: FleetJob, npus: int) -> Demand | Infeasible:
        tree: dict[str, Any] = {"model": job.model, "system": system_of_size(self._name, npus)}
        if job.workload:
            tree["workload"] = job.workload
        try:
            return demand_of(complete_tree(tree, self._folder), self._tier)
        except SpecError as error:
            if error.where == "system":
                raise SpecError(join_path(job.where, "npus"), npus, error.rule) from None
            raise error.inside(job.where) from None


def _job_key(job: FleetJob) -> str:
    """Return a text that jobs of the same model and mapping share; of what is not plain, its place in the file."""
    plain = isinstance(job.model, str) and all(isinstance(value, str | int | float) for value in job.workload.values())
    return repr((job.model, sorted(job.workload.items(), key=str))) if plain else job.where


def system_of_size(name: str, npus: int) -> str:
    """Return the name of the part of a system that has so many accelerators.

    >>> system_of_size("dgx-h100:512", 64), system_of_size("tpu-v5p:4x64", 32), system_of_size("tpu-v5p:4x64", 128)
    ('dgx-h100:64', 'tpu-v5p:32', 'tpu-v5p:2x64')
    """
    stem, count = split_size(name)
    _, times, slice_npus = count.rpartition("x")
    if times and npus > int(slice_npus):
        require(
            npus % int(slice_npus) == 0, "npus", npus, f"must be a multiple of the {slice_npus} accelerators of a slice"
        )
        return f"{stem}:{npus // int(slice_npus)}x{slice_npus}"
    return f"{stem}:{npus}"


def cluster_network(name: str, folder: Path) -> Network:
    """Return the network of a whole system."""
    entry: Mapping[str, Any] = read_system(name, folder)
    network: Network = schema.read_value(Network, entry["network"], "network")
    return network


def demand_of(point: DesignPoint, tier: SharedTier) -> Demand | Infeasible:
    """Return what a design takes that runs on a part of the cluster of *tier*, or why it cannot run."""
    require(point.serving is None, "workload", "serving", "a job of a fleet runs steps, and serves no requests")
    dims = point.network.dims
    crosses = point.network.npus > tier.group and bool(dims)
    outer = f"network.dims.{len(dims) - 1}"
    alone = schema.assign_fields(point, {f"{outer}.oversubscription": 1.0}) if crosses else point
    metrics = evaluate(alone)
    if isinstance(metrics, Infeasible):
        return metrics
    factors, steps_s = [1.0], [metrics.step_s]
    sent = _uplink_traffic(alone) if crosses else ()
    if sent and tier.oversubscription > 1:
        for index in range(1, CONTENTION_POINTS):
            factors.append(tier.oversubscription ** (index / (CONTENTION_POINTS - 1)))
            # Uplinks that others use as well leave it so much less bandwidth, wherever its own leaves end.
            slowed = evaluate(
                schema.assign_fields(alone, {f"{outer}.bandwidth": dims[-1].bandwidth_bytes_per_s / factors[-1]})
            )
            if isinstance(slowed, Infeasible):
                return slowed
            steps_s.append(max(slowed.step_s, steps_s[-1]))
    npus = max(point.network.npus, 1)
    return Demand(
        npus=npus,
        held=held_npus(npus, dims[0].npus if dims else 1, tier.node),
        tokens=metrics.throughput_per_s * metrics.step_s,
        memory_bytes=metrics.memory_used_bytes,
        capacity_bytes=point.memory.left_bytes,
        traffic=sent,
        factors=tuple(factors),
        steps_s=tuple(steps_s),
        mapping=_mapping_text(point),
    )


def held_npus(npus: int, inner: int, node: int) -> int:
    """Return the accelerators that a job holds: whole nodes, where it uses *inner* of each and nobody has the rest.

    >>> held_npus(256, 64, 72), held_npus(64, 8, 8), held_npus(4, 4, 8), held_npus(8, 8, 1)
    (288, 64, 4, 8)
    """
    return npus if inner >= node or node % inner == 0 else npus // inner * node


def _uplink_traffic(point: DesignPoint) -> tuple[UplinkTraffic, ...]:
    """Return what an accelerator of the first stage sends into the outermost dimension, by part of the step.

    How far each part reaches is that of its largest collective there.
    """
    step, outer = profile_step(batch_of(point), "first"), len(point.network.dims) - 1
    spans: dict[str, tuple[float, UplinkTraffic]] = {}
    for use in sent_collectives(step):
        span = joint_spans([step.network.shapes[axis] for axis in use.axes])[outer]
        size = float(use.bytes) * float(use.calls)
        if float(span.members) > 1 and size > spans.get(use.part, (-1.0,))[0]:
            reach = (max(2, round(float(span.members))), max(1, round(float(span.step))))
            spans[use.part] = size, UplinkTraffic(0.0, *reach, everywhere=use.kind == "all_to_all")
    loads = [load for load in network_loads(step) if load.dimension == outer and load.bytes > 0]
    return tuple(replace(spans[load.part][1], bytes=load.bytes) for load in loads if load.part in spans)


def _mapping_text(point: DesignPoint) -> str:
    """Return the degrees of parallelism of a design in words."""
    degrees = {axis: getattr(point.workload, axis) for axis in ("tp", "cp", "pp", "ep", "dp")}
    return " ".join(f"{axis}{size}" for axis, size in degrees.items() if size > 1) or "one accelerator"


SIMULATED_TURNS = 2000
"""Turns that are played to measure shares, for each tenant."""


@dataclass(frozen=True, slots=True)
class PreparedJobs:
    """Jobs that can run on a cluster, and those that cannot."""

    system: str
    tier: SharedTier
    requests: tuple[JobRequest, ...]
    refused: tuple[RefusedJob, ...]


def fleet(source: str | Path | Mapping[str, Any], system: str | None = None, **rules: Any) -> Fleet:
    """Return what comes of a list of jobs that share one cluster.

    *source* is a YAML file of jobs, or its content; *system* and *rules* (the fields of
    `cosmic.cluster.fleet_jobs.SharingRules`, as
    they stand in files) come before what it says. Jobs that can never run are among the results, with reasons.

    >>> job = {"model": "llama3-8b", "npus": 8, "duration": "1 h"}
    >>> found = fleet({"jobs": [{"name": "a", **job}, {"name": "b", **job}]}, "dgx-h100:8")
    >>> [(job.name, round(job.wait_s), round(job.slowdown, 9)) for job in found.jobs]
    [('a', 0, 1.0), ('b', 3600, 2.0)]
    """
    jobs = read_jobs(source, system, rules)
    return run_jobs(prepare_jobs(jobs), jobs.rules)


def best_of(
    source: str | Path | Mapping[str, Any], system: str | None = None, objective: str = "mean_slowdown", **rules: Any
) -> tuple[Fleet, ...]:
    """Return what comes of the jobs under every policy and placement in space, and in time, best first.

    What *rules* state is held; of what is equally good, the simpler is first.
    """
    if objective not in OBJECTIVES:
        raise UnknownName.among("objective", objective, "objective", OBJECTIVES)
    jobs = read_jobs(source, system, rules)
    prepared = prepare_jobs(jobs)
    results = [run_jobs(prepared, candidate_rule) for candidate_rule in candidate_rules(jobs.rules, rules)]
    return tuple(
        sorted(results, key=lambda result: (result.value(objective), result.makespan_s, result.mean_slowdown or 0.0))
    )


def candidate_rules(rules: SharingRules, fixed: Mapping[str, Any]) -> list[SharingRules]:
    """Return the rules that a search goes through, with what is *fixed* as it is."""
    choices = {"sharing": ("space", "time"), "policy": get_args(Policy), "placement": get_args(Placement)}
    free = {key: (getattr(rules, key),) if key in fixed else values for key, values in choices.items()}
    in_space = product(free["policy"], free["placement"]) if "space" in free["sharing"] else ()
    candidates = [replace(rules, sharing="space", policy=policy, placement=where) for policy, where in in_space]
    return candidates + ([replace(rules, sharing="time")] if "time" in free["sharing"] else [])


def prepare_jobs(jobs: JobList) -> PreparedJobs:
    """Return the jobs with what each takes on the cluster."""
    rules = jobs.rules
    tier = shared_tier(cluster_network(jobs.system, jobs.folder), rules.leaf, rules.oversubscription)
    catalogue = DemandCatalogue(jobs.system, jobs.folder, tier)
    requests: list[JobRequest] = []
    refused: list[RefusedJob] = []
    for job in jobs.jobs:
        options = _job_options(job, catalogue, tier)
        for terms in job.each():
            if isinstance(options, Infeasible):
                refused.append(RefusedJob(terms.name, options.reasons))
            else:
                requests.append(
                    JobRequest(
                        name=terms.name,
                        arrival_s=terms.arrival_s,
                        options=options,
                        priority=terms.priority,
                        share=terms.share,
                        gap_s=terms.gap_s,
                    )
                )
    return PreparedJobs(jobs.system, tier, tuple(requests), tuple(refused))


def _job_options(job: FleetJob, catalogue: DemandCatalogue, tier: SharedTier) -> tuple[JobOption, ...] | Infeasible:
    demands = catalogue.options(job)
    if isinstance(demands, Infeasible):
        return demands
    fitting = [
        candidate for candidate in demands if place_job(((0, tier.npus),), candidate.held, tier, "packed") is not None
    ]
    if not fitting:
        sizes = ", ".join(f"{candidate.held:,}" for candidate in demands)
        return Infeasible((f"the {sizes} accelerators of its nodes have no place among {tier.npus:,}",))
    options = []
    for demand in fitting:
        step_s = alone_step_s(demand, tier) + job.terms.gap_s
        options.append(JobOption(demand=demand, steps=demand.steps(job.terms, step_s), alone_step_s=step_s))
    return tuple(options)


def run_jobs(prepared: PreparedJobs, rules: SharingRules) -> Fleet:
    """Return what comes of prepared jobs under some rules."""
    tier, requests, refused = prepared.tier, prepared.requests, prepared.refused
    moments: tuple[FullestMoment, ...] = ()
    if rules.sharing == "space":
        runs = run_partitioned(requests, tier, rules)
    else:
        size = gang_size(requests, tier, rules)
        why = f"it needs more than the {size:,} accelerators of a gang"
        large = (request for request in requests if request.options[0].demand.held > size)
        refused = (*refused, *(RefusedJob(request.name, (why,)) for request in large))
        requests = tuple(request for request in requests if request.options[0].demand.held <= size)
        runs, moments = run_in_turns(requests, tier, rules)
    return Fleet(
        system=prepared.system,
        npus=tier.npus,
        rules=rules,
        leaf=tier.leaf,
        oversubscription=tier.oversubscription,
        jobs=tuple(_job_result(request, run) for request, run in zip(requests, runs, strict=True)),
        refused=refused,
        gangs=tuple(_gang_result(moment, requests, rules) for moment in moments),
    )


def _job_result(request: JobRequest, ran: JobRun) -> JobResult:
    option, demand = ran.option, ran.option.demand
    spent = ran.end_s - ran.start_s or option.alone_s  # what is shorter than the clock's last digit takes no time
    return JobResult(
        name=request.name,
        arrival_s=request.arrival_s,
        start_s=ran.start_s,
        end_s=ran.end_s,
        npus=demand.npus,
        accelerators=ran.ranges,
        steps=option.steps,
        alone_s=request.options[-1].alone_s,
        alone_step_s=option.alone_step_s,
        step_s=spent / option.steps,
        device_s=ran.device_s,
        tokens_per_s=demand.tokens * option.steps / spent,
        share=request.share,
        priority=request.priority,
        memory_bytes=demand.memory_bytes,
        mapping=demand.mapping,
        waited_for=ran.waited_for,
    )


def _gang_result(moment: FullestMoment, requests: Sequence[JobRequest], rules: SharingRules) -> GangResult:
    tenants = [tenant for _, tenant in moment.tenants]
    played = simulate_turns(tenants, rules.quantum_s, SIMULATED_TURNS * len(tenants))
    total = sum(tenant.share for tenant in tenants)
    rows = zip(moment.tenants, played.measured(), strict=True)
    shares = tuple(TenantTurns(requests[index].name, tenant.share / total, got) for (index, tenant), got in rows)
    return GangResult(*moment.range, played.utilization, shares)


# ---- Several tasks of one training run: how many accelerators each gets

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
