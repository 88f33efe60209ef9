"""The sizes of dimensions and mesh axes for a batch of designs: numbers where they agree, arrays where not.

Islands reduce gradients by themselves and exchange parameters every few steps (`workload.sync_period`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from cosmic.base.numeric import Numeric, choose, floats, largest_whole, power
from cosmic.design.design_batch import Batch, Combinations, has_gaps, none_to_nan
from cosmic.design.design_point import DesignPoint
from cosmic.design.field_facts import facts_of
from cosmic.design.model_layer import Model, Transformer, is_moe
from cosmic.design.program_model import ProgramModel
from cosmic.design.workload_layer import Workload
from cosmic.network.dimension_wiring import wiring_paths
from cosmic.workload.expert_routing import routed_sizes
from cosmic.workload.lora_adapters import RANK
from cosmic.workload.model_blocks import Block, dimensions
from cosmic.workload.operator_graph import SizeTable
from cosmic.workload.pipeline_cut import (
    Cut,
    cuts,
    heaviest_stage,
    layers_in_pattern,
    pattern_of,
    stated_layers,
    weighed_pattern,
)
from cosmic.workload.pipeline_schedule import schedules
from cosmic.workload.user_programs.program_blocks import add_equal_dims

# ---- Islands that reduce gradients by themselves and exchange parameters every few steps: `workload.sync_period`

INSIDE = {"dp": "idp", "edp": "iedp"}
"""The part of an axis of replicas inside an island: where islands exchange parameters now and then, weights are sharded
and gradients reduced there alone."""
OUTSIDE = {"dp": "odp", "edp": "oedp"}
"""The part across islands."""


def islands_of(batch: Batch) -> Numeric:
    """Return the parts that the outermost network dimension joins: islands of NPUs."""
    islands: Numeric = batch[f"network.dims.{len(batch.base.network.dims) - 1}.npus"]
    return islands


# ---- The sizes of dimensions and mesh axes for a batch of designs: numbers where they agree, arrays where not

STRUCTURE = tuple(name for name, about in facts_of(Workload).items() if not about.number)
"""The fields of a workload that are switches, not numbers: designs that differ in them have different graphs."""


def is_memory_switch(path: str) -> bool:
    """Return whether a field of the memory layer is no number: where state is placed, and how it is fetched.

    >>> [is_memory_switch(each) for each in ("memory.placement.optimizer", "memory.tiers.0.capacity")]
    [True, False]
    """
    named = path.startswith("memory.tiers.") and path.endswith((".name", ".access", ".pool", ".in_switch"))
    return named or path.startswith("memory.placement.") or path in MEMORY_SWITCHES


MEMORY_SWITCHES = (
    *("memory.tiers", "memory.placement", "memory.prefetch", "memory.expansion", "memory.active_experts"),
    *("memory.context", "memory.communicator", "memory.fits"),
)
"""Fields of the memory layer that decide what is computed."""


def structural_paths(batch: Batch) -> list[str]:
    """Return the fields in which designs must agree to share one graph, and the kernels of its operators.

    Weights of 4 bits have other kernels where an accelerator multiplies no such.
    """
    paths = [f"workload.{name}" for name in STRUCTURE] + [path for path in batch.columns if path.startswith("model.")]
    paths += wiring_paths(batch)
    paths += [path for path in batch.columns if is_memory_switch(path)]
    return [*paths, "compute.fp4"] if has_gaps(batch["compute.fp4"]) else paths


def sizes_of(batch: Batch) -> SizeTable:
    """Return the size of every dimension of one microbatch and of every mesh axis.

    The batch dimension is that of all data-parallel replicas together, so that splitting it over dp gives each
    its microbatch. The axes of experts, etp, ep and edp, split the same ranks: see `cosmic.workload.block_plans`.
    """
    return batch.once(sizes_of, lambda: _sizes_of(batch))


def _sizes_of(batch: Batch) -> SizeTable:
    field: Callable[[str], Any] = lambda name: batch[f"workload.{name}"]  # noqa: E731  a short word for a long path
    model = batch.base.model
    sizes: dict[str, Numeric] = dict(dimensions(model))
    dp, cp = field("dp"), field("cp")
    decoding = batch.base.workload.task == "decode"
    sequence = field("sequence")
    # Dividing by 1 makes dp a float: products with it would overflow whole numbers in large designs.
    sizes |= {"dp": dp / 1, "cp": cp, "tp": field("tp"), "pp": field("pp")}
    # A decoding step has one token per sequence, and reads the keys of all tokens so far, the context.
    sizes |= {"batch": field("micro_batch") * dp, "sequence": sequence * 0 + 1 if decoding else sequence}
    sizes |= {"context": sequence, "source": sequence, "samples": field("micro_batch") * dp}
    if isinstance(model, ProgramModel):
        sizes = add_equal_dims(model, sizes) | model.cut_sizes
    if (rank := batch.base.workload.lora_rank) is not None:
        sizes[RANK] = rank
        if batch.base.workload.task != "training":
            sizes["adapters"] = distinct_adapters(field("lora_adapters"), field("micro_batch"))
    if isinstance(model, Transformer) and model.sparse:
        # In training a query may see half of the compressed keys on average, when decoding all of them.
        sizes["index_context"] = sequence / (model.sparse.block * (1 if decoding else 2))
    if is_moe(model):
        if batch.base.workload.task != "training":
            sizes["popularity"] = 1  # experts of a served model are not equally popular
        sizes |= expert_degrees(batch) | routed_sizes(batch)
        sizes["tokens"] = sizes["batch"] * (cp if decoding else sequence)  # cp ranks decode the same
    else:
        sizes |= {"etp": 1, "ep": field("ep"), "edp": dp / field("ep")}
    if isinstance(model, Transformer) and pads_dimensions(batch.base):
        sizes |= pad_dimensions(model, sizes["tp"], sizes["etp"])
    if batch.base.workload.exchanges_apart:
        islands = islands_of(batch)
        sizes |= {"odp": islands, "idp": sizes["dp"] / islands, "oedp": islands, "iedp": sizes["edp"] / islands}
    return SizeTable(sizes)


def distinct_adapters(adapters: Numeric, requests: Numeric) -> Numeric:
    """Return the expected number of distinct *adapters* among *requests*, each naming one at random.

    >>> [round(float(distinct_adapters(*each)), 3) for each in ((1, 8), (4, 1), (4, 2), (100, 8))]
    [1.0, 1.0, 1.75, 7.726]
    """
    return adapters * (1 - power(1 - 1 / floats(adapters), requests))


def expert_degrees(batch: Batch) -> dict[str, Numeric]:
    """Return the sizes of the experts' mesh axes: etp, ep and edp, and the parts of ep inside and outside tp.

    etp is as much of tp as ep leaves, unless it is given.
    """
    tp, ep = batch["workload.tp"], batch["workload.ep"]
    ranks = tp * batch["workload.cp"] * batch["workload.dp"]
    # The largest etp that divides tp and the ranks that ep leaves.
    etp = _fill_gaps(batch["workload.etp"], np.gcd(tp, ranks // ep)[()])
    return {"etp": etp, "ep": ep, "edp": ranks / (etp * ep), "tep": tp / etp, "oep": etp * ep / tp}


def folded_order(placement: Iterable[str]) -> tuple[str, ...]:
    """Return the axes in the order in which etp, ep and edp take their ranks: tp first, then from the inside out.

    >>> folded_order(("cp", "tp", "pp", "dp"))
    ('tp', 'cp', 'dp')
    """
    return ("tp", *(axis for axis in placement if axis in ("cp", "dp")))


def _fill_gaps(values: Any, default: Any) -> Any:
    """Return the values of a column, with the default where a design states none."""
    if not has_gaps(values):
        return default if values is None else values
    numbers = none_to_nan(values)
    missing = np.isnan(numbers)
    return np.where(missing, default, np.where(missing, 1, numbers).astype(np.int64))


def microbatches(batch: Batch) -> Numeric:
    """Return how many microbatches each replica passes through the pipeline in one step."""
    return batch.once(microbatches, lambda: _count_microbatches(batch))


def _count_microbatches(batch: Batch) -> Numeric:
    per_replica = batch["workload.dp"] * batch["workload.micro_batch"]
    count: Numeric = np.maximum(1, -(-batch["workload.global_batch"] // per_replica))
    return count


Stage = Literal["first", "second", "middle", "penultimate", "last"]
"""The stages of a pipeline one of which bounds a step: the others are like one of them, or have less to do."""


def stage_number(batch: Batch, stage: Stage, blocks: Sequence[Block]) -> Numeric:
    """Return the number of a stage, from 0 on.

    The middle is the last of the stages that have a layer more than others, if there are several: it has more layers
    of the kind that comes later. Second and penultimate are the first and the last of the stages that share what others
    leave: those beside a stage whose layers are stated.
    """
    stages: Numeric = batch["workload.pp"]
    if stage in ("first", "last"):
        return stages * 0 if stage == "first" else stages - 1
    cut = cut_of(batch, blocks)
    model = batch.base.model
    if stage == "middle" and isinstance(model, Transformer) and model.pattern:
        return heaviest_stage_number(cut, model, active=True)
    if stage != "middle":
        number: Numeric = stages * 0 + cut.first.given if stage == "second" else stages - 1 - cut.last.given
    elif cut.stated:
        number = _middle_of_sharing(cut, uniform=sum(block.part == "layers" for block in blocks) == 1)
    else:
        longer = cut.layers % stages
        return np.where(longer > 1, longer - 1, stages // 2)
    return np.clip(number, 0, stages - 1)


def heaviest_stage_number(cut: Cut, model: Transformer, *, active: bool) -> Numeric:
    """Return the stage whose layers have the most parameters: all, or with *active* those that a token uses.

    Where a pattern says which kind each layer is, any stage may have most to do.
    """
    combinations = Combinations(cut.stages, cut.virtual, *_stated_ends(cut))
    number: Numeric = combinations.look_up(heaviest_stage, pattern_of(model), weighed_pattern(model, active))[0]
    return np.clip(number, 0, cut.stages - 1)


def _stated_ends(cut: Cut) -> tuple[Numeric, Numeric]:
    """Return the layers that each virtual stage of first and last stage has, -1 where they are not stated."""
    first, last = ((end.layers + 1) * end.given - 1 for end in (cut.first, cut.last))
    return first, last


def _middle_of_sharing(cut: Cut, uniform: bool) -> Numeric:
    """Return the middle where the layers of a stage are stated; it may be the only one with a layer more.

    Where all layers are *uniform*, designs that state none have no stage with more of them than the first.
    """
    longer, before = cut.rest % cut.sharing, cut.first.given
    number: Numeric = before + np.where(longer > 1 - before, longer - 1, cut.sharing // 2)
    return choose(before + cut.last.given > 0, number, 0) if uniform else number


def blocks_on_stage(batch: Batch, stage: Numeric, blocks: Sequence[Block]) -> dict[str, Numeric]:
    """Return how much of each block of a model lies on *stage*: layers, the embedding, the head.

    Layers are dealt out in order, to stages or to their virtual stages (see `cosmic.workload.pipeline_cut`). A
    bidirectional
    schedule has each stage twice, once in each direction: the mean of both.
    """
    stages = batch["workload.pp"]
    counts = _layers_one_way(batch, stage, blocks)
    if not np.any(schedules[batch.base.workload.schedule].parameter_copies(stages) > 1) or not _trains(batch):
        return counts
    mirrored = _layers_one_way(batch, stages - 1 - stage, blocks)
    return {name: (count + mirrored[name]) / 2 for name, count in counts.items()}


def _layers_one_way(batch: Batch, stage: Numeric, blocks: Sequence[Block]) -> dict[str, Numeric]:
    stages = batch["workload.pp"]
    counts: dict[str, Numeric] = {}
    for block in blocks:
        if block.part != "layers":
            on_stage = stage == (0 if block.part == "first" else stages - 1)
            counts[block.name] = float(block.repeats) * on_stage
    for part in layers_by_part(batch, stage, blocks):
        for name, count in part.items():
            counts[name] = counts.get(name, 0) + count
    return {block.name: counts[block.name] for block in blocks}


def layers_by_part(
    batch: Batch, stage: Numeric, blocks: Sequence[Block], limit: int | None = None
) -> list[dict[str, Numeric]]:
    """Return how many layers of each kind are in each virtual stage of *stage*, in one direction.

    With *limit*, only the first so many layers of each virtual stage count.
    """
    cut = cut_of(batch, blocks)
    parts: list[dict[str, Numeric]] = []
    for chunk in range(largest_whole(cut.virtual)):
        layers = layers_of_part(batch.base.model, blocks, cut, stage, chunk, limit)
        parts.append({name: count * (chunk < cut.virtual) for name, count in layers.items()})
    return parts


def layers_of_parts(batch: Batch, blocks: Sequence[Block]) -> list[dict[str, float]]:
    """Return how many layers of each kind are in each stage of a single design, or in each virtual stage, in order."""
    workload = batch.base.workload
    cut = cut_of(batch, blocks)
    if workload.pp == 1:
        cut = replace(cut, virtual=1)
    parts = [divmod(part, workload.pp) for part in range(workload.pp * int(cut.virtual))]
    dealt = (layers_of_part(batch.base.model, blocks, cut, stage, chunk) for chunk, stage in parts)
    return [{name: float(count) for name, count in layers.items()} for layers in dealt]


def layers_of_part(
    model: Model, blocks: Sequence[Block], cut: Cut, stage: Numeric, chunk: int, limit: int | None = None
) -> dict[str, Numeric]:
    """Return the layers of each kind in number *chunk* of the virtual stages of *stage*.

    With *limit*, only its first so many layers count.
    """
    start, taken = cut.span(stage, chunk)
    end = start + (taken if limit is None else np.minimum(taken, limit))
    before = _first_layers(model, blocks, start)
    return {name: count - before[name] for name, count in _first_layers(model, blocks, end).items()}


def cut_of(batch: Batch, blocks: Sequence[Block]) -> Cut:
    """Return how the pipeline of each design cuts its model."""
    return batch.once(cut_of, lambda: _cut_of(batch, blocks))


def _cut_of(batch: Batch, blocks: Sequence[Block]) -> Cut:
    virtual: Numeric = batch["workload.virtual_stages"] if _trains(batch) else 1
    first, last = (stated_layers(batch[f"workload.{end}_stage_layers"], virtual) for end in ("first", "last"))
    cut = Cut(_count_layers(blocks), batch["workload.pp"], virtual, first, last)
    rule = batch.base.workload.stage_layers
    if rule == "even" or cut.stated:
        return cut
    custom: Cut = cuts[rule](batch, blocks, cut)
    return custom


def _count_layers(blocks: Sequence[Block]) -> int:
    return sum(block.repeats for block in blocks if block.part == "layers")


def _first_layers(model: Model, blocks: Sequence[Block], count: Numeric) -> dict[str, Numeric]:
    """Return how many of the first *count* layers of a model are of each kind.

    Kinds follow one another, except where every second, third … layer is an MoE layer, or where a pattern says which.
    """
    if isinstance(model, Transformer) and model.pattern:
        return {
            block.name: Combinations(count).look_up(layers_in_pattern, pattern_of(model), block.name)[0]
            for block in blocks
            if block.part == "layers"
        }
    counts: dict[str, Numeric] = {}
    remaining: Numeric = np.asanyarray(count)
    repeated = [block for block in blocks if block.part == "layers"]
    experts = model.experts if isinstance(model, Transformer) else None
    for index, block in enumerate(repeated):
        if experts is not None and block.name == "layer" and index + 1 < len(repeated):
            counts[block.name] = remaining - np.maximum(remaining - experts.dense_first, 0) // experts.every
        else:
            counts[block.name] = np.minimum(remaining, block.repeats)
        remaining = remaining - counts[block.name]
    return counts


def _trains(batch: Batch) -> bool:
    return batch.base.workload.task == "training"


# ---- Tensor parallelism that does not divide a model: what is padded so that every rank holds as much


def pads_dimensions(point: DesignPoint) -> bool:
    """Return whether what tp does not divide is padded in designs like *point*."""
    return point.workload.uneven_tp == "pad" and isinstance(point.model, Transformer)


def round_up(size: Numeric, ways: Numeric) -> Numeric:
    """Return the least multiple of *ways* that holds *size*.

    >>> round_up(160, 64), round_up(160, 32)
    (192, 160)
    """
    return -(-size // ways) * ways


def pad_dimensions(model: Transformer, tp: Numeric, etp: Numeric) -> Mapping[str, Numeric]:
    """Return the padded sizes of the dimensions that tp, or the experts' etp, need not divide.

    >>> wide = Transformer(layers=1, hidden=25600, heads=160, ffn=102400, vocab=51200)
    >>> {name: int(size) for name, size in pad_dimensions(wide, 64, 1).items()}
    {'heads': 192, 'kv_heads': 192, 'ffn': 102400, 'shared_ffn': 0}
    """
    experts = model.experts
    sizes = {
        **_pad_heads(model, tp),
        "ffn": round_up(model.ffn, tp),
        "shared_ffn": round_up(experts.shared_ffn if experts else 0, tp),
    }
    if experts:
        sizes["expert_ffn"] = round_up(experts.ffn, etp)
    return sizes


def _pad_heads(model: Transformer, tp: Numeric) -> dict[str, Numeric]:
    """Return the heads of attention after padding, and the groups that share keys and values.

    A rank's queries read the keys that it has. It has k = ceil(G / tp) of G groups, of H / G queries each; where there
    are fewer groups than ranks, floor(tp / G) ranks at least share one and its queries. Groups of a low-rank projection
    of the output (`model.sparse`) are padded whole. Heads that tp divides stay as they are.
    """
    heads = model.heads
    if model.sparse:
        groups = round_up(model.sparse.o_groups, tp)
        return {"heads": groups * (heads // model.sparse.o_groups), "o_groups": groups}
    if model.mla:
        return {"heads": round_up(heads, tp)}
    groups = model.kv_heads
    shared = heads // groups
    several = -(-groups // tp) * shared
    few = -(-shared // np.maximum(tp // groups, 1))
    per_rank = np.where(np.asanyarray(groups >= tp), several, few)
    even = np.asanyarray(heads % tp == 0)
    padded: Numeric = np.where(even, heads, per_rank * tp)[()]
    return {"heads": padded, "kv_heads": np.where(even, groups, round_up(groups, tp))[()]}
