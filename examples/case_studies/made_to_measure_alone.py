"""Collectives alone: how far from their bound the textbook is, and synthesised schedules are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from common import Effort, span
from made_to_measure_cluster import (
    CONDITIONS,
    GPUS,
    HEALTHY,
    SLOW_NIC,
    SMALL_BATCH,
    TEXTBOOK,
    Condition,
    unit_graph,
    unit_network,
)

import cosmic
from cosmic.design import CollectiveKind, Fault, Network
from cosmic.network import (
    LinkGraph,
    NetworkDimension,
    Span,
    bound,
    check,
    collective_seconds,
    disconnection_reason,
    label_of,
    make_baselines,
    network_graph,
    simulate_schedule,
    subgroups,
    synthesize,
    to_nanoseconds,
    wiring_at,
)
from cosmic.pages import Axis, Bar, BarGroup, Figure, Heading, Part, Table, Text, bars

SIZE_BYTES, CHUNKS = 1e9, 16
KINDS: dict[CollectiveKind, str] = {"all_gather": "all-gather", "all_to_all": "all-to-all"}
MESH = "node of 8 MI300X"
SLOW_PAIR = "a link at a quarter"
CUT_PAIR = "a link broken"


@dataclass(frozen=True)
class Alone:
    """One collective on one network."""

    network: str
    condition: str
    kind: CollectiveKind
    bound_s: float
    dimensions_s: float | None
    """Through one dimension after the other, with the best algorithm in each; None if a dimension is in two parts."""
    links_s: float
    """The best of ring, direct exchange and halving-doubling among all NPUs, with congestion on every link."""
    synthesized_s: float
    valid: bool
    """Whether the schedule passes the independent check, and takes as long in the event engine."""

    @property
    def textbook_s(self) -> float:
        """The better of the two."""
        return min(each for each in (self.dimensions_s, self.links_s) if each is not None)

    @property
    def gain(self) -> float:
        """What the synthesised schedule gains over the textbook."""
        return self.textbook_s / self.synthesized_s


def through_dimensions(network: Network, kind: CollectiveKind, algorithm: str) -> float | None:
    """Return the seconds of a collective of all NPUs, dimension by dimension, on links that work as they say."""
    dims = []
    for place, dim in enumerate(network.dims):
        label = label_of(dim.topology, wiring_at(network, place))
        if disconnection_reason(str(label), dim.npus):
            return None
        dims.append(NetworkDimension(label, dim.npus, dim.bandwidth_bytes_per_s, dim.latency_s, algorithm))
    group = subgroups(dims, [Span(float(dim.npus), 1.0) for dim in network.dims])
    return float(collective_seconds(group, kind, SIZE_BYTES, CHUNKS, "blueconnect"))


def alone(network: Network, graph: LinkGraph, names: tuple[str, str], kind: CollectiveKind) -> Alone:
    """Return what a collective takes on a network, which is also given as a graph."""
    found = [through_dimensions(network, kind, name) for name in TEXTBOOK]
    known = [seconds for seconds in found if seconds is not None]
    played = make_baselines(graph, kind, SIZE_BYTES, [range(graph.npus)])
    schedule = synthesize(graph, collective=kind, size=SIZE_BYTES)
    return Alone(
        *names,
        kind,
        bound(graph, collective=kind, size=SIZE_BYTES).seconds,
        min(known) if known and len(network.dims) > 1 else None,
        min(each.time_s for each in played if each.time_s is not None),
        schedule.time_s,
        check(schedule).valid and simulate_schedule(schedule) == to_nanoseconds(schedule.time_s),
    )


def of_unit(condition: Condition, kind: CollectiveKind) -> Alone:
    """Return a collective of all GPUs of a unit."""
    point = SMALL_BATCH.point
    return alone(
        unit_network(point, condition),
        unit_graph(point, condition),
        (f"unit of {GPUS * condition.nodes} H100", condition.name),
        kind,
    )


def of_node(condition: str, kind: CollectiveKind) -> Alone:
    """Return a collective in a node whose GPUs are joined directly; what is wrong is the link of the first two."""
    speed = {"healthy": 1.0, SLOW_PAIR: 0.25, CUT_PAIR: 0.0}[condition]
    dim = cosmic.load_design("llama3-70b@mi300x:1024", plain=True).network.dims[0]
    dim = replace(dim, bandwidth_bytes_per_s=dim.bandwidth_bytes_per_s * dim.transport.efficiency)
    faults = () if speed == 1 else (Fault(npu=0, dim=0, peer=1, speed=speed),)
    network = Network(dims=(dim,), faults=faults)
    return alone(network, network_graph(network), (MESH, condition), kind)


def all_alone(effort: Effort) -> list[Alone]:
    """Return all collectives of the page, or for a quick look two."""
    if effort.quick:
        return [of_unit(condition.smaller(), "all_gather") for condition in (HEALTHY, SLOW_NIC)]
    found = [of_unit(condition, kind) for condition in CONDITIONS for kind in KINDS]
    return found + [of_node(condition, kind) for condition in ("healthy", SLOW_PAIR, CUT_PAIR) for kind in KINDS]


def times(seconds: float | None, bound_s: float) -> str:
    """Return a time over the bound as text."""
    return "cannot" if seconds is None else f"{seconds / bound_s:.2f} x"


def section(found: Sequence[Alone]) -> list[Part]:
    """Return the section on collectives alone."""
    nodes = f", and in a {MESH}, each joined to each" if any(each.network == MESH for each in found) else ""
    return [
        Heading("Collectives alone"),
        Text(
            f"""A gigabyte for each GPU, among a {found[0].network} (nodes on NVLink, {GPUS} rails between them){nodes}.
            The bound is what must cross the tightest cut of the links. By dimension is BlueConnect, in {CHUNKS} chunks
            and with the best algorithm in every dimension, as NCCL's rings over all rails come out; by link is the best
            of ring, direct exchange and halving-doubling among all of them, played in the event engine with whole
            messages on their quickest paths and congestion on every link."""
        ),
        Table(
            ["network", "condition", "collective", "bound, ms", "by dimension", "by link", "synthesised", "gain"],
            [
                [
                    each.network,
                    each.condition,
                    KINDS[each.kind],
                    f"{1e3 * each.bound_s:.2f}",
                    "–" if each.network == MESH else times(each.dimensions_s, each.bound_s),
                    times(each.links_s, each.bound_s),
                    times(each.synthesized_s, each.bound_s),
                    f"{each.gain:.2f} x",
                ]
                for each in found
            ],
            "Times over the bound, and what the synthesised schedule gains over the better textbook.",
        ),
        Figure(
            bars(
                [
                    BarGroup(
                        f"{each.network}, {each.condition}, {KINDS[each.kind]}",
                        [
                            Bar("textbook", each.textbook_s / each.bound_s),
                            Bar("synthesised", each.synthesized_s / each.bound_s),
                        ],
                    )
                    for each in found
                ],
                x=Axis("time over the bound", better="lower"),
                title="Collectives beside their bound",
            ),
            "alone",
            "The better textbook of the table, and the schedule that is synthesised for the links.",
        ),
        Text(said(found)),
    ]


def said(found: Sequence[Alone]) -> str:
    """Return what the table shows."""
    well = [each for each in found if each.condition == HEALTHY.name]
    ill = [each for each in found if each.condition != HEALTHY.name]
    able = [each for each in ill if each.network == MESH or each.dimensions_s is not None]
    most = max(able, key=lambda each: each.gain)
    behind = [each for each in found if each.gain < 1]
    valid = sum(each.valid for each in found)
    slower = ""
    if behind:
        worst = min(behind, key=lambda each: each.gain)
        slower = f""" On {len(behind)} of {len(found)} the textbook is faster, most on a {worst.network},
            {worst.condition}, {KINDS[worst.kind]}: by {100 * (1 / worst.gain - 1):.0f} %."""
    return f"""Where all links work, the textbook is at {span(each.textbook_s / each.bound_s for each in well)} times
        the bound and synthesis at {span(each.synthesized_s / each.bound_s for each in well)}: people who built such
        networks chose algorithms for them. With bad links the textbook is at
        {span(each.textbook_s / each.bound_s for each in ill)} times the bound, and synthesis at
        {span(each.synthesized_s / each.bound_s for each in ill)}. It gains most on a {most.network}, {most.condition},
        {KINDS[most.kind]}: {most.gain:.2f} x, not counting where no algorithm by dimension can run.{slower}
        {valid} of {len(found)} schedules pass the independent check and take the same nanoseconds in the event
        engine."""
