"""Metrics: what a design achieves, in which unit, and which way is better."""

from __future__ import annotations

from cosmic.evaluation import BETTER, Metrics
from cosmic.simulation.analytic import BREAKDOWN
from cosmic.step.memory import COMPONENTS
from cosmic.units import split_name
from generation.text import attribute_docs, escape, page, table

INTRODUCTION = """
What `cosmic evaluate --json` prints and `cosmic.evaluate` returns of a design that can run. The numbers below can be
objectives of a search and stand in limits, such as `memory_bytes <= 80 GB`; one that a task does not have (time to
first token of training) is null.
"""
PLAIN = {
    "tokens_per_s": "Tokens of all sequences that the whole system finishes in a second.",
    "memory_bytes": "What the fullest accelerator keeps at the worst moment; a design beyond its capacity cannot run.",
    "network_usd": "To buy: the network alone.",
}
"""Of metrics whose names say nearly all, the rest."""
PARTS = {
    "gemm": "matrix products",
    "attention": "fused attention",
    "other": "norms, activations, losses and all else that streams through memory",
    "recompute": "what the backward pass makes anew",
    "launch": "waiting for the host to launch kernels",
    "tp": "exposed communication of tensor parallelism",
    "cp": "exposed communication of sequence parallelism",
    "ep": "exposed communication of expert parallelism",
    "weights": "gathering sharded weights and reducing sharded gradients, where nothing hides them",
    "dp": "exposed communication of data parallelism: gradients",
    "pp": "transfers between pipeline stages",
    "bubble": "waiting for other pipeline stages",
    "optimizer": "the optimizer's update",
    "offload": "waiting for what was moved to outer tiers of memory",
}
KEPT = {
    "weights": "parameters",
    "gradients": "their gradients",
    "optimizer": "the optimizer's states, and master copies",
    "inputs": "tokens, and what is to be predicted for them",
    "workspace": "what matrix libraries keep for themselves",
    "activations": "what the backward pass reads, of all microbatches in flight",
    "loss": "logits and what the loss makes of them",
    "buffers": "weights gathered for use, gradients of the layer at hand",
    "kv_cache": "keys and values of earlier tokens, in serving",
    "allowance": "what an allocator cannot use of what comes and goes",
}


def make() -> str:
    """Return the page."""
    docs = attribute_docs(Metrics) | PLAIN
    rows = [[f"`{name}`", _unit(name), better, escape(docs[name])] for name, better in BETTER.items()]
    texts = ("memory", "breakdown", "provenance", "expected_error", "expected_on")
    besides = docs | {"memory": "Bytes on the fullest accelerator, by component; they add up to `memory_bytes`."}
    parts = [INTRODUCTION, table(["metric", "unit", "better", "meaning"], rows), "## Beside the numbers"]
    parts += [table(["key", "meaning"], [[f"`{name}`", escape(besides[name])] for name in texts])]
    parts += ["## Parts of a step", "`breakdown`, of the analytic engine, in seconds:", _named(BREAKDOWN, PARTS)]
    parts += ["## Components of memory", "`memory`, in bytes:", _named(COMPONENTS, KEPT)]
    return page("Metrics", *parts)


def _unit(name: str) -> str:
    """Return the unit that a metric's name ends in, in words; shares have none.

    >>> _unit("step_s"), _unit("mfu"), _unit("cost_usd_per_token")
    ('s', 'share', 'USD/token')
    """
    special = {
        "tokens_per_s": "tokens/s",
        "cost_usd_per_token": "USD/token",
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
