"""Serving simulated request by request: what each request of a load sees of a deployment.

Requests arrive (`serving_requests`), pass the engine's front end and are routed (`event_loop`). Ranks put them into
steps as their engine does (`engine_scheduling`), instances take these steps (`engine_instances`), at the price that the
closed form has, too (`StepPriceTable`). With two pools the KV cache of a prefilled request moves over the network, and
its client has the first token with the other pool's next step.

A steady load is measured from when it has settled until the last request is sent. The same seed gives the same bits.

    found = simulate_load(deployment_of(design), seed=1)
    found.metrics.ttft.p95_s, found.itl.p99_s, found.ttft_s[found.kind == 0]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.base.errors import UnknownName, require
from cosmic.design.model_layer import Transformer
from cosmic.serving.deployment import PREFILL, Deployment, Pool, deployment_reasons, without_load
from cosmic.serving.disaggregated_serving import (
    Handover,
    handover_of,
    multiplies_in_eight_bits,
    price_only_prefilling,
    routes_to_experts,
    transfer_s,
)
from cosmic.serving.engine_instances import InstanceSpan, PromptChunks, RankSteps, StepPriceTable, StepTally
from cosmic.serving.engine_scheduling import StepLimits
from cosmic.serving.event_loop import EventLoop, PoolModel, PoolState
from cosmic.serving.serving_metrics import QUANTILES, Percentiles, ServingMetrics
from cosmic.serving.serving_requests import Requests, draw_requests
from cosmic.simulate.metrics import Infeasible
from cosmic.simulate.step_evaluation import evaluate_step

# ---- What a simulation makes of a deployment: the same metrics that the closed form gives out

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
FEW_REQUESTS = 100
"""Requests of which percentiles say little."""
LEAST_SPAN = 0.2
"""Share of a run in which requests must come for their rate to be told from their completions, one after the other."""
LAST_SHARE = 0.1
"""Share of the requests of a steady load that are not measured because few come after them, at most."""


def measured_requests(requests: Requests, warm: int, flying: int) -> Flags:
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
        return Percentiles.from_sample([])
    order = np.argsort(values, kind="stable")
    sizes, counts = np.array(values)[order], np.array(weights, dtype=float)[order]
    upto = np.cumsum(counts)
    indices = np.searchsorted(upto, np.array([*QUANTILES.values()]) / 100 * upto[-1])
    return Percentiles(float(np.average(sizes, weights=counts)), *sizes[np.minimum(indices, len(sizes) - 1)].tolist())


def simulated_metrics(
    deployment: Deployment,
    requests: Requests,
    times: Mapping[str, Floats],
    measured: Flags,
    window: tuple[float, float],
    pools: Mapping[str, tuple[PoolState, StepTally]],
) -> ServingMetrics:
    """Return what clients saw of a deployment, and what its pools did."""
    done, tokens = times["done"], requests.output_tokens
    in_window = (done > window[0]) & (done <= window[1])
    seconds = window[1] - window[0]
    ttft, tpot = times["first"] - times["sent"], times["tpot"]
    decoding = list(pools.values())[-1][0]
    tallies = [tally for _, tally in pools.values()]
    busy = sum(tally.busy_s for tally in tallies)
    e2e = Percentiles.from_sample((done - times["sent"])[measured])
    served = float(in_window.sum()) / seconds
    generated = float(tokens[in_window].sum()) / seconds
    if requests.concurrency is None:  # neither the first that come out nor the last are waited for
        served = _completion_rate(times["sent"][measured], done[measured]) or served
        generated = served * float(tokens[measured].mean())
    elif requests.steady:  # Little's law; a window would cut waves of equal requests
        served = requests.concurrency / e2e.mean_s
        generated = served * float(tokens[measured].mean())
    within = _within_limits(requests, ttft, tpot)
    good = None if within is None else float(within[measured].mean())
    of_tokens = Percentiles.from_sample(tpot[measured & ~np.isnan(tpot)])
    kv_use = tallies[-1].kv / (len(decoding.loads) * decoding.model.limits.kv_tokens * seconds)
    return ServingMetrics(
        ttft=Percentiles.from_sample(ttft[measured]),
        tpot=of_tokens,
        e2e=e2e,
        requests_per_s=served,
        output_tokens_per_s=generated,
        tokens_per_s_per_npu=generated / float(np.ravel(deployment.npus)[0]),
        tokens_per_s_per_user=1 / of_tokens.mean_s if of_tokens.mean_s > 0 else float("nan"),
        goodput_per_s=None if good is None else good * served,
        within_slo=good,
        running=sum(tally.running for tally in tallies) / seconds,
        waiting=sum(tally.waiting for tally in tallies) / seconds,
        utilisation={
            name: min(tally.busy_s / (len(pool.instances) * seconds), 1.0) for name, (pool, tally) in pools.items()
        },
        kv_use=min(kv_use, 1.0),
        prefill_share=sum(tally.prefill_s for tally in tallies) / busy if busy else 0.0,
        decode_breakdown=_decode_breakdown(deployment, tallies[-1]),
        ttft_breakdown=_ttft_breakdown(times, measured),
    )


def _completion_rate(sent: Floats, done: Floats) -> float:
    """Return how fast requests come out that were sent one after the other; 0 if that cannot be told.

    It is the slope of a line through their completions: as they come, or if that is too fast, as they are served.

    >>> sent = np.arange(50) / 10.0
    >>> round(_completion_rate(sent, sent + 3.0), 6), round(_completion_rate(sent, 2 * sent + 3.0), 6), _completion_rate(0 * sent, sent + 3.0)
    (10.0, 5.0, 0.0)
    """
    count = len(sent)
    if count < 3 or np.ptp(sent) < LEAST_SPAN * (done.max() - sent.min()):
        return 0.0
    offsets = np.arange(count) - (count - 1) / 2
    slope = float((offsets * done).sum() / (offsets**2).sum())
    return 1 / slope if slope > 0 else 0.0


def _within_limits(requests: Requests, ttft: Floats, tpot: Floats) -> Flags | None:
    """Return which requests were within the limits of their class; None if no class has any."""
    limits = [(class_.ttft_slo_s, class_.tpot_slo_s) for class_ in requests.classes]
    if not any(limit is not None for pair in limits for limit in pair):
        return None
    first, further = (
        np.array([np.inf if pair[index] is None else pair[index] for pair in limits])[requests.kind] for index in (0, 1)
    )
    within: Flags = (ttft <= first) & (np.isnan(tpot) | (tpot <= further))
    return within


def _decode_breakdown(deployment: Deployment, tally: StepTally) -> dict[str, Any]:
    """Return the parts of a mean decode step."""
    if not tally.decoded:
        return {}
    requests, context = tally.decoded / tally.decode_steps, tally.read / tally.decoded
    parts = deployment.pool.price.decode_parts(requests, context)
    return {name: float(np.ravel(part)[0]) for name, part in parts.items()}


def _ttft_breakdown(times: Mapping[str, Floats], measured: Flags) -> dict[str, float]:
    """Return the mean parts of TTFT."""
    handed = np.isfinite(times["prefilled"])
    prefilled = np.where(handed, times["prefilled"], times["first"])
    parts = {
        "queueing": times["admitted"] - times["sent"] - times["front"],
        "prefill": prefilled - times["admitted"],
        "front_end": times["front"],
    }
    if handed.any():  # what engines need to agree on a request is their front end's
        agreed = np.where(handed, times["agreed"], 0.0)
        parts["front_end"] = parts["front_end"] + agreed
        parts["transfer"] = times["first"] - prefilled - agreed
    return {name: float(part[measured].mean()) for name, part in parts.items()}


Ints = npt.NDArray[np.int64]
LEAST_STEADY, LEAST_ROUNDS = 20, 4
"""Requests of a load, and of each of its clients, that may be called steady."""
WARM_SHARE = 0.1
"""Share of the requests of a steady load that are sent before measuring begins, at least."""
WARM_ROUNDS = 2
"""Requests of each client of a closed loop that are sent before measuring begins."""
MOST_CHUNKS = 2_000_000
"""The most chunks of prompts in one simulation: each is a step."""
MEAN_REST = 0.5
"""Share of a step that is left on average when a request arrives."""
TABLE_LENGTHS = 64
"""Lengths of requests at which the size of the KV cache is asked for."""


@dataclass(frozen=True)
class SimulatedLoad:
    """What each request saw, an array element each, and what that makes of the deployment."""

    requests: Requests
    deployment: Deployment
    sent_s: Floats
    admitted_s: Floats
    """When a rank first took the request from its queue."""
    first_token_s: Floats
    completion_s: Floats
    prefilled_s: Floats
    """When the prefill pool was done with it; infinite where there is none."""
    front_s: Floats
    """What the front end took."""
    instance: Ints
    """The instance that completed it, of the pool that decodes; of the prefill pool where it has one token."""
    preemptions: Ints
    measured: npt.NDArray[np.bool_]
    """Which requests count: all, or those of a steady load between its beginning and its end."""
    window_s: tuple[float, float]
    metrics: ServingMetrics
    itl: Percentiles
    """Time between two tokens of a request, over all tokens."""
    steps: int
    """Steps of all instances, while they were measured."""
    kv_tokens: tuple[float, ...]
    """Tokens that the KV cache of a rank holds, of each pool."""
    most_held: tuple[float, ...]
    """The most tokens that any rank held."""
    spans: dict[str, list[list[InstanceSpan]]]
    """What the instances of each pool did, if it was asked for."""

    @cached_property
    def ttft_s(self) -> Floats:
        """Time to first token of each request."""
        return self.first_token_s - self.sent_s

    @cached_property
    def tpot_s(self) -> Floats:
        """Mean time per output token after the first, of each request; NaN where there is none."""
        return tpot_of(self.first_token_s, self.completion_s, self.requests.output_tokens)

    @property
    def cautions(self) -> tuple[str, ...]:
        """What to know of the numbers before they are trusted, a sentence each."""
        count = int(self.measured.sum())
        sentences = (
            f"{count:,} requests were measured: percentiles of so few say little" if count < FEW_REQUESTS else ""
        )
        return (sentences,) if sentences else ()

    @property
    def kind(self) -> Ints:
        """Place of each request's class among `Requests.classes`."""
        return self.requests.kind

    def of_class(self, name: str) -> tuple[Percentiles, Percentiles]:
        """Return TTFT and TPOT of the requests of a class that are measured."""
        names = [class_.name for class_ in self.requests.classes]
        if name not in names:
            raise UnknownName.among("class", name, "class of requests", names)
        members = self.measured & (self.kind == names.index(name))
        return Percentiles.from_sample(self.ttft_s[members]), Percentiles.from_sample(
            self.tpot_s[members & ~np.isnan(self.tpot_s)]
        )

    def over_time(self, points: int = 200) -> dict[str, Floats]:
        """Return times, and the requests that run and wait and the share of the KV cache in use at each of them.

        Contexts grow evenly from a request's admission to its end.
        """
        inputs, outputs = self.requests.input_tokens, self.requests.output_tokens
        times = np.linspace(0.0, self.end_s, points)
        came, admitted, done = (
            np.searchsorted(np.sort(moments), times, side="right")
            for moments in (self.sent_s + self.front_s, self.admitted_s, self.completion_s)
        )
        kv_tokens = np.zeros(points)
        pace = outputs / np.maximum(self.completion_s - self.admitted_s, 1e-12)
        for edge, sign in ((self.admitted_s, 1), (self.completion_s, -1)):
            order = np.argsort(edge, kind="stable")
            edge_index = np.searchsorted(edge[order], times, side="right")
            sums = [
                np.concatenate([[0.0], np.cumsum(moments[order])])[edge_index]
                for moments in (inputs - pace * self.admitted_s, pace)
            ]
            kv_tokens += sign * (sums[0] + sums[1] * times)
        ranks = int(np.sum(self.deployment.pool.instances * self.deployment.pool.ranks))
        room = self.kv_tokens[-1] * ranks
        numbers = {"running": admitted - done, "waiting": came - admitted}
        return {"time_s": times, "kv_use": np.clip(kv_tokens / room, 0, 1)} | {
            name: number.astype(float) for name, number in numbers.items()
        }

    @property
    def end_s(self) -> float:
        """When the last request is complete."""
        return float(self.completion_s.max())


def tpot_of(first: Floats, done: Floats, tokens: Ints) -> Floats:
    """Return the mean time per output token after the first; NaN where there is none."""
    further = tokens - 1
    return np.where(further > 0, (done - first) / np.maximum(further, 1), np.nan)


def simulate_load(
    deployment: Deployment,
    requests: Requests | None = None,
    *,
    count: int | None = None,
    seed: int = 0,
    router: str = "least_loaded",
    noting: bool = False,
) -> SimulatedLoad | Infeasible:
    """Return what requests see of a deployment: those given, or *count* of its load, or a usual number of them.

    *noting*: also what each instance did, for a timeline (`cosmic.serving.serving_timeline`).
    """
    pools = [pool for pool in (deployment.prefill, deployment.pool) if pool is not None]
    if reasons := _broken_pools(deployment, pools):
        return Infeasible(reasons)
    requests = draw_requests(deployment.load, count, seed=seed) if requests is None else requests
    # With few requests no part of them is steady: then all are measured.
    requests = replace(
        requests,
        steady=requests.steady and requests.count >= max(LEAST_ROUNDS * (requests.concurrency or 0), LEAST_STEADY),
    )
    models = []
    for index, pool in enumerate(pools):
        model = _pool_model(pool, requests, only_prefill=index + 1 < len(pools), single=len(pools) == 1)
        if isinstance(model, Infeasible):
            return model
        models.append(model)
    if len(models) > 1:
        models[0] = replace(
            models[0], steps=PrefillSteps.for_pool(pools[0], models[0], handover_of(deployment.pool.serving.engine))
        )
    front = _front_delay(pools[0]) if len(pools) == 1 else _no_delay  # two pools have it in their handover
    loop = EventLoop(requests, models, router, front, _transfer_delay(deployment, requests), noting)
    loop.run(_warm_requests(requests), steady=requests.steady)
    return _collect_simulated(deployment, loop)


def _warm_requests(requests: Requests) -> int:
    """Return the number of requests before those that are measured."""
    if not requests.steady:
        return 0
    warm = max(WARM_SHARE * requests.count, WARM_ROUNDS * (requests.concurrency or 0))
    return int(min(warm, requests.count // 2))


def _broken_pools(deployment: Deployment, pools: Sequence[Pool]) -> tuple[str, ...]:
    """Return why pools cannot take a step at all, a sentence each."""
    reasons = list(deployment_reasons(deployment.batch.base))
    for pool in pools:
        base = without_load(pool.batch).base
        sizes = {"task": "decode", "sequence": 1, "global_batch": base.workload.dp, "micro_batch": 1}
        outcome = evaluate_step(base.changed({f"workload.{name}": value for name, value in sizes.items()}))
        if isinstance(outcome, Infeasible):
            prefix = PREFILL if pool is deployment.prefill else ""
            reasons += [f"{prefix}{reason}" for reason in outcome.reasons]
    return tuple(reasons)


# ---- pools


def _pool_model(pool: Pool, requests: Requests, *, only_prefill: bool, single: bool) -> PoolModel | Infeasible:
    """Return a pool as the simulation sees it, or why it cannot serve the requests."""
    engine, serving = pool.engine, pool.serving
    price = price_only_prefilling(pool.price) if only_prefill else pool.price
    inputs, outputs = requests.input_tokens, requests.output_tokens
    outputs = np.zeros_like(outputs) if only_prefill else outputs
    longest = int((inputs + outputs).max())
    kv_tokens = float(np.ravel(price.kv_tokens(float((inputs + outputs / 2).mean())))[0])
    if not kv_tokens >= longest + engine.page_tokens:
        cache_text = (
            f"the KV cache of a rank holds {kv_tokens:,.0f} tokens" if kv_tokens > 0 else "weights leave no KV cache"
        )
        return Infeasible(
            (f"{cache_text}, and the longest request has {longest:,}: raise tp or pp, or use fewer ranks",)
        )
    seats = serving.max_num_seqs or engine.max_num_seqs
    tokens = serving.max_num_batched_tokens or engine.max_num_batched_tokens
    chunks = int(np.ceil(inputs / tokens).sum())
    rule = f"cuts prompts into {chunks:,} chunks, and {MOST_CHUNKS:,} are simulated at most: raise it, or send fewer"
    require(chunks <= MOST_CHUNKS, "max_num_batched_tokens", tokens, rule)
    stages = int(pool.design.workload.pp)
    concurrent = min(seats, requests.concurrency or requests.count, int(kv_tokens // int(inputs.min())) + 1)
    return PoolModel(
        instances=int(np.ravel(pool.instances)[0]),
        ranks=int(np.ravel(pool.ranks)[0]),
        limits=StepLimits(
            requests=seats,
            tokens=tokens * stages,
            kv_tokens=kv_tokens,
            page_tokens=engine.page_tokens,
            reserve=0.0 if only_prefill else engine.admission_reserve,
            chunked=engine.chunked_prefill,
            prefill_first=engine.prefill_first,
            tokens_per_step=serving.tokens_per_step,
            draft_tokens=serving.draft_tokens,
            stages=stages,
        ),
        late_steps=max(engine.taken_steps - MEAN_REST, 0.0) if single else 0.0,  # two pools have it in their handover
        steps=StepPriceTable(price, max(concurrent, 1), tokens * stages, longest, price.expert_share),
    )


@dataclass(frozen=True, slots=True)
class PrefillSteps:
    """The steps of a pool that only prefills: with a pace of its kernels and a host time of its own."""

    steps: RankSteps
    factor: float
    fixed_s: float

    @classmethod
    def for_pool(cls, pool: Pool, model: PoolModel, handover: Handover) -> PrefillSteps:
        """Return the steps of *pool* with what an engine takes beside its kernels."""
        factor = handover.pace(model.ranks, routes_to_experts(pool.price), multiplies_in_eight_bits(pool.price))
        return cls(model.steps, float(factor), float(handover.host_s(model.ranks)))

    def decode(self, requests: int, cached_tokens: float) -> tuple[float, float, float]:
        """Return what `RankSteps` does: it never comes to that."""
        return self.steps.decode(requests, cached_tokens)

    def mixed(
        self, tokens: int, chunks: PromptChunks, requests: int, cached_tokens: float, mean: int | None = None
    ) -> float:
        """Return seconds of a step that prefills."""
        return self.factor * self.steps.mixed(tokens, chunks, requests, cached_tokens, mean) + self.fixed_s


def _no_delay(_: int) -> float:
    return 0.0


def _front_delay(pool: Pool) -> Callable[[int], float]:
    """Return what the front end takes, by the requests in flight of an instance."""
    engine, model = pool.engine, pool.design.model
    mla = isinstance(model, Transformer) and model.mla is not None
    devices = pool.design.workload.tp * pool.design.workload.pp
    delays: dict[int, float] = {}

    def seconds(flying: int) -> float:
        if flying not in delays:
            delays[flying] = engine.front_s(flying, devices, mla)
        return delays[flying]

    return seconds


def _transfer_delay(deployment: Deployment, requests: Requests) -> Callable[[int], float]:
    """Return what handing a request over to the other pool takes, by its tokens: agreeing on it, and moving its cache.

    Every accelerator of the prefill pool sends its share through the outermost dimension of the network.
    """
    if deployment.prefill is None:
        return lambda _: 0.0
    dims = deployment.batch.base.network.dims
    agreed = handover_of(deployment.pool.serving.engine).handover_s
    if not dims:
        return lambda _: agreed
    longest = int((requests.input_tokens + requests.output_tokens).max())
    lengths = np.unique(np.rint(np.geomspace(1, max(longest, 2), TABLE_LENGTHS)))
    seconds_by_length = transfer_s(deployment.prefill.price, lengths, dims[-1].bandwidth_bytes_per_s)
    sizes, seconds = lengths.tolist(), np.broadcast_to(seconds_by_length, lengths.shape).tolist()
    return lambda tokens: agreed + float(np.interp(tokens, sizes, seconds))


# ---- results


def _collect_simulated(deployment: Deployment, loop: EventLoop) -> SimulatedLoad:
    requests, book = loop.requests, loop.book
    first, done, sent = (np.array(moments) for moments in (book.first, book.done, loop.sent))
    steady = requests.steady and bool(((done > loop.begins_s) & (done <= loop.ends_s)).any())
    window = (loop.begins_s, loop.ends_s) if steady else (float(sent.min()), float(done.max()))
    measured = measured_requests(requests, loop.warm, loop.flying_at_last)
    tallies = [pool.measured(steady=steady) for pool in loop.pools]
    names = ("prefill", "decode") if len(loop.pools) > 1 else ("all",)
    pools = dict(zip(names, zip(loop.pools, tallies, strict=True), strict=True))
    times = {
        "sent": sent,
        "front": np.array(loop.fronts),
        "admitted": np.array(book.admitted),
        "first": first,
        "done": done,
        "prefilled": np.array(loop.prefilled),
        "agreed": np.full(requests.count, loop.transfer_s(0) if len(loop.pools) > 1 else 0.0),
        "tpot": tpot_of(first, done, requests.output_tokens),
    }
    return SimulatedLoad(
        requests=requests,
        deployment=deployment,
        sent_s=sent,
        admitted_s=times["admitted"],
        first_token_s=first,
        completion_s=done,
        prefilled_s=times["prefilled"],
        front_s=times["front"],
        instance=np.array(book.place, dtype=np.int64),
        preemptions=np.array(book.preempted, dtype=np.int64),
        measured=measured,
        window_s=window,
        metrics=simulated_metrics(deployment, requests, times, measured, window, pools),
        itl=weighted_percentiles(tallies[-1].gaps, tallies[-1].gap_counts),
        steps=sum(tally.steps for tally in tallies),
        kv_tokens=tuple(pool.model.limits.kv_tokens for pool in loop.pools),
        most_held=tuple(tally.most_held for tally in tallies),
        spans={
            name: [instance.spans or [] for instance in pool.instances]
            for name, pool in zip(names, loop.pools, strict=True)
        },
    )
