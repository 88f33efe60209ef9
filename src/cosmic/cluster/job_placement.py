"""Where jobs go on a cluster, and how they slow each other on the part of the network that they share.

Placing is pure functions over the free accelerators of a cluster, as sorted ranges that do not touch.
A job that fits into a node, or into another group below the outermost dimension, lies inside one. A larger one has
whole nodes: contiguous ones, or with `scattered` any.

Accelerators are numbered along the network, innermost dimension first. Leaves hold so many of them each; what a job
sends beyond its leaf crosses the leaf's uplinks, which carry less than the accelerators below can send where the
network is oversubscribed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import prod

from cosmic.base.errors import require
from cosmic.cluster.fleet_jobs import Placement
from cosmic.design.network_layer import Network
from cosmic.network.switch_tiers import tiers_of

Range = tuple[int, int]
"""Accelerators: the first, and the one after the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedTier:
    """What placing and contention need to know of a network."""

    npus: int
    blocks: tuple[int, ...]
    """Accelerators of a node, and of each larger group below the outermost dimension; smallest first."""
    leaf: int
    """Accelerators below one leaf."""
    bandwidth_bytes_per_s: float
    """What an accelerator sends into the outermost dimension at most."""
    oversubscription: float = 1.0

    @property
    def node(self) -> int:
        """Accelerators of a node, the innermost group."""
        return self.blocks[0] if self.blocks else 1

    @property
    def group(self) -> int:
        """Accelerators below the outermost dimension, whose traffic stays below it."""
        return self.blocks[-1] if self.blocks else 1

    @property
    def uplink_bytes_per_s(self) -> float:
        """What the uplinks of a leaf carry in one direction."""
        return self.leaf * self.bandwidth_bytes_per_s / self.oversubscription


def shared_tier(network: Network, leaf: int = 0, oversubscription: float | None = None) -> SharedTier:
    """Return the shared tier of a network. The only place that looks inside it.

    A leaf is as its fabric is built, if nobody says how many accelerators it has.

    >>> from cosmic.design.loading import load_machine
    >>> shared_tier(load_machine("llama3-8b@dgx-h100:1024").network).leaf  # rails: 32 nodes of 8
    256
    """
    dims = network.dims
    sizes = [dim.npus for dim in dims]
    group = prod(sizes[:-1])
    built = tiers_of(dims, len(dims) - 1) if dims else ()
    chosen = leaf or group * (built[0].npus if built and sizes[-1] % built[0].npus == 0 else 1)
    rule = f"must be a multiple of {group}, the accelerators below the outermost dimension"
    require(chosen % group == 0, "leaf", chosen, rule)
    require(chosen <= max(network.npus, 1), "leaf", chosen, f"there are {network.npus} accelerators")
    outer = dims[-1] if dims else None
    own_oversubscription = outer.oversubscription if outer else 1.0
    return SharedTier(
        npus=network.npus,
        blocks=tuple(prod(sizes[: index + 1]) for index in range(len(sizes) - 1)),
        leaf=chosen,
        bandwidth_bytes_per_s=outer.bandwidth_bytes_per_s if outer else 0.0,
        oversubscription=own_oversubscription if oversubscription is None else oversubscription,
    )


@dataclass(frozen=True, slots=True)
class UplinkTraffic:
    """What an accelerator sends into the tier in a step, to whom: in units of groups below the tier."""

    bytes: float
    members: int
    """Groups that communicate with each other."""
    step: int = 1
    """How far apart they are in the order of ranks."""
    everywhere: bool = False
    """Whether each sends to all others, as in an all-to-all; otherwise to the next, as in a ring or a pipeline."""


def crossing_groups(leaves: Sequence[int], traffic: UplinkTraffic) -> dict[int, float]:
    """Return how many groups' worth of *traffic* leaves each leaf; *leaves* has that of each group, in rank order.

    Eight groups in two leaves: of a ring through all, the last of each leaf sends to the other; neighbours in fours
    stay inside; pairs that are four apart all cross. Where the leaves alternate, all of a ring cross.

    >>> packed, scattered = [0, 0, 0, 0, 1, 1, 1, 1], [0, 1, 0, 1, 0, 1, 0, 1]
    >>> crossing_groups(packed, UplinkTraffic(1.0, 8)), crossing_groups(packed, UplinkTraffic(1.0, 4)), crossing_groups(packed, UplinkTraffic(1.0, 2, 4))
    ({0: 1.0, 1: 1.0}, {}, {0: 4.0, 1: 4.0})
    >>> crossing_groups(scattered, UplinkTraffic(1.0, 8)), crossing_groups([0, 0, 0, 1], UplinkTraffic(1.0, 4, everywhere=True))
    ({0: 4.0, 1: 4.0}, {0: 1.0, 1: 1.0})
    """
    loads: dict[int, float] = {}
    if traffic.members < 2 or len(set(leaves)) < 2:
        return loads
    block = traffic.members * traffic.step
    for index, leaf in enumerate(leaves):
        first, position = index // block * block, index % block
        if traffic.everywhere:
            peers = leaves[first + position % traffic.step : first + block : traffic.step]
            share = sum(peer != leaf for peer in peers) / max(len(peers) - 1, 1)
        else:
            successor = first + (position + traffic.step) % block
            share = float(leaves[successor if successor < len(leaves) else first] != leaf)
        if share:
            loads[leaf] = loads.get(leaf, 0.0) + share
    return loads


def contention_factor(own_loads: Mapping[int, float], other_loads: Mapping[int, float], capacity: float) -> float:
    r"""Return by what factor a job's traffic on the shared tier is slowed: 1 where it is not.

        f = max over its leaves l of  max(1, (own_l + others_l) / C)

    own_l     what the job sends up from leaf l while it communicates, at full rate [bytes/s]
    others_l  what other jobs send up from there on average: bytes of a step over its time
    C         what the uplinks of a leaf carry

    Assumes that links share fairly by demand, and that others keep the rate they have alone; slowed jobs send less,
    so this is an upper estimate. With full bisection the sum never exceeds C, and nobody is slowed.

    >>> contention_factor({0: 300.0}, {0: 100.0}, 200.0), contention_factor({0: 100.0}, {0: 50.0}, 200.0), contention_factor({}, {}, 0.0)
    (2.0, 1.0, 1.0)
    """
    return max(
        (max(1.0, (peak + other_loads.get(leaf, 0.0)) / capacity) for leaf, peak in own_loads.items()), default=1.0
    )


Ranges = tuple[Range, ...]


def take_ranges(free: Ranges, taken: Sequence[Range]) -> Ranges:
    """Return what is free without *taken*, all of which or parts of which may be taken already.

    >>> take_ranges(((0, 16), (32, 64)), [(8, 16), (40, 48)])
    ((0, 8), (32, 40), (48, 64))
    """
    for first, end in taken:
        remaining: list[Range] = []
        for low, high in free:
            remaining += [part for part in ((low, min(high, first)), (max(low, end), high)) if part[0] < part[1]]
        free = tuple(remaining)
    return free


def return_ranges(free: Ranges, ranges: Sequence[Range]) -> Ranges:
    """Return what is free after *ranges* were given back.

    >>> return_ranges(((0, 8), (16, 24)), [(8, 16), (32, 40)])
    ((0, 24), (32, 40))
    """
    return join_ranges([*free, *ranges])


def join_ranges(ranges: Sequence[Range]) -> Ranges:
    """Return *ranges* sorted, with neighbours joined."""
    joined: list[Range] = []
    for first, end in sorted(ranges):
        if joined and joined[-1][1] == first:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((first, end))
    return tuple(joined)


def place_job(free: Ranges, npus: int, tier: SharedTier, placement: Placement) -> Ranges | None:
    """Return the accelerators for a job that holds *npus* of them; None where there is no place now.

    *packed* takes the fewest leaves, then the tightest gap; *first_fit* the first gap; *scattered* deals groups over
    the leaves in turn, whether they are contiguous or not.

    >>> tier = SharedTier(npus=64, blocks=(8,), leaf=32, bandwidth_bytes_per_s=1.0)
    >>> free = ((8, 40), (48, 64))
    >>> [place_job(free, 16, tier, how) for how in ("packed", "first_fit", "scattered")]
    [((48, 64),), ((8, 24),), ((8, 16), (32, 40))]
    """
    if placement == "scattered" and npus > tier.group:
        return _deal_leaves(free, npus, tier)
    windows = [start for run in free if run[1] - run[0] >= npus for start in _start_windows(run, npus, tier)]
    if not windows:
        return None
    if placement != "packed":
        first = min(start for start, _ in windows)
    else:
        first = min(windows, key=lambda window: (_job_leaves(window[0], npus, tier.leaf), window[1], window[0]))[0]
    return ((first, first + npus),)


def _job_leaves(start: int, npus: int, leaf: int) -> int:
    return (start + npus - 1) // leaf - start // leaf + 1


def _start_windows(run: Range, npus: int, tier: SharedTier) -> Iterator[tuple[int, int]]:
    """Yield where in a free run a job may begin, each with the size of the gap that it would be cut out of.

    Of the blocks of a run, the first, the first whole one and the last are enough: whole ones are all alike.
    """
    block = next((size for size in tier.blocks if size >= npus), 0)
    unit = max((size for size in tier.blocks if size <= npus), default=npus if block else 1)
    edges = block or tier.leaf
    for low, high in _cut_run(run, edges):
        start = -(-low // unit) * unit
        if start + npus <= high:
            yield start, high - low
    if not block:  # it may span leaves
        low, high = run
        last = high // edges * edges
        for start in (low, -(-low // edges) * edges, last - npus, high - npus):
            aligned = -(-max(start, low) // unit) * unit
            if aligned + npus <= high:
                yield aligned, high - low


def _cut_run(run: Range, size: int) -> list[Range]:
    """Return the first, the first whole and the last part of a run that is cut at multiples of *size*.

    >>> _cut_run((4, 30), 8), _cut_run((4, 7), 8)
    ([(4, 8), (8, 16), (24, 30)], [(4, 7)])
    """
    low, high = run
    first = low // size * size
    parts = {first, -(-low // size) * size, (high - 1) // size * size}
    windows = [(max(low, part), min(high, part + size)) for part in sorted(parts)]
    return [part for part in windows if part[0] < part[1]]


def _deal_leaves(free: Ranges, npus: int, tier: SharedTier) -> Ranges | None:
    """Return groups of accelerators, one of each leaf in turn; None where fewer are free."""
    unit = tier.group
    by_leaf: dict[int, list[int]] = {}
    for low, high in free:
        for start in range(-(-low // unit) * unit, high - unit + 1, unit):
            by_leaf.setdefault(start // tier.leaf, []).append(start)
    leaf_count = -(-npus // unit)
    if sum(map(len, by_leaf.values())) < leaf_count:
        return None
    rounds = zip_longest(*(by_leaf[leaf] for leaf in sorted(by_leaf)))
    starts = [start for starts_of_round in rounds for start in starts_of_round if start is not None][:leaf_count]
    return join_ranges([(start, start + unit) for start in starts])
