"""How sure the days of a run are: by chance of failures (simulated), and by the error of predicted steps (measured)."""

from __future__ import annotations

from dataclasses import dataclass

from cosmic.design.point import DesignPoint
from cosmic.evaluation import Metrics
from cosmic.goodput.designs import checkpoint_bytes
from cosmic.goodput.simulation import simulate
from cosmic.goodput.terms import fields_of, terms

RUNS = 100


@dataclass(frozen=True, slots=True)
class DaysToTrain:
    """Days of a run at quantiles."""

    p05: float
    p50: float
    p95: float


@dataclass(frozen=True, slots=True)
class Risk:
    """Spread of the days to train."""

    failures: DaysToTrain
    """If the step takes what is predicted: simulated runs, which differ by when machines fail."""
    steps: DaysToTrain
    """If failures take what is expected: the step is off by as much as others were."""


def risk_of(point: DesignPoint, metrics: Metrics, runs: int = RUNS) -> Risk | None:
    """Return the spread of the days to train; None where they are not known."""
    if metrics.train_days is None or point.run.tokens is None:
        return None
    work_s = point.run.tokens / metrics.throughput_per_s
    each = checkpoint_bytes(point) / point.network.npus
    given = terms(fields_of(point.run), point.network.npus, point.workload.dp, each, work_s)
    assert given is not None  # noqa: S101  the days are known, and so is the rate of interruptions
    found = simulate(given, work_s, runs=runs)
    slower = metrics.step_s_range
    return Risk(
        DaysToTrain(found.days_at(0.05), found.days_at(0.5), found.days_at(0.95)),
        DaysToTrain(*(metrics.train_days * each / metrics.step_s for each in (slower.p05, slower.p50, slower.p95))),
    )
