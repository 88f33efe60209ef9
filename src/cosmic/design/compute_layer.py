"""The compute layer: rates, efficiencies, power and price of one accelerator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cosmic.base.errors import require
from cosmic.design.schema import check_bounds

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
"""Fields that are shares: above 0 and at most 1."""
DURATIONS = ("launch", "host_launch", "burst", "tile_ramp", "fp4_ramp", "fp8_cast", "block_cast", "attention_ramp")
"""Keys of the fields that are times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """One accelerator: peak rates without sparsity, what kernels reach, power and price."""

    accelerator: str = ""
    """Name in the catalog."""
    bf16_flop_per_s: float
    """Dense peak in 16 bits (fp16 where there is no bf16)."""
    fp32_flop_per_s: float | None = None
    tf32_flop_per_s: float | None = None
    fp8_flop_per_s: float | None = None
    fp4_flop_per_s: float | None = None
    int8_flop_per_s: float | None = None
    achieved_bf16_flop_per_s: float | None = None
    """Highest 16-bit rate measured on a large GEMM."""
    gemm_efficiency: float | None = None
    """Share of the peak that large GEMMs reach; if not given, that of `achieved_bf16`, or the usual. With `sms`, the
    share that the inner loop of a tile reaches on a cool chip."""
    fp8_efficiency: float | None = None
    """The same for fp8 with one scale per tensor; if not given, as in 16 bits."""
    fp8_block_efficiency: float | None = None
    """The same for fp8 with one scale per block."""
    fp4_efficiency: float | None = None
    """The same for fp4."""
    sustained_efficiency: float = 1.0
    """Share of the GEMM rate that is left at the power limit, which long GEMMs reach."""
    steady_efficiency: float = 1.0
    """Share of its 16-bit GEMM rate that an accelerator keeps in long runs of full nodes, relative to running alone."""
    narrow_steady_efficiency: float = 1.0
    """The same for 8 and 4 bits."""
    burst_s: float = 0.0
    """Time that a single GEMM runs until half of the loss at the power limit shows."""
    sms: int = 0
    """Streaming multiprocessors (AMD: compute units), one tile of a GEMM each; 0: not known, no wave quantization."""
    split_k: int = 1
    """Most SMs that share the sum over k of a tile, in 16 bits."""
    tile_ramp_s: float = 0.0
    """Time to fill the pipeline of an SM and to write out its tile."""
    fp4_ramp_s: float | None = None
    """The same for the larger tiles of fp4; if not given, equal."""
    operand_efficiency: float | None = None
    """Share of the memory bandwidth at which GEMMs read operands; if not given, `memory_efficiency`."""
    fp8_cast_s: float = 0.0
    """Time to scale and cast the input of an fp8 GEMM with one scale per tensor, besides moving its bytes."""
    block_cast_s: float = 0.0
    """The same with one scale per block, for fp8 and fp4."""
    attention_efficiency: float = 0.55
    """Share of the peak that fused attention reaches in the forward pass."""
    attention_backward_efficiency: float = 0.45
    """The same in the backward pass."""
    attention_ramp_s: float = 0.0
    """Time to fill and drain the pipeline of fused attention."""
    memory_efficiency: float = 0.85
    """Share of the memory bandwidth that streaming kernels reach."""
    stream_ramp_bytes: float = 0.0
    """Bytes that could stream while a kernel starts and drains: a kernel that moves as many reaches half the rate."""
    launch_s: float = 4e-6
    """Time of each kernel besides its work: launch, ramp and tail."""
    host_launch_s: float = 0.0
    """Time that the host takes to launch one kernel; eager execution of small kernels is launch-bound."""
    host_spread: float = 0.3
    """Standard deviation of that time from host to host, over its mean: 22 to 46 us by four estimates on H200."""
    straggler_slack: float = 0.0
    """Standard deviation of the time that ranks take for equal work, as a share; a step waits for the slowest."""
    tp_hiding: float = 1.0
    """How well compute hides tensor-parallel communication that overlaps it, relative to what is usual."""
    ep_hiding: float = 1.0
    """The same of expert-parallel communication."""
    expert_pace: float = 1.0
    """Rate of the passes around experts (routing, dispatch, combination), relative to what is usual."""
    time_factor: float = 1.0
    """Seconds of everything in a step, relative to what they would be: what `cosmic calibrate run` finds no cause for."""
    calibration_sd: float | None = None
    """Standard deviation of the logarithm of measured over predicted steps, after `cosmic calibrate run`; None without."""
    calibration_rows: int = 0
    """Measurements behind it."""
    provenance: Provenance = "estimate"
    """Origin of the efficiencies."""
    power_w: float | None = None
    """Thermal design power."""
    power_cap_w: float | None = None
    """Power limit that the card is set to, if other than `power`: GEMMs that reach it run slower."""
    price_usd: float | None = None
    """Price of one accelerator."""

    def __post_init__(self) -> None:
        check_bounds(self)
        for key in ("bf16", "fp32", "tf32", "fp8", "fp4", "int8", "achieved_bf16"):
            rate = getattr(self, f"{key}_flop_per_s")
            require(rate is None or rate > 0, key, rate, "must be positive")
        require(self.power_w is None or self.power_w > 0, "power", self.power_w, "must be positive")
        cap = self.power_cap_w
        require(cap is None or cap > 0, "power_cap", cap, "must be positive")
        require(self.price_usd is None or self.price_usd > 0, "price", self.price_usd, "must be positive")
        for key in DURATIONS:
            time = getattr(self, f"{key}_s")
            require(time is None or time >= 0, key, time, "must not be negative")
        require(self.stream_ramp_bytes >= 0, "stream_ramp", self.stream_ramp_bytes, "must not be negative")
        require(self.straggler_slack >= 0, "straggler_slack", self.straggler_slack, "must not be negative")
        for key in ("tp_hiding", "ep_hiding", "expert_pace", "time_factor"):
            require(getattr(self, key) > 0, key, getattr(self, key), "must be positive")
        spread = self.calibration_sd
        require(spread is None or spread >= 0, "calibration_sd", spread, "must not be negative")
        require(self.calibration_rows >= 0, "calibration_rows", self.calibration_rows, "must not be negative")
        require(self.host_spread >= 0, "host_spread", self.host_spread, "must not be negative")
        require(self.sms >= 0, "sms", self.sms, "must not be negative")
        require(self.split_k >= 1, "split_k", self.split_k, "must be at least 1")
        for key in SHARES:
            share = getattr(self, key)
            require(share is None or 0 < share <= 1, key, share, "must be above 0 and at most 1")
