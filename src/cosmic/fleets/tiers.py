"""The part of a network that jobs share, and how they slow each other there.

Accelerators are numbered along the network, innermost dimension first. Leaves hold so many of them each; what a job
sends beyond its leaf crosses the leaf's uplinks, which carry less than the accelerators below can send where the
network is oversubscribed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from cosmic.design.network import Network
from cosmic.errors import require

Range = tuple[int, int]
"""Accelerators: the first, and the one after the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
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


def tier_of(network: Network, leaf: int = 0, oversubscription: float | None = None) -> Tier:
    """Return the shared tier of a network. The only place that looks inside it."""
    dims = network.dims
    sizes = [dim.npus for dim in dims]
    group = prod(sizes[:-1])
    chosen = leaf or group
    rule = f"must be a multiple of {group}, the accelerators below the outermost dimension"
    require(chosen % group == 0, "leaf", chosen, rule)
    require(chosen <= max(network.npus, 1), "leaf", chosen, f"there are {network.npus} accelerators")
    outer = dims[-1] if dims else None
    own = outer.oversubscription if outer else 1.0
    return Tier(
        npus=network.npus,
        blocks=tuple(prod(sizes[: place + 1]) for place in range(len(sizes) - 1)),
        leaf=chosen,
        bandwidth_bytes_per_s=outer.bandwidth_bytes_per_s if outer else 0.0,
        oversubscription=own if oversubscription is None else oversubscription,
    )


def members(ranges: Sequence[Range], leaf: int) -> dict[int, int]:
    """Return how many accelerators of *ranges* are in each leaf.

    >>> members([(24, 40), (64, 72)], 32)
    {0: 8, 1: 8, 2: 8}
    """
    found: dict[int, int] = {}
    for first, end in ranges:
        for place in range(first // leaf, (end - 1) // leaf + 1):
            found[place] = found.get(place, 0) + min(end, (place + 1) * leaf) - max(first, place * leaf)
    return found


def uplink_load(inside: Mapping[int, int], group: int, rate_bytes_per_s: float) -> dict[int, float]:
    r"""Return the bytes a second that a job sends up from each leaf.

        load_l = n_l * r * (n - n_l) / (n - g)

    n_l  accelerators of the job in leaf l, n in all      g  in one group below the tier, whose traffic stays inside
    r    bytes/s that each sends into the tier

    Assumes that an accelerator sends as much to each other one outside its group, as in an all-to-all; rings that are
    laid along the leaves cross fewer uplinks, so this is an upper estimate.

    >>> uplink_load({0: 8, 1: 8}, 8, 50.0), uplink_load({0: 24, 1: 8}, 8, 50.0), uplink_load({0: 32}, 8, 50.0)
    ({0: 400.0, 1: 400.0}, {0: 400.0, 1: 400.0}, {})
    """
    total = sum(inside.values())
    if len(inside) < 2 or total <= group:
        return {}
    return {leaf: own * rate_bytes_per_s * (total - own) / (total - group) for leaf, own in inside.items()}


def contention(own: Mapping[int, float], others: Mapping[int, float], capacity: float) -> float:
    r"""Return by what factor a job's traffic on the shared tier is slowed: 1 where it is not.

        f = max over its leaves l of  max(1, (own_l + others_l) / C)

    own_l     what the job itself sends up from leaf l while it communicates, at full rate [bytes/s]
    others_l  what other jobs send up from there on average: bytes of a step over its time
    C         what the uplinks of a leaf carry

    Assumes that links share fairly by demand, and that others keep the rate they have alone; slowed jobs send less,
    so this is an upper estimate. With full bisection the sum never exceeds C, and nobody is slowed.

    >>> contention({0: 300.0}, {0: 100.0}, 200.0), contention({0: 100.0}, {0: 50.0}, 200.0), contention({}, {}, 0.0)
    (2.0, 1.0, 1.0)
    """
    return max((max(1.0, (peak + others.get(leaf, 0.0)) / capacity) for leaf, peak in own.items()), default=1.0)
