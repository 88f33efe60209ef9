"""Several jobs on one cluster: read, price, place and run them. Read this first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, get_args

from cosmic.errors import UnknownName
from cosmic.evaluation import Infeasible
from cosmic.fleets.demands import Catalogue, cluster_network
from cosmic.fleets.gangs import Moment, gang_size, run_in_turns
from cosmic.fleets.jobs import Job, JobList, Placement, Policy, Rules, Terms, read_jobs
from cosmic.fleets.partitions import run_partitioned
from cosmic.fleets.placing import place
from cosmic.fleets.requests import Option, Request, Run, alone_step_s
from cosmic.fleets.result import OBJECTIVES, Fleet, GangResult, JobResult, Refused, Turns
from cosmic.fleets.sharing import play
from cosmic.fleets.tiers import Tier, tier_of

TURNS = 2000
"""Turns that are played to measure shares, for each tenant."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """Jobs that can run on a cluster, and those that cannot."""

    system: str
    tier: Tier
    requests: tuple[Request, ...]
    refused: tuple[Refused, ...]


def fleet(source: str | Path | Mapping[str, Any], system: str | None = None, **rules: Any) -> Fleet:
    """Return what comes of a list of jobs that share one cluster.

    *source* is a YAML file of jobs, or its content; *system* and *rules* (the fields of `cosmic.fleets.jobs.Rules`, as
    they stand in files) come before what it says. Jobs that can never run are among the results, with reasons.

    >>> job = {"model": "llama3-8b", "npus": 8, "duration": "1 h"}
    >>> found = fleet({"jobs": [{"name": "a", **job}, {"name": "b", **job}]}, "dgx-h100:8")
    >>> [(job.name, round(job.wait_s), round(job.slowdown, 9)) for job in found.jobs]
    [('a', 0, 1.0), ('b', 3600, 2.0)]
    """
    jobs = read_jobs(source, system, rules)
    return run(prepare(jobs), jobs.rules)


def best_of(
    source: str | Path | Mapping[str, Any], system: str | None = None, objective: str = "mean_slowdown", **rules: Any
) -> tuple[Fleet, ...]:
    """Return what comes of the jobs under every policy and placement in space, and in time, best first.

    What *rules* state is held; of what is equally good, the simpler is first.
    """
    if objective not in OBJECTIVES:
        raise UnknownName.among("objective", objective, "objective", OBJECTIVES)
    jobs = read_jobs(source, system, rules)
    prepared = prepare(jobs)
    found = [run(prepared, each) for each in candidates(jobs.rules, rules)]
    return tuple(sorted(found, key=lambda each: (each.value(objective), each.makespan_s, each.mean_slowdown or 0.0)))


def candidates(rules: Rules, held: Mapping[str, Any]) -> list[Rules]:
    """Return the rules that a search goes through, with what is *held* as it is."""
    choices = {"sharing": ("space", "time"), "policy": get_args(Policy), "placement": get_args(Placement)}
    free = {key: (getattr(rules, key),) if key in held else values for key, values in choices.items()}
    in_space = product(free["policy"], free["placement"]) if "space" in free["sharing"] else ()
    found = [replace(rules, sharing="space", policy=policy, placement=where) for policy, where in in_space]
    return found + ([replace(rules, sharing="time")] if "time" in free["sharing"] else [])


def prepare(jobs: JobList) -> Prepared:
    """Return the jobs with what each takes on the cluster."""
    rules = jobs.rules
    tier = tier_of(cluster_network(jobs.system, jobs.folder), rules.leaf, rules.oversubscription)
    catalogue = Catalogue(jobs.system, jobs.folder, tier)
    requests: list[Request] = []
    refused: list[Refused] = []
    for job in jobs.jobs:
        options = _options(job, catalogue, tier)
        for terms in job.each():
            if isinstance(options, Infeasible):
                refused.append(Refused(terms.name, options.reasons))
            else:
                requests.append(_request(terms, options))
    return Prepared(jobs.system, tier, tuple(requests), tuple(refused))


def _options(job: Job, catalogue: Catalogue, tier: Tier) -> tuple[Option, ...] | Infeasible:
    demands = catalogue.options(job)
    if isinstance(demands, Infeasible):
        return demands
    fitting = [each for each in demands if place(((0, tier.npus),), each.held, tier, "packed") is not None]
    if not fitting:
        held = ", ".join(f"{each.held:,}" for each in demands)
        return Infeasible((f"the {held} accelerators of its nodes have no place among {tier.npus:,}",))
    found = []
    for demand in fitting:
        step_s = alone_step_s(demand, tier) + job.terms.gap_s
        found.append(Option(demand=demand, steps=demand.steps(job.terms, step_s), alone_step_s=step_s))
    return tuple(found)


def _request(terms: Terms, options: tuple[Option, ...]) -> Request:
    return Request(
        name=terms.name,
        arrival_s=terms.arrival_s,
        options=options,
        priority=terms.priority,
        share=terms.share,
        gap_s=terms.gap_s,
    )


def run(prepared: Prepared, rules: Rules) -> Fleet:
    """Return what comes of prepared jobs under some rules."""
    tier, requests, refused = prepared.tier, prepared.requests, prepared.refused
    moments: tuple[Moment, ...] = ()
    if rules.sharing == "space":
        runs = run_partitioned(requests, tier, rules)
    else:
        size = gang_size(requests, tier, rules)
        why = f"it needs more than the {size:,} accelerators of a gang"
        large = (request for request in requests if request.options[0].demand.held > size)
        refused = (*refused, *(Refused(request.name, (why,)) for request in large))
        requests = tuple(request for request in requests if request.options[0].demand.held <= size)
        runs, moments = run_in_turns(requests, tier, rules)
    return Fleet(
        system=prepared.system,
        npus=tier.npus,
        rules=rules,
        leaf=tier.leaf,
        oversubscription=tier.oversubscription,
        jobs=tuple(_result(request, each) for request, each in zip(requests, runs, strict=True)),
        refused=refused,
        gangs=tuple(_gang(moment, requests, rules) for moment in moments),
    )


def _result(request: Request, ran: Run) -> JobResult:
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


def _gang(moment: Moment, requests: Sequence[Request], rules: Rules) -> GangResult:
    tenants = [tenant for _, tenant in moment.tenants]
    played = play(tenants, rules.quantum_s, TURNS * len(tenants))
    total = sum(tenant.share for tenant in tenants)
    rows = zip(moment.tenants, played.measured(), strict=True)
    shares = tuple(Turns(requests[index].name, tenant.share / total, got) for (index, tenant), got in rows)
    return GangResult(*moment.range, played.utilization, shares)
