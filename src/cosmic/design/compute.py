"""The compute layer: what one accelerator can do, draws and costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cosmic.errors import require

Provenance = Literal["measured", "calibrated", "estimate"]


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
    matrix_efficiency: float | None = None
    """Share of the peak that large matrix products reach; if not given, what was achieved, or the usual."""
    attention_efficiency: float = 0.55
    """Share of the peak that fused attention reaches."""
    memory_efficiency: float = 0.85
    """Share of the memory's bandwidth that streaming kernels reach."""
    launch_s: float = 4e-6
    """Time that each kernel takes beside its work: launch, ramp and tail."""
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
        require(self.launch_s >= 0, "launch", self.launch_s, "must not be negative")
        for key in ("matrix_efficiency", "attention_efficiency", "memory_efficiency"):
            share = getattr(self, key)
            require(share is None or 0 < share <= 1, key, share, "must be above 0 and at most 1")
