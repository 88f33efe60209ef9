"""The best designs of `full_stack.py`, and what is not obvious about them."""

from __future__ import annotations

from collections.abc import Sequence

from common import listing, metrics_of, span
from full_stack_search import FOLLOWED, MATTERS, REWARDS, Compared, injected_bytes_per_s

from cosmic import load_design
from cosmic.design import DesignPoint, design_tree
from cosmic.pages import Heading, Items, Part, Table, Text

TOPOLOGIES = {"ring": "ring", "fully_connected": "full", "switch": "switch"}
ALGORITHMS = {"ring": "ring", "direct": "direct", "halving_doubling": "halving", "double_binary_tree": "tree"}
"""Short names, for tables."""
IDLE = "–"
"""Marks a parameter that does not matter."""
PAPERS_NPUS = 1024
"""The system for which the paper has eight designs that are not obvious."""


def designs(main: Sequence[Compared]) -> list[Part]:
    """Return the best designs and what is not obvious about them."""
    eight = [each for each in main if each.case.npus == PAPERS_NPUS]
    models = len({each.case.model for each in eight})
    said = f"""
    The best design of each case and reward. The paper speaks of eight configurations that are not obvious, for four
    models; here {len(eight)} are for {PAPERS_NPUS:,} NPUs, {models} models by {len(REWARDS)} rewards. A dash marks a
    parameter that does not matter: no other value of it changes the reward by {MATTERS:.1%}.
    """
    return [
        Heading("The best designs"),
        Text(said),
        mapping_table(main),
        network_table(main),
        Text("What is not obvious about them:"),
        Items([spared(main), inside_out(main), unexpected_algorithms(main), data_parallel(main), without_effect(main)]),
    ]


# ----------------------------------------------------------------------------------------------------- tables


def mapping_table(main: Sequence[Compared]) -> Table:
    """Return the mapping and the metrics of each design."""
    columns = ["", "Case", "Reward", "DP", "TP", "CP", "PP", "Sharding", "GB/s per NPU, of base", "Step", "MFU"]
    rows = []
    for letter, each in lettered(main):
        metrics, w = metrics_of(each.design), each.design.workload
        sent, given = (injected_bytes_per_s(design) / 1e9 for design in (each.design, each.case.base))
        mapped = [w.dp, w.tp, w.cp, w.pp, w.weight_sharding]
        achieved = [f"{sent:.0f} of {given:.0f}", f"{metrics.step_s:.3g} s", f"{metrics.mfu:.0%}"]
        rows.append([letter, each.case.name, f"per {REWARDS[each.reward]}", *mapped, *achieved])
    return Table(columns, rows, "Mapping, bandwidth and metrics of each design.")


def network_table(main: Sequence[Compared]) -> Table:
    """Return the network and the collectives of each design."""
    places = range(max(len(each.design.network.dims) for each in main))
    columns = ["", *(f"Dim {place}" for place in places), "Algorithms", "Chunks", "Order", "Multi-dim"]
    rows = [[letter, *dims_of(each), *collectives_of(each)] for letter, each in lettered(main)]
    caption = "Network, inner to outer (topology, NPUs, GB/s per NPU), and collectives of the same designs."
    return Table(columns, rows, caption)


def lettered(main: Sequence[Compared]) -> list[tuple[str, Compared]]:
    """Return each design with its letter."""
    return [(chr(ord("A") + place), each) for place, each in enumerate(main)]


def dims_of(each: Compared) -> list[str]:
    """Return the network of a design, one text for each dimension."""
    return [
        f"{IDLE if f'network.dims.{place}.topology' in each.idle else TOPOLOGIES[dim.topology]} {dim.npus} @ "
        f"{dim.bandwidth_bytes_per_s / 1e9:.0f}"
        for place, dim in enumerate(each.design.network.dims)
    ]


def collectives_of(each: Compared) -> list[str]:
    """Return the collectives of a design: algorithms, chunks, order, multi-dimensional scheme."""
    collective = each.design.collective
    chosen = [
        IDLE if f"collective.algorithms.{place}" in each.idle else ALGORITHMS[name]
        for place, name in enumerate(collective.algorithms)
    ]
    rest = {"chunks": collective.chunks, "scheduling": collective.scheduling, "multi_dim": collective.multi_dim}
    texts = [IDLE if f"collective.{name}" in each.idle else str(value) for name, value in rest.items()]
    return [", ".join(chosen) if set(chosen) != {IDLE} else IDLE, *texts]


# -------------------------------------------------------------------------------------------------- surprises


def spared(main: Sequence[Compared]) -> str:
    """Return how little bandwidth the designs need."""
    kept = min(each.bandwidth_over_base for each in main)
    return f"""They use less bandwidth, down to {kept:.0%} of the base's, and yet take
    {span(each.step_over_base for each in main)} times the base's step: a mapping that communicates less and a network
    with less bandwidth pay only together."""


def inside_out(main: Sequence[Compared]) -> str:
    """Return which dimension has the most bandwidth."""
    uneven = [each for each in main if len(set(bandwidths(each.design))) > 1]
    second = [each for each in uneven if bandwidths(each.design).index(max(bandwidths(each.design))) == 1]
    swapped = f", and swapping the first two makes steps {span(map(swap, second))} times as long" if second else ""
    return f"""Where their dimensions differ in bandwidth at all ({len(uneven)} of {len(main)}), the fastest is the
    second one in {len(second)}, while no base network has a faster dimension outside a slower one. The innermost
    dimension carries tensor parallelism; the next carries the weights that ZeRO-3 gathers for every
    microbatch{swapped}."""


def swap(each: Compared) -> float:
    """Return the step with the bandwidths of the first two dimensions swapped, over the step as it is."""
    tree = design_tree(each.design)
    first, second = (tree["network"]["dims"][place]["bandwidth"] for place in (0, 1))
    traded = {"network.dims.0.bandwidth": second, "network.dims.1.bandwidth": first}
    return metrics_of(load_design(tree, traded)).step_s / metrics_of(each.design).step_s


def bandwidths(design: DesignPoint) -> list[float]:
    """Return the bandwidth of each dimension."""
    return [dim.bandwidth_bytes_per_s for dim in design.network.dims]


def unexpected_algorithms(main: Sequence[Compared]) -> str:
    """Return how often the algorithm of a dimension is not the usual one for its topology."""
    pairs = [
        (dim.topology, algorithm)
        for each in main
        for place, (dim, algorithm) in enumerate(
            zip(each.design.network.dims, each.design.collective.algorithms, strict=True)
        )
        if not each.idle & {f"collective.algorithms.{place}", f"network.dims.{place}.topology"}
    ]
    against = [algorithm for topology, algorithm in pairs if FOLLOWED[topology] != algorithm]
    return f"""The algorithm is often not the usual one for its topology: in {len(against)} of the {len(pairs)}
    dimensions where both matter; {against.count("direct")} times it is direct exchange on a ring or a switch, which
    takes fewer steps."""


def data_parallel(main: Sequence[Compared]) -> str:
    """Return how the mappings differ from the base's."""
    data = [each.design.workload.dp / each.case.base.workload.dp for each in main]
    sharded = sum(each.design.workload.weight_sharding == "zero3" for each in main)
    degrees = sorted({each.case.base.workload.cp for each in main})
    return f"""Data parallelism is {span(data, ".0f")} times the base's, with weights sharded over it in {sharded} of
    {len(main)}; there is little left for context parallelism (the paper's SP), which is
    {listing((str(degree) for degree in degrees), "or")} in the base mappings."""


def without_effect(main: Sequence[Compared]) -> str:
    """Return in how many designs two of the parameters have no effect."""
    idle = sum({"collective.scheduling", "collective.multi_dim"} <= each.idle for each in main)
    return f"""The order of collectives (`scheduling`) and the multi-dimensional scheme (`multi_dim`), two of the
    searched parameters, have no effect in {idle} of {len(main)}."""
