"""How sure a sized cluster is: the spread of its days, and what each input does to the answer.

days          by chance of failures (simulated), and by the error of predicted steps (measured)
sensitivity   +10 % of each input: which of them are worth a second look before money is spent
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from cosmic.cluster.goodput import checkpoint_bytes
from cosmic.cluster.interruption_terms import run_fields, run_terms
from cosmic.cluster.run_simulation import simulate_runs
from cosmic.design.design_point import DesignPoint
from cosmic.search.cluster_sizing import EVERY_DIMENSION, OUTERMOST, Question, Row, Sizer, Sizing, UnsizedError
from cosmic.simulate.metrics import Metrics

# --------------------------------------------------------------------------------------
# How sure the days of a run are: by chance of failures (simulated), and by the error of predicted steps (measured)
# --------------------------------------------------------------------------------------

SIMULATED_RUNS = 100


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


def simulate_risk(point: DesignPoint, metrics: Metrics, runs: int = SIMULATED_RUNS) -> Risk | None:
    """Return the spread of the days to train; None where they are not known."""
    if metrics.train_days is None or point.run.tokens is None:
        return None
    work_s = point.run.tokens / metrics.throughput_per_s
    step_s = checkpoint_bytes(point) / point.network.npus
    terms = run_terms(run_fields(point.run), point.network.npus, point.workload.dp, step_s, work_s)
    assert terms is not None  # noqa: S101  the days are known, and so is the rate of interruptions
    runs_result = simulate_runs(terms, work_s, runs=runs)
    slower = metrics.step_s_range
    return Risk(
        DaysToTrain(runs_result.days_at(0.05), runs_result.days_at(0.5), runs_result.days_at(0.95)),
        DaysToTrain(*(metrics.train_days * step_s / metrics.step_s for step_s in (slower.p05, slower.p50, slower.p95))),
    )


# --------------------------------------------------------------------------------------
# What +10 % of each input does to the answer: which of them are worth a second look before money is spent
# --------------------------------------------------------------------------------------

CHANGE_FACTOR = 1.1
"""By how much an input is changed."""


@dataclass(frozen=True, slots=True)
class Effect:
    """What one input does, if it is a tenth more: shares by which answers change, None where that is not known."""

    input: str
    accelerators: int
    """The best number then."""
    train_days: float | None
    train_usd: float | None
    cost_usd: float | None
    power_w: float | None


def measure_sensitivity(sizing: Sizing) -> list[Effect]:
    """Return the effect of every input on the best row, the one that moves the days most in front.

    Prices move the number that fits, and with it days. Mappings are searched anew for numbers that were not tried.
    """
    if sizing.best is None:
        return []
    sizer = Sizer(sizing.question)
    before = sizer.row(sizing.best.best.system)
    effects = []
    for name, factors, question in _vary_inputs(before.best.point, sizing.question):
        try:
            after = sizer.row(before.best.system, factors, question)
        except UnsizedError:
            continue
        effects.append(_measure_effect(name, before, after))
    return sorted(effects, key=_effect_size, reverse=True)


def _effect_size(effect: Effect) -> tuple[float, ...]:
    """Return how much an input matters: by days, then dollars; to a tenth of a per mille, as two may do the same."""
    return tuple(round(abs(change or 0.0), 4) for change in (effect.train_days, effect.train_usd, effect.cost_usd))


def _measure_effect(name: str, before: Row, after: Row) -> Effect:
    changes = {}
    for metric in ("train_days", "train_usd", "cost_usd", "power_w"):
        old, new = getattr(before.best.metrics, metric), getattr(after.best.metrics, metric)
        changes[metric] = None if old is None or new is None else new / old - 1
    return Effect(name, after.best.accelerators, **changes)


def _vary_inputs(point: DesignPoint, question: Question) -> Iterator[tuple[str, Mapping[str, float], Question]]:
    """Yield every input: its name, the fields of designs that are multiplied, and the question then."""
    for name, field in (("budget", "budget_usd"), ("power limit", "power_w"), ("deadline", "deadline_days")):
        value = getattr(question, field)
        if value is not None:
            yield name, {}, replace(question, **{field: value * CHANGE_FACTOR})
    yield "tokens", {}, replace(question, tokens=question.tokens * CHANGE_FACTOR)
    fabric = f"{EVERY_DIMENSION}.fabric"
    fields = {
        "price of an accelerator": ("compute.price",),
        "price of a host": ("node.host_price",),
        "prices of the network": (f"{fabric}.switch_price", f"{fabric}.optic_price", f"{fabric}.cable_price"),
        "price of energy": ("facility.usd_per_kwh",),
        "power usage effectiveness": ("facility.pue",),
        "years of depreciation": ("facility.years",),
        "time between failures": ("run.npu_mtbf",),
        "time of every step": ("compute.time_factor",),
        "bandwidth between nodes": (f"{OUTERMOST}.bandwidth",),
        "bandwidth of memory": ("memory.bandwidth",),
    }
    for name, paths in fields.items():
        yield name, dict.fromkeys(paths, CHANGE_FACTOR), question
