"""A design so small that every number of its step can be worked out by hand.

A layer has hidden 8, 2 heads of 4, ffn 16; sequences have 4 tokens, and the vocabulary 10. The accelerator multiplies
at 1000 flop/s and moves 100 bytes/s, without losses, and runs no framework's process: its memory is that of
tensors. The network is one switch, into which an NPU sends 10 bytes/s.
"""

from __future__ import annotations

from math import prod
from typing import Any

from cosmic.design.collective_layer import Collective
from cosmic.design.compute_layer import Compute
from cosmic.design.design_batch import Batch, batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.design.memory_layer import Memory
from cosmic.design.model_layer import Transformer
from cosmic.design.network_layer import Dimension, Network
from cosmic.design.workload_layer import AXES, Workload

Changes = dict[str, Any]
MODEL: Changes = {"layers": 2, "hidden": 8, "heads": 2, "ffn": 16, "vocab": 10, "norm": "rmsnorm"}
COMPUTE: Changes = {
    "bf16_flop_per_s": 1000.0,
    "gemm_efficiency": 1.0,
    "attention_efficiency": 1.0,
    "attention_backward_efficiency": 1.0,
    "memory_efficiency": 1.0,
    "launch_s": 0.0,
}
MEMORY: Changes = {"capacity_bytes": 1e9, "bandwidth_bytes_per_s": 100.0, "context_bytes": 0.0}


def switch(npus: int, **changes: Any) -> Dimension:
    """Return a network dimension of one switch."""
    usual: Changes = {"topology": "switch", "npus": npus, "bandwidth_bytes_per_s": 10.0, "latency_s": 0.0}
    return Dimension(**usual | changes)


def point(
    *,
    model: Changes | None = None,
    compute: Changes | None = None,
    collective: Changes | None = None,
    memory: Changes | None = None,
    dims: tuple[Dimension, ...] | None = None,
    **workload: Any,
) -> DesignPoint:
    """Return the tiny design with changes; unless *dims* are given, one switch joins as many NPUs as the mesh has."""
    npus = prod(workload.get(axis, 1) for axis in AXES)
    if dims is None:
        dims = (switch(npus),) if npus > 1 else ()
    rings: Changes = {"algorithms": ("ring",) * len(dims), "chunks": 1}
    return DesignPoint(
        model=Transformer(**MODEL | (model or {})),
        workload=Workload(**{"sequence": 4, "global_batch": workload.get("dp", 1)} | workload),
        collective=Collective(**rings | (collective or {})),
        network=Network(dims=dims),
        compute=Compute(**COMPUTE | (compute or {})),
        memory=Memory(**MEMORY | (memory or {})),
    )


def batch(**changes: Any) -> Batch:
    """Return the tiny design with changes as a batch of one."""
    return batch_of(point(**changes))
