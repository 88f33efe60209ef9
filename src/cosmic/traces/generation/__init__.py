"""From a design to execution traces: what every rank computes, sends and receives in one step.

    design ── plan, schedule ──▶ blocks as steps ──▶ tapes, one for each task ──▶ a template for each stage ──▶ ranks

The graph is made of the quantities that the analytic engine adds up; `Job.seconds` holds, for each node, what that
engine charges for it. Played, it takes about as long as the engine says if what compute waits for and what hides do not
hold each other up, as closed forms take for granted: `comm_priority` is 1 for the former and 0 for the latter, and a
player gives each its slot. With one slot for both, a transfer that hides delays what is waited for.

What compute waits for is chained; what hides is free. A trace shows one step out of many: where a collective may run
on into the next step, it is the one of the step before that is seen, at the start (`previous.…`). Decoding is one round
of the pipeline, which every stage enters at its own place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from cosmic.design.batch import batch_of
from cosmic.design.point import DesignPoint
from cosmic.design.program import ProgramModel
from cosmic.errors import SpecError, require
from cosmic.step.communication import BLOCKING
from cosmic.step.profile import StepProfile, profile
from cosmic.step.stage_time import StageTime, part_times
from cosmic.step.tables import table_use
from cosmic.step.tier_traffic import tier_traffic
from cosmic.traces.generation.blocks import pieces, sent_between_stages
from cosmic.traces.generation.mesh import Mesh, name_groups
from cosmic.traces.generation.outer_memory import outer_memory
from cosmic.traces.generation.pieces import Piece, Run, collectives_of, turns
from cosmic.traces.generation.stages import Floats, Layer, Plan, StageTrace
from cosmic.traces.generation.tapes import PERMUTE, Pace
from cosmic.traces.trace import RankTrace, Template, TraceSet
from cosmic.workload.checks import invalid_reasons
from cosmic.workload.graph import PASSES
from cosmic.workload.plan import plan_of
from cosmic.workload.schedule import Task, schedules
from cosmic.workload.sizes import layers_of_parts

MOST_RANKS = 2**20
"""Most ranks that are traced or simulated."""
MOST_NODES = 20_000_000
"""Most nodes of one rank of each pipeline stage: as many take about a minute, and several GB of memory."""
SMALLER = "choose fewer model.layers, or fewer microbatches (workload.global_batch over dp × micro_batch)"


@dataclass(frozen=True, slots=True, eq=False)
class Job:
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


def generate(point: DesignPoint) -> Job:
    """Return the traces of one step of *point*, and the communicator groups that they name."""
    batch = batch_of(point)
    if reasons := invalid_reasons(batch):
        raise SpecError("design", point.identity, reasons[0])
    require_few_ranks(point)
    step = profile(batch)
    found = pieces(step)
    nodes = estimated_nodes(found, int(step.microbatches))
    require(nodes <= MOST_NODES, "trace nodes", nodes, f"at most {MOST_NODES:,} are generated: {SMALLER}")
    plan = _plan(step, found)
    stages = [StageTrace(plan, stage).write(*_tasks(plan, point, stage)) for stage in range(plan.stages)]
    cuts = point.model.cuts if isinstance(point.model, ProgramModel) else ()
    mesh = Mesh(point.workload, point.network.dims[-1].npus if point.network.dims else 1, cuts)
    groups, names = name_groups(mesh, plan.groups)
    beside = (("pp",), ("cp",), *plan.permuted)
    sides = [mesh.beside(axes, steps) for axes in beside for steps in (1, -1)]
    peers = list(zip(*(side.tolist() for side in sides), strict=True))
    own = list(zip(*names, strict=True)) if names else [()] * len(peers)
    ranks = tuple(
        RankTrace(stages[stage][0], own[rank], peers[rank], rank)
        for rank, stage in enumerate(mesh.along("pp").tolist())
    )
    return Job(point, TraceSet(ranks), groups, {id(template): seconds for template, seconds in stages})


def require_few_ranks(point: DesignPoint) -> None:
    """Raise a `SpecError` if *point* has more ranks than are traced."""
    ranks = point.workload.ranks
    require(ranks <= MOST_RANKS, "ranks", ranks, f"at most {MOST_RANKS:,} are traced: choose fewer NPUs")


def estimated_nodes(found: Iterable[Piece], microbatches: int) -> int:
    """Return about how many nodes the traces of a step have, one rank of each pipeline stage."""
    return microbatches * sum(piece.repeats * _nodes(piece) for piece in found)


def _nodes(piece: Piece) -> int:
    """Return about how many nodes a block has for one microbatch; a ring sends and receives."""
    units = (*piece.forward, *piece.backward)
    parts = [turn for unit in units for chain in (unit.steps, unit.weights) for turn in turns(chain)]
    nodes = sum(count * len(part) for count, part in parts)
    rings = sum(2 for _, part in parts for step in part if isinstance(step, Run) and step.beside is not None)
    return nodes + rings + sum(len(unit.gathers) + len(unit.reduces) for unit in units)


def _plan(profile: StepProfile, found: Sequence[Piece]) -> Plan:
    workload, collective = profile.batch.base.workload, profile.batch.base.collective
    training = workload.task == "training"
    paces = tuple(_paces(part, profile) for part in part_times(profile.batch))
    parts = _parts(found, profile)
    count = int(profile.microbatches)
    alone = workload.pp == 1
    passes = count * (len(parts) // workload.pp) * (2 if training else 1)
    return Plan(
        parts=parts,
        groups=axes_of_groups(found),
        permuted=axes_of_permutes(found),
        passed=sent_between_stages(profile),
        stages=workload.pp,
        microbatches=count,
        newest_first=collective.scheduling == "lifo",
        training=training,
        updates={layer.label: _update(layer.piece, profile, alone) for part in parts for layer in part},
        paces=paces,
        **outer_memory(profile, parts, passes),
        exchange_latency_s=float(profile.network.exchange_latency_s()) / workload.sync_period,
    )


def _update(piece: Piece, profile: StepProfile, alone: bool) -> Run:
    """Return the optimizer's work for a block; weights that a head shares with the embedding are updated there."""
    tables = table_use(profile.batch)  # a recommender is a single piece
    elements = piece.elements - (piece.shared if alone and piece.part == "last" else 0.0) - float(tables.elements)
    if profile.batch.base.workload.task != "training":
        return Run("optimizer", 0.0, 0.0, 0.0)
    if (traffic := tier_traffic(profile.batch)) is not None:
        elements *= float(traffic.update.in_hbm)
    seconds, moved = profile.kernels.update(elements, tables)
    return Run("optimizer", float(seconds), elements, float(moved))


def _paces(part: StageTime, profile: StepProfile) -> dict[str, Pace]:
    """Return how both passes through a part of the model go: as the closed form says (`cosmic.step.stage_time`)."""
    efficiency = float(profile.network.efficiency("weights"))
    found = {}
    for phase in PASSES:
        compute = float(part.compute.beside(phase)[2])
        taken = _taken(part, phase, efficiency)
        slowdown = 1 + (float(part.delay[phase]) + taken) / compute if compute else 1.0
        whole = {role: float(part.communication.get((role, phase), 0.0)) for role in BLOCKING}
        exposed = {role: float(part.exposed[role, phase]) / sent for role, sent in whole.items() if sent}
        found[phase] = Pace(slowdown, exposed, efficiency)
    return found


def _taken(part: StageTime, phase: str, efficiency: float) -> float:
    """Return the seconds that weights and gradients of a pass take from compute, as far as compute runs beside them."""
    sent, shown = (float(each.get(("weights", phase), 0.0)) for each in (part.communication, part.exposed))
    return (sent - shown) * (1 - efficiency) / efficiency if efficiency else sent


def _parts(found: Sequence[Piece], profile: StepProfile) -> tuple[tuple[Layer, ...], ...]:
    """Return the parts of the model: layers are dealt out as `cosmic.workload.sizes.blocks_on_stage` says.

    The embedding goes with the first part, the head with the last. Layers of one kind are beside each other in a part.
    """
    blocks = [each.block for each in plan_of(profile.batch)]
    repeated = [piece for piece in found if piece.part == "layers" for _ in range(piece.repeats)]
    layers: dict[str, list[Layer]] = {}
    for place, piece in enumerate(repeated):
        label = f"{piece.name}{place}" if len(repeated) > 1 else piece.name
        layers.setdefault(piece.name, []).append(Layer(label, piece))
    waiting = {name: iter(each) for name, each in layers.items()}
    parts: list[tuple[Layer, ...]] = []
    for taken in layers_of_parts(profile.batch, blocks):
        parts.append(tuple(layer for name, each in waiting.items() for layer in islice(each, int(taken[name]))))
    first = tuple(Layer(piece.name, piece) for piece in found if piece.part == "first")
    last = tuple(
        Layer(piece.name if piece.repeats == 1 else f"{piece.name}{place}", piece)
        for piece in found
        if piece.part == "last"
        for place in range(piece.repeats)
    )
    parts[0] = first + parts[0]
    parts[-1] = parts[-1] + last
    return tuple(parts)


def axes_of_groups(found: Iterable[Piece]) -> tuple[tuple[str, ...], ...]:
    """Return the axes of the communicator groups that the collectives of a model use, each once."""
    calls = (each for piece in found for each in collectives_of(piece) if each.kind != PERMUTE)
    return tuple(dict.fromkeys(each.axes for each in calls))


def axes_of_permutes(found: Iterable[Piece]) -> tuple[tuple[str, ...], ...]:
    """Return the axes along which ranks exchange something with neighbours, each once."""
    calls = (each for piece in found for each in collectives_of(piece) if each.kind == PERMUTE)
    return tuple(dict.fromkeys(each.axes for each in calls))


def _tasks(plan: Plan, point: DesignPoint, stage: int) -> tuple[list[Task], list[int]]:
    """Return what a stage does, in order, and the places of tasks that read what was sent before the step began."""
    stages, count = plan.stages, plan.microbatches
    if plan.training:
        return schedules[point.workload.schedule].order(stage, stages, count, len(plan.parts) // stages), []
    if point.workload.task == "prefill":
        return [Task("F", microbatch) for microbatch in range(count)], []
    turns = max(stages, count)  # of a round: each microbatch is at one stage, or waits
    order = sorted(range(count), key=lambda microbatch: (stage + microbatch) % turns)
    return [Task("F", microbatch) for microbatch in order], [
        place for place, microbatch in enumerate(order) if stage + microbatch == turns
    ]
