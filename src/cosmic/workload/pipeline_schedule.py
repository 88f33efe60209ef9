"""Pipeline schedules: the order of tasks on each stage, and closed forms of the bubble and of activations in flight.

Symbols that every schedule uses:

    p  pipeline stages, 0 … p - 1           F  seconds of forward, one microbatch on one stage
    m  microbatches in a step               B  seconds of its backward for the input's gradient
    v  model chunks on a stage              W  seconds of its backward for the weights' gradient
    s  a stage

(some papers write B for the whole backward, which is B + W here). The closed forms assume what the papers do:
stages of equal times, transfers that cost nothing, and one task at a time on a stage. They take numbers or arrays
of one length, so that a batch of mappings costs a few array operations.

Activations of a microbatch are kept from the start of its forward to the end of the last backward that needs them: W,
where it is separate. That is an upper bound where a stage can drop some of them after B.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal, Protocol, TypeAlias

from cosmic.base.errors import require
from cosmic.base.numeric import Condition, Numeric
from cosmic.base.registry import Registry
from cosmic.design import workload_layer

TaskKind = Literal["F", "B", "W", "BW"]
"""Forward, backward for the input, backward for the weights, and the whole backward."""
Number: TypeAlias = Numeric
"""A number, or an array of them."""


@dataclass(frozen=True, slots=True)
class PipelineTask:
    """One task of a stage."""

    kind: TaskKind
    microbatch: int
    chunk: int = 0
    """Index of the model chunk among those of the stage, from the model's input on."""
    reverse: bool = False
    """Whether the microbatch enters at the last stage and leaves at the first (bidirectional schedules)."""
    with_next: bool = False
    """Whether it overlaps the next task of its stage: they start together and end together."""

    def virtual_stage(self, stage: int, stages: int) -> int:
        """Return its virtual stage: the index of its model chunk among all of the model, from the input on.

        F of virtual stage k follows F of k - 1 of the same microbatch, B follows B of k + 1, W follows B.

        >>> PipelineTask("F", 0, chunk=1).virtual_stage(stage=2, stages=4)
        6
        >>> PipelineTask("F", 0, reverse=True).virtual_stage(stage=0, stages=4)
        3
        """
        return stages - 1 - stage if self.reverse else self.chunk * stages + stage


class PipelineSchedule(Protocol):
    """A pipeline schedule.

    One stage (p = 1) is always valid, and is gradient accumulation: nothing idles, one microbatch is kept.
    """

    @staticmethod
    def order(stage: int, stages: int, microbatches: int, virtual: int = 1) -> list[PipelineTask]:
        """Return the tasks of *stage* in order; invalid sizes raise a `SpecError`."""
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
        """Return the seconds that a stage idles in one step, given times of a whole stage (all v model chunks)."""
        ...

    @staticmethod
    def transfers(stages: Number, microbatches: Number, virtual: Number = 1) -> tuple[Number, Number]:
        """Return how many transfers to the next stage and back a step waits for: always, and if no stage has slack.

        The former fill and drain the pipeline. The latter are in the cycle of forwards and backwards on which stages
        wait for each other; where the other stages are faster than the slowest, the difference hides that much.
        """
        ...

    @staticmethod
    def in_flight(stage: Number, stages: Number, microbatches: Number, virtual: Number = 1) -> Number:
        """Return the most microbatches whose activations *stage* keeps at one time.

        The unit is the activations of one microbatch on a whole stage: one of v model chunks counts 1 / v.
        """
        ...

    @staticmethod
    def parameter_copies(stages: Number) -> Number:
        """Return the number of stages' worth of parameters that one stage holds."""
        ...

    @staticmethod
    def runs(stages: Number, microbatches: Number, virtual: Number = 1) -> Condition:
        """Return whether these sizes are valid."""
        ...

    @staticmethod
    def invalid_reason(stages: int, microbatches: int, virtual: int = 1) -> str | None:
        """Return a sentence that says why these sizes are invalid; None where `runs`."""
        ...


schedules: Registry[PipelineSchedule] = workload_layer.schedules


class Undivided:
    """Base of schedules whose stages hold one model chunk, once."""

    @staticmethod
    def transfers(stages: Number, microbatches: Number, virtual: Number = 1) -> tuple[Number, Number]:
        """Return (p - 1, 0): the first microbatch passes every stage, and the last one passes them back.

        >>> Undivided.transfers(4, 16)
        (3, 0)
        """
        return stages - 1, 0

    @staticmethod
    def parameter_copies(stages: Number) -> Number:
        """Return 1."""
        return 1

    @staticmethod
    def runs(stages: Number, microbatches: Number, virtual: Number = 1) -> Condition:
        """Return whether no stage is divided; a pipeline of one stage may be, as it makes no difference."""
        return (stages == 1) | (virtual == 1)

    @staticmethod
    def invalid_reason(stages: int, microbatches: int, virtual: int = 1) -> str | None:
        """Return why a divided stage is invalid.

        >>> Undivided.invalid_reason(4, 8, 2)
        'virtual_stages = 2: only the interleaved schedule divides a stage; set it to 1'
        """
        if Undivided.runs(stages, microbatches, virtual):
            return None
        return f"virtual_stages = {virtual}: only the interleaved schedule divides a stage; set it to 1"


def require_valid(schedule: PipelineSchedule, stages: int, microbatches: int, virtual: int) -> None:
    """Raise a `SpecError` unless these sizes are valid for *schedule*."""
    reason = schedule.invalid_reason(stages, microbatches, virtual)
    require(reason is None, "(pp, microbatches, virtual_stages)", (stages, microbatches, virtual), reason or "")


def accumulate_tasks(microbatches: int, virtual: int = 1) -> list[PipelineTask]:
    """Return the order on a pipeline of one stage: forward and backward of each microbatch before the next.

    >>> [f"{task.kind}{task.microbatch}" for task in accumulate_tasks(2)]
    ['F0', 'BW0', 'F1', 'BW1']
    """
    tasks: list[PipelineTask] = []
    for microbatch in range(microbatches):
        tasks += [PipelineTask("F", microbatch, chunk) for chunk in range(virtual)]
        tasks += [PipelineTask("BW", microbatch, chunk) for chunk in reversed(range(virtual))]
    return tasks


def alternate_tasks(
    forwards: Sequence[PipelineTask], backwards: Sequence[PipelineTask], ahead: int
) -> list[PipelineTask]:
    """Return *ahead* forwards, then one forward and one backward in turn, then the backwards that are left.

    >>> tasks = alternate_tasks([PipelineTask("F", i) for i in range(3)], [PipelineTask("BW", i) for i in range(3)], ahead=1)
    >>> [f"{task.kind}{task.microbatch}" for task in tasks]
    ['F0', 'F1', 'BW0', 'F2', 'BW1', 'BW2']
    """
    pairs = len(forwards) - ahead
    steady = zip(forwards[ahead:], backwards[:pairs], strict=True)
    return [*forwards[:ahead], *chain.from_iterable(steady), *backwards[pairs:]]
