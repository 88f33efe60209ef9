"""Metrics: their meaning, unit, and which way is better."""

from __future__ import annotations

from cosmic.base.units import split_name
from cosmic.simulate.analytic_step import BREAKDOWN
from cosmic.simulate.metrics import BETTER, Metrics
from cosmic.step.device_memory import COMPONENTS
from generation.text import attribute_docs, escape, page, table

INTRODUCTION = """
What `cosmic evaluate --json` prints and `cosmic.evaluate` returns for a feasible design. The numbers below can be
objectives of a search and bound in constraints, such as `memory_bytes <= 80 GB`; a metric that a task does not have
(TTFT of training) is null.
"""
PLAIN = {
    "tokens_per_s": "Throughput of the whole system.",
    "memory_bytes": "Peak memory of the accelerator that needs most; a design beyond its capacity is infeasible.",
    "network_usd": "Purchase price of the network alone.",
}
"""Meanings of metrics that have no docstring."""
PARTS = {
    "gemm": "GEMMs",
    "attention": "fused attention",
    "other": "norms, activation functions, losses and other memory-bound operators",
    "recompute": "activation recomputation in the backward pass",
    "launch": "time in which the accelerator is launch-bound",
    "tp": "exposed communication of tensor parallelism",
    "cp": "exposed communication of context parallelism",
    "ep": "exposed communication of expert parallelism",
    "weights": "exposed communication of ZeRO-3: gathering weights, reducing gradients",
    "dp": "exposed communication of data parallelism: gradients",
    "pp": "exposed transfers between pipeline stages",
    "bubble": "pipeline bubble",
    "optimizer": "the optimizer's update",
    "offload": "exposed traffic to outer memory tiers",
}
KEPT = {
    "weights": "parameters",
    "gradients": "their gradients",
    "optimizer": "the optimizer's states, and master copies",
    "inputs": "input tokens and labels",
    "workspace": "workspaces of GEMM libraries",
    "activations": "tensors that the backward pass reads, of all microbatches in flight",
    "loss": "logits and temporaries of the loss",
    "buffers": "gathered weights, gradients of the current layer",
    "kv_cache": "KV cache, in serving",
    "fragmentation": "gaps between tensors that no other fits into",
    "context": "the context of the driver, with the code of kernels",
    "communicators": "buffers of communicators, one for each group of which it is a member",
    "cached": "freed blocks that the allocator keeps for later, and gives back when memory runs short",
}


def make() -> str:
    """Return the page."""
    docs = attribute_docs(Metrics) | PLAIN
    rows = [[f"`{name}`", _unit(name), better, escape(docs[name])] for name, better in BETTER.items()]
    texts = ("memory", "breakdown", "provenance", "expected_error", "expected_on")
    besides = docs | {"memory": "Bytes of `memory_used_bytes` by component."}
    parts = [INTRODUCTION, table(["metric", "unit", "better", "meaning"], rows), "## Other keys"]
    parts += [table(["key", "meaning"], [[f"`{name}`", escape(besides[name])] for name in texts])]
    parts += ["## Breakdown of a step", "`breakdown`, of the analytic engine, in seconds:", _named(BREAKDOWN, PARTS)]
    parts += ["## Components of memory", "`memory`, in bytes:", _named(COMPONENTS, KEPT)]
    return page("Metrics", *parts)


def _unit(name: str) -> str:
    """Return the unit that a metric's name ends in; shares have none.

    >>> _unit("step_s"), _unit("mfu"), _unit("cost_usd_per_token")
    ('s', 'share', 'USD/token')
    """
    special = {
        "tokens_per_s": "tokens/s",
        "cost_usd_per_token": "USD/token",
        "samples_per_s": "samples/s",
        "cost_usd_per_sample": "USD/sample",
        "perf_per_bandwidth": "1/s per byte/s",
        "perf_per_network_cost": "1/s per USD",
        "mfu": "share",
        "hfu": "share",
    }
    return special.get(name) or {"usd": "USD", "joule": "J"}.get(str(split_name(name)[1]), str(split_name(name)[1]))


def _named(names: tuple[str, ...], texts: dict[str, str]) -> str:
    if set(names) != set(texts):
        raise LookupError(f"describe these, and no others: {sorted(set(names) ^ set(texts))}")
    return table(["key", "meaning"], [[f"`{name}`", texts[name]] for name in names])
