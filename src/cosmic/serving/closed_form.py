"""The metrics of a deployment under its load, in closed form: means and percentiles, for one or for many at once.

    closed loop   `cosmic.serving.continuous_batching` for the clients of one rank of attention
    open loop     so many requests run that they end as fast as they come: X(r) = λ, X(r) = r / T(r)

X grows with r up to what fits: that is the capacity, and a rate above it cannot be served. At a rate below it, requests
wait for a seat as in a queue of m servers, and otherwise as in a closed loop:

    W = T / m  ρ^(√(2 (m + 1)) - 1) / (1 - ρ)  (a² + c²) / 2        ρ  = λ / capacity        m  seats
                                                                    a, c  variation of arrivals and of lengths

(Allen and Cunneen's approximation, with Sakasegawa's exponent). Times of requests have a distribution: what they wait
is uniform around its mean, waits for seats are exponential, prompts vary with their lengths; percentiles are those of
a sample.

Instances are independent and share the load evenly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.design.design_batch import none_to_nan
from cosmic.design.serving_layer import RequestClass
from cosmic.serving.continuous_batching import (
    FLOOR_TOLERANCE,
    ClientTimes,
    RankLoad,
    estimate_closed_loop,
    estimate_open_loop,
    mean_context,
    rank_capacity,
)
from cosmic.serving.deployment import Deployment
from cosmic.serving.serving_metrics import Percentiles, ServingMetrics
from cosmic.serving.step_price import StepPrice

Floats = npt.NDArray[np.float64]
SAMPLES = 256
"""Requests from which percentiles are taken."""
SHORTEST = 0.05
"""Shortest prompt or answer of a sample, as a share of the mean."""
RATIO = 1.1347241384015194
"""Solves x⁶ = x + 1: multiples of its powers fill five dimensions evenly."""


def _sample_shares() -> list[Floats]:
    """Return numbers between 0 and 1 for each of five parts of a request's times, evenly spread and independent."""
    ranks_of_samples = np.arange(1, SAMPLES + 1)
    return [(0.5 + ranks_of_samples / RATIO**part) % 1 for part in range(1, 6)]


def _normal_quantiles(shares: Floats) -> Floats:
    return np.array([NormalDist().inv_cdf(share) for share in shares])


FOUND, FRONT, STEP, PROMPT, ANSWER = _sample_shares()
"""How much of a step a request finds, its front end, which step it finds, and its lengths."""
PROMPT, ANSWER = _normal_quantiles(PROMPT), _normal_quantiles(ANSWER)


def estimate_deployment(deployment: Deployment) -> ServingMetrics:
    """Return what clients of a deployment see: arrays over its designs.

    NaN where weights leave no room for a request, or where requests come faster than they are served.
    """
    if deployment.prefill is not None:
        from cosmic.serving.disaggregated_serving import estimate_pools  # noqa: PLC0415  it needs this module's values

        return estimate_pools(deployment)
    price = deployment.pool.price
    load = load_of_rank(deployment)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        if deployment.load.rate is None:
            times, rate = estimate_closed_loop(price, load), None
        else:
            times, rate = (
                estimate_open_loop(
                    price,
                    load,
                    _rate(deployment) / (deployment.pool.ranks * deployment.pool.instances),
                    deployment.load.arrival_cv,
                ),
                _rate(deployment),
            )
        return _metrics(deployment, price, load, times, rate)


def deployment_capacity(deployment: Deployment) -> Any:
    """Return the requests a second that a deployment of one pool can serve: above it, they queue up without end."""
    pool = deployment.pool
    return rank_capacity(pool.price, load_of_rank(deployment)) * pool.ranks * pool.instances


def load_of_rank(deployment: Deployment) -> RankLoad:
    """Return the load of one rank of attention; in an open loop, one with a single client."""
    batch, pool = deployment.batch, deployment.pool
    engine = pool.engine
    all_ranks = np.asarray(pool.ranks * pool.instances, dtype=float)
    clients: Any = 1.0
    if deployment.load.concurrency is not None:
        clients = np.asarray(batch["serving.load.concurrency"], dtype=float) / all_ranks
    rows = np.ones(batch.size)
    limits = {}
    for name in ("max_num_seqs", "max_num_batched_tokens"):
        limit = none_to_nan(batch[f"serving.{name}"])
        limits[name] = np.where(np.isnan(limit), getattr(engine, name), limit)
    return RankLoad(
        clients=rows * clients,
        isl=rows * np.asarray(deployment.mean("isl"), dtype=float),
        osl=rows * np.asarray(deployment.mean("osl"), dtype=float),
        osl_cv=_spread(deployment, "osl"),
        isl_cv=_spread(deployment, "isl"),
        prefix_hit=rows * np.asarray(deployment.mean("prefix_hit"), dtype=float),
        tokens_per_step=_tokens_per_step(deployment),
        max_tokens=limits["max_num_batched_tokens"],
        seats=limits["max_num_seqs"],
        ranks=rows * np.asarray(pool.ranks, dtype=float),
        devices=rows * np.asarray(pool.batch["workload.tp"] * pool.batch["workload.pp"], dtype=float),
        stages=rows * np.asarray(pool.batch["workload.pp"], dtype=float),
        mla=float(getattr(batch.base.model, "mla", None) is not None),
        rounds=deployment.load.rounds,
    )


def _tokens_per_step(deployment: Deployment) -> Any:
    """Return the tokens that a request gains a step: 1 + a + a² + …, if a share a of drafted tokens is accepted."""
    accepted = np.asarray(deployment.batch["serving.acceptance"], dtype=float)
    return sum(
        (accepted**index for index in range(1, deployment.pool.serving.draft_tokens + 1)), np.ones_like(accepted)
    )


def _spread(deployment: Deployment, name: str) -> Any:
    """Return the variation of a length over all requests: within classes, and between them."""
    classes = deployment.load.all_classes
    if len(classes) == 1:
        return np.asarray(deployment.mean(f"{name}_cv"), dtype=float)
    mean, share_sum = deployment.load.mean(name), sum(class_.share for class_ in classes)
    squares = sum(
        class_.share * getattr(class_, name) ** 2 * (1 + getattr(class_, f"{name}_cv") ** 2) for class_ in classes
    )
    return sqrt(max(squares / share_sum / mean**2 - 1, 0.0))


def _rate(deployment: Deployment) -> Any:
    return np.asarray(deployment.batch["serving.load.rate"], dtype=float)


# ---- what clients see


@dataclass(frozen=True, slots=True)
class RequestTimes:
    """Samples of the times of requests, along the first axis."""

    ttft: Floats
    tpot: Floats
    e2e: Floats


def _metrics(
    deployment: Deployment, price: StepPrice, load: RankLoad, client_times: ClientTimes, rate: Any
) -> ServingMetrics:
    ranks = deployment.pool.ranks * deployment.pool.instances
    runs = np.floor(price.held_requests(load.isl + load.osl)) >= 1
    times = _sample_times(load, client_times, price.engine.taken_steps)
    ttft, tpot = np.where(runs, client_times.mean_ttft_s, np.nan), np.where(runs, client_times.tpot_s, np.nan)
    e2e = ttft + np.maximum(load.osl - 1, 0.0) * tpot
    tpot = np.where(load.osl > 1, tpot, np.nan)  # a single token has no next one
    in_flight = load.clients * ranks if rate is None else rate * e2e
    if rate is None and deployment.load.concurrency is not None:
        in_flight = np.minimum(in_flight, np.asarray(deployment.batch["serving.load.concurrency"], dtype=float))
    through = in_flight / e2e if rate is None else rate * np.where(np.isnan(ttft), np.nan, 1.0)
    running = np.minimum(client_times.running * ranks, in_flight)
    times = replace(times, tpot=np.where(load.osl > 1, times.tpot, np.nan))
    good = _within(deployment, load, client_times, times)
    step = dict(price.decode_parts(np.maximum(client_times.running, 1.0), mean_context(load)))
    return ServingMetrics(
        ttft=Percentiles.around_mean(times.ttft, ttft),
        tpot=Percentiles.around_mean(times.tpot, tpot),
        e2e=Percentiles.around_mean(times.e2e, e2e),
        requests_per_s=through,
        output_tokens_per_s=through * load.osl,
        tokens_per_s_per_npu=through * load.osl / deployment.npus,
        tokens_per_s_per_user=1 / tpot,
        goodput_per_s=None if good is None else good * through,
        within_slo=good,
        running=running,
        waiting=np.maximum(in_flight - running, 0.0),
        utilisation={"all": _busy_share(load, client_times, e2e, rate)},
        kv_use=np.minimum(
            client_times.running / np.maximum(price.held_requests(mean_context(load)), FLOOR_TOLERANCE), 1.0
        ),
        prefill_share=client_times.prefill_share,
        decode_breakdown=step,
        ttft_breakdown=dict(client_times.ttft_parts),
    )


def _busy_share(load: RankLoad, times: ClientTimes, e2e: Any, rate: Any) -> Any:
    """Return the share of time that an instance has a request to work on."""
    if rate is not None:
        return np.where(np.isnan(e2e), np.nan, -np.expm1(-times.running * load.ranks))
    return 1.0 - (times.front_s / e2e) ** np.maximum(load.clients * load.ranks, 1.0)


def _sample_times(load: RankLoad, client_times: ClientTimes, taken_steps: Any) -> RequestTimes:
    """Return times of requests whose parts vary independently.

    What is left of a step that a request finds is uniform; long steps, with prompts in them, are found more often.
    """
    rows = np.broadcast(client_times.tpot_s, load.isl).shape
    found_shares, front, step, prompt, answer = (
        shares.reshape(-1, *(1,) * len(rows)) for shares in (FOUND, FRONT, STEP, PROMPT, ANSWER)
    )
    longer = np.maximum(1 + np.asarray(load.isl_cv) * prompt, SHORTEST)
    queue = (
        -np.log1p(-found_shares) * client_times.queueing_s
        if client_times.random_queue
        else (0.5 + found_shares) * client_times.queueing_s
    )
    fixed = 2 * front * client_times.front_s + queue + client_times.own_s * longer
    mean = client_times.long_share * client_times.long_s + (1 - client_times.long_share) * client_times.decode_s
    last_step_share = np.minimum(0.5 / np.maximum(taken_steps, 0.5), 1.0)  # of several steps, one varies
    uneven = 1 + last_step_share * (
        np.where(step < client_times.long_share, client_times.long_s, client_times.decode_s) / mean - 1
    )
    step_spread = 1 + last_step_share * (2 * found_shares - 1)
    rounds = []
    for index, wait in enumerate(client_times.waits_s):
        burst = index == 0 and len(client_times.waits_s) > 1
        rounds.append(
            np.broadcast_to(fixed + wait * (2 * found_shares if burst else step_spread * uneven), (SAMPLES, *rows))
        )
    ttft = np.concatenate(rounds)
    tokens = np.maximum(load.osl * np.maximum(1 + np.asarray(load.osl_cv) * answer, SHORTEST) - 1, 0.0)
    met = np.sqrt(np.maximum(client_times.met, 0.0) / np.maximum(load.osl, 1.0) / load.tokens_per_step)
    tpot = np.broadcast_to(
        np.maximum(client_times.tpot_s + answer * met * client_times.added_s, 0.2 * client_times.tpot_s),
        (SAMPLES, *rows),
    )
    round_count = len(client_times.waits_s)
    return RequestTimes(
        ttft, np.concatenate([tpot] * round_count), ttft + np.concatenate([tokens * tpot] * round_count)
    )


def _within(deployment: Deployment, load: RankLoad, client_times: ClientTimes, times: RequestTimes) -> Any:
    """Return the share of requests within the limits of their class; None where no class has any."""
    classes = deployment.load.all_classes
    if not any(class_.ttft_slo_s or class_.tpot_slo_s for class_ in classes):
        return None
    share_sum = sum(class_.share for class_ in classes)
    return sum(
        class_.share / share_sum * _share_within(deployment, class_, load, client_times, times) for class_ in classes
    )


def _share_within(
    deployment: Deployment, request_class: RequestClass, load: RankLoad, client_times: ClientTimes, times: RequestTimes
) -> Any:
    single = len(deployment.load.all_classes) == 1
    longer = (
        0.0 if single else (request_class.isl / load.isl - 1) * client_times.own_s
    )  # a prompt of this class, not of the mean
    within = np.ones_like(times.ttft, dtype=bool)
    for name, values in (("ttft_slo", times.ttft + longer), ("tpot_slo", times.tpot)):
        limit = deployment.batch[f"serving.load.{name}"] if single else getattr(request_class, f"{name}_s")
        if limit is not None:
            limit = none_to_nan(limit)
            within &= np.isnan(limit) | np.isnan(values) | (values <= limit)
    return np.mean(within, axis=0)
