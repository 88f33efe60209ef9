"""The workload layer: the task, its sizes, and how it is spread over the devices."""

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
    """What is run, and the mesh of devices it is run on.

    The mesh has the four axes of `Axis`; expert parallelism is no axis of its own but divides the devices
    of dp and cp once more, so that ``dp * tp * cp * pp`` is the number of NPUs.
    """

    task: Task = "training"
    sequence: int
    """Tokens in one sequence (training, prefill) or attended to (decode)."""
    global_batch: int
    """Sequences in one step, over all devices."""
    micro_batch: int = 1
    """Sequences that pass through the pipeline together, per data-parallel replica."""
    precision: Precision = "bf16"
    """bf16 and fp16 keep an fp32 master copy; bf16_pure keeps none; fp8 and fp4 multiply in these and keep bf16's
    states. In serving weights themselves are in fp8, fp4 or int4, the last of which multiplies in bf16."""
    dp: int = 1
    """Data parallelism."""
    tp: int = 1
    """Tensor parallelism."""
    cp: int = 1
    """Sequence (context) parallelism."""
    pp: int = 1
    """Pipeline stages."""
    ep: int = 1
    """Expert parallelism."""
    virtual_stages: int = 1
    """Parts of the model that each pipeline stage holds, in the interleaved schedule."""
    weight_sharding: WeightSharding = "none"
    sequence_parallel: bool = True
    """Whether activations between tensor-parallel regions are split over tp."""
    schedule: str = field(default="1f1b", metadata={"names": schedules})
    """In which order microbatches pass through the pipeline."""
    recompute: Recompute = "none"
    """What the backward pass makes anew: nothing; the inside of attention; all but the outputs of attention and of
    every other matrix product; everything but each layer's input."""
    recompute_to_end: bool = False
    """Whether recomputation runs each layer to its end, as Megatron-LM does, or until the backward pass has what it
    reads, as PyTorch does."""
    attention: Attention = "fused"
    """Whether scores stay on chip (flash attention) or are written out."""
    cp_comm_type: ContextParallel = "ring"
    """How queries meet the keys of other cp ranks: gathered, passed round, or heads exchanged for tokens."""
    cp_balanced: bool = True
    """Whether each cp rank takes an early and a late piece of the sequence. With one piece each, a causal mask leaves
    the last rank nearly twice the work of the average."""
    loss: Loss = "eager"
    """How many copies of the logits are alive at the worst moment: a chunk, the usual ones, or all ever made."""
    dropout: bool = False
    execution: Execution = "fused"
    """How kernels run: one for each operation, as PyTorch does by itself (eager), or neighbours fused into one: by a
    compiler, or by hand, which casts numbers on the way, too. When decoding, all are replayed from a graph, and wait
    for no host."""
    dp_overlap: bool = True
    """Whether gradients are reduced, and weights gathered, while computation goes on."""
    tp_overlap: bool = False
    """Whether what tensor parallelism sends travels while the products next to it run, piece by piece."""
    ep_overlap: bool = False
    """Whether tokens travel to experts and back while other microbatches compute."""
    offload: tuple[Offloaded, ...] = ()
    """What waits in the memory's outer tiers until it is used."""
    placement: tuple[Axis, ...] = AXES
    """The mesh axes from the innermost network dimension outwards."""
    strategies: tuple[str, ...] = ()
    """Tables of the catalog, or of your own, that say how more tensors are split than the switches above imply."""

    def __post_init__(self) -> None:
        for name in ("sequence", "global_batch", "micro_batch", "dp", "tp", "cp", "pp", "ep", "virtual_stages"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "must be at least 1")
        schedules.check(self.schedule, "schedule")
        complete = sorted(self.placement) == sorted(AXES)
        require(complete, "placement", list(self.placement), f"must hold each of {', '.join(AXES)} once")

    @property
    def ranks(self) -> int:
        """Devices that the mesh needs."""
        return prod((self.dp, self.tp, self.cp, self.pp))
