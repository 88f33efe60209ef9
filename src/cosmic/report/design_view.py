"""One design as a page shows it: metrics, breakdown of time and memory, cluster, roofline, timeline.

- Cluster: the placement of each parallel axis, and the load and links of each network dimension. Links are pairs of its
  members, for drawing: members count from 0, and from the number of NPUs on they are switches. Dimensions larger than
  `MOST_DRAWN_NPUS` have too many links to draw, and none is returned.
- Memory: what each tier holds, and what transfers between tiers cost.
- Roofline: operational intensity and achieved flop/s of the operators of a step.
- Timeline: packed, a byte or two for each property of a span.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import prod
from typing import Any

import numpy as np

from cosmic.design.design_batch import batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.design.loading import dump_design
from cosmic.design.network_layer import Link, Network
from cosmic.evaluation import evaluate
from cosmic.network.switch_tiers import tiers_of
from cosmic.network.topologies.dragonfly import Dragonfly
from cosmic.network.topologies.fat_tree import RADIX, FatTree
from cosmic.network.topologies.hybrid_cube_mesh import HybridCubeMesh
from cosmic.network.topologies.hypercube import Hypercube
from cosmic.network.topologies.mesh_2d import Mesh2D
from cosmic.network.topologies.mesh_3d import Mesh3D
from cosmic.network.topologies.torus_2d import Torus2D
from cosmic.network.topologies.torus_3d import Torus3D
from cosmic.report import serving_view
from cosmic.report.container import Binary, container_head, gzip_parts
from cosmic.report.document_types import (
    AxisRanks,
    Cluster,
    Design,
    DimensionLoad,
    Fact,
    MemoryPart,
    NetworkDimensionJson,
    Packed,
    ParallelAxis,
    Part,
    Role,
    Roofline,
    RooflinePoint,
    TierJson,
    TiersJson,
    TimelineCounter,
    TimelineFlows,
    TimelineJson,
    TimelineSpans,
)
from cosmic.report.launch_commands import is_gpu, launch_of
from cosmic.search.advice.design_advice import explain_bound
from cosmic.search.design_wording import bytes_text, metric_label, metric_text, share_text
from cosmic.search.objectives import MetricLimit
from cosmic.simulate.analytic_step import bounding_profile
from cosmic.simulate.metrics import OF_TOKENS, Infeasible, Metrics, Outcome
from cosmic.simulate.schedule_timeline import draw_design_timeline as scheduled_timeline
from cosmic.simulate.step_evaluation import expected_in_words
from cosmic.simulate.step_timeline import CLASSES, Counter, SpanClass, Timeline
from cosmic.simulate.step_timeline import Timeline as StepTimeline
from cosmic.step.bottleneck import (
    PART_TITLES,
    NetworkLoad,
    RooflineOperator,
    network_loads,
    roofline_operators,
    workload_peak_flop_per_s,
)
from cosmic.step.process_memory import format_probability, has_process
from cosmic.step.step_profile import StepProfile
from cosmic.step.tier_traffic import TOTAL_KEYS

MOST_DRAWN_NPUS = 64
LinkPair = tuple[int, int]


def drawn_links(topology: str, npus: int, listed: Iterable[Link] = ()) -> tuple[LinkPair, ...]:
    """Return the links of *npus* NPUs, each once; none where they are too many or the topology is not known.

    >>> drawn_links("ring", 4), drawn_links("switch", 3)
    (((0, 1), (0, 3), (1, 2), (2, 3)), ((0, 3), (1, 3), (2, 3)))
    """
    own = {(min(pair), max(pair)) for pair in ((link.source, link.target) for link in listed)}
    if own and npus <= MOST_DRAWN_NPUS and max(map(max, own)) < 2 * MOST_DRAWN_NPUS:
        return tuple(sorted(own))
    if npus > MOST_DRAWN_NPUS or topology not in LINKS_OF_TOPOLOGY:
        return ()
    return tuple(sorted({(min(pair), max(pair)) for pair in LINKS_OF_TOPOLOGY[topology](npus)}))


def _ring_links(npus: int) -> Iterator[LinkPair]:
    yield from _line_links(npus)
    if npus > 2:
        yield 0, npus - 1


def _line_links(npus: int) -> Iterator[LinkPair]:
    yield from ((index, index + 1) for index in range(npus - 1))


def _all_links(npus: int) -> Iterator[LinkPair]:
    yield from combinations(range(npus), 2)


def _grid_links(
    split: Callable[[int], tuple[int, ...]], side: Callable[[int], Iterator[LinkPair]]
) -> Callable[[int], Iterator[LinkPair]]:
    """Return the links of a grid: those of *side* along each of its sides, the first side innermost."""

    def wired(npus: int) -> Iterator[LinkPair]:
        sides = split(npus)
        for axis, length in enumerate(sides):
            step = prod(sides[:axis])
            for start in range(npus):
                if start // step % length == 0:
                    yield from ((start + source * step, start + target * step) for source, target in side(length))

    return wired


def _switch_links(npus: int) -> Iterator[LinkPair]:
    yield from ((index, npus) for index in range(npus))


def _fat_tree_links(npus: int) -> Iterator[LinkPair]:
    """Yield NPUs on leaf switches below one spine; a single switch if it has enough ports. A line is several links."""
    if FatTree.levels(npus) == 1:
        yield from _switch_links(npus)
        return
    leaves = -(-npus // (RADIX // 2))
    yield from ((index, npus + index // (RADIX // 2)) for index in range(npus))
    yield from ((npus + leaf, npus + leaves) for leaf in range(leaves))


def _dragonfly_links(npus: int) -> Iterator[LinkPair]:
    """Yield NPUs on routers, all links between routers of a group, and one between every two groups."""
    h = int(Dragonfly.per_router(npus))
    routers = -(-npus // h)
    yield from ((index, npus + index // h) for index in range(npus))
    for source, target in combinations(range(routers), 2):
        if source // (2 * h) == target // (2 * h):
            yield npus + source, npus + target
    groups = -(-routers // (2 * h))
    for source, target in combinations(range(groups), 2):
        ends = (source * 2 * h + (target - 1) // h, target * 2 * h + source // h)
        yield npus + min(ends[0], routers - 1), npus + min(ends[1], routers - 1)


LINKS_OF_TOPOLOGY: dict[str, Callable[[int], Iterator[LinkPair]]] = {
    "ring": _ring_links,
    "fully_connected": _all_links,
    "switch": _switch_links,
    "mesh_2d": _grid_links(Mesh2D.split, _line_links),
    "mesh_3d": _grid_links(Mesh3D.split, _line_links),
    "torus_2d": _grid_links(Torus2D.split, _ring_links),
    "torus_3d": _grid_links(Torus3D.split, _ring_links),
    "hypercube": _grid_links(Hypercube.split, _all_links),
    "hybrid_cube_mesh": _grid_links(HybridCubeMesh.split, _all_links),
    "fat_tree": _fat_tree_links,
    "dragonfly": _dragonfly_links,
}


AXIS_NAMES = {
    "tp": "tensor parallel",
    "cp": "context parallel",
    "dp": "data parallel",
    "pp": "pipeline parallel",
    "ep": "expert parallel",
}
AXIS_OF_COMPONENT = {"weights": "dp"}
"""Components of a step whose axis has another name."""


def cluster_of(profile: StepProfile, step_s: float) -> Cluster | None:
    """Return where a design lies on its network; None for a single accelerator, which has none.

    *profile* is that of the stage that bounds the step.
    """
    point = profile.batch.base
    if not point.network.dims:
        return None
    sent = network_loads(profile)
    dims = [_dimension_json(profile, index, sent, step_s) for index in range(len(point.network.dims))]
    axes = axes_of(point)
    return Cluster(
        npus=point.network.npus,
        accelerator=point.compute.accelerator,
        axes=axes,
        dims=dims,
        reading=_describe_cluster(axes, dims),
    )


def axes_of(point: DesignPoint) -> list[ParallelAxis]:
    """Return the axes with more than one rank, innermost first; ep, which splits the ranks of others, last."""
    names = [*point.workload.placement, "ep"]
    sizes = {name: getattr(point.workload, name) for name in names}
    return [ParallelAxis(name=name, label=AXIS_NAMES[name], size=sizes[name]) for name in names if sizes[name] > 1]


def _dimension_json(
    profile: StepProfile, index: int, sent: tuple[NetworkLoad, ...], step_s: float
) -> NetworkDimensionJson:
    point, shapes = profile.batch.base, profile.network.shapes
    dim = point.network.dims[index]
    own = [load for load in sent if load.dimension == index]
    names = [name for name in (*point.workload.placement, "ep") if name in shapes]
    ranks_by_axis = [(name, float(shapes[name][index].members)) for name in names]
    total = sum(load.bytes for load in own)
    uplinks = [sum(tier) for tier in zip(*(load.uplinks for load in own), strict=True)] or [0.0]
    return NetworkDimensionJson(
        topology=dim.topology,
        label=_dimension_label(point.network, index),
        npus=dim.npus,
        bandwidth_bytes_per_s=dim.bandwidth_bytes_per_s,
        latency_s=dim.latency_s,
        algorithm=point.collective.algorithms[index],
        axes=[AxisRanks(name, ranks) for name, ranks in ranks_by_axis if ranks > 1],
        load=[
            DimensionLoad(
                axis=AXIS_OF_COMPONENT.get(load.part, load.part),
                label=PART_TITLES[load.part],
                bytes=load.bytes,
                seconds=load.seconds,
            )
            for load in sorted(own, key=lambda load: -load.bytes)
        ],
        utilization=min(1.0, max(total * dim.blocking, *uplinks) / (dim.bandwidth_bytes_per_s * step_s)),
        links=list(drawn_links(dim.topology, dim.npus, dim.links)),
    )


def _dimension_label(network: Network, index: int) -> str:
    """Return what a dimension is called, with what sets it apart from its topology."""
    dim, faults = network.dims[index], [fault for fault in network.faults if fault.dim == index]
    name = f"{dim.topology.replace('_', ' ')} of {dim.npus}"
    listed = f", {len(dim.links):,} links" if dim.links else ""
    listed += "".join(
        f", {tier.oversubscription:g}:1 out of {tier.npus}"
        for tier in tiers_of(network.dims, index)
        if tier.oversubscription > 1 and tier.npus < dim.npus
    )
    broken = sum(fault.speed == 0 for fault in faults)
    faults_text = [f"{count} {word}" for count, word in ((broken, "broken"), (len(faults) - broken, "slow")) if count]
    return f"{name}{listed}{', faults: ' + ' and '.join(faults_text) if faults_text else ''}"


def _describe_cluster(axes: list[ParallelAxis], dims: list[NetworkDimensionJson]) -> str:
    """Return a sentence with the placement of the axes, and the busiest network dimension."""
    if not axes:
        return "A single accelerator: nothing is sharded."
    lies = []
    for axis in axes:
        name = axis.name
        places = [str(index + 1) for index, dim in enumerate(dims) if any(each.name == name for each in dim.axes)]
        if places:
            word = "dimension" if len(places) == 1 else "dimensions"
            lies.append(f"{name} {axis.size} in network {word} {' and '.join(places)}")
    hardest = max(range(len(dims)), key=lambda place: dims[place].utilization)
    used = share_text(dims[hardest].utilization)
    return f"{'; '.join(lies)}. Dimension {hardest + 1} is the busiest: {used} of its bandwidth over the step."


MEMORY_LABELS = {
    "weights": "weights",
    "gradients": "gradients",
    "optimizer": "optimizer states",
    "activations": "activations",
    "loss": "logits and loss",
    "buffers": "communication buffers",
    "kv_cache": "KV cache",
    "fragmentation": "gaps of the allocator",
    "cached": "cached by the allocator",
    "context": "context and libraries",
    "communicators": "communicators",
}


def memory_part(name: str, held: float) -> MemoryPart:
    """Return a component of memory with its label."""
    return MemoryPart(name=name, label=MEMORY_LABELS.get(name, name.replace("_", " ")), bytes=held)


def memory_tiers_of(metrics: Metrics) -> TiersJson | None:
    """Return what each tier holds of a design's state; None where all of it is in HBM."""
    if len(metrics.memory_tiers) < 2:
        return None
    return TiersJson(
        sentence=_describe_tiers(metrics),
        exposed_s=metrics.breakdown.get("offload", 0.0),
        rows=[
            TierJson(
                name=name,
                capacity_bytes=memory_tier["capacity_bytes"],
                used_bytes=memory_tier["used_bytes"],
                traffic_bytes=memory_tier["traffic_bytes"],
                parts=[
                    memory_part(key, size) for key, size in memory_tier.items() if key not in TOTAL_KEYS and size > 0
                ],
            )
            for name, memory_tier in metrics.memory_tiers.items()
        ],
    )


def _describe_tiers(metrics: Metrics) -> str:
    exposed = metrics.breakdown.get("offload", 0.0)
    if not any(memory_tier["traffic_bytes"] for memory_tier in metrics.memory_tiers.values()):
        return "Nothing is copied between tiers."
    if not exposed:
        return "Compute hides all transfers between tiers."
    return f"Compute waits {share_text(exposed / metrics.step_s)} of the step for transfers between tiers."


MOST_ROOFLINE_POINTS = 24
"""Operators with a point of their own; all others share one."""
OTHER_OPERATORS = "all others"


def roofline_of(profile: StepProfile) -> Roofline:
    """Return the roofline of the stage that bounds the step: operators that take longest first."""
    point = profile.batch.base
    operators = sorted(roofline_operators(profile), key=lambda each: -each.seconds)
    shown, rest = operators[:MOST_ROOFLINE_POINTS], operators[MOST_ROOFLINE_POINTS:]
    if rest:
        sums = (sum(getattr(each, name) for each in rest) for name in ("flop", "bytes", "seconds"))
        shown = [*shown, RooflineOperator(f"{OTHER_OPERATORS} ({len(rest)})", "", *sums)]
    peak, bandwidth = workload_peak_flop_per_s(point), point.memory.bandwidth_bytes_per_s
    points = [_roofline_point(each, peak / bandwidth) for each in shown]
    return Roofline(
        precision=point.workload.precision,
        peak_flop_per_s=peak,
        bandwidth_bytes_per_s=bandwidth,
        points=points,
        reading=_describe_roofline(points),
    )


def _roofline_point(work: RooflineOperator, ridge: float) -> RooflinePoint:
    return RooflinePoint(
        name=work.name,
        intensity=work.intensity,
        flop_per_s=work.flop / work.seconds,
        seconds=work.seconds,
        bound="compute" if work.intensity >= ridge else "memory",
    )


def _describe_roofline(points: list[RooflinePoint]) -> str:
    total = sum(point.seconds for point in points)
    if not total:
        return "The step has no operators."
    memory = sum(point.seconds for point in points if point.bound == "memory")
    return (
        f"Each point is an operator with all its runs in a step. {share_text(memory / total)} of the operators' time is"
        " memory-bound, left of the ridge; the rest is compute-bound."
    )


def pack_timeline(timeline: StepTimeline, binary: Binary) -> TimelineJson:
    """Return a timeline with its numbers added to *binary*; times are codes into the distinct ones."""
    spans, flows = timeline.spans, timeline.flows
    gaps = _gaps_between_spans(spans.track, spans.start_ns, spans.duration_ns)
    waits = [np.diff(counter.times_ns, prepend=0) for counter in timeline.counters]
    times, codes = np.unique(np.concatenate([gaps, spans.duration_ns, *waits]), return_inverse=True)
    count = len(gaps)
    gap, duration, *samples = np.split(codes, np.cumsum([count, count, *map(len, waits)])[:-1])
    return TimelineJson(
        engine=timeline.engine,
        duration_s=timeline.duration_s,
        processes=timeline.processes,
        tracks=timeline.tracks,
        names=list(timeline.names),
        classes=list(CLASSES),
        spans=TimelineSpans(
            count=count,
            track=binary.add_codes(spans.track, len(timeline.tracks)),
            name=binary.add_codes(spans.name, len(timeline.names)),
            colour=binary.add_codes(spans.kind, len(CLASSES)),
            gap=binary.add_codes(gap, len(times)),
            duration=binary.add_codes(duration, len(times)),
            critical=binary.add_codes(spans.critical, 2),
        ),
        seconds=(times / 1e9).tolist(),
        flows=TimelineFlows(
            count=len(flows.source),
            source=binary.add_codes(flows.source, count),
            target=binary.add_codes(flows.target, count),
        ),
        counters=[
            _pack_counter(counter, binary.add_codes(since, len(times)), binary)
            for counter, since in zip(timeline.counters, samples, strict=True)
        ],
        totals=timeline.totals,
        reading=timeline.reading,
    )


def timeline_bytes(timeline: StepTimeline) -> int:
    """Return the bytes that a timeline takes in a page, gzipped."""
    binary = Binary()
    return len(gzip_parts([container_head(pack_timeline(timeline, binary)), *binary.planes]))


def _gaps_between_spans(track: Any, start: Any, duration: Any) -> Any:
    """Return the time between each span and the one before it on its track; negative where they overlap."""
    if not len(start):
        return np.zeros(0, dtype=np.int64)
    ends = start + duration
    before = np.concatenate([[0], ends[:-1]])
    first = np.concatenate([[True], track[1:] != track[:-1]])
    return start - np.where(first, 0, before)


def _pack_counter(counter: Counter, times: Packed, binary: Binary) -> TimelineCounter:
    """Return a counter: *times* are codes of the time since the last sample, values are codes into its levels."""
    levels, codes = np.unique(counter.values, return_inverse=True)
    return TimelineCounter(
        process=counter.process,
        name=counter.name,
        unit=counter.unit,
        most=counter.most,
        times=times,
        values=binary.add_codes(codes, len(levels)),
        levels=levels.tolist(),
    )


COMPONENT_CLASSES: dict[str, SpanClass] = {
    "gemm": "compute",
    "attention": "compute",
    "other": "compute",
    "recompute": "compute",
    "compute": "compute",
    "launch": "idle",
    "bubble": "idle",
    "idle": "idle",
    "optimizer": "optimizer",
    "offload": "memory",
    "engine": "other",
}
"""The colour class of a component of a step; components that are not listed are exposed communication."""
FACT_METRICS = (
    "step_s",
    "ttft_s",
    "tpot_s",
    "tokens_per_s",
    "samples_per_s",
    "mfu",
    "hfu",
    "cost_usd",
    "network_usd",
    "power_w",
    "energy_j",
    "goodput",
    "effective_tokens_per_s",
    "train_days",
    "train_usd",
    "train_energy_j",
    "train_co2_kg",
    "perf_per_bandwidth",
    "perf_per_network_cost",
)


@dataclass(frozen=True, slots=True)
class NamedDesign:
    """A design with its label and role in a report."""

    label: str
    role: Role
    point: DesignPoint
    trial: int | None = None
    file: str = ""
    """Its YAML file, if there is one."""


def design_of(named: NamedDesign, engine: str, binary: Binary, limits: Sequence[MetricLimit] = ()) -> Design:
    """Return a design for a page, evaluated by *engine*, with its cluster, roofline and timeline."""
    document = design_without_timeline(named, engine, limits)
    if not document.feasible:
        return document
    timeline = pack_timeline(timeline_of(named.point, engine), binary)
    return replace(document, launch=launch_of(named.point, file_of(named)), timeline=timeline)


def design_without_timeline(named: NamedDesign, engine: str, limits: Sequence[MetricLimit] = ()) -> Design:
    """Return a design for a page without a timeline, which takes most of the bytes.

    *limits* are those of the search: a design that serves requests says whether it holds those on latencies.
    """
    point = named.point
    outcome: Outcome = evaluate(point, engine)
    document = Design(
        label=named.label,
        role=named.role,
        trial=named.trial,
        identity=point.identity,
        yaml=dump_design(point),
        command=evaluation_command(named, engine),
        capacity_bytes=point.memory.left_bytes,
        reasons=outcome.reasons if isinstance(outcome, Infeasible) else (),
    )
    if isinstance(outcome, Infeasible):
        return document
    profile = bounding_profile(batch_of(decode_or_own_step(point)))
    return replace(
        document,
        feasible=True,
        step_s=outcome.step_s,
        step_s_range=(outcome.step_s_range.p05, outcome.step_s_range.p95),
        facts=design_facts(point, outcome, limits, engine),
        parts=parts_of(outcome),
        memory=memory_of(outcome),
        tiers=memory_tiers_of(outcome),
        bound=explain_bound(point, outcome),
        cluster=cluster_of(profile, outcome.step_s),
        roofline=roofline_of(profile),
        launch=launch_of(point, file_of(named)) if named.role == "best" else None,
        serving=None if point.serving is None else serving_view.serving_part(point, limits, engine),
    )


def decode_or_own_step(point: DesignPoint) -> DesignPoint:
    """Return the step that a design is shown by: itself, or a decode step under its load."""
    return point if point.serving is None else serving_view.decode_point(point)


def evaluation_command(named: NamedDesign, engine: str) -> str:
    """Return a command that evaluates a design from its YAML file."""
    return f"cosmic evaluate {shlex.quote(file_of(named))}{'' if engine == 'analytic' else f' --engine {engine}'}"


def file_of(named: NamedDesign) -> str:
    """Return the YAML file of a design, or the name under which to save it."""
    return named.file or re.sub(r"[^a-z0-9]+", "-", named.label.lower()).strip("-") + ".yaml"


def design_facts(
    point: DesignPoint, metrics: Metrics, limits: Sequence[MetricLimit] = (), engine: str = "analytic"
) -> list[Fact]:
    """Return the metrics of a design as facts; of one that serves requests, in words of serving."""
    if point.serving is not None:
        return serving_view.serving_facts(point, metrics, limits, engine)
    off = expected_in_words(metrics)
    notes = {"step_s": off, "cost_usd": "to buy", "power_w": "at the meter, all busy", "energy_j": "by use"}
    facts: list[Fact] = []
    absent = OF_TOKENS if metrics.counted == "samples" else ()
    for name in FACT_METRICS:
        value, unknown = getattr(metrics, name), metrics.unknown.get(name)
        if value is not None or (unknown and name not in absent):
            text, note = ("unknown", unknown) if unknown else (metric_text(name, value), notes.get(name, ""))
            facts.append(Fact(metric_label(name), text, value, note))
        if name == "samples_per_s":  # after tokens, or in their place
            facts.append(rate_per_accelerator(point, metrics))
    room = f"of {bytes_text(point.memory.left_bytes)} on each accelerator"
    if has_process(point) and metrics.fits is not None:
        room += f", fits with {format_probability(metrics.fits)}"
    per_unit = f"cost_usd_per_{metrics.counted.removesuffix('s')}"
    cost = serving_view.per_million_fact("cost", metrics.counted, metrics, per_unit, "to own and run")
    return [*facts, Fact("memory", bytes_text(metrics.memory_used_bytes), metrics.memory_used_bytes, room), cost]


def rate_per_accelerator(point: DesignPoint, metrics: Metrics) -> Fact:
    """Return the throughput of each accelerator: what machines of different sizes are compared by."""
    label = f"{metrics.counted}/s/{'GPU' if is_gpu(point) else 'NPU'}"
    return serving_view.count_fact(label, metrics.throughput_per_s / point.network.npus)


def parts_of(metrics: Metrics) -> list[Part]:
    """Return the components of a step with their seconds, which add up to the step."""
    return [
        Part(
            name=name, label=PART_TITLES.get(name, name), colour=COMPONENT_CLASSES.get(name, "exposed"), seconds=seconds
        )
        for name, seconds in metrics.breakdown.items()
        if seconds > 0
    ]


def memory_of(metrics: Metrics) -> list[MemoryPart]:
    """Return the components of the peak memory of the accelerator that needs most."""
    return [memory_part(name, held) for name, held in metrics.memory.items() if held > 0]


def timeline_of(point: DesignPoint, engine: str) -> Timeline:
    """Return the timeline of a step of a feasible design: scheduled in closed form, or simulated."""
    if engine == "analytic" or point.serving is not None:
        return scheduled_timeline(decode_or_own_step(point))
    from cosmic.simulate.events.design_simulation import simulate_design  # noqa: PLC0415  only this engine needs it
    from cosmic.simulate.events.simulation_timeline import timeline_of_result  # noqa: PLC0415

    return timeline_of_result(simulate_design(point))
