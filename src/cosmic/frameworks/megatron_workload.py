"""Megatron-LM: a workload from arguments of `pretrain_gpt.py`, the inverse of `cosmic.frameworks.targets.megatron`.

Defaults are those of megatron/training/arguments.py: no bf16, dropout of 0.1, biases, learned positions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import gcd
from typing import Any, get_args

from cosmic.base.errors import require
from cosmic.design.workload_layer import GraphScope, RecomputeModule
from cosmic.frameworks.launch_arguments import NamedArguments
from cosmic.frameworks.launch_readers import find_stage_ends
from cosmic.frameworks.targets.megatron import CONTEXT, ORDERS, SHARDING
from cosmic.workload.pipeline_cut import layers_per_part
from cosmic.workload.precision import RECIPES

Tree = dict[str, Any]
MODULES = RecomputeModule.__args__  # type: ignore[attr-defined]
CONTEXTS = {arguments: ours for ours, arguments in CONTEXT.items()} | {"all_gather": "all_gather"}
STRATEGIES = {"no_shard": "none", "optim": "zero1"} | {megatron_name: ours for ours, megatron_name in SHARDING.items()}
FP8_RECIPES = ("delayed", "tensorwise", "blockwise", "mxfp8")
WHOLE_STEP = "full_iteration"
LONGEST_LAYOUT = 20_000
MOST_VIRTUAL = 64
"""Virtual stages of a pipeline stage, as in a design."""


@dataclass(frozen=True, slots=True)
class DecoderShape:
    """What of the model its mapping depends on."""

    layers: int
    moe: bool


def megatron_workload_tree(arguments: NamedArguments, npus: int, shape: DecoderShape, *, dropout: float = 0.1) -> Tree:
    """Return the workload on *npus* accelerators as in a design file; *dropout* is what the source defaults to."""
    mesh = _mesh(arguments, npus, shape)
    dp = npus // (mesh["tp"] * mesh["cp"] * mesh["pp"])
    tree = mesh | _batch(arguments, dp) | _precision(arguments) | _states(arguments, shape)
    tree |= _pipeline(arguments, mesh["pp"], shape.layers)
    tree |= _overlap(arguments, mesh, dp, sharded=tree["weight_sharding"] != "none")
    tree |= _activations(arguments) | _kernels(arguments, dropout) | _graphs(arguments)
    if arguments.flag("--use-tp-pp-dp-mapping"):
        tree["placement"] = list(ORDERS[1])
    return tree


def _graphs(arguments: NamedArguments) -> Tree:
    """Return what is replayed from CUDA graphs: the scopes that are named, or layers, but for their experts."""
    kind = arguments.text("--cuda-graph-impl", ("none", "local", "transformer_engine", WHOLE_STEP))
    named = arguments.words("--cuda-graph-scope")
    if kind in (None, "none"):
        return {}
    if kind == WHOLE_STEP or WHOLE_STEP in named:
        return {"cuda_graph": [WHOLE_STEP]}
    layers = not named or "full" in named
    scopes = [scope for scope in get_args(GraphScope) if scope in (("attn", "mlp") if layers else named)]
    return {"cuda_graph": scopes} if scopes else {}


def _mesh(arguments: NamedArguments, npus: int, shape: DecoderShape) -> Tree:
    sizes = {
        "tp": arguments.whole("--tensor-model-parallel-size") or 1,
        "pp": arguments.whole("--pipeline-model-parallel-size") or 1,
        "cp": arguments.whole("--context-parallel-size") or 1,
    }
    split = sizes["tp"] * sizes["pp"] * sizes["cp"]
    rule = f"{npus:,} accelerators do not divide by tp × cp × pp = {sizes['tp']} × {sizes['cp']} × {sizes['pp']}"
    require(npus % split == 0, f"{arguments.where} accelerators", npus, rule)
    mesh: Tree = dict(sizes)
    if sizes["cp"] > 1:
        mesh["cp_comm_type"] = _context(arguments)
    else:
        arguments.asked.add("--cp-comm-type")
    sequence_parallel = arguments.flag("--sequence-parallel")
    if sizes["tp"] > 1:
        mesh["sequence_parallel"] = sequence_parallel
    return mesh | _experts(arguments, sizes["tp"], npus // sizes["pp"], shape)


def _context(arguments: NamedArguments) -> str:
    types = set(arguments.words("--cp-comm-type")) or {"p2p"}
    if types == {"a2a+p2p"} or len(types) > 1:
        arguments.leave_out("--cp-comm-type", "all layers exchange keys and values in a ring")
        return "ring"
    (name,) = types
    if name not in CONTEXTS:
        raise arguments.error("--cp-comm-type", f"must be one of {', '.join([*CONTEXTS, 'a2a+p2p'])}")
    return CONTEXTS[name]


def _experts(arguments: NamedArguments, tp: int, ranks: int, shape: DecoderShape) -> Tree:
    ep, etp = arguments.whole("--expert-model-parallel-size"), arguments.whole("--expert-tensor-parallel-size")
    dispatch = arguments.text("--moe-token-dispatcher-type", ("allgather", "alltoall", "alltoall_seq", "flex"))
    deep = arguments.flag("--moe-enable-deepep")
    arguments.text("--moe-flex-dispatcher-backend", ("deepep", "hybridep"))
    grouped, overlap = arguments.flag("--moe-grouped-gemm"), arguments.flag("--overlap-moe-expert-parallel-comm")
    if not shape.moe:
        if (ep or 1) > 1:
            raise arguments.error("--expert-model-parallel-size", "the model has no experts")
        return {}
    ep, etp = ep or 1, etp or tp
    if ranks % (ep * etp):
        rule = f"the {ranks:,} accelerators of a pipeline stage do not divide by ep × etp = {ep} × {etp}"
        raise arguments.error("--expert-model-parallel-size", rule)
    if ep > 1 and (dispatch or "allgather") == "allgather":
        arguments.assume(
            "experts are dispatched by all-to-all, though Megatron-LM gathers tokens unless told otherwise"
        )
    experts: Tree = {"ep": ep, "grouped_gemm": grouped}
    factor = arguments.number("--moe-expert-capacity-factor")
    if factor is not None and not arguments.flag("--moe-pad-expert-input-to-capacity"):  # else the model has it
        experts["moe_expert_capacity_factor"] = factor
    if etp != gcd(tp, ranks // ep):  # what a design has that states none
        experts["etp"] = etp
    sent = "flex" if dispatch == "flex" or deep else "alltoall"
    return experts | ({"ep_overlap": overlap, "moe_token_dispatcher_type": sent} if ep > 1 else {})


def _batch(arguments: NamedArguments, dp: int) -> Tree:
    micro = arguments.whole("--micro-batch-size")
    if micro is None:
        arguments.assume("a microbatch of 1")
    micro = micro or 1
    batch = arguments.whole("--global-batch-size")
    if batch is not None and batch % (micro * dp):
        rule = f"does not divide by microbatch × dp = {micro} × {dp}"
        raise arguments.error("--global-batch-size", rule)
    sequence = arguments.whole("--seq-length") or arguments.whole("--encoder-seq-length")
    if sequence is None:
        raise arguments.error("--seq-length", "is needed: how many tokens a sequence has")
    return {"sequence": sequence, "global_batch": batch or micro * dp, "micro_batch": micro}


def _precision(arguments: NamedArguments) -> Tree:
    half, brain = arguments.flag("--fp16"), arguments.flag("--bf16")
    if half and brain:
        raise arguments.error("--fp16", "contradicts --bf16: choose one")
    eight = arguments.text("--fp8-format", ("e4m3", "hybrid"))
    four = arguments.text("--fp4-format", ("e2m1",))
    if eight and four:
        raise arguments.error("--fp4-format", "contradicts --fp8-format: choose one")
    precision = "fp8" if eight else "fp4" if four else "bf16" if brain else "fp16" if half else "fp32"
    reduces_bf16, accumulates_fp32 = (
        arguments.flag("--grad-reduce-in-bf16"),
        arguments.flag("--accumulate-allreduce-grads-in-fp32"),
    )
    recipe = arguments.text("--fp8-recipe", FP8_RECIPES)
    precision_fields: Tree = {"precision": precision} | ({"fp8_recipe": recipe} if recipe and eight else {})
    if precision != "fp32":
        in_fp32 = not reduces_bf16 if brain else accumulates_fp32
        usual = RECIPES[precision].gradient == 4
        precision_fields |= {} if in_fp32 == usual else {"grad_reduce_in_fp32": in_fp32}
    return precision_fields | _moments(arguments)


def _moments(arguments: NamedArguments) -> Tree:
    aware = arguments.flag("--use-precision-aware-optimizer")
    first, second = (arguments.text(name) or "fp32" for name in ("--exp-avg-dtype", "--exp-avg-sq-dtype"))
    if aware and first == second == "bf16":
        return {"moments": "bf16"}
    for name, kind in (("--exp-avg-dtype", first), ("--exp-avg-sq-dtype", second)):
        if kind != "fp32":
            why = "both running means of Adam are in fp32, or both in bf16"
            arguments.leave_out(name, why if aware else "it has no effect without --use-precision-aware-optimizer")
    for name in ("--main-params-dtype", "--main-grads-dtype"):
        if (arguments.text(name) or "fp32") != "fp32":
            arguments.leave_out(name, "the master copy and its gradients are in fp32")
    return {}


def _states(arguments: NamedArguments, shape: DecoderShape) -> Tree:
    """Return what replicas share out, and what is offloaded."""
    strategy = arguments.text("--data-parallel-sharding-strategy", STRATEGIES)
    custom_fsdp = arguments.flag("--use-megatron-fsdp") or arguments.flag("--use-custom-fsdp")
    torch, keeps_gathered = (
        arguments.flag("--use-torch-fsdp2"),
        arguments.flag("--torch-fsdp2-no-reshard-after-forward"),
    )
    distributed = arguments.flag("--use-distributed-optimizer")
    if custom_fsdp and torch:
        raise arguments.error("--use-torch-fsdp2", "contradicts --use-megatron-fsdp: choose one")
    if torch:
        sharding = "zero3"
        if keeps_gathered:
            arguments.leave_out("--torch-fsdp2-no-reshard-after-forward", "weights are gathered in both passes")
    elif custom_fsdp:
        sharding = STRATEGIES[strategy or "no_shard"]
    else:
        sharding = "zero1" if distributed else "none"
        if strategy not in (None, "no_shard"):
            arguments.leave_out("--data-parallel-sharding-strategy", "it has no effect without --use-megatron-fsdp")
    return {"weight_sharding": sharding} | _offload(arguments, shape)


def _offload(arguments: NamedArguments, shape: DecoderShape) -> Tree:
    offloaded: list[str] = []
    if arguments.flag("--optimizer-cpu-offload"):
        offloaded.append("optimizer")
        if (arguments.number("--optimizer-offload-fraction") or 1.0) < 1.0:
            arguments.leave_out("--optimizer-offload-fraction", "all optimizer states are offloaded")
    else:
        arguments.asked.add("--optimizer-offload-fraction")
    layers = arguments.whole("--cpu-offloading-num-layers", least=0) or 0
    if not layers:
        return {"offload": offloaded} if offloaded else {}
    offload: Tree = {"offload": [*offloaded, "activations"]}
    return offload | ({} if layers >= shape.layers - 1 else {"offload_num_layers": layers})


# ---- pipelines


ENDS = {
    "first_stage_layers": "--decoder-first-pipeline-num-layers",
    "last_stage_layers": "--decoder-last-pipeline-num-layers",
}


def _pipeline(arguments: NamedArguments, stages: int, layers: int) -> Tree:
    """Return the schedule; layers lie on stages as the design deals them out, or that is said."""
    layout = arguments.text("--pipeline-model-parallel-layout")
    parts = expand_layout(arguments, layout) if layout is not None else None
    virtual = _virtual_stages(arguments, stages, layers, parts)
    even = layers_per_part(layers, stages, virtual)
    stated_ends = {key: arguments.whole(name, least=0) for key, name in ENDS.items()}
    ends = {key: count for key, count in stated_ends.items() if count is not None and stages > 1}
    if layers_per_part(layers, stages, virtual, *(ends.get(key) for key in ENDS)) == even:
        ends = {}
    if parts is not None:
        pipeline = find_stage_ends(parts, stages, virtual) if stages > 1 and sum(parts) == layers else {}
        if pipeline is None or (stages == 1 and parts != even):
            in_words = f"the design deals layers out as {' '.join(map(str, even))}"
            arguments.leave_out("--pipeline-model-parallel-layout", in_words)
        ends = pipeline or {}
    interleaved = stages > 1 and virtual > 1
    if stages == 1 and virtual > 1:
        for name in ("--num-virtual-stages-per-pipeline-rank", "--num-layers-per-virtual-pipeline-stage"):
            arguments.leave_out(name, "it has no effect without pipeline stages")
    schedule: Tree = {"schedule": "interleaved", "virtual_stages": virtual} if interleaved else {"schedule": "1f1b"}
    return schedule | ends


def _virtual_stages(arguments: NamedArguments, stages: int, layers: int, parts: list[int] | None) -> int:
    stages_per_rank = arguments.whole("--num-virtual-stages-per-pipeline-rank")
    layers_per_stage = arguments.whole("--num-layers-per-virtual-pipeline-stage")
    if stages_per_rank is not None and layers_per_stage is not None:
        rule = "contradicts --num-layers-per-virtual-pipeline-stage: choose one"
        raise arguments.error("--num-virtual-stages-per-pipeline-rank", rule)
    if parts is not None:
        if len(parts) % stages:
            rule = f"has {len(parts)} parts for {stages} stages: must be a multiple"
            raise arguments.error("--pipeline-model-parallel-layout", rule)
        if len(parts) // stages > MOST_VIRTUAL:
            raise arguments.error("--pipeline-model-parallel-layout", f"has more than {MOST_VIRTUAL} parts per stage")
        return len(parts) // stages
    if (stages_per_rank or 1) > MOST_VIRTUAL:
        raise arguments.error("--num-virtual-stages-per-pipeline-rank", f"must be at most {MOST_VIRTUAL}")
    if stages_per_rank is not None or layers_per_stage is None:
        return stages_per_rank or 1
    if layers % (stages * layers_per_stage):
        rule = f"must divide the layers of a stage, {layers} ÷ {stages}"
        raise arguments.error("--num-layers-per-virtual-pipeline-stage", rule)
    virtual = layers // (stages * layers_per_stage)
    if virtual > MOST_VIRTUAL:
        rule = f"gives {virtual} virtual stages: more than {MOST_VIRTUAL}"
        raise arguments.error("--num-layers-per-virtual-pipeline-stage", rule)
    return virtual


def expand_layout(arguments: NamedArguments, text: str) -> list[int]:
    """Return the layers in each part of a layout such as ``Et*3|(tt|)*29|L``."""
    name = "--pipeline-model-parallel-layout"
    spelled = re.sub(r"[\s,'\"]", "", text)
    repeated = re.compile(r"(?:\(([^()]*)\)|([A-Za-z|]))\*(\d{1,4})")
    while (match := repeated.search(spelled)) is not None:
        inner, times = match[1] if match[1] is not None else match[2], int(match[3])
        if len(spelled) + len(inner) * times > LONGEST_LAYOUT:
            raise arguments.error(name, "is too long")
        spelled = spelled[: match.start()] + inner * times + spelled[match.end() :]
    spelled = spelled.replace("(", "").replace(")", "")
    if re.fullmatch(r"[EtmL|]+", spelled) is None:
        raise arguments.error(name, "must be made of E, t, m, L, |, and repetitions such as t*3 or (tt|)*4")
    return [part.count("t") for part in spelled.split("|")]


# ---- overlap, memory, kernels


def _overlap(arguments: NamedArguments, mesh: Tree, dp: int, *, sharded: bool) -> Tree:
    reduced, gathered = arguments.flag("--overlap-grad-reduce"), arguments.flag("--overlap-param-gather")
    tensor = arguments.flag("--tp-comm-overlap")
    overlap: Tree = {}
    if dp * mesh["cp"] > 1:
        overlap["dp_overlap"] = reduced
        if gathered and not reduced:
            arguments.leave_out("--overlap-param-gather", "gathers overlap compute only where reductions do")
        if reduced and sharded and not gathered:
            arguments.assume("gathers of weights overlap compute, as reductions of gradients do")
    if mesh["tp"] > 1:
        if tensor and not mesh["sequence_parallel"]:
            raise arguments.error("--tp-comm-overlap", "needs --sequence-parallel")
        overlap["tp_overlap"] = tensor
    return overlap


def _activations(arguments: NamedArguments) -> Tree:
    granularity = arguments.text("--recompute-granularity", ("full", "selective"))
    if granularity is None and arguments.flag("--recompute-activations"):
        granularity = "selective"
    method = arguments.text("--recompute-method", ("uniform", "block"))
    count = arguments.whole("--recompute-num-layers", least=0)
    modules = [
        module for word in arguments.words("--recompute-modules") for module in re.split(r"[\s,]+", word) if module
    ]
    if granularity is None:
        return {"recompute": "none"}
    if granularity == "selective":
        wrong = [module for module in modules if module not in MODULES]
        if wrong:
            raise arguments.error("--recompute-modules", f"must be some of {', '.join(MODULES)}")
        return {"recompute": "selective", "recompute_modules": modules or ["core_attn"]}
    if method is None:
        arguments.assume("full recomputation of every layer (no method is stated)")
    recomputation: Tree = {"recompute": "full", "recompute_to_end": True}
    if method == "block":
        return recomputation | {"recompute_num_layers": 1 if count is None else count}
    if method == "uniform" and (count or 1) > 1:
        arguments.leave_out("--recompute-num-layers", "each layer is checkpointed by itself")
    return recomputation


def _kernels(arguments: NamedArguments, dropout: float) -> Tree:
    backend = arguments.text("--attention-backend", ("flash", "fused", "unfused", "local", "auto"))
    flash = arguments.flag("--use-flash-attn")
    local = arguments.text("--transformer-impl") == "local"
    unfused = backend in ("unfused", "local") or (local and backend in (None, "auto") and not flash)
    fusion = arguments.flag("--cross-entropy-loss-fusion")
    kind = arguments.text("--cross-entropy-fusion-impl", ("native", "te"))
    rates = [arguments.number(name) for name in ("--attention-dropout", "--hidden-dropout")]
    kernels: Tree = {
        "attention": "unfused" if unfused else "fused",
        "dropout": any((dropout if rate is None else rate) > 0 for rate in rates),
        "execution": "fused",
    }
    return kernels | ({"loss": "fused"} if fusion and kind == "te" else {})
