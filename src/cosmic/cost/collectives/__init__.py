"""Collective algorithms, one file each; `cosmic.design.collective.algorithms` finds them here.

An all-reduce is a reduce-scatter and an all-gather: it has the steps and the traffic of both. Symbols: p
members of a group, S bytes of payload, q the largest power of two up to p.
"""

from __future__ import annotations

import numpy as np

from cosmic.design.collective import CollectiveKind
from cosmic.numeric import Numeric, log2


def passes(kind: CollectiveKind) -> int:
    """Return how many times the data passes through the group: 2 for an all-reduce, else 1."""
    return 2 if kind == "all_reduce" else 1


def all_but_own(p: Numeric) -> Numeric:
    """Return (p - 1) / p: the share of a buffer that comes from, or goes to, other members."""
    return (p - 1) / p


def depth(p: Numeric) -> Numeric:
    """Return ceil(log2 p): the depth of a binary tree of p members.

    >>> [int(depth(p)) for p in (1, 2, 3, 8, 9)]
    [0, 1, 2, 3, 4]
    """
    return np.ceil(log2(np.maximum(p, 1)) - 1e-9)


def halving_distance(p: Numeric) -> Numeric:
    """Return the mean distance over bytes, if partners 1, 2, 4, … apart exchange a half, a quarter, … of the data.

    (log2 p / 2) / ((p - 1) / p)
    """
    share = np.maximum(all_but_own(np.maximum(p, 2)), 0.5)
    return np.maximum(1.0, np.log2(np.maximum(p, 2)) / 2 / share)
