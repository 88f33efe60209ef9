"""Co-design compared with tuning one layer: a full-stack search, and a search of each layer alone.

Each isolated search opens one layer of the stack and freezes the others at the base design. The gain of co-design is
the best of the full stack over the best of each isolated search.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cosmic.exploration.searching import Found, Watch, search
from cosmic.exploration.verdict import gain
from cosmic.psa.files import load_space
from cosmic.psa.space import ParameterSet

FULL = "full stack"
ALL = 12_000
"""Layers with at most this many designs are searched exhaustively."""


@dataclass(frozen=True)
class Isolation:
    """A full-stack search, and a search of each of its layers alone."""

    whole: Found
    layers: Mapping[str, Found]

    @property
    def objective(self) -> str:
        """The first objective of all of the searches."""
        return self.whole.problem.objectives[0]

    @property
    def evaluated(self) -> int:
        """How many designs all searches evaluated together."""
        return sum(each.trials.evaluated for each in (*self.layers.values(), self.whole))

    @property
    def elapsed_s(self) -> float:
        """The seconds that all searches took together."""
        return sum(each.elapsed_s for each in (*self.layers.values(), self.whole))

    @property
    def base(self) -> dict[str, float | None] | None:
        """The metrics of the base design; None where it cannot run."""
        found = self.whole.problem.base()
        return found.figures(0) if found.feasible[0] else None

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for the base, each layer and the full stack: its best, and the full stack over that."""
        before = self.base[self.objective] if self.base else None
        rows = [self._row("nothing: the base", 1, 1, self.base or {}, before)]
        for name, found in {**self.layers, FULL: self.whole}.items():
            metrics = found.best["metrics"] if found.best else {}
            rows.append(self._row(name, found.problem.space.valid, found.trials.evaluated, metrics, before))
        return rows

    def _row(
        self, name: str, valid: int, evaluated: int, metrics: Mapping[str, float | None], before: float | None
    ) -> dict[str, Any]:
        reward = metrics.get(self.objective)
        best = self.whole.best["metrics"][self.objective] if self.whole.best else None
        return {
            "searched": name,
            "valid": valid,
            "evaluated": evaluated,
            "step_s": metrics.get("step_s"),
            "reward": reward,
            "over_base": gain(self.objective, reward, before),
            "full_stack_over_it": gain(self.objective, best, reward),
        }


def isolate(
    source: str, *, trials: int, seed: int = 0, out: Path | None = None, watch: Watch | None = None
) -> Isolation:
    """Return a full-stack search with a budget of *trials*, kept in *out*, and a search of each layer alone."""
    space = load_space(source)
    layers = {
        stack: search_layer(space, stack, most=ALL, trials=max(1, trials // 5), seed=seed, watch=watch)
        for stack in space.stacks
    }
    whole = search(space, trials=trials, seed=seed, out=out, watch=watch)
    return Isolation(whole, layers)


def isolated(found: Found, trials: int, watch: Callable[[str], Watch | None] | None = None) -> dict[str, Found]:
    """Return a search of each layer that a study opened, alone, with at most *trials* designs each.

    Objectives, limits and seed are the study's. There are none where the study opened one layer only, where it has no
    trials, or where the event engine simulates its designs, which takes too long.
    """
    inputs, space = found.inputs, found.problem.space
    if trials < 1 or len(space.stacks) < 2 or found.problem.engine != "analytic" or not len(found.trials):
        return {}
    whole = load_space(inputs.space, files=False) if inputs.stacks else space
    goals = {"objectives": inputs.objectives, "constraints": inputs.constraints}
    return {
        stack: search_layer(
            whole, stack, most=trials, trials=trials, seed=inputs.seed, watch=watch(stack) if watch else None, **goals
        )
        for stack in space.stacks
    }


def search_layer(
    space: ParameterSet,
    stack: str,
    *,
    most: int,
    trials: int,
    seed: int,
    watch: Watch | None = None,
    **goals: Any,
) -> Found:
    """Return a search of one layer: exhaustive where it has at most *most* designs, else with a budget of *trials*."""
    valid = space.restrict([stack]).valid
    agent, budget = ("exhaustive", valid) if valid <= most else ("genetic", trials)
    return search(space, agent=agent, stacks=[stack], trials=budget, seed=seed, watch=watch, **goals)
