"""DualPipe: microbatches enter at both ends, and forwards overlap backwards."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import count
from typing import NamedTuple

import numpy as np

from cosmic.base.numeric import Condition, choose
from cosmic.workload.pipeline_schedule import (
    Number,
    PipelineTask,
    TaskKind,
    Undivided,
    accumulate_tasks,
    require_valid,
    schedules,
)


@schedules.register("dualpipe")
class DualPipe:
    """A bubble about that of ZB-H1, with forwards beside backwards to overlap communication (DeepSeek-V3).

    Half of the microbatches run from the first stage to the last, the other half (m / 2 … m - 1) back, so a stage holds
    two model chunks: two copies of the parameters over the pipeline. DeepSeek-AI, arXiv 2412.19437, §3.2.1.
    """

    @staticmethod
    def order(stage: int, stages: int, microbatches: int, virtual: int = 1) -> list[PipelineTask]:
        """Return the eight phases of the published order, the same on a stage and its mirror image.

        >>> [f"{task.kind}{task.microbatch}{'&' * task.with_next}" for task in DualPipe.order(0, 2, 4)]
        ['F0', 'F2', 'F1', 'BW2', 'F3&', 'BW0', 'BW3', 'B1', 'W1']
        """
        require_valid(DualPipe, stages, microbatches, virtual)
        if stages == 1:
            return accumulate_tasks(microbatches, virtual)
        half = stages // 2
        moves = _order_moves(min(stage, stages - 1 - stage), half, microbatches // 2)
        return list(_assign_microbatches(moves, near_is_reverse=stage >= half, per_direction=microbatches // 2))

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

            n max(0, B - W)  +  max(2 n F, (n - 1) F + n B)        n = p / 2 - 1

        Exact for all times, if a forward and the backward that it overlaps take F + B + W together: the overlap hides
        communication, which costs nothing here. With F = B >= W it is the published (p/2 - 1) (F&B + B - 3W)
        of DeepSeek-AI, arXiv 2412.19437, Table 2 (whose B is the whole backward), that is n (F + 2 B - W). The
        published form is too large by at most F where B > F, too small by n (F - B) where F > B >= W, and by
        n (W - B) more where W > B.

        >>> float(DualPipe.bubble(8, 20, forward_s=1, backward_s=1, weight_s=1))
        6.0
        """
        n = stages // 2 - 1
        drain = n * np.maximum(0, backward_s - weight_s)
        fill = np.maximum(2 * n * forward_s, (n - 1) * forward_s + n * backward_s)
        return (stages > 1) * (drain + fill)

    @staticmethod
    def transfers(stages: Number, microbatches: Number, virtual: Number = 1) -> tuple[Number, Number]:
        """Return about half of 1F1B's: the microbatches of both directions are on their way at once.

            max(1, 3 n) / 2        and        m (p - 1) / 2p        n = p / 2 - 1

        Exact within a quarter of a transfer and back for F = B >= W or F > B >= W. Where B > F it is n / 2 more, where
        W > B n / 2 less.

        >>> fill, steady = DualPipe.transfers(4, 16)
        >>> float(fill), float(steady)
        (1.5, 6.0)
        """
        fill = (stages > 1) * np.maximum(1, 3 * (stages // 2 - 1)) / 2
        return fill, microbatches * (stages - 1) / (2 * stages)

    @staticmethod
    def in_flight(stage: Number, stages: Number, microbatches: Number, virtual: Number = 1) -> Number:
        """Return p + 1 on every stage: p, and the forward that overlaps a backward. DeepSeek-V3, Table 2.

        >>> DualPipe.in_flight(0, 8, 20), DualPipe.in_flight(0, 1, 20)
        (9, 1)
        """
        return 1 + (stages > 1) * stages

    @staticmethod
    def parameter_copies(stages: Number) -> Number:
        """Return 2, one for each direction; 1 for a pipeline of one stage.

        >>> DualPipe.parameter_copies(8), DualPipe.parameter_copies(1)
        (2, 1)
        """
        return choose(stages > 1, 2, 1)

    @staticmethod
    def runs(stages: Number, microbatches: Number, virtual: Number = 1) -> Condition:
        """Return whether stages and microbatches are even, with at least two microbatches to a stage."""
        halves = (stages % 2 == 0) & (microbatches % 2 == 0)
        return (stages == 1) | (Undivided.runs(stages, microbatches, virtual) & halves & (microbatches >= 2 * stages))

    @staticmethod
    def invalid_reason(stages: int, microbatches: int, virtual: int = 1) -> str | None:
        """Return which of its requirements is not met.

        >>> DualPipe.invalid_reason(5, 10)
        'pp = 5: dualpipe pairs each stage with its mirror image; use an even number'
        >>> DualPipe.invalid_reason(4, 6)
        'microbatches = 6: dualpipe needs an even number, at least 2 pp = 8 (see global_batch)'
        """
        if DualPipe.runs(stages, microbatches, virtual):
            return None
        if stages % 2:
            return f"pp = {stages}: dualpipe pairs each stage with its mirror image; use an even number"
        if microbatches % 2 or microbatches < 2 * stages:
            rule = f"dualpipe needs an even number, at least 2 pp = {2 * stages} (see global_batch)"
            return f"microbatches = {microbatches}: {rule}"
        return Undivided.invalid_reason(stages, microbatches, virtual)


class _Move(NamedTuple):
    """A task whose microbatch is still open: the next of its direction, or for W the oldest pending one."""

    kind: TaskKind
    near: bool = True
    """Whether its microbatch enters at the end of the pipeline that is nearer to the stage."""
    with_next: bool = False


_F0, _F1 = _Move("F"), _Move("F", near=False)
_B0, _B1 = _Move("B"), _Move("B", near=False)
_BW0, _BW1 = _Move("BW"), _Move("BW", near=False)
_W = _Move("W")
_F0_BW1 = [_F0._replace(with_next=True), _BW1]
_F1_BW0 = [_F1._replace(with_next=True), _BW0]


def _order_moves(distance: int, half: int, per_direction: int) -> list[_Move]:
    """Return the order on a stage at *distance* from the nearer end of a pipeline of 2 *half* stages."""
    inward = half - distance - 1
    outward = distance + 1
    # On the two middle stages the first pair is not overlapped, so that its output is sent earlier.
    first = [_F0, _BW1] if inward == 0 else _F0_BW1
    return [
        *[_F0] * (2 * inward),
        *[_F0, _F1] * outward,
        *[_B1, _W, _F1] * inward,
        *first,
        *_F1_BW0,
        *[*_F0_BW1, *_F1_BW0] * (per_direction - 2 * half + distance),
        *[_BW1, *_F1_BW0] * inward,
        *([_BW1, _BW0] * outward)[:outward],  # the second half of these backwards is split, to have W for the drain
        *([_B1, _B0] * outward)[outward:],
        *[_W, _B0] * inward,
        *[_W] * outward,
    ]


def _assign_microbatches(moves: Iterable[_Move], near_is_reverse: bool, per_direction: int) -> Iterator[PipelineTask]:
    """Yield the tasks of *moves*: microbatches of one direction count from 0, reverse ones from *per_direction*."""
    reverse = {True: near_is_reverse, False: not near_is_reverse}
    forwards = {near: count(per_direction * reverse[near]) for near in reverse}
    backwards = {near: count(per_direction * reverse[near]) for near in reverse}
    waiting: deque[PipelineTask] = deque()
    for kind, near, with_next in moves:
        if kind == "W":
            yield replace(waiting.popleft(), kind="W")
            continue
        microbatch = next((forwards if kind == "F" else backwards)[near])
        task = PipelineTask(kind, microbatch, reverse=reverse[near], with_next=with_next)
        if kind == "B":
            waiting.append(task)
        yield task
