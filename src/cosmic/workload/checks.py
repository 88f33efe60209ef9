"""Whether a workload fits its model and its mesh, and what to change where it does not.

Each rule is a test over a batch and a sentence about one design. A design that breaks a rule cannot run: that is
a result with reasons, not an error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.design.batch import Batch, batch_of, has_gaps, known
from cosmic.design.model import Recommender, Transformer, is_moe
from cosmic.design.point import DesignPoint
from cosmic.design.program import ProgramModel
from cosmic.graphs.wired import faults_hold, faults_sentence
from cosmic.numeric import Condition, Numeric
from cosmic.workload.adapters import targets_of, trained_weights, workload_blocks
from cosmic.workload.cut import layers_of, stated_layers
from cosmic.workload.expert_checks import (
    expert_ranks_fit,
    expert_ranks_sentence,
    expert_tokens_differ,
    expert_tokens_sentence,
    experts_fit,
    experts_sentence,
    shards_fit,
    shards_sentence,
)
from cosmic.workload.fabrics import fabrics_hold, fabrics_sentence
from cosmic.workload.fields import of_workload as _w
from cosmic.workload.fields import transformer_of as _transformer
from cosmic.workload.island_checks import islands_apart, islands_sentence
from cosmic.workload.padding import pads
from cosmic.workload.pooling import switches_work
from cosmic.workload.routing_checks import routing_fits, routing_sentence
from cosmic.workload.schedule import schedules
from cosmic.workload.sizes import microbatches, structural_paths

STAGE_LAYERS = ("workload.first_stage_layers", "workload.last_stage_layers")


@dataclass(frozen=True, slots=True)
class Rule:
    """One condition that every design must meet."""

    holds: Callable[[Batch], Condition]
    sentence: Callable[[DesignPoint], str]


def _ranks(batch: Batch) -> Numeric:
    return _w(batch, "dp") * _w(batch, "tp") * _w(batch, "cp") * _w(batch, "pp")


def _divides(name: str, whole: Callable[[Transformer], int]) -> Callable[[Batch], Condition]:
    def holds(batch: Batch) -> Condition:
        model = _transformer(batch)
        return True if model is None or pads(batch.base) else whole(model) % _w(batch, name) == 0

    return holds


def _undivided(of: str) -> Callable[[DesignPoint], str]:
    """Return the sentence about something *of* a model that tp does not divide."""
    return lambda p: (
        f"tp {p.workload.tp} does not divide the {of.format(model=p.model)}: choose a divisor, or set uneven_tp to pad"
    )


def _tokens_split(batch: Batch) -> Condition:
    ways = _w(batch, "cp")
    plain = isinstance(batch.base.model, ProgramModel)  # its annotations say what is split
    if batch.base.workload.sequence_parallel and batch.base.workload.task == "training" and not plain:
        ways = ways * _w(batch, "tp")
    return (_w(batch, "sequence") % ways == 0) | (batch.base.workload.task == "decode")


def _tokens_sentence(point: DesignPoint) -> str:
    w = point.workload
    split = f"cp {w.cp}" + (f" × tp {w.tp}" if w.sequence_parallel and w.task == "training" else "")
    return f"sequence {w.sequence} does not divide by {split}: lower them, or choose another sequence"


def _state_heads_split(batch: Batch) -> Condition:
    """Return whether heads of a state space split over tp and cp, and what groups of them share over tp."""
    model = _transformer(batch)
    if model is None or model.ssm is None:
        return True
    tp, cp = _w(batch, "tp"), _w(batch, "cp")
    together = (model.ssm.kind != "mamba1") | (cp == 1)
    return (model.ssm.heads % (tp * cp) == 0) & ((model.ssm.groups % tp == 0) | (model.ssm.kind == "mamba1")) & together


def _state_heads_sentence(point: DesignPoint) -> str:
    w, ssm = point.workload, point.model.ssm if isinstance(point.model, Transformer) else None
    if ssm is None:
        return ""
    if ssm.kind == "mamba1" and w.cp > 1:
        return f"cp {w.cp}: the scan of Mamba-1 is not split over sequences, set cp to 1"
    if ssm.heads % (w.tp * w.cp):
        return f"tp {w.tp} × cp {w.cp} does not divide the {ssm.heads} heads of the state space: choose divisors"
    return f"tp {w.tp} does not divide the {ssm.groups} groups of the state space: choose a divisor"


def _layers(point: DesignPoint) -> int:
    model = point.model
    return layers_of(model)


def _program_runs(batch: Batch) -> Condition:
    """Return whether each axis of a mesh has something of a program to split."""
    model = batch.base.model
    if not isinstance(model, ProgramModel):
        return True
    runs: Condition = (_w(batch, "ep") == 1) & (batch.base.workload.task != "decode")
    runs = runs & (batch.base.workload.recompute != "selective") & (batch.base.workload.lora_rank is None)
    runs = runs & ((_w(batch, "cp") == 1) | (batch.base.workload.cp_comm_type != "ulysses"))
    for each in model.cuts:
        runs = runs & (_w(batch, each.axis) == model.cut_to(each.axis))
    for axis in ("tp", "cp"):
        runs = runs & ((_w(batch, axis) == 1) | (axis in model.axes))
    return runs & ((_w(batch, "dp") == 1) | ("batch" in model.sizes) | ("dp" in model.axes))


def program_sentence(point: DesignPoint) -> str:
    """Return why a program does not run so."""
    w, model = point.workload, point.model
    axes = model.axes if isinstance(model, ProgramModel) else frozenset()
    if w.task == "decode":
        return "task decode: a program has no KV cache, run it with task prefill or training"
    if w.recompute == "selective":
        return "recompute selective: its modules are those of transformers, set it to none, full or alternate"
    if w.lora_rank is not None:
        return "lora_rank: a program has no modules that adapters could be named by, leave it out"
    if w.ep > 1:
        return f"ep {w.ep}: annotations of a program name dp, cp and tp, set ep to 1"
    if w.cp > 1 and w.cp_comm_type == "ulysses":
        return "cp_comm_type ulysses: annotations of a program say what is split, set it to ring or all_gather"
    for each in model.cuts if isinstance(model, ProgramModel) else ():
        if getattr(w, each.axis) != prod(each.parts):
            parts = "*".join(map(str, each.parts))
            return (
                f"{each.axis} {getattr(w, each.axis)}: the program cuts it into {parts}, set it to {prod(each.parts)}"
            )
    for axis in ("tp", "cp"):
        if (size := getattr(w, axis)) > 1 and axis not in axes:
            return f"{axis} {size}: no annotation of the program names {axis}, annotate a tensor or set it to 1"
    return f"dp {w.dp}: the program has no dimension called batch, which replicas would split: name it"


def _stages_fit(batch: Batch) -> Condition:
    """Return whether there are layers for all stages; those that state some have `_stage_layers_fit`."""
    virtual = _w(batch, "virtual_stages")
    fit: Condition = _w(batch, "pp") * virtual <= _layers(batch.base) + 2 * (virtual > 1)
    first, last = (stated_layers(batch[path], 1) for path in STAGE_LAYERS)
    return fit if first is last else fit | (first.given + last.given > 0)


def _stage_layers_fit(batch: Batch) -> Condition:
    """Return whether the layers that first and last stage state can be theirs, and the others have some too.

    With virtual stages, one that has the embedding or the head may have no layers, unless they are stated.
    """
    first, last = (stated_layers(batch[path], 1) for path in STAGE_LAYERS)
    if batch.base.workload.stage_layers != "even":
        alone: Condition = (first.given + last.given == 0) & (_copies(batch.base, _w(batch, "pp")) == 1)
        return alone
    if first is last:
        return True  # neither is stated
    pp, virtual, ends = _w(batch, "pp"), _w(batch, "virtual_stages"), first.given + last.given
    others = (pp - ends) * virtual
    rest = _layers(batch.base) - first.layers - last.layers
    whole = (first.layers % virtual == 0) & (last.layers % virtual == 0)
    enough = (rest >= 0) & (others <= rest + (2 - ends) * (virtual > 1)) & ((others > 0) | (rest == 0))
    fit: Condition = (ends == 0) | ((pp > 1) & (_copies(batch.base, pp) == 1) & whole & enough)
    return fit


def _copies(point: DesignPoint, stages: Numeric) -> Numeric:
    """Return how many stages' worth of layers a stage holds: two where microbatches enter at both ends."""
    return schedules[point.workload.schedule].parameter_copies(stages) if point.workload.task == "training" else 1


def _stage_layers_sentence(point: DesignPoint) -> str:
    w, layers = point.workload, _layers(point)
    ends = {"first_stage_layers": w.first_stage_layers, "last_stage_layers": w.last_stage_layers}
    stated = {key: count for key, count in ends.items() if count is not None}
    said = " + ".join(f"{key} {count}" for key, count in stated.items())
    if w.stage_layers != "even":
        clash = f"stage_layers {w.stage_layers} with {said or w.schedule}"
        return f"{clash}: {'give one of both' if said else 'its stages have layers of both ends, set it to even'}"
    if w.pp == 1:
        return f"{said} with pp 1: one stage has all layers, leave it out"
    if _copies(point, w.pp) != 1:
        return f"{said} with {w.schedule}: its stages have layers of both ends, leave it out or choose another schedule"
    if odd := [f"{key} {count}" for key, count in stated.items() if count % w.virtual_stages]:
        return f"{odd[0]} does not divide by virtual_stages {w.virtual_stages}: choose a multiple"
    rest, others = layers - sum(stated.values()), w.pp - len(stated)
    if rest < 0:
        return f"{said} is more than the {layers} layers there are: lower it"
    if not others:
        return f"{said} is not the {layers} layers of pp {w.pp}: make them equal, or leave one of them out"
    each = f" × virtual_stages {w.virtual_stages}" if w.virtual_stages > 1 else ""
    return f"{said} leaves {rest} of {layers} layers for the other {others} stages{each}: lower it"


def _schedule_runs(batch: Batch) -> Condition:
    if batch.base.workload.task != "training":
        return _w(batch, "virtual_stages") == 1
    schedule = schedules[batch.base.workload.schedule]
    return schedule.runs(_w(batch, "pp"), microbatches(batch), _w(batch, "virtual_stages"))


def _schedule_sentence(point: DesignPoint) -> str:
    w = point.workload
    if w.task != "training":
        return f"virtual_stages {w.virtual_stages}: only training interleaves stages, set it to 1"
    count = int(microbatches(batch_of(point)))
    return schedules[w.schedule].invalid_reason(w.pp, count, w.virtual_stages) or ""


def _multiplies(batch: Batch) -> Condition:
    """Return whether accelerators multiply in the format of a training step; who serves may widen weights instead."""
    workload = batch.base.workload
    if workload.task != "training" or workload.precision not in ("fp8", "fp4", "int4"):
        return True
    if workload.precision == "int4":
        return False
    return _is_known(batch[f"compute.{workload.precision}"])


def _decodes(batch: Batch) -> Condition:
    model = _transformer(batch)
    return batch.base.workload.task != "decode" or (
        model is not None and model.family in ("decoder", "encoder_decoder")
    )


def _tokens_fit(batch: Batch) -> Condition:
    """Return whether a sample has the tokens that its model gives it: an image its patches, a recommender's one."""
    model, sequence = _transformer(batch), _w(batch, "sequence")
    if model is None:
        free = isinstance(batch.base.model, ProgramModel) and "sequence" in batch.base.model.sizes
        return True if free else sequence == 1
    return True if model.image is None else sequence == model.image.tokens


def _tokens_fit_sentence(point: DesignPoint) -> str:
    model, sequence = point.model, point.workload.sequence
    if isinstance(model, Transformer) and model.image is not None:
        return f"sequence {sequence}: an image has {model.image.tokens} tokens: set it to that, or change model.image"
    if isinstance(model, ProgramModel):
        return f"sequence {sequence}: the program has no dimension called sequence: set it to 1, or name one"
    return f"sequence {sequence}: a recommender has samples, not tokens: set it to 1"


def _has_adapters(batch: Batch) -> Condition:
    """Return whether some module of the model has an adapter, where there are to be some."""
    targets = targets_of(batch.base.workload)
    return not targets or any(
        trained_weights(block, True) for block in workload_blocks(batch.base.model, False, targets)
    )


def _power_is_known(batch: Batch) -> Condition:
    """Return whether designs with a power cap say of what power it is a share."""
    cap, tdp = batch["compute.power_cap"], batch["compute.power"]
    if cap is None:
        return True
    of_cap = _is_known(tdp)
    return of_cap | np.isnan(known(cap)) if has_gaps(cap) else of_cap


def _is_known(figure: Any) -> Condition:
    """Return in which designs a figure is known."""
    return ~np.isnan(known(figure)) if has_gaps(figure) else figure is not None


def _processor_is_known(batch: Batch) -> bool:
    """Return whether an optimizer that runs on the host's processor has one, whose bandwidth is known."""
    workload = batch.base.workload
    return workload.optimizer_device == "gpu" or workload.task != "training" or not _processor_reason(batch.base)


def _processor_reason(point: DesignPoint) -> str:
    memory, workload = point.memory, point.workload
    outer = [each for each in memory.tiers if each.access == "copy"]
    classes = ("optimizer", "expert_optimizer") if is_moe(point.model) else ("optimizer",)
    listed = {name for state in classes for name in memory.placement.of(state)}
    if not outer or ("optimizer" not in workload.offload and not listed & {each.name for each in outer}):
        return "no optimizer states are in an outer tier: place them there, or set optimizer_device to gpu"
    if outer[0].processor_bandwidth_bytes_per_s is None:
        place = memory.tiers.index(outer[0])
        return (
            f"the bandwidth of {outer[0].name}'s processor is not known: "
            f"give memory.tiers.{place}.processor_bandwidth, or set optimizer_device to gpu"
        )
    return ""


RULES = {
    "task": Rule(
        _decodes,
        lambda p: f"{p.model.family} models decode no tokens: set task to training, or to prefill for one forward pass",
    ),
    "sequence": Rule(_tokens_fit, _tokens_fit_sentence),
    "ranks": Rule(
        lambda b: _ranks(b) == b.npus,
        lambda p: (
            f"dp {p.workload.dp} × tp {p.workload.tp} × cp {p.workload.cp} × pp {p.workload.pp} = "
            f"{p.workload.ranks} ranks on {p.network.npus} NPUs: make them equal"
        ),
    ),
    "heads": Rule(
        _divides("tp", lambda model: model.heads),
        _undivided("{model.heads} heads"),
    ),
    "ffn": Rule(
        _divides("tp", lambda model: model.ffn),
        _undivided("feed-forward width {model.ffn}"),
    ),
    "head_groups": Rule(
        _divides("tp", lambda model: model.sparse.o_groups if model.sparse else 0),
        _undivided("groups of heads, model.sparse.o_groups"),
    ),
    "state_heads": Rule(_state_heads_split, _state_heads_sentence),
    "tokens": Rule(_tokens_split, _tokens_sentence),
    "stages": Rule(
        _stages_fit,
        lambda p: (
            f"pp {p.workload.pp} × virtual_stages {p.workload.virtual_stages} is more than the {_layers(p)} "
            "layers there are: lower it"
        ),
    ),
    "stage_layers": Rule(_stage_layers_fit, _stage_layers_sentence),
    "experts": Rule(experts_fit, experts_sentence),
    "routing": Rule(routing_fits, routing_sentence),
    "expert_shards": Rule(shards_fit, shards_sentence),
    "expert_ranks": Rule(expert_ranks_fit, expert_ranks_sentence),
    "expert_tokens": Rule(expert_tokens_differ, expert_tokens_sentence),
    "batch": Rule(
        lambda b: _w(b, "global_batch") % (_w(b, "dp") * _w(b, "micro_batch")) == 0,
        lambda p: (
            f"global_batch {p.workload.global_batch} does not divide by dp {p.workload.dp} × micro_batch "
            f"{p.workload.micro_batch}: choose a multiple of {p.workload.dp * p.workload.micro_batch}"
        ),
    ),
    "schedule": Rule(_schedule_runs, _schedule_sentence),
    "precision": Rule(
        _multiplies,
        lambda p: (
            "int4 is a format of served weights: train in bf16 or fp8"
            if p.workload.precision == "int4"
            else f"{p.compute.accelerator or 'the accelerator'} multiplies no {p.workload.precision}: choose bf16"
        ),
    ),
    "tables": Rule(
        lambda b: (_w(b, "tp") * _w(b, "cp") * _w(b, "pp") == 1) | (not isinstance(b.base.model, Recommender)),
        lambda _: "a recommender is spread over dp alone: set tp, cp and pp to 1",
    ),
    "program": Rule(_program_runs, program_sentence),
    "adapters": Rule(
        _has_adapters,
        lambda p: (
            f"lora_targets {', '.join(p.workload.lora_targets)}: the model has no such module, so that there "
            "would be no adapter: name others"
        ),
    ),
    "islands": Rule(islands_apart, islands_sentence),
    "network": Rule(faults_hold, faults_sentence),
    "fabric": Rule(fabrics_hold, fabrics_sentence),
    "power": Rule(
        _power_is_known,
        lambda p: (
            f"power_cap {p.compute.power_cap_w:g} W: no power is known for "
            f"{p.compute.accelerator or 'the accelerator'}, of which it would be a share: give compute.power"
        ),
    ),
    "processor": Rule(_processor_is_known, lambda p: f"optimizer_device cpu: {_processor_reason(p)}"),
    "pool": Rule(
        lambda b: switches_work(b.base),
        lambda _: (
            "memory.tiers.*.pool.in_switch without sharded state in the pool: set weight_sharding to zero3, and place "
            "weights or gradients in the pool alone"
        ),
    ),
    "offload": Rule(
        lambda b: not b.base.workload.offload or bool(b.base.memory.tiers),
        lambda p: (
            f"offload {', '.join(p.workload.offload)} without outer tiers: give memory.tiers, or empty offload"
            + (f"; no memory behind its accelerators is known of {p.node.name}" if p.node.name else "")
        ),
    ),
}
"""Every rule by its name."""


def invalid_reasons(design: DesignPoint | Batch) -> tuple[str, ...]:
    """Return why a design (or a batch of one) cannot run, one sentence for each rule that it breaks."""
    batch = batch_of(design) if isinstance(design, DesignPoint) else design
    return tuple(rule.sentence(batch.base) for rule in RULES.values() if not rule.holds(batch))


def fits(batch: Batch) -> dict[str, npt.NDArray[np.bool_]]:
    """Return for each rule which designs of *batch* meet it."""
    met = {name: np.ones(batch.size, dtype=bool) for name in RULES}
    for rows, part in batch.groups(structural_paths(batch)):
        for name, holds in held(part).items():
            met[name][rows] = holds
    return met


def held(part: Batch) -> dict[str, Condition]:
    """Return for each rule which designs of a batch that share one plan meet it: one answer, or one for each."""
    return {name: rule.holds(part) for name, rule in RULES.items()}
