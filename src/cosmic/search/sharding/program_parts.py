"""A program as parts: graphs that run one after the other, each so many times, with one stream between them.

`constrain_part` spells out a choice. Annotations of tensors leave the planner free to split an operator as it likes.
Where the search chose another split, a step that changes nothing but the sharding stands between the tensor and the
operator: what JAX calls `with_sharding_constraint`. The planner then runs exactly what was chosen.

What users name to have it sharded: a model of the catalog, or a file with a program.

A model becomes a program of its blocks, joined by the residual stream.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from cosmic.base.errors import SpecError, UnknownName, require
from cosmic.base.files import is_file
from cosmic.design import catalog_entries
from cosmic.design.design_batch import batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.design.loading import design_tree
from cosmic.search.mapping.design_completion import load_design
from cosmic.search.sharding.sharding_result import MARK, Mesh, Sharded, TensorSharding, primal_tensor
from cosmic.workload.attended_keys import causal_share, visible_share
from cosmic.workload.block_plans import STREAM
from cosmic.workload.mesh_sizes import sizes_of
from cosmic.workload.model_blocks import Block, blocks
from cosmic.workload.operator_graph import Graph, Operator, PassPhase, Sizes, Tensor
from cosmic.workload.operator_kinds import SCANS
from cosmic.workload.sharding.autodiff import differentiate
from cosmic.workload.sharding.factor_assignment import Assignment
from cosmic.workload.sharding.graph_partition import Stepping, find_stepping
from cosmic.workload.sharding.tensor_sharding import Sharding
from cosmic.workload.user_programs.program_graph import Program
from cosmic.workload.user_programs.program_graph import ProgramSection as Section
from cosmic.workload.user_programs.program_models import load_program

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


# ---- Models of the catalog as programs: their blocks, joined by the residual stream

DESIGN_AXES = ("dp", "cp", "tp")
"""The axes of a design over which tensors of dense layers are split, outermost first."""
PLAIN_SYSTEM = "dgx-h100"
"""Whose defaults a model without a system has; nothing is priced on it."""


def axis_names(mesh: Mesh) -> dict[str, str]:
    """Return what each axis of *mesh* is called in a design: its own name, else dp, cp and tp from the outside.

    >>> from cosmic.search.sharding.sharding_result import read_mesh
    >>> axis_names(read_mesh("x=8,y=16")), axis_names(read_mesh("tp=8,x=2"))
    ({'x': 'dp', 'y': 'tp'}, {'tp': 'tp', 'x': 'dp'})
    """
    free = [axis for axis in DESIGN_AXES if axis not in mesh.sizes]
    unnamed = [name for name in mesh.sizes if name not in DESIGN_AXES]
    if len(unnamed) == len(DESIGN_AXES) - 1 and len(free) == len(DESIGN_AXES):
        free = ["dp", "tp"]
    design_names = dict(zip(unnamed, free, strict=False))
    return {name: design_names.get(name, name) for name in mesh.sizes}


def sharded_design(
    model: str, system: str | None, mesh: Mesh, *, batch: int | None, sequence: int | None, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the design that a model, sharded over a mesh on a system, is."""
    named = axis_names(mesh)
    degrees = dict.fromkeys(DESIGN_AXES, 1) | {named[axis]: size for axis, size in mesh.axes}
    global_batch = batch if batch is not None else 2 * mesh.devices
    require(global_batch >= 1, "batch", global_batch, "must be at least 1")
    dp = degrees["dp"]
    require(global_batch % dp == 0, "batch", global_batch, f"must be a multiple of the {dp} devices of the outer axis")
    workload: dict[str, Any] = {
        **degrees,
        "pp": 1,
        "ep": 1,
        "global_batch": global_batch,
        "micro_batch": global_batch // dp,
        "placement": [
            *(named[name] for name in reversed(mesh.sizes)),
            *[axis for axis in reversed(DESIGN_AXES) if axis not in named.values()],
            "pp",
        ],
        "weight_sharding": "none",
        "sequence_parallel": False,
        "cp_comm_type": "all_gather",
        "recompute": "none",
        **({"sequence": sequence} if sequence is not None else {}),
        **settings,
    }
    return {"model": model, "system": f"{system or PLAIN_SYSTEM}:{mesh.devices}", "workload": workload}


def model_parts(name: str, point: DesignPoint, *, training: bool) -> ProgramParts:
    """Return the blocks of a design's model as parts that the residual stream joins."""
    batch = batch_of(point)
    parts = []
    all_blocks = blocks(point.model, training and point.workload.dropout)
    weight_counts = Counter(weight.name for block in all_blocks for weight in block.graph.weights)
    for block in all_blocks:
        extra = {"visible": float(visible_share(batch, block))}
        # A strategy has one sharding for a name, and an embedding may be the head's weight too.
        shared = {weight.name: weight.name for weight in block.graph.weights if weight_counts[weight.name] > 1}
        stream = {**_stream(block), **shared}
        parts.append(Part(block.name, mark_whole_dims(block.graph), training, block.repeats, stream, extra=extra))
    sizes = {key: float(value) for key, value in sizes_of(batch).items()}
    return ProgramParts(name, tuple(parts), sizes)


def _stream(block: Block) -> dict[str, str]:
    """Return the tensors of a block that are the residual stream between blocks: what enters, and what leaves."""
    tensors = block.graph.tensors
    stream = {}
    if "x" in tensors and tensors["x"].role == "activation":
        stream["x"] = f"stream[{','.join(tensors['x'].dims)}]"
    leaving = block.graph.operators[-1].outputs[0]
    if block.part != "last" and leaving.name in STREAM:
        stream[leaving.name] = f"stream[{','.join(leaving.dims)}]"
    return stream


def is_catalog_model(name: str) -> bool:
    """Return whether *name* is a model of the catalog, or a folder or file of Hugging Face."""
    return catalog_entries.resolve_name("models", name) is not None


def load_sharded_design(tree: Mapping[str, Any]) -> DesignPoint:
    """Return the design of `sharded_design`, complete."""
    return load_design(tree, plain=True)


# ---- What users name: a model of the catalog, or a file with a program

EQUAL_DIMS = {"sequence": ("context", "source"), "batch": ("samples",)}
"""Dimensions that are as long as another by their names."""


def read_program(name: str) -> Program | str:
    """Return the program of ``my.yaml``, ``FILE.py:function`` or ``FILE.py:Module``, or the name of a model."""
    if is_catalog_model(name):
        return name
    path, _, _ = name.rpartition(":")
    if is_file(name) or path.endswith(".py"):
        return load_program(name)
    raise UnknownName.among("program", name, "model", catalog_entries.entry_names("models"))


def program_parts(program: Program, *, training: bool) -> ProgramParts:
    """Return the parts of a program: what one hands to another, or to its next run, is one tensor."""
    full_graph = program.graph
    sections = program.parts or (Section(program.name, tuple(node.name for node in full_graph.operators)),)
    by_name = {operator.name: operator for operator in full_graph.operators}
    graphs = [Graph(tuple(by_name[name] for name in section.operators)) for section in sections]
    in_parts = Counter(name for graph in graphs for name in graph.tensors)
    carried = {after: before for section in sections for before, after in section.carries}
    shared = {name for name, times in in_parts.items() if times > 1} | {*carried, *carried.values()}
    parts = []
    for section, graph in zip(sections, graphs, strict=True):
        stream = {name: carried.get(name, name) for name in graph.tensors if name in shared}
        leaving = tuple(name for name in graph.tensors if name in shared)
        handed = tuple(name for pair in section.carries for name in pair)
        parts.append(
            Part(section.name, mark_whole_dims(graph), training, section.repeat, stream, leaving, handed=handed)
        )
    visible = float(causal_share(program.sizes.get("sequence", 1)))
    return ProgramParts(program.name, tuple(parts), {"visible": visible, **program.sizes}, program.element_bytes)


def resize_program(program: Program, **new_sizes: int | None) -> Program:
    """Return *program* with dimensions of other sizes, those that are *new_sizes*, and what is as long as they are.

    >>> from cosmic.workload.user_programs.program_yaml import read_program
    >>> tree = {"dims": {"batch": 8, "wide": 4}, "inputs": {"x": ["batch", "wide"]}}
    >>> small = read_program({**tree, "operators": [{"name": "y", "gelu": "x"}]})
    >>> resize_program(small, batch=64, sequence=None).sizes
    {'batch': 64, 'wide': 4}
    """
    sizes = dict(program.sizes)
    for dim, size in new_sizes.items():
        if size is None:
            continue
        require(size >= 1, dim, size, "must be at least 1")
        require(dim in sizes, dim, size, f"{program.name} has no dimension of this name: its sizes are its own")
        equal_dims = [*EQUAL_DIMS.get(dim, ()), *(alias for alias, dim_of in program.like.items() if dim_of == dim)]
        sizes |= {name: size for name in (dim, *equal_dims) if name in sizes}
    return replace(program, sizes=sizes)


# ---- A sharding as a strategy, for `workload.strategies` of a design


DATA_AXES = ("dp", "cp")
STORED_SUFFIX = "weights"
"""How the name of the second table ends."""


def strategy_tables(result: Sharded, name: str) -> dict[str, dict[str, Any]]:
    """Return the tables of strategies that say what was *result*, by their names: one, or two."""
    if not result.design:
        raise SpecError("out", name, "a strategy is of a model on a system: give both")
    if any("experts" in entry.dims for entry in result.annotations):
        raise SpecError("out", name, "experts have a mesh of their own in a design: search ep there")
    shardings: dict[str, TensorSharding] = {}
    for annotation in result.annotations:
        previous = shardings.setdefault(annotation.tensor, annotation)
        if previous.sharding != annotation.sharding and previous.dims == annotation.dims:
            rule = f"is [{previous.sharding}] in {previous.part} and [{annotation.sharding}] in {annotation.part}: a strategy has one"
            raise SpecError("out", annotation.tensor, rule)
    named = axis_names(result.mesh)
    used = {
        tensor: sharding
        for tensor, sharding in shardings.items()
        if sharding.role != "weight" or not stores_sharded_weights(result)
    }
    source = f"cosmic model shard {result.program} --mesh {result.mesh}"
    tables = {name: _strategy_table(f"Sharding of {result.program}, found", source, used, named)}
    if stores_sharded_weights(result):
        weights = {tensor: sharding for tensor, sharding in shardings.items() if sharding.role == "weight"}
        table = _strategy_table(f"Stored weights of {result.program}, found", source, weights, named)
        tables[f"{name}_{STORED_SUFFIX}"] = {**table, "stored": True}
    return tables


def stores_sharded_weights(result: Sharded) -> bool:
    """Return whether weights are split over data-parallel axes: gathered before use."""
    named = axis_names(result.mesh)
    return any(
        named[axis] in DATA_AXES
        for annotation in result.annotations
        if annotation.role == "weight"
        for axis in annotation.sharding.used
    )


def _strategy_table(
    title: str, source: str, tensors: dict[str, TensorSharding], named: dict[str, str]
) -> dict[str, Any]:
    tensors_by_rule: dict[tuple[object, ...], list[str]] = {}
    rules: dict[tuple[object, ...], dict[str, Any]] = {}
    for tensor, annotation in tensors.items():
        dims = {dim: [named[axis] for axis in axes] for dim, axes in annotation.sharding.dims}
        partial = [named[axis] for axis in annotation.sharding.partial]
        key = (annotation.dims, str(dims), str(partial))
        tensors_by_rule.setdefault(key, []).append(tensor)
        rules[key] = {"dims": dims, "instead": list(dict.fromkeys(annotation.dims))} | (
            {"partial": partial} if partial else {}
        )
    annotations = [{"tensors": names, **rules[key]} for key, names in tensors_by_rule.items()]
    return {"title": title, "source": source, "annotations": annotations}


def design_with(result: Sharded, names: list[str]) -> dict[str, Any]:
    """Return the design that has these strategies."""
    tree = design_tree(load_sharded_design(result.design))  # complete, so that nothing of it is searched
    return {**tree, "workload": {**tree["workload"], "strategies": names}}
