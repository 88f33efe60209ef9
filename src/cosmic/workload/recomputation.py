"""What the backward pass makes anew: the forward operators and collectives that run twice in a training step."""

from __future__ import annotations

from functools import cache

from cosmic.design.workload import Workload
from cosmic.workload.blocks import Block
from cosmic.workload.residue import kept_tensors
from cosmic.workload.sharding import CollectiveOp


def repeated(block: Block, workload: Workload) -> frozenset[str]:
    """Return the names of the forward operators of a block that run again before its backward pass.

    Those whose result was not kept. Selective recomputation makes the scores of attention anew; fused attention keeps
    none, so that it has nothing to repeat.
    """
    if workload.task != "training" or block.part != "layers":
        return frozenset()
    return _repeated(block, workload.recompute, workload.attention)


@cache
def _repeated(block: Block, recompute: str, attention: str) -> frozenset[str]:
    operators = block.graph.operators
    if recompute == "none" or (recompute == "selective" and attention == "fused"):
        return frozenset()
    if recompute == "selective":
        return frozenset(operator.name for operator in operators if operator.kind == "attention")
    if recompute == "full":
        return frozenset(operator.name for operator in operators)
    kept = {tensor.name for tensor in kept_tensors(block, recompute)}
    return frozenset(operator.name for operator in operators if operator.outputs[0].name not in kept)


def is_repeated(found: CollectiveOp, block: Block, workload: Workload) -> bool:
    """Return whether a forward collective runs again: with the operator that makes it necessary."""
    return found.phase == "forward" and found.operator in repeated(block, workload)
