"""A serving engine: what it adds to its kernels, and how it schedules requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cosmic.errors import require

POSITIVE = ("decode_factor", "prefill_factor", "grouped_gemm_efficiency", "convoy_factor", "memory_fraction")
NOT_NEGATIVE = ("activation_passes", "frontend_growth", "hold_steps")
DURATIONS = (
    "collective",
    "layer_gap",
    "mla_layer_gap",
    "request_host",
    "layer_launch",
    "frontend",
    "mla_frontend",
)
"""Keys of the fields that are times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A serving engine. `cosmic.serving` has the formulas; a field may be an array over a batch of deployments."""

    decode_factor: float = 1.0
    """x: time of a decode step's kernels, over what the accelerator reaches."""
    prefill_factor: float = 1.0
    """y: time of a prefill's kernels, over what the accelerator reaches."""
    grouped_gemm_efficiency: float = 1.0
    """Rate of the experts' grouped GEMMs, over that of one large GEMM."""
    activation_passes: float = 1.0
    """m: passes of a prefill over its activations. Fusion removes some, casts add some."""
    collective_s: float = 0.0
    """e: latency of a collective, whatever its size."""
    layer_gap_s: float = 0.0
    """Gaps between the kernels of a layer in a decode step."""
    mla_layer_gap_s: float = 0.0
    """Additional gaps with MLA, which runs more and smaller kernels."""
    request_host_s: float = 0.0
    """Host time per decode step and running request of a replica: sampling, detokenization."""
    layer_launch_s: float = 0.0
    """Host time to launch a layer of a prefill, which runs without a CUDA graph; only the request itself waits."""
    frontend_s: float = 0.0
    """Additional TTFT with 16 requests in flight: the front end, and a server that is still cold."""
    mla_frontend_s: float = 0.0
    """The same with MLA, on top."""
    frontend_growth: float = 0.0
    """w: exponent with which that time grows with the requests in flight."""
    hold_steps: float = 0.0
    """b: mean decode steps for which the engine holds a prefill back, to poll for new requests or to batch prefills."""
    convoy_factor: float = 1.0
    """z: additional factor on TTFT with a fixed OSL: requests of equal length run in convoys."""
    prefill_first: bool = False
    """Whether waiting prefills run before any further decode step."""
    reserves_kv: bool = False
    """Whether admission reserves KV cache for the whole OSL. Otherwise the cache grows, and requests wait if it is
    full."""
    kv_element_bytes: float | None = None
    """Bytes of a number in the KV cache; if not given, as the precision has it."""
    memory_fraction: float = 0.94
    """Share of the memory for weights and KV cache; with `reserves_kv`, of what weights leave for the KV cache."""
    workspace_bytes: float = 3e9
    """Memory for activations, CUDA graphs and network buffers."""

    def __post_init__(self) -> None:
        for name in POSITIVE:
            _check(getattr(self, name), name, above=True)
        for name in NOT_NEGATIVE:
            _check(getattr(self, name), name)
        for key in DURATIONS:
            _check(getattr(self, f"{key}_s"), key)
        _check(self.workspace_bytes, "workspace")
        within = bool(np.all(np.asarray(self.memory_fraction) <= 1))
        require(within, "memory_fraction", self.memory_fraction, "must be at most 1")
        if self.kv_element_bytes is not None:
            _check(self.kv_element_bytes, "kv_element", above=True)


def _check(value: Any, key: str, *, above: bool = False) -> None:
    """Refuse a number, or an array with one, that is negative, or 0 where it must be *above*."""
    numbers = np.asarray(value)
    holds = bool(np.all(numbers > 0 if above else numbers >= 0))
    require(holds, key, value, "must be positive" if above else "must not be negative")
