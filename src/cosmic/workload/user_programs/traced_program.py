"""Make a program of what was traced: name dimensions, build the graph, fold repeated layers into one part.

Layers that a program writes out one after the other, as one part that is repeated.

A tracer sees 32 layers as 32 copies of the same operators. They are one block if every copy reads the same as the one
before it, each in its place: weights of its own, its own results, and what the copy before made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import pairwise

from cosmic.base.errors import SpecError, UnknownName, require
from cosmic.workload.operator_graph import Graph, Operator, Tensor
from cosmic.workload.user_programs.operator_fusion import fuse_operators
from cosmic.workload.user_programs.operator_tracer import (
    Atom,
    Dim,
    Noted,
    Stored,
    Tracer,
    Value,
    resolve_atoms,
    size_of_atoms,
    unify_atoms,
)
from cosmic.workload.user_programs.program_graph import Program, ProgramSection

LEAST = 3
"""Operators that a layer has at least."""
CAUSAL = "context"
"""The keys of a causal attention."""


def fold_layers(program: Program) -> Program:
    """Return *program* with the longest run of equal layers as one repeated part; as it is, if it says its parts."""
    if program.parts:
        return program
    run = _find_longest_run(program)
    if run is None:
        return program
    start, period, copies = run
    operators = program.graph.operators
    renames = _match_copies(operators, start, period, copies)
    if renames is None:
        return program
    dims, tensors, carries = renames
    head, body = operators[:start], operators[start : start + period]
    tail = tuple(_rename_operator(operator, dims, tensors) for operator in operators[start + period * copies :])
    graph = Graph((*head, *body, *tail))
    names = [operator.name for operator in graph.operators]
    parts = [ProgramSection("before", tuple(names[:start]))] if start else []
    parts.append(ProgramSection("layer", tuple(names[start : start + period]), copies, tuple(carries.items())))
    parts += [ProgramSection("after", tuple(names[start + period :]))] if tail else []
    used = {dim for tensor in graph.tensors.values() for dim in tensor.dims}
    return replace(
        program,
        graph=graph,
        sizes={dim: size for dim, size in program.sizes.items() if dim in used},
        parts=tuple(parts),
        like={dim: counterpart for dim, counterpart in program.like.items() if dim in used},
        element_bytes={name: width for name, width in program.element_bytes.items() if name in graph.tensors},
    )


def _operator_signature(operator: Operator, sizes: dict[str, int]) -> tuple[object, ...]:
    shapes = tuple((tensor.role, tuple(sizes[dim] for dim in tensor.dims)) for tensor in operator.tensors)
    return (
        operator.kind,
        shapes,
        len(operator.inputs),
        operator.flop_per_element,
        len(operator.whole),
        tuple(rows for _, *rows in operator.halo),
        operator.kind == "attention" and operator.inputs[1].dims[1] == CAUSAL,
    )


def _find_longest_run(program: Program) -> tuple[int, int, int] | None:
    """Return where the longest run of equal layers starts, their operators, and how many there are."""
    sizes = dict(program.sizes)
    signs = [_operator_signature(operator, sizes) for operator in program.graph.operators]
    best: tuple[int, int, int, int] | None = None
    for period in range(LEAST, len(signs) // 2 + 1):
        equal = [signs[position] == signs[position + period] for position in range(len(signs) - period)]
        run = 0
        for index, same in enumerate([*equal, False]):
            if same:
                run += 1
                continue
            copies = run // period + 1
            if copies > 1:
                for start in range(index - run, index - run + run % period + 1):
                    # The run that covers most operators; of equal ones the shortest period, so that a layer is not two.
                    key = (copies * period, -period, copies, start)
                    if (best is None or key[:2] > (best[0], -best[1])) and _match_copies(
                        program.graph.operators, start, period, copies
                    ) is not None:
                        best = (copies * period, period, copies, start)
                        break
            run = 0
    return None if best is None else (best[3], best[1], best[2])


def _match_copies(
    operators: tuple[Operator, ...], start: int, period: int, copies: int
) -> tuple[dict[str, str], dict[str, str], dict[str, str]] | None:
    """Return the dimensions and tensors of the last copy by their names in the first, and what copies hand on.

    None if some copy is wired otherwise than the one before it, or if something else reads what is inside.
    """
    spans = [operators[start + copy * period : start + (copy + 1) * period] for copy in range(copies)]
    dims: dict[str, str] = {}
    carries: dict[str, str] = {}
    for before, current in pairwise(spans):
        if not (_match_dims(current, spans[0], dims) and _match_wires(current, before, spans[0], carries)):
            return None
    inner = {name for span in spans[:-1] for name in _made_tensors(span)}
    if any(tensor.name in inner for operator in operators[start + copies * period :] for tensor in operator.inputs):
        return None  # a skip connection out of the middle
    if not _has_own_weights(operators, spans):
        return None
    first = {position: name for name, position in _made_tensors(spans[0]).items()}
    tensors = {name: first[position] for name, position in _made_tensors(spans[-1]).items()}
    return {own: original for own, original in dims.items() if own != original}, tensors, carries


def _has_own_weights(operators: tuple[Operator, ...], spans: list[tuple[Operator, ...]]) -> bool:
    """Return whether each copy has weights of its own: layers that share weights cannot be folded."""
    within = {id(operator) for span in spans for operator in span}
    read = {weight for operator in operators if id(operator) not in within for weight in _weights_read((operator,))}
    wired = _first_positions(_weights_read(spans[0]))
    for span in spans:
        names = _weights_read(span)
        if read & {*names} or _first_positions(names) != wired:
            return False
        read |= {*names}
    return True


def _first_positions(names: list[str]) -> list[int]:
    return [names.index(name) for name in names]


def _weights_read(span: tuple[Operator, ...]) -> list[str]:
    """Return the weights that operators read, in order."""
    return [tensor.name for operator in span for tensor in operator.inputs if tensor.role == "weight"]


def _made_tensors(span: tuple[Operator, ...]) -> dict[str, tuple[int, int]]:
    """Return what the operators of a copy make, by name: which operator, and which of its outputs."""
    return {
        tensor.name: (index, number)
        for index, operator in enumerate(span)
        for number, tensor in enumerate(operator.outputs)
    }


def _match_dims(span: tuple[Operator, ...], first: tuple[Operator, ...], dims: dict[str, str]) -> bool:
    """Note the dimensions of a copy by their names in the first; return whether each has one."""
    for operator, original in zip(span, first, strict=True):
        for tensor, original_tensor in zip(operator.tensors, original.tensors, strict=True):
            if len(tensor.dims) != len(original_tensor.dims):
                return False
            if any(dims.setdefault(a, b) != b for a, b in zip(tensor.dims, original_tensor.dims, strict=True)):
                return False
    return True


def _match_wires(
    span: tuple[Operator, ...], before: tuple[Operator, ...], first: tuple[Operator, ...], carries: dict[str, str]
) -> bool:
    """Note what a copy reads of the one before it; return whether it reads all else as the first does."""
    own, previous, produced = _made_tensors(span), _made_tensors(before), _made_tensors(first)
    names = {position: name for name, position in produced.items()}
    for operator, original in zip(span, first, strict=True):
        for tensor, original_tensor in zip(operator.inputs, original.inputs, strict=True):
            if tensor.name in own:
                same = produced.get(original_tensor.name) == own[tensor.name]
            elif tensor.name in previous:
                handed = names[previous[tensor.name]]
                same = (
                    original_tensor.name not in produced and carries.setdefault(original_tensor.name, handed) == handed
                )
            else:
                same = original_tensor.role == "weight" if tensor.role == "weight" else tensor == original_tensor
            if not same:
                return False
    return True


def _rename_operator(operator: Operator, dims: dict[str, str], tensors: dict[str, str]) -> Operator:
    def tensor(source_tensor: Tensor) -> Tensor:
        return replace(
            source_tensor,
            name=tensors.get(source_tensor.name, source_tensor.name),
            dims=tuple(dims.get(d, d) for d in source_tensor.dims),
        )

    return replace(
        operator,
        inputs=tuple(map(tensor, operator.inputs)),
        outputs=tuple(map(tensor, operator.outputs)),
        same=tuple((dims.get(a, a), dims.get(b, b)) for a, b in operator.same),
        whole=tuple(dims.get(d, d) for d in operator.whole),
        halo=tuple((dims.get(d, d), before, after) for d, before, after in operator.halo),
        serial=tuple(dims.get(d, d) for d in operator.serial),
    )


RENAMED = {"sequence": "context", "batch": "samples"}
"""What the other side of a dimension is called whose size the workload gives."""


def tie_dims(values: Mapping[str, Value], names: Mapping[str, str]) -> None:
    """Make dimensions of several arguments one that are called the same: ``{"batch": "0:0, 1:0"}``."""
    for name, positions in names.items():
        first, *rest = (_find_dim(values, name, position) for position in positions.split(","))
        for dim, position in zip(rest, positions.split(",")[1:], strict=True):
            rule = (
                f"is {size_of_atoms(resolve_atoms(dim))} long, where the first is {size_of_atoms(resolve_atoms(first))}"
            )
            require(
                size_of_atoms(resolve_atoms(first)) == size_of_atoms(resolve_atoms(dim)),
                f"--dim {name}",
                position.strip(),
                rule,
            )
            unify_atoms(first, dim)


def name_dims(values: Mapping[str, Value], names: Mapping[str, str]) -> None:
    """Name dimensions as a user does: ``{"batch": "0:0"}`` is dimension 0 of argument 0, ``x:1`` of argument x."""
    for name, positions in names.items():
        for position in positions.split(","):
            atoms = resolve_atoms(_find_dim(values, name, position))
            for number, atom in enumerate(atoms):
                label = name if len(atoms) == 1 else f"{name}_{'ab'[number] if number < 2 else number}"
                if atom.name and atom.name != label:
                    rule = f"is called {atom.name} already: both are one dimension"
                    raise SpecError(f"--dim {name}", position.strip(), rule)
                atom.name = label


def _find_dim(values: Mapping[str, Value], name: str, position: str) -> Dim:
    """Return the dimension named by a text such as ``0:1``."""
    argument, colon, axis = position.strip().rpartition(":")
    where = f"--dim {name}"
    if not colon or not axis.isdecimal():
        raise SpecError(where, position.strip(), "write ARGUMENT:DIMENSION, such as batch=0:0")
    if argument not in values:
        raise UnknownName.among(where, argument, "argument", values)
    dims = values[argument].dims
    if int(axis) >= len(dims):
        raise SpecError(where, position.strip(), f"{argument} has {len(dims)} dimensions, which count from 0")
    if not resolve_atoms(dims[int(axis)]):
        raise SpecError(where, position.strip(), "is of size 1, which no axis can split")
    return dims[int(axis)]


def finish_program(tracer: Tracer, name: str, results: Iterable[Stored]) -> Program:
    """Return the program of all that was traced."""
    noted = fuse_operators(tracer.noted, results)
    if not noted:
        raise SpecError(name, "no operators", "its results do not depend on its arguments")
    _number_outputs(noted)
    names = _Names()
    _name_key_tokens(noted, names)
    tensors: dict[Stored, Tensor] = {}
    operators = [_build_operator(entry, names, tensors) for entry in noted]
    sizes = dict(names.sizes)
    widths = {tensor.name: stored.bytes for stored, tensor in tensors.items() if stored.bytes is not None}
    program = Program(
        name,
        Graph(tuple(operators)),
        sizes,
        widths,
        parts=tuple(_build_parts(tracer, noted, operators, tensors)),
        like={dim: counterpart for dim, counterpart in names.like.items() if dim in sizes and counterpart in sizes},
    )
    return fold_layers(program)


def _number_outputs(noted: list[Noted]) -> None:
    """Number what operators make, by kind."""
    counts: dict[str, int] = {}
    for operator in noted:
        for tensor in operator.outputs:
            counts[operator.kind] = counts.get(operator.kind, 0) + 1
            tensor.name = f"{operator.kind}_{counts[operator.kind]}"


class _Names:
    """The names of atoms."""

    def __init__(self) -> None:
        self.of: dict[int, str] = {}
        self.sizes: dict[str, int] = {}
        self.like: dict[str, str] = {}
        self.kept: list[Atom] = []

    def __call__(self, atom: Atom) -> str:
        (atom,) = resolve_atoms([atom])
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
        candidate = name
        while candidate in self.sizes:
            number += 1
            candidate = f"{name}_{number}"
        self.sizes[candidate] = size
        return candidate

    def call(self, atom: Atom, name: str) -> None:
        """Call an atom so, unless it has a name."""
        if id(atom) not in self.of:
            self.of[id(atom)] = self._free(name, atom.size)
            self.kept.append(atom)


def _name_key_tokens(noted: list[Noted], names: _Names) -> None:
    """Name the tokens of keys: ``context`` under a causal mask, ``source`` without one."""
    for operator in noted:
        if operator.kind == "attention":
            for atom in resolve_atoms(operator.whole):
                if (
                    atom.of is not None
                    and names(resolve_atoms([atom.of])[0]) == "sequence"
                    and id(atom) not in names.of
                ):
                    names.call(atom, "context" if operator.masked else "source")


def _build_operator(noted: Noted, names: _Names, tensors: dict[Stored, Tensor]) -> Operator:
    inputs, outputs = (
        tuple(_build_tensor(t, names, tensors) for t in group) for group in (noted.inputs, noted.outputs)
    )
    kind = noted.kind
    if kind == "attention":
        return _build_attention(noted, names, inputs, outputs)
    present = {dim for tensor in (*inputs, *outputs) for dim in tensor.dims}
    named = [names(atom) for atom in resolve_atoms(noted.whole)]
    serial = tuple(dim for dim in dict.fromkeys(names(atom) for atom in resolve_atoms(noted.serial)) if dim in present)
    pairs = [
        (names(a), names(b))
        for first, second in noted.same
        for a, b in zip(resolve_atoms([first]), resolve_atoms([second]), strict=False)
    ]
    halo = [(names(resolve_atoms([atom])[0]), before, after) for atom, before, after in noted.halo]
    fixed = kind in ("einsum", "embedding", "norm", "softmax", "add", "bias", "copy", "view", "gather", "convolution")
    return Operator(
        outputs[0].name,
        kind,
        inputs,
        outputs,
        same=tuple(pair for pair in dict.fromkeys(pairs) if pair[0] != pair[1]),
        whole=tuple(dim for dim in dict.fromkeys((*named, *serial)) if dim in present),
        halo=tuple(halo),
        serial=serial,
        flop_per_element=None if fixed else max(noted.flop, 0.0),
    )


def _build_attention(noted: Noted, names: _Names, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Operator:
    """Return attention, whose cost is that of batch, tokens, heads and width: what it reads has them in this order."""
    return Operator(
        outputs[0].name,
        "attention",
        inputs,
        outputs,
        same=tuple((names(a), names(b)) for a, b in noted.same),
        whole=tuple(names(atom) for atom in resolve_atoms(noted.whole)),
    )


def _build_tensor(stored: Stored, atom_names: _Names, tensors: dict[Stored, Tensor]) -> Tensor:
    if stored not in tensors:
        names: list[str] = []
        for atom in stored.atoms:
            name = atom_names(atom)
            if name in names:  # a dimension that turned out to be another one of the same tensor
                name = atom_names._free(f"{name}_again", atom.size)
            names.append(name)
        tensors[stored] = Tensor(stored.name, tuple(names), stored.role)  # type: ignore[arg-type]  # one of four
    return tensors[stored]


def _build_parts(
    tracer: Tracer, noted: list[Noted], operators: list[Operator], tensors: dict[Stored, Tensor]
) -> list[ProgramSection]:
    if not tracer.parts:
        return []
    runs: list[tuple[int, list[str]]] = []
    for entry, operator in zip(noted, operators, strict=True):
        if not runs or runs[-1][0] != entry.part:
            runs.append((entry.part, []))
        runs[-1][1].append(operator.name)
    parts = []
    for index, (number, names) in enumerate(runs):
        pairs = tuple(
            (tensors[enters].name, tensors[leaves].name)
            for enters, leaves in tracer.carries.get(number, [])
            if enters in tensors and leaves in tensors and enters is not leaves
        )
        plain = "before" if index == 0 else "after" if index == len(runs) - 1 else f"between_{index}"
        name = plain if number == 0 else "layer" if tracer.parts == 1 else f"layer_{number}"
        parts.append(ProgramSection(name, tuple(names), tracer.repeats[number], pairs))
    return parts
