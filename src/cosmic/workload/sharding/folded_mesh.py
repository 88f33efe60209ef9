"""Two meshes over the same devices: dense layers split them into dp, cp and tp, experts into edp, ep and etp.

This is Megatron-LM's parallel folding (Liu et al., arXiv 2504.14960). Tokens cross from one mesh to the other where
they are dispatched to experts, and back where the results are combined:

    every device has tokens of its own (sequence parallelism)
        all-to-all over ep, all-gather over etp   ▶  experts  ▶   reduce-scatter over etp, all-to-all over ep

    the devices of tp have the same tokens
        all-to-all over the part of ep outside tp  ▶  experts  ▶   all-to-all over that part, all-reduce over tp

In the second case a device sends only what goes to experts inside its own part of tp, 1 / tep of it, for the other
devices of tp send the rest. So the results of a token's experts are spread over tp and, where etp splits experts, are
partial sums: one all-reduce adds up both.
"""

from __future__ import annotations

from cosmic.workload.operator_graph import Operator, Tensor
from cosmic.workload.sharding.resharding import Step
from cosmic.workload.sharding.tensor_sharding import Axes, Sharding

CROSSINGS = ("dispatch", "combine", "dispatch_grad", "combine_grad")
"""Kinds of operators that read tensors of one mesh and make tensors of the other."""
TOKENS, EXPERTS = "tokens", "experts"


def is_folded(tensor: Tensor) -> bool:
    """Return whether *tensor* holds tokens on the mesh of experts."""
    return {TOKENS, EXPERTS} <= set(tensor.dims)


def routing_of(operator: Operator) -> Tensor:
    """Return the tensor that says which experts a token goes to, on the mesh of dense layers; a crossing reads it."""
    return operator.inputs[1]


def is_replicated(tokens: Axes) -> bool:
    """Return whether the devices of tp have the same tokens, if these *tokens* axes split them in dense layers."""
    return "tp" not in tokens


def computed(tokens: Axes, kept: Sharding) -> Sharding:
    """Return the sharding of a tensor of the experts' mesh while a crossing reads or makes it; *kept* is that after."""
    if is_replicated(tokens):
        return Sharding.of({EXPERTS: ("tep",), TOKENS: tokens}, kept.partial)
    return Sharding.of({TOKENS: tokens})


def entering(tokens: Axes, kept: Sharding) -> tuple[Step, ...]:
    """Return the steps that take tokens to experts, where they are *kept*."""
    made = computed(tokens, kept)
    if is_replicated(tokens):
        return (Step("all_to_all", ("oep",), made, kept),)
    spread = Sharding.of({EXPERTS: ("ep",), TOKENS: ("edp", "etp")})
    return Step("all_to_all", ("ep",), made, spread), Step("all_gather", ("etp",), spread, kept)


def leaving(tokens: Axes, kept: Sharding) -> tuple[Step, ...]:
    """Return the steps that take what experts made back to where their tokens are."""
    axes = ("oep",) if is_replicated(tokens) else ("ep",)
    return (Step("all_to_all", axes, kept, computed(tokens, kept)),)
