"""What an engineer could change of a design, one move at a time, and what could be bought.

A move multiplies numbers of the workload (ranks from tp to dp: tp × 1/2, dp × 2) or sets fields. What depends on them
moves along (`combine_changes`). Moves of one *lever* exclude each other, such as all schedules; of each lever, only the
best is worth a line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise, permutations
from math import gcd
from typing import Any, Literal, get_args

from cosmic.base.errors import SpecError
from cosmic.base.numeric import divisors
from cosmic.design import catalog_entries, schema
from cosmic.design.catalog_parts import outer_tiers
from cosmic.design.collective_layer import MultiDim, Scheduling, algorithms
from cosmic.design.design_point import DesignPoint
from cosmic.design.memory_layer import ALL_IN_HBM, HBM, MemoryTier
from cosmic.design.model_layer import Recommender, Transformer, is_moe
from cosmic.design.serving_layer import Serving
from cosmic.design.workload_layer import AXES, Workload, schedules
from cosmic.network.collective_algorithms.synthesized import SYNTHESIZED
from cosmic.network.dimension_wiring import looks_at_links
from cosmic.search.mapping.design_completion import suggest_virtual_stages
from cosmic.workload.mesh_sizes import STRUCTURE, is_memory_switch
from cosmic.workload.pipeline_cut import layers_of

Kind = Literal["action", "purchase"]
MAX_FACTOR = 8
"""By what factor a number is changed at most."""
ACCURACY, LATENCY, ENGINE = "if accuracy allows", "if latency allows", "if the engine can be replaced"
"""Conditions under which a move is open: what an evaluation cannot know."""
SHARDING_ORDER = ("none", "zero1", "zero2", "zero3")
RECOMPUTE_ORDER = ("none", "selective", "alternate", "full")
"""From the fastest to what needs the least memory."""
RATES = ("bf16", "fp32", "tf32", "fp8", "fp4", "int8", "achieved_bf16")
"""Rates that grow together where compute is bought: what GEMMs reach grows with the peak."""
NARROWER = {"fp32": ("bf16", "fp8", "fp4"), "fp8": ("fp4",), "fp4": (), "int4": ()}
"""Number formats that are narrower than one; of 16 bits, fp8 and fp4."""
TOKEN_BUDGETS = (2048, 4096, 8192, 16384, 32768)
"""Tokens of a step that engines are usually limited to."""
DOMINATED = ("gpipe",)
"""Schedules that are never better than 1f1b."""
STRUCTURAL = frozenset(f"workload.{name}" for name in STRUCTURE)


@dataclass(frozen=True, slots=True)
class Move:
    """One change of a design."""

    lever: str
    factors: Mapping[str, Fraction] = field(default_factory=dict)
    """Numbers of the workload that are multiplied."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Fields that are set, by path."""
    kind: Kind = "action"
    condition: str = ""
    saves: bool = False
    """Whether it is there to save memory, and takes time for it."""

    @property
    def is_switch(self) -> bool:
        """Whether it changes the structure of the step, so that designs with it are evaluated apart."""
        return any(path in STRUCTURAL or is_memory_switch(path) for path in self.values)


def list_moves(point: DesignPoint) -> Iterator[Move]:
    """Yield every move of a design that its task and its model know."""
    trained = point.workload.task == "training"
    if point.serving is not None:
        yield from _serving_layer_moves(point, point.serving)
        return
    if isinstance(point.model, Transformer):
        yield from _mesh_moves(point)
        yield from _expert_moves(point)
        yield from _switch_moves(point)
        if trained:
            yield from _schedule_moves(point)
            yield from _recompute_moves(point)
    yield from _batch_moves(point)
    yield from _precision_moves(point)
    if trained:
        yield from _state_moves(point)
    yield from _offload_moves(point)
    yield from _collective_moves(point)
    yield from _purchase_moves(point)


def _serving_layer_moves(point: DesignPoint, layer: Serving) -> Iterator[Move]:
    """Yield moves of a design that serves a load: of its instances, its engine and their limits."""
    yield from (move for move in _mesh_moves(point) if not {"cp", "placement"} & {move.lever, *move.factors})
    yield from _expert_moves(point)
    yield from _precision_moves(point)
    for name in catalog_entries.entry_names("engines"):
        yield Move("engine", values={"serving.engine": name}, condition=ENGINE)
    if layer.kv_cache_dtype != "fp8" and point.workload.precision not in ("fp8", "fp4"):
        yield Move("kv_cache_dtype", values={"serving.kv_cache_dtype": "fp8"}, condition=ACCURACY)
    for tokens in TOKEN_BUDGETS:
        yield Move("max_num_batched_tokens", values={"serving.max_num_batched_tokens": tokens})
    if layer.max_num_seqs is not None:
        yield Move("max_num_seqs", values={"serving.max_num_seqs": 2 * layer.max_num_seqs})
    yield from _purchase_moves(point)


def _set_fields(lever: str, fields: Mapping[str, Any], **about: Any) -> Move:
    """Return a move that sets fields of the workload."""
    return Move(lever, values={f"workload.{name}": value for name, value in fields.items()}, **about)


def _small_divisors(number: int) -> list[int]:
    """Return what a number, of ranks or of sequences, can be divided by, up to `MAX_FACTOR`."""
    return [divisor for divisor in divisors(number) if 1 < divisor <= MAX_FACTOR]


def _mesh_moves(point: DesignPoint) -> Iterator[Move]:
    """Yield moves of ranks from one axis to another, and other orders of the axes that there are."""
    workload = point.workload
    for giver, taker in permutations(AXES, 2):
        for factor in _small_divisors(getattr(workload, giver)):
            yield Move(f"{giver} to {taker}", {giver: Fraction(1, factor), taker: Fraction(factor)})
    split_axes = [axis for axis in workload.placement if getattr(workload, axis) > 1]
    for inner, outer in pairwise(split_axes):
        swapped = {inner: outer, outer: inner}
        if workload.placement[0] == "tp" == inner:  # whatever talks most is innermost
            continue
        yield _set_fields("placement", {"placement": tuple(swapped.get(axis, axis) for axis in workload.placement)})


def _expert_moves(point: DesignPoint) -> Iterator[Move]:
    """Yield other spreads of experts over the ranks of a stage."""
    workload, model = point.workload, point.model
    if not is_moe(model) or not isinstance(model, Transformer) or model.experts is None:
        return
    for factor in _small_divisors(workload.ep):
        yield Move("ep", {"ep": Fraction(1, factor)})
    for factor in _small_divisors(workload.tp * workload.cp * workload.dp // gcd(workload.ep, workload.tp)):
        if model.experts.count % (workload.ep * factor) == 0:
            yield Move("ep", {"ep": Fraction(factor)})
    other_etps = [divisor for divisor in divisors(workload.tp) if divisor != workload.expert_tensor]
    yield from (_set_fields("etp", {"etp": etp}) for etp in other_etps)
    if workload.ep > 1 and not workload.ep_overlap:
        yield _set_fields("ep_overlap", {"ep_overlap": True})
    if not workload.grouped_gemm:
        yield _set_fields("grouped_gemm", {"grouped_gemm": True})


def _switch_moves(point: DesignPoint) -> Iterator[Move]:
    """Yield switches of how tensors and kernels run: where they have an effect, in the direction that helps."""
    workload = point.workload
    if workload.tp > 1 and not workload.tp_overlap:
        yield _set_fields("tp_overlap", {"tp_overlap": True})
    if workload.tp > 1 and not workload.sequence_parallel and workload.task == "training":
        yield _set_fields("sequence_parallel", {"sequence_parallel": True})
    if workload.cp > 1 and workload.task != "decode":
        comm_types = [
            execution for execution in ("ring", "all_gather", "ulysses") if execution != workload.cp_comm_type
        ]
        yield from (_set_fields("cp_comm_type", {"cp_comm_type": comm_type}) for comm_type in comm_types)
        if not workload.cp_balanced:
            yield _set_fields("cp_balanced", {"cp_balanced": True})
    if workload.attention.startswith("unfused"):
        yield _set_fields("attention", {"attention": "fused"})
    if workload.execution == "eager" and workload.task != "decode":
        yield from (_set_fields("execution", {"execution": execution}) for execution in ("fused", "compiled"))


def _schedule_moves(point: DesignPoint) -> Iterator[Move]:
    """Yield other pipeline schedules, the interleaved one with some numbers of virtual stages."""
    workload, layers = point.workload, layers_of(point.model)
    if workload.pp == 1:
        return
    for name in schedules:
        if name == "interleaved":
            for virtual in _virtual_stages(layers, workload.pp):
                yield _set_fields("schedule", {"schedule": name, "virtual_stages": virtual})
        elif name not in (*DOMINATED, workload.schedule):
            yield _set_fields("schedule", {"schedule": name, "virtual_stages": 1})


def _virtual_stages(layers: int, stages: int) -> list[int]:
    """Return numbers of virtual stages to try: the fewest that share layers out evenly, else two.

    >>> _virtual_stages(80, 8), _virtual_stages(96, 8), _virtual_stages(61, 16)
    ([2, 5, 10], [2, 3, 4], [2])
    """
    even = [
        stages_per_rank
        for stages_per_rank in range(2, layers // stages + 1)
        if layers % (stages * stages_per_rank) == 0
    ]
    return even[:3] or ([2] if layers >= 2 * stages else [])


def _recompute_moves(point: DesignPoint) -> Iterator[Move]:
    """Yield other ways to recompute; more of it saves memory."""
    workload = point.workload
    current = RECOMPUTE_ORDER.index(workload.recompute)
    for modules in _recompute_modules(point):
        if (workload.recompute, workload.recompute_modules) != ("selective", modules):
            fields = {"recompute": "selective", "recompute_modules": modules}
            yield _set_fields("recompute", fields, saves=current <= RECOMPUTE_ORDER.index("selective"))
    for mode in ("full", "alternate", "none"):
        if mode != workload.recompute:
            yield _set_fields("recompute", {"recompute": mode}, saves=RECOMPUTE_ORDER.index(mode) > current)
    stage_layers = -(-layers_of(point.model) // (workload.pp * workload.virtual_stages))
    if stage_layers > 1 and workload.recompute_num_layers is None:
        half = {"recompute": "full", "recompute_num_layers": stage_layers // 2}
        yield _set_fields("recompute", half, saves=workload.recompute != "full")
    if workload.recompute_to_end and workload.recompute not in ("none", "alternate"):
        yield _set_fields("recompute_to_end", {"recompute_to_end": False})


def _recompute_modules(point: DesignPoint) -> tuple[tuple[str, ...], ...]:
    """Return modules that are worth running again: those that keep most for their time, and the usual ones."""
    model = point.model
    if not isinstance(model, Transformer):
        return ()
    if model.mla is not None:
        activation = ("moe_act",) if is_moe(model) else ("mlp",)
        return (("mla_up_proj", "layernorm", *activation), ("core_attn",))
    return (("layernorm", "moe_act") if is_moe(model) else ("layernorm", "mlp"), ("core_attn",))


def _batch_moves(point: DesignPoint) -> Iterator[Move]:
    """Yield other microbatches; decoding, also more sequences at a time; serving, fewer where memory is short."""
    for factor in (2, 4, Fraction(1, 2), Fraction(1, 4)):
        yield Move("micro_batch", {"micro_batch": Fraction(factor)})
    if point.workload.task == "decode":
        for factor in (2, 4):
            factors = {"global_batch": Fraction(factor), "micro_batch": Fraction(factor)}
            yield Move("global_batch", factors, condition=LATENCY)
    if point.workload.task != "training":
        for factor in _small_divisors(point.workload.global_batch):
            yield Move("global_batch", {"global_batch": Fraction(1, factor)}, saves=True)


def _precision_moves(point: DesignPoint) -> Iterator[Move]:
    """Yield narrower number formats that the accelerator multiplies in; who serves may keep weights in less."""
    workload = point.workload
    for name in NARROWER.get(workload.precision, ("fp8", "fp4")):
        if getattr(point.compute, f"{name}_flop_per_s") is not None:
            yield _set_fields(f"precision {name}", {"precision": name}, condition=ACCURACY)
    if (
        workload.task == "decode"
        and workload.precision not in ("int4", "fp4")
        and not isinstance(point.model, Recommender)
    ):
        yield _set_fields("precision int4", {"precision": "int4"}, condition=ACCURACY)


def _state_moves(point: DesignPoint) -> Iterator[Move]:
    """Yield what training does with weights, gradients and states of the optimizer, and with logits."""
    workload = point.workload
    current = SHARDING_ORDER.index(workload.weight_sharding)
    if workload.dp > 1:
        for index, name in enumerate(SHARDING_ORDER):
            if index != current and name in ("zero1", "zero3"):  # none and zero2 are no faster than zero1
                yield _set_fields("weight_sharding", {"weight_sharding": name}, saves=index > current)
        if not workload.dp_overlap:
            yield _set_fields("dp_overlap", {"dp_overlap": True})
        reduced = workload.grad_reduce_in_fp32
        if reduced or (reduced is None and workload.precision == "bf16"):
            yield _set_fields("grad_reduce_in_fp32", {"grad_reduce_in_fp32": False}, condition=ACCURACY)
    if isinstance(point.model, Transformer) and workload.loss in ("auto", "eager", "retained", "half"):
        yield _set_fields("loss", {"loss": "chunked"}, saves=True)
    if workload.moments == "fp32" and workload.precision not in ("fp32", "bf16_pure"):
        yield _set_fields("moments", {"moments": "bf16"}, condition=ACCURACY, saves=True)


def _offload_moves(point: DesignPoint) -> Iterator[Move]:
    """Yield more and less that stays in the outer tiers of the memory."""
    workload = point.workload
    for name in workload.offload:
        remaining = tuple(kept_state for kept_state in workload.offload if kept_state != name)
        yield _set_fields("offload", {"offload": remaining})
    states = ("optimizer", "activations", "weights") if workload.task == "training" else ("weights",)
    if point.memory.placement != ALL_IN_HBM:
        yield from _placement_moves(point, states)
    elif point.memory.tiers:
        addable = [name for name in states if name not in workload.offload]
        yield from (_set_fields("offload", {"offload": (*workload.offload, name)}, saves=True) for name in addable)
    elif tiers := tuple(
        schema.read_value(MemoryTier, outer_tier, "memory.tiers") for outer_tier in outer_tiers(point.node.name)
    ):
        for state in states:  # to the memory that the node has, which the design did not use
            values = {"memory.tiers": tiers, "workload.offload": (state,)}
            yield Move("offload", values=values, saves=True)


def _placement_moves(point: DesignPoint, states: tuple[str, ...]) -> Iterator[Move]:
    """Yield each class of state in HBM first, and in the outer tiers first; the rest of it spills to all of them."""
    outer = tuple(tier.name for tier in point.memory.tiers)
    for state in states:
        current = point.memory.placement.of(state)
        path = f"memory.placement.{state}"
        for listed in ((HBM,), (HBM, *outer), outer):
            if listed != current:
                yield Move(path, values={path: listed}, saves=listed[0] != HBM or current == (HBM,))


def _collective_moves(point: DesignPoint) -> Iterator[Move]:
    """Yield other algorithms of each network dimension, and other ways to cut and order collectives."""
    collective = point.collective
    for index, name in enumerate(collective.algorithms):
        if point.network.dims[index].npus > 1 and name != "auto":  # a library chooses, and has no others
            path = f"collective.algorithms.{index}"
            may_synthesize = looks_at_links(point.network, index)  # elsewhere synthesis takes long for what it gains
            alternatives = [
                algorithm
                for algorithm in algorithms
                if algorithm != name and (may_synthesize or algorithm != SYNTHESIZED)
            ]
            yield from (Move(path, values={path: alternative}) for alternative in alternatives)
    for chunks in (2 * collective.chunks, collective.chunks // 2):
        if chunks:
            yield Move("chunks", values={"collective.chunks": chunks})
    for name, choices in (("multi_dim", get_args(MultiDim)), ("scheduling", get_args(Scheduling))):
        path = f"collective.{name}"
        alternatives = [choice for choice in choices if choice != schema.get_field(point, path)]
        yield from (Move(name, values={path: choice_value}) for choice_value in alternatives)


def _purchase_moves(point: DesignPoint) -> Iterator[Move]:
    """Yield what could be bought: twice the bandwidth of a dimension, the memory or its rate, the compute."""
    for index, dim in enumerate(point.network.dims):
        path = f"network.dims.{index}.bandwidth"
        yield Move(path, values={path: 2 * dim.bandwidth_bytes_per_s}, kind="purchase")
    memory = point.memory
    yield Move("memory", values={"memory.bandwidth": 2 * memory.bandwidth_bytes_per_s}, kind="purchase")
    yield Move("capacity", values={"memory.capacity": 2 * memory.capacity_bytes}, kind="purchase", saves=True)
    rates = {f"compute.{name}": getattr(point.compute, f"{name}_flop_per_s") for name in RATES}
    twice = {path: 2 * rate for path, rate in rates.items() if rate is not None}
    yield Move("compute", values=twice, kind="purchase")


# ---- what moves along


def combine_changes(point: DesignPoint, moves: Iterable[Move]) -> dict[str, Any] | None:
    """Return the fields that some moves change together, and what depends on them; None where they do not combine."""
    numbers: dict[str, Fraction] = {}
    values: dict[str, Any] = {}
    for move in moves:
        if not values.keys().isdisjoint(move.values):
            return None
        values |= move.values
        for name, factor in move.factors.items():
            numbers[name] = numbers.get(name, Fraction(getattr(point.workload, name))) * factor
    for name, number in numbers.items():
        if number.denominator != 1 or f"workload.{name}" in values:
            return None
        values[f"workload.{name}"] = int(number)
    values |= _follow_changes(point, values)
    changes = {path: value for path, value in values.items() if value != schema.get_field(point, path)}
    return changes if changes and _is_loadable(point, changes) else None


def _is_loadable(point: DesignPoint, changes: Mapping[str, Any]) -> bool:
    """Return whether every layer accepts the changed values."""
    try:
        schema.assign_fields(point, changes)
    except SpecError:
        return False
    return True


def _follow_changes(point: DesignPoint, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that follow from those that were changed, with values that are valid again."""
    before = point.workload

    def current_value(name: str) -> Any:
        return values.get(f"workload.{name}", getattr(before, name))

    dependents: dict[str, Any] = {}
    if is_moe(point.model):
        dependents |= _respread_experts(before, {name: current_value(name) for name in ("tp", "cp", "dp", "ep", "etp")})
    sizes = {name: current_value(name) for name in ("dp", "pp", "global_batch")}
    if point.serving is None:
        dependents["micro_batch"] = _valid_micro_batch(before, sizes, values.get("workload.micro_batch"))
    if "workload.virtual_stages" not in values and current_value("pp") != before.pp and before.virtual_stages > 1:
        dependents["virtual_stages"] = (
            suggest_virtual_stages(layers_of(point.model), current_value("pp")) if current_value("pp") > 1 else 1
        )
    return {f"workload.{name}": value for name, value in dependents.items()}


def _respread_experts(before: Workload, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Return ep and etp that divide the ranks of a stage again."""
    ranks = sizes["tp"] * sizes["cp"] * sizes["dp"]
    etp = None if sizes["etp"] is None else gcd(sizes["etp"], sizes["tp"])
    ep = sizes["ep"]
    if ranks % (ep * (etp or 1)):
        ep = gcd(ep, ranks // (etp or 1))
    return {"ep": ep, "etp": etp} if (ep, etp) != (before.ep, before.etp) else {}


def _valid_micro_batch(before: Workload, sizes: Mapping[str, int], requested: int | None) -> int:
    """Return a microbatch that divides what a replica gets: the largest up to what is *requested*, or to the one before.

    Serving, a replica that gained or lost ranks serves its batch in as few passes as before.
    """
    share = max(1, sizes["global_batch"] // sizes["dp"])
    most = requested or before.micro_batch
    if before.task != "training" and requested is None:
        passes = max(1, before.global_batch // (before.dp * before.micro_batch))
        most = max(1, share // (sizes["pp"] if passes == before.pp else passes))
    return max((divisor for divisor in divisors(share) if divisor <= most), default=1)
