"""How long the algorithms of the table take."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

from collectives.networks import GIB, US, Dims, Network
from collectives.tree_baselines import double_tree_s, multitree_s
from cosmic.base.errors import require
from cosmic.network.collective_costs import NetworkDimension, Subgroup
from cosmic.network.link_graph import LinkGraph
from cosmic.network.mesh_spans import Span
from cosmic.network.schedules.baseline_algorithms import make_baselines
from cosmic.network.schedules.schedule_checking import check_schedule
from cosmic.network.schedules.schedule_replay import simulate_schedule, to_nanoseconds
from cosmic.network.synthesis.lower_bounds import collective_bounds
from cosmic.network.synthesis.schedule_synthesis import synthesize
from cosmic.network.themis_chunks import ThemisInput, themis_orders

SIZE_BYTES = GIB
CHUNKS = (4, 8, 16, 32, 64, 128, 256)
"""Numbers of chunks that pipeline over dimensions; the best counts."""
MOST_STEPS = 4_000
"""Steps in search of a ring over links."""
RECORDED = Path(__file__).with_name("tacos_recorded.csv")


def ring_over_links(graph: LinkGraph) -> list[int] | None:
    """Return a ring through all NPUs over links, the slowest of which is as fast as may be; None if none is found.

    From each NPU to one that has fewest ways on, and back where that leads nowhere; given up after `MOST_STEPS`.
    """
    for least in sorted(set(graph.bandwidth_bytes_per_s.tolist()), reverse=True):
        kept = (graph.bandwidth_bytes_per_s >= least) & (graph.sources < graph.npus) & (graph.targets < graph.npus)
        out: list[set[int]] = [set() for _ in range(graph.npus)]
        for source, target in zip(graph.sources[kept].tolist(), graph.targets[kept].tolist(), strict=True):
            out[source].add(target)
        if found := _ring(out):
            return found
    return None


def _ring(out: Sequence[set[int]]) -> list[int] | None:
    path, left = [0], set(range(1, len(out)))
    choices = [_ways_on(out, 0, left)]
    for _ in range(MOST_STEPS):
        if not left and 0 in out[path[-1]]:
            return path
        if choices[-1]:
            node = choices[-1].pop()
            if not _may_close(out, node, left):
                continue
            path.append(node)
            left.remove(node)
            choices.append(_ways_on(out, node, left))
        elif len(path) > 1:
            choices.pop()
            left.add(path.pop())
        else:
            return None
    return None


def _may_close(out: Sequence[set[int]], node: int, left: set[int]) -> bool:
    """Return whether what is left, with the *node* that comes next, can still be on the way back to 0.

    All of it can be reached, 0 too, and each has a way in and another way out.
    """
    rest = left | {0}
    seen, edge = {node}, [node]
    while edge:
        new = (out[edge.pop()] & rest) - seen
        seen |= new
        edge.extend(new - {0})
    joined: dict[int, set[int]] = {each: out[each] & rest for each in left}
    for each in left:
        for other in out[each] & left:
            joined[other].add(each)
    return seen >= rest and all(len(joined[each]) > 1 for each in left - {node})


def _ways_on(out: Sequence[set[int]], node: int, left: set[int]) -> list[int]:
    """Return the nodes that may come next, that with fewest ways on last."""
    return sorted(out[node] & left, key=lambda each: (-len(out[each] & left), -each))


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
    return min(in_dimensions_s(dims, [range(len(dims))] * chunks) for chunks in CHUNKS)


def themis_s(dims: Dims) -> float:
    """Return the seconds of Themis: every chunk begins where least has been carried so far."""
    npus, rates = tuple(dim.npus for dim in dims), tuple(dim.rate for dim in dims)
    times = []
    for chunks in CHUNKS:
        given = ThemisInput(npus=npus, bandwidths=rates, size_bytes=int(SIZE_BYTES), splits=chunks)
        times.append(in_dimensions_s(dims, themis_orders("all_reduce", given)))
    return min(times)


def best_orders_s(dims: Dims) -> float:
    """Return the least seconds of any mixture of orders, with chunks as small as one likes and no latency.

    A linear program: over the share of each order, the time is at least the load of every dimension.
    """
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
    "best_orders": "LP optimum",
    "tacos": "TACOS",
    "cosmic": "COSMIC",
}
NO_PRODUCT = "the network is no product of several rings, fully connected groups or switches"
NO_RECORD = "no time of this network is recorded"


def row_of(network: Network) -> dict[str, Any]:
    """Return all that the table says of a network: seconds by algorithm, and why there are none."""
    graph = network.graph
    limits = collective_bounds(graph, "all_reduce", SIZE_BYTES)
    bound_s = limits.in_turn_s
    times: dict[str, float | None] = {}
    reasons: dict[str, str] = {}
    for found in make_baselines(graph, "all_reduce", SIZE_BYTES, [range(graph.npus)]):
        times[found.algorithm] = found.time_s
        reasons[found.algorithm] = found.reason
    if along := ring_over_links(graph):
        for found in make_baselines(graph, "all_reduce", SIZE_BYTES, [along])[:2]:
            known = (times[found.algorithm], found.time_s)
            times[found.algorithm] = min((each for each in known if each is not None), default=None)
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
        "least_s": limits.seconds,
        "times_s": {name: times[name] for name in COLUMNS},
        "over_bound": {name: None if (took := times[name]) is None else took / bound_s for name in COLUMNS},
        "missing": {name: reasons.get(name, "") for name in COLUMNS if times[name] is None},
        "chunks_per_npu": schedule.chunks_per_npu,
        "transfers": schedule.transfers,
        "valid": check_schedule(schedule).valid,
        "stated_ns": to_nanoseconds(schedule.time_s),
        "played_ns": simulate_schedule(schedule),
    }
