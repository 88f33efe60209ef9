"""What a deployment of two pools achieves under its load, in closed form: one design, or many at once.

`cosmic.serving.disaggregated` has the formulas. The price of steps of each pool gives their numbers:

    K  = ⌊limit of tokens / prompt⌋                 prompts of a rank in a step of the prefill pool, at least one
    m  = min(limit, what the KV cache holds) ranks   slots of the decode pool

Times of requests have a distribution: the rest of a step that a prompt finds is uniform, waits in a queue are
exponential, prompts and answers vary with their lengths; percentiles are those of a sample of all combinations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.design.batch import Batch, known
from cosmic.design.serving import RequestClass
from cosmic.errors import require
from cosmic.serving.deployment import Deployment, Pool
from cosmic.serving.disaggregated import (
    Handover,
    Pools,
    PoolsSeen,
    StepTable,
    closed_loop,
    handover_of,
    knows_handover,
    only_prefilling,
    open_loop,
    prefill_pool,
    transfer_s,
)
from cosmic.serving.outcome import QUANTILES, Percentiles, ServingMetrics

Floats = npt.NDArray[np.float64]
MIDDLES = (np.arange(8) + 0.5) / 8
NORMAL = np.array([NormalDist().inv_cdf(each) for each in MIDDLES])
TURNS_VARY = 0.25
"""Between which shares of their mean the waits of clients lie that take turns: one to the other."""
NEAR = 1.3
"""By what factor around the requests that decode their steps are priced again."""
SHORTEST = 0.05
"""Shortest prompt or answer of a sample, as a share of the mean."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Mean lengths of requests and their variation; arrays over a batch."""

    isl: Any
    osl: Any
    isl_cv: Any
    osl_cv: Any
    prefix_hit: Any


def estimate_pools(deployment: Deployment) -> ServingMetrics:
    """Return what clients of a deployment of two pools see: arrays over its designs.

    NaN where weights leave no room for a request, or where requests come faster than they are served.
    """
    lengths = _lengths(deployment)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        held = _held(deployment, lengths)
        pools, sent = _pools(deployment, lengths, held)
        seen = _solved(deployment, pools, lengths)
        seen = _solved(deployment, replace(pools, step_s=_near(deployment, lengths, pools, seen)), lengths)
        return _metrics(deployment, lengths, seen, held, sent)


def _solved(deployment: Deployment, pools: Pools, lengths: Lengths) -> PoolsSeen:
    """Return what clients see of two pools."""
    tokens = _tokens_per_step(deployment)
    if deployment.load.rate is None:
        return closed_loop(pools, _clients(deployment), lengths.osl, tokens, deployment.load.rounds)
    rate = _number(deployment.batch, "serving.load.rate")
    return open_loop(pools, rate, lengths.osl, tokens, deployment.load.arrival_cv)


def _steps(deployment: Deployment, lengths: Lengths, lowest: Any, highest: Any) -> StepTable:
    """Return decode steps by the requests in all instances; the busiest rank has one at least."""
    decode, context = deployment.pool, _context(lengths)
    ranks = np.asarray(decode.ranks * decode.instances, dtype=float)
    return StepTable.of(
        lambda requests: decode.price.decode_s(np.maximum(requests / ranks, 1.0), context), lowest, highest
    )


def _near(deployment: Deployment, lengths: Lengths, pools: Pools, seen: PoolsSeen) -> StepTable:
    """Return the decode steps around the requests that were found to decode: kernels have tiles, and steps jump."""
    table = pools.step_s
    assert isinstance(table, StepTable)  # noqa: S101  as `_pools` made it
    found = np.clip(np.nan_to_num(seen.decoding, nan=1.0), 1.01 * table.lowest, table.highest)
    return _steps(deployment, lengths, np.maximum(found / NEAR, table.lowest), np.minimum(found * NEAR, table.highest))


def _pools(deployment: Deployment, lengths: Lengths, held: Any) -> tuple[Pools, Any]:
    """Return the two pools, and the seconds of a cache over the network."""
    prefill, decode = _prefill(deployment), deployment.pool
    handover = _handover(deployment)
    fresh = lengths.isl * (1 - lengths.prefix_hit)
    limit = _limit(deployment.batch, "serving.prefill.max_num_batched_tokens", None)
    limit = np.where(np.isnan(limit), _limit(deployment.batch, "serving.max_num_batched_tokens", decode), limit)
    room = np.maximum(np.floor(limit / fresh), 1.0)
    filling = prefill_pool(prefill.price, fresh, room, prefill.instances, prefill.ranks, lengths.isl - fresh)
    attended = only_prefilling(prefill.price).prefill_parts(fresh, 1.0, lengths.isl - fresh)["attention"]
    longer = lengths.isl_cv**2 * attended  # it grows with the square of a length
    sent = transfer_s(prefill.price, lengths.isl, _link(deployment.batch))
    ranks = np.asarray(decode.ranks * decode.instances, dtype=float)
    seats = np.minimum(_limit(deployment.batch, "serving.max_num_seqs", decode), np.maximum(held, 1.0))
    slots = seats * ranks
    highest = slots if deployment.load.rate is not None else np.minimum(slots, _clients(deployment))
    table = _steps(deployment, lengths, np.minimum(1.0, highest / 2), highest)
    further = np.where(lengths.osl > 1, 1.0, 0.0)  # the pool that prefills gives the first token
    taken = further * (handover.handover_s + sent)
    chunks = np.where(prefill.engine.chunked_prefill, np.maximum(np.ceil(fresh / limit), 1.0), 1.0)
    filling = replace(
        filling,
        step_s=filling.step_s + longer,
        alone_s=filling.alone_s + longer,
        chunks=chunks,
        largest=np.where(chunks > 1, limit / fresh, 1.0),
        stages=np.asarray(prefill.batch["workload.pp"], dtype=float),
        link_s=sent,
    ).run_by(handover)
    return Pools(
        prefill=filling,
        handover_s=taken,
        step_s=table,
        slots=slots,
        decoders=np.asarray(decode.instances, dtype=float),
        further=further,
    ), sent


def _metrics(deployment: Deployment, lengths: Lengths, seen: PoolsSeen, held: Any, sent: Any) -> ServingMetrics:
    agreed = np.where(lengths.osl > 1, _handover(deployment).handover_s, 0.0)
    fits = np.logical_and(held >= 1, np.ravel(_prefill(deployment).price.held_requests(lengths.isl)) >= 1)
    ttft, tpot = np.where(fits, seen.ttft_s, np.nan), np.where(fits, seen.tpot_s, np.nan)
    e2e = ttft + np.maximum(lengths.osl - 1, 0.0) * tpot
    tpot = np.where(lengths.osl > 1, tpot, np.nan)  # a single token has no next one
    rate = np.where(np.isnan(e2e), np.nan, seen.rate)
    times = _sampled(lengths, seen, in_turn=deployment.load.rate is None)
    good = _within(deployment, *times[:2])
    ranks = deployment.pool.ranks * deployment.pool.instances
    decoding = np.maximum(seen.decoding / ranks, 1e-9)
    busy = {"prefill": seen.prefill_use, "decode": -np.expm1(-seen.decoding / deployment.pool.instances)}
    worked = [busy["prefill"] * _prefill(deployment).instances, busy["decode"] * deployment.pool.instances]
    step = dict(deployment.pool.price.decode_parts(np.maximum(decoding, 1.0), _context(lengths)))
    return ServingMetrics(
        ttft=_percentiles(times[0], ttft),
        tpot=_percentiles(times[1], tpot),
        e2e=_percentiles(times[2], e2e),
        requests_per_s=rate,
        output_tokens_per_s=rate * lengths.osl,
        tokens_per_s_per_npu=rate * lengths.osl / deployment.npus,
        tokens_per_s_per_user=1 / tpot,
        goodput_per_s=None if good is None else good * rate,
        within_slo=good,
        running=np.maximum(rate * e2e - rate * seen.queueing_s, 0.0),  # those on their way between pools, too
        waiting=rate * seen.queueing_s,
        utilisation=busy,
        kv_use=np.minimum(decoding / np.maximum(held, 1e-9), 1.0),
        prefill_share=worked[0] / np.maximum(worked[0] + worked[1], 1e-12),
        decode_breakdown=step,
        ttft_breakdown={
            "queueing": seen.queueing_s,
            "prefill": seen.prefill_s,
            "front_end": agreed,
            "transfer": np.maximum(seen.handover_s - agreed, 0.0),
        },
    )


# ------------------------------------------------------------------------------------------- distributions


def _sampled(lengths: Lengths, seen: PoolsSeen, *, in_turn: bool) -> tuple[Floats, Floats, Floats]:
    """Return samples of TTFT, TPOT and the whole: every combination of the parts that vary, along the first axis.

    *in_turn*: clients of a closed loop take turns, and wait for about as long as each other.
    """
    wait, length = (each.ravel()[:, None] for each in np.meshgrid(MIDDLES, NORMAL, indexing="ij"))
    prompt = np.maximum(1 + lengths.isl_cv * length, SHORTEST)
    answer = np.maximum(1 + lengths.osl_cv * length[::-1], SHORTEST)
    queue = 1 + TURNS_VARY * (wait - 0.5) if in_turn else -np.log1p(-wait)
    ttft = seen.handover_s + seen.prefill_s * (2 + wait) / 2.5 * prompt + queue * seen.queueing_s
    tpot = np.broadcast_to(seen.tpot_s, ttft.shape)
    return ttft, tpot, ttft + np.maximum(lengths.osl * answer - 1, 0.0) * tpot


def _percentiles(samples: Floats, mean: Any) -> Percentiles:
    found = np.percentile(samples, list(QUANTILES.values()), axis=0)
    return Percentiles(mean, *(np.where(np.isnan(mean), np.nan, each) for each in found))


def _within(deployment: Deployment, ttft: Floats, tpot: Floats) -> Any:
    """Return the share of requests within the limits of their class; None where no class has any."""
    classes = deployment.load.all_classes
    if not any(each.ttft_slo_s or each.tpot_slo_s for each in classes):
        return None
    whole = sum(each.share for each in classes)
    return sum(each.share / whole * _share_within(deployment, each, ttft, tpot) for each in classes)


def _share_within(deployment: Deployment, one: RequestClass, ttft: Floats, tpot: Floats) -> Any:
    single = len(deployment.load.all_classes) == 1
    held = np.ones_like(ttft, dtype=bool)
    for name, values in (("ttft_slo", ttft), ("tpot_slo", tpot)):
        limit = deployment.batch[f"serving.load.{name}"] if single else getattr(one, f"{name}_s")
        if limit is not None:
            bound = known(limit)
            held &= np.isnan(bound) | np.isnan(values) | (values <= bound)
    return np.mean(held, axis=0)


# -------------------------------------------------------------------------------------------------- fields


def _handover(deployment: Deployment) -> Handover:
    name = deployment.pool.serving.engine
    return handover_of(name) if knows_handover(name) else Handover()


def _context(lengths: Lengths) -> Any:
    """Return the mean tokens of a request that decodes: long answers decode for longer."""
    return lengths.isl + lengths.osl / 2 * (1 + lengths.osl_cv**2)


def _prefill(deployment: Deployment) -> Pool:
    require(deployment.prefill is not None, "serving.prefill", None, "the deployment has one pool")
    assert deployment.prefill is not None  # noqa: S101  as was required
    return deployment.prefill


def _lengths(deployment: Deployment) -> Lengths:
    rows = np.ones(deployment.batch.size)
    found = {name: rows * np.asarray(deployment.mean(name), dtype=float) for name in Lengths.__slots__}
    if deployment.load.classes:
        found |= {f"{name}_cv": rows * _spread(deployment, name) for name in ("isl", "osl")}
    return Lengths(**found)


def _spread(deployment: Deployment, name: str) -> float:
    """Return the variation of a length over all requests: within classes, and between them."""
    classes, mean = deployment.load.all_classes, deployment.load.mean(name)
    whole = sum(each.share for each in classes)
    squares = [each.share * getattr(each, name) ** 2 * (1 + getattr(each, f"{name}_cv") ** 2) for each in classes]
    return float(np.sqrt(max(sum(squares) / whole / mean**2 - 1, 0.0)))


def _tokens_per_step(deployment: Deployment) -> Any:
    """Return the tokens that a request gains a step: 1 + a + a² + …, if a share a of drafted tokens is accepted."""
    accepted = _number(deployment.batch, "serving.acceptance")
    return sum(
        (accepted**place for place in range(1, deployment.pool.serving.draft_tokens + 1)), np.ones_like(accepted)
    )


def _held(deployment: Deployment, lengths: Lengths) -> Any:
    """Return the requests that the KV cache of a rank of the decode pool holds."""
    return np.floor(deployment.pool.price.held_requests(lengths.isl + lengths.osl))


def _clients(deployment: Deployment) -> Any:
    return _number(deployment.batch, "serving.load.concurrency")


def _limit(batch: Batch, path: str, pool: Pool | None) -> Any:
    """Return a limit of an instance: as stated, else as the engine has it, else NaN."""
    stated = np.asarray(known(batch[path]), dtype=float) * np.ones(batch.size)
    usual = getattr(pool.engine, path.rpartition(".")[2]) if pool else np.nan
    return np.where(np.isnan(stated), usual, stated)


def _link(batch: Batch) -> Any:
    """Return the bytes a second that a device sends out of its instance: by the outermost dimension."""
    dims = batch.base.network.dims
    return _number(batch, f"network.dims.{len(dims) - 1}.bandwidth") if dims else np.inf


def _number(batch: Batch, path: str) -> Any:
    return np.asarray(batch[path], dtype=float) * np.ones(batch.size)
