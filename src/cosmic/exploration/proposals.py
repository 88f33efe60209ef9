"""What agents propose, checked before it is evaluated: an agent may be a plugin that does as it likes.

An answer that is no array of value indices ends the search. A point that breaks a constraint of the set is a trial
that cannot run: it is counted and never evaluated.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any, TypeVar

import numpy as np

from cosmic.errors import BackendError, CosmicError, in_words, one_line, shorten
from cosmic.exploration.agent import Agent, Flags, Outcomes
from cosmic.exploration.learning.quality import Learned
from cosmic.exploration.problem import Problem, Results
from cosmic.psa.diagram import Indices
from cosmic.psa.space import ParameterSet

T = TypeVar("T")


class CheckedAgent:
    """An agent whose answers are checked; where it fails, the error names it."""

    def __init__(self, name: str, agent: Agent, space: ParameterSet) -> None:
        self._name, self._agent, self._space = name, agent, space
        self._learns = getattr(agent, "learns", True) is not False
        self.coming: deque[Indices] = deque()
        """What it has proposed already for the next times that it is asked."""

    def ask(self, n: int) -> Indices:
        """Return up to *n* points: rows of indices, each of a value that its parameter has."""
        return self.coming.popleft() if self.coming else self._ask(n)

    @property
    def finished(self) -> bool:
        """Whether it knows that nothing better is left."""
        return getattr(self._agent, "finished", False) is True

    @property
    def learned(self) -> Learned | None:
        """What it says of its model; None for one that has none."""
        found = self._call("learned", lambda: getattr(self._agent, "learned", None))
        return found if isinstance(found, Learned) else None

    def look_ahead(self, n: int, times: int) -> None:
        """Ask now for what it will be asked for the next *times*, *n* points each, unless it learns meanwhile."""
        if not self._learns:
            self.coming.extend(self._ask(n) for _ in range(times - len(self.coming)))

    def _ask(self, n: int) -> Indices:
        answer = as_array(self._call("ask", lambda: self._agent.ask(n)))
        if wrong := why_no_points(answer, n, self._space):
            raise BackendError(f"agent {self._name}: {wrong}")
        return answer.astype(np.intp, copy=False)  # type: ignore[no-any-return]  # an array, as was checked

    def tell(self, outcomes: Outcomes) -> None:
        """Tell the agent the outcomes of some points."""
        self._call("tell", lambda: self._agent.tell(outcomes))

    def _call(self, what: str, call: Callable[[], T]) -> T:
        try:
            with redirect_stdout(sys.stderr):  # what a plugin prints is no result
                return call()
        except CosmicError:
            raise
        except (Exception, SystemExit) as error:
            raise BackendError(f"agent {self._name}: {what} failed: {in_words(error)}") from error


def why_no_points(answer: Any, n: int, space: ParameterSet) -> str:
    """Return why *answer* is no array of at most *n* points of *space*, valid or not; empty if it is one."""
    width = len(space.parameters)
    if not isinstance(answer, np.ndarray) or answer.dtype.kind not in "iu":
        what = f"an array of {answer.dtype}" if isinstance(answer, np.ndarray) else one_line(shorten(answer))
        return f"proposed {what}; wanted an array of whole numbers, a row of value indices for each point"
    if answer.ndim != 2 or answer.shape[1] != width:
        return f"proposed an array of shape {answer.shape}; wanted rows of {width} value indices"
    if len(answer) > n:
        return f"proposed {len(answer):,} points; it was asked for {n:,}"
    beyond = (answer < 0) | (answer >= np.array(space.sizes, dtype=np.intp))
    if beyond.any():
        place, column = np.argwhere(beyond)[0].tolist()
        parameter = space.parameters[column]
        return (
            f"proposed value {answer[place, column]} of {parameter.name}, which has {len(parameter.values)} from 0 on"
        )
    return ""


def as_array(answer: Any) -> Any:
    """Return rows as a plain array of our own; anything else, and rows that differ in length, as they are."""
    if not isinstance(answer, list | tuple | np.ndarray):
        return answer
    try:
        return np.array(answer, subok=False)
    except (ValueError, TypeError, OverflowError):
        return answer


def judged(problem: Problem, rows: Indices, inside: Flags, evaluate: Callable[[Indices], Results]) -> Results:
    """Return the results of *rows*, of which those *inside* the set are evaluated; the others break its constraints."""
    if inside.all():
        return evaluate(rows)
    invalid = np.flatnonzero(~inside)
    refused = Results.failed(len(invalid), "", problem.metrics)
    reasons = [", ".join(problem.space.broken(rows[place])) for place in invalid.tolist()]
    refused = Results(refused.columns, refused.excess, reasons, refused.counted)
    both = Results.join([evaluate(rows[inside]), refused])
    return both.take(np.argsort(np.concatenate((np.flatnonzero(inside), invalid)), kind="stable"))
