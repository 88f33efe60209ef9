"""The best mapping of a design that serves a load: all meshes are evaluated, and requests are to be done soonest.

At a given load, less time of a request is more requests a second of the same clients, or the same requests sooner.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from cosmic.design.batch import Batch
from cosmic.design.point import DesignPoint
from cosmic.design.serving import PrefillPool
from cosmic.design.workload import AXES
from cosmic.evaluation import BatchOutcome, evaluate_batch
from cosmic.mapping.grid import values_of
from cosmic.mapping.searching import Found
from cosmic.mapping.serving import as_stated, meshes

CROWD = 256
"""Requests in flight for each accelerator that keep any deployment busy."""
DEPLOYED = (*AXES, "ep")
"""The fields of a mapping that serves a load."""


def search_deployment(base: DesignPoint, stated: Mapping[str, Any], free: Mapping[str, Any]) -> Found:
    """Return dp, tp, cp, pp and ep, and what is *free* of the prefill pool; what is *stated* is kept.

    That may be ``prefill.tp``, and with a stated dp ``prefill.replicas``: as many as take what dp leaves.
    """
    tried = _candidates(base, stated, free)
    if len(tried) == 1:
        return Found(tried[0], fits=True, searched=0)
    columns = {_path(key): np.array([each[key] for each in tried]) for key in tried[0]}
    found = evaluate_batch(Batch(base, columns))
    layer = base.serving
    assert layer is not None  # noqa: S101  only such designs come here
    took = found.columns["ttft_s"] + layer.load.mean("osl") * found.columns["tpot_s"]
    if found.feasible.any():
        best = int(np.nanargmin(np.where(found.feasible, took, np.nan)))
        return Found(tried[best], fits=True, searched=len(tried))
    return Found(tried[_nearest(base, columns, found)], fits=False, searched=len(tried))


def _nearest(base: DesignPoint, columns: Mapping[str, Any], found: BatchOutcome) -> int:
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
        return meshes(base, stated, base.network.npus)
    found: list[dict[str, int]] = []
    for tp in values_of(base, {}).get("tp", [1]) if "tp" in free else [pool.tp]:
        if "replicas" in free:
            found += _filled(base, stated, pool, tp)
            continue
        left = base.network.npus - _taken(pool, tp)
        if left < 1:
            continue
        found += [{**mesh, "prefill.tp": tp} for mesh in meshes(base, stated, left)]
    usual = {"prefill.tp": pool.tp, "prefill.replicas": pool.replicas}
    asked = {**dict.fromkeys(DEPLOYED), **{f"prefill.{name}": None for name in free}}
    found = found or [as_stated(base.network.npus, stated)]
    return [{key: value for key, value in {**usual, **each}.items() if key in asked} for each in found]


def _filled(base: DesignPoint, stated: Mapping[str, Any], pool: PrefillPool, tp: int) -> Iterator[dict[str, int]]:
    """Yield meshes of the stated dp, each with as many prefill instances as take all accelerators that it leaves."""
    npus, one = base.network.npus, pool.pp * pool.dp * tp
    for left in range(stated["dp"], npus, stated["dp"]):
        replicas, rest = divmod(npus - left, one)
        for mesh in meshes(base, stated, left) if rest == 0 else ():
            if mesh["dp"] * mesh["tp"] * mesh["cp"] * mesh["pp"] == left:
                yield {**mesh, "prefill.tp": tp, "prefill.replicas": replicas}


def _taken(pool: PrefillPool, tp: int) -> int:
    """Return the accelerators of the design's network that a prefill pool takes."""
    return 0 if pool.system is not None else pool.npus // pool.tp * tp
