"""Rows of serving on one GPU by an engine that does nothing beside its steps: single steps, and loads of clients.

The engine of `calibration/measure_serving.py` has a paged KV cache, and replays its steps from CUDA graphs. It has no
front end: `catalog/engines/plain.yaml` says what its host takes. A load says how it schedules:

    chunked  running requests decode a token each, and chunks of prompts fill the step, as in vLLM
    whole    whole prompts first, as many as fit; all running requests decode where none waits, as in SGLang

Lengths are uniform from 1 - spread to 1 + spread times those stated; the row's seed draws them, and the arrivals of an
open loop, as they were measured. So a load is simulated with the very same requests: its verdicts are ``id:ttft`` and
``id:tpot``, means over all of them. The closed form knows their distribution alone; its verdicts are sets of their own,
``id:ttft:closed`` and ``id:tpot:closed``.

A step has tokens of prompts (each after *past* ones, which the cache has), sequences that decode, or both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

import numpy as np

from cosmic.accuracy.measured_rows import OWN_ACCELERATOR, Fields, Row, Verdict, compare_row
from cosmic.base.errors import SpecError, require
from cosmic.design.design_batch import batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.design.measured_hardware import build_machine
from cosmic.design.model_layer import Experts, Transformer
from cosmic.design.serving_engine import Engine, load_engine
from cosmic.design.serving_layer import Load, Serving
from cosmic.design.workload_layer import Workload
from cosmic.serving.closed_form import estimate_deployment
from cosmic.serving.deployment import Deployment, Pool
from cosmic.serving.request_simulation import simulate_load
from cosmic.serving.serving_metrics import ServingMetrics
from cosmic.serving.serving_requests import MOST_REQUESTS, Requests
from cosmic.serving.step_price import StepPrice
from cosmic.simulate.metrics import Infeasible

SCHEDULERS = {
    "chunked": {"prefill_first": False, "chunked_prefill": True},
    "whole": {"prefill_first": True, "chunked_prefill": False},
}
STEPS = ("decode", "prefill", "mixed")
TIMES = ("ttft", "tpot")
MILLI = 1e-3
LONGEST = 2**20
"""The most tokens that a request of a row may have."""


def compare_rows(rows: Sequence[Row]) -> list[Verdict]:
    """Return the verdicts on loads, two each, or on steps."""
    verdicts: list[Verdict] = []
    for index, row in enumerate(rows):
        if "step" in row:
            sizes = "-".join(
                row.get(name, "") for name in ("model", "step", "batch", "context", "prompts", "tokens", "past")
            )
            verdicts.append(
                compare_row(
                    row,
                    row.get("id") or f"{sizes}-{index}",
                    row.get("set") or f"h200-serving {row.get('step', '')} step",
                    _step,
                )
            )
        else:
            verdicts += _load(row)
    return verdicts


# ---- steps


def _step(fields: Fields) -> Verdict:
    """Return the verdict on a step: its time on the device, without its host."""
    step = fields.text("step")
    require(step in STEPS, "step", step, f"must be one of {', '.join(STEPS)}")
    price = StepPrice.for_design(_design(fields), replace(plain_engine(), step_host_s=0.0, request_host_s=0.0))
    return Verdict(
        row=fields.row,
        measured_s=fields.seconds("device_ms", MILLI),
        predicted_s=float(np.ravel(_step_s(fields, price, step))[0]),
        assumed=tuple(fields.assumed),
    )


def _step_s(fields: Fields, price: StepPrice, step: str) -> float:
    """Return the seconds of a step."""
    if step == "decode":
        return price.decode_s(fields.whole("batch"), fields.whole("context"))  # type: ignore[no-any-return]
    prompts, past = fields.whole("prompts", 1), _or_zero(fields, "past")
    tokens = fields.whole("tokens") / prompts
    if step == "prefill":
        return price.prefill_s(tokens, prompts, past)  # type: ignore[no-any-return]
    return price.mixed_s(tokens, fields.whole("batch"), fields.whole("context"), past, prompts)  # type: ignore[no-any-return]


def _or_zero(fields: Fields, name: str) -> int:
    """Return a whole number, or zero, which an empty cell is too."""
    return 0 if fields.text(name, "0") in ("0", "0.0") else fields.whole(name)


# ---- loads


def _load(row: Row) -> list[Verdict]:
    """Return the verdicts on a load: TTFT and TPOT, means over its requests, simulated and in closed form."""
    fields, identity, collection = Fields(row), (row.get("id") or "").strip(), row.get("set") or "h200-serving"
    skipped = ""
    times: dict[str, tuple[float, float, float]] = {}
    try:
        served_load = read_served_load(fields)
        simulated, estimated = _simulated(served_load), estimate_deployment(served_load.deployment)
        for name in TIMES:
            means = (float(np.ravel(getattr(metrics, name).mean_s)[0]) for metrics in (simulated, estimated))
            times[name] = fields.seconds(f"{name}_mean_ms", MILLI), *means  # type: ignore[assignment]
    except SpecError as error:
        skipped = str(error)
    verdicts = []
    for index, (ending, form) in enumerate((("", ""), (":closed", " closed form")), start=1):
        for name in TIMES:
            verdict = Verdict(
                id=f"{identity}:{name}{ending}", set=f"{collection}{form} {name}", row=row, skipped=skipped
            )
            if not skipped:
                measured, predicted = times[name][0], times[name][index]
                verdict = replace(verdict, measured_s=measured, predicted_s=predicted, assumed=tuple(fields.assumed))
            verdicts.append(verdict)
    return verdicts


@dataclass(frozen=True, slots=True)
class MeasuredLoad:
    """A row as a deployment under its load, and the requests that were measured."""

    deployment: Deployment
    requests: Requests


def _simulated(served_load: MeasuredLoad) -> ServingMetrics:
    simulation = simulate_load(served_load.deployment, served_load.requests)
    if isinstance(simulation, Infeasible):
        raise SpecError("model", served_load.deployment.pool.design.model.name, simulation.reasons[0])
    return simulation.metrics


def read_served_load(fields: Fields) -> MeasuredLoad:
    """Return a row of a load."""
    scheduler = fields.text("scheduler")
    require(scheduler in SCHEDULERS, "scheduler", scheduler, f"must be one of {', '.join(SCHEDULERS)}")
    load = _clients_or_rate(fields)
    serving = Serving(
        load=load,
        max_num_batched_tokens=fields.whole("max_num_batched_tokens"),
        max_num_seqs=fields.whole("max_num_seqs"),
    )
    batch = batch_of(replace(_design(fields), serving=serving))
    engine = replace(plain_engine(), **SCHEDULERS[scheduler])
    return MeasuredLoad(Deployment(batch, Pool(batch, engine), None), _draw_requests(fields, load))


def _clients_or_rate(fields: Fields) -> Load:
    """Return the load of a row: so many clients, or so many requests a second."""
    inputs, outputs = fields.whole("isl"), fields.whole("osl")
    for name, value in (("isl", inputs), ("osl", outputs)):
        require(value <= LONGEST, name, value, f"must be at most {LONGEST:,}")
    require(outputs > 1, "osl", outputs, "must be at least 2: TPOT is of the tokens after the first")
    about = _share(fields) / sqrt(3)  # of a uniform distribution
    load = Load(isl=inputs, osl=outputs, isl_cv=about, osl_cv=about, concurrency=1)
    if fields.text("rate"):
        return replace(load, concurrency=None, rate=fields.number("rate"))
    clients, count = fields.whole("concurrency"), _count(fields)
    require(count % clients == 0, "requests", count, f"must be a multiple of the {clients} clients: all send as many")
    return replace(load, concurrency=clients, rounds=count // clients)


def _count(fields: Fields) -> int:
    count = fields.whole("requests")
    require(count <= MOST_REQUESTS, "requests", count, f"must be at most {MOST_REQUESTS:,}")
    return count


def _share(fields: Fields) -> float:
    """Return by how much lengths are spread, as a share of their mean."""
    text = fields.text("spread", "0")
    share = 0.0 if text in ("0", "0.0") else fields.number("spread") or 0.0
    require(share < 1, "spread", text, "must be below 1")
    return share


def _draw_requests(fields: Fields, load: Load) -> Requests:
    """Return the requests of a load as the engine's clients drew them."""
    count, share = _count(fields), _share(fields)
    random = np.random.default_rng(_or_zero(fields, "seed"))
    inputs, outputs = (
        random.integers(round(mean * (1 - share)), round(mean * (1 + share)), count, endpoint=True)
        for mean in (load.mean("isl"), load.mean("osl"))
    )
    arrivals = np.zeros(count) if load.rate is None else np.cumsum(random.exponential(1 / load.rate, count))
    return Requests(
        arrival_s=arrivals,
        input_tokens=inputs,
        output_tokens=outputs,
        kind=np.zeros(count, dtype=np.int64),
        cached_tokens=np.zeros(count, dtype=np.int64),
        classes=load.all_classes,
        concurrency=load.concurrency,
    )


# ---- designs


def plain_engine() -> Engine:
    """Return the engine of these rows."""
    return load_engine("plain")


def _design(fields: Fields) -> DesignPoint:
    """Return the model of a row on one GPU. Its attention kernels are of the generation of FlashAttention-2."""
    names = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab")
    sizes: dict[str, Any] = {name: fields.whole(name) for name in names}
    routed = None
    if fields.text("experts"):
        routed = Experts(count=fields.whole("experts"), active=fields.whole("top_k"), ffn=sizes["ffn"])
    model = Transformer(**sizes, gated=True, norm="rmsnorm", experts=routed)
    precision = fields.text("precision", "bf16")
    require(precision == "bf16", "precision", precision, "must be bf16")
    workload = Workload(task="decode", sequence=1, global_batch=1, sequence_parallel=False, attention="flash2")
    return build_machine(fields.text("accel", OWN_ACCELERATOR), 1).design(model, workload)
