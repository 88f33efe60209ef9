"""Measured serving: TTFT and TPOT of engines, as aiconfigurator publishes them.

A row names engine, model, system, precision, mapping, ISL, OSL and concurrency, and gives two times: its verdicts are
``id:ttft`` and ``id:tpot``. Most rows are SemiAnalysis' InferenceMAX (now InferenceX): lengths are drawn from 0.8 to 1
times the stated ISL and OSL, and ten requests are sent for each one in flight. The others state exact lengths.

    serving_deployments   a row as a deployment and its load: what its columns mean
    serving_recipes       how the engine was set, by documented practice

Rows of one pool are predicted in batches, rows of two pools one by one with what their pools take priced at once. The
package carries the middle one of every five rows, in the order of their ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from math import sqrt
from typing import Any

import numpy as np

from cosmic.accuracy.measured_rows import Row, Verdict
from cosmic.accuracy.rows.serving_deployments import Measured, ServedPool, ServedPools, read_serving_row
from cosmic.accuracy.rows.serving_recipes import Fitted, fitted_effects
from cosmic.base import units
from cosmic.design.design_batch import Batch
from cosmic.design.measured_hardware import find_system_with
from cosmic.design.serving_engine import load_engine
from cosmic.design.systems import system_dimensions
from cosmic.serving.continuous_batching import RankLoad, estimate_closed_loop
from cosmic.serving.disaggregated_serving import (
    POINTS,
    DecodeStepTable,
    Handover,
    PoolPair,
    PoolPairTimes,
    PrefillTimes,
    handover_of,
    price_prefill_pool,
    solve_pools_closed_loop,
    transfer_s,
)
from cosmic.serving.step_price import StepPrice, with_collectives

# --------------------------------------------------------------------------------------
# Predictions of published serving rows of one pool, in batches: their loads, and the price of their steps
# --------------------------------------------------------------------------------------

POOL_ROUNDS = 10
"""Requests that each client sends, one after the other."""
UNIFORM = sqrt(12)
"""Width of a uniform distribution over its standard deviation."""


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Rows that are predicted in one batch, and their places among all."""

    places: list[int]
    members: list[ServedPool]
    price: StepPrice
    load: RankLoad


def predict_pool(served: Sequence[ServedPool]) -> list[tuple[float, float]]:
    """Return the predicted TTFT and TPOT of each row."""
    times_by_row: dict[int, tuple[float, float]] = {}
    for group in group_rows(served):
        times_seen = estimate_closed_loop(group.price, group.load)
        cold = stack_column(group.members, "cold_s") / POOL_ROUNDS
        times = np.stack(np.broadcast_arrays(times_seen.mean_ttft_s + cold, times_seen.tpot_s), axis=1)
        times_by_row |= {
            row: (float(first), float(further)) for row, (first, further) in zip(group.places, times, strict=True)
        }
    return [times_by_row[index] for index in range(len(served))]


def group_rows(served: Sequence[ServedPool]) -> list[RowGroup]:
    """Return rows in groups that share engine, model, precision and machine."""
    rows_by_setting: dict[tuple[Any, ...], list[int]] = {}
    for index, pool in enumerate(served):
        rows_by_setting.setdefault((*pool.key, pool.recipe.drafts, pool.recipe.eager), []).append(index)
    return [_group(indices, [served[index] for index in indices]) for indices in rows_by_setting.values()]


def _group(indices: list[int], members: list[ServedPool]) -> RowGroup:
    first = members[0]
    usual = load_engine(first.engine)
    share = np.array([member.recipe.memory_fraction or usual.memory_fraction for member in members])
    engine = replace(usual, memory_fraction=share, cuda_graphs=not first.recipe.eager)  # type: ignore[arg-type]  # arrays
    design = first.design
    if first.recipe.kv_bits:
        design = design.changed({"workload.cache_dtype": "bf16" if first.recipe.kv_bits > 8 else "fp8"})
    degrees = {
        f"workload.{name}": np.array([getattr(member.design.workload, name) for member in members])
        for name in ("tp", "dp", "ep")
    }
    price = StepPrice(Batch(with_collectives(design, engine), degrees), engine, first.recipe.drafts)
    return RowGroup(indices, members, price, _load(members, usual.max_num_batched_tokens))


def _load(members: Sequence[ServedPool], usual_tokens: int) -> RankLoad:
    effects = fitted_effects()
    ranks = np.array([member.design.workload.dp for member in members], dtype=float)
    spread = stack_column(members, "spread")
    return RankLoad(
        clients=np.maximum(stack_column(members, "concurrency") / ranks, 1.0),
        isl=np.rint(stack_column(members, "isl") * (1 - spread / 2)),
        osl=stack_column(members, "osl") * (1 - spread / 2),
        osl_cv=spread / UNIFORM / (1 - spread / 2),
        tokens_per_step=effects.tokens_of(members[0].recipe.drafts) * np.ones(len(members)),
        max_tokens=np.array([member.recipe.chunk(int(member.isl)) or usual_tokens for member in members], dtype=float),
        seats=np.maximum(stack_column(members, "seats") / ranks, 1.0),
        ranks=ranks,
        devices=np.array([member.design.workload.tp for member in members], dtype=float),
        mla=np.array([getattr(member.design.model, "mla", None) is not None for member in members], dtype=float),
        poll_steps=stack_column(members, "polling"),
        polled_steps=effects.polled * stack_column(members, "polling"),
        hold_steps=hold_steps(effects, stack_column(members, "holding"), ranks),
        rounds=POOL_ROUNDS,
        in_step=np.array([member.prefill_first for member in members]),
    )


def hold_steps(effects: Fitted, holding: Any, ranks: Any) -> Any:
    """Return the steps for which recipes hold a prompt back: for others as long as they may, for other ranks less."""
    return np.where(ranks > 1, effects.held, 1.0) * holding


def stack_column(members: Sequence[Measured], name: str) -> Any:
    """Return one field of all *members*."""
    return np.array([getattr(member, name) for member in members], dtype=float)


# --------------------------------------------------------------------------------------
# Predictions of published serving rows: of one pool in batches, of two pools one by one
# --------------------------------------------------------------------------------------

HANDOVER_ROUNDS = 10
"""Requests that each client sends."""


def predict_rows(read: Sequence[ServedPool | ServedPools]) -> list[tuple[float, float]]:
    """Return the predicted TTFT and TPOT of each row."""
    of_one = iter(predict_pool([row for row in read if isinstance(row, ServedPool)]))
    of_two = iter(predict_pools([row for row in read if isinstance(row, ServedPools)]))
    return [next(of_one if isinstance(row, ServedPool) else of_two) for row in read]


# ----------------------------------------------------------------------------------------------- two pools


@dataclass(frozen=True, slots=True)
class PricedPools:
    """What the pools of rows take, priced once: arrays over the rows."""

    prefill: PrefillTimes
    """Without what engines take beside the kernels."""
    transfer_s: Any
    """A cache over the network."""
    step_s: DecodeStepTable


def predict_pools(served: Sequence[ServedPools]) -> list[tuple[float, float]]:
    """Return the predicted TTFT and TPOT of each row of two pools."""
    if not served:
        return []
    handovers = [handover_of(row.engine) for row in served]
    handover = Handover(**{field.name: _stack_parts(handovers, field.name) for field in fields(Handover)})
    pool_times = see_pools(served, price_pools(served), handover)
    return [(float(first), float(further)) for first, further in zip(pool_times.ttft_s, pool_times.tpot_s, strict=True)]


def see_pools(served: Sequence[ServedPools], priced: PricedPools, handover: Handover) -> PoolPairTimes:
    """Return what clients of rows of two pools see; *handover* has arrays over the rows."""
    pools = PoolPair(
        prefill=priced.prefill.run_by(handover),
        handover_s=handover.handover_s + priced.transfer_s,
        step_s=priced.step_s,
        slots=stack_column(served, "slots"),
    )
    tokens = np.array([fitted_effects().tokens_of(pools.recipe.drafts) for pools in served])
    osl = stack_column(served, "osl") * (1 - stack_column(served, "spread") / 2)
    return solve_pools_closed_loop(pools, stack_column(served, "concurrency"), osl, tokens, HANDOVER_ROUNDS)


def price_pools(served: Sequence[ServedPools]) -> PricedPools:
    """Return what the pools of rows take; rows that share an instance are priced at once."""
    filled: dict[Any, tuple[PrefillTimes, float]] = {}
    pools: list[PrefillTimes] = []
    sent: list[float] = []
    for row in served:
        key = (row.engine, row.prefill, row.isl, row.spread, row.room)
        if key not in filled:
            filled[key] = _price_prefill(row)
        pool, seconds = filled[key]
        pools.append(replace(pool, instances=row.split.prefill.count))
        sent.append(seconds)
    return PricedPools(
        PrefillTimes(**{field.name: _stack_parts(pools, field.name) for field in fields(PrefillTimes)}),
        np.array(sent),
        _price_decode(served),
    )


def _price_prefill(row: ServedPools) -> tuple[PrefillTimes, float]:
    """Return what an instance takes that prefills, and a prompt's cache over the network."""
    price = StepPrice.for_design(row.prefill, load_engine(row.engine))
    isl = row.isl * (1 - row.spread / 2)
    seconds = transfer_s(price, isl, network_between(row.prefill.compute.accelerator or ""))
    return price_prefill_pool(price, isl, float(row.room), ranks=row.split.prefill.dp), float(np.ravel(seconds)[0])


def _price_decode(served: Sequence[ServedPools]) -> DecodeStepTable:
    """Return the decode steps of rows."""
    highest = np.minimum(stack_column(served, "concurrency"), stack_column(served, "slots"))
    lowest = np.minimum(1.0, highest / 2)
    numbers = np.geomspace(lowest, highest, POINTS, axis=1)
    ranks = np.array([row.split.decode.count * row.split.decode.dp for row in served])
    context = (stack_column(served, "isl") + stack_column(served, "osl") / 2) * (1 - stack_column(served, "spread") / 2)
    steps = np.empty_like(numbers)
    rows_by_design: dict[Any, list[int]] = {}
    for index, row in enumerate(served):
        rows_by_design.setdefault((row.engine, row.decode, row.recipe.drafts), []).append(index)
    for (engine, design, drafts), indices in rows_by_design.items():
        requests = (numbers[indices] / ranks[indices, None]).ravel()
        decode_s = StepPrice.for_design(design, load_engine(engine), drafts).decode_s(
            requests, np.repeat(context[indices], POINTS)
        )
        steps[indices] = np.reshape(decode_s, (len(indices), POINTS))
    return DecodeStepTable(lowest, highest, steps)


def _stack_parts(parts: Sequence[Any], name: str) -> Any:
    """Return one number of all *parts*."""
    return np.array([float(np.ravel(getattr(part, name))[0]) for part in parts])


def network_between(accelerator: str) -> float:
    """Return the bytes a second that a device sends to another node.

    >>> network_between("gb200")
    50000000000.0
    """
    return float(units.parse_quantity(str(system_dimensions(find_system_with(accelerator))[-1]["bandwidth"])).value)


# --------------------------------------------------------------------------------------
# Measured serving: TTFT and TPOT of engines, as aiconfigurator publishes them
# --------------------------------------------------------------------------------------


def compare_rows(rows: Sequence[Row]) -> list[Verdict]:
    """Return two verdicts for each row: TTFT and TPOT."""
    verdicts: list[Verdict] = []
    read = [read_serving_row(row) for row in rows]
    times = iter(predict_rows([row for row in read if not isinstance(row, Verdict)]))
    for deployment in read:
        if isinstance(deployment, Verdict):
            verdicts += [
                replace(deployment, id=f"{deployment.id}:{name}", set=f"{deployment.set} {name}")
                for name in ("ttft", "tpot")
            ]
            continue
        ttft_s, tpot_s = next(times)
        verdicts.append(_verdict(deployment, "ttft", deployment.ttft_s, ttft_s))
        verdicts.append(_verdict(deployment, "tpot", deployment.tpot_s, tpot_s))
    return verdicts


def _verdict(pool: ServedPool | ServedPools, name: str, measured_s: float, predicted_s: float) -> Verdict:
    columns = ("backend", "model_path", "system", "isl", "osl", "concurrency")
    return Verdict(
        id=f"{pool.id}:{name}",
        set=f"{pool.set} {name}",
        row=pool.row,
        measured_s=measured_s,
        predicted_s=predicted_s,
        assumed=pool.assumed,
        group=(name, *(pool.row.get(key, "") for key in columns), str(pool.npus)),
        design=pool.shown,
    )
