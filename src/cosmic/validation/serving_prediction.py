"""Predictions of published serving rows: of one pool in batches, of two pools one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from cosmic import units
from cosmic.catalog.engines import load_engine
from cosmic.catalog.systems import dimensions
from cosmic.serving.disaggregated import (
    POINTS,
    Handover,
    Pools,
    PoolsSeen,
    PrefillPool,
    StepTable,
    closed_loop,
    handover_of,
    prefill_pool,
    transfer_s,
)
from cosmic.serving.price import StepPrice
from cosmic.validation.hardware import system_with
from cosmic.validation.serving_pool import column, predict_pool
from cosmic.validation.serving_reading import Served, ServedPools
from cosmic.validation.serving_recipes import fitted

ROUNDS = 10
"""Requests that each client sends."""


def predict(read: Sequence[Served | ServedPools]) -> list[tuple[float, float]]:
    """Return the predicted TTFT and TPOT of each row."""
    of_one = iter(predict_pool([each for each in read if isinstance(each, Served)]))
    of_two = iter(predict_pools([each for each in read if isinstance(each, ServedPools)]))
    return [next(of_one if isinstance(each, Served) else of_two) for each in read]


# ----------------------------------------------------------------------------------------------- two pools


@dataclass(frozen=True, slots=True)
class PricedPools:
    """What the pools of rows take, priced once: arrays over the rows."""

    prefill: PrefillPool
    """Without what engines take beside the kernels."""
    transfer_s: Any
    """A cache over the network."""
    step_s: StepTable


def predict_pools(served: Sequence[ServedPools]) -> list[tuple[float, float]]:
    """Return the predicted TTFT and TPOT of each row of two pools."""
    if not served:
        return []
    handovers = [handover_of(row.engine) for row in served]
    given = Handover(**{each.name: _together(handovers, each.name) for each in fields(Handover)})
    seen = see(served, price_pools(served), given)
    return [(float(first), float(further)) for first, further in zip(seen.ttft_s, seen.tpot_s, strict=True)]


def see(served: Sequence[ServedPools], priced: PricedPools, handover: Handover) -> PoolsSeen:
    """Return what clients of rows of two pools see; *handover* has arrays over the rows."""
    pools = Pools(
        prefill=priced.prefill.run_by(handover),
        handover_s=handover.handover_s + priced.transfer_s,
        step_s=priced.step_s,
        slots=column(served, "slots"),
    )
    tokens = np.array([fitted().tokens_of(each.recipe.drafts) for each in served])
    osl = column(served, "osl") * (1 - column(served, "spread") / 2)
    return closed_loop(pools, column(served, "concurrency"), osl, tokens, ROUNDS)


def price_pools(served: Sequence[ServedPools]) -> PricedPools:
    """Return what the pools of rows take; rows that share an instance are priced at once."""
    filled: dict[Any, tuple[PrefillPool, float]] = {}
    pools: list[PrefillPool] = []
    sent: list[float] = []
    for row in served:
        key = (row.engine, row.prefill, row.isl, row.spread, row.room)
        if key not in filled:
            filled[key] = _filled(row)
        pool, seconds = filled[key]
        pools.append(replace(pool, instances=row.split.prefill.count))
        sent.append(seconds)
    return PricedPools(
        PrefillPool(**{each.name: _together(pools, each.name) for each in fields(PrefillPool)}),
        np.array(sent),
        _decoded(served),
    )


def _filled(row: ServedPools) -> tuple[PrefillPool, float]:
    """Return what an instance takes that prefills, and a prompt's cache over the network."""
    price = StepPrice.of(row.prefill, load_engine(row.engine))
    isl = row.isl * (1 - row.spread / 2)
    seconds = transfer_s(price, isl, network_between(row.prefill.compute.accelerator or ""))
    return prefill_pool(price, isl, float(row.room), ranks=row.split.prefill.dp), float(np.ravel(seconds)[0])


def _decoded(served: Sequence[ServedPools]) -> StepTable:
    """Return the decode steps of rows."""
    highest = np.minimum(column(served, "concurrency"), column(served, "slots"))
    lowest = np.minimum(1.0, highest / 2)
    numbers = np.geomspace(lowest, highest, POINTS, axis=1)
    ranks = np.array([row.split.decode.count * row.split.decode.dp for row in served])
    context = (column(served, "isl") + column(served, "osl") / 2) * (1 - column(served, "spread") / 2)
    steps = np.empty_like(numbers)
    alike: dict[Any, list[int]] = {}
    for place, row in enumerate(served):
        alike.setdefault((row.engine, row.decode, row.recipe.drafts), []).append(place)
    for (engine, design, drafts), places in alike.items():
        requests = (numbers[places] / ranks[places, None]).ravel()
        found = StepPrice.of(design, load_engine(engine), drafts).decode_s(requests, np.repeat(context[places], POINTS))
        steps[places] = np.reshape(found, (len(places), POINTS))
    return StepTable(lowest, highest, steps)


def _together(parts: Sequence[Any], name: str) -> Any:
    """Return one number of all *parts*."""
    return np.array([float(np.ravel(getattr(each, name))[0]) for each in parts])


def network_between(accelerator: str) -> float:
    """Return the bytes a second that a device sends to another node.

    >>> network_between("gb200")
    50000000000.0
    """
    return float(units.parse(str(dimensions(system_with(accelerator))[-1]["bandwidth"])).value)
