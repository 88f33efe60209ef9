"""Direct: every NPU exchanges parts with every other at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from cosmic.cost.collectives import all_but_own, passes
from cosmic.design.collective import CollectiveKind, algorithms


@algorithms.register("direct")
class Direct:
    """One step a pass, at the bandwidth bound; wants a link between every two NPUs."""

    @staticmethod
    def steps(kind: CollectiveKind, p: Any) -> Any:
        """Return 1 a pass."""
        return passes(kind) * (p > 1)

    @staticmethod
    def traffic(kind: CollectiveKind, p: Any) -> Any:
        """Return (p - 1) / p a pass: all parts but one's own.

        >>> Direct.traffic("all_gather", 8)
        0.875
        """
        return passes(kind) * all_but_own(p)

    @staticmethod
    def peers(p: Any) -> Any:
        """Return p - 1: everybody."""
        return p - 1

    @staticmethod
    def distance(p: Any) -> Any:
        """Return max(1, p / 4): the mean way to everybody else, going the shorter way round."""
        return np.maximum(1.0, p / 4)
