"""A program as blocks, the layers of any other model, and its plan: how each part is partitioned.

Annotations are propagated over the whole program, then each part is partitioned by itself. What one part makes and
another reads has one sharding, that of the whole graph, so that a part can be planned alone; what a repeated part hands
to its next run is split as it was when it entered.
"""

from __future__ import annotations

from collections.abc import Mapping

from cosmic.base.errors import SpecError, UnknownName, require
from cosmic.base.numeric import Numeric
from cosmic.design.program_model import ProgramModel, ProgramPart
from cosmic.workload.model_blocks import Block, blocks
from cosmic.workload.operator_graph import Graph, Operator, Sizes, Tensor
from cosmic.workload.operator_kinds import kinds
from cosmic.workload.sharding.autodiff import differentiate
from cosmic.workload.sharding.graph_partition import Partitioned, partition, split_into_steps
from cosmic.workload.sharding.propagation import propagate
from cosmic.workload.sharding.tensor_sharding import Annotation, Sharding

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


# ---- the plan of a program


AXES = ("dp", "cp", "tp")
"""Axes of a mesh that annotations of a program may name."""
BATCH, SEQUENCE = "batch", "sequence"
STORED = ("dp", "cp")
"""Axes of replicas, over which sharded weights are stored."""


def plan_part(
    model: ProgramModel, block: Block, shardings: Mapping[str, Sharding], sizes: Sizes, training: bool, sharded: bool
) -> tuple[Partitioned, Mapping[str, Sharding]]:
    """Return a part of a program as each device runs it, given the *shardings* of the whole forward graph.

    With *sharded*, weights are stored split over their replicas (ZeRO-3, FSDP), along the first dimension that has no
    axis of its own.
    """
    graph = block.graph
    edges = _boundary_tensors(model, block)
    if training:
        results = [name for name in edges if any(name == tensor.name for tensor in _output_tensors(graph))]
        graph = Graph((*graph.operators, *differentiate(graph, results).operators))
    boundary = [*edges, *(tensor.name for tensor in (_attended_tensors(graph) if "cp" in model.axes else ()))]
    fixed = {**{name: shardings[name] for name in boundary}, **_annotated_shardings(model, graph)}
    weights = {weight.name: shardings[weight.name] for weight in graph.weights}
    held = {**fixed, **weights}
    tensors = graph.tensors
    annotations = {name: Annotation(sharding) for name, sharding in held.items() if name in tensors}
    annotations |= {f"d_{name}": Annotation(sharding) for name, sharding in held.items() if f"d_{name}" in tensors}
    annotations |= {
        name: Annotation(shardings[name]) for name, tensor in tensors.items() if tensor.role in ("input", "index")
    }
    used = propagate(graph, annotations, sizes=sizes)
    axes = tuple(axis for axis in STORED if axis == "dp" or axis in model.axes)
    stored = {**used, **(_stored_shardings(graph, used, axes) if sharded else {})}
    partitioned = partition(graph, stored, sizes=sizes, mode="as_written")
    handed = {name for part in model.parts for name in part.carries}
    return split_into_steps(partitioned, handed), used


def forward_shardings(model: ProgramModel, sizes: Sizes) -> dict[str, Sharding]:
    """Return the sharding of every tensor of the forward graph: what annotations say, and what follows from them."""
    graph = whole_graph(model)
    annotations = {
        name: Annotation(sharding, _open_dims(graph, name, sharding))
        for name, sharding in _annotated_shardings(model, graph).items()
    }
    inputs = {tensor.name for tensor in model.tensors if tensor.role in ("input", "index")}
    for tensor in graph.tensors.values():
        if tensor.name in inputs and tensor.name not in annotations:
            # No annotation names this input: its batch is split over dp, its sequence over cp where a program uses cp.
            dims = {BATCH: ("dp",)} if BATCH in tensor.dims else {}
            if SEQUENCE in tensor.dims and "cp" in model.axes:
                dims[SEQUENCE] = ("cp",)
            split = Sharding.of(dims)
            if split.dims:
                annotations[tensor.name] = Annotation(
                    split, tuple(dim for dim in tensor.dims if not split.axes(dim)), 1
                )
    for tensor in _attended_tensors(graph) if "cp" in model.axes else ():
        if tensor.name not in annotations:
            # Every rank of cp keeps the keys and values of its own tokens, and passes them on.
            own_tokens = Sharding.of({tensor.dims[1]: ("cp",)})
            annotations[tensor.name] = Annotation(own_tokens, (tensor.dims[0], *tensor.dims[2:]), 1)
    shardings = propagate(graph, annotations, sizes=sizes)
    for part in model.parts:
        for enters, leaves in zip(part.carries[::2], part.carries[1::2], strict=True):
            if not shardings[enters].dims and enters not in annotations:
                shardings[enters] = _rename_sharding(shardings[leaves], graph.tensors[leaves], graph.tensors[enters])
            shardings[leaves] = _rename_sharding(shardings[enters], graph.tensors[enters], graph.tensors[leaves])
    return shardings


def _attended_tensors(graph: Graph) -> list[Tensor]:
    """Return the keys and values of all attention operators."""
    return [tensor for operator in graph.operators if operator.kind == "attention" for tensor in operator.inputs[1:3]]


def _rename_sharding(sharding: Sharding, source: Tensor, target: Tensor) -> Sharding:
    """Return the sharding of one tensor for another whose dimensions may have other names."""
    names = dict(zip(source.dims, target.dims, strict=True))
    return Sharding.of({names[dim]: axes for dim, axes in sharding.dims})


def _annotated_shardings(model: ProgramModel, graph: Graph) -> dict[str, Sharding]:
    """Return what annotations say of the tensors of *graph*; a batch that they leave is split over dp."""
    shardings = {}
    for annotation in model.annotations:
        tensor = graph.tensors.get(annotation.tensor)
        if tensor is None:
            continue
        dims = {dim: _expand_axes(model, axes) for dim, axes in zip(tensor.dims, annotation.axes, strict=True) if axes}
        used = {axis for axes in dims.values() for axis in axes}
        if BATCH in tensor.dims and BATCH not in dims and "dp" not in used and tensor.role != "weight":
            dims[BATCH] = ("dp",)
        shardings[annotation.tensor] = Sharding.of(dims)
    return shardings


def _expand_axes(model: ProgramModel, axes: str) -> tuple[str, ...]:
    return tuple(name for axis in axes.split() for name in model.written(axis))


def _open_dims(graph: Graph, name: str, sharding: Sharding) -> tuple[str, ...]:
    tensor = graph.tensors[name]
    return () if tensor.role == "weight" else tuple(dim for dim in tensor.dims if not sharding.axes(dim))


def _output_tensors(graph: Graph) -> list[Tensor]:
    return [tensor for operator in graph.operators for tensor in operator.outputs]


def _boundary_tensors(model: ProgramModel, block: Block) -> list[str]:
    """Return the tensors that enter or leave a part: read by none of its operators, or by those of other parts too."""
    read_inside = {tensor.name for operator in block.graph.operators for tensor in operator.inputs}
    outside = {
        tensor.name
        for other_block in blocks(model)
        if other_block.name != block.name
        for operator in other_block.graph.operators
        for tensor in operator.inputs
    }
    handed = {name for part in model.parts for name in part.carries[1::2]}
    leaving = [
        tensor.name
        for tensor in _output_tensors(block.graph)
        if tensor.name not in read_inside or tensor.name in outside or tensor.name in handed
    ]
    return [*block.kept_whole, *leaving]


def _stored_shardings(graph: Graph, used: Mapping[str, Sharding], axes: tuple[str, ...]) -> dict[str, Sharding]:
    """Return the weights and their gradients stored over replicas, along the first dimension that nothing splits."""
    shardings: dict[str, Sharding] = {}
    for weight in graph.weights:
        sharding = used[weight.name]
        free = tuple(axis for axis in axes if axis not in sharding.used)
        dim = next((dim for dim in weight.dims if not sharding.axes(dim)), None)
        if free and weight.dims:
            dim = dim or weight.dims[0]
            stored = sharding.split(dim, sharding.axes(dim) + free)
            shardings |= {name: stored for name in (weight.name, f"d_{weight.name}") if name in used}
    return shardings


def check_annotations(model: ProgramModel) -> None:
    """Raise an error if an annotation names no tensor, no axis, or a tensor of another number of dimensions."""
    tensors, axis_names = tensors_of(model), (*AXES, *model.cut_sizes)
    for annotation in model.annotations:
        where = f"annotations.{annotation.tensor}"
        if annotation.tensor not in tensors:
            raise UnknownName.among(where, annotation.tensor, "tensor", tensors)
        dims = tensors[annotation.tensor].dims
        if len(dims) != len(annotation.axes):
            rule = f"the tensor has {len(dims)} dimensions, {', '.join(dims)}: give an axis or _ for each"
            raise SpecError(where, list(annotation.axes), rule)
        for axis in " ".join(annotation.axes).split():
            if axis not in axis_names:
                raise UnknownName.among(where, axis, "mesh axis", axis_names)
        named = [name for axes in annotation.axes for name in _expand_axes(model, axes)]
        twice = sorted({name for name in named if named.count(name) > 1})
        require(not twice, where, list(annotation.axes), f"{', '.join(twice)} may be used once only")
