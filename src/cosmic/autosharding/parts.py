"""A program as parts: graphs that run one after the other, each so many times, with one stream between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from cosmic.autosharding.prices import MARK, primal
from cosmic.workload.graph import Graph, Operator, Sizes, Tensor
from cosmic.workload.operators import SCANS
from cosmic.workload.sharding.autodiff import differentiate
from cosmic.workload.sharding.stepping import Stepping, stepping

__all__ = ["MARK", "Part", "Parts", "as_computed"]
WIDTHS = frozenset(("attention", "rope", *SCANS))
"""Kinds whose tensors end in a width that no axis may split: scores sum over it, rotations pair it."""


def as_computed(graph: Graph) -> Graph:
    """Return *graph* with the dimensions stated that attention, rotary embeddings and scans need whole."""
    return Graph(tuple(_with_whole(operator) for operator in graph.operators))


def _with_whole(operator: Operator) -> Operator:
    if operator.kind not in WIDTHS:
        return operator
    widths = {tensor.dims[-1] for tensor in operator.tensors if tensor.role != "weight" and tensor.dims}
    carried = {operator.outputs[0].dims[1]} if operator.kind in SCANS else set[str]()
    kept = {*operator.outputs[0].dims[:3], *operator.inputs[0].dims[:3]}
    more = tuple(sorted((widths - kept) | carried))
    return replace(operator, whole=tuple(dict.fromkeys((*operator.whole, *more))))


@dataclass(frozen=True)
class Part:
    """A graph that runs *repeats* times; a layer of a model, or a whole program."""

    name: str
    forward: Graph
    training: bool
    repeats: int = 1
    stream: Mapping[str, str] = field(default_factory=dict)
    """Tensors that are one and the same for all parts, such as what enters and leaves a layer, with its name."""
    leaving: tuple[str, ...] = ()
    """Tensors that other parts read, beside those that none of its own operators reads."""
    extra: Mapping[str, float] = field(default_factory=dict)
    """Sizes that this part has beside those of the program."""
    handed: tuple[str, ...] = ()
    """Tensors that one step or one run hands to the next."""
    counted_elsewhere: frozenset[str] = frozenset()
    """Weights that are those of another part too, which counts their memory and their update."""

    @cached_property
    def graph(self) -> Graph:
        """The operators of both passes."""
        if not self.training:
            return self.forward
        return Graph((*self.forward.operators, *differentiate(self.forward, self.results).operators))

    @cached_property
    def stepping(self) -> Stepping:
        """Which tensors every step of a recurrence sends on its own."""
        return stepping(self.graph.operators, self.handed)

    @cached_property
    def results(self) -> tuple[str, ...]:
        """What no operator of the forward pass reads."""
        read = {tensor.name for operator in self.forward.operators for tensor in operator.inputs}
        made = (tensor.name for operator in self.forward.operators for tensor in operator.outputs)
        return tuple(name for name in made if name not in read or name in self.leaving)

    @cached_property
    def weights(self) -> frozenset[str]:
        """The names of its parameters."""
        return frozenset(tensor.name for tensor in self.forward.weights)

    def is_of_weight(self, tensor: Tensor) -> bool:
        """Return whether *tensor* is a weight, its gradient, or a share of that: compute overlaps its transfers."""
        return tensor.role == "weight" or (tensor.role == "gradient" and primal(tensor.name) in self.weights)

    def owner(self, operator: Operator) -> Operator:
        """Return the forward operator that an operator belongs to; a sum of gradients is its own."""
        return self._owners[id(operator)]

    @cached_property
    def _owners(self) -> dict[int, Operator]:
        """By identity: a backward operator and a sum of gradients may have one name."""
        own = {operator.name: operator for operator in self.forward.operators}
        found: dict[int, Operator] = {}
        for operator in self.graph.operators:
            name = operator.name.removeprefix("d_")
            if operator.phase == "forward" or operator.kind == "add":
                found[id(operator)] = operator
            else:
                found[id(operator)] = own[name] if name in own else own[name.rpartition(".")[0]]
        return found

    @cached_property
    def kept(self) -> frozenset[str]:
        """The activations that the backward pass reads: in memory from one pass to the other."""
        later = (each for each in self.graph.operators if each.phase == "backward")
        return frozenset(
            tensor.name for operator in later for tensor in operator.inputs if tensor.role in ("activation", "input")
        )

    def variable(self, name: str) -> str:
        """Return the name of what decides the sharding of a tensor: a weight decides its gradient's."""
        if name.startswith("d_") and name.removeprefix("d_") in self.weights:
            name = name.removeprefix("d_")
        tensor = primal(name)
        if tensor in self.stream and name in (tensor, f"d_{tensor}"):
            return self.stream[tensor] if name == tensor else f"d_{self.stream[tensor]}"
        return f"{self.name}/{name}"


@dataclass(frozen=True)
class Parts:
    """What is to be sharded, with the sizes of all dimensions."""

    name: str
    parts: tuple[Part, ...]
    sizes: Sizes
    element_bytes: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def operators(self) -> int:
        """Operators of all parts, forward and backward, each part once."""
        return sum(len(part.graph.operators) for part in self.parts)


def counted_once(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Return *parts* with each weight that several of them share counted in one, that which is repeated most often."""
    found = tuple(parts)
    owners: dict[str, Part] = {}
    for part in found:
        for name in part.weights:
            variable = part.variable(name)
            if variable not in owners or owners[variable].repeats < part.repeats:
                owners[variable] = part
    return tuple(
        replace(part, counted_elsewhere=frozenset(n for n in part.weights if owners[part.variable(n)] is not part))
        for part in found
    )
