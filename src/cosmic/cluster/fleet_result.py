"""What came of several jobs on one cluster: how each job fared, gangs, refusals, and who had which accelerators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from cosmic.base.errors import UnknownName
from cosmic.base.json_types import Share
from cosmic.cluster.fleet_jobs import SharingRules
from cosmic.cluster.job_placement import Ranges

Objective = Literal["mean_slowdown", "makespan", "utilization"]
OBJECTIVES: dict[str, float] = {"mean_slowdown": 1.0, "makespan": 1.0, "utilization": -1.0}
"""What can be best, and with which sign less of it is better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """How one job fared."""

    name: str
    arrival_s: float
    start_s: float
    end_s: float
    npus: int
    """Accelerators that it used."""
    accelerators: Ranges
    """Where they lie: the first, and the one after the last, of each range."""
    steps: float
    alone_s: float
    """How long it takes alone on the empty cluster."""
    alone_step_s: float
    """Seconds from one step to the next, alone."""
    step_s: float
    """The same here, on average."""
    device_s: float
    """How long its accelerators ran it: in space all the time, in time its turns."""
    tokens_per_s: float
    share: float
    priority: int
    memory_bytes: float
    mapping: str
    waited_for: str
    """What it waited for: accelerators, jobs before it, memory, a turn; nothing if it began at once."""

    @property
    def wait_s(self) -> float:
        """How long it waited."""
        return self.start_s - self.arrival_s

    @property
    def run_s(self) -> float:
        """How long it ran, or took turns."""
        return self.end_s - self.start_s

    @property
    def slowdown(self) -> float:
        """Time from its arrival to its end, over what it takes alone on the empty cluster."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """What came of all jobs on a cluster, under one set of rules."""

    system: str
    npus: int
    rules: SharingRules
    leaf: int
    oversubscription: float
    jobs: tuple[JobResult, ...]
    refused: tuple[RefusedJob, ...]
    gangs: tuple[GangResult, ...] = ()

    @property
    def start_s(self) -> float:
        """When the first job arrived."""
        return min((job.arrival_s for job in self.jobs), default=0.0)

    @property
    def makespan_s(self) -> float:
        """From the first arrival to the last end."""
        return max((job.end_s for job in self.jobs), default=self.start_s) - self.start_s

    @property
    def utilization(self) -> float:
        """Accelerator-seconds in which jobs ran, over all of the makespan."""
        spent = sum(job.npus * job.device_s for job in self.jobs)
        return min(1.0, spent / (self.npus * self.makespan_s)) if self.makespan_s else 0.0

    @property
    def mean_slowdown(self) -> float | None:
        """Mean over jobs; None without any."""
        return sum(job.slowdown for job in self.jobs) / len(self.jobs) if self.jobs else None

    @property
    def max_slowdown(self) -> float | None:
        """The most of all jobs."""
        return max((job.slowdown for job in self.jobs), default=None)

    @property
    def fairness(self) -> float | None:
        """Jain's index of speeds over shares, each speed relative to that of the job alone."""
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
