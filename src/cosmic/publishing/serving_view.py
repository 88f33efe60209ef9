"""A design under a load of requests, as the page shows it: latencies, pools, where time goes, latency over load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.design.point import DesignPoint
from cosmic.evaluation import Metrics
from cosmic.exploration.objectives import Limit
from cosmic.publishing.contract import Class, Fact, Latency, Part, Serving, ServingStudy, Slo, Spent
from cosmic.publishing.contract import Pool as PoolPart
from cosmic.publishing.launch import label_on
from cosmic.publishing.load_curves import curves_of, seen_of, value_of
from cosmic.publishing.serving_words import (
    LABELS,
    instance_in_words,
    limits_in_words,
    serving_of,
    slo_on,
    slos_of,
)
from cosmic.reporting.words import energy, load_in_words, mapping_in_words, metric_label, seconds, share
from cosmic.serving.deployment import Deployment, Pool, deployment_of
from cosmic.serving.outcome import Percentiles, ServingMetrics
from cosmic.step.bound import PARTS
from cosmic.units import SECONDS, show

CLASSES: dict[str, Class] = {
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
WORDS = {
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
LEAST = 0.005
"""Share of a time below which a part of it is left out."""
SIMULATED = " Requests were simulated one by one; latency over load is in closed form."


def serving_part(point: DesignPoint, limits: Sequence[Limit] = (), engine: str = "analytic") -> Serving:
    """Return what a design that can run does under its load; *limits* are those of a search by *engine*."""
    serving, deployment, metrics = serving_of(point), deployment_of(point), seen_of(point, engine)
    slos = slos_of(serving.load, limits)
    return {
        "kind": "disaggregated" if serving.disaggregated else "aggregated",
        "engine": serving.engine,
        "load": load_in_words(serving.load),
        "mapping": mapping_in_words(point),
        "limits": limits_in_words(serving),
        "latencies": [_latency(name, getattr(metrics, name), slos) for name in LABELS],
        "pools": [_pool(name, pool, deployment, metrics) for name, pool in _named(deployment)],
        "spent": spent_of(metrics, serving.tokens_per_step),
        "curves": curves_of(point, slos),
        "reading": reading(metrics, slos) + ("" if engine == "analytic" else SIMULATED),
    }


def _named(deployment: Deployment) -> list[tuple[str, Pool]]:
    if deployment.prefill is None:
        return [("all", deployment.pool)]
    return [("prefill", deployment.prefill), ("decode", deployment.pool)]


def _latency(name: Any, times: Percentiles, slos: Sequence[Slo]) -> Latency:
    return {
        "name": name,
        "label": LABELS[name],
        "mean_s": times.mean_s,
        "p50_s": times.p50_s,
        "p95_s": times.p95_s,
        "p99_s": times.p99_s,
        "slo": slo_on(name, slos),
    }


def _pool(name: str, pool: Pool, deployment: Deployment, metrics: ServingMetrics) -> PoolPart:
    """Return a pool; requests run, and fill the KV cache, in the one that decodes."""
    decodes = pool is deployment.pool
    first = name != "decode"
    return {
        "name": name,
        "label": {"all": "prefill and decode"}.get(name, name),
        "instances": int(pool.instances),
        "npus": int(pool.npus),
        "accelerator": pool.design.compute.accelerator or "NPU",
        "mapping": instance_in_words(pool),
        "utilization": metrics.utilisation.get(name),
        "kv_use": metrics.kv_use if decodes else None,
        "running": metrics.running if decodes else None,
        "waiting": metrics.waiting if first else None,
    }


def spent_of(metrics: ServingMetrics, tokens_per_step: float = 1.0) -> list[Spent]:
    """Return where the mean time to first token, the mean time per output token and a mean decode step go."""
    found: list[Spent] = []
    for name, label, parts in (
        ("ttft", "time to first token", metrics.ttft_breakdown),
        ("tpot", "time per output token", _token(metrics, tokens_per_step)),
        ("decode", "decode step", metrics.decode_breakdown),
    ):
        listed = _parts(parts)
        if listed:
            total = sum(each["seconds"] for each in listed)
            found.append({"name": name, "label": label, "seconds": total, "parts": listed})  # type: ignore[typeddict-item]
    return found


def _token(metrics: ServingMetrics, tokens_per_step: float) -> dict[str, float]:
    """Return what a token takes: its share of a decode step, and what prefills of other requests add to it."""
    whole = float(metrics.tpot.mean_s)
    step = min(whole, sum(metrics.decode_breakdown.values()) / tokens_per_step)
    others = whole - step
    return {"steps": step, "others": others if others > LEAST * whole else 0.0}


def _parts(breakdown: Mapping[str, Any]) -> list[Part]:
    return [
        {
            "name": name,
            "label": WORDS.get(name) or PARTS.get(name) or name.replace("_", " "),
            "class": CLASSES.get(name, "exposed"),
            "seconds": float(value),
        }
        for name, value in breakdown.items()
        if value is not None and value > 0
    ]


def reading(metrics: ServingMetrics, slos: Sequence[Slo]) -> str:
    """Return whether the limits hold, and how many requests are within them."""
    if not slos:
        return "No SLO is stated: a load has them as ttft_slo and tpot_slo, a search as constraints."
    missed = [each for each in slos if value_of(metrics, each) > each["limit_s"]]
    said = [
        f"{each['text']}: {'missed' if each in missed else 'held'}, with {seconds(value_of(metrics, each))}"
        for each in slos
    ]
    within = "" if metrics.within_slo is None else f" {share(metrics.within_slo)} of the requests are within."
    return f"{'; '.join(said)}.{within}"


def missed(point: DesignPoint, limits: Sequence[Limit] = (), engine: str = "analytic") -> list[str]:
    """Return a sentence on the limits on latencies that a design misses, and how to search for one that does not."""
    if point.serving is None:
        return []
    seen = seen_of(point, engine)
    beyond = [each for each in slos_of(point.serving.load, limits) if value_of(seen, each) > each["limit_s"]]
    if not beyond:
        return []
    said = " and ".join(f"{each['text']} ({seconds(value_of(seen, each))})" for each in beyond)
    flags = " ".join(f"--constraint '{each['metric']} <= {show(each['limit_s'], SECONDS)}'" for each in beyond)
    return [f"The best design misses {said}: search with {flags} for one that does not."]


# -------------------------------------------------------------------------------------------------- verdict


def headline(point: DesignPoint, metrics: Metrics, machine: str) -> str:
    """Return the model, the machine, what each accelerator makes and what each user gets."""
    said = ", ".join(
        f"{each['text']} {each['label']}" for each in (_per_accelerator(point, metrics), _per_user(metrics))
    )
    return f"{point.model.name or 'The model'} on {machine}: {said}"


def design_in_words(point: DesignPoint) -> str:
    """Return the load of a deployment, its mapping, its engine and its limits."""
    serving = serving_of(point)
    return f"{load_in_words(serving.load)}; {mapping_in_words(point)}; {limits_in_words(serving)}"


def facts_of(
    point: DesignPoint, metrics: Metrics, limits: Sequence[Limit] = (), engine: str = "analytic"
) -> list[Fact]:
    """Return what a deployment achieves by *engine* as facts; a latency with a limit says whether it holds."""
    seen, slos = seen_of(point, engine), slos_of(serving_of(point).load, limits)
    found: list[Fact] = []
    for name in ("ttft", "tpot"):
        times: Percentiles = getattr(seen, name)
        for statistic, metric in (("mean", f"{name}_s"), ("p95", f"{name}_p95_s")):
            found.append(_time(metric_label(metric), times.at(statistic), _held(name, statistic, seen, slos)))
    found += [
        _time("end to end", seen.e2e.mean_s, "a whole request, mean"),
        _per_accelerator(point, metrics),
        _per_user(metrics),
        _count(metric_label("tokens_per_s"), metrics.throughput_per_s, "output tokens of all requests"),
        _count("requests/s", seen.requests_per_s, ""),
    ]
    if seen.within_slo is not None:
        found.append({**_share("within SLO", seen.within_slo), "note": "share of the requests"})
    found += [
        _per_million("cost", metrics, "cost_usd_per_token"),
        _per_million("energy", metrics, "energy_j_per_token"),
    ]
    for name, busy in seen.utilisation.items():
        found.append(_share("busy" if name == "all" else f"{name} pool busy", busy))
    found.append(_share("KV cache in use", seen.kv_use))
    return found


def _held(name: str, statistic: str, metrics: ServingMetrics, slos: Sequence[Slo]) -> str:
    slo = slo_on(name, slos)
    if slo is None or slo["statistic"] != statistic:
        return ""
    return f"{'holds' if value_of(metrics, slo) <= slo['limit_s'] else 'misses'} the SLO, {seconds(slo['limit_s'])}"


def _time(label: str, value: float, note: str) -> Fact:
    return {"label": label, "text": seconds(value), "value": value, "note": note}


def _count(label: str, value: float, note: str) -> Fact:
    return {"label": label, "text": f"{value:,.0f}" if value >= 100 else f"{value:.3g}", "value": value, "note": note}


def _share(label: str, value: float) -> Fact:
    return {"label": label, "text": share(value), "value": value, "note": ""}


def _per_accelerator(point: DesignPoint, metrics: Metrics) -> Fact:
    return _count(label_on(point, "tokens_per_s_per_npu"), metrics.tokens_per_s_per_npu or 0.0, "output tokens")


def _per_user(metrics: Metrics) -> Fact:
    label = metric_label("tokens_per_s_per_user")
    return _count(label, metrics.tokens_per_s_per_user or 0.0, "while a request decodes")


def _per_million(what: str, metrics: Metrics, name: str) -> Fact:
    """Return the cost or the energy of a million tokens, or that it is unknown and why."""
    label, each = f"{what} per million tokens", getattr(metrics, name)
    if each is None:
        return {"label": label, "text": "unknown", "value": None, "note": metrics.unknown.get(name, "")}
    text = f"{1e6 * each:.3g} USD" if what == "cost" else energy(1e6 * each)
    note = "to own and run, output tokens" if what == "cost" else "output tokens"
    return {"label": label, "text": text, "value": 1e6 * each, "note": note}


def decode_point(point: DesignPoint) -> DesignPoint:
    """Return one decode step of the instances that decode, with the requests that run under the load."""
    load, pool = serving_of(point).load, deployment_of(point).pool
    ranks = pool.design.workload.dp
    each = max(1, round(seen_of(point).running / ranks))
    context = max(1, round(load.mean("isl") + load.mean("osl") / 2))
    step = {"task": "decode", "micro_batch": each, "global_batch": each * ranks, "sequence": context}
    return replace(pool.design, serving=None).changed({f"workload.{name}": value for name, value in step.items()})


def trade_off(speed: npt.NDArray[np.float64], throughput: npt.NDArray[np.float64]) -> list[int]:
    """Return the places of the deployments than which no other has more of both, fastest users first.

    >>> trade_off(np.array([40.0, 60.0, 30.0, 50.0, np.nan]), np.array([100.0, 50.0, 90.0, 40.0, np.nan]))
    [1, 0]
    """
    front: list[int] = []
    for place in np.lexsort((-throughput, -speed)).tolist():
        if np.isfinite(speed[place]) and (not front or throughput[place] > throughput[front[-1]]):
            front.append(place)
    return front


def serving_study(base: DesignPoint, limits: Sequence[Limit]) -> ServingStudy | None:
    """Return what a study of serving is about; None for one of single steps."""
    if base.serving is None:
        return None
    return {"user": "tokens_per_s_per_user", "npu": "tokens_per_s_per_npu", "slos": slos_of(base.serving.load, limits)}
