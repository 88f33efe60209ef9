"""Constants of kernels in recorded steps: ``catalog/constants/profiles.yaml``."""

from __future__ import annotations

from dataclasses import dataclass

from cosmic.catalog.fitted import fitted


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """What kernels that walk through memory in one way reach."""

    walk: str
    pace: float = 1.0
    """Share of the bandwidth of a plain copy."""
    operations: float = 0.0
    """Operations for an element besides those of the operator."""
    wait_s: float = 0.0
    """Time that a block waits."""
    each_wave: bool = False
    """Whether each wave of blocks waits, rather than the kernel once."""
    element_wait_s: float = 0.0
    """Time that a thread waits for each of its elements, one after another."""
    resident: int = 0
    """Blocks of chunks that an SM holds at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """What an operator computes for an element."""

    name: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileConstants:
    """Constants of kernels in recorded steps, common to all accelerators."""

    start_s: float
    """Time of a kernel that does next to nothing."""
    host_copy_bytes_per_s: float
    """Rate of copies between host and device."""
    resting_power: float
    """Power that a chip draws while it does not multiply, over its limit."""
    windowed: float
    """Rate of convolutions whose windows overlap, over that of a GEMM of the same sizes."""
    direct_operations: float
    """Operations for an element of a convolution of few channels a group, whatever its window."""
    walks: tuple[Walk, ...]
    operations: tuple[Operations, ...]


CONSTANTS = fitted("profiles", ProfileConstants)
