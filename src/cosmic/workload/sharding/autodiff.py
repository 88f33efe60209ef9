"""The backward operators of a forward graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from cosmic.base.errors import UnknownName
from cosmic.workload.operator_graph import Graph, Operator, Tensor
from cosmic.workload.sharding.factor_assignment import EINSUMS

SHIFTS = ("bias", "reduce")
"""Kinds that add: the gradients of their inputs are the output's gradient, or sums or copies of it."""
MOVES = ("dispatch", "combine", "view", "copy", "gather")
"""Kinds that only move their first input: the backward pass moves its gradient and does not read the input."""


def differentiate(graph: Graph, seeds: Iterable[str], frozen: Collection[str] = ()) -> Graph:
    """Return the operators that compute gradients, given those of the tensors *seeds*.

    The gradient of ``t`` is ``d_t``. An einsum has one einsum per gradient; a sum passes its gradient on; any other
    kind has one operator ``<kind>_grad`` of the same dimensions, which reads the gradients of the outputs and the
    inputs (except those that were only moved). The gradients of a tensor that several operators read are added up.
    Tensors of the role ``input`` (token ids, images) and *frozen* weights have no gradient.
    """
    tensors = graph.tensors
    seed_names = tuple(dict.fromkeys(seeds))
    for name in seed_names:
        if name not in tensors:
            raise UnknownName.among("seeds", name, "tensor", tensors)
    # What no seed depends on has no gradient.
    active = prune(graph, seed_names).operators
    # A tensor with several readers gets a share of its gradient from each; with one, the share is the gradient.
    shares = Counter(tensor.name for operator in active for tensor in operator.inputs)
    backward = _Backward(shares + Counter(seed_names), frozenset(frozen))
    for name in seed_names:
        backward.gradients[name] = [_gradient_tensor(tensors[name])]
    for operator in reversed(active):
        backward.visit(operator)
    produced = {tensor.name for operator in active for tensor in operator.outputs}
    for name, tensor in tensors.items():
        if name in backward.gradients and name not in produced:
            backward.total(tensor, named=True)
    return Graph(tuple(backward.operators))


def prune(graph: Graph, results: Collection[str]) -> Graph:
    """Return *graph* without the operators that none of *results* depends on."""
    needed = set(results)
    operators: list[Operator] = []
    for operator in reversed(graph.operators):
        if any(tensor.name in needed for tensor in operator.outputs):
            operators.append(operator)
            needed.update(tensor.name for tensor in operator.inputs)
    return Graph(tuple(reversed(operators)))


def _gradient_tensor(tensor: Tensor, share: str = "") -> Tensor:
    return Tensor(f"d_{tensor.name}{share and '.'}{share}", tensor.dims, "gradient", tensor.element_bytes)


def _mirror_halo(operator: Operator) -> tuple[tuple[str, int, int], ...]:
    """Return the rows of the output's gradient that the gradient of the input reads: windows seen from below."""
    same = {**dict(operator.same), **{second: first for first, second in operator.same}}
    return tuple((same.get(dim, dim), after, before) for dim, before, after in operator.halo)


@dataclass
class _Backward:
    """Collects backward operators while `differentiate` runs."""

    shares: Counter[str]
    """Number of gradients to add up, by tensor."""
    frozen: frozenset[str] = frozenset()
    """Weights without a gradient."""
    operators: list[Operator] = field(default_factory=list)
    gradients: dict[str, list[Tensor]] = field(default_factory=dict)
    """Gradients made so far, by tensor."""

    def visit(self, operator: Operator) -> None:
        """Add the operators that compute the gradients of the inputs of *operator*."""
        gradients = tuple(self.total(tensor) for tensor in operator.outputs if tensor.name in self.gradients)
        if operator.kind == "add" and all(tensor.dims == operator.outputs[0].dims for tensor in operator.inputs):
            for tensor in operator.inputs:
                self._share(tensor, gradients[0])
        elif operator.kind in EINSUMS:
            for position, tensor in enumerate(operator.inputs):
                other_inputs = operator.inputs[:position] + operator.inputs[position + 1 :]
                self._apply(operator, f".{position}", (*gradients, *other_inputs), (tensor,))
        else:
            # A kind that only adds or moves needs no activations backward; all others read their inputs again.
            again = (
                () if operator.kind in SHIFTS else operator.inputs[1:] if operator.kind in MOVES else operator.inputs
            )
            self._apply(operator, "", (*gradients, *again), tuple(dict.fromkeys(operator.inputs)))

    def _apply(self, forward: Operator, suffix: str, read: tuple[Tensor, ...], asked: tuple[Tensor, ...]) -> None:
        """Add the operator that computes the gradients of *asked*."""
        targets = [
            tensor for tensor in asked if tensor.role not in ("input", "index") and tensor.name not in self.frozen
        ]
        if not targets:
            return
        name = forward.name + suffix
        outputs = [_gradient_tensor(tensor, name if self.shares[tensor.name] > 1 else "") for tensor in targets]
        kind = forward.kind if forward.kind in EINSUMS else f"{forward.kind}_grad"
        operator = Operator(f"d_{name}", kind, read, tuple(outputs), forward.same, forward.whole, phase="backward")
        if forward.halo or forward.serial:
            weight = all(tensor.role == "weight" for tensor in targets)
            operator = replace(operator, halo=forward.halo if weight else _mirror_halo(forward), serial=forward.serial)
        self.operators.append(operator)
        for tensor, gradient in zip(targets, outputs, strict=True):
            self._share(tensor, gradient)

    def _share(self, tensor: Tensor, gradient: Tensor) -> None:
        self.gradients.setdefault(tensor.name, []).append(gradient)

    def total(self, tensor: Tensor, *, named: bool = False) -> Tensor:
        """Return the gradient of *tensor*, added up from its shares; *named* enforces the name ``d_tensor``."""
        shares = self.gradients[tensor.name]
        gradient = _gradient_tensor(tensor)
        if len(shares) > 1 or (named and shares[0] != gradient):
            self.operators.append(Operator(gradient.name, "add", tuple(shares), (gradient,), phase="backward"))
            self.gradients[tensor.name] = [gradient]
        return self.gradients[tensor.name][0]
