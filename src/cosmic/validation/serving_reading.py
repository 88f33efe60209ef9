"""Published serving rows as deployments and their loads: what the columns mean.

A row names engine, model, system, precision, mapping, ISL, OSL and concurrency. `cosmic.validation.serving_mappings`
says what its mapping means, `cosmic.validation.serving_recipes` how its engine was set.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from cosmic import catalog
from cosmic.catalog.engines import load_engine
from cosmic.design.model import Transformer, is_moe
from cosmic.design.point import DesignPoint
from cosmic.design.workload import Workload
from cosmic.errors import SpecError, UnknownName, require
from cosmic.loading.designs import read_model
from cosmic.validation.hardware import AICONFIGURATOR, machine
from cosmic.validation.rows import Fields, Row, Verdict
from cosmic.validation.serving_mappings import Mapping, deployments, in_flight, is_split, mapping, pools
from cosmic.validation.serving_recipes import FIXED, Instances, Recipe, Setting, Split, recipe_of
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
SPREAD = 0.2
"""Spread of the lengths in rows that do not state them exactly."""
IN_STEP = "0.5.1."
"""The version of SGLang under which clients with exact lengths stay in step, as under any engine that prefills first.
Under later versions they do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What every row has: its engine, load and times."""

    row: Row
    id: str
    set: str
    engine: str
    concurrency: float
    isl: float
    osl: float
    spread: float
    recipe: Recipe
    ttft_s: float
    tpot_s: float
    assumed: tuple[str, ...]

    @property
    def drafting(self) -> bool:
        """Whether tokens are drafted."""
        return self.recipe.drafts > 0

    @property
    def kv_element_bytes(self) -> float | None:
        """Bytes of a number in the KV cache, where not as usual."""
        return self.recipe.kv_bits / 8 if self.recipe.kv_bits else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Served(Measured):
    """A row as a deployment of one pool; its concurrency is that of one instance."""

    design: DesignPoint
    prefill_first: bool

    @property
    def polling(self) -> float:
        """Steps between two polls for new requests."""
        return float(self.recipe.poll_steps)

    @property
    def holding(self) -> float:
        """Most steps for which prefills are held back."""
        return float(self.recipe.hold_steps)

    @property
    def seats(self) -> float:
        """Most requests that an instance runs at once."""
        return (self.recipe.max_running or float("inf")) * self.design.workload.dp

    @property
    def cold_s(self) -> float:
        """For which the first request of each client waits longer."""
        return self.recipe.cold_s

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

    @property
    def shown(self) -> str:
        """The mapping in words."""
        workload = self.design.workload
        return f"tp {workload.tp} dp {workload.dp} ep {workload.ep} {workload.precision}"

    @property
    def npus(self) -> int:
        """GPUs of one instance."""
        return int(self.design.network.npus)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedPools(Measured):
    """A row as a deployment of two pools."""

    split: Split
    prefill: DesignPoint
    """One instance that prefills."""
    decode: DesignPoint
    """One instance that decodes."""

    @property
    def shown(self) -> str:
        """The mapping in words."""
        parts = (self.split.prefill, self.split.decode)
        return " + ".join(f"{each.count} x (tp {each.tp} dp {each.dp})" for each in parts)

    @property
    def npus(self) -> int:
        """GPUs of both pools."""
        return self.split.npus

    @property
    def room(self) -> int:
        """Prompts of a rank that a step of the prefill pool has room for."""
        return max(1, int((self.recipe.chunk(int(self.isl)) or 0) // self.isl))

    @property
    def slots(self) -> float:
        """Most requests that decode at once; infinite if nothing is known of a limit."""
        ranks = self.split.decode.count * self.split.decode.dp
        return self.split.batch * ranks if self.split.batch else float("inf")


def understood(row: Row) -> Served | ServedPools | Verdict:
    """Return a row as a deployment and its load, or a verdict that says why it is skipped."""
    mode = (row.get("mode") or "agg").strip()
    identity = (row.get("id") or "").strip()
    try:
        require(mode in ("agg", "disagg"), "mode", mode, "must be agg or disagg")
        return _read(Fields(row), identity, mode)
    except SpecError as error:
        return Verdict(id=identity, set=f"serving {mode}", row=row, skipped=str(error))


def _read(cells: Fields, identity: str, mode: str) -> Served | ServedPools:
    engine, name = cells.text("backend"), model_name(cells.text("model_path"))
    if engine not in catalog.names("engines"):
        raise UnknownName.among("backend", engine, "engine", catalog.names("engines"))
    if name not in MODELS:
        raise UnknownName.among("model_path", name, "model", list(MODELS))
    if cells.text("system") not in AICONFIGURATOR:
        raise UnknownName.among("system", cells.text("system"), "system", list(AICONFIGURATOR))
    exact = FIXED in cells.text("silicon_data_source")
    setting = Setting(
        engine=engine,
        version=cells.text("backend_version"),
        model=MODELS[name],
        system=cells.text("system"),
        precision=_precision(cells),
        isl=cells.whole("isl"),
        osl=cells.whole("osl"),
        concurrency=in_flight(cells, mode),
        source=cells.text("silicon_data_source"),
    )
    known: dict[str, Any] = {
        "row": cells.row,
        "id": identity,
        "set": f"serving {mode}",
        "engine": engine,
        "isl": setting.isl,
        "osl": setting.osl,
        "spread": 0.0 if exact else SPREAD,
        "ttft_s": cells.seconds("silicon_ttft_ms", 1e-3),
        "tpot_s": cells.seconds("silicon_tpot_ms", 1e-3),
    }
    if mode == "disagg" or is_split(cells):
        return _of_pools(cells, setting, known)
    return _of_one_pool(cells, setting, known, exact)


def _of_one_pool(cells: Fields, setting: Setting, known: dict[str, Any], exact: bool) -> Served:
    require(cells.whole("pp_size", 1) == 1, "pp_size", cells.text("pp_size"), "serving in stages is not modelled")
    found = mapping(cells, setting.engine)
    setting = replace(setting, tp=found.tp, dp=found.dp, spread_experts=found.spread_experts)
    recipe = recipe_of(setting)
    design = _design(setting.model, AICONFIGURATOR[setting.system], _workload(found, setting.precision, recipe))
    clients = setting.concurrency / deployments(cells, setting.concurrency)
    if recipe.in_flight:
        clients = cells.assume("concurrency", float(recipe.in_flight), "as the recipe of the run has it")
    _note_drafts(cells, recipe.drafts)
    return Served(
        **known,
        design=design,
        concurrency=clients,
        recipe=recipe,
        prefill_first=load_engine(setting.engine).prefill_first and (not exact or setting.version.startswith(IN_STEP)),
        assumed=tuple(cells.assumed),
    )


def _of_pools(cells: Fields, setting: Setting, known: dict[str, Any]) -> ServedPools:
    for name in ("pp_size", "prefill_pp_size", "decode_pp_size"):
        require(cells.whole(name, 1) == 1, name, cells.text(name), "serving in stages is not modelled")
    split = pools(cells, setting)
    setting = replace(setting, split=True, tp=split.prefill.tp, dp=split.prefill.dp)
    recipe = replace(recipe_of(setting), drafts=split.drafts, max_running=split.batch)
    _note_drafts(cells, recipe.drafts)
    accelerator = AICONFIGURATOR[setting.system]
    parts = {
        name: _design(setting.model, accelerator, _workload(_one(part), setting.precision, recipe))
        for name, part in (("prefill", split.prefill), ("decode", split.decode))
    }
    return ServedPools(
        **known,
        prefill=parts["prefill"],
        decode=parts["decode"],
        split=split,
        concurrency=setting.concurrency,
        recipe=recipe,
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


def _precision(cells: Fields) -> str:
    found = cells.text("precision")
    if not found:
        return str(cells.assume("precision", "bf16"))
    require(found in ("bf16", "fp8", "fp4", "int4"), "precision", found, "no such precision")
    return found


def _note_drafts(cells: Fields, drafts: int) -> None:
    if drafts:
        cells.assumed.append(f"speculation: {drafts} drafted tokens a step assumed, as the recipe of the run has it")


def _one(part: Instances) -> Mapping:
    return Mapping(tp=part.tp, dp=part.dp, ep=part.dp)


def _workload(found: Mapping, precision: str, recipe: Recipe) -> Workload:
    sizes: dict[str, Any] = {"sequence": 1, "global_batch": found.dp, "tp": found.tp, "dp": found.dp, "ep": found.ep}
    sizes["cache_dtype"] = {16: "bf16", 8: "fp8", None: "auto"}[recipe.kv_bits]
    return Workload(task="decode", precision=precision, sequence_parallel=False, **sizes)  # type: ignore[arg-type]


@cache
def _design(model: str, accelerator: str, workload: Workload) -> DesignPoint:
    entry = catalog.entry("models", model)
    read = read_model(entry, model)
    if not is_moe(read):
        workload = replace(workload, ep=1)
    elif isinstance(read, Transformer) and read.experts and read.experts.count % workload.ep:
        copies = -read.experts.count % workload.ep  # experts that are held twice, to spread them evenly
        read = replace(read, experts=replace(read.experts, count=read.experts.count + copies))
    hardware = machine(accelerator, workload.tp * workload.dp)
    point = hardware.design(read, workload)
    if reasons := invalid_reasons(point):
        raise SpecError("mapping", f"tp {workload.tp} dp {workload.dp} ep {workload.ep}", reasons[0])
    return point
