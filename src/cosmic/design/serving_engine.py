"""A serving engine of the catalog: what it adds to its kernels, and how it schedules requests."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from cosmic.base.errors import require
from cosmic.base.registry import user_folders
from cosmic.design import catalog_entries, schema

POSITIVE = (
    "decode_factor",
    "prefill_factor",
    "cast_factor",
    "memory_fraction",
    "all_reduce_efficiency",
    "burst_prompts",
)
NOT_NEGATIVE = ("launch_factor", "frontend_growth", "taken_steps")
DURATIONS = (
    "step_host",
    "layer_gap",
    "expert_gap",
    "cast_gap",
    "widening_gap",
    "request_host",
    "frontend",
    "device_handing",
    "mla_frontend",
)
"""Keys of the fields that are times."""
USUAL_CLIENTS = 16
"""Requests in flight at which `Engine.frontend_s` is stated."""
FEWEST = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A serving engine. `cosmic.serving` has the formulas; a field may be an array over a batch of deployments."""

    decode_factor: float = 1.0
    """x: time of a decode step's kernels, over what the accelerator reaches."""
    prefill_factor: float = 1.0
    """y: time of a prefill's kernels, over what the accelerator reaches."""
    cast_factor: float = 1.0
    """The same on top where activations are cast to blocks of 8 bits, for experts."""
    all_reduce_s: float | None = None
    """Latency of the engine's own collectives inside a node, whatever their size; if not given, the library's."""
    all_reduce_efficiency: float = 0.25
    """Share of the links' bandwidth that they reach."""
    step_host_s: float = 0.0
    """Host time of each step: scheduling, preparing its inputs, sampling."""
    launch_factor: float = 1.0
    """Host time to launch the kernels of a prefill, over that of a framework that launches them one by one."""
    layer_gap_s: float = 0.0
    """Gaps between the kernels of a layer in a decode step, beside those that all CUDA graphs have."""
    expert_gap_s: float = 0.0
    """The same of a layer with experts, on top: routing, and sorting tokens by expert."""
    cast_gap_s: float = 0.0
    """The same where activations are cast to blocks of 8 bits."""
    widening_gap_s: float = 0.0
    """The same where weights of 4 bits are widened to 16."""
    request_host_s: float = 0.0
    """Host time per decode step and running request of a rank: sampling, detokenization."""
    frontend_s: float = 0.0
    """Additional TTFT with 16 requests in flight: the front end, HTTP, text into tokens."""
    frontend_growth: float = 0.0
    """w: exponent with which that time grows with the requests in flight."""
    device_handing_s: float = 0.0
    """Additional TTFT for each device that a request is handed to."""
    mla_frontend_s: float = 0.0
    """Additional TTFT with multi-head latent attention, whose prefill prepares more."""
    burst_prompts: float = np.inf
    """Prompts of a burst that the front end has ready for a step, at most."""
    taken_steps: float = 1.0
    """u: steps until a request that arrives is taken into one."""
    cuda_graphs: bool = True
    """Whether decode steps replay CUDA graphs (vLLM without --enforce-eager)."""
    prefill_first: bool = False
    """Whether waiting prefills run before any further decode step."""
    reserves_kv: bool = False
    """Whether admission reserves KV cache for the whole OSL. Otherwise the cache grows, and requests wait if it is
    full."""
    admission_reserve: float = 0.0
    """Share of the output still to come for which admission keeps KV cache free: 0 admits what the prompt needs and
    preempts later, 1 never preempts."""
    chunked_prefill: bool = True
    """Whether a prompt that does not fit into a step is cut. Otherwise it waits for a step that holds it whole."""
    stages_in_pools: bool = True
    """Whether caches move between pools whose instances have pipeline stages. Others are not searched."""
    max_num_seqs: int = 256
    """Most requests that run at once, for each rank of attention data parallelism, where a deployment does not say."""
    max_num_batched_tokens: int = 8192
    """Most tokens of one step, where a deployment does not say."""
    page_tokens: int = 16
    """Tokens of a page of the KV cache."""
    memory_fraction: float = 0.94
    """Share of the memory for weights and KV cache; with `reserves_kv`, of what weights leave for the KV cache."""
    workspace_bytes: float = 3e9
    """Memory for activations, CUDA graphs and network buffers."""

    def __post_init__(self) -> None:
        for name in POSITIVE:
            _check_engine_field(getattr(self, name), name, above=True)
        for name in NOT_NEGATIVE:
            _check_engine_field(getattr(self, name), name)
        for key in DURATIONS:
            _check_engine_field(getattr(self, f"{key}_s"), key)
        _check_engine_field(self.workspace_bytes, "workspace")
        for name in ("max_num_seqs", "max_num_batched_tokens", "page_tokens"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "must be at least 1")
        share = self.admission_reserve
        require(0 <= share <= 1, "admission_reserve", share, "must be from 0 to 1")
        for name in ("memory_fraction", "all_reduce_efficiency"):
            within = bool(np.all(np.asarray(getattr(self, name)) <= 1))
            require(within, name, getattr(self, name), "must be at most 1")
        if self.all_reduce_s is not None:
            _check_engine_field(self.all_reduce_s, "all_reduce")

    def front_s(self, in_flight: Any, devices: Any = 1, mla: Any = False) -> Any:
        """Return what the front end takes of a request: text into tokens and back, HTTP; handing it to all devices.

        >>> Engine(frontend_s=0.02, frontend_growth=0.5, device_handing_s=0.001).front_s(64, 8)
        0.048
        """
        share = np.maximum(np.asarray(in_flight, dtype=float) / USUAL_CLIENTS, FEWEST)
        seconds = self.frontend_s * share**self.frontend_growth + self.device_handing_s * devices
        seconds = seconds + self.mla_frontend_s * mla
        return float(seconds) if np.ndim(seconds) == 0 else seconds


def _check_engine_field(value: Any, key: str, *, above: bool = False) -> None:
    """Refuse a number, or an array with one, that is negative, or 0 where it must be *above*."""
    numbers = np.asarray(value)
    holds = bool(np.all(numbers > 0 if above else numbers >= 0))
    require(holds, key, value, "must be positive" if above else "must not be negative")


def load_engine(name: str) -> Engine:
    """Return the engine that the catalog, or a folder of ``COSMIC_PATH``, has under *name*.

    >>> load_engine("sglang").prefill_first, load_engine("vllm").prefill_first
    (True, False)
    """
    return _load_cached_engine(name, user_folders())


@cache
def _load_cached_engine(name: str, folders: tuple[Path, ...]) -> Engine:
    """Return an engine; *folders* are part of the cache's key."""
    engine: Engine = schema.read_value(
        Engine, catalog_entries.read_entry("engines", name)["engine"], f"engines/{name}.yaml engine"
    )
    return engine
