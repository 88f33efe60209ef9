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

from statistics import NormalDist
from typing import Any

import numpy as np

from cosmic.design.design_batch import none_to_nan
from cosmic.serving.continuous_batching import (
    FLOOR_TOLERANCE,
    ClientTimes,
    RankLoad,
    estimate_closed_loop,
    estimate_open_loop,
    load_of_rank,
    mean_context,
    rank_capacity,
)
from cosmic.serving.deployment import Deployment
from cosmic.serving.disaggregated_serving import serve_in_two_pools
from cosmic.serving.serving_metrics import Floats, Percentiles, ServedLoad, ServingMetrics

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
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        served = _serve_in_one_pool(deployment) if deployment.prefill is None else serve_in_two_pools(deployment)
        return _metrics_of(deployment, served)


def deployment_capacity(deployment: Deployment) -> Any:
    """Return the requests a second that a deployment of one pool can serve: above it, they queue up without end."""
    pool = deployment.pool
    return rank_capacity(pool.price, load_of_rank(deployment)) * pool.ranks * pool.instances


def _metrics_of(deployment: Deployment, served: ServedLoad) -> ServingMetrics:
    further = served.osl > 1  # a single token has no next one
    tpot, tpot_samples = (np.where(further, times, np.nan) for times in (served.tpot_s, served.tpot_samples_s))
    through = served.requests_per_s
    good = _share_within_limits(deployment, served, tpot_samples)
    return ServingMetrics(
        ttft=Percentiles.around_mean(served.ttft_samples_s, served.ttft_s),
        tpot=Percentiles.around_mean(tpot_samples, tpot),
        e2e=Percentiles.around_mean(served.e2e_samples_s, served.e2e_s),
        requests_per_s=through,
        output_tokens_per_s=through * served.osl,
        tokens_per_s_per_npu=through * served.osl / deployment.npus,
        tokens_per_s_per_user=1 / tpot,
        goodput_per_s=None if good is None else good * through,
        within_slo=good,
        running=served.running,
        waiting=served.waiting,
        utilisation=served.utilisation,
        kv_use=served.kv_use,
        prefill_share=served.prefill_share,
        decode_breakdown=served.decode_breakdown,
        ttft_breakdown=served.ttft_breakdown,
    )


def _share_within_limits(deployment: Deployment, served: ServedLoad, tpot_samples: Floats) -> Any:
    """Return the share of requests within the limits of their class; None where no class has any."""
    classes = deployment.load.all_classes
    if not any(class_.ttft_slo_s or class_.tpot_slo_s for class_ in classes):
        return None
    single, share_sum, shares = len(classes) == 1, sum(class_.share for class_ in classes), []
    for class_ in classes:
        # a prompt of this class, not of the mean
        longer = 0.0 if single else (class_.isl / served.isl - 1) * served.own_s
        within = np.ones_like(served.ttft_samples_s, dtype=bool)
        for name, values in (("ttft_slo", served.ttft_samples_s + longer), ("tpot_slo", tpot_samples)):
            limit = deployment.batch[f"serving.load.{name}"] if single else getattr(class_, f"{name}_s")
            if limit is not None:
                limit = none_to_nan(limit)
                within &= np.isnan(limit) | np.isnan(values) | (values <= limit)
        shares.append(class_.share / share_sum * np.mean(within, axis=0))
    return sum(shares)


# ---- one pool


def _serve_in_one_pool(deployment: Deployment) -> ServedLoad:
    pool, load, rate = deployment.pool, load_of_rank(deployment), None
    price, ranks = pool.price, pool.ranks * pool.instances
    if deployment.load.rate is None:
        times = estimate_closed_loop(price, load)
    else:
        rate = np.asarray(deployment.batch["serving.load.rate"], dtype=float)
        times = estimate_open_loop(price, load, rate / ranks, deployment.load.arrival_cv)
    runs = np.floor(price.held_requests(load.isl + load.osl)) >= 1
    ttft, tpot = np.where(runs, times.mean_ttft_s, np.nan), np.where(runs, times.tpot_s, np.nan)
    e2e = ttft + np.maximum(load.osl - 1, 0.0) * tpot
    in_flight = load.clients * ranks if rate is None else rate * e2e
    if rate is None and deployment.load.concurrency is not None:
        in_flight = np.minimum(in_flight, deployment.number("load.concurrency"))
    running = np.minimum(times.running * ranks, in_flight)
    samples = _sample_times(load, times, price.engine.taken_steps)
    context = mean_context(load)
    return ServedLoad(
        isl=load.isl,
        osl=load.osl,
        ttft_s=ttft,
        tpot_s=tpot,
        ttft_samples_s=samples[0],
        tpot_samples_s=samples[1],
        e2e_samples_s=samples[2],
        own_s=times.own_s,
        requests_per_s=in_flight / e2e if rate is None else rate * np.where(np.isnan(ttft), np.nan, 1.0),
        running=running,
        waiting=np.maximum(in_flight - running, 0.0),
        utilisation={"all": _busy_share(load, times, e2e, rate)},
        kv_use=np.minimum(times.running / np.maximum(price.held_requests(context), FLOOR_TOLERANCE), 1.0),
        prefill_share=times.prefill_share,
        decode_breakdown=dict(price.decode_parts(np.maximum(times.running, 1.0), context)),
        ttft_breakdown=dict(times.ttft_parts),
    )


def _busy_share(load: RankLoad, times: ClientTimes, e2e: Any, rate: Any) -> Any:
    """Return the share of time that an instance has a request to work on."""
    if rate is not None:
        return np.where(np.isnan(e2e), np.nan, -np.expm1(-times.running * load.ranks))
    return 1.0 - (times.front_s / e2e) ** np.maximum(load.clients * load.ranks, 1.0)


def _sample_times(load: RankLoad, client_times: ClientTimes, taken_steps: Any) -> tuple[Floats, Floats, Floats]:
    """Return TTFT, TPOT and the whole of requests whose parts vary independently, along the first axis.

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
    tpot_of_rounds, tokens_of_rounds = (np.concatenate([part] * len(rounds)) for part in (tpot, tokens * tpot))
    return ttft, tpot_of_rounds, ttft + tokens_of_rounds
