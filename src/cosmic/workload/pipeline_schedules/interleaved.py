"""Interleaved 1F1B: each stage holds several model chunks, and a microbatch passes the pipeline as often."""

from __future__ import annotations

import numpy as np

from cosmic.base.numeric import Condition
from cosmic.workload.pipeline_schedule import (
    Number,
    PipelineTask,
    accumulate_tasks,
    alternate_tasks,
    require_valid,
    schedules,
)
from cosmic.workload.pipeline_schedules.schedule_1f1b import OneForwardOneBackward


@schedules.register("interleaved")
class Interleaved:
    """A v-th of 1F1B's bubble for v times its transfers and some more memory (Narayanan et al., SC 2021).

    The order is Megatron-LM's: microbatches go in rounds of p, each round through the first model chunk of every stage,
    then through the second, and so on. With v = 1 it is 1F1B, as in Megatron-LM.
    """

    @staticmethod
    def order(stage: int, stages: int, microbatches: int, virtual: int = 1) -> list[PipelineTask]:
        """Return 2 (p - s - 1) + (v - 1) p forwards of model chunks, then forward and backward in turn.

        >>> [f"{task.kind}{task.microbatch}.{task.chunk}" for task in Interleaved.order(1, 2, 2, virtual=2)]
        ['F0.0', 'F1.0', 'F0.1', 'BW0.1', 'F1.1', 'BW1.1', 'BW0.0', 'BW1.0']
        """
        require_valid(Interleaved, stages, microbatches, virtual)
        if stages == 1:
            return accumulate_tasks(microbatches, virtual)
        if virtual == 1:
            return OneForwardOneBackward.order(stage, stages, microbatches)
        turns = [_task_at(index, stages, virtual) for index in range(microbatches * virtual)]
        forwards = [PipelineTask("F", microbatch, chunk) for microbatch, chunk in turns]
        backwards = [PipelineTask("BW", microbatch, virtual - 1 - chunk) for microbatch, chunk in turns]
        ahead = 2 * (stages - stage - 1) + (virtual - 1) * stages
        return alternate_tasks(forwards, backwards, min(ahead, len(turns)))

    @staticmethod
    def bubble(
        stages: Number,
        microbatches: Number,
        forward_s: Number,
        backward_s: Number,
        weight_s: Number,
        virtual: Number = 1,
    ) -> Number:
        """Return the idle seconds of a stage: filling and draining take a v-th of the time.

            (p - 1) (F + B + W) / v

        Exact for all times, with F, B and W of all v model chunks of a stage. Narayanan et al., SC 2021, §2.2.2.

        >>> Interleaved.bubble(4, 8, forward_s=1, backward_s=1, weight_s=1, virtual=2)
        4.5
        """
        return (stages - 1) * (forward_s + backward_s + weight_s) / virtual

    @staticmethod
    def transfers(stages: Number, microbatches: Number, virtual: Number = 1) -> tuple[Number, Number]:
        """Return (p v - 1, 0): forwards run far enough ahead. 1F1B's for v = 1.

        Exact for stages of equal times and transfers no longer than a task of a model chunk; others hold up rounds.

        >>> Interleaved.transfers(4, 8, virtual=2), Interleaved.transfers(4, 8)
        ((7, 0), (3, 5))
        """
        fill, steady = OneForwardOneBackward.transfers(stages, microbatches)
        return fill + stages * (virtual - 1) * (stages > 1), steady * (virtual == 1)

    @staticmethod
    def in_flight(stage: Number, stages: Number, microbatches: Number, virtual: Number = 1) -> Number:
        """Return the forwards of model chunks that run ahead, and one more, each a v-th of a stage.

            min(m, (2 (p - s - 1) + (v - 1) p + 1) / v)        and 1F1B's min(m, p - s) for v = 1

        On the first stage that is p (1 + (p - 1) / (p v)): Korthikanti et al., MLSys 2023, §4.2.3.

        >>> float(Interleaved.in_flight(0, 4, 8, virtual=2)), int(Interleaved.in_flight(0, 4, 8))
        (5.5, 4)
        """
        per_stage = 1 + (virtual > 1)
        ahead = per_stage * (stages - stage - 1) + (virtual - 1) * stages
        return np.minimum(microbatches, (ahead + 1) / virtual)

    @staticmethod
    def parameter_copies(stages: Number) -> Number:
        """Return 1: the model chunks of a stage differ."""
        return 1

    @staticmethod
    def runs(stages: Number, microbatches: Number, virtual: Number = 1) -> Condition:
        """Return whether the microbatches make whole rounds of p (needed only where stages are divided)."""
        return (virtual == 1) | (microbatches % stages == 0)

    @staticmethod
    def invalid_reason(stages: int, microbatches: int, virtual: int = 1) -> str | None:
        """Return why an incomplete last round is invalid.

        >>> print(Interleaved.invalid_reason(4, 10, 2))
        microbatches = 10: the interleaved schedule takes them in rounds of pp = 4; use a multiple (see global_batch)
        """
        if Interleaved.runs(stages, microbatches, virtual):
            return None
        rule = f"the interleaved schedule takes them in rounds of pp = {stages}; use a multiple (see global_batch)"
        return f"microbatches = {microbatches}: {rule}"


def _task_at(position: int, stages: int, virtual: int) -> tuple[int, int]:
    """Return the microbatch and the model chunk at *place* in the order of forwards (or, mirrored, of backwards)."""
    rounds, within = divmod(position, stages * virtual)
    chunk, microbatch = divmod(within, stages)
    return rounds * stages + microbatch, chunk
