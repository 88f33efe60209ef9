"""What the simulations take and give: requests of jobs, and how each of them ran."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cosmic.fleets.demands import Demand
from cosmic.fleets.placing import Ranges, place
from cosmic.fleets.tiers import Tier, contention, members, uplink_load


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


def loads_at(demand: Demand, ranges: Ranges, tier: Tier) -> tuple[dict[int, float], dict[int, float]]:
    """Return what a job sends up from each leaf while it communicates, and on average over a step of its own."""
    inside = members(ranges, tier.leaf)
    peak = tier.bandwidth_bytes_per_s if demand.sent_bytes else 0.0
    mean = min(peak, demand.sent_bytes / demand.steps_s[0])
    if not peak:
        return {}, {}
    return uplink_load(inside, tier.group, peak), uplink_load(inside, tier.group, mean)


def alone_step_s(demand: Demand, tier: Tier) -> float:
    """Return the seconds of a step of a job that has the cluster for itself, and the best place in it."""
    best = place(((0, tier.npus),), demand.held, tier, "packed")
    return demand.step_s(contention(loads_at(demand, best or (), tier)[0], {}, tier.uplink_bytes_per_s))


def without(total: Mapping[int, float], own: Mapping[int, float]) -> dict[int, float]:
    """Return the load of others at the leaves of a job: all of it but its own."""
    return {leaf: max(0.0, total.get(leaf, 0.0) - own.get(leaf, 0.0)) for leaf in own}
