"""Serving: time to first token (TTFT) and time per output token (TPOT) under continuous batching.

In each step an engine decodes one token of every running request. Between steps it prefills new requests. Clients keep
c requests in flight (a closed loop): when one completes, its client sends the next. `cosmic.step.serving_work` counts
what a step reads, computes and sends; the catalog has the rates that the accelerator reaches. An engine fuses its
kernels and replays them from a CUDA graph, so a step is a roofline over its sums, plus what the engine adds:

    decode  = x (max(weights / B, flop / F) + max(cache / B', pairs / F')) + comm + l (gap + mla) + r/k host
    prefill = y (max(weights / B, flop / F) + pairs / F') + activations m / B' + comm
    comm    = n e + min((g - 1) S / L,  n e + 2 (g - 1)/g S / L)        n collectives of S bytes in all, among g GPUs:
                                                                        one-shot or two-shot

    B, B'  rates of reading weights and KV cache    F, F'  rates of GEMMs (by format) and of attention
    L      a GPU's bandwidth into its network       l      layers
    x, y, e, m, gap, mla, host                      of the engine: see `cosmic.design.engine.Engine`

Clients see:

    r     = min(c, what fits): running requests; the KV cache holds no more         the others queue
    d     = decode(r, i + o/2),  q = prefill(i) / k      k replicas of attention, each prefills a request of its own
    TPOT  = d / v + q (r - 1) / o                        while a request decodes, every other is replaced once; half of
                                                         them where a burst stays together (f = 1): those behind it
    T     = o TPOT + q                                   time that a request runs
    ρ     = r q / T                                      share of time that prefills take
    R     = d / (1 - ρ) + q ρ / (1 - ρ²)                 a step with its prefills, as an arrival finds it
    calm  = R/2 + d + one + l launch + ρ R/2 + b d       the rest of a step, the request's prefill, half of the others'
    burst = q (r + 1) / 2                                all prefills at once: half of the others come first
    TTFT  = f burst + (1 - f) z calm + front (c / 16)^w + (c - r)/r T        the last: queueing for KV cache

    i, o  mean ISL and OSL                               one  a prefill that has all experts to itself
    b     steps for which the engine holds a prefill back
    f     share of requests that arrive in a burst: the first of each client, and later ones while clients stay in
          step. An engine that prefills first ends all requests of a burst together, so the burst comes again; only the
          spread s of lengths breaks it up: f = mean over rounds k of max(0, 1 - s √k / ρ). An engine that mixes
          prefill with decode starts and ends one request after the other: f = 1 / rounds
    v     tokens per step and request: more than one with speculative decoding

R assumes that each step serves the arrivals of the one before (Poisson, rate r/T, q each): mean and second moment
solve D' = d + q N(D). Not modelled: shared prefixes, time of clients and their network, pipeline parallelism.
calibration/fit_serving.py fits the engines and reports the errors; the catalog keeps both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cosmic.cost.compute import gemm_efficiency
from cosmic.design.batch import Batch
from cosmic.design.engine import Engine
from cosmic.design.model import Transformer
from cosmic.design.point import DesignPoint
from cosmic.errors import require
from cosmic.evaluation import Infeasible
from cosmic.step.serving_work import ServingWork, serving_work
from cosmic.workload.checks import invalid_reasons

USUAL_CONCURRENCY = 16
"""Requests in flight at which `Engine.frontend_s` is stated."""
MOST_PREFILL = 0.97
"""Upper bound on the share of time that prefills take: above it nothing would be decoded."""
REACHED = {"fp8": "fp8_block_efficiency", "fp4": "fp4_efficiency"}
"""Share of the peak that GEMMs in a serving format reach: most fp8 checkpoints scale blocks."""
GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLoad:
    """Requests of the clients; numbers, or arrays over a batch."""

    concurrency: Any
    """Requests in flight."""
    isl: Any
    """Longest input sequence length, in tokens."""
    osl: Any
    """Longest output sequence length, in tokens."""
    spread: Any = 0.0
    """Lengths are uniform from 1 - spread to 1 times the longest."""
    rounds: int = 10
    """Requests that each client sends, one after the other; all clients send their first at once."""

    def mean(self, longest: Any) -> Any:
        """Return the mean of lengths, given the longest."""
        return np.asarray(longest, dtype=float) * (1 - np.asarray(self.spread) / 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What an accelerator and its network reach; numbers, or arrays over a batch."""

    wide_flop_per_s: Any
    """Of GEMMs in 16 bits."""
    narrow_flop_per_s: Any
    """Of GEMMs in the serving format."""
    attention_flop_per_s: Any
    weight_bytes_per_s: Any
    cache_bytes_per_s: Any
    link_bytes_per_s: Any
    """Into the network, in one direction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """The work of a deployment; numbers, or arrays over a batch."""

    decode: ServingWork
    """One step of all running requests."""
    prefill: ServingWork
    """One prefill on each replica of attention."""
    rates: Rates
    running: Any
    replicas: Any
    layers: Any
    mla: Any
    """1 with MLA, else 0."""


@dataclass(frozen=True, slots=True)
class ServingMetrics:
    """What clients see; numbers, or arrays over a batch."""

    ttft_s: Any
    """Mean time to first token."""
    tpot_s: Any
    """Mean time per output token after the first."""
    tokens_per_s: Any
    """Output tokens of all clients."""
    running: Any
    """Requests that run at the same time; the others queue."""
    decode_s: Any
    """Seconds of a decode step."""
    prefill_s: Any
    """Seconds that a prefill takes from the other requests."""


def serve(
    design: DesignPoint, load: RequestLoad, engine: Engine, tokens_per_step: float = 1.0
) -> ServingMetrics | Infeasible:
    """Return what clients of one deployment see. Of the design's workload only mapping and precision count.

    *tokens_per_step* is above 1 with speculative decoding.
    """
    if reasons := invalid_reasons(design.changed(_as_task("decode", design.workload.dp))):
        return Infeasible(reasons)
    given = deployment(Batch(design, {}), load, engine)
    needed, there = float(given.decode.resident_bytes), design.memory.capacity_bytes
    if needed + engine.workspace_bytes > there:
        return Infeasible((f"weights take {needed / GIB:.4g} GiB of {there / GIB:.4g} GiB per GPU: raise tp or dp",))
    found = continuous_batching(given, load, engine, tokens_per_step)
    names = ("ttft_s", "tpot_s", "tokens_per_s", "running", "decode_s", "prefill_s")
    return ServingMetrics(*(float(np.ravel(getattr(found, name))[0]) for name in names))


# --------------------------------------------------------------------------------------------- deployments


def deployment(batch: Batch, load: RequestLoad, engine: Engine) -> Deployment:
    """Return the work of deployments that share a model, a precision and an accelerator."""
    model = batch.base.model
    require(isinstance(model, Transformer), "model", model.name, "only transformers are served")
    stages = np.max(batch["workload.pp"])
    require(bool(stages == 1), "pp", int(stages), "serving with pipeline stages is not modelled")
    replicas = np.asarray(batch["workload.dp"])
    isl, osl = load.mean(load.isl), load.mean(load.osl)
    held = isl + (osl if engine.reserves_kv else osl / 2)
    one = _work(batch, "decode", held, np.ones_like(held), engine.kv_element_bytes)
    left = batch["memory.capacity"] - one.resident_bytes - engine.workspace_bytes
    room = left - (1 - engine.memory_fraction) * (left if engine.reserves_kv else batch["memory.capacity"])
    fitting = replicas * np.maximum(np.floor(room / one.cache_bytes), 1)
    running = np.minimum(np.asarray(load.concurrency, dtype=float), fitting)
    return Deployment(
        decode=_work(batch, "decode", isl + osl / 2, running / replicas, engine.kv_element_bytes),
        prefill=_work(batch, "prefill", isl, np.ones_like(isl)),
        rates=rates(batch),
        running=running,
        replicas=replicas,
        layers=getattr(model, "layers", 0),
        mla=float(getattr(model, "mla", None) is not None),
    )


def rates(batch: Batch) -> Rates:
    """Return what the accelerators and networks of *batch* reach.

    GEMMs run in 16 bits where the accelerator does not support the serving format (gpt-oss on Hopper).
    """
    precision = batch.base.workload.precision

    def field(key: str) -> Any:
        return batch[f"compute.{key}"]

    usual = gemm_efficiency(field)
    wide = narrow = field("bf16") * usual
    if precision in REACHED and field(precision) is not None:
        narrow = field(precision) * (field(REACHED[precision]) or usual)
    bandwidth = batch["memory.bandwidth"]
    dims = batch.base.network.dims
    return Rates(
        wide_flop_per_s=wide,
        narrow_flop_per_s=narrow,
        attention_flop_per_s=field("bf16") * field("attention_efficiency"),
        weight_bytes_per_s=bandwidth * (field("operand_efficiency") or field("memory_efficiency")),
        cache_bytes_per_s=bandwidth * field("memory_efficiency"),
        link_bytes_per_s=min((dim.bandwidth_bytes_per_s for dim in dims), default=np.inf),
    )


def _as_task(task: str, replicas: int) -> dict[str, Any]:
    return {"workload.task": task, "workload.global_batch": replicas, "workload.micro_batch": 1}


def _work(batch: Batch, task: str, sequence: Any, requests: Any, kv_bytes: float | None = None) -> ServingWork:
    """Return the work of one task: *requests* per replica, each of *sequence* tokens, of one at least."""
    tokens = np.maximum(np.rint(sequence), 1)
    base = batch.base.changed(_as_task(task, batch.base.workload.dp))
    sizes = {"sequence": tokens, "micro_batch": requests, "global_batch": requests * batch["workload.dp"]}
    return serving_work(
        Batch(base, {**batch.columns, **{f"workload.{name}": each for name, each in sizes.items()}}), kv_bytes
    )


# --------------------------------------------------------------------------------------------- closed form


def decode_seconds(given: Deployment, engine: Engine) -> Any:
    """Return the seconds of a decode step."""
    work, rate = given.decode, given.rates
    reading = np.maximum(work.cache_bytes / rate.cache_bytes_per_s, work.attention_flop / rate.attention_flop_per_s)
    kernels = engine.decode_factor * (_gemms(work, rate, engine) + reading)
    gaps = given.layers * (engine.layer_gap_s + given.mla * engine.mla_layer_gap_s)
    host = engine.request_host_s * given.running / given.replicas
    return kernels + _communication(work, rate, engine) + gaps + host


def prefill_seconds(given: Deployment, engine: Engine, *, alone: bool) -> Any:
    """Return the seconds of one prefill on each replica of attention; *alone*, of a single one with all experts."""
    work, rate = given.prefill, given.rates
    if alone:
        share = 1 / np.asarray(given.replicas)
        work = replace(work, expert_flop=work.expert_flop * share, exchanged_bytes=work.exchanged_bytes * share)
    kernels = _gemms(work, rate, engine) + work.attention_flop / rate.attention_flop_per_s
    streamed = engine.activation_passes * work.activation_bytes / rate.cache_bytes_per_s
    return engine.prefill_factor * kernels + streamed + _communication(work, rate, engine)


def _gemms(work: ServingWork, rate: Rates, engine: Engine) -> Any:
    narrow = (work.narrow_flop + work.expert_flop / engine.grouped_gemm_efficiency) / rate.narrow_flop_per_s
    computing = work.wide_flop / rate.wide_flop_per_s + narrow
    return np.maximum(work.weight_bytes / rate.weight_bytes_per_s, computing)


def _communication(work: ServingWork, rate: Rates, engine: Engine) -> Any:
    calls = work.exchanges * engine.collective_s
    others = np.maximum(work.group - 1, 0) * work.exchanged_bytes / rate.link_bytes_per_s
    return calls + np.minimum(others, calls + 2 * others / np.maximum(work.group, 1))


def continuous_batching(
    given: Deployment, load: RequestLoad, engine: Engine, tokens_per_step: Any = 1.0
) -> ServingMetrics:
    """Return what clients of deployments see."""
    osl, concurrency = load.mean(load.osl), np.asarray(load.concurrency, dtype=float)
    running = np.asarray(given.running, dtype=float)
    step, own = decode_seconds(given, engine), prefill_seconds(given, engine, alone=True)
    added = prefill_seconds(given, engine, alone=False) / given.replicas
    in_step = np.logical_and(engine.prefill_first, np.asarray(load.spread) == 0)
    met = np.maximum(running - 1, 0) * np.where(in_step, 0.5, 1.0)  # of a burst, only the later prefills
    tpot = step / tokens_per_step + added * met / osl
    stay = osl * tpot + added
    busy = np.minimum(running * added / stay, MOST_PREFILL)
    found = step / (1 - busy) + added * busy / (1 - busy**2)
    calm = found / 2 + step + own + given.layers * engine.layer_launch_s + busy * found / 2
    calm = calm + engine.hold_steps * step
    share = burst_share(load, engine, busy)
    convoy = np.where(np.asarray(load.spread) > 0, 1.0, engine.convoy_factor)
    front = engine.frontend_s + given.mla * engine.mla_frontend_s
    front = front * (concurrency / USUAL_CONCURRENCY) ** engine.frontend_growth
    queueing = (concurrency - running) / running * stay
    ttft = share * added * (running + 1) / 2 + (1 - share) * convoy * calm + front + queueing
    return ServingMetrics(ttft, tpot, concurrency * osl / (ttft + osl * tpot), running, step, added)


def burst_share(load: RequestLoad, engine: Engine, busy: Any) -> Any:
    """Return the share of requests that arrive in a burst; *busy* is the share of time that prefills take.

    >>> float(burst_share(RequestLoad(concurrency=8, isl=1, osl=1, spread=0.2), Engine(), 0.5))
    0.1
    >>> float(burst_share(RequestLoad(concurrency=8, isl=1, osl=1), Engine(prefill_first=True), 0.5))
    1.0
    """
    rounds = np.sqrt(np.arange(load.rounds)).reshape(-1, *(1,) * np.ndim(busy))
    apart = np.asarray(load.spread) * rounds / np.maximum(busy, 1e-9)
    again = np.maximum(0.0, 1 - apart).mean(axis=0)
    return np.where(engine.prefill_first, again, 1 / load.rounds)
