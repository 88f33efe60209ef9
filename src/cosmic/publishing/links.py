"""The links of one network dimension, as pairs of its members, for drawing.

Members count from 0; from the number of NPUs on they are switches. Dimensions larger than `MOST` have too many links
to draw, and none is returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import combinations
from math import prod

from cosmic.cost.topologies.dragonfly import Dragonfly
from cosmic.cost.topologies.fat_tree import RADIX, FatTree
from cosmic.cost.topologies.hybrid_cube_mesh import HybridCubeMesh
from cosmic.cost.topologies.hypercube import Hypercube
from cosmic.cost.topologies.mesh_2d import Mesh2D
from cosmic.cost.topologies.mesh_3d import Mesh3D
from cosmic.cost.topologies.torus_2d import Torus2D
from cosmic.cost.topologies.torus_3d import Torus3D
from cosmic.design.network import Link

MOST = 64
Pair = tuple[int, int]


def links(topology: str, npus: int, listed: Iterable[Link] = ()) -> tuple[Pair, ...]:
    """Return the links of *npus* NPUs, each once; none where they are too many or the topology is not known.

    >>> links("ring", 4), links("switch", 3)
    (((0, 1), (0, 3), (1, 2), (2, 3)), ((0, 3), (1, 3), (2, 3)))
    """
    own = {(min(pair), max(pair)) for pair in ((link.source, link.target) for link in listed)}
    if own and npus <= MOST and max(map(max, own)) < 2 * MOST:
        return tuple(sorted(own))
    if npus > MOST or topology not in WIRED:
        return ()
    return tuple(sorted({(min(pair), max(pair)) for pair in WIRED[topology](npus)}))


def _ring(npus: int) -> Iterator[Pair]:
    yield from _line(npus)
    if npus > 2:
        yield 0, npus - 1


def _line(npus: int) -> Iterator[Pair]:
    yield from ((place, place + 1) for place in range(npus - 1))


def _all(npus: int) -> Iterator[Pair]:
    yield from combinations(range(npus), 2)


def _grid(
    split: Callable[[int], tuple[int, ...]], side: Callable[[int], Iterator[Pair]]
) -> Callable[[int], Iterator[Pair]]:
    """Return the links of a grid: those of *side* along each of its sides, the first side innermost."""

    def wired(npus: int) -> Iterator[Pair]:
        sides = split(npus)
        for axis, length in enumerate(sides):
            step = prod(sides[:axis])
            for start in range(npus):
                if start // step % length == 0:
                    yield from ((start + one * step, start + other * step) for one, other in side(length))

    return wired


def _switch(npus: int) -> Iterator[Pair]:
    yield from ((place, npus) for place in range(npus))


def _fat_tree(npus: int) -> Iterator[Pair]:
    """Yield NPUs on leaf switches below one spine; a single switch if it has enough ports. A line is several links."""
    if FatTree.levels(npus) == 1:
        yield from _switch(npus)
        return
    leaves = -(-npus // (RADIX // 2))
    yield from ((place, npus + place // (RADIX // 2)) for place in range(npus))
    yield from ((npus + leaf, npus + leaves) for leaf in range(leaves))


def _dragonfly(npus: int) -> Iterator[Pair]:
    """Yield NPUs on routers, all links between routers of a group, and one between every two groups."""
    h = int(Dragonfly.per_router(npus))
    routers = -(-npus // h)
    yield from ((place, npus + place // h) for place in range(npus))
    for one, other in combinations(range(routers), 2):
        if one // (2 * h) == other // (2 * h):
            yield npus + one, npus + other
    groups = -(-routers // (2 * h))
    for one, other in combinations(range(groups), 2):
        ends = (one * 2 * h + (other - 1) // h, other * 2 * h + one // h)
        yield npus + min(ends[0], routers - 1), npus + min(ends[1], routers - 1)


WIRED: dict[str, Callable[[int], Iterator[Pair]]] = {
    "ring": _ring,
    "line": _line,
    "fully_connected": _all,
    "switch": _switch,
    "mesh_2d": _grid(Mesh2D.split, _line),
    "mesh_3d": _grid(Mesh3D.split, _line),
    "torus_2d": _grid(Torus2D.split, _ring),
    "torus_3d": _grid(Torus3D.split, _ring),
    "hypercube": _grid(Hypercube.split, _all),
    "hybrid_cube_mesh": _grid(HybridCubeMesh.split, _all),
    "fat_tree": _fat_tree,
    "dragonfly": _dragonfly,
}
