"""Megatron-LM: arguments of `pretrain_gpt.py`, of the mapping and of the decoder that it trains.

Names and values are those of megatron/training/arguments.py at the commit below; a test checks every name.
"""

from __future__ import annotations

from cosmic.design.design_point import DesignPoint
from cosmic.design.model_layer import MLA, Experts, Transformer, is_moe_layer
from cosmic.design.workload_layer import Workload
from cosmic.frameworks.launch import (
    Draft,
    Launch,
    common_warnings,
    describe_launch,
    outer_device,
    outer_share,
    places_otherwise,
    targets,
    torchrun_command,
    trained_decoder,
)
from cosmic.frameworks.launch_quoting import quote_options
from cosmic.step.cuts.balanced import state_end_layers
from cosmic.workload.pipeline_cut import layers_per_part
from cosmic.workload.precision import recipe_for

# ---- A decoder as arguments of Megatron-LM


def add_model_arguments(draft: Draft, model: Transformer, workload: Workload) -> None:
    """Add the arguments of *model*, and warn of what Megatron-LM cannot express."""
    draft.add("--num-layers", model.layers)
    draft.add("--hidden-size", model.hidden)
    draft.add("--ffn-hidden-size", model.ffn)
    draft.add("--swiglu", when=model.gated)
    draft.add("--normalization", "RMSNorm", when=model.norm == "rmsnorm")
    draft.add("--untie-embeddings-and-output-weights", when=not model.tied_embeddings)
    _add_attention(draft, model)
    _add_positions(draft, model, workload)
    _add_biases(draft, model)
    if model.experts is not None:
        _add_model_experts(draft, model, model.experts)
    _warn_unexpressed(draft, model)


def _add_attention(draft: Draft, model: Transformer) -> None:
    draft.add("--num-attention-heads", model.heads)
    if model.mla is not None:
        _add_mla(draft, model, model.mla)
        return
    grouped = model.kv_heads < model.heads
    draft.add("--group-query-attention", when=grouped)
    draft.add("--num-query-groups", model.kv_heads, when=grouped)
    draft.add("--kv-channels", model.head_dim, when=model.head_dim * model.heads != model.hidden)
    draft.add("--qk-layernorm", when=model.qk_norm)
    draft.add("--softmax-type", "learnable", when=model.sinks)
    if model.window is not None:  # that many tokens back, besides the token itself
        draft.add("--window-size", f"{model.window - 1},0")
        every = model.full_attention_every
        draft.add("--window-attn-skip-freq", every or 0, when=every is not None)


def _add_mla(draft: Draft, model: Transformer, mla: MLA) -> None:
    draft.add("--multi-latent-attention")
    draft.add("--q-lora-rank", mla.q_lora_rank or 0, when=mla.q_lora_rank is not None)
    draft.add("--kv-lora-rank", mla.kv_lora_rank)
    draft.add("--qk-head-dim", model.head_dim)
    draft.add("--qk-pos-emb-head-dim", mla.qk_rope_head_dim)
    draft.add("--v-head-dim", mla.v_head_dim)
    draft.add("--qk-layernorm")  # the norms of both compressed vectors


def _add_positions(draft: Draft, model: Transformer, workload: Workload) -> None:
    draft.add("--seq-length", workload.sequence)
    draft.add("--max-position-embeddings", max(workload.sequence, model.positions))
    if model.positions:
        draft.add("--position-embedding-type", "learned_absolute")
    elif model.position_buckets:
        draft.add("--position-embedding-type", "relative")
        draft.add("--relative-attention-num-buckets", model.position_buckets)
    else:
        draft.add("--position-embedding-type", "rope")


def _add_biases(draft: Draft, model: Transformer) -> None:
    """Add which projections have biases: all, none, or those of queries, keys and values."""
    moe = [is_moe_layer(model, layer) for layer in range(model.layers)]
    usual = {"qkv", "out"} | {"experts" for _ in range(any(moe))} | {"ffn" for _ in range(not all(moe))}
    biased = set(model.biases) & usual
    draft.add("--disable-bias-linear", when=biased != usual and biased <= {"qkv"})
    draft.add("--add-qkv-bias", when=biased == {"qkv"})
    partly = biased != usual and not biased <= {"qkv"}
    draft.warn(f"Megatron-LM adds biases to all projections, the design to {', '.join(sorted(biased))}", when=partly)
    for part in sorted(set(model.biases) & {"head", "router"}):
        draft.warn(f"Megatron-LM has no argument for a bias of the {part}")


def _add_model_experts(draft: Draft, model: Transformer, experts: Experts) -> None:
    draft.add("--num-experts", experts.count)
    draft.add("--moe-router-topk", experts.active)
    draft.add("--moe-ffn-hidden-size", experts.ffn)
    draft.add("--moe-shared-expert-intermediate-size", experts.shared_ffn, when=experts.shared_ffn > 0)
    draft.add("--moe-layer-freq", moe_layer_pattern(model), when=experts.dense_first > 0 or experts.every > 1)
    factor = experts.capacity_factor
    draft.add("--moe-expert-capacity-factor", factor or 0.0, when=factor is not None)
    draft.add("--moe-pad-expert-input-to-capacity", when=factor is not None)
    draft.warn("Megatron-LM has no argument for the gate of shared experts", when=experts.shared_gate)
    draft.warn(
        "the design's experts are evenly loaded: add --moe-router-force-load-balancing to time it with mock data",
        when=factor is None,
    )


def moe_layer_pattern(model: Transformer) -> str:
    """Return which layers are MoE layers, as a Python expression: runs of equal layers.

    >>> from cosmic.design.model_layer import Experts
    >>> sizes = {"layers": 8, "hidden": 8, "heads": 1, "ffn": 8, "vocab": 8}
    >>> moe_layer_pattern(Transformer(**sizes, experts=Experts(count=4, active=1, ffn=8, dense_first=3)))
    '([0]*3+[1]*5)'
    >>> moe_layer_pattern(Transformer(**sizes, experts=Experts(count=4, active=1, ffn=8, every=2)))
    '([0]*1+[1]*1)*4'
    """
    experts = model.experts
    if experts is not None and experts.every > 1 and not experts.dense_first and model.layers % experts.every == 0:
        return f"([0]*{experts.every - 1}+[1]*1)*{model.layers // experts.every}"
    runs: list[list[int]] = []
    for layer in range(model.layers):
        kind = int(is_moe_layer(model, layer))
        if runs and runs[-1][0] == kind:
            runs[-1][1] += 1
        else:
            runs.append([kind, 1])
    return "(" + "+".join(f"[{kind}]*{count}" for kind, count in runs) + ")"


def _warn_unexpressed(draft: Draft, model: Transformer) -> None:
    """Warn of what has no argument."""
    draft.warn("Megatron-LM runs attention before the feed-forward network, not in parallel", when=model.parallel_block)
    draft.warn(
        f"Megatron-LM has 2 norms per layer, the design {model.norms_per_layer}", when=model.norms_per_layer != 2
    )
    draft.warn("Megatron-LM does not normalise embeddings", when=model.embedding_norm)
    draft.warn("Megatron-LM has a norm after the last layer", when=not model.final_norm)
    draft.warn("Megatron-LM's layer norm has a bias", when=model.norm == "layernorm" and not model.norm_bias)


COMMIT = "000c4ac24f61"
"""Of github.com/NVIDIA/Megatron-LM."""
SHARDING = {"zero2": "optim_grads", "zero3": "optim_grads_params"}
CONTEXT = {"ring": "p2p", "ulysses": "a2a", "all_gather": "allgather"}
ORDERS = (("tp", "cp", "dp", "pp"), ("tp", "cp", "pp", "dp"))
"""Orders of ranks, innermost first: the default, and that of --use-tp-pp-dp-mapping."""
SCHEDULES = ("1f1b", "interleaved")


@targets.register("megatron")
def launch_megatron(point: DesignPoint) -> Launch:
    """Return how Megatron-LM trains *point*."""
    point = state_end_layers(point)
    model = trained_decoder(point, "megatron")
    draft = Draft()
    _parallelism(draft, point.workload)
    _experts(draft, model, point.workload)
    _pipeline(draft, model, point.workload)
    _placement(draft, point)
    _batch(draft, point.workload)
    add_model_arguments(draft, model, point.workload)
    _precision(draft, point.workload)
    _states(draft, point)
    _overlap(draft, point.workload)
    _activations(draft, model, point)
    _kernels(draft, point.workload)
    _data(draft, model)
    return Launch(
        about=describe_launch(point, f"Megatron-LM's arguments, as of commit {COMMIT}"),
        command=(torchrun_command(point), "pretrain_gpt.py", *quote_options(draft.arguments)),
        arguments=draft.arguments,
        environment=_environment(point.workload),
        warnings=(*draft.warnings, *common_warnings(point)),
    )


def _environment(w: Workload) -> dict[str, str]:
    """Return the number of hardware queues: one keeps collectives in order, FSDP needs several."""
    if w.weight_sharding in SHARDING:
        return {"CUDA_DEVICE_MAX_CONNECTIONS": "8"}
    if w.ep_overlap and w.ep > 1:
        return {"CUDA_DEVICE_MAX_CONNECTIONS": "32"}
    return {"CUDA_DEVICE_MAX_CONNECTIONS": "1"} if w.tp > 1 or w.cp > 1 else {}


def _parallelism(draft: Draft, w: Workload) -> None:
    draft.add("--tensor-model-parallel-size", w.tp)
    draft.add("--pipeline-model-parallel-size", w.pp)
    draft.add("--context-parallel-size", w.cp)
    draft.add("--cp-comm-type", [CONTEXT[w.cp_comm_type]], when=w.cp > 1)
    draft.add("--sequence-parallel", when=w.sequence_parallel and w.tp > 1)
    draft.warn(
        "Megatron-LM gives each context-parallel rank two chunks of the sequence", when=w.cp > 1 and not w.cp_balanced
    )
    halves = 2 * w.cp
    draft.warn(
        f"Megatron-LM needs a sequence that divides by {halves}, twice cp",
        when=w.cp > 1 and w.sequence % halves != 0,
    )


def _experts(draft: Draft, model: Transformer, w: Workload) -> None:
    """Add expert parallelism, with its dispatcher."""
    if model.experts is None:
        return
    draft.add("--expert-model-parallel-size", w.ep)
    draft.add("--expert-tensor-parallel-size", w.expert_tensor)
    flexible = w.moe_token_dispatcher_type == "flex" and w.ep > 1
    draft.add("--moe-token-dispatcher-type", "flex" if flexible else "alltoall")
    draft.add("--moe-enable-deepep", when=flexible)
    draft.add("--moe-grouped-gemm", when=w.grouped_gemm and w.precision not in ("fp16", "fp32"))
    draft.add(
        "--moe-expert-capacity-factor",
        w.moe_expert_capacity_factor or 0.0,
        when=w.moe_expert_capacity_factor is not None,
    )
    draft.add("--moe-pad-expert-input-to-capacity", when=w.moe_pad_expert_input_to_capacity)
    draft.warn("no argument skews routing: that is the data's", when=w.moe_routing_skew > 0)
    draft.warn(
        "Megatron-LM trains MoE models with tp only under sequence_parallel", when=w.tp > 1 and not w.sequence_parallel
    )


def _pipeline(draft: Draft, model: Transformer, w: Workload) -> None:
    virtual = w.virtual_stages if w.schedule == "interleaved" and w.pp > 1 else 1
    chunks = layers_per_part(model.layers, w.pp, virtual, w.first_stage_layers, w.last_stage_layers)
    ends = _uneven_ends(chunks, w)
    draft.add("--num-virtual-stages-per-pipeline-rank", virtual, when=ends is not None and virtual > 1)
    for name, layers in (ends or {}).items():
        draft.add(name, layers)
    draft.add("--pipeline-model-parallel-layout", pipeline_layout(chunks), when=ends is None)
    if w.pp > 1 and w.schedule not in SCHEDULES:
        draft.warn(f"Megatron-LM has no schedule like {w.schedule}: it runs 1F1B, with another bubble and memory")
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
    first = {"--decoder-first-pipeline-num-layers": stages[0] * rounds} if stages[0] != usual else {}
    last = {"--decoder-last-pipeline-num-layers": stages[-1] * rounds} if stages[-1] != usual else {}
    ends = first | last
    is_stated = not first or w.first_stage_layers is not None
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


def _placement(draft: Draft, point: DesignPoint) -> None:
    w = point.workload
    usual = not places_otherwise(point, ORDERS[:1])
    draft.add("--use-tp-pp-dp-mapping", when=not usual and not places_otherwise(point, ORDERS[1:]))
    if places_otherwise(point, ORDERS):
        draft.warn(f"Megatron-LM numbers ranks in the order tp, cp, dp, pp, not {', '.join(w.placement)}")


def _batch(draft: Draft, w: Workload) -> None:
    draft.add("--micro-batch-size", w.micro_batch)
    draft.add("--global-batch-size", w.global_batch)
    samples_per_pass = w.micro_batch * w.dp
    draft.warn(
        f"Megatron-LM needs a global batch that divides by {samples_per_pass}",
        when=w.global_batch % samples_per_pass != 0,
    )


def _precision(draft: Draft, w: Workload) -> None:
    draft.add("--fp16", when=w.precision == "fp16")
    draft.add("--bf16", when=w.precision not in ("fp16", "fp32"))
    wide_gradients = recipe_for(w).gradient > recipe_for(w).weight
    draft.add(
        "--accumulate-allreduce-grads-in-fp32", when=wide_gradients and w.precision == "fp16"
    )  # else it is the default
    draft.add("--grad-reduce-in-bf16", when=not wide_gradients and w.precision not in ("fp16", "fp32"))
    draft.add("--fp8-format", "hybrid", when=w.precision == "fp8")
    other_recipe = w.precision == "fp8" and w.fp8_recipe not in ("auto", "rowwise")
    draft.add("--fp8-recipe", w.fp8_recipe, when=other_recipe)
    draft.warn("Megatron-LM does not scale rows", when=w.precision == "fp8" and w.fp8_recipe == "rowwise")
    draft.add("--fp4-format", "e2m1", when=w.precision == "fp4")
    draft.warn("Megatron-LM keeps an fp32 copy of bf16 weights", when=w.precision == "bf16_pure")
    draft.warn("Megatron-LM does not train in int4: this is bf16", when=w.precision == "int4")
    draft.warn("Megatron-LM supports expert parallelism only in bf16", when=w.precision == "fp16" and w.ep > 1)


def _states(draft: Draft, point: DesignPoint) -> None:
    """Add the sharding of optimizer states, gradients and weights over replicas."""
    w = point.workload
    draft.add("--use-distributed-optimizer", when=w.weight_sharding != "none")
    strategy = SHARDING.get(w.weight_sharding)
    if strategy is not None:
        draft.add("--use-megatron-fsdp")
        draft.add("--data-parallel-sharding-strategy", strategy)
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
    bf16_moments = w.moments == "bf16"
    draft.add("--use-precision-aware-optimizer", when=outer or bf16_moments)
    draft.add("--exp-avg-dtype", "bf16", when=bf16_moments)
    draft.add("--exp-avg-sq-dtype", "bf16", when=bf16_moments)
    draft.warn("Megatron-LM does not offload weights", when=outer_device(point, "weights") != "none")


def _overlap(draft: Draft, w: Workload) -> None:
    replicas = w.dp * w.cp > 1
    graphs = bool(w.cuda_graph)
    draft.add("--overlap-grad-reduce", when=w.dp_overlap and replicas)
    draft.add("--overlap-param-gather", when=w.dp_overlap and replicas and w.weight_sharding != "none")
    draft.add("--cuda-graph-impl", "local" if "full_iteration" in w.cuda_graph else "transformer_engine", when=graphs)
    draft.add("--cuda-graph-scope", [str(scope) for scope in w.cuda_graph], when=graphs)
    tensor = w.tp_overlap and w.tp > 1
    draft.add("--tp-comm-overlap", when=tensor and w.sequence_parallel)
    draft.warn("--tp-comm-overlap needs sequence_parallel", when=tensor and not w.sequence_parallel)
    experts = w.ep_overlap and w.ep > 1
    draft.add("--overlap-moe-expert-parallel-comm", when=experts)
    draft.warn(
        "Megatron-LM does not overlap expert parallelism with full recomputation",
        when=experts and w.recompute == "full",
    )
    draft.warn(
        "Megatron-LM overlaps expert parallelism in a pipeline only with virtual stages",
        when=experts and w.pp > 1 and not (w.schedule == "interleaved" and w.virtual_stages > 1),
    )


def _activations(draft: Draft, model: Transformer, point: DesignPoint) -> None:
    w = point.workload
    draft.add("--recompute-granularity", "full" if w.recompute == "full" else "selective", when=w.recompute != "none")
    recomputed_layers = w.recompute_num_layers
    full = w.recompute == "full"
    draft.add("--recompute-method", "uniform" if recomputed_layers is None else "block", when=full)
    draft.add("--recompute-num-layers", 1 if recomputed_layers is None else recomputed_layers, when=full)
    draft.warn(
        "Megatron-LM recomputes some layers only in full; modules are recomputed in all",
        when=recomputed_layers is not None and w.recompute in ("selective", "alternate"),
    )
    draft.add("--recompute-modules", [str(module) for module in w.recompute_modules], when=w.recompute == "selective")
    draft.add("--recompute-modules", ["core_attn", "mlp"], when=w.recompute == "alternate")
    draft.warn("Megatron-LM recomputes modules, not every other GEMM", when=w.recompute == "alternate")
    draft.warn(
        "Megatron-LM recomputes layers to their end: predict that with --set workload.recompute_to_end=true",
        when=w.recompute == "full" and not w.recompute_to_end,
    )
    offloaded = outer_device(point, "activations") != "none"
    last_layer = max(1, model.layers - 1)
    draft.add("--cpu-offloading-num-layers", min(last_layer, w.offload_num_layers or last_layer), when=offloaded)
    draft.warn("Megatron-LM offloads activations only without a pipeline", when=offloaded and w.pp > 1)
    draft.warn(
        "Megatron-LM offloads activations or recomputes them, not both", when=offloaded and w.recompute != "none"
    )


def _kernels(draft: Draft, w: Workload) -> None:
    draft.add("--attention-backend", "unfused", when=w.attention.startswith("unfused"))
    draft.add("--attention-backend", "flash", when=w.attention in ("flash1", "flash2"))
    draft.add("--attention-softmax-in-fp32", when=w.attention.startswith("unfused"))
    draft.add("--cross-entropy-loss-fusion", when=w.loss in ("chunked", "fused"))
    draft.add("--cross-entropy-fusion-impl", "te", when=w.loss in ("chunked", "fused"))
    draft.add("--attention-dropout", 0.0, when=not w.dropout)
    draft.add("--hidden-dropout", 0.0, when=not w.dropout)
    draft.warn(f"Megatron-LM's kernels are fused by hand; execution is {w.execution}", when=w.execution != "fused")


def _data(draft: Draft, model: Transformer) -> None:
    """Add what a timing run needs besides; a real run needs a tokenizer, data and a learning-rate schedule."""
    draft.add("--tokenizer-type", "NullTokenizer")
    draft.add("--vocab-size", model.vocab)
    draft.add("--mock-data")
    draft.add("--train-iters", 50)
    draft.add("--lr", 0.0001)
    draft.add("--eval-iters", 0)
