"""Latency over load: what the closed form says of a deployment from a light load to more than it can serve."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

import numpy as np

from cosmic.design.batch import Batch, batch_of
from cosmic.design.point import DesignPoint
from cosmic.evaluation import Infeasible
from cosmic.publishing.contract import Curve, Curves, Slo
from cosmic.publishing.serving_words import LABELS, METRICS, serving_of, slo_on
from cosmic.reporting.words import seconds
from cosmic.serving.deployment import deployment_of
from cosmic.serving.estimating import estimates, plain
from cosmic.serving.outcome import ServingMetrics

LEAST = 1 / 16
"""The lightest load, as a share of the design's own."""
MOST = 2.0
"""The heaviest."""
FAINTEST = 40
"""Halvings after which a load that cannot be served is given up."""
BELOW = 64.0
"""How far below the first load that cannot be served a curve begins, where the design's own cannot be."""
STEPS = 4
"""Loads for each doubling."""
NARROWED = 7
"""Loads that are added in the interval in which a deployment saturates."""
SERVED = 0.995
"""Share of the arrivals that a deployment must complete, or its queue grows without end."""

SEEN = "seen"
"""Under which a design keeps what requests see of it."""

Answers = dict[float, ServingMetrics | None]


def curves_of(point: DesignPoint, slos: Sequence[Slo]) -> Curves | None:
    """Return latencies over load, in closed form; None where no load can be served."""
    load = serving_of(point).load
    closed = load.rate is None
    own = float(load.concurrency or 0) if closed else float(load.rate or 0.0)
    found = _at(point, grid(own, closed=closed), closed=closed)
    if not closed and not any(found.values()):
        found |= _at(point, [own / 2**halved for halved in range(5, FAINTEST)], closed=closed)
        found = _from_served(found)
    _narrow(point, found, closed=closed)
    loads = sorted(found)
    if sum(found[each] is not None for each in loads) < 2:
        return None
    answers = [found[each] for each in loads]
    saturated = next((each for each in loads if found[each] is None), None)
    held = [each for each in loads if _holds(found[each], slos)]
    beyond = next((each for each in loads if not _holds(found[each], slos)), None)
    holds = max((each for each in held if beyond is None or each < beyond), default=None) if slos else None
    curves: Curves = {
        "label": "requests in flight" if closed else "requests per second",
        "unit": "" if closed else "1/s",
        "at": own,
        "loads": [_rounded(each) for each in loads],
        "ttft": _curve("ttft", answers, slos),
        "tpot": _curve("tpot", answers, slos),
        "tokens_per_s_per_npu": [None if each is None else _rounded(each.tokens_per_s_per_npu) for each in answers],
        "tokens_per_s_per_user": [None if each is None else _rounded(each.tokens_per_s_per_user) for each in answers],
        "saturated": saturated,
        "holds": holds,
        "reading": "",
    }
    return {**curves, "reading": _reading(curves, found.get(own), beyond, slos)}


def _from_served(found: Answers) -> Answers:
    """Return answers from a few loads below the first that cannot be served on."""
    least = min(found)
    full = next((each for each in sorted(found) if found[each] is None), least)
    return {each: found[each] for each in found if full / BELOW <= each <= full * MOST}


def grid(own: float, *, closed: bool) -> list[float]:
    """Return loads around a design's own, which is one of them, evenly spread by their logarithm.

    >>> grid(4.0, closed=True)
    [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
    >>> [round(each, 3) for each in grid(16.0, closed=False)][:3]
    [1.0, 1.189, 1.414]
    """
    steps = range(int(-STEPS * 4), STEPS + 1)
    loads = {own * 2 ** (each / STEPS) for each in steps}
    return sorted({max(1.0, float(round(each))) for each in loads} if closed else loads)


def seen_of(point: DesignPoint, engine: str = "analytic") -> ServingMetrics:
    """Return what requests see of a design that can run: in closed form, or simulated one by one."""
    key = (SEEN, engine)
    if key not in point.known:
        point.known[key] = estimates(batch_of(point)).at(0) if engine == "analytic" else _simulated(point)
    found: ServingMetrics = point.known[key]
    return found


def _simulated(point: DesignPoint) -> ServingMetrics:
    from cosmic.serving.simulation import simulate  # noqa: PLC0415  only this engine needs it

    found = simulate(deployment_of(point))
    return estimates(batch_of(point)).at(0) if isinstance(found, Infeasible) else plain(found.metrics)


def _at(point: DesignPoint, loads: Sequence[float], *, closed: bool) -> Answers:
    """Return what a deployment does under other loads; None where one is more than it can serve."""
    path = "serving.load.concurrency" if closed else "serving.load.rate"
    found = estimates(Batch(point, {path: np.array(loads, dtype=np.int64 if closed else np.float64)}))
    answers: Answers = {}
    for place, load in enumerate(loads):
        one = found.at(place) if found.runs[place] else None
        served = one is not None and (closed or one.requests_per_s >= SERVED * load)
        known = one is not None and isfinite(one.ttft.p95_s) and isfinite(one.tpot.p95_s)
        answers[load] = one if served and known else None
    return answers


def _narrow(point: DesignPoint, found: Answers, *, closed: bool) -> None:
    """Add loads where a deployment saturates: its latencies rise most just before."""
    loads = sorted(found)
    full = next((each for each in loads if found[each] is None), None)
    below = [each for each in loads if full is not None and each < full]
    if closed or full is None or not below:
        return
    between = np.linspace(below[-1], full, NARROWED + 2)[1:-1].tolist()
    found |= _at(point, between, closed=closed)


def _curve(name: str, answers: Sequence[ServingMetrics | None], slos: Sequence[Slo]) -> Curve:
    times = [None if each is None else getattr(each, name) for each in answers]
    return {
        "label": LABELS[name],
        "p50_s": [None if each is None else _rounded(each.p50_s) for each in times],
        "p95_s": [None if each is None else _rounded(each.p95_s) for each in times],
        "slo": slo_on(name, slos),
    }


def _rounded(value: float) -> float:
    """Return a number as a picture needs it: every digit is a byte of the page."""
    return float(f"{float(value):.5g}")


def value_of(metrics: ServingMetrics, slo: Slo) -> float:
    """Return what a limit is on."""
    name, statistic = METRICS[slo["metric"]]
    return float(getattr(metrics, name).at(statistic))


def _holds(metrics: ServingMetrics | None, slos: Sequence[Slo]) -> bool:
    return metrics is not None and all(value_of(metrics, each) <= each["limit_s"] for each in slos)


def load_in_words(load: float, *, closed: bool) -> str:
    """Return requests in flight, or requests a second.

    >>> load_in_words(1, closed=True), load_in_words(1234.5, closed=False), load_in_words(0.0123, closed=False)
    ('1 request in flight', '1,234 requests/s', '0.0123 requests/s')
    """
    if closed:
        return f"{load:,.0f} request{'' if load == 1 else 's'} in flight"
    return f"{load:,.0f} requests/s" if load >= 100 else f"{load:.3g} requests/s"


def _reading(curves: Curves, own: ServingMetrics | None, beyond: float | None, slos: Sequence[Slo]) -> str:
    """Return what the curves say: latencies at the design's load, and up to which load the limits hold."""
    closed = not curves["unit"]

    def written(load: float) -> str:
        return load_in_words(load, closed=closed)

    said = []
    if own is None:
        said.append(f"Its own load, {written(curves['at'])}, is more than it can serve.")
    else:
        times = f"p95 of TTFT is {seconds(own.ttft.p95_s)} and of TPOT {seconds(own.tpot.p95_s)}"
        said.append(f"At its load of {written(curves['at'])}, {times}.")
    both = "both SLOs" if len(slos) == 2 else "its SLO" if len(slos) == 1 else "all SLOs"
    if slos and curves["holds"] is None:
        said.append(f"It misses {'an' if len(slos) > 1 else 'its'} SLO at every load shown.")
    elif slos and beyond is None:
        said.append(f"It holds {both} at every load shown.")
    elif slos:
        said.append(f"It holds {both} up to {written(curves['holds'] or 0.0)}.")
    if curves["saturated"] is not None:
        said.append(f"With {written(curves['saturated'])} its queue would grow without end.")
    return " ".join(said)
