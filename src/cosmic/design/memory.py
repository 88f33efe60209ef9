"""The memory layer: what each accelerator can keep, and how fast it reads it."""

from __future__ import annotations

from dataclasses import dataclass

from cosmic.errors import require


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The memory of one accelerator."""

    capacity_bytes: float
    bandwidth_bytes_per_s: float

    def __post_init__(self) -> None:
        require(self.capacity_bytes > 0, "capacity", self.capacity_bytes, "must be positive")
        require(self.bandwidth_bytes_per_s > 0, "bandwidth", self.bandwidth_bytes_per_s, "must be positive")
