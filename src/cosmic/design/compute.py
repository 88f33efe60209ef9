"""The compute layer: what one accelerator can do, draws and costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cosmic.errors import require

Provenance = Literal["measured", "calibrated", "estimate"]
SHARES = (
    "gemm_efficiency",
    "fp8_efficiency",
    "fp8_block_efficiency",
    "fp4_efficiency",
    "sustained_efficiency",
    "steady_efficiency",
    "narrow_steady_efficiency",
    "operand_efficiency",
    "attention_efficiency",
    "attention_backward_efficiency",
    "memory_efficiency",
)
"""Fields that are a share of something."""
DURATIONS = ("launch", "host_launch", "burst", "tile_ramp", "fp4_ramp", "fp8_cast", "block_cast", "attention_ramp")
"""Keys of the fields that are times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """One accelerator: peak rates without sparsity, what kernels reach of them, power and price."""

    accelerator: str = ""
    bf16_flop_per_s: float
    """Dense matrix rate in 16 bits (fp16 where there is no bf16)."""
    fp32_flop_per_s: float | None = None
    tf32_flop_per_s: float | None = None
    fp8_flop_per_s: float | None = None
    fp4_flop_per_s: float | None = None
    int8_flop_per_s: float | None = None
    achieved_bf16_flop_per_s: float | None = None
    """The highest 16-bit rate that anybody measured on a large matrix product."""
    gemm_efficiency: float | None = None
    """Share of the peak that large matrix products reach; if not given, what was achieved, or the usual. Where the
    units are known, the share that the inner loop of a tile reaches on a cool chip."""
    fp8_efficiency: float | None = None
    """The same in 8 bits with one scale for a tensor; if not given, as in 16 bits."""
    fp8_block_efficiency: float | None = None
    """The same in 8 bits with a scale for each block."""
    fp4_efficiency: float | None = None
    """The same in 4 bits."""
    sustained_efficiency: float = 1.0
    """Share of the matrix rate that is left when long products bring the chip to its power limit."""
    steady_efficiency: float = 1.0
    """Share of the 16-bit matrix rate that nodes full of accelerators keep in long runs, of what one keeps alone."""
    narrow_steady_efficiency: float = 1.0
    """The same in 8 and 4 bits."""
    burst_s: float = 0.0
    """How long a product alone runs before half of that loss shows."""
    sms: int = 0
    """Units (streaming multiprocessors) that each work on a tile of a product; 0: not known, no quantisation."""
    split_k: int = 1
    """Units at most that share the sum of a tile, in 16 bits."""
    tile_ramp_s: float = 0.0
    """Time to fill a unit's pipeline and to write out its tile."""
    fp4_ramp_s: float | None = None
    """The same for the larger tiles of 4 bits; if not given, no different."""
    operand_efficiency: float | None = None
    """Share of the memory's bandwidth at which products read operands; if not given, the streaming kernels'."""
    fp8_cast_s: float = 0.0
    """Time to scale and cast what a product in 8 bits reads, with one scale for a tensor, beside its bytes."""
    block_cast_s: float = 0.0
    """The same with a scale for each block, in 8 and in 4 bits."""
    attention_efficiency: float = 0.55
    """Share of the peak that fused attention reaches."""
    attention_backward_efficiency: float = 0.45
    """Share of the peak that the backward pass of fused attention reaches."""
    attention_ramp_s: float = 0.0
    """Time to fill and to drain the pipeline of fused attention."""
    memory_efficiency: float = 0.85
    """Share of the memory's bandwidth that streaming kernels reach."""
    stream_ramp_bytes: float = 0.0
    """Bytes that could have streamed while a kernel starts and drains: one that moves as many reaches half of it."""
    launch_s: float = 4e-6
    """Time that each kernel takes beside its work: launch, ramp and tail."""
    host_launch_s: float = 0.0
    """Time that the host takes to issue one kernel, which bounds small kernels in eager execution."""
    straggler_slack: float = 0.0
    """Standard deviation of the time that several take for the same work, as a share; the slowest is waited for."""
    provenance: Provenance = "estimate"
    """Where the efficiencies are from."""
    power_w: float | None = None
    """Thermal design power."""
    price_usd: float | None = None

    def __post_init__(self) -> None:
        for key in ("bf16", "fp32", "tf32", "fp8", "fp4", "int8", "achieved_bf16"):
            rate = getattr(self, f"{key}_flop_per_s")
            require(rate is None or rate > 0, key, rate, "must be positive")
        require(self.power_w is None or self.power_w > 0, "power", self.power_w, "must be positive")
        require(self.price_usd is None or self.price_usd > 0, "price", self.price_usd, "must be positive")
        for key in DURATIONS:
            time = getattr(self, f"{key}_s")
            require(time is None or time >= 0, key, time, "must not be negative")
        require(self.stream_ramp_bytes >= 0, "stream_ramp", self.stream_ramp_bytes, "must not be negative")
        require(self.straggler_slack >= 0, "straggler_slack", self.straggler_slack, "must not be negative")
        require(self.sms >= 0, "sms", self.sms, "must not be negative")
        require(self.split_k >= 1, "split_k", self.split_k, "must be at least 1")
        for key in SHARES:
            share = getattr(self, key)
            require(share is None or 0 < share <= 1, key, share, "must be above 0 and at most 1")
