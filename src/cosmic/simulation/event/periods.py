"""Steps of many microbatches: a few are simulated, and what each further one adds is taken for the rest.

Once a pipeline is full, every round of microbatches takes as long as the one before. So steps of three numbers of
microbatches are simulated, equally far apart. Where every count of every rank grows by the same nanoseconds from the
first to the second as from the second to the third, it grows so up to the whole step, and the answer is that of the
whole simulation, to the nanosecond. Where they do not, longer steps are tried, and then the whole.

    c(m) = c(a) + (c(b) - c(a)) (m - a) / (b - a)        a, b, m: microbatches, with b - a a divisor of m - a
"""

from __future__ import annotations

from dataclasses import replace

from cosmic.design.batch import batch_of
from cosmic.design.point import DesignPoint
from cosmic.simulation.event.from_design import simulate_design
from cosmic.simulation.event.result import Npu, Result
from cosmic.workload.sizes import microbatches

ROUNDS = (3, 8)
"""Rounds of microbatches, one for each stage, after which a pipeline is taken to be full: first few, then more."""
WORTH = 4
"""The whole step is simulated unless it is this many times as long as the longest of those instead of it."""
COUNTS = ("cycles", "exposed_cycles", "compute_cycles", "communication_cycles", "hidden_cycles", "idle_cycles")


def simulate_step(point: DesignPoint) -> Result:
    """Return one simulated step of *point*, of which only counts are asked: no node of a long one has a time."""
    workload = point.workload
    whole = int(microbatches(batch_of(point))) if workload.task == "training" else 1
    stride = max(1, workload.pp) * max(1, workload.virtual_stages)
    for rounds in ROUNDS:
        first = rounds * stride + (whole - rounds * stride) % stride
        tried = [first, first + stride, first + 2 * stride]
        if whole < WORTH * tried[-1] or whole * workload.dp * workload.micro_batch != workload.global_batch:
            break
        each = [simulate_design(_of(point, count)) for count in tried]
        if (found := _continued(each, (whole - first) // stride)) is not None:
            return found
    return simulate_design(point)


def _of(point: DesignPoint, count: int) -> DesignPoint:
    """Return the same design with a step of so many microbatches."""
    workload = point.workload
    return replace(point, workload=replace(workload, global_batch=count * workload.dp * workload.micro_batch))


def _continued(found: list[Result], further: int) -> Result | None:
    """Return a step that is *further* strides longer than the first of three; None where they grow unevenly."""
    per_npu = []
    for first, second, third in zip(*(each.per_npu for each in found), strict=True):
        counts = _counts(first, second, third, further)
        if counts is None:
            return None
        per_npu.append(replace(first, **counts))
    ends = [each.cycles for each in found]
    if ends[2] - ends[1] != ends[1] - ends[0]:
        return None
    return replace(found[0], cycles=ends[0] + further * (ends[1] - ends[0]), per_npu=tuple(per_npu))


def _counts(first: Npu, second: Npu, third: Npu, further: int) -> dict[str, int] | None:
    counts = {}
    for name in COUNTS:
        one, two, three = (int(getattr(each, name)) for each in (first, second, third))
        if three - two != two - one:
            return None
        counts[name] = one + further * (two - one)
    return counts
