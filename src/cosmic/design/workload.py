"""The workload layer: the task, its sizes, and its parallelism."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal, get_args

from cosmic.errors import require
from cosmic.registry import Registry

Axis = Literal["tp", "cp", "dp", "pp"]
AXES: tuple[Axis, ...] = get_args(Axis)
Task = Literal["training", "prefill", "decode"]
Precision = Literal["fp32", "fp16", "bf16", "bf16_pure", "fp8", "fp4", "int4"]
WeightSharding = Literal["none", "zero1", "zero2", "zero3"]
ReduceEvery = Literal["step", "microbatch"]
Recompute = Literal["none", "selective", "alternate", "full"]
Attention = Literal["fused", "unfused"]
ContextParallel = Literal["all_gather", "ring", "ulysses"]
Loss = Literal["chunked", "eager", "retained"]
Execution = Literal["fused", "compiled", "eager"]
Offloaded = Literal["weights", "optimizer", "activations"]

schedules: Registry[Any] = Registry("schedule", "cosmic.workload.schedules", "cosmic.schedules")
"""Pipeline schedules by name; `cosmic.workload.schedule` says what one is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The task, and its mapping onto a mesh of ``dp * tp * cp * pp`` NPUs.

    Expert parallelism is no axis of its own: it splits the ranks of dp and cp.
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
    dp: int = 1
    """Data parallelism."""
    tp: int = 1
    """Tensor parallelism."""
    cp: int = 1
    """Context parallelism."""
    pp: int = 1
    """Pipeline parallelism: the number of stages."""
    ep: int = 1
    """Expert parallelism, over the ranks of dp and cp."""
    virtual_stages: int = 1
    """Virtual stages (model chunks) per pipeline stage, in the interleaved schedule."""
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
    """What the backward pass recomputes: nothing; the core of attention (selective); all but the outputs of attention
    and of every other GEMM (alternate); all but the input of each layer (full)."""
    recompute_to_end: bool = False
    """Whether recomputation runs each layer to its end (Megatron-LM), or stops once the backward pass has what it reads
    (PyTorch)."""
    attention: Attention = "fused"
    """Whether scores stay on chip (FlashAttention) or are written to memory."""
    cp_comm_type: ContextParallel = "ring"
    """How cp ranks share keys and values: all-gather, ring exchange, or all-to-all of heads and tokens (Ulysses)."""
    cp_balanced: bool = True
    """Whether each cp rank takes an early and a late chunk of the sequence. With one chunk each, a causal mask gives
    the last rank nearly twice the mean work."""
    loss: Loss = "eager"
    """Copies of the logits at the memory peak: of a chunk (chunked), the usual (eager), or all ever made (retained)."""
    dropout: bool = False
    """Whether the model trains with dropout."""
    execution: Execution = "fused"
    """How kernels run: one per operation, as in PyTorch (eager); fused by a compiler (compiled); fused by hand, casts
    included (fused). Decode steps replay a CUDA graph and are never launch-bound."""
    dp_overlap: bool = True
    """Whether gradient reductions and weight gathers overlap compute."""
    tp_overlap: bool = False
    """Whether tensor-parallel collectives overlap the adjacent GEMMs, chunk by chunk."""
    ep_overlap: bool = False
    """Whether expert-parallel all-to-alls overlap the compute of other microbatches."""
    offload: tuple[Offloaded, ...] = ()
    """States that stay in the outer memory tiers until they are used."""
    placement: tuple[Axis, ...] = AXES
    """Mesh axes, from the innermost network dimension outwards."""
    strategies: tuple[str, ...] = ()
    """Sharding strategies of the catalog, or of your own, besides those that the keys above imply."""

    def __post_init__(self) -> None:
        for name in ("sequence", "global_batch", "micro_batch", "dp", "tp", "cp", "pp", "ep", "virtual_stages"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "must be at least 1")
        schedules.check(self.schedule, "schedule")
        complete = sorted(self.placement) == sorted(AXES)
        require(complete, "placement", list(self.placement), f"must hold each of {', '.join(AXES)} once")

    @property
    def ranks(self) -> int:
        """Ranks of the mesh."""
        return prod((self.dp, self.tp, self.cp, self.pp))
