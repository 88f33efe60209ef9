"""A first mapping of a model onto a system, for designs that do not state one.

This is a rule of thumb that practitioners use, not a search: as little model parallelism as lets the states
and activations fit, tensor parallelism first and inside the innermost dimension, pipeline stages next,
sharded states and recomputation when that is not enough. Evaluation counts memory exactly; here it is estimated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import gcd
from typing import Any

from cosmic.arithmetic import divisors
from cosmic.design.memory import Memory
from cosmic.design.model import Model, Recommender, Transformer, active_parameters, parameters
from cosmic.design.network import Network
from cosmic.design.workload import AXES

MAPPING = (*AXES, "ep", "weight_sharding", "recompute")
BUDGET = 0.75
"""Share of the capacity that the estimate may use; the rest is for what it does not count."""
WEIGHT_BYTES, GRADIENT_BYTES, OPTIMIZER_BYTES = 2, 2, 12
"""Per parameter in mixed precision: bf16 weight and gradient; fp32 master weight and two Adam moments."""
HIDDEN_BYTES = 18
"""Kept per token, hidden unit and layer beside the feed-forward network's inner activations, with fused attention.

With those, 2 x 2 bytes times ffn = 4 hidden, the 34 of Korthikanti et al., arXiv 2205.05198, equation 2.
"""
TOKENS_PER_STEP = 2**22
"""In a global batch when neither file nor catalog gives one: about what large language models are trained with."""


@dataclass(frozen=True, slots=True)
class Situation:
    """What a mapping is chosen for."""

    model: Model
    network: Network
    memory: Memory


def suggest(situation: Situation, workload: Mapping[str, Any], stated: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping (the keys of `MAPPING`) that should fit.

    *workload* says what is run, with the mapping that the system prefers; what the user *stated* is kept. If
    the preferred mapping does not fit, others are tried; if none does, the one that needs least is returned.
    """
    preferred = {key: workload[key] for key in MAPPING if key in workload}
    if "dp" not in stated and stated.keys() & set(AXES):
        preferred.pop("dp", None)  # takes what the other axes, now changed, leave of the NPUs
    best: dict[str, Any] = {axis: workload.get(axis, 1) for axis in AXES}
    least = float("inf")
    for given in (preferred, stated):
        for mapping in _candidates(situation, workload.get("task", "training"), given):
            needed = estimated_bytes(situation, {**workload, **mapping})
            if needed <= BUDGET * situation.memory.capacity_bytes:
                return mapping
            if needed < least:
                best, least = mapping, needed
    return best


def suggest_batch(workload: Mapping[str, Any]) -> int:
    """Return a global batch of the usual size, rounded up so that every replica gets an equal part."""
    whole: int = workload["dp"] * workload.get("micro_batch", 1)
    usual: int = workload.get("global_batch", -(-TOKENS_PER_STEP // workload["sequence"]))
    return -(-usual // whole) * whole


def _candidates(situation: Situation, task: str, given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield mappings that agree with what is *given*, in the order in which practitioners would try them.

    Optimizer states sharded and nothing recomputed, with as little model parallelism as possible; then with
    recomputation; then with weights sharded too, on top of tensor parallelism as wide as a node.
    """
    npus, model = situation.network.npus, situation.model
    inner = situation.network.dims[0].npus if situation.network.dims else 1
    heads, layers = (model.heads, model.layers) if isinstance(model, Transformer) else (1, 1)
    sequence = given.get("sp", 1)
    tensor = _either(given, "tp", divisors(gcd(heads, inner)))
    stages = _either(given, "pp", divisors(gcd(layers, npus)))
    meshes = [(tp, pp) for tp, pp in product(tensor, stages) if npus % (tp * pp * sequence) == 0]
    if "dp" in given:  # what it leaves of the NPUs is shared by the other axes
        meshes = [(tp, pp) for tp, pp in meshes if given["dp"] * tp * pp * sequence == npus]
    trained = task == "training"
    shardings = _either(given, "weight_sharding", ("zero1", "zero3") if trained else ("none",))
    recomputes = _either(given, "recompute", ("none", "full") if trained else ("none",))
    for sharding, recompute in product(shardings, recomputes):
        for tp, pp in sorted(meshes, key=_widest_first if sharding == "zero3" else _smallest_first):
            dp = npus // (tp * pp * sequence)
            for ep in _either(given, "ep", _expert_spreads(model, dp * sequence, inner)):
                mesh = {"dp": dp, "tp": tp, "sp": sequence, "pp": pp, "ep": ep}
                yield {**mesh, "weight_sharding": sharding, "recompute": recompute}


def _either(given: Mapping[str, Any], key: str, otherwise: tuple[Any, ...]) -> tuple[Any, ...]:
    return (given[key],) if key in given else otherwise


def _smallest_first(mesh: tuple[int, int]) -> tuple[int, int]:
    tp, pp = mesh
    return tp * pp, pp


def _widest_first(mesh: tuple[int, int]) -> tuple[int, int]:
    tp, pp = mesh
    return -tp, pp


def _expert_spreads(model: Model, replicas: int, inner: int) -> tuple[int, ...]:
    """Return the degrees of expert parallelism to try: within the innermost dimension, then up to eight of it."""
    if not (isinstance(model, Transformer) and model.experts):
        return (1,)
    most = gcd(model.experts.count, replicas)
    return tuple(sorted({gcd(most, inner), gcd(most, 8 * inner)}))


def estimated_bytes(situation: Situation, mapping: Mapping[str, Any]) -> float:
    """Return roughly what one NPU must keep under *mapping*, a workload with its degrees of parallelism."""
    model = situation.model
    shards: int = mapping["tp"] * mapping["pp"]
    count: float = parameters(model) / (mapping["dp"] if isinstance(model, Recommender) else 1)  # tables are spread
    count -= _routed_parameters(model) * (1 - 1 / mapping["ep"])
    if mapping.get("task", "training") != "training":
        return WEIGHT_BYTES * count / shards
    replicas: int = mapping["dp"] * mapping["sp"]
    split = {"none": 1, "zero1": 1, "zero2": 1, "zero3": replicas}[mapping["weight_sharding"]]
    optimizer_split = 1 if mapping["weight_sharding"] == "none" else replicas
    states = (WEIGHT_BYTES + GRADIENT_BYTES) * count / (shards * split)
    states += OPTIMIZER_BYTES * count / (shards * optimizer_split)
    return states + _activation_bytes(situation, mapping)


def _routed_parameters(model: Model) -> float:
    """Parameters of all routed experts: what activating only some of them leaves out, scaled up to all."""
    experts = model.experts if isinstance(model, Transformer) else None
    if experts is None or experts.count == experts.active:
        return 0.0
    return (parameters(model) - active_parameters(model)) * experts.count / (experts.count - experts.active)


def _activation_bytes(situation: Situation, mapping: Mapping[str, Any]) -> float:
    """Activations of the first pipeline stage: as many microbatches in flight as stages, so all layers once."""
    model = situation.model
    if isinstance(model, Recommender):
        return 0.0
    tokens: float = mapping["sequence"] * mapping.get("micro_batch", 1) / (mapping["tp"] * mapping["sp"])
    layers = model.layers + model.encoder_layers
    experts = model.experts
    width = model.ffn if experts is None else experts.active * experts.ffn + experts.shared_ffn
    layer = HIDDEN_BYTES * model.hidden + 2 * (2 + model.gated) * width
    logits = 0 if model.family == "vision" else 6 * model.vocab  # a bf16 and an fp32 copy
    kept = 2 * model.hidden * layers + layer if mapping["recompute"] == "full" else layer * layers
    return tokens * (kept + logits)
