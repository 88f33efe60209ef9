"""What a simulation makes of a deployment: the same metrics that the closed form gives out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.serving.deployment import Deployment
from cosmic.serving.event_loop import PoolState
from cosmic.serving.instances import Tally
from cosmic.serving.outcome import QUANTILES, Percentiles, ServingMetrics
from cosmic.serving.requests import Requests

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
FEW = 100
"""Requests of which percentiles say little."""
LEAST_SPAN = 0.2
"""Share of a run in which requests must come for their rate to be told from their completions, one after the other."""
LAST_SHARE = 0.1
"""Share of the requests of a steady load that are not measured because few come after them, at most."""


def measured_of(requests: Requests, warm: int, flying: int) -> Flags:
    """Return which requests count: of a steady load not the first, and not those that end when nothing follows."""
    measured = np.ones(requests.count, dtype=bool)
    if requests.steady:
        measured[:warm] = False
        last = min(flying, int(LAST_SHARE * requests.count) if requests.concurrency is None else flying)
        measured[max(requests.count - last, warm + 1) :] = False
    return measured


def weighted_percentiles(values: list[float], weights: list[int]) -> Percentiles:
    """Return the percentiles of values that are there so many times.

    >>> weighted_percentiles([2.0, 1.0], [1, 99]).p99_s
    1.0
    """
    if not values:
        return Percentiles.of([])
    order = np.argsort(values, kind="stable")
    sizes, counts = np.array(values)[order], np.array(weights, dtype=float)[order]
    upto = np.cumsum(counts)
    places = np.searchsorted(upto, np.array([*QUANTILES.values()]) / 100 * upto[-1])
    return Percentiles(float(np.average(sizes, weights=counts)), *sizes[np.minimum(places, len(sizes) - 1)].tolist())


def metrics_of(
    deployment: Deployment,
    requests: Requests,
    seen: Mapping[str, Floats],
    measured: Flags,
    window: tuple[float, float],
    pools: Mapping[str, tuple[PoolState, Tally]],
) -> ServingMetrics:
    """Return what clients saw of a deployment, and what its pools did."""
    done, tokens = seen["done"], requests.output_tokens
    inside = (done > window[0]) & (done <= window[1])
    seconds = window[1] - window[0]
    ttft, tpot = seen["first"] - seen["sent"], seen["tpot"]
    decoding = list(pools.values())[-1][0]
    tallies = [tally for _, tally in pools.values()]
    busy = sum(each.busy_s for each in tallies)
    e2e = Percentiles.of((done - seen["sent"])[measured])
    served = float(inside.sum()) / seconds
    generated = float(tokens[inside].sum()) / seconds
    if requests.concurrency is None:  # neither the first that come out nor the last are waited for
        served = _rate_of(seen["sent"][measured], done[measured]) or served
        generated = served * float(tokens[measured].mean())
    elif requests.steady:  # Little's law; a window would cut waves of equal requests
        served = requests.concurrency / e2e.mean_s
        generated = served * float(tokens[measured].mean())
    within = _within(requests, ttft, tpot)
    good = None if within is None else float(within[measured].mean())
    of_tokens = Percentiles.of(tpot[measured & ~np.isnan(tpot)])
    held = tallies[-1].kv / (len(decoding.loads) * decoding.model.limits.kv_tokens * seconds)
    return ServingMetrics(
        ttft=Percentiles.of(ttft[measured]),
        tpot=of_tokens,
        e2e=e2e,
        requests_per_s=served,
        output_tokens_per_s=generated,
        tokens_per_s_per_npu=generated / float(np.ravel(deployment.npus)[0]),
        tokens_per_s_per_user=1 / of_tokens.mean_s if of_tokens.mean_s > 0 else float("nan"),
        goodput_per_s=None if good is None else good * served,
        within_slo=good,
        running=sum(each.running for each in tallies) / seconds,
        waiting=sum(each.waiting for each in tallies) / seconds,
        utilisation={
            name: min(tally.busy_s / (len(pool.instances) * seconds), 1.0) for name, (pool, tally) in pools.items()
        },
        kv_use=min(held, 1.0),
        prefill_share=sum(each.prefill_s for each in tallies) / busy if busy else 0.0,
        decode_breakdown=_decode_breakdown(deployment, tallies[-1]),
        ttft_breakdown=_ttft_breakdown(seen, measured),
    )


def _rate_of(sent: Floats, done: Floats) -> float:
    """Return how fast requests come out that were sent one after the other; 0 if that cannot be told.

    It is the slope of a line through their completions: as they come, or if that is too fast, as they are served.

    >>> sent = np.arange(50) / 10.0
    >>> round(_rate_of(sent, sent + 3.0), 6), round(_rate_of(sent, 2 * sent + 3.0), 6), _rate_of(0 * sent, sent + 3.0)
    (10.0, 5.0, 0.0)
    """
    count = len(sent)
    if count < 3 or np.ptp(sent) < LEAST_SPAN * (done.max() - sent.min()):
        return 0.0
    places = np.arange(count) - (count - 1) / 2
    slope = float((places * done).sum() / (places**2).sum())
    return 1 / slope if slope > 0 else 0.0


def few_in_words(measured: Flags) -> str:
    """Return that percentiles are of few requests, if they are; else nothing."""
    count = int(measured.sum())
    return f"{count:,} requests were measured: percentiles of so few say little" if count < FEW else ""


def _within(requests: Requests, ttft: Floats, tpot: Floats) -> Flags | None:
    """Return which requests were within the limits of their class; None if no class has any."""
    limits = [(each.ttft_slo_s, each.tpot_slo_s) for each in requests.classes]
    if not any(each is not None for pair in limits for each in pair):
        return None
    first, further = (
        np.array([np.inf if pair[place] is None else pair[place] for pair in limits])[requests.kind] for place in (0, 1)
    )
    found: Flags = (ttft <= first) & (np.isnan(tpot) | (tpot <= further))
    return found


def _decode_breakdown(deployment: Deployment, tally: Tally) -> dict[str, Any]:
    """Return the parts of a mean decode step."""
    if not tally.decoded:
        return {}
    requests, context = tally.decoded / tally.decode_steps, tally.read / tally.decoded
    parts = deployment.pool.price.decode_parts(requests, context)
    return {name: float(np.ravel(each)[0]) for name, each in parts.items()}


def _ttft_breakdown(seen: Mapping[str, Floats], measured: Flags) -> dict[str, float]:
    """Return the mean parts of TTFT."""
    handed = np.isfinite(seen["prefilled"])
    prefilled = np.where(handed, seen["prefilled"], seen["first"])
    parts = {
        "queueing": seen["admitted"] - seen["sent"] - seen["front"],
        "prefill": prefilled - seen["admitted"],
        "front_end": seen["front"],
    }
    if handed.any():  # what engines need to agree on a request is their front end's
        agreed = np.where(handed, seen["agreed"], 0.0)
        parts["front_end"] = parts["front_end"] + agreed
        parts["transfer"] = seen["first"] - prefilled - agreed
    return {name: float(each[measured].mean()) for name, each in parts.items()}
