"""Jobs that share a cluster in space: each job has accelerators of its own, and waits where there are none for it.

Events at one time are taken together: jobs that end give back what they held, then jobs that arrive line up, then those
that can begin do so. Whoever begins or ends changes the speed of those it shares uplinks with.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from cosmic.cluster.fleet_jobs import Ranges, SharingRules, WaitedFor
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
