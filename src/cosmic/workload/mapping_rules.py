"""The rules of a valid mapping: whether a workload fits its model, mesh and network, and what to change if not.

Each rule is a test over a batch and a sentence about one design. A design that breaks a rule cannot run: that is
a result with reasons, not an error.

Rules of experts: their mesh lies inside that of a pipeline stage, etp × ep × edp = tp × cp × dp.

Rules of routing: whether skew, capacity and copies of experts go with the model and the task.

Rules of islands: whether they can exchange parameters every few steps.

Rules of links: whether those that are listed, and those that faults leave, join all NPUs.

Rules of fabrics: switches where a topology has them, and ports wide enough.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.base.numeric import Condition, Numeric
from cosmic.design.design_batch import Batch, Combinations, Label, batch_of, has_gaps, none_to_nan
from cosmic.design.design_point import DesignPoint
from cosmic.design.model_layer import Recommender, Transformer, is_moe
from cosmic.design.network_layer import BY_BANDWIDTH, INCLUDED, builds
from cosmic.design.program_model import ProgramModel
from cosmic.network.dimension_wiring import (
    PLAIN,
    connection_terms,
    dimension_label,
    disconnection_reason,
    fault_reason,
    label_of,
    wiring_at,
)
from cosmic.workload.expert_routing import capacity_of
from cosmic.workload.lora_adapters import targets_of, trained_weights, workload_blocks
from cosmic.workload.mesh_sizes import (
    expert_degrees,
    islands_of,
    microbatches,
    pads_dimensions,
    structural_paths,
)
from cosmic.workload.pipeline_cut import layers_of, stated_layers
from cosmic.workload.pipeline_schedule import schedules

# ---- Memory pools behind switches that gather and reduce: which state they spare the network between accelerators

IN_SWITCH_STATES = ("weights", "experts", "gradients", "expert_gradients")
"""Classes of state that switches of a memory pool can gather or reduce."""


def switched_in(point: DesignPoint, state: str) -> int | None:
    """Return the number of the tier whose switches gather or reduce a class of state; None where none does."""
    if state not in IN_SWITCH_STATES or not point.workload.shards_weights:
        return None
    if state.startswith("expert") and not is_moe(point.model):
        return None
    listed = point.memory.placement.of(state)
    for index, tier in enumerate(point.memory.tiers):
        if tier.pool is not None and tier.pool.in_switch and listed == (tier.name,):
            return index
    return None


def switches_work(point: DesignPoint) -> bool:
    """Return whether switches that gather and reduce have something to do, if there are some."""
    has_switch = any(tier.pool is not None and tier.pool.in_switch for tier in point.memory.tiers)
    return not has_switch or any(switched_in(point, state) is not None for state in IN_SWITCH_STATES)


# ---- What rules of a valid mapping read of a batch


def workload_column(batch: Batch, name: str) -> Numeric:
    """Return a field of the workload."""
    value: Numeric = batch[f"workload.{name}"]
    return value


def transformer_of(batch: Batch) -> Transformer | None:
    """Return the model; None if it is no transformer."""
    return batch.base.model if isinstance(batch.base.model, Transformer) else None


# ---- Rules of experts: their mesh lies inside that of a pipeline stage, etp × ep × edp = tp × cp × dp


def experts_fit(batch: Batch) -> Condition:
    """Return whether ep divides the experts."""
    model, ep = transformer_of(batch), workload_column(batch, "ep")
    if model is None or model.experts is None:
        return ep == 1
    return (model.experts.count + workload_column(batch, "num_redundant_experts")) % ep == 0


def experts_sentence(point: DesignPoint) -> str:
    """Say why ep does not fit."""
    experts = point.model.experts if isinstance(point.model, Transformer) else None
    if experts is None:
        return f"ep {point.workload.ep} without experts: the model has none, set ep to 1"
    more = point.workload.num_redundant_experts
    counted = f"{experts.count} experts" + (f" and {more} redundant ones" if more else "")
    return f"ep {point.workload.ep} does not divide the {counted}: choose a divisor"


def _expert_tensor(batch: Batch) -> Numeric:
    return expert_degrees(batch)["etp"]


def shards_fit(batch: Batch) -> Condition:
    """Return whether etp divides tp and the width of experts."""
    model = transformer_of(batch)
    if model is None or model.experts is None:
        return _states_no_etp(batch)
    within: Condition = workload_column(batch, "tp") % _expert_tensor(batch) == 0
    return within if pads_dimensions(batch.base) else within & (model.experts.ffn % _expert_tensor(batch) == 0)


def _states_no_etp(batch: Batch) -> Condition:
    """Return whether designs without experts leave etp out, or give it as 1."""
    etp = batch["workload.etp"]
    if has_gaps(etp):
        numbers = none_to_nan(etp)
        stated_as_1: Condition = np.isnan(numbers) | (numbers == 1)
    else:
        stated_as_1 = True if etp is None else etp == 1
    return stated_as_1


def shards_sentence(point: DesignPoint) -> str:
    """Say why etp does not fit."""
    w = point.workload
    experts = point.model.experts if isinstance(point.model, Transformer) else None
    if experts is None:
        return f"etp {w.etp} without experts: the model has none, leave etp out"
    if w.tp % w.expert_tensor:
        return f"etp {w.etp} does not divide tp {w.tp}: choose a divisor"
    note = "" if w.etp else ", which is tp where ep leaves it,"
    short = f"etp {w.expert_tensor}{note} does not divide the experts' width {experts.ffn}"
    return f"{short}: choose a divisor as etp, or set uneven_tp to pad"


def expert_ranks_fit(batch: Batch) -> Condition:
    """Return whether etp and ep divide a stage's ranks."""
    if not is_moe(batch.base.model):
        return True
    return (workload_column(batch, "tp") * workload_column(batch, "cp") * workload_column(batch, "dp")) % (
        _expert_tensor(batch) * workload_column(batch, "ep")
    ) == 0


def expert_ranks_sentence(point: DesignPoint) -> str:
    """Say that etp and ep do not divide a stage's ranks."""
    w = point.workload
    etp = f"etp {w.etp} × " if w.etp else ""
    return f"{etp}ep {w.ep} does not divide tp × cp × dp = {w.tp * w.cp * w.dp}: choose a divisor"


def expert_tokens_differ(batch: Batch) -> Condition:
    """Return whether ranks of tp with the same tokens have different experts, or different parts of them."""
    workload = batch.base.workload
    if not is_moe(batch.base.model) or (workload.sequence_parallel and workload.task == "training"):
        return True
    return (_expert_tensor(batch) * workload_column(batch, "ep")) % workload_column(batch, "tp") == 0


def expert_tokens_sentence(point: DesignPoint) -> str:
    """Say that ranks of tp would do the same work."""
    w = point.workload
    alternative = "set sequence_parallel, or " if w.task == "training" else ""
    return (
        f"etp {w.expert_tensor} × ep {w.ep} does not divide by tp {w.tp}, so that ranks would do the same work: "
        f"{alternative}leave etp out"
    )


# ---- Whether the links of a network, as far as they are listed or have faults, join all its NPUs


def _faults_hold(batch: Batch) -> Condition:
    """Return in which designs all links that are listed or have faults still join all NPUs."""
    network = batch.base.network
    if any(fault_reason(network, fault) for fault in network.faults):
        return False
    met: Condition = True
    for index in range(len(network.dims)):
        if wiring_at(network, index) != PLAIN:
            sizes = Combinations(dimension_label(batch, index), batch[f"network.dims.{index}.npus"])
            met = met & (sizes.look_up(connection_terms)[0] > 0)
    return met


def _faults_sentence(point: DesignPoint) -> str:
    """Say which links of a design's network are faulty or missing."""
    network = point.network
    for index, fault in enumerate(network.faults):
        if reason := fault_reason(network, fault):
            return f"network.faults.{index}: {reason}"
    for number, dim in enumerate(network.dims):
        if reason := disconnection_reason(str(label_of(dim.topology, wiring_at(network, number))), dim.npus):
            return f"network dimension {number}: {reason}"
    return "the NPUs are not connected"


# ---- Whether a network can be built as its fabrics say: switches where a topology has them, and ports wide enough


def fabrics_hold(batch: Batch) -> Condition:
    """Return whether every dimension has a topology that its build can carry."""
    holds: Condition = True
    for index in range(len(batch.base.network.dims)):
        build, topology = (batch[f"network.dims.{index}.{key}"] for key in ("fabric.build", "topology"))
        for name in _label_names(build):
            carried = _carried_links(name)
            if carried:
                holds = holds & ((build != name) | _is_among(topology, carried))
        holds = holds & _has_ports(batch, index)
    return holds


def fabrics_sentence(point: DesignPoint) -> str:
    """Return which dimension cannot be built so, and why."""
    for index, dim in enumerate(point.network.dims):
        carried, where = _carried_links(dim.fabric.build), f"network.dims.{index}"
        if carried and dim.topology not in carried:
            rule = f"cables between neighbours make a {' or a '.join(carried)}"
            return f"{where}.fabric.build {dim.fabric.build} of a {dim.topology}: {rule}, choose a build with switches"
    return (
        "network.dims: a switch has fewer than two ports at the bandwidth of a NIC: lower bandwidth, or name another "
        "fabric.switch"
    )


def _carried_links(build: str) -> tuple[str, ...]:
    """Return the topologies that a build is limited to; none where it carries any."""
    return tuple(getattr(builds[build], "topologies", ()))


def _label_names(label: Label) -> tuple[str, ...]:
    return (label,) if isinstance(label, str) else label.names


def _is_among(label: Any, names: tuple[str, ...]) -> Condition:
    matches: Condition = False
    for name in names:
        matches = matches | (label == name)
    return matches


def _has_ports(batch: Batch, index: int) -> Condition:
    """Return whether two NICs fit on a switch, where the fabric says how wide its ports are, and has switches."""
    where = f"network.dims.{index}"
    build, width = batch[f"{where}.fabric.build"], batch[f"{where}.fabric.port_bandwidth"]
    if width is None:
        return True
    enough = batch[f"{where}.fabric.radix"] * none_to_nan(width) >= 2 * batch[f"{where}.bandwidth"]
    free: Condition = _is_among(build, (BY_BANDWIDTH, INCLUDED))
    for name in _label_names(build):
        if _carried_links(name):  # no switch at all
            free = free | (build == name)
    unknown = none_to_nan(width) != none_to_nan(width)
    fits: Condition = free | enough | unknown
    return fits


# ---- Whether islands can exchange parameters every few steps: the rule of `cosmic.workload.mapping_rules`, and its sentence


def islands_apart(batch: Batch) -> Condition:
    """Return whether islands that exchange parameters now and then are replicas: only dp joins them."""
    workload, last = batch.base.workload, len(batch.base.network.dims) - 1
    if not workload.exchanges_apart:
        return workload.sync_compression == 1
    if last < 0 or isinstance(batch.base.model, Recommender):
        return False
    outside = workload.placement[workload.placement.index("dp") + 1 :]
    alone: Condition = True
    for axis in outside:
        alone = alone & (batch[f"workload.{axis}"] == 1)
    islands, dp = islands_of(batch), batch["workload.dp"]
    fits: Condition = alone & (dp % islands == 0)
    if not is_moe(batch.base.model):
        return fits
    degrees, ranks = expert_degrees(batch), batch["workload.tp"] * batch["workload.cp"] * dp
    divides: Condition = fits & (ranks % (degrees["etp"] * degrees["ep"] * islands) == 0)
    return divides


def islands_sentence(point: DesignPoint) -> str:
    """Return why islands cannot, and what to change."""
    w = point.workload
    if not w.exchanges_apart:
        return f"sync_compression {w.sync_compression:g} with sync_period {w.sync_period}: set sync_period above 1"
    if isinstance(point.model, Recommender) or not point.network.dims:
        return (
            f"sync_period {w.sync_period}: there are no replicas of a whole model that could exchange it, set it to 1"
        )
    islands = point.network.dims[-1].npus
    return (
        f"sync_period {w.sync_period}: the outermost network dimension joins {islands} islands, which dp {w.dp} must "
        "fill alone: choose a multiple of it as dp, put dp last in placement, and keep ep inside an island"
    )


# ---- Whether what a workload says of routing goes with its model and its task

KEYS = ("moe_routing_skew", "moe_expert_capacity_factor", "num_redundant_experts", "enable_eplb")


def routing_fits(batch: Batch) -> Condition:
    """Return whether there are experts to route to, one capacity, and copies only where they serve."""
    workload, model = batch.base.workload, batch.base.model
    capacity = capacity_of(batch)
    copies = batch["workload.num_redundant_experts"]
    if workload.moe_pad_expert_input_to_capacity and workload.moe_expert_capacity_factor is None:
        return False
    if not is_moe(model):
        plain: Condition = (batch["workload.moe_routing_skew"] == 0) & (capacity == 0)
        alone: Condition = plain & (copies == 0) & (not workload.enable_eplb)
        return alone
    twice = isinstance(model, Transformer) and model.experts is not None and model.experts.capacity_factor is not None
    once: Condition = (capacity == 0) | (not twice)
    spread = (copies == 0) | ((batch["workload.ep"] > 1) & workload.enable_eplb)
    served: Condition = once & spread & (not (workload.enable_eplb and workload.task == "training"))
    return served


def routing_sentence(point: DesignPoint) -> str:
    """Return what to change."""
    w = point.workload
    if w.moe_pad_expert_input_to_capacity and w.moe_expert_capacity_factor is None:
        return (
            "moe_pad_expert_input_to_capacity without moe_expert_capacity_factor, which says how many rows: give both"
        )
    if w.num_redundant_experts and not w.enable_eplb:
        return f"num_redundant_experts {w.num_redundant_experts} without enable_eplb, which places copies: set it"
    if not is_moe(point.model):
        set_key = next((key for key in KEYS if getattr(w, key)), KEYS[0])
        return f"{set_key} {getattr(w, set_key)} without experts: the model has none, leave it out"
    if w.enable_eplb and w.task == "training":
        return "enable_eplb in training: copies would need the sum of their gradients, leave it out"
    if w.num_redundant_experts and w.ep == 1:
        return f"num_redundant_experts {w.num_redundant_experts} with ep 1: one rank has all experts, leave it out"
    return (
        f"moe_expert_capacity_factor {w.moe_expert_capacity_factor:g} beside model.experts.capacity_factor: "
        "give one of both"
    )


# ---- Whether a workload fits its model and its mesh, and what to change where it does not

STAGE_LAYERS = ("workload.first_stage_layers", "workload.last_stage_layers")


@dataclass(frozen=True, slots=True)
class Rule:
    """One condition that every design must meet."""

    holds: Callable[[Batch], Condition]
    sentence: Callable[[DesignPoint], str]


def _stage_ranks(batch: Batch) -> Numeric:
    return (
        workload_column(batch, "dp")
        * workload_column(batch, "tp")
        * workload_column(batch, "cp")
        * workload_column(batch, "pp")
    )


def _divides_width(name: str, size_of: Callable[[Transformer], int]) -> Callable[[Batch], Condition]:
    def holds(batch: Batch) -> Condition:
        model = transformer_of(batch)
        return (
            True if model is None or pads_dimensions(batch.base) else size_of(model) % workload_column(batch, name) == 0
        )

    return holds


def _undivided_sentence(of: str) -> Callable[[DesignPoint], str]:
    """Return the sentence about something *of* a model that tp does not divide."""
    return lambda p: (
        f"tp {p.workload.tp} does not divide the {of.format(model=p.model)}: choose a divisor, or set uneven_tp to pad"
    )


def _tokens_split(batch: Batch) -> Condition:
    ways = workload_column(batch, "cp")
    plain = isinstance(batch.base.model, ProgramModel)  # its annotations say what is split
    if batch.base.workload.sequence_parallel and batch.base.workload.task == "training" and not plain:
        ways = ways * workload_column(batch, "tp")
    return (workload_column(batch, "sequence") % ways == 0) | (batch.base.workload.task == "decode")


def _tokens_sentence(point: DesignPoint) -> str:
    w = point.workload
    split = f"cp {w.cp}" + (f" × tp {w.tp}" if w.sequence_parallel and w.task == "training" else "")
    return f"sequence {w.sequence} does not divide by {split}: lower them, or choose another sequence"


def _state_heads_split(batch: Batch) -> Condition:
    """Return whether heads of a state space split over tp and cp, and what groups of them share over tp."""
    model = transformer_of(batch)
    if model is None or model.ssm is None:
        return True
    tp, cp = workload_column(batch, "tp"), workload_column(batch, "cp")
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


def _count_layers(point: DesignPoint) -> int:
    model = point.model
    return layers_of(model)


def _program_runs(batch: Batch) -> Condition:
    """Return whether each axis of a mesh has something of a program to split."""
    model = batch.base.model
    if not isinstance(model, ProgramModel):
        return True
    runs: Condition = (workload_column(batch, "ep") == 1) & (batch.base.workload.task != "decode")
    runs = runs & (batch.base.workload.recompute != "selective") & (batch.base.workload.lora_rank is None)
    runs = runs & ((workload_column(batch, "cp") == 1) | (batch.base.workload.cp_comm_type != "ulysses"))
    for cut in model.cuts:
        runs = runs & (workload_column(batch, cut.axis) == model.cut_to(cut.axis))
    for axis in ("tp", "cp"):
        runs = runs & ((workload_column(batch, axis) == 1) | (axis in model.axes))
    return runs & ((workload_column(batch, "dp") == 1) | ("batch" in model.sizes) | ("dp" in model.axes))


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
    for cut in model.cuts if isinstance(model, ProgramModel) else ():
        if getattr(w, cut.axis) != prod(cut.parts):
            parts = "*".join(map(str, cut.parts))
            return f"{cut.axis} {getattr(w, cut.axis)}: the program cuts it into {parts}, set it to {prod(cut.parts)}"
    for axis in ("tp", "cp"):
        if (size := getattr(w, axis)) > 1 and axis not in axes:
            return f"{axis} {size}: no annotation of the program names {axis}, annotate a tensor or set it to 1"
    return f"dp {w.dp}: the program has no dimension called batch, which replicas would split: name it"


def _stages_fit(batch: Batch) -> Condition:
    """Return whether all stages get layers; `_stage_layers_fit` checks designs that state the layers of a stage."""
    virtual = workload_column(batch, "virtual_stages")
    fit: Condition = workload_column(batch, "pp") * virtual <= _count_layers(batch.base) + 2 * (virtual > 1)
    first, last = (stated_layers(batch[path], 1) for path in STAGE_LAYERS)
    return fit if first is last else fit | (first.given + last.given > 0)


def _stage_layers_fit(batch: Batch) -> Condition:
    """Return whether the layers stated for the first and the last stage leave some for every other stage.

    With virtual stages, one that has the embedding or the head may have no layers, unless they are stated.
    """
    first, last = (stated_layers(batch[path], 1) for path in STAGE_LAYERS)
    if batch.base.workload.stage_layers != "even":
        alone: Condition = (first.given + last.given == 0) & (
            _count_copies(batch.base, workload_column(batch, "pp")) == 1
        )
        return alone
    if first is last:
        return True  # neither is stated
    pp, virtual, ends = workload_column(batch, "pp"), workload_column(batch, "virtual_stages"), first.given + last.given
    sharing = (pp - ends) * virtual
    rest = _count_layers(batch.base) - first.layers - last.layers
    divides = (first.layers % virtual == 0) & (last.layers % virtual == 0)
    enough = (rest >= 0) & (sharing <= rest + (2 - ends) * (virtual > 1)) & ((sharing > 0) | (rest == 0))
    fit: Condition = (ends == 0) | ((pp > 1) & (_count_copies(batch.base, pp) == 1) & divides & enough)
    return fit


def _count_copies(point: DesignPoint, stages: Numeric) -> Numeric:
    """Return how many stages' worth of layers a stage holds: two where microbatches enter at both ends."""
    return schedules[point.workload.schedule].parameter_copies(stages) if point.workload.task == "training" else 1


def _stage_layers_sentence(point: DesignPoint) -> str:
    w, layers = point.workload, _count_layers(point)
    ends = {"first_stage_layers": w.first_stage_layers, "last_stage_layers": w.last_stage_layers}
    counts = {key: count for key, count in ends.items() if count is not None}
    settings = " + ".join(f"{key} {count}" for key, count in counts.items())
    if w.stage_layers != "even":
        clash = f"stage_layers {w.stage_layers} with {settings or w.schedule}"
        return f"{clash}: {'give one of both' if settings else 'its stages have layers of both ends, set it to even'}"
    if w.pp == 1:
        return f"{settings} with pp 1: one stage has all layers, leave it out"
    if _count_copies(point, w.pp) != 1:
        return f"{settings} with {w.schedule}: its stages have layers of both ends, leave it out or choose another schedule"
    if odd := [f"{key} {count}" for key, count in counts.items() if count % w.virtual_stages]:
        return f"{odd[0]} does not divide by virtual_stages {w.virtual_stages}: choose a multiple"
    rest, sharing = layers - sum(counts.values()), w.pp - len(counts)
    if rest < 0:
        return f"{settings} is more than the {layers} layers there are: lower it"
    if not sharing:
        return f"{settings} is not the {layers} layers of pp {w.pp}: make them equal, or leave one of them out"
    suffix = f" × virtual_stages {w.virtual_stages}" if w.virtual_stages > 1 else ""
    return f"{settings} leaves {rest} of {layers} layers for the other {sharing} stages{suffix}: lower it"


def _schedule_runs(batch: Batch) -> Condition:
    if batch.base.workload.task != "training":
        return workload_column(batch, "virtual_stages") == 1
    schedule = schedules[batch.base.workload.schedule]
    return schedule.runs(workload_column(batch, "pp"), microbatches(batch), workload_column(batch, "virtual_stages"))


def _schedule_sentence(point: DesignPoint) -> str:
    w = point.workload
    if w.task != "training":
        return f"virtual_stages {w.virtual_stages}: only training interleaves stages, set it to 1"
    count = int(microbatches(batch_of(point)))
    return schedules[w.schedule].invalid_reason(w.pp, count, w.virtual_stages) or ""


def _multiplies_format(batch: Batch) -> Condition:
    """Return whether accelerators multiply in the format of a training step; who serves may widen weights instead."""
    workload = batch.base.workload
    if workload.task != "training" or workload.precision not in ("fp8", "fp4", "int4"):
        return True
    if workload.precision == "int4":
        return False
    return _is_known(batch[f"compute.{workload.precision}"])


def _decodes(batch: Batch) -> Condition:
    model = transformer_of(batch)
    return batch.base.workload.task != "decode" or (
        model is not None and model.family in ("decoder", "encoder_decoder")
    )


def _tokens_fit(batch: Batch) -> Condition:
    """Return whether a sample has the tokens that its model gives it: an image its patches, a recommender's one."""
    model, sequence = transformer_of(batch), workload_column(batch, "sequence")
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
    return of_cap | np.isnan(none_to_nan(cap)) if has_gaps(cap) else of_cap


def _is_known(figure: Any) -> Condition:
    """Return in which designs a figure is known."""
    return ~np.isnan(none_to_nan(figure)) if has_gaps(figure) else figure is not None


def _processor_is_known(batch: Batch) -> bool:
    """Return whether an optimizer that runs on the host's processor has one, whose bandwidth is known."""
    workload = batch.base.workload
    return workload.optimizer_device == "gpu" or workload.task != "training" or not _processor_reason(batch.base)


def _processor_reason(point: DesignPoint) -> str:
    memory, workload = point.memory, point.workload
    outer = [tier for tier in memory.tiers if tier.access == "copy"]
    classes = ("optimizer", "expert_optimizer") if is_moe(point.model) else ("optimizer",)
    listed = {name for state in classes for name in memory.placement.of(state)}
    if not outer or ("optimizer" not in workload.offload and not listed & {tier.name for tier in outer}):
        return "no optimizer states are in an outer tier: place them there, or set optimizer_device to gpu"
    if outer[0].processor_bandwidth_bytes_per_s is None:
        index = memory.tiers.index(outer[0])
        return (
            f"the bandwidth of {outer[0].name}'s processor is not known: "
            f"give memory.tiers.{index}.processor_bandwidth, or set optimizer_device to gpu"
        )
    return ""


RULES = {
    "task": Rule(
        _decodes,
        lambda p: f"{p.model.family} models decode no tokens: set task to training, or to prefill for one forward pass",
    ),
    "sequence": Rule(_tokens_fit, _tokens_fit_sentence),
    "ranks": Rule(
        lambda b: _stage_ranks(b) == b.npus,
        lambda p: (
            f"dp {p.workload.dp} × tp {p.workload.tp} × cp {p.workload.cp} × pp {p.workload.pp} = "
            f"{p.workload.ranks} ranks on {p.network.npus} NPUs: make them equal"
        ),
    ),
    "heads": Rule(
        _divides_width("tp", lambda model: model.heads),
        _undivided_sentence("{model.heads} heads"),
    ),
    "ffn": Rule(
        _divides_width("tp", lambda model: model.ffn),
        _undivided_sentence("feed-forward width {model.ffn}"),
    ),
    "head_groups": Rule(
        _divides_width("tp", lambda model: model.sparse.o_groups if model.sparse else 0),
        _undivided_sentence("groups of heads, model.sparse.o_groups"),
    ),
    "state_heads": Rule(_state_heads_split, _state_heads_sentence),
    "tokens": Rule(_tokens_split, _tokens_sentence),
    "stages": Rule(
        _stages_fit,
        lambda p: (
            f"pp {p.workload.pp} × virtual_stages {p.workload.virtual_stages} is more than the {_count_layers(p)} "
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
        lambda b: (
            workload_column(b, "global_batch") % (workload_column(b, "dp") * workload_column(b, "micro_batch")) == 0
        ),
        lambda p: (
            f"global_batch {p.workload.global_batch} does not divide by dp {p.workload.dp} × micro_batch "
            f"{p.workload.micro_batch}: choose a multiple of {p.workload.dp * p.workload.micro_batch}"
        ),
    ),
    "schedule": Rule(_schedule_runs, _schedule_sentence),
    "precision": Rule(
        _multiplies_format,
        lambda p: (
            "int4 is a format of served weights: train in bf16 or fp8"
            if p.workload.precision == "int4"
            else f"{p.compute.accelerator or 'the accelerator'} multiplies no {p.workload.precision}: choose bf16"
        ),
    ),
    "tables": Rule(
        lambda b: (
            (workload_column(b, "tp") * workload_column(b, "cp") * workload_column(b, "pp") == 1)
            | (not isinstance(b.base.model, Recommender))
        ),
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
    "network": Rule(_faults_hold, _faults_sentence),
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


def rules_met_by_design(batch: Batch) -> dict[str, npt.NDArray[np.bool_]]:
    """Return for each rule which designs of *batch* meet it."""
    met = {name: np.ones(batch.size, dtype=bool) for name in RULES}
    for rows, part in batch.groups(structural_paths(batch)):
        for name, holds in evaluate_rules(part).items():
            met[name][rows] = holds
    return met


def evaluate_rules(part: Batch) -> dict[str, Condition]:
    """Return for each rule which designs of a batch that share one plan meet it: one answer, or one for each."""
    return {name: rule.holds(part) for name, rule in RULES.items()}
