"""Layers cut so that the slowest stage is as quick as can be: `workload.stage_layers: balanced`.

The embedding is on the first stage and the head on the last. In units of the time of one layer they take e and h, and
a stage may take t: then the first stage has room for floor(t - e) layers, the last for floor(t - h), each other one for
floor(t). The smallest t that has room for all layers is a whole number, or has the fraction of e or of h. For each of
the three it is found by bisection, as room grows with t.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cosmic.base.numeric import Numeric, sum_of
from cosmic.design.design_batch import Batch, batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.step.stage_time import stage_time
from cosmic.workload.block_plans import plan_of
from cosmic.workload.mesh_sizes import cut_of
from cosmic.workload.model_blocks import Block
from cosmic.workload.operator_graph import PASSES
from cosmic.workload.pipeline_cut import Cut, StatedLayers, cuts

NOTHING = 1e-30
"""Seconds of a layer at least, to divide by."""
MOST_VIRTUAL = 64
ROUNDING = 1e-9
"""Layers' worth of time that makes no difference."""


@cuts.register("balanced")
def balanced_cut(batch: Batch, blocks: Sequence[Block], even: Cut) -> Cut:
    """Return the cut of a pipeline whose slowest stage takes least; the *even* one where that is as quick.

    Layers of several kinds count with their mean. With virtual stages, layers of first and last stage are a multiple.
    """
    first_s, layer_s, last_s = part_seconds(batch, blocks)
    ends = first_s / np.maximum(layer_s, NOTHING), last_s / np.maximum(layer_s, NOTHING)
    first, last, better = balanced_layers(even.layers, even.stages, *ends, even.virtual)
    stated: Any = better * 1
    return Cut(
        even.layers,
        even.stages,
        even.virtual,
        StatedLayers(stated, stated * (first // even.virtual)),
        StatedLayers(stated, stated * (last // even.virtual)),
    )


def part_seconds(batch: Batch, blocks: Sequence[Block]) -> tuple[Numeric, Numeric, Numeric]:
    """Return the seconds of a step's passes of what is on the first stage alone, of a layer, and of the last alone.

    Of designs that cut layers evenly: which layers recompute, where only some do, depends on the cut.
    """
    even = Batch(batch.base.changed({"workload.stage_layers": "even"}), batch.columns)
    named = [plan.block for plan in plan_of(even)]
    layers = sum(block.repeats for block in named if block.part == "layers")

    def seconds(part: str) -> Numeric:
        return sum_of((block.repeats * _block_seconds(even, block) for block in named if block.part == part), 0.0)

    return seconds("first"), seconds("layers") / max(layers, 1), seconds("last")


def _block_seconds(batch: Batch, block: Block) -> Numeric:
    """Return the seconds of all passes of a block in a step, on a device that has nothing else."""
    counts = {plan.block.name: float(plan.block.name == block.name) for plan in plan_of(batch)}
    block_time = stage_time(batch, counts)
    trains = batch.base.workload.task == "training"
    return sum_of((block_time.seconds(phase) for phase in (PASSES if trains else PASSES[:1])), 0.0)


def balanced_layers(
    layers: int, stages: Numeric, first: Numeric, last: Numeric, virtual: Numeric = 1
) -> tuple[Numeric, Numeric, Any]:
    """Return the layers of first and last stage that make the slowest stage quickest; and whether an even cut is not.

    *first* and *last* are what these stages have besides layers, in units of the time of a layer. Where stages have
    room to spare, first and last have no fewer layers than their even share.

    A head of 1.3 layers: 62 layers on 4 stages take 16.3 if cut evenly (16, 16, 15, 15), and 16.05 with one layer less
    beside it:

    >>> [int(each) for each in balanced_layers(62, 4, 0.05, 1.3)]
    [16, 14, 1]

    Two stages of 8 layers, the last with a head of 4 layers: 6 and 2 take 6 each.

    >>> [int(each) for each in balanced_layers(8, 2, 0.0, 4.0)]
    [6, 2, 1]
    """
    middle = np.maximum(stages - 2, 0)

    def room(end_time: Numeric, limit: Numeric) -> Numeric:
        return np.maximum(np.floor((limit - end_time + ROUNDING) / virtual), 0.0) * virtual

    def rooms(limit: Numeric) -> Numeric:
        return room(first, limit) + room(last, limit) + middle * np.floor(limit + ROUNDING)

    fewest = np.where(stages > 2, 0.0, np.floor(np.minimum(first, last)))  # two stages both have more than layers
    least: Numeric = np.inf
    for end_time in (0.0, first, last):
        fraction = end_time - np.floor(end_time)
        low, high = fewest - 2, fewest + layers + virtual
        for _ in range((layers + MOST_VIRTUAL + 2).bit_length()):
            half = (low + high) // 2
            enough = rooms(half + fraction) >= layers
            low, high = np.where(enough, low, half), np.where(enough, half, high)
        least = np.minimum(least, high + fraction)
    share = layers // stages
    spare = rooms(least) - layers
    first_layers = room(first, least)
    fewer = _round_down(np.minimum(spare, np.maximum(first_layers - share, 0)), virtual)
    first_count, spare = first_layers - fewer, spare - fewer
    last_layers = room(last, least)
    last_layers = last_layers - _round_down(np.minimum(spare, np.maximum(last_layers - share, 0)), virtual)
    last_layers = np.where(stages == 2, layers - first_count, last_layers)
    slowest = np.maximum(np.maximum(first, last), least)
    evenly = np.maximum(-(-layers // stages) + first, layers // stages + last)
    better = (stages > 1) & (slowest < evenly * (1 - ROUNDING) - ROUNDING) & (last_layers % virtual == 0)
    return first_count, last_layers, better


def _round_down(count: Numeric, virtual: Numeric) -> Numeric:
    """Return the largest multiple of *virtual* that a count is not below."""
    return count // virtual * virtual


def state_end_layers(point: DesignPoint) -> DesignPoint:
    """Return a design that states the layers of its first and last stage in place of a rule for them.

    For who runs it: frameworks take numbers.

    >>> from cosmic.search.mapping.design_completion import load_design
    >>> stages = {"dp": 4, "tp": 1, "pp": 2, "stage_layers": "balanced"}
    >>> found = state_end_layers(load_design("llama3-8b@dgx-h100:8", stages))
    >>> found.workload.first_stage_layers, found.workload.last_stage_layers, found.workload.stage_layers
    (17, 15, 'even')
    """
    if point.workload.stage_layers == "even":
        return point
    batch = batch_of(point)
    cut = cut_of(batch, [plan.block for plan in plan_of(batch)])
    changes: dict[str, Any] = {"workload.stage_layers": "even"}
    for end, stated in ("first", cut.first), ("last", cut.last):
        changes[f"workload.{end}_stage_layers"] = int(stated.layers * cut.virtual) if stated.given else None
    return point.changed(changes)
