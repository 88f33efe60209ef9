"""Which experts tokens pick, and what the fullest rank gets of them.

Experts of a layer are not equally popular. With a Zipf exponent s, the i-th of E gets picks in proportion to i^-s. A
token picks k different ones, so that an expert gets each token once at most:

    π_i = min(1, λ i^-s)        λ such that the sum of all π_i is k

π_i, the share of the tokens that expert i gets, is k / E at s = 0. An expert with a capacity factor c takes c k / E of
them at most: what is beyond is dropped.

Ranks have E / ep experts each. By number, popular ones lie anywhere: the load of the fullest rank is its mean over
`ORDERS` orders. By popularity (DeepSeek's EPLB), the expert with most tokens for each of its copies gets one more, as
often as there are copies to give; then the heaviest copy goes to the emptiest rank that has room, and so on.
"""

from __future__ import annotations

from functools import lru_cache
from heapq import heapify, heappop, heappush

import numpy as np
import numpy.typing as npt

from cosmic.design.model import Model, Transformer
from cosmic.design.model_parts import Experts
from cosmic.design.workload import Workload

Floats = npt.NDArray[np.float64]

ORDERS = 256
"""Orders of experts over which loads by number are averaged, the same for every skew."""
MOST_PLACES = 2**22
"""Experts in all of these orders together: of tens of thousands, few orders say as much."""
SEED = 0
TRIED = 16
"""Numbers of copies below those that are asked for, which are tried."""


@lru_cache(maxsize=4096)
def picked(count: int, active: int, skew: float) -> Floats:
    """Return the share of the tokens that each of *count* experts gets, the most popular first.

    >>> picked(4, 2, 0.0).tolist(), picked(4, 4, 2.0).tolist()
    ([0.5, 0.5, 0.5, 0.5], [1.0, 1.0, 1.0, 1.0])
    >>> picked(4, 1, 1.0).round(2).tolist(), picked(3, 2, 2.0).round(2).tolist()
    ([0.48, 0.24, 0.16, 0.12], [1.0, 0.69, 0.31])
    """
    popular = np.arange(1, count + 1, dtype=float) ** -skew
    found = np.ones(count)
    for every in range(active + 1):  # experts that every token picks
        rest = popular[every:]
        if not rest.size:
            break
        found[every:] = rest * ((active - every) / rest.sum())
        if found[every] <= 1:
            break
        found[every] = 1.0
    return found


@lru_cache(maxsize=65536)
def fullest_rank(key: str, ep: float, skew: float, capacity: float, redundant: float) -> tuple[float, float]:
    """Return the load of the fullest of *ep* ranks over an even one, and the share of picks that are dropped.

    *key* is that of `routing_key`; a *capacity* of 0 is none. Of 4 experts, one for each token, the first takes 0.48 of
    the tokens at a skew of 1: with a rank for each, 1.92 times an even share.

    >>> [round(each, 2) for each in fullest_rank(routing_key(Experts(count=4, active=1, ffn=1)), 4, 1.0, 0.0, 0)]
    [1.92, 0.0]
    """
    if not skew and not capacity:
        return 1.0, 0.0
    count, active, pads, packs = (int(each) for each in key.split())
    share = picked(count, active, skew)
    even = active / count
    if not pads and capacity * even >= share.max():
        capacity = 0.0  # nothing is dropped, to the last bit
    taken = np.minimum(share, capacity * even) if capacity else share
    dropped = max(0.0, 1.0 - float(taken.sum()) / active) if capacity else 0.0
    if pads and capacity:
        return capacity, dropped
    ranks = int(ep)
    if pads or ranks == 1 or not (skew or capacity):
        return (float(taken.sum()) / active if capacity else 1.0), dropped
    mean = active / ranks
    load = _shared_out(taken, ranks, int(redundant)) if packs else _by_number(taken, ranks)
    return max(load / mean, float(taken.sum()) / active), dropped


def _by_number(taken: Floats, ranks: int) -> float:
    """Return the mean load of the fullest rank, if popularity has nothing to do with the order of experts."""
    if len(taken) == ranks or len(taken) % ranks:
        return float(taken.max()) if len(taken) <= ranks else float(taken.sum()) / ranks
    tried = max(1, min(ORDERS, MOST_PLACES // len(taken)))
    orders = np.argsort(np.random.default_rng(SEED).random((tried, len(taken))), axis=1)
    return float(taken[orders].reshape(tried, ranks, -1).sum(axis=2).max(axis=1).mean())


def _shared_out(taken: Floats, ranks: int, redundant: int) -> float:
    """Return the load of the fullest rank, with the experts by number or packed, whichever is less.

    Not all copies need take tokens, so that fewer are tried, too: with more of them no rank has more.
    """
    even = float(taken.sum()) / ranks
    load = np.inf if len(taken) % ranks else _by_number(taken, ranks)
    first = -len(taken) % ranks  # so that all ranks hold as many
    for copies in (*range(first, redundant, ranks)[:TRIED], redundant):
        if load <= even:
            break
        load = min(load, _packed(taken, ranks, copies))
    return load


def _packed(taken: Floats, ranks: int, redundant: int) -> float:
    """Return the load of the fullest rank where popular experts have copies, and copies are packed by load."""
    if (len(taken) + redundant) % ranks:
        return np.inf
    copies = [(-float(each), 1, place) for place, each in enumerate(taken)]
    heapify(copies)
    for _ in range(redundant):
        load, count, place = heappop(copies)
        heappush(copies, (load * count / (count + 1), count + 1, place))
    loads = sorted((-load for load, count, _ in copies for _ in range(count)), reverse=True)
    room = len(loads) // ranks
    emptiest = [(0.0, 0, rank) for rank in range(ranks)]
    full = 0.0
    for load in loads:
        held, count, rank = heappop(emptiest)
        full = max(full, held + load)
        if count + 1 < room:
            heappush(emptiest, (held + load, count + 1, rank))
    return full


def routing_key(experts: Experts, pads: bool = False, packs: bool = False) -> str:
    """Return what `fullest_rank` needs to know of a model's *experts*, as text.

    >>> routing_key(Experts(count=8, active=2, ffn=1), packs=True)
    '8 2 0 1'
    """
    return f"{experts.count} {experts.active} {int(pads)} {int(packs)}"


def pads_experts(model: Model, workload: Workload) -> bool:
    """Return whether every expert computes as many rows: those of its capacity."""
    experts = model.experts if isinstance(model, Transformer) else None
    stated = experts is not None and experts.capacity_factor is not None
    return stated or workload.moe_pad_expert_input_to_capacity
