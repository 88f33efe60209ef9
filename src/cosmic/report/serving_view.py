"""A design under a load of requests, as the page shows it: latencies, pools, where time goes, latency over load.

First a deployment in words: an instance, its limits, and the limits on latencies that it is to hold. Latency over load is
what the closed form says of a deployment from a light load to more than it can serve.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

import numpy as np

from cosmic.base.errors import require
from cosmic.base.units import SECONDS, format_quantity
from cosmic.design.design_batch import Batch, batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.design.model_layer import is_moe
from cosmic.design.serving_layer import Load, Serving
from cosmic.report.document_types import (
    Curve,
    Curves,
    Fact,
    Latency,
    Part,
    PoolJson,
    ServingJson,
    ServingStudy,
    SloJson,
    Spent,
)
from cosmic.report.launch_commands import accelerator_label
from cosmic.search.design_wording import (
    energy_text,
    load_in_words,
    mapping_in_words,
    metric_label,
    seconds_text,
    share_text,
)
from cosmic.search.objectives import MetricLimit
from cosmic.serving.deployment import Deployment, Pool, deployment_of
from cosmic.serving.served_evaluation import estimate_deployments
from cosmic.serving.serving_metrics import Percentiles, ServingMetrics, plain_metrics
from cosmic.simulate.metrics import Infeasible, Metrics
from cosmic.simulate.step_timeline import SpanClass
from cosmic.step.bottleneck import PART_TITLES

LATENCY_LABELS = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "end to end"}
"""Latencies, and what they are called."""
USUAL_STATISTIC = "p95"
"""The statistic that a limit on requests is compared with."""
LATENCY_METRICS = {
    f"{name}_s" if statistic == "mean" else f"{name}_{statistic}_s": (name, statistic)
    for name in LATENCY_LABELS
    for statistic in ("mean", "p50", "p95", "p99")
}
"""Metrics of a trial that are a latency, with its statistic."""


def serving_of(point: DesignPoint) -> Serving:
    """Return the serving layer of a design that has one."""
    require(point.serving is not None, "serving", None, "the design has no serving layer")
    assert point.serving is not None  # noqa: S101  as was required
    return point.serving


def instance_in_words(pool: Pool) -> str:
    """Return the mapping of one engine instance of a pool."""
    workload, ranks = pool.design.workload, int(pool.ranks)
    degrees = {"tp": workload.tp, "pp": workload.pp, "attention dp": ranks}
    words = [f"{name} {size}" for name, size in degrees.items() if size > 1]
    if is_moe(pool.design.model) and workload.ep > 1:
        words.append(f"ep {workload.ep}")
    return " · ".join(words) or "one accelerator"


def limits_in_words(serving: Serving) -> str:
    """Return the limits of an instance that are stated.

    >>> limits_in_words(Serving(load=Load(isl=1, osl=1, rate=1)))
    "the engine's own limits"
    >>> limits_in_words(Serving(load=Load(isl=1, osl=1, rate=1), max_num_seqs=256, kv_cache_dtype="fp8"))
    'at most 256 requests at once, KV cache in fp8'
    """
    words = []
    if serving.max_num_seqs is not None:
        words.append(f"at most {serving.max_num_seqs:,} requests at once")
    if serving.max_num_batched_tokens is not None:
        words.append(f"at most {serving.max_num_batched_tokens:,} tokens a step")
    if serving.kv_cache_dtype != "auto":
        words.append(f"KV cache in {serving.kv_cache_dtype}")
    if serving.memory_fraction is not None:
        words.append(f"{100 * serving.memory_fraction:.0f} % of the memory")
    if serving.draft_tokens:
        words.append(f"{serving.draft_tokens} drafted tokens a step, {100 * serving.acceptance:.0f} % accepted")
    return ", ".join(words) or "the engine's own limits"


def slos_of(load: Load, limits: Sequence[MetricLimit] = ()) -> list[SloJson]:
    """Return the limits on latencies: those of a search, and of the requests, of which 95 in 100 are to be within.

    Of several on one metric, the tightest counts. Those of the search come first.
    """
    slos: dict[str, SloJson] = {}
    asked = [(limit.metric, limit.bound) for limit in limits if limit.most and limit.metric in LATENCY_METRICS]
    for request_class in load.all_classes:
        asked += (
            [(f"ttft_{USUAL_STATISTIC}_s", request_class.ttft_slo_s)] if request_class.ttft_slo_s is not None else []
        )
        asked += (
            [(f"tpot_{USUAL_STATISTIC}_s", request_class.tpot_slo_s)] if request_class.tpot_slo_s is not None else []
        )
    for metric, bound in sorted(asked, key=lambda each: -each[1]):
        name, statistic = LATENCY_METRICS[metric]
        text = f"{LATENCY_LABELS[name]} {statistic} ≤ {seconds_text(bound)}"
        slos[metric] = SloJson(metric=metric, statistic=statistic, limit_s=bound, text=text)
    limited = {limit.metric for limit in limits}
    return [
        slos[metric]
        for metric in sorted(slos, key=lambda each: (each not in limited, list(LATENCY_METRICS).index(each)))
    ]


def first_slo_on(name: str, slos: Iterable[SloJson]) -> SloJson | None:
    """Return the limit on a latency; of several, the first."""
    return next((slo for slo in slos if LATENCY_METRICS[slo.metric][0] == name), None)


LIGHTEST_LOAD = 1 / 16
"""The lightest load, as a share of the design's own."""
HEAVIEST_LOAD = 2.0
"""The heaviest."""
MOST_HALVINGS = 40
"""Halvings after which a load that cannot be served is given up."""
CURVE_START_FACTOR = 64.0
"""How far below the first load that cannot be served a curve begins, where the design's own cannot be."""
LOADS_PER_DOUBLING = 4
"""Loads for each doubling."""
SATURATION_LOADS = 7
"""Loads that are added in the interval in which a deployment saturates."""
SERVED_SHARE = 0.995
"""Share of the arrivals that a deployment must complete, or its queue grows without end."""

SEEN_KEY = "seen"
"""Under which a design keeps what requests see of it."""

MetricsByLoad = dict[float, ServingMetrics | None]


def curves_of(point: DesignPoint, slos: Sequence[SloJson]) -> Curves | None:
    """Return latencies over load, in closed form; None where no load can be served."""
    load = serving_of(point).load
    closed = load.rate is None
    own = float(load.concurrency or 0) if closed else float(load.rate or 0.0)
    by_load = _metrics_at_loads(point, loads_around(own, closed=closed), closed=closed)
    if not closed and not any(by_load.values()):
        by_load |= _metrics_at_loads(point, [own / 2**halved for halved in range(5, MOST_HALVINGS)], closed=closed)
        by_load = _drop_far_loads(by_load)
    _add_saturating_loads(point, by_load, closed=closed)
    loads = sorted(by_load)
    if sum(by_load[each] is not None for each in loads) < 2:
        return None
    answers = [by_load[each] for each in loads]
    saturated = next((each for each in loads if by_load[each] is None), None)
    held = [each for each in loads if _holds_slos(by_load[each], slos)]
    beyond = next((each for each in loads if not _holds_slos(by_load[each], slos)), None)
    holds = max((each for each in held if beyond is None or each < beyond), default=None) if slos else None
    curves: Curves = Curves(
        label="requests in flight" if closed else "requests per second",
        unit="" if closed else "1/s",
        at=own,
        loads=[_round_for_page(each) for each in loads],
        ttft=_latency_curve("ttft", answers, slos),
        tpot=_latency_curve("tpot", answers, slos),
        tokens_per_s_per_npu=[
            None if answer is None else _round_for_page(answer.tokens_per_s_per_npu) for answer in answers
        ],
        tokens_per_s_per_user=[
            None if answer is None else _round_for_page(answer.tokens_per_s_per_user) for answer in answers
        ],
        saturated=saturated,
        holds=holds,
        reading="",
    )
    return replace(curves, reading=_describe_curves(curves, by_load.get(own), beyond, slos))


def _drop_far_loads(by_load: MetricsByLoad) -> MetricsByLoad:
    """Return answers from a few loads below the first that cannot be served on."""
    least = min(by_load)
    full = next((each for each in sorted(by_load) if by_load[each] is None), least)
    return {each: by_load[each] for each in by_load if full / CURVE_START_FACTOR <= each <= full * HEAVIEST_LOAD}


def loads_around(own: float, *, closed: bool) -> list[float]:
    """Return loads around a design's own, which is one of them, evenly spread by their logarithm.

    >>> loads_around(4.0, closed=True)
    [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
    >>> [round(each, 3) for each in loads_around(16.0, closed=False)][:3]
    [1.0, 1.189, 1.414]
    """
    steps = range(int(-LOADS_PER_DOUBLING * 4), LOADS_PER_DOUBLING + 1)
    loads = {own * 2 ** (step / LOADS_PER_DOUBLING) for step in steps}
    return sorted({max(1.0, float(round(load))) for load in loads} if closed else loads)


def request_metrics_of(point: DesignPoint, engine: str = "analytic") -> ServingMetrics:
    """Return what requests see of a design that can run: in closed form, or simulated one by one."""
    key = (SEEN_KEY, engine)
    if key not in point.known:
        point.known[key] = (
            estimate_deployments(batch_of(point)).metrics_at(0) if engine == "analytic" else _simulate_metrics(point)
        )
    metrics: ServingMetrics = point.known[key]
    return metrics


def _simulate_metrics(point: DesignPoint) -> ServingMetrics:
    from cosmic.serving.request_simulation import simulate_load  # noqa: PLC0415  only this engine needs it

    simulation = simulate_load(deployment_of(point))
    return (
        estimate_deployments(batch_of(point)).metrics_at(0)
        if isinstance(simulation, Infeasible)
        else plain_metrics(simulation.metrics)
    )


def _metrics_at_loads(point: DesignPoint, loads: Sequence[float], *, closed: bool) -> MetricsByLoad:
    """Return what a deployment does under other loads; None where one is more than it can serve."""
    path = "serving.load.concurrency" if closed else "serving.load.rate"
    estimates = estimate_deployments(Batch(point, {path: np.array(loads, dtype=np.int64 if closed else np.float64)}))
    answers: MetricsByLoad = {}
    for index, load in enumerate(loads):
        metrics = estimates.metrics_at(index) if estimates.runs[index] else None
        served = metrics is not None and (closed or metrics.requests_per_s >= SERVED_SHARE * load)
        finite = metrics is not None and isfinite(metrics.ttft.p95_s) and isfinite(metrics.tpot.p95_s)
        answers[load] = metrics if served and finite else None
    return answers


def _add_saturating_loads(point: DesignPoint, by_load: MetricsByLoad, *, closed: bool) -> None:
    """Add loads where a deployment saturates: its latencies rise most just before."""
    loads = sorted(by_load)
    full = next((load for load in loads if by_load[load] is None), None)
    below = [load for load in loads if full is not None and load < full]
    if closed or full is None or not below:
        return
    between = np.linspace(below[-1], full, SATURATION_LOADS + 2)[1:-1].tolist()
    by_load |= _metrics_at_loads(point, between, closed=closed)


def _latency_curve(name: str, answers: Sequence[ServingMetrics | None], slos: Sequence[SloJson]) -> Curve:
    times = [None if answer is None else getattr(answer, name) for answer in answers]
    return Curve(
        label=LATENCY_LABELS[name],
        p50_s=[None if time is None else _round_for_page(time.p50_s) for time in times],
        p95_s=[None if time is None else _round_for_page(time.p95_s) for time in times],
        slo=first_slo_on(name, slos),
    )


def _round_for_page(value: float) -> float:
    """Return a number as a picture needs it: every digit is a byte of the page."""
    return float(f"{float(value):.5g}")


def slo_value(metrics: ServingMetrics, slo: SloJson) -> float:
    """Return what a limit is on."""
    name, statistic = LATENCY_METRICS[slo.metric]
    return float(getattr(metrics, name).at(statistic))


def _holds_slos(metrics: ServingMetrics | None, slos: Sequence[SloJson]) -> bool:
    return metrics is not None and all(slo_value(metrics, slo) <= slo.limit_s for slo in slos)


def request_rate_in_words(load: float, *, closed: bool) -> str:
    """Return requests in flight, or requests a second.

    >>> request_rate_in_words(1, closed=True), request_rate_in_words(1234.5, closed=False), request_rate_in_words(0.0123, closed=False)
    ('1 request in flight', '1,234 requests/s', '0.0123 requests/s')
    """
    if closed:
        return f"{load:,.0f} request{'' if load == 1 else 's'} in flight"
    return f"{load:,.0f} requests/s" if load >= 100 else f"{load:.3g} requests/s"


def _describe_curves(curves: Curves, own: ServingMetrics | None, beyond: float | None, slos: Sequence[SloJson]) -> str:
    """Return what the curves say: latencies at the design's load, and up to which load the limits hold."""
    closed = not curves.unit

    def written(load: float) -> str:
        return request_rate_in_words(load, closed=closed)

    sentences = []
    if own is None:
        sentences.append(f"Its own load, {written(curves.at)}, is more than it can serve.")
    else:
        times = f"p95 of TTFT is {seconds_text(own.ttft.p95_s)} and of TPOT {seconds_text(own.tpot.p95_s)}"
        sentences.append(f"At its load of {written(curves.at)}, {times}.")
    both = "both SLOs" if len(slos) == 2 else "its SLO" if len(slos) == 1 else "all SLOs"
    if slos and curves.holds is None:
        sentences.append(f"It misses {'an' if len(slos) > 1 else 'its'} SLO at every load shown.")
    elif slos and beyond is None:
        sentences.append(f"It holds {both} at every load shown.")
    elif slos:
        sentences.append(f"It holds {both} up to {written(curves.holds or 0.0)}.")
    if curves.saturated is not None:
        sentences.append(f"With {written(curves.saturated)} its queue would grow without end.")
    return " ".join(sentences)


SERVING_CLASSES: dict[str, SpanClass] = {
    "gemm": "compute",
    "attention": "compute",
    "other": "compute",
    "prefill": "compute",
    "steps": "compute",
    "queueing": "idle",
    "others": "idle",
    "launch": "idle",
    "engine": "other",
    "front_end": "other",
}
"""The colour class of a part of a step or of TTFT; parts that are not listed are communication."""
SERVING_PART_LABELS = {
    "engine": "engine",
    "queueing": "queueing",
    "prefill": "prefill",
    "front_end": "front end",
    "transfer": "KV transfer",
    "hold": "held back",
    "steps": "decode steps",
    "others": "prefills of other requests",
}
"""Parts that a single step does not have."""
SMALLEST_SHARE_SHOWN = 0.005
"""Share of a time below which a part of it is left out."""
SIMULATED_NOTE = " Requests were simulated one by one; latency over load is in closed form."


def serving_part(point: DesignPoint, limits: Sequence[MetricLimit] = (), engine: str = "analytic") -> ServingJson:
    """Return what a design that can run does under its load; *limits* are those of a search by *engine*."""
    serving, deployment, metrics = serving_of(point), deployment_of(point), request_metrics_of(point, engine)
    slos = slos_of(serving.load, limits)
    return ServingJson(
        kind="disaggregated" if serving.disaggregated else "aggregated",
        engine=serving.engine,
        load=load_in_words(serving.load),
        mapping=mapping_in_words(point),
        limits=limits_in_words(serving),
        latencies=[_latency_json(name, getattr(metrics, name), slos) for name in LATENCY_LABELS],
        pools=[_pool_json(name, pool, deployment, metrics) for name, pool in _named_pools(deployment)],
        spent=time_spent(metrics, serving.tokens_per_step),
        curves=curves_of(point, slos),
        reading=describe_slos(metrics, slos) + ("" if engine == "analytic" else SIMULATED_NOTE),
    )


def _named_pools(deployment: Deployment) -> list[tuple[str, Pool]]:
    if deployment.prefill is None:
        return [("all", deployment.pool)]
    return [("prefill", deployment.prefill), ("decode", deployment.pool)]


def _latency_json(name: Any, times: Percentiles, slos: Sequence[SloJson]) -> Latency:
    return Latency(
        name=name,
        label=LATENCY_LABELS[name],
        mean_s=times.mean_s,
        p50_s=times.p50_s,
        p95_s=times.p95_s,
        p99_s=times.p99_s,
        slo=first_slo_on(name, slos),
    )


def _pool_json(name: str, pool: Pool, deployment: Deployment, metrics: ServingMetrics) -> PoolJson:
    """Return a pool; requests run, and fill the KV cache, in the one that decodes."""
    decodes = pool is deployment.pool
    first = name != "decode"
    return PoolJson(
        name=name,
        label={"all": "prefill and decode"}.get(name, name),
        instances=int(pool.instances),
        npus=int(pool.npus),
        accelerator=pool.design.compute.accelerator or "NPU",
        mapping=instance_in_words(pool),
        utilization=metrics.utilisation.get(name),
        kv_use=metrics.kv_use if decodes else None,
        running=metrics.running if decodes else None,
        waiting=metrics.waiting if first else None,
    )


def time_spent(metrics: ServingMetrics, tokens_per_step: float = 1.0) -> list[Spent]:
    """Return where the mean time to first token, the mean time per output token and a mean decode step go."""
    spent: list[Spent] = []
    for name, label, parts in (
        ("ttft", "time to first token", metrics.ttft_breakdown),
        ("tpot", "time per output token", _token_parts(metrics, tokens_per_step)),
        ("decode", "decode step", metrics.decode_breakdown),
    ):
        listed = _breakdown_parts(parts)
        if listed:
            total = sum(each.seconds for each in listed)
            spent.append(Spent(name=name, label=label, seconds=total, parts=listed))  # type: ignore[arg-type]
    return spent


def _token_parts(metrics: ServingMetrics, tokens_per_step: float) -> dict[str, float]:
    """Return what a token takes: its share of a decode step, and what prefills of other requests add to it."""
    token_s = float(metrics.tpot.mean_s)
    step = min(token_s, sum(metrics.decode_breakdown.values()) / tokens_per_step)
    others = token_s - step
    return {"steps": step, "others": others if others > SMALLEST_SHARE_SHOWN * token_s else 0.0}


def _breakdown_parts(breakdown: Mapping[str, Any]) -> list[Part]:
    return [
        Part(
            name=name,
            label=SERVING_PART_LABELS.get(name) or PART_TITLES.get(name) or name.replace("_", " "),
            colour=SERVING_CLASSES.get(name, "exposed"),
            seconds=float(value),
        )
        for name, value in breakdown.items()
        if value is not None and value > 0
    ]


def describe_slos(metrics: ServingMetrics, slos: Sequence[SloJson]) -> str:
    """Return whether the limits hold, and how many requests are within them."""
    if not slos:
        return "No SLO is stated: a load has them as ttft_slo and tpot_slo, a search as constraints."
    missed = [slo for slo in slos if slo_value(metrics, slo) > slo.limit_s]
    sentences = [
        f"{slo.text}: {'missed' if slo in missed else 'held'}, with {seconds_text(slo_value(metrics, slo))}"
        for slo in slos
    ]
    within = "" if metrics.within_slo is None else f" {share_text(metrics.within_slo)} of the requests are within."
    return f"{'; '.join(sentences)}.{within}"


def describe_missed_slos(point: DesignPoint, limits: Sequence[MetricLimit] = (), engine: str = "analytic") -> list[str]:
    """Return a sentence on the limits on latencies that a design misses, and how to search for one that does not."""
    if point.serving is None:
        return []
    seen = request_metrics_of(point, engine)
    beyond = [each for each in slos_of(point.serving.load, limits) if slo_value(seen, each) > each.limit_s]
    if not beyond:
        return []
    missed = " and ".join(f"{each.text} ({seconds_text(slo_value(seen, each))})" for each in beyond)
    flags = " ".join(f"--constraint '{each.metric} <= {format_quantity(each.limit_s, SECONDS)}'" for each in beyond)
    return [f"The best design misses {missed}: search with {flags} for one that does not."]


# ---- verdict


def serving_headline(point: DesignPoint, metrics: Metrics, machine: str) -> str:
    """Return the model, the machine, what each accelerator makes and what each user gets."""
    limits_text = ", ".join(
        f"{each.text} {each.label}" for each in (_per_accelerator_fact(point, metrics), _per_user_fact(metrics))
    )
    return f"{point.model.name or 'The model'} on {machine}: {limits_text}"


def design_in_words(point: DesignPoint) -> str:
    """Return the load of a deployment, its mapping, its engine and its limits."""
    serving = serving_of(point)
    return f"{load_in_words(serving.load)}; {mapping_in_words(point)}; {limits_in_words(serving)}"


def serving_facts(
    point: DesignPoint, metrics: Metrics, limits: Sequence[MetricLimit] = (), engine: str = "analytic"
) -> list[Fact]:
    """Return what a deployment achieves by *engine* as facts; a latency with a limit says whether it holds."""
    seen, slos = request_metrics_of(point, engine), slos_of(serving_of(point).load, limits)
    facts: list[Fact] = []
    for name in ("ttft", "tpot"):
        times: Percentiles = getattr(seen, name)
        for statistic, metric in (("mean", f"{name}_s"), ("p95", f"{name}_p95_s")):
            value, note = times.at(statistic), _slo_note(name, statistic, seen, slos)
            facts.append(Fact(metric_label(metric), seconds_text(value), value, note))
    facts += [
        Fact("end to end", seconds_text(seen.e2e.mean_s), seen.e2e.mean_s, "a whole request, mean"),
        _per_accelerator_fact(point, metrics),
        _per_user_fact(metrics),
        count_fact(metric_label("tokens_per_s"), metrics.throughput_per_s, "output tokens of all requests"),
        count_fact("requests/s", seen.requests_per_s),
    ]
    if seen.within_slo is not None:
        facts.append(Fact("within SLO", share_text(seen.within_slo), seen.within_slo, "share of the requests"))
    facts += [
        per_million_fact("cost", "tokens", metrics, "cost_usd_per_token", "to own and run, output tokens"),
        per_million_fact("energy", "tokens", metrics, "energy_j_per_token", "output tokens"),
    ]
    shares = {"busy" if name == "all" else f"{name} pool busy": busy for name, busy in seen.utilisation.items()}
    shares["KV cache in use"] = seen.kv_use
    return [*facts, *(Fact(label, share_text(share), share) for label, share in shares.items())]


def _slo_note(name: str, statistic: str, metrics: ServingMetrics, slos: Sequence[SloJson]) -> str:
    slo = first_slo_on(name, slos)
    if slo is None or slo.statistic != statistic:
        return ""
    return f"{'holds' if slo_value(metrics, slo) <= slo.limit_s else 'misses'} the SLO, {seconds_text(slo.limit_s)}"


def count_fact(label: str, value: float, note: str = "") -> Fact:
    """Return a number that counts things, as a fact."""
    return Fact(label, f"{value:,.0f}" if value >= 100 else f"{value:.3g}", value, note)


def _per_accelerator_fact(point: DesignPoint, metrics: Metrics) -> Fact:
    return count_fact(
        accelerator_label(point, "tokens_per_s_per_npu"), metrics.tokens_per_s_per_npu or 0.0, "output tokens"
    )


def _per_user_fact(metrics: Metrics) -> Fact:
    label = metric_label("tokens_per_s_per_user")
    return count_fact(label, metrics.tokens_per_s_per_user or 0.0, "while a request decodes")


def per_million_fact(quantity: str, counted: str, metrics: Metrics, name: str, note: str) -> Fact:
    """Return the cost or the energy of a million tokens or samples, or that it is unknown and why."""
    label, each = f"{quantity} per million {counted}", getattr(metrics, name)
    if each is None:
        return Fact(label, "unknown", None, metrics.unknown.get(name, ""))
    return Fact(label, f"{1e6 * each:.3g} USD" if quantity == "cost" else energy_text(1e6 * each), 1e6 * each, note)


def decode_point(point: DesignPoint) -> DesignPoint:
    """Return one decode step of the instances that decode, with the requests that run under the load."""
    load, pool = serving_of(point).load, deployment_of(point).pool
    ranks = pool.design.workload.dp
    each = max(1, round(request_metrics_of(point).running / ranks))
    context = max(1, round(load.mean("isl") + load.mean("osl") / 2))
    step = {"task": "decode", "micro_batch": each, "global_batch": each * ranks, "sequence": context}
    return replace(pool.design, serving=None).changed({f"workload.{name}": value for name, value in step.items()})


def serving_study(base: DesignPoint, limits: Sequence[MetricLimit]) -> ServingStudy | None:
    """Return what a study of serving is about; None for one of single steps."""
    if base.serving is None:
        return None
    return ServingStudy(
        user="tokens_per_s_per_user", npu="tokens_per_s_per_npu", slos=slos_of(base.serving.load, limits)
    )
