"""Shardings of tensors over a mesh of devices, and a user's annotations.

A mesh is a set of named axes (``dp``, ``tp`` …); their sizes, like those of dimensions, are numbers or arrays, given
when local sizes are computed. The axes that split a dimension are ordered from major to minor. A tensor is *replicated*
along each axis that its sharding does not name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cosmic.base.errors import SpecError, require
from cosmic.base.numeric import Numeric
from cosmic.workload.operator_graph import Sizes, SizeTable

Axes = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sharding:
    """The mesh axes that split each dimension of a tensor, and those along which a sum is pending.

    >>> two_d = Sharding.of({"batch": "dp", "hidden": ("tp", "ep")})
    >>> two_d.axes("hidden"), two_d.axes("sequence")
    (('tp', 'ep'), ())
    >>> print(two_d)
    batch: dp, hidden: tp ep
    """

    dims: tuple[tuple[str, Axes], ...] = ()
    """Each split dimension with its axes, major to minor, in alphabetical order."""
    partial: Axes = ()
    """Axes along which devices hold partial sums of the tensor, in alphabetical order."""

    @classmethod
    def of(cls, dims: Mapping[str, str | Iterable[str]], partial: Iterable[str] = ()) -> Sharding:
        """Return the sharding in which each dimension of *dims* is split over its axis or axes."""
        listed = {dim: (axes,) if isinstance(axes, str) else tuple(axes) for dim, axes in dims.items()}
        sharding = cls(tuple(sorted((dim, axes) for dim, axes in listed.items() if axes)), tuple(sorted(partial)))
        used = sharding.used
        twice = [axis for axis in used if used.count(axis) > 1]
        require(not twice, "sharding", str(sharding), f"{', '.join(sorted(set(twice)))} may be used once only")
        return sharding

    def axes(self, dim: str) -> Axes:
        """Return the axes over which *dim* is split, major to minor."""
        for name, axes in self.dims:
            if name == dim:
                return axes
        return ()

    @property
    def used(self) -> Axes:
        """Every axis that splits a dimension or has a pending sum."""
        return (*(axis for _, axes in self.dims for axis in axes), *self.partial)

    def holds(self, axis: str) -> str | None:
        """Return the dimension that is split over *axis*, if any."""
        return next((dim for dim, axes in self.dims if axis in axes), None)

    def split(self, dim: str, axes: Axes) -> Sharding:
        """Return the sharding with *dim* split over *axes* instead."""
        entries = [entry for entry in self.dims if entry[0] != dim]
        return Sharding(tuple(sorted([*entries, (dim, axes)])) if axes else tuple(entries), self.partial)

    def pending(self, partial: Iterable[str]) -> Sharding:
        """Return the sharding with the sums over the axes *partial* pending instead."""
        return Sharding(self.dims, tuple(sorted(partial)))

    def local(self, dim: str, sizes: Sizes) -> Numeric:
        """Return the size of one device's shard of *dim*, padded if it does not divide.

        >>> Sharding.of({"heads": "tp"}).local("heads", {"heads": 10, "tp": 4})
        3
        """
        return local_size(sizes[dim], (sizes[axis] for axis in self.axes(dim)))

    def elements(self, dims: Iterable[str], sizes: Sizes) -> Numeric:
        """Return the number of elements that one device holds of a tensor with *dims*."""
        return local_elements(tuple((dim, self.axes(dim)) for dim in dims), sizes)

    def __str__(self) -> str:
        parts = [f"{dim}: {' '.join(axes)}" for dim, axes in self.dims]
        if self.partial:
            parts.append(f"partial: {' '.join(self.partial)}")
        return ", ".join(parts) or "replicated"


REPLICATED = Sharding()


def local_elements(split: tuple[tuple[str, Axes], ...], sizes: Sizes) -> Numeric:
    """Return the number of elements that one device holds of a tensor whose dimensions have these axes."""
    cache: dict[Any, Numeric] = sizes.known if isinstance(sizes, SizeTable) else {}
    if split in cache:
        return cache[split]
    total: Numeric = 1.0  # sizes of large designs multiply to more than 64 bits
    for part in split:
        if part not in cache:
            dim, axes = part
            cache[part] = local_size(sizes[dim], (sizes[axis] for axis in axes))
        total = total * cache[part]
    cache[split] = total
    return total


def local_size(size: Numeric, ways: Iterable[Numeric]) -> Numeric:
    """Return ``ceil(size / product of ways)``, for numbers and arrays alike."""
    parts: Numeric | None = None
    for way in ways:
        parts = way if parts is None else parts * way
    # Ceiling division: a dimension that does not divide is padded, and all devices wait for the fullest shard.
    return size if parts is None else -(-size // parts)


def group_size(axes: Axes, sizes: Sizes) -> Numeric:
    """Return the number of devices in a group along *axes*."""
    total: Numeric = 1.0  # sizes of large designs multiply to more than 64 bits
    for axis in axes:
        total = total * sizes[axis]
    return total


@dataclass(frozen=True, slots=True)
class Annotation:
    """A user's sharding of one tensor, and where propagation may add to it."""

    sharding: Sharding
    open: tuple[str, ...] = ()
    """Dimensions that propagation may split further; all others are fixed."""
    priority: int = 0
    """Annotations of a lower number are propagated before those of a higher one take effect."""
    later: tuple[tuple[str, int], ...] = ()
    """Dimensions with a priority of their own: weights may be split over ffn first, and over hidden last."""

    def rank(self, dim: str) -> int:
        """Return the priority of *dim*."""
        return dict(self.later).get(dim, self.priority)

    @property
    def first(self) -> int:
        """The lowest priority of any dimension."""
        return min(self.priority, *(rank for _, rank in self.later)) if self.later else self.priority

    def until(self, priority: int) -> Sharding:
        """Return the part of the sharding that is in effect at *priority*."""
        dims = tuple(entry for entry in self.sharding.dims if self.rank(entry[0]) <= priority)
        return Sharding(dims, self.sharding.partial)


def annotate(
    dims: Mapping[str, str | Iterable[str]],
    *,
    partial: Iterable[str] = (),
    open: Iterable[str] = (),
    priority: int | Mapping[str, int] = 0,
) -> Annotation:
    """Return an annotation from a table ``{dimension: axis or axes}``.

    >>> weight = annotate({"ffn": "tp", "hidden": "dp"}, priority={"hidden": 2})
    >>> print(weight.until(0), "|", weight.until(2))
    ffn: tp | ffn: tp, hidden: dp
    """
    sharding = Sharding.of(dims, partial)
    if isinstance(priority, int):
        return Annotation(sharding, tuple(open), priority)
    return Annotation(sharding, tuple(open), later=tuple(sorted(priority.items())))


def check_annotation(name: str, dims: tuple[str, ...], annotation: Annotation) -> None:
    """Raise a `SpecError` if *annotation* names dimensions that tensor *name* lacks."""
    named = [dim for dim, _ in (*annotation.sharding.dims, *annotation.later)] + list(annotation.open)
    for dim in named:
        if dim not in dims:
            raise SpecError(f"annotation of {name}", dim, f"the tensor has no such dimension, only {', '.join(dims)}")
