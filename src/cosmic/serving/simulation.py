"""Serving simulated request by request: what each request of a load sees of a deployment.

Requests arrive (`requests`, `trace_files`), pass the engine's front end and are routed (`routing`). Ranks put them into
steps as their engine does (`scheduling`), instances take these steps (`instances`), at the price that the closed form
has, too (`step_table`). With two pools the KV cache of a prefilled request moves over the network, and its client has
the first token with the other pool's next step.

A steady load is measured from when it has settled until the last request is sent. The same seed gives the same bits.

    found = simulate(deployment_of(design), seed=1)
    found.metrics.ttft.p95_s, found.itl.p99_s, found.ttft_s[found.kind == 0]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from cosmic.design.model import Transformer
from cosmic.errors import UnknownName, require
from cosmic.metrics import Infeasible
from cosmic.serving.deployment import Deployment, Pool, without_load
from cosmic.serving.disaggregated import (
    Handover,
    handover_of,
    has_experts,
    in_eight_bits,
    knows_handover,
    only_prefilling,
    transfer_s,
)
from cosmic.serving.event_loop import EventLoop, PoolModel
from cosmic.serving.instances import Chunks, Span, Steps
from cosmic.serving.outcome import Percentiles, ServingMetrics
from cosmic.serving.requests import Requests, requests_of
from cosmic.serving.rules import PREFILL, deployment_reasons
from cosmic.serving.scheduling import Limits
from cosmic.serving.simulated_metrics import few_in_words, measured_of, metrics_of, weighted_percentiles
from cosmic.serving.step_table import StepTable
from cosmic.step_evaluation import evaluate_step

Floats = npt.NDArray[np.float64]
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
LENGTHS = 64
"""Lengths of requests at which the size of the KV cache is asked for."""


@dataclass(frozen=True)
class Simulated:
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
    spans: dict[str, list[list[Span]]]
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
        said = few_in_words(self.measured)
        return (said,) if said else ()

    @property
    def kind(self) -> Ints:
        """Place of each request's class among `Requests.classes`."""
        return self.requests.kind

    def of_class(self, name: str) -> tuple[Percentiles, Percentiles]:
        """Return TTFT and TPOT of the requests of a class that are measured."""
        names = [each.name for each in self.requests.classes]
        if name not in names:
            raise UnknownName.among("class", name, "class of requests", names)
        those = self.measured & (self.kind == names.index(name))
        return Percentiles.of(self.ttft_s[those]), Percentiles.of(self.tpot_s[those & ~np.isnan(self.tpot_s)])

    def over_time(self, points: int = 200) -> dict[str, Floats]:
        """Return times, and the requests that run and wait and the share of the KV cache in use at each of them.

        Contexts grow evenly from a request's admission to its end.
        """
        inputs, outputs = self.requests.input_tokens, self.requests.output_tokens
        times = np.linspace(0.0, self.end_s, points)
        came, taken, done = (
            np.searchsorted(np.sort(each), times, side="right")
            for each in (self.sent_s + self.front_s, self.admitted_s, self.completion_s)
        )
        held = np.zeros(points)
        pace = outputs / np.maximum(self.completion_s - self.admitted_s, 1e-12)
        for edge, sign in ((self.admitted_s, 1), (self.completion_s, -1)):
            order = np.argsort(edge, kind="stable")
            place = np.searchsorted(edge[order], times, side="right")
            sums = [
                np.concatenate([[0.0], np.cumsum(each[order])])[place]
                for each in (inputs - pace * self.admitted_s, pace)
            ]
            held += sign * (sums[0] + sums[1] * times)
        ranks = int(np.sum(self.deployment.pool.instances * self.deployment.pool.ranks))
        room = self.kv_tokens[-1] * ranks
        numbers = {"running": taken - done, "waiting": came - taken}
        return {"time_s": times, "kv_use": np.clip(held / room, 0, 1)} | {
            name: each.astype(float) for name, each in numbers.items()
        }

    @property
    def end_s(self) -> float:
        """When the last request is complete."""
        return float(self.completion_s.max())


def tpot_of(first: Floats, done: Floats, tokens: Ints) -> Floats:
    """Return the mean time per output token after the first; NaN where there is none."""
    further = tokens - 1
    return np.where(further > 0, (done - first) / np.maximum(further, 1), np.nan)


def simulate(
    deployment: Deployment,
    requests: Requests | None = None,
    *,
    count: int | None = None,
    seed: int = 0,
    router: str = "least_loaded",
    noting: bool = False,
) -> Simulated | Infeasible:
    """Return what requests see of a deployment: those given, or *count* of its load, or a usual number of them.

    *noting*: also what each instance did, for a timeline (`cosmic.serving.timeline`).
    """
    pools = [each for each in (deployment.prefill, deployment.pool) if each is not None]
    if reasons := _broken(deployment, pools):
        return Infeasible(reasons)
    requests = requests_of(deployment.load, count, seed=seed) if requests is None else requests
    requests = replace(requests, steady=requests.steady and _settles(requests))
    models = []
    for place, pool in enumerate(pools):
        found = _model(pool, requests, only_prefill=place + 1 < len(pools), alone=len(pools) == 1)
        if isinstance(found, Infeasible):
            return found
        models.append(found)
    if len(models) > 1:
        models[0] = replace(models[0], steps=PrefillSteps.of(pools[0], models[0], _handover(deployment)))
    front = _front(pools[0]) if len(pools) == 1 else _no_time  # two pools have it in their handover
    loop = EventLoop(requests, models, router, front, _transfer(deployment, requests), noting)
    loop.run(_warm(requests), steady=requests.steady)
    return _simulated(deployment, loop)


def _settles(requests: Requests) -> bool:
    """Return whether there are enough requests for a part of them that is steady; otherwise all are measured."""
    return requests.count >= max(LEAST_ROUNDS * (requests.concurrency or 0), LEAST_STEADY)


def _warm(requests: Requests) -> int:
    """Return the number of requests before those that are measured."""
    if not requests.steady:
        return 0
    wanted = max(WARM_SHARE * requests.count, WARM_ROUNDS * (requests.concurrency or 0))
    return int(min(wanted, requests.count // 2))


def _broken(deployment: Deployment, pools: Sequence[Pool]) -> tuple[str, ...]:
    """Return why pools cannot take a step at all, a sentence each."""
    said = list(deployment_reasons(deployment.batch.base))
    for pool in pools:
        base = without_load(pool.batch).base
        sizes = {"task": "decode", "sequence": 1, "global_batch": base.workload.dp, "micro_batch": 1}
        outcome = evaluate_step(base.changed({f"workload.{name}": value for name, value in sizes.items()}))
        if isinstance(outcome, Infeasible):
            prefix = PREFILL if pool is deployment.prefill else ""
            said += [f"{prefix}{reason}" for reason in outcome.reasons]
    return tuple(said)


# ------------------------------------------------------------------------------------------------------ pools


def _model(pool: Pool, requests: Requests, *, only_prefill: bool, alone: bool) -> PoolModel | Infeasible:
    """Return a pool as the simulation sees it, or why it cannot serve the requests."""
    engine, serving = pool.engine, pool.serving
    price = only_prefilling(pool.price) if only_prefill else pool.price
    inputs, outputs = requests.input_tokens, requests.output_tokens
    outputs = np.zeros_like(outputs) if only_prefill else outputs
    longest = int((inputs + outputs).max())
    kv_tokens = float(np.ravel(price.kv_tokens(float((inputs + outputs / 2).mean())))[0])
    if not kv_tokens >= longest + engine.page_tokens:
        held = f"the KV cache of a rank holds {kv_tokens:,.0f} tokens" if kv_tokens > 0 else "weights leave no KV cache"
        return Infeasible((f"{held}, and the longest request has {longest:,}: raise tp or pp, or use fewer ranks",))
    most = serving.max_num_seqs or engine.max_num_seqs
    tokens = serving.max_num_batched_tokens or engine.max_num_batched_tokens
    chunks = int(np.ceil(inputs / tokens).sum())
    rule = f"cuts prompts into {chunks:,} chunks, and {MOST_CHUNKS:,} are simulated at most: raise it, or send fewer"
    require(chunks <= MOST_CHUNKS, "max_num_batched_tokens", tokens, rule)
    stages = int(pool.design.workload.pp)
    together = min(most, requests.concurrency or requests.count, int(kv_tokens // int(inputs.min())) + 1)
    return PoolModel(
        instances=int(np.ravel(pool.instances)[0]),
        ranks=int(np.ravel(pool.ranks)[0]),
        limits=Limits(
            requests=most,
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
        late_steps=max(engine.taken_steps - MEAN_REST, 0.0) if alone else 0.0,  # two pools have it in their handover
        steps=StepTable(price, max(together, 1), tokens * stages, longest, price.expert_share),
    )


@dataclass(frozen=True, slots=True)
class PrefillSteps:
    """The steps of a pool that only prefills: with a pace of its kernels and a host time of its own."""

    steps: Steps
    factor: float
    fixed_s: float

    @classmethod
    def of(cls, pool: Pool, model: PoolModel, handover: Handover) -> PrefillSteps:
        """Return the steps of *pool* with what an engine takes beside its kernels."""
        factor = handover.pace(model.ranks, has_experts(pool.price), in_eight_bits(pool.price))
        return cls(model.steps, float(factor), float(handover.host_s(model.ranks)))

    def decode(self, requests: int, held: float) -> tuple[float, float, float]:
        """Return what `Steps` does: it never comes to that."""
        return self.steps.decode(requests, held)

    def mixed(self, tokens: int, chunks: Chunks, requests: int, held: float, mean: int | None = None) -> float:
        """Return seconds of a step that prefills."""
        return self.factor * self.steps.mixed(tokens, chunks, requests, held, mean) + self.fixed_s


def _no_time(_: int) -> float:
    return 0.0


def _front(pool: Pool) -> Callable[[int], float]:
    """Return what the front end takes, by the requests in flight of an instance."""
    engine, model = pool.engine, pool.design.model
    mla = isinstance(model, Transformer) and model.mla is not None
    devices = pool.design.workload.tp * pool.design.workload.pp
    known: dict[int, float] = {}

    def seconds(flying: int) -> float:
        if flying not in known:
            known[flying] = engine.front_s(flying, devices, mla)
        return known[flying]

    return seconds


def _transfer(deployment: Deployment, requests: Requests) -> Callable[[int], float]:
    """Return what handing a request over to the other pool takes, by its tokens: agreeing on it, and moving its cache.

    Every accelerator of the prefill pool sends its share through the outermost dimension of the network.
    """
    if deployment.prefill is None:
        return lambda _: 0.0
    dims = deployment.batch.base.network.dims
    agreed = _handover(deployment).handover_s
    if not dims:
        return lambda _: agreed
    most = int((requests.input_tokens + requests.output_tokens).max())
    lengths = np.unique(np.rint(np.geomspace(1, max(most, 2), LENGTHS)))
    found = transfer_s(deployment.prefill.price, lengths, dims[-1].bandwidth_bytes_per_s)
    sizes, seconds = lengths.tolist(), np.broadcast_to(found, lengths.shape).tolist()
    return lambda tokens: agreed + float(np.interp(tokens, sizes, seconds))


def _handover(deployment: Deployment) -> Handover:
    name = deployment.pool.serving.engine
    return handover_of(name) if knows_handover(name) else Handover()


# ----------------------------------------------------------------------------------------------------- results


def _simulated(deployment: Deployment, loop: EventLoop) -> Simulated:
    requests, book = loop.requests, loop.book
    first, done, sent = (np.array(each) for each in (book.first, book.done, loop.sent))
    steady = requests.steady and bool(((done > loop.begins_s) & (done <= loop.ends_s)).any())
    window = (loop.begins_s, loop.ends_s) if steady else (float(sent.min()), float(done.max()))
    measured = measured_of(requests, loop.warm, loop.flying_at_last)
    tallies = [pool.measured(steady=steady) for pool in loop.pools]
    names = ("prefill", "decode") if len(loop.pools) > 1 else ("all",)
    pools = dict(zip(names, zip(loop.pools, tallies, strict=True), strict=True))
    seen = {
        "sent": sent,
        "front": np.array(loop.fronts),
        "admitted": np.array(book.admitted),
        "first": first,
        "done": done,
        "prefilled": np.array(loop.prefilled),
        "agreed": np.full(requests.count, loop.transfer_s(0) if len(loop.pools) > 1 else 0.0),
        "tpot": tpot_of(first, done, requests.output_tokens),
    }
    return Simulated(
        requests=requests,
        deployment=deployment,
        sent_s=sent,
        admitted_s=seen["admitted"],
        first_token_s=first,
        completion_s=done,
        prefilled_s=seen["prefilled"],
        front_s=seen["front"],
        instance=np.array(book.place, dtype=np.int64),
        preemptions=np.array(book.preempted, dtype=np.int64),
        measured=measured,
        window_s=window,
        metrics=metrics_of(deployment, requests, seen, measured, window, pools),
        itl=weighted_percentiles(tallies[-1].gaps, tallies[-1].weights),
        steps=sum(each.steps for each in tallies),
        kv_tokens=tuple(pool.model.limits.kv_tokens for pool in loop.pools),
        most_held=tuple(each.most_held for each in tallies),
        spans={
            name: [each.spans or [] for each in pool.instances] for name, pool in zip(names, loop.pools, strict=True)
        },
    )
