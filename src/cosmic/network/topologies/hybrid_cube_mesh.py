"""A hybrid cube mesh: two fully connected quads, each NPU joined to its twin, by single and by double links."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise, permutations

import numpy as np

from cosmic.base.numeric import Numeric, is_power_of_two
from cosmic.design.network_layer import Edges, topologies
from cosmic.network.topologies.fully_connected import FullyConnected
from cosmic.network.topologies.grid_product import Product
from cosmic.network.topologies.hypercube import Hypercube

Pair = frozenset[int]

EIGHT = 8
LANES = 6
"""NVLink lanes of each NPU, equally fast."""
_QUAD = {(0, 1): 1, (0, 2): 1, (0, 3): 2, (1, 2): 2, (1, 3): 1, (2, 3): 2}
_TWINS = {(0, 4): 2, (1, 5): 2, (2, 6): 1, (3, 7): 1}
WIRING: Mapping[Pair, int] = {
    **{frozenset(pair): count for pair, count in (_QUAD | _TWINS).items()},
    **{frozenset((a + 4, b + 4)): count for (a, b), count in _QUAD.items()},
}
"""NVLink lanes between the eight V100s of a DGX-1, as its driver lists them (NCCL issue 671 has the file)."""


@topologies.register("hybrid_cube_mesh")
class HybridCubeMesh(Product):
    """The eight V100s of a DGX-1: each has four neighbours, two over two of its six lanes and two over one.

    A library sends along rings that share no lane; a group can use as many lanes as it has rings (`usable_lanes`). Fewer than
    eight NPUs are the first of the eight, with the lanes between them only. More are quads joined as a hypercube with
    equal links: an extrapolation, no such system was built. Links, distances and cuts count pairs of neighbours, over
    one lane or two; for 5, 6 or 7 NPUs they are estimates.

    >>> int(HybridCubeMesh.links(8)), int(HybridCubeMesh.diameter(8)), int(HybridCubeMesh.bisection(8))
    (4, 2, 4)
    >>> [round(6 * float(HybridCubeMesh.share(members, 8, 1)), 3) for members in (2, 3, 4, 5, 6, 7, 8)]
    [1.0, 2.0, 4.0, 1.6, 2.0, 4.0, 6.0]
    """

    algorithm = "auto"
    switched = False
    side = FullyConnected

    @staticmethod
    @cache
    def split(npus: int) -> tuple[int, ...]:
        """Return 4 and a 2 for every further power of two; other numbers as of a hypercube.

        >>> HybridCubeMesh.split(8), HybridCubeMesh.split(6)
        ((4, 2), (2, 3))
        """
        if npus < 4 or not is_power_of_two(npus):
            return Hypercube.split(npus)
        return (4, *Hypercube.split(npus // 4))

    @classmethod
    def share(cls, members: Numeric, npus: Numeric, step: Numeric) -> Numeric:
        """Return the lanes that the worst-placed group can use, over the six of an NPU.

        Groups that do not divide the dimension are taken to begin at its first NPU.

        >>> float(HybridCubeMesh.share(4, 8, 1)) == 4 / 6, float(HybridCubeMesh.share(4, 8, 2)) == 2 / 6
        (True, True)
        """
        among_eight = np.vectorize(_lane_share, otypes=[float])(members, np.minimum(npus, EIGHT), step)
        return np.where(np.greater(npus, EIGHT), super().share(members, npus, step), among_eight)[()]

    @classmethod
    def edges(cls, npus: int) -> Edges:
        """Return the lanes between the first of the eight, joined where there are two; more than eight as a product.

        >>> len(list(HybridCubeMesh.edges(8))), sorted({round(6 * share) for *_, share in HybridCubeMesh.edges(8)})
        (32, [1, 2])
        """
        if npus > EIGHT:
            yield from super().edges(npus)
            return
        for pair, count in WIRING.items():
            source, target = sorted(pair)
            if target < npus:
                yield source, target, count / LANES
                yield target, source, count / LANES


@cache
def usable_lanes(group: frozenset[int]) -> float:
    """Return the lanes that a *group* of the eight can use, or 0 if no chain of links joins it.

    m members have as many rings as fit through all of them without sharing a lane; each ring counts twice, as data goes
    both ways round (between two NPUs, each lane counts once). Without a ring, a library uses one chain up and down: it
    passes on all data once each way, not (m - 1) / m of it twice, so it is worth 2 (m - 1) / m lanes. More chains may
    fit, but NCCL builds no more of them than it finds rings of any kind, here one through the host; all-reduces among
    five V100s take the time of one chain.

    >>> [usable_lanes(frozenset(range(members))) for members in (2, 4, 5, 8)]
    [1.0, 4.0, 1.6, 6.0]
    """
    if len(group) == 2:
        return float(WIRING.get(group, 0))
    chains = list(_list_chains(group))
    rings = {links | {ends} for ends, links in chains if ends in WIRING}
    count = _pack_rings(tuple(rings), WIRING)
    return 2.0 * count if count else 2 * (len(group) - 1) / len(group) * bool(chains)


def _list_chains(group: frozenset[int]) -> Iterator[tuple[Pair, frozenset[Pair]]]:
    """Yield every chain of links through all of *group*: its two ends, and its links."""
    for order in permutations(sorted(group)):
        links = frozenset(map(frozenset, pairwise(order)))
        if links <= WIRING.keys():
            yield frozenset((order[0], order[-1])), links


def _pack_rings(rings: tuple[frozenset[Pair], ...], spare: Mapping[Pair, int]) -> int:
    """Return how many *rings* fit into the *spare* lanes at most; one ring may count several times."""
    best = 0
    for index, ring in enumerate(rings):
        if all(spare[pair] for pair in ring):
            unused = {pair: count - (pair in ring) for pair, count in spare.items()}
            best = max(best, 1 + _pack_rings(rings[index:], unused))
    return best


def _lane_share(members: float, npus: float, step: float) -> float:
    """Return the share of a group of up to eight; a group that no links join shares one lane with those between."""
    count, size, apart = round(members), round(npus), round(step)
    if count <= 1:
        return 1.0
    block = count * apart
    fills = size % block == 0
    starts = [first + offset for first in range(0, size, block) for offset in range(apart)] if fills else [0]
    groups = [frozenset((start + apart * index) % size for index in range(count)) for start in starts]
    return min(usable_lanes(group) or 1 / apart for group in groups) / LANES
