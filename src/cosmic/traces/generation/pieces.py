"""What a block of the model is cut into: runs of compute, collectives, and the units that they form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from cosmic.step.communication import CommunicationKind, Role, named_axes
from cosmic.step.network_costs import NetworkCosts


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective, or one round of messages, among the ranks along some mesh axes."""

    name: str
    kind: CommunicationKind
    axes: tuple[str, ...]
    """Those of dense layers, or those of experts: see `cosmic.workload.strategies`."""
    members: float
    bytes: float
    """The result of a gather, the input of any other collective."""
    seconds: float
    role: Role
    steps: int = 1
    """Calls that it stands for, of equal sizes: one at each step of a recurrence."""

    def share(self, of: float) -> Collective:
        """Return so much of it."""
        return replace(self, bytes=self.bytes * of, seconds=self.seconds * of)


@dataclass(frozen=True, slots=True)
class Run:
    """Operators that follow one another without a collective between them."""

    name: str
    seconds: float
    flop: float
    bytes: float
    beside: Collective | None = None
    """The ring of keys and values that it overlaps."""
    steps: int = 1
    """Steps of a recurrence."""

    def share(self, of: float) -> Run:
        """Return so much of it."""
        return replace(self, seconds=self.seconds * of, flop=self.flop * of, bytes=self.bytes * of)


@dataclass(frozen=True, slots=True)
class Unit:
    """What is fetched together, done, and reduced together."""

    name: str
    steps: tuple[Run | Collective, ...]
    """In order, each waiting for the one before."""
    weights: tuple[Run, ...] = ()
    """The weight gradients: the part of a backward pass that can wait."""
    gathers: tuple[Collective, ...] = ()
    reduces: tuple[Collective, ...] = ()


@dataclass(frozen=True, slots=True)
class Piece:
    """A block of the model, as one device runs it for one microbatch."""

    name: str
    part: str
    repeats: int
    forward: tuple[Unit, ...]
    backward: tuple[Unit, ...]
    reduces: tuple[Collective, ...]
    """Reductions of gradients, once a step."""
    updates: tuple[Collective, ...]
    """All-gathers of updated weights, once a step."""
    held_up: tuple[float, float]
    """How many times longer both take beside the backward and the forward pass of one microbatch."""
    elements: float
    """Weights that this device updates."""
    shared: float
    """Of these, how many the embedding and the head have in common."""
    exchanged: tuple[Collective, ...] = ()
    """What islands exchange every few steps, its mean over these steps."""

    @property
    def backward_s(self) -> float:
        """Seconds of compute in the backward pass."""
        runs = [step for unit in self.backward for step in (*unit.steps, *unit.weights) if isinstance(step, Run)]
        return sum(run.seconds for run in runs)


def turns(steps: Sequence[Run | Collective]) -> Iterator[tuple[int, tuple[Run | Collective, ...]]]:
    """Yield parts of a chain with how often each is gone through.

    Operators of a recurrence and what its steps send take turns; without the latter, all its steps are one.
    """
    for count, group in groupby(steps, key=lambda step: step.steps):
        part = tuple(group)
        sends = count > 1 and any(isinstance(step, Collective) for step in part)
        yield (count, tuple(step.share(1 / count) for step in part)) if sends else (1, part)


def merged(calls: Iterable[Collective], name: str) -> tuple[Collective, ...]:
    """Return one collective for those of one kind and group: the sum of their bytes and of their seconds."""
    found: dict[tuple[str, tuple[str, ...]], Collective] = {}
    for call in calls:
        known = found.get((call.kind, call.axes))
        sums = (known.bytes + call.bytes, known.seconds + call.seconds) if known else (call.bytes, call.seconds)
        found[call.kind, call.axes] = replace(call, name=name, bytes=sums[0], seconds=sums[1])
    return tuple(found.values())


def in_one_buffer(
    calls: Iterable[Collective], name: str, network: NetworkCosts, held_up: float = 1.0
) -> tuple[Collective, ...]:
    """Return one collective for those of one kind and group, timed as one buffer: so weights and gradients travel.

    Others hold it up, so that it takes *held_up* times longer.
    """
    return tuple(
        replace(call, seconds=held_up * float(network.seconds(call.kind, named_axes(call.axes), call.bytes)))
        for call in merged(calls, name)
    )


def collectives_of(piece: Piece) -> Iterator[Collective]:
    """Yield every collective of a block."""
    for unit in (*piece.forward, *piece.backward):
        yield from (step for step in unit.steps if isinstance(step, Collective))
        yield from (*unit.gathers, *unit.reduces)
    yield from (*piece.reduces, *piece.updates, *piece.exchanged)
