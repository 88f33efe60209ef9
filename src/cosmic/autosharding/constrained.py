"""A program with its sharding spelled out: where an operator reads or makes a tensor in another way than it is kept.

Annotations of tensors leave the planner free to split an operator as it likes. Where the search chose another split, a
step that changes nothing but the sharding stands between the tensor and the operator: what JAX calls
`with_sharding_constraint`. The planner then runs exactly what was chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from cosmic.autosharding.parts import MARK, Part
from cosmic.workload.graph import Graph, Operator, PassPhase, Tensor
from cosmic.workload.sharding import Sharding
from cosmic.workload.sharding.assignment import Assignment

IDENTITY = "add"
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
class _Writer:
    choice: Choice
    operators: list[Operator] = field(default_factory=list)
    shardings: dict[str, Sharding] = field(default_factory=dict)
    known: dict[tuple[str, Sharding, PassPhase], Tensor] = field(default_factory=dict)
    made: list[tuple[str, str, Sharding]] = field(default_factory=list)

    def fetched(self, tensor: Tensor, target: Sharding, phase: PassPhase, operator: str) -> Tensor:
        """Return *tensor* as it is kept, or the copy of it that has the sharding *target* in this pass."""
        if target == self.choice.kept[tensor.name]:
            return tensor
        copy = self.choice.copies.get(tensor.name)
        source = tensor
        if copy is not None and copy not in (target, self.choice.kept[tensor.name]):
            source = self.fetched(tensor, copy, phase, operator)
        key = (tensor.name, target, phase)
        if key not in self.known:
            self.known[key] = self.changed(source, tensor, target, phase)
            self.made.append((operator, tensor.name, target))
        return self.known[key]

    def changed(self, source: Tensor, tensor: Tensor, target: Sharding, phase: PassPhase) -> Tensor:
        """Add a step from *source* to the same tensor in another sharding."""
        new = replace(tensor, name=f"{tensor.name}{MARK}{len(self.shardings)}")
        self.shardings[new.name] = target
        self.operators.append(Operator(f"{new.name}", IDENTITY, (source,), (new,), phase=phase))
        return new


def constrained(part: Part, choice: Choice) -> tuple[Graph, dict[str, Sharding], list[tuple[str, str, Sharding]]]:
    """Return the graph of *part* with all that was chosen spelled out, the shardings of its tensors, and the steps."""
    writer = _Writer(choice, shardings=dict(choice.kept))
    for operator in part.graph.operators:
        split = choice.splits[id(operator)]
        kept = choice.kept
        read = {
            tensor: writer.fetched(tensor, split.reads(tensor, kept[tensor.name]), operator.phase, operator.name)
            for tensor in dict.fromkeys(operator.inputs)
        }
        outputs, after = [], []
        for tensor in operator.outputs:
            sharding = split.makes(tensor, kept[tensor.name])
            if sharding == kept[tensor.name]:
                outputs.append(tensor)
                continue
            new = replace(tensor, name=f"{tensor.name}{MARK}{len(writer.shardings)}")
            writer.shardings[new.name] = sharding
            outputs.append(new)
            after.append(Operator(f"{new.name}.kept", IDENTITY, (new,), (tensor,), phase=operator.phase))
        inputs = tuple(read[tensor] for tensor in operator.inputs)
        writer.operators.append(replace(operator, inputs=inputs, outputs=tuple(outputs)))
        writer.operators += after
    return Graph(tuple(writer.operators)), writer.shardings, writer.made
