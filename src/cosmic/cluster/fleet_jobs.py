"""A list of jobs for one cluster, as people write it: who wants what, from when on, for how long, and how to share.

The file is a mapping: the fields of `SharingRules`, ``system`` and ``jobs``, a list of mappings with the fields of
`JobTerms`, ``model`` and ``workload``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from cosmic.base.errors import SpecError, UnknownName, as_key, join_path, require
from cosmic.base.json_types import (
    Count,
    Fraction,
    NonNegative,
    NonNegativeRatio,
    PositiveCount,
    Ratio,
    Share,
    json_keys,
    one_of,
)
from cosmic.design import catalog_entries, schema
from cosmic.design.schema import check_bounds

Sharing = Literal["space", "time"]
Policy = Literal["fifo", "priority", "backfill"]
Placement = Literal["packed", "first_fit", "scattered"]
Range = tuple[int, int]
"""Accelerators: the first, and the one after the last."""
Ranges = tuple[Range, ...]
WaitedFor = Literal["", "accelerators", "jobs before it", "memory", "a turn"]
"""What a job waited for; nothing if it began at once."""
FIND_COUNT = "find"
"""Stands for what a quick search is to choose."""
MOST_JOBS = 100_000
_RANGE = re.compile(r"\s*(\d{1,9})\s*-\s*(\d{1,9})\s*", re.ASCII)
_AMOUNT = re.compile(r"\s*(\d{1,15}(?:\.\d{1,15})?(?:[eE]\+?\d{1,2})?)\s*([kMBT]?)\s*", re.ASCII)
_UNIT_FACTORS = {"": 1.0, "k": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingRules:
    """How jobs share a cluster."""

    sharing: Sharing = "space"
    """In space, each job has accelerators of its own; in time, gangs of accelerators take turns."""
    policy: Policy = "fifo"
    """Who of those that wait is next, in space: by arrival, by priority, or whoever delays no one before it (EASY)."""
    placement: Placement = "packed"
    """Where a job goes: the tightest contiguous place in the fewest leaves, the first one, or dealt over leaves."""
    leaf: int = 0
    """Accelerators below one leaf switch; 0: as many as the network has below its outermost dimension."""
    oversubscription: Ratio | None = None
    """What accelerators can send out of a leaf, over what its uplinks carry; by default as the system says."""
    quantum_s: float = 1.0
    """In time: how long a turn of the smallest share is at least; others have longer ones."""
    switch_s: float = 0.0
    """In time: how long accelerators are idle when another job takes its turn."""
    swap_bytes_per_s: float | None = None
    """In time: at what rate an accelerator's memory is swapped; without it, jobs that take turns stay in memory."""
    gang: int = 0
    """In time: accelerators that take turns together; 0: as many as the largest job asks for."""
    tenants: int = field(default=16, metadata={"most": 1024})
    """In time: the most jobs that share a gang; others wait."""

    def __post_init__(self) -> None:
        check_bounds(self)
        for key, value in (("leaf", self.leaf), ("gang", self.gang), ("switch", self.switch_s)):
            require(value >= 0, key, value, "must not be negative")
        share = self.oversubscription
        require(share is None or share >= 1, "oversubscription", share, "must be at least 1, which is none")
        require(self.quantum_s > 0, "quantum", self.quantum_s, "must be positive")
        rate = self.swap_bytes_per_s
        require(rate is None or rate > 0, "swap", rate, "must be positive")
        require(self.tenants >= 1, "tenants", self.tenants, "must be at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTerms:
    """What a job asks for: everything but its model and its mapping."""

    name: str
    npus: tuple[int, ...] = ()
    """The numbers of accelerators that it can run on, in files also a range such as 32-128; none: found."""
    share: float = 1.0
    """Weight of its device time beside others, in time."""
    priority: int = 0
    """In space: higher is sooner, unless the policy is fifo."""
    arrival_s: float = 0.0
    steps: int | None = None
    tokens: float | None = None
    duration_s: float | None = None
    """How long it takes alone on the empty cluster. One of steps, tokens and duration is stated."""
    gap_s: float = 0.0
    """How long its host prepares a step after the last one ended, while its accelerators idle; others may use them."""
    count: int = field(default=1, metadata={"most": MOST_JOBS})
    """How many such jobs there are."""
    every_s: float = 0.0
    """How long after each of them the next one arrives."""

    def __post_init__(self) -> None:
        check_bounds(self)
        for number in self.npus:
            require(number >= 1, "npus", number, "must be at least 1")
        require(self.share > 0, "share", self.share, "must be positive")
        for key, length_s in (("arrival", self.arrival_s), ("gap", self.gap_s), ("every", self.every_s)):
            require(length_s >= 0, key, length_s, "must not be negative")
        require(self.count >= 1, "count", self.count, "must be at least 1")
        lengths = {"steps": self.steps, "tokens": self.tokens, "duration": self.duration_s}
        stated_lengths = {key: length for key, length in lengths.items() if length is not None}
        rule = "say how long it is by one of steps, tokens and duration"
        require(bool(stated_lengths), "steps", schema.Absent(), rule)
        require(len(stated_lengths) == 1, *list(stated_lengths.items())[-1], rule)
        for key, length in stated_lengths.items():
            require(length > 0, key, length, "must be positive")


@dataclass(frozen=True, slots=True)
class FleetJob:
    """One job, or several alike."""

    terms: JobTerms
    model: Any
    """Name, path or description of the model, as in a design file."""
    workload: Mapping[str, Any]
    """Fields of the workload that are stated; the best mapping of a quick search has the others."""
    where: str
    """Its place in the file."""

    def each(self) -> list[JobTerms]:
        """Return the terms of every single job, named by number where there are several.

        >>> job = FleetJob(JobTerms(name="a", steps=1, count=2, every_s=3.0), "gpt3-13b", {}, "jobs.0")
        >>> [(each.name, each.arrival_s) for each in job.each()]
        [('a-1', 0.0), ('a-2', 3.0)]
        """
        terms = self.terms
        if terms.count == 1:
            return [terms]
        return [
            replace(terms, name=f"{terms.name}-{number + 1}", arrival_s=terms.arrival_s + number * terms.every_s)
            for number in range(terms.count)
        ]


@dataclass(frozen=True, slots=True)
class JobList:
    """What a file of jobs says."""

    jobs: tuple[FleetJob, ...]
    rules: SharingRules
    system: str
    folder: Path
    """What paths in it are relative to."""


JOB_LAYERS = ("model", "workload")
FILE_KEYS = ("system", "jobs")


def read_jobs(
    source: str | Path | Mapping[str, Any], system: str | None = None, changes: Mapping[str, Any] | None = None
) -> JobList:
    """Return the jobs of a file, or of its content; *system* and *changes* of its rules come before what it says."""
    folder = Path() if isinstance(source, Mapping) else Path(source).parent
    tree = source if isinstance(source, Mapping) else catalog_entries.load_mapping(Path(source))
    keys = (*FILE_KEYS, *schema.slots(SharingRules))
    for key in tree:
        if key not in keys:
            raise UnknownName.key(as_key(key), tree[key], keys)
    rules = {key: value for key, value in tree.items() if key not in FILE_KEYS} | dict(changes or {})
    named = _system_name(tree, system)
    listed = tree.get("jobs", schema.Absent())
    require(isinstance(listed, list | tuple), "jobs", listed, "must be a list of jobs")
    require(bool(listed), "jobs", listed, "there is no job")
    jobs = tuple(_read_job(job_tree, f"jobs.{index}") for index, job_tree in enumerate(listed))
    total = sum(job.terms.count for job in jobs)
    require(total <= MOST_JOBS, "jobs", total, f"are more than {MOST_JOBS:,}")
    _check_names(jobs)
    return JobList(jobs, schema.read_value(SharingRules, rules, ""), named, folder)


def _system_name(tree: Mapping[str, Any], system: str | None) -> str:
    """Return the system's name; a path in it is relative to the working directory, or to the file that states it."""
    if system is None:
        require("system" in tree, "system", schema.Absent(), "say which cluster they share, such as dgx-h100:512")
        return schema.read_source(tree["system"], "system")
    schema.read_source(system, "system")
    return str(Path(system).absolute()) if ".yaml" in system or ".yml" in system else system


def _read_job(tree: Any, where: str) -> FleetJob:
    require(isinstance(tree, Mapping), where, tree, "must be a mapping of keys to values")
    keys = (*JOB_LAYERS, *schema.slots(JobTerms))
    for key in tree:
        if key not in keys:
            raise UnknownName.key(join_path(where, as_key(key)), tree[key], keys)
    require("model" in tree, join_path(where, "model"), schema.Absent(), "is required")
    terms = {key: value for key, value in tree.items() if key not in JOB_LAYERS}
    if "npus" in terms:
        terms["npus"] = read_npu_counts(terms["npus"], join_path(where, "npus"))
    if "tokens" in terms:
        terms["tokens"] = _read_token_amount(terms["tokens"], join_path(where, "tokens"))
    workload = tree.get("workload", FIND_COUNT)
    workload = {} if workload == FIND_COUNT else workload
    rule = f"must be a mapping of a workload's fields, or '{FIND_COUNT}'"
    require(isinstance(workload, Mapping), join_path(where, "workload"), workload, rule)
    return FleetJob(schema.read_value(JobTerms, terms, where), tree["model"], workload, where)


def read_npu_counts(value: Any, where: str) -> list[Any]:
    """Return the numbers of accelerators that a file states in one of four ways.

    >>> [read_npu_counts(given, "npus") for given in (64, [8, 24], "16-100", "find")]
    [[64], [8, 24], [16, 32, 64], []]
    """
    if isinstance(value, list | tuple):
        require(bool(value), where, value, f"name at least one number, or '{FIND_COUNT}'")
        return sorted(value) if all(type(count) is int for count in value) else list(value)
    if not isinstance(value, str):
        return [value]
    if value == FIND_COUNT:
        return []
    match = _RANGE.fullmatch(value)
    if match is None:
        raise SpecError(where, value, f"write a number, a range such as 32-128, a list, or '{FIND_COUNT}'")
    lowest, highest = map(int, match.groups())
    require(1 <= lowest <= highest, where, value, "a range begins at 1 or more, and ends above")
    return [lowest << power for power in range((highest // lowest).bit_length())]


def _read_token_amount(value: Any, where: str) -> Any:
    """Return a number of tokens: YAML reads 1e12 as text, and people write 15 T.

    >>> _read_token_amount("1.5 T", "tokens"), _read_token_amount(100, "tokens")
    (1500000000000.0, 100)
    """
    if not isinstance(value, str):
        return value
    match = _AMOUNT.fullmatch(value)
    if match is None:
        raise SpecError(where, value, "write a number of tokens, such as 300e9 or '300 B'")
    return float(match[1]) * _UNIT_FACTORS[match[2]]


def _check_names(jobs: tuple[FleetJob, ...]) -> None:
    """Refuse two jobs of one name."""
    names: set[str] = set()
    for job in jobs:
        for terms in job.each():
            require(
                terms.name not in names, join_path(job.where, "name"), terms.name, "is the name of another job, too"
            )
            names.add(terms.name)


# ---- What came of several jobs on one cluster


Objective = Literal["mean_slowdown", "makespan", "utilization"]
OBJECTIVES: dict[str, float] = {"mean_slowdown": 1.0, "makespan": 1.0, "utilization": -1.0}
"""What can be best, and with which sign less of it is better."""


@json_keys("wait_s", "run_s", "slowdown")
@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """One job."""

    name: str
    """Its name."""
    arrival_s: NonNegative
    """When it came."""
    start_s: NonNegative
    """When it began."""
    end_s: NonNegative
    """When it ended."""
    npus: PositiveCount
    """Accelerators that it used."""
    accelerators: tuple[tuple[Count, Count], ...]
    """Where they lie: the first, and the one after the last, of each range."""
    steps: NonNegativeRatio
    """Its steps."""
    alone_s: NonNegative
    """How long it takes alone on the empty cluster, on the most accelerators that it may have."""
    alone_step_s: NonNegative
    """From one step to the next, alone on as many accelerators as it had."""
    step_s: NonNegative
    """The same here, on average."""
    device_s: NonNegative
    """How long its accelerators ran it: in space all the time, in time its turns."""
    tokens_per_s: NonNegative
    """Tokens of its steps over the time that it ran; samples, of a model without a sequence."""
    share: NonNegativeRatio
    """Weight of its device time."""
    priority: int
    """Its priority."""
    memory_bytes: NonNegative
    """Memory that it needs of an accelerator."""
    mapping: str
    """Its degrees of parallelism, such as tp4 dp8."""
    waited_for: WaitedFor
    """What it waited for; empty if it began at once."""

    @property
    def wait_s(self) -> NonNegative:
        """How long it waited."""
        return self.start_s - self.arrival_s

    @property
    def run_s(self) -> NonNegative:
        """How long it ran, or took turns."""
        return self.end_s - self.start_s

    @property
    def slowdown(self) -> NonNegativeRatio:
        """Time from arrival to end, over what it takes alone on the empty cluster."""
        return (self.end_s - self.arrival_s) / self.alone_s or 1.0  # none: shorter than the clock's last digit


@dataclass(frozen=True, slots=True)
class RefusedJob:
    """A job that can never run here, and why."""

    name: str
    """Its name."""
    reasons: tuple[str, ...]
    """Why not."""


@dataclass(frozen=True, slots=True)
class TenantTurns:
    """One job at the fullest moment of its gang, when its turns were played one by one."""

    name: str
    """Its name."""
    share: float
    """What it asked for, of all shares of the gang."""
    measured: Share
    """What it got of the device time."""


@dataclass(frozen=True, slots=True)
class GangResult:
    """A gang when it had the most tenants: what the turns gave each."""

    first: int
    """Its first accelerator."""
    end: int
    """The one after its last."""
    utilization: float
    """The part of the time in which its accelerators ran steps."""
    tenants: tuple[TenantTurns, ...]
    """Its jobs."""


@dataclass(frozen=True, slots=True)
class Occupancy:
    """A job on a range of accelerators, for some time."""

    name: str
    """The job."""
    first: int
    """The first accelerator."""
    end: int
    """The one after the last."""
    start_s: float
    """From when."""
    end_s: float
    """Until when."""
    device: Share
    """The part of this time in which it had them: 1 in space."""


@json_keys("makespan_s", "utilization", "mean_slowdown", "max_slowdown", "fairness", own=False, rules="rules_applied")
@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """What came of all jobs on a cluster, under one set of rules."""

    system: str
    """The cluster."""
    npus: PositiveCount
    """Accelerators of the cluster."""
    rules: SharingRules
    leaf: PositiveCount
    """Accelerators below one leaf switch."""
    oversubscription: float
    jobs: tuple[JobResult, ...]
    """The jobs that ran."""
    refused: tuple[RefusedJob, ...]
    """Jobs that can never run here."""
    gangs: tuple[GangResult, ...] = ()
    """In time: each gang when it had the most tenants, its turns played one by one."""

    @property
    def rules_applied(self) -> SharingRules:
        """The rules, with the oversubscription that the system has where they state none."""
        return replace(self.rules, oversubscription=self.oversubscription)

    @property
    def start_s(self) -> float:
        """When the first job arrived."""
        return min((job.arrival_s for job in self.jobs), default=0.0)

    @property
    def makespan_s(self) -> NonNegative:
        """From the first arrival to the last end."""
        return max((job.end_s for job in self.jobs), default=self.start_s) - self.start_s

    @property
    def utilization(self) -> Fraction:
        """Accelerator-seconds in which jobs ran, over all of the makespan."""
        spent = sum(job.npus * job.device_s for job in self.jobs)
        return min(1.0, spent / (self.npus * self.makespan_s)) if self.makespan_s else 0.0

    @property
    def mean_slowdown(self) -> Ratio | None:
        """Mean over jobs of the time from arrival to end, over what the job takes alone; None if none ran."""
        return sum(job.slowdown for job in self.jobs) / len(self.jobs) if self.jobs else None

    @property
    def max_slowdown(self) -> Ratio | None:
        """The most of it."""
        return max((job.slowdown for job in self.jobs), default=None)

    @property
    def fairness(self) -> Ratio | None:
        """Jain's index of speeds over shares: 1 if all jobs are slowed in proportion."""
        return jain_index([1 / (job.slowdown * job.share) for job in self.jobs]) if self.jobs else None

    @property
    def intervals(self) -> tuple[Occupancy, ...]:
        """Who had which accelerators when, in the order of their beginning."""
        intervals = [
            Occupancy(job.name, first, end, job.start_s, job.end_s, job.device_s / job.run_s if job.run_s else 0.0)
            for job in self.jobs
            for first, end in job.accelerators
        ]
        return tuple(sorted(intervals, key=lambda interval: (interval.start_s, interval.first, interval.name)))

    def value(self, objective: str) -> float:
        """Return the objective, such that less is better."""
        if objective not in OBJECTIVES:
            raise UnknownName.among("objective", objective, "objective", OBJECTIVES)
        values = {
            "mean_slowdown": self.mean_slowdown or 0.0,
            "makespan": self.makespan_s,
            "utilization": self.utilization,
        }
        return OBJECTIVES[objective] * values[objective]


@json_keys(
    beside=("best",),
    system="best.system",
    npus="best.npus",
    leaf="best.leaf",
    jobs="best.jobs",
    refused="best.refused",
    gangs="best.gangs",
    timeline="best.intervals",
)
@dataclass(frozen=True, slots=True)
class ComparedFleets:
    """Several jobs on one cluster: when and where each runs, and what sharing costs it."""

    best: Fleet
    objective: Annotated[str | None, one_of(*OBJECTIVES, None)] = None
    """What is best, with --search; else null."""
    candidates: tuple[Fleet, ...] = ()
    """With --search: all rules that were tried, best first."""


def jain_index(values: Sequence[float]) -> float:
    r"""Return Jain's index of fairness: 1 where all values are equal, 1/n where one has all.

        J = (sum x)^2 / (n sum x^2)

    Jain, Chiu & Hawe, DEC Research Report TR-301, 1984.

    >>> jain_index([2.0, 2.0]), jain_index([1.0, 0.0, 0.0, 0.0])
    (1.0, 0.25)
    """
    largest = max(values)
    scaled = [value / largest for value in values] if largest else list(values)
    squares = sum(value * value for value in scaled)
    return sum(scaled) ** 2 / (len(scaled) * squares) if squares else 1.0
