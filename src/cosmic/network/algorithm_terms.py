"""Terms of collective algorithms: passes, depth, and the share of a topology's bandwidth that they use.

An all-reduce is a reduce-scatter and an all-gather: it has the steps and the traffic of both. Symbols: p
members of a group, S bytes of payload, q the largest power of two up to p.

Topologies and algorithms may be plugins, whose numbers are checked.
"""

from __future__ import annotations

from functools import lru_cache
from math import inf
from typing import Any

import numpy as np

from cosmic.base.errors import BackendError, CosmicError, describe_error
from cosmic.base.numeric import Numeric, log2
from cosmic.design.collective_layer import CollectiveKind, algorithms
from cosmic.design.network_layer import topologies

# ---- Collective algorithms, one file each; `cosmic.design.collective_layer.algorithms` finds them here


def passes_of(kind: CollectiveKind) -> int:
    """Return how many times the data passes through the group: 2 for an all-reduce, else 1."""
    return 2 if kind == "all_reduce" else 1


def all_but_own(p: Numeric) -> Numeric:
    """Return (p - 1) / p: the share of a buffer that comes from, or goes to, other members."""
    return (p - 1) / p


def tree_depth(p: Numeric) -> Numeric:
    """Return ceil(log2 p): the depth of a binary tree of p members.

    >>> [int(tree_depth(p)) for p in (1, 2, 3, 8, 9)]
    [0, 1, 2, 3, 4]
    """
    return np.ceil(log2(np.maximum(p, 1)) - 1e-9)


def halving_distance(p: Numeric) -> Numeric:
    """Return the mean distance over bytes, if partners 1, 2, 4, … apart exchange a half, a quarter, … of the data.

    (log2 p / 2) / ((p - 1) / p)
    """
    share = np.maximum(all_but_own(np.maximum(p, 2)), 0.5)
    return np.maximum(1.0, np.log2(np.maximum(p, 2)) / 2 / share)


# ---- What an algorithm can use of a topology's bandwidth; both may be plugins, whose numbers are checked

MOST_SHARE = 1 + 1e-9
"""Of bandwidth: all of it, but for rounding."""


def number_of(variant: Any, method: str, *arguments: Any) -> float:
    """Return the number that a topology or an algorithm gives, which may be a plugin: finite, and not negative."""
    try:
        number = float(getattr(variant, method)(*arguments))
    except CosmicError:
        raise
    except (Exception, SystemExit) as error:
        raise BackendError(f"{_variant_name(variant)}.{method} failed: {describe_error(error)}") from error
    if not 0 <= number < inf:
        raise BackendError(f"{_variant_name(variant)}.{method} gave {number:g}; it must be finite, and 0 or more")
    return number


def _variant_name(variant: Any) -> str:
    return str(getattr(variant, "__name__", type(variant).__name__))


@lru_cache(maxsize=65536)
def usable_share(topology: str, algorithm: str, npus: float, members: float, step: float) -> float:
    """Return the share of its injection bandwidth that an NPU uses in a group of *members*, *step* apart.

    >>> usable_share("fully_connected", "direct", 8, 8, 1), round(usable_share("fully_connected", "ring", 8, 8, 1), 3)
    (1.0, 0.286)
    """
    shape, pattern = topologies[topology], algorithms[algorithm]
    if members <= 1:
        return 1.0
    share = number_of(shape, "share", members, npus, step)
    if not 0 < share <= MOST_SHARE:
        raise BackendError(
            f"{_variant_name(shape)}.share gave {share:g}; it is a share of the bandwidth: above 0, up to 1"
        )
    if shape.switched:
        return share
    # Links that an algorithm can keep busy: one for each peer that it sends to at once, and no more than members.
    links = max(1.0, min(number_of(shape, "links", npus), members - 1))
    busy = min(1.0, number_of(pattern, "peers", members) / links)
    # A message that travels d links uses them d times: contention grows from 1 with the distance, as far as the
    # topology's mean distance is that of a ring.
    ring_hops = max(1.0, npus / 4)  # the mean distance in a ring, for which algorithms state theirs
    apart = (number_of(shape, "mean_hops", npus) - 1) / max(ring_hops - 1, 1e-9)
    contention = 1 + (number_of(pattern, "distance", members) - 1) * min(1.0, max(0.0, apart))
    return share * busy / contention
