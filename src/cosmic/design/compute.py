"""The compute layer: what one accelerator can do, draws and costs."""

from __future__ import annotations

from dataclasses import dataclass, fields

from cosmic.errors import require


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """One accelerator: peak rates without sparsity, power and price."""

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
    power_w: float | None = None
    """Thermal design power."""
    price_usd: float | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name != "accelerator" and value is not None:
                key = field.name.removesuffix("_flop_per_s").removesuffix("_w").removesuffix("_usd")
                require(value > 0, key, value, "must be positive")
