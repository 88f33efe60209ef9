"""One search loop: ask an agent for candidates, evaluate them, tell it what they are worth, until it stops.

Every search goes through here: of parameter sets, mappings, bandwidth, deployments and clusters. They differ in the
agent, which decides what to try next, and in what candidates are and how they are evaluated. An agent is an object that
is asked and told (`AskedAgent`), or a function of *steps*: a generator that yields candidates, is sent what they are worth,
and returns what it found.

    def halve(low, high):                       # steps of an agent
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if (yield middle) else (middle, high)
        return high
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

Asked = TypeVar("Asked")
Told = TypeVar("Told")
Result = TypeVar("Result")
Key = TypeVar("Key", bound=Hashable)
Candidate = TypeVar("Candidate")
Asked_co = TypeVar("Asked_co", covariant=True)
Told_contra = TypeVar("Told_contra", contravariant=True)
Steps = Generator[Asked, Told, Result]


@dataclass(frozen=True, slots=True)
class Optimum(Generic[Candidate]):
    """The best candidate of a search; where none fits, the one that comes nearest."""

    best: Candidate
    fits: bool
    tried: int
    """How many candidates it is the best of; 0 where nothing was left to choose."""


class AskedAgent(Protocol[Asked_co, Told_contra]):
    """Proposes candidates, learns what they are worth, and says when it is done."""

    @property
    def stopped(self) -> str:
        """Why it asks for nothing more; empty while it does."""
        ...

    def ask(self) -> Asked_co:
        """Return the candidates to evaluate next."""
        ...

    def tell(self, outcomes: Told_contra) -> None:
        """Learn what the candidates are worth that were asked for last."""
        ...


def explore(agent: AskedAgent[Asked, Told], evaluate: Callable[[Asked], Told]) -> Iterator[Told]:
    """Yield what the candidates of each round are worth, once the agent has learned it."""
    while not agent.stopped:
        outcomes = evaluate(agent.ask())
        agent.tell(outcomes)
        yield outcomes


class _Together(Generic[Key, Asked, Told, Result]):
    """Steps of several agents, which take their rounds together."""

    def __init__(self, steps: Mapping[Key, Steps[Asked, Told, Result]]) -> None:
        self._steps = dict(steps)
        self._asked: dict[Key, Asked] = {}
        self.found: dict[Key, Result] = {}
        for key in steps:
            self._advance(key, None)

    def _advance(self, key: Key, outcomes: Told | None) -> None:
        try:
            self._asked[key] = next(self._steps[key]) if outcomes is None else self._steps[key].send(outcomes)
        except StopIteration as end:
            self.found[key] = end.value

    @property
    def stopped(self) -> str:
        return "" if self._asked else "found"

    def ask(self) -> dict[Key, Asked]:
        return self._asked

    def tell(self, outcomes: Mapping[Key, Told]) -> None:
        self._asked = {}
        for key, told in outcomes.items():
            self._advance(key, told)


def optimise_together(
    steps: Mapping[Key, Steps[Asked, Told, Result]],
    evaluate: Callable[[Mapping[Key, Asked]], Mapping[Key, Told]],
) -> dict[Key, Result]:
    """Return what each of several agents finds, where what all of them ask for in a round is evaluated at once."""
    agents = _Together(steps)
    for _ in explore(agents, evaluate):
        pass
    return agents.found


def optimise(steps: Steps[Asked, Told, Result], evaluate: Callable[[Asked], Told]) -> Result:
    """Return what an agent finds that proposes candidates by *steps*.

    >>> def halve(low, high):
    ...     while high - low > 1:
    ...         middle = (low + high) // 2
    ...         low, high = (low, middle) if (yield middle) else (middle, high)
    ...     return high
    >>> optimise(halve(0, 100), lambda number: number**2 >= 50)
    8
    """
    return optimise_together({"": steps}, lambda asked: {"": evaluate(asked[""])})[""]
