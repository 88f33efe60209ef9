"""The workload layer: the task, its sizes, and its parallelism."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import gcd, prod
from typing import Any, Literal, get_args

from cosmic.base.errors import require
from cosmic.base.registry import Registry
from cosmic.design.field_facts import (
    NO_PROGRAMS,
    NO_RECOMMENDERS,
    OTHER,
    TRANSFORMERS,
    Flag,
    Use,
    above_one,
    declared,
    facts,
    is_given,
    lacks,
    none_of,
    one_of,
    unless,
)
from cosmic.design.schema import check_bounds

Axis = Literal["tp", "cp", "dp", "pp"]
AXES: tuple[Axis, ...] = get_args(Axis)
Task = Literal["training", "prefill", "decode"]
Precision = Literal["fp32", "fp16", "bf16", "bf16_pure", "fp8", "fp4", "int4"]
WeightSharding = Literal["none", "zero1", "zero2", "zero3"]
ReduceEvery = Literal["step", "microbatch"]
StageLayers = Literal["even", "balanced"]
UnevenTensor = Literal["refuse", "pad"]
Recompute = Literal["none", "selective", "alternate", "full"]
RecomputeModule = Literal["core_attn", "layernorm", "mla_up_proj", "mlp", "moe", "moe_act", "shared_experts"]
Moments = Literal["fp32", "bf16"]
OptimizerKernels = Literal["fused", "foreach"]
CacheFormat = Literal["auto", "bf16", "fp8"]
Attention = Literal["fused", "flash2", "flash1", "unfused_windows", "unfused"]
ContextParallel = Literal["all_gather", "ring", "ulysses"]
Loss = Literal["auto", "chunked", "fused", "half", "eager", "retained"]
Fp8Recipe = Literal["auto", "delayed", "tensorwise", "rowwise", "blockwise", "mxfp8"]
Execution = Literal["fused", "compiled", "eager"]
GraphScope = Literal["attn", "mamba", "mlp", "moe_router", "moe_preprocess", "full_iteration"]
Runtime = Literal["multi_controller", "single_parallel", "single_sequential"]
Dispatcher = Literal["flex", "alltoall"]
Offloaded = Literal["weights", "optimizer", "activations"]
OptimizerDevice = Literal["gpu", "cpu"]
LoraTarget = Literal[
    "linear_qkv",
    "linear_proj",
    "linear_fc1",
    "linear_fc2",
    "linear_q_proj",
    "linear_q_down_proj",
    "linear_q_up_proj",
    "linear_kv_down_proj",
    "linear_kv_up_proj",
]

schedules: Registry[Any] = Registry("schedule", "cosmic.workload.pipeline_schedules", "cosmic.schedules")
"""Pipeline schedules by name; `cosmic.workload.pipeline_schedule` says what one is."""


def _uses(*uses: Use) -> frozenset[Use]:
    return frozenset(uses)


def _spreads_experts(workload: Workload) -> bool:
    return workload.ep > 1


def _balances_experts(workload: Workload) -> bool:
    return workload.enable_eplb


def _copies_experts(workload: Workload) -> bool:
    return workload.enable_eplb and workload.num_redundant_experts > 0


def _ddp_of_torchtitan(workload: Workload) -> str:
    w = workload
    if w.dp > 1 and w.tp * w.cp * w.pp > 1:
        return "TorchTitan supports DDP only without other parallelism: choose a weight_sharding"
    return "TorchTitan shards weights over context-parallel ranks" if w.dp == 1 and w.cp > 1 else ""


def _has_adapters(workload: Workload) -> bool:
    return workload.lora_rank is not None


def _shards_fp8(workload: Workload) -> bool:
    return workload.precision == "fp8" and workload.weight_sharding != "none"


_UNFUSED = {"--attention-backend": "unfused", "--attention-softmax-in-fp32": True}
_FLASH = {"--attention-backend": "flash"}
_FUSED_LOSS = {"--cross-entropy-loss-fusion": True, "--cross-entropy-fusion-impl": "te"}
_NOT_IN_TORCHAO = ("auto", "delayed", "blockwise", "mxfp8")
_MEGATRON_FSDP = {"--use-distributed-optimizer": True, "--use-megatron-fsdp": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The task, and its mapping onto a mesh of ``dp * tp * cp * pp`` NPUs.

    What is declared of a field beside it is all that other modules know of it by name: `cosmic.design.field_facts`.

    Experts have a mesh of their own over the ranks of a pipeline stage: ``etp * ep * edp = dp * tp * cp``, as in
    Megatron-LM's parallel folding. etp is the innermost part of tp; ep goes on from there, over the rest of tp, then
    over the other axes in the order of the placement; edp, which replicates experts, is what is left.
    """

    task: Task = declared("training", single_step=True)
    sequence: int = field(metadata=facts(number=True, least=1, single_step=True))
    """Sequence length in tokens (training, prefill), or tokens attended to (decode)."""
    global_batch: int = field(metadata=facts(number=True, least=1, single_step=True))
    """Sequences per step, over all ranks."""
    micro_batch: int = declared(
        1, least=1, number=True, single_step=True, uses=_uses("searched", "switch", "remapped"), label="microbatch"
    )
    """Sequences per microbatch of a data-parallel replica."""
    precision: Precision = declared(
        "bf16",
        flags={
            "megatron": lacks(
                {
                    "bf16_pure": "Megatron-LM keeps an fp32 copy of bf16 weights",
                    "int4": "Megatron-LM does not train in int4: this is bf16",
                }
            ),
            "torchtitan": lacks(
                {
                    "fp16": "TorchTitan does not train in fp16: this is bf16",
                    "fp4": "TorchTitan does not train in fp4: this is bf16",
                    "int4": "TorchTitan does not train in int4: this is bf16",
                    "bf16_pure": "TorchTitan keeps fp32 weights beside bf16",
                }
            ),
            "deepspeed": lacks(
                {
                    "fp8": "DeepSpeed runs GEMMs in 16 bits, not in fp8",
                    "fp4": "DeepSpeed runs GEMMs in 16 bits, not in fp4",
                    "int4": "DeepSpeed runs GEMMs in 16 bits, not in int4",
                    "bf16_pure": "DeepSpeed keeps an fp32 copy of bf16 weights",
                }
            ),
            "vllm": lacks({"int4": "vLLM runs int4 weights from quantized checkpoints only"}),
            "sglang": lacks({"int4": "SGLang runs int4 weights from quantized checkpoints only"}),
        },
    )
    """Number format. In training, bf16 and fp16 keep an fp32 master copy and bf16_pure keeps none; fp8 and fp4 are the
    formats of GEMMs, states stay as in bf16. In serving, weights are stored in the format; int4 multiplies in bf16."""
    fp8_recipe: Fp8Recipe = declared(
        "auto",
        training=True,
        idle=unless("precision", one_of("fp8")),
        flags={
            "megatron": Flag(
                "--fp8-recipe",
                {name: name for name in ("delayed", "tensorwise", "blockwise", "mxfp8")},
                default="auto",
                lacks={"rowwise": "Megatron-LM does not scale rows"},
            ),
            "torchtitan": Flag(
                "float8.recipe_name",
                {"tensorwise": "tensorwise", "rowwise": "rowwise", **dict.fromkeys(_NOT_IN_TORCHAO, "tensorwise")},
                lacks=dict.fromkeys(_NOT_IN_TORCHAO[1:], "torchao's float8 is not {value}: this is tensorwise"),
                read=False,
            ),
        },
    )
    """How training in fp8 scales what it casts, as Megatron-LM's --fp8-recipe names it: each tensor by the maxima of
    earlier steps (delayed) or by its own (tensorwise, "current scaling"), each row (rowwise, of torchao), blocks of 128
    (blockwise) or 32 numbers (mxfp8). If not given (auto), as frameworks do: PyTorch tensorwise, Transformer Engine
    (execution: fused) mxfp8 where the accelerator has fp4, delayed elsewhere. fp4 is NVFP4 whatever this says."""
    cache_dtype: CacheFormat = "auto"
    """Number format of the KV cache while serving. If not given (auto), that of the precision: 8 bits for fp8 and fp4,
    else 16."""
    fp8_weight_cache: bool = declared(True, training=True, idle=unless("precision", one_of("fp8", "fp4")))
    """Whether weights are cast to 8 or 4 bits once a step, or for every microbatch (Megatron Bridge's
    disable_parameter_transpose_cache, which its fine-tuning recipes set)."""
    fp8_param_gather: bool = declared(
        True,
        training=True,
        idle=unless("precision", one_of("fp8")),
        flags={"megatron": Flag("--fp8-param-gather", default=False, when=_shards_fp8)},
    )
    """Whether replicas gather updated weights in 8 bits and keep no copy in 16 (Megatron-LM's --fp8-param-gather, of
    Transformer Engine's kernels). Else the 8-bit copies are kept beside those of 16 bits."""
    dp: int = declared(1, least=1, number=True, uses=_uses("searched"), label="data parallelism")
    """Data parallelism."""
    tp: int = declared(
        1,
        least=1,
        number=True,
        uses=_uses("searched", "remapped"),
        label="tensor parallelism",
        flags={
            "megatron": Flag("--tensor-model-parallel-size", default=1),
            "torchtitan": Flag("parallelism.tensor_parallel_degree", default=1),
        },
    )
    """Tensor parallelism."""
    cp: int = declared(
        1,
        least=1,
        number=True,
        uses=_uses("searched", "remapped"),
        label="context parallelism",
        flags={
            "megatron": Flag("--context-parallel-size", default=1),
            "torchtitan": Flag("parallelism.context_parallel_degree", default=1),
            "serving": lacks(
                {OTHER: "cp {value}: context parallelism is not written; the numbers are of the design with it"},
                default=1,
            ),
        },
    )
    """Context parallelism."""
    pp: int = declared(
        1,
        least=1,
        number=True,
        uses=_uses("searched", "remapped"),
        label="pipeline stages",
        flags={
            "megatron": Flag("--pipeline-model-parallel-size", default=1),
            "torchtitan": Flag("parallelism.pipeline_parallel_degree", default=1),
        },
    )
    """Pipeline parallelism: the number of stages."""
    ep: int = declared(
        1,
        least=1,
        number=True,
        uses=_uses("searched", "remapped"),
        label="expert parallelism",
        flags={
            "megatron": Flag("--expert-model-parallel-size", default=1, experts=True),
            "torchtitan": Flag("parallelism.expert_parallel_degree", default=1, experts=True, when=_spreads_experts),
        },
    )
    """Expert parallelism, over the ranks of tp, cp and dp."""
    etp: int | None = declared(
        None,
        least=1,
        number=True,
        models=NO_PROGRAMS,
        uses=_uses("searched", "remapped"),
        label="expert tensor parallelism",
    )
    """Expert tensor parallelism: ranks of tp that split each expert. If not given, as much of tp as ep leaves."""
    uneven_tp: UnevenTensor = "refuse"
    """What becomes of heads and feed-forward widths that tp (of experts, etp) does not divide: such a design cannot
    run, as in Megatron-LM (refuse), or they are padded to the next multiple (pad), as XLA does: every rank computes,
    keeps and exchanges as much, and hfu counts what no token needs, mfu does not."""
    virtual_stages: int = declared(
        1,
        least=1,
        number=True,
        most=64,
        idle=lambda w: "pp is 1" if w.pp == 1 and w.virtual_stages > 1 else "",
        uses=_uses("searched", "switch", "remapped"),
    )
    """Virtual stages (model chunks) per pipeline stage, in the interleaved schedule."""
    first_stage_layers: int | None = declared(
        None,
        least=0,
        number=True,
        label="layers of the first stage",
        flags={
            "deepspeed": lacks(
                {
                    OTHER: "first_stage_layers {value}: DeepSpeed balances stages itself; the script overrides PipelineModule's partition"
                }
            )
        },
    )
    """Layers of the first pipeline stage, all its virtual stages together (Megatron-LM's
    --decoder-first-pipeline-num-layers). Stages for which none are given share the rest as evenly as possible."""
    last_stage_layers: int | None = declared(
        None,
        least=0,
        number=True,
        label="layers of the last stage",
        flags={
            "deepspeed": lacks(
                {
                    OTHER: "last_stage_layers {value}: DeepSpeed balances stages itself; the script overrides PipelineModule's partition"
                }
            )
        },
    )
    """Layers of the last pipeline stage, which has the head too (--decoder-last-pipeline-num-layers)."""
    stage_layers: StageLayers = declared(
        "even",
        idle=lambda w: "pp is 1" if w.pp == 1 and w.stage_layers != "even" else "",
        label="how layers are cut into stages",
    )
    """How layers are cut into pipeline stages where none are stated: as many on each (even), or so that the slowest
    stage is as quick as can be, with fewer beside the embedding and the head (balanced)."""
    weight_sharding: WeightSharding = declared(
        "none",
        uses=_uses("searched", "remapped"),
        launched={
            "megatron": ("zero1", "zero3"),
            "torchtitan": ("zero3",),
            "deepspeed": ("zero1", "zero2", "zero3"),
        },
        launched_anyhow=lambda w: w.dp * w.cp == 1,
        flags={
            "megatron": Flag(
                sets={
                    "zero1": {"--use-distributed-optimizer": True},
                    "zero2": {**_MEGATRON_FSDP, "--data-parallel-sharding-strategy": "optim_grads"},
                    "zero3": {**_MEGATRON_FSDP, "--data-parallel-sharding-strategy": "optim_grads_params"},
                },
                default="none",
                read=False,
            ),
            "torchtitan": Flag(
                "parallelism.fsdp_reshard_after_forward",
                {"zero2": "never", "zero1": "never", "zero3": "always"},
                default="none",
                lacks={
                    "none": _ddp_of_torchtitan,
                    **dict.fromkeys(
                        ("zero1", "zero2"),
                        "TorchTitan shards weights too: {value} becomes FSDP without resharding after the forward pass",
                    ),
                },
                read=False,
            ),
            "deepspeed": Flag(
                "zero_optimization.stage", {"none": 0, "zero1": 1, "zero2": 2, "zero3": 3}, default="none", read=False
            ),
        },
    )
    """What data parallelism shards: optimizer states (zero1), gradients too (zero2), weights too (zero3, FSDP)."""
    reduce_every: ReduceEvery = declared("step", training=True, idle=unless("weight_sharding", one_of("zero2")))
    """When zero2 reduces gradients: once a step, which keeps them whole until then, or after every microbatch, as
    DeepSpeed does, which keeps them sharded. zero3 reduces them after every microbatch, none and zero1 once a step."""
    sequence_parallel: bool = declared(
        True,
        training=True,
        models=TRANSFORMERS,
        idle=unless("tp", above_one),
        uses=_uses("searched", "switch"),
        launched={"megatron": (True, False), "torchtitan": (True,), "deepspeed": (True,)},
        flags={
            "megatron": Flag("--sequence-parallel", default=False),
            "torchtitan": lacks(
                {False: "TorchTitan always uses sequence_parallel with tensor parallelism"}, default=True
            ),
        },
    )
    """Whether activations between tensor-parallel regions are split over tp, as Megatron-LM does."""
    schedule: str = declared(
        "1f1b",
        names=schedules,
        training=True,
        models=NO_RECOMMENDERS,
        idle=unless("pp", above_one),
        uses=_uses("searched", "switch", "remapped"),
        launched={
            "megatron": ("1f1b", "interleaved"),
            "torchtitan": ("1f1b", "interleaved", "zero_bubble", "dualpipe"),
            "deepspeed": ("1f1b",),
            "any": ("1f1b", "interleaved", "zero_bubble", "dualpipe"),
        },
        flags={
            "megatron": lacks(
                {OTHER: "Megatron-LM has no schedule like {value}: it runs 1F1B, with another bubble and memory"},
                spelled={"1f1b": "1f1b", "interleaved": "interleaved"},
            ),
            "torchtitan": Flag(
                "parallelism.pipeline_parallel_schedule",
                {
                    "gpipe": "GPipe",
                    "1f1b": "1F1B",
                    "interleaved": "Interleaved1F1B",
                    "zero_bubble": "InterleavedZeroBubble",
                    "dualpipe": "DualPipeV",
                },
                lacks={OTHER: "TorchTitan has no schedule like {value}: it runs 1F1B"},
                read=False,
            ),
            "deepspeed": lacks({OTHER: "DeepSpeed has no schedule like {value}"}, default="1f1b"),
        },
    )
    """Pipeline schedule."""
    recompute: Recompute = declared(
        "none",
        training=True,
        models=NO_RECOMMENDERS,
        uses=_uses("searched", "remapped"),
        launched={
            "megatron": ("none", "selective", "full"),
            "torchtitan": ("none", "alternate", "full"),
            "deepspeed": ("none", "full"),
        },
        fastest="none",
        flags={
            "torchtitan": lacks({"selective": "TorchTitan does not recompute modules"}),
            "deepspeed": lacks({OTHER: "recompute {value}: the script checkpoints the layers"}, default="none"),
        },
    )
    """What the backward pass recomputes: nothing; some modules of each layer (selective); all but the outputs of
    attention and of every other GEMM (alternate); all but the input of each layer (full)."""
    recompute_modules: tuple[RecomputeModule, ...] = declared(
        ("core_attn",),
        training=True,
        models=NO_RECOMMENDERS,
        idle=unless("recompute", one_of("selective")),
        uses=_uses("searched", "remapped"),
        fastest=("core_attn",),
    )
    """Modules that selective recomputation runs again, as Megatron-LM names them: attention between its projections
    (core_attn), the norms before attention and feed-forward network (layernorm), MLA's up-projections with their
    rotation (mla_up_proj), a dense feed-forward network (mlp), a layer's routed and shared experts (moe), the
    activation function of experts (moe_act), shared experts."""
    recompute_num_layers: int | None = declared(
        None,
        least=0,
        training=True,
        models=NO_RECOMMENDERS,
        idle=unless("recompute", none_of("none")),
        uses=_uses("remapped"),
        flags={
            "megatron": lacks(
                {OTHER: "Megatron-LM recomputes some layers only in full; modules are recomputed in all"},
                when=lambda w: w.recompute in ("selective", "alternate"),
            ),
            "torchtitan": lacks(
                {OTHER: "TorchTitan recomputes all layers"}, when=lambda w: w.recompute in ("full", "alternate")
            ),
        },
    )
    """Layers of each pipeline stage, or of each of its virtual stages, that recompute: the first ones. All if not
    given."""
    recompute_to_end: bool = declared(
        False,
        training=True,
        models=NO_RECOMMENDERS,
        idle=unless("recompute", none_of("none")),
        flags={
            "megatron": lacks(
                {
                    False: "Megatron-LM recomputes layers to their end: predict that with "
                    "--set workload.recompute_to_end=true"
                },
                default=True,
                when=lambda w: w.recompute == "full",
            ),
            "torchtitan": lacks(
                {True: "TorchTitan stops recomputation early"},
                default=False,
                when=lambda w: w.recompute in ("full", "alternate"),
            ),
        },
    )
    """Whether recomputation runs each layer to its end (Megatron-LM), or stops once the backward pass has what it reads
    (PyTorch)."""
    attention: Attention = declared(
        "fused",
        models=NO_RECOMMENDERS,
        flags={
            "megatron": Flag(
                sets={"unfused": _UNFUSED, "unfused_windows": _UNFUSED, "flash1": _FLASH, "flash2": _FLASH},
                default="fused",
                read=False,
            ),
            "torchtitan": lacks(dict.fromkeys(("unfused", "unfused_windows"), "TorchTitan's attention is fused")),
        },
    )
    """Whether scores stay on chip or are written to memory (unfused). On chip: by the best kernels of the accelerator
    (fused), or by an earlier generation where it is slower, FlashAttention-2 (flash2) or the first one (flash1). Those
    of layers with a window alone may be written (unfused_windows), where no kernel has what else the layers need."""
    cp_comm_type: ContextParallel = declared(
        "ring",
        models=NO_RECOMMENDERS,
        idle=unless("cp", above_one),
        uses=_uses("searched", "switch"),
        launched={
            "megatron": ("ring", "all_gather", "ulysses"),
            "torchtitan": ("ring", "all_gather"),
            "deepspeed": ("ulysses",),
        },
        flags={
            "megatron": Flag(
                "--cp-comm-type",
                {"ring": ["p2p"], "ulysses": ["a2a"], "all_gather": ["allgather"]},
                default="ring",
                read=False,
            ),
            "torchtitan": Flag(
                "parallelism.context_parallel_rotate_method",
                {"all_gather": "allgather", "ring": "alltoall", "ulysses": "alltoall"},
                default="all_gather",
                lacks={"ulysses": "TorchTitan exchanges keys and values in a ring, not heads (Ulysses)"},
            ),
            "deepspeed": lacks({OTHER: "DeepSpeed's context parallelism is Ulysses, not {value}"}, default="ulysses"),
        },
    )
    """How cp ranks share keys and values: all-gather, ring exchange, or all-to-all of heads and tokens (Ulysses)."""
    cp_balanced: bool = declared(
        True,
        models=TRANSFORMERS,
        idle=unless("cp", above_one),
        flags={
            "megatron": lacks(
                {False: "Megatron-LM gives each context-parallel rank two chunks of the sequence"}, default=True
            ),
            "torchtitan": lacks(
                {False: "TorchTitan gives each context-parallel rank two chunks of the sequence"}, default=True
            ),
        },
    )
    """Whether each cp rank takes an early and a late chunk of the sequence. With one chunk each, a causal mask gives
    the last rank nearly twice the mean work."""
    kv_repeated: bool = declared(False, models=TRANSFORMERS, idle=unless("cp", above_one))
    """Whether keys and values are repeated for all heads before cp ranks share them, as in TorchTitan's models:
    grouped-query attention then sends as much as if every head had its own."""
    loss: Loss = declared(
        "auto",
        training=True,
        models=NO_RECOMMENDERS,
        flags={
            "megatron": Flag(
                sets={"fused": _FUSED_LOSS, "chunked": _FUSED_LOSS},
                default="auto",
                read=False,
            ),
            "torchtitan": lacks({"chunked": "TorchTitan computes the loss of all tokens at once"}),
        },
    )
    """Copies of the logits at the memory peak: of a chunk (chunked), in 16 bits alone, whose gradient takes their place
    (fused), in 16 bits kernel by kernel (half), in fp32 as is usual (eager), or all ever made (retained). If not given
    (auto), a compiler fuses the loss, and others have it eager."""
    dropout: bool = declared(
        False,
        training=True,
        models=NO_PROGRAMS,
        flags={
            "megatron": Flag(
                sets={False: {"--attention-dropout": 0.0, "--hidden-dropout": 0.0}}, default=True, read=False
            ),
            "torchtitan": lacks({True: "TorchTitan's models have no dropout"}, default=False),
        },
    )
    """Whether the model trains with dropout."""
    execution: Execution = declared(
        "fused",
        flags={
            "megatron": lacks(
                {OTHER: "Megatron-LM's kernels are fused by hand; execution is {value}"}, default="fused"
            ),
            "torchtitan": lacks({"fused": "TorchTitan fuses only what torch.compile fuses"}),
        },
    )
    """How kernels run: one per operation, as in PyTorch (eager); fused by a compiler, each pass one graph (compiled);
    fused by hand, casts included (fused). Decode steps replay a CUDA graph and are never launch-bound."""
    grouped_gemm: bool = declared(
        True,
        models=NO_RECOMMENDERS,
        experts=True,
        flags={
            "megatron": Flag(
                "--moe-grouped-gemm",
                default=False,
                experts=True,
                when=lambda w: w.precision not in ("fp16", "fp32"),
            ),
            "deepspeed": lacks(
                {True: "DeepSpeed runs experts one by one, not as a grouped GEMM"}, default=False, experts=True
            ),
        },
    )
    """Whether the experts of a device run as one grouped GEMM (Megatron-LM's --moe-grouped-gemm), or one by one."""
    runtime: Runtime = declared(
        "multi_controller",
        flags={
            "training": lacks(
                {OTHER: "runtime {value} is not exported: frameworks run a process for every rank"},
                default="multi_controller",
            )
        },
    )
    """Who starts the work of a step: a process on every host, as usual (multi_controller), or one client for all hosts,
    as in Pathways, which prepares all of a step at once (single_parallel), or each of its nodes when those before it
    are enqueued (single_sequential)."""
    npus_per_host: int = declared(
        8, least=1, number=True, most=1024, idle=unless("runtime", none_of("multi_controller"))
    )
    """Accelerators of one host, by which a single controller counts hosts."""
    cuda_graph: tuple[GraphScope, ...] = ()
    """What a training step replays from CUDA graphs, so that the host launches none of its kernels, as Megatron-LM's
    --cuda-graph-scope names it: attention with its projections (attn), a state-space layer (mamba), a dense
    feed-forward network (mlp), the router of experts (moe_router), what prepares the exchange of their tokens
    (moe_preprocess), or all (full_iteration)."""
    dp_overlap: bool = declared(
        True,
        flags={
            "torchtitan": lacks(
                {False: "TorchTitan always overlaps FSDP's communication"}, default=True, when=lambda w: w.dp > 1
            )
        },
    )
    """Whether gradient reductions and weight gathers overlap compute."""
    tp_overlap: bool = declared(
        False,
        models=NO_RECOMMENDERS,
        idle=unless("tp", above_one),
        uses=_uses("searched", "switch"),
        launched={"megatron": (False, True), "torchtitan": (False, True), "deepspeed": (False,)},
        fastest=True,
        flags={
            "megatron": Flag("--tp-comm-overlap", default=False, when=lambda w: w.tp > 1 and w.sequence_parallel),
            "torchtitan": Flag("parallelism.enable_async_tensor_parallel", default=False),
            "deepspeed": lacks({True: "DeepSpeed does not overlap tensor-parallel communication"}, default=False),
        },
    )
    """Whether tensor-parallel collectives overlap the adjacent GEMMs, chunk by chunk."""
    ep_overlap: bool = declared(
        False,
        models=NO_RECOMMENDERS,
        experts=True,
        idle=unless("ep", above_one),
        uses=_uses("searched", "switch"),
        launched={"megatron": (False, True), "torchtitan": (False,), "deepspeed": (False,)},
        fastest=True,
        flags={
            "megatron": Flag("--overlap-moe-expert-parallel-comm", default=False),
            "torchtitan": lacks({True: "TorchTitan does not overlap expert-parallel communication"}, default=False),
            "deepspeed": lacks({True: "DeepSpeed does not overlap expert-parallel communication"}, default=False),
        },
    )
    """Whether expert-parallel all-to-alls overlap the compute of other microbatches."""
    moe_token_dispatcher_type: Dispatcher = declared(
        "flex",
        flags={
            "megatron": Flag(
                sets={
                    "flex": {"--moe-token-dispatcher-type": "flex", "--moe-enable-deepep": True},
                    "alltoall": {"--moe-token-dispatcher-type": "alltoall"},
                },
                otherwise={"--moe-token-dispatcher-type": "alltoall"},
                experts=True,
                when=_spreads_experts,
                read=False,
            ),
            "torchtitan": Flag(
                "parallelism.expert_parallel_comm_backend",
                {"flex": "deepep"},
                default="alltoall",
                when=_spreads_experts,
                read=False,
            ),
        },
    )
    """How tokens reach their experts on other nodes, as Megatron-LM names it: each token once, however many of its
    experts are there (flex: DeepEP, HybridEP), or once for each of them (alltoall: NCCL)."""
    moe_routing_skew: float = declared(
        0.0,
        least=0,
        number=True,
        most=16,
        idle=lambda w: "ep is 1" if w.ep == 1 and not w.moe_expert_capacity_factor else "",
        outer_states=frozenset({"experts", "expert_gradients", "expert_optimizer"}),
        flags={
            "megatron": lacks(
                {OTHER: "no argument skews routing: that is the data's"},
                default=0.0,
                experts=True,
                when=lambda w: w.moe_routing_skew > 0,
            )
        },
    )
    """How uneven experts are picked: of those of a layer, the i-th most popular in proportion to 1 / i^skew (Zipf). The
    fullest rank of ep decides what computing and exchanging takes. At 0 all are as popular."""
    moe_expert_capacity_factor: float | None = declared(
        None, number=True, most=1e6, flags={"megatron": Flag("--moe-expert-capacity-factor", experts=True, read=False)}
    )
    """Tokens that an expert takes at most, over an even share of them; others are dropped (Megatron-LM's
    --moe-expert-capacity-factor). If not given, none is dropped."""
    moe_pad_expert_input_to_capacity: bool = declared(
        False, flags={"megatron": Flag("--moe-pad-expert-input-to-capacity", default=False, experts=True, read=False)}
    )
    """Whether each expert computes as many rows as its capacity has, filled or not, as Megatron-LM calls it."""
    enable_eplb: bool = declared(
        False,
        idle=lambda w: "moe_routing_skew is 0" if not w.moe_routing_skew and not w.num_redundant_experts else "",
        flags={
            "vllm": Flag("--enable-eplb", experts=True, when=_balances_experts),
            "sglang": Flag("--enable-eplb", experts=True, when=_balances_experts),
            "trtllm": lacks(
                {
                    True: "TensorRT-LLM balances experts by a file of its own: give moe_config.load_balancer its num_slots"
                },
                default=False,
                experts=True,
                when=_balances_experts,
            ),
        },
    )
    """Whether experts of a served model are packed on ranks by how popular they are (vLLM's --enable-eplb). If not,
    ranks have them in the order of their numbers, which says nothing of it."""
    num_redundant_experts: int = declared(
        0,
        least=0,
        number=True,
        most=65536,
        flags={
            "vllm": Flag(
                "--eplb-config",
                default=0,
                template='{{"num_redundant_experts": {value}}}',
                when=_copies_experts,
                experts=True,
            ),
            "sglang": Flag("--ep-num-redundant-experts", when=_copies_experts, experts=True),
        },
    )
    """Further copies of the most popular experts of each layer, which share their tokens (vLLM and SGLang)."""
    sync_period: int = declared(
        1,
        least=1,
        most=1_000_000,
        training=True,
        flags={
            "training": lacks(
                {OTHER: "sync_period {value} is not exported: gradients of all replicas are reduced in every step"},
                default=1,
            )
        },
    )
    """Steps between two exchanges of parameters over the outermost network dimension, over which data parallelism must
    extend: steps between them reduce gradients inside each of its parts alone, as DiLoCo and local SGD do. At 1
    gradients of all replicas are reduced in every step. Seconds are the mean over a period."""
    sync_compression: float = 1.0
    """Bytes of such an exchange beside those of parameters in fp32: 0.125 for 4-bit differences."""
    grad_reduce_in_fp32: bool | None = declared(
        None, training=True, idle=unless("precision", none_of("fp32", "bf16_pure"))
    )
    """Whether gradients accumulate and are reduced in fp32 where there is a master copy, or in 16 bits. If not given:
    in bf16 yes, in fp16, fp8 and fp4 no."""
    set_to_none: bool = declared(
        True,
        training=True,
        idle=lambda w: "gradients have buffers of their own" if w.execution == "fused" and not w.set_to_none else "",
    )
    """Whether PyTorch frees gradients after a step (zero_grad's set_to_none), so that there are none before the first
    backward pass. Megatron-LM's (execution: fused) have buffers that stay."""
    optimizer_kernels: OptimizerKernels = declared("fused", training=True)
    """Whether the optimizer updates a weight in one kernel (fused), or all weights operation by operation (foreach),
    which needs as much memory as the weights that it updates once more: PyTorch's default, and Hugging Face's before
    PyTorch 2.8."""
    moments: Moments = declared(
        "fp32",
        training=True,
        idle=unless("precision", none_of("fp32", "bf16_pure")),
        flags={
            "megatron": Flag(
                sets={
                    "bf16": {
                        "--use-precision-aware-optimizer": True,
                        "--exp-avg-dtype": "bf16",
                        "--exp-avg-sq-dtype": "bf16",
                    }
                },
                default="fp32",
                when=lambda _: True,  # it keeps a master copy where the design has none
                read=False,
            )
        },
    )
    """Number format of Adam's two running means where there is a master copy."""
    offload: tuple[Offloaded, ...] = declared(
        (),
        fastest=(),
        launched={"megatron": (("optimizer",), ("activations",)), "torchtitan": (), "deepspeed": (("optimizer",),)},
        launched_anyhow=lambda w: not w.offload,
    )
    """States that stay in the outer memory tiers until they are used."""
    offload_num_layers: int | None = declared(
        None,
        least=0,
        training=True,
        idle=lambda _: "activations are not offloaded",
        outer_states=frozenset({"activations"}),
    )
    """Layers of each pipeline stage whose activations are offloaded. All if not given."""
    optimizer_device: OptimizerDevice = declared("gpu", training=True)
    """Who updates weights whose optimizer states are in outer tiers: the accelerator, to which states come and from
    which they go back, or the host's processor, which takes gradients and gives weights (DeepSpeed's CPU Adam,
    Megatron-LM's --optimizer-cpu-offload)."""
    lora_rank: int | None = declared(
        None,
        least=1,
        most=65536,
        flags={
            "training": lacks(
                {
                    OTHER: "freeze the model, and add adapters of rank {value} beside {lora_targets} (Megatron Bridge, PEFT)"
                }
            ),
            "serving": lacks(
                {OTHER: "{lora_adapters} adapters of rank {value}: say where yours are, in the engine's own words"}
            ),
            "vllm": Flag("--max-lora-rank", beside={"--enable-lora": True}),
            "sglang": Flag("--max-lora-rank", beside={"--enable-lora": True}),
        },
    )
    """Rank of LoRA's adapters (Megatron Bridge's dim, PEFT's r). In training all other weights are frozen, have no
    gradients, no master copy and no moments; in serving adapters run beside the weights. None if not given."""
    lora_adapters: int = declared(
        1,
        least=1,
        number=True,
        most=100_000,
        idle=lambda w: (
            "lora_rank is not given" if w.lora_rank is None else "one is trained" if w.task == "training" else ""
        ),
        flags={
            "vllm": Flag("--max-loras", when=_has_adapters),
            "sglang": Flag("--max-loras-per-batch", when=_has_adapters),
        },
    )
    """Adapters of a served model, all in memory, over which requests are spread evenly (vLLM's max_loras)."""
    lora_targets: tuple[LoraTarget, ...] = declared(
        ("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"), idle=unless("lora_rank", is_given)
    )
    """Modules with adapters, as Megatron-LM names them: queries, keys and values; the projection after attention; the
    two halves of a feed-forward network, experts included; of MLA, its projections down and up."""
    packed_length: float | None = declared(
        None,
        training=True,
        models=NO_RECOMMENDERS,
        flags={
            "training": lacks(
                {OTHER: "pack documents of {value} tokens on average into a sequence, each attending to itself alone"}
            )
        },
    )
    """Mean tokens of the documents that are packed into a sequence, which attend to their own tokens alone (NeMo's
    packed_sequence). A sequence is one document if not given."""
    packed_spread: float = declared(
        0.0, least=0, training=True, models=NO_RECOMMENDERS, idle=unless("packed_length", is_given)
    )
    """Standard deviation of the documents' lengths, as a share of their mean."""
    placement: tuple[Axis, ...] = declared(
        AXES,
        idle=lambda w: "one axis has all ranks" if w.ranks in (w.dp, w.tp, w.cp, w.pp) else "",
        uses=_uses("searched", "switch", "remapped"),
        launched={
            "megatron": (AXES, ("tp", "cp", "pp", "dp")),
            "torchtitan": (AXES,),
            "deepspeed": (AXES,),
        },
        launched_anyhow=lambda w: w.pp == 1,
    )
    """Mesh axes, from the innermost network dimension outwards."""
    strategies: tuple[str, ...] = declared(
        (),
        models=NO_PROGRAMS,
        flags=dict.fromkeys(
            ("training", "serving"), lacks({OTHER: "{value}: strategies are not exported"}, default=())
        ),
    )
    """Sharding strategies of the catalog, or of your own, besides those that the keys above imply."""

    def __post_init__(self) -> None:
        check_bounds(self)
        require(bool(self.lora_targets), "lora_targets", list(self.lora_targets), "must name a module at least")
        share = self.sync_compression
        require(0 < share <= 1, "sync_compression", share, "must be above 0, and at most 1")
        factor = self.moe_expert_capacity_factor
        require(factor is None or factor > 0, "moe_expert_capacity_factor", factor, "must be positive")
        packed = self.packed_length
        require(packed is None or packed >= 1, "packed_length", packed, "must be at least 1 token")
        schedules.check(self.schedule, "schedule")
        complete = sorted(self.placement) == sorted(AXES)
        require(complete, "placement", list(self.placement), f"must hold each of {', '.join(AXES)} once")

    @property
    def shards_states(self) -> bool:
        """Whether data parallelism shards the states of the optimizer, at least."""
        return self.weight_sharding != "none"

    @property
    def shards_gradients(self) -> bool:
        """Whether data parallelism shards gradients too, as it does where it shards weights."""
        return self.weight_sharding in ("zero2", "zero3")

    @property
    def shards_weights(self) -> bool:
        """Whether data parallelism shards weights too (FSDP)."""
        return self.weight_sharding == "zero3"

    @property
    def exchanges_apart(self) -> bool:
        """Whether islands reduce gradients by themselves, and exchange parameters every few steps."""
        return self.task == "training" and self.sync_period > 1

    @property
    def updates_on_host(self) -> bool:
        """Whether the host's processor updates the weights of a step of training."""
        return self.optimizer_device == "cpu" and self.task == "training"

    @property
    def stage_ends(self) -> tuple[int | None, int | None]:
        """The layers that are stated of the first and of the last stage."""
        return self.first_stage_layers, self.last_stage_layers

    @property
    def ranks(self) -> int:
        """Ranks of the mesh."""
        return prod((self.dp, self.tp, self.cp, self.pp))

    @property
    def expert_tensor(self) -> int:
        """Ranks that split each expert: `etp`, or the part of tp that ep leaves.

        >>> [Workload(sequence=1, global_batch=1, tp=8, dp=2, ep=ep).expert_tensor for ep in (1, 2, 4, 16)]
        [8, 8, 4, 1]
        """
        return self.etp or gcd(self.tp, self.tp * self.cp * self.dp // self.ep)

    @property
    def expert_replicas(self) -> int:
        """Ranks of a pipeline stage that hold the same part of the same experts, edp."""
        return max(1, self.tp * self.cp * self.dp // (self.expert_tensor * self.ep))
