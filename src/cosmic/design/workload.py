"""The workload layer: the task, its sizes, and how it is spread over the devices."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal, get_args

from cosmic.errors import require

Axis = Literal["tp", "sp", "dp", "pp"]
AXES: tuple[Axis, ...] = get_args(Axis)
Task = Literal["training", "prefill", "decode"]
Precision = Literal["fp32", "fp16", "bf16", "fp8"]
WeightSharding = Literal["none", "zero1", "zero2", "zero3"]
Schedule = Literal["gpipe", "1f1b", "interleaved", "zero_bubble", "dualpipe"]
Recompute = Literal["none", "selective", "full"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is run, and the mesh of devices it is run on.

    The mesh has the four axes of `Axis`; expert parallelism is no axis of its own but divides the devices
    of dp and sp once more, so that ``dp * tp * sp * pp`` is the number of NPUs.
    """

    task: Task = "training"
    sequence: int
    """Tokens in one sequence (training, prefill) or attended to (decode)."""
    global_batch: int
    """Sequences in one step, over all devices."""
    micro_batch: int = 1
    """Sequences that pass through the pipeline together, per data-parallel replica."""
    precision: Precision = "bf16"
    dp: int = 1
    """Data parallelism."""
    tp: int = 1
    """Tensor parallelism."""
    sp: int = 1
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
    schedule: Schedule = "1f1b"
    recompute: Recompute = "none"
    placement: tuple[Axis, ...] = AXES
    """The mesh axes from the innermost network dimension outwards."""

    def __post_init__(self) -> None:
        for name in ("sequence", "global_batch", "micro_batch", "dp", "tp", "sp", "pp", "ep", "virtual_stages"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "must be at least 1")
        complete = sorted(self.placement) == sorted(AXES)
        require(complete, "placement", list(self.placement), f"must hold each of {', '.join(AXES)} once")

    @property
    def ranks(self) -> int:
        """Devices that the mesh needs."""
        return prod((self.dp, self.tp, self.sp, self.pp))
