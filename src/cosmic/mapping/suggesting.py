"""A first mapping of a model onto a system, for designs that do not state one.

This is what practitioners try, in the order in which they try it, not a search: as little model parallelism as
lets everything fit, tensor parallelism first and inside the innermost dimension, pipeline stages next, then
recomputation, then sharded weights. Whether a mapping fits is asked of the same functions that evaluation asks.

Serving, latency counts as well. The smallest mapping that fits settles the batch; of the mappings that fit the same
batch, the one with the shortest step in closed form is taken.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import wraps
from itertools import groupby, product
from math import gcd
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from cosmic.arithmetic import divisors
from cosmic.caching import keep, recall
from cosmic.design.batch import Batch
from cosmic.design.model import Model, Recommender, Transformer, is_moe
from cosmic.design.point import DesignPoint
from cosmic.design.workload import AXES
from cosmic.mapping.choices import BUDGET, PASS_TOKENS, UNEVEN
from cosmic.simulation.analytic import step
from cosmic.step.memory import footprint
from cosmic.workload.checks import fits
from cosmic.workload.sizes import structural_paths

T = TypeVar("T")
MAPPING = (*AXES, "ep", "etp", "weight_sharding", "recompute")
SERVED = (*AXES, "ep", "global_batch", "micro_batch")
TOKENS_PER_STEP = 2**22
"""In a global batch when neither file nor catalog gives one: about what large language models are trained with."""
DECODED = 64
"""Sequences that a replica decodes at a time where no batch is given, if their KV cache fits: else half as many, …"""
SHORT = 1024
"""Tokens of a sample below which training passes several together."""
NODES_OF_EXPERTS = 8
"""Expert parallelism spans at most so many of the innermost groups: beyond them its all-to-alls dominate."""


def _kept(compute: Callable[..., T]) -> Callable[..., T]:
    """Keep what a suggestion gives for other processes: it follows from the design and from what is given."""

    @wraps(compute)
    def suggestion(base: DesignPoint, *given: Mapping[str, Any]) -> T:
        key = f"{compute.__name__} {base.identity} {[sorted(each.items()) for each in given]}"
        if content := recall("mappings", key):
            with suppress(ValueError):
                known: T = json.loads(content)
                return known
        found = compute(base, *given)
        with suppress(TypeError):  # what is no JSON
            keep("mappings", key, json.dumps(found).encode())
        return found

    return suggestion


@_kept
def suggest(base: DesignPoint, usual: Mapping[str, Any], stated: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping (the keys of `MAPPING`) that can run and fits, for the task of *base*.

    *usual* is the workload as catalog and user give it, with the mapping that the system prefers; what the user
    *stated* is kept. If the preferred mapping does not fit, others are tried; if none does, the one that needs
    least is returned. Of those that fit, dense models take the first; for experts no order is right on every network,
    and the one with the shortest step in closed form is taken.
    """
    if {"tp", "cp", "pp"} <= stated.keys():  # a mesh that is stated in full is kept as it is
        rest = base.network.npus // (stated["tp"] * stated["cp"] * stated["pp"])
        return {"dp": max(rest, 1), **{key: usual[key] for key in MAPPING if key in stated}}
    preferred = {key: usual[key] for key in MAPPING if key in usual}
    if "dp" not in stated and stated.keys() & set(AXES):
        preferred.pop("dp", None)  # takes what the other axes, now changed, leave of the NPUs
    best: dict[str, Any] = {axis: usual.get(axis, 1) for axis in AXES}
    least = np.inf
    for given in (preferred,) if preferred == stated else (preferred, dict(stated)):
        if is_moe(base.model) and (fastest := _fastest(base, given, usual)):
            return fastest
        for _, group in groupby(_candidates(base, given), key=itemgetter("weight_sharding")):  # each has its own plan
            candidates = list(group)
            needed = _needed(base, candidates, usual)
            suitable = np.flatnonzero(needed <= BUDGET)
            if len(suitable):
                return candidates[int(suitable[0])]
            if needed.min() < least:
                best, least = candidates[int(needed.argmin())], float(needed.min())
    return _without_usual(best) if "etp" in best else best


def _fastest(base: DesignPoint, given: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the mapping with the shortest step for each sequence among those that fit; None if none does."""
    candidates = list(_candidates(base, given))
    if not candidates:
        return None
    seconds = np.full(len(candidates), np.inf)
    batch = _batch(base, _sized_for_training(candidates, usual))
    fitting = np.flatnonzero(_share_of_memory(batch) <= BUDGET)
    if not len(fitting):
        return None
    for rows, part in batch.take(fitting, {}).groups(structural_paths(batch)):
        seconds[fitting[rows]] = step(part).seconds / part["workload.global_batch"]
    return _without_usual(candidates[int(seconds.argmin())])


def _without_usual(mapping: dict[str, Any]) -> dict[str, Any]:
    """Return a mapping without an etp that is the one it has if none is stated."""
    usual = _usual_etp(mapping["ep"], mapping["tp"], mapping["tp"] * mapping["cp"] * mapping["dp"])
    return {key: value for key, value in mapping.items() if key != "etp" or value != usual}


def suggest_virtual_stages(layers: int, stages: int, first: int | None = None, last: int | None = None) -> int:
    """Return the virtual stages of an interleaved schedule that states none: the fewest that share layers out evenly.

    *first* and *last* are layers that these stages state.

    >>> suggest_virtual_stages(80, 8), suggest_virtual_stages(96, 4), suggest_virtual_stages(61, 4)
    (2, 2, 2)
    >>> suggest_virtual_stages(24, 8), suggest_virtual_stages(8, 8)
    (3, 1)
    >>> suggest_virtual_stages(24, 4, last=3), suggest_virtual_stages(24, 4, first=4, last=4)
    (1, 2)
    """
    stated = [each for each in (first, last) if each is not None]
    if stated:
        rest, others = layers - sum(stated), max(1, stages - len(stated))
        whole = (gcd(rest // others, *stated) if rest % others == 0 else 1) or 1
        return next((each for each in divisors(whole) if each > 1), 1)
    each = [virtual for virtual in range(2, layers // stages + 1) if layers % (stages * virtual) == 0]
    return min(each, default=2 if layers >= 2 * stages and layers % stages else 1)


@_kept
def suggest_micro_batch(base: DesignPoint, workload: Mapping[str, Any]) -> int:
    """Return how many samples a microbatch of training has where none are stated: 1, or several short ones.

    Kernels of a few hundred tokens take less time than their launch. So samples below `SHORT` tokens are passed
    together, up to `PASS_TOKENS`, as far as they fit, and as every stage still has microbatches to work on.
    """
    sequence, per_replica = workload["sequence"], workload["global_batch"] // workload["dp"]
    if sequence >= SHORT or not base.compute.host_launch_s:
        return 1
    least = 4 * workload["pp"] if workload["pp"] > 1 else 1
    sizes = [size for size in (64, 32, 16, 8, 4, 2) if size * sequence <= PASS_TOKENS and per_replica % size == 0]
    sizes = [size for size in sizes if per_replica // size >= least]
    keys = [key for key in (*MAPPING, "global_batch") if key in workload]
    for size in sizes:
        candidate = {key: workload[key] for key in keys} | {"micro_batch": size}
        if _share_of_memory(_batch(base, [candidate]))[0] <= BUDGET:
            return size
    return 1


def suggest_batch(workload: Mapping[str, Any]) -> Any:
    """Return a global batch of the usual size, rounded up so that every replica gets an equal part.

    >>> suggest_batch({"dp": 3, "global_batch": 100, "sequence": 2048})
    102
    """
    whole = workload["dp"] * workload.get("micro_batch", 1)
    usual = workload.get("global_batch", -(-TOKENS_PER_STEP // workload["sequence"]))
    return -(-usual // whole) * whole


def _needed(base: DesignPoint, candidates: list[dict[str, Any]], usual: Mapping[str, Any]) -> npt.NDArray[np.float64]:
    """Return the share of the memory that each candidate needs; one that cannot run needs a million times that."""
    return _share_of_memory(_batch(base, _sized_for_training(candidates, usual)))


def _sized_for_training(candidates: list[dict[str, Any]], usual: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return candidates with a global batch that each of their replicas gets an equal part of."""
    replicas = np.array([each["dp"] for each in candidates])
    batches = np.broadcast_to(suggest_batch({**usual, "dp": replicas}), len(candidates))
    return [{**each, "global_batch": int(size)} for each, size in zip(candidates, batches, strict=True)]


def _batch(base: DesignPoint, candidates: list[dict[str, Any]]) -> Batch:
    return Batch(base, {f"workload.{key}": np.array([each[key] for each in candidates]) for key in candidates[0]})


def _share_of_memory(batch: Batch) -> npt.NDArray[np.float64]:
    """Return the share of the memory that designs need, a million times that where they cannot run."""
    runs = np.logical_and.reduce(list(fits(batch).values()))
    share = np.broadcast_to(footprint(batch).total / batch.base.memory.capacity_bytes, batch.size)
    return np.where(runs, share, 1e6 * share)


# ------------------------------------------------------------------------------------------------- serving


@_kept
def suggest_serving(base: DesignPoint, stated: Mapping[str, Any]) -> dict[str, int]:
    """Return mesh, global_batch and micro_batch for prefill or decode.

    What the user *stated* is kept. Where no batch is, the smallest mapping that fits gives it: so many sequences for
    each of its replicas. All mappings that fit that batch then do the same work, and the fastest is taken.
    """
    meshes = _meshes(base, stated)
    if len(meshes) == 1 and "global_batch" in stated:
        return _served(base, meshes[0], stated["global_batch"], stated)
    sized, needed = _sized(base, meshes, stated)
    if needed.min() > BUDGET:
        return sized[int(needed.argmin())]
    first = sized[int(np.flatnonzero(needed <= BUDGET)[0])]
    same, needed = _sized(base, meshes, {**stated, "global_batch": first["global_batch"]})
    fitting = [each for each, share in zip(same, needed, strict=True) if share <= BUDGET]
    seconds = np.broadcast_to(step(_batch(base, fitting)).seconds, len(fitting))
    return fitting[int(seconds.argmin())]


def _meshes(base: DesignPoint, stated: Mapping[str, Any]) -> list[dict[str, int]]:
    """Return the meshes to try, the smallest tp × pp first; one where it is stated in full."""
    if {"tp", "cp", "pp"} <= stated.keys():
        rest = base.network.npus // (stated["tp"] * stated["cp"] * stated["pp"])
        return [{"dp": max(rest, 1), "ep": 1} | {key: stated[key] for key in (*AXES, "ep") if key in stated}]
    found = [{key: each[key] for key in (*AXES, "ep")} for each in _candidates(base, stated)]
    return found or [{axis: stated.get(axis, 1) for axis in (*AXES, "ep")}]


def _sized(
    base: DesignPoint, meshes: list[dict[str, int]], stated: Mapping[str, Any]
) -> tuple[list[dict[str, int]], npt.NDArray[np.float64]]:
    """Return *meshes* with their batches, the largest that one of them has memory for, and what share they need."""
    sequences = _sequences(base, stated)
    while True:
        sized = [_served(base, mesh, stated.get("global_batch", sequences * mesh["dp"]), stated) for mesh in meshes]
        needed = _share_of_memory(_batch(base, sized))
        if needed.min() <= BUDGET or "global_batch" in stated or sequences <= stated.get("micro_batch", 1):
            return sized, needed
        sequences //= 2


def _sequences(base: DesignPoint, stated: Mapping[str, Any]) -> int:
    """Return the sequences of a replica where no batch is given; decoding, the most of them."""
    if isinstance(base.model, Recommender):
        return int(stated.get("micro_batch", PASS_TOKENS))
    whole = stated.get("micro_batch", 1)
    return int(whole * max(1, DECODED // whole)) if base.workload.task == "decode" else int(whole)


def _served(base: DesignPoint, mesh: dict[str, int], batch: int, stated: Mapping[str, Any]) -> dict[str, int]:
    """Return *mesh* with the batch and the microbatch that suits it."""
    of_replica, rest = divmod(batch, mesh["dp"])
    most = of_replica // mesh["pp"] if base.workload.task == "decode" else PASS_TOKENS // base.workload.sequence
    usual = 1 if rest else max((each for each in divisors(of_replica) if each <= most), default=1)
    return {**mesh, "global_batch": batch, "micro_batch": stated.get("micro_batch", usual)}


# ---------------------------------------------------------------------------------------------- candidates


def _candidates(base: DesignPoint, given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield mappings that agree with what is *given*, in the order in which practitioners would try them."""
    npus, model = base.network.npus, base.model
    inner = base.network.dims[0].npus if base.network.dims else 1
    heads, layers = (model.heads, model.layers) if isinstance(model, Transformer) else (1, 1)
    trained = base.workload.task == "training"
    tensor = (given["tp"],) if "tp" in given else divisors(gcd(heads, inner))
    stages = (given["pp"],) if "pp" in given else _stages(layers, npus)
    recomputes = (given["recompute"],) if "recompute" in given else ("none", "full") if trained else ("none",)
    shardings = _shardings(given, trained)
    for sharding, recompute in product(shardings, recomputes):
        order = _widest_first if sharding == "zero3" else _smallest_first
        for tp, pp in sorted(product(tensor, stages), key=order):
            for dp, cp in _replicas(npus, tp * pp, given):
                spread = tp * cp * dp if trained else cp * dp  # who serves splits experts over tp, as other layers
                for ep in (given["ep"],) if "ep" in given else _expert_spreads(model, spread, inner):
                    mesh = {"dp": dp, "tp": tp, "cp": cp, "pp": pp, "ep": ep}
                    if trained and is_moe(model):
                        mesh["etp"] = _expert_tensor(given, ep, tp, spread)
                    yield {**mesh, "weight_sharding": sharding, "recompute": recompute}


def _expert_tensor(given: Mapping[str, Any], ep: int, tp: int, ranks: int) -> int:
    """Return how many ranks split an expert: none where expert parallelism spans tp already."""
    if given.get("etp") is not None:
        return int(given["etp"])
    return 1 if ep % tp == 0 else _usual_etp(ep, tp, ranks)


def _usual_etp(ep: int, tp: int, ranks: int) -> int:
    """Return the etp of a workload that states none (`Workload.expert_tensor`)."""
    return gcd(tp, max(1, ranks // ep))


def _stages(layers: int, npus: int) -> tuple[int, ...]:
    """Return the numbers of stages that use every NPU and leave none of them much emptier than the others."""
    return tuple(pp for pp in divisors(npus) if pp <= layers and -(-layers // pp) * pp <= UNEVEN * layers)


def _shardings(given: Mapping[str, Any], trained: bool) -> tuple[str, ...]:
    if "weight_sharding" in given:
        return (given["weight_sharding"],)
    return ("zero1", "zero3") if trained else ("none",)


def _replicas(npus: int, split: int, given: Mapping[str, Any]) -> Iterator[tuple[int, int]]:
    """Yield (dp, cp) that use every NPU; a stated dp leaves the rest to the other axes."""
    cp = given.get("cp", 1)
    if npus % (split * cp) == 0 and given.get("dp", npus // (split * cp)) == npus // (split * cp):
        yield npus // (split * cp), cp


def _smallest_first(mesh: tuple[int, int]) -> tuple[int, int]:
    tp, pp = mesh
    return tp * pp, pp


def _widest_first(mesh: tuple[int, int]) -> tuple[int, int]:
    tp, pp = mesh
    return -tp, pp


def _expert_spreads(model: Model, replicas: int, inner: int) -> tuple[int, ...]:
    """Return the degrees of expert parallelism to try: within one innermost group first, then across some."""
    if not (isinstance(model, Transformer) and model.experts):
        return (1,)
    shared = gcd(model.experts.count, replicas)
    return tuple(ep for ep in divisors(shared) if gcd(shared, inner) <= ep <= NODES_OF_EXPERTS * inner)
