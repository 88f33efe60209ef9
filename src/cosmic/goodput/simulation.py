"""A run simulated interruption by interruption: how its days to train are spread, and whether the closed form holds.

Nothing happens between two interruptions that is not known beforehand, so a run of months on a million accelerators is
some tens of thousands of events, and a few arrays over them (`outages`). What the closed form does not have is chance:
times between interruptions (of any Weibull shape), repairs (of any spread), which replica fails, which domains are
slow, and that a run begins and ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gamma, inf, sqrt

import numpy as np
import numpy.typing as npt
from numpy.random import Generator

from cosmic.errors import require
from cosmic.goodput.closed_form import goodput_of
from cosmic.goodput.outages import Array, Course, course
from cosmic.goodput.terms import Terms

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
class Chance:
    """What is random, and how."""

    weibull_shape: float = 1.0
    """Of the times between interruptions: 1 is exponential; below 1 they come in bursts."""
    repair_cv: float = 1.0
    """Standard deviation of the time of repairs, over their mean; 0: all take the same."""

    def __post_init__(self) -> None:
        require(self.weibull_shape >= 0.1, "weibull_shape", self.weibull_shape, "must be at least 0.1")
        require(self.repair_cv >= 0, "repair_cv", self.repair_cv, "must not be negative")


BY_CHANCE = Chance()


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
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


def simulate(given: Terms, work_s: float, *, runs: int = 200, seed: int = 0, chance: Chance = BY_CHANCE) -> Simulated:
    """Return what becomes of *runs* runs that would take *work_s* without interruptions.

    >>> from cosmic.design.run import Run
    >>> from cosmic.goodput.terms import fields_of, terms
    >>> given = terms(fields_of(Run(npu_mtbf_s=1.8e8)), 16_384, 128, 3e8)
    >>> found = simulate(given, 50 * 86400.0, runs=20)
    >>> found.days_at(0.05) < found.days_at(0.5) < found.days_at(0.95), round(float(found.effective_share.mean()), 2)
    (True, 0.95)
    """
    require(work_s > 0, "work", work_s, "must be positive")
    require(runs >= 1, "runs", runs, "must be at least 1")
    expected = goodput_of(given)
    share = float(expected.effective_share)
    if share < LEAST_SHARE:
        never = np.full(runs, inf)
        return Simulated(days=never, effective_share=1 / never, interruptions=never)
    many = work_s / share / float(given.mtbf_s)
    part = min(1.0, MOST_INTERRUPTIONS / runs / many)
    seeds = np.random.SeedSequence(seed).spawn(runs)
    one = _Run(
        given, float(expected.interval_s), work_s * part, int(MARGIN * many * part + 5 * sqrt(many) + 50), chance
    )
    ended = np.array([one.end(np.random.default_rng(each)) for each in seeds])
    wall_s = ended[:, 0] / part
    if part < 1 and np.all(np.isfinite(wall_s)):
        wall_s = wall_s.mean() + (wall_s - wall_s.mean()) * sqrt(part)
    return Simulated(
        days=wall_s / SECONDS_PER_DAY,
        effective_share=work_s / wall_s,
        interruptions=ended[:, 1] / part,
        simulated_share=part,
    )


@dataclass(frozen=True, slots=True)
class _Run:
    """What all runs have in common."""

    given: Terms
    interval_s: float
    work_s: float
    count: int
    """Interruptions that are simulated at first."""
    chance: Chance

    def end(self, rng: Generator) -> tuple[float, float]:
        """Return when one run ends, and how often it was interrupted."""
        shape = self.chance.weibull_shape
        scale = float(self.given.mtbf_s) / gamma(1 + 1 / shape)
        gaps = np.empty(0)
        for _ in range(DOUBLINGS):
            gaps = np.concatenate([gaps, scale * rng.weibull(shape, max(len(gaps), self.count))])
            # Repairs and the rest are drawn anew when a run is made longer, which few are.
            ended = self._ended(course(self.given, gaps, rng, self.chance.repair_cv), rng)
            if ended is not None:
                return ended
        return inf, inf

    def _ended(self, made: Course, rng: Generator) -> tuple[float, float] | None:
        """Return when the work is done, and the interruptions until then; None if it is not."""
        firsts = np.flatnonzero(made.state_lost)
        firsts = np.concatenate([[0], firsts])
        trained_s = np.add.reduceat(made.productive_s, firsts)
        counted_s = np.add.reduceat(made.productive_s * made.speed, firsts)
        speed = np.where(trained_s > 0, counted_s / np.where(trained_s > 0, trained_s, 1.0), 1.0)
        saved_s, reached_s = self._progress(trained_s)
        back = np.flatnonzero((rng.random(len(firsts)) < float(self.given.remote_share)) & (trained_s > 0)) + 1
        done_s, first = 0.0, 0
        for last in (*back[back < len(firsts)].tolist(), len(firsts)):
            span = slice(first, last)
            before_s = done_s + np.cumsum(saved_s[span] * speed[span]) - saved_s[span] * speed[span]
            enough = np.flatnonzero(before_s + reached_s[span] * speed[span] >= self.work_s)
            if len(enough):
                place = first + int(enough[0])
                rest_s = (self.work_s - before_s[enough[0]]) / speed[place]
                return self._when(made, int(firsts[place]), rest_s)
            done_s += self._remote(trained_s[span], saved_s[span] * speed[span])
            first = last
        return None

    def _progress(self, trained_s: Array) -> tuple[Array, Array]:
        """Return how much of the time trained a complete checkpoint has, and how much was trained at its end."""
        block_s, hidden_s = float(self.given.block_s), float(self.given.hidden_s)
        period_s = self.interval_s + block_s
        saved = np.floor(np.maximum(trained_s - hidden_s, 0.0) / period_s)
        full = np.floor(np.maximum(trained_s, 0.0) / period_s)
        reached_s = full * self.interval_s + np.minimum(trained_s - full * period_s, self.interval_s)
        return saved * self.interval_s, reached_s

    def _remote(self, trained_s: Array, counted_s: Array) -> float:
        """Return what is left of some progress when the run goes back to remote storage."""
        total_s, every_s = float(trained_s.sum()), float(self.given.remote_interval_s)
        kept_s = np.floor(max(total_s - float(self.given.remote_write_s), 0.0) / every_s) * every_s
        return float(counted_s.sum()) * kept_s / total_s if total_s > 0 else 0.0

    def _when(self, made: Course, first: int, rest_s: float) -> tuple[float, float]:
        """Return when so much more is trained from the part *first* on, checkpoints between, and the interruptions."""
        needed_s = rest_s + max(np.ceil(rest_s / self.interval_s) - 1, 0.0) * float(self.given.block_s)
        trained_s = np.cumsum(made.productive_s[first:])
        place = min(int(np.argmax(trained_s >= needed_s * (1 - 1e-12))), len(trained_s) - 1)
        return float(made.ends_s[first + place] - (trained_s[place] - needed_s)), float(first + place)
