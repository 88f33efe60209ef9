"""What parts of a program hand to later parts: what a pipeline stage sends to the next."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cosmic.design.program import MOST_CUTS
from cosmic.numeric import Numeric
from cosmic.workload.graph import Sizes
from cosmic.workload.plan import BlockPlan
from cosmic.workload.sharding.annotation import Sharding, group_size

SUB_AXES = tuple(f"tp_{place}" for place in range(MOST_CUTS))
"""The parts of tp, the outermost first, in programs that cut it."""


def crossing_elements(plans: Sequence[BlockPlan], sizes: Sizes, usual: float) -> Numeric:
    """Return the most elements that a device sends of what earlier parts of a program make and later ones read.

    A tensor that states its bytes counts as so many elements of the *usual* ones.
    """
    made: dict[str, BlockPlan] = {}
    most: Numeric = 0.0
    for place, each in enumerate(plans):  # a repeated part hands on what it was handed
        read = dict.fromkeys(
            tensor.name
            for later in plans[place:]
            for operator in later.block.graph.operators
            for tensor in operator.inputs
        )
        crossing: Numeric = 0.0
        for name in read:
            if name in made:
                crossing = crossing + _sent(made[name], name, sizes, usual)
        most = np.maximum(most, crossing)
        made |= {tensor.name: each for one in each.block.graph.operators for tensor in one.outputs}
        handed: Numeric = 0.0
        for name in each.block.handed:
            handed = handed + _sent(each, name, sizes, usual)
        most = np.maximum(most, handed)
    return most


def _sent(each: BlockPlan, name: str, sizes: Sizes, usual: float) -> Numeric:
    """Return the elements of a tensor that a device sends: ranks of tp that all have it send a part each."""
    tensor, sharding = each.block.graph.tensors[name], each.shardings[name]
    whole = sharding.elements(tensor.dims, sizes)
    if tensor.element_bytes is not None:
        whole = whole * (tensor.element_bytes / usual)
    return whole if sharding.holds("tp") else whole / _alike(sharding, sizes)


def _alike(sharding: Sharding, sizes: Sizes) -> Numeric:
    """Return the ranks of tp that all have the same part of a tensor."""
    split = tuple(axis for axis in SUB_AXES if sharding.holds(axis))
    return sizes["tp"] / group_size(split, sizes) if split else sizes["tp"]
