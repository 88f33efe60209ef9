"""Collective algorithms, one file each; `cosmic.design.collective.algorithms` finds them here.

An all-reduce is a reduce-scatter and an all-gather, so that it takes their steps and traffic together. Symbols: p
members of a group, S bytes of payload, q the largest power of two up to p.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cosmic.design.collective import CollectiveKind


def passes(kind: CollectiveKind) -> int:
    """Return how often the data goes through the group: twice for an all-reduce."""
    return 2 if kind == "all_reduce" else 1


def all_but_own(p: Any) -> Any:
    """Return (p - 1) / p: the share of a buffer that comes from, or goes to, others."""
    return (p - 1) / p


def depth(p: Any) -> Any:
    """Return ceil(log2 p): the rounds in which news reaches p members.

    >>> [int(depth(p)) for p in (1, 2, 3, 8, 9)]
    [0, 1, 2, 3, 4]
    """
    return np.ceil(np.log2(np.maximum(p, 1)) - 1e-9)


def halving_distance(p: Any) -> Any:
    """Return the mean distance of partners 1, 2, 4, … apart that exchange a half, a quarter, … of the data.

    (log2 p / 2) / ((p - 1) / p)
    """
    share = np.maximum(all_but_own(np.maximum(p, 2)), 0.5)
    return np.maximum(1.0, np.log2(np.maximum(p, 2)) / 2 / share)
