"""Layers that a program writes out one after the other, as one part that is repeated.

A tracer sees 32 layers as 32 copies of the same operators. They are one block if every copy reads the same as the one
before it, each in its place: weights of its own, its own results, and what the copy before made.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from cosmic.programs.program import Part, Program
from cosmic.workload.graph import Graph, Operator, Tensor

LEAST = 3
"""Operators that a layer has at least."""
CAUSAL = "context"
"""The keys of a causal attention."""


def folded(program: Program) -> Program:
    """Return *program* with the longest run of equal layers as one repeated part; as it is, if it says its parts."""
    if program.parts:
        return program
    found = _run(program)
    if found is None:
        return program
    start, period, copies = found
    operators = program.graph.operators
    renames = _renames(operators, start, period, copies)
    if renames is None:
        return program
    dims, tensors, carries = renames
    head, body = operators[:start], operators[start : start + period]
    tail = tuple(_renamed(each, dims, tensors) for each in operators[start + period * copies :])
    graph = Graph((*head, *body, *tail))
    names = [each.name for each in graph.operators]
    parts = [Part("before", tuple(names[:start]))] if start else []
    parts.append(Part("layer", tuple(names[start : start + period]), copies, tuple(carries.items())))
    parts += [Part("after", tuple(names[start + period :]))] if tail else []
    used = {dim for tensor in graph.tensors.values() for dim in tensor.dims}
    return replace(
        program,
        graph=graph,
        sizes={dim: size for dim, size in program.sizes.items() if dim in used},
        parts=tuple(parts),
        like={dim: other for dim, other in program.like.items() if dim in used},
        element_bytes={name: each for name, each in program.element_bytes.items() if name in graph.tensors},
    )


def _signature(operator: Operator, sizes: dict[str, int]) -> tuple[object, ...]:
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


def _run(program: Program) -> tuple[int, int, int] | None:
    """Return where the longest run of equal layers starts, their operators, and how many there are."""
    sizes = dict(program.sizes)
    signs = [_signature(each, sizes) for each in program.graph.operators]
    best: tuple[int, int, int, int] | None = None
    for period in range(LEAST, len(signs) // 2 + 1):
        equal = [signs[place] == signs[place + period] for place in range(len(signs) - period)]
        run = 0
        for place, same in enumerate([*equal, False]):
            if same:
                run += 1
                continue
            copies = run // period + 1
            if copies > 1:
                for start in range(place - run, place - run + run % period + 1):
                    key = (copies * period, -period, copies, start)
                    if (best is None or key[:2] > (best[0], -best[1])) and _renames(
                        program.graph.operators, start, period, copies
                    ) is not None:
                        best = (copies * period, period, copies, start)
                        break
            run = 0
    return None if best is None else (best[3], best[1], best[2])


def _renames(
    operators: tuple[Operator, ...], start: int, period: int, copies: int
) -> tuple[dict[str, str], dict[str, str], dict[str, str]] | None:
    """Return the dimensions and tensors of the last copy by their names in the first, and what copies hand on.

    None if some copy is wired otherwise than the one before it, or if something else reads what is inside.
    """
    spans = [operators[start + copy * period : start + (copy + 1) * period] for copy in range(copies)]
    dims: dict[str, str] = {}
    carries: dict[str, str] = {}
    for before, here in pairwise(spans):
        if not (_same_dims(here, spans[0], dims) and _same_wires(here, before, spans[0], carries)):
            return None
    inner = {name for span in spans[:-1] for name in _made(span)}
    if any(tensor.name in inner for each in operators[start + copies * period :] for tensor in each.inputs):
        return None  # a skip connection out of the middle
    if not _own_weights(operators, spans):
        return None
    first = {place: name for name, place in _made(spans[0]).items()}
    tensors = {name: first[place] for name, place in _made(spans[-1]).items()}
    return {mine: theirs for mine, theirs in dims.items() if mine != theirs}, tensors, carries


def _own_weights(operators: tuple[Operator, ...], spans: list[tuple[Operator, ...]]) -> bool:
    """Return whether each copy has weights that nothing else reads: layers that share theirs are no such copies."""
    within = {id(each) for span in spans for each in span}
    read = {weight for each in operators if id(each) not in within for weight in _weights((each,))}
    wired = _places(_weights(spans[0]))
    for span in spans:
        names = _weights(span)
        if read & {*names} or _places(names) != wired:
            return False
        read |= {*names}
    return True


def _places(names: list[str]) -> list[int]:
    return [names.index(name) for name in names]


def _weights(span: tuple[Operator, ...]) -> list[str]:
    """Return the weights that operators read, in order."""
    return [tensor.name for each in span for tensor in each.inputs if tensor.role == "weight"]


def _made(span: tuple[Operator, ...]) -> dict[str, tuple[int, int]]:
    """Return what the operators of a copy make, by name: which operator, and which of its outputs."""
    return {
        tensor.name: (place, number) for place, each in enumerate(span) for number, tensor in enumerate(each.outputs)
    }


def _same_dims(here: tuple[Operator, ...], first: tuple[Operator, ...], dims: dict[str, str]) -> bool:
    """Note the dimensions of a copy by their names in the first; return whether each has one."""
    for operator, other in zip(here, first, strict=True):
        for mine, theirs in zip(operator.tensors, other.tensors, strict=True):
            if len(mine.dims) != len(theirs.dims):
                return False
            if any(dims.setdefault(a, b) != b for a, b in zip(mine.dims, theirs.dims, strict=True)):
                return False
    return True


def _same_wires(
    here: tuple[Operator, ...], before: tuple[Operator, ...], first: tuple[Operator, ...], carries: dict[str, str]
) -> bool:
    """Note what a copy reads of the one before it; return whether it reads all else as the first does."""
    own, last, made = _made(here), _made(before), _made(first)
    names = {place: name for name, place in made.items()}
    for operator, other in zip(here, first, strict=True):
        for mine, theirs in zip(operator.inputs, other.inputs, strict=True):
            if mine.name in own:
                alike = made.get(theirs.name) == own[mine.name]
            elif mine.name in last:
                handed = names[last[mine.name]]
                alike = theirs.name not in made and carries.setdefault(theirs.name, handed) == handed
            else:
                alike = theirs.role == "weight" if mine.role == "weight" else mine == theirs
            if not alike:
                return False
    return True


def _renamed(operator: Operator, dims: dict[str, str], tensors: dict[str, str]) -> Operator:
    def tensor(each: Tensor) -> Tensor:
        return replace(each, name=tensors.get(each.name, each.name), dims=tuple(dims.get(d, d) for d in each.dims))

    return replace(
        operator,
        inputs=tuple(map(tensor, operator.inputs)),
        outputs=tuple(map(tensor, operator.outputs)),
        same=tuple((dims.get(a, a), dims.get(b, b)) for a, b in operator.same),
        whole=tuple(dims.get(d, d) for d in operator.whole),
        halo=tuple((dims.get(d, d), before, after) for d, before, after in operator.halo),
        serial=tuple(dims.get(d, d) for d in operator.serial),
    )
