"""Which experts tokens pick, what the fullest rank gets of them, and how often a cache of experts holds them.

Experts of a layer are not equally popular. With a Zipf exponent s, the i-th of E gets picks in proportion to i^-s. A
token picks k different ones, so that an expert gets each token once at most:

    π_i = min(1, λ i^-s)        λ such that the sum of all π_i is k

π_i, the share of the tokens that expert i gets, is k / E at s = 0. An expert with a capacity factor c takes c k / E of
them at most: what is beyond is dropped.

Ranks have E / ep experts each. By number, popular ones lie anywhere: the load of the fullest rank is its mean over
`ORDERS` orders. By popularity (DeepSeek's EPLB), the expert with most tokens for each of its copies gets one more, as
often as there are copies to give; then the heaviest copy goes to the emptiest rank that has room, and so on.

`routed_sizes` says what uneven routing makes of the sizes of a batch of designs.

Caches of experts. A cache holds some of a layer's experts; how often does it hold one that tokens pick? If T tokens of
a step pick independently, none of them picks expert i with probability (1 - π_i)^T. So a step uses it with probability

    u_i = 1 - (1 - π_i)^T

The cache is that of SE-MoE (Shen et al., arXiv 2205.10034): least frequently used. Every use counts 1; all counts are
multiplied by β each K steps, so that what was popular long ago is forgotten; an expert that was missed takes the place
of the cached one with the lowest count, if its own is higher by more than a threshold. `hit_rate` simulates that, from
a seed. No cache of C experts that keeps the same ones is hit more often than one of the C most popular,

    top_share = Σ_{i <= C} u_i / Σ_i u_i

which a cache of counts reaches but for chance, as long as popularity stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from heapq import heapify, heappop, heappush

import numpy as np
import numpy.typing as npt

from cosmic.base.errors import require
from cosmic.base.numeric import Numeric
from cosmic.design.design_batch import Batch, Combinations, has_gaps, none_to_nan
from cosmic.design.model_layer import Experts, Model, Transformer
from cosmic.design.workload_layer import Workload
from cosmic.workload.model_blocks import dimensions

Floats = npt.NDArray[np.float64]

ORDERS = 256
"""Orders of experts over which loads by number are averaged, the same for every skew."""
MOST_PLACES = 2**22
"""Experts in all of these orders together: of tens of thousands, few orders say as much."""
SEED = 0
MAX_COPY_COUNTS = 16
"""How many smaller numbers of redundant copies are tried beside the stated one (`_balanced_load`)."""


@lru_cache(maxsize=4096)
def popularity(count: int, active: int, skew: float) -> Floats:
    """Return the share of the tokens that each of *count* experts gets, the most popular first.

    >>> popularity(4, 2, 0.0).tolist(), popularity(4, 4, 2.0).tolist()
    ([0.5, 0.5, 0.5, 0.5], [1.0, 1.0, 1.0, 1.0])
    >>> popularity(4, 1, 1.0).round(2).tolist(), popularity(3, 2, 2.0).round(2).tolist()
    ([0.48, 0.24, 0.16, 0.12], [1.0, 0.69, 0.31])
    """
    popular = np.arange(1, count + 1, dtype=float) ** -skew
    shares = np.ones(count)
    # A token picks an expert at most once, so that a share is at most 1. Experts that reach 1 are fixed there, and the
    # others share the remaining picks in proportion to their popularity, until none is above 1.
    for first in range(active + 1):  # experts that every token picks
        rest = popular[first:]
        if not rest.size:
            break
        shares[first:] = rest * ((active - first) / rest.sum())
        if shares[first] <= 1:
            break
        shares[first] = 1.0
    return shares


@lru_cache(maxsize=65536)
def fullest_rank(key: str, ep: float, skew: float, capacity: float, redundant: float) -> tuple[float, float]:
    """Return the load of the fullest of *ep* ranks over an even one, and the share of picks that are dropped.

    *key* is that of `routing_key`; a *capacity* of 0 is none. Of 4 experts, one for each token, the first takes 0.48 of
    the tokens at a skew of 1: with a rank for each, 1.92 times an even share.

    >>> [round(number, 2) for number in fullest_rank(routing_key(Experts(count=4, active=1, ffn=1)), 4, 1.0, 0.0, 0)]
    [1.92, 0.0]
    """
    if not skew and not capacity:
        return 1.0, 0.0
    count, active, pads, packs = (int(field) for field in key.split())
    share = popularity(count, active, skew)
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
    load = _balanced_load(taken, ranks, int(redundant)) if packs else _load_by_number(taken, ranks)
    return max(load / mean, float(taken.sum()) / active), dropped


def _load_by_number(taken: Floats, ranks: int) -> float:
    """Return the mean load of the fullest rank, if popularity has nothing to do with the order of experts."""
    if len(taken) == ranks or len(taken) % ranks:
        return float(taken.max()) if len(taken) <= ranks else float(taken.sum()) / ranks
    tried = max(1, min(ORDERS, MOST_PLACES // len(taken)))
    # The same seed for all skews: differences between them are not noise of the orders.
    orders = np.argsort(np.random.default_rng(SEED).random((tried, len(taken))), axis=1)
    return float(taken[orders].reshape(tried, ranks, -1).sum(axis=2).max(axis=1).mean())


def _balanced_load(taken: Floats, ranks: int, redundant: int) -> float:
    """Return the load of the fullest rank, with the experts by number or packed, whichever is less.

    Not all copies need take tokens, so that fewer are tried, too: with more of them no rank has more.
    """
    even = float(taken.sum()) / ranks
    load = np.inf if len(taken) % ranks else _load_by_number(taken, ranks)
    fewest = -len(taken) % ranks  # so that all ranks hold as many
    for copies in (*range(fewest, redundant, ranks)[:MAX_COPY_COUNTS], redundant):
        if load <= even:
            break
        load = min(load, _packed_load(taken, ranks, copies))
    return load


def _packed_load(taken: Floats, ranks: int, redundant: int) -> float:
    """Return the load of the fullest rank where popular experts have copies, and copies are packed by load."""
    if (len(taken) + redundant) % ranks:
        return np.inf
    # A heap by load per copy: the expert with the most tokens for each of its copies gets the next one.
    copies = [(-float(share), 1, index) for index, share in enumerate(taken)]
    heapify(copies)
    for _ in range(redundant):
        load, count, expert = heappop(copies)
        heappush(copies, (load * count / (count + 1), count + 1, expert))
    loads = sorted((-load for load, count, _ in copies for _ in range(count)), reverse=True)
    room = len(loads) // ranks
    # Longest processing time first: the heaviest copy goes to the emptiest rank that still has room.
    emptiest = [(0.0, 0, rank) for rank in range(ranks)]
    fullest = 0.0
    for load in loads:
        rank_load, count, rank = heappop(emptiest)
        fullest = max(fullest, rank_load + load)
        if count + 1 < room:
            heappush(emptiest, (rank_load + load, count + 1, rank))
    return fullest


def routing_key(experts: Experts, pads: bool = False, packs: bool = False) -> str:
    """Return what `fullest_rank` needs to know of a model's *experts*, as text.

    >>> routing_key(Experts(count=8, active=2, ffn=1), packs=True)
    '8 2 0 1'
    """
    return f"{experts.count} {experts.active} {int(pads)} {int(packs)}"


def pads_experts(model: Model, workload: Workload) -> bool:
    """Return whether every expert computes the rows of its full capacity, used or not."""
    experts = model.experts if isinstance(model, Transformer) else None
    has_capacity = experts is not None and experts.capacity_factor is not None
    return has_capacity or workload.moe_pad_expert_input_to_capacity


Bools = npt.NDArray[np.bool_]
STEPS = 512
"""Steps that are simulated; the first half warms the cache up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LfuRule:
    """How a cache counts, and what it evicts."""

    decay: float = 0.9
    """β, by which counts are multiplied."""
    every: int = 16
    """K, steps between two times that they are."""
    threshold: float = 1.0
    """How much higher the count of a missed expert must be than the lowest in the cache."""

    def __post_init__(self) -> None:
        require(0 < self.decay <= 1, "decay", self.decay, "must be above 0, and at most 1")
        require(self.every >= 1, "every", self.every, "must be at least 1 step")
        require(self.threshold >= 0, "threshold", self.threshold, "must not be negative")


USUAL = LfuRule()


def used_probability(count: int, active: int, skew: float, tokens: float) -> Floats:
    """Return the probability that a step of *tokens* tokens uses each expert, the most popular first.

    >>> used_probability(4, 2, 0.0, 2).tolist()
    [0.75, 0.75, 0.75, 0.75]
    """
    probability: Floats = -np.expm1(
        max(tokens, 1.0) * np.log1p(-np.minimum(popularity(count, active, skew), 1 - 1e-16))
    )
    return probability


def top_share(count: int, active: int, skew: float, cached: int, tokens: float) -> float:
    """Return the hit rate of a cache of the *cached* most popular experts: what none that keeps its own can beat.

    One of 4 experts for each token, at a skew of 1: shares are 12/25, 6/25, 4/25, 3/25.

    >>> round(top_share(4, 1, 1.0, 2, 1), 3), top_share(4, 1, 0.0, 1, 1)
    (0.72, 0.25)
    """
    share = used_probability(count, active, skew, tokens)
    return float(share[:cached].sum() / share.sum())


def hit_rate(
    count: int,
    active: int,
    skew: float,
    cached: int,
    tokens: float,
    rule: LfuRule = USUAL,
    *,
    seed: int = 0,
    drift: float = 0.0,
) -> float:
    """Return the share of the experts in use that a cache of *cached* experts has, simulated from a *seed*.

    In a share *drift* of the steps two experts, drawn by chance, change places in popularity.
    """
    if cached <= 0 or cached >= count:
        return float(cached >= count)
    rng = np.random.default_rng(seed)
    share = rng.permutation(used_probability(count, active, skew, tokens))
    counts, is_cached = np.zeros(count), np.zeros(count, dtype=bool)
    is_cached[:cached] = True
    hits = asked = 0
    for step in range(STEPS):
        if drift and rng.random() < drift:
            first, second = rng.choice(count, 2, replace=False)
            # Popularity drifts: two experts change places, and the cache has to learn it from its counts.
            share[[first, second]] = share[[second, first]]
        used = rng.random(count) < share
        if step >= STEPS // 2:
            hits, asked = hits + int((used & is_cached).sum()), asked + int(used.sum())
        counts += used
        _admit_missed(counts, is_cached, used & ~is_cached, rule.threshold)
        if (step + 1) % rule.every == 0:
            counts *= rule.decay
    return hits / asked if asked else cached / count


def _admit_missed(counts: Floats, is_cached: Bools, missed: Bools, threshold: float) -> None:
    """Put missed experts in the place of those with the lowest counts, the highest counts first."""
    coming = np.flatnonzero(missed)
    coming = coming[np.argsort(-counts[coming], kind="stable")]
    leaving = np.flatnonzero(is_cached)
    leaving = leaving[np.argsort(counts[leaving], kind="stable")][: len(coming)]
    coming = coming[: len(leaving)]
    swap = counts[coming] > counts[leaving] + threshold
    is_cached[leaving[swap]], is_cached[coming[swap]] = False, True


@lru_cache(maxsize=65536)
def cached_hits(key: str, share: float, skew: float, tokens: float) -> tuple[float, float]:
    """Return the hit rate of a cache of a *share* of a layer's experts, and what it is at most.

    *key* is that of `routing_key`. If all experts are equally popular, both are the share itself.

    >>> cached_hits("64 1 0 0", 0.25, 0.0, 100.0)
    (0.25, 0.25)
    """
    if not skew:
        return share, share
    count, active, *_ = (int(field) for field in key.split())
    cached = round(share * count)
    best = top_share(count, active, skew, cached, tokens)
    return min(hit_rate(count, active, skew, cached, tokens), best), best  # by chance a short run may do better


def routed_sizes(batch: Batch) -> dict[str, Numeric]:
    """Return the experts of a layer, copies included, and the share of the tokens of one on the fullest rank."""
    model, workload = batch.base.model, batch.base.workload
    if not isinstance(model, Transformer) or model.experts is None:
        return {}
    copies = batch["workload.num_redundant_experts"]
    ranks = Combinations(batch["workload.ep"], batch["workload.moe_routing_skew"], capacity_of(batch), copies)
    how = (pads_experts(model, workload), workload.enable_eplb)
    load, _ = ranks.look_up(fullest_rank, routing_key(model.experts, *how))
    experts = model.experts.count + copies
    return {"experts": experts, "share": dimensions(model)["share"] * (model.experts.count / experts) * load}


def capacity_of(batch: Batch) -> Numeric:
    """Return the capacity factor of each design; 0 where none is stated."""
    capacity = batch["workload.moe_expert_capacity_factor"]
    if not has_gaps(capacity):
        return 0.0 if capacity is None else capacity
    numbers = none_to_nan(capacity)
    return np.where(np.isnan(numbers), 0.0, numbers)
