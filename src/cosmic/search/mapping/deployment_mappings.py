"""The best mapping of a design that serves: one step of prefill or decode, or a load of requests.

All mappings of a step are evaluated, as they share all switches. Latency counts as well as throughput. So the smallest
mapping that fits settles the batch, and of all mappings that serve that batch the one with the shortest step is taken.

Under a load all meshes are evaluated, and requests are to be done soonest: less time of a request is more requests a
second of the same clients, or the same requests sooner.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np

from cosmic.base.arithmetic import divisors
from cosmic.design.design_batch import Batch
from cosmic.design.design_point import DesignPoint
from cosmic.design.model_layer import Recommender
from cosmic.design.serving_layer import PrefillPool
from cosmic.design.workload_layer import AXES
from cosmic.evaluation import evaluate_batch
from cosmic.search.mapping.mapping_choices import BUDGET, PASS_TOKENS
from cosmic.search.mapping.mapping_search import Floats, FoundMapping, field_values, runs_and_share, step_seconds
from cosmic.simulate.metrics import BatchOutcome

# ---- The best mapping of a design that serves: all of them are evaluated, as they share all switches

DECODE_SEQUENCES = 64
"""Sequences that a replica decodes at a time where no batch is given, if their KV cache fits: else half as many, …"""
INVALID_PENALTY = 1e6
"""By how much a mapping that breaks a rule is behind those that need too much memory."""


def search_serving(base: DesignPoint, fixed: Mapping[str, Any]) -> FoundMapping:
    """Return mesh, global_batch and micro_batch for prefill or decode; what is *fixed* is kept."""
    meshes = list_meshes(base, fixed, base.network.npus)
    if len(meshes) == 1 and "global_batch" in fixed:
        return FoundMapping(_add_batch(base, meshes[0], fixed["global_batch"], fixed), fits=True, searched=1)
    sized, needed = _size_batch(base, meshes, fixed)
    if needed.min() > BUDGET:
        index = int(needed.argmin())
        return FoundMapping(sized[index], fits=bool(needed[index] <= 1), searched=len(sized))
    smallest = sized[int(np.flatnonzero(needed <= BUDGET)[0])]
    resized, needed = _size_batch(base, meshes, {**fixed, "global_batch": smallest["global_batch"]})
    fitting = [mesh for mesh, share in zip(resized, needed, strict=True) if share <= 1]
    seconds = step_seconds(_batch(base, fitting))["seconds"]
    return FoundMapping(fitting[int(seconds.argmin())], fits=True, searched=len(resized))


def list_meshes(base: DesignPoint, fixed: Mapping[str, Any], npus: int) -> list[dict[str, int]]:
    """Return the meshes of *npus* to try, the smallest tp × pp first; one where it is stated in full."""
    values = {"tp": [1], "pp": [1], "ep": [1]} | field_values(base, fixed)
    values |= {name: [fixed[name]] for name in values if name in fixed}
    cp = fixed.get("cp", 1)
    meshes = []
    for tp, pp in sorted(product(values["tp"], values["pp"]), key=lambda split: (split[0] * split[1], split[1])):
        dp = npus // (tp * pp * cp)
        if npus != dp * tp * pp * cp or fixed.get("dp", dp) != dp:
            continue
        expert_splits = [ep for ep in values["ep"] if (dp * cp) % ep == 0 or "ep" in fixed]
        meshes += [{"dp": dp, "tp": tp, "cp": cp, "pp": pp, "ep": ep} for ep in expert_splits]
    return meshes or [stated_mesh(npus, fixed)]


def stated_mesh(npus: int, fixed: Mapping[str, Any]) -> dict[str, int]:
    """Return the one mesh that is stated, though it does not go with the accelerators."""
    mesh = {axis: fixed.get(axis, 1) for axis in (*AXES, "ep")}
    replicas = npus // (mesh["tp"] * mesh["cp"] * mesh["pp"])
    return {**mesh, "dp": fixed.get("dp", max(replicas, 1))}


def _size_batch(
    base: DesignPoint, meshes: list[dict[str, int]], fixed: Mapping[str, Any]
) -> tuple[list[dict[str, int]], Floats]:
    """Return the meshes *meshes* with the largest batch that one of them has memory for, and what share they need."""
    sequences = _replica_sequences(base, fixed)
    while True:
        sized = [_add_batch(base, mesh, fixed.get("global_batch", sequences * mesh["dp"]), fixed) for mesh in meshes]
        runs, share = runs_and_share(_batch(base, sized))
        needed = np.where(runs, share, INVALID_PENALTY * np.maximum(share, 1.0))
        if needed.min() <= BUDGET or "global_batch" in fixed or sequences <= fixed.get("micro_batch", 1):
            return sized, needed
        sequences //= 2


def _batch(base: DesignPoint, candidates: list[dict[str, int]]) -> Batch:
    return Batch(
        base, {f"workload.{key}": np.array([candidate[key] for candidate in candidates]) for key in candidates[0]}
    )


def _replica_sequences(base: DesignPoint, fixed: Mapping[str, Any]) -> int:
    """Return the sequences of a replica where no batch is given; decoding, the most of them."""
    if isinstance(base.model, Recommender):
        return int(fixed.get("micro_batch", PASS_TOKENS))
    micro_batch = fixed.get("micro_batch", 1)
    return (
        int(micro_batch * max(1, DECODE_SEQUENCES // micro_batch))
        if base.workload.task == "decode"
        else int(micro_batch)
    )


def _add_batch(base: DesignPoint, mesh: dict[str, int], batch: int, fixed: Mapping[str, Any]) -> dict[str, int]:
    """Return *mesh* with the batch and the microbatch that suits it."""
    of_replica, remainder = divmod(batch, mesh["dp"])
    most = of_replica // mesh["pp"] if base.workload.task == "decode" else PASS_TOKENS // base.workload.sequence
    usual = 1 if remainder else max((divisor for divisor in divisors(of_replica) if divisor <= most), default=1)
    return {**mesh, "global_batch": batch, "micro_batch": fixed.get("micro_batch", usual)}


# ---- The best mapping of a design that serves a load: all meshes are evaluated, and requests are to be done soonest

BUSY_REQUESTS_PER_NPU = 256
"""Requests in flight for each accelerator that keep any deployment busy."""
DEPLOYMENT_FIELDS = (*AXES, "ep")
"""The fields of a mapping that serves a load."""


def search_deployment(base: DesignPoint, fixed: Mapping[str, Any], free: Mapping[str, Any]) -> FoundMapping:
    """Return dp, tp, cp, pp and ep, and what is *free* of the prefill pool; what is *fixed* is kept.

    That may be ``prefill.tp``, and with a stated dp ``prefill.replicas``: as many as take what dp leaves.
    """
    candidates = _list_candidates(base, fixed, free)
    if len(candidates) == 1:
        return FoundMapping(candidates[0], fits=True, searched=0)
    columns = {
        (f"serving.{key}" if key.startswith("prefill.") else f"workload.{key}"): np.array(
            [candidate[key] for candidate in candidates]
        )
        for key in candidates[0]
    }
    outcome = evaluate_batch(Batch(base, columns))
    layer = base.serving
    assert layer is not None  # noqa: S101  only such designs come here
    took = outcome.columns["ttft_s"] + layer.load.mean("osl") * outcome.columns["tpot_s"]
    if outcome.feasible.any():
        best = int(np.nanargmin(np.where(outcome.feasible, took, np.nan)))
        return FoundMapping(candidates[best], fits=True, searched=len(candidates))
    return FoundMapping(candidates[_nearest_mapping(base, columns, outcome)], fits=False, searched=len(candidates))


def _nearest_mapping(base: DesignPoint, columns: Mapping[str, Any], outcome: BatchOutcome) -> int:
    """Return which of the mappings that cannot serve the load would serve most; of those without room, the nearest."""
    if base.serving is not None and base.serving.load.rate is not None:
        crowd = {"serving.load.rate": None, "serving.load.concurrency": BUSY_REQUESTS_PER_NPU * base.network.npus}
        most = evaluate_batch(Batch(base.changed(crowd), columns))
        if most.feasible.any():
            return int(np.nanargmax(np.where(most.feasible, most.columns["tokens_per_s"], np.nan)))
    return int(outcome.excess.argmin())


def _list_candidates(base: DesignPoint, fixed: Mapping[str, Any], free: Mapping[str, Any]) -> list[dict[str, int]]:
    """Return the meshes to try, each with the prefill pool's tp where that is free; smallest instances first."""
    layer = base.serving
    pool = layer.prefill if layer is not None and layer.disaggregated else None
    if pool is None:
        return list_meshes(base, fixed, base.network.npus)
    meshes: list[dict[str, int]] = []
    for tp in field_values(base, {}).get("tp", [1]) if "tp" in free else [pool.tp]:
        if "replicas" in free:
            meshes += _filled_meshes(base, fixed, pool, tp)
            continue
        decode_npus = base.network.npus - (0 if pool.system is not None else pool.npus // pool.tp * tp)
        if decode_npus < 1:
            continue
        meshes += [{**mesh, "prefill.tp": tp} for mesh in list_meshes(base, fixed, decode_npus)]
    usual = {"prefill.tp": pool.tp, "prefill.replicas": pool.replicas}
    wanted_keys = {**dict.fromkeys(DEPLOYMENT_FIELDS), **{f"prefill.{name}": None for name in free}}
    meshes = meshes or [stated_mesh(base.network.npus, fixed)]
    return [{key: value for key, value in {**usual, **entry}.items() if key in wanted_keys} for entry in meshes]


def _filled_meshes(base: DesignPoint, fixed: Mapping[str, Any], pool: PrefillPool, tp: int) -> Iterator[dict[str, int]]:
    """Yield meshes of the stated dp, each with as many prefill instances as take all accelerators that it leaves."""
    npus, instance_npus = base.network.npus, pool.pp * pool.dp * tp
    for decode_npus in range(fixed["dp"], npus, fixed["dp"]):
        replicas, remainder = divmod(npus - decode_npus, instance_npus)
        for mesh in list_meshes(base, fixed, decode_npus) if remainder == 0 else ():
            if mesh["dp"] * mesh["tp"] * mesh["cp"] * mesh["pp"] == decode_npus:
                yield {**mesh, "prefill.tp": tp, "prefill.replicas": replicas}
