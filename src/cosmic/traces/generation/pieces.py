"""What a block of the model is cut into: runs of compute, collectives, and the units that they form."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from cosmic.step.communication import named_axes
from cosmic.step.costs import Prices


@dataclass(frozen=True, slots=True)
class Talk:
    """One collective, or one round of messages, among the ranks along some mesh axes."""

    name: str
    kind: str
    axes: tuple[str, ...]
    """Data parallelism is two axes, `edp` and `ep`, as in `cosmic.workload.strategies`."""
    members: float
    bytes: float
    """What a gather ends with, what any other collective starts from."""
    seconds: float


@dataclass(frozen=True, slots=True)
class Run:
    """Operators that follow one another with nothing to wait for."""

    name: str
    seconds: float
    flop: float
    bytes: float
    beside: Talk | None = None
    """Keys and values that are passed round meanwhile."""


@dataclass(frozen=True, slots=True)
class Unit:
    """What is fetched together, done, and reduced together."""

    name: str
    steps: tuple[Run | Talk, ...]
    """In order, each waiting for the one before."""
    weights: tuple[Run, ...] = ()
    """What makes the gradients of weights: the part of a backward pass that can wait."""
    gathers: tuple[Talk, ...] = ()
    reduces: tuple[Talk, ...] = ()


@dataclass(frozen=True, slots=True)
class Piece:
    """A block of the model, as one device runs it for one microbatch."""

    name: str
    part: str
    repeats: int
    forward: tuple[Unit, ...]
    backward: tuple[Unit, ...]
    reduces: tuple[Talk, ...]
    """Of gradients, once a step."""
    returns: tuple[Talk, ...]
    """Of updated weights, once a step."""
    elements: float
    """Weights that this device updates."""
    shared: float
    """Of these, how many the embedding and the head have in common."""

    @property
    def backward_s(self) -> float:
        """Seconds of compute in the backward pass."""
        runs = [step for unit in self.backward for step in (*unit.steps, *unit.weights) if isinstance(step, Run)]
        return sum(run.seconds for run in runs)


def merged(talks: Iterable[Talk], name: str) -> tuple[Talk, ...]:
    """Return one collective for those of one kind among one group: their bytes and their seconds added up."""
    found: dict[tuple[str, tuple[str, ...]], Talk] = {}
    for talk in talks:
        known = found.get((talk.kind, talk.axes))
        sums = (known.bytes + talk.bytes, known.seconds + talk.seconds) if known else (talk.bytes, talk.seconds)
        found[talk.kind, talk.axes] = replace(talk, name=name, bytes=sums[0], seconds=sums[1])
    return tuple(found.values())


def in_one_buffer(talks: Iterable[Talk], name: str, prices: Prices) -> tuple[Talk, ...]:
    """Return one collective for those of one kind among one group, timed as one: weights and gradients travel so."""
    return tuple(
        replace(talk, seconds=float(prices.collective(talk.kind, named_axes(talk.axes), talk.bytes)))
        for talk in merged(talks, name)
    )
