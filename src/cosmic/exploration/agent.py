"""Agents: what proposes points of a parameter set and learns from what they cost."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from cosmic.errors import UnknownName, require
from cosmic.psa.diagram import Indices
from cosmic.psa.space import ParameterSet
from cosmic.registry import Registry

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Task:
    """What an agent is to do."""

    space: ParameterSet
    trials: int = 1000
    """How many designs may be evaluated: agents pace themselves by it."""
    objectives: int = 1
    describe: Callable[[Indices], Floats] | None = None
    """What can be said of points for next to nothing, a row of numbers for each, where the problem knows any."""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What became of a batch of points."""

    rows: Indices
    losses: Floats
    """For each point its objectives, less being better; NaN for one that cannot run."""
    excess: Floats
    """0 for a point that can run; else by how much it misses what it must keep to, infinite where nobody can say."""

    @property
    def feasible(self) -> Flags:
        """Which of the points can run."""
        return np.asarray(self.excess == 0)

    def __len__(self) -> int:
        return len(self.rows)


class Agent(Protocol):
    """Proposes valid points, many at a time, and is told what became of them."""

    batch: int
    """How many points it likes to be asked for at once."""

    def ask(self, n: int) -> Indices:
        """Return *n* valid points to evaluate: rows of value indices."""
        ...

    def tell(self, outcomes: Outcomes) -> None:
        """Learn what became of some points, whoever proposed them."""
        ...


agents: Registry[Callable[..., Agent]] = Registry("agent", "cosmic.exploration.agents", "cosmic.agents")
"""Every agent by name: called with a `Task`, a generator and its settings by name."""


def start(
    name: str, task: Task, rng: np.random.Generator, settings: Mapping[str, float | bool | str] | None = None
) -> Agent:
    """Return the agent *name*, ready to be asked; its settings are those keywords that it takes by name only."""
    make, given = agents[name], dict(settings or {})
    known = settings_of(name)
    for key, value in given.items():
        if key not in known:
            raise UnknownName.key(f"{name}.{key}", value, known)
        wanted = type(known[key])
        if wanted is float and type(value) is int:
            given[key] = float(value)
        require(type(given[key]) is wanted, f"{name}.{key}", value, f"must be of type {wanted.__name__}")
    return make(task, rng, **given)


def settings_of(name: str) -> dict[str, Any]:
    """Return what can be set of the agent *name*, with its defaults."""
    parameters = inspect.signature(agents[name]).parameters.values()
    return {each.name: each.default for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY}
