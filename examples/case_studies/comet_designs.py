"""Transformer-1T by MP x DP, as COMET studies it: designs, their time and their memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from cosmic import evaluate, load_design
from cosmic.design import DesignPoint, Infeasible, Metrics, Recommender, Transformer, batch_of
from cosmic.model import table_use

MODEL, NPUS, BATCH = "megatron-1008b", 1024, 1024
DEGREES = tuple(2**power for power in range(11))
LOCAL = {"memory.capacity": "80 GB"}
LOCAL_BYTES = 80e9
UNLIMITED = {"memory.capacity": "4 TB"}
STATES = ("weights", "gradients", "optimizer")
FIXED = {
    "pp": 1,
    "cp": 1,
    "global_batch": BATCH,
    "weight_sharding": "zero2",
    "reduce_every": "microbatch",
    "grad_reduce_in_fp32": False,
    "recompute": "full",
    "uneven_tp": "pad",
}


@dataclass(frozen=True)
class Mapped:
    """One MP x DP on one machine."""

    tp: int
    step_s: float
    compute_s: float
    mp_s: float
    dp_s: float
    states_bytes: float
    memory_bytes: float

    @property
    def name(self) -> str:
        """The mapping, as COMET names it."""
        return f"MP{self.tp} DP{NPUS // self.tp}"

    @property
    def parts(self) -> dict[str, float]:
        """Where the step goes."""
        return {"compute": self.compute_s, "exposed MP": self.mp_s, "exposed DP": self.dp_s}


def design(tp: int, system: str = "dgx-a100", settings: Mapping[str, Any] | None = None) -> DesignPoint:
    """Return a mapping in which each replica passes its part of the batch at once, unless *settings* say otherwise."""
    mesh = {"tp": tp, "dp": NPUS // tp, "micro_batch": BATCH * tp // NPUS}
    return load_design(f"{MODEL}@{system}:{NPUS}", {**FIXED, **mesh, **(settings or {})}, plain=True)


def with_finer_heads(point: DesignPoint) -> DesignPoint:
    """Return a design whose attention has as many parameters in 1,024 heads, so that every MP divides them."""
    assert isinstance(point.model, Transformer)  # noqa: S101  the design is ours
    finer = replace(point.model, heads=1024, kv_heads=1024, head_dim=25)
    return replace(point, model=finer)


def mapped(point: DesignPoint) -> Mapped | None:
    """Return what a design takes; None where it does not fit."""
    found = evaluate(point)
    if isinstance(found, Infeasible):
        return None
    parts = found.breakdown
    mp, dp = parts["tp"], parts["dp"] + parts["weights"]
    return Mapped(
        point.workload.tp,
        found.step_s,
        found.step_s - mp - dp,
        mp,
        dp,
        states_of(found),
        found.memory_bytes,
    )


def states_of(found: Metrics) -> float:
    """Return the bytes of weights, gradients and optimizer states."""
    return sum(found.memory[name] for name in STATES)


@cache
def unlimited(tp: int) -> Mapped:
    """Return a mapping on A100 with as much memory as it needs, all of it HBM."""
    found = mapped(design(tp, settings=UNLIMITED))
    assert found is not None  # noqa: S101  nothing limits it
    return found


@cache
def even_states_bytes(tp: int) -> float:
    """Return the bytes of states where every MP divides the heads."""
    found = evaluate(with_finer_heads(design(tp, settings=UNLIMITED)))
    assert isinstance(found, Metrics)  # noqa: S101  nothing limits it
    return states_of(found)


# ------------------------------------------------------------------------------------------------ expansion


def fastest(tp: int, system: str = "dgx-a100", settings: Mapping[str, Any] | None = None) -> Mapped | None:
    """Return a mapping with the microbatch that is fastest of those that fit; None if none does."""
    sizes = [2**power for power in range((BATCH * tp // NPUS).bit_length())]
    found = [mapped(design(tp, system, {**(settings or {}), "micro_batch": size})) for size in sizes]
    return best_of(found)


def expanded(tp: int, capacity_gb: float, bandwidth_gb_per_s: float, expansion: str = "serial") -> Mapped | None:
    """Return a mapping on 80 GB of HBM with a load/store tier behind it."""
    tier = {
        "name": "expansion",
        "capacity": f"{capacity_gb:g} GB",
        "bandwidth": f"{bandwidth_gb_per_s:g} GB/s",
        "access": "load_store",
    }
    placed = {state: ["hbm", "expansion"] for state in (*STATES, "activations")}
    memory = {"memory.tiers": [tier], "memory.placement": placed, "memory.expansion": expansion}
    return fastest(tp, settings=LOCAL | memory)


def best_of(found: Iterable[Mapped | None]) -> Mapped | None:
    """Return the fastest of some mappings."""
    fitting = [each for each in found if each is not None]
    return min(fitting, key=lambda each: each.step_s, default=None)


@cache
def baseline() -> Mapped:
    """Return the fastest mapping that fits 80 GB."""
    found = best_of(fastest(tp, settings=LOCAL) for tp in DEGREES)
    assert found is not None  # noqa: S101  some mapping has room
    return found


# ------------------------------------------------------------------------------------------------ recommender


@dataclass(frozen=True)
class Recommended:
    """DLRM on so many accelerators."""

    npus: int
    batch: int
    step_s: float
    exchange_s: float
    update_bytes: float
    """Of an accelerator's tables: rows that a step looks up."""
    whole_bytes: float
    """The same if all rows were updated."""
    memory_bytes: float


def recommender(npus: int, batch: int) -> DesignPoint:
    """Return DLRM spread over A100."""
    return load_design(
        f"dlrm-criteo@dgx-a100:{npus}", {"dp": npus, "global_batch": batch, "micro_batch": batch // npus}, plain=True
    )


def recommended(npus: int, batch: int) -> Recommended | None:
    """Return what a step of DLRM takes; None where it does not fit."""
    point = recommender(npus, batch)
    found = evaluate(point)
    if isinstance(found, Infeasible):
        return None
    assert isinstance(point.model, Recommender)  # noqa: S101  the design is ours
    tables = table_use(batch_of(point))
    whole = replace(tables, touched=tables.rows)
    exchange = sum(found.breakdown[name] for name in ("tp", "ep", "dp", "weights"))
    return Recommended(
        npus,
        batch,
        found.step_s,
        exchange,
        float(tables.update_bytes),
        float(whole.update_bytes),
        found.memory_bytes,
    )
