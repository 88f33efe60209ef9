"""Serving: how long requests wait for their first token and for each further one, while others are served beside them.

A serving engine batches continuously: in each step every running request gets one more token, and requests that came
meanwhile have their prompts processed between steps. Clients keep c requests in flight (a closed loop): when one is
answered, its client sends the next. What a step reads, computes and sends comes from `cosmic.step.serving_work`,
what the accelerator reaches from the catalog. An engine's kernels are fused and replayed from a graph, so that a step
is a roofline over its sums, and what engines differ in is what they add to it:

    step     = x (max(weights / B, flop / F) + max(cache / B', pairs / F')) + exchange + l (layer + mla) + r/k seq
    prompt   = y (max(weights / B, flop / F) + pairs / F') + activations m / B' + exchange
    exchange = n e + min((g - 1) S / L,  n e + 2 (g - 1)/g S / L)       n exchanges of S bytes in all, among g devices:
                                                                        each to all others at once, or in two halves

    B, B'  rates of reading weights and cache      F, F'  rates of products (by format) and of attention
    L      a device's bandwidth into its network   x, y, e, m, layer, mla, seq  the engine's: see `Engine`

From these two times follows what clients see:

    r     = min(c, what fits): requests that run; the cache of keys and values holds no more      the rest queue
    d     = step(r, p + a/2),  q = prompt(p) / k         k replicas of attention, each with a prompt of its own
    TPOT  = d / v + q (r - 1) / a                        while a request decodes, every other is replaced once; half of
                                                         them where a burst stays together (f = 1): those behind it
    T     = a TPOT + q                                   a request's whole stay
    ρ     = r q / T                                      share of time that prompts take
    R     = d / (1 - ρ) + q ρ / (1 - ρ²)                 a step with its prompts, as an arrival finds it
    calm  = R/2 + d + one + l launch + ρ R/2 + b d       the rest of a step, one's own prompt, half of the others'
    burst = q (r + 1) / 2                                all prompts at once: half of the others come first
    TTFT  = f burst + (1 - f) z calm + front (c / 16)^w + (c - r)/r T        the last: waiting until there is room

    p, a  tokens of a prompt and of an answer, on average        one  a prompt that has all experts to itself
    b     steps for which a prompt is held back, until the engine looks for new ones or has enough of them
    f     share of requests that arrive in a burst: the first of each client, and later ones as long as clients keep in
          step. An engine that processes prompts first answers all of a burst at the same time, so that it comes again;
          only the spread s of lengths pulls it apart: f = mean over rounds k of max(0, 1 - s √k / ρ). One that mixes
          prompts with decoding starts and ends one request after the other: f = 1 / rounds
    v     tokens that a step yields for a request: more than one if a draft is made and checked (speculation)

R is that of steps of which each serves the arrivals of the one before (Poisson, rate r/T, q each): mean and second
moment solve D' = d + q N(D). Assumes that prompts share nothing, that clients and network take no time, and that the
mapping has no pipeline. Constants are fitted by calibration/fit_serving.py, which says how far off this is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cosmic.cost.compute import gemm_efficiency
from cosmic.design.batch import Batch
from cosmic.design.model import Transformer
from cosmic.design.point import DesignPoint
from cosmic.errors import require
from cosmic.evaluation import Infeasible
from cosmic.step.serving_work import ServingWork, serving_work
from cosmic.workload.checks import unfit

USUAL_CONCURRENCY = 16
"""The requests in flight at which `Engine.front_s` is stated."""
FULLEST = 0.97
"""Share of time at most that prompts take: beyond it nothing would ever be decoded."""
REACHED = {"fp8": "fp8_block_efficiency", "fp4": "fp4_efficiency"}
"""The share of the peak that products in a serving format reach: checkpoints in fp8 scale blocks, most of them."""
GIB = 2**30
WORKING_BYTES = 3e9
"""What an engine needs of memory beside weights and cache: activations, graphs, buffers of the network."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What clients ask for; numbers, or arrays over a batch."""

    concurrency: Any
    """Requests in flight."""
    prompt: Any
    """Tokens of the longest prompt."""
    answer: Any
    """Tokens of the longest answer."""
    spread: Any = 0.0
    """Lengths are drawn evenly from 1 - spread to 1 times the longest."""
    rounds: int = 10
    """Requests that each client sends, one after the other; all send their first at once."""

    def mean(self, tokens: Any) -> Any:
        """Return the mean length, given the longest."""
        return np.asarray(tokens, dtype=float) * (1 - np.asarray(self.spread) / 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """What a serving engine adds to what its kernels must do, and how it schedules; numbers, or arrays over a batch."""

    decode: Any = 1.0
    """x: of a decode step's kernels relative to what the accelerator reaches."""
    prefill: Any = 1.0
    """y: of a prompt's kernels."""
    grouped: Any = 1.0
    """Rate of experts' products relative to one large product."""
    streamed: Any = 1.0
    """m: passes over activations: fusing takes some away, casts to a format add some."""
    exchange_s: Any = 0.0
    """e: of a collective, however small."""
    layer_s: Any = 0.0
    """Gaps between the kernels of a layer in a decode step."""
    mla_layer_s: Any = 0.0
    """So much more with MLA, which takes more and smaller kernels."""
    sequence_s: Any = 0.0
    """Host's time in each step for each request of a replica: sampling, handing out tokens."""
    launch_layer_s: Any = 0.0
    """To launch the kernels of a layer for a prompt, which runs without a graph: seen by that request alone."""
    front_s: Any = 0.0
    """What a request waits besides, with 16 in flight: the front end, and a server that is still cold."""
    mla_front_s: Any = 0.0
    """So much more with MLA."""
    front_growth: Any = 0.0
    """w: how that grows with requests in flight."""
    hold_steps: Any = 0.0
    """b: steps for which a prompt is held back on average, until the engine looks for new ones or has enough."""
    train: Any = 1.0
    """z: of answers of equal length, requests run in trains in which each waits for those ahead."""
    prompts_first: Any = False
    """Whether waiting prompts are processed before anything is decoded further."""
    reserves: Any = False
    """Whether the cache for a whole answer is set aside at once; else it grows, and requests wait if it is full."""
    cache: float | None = None
    """Bytes of a number in the cache, where it is not as the precision's recipe has it."""
    memory_share: Any = 0.94
    """Share of memory for weights and cache; where it `reserves`, share for the cache of what weights leave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What an accelerator and its network reach; numbers, or arrays over a batch."""

    wide_flop_per_s: Any
    """Of products in 16 bits."""
    narrow_flop_per_s: Any
    """Of products in the serving format."""
    attention_flop_per_s: Any
    weight_bytes_per_s: Any
    cache_bytes_per_s: Any
    link_bytes_per_s: Any
    """Into the network, in one direction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """What a deployment has to do for its clients; numbers, or arrays over a batch."""

    decoding: ServingWork
    """One step of all running requests."""
    prompting: ServingWork
    """One prompt for each replica of attention."""
    rates: Rates
    running: Any
    replicas: Any
    layers: Any
    mla: Any
    """1 with MLA, else 0."""


@dataclass(frozen=True, slots=True)
class Service:
    """What clients see; numbers, or arrays over a batch."""

    ttft_s: Any
    """Mean time to the first token."""
    tpot_s: Any
    """Mean time per further token."""
    tokens_per_s: Any
    """Output tokens, of all clients together."""
    running: Any
    """Requests that run at the same time; others queue."""
    decode_s: Any
    """Seconds of a decode step."""
    prefill_s: Any
    """Seconds that a prompt takes from the others."""


def serve(design: DesignPoint, load: Load, engine: Engine, speculation: float = 1.0) -> Service | Infeasible:
    """Return what clients of one deployment see; of the design's workload, mapping and precision count.

    *speculation* is how many tokens a step yields for a request.
    """
    if reasons := unfit(design.changed(_as_task("decode", design.workload.dp))):
        return Infeasible(reasons)
    given = deployment(Batch(design, {}), load, engine)
    needed, there = float(given.decoding.resident_bytes), design.memory.capacity_bytes
    if needed + WORKING_BYTES > there:
        return Infeasible((f"weights take {needed / GIB:.4g} GiB of {there / GIB:.4g} GiB per NPU: raise tp or dp",))
    found = continuous_batching(given, load, engine, speculation)
    names = ("ttft_s", "tpot_s", "tokens_per_s", "running", "decode_s", "prefill_s")
    return Service(*(float(np.ravel(getattr(found, name))[0]) for name in names))


# --------------------------------------------------------------------------------------------- deployments


def deployment(batch: Batch, load: Load, engine: Engine) -> Deployment:
    """Return what deployments that share a model, a precision and a machine have to do."""
    model = batch.base.model
    require(isinstance(model, Transformer), "model", model.name, "only transformers are served")
    stages = np.max(batch["workload.pp"])
    require(bool(stages == 1), "pp", int(stages), "serving in stages is not modelled")
    replicas = np.asarray(batch["workload.dp"])
    prompt, answer = load.mean(load.prompt), load.mean(load.answer)
    held = prompt + (answer if engine.reserves else answer / 2)
    one = _work(batch, "decode", held, np.ones_like(held), engine.cache)
    left = batch["memory.capacity"] - one.resident_bytes - WORKING_BYTES
    room = left - (1 - engine.memory_share) * (left if engine.reserves else batch["memory.capacity"])
    fitting = replicas * np.maximum(np.floor(room / one.cache_bytes), 1)
    running = np.minimum(np.asarray(load.concurrency, dtype=float), fitting)
    return Deployment(
        decoding=_work(batch, "decode", prompt + answer / 2, running / replicas, engine.cache),
        prompting=_work(batch, "prefill", prompt, np.ones_like(prompt)),
        rates=rates(batch),
        running=running,
        replicas=replicas,
        layers=getattr(model, "layers", 0),
        mla=float(getattr(model, "mla", None) is not None),
    )


def rates(batch: Batch) -> Rates:
    """Return what the accelerators and networks of *batch* reach.

    Formats that an accelerator does not multiply in are widened to 16 bits on the way (gpt-oss on Hopper).
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


def _work(batch: Batch, task: str, sequence: Any, requests: Any, cache: float | None = None) -> ServingWork:
    """Return the work of one task, with sequences of a length and so many requests for each replica."""
    base = batch.base.changed(_as_task(task, batch.base.workload.dp))
    sizes = {"sequence": np.rint(sequence), "micro_batch": requests, "global_batch": requests * batch["workload.dp"]}
    return serving_work(
        Batch(base, {**batch.columns, **{f"workload.{name}": each for name, each in sizes.items()}}), cache
    )


# --------------------------------------------------------------------------------------------- closed form


def step_seconds(given: Deployment, engine: Engine) -> Any:
    """Return the seconds of a decode step."""
    work, rate = given.decoding, given.rates
    reading = np.maximum(work.cache_bytes / rate.cache_bytes_per_s, work.attention_flop / rate.attention_flop_per_s)
    kernels = engine.decode * (_products(work, rate, engine) + reading)
    gaps = given.layers * (engine.layer_s + given.mla * engine.mla_layer_s)
    host = engine.sequence_s * given.running / given.replicas
    return kernels + _exchange(work, rate, engine) + gaps + host


def prompt_seconds(given: Deployment, engine: Engine, *, alone: bool) -> Any:
    """Return the seconds of one prompt for each replica of attention, or of one prompt *alone*.

    Alone, it has the experts of all devices to itself.
    """
    work, rate = given.prompting, given.rates
    if alone:
        share = 1 / np.asarray(given.replicas)
        work = replace(work, expert_flop=work.expert_flop * share, exchanged_bytes=work.exchanged_bytes * share)
    kernels = _products(work, rate, engine) + work.attention_flop / rate.attention_flop_per_s
    streamed = engine.streamed * work.activation_bytes / rate.cache_bytes_per_s
    return engine.prefill * kernels + streamed + _exchange(work, rate, engine)


def _products(work: ServingWork, rate: Rates, engine: Engine) -> Any:
    narrow = (work.narrow_flop + work.expert_flop / engine.grouped) / rate.narrow_flop_per_s
    computing = work.wide_flop / rate.wide_flop_per_s + narrow
    return np.maximum(work.weight_bytes / rate.weight_bytes_per_s, computing)


def _exchange(work: ServingWork, rate: Rates, engine: Engine) -> Any:
    calls = work.exchanges * engine.exchange_s
    others = np.maximum(work.group - 1, 0) * work.exchanged_bytes / rate.link_bytes_per_s
    return calls + np.minimum(others, calls + 2 * others / np.maximum(work.group, 1))


def continuous_batching(given: Deployment, load: Load, engine: Engine, speculation: Any = 1.0) -> Service:
    """Return what clients of deployments see."""
    answer, concurrency = load.mean(load.answer), np.asarray(load.concurrency, dtype=float)
    running = np.asarray(given.running, dtype=float)
    step, own = step_seconds(given, engine), prompt_seconds(given, engine, alone=True)
    added = prompt_seconds(given, engine, alone=False) / given.replicas
    in_step = np.logical_and(engine.prompts_first, np.asarray(load.spread) == 0)
    met = np.maximum(running - 1, 0) * np.where(in_step, 0.5, 1.0)  # a burst's later prompts alone
    tpot = step / speculation + added * met / answer
    stay = answer * tpot + added
    busy = np.minimum(running * added / stay, FULLEST)
    found = step / (1 - busy) + added * busy / (1 - busy**2)
    calm = found / 2 + step + own + given.layers * engine.launch_layer_s + busy * found / 2
    calm = calm + engine.hold_steps * step
    share = burst_share(load, engine, busy)
    train = np.where(np.asarray(load.spread) > 0, 1.0, engine.train)
    front = engine.front_s + given.mla * engine.mla_front_s
    front = front * (concurrency / USUAL_CONCURRENCY) ** engine.front_growth
    queueing = (concurrency - running) / running * stay
    ttft = share * added * (running + 1) / 2 + (1 - share) * train * calm + front + queueing
    return Service(ttft, tpot, concurrency * answer / (ttft + answer * tpot), running, step, added)


def burst_share(load: Load, engine: Engine, busy: Any) -> Any:
    """Return the share of requests that arrive in a burst, given the share of time that prompts take.

    >>> float(burst_share(Load(concurrency=8, prompt=1, answer=1, spread=0.2), Engine(), 0.5))
    0.1
    >>> float(burst_share(Load(concurrency=8, prompt=1, answer=1), Engine(prompts_first=True), 0.5))
    1.0
    """
    rounds = np.sqrt(np.arange(load.rounds)).reshape(-1, *(1,) * np.ndim(busy))
    apart = np.asarray(load.spread) * rounds / np.maximum(busy, 1e-9)
    again = np.maximum(0.0, 1 - apart).mean(axis=0)
    return np.where(engine.prompts_first, again, 1 / load.rounds)


# -------------------------------------------------------------------------------------------------- engines

COMMON: Mapping[str, float] = {
    "decode": 0.917,
    "grouped": 0.277,
    "streamed": 1.45,
    "exchange_s": 6.66e-06,
    "mla_layer_s": 1.95e-05,
    "front_growth": 0.394,
    "train": 1.46,
}
"""What is one for all engines."""
ENGINES: Mapping[str, Engine] = {
    "trtllm": Engine(
        **COMMON,
        prefill=0.901,
        layer_s=4.98e-05,
        sequence_s=7.66e-06,
        launch_layer_s=0.000751,
        front_s=0.0115,
        mla_front_s=0.123,
        reserves=True,
    ),
    "vllm": Engine(
        **COMMON,
        prefill=0.959,
        layer_s=6.66e-05,
        sequence_s=8.93e-06,
        launch_layer_s=0.000295,
        front_s=0.0207,
        mla_front_s=0.025,
    ),
    "sglang": Engine(
        **COMMON,
        prefill=0.725,
        layer_s=7.62e-05,
        sequence_s=2.07e-05,
        launch_layer_s=0.000664,
        front_s=0.163,
        mla_front_s=0.00111,
        prompts_first=True,
    ),
}
"""TensorRT-LLM, vLLM and SGLang, as versions of 2025 and 2026 ran: fitted on 1,442 measured deployments on Hopper and
Blackwell. Of rows left out of the fit, a fifth at a time, the mean error is 0.16 of the time per token and 0.28 of the
time to the first; of models left out, 0.17 and 0.32."""
