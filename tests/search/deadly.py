"""Problems that kill their workers: apart from tests, so that workers load little."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from cosmic.base.errors import SpecError
from cosmic.search.problem import Problem, Results
from cosmic.search.space.diagram import Indices


def parts(problem: Problem, **more: Any) -> dict[str, Any]:
    """Return what a problem consists of, to make one of another kind of it."""
    return {each.name: getattr(problem, each.name) for each in fields(Problem)} | more


@dataclass(frozen=True)
class Deadly(Problem):
    """A problem with a point that kills the worker that evaluates it."""

    victim: tuple[int, ...] = ()

    def evaluate(self, rows: Indices) -> Results:
        """Return what becomes of points, unless the deadly one is among them."""
        if (rows == self.victim).all(axis=1).any():
            os._exit(9)
        return super().evaluate(rows)


@dataclass(frozen=True)
class DeadlyOnce(Problem):
    """A problem that kills the first worker that evaluates it."""

    marker: str = ""

    def evaluate(self, rows: Indices) -> Results:
        """Return what becomes of points, but for the first time."""
        if not Path(self.marker).exists():
            Path(self.marker).touch()
            os._exit(9)
        return super().evaluate(rows)


class Unborn(Problem):
    """A problem that kills a worker before it can begin."""

    def __setstate__(self, state: Any) -> None:
        os._exit(9)


class Refused(Problem):
    """A problem that cannot be evaluated."""

    def evaluate(self, rows: Indices) -> Results:
        """Say so."""
        raise SpecError("rows", len(rows), "are refused")
