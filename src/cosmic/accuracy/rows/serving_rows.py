"""Measured serving: TTFT and TPOT of engines, as aiconfigurator publishes them.

A row names engine, model, system, precision, mapping, ISL, OSL and concurrency, and gives two times: its verdicts are
``id:ttft`` and ``id:tpot``. Most rows are SemiAnalysis' InferenceMAX (now InferenceX): lengths are drawn from 0.8 to 1
times the stated ISL and OSL, and ten requests are sent for each one in flight. The others state exact lengths.

Rows of one pool are predicted in batches, rows of two pools one by one with what their pools take priced at once. The
package carries the middle one of every five rows, in the order of their ids.

How its engine was set is in `serving_recipes`. What its mapping means was found by comparing rows:

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
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from math import log2, sqrt
from typing import Any

import numpy as np

from cosmic.accuracy.measured_rows import Fields, Row, Verdict
from cosmic.accuracy.rows.serving_recipes import (
    FIXED,
    EngineRecipe,
    Fitted,
    Instances,
    Setting,
    Split,
    fitted_effects,
    recipe_of,
    split_of,
)
from cosmic.base import units
from cosmic.base.errors import SpecError, UnknownName, require
from cosmic.design import catalog_entries
from cosmic.design.design_batch import Batch
from cosmic.design.design_point import DesignPoint
from cosmic.design.loading import read_model
from cosmic.design.measured_hardware import AICONFIGURATOR, build_machine, find_system_with
from cosmic.design.model_layer import Transformer, is_moe
from cosmic.design.serving_engine import load_engine
from cosmic.design.systems import system_dimensions
from cosmic.design.workload_layer import Workload
from cosmic.serving.continuous_batching import RankLoad, estimate_closed_loop
from cosmic.serving.disaggregated_serving import (
    POINTS,
    DecodeStepTable,
    Handover,
    PoolPair,
    PoolPairTimes,
    PrefillTimes,
    handover_of,
    price_prefill_pool,
    solve_pools_closed_loop,
    transfer_s,
)
from cosmic.serving.step_price import StepPrice, with_collectives
from cosmic.workload.mapping_rules import invalid_reasons

POOL_ROUNDS = 10
"""Requests that each client sends, one after the other."""
UNIFORM = sqrt(12)
"""Width of a uniform distribution over its standard deviation."""


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Rows that are predicted in one batch, and their places among all."""

    places: list[int]
    members: list[ServedPool]
    price: StepPrice
    load: RankLoad


def predict_pool(served: Sequence[ServedPool]) -> list[tuple[float, float]]:
    """Return the predicted TTFT and TPOT of each row."""
    times_by_row: dict[int, tuple[float, float]] = {}
    for group in group_rows(served):
        times_seen = estimate_closed_loop(group.price, group.load)
        cold = stack_column(group.members, "cold_s") / POOL_ROUNDS
        times = np.stack(np.broadcast_arrays(times_seen.mean_ttft_s + cold, times_seen.tpot_s), axis=1)
        times_by_row |= {
            row: (float(first), float(further)) for row, (first, further) in zip(group.places, times, strict=True)
        }
    return [times_by_row[index] for index in range(len(served))]


def group_rows(served: Sequence[ServedPool]) -> list[RowGroup]:
    """Return rows in groups that share engine, model, precision and machine."""
    rows_by_setting: dict[tuple[Any, ...], list[int]] = {}
    for index, pool in enumerate(served):
        rows_by_setting.setdefault((*pool.key, pool.recipe.drafts, pool.recipe.eager), []).append(index)
    return [_group(indices, [served[index] for index in indices]) for indices in rows_by_setting.values()]


def _group(indices: list[int], members: list[ServedPool]) -> RowGroup:
    first = members[0]
    usual = load_engine(first.engine)
    share = np.array([member.recipe.memory_fraction or usual.memory_fraction for member in members])
    engine = replace(usual, memory_fraction=share, cuda_graphs=not first.recipe.eager)  # type: ignore[arg-type]  # arrays
    design = first.design
    if first.recipe.kv_bits:
        design = design.changed({"workload.cache_dtype": "bf16" if first.recipe.kv_bits > 8 else "fp8"})
    degrees = {
        f"workload.{name}": np.array([getattr(member.design.workload, name) for member in members])
        for name in ("tp", "dp", "ep")
    }
    price = StepPrice(Batch(with_collectives(design, engine), degrees), engine, first.recipe.drafts)
    return RowGroup(indices, members, price, _load(members, usual.max_num_batched_tokens))


def _load(members: Sequence[ServedPool], usual_tokens: int) -> RankLoad:
    effects = fitted_effects()
    ranks = np.array([member.design.workload.dp for member in members], dtype=float)
    spread = stack_column(members, "spread")
    return RankLoad(
        clients=np.maximum(stack_column(members, "concurrency") / ranks, 1.0),
        isl=np.rint(stack_column(members, "isl") * (1 - spread / 2)),
        osl=stack_column(members, "osl") * (1 - spread / 2),
        osl_cv=spread / UNIFORM / (1 - spread / 2),
        tokens_per_step=effects.tokens_of(members[0].recipe.drafts) * np.ones(len(members)),
        max_tokens=np.array([member.recipe.chunk(int(member.isl)) or usual_tokens for member in members], dtype=float),
        seats=np.maximum(stack_column(members, "seats") / ranks, 1.0),
        ranks=ranks,
        devices=np.array([member.design.workload.tp for member in members], dtype=float),
        mla=np.array([getattr(member.design.model, "mla", None) is not None for member in members], dtype=float),
        poll_steps=stack_column(members, "polling"),
        polled_steps=effects.polled * stack_column(members, "polling"),
        hold_steps=hold_steps(effects, stack_column(members, "holding"), ranks),
        rounds=POOL_ROUNDS,
        in_step=np.array([member.prefill_first for member in members]),
    )


def hold_steps(effects: Fitted, holding: Any, ranks: Any) -> Any:
    """Return the steps for which recipes hold a prompt back: for others as long as they may, for other ranks less."""
    return np.where(ranks > 1, effects.held, 1.0) * holding


def stack_column(members: Sequence[Measured], name: str) -> Any:
    """Return one field of all *members*."""
    return np.array([getattr(member, name) for member in members], dtype=float)


HANDOVER_ROUNDS = 10
"""Requests that each client sends."""


def predict_rows(read: Sequence[ServedPool | ServedPools]) -> list[tuple[float, float]]:
    """Return the predicted TTFT and TPOT of each row."""
    of_one = iter(predict_pool([row for row in read if isinstance(row, ServedPool)]))
    of_two = iter(predict_pools([row for row in read if isinstance(row, ServedPools)]))
    return [next(of_one if isinstance(row, ServedPool) else of_two) for row in read]


# ---- two pools


@dataclass(frozen=True, slots=True)
class PricedPools:
    """What the pools of rows take, priced once: arrays over the rows."""

    prefill: PrefillTimes
    """Without what engines take beside the kernels."""
    transfer_s: Any
    """A cache over the network."""
    step_s: DecodeStepTable


def predict_pools(served: Sequence[ServedPools]) -> list[tuple[float, float]]:
    """Return the predicted TTFT and TPOT of each row of two pools."""
    if not served:
        return []
    handovers = [handover_of(row.engine) for row in served]
    handover = Handover(**{field.name: _stack_parts(handovers, field.name) for field in fields(Handover)})
    pool_times = see_pools(served, price_pools(served), handover)
    return [(float(first), float(further)) for first, further in zip(pool_times.ttft_s, pool_times.tpot_s, strict=True)]


def see_pools(served: Sequence[ServedPools], priced: PricedPools, handover: Handover) -> PoolPairTimes:
    """Return what clients of rows of two pools see; *handover* has arrays over the rows."""
    pools = PoolPair(
        prefill=priced.prefill.run_by(handover),
        handover_s=handover.handover_s + priced.transfer_s,
        step_s=priced.step_s,
        slots=stack_column(served, "slots"),
    )
    tokens = np.array([fitted_effects().tokens_of(pools.recipe.drafts) for pools in served])
    osl = stack_column(served, "osl") * (1 - stack_column(served, "spread") / 2)
    return solve_pools_closed_loop(pools, stack_column(served, "concurrency"), osl, tokens, HANDOVER_ROUNDS)


def price_pools(served: Sequence[ServedPools]) -> PricedPools:
    """Return what the pools of rows take; rows that share an instance are priced at once."""
    filled: dict[Any, tuple[PrefillTimes, float]] = {}
    pools: list[PrefillTimes] = []
    sent: list[float] = []
    for row in served:
        key = (row.engine, row.prefill, row.isl, row.spread, row.room)
        if key not in filled:
            filled[key] = _price_prefill(row)
        pool, seconds = filled[key]
        pools.append(replace(pool, instances=row.split.prefill.count))
        sent.append(seconds)
    return PricedPools(
        PrefillTimes(**{field.name: _stack_parts(pools, field.name) for field in fields(PrefillTimes)}),
        np.array(sent),
        _price_decode(served),
    )


def _price_prefill(row: ServedPools) -> tuple[PrefillTimes, float]:
    """Return what an instance takes that prefills, and a prompt's cache over the network."""
    price = StepPrice.for_design(row.prefill, load_engine(row.engine))
    isl = row.isl * (1 - row.spread / 2)
    seconds = transfer_s(price, isl, network_between(row.prefill.compute.accelerator or ""))
    return price_prefill_pool(price, isl, float(row.room), ranks=row.split.prefill.dp), float(np.ravel(seconds)[0])


def _price_decode(served: Sequence[ServedPools]) -> DecodeStepTable:
    """Return the decode steps of rows."""
    highest = np.minimum(stack_column(served, "concurrency"), stack_column(served, "slots"))
    lowest = np.minimum(1.0, highest / 2)
    numbers = np.geomspace(lowest, highest, POINTS, axis=1)
    ranks = np.array([row.split.decode.count * row.split.decode.dp for row in served])
    context = (stack_column(served, "isl") + stack_column(served, "osl") / 2) * (1 - stack_column(served, "spread") / 2)
    steps = np.empty_like(numbers)
    rows_by_design: dict[Any, list[int]] = {}
    for index, row in enumerate(served):
        rows_by_design.setdefault((row.engine, row.decode, row.recipe.drafts), []).append(index)
    for (engine, design, drafts), indices in rows_by_design.items():
        requests = (numbers[indices] / ranks[indices, None]).ravel()
        decode_s = StepPrice.for_design(design, load_engine(engine), drafts).decode_s(
            requests, np.repeat(context[indices], POINTS)
        )
        steps[indices] = np.reshape(decode_s, (len(indices), POINTS))
    return DecodeStepTable(lowest, highest, steps)


def _stack_parts(parts: Sequence[Any], name: str) -> Any:
    """Return one number of all *parts*."""
    return np.array([float(np.ravel(getattr(part, name))[0]) for part in parts])


def network_between(accelerator: str) -> float:
    """Return the bytes a second that a device sends to another node.

    >>> network_between("gb200")
    50000000000.0
    """
    return float(units.parse_quantity(str(system_dimensions(find_system_with(accelerator))[-1]["bandwidth"])).value)


def compare_rows(rows: Sequence[Row]) -> list[Verdict]:
    """Return two verdicts for each row: TTFT and TPOT."""
    verdicts: list[Verdict] = []
    read = [read_serving_row(row) for row in rows]
    times = iter(predict_rows([row for row in read if not isinstance(row, Verdict)]))
    for deployment in read:
        if isinstance(deployment, Verdict):
            verdicts += [
                replace(deployment, id=f"{deployment.id}:{name}", set=f"{deployment.set} {name}")
                for name in ("ttft", "tpot")
            ]
            continue
        ttft_s, tpot_s = next(times)
        verdicts.append(_verdict(deployment, "ttft", deployment.ttft_s, ttft_s))
        verdicts.append(_verdict(deployment, "tpot", deployment.tpot_s, tpot_s))
    return verdicts


def _verdict(pool: ServedPool | ServedPools, name: str, measured_s: float, predicted_s: float) -> Verdict:
    columns = ("backend", "model_path", "system", "isl", "osl", "concurrency")
    return Verdict(
        id=f"{pool.id}:{name}",
        set=f"{pool.set} {name}",
        row=pool.row,
        measured_s=measured_s,
        predicted_s=predicted_s,
        assumed=pool.assumed,
        group=(name, *(pool.row.get(key, "") for key in columns), str(pool.npus)),
        design=pool.shown,
    )


WIDEST = 8
"""Most GPUs of a row that is really aggregated."""
REPLICATED_FROM = 1024
"""Requests in flight from which vLLM's recipes replicate attention, where a row leaves open if they do."""
NONE = ("", "0", "0.0")
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
    recipe: EngineRecipe
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
class ServedPool(Measured):
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
        return " + ".join(f"{part.count} x (tp {part.tp} dp {part.dp})" for part in parts)

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


def read_serving_row(row: Row) -> ServedPool | ServedPools | Verdict:
    """Return a row as a deployment and its load, or a verdict that says why it is skipped."""
    mode = (row.get("mode") or "agg").strip()
    identity = (row.get("id") or "").strip()
    try:
        require(mode in ("agg", "disagg"), "mode", mode, "must be agg or disagg")
        return _read_deployment(Fields(row), identity, mode)
    except SpecError as error:
        return Verdict(id=identity, set=f"serving {mode}", row=row, skipped=str(error))


def _read_deployment(cells: Fields, identity: str, mode: str) -> ServedPool | ServedPools:
    engine, name = cells.text("backend"), model_name(cells.text("model_path"))
    if engine not in catalog_entries.entry_names("engines"):
        raise UnknownName.among("backend", engine, "engine", catalog_entries.entry_names("engines"))
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
    shared_fields: dict[str, Any] = {
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
        return _of_pools(cells, setting, shared_fields)
    return _of_one_pool(cells, setting, shared_fields, exact)


def _of_one_pool(cells: Fields, setting: Setting, shared_fields: dict[str, Any], exact: bool) -> ServedPool:
    require(cells.whole("pp_size", 1) == 1, "pp_size", cells.text("pp_size"), "serving in stages is not modelled")
    mapping = mapping_of_row(cells, setting.engine)
    setting = replace(setting, tp=mapping.tp, dp=mapping.dp, spread_experts=mapping.spread_experts)
    recipe = recipe_of(setting)
    design = _design(setting.model, AICONFIGURATOR[setting.system], _workload(mapping, setting.precision, recipe))
    clients = setting.concurrency / deployments(cells, setting.concurrency)
    if recipe.in_flight:
        clients = cells.assume("concurrency", float(recipe.in_flight), "as the recipe of the run has it")
    _note_drafts(cells, recipe.drafts)
    return ServedPool(
        **shared_fields,
        design=design,
        concurrency=clients,
        recipe=recipe,
        prefill_first=load_engine(setting.engine).prefill_first and (not exact or setting.version.startswith(IN_STEP)),
        assumed=tuple(cells.assumed),
    )


def _of_pools(cells: Fields, setting: Setting, shared_fields: dict[str, Any]) -> ServedPools:
    for name in ("pp_size", "prefill_pp_size", "decode_pp_size"):
        require(cells.whole(name, 1) == 1, name, cells.text(name), "serving in stages is not modelled")
    split = pools_of_row(cells, setting)
    setting = replace(setting, split=True, tp=split.prefill.tp, dp=split.prefill.dp)
    recipe = replace(recipe_of(setting), drafts=split.drafts, max_running=split.batch)
    _note_drafts(cells, recipe.drafts)
    accelerator = AICONFIGURATOR[setting.system]
    parts = {
        name: _design(
            setting.model,
            accelerator,
            _workload(InstanceMapping(tp=part.tp, dp=part.dp, ep=part.dp), setting.precision, recipe),
        )
        for name, part in (("prefill", split.prefill), ("decode", split.decode))
    }
    return ServedPools(
        **shared_fields,
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
    precision = cells.text("precision")
    if not precision:
        return str(cells.assume("precision", "bf16"))
    require(precision in ("bf16", "fp8", "fp4", "int4"), "precision", precision, "no such precision")
    return precision


def _note_drafts(cells: Fields, drafts: int) -> None:
    if drafts:
        cells.assumed.append(f"speculation: {drafts} drafted tokens a step assumed, as the recipe of the run has it")


def _workload(mapping: InstanceMapping, precision: str, recipe: EngineRecipe) -> Workload:
    sizes: dict[str, Any] = {
        "sequence": 1,
        "global_batch": mapping.dp,
        "tp": mapping.tp,
        "dp": mapping.dp,
        "ep": mapping.ep,
    }
    sizes["cache_dtype"] = {16: "bf16", 8: "fp8", None: "auto"}[recipe.kv_bits]
    return Workload(task="decode", precision=precision, sequence_parallel=False, **sizes)  # type: ignore[arg-type]


@cache
def _design(model: str, accelerator: str, workload: Workload) -> DesignPoint:
    entry = catalog_entries.read_entry("models", model)
    read = read_model(entry, model)
    if not is_moe(read):
        workload = replace(workload, ep=1)
    elif isinstance(read, Transformer) and read.experts and read.experts.count % workload.ep:
        copies = -read.experts.count % workload.ep  # experts that are held twice, to spread them evenly
        read = replace(read, experts=replace(read.experts, count=read.experts.count + copies))
    hardware = build_machine(accelerator, workload.tp * workload.dp)
    point = hardware.design(read, workload)
    if reasons := invalid_reasons(point):
        raise SpecError("mapping", f"tp {workload.tp} dp {workload.dp} ep {workload.ep}", reasons[0])
    return point
