"""What one simulated run loses to a sequence of interruptions, as arrays over them.

The first entry of each array is the time before any interruption; each other one begins with an interruption and ends
with the next.
"""

from __future__ import annotations

from heapq import heappushpop
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.random import Generator

from cosmic.goodput.terms import Terms

Array = npt.NDArray[np.float64]


class Course(NamedTuple):
    """One run from interruption to interruption."""

    ends_s: Array
    """When each part ends, from the beginning of the run."""
    productive_s: Array
    """Time of training in it: of all replicas, or a share of it."""
    speed: Array
    """What of that time counts, while domains are slow or replicas are missing."""
    state_lost: npt.NDArray[np.bool_]
    """Whether no replica has the state any more when the part begins: the run goes back to a checkpoint."""


def course(given: Terms, gaps_s: Array, rng: Generator, repair_cv: float) -> Course:
    """Return a run that is interrupted after each of some times."""
    ends_s = np.cumsum(gaps_s)
    begins_s = ends_s - gaps_s
    waits_s, present = _repairs(given, begins_s, gaps_s, rng, repair_cv)
    running_s = gaps_s - waits_s
    replicas = int(given.replicas)
    stalled_s = np.minimum(running_s, float(given.detection_s + given.stall_s))
    stalled_s[0] = 0.0
    down_s, lost = _restarts(running_s, float(given.detection_s + given.restart_s), replicas, rng)
    down_s = down_s - _within(running_s, stalled_s, down_s)
    slow = rng.random(len(gaps_s)) < float(given.slow_share)
    speed = np.where(slow, 1 / float(given.slow_factor), 1.0) * present
    return Course(ends_s, running_s - stalled_s - down_s / replicas, speed, lost)


def _restarts(running_s: Array, restart_s: float, replicas: int, rng: Generator) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Return how long the replica of each interruption is down, and whether no other is up then.

    A replica that fails again while it restarts restarts anew.
    """
    count = len(running_s)
    lost = np.ones(count, dtype=bool)
    lost[0] = False
    if replicas == 1:
        down_s = np.minimum(running_s, restart_s)
    else:
        begins_s = np.cumsum(running_s) - running_s
        which = rng.integers(replicas, size=count)
        which[0] = -1  # the beginning of the run is no interruption
        order = np.argsort(which, kind="stable")
        again_s = np.full(count, np.inf)
        same = which[order[1:]] == which[order[:-1]]
        again_s[order[:-1][same]] = begins_s[order[1:][same]]
        down_s = np.minimum(restart_s, again_s - begins_s)
        returned = np.searchsorted(np.sort((begins_s + down_s)[1:]), begins_s, side="right")
        lost &= np.arange(count) - returned >= replicas
    down_s[0] = 0.0
    return down_s, lost


def _within(running_s: Array, stalled_s: Array, down_s: Array) -> Array:
    """Return how much of the time that each replica is down all stand still anyway.

    All stand still at the beginning of each part.
    """
    if np.all(down_s <= running_s):
        return np.minimum(stalled_s, down_s)
    begins_s = np.cumsum(running_s) - running_s
    before_s = np.cumsum(stalled_s) - stalled_s
    last = np.searchsorted(begins_s, begins_s + down_s, side="right") - 1
    inside = np.minimum(begins_s + down_s - begins_s[last], stalled_s[last])
    return np.asarray(before_s[last] + inside - before_s)


def _repairs(given: Terms, begins_s: Array, gaps_s: Array, rng: Generator, repair_cv: float) -> tuple[Array, Array]:
    """Return how long the run waits for a spare after each interruption, and the share of replicas that it has."""
    if given.repair_s is None or float(given.repair_s) == 0:
        return np.zeros_like(gaps_s), np.ones_like(gaps_s)
    count, mean_s = len(gaps_s) - 1, float(given.repair_s)
    repairs_s = rng.gamma(repair_cv**-2, mean_s * repair_cv**2, count) if repair_cv > 0 else np.full(count, mean_s)
    back_s = begins_s[1:] + repairs_s
    spares = int(given.spare_domains)
    if bool(given.elastic) and int(given.replicas) > 1:  # the only replica waits like any run
        return np.zeros_like(gaps_s), 1 - _missing(begins_s, gaps_s, back_s, spares, int(given.replicas))
    free_s = np.concatenate([[-np.inf], _nth_latest(back_s, spares, in_order=repair_cv == 0)])
    return np.clip(free_s - begins_s, 0.0, gaps_s), np.ones_like(gaps_s)


def _nth_latest(back_s: Array, spares: int, *, in_order: bool) -> Array:
    """Return when so many are broken as there are spares, if nothing else breaks: the latest but *spares* return."""
    if spares >= len(back_s):
        return np.full(len(back_s), -np.inf)
    if in_order:
        return np.concatenate([np.full(spares, -np.inf), back_s[: len(back_s) - spares]])
    latest = [-np.inf] * (spares + 1)
    found = np.empty(len(back_s))
    for place, time in enumerate(back_s.tolist()):
        heappushpop(latest, time)
        found[place] = latest[0]
    return found


def _missing(begins_s: Array, gaps_s: Array, back_s: Array, spares: int, replicas: int) -> Array:
    """Return the mean share of replicas that each part lacks, as no spare is left for them."""
    times = np.concatenate([begins_s[1:], back_s])
    order = np.argsort(times, kind="stable")
    steps = np.where(order < len(back_s), 1, -1)
    times = np.concatenate([[0.0], times[order]])
    beyond = np.maximum(np.concatenate([[0], np.cumsum(steps)]) - spares, 0)
    share = 1 - (1 - 1 / replicas) ** beyond
    summed = np.concatenate([[0.0], np.cumsum(share[:-1] * np.diff(times))])
    at = np.interp(np.append(begins_s, begins_s[-1] + gaps_s[-1]), times, summed)
    return np.asarray(np.diff(at) / np.maximum(gaps_s, 1e-300))
