"""A program as blocks: its parts, as the layers of any other model."""

from __future__ import annotations

from collections.abc import Mapping

from cosmic.base.errors import SpecError, UnknownName
from cosmic.base.numeric import Numeric
from cosmic.design.program_model import ProgramModel, ProgramPart
from cosmic.workload.model_blocks import Block
from cosmic.workload.operator_graph import Graph, Operator, Tensor
from cosmic.workload.operator_kinds import kinds

HEAD = "head"
"""The name of the last part where parts before it are layers: it runs once, on the last stage."""


def build_program_blocks(model: ProgramModel) -> tuple[Block, ...]:
    """Return the parts of a program as blocks: what looks up rows first, then layers, and what follows them."""
    tensors = tensors_of(model)
    listed = []
    for index, part in enumerate(model.parts):
        graph = Graph(tuple(_build_operators(part, tensors)))
        position = "first" if index < model.begins else "last" if index >= model.ends else "layers"
        produced = {tensor.name for operator in graph.operators for tensor in operator.outputs}
        entering = tuple(
            name for name, tensor in graph.tensors.items() if tensor.role == "activation" and name not in produced
        )
        name, handed = HEAD if position == "last" else part.name, part.carries[1::2] if part.repeat > 1 else ()
        listed.append(Block(name, graph, part.repeat, position, entering, handed))
    return tuple(listed)


def whole_graph(model: ProgramModel) -> Graph:
    """Return all operators of a program, those of repeated parts once."""
    tensors = tensors_of(model)
    return Graph(tuple(operator for part in model.parts for operator in _build_operators(part, tensors)))


def tensors_of(model: ProgramModel) -> dict[str, Tensor]:
    """Return the tensors of a program by name.

    What enters a repeated part is an input to its first run alone: to the others it has a gradient.
    """
    handed = {name for part in model.parts if part.repeat > 1 for name in part.carries[::2]}
    return {
        tensor.name: Tensor(
            tensor.name, tensor.dims, "activation" if tensor.name in handed else tensor.role, tensor.element_bytes
        )
        for tensor in model.tensors
    }


def _build_operators(part: ProgramPart, tensors: Mapping[str, Tensor]) -> list[Operator]:
    operators = []
    for operator in part.operators:
        if operator.kind not in kinds:
            raise UnknownName.among(f"{part.name}.{operator.name}", operator.kind, "kind of operator", kinds)
        operators.append(
            Operator(
                operator.name,
                operator.kind,
                tuple(_find_tensor(tensors, name, operator.name) for name in operator.inputs),
                tuple(_find_tensor(tensors, name, operator.name) for name in operator.outputs),
                same=tuple(zip(operator.same[::2], operator.same[1::2], strict=True)),
                whole=operator.whole,
                halo=tuple(_read_halo(text) for text in operator.halo),
                serial=operator.serial,
                flop_per_element=operator.flop,
            )
        )
    return operators


def _find_tensor(tensors: Mapping[str, Tensor], name: str, operator: str) -> Tensor:
    if name not in tensors:
        raise UnknownName.among(f"operator {operator}", name, "tensor", tensors)
    return tensors[name]


def _read_halo(text: str) -> tuple[str, int, int]:
    words = text.split()
    if len(words) != 3 or not (words[1].isdecimal() and words[2].isdecimal()):
        raise SpecError("halo", text, "must be a dimension, and the rows that are read before and after a shard")
    return words[0], int(words[1]), int(words[2])


def add_equal_dims(model: ProgramModel, sizes: dict[str, Numeric]) -> dict[str, Numeric]:
    """Return *sizes* with each dimension that is as long as another brought to its size."""
    return sizes | {dim.name: sizes[dim.like] for dim in model.dims if dim.like}
