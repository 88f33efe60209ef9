"""Predictions of published serving rows of one pool, in batches: their loads, and the price of their steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

import numpy as np

from cosmic.catalog.engines import load_engine
from cosmic.design.batch import Batch
from cosmic.serving.batching import Requests, clients_see
from cosmic.serving.price import StepPrice, with_collectives
from cosmic.validation.serving_reading import Measured, Served
from cosmic.validation.serving_recipes import Fitted, fitted

ROUNDS = 10
"""Requests that each client sends, one after the other."""
UNIFORM = sqrt(12)
"""Width of a uniform distribution over its standard deviation."""


@dataclass(frozen=True, slots=True)
class Group:
    """Rows that are predicted in one batch, and their places among all."""

    places: list[int]
    members: list[Served]
    price: StepPrice
    load: Requests


def predict_pool(served: Sequence[Served]) -> list[tuple[float, float]]:
    """Return the predicted TTFT and TPOT of each row."""
    found: dict[int, tuple[float, float]] = {}
    for group in groups(served):
        seen = clients_see(group.price, group.load)
        cold = column(group.members, "cold_s") / ROUNDS
        times = np.stack(np.broadcast_arrays(seen.mean_ttft_s + cold, seen.tpot_s), axis=1)
        found |= {
            place: (float(first), float(further)) for place, (first, further) in zip(group.places, times, strict=True)
        }
    return [found[place] for place in range(len(served))]


def groups(served: Sequence[Served]) -> list[Group]:
    """Return rows in groups that share engine, model, precision and machine."""
    places: dict[tuple[Any, ...], list[int]] = {}
    for place, each in enumerate(served):
        places.setdefault((*each.key, each.recipe.drafts, each.recipe.eager), []).append(place)
    return [_group(those, [served[place] for place in those]) for those in places.values()]


def _group(places: list[int], members: list[Served]) -> Group:
    first = members[0]
    usual = load_engine(first.engine)
    share = np.array([each.recipe.memory_fraction or usual.memory_fraction for each in members])
    engine = replace(usual, memory_fraction=share, cuda_graphs=not first.recipe.eager)  # type: ignore[arg-type]  # arrays
    design = first.design
    if first.recipe.kv_bits:
        design = design.changed({"workload.cache_dtype": "bf16" if first.recipe.kv_bits > 8 else "fp8"})
    degrees = {
        f"workload.{name}": np.array([getattr(each.design.workload, name) for each in members])
        for name in ("tp", "dp", "ep")
    }
    price = StepPrice(Batch(with_collectives(design, engine), degrees), engine, first.recipe.drafts)
    return Group(places, members, price, _load(members, usual.max_num_batched_tokens))


def _load(members: Sequence[Served], usual_tokens: int) -> Requests:
    effects = fitted()
    ranks = np.array([each.design.workload.dp for each in members], dtype=float)
    spread = column(members, "spread")
    return Requests(
        clients=np.maximum(column(members, "concurrency") / ranks, 1.0),
        isl=np.rint(column(members, "isl") * (1 - spread / 2)),
        osl=column(members, "osl") * (1 - spread / 2),
        osl_cv=spread / UNIFORM / (1 - spread / 2),
        tokens_per_step=effects.tokens_of(members[0].recipe.drafts) * np.ones(len(members)),
        max_tokens=np.array([each.recipe.chunk(int(each.isl)) or usual_tokens for each in members], dtype=float),
        seats=np.maximum(column(members, "seats") / ranks, 1.0),
        ranks=ranks,
        devices=np.array([each.design.workload.tp for each in members], dtype=float),
        mla=np.array([getattr(each.design.model, "mla", None) is not None for each in members], dtype=float),
        poll_steps=column(members, "polling"),
        polled_steps=effects.polled * column(members, "polling"),
        hold_steps=hold_steps(effects, column(members, "holding"), ranks),
        rounds=ROUNDS,
        in_step=np.array([each.prefill_first for each in members]),
    )


def hold_steps(effects: Fitted, holding: Any, ranks: Any) -> Any:
    """Return the steps for which recipes hold a prompt back: for others as long as they may, for other ranks less."""
    return np.where(ranks > 1, effects.held, 1.0) * holding


def column(members: Sequence[Measured], name: str) -> Any:
    """Return one field of all *members*."""
    return np.array([getattr(each, name) for each in members], dtype=float)
