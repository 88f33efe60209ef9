"""Programs as models of designs, and back."""

from __future__ import annotations

from dataclasses import replace

from cosmic.design.program import (
    ProgramAnnotation,
    ProgramCut,
    ProgramDim,
    ProgramModel,
    ProgramOperator,
    ProgramPart,
    ProgramTensor,
)
from cosmic.errors import UnknownName
from cosmic.programs.program import Part, Program
from cosmic.workload.graph import Graph, Operator, Tensor
from cosmic.workload.program_blocks import program_blocks, whole_graph
from cosmic.workload.program_plan import check_annotations


def model_of(program: Program) -> ProgramModel:
    """Return *program* as the model of a design: planned, priced, searched and traced like any other."""
    by_name = {operator.name: operator for operator in program.graph.operators}
    parts = program.parts or (Part(program.name, tuple(by_name)),)
    used = dict.fromkeys(dim for tensor in program.graph.tensors.values() for dim in tensor.dims)
    model = ProgramModel(
        name=program.name,
        dims=tuple(ProgramDim(name=dim, size=program.sizes[dim], like=program.like.get(dim, "")) for dim in used),
        tensors=tuple(
            ProgramTensor(
                name=each.name,
                dims=each.dims,
                role=each.role,  # type: ignore[arg-type]  # no gradient
                element_bytes=program.element_bytes.get(each.name),
            )
            for each in program.graph.tensors.values()
        ),
        parts=tuple(
            ProgramPart(
                name=part.name,
                operators=tuple(_operator(by_name[name]) for name in part.operators),
                repeat=part.repeat,
                carries=tuple(name for pair in part.carries for name in pair),
            )
            for part in parts
        ),
        annotations=tuple(
            ProgramAnnotation(tensor=name, axes=tuple(" ".join(each) for each in axes))
            for name, axes in program.annotations.items()
        ),
        cuts=tuple(ProgramCut(axis=axis, parts=parts) for axis, parts in program.cuts.items()),  # type: ignore[arg-type]
    )
    for dim in model.dims:
        if dim.like and dim.like not in used:
            raise UnknownName.among(f"like.{dim.name}", dim.like, "dimension", used)
    check_annotations(model)
    program_blocks(model)  # refuses what the plan does not know
    return model


def program_of(model: ProgramModel) -> Program:
    """Return the program that is the model of a design."""
    return Program(
        model.name,
        _as_written(model),
        dict(model.sizes),
        parts=tuple(
            Part(
                part.name,
                tuple(operator.name for operator in part.operators),
                part.repeat,
                tuple(zip(part.carries[::2], part.carries[1::2], strict=True)),
            )
            for part in model.parts
        ),
        element_bytes={each.name: each.element_bytes for each in model.tensors if each.element_bytes is not None},
        like={dim.name: dim.like for dim in model.dims if dim.like},
        cuts={each.axis: each.parts for each in model.cuts},
        annotations={each.tensor: tuple(tuple(axes.split()) for axes in each.axes) for each in model.annotations},
    )


def _as_written(model: ProgramModel) -> Graph:
    """Return the graph of a model with the roles that its file states, also of what enters repeated parts."""
    roles = {each.name: each.role for each in model.tensors}

    def stated(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(replace(each, role=roles[each.name], element_bytes=None) for each in tensors)

    whole = whole_graph(model).operators
    return Graph(tuple(replace(each, inputs=stated(each.inputs), outputs=stated(each.outputs)) for each in whole))


def _operator(each: Operator) -> ProgramOperator:
    return ProgramOperator(
        name=each.name,
        kind=each.kind,
        inputs=tuple(tensor.name for tensor in each.inputs),
        outputs=tuple(tensor.name for tensor in each.outputs),
        same=tuple(dim for pair in each.same for dim in pair),
        whole=each.whole,
        halo=tuple(f"{dim} {before} {after}" for dim, before, after in each.halo),
        serial=each.serial,
        flop=each.flop_per_element,
    )
