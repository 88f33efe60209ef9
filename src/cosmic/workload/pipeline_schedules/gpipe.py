"""GPipe: all forwards, then all backwards."""

from __future__ import annotations

from cosmic.workload.pipeline_schedule import (
    Number,
    PipelineTask,
    Undivided,
    accumulate_tasks,
    alternate_tasks,
    require_valid,
    schedules,
)


@schedules.register("gpipe")
class GPipe(Undivided):
    """The simplest pipeline: it keeps every microbatch until the last forward is done (Huang et al., NeurIPS 2019)."""

    @staticmethod
    def order(stage: int, stages: int, microbatches: int, virtual: int = 1) -> list[PipelineTask]:
        """Return all forwards, then all backwards, the newest first.

        >>> [f"{task.kind}{task.microbatch}" for task in GPipe.order(0, 2, 3)]
        ['F0', 'F1', 'F2', 'BW2', 'BW1', 'BW0']
        """
        require_valid(GPipe, stages, microbatches, virtual)
        if stages == 1:
            return accumulate_tasks(microbatches, virtual)
        forwards = [PipelineTask("F", microbatch) for microbatch in range(microbatches)]
        backwards = [PipelineTask("BW", microbatch) for microbatch in reversed(range(microbatches))]
        return alternate_tasks(forwards, backwards, ahead=microbatches)

    @staticmethod
    def bubble(
        stages: Number,
        microbatches: Number,
        forward_s: Number,
        backward_s: Number,
        weight_s: Number,
        virtual: Number = 1,
    ) -> Number:
        """Return the idle seconds of a stage: the pipeline fills forwards and drains backwards.

            (p - 1) (F + B + W)

        Exact for all times; as a fraction of the step, (p - 1) / (m + p - 1). Huang et al., NeurIPS 2019, §2.3.

        >>> GPipe.bubble(4, 16, forward_s=1, backward_s=1, weight_s=1)
        9
        """
        return (stages - 1) * (forward_s + backward_s + weight_s)

    @staticmethod
    def in_flight(stage: Number, stages: Number, microbatches: Number, virtual: Number = 1) -> Number:
        """Return m: no backward starts before the last forward. A pipeline of one stage keeps 1.

        >>> GPipe.in_flight(0, 4, 16), GPipe.in_flight(0, 1, 16)
        (16, 1)
        """
        return 1 + (stages > 1) * (microbatches - 1)
