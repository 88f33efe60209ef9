"""How long collectives take on a multi-dimensional network: phases over dimensions, in chunks that pipeline.

    t_d = steps * hops * latency  +  S_d / C * traffic / (B_d * e_d)        of one chunk in dimension d
    T   = sum over d of t_d  +  (C - 1) * max over d of t_d                 of C chunks, one dimension behind the other

    S_d  bytes that enter dimension d: S / (product of the members in dimensions inside), as each phase leaves every
         NPU its share (BlueConnect); with `baseline` all-reduces, and with all-to-alls, S in every dimension
    B_d  what one NPU injects     e_d  what the algorithm can use of it on the topology, among this part of it

e_d is the topology's share for such a group; on topologies without switches less where an algorithm talks to fewer
neighbours than there are links, and less where its partners are several links apart and share them with others.

A real library takes longer, by an amount that depends on S_d: `cosmic.cost.transport` adds it, once for each dimension
and not for each chunk.

Of a batch of designs, the distinct combinations of topology, algorithm, size, members and step are few. What depends
on them alone is worked out once for each, and looked up for every design.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.cost.collectives import depth
from cosmic.cost.shapes import Part, choose, larger
from cosmic.cost.themis import bottleneck_seconds
from cosmic.cost.transport import IDEAL, Phase, Way, phase, somewhere, transport_of
from cosmic.design.batch import Batch, Names, numbered
from cosmic.design.collective import CollectiveKind, algorithms
from cosmic.design.network import Dimension, topologies

LARGE = 2**19


@dataclass(frozen=True, slots=True)
class Lane:
    """One dimension of the network: numbers and names, or columns of them over a batch."""

    topology: Any
    npus: Any
    bandwidth_bytes_per_s: Any
    latency_s: Any
    algorithm: Any
    transport: Any = IDEAL
    """A `Transport`, or the like with columns in place of numbers."""

    @classmethod
    def of(cls, batch: Batch, place: int) -> Lane:
        """Return the dimension at *place* of the networks of a batch."""
        where = f"network.dims.{place}"
        varies = any(path.startswith(f"{where}.transport.") for path in batch.columns)
        base = batch.base.network.dims[place].transport
        return cls(
            batch[f"{where}.topology"],
            batch[f"{where}.npus"],
            batch[f"{where}.bandwidth"] / batch[f"{where}.oversubscription"],
            batch[f"{where}.latency"],
            batch[f"collective.algorithms.{place}"],
            transport_of(lambda key: batch[f"{where}.transport.{key}"], varies, base),
        )


@dataclass(frozen=True)
class Crossing:
    """A group's part of one dimension, for every design of a batch."""

    lane: Lane
    part: Part

    @cached_property
    def distinct(self) -> tuple[list[tuple[str, str, float, float, float]], npt.NDArray[np.intp] | None]:
        """The distinct combinations of topology, algorithm, NPUs, members and step; and which one each design has."""
        lane, part = self.lane, self.part
        columns = [lane.topology, lane.algorithm, lane.npus, part.members, part.step]
        length = max((len(column) for column in columns if _varies(column)), default=0)
        if not length:
            return [(lane.topology, lane.algorithm, float(lane.npus), float(part.members), float(part.step))], None
        _, first, which = np.unique(_codes(columns, length), return_index=True, return_inverse=True)
        rows = zip(*(_values(column, first) for column in columns), strict=True)
        return list(rows), which.reshape(-1)

    @cached_property
    def chosen(self) -> Any:
        """Whether the algorithm is left to the library."""
        return self._looked_up([algorithm == "auto" for _, algorithm, *_ in self.distinct[0]])

    def _looked_up(self, values: list[float]) -> Any:
        which = self.distinct[1]
        return values[0] if which is None else np.array(values)[which]

    def phase(self, kind: CollectiveKind, alone: Any = True) -> Phase:
        """Return what the dimension takes for its part of a collective; *alone*: nobody is in another dimension."""
        terms = [phase_terms(kind, *row) for row in self.distinct[0]]
        hops, traffic = (self._looked_up([term[place] for term in terms]) for place in (0, 1))
        lane, direct = self.lane, kind == "all_to_all"
        way = Way(self.part.members, hops, traffic, direct=direct, chosen=self.chosen, alone=alone)
        return phase(way, lane.bandwidth_bytes_per_s, lane.latency_s, lane.transport, kind == "all_reduce")

    def next_door(self) -> Phase:
        """Return what the dimension takes to send to the next member."""
        terms = [send_terms(topology, npus, members, step) for topology, _, npus, members, step in self.distinct[0]]
        hops, shares = (self._looked_up([term[place] for term in terms]) for place in (0, 1))
        lane = self.lane
        way = Way(self.part.members, hops, 1 / shares, copies=False, direct=True)
        return phase(way, lane.bandwidth_bytes_per_s, lane.latency_s, lane.transport)


@lru_cache(maxsize=65536)
def phase_terms(
    kind: CollectiveKind, topology: str, algorithm: str, npus: float, members: float, step: float
) -> tuple[float, float]:
    """Return how many links' latency a phase takes, and its traffic per byte over the share of bandwidth it can use.

    >>> phase_terms("all_reduce", "switch", "ring", 8, 8, 1)
    (28.0, 1.75)
    """
    if members <= 1:
        return 0.0, 0.0
    hops = float(topologies[topology].hops(members, npus, step))
    traffic = float(algorithms[algorithm].traffic(kind, members))
    return float(algorithms[algorithm].steps(kind, members)) * hops, traffic / usable_share(
        topology, algorithm, npus, members, step
    )


@lru_cache(maxsize=65536)
def send_terms(topology: str, npus: float, members: float, step: float) -> tuple[float, float]:
    """Return the links to the next member, and the share of bandwidth that everybody sending at once can use."""
    return float(topologies[topology].hops(members, npus, step)), usable_share(topology, "ring", npus, members, step)


@lru_cache(maxsize=65536)
def usable_share(topology: str, algorithm: str, npus: float, members: float, step: float) -> float:
    """Return the share of its injection bandwidth that an NPU uses in a group of *members*, *step* apart.

    >>> usable_share("fully_connected", "direct", 8, 8, 1), round(usable_share("fully_connected", "ring", 8, 8, 1), 3)
    (1.0, 0.286)
    """
    shape, pattern = topologies[topology], algorithms[algorithm]
    if members <= 1:
        return 1.0
    share = float(shape.share(members, npus, step))
    if shape.switched:
        return share
    links = max(1.0, min(float(shape.links(npus)), members - 1))
    talking = min(1.0, float(pattern.peers(members)) / links)
    around = max(1.0, npus / 4)  # the mean way in a ring, by which patterns state their distance
    apart = (float(shape.mean_hops(npus)) - 1) / max(around - 1, 1e-9)
    contention = 1 + (float(pattern.distance(members)) - 1) * min(1.0, max(0.0, apart))
    return share * talking / contention


def one_dimension_seconds(kind: CollectiveKind, algorithm: str, members: Any, size_bytes: Any, dim: Dimension) -> Any:
    """Return the seconds of one collective among *members* side by side in one dimension; numbers or arrays.

    >>> dim = Dimension(topology="switch", npus=8, bandwidth_bytes_per_s=100e9, latency_s=0.0)
    >>> float(one_dimension_seconds("all_gather", "auto", 4, 1e9, dim))
    0.0075
    """
    bandwidth = dim.bandwidth_bytes_per_s / dim.oversubscription
    transport = IDEAL if dim.transport == IDEAL else dim.transport
    lane = Lane(dim.topology, dim.npus, bandwidth, dim.latency_s, algorithm, transport)
    part = Part(np.asarray(members, dtype=float)[()], 1.0)
    return collective_seconds(crossings([lane], [part]), kind, size_bytes, 1, "blueconnect")


def crossings(lanes: Sequence[Lane], parts: Sequence[Part]) -> list[Crossing]:
    """Return a group that lies on the network as *parts* say: the dimensions in which it has several members."""
    pairs = zip(lanes, parts, strict=True)
    return [Crossing(lane, part) for lane, part in pairs if somewhere(part.members > 1)]


def collective_seconds(
    group: Sequence[Crossing], kind: CollectiveKind, size_bytes: Any, chunks: Any, multi_dim: Any, copies: int = 1
) -> Any:
    """Return the seconds of one collective of *size_bytes* among a group.

    An all-to-all whose tokens go to several experts each sends one of the *copies* to a node, which spreads it.
    """
    if not group:
        return 0.0
    phases = [each.phase(kind, _alone(each, group)) for each in group]
    unreduced = (multi_dim == "baseline") if kind == "all_reduce" else False
    times: list[Any] = []
    inside: Any = 1.0
    besides: Any = 0.0
    for part, each in zip(phases, group, strict=True):
        if kind == "all_to_all":
            shrunk = 1 / sent_once(copies, each.part.members, inside)
        else:
            shrunk = choose(unreduced, 1.0, inside) / around(kind, each, inside)
        times.append(part.again_s + part.per_byte_s * size_bytes / (shrunk * chunks))
        besides = besides + part.besides_s(size_bytes / shrunk)
        inside = inside * each.part.members
    in_turn = sum(times) + (chunks - 1) * _largest(times) + besides
    levelling = multi_dim == "themis"
    if kind == "all_to_all" or not somewhere(levelling):
        return in_turn
    levelled = _levelled_seconds(phases, [each.part for each in group], size_bytes, chunks) + besides
    return np.where(levelling, np.minimum(in_turn, levelled), in_turn)


def sent_once(copies: int, members: Any, inside: Any) -> Any:
    """Return the share of an all-to-all that crosses a dimension if copies for one member travel once.

    Of k copies, p members get p (1 - (1 - 1/p)^k) different ones on average. Only where others are *inside* a member,
    to spread them.

    >>> round(sent_once(8, 4, 8), 3), sent_once(8, 4, 1), sent_once(1, 4, 8)
    (0.45, 1.0, 1.0)
    """
    if copies == 1:
        return 1.0
    different = members * (1 - (1 - 1 / larger(members, 1.0)) ** copies) / copies
    return choose(inside > 1, different, 1.0)


def _alone(each: Crossing, group: Sequence[Crossing]) -> Any:
    """Return whether all members of a group that chooses its algorithm are in one dimension."""
    if len(group) == 1 or not somewhere(each.chosen):
        return True
    return prod(other.part.members for other in group) == each.part.members


def around(kind: CollectiveKind, each: Crossing, inside: Any) -> Any:
    """Return how much more than its share a dimension carries when a library's rings go round all members.

    ((1 - 1 / (m p)) / (1 - 1 / p)) for p members, each standing for m in dimensions inside: nothing is reduced inside
    before it is sent on.
    """
    members, chosen = each.part.members, each.chosen
    if kind == "all_to_all" or not somewhere(chosen) or not somewhere(inside > 1):
        return 1.0
    factor = (1 - 1 / (inside * members)) / larger(1 - 1 / members, 0.5)
    return choose(chosen & (members > 1), factor, 1.0)


def _levelled_seconds(phases: Sequence[Phase], parts: Sequence[Part], size_bytes: Any, chunks: Any) -> Any:
    """Return the seconds when each chunk visits the dimensions in the order that levels their loads (Themis).

    Rashidi et al., ISCA 2022. The most loaded dimension sets the pace; a chunk alone still passes through all.
    """
    members = [np.atleast_1d(np.asarray(part.members, dtype=float)) for part in parts]
    shares = [np.maximum((p - 1) / p, 1e-12) for p in members]
    rates = [share / np.maximum(each.per_byte_s, 1e-30) for share, each in zip(shares, phases, strict=True)]
    pace = bottleneck_seconds(members, rates, np.ones_like(members[0]), chunks) * size_bytes
    levelled = pace + sum(each.again_s for each in phases)
    return levelled if any(np.ndim(part.members) for part in parts) else float(np.asarray(levelled).flat[0])


def broadcast_seconds(group: Sequence[Crossing], size_bytes: Any) -> Any:
    """Return the seconds until all members have what one of them has: down a tree, pipelined, in each dimension."""
    seconds: Any = 0.0
    for each in group:
        door, several = each.next_door(), each.part.members > 1
        seconds = seconds + depth(each.part.members) * door.again_s + size_bytes * door.per_byte_s * several
        seconds = seconds + door.besides_s(size_bytes) * several
    return seconds


def barrier_seconds(group: Sequence[Crossing]) -> Any:
    """Return the seconds until all members know that all have arrived: an all-reduce of nothing."""
    return collective_seconds(group, "all_reduce", 0.0, 1, "blueconnect")


def send_seconds(group: Sequence[Crossing], size_bytes: Any) -> Any:
    """Return the seconds to send *size_bytes* to the next member: over the outermost dimension that it lies in."""
    seconds: Any = 0.0
    for each in group:
        door = each.next_door()
        alone = door.again_s + size_bytes * door.per_byte_s + door.besides_s(size_bytes)
        seconds = choose(each.part.members > 1, alone, seconds)
    return seconds


def _largest(values: Sequence[Any]) -> Any:
    found: Any = 0.0
    for value in values:
        found = larger(found, value)
    return found


def _codes(columns: Sequence[Any], length: int) -> npt.NDArray[np.int64]:
    """Return a number for each design that two of them share only if they agree in all *columns*.

    Whole numbers, which sizes nearly always are, take 19 bits each; otherwise each column's values are numbered.
    """
    codes = np.zeros(length, dtype=np.int64)
    for column in columns:
        whole = np.asarray(column, dtype=np.int64) if not isinstance(column, Names | str) else None
        if whole is not None and np.array_equal(whole, column) and whole.max(initial=0) < LARGE:
            codes = codes * LARGE + whole
        elif _varies(column):
            count, numbers = numbered(column)
            codes = codes * count + numbers
    return codes


def _varies(column: Any) -> bool:
    """Return whether *column* has a value for each design, not one for all."""
    return isinstance(column, Names) or (isinstance(column, np.ndarray) and column.ndim > 0)


def _values(column: Any, rows: npt.NDArray[np.intp]) -> list[Any]:
    """Return the values of the designs at *rows*."""
    if _varies(column):
        found: list[Any] = column[rows].tolist()
        return found
    return [column if isinstance(column, str) else float(column)] * len(rows)  # an array of no dimension is no key
