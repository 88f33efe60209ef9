"""1F1B: one forward, one backward in turn."""

from __future__ import annotations

import numpy as np

from cosmic.workload.pipeline_schedule import (
    Number,
    PipelineTask,
    Undivided,
    accumulate_tasks,
    alternate_tasks,
    require_valid,
    schedules,
)


@schedules.register("1f1b")
class OneForwardOneBackward(Undivided):
    """GPipe's bubble, but a stage keeps at most as many microbatches as stages follow (Narayanan et al., SC 2021)."""

    @staticmethod
    def order(stage: int, stages: int, microbatches: int, virtual: int = 1) -> list[PipelineTask]:
        """Return p - s - 1 forwards that fill the later stages, then forward and backward in turn.

        >>> [f"{task.kind}{task.microbatch}" for task in OneForwardOneBackward.order(0, 2, 3)]
        ['F0', 'F1', 'BW0', 'F2', 'BW1', 'BW2']
        """
        require_valid(OneForwardOneBackward, stages, microbatches, virtual)
        if stages == 1:
            return accumulate_tasks(microbatches, virtual)
        forwards = [PipelineTask("F", microbatch) for microbatch in range(microbatches)]
        backwards = [PipelineTask("BW", microbatch) for microbatch in range(microbatches)]
        return alternate_tasks(forwards, backwards, ahead=min(microbatches, stages - stage - 1))

    @staticmethod
    def bubble(
        stages: Number,
        microbatches: Number,
        forward_s: Number,
        backward_s: Number,
        weight_s: Number,
        virtual: Number = 1,
    ) -> Number:
        """Return the idle seconds of a stage, the same as GPipe's.

            (p - 1) (F + B + W)

        Exact for all times and numbers of microbatches. Narayanan et al., SC 2021, §2.2.1.

        >>> OneForwardOneBackward.bubble(4, 8, forward_s=1, backward_s=1.5, weight_s=0.5)
        9.0
        """
        return (stages - 1) * (forward_s + backward_s + weight_s)

    @staticmethod
    def transfers(stages: Number, microbatches: Number, virtual: Number = 1) -> tuple[Number, Number]:
        """Return what a step waits for: p microbatches make a round, which passes all stages and back.

            p - 1        and        ⌊(m - 1) (p - 1) / p⌋

        The first stage sends microbatch i + p once it has i back: p (F + B + W) of work, and p - 1 transfers each way.
        Exact for stages of equal times.

        >>> OneForwardOneBackward.transfers(4, 16)
        (3, 11)
        """
        return stages - 1, (microbatches - 1) * (stages - 1) // stages

    @staticmethod
    def in_flight(stage: Number, stages: Number, microbatches: Number, virtual: Number = 1) -> Number:
        """Return min(m, p - s): the first stage keeps p, the last 1. Narayanan et al., SC 2021, §2.2.1.

        >>> [int(OneForwardOneBackward.in_flight(stage, 4, 3)) for stage in range(4)]
        [3, 3, 2, 1]
        """
        return np.minimum(microbatches, stages - stage)
