"""Algorithms for an all-reduce beside its bound, on networks of every kind that TACOS is measured on.

    python benchmarks/collective_table.py --json
    python benchmarks/collective_table.py --page docs/collectives.md

Networks are those of the reference's lists of links, and have their names; they are built here. TACOS' times are
carried in tacos_recorded.csv; all others are computed. With --json, one object a line.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from math import prod
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from cosmic.cost.fabric import NetworkDimension, Subgroup
from cosmic.cost.shapes import Span
from cosmic.cost.themis import ThemisInput, orders
from cosmic.cost.topologies.hybrid_cube_mesh import WIRING
from cosmic.errors import require
from cosmic.graphs.graph import LinkGraph, graph_of
from cosmic.schedules.checking import check
from cosmic.schedules.playing import nanoseconds, play
from cosmic.schedules.textbook import baselines
from cosmic.schedules.trees import double_tree_s, multitree_s
from cosmic.synthesis.bounds import bounds
from cosmic.synthesis.synthesizing import synthesize

GIB, US = 2.0**30, 1e-6
SIZE_BYTES = GIB
CHUNKS = 64
"""Chunks that pipeline over dimensions."""
RECORDED = Path(__file__).with_name("tacos_recorded.csv")

Link = tuple[int, int, float, float]
"""Source, target, GiB/s and microseconds."""
Dims = tuple["Dim", ...]


# ------------------------------------------------------------------------------------------------------- networks


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
    *(
        many(Dim("ring", 2, 200, 0.5), Dim("full", 4, 100, 0.5), Dim("switch", 8, 50, 0.5, degree))
        for degree in (1, 7)
    ),
)


# ------------------------------------------------------------------------------------------------------ algorithms


def in_dimensions_s(dims: Dims, ways: Sequence[Sequence[int]]) -> float:
    """Return the seconds of an all-reduce whose chunks visit dimensions in the orders *ways*, one for each chunk.

    The busiest dimension, which chunks never let wait but for the first one's way through the others.
    """
    stages = []
    for dim in dims:
        topology, algorithm = dim.form
        ideal = NetworkDimension(topology, dim.npus, dim.rate * GIB, dim.late_us * US, algorithm)
        stages.append(Subgroup(ideal, Span(dim.npus, 1)).collective("all_reduce"))
    busy_s = [0.0] * len(dims)
    first_s: list[float] = []
    for way in ways:
        left = SIZE_BYTES / len(ways)
        for place in way:
            taken = float(stages[place].per_chunk_s + stages[place].per_byte_s * left)
            busy_s[place] += taken
            left /= dims[place].npus
        first_s = first_s or busy_s[:]
    return max(busy + sum(first_s) - own for busy, own in zip(busy_s, first_s, strict=True))


def blueconnect_s(dims: Dims) -> float:
    """Return the seconds of BlueConnect: every chunk from the inner dimension to the outer one, and back."""
    return in_dimensions_s(dims, [range(len(dims))] * CHUNKS)


def themis_s(dims: Dims) -> float:
    """Return the seconds of Themis: every chunk begins where least has been carried so far."""
    npus, rates = tuple(dim.npus for dim in dims), tuple(dim.rate for dim in dims)
    given = ThemisInput(npus=npus, bandwidths=rates, size_bytes=int(SIZE_BYTES), splits=CHUNKS)
    return in_dimensions_s(dims, orders("all_reduce", given))


def best_orders_s(dims: Dims) -> float:
    """Return the least seconds of any mixture of orders, with chunks as small as one likes and no latency: a linear
    program, in which the time is to be at least the load of every dimension, over the share of each order."""
    from scipy.optimize import linprog  # noqa: PLC0415  only this column needs it

    ways = list(permutations(range(len(dims))))
    load_s = [[0.0] * len(ways) for _ in dims]
    for column, way in enumerate(ways):
        left = 2 * SIZE_BYTES
        for place in way:
            load_s[place][column] = left * (1 - 1 / dims[place].npus) / (dims[place].rate * GIB)
            left /= dims[place].npus
    found = linprog(
        [0.0] * len(ways) + [1.0],
        A_ub=[[*row, -1.0] for row in load_s],
        b_ub=[0.0] * len(dims),
        A_eq=[[1.0] * len(ways) + [0.0]],
        b_eq=[1.0],
    )
    require(found.status == 0, "orders", len(ways), "have no optimum")
    return float(found.fun)


def recorded_s() -> dict[str, float]:
    """Return TACOS' seconds by network."""
    with RECORDED.open(newline="") as file:
        return {row["network"]: float(row["all_reduce_us"]) * US for row in csv.DictReader(file)}


TEXTBOOK = {
    "ring": "ring",
    "two_way_ring": "two-way ring",
    "direct": "direct",
    "halving_doubling": "halving-doubling",
}
COLUMNS = TEXTBOOK | {
    "double_tree": "double tree",
    "c_cube": "C-Cube",
    "multitree": "MultiTree",
    "blueconnect": "BlueConnect",
    "themis": "Themis",
    "best_orders": "best orders",
    "tacos": "TACOS",
    "cosmic": "COSMIC",
}
NO_PRODUCT = "the network is no product of several rings, fully connected groups or switches"
NO_RECORD = "no time of this network is recorded"


def row_of(network: Network) -> dict[str, Any]:
    """Return all that the table says of a network: seconds by algorithm, and why there are none."""
    graph = network.graph
    bound_s = bounds(graph, "all_reduce", SIZE_BYTES).seconds
    times: dict[str, float | None] = {}
    reasons: dict[str, str] = {}
    for found in baselines(graph, "all_reduce", SIZE_BYTES, [range(graph.npus)]):
        times[found.algorithm] = found.time_s
        reasons[found.algorithm] = found.reason
    times["double_tree"] = double_tree_s(graph, SIZE_BYTES, overlapped=False)
    times["c_cube"] = double_tree_s(graph, SIZE_BYTES, overlapped=True)
    times["multitree"] = multitree_s(graph, SIZE_BYTES)
    for name, seconds in (("blueconnect", blueconnect_s), ("themis", themis_s), ("best_orders", best_orders_s)):
        times[name] = seconds(network.dims) if network.dims else None
        reasons[name] = NO_PRODUCT
    times["tacos"], reasons["tacos"] = recorded_s().get(network.name), NO_RECORD
    schedule = synthesize(graph, "all_reduce", SIZE_BYTES)
    times["cosmic"] = schedule.time_s
    return {
        "name": network.name,
        "label": network.label,
        "npus": graph.npus,
        "links": graph.links,
        "bound_s": bound_s,
        "times_s": {name: times[name] for name in COLUMNS},
        "over_bound": {name: None if (took := times[name]) is None else took / bound_s for name in COLUMNS},
        "missing": {name: reasons.get(name, "") for name in COLUMNS if times[name] is None},
        "chunks_per_npu": schedule.chunks_per_npu,
        "transfers": schedule.transfers,
        "valid": check(schedule).valid,
        "stated_ns": nanoseconds(schedule.time_s),
        "played_ns": play(schedule),
    }


def rows() -> Iterator[dict[str, Any]]:
    """Yield the rows of all networks, whose synthesised schedules are valid and take as long as they say."""
    for network in NETWORKS:
        row = row_of(network)
        require(row["valid"], network.name, row["valid"], "the synthesised schedule is not valid")
        rule = f"nanoseconds, in the event engine; the synthesised schedule says {row['stated_ns']:,}"
        require(row["played_ns"] == row["stated_ns"], network.name, row["played_ns"], rule)
        yield row


def main() -> None:
    """Print a JSON object for each network, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--json", action="store_true", help="print an object for each network")
    chosen.add_argument("--page", type=Path, help="write the page")
    given = parser.parse_args()
    if given.page:
        raise SystemExit
        return
    for row in rows():
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
