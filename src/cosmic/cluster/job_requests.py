"""Requests of jobs and how each of them ran, and the order of events in which a cluster takes them.

Ends come before arrivals, arrivals in the order of their jobs, then what follows from both (`run_events`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import ceil, inf
from typing import Protocol

from cosmic.cluster.fleet_jobs import JobTerms
from cosmic.cluster.job_placement import (
    Ranges,
    SharedTier,
    UplinkTraffic,
    contention_factor,
    crossing_groups,
    place_job,
)

# ---- What the simulations take and give: requests of jobs, and how each of them ran


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a job takes on some number of accelerators."""

    npus: int
    """Accelerators that it uses."""
    held: int
    """Accelerators that it holds: also those of its nodes that it has no use for."""
    tokens: float
    """Of a step."""
    memory_bytes: float
    """Of an accelerator."""
    capacity_bytes: float
    traffic: tuple[UplinkTraffic, ...] = ()
    """What an accelerator sends into the shared tier in a step."""
    factors: tuple[float, ...]
    steps_s: tuple[float, ...]
    """Seconds of a step where its traffic in the tier is slowed by each of the factors."""
    mapping: str = ""
    """Its mapping, in words."""

    def step_s(self, factor: float) -> float:
        """Return the seconds of a step where its traffic on the shared tier is slowed by *factor*.

        >>> demand = Demand(npus=1, held=1, tokens=1.0, memory_bytes=0.0, capacity_bytes=1.0,
        ...                 factors=(1.0, 4.0), steps_s=(1.0, 2.5))
        >>> demand.step_s(1.0), demand.step_s(2.0), demand.step_s(9.0)
        (1.0, 1.5, 2.5)
        """
        upper = bisect_right(self.factors, factor)
        if upper == 0 or upper == len(self.factors):
            return self.steps_s[min(upper, len(self.factors) - 1)]
        low, high = self.factors[upper - 1], self.factors[upper]
        return self.steps_s[upper - 1] + (self.steps_s[upper] - self.steps_s[upper - 1]) * (factor - low) / (high - low)

    def steps(self, terms: JobTerms, step_s: float) -> float:
        """Return the steps of a job by its terms; of a duration, as many as it holds of *step_s* each."""
        if terms.steps is not None:
            return float(terms.steps)
        if terms.tokens is not None:
            return float(ceil(terms.tokens / self.tokens))
        return (terms.duration_s or 0.0) / step_s


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOption:
    """A number of accelerators that a job may have, and what it takes on them alone."""

    demand: Demand
    steps: float
    alone_step_s: float
    """Seconds from one step to the next, alone on the empty cluster."""

    @property
    def alone_s(self) -> float:
        """How long the job takes alone on the empty cluster."""
        return self.steps * self.alone_step_s


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """A job that can run: when it comes, and what it may have."""

    name: str
    arrival_s: float
    options: tuple[JobOption, ...]
    """Fewest accelerators first."""
    priority: int = 0
    share: float = 1.0
    gap_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRun:
    """How a job ran."""

    option: JobOption
    ranges: Ranges
    start_s: float
    end_s: float
    device_s: float
    """How long its accelerators ran its steps; in space, all the time."""
    waited_for: str = ""
    """What it waited for: accelerators, jobs before it, memory; nothing if it began at once."""


@dataclass(frozen=True, slots=True)
class UplinkLoads:
    """What a job sends up from the leaves where it lies [bytes/s]."""

    peaks: tuple[tuple[float, dict[int, float]], ...] = ()
    """Of each kind of traffic its part of the bytes, and what leaves each leaf while it is sent at full rate."""
    mean: dict[int, float] = field(default_factory=dict)
    """What leaves each leaf on average, over a step that nobody slows."""

    def factor(self, other_loads: Mapping[int, float], tier: SharedTier) -> float:
        """Return by what factor the job's traffic in the tier is slowed beside *other_loads*: by bytes, over its kinds."""
        capacity = tier.uplink_bytes_per_s
        slowed = (part * (contention_factor(peak, other_loads, capacity) - 1) for part, peak in self.peaks)
        return 1.0 + sum(slowed)


def uplink_loads(demand: Demand, ranges: Ranges, tier: SharedTier) -> UplinkLoads:
    """Return what a job sends up from each leaf. Its ranks are in the order of its accelerators."""
    total = sum(load.bytes for load in demand.traffic)
    leaves = [start // tier.leaf for first, end in ranges for start in range(first, end, tier.group)]
    if not total or len(set(leaves)) < 2:
        return UplinkLoads()
    of_group = demand.npus / len(leaves)
    peaks: list[tuple[float, dict[int, float]]] = []
    mean: dict[int, float] = {}
    for traffic in demand.traffic:
        crossed = {leaf: of_group * groups for leaf, groups in crossing_groups(leaves, traffic).items()}
        rate = min(tier.bandwidth_bytes_per_s, traffic.bytes / demand.steps_s[0])
        for leaf, npus in crossed.items():
            mean[leaf] = mean.get(leaf, 0.0) + npus * rate
        full = {leaf: npus * tier.bandwidth_bytes_per_s for leaf, npus in crossed.items()}
        peaks.append((traffic.bytes / total, full))
    return UplinkLoads(tuple(peaks), mean)


def alone_step_s(demand: Demand, tier: SharedTier) -> float:
    """Return the seconds of a step of a job that has the cluster for itself, and the best place in it."""
    best = place_job(((0, tier.npus),), demand.held, tier, "packed")
    return demand.step_s(uplink_loads(demand, best or (), tier).factor({}, tier))


def subtract_own_loads(total: Mapping[int, float], own_loads: Mapping[int, float]) -> dict[int, float]:
    """Return the load of others at the leaves of a job: all of it but its own."""
    return {leaf: max(0.0, total.get(leaf, 0.0) - load) for leaf, load in own_loads.items()}


# ---- The order of events: ends before arrivals, arrivals in the order of their jobs, then what follows from both


class EndQueue:
    """When jobs end. An end that has moved is forgotten; those at the same time are in the order of the jobs."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []
        self._at: dict[int, float] = {}

    def move(self, index: int, end_s: float) -> None:
        """Let a job end at *end_s*, and no longer when it was to end before."""
        self._at[index] = end_s
        heappush(self._heap, (end_s, index))

    def next_s(self) -> float:
        """Return when the next job ends."""
        while self._heap and self._at.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else inf

    def due(self, now_s: float) -> Iterator[int]:
        """Yield the jobs that end until *now_s*, each once."""
        while self.next_s() <= now_s:
            _, index = heappop(self._heap)
            del self._at[index]
            yield index


class ClusterState(Protocol):
    """A cluster at one time."""

    now: float
    ends: EndQueue

    def finish(self, index: int) -> None:
        """End a job now."""

    def arrive(self, index: int) -> None:
        """Take a job in."""

    def settle(self) -> None:
        """Do what follows from all that ended and arrived now."""


def run_events(requests: Sequence[JobRequest], state: ClusterState) -> None:
    """Take the events of all jobs in their order."""
    order = sorted(range(len(requests)), key=lambda index: (requests[index].arrival_s, index))
    arrived = 0
    while arrived < len(order) or state.ends.next_s() < inf:
        coming = requests[order[arrived]].arrival_s if arrived < len(order) else inf
        state.now = min(coming, state.ends.next_s())
        for index in state.ends.due(state.now):
            state.finish(index)
        while arrived < len(order) and requests[order[arrived]].arrival_s <= state.now:
            state.arrive(order[arrived])
            arrived += 1
        state.settle()
