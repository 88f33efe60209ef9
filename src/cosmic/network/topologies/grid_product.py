"""Grids of NPUs: products of simpler topologies along their sides, and the line that meshes are made of.

A torus is a grid with rings along its sides, a mesh one with lines, a hypercube one with pairs. All their properties
follow from their sides. NPUs are numbered along the first side first; a group is a box of the grid (every s-th NPU of
some sides), which its *members* and *step* fill from the first side on.

A line: the side of a mesh, a ring without one of its links; not registered as a topology.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import ClassVar, cast

import numpy as np

from cosmic.base.numeric import Numeric, even_factors
from cosmic.design.network_layer import Edges, Parts, Topology, edges_of

# ---- A line: the side of a mesh, a ring without one of its links; not registered as a topology


class Line:
    """Two links per NPU, one to each neighbour; those at the ends have a single one."""

    algorithm = "ring"
    switched = False

    @staticmethod
    def links(npus: Numeric) -> Numeric:
        """Return min(2, p - 1): the links of an NPU that is not at an end."""
        return np.minimum(2, npus - 1)

    @staticmethod
    def diameter(npus: Numeric) -> Numeric:
        """Return p - 1: from end to end."""
        return npus - 1

    @staticmethod
    def mean_hops(npus: Numeric) -> Numeric:
        """Return (p + 1) / 3, the mean distance of two of p NPUs in a row.

        >>> Line.mean_hops(5)
        2.0
        """
        return (npus + 1) / 3

    @staticmethod
    def bisection(npus: Numeric) -> Numeric:
        """Return 1."""
        return np.ones_like(npus)[()]

    @staticmethod
    def share(members: Numeric, npus: Numeric, step: Numeric) -> Numeric:
        """Return 1 / (k s), as on part of a ring: one of k links leads inwards from an end, and s groups share it.

        >>> float(Line.share(8, 8, 1)), float(Line.share(4, 8, 2)), float(Line.share(2, 2, 1))
        (0.5, 0.25, 1.0)
        """
        return np.where(members == 1, 1.0, 1 / (Line.links(np.maximum(2, npus)) * step))[()]

    @staticmethod
    def hops(members: Numeric, npus: Numeric, step: Numeric) -> Numeric:
        """Return s, the step."""
        return step

    @staticmethod
    def parts(npus: Numeric) -> Parts:
        """Return 2 (p - 1) links: p - 1 pairs of neighbours, both ways."""
        return Parts(links=2 * (npus - 1))

    @staticmethod
    def edges(npus: int) -> Edges:
        """Return a link to each neighbour; links at the ends are as fast as the others.

        >>> list(Line.edges(3))
        [(0, 1, 0.5), (1, 0, 0.5), (1, 2, 0.5), (2, 1, 0.5)]
        """
        for npu in range(npus - 1):
            yield npu, npu + 1, 1 / min(2, npus - 1)
            yield npu + 1, npu, 1 / min(2, npus - 1)


# ---- Products of simpler topologies: NPUs on a grid, joined along each of its sides


class Product:
    """NPUs on a grid of *sides*, those along a side joined by the topology `side`."""

    side: ClassVar[type[Topology]]
    dimensions: ClassVar[int]
    algorithm: ClassVar[str] = "ring"
    switched = False

    @classmethod
    def split(cls, npus: int) -> tuple[int, ...]:
        """Return the lengths of the sides, as equal as they can be; NPUs are numbered along the first side first."""
        return even_factors(npus, cls.dimensions)

    @classmethod
    def sides(cls, npus: Numeric) -> list[Numeric]:
        """Return the length of each side, for one number of NPUs or for each of an array."""
        sizes, inverse = np.unique(npus, return_inverse=True)
        splits = [cls.split(int(size)) for size in sizes]
        dimensions = max(map(len, splits), default=0)
        table = np.array([(*split, *(1,) * (dimensions - len(split))) for split in splits], dtype=np.int64)
        return [cast(Numeric, table[:, side][inverse].reshape(np.shape(npus))[()]) for side in range(dimensions)]

    @classmethod
    def boxes(cls, members: Numeric, npus: Numeric, step: Numeric) -> Iterator[tuple[Numeric, Numeric, Numeric]]:
        """Yield the members, length and step of a group along each side.

        With s the step and m the members that are left, a side of p takes s' = gcd(s, p) of the step and
        m' = gcd(m, p / s') of the members; if m s divides the number of NPUs, nothing is left after the last side.
        Where sizes nest (as powers of two do) this is how NPUs are numbered; elsewhere it assumes a suitable numbering.
        """
        remaining, apart = (np.rint(count).astype(np.int64) for count in (members, step))
        for side in cls.sides(npus):
            side_step = np.gcd(apart, side)
            side_members = np.gcd(remaining, side // side_step)
            yield side_members, side, side_step
            remaining, apart = remaining // side_members, apart // side_step

    @classmethod
    def links(cls, npus: Numeric) -> Numeric:
        """Return the links of an NPU along all sides together."""
        total: Numeric = sum(cls.side.links(side) for side in cls.sides(npus))
        return total

    @classmethod
    def diameter(cls, npus: Numeric) -> Numeric:
        """Return the sum of the sides' diameters: paths go along one side after the other."""
        total: Numeric = sum(cls.side.diameter(side) for side in cls.sides(npus))
        return total

    @classmethod
    def mean_hops(cls, npus: Numeric) -> Numeric:
        """Return n / (n - 1) * sum of h (p - 1) / p over the sides.

        n  NPUs        p  length of a side        h  mean hops along it

        Of all NPUs, p - 1 in p are elsewhere along a side, h links away; n / (n - 1) leaves out the NPU itself.
        """
        total: Numeric = sum(cls.side.mean_hops(side) * (side - 1) / side for side in cls.sides(npus))
        return total * npus / np.maximum(1, npus - 1)

    @classmethod
    def bisection(cls, npus: Numeric) -> Numeric:
        """Return the least of n / p times a side's own bisection: the grid is cut across one side.

        Halves are as equal as that side allows: exactly so if its length is even.
        """
        uncut = np.iinfo(np.int64).max
        cuts = (np.where(side > 1, npus // side * cls.side.bisection(side), uncut) for side in cls.sides(npus))
        return reduce(np.minimum, cuts)[()]

    @classmethod
    def share(cls, members: Numeric, npus: Numeric, step: Numeric) -> Numeric:
        """Return the links that a group can use along its sides, over all links of an NPU.

        Assumes that chunks visit the sides in different orders, so that all sides of the group are busy at once.
        A group that is no box of the grid shares one link with the groups between its members.
        """
        used: Numeric = 0
        for side_members, side, side_step in cls.boxes(members, npus, step):
            links = cls.side.links(side) * cls.side.share(side_members, side, side_step)
            used = used + np.where(side_members > 1, links, 0)
        used = np.where(used > 0, used, 1 / step)
        return np.where(members == 1, 1.0, used / np.maximum(1, cls.links(npus)))[()]

    @classmethod
    def hops(cls, members: Numeric, npus: Numeric, step: Numeric) -> Numeric:
        """Return the links between neighbours along the side of the group where they are farthest apart."""
        farthest = np.ones_like(step)
        for side_members, side, side_step in cls.boxes(members, npus, step):
            hops = cls.side.hops(side_members, side, side_step)
            farthest = np.maximum(farthest, np.where(side_members > 1, hops, 1))
        return farthest[()]

    @classmethod
    def parts(cls, npus: Numeric) -> Parts:
        """Return the links of n / p copies of each side of length p."""
        return Parts(links=sum(npus // side * cls.side.parts(side).links for side in cls.sides(npus)))

    @classmethod
    def edges(cls, npus: int) -> Edges:
        """Return the links of every copy of each side; a side has its links' share of an NPU's bandwidth."""
        total, stride = int(cls.links(npus)), 1
        for length in cls.split(npus):
            own = int(cls.side.links(length))
            for source, target, share in edges_of(cls.side, length) if length > 1 else ():
                for outer in range(npus // (stride * length)):
                    for inner in range(stride):
                        base = outer * stride * length + inner
                        yield base + source * stride, base + target * stride, share * own / total
            stride *= length
