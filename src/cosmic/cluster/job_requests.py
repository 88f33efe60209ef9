"""Requests of jobs and how each of them ran, and the order of events in which a cluster takes them.

Ends come before arrivals, arrivals in the order of their jobs, then what follows from both (`SharedCluster`).

Where jobs go on a cluster, and how they slow each other on the part of the network that they share.

Placing is pure functions over the free accelerators of a cluster, as sorted ranges that do not touch.
A job that fits into a node, or into another group below the outermost dimension, lies inside one. A larger one has
whole nodes: contiguous ones, or with `scattered` any.

Accelerators are numbered along the network, innermost dimension first. Leaves hold so many of them each; what a job
sends beyond its leaf crosses the leaf's uplinks, which carry less than the accelerators below can send where the
network is oversubscribed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from math import ceil, prod

from cosmic.base.errors import require
from cosmic.base.event_clock import EventClock
from cosmic.cluster.fleet_jobs import JobTerms, Placement, Range, Ranges, WaitedFor
from cosmic.design.network_layer import Network
from cosmic.network.switch_tiers import tiers_of

# ---- Where jobs go on a cluster, and how they slow each other on the part of the network that they share


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

    >>> contention_factor({0: 300.0}, {0: 100.0}, 200.0), contention_factor({0: 100.0}, {0: 50.0}, 200.0)
    (2.0, 1.0)
    >>> contention_factor({}, {}, 0.0)
    1.0
    """
    return max(
        (max(1.0, (peak + other_loads.get(leaf, 0.0)) / capacity) for leaf, peak in own_loads.items()), default=1.0
    )


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


# ---- What the simulations take and give: requests of jobs, and how each of them ran


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a job takes on some number of accelerators."""

    npus: int
    """Accelerators that it uses."""
    held: int
    """Accelerators that it holds: also those of its nodes that it has no use for."""
    tokens: float
    """Of a step."""
    memory_bytes: float
    """Of an accelerator."""
    capacity_bytes: float
    traffic: tuple[UplinkTraffic, ...] = ()
    """What an accelerator sends into the shared tier in a step."""
    factors: tuple[float, ...]
    steps_s: tuple[float, ...]
    """Seconds of a step where its traffic in the tier is slowed by each of the factors."""
    mapping: str = ""
    """Its mapping, in words."""

    def step_s(self, factor: float) -> float:
        """Return the seconds of a step where its traffic on the shared tier is slowed by *factor*.

        >>> demand = Demand(npus=1, held=1, tokens=1.0, memory_bytes=0.0, capacity_bytes=1.0,
        ...                 factors=(1.0, 4.0), steps_s=(1.0, 2.5))
        >>> demand.step_s(1.0), demand.step_s(2.0), demand.step_s(9.0)
        (1.0, 1.5, 2.5)
        """
        upper = bisect_right(self.factors, factor)
        if upper == 0 or upper == len(self.factors):
            return self.steps_s[min(upper, len(self.factors) - 1)]
        low, high = self.factors[upper - 1], self.factors[upper]
        return self.steps_s[upper - 1] + (self.steps_s[upper] - self.steps_s[upper - 1]) * (factor - low) / (high - low)

    def steps(self, terms: JobTerms, step_s: float) -> float:
        """Return the steps of a job by its terms; of a duration, as many as it holds of *step_s* each."""
        if terms.steps is not None:
            return float(terms.steps)
        if terms.tokens is not None:
            return float(ceil(terms.tokens / self.tokens))
        return (terms.duration_s or 0.0) / step_s


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOption:
    """A number of accelerators that a job may have, and what it takes on them alone."""

    demand: Demand
    steps: float
    alone_step_s: float
    """Seconds from one step to the next, alone on the empty cluster."""

    @property
    def alone_s(self) -> float:
        """How long the job takes alone on the empty cluster."""
        return self.steps * self.alone_step_s


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """A job that can run: when it comes, and what it may have."""

    name: str
    arrival_s: float
    options: tuple[JobOption, ...]
    """Fewest accelerators first."""
    priority: int = 0
    share: float = 1.0
    gap_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRun:
    """How a job ran."""

    option: JobOption
    ranges: Ranges
    start_s: float
    end_s: float
    device_s: float
    """How long its accelerators ran its steps; in space, all the time."""
    waited_for: WaitedFor = ""


@dataclass(frozen=True, slots=True)
class UplinkLoads:
    """What a job sends up from the leaves where it lies [bytes/s]."""

    peaks: tuple[tuple[float, dict[int, float]], ...] = ()
    """Of each kind of traffic its part of the bytes, and what leaves each leaf while it is sent at full rate."""
    mean: dict[int, float] = field(default_factory=dict)
    """What leaves each leaf on average, over a step that nobody slows."""

    def factor(self, other_loads: Mapping[int, float], tier: SharedTier) -> float:
        """Return by what factor the job's traffic in the tier is slowed beside *other_loads*: by bytes, over its kinds."""
        capacity = tier.uplink_bytes_per_s
        slowed = (part * (contention_factor(peak, other_loads, capacity) - 1) for part, peak in self.peaks)
        return 1.0 + sum(slowed)


def uplink_loads(demand: Demand, ranges: Ranges, tier: SharedTier) -> UplinkLoads:
    """Return what a job sends up from each leaf. Its ranks are in the order of its accelerators."""
    total = sum(load.bytes for load in demand.traffic)
    leaves = [start // tier.leaf for first, end in ranges for start in range(first, end, tier.group)]
    if not total or len(set(leaves)) < 2:
        return UplinkLoads()
    of_group = demand.npus / len(leaves)
    peaks: list[tuple[float, dict[int, float]]] = []
    mean: dict[int, float] = {}
    for traffic in demand.traffic:
        crossed = {leaf: of_group * groups for leaf, groups in crossing_groups(leaves, traffic).items()}
        rate = min(tier.bandwidth_bytes_per_s, traffic.bytes / demand.steps_s[0])
        for leaf, npus in crossed.items():
            mean[leaf] = mean.get(leaf, 0.0) + npus * rate
        full = {leaf: npus * tier.bandwidth_bytes_per_s for leaf, npus in crossed.items()}
        peaks.append((traffic.bytes / total, full))
    return UplinkLoads(tuple(peaks), mean)


def alone_step_s(demand: Demand, tier: SharedTier) -> float:
    """Return the seconds of a step of a job that has the cluster for itself, and the best place in it."""
    best = place_job(((0, tier.npus),), demand.held, tier, "packed")
    return demand.step_s(uplink_loads(demand, best or (), tier).factor({}, tier))


def subtract_own_loads(total: Mapping[int, float], own_loads: Mapping[int, float]) -> dict[int, float]:
    """Return the load of others at the leaves of a job: all of it but its own."""
    return {leaf: max(0.0, total.get(leaf, 0.0) - load) for leaf, load in own_loads.items()}


# ---- The order of events: ends before arrivals, arrivals in the order of their jobs, then what follows from both

ENDS, ARRIVALS, SETTLING = range(3)


class SharedCluster(ABC):
    """A cluster at one time: jobs end and arrive, and whoever that concerns begins or changes its speed."""

    def __init__(self, requests: Sequence[JobRequest]) -> None:
        self.requests = requests
        self.clock: EventClock[float] = EventClock()
        self.runs: dict[int, JobRun] = {}
        self._ends: dict[int, int] = {}
        """The event in which each running job ends, as of now."""
        self._settling = False

    @property
    def now(self) -> float:
        """Seconds."""
        return self.clock.now

    def run(self) -> tuple[JobRun, ...]:
        """Return how each job ran."""
        for index, request in enumerate(self.requests):
            self.clock.at(request.arrival_s, self._take_arrival, index, ARRIVALS, index)
        self.clock.run()
        return tuple(self.runs[index] for index in range(len(self.requests)))

    def end_at(self, index: int, end_s: float) -> None:
        """Let a job end at *end_s*, and no longer when it was to end before."""
        if index in self._ends:
            self.clock.cancel(self._ends[index])
        self._ends[index] = self.clock.at(end_s, self._take_end, index, ENDS, index)

    def _take_end(self, index: int) -> None:
        del self._ends[index]
        self._settle_later()
        self.finish(index)

    def _take_arrival(self, index: int) -> None:
        self._settle_later()
        self.arrive(index)

    def _settle_later(self) -> None:
        if not self._settling:
            self._settling = True
            self.clock.at(self.now, self._settle, None, SETTLING)

    def _settle(self, _: None) -> None:
        self._settling = False
        self.settle()

    @abstractmethod
    def finish(self, index: int) -> None:
        """End a job now."""

    @abstractmethod
    def arrive(self, index: int) -> None:
        """Take a job in."""

    @abstractmethod
    def settle(self) -> None:
        """Do what follows from all that ended and arrived now."""
