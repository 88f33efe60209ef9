"""The nearest valid mapping of a design whose mapping is not: every rule of `cosmic.workload.checks`, met in turn."""

from __future__ import annotations

from math import gcd
from typing import Any

from cosmic.arithmetic import divisors
from cosmic.design import schema
from cosmic.design.model import Recommender, Transformer, context_parts, tensor_parts
from cosmic.design.point import DesignPoint
from cosmic.evaluation import step_of
from cosmic.workload.checks import invalid_reasons
from cosmic.workload.cut import layers_of
from cosmic.workload.padding import pads
from cosmic.workload.schedule import schedules

MESH = ("tp", "cp", "pp", "dp")


def mended(point: DesignPoint) -> dict[str, Any] | None:
    """Return the fields to change for a mapping that is valid; none where it is, None where this finds no such.

    >>> from cosmic.mapping.completing import load_design
    >>> mended(load_design("llama3-70b@dgx-h100:64", {"tp": 8, "pp": 2, "cp": 1, "dp": 4, "global_batch": 62}))
    {'workload.global_batch': 64}
    """
    if point.serving is not None:
        return _mended_deployment(point)
    if not invalid_reasons(point):
        return {}
    workload = point.workload
    found = {name: getattr(workload, name) for name in (*MESH, "ep", "etp", "global_batch", "micro_batch", "sequence")}
    found |= {name: getattr(workload, name) for name in ("virtual_stages", "schedule", "precision", "offload")}
    _mend_sample(point, found)
    _mend_mesh(point, found)
    _mend_experts(point, found)
    _mend_batch(found)
    _mend_schedule(point, found)
    if workload.precision in ("fp8", "fp4", "int4") and workload.task == "training":
        rate = getattr(point.compute, f"{workload.precision}_flop_per_s", None)
        found["precision"] = "bf16" if rate is None else workload.precision
    found["offload"] = workload.offload if point.memory.tiers else ()
    changes = {f"workload.{name}": value for name, value in found.items() if value != getattr(workload, name)}
    return changes if changes and not invalid_reasons(schema.assign(point, changes)) else None


def _mended_deployment(point: DesignPoint) -> dict[str, Any] | None:
    """Return the same of a design that serves: mesh and experts as for a decode step, and dp of all that is left."""
    step = mended(step_of(point))
    if step is None:
        return None
    found = {path: value for path, value in step.items() if path.partition(".")[2] in (*MESH, "ep", "etp")}
    pool = point.serving.prefill if point.serving else None
    if pool is not None and pool.system is None and pool.replicas:
        mesh = {name: found.get(f"workload.{name}", getattr(point.workload, name)) for name in MESH}
        dp, rest = divmod(point.network.npus - pool.npus, mesh["tp"] * mesh["cp"] * mesh["pp"])
        if rest or dp < 1:
            return None
        found |= {"workload.dp": dp} if dp != point.workload.dp else {}
    return found


def _most(number: int, most: int) -> int:
    """Return the largest divisor of *number* that is at most *most*."""
    return max((each for each in divisors(number) if each <= most), default=1)


def _mend_sample(point: DesignPoint, found: dict[str, Any]) -> None:
    """Give a sample the tokens that its model gives it."""
    model = point.model
    if isinstance(model, Recommender):
        found["sequence"] = 1
    elif isinstance(model, Transformer) and model.image is not None:
        found["sequence"] = model.image.tokens


def _mend_mesh(point: DesignPoint, found: dict[str, Any]) -> None:
    """Make a mesh of all accelerators that divides the model: axes as wide as before, or less; dp takes the rest."""
    model, npus = point.model, point.network.npus
    if isinstance(model, Recommender):
        found |= {"tp": 1, "cp": 1, "pp": 1, "dp": npus}
        return
    splits_tokens = point.workload.sequence_parallel and point.workload.task == "training"
    whole = gcd(tensor_parts(model, pads=pads(point)), npus, found["sequence"] if splits_tokens else 0)
    found["tp"] = _most(whole, found["tp"])
    left = npus // found["tp"]
    tokens = 0 if point.workload.task == "decode" else found["sequence"] // (found["tp"] if splits_tokens else 1)
    found["cp"] = _most(gcd(left, tokens, context_parts(model, found["tp"])), found["cp"])
    left //= found["cp"]
    found["pp"] = _most(left, min(found["pp"], layers_of(model)))
    found["dp"] = left // found["pp"]


def _mend_experts(point: DesignPoint, found: dict[str, Any]) -> None:
    """Spread experts over the ranks of a stage."""
    experts = point.model.experts if isinstance(point.model, Transformer) else None
    if experts is None:
        found |= {"ep": 1, "etp": None}
        return
    ranks = found["tp"] * found["cp"] * found["dp"]
    width = 0 if pads(point) else experts.ffn
    if found["etp"] is not None and (found["tp"] % found["etp"] or width % found["etp"]):
        found["etp"] = _most(gcd(found["tp"], width), found["etp"])
    found["ep"] = _most(gcd(experts.count, ranks // (found["etp"] or 1)), found["ep"])
    etp = found["etp"] or gcd(found["tp"], ranks // found["ep"])
    if (etp * found["ep"]) % found["tp"] and point.workload.task != "training":
        found["etp"] = None


def _mend_batch(found: dict[str, Any]) -> None:
    """Give every replica as many whole microbatches: smaller ones, or a batch that is rounded up."""
    if found["global_batch"] % found["dp"]:
        whole = found["dp"] * found["micro_batch"]
        found["global_batch"] = -(-found["global_batch"] // whole) * whole
    found["micro_batch"] = _most(found["global_batch"] // found["dp"], found["micro_batch"])


def _mend_schedule(point: DesignPoint, found: dict[str, Any]) -> None:
    """Leave stages undivided where they cannot be divided, and take a schedule that runs any number of microbatches."""
    model, workload = point.model, point.workload
    layers = layers_of(model)
    count = found["global_batch"] // (found["dp"] * found["micro_batch"])
    sizes = (found["pp"], count)
    if workload.task != "training" or found["pp"] * found["virtual_stages"] > layers + 2:
        found["virtual_stages"] = 1
    if workload.task == "training" and not schedules[found["schedule"]].runs(*sizes, found["virtual_stages"]):
        found["virtual_stages"] = 1
        if not schedules[found["schedule"]].runs(*sizes, 1):
            found["schedule"] = "1f1b"
