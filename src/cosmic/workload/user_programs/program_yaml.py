"""Read programs in YAML: their keys and JSON Schema, and what each kind of operator makes of what it reads.

    program: perceptron
    dims: {batch: 512, inner: 1024, outer: 4096}
    inputs: {x: [batch, inner]}
    operators:
      - {name: up, einsum: [x, w_up], to: [batch, outer], weights: {w_up: [inner, outer]}}
      - {name: open, gelu: up}

An operator has a name, which is that of what it makes, and its kind with what it reads. The keys are explained in
`docs/how-to/bring-a-program.md`; `cosmic.workload.user_programs.program_yaml` has them as a JSON Schema.

`ProgramScope` and `OperatorEntry` are what an operator knows while it is read: tensors, dimensions, its own keys.

Each kind of operator has a builder; those whose windows slide are convolutions and poolings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import log2, prod
from typing import Any

from cosmic.base.errors import SpecError, UnknownName, require
from cosmic.design import schema
from cosmic.workload.operator_graph import Graph, Operator, Tensor
from cosmic.workload.sharding.graph_partition import halo_rows
from cosmic.workload.user_programs.program_graph import Program, ProgramSection, read_annotations

Dims = tuple[str, ...]


@dataclass
class ProgramScope:
    """The tensors and dimensions of a program that is being read."""

    sizes: dict[str, int]
    like: dict[str, str]
    tensors: dict[str, Tensor] = field(default_factory=dict)

    def dim(self, name: Any, where: str) -> str:
        """Return a dimension that is known."""
        if not isinstance(name, str) or name not in self.sizes:
            raise UnknownName.among(where, str(name), "dimension", self.sizes)
        return name

    def dims(self, tree: Any, where: str) -> Dims:
        """Return a list of dimensions that are known."""
        tree = [tree] if isinstance(tree, str) else tree
        require(isinstance(tree, list), where, tree, "must be a list of dimensions")
        dims = tuple(self.dim(name, where) for name in tree)
        require(len(set(dims)) == len(dims), where, tree, "names a dimension twice: give one of them another name")
        return dims

    def declare(self, name: str, tree: Any, role: str, where: str) -> None:
        """Read a tensor that no operator makes: an index has a dimension that it points into."""
        require(name not in self.tensors, where, name, "is declared twice")
        if isinstance(tree, Mapping):
            for key in tree:
                if key not in ("dims", "of"):
                    raise UnknownName.key(f"{where}.{key}", tree[key], ("dims", "of"))
            dims = (*self.dims(tree.get("dims"), where), self.dim(tree.get("of"), f"{where}.of"))
            self.tensors[name] = Tensor(name, dims, "index")
            return
        self.tensors[name] = Tensor(name, self.dims(tree, where), role)  # type: ignore[arg-type]  # one of four words

    def tensor(self, name: Any, where: str) -> Tensor:
        """Return a tensor that is known."""
        if not isinstance(name, str) or name not in self.tensors:
            raise UnknownName.among(where, str(name), "tensor", self.tensors)
        return self.tensors[name]

    def make(self, name: Any, dims: Dims, where: str) -> Tensor:
        """Return a new activation."""
        require(isinstance(name, str) and bool(name.strip()), f"{where}.name", name, "must be text")
        require(name not in self.tensors, f"{where}.name", name, "is another tensor's name")
        require(" " not in name, f"{where}.name", name, "must be one word")
        self.tensors[name] = Tensor(name, dims)
        return self.tensors[name]


@dataclass(frozen=True, slots=True)
class OperatorEntry:
    """One operator of the file: its keys, and what it reads."""

    state: ProgramScope
    kind: str
    tree: Mapping[str, Any]
    where: str
    inputs: tuple[Tensor, ...]

    def operator(self, kind: str, dims: Dims, **details: Any) -> Operator:
        """Return an operator of a kind that makes a tensor of some dimensions."""
        output = self.state.make(self.tree.get("name"), dims, self.where)
        return Operator(output.name, kind, self.inputs, (output,), **details)

    def to(self, usual: Dims | None = None) -> Dims:
        """Return the dimensions of the output: those of the key ``to``, or the usual ones."""
        if "to" in self.tree:
            return self.state.dims(self.tree["to"], f"{self.where}.to")
        if usual is None:
            raise SpecError(f"{self.where}.to", schema.Absent(), f"{self.kind} needs the dimensions that it makes")
        return usual

    def over(self, usual: Dims = ()) -> Dims:
        """Return the dimensions of the key ``over``, which its first input must have."""
        dims = self.state.dims(self.tree["over"], f"{self.where}.over") if "over" in self.tree else usual
        for dim in dims:
            if dim not in self.inputs[0].dims:
                raise UnknownName.among(f"{self.where}.over", dim, "dimension", self.inputs[0].dims)
        return dims

    def takes(self, least: int, most: int | None = None) -> None:
        """Refuse an operator of too few or too many inputs."""
        most = least if most is None else most
        rule = f"{self.kind} reads {least if least == most else f'{least} to {most}'} tensors"
        require(least <= len(self.inputs) <= most, self.where, [input_.name for input_ in self.inputs], rule)


KEYS = (
    "program",
    "title",
    "source",
    "dims",
    "like",
    "inputs",
    "weights",
    "operators",
    "element_bytes",
    "axes",
    "annotations",
)
BLOCK_KEYS = ("block", "repeat", "over", "carry", "state", "weights", "operators")
OPERATOR_KEYS = ("name", "weights")
DETAILS = {
    "to": "the dimensions of what it makes, where they do not follow",
    "formula": "an einsum by letters, such as bsm,mf->bsf",
    "over": "the dimensions of a norm or a softmax, or those that a reduction sums over",
    "causal": "whether a query of an attention sees the keys up to its own alone",
    "window": "rows and columns of a pooling's window",
    "strides": "steps of a window in each direction",
    "padding": "same, valid, or rows before the first in each direction",
    "dilation": "distance of a window's rows",
    "dims": "new names of dimensions, of a rename",
    "flop": "flop per element of a pointwise operator",
}
POINTWISE = ("add", "bias", "gelu", "silu", "relu", "tanh", "multiply", "rope", "dropout", "pointwise")
KINDS = {
    "einsum": "multiplies its inputs and sums over the dimensions that `to` lacks",
    "embedding": "looks up rows of a table: indices, table",
    "norm": "normalises `over` some dimensions, with a scale and an offset if they are given",
    "softmax": "exponentials `over` some dimensions, divided by their sum",
    "attention": "queries, keys and values: [batch, sequence, heads, width] each",
    "convolution": "pictures and filters [rows, columns, channels, filters]; strides, padding, dilation",
    "pooling": "the largest, or the mean, of each window",
    "reduce": "sums `over` some dimensions, or takes the largest",
    "gather": "picks rows by an index of activations: values, indices",
    "scatter": "adds rows at an index: values, indices",
    "concat": "joins tensors along a dimension, `to` new ones",
    "slice": "a part of a tensor, `to` new dimensions",
    "resize": "larger or smaller pictures, `to` other rows and columns: each is made from those in its place",
    "sort": "sorts `over` a dimension",
    "rename": "the same tensor with dimensions of other names: keys are queries' tokens seen from the other side",
    "reshape": "merges or splits dimensions, `to` new ones; moves nothing",
    "loss": "the loss of logits, over their last dimension",
    **dict.fromkeys(POINTWISE, "element by element; of several inputs, the others' dimensions are among the widest's"),
}
"""Every kind of operator with what it does."""


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a program in YAML.

    >>> json_schema()["required"]
    ['dims', 'operators']
    """
    names = {"type": "array", "items": {"type": "string"}}
    tensors = {
        "type": "object",
        "additionalProperties": {
            "anyOf": [
                names,
                {
                    "type": "object",
                    "properties": {"dims": names, "of": {"type": "string"}},
                    "required": ["dims", "of"],
                    "additionalProperties": False,
                },
            ]
        },
    }
    reads = {"anyOf": [{"type": "string"}, names]}
    numbers = {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "array", "items": {"type": "integer"}}]}
    details: dict[str, Any] = {
        "to": names,
        "formula": {"type": "string"},
        "over": reads,
        "causal": {"type": "boolean"},
        "window": numbers,
        "strides": numbers,
        "padding": {"anyOf": [{"enum": ["same", "valid"]}, numbers]},
        "dilation": numbers,
        "dims": {"type": "object"},
        "flop": {"type": "number", "minimum": 0},
    }
    operator = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "weights": tensors,
            **{kind: {**reads, "description": about} for kind, about in KINDS.items()},
            **{key: {**details[key], "description": about} for key, about in DETAILS.items()},
        },
        "required": ["name"],
        "oneOf": [{"required": [kind]} for kind in KINDS],
        "additionalProperties": False,
    }
    block = {
        "type": "object",
        "properties": {
            "block": {"type": "string"},
            "repeat": {"type": "integer", "minimum": 1},
            "over": {"type": "string"},
            "carry": {"type": "object", "additionalProperties": {"type": "string"}},
            "state": tensors,
            "weights": tensors,
            "operators": {"type": "array", "items": operator, "minItems": 1},
        },
        "required": ["block", "operators"],
        "additionalProperties": False,
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A program of COSMIC",
        "type": "object",
        "properties": {
            "program": {"type": "string"},
            "title": {"type": "string"},
            "source": {"type": "string"},
            "dims": {"type": "object", "additionalProperties": {"type": "integer", "minimum": 1}},
            "like": {"type": "object", "additionalProperties": {"type": "string"}},
            "inputs": tensors,
            "weights": tensors,
            "operators": {"type": "array", "items": {"anyOf": [operator, block]}, "minItems": 1},
            "element_bytes": {
                "type": "object",
                "additionalProperties": {"type": "number", "exclusiveMinimum": 0, "maximum": 16},
                "description": "bytes of an element, of tensors that are not in the format of the precision",
            },
            "axes": {
                "type": "object",
                "properties": {"tp": {"type": "string", "pattern": r"^\d+(\*\d+)+$"}},
                "additionalProperties": False,
                "description": "the parts of an axis that is cut into sub-axes: tp: 2*4 makes tp_0 and tp_1",
            },
            "annotations": {"type": "object", "additionalProperties": {"type": ["array", "object"]}},
        },
        "required": ["dims", "operators"],
        "additionalProperties": False,
    }


def _read_numbers(entry: OperatorEntry, key: str, count: int, usual: int) -> tuple[int, ...]:
    tree = entry.tree.get(key, usual)
    numbers = tuple(tree) if isinstance(tree, list) else (tree,) * count
    fits = len(numbers) == count and all(isinstance(number, int) and not isinstance(number, bool) for number in numbers)
    require(fits and min(numbers) >= (key != "padding"), f"{entry.where}.{key}", tree, f"must be {count} whole numbers")
    return numbers


@dataclass(frozen=True, slots=True)
class Window:
    """A window along one dimension: the dimension that it reads and the one that it makes."""

    read: str
    made: str
    rows: int
    stride: int
    padding: int
    dilation: int = 1


def read_windows(entry: OperatorEntry, out_dims: Dims, rows: tuple[int, ...], in_dims: Dims) -> tuple[Window, ...]:
    """Return the windows of a convolution or a pooling, and check the sizes of what they make."""
    count = len(rows)
    strides, dilation = _read_numbers(entry, "strides", count, 1), _read_numbers(entry, "dilation", count, 1)
    padding = entry.tree.get("padding", "same")
    windows = []
    for index, (source, target) in enumerate(zip(in_dims, out_dims, strict=True)):
        size, step, reach = entry.state.sizes[source], strides[index], (rows[index] - 1) * dilation[index] + 1
        if padding == "same":
            length = -(-size // step)
            pad = max(0, (length - 1) * step + reach - size) // 2
        else:
            pad = 0 if padding == "valid" else _read_numbers(entry, "padding", count, 0)[index]
            length = (size + 2 * pad - reach) // step + 1
        rule = f"is {entry.state.sizes[target]} long, where windows over {source} make {length}"
        require(entry.state.sizes[target] == length, f"{entry.where}.to", target, rule)
        windows.append(Window(source, target, rows[index], step, pad, dilation[index]))
    return tuple(windows)


def _sliding_details(windows: tuple[Window, ...]) -> dict[str, Any]:
    """Return the dimensions that are one inside an operator with windows, and the rows that shards lack."""
    halos = (
        (window.read, *halo_rows(window.rows, window.stride, window.padding, window.dilation)) for window in windows
    )
    return {
        "same": tuple((window.made, window.read) for window in windows if window.made != window.read),
        "halo": tuple(halo for halo in halos if any(halo[1:])),
    }


def convolution(entry: OperatorEntry) -> Operator:
    """Return a convolution: what weight and picture share are channels, what weight and result share are filters."""
    entry.takes(2)
    read, weight = entry.inputs
    out_dims = entry.to()
    channels = [dim for dim in weight.dims if dim in read.dims]
    filters = [dim for dim in weight.dims if dim in out_dims and dim not in read.dims]
    sliding = [dim for dim in weight.dims if dim not in channels and dim not in filters]
    sources = tuple(dim for dim in read.dims if dim not in weight.dims)[-len(sliding) :] if sliding else ()
    targets = tuple(dim for dim in out_dims if dim not in weight.dims)[-len(sliding) :] if sliding else ()
    rule = "filters must share channels with what they read, and their other dimensions with what they make"
    require(bool(channels) and bool(filters or out_dims), f"{entry.where}.convolution", weight.name, rule)
    require(len(sources) == len(sliding) == len(targets), f"{entry.where}.convolution", weight.name, rule)
    rows = tuple(entry.state.sizes[dim] for dim in sliding)
    return entry.operator("convolution", out_dims, **_sliding_details(read_windows(entry, targets, rows, sources)))


def pooling(entry: OperatorEntry) -> Operator:
    """Return a pooling: an operation for each element of a window."""
    entry.takes(1)
    out_dims, (read,) = entry.to(), entry.inputs
    tree = entry.tree.get("window")
    count = len(tree) if isinstance(tree, list) else 2
    rows = _read_numbers(entry, "window", count, 1)
    axes = (
        [index for index in range(len(out_dims)) if out_dims[index] != read.dims[index]]
        if len(out_dims) == len(read.dims)
        else []
    )
    rule = "must have the dimensions of what it reads, with other names where the window slides"
    require(len(axes) == count, f"{entry.where}.to", list(out_dims), rule)
    windows = read_windows(entry, tuple(out_dims[p] for p in axes), rows, tuple(read.dims[p] for p in axes))
    operator = entry.operator("pooling", out_dims, **_sliding_details(windows))
    return replace(operator, flop_per_element=float(prod(rows)))


ALLOWED = {
    "einsum": ("to", "formula"),
    "embedding": ("to",),
    "norm": ("over",),
    "softmax": ("over",),
    "attention": ("causal",),
    "convolution": ("to", "strides", "padding", "dilation"),
    "pooling": ("to", "window", "strides", "padding"),
    "reduce": ("over",),
    "gather": ("to",),
    "scatter": ("to",),
    "concat": ("to",),
    "slice": ("to",),
    "resize": ("to",),
    "sort": ("over",),
    "rename": ("dims",),
    "reshape": ("to",),
    "loss": (),
    "pointwise": ("to", "flop"),
}
"""The details that each kind takes."""


def build_operator(state: ProgramScope, kind: str, tree: Mapping[str, Any], where: str) -> Operator:
    """Return the operator that an entry of a file describes."""
    allowed = (*ALLOWED.get(kind, ("to",)), "name", "weights", kind)
    for key in tree:
        require(key in allowed, f"{where}.{key}", tree[key], f"{kind} takes no {key}")
    named = tree[kind]
    names = [named] if isinstance(named, str) else named
    require(isinstance(names, list) and bool(names), f"{where}.{kind}", named, "must name what it reads")
    inputs = tuple(state.tensor(name, f"{where}.{kind}") for name in names)
    entry = OperatorEntry(state, kind, tree, where, inputs)
    return _pointwise(entry) if kind in POINTWISE else _BUILDERS[kind](entry)


def _pointwise(entry: OperatorEntry) -> Operator:
    widest = max(entry.inputs, key=lambda tensor: len(tensor.dims))
    dims = entry.to(widest.dims)
    for tensor in entry.inputs:
        more = [dim for dim in tensor.stored_dims if dim not in dims]
        rule = f"has {', '.join(more)}, which {entry.kind} does not make: {', '.join(dims)}"
        require(not more, f"{entry.where}.{entry.kind}", tensor.name, rule)
    flop = entry.tree.get("flop")
    if flop is not None:
        flop = schema.read_value(float, flop, f"{entry.where}.flop")
        require(flop >= 0, f"{entry.where}.flop", flop, "must not be negative")
    return entry.operator(entry.kind, dims, flop_per_element=flop)


def _einsum(entry: OperatorEntry) -> Operator:
    entry.takes(2, 8)
    dims = _formula_dims(entry) if "formula" in entry.tree else entry.to()
    read = {dim for tensor in entry.inputs for dim in tensor.dims}
    for dim in dims:
        if dim not in read:
            raise UnknownName.among(f"{entry.where}.to", dim, "dimension", sorted(read))
    return entry.operator("einsum", dims)


def _formula_dims(entry: OperatorEntry) -> Dims:
    """Return the output dimensions of a formula such as ``bsm,mf->bsf``, and check its inputs."""
    where = f"{entry.where}.formula"
    text = "".join(schema.read_value(str, entry.tree["formula"], where).split())
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    require(bool(arrow) and len(terms) == len(entry.inputs), where, text, f"must have {len(entry.inputs)} terms and ->")
    letters: dict[str, str] = {}
    for term, tensor in zip(terms, entry.inputs, strict=True):
        rule = f"{term} has {len(term)} letters, {tensor.name} has the dimensions {', '.join(tensor.dims)}"
        require(len(term) == len(tensor.dims), where, text, rule)
        for letter, dim in zip(term, tensor.dims, strict=True):
            dim_of_letter = letters.setdefault(letter, dim)
            require(dim_of_letter == dim, where, text, f"{letter} is {dim_of_letter} and {dim}: rename one of them")
    for letter in right:
        require(letter in letters, where, text, f"{letter} is in no input")
    require(len(set(right)) == len(right), where, text, "makes a dimension twice")
    return tuple(letters[letter] for letter in right)


def _embedding(entry: OperatorEntry) -> Operator:
    entry.takes(2)
    keys, table = entry.inputs
    require(keys.role == "index", f"{entry.where}.embedding", keys.name, "must be an input with 'of', an index")
    require(keys.dims[-1] in table.dims, f"{entry.where}.embedding", table.name, f"has no dimension {keys.dims[-1]}")
    dims = (*keys.stored_dims, *(dim for dim in table.dims if dim != keys.dims[-1] and dim not in keys.dims))
    pooled = entry.to(dims)
    for dim in pooled:
        if dim not in dims:
            raise UnknownName.among(f"{entry.where}.to", dim, "dimension", dims)
    return entry.operator("embedding", pooled)


def _norm(entry: OperatorEntry) -> Operator:
    entry.takes(1, 3)
    over = entry.over(() if entry.tree.get("over") == [] else (entry.inputs[0].dims[-1],))
    return entry.operator("norm", entry.inputs[0].dims, whole=over)


def _softmax(entry: OperatorEntry) -> Operator:
    entry.takes(1)
    return entry.operator("softmax", entry.inputs[0].dims, whole=entry.over((entry.inputs[0].dims[-1],)))


def _attention(entry: OperatorEntry) -> Operator:
    entry.takes(3)
    query, key, value = entry.inputs
    for tensor in entry.inputs:
        rule = "must have four dimensions: batch, sequence, heads, width"
        require(len(tensor.dims) == 4, f"{entry.where}.attention", tensor.name, rule)
    rule = "keys need another name for their tokens than queries: rename them"
    require(key.dims[1] != query.dims[1], f"{entry.where}.attention", key.name, rule)
    causal = schema.read_value(bool, entry.tree.get("causal", False), f"{entry.where}.causal")
    rule = "causal attention needs keys whose tokens are called context, others keys that are not"
    require((key.dims[1] == "context") == causal, f"{entry.where}.causal", causal, rule)
    grouped = ((key.dims[2], query.dims[2]),) if key.dims[2] != query.dims[2] else ()
    return entry.operator("attention", (*query.dims[:3], value.dims[3]), same=grouped, whole=(key.dims[1],))


def _reduce(entry: OperatorEntry) -> Operator:
    entry.takes(1)
    over = entry.over()
    require(bool(over), f"{entry.where}.over", schema.Absent(), "must name the dimensions that it sums over")
    return entry.operator("reduce", tuple(dim for dim in entry.inputs[0].dims if dim not in over))


def _moving_builder(kind: str) -> Callable[[OperatorEntry], Operator]:
    def build(entry: OperatorEntry) -> Operator:
        dims = entry.to()
        whole = tuple(
            dim
            for dim in dict.fromkeys((*(dim for input_ in entry.inputs for dim in input_.dims), *dims))
            if not (dim in dims and all(dim in input_.dims for input_ in entry.inputs))
        )
        if kind in ("gather", "scatter"):
            # A device that has some rows alone picks those, or adds to them: rows of others are zeros in a sum.
            indexed_dims = {input_.dims[-1] for input_ in entry.inputs if input_.role == "index"}
            source_dims, target_dims = (
                (entry.inputs[0].dims, dims) if kind == "gather" else (dims, entry.inputs[0].dims)
            )
            whole = tuple(dim for dim in source_dims if dim not in target_dims and dim not in indexed_dims)
        return entry.operator(kind, dims, whole=whole)

    return build


def _sort(entry: OperatorEntry) -> Operator:
    entry.takes(1)
    over = entry.over((entry.inputs[0].dims[-1],))
    length = prod(entry.state.sizes[dim] for dim in over)
    return entry.operator("sort", entry.inputs[0].dims, whole=over, flop_per_element=max(1.0, log2(length)))


def _resize(entry: OperatorEntry) -> Operator:
    entry.takes(1)
    (read,), out_dims = entry.inputs, entry.to()
    rule = f"must have as many dimensions as {read.name}, {', '.join(read.dims)}"
    require(len(out_dims) == len(read.dims), f"{entry.where}.to", list(out_dims), rule)
    pairs = tuple((new, old) for new, old in zip(out_dims, read.dims, strict=True) if new != old)
    return entry.operator("copy", out_dims, same=pairs)


def _rename(entry: OperatorEntry) -> Operator:
    entry.takes(1)
    names = entry.tree.get("dims")
    require(isinstance(names, Mapping) and bool(names), f"{entry.where}.dims", names, "must map old names to new ones")
    (read,) = entry.inputs
    for old, new in names.items():  # type: ignore[union-attr]  # a mapping, as was checked
        if old not in read.dims:
            raise UnknownName.among(f"{entry.where}.dims", str(old), "dimension", read.dims)
        length = entry.state.sizes[entry.state.dim(new, f"{entry.where}.dims")]
        rule = f"is {length} long, not {entry.state.sizes[old]}"
        require(length == entry.state.sizes[old], f"{entry.where}.dims.{old}", new, rule)
        if new not in entry.state.like and new not in ("context", "source", "samples"):
            entry.state.like[new] = entry.state.like.get(old, old)
    dims = tuple(names.get(dim, dim) for dim in read.dims)  # type: ignore[union-attr]
    view = entry.operator("view", dims, same=tuple((new, old) for old, new in names.items()))  # type: ignore[union-attr]
    if read.role == "index":
        index = Tensor(view.name, dims, "index")
        entry.state.tensors[view.name] = index
        return replace(view, outputs=(index,))
    return view


def _reshape(entry: OperatorEntry) -> Operator:
    """Merge or split dimensions by their sizes, from the first on."""
    entry.takes(1)
    (read,), out_dims = entry.inputs, entry.to()
    sizes = entry.state.sizes
    before, after = (prod(sizes[dim] for dim in dims) for dims in (read.dims, out_dims))
    require(before == after, f"{entry.where}.to", list(out_dims), f"has {after:,} elements, not {before:,}")
    old, new = [d for d in read.dims if d not in out_dims], [d for d in out_dims if d not in read.dims]
    pairs, left, right = [], 1, 1
    old_left, new_left = list(old), list(new)
    while old_left or new_left:
        if (left <= right and old_left) or not new_left:
            left *= sizes[old_left[0]]
            if new:
                pairs.append((new_left[0] if new_left else new[-1], old_left[0]))
            old_left.pop(0)
        else:
            right *= sizes[new_left[0]]
            if old:
                pairs.append((new_left[0], old_left[0] if old_left else old[-1]))
            new_left.pop(0)
    return entry.operator("view", out_dims, same=tuple(dict.fromkeys(pairs)))


def _loss(entry: OperatorEntry) -> Operator:
    entry.takes(1, 2)
    return entry.operator("loss", entry.inputs[0].dims[:-1])


_BUILDERS: dict[str, Callable[[OperatorEntry], Operator]] = {
    "einsum": _einsum,
    "embedding": _embedding,
    "norm": _norm,
    "softmax": _softmax,
    "attention": _attention,
    "convolution": convolution,
    "pooling": pooling,
    "reduce": _reduce,
    "gather": _moving_builder("gather"),
    "scatter": _moving_builder("scatter"),
    "concat": _moving_builder("copy"),
    "slice": _moving_builder("copy"),
    "resize": _resize,
    "sort": _sort,
    "rename": _rename,
    "reshape": _reshape,
    "loss": _loss,
}


BEFORE, AFTER = "before", "after"


def read_program(tree: Any, name: str = "program") -> Program:
    """Return the program that the content of a file describes.

    >>> tree = {"dims": {"batch": 8, "inner": 4, "outer": 16}, "inputs": {"x": ["batch", "inner"]}}
    >>> up = {"name": "up", "einsum": ["x", "w"], "to": ["batch", "outer"], "weights": {"w": ["inner", "outer"]}}
    >>> read_program({**tree, "operators": [up]}).graph.operators[0].summed
    ('inner',)
    """
    require(isinstance(tree, Mapping), name, tree, "must be a mapping of keys to values")
    for key in tree:
        if key not in KEYS:
            raise UnknownName.key(str(key), tree[key], KEYS)
    reader = _ProgramReader(_read_sizes(tree.get("dims", {})), _read_twins(tree.get("like", {}), tree.get("dims", {})))
    for role, key in (("input", "inputs"), ("weight", "weights")):
        reader.declare(tree.get(key, {}), role, key)
    entries = tree.get("operators")
    require(isinstance(entries, list) and bool(entries), "operators", entries, "must be a list of operators")
    for index, entry in enumerate(entries):
        reader.entry(entry, f"operators.{index}")
    reader.close()
    program = Program(
        str(tree.get("program", name)),
        Graph(tuple(reader.operators)),
        reader.state.sizes,
        _read_widths(tree.get("element_bytes", {})),
        parts=tuple(reader.parts),
        like=reader.state.like,
        cuts=_read_cuts(tree.get("axes", {})),
    )
    reader.check_read()
    return read_annotations(program, tree.get("annotations", {}))


def _read_sizes(tree: Any) -> dict[str, int]:
    require(isinstance(tree, Mapping) and bool(tree), "dims", tree, "must map names of dimensions to their sizes")
    sizes = {}
    for dim, size in tree.items():
        fits = isinstance(size, int) and not isinstance(size, bool) and 1 <= size <= 2**40
        require(fits, f"dims.{dim}", size, "must be a whole number from 1 to 2^40")
        sizes[schema.read_value(str, dim, "dims")] = size
    return sizes


def _read_cuts(tree: Any) -> dict[str, tuple[int, ...]]:
    require(isinstance(tree, Mapping), "axes", tree, "must map axes to their parts, such as tp: 2*4")
    cuts = {}
    for axis, parts in tree.items():
        require(axis == "tp", f"axes.{axis}", parts, "tp alone can be cut into sub-axes: dp and cp have replicas")
        texts = [part.strip() for part in str(parts).split("*")]
        fits = all(text.isascii() and text.isdecimal() and len(text) < 8 for text in texts)
        require(fits, f"axes.{axis}", parts, "must be sizes with * between, such as 2*4")
        cuts[str(axis)] = tuple(map(int, texts))
    return cuts


def _read_widths(tree: Any) -> dict[str, float]:
    require(isinstance(tree, Mapping), "element_bytes", tree, "must map tensors to the bytes of an element")
    widths = {}
    for name, width in tree.items():
        widths[str(name)] = float(schema.read_value(float, width, f"element_bytes.{name}"))
    return widths


def _read_twins(tree: Any, sizes: Mapping[str, Any]) -> dict[str, str]:
    require(isinstance(tree, Mapping), "like", tree, "must map dimensions to those that they are as long as")
    for dim, counterpart in tree.items():
        for name in (dim, counterpart):
            if name not in sizes:
                raise UnknownName.among(f"like.{dim}", str(name), "dimension", sizes)
        require(
            sizes[dim] == sizes[counterpart],
            f"like.{dim}",
            counterpart,
            f"is {sizes[counterpart]} long, not {sizes[dim]}",
        )
    return dict(tree)


@dataclass
class _ProgramReader:
    """Collects operators while `read_program` runs."""

    sizes: dict[str, int]
    like: dict[str, str]
    operators: list[Operator] = field(default_factory=list)
    parts: list[ProgramSection] = field(default_factory=list)
    loose: list[str] = field(default_factory=list)
    """Operators outside blocks that no part has yet."""

    def __post_init__(self) -> None:
        self.state = ProgramScope(self.sizes, self.like)

    def declare(self, tree: Any, role: str, where: str) -> None:
        """Read inputs or weights with their dimensions."""
        require(isinstance(tree, Mapping), where, tree, "must map names to dimensions")
        for name, dims in tree.items():
            self.state.declare(str(name), dims, role, f"{where}.{name}")

    def entry(self, tree: Any, where: str) -> None:
        """Read an operator, or a block of them."""
        require(isinstance(tree, Mapping), where, tree, "must be a mapping of keys to values")
        if "block" in tree:
            self.close()
            self.block(tree, where)
        else:
            self.loose.append(self.operator(tree, where))

    def operator(self, tree: Any, where: str, serial: tuple[str, ...] = ()) -> str:
        """Read one operator; return its name."""
        require(isinstance(tree, Mapping), where, tree, "must be a mapping of keys to values")
        kinds = [key for key in tree if key in KINDS]
        unknown = [key for key in tree if key not in KINDS and key not in OPERATOR_KEYS and key not in DETAILS]
        if unknown:
            raise UnknownName.among(where, str(unknown[0]), "operator", [*KINDS, *OPERATOR_KEYS, *DETAILS])
        require(len(kinds) == 1, where, dict(tree), "must have one kind of operator")
        self.declare(tree.get("weights", {}), "weight", f"{where}.weights")
        built = build_operator(self.state, kinds[0], tree, where)
        self.operators.append(_with_serial_dims(built, serial) if serial else built)
        return built.name

    def block(self, tree: Any, where: str) -> None:
        """Read a block: operators that are repeated with weights of their own, or run through a dimension in steps."""
        for key in tree:
            if key not in BLOCK_KEYS:
                raise UnknownName.key(f"{where}.{key}", tree[key], BLOCK_KEYS)
        name = schema.read_value(str, tree["block"], f"{where}.block")
        require(all(part.name != name for part in self.parts), f"{where}.block", name, "is another block's name too")
        repeat: int = schema.read_value(int, tree.get("repeat", 1), f"{where}.repeat")
        require(1 <= repeat <= 1_000_000, f"{where}.repeat", repeat, "must be from 1 to 1,000,000")
        over = tree.get("over")
        serial = () if over is None else (self.state.dim(over, f"{where}.over"),)
        carry = tree.get("carry", {})
        require(isinstance(carry, Mapping), f"{where}.carry", carry, "must map what enters to what it hands on")
        self.declare(tree.get("weights", {}), "weight", f"{where}.weights")
        self.declare(tree.get("state", {}), "activation", f"{where}.state")
        entries = tree.get("operators")
        require(
            isinstance(entries, list) and bool(entries), f"{where}.operators", entries, "must be a list of operators"
        )
        names = [self.operator(entry, f"{where}.operators.{index}", serial) for index, entry in enumerate(entries)]
        pairs = tuple((str(enters), str(leaves)) for enters, leaves in carry.items())
        for pair in pairs:
            dims = [self.state.tensor(tensor_name, f"{where}.carry").dims for tensor_name in pair]
            lengths = [[self.state.sizes[dim] for dim in tensor_dims] for tensor_dims in dims]
            require(lengths[0] == lengths[1], f"{where}.carry", f"{pair[0]}: {pair[1]}", "must have the same sizes")
        self.parts.append(ProgramSection(name, tuple(names), repeat, pairs))

    def close(self) -> None:
        """Make a part of the operators since the last block."""
        if self.loose:
            names = {part.name for part in self.parts}
            name = BEFORE if not self.parts else AFTER
            while name in names:
                name += "_"
            self.parts.append(ProgramSection(name, tuple(self.loose)))
            self.loose = []

    def check_read(self) -> None:
        """Raise an error if a declared tensor is read by no operator."""
        read = {tensor.name for operator in self.operators for tensor in operator.tensors}
        for name, tensor in self.state.tensors.items():
            require(name in read, f"{tensor.role}s", name, "no operator reads it: leave it out")


def _with_serial_dims(operator: Operator, serial: tuple[str, ...]) -> Operator:
    own = tuple(dim for dim in serial if dim in operator.dims)
    return replace(operator, serial=own, whole=(*operator.whole, *(dim for dim in own if dim not in operator.whole)))
