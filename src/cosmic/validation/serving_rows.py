"""Measured serving: TTFT and TPOT of engines, as aiconfigurator publishes them.

A row names engine, model, system, precision, mapping, ISL, OSL and concurrency, and gives two times: its verdicts are
``id:ttft`` and ``id:tpot``. Comparing rows shows what the columns mean:

- SemiAnalysis' InferenceMAX draws lengths from 0.8 to 1 times the stated ISL and OSL, and sends ten requests for each
  one in flight. The other rows (`FIXED`) state exact lengths.
- Some rows count their GPUs twice: ``moe_tp × moe_ep`` is the square of the number, and tp or attention_dp is that
  product. ``tp 64, moe_tp 8, moe_ep 8`` are 8 GPUs (the id says tp8 ep8, and the times equal those of rows that say
  ``tp 8, moe_ep 8``). ``tp 4, attention_dp 4, moe_ep 16`` are 4 GPUs.
- Where attention_dp is empty and experts lie on more GPUs than tp, attention is replicated on the rest. Where it is
  empty and ``batch_size`` is below the concurrency, there are several deployments of one batch each.
- Aggregated rows of a GB200 with more than 8 GPUs are InferenceMAX's disaggregated runs, which give only the total
  number of GPUs: they are skipped. So are rows of mode disagg.
- InferenceMAX's recipes hold requests back. SGLang on Blackwell polls for new ones every 10 steps, every 30 from 16 in
  flight on. TensorRT-LLM waits for prefills on other replicas of attention for up to 60 steps and, with Llama 70B, ISL
  and OSL 1024 and tp below 8, for up to 20 steps to batch prefills. KV caches are in 16 bits for gpt-oss, and for
  SGLang on Hopper.
- TensorRT-LLM 1.2.0rc6.post3 is the image of InferenceMAX's recipes with multi-token prediction of DeepSeek-R1, post2
  that of the recipes without.

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
from cosmic.catalog.engines import load_engine
from cosmic.design import schema
from cosmic.design.batch import Batch
from cosmic.design.engine import Engine
from cosmic.design.model import is_moe
from cosmic.design.point import DesignPoint
from cosmic.design.workload import Workload
from cosmic.errors import SpecError, UnknownName, require
from cosmic.loading.designs import read_model
from cosmic.serving import Deployment, RequestLoad, continuous_batching, deployment
from cosmic.validation.hardware import AICONFIGURATOR, machine
from cosmic.validation.rows import Fields, Row, Verdict
from cosmic.workload.checks import invalid_reasons

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
"""Models of the catalog, by the last part of a checkpoint's path without its endings (see `model_name`)."""
ENDINGS = re.compile(r"-(instruct|fp8|fp4|nvfp4|mxfp4|bf16|int4|base|0528|v2)$")
"""Endings of a checkpoint's name that say its tuning and format."""
FIXED = "gap-analysis"
"""Marks the source of rows with exact lengths."""
SPREAD = 0.2
"""Spread of the lengths in other rows."""
DRAFTING = ("trtllm", "1.2.0rc6.post3", "deepseek-v3")
"""Engine, version and model of recipes with multi-token prediction."""
IN_STEP = "0.5.1."
"""The version of SGLang under which clients with exact lengths stay in step, as under any engine that prefills first.
Under later versions they do not."""
WIDEST = 8
"""Most GPUs of a row that is really aggregated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipes:
    """Effects of InferenceMAX's recipes, fitted with the engines."""

    tokens_per_step: float
    """Tokens per step and request with multi-token prediction."""
    polled: float
    """Mean wait for a poll, over the steps between two polls."""
    held: float
    """Mean wait of a prefill that is held back, over the most steps that it may be."""


@cache
def recipes() -> Recipes:
    """Return what was fitted of the recipes."""
    entry = catalog.load_mapping(catalog.FOLDER / "serving_recipes.yaml")
    found: Recipes = schema.read(Recipes, entry["recipes"], "serving_recipes.yaml recipes")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A row as a deployment and its load."""

    row: Row
    id: str
    set: str
    design: DesignPoint
    engine: str
    concurrency: float
    isl: float
    osl: float
    spread: float
    drafting: bool
    prefill_first: bool
    polling: float
    """Steps between two polls for new requests."""
    holding: float
    """Most steps for which prefills are held back."""
    kv_element_bytes: float | None
    """Bytes of a number in the KV cache, where not as usual."""
    ttft_s: float
    tpot_s: float
    assumed: tuple[str, ...]

    @property
    def key(self) -> tuple[Any, ...]:
        """What rows must share to be predicted in one batch."""
        point = self.design
        return (
            self.engine,
            point.model,
            point.workload.precision,
            point.compute,
            point.network,
            self.prefill_first,
            self.kv_element_bytes,
        )


def judge(rows: Sequence[Row]) -> list[Verdict]:
    """Return two verdicts for each row: TTFT and TPOT."""
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
    """Return a row as a deployment and its load, or a verdict that says why it is skipped."""
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
    if engine not in catalog.names("engines"):
        raise UnknownName.among("backend", engine, "engine", catalog.names("engines"))
    if name not in MODELS:
        raise UnknownName.among("model_path", name, "model", list(MODELS))
    if cells.text("system") not in AICONFIGURATOR:
        raise UnknownName.among("system", cells.text("system"), "system", list(AICONFIGURATOR))
    workload, deployments = _mapping(cells)
    stages = cells.text("pp_size")
    require(cells.whole("pp_size", 1) == 1, "pp_size", stages, "serving with pipeline stages is not modelled")
    model, version = MODELS[name], cells.text("backend_version")
    drafting, exact = (engine, version, model) == DRAFTING, FIXED in cells.text("silicon_data_source")
    if drafting:
        tokens = recipes().tokens_per_step
        cells.assumed.append(f"speculation: {tokens} tokens a step assumed, as the version's recipe drafts tokens")
    return Served(
        row=cells.row,
        id=identity,
        set=f"serving {mode}",
        design=_design(model, AICONFIGURATOR[cells.text("system")], workload),
        engine=engine,
        concurrency=cells.whole("concurrency") / deployments,
        isl=cells.whole("isl"),
        osl=cells.whole("osl"),
        spread=0.0 if exact else SPREAD,
        drafting=drafting,
        **_recipe(cells, engine, model, workload),
        prefill_first=load_engine(engine).prefill_first and (not exact or version.startswith(IN_STEP)),
        ttft_s=cells.seconds("silicon_ttft_ms", 1e-3),
        tpot_s=cells.seconds("silicon_tpot_ms", 1e-3),
        assumed=tuple(cells.assumed),
    )


def model_name(path: str) -> str:
    """Return the model's name, given the path of a checkpoint.

    >>> model_name("nvidia/Llama-3.1-8B-Instruct-FP8"), model_name("Qwen/Qwen3.5-397B-A17B")
    ('llama-3.1-8b', 'qwen3.5-397b-a17b')
    """
    name = path.rsplit("/", 1)[-1].lower()
    while (shorter := ENDINGS.sub("", name)) != name:
        name = shorter
    return name


def _recipe(cells: Fields, engine: str, model: str, workload: Workload) -> dict[str, Any]:
    """Return how InferenceMAX's recipe holds requests back, and its KV cache."""
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
    return {"polling": polling, "holding": holding, "kv_element_bytes": 2.0 if wide else None}


def _count(cells: Fields, name: str) -> int:
    """Return a degree of parallelism; an empty cell or 0 is 1."""
    return 1 if cells.text(name) in ("", "0", "0.0") else cells.whole(name)


def _mapping(cells: Fields) -> tuple[Workload, float]:
    """Return the mapping of one deployment, and the number of deployments."""
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
    elif not stated and cells.text("batch_size") and (batch := cells.whole("batch_size")) < cells.whole("concurrency"):
        deployments = cells.assume("deployments", cells.whole("concurrency") / batch, "of one batch each")
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
    if not is_moe(read):
        workload = replace(workload, ep=1)
    hardware = machine(accelerator, workload.tp * workload.dp)
    point = hardware.design(read, workload)
    if reasons := invalid_reasons(point):
        raise SpecError("mapping", f"tp {workload.tp} dp {workload.dp} ep {workload.ep}", reasons[0])
    return point


# ------------------------------------------------------------------------------------------- predicting


def predict(served: Sequence[Served]) -> list[tuple[float, float]]:
    """Return the predicted TTFT and TPOT of each row."""
    found: dict[int, tuple[float, float]] = {}
    for group in deployments(served):
        seen = continuous_batching(group.given, group.load, group.engine, group.tokens_per_step)
        times = np.stack(np.broadcast_arrays(seen.ttft_s, seen.tpot_s), axis=1)
        found |= {
            place: (float(first), float(further)) for place, (first, further) in zip(group.places, times, strict=True)
        }
    return [found[place] for place in range(len(served))]


@dataclass(frozen=True, slots=True)
class Group:
    """Rows that are predicted in one batch, and their places among all."""

    places: list[int]
    given: Deployment
    load: RequestLoad
    engine: Engine
    tokens_per_step: Any


def deployments(served: Sequence[Served]) -> list[Group]:
    """Return the deployments of rows, grouped by engine, model, precision and machine."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for place, each in enumerate(served):
        groups.setdefault(each.key, []).append(place)
    return [_group(places, [served[place] for place in places]) for places in groups.values()]


def _group(places: list[int], members: Sequence[Served]) -> Group:
    first = members[0]
    load = RequestLoad(**{name: column(members, name) for name in ("concurrency", "isl", "osl", "spread")})
    fitted = recipes()
    hold = fitted.polled * column(members, "polling") + fitted.held * column(members, "holding")
    engine = replace(
        load_engine(first.engine),
        prefill_first=first.prefill_first,
        kv_element_bytes=first.kv_element_bytes,
        hold_steps=hold,
    )
    degrees = {
        f"workload.{name}": np.array([getattr(each.design.workload, name) for each in members])
        for name in ("tp", "dp", "ep")
    }
    given = deployment(Batch(first.design, degrees), load, engine)
    tokens = np.where(column(members, "drafting") > 0, fitted.tokens_per_step, 1.0)
    return Group(places, given, load, engine, tokens)


def column(members: Sequence[Served], name: str) -> Any:
    """Return one field of all *members*."""
    return np.array([getattr(each, name) for each in members], dtype=float)
