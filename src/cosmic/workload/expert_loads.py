"""What uneven routing does to the experts of a design: loads of ranks, dropped tokens, hits of a cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from cosmic.base.errors import SpecError, require
from cosmic.base.json_types import Ratio, Share, unit
from cosmic.design.design_batch import batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.design.model_layer import Transformer
from cosmic.workload.expert_routing import cached_hits, fullest_rank, routing_key
from cosmic.workload.mesh_sizes import sizes_of

SKEWS = (0.0, 0.25, 0.5, 1.0, 1.5)
CAPACITIES = (1.0, 1.25, 1.5, 2.0)
CACHED = (0.1, 0.25, 0.5)
MOST_SKEW, MOST_COPIES = 16.0, 65536
"""As a workload has them."""


@dataclass(frozen=True, slots=True)
class Copies:
    """The fullest rank where experts are packed by popularity."""

    redundant: int
    """Copies."""
    load: Ratio
    """Of the fullest rank, over an even one."""


@dataclass(frozen=True, slots=True)
class Capped:
    """The fullest rank where experts have a capacity."""

    factor: Ratio
    """Tokens that an expert takes at most, over an even share."""
    load: Ratio
    """Load of the fullest rank, over an even one."""
    dropped: Share
    """Share of the tokens' picks that experts drop."""


@dataclass(frozen=True, slots=True)
class Hits:
    """A cache of some experts."""

    cached: Share
    """Share of a layer's experts that it holds."""
    rate: Share
    """Share of the experts in use that it has: least frequently used, with counts that decay."""
    most: Share
    """The same of the most popular experts."""


@dataclass(frozen=True, slots=True)
class Skewed:
    """What one skew of routing does."""

    skew: Ratio
    """Zipf exponent: the i-th most popular expert is picked in proportion to 1 / i^skew."""
    load: Ratio
    """Of the fullest rank, over an even one, with experts in the order of their numbers."""
    packed: tuple[Copies, ...]
    """The same where experts are packed on ranks by popularity."""
    capped: tuple[Capped, ...]
    """The same where experts have a capacity."""
    hits: tuple[Hits, ...]
    """Hits of a cache of experts."""


@dataclass(frozen=True, slots=True)
class ExpertLoads:
    """Experts of a design, under several skews of routing."""

    experts: int
    """Routed experts of a layer."""
    active: int
    """Experts of a token."""
    ep: int
    """Ranks that the experts of a layer are spread over."""
    tokens: Annotated[float, unit("tokens")]
    """Of a microbatch, over all ranks whose tokens reach the same experts."""
    rows: tuple[Skewed, ...]
    """One for each skew of routing."""


def expert_loads(
    point: DesignPoint,
    skews: Sequence[float] = SKEWS,
    copies: Sequence[int] = (),
    capacities: Sequence[float] = CAPACITIES,
    cached: Sequence[float] = CACHED,
) -> ExpertLoads:
    """Return what each of some *skews* does to the experts of a design.

    *copies* are numbers of redundant experts; if none are given, one and four for each rank.
    """
    model, ep = point.model, point.workload.ep
    experts = model.experts if isinstance(model, Transformer) else None
    if experts is None:
        raise SpecError("model", model.name, "has no experts: choose an MoE model")
    require(experts.count % ep == 0, "ep", ep, f"must divide the {experts.count} experts")
    copy_counts = tuple(copies) or (0, ep, 4 * ep)
    for redundant in copy_counts:
        require(0 <= redundant <= MOST_COPIES, "copies", redundant, f"must be from 0 to {MOST_COPIES:,}")
        fits = (experts.count + redundant) % ep == 0
        require(fits, "copies", redundant, f"must be a multiple of ep {ep}, so that all ranks hold as many")
    for key, values, rule in (("skew", skews, 0.0), ("capacity", capacities, 1e-9), ("cache", cached, 0.0)):
        for value in values:
            require(value >= rule, key, value, "must be positive" if rule else "must not be negative")
    for value in skews:
        require(value <= MOST_SKEW, "skew", value, f"must be at most {MOST_SKEW:g}")
    for value in cached:
        require(value <= 1, "cache", value, "must be a share of the experts, at most 1")
    sizes = sizes_of(batch_of(point))
    tokens = float(sizes["tokens"] / sizes["edp"])
    plain, packs = routing_key(experts), routing_key(experts, packs=True)
    rows = tuple(
        Skewed(
            skew,
            fullest_rank(plain, ep, skew, 0.0, 0)[0],
            tuple(Copies(redundant, fullest_rank(packs, ep, skew, 0.0, redundant)[0]) for redundant in copy_counts),
            tuple(Capped(capacity, *fullest_rank(plain, ep, skew, capacity, 0)) for capacity in capacities),
            tuple(Hits(share, *cached_hits(plain, share, skew, tokens)) for share in cached),
        )
        for skew in skews
    )
    return ExpertLoads(experts.count, experts.active, ep, tokens, rows)
