"""Fusion: pointwise operators and reductions that a compiler runs as one kernel become one operator.

A cluster reads each tensor once and writes what others read, as XLA's and Inductor's kernels do. Reductions belong to
it if their results are spread over the same dimensions again: those of a norm or a softmax. A product of queries and
keys, a softmax and a product with values are attention.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from cosmic.workload.user_programs.operator_tracer import (
    CONCAT,
    SLICE,
    Atom,
    Dim,
    Noted,
    Stored,
    resolve_atoms,
    size_of_atoms,
)

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
        replacement = _build_attention(chain) if chain else None
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


def _build_attention(chain: list[Noted]) -> list[Noted] | None:
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
