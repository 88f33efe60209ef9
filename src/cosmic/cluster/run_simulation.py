"""A run simulated interruption by interruption: how its days to train are spread, and whether the closed form holds.

Nothing happens between two interruptions that is not known beforehand, so a run of months on a million accelerators is
some tens of thousands of events, and a few arrays over them (`InterruptedRun`). What the closed form does not have is
chance: times between interruptions (of any Weibull shape), repairs (of any spread), which replica fails, which domains
are slow, and that a run begins and ends.

The first entry of each such array is the time before any interruption; each other one begins with an interruption and
ends with the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappushpop
from math import gamma, inf, sqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.random import Generator

from cosmic.base.errors import require
from cosmic.cluster.goodput import goodput_from_terms
from cosmic.cluster.interruption_terms import InterruptionTerms

Array = npt.NDArray[np.float64]


class InterruptedRun(NamedTuple):
    """One run from interruption to interruption."""

    ends_s: Array
    """When each part ends, from the beginning of the run."""
    productive_s: Array
    """Time of training in it: of all replicas, or a share of it."""
    speed: Array
    """What of that time counts, while domains are slow or replicas are missing."""
    state_lost: npt.NDArray[np.bool_]
    """Whether no replica has the state any more when the part begins: the run goes back to a checkpoint."""


def interrupt_run(terms: InterruptionTerms, gaps_s: Array, rng: Generator, repair_cv: float) -> InterruptedRun:
    """Return a run that is interrupted after each of some times."""
    ends_s = np.cumsum(gaps_s)
    begins_s = ends_s - gaps_s
    waits_s, present = _draw_repairs(terms, begins_s, gaps_s, rng, repair_cv)
    running_s = gaps_s - waits_s
    replicas = int(terms.replicas)
    stalled_s = np.minimum(running_s, float(terms.detection_s + terms.stall_s))
    stalled_s[0] = 0.0
    down_s, lost = _draw_restarts(running_s, float(terms.detection_s + terms.restart_s), replicas, rng)
    down_s = down_s - _stalled_anyway_s(running_s, stalled_s, down_s)
    slow = rng.random(len(gaps_s)) < float(terms.slow_share)
    speed = np.where(slow, 1 / float(terms.slow_factor), 1.0) * present
    return InterruptedRun(ends_s, running_s - stalled_s - down_s / replicas, speed, lost)


def _draw_restarts(
    running_s: Array, restart_s: float, replicas: int, rng: Generator
) -> tuple[Array, npt.NDArray[np.bool_]]:
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
        same_replica = which[order[1:]] == which[order[:-1]]
        again_s[order[:-1][same_replica]] = begins_s[order[1:][same_replica]]
        down_s = np.minimum(restart_s, again_s - begins_s)
        returned = np.searchsorted(np.sort((begins_s + down_s)[1:]), begins_s, side="right")
        lost &= np.arange(count) - returned >= replicas
    down_s[0] = 0.0
    return down_s, lost


def _stalled_anyway_s(running_s: Array, stalled_s: Array, down_s: Array) -> Array:
    """Return how much of the time that each replica is down all stand still anyway.

    All stand still at the beginning of each part.
    """
    if np.all(down_s <= running_s):
        return np.minimum(stalled_s, down_s)
    begins_s = np.cumsum(running_s) - running_s
    before_s = np.cumsum(stalled_s) - stalled_s
    last = np.searchsorted(begins_s, begins_s + down_s, side="right") - 1
    overlap_s = np.minimum(begins_s + down_s - begins_s[last], stalled_s[last])
    return np.asarray(before_s[last] + overlap_s - before_s)


def _draw_repairs(
    terms: InterruptionTerms, begins_s: Array, gaps_s: Array, rng: Generator, repair_cv: float
) -> tuple[Array, Array]:
    """Return how long the run waits for a spare after each interruption, and the share of replicas that it has."""
    if terms.repair_s is None or float(terms.repair_s) == 0:
        return np.zeros_like(gaps_s), np.ones_like(gaps_s)
    count, mean_s = len(gaps_s) - 1, float(terms.repair_s)
    repairs_s = rng.gamma(repair_cv**-2, mean_s * repair_cv**2, count) if repair_cv > 0 else np.full(count, mean_s)
    back_s = begins_s[1:] + repairs_s
    spares = int(terms.spare_domains)
    if bool(terms.elastic) and int(terms.replicas) > 1:  # the only replica waits like any run
        return np.zeros_like(gaps_s), 1 - _missing_share(begins_s, gaps_s, back_s, spares, int(terms.replicas))
    free_s = np.concatenate([[-np.inf], _nth_latest(back_s, spares, in_order=repair_cv == 0)])
    return np.clip(free_s - begins_s, 0.0, gaps_s), np.ones_like(gaps_s)


def _nth_latest(back_s: Array, spares: int, *, in_order: bool) -> Array:
    """Return when so many are broken as there are spares, if nothing else breaks: the latest but *spares* return."""
    if spares >= len(back_s):
        return np.full(len(back_s), -np.inf)
    if in_order:
        return np.concatenate([np.full(spares, -np.inf), back_s[: len(back_s) - spares]])
    latest = [-np.inf] * (spares + 1)
    latest_back_s = np.empty(len(back_s))
    for index, time in enumerate(back_s.tolist()):
        heappushpop(latest, time)
        latest_back_s[index] = latest[0]
    return latest_back_s


def _missing_share(begins_s: Array, gaps_s: Array, back_s: Array, spares: int, replicas: int) -> Array:
    """Return the mean share of replicas that each part lacks, as no spare is left for them."""
    times = np.concatenate([begins_s[1:], back_s])
    order = np.argsort(times, kind="stable")
    steps = np.where(order < len(back_s), 1, -1)
    times = np.concatenate([[0.0], times[order]])
    beyond = np.maximum(np.concatenate([[0], np.cumsum(steps)]) - spares, 0)
    share = 1 - (1 - 1 / replicas) ** beyond
    summed = np.concatenate([[0.0], np.cumsum(share[:-1] * np.diff(times))])
    missing_by_time = np.interp(np.append(begins_s, begins_s[-1] + gaps_s[-1]), times, summed)
    return np.asarray(np.diff(missing_by_time) / np.maximum(gaps_s, 1e-300))


SECONDS_PER_DAY = 86400.0
MARGIN = 1.05
"""How much longer than the closed form expects a run is simulated at first."""
MOST_INTERRUPTIONS = 12_000_000
"""Of all runs together; more are simulated for a part of the work."""
LEAST_SHARE = 1e-9
"""Of training, below which a run does not end."""
DOUBLINGS = 12
"""How often a run that has not ended is made twice as long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChance:
    """What is random, and how."""

    weibull_shape: float = 1.0
    """Of the times between interruptions: 1 is exponential; below 1 they come in bursts."""
    repair_cv: float = 1.0
    """Standard deviation of the time of repairs, over their mean; 0: all take the same."""

    def __post_init__(self) -> None:
        require(self.weibull_shape >= 0.1, "weibull_shape", self.weibull_shape, "must be at least 0.1")
        require(self.repair_cv >= 0, "repair_cv", self.repair_cv, "must not be negative")


BY_CHANCE = RunChance()


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRuns:
    """Runs of the same work that differ by chance."""

    days: Array
    """Days to train of each run; infinite where it does not end."""
    effective_share: Array
    """Time of the work without interruptions, over the time that it took."""
    interruptions: npt.NDArray[np.float64]
    """Of each run, until it ended."""
    simulated_share: float = 1.0
    """Share of the work that was simulated. Below 1 the days are extrapolated: in proportion to the work, and their
    spread to its square root."""

    def days_at(self, share: float) -> float:
        """Return the days within which a *share* of the runs end: 0.05, 0.5 and 0.95 for P5, P50 and P95."""
        return float(np.quantile(self.days, share, method="inverted_cdf"))


def simulate_runs(
    terms: InterruptionTerms, work_s: float, *, runs: int = 200, seed: int = 0, chance: RunChance = BY_CHANCE
) -> SimulatedRuns:
    """Return what becomes of *runs* runs that would take *work_s* without interruptions.

    >>> from cosmic.design.run_layer import Run
    >>> from cosmic.cluster.interruption_terms import run_fields, run_terms
    >>> terms = run_terms(run_fields(Run(npu_mtbf_s=1.8e8)), 16_384, 128, 3e8)
    >>> found = simulate_runs(terms, 50 * 86400.0, runs=20)
    >>> found.days_at(0.05) < found.days_at(0.5) < found.days_at(0.95), round(float(found.effective_share.mean()), 2)
    (True, 0.95)
    """
    require(work_s > 0, "work", work_s, "must be positive")
    require(runs >= 1, "runs", runs, "must be at least 1")
    expected = goodput_from_terms(terms)
    share = float(expected.effective_share)
    if share < LEAST_SHARE:
        never = np.full(runs, inf)
        return SimulatedRuns(days=never, effective_share=1 / never, interruptions=never)
    interruptions = work_s / share / float(terms.mtbf_s)
    simulated_share = min(1.0, MOST_INTERRUPTIONS / runs / interruptions)
    seeds = np.random.SeedSequence(seed).spawn(runs)
    setting = _RunSetting(
        terms,
        float(expected.interval_s),
        work_s * simulated_share,
        int(MARGIN * interruptions * simulated_share + 5 * sqrt(interruptions) + 50),
        chance,
    )
    ends = np.array([setting.simulate(np.random.default_rng(run_seed)) for run_seed in seeds])
    wall_s = ends[:, 0] / simulated_share
    if simulated_share < 1 and np.all(np.isfinite(wall_s)):
        # Scaled up, the spread grew with the work; that of a sum of independent parts grows with its square root.
        wall_s = wall_s.mean() + (wall_s - wall_s.mean()) * sqrt(simulated_share)
    return SimulatedRuns(
        days=wall_s / SECONDS_PER_DAY,
        effective_share=work_s / wall_s,
        interruptions=ends[:, 1] / simulated_share,
        simulated_share=simulated_share,
    )


@dataclass(frozen=True, slots=True)
class _RunSetting:
    """What all runs have in common."""

    terms: InterruptionTerms
    interval_s: float
    """Training between two checkpoints."""
    work_s: float
    """Training without interruptions, of what is simulated."""
    count: int
    """Interruptions that are simulated at first."""
    chance: RunChance

    def simulate(self, rng: Generator) -> tuple[float, float]:
        """Return when one run ends, and how often it was interrupted."""
        shape = self.chance.weibull_shape
        scale = float(self.terms.mtbf_s) / gamma(1 + 1 / shape)
        gaps = np.empty(0)
        for _ in range(DOUBLINGS):
            gaps = np.concatenate([gaps, scale * rng.weibull(shape, max(len(gaps), self.count))])
            # Repairs and the rest are drawn anew when a run is made longer, which few are.
            end = self._find_end(interrupt_run(self.terms, gaps, rng, self.chance.repair_cv), rng)
            if end is not None:
                return end
        return inf, inf

    def _find_end(self, run: InterruptedRun, rng: Generator) -> tuple[float, float] | None:
        """Return when the work is done, and the interruptions until then; None if it is not."""
        firsts = np.concatenate([[0], np.flatnonzero(run.state_lost)])  # a run goes back to a checkpoint before these
        trained_s = np.add.reduceat(run.productive_s, firsts)
        counted_s = np.add.reduceat(run.productive_s * run.speed, firsts)
        speed = np.where(trained_s > 0, counted_s / np.where(trained_s > 0, trained_s, 1.0), 1.0)
        saved_s, reached_s = self._progress(trained_s)
        restarts = np.flatnonzero((rng.random(len(firsts)) < float(self.terms.remote_share)) & (trained_s > 0)) + 1
        done_s, first = 0.0, 0
        for last in (*restarts[restarts < len(firsts)].tolist(), len(firsts)):
            span = slice(first, last)
            before_s = done_s + np.cumsum(saved_s[span] * speed[span]) - saved_s[span] * speed[span]
            enough = np.flatnonzero(before_s + reached_s[span] * speed[span] >= self.work_s)
            if len(enough):
                index = first + int(enough[0])
                rest_s = (self.work_s - before_s[enough[0]]) / speed[index]
                return self._end_within(run, int(firsts[index]), rest_s)
            done_s += self._kept_remotely(trained_s[span], saved_s[span] * speed[span])
            first = last
        return None

    def _progress(self, trained_s: Array) -> tuple[Array, Array]:
        """Return how much of the time trained a complete checkpoint has, and how much was trained at its end."""
        block_s, hidden_s = float(self.terms.block_s), float(self.terms.hidden_s)
        period_s = self.interval_s + block_s
        saved = np.floor(np.maximum(trained_s - hidden_s, 0.0) / period_s)
        full = np.floor(np.maximum(trained_s, 0.0) / period_s)
        reached_s = full * self.interval_s + np.minimum(trained_s - full * period_s, self.interval_s)
        return saved * self.interval_s, reached_s

    def _kept_remotely(self, trained_s: Array, counted_s: Array) -> float:
        """Return what is left of some progress when the run goes back to remote storage."""
        total_s, every_s = float(trained_s.sum()), float(self.terms.remote_interval_s)
        kept_s = np.floor(max(total_s - float(self.terms.remote_write_s), 0.0) / every_s) * every_s
        return float(counted_s.sum()) * kept_s / total_s if total_s > 0 else 0.0

    def _end_within(self, run: InterruptedRun, first: int, rest_s: float) -> tuple[float, float]:
        """Return when so much more is trained from the part *first* on, checkpoints between, and the interruptions."""
        needed_s = rest_s + max(np.ceil(rest_s / self.interval_s) - 1, 0.0) * float(self.terms.block_s)
        trained_s = np.cumsum(run.productive_s[first:])
        index = min(int(np.argmax(trained_s >= needed_s * (1 - 1e-12))), len(trained_s) - 1)
        return float(run.ends_s[first + index] - (trained_s[index] - needed_s)), float(first + index)
