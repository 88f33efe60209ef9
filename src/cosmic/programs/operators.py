"""The operators of a program in YAML: what each kind makes of what it reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import log2, prod
from typing import Any

from cosmic.design import schema
from cosmic.errors import UnknownName, require
from cosmic.programs.entries import Dims, Entry, Reading
from cosmic.programs.format import POINTWISE
from cosmic.programs.windows import convolution, pooling
from cosmic.workload.graph import Operator, Tensor

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


def build(state: Reading, kind: str, tree: Mapping[str, Any], where: str) -> Operator:
    """Return the operator that an entry of a file describes."""
    allowed = (*ALLOWED.get(kind, ("to",)), "name", "weights", kind)
    for key in tree:
        require(key in allowed, f"{where}.{key}", tree[key], f"{kind} takes no {key}")
    named = tree[kind]
    names = [named] if isinstance(named, str) else named
    require(isinstance(names, list) and bool(names), f"{where}.{kind}", named, "must name what it reads")
    inputs = tuple(state.tensor(name, f"{where}.{kind}") for name in names)
    entry = Entry(state, kind, tree, where, inputs)
    return _pointwise(entry) if kind in POINTWISE else _BUILDERS[kind](entry)


def _pointwise(entry: Entry) -> Operator:
    widest = max(entry.inputs, key=lambda tensor: len(tensor.dims))
    dims = entry.to(widest.dims)
    for tensor in entry.inputs:
        more = [dim for dim in tensor.stored_dims if dim not in dims]
        rule = f"has {', '.join(more)}, which {entry.kind} does not make: {', '.join(dims)}"
        require(not more, f"{entry.where}.{entry.kind}", tensor.name, rule)
    flop = entry.tree.get("flop")
    if flop is not None:
        flop = schema.read(float, flop, f"{entry.where}.flop")
        require(flop >= 0, f"{entry.where}.flop", flop, "must not be negative")
    return entry.operator(entry.kind, dims, flop_per_element=flop)


def _einsum(entry: Entry) -> Operator:
    entry.takes(2, 8)
    dims = _by_formula(entry) if "formula" in entry.tree else entry.to()
    read = {dim for tensor in entry.inputs for dim in tensor.dims}
    for dim in dims:
        if dim not in read:
            raise UnknownName.among(f"{entry.where}.to", dim, "dimension", sorted(read))
    return entry.operator("einsum", dims)


def _by_formula(entry: Entry) -> Dims:
    """Return the dimensions that a formula such as ``bsm,mf->bsf`` makes, and check those that it reads."""
    where = f"{entry.where}.formula"
    text = "".join(schema.read(str, entry.tree["formula"], where).split())
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    require(bool(arrow) and len(terms) == len(entry.inputs), where, text, f"must have {len(entry.inputs)} terms and ->")
    letters: dict[str, str] = {}
    for term, tensor in zip(terms, entry.inputs, strict=True):
        rule = f"{term} has {len(term)} letters, {tensor.name} has the dimensions {', '.join(tensor.dims)}"
        require(len(term) == len(tensor.dims), where, text, rule)
        for letter, dim in zip(term, tensor.dims, strict=True):
            known = letters.setdefault(letter, dim)
            require(known == dim, where, text, f"{letter} is {known} and {dim}: rename one of them")
    for letter in right:
        require(letter in letters, where, text, f"{letter} is in no input")
    require(len(set(right)) == len(right), where, text, "makes a dimension twice")
    return tuple(letters[letter] for letter in right)


def _embedding(entry: Entry) -> Operator:
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


def _norm(entry: Entry) -> Operator:
    entry.takes(1, 3)
    over = entry.over(() if entry.tree.get("over") == [] else (entry.inputs[0].dims[-1],))
    return entry.operator("norm", entry.inputs[0].dims, whole=over)


def _softmax(entry: Entry) -> Operator:
    entry.takes(1)
    return entry.operator("softmax", entry.inputs[0].dims, whole=entry.over((entry.inputs[0].dims[-1],)))


def _attention(entry: Entry) -> Operator:
    entry.takes(3)
    query, key, value = entry.inputs
    for tensor in entry.inputs:
        rule = "must have four dimensions: batch, sequence, heads, width"
        require(len(tensor.dims) == 4, f"{entry.where}.attention", tensor.name, rule)
    rule = "keys need another name for their tokens than queries: rename them"
    require(key.dims[1] != query.dims[1], f"{entry.where}.attention", key.name, rule)
    causal = schema.read(bool, entry.tree.get("causal", False), f"{entry.where}.causal")
    rule = "causal attention needs keys whose tokens are called context, others keys that are not"
    require((key.dims[1] == "context") == causal, f"{entry.where}.causal", causal, rule)
    grouped = ((key.dims[2], query.dims[2]),) if key.dims[2] != query.dims[2] else ()
    return entry.operator("attention", (*query.dims[:3], value.dims[3]), same=grouped, whole=(key.dims[1],))


def _reduce(entry: Entry) -> Operator:
    entry.takes(1)
    over = entry.over()
    require(bool(over), f"{entry.where}.over", schema.Absent(), "must name the dimensions that it sums over")
    return entry.operator("reduce", tuple(dim for dim in entry.inputs[0].dims if dim not in over))


def _moved(kind: str) -> Callable[[Entry], Operator]:
    def made(entry: Entry) -> Operator:
        dims = entry.to()
        whole = tuple(
            dim
            for dim in dict.fromkeys((*(dim for each in entry.inputs for dim in each.dims), *dims))
            if not (dim in dims and all(dim in each.dims for each in entry.inputs))
        )
        if kind in ("gather", "scatter"):
            # A device that has some rows alone picks those, or adds to them: rows of others are zeros in a sum.
            of = {each.dims[-1] for each in entry.inputs if each.role == "index"}
            one, other = (entry.inputs[0].dims, dims) if kind == "gather" else (dims, entry.inputs[0].dims)
            whole = tuple(dim for dim in one if dim not in other and dim not in of)
        return entry.operator(kind, dims, whole=whole)

    return made


def _sort(entry: Entry) -> Operator:
    entry.takes(1)
    over = entry.over((entry.inputs[0].dims[-1],))
    length = prod(entry.state.sizes[dim] for dim in over)
    return entry.operator("sort", entry.inputs[0].dims, whole=over, flop_per_element=max(1.0, log2(length)))


def _resize(entry: Entry) -> Operator:
    entry.takes(1)
    (read,), made = entry.inputs, entry.to()
    rule = f"must have as many dimensions as {read.name}, {', '.join(read.dims)}"
    require(len(made) == len(read.dims), f"{entry.where}.to", list(made), rule)
    pairs = tuple((new, old) for new, old in zip(made, read.dims, strict=True) if new != old)
    return entry.operator("copy", made, same=pairs)


def _rename(entry: Entry) -> Operator:
    entry.takes(1)
    names = entry.tree.get("dims")
    require(isinstance(names, Mapping) and bool(names), f"{entry.where}.dims", names, "must map old names to new ones")
    (read,) = entry.inputs
    for old, new in names.items():  # type: ignore[union-attr]  # a mapping, as was checked
        if old not in read.dims:
            raise UnknownName.among(f"{entry.where}.dims", str(old), "dimension", read.dims)
        known = entry.state.sizes[entry.state.dim(new, f"{entry.where}.dims")]
        rule = f"is {known} long, not {entry.state.sizes[old]}"
        require(known == entry.state.sizes[old], f"{entry.where}.dims.{old}", new, rule)
        if new not in entry.state.like and new not in ("context", "source", "samples"):
            entry.state.like[new] = entry.state.like.get(old, old)
    dims = tuple(names.get(dim, dim) for dim in read.dims)  # type: ignore[union-attr]
    made = entry.operator("view", dims, same=tuple((new, old) for old, new in names.items()))  # type: ignore[union-attr]
    if read.role == "index":
        there = Tensor(made.name, dims, "index")
        entry.state.tensors[made.name] = there
        return replace(made, outputs=(there,))
    return made


def _reshape(entry: Entry) -> Operator:
    """Merge or split dimensions by their sizes, from the first on."""
    entry.takes(1)
    (read,), made = entry.inputs, entry.to()
    sizes = entry.state.sizes
    before, after = (prod(sizes[dim] for dim in dims) for dims in (read.dims, made))
    require(before == after, f"{entry.where}.to", list(made), f"has {after:,} elements, not {before:,}")
    gone, new = [d for d in read.dims if d not in made], [d for d in made if d not in read.dims]
    pairs, left, right = [], 1, 1
    mine, theirs = list(gone), list(new)
    while mine or theirs:
        if (left <= right and mine) or not theirs:
            left *= sizes[mine[0]]
            if new:
                pairs.append((theirs[0] if theirs else new[-1], mine[0]))
            mine.pop(0)
        else:
            right *= sizes[theirs[0]]
            if gone:
                pairs.append((theirs[0], mine[0] if mine else gone[-1]))
            theirs.pop(0)
    return entry.operator("view", made, same=tuple(dict.fromkeys(pairs)))


def _loss(entry: Entry) -> Operator:
    entry.takes(1, 2)
    return entry.operator("loss", entry.inputs[0].dims[:-1])


_BUILDERS: dict[str, Callable[[Entry], Operator]] = {
    "einsum": _einsum,
    "embedding": _embedding,
    "norm": _norm,
    "softmax": _softmax,
    "attention": _attention,
    "convolution": convolution,
    "pooling": pooling,
    "reduce": _reduce,
    "gather": _moved("gather"),
    "scatter": _moved("scatter"),
    "concat": _moved("copy"),
    "slice": _moved("copy"),
    "resize": _resize,
    "sort": _sort,
    "rename": _rename,
    "reshape": _reshape,
    "loss": _loss,
}
