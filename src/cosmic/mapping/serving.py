"""The best mapping of a design that serves: all of them are evaluated, as they share all switches.

Latency counts as well as throughput. So the smallest mapping that fits settles the batch, and of all mappings that
serve that batch the one with the shortest step is taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np

from cosmic.arithmetic import divisors
from cosmic.design.batch import Batch
from cosmic.design.model import Recommender
from cosmic.design.point import DesignPoint
from cosmic.design.workload import AXES
from cosmic.mapping.choices import BUDGET, PASS_TOKENS
from cosmic.mapping.grid import values_of
from cosmic.mapping.searching import Floats, Found, runs_and_share, step_of

DECODED = 64
"""Sequences that a replica decodes at a time where no batch is given, if their KV cache fits: else half as many, …"""
CANNOT_RUN = 1e6
"""By how much a mapping that breaks a rule is behind those that need too much memory."""


def search_serving(base: DesignPoint, stated: Mapping[str, Any]) -> Found:
    """Return mesh, global_batch and micro_batch for prefill or decode; what is *stated* is kept."""
    tried = meshes(base, stated, base.network.npus)
    if len(tried) == 1 and "global_batch" in stated:
        return Found(_served(base, tried[0], stated["global_batch"], stated), fits=True, searched=1)
    sized, needed = _sized(base, tried, stated)
    if needed.min() > BUDGET:
        place = int(needed.argmin())
        return Found(sized[place], fits=bool(needed[place] <= 1), searched=len(sized))
    first = sized[int(np.flatnonzero(needed <= BUDGET)[0])]
    same, needed = _sized(base, tried, {**stated, "global_batch": first["global_batch"]})
    fitting = [each for each, share in zip(same, needed, strict=True) if share <= 1]
    seconds = step_of(_batch(base, fitting))["seconds"]
    return Found(fitting[int(seconds.argmin())], fits=True, searched=len(same))


def meshes(base: DesignPoint, stated: Mapping[str, Any], npus: int) -> list[dict[str, int]]:
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
    return found or [as_stated(npus, stated)]


def as_stated(npus: int, stated: Mapping[str, Any]) -> dict[str, int]:
    """Return the one mesh that is stated, though it does not go with the accelerators."""
    mesh = {axis: stated.get(axis, 1) for axis in (*AXES, "ep")}
    rest = npus // (mesh["tp"] * mesh["cp"] * mesh["pp"])
    return {**mesh, "dp": stated.get("dp", max(rest, 1))}


def _sized(
    base: DesignPoint, tried: list[dict[str, int]], stated: Mapping[str, Any]
) -> tuple[list[dict[str, int]], Floats]:
    """Return the meshes *tried* with the largest batch that one of them has memory for, and what share they need."""
    sequences = _sequences(base, stated)
    while True:
        sized = [_served(base, mesh, stated.get("global_batch", sequences * mesh["dp"]), stated) for mesh in tried]
        runs, share = runs_and_share(_batch(base, sized))
        needed = np.where(runs, share, CANNOT_RUN * np.maximum(share, 1.0))
        if needed.min() <= BUDGET or "global_batch" in stated or sequences <= stated.get("micro_batch", 1):
            return sized, needed
        sequences //= 2


def _batch(base: DesignPoint, candidates: list[dict[str, int]]) -> Batch:
    return Batch(base, {f"workload.{key}": np.array([each[key] for each in candidates]) for key in candidates[0]})


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
