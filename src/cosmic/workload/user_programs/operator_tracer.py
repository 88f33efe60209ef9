"""What the tracers of JAX and PyTorch share: values, views, operators between them, and dimensions as atoms.

A value is a view of a tensor: its dimensions in some order, some of them broadcast. Transposes, reshapes and
broadcasts make views and no operators. Pointwise operators and reductions are noted one by one;
`cosmic.workload.user_programs.traced_program` makes few of them.

Dimensions of traced programs: which are equal, which are factors of others.

Operators say that dimensions are equal; a reshape says that one is the product of others. Dimensions are therefore
lists of *atoms*, from major to minor. Where 1024 meets 16 × 64, the one atom becomes two wherever it occurs, so that a
reshape needs no operator: `hidden` of a projection is `heads` and `head_dim` from the start, as in the models of the
catalog.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import prod

from cosmic.base.errors import SpecError
from cosmic.workload.sharding.graph_partition import halo_rows

Dim = list["Atom"]
"""A dimension: its atoms, from major to minor; of size 1 where it has none."""


@dataclass(eq=False)
class Atom:
    """A dimension that nothing splits yet."""

    size: int
    name: str = ""
    """What a user calls it; empty if nothing."""
    origin: str = ""
    """Where it first occurred: what it is called otherwise."""
    same: Atom | None = None
    """The atom that it turned out to be."""
    parts: list[Atom] = field(default_factory=list)
    """Its factors, where it turned out to be a product."""
    twin: Atom | None = None
    """The same dimension seen from another side: keys are queries' tokens. Two names in one tensor."""
    of: Atom | None = None
    """The atom whose twin it is."""


def resolve_atoms(dim: Iterable[Atom]) -> Dim:
    """Return the atoms that a dimension has by now."""
    atoms: Dim = []
    for unresolved in dim:
        atom = unresolved
        while atom.same is not None:
            atom = atom.same
        atoms += resolve_atoms(atom.parts) if atom.parts else [atom]
    return atoms


def size_of_atoms(dim: Iterable[Atom]) -> int:
    """Return the size of a dimension."""
    return prod(atom.size for atom in dim)


class Twins(Exception):  # noqa: N818  no error: it says which way to go on
    """Raised where two sides of one dimension would become one."""


def unify_atoms(first: Iterable[Atom], second: Iterable[Atom]) -> bool:
    """Make two dimensions of one size one; return whether they have common factors.

    >>> heads, head_dim, hidden = Atom(16), Atom(64), Atom(1024)
    >>> unify_atoms([heads, head_dim], [hidden]), resolve_atoms([hidden]) == [heads, head_dim]
    (True, True)
    >>> unify_atoms([Atom(3), Atom(4)], [Atom(4), Atom(3)])
    False
    """
    if not _factors_fit([atom.size for atom in resolve_atoms(first)], [atom.size for atom in resolve_atoms(second)]):
        return False
    left, right = resolve_atoms(first), resolve_atoms(second)
    # Both sides are products of atoms, major to minor: the larger of the two leading atoms is split by the smaller.
    while left and right:
        left_atom, right_atom = left.pop(0), right.pop(0)
        if left_atom is right_atom:
            continue
        if left_atom.size == right_atom.size:
            _merge_atoms(left_atom, right_atom)
        elif left_atom.size < right_atom.size:
            split_atom(right_atom, left_atom.size)
            left.insert(0, left_atom)
            right[:0] = right_atom.parts
        else:
            split_atom(left_atom, right_atom.size)
            left[:0] = left_atom.parts
            right.insert(0, right_atom)
    return True


def _factors_fit(left: list[int], right: list[int]) -> bool:
    """Return whether two lists of factors have a common refinement."""
    left, right = list(left), list(right)
    while left and right:
        first, second = left.pop(0), right.pop(0)
        if first == second:
            continue
        small, large = sorted((first, second))
        if large % small:
            return False
        (left if first > second else right).insert(0, large // small)
    return not left and not right


def split_atom(atom: Atom, major: int) -> None:
    """Make an atom the product of a major part of so much and the rest; its twin too."""
    atom.parts = [Atom(major, origin=f"{atom.name or atom.origin}_a"), Atom(atom.size // major)]
    atom.parts[1].origin = f"{atom.name or atom.origin}_b"
    for opposite, back in ((atom.twin, False), (atom.of, True)):
        if opposite is not None and not opposite.parts:
            split_atom(opposite, major)
            for own_part, opposite_part in zip(atom.parts, opposite.parts, strict=True):
                if back:
                    opposite_part.twin, own_part.of = own_part, opposite_part
                else:
                    own_part.twin, opposite_part.of = opposite_part, own_part


def _merge_atoms(atom: Atom, duplicate: Atom) -> None:
    if atom.twin is duplicate or duplicate.twin is atom:
        raise Twins
    if duplicate.name and not atom.name:
        atom, duplicate = duplicate, atom
    duplicate.same = atom
    if duplicate.twin is not None and atom.twin is not None:
        _merge_atoms(atom.twin, duplicate.twin)
    elif duplicate.twin is not None:
        atom.twin, duplicate.twin.of = duplicate.twin, atom
    if duplicate.of is not None and atom.of is None and duplicate.of is not atom:
        atom.of = duplicate.of
        duplicate.of.twin = atom


def twin_of(atom: Atom) -> Atom:
    """Return the other side of a dimension."""
    if atom.of is not None:
        return atom.of
    if atom.twin is None:
        atom.twin = Atom(atom.size, origin=f"{atom.name or atom.origin}_other", of=atom)
    (opposite,) = resolve_atoms([atom.twin])
    return opposite


SLICE, CONCAT = "slice", "concat"
"""Functions of operators that take a part of a tensor, where it is, and that put several into one."""


@dataclass(eq=False)
class Stored:
    """A tensor that is stored."""

    name: str
    role: str
    dims: list[Dim]
    repeat: int = 1
    bytes: float | None = None
    """Bytes of an element, if it is no floating-point number."""

    @property
    def atoms(self) -> Dim:
        """Its atoms, as they are by now."""
        return [atom for dim in self.dims for atom in resolve_atoms(dim)]


@dataclass(frozen=True)
class Value:
    """A view of a tensor, or a constant."""

    dims: list[Dim]
    stored: Stored | None = None
    masks: bool = False
    """Whether it is a constant that compares positions."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its size along each dimension."""
        return tuple(size_of_atoms(dim) for dim in self.dims)


@dataclass(eq=False)
class Noted:
    """An operator as it was traced."""

    kind: str
    inputs: list[Stored]
    outputs: list[Stored]
    flop: float = 0.0
    summed: Dim = field(default_factory=list)
    """Atoms that a reduction sums over."""
    whole: Dim = field(default_factory=list)
    same: list[tuple[Atom, Atom]] = field(default_factory=list)
    halo: list[tuple[Atom, int, int]] = field(default_factory=list)
    serial: Dim = field(default_factory=list)
    masked: bool = False
    function: str = ""
    """What it computes: exp, rsqrt, add."""
    part: int = 0


def words_of_name(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


class Tracer:
    """Collects operators; each method adds some and returns a value."""

    def __init__(self) -> None:
        self.noted: list[Noted] = []
        self.counts: dict[str, int] = {}
        self.serial: Dim = []
        """Dimensions of the loops around what is traced."""
        self.part, self.repeats = 0, {0: 1}
        """The part that is traced, and how often each is repeated."""
        self.parts = 0
        self.carries: dict[int, list[tuple[Stored, Stored]]] = {}
        self.names: set[str] = set()

    # ------------------------------------------------------------------------------------------- values

    def name(self, kind: str) -> str:
        """Return a new name for what a kind of operator makes."""
        self.counts[kind] = self.counts.get(kind, 0) + 1
        label = f"{kind}_{self.counts[kind]}"
        return label if label not in self.names else self.name(kind)

    def add_input(self, name: str, shape: Sequence[int], role: str, width: float | None = None) -> Value:
        """Return an input or a weight."""
        while name in self.names:
            name += "_"
        self.names.add(name)
        dims = [[Atom(size, origin=f"{name}_{index}")] if size > 1 else [] for index, size in enumerate(shape)]
        return Value(dims, Stored(name, role, dims, self.repeats[self.part], width))

    def constant(self, shape: Sequence[int], masks: bool = False) -> Value:
        """Return a constant, which nobody reads from memory."""
        return Value([[Atom(size, origin="constant")] if size != 1 else [] for size in shape], None, masks)

    def _make(self, kind: str, dims: list[Dim]) -> Stored:
        return Stored(self.name(kind), "activation", [list(dim) for dim in dims])

    def note(self, kind: str, inputs: Sequence[Value], dims: list[Dim], **details: object) -> Value:
        """Add an operator that makes a tensor of *dims*."""
        output = self._make(kind, dims)
        read = [value.stored for value in inputs if value.stored is not None]
        self.noted.append(Noted(kind, read, [output], part=self.part, serial=list(self.serial), **details))  # type: ignore[arg-type]
        return Value([list(dim) for dim in dims], output)

    # -------------------------------------------------------------------------------------------- views

    def transpose(self, value: Value, order: Sequence[int]) -> Value:
        """Return a view with its dimensions in another order."""
        return Value([value.dims[axis] for axis in order], value.stored, value.masks)

    def reshape(self, value: Value, shape: Sequence[int]) -> Value:
        """Return a view of another shape; where factors have nothing in common, a copy."""
        if size_of_atoms([atom for dim in value.dims for atom in resolve_atoms(dim)]) != prod(shape):
            raise SpecError("reshape", list(shape), f"has not the elements of {list(value.shape)}")
        atoms = [atom for dim in value.dims for atom in resolve_atoms(dim)]
        dims: list[Dim] = []
        for size in shape:
            taken: Dim = []
            while size_of_atoms(taken) < size and atoms:
                rest = size // size_of_atoms(taken)
                atom = atoms.pop(0)
                if rest % atom.size == 0:
                    taken.append(atom)
                elif atom.size % rest == 0:
                    split_atom(atom, rest)
                    taken.append(atom.parts[0])
                    atoms.insert(0, atom.parts[1])
                else:
                    return self._copied(value, shape)
            if size_of_atoms(taken) != size:
                return self._copied(value, shape)
            dims.append(taken)
        return Value(dims, value.stored, value.masks)

    def _copied(self, value: Value, shape: Sequence[int]) -> Value:
        """Return a copy that shares no dimension with *value*: nothing may be split across it."""
        fresh = [[Atom(size, origin=f"copied_{index}")] if size > 1 else [] for index, size in enumerate(shape)]
        if value.stored is None:
            return Value(fresh, None, value.masks)
        atoms = [atom for dim in (*value.dims, *fresh) for atom in resolve_atoms(dim)]
        return self.note("copy", [value], fresh, whole=atoms)

    def broadcast(self, value: Value, shape: Sequence[int], axes: Sequence[int]) -> Value:
        """Return a view in which dimension i of *value* is number places[i], and others are repeated."""
        dims: list[Dim] = [[Atom(size, origin="broadcast")] if size > 1 else [] for size in shape]
        for axis, dim in zip(axes, value.dims, strict=True):
            if resolve_atoms(dim):
                dims[axis] = dim
        return Value(dims, value.stored, value.masks)

    # ---------------------------------------------------------------------------------------- operators

    def pointwise(self, function: str, inputs: Sequence[Value], shape: Sequence[int], flop: float = 1.0) -> Value:
        """Add an operator that works element by element; inputs of size 1 are broadcast."""
        if 0 in shape:
            return self.constant(shape)
        dims: list[Dim] = [[] for _ in shape]
        read: list[Value] = []
        for input_ in inputs:
            value = input_
            if len(value.dims) not in (0, len(shape)):
                value = self.broadcast(value, shape, range(len(shape) - len(value.dims), len(shape)))
            for index in range(len(value.dims)):
                if not dims[index]:
                    dims[index] = value.dims[index]
                elif resolve_atoms(value.dims[index]):
                    value = self._aligned(value, index, dims[index])
            read.append(value)
        masks = function in ("gt", "ge", "lt", "le") or any(value.masks for value in inputs)
        if all(value.stored is None for value in read):
            return Value(dims, None, masks and len(shape) > 0)
        sources = {value.stored for value in read if value.stored is not None}
        if len(sources) == 1 and all(
            source.bytes is not None and source.role in ("input", "index") for source in sources
        ):
            return Value(dims, sources.pop())  # arithmetic of indices goes with what reads them
        masked = any(value.masks for value in inputs)
        return self.note("pointwise", read, dims, flop=flop, function=function, masked=masked)

    def _aligned(self, value: Value, axis: int, target: Dim) -> Value:
        """Return *value* with dimension *axis* made one with *target*, by another name or a copy if need be."""
        try:
            if unify_atoms(target, value.dims[axis]):
                return value
        except Twins:
            return self.renamed(value, axis)
        value = self._copied(value, value.shape)
        unify_atoms(target, value.dims[axis])
        return value

    def _paired(self, left: Value, left_axis: int, right: Value, right_axis: int) -> tuple[Value, Value]:
        """Unify a dimension of two values; if one of them has it already, rename the dimension of the other."""
        if left.shape[left_axis] != right.shape[right_axis]:
            rule = f"is not {right.shape[right_axis]}, the size of the dimension that it is multiplied with"
            raise SpecError("operator", left.shape[left_axis], rule)
        try:
            if unify_atoms(left.dims[left_axis], right.dims[right_axis]):
                return left, right
        except Twins:
            other_atoms = {
                atom for index, dim in enumerate(right.dims) if index != right_axis for atom in resolve_atoms(dim)
            }
            if other_atoms & {twin_of(atom) for atom in resolve_atoms(right.dims[right_axis])}:
                return self.renamed(left, left_axis), right
            return left, self.renamed(right, right_axis)
        right = self._copied(right, right.shape)
        unify_atoms(left.dims[left_axis], right.dims[right_axis])
        return left, right

    def renamed(self, value: Value, axis: int) -> Value:
        """Return *value* with dimension *axis* seen from its other side."""
        atoms = resolve_atoms(value.dims[axis])
        dims = [list(dim) for dim in value.dims]
        dims[axis] = [twin_of(atom) for atom in atoms]
        if value.stored is None:
            return Value(dims, None, value.masks)
        same = list(zip(dims[axis], atoms, strict=True))
        return self._seen(value, dims, same)

    def _seen(self, value: Value, dims: list[Dim], same: list[tuple[Atom, Atom]]) -> Value:
        """Return a view of *value* with *dims*; pairs in *same* are equal, broadcast dimensions stay unstored."""
        stored, same_atoms = set(value.stored.atoms) if value.stored else set(), dict(same)
        kept_dims = [[atom for atom in resolve_atoms(dim) if same_atoms.get(atom, atom) in stored] for dim in dims]
        view = self.note("view", [value], kept_dims, same=[pair for pair in same if pair[1] in stored])
        return Value(dims, view.stored)

    def einsum(
        self, left: Value, right: Value, batch: Sequence[tuple[int, int]], summed: Sequence[tuple[int, int]]
    ) -> Value:
        """Add a product: *batch* pairs of dimensions are kept, *summed* pairs contracted, free ones follow."""
        # A dimension of size 1 has no atoms that could be made one with the other side's.
        spread = [pair for pair in batch if 1 in (left.shape[pair[0]], right.shape[pair[1]])]
        """Pairs of which one side is broadcast."""
        for left_axis, right_axis in (*(pair for pair in batch if pair not in spread), *summed):
            left, right = self._paired(left, left_axis, right, right_axis)
        free_left = [p for p in range(len(left.dims)) if p not in [a for a, _ in (*batch, *summed)]]
        free_right = [p for p in range(len(right.dims)) if p not in [b for _, b in (*batch, *summed)]]
        free_atoms = {atom for axis in free_left for atom in resolve_atoms(left.dims[axis])}
        for axis in free_right:
            if free_atoms & set(resolve_atoms(right.dims[axis])):
                right = self.renamed(right, axis)
        dims = (
            [left.dims[a] or right.dims[b] for a, b in batch]
            + [left.dims[p] for p in free_left]
            + [right.dims[p] for p in free_right]
        )
        if left.stored is None and right.stored is None:
            return Value(dims)
        return self.note("einsum", [left, right], dims)

    def reduce(self, value: Value, axes: Sequence[int], function: str, keep: bool = False) -> Value:
        """Add a sum, a maximum or the like over some dimensions."""
        summed = [atom for axis in axes for atom in resolve_atoms(value.dims[axis])]
        dims: list[Dim] = [[] if p in axes else dim for p, dim in enumerate(value.dims) if keep or p not in axes]
        if value.stored is None:
            return Value(dims)
        return self.note("reduce", [value], dims, flop=1.0, summed=summed, function=function)

    def lookup(self, table: Value, index: Value, dims: list[Dim]) -> Value:
        """Add the gathering of rows of a table by an index, which becomes one-hot along the table's first dimension."""
        rows = resolve_atoms(table.dims[0])
        if index.stored is not None and index.stored.role == "input":
            index.stored.role = "index"
            index.stored.dims = [*index.stored.dims, rows]
        if index.stored is not None and index.stored.role == "index":
            return self.note("embedding", [index, table], dims)
        return self.note("gather", [table, index], dims, whole=rows)

    def convolution(
        self,
        read: Value,
        weight: Value,
        places: tuple[Sequence[int], Sequence[int]],
        shape: Sequence[int],
        strides: Sequence[int],
        padding: Sequence[tuple[int, int]],
        dilation: Sequence[int],
        groups: int = 1,
    ) -> Value:
        """Add a convolution, whose result has batch, filters and rows, in this order.

        *places* are batch, channels and rows of the input; and filters, channels and rows of the weight.
        """
        (batch, channel, *spatial), (filters, inner, *rows) = places
        out: list[Dim] = [read.dims[batch], weight.dims[filters]]
        channels = read.dims[channel]
        if groups > 1:
            read, channels, out[1] = self._grouped(read, channel, weight.dims[filters], groups)
            weight = Value([*weight.dims[:filters], out[1], *weight.dims[filters + 1 :]], weight.stored)
        if resolve_atoms(channels):
            view = Value([*read.dims[:channel], channels, *read.dims[channel + 1 :]], read.stored)
            read = self._paired(weight, inner, view, channel)[1]
        same, halo = [], []
        for source in spatial:
            read = self.merged(read, source)
        for index, (source, row) in enumerate(zip(spatial, rows, strict=True)):
            size, window = shape[2 + index], size_of_atoms(resolve_atoms(weight.dims[row]))
            atoms = resolve_atoms(read.dims[source])
            if size == size_of_atoms(atoms) and strides[index] == 1:
                out_dim: Dim = list(atoms)
            else:
                out_dim = [Atom(size, origin=f"rows_{size}")] if size > 1 else []
                same += list(zip(out_dim, atoms, strict=False))
            # A shard of the rows needs some of its neighbours': the window reaches over its ends.
            before, after = halo_rows(window, strides[index], padding[index][0], dilation[index])
            if atoms and (before or after):
                halo.append((atoms[0], before, after))
            out.append(out_dim)
        return self.note("convolution", [read, weight], out, same=same, halo=halo)

    def merged(self, value: Value, axis: int) -> Value:
        """Return *value* with dimension *axis* as one, where it is a product of others."""
        atoms = resolve_atoms(value.dims[axis])
        if len(atoms) < 2 or value.stored is None:
            return value
        merged_atom = Atom(size_of_atoms(atoms), origin=f"merged_{size_of_atoms(atoms)}")
        dims = [[merged_atom] if axis == index else list(dim) for index, dim in enumerate(value.dims)]
        return self.note("view", [value], dims, same=[(merged_atom, atom) for atom in atoms])

    def _grouped(self, read: Value, channel: int, filters: Dim, groups: int) -> tuple[Value, Dim, Dim]:
        """Return what a convolution in groups reads, a group's channels, and its filters: groups of filters.

        A group of channels makes a group of filters, so that a device may have some groups alone.
        """
        group = Atom(groups, origin="groups")
        inner, outer = (size_of_atoms(resolve_atoms(dim)) // groups for dim in (read.dims[channel], filters))
        channels = [Atom(inner, origin="group_channels")] if inner > 1 else []
        out_dims = [group, *([Atom(outer, origin="group_filters")] if outer > 1 else [])]
        if not unify_atoms([group, *channels], read.dims[channel]):
            read = self._copied(read, read.shape)
            unify_atoms([group, *channels], read.dims[channel])
        unify_atoms(out_dims, filters)
        return read, channels, out_dims

    def pooling(self, read: Value, spatial: Sequence[int], windows: Sequence[int], shape: Sequence[int],
                strides: Sequence[int], padding: Sequence[tuple[int, int]]) -> Value:  # fmt: skip
        """Add a pooling over windows of some dimensions."""
        for axis in spatial:
            read = self.merged(read, axis)
        dims = [list(dim) for dim in read.dims]
        same, halo = [], []
        for axis, window, stride, pad in zip(spatial, windows, strides, padding, strict=True):
            atoms = resolve_atoms(read.dims[axis])
            if shape[axis] != size_of_atoms(atoms):
                dims[axis] = [Atom(shape[axis], origin=f"rows_{shape[axis]}")] if shape[axis] > 1 else []
                same += list(zip(dims[axis], atoms, strict=False))
            before, after = halo_rows(window, stride, pad[0])
            if atoms and (before or after):
                halo.append((atoms[0], before, after))
        return self.note("pooling", [read], dims, flop=float(prod(windows)), same=same, halo=halo)

    def sliced(self, value: Value, axis: int, start: int, length: int) -> Value:
        """Return a part of a dimension: of equal parts a view along the rest, otherwise a copy."""
        full_length = size_of_atoms(resolve_atoms(value.dims[axis]))
        if length == full_length:
            return value
        if value.stored is None or length == 0:
            return self.constant([length if p == axis else n for p, n in enumerate(value.shape)], value.masks)
        dims = [list(dim) for dim in value.dims]
        if value.stored.bytes is not None and value.stored.role in ("input", "index"):
            part = self.add_input(f"{value.stored.name}_part", [length], "input", value.stored.bytes)
            dims[axis] = part.dims[0]
            part.stored.dims = list(dims)  # type: ignore[union-attr]  # it was given
            return Value(dims, part.stored)
        if full_length % length == 0 and start % length == 0 and self._splits(value, axis, full_length // length):
            atoms = resolve_atoms(value.dims[axis])
            count, taken = full_length // length, 1
            while taken < count:
                taken *= atoms.pop(0).size
            dims[axis] = atoms
            dropped = resolve_atoms(value.dims[axis])[: -len(atoms) or None]
            return self.note("view", [value], dims, whole=dropped, function=SLICE)
        dims[axis] = [Atom(length, origin=f"part_{length}")] if length > 1 else []
        return self.note("view", [value], dims, whole=[*resolve_atoms(value.dims[axis]), *dims[axis]], function=SLICE)

    def _splits(self, value: Value, axis: int, major: int) -> bool:
        return unify_atoms(
            value.dims[axis],
            [Atom(major, origin="parts"), Atom(size_of_atoms(resolve_atoms(value.dims[axis])) // major)],
        )

    def joined(self, values: Sequence[Value], axis: int) -> Value:
        """Return values one after the other along a dimension."""
        values = [value for value in values if value.shape[axis]] or values[:1]
        if len(values) == 1:
            return values[0]
        sizes = [value.shape[axis] for value in values]
        dims = [list(dim) for dim in values[0].dims]
        read = [values[0]]
        for operand in values[1:]:
            value = operand
            for index in range(len(dims)):
                if index != axis:
                    value = self._aligned(value, index, dims[index])
            read.append(value)
        unsplit = [atom for value in read for atom in resolve_atoms(value.dims[axis])]
        dims[axis] = [Atom(sum(sizes), origin=f"joined_{sum(sizes)}")]
        if len(set(sizes)) == 1 and all(value.stored is not None for value in read) and sizes[0] > 1:
            rest = values[0].dims[axis]
            if all(unify_atoms(rest, value.dims[axis]) for value in read[1:]):
                dims[axis] = [Atom(len(sizes), origin=f"parts_{len(sizes)}"), *rest]
                unsplit = dims[axis][:1]
        if all(value.stored is None for value in read):
            return Value(dims)
        return self.note("copy", read, dims, whole=[*unsplit, *dims[axis][:1]], function=CONCAT)

    def padded(self, value: Value, shape: Sequence[int]) -> Value:
        """Return a copy with further rows along some dimensions, or with fewer."""
        fresh = self.constant(shape)
        dims: list[Dim] = [
            dim if size_of_atoms(resolve_atoms(dim)) == size else new
            for dim, size, new in zip(value.dims, shape, fresh.dims, strict=True)
        ]
        changed = [
            atom
            for old, new in zip(value.dims, dims, strict=True)
            if new is not old
            for atom in (*resolve_atoms(old), *resolve_atoms(new))
        ]
        return self.add_unsplit("copy", [value], dims, changed, 0.0)

    def sorted(self, inputs: Sequence[Value], result_dims: Sequence[list[Dim]], over: Dim, flop: float) -> list[Value]:
        """Add a sort, which makes several tensors at once: values, and where they were."""
        first = self.add_unsplit("sort", inputs, result_dims[0], over, flop / len(result_dims))
        if first.stored is None:
            return [Value(dims) for dims in result_dims]
        rest = [self._make("sort", dims) for dims in result_dims[1:]]
        self.noted[-1].outputs += rest
        return [
            first,
            *(Value([list(d) for d in dims], stored) for dims, stored in zip(result_dims[1:], rest, strict=True)),
        ]

    def add_unsplit(self, kind: str, inputs: Sequence[Value], dims: list[Dim], over: Dim, flop: float = 1.0) -> Value:
        """Add an operator that needs some dimensions whole: a sort, a cumulative sum, a softmax."""
        if all(value.stored is None for value in inputs):
            return Value(dims)
        return self.note(kind, inputs, dims, whole=over, flop=flop)
