"""Agents: what proposes points of a parameter set and learns from what they cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from cosmic.psa.diagram import Indices
from cosmic.psa.space import ParameterSet
from cosmic.registry import Registry


class Agent(Protocol):
    """Proposes valid points, many at a time, and is told what became of them."""

    def ask(self, n: int) -> Indices:
        """Return *n* valid points to evaluate: rows of value indices."""
        ...

    def tell(self, rows: Indices, outcomes: Sequence[float | None]) -> None:
        """Learn the objective of each point, less being better; None for one that cannot run."""
        ...


agents: Registry[Callable[[ParameterSet, np.random.Generator], Any]] = Registry(
    "agent", "cosmic.search.agents", "cosmic.agents"
)
