"""What the mapping of a published serving row means, found by comparing rows.

- Some rows count their GPUs twice: ``moe_tp × moe_ep`` is the square of the number, and tp or attention_dp is that
  product. ``tp 64, moe_tp 8, moe_ep 8`` are 8 GPUs (the id says tp8 ep8, and the times equal those of rows that say
  ``tp 8, moe_ep 8``). ``tp 4, attention_dp 4, moe_ep 16`` are 4 GPUs: under vLLM with tensor parallelism (the times
  equal those of rows that say ``tp 4, moe_ep 4``; its recipes replicate attention from 1,024 requests in flight on).
- Where attention_dp is empty and experts lie on more GPUs than tp, attention is replicated on the rest. Where it is
  empty and ``batch_size`` is below the concurrency, there are several deployments of one batch each.
- Aggregated rows with more GPUs than a node has are InferenceMAX's disaggregated runs: tp is the number of all GPUs.
- In disaggregated rows ``decode_batch_size`` is of a rank of attention: with the ranks and instances it gives the
  concurrency where that is empty. It is no limit: that is in the recipes (`cosmic.validation.serving_recipes`). Where
  no recipe is known, TensorRT-LLM's are the next power of two below the requests of a rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2

from cosmic.errors import require
from cosmic.validation.rows import Fields
from cosmic.validation.serving_recipes import Instances, Setting, Split, split_of

WIDEST = 8
"""Most GPUs of a row that is really aggregated."""
REPLICATED_FROM = 1024
"""Requests in flight from which vLLM's recipes replicate attention, where a row leaves open if they do."""
NONE = ("", "0", "0.0")
PREFILLING = {"fp4": 4, "fp8": 8}
"""GPUs of an instance that prefills, where a row does not say it: what holds the largest models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping:
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
    found = batch * ranks * _count(cells, "decode_num_workers")
    return float(cells.assume("concurrency", found, "a batch for each rank of attention that decodes"))


def deployments(cells: Fields, concurrency: float) -> float:
    """Return the number of deployments that share the requests of a row."""
    if cells.text("attention_dp_size") not in NONE or not cells.text("batch_size") or _replicated(cells):
        return 1.0
    batch = cells.whole("batch_size")
    if batch >= concurrency:
        return 1.0
    return float(cells.assume("deployments", concurrency / batch, "of one batch each"))


def mapping(cells: Fields, engine: str) -> Mapping:
    """Return the mapping of one deployment of an aggregated row."""
    tp, dp = _count(cells, "tp_size"), _count(cells, "attention_dp_size")
    expert_tp, ep = _count(cells, "moe_tp_size"), _count(cells, "moe_ep_size")
    stated = cells.text("attention_dp_size") not in NONE
    if stated and expert_tp == ep > 1 and max(tp, dp) == ep * ep:
        tp, dp = (1, ep) if dp > 1 else (ep, 1)
        cells.assumed.append(f"devices: {ep} assumed, counted twice")
    elif tp == dp > 1 and ep == tp * dp:
        split = engine == "vllm" and (cells.number("concurrency") or 0) < REPLICATED_FROM
        tp, dp, ep = (tp, 1, tp) if split else (1, tp, tp)
        cells.assumed.append(f"devices: {ep} assumed, counted twice")
    elif (more := _replicated(cells)) > 1:
        dp = cells.assume("attention_dp", more, "to fill the experts' devices")
    return Mapping(tp=tp, dp=dp, ep=dp if expert_tp * ep >= dp else 1, spread_experts=ep > 1)


def _replicated(cells: Fields) -> int:
    """Return the ranks of attention that a row without their number needs for its experts; 0 if none."""
    spread = _count(cells, "moe_tp_size") * _count(cells, "moe_ep_size")
    tp = _count(cells, "tp_size")
    if cells.text("attention_dp_size") not in NONE or spread <= tp or spread % tp:
        return 0
    return spread // tp


# ------------------------------------------------------------------------------------------------- pools


def pools(cells: Fields, setting: Setting) -> Split:
    """Return how a disaggregated row is split: as it says, else as the recipe of the run has it."""
    if cells.text("mode") != "disagg":
        return _of_all(cells, setting, _count(cells, "tp_size"))
    for name in ("prefill", "decode"):
        given = any(cells.text(f"{name}_{part}") for part in ("tp_size", "attention_dp_size"))
        require(given, f"{name}_tp_size", "", "is not given")
    if cells.text("decode_num_workers"):
        return _stated(cells, setting)
    width, prefill = _width(cells, "decode"), _width(cells, "prefill")
    if width == prefill > WIDEST:
        return _of_all(cells, setting, width)
    return _of_widths(cells, setting, prefill, width)


def _stated(cells: Fields, setting: Setting) -> Split:
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
    known = split_of(setting, sum(each.npus for each in parts.values()), (decode.count, decode.tp * decode.dp))
    if known is not None:
        return known
    batch = None
    if setting.engine == "trtllm":
        batch = slots_below(setting.concurrency / (decode.count * decode.dp))
        cells.assume("batch", batch, "of a rank that decodes, as no recipe is known")
    return Split(prefill=parts["prefill"], decode=decode, batch=batch)


def _of_all(cells: Fields, setting: Setting, npus: int) -> Split:
    """Return the split of a row that states only the number of all GPUs."""
    if (known := split_of(setting, npus)) is not None:
        cells.assumed.append(f"pools: {_said(known)} assumed, as the recipe of the run has it")
        return known
    width = min(PREFILLING.get(setting.precision, WIDEST), npus // 2)
    share = setting.isl / (setting.isl + 8 * setting.osl)  # a token of an answer costs about that of eight of a prompt
    count = max(1, round(npus * share / width))
    rest = npus - count * width
    require(rest > 0, "tp_size", npus, "too few GPUs for two pools")
    found = Split(prefill=Instances(count, 1, width), decode=Instances(1, 1, rest))
    cells.assumed.append(f"pools: {_said(found)} assumed, as no recipe is known")
    return found


def _of_widths(cells: Fields, setting: Setting, prefill: int, decode: int) -> Split:
    """Return the split of a row that states the GPUs of an instance of each pool, but not their number."""
    for count in range(1, 16):
        known = split_of(setting, decode=(count, decode))
        if known is not None and known.prefill.tp * known.prefill.dp == prefill:
            cells.assumed.append(f"pools: {_said(known)} assumed, as the recipe of the run has it")
            return known
    wide = decode > WIDEST
    found = Split(
        prefill=Instances(max(1, round(decode / prefill / 2)), prefill, 1),
        decode=Instances(1, 1 if wide else decode, decode if wide else 1),
    )
    cells.assumed.append(f"pools: {_said(found)} assumed, as no recipe is known")
    return found


def slots_below(requests: float) -> int:
    """Return the power of two that a recipe has for so many requests: itself, or the next below.

    >>> slots_below(8), slots_below(9), slots_below(36), slots_below(0.5)
    (8, 8, 32, 1)
    """
    return int(2 ** int(log2(max(requests, 1))))


def _width(cells: Fields, name: str) -> int:
    return _count(cells, f"{name}_tp_size") * _count(cells, f"{name}_attention_dp_size")


def _said(found: Split) -> str:
    parts = (found.prefill, found.decode)
    return " + ".join(f"{each.count} {'dp' if each.dp > 1 else 'tp'}{max(each.dp, each.tp)}" for each in parts)


def _count(cells: Fields, name: str) -> int:
    """Return a degree of parallelism; an empty cell or 0 is 1."""
    return 1 if cells.text(name) in NONE else cells.whole(name)
