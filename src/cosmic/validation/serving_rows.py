"""Measured serving: time to first token and per output token of engines, as aiconfigurator publishes them.

A row names engine, model, system, precision, mapping, lengths and concurrency, and gives two times: its verdicts are
``id:ttft`` and ``id:tpot``. What the columns mean, found by comparing rows:

- Rows that SemiAnalysis' InferenceMAX measured draw lengths from 0.8 to 1 times the stated ones, and send ten requests
  for each one in flight; the others (`FIXED`) state exact lengths.
- Where ``moe_tp × moe_ep`` is the square of a number of devices, and tp or attention_dp their product, the number was
  counted twice: ``tp 64, moe_tp 8, moe_ep 8`` are 8 devices (their ids say tp8 ep8, and their times are those of rows
  that say ``tp 8, moe_ep 8``). So are ``tp 4, attention_dp 4, moe_ep 16`` 4 devices.
- Where attention_dp is empty and experts lie on more devices than tp, attention is replicated on the rest. Where it is
  empty and ``batch_size`` is a part of the concurrency, there are that many replicas of the whole.
- Aggregated rows of a GB200 with more than 8 devices are the disaggregated runs of InferenceMAX, of which only the
  number of all devices is known: they are skipped. So are rows of mode disagg.
- InferenceMAX's recipes hold requests back: SGLang on Blackwell looks for new ones every 10 steps, every 30 from 16 in
  flight on; TensorRT-LLM waits for prompts on other replicas of attention for up to 60 steps and, with Llama 70B, 1024
  tokens each way and tp below 8, for up to 20 steps until there are many. Caches are in 16 bits for gpt-oss, and for
  SGLang on Hopper.
- TensorRT-LLM 1.2.0rc6.post3 is the image of InferenceMAX's recipes with multi-token prediction of DeepSeek-R1, its
  sibling post2 that of those without: `SPECULATION` tokens a step, fitted.

The package carries the middle one of every five aggregated rows, in the order of their ids.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from cosmic import catalog
from cosmic.design.batch import Batch
from cosmic.design.model import has_experts
from cosmic.design.point import DesignPoint
from cosmic.design.workload import Workload
from cosmic.errors import SpecError, UnknownName, require
from cosmic.loading.designs import read_model
from cosmic.serving import ENGINES, Deployment, Engine, Load, continuous_batching, deployment
from cosmic.validation.hardware import AICONFIGURATOR, machine
from cosmic.validation.rows import Fields, Row, Verdict
from cosmic.workload.checks import unfit

MODELS = {
    "deepseek-r1": "deepseek-v3",
    "deepseek-v3": "deepseek-v3",
    "deepseek-v3.1": "deepseek-v3",
    "glm-5": "glm-5",
    "gpt-oss-20b": "gpt-oss-20b",
    "gpt-oss-120b": "gpt-oss-120b",
    "kimi-k2": "kimi-k2",
    "kimi-k2.5": "kimi-k2.5",
    "llama-3.1-8b": "llama3-8b",
    "llama-3.1-70b": "llama3-70b",
    "llama-3.3-70b": "llama3-70b",
    "llama-3.1-405b": "llama3-405b",
    "minimax-m2.5": "minimax-m2.5",
    "qwen3-8b": "qwen3-8b",
    "qwen3-32b": "qwen3-32b",
    "qwen3-30b-a3b": "qwen3-30b-a3b",
    "qwen3-235b-a22b": "qwen3-235b-a22b",
    "qwen3.5-397b-a17b": "qwen3.5-397b-a17b",
}
"""What the catalog calls the models, by the last part of their path without its endings (see `model_name`)."""
ENDINGS = re.compile(r"-(instruct|fp8|fp4|nvfp4|mxfp4|bf16|int4|base|0528|v2)$")
"""What names of checkpoints say beside the model: how they were tuned and in which format they are."""
FIXED = "gap-analysis"
"""In the source of rows whose lengths are exact."""
SPREAD = 0.2
"""Of lengths, in the others."""
DRAFTING = ("trtllm", "1.2.0rc6.post3", "deepseek-v3")
"""Engine, version and model of recipes with multi-token prediction."""
SPECULATION = 1.51
"""Tokens that one of their steps yields for a request."""
POLLED = 0.229
"""Share of the steps between two looks for new requests that one waits on average."""
HELD = 0.591
"""Share of the steps for which prompts may be held back that one waits on average."""
IN_STEP = "0.5.1."
"""The version of SGLang under which clients with exact lengths keep in step, wave after wave, as an engine that
processes prompts first makes them; under later ones they do not."""
WIDEST = 8
"""Devices at most of a row that says it is aggregated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A row, understood."""

    row: Row
    id: str
    set: str
    design: DesignPoint
    engine: str
    concurrency: float
    prompt: float
    answer: float
    spread: float
    drafting: bool
    prompts_first: bool
    polling: float
    """Steps between two looks for new requests."""
    holding: float
    """Steps at most for which prompts are held back."""
    cache: float | None
    """Bytes of a number in the cache, where it is not as usual."""
    ttft_s: float
    tpot_s: float
    assumed: tuple[str, ...]

    @property
    def key(self) -> tuple[Any, ...]:
        """What rows must share to be worked out together."""
        point = self.design
        return (
            self.engine,
            point.model,
            point.workload.precision,
            point.compute,
            point.network,
            self.prompts_first,
            self.cache,
        )


def judge(rows: Sequence[Row]) -> list[Verdict]:
    """Return two verdicts for each row: of the first token, and of the further ones."""
    found: list[Verdict] = []
    read = [understood(row) for row in rows]
    times = iter(predict([each for each in read if isinstance(each, Served)]))
    for each in read:
        if isinstance(each, Verdict):
            found += [replace(each, id=f"{each.id}:{name}", set=f"{each.set} {name}") for name in ("ttft", "tpot")]
            continue
        ttft_s, tpot_s = next(times)
        found.append(_verdict(each, "ttft", each.ttft_s, ttft_s))
        found.append(_verdict(each, "tpot", each.tpot_s, tpot_s))
    return found


def _verdict(each: Served, name: str, measured_s: float, predicted_s: float) -> Verdict:
    row, workload = each.row, each.design.workload
    alike = ("backend", "model_path", "system", "isl", "osl", "concurrency")
    return Verdict(
        id=f"{each.id}:{name}",
        set=f"{each.set} {name}",
        row=row,
        measured_s=measured_s,
        predicted_s=predicted_s,
        assumed=each.assumed,
        group=(name, *(row.get(key, "") for key in alike), str(each.design.network.npus)),
        design=f"tp {workload.tp} dp {workload.dp} ep {workload.ep} {workload.precision}",
    )


def understood(row: Row) -> Served | Verdict:
    """Return a row as a deployment and its load, or why it cannot be."""
    mode = (row.get("mode") or "agg").strip()
    identity = (row.get("id") or "").strip()
    try:
        return _read(Fields(row), identity, mode)
    except SpecError as error:
        return Verdict(id=identity, set=f"serving {mode}", row=row, skipped=str(error))


# ---------------------------------------------------------------------------------------------- reading


def _read(cells: Fields, identity: str, mode: str) -> Served:
    require(mode == "agg", "mode", mode, "only aggregated serving is modelled")
    engine, name = cells.text("backend"), model_name(cells.text("model_path"))
    if engine not in ENGINES:
        raise UnknownName.among("backend", engine, "engine", list(ENGINES))
    if name not in MODELS:
        raise UnknownName.among("model_path", name, "model", list(MODELS))
    if cells.text("system") not in AICONFIGURATOR:
        raise UnknownName.among("system", cells.text("system"), "system", list(AICONFIGURATOR))
    workload, deployments = _mapping(cells)
    require(cells.whole("pp_size", 1) == 1, "pp_size", cells.text("pp_size"), "serving in stages is not modelled")
    model, version = MODELS[name], cells.text("backend_version")
    drafting, exact = (engine, version, model) == DRAFTING, FIXED in cells.text("silicon_data_source")
    if drafting:
        cells.assumed.append(f"speculation: {SPECULATION} tokens a step assumed, as the version's recipe drafts tokens")
    return Served(
        row=cells.row,
        id=identity,
        set=f"serving {mode}",
        design=_design(model, AICONFIGURATOR[cells.text("system")], workload),
        engine=engine,
        concurrency=(cells.number("concurrency") or _missing("concurrency")) / deployments,
        prompt=cells.number("isl") or _missing("isl"),
        answer=cells.number("osl") or _missing("osl"),
        spread=0.0 if exact else SPREAD,
        drafting=drafting,
        **_recipe(cells, engine, model, workload),
        prompts_first=ENGINES[engine].prompts_first and (not exact or version.startswith(IN_STEP)),
        ttft_s=cells.seconds("silicon_ttft_ms", 1e-3),
        tpot_s=cells.seconds("silicon_tpot_ms", 1e-3),
        assumed=tuple(cells.assumed),
    )


def model_name(path: str) -> str:
    """Return the name of a model, given the path of a checkpoint.

    >>> model_name("nvidia/Llama-3.1-8B-Instruct-FP8"), model_name("Qwen/Qwen3.5-397B-A17B")
    ('llama-3.1-8b', 'qwen3.5-397b-a17b')
    """
    name = path.rsplit("/", 1)[-1].lower()
    while (shorter := ENDINGS.sub("", name)) != name:
        name = shorter
    return name


def _recipe(cells: Fields, engine: str, model: str, workload: Workload) -> dict[str, Any]:
    """Return the settings of InferenceMAX's recipes that hold requests back, and those of the cache."""
    drawn = FIXED not in cells.text("silicon_data_source")
    hopper = cells.text("system").startswith("h")
    polling = holding = 0.0
    if engine == "sglang" and drawn and not hopper:
        polling = 30.0 if (cells.number("concurrency") or 0) >= 16 else 10.0
    if engine == "trtllm" and workload.dp > 1:
        holding = 60.0
    elif engine == "trtllm" and drawn and model == "llama3-70b" and workload.tp < 8:
        holding = 20.0 if cells.text("isl") == cells.text("osl") == "1024" else 0.0
    wide = model == "gpt-oss-120b" or (engine == "sglang" and hopper)
    return {"polling": polling, "holding": holding, "cache": 2.0 if wide else None}


def _missing(name: str) -> float:
    raise SpecError(name, "", "is not given")


def _count(cells: Fields, name: str) -> int:
    """Return a degree of parallelism: 1 where it is empty or 0."""
    return 1 if cells.text(name) in ("", "0", "0.0") else cells.whole(name)


def _mapping(cells: Fields) -> tuple[Workload, float]:
    """Return the mapping of one deployment, and how many deployments there are."""
    tp, replicas = _count(cells, "tp_size"), _count(cells, "attention_dp_size")
    expert_tp, ep = _count(cells, "moe_tp_size"), _count(cells, "moe_ep_size")
    stated = cells.text("attention_dp_size") not in ("", "0", "0.0")
    deployments = 1.0
    if stated and expert_tp == ep > 1 and max(tp, replicas) == ep * ep:
        tp, replicas = (1, ep) if replicas > 1 else (ep, 1)
        cells.assumed.append(f"devices: {ep} assumed, counted twice")
    elif tp == replicas > 1 and ep == tp * replicas:
        tp, replicas, ep = 1, tp, tp
        cells.assumed.append(f"devices: {ep} assumed, counted twice")
    elif not stated and expert_tp * ep > tp and ep * expert_tp % tp == 0:
        replicas = cells.assume("attention_dp", expert_tp * ep // tp, "to fill the experts' devices")
    elif not stated and (batch := cells.number("batch_size")) and batch < (cells.number("concurrency") or 0):
        deployments = cells.assume("deployments", (cells.number("concurrency") or 0) / batch, "of one batch each")
    devices = tp * replicas
    require(devices <= WIDEST, "tp_size", cells.text("tp_size"), "disaggregated, of which the parts are not given")
    experts = replicas if expert_tp * ep >= replicas else 1
    precision = {"": "bf16"}.get(cells.text("precision"), cells.text("precision"))
    if not cells.text("precision"):
        cells.assume("precision", precision)
    require(precision in ("bf16", "fp8", "fp4", "int4"), "precision", precision, "no such precision")
    sizes = {"sequence": 1, "global_batch": replicas, "tp": tp, "dp": replicas, "ep": experts}
    return Workload(task="decode", precision=precision, sequence_parallel=False, **sizes), deployments  # type: ignore[arg-type]


@cache
def _design(model: str, accelerator: str, workload: Workload) -> DesignPoint:
    entry = catalog.entry("models", model)
    read = read_model(entry, model)
    if not has_experts(read):
        workload = replace(workload, ep=1)
    hardware = machine(accelerator, workload.tp * workload.dp)
    point = hardware.design(read, workload)
    if reasons := unfit(point):
        raise SpecError("mapping", f"tp {workload.tp} dp {workload.dp} ep {workload.ep}", reasons[0])
    return point


# ------------------------------------------------------------------------------------------- predicting


def predict(served: Sequence[Served]) -> list[tuple[float, float]]:
    """Return the times to first token and per output token that are predicted of rows."""
    found: dict[int, tuple[float, float]] = {}
    for part in deployments(served):
        seen = continuous_batching(part.given, part.load, part.engine, part.speculation)
        times = np.stack(np.broadcast_arrays(seen.ttft_s, seen.tpot_s), axis=1)
        found |= {
            place: (float(first), float(further)) for place, (first, further) in zip(part.places, times, strict=True)
        }
    return [found[place] for place in range(len(served))]


@dataclass(frozen=True, slots=True)
class Part:
    """Rows that are worked out together, and where they stand among all."""

    places: list[int]
    given: Deployment
    load: Load
    engine: Engine
    speculation: Any


def deployments(served: Sequence[Served]) -> list[Part]:
    """Return what rows have to do, in parts that share engine, model, precision and machine."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for place, each in enumerate(served):
        groups.setdefault(each.key, []).append(place)
    return [_part(places, [served[place] for place in places]) for places in groups.values()]


def _part(places: list[int], members: Sequence[Served]) -> Part:
    first = members[0]
    load = Load(**{name: column(members, name) for name in ("concurrency", "prompt", "answer", "spread")})
    hold = POLLED * column(members, "polling") + HELD * column(members, "holding")
    engine = replace(ENGINES[first.engine], prompts_first=first.prompts_first, cache=first.cache, hold_steps=hold)
    degrees = {
        f"workload.{name}": np.array([getattr(each.design.workload, name) for each in members])
        for name in ("tp", "dp", "ep")
    }
    given = deployment(Batch(first.design, degrees), load, engine)
    return Part(places, given, load, engine, np.where(column(members, "drafting") > 0, SPECULATION, 1.0))


def column(members: Sequence[Served], name: str) -> Any:
    """Return one figure of several rows."""
    return np.array([getattr(each, name) for each in members], dtype=float)
