"""Make a program of what was traced: name dimensions, build the graph, fold repeated layers into one part.

Layers that a program writes out one after the other, as one part that is repeated.

A tracer sees 32 layers as 32 copies of the same operators. They are one block if every copy reads the same as the one
before it, each in its place: weights of its own, its own results, and what the copy before made.

Fusion: pointwise operators and reductions that a compiler runs as one kernel become one operator. A cluster reads each
tensor once and writes what others read, as XLA's and Inductor's kernels do. Reductions belong to it if their results are
spread over the same dimensions again: those of a norm or a softmax. A product of queries and keys, a softmax and a
product with values are attention.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

from cosmic.base.errors import SpecError, UnknownName, require
from cosmic.workload.operator_graph import Graph, Operator, Tensor
from cosmic.workload.user_programs.operator_tracer import (
    CONCAT,
    SLICE,
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

# ---- Operators that are fused into one


FUSIBLE = ("pointwise", "reduce")
ADDS = ("add", "add_any", "sub")
SILENT = ("convert", "stop_gradient", "copy", "reduce_precision", "neg")


@dataclass(eq=False)
class _Cluster:
    """Operators that become one."""

    number: int
    closed: bool = False
    members: list[Noted] = field(default_factory=list)
    space: set[int] = field(default_factory=set)
    """The atoms of all that they read and make."""
    reads: set[_Cluster] = field(default_factory=set)
    """Other clusters that make something that they read."""

    def needs(self, other: _Cluster) -> bool:
        """Return whether something of *other* goes into this cluster."""
        visited, pending = {self}, list(self.reads)
        while pending:
            cluster = pending.pop()
            if cluster is other:
                return True
            if cluster not in visited:
                visited.add(cluster)
                pending += cluster.reads
        return False

    def add(self, operator: Noted) -> None:
        """Add an operator."""
        self.members.append(operator)
        self.space |= _atoms_of(operator)


def fuse_operators(noted: list[Noted], results: Iterable[Stored]) -> list[Noted]:
    """Return the operators with fusible ones merged, in topological order."""
    kept = set(results)
    return _merge_attention(_needed_operators(_cluster_operators(_needed_operators(noted, kept), kept), kept))


def _needed_operators(noted: list[Noted], results: set[Stored]) -> list[Noted]:
    """Return the operators that some result depends on."""
    needed = set(results)
    operators = []
    for operator in reversed(noted):
        if any(tensor in needed for tensor in operator.outputs):
            operators.append(operator)
            needed.update(operator.inputs)
    return operators[::-1]


def _is_fusible(operator: Noted) -> bool:
    """Return whether a kernel of others may do it: it writes parts of a tensor where they belong."""
    return operator.kind in FUSIBLE or operator.function == CONCAT


def _atoms_of(operator: Noted) -> set[int]:
    return {id(atom) for tensor in (*operator.inputs, *operator.outputs) for atom in tensor.atoms}


def _cluster_operators(noted: list[Noted], results: set[Stored]) -> list[Noted]:
    readers = Counter(tensor for operator in noted for tensor in set(operator.inputs))
    cluster_of: dict[Stored, _Cluster] = {}
    order: list[_Cluster] = []
    for number, operator in enumerate(noted):
        sources = list(dict.fromkeys(cluster_of[tensor] for tensor in operator.inputs if tensor in cluster_of))
        chosen: _Cluster | None = None
        # The latest source first: an operator joins the kernel that made what it reads last.
        for cluster in sorted(sources, key=lambda source: -source.number) if _is_fusible(operator) else ():
            if (
                cluster.closed
                or cluster.members[0].part != operator.part
                or not _is_same_space(_atoms_of(operator), cluster.space)
            ):
                continue
            # Joining would make a cycle where another source needs something of this cluster.
            if any(needing.needs(cluster) for needing in sources if needing is not cluster):
                continue
            if chosen is None:
                chosen = cluster
            elif _is_same_space(chosen.space, cluster.space):
                _merge_clusters(chosen, cluster, order, cluster_of)
        if chosen is None:
            chosen = _Cluster(number, closed=not _is_fusible(operator))
            order.append(chosen)
        chosen.add(operator)
        chosen.reads |= {cluster_of[tensor] for tensor in operator.inputs if tensor in cluster_of} - {chosen}
        cluster_of |= dict.fromkeys(operator.outputs, chosen)
        if _is_residual(operator) and readers[operator.outputs[0]] > 1 and len(chosen.members) == 1:
            chosen.closed = True  # a residual stream is written: the norm after it reads it
    parts = {operator.outputs[0]: operator for operator in noted if operator.function == SLICE}
    return _sort_operators([_join_cluster(cluster, readers, results, parts) for cluster in order])


def _is_same_space(first: set[int], second: set[int]) -> bool:
    return first <= second or second <= first


def _merge_clusters(
    target: _Cluster, merged: _Cluster, order: list[_Cluster], cluster_of: dict[Stored, _Cluster]
) -> None:
    """Merge two clusters that do not depend on each other."""
    target.members = [*merged.members, *target.members]
    target.space |= merged.space
    target.reads = (target.reads | merged.reads) - {target, merged}
    order.remove(merged)
    for cluster in order:
        if merged in cluster.reads:
            cluster.reads = (cluster.reads - {merged}) | {target}
    cluster_of |= {tensor: target for member in merged.members for tensor in member.outputs}


def _is_residual(operator: Noted) -> bool:
    full = [tensor for tensor in operator.inputs if len(tensor.atoms) == len(operator.outputs[0].atoms)]
    return operator.kind == "pointwise" and operator.function in ADDS and len(full) == 2 and len(operator.inputs) == 2


def _sort_operators(noted: list[Noted]) -> list[Noted]:
    """Return operators in topological order, as near to the given one as it allows."""
    makers = {tensor: operator for operator in noted for tensor in operator.outputs}
    ordered: list[Noted] = []
    state: dict[int, int] = {}
    for first in noted:
        stack = [first]
        while stack:
            operator = stack[-1]
            if state.get(id(operator)) == 2:
                stack.pop()
                continue
            state[id(operator)] = 1
            waiting = [
                makers[tensor]
                for tensor in operator.inputs
                if tensor in makers and makers[tensor] is not operator and state.get(id(makers[tensor]), 0) == 0
            ]
            if waiting:
                stack += waiting[:1]
            else:
                state[id(operator)] = 2
                ordered.append(stack.pop())
    return ordered


def _join_cluster(
    cluster: _Cluster, readers: Counter[Stored], results: set[Stored], parts: dict[Stored, Noted]
) -> Noted:
    """Return a cluster as one operator; *parts* of tensors that it has whole it reads there."""
    members = cluster.members
    if len(members) == 1 and members[0].kind not in FUSIBLE:
        return members[0]
    produced = {tensor for member in members for tensor in member.outputs}
    inside = Counter(tensor for member in members for tensor in set(member.inputs) if tensor in produced)
    outputs = [
        tensor
        for member in members
        for tensor in member.outputs
        if tensor in results or readers[tensor] > inside[tensor]
    ]
    read = list(dict.fromkeys(tensor for member in members for tensor in member.inputs if tensor not in produced))
    inside_of = {tensor: parts[tensor] for tensor in read if tensor in parts and _covers_source(tensor, read, parts)}
    inputs = list(dict.fromkeys(inside_of[tensor].inputs[0] if tensor in inside_of else tensor for tensor in read))
    outputs = outputs or [members[-1].outputs[0]]
    spread = {id(atom) for tensor in outputs for atom in tensor.atoms}
    summed = {id(atom): atom for member in members for atom in resolve_atoms(member.summed)}
    unsplit = [atom for key, atom in summed.items() if key in spread]
    kind, function = _fused_kind(members, inputs, outputs, bool(unsplit), bool(summed))
    unsplit += [atom for operator in (*members, *inside_of.values()) for atom in resolve_atoms(operator.whole)]
    elements = max(len(tensor.atoms) for tensor in outputs)
    work = sum(member.flop for member in members if len(member.outputs[0].atoms) >= elements or member.kind == "reduce")
    widest = max(outputs, key=lambda tensor: len(tensor.atoms))
    outputs.remove(widest)
    return Noted(
        kind,
        sorted(inputs, key=lambda tensor: (tensor.role == "weight", -len(tensor.atoms))),  # activations first
        [widest, *outputs],
        flop=0.0 if kind in ("norm", "softmax", "add") else work,
        summed=list(summed.values()),
        whole=unsplit,
        serial=members[0].serial,
        masked=any(member.masked for member in members),
        function=function,
        part=members[0].part,
    )


def _covers_source(part: Stored, read: list[Stored], parts: dict[Stored, Noted]) -> bool:
    """Return whether a kernel reads the whole of the tensor that *part* is a part of."""
    source = parts[part].inputs[0]
    pieces = [tensor for tensor in read if tensor in parts and parts[tensor].inputs[0] is source]
    return source in read or sum(size_of_atoms(piece.atoms) for piece in pieces) >= size_of_atoms(source.atoms)


def _fused_kind(
    members: list[Noted], inputs: list[Stored], outputs: list[Stored], spread: bool, sums: bool
) -> tuple[str, str]:
    functions = {member.function for member in members}
    if spread and functions & {"exp", "exp2"}:
        return "softmax", "softmax"
    if spread and functions & {"rsqrt", "sqrt", "pow"}:
        return "norm", "norm"
    if sums and not spread:
        return ("reduce", "") if len(outputs) == 1 else ("pointwise", "")
    dims = [[id(atom) for atom in tensor.atoms] for tensor in (*inputs, *outputs)]
    plain = functions <= {*ADDS, *SILENT}
    if plain and functions & set(ADDS) and all(set(dim) == set(dims[0]) for dim in dims) and len(outputs) == 1:
        return "add", ""
    if plain and functions & set(ADDS) and len(outputs) == 1 and any(input_.role == "weight" for input_ in inputs):
        return "bias", ""
    return "pointwise", "+".join(sorted(functions))[:40]


# ---- attention


def _merge_attention(noted: list[Noted]) -> list[Noted]:
    """Return the operators with products, softmax and products that are attention as one."""
    readers: dict[Stored, list[Noted]] = {}
    for operator in noted:
        for tensor in set(operator.inputs):
            readers.setdefault(tensor, []).append(operator)
    makers = {tensor: operator for operator in noted for tensor in operator.outputs}
    replaced: set[int] = set()
    replacements: dict[int, list[Noted]] = {}
    for operator in noted:
        if operator.kind != "softmax" or len(operator.outputs) != 1 or not operator.inputs:
            continue
        chain = _find_attention_chain(operator, makers, readers)
        replacement = _fuse_attention(chain) if chain else None
        if replacement is not None:
            replaced |= {id(member) for member in chain[:-1]}
            replacements[id(chain[-1])] = replacement
    return _sort_operators(
        [
            member
            for operator in noted
            if id(operator) not in replaced
            for member in replacements.get(id(operator), [operator])
        ]
    )


def _find_attention_chain(soft: Noted, makers: dict[Stored, Noted], readers: dict[Stored, list[Noted]]) -> list[Noted]:
    """Return a product, what scales or masks it, a softmax, and a product; none if one of them is missing.

    A kernel of attention does what is between its products. None of that may be read by others, or read weights.
    """
    before, after = [soft], [soft]
    while before[0].kind != "einsum":
        first = makers.get(before[0].inputs[0])
        plain = before[0] is soft or (before[0].kind == "pointwise" and len(before[0].inputs) == 1)
        if first is None or not plain or readers[first.outputs[0]] != [before[0]] or len(first.outputs) != 1:
            return []
        before.insert(0, first)
    while after[-1].kind != "einsum":
        then = readers.get(after[-1].outputs[0], [])
        plain = after[-1] is soft or (after[-1].kind == "pointwise" and len(after[-1].inputs) == 1)
        if not plain or len(then) != 1:
            return []
        after.append(then[0])
    return [*before, *after[1:]]


def _fuse_attention(chain: list[Noted]) -> list[Noted] | None:
    """Return a chain of operators as one, if the softmax is over the keys; None if they are not attention.

    What attention reads has a batch, tokens, heads and a width. Views make one dimension of several: of groups of heads
    that share keys, of halves of a width that are rotated.
    """
    first, second = chain[0], chain[-1]
    soft = next(operator for operator in chain if operator.kind == "softmax")
    probabilities = chain[-2].outputs[0]
    value_inputs = [tensor for tensor in second.inputs if tensor is not probabilities]
    keys = resolve_atoms(soft.whole)
    if len(value_inputs) != 1 or len(first.inputs) != 2 or not keys or len(soft.inputs) != 1:
        return None
    query, key = first.inputs
    if not {*keys} <= {*key.atoms}:
        query, key = key, query
    (value,), scores, output = value_inputs, first.outputs[0].atoms, second.outputs[0]
    rows = [atom for atom in query.atoms if atom in scores and atom in key.atoms]
    width = [atom for atom in query.atoms if atom not in scores]
    wide = [atom for atom in value.atoms if atom not in scores]
    alone = [atom for atom in query.atoms if atom in scores and atom not in key.atoms]
    # Queries' tokens are the other side of the keys'; in cross attention the one dimension that keys lack.
    tokens = [atom for atom in alone if {atom.twin, atom.of} & {*keys}]
    tokens = tokens if len(tokens) == len(keys) else alone[:1] if len(alone) == 1 else []
    fits = (
        bool(tokens and rows and width and wide)
        and {*key.atoms} == {*rows, *keys, *width}
        and {*value.atoms} == {*rows, *keys, *wide}
        and {*output.atoms} == {*rows, *alone, *wide}
    )
    if not fits:
        return None
    batch, shared = rows[0], rows[1:]
    heads = [*shared, *(atom for atom in alone if atom not in tokens)]
    merged = _Merged(soft)
    all_heads, own_heads = merged.dim(heads, "heads"), merged.dim(shared, "kv_heads")
    asking, context = merged.dim(tokens, "tokens"), merged.dim(keys, "keys")
    read = [
        merged.read(query, [batch, asking, all_heads, merged.dim(width, "width")]),
        merged.read(key, [batch, context, own_heads, merged.dim(width, "width")]),
        merged.read(value, [batch, context, own_heads, merged.dim(wide, "width")]),
    ]
    masked = any(operator.masked for operator in chain)
    attention = Noted(
        "attention",
        read,
        [merged.makes(output, [batch, asking, all_heads, merged.dim(wide, "width")])],
        whole=[context],
        masked=masked,
        same=[(own_heads, all_heads)] if shared and own_heads is not all_heads else [],
        serial=soft.serial,
        function="causal" if masked else "",
        part=soft.part,
    )
    return [*merged.before, attention, *merged.after]


class _Merged:
    """Dimensions of an attention that are one in it and several around it, and the views between."""

    def __init__(self, soft: Noted) -> None:
        self.soft = soft
        self.of: dict[tuple[int, ...], Atom] = {}
        self.parts: dict[Atom, list[Atom]] = {}
        self.before: list[Noted] = []
        self.after: list[Noted] = []

    def dim(self, atoms: list[Atom], name: str) -> Atom:
        """Return the one dimension of *atoms*: of none, one of size 1."""
        key = tuple(id(atom) for atom in atoms)
        if key not in self.of:
            self.of[key] = atoms[0] if len(atoms) == 1 else Atom(size_of_atoms(atoms), origin=name)
            self.parts[self.of[key]] = atoms
        return self.of[key]

    def _view(self, tensor: Stored, dims: list[Atom]) -> tuple[Stored, list[tuple[Atom, Atom]]]:
        """Return a tensor of these dimensions with the pairs that are one; *tensor*, if it has them already."""
        if {*dims} == {*tensor.atoms}:
            tensor.dims = _dims_of_atoms(*dims)
            return tensor, []
        view = Stored(f"{tensor.name}_view", "activation", _dims_of_atoms(*dims), tensor.repeat, tensor.bytes)
        return view, [(dim, atom) for dim in dims for atom in self.parts.get(dim, []) if atom is not dim]

    def _noted(self, read: Stored, output: Stored, same: list[tuple[Atom, Atom]]) -> Noted:
        return Noted("view", [read], [output], same=same, serial=list(self.soft.serial), part=self.soft.part)

    def read(self, tensor: Stored, dims: list[Atom]) -> Stored:
        """Return what attention reads of *tensor*: a view of it, if it has other dimensions."""
        view, same = self._view(tensor, dims)
        if view is not tensor:
            self.before.append(self._noted(tensor, view, same))
        return view

    def makes(self, tensor: Stored, dims: list[Atom]) -> Stored:
        """Return the output of attention; *tensor* becomes a view of it if their dimensions differ."""
        view, same = self._view(tensor, dims)
        if view is not tensor:
            self.after.append(self._noted(view, tensor, same))
        return view


def _dims_of_atoms(*atoms: Atom) -> list[Dim]:
    """Return dimensions in the order in which attention names them: batch, tokens, heads, width."""
    return [[atom] for atom in atoms]


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
