"""Auto: what a library picks by kind and size: rings, trees, the switches' own adders, or plain sends."""

from __future__ import annotations

from typing import Any

import numpy as np

from cosmic.cost.collectives import all_but_own, passes
from cosmic.design.collective import CollectiveKind, algorithms


@algorithms.register("auto")
class Auto:
    """Rings within a host, trees across hosts or reductions in the switch where these are faster (as NCCL does).

    An all-to-all goes straight to everybody. What is said here is the ring's part, the only way to gather or to
    scatter; `cosmic.cost.transport` compares it with the others. Chunks follow each other without waiting, so that a
    collective takes its latency once, and not once a chunk.
    """

    @staticmethod
    def steps(kind: CollectiveKind, p: Any) -> Any:
        """Return p - 1 a pass, once round; 1 + log2 p for an all-to-all, whose sends are started one by one.

        >>> float(Auto.steps("all_reduce", 8)), float(Auto.steps("all_to_all", 8))
        (14.0, 4.0)
        """
        if kind == "all_to_all":
            return (1 + np.log2(np.maximum(p, 1))) * (np.asarray(p) > 1)
        return passes(kind) * (p - 1)

    @staticmethod
    def traffic(kind: CollectiveKind, p: Any) -> Any:
        """Return (p - 1) / p a pass.

        >>> Auto.traffic("all_reduce", 4), Auto.traffic("all_to_all", 4)
        (1.5, 0.75)
        """
        return passes(kind) * all_but_own(p)

    @staticmethod
    def peers(p: Any) -> Any:
        """Return p - 1: there are as many rings as it takes to use every link."""
        return np.maximum(p - 1, 1)

    @staticmethod
    def distance(p: Any) -> Any:
        """Return 1: next door."""
        return 1.0


HOST = 8
"""Members up to which a group is taken to share a host: libraries build trees only across hosts."""


def reduction_traffic(p: Any) -> Any:
    """Return what an NPU sends in an all-reduce that switches add up: 1 + 1 / p.

    Everybody reads the sum of its own 1 / p of the data off the switch, for which all members send theirs: S in all.
    Then each writes that part, S / p, for the switch to copy to all (NVLink SHARP).

    >>> float(reduction_traffic(8))
    1.125
    """
    return 1 + 1 / np.maximum(p, 1)
