"""Tiers of memory as a page shows them: what each holds, and what transfers between them cost."""

from __future__ import annotations

from cosmic.evaluation import Metrics
from cosmic.publishing.contract import MemoryPart, Tiers
from cosmic.reporting.words import share
from cosmic.step.tier_reasons import KEYS

MEMORY = {
    "weights": "weights",
    "gradients": "gradients",
    "optimizer": "optimizer states",
    "activations": "activations",
    "loss": "logits and loss",
    "buffers": "communication buffers",
    "kv_cache": "KV cache",
    "allowance": "fragmentation",
}


def part_of(name: str, held: float) -> MemoryPart:
    """Return a component of memory with its label."""
    return {"name": name, "label": MEMORY.get(name, name.replace("_", " ")), "bytes": held}


def tiers_of(metrics: Metrics) -> Tiers | None:
    """Return what each tier holds of a design's state; None where all of it is in HBM."""
    if len(metrics.memory_tiers) < 2:
        return None
    return {
        "sentence": _sentence(metrics),
        "exposed_s": metrics.breakdown.get("offload", 0.0),
        "rows": [
            {
                "name": name,
                "capacity_bytes": each["capacity_bytes"],
                "used_bytes": each["used_bytes"],
                "traffic_bytes": each["traffic_bytes"],
                "parts": [part_of(key, size) for key, size in each.items() if key not in KEYS and size > 0],
            }
            for name, each in metrics.memory_tiers.items()
        ],
    }


def _sentence(metrics: Metrics) -> str:
    exposed = metrics.breakdown.get("offload", 0.0)
    if not any(each["traffic_bytes"] for each in metrics.memory_tiers.values()):
        return "Nothing is copied between tiers."
    if not exposed:
        return "Compute hides all transfers between tiers."
    return f"Compute waits {share(exposed / metrics.step_s)} of the step for transfers between tiers."
