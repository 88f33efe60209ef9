"""A mesh of devices as users write it: named axes with their sizes, the last one innermost."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod

from cosmic.errors import SpecError, require

MOST_AXES = 3
"""More axes have more shardings of a tensor than can be listed."""


LONGEST = 9
"""Digits of a number of devices."""


@dataclass(frozen=True)
class Mesh:
    """Named axes with their sizes, outermost first: neighbours along the last axis are neighbours in the network."""

    axes: tuple[tuple[str, int], ...]
    cut: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Axes that are cut into sub-axes, with the names of these: they may split different dimensions."""

    def __post_init__(self) -> None:
        require(1 <= len(self.axes) <= MOST_AXES, "mesh", str(self), f"must have 1 to {MOST_AXES} axes")
        names = [name for name, _ in self.axes]
        for name, size in self.axes:
            require(names.count(name) == 1, "mesh", str(self), f"names the axis {name} twice")
            require(bool(re.fullmatch(r"[A-Za-z]\w*", name)), "mesh", name, "must be a name, such as x or tp")
            require(isinstance(size, int) and size >= 1, f"mesh.{name}", size, "must be a whole number of at least 1")

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each axis."""
        return dict(self.axes)

    @property
    def names(self) -> tuple[str, ...]:
        """The axes that split something: those of more than one device."""
        return tuple(name for name, size in self.axes if size > 1)

    @property
    def devices(self) -> int:
        """How many devices there are."""
        return prod(size for _, size in self.axes)

    def written(self, name: str) -> tuple[str, ...]:
        """Return the axes that a user calls *name*: one, or the sub-axes of one; none if there is no such axis."""
        return dict(self.cut).get(name, (name,) if name in self.sizes else ())

    def __str__(self) -> str:
        return ",".join(f"{name}={size}" for name, size in self.axes)


def read_mesh(given: str | Mapping[str, int] | Iterable[tuple[str, int]]) -> Mesh:
    """Return the mesh that a text, a mapping or pairs describe.

    ``y=2*8`` is an axis of 16 devices that is cut into y_0 and y_1, which may split different dimensions.

    >>> read_mesh("x=8,y=16").devices, read_mesh("x=8,y=2*8").axes
    (128, (('x', 8), ('y_0', 2), ('y_1', 8)))
    """
    if isinstance(given, Mapping):
        return Mesh(tuple(given.items()))
    if not isinstance(given, str):
        return Mesh(tuple((name, size) for name, size in given))
    axes: list[tuple[str, int]] = []
    cut: list[tuple[str, tuple[str, ...]]] = []
    for part in given.split(","):
        name, _, size = (each.strip() for each in part.partition("="))
        ways = [each.strip() for each in size.split("*")]
        if not (name and all(each.isascii() and each.isdigit() and len(each) <= LONGEST for each in ways)):
            raise SpecError("mesh", given, "write AXIS=DEVICES, such as x=8,y=16")
        names = (name,) if len(ways) == 1 else tuple(f"{name}_{place}" for place in range(len(ways)))
        axes += zip(names, map(int, ways), strict=True)
        cut += [(name, names)] if len(ways) > 1 else []
    return Mesh(tuple(axes), tuple(cut))
