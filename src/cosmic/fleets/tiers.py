"""The part of a network that jobs share, and how they slow each other there.

Accelerators are numbered along the network, innermost dimension first. Leaves hold so many of them each; what a job
sends beyond its leaf crosses the leaf's uplinks, which carry less than the accelerators below can send where the
network is oversubscribed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from cosmic.cost.tiers import tiers_of
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
    """Return the shared tier of a network. The only place that looks inside it.

    A leaf is as its fabric is built, if nobody says how many accelerators it has.

    >>> from cosmic.loading.designs import load_machine
    >>> tier_of(load_machine("llama3-8b@dgx-h100:1024").network).leaf  # rails: 32 nodes of 8
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
    own = outer.oversubscription if outer else 1.0
    return Tier(
        npus=network.npus,
        blocks=tuple(prod(sizes[: place + 1]) for place in range(len(sizes) - 1)),
        leaf=chosen,
        bandwidth_bytes_per_s=outer.bandwidth_bytes_per_s if outer else 0.0,
        oversubscription=own if oversubscription is None else oversubscription,
    )


@dataclass(frozen=True, slots=True)
class Traffic:
    """What an accelerator sends into the tier in a step, to whom: in units of groups below the tier."""

    bytes: float
    members: int
    """Groups that communicate with each other."""
    step: int = 1
    """How far apart they are in the order of ranks."""
    everywhere: bool = False
    """Whether each sends to all others, as in an all-to-all; otherwise to the next, as in a ring or a pipeline."""


def crossing(leaves: Sequence[int], traffic: Traffic) -> dict[int, float]:
    """Return how many groups' worth of *traffic* leaves each leaf; *leaves* has that of each group, in rank order.

    Eight groups in two leaves: of a ring through all, the last of each leaf sends to the other; neighbours in fours
    stay inside; pairs that are four apart all cross. Where the leaves alternate, all of a ring cross.

    >>> packed, scattered = [0, 0, 0, 0, 1, 1, 1, 1], [0, 1, 0, 1, 0, 1, 0, 1]
    >>> crossing(packed, Traffic(1.0, 8)), crossing(packed, Traffic(1.0, 4)), crossing(packed, Traffic(1.0, 2, 4))
    ({0: 1.0, 1: 1.0}, {}, {0: 4.0, 1: 4.0})
    >>> crossing(scattered, Traffic(1.0, 8)), crossing([0, 0, 0, 1], Traffic(1.0, 4, everywhere=True))
    ({0: 4.0, 1: 4.0}, {0: 1.0, 1: 1.0})
    """
    found: dict[int, float] = {}
    if traffic.members < 2 or len(set(leaves)) < 2:
        return found
    block = traffic.members * traffic.step
    for place, leaf in enumerate(leaves):
        first, inside = place // block * block, place % block
        if traffic.everywhere:
            peers = leaves[first + inside % traffic.step : first + block : traffic.step]
            share = sum(other != leaf for other in peers) / max(len(peers) - 1, 1)
        else:
            after = first + (inside + traffic.step) % block
            share = float(leaves[after if after < len(leaves) else first] != leaf)
        if share:
            found[leaf] = found.get(leaf, 0.0) + share
    return found


def contention(own: Mapping[int, float], others: Mapping[int, float], capacity: float) -> float:
    r"""Return by what factor a job's traffic on the shared tier is slowed: 1 where it is not.

        f = max over its leaves l of  max(1, (own_l + others_l) / C)

    own_l     what the job sends up from leaf l while it communicates, at full rate [bytes/s]
    others_l  what other jobs send up from there on average: bytes of a step over its time
    C         what the uplinks of a leaf carry

    Assumes that links share fairly by demand, and that others keep the rate they have alone; slowed jobs send less,
    so this is an upper estimate. With full bisection the sum never exceeds C, and nobody is slowed.

    >>> contention({0: 300.0}, {0: 100.0}, 200.0), contention({0: 100.0}, {0: 50.0}, 200.0), contention({}, {}, 0.0)
    (2.0, 1.0, 1.0)
    """
    return max((max(1.0, (peak + others.get(leaf, 0.0)) / capacity) for leaf, peak in own.items()), default=1.0)
