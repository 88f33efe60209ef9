"""From what was traced to a program: names of dimensions, operators of the graph, parts that repeat."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cosmic.errors import SpecError, UnknownName, require
from cosmic.programs.atoms import Atom, Dim, resolved, size_of, unify
from cosmic.programs.folding import folded
from cosmic.programs.fusing import fused
from cosmic.programs.program import Part, Program
from cosmic.programs.tracing import Noted, Stored, Tracer, Value
from cosmic.workload.graph import Graph, Operator, Tensor

RENAMED = {"sequence": "context", "batch": "samples"}
"""What the other side of a dimension is called whose size the workload gives."""


def tie_dims(values: Mapping[str, Value], names: Mapping[str, str]) -> None:
    """Make dimensions of several arguments one that are called the same: ``{"batch": "0:0, 1:0"}``."""
    for name, places in names.items():
        first, *others = (_found(values, name, place) for place in places.split(","))
        for dim, place in zip(others, places.split(",")[1:], strict=True):
            rule = f"is {size_of(resolved(dim))} long, where the first is {size_of(resolved(first))}"
            require(size_of(resolved(first)) == size_of(resolved(dim)), f"--dim {name}", place.strip(), rule)
            unify(first, dim)


def name_dims(values: Mapping[str, Value], names: Mapping[str, str]) -> None:
    """Name dimensions as a user does: ``{"batch": "0:0"}`` is dimension 0 of argument 0, ``x:1`` of argument x."""
    for name, places in names.items():
        for place in places.split(","):
            atoms = resolved(_found(values, name, place))
            for number, atom in enumerate(atoms):
                called = name if len(atoms) == 1 else f"{name}_{'ab'[number] if number < 2 else number}"
                if atom.name and atom.name != called:
                    rule = f"is called {atom.name} already: both are one dimension"
                    raise SpecError(f"--dim {name}", place.strip(), rule)
                atom.name = called


def _found(values: Mapping[str, Value], name: str, place: str) -> Dim:
    """Return the dimension that a text such as ``0:1`` names."""
    argument, colon, axis = place.strip().rpartition(":")
    where = f"--dim {name}"
    if not colon or not axis.isdecimal():
        raise SpecError(where, place.strip(), "write ARGUMENT:DIMENSION, such as batch=0:0")
    if argument not in values:
        raise UnknownName.among(where, argument, "argument", values)
    dims = values[argument].dims
    if int(axis) >= len(dims):
        raise SpecError(where, place.strip(), f"{argument} has {len(dims)} dimensions, which count from 0")
    if not resolved(dims[int(axis)]):
        raise SpecError(where, place.strip(), "is of size 1, which no axis can split")
    return dims[int(axis)]


def finish(tracer: Tracer, name: str, results: Iterable[Stored]) -> Program:
    """Return the program of all that was traced."""
    noted = fused(tracer.noted, results)
    if not noted:
        raise SpecError(name, "no operators", "its results do not depend on its arguments")
    _rename(noted)
    called = _Names()
    _attended(noted, called)
    tensors: dict[Stored, Tensor] = {}
    operators = [_operator(each, called, tensors) for each in noted]
    sizes = dict(called.sizes)
    widths = {tensor.name: stored.bytes for stored, tensor in tensors.items() if stored.bytes is not None}
    program = Program(
        name,
        Graph(tuple(operators)),
        sizes,
        widths,
        parts=tuple(_parts(tracer, noted, operators, tensors)),
        like={dim: other for dim, other in called.like.items() if dim in sizes and other in sizes},
    )
    return folded(program)


def _rename(noted: list[Noted]) -> None:
    """Number what operators make, by kind."""
    counts: dict[str, int] = {}
    for each in noted:
        for made in each.outputs:
            counts[each.kind] = counts.get(each.kind, 0) + 1
            made.name = f"{each.kind}_{counts[each.kind]}"


class _Names:
    """The names of atoms."""

    def __init__(self) -> None:
        self.of: dict[int, str] = {}
        self.sizes: dict[str, int] = {}
        self.like: dict[str, str] = {}
        self.kept: list[Atom] = []

    def __call__(self, atom: Atom) -> str:
        (atom,) = resolved([atom])
        if id(atom) not in self.of:
            self.of[id(atom)] = self._new(atom)
            self.kept.append(atom)
        return self.of[id(atom)]

    def _new(self, atom: Atom) -> str:
        if atom.of is not None and not atom.name:
            base = self(atom.of)
            name = self._free(RENAMED.get(base, f"{base}_other"), atom.size)
            self.like[name] = base
            return name
        return self._free(atom.name or atom.origin or "dim", atom.size)

    def _free(self, name: str, size: int) -> str:
        number = 1
        found = name
        while found in self.sizes:
            number += 1
            found = f"{name}_{number}"
        self.sizes[found] = size
        return found

    def call(self, atom: Atom, name: str) -> None:
        """Call an atom so, unless it has a name."""
        if id(atom) not in self.of:
            self.of[id(atom)] = self._free(name, atom.size)
            self.kept.append(atom)


def _attended(noted: list[Noted], called: _Names) -> None:
    """Name the tokens of keys: ``context`` where a mask hides those that come later, ``source`` where nothing does."""
    for each in noted:
        if each.kind == "attention":
            for atom in resolved(each.whole):
                if atom.of is not None and called(resolved([atom.of])[0]) == "sequence" and id(atom) not in called.of:
                    called.call(atom, "context" if each.masked else "source")


def _operator(each: Noted, called: _Names, tensors: dict[Stored, Tensor]) -> Operator:
    inputs, outputs = (tuple(_tensor(t, called, tensors) for t in those) for those in (each.inputs, each.outputs))
    kind = each.kind
    if kind == "attention":
        return _attention(each, called, inputs, outputs)
    known = {dim for tensor in (*inputs, *outputs) for dim in tensor.dims}
    named = [called(atom) for atom in resolved(each.whole)]
    serial = tuple(dim for dim in dict.fromkeys(called(atom) for atom in resolved(each.serial)) if dim in known)
    pairs = [
        (called(a), called(b))
        for one, other in each.same
        for a, b in zip(resolved([one]), resolved([other]), strict=False)
    ]
    halo = [(called(resolved([atom])[0]), before, after) for atom, before, after in each.halo]
    fixed = kind in ("einsum", "embedding", "norm", "softmax", "add", "bias", "copy", "view", "gather", "convolution")
    return Operator(
        outputs[0].name,
        kind,
        inputs,
        outputs,
        same=tuple(pair for pair in dict.fromkeys(pairs) if pair[0] != pair[1]),
        whole=tuple(dim for dim in dict.fromkeys((*named, *serial)) if dim in known),
        halo=tuple(halo),
        serial=serial,
        flop_per_element=None if fixed else max(each.flop, 0.0),
    )


def _attention(each: Noted, called: _Names, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Operator:
    """Return attention, whose cost is that of batch, tokens, heads and width: what it reads has them in this order."""
    return Operator(
        outputs[0].name,
        "attention",
        inputs,
        outputs,
        same=tuple((called(a), called(b)) for a, b in each.same),
        whole=tuple(called(atom) for atom in resolved(each.whole)),
    )


def _tensor(stored: Stored, called: _Names, tensors: dict[Stored, Tensor]) -> Tensor:
    if stored not in tensors:
        names: list[str] = []
        for atom in stored.atoms:
            name = called(atom)
            if name in names:  # a dimension that turned out to be another one of the same tensor
                name = called._free(f"{name}_again", atom.size)
            names.append(name)
        tensors[stored] = Tensor(stored.name, tuple(names), stored.role)  # type: ignore[arg-type]  # one of four
    return tensors[stored]


def _parts(tracer: Tracer, noted: list[Noted], operators: list[Operator], tensors: dict[Stored, Tensor]) -> list[Part]:
    if not tracer.parts:
        return []
    found: list[tuple[int, list[str]]] = []
    for each, operator in zip(noted, operators, strict=True):
        if not found or found[-1][0] != each.part:
            found.append((each.part, []))
        found[-1][1].append(operator.name)
    parts = []
    for place, (number, names) in enumerate(found):
        pairs = tuple(
            (tensors[enters].name, tensors[leaves].name)
            for enters, leaves in tracer.carries.get(number, [])
            if enters in tensors and leaves in tensors and enters is not leaves
        )
        plain = "before" if place == 0 else "after" if place == len(found) - 1 else f"between_{place}"
        name = plain if number == 0 else "layer" if tracer.parts == 1 else f"layer_{number}"
        parts.append(Part(name, tuple(names), tracer.repeats[number], pairs))
    return parts
