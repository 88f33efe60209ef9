"""The workload layer: the task, its sizes, and its parallelism."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import gcd, prod
from typing import Any, Literal, get_args

from cosmic.base.errors import require
from cosmic.base.registry import Registry
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The task, and its mapping onto a mesh of ``dp * tp * cp * pp`` NPUs.

    Experts have a mesh of their own over the ranks of a pipeline stage: ``etp * ep * edp = dp * tp * cp``, as in
    Megatron-LM's parallel folding. etp is the innermost part of tp; ep goes on from there, over the rest of tp, then
    over the other axes in the order of the placement; edp, which replicates experts, is what is left.
    """

    task: Task = "training"
    sequence: int
    """Sequence length in tokens (training, prefill), or tokens attended to (decode)."""
    global_batch: int
    """Sequences per step, over all ranks."""
    micro_batch: int = 1
    """Sequences per microbatch of a data-parallel replica."""
    precision: Precision = "bf16"
    """Number format. In training, bf16 and fp16 keep an fp32 master copy and bf16_pure keeps none; fp8 and fp4 are the
    formats of GEMMs, states stay as in bf16. In serving, weights are stored in the format; int4 multiplies in bf16."""
    fp8_recipe: Fp8Recipe = "auto"
    """How training in fp8 scales what it casts, as Megatron-LM's --fp8-recipe names it: each tensor by the maxima of
    earlier steps (delayed) or by its own (tensorwise, "current scaling"), each row (rowwise, of torchao), blocks of 128
    (blockwise) or 32 numbers (mxfp8). If not given (auto), as frameworks do: PyTorch tensorwise, Transformer Engine
    (execution: fused) mxfp8 where the accelerator has fp4, delayed elsewhere. fp4 is NVFP4 whatever this says."""
    cache_dtype: CacheFormat = "auto"
    """Number format of the KV cache while serving. If not given (auto), that of the precision: 8 bits for fp8 and fp4,
    else 16."""
    fp8_weight_cache: bool = True
    """Whether weights are cast to 8 or 4 bits once a step, or for every microbatch (Megatron Bridge's
    disable_parameter_transpose_cache, which its fine-tuning recipes set)."""
    dp: int = 1
    """Data parallelism."""
    tp: int = 1
    """Tensor parallelism."""
    cp: int = 1
    """Context parallelism."""
    pp: int = 1
    """Pipeline parallelism: the number of stages."""
    ep: int = 1
    """Expert parallelism, over the ranks of tp, cp and dp."""
    etp: int | None = None
    """Expert tensor parallelism: ranks of tp that split each expert. If not given, as much of tp as ep leaves."""
    uneven_tp: UnevenTensor = "refuse"
    """What becomes of heads and feed-forward widths that tp (of experts, etp) does not divide: such a design cannot
    run, as in Megatron-LM (refuse), or they are padded to the next multiple (pad), as XLA does: every rank computes,
    keeps and exchanges as much, and hfu counts what no token needs, mfu does not."""
    virtual_stages: int = field(default=1, metadata={"most": 64})
    """Virtual stages (model chunks) per pipeline stage, in the interleaved schedule."""
    first_stage_layers: int | None = None
    """Layers of the first pipeline stage, all its virtual stages together (Megatron-LM's
    --decoder-first-pipeline-num-layers). Stages for which none are given share the rest as evenly as possible."""
    last_stage_layers: int | None = None
    """Layers of the last pipeline stage, which has the head too (--decoder-last-pipeline-num-layers)."""
    stage_layers: StageLayers = "even"
    """How layers are cut into pipeline stages where none are stated: as many on each (even), or so that the slowest
    stage is as quick as can be, with fewer beside the embedding and the head (balanced)."""
    weight_sharding: WeightSharding = "none"
    """What data parallelism shards: optimizer states (zero1), gradients too (zero2), weights too (zero3, FSDP)."""
    reduce_every: ReduceEvery = "step"
    """When zero2 reduces gradients: once a step, which keeps them whole until then, or after every microbatch, as
    DeepSpeed does, which keeps them sharded. zero3 reduces them after every microbatch, none and zero1 once a step."""
    sequence_parallel: bool = True
    """Whether activations between tensor-parallel regions are split over tp, as Megatron-LM does."""
    schedule: str = field(default="1f1b", metadata={"names": schedules})
    """Pipeline schedule."""
    recompute: Recompute = "none"
    """What the backward pass recomputes: nothing; some modules of each layer (selective); all but the outputs of
    attention and of every other GEMM (alternate); all but the input of each layer (full)."""
    recompute_modules: tuple[RecomputeModule, ...] = ("core_attn",)
    """Modules that selective recomputation runs again, as Megatron-LM names them: attention between its projections
    (core_attn), the norms before attention and feed-forward network (layernorm), MLA's up-projections with their
    rotation (mla_up_proj), a dense feed-forward network (mlp), a layer's routed and shared experts (moe), the
    activation function of experts (moe_act), shared experts."""
    recompute_num_layers: int | None = None
    """Layers of each pipeline stage, or of each of its virtual stages, that recompute: the first ones. All if not
    given."""
    recompute_to_end: bool = False
    """Whether recomputation runs each layer to its end (Megatron-LM), or stops once the backward pass has what it reads
    (PyTorch)."""
    attention: Attention = "fused"
    """Whether scores stay on chip or are written to memory (unfused). On chip: by the best kernels of the accelerator
    (fused), or by an earlier generation where it is slower, FlashAttention-2 (flash2) or the first one (flash1). Those
    of layers with a window alone may be written (unfused_windows), where no kernel has what else the layers need."""
    cp_comm_type: ContextParallel = "ring"
    """How cp ranks share keys and values: all-gather, ring exchange, or all-to-all of heads and tokens (Ulysses)."""
    cp_balanced: bool = True
    """Whether each cp rank takes an early and a late chunk of the sequence. With one chunk each, a causal mask gives
    the last rank nearly twice the mean work."""
    kv_repeated: bool = False
    """Whether keys and values are repeated for all heads before cp ranks share them, as in TorchTitan's models:
    grouped-query attention then sends as much as if every head had its own."""
    loss: Loss = "auto"
    """Copies of the logits at the memory peak: of a chunk (chunked), in 16 bits alone, whose gradient takes their place
    (fused), in 16 bits kernel by kernel (half), in fp32 as is usual (eager), or all ever made (retained). If not given
    (auto), a compiler fuses the loss, and others have it eager."""
    dropout: bool = False
    """Whether the model trains with dropout."""
    execution: Execution = "fused"
    """How kernels run: one per operation, as in PyTorch (eager); fused by a compiler, each pass one graph (compiled);
    fused by hand, casts included (fused). Decode steps replay a CUDA graph and are never launch-bound."""
    grouped_gemm: bool = True
    """Whether the experts of a device run as one grouped GEMM (Megatron-LM's --moe-grouped-gemm), or one by one."""
    runtime: Runtime = "multi_controller"
    """Who starts the work of a step: a process on every host, as usual (multi_controller), or one client for all hosts,
    as in Pathways, which prepares all of a step at once (single_parallel), or each of its nodes when those before it
    are enqueued (single_sequential)."""
    npus_per_host: int = field(default=8, metadata={"most": 1024})
    """Accelerators of one host, by which a single controller counts hosts."""
    cuda_graph: tuple[GraphScope, ...] = ()
    """What a training step replays from CUDA graphs, so that the host launches none of its kernels, as Megatron-LM's
    --cuda-graph-scope names it: attention with its projections (attn), a state-space layer (mamba), a dense
    feed-forward network (mlp), the router of experts (moe_router), what prepares the exchange of their tokens
    (moe_preprocess), or all (full_iteration)."""
    dp_overlap: bool = True
    """Whether gradient reductions and weight gathers overlap compute."""
    tp_overlap: bool = False
    """Whether tensor-parallel collectives overlap the adjacent GEMMs, chunk by chunk."""
    ep_overlap: bool = False
    """Whether expert-parallel all-to-alls overlap the compute of other microbatches."""
    moe_token_dispatcher_type: Dispatcher = "flex"
    """How tokens reach their experts on other nodes, as Megatron-LM names it: each token once, however many of its
    experts are there (flex: DeepEP, HybridEP), or once for each of them (alltoall: NCCL)."""
    moe_routing_skew: float = field(default=0.0, metadata={"most": 16})
    """How uneven experts are picked: of those of a layer, the i-th most popular in proportion to 1 / i^skew (Zipf). The
    fullest rank of ep decides what computing and exchanging takes. At 0 all are as popular."""
    moe_expert_capacity_factor: float | None = field(default=None, metadata={"most": 1e6})
    """Tokens that an expert takes at most, over an even share of them; others are dropped (Megatron-LM's
    --moe-expert-capacity-factor). If not given, none is dropped."""
    moe_pad_expert_input_to_capacity: bool = False
    """Whether each expert computes as many rows as its capacity has, filled or not, as Megatron-LM calls it."""
    enable_eplb: bool = False
    """Whether experts of a served model are packed on ranks by how popular they are (vLLM's --enable-eplb). If not,
    ranks have them in the order of their numbers, which says nothing of it."""
    num_redundant_experts: int = field(default=0, metadata={"most": 65536})
    """Further copies of the most popular experts of each layer, which share their tokens (vLLM and SGLang)."""
    sync_period: int = field(default=1, metadata={"most": 1_000_000})
    """Steps between two exchanges of parameters over the outermost network dimension, over which data parallelism must
    extend: steps between them reduce gradients inside each of its parts alone, as DiLoCo and local SGD do. At 1
    gradients of all replicas are reduced in every step. Seconds are the mean over a period."""
    sync_compression: float = 1.0
    """Bytes of such an exchange beside those of parameters in fp32: 0.125 for 4-bit differences."""
    grad_reduce_in_fp32: bool | None = None
    """Whether gradients accumulate and are reduced in fp32 where there is a master copy, or in 16 bits. If not given:
    in bf16 yes, in fp16, fp8 and fp4 no."""
    moments: Moments = "fp32"
    """Number format of Adam's two running means where there is a master copy."""
    offload: tuple[Offloaded, ...] = ()
    """States that stay in the outer memory tiers until they are used."""
    offload_num_layers: int | None = None
    """Layers of each pipeline stage whose activations are offloaded. All if not given."""
    optimizer_device: OptimizerDevice = "gpu"
    """Who updates weights whose optimizer states are in outer tiers: the accelerator, to which states come and from
    which they go back, or the host's processor, which takes gradients and gives weights (DeepSpeed's CPU Adam,
    Megatron-LM's --optimizer-cpu-offload)."""
    lora_rank: int | None = field(default=None, metadata={"most": 65536})
    """Rank of LoRA's adapters (Megatron Bridge's dim, PEFT's r). In training all other weights are frozen, have no
    gradients, no master copy and no moments; in serving adapters run beside the weights. None if not given."""
    lora_adapters: int = field(default=1, metadata={"most": 100_000})
    """Adapters of a served model, all in memory, over which requests are spread evenly (vLLM's max_loras)."""
    lora_targets: tuple[LoraTarget, ...] = ("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2")
    """Modules with adapters, as Megatron-LM names them: queries, keys and values; the projection after attention; the
    two halves of a feed-forward network, experts included; of MLA, its projections down and up."""
    packed_length: float | None = None
    """Mean tokens of the documents that are packed into a sequence, which attend to their own tokens alone (NeMo's
    packed_sequence). A sequence is one document if not given."""
    packed_spread: float = 0.0
    """Standard deviation of the documents' lengths, as a share of their mean."""
    placement: tuple[Axis, ...] = AXES
    """Mesh axes, from the innermost network dimension outwards."""
    strategies: tuple[str, ...] = ()
    """Sharding strategies of the catalog, or of your own, besides those that the keys above imply."""

    def __post_init__(self) -> None:
        check_bounds(self)
        counts = ("sequence", "global_batch", "micro_batch", "dp", "tp", "cp", "pp", "ep", "virtual_stages")
        for name in (*counts, "sync_period", "npus_per_host"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "must be at least 1")
        for name in ("recompute_num_layers", "offload_num_layers", "first_stage_layers", "last_stage_layers"):
            require((getattr(self, name) or 0) >= 0, name, getattr(self, name), "must not be negative")
        require(self.etp is None or self.etp >= 1, "etp", self.etp, "must be at least 1")
        require(self.lora_rank is None or self.lora_rank >= 1, "lora_rank", self.lora_rank, "must be at least 1")
        require(self.lora_adapters >= 1, "lora_adapters", self.lora_adapters, "must be at least 1")
        require(bool(self.lora_targets), "lora_targets", list(self.lora_targets), "must name a module at least")
        share = self.sync_compression
        require(0 < share <= 1, "sync_compression", share, "must be above 0, and at most 1")
        require(self.moe_routing_skew >= 0, "moe_routing_skew", self.moe_routing_skew, "must not be negative")
        factor = self.moe_expert_capacity_factor
        require(factor is None or factor > 0, "moe_expert_capacity_factor", factor, "must be positive")
        redundant = self.num_redundant_experts
        require(redundant >= 0, "num_redundant_experts", redundant, "must not be negative")
        packed = self.packed_length
        require(packed is None or packed >= 1, "packed_length", packed, "must be at least 1 token")
        require(self.packed_spread >= 0, "packed_spread", self.packed_spread, "must not be negative")
        schedules.check(self.schedule, "schedule")
        complete = sorted(self.placement) == sorted(AXES)
        require(complete, "placement", list(self.placement), f"must hold each of {', '.join(AXES)} once")

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
