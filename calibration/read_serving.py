"""Read the columns of aiconfigurator's serving rows: ``python calibration/read_serving.py [FILE …]``.

What their mapping means was found by comparing rows, and how their engines were set is documented practice, by columns
of a row (``calibration/data/serving_recipes.yaml``). This script writes both into columns that
`cosmic.accuracy.rows.serving_rows` reads as they stand. Without a file, those that the package carries are read.

- Some rows count their GPUs twice: ``moe_tp × moe_ep`` is the square of the number, and tp or attention_dp is that
  product. ``tp 64, moe_tp 8, moe_ep 8`` are 8 GPUs (the id says tp8 ep8, and the times equal those of rows that say
  ``tp 8, moe_ep 8``). ``tp 4, attention_dp 4, moe_ep 16`` are 4 GPUs: under vLLM with tensor parallelism (the times
  equal those of rows that say ``tp 4, moe_ep 4``; its recipes replicate attention from 1,024 requests in flight on).
- Where attention_dp is empty and experts lie on more GPUs than tp, attention is replicated on the rest. Where it is
  empty and ``batch_size`` is below the concurrency, there are several deployments of one batch each.
- Aggregated rows with more GPUs than a node has are InferenceMAX's disaggregated runs: tp is the number of all GPUs.
- In disaggregated rows ``decode_batch_size`` is of a rank of attention: with the ranks and instances it gives the
  concurrency where that is empty. It is no limit: that is in the recipes. Where no recipe is known, TensorRT-LLM's are
  the next power of two below the requests of a rank.

Of the recipes' practice every entry that fits a row sets what it names, a later one overrides. Its pools say how
disaggregated runs were split into instances, where a row does not, and how many requests an instance decodes at once.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from math import log2
from pathlib import Path
from typing import Any

from read_words import write_columns

from cosmic.accuracy.measured_rows import CARRIED, Fields, Row
from cosmic.accuracy.rows.serving_rows import EngineSettings, Instances
from cosmic.base.errors import UnknownName, require
from cosmic.design import catalog_entries
from cosmic.design.measured_hardware import AICONFIGURATOR
from cosmic.design.serving_engine import load_engine

FILES = ("serving.csv", "serving_pools.csv")
RECIPES = Path(__file__).parent / "data" / "serving_recipes.yaml"
NONE = ("", "0", "0.0")


def main(paths: Sequence[str]) -> None:
    """Read tables, and write their columns."""
    for path in [Path(path) for path in paths] or [CARRIED / name for name in FILES]:
        path.write_text(with_columns(path.read_text(encoding="utf-8")), encoding="utf-8")


def with_columns(table: str) -> str:
    """Return a table of serving runs with the columns that are read from it."""
    return write_columns(table, READ, columns_of)


READ = (
    *("catalog_model", "clients", "spread", "tp", "dp", "ep", "prefill", "decode", "slots", "chunk_tokens"),
    *("max_running", "kv_bits", "memory_fraction", "poll_steps", "hold_steps", "drafts", "eager", "cold_s"),
    *("in_step", "assumed"),
)
"""Columns that are read from the others."""


def columns_of(row: Row) -> dict[str, str]:
    """Return how the deployment of a row was mapped and set."""
    cells, mode = Fields(row), (row.get("mode") or "agg").strip()
    name = model_name(cells.text("model_path"))
    if name not in MODELS:
        raise UnknownName.among("model_path", name, "model", list(MODELS))
    if cells.text("system") not in AICONFIGURATOR:
        raise UnknownName.among("system", cells.text("system"), "system", list(AICONFIGURATOR))
    setting = Setting(
        engine=cells.text("backend"),
        version=cells.text("backend_version"),
        model=MODELS[name],
        system=cells.text("system"),
        precision=cells.text("precision", "bf16"),
        isl=cells.whole("isl"),
        osl=cells.whole("osl"),
        concurrency=in_flight(cells, mode),
        source=cells.text("silicon_data_source"),
    )
    exact = setting.client == "exact"
    columns = {"catalog_model": setting.model, "spread": "" if exact else str(SPREAD)}
    split = mode == "disagg" or is_split(cells)
    columns |= _of_pools(cells, setting) if split else _of_one_pool(cells, setting, exact)
    if columns.get("drafts"):
        recipe = "drafted tokens a step assumed, as the recipe of the run has it"
        cells.assumed.append(f"speculation: {columns['drafts']} {recipe}")
    return {**columns, "assumed": " | ".join(cells.assumed)}


def _of_one_pool(cells: Fields, setting: Setting, exact: bool) -> dict[str, str]:
    require(cells.whole("pp_size", 1) == 1, "pp_size", cells.text("pp_size"), "serving in stages is not modelled")
    mapping = mapping_of_row(cells, setting.engine)
    setting = replace(setting, tp=mapping.tp, dp=mapping.dp, spread_experts=mapping.spread_experts)
    recipe = recipe_of(setting)
    clients = setting.concurrency / deployments(cells, setting.concurrency)
    if recipe.in_flight:
        clients = cells.assume("concurrency", float(recipe.in_flight), "as the recipe of the run has it")
    in_step = load_engine(setting.engine).prefill_first and (not exact or setting.version.startswith(IN_STEP))
    mapped = {"clients": f"{clients:g}", "tp": str(mapping.tp), "dp": str(mapping.dp), "ep": str(mapping.ep)}
    return {**mapped, "in_step": str(in_step).lower(), **_recipe_columns(recipe, setting.isl)}


def _of_pools(cells: Fields, setting: Setting) -> dict[str, str]:
    for name in ("pp_size", "prefill_pp_size", "decode_pp_size"):
        require(cells.whole(name, 1) == 1, name, cells.text(name), "serving in stages is not modelled")
    split = pools_of_row(cells, setting)
    setting = replace(setting, split=True, tp=split.prefill.tp, dp=split.prefill.dp)
    recipe = replace(recipe_of(setting), drafts=split.drafts, max_running=None)
    pools = {"prefill": str(split.prefill), "decode": str(split.decode), "slots": str(split.batch or "")}
    return {"clients": f"{setting.concurrency:g}", **pools, **_recipe_columns(recipe, setting.isl)}


def _recipe_columns(recipe: EngineRecipe, isl: int) -> dict[str, str]:
    """Return what a recipe sets, by the columns of its names; what is as usual is left out."""
    settings = EngineSettings(
        chunk_tokens=recipe.chunk(isl),
        **{field.name: getattr(recipe, field.name) for field in fields(EngineSettings)[1:]},
    )
    stated = {field.name: getattr(settings, field.name) for field in fields(settings)}
    return {
        name: str(value).lower()
        if isinstance(value, bool)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
        for name, value in stated.items()
        if value
    }


# ---- what a row's columns mean

WIDEST = 8
"""Most GPUs of a row that is really aggregated."""
REPLICATED_FROM = 1024
"""Requests in flight from which vLLM's recipes replicate attention, where a row leaves open if they do."""
PREFILLING = {"fp4": 4, "fp8": 8}
"""GPUs of an instance that prefills, where a row does not say it: what holds the largest models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceMapping:
    """The mapping of one instance."""

    tp: int = 1
    dp: int = 1
    """Ranks of attention data parallelism."""
    ep: int = 1
    """Ranks over which experts are spread. Those of attention, if any: where tp spreads or splits them prices alike."""
    spread_experts: bool = False
    """Whether the row says that experts lie on several GPUs, whole."""


def is_split(cells: Fields) -> bool:
    """Return whether an aggregated row is of a disaggregated run."""
    counted_twice = _count(cells, "moe_tp_size") == _count(cells, "moe_ep_size") > 1
    return _count(cells, "tp_size") > WIDEST and not counted_twice


def in_flight(cells: Fields, mode: str) -> float:
    """Return the requests in flight; where a row does not say them, those of the batches that it says."""
    if cells.text("concurrency"):
        return cells.whole("concurrency")
    if mode == "agg":
        batch, ranks = cells.whole("batch_size"), _count(cells, "attention_dp_size")
        return float(cells.assume("concurrency", batch * ranks, "a batch for each rank of attention"))
    batch, ranks = cells.whole("decode_batch_size"), _count(cells, "decode_attention_dp_size")
    requests = batch * ranks * _count(cells, "decode_num_workers")
    return float(cells.assume("concurrency", requests, "a batch for each rank of attention that decodes"))


def deployments(cells: Fields, concurrency: float) -> float:
    """Return the number of deployments that share the requests of a row."""
    if cells.text("attention_dp_size") not in NONE or not cells.text("batch_size") or _replicated(cells):
        return 1.0
    batch = cells.whole("batch_size")
    if batch >= concurrency:
        return 1.0
    return float(cells.assume("deployments", concurrency / batch, "of one batch each"))


def mapping_of_row(cells: Fields, engine: str) -> InstanceMapping:
    """Return the mapping of one deployment of an aggregated row."""
    tp, dp = _count(cells, "tp_size"), _count(cells, "attention_dp_size")
    expert_tp, ep = _count(cells, "moe_tp_size"), _count(cells, "moe_ep_size")
    has_attention_dp = cells.text("attention_dp_size") not in NONE
    if has_attention_dp and expert_tp == ep > 1 and max(tp, dp) == ep * ep:
        tp, dp = (1, ep) if dp > 1 else (ep, 1)
        cells.assumed.append(f"devices: {ep} assumed, counted twice")
    elif tp == dp > 1 and ep == tp * dp:
        split = engine == "vllm" and (cells.number("concurrency") or 0) < REPLICATED_FROM
        tp, dp, ep = (tp, 1, tp) if split else (1, tp, tp)
        cells.assumed.append(f"devices: {ep} assumed, counted twice")
    elif (replicas := _replicated(cells)) > 1:
        dp = cells.assume("attention_dp", replicas, "to fill the experts' devices")
    return InstanceMapping(tp=tp, dp=dp, ep=dp if expert_tp * ep >= dp else 1, spread_experts=ep > 1)


def _replicated(cells: Fields) -> int:
    """Return the ranks of attention that a row without their number needs for its experts; 0 if none."""
    spread = _count(cells, "moe_tp_size") * _count(cells, "moe_ep_size")
    tp = _count(cells, "tp_size")
    if cells.text("attention_dp_size") not in NONE or spread <= tp or spread % tp:
        return 0
    return spread // tp


# ---- pools


def pools_of_row(cells: Fields, setting: Setting) -> Split:
    """Return how a disaggregated row is split: as it says, else as the recipe of the run has it."""
    if cells.text("mode") != "disagg":
        return _split_of_all(cells, setting, _count(cells, "tp_size"))
    for name in ("prefill", "decode"):
        is_stated = any(cells.text(f"{name}_{part}") for part in ("tp_size", "attention_dp_size"))
        require(is_stated, f"{name}_tp_size", "", "is not given")
    if cells.text("decode_num_workers"):
        return _split_of_row(cells, setting)
    width, prefill = _width(cells, "decode"), _width(cells, "prefill")
    if width == prefill > WIDEST:
        return _split_of_all(cells, setting, width)
    return _split_of_widths(cells, setting, prefill, width)


def _split_of_row(cells: Fields, setting: Setting) -> Split:
    """Return the split that a row states. A known recipe says the limit of a rank, and how its attention is mapped."""
    parts = {
        name: Instances(
            _count(cells, f"{name}_num_workers"),
            _count(cells, f"{name}_tp_size"),
            _count(cells, f"{name}_attention_dp_size"),
        )
        for name in ("prefill", "decode")
    }
    decode = parts["decode"]
    split = split_of(setting, sum(part.npus for part in parts.values()), (decode.count, decode.tp * decode.dp))
    if split is not None:
        return split
    batch = None
    if setting.engine == "trtllm":
        batch = slots_below(setting.concurrency / (decode.count * decode.dp))
        cells.assume("batch", batch, "of a rank that decodes, as no recipe is known")
    return Split(prefill=parts["prefill"], decode=decode, batch=batch)


def _split_of_all(cells: Fields, setting: Setting, npus: int) -> Split:
    """Return the split of a row that states only the number of all GPUs."""
    if (split := split_of(setting, npus)) is not None:
        cells.assumed.append(f"pools: {_split_in_words(split)} assumed, as the recipe of the run has it")
        return split
    width = min(PREFILLING.get(setting.precision, WIDEST), npus // 2)
    share = setting.isl / (setting.isl + 8 * setting.osl)  # a token of an answer costs about that of eight of a prompt
    count = max(1, round(npus * share / width))
    remaining = npus - count * width
    require(remaining > 0, "tp_size", npus, "too few GPUs for two pools")
    derived_split = Split(prefill=Instances(count, 1, width), decode=Instances(1, 1, remaining))
    cells.assumed.append(f"pools: {_split_in_words(derived_split)} assumed, as no recipe is known")
    return derived_split


def _split_of_widths(cells: Fields, setting: Setting, prefill: int, decode: int) -> Split:
    """Return the split of a row that states the GPUs of an instance of each pool, but not their number."""
    for count in range(1, 16):
        split = split_of(setting, decode=(count, decode))
        if split is not None and split.prefill.tp * split.prefill.dp == prefill:
            cells.assumed.append(f"pools: {_split_in_words(split)} assumed, as the recipe of the run has it")
            return split
    too_wide = decode > WIDEST
    derived_split = Split(
        prefill=Instances(max(1, round(decode / prefill / 2)), prefill, 1),
        decode=Instances(1, 1 if too_wide else decode, decode if too_wide else 1),
    )
    cells.assumed.append(f"pools: {_split_in_words(derived_split)} assumed, as no recipe is known")
    return derived_split


def slots_below(requests: float) -> int:
    """Return the power of two that a recipe has for so many requests: itself, or the next below.

    >>> slots_below(8), slots_below(9), slots_below(36), slots_below(0.5)
    (8, 8, 32, 1)
    """
    return int(2 ** int(log2(max(requests, 1))))


def _width(cells: Fields, name: str) -> int:
    return _count(cells, f"{name}_tp_size") * _count(cells, f"{name}_attention_dp_size")


def _split_in_words(split: Split) -> str:
    parts = (split.prefill, split.decode)
    return " + ".join(f"{part.count} {'dp' if part.dp > 1 else 'tp'}{max(part.dp, part.tp)}" for part in parts)


def _count(cells: Fields, name: str) -> int:
    """Return a degree of parallelism; an empty cell or 0 is 1."""
    return 1 if cells.text(name) in NONE else cells.whole(name)


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


def model_name(path: str) -> str:
    """Return the model's name, given the path of a checkpoint.

    >>> model_name("nvidia/Llama-3.1-8B-Instruct-FP8"), model_name("Qwen/Qwen3.5-397B-A17B")
    ('llama-3.1-8b', 'qwen3.5-397b-a17b')
    """
    name = path.rsplit("/", 1)[-1].lower()
    while (shorter := ENDINGS.sub("", name)) != name:
        name = shorter
    return name


# ---- recipes

DAY = re.compile(r"measured=(\d{4}-\d\d-\d\d)")
FIXED = "gap-analysis"
"""Marks the source of rows with exact lengths."""
DUMP = "db-dump"
"""Marks the source of rows that never draft."""
LISTED = ("engine", "model", "system", "precision", "isl", "osl", "tp")
"""Columns of which an entry lists the values that fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The columns of a row that say which recipe it followed."""

    engine: str
    version: str
    model: str
    """The catalog's name."""
    system: str
    precision: str
    isl: int
    osl: int
    concurrency: float
    tp: int = 1
    dp: int = 1
    """Ranks of attention data parallelism of an instance."""
    spread_experts: bool = False
    """Whether the row says that experts lie on several GPUs, whole."""
    split: bool = False
    """Whether the run is disaggregated; tp and dp are then of the pool in question."""
    source: str = ""

    @property
    def day(self) -> str:
        """The day of the run; empty if the row does not say it."""
        match = DAY.search(self.source)
        return match[1] if match else ""

    @property
    def client(self) -> str:
        """Whether lengths are exact, or drawn."""
        return "exact" if FIXED in self.source else "drawn"

    @property
    def file(self) -> str:
        """Whether the row is from the dump of a database, or from a file of one day."""
        return "db" if DUMP in self.source else "csv"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRecipe(EngineSettings):
    """What a recipe sets of an engine; None leaves the engine's default."""

    chunk_prompts: int | None = None
    """Most tokens of a step that prefills, in longest prompts."""
    in_flight: int | None = None
    """Requests in flight that wait as long as those of the run, where the client did not keep what the row says."""

    def chunk(self, isl: int) -> int | None:
        """Return the most tokens of a step that prefills."""
        return self.chunk_prompts * isl if self.chunk_prompts else self.chunk_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """How a disaggregated run was split."""

    prefill: Instances
    decode: Instances
    batch: int | None = None
    """Most requests that a rank of attention decodes at once."""
    drafts: int = 0

    @property
    def npus(self) -> int:
        """GPUs of both pools."""
        return self.prefill.npus + self.decode.npus


@cache
def _entries() -> Mapping[str, Any]:
    return catalog_entries.load_mapping(RECIPES)


def recipe_of(row: Setting) -> EngineRecipe:
    """Return what the recipe of a row sets."""
    recipe = EngineRecipe()
    for entry in _entries()["practice"]:
        if _fits_row(entry, row):
            recipe = replace(recipe, **entry["sets"])
    return recipe


def split_of(row: Setting, npus: int | None = None, decode: tuple[int, int] | None = None) -> Split | None:
    """Return how the run of a row was split; None if no recipe is known.

    *npus* are the GPUs of both pools together, *decode* the instances that decode and the GPUs of each, where a row
    says them: they tell recipes of the same load apart.
    """
    for entry in _entries()["pools"]:
        if not _fits_row(entry, row) or row.concurrency not in entry["at"]:
            continue
        split = Split(
            prefill=Instances.read(entry["prefill"]),
            decode=Instances.read(entry["decode"]),
            batch=entry.get("batch"),
            drafts=entry.get("drafts", 0),
        )
        width = split.decode.tp * split.decode.dp
        if npus in (None, split.npus) and decode in (None, (split.decode.count, width)):
            return split
    return None


def _fits_row(entry: Mapping[str, Any], row: Setting) -> bool:
    """Return whether an entry is about a row."""
    if any(getattr(row, key) not in _listed(entry[key]) for key in LISTED if key in entry):
        return False
    if any(getattr(row, key) != entry[key] for key in ("client", "file") if key in entry):
        return False
    if "version" in entry and not row.version.startswith(tuple(entry["version"])):
        return False
    if "dp" in entry and (entry["dp"] == "wide") != (row.dp > 1):
        return False
    if entry.get("split", row.split) != row.split:
        return False
    if "experts" in entry and (entry["experts"] == "split") == row.spread_experts:
        return False
    if row.concurrency * row.isl < entry.get("burst", 0):
        return False
    if not entry.get("from", 0) <= row.concurrency <= entry.get("to", float("inf")):
        return False
    dated = "since" in entry or "until" in entry
    return not dated or (bool(row.day) and str(entry.get("since", "")) <= row.day <= str(entry.get("until", "9")))


def _listed(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list) else (value,)


KEYS = {*LISTED, "client", "file", "version", "dp", "experts", "split", "burst", "from", "to", "since", "until"}
"""Keys by which an entry of the practice chooses rows."""


def unknown_keys() -> set[str]:
    """Return keys of the catalog's file that nothing reads."""
    entries = _entries()
    settings = {field.name for field in fields(EngineRecipe)}
    unknown = {key for entry in entries["practice"] for key in entry} - KEYS - {"sets"}
    unknown |= {key for entry in entries["practice"] for key in entry["sets"]} - settings
    return unknown | {key for entry in entries["pools"] for key in entry} - KEYS - {
        "prefill",
        "decode",
        "batch",
        "drafts",
        "at",
    }


if __name__ == "__main__":
    main(sys.argv[1:])
