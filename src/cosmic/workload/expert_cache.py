"""How often an expert that tokens pick is in a cache that holds some of a layer's experts.

A step of T tokens uses expert i with probability

    u_i = 1 - (1 - π_i)^T        π_i  share of the tokens that pick it (`cosmic.workload.routing`)

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

import numpy as np
import numpy.typing as npt

from cosmic.errors import require
from cosmic.workload.routing import Floats, picked

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


def used(count: int, active: int, skew: float, tokens: float) -> Floats:
    """Return the probability with which a step of so many *tokens* uses each expert, the most popular first.

    >>> used(4, 2, 0.0, 2).tolist()
    [0.75, 0.75, 0.75, 0.75]
    """
    found: Floats = -np.expm1(max(tokens, 1.0) * np.log1p(-np.minimum(picked(count, active, skew), 1 - 1e-16)))
    return found


def top_share(count: int, active: int, skew: float, cached: int, tokens: float) -> float:
    """Return the hit rate of a cache of the *cached* most popular experts: what none that keeps its own can beat.

    One of 4 experts for each token, at a skew of 1: shares are 12/25, 6/25, 4/25, 3/25.

    >>> round(top_share(4, 1, 1.0, 2, 1), 3), top_share(4, 1, 0.0, 1, 1)
    (0.72, 0.25)
    """
    share = used(count, active, skew, tokens)
    return float(share[:cached].sum() / share.sum())


def hit_rate(  # noqa: PLR0913  what routing and a cache have
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
    share = rng.permutation(used(count, active, skew, tokens))
    counts, held = np.zeros(count), np.zeros(count, dtype=bool)
    held[:cached] = True
    hits = asked = 0
    for step in range(STEPS):
        if drift and rng.random() < drift:
            one, other = rng.choice(count, 2, replace=False)
            share[[one, other]] = share[[other, one]]
        now = rng.random(count) < share
        if step >= STEPS // 2:
            hits, asked = hits + int((now & held).sum()), asked + int(now.sum())
        counts += now
        _admit(counts, held, now & ~held, rule.threshold)
        if (step + 1) % rule.every == 0:
            counts *= rule.decay
    return hits / asked if asked else cached / count


def _admit(counts: Floats, held: Bools, missed: Bools, threshold: float) -> None:
    """Put missed experts in the place of those with the lowest counts, the highest counts first."""
    coming = np.flatnonzero(missed)
    coming = coming[np.argsort(-counts[coming], kind="stable")]
    leaving = np.flatnonzero(held)
    leaving = leaving[np.argsort(counts[leaving], kind="stable")][: len(coming)]
    coming = coming[: len(leaving)]
    swap = counts[coming] > counts[leaving] + threshold
    held[leaving[swap]], held[coming[swap]] = False, True


@lru_cache(maxsize=65536)
def cached_hits(key: str, share: float, skew: float, tokens: float) -> tuple[float, float]:
    """Return the hit rate of a cache of a *share* of a layer's experts, and what it is at most.

    *key* is that of `cosmic.workload.routing.routing_key`. If all experts are as popular, it is the share itself.

    >>> cached_hits("64 1 0 0", 0.25, 0.0, 100.0)
    (0.25, 0.25)
    """
    if not skew:
        return share, share
    count, active, *_ = (int(each) for each in key.split())
    cached = round(share * count)
    most = top_share(count, active, skew, cached, tokens)
    return min(hit_rate(count, active, skew, cached, tokens), most), most  # by chance a short run may do better
