"""The memory layer: capacity and bandwidth of an accelerator's memory, and the tiers behind it."""

from __future__ import annotations

from dataclasses import dataclass

from cosmic.design.bounds import check_bounds
from cosmic.errors import require


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """Memory behind the accelerator's own (host, pool, drive): the share of one accelerator."""

    name: str
    capacity_bytes: float
    bandwidth_bytes_per_s: float
    """To or from the accelerator, in one direction."""

    def __post_init__(self) -> None:
        check_bounds(self)
        require(bool(self.name), "name", self.name, "must not be empty")
        require(self.capacity_bytes > 0, "capacity", self.capacity_bytes, "must be positive")
        require(self.bandwidth_bytes_per_s > 0, "bandwidth", self.bandwidth_bytes_per_s, "must be positive")


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The memory of one accelerator."""

    capacity_bytes: float
    bandwidth_bytes_per_s: float
    tiers: tuple[Tier, ...] = ()
    """Memory behind it, nearest first."""

    def __post_init__(self) -> None:
        check_bounds(self)
        require(self.capacity_bytes > 0, "capacity", self.capacity_bytes, "must be positive")
        require(self.bandwidth_bytes_per_s > 0, "bandwidth", self.bandwidth_bytes_per_s, "must be positive")
