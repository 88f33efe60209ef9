"""Fusion: pointwise operators and reductions that a compiler runs as one kernel become one operator.

A cluster reads each tensor once and writes what others read, as XLA's and Inductor's kernels do. Reductions belong to
it if their results are spread over the same dimensions again: those of a norm or a softmax. A product of queries and
keys, a softmax and a product with values are attention.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from cosmic.programs.atoms import Atom, Dim, resolved
from cosmic.programs.tracing import Noted, Stored

FUSIBLE = ("pointwise", "reduce")
ADDS = ("add", "add_any", "sub")
SILENT = ("convert", "stop_gradient", "copy", "reduce_precision", "neg")


@dataclass(eq=False)
class _Cluster:
    """Operators that become one."""

    members: list[Noted] = field(default_factory=list)
    closed: bool = False


def fused(noted: list[Noted], results: Iterable[Stored]) -> list[Noted]:
    """Return the operators with those that belong together as one, in topological order."""
    return _attention(_clusters(_alive(noted, set(results)), set(results)))


def _alive(noted: list[Noted], results: set[Stored]) -> list[Noted]:
    """Return the operators that some result depends on."""
    needed = set(results)
    found = []
    for each in reversed(noted):
        if any(made in needed for made in each.outputs):
            found.append(each)
            needed.update(each.inputs)
    return found[::-1]


def _space(each: Noted) -> set[int]:
    return {id(atom) for tensor in (*each.inputs, *each.outputs) for atom in tensor.atoms}


def _clusters(noted: list[Noted], results: set[Stored]) -> list[Noted]:
    readers = Counter(tensor for each in noted for tensor in set(each.inputs))
    home: dict[Stored, _Cluster] = {}
    spaces: dict[int, set[int]] = {}
    above: dict[Stored, set[int]] = {}
    """The clusters that a tensor depends on through what is outside of them."""
    order: list[_Cluster] = []
    for each in noted:
        before: set[int] = set()
        for tensor in each.inputs:
            before |= above.get(tensor, set())
        chosen: _Cluster | None = None
        if each.kind in FUSIBLE:
            for tensor in each.inputs:
                cluster = home.get(tensor)
                if cluster is None or cluster.closed or cluster.members[0].part != each.part or chosen is cluster:
                    continue
                others = [above.get(other, set()) for other in each.inputs if home.get(other) is not cluster]
                cyclic = any(id(cluster) in those for those in others) or id(cluster) in above.get(tensor, set())
                alike = _space(each) <= spaces[id(cluster)] or spaces[id(cluster)] <= _space(each)
                if not cyclic and alike and (chosen is None or order.index(cluster) > order.index(chosen)):
                    chosen = cluster
        if chosen is None:
            chosen = _Cluster(closed=each.kind not in FUSIBLE)
            order.append(chosen)
            spaces[id(chosen)] = set()
        chosen.members.append(each)
        spaces[id(chosen)] |= _space(each)
        inside = {tensor for tensor in each.inputs if home.get(tensor) is chosen}
        outside = {id(home[t]) for t in each.inputs if t not in inside and t in home}
        for made in each.outputs:
            home[made] = chosen
            above[made] = before | outside
        if _is_residual(each) and readers[each.outputs[0]] > 1 and len(chosen.members) == 1:
            chosen.closed = True  # a residual stream is written: the norm after it reads it
    return _in_order([_joined(cluster, readers, results) for cluster in order])


def _is_residual(each: Noted) -> bool:
    full = [tensor for tensor in each.inputs if len(tensor.atoms) == len(each.outputs[0].atoms)]
    return each.kind == "pointwise" and each.function in ADDS and len(full) == 2 and len(each.inputs) == 2


def _in_order(noted: list[Noted]) -> list[Noted]:
    """Return operators in topological order, as near to the given one as it allows."""
    makers = {made: each for each in noted for made in each.outputs}
    found: list[Noted] = []
    state: dict[int, int] = {}
    for first in noted:
        stack = [first]
        while stack:
            each = stack[-1]
            if state.get(id(each)) == 2:
                stack.pop()
                continue
            state[id(each)] = 1
            waiting = [
                makers[tensor]
                for tensor in each.inputs
                if tensor in makers and makers[tensor] is not each and state.get(id(makers[tensor]), 0) == 0
            ]
            if waiting:
                stack += waiting[:1]
            else:
                state[id(each)] = 2
                found.append(stack.pop())
    return found


def _joined(cluster: _Cluster, readers: Counter[Stored], results: set[Stored]) -> Noted:
    """Return a cluster as one operator."""
    members = cluster.members
    if len(members) == 1 and members[0].kind not in FUSIBLE:
        return members[0]
    made = {tensor for each in members for tensor in each.outputs}
    inside = Counter(tensor for each in members for tensor in set(each.inputs) if tensor in made)
    outputs = [
        tensor for each in members for tensor in each.outputs if tensor in results or readers[tensor] > inside[tensor]
    ]
    inputs = list(dict.fromkeys(tensor for each in members for tensor in each.inputs if tensor not in made))
    outputs = outputs or [members[-1].outputs[0]]
    spread = {id(atom) for tensor in outputs for atom in tensor.atoms}
    summed = {id(atom): atom for each in members for atom in resolved(each.summed)}
    whole = [atom for key, atom in summed.items() if key in spread]
    kind, function = _kind(members, inputs, outputs, bool(whole), bool(summed))
    elements = max(len(tensor.atoms) for tensor in outputs)
    work = sum(each.flop for each in members if len(each.outputs[0].atoms) >= elements or each.kind == "reduce")
    widest = max(outputs, key=lambda tensor: len(tensor.atoms))
    outputs.remove(widest)
    return Noted(
        kind,
        _main_first(inputs),
        [widest, *outputs],
        flop=0.0 if kind in ("norm", "softmax", "add") else work,
        summed=list(summed.values()),
        whole=whole,
        serial=members[0].serial,
        masked=any(each.masked for each in members),
        function=function,
        part=members[0].part,
    )


def _main_first(inputs: list[Stored]) -> list[Stored]:
    """Return the activations before the weights, those with most dimensions first."""
    return sorted(inputs, key=lambda tensor: (tensor.role == "weight", -len(tensor.atoms)))


def _kind(
    members: list[Noted], inputs: list[Stored], outputs: list[Stored], spread: bool, sums: bool
) -> tuple[str, str]:
    functions = {each.function for each in members}
    if spread and functions & {"exp", "exp2"}:
        return "softmax", "softmax"
    if spread and functions & {"rsqrt", "sqrt", "pow"}:
        return "norm", "norm"
    if sums and not spread:
        return ("reduce", "") if len(outputs) == 1 else ("pointwise", "")
    dims = [[id(atom) for atom in tensor.atoms] for tensor in (*inputs, *outputs)]
    plain = functions <= {*ADDS, *SILENT}
    if plain and functions & set(ADDS) and all(set(each) == set(dims[0]) for each in dims) and len(outputs) == 1:
        return "add", ""
    if plain and functions & set(ADDS) and len(outputs) == 1 and any(each.role == "weight" for each in inputs):
        return "bias", ""
    return "pointwise", "+".join(sorted(functions))[:40]


# --------------------------------------------------------------------------------------------- attention


def _attention(noted: list[Noted]) -> list[Noted]:
    """Return the operators with products, softmax and products that are attention as one."""
    readers: dict[Stored, list[Noted]] = {}
    for each in noted:
        for tensor in set(each.inputs):
            readers.setdefault(tensor, []).append(each)
    makers = {made: each for each in noted for made in each.outputs}
    gone: set[int] = set()
    found: dict[int, Noted] = {}
    for each in noted:
        if each.kind != "softmax" or len(each.outputs) != 1 or not each.inputs:
            continue
        first = makers.get(each.inputs[0])
        after = readers.get(each.outputs[0], [])
        if first is None or first.kind != "einsum" or len(after) != 1 or after[0].kind != "einsum":
            continue
        if readers[first.outputs[0]] != [each]:
            continue
        made = _as_attention(first, each, after[0])
        if made is not None:
            gone |= {id(first), id(each)}
            found[id(after[0])] = made
    return _in_order([found.get(id(each), each) for each in noted if id(each) not in gone])


def _as_attention(first: Noted, soft: Noted, second: Noted) -> Noted | None:
    """Return three operators as one, if the softmax is over the keys; None if they are not attention."""
    keys = {id(atom) for atom in resolved(soft.whole)}
    probabilities = soft.outputs[0]
    others = [tensor for tensor in second.inputs if tensor is not probabilities]
    if len(others) != 1 or len(first.inputs) != 2 or not keys:
        return None
    query, key = first.inputs
    if not keys <= {id(atom) for atom in key.atoms}:
        query, key = key, query
    (value,) = others
    if not keys <= {id(atom) for atom in key.atoms} or not keys <= {id(atom) for atom in value.atoms}:
        return None
    scores, made = first.outputs[0], second.outputs[0]
    inside = {id(atom) for atom in scores.atoms}
    shared = [atom for atom in query.atoms if id(atom) in inside]
    width = [atom for atom in query.atoms if id(atom) not in inside]
    wide = [atom for atom in value.atoms if id(atom) not in inside]
    tokens = [atom for atom in shared if id(atom) not in {id(each) for each in key.atoms}]
    rows = [atom for atom in shared if id(atom) in {id(each) for each in key.atoms}]
    one = len(tokens) == len(keys) == len(width) == len(wide) == 1
    if not one or len(rows) != 2 or len(key.atoms) != 4 or len(value.atoms) != 4 or len(query.atoms) != 4:
        return None
    batch, heads = rows
    (context,) = (atom for atom in key.atoms if id(atom) in keys)
    query.dims, key.dims = _layout(batch, *tokens, heads, *width), _layout(batch, context, heads, *width)
    value.dims, made.dims = _layout(batch, context, heads, *wide), _layout(batch, *tokens, heads, *wide)
    return Noted(
        "attention",
        [query, key, value],
        [made],
        whole=list(soft.whole),
        masked=soft.masked,
        serial=soft.serial,
        function="causal" if soft.masked else "",
        part=soft.part,
    )


def _layout(*atoms: Atom) -> list[Dim]:
    """Return dimensions in the order in which attention names them: batch, tokens, heads, width."""
    return [[atom] for atom in atoms]
