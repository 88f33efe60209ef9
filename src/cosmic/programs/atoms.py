"""Dimensions of traced programs: which are equal, which are factors of others.

Operators say that dimensions are equal; a reshape says that one is the product of others. Dimensions are therefore
lists of *atoms*, from major to minor. Where 1024 meets 16 × 64, the one atom becomes two wherever it occurs, so that a
reshape needs no operator: `hidden` of a projection is `heads` and `head_dim` from the start, as in the models of the
catalog.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import prod

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


def resolved(dim: Iterable[Atom]) -> Dim:
    """Return the atoms that a dimension has by now."""
    found: Dim = []
    for each in dim:
        atom = each
        while atom.same is not None:
            atom = atom.same
        found += resolved(atom.parts) if atom.parts else [atom]
    return found


def size_of(dim: Iterable[Atom]) -> int:
    """Return the size of a dimension."""
    return prod(atom.size for atom in dim)


class Twins(Exception):  # noqa: N818  no error: it says which way to go on
    """Raised where two sides of one dimension would become one."""


def unify(first: Iterable[Atom], second: Iterable[Atom]) -> bool:
    """Make two dimensions of one size one; return whether they have common factors.

    >>> heads, head_dim, hidden = Atom(16), Atom(64), Atom(1024)
    >>> unify([heads, head_dim], [hidden]), resolved([hidden]) == [heads, head_dim]
    (True, True)
    >>> unify([Atom(3), Atom(4)], [Atom(4), Atom(3)])
    False
    """
    if not _fit([atom.size for atom in resolved(first)], [atom.size for atom in resolved(second)]):
        return False
    left, right = resolved(first), resolved(second)
    while left and right:
        one, other = left.pop(0), right.pop(0)
        if one is other:
            continue
        if one.size == other.size:
            _merge(one, other)
        elif one.size < other.size:
            split(other, one.size)
            left.insert(0, one)
            right[:0] = other.parts
        else:
            split(one, other.size)
            left[:0] = one.parts
            right.insert(0, other)
    return True


def _fit(left: list[int], right: list[int]) -> bool:
    """Return whether two lists of factors have a common refinement."""
    left, right = list(left), list(right)
    while left and right:
        one, other = left.pop(0), right.pop(0)
        if one == other:
            continue
        small, large = sorted((one, other))
        if large % small:
            return False
        (left if one > other else right).insert(0, large // small)
    return not left and not right


def split(atom: Atom, major: int) -> None:
    """Make an atom the product of a major part of so much and the rest; its twin too."""
    atom.parts = [Atom(major, origin=f"{atom.name or atom.origin}_a"), Atom(atom.size // major)]
    atom.parts[1].origin = f"{atom.name or atom.origin}_b"
    for other, back in ((atom.twin, False), (atom.of, True)):
        if other is not None and not other.parts:
            split(other, major)
            for mine, theirs in zip(atom.parts, other.parts, strict=True):
                if back:
                    theirs.twin, mine.of = mine, theirs
                else:
                    mine.twin, theirs.of = theirs, mine


def _merge(kept: Atom, gone: Atom) -> None:
    if kept.twin is gone or gone.twin is kept:
        raise Twins
    if gone.name and not kept.name:
        kept, gone = gone, kept
    gone.same = kept
    if gone.twin is not None and kept.twin is not None:
        _merge(kept.twin, gone.twin)
    elif gone.twin is not None:
        kept.twin, gone.twin.of = gone.twin, kept
    if gone.of is not None and kept.of is None and gone.of is not kept:
        kept.of = gone.of
        gone.of.twin = kept


def twin_of(atom: Atom) -> Atom:
    """Return the other side of a dimension."""
    if atom.of is not None:
        return atom.of
    if atom.twin is None:
        atom.twin = Atom(atom.size, origin=f"{atom.name or atom.origin}_other", of=atom)
    (found,) = resolved([atom.twin])
    return found
