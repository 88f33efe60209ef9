"""From a design to execution traces: what every rank computes, sends and receives in one step.

    design ── plan, schedule ──▶ blocks as steps ──▶ tapes, one for each task ──▶ a template for each stage ──▶ ranks

The graph is made of the quantities that the analytic engine adds up; `StepTraces.seconds` holds, for each node, what
that engine charges for it. Simulated, it takes about as long as the engine says if what compute waits for and what
hides do not hold each other up, as closed forms take for granted: `comm_priority` is 1 for the former and 0 for the
latter, and a simulator gives each its slot. With one slot for both, a transfer that hides delays what is waited for.

What compute waits for is chained; what hides is free. A trace shows one step out of many: where a collective may run
on into the next step, it is the one of the step before that is seen, at the start (`previous.…`). Decoding is one round
of the pipeline, which every stage enters at its own place.

Ranks on the mesh. The first axis of the placement varies fastest: rank = a0 + n0 (a1 + n1 (a2 + …)), as in a network
whose dimension 0 is the innermost. Experts count the ranks of a pipeline stage through, tp first, then the other axes
in the order of the placement, and split this count into etp, ep and edp, etp fastest.

Traffic with outer tiers of memory is stated in the plan of the traces, with the closed form's seconds of each transfer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np

from cosmic.base.errors import SpecError, require
from cosmic.base.numeric import Numeric, sum_of
from cosmic.design.design_batch import batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.design.program_model import ProgramCut, ProgramModel
from cosmic.design.workload_layer import AXES, Workload
from cosmic.network.mesh_spans import axis_strides
from cosmic.simulate.stage_traces import (
    PERMUTE,
    ComputeRun,
    Floats,
    Layer,
    PassPace,
    Piece,
    StageTrace,
    TierTransfers,
    TracePlan,
    collectives_of,
    cut_into_pieces,
    iterate_turns,
    sent_between_stages,
)
from cosmic.step.block_memory import table_use
from cosmic.step.communication import BLOCKING
from cosmic.step.stage_time import StageTime, part_times
from cosmic.step.step_profile import StepProfile, bounding_stages, profile_step
from cosmic.step.step_profile import profile_step as profile_of
from cosmic.step.tier_traffic import TierTraffic, tier_traffic
from cosmic.traces.trace import Ints, RankTrace, Template, TraceSet
from cosmic.workload.block_plans import plan_of
from cosmic.workload.mapping_rules import invalid_reasons
from cosmic.workload.mesh_sizes import INSIDE, OUTSIDE, folded_order, layers_of_parts
from cosmic.workload.operator_graph import PASSES
from cosmic.workload.pipeline_schedule import PipelineTask, schedules

# ---- Ranks on the mesh: their coordinates, groups and neighbours

EXPERT_PARTS = ("tep", "oep")
"""The parts of ep inside and outside tp."""
EXPERT_AXES = ("etp", *EXPERT_PARTS, "edp")


@dataclass(frozen=True)
class PlacementMesh:
    """The mesh coordinates of all ranks."""

    workload: Workload
    islands: int = 1
    """Parts that the outermost network dimension joins."""
    cuts: tuple[ProgramCut, ...] = ()
    """Axes that are cut into sub-axes."""

    @cached_property
    def ranks(self) -> Ints:
        """Every rank."""
        return np.arange(self.workload.ranks, dtype=np.int64)

    @cached_property
    def _sizes(self) -> dict[str, int]:
        sizes: dict[str, int] = {axis: int(getattr(self.workload, axis)) for axis in AXES}
        inside = max(1, sizes["dp"] // self.islands)
        sizes |= {INSIDE["dp"]: inside, OUTSIDE["dp"]: sizes["dp"] // inside}
        return sizes | {name: size for cut in self.cuts for name, size in cut.sizes.items()}

    @cached_property
    def _strides(self) -> dict[str, int]:
        strides: dict[str, int] = {**axis_strides(self.workload.placement, {axis: self._sizes[axis] for axis in AXES})}
        strides |= {INSIDE["dp"]: strides["dp"], OUTSIDE["dp"]: strides["dp"] * self._sizes[INSIDE["dp"]]}
        for cut in self.cuts:
            apart = strides[cut.axis]
            # The last part of a cut axis varies fastest.
            for name, size in reversed(cut.sizes.items()):
                strides[name], apart = apart, apart * size
        return strides

    def along(self, axis: str) -> Ints:
        """Return the coordinate of each rank along an axis."""
        return self.ranks // self._strides[axis] % self._sizes[axis]

    def beside(self, axes: Sequence[str], steps: int) -> Ints:
        """Return, for each rank, the rank *steps* further along some axes, the first of them fastest, cyclically."""
        sizes = [self._sizes[axis] for axis in axes]
        coordinate, inside = np.zeros_like(self.ranks), 1
        for axis, size in zip(axes, sizes, strict=True):
            coordinate, inside = coordinate + inside * self.along(axis), inside * size
        target, moved, rest = (coordinate + steps) % inside, self.ranks, inside
        for axis, size in zip(reversed(axes), reversed(sizes), strict=True):
            rest //= size
            moved = moved + (target // rest % size - self.along(axis)) * self._strides[axis]
        return moved

    def keys(self, axes: Iterable[str]) -> Ints:
        """Return a number for each rank, equal for ranks that differ along *axes* only.

        The axes are those of dense layers, or those of experts.
        """
        wanted = {part for axis in axes for part in (EXPERT_PARTS if axis == "ep" else (axis,))}
        experts = wanted & {*EXPERT_AXES, "iedp", "oedp"}
        mesh: dict[str, Ints] = dict(self._experts) if experts else {axis: self.along(axis) for axis in AXES}
        for cut in self.cuts:
            if not wanted.isdisjoint(cut.sizes):
                mesh = {axis: column for axis, column in mesh.items() if axis != cut.axis}
                mesh |= {name: self.along(name) for name in cut.sizes}
        uncut = "edp" if experts else "dp"
        if not wanted.isdisjoint({INSIDE[uncut], OUTSIDE[uncut]}):
            coordinate = mesh.pop(uncut)
            within = max(1, (int(coordinate.max()) + 1) // self.islands)
            mesh |= {INSIDE[uncut]: coordinate % within, OUTSIDE[uncut]: coordinate // within}
        key = np.zeros_like(self.ranks)
        for axis, column in mesh.items():
            if axis not in wanted:
                key = key * (int(column.max()) + 1) + column
        return key

    @cached_property
    def _experts(self) -> dict[str, Ints]:
        """The coordinates of each rank on the mesh of experts; ep is two of them, inside and outside tp."""
        workload = self.workload
        count, inside = np.zeros_like(self.ranks), 1
        for axis in folded_order(workload.placement):
            count = count + inside * self.along(axis)
            inside *= int(getattr(workload, axis))
        etp = workload.expert_tensor
        ep = count // etp % workload.ep
        within = max(1, workload.tp // etp)
        coordinates = {"etp": count % etp, "tep": ep % within, "oep": ep // within, "edp": count // (etp * workload.ep)}
        return {**coordinates, "pp": self.along("pp")}


def name_groups(
    mesh: PlacementMesh, kinds: Sequence[tuple[str, ...]]
) -> tuple[dict[str, tuple[int, ...]], list[list[str]]]:
    """Return the communicator groups along each of *kinds*, numbered from 1, and each rank's group of each kind."""
    groups: dict[str, tuple[int, ...]] = {}
    names: list[list[str]] = []
    for axes in kinds:
        _, group_of = np.unique(mesh.keys(axes), return_inverse=True)
        order = np.argsort(group_of, kind="stable")
        bounds = np.cumsum(np.bincount(group_of))[:-1]
        first = len(groups) + 1
        members = [tuple(group.tolist()) for group in np.split(order, bounds)]
        groups |= {str(first + index): ranks for index, ranks in enumerate(members)}
        labels = [str(first + index) for index in range(len(members))]
        names.append([labels[copy_index] for copy_index in group_of.tolist()])
    return groups, names


# ---- Traffic with outer tiers of memory, as a plan of traces states it: the closed form's seconds of each transfer


def plan_outer_memory(profile: StepProfile, parts: Sequence[Sequence[Layer]], passes: int) -> dict[str, Any]:
    """Return the fields of a plan that say what travels between accelerators and outer tiers.

    State that is placed comes a layer ahead, or, like what is offloaded, anywhere in the step: then each of so many
    *passes* of a stage has a part of it, for which the update alone waits.
    """
    traffic = tier_traffic(profile.batch)
    if traffic is None:
        # Whole kinds of state are offloaded.
        offloads = bool(profile.batch.base.workload.offload)
        state_share = float(profile.memory.update_share) if offloads else 0.0
        tier_bytes = [float(moved) for moved in profile.memory.tier_traffic] if offloads else []
        whole_s = float(profile.network.offload_seconds(tier_bytes))
        return {
            "offloaded": (whole_s * (1 - state_share) / passes, sum(tier_bytes) * (1 - state_share) / passes),
            "offloaded_states": (whole_s * state_share, sum(tier_bytes) * state_share),
        }
    update = traffic.update
    states = float(max(update.links_s, update.processor_s))
    plan: dict[str, Any] = {
        "offloaded_states": (states, float(next(iter(update.links), 0.0))),
        "follows": profile.batch.base.workload.task == "decode",
    }
    if not traffic.ahead:
        stages = [profile_of(profile.batch, stage).counts for stage in bounding_stages(profile.batch)]
        passes_s, size = max(
            (float(traffic.passes_s(counts)), _nearest_link_bytes(traffic, counts)) for counts in stages
        )
        return plan | {"offloaded": (passes_s / passes, size / passes)}
    gradients = float(traffic.gradients_out_s), float(sum(update.gradient_links))
    blocks = {layer.label: layer.piece.name for part in parts for layer in part}
    outer = {
        phase: {label: _moved_by_phase(traffic, name, phase) for label, name in blocks.items()}
        for phase in traffic.passes
    }
    resident = profile.batch.base.memory.resident_layers
    return plan | {"outer": outer, "resident": resident, "gradients_out": gradients}


def _nearest_link_bytes(traffic: TierTraffic, counts: Mapping[str, Numeric]) -> float:
    """Return the bytes that cross the nearest link in all passes of a stage."""
    passes = ((name, count, phase) for name, count in counts.items() for phase in traffic.passes)
    blocks = (count * next(iter(traffic.block(name, phase)), 0.0) for name, count, phase in passes)
    return float(traffic.count * sum_of(blocks, 0.0) + next(iter(traffic.update.gradient_links), 0.0))


def _moved_by_phase(traffic: TierTraffic, name: str, phase: str) -> TierTransfers:
    near = [float(next(iter(links), 0.0)) for links in (traffic.loads(name, phase), traffic.stores(name, phase))]
    shards = {*traffic.placed.sizes}.isdisjoint(("activations", "kv_cache"))  # gradients leave, none comes
    return TierTransfers(
        float(traffic.load_s(name, phase)), near[0], float(traffic.store_s(name, phase)), near[1], shards
    )


MOST_RANKS = 2**20
"""Most ranks that are traced or simulated."""
MOST_NODES = 20_000_000
"""Most nodes of one rank of each pipeline stage: as many take about a minute, and several GB of memory."""
ADVICE_IF_LARGE = "choose fewer model.layers, or fewer microbatches (workload.global_batch over dp × micro_batch)"


@dataclass(frozen=True, slots=True, eq=False)
class StepTraces:
    """One step of a design, ready to be simulated or written to files."""

    point: DesignPoint
    traces: TraceSet
    groups: dict[str, tuple[int, ...]]
    """The ranks of each communicator group, by its name: numbers from 1."""
    seconds: Mapping[int, Floats]
    """By the `id` of a template: what each of its nodes takes when nothing is in its way; 0 for receives."""

    def seconds_of(self, template: Template) -> Floats:
        """Return how long each node of a template takes when nothing is in its way, as the analytic engine charges it.

        Compute, collectives, sends and traffic with outer memory tiers; a receive takes as long as its send.
        """
        return self.seconds[id(template)]


def generate_traces(point: DesignPoint) -> StepTraces:
    """Return the traces of one step of *point*, and the communicator groups that they name."""
    batch = batch_of(point)
    if reasons := invalid_reasons(batch):
        raise SpecError("design", point.identity, reasons[0])
    rank_count = point.workload.ranks
    require(rank_count <= MOST_RANKS, "ranks", rank_count, f"at most {MOST_RANKS:,} are traced: choose fewer NPUs")
    step = profile_step(batch)
    pieces = cut_into_pieces(step)
    nodes = estimated_nodes(pieces, int(step.microbatches))
    require(nodes <= MOST_NODES, "trace nodes", nodes, f"at most {MOST_NODES:,} are generated: {ADVICE_IF_LARGE}")
    plan = _plan_traces(step, pieces)
    stages = [StageTrace(plan, stage).write(*_tasks_of_stage(plan, point, stage)) for stage in range(plan.stages)]
    cuts = point.model.cuts if isinstance(point.model, ProgramModel) else ()
    mesh = PlacementMesh(point.workload, point.network.dims[-1].npus if point.network.dims else 1, cuts)
    groups, names = name_groups(mesh, plan.groups)
    beside = (("pp",), ("cp",), *plan.permuted)
    sides = [mesh.beside(axes, steps) for axes in beside for steps in (1, -1)]
    peers = list(zip(*(side.tolist() for side in sides), strict=True))
    own = list(zip(*names, strict=True)) if names else [()] * len(peers)
    ranks = tuple(
        RankTrace(stages[stage][0], own[rank], peers[rank], rank)
        for rank, stage in enumerate(mesh.along("pp").tolist())
    )
    return StepTraces(point, TraceSet(ranks), groups, {id(template): seconds for template, seconds in stages})


def estimated_nodes(pieces: Iterable[Piece], microbatches: int) -> int:
    """Return about how many nodes the traces of a step have, one rank of each pipeline stage."""
    return microbatches * sum(piece.repeats * _estimate_piece_nodes(piece) for piece in pieces)


def _estimate_piece_nodes(piece: Piece) -> int:
    """Return about how many nodes a block has for one microbatch; a ring sends and receives."""
    units = (*piece.forward, *piece.backward)
    parts = [turn for unit in units for chain in (unit.steps, unit.weights) for turn in iterate_turns(chain)]
    nodes = sum(count * len(part) for count, part in parts)
    rings = sum(2 for _, part in parts for step in part if isinstance(step, ComputeRun) and step.beside is not None)
    return nodes + rings + sum(len(unit.gathers) + len(unit.reduces) for unit in units)


def _plan_traces(profile: StepProfile, pieces: Sequence[Piece]) -> TracePlan:
    workload, collective = profile.batch.base.workload, profile.batch.base.collective
    training = workload.task == "training"
    paces = tuple(_paces_of_part(part, profile) for part in part_times(profile.batch))
    parts = _parts_of_model(pieces, profile)
    count = int(profile.microbatches)
    alone = workload.pp == 1
    # Passes of all microbatches through the parts of one stage, forward and backward
    passes = count * (len(parts) // workload.pp) * (2 if training else 1)
    # The axes along which ranks exchange something with neighbours, each once
    calls = (call for piece in pieces for call in collectives_of(piece) if call.kind == PERMUTE)
    return TracePlan(
        parts=parts,
        groups=axes_of_groups(pieces),
        permuted=tuple(dict.fromkeys(call.axes for call in calls)),
        passed=sent_between_stages(profile),
        stages=workload.pp,
        microbatches=count,
        newest_first=collective.scheduling == "lifo",
        training=training,
        updates={layer.label: _optimizer_update(layer.piece, profile, alone) for part in parts for layer in part},
        paces=paces,
        **plan_outer_memory(profile, parts, passes),
        exchange_latency_s=float(profile.network.mean_exchange_latency_s()),
    )


def _optimizer_update(piece: Piece, profile: StepProfile, alone: bool) -> ComputeRun:
    """Return the optimizer's work for a block; weights that a head shares with the embedding are updated there."""
    tables = table_use(profile.batch)  # a recommender is a single piece
    elements = piece.elements - (piece.shared if alone and piece.part == "last" else 0.0) - float(tables.elements)
    if profile.batch.base.workload.task != "training":
        return ComputeRun("optimizer", 0.0, 0.0, 0.0)
    if (traffic := tier_traffic(profile.batch)) is not None:
        elements *= float(traffic.update.in_hbm)
    seconds, moved = profile.kernels.update(elements, tables)
    return ComputeRun("optimizer", float(seconds), elements, float(moved))


def _paces_of_part(part: StageTime, profile: StepProfile) -> dict[str, PassPace]:
    """Return how both passes through a part of the model go: as the closed form says (`cosmic.step.stage_time`)."""
    efficiency = float(profile.network.efficiency("weights"))
    paces = {}
    for phase in PASSES:
        compute = float(part.compute.beside(phase)[2])
        # Weights and gradients take these seconds from compute, as far as compute runs beside them.
        communication_s, shown = (
            float(seconds_of.get(("weights", phase), 0.0)) for seconds_of in (part.communication, part.exposed)
        )
        weights_s = (communication_s - shown) * (1 - efficiency) / efficiency if efficiency else communication_s
        slowdown = 1 + (float(part.delay[phase]) + weights_s) / compute if compute else 1.0
        sent_s = {role: float(part.communication.get((role, phase), 0.0)) for role in BLOCKING}
        exposed = {role: float(part.exposed[role, phase]) / sent for role, sent in sent_s.items() if sent}
        paces[phase] = PassPace(slowdown, exposed, efficiency)
    return paces


def _parts_of_model(pieces: Sequence[Piece], profile: StepProfile) -> tuple[tuple[Layer, ...], ...]:
    """Return the parts of the model: layers are dealt out as `cosmic.workload.mesh_sizes.blocks_on_stage` says.

    The embedding goes with the first part, the head with the last. Layers of one kind are beside each other in a part.
    """
    blocks = [planned.block for planned in plan_of(profile.batch)]
    repeated = [piece for piece in pieces if piece.part == "layers" for _ in range(piece.repeats)]
    layers: dict[str, list[Layer]] = {}
    for index, piece in enumerate(repeated):
        label = f"{piece.name}{index}" if len(repeated) > 1 else piece.name
        layers.setdefault(piece.name, []).append(Layer(label, piece))
    waiting = {name: iter(kind) for name, kind in layers.items()}
    parts: list[tuple[Layer, ...]] = []
    for counts in layers_of_parts(profile.batch, blocks):
        parts.append(tuple(layer for name, kind in waiting.items() for layer in islice(kind, int(counts[name]))))
    first = tuple(Layer(piece.name, piece) for piece in pieces if piece.part == "first")
    last = tuple(
        Layer(piece.name if piece.repeats == 1 else f"{piece.name}{copy_index}", piece)
        for piece in pieces
        if piece.part == "last"
        for copy_index in range(piece.repeats)
    )
    parts[0] = first + parts[0]
    parts[-1] = parts[-1] + last
    return tuple(parts)


def axes_of_groups(pieces: Iterable[Piece]) -> tuple[tuple[str, ...], ...]:
    """Return the axes of the communicator groups that the collectives of a model use, each once."""
    calls = (call for piece in pieces for call in collectives_of(piece) if call.kind != PERMUTE)
    return tuple(dict.fromkeys(call.axes for call in calls))


def _tasks_of_stage(plan: TracePlan, point: DesignPoint, stage: int) -> tuple[list[PipelineTask], list[int]]:
    """Return the tasks of a stage in order, and the indices of those whose input was sent before the step began."""
    stages, count = plan.stages, plan.microbatches
    if plan.training:
        return schedules[point.workload.schedule].order(stage, stages, count, len(plan.parts) // stages), []
    if point.workload.task == "prefill":
        return [PipelineTask("F", microbatch) for microbatch in range(count)], []
    turns = max(stages, count)  # of a round: each microbatch is at one stage, or waits
    order = sorted(range(count), key=lambda microbatch: (stage + microbatch) % turns)
    return [PipelineTask("F", microbatch) for microbatch in order], [
        index for index, microbatch in enumerate(order) if stage + microbatch == turns
    ]
