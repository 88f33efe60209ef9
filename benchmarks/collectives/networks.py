"""The networks of the table: those of the reference's lists of links, with their names, built here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations, product
from math import prod

from cosmic.network.link_graph import LinkGraph, graph_of
from cosmic.network.topologies.hybrid_cube_mesh import WIRING

GIB, US = 2.0**30, 1e-6
Link = tuple[int, int, float, float]
"""Source, target, GiB/s and microseconds."""
Dims = tuple["Dim", ...]


@dataclass(frozen=True)
class Dim:
    """A dimension of a product: a ring, a fully connected group, or a switch unwound into links to the next ones."""

    kind: str
    npus: int
    rate: float
    """GiB/s that leave an NPU."""
    late_us: float
    degree: int = 0
    """Of an unwound switch: how many of the next NPUs each has a link to."""

    @property
    def shifts(self) -> tuple[int, ...]:
        """How much farther round the targets of an NPU's links are."""
        if self.kind == "ring":
            return (1,) if self.npus == 2 else (1, self.npus - 1)
        return tuple(range(1, self.degree + 1 if self.kind == "switch" else self.npus))

    @property
    def form(self) -> tuple[str, str]:
        """The topology whose links these are, and the algorithm that is at home on it."""
        return ("fully_connected", "direct") if len(self.shifts) == self.npus - 1 > 2 else ("ring", "ring")


@dataclass(frozen=True)
class Network:
    """A network, what it is called in the table and in the reference, and the dimensions it is a product of."""

    name: str
    label: str
    npus: int
    links: tuple[Link, ...]
    dims: Dims = ()

    @property
    def graph(self) -> LinkGraph:
        """The network as a value."""
        return graph_of(self.npus, [(a, b, rate * GIB, late * US) for a, b, rate, late in self.links])


def both_ways(pairs: Sequence[Link]) -> tuple[Link, ...]:
    """Return links, and as many the other way."""
    return tuple(each for a, b, rate, late in pairs for each in ((a, b, rate, late), (b, a, rate, late)))


def grid(sides: Sequence[int], rates: Sequence[float], late_us: float, wrap: bool) -> tuple[Link, ...]:
    """Return the links of a mesh, or of a torus with *wrap*; the first side is counted fastest."""
    steps = [prod(sides[:place]) for place in range(len(sides))]
    found: dict[tuple[int, int], Link] = {}
    for at in product(*map(range, sides)):
        node = sum(map(prod, zip(at, steps, strict=True)))
        for place, (side, step) in enumerate(zip(sides, steps, strict=True)):
            if at[place] + 1 < side or wrap:
                other = node + ((at[place] + 1) % side - at[place]) * step
                for ends in ((node, other), (other, node)):
                    found[ends] = (*ends, rates[place], late_us)
    return tuple(found.values())


def multiplied(dims: Dims) -> tuple[Link, ...]:
    """Return the links of a product of dimensions; the first is counted fastest."""
    links: list[Link] = []
    inside = 1
    for dim in dims:
        for node in range(prod(each.npus for each in dims)):
            at = node // inside % dim.npus
            for shift in dim.shifts:
                other = node + ((at + shift) % dim.npus - at) * inside
                links.append((node, other, dim.rate / len(dim.shifts), dim.late_us))
        inside *= dim.npus
    return tuple(links)


def ring(npus: int, two_way: bool) -> Network:
    """Return a ring."""
    links = [(i, (i + 1) % npus, 50.0, 0.5) for i in range(npus)]
    way = "two-way" if two_way else "one-way"
    name = f"Ring{'Bi' if two_way else 'Uni'}_{npus}"
    return Network(name, f"ring {npus}, {way}", npus, both_ways(links) if two_way else tuple(links))


def full(npus: int) -> Network:
    """Return a network with a link between any two NPUs."""
    links = tuple((a, b, 50.0, 0.5) for a, b in permutations(range(npus), 2))
    return Network(f"FC_{npus}", f"fully connected {npus}", npus, links)


def mesh(*sides: int) -> Network:
    """Return a mesh of two or three dimensions."""
    by, links = "x".join(map(str, sides)), grid(sides, [50.0] * len(sides), 0.5, wrap=False)
    return Network(f"Mesh{len(sides)}D_{by}", f"mesh {by.replace('x', '×')}", prod(sides), links)


def uneven_mesh(sides: tuple[int, int], rates: tuple[int, int], late_us: float) -> Network:
    """Return a mesh whose rows and columns have links of different bandwidths."""
    by, two = f"{sides[0]}x{sides[1]}", f"{rates[0]}_{rates[1]}"
    label = f"mesh {by.replace('x', '×')}, {rates[0]} and {rates[1]} GiB/s"
    return Network(f"Mesh2DHetero_{by}_{two}", label, prod(sides), grid(sides, rates, late_us, wrap=False))


def torus(*sides: int) -> Network:
    """Return a torus of two or three dimensions, of at least 3 NPUs each."""
    by, links = "x".join(map(str, sides)), grid(sides, [50.0] * len(sides), 0.5, wrap=True)
    dims = tuple(Dim("ring", side, 100.0, 0.5) for side in sides)
    return Network(f"Torus{len(sides)}D_{by}", f"torus {by.replace('x', '×')}", prod(sides), links, dims)


def hypercube(power: int) -> Network:
    """Return a hypercube: a product of pairs."""
    dims = (Dim("ring", 2, 50.0, 0.5),) * power
    return Network(f"Hypercube_{power}d_{2**power}", f"hypercube {2**power}", 2**power, multiplied(dims), dims)


def unwound(npus: int, degree: int) -> Network:
    """Return a switch as links from each NPU to the next few, which share its 50 GiB/s."""
    links = multiplied((Dim("switch", npus, 50.0, 0.5, degree),))
    return Network(f"SwitchUnwound_{npus}_deg{degree}", f"switch {npus}, unwound to degree {degree}", npus, links)


def dgx_1v() -> Network:
    """Return the eight V100s of a DGX-1, with 25 GiB/s an NVLink."""
    links = both_ways([(min(pair), max(pair), 25.0 * count, 0.5) for pair, count in WIRING.items()])
    return Network("DGX1V_hybridcubemesh_8", "DGX-1V", 8, links)


def dragonfly(groups: int, each: int) -> Network:
    """Return fully connected groups, of which any two are joined by one slower link."""
    inside = [(g * each + a, g * each + b, 50.0, 0.5) for g in range(groups) for a in range(each) for b in range(a)]
    between = [(g * each + h - g - 1, (h + 1) * each + g - h, 25.0, 1.0) for h in range(groups) for g in range(h)]
    label = f"dragonfly {groups}×{each}, 50 and 25 GiB/s"
    return Network(f"DragonFly_{groups}x{each}_50_25", label, groups * each, both_ways(inside + between))


SHORT = {"ring": "R", "full": "FC", "switch": "SW"}


def many(*dims: Dim) -> Network:
    """Return a product of dimensions."""
    ends = [f"d{dim.degree}" if dim.degree else "" for dim in dims]
    starts = [f"{SHORT[dim.kind]}{dim.npus}@{dim.rate:g}" for dim in dims]
    name = "_".join(f"{start}us{dim.late_us}{end}" for start, dim, end in zip(starts, dims, ends, strict=True))
    label = " × ".join(f"{start}{end and ' '}{end}" for start, end in zip(starts, ends, strict=True))
    return Network(f"MD_{name}", label, prod(dim.npus for dim in dims), multiplied(dims), dims)


NETWORKS: tuple[Network, ...] = (
    ring(8, two_way=True),
    ring(8, two_way=False),
    full(8),
    mesh(4, 4),
    mesh(8, 8),
    mesh(3, 3, 3),
    torus(4, 4),
    torus(8, 8),
    torus(3, 3, 3),
    hypercube(4),
    unwound(8, 2),
    unwound(16, 4),
    uneven_mesh((5, 5), (50, 75), 0.5),
    uneven_mesh((8, 5), (80, 35), 1),
    dgx_1v(),
    dragonfly(5, 4),
    *(many(Dim("ring", 4, 200, 0.5), Dim("switch", 4, 50, 1.0, degree)) for degree in (1, 3)),
    *(many(Dim("switch", 8, 300, 0.5, 7), Dim("switch", 4, 25, 2.0, degree)) for degree in (1, 3)),
    many(Dim("full", 8, 300, 0.3), Dim("ring", 4, 100, 0.7)),
    *(many(Dim("ring", 2, 200, 0.5), Dim("full", 4, 100, 0.5), Dim("switch", 8, 50, 0.5, degree)) for degree in (1, 7)),
)
