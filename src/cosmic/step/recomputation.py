"""What the backward pass makes anew: the forward operators and collectives that run twice in a training step."""

from __future__ import annotations

from functools import cache

from cosmic.design.workload import Workload
from cosmic.step.activations import kept_tensors
from cosmic.workload.blocks import Block
from cosmic.workload.operators import kinds
from cosmic.workload.sharding import CollectiveOp


def repeated(block: Block, workload: Workload) -> frozenset[str]:
    """Return the names of the forward operators of a block that run again before its backward pass.

    Those whose result was not kept, up to the last that the backward pass reads: nobody needs what a layer's last
    product makes, so PyTorch stops before it, while Megatron-LM runs on to the end. Selective recomputation makes the
    scores of attention anew; fused attention keeps none, so that it has nothing to repeat.
    """
    if workload.task != "training" or block.part != "layers":
        return frozenset()
    if workload.recompute == "none" or (workload.recompute == "selective" and workload.attention == "fused"):
        return frozenset()
    return _repeated(block, workload.recompute, workload.recompute_to_end)


@cache
def _repeated(block: Block, recompute: str, to_end: bool) -> frozenset[str]:
    operators = block.graph.operators
    if recompute == "selective":
        return frozenset(operator.name for operator in operators if operator.kind == "attention")
    kept = {tensor.name for tensor in kept_tensors(block, recompute)}
    again = operators if to_end else operators[: _needed(block)]
    return frozenset(operator.name for operator in again if recompute == "full" or operator.outputs[0].name not in kept)


def _needed(block: Block) -> int:
    """Return how many of a block's operators must run again until all is there that its backward pass reads."""
    read = {tensor.name for tensor in kept_tensors(block, "none")}
    places = [
        place
        for place, operator in enumerate(block.graph.operators)
        if operator.outputs[0].name in read or kinds[operator.kind].extra_bytes_per_output
    ]
    return max(places, default=-1) + 1


def is_repeated(found: CollectiveOp, block: Block, workload: Workload) -> bool:
    """Return whether a forward collective runs again: with the operator that makes it necessary."""
    return found.phase == "forward" and found.operator in repeated(block, workload)
