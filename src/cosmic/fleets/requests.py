"""What the simulations take and give: requests of jobs, and how each of them ran."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil

from cosmic.fleets.jobs import Terms
from cosmic.fleets.placing import Ranges, place
from cosmic.fleets.tiers import Tier, Traffic, contention, crossing


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
    traffic: tuple[Traffic, ...] = ()
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
        after = bisect_right(self.factors, factor)
        if after == 0 or after == len(self.factors):
            return self.steps_s[min(after, len(self.factors) - 1)]
        low, high = self.factors[after - 1], self.factors[after]
        return self.steps_s[after - 1] + (self.steps_s[after] - self.steps_s[after - 1]) * (factor - low) / (high - low)

    def steps(self, terms: Terms, step_s: float) -> float:
        """Return the steps of a job by its terms; of a duration, as many as it holds of *step_s* each."""
        if terms.steps is not None:
            return float(terms.steps)
        if terms.tokens is not None:
            return float(ceil(terms.tokens / self.tokens))
        return (terms.duration_s or 0.0) / step_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
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
class Request:
    """A job that can run: when it comes, and what it may have."""

    name: str
    arrival_s: float
    options: tuple[Option, ...]
    """Fewest accelerators first."""
    priority: int = 0
    share: float = 1.0
    gap_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How a job ran."""

    option: Option
    ranges: Ranges
    start_s: float
    end_s: float
    device_s: float
    """How long its accelerators ran its steps; in space, all the time."""
    waited_for: str = ""
    """What it waited for: accelerators, jobs before it, memory; nothing if it began at once."""


@dataclass(frozen=True, slots=True)
class Loads:
    """What a job sends up from the leaves where it lies [bytes/s]."""

    peaks: tuple[tuple[float, dict[int, float]], ...] = ()
    """Of each kind of traffic its part of the bytes, and what leaves each leaf while it is sent at full rate."""
    mean: dict[int, float] = field(default_factory=dict)
    """What leaves each leaf on average, over a step that nobody slows."""

    def factor(self, others: Mapping[int, float], tier: Tier) -> float:
        """Return by what factor the job's traffic in the tier is slowed beside *others*: by bytes, over its kinds."""
        capacity = tier.uplink_bytes_per_s
        slowed = (part * (contention(peak, others, capacity) - 1) for part, peak in self.peaks)
        return 1.0 + sum(slowed)


def loads_at(demand: Demand, ranges: Ranges, tier: Tier) -> Loads:
    """Return what a job sends up from each leaf. Its ranks are in the order of its accelerators."""
    total = sum(each.bytes for each in demand.traffic)
    leaves = [start // tier.leaf for first, end in ranges for start in range(first, end, tier.group)]
    if not total or len(set(leaves)) < 2:
        return Loads()
    of_group = demand.npus / len(leaves)
    peaks: list[tuple[float, dict[int, float]]] = []
    mean: dict[int, float] = {}
    for traffic in demand.traffic:
        crossed = {leaf: of_group * groups for leaf, groups in crossing(leaves, traffic).items()}
        rate = min(tier.bandwidth_bytes_per_s, traffic.bytes / demand.steps_s[0])
        for leaf, npus in crossed.items():
            mean[leaf] = mean.get(leaf, 0.0) + npus * rate
        full = {leaf: npus * tier.bandwidth_bytes_per_s for leaf, npus in crossed.items()}
        peaks.append((traffic.bytes / total, full))
    return Loads(tuple(peaks), mean)


def alone_step_s(demand: Demand, tier: Tier) -> float:
    """Return the seconds of a step of a job that has the cluster for itself, and the best place in it."""
    best = place(((0, tier.npus),), demand.held, tier, "packed")
    return demand.step_s(loads_at(demand, best or (), tier).factor({}, tier))


def without(total: Mapping[int, float], own: Mapping[int, float]) -> dict[int, float]:
    """Return the load of others at the leaves of a job: all of it but its own."""
    return {leaf: max(0.0, total.get(leaf, 0.0) - load) for leaf, load in own.items()}
