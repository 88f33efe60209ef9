"""Programs in YAML: dimensions, inputs, weights and operators, in a few words each.

    program: perceptron
    dims: {batch: 512, inner: 1024, outer: 4096}
    inputs: {x: [batch, inner]}
    operators:
      - {name: up, einsum: [x, w_up], to: [batch, outer], weights: {w_up: [inner, outer]}}
      - {name: open, gelu: up}

An operator has a name, which is that of what it makes, and its kind with what it reads. The keys are explained in
`docs/how-to/bring-a-program.md`; `cosmic.programs.format` has them as a JSON Schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cosmic.design import schema
from cosmic.errors import UnknownName, require
from cosmic.programs.annotating import read_annotations
from cosmic.programs.entries import Reading
from cosmic.programs.format import BLOCK_KEYS, DETAILS, KEYS, KINDS, OPERATOR_KEYS
from cosmic.programs.operators import build
from cosmic.programs.program import Part, Program
from cosmic.workload.graph import Graph, Operator

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
    reader = _Reader(_sizes(tree.get("dims", {})), _twins(tree.get("like", {}), tree.get("dims", {})))
    for role, key in (("input", "inputs"), ("weight", "weights")):
        reader.declare(tree.get(key, {}), role, key)
    entries = tree.get("operators")
    require(isinstance(entries, list) and bool(entries), "operators", entries, "must be a list of operators")
    for place, entry in enumerate(entries):
        reader.entry(entry, f"operators.{place}")
    reader.close()
    program = Program(
        str(tree.get("program", name)),
        Graph(tuple(reader.operators)),
        reader.state.sizes,
        _widths(tree.get("element_bytes", {})),
        parts=tuple(reader.parts),
        like=reader.state.like,
        cuts=_cuts(tree.get("axes", {})),
    )
    reader.check_read()
    return read_annotations(program, tree.get("annotations", {}))


def _sizes(tree: Any) -> dict[str, int]:
    require(isinstance(tree, Mapping) and bool(tree), "dims", tree, "must map names of dimensions to their sizes")
    found = {}
    for dim, size in tree.items():
        fits = isinstance(size, int) and not isinstance(size, bool) and 1 <= size <= 2**40
        require(fits, f"dims.{dim}", size, "must be a whole number from 1 to 2^40")
        found[schema.read(str, dim, "dims")] = size
    return found


def _cuts(tree: Any) -> dict[str, tuple[int, ...]]:
    require(isinstance(tree, Mapping), "axes", tree, "must map axes to their parts, such as tp: 2*4")
    found = {}
    for axis, parts in tree.items():
        require(axis == "tp", f"axes.{axis}", parts, "tp alone can be cut into sub-axes: dp and cp have replicas")
        texts = [each.strip() for each in str(parts).split("*")]
        fits = all(each.isascii() and each.isdecimal() and len(each) < 8 for each in texts)
        require(fits, f"axes.{axis}", parts, "must be sizes with * between, such as 2*4")
        found[str(axis)] = tuple(map(int, texts))
    return found


def _widths(tree: Any) -> dict[str, float]:
    require(isinstance(tree, Mapping), "element_bytes", tree, "must map tensors to the bytes of an element")
    found = {}
    for name, width in tree.items():
        found[str(name)] = float(schema.read(float, width, f"element_bytes.{name}"))
    return found


def _twins(tree: Any, sizes: Mapping[str, Any]) -> dict[str, str]:
    require(isinstance(tree, Mapping), "like", tree, "must map dimensions to those that they are as long as")
    for dim, other in tree.items():
        for each in (dim, other):
            if each not in sizes:
                raise UnknownName.among(f"like.{dim}", str(each), "dimension", sizes)
        require(sizes[dim] == sizes[other], f"like.{dim}", other, f"is {sizes[other]} long, not {sizes[dim]}")
    return dict(tree)


@dataclass
class _Reader:
    """Collects operators while `read_program` runs."""

    sizes: dict[str, int]
    like: dict[str, str]
    operators: list[Operator] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    loose: list[str] = field(default_factory=list)
    """Operators outside blocks that no part has yet."""

    def __post_init__(self) -> None:
        self.state = Reading(self.sizes, self.like)

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
        made = build(self.state, kinds[0], tree, where)
        self.operators.append(_in_steps(made, serial) if serial else made)
        return made.name

    def block(self, tree: Any, where: str) -> None:
        """Read a block: operators that are repeated with weights of their own, or run through a dimension in steps."""
        for key in tree:
            if key not in BLOCK_KEYS:
                raise UnknownName.key(f"{where}.{key}", tree[key], BLOCK_KEYS)
        name = schema.read(str, tree["block"], f"{where}.block")
        require(all(part.name != name for part in self.parts), f"{where}.block", name, "is another block's name too")
        repeat: int = schema.read(int, tree.get("repeat", 1), f"{where}.repeat")
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
        names = [self.operator(each, f"{where}.operators.{place}", serial) for place, each in enumerate(entries)]
        pairs = tuple((str(enters), str(leaves)) for enters, leaves in carry.items())
        for pair in pairs:
            dims = [self.state.tensor(each, f"{where}.carry").dims for each in pair]
            alike = [[self.state.sizes[dim] for dim in each] for each in dims]
            require(alike[0] == alike[1], f"{where}.carry", f"{pair[0]}: {pair[1]}", "must have the same sizes")
        self.parts.append(Part(name, tuple(names), repeat, pairs))

    def close(self) -> None:
        """Make a part of the operators since the last block."""
        if self.loose:
            known = {part.name for part in self.parts}
            name = BEFORE if not self.parts else AFTER
            while name in known:
                name += "_"
            self.parts.append(Part(name, tuple(self.loose)))
            self.loose = []

    def check_read(self) -> None:
        """Raise an error if a declared tensor is read by no operator."""
        read = {tensor.name for operator in self.operators for tensor in operator.tensors}
        for name, tensor in self.state.tensors.items():
            require(name in read, f"{tensor.role}s", name, "no operator reads it: leave it out")


def _in_steps(operator: Operator, serial: tuple[str, ...]) -> Operator:
    here = tuple(dim for dim in serial if dim in operator.dims)
    return replace(operator, serial=here, whole=(*operator.whole, *(dim for dim in here if dim not in operator.whole)))
