"""Jobs that share the same accelerators in time, gang-scheduled: all accelerators of a gang run one job at a time.

`device_shares` says in closed form what each job gets; `play` takes the turns one by one, and so measures it.

A program, here one step of a job, runs to its end on all accelerators at once. Among those that are ready, the next
turn is of the job with the least device time for its share (stride scheduling: Waldspurger & Weihl, MIT/LCS/TM-528,
1995), as in Pathways (arXiv 2203.12533, section 4.4 and figure 9).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil


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
    left = 1.0
    if len(tenants) > 1:
        lost = 0.0
        for tenant, steps in zip(tenants, turn_steps(tenants, quantum_s), strict=True):
            lost += tenant.share / total * tenant.switch_s / (steps * tenant.step_s)
        left = 1 / (1 + lost)
    found = [0.0] * len(tenants)
    # Whoever can use the least of its share is served first; what it leaves is for the others.
    order = sorted(range(len(tenants)), key=lambda place: (tenants[place].most / tenants[place].share, place))
    for place in order:
        tenant = tenants[place]
        found[place] = min(tenant.most, left * tenant.share / total)
        left, total = left - found[place], total - tenant.share
    return found


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
class Played:
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


def play(tenants: Sequence[Tenant], quantum_s: float = 0.0, turns: int = 1000) -> Played:
    """Return what comes of so many *turns*, taken one by one.

    >>> played = play([Tenant(step_s=1.0, share=1.0), Tenant(step_s=1.0, share=2.0)], turns=4)
    >>> played.turns
    ((0, 0.0, 1.0), (1, 1.0, 3.0), (0, 3.0, 4.0), (1, 4.0, 6.0))
    """
    steps = turn_steps(tenants, quantum_s)
    now, before = 0.0, -1
    ready, used = [0.0] * len(tenants), [0.0] * len(tenants)
    taken: list[tuple[int, float, float]] = []
    while len(taken) < turns:
        waiting = [place for place, at in enumerate(ready) if at <= now]
        if not waiting:
            now = min(ready)
            continue
        place = min(waiting, key=lambda each: (used[each] / tenants[each].share, each))
        tenant = tenants[place]
        if before not in (-1, place):
            now += (tenants[before].switch_s + tenant.switch_s) / 2
        began, left, before = now, steps[place], place
        while left and ready[place] <= now:
            now += tenant.step_s
            used[place] += tenant.step_s
            ready[place] = now + tenant.gap_s
            left -= 1
        taken.append((place, began, now))
    return Played(tuple(used), now, tuple(taken))
