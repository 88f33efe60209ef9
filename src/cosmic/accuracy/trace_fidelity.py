"""How close traces come to others: what they hold, how they hang together, and how long they take to simulate.

The networks that time is compared on are no input of a model: it sees traces alone. `report_fidelity` compares a model
with a baseline, both at the length and the ranks of the job that the model is fitted on.

The baseline (`resample`) draws nodes one by one. Types follow each other as often as in the source; amounts are drawn column by column from all nodes of a type, and a
node depends on as many earlier nodes, any of them, as some node of the source does. All ranks run the same nodes; a
send goes along with the receive that it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isqrt
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from cosmic.base.errors import CosmicError
from cosmic.base.json_types import Share, unit
from cosmic.simulate.events.astra_sim_inputs import COLLECTIVES, Algorithm, AstraSimDimension, System
from cosmic.simulate.events.message_fabrics import SimulatedNetwork
from cosmic.simulate.events.simulation_job import Job
from cosmic.simulate.events.trace_simulation import simulate_job
from cosmic.traces.dependencies import dependencies_of, longest_chains, topological_order
from cosmic.traces.synthesis.rank_roles import Role, SourceJob
from cosmic.traces.synthesis.trace_model import TraceModel, synthesize
from cosmic.traces.trace import (
    ABSENT,
    CollectiveType,
    Ints,
    NodeType,
    RankTrace,
    Template,
    TraceSet,
    ranks_by_template,
    template_of,
)

Floats = npt.NDArray[np.float64]
Groups = Mapping[str, Sequence[int]]
PEAK_FLOP_PER_S, MEMORY_BYTES_PER_S = 400e12, 2e12
"""An accelerator, for traces that state work and no durations."""
SIZES = ("num_ops", "tensor_size", "comm_size", "duration_us")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fidelity:
    """Distances of traces from others: 0 is no difference, 1 the largest; ratios are 1 if there is none."""

    types: Share
    """Total variation between the shares of node types."""
    bigrams: Share
    """The same, of pairs of types that follow each other."""
    sizes: dict[str, float]
    """Kolmogorov-Smirnov distance of each amount that the others state, by column."""
    in_degrees: Annotated[float, unit("nodes")]
    """Wasserstein distance between the numbers of nodes that nodes depend on."""
    out_degrees: Annotated[float, unit("nodes")]
    """The same, of nodes that depend on them."""
    nodes: Annotated[float, unit("ratio")]
    """Ratio of nodes per rank."""
    critical_path: Annotated[float, unit("ratio")]
    """Ratio of the heaviest chains: seconds of compute, or nodes where there are none."""
    seconds: dict[str, float | None]
    """Relative error of the simulated time, by network; None where a simulation fails, or ranks are not as many."""


def measure_fidelity(
    synthetic: tuple[TraceSet, Groups], source: tuple[TraceSet, Groups], *, simulated: bool = True
) -> Fidelity:
    """Return how close *synthetic* comes to *source*, both with their groups."""
    synthetic_traces, source_traces = synthetic[0], source[0]
    return Fidelity(
        types=_variation(_shares(synthetic_traces, _type_codes), _shares(source_traces, _type_codes)),
        bigrams=_variation(_shares(synthetic_traces, _pair_codes), _shares(source_traces, _pair_codes)),
        sizes={
            name: kolmogorov_smirnov(*_values(synthetic_traces, name), *source_values)
            for name in SIZES
            if len((source_values := _values(source_traces, name))[0])
        },
        in_degrees=wasserstein(*_weighted(synthetic_traces, _in_degrees), *_weighted(source_traces, _in_degrees)),
        out_degrees=wasserstein(*_weighted(synthetic_traces, _out_degrees), *_weighted(source_traces, _out_degrees)),
        nodes=(synthetic_traces.nodes / len(synthetic_traces.ranks)) / (source_traces.nodes / len(source_traces.ranks)),
        critical_path=_critical_path(synthetic_traces) / _critical_path(source_traces),
        seconds=_errors(synthetic, source) if simulated else {},
    )


# ---- distances


def _variation(synthetic: Mapping[int, float], source: Mapping[int, float]) -> float:
    """Return the total variation of two distributions.

    >>> _variation({1: 0.5, 2: 0.5}, {1: 1.0})
    0.5
    """
    return sum(abs(synthetic.get(key, 0.0) - source.get(key, 0.0)) for key in {*synthetic, *source}) / 2


def kolmogorov_smirnov(first: Ints, weights: Floats, second: Ints, second_weights: Floats) -> float:
    """Return the largest difference of two distribution functions, of values with weights.

    >>> one = np.ones(2)
    >>> kolmogorov_smirnov(np.array([1, 2]), one, np.array([2, 3]), one)
    0.5
    """
    points = np.unique(np.concatenate([first, second]))
    return float(
        np.abs(_distribution(first, weights, points) - _distribution(second, second_weights, points)).max(initial=0.0)
    )


def wasserstein(first: Ints, weights: Floats, second: Ints, second_weights: Floats) -> float:
    """Return how far one distribution must be moved to become the other, on average.

    >>> one = np.ones(2)
    >>> wasserstein(np.array([1, 1]), one, np.array([1, 4]), one)
    1.5
    """
    points = np.unique(np.concatenate([first, second]))
    distance = np.abs(_distribution(first, weights, points) - _distribution(second, second_weights, points))
    return float((distance[:-1] * np.diff(points)).sum())


def _distribution(values: Ints, weights: Floats, points: Ints) -> Floats:
    order = np.argsort(values, kind="stable")
    sums = np.concatenate([[0.0], np.cumsum(weights[order])])
    return np.asarray(sums[np.searchsorted(values[order], points, side="right")] / max(sums[-1], 1e-300), np.float64)


def _weighted(traces: TraceSet, values_of: Callable[[Template], Ints]) -> tuple[Ints, Floats]:
    """Return numbers of all nodes, and how many ranks have each."""
    weighted = [(values_of(template), len(ranks)) for template, ranks in ranks_by_template(traces)]
    return np.concatenate([values for values, _ in weighted]), np.concatenate(
        [np.full(len(values), float(n)) for values, n in weighted]
    )


def _shares(traces: TraceSet, values_of: Callable[[Template], Ints]) -> dict[int, float]:
    values, weights = _weighted(traces, values_of)
    distinct, which = np.unique(values, return_inverse=True)
    shares = np.bincount(which, weights, minlength=len(distinct)) / max(weights.sum(), 1.0)
    return dict(zip(distinct.tolist(), shares.tolist(), strict=True))


def _type_codes(template: Template) -> Ints:
    return template.type


def _pair_codes(template: Template) -> Ints:
    return template.type[:-1] * (max(NodeType) + 1) + template.type[1:]


def _values(traces: TraceSet, name: str) -> tuple[Ints, Floats]:
    """Return the amounts that nodes state, with weights; durations are those of compute."""
    values, weights = _weighted(traces, lambda template: _stated(template, name))
    present = values != ABSENT
    return values[present], weights[present]


def _stated(template: Template, name: str) -> Ints:
    values: Ints = getattr(template, name)
    return (
        np.where((template.type == NodeType.COMP) & (values > 0), values, ABSENT) if name == "duration_us" else values
    )


def _in_degrees(template: Template) -> Ints:
    return np.diff(template.data_start) + np.diff(template.ctrl_start)


def _out_degrees(template: Template) -> Ints:
    return np.bincount(dependencies_of(template).within().row, minlength=template.nodes)


def _critical_path(traces: TraceSet) -> float:
    """Return the weight of the heaviest chain of any rank."""
    longest = 0.0
    for template in traces.templates():
        dependencies = dependencies_of(template).within()
        weight = _seconds(template)
        [rows] = longest_chains(dependencies, topological_order(dependencies), [weight])
        longest = max(longest, float(weight[rows].sum()))
    return longest


def _seconds(template: Template) -> Floats:
    """Return seconds of compute; 1 for each node where no node states work or a duration."""
    if (template.duration_us > 0).any():
        return np.where(template.type == NodeType.COMP, template.duration_us, 0) / 1e6
    work = np.maximum(
        np.maximum(template.num_ops, 0) / PEAK_FLOP_PER_S, np.maximum(template.tensor_size, 0) / MEMORY_BYTES_PER_S
    )
    return work if work.any() else np.ones(template.nodes)


# ---- simulated time


def comparison_networks(ranks: int) -> dict[str, SimulatedNetwork]:
    """Return three networks of *ranks* NPUs: a ring, a switch, and two dimensions where the number has two factors."""
    inner = next((divisor for divisor in range(isqrt(ranks), 1, -1) if ranks % divisor == 0), 1)
    networks = {
        "ring": (AstraSimDimension("Ring", ranks, 100.0, 500.0),),
        "switch": (AstraSimDimension("Switch", ranks, 40.0, 1000.0),),
        "2-D": (
            AstraSimDimension("FullyConnected", inner, 60.0, 300.0),
            AstraSimDimension("Ring", ranks // inner, 25.0, 800.0),
        ),
    }
    return {
        name: SimulatedNetwork(dims)
        for name, dims in networks.items()
        if ranks > 1 and min(dim.npus for dim in dims) > 1
    }


def _errors(synthetic: tuple[TraceSet, Groups], source: tuple[TraceSet, Groups]) -> dict[str, float | None]:
    """Return the relative errors of simulated times."""
    roofline = not any(
        (template.duration_us[template.type == NodeType.COMP] > 0).any() for template in source[0].templates()
    )
    errors: dict[str, float | None] = {}
    for name, network in comparison_networks(len(source[0].ranks)).items():
        times = [simulated_ns(*pair, network, roofline=roofline) for pair in (synthetic, source)]
        errors[name] = times[0] / times[1] - 1 if times[0] is not None and times[1] else None
    return errors


def simulated_ns(traces: TraceSet, groups: Groups, network: SimulatedNetwork, *, roofline: bool) -> int | None:
    """Return how long the slowest rank takes on a network; None where it cannot be simulated there."""
    if network.npus != len(traces.ranks):
        return None
    named = {name: tuple(members) for name, members in groups.items() if name not in ("", "0")}
    try:
        return int(
            simulate_job(Job(traces=traces, groups=named, system=_system(network, roofline), network=network)).cycles
        )
    except CosmicError:
        return None


def _system(network: SimulatedNetwork, roofline: bool) -> System:
    names = ["direct" if dim.topology == "FullyConnected" else "ring" for dim in network.dims]
    usual = tuple(Algorithm(name) for name in names)
    to_all = tuple(Algorithm("direct") for _ in network.dims)
    return System(
        peak_flop_per_s=PEAK_FLOP_PER_S,
        memory_bytes_per_s=MEMORY_BYTES_PER_S,
        roofline=roofline,
        splits=2,
        implementations={kind: to_all if kind == CollectiveType.ALL_TO_ALL else usual for kind in COLLECTIVES.values()},
    )


@dataclass(frozen=True, slots=True)
class FidelityReport:
    """Distances of traces that a model and a baseline make from those that the model is fitted on."""

    model: Fidelity
    """Of traces that the model makes."""
    baseline: Fidelity
    """Of nodes drawn one by one."""


def report_fidelity(model: TraceModel, seed: int = 0) -> FidelityReport:
    """Return how close a model and the baseline come to the job whose structure *seed* draws."""
    synthetic = synthesize(model, seed=seed)
    source = model.jobs[synthetic.job].source
    original = (source.traces, source.groups)
    return FidelityReport(
        measure_fidelity((synthetic.traces, synthetic.groups), original),
        measure_fidelity(resample(source, seed), original),
    )


def fidelity_rows(report: FidelityReport) -> list[tuple[str, float | None, float | None]]:
    """Return the distances by name, those of the model before those of the baseline."""
    return [
        (name, *values)
        for name, *values in zip(
            _distance_names(report.model), *map(_distance_values, (report.model, report.baseline)), strict=True
        )
    ]


def _distance_names(fidelity: Fidelity) -> list[str]:
    return [
        "types: total variation",
        "bigrams of types: total variation",
        *(f"{name}: Kolmogorov-Smirnov" for name in fidelity.sizes),
        "in-degrees: Wasserstein",
        "out-degrees: Wasserstein",
        "nodes: ratio",
        "critical path: ratio",
        *(f"simulated time, {name}: error" for name in fidelity.seconds),
    ]


def _distance_values(fidelity: Fidelity) -> list[float | None]:
    degrees = (fidelity.in_degrees, fidelity.out_degrees, fidelity.nodes, fidelity.critical_path)
    return [fidelity.types, fidelity.bigrams, *fidelity.sizes.values(), *degrees, *fidelity.seconds.values()]


DRAWN = ("num_ops", "tensor_size", "duration_us", "duration_ns", "on_cpu", "comm_priority", "involved_dims")
SEND, RECEIVE = NodeType.COMM_SEND, NodeType.COMM_RECV


def resample(source: SourceJob, seed: int = 0) -> tuple[TraceSet, dict[str, tuple[int, ...]]]:
    """Return traces of about the source's length, and their groups."""
    rng = np.random.default_rng([seed, 2])
    pool = _Pool(source, rng)
    # Groups of which all members have the same index: ranks of all roles can use them alike
    names_of_ranks = _group_names_of_ranks(source)
    slots = []
    for index in range(min(len(rank_names) for rank_names in names_of_ranks)):
        own = [rank_names[index] for rank_names in names_of_ranks]
        if all(own[member] == name for name in set(own) for member in source.groups[name]):
            slots.append(index)
    ranks = len(source.traces.ranks)
    length = round(source.traces.nodes / ranks)
    rows: list[dict[str, Any]] = []
    # Each type is drawn after the one before it; a receive comes with its send.
    most = max(NodeType) + 1
    begin, follow = np.zeros(most), np.zeros((most, most))
    for role in source.roles:
        node_type = role.template.type
        begin[node_type[0]] += len(role.ranks)
        np.add.at(
            follow, (node_type, np.roll(node_type, -1)), len(role.ranks)
        )  # the first follows the last: nothing is the end
    drawn = _draw(begin, rng)
    node_types = [drawn]
    while len(node_types) < length:
        drawn = _draw(follow[drawn], rng)
        node_types.append(drawn)
    for kind in [drawn_type for drawn_type in node_types if drawn_type != RECEIVE]:
        rows += pool.rows(kind, len(rows), len(slots), ranks)
    template = template_of(rows)
    names, groups = _number_groups(source, slots)
    away = _distance(source.roles)
    traces = tuple(
        RankTrace(template, names[rank], ((rank + away) % ranks, (rank - away) % ranks), rank) for rank in range(ranks)
    )
    return TraceSet(traces, where="baseline"), groups


def _draw(weights: npt.NDArray[np.float64], rng: np.random.Generator) -> int:
    return int(np.searchsorted(np.cumsum(weights), rng.random() * weights.sum(), side="right"))


class _Pool:
    """Columns of all nodes of the source, to draw from."""

    def __init__(self, source: SourceJob, rng: np.random.Generator) -> None:
        self._rng = rng
        templates = [role.template for role in source.roles]
        self._columns = {
            name: np.concatenate([getattr(template, name) for template in templates])
            for name in (*DRAWN, "type", "comm_type", "comm_size")
        }
        degrees = [np.diff(template.data_start) + np.diff(template.ctrl_start) for template in templates]
        self._degree = np.concatenate(degrees)
        self._rows = {kind: np.flatnonzero(self._columns["type"] == kind) for kind in NodeType}

    def _pick(self, kind: int, name: str) -> int:
        return int(self._columns[name][self._rng.choice(self._rows[NodeType(kind)])])

    def rows(self, kind: int, number: int, slots: int, ranks: int) -> list[dict[str, Any]]:
        """Return a node of a type, or a send and its receive."""
        row: dict[str, Any] = {name: self._pick(kind, name) for name in DRAWN}
        row |= {"id": number, "type": kind, "data": self._waits(number)}
        if kind == SEND and ranks > 1:
            size = self._pick(kind, "comm_size")
            send = row | {"peer": 0, "comm_tag": number, "comm_size": size}
            receive = {"id": number + 1, "type": int(RECEIVE), "data": self._waits(number)}
            return [send, receive | {"peer": 1, "comm_tag": number, "comm_size": size}]
        if kind == NodeType.COMM_COLL:
            row |= {name: self._pick(kind, name) for name in ("comm_type", "comm_size")}
            row["group"] = int(self._rng.integers(slots)) if slots else ABSENT
        return [row]

    def _waits(self, number: int) -> list[int]:
        count = min(number, int(self._rng.choice(self._degree)))
        return sorted(self._rng.choice(number, size=count, replace=False).tolist()) if count else []


def _group_names_of_ranks(source: SourceJob) -> list[tuple[str, ...]]:
    names_of_ranks: list[tuple[str, ...]] = [()] * len(source.traces.ranks)
    for role in source.roles:
        for rank, names in zip(role.ranks, role.groups, strict=True):
            names_of_ranks[rank] = names
    return names_of_ranks


def _number_groups(source: SourceJob, slots: Sequence[int]) -> tuple[list[tuple[str, ...]], dict[str, tuple[int, ...]]]:
    """Return the names of each rank's groups, and the groups, named by numbers from 1."""
    own = [tuple(names[slot] for slot in slots) for names in _group_names_of_ranks(source)]
    number = {
        name: str(index + 1)
        for index, name in enumerate(dict.fromkeys(group_name for names in own for group_name in names))
    }
    groups = {number[name]: source.groups[name] for name in number}
    return [tuple(number[name] for name in names) for names in own], groups


def _distance(roles: Sequence[Role]) -> int:
    """Return how far apart the ranks of a message are, in most of the source's messages."""
    for role in roles:
        used: Ints = role.template.peer[role.template.type == SEND]
        if len(used):
            values, counts = np.unique(used, return_counts=True)
            return int(role.peers[0][int(values[np.argmax(counts)])]) - role.ranks[0]
    return 1
