"""Agents propose points of a parameter set and learn from their outcomes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from cosmic.base.errors import BackendError, CosmicError, SpecError, UnknownName, describe_error, require
from cosmic.base.registry import Registry
from cosmic.search.space.diagram import Indices
from cosmic.search.space.parameter_set import ParameterSet

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Task:
    """What an agent searches: a parameter set, with a budget of trials."""

    space: ParameterSet
    trials: int = 1000
    """How many designs may be evaluated; agents set their pace by it."""
    objectives: int = 1
    describe: Callable[[Indices], Floats] | None = None
    """Returns cheap features of points, a row for each; None where the problem has none."""
    arithmetic: Callable[[Indices], Floats] | None = None
    """Returns what follows from the fields of points without any evaluation; None where nothing does."""
    prior: Callable[[Indices], Floats] | None = None
    """Returns what is expected of points before any is evaluated, less being better; None where nothing is."""
    starts: Indices | None = None
    """Points that earlier studies found best: candidates of the first batch. None where there are none."""
    fits: Callable[[Indices], Flags] | None = None
    """Returns which points fit into memory, as is known before any is evaluated; None where that is not known."""
    bound: Callable[[Indices], Floats] | None = None
    """Returns a loss that each point cannot be below; None where the problem has no bound."""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The losses of a batch of points, and which of them can run."""

    rows: Indices
    losses: Floats
    """The objectives of each point, less being better; NaN for one that cannot run."""
    excess: Floats
    """0 for a point that can run; otherwise by how much it exceeds its limits, infinite where that is not a number."""

    @property
    def feasible(self) -> Flags:
        """Which of the points can run."""
        return np.asarray(self.excess == 0)

    def __len__(self) -> int:
        return len(self.rows)


class Agent(Protocol):
    """Proposes valid points in batches, and learns from their outcomes.

    One that has ``learns = False`` proposes the same whether it was told the outcomes of its last proposals or not: it
    is asked for the next while they are evaluated. One that has ``finished = True`` knows that nothing better is left.
    """

    batch: int
    """The number of points that it prefers to propose at once."""

    def ask(self, n: int) -> Indices:
        """Return *n* valid points to evaluate: rows of value indices."""
        ...

    def tell(self, outcomes: Outcomes) -> None:
        """Learn the outcomes of some points, proposed by this agent or not."""
        ...


MAX_SETTING = 100_000
"""The largest whole number that a setting of an agent may be: it is a number of points or rounds."""
agents: Registry[Callable[..., Agent]] = Registry("agent", "cosmic.search.agents", "cosmic.agents", ("__call__",))
"""Every agent by name: called with a `Task`, a random generator, and its settings as keywords."""


def start_agent(
    name: str, task: Task, rng: np.random.Generator, settings: Mapping[str, float | bool | str] | None = None
) -> Agent:
    """Return the agent *name* with these *settings*: its keyword-only arguments."""
    make, arguments = agents[name], dict(settings or {})
    defaults = agent_settings(name)
    for key, value in arguments.items():
        if key not in defaults:
            raise UnknownName.key(f"{name}.{key}", value, defaults)
        kind = type(defaults[key])
        if kind is float and type(value) is int:
            arguments[key] = float(value)
        require(type(arguments[key]) is kind, f"{name}.{key}", value, f"must be of type {kind.__name__}")
        if isinstance(value, int):
            require(abs(value) <= MAX_SETTING, f"{name}.{key}", value, f"must be at most {MAX_SETTING:,}")
    try:
        return make(task, rng, **arguments)
    except CosmicError:
        raise
    except (Exception, SystemExit) as error:  # a plugin may fail in any way
        raise BackendError(f"agent {name}: cannot start: {describe_error(error)}") from error


def parse_agent(text: str, where: str = "agents") -> tuple[str, dict[str, float | bool | str]]:
    """Return the name and the settings of an agent, as in ``genetic(population=64, mutation=0.1)``.

    >>> parse_agent("random"), parse_agent("genetic(population=64)")
    (('random', {}), ('genetic', {'population': 64}))
    """
    match = re.fullmatch(r"\s*([\w-]+)\s*(?:\((.*)\))?\s*", text)
    if match is None:
        raise SpecError(where, text, "must be a name, or a name with settings: genetic(population=64)")
    name, inside = match[1], match[2] or ""
    agents.check(name, where)
    settings: dict[str, float | bool | str] = {}
    for part in filter(str.strip, inside.split(",")):
        key, sign, value = (text_part.strip() for text_part in part.partition("="))
        require(bool(key and sign and value), where, text, f"{part.strip()!r} must be NAME=VALUE")
        require(key not in settings, where, text, f"sets {key} twice")
        settings[key] = _parse_setting(value)
    return name, settings


def _parse_setting(text: str) -> float | bool | str:
    """Return a setting as the number, the truth value or the name that it is written as."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def separate_agents(text: str) -> list[str]:
    """Return the agents of a list separated by commas; commas inside brackets separate settings.

    >>> separate_agents("random, genetic(population=64, mutation=0.1),tpe")
    ['random', 'genetic(population=64, mutation=0.1)', 'tpe']
    """
    return [name.strip() for name in re.split(r",(?![^(]*\))", text) if name.strip()]


def agent_settings(name: str) -> dict[str, Any]:
    """Return the settings of the agent *name* with their defaults."""
    try:
        parameters = inspect.signature(agents[name]).parameters.values()
    except (ValueError, TypeError):  # something that can be called and does not say how
        return {}
    return {
        parameter.name: parameter.default
        for parameter in parameters
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
