"""Formulas of the literature, and what COSMIC says of the same design: nothing here is taken from COSMIC's own code.

Sizes are in bytes, times in seconds. Symbols are those of the papers: a batch of *b* sequences of *s* tokens, hidden
size *h*, *a* heads, *L* layers, vocabulary *V*, tensor parallelism *t*, pipeline parallelism *p*, *m* microbatches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import cosmic
from cosmic.design.design_batch import batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.metrics import Infeasible, Metrics
from cosmic.step.step_profile import profile_step

BF16, FP32 = 2, 4
ADAM = 12
"""Bytes of Adam in mixed precision: master copy and two moments in fp32 (ZeRO, section 3.1)."""

MAPPING: dict[str, Any] = {
    "task": "training",
    "micro_batch": 1,
    "precision": "bf16",
    "dp": 1,
    "tp": 1,
    "cp": 1,
    "pp": 1,
    "ep": 1,
    "virtual_stages": 1,
    "weight_sharding": "none",
    "sequence_parallel": False,
    "schedule": "1f1b",
    "recompute": "none",
    "recompute_to_end": False,
    "attention": "fused",
    "cp_comm_type": "ring",
    "cp_balanced": True,
    "loss": "eager",
    "dropout": False,
    "execution": "fused",
    "dp_overlap": False,
    "tp_overlap": False,
    "ep_overlap": False,
    "offload": [],
    "placement": ["tp", "cp", "dp", "pp"],
    "set_to_none": False,
}
"""Every key of a mapping, so that no default matters; communication does not overlap unless a test says so."""


def design(model: str | dict[str, Any], system: str, **workload: Any) -> DesignPoint:
    """Return a design whose mapping is stated in full; what ran counts as a design that can, however full it is."""
    work = {**MAPPING, **workload}
    return load_design({"model": model, "system": system, "workload": work, "memory": {"fits": 0.05}}, plain=True)


def run(point: DesignPoint) -> Metrics:
    """Return the metrics of a design that can run."""
    outcome = cosmic.evaluate(point)
    assert isinstance(outcome, Metrics), outcome
    return outcome


def refused(point: DesignPoint) -> tuple[str, ...]:
    """Return why a design cannot run."""
    outcome = cosmic.evaluate(point)
    assert isinstance(outcome, Infeasible), "the design runs"
    return outcome.reasons


@dataclass(frozen=True)
class Calls:
    """Collectives of one kind: how many, and the bytes of their payloads together."""

    calls: float
    bytes: float


def sent(point: DesignPoint, role: str, kind: str, phase: str | None = None, least: float = 0.0) -> Calls:
    """Return the collectives of a kind on a rank of the last stage, without those below *least* bytes.

    *role* is what they are for: an axis of the mesh (its activations), or `weights`.
    """
    chosen = [
        (float(each.calls), float(each.bytes))
        for each in profile_step(batch_of(point), "last").traffic
        if each.role == role and each.kind == kind and phase in (None, each.phase) and float(each.bytes) >= least
    ]
    return Calls(sum(calls for calls, _ in chosen), sum(calls * size for calls, size in chosen))


def flop(point: DesignPoint, kind: str, phase: str) -> float:
    """Return the flop of operators of a kind on a rank of the last stage in one step."""
    return sum(
        float(each.use.flop) * float(each.runs)
        for each in profile_step(batch_of(point), "last").operators
        if each.use.kind == kind and each.use.phase == phase
    )


# ---- parameters and flop


def gpt_layer(h: int) -> int:
    """Return a GPT layer's parameters: 4 h² of attention, 8 h² of the MLP, 9 h of biases, two layer norms of 2 h."""
    return 12 * h**2 + 13 * h


def llama_layer(h: int, kv: int, f: int) -> int:
    """Return a LLaMA layer's parameters: queries and output h², keys and values h kv, SwiGLU 3 h f, two RMS norms."""
    return 2 * h**2 + 2 * h * kv + 3 * h * f + 2 * h


def causal(s: int) -> int:
    """Return the pairs of a query and a key that a causal mask leaves."""
    return s * (s + 1) // 2


def core_flop(pairs: int, width: int) -> int:
    """Return the forward flop of QKᵀ and of AV: 2 flop a multiply-add, over all heads together."""
    return 2 * 2 * pairs * width


# ---- communication


def ring(size: float, n: int, bandwidth: float, latency: float = 0.0) -> float:
    """Return the seconds of a ring all-gather or reduce-scatter of *size* bytes in all (Thakur et al., 2005)."""
    return (n - 1) / n * size / bandwidth + (n - 1) * latency


def within(found: float, lowest: float, highest: float) -> None:
    """Check that a number lies between two bounds."""
    assert lowest <= found <= highest, f"{found:.4g} is not in [{lowest:.4g}, {highest:.4g}]"


def near(expected: float, tolerance: float) -> Any:
    """Return what equals *expected* up to a relative tolerance."""
    return pytest.approx(expected, rel=tolerance)


# ---- activation memory


def korthikanti(s: int, b: int, h: int, a: int, *, t: int, sequence_parallel: bool, recompute: str) -> float:
    """Return the activations of a GPT layer with dropout: Korthikanti et al., MLSys 2023, table 2."""
    if recompute == "full":
        return 2 * s * b * h
    scores = 5 * a * s / h if recompute == "none" else 0.0
    if sequence_parallel:
        return s * b * h / t * (34 + scores)
    return s * b * h * (10 + 24 / t + scores / t)
