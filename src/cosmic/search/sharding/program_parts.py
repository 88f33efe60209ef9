"""A program as parts: graphs that run one after the other, each so many times, with one stream between them.

`constrain_part` spells out a choice. Annotations of tensors leave the planner free to split an operator as it likes.
Where the search chose another split, a step that changes nothing but the sharding stands between the tensor and the
operator: what JAX calls `with_sharding_constraint`. The planner then runs exactly what was chosen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from cosmic.search.sharding.sharding_prices import MARK, primal_tensor
from cosmic.workload.operator_graph import Graph, Operator, PassPhase, Sizes, Tensor
from cosmic.workload.operator_kinds import SCANS
from cosmic.workload.sharding.autodiff import differentiate
from cosmic.workload.sharding.factor_assignment import Assignment
from cosmic.workload.sharding.graph_partition import Stepping, find_stepping
from cosmic.workload.sharding.tensor_sharding import Sharding

WIDTH_KINDS = frozenset(("attention", "rope", *SCANS))
"""Kinds whose tensors end in a width that no axis may split: scores sum over it, rotations pair it."""


def mark_whole_dims(graph: Graph) -> Graph:
    """Return *graph* with the dimensions stated that attention, rotary embeddings and scans need whole."""
    return Graph(tuple(_keep_dims_whole(operator) for operator in graph.operators))


def _keep_dims_whole(operator: Operator) -> Operator:
    if operator.kind not in WIDTH_KINDS:
        return operator
    widths = {tensor.dims[-1] for tensor in operator.tensors if tensor.role != "weight" and tensor.dims}
    carried = {operator.outputs[0].dims[1]} if operator.kind in SCANS else set[str]()
    splittable = {*operator.outputs[0].dims[:3], *operator.inputs[0].dims[:3]}
    whole_dims = tuple(sorted((widths - splittable) | carried))
    return replace(operator, whole=tuple(dict.fromkeys((*operator.whole, *whole_dims))))


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
        return find_stepping(self.graph.operators, self.handed)

    @cached_property
    def results(self) -> tuple[str, ...]:
        """What no operator of the forward pass reads."""
        read = {tensor.name for operator in self.forward.operators for tensor in operator.inputs}
        outputs = (tensor.name for operator in self.forward.operators for tensor in operator.outputs)
        return tuple(name for name in outputs if name not in read or name in self.leaving)

    @cached_property
    def weights(self) -> frozenset[str]:
        """The names of its parameters."""
        return frozenset(tensor.name for tensor in self.forward.weights)

    def is_of_weight(self, tensor: Tensor) -> bool:
        """Return whether *tensor* is a weight, its gradient, or a share of that: compute overlaps its transfers."""
        return tensor.role == "weight" or (tensor.role == "gradient" and primal_tensor(tensor.name) in self.weights)

    def owner(self, operator: Operator) -> Operator:
        """Return the forward operator that an operator belongs to; a sum of gradients is its own."""
        return self._owners[id(operator)]

    @cached_property
    def _owners(self) -> dict[int, Operator]:
        """By identity: a backward operator and a sum of gradients may have one name."""
        forward_by_name = {operator.name: operator for operator in self.forward.operators}
        owners: dict[int, Operator] = {}
        for operator in self.graph.operators:
            name = operator.name.removeprefix("d_")
            if operator.phase == "forward" or operator.kind == "add":
                owners[id(operator)] = operator
            else:
                owners[id(operator)] = (
                    forward_by_name[name] if name in forward_by_name else forward_by_name[name.rpartition(".")[0]]
                )
        return owners

    @cached_property
    def kept(self) -> frozenset[str]:
        """The activations that the backward pass reads: in memory from one pass to the other."""
        later = (candidate for candidate in self.graph.operators if candidate.phase == "backward")
        return frozenset(
            tensor.name for operator in later for tensor in operator.inputs if tensor.role in ("activation", "input")
        )

    def variable(self, name: str) -> str:
        """Return the name of what decides the sharding of a tensor: a weight decides its gradient's."""
        if name.startswith("d_") and name.removeprefix("d_") in self.weights:
            name = name.removeprefix("d_")
        tensor = primal_tensor(name)
        if tensor in self.stream and name in (tensor, f"d_{tensor}"):
            return self.stream[tensor] if name == tensor else f"d_{self.stream[tensor]}"
        return f"{self.name}/{name}"


@dataclass(frozen=True)
class ProgramParts:
    """What is to be sharded, with the sizes of all dimensions."""

    name: str
    parts: tuple[Part, ...]
    sizes: Sizes
    element_bytes: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def operators(self) -> int:
        """Operators of all parts, forward and backward, each part once."""
        return sum(len(part.graph.operators) for part in self.parts)


def count_shared_once(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Return *parts* with each weight that several of them share counted in one, that which is repeated most often."""
    listed = tuple(parts)
    owners: dict[str, Part] = {}
    for part in listed:
        for name in part.weights:
            variable = part.variable(name)
            if variable not in owners or owners[variable].repeats < part.repeats:
                owners[variable] = part
    return tuple(
        replace(part, counted_elsewhere=frozenset(n for n in part.weights if owners[part.variable(n)] is not part))
        for part in listed
    )


# ---- A program with its sharding spelled out: where an operator reads or makes a tensor in another way than it is kept

IDENTITY_KIND = "add"
"""The kind of a step that changes nothing: a sum of one addend, through which pending sums may pass."""


@dataclass(frozen=True)
class Choice:
    """What was chosen for one part."""

    kept: Mapping[str, Sharding]
    """How each tensor is kept."""
    splits: Mapping[int, Assignment]
    """How each operator is split, by its identity."""
    copies: Mapping[str, Sharding]
    """The copies of tensors that several operators read."""


@dataclass
class _GraphWriter:
    choice: Choice
    operators: list[Operator] = field(default_factory=list)
    shardings: dict[str, Sharding] = field(default_factory=dict)
    known: dict[tuple[str, Sharding, PassPhase], Tensor] = field(default_factory=dict)
    added: list[tuple[str, str, Sharding]] = field(default_factory=list)

    def copy_for(self, tensor: Tensor, target: Sharding, phase: PassPhase, operator: str) -> Tensor:
        """Return *tensor* as it is kept, or the copy of it that has the sharding *target* in this pass."""
        if target == self.choice.kept[tensor.name]:
            return tensor
        copy = self.choice.copies.get(tensor.name)
        source = tensor
        if copy is not None and copy not in (target, self.choice.kept[tensor.name]):
            source = self.copy_for(tensor, copy, phase, operator)
        key = (tensor.name, target, phase)
        if key not in self.known:
            self.known[key] = self.add_step(source, tensor, target, phase)
            self.added.append((operator, tensor.name, target))
        return self.known[key]

    def add_step(self, source: Tensor, tensor: Tensor, target: Sharding, phase: PassPhase) -> Tensor:
        """Add a step from *source* to the same tensor in another sharding."""
        new = replace(tensor, name=f"{tensor.name}{MARK}{len(self.shardings)}")
        self.shardings[new.name] = target
        self.operators.append(Operator(f"{new.name}", IDENTITY_KIND, (source,), (new,), phase=phase))
        return new


def constrain_part(part: Part, choice: Choice) -> tuple[Graph, dict[str, Sharding], list[tuple[str, str, Sharding]]]:
    """Return the graph of *part* with all that was chosen spelled out, the shardings of its tensors, and the steps."""
    writer = _GraphWriter(choice, shardings=dict(choice.kept))
    for operator in part.graph.operators:
        split = choice.splits[id(operator)]
        shardings = choice.kept
        copies = {
            tensor: writer.copy_for(tensor, split.reads(tensor, shardings[tensor.name]), operator.phase, operator.name)
            for tensor in dict.fromkeys(operator.inputs)
        }
        outputs, after = [], []
        for tensor in operator.outputs:
            sharding = split.makes(tensor, shardings[tensor.name])
            if sharding == shardings[tensor.name]:
                outputs.append(tensor)
                continue
            new = replace(tensor, name=f"{tensor.name}{MARK}{len(writer.shardings)}")
            writer.shardings[new.name] = sharding
            outputs.append(new)
            after.append(Operator(f"{new.name}.kept", IDENTITY_KIND, (new,), (tensor,), phase=operator.phase))
        inputs = tuple(copies[tensor] for tensor in operator.inputs)
        writer.operators.append(replace(operator, inputs=inputs, outputs=tuple(outputs)))
        writer.operators += after
    return Graph(tuple(writer.operators)), writer.shardings, writer.added
