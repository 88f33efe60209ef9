"""What a pipeline schedule is: the order of work on each stage, and in closed form what it wastes and keeps.

Symbols that every schedule uses:

    p  pipeline stages, 0 … p - 1           F  seconds of forward, one microbatch on one stage
    m  microbatches in a step               B  seconds of its backward for the input's gradient
    v  parts of the model on a stage        W  seconds of its backward for the weights' gradient
    s  a stage

(some papers write B for the whole backward, which is B + W here). The closed forms assume what the papers do:
stages of equal times, transfers that cost nothing, and one task at a time on a stage. They take numbers or arrays
of one length, so that a batch of mappings costs a few array operations.

Activations of a microbatch are kept from the start of its forward to the end of the backward that needs them last:
W, where it is apart. That is an upper bound where a stage can drop some of them after B.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal, Protocol, TypeAlias

from cosmic.design import workload
from cosmic.errors import require
from cosmic.numeric import Condition, Numeric
from cosmic.registry import Registry

Kind = Literal["F", "B", "W", "BW"]
"""Forward, backward for the input, backward for the weights, and both backwards in one go."""
Number: TypeAlias = Numeric
"""A number, or an array over a batch."""


@dataclass(frozen=True, slots=True)
class Task:
    """One piece of work on a stage."""

    kind: Kind
    microbatch: int
    chunk: int = 0
    """Which of the stage's parts of the model, counted from the model's input."""
    reverse: bool = False
    """Whether the microbatch enters at the last stage and leaves at the first (bidirectional schedules)."""
    with_next: bool = False
    """Whether it runs overlapped with the next task of its stage: they start together and end together."""

    def part(self, stage: int, stages: int) -> int:
        """Return which part of the model it works on, counted from the model's input.

        F of part k follows F of part k - 1 of the same microbatch, B follows B of part k + 1, W follows B.

        >>> Task("F", 0, chunk=1).part(stage=2, stages=4), Task("F", 0, reverse=True).part(stage=0, stages=4)
        (6, 3)
        """
        return stages - 1 - stage if self.reverse else self.chunk * stages + stage


class Schedule(Protocol):
    """A way to pass microbatches through pipeline stages.

    One stage (p = 1) always runs, and is gradient accumulation: nothing idles, one microbatch is kept.
    """

    @staticmethod
    def order(stage: int, stages: int, microbatches: int, virtual: int = 1) -> list[Task]:
        """Return what *stage* does, first to last; sizes that do not fit raise a `SpecError`."""
        ...

    @staticmethod
    def bubble(
        stages: Number,
        microbatches: Number,
        forward_s: Number,
        backward_s: Number,
        weight_s: Number,
        virtual: Number = 1,
    ) -> Number:
        """Return the seconds that a stage idles in one step, with times of a whole stage (all v parts)."""
        ...

    @staticmethod
    def in_flight(stage: Number, stages: Number, microbatches: Number, virtual: Number = 1) -> Number:
        """Return of how many microbatches *stage* keeps activations at the worst moment.

        The unit is what one microbatch leaves on a whole stage: one of v parts counts 1 / v.
        """
        ...

    @staticmethod
    def parameter_copies(stages: Number) -> Number:
        """Return how many stages' worth of parameters one stage holds."""
        ...

    @staticmethod
    def runs(stages: Number, microbatches: Number, virtual: Number = 1) -> Condition:
        """Return whether the schedule can run with these sizes."""
        ...

    @staticmethod
    def fits(stages: int, microbatches: int, virtual: int = 1) -> str | None:
        """Return the sentence that says why it cannot run, or nothing where `runs`."""
        ...


schedules: Registry[Schedule] = workload.schedules


class Undivided:
    """What schedules share whose stages hold one part of the model, once."""

    @staticmethod
    def parameter_copies(stages: Number) -> Number:
        """Return 1."""
        return 1

    @staticmethod
    def runs(stages: Number, microbatches: Number, virtual: Number = 1) -> Condition:
        """Return whether no stage is divided; one stage alone may be, as it makes no difference."""
        return (stages == 1) | (virtual == 1)

    @staticmethod
    def fits(stages: int, microbatches: int, virtual: int = 1) -> str | None:
        """Return why a divided stage is refused.

        >>> Undivided.fits(4, 8, 2)
        'virtual_stages = 2: only the interleaved schedule divides a stage; set it to 1'
        """
        if Undivided.runs(stages, microbatches, virtual):
            return None
        return f"virtual_stages = {virtual}: only the interleaved schedule divides a stage; set it to 1"


def demand_fit(schedule: Schedule, stages: int, microbatches: int, virtual: int) -> None:
    """Raise a `SpecError` unless *schedule* can run with these sizes."""
    reason = schedule.fits(stages, microbatches, virtual)
    require(reason is None, "(pp, microbatches, virtual_stages)", (stages, microbatches, virtual), reason or "")


def accumulate(microbatches: int, virtual: int = 1) -> list[Task]:
    """Return the order on a pipeline of one stage: each microbatch forwards and backwards before the next.

    >>> [f"{task.kind}{task.microbatch}" for task in accumulate(2)]
    ['F0', 'BW0', 'F1', 'BW1']
    """
    tasks: list[Task] = []
    for microbatch in range(microbatches):
        tasks += [Task("F", microbatch, chunk) for chunk in range(virtual)]
        tasks += [Task("BW", microbatch, chunk) for chunk in reversed(range(virtual))]
    return tasks


def alternate(forwards: Sequence[Task], backwards: Sequence[Task], ahead: int) -> list[Task]:
    """Return *ahead* forwards, then one forward and one backward in turn, then the backwards that are left.

    >>> tasks = alternate([Task("F", i) for i in range(3)], [Task("BW", i) for i in range(3)], ahead=1)
    >>> [f"{task.kind}{task.microbatch}" for task in tasks]
    ['F0', 'F1', 'BW0', 'F2', 'BW1', 'BW2']
    """
    pairs = len(forwards) - ahead
    steady = zip(forwards[ahead:], backwards[:pairs], strict=True)
    return [*forwards[:ahead], *chain.from_iterable(steady), *backwards[pairs:]]
