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
from cosmic.search.mapping.mapping_search import Floats, FoundMapping, runs_and_share, step_seconds, values_of
from cosmic.simulate.metrics import BatchOutcome

# --------------------------------------------------------------------------------------
# The best mapping of a design that serves: all of them are evaluated, as they share all switches
# --------------------------------------------------------------------------------------

DECODED = 64
"""Sequences that a replica decodes at a time where no batch is given, if their KV cache fits: else half as many, …"""
CANNOT_RUN = 1e6
"""By how much a mapping that breaks a rule is behind those that need too much memory."""


def search_serving(base: DesignPoint, stated: Mapping[str, Any]) -> FoundMapping:
    """Return mesh, global_batch and micro_batch for prefill or decode; what is *stated* is kept."""
    tried = list_meshes(base, stated, base.network.npus)
    if len(tried) == 1 and "global_batch" in stated:
        return FoundMapping(_with_batch(base, tried[0], stated["global_batch"], stated), fits=True, searched=1)
    sized, needed = _size_batch(base, tried, stated)
    if needed.min() > BUDGET:
        place = int(needed.argmin())
        return FoundMapping(sized[place], fits=bool(needed[place] <= 1), searched=len(sized))
    first = sized[int(np.flatnonzero(needed <= BUDGET)[0])]
    same, needed = _size_batch(base, tried, {**stated, "global_batch": first["global_batch"]})
    fitting = [each for each, share in zip(same, needed, strict=True) if share <= 1]
    seconds = step_seconds(_batch(base, fitting))["seconds"]
    return FoundMapping(fitting[int(seconds.argmin())], fits=True, searched=len(same))


def list_meshes(base: DesignPoint, stated: Mapping[str, Any], npus: int) -> list[dict[str, int]]:
    """Return the meshes of *npus* to try, the smallest tp × pp first; one where it is stated in full."""
    values = {"tp": [1], "pp": [1], "ep": [1]} | values_of(base, stated)
    values |= {name: [stated[name]] for name in values if name in stated}
    cp = stated.get("cp", 1)
    found = []
    for tp, pp in sorted(product(values["tp"], values["pp"]), key=lambda each: (each[0] * each[1], each[1])):
        dp = npus // (tp * pp * cp)
        if npus != dp * tp * pp * cp or stated.get("dp", dp) != dp:
            continue
        spread = [ep for ep in values["ep"] if (dp * cp) % ep == 0 or "ep" in stated]
        found += [{"dp": dp, "tp": tp, "cp": cp, "pp": pp, "ep": ep} for ep in spread]
    return found or [stated_mesh(npus, stated)]


def stated_mesh(npus: int, stated: Mapping[str, Any]) -> dict[str, int]:
    """Return the one mesh that is stated, though it does not go with the accelerators."""
    mesh = {axis: stated.get(axis, 1) for axis in (*AXES, "ep")}
    rest = npus // (mesh["tp"] * mesh["cp"] * mesh["pp"])
    return {**mesh, "dp": stated.get("dp", max(rest, 1))}


def _size_batch(
    base: DesignPoint, tried: list[dict[str, int]], stated: Mapping[str, Any]
) -> tuple[list[dict[str, int]], Floats]:
    """Return the meshes *tried* with the largest batch that one of them has memory for, and what share they need."""
    sequences = _sequences(base, stated)
    while True:
        sized = [_with_batch(base, mesh, stated.get("global_batch", sequences * mesh["dp"]), stated) for mesh in tried]
        runs, share = runs_and_share(_batch(base, sized))
        needed = np.where(runs, share, CANNOT_RUN * np.maximum(share, 1.0))
        if needed.min() <= BUDGET or "global_batch" in stated or sequences <= stated.get("micro_batch", 1):
            return sized, needed
        sequences //= 2


def _batch(base: DesignPoint, candidates: list[dict[str, int]]) -> Batch:
    return Batch(
        base, {f"workload.{key}": np.array([candidate[key] for candidate in candidates]) for key in candidates[0]}
    )


def _sequences(base: DesignPoint, stated: Mapping[str, Any]) -> int:
    """Return the sequences of a replica where no batch is given; decoding, the most of them."""
    if isinstance(base.model, Recommender):
        return int(stated.get("micro_batch", PASS_TOKENS))
    whole = stated.get("micro_batch", 1)
    return int(whole * max(1, DECODED // whole)) if base.workload.task == "decode" else int(whole)


def _with_batch(base: DesignPoint, mesh: dict[str, int], batch: int, stated: Mapping[str, Any]) -> dict[str, int]:
    """Return *mesh* with the batch and the microbatch that suits it."""
    of_replica, rest = divmod(batch, mesh["dp"])
    most = of_replica // mesh["pp"] if base.workload.task == "decode" else PASS_TOKENS // base.workload.sequence
    usual = 1 if rest else max((divisor for divisor in divisors(of_replica) if divisor <= most), default=1)
    return {**mesh, "global_batch": batch, "micro_batch": stated.get("micro_batch", usual)}


# --------------------------------------------------------------------------------------
# The best mapping of a design that serves a load: all meshes are evaluated, and requests are to be done soonest
# --------------------------------------------------------------------------------------

CROWD = 256
"""Requests in flight for each accelerator that keep any deployment busy."""
DEPLOYED = (*AXES, "ep")
"""The fields of a mapping that serves a load."""


def search_deployment(base: DesignPoint, stated: Mapping[str, Any], free: Mapping[str, Any]) -> FoundMapping:
    """Return dp, tp, cp, pp and ep, and what is *free* of the prefill pool; what is *stated* is kept.

    That may be ``prefill.tp``, and with a stated dp ``prefill.replicas``: as many as take what dp leaves.
    """
    tried = _candidates(base, stated, free)
    if len(tried) == 1:
        return FoundMapping(tried[0], fits=True, searched=0)
    columns = {_path(key): np.array([each[key] for each in tried]) for key in tried[0]}
    found = evaluate_batch(Batch(base, columns))
    layer = base.serving
    assert layer is not None  # noqa: S101  only such designs come here
    took = found.columns["ttft_s"] + layer.load.mean("osl") * found.columns["tpot_s"]
    if found.feasible.any():
        best = int(np.nanargmin(np.where(found.feasible, took, np.nan)))
        return FoundMapping(tried[best], fits=True, searched=len(tried))
    return FoundMapping(tried[_nearest_mapping(base, columns, found)], fits=False, searched=len(tried))


def _nearest_mapping(base: DesignPoint, columns: Mapping[str, Any], found: BatchOutcome) -> int:
    """Return which of the mappings that cannot serve the load would serve most; of those without room, the nearest."""
    if base.serving is not None and base.serving.load.rate is not None:
        crowd = {"serving.load.rate": None, "serving.load.concurrency": CROWD * base.network.npus}
        most = evaluate_batch(Batch(base.changed(crowd), columns))
        if most.feasible.any():
            return int(np.nanargmax(np.where(most.feasible, most.columns["tokens_per_s"], np.nan)))
    return int(found.excess.argmin())


def _path(key: str) -> str:
    return f"serving.{key}" if key.startswith("prefill.") else f"workload.{key}"


def _candidates(base: DesignPoint, stated: Mapping[str, Any], free: Mapping[str, Any]) -> list[dict[str, int]]:
    """Return the meshes to try, each with the prefill pool's tp where that is free; smallest instances first."""
    layer = base.serving
    pool = layer.prefill if layer is not None and layer.disaggregated else None
    if pool is None:
        return list_meshes(base, stated, base.network.npus)
    found: list[dict[str, int]] = []
    for tp in values_of(base, {}).get("tp", [1]) if "tp" in free else [pool.tp]:
        if "replicas" in free:
            found += _filled_meshes(base, stated, pool, tp)
            continue
        left = base.network.npus - _pool_accelerators(pool, tp)
        if left < 1:
            continue
        found += [{**mesh, "prefill.tp": tp} for mesh in list_meshes(base, stated, left)]
    usual = {"prefill.tp": pool.tp, "prefill.replicas": pool.replicas}
    asked = {**dict.fromkeys(DEPLOYED), **{f"prefill.{name}": None for name in free}}
    found = found or [stated_mesh(base.network.npus, stated)]
    return [{key: value for key, value in {**usual, **each}.items() if key in asked} for each in found]


def _filled_meshes(
    base: DesignPoint, stated: Mapping[str, Any], pool: PrefillPool, tp: int
) -> Iterator[dict[str, int]]:
    """Yield meshes of the stated dp, each with as many prefill instances as take all accelerators that it leaves."""
    npus, one = base.network.npus, pool.pp * pool.dp * tp
    for left in range(stated["dp"], npus, stated["dp"]):
        replicas, rest = divmod(npus - left, one)
        for mesh in list_meshes(base, stated, left) if rest == 0 else ():
            if mesh["dp"] * mesh["tp"] * mesh["cp"] * mesh["pp"] == left:
                yield {**mesh, "prefill.tp": tp, "prefill.replicas": replicas}


def _pool_accelerators(pool: PrefillPool, tp: int) -> int:
    """Return the accelerators of the design's network that a prefill pool takes."""
    return 0 if pool.system is not None else pool.npus // pool.tp * tp
