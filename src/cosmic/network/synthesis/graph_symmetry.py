"""Networks that look the same from every accelerator, and their schedules, which one orbit of transfers describes.

Networks that look the same from every accelerator: rings, tori, hypercubes, all-to-all, one switch for all.

Numbers of accelerators are read as digits of mixed radix; a translation adds to the digits, each modulo its radix.
Where translations are automorphisms, links fall into classes: one for each link of accelerator 0.

Schedules of symmetric networks: the transfers of accelerator 0's chunks stand for those of all others.

While the chunk of accelerator 0 crosses link l, that of accelerator r crosses the link that l becomes when 0 goes to r.
These are different links, so links of one class are used alike, and one orbit says all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cosmic.base.errors import require
from cosmic.network.link_graph import Floats, Ints, LinkGraph
from cosmic.network.schedules.collective_schedule import Kind, Schedule
from cosmic.network.synthesis.synthesis_loops import Transfers

# ---- Networks that look the same from every accelerator: rings, tori, hypercubes, all-to-all, one switch for all

MOST_SWITCH_IMAGES = 20_000_000
"""The most pairs of a translation and a switch that are tabled."""


@dataclass(frozen=True, eq=False)
class Symmetry:
    """All translations of a network, and its links by class."""

    npus: int
    radices: tuple[int, ...]
    """Of the digits of an accelerator's number, the least significant first."""
    link_class: Ints
    """Of each link."""
    anchor: Ints
    """Of each link: the accelerator at which it begins, or ends if it begins at a switch."""
    link_at: Ints
    """Class by anchor: the link."""

    @property
    def classes(self) -> int:
        """Number of classes of links."""
        return len(self.link_at)

    def plus(self, left: Ints, right: Ints) -> Ints:
        """Return where accelerators *left* go when 0 goes to *right*."""
        return _add_digits(self.radices, left, right, 1)


def _add_digits(radices: tuple[int, ...], left: Ints, right: Ints, sign: int) -> Ints:
    total = np.zeros(np.broadcast(left, right).shape, np.int64)
    stride = 1
    for radix in radices:
        total += stride * ((left // stride % radix + sign * (right // stride % radix)) % radix)
        stride *= radix
    return total


def symmetry_of(graph: LinkGraph) -> Symmetry | None:
    """Return the translations that take accelerator 0 to every other; None if a network has no such symmetry."""
    if graph.npus < 2 or not graph.links or not _may_be_symmetric(graph):
        return None
    image_of: dict[tuple[int, int], Ints | None] = {}
    for chain in _digit_chains(graph, image_of, 1):
        radices = tuple(radix for _, radix in chain)
        images = [image for image in (image_of[step] for step in chain) if image is not None]
        switches = _switch_images(graph, radices, images)
        if switches is not None:
            return _classify_links(graph, radices, switches)
    return None


def _may_be_symmetric(graph: LinkGraph) -> bool:
    """Return whether all accelerators have the same number of links, and no two switches are joined."""
    if np.any((graph.sources >= graph.npus) & (graph.targets >= graph.npus)):
        return False
    if graph.switches * graph.npus > MOST_SWITCH_IMAGES:
        return False
    out = np.bincount(graph.sources, minlength=graph.nodes)[: graph.npus]
    into = np.bincount(graph.targets, minlength=graph.nodes)[: graph.npus]
    return bool(np.all(out == out[0]) and np.all(into == into[0]))


def _digit_chains(
    graph: LinkGraph, image_of: dict[tuple[int, int], Ints | None], stride: int
) -> Iterator[list[tuple[int, int]]]:
    """Yield strides and radices of digits whose translations are automorphisms, up to the most significant digit."""
    rest = graph.npus // stride
    if rest == 1:
        yield []
        return
    # The largest radix first: fewer digits are fewer translations to check.
    for radix in (divisor for divisor in range(rest, 1, -1) if rest % divisor == 0):
        step = stride, radix
        if step not in image_of:
            image_of[step] = _find_image(graph, stride, radix)
        if image_of[step] is not None:
            for more in _digit_chains(graph, image_of, stride * radix):
                yield [step, *more]


def _find_image(graph: LinkGraph, stride: int, radix: int) -> Ints | None:
    """Return where nodes go when 1 is added to a digit; None if that is no automorphism."""
    npus = np.arange(graph.npus)
    moved = npus + np.where(npus // stride % radix < radix - 1, stride, -(radix - 1) * stride)
    if not graph.switches:
        near = graph.sources == 0
        around = set(graph.targets[graph.sources == int(moved[0])].tolist())
        if set(moved[graph.targets[near]].tolist()) != around:
            return None
    image = np.concatenate([moved, np.zeros(graph.switches, np.int64)])
    if graph.switches and not _move_switches(graph, image):
        return None
    return image if _sorted_links(graph, image) == _sorted_links(graph, np.arange(graph.nodes)) else None


def _sorted_links(graph: LinkGraph, image: Ints) -> bytes:
    """Return the links between the images of their ends, in one order for equal sets of links."""
    columns = (image[graph.sources], image[graph.targets], graph.bandwidth_bytes_per_s, graph.latency_s)
    order = np.lexsort(columns)
    return b"".join(np.ascontiguousarray(column[order]).tobytes() for column in columns)


def _move_switches(graph: LinkGraph, image: Ints) -> bool:
    """Fill in where switches go, by the accelerators they join; return whether all have a place."""
    before, after = _switch_signatures(graph, np.arange(graph.nodes)), _switch_signatures(graph, image)
    switches_at: dict[bytes, list[int]] = {}
    for switch, joined in before.items():
        switches_at.setdefault(joined, []).append(switch)
    for switch, joined in after.items():
        if not switches_at.get(joined):
            return False
        image[switch] = switches_at[joined].pop(0)
    reducing = np.array(sorted(graph.reducing), np.int64)
    return set(image[reducing].tolist()) == graph.reducing


def _switch_signatures(graph: LinkGraph, image: Ints) -> dict[int, bytes]:
    """Return of each switch the accelerators it joins, and how, with accelerators moved to their images."""
    signatures: dict[int, bytes] = {}
    for switch in range(graph.npus, graph.nodes):
        parts = []
        for ends, far_ends in ((graph.sources, graph.targets), (graph.targets, graph.sources)):
            own = np.flatnonzero(ends == switch)
            columns = (image[far_ends[own]], graph.bandwidth_bytes_per_s[own], graph.latency_s[own])
            order = np.lexsort(columns)
            parts.append(b"".join(np.ascontiguousarray(column[order]).tobytes() for column in columns))
        signatures[switch] = b"|".join(parts)
    return signatures


def _switch_images(graph: LinkGraph, radices: tuple[int, ...], images: list[Ints]) -> Ints | None:
    """Return accelerator by switch where a switch goes when 0 goes to the accelerator; None if that is no group."""
    npus = np.arange(graph.npus)
    table = np.zeros((graph.npus, graph.switches), np.int64)
    table[:] = np.arange(graph.npus, graph.nodes)
    if not graph.switches:
        return table
    stride = 1
    for radix, image in zip(radices, images, strict=True):
        digit, power = npus // stride % radix, np.arange(graph.nodes)
        for value in range(1, radix):
            power = image[power]
            rows = digit == value
            table[rows] = power[table[rows]]
        stride *= radix
    stride = 1
    for radix, image in zip(radices, images, strict=True):
        after = _add_digits(radices, npus, np.array(stride), 1)
        if not np.array_equal(table[after], image[table]):
            return None
        stride *= radix
    return table


def _classify_links(graph: LinkGraph, radices: tuple[int, ...], switches: Ints) -> Symmetry | None:
    begins = graph.sources < graph.npus
    anchor = np.where(begins, graph.sources, graph.targets)
    far_end = np.where(begins, graph.targets, graph.sources)
    relative = far_end.copy()
    inner = far_end < graph.npus
    relative[inner] = _add_digits(radices, far_end[inner], anchor[inner], -1)
    if graph.switches:
        back = np.argsort(switches, axis=1)  # which switch goes where
        outer = ~inner
        relative[outer] = graph.npus + back[anchor[outer], far_end[outer] - graph.npus]
    columns = (graph.latency_s, graph.bandwidth_bytes_per_s, relative, begins, anchor)
    order = np.lexsort(columns)
    per_npu = graph.links // graph.npus
    if per_npu * graph.npus != graph.links:
        return None
    link_at = order.reshape(graph.npus, per_npu).T.copy()
    for column in columns[:-1]:
        values = column[link_at]
        if not np.all(values == values[:, :1]):
            return None
    link_class = np.empty(graph.links, np.int64)
    link_class[link_at] = np.arange(per_npu)[:, None]
    return Symmetry(graph.npus, radices, link_class, anchor, link_at)


# ---- Schedules of symmetric networks: the transfers of accelerator 0's chunks stand for those of all others

MOST_TRANSFERS = 20_000_000
"""The most transfers that are written out one by one."""


class OrbitSchedule(Schedule):
    """The schedule of a symmetric network: transfers of accelerator 0's chunks; the others are derived on demand."""

    orbit: Transfers
    """Transfers of the chunks of accelerator 0; with chunks numbered as in the whole schedule."""
    symmetry: Symmetry

    def __init__(
        self,
        graph: LinkGraph,
        kind: Kind,
        size_bytes: float,
        chunks_per_npu: int,
        orbit: Transfers,
        symmetry: Symmetry,
    ) -> None:
        values = {
            "graph": graph,
            "kind": kind,
            "size_bytes": size_bytes,
            "chunks_per_npu": chunks_per_npu,
            "groups": (tuple(range(graph.npus)),),
            "root": 0,
            "orbit": orbit,
            "symmetry": symmetry,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def time_s(self) -> float:
        """Seconds until the last transfer has ended."""
        return self.orbit.time_s

    @property
    def transfers(self) -> int:
        """Number of transfers, of all accelerators' chunks."""
        return len(self.orbit.link) * self.graph.npus

    @cached_property
    def link(self) -> Ints:
        """The link of each transfer; transfers are in the order of their starts."""
        self._check()
        symmetry, orbit = self.symmetry, self.orbit
        anchors = symmetry.plus(symmetry.anchor[orbit.link][:, None], np.arange(self.graph.npus)[None, :])
        return symmetry.link_at[symmetry.link_class[orbit.link][:, None], anchors].ravel()

    @cached_property
    def chunk(self) -> Ints:
        """The chunk of each transfer."""
        self._check()
        npus, roots = self.graph.npus, np.arange(self.graph.npus)[None, :]
        if self.kind != "all_to_all":
            return (self.orbit.chunk[:, None] + roots).ravel()
        to = self.orbit.chunk // npus % npus
        part = self.orbit.chunk // npus**2
        return (part[:, None] * npus**2 + self.symmetry.plus(to[:, None], roots) * npus + roots).ravel()

    @cached_property
    def start_s(self) -> Floats:
        """When each transfer begins."""
        self._check()
        return np.repeat(self.orbit.start_s, self.graph.npus)

    @cached_property
    def end_s(self) -> Floats:
        """When each transfer ends."""
        self._check()
        return np.repeat(self.orbit.end_s, self.graph.npus)

    def _check(self) -> None:
        rule = f"at most {MOST_TRANSFERS:,} can be written out one by one; the time is known without"
        require(self.transfers <= MOST_TRANSFERS, "schedule.transfers", self.transfers, rule)
