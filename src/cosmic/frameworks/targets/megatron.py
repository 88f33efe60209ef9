"""Megatron-LM: the arguments of `pretrain_gpt.py` that say how a decoder is trained, written and read.

Names and values are those of megatron/training/arguments.py at the commit below; a test checks every name. So are the
defaults of what is read: no bf16, dropout of 0.1, biases, learned positions. Flags that say one field are declared beside
it (`cosmic.design.workload_layer`); here is what takes several fields, or several arguments, together.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import gcd
from typing import Any, get_args

from cosmic.design.design_point import DesignPoint
from cosmic.design.field_facts import fields_told, unsupported_fields, written_arguments
from cosmic.design.model_layer import Transformer
from cosmic.design.workload_layer import GraphScope, RecomputeModule, Workload
from cosmic.frameworks.launch import (
    Draft,
    Launch,
    common_warnings,
    describe_launch,
    outer_device,
    outer_share,
    places_otherwise,
    quote_options,
    targets,
    torchrun_command,
    trained_decoder,
)
from cosmic.frameworks.launch_arguments import NamedArguments, read_fields
from cosmic.frameworks.launch_readers import count_replicas, find_stage_ends, name_ends, stated_gradients
from cosmic.frameworks.megatron_model import add_model_arguments
from cosmic.step.cuts.balanced import state_end_layers
from cosmic.workload.pipeline_cut import layers_per_part
from cosmic.workload.precision import recipe_for

COMMIT = "000c4ac24f61"
"""Of github.com/NVIDIA/Megatron-LM."""
ORDERS = (("tp", "cp", "dp", "pp"), ("tp", "cp", "pp", "dp"))
"""Orders of ranks, innermost first: the default, and that of --use-tp-pp-dp-mapping."""

ENDS = ("--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers")
"""Layers of the first and of the last stage."""

# ---- A design as arguments


@targets.register("megatron")
def launch_megatron(point: DesignPoint) -> Launch:
    """Return how Megatron-LM trains *point*."""
    point = state_end_layers(point)
    model, w = trained_decoder(point, "megatron"), point.workload
    moe = model.experts is not None
    draft = Draft(written_arguments(w, "megatron", moe=moe))
    draft.take("--tensor-model-parallel-size", "--pipeline-model-parallel-size", "--context-parallel-size")
    draft.take("--cp-comm-type", "--sequence-parallel", "--expert-model-parallel-size")
    draft.add("--expert-tensor-parallel-size", w.expert_tensor, when=moe)
    draft.take("--moe-token-dispatcher-type", "--moe-enable-deepep", "--moe-grouped-gemm")
    draft.take("--moe-expert-capacity-factor", "--moe-pad-expert-input-to-capacity")
    _warn_of_mesh(draft, w, moe)
    _add_pipeline(draft, model, w)
    _add_placement(draft, point)
    _add_batch(draft, w)
    add_model_arguments(draft, model, w)
    _add_precision(draft, w)
    _add_states(draft, point)
    _add_overlap(draft, w)
    _add_activations(draft, model, point)
    draft.take("--attention-backend", "--attention-softmax-in-fp32")
    draft.take()
    _add_data(draft, model)
    return Launch(
        about=describe_launch(point, f"Megatron-LM's arguments, as of commit {COMMIT}"),
        command=(torchrun_command(point), "pretrain_gpt.py", *quote_options(draft.arguments)),
        arguments=draft.arguments,
        environment=_environment(w),
        warnings=(*draft.warnings, *unsupported_fields(w, "megatron", moe=moe), *common_warnings(point)),
    )


def _environment(w: Workload) -> dict[str, str]:
    """Return the number of hardware queues: one keeps collectives in order, FSDP needs several."""
    if w.shards_gradients:
        return {"CUDA_DEVICE_MAX_CONNECTIONS": "8"}
    if w.ep_overlap and w.ep > 1:
        return {"CUDA_DEVICE_MAX_CONNECTIONS": "32"}
    return {"CUDA_DEVICE_MAX_CONNECTIONS": "1"} if w.tp > 1 or w.cp > 1 else {}


def _warn_of_mesh(draft: Draft, w: Workload, moe: bool) -> None:
    halves = 2 * w.cp
    draft.warn(
        f"Megatron-LM needs a sequence that divides by {halves}, twice cp",
        when=w.cp > 1 and w.sequence % halves != 0,
    )
    draft.warn(
        "Megatron-LM trains MoE models with tp only under sequence_parallel",
        when=moe and w.tp > 1 and not w.sequence_parallel,
    )
    draft.warn("Megatron-LM supports expert parallelism only in bf16", when=w.precision == "fp16" and w.ep > 1)


def _add_pipeline(draft: Draft, model: Transformer, w: Workload) -> None:
    virtual = w.virtual_stages if w.schedule == "interleaved" and w.pp > 1 else 1
    chunks = layers_per_part(model.layers, w.pp, virtual, *w.stage_ends)
    ends = _uneven_ends(chunks, w)
    draft.add("--num-virtual-stages-per-pipeline-rank", virtual, when=ends is not None and virtual > 1)
    for name, layers in (ends or {}).items():
        draft.add(name, layers)
    draft.add("--pipeline-model-parallel-layout", pipeline_layout(chunks), when=ends is None)
    draft.warn(
        "1f1b has one chunk per stage: virtual_stages has no effect", when=virtual < w.virtual_stages and w.pp > 1
    )


def _uneven_ends(chunks: list[int], w: Workload) -> dict[str, int] | None:
    """Return the layers of first and last stage as arguments, where the others are alike; None where only a layout can.

    Of stages that state no layers, only the last may have others: a layout shows where the rest of a division lies.
    """
    stages, rounds = chunks[: w.pp], len(chunks) // w.pp
    usual = stages[1] if w.pp > 2 else stages[0]
    if chunks != stages * rounds or len(set(stages[1:-1])) > 1:
        return None
    first = {ENDS[0]: stages[0] * rounds} if stages[0] != usual else {}
    last = {ENDS[1]: stages[-1] * rounds} if stages[-1] != usual else {}
    ends = first | last
    is_stated = not first or w.stage_ends[0] is not None
    return ends if is_stated and all(ends.values()) else None  # the arguments take no 0


def pipeline_layout(chunks: list[int]) -> str:
    """Return the layout of a pipeline, given the layers of each chunk: embedding (E), layers (t), loss (L).

    >>> pipeline_layout([3, 3, 2, 0])
    'Et*3|t*3|t*2|L'
    """
    layers = [f"t*{count}" if count else "" for count in chunks]
    layers[0] = f"E{layers[0]}"
    layers[-1] = f"{layers[-1]}L"
    return "|".join(layers)


def _add_placement(draft: Draft, point: DesignPoint) -> None:
    w = point.workload
    usual = not places_otherwise(point, ORDERS[:1])
    draft.add("--use-tp-pp-dp-mapping", when=not usual and not places_otherwise(point, ORDERS[1:]))
    if places_otherwise(point, ORDERS):
        draft.warn(f"Megatron-LM numbers ranks in the order tp, cp, dp, pp, not {', '.join(w.placement)}")


def _add_batch(draft: Draft, w: Workload) -> None:
    draft.add("--micro-batch-size", w.micro_batch)
    draft.add("--global-batch-size", w.global_batch)
    samples_per_pass = w.micro_batch * w.dp
    draft.warn(
        f"Megatron-LM needs a global batch that divides by {samples_per_pass}",
        when=w.global_batch % samples_per_pass != 0,
    )


def _add_precision(draft: Draft, w: Workload) -> None:
    draft.add("--fp16", when=w.precision == "fp16")
    draft.add("--bf16", when=w.precision not in ("fp16", "fp32"))
    wide_gradients = recipe_for(w).gradient > recipe_for(w).weight
    draft.add(
        "--accumulate-allreduce-grads-in-fp32", when=wide_gradients and w.precision == "fp16"
    )  # else it is the default
    draft.add("--grad-reduce-in-bf16", when=not wide_gradients and w.precision not in ("fp16", "fp32"))
    draft.add("--fp8-format", "hybrid", when=w.precision == "fp8")
    draft.take("--fp8-recipe")
    draft.add("--fp4-format", "e2m1", when=w.precision == "fp4")


def _add_states(draft: Draft, point: DesignPoint) -> None:
    """Add the sharding of optimizer states, gradients and weights over replicas."""
    w = point.workload
    draft.take("--use-distributed-optimizer", "--use-megatron-fsdp", "--data-parallel-sharding-strategy")
    if w.shards_gradients:
        draft.add("--ckpt-format", "fsdp_dtensor")
        draft.add("--no-gradient-accumulation-fusion")
        draft.warn("Megatron-FSDP with pipeline stages is little tested", when=w.pp > 1)
        draft.warn(
            "Megatron-FSDP needs CUDA_DEVICE_MAX_CONNECTIONS above 1, tensor and context parallelism want 1: it is 8",
            when=w.tp > 1 or w.cp > 1,
        )
    outer = outer_device(point, "optimizer") != "none"
    draft.add("--optimizer-cpu-offload", when=outer)
    share = outer_share(point, "optimizer")
    draft.add("--optimizer-offload-fraction", round(share, 4), when=outer and share < 1)
    draft.warn("Megatron-LM keeps no optimizer states on drives", when=outer_device(point, "optimizer") == "nvme")
    draft.add("--use-precision-aware-optimizer", when=outer)
    draft.take("--use-precision-aware-optimizer", "--exp-avg-dtype", "--exp-avg-sq-dtype")
    draft.warn("Megatron-LM does not offload weights", when=outer_device(point, "weights") != "none")


def _add_overlap(draft: Draft, w: Workload) -> None:
    replicas = w.dp * w.cp > 1
    graphs = bool(w.cuda_graph)
    draft.add("--overlap-grad-reduce", when=w.dp_overlap and replicas)
    draft.add("--overlap-param-gather", when=w.dp_overlap and replicas and w.shards_states)
    draft.add("--cuda-graph-impl", "local" if "full_iteration" in w.cuda_graph else "transformer_engine", when=graphs)
    draft.add("--cuda-graph-scope", [str(scope) for scope in w.cuda_graph], when=graphs)
    tensor = w.tp_overlap and w.tp > 1
    draft.take("--tp-comm-overlap")
    draft.warn("--tp-comm-overlap needs sequence_parallel", when=tensor and not w.sequence_parallel)
    experts = w.ep_overlap and w.ep > 1
    draft.take("--overlap-moe-expert-parallel-comm")
    draft.warn(
        "Megatron-LM does not overlap expert parallelism with full recomputation",
        when=experts and w.recompute == "full",
    )
    draft.warn(
        "Megatron-LM overlaps expert parallelism in a pipeline only with virtual stages",
        when=experts and w.pp > 1 and not (w.schedule == "interleaved" and w.virtual_stages > 1),
    )


def _add_activations(draft: Draft, model: Transformer, point: DesignPoint) -> None:
    w = point.workload
    draft.add("--recompute-granularity", "full" if w.recompute == "full" else "selective", when=w.recompute != "none")
    recomputed_layers = w.recompute_num_layers
    full = w.recompute == "full"
    draft.add("--recompute-method", "uniform" if recomputed_layers is None else "block", when=full)
    draft.add("--recompute-num-layers", 1 if recomputed_layers is None else recomputed_layers, when=full)
    draft.add("--recompute-modules", [str(module) for module in w.recompute_modules], when=w.recompute == "selective")
    draft.add("--recompute-modules", ["core_attn", "mlp"], when=w.recompute == "alternate")
    draft.warn("Megatron-LM recomputes modules, not every other GEMM", when=w.recompute == "alternate")
    offloaded = outer_device(point, "activations") != "none"
    last_layer = max(1, model.layers - 1)
    draft.add("--cpu-offloading-num-layers", min(last_layer, w.offload_num_layers or last_layer), when=offloaded)
    draft.warn("Megatron-LM offloads activations only without a pipeline", when=offloaded and w.pp > 1)
    draft.warn(
        "Megatron-LM offloads activations or recomputes them, not both", when=offloaded and w.recompute != "none"
    )


def _add_data(draft: Draft, model: Transformer) -> None:
    """Add what a timing run needs besides; a real run needs a tokenizer, data and a learning-rate schedule."""
    draft.add("--tokenizer-type", "NullTokenizer")
    draft.add("--vocab-size", model.vocab)
    draft.add("--mock-data")
    draft.add("--train-iters", 50)
    draft.add("--lr", 0.0001)
    draft.add("--eval-iters", 0)


# ---- A design from arguments

Tree = dict[str, Any]
MODULES = RecomputeModule.__args__  # type: ignore[attr-defined]
STRATEGIES = ("no_shard", "optim", "optim_grads", "optim_grads_params")
"""What Megatron-FSDP shards."""
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
    precision = _read_precision(arguments)
    said = read_fields(arguments, "megatron", precision, moe=shape.moe)
    dp = count_replicas(arguments.where, npus, said["tp"], said["cp"], said["pp"])
    mesh = said | _read_context(arguments, said["cp"])
    tree = mesh | _read_experts(arguments, mesh, npus // mesh["pp"], shape) | _read_batch(arguments, dp)
    sharding = _read_sharding(arguments)
    tree |= sharding | _read_offload(arguments, shape) | _read_pipeline(arguments, mesh["pp"], shape.layers)
    tree |= (
        _read_overlap(arguments, mesh, dp, sharded=bool(sharding))
        | _read_activations(arguments)
        | _read_kernels(arguments, dropout)
        | _read_graphs(arguments)
    )
    if arguments.flag("--use-tp-pp-dp-mapping"):
        tree["placement"] = list(ORDERS[1])
    return tree


def _read_graphs(arguments: NamedArguments) -> Tree:
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


def _read_context(arguments: NamedArguments, cp: int) -> Tree:
    if cp == 1:
        arguments.asked.add("--cp-comm-type")
        return {}
    types = set(arguments.words("--cp-comm-type")) or {"p2p"}
    if types == {"a2a+p2p"} or len(types) > 1:
        arguments.leave_out("--cp-comm-type", "all layers exchange keys and values in a ring")
        types = {"p2p"}
    (name,) = types
    context = fields_told(Workload, "megatron", "--cp-comm-type", [name.replace("all_gather", "allgather")])
    if not context:
        raise arguments.error("--cp-comm-type", "must be one of p2p, a2a, allgather, all_gather, a2a+p2p")
    return context


def _read_experts(arguments: NamedArguments, mesh: Tree, ranks: int, shape: DecoderShape) -> Tree:
    ep, etp = arguments.whole("--expert-model-parallel-size"), arguments.whole("--expert-tensor-parallel-size")
    tp = mesh["tp"]
    dispatch = arguments.text("--moe-token-dispatcher-type", ("allgather", "alltoall", "alltoall_seq", "flex"))
    deep = arguments.flag("--moe-enable-deepep")
    arguments.text("--moe-flex-dispatcher-backend", ("deepep", "hybridep"))
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
    experts: Tree = {}
    factor = arguments.number("--moe-expert-capacity-factor")
    if factor is not None and not arguments.flag("--moe-pad-expert-input-to-capacity"):  # else the model has it
        experts["moe_expert_capacity_factor"] = factor
    if etp != gcd(tp, ranks // ep):  # what a design has that states none
        experts["etp"] = etp
    sent = "flex" if dispatch == "flex" or deep else "alltoall"
    return experts | (fields_told(Workload, "megatron", "--moe-token-dispatcher-type", sent) if ep > 1 else {})


def _read_batch(arguments: NamedArguments, dp: int) -> Tree:
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


def _read_precision(arguments: NamedArguments) -> Tree:
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
    in_fp32 = not reduces_bf16 if brain else accumulates_fp32
    return {"precision": precision} | stated_gradients(precision, in_fp32) | _read_moments(arguments)


def _read_moments(arguments: NamedArguments) -> Tree:
    aware = arguments.flag("--use-precision-aware-optimizer")
    first, second = (arguments.text(name) or "fp32" for name in ("--exp-avg-dtype", "--exp-avg-sq-dtype"))
    if aware and first == second == "bf16":
        return fields_told(Workload, "megatron", "--exp-avg-dtype", "bf16")
    for name, kind in (("--exp-avg-dtype", first), ("--exp-avg-sq-dtype", second)):
        if kind != "fp32":
            why = "both running means of Adam are in fp32, or both in bf16"
            arguments.leave_out(name, why if aware else "it has no effect without --use-precision-aware-optimizer")
    for name in ("--main-params-dtype", "--main-grads-dtype"):
        if (arguments.text(name) or "fp32") != "fp32":
            arguments.leave_out(name, "the master copy and its gradients are in fp32")
    return {}


def _read_sharding(arguments: NamedArguments) -> Tree:
    """Return what replicas share out; nothing where each has all of it."""
    strategy = arguments.text("--data-parallel-sharding-strategy", STRATEGIES)
    custom_fsdp = arguments.flag("--use-megatron-fsdp") or arguments.flag("--use-custom-fsdp")
    torch, keeps_gathered = (
        arguments.flag("--use-torch-fsdp2"),
        arguments.flag("--torch-fsdp2-no-reshard-after-forward"),
    )
    distributed = arguments.flag("--use-distributed-optimizer")
    if custom_fsdp and torch:
        raise arguments.error("--use-torch-fsdp2", "contradicts --use-megatron-fsdp: choose one")
    if torch and keeps_gathered:
        arguments.leave_out("--torch-fsdp2-no-reshard-after-forward", "weights are gathered in both passes")
    if not (torch or custom_fsdp) and strategy not in (None, "no_shard"):
        arguments.leave_out("--data-parallel-sharding-strategy", "it has no effect without --use-megatron-fsdp")
    # What --use-distributed-optimizer and PyTorch's FSDP shard has a name among those of Megatron-FSDP.
    sharded = "optim_grads_params" if torch else strategy if custom_fsdp else "optim" if distributed else None
    if sharded in (None, "no_shard"):
        return {}
    if sharded == "optim":
        return fields_told(Workload, "megatron", "--use-distributed-optimizer", True)
    return fields_told(Workload, "megatron", "--data-parallel-sharding-strategy", sharded)


def _read_offload(arguments: NamedArguments, shape: DecoderShape) -> Tree:
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


def _read_pipeline(arguments: NamedArguments, stages: int, layers: int) -> Tree:
    """Return the schedule; layers lie on stages as the design deals them out, or that is said."""
    layout = arguments.text("--pipeline-model-parallel-layout")
    parts = expand_layout(arguments, layout) if layout is not None else None
    virtual = _read_virtual_stages(arguments, stages, layers, parts)
    even = layers_per_part(layers, stages, virtual)
    counts = [arguments.whole(name, least=0) for name in ENDS]
    uneven = stages > 1 and layers_per_part(layers, stages, virtual, *counts) != even
    ends = name_ends(*counts) if uneven else {}
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


def _read_virtual_stages(arguments: NamedArguments, stages: int, layers: int, parts: list[int] | None) -> int:
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


def _read_overlap(arguments: NamedArguments, mesh: Tree, dp: int, *, sharded: bool) -> Tree:
    reduced, gathered = arguments.flag("--overlap-grad-reduce"), arguments.flag("--overlap-param-gather")
    if mesh["tp"] > 1 and arguments.flag("--tp-comm-overlap") and not arguments.flag("--sequence-parallel"):
        raise arguments.error("--tp-comm-overlap", "needs --sequence-parallel")
    if dp * mesh["cp"] == 1:
        return {}
    if gathered and not reduced:
        arguments.leave_out("--overlap-param-gather", "gathers overlap compute only where reductions do")
    if reduced and sharded and not gathered:
        arguments.assume("gathers of weights overlap compute, as reductions of gradients do")
    return {"dp_overlap": reduced}


def _read_activations(arguments: NamedArguments) -> Tree:
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


def _read_kernels(arguments: NamedArguments, dropout: float) -> Tree:
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
    return kernels | (fields_told(Workload, "megatron", "--cross-entropy-fusion-impl", kind) if fusion and kind else {})
