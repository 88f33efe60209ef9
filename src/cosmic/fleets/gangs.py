"""Sharing in time: gangs of accelerators, whose jobs take turns; between events each job goes on at a constant rate.

The rates are those of `cosmic.fleets.sharing.device_shares`. A job joins the gang with the least share taken, of those
that have room for it: fewer than the most tenants, and memory for all that stay, unless memory is swapped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf

from cosmic.errors import require
from cosmic.fleets.clock import Ends, drive
from cosmic.fleets.jobs import Rules
from cosmic.fleets.requests import Loads, Option, Request, Run, loads_at, without
from cosmic.fleets.sharing import Tenant, device_shares
from cosmic.fleets.tiers import Range, Tier


@dataclass(slots=True)
class _Resident:
    option: Option
    start_s: float
    loads: Loads
    waited_for: str
    left: float
    since_s: float
    rate: float = 0.0
    """Steps a second."""
    device: float = 0.0
    """The part of the time in which it has the device."""
    device_s: float = 0.0
    end_s: float = inf
    tenant: Tenant | None = None


@dataclass(slots=True)
class _Gang:
    range: Range
    jobs: list[int] = field(default_factory=list)
    fullest: tuple[tuple[int, Tenant], ...] = ()
    """The tenants when there were most of them."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The tenants of a gang when there were most of them."""

    range: Range
    tenants: tuple[tuple[int, Tenant], ...]


def gang_size(requests: Sequence[Request], tier: Tier, rules: Rules) -> int:
    """Return the accelerators of a gang: as stated, or what the largest job holds."""
    if rules.gang:
        require(rules.gang <= tier.npus, "gang", rules.gang, f"there are {tier.npus:,} accelerators")
        rule = f"must be a multiple or a divisor of the {tier.node} accelerators of a node"
        require(rules.gang % tier.node == 0 or tier.node % rules.gang == 0, "gang", rules.gang, rule)
        return rules.gang
    return max((request.options[-1].demand.held for request in requests), default=tier.npus)


def run_in_turns(requests: Sequence[Request], tier: Tier, rules: Rules) -> tuple[tuple[Run, ...], tuple[Moment, ...]]:
    """Return how each job ran, and the fullest moment of each gang; every job fits into a gang, and into memory."""
    clock = _Clock(requests, tier, rules)
    drive(requests, clock)
    runs = tuple(clock.runs[place] for place in range(len(requests)))
    return runs, tuple(Moment(gang.range, gang.fullest) for gang in clock.gangs if gang.fullest)


class _Clock:
    """All gangs at one time."""

    def __init__(self, requests: Sequence[Request], tier: Tier, rules: Rules) -> None:
        self.requests, self.tier, self.rules = requests, tier, rules
        size = gang_size(requests, tier, rules)
        self.gangs = [_Gang((first, first + size)) for first in range(0, tier.npus - size + 1, size)]
        self.now = 0.0
        self.waiting: deque[int] = deque()
        self.residents: dict[int, _Resident] = {}
        self.runs: dict[int, Run] = {}
        self._home: dict[int, _Gang] = {}
        self.ends = Ends()
        self._changed: list[_Gang] = []
        self._refused: dict[int, str] = {}

    def finish(self, index: int) -> None:
        """End a job now."""
        self._count(index)
        done, gang = self.residents.pop(index), self._home.pop(index)
        gang.jobs.remove(index)
        self._note(gang)
        first = gang.range[0]
        self.runs[index] = Run(
            option=done.option,
            ranges=((first, first + done.option.demand.held),),
            start_s=done.start_s,
            end_s=done.end_s,
            device_s=done.device_s,
            waited_for=done.waited_for,
        )

    def arrive(self, index: int) -> None:
        """Put a job in line."""
        self.waiting.append(index)

    def settle(self) -> None:
        """Let jobs join, and change the rates of those that share with whoever joined or left."""
        self._admit()
        self._renew_all()

    def _admit(self) -> None:
        """Let jobs join gangs in the order of their arrival, until one finds no room."""
        while self.waiting:
            index = self.waiting[0]
            option = self._option(index)
            open_ = [gang for gang in self.gangs if len(gang.jobs) < self.rules.tenants]
            fits = [gang for gang in open_ if self._has_room(gang, option)]
            if not fits:
                self._refused[index] = "memory" if open_ else "a turn"
                return
            self.waiting.popleft()
            gang = min(fits, key=lambda each: (sum(self.requests[job].share for job in each.jobs), each.range))
            self._join(index, option, gang)

    def _option(self, index: int) -> Option:
        size = self.gangs[0].range[1] - self.gangs[0].range[0]
        return [option for option in self.requests[index].options if option.demand.held <= size][-1]

    def _has_room(self, gang: _Gang, option: Option) -> bool:
        return not gang.jobs or self.rules.swap_bytes_per_s is not None or self._memory(gang, option) <= 0

    def _memory(self, gang: _Gang, more: Option | None = None) -> float:
        """Return by how many bytes the jobs of a gang need more memory than there is; negative where they fit."""
        options = [self.residents[job].option for job in gang.jobs] + ([more] if more else [])
        capacity = min((option.demand.capacity_bytes for option in options), default=0.0)
        return sum(option.demand.memory_bytes for option in options) - capacity

    def _join(self, index: int, option: Option, gang: _Gang) -> None:
        first = gang.range[0]
        loads = loads_at(option.demand, ((first, first + option.demand.held),), self.tier)
        reason = self._refused.pop(index, "" if self.requests[index].arrival_s == self.now else "jobs before it")
        self.residents[index] = _Resident(option, self.now, loads, reason, option.steps, self.now)
        self._home[index] = gang
        gang.jobs.append(index)
        self._note(gang)

    def _note(self, gang: _Gang) -> None:
        if gang not in self._changed:
            self._changed.append(gang)

    def _renew_all(self) -> None:
        """Change the rates of all jobs that whoever joined or left has changed."""
        if self.tier.oversubscription > 1 and self._changed:
            self._changed = list(self.gangs)
        loads = self._loads() if self.tier.oversubscription > 1 else {}
        for gang in self._changed:
            self._renew(gang, loads)
        self._changed = []

    def _loads(self) -> dict[int, dict[int, float]]:
        """Return what each gang sends up from each leaf on average, jobs by their shares; under -1 all of them."""
        found: dict[int, dict[int, float]] = {-1: {}}
        for gang in self.gangs:
            own = found.setdefault(gang.range[0], {})
            total = sum(self.requests[index].share for index in gang.jobs)
            for index, leaf, load in self._sent(gang):
                part = self.requests[index].share / total * load
                own[leaf] = own.get(leaf, 0.0) + part
                found[-1][leaf] = found[-1].get(leaf, 0.0) + part
        return found

    def _sent(self, gang: _Gang) -> Iterator[tuple[int, int, float]]:
        for index in gang.jobs:
            for leaf, load in self.residents[index].loads.mean.items():
                yield index, leaf, load

    def _renew(self, gang: _Gang, loads: dict[int, dict[int, float]]) -> None:
        swaps = self._memory(gang) > 0
        tenants = [self._tenant(index, gang, loads, swaps=swaps) for index in gang.jobs]
        for index, tenant, device in zip(gang.jobs, tenants, device_shares(tenants, self.rules.quantum_s), strict=True):
            self._count(index)
            job = self.residents[index]
            job.device, job.rate = device, device / tenant.step_s
            job.end_s = self.now + job.left / job.rate
            self.ends.move(index, job.end_s)
        if len(tenants) > len(gang.fullest):
            gang.fullest = tuple(zip(gang.jobs, tenants, strict=True))

    def _tenant(self, index: int, gang: _Gang, loads: dict[int, dict[int, float]], *, swaps: bool) -> Tenant:
        request, job = self.requests[index], self.residents[index]
        others: dict[int, float] = {}
        if loads:
            others = without(loads[-1], loads[gang.range[0]])
        factor = job.loads.factor(others, self.tier)
        rate = self.rules.swap_bytes_per_s
        swap_s = 2 * job.option.demand.memory_bytes / rate if swaps and rate else 0.0
        step_s = job.option.demand.step_s(factor)
        return Tenant(step_s=step_s, share=request.share, gap_s=request.gap_s, switch_s=self.rules.switch_s + swap_s)

    def _count(self, index: int) -> None:
        """Count what a job has done since its rate last changed."""
        job = self.residents[index]
        spent = self.now - job.since_s
        job.left = max(0.0, job.left - spent * job.rate)
        job.device_s += spent * job.device
        job.since_s = self.now
