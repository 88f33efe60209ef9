"""Random designs of every family of models, task, schedule and system, for relations that must hold for all of them.

    rng = random.Random(7)
    point = random_design(rng)                       # any kind
    point = random_design(rng, task="decode")        # the rest is drawn

Every design can run as far as its mapping goes (`cosmic.workload.mapping_rules`); it may need more memory than there
is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod
from random import Random
from typing import Any

from cosmic.base.errors import SpecError
from cosmic.base.numeric import divisors
from cosmic.design import schema
from cosmic.design.design_point import DesignPoint
from cosmic.design.memory_layer import HBM, STATES, MemoryTier, Placement
from cosmic.design.model_layer import Transformer
from cosmic.design.network_layer import GRAPH, UNTIERED, Dimension, Fault, Link, builds
from cosmic.design.workload_layer import Workload
from cosmic.network.dimension_wiring import healthy_graph
from cosmic.network.switch_tiers import tiers_of
from cosmic.search.mapping.design_completion import load_design
from cosmic.workload.mapping_rules import invalid_reasons

MODELS = {
    "dense": ("llama3-8b", "llama3-70b", "qwen3-32b", "gpt3-13b", "gpt3-175b", "megatron-22b", "nemotron-340b"),
    "window": ("mistral-7b", "gpt-oss-20b"),
    "moe": ("mixtral-8x7b", "qwen3-30b-a3b", "qwen3-235b-a22b", "gpt-oss-120b", "minimax-m2.5"),
    "mla": ("deepseek-v2", "deepseek-v3", "kimi-k2"),
    "hybrid": ("nemotron-3-nano", "nemotron-3-super", "nemotron-h-8b", "qwen3-next-80b-a3b", "jamba-1.5-mini"),
    "sparse": ("deepseek-v4-flash",),
    "encoder": ("bert-large",),
    "encoder_decoder": ("t5-3b", "t5-11b"),
    "vision": ("vit-huge", "vit-large"),
    "recommender": ("dlrm-criteo",),
}
"""Models by what sets them apart."""
FAMILIES = ("dense", "dense", "dense", "window", "moe", "moe", "mla", "mla", *list(MODELS)[4:])
"""What is drawn from: the commonest most often."""
SYSTEMS = ("dgx-h100", "dgx-h200", "dgx-a100", "dgx-b200", "gb200-nvl72", "mi300x", "tpu-v4", "tpu-v5p")
ACCELERATORS = (1, 2, 4, 8, 8, 16, 16, 32, 64, 64, 128)
PAPER = ("cosmic-512", "cosmic-1024")
"""Idealised systems of a fixed size."""
TASKS = ("training", "training", "training", "prefill", "decode")
SWITCHES: Mapping[str, tuple[Any, ...]] = {
    "weight_sharding": ("none", "zero1", "zero1", "zero2", "zero3"),
    "sequence_parallel": (True, True, False),
    "recompute": ("none", "none", "selective", "alternate", "full"),
    "recompute_to_end": (False, True),
    "attention": ("fused", "fused", "fused", "unfused"),
    "cp_comm_type": ("ring", "all_gather", "ulysses"),
    "cp_balanced": (True, True, False),
    "loss": ("eager", "chunked", "retained", "fused", "half", "auto"),
    "dropout": (False, False, True),
    "execution": ("fused", "fused", "compiled", "eager"),
    "grouped_gemm": (True, True, True, False),
    "dp_overlap": (True, True, False),
    "tp_overlap": (False, True),
    "ep_overlap": (False, True),
    "moe_token_dispatcher_type": ("flex", "flex", "alltoall"),
    "precision": ("bf16", "bf16", "bf16_pure", "fp8"),
    "reduce_every": ("step", "microbatch"),
    "recompute_modules": (("core_attn",), ("core_attn", "mlp"), ("layernorm", "moe_act"), ("mla_up_proj",), ("moe",)),
    "recompute_num_layers": (1, 2, 4),
    "grad_reduce_in_fp32": (True, False),
    "moments": ("fp32", "bf16"),
    "offload_num_layers": (1, 2),
    "placement": (("tp", "cp", "dp", "pp"), ("tp", "cp", "pp", "dp"), ("tp", "pp", "dp", "cp")),
}
"""Switches of a workload, the usual value most often; each that a workload has is drawn half of the time."""
TRAINING_ONLY = (
    *("recompute", "recompute_modules", "recompute_num_layers", "recompute_to_end", "loss", "dropout"),
    *("sequence_parallel", "reduce_every", "grad_reduce_in_fp32", "moments", "offload_num_layers"),
)
SERVED: Mapping[str, tuple[Any, ...]] = {
    "precision": ("bf16", "fp8", "fp8", "fp4", "int4"),
    "weight_sharding": ("none", "none", "zero3"),
}
"""Switches of a serving workload that differ from those of training."""
OFFLOADED = ((), (), (), ("optimizer",), ("activations",), ("weights",), ("weights", "optimizer", "activations"))
"""What training offloads, if there are outer tiers; who serves offloads weights only."""
TIERS = (
    (MemoryTier(name="host", capacity_bytes=512e9, bandwidth_bytes_per_s=55e9),),
    (
        MemoryTier(name="host", capacity_bytes=64e9, bandwidth_bytes_per_s=400e9),
        MemoryTier(name="drive", capacity_bytes=4e12, bandwidth_bytes_per_s=6e9),
    ),
)
"""Memory behind the accelerator's own: a host over PCIe; a coherent host and a drive."""
PLACED = (
    *(TIERS),
    (
        MemoryTier(
            name="host",
            capacity_bytes=200e9,
            bandwidth_bytes_per_s=25e9,
            latency_s=5e-6,
            processor_bandwidth_bytes_per_s=50e9,
        ),
        MemoryTier(name="ssd", capacity_bytes=3e12, bandwidth_bytes_per_s=3e9, latency_s=80e-6),
    ),
    (
        MemoryTier(name="cxl", capacity_bytes=256e9, bandwidth_bytes_per_s=60e9, access="load_store"),
        MemoryTier(name="host", capacity_bytes=1e12, bandwidth_bytes_per_s=55e9, latency_s=2e-6),
    ),
)
"""Tiers in which classes of state are placed: with latencies, a processor, and memory that kernels read in place."""
OUTER = 0.15
"""Share of the designs that have outer tiers."""
DEPTHS = (2, 3, 7, 13, 24, 37)
"""Layers of models that are cut short: what divides by nothing in particular."""
UNEVEN = 0.25
"""Share of the pipelines that state the layers of a stage."""
LED = 0.1
"""Share of the designs that a single controller leads."""
APART = 0.15
"""Share of the designs whose islands exchange parameters every few steps, if dp can join them."""
BALANCED = 0.15
"""Share of the pipelines whose stages are balanced."""
NEAR = (-2, -1, -1, 0, 1)
"""Layers of such a virtual stage beyond those that it would have."""
SLOTS = schema.slots(Workload)
COLLECTIVE = {"scheduling": ("lifo", "fifo"), "multi_dim": ("baseline", "blueconnect", "themis"), "chunks": (1, 4, 16)}
TIERED = 0.3
"""Share of the designs whose fabric counts switches that get another one."""
FABRICS = {
    "oversubscription": (1.0, 1.5, 2.0, 4.0, 8.0),
    "fabric.radix": (4, 8, 16, 64),
    "fabric.core_oversubscription": (1.0, 1.0, 2.0, 3.0),
}
"""Figures of such a fabric: switches so small that few NPUs need several."""
TRIES, FEW_TRIES = 1000, 4
FEW_NPUS = 32
"""NPUs of a dimension whose links are looked at: schedules are made in a moment."""
UNDECODED = ("encoder", "vision", "recommender")
"""Families that decode no tokens."""


def tasks_of(family: str) -> tuple[str, ...]:
    """Return the tasks that a family of models has, the commonest most often."""
    return tuple(task for task in TASKS if task != "decode" or family not in UNDECODED)


def random_designs(count: int, seed: int = 0, **fixed: Any) -> Iterator[DesignPoint]:
    """Yield *count* random designs; *fixed* as in `random_design`."""
    rng = Random(seed)
    for _ in range(count):
        yield random_design(rng, **fixed)


def random_design(
    rng: Random, *, family: str | None = None, accelerators: int | None = None, wired: bool = False, **workload: Any
) -> DesignPoint:
    """Return a design whose mapping can run, drawn by *rng*.

    *family* is a key of `MODELS`, *accelerators* their number, *workload* fixes keys of the workload. With *wired* its
    network lists links, has faults or synthesises collectives.
    """
    chosen = family or rng.choice(FAMILIES)
    for _ in range(TRIES):
        design = _draw_design(rng, chosen, accelerators, workload)
        if design is not None and not wired:
            return design
        if design is not None and (changed := with_links(rng, design)) is not None:
            return changed
    raise SpecError("random_design", {"family": family, **workload}, f"no such design in {TRIES} draws")


def _draw_design(rng: Random, family: str, accelerators: int | None, fixed: Mapping[str, Any]) -> DesignPoint | None:
    """Return a design, or None where what was drawn does not go together."""
    name = rng.choice(MODELS[family])
    paper = accelerators is None and rng.random() < 0.1
    system = rng.choice(PAPER) if paper else f"{rng.choice(SYSTEMS)}:{accelerators or rng.choice(ACCELERATORS)}"
    task = fixed.get("task", rng.choice(tasks_of(family)))
    try:
        bare = load_design(f"{name}@{system}", {"task": task, "tp": 1, "cp": 1, "pp": 1}, plain=True)
        overrides = _workload(rng, bare, task) | dict(fixed)
        layers = {f"collective.{key}": rng.choice(choices) for key, choices in COLLECTIVE.items() if rng.random() < 0.3}
        overrides |= layers | _shorter(rng, bare) | _outer_tiers(rng, task, fixed)
        point = load_design(f"{name}@{system}", overrides, plain=True)
    except SpecError:
        return None
    return None if invalid_reasons(point) else with_tiers(_with_exchanges(_with_stage_layers(point, fixed), fixed))


def _with_exchanges(point: DesignPoint, fixed: Mapping[str, Any]) -> DesignPoint:
    """Return some designs with a single controller, and some whose islands exchange parameters every few steps."""
    rng = Random(f"{point.identity} islands")
    if rng.random() < LED and "runtime" not in fixed:
        chosen_runtime = rng.choice(("single_parallel", "single_sequential"))
        point = point.changed({"workload.runtime": chosen_runtime, "workload.npus_per_host": rng.choice((1, 4, 8))})
    if rng.random() > APART or any(key in fixed for key in ("sync_period", "placement")):
        return point
    chosen = {"workload.sync_period": rng.choice((2, 10, 500)), "workload.sync_compression": rng.choice((1.0, 0.125))}
    changed = point.changed({**chosen, "workload.placement": ("tp", "cp", "pp", "dp")})
    return point if invalid_reasons(changed) else changed


def _with_stage_layers(point: DesignPoint, fixed: Mapping[str, Any]) -> DesignPoint:
    """Return some designs with the layers of first or last stage stated, near their share, and some balanced.

    Chance is the design's own, so that designs are drawn that were drawn before there were such layers.
    """
    rng, workload = Random(point.identity), point.workload
    if workload.pp == 1 or not isinstance(point.model, Transformer):
        return point
    drawn = rng.random()
    if drawn > 1 - BALANCED and "stage_layers" not in fixed:
        balanced = point.changed({"workload.stage_layers": "balanced"})
        return point if invalid_reasons(balanced) else balanced
    if drawn > UNEVEN:
        return point
    even = (point.model.layers + point.model.encoder_layers) // (workload.pp * workload.virtual_stages)
    for _ in range(FEW_TRIES):
        chosen = rng.choice((("first",), ("last",), ("first", "last")))
        end_layers = {
            f"{end}_stage_layers": max(0, even + rng.choice(NEAR)) * workload.virtual_stages for end in chosen
        }
        changed = point.changed({f"workload.{key}": value for key, value in end_layers.items() if key not in fixed})
        if not invalid_reasons(changed):
            return changed
    return point


def with_tiers(point: DesignPoint) -> DesignPoint:
    """Return some designs with a dimension of switches in several tiers, oversubscribed or not.

    Only dimensions whose fabric counts switches are built otherwise: others have no prices for them. Chance is the
    design's own, as above.
    """
    rng, dims = Random(f"tiers {point.identity}"), point.network.dims
    dimensions = [index for index, dim in enumerate(dims) if dim.fabric.build not in UNTIERED]
    if not dimensions or rng.random() > TIERED:
        return point
    dimension = rng.choice(dimensions)
    for _ in range(FEW_TRIES):
        changed = point.changed(
            {f"network.dims.{dimension}.{key}": rng.choice(choices) for key, choices in FABRICS.items()}
        )
        changed = changed.changed({f"network.dims.{dimension}.fabric.build": rng.choice(list(builds))})
        if any(tier.npus < dims[dimension].npus for tier in tiers_of(changed.network.dims, dimension)):
            return changed
    return point


def with_links(rng: Random, point: DesignPoint) -> DesignPoint | None:
    """Return a design with links listed, faults or synthesised collectives in a dimension; None where there is none.

    Dimensions of more than `FEW_NPUS` are left as they are.
    """
    dimensions = [index for index, dim in enumerate(point.network.dims) if dim.npus <= FEW_NPUS]
    if not dimensions:
        return None
    dimension = rng.choice(dimensions)
    change, dim = rng.choice(("links", "fault", "slow", "synthesized", "all")), point.network.dims[dimension]
    changes: dict[str, Any] = {}
    if change in ("links", "all"):
        changes[f"network.dims.{dimension}"] = list_links(dim)
    if change in ("fault", "slow", "all"):
        npu = rng.randrange(point.network.npus)
        speed = 0.0 if change == "fault" else rng.choice((0.1, 0.5, 0.9))
        changes["network.faults"] = (Fault(npu=npu, dim=dimension, speed=speed, peer=None),)
    if change in ("synthesized", "all"):
        changes[f"collective.algorithms.{dimension}"] = "synthesized"
    changed = point.changed(changes)
    return None if invalid_reasons(changed) else changed


def list_links(dim: Dimension) -> Dimension:
    """Return a dimension of a named topology with its links listed one by one."""
    graph = healthy_graph(dim.topology, dim.npus)
    ends = zip(graph.sources.tolist(), graph.targets.tolist(), graph.bandwidth_bytes_per_s.tolist(), strict=True)
    rate = dim.bandwidth_bytes_per_s
    links = tuple(
        Link(source=source, target=target, bandwidth_bytes_per_s=share * rate, latency_s=dim.latency_s)
        for source, target, share in ends
    )
    return replace(dim, topology=GRAPH, links=links)


def _shorter(rng: Random, bare: DesignPoint) -> dict[str, Any]:
    """Return fewer layers for some designs: what divides by nothing in particular."""
    if not isinstance(bare.model, Transformer) or rng.random() < 0.5:
        return {}
    return {"model.layers": rng.choice([depth for depth in (*DEPTHS, bare.model.layers) if depth <= bare.model.layers])}


def _outer_tiers(rng: Random, task: str, fixed: Mapping[str, Any]) -> dict[str, Any]:
    """Return outer tiers of memory for some designs, and what they offload."""
    if rng.random() > OUTER and "offload" not in fixed:
        return {}
    offloaded = rng.choice(OFFLOADED if task == "training" else ((), ("weights",)))
    return {"memory.tiers": schema.write_value(rng.choice(TIERS)), "offload": list(fixed.get("offload", offloaded))}


def with_placement(point: DesignPoint, rng: Random) -> DesignPoint:
    """Return a design with outer tiers in which some classes of its state are placed, in any of the ways there are."""
    tiers = rng.choice(PLACED)
    names = [HBM, *(tier.name for tier in tiers)]
    training = point.workload.task == "training"
    states = [state for state in STATES if training != (state == "kv_cache")] if training else SERVED_STATES
    placement = {}
    for state in rng.sample(states, rng.randint(1, min(3, len(states)))):
        first = rng.randrange(len(names))
        listed = tuple(name for name in names[first:] if name == names[first] or rng.random() < 0.7)
        placement[state] = listed
    memory = replace(
        point.memory,
        tiers=tiers,
        placement=Placement(**placement),
        prefetch=rng.choice((None, None, "layer", "step")),
        resident_layers=rng.choice((1, 2, 2, 2, 4)),
        expert_cache=rng.choice((0.0, 0.0, 0.25)),
        expansion=rng.choice(("serial", "parallel")),
    )
    changed = replace(point, memory=memory, workload=replace(point.workload, offload=()))
    if training and rng.random() < 0.5:
        updated = replace(changed, workload=replace(changed.workload, optimizer_device="cpu"))
        changed = changed if invalid_reasons(updated) else updated
    return changed


SERVED_STATES = ("weights", "experts", "kv_cache")
"""Classes of state of a served model."""


def _workload(rng: Random, bare: DesignPoint, task: str) -> dict[str, Any]:
    """Return a mapping and switches."""
    mesh = _mesh(rng, bare)
    workload: dict[str, Any] = {"task": task, **mesh}
    switches = SWITCHES if task == "training" else {**SWITCHES, **SERVED}
    for key, values in switches.items():
        if rng.random() < 0.5 and key in SLOTS and (task == "training" or key not in TRAINING_ONLY):
            choices = SLOTS[key].choices()
            workload[key] = rng.choice([value for value in values if choices is None or value in choices])
    if task == "training":
        workload["schedule"] = rng.choice(
            ("1f1b", "1f1b", "gpipe", "interleaved", "interleaved", "zero_bubble", "dualpipe")
        )
        if workload["schedule"] == "interleaved" and mesh["pp"] > 1:
            workload["virtual_stages"] = rng.choice((1, 2, 2, 3, 4))
    workload["micro_batch"] = rng.choice((1, 1, 2, 4))
    in_rounds = workload.get("virtual_stages", 1) > 1 or rng.random() < 0.5
    rounds = rng.choice((1, 2, 4, 8, 16)) * (mesh["pp"] if in_rounds else 1)
    workload["global_batch"] = mesh["dp"] * workload["micro_batch"] * rounds
    if isinstance(bare.model, Transformer) and bare.model.image is None:
        workload["sequence"] = rng.choice((512, 2048, 4096, 8192, 32768))
    return workload


def _mesh(rng: Random, bare: DesignPoint) -> dict[str, int]:
    """Return degrees of parallelism that use every accelerator."""
    remaining = bare.network.npus
    mesh = {"tp": 1, "cp": 1, "pp": 1, "ep": 1}
    model = bare.model
    if isinstance(model, Transformer):
        limits = {"tp": model.heads, "cp": 8, "pp": min(16, model.layers)}
        for axis in rng.sample(("tp", "cp", "pp"), 3):
            if rng.random() < (0.3 if axis == "cp" else 0.6):
                mesh[axis] = rng.choice([divisor for divisor in divisors(remaining) if divisor <= limits[axis]])
                remaining //= mesh[axis]
        if model.experts:
            ranks = bare.network.npus // mesh["pp"]
            if "etp" in SLOTS and rng.random() < 0.3:
                mesh["etp"] = rng.choice(divisors(mesh["tp"]))
                ranks //= mesh["etp"]
            mesh["ep"] = rng.choice([divisor for divisor in divisors(ranks) if model.experts.count % divisor == 0])
    return {**mesh, "dp": bare.network.npus // prod(mesh[axis] for axis in ("tp", "cp", "pp"))}
