"""State-space layers as operators: Mamba-2, gated DeltaNet and Mamba-1.

Heads are the dimension that tensor parallelism splits. What groups of heads share (B and C, keys and queries) is split
with them: a head counts its part of them, so that one projection, one convolution and one scan make a layer

    x ──projection──▶ gate, values, B, C, steps ──convolution──▶ ──scan──▶ ──gated norm──▶ ──projection──▶

Under context parallelism the sequence is whole from the convolution to the scan, and heads are split instead, as in
Megatron-LM: an all-to-all before and one after (`catalog/strategies/context_parallel.yaml`).
"""

from __future__ import annotations

from cosmic.design.model_layer import StateSpace, Transformer
from cosmic.workload.model_blocks import TOKENS, Builder
from cosmic.workload.operator_graph import Tensor

HEADS = (*TOKENS, "ssm_heads")
SCANS = {"mamba2": "ssd_scan", "delta": "delta_scan", "mamba1": "selective_scan"}
"""The kind of operator that each kind of state space has for its scan."""


def add_state_space(build: Builder, model: Transformer, read: Tensor) -> Tensor:
    """Add a state space; return what it adds to the residual stream."""
    ssm = model.ssm
    if ssm is None:
        return read
    projected = build.linear("ssm_in", read, ("hidden",), ("ssm_heads", "ssm_columns"))
    entering = build.apply("view", "scan_entering", (projected,), projected.dims)
    convolved = _add_convolution(build, ssm, entering)
    scanned = _add_scan(build, ssm, entering, convolved)
    leaving = build.apply("view", "scan_leaving", (scanned,), scanned.dims)
    inner = ("ssm_heads", "ssm_head_dim")
    return build.linear("ssm_out", leaving, inner, ("hidden",))


def _add_convolution(build: Builder, ssm: StateSpace, entering: Tensor) -> Tensor:
    weights = [Tensor("w_conv", ("ssm_heads", "ssm_channels", "ssm_taps"), "weight")]
    if ssm.conv_bias:
        weights.append(Tensor("b_conv", ("ssm_heads", "ssm_channels"), "weight"))
    return build.apply("conv", "convolved", (entering, *weights), (*HEADS, "ssm_channels"), whole=("sequence",))


def _add_scan(build: Builder, ssm: StateSpace, entering: Tensor, convolved: Tensor) -> Tensor:
    dims = (*HEADS, "ssm_head_dim")
    per_head = tuple(Tensor(name, ("ssm_heads",), "weight") for name in ("w_decay", "b_step"))
    if ssm.kind == "mamba1":
        inputs = (convolved, entering, *_add_time_steps(build, ssm, convolved))
        decay = Tensor("w_decay", ("ssm_heads", "ssm_head_dim", "ssm_state"), "weight")
        skip = Tensor("w_skip", ("ssm_heads",), "weight")
        return build.apply(SCANS[ssm.kind], "scanned", (*inputs, decay, skip), dims, whole=("sequence",))
    skips = (Tensor("w_skip", ("ssm_heads",), "weight"),) if ssm.kind == "mamba2" else ()
    read = (convolved, entering, *per_head, *skips)
    scanned = build.apply(SCANS[ssm.kind], "scanned", read, dims, whole=("sequence",))
    scale = ("ssm_heads", "ssm_head_dim") if ssm.kind == "mamba2" else ("ssm_head_dim",)
    weights = (Tensor("w_gated_norm", scale, "weight"),) if ssm.norm else ()
    return build.apply("gated_norm", "gated", (scanned, entering, *weights), dims, whole=("ssm_head_dim",))


def _add_time_steps(build: Builder, ssm: StateSpace, convolved: Tensor) -> tuple[Tensor, Tensor]:
    """Add what Mamba-1 projects from its channels: B and C, and the time step of each channel, through a low rank."""
    small = build.linear("ssm_small", convolved, ("ssm_heads", "ssm_channels"), ("ssm_small",))
    if ssm.norm:
        small = build.norm("small_norm", small, "ssm_small", bias=False)
    rank = build.apply("view", "ssm_rank", (small,), (*TOKENS, "ssm_rank"))
    return small, build.linear("ssm_step", rank, ("ssm_rank",), ("ssm_heads",), bias=True)


def state_sizes(model: Transformer) -> dict[str, float]:
    """Return the sizes of the dimensions of a state space: of a head, with its part of what groups share."""
    ssm = model.ssm
    if ssm is None:
        return {}
    sizes: dict[str, float] = {
        "ssm_heads": ssm.heads,
        "ssm_head_dim": ssm.head_dim,
        "ssm_columns": ssm.projected / ssm.heads,
        "ssm_channels": ssm.convolved / ssm.heads,
        "ssm_groups": ssm.groups,
        "ssm_state": ssm.state,
        "ssm_taps": ssm.conv,
        "ssm_chunk": ssm.chunk,
    }
    return sizes | ({"ssm_rank": ssm.rank, "ssm_small": ssm.rank + 2 * ssm.state} if ssm.rank else {})
