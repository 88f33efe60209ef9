"""Zero bubble (ZB-H1): the weights' gradients fill idle time."""

from __future__ import annotations

import numpy as np

from cosmic.workload.pipeline_schedule import (
    Number,
    PipelineTask,
    Undivided,
    accumulate_tasks,
    require_valid,
    schedules,
)
from cosmic.workload.pipeline_schedules.schedule_1f1b import OneForwardOneBackward


@schedules.register("zero_bubble")
class ZeroBubble(Undivided):
    """1F1B with a split backward, so that W fills the drain: ZB-H1 (Qi et al., ICLR 2024).

    It keeps no more than the fullest stage of 1F1B; their ZB-H2, with a smaller bubble, keeps twice that.
    """

    @staticmethod
    def order(stage: int, stages: int, microbatches: int, virtual: int = 1) -> list[PipelineTask]:
        """Return 1F1B's forwards and backwards, with the W that follows B lagging by s microbatches.

        So every stage has min(m, p) microbatches between F and W, and the last stage p of them to fill its drain.

        >>> [f"{task.kind}{task.microbatch}" for task in ZeroBubble.order(0, 2, 3)]
        ['F0', 'F1', 'B0', 'W0', 'F2', 'B1', 'W1', 'B2', 'W2']
        >>> [f"{task.kind}{task.microbatch}" for task in ZeroBubble.order(1, 2, 3)]
        ['F0', 'B0', 'F1', 'B1', 'W0', 'F2', 'B2', 'W1', 'W2']
        """
        require_valid(ZeroBubble, stages, microbatches, virtual)
        if stages == 1:
            return accumulate_tasks(microbatches, virtual)
        ahead = stages - stage
        tasks = [PipelineTask("F", microbatch) for microbatch in range(min(microbatches, ahead))]
        for microbatch in range(microbatches):
            tasks.append(PipelineTask("B", microbatch))
            if microbatch >= stage:
                tasks.append(PipelineTask("W", microbatch - stage))
            if microbatch + ahead < microbatches:
                tasks.append(PipelineTask("F", microbatch + ahead))
        late = range(max(0, microbatches - stage), microbatches)
        return tasks + [PipelineTask("W", microbatch) for microbatch in late]

    @staticmethod
    def bubble(
        stages: Number,
        microbatches: Number,
        forward_s: Number,
        backward_s: Number,
        weight_s: Number,
        virtual: Number = 1,
    ) -> Number:
        """Return the idle seconds of a stage.

            (p - 1) (F + B)  -  (min(m, p) - 1) min(F, B, W)

        Exact for all times and numbers of microbatches. Where m >= p and W is the shortest it is the published
        (p - 1) (F + B - W) of Qi et al., ICLR 2024, Table 2. A longer W fills no more: the first stage waits
        (p - 1) B before it has any W to do, and the last one (p - 1) F. Fewer microbatches have fewer W.

        >>> int(ZeroBubble.bubble(4, 8, forward_s=1, backward_s=1, weight_s=1))
        3
        """
        both, filled = forward_s + backward_s, np.minimum(microbatches, stages) - 1
        longest: Number = np.maximum(np.maximum(forward_s, backward_s), both - weight_s)  # F + B - min(F, B, W)
        return (stages - 1 - filled) * both + filled * longest

    @staticmethod
    def transfers(stages: Number, microbatches: Number, virtual: Number = 1) -> tuple[Number, Number]:
        """Return 1F1B's, at most p - 1 of the latter: then W fills the wait.

        Exact for stages of equal times where W is the shortest of F, B and W, and longer than a transfer. A longer W
        hides up to p - 1 more.

        >>> fill, steady = ZeroBubble.transfers(4, 16)
        >>> int(fill), int(steady)
        (3, 3)
        """
        fill, steady = OneForwardOneBackward.transfers(stages, microbatches)
        return fill, np.minimum(steady, fill)

    @staticmethod
    def in_flight(stage: Number, stages: Number, microbatches: Number, virtual: Number = 1) -> Number:
        """Return min(m, p) on every stage, which is 1F1B's worst.

        Of these p - s wait for B and s for W, which needs less: in bytes this is an upper bound on all stages but the
        first (Qi et al., ICLR 2024, §2.3, count both kinds).

        >>> [int(ZeroBubble.in_flight(stage, 4, 8)) for stage in range(4)]
        [4, 4, 4, 4]
        """
        return np.minimum(microbatches, stages)
