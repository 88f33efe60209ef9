"""How the jobs of a fleet share a cluster: in space, each with accelerators of its own, or in time, as gangs that take turns.

*In space.* A job waits where there are no accelerators for it. Events at one time are taken together: jobs that end give
back what they held, then jobs that arrive line up, then those that can begin do so. Whoever begins or ends changes the
speed of those it shares uplinks with.

*In time.* The jobs of a gang take turns on all accelerators of the gang. Between events each job goes on at a constant
rate, which `device_shares` says in closed form. A job joins the gang with the least share taken, of those that have room
for it: fewer than the most tenants, and memory for all that stay, unless memory is swapped. `simulate_turns` takes the
turns one by one, and so measures the shares.

A program, here one step of a job, runs to its end on all accelerators at once. Among those that are ready, the next
turn is of the job with the least device time for its share (stride scheduling: Waldspurger & Weihl, MIT/LCS/TM-528,
1995), as in Pathways (arXiv 2203.12533, section 4.4 and figure 9).
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil, inf

from cosmic.base.errors import require
from cosmic.base.event_clock import EventClock
from cosmic.cluster.fleet_jobs import Range, Ranges, SharingRules, WaitedFor
from cosmic.cluster.job_requests import (
    JobOption,
    JobRequest,
    JobRun,
    SharedCluster,
    SharedTier,
    UplinkLoads,
    place_job,
    return_ranges,
    subtract_own_loads,
    take_ranges,
    uplink_loads,
)

BACKFILL_DEPTH = 256
"""How many jobs behind the first are looked at for one that may go before it, as schedulers limit it, too."""


@dataclass(slots=True)
class _RunningJob:
    option: JobOption
    ranges: Ranges
    start_s: float
    loads: UplinkLoads
    waited_for: WaitedFor
    step_s: float = 0.0
    left: float = 0.0
    """Steps to go at *since_s*."""
    since_s: float = 0.0
    end_s: float = inf


@dataclass(slots=True)
class _BackfillRooms:
    """Where jobs may go before the first in line."""

    anywhere: Ranges
    """For jobs that end before it can begin."""
    beside: Ranges
    """For others: without its place."""
    too_large: list[float] = field(default_factory=lambda: [inf, inf])
    """The least number of accelerators that has no place beside, and anywhere."""


def run_partitioned(requests: Sequence[JobRequest], tier: SharedTier, rules: SharingRules) -> tuple[JobRun, ...]:
    """Return how each job ran; all of them fit into the empty cluster."""
    return _PartitionedCluster(requests, tier, rules).run()


class _PartitionedCluster(SharedCluster):
    """The cluster at one time."""

    def __init__(self, requests: Sequence[JobRequest], tier: SharedTier, rules: SharingRules) -> None:
        super().__init__(requests)
        self.tier, self.rules = tier, rules
        self.free: Ranges = ((0, tier.npus),)
        self.queue: list[tuple[int, float, int]] = []
        self.running: dict[int, _RunningJob] = {}
        self._changed: set[int] = set()
        self._first: set[int] = set()
        """Jobs that were first in line, and had to wait."""

    def finish(self, index: int) -> None:
        """End a job now, and give back what it held."""
        done = self.running.pop(index)
        self.free = return_ranges(self.free, done.ranges)
        self._changed.update(done.loads.mean)
        spent = done.end_s - done.start_s
        self.runs[index] = JobRun(
            option=done.option,
            ranges=done.ranges,
            start_s=done.start_s,
            end_s=done.end_s,
            device_s=spent,
            waited_for=done.waited_for,
        )

    def arrive(self, index: int) -> None:
        """Put a job in line: by priority, unless the policy is fifo, then by arrival."""
        request = self.requests[index]
        insort(self.queue, (0 if self.rules.policy == "fifo" else -request.priority, request.arrival_s, index))

    def settle(self) -> None:
        """Begin every job that may begin now; whoever shares uplinks with those that begin or end changes its speed."""
        self._schedule()
        self._contend()

    def _schedule(self) -> None:
        while self.queue and self._begin(self.queue[0][2]):
            del self.queue[0]
        if self.queue:
            self._first.add(self.queue[0][2])
        if self.rules.policy == "backfill" and len(self.queue) > 1:
            self._backfill()

    def _backfill(self) -> None:
        """Begin jobs that do not delay the first in line: they end before it can begin, or are not in its place."""
        until, reserved = self._reservation(self.queue[0][2])
        rooms = _BackfillRooms(self.free, take_ranges(self.free, reserved))
        for entry in self.queue[1 : BACKFILL_DEPTH + 1]:
            if rooms.anywhere and self._slip_in(entry[2], until, rooms):
                self.queue.remove(entry)
                rooms = _BackfillRooms(self.free, take_ranges(self.free, reserved))

    def _slip_in(self, index: int, until: float, rooms: _BackfillRooms) -> bool:
        """Begin a job beside the reserved place, or in it if it ends in time; return whether it did."""
        for option in reversed(self.requests[index].options):
            npus, in_time = option.demand.held, self.now + option.alone_s <= until
            if npus >= rooms.too_large[in_time]:
                continue
            room = rooms.anywhere if in_time else rooms.beside
            ranges = place_job(room, npus, self.tier, self.rules.placement)
            if ranges is not None:
                self._start(index, option, ranges)
                return True
            rooms.too_large[in_time] = npus
        return False

    def _reservation(self, index: int) -> tuple[float, Ranges]:
        """Return when the first in line can begin at the latest, and where: as soon as enough others have ended."""
        npus = self.requests[index].options[0].demand.held
        free, room = self.free, sum(end - first for first, end in self.free)
        # EASY backfilling: only the first in line has a reservation, by the ends that running jobs have as of now
        for job_index in sorted(self.running, key=lambda job_index: (self.running[job_index].end_s, job_index)):
            free = return_ranges(free, self.running[job_index].ranges)
            room += self.running[job_index].option.demand.held
            ranges = place_job(free, npus, self.tier, self.rules.placement) if room >= npus else None
            if ranges is not None:
                return self.running[job_index].end_s, ranges
        return inf, ()

    def _begin(self, index: int) -> bool:
        """Begin a job on as many accelerators as it may have and there are; return whether it did."""
        for option in reversed(self.requests[index].options):
            ranges = place_job(self.free, option.demand.held, self.tier, self.rules.placement)
            if ranges is not None:
                self._start(index, option, ranges)
                return True
        return False

    def _start(self, index: int, option: JobOption, ranges: Ranges) -> None:
        self.free = take_ranges(self.free, ranges)
        loads = uplink_loads(option.demand, ranges, self.tier)
        late: WaitedFor = "accelerators" if index in self._first else "jobs before it"
        begun = _RunningJob(option, ranges, self.now, loads, late if self.now > self.requests[index].arrival_s else "")
        self.running[index] = begun
        begun.left, begun.since_s = option.steps, self.now
        self._changed.update(loads.mean)
        self._pace(index, loads.factor({}, self.tier))

    def _pace(self, index: int, factor: float) -> None:
        """Let a job go on at the speed that its traffic has."""
        job = self.running[index]
        step_s = job.option.demand.step_s(factor) + self.requests[index].gap_s
        if step_s == job.step_s:
            return
        if job.step_s:
            job.left = max(0.0, job.left - (self.now - job.since_s) / job.step_s)
        job.since_s, job.step_s = self.now, step_s
        job.end_s = self.now + job.left * step_s
        self.end_at(index, job.end_s)

    def _contend(self) -> None:
        """Change the speed of jobs at whose leaves others have begun or ended."""
        if not self._changed or self.tier.oversubscription <= 1:
            return
        touched = [index for index, job in self.running.items() if not self._changed.isdisjoint(job.loads.mean)]
        leaves = {leaf for index in touched for leaf in self.running[index].loads.mean}
        total: dict[int, float] = {}
        for job in self.running.values():
            for leaf, load in job.loads.mean.items():
                if leaf in leaves:
                    total[leaf] = total.get(leaf, 0.0) + load
        for index in touched:
            loads = self.running[index].loads
            self._pace(index, loads.factor(subtract_own_loads(total, loads.mean), self.tier))
        self._changed.clear()


# ---- jobs that take turns on the same accelerators


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """One job of a gang."""

    step_s: float
    """Device time of a step."""
    share: float = 1.0
    gap_s: float = 0.0
    """How long after a step its host has the next one ready."""
    switch_s: float = 0.0
    """Idle time when it takes or gives up the device: half of it at either end."""

    @property
    def most(self) -> float:
        """The part of the time that it can use at most: c / (c + gap)."""
        return self.step_s / (self.step_s + self.gap_s)


def device_shares(tenants: Sequence[Tenant], quantum_s: float = 0.0) -> list[float]:
    r"""Return the part of the time that each tenant has the device.

        u_j = min(c_j / (c_j + gap_j), lambda * w_j)        sum of u = min(e, sum of c / (c + gap))

    w       shares; lambda is the same for all that could use more       c  device time of a step
    e       what switching leaves: 1 / (1 + sum_j p_j s_j / T_j)         p  shares of their sum
    T_j, s  length of a turn, and the switch that it costs               gap  of the host, between steps

    For k equal tenants without switching this is Pathways' utilisation, min(1, k c / (c + gap)), in sum. It is exact
    where there are no gaps, or no switches; with both, a turn may end early for want of work, and there are more
    switches than this counts.

    >>> device_shares([Tenant(step_s=1.0, share=w) for w in (1.0, 2.0, 5.0)])
    [0.125, 0.25, 0.625]
    >>> device_shares([Tenant(step_s=1.0, gap_s=3.0)] * 2), device_shares([Tenant(step_s=1.0, gap_s=3.0)] * 8)[0]
    ([0.25, 0.25], 0.125)
    """
    total = sum(tenant.share for tenant in tenants)
    free_share = 1.0
    if len(tenants) > 1:
        lost = 0.0
        for tenant, steps in zip(tenants, turn_steps(tenants, quantum_s), strict=True):
            lost += tenant.share / total * tenant.switch_s / (steps * tenant.step_s)
        free_share = 1 / (1 + lost)
    shares = [0.0] * len(tenants)
    # Whoever can use the least of its share is served first; what it leaves is for the others.
    order = sorted(range(len(tenants)), key=lambda index: (tenants[index].most / tenants[index].share, index))
    for index in order:
        tenant = tenants[index]
        shares[index] = min(tenant.most, free_share * tenant.share / total)
        free_share, total = free_share - shares[index], total - tenant.share
    return shares


def turn_steps(tenants: Sequence[Tenant], quantum_s: float) -> list[int]:
    """Return the steps of each tenant's turn: turns are as long as shares say, and have at least one step each.

    >>> turn_steps([Tenant(step_s=1.0, share=1.0), Tenant(step_s=1.0, share=4.0)], 0.0)
    [1, 4]
    >>> turn_steps([Tenant(step_s=0.5), Tenant(step_s=2.0)], 1.0)
    [4, 1]
    """
    smallest = min(tenant.share for tenant in tenants)
    least = max(quantum_s / smallest, *(tenant.step_s / tenant.share for tenant in tenants))
    return [max(1, ceil(round(least * tenant.share / tenant.step_s, 9))) for tenant in tenants]


@dataclass(frozen=True, slots=True)
class SimulatedTurns:
    """What came of some turns."""

    device_s: tuple[float, ...]
    """Device time of each tenant."""
    span_s: float
    """How long it took in all."""
    turns: tuple[tuple[int, float, float], ...]
    """Which tenant had the device, from when until when."""

    @property
    def utilization(self) -> float:
        """The part of the time in which the device ran steps."""
        return sum(self.device_s) / self.span_s

    def measured(self) -> list[float]:
        """Return the part of all device time that each tenant had."""
        total = sum(self.device_s)
        return [used / total for used in self.device_s]


def simulate_turns(tenants: Sequence[Tenant], quantum_s: float = 0.0, turns: int = 1000) -> SimulatedTurns:
    """Return what comes of so many *turns*, taken one by one.

    >>> played = simulate_turns([Tenant(step_s=1.0, share=1.0), Tenant(step_s=1.0, share=2.0)], turns=4)
    >>> played.turns
    ((0, 0.0, 1.0), (1, 1.0, 3.0), (0, 3.0, 4.0), (1, 4.0, 6.0))
    """
    steps = turn_steps(tenants, quantum_s)
    clock: EventClock[float] = EventClock()
    ready, used = [0.0] * len(tenants), [0.0] * len(tenants)
    turns_taken: list[tuple[int, float, float]] = []

    def take_turn(previous: int | None) -> None:
        """Give the device, which is free, to whoever waits and has used the least of its share."""
        now = clock.now
        waiting = [index for index, ready_at in enumerate(ready) if ready_at <= now]
        if not waiting:
            clock.at(min(ready), take_turn, previous)
            return
        tenant_index = min(waiting, key=lambda index: (used[index] / tenants[index].share, index))
        tenant = tenants[tenant_index]
        if previous not in (None, tenant_index):
            now += (tenants[previous].switch_s + tenant.switch_s) / 2
        began, turns_left = now, steps[tenant_index]
        while turns_left and ready[tenant_index] <= now:
            now += tenant.step_s
            used[tenant_index] += tenant.step_s
            ready[tenant_index] = now + tenant.gap_s
            turns_left -= 1
        turns_taken.append((tenant_index, began, now))
        if len(turns_taken) < turns:
            clock.at(now, take_turn, tenant_index)

    clock.at(0.0, take_turn, None)
    clock.run()
    return SimulatedTurns(tuple(used), turns_taken[-1][2], tuple(turns_taken))


@dataclass(slots=True)
class _Resident:
    option: JobOption
    start_s: float
    loads: UplinkLoads
    waited_for: WaitedFor
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
class FullestMoment:
    """The tenants of a gang when there were most of them."""

    range: Range
    tenants: tuple[tuple[int, Tenant], ...]


def gang_size(requests: Sequence[JobRequest], tier: SharedTier, rules: SharingRules) -> int:
    """Return the accelerators of a gang: as stated, or what the largest job holds."""
    if rules.gang:
        require(rules.gang <= tier.npus, "gang", rules.gang, f"there are {tier.npus:,} accelerators")
        rule = f"must be a multiple or a divisor of the {tier.node} accelerators of a node"
        require(rules.gang % tier.node == 0 or tier.node % rules.gang == 0, "gang", rules.gang, rule)
        return rules.gang
    return max((request.options[-1].demand.held for request in requests), default=tier.npus)


def run_in_turns(
    requests: Sequence[JobRequest], tier: SharedTier, rules: SharingRules
) -> tuple[tuple[JobRun, ...], tuple[FullestMoment, ...]]:
    """Return how each job ran, and the fullest moment of each gang; every job fits into a gang, and into memory."""
    cluster = _GangCluster(requests, tier, rules)
    return cluster.run(), tuple(FullestMoment(gang.range, gang.fullest) for gang in cluster.gangs if gang.fullest)


class _GangCluster(SharedCluster):
    """All gangs at one time."""

    def __init__(self, requests: Sequence[JobRequest], tier: SharedTier, rules: SharingRules) -> None:
        super().__init__(requests)
        self.tier, self.rules = tier, rules
        size = gang_size(requests, tier, rules)
        self.gangs = [_Gang((first, first + size)) for first in range(0, tier.npus - size + 1, size)]
        self.waiting: deque[int] = deque()
        self.residents: dict[int, _Resident] = {}
        self._home: dict[int, _Gang] = {}
        self._changed: list[_Gang] = []
        self._refused: dict[int, WaitedFor] = {}

    def finish(self, index: int) -> None:
        """End a job now."""
        self._count(index)
        done, gang = self.residents.pop(index), self._home.pop(index)
        gang.jobs.remove(index)
        self._note(gang)
        first = gang.range[0]
        self.runs[index] = JobRun(
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
            gang = min(fits, key=lambda gang: (sum(self.requests[job].share for job in gang.jobs), gang.range))
            self._join(index, option, gang)

    def _option(self, index: int) -> JobOption:
        size = self.gangs[0].range[1] - self.gangs[0].range[0]
        return [option for option in self.requests[index].options if option.demand.held <= size][-1]

    def _has_room(self, gang: _Gang, option: JobOption) -> bool:
        return not gang.jobs or self.rules.swap_bytes_per_s is not None or self._memory(gang, option) <= 0

    def _memory(self, gang: _Gang, extra_job: JobOption | None = None) -> float:
        """Return by how many bytes the jobs of a gang need more memory than there is; negative where they fit."""
        options = [self.residents[job].option for job in gang.jobs] + ([extra_job] if extra_job else [])
        capacity = min((option.demand.capacity_bytes for option in options), default=0.0)
        return sum(option.demand.memory_bytes for option in options) - capacity

    def _join(self, index: int, option: JobOption, gang: _Gang) -> None:
        first = gang.range[0]
        loads = uplink_loads(option.demand, ((first, first + option.demand.held),), self.tier)
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
        loads_by_range: dict[int, dict[int, float]] = {-1: {}}
        for gang in self.gangs:
            range_loads = loads_by_range.setdefault(gang.range[0], {})
            total = sum(self.requests[index].share for index in gang.jobs)
            for index, leaf, load in self._sent(gang):
                part = self.requests[index].share / total * load
                range_loads[leaf] = range_loads.get(leaf, 0.0) + part
                loads_by_range[-1][leaf] = loads_by_range[-1].get(leaf, 0.0) + part
        return loads_by_range

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
            self.end_at(index, job.end_s)
        if len(tenants) > len(gang.fullest):
            gang.fullest = tuple(zip(gang.jobs, tenants, strict=True))

    def _tenant(self, index: int, gang: _Gang, loads: dict[int, dict[int, float]], *, swaps: bool) -> Tenant:
        request, job = self.requests[index], self.residents[index]
        other_loads: dict[int, float] = {}
        if loads:
            other_loads = subtract_own_loads(loads[-1], loads[gang.range[0]])
        factor = job.loads.factor(other_loads, self.tier)
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
