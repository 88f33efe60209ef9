"""What of a mapping may be chosen: for one model on one machine, the values of each field and the rules between them.

Values that cannot exist for a model on its machine are left out, and so is what nobody would try: tensor parallelism
across hosts, context parallelism of short sequences, stages that are half empty. A switch without effect (a schedule
without a pipeline) has one value, so that no mapping is met twice.

`FRAMEWORKS` says what each training framework can launch: the values of each switch, which are declared beside it, and
the rules between them. The exporters in `cosmic.frameworks` say the same of one design, as warnings; a test draws mappings that a framework
allows and exports them without one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, product
from math import gcd, log2
from operator import mul
from typing import Any

from cosmic.base.errors import UnknownName
from cosmic.base.numeric import divisors
from cosmic.design.design_point import DesignPoint
from cosmic.design.field_facts import FieldFacts, facts_of
from cosmic.design.model_layer import (
    Experts,
    Recommender,
    Transformer,
    context_parts,
    count_active_parameters,
    tensor_parts,
)
from cosmic.design.program_model import ProgramModel
from cosmic.design.workload_layer import AXES, Workload
from cosmic.workload.mesh_sizes import pads_dimensions
from cosmic.workload.pipeline_cut import layers_of

# ---- What training frameworks can launch: the values of each switch of a mapping, and the rules between them

Placement = tuple[str, ...]
PIPELINE_OUTSIDE: Placement = AXES
ANY = "any"


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """What a framework can launch: values of fields, as declared beside them, and rules between fields."""

    name: str
    like: str = ""
    """The framework whose values it has where none are declared for itself."""
    uneven_stages: bool = True
    """Whether the last pipeline stage can have fewer layers than the others."""
    halved: tuple[str, ...] = ()
    """Schedules that give each stage two virtual stages, into which its layers must divide."""
    rules: tuple[str, ...] = ()
    """What it demands of a mapping, besides what every mapping must meet."""
    expert_rules: tuple[str, ...] = ()
    """What it demands of a mapping of experts."""

    def values(self, field: str) -> tuple[Any, ...]:
        """Return the values of a field of the workload that it can launch, simplest first."""
        launched = facts_of(Workload)[field].launched
        return launched.get(self.name, launched.get(self.like, ()))

    def launches(self, workload: Workload) -> bool:
        """Return whether it can launch a workload as far as single fields go."""
        return all(
            getattr(workload, name) in self.values(name)
            for name, about in facts_of(Workload).items()
            if about.launched and not _launched_anyhow(about, workload)
        )


def _launched_anyhow(about: FieldFacts, workload: Workload) -> bool:
    return about.launched_anyhow(workload) if about.launched_anyhow else bool(about.idle(workload))


OVERLAPPED_EXPERTS = (
    "not ep_overlap or ep > 1",
    'not ep_overlap or recompute != "full"',
    'not ep_overlap or pp == 1 or schedule in ["interleaved", "dualpipe"]',
)
"""Expert-parallel communication hides behind another microbatch, which the pipeline's schedule must have at hand."""

FRAMEWORKS = {
    "megatron": Framework(
        name="megatron",
        rules=('weight_sharding != "zero3" or pp == 1', "not tp_overlap or sequence_parallel"),
        expert_rules=(*OVERLAPPED_EXPERTS, "tp == 1 or sequence_parallel"),
    ),
    "torchtitan": Framework(
        name="torchtitan",
        halved=("zero_bubble", "dualpipe"),
        expert_rules=("(dp * cp) % ep == 0", "etp == tp", "ep == 1 or ep >= cp"),
    ),
    "deepspeed": Framework(
        name="deepspeed",
        uneven_stages=False,
        rules=('pp == 1 or weight_sharding == "zero1"', 'tp == 1 or weight_sharding != "zero3"'),
        expert_rules=("dp % ep == 0", "etp in [1, tp]"),
    ),
}
FRAMEWORKS[ANY] = replace(
    FRAMEWORKS["megatron"], name=ANY, like="megatron", rules=("not tp_overlap or sequence_parallel",)
)
"""By name; ``any`` is what at least one of them, or a researcher's branch of one, can launch."""


def framework_named(name: str) -> Framework:
    """Return a framework by its name."""
    if name not in FRAMEWORKS:
        raise UnknownName.among("--framework", name, "framework", FRAMEWORKS)
    return FRAMEWORKS[name]


MAX_UNEVENNESS = 1.15
"""Layers that all stages together have room for, over those there are: 61 layers on 16 stages of 4 are fine."""
MIN_HOST_NPUS = 8
"""Accelerators over which tensor parallelism may span at least, where the innermost dimension is smaller."""
MAX_TP = 64
"""Most ways in which tensors are split."""
MIN_RANK_TOKENS = 2048
"""Least tokens of a sequence that context parallelism leaves to a rank."""
MAX_PASS_TOKENS = 16_384
"""Tokens up to which a microbatch grows, if it has several sequences; eight are tried in any case."""
MIN_MICRO_BATCHES = 8
MAX_VIRTUAL_STAGES = 12
"""Virtual stages of a stage that are tried, at most."""
DEFAULT_MODULES = ("core_attn",)
PASS_TOKENS = 8192
"""Tokens of one forward pass over prompts: the usual max_num_batched_tokens of serving engines."""
SERVED_MICRO_BATCH = {
    "decode": "max(1, global_batch // (dp * pp))",
    "prefill": f"max(1, min({PASS_TOKENS} // sequence, global_batch // dp))",
}
"""What one pass of a replica serves, by task, as an expression of a parameter set."""


@dataclass(frozen=True, slots=True)
class MappingChoice:
    """One decision: the fields of the workload that it sets, and the values that it may give them, simplest first."""

    fields: tuple[str, ...]
    values: tuple[tuple[Any, ...], ...]


def list_choices(base: DesignPoint, framework: Framework) -> list[MappingChoice]:
    """Return what may be chosen for the task of *base*; dp follows from the other axes."""
    model = base.model
    if isinstance(model, Recommender):
        return [_single_value("micro_batch", _micro_batches(base))]
    experts, tensor = _experts(model), _tp_degrees(model, base)
    trained = base.workload.task == "training"
    choices = [
        _single_value("tp", tensor),
        _pipeline_choice(model, base, framework)
        if trained
        else MappingChoice(("pp", "placement"), tuple((pp, PIPELINE_OUTSIDE) for pp in stage_counts(model, base))),
    ]
    if experts is not None:
        choices.append(_single_value("ep", divisors(gcd(experts.count, base.network.npus))))
    if not trained:
        return choices
    choices += [_single_value("cp", _cp_degrees(base)), _launched_values("cp_comm_type", framework)]
    if experts is not None:
        choices.append(
            _single_value("etp", tuple(etp for etp in tensor if pads_dimensions(base) or experts.ffn % etp == 0))
        )
        choices.append(_launched_values("ep_overlap", framework))
    return [
        *choices,
        _single_value("micro_batch", _micro_batches(base)),
        _launched_values("weight_sharding", framework),
        MappingChoice(("recompute", "recompute_modules"), tuple(_recompute_modes(model, framework))),
        _launched_values("sequence_parallel", framework),
        _launched_values("tp_overlap", framework),
    ]


def list_rules(base: DesignPoint, framework: Framework) -> list[str]:
    """Return the rules between what may be chosen, as constraints of a parameter set."""
    model, workload = base.model, base.workload
    mesh = "dp * tp * cp * pp == npus"
    if isinstance(model, Recommender):
        return [mesh, "global_batch % (dp * micro_batch) == 0"]
    model_experts = _experts(model)
    experts = [] if model_experts is None else _expert_rules(base, model_experts)
    if workload.task != "training":
        return [mesh, "global_batch % dp == 0", *experts]
    schedules = framework.values("schedule")
    layers, trips = layers_of(model), "global_batch // (dp * micro_batch)"
    most = context_parts(model)  # heads of a state space are split over tp and cp
    return [
        mesh,
        *([f"cp == 1 or {most} % (tp * cp) == 0"] if most else []),
        "global_batch % (dp * micro_batch) == 0",
        f"{trips} >= pp",
        "cp == 1 or sequence % (2 * cp * tp) == 0",
        "not sequence_parallel or sequence % (cp * tp) == 0",
        "tp > 1 or (sequence_parallel and not tp_overlap)",
        f'cp > 1 or cp_comm_type == "{framework.values("cp_comm_type")[0]}"',
        f'cp_comm_type != "ulysses" or {model.heads} % (tp * cp) == 0'
        if isinstance(model, Transformer)
        else 'cp_comm_type != "ulysses"',
        f'pp > 1 or schedule == "{schedules[0]}"',
        '(schedule == "interleaved") == (virtual_stages > 1)',
        f"pp * virtual_stages <= {layers}",
        f'schedule != "interleaved" or {trips} % pp == 0',
        f'schedule != "dualpipe" or (pp % 2 == 0 and {trips} % 2 == 0 and {trips} >= 2 * pp)',
        f'dp * cp > 1 or weight_sharding == "{framework.values("weight_sharding")[0]}"',
        *framework.rules,
        *(framework.expert_rules if experts else ()),
        *experts,
    ]


def _expert_rules(base: DesignPoint, experts: Experts) -> list[str]:
    if base.workload.task != "training":  # who serves splits experts over tp, as other layers
        return ["(dp * cp) % ep == 0"]
    return [
        "tp % etp == 0",
        "etp == 1 or etp == tp",
        "(tp * cp * dp) % (etp * ep) == 0",
        *([] if pads_dimensions(base) else [f"{experts.ffn} % etp == 0"]),
        "sequence_parallel or (etp * ep) % tp == 0",
    ]


# ---- values


def _single_value(field: str, values: tuple[Any, ...]) -> MappingChoice:
    return MappingChoice((field,), tuple((value,) for value in values))


def _launched_values(field: str, framework: Framework) -> MappingChoice:
    return _single_value(field, framework.values(field))


def scale_up(base: DesignPoint) -> int:
    """Return the accelerators that one fast domain has: those of the innermost dimension, or a host of several."""
    sizes = accumulate((dim.npus for dim in base.network.dims), mul)
    return next((size for size in sizes if size >= MIN_HOST_NPUS), base.network.npus)


def _tp_degrees(model: Transformer | ProgramModel, base: DesignPoint) -> tuple[int, ...]:
    shared = gcd(tensor_parts(model, pads=pads_dimensions(base)), base.network.npus)
    return tuple(tp for tp in divisors(shared) if tp <= min(scale_up(base), MAX_TP))


def _experts(model: Transformer | ProgramModel) -> Experts | None:
    return model.experts if isinstance(model, Transformer) else None


def stage_counts(model: Transformer | ProgramModel, base: DesignPoint) -> tuple[int, ...]:
    """Return the numbers of stages that use every accelerator and leave none of them much emptier than the others."""
    layers = layers_of(model)
    return tuple(
        pp for pp in divisors(base.network.npus) if pp <= layers and -(-layers // pp) * pp <= MAX_UNEVENNESS * layers
    )


def _pipeline_choice(model: Transformer | ProgramModel, base: DesignPoint, framework: Framework) -> MappingChoice:
    """Return the pipelines: stages with an order of axes, a schedule, virtual stages and layers of the last stage.

    They are one decision, as most of it means nothing without the rest. Where memory has outer tiers, what they hold
    belongs to it as well: activations are offloaded only without a pipeline.
    """
    placements, schedules = framework.values("placement"), framework.values("schedule")
    rows: list[tuple[Any, ...]] = [(1, placements[0], schedules[0], 1, None)]
    for pp, placement, schedule in product(stage_counts(model, base)[1:], placements, schedules):
        for virtual in _virtual_stages(model, base) if schedule == "interleaved" else (1,):
            parts = 2 if schedule in framework.halved else virtual
            fewer = _fewer_layers(model, pp, parts) if framework.uneven_stages and schedule != "dualpipe" else None
            if _can_cut(model, pp, virtual) and (schedule != "interleaved" or virtual > 1):
                rows += [
                    (pp, placement, schedule, virtual, last_layers) for last_layers in dict.fromkeys((None, fewer))
                ]
    fields = ("pp", "placement", "schedule", "virtual_stages", "last_stage_layers")
    if not base.memory.tiers:
        return MappingChoice(fields, tuple(rows))
    offloads: list[tuple[str, ...]] = [(), *framework.values("offload")]
    spread = [(*row, offload) for row in rows for offload in offloads if row[0] == 1 or "activations" not in offload]
    return MappingChoice((*fields, "offload"), tuple(spread))


def _can_cut(model: Transformer | ProgramModel, pp: int, virtual: int) -> bool:
    """Return whether layers can be cut into virtual stages: evenly, or into a few."""
    layers, parts = layers_of(model), pp * virtual
    return parts <= layers and (layers % parts == 0 or virtual in (1, 2, 4))


def _fewer_layers(model: Transformer | ProgramModel, pp: int, virtual: int) -> int | None:
    """Return the layers of a last stage that takes as long as the others, its head included; None if all are alike.

    A head of h layers' work and L layers make pp stages of (L + h) / pp each.
    """
    if isinstance(model, ProgramModel) or model.encoder_layers or not model.layers:
        return None
    head = model.vocab * model.hidden
    layer = (count_active_parameters(model) - head * (1 if model.tied_embeddings else 2)) / model.layers
    balanced = (model.layers + head / layer) / pp - head / layer
    last_layers = int(balanced // virtual) * virtual
    return last_layers if 1 <= last_layers < model.layers // pp // virtual * virtual else None


def _cp_degrees(base: DesignPoint) -> tuple[int, ...]:
    sequence = base.workload.sequence
    if isinstance(base.model, ProgramModel) and "cp" not in base.model.axes:
        return (1,)
    most = max(1, sequence // MIN_RANK_TOKENS)
    return tuple(cp for cp in divisors(gcd(sequence, base.network.npus)) if cp <= most)


def _virtual_stages(model: Transformer | ProgramModel, base: DesignPoint) -> tuple[int, ...]:
    layers = layers_of(model)
    even = {
        v
        for pp in stage_counts(model, base)
        for v in range(2, MAX_VIRTUAL_STAGES + 1)
        if pp > 1 and layers % (pp * v) == 0
    }
    return tuple(v for v in sorted({1, 2, 4} | even) if v == 1 or 2 * v <= layers)


def _micro_batches(base: DesignPoint) -> tuple[int, ...]:
    workload = base.workload
    most = min(workload.global_batch, max(MIN_MICRO_BATCHES, MAX_PASS_TOKENS // workload.sequence))
    if isinstance(base.model, Recommender):
        most = workload.global_batch
    least = 1
    if isinstance(base.model, ProgramModel) and workload.sequence == 1:  # samples are small: what an accelerator has
        least = max(1, workload.global_batch // base.network.npus)
        most = min(workload.global_batch, least * MIN_MICRO_BATCHES)
    return tuple(2**power for power in range(int(log2(least)), int(log2(most)) + 1))


def _recompute_modes(model: Transformer | ProgramModel, framework: Framework) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the modes of recomputation, those that recompute least first; selective ones with their modules."""
    for mode in framework.values("recompute"):
        if mode != "selective":
            yield mode, DEFAULT_MODULES
        elif isinstance(model, Transformer):  # whose modules these are
            yield from (("selective", modules) for modules in _recompute_module_sets(model))


def _recompute_module_sets(model: Transformer) -> list[tuple[str, ...]]:
    """Return sets of modules that are worth recomputing: cheap ones with large outputs first."""
    if model.experts is None:
        return [("layernorm",), ("mlp",), ("layernorm", "mlp")]
    cheap = ("layernorm", *(("mla_up_proj",) if model.mla else ()), "moe_act")
    return [("moe_act",), cheap, ("moe",)]
