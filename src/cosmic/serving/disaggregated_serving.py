"""Disaggregated serving: a pool of instances prefills, another decodes, and caches move from one to the other.

Clients keep c requests in flight. A request waits for the prefill pool, is prefilled, its cache is handed over, it
waits for a slot of the decode pool, and decodes. No prefill delays a decode step:

    n    requests that decode, of at most m slots      T = o d(n) / v     time that one decodes, d(n) the step
    X    = n / T                                       requests a second
    c    = n + X (w + s + h + 3/2 d)                   Little's law: all that is in flight; solved for n
    TTFT = c / X - T                                   the rest of the way, with the wait for a slot if n = m
    TPOT = d(n) / v

    w    wait for the prefill pool      s  prefill      h  handover: the cache over the network, and what engines need
    v    tokens per step and request: more than one with speculative decoding                  to agree on it

An instance of the prefill pool takes what has arrived during a step into the next one. With attention data parallelism
its ranks step together, and the one with most prompts says how long a step is:

    S    = S(k)    k = max(1, λ + g √λ), at most K     λ = X S / ranks     prompts that a rank finds, on the average
    s    = S (1 + u / 2)                               the rest of a step, if the instance is busy (u), and the next
    e    = S(K) / (K ranks)                            between two prompts that leave the busy pool
    w    = X e² (a - 1/2) / (1 - a X e)                a = (c - 1) / c

    S(k)  a step with k prompts on every rank          K  prompts that a step has room for
    g     how far the largest of the ranks' numbers is above the mean, in standard deviations (normal order statistics)

w is the mean value analysis of a closed network for a station with a service of constant time: an arrival finds what
the others (a share a of the mean) have there, of which the one in service is half done. With many clients it is the
wait of an M/D/1 queue; where the prefill pool is the bottleneck, requests pile up there, and the decode pool runs below
its slots. A request that arrives in the decode pool waits for half a step, and its token comes out with the next.

All clients send their first request at once. Then the prefill pool works through c prompts, and a wave of slots at a
time decodes:

    first = S(k) + max((c - 1) e / 2, T (m j (j - 1)/2 + j (c - j m)) / c) + h + 3/2 d        j = ⌊c / m⌋ waves before

The mean over rounds weighs it by one over their number. Later rounds come apart: prompts leave the prefill pool one
after the other, so their clients come back one after the other.

**Deployments** (`serve_in_two_pools`). The price of steps of each pool gives the numbers of these formulas:

    K  = ⌊limit of tokens / prompt⌋                 prompts of a rank in a step of the prefill pool, at least one
    m  = min(limit, what the KV cache holds) ranks   slots of the decode pool

Times of requests have a distribution: the rest of a step that a prompt finds is uniform, waits in a queue are
exponential, prompts and answers vary with their lengths; percentiles are those of a sample of all combinations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from statistics import NormalDist
from typing import Any

import numpy as np

from cosmic.base.errors import require
from cosmic.design import catalog_entries, schema
from cosmic.serving.continuous_batching import RankLoad, load_of_rank, mean_context, normal_maximum
from cosmic.serving.deployment import Deployment, Pool
from cosmic.serving.serving_metrics import Floats, ServedLoad
from cosmic.serving.step_price import StepPrice, total_step_s

HANDOVER_FILE = "handovers.yaml"
HALVINGS = 45
"""Of the interval in which the number of decoding requests lies."""
MOST_DECODING = 1e6
"""Requests that decode at once, where nothing else limits them."""
POINTS = 17
"""Numbers of decoding requests at which a step is priced."""
TURNS = 25
"""Of the fixed point of a prefill step and what arrives in it."""
REST_OF_STEP = 0.5
"""What is left of a decode step on average that a request finds as it arrives."""
SMALL = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """What an engine takes beside its kernels where one pool prefills and another decodes."""

    handover_s: float = 0.0
    """Until the pools have agreed on a request, and the decode pool has asked for its cache."""
    wide_s: float = 0.0
    """Host time of a prefill step with attention data parallelism, which runs without a graph."""
    narrow_s: float = 0.0
    """The same without."""
    factor: float = 1.0
    """Time of the prefill kernels of a model with experts in a pool that does nothing else, over what `cosmic evaluate`
    says: an engine's factor is that of chunks between decode steps. All that was measured has experts; other models
    take as long as in an engine that decodes as well."""
    wide_fp8_factor: float = 1.0
    """The same with attention data parallelism in 8 bits: tokens are sent to experts in 16 bits, cast and scaled there,
    and the fullest expert says how long all take."""

    def pace(self, ranks: Any, experts: Any, eight_bits: Any) -> Any:
        """Return the time of steps of a pool that only prefills, over that of `price_only_prefilling`."""
        spread = np.logical_and(eight_bits, np.asarray(ranks) > 1)
        return np.where(experts, np.where(spread, self.wide_fp8_factor, self.factor), 1.0)

    def host_s(self, ranks: Any) -> Any:
        """Return the host time of such a step."""
        return np.where(np.asarray(ranks) > 1, self.wide_s, self.narrow_s)


def handover_of(engine: str) -> Handover:
    """Return what the catalog has of an engine's handover; of an engine that it does not know, that it takes nothing.

    >>> handover_of("trtllm").handover_s > 0
    True
    """
    handover: Handover = schema.read_value(Handover, _handovers().get(engine, {}), f"{HANDOVER_FILE} {engine}")
    return handover


@cache
def _handovers() -> Mapping[str, Any]:
    handovers: Mapping[str, Any] = catalog_entries.load_mapping(catalog_entries.CATALOG_FOLDER / HANDOVER_FILE)[
        "handovers"
    ]
    return handovers


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillTimes:
    """What a prefill pool takes for the prompts of a load; numbers, or arrays over a batch of deployments."""

    step_s: Any
    """S(1): a step with a prompt on every rank."""
    prompt_s: Any
    """What each further prompt of a rank adds to it: S(k) = S(1) + (k - 1) of this."""
    alone_s: Any
    """A step with one prompt on one rank."""
    room: Any = 1.0
    """K: prompts of a rank that a step has room for."""
    instances: Any = 1.0
    ranks: Any = 1.0
    """Ranks of attention data parallelism of an instance, which step together."""
    experts: Any = False
    """Whether the model has experts that tokens are routed to."""
    chunks: Any = 1.0
    """Steps that a prompt takes, if it is longer than the limit of one."""
    largest: Any = 1.0
    """The largest of these steps, as a share of them all."""
    stages: Any = 1.0
    """Stages of a pipeline, through which prompts and chunks follow each other."""
    link_s: Any = 0.0
    """What the cache of a prompt takes of the links of a rank: the caches of others wait."""
    eight_bits: Any = False
    """Whether products are in 8 bits."""

    @property
    def spacing_s(self) -> Any:
        """Seconds between two prompts that leave the busy pool."""
        return self.step_of(self.room) / (self.room * self.instances * self.ranks * self.stages)

    @property
    def link_spacing_s(self) -> Any:
        """Seconds between two caches that leave the pool whose links are busy."""
        return self.link_s / (self.instances * self.ranks)

    def step_of(self, prompts: Any) -> Any:
        """Return the seconds of a step with so many prompts on the rank that has most."""
        return self.step_s + (prompts - 1) * self.prompt_s

    def waited_s(self, rate: Any, clients: Any = np.inf) -> Any:
        """Return the mean wait for a step of the pool, and for its links, at a rate of requests."""
        steps, links = (wait_for_prefill(rate, spacing, clients) for spacing in (self.spacing_s, self.link_spacing_s))
        return steps + links

    def busy(self, rate: Any) -> Any:
        """Return the share of the time in which an instance has prompts."""
        busy_share = rate / self.instances * self.alone_s / self.stages
        return np.minimum(np.maximum(-np.expm1(-busy_share), rate * self.spacing_s), 1.0)

    def run_by(self, handover: Handover) -> PrefillTimes:
        """Return the pool with what an engine takes beside the kernels of its steps."""
        factor = handover.pace(self.ranks, self.experts, self.eight_bits)
        fixed = self.chunks * handover.host_s(self.ranks)
        return replace(
            self,
            step_s=factor * self.step_s + fixed,
            prompt_s=factor * self.prompt_s,
            alone_s=factor * self.alone_s + fixed,
        )

    def taken_s(self, rate: Any, clients: Any = np.inf) -> Any:
        """Return the seconds from the step that a prompt finds until its own ends, at a rate of requests.

        Where so many *clients* keep one request in flight each, a prompt finds only those of the others.
        """
        arriving = rate * (1 - 1 / np.asarray(clients, dtype=float)) / (self.instances * self.ranks)
        deviations = normal_maximum(self.ranks)
        step = np.asarray(self.step_s, dtype=float)
        for _ in range(TURNS):
            mean_prompts = arriving * step / self.stages
            most_prompts = np.minimum(np.maximum(mean_prompts + deviations * np.sqrt(mean_prompts), 1.0), self.room)
            step = self.step_of(most_prompts)
        occupied_s = step / self.stages
        other_prompt = 1 - np.exp(
            -np.maximum(arriving * self.ranks * occupied_s, 0.0)
        )  # whether any other prompt is there
        own_s = self.alone_s + other_prompt * (step - self.alone_s)
        follow = (1 + (self.stages - 1) * self.largest) / self.stages  # chunks are in several stages at once
        return own_s * follow + other_prompt * occupied_s / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPair:
    """Two pools; numbers, or arrays over a batch of deployments."""

    prefill: PrefillTimes
    handover_s: Any
    """h: from the end of the prefill until the decode pool has the cache."""
    step_s: Callable[[Any], Any]
    """d: a decode step of all instances, given the requests that decode in all of them together."""
    slots: Any = np.inf
    """m: most requests that decode at once."""
    decoders: Any = 0.0
    """Instances that decode; if not given, they are always busy."""

    further: Any = 1.0
    """Whether answers have further tokens than the first, which the other pool decodes."""

    def to_first_s(self, decoding: Any, clients: Any = np.inf) -> Any:
        """Return the decode steps until the first token of a request that arrives: the rest of one, and one."""
        other_requests = decoding * (1 - 1 / np.asarray(clients, dtype=float))
        busy = -np.expm1(-other_requests / np.maximum(self.decoders, SMALL))
        return self.further * (1 + REST_OF_STEP * busy) * self.step_s(decoding)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPairTimes:
    """What clients of two pools see; numbers, or arrays over a batch of deployments."""

    ttft_s: Any
    """Mean time to first token."""
    tpot_s: Any
    """Mean time per output token after the first."""
    rate: Any
    """Requests a second."""
    decoding: Any
    """Mean requests that decode at the same time."""
    prefill_use: Any
    """Share of the time in which instances of the prefill pool have prompts."""
    prefill_s: Any
    """Of TTFT: from the step that a prompt finds until its own ends."""
    handover_s: Any
    """Of TTFT: the handover, and the steps of the decode pool until the first token."""

    @property
    def queueing_s(self) -> Any:
        """Of TTFT: the wait for the prefill pool, and for a slot of the decode pool."""
        return np.maximum(self.ttft_s - self.prefill_s - self.handover_s, 0.0)


# ---- prices


@dataclass(frozen=True, slots=True)
class DecodeStepTable:
    """Decode steps priced at some numbers of requests, and interpolated between; arrays over a batch of deployments."""

    lowest: Any
    """Fewest decoding requests that are priced."""
    highest: Any
    steps_s: Any
    """Steps at numbers of requests in a geometric row from the fewest to the most: one row for each deployment."""

    @classmethod
    def tabulate(cls, step_s: Callable[[Any], Any], lowest: Any, highest: Any) -> DecodeStepTable:
        """Return the table of a price, which takes and returns arrays: all numbers of requests at once, first axis."""
        low, high = np.broadcast_arrays(np.asarray(lowest, dtype=float), np.asarray(highest, dtype=float))
        fractions = np.linspace(0.0, 1.0, POINTS).reshape(-1, *(1,) * low.ndim)
        return cls(low, high, np.moveaxis(np.asarray(step_s(low * (high / low) ** fractions)), 0, -1))

    def __call__(self, decoding: Any) -> Any:
        """Return the steps with so many decoding requests."""
        last = POINTS - 1
        within = np.clip(decoding, self.lowest, self.highest)
        # nodes are evenly spaced by ratio, so the index is a logarithm; between two nodes the step is a line
        ratio = np.maximum(self.highest / self.lowest, 1 + 1e-12) ** (1 / last)
        index = np.clip(np.floor(np.log(within / self.lowest) / np.log(ratio)), 0, last - 1).astype(int)
        lower, upper = self.lowest * ratio**index, self.lowest * ratio ** (index + 1)
        lower_s = np.take_along_axis(self.steps_s, index[..., None], axis=-1)[..., 0]
        upper_s = np.take_along_axis(self.steps_s, index[..., None] + 1, axis=-1)[..., 0]
        return lower_s + (upper_s - lower_s) * (within - lower) / (upper - lower)


def price_prefill_pool(
    price: StepPrice, isl: Any, room: Any, instances: Any = 1.0, ranks: Any = 1.0, cached: Any = 0.0
) -> PrefillTimes:
    """Return what the kernels of a prefill pool take, given the price of its steps.

    A prompt that has an instance with several ranks to itself has all experts to itself. It attends
    to *cached* tokens of its own that another has prefilled before.
    """
    most_prompts, price = np.asarray(room, dtype=float), price_only_prefilling(price)
    one_prompt, full = price.prefill_s(isl, 1.0, cached), price.prefill_s(isl, most_prompts, cached)
    further = np.where(most_prompts > 1, (full - one_prompt) / np.maximum(most_prompts - 1, 1.0), one_prompt)
    alone_s = total_step_s(price.prefill_parts(isl, 1.0, cached, ranks))
    return PrefillTimes(
        step_s=one_prompt,
        prompt_s=further,
        alone_s=alone_s,
        room=room,
        instances=instances,
        ranks=ranks,
        experts=routes_to_experts(price),
        eight_bits=multiplies_in_eight_bits(price),
    )


def price_only_prefilling(price: StepPrice) -> StepPrice:
    """Return the price of steps of a pool that does nothing but prefill, which `Handover.pace` scales."""
    if not routes_to_experts(price):
        return price
    return replace(price, engine=replace(price.engine, prefill_factor=1.0, cast_factor=1.0), known={})


def routes_to_experts(price: StepPrice) -> bool:
    """Return whether tokens are routed to experts."""
    return price.expert_share > 0


def multiplies_in_eight_bits(price: StepPrice) -> bool:
    """Return whether products are in 8 bits."""
    return bool(price.batch.base.workload.precision == "fp8")


def transfer_s(price: StepPrice, isl: Any, link_bytes_per_s: Any) -> Any:
    """Return the seconds in which a device of the prefill pool sends what it has of a prompt's cache."""
    return price.steps("decode", 1.0, isl)["memory.kv_cache"] / link_bytes_per_s


# ---- closed form


def solve_pools_closed_loop(
    pools: PoolPair, clients: Any, osl: Any, tokens_per_step: Any = 1.0, rounds: int | None = None
) -> PoolPairTimes:
    """Return what *clients* see that keep a request in flight each; all send their first at once, of so many rounds.

    Without rounds, the loop has lasted for long.
    """
    clients, osl = np.asarray(clients, dtype=float), np.asarray(osl, dtype=float)
    most_decoding = np.minimum(clients, pools.slots)

    def way(decoding: Any) -> tuple[Any, Any, Any]:
        """Return the requests a second, the time of a decode and the way to it, if so many requests decode."""
        step = pools.step_s(decoding)
        stay = osl * step / tokens_per_step
        rate = decoding / stay
        ttft_s = pools.prefill.waited_s(rate, clients) + pools.prefill.taken_s(rate, clients)
        return rate, stay, ttft_s + pools.handover_s + pools.to_first_s(decoding, clients)

    low, high = np.zeros_like(most_decoding), most_decoding
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        rate, _, ttft_s = way(middle)
        enough = middle + rate * ttft_s <= clients
        low, high = np.where(enough, middle, low), np.where(enough, high, middle)
    rate, stay, ttft_s = way(low)
    ttft = np.maximum(clients / rate - stay, ttft_s)
    if rounds:
        first = _first_round(pools, clients, stay, pools.to_first_s(low, clients))
        ttft = ttft + (first - ttft) / rounds
    return _pool_pair_times(pools, ttft, stay / osl, rate, low, clients / (ttft + stay), clients)


def solve_pools_open_loop(
    pools: PoolPair, rate: Any, osl: Any, tokens_per_step: Any = 1.0, arrival_cv: Any = 1.0
) -> PoolPairTimes:
    """Return what clients see of requests that come at a *rate*, whatever is in flight; NaN where it cannot be served.

    Waits for the prefill pool grow with the variation of arrivals; decode slots are waited for as in a queue of so many
    servers (Sakasegawa).
    """
    rate, osl = np.asarray(rate, dtype=float), np.asarray(osl, dtype=float)
    low, high = np.zeros_like(rate), np.zeros_like(rate) + np.minimum(pools.slots, MOST_DECODING)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        slower = middle * tokens_per_step / (osl * pools.step_s(middle)) <= rate
        low, high = np.where(slower, middle, low), np.where(slower, high, middle)
    step = pools.step_s(high)
    stay = osl * step / tokens_per_step
    slots = np.minimum(pools.slots, MOST_DECODING)
    full = np.minimum(rate * stay / slots, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        slot = stay / slots * full ** (np.sqrt(2 * (slots + 1)) - 1) / (1 - full) * np.asarray(arrival_cv) ** 2 / 2
    prefill = pools.prefill.waited_s(rate) * np.asarray(arrival_cv) ** 2
    before_first_s = prefill + pools.prefill.taken_s(rate) + pools.handover_s + pools.to_first_s(high)
    busiest = np.maximum(pools.prefill.spacing_s, pools.prefill.link_spacing_s)
    served = np.logical_and(rate * busiest < 1, rate * stay < slots)
    ttft = np.where(served, before_first_s + slot, np.nan)
    return _pool_pair_times(
        pools, ttft, np.where(served, step / tokens_per_step, np.nan), rate, high, np.where(served, rate, np.nan)
    )


def _pool_pair_times(
    pools: PoolPair, ttft: Any, tpot: Any, steady: Any, decoding: Any, rate: Any, clients: Any = np.inf
) -> PoolPairTimes:
    return PoolPairTimes(
        ttft_s=ttft,
        tpot_s=tpot,
        rate=rate,
        decoding=decoding,
        prefill_use=pools.prefill.busy(steady),
        prefill_s=pools.prefill.taken_s(steady, clients),
        handover_s=pools.handover_s + pools.to_first_s(decoding, clients),
    )


def wait_for_prefill(rate: Any, spacing_s: Any, clients: Any) -> Any:
    """Return the mean wait for the prefill pool at a rate of requests; infinite above what the pool can do.

    >>> float(wait_for_prefill(5.0, 0.1, np.inf)), float(wait_for_prefill(5.0, 0.1, 1))
    (0.05, 0.0)
    """
    other_clients = 1 - 1 / np.asarray(clients, dtype=float)
    busy = rate * spacing_s
    idle_share = 1 - other_clients * busy
    with np.errstate(divide="ignore", invalid="ignore"):
        # M/D/1 in an open loop: ρ / (2 (1 - ρ)) of a spacing; in a closed one only the other clients can be ahead
        waited = busy * spacing_s * np.maximum(other_clients - 0.5, 0.0) / idle_share
    return np.where(busy < 1, waited, np.inf)


def _first_round(pools: PoolPair, clients: Any, stay: Any, to_first: Any) -> Any:
    """Return the mean time to first token of the requests that all clients send at once."""
    prefill = pools.prefill
    slots = np.minimum(pools.slots, clients)
    # those beyond the decode slots wait for whole waves of stays before theirs
    waves = np.floor(clients / slots)
    slot = stay * (slots * waves * (waves - 1) / 2 + waves * (clients - waves * slots)) / clients
    burst = (clients - 1) / 2 * np.maximum(prefill.spacing_s, prefill.link_spacing_s)
    step_s = np.where(clients > 1, prefill.step_s, prefill.alone_s)
    return step_s + np.maximum(burst, slot) + pools.handover_s + to_first


# ---- What a deployment of two pools achieves under its load, in closed form: one design, or many at once

MIDDLES = (np.arange(8) + 0.5) / 8
NORMAL = np.array([NormalDist().inv_cdf(middle) for middle in MIDDLES])
TURNS_VARY = 0.25
"""Between which shares of their mean the waits of clients lie that take turns: one to the other."""
NEAR = 1.3
"""By what factor around the requests that decode their steps are priced again."""
SHORTEST = 0.05
"""Shortest prompt or answer of a sample, as a share of the mean."""


def serve_in_two_pools(deployment: Deployment) -> ServedLoad:
    """Return what clients of a deployment of two pools see: arrays over its designs.

    NaN where weights leave no room for a request, or where requests come faster than they are served.
    """
    load, prefill = load_of_rank(deployment), _prefill_of_deployment(deployment)
    # Requests that the KV cache of a decoding rank holds.
    kv_limit = np.floor(deployment.pool.price.held_requests(load.isl + load.osl))
    pools = _pool_pair(deployment, load, kv_limit)
    times = _solve_pools(deployment, pools, load)
    times = _solve_pools(deployment, replace(pools, step_s=_decode_steps_near(deployment, load, pools, times)), load)
    fits = np.logical_and(kv_limit >= 1, np.ravel(prefill.price.held_requests(load.isl)) >= 1)
    ttft, tpot = np.where(fits, times.ttft_s, np.nan), np.where(fits, times.tpot_s, np.nan)
    e2e = ttft + np.maximum(load.osl - 1, 0.0) * tpot
    rate = np.where(np.isnan(e2e), np.nan, times.rate)
    samples = _sample_pool_times(load, times, in_turn=deployment.load.rate is None)
    decoders = deployment.pool.instances
    decoding = np.maximum(times.decoding / (deployment.pool.ranks * decoders), SMALL)
    busy = {"prefill": times.prefill_use, "decode": -np.expm1(-times.decoding / decoders)}
    worked = [busy["prefill"] * prefill.instances, busy["decode"] * decoders]
    agreed = np.where(load.osl > 1, handover_of(deployment.pool.serving.engine).handover_s, 0.0)
    return ServedLoad(
        isl=load.isl,
        osl=load.osl,
        ttft_s=ttft,
        tpot_s=tpot,
        ttft_samples_s=samples[0],
        tpot_samples_s=samples[1],
        e2e_samples_s=samples[2],
        requests_per_s=rate,
        running=np.maximum(rate * e2e - rate * times.queueing_s, 0.0),  # those on their way between pools, too
        waiting=rate * times.queueing_s,
        utilisation=busy,
        kv_use=np.minimum(decoding / np.maximum(kv_limit, SMALL), 1.0),
        prefill_share=worked[0] / np.maximum(worked[0] + worked[1], 1e-12),
        decode_breakdown=dict(deployment.pool.price.decode_parts(np.maximum(decoding, 1.0), mean_context(load))),
        ttft_breakdown={
            "queueing": times.queueing_s,
            "prefill": times.prefill_s,
            "front_end": agreed,
            "transfer": np.maximum(times.handover_s - agreed, 0.0),
        },
    )


def _solve_pools(deployment: Deployment, pools: PoolPair, load: RankLoad) -> PoolPairTimes:
    """Return what clients see of two pools."""
    if deployment.load.rate is None:
        clients = deployment.number("load.concurrency")
        return solve_pools_closed_loop(pools, clients, load.osl, load.tokens_per_step, deployment.load.rounds)
    rate = deployment.number("load.rate")
    return solve_pools_open_loop(pools, rate, load.osl, load.tokens_per_step, deployment.load.arrival_cv)


def _decode_steps(deployment: Deployment, load: RankLoad, lowest: Any, highest: Any) -> DecodeStepTable:
    """Return decode steps by the requests in all instances; the busiest rank has one at least."""
    decode, context = deployment.pool, mean_context(load)
    ranks = np.asarray(decode.ranks * decode.instances, dtype=float)
    return DecodeStepTable.tabulate(
        lambda requests: decode.price.decode_s(np.maximum(requests / ranks, 1.0), context), lowest, highest
    )


def _decode_steps_near(
    deployment: Deployment, load: RankLoad, pools: PoolPair, times: PoolPairTimes
) -> DecodeStepTable:
    """Return the decode steps around the requests that were found to decode: kernels have tiles, and steps jump."""
    table = pools.step_s
    assert isinstance(table, DecodeStepTable)  # noqa: S101  as `_pool_pair` made it
    decoding = np.clip(np.nan_to_num(times.decoding, nan=1.0), 1.01 * table.lowest, table.highest)
    return _decode_steps(
        deployment, load, np.maximum(decoding / NEAR, table.lowest), np.minimum(decoding * NEAR, table.highest)
    )


def _pool_pair(deployment: Deployment, load: RankLoad, kv_limit: Any) -> PoolPair:
    prefill, decode = _prefill_of_deployment(deployment), deployment.pool
    handover = handover_of(deployment.pool.serving.engine)
    fresh = load.isl * (1 - load.prefix_hit)
    limit = deployment.number("prefill.max_num_batched_tokens")
    limit = np.where(np.isnan(limit), load.max_tokens, limit)
    room = np.maximum(np.floor(limit / fresh), 1.0)
    filling = price_prefill_pool(prefill.price, fresh, room, prefill.instances, prefill.ranks, load.isl - fresh)
    attended = price_only_prefilling(prefill.price).prefill_parts(fresh, 1.0, load.isl - fresh)["attention"]
    longer = load.isl_cv**2 * attended  # it grows with the square of a length
    dims = deployment.batch.base.network.dims
    # A device sends out of its instance by the outermost dimension.
    link = deployment.batch[f"network.dims.{len(dims) - 1}.bandwidth"] if dims else np.inf
    sent = transfer_s(prefill.price, load.isl, np.asarray(link, dtype=float))
    ranks = np.asarray(decode.ranks * decode.instances, dtype=float)
    slots = np.minimum(load.seats, np.maximum(kv_limit, 1.0)) * ranks
    closed = deployment.load.rate is None
    highest = np.minimum(slots, deployment.number("load.concurrency")) if closed else slots
    further = np.where(load.osl > 1, 1.0, 0.0)  # the pool that prefills gives the first token
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
    return PoolPair(
        prefill=filling,
        handover_s=further * (handover.handover_s + sent),
        step_s=_decode_steps(deployment, load, np.minimum(1.0, highest / 2), highest),
        slots=slots,
        decoders=np.asarray(decode.instances, dtype=float),
        further=further,
    )


def _sample_pool_times(load: RankLoad, times: PoolPairTimes, *, in_turn: bool) -> tuple[Floats, Floats, Floats]:
    """Return samples of TTFT, TPOT and the whole: every combination of the parts that vary, along the first axis.

    *in_turn*: clients of a closed loop take turns, and wait for about as long as each other.
    """
    wait, length = (samples.ravel()[:, None] for samples in np.meshgrid(MIDDLES, NORMAL, indexing="ij"))
    prompt = np.maximum(1 + load.isl_cv * length, SHORTEST)
    answer = np.maximum(1 + load.osl_cv * length[::-1], SHORTEST)
    queue = 1 + TURNS_VARY * (wait - 0.5) if in_turn else -np.log1p(-wait)
    ttft = times.handover_s + times.prefill_s * (2 + wait) / 2.5 * prompt + queue * times.queueing_s
    tpot = np.broadcast_to(times.tpot_s, ttft.shape)
    return ttft, tpot, ttft + np.maximum(load.osl * answer - 1, 0.0) * tpot


def _prefill_of_deployment(deployment: Deployment) -> Pool:
    require(deployment.prefill is not None, "serving.prefill", None, "the deployment has one pool")
    assert deployment.prefill is not None  # noqa: S101  as was required
    return deployment.prefill
