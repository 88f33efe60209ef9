"""Co-design against tuning one layer: a full-stack search beside one of each layer by itself.

This is COSMIC's question. Each isolated search opens one layer of the stack and freezes the others at the base design;
the gain of co-design is what the full stack reaches over what each of them does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cosmic.exploration.objectives import loss
from cosmic.exploration.searching import Found, Watch, search
from cosmic.psa.files import load_space

FULL = "full stack"
ALL = 5_000
"""Layers with no more designs than this are searched to the end."""


@dataclass(frozen=True)
class Isolation:
    """A full-stack search and those of its layers."""

    whole: Found
    layers: Mapping[str, Found]

    @property
    def objective(self) -> str:
        """What all of them are after."""
        return self.whole.problem.objectives[0]

    @property
    def evaluated(self) -> int:
        """How many designs were evaluated, all together."""
        return sum(each.trials.evaluated for each in (*self.layers.values(), self.whole))

    @property
    def elapsed_s(self) -> float:
        """How long it took, all together."""
        return sum(each.elapsed_s for each in (*self.layers.values(), self.whole))

    @property
    def base(self) -> dict[str, float | None] | None:
        """What the base design achieves; None where it cannot run."""
        found = self.whole.problem.base()
        return found.figures(0) if found.feasible[0] else None

    def rows(self) -> list[dict[str, Any]]:
        """Return a line for the base, each layer and the full stack: what it reaches, and what co-design adds."""
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
            "over_base": self.gain(reward, before),
            "full_stack_over_it": self.gain(best, reward),
        }

    def gain(self, reward: float | None, other: float | None) -> float | None:
        """Return how many times better one value of the objective is than another."""
        if reward is None or other is None:
            return None
        first, second = (float(loss(self.objective, np.array([each]))[0]) for each in (reward, other))
        return second / first


def isolate(
    source: str, *, trials: int, seed: int = 0, out: Path | None = None, watch: Watch | None = None
) -> Isolation:
    """Return a full-stack search of so many *trials*, kept in *out*, and searches of each layer by itself."""
    space = load_space(source)
    layers = {}
    for stack in space.stacks:
        valid = space.restrict([stack]).valid
        agent, budget = ("exhaustive", valid) if valid <= ALL else ("genetic", max(1, trials // 5))
        layers[stack] = search(space, agent=agent, stacks=[stack], trials=budget, seed=seed, watch=watch)
    whole = search(space, trials=trials, seed=seed, out=out, watch=watch)
    return Isolation(whole, layers)
