"""The trace of one pipeline stage: its tasks in the order of the schedule, and what happens once a step.

Once a step, gradients are reduced and weights updated, and gathered if each rank updated its shard. Where the newest
collective goes first (LIFO), reductions that the last backward pass does not overlap extend into the next step, beside
its first forward pass. A trace of one step shows them at its start, as those of the step before.

A task is recorded on a tape: its nodes, as rows that repeat for every microbatch.

A stage does the same for every microbatch. The rows of a task (forward, backward, backward for inputs or for weights,
of one virtual stage) are therefore written once; a stage's trace repeats them with other ids and tags.

The steps of a tape form a chain: each depends on the one before. Overlapped communication runs beside the chain:

    all-gather of weights            at most FETCHED_AHEAD blocks before the one that reads them
    reduce-scatter of gradients      until the task ends
    send                             of the input of the next virtual stage

No compute of their own task overlaps the first gathers and the last reductions. They extend into the task before or
after, for as long as the last block computes (which overlaps no gather of its task) or the first (which overlaps no
reduction). So exactly the compute of a task overlaps its communication: the analytic engine's rule.

A block of the model, cut into pieces: runs of compute, blocking collectives, and overlapped collectives.

The partitioned graph of a block is a list of operators with collectives before and after them. Here it is cut into
*sections* (attention, feed-forward, …: each ends where the residual stream is written), and each section into *runs*:
the compute between two blocking collectives. The collectives of weights and their gradients are merged for each
*unit*: a block or, where it has blocking collectives inside, a section, because one long transfer would delay them.
Seconds are those of the step's profile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cosmic.design.workload_layer import Workload
from cosmic.step.block_memory import repeated_operators, replica_axes, weight_elements
from cosmic.step.communication import BLOCKING, CollectiveUse, CommunicationKind, NetworkCosts, Role, order_axes
from cosmic.step.operator_work import OperatorUse
from cosmic.step.stage_time import FETCHED_AHEAD, Communicated, block_times
from cosmic.step.step_profile import OperatorCost, StepProfile
from cosmic.traces.trace import ABSENT, RECORDED, CollectiveType, Ints, NodeType, Template
from cosmic.workload.block_plans import STREAM, BlockPlan, plan_of
from cosmic.workload.lora_adapters import trained_weights, trains_adapters, weight_gradient_share
from cosmic.workload.mesh_sizes import sizes_of
from cosmic.workload.operator_graph import Operator
from cosmic.workload.pipeline_schedule import PipelineTask, TaskKind
from cosmic.workload.sharding.graph_partition import CollectiveOp
from cosmic.workload.sharding.resharding import COLLECTIVES

# ---- The pieces of a block

# ---- What a block of the model is cut into: runs of compute, collectives, and the units that they form


@dataclass(frozen=True, slots=True)
class TracedCollective:
    """One collective, or one round of messages, among the ranks along some mesh axes."""

    name: str
    kind: CommunicationKind
    axes: tuple[str, ...]
    """Those of dense layers, or those of experts: see `cosmic.workload.block_plans`."""
    members: float
    bytes: float
    """The result of a gather, the input of any other collective."""
    seconds: float
    role: Role
    steps: int = 1
    """Calls that it stands for, of equal sizes: one at each step of a recurrence."""

    def share(self, fraction: float) -> TracedCollective:
        """Return a fraction of it."""
        return replace(self, bytes=self.bytes * fraction, seconds=self.seconds * fraction)


@dataclass(frozen=True, slots=True)
class ComputeRun:
    """Operators that follow one another without a collective between them."""

    name: str
    seconds: float
    flop: float
    bytes: float
    beside: TracedCollective | None = None
    """The ring of keys and values that it overlaps."""
    steps: int = 1
    """Steps of a recurrence."""

    def share(self, fraction: float) -> ComputeRun:
        """Return a fraction of it."""
        return replace(self, seconds=self.seconds * fraction, flop=self.flop * fraction, bytes=self.bytes * fraction)


@dataclass(frozen=True, slots=True)
class FetchUnit:
    """Steps whose weights are gathered together, and whose gradients are reduced together."""

    name: str
    steps: tuple[ComputeRun | TracedCollective, ...]
    """In order, each waiting for the one before."""
    weights: tuple[ComputeRun, ...] = ()
    """The weight gradients: the part of a backward pass that can wait."""
    gathers: tuple[TracedCollective, ...] = ()
    reduces: tuple[TracedCollective, ...] = ()


@dataclass(frozen=True, slots=True)
class Piece:
    """A block of the model, as one device runs it for one microbatch."""

    name: str
    part: str
    repeats: int
    forward: tuple[FetchUnit, ...]
    backward: tuple[FetchUnit, ...]
    reduces: tuple[TracedCollective, ...]
    """Reductions of gradients, once a step."""
    updates: tuple[TracedCollective, ...]
    """All-gathers of updated weights, once a step."""
    held_up: tuple[float, float]
    """How many times longer both take beside the backward and the forward pass of one microbatch."""
    elements: float
    """Weights that this device updates."""
    shared: float
    """Of these, how many the embedding and the head have in common."""
    exchanged: tuple[TracedCollective, ...] = ()
    """What islands exchange every few steps, its mean over these steps."""

    @property
    def backward_s(self) -> float:
        """Seconds of compute in the backward pass."""
        runs = [step for unit in self.backward for step in (*unit.steps, *unit.weights) if isinstance(step, ComputeRun)]
        return sum(run.seconds for run in runs)


def iterate_turns(
    steps: Sequence[ComputeRun | TracedCollective],
) -> Iterator[tuple[int, tuple[ComputeRun | TracedCollective, ...]]]:
    """Yield parts of a chain with how often each is gone through.

    Operators of a recurrence and what its steps send take turns; without the latter, all its steps are one.
    """
    for count, group in groupby(steps, key=lambda step: step.steps):
        part = tuple(group)
        sends = count > 1 and any(isinstance(step, TracedCollective) for step in part)
        yield (count, tuple(step.share(1 / count) for step in part)) if sends else (1, part)


def merge_collectives(calls: Iterable[TracedCollective], name: str) -> tuple[TracedCollective, ...]:
    """Return one collective for those of one kind and group: the sum of their bytes and of their seconds."""
    merged: dict[tuple[str, tuple[str, ...]], TracedCollective] = {}
    for call in calls:
        earlier = merged.get((call.kind, call.axes))
        sums = (earlier.bytes + call.bytes, earlier.seconds + call.seconds) if earlier else (call.bytes, call.seconds)
        merged[call.kind, call.axes] = replace(call, name=name, bytes=sums[0], seconds=sums[1])
    return tuple(merged.values())


def merge_into_one_buffer(
    calls: Iterable[TracedCollective], name: str, network: NetworkCosts, held_up: float = 1.0
) -> tuple[TracedCollective, ...]:
    """Return one collective for those of one kind and group, timed as one buffer: so weights and gradients travel.

    Others hold it up, so that it takes *held_up* times longer.
    """
    return tuple(
        replace(call, seconds=held_up * float(network.seconds(call.kind, order_axes(call.axes), call.bytes)))
        for call in merge_collectives(calls, name)
    )


def collectives_of(piece: Piece) -> Iterator[TracedCollective]:
    """Yield every collective of a block."""
    for unit in (*piece.forward, *piece.backward):
        yield from (step for step in unit.steps if isinstance(step, TracedCollective))
        yield from (*unit.gathers, *unit.reduces)
    yield from (*piece.reduces, *piece.updates, *piece.exchanged)


# ---- A block of the model as steps: runs of compute, blocking collectives, and collectives that compute overlaps


def cut_into_pieces(profile: StepProfile) -> tuple[Piece, ...]:
    """Return the blocks of a design, in order."""
    planned = plan_of(profile.batch)
    by_block: dict[str, list[CollectiveUse]] = {}
    for use in profile.collectives:
        by_block.setdefault(use.block, []).append(use)
    work: dict[tuple[str, str, str], OperatorCost] = {
        (operator.use.block, operator.use.name, operator.use.phase): operator for operator in profile.operators
    }
    # The names of the weights that the embedding and the head share
    names = [
        {weight.name for weight in planned_block.block.graph.weights}
        for planned_block in planned
        if planned_block.block.part != "layers"
    ]
    common = frozenset(names[0] & names[-1]) if len(names) > 1 else frozenset()
    return tuple(
        _BlockCutter(profile, planned_block, work, by_block.get(planned_block.block.name, [])).piece(common)
        for planned_block in planned
    )


def sent_between_stages(profile: StepProfile) -> TracedCollective | None:
    """Return the transfer of a microbatch from one stage to the next."""
    sends = (use for use in profile.collectives if use.kind == "send")
    return next((_trace_collective("x", ("pp",), use, profile) for use in sends), None)


def _trace_collective(
    name: str, axes: Iterable[str], use: CollectiveUse, profile: StepProfile, calls: float = 1
) -> TracedCollective:
    sizes = sizes_of(profile.batch)
    used_axes = use.axes if profile.batch.base.workload.exchanges_apart else tuple(axes)
    ordered = tuple(axis for axis in order_axes(used_axes) if sizes[axis] != 1)
    seconds = float(profile.seconds(use)) * calls
    return TracedCollective(name, use.kind, ordered, float(use.group), float(use.bytes) * calls, seconds, use.role)


@dataclass(frozen=True, slots=True)
class _Call:
    """A collective of the plan, and what the step makes of it."""

    section: int
    planned: CollectiveOp
    use: CollectiveUse


@dataclass(slots=True)
class _Section:
    """A section of a block as it is being cut."""

    name: str
    steps: list[ComputeRun | TracedCollective] = field(default_factory=list)
    weight: list[ComputeRun] = field(default_factory=list)
    gathers: list[TracedCollective] = field(default_factory=list)
    reduces: list[TracedCollective] = field(default_factory=list)
    run: list[ComputeRun] = field(default_factory=list)
    """The operators of the run that goes on."""

    def close(self) -> None:
        """End the run that goes on; it is called after its longest operator."""
        if self.run:
            longest = max(self.run, key=lambda step: step.seconds)
            self.steps.append(replace(_sum_runs(longest.name, self.run), beside=longest.beside, steps=longest.steps))
            self.run = []

    def wait(self, step: ComputeRun | TracedCollective) -> None:
        """Add a step of its own."""
        self.close()
        self.steps.append(step)

    def finished(self, phase: str) -> _Section:
        """Return it with its longest run called after the section, and one run for all gradients of weights."""
        self.close()
        runs = [step for step in self.steps if isinstance(step, ComputeRun)]
        longest = max(runs, key=lambda run: run.seconds, default=None)
        for index, step in enumerate(self.steps):
            if isinstance(step, ComputeRun):
                apart = step.name if step.name != self.name else join_names(step.name, "core")
                own = self.name if step is longest else apart
                self.steps[index] = replace(step, name=join_names(own, phase))
            elif phase == "recompute":
                self.steps[index] = replace(step, name=join_names(step.name, phase))
        self.weight = [_sum_runs(join_names(self.name, "weight_gradient"), self.weight)] if self.weight else []
        return self


def _sum_runs(name: str, runs: Sequence[ComputeRun]) -> ComputeRun:
    return ComputeRun(
        name, sum(run.seconds for run in runs), sum(run.flop for run in runs), sum(run.bytes for run in runs)
    )


@dataclass(frozen=True, slots=True)
class _BlockCutter:
    """Cuts one block."""

    profile: StepProfile
    planned: BlockPlan
    work: Mapping[tuple[str, str, str], OperatorCost]
    uses: Sequence[CollectiveUse]

    @property
    def workload(self) -> Workload:
        """What runs."""
        return self.profile.batch.base.workload

    @property
    def _trained(self) -> frozenset[str]:
        """Names of the weights that the optimizer updates."""
        return trained_weights(self.planned.block, trains_adapters(self.workload))

    def piece(self, common: frozenset[str]) -> Piece:
        """Return the block cut into units."""
        block, workload, sizes = self.planned.block, self.workload, sizes_of(self.profile.batch)
        # The sections of a block; only layers have several
        planned = [part.operator for part in self.planned.partitioned.operators]
        several = block.part == "layers"
        forward = [operator for operator in planned if operator.phase == "forward"]
        section_of, names, current = {}, list[str](), list[Operator]()
        for operator in forward:
            current.append(operator)
            section_of[operator.name] = len(names)
            if several and operator.outputs[0].name in STREAM:
                names.append(_section_name(current))
                current = []
        if current:
            names.append(_section_name(current) if several and names else "")
        sections = _Sections(tuple(names), section_of)
        passes = self._passes(sections)
        again = self._recomputed_items(passes["forward"], repeated_operators(block, workload))
        step = [call for items in passes.values() for call in items if isinstance(call, _Call)]
        reduces = [self._collective(call) for call in step if call.use.phase == "step" and call.use.group > 1]
        split = workload.shards_states
        backward = self._units(passes["backward"], "backward", sections)
        updates = tuple(self._updates())
        return Piece(
            name=block.name,
            part=block.part,
            repeats=block.repeats,
            forward=self._units(passes["forward"], "forward", sections),
            backward=self._with_recompute(again, sections, backward) if again else backward,
            reduces=(deferred := merge_into_one_buffer(reduces, "gradients", self.profile.network)),
            updates=updates,
            exchanged=tuple(self._exchanged()),
            held_up=(self._hold_up_once(deferred, "backward"), self._hold_up_once(updates, "forward")),
            elements=float(weight_elements(self.planned, sizes, split, only=self._trained)),
            shared=float(weight_elements(self.planned, sizes, split, only=common & self._trained)),
        )

    # -------------------------------------------------------------------------------------------- in order

    def _passes(self, sections: _Sections) -> dict[str, list[Operator | _Call]]:
        """Return the operators and collectives of the forward and of the backward pass."""
        calls = iter(zip(self.planned.partitioned.collectives, self.uses, strict=False))
        placed = self.planned.partitioned.operators
        undoing = _ReversedOperators([part.operator for part in placed if part.operator.phase == "forward"])
        passes: dict[str, list[Operator | _Call]] = {"forward": [], "backward": []}
        for part in placed:
            section = sections.section_of(part.operator)
            for transfers in (part.inputs, None, part.outputs):
                if transfers is not None:
                    for call in (
                        _Call(section, *next(calls))
                        for _ in range(
                            sum(step.kind in COLLECTIVES for transfer in transfers for step in transfer.steps)
                        )
                    ):
                        passes[call.planned.phase].append(call)
                elif part.operator.phase == "forward":
                    passes["forward"].append(part.operator)
                else:
                    passes["backward"] += undoing.reach(part.operator)
        if self.workload.task == "training":
            passes["backward"] += undoing.rest()
        return passes

    def _recomputed_items(self, items: Sequence[Operator | _Call], repeats: frozenset[str]) -> list[Operator | _Call]:
        """Return what the backward pass recomputes of the forward pass; its weights are gathered again."""
        return [item for item in items if (item.planned.operator if isinstance(item, _Call) else item.name) in repeats]

    # --------------------------------------------------------------------------------------------- sections

    def _units(self, items: Sequence[Operator | _Call], phase: str, sections: _Sections) -> tuple[FetchUnit, ...]:
        cut_sections = self._cut(items, phase, sections)
        waits = any(isinstance(step, TracedCollective) for section in cut_sections for step in section.steps)
        groups = [[section] for section in cut_sections] if waits else [cut_sections] if cut_sections else []
        held_up = self._held_up(phase)
        return tuple(_merge_sections(group, phase, self.profile.network, held_up) for group in groups)

    def _held_up(self, phase: str) -> float:
        """Return how many times longer weights and gradients take, as nothing is sent beside other communication."""
        return self._lengthening(float(self._sent.get(("weights", phase), 0.0)), phase)

    def _hold_up_once(self, calls: Iterable[TracedCollective], phase: str) -> float:
        """Return the same of what is sent once a step, beside the pass of one microbatch."""
        return self._lengthening(float(self.profile.microbatches) * sum(call.seconds for call in calls), phase)

    def _lengthening(self, sent_s: float, phase: str) -> float:
        """Return how many times longer takes what is sent beside all microbatches of a pass.

        Other communication holds it up as far as the pass leaves it no time: where compute is long, it waits for none.
        """
        block, efficiency = block_times(self.profile.batch)[self.planned.block.name], self.efficiency
        blocking_s = sum(float(self._sent.get((role, phase), 0.0)) for role in (*BLOCKING, "ring"))
        if not efficiency or not sent_s:
            return float(bool(efficiency))  # compute waits for all of it: see `Pace.slowdown`
        hidden = sum(float(self._sent[key] - shown) for key, shown in block.exposed.items() if key[1] == phase)
        cover = max(0.0, float(block.compute.beside(phase)[2]) - hidden)
        needed = efficiency * sent_s
        return 1 + blocking_s * (needed / max(needed, cover)) / sent_s

    @property
    def efficiency(self) -> float:
        """The share of weights and gradients that compute can hide."""
        return float(self.profile.network.efficiency("weights"))

    @property
    def _sent(self) -> Communicated:
        return block_times(self.profile.batch)[self.planned.block.name].communication

    def _with_recompute(
        self, items: Sequence[Operator | _Call], sections: _Sections, backward: tuple[FetchUnit, ...]
    ) -> tuple[FetchUnit, ...]:
        """Return the backward units with the forward steps again before them; weights are gathered for both."""
        steps = tuple(step for section in self._cut(items, "recompute", sections) for step in section.steps)
        first = FetchUnit("", steps, gathers=tuple(gather for unit in backward for gather in unit.gathers))
        return (first, *(replace(unit, gathers=()) for unit in backward))

    def _cut(self, items: Sequence[Operator | _Call], phase: str, sections: _Sections) -> list[_Section]:
        """Return the sections that *items* make, in the order in which the first of each is met."""
        rings = self._ring(items)
        share = self._weight_share(items, phase, bool(rings))
        by_index: dict[int, _Section] = {}
        last: _Section | None = None
        for item in items:
            index = item.section if isinstance(item, _Call) else sections.section_of(item)
            section = by_index.setdefault(index, _Section(sections.names[index]))
            if last is not None and last is not section:
                last.close()
            last = section
            if isinstance(item, _Call):
                self._call(item, section, float(item.use.recomputed) if phase == "recompute" else 1.0)
            elif cost := self._cost(item, phase):
                once = float(cost.use.recomputed) if phase == "recompute" else 1.0  # some layers run it again
                if rings and self._is_ring_attention(cost.use):  # whose keys and values they are
                    section.wait(self._run(cost, once, rings[0]))
                    rings = ()  # one ring has those of all
                    continue
                section.run.append(self._run(cost, once - share))
                if share:
                    section.weight.append(self._run(cost, share))
        return [section.finished(phase) for section in by_index.values()]

    def _cost(self, operator: Operator, phase: str) -> OperatorCost | None:
        """Return the cost of an operator; None for a view."""
        return self.work.get((self.planned.block.name, operator.name, "backward" if phase == "backward" else "forward"))

    def _run(self, cost: OperatorCost, share: float, beside: TracedCollective | None = None) -> ComputeRun:
        use = cost.use
        run = ComputeRun(use.name, float(cost.seconds), float(use.flop), float(use.bytes), beside, int(use.steps))
        return run.share(share)

    def _weight_share(self, items: Sequence[Operator | _Call], phase: str, ring: bool) -> float:
        """Return the share of each backward operator that makes gradients of weights.

        Together they are half of the pass; beside adapters there are none. Attention that something hides behind stays
        whole, and the others give more.
        """
        together = weight_gradient_share(self.workload)
        if phase != "backward" or not together:
            return 0.0
        costs = [self._cost(item, phase) for item in items if isinstance(item, Operator)]
        seconds = [(cost.use.kind, float(cost.seconds)) for cost in costs if cost]
        total_s = sum(operator_s for _, operator_s in seconds)
        attention_s = sum(operator_s for kind, operator_s in seconds if ring and kind == "attention")
        return min(1.0, together * total_s / (total_s - attention_s)) if total_s > attention_s else 0.0

    # ------------------------------------------------------------------------------------------ collectives

    def _collective(self, call: _Call, calls: float = 1.0) -> TracedCollective:
        return _trace_collective(call.planned.tensor, call.planned.axes, call.use, self.profile, calls)

    def _call(self, call: _Call, section: _Section, calls: float) -> None:
        """Add a collective: a step of its own where it blocks, otherwise to those of weights or of gradients."""
        if call.use.group <= 1 or call.use.phase == "step" or call.use.role == "ring":
            return  # a group of one; once a step; or overlapped by attention
        steps = int(call.planned.steps(sizes_of(self.profile.batch))) if call.planned.serial else 1
        collective = self._collective(call, steps * calls if not call.use.overlaps else 1.0)
        collective = replace(collective, steps=steps)
        if not call.use.overlaps:
            section.wait(collective)
        elif call.planned.tensor.startswith("d_"):
            section.reduces.append(collective)
        else:
            section.gathers.append(collective)

    def _ring(self, items: Sequence[Operator | _Call]) -> tuple[TracedCollective, ...]:
        """Return the ring that attention overlaps: all rounds, of keys, values and their gradients, as one."""
        rounds = float(self.workload.cp) - 1
        calls = [item for item in items if isinstance(item, _Call) and item.use.role == "ring" and item.use.group > 1]
        exchanges = [_trace_collective("ring", call.planned.axes, call.use, self.profile, rounds) for call in calls]
        return merge_collectives(exchanges, "ring") if rounds > 0 else ()

    def _is_ring_attention(self, use: OperatorUse) -> bool:
        """Return whether an operator is the attention that a ring passes keys and values to."""
        return use.kind == "attention" and (use.name == "attention" or self.planned.used is not None)

    def _updates(self) -> Iterator[TracedCollective]:
        """Yield the all-gathers of updated weights: see `cosmic.step.communication`, whose order this follows."""
        uses = [use for use in self.uses if use.role == "updated"]
        weights = self.planned.block.graph.weights
        shardings = [self.planned.shardings[weight.name] for weight in weights if weight.name in self._trained]
        axes = dict.fromkeys(replica_axes(sharding) for sharding in shardings)
        for use, group in zip(uses, axes, strict=False):
            if use.group > 1:
                yield _trace_collective("weights", group, use, self.profile)

    def _exchanged(self) -> Iterator[TracedCollective]:
        """Yield the exchanges between islands every few steps, averaged over these steps."""
        for use in self.uses:
            if use.role == "sync" and use.group > 1:
                yield _trace_collective("parameters", use.axes, use, self.profile, float(use.calls))


def _merge_sections(sections: Sequence[_Section], phase: str, network: NetworkCosts, held_up: float) -> FetchUnit:
    """Return sections as a unit, in which one collective serves all weights alike, and takes so many times longer."""
    name = sections[0].name if len(sections) == 1 else ""
    gathers = [gather for section in sections for gather in section.gathers]
    reduces = [reduce for section in sections for reduce in section.reduces]
    return FetchUnit(
        name,
        tuple(step for section in sections for step in section.steps),
        tuple(run for section in sections for run in section.weight),
        merge_into_one_buffer(gathers, f"weights.{phase}", network, held_up),
        merge_into_one_buffer(reduces, "gradients", network, held_up),
    )


def join_names(*names: str) -> str:
    """Return the names that are not empty, with dots between."""
    return ".".join(name for name in names if name)


# ---- sections


@dataclass(frozen=True, slots=True)
class _Sections:
    """To which section of a block each forward operator belongs."""

    names: tuple[str, ...]
    place: Mapping[str, int]

    def section_of(self, operator: Operator) -> int:
        """Return the section of an operator, or of the one whose gradients it makes."""
        return self.place.get(_forward_operator_of(operator), 0)


def _section_name(members: Iterable[Operator]) -> str:
    kinds = {operator.kind: operator.name for operator in members}
    return kinds.get("attention", "experts" if "dispatch" in kinds else "ffn")


def _forward_operator_of(operator: Operator) -> str:
    """Return the name of the forward operator whose gradients an operator makes, or its own."""
    if operator.phase == "forward":
        return operator.name
    name, dot, part = operator.name.removeprefix("d_").rpartition(".")
    return name if dot and part.isdigit() else operator.name.removeprefix("d_")


@dataclass(slots=True)
class _ReversedOperators:
    """Forward operators, let out last to first: each when the first backward operator that belongs to it is met.

    Some have none of their own (a sum hands its gradient on) but are charged for all the same: they go with the next.
    """

    waiting: list[Operator]

    def reach(self, operator: Operator) -> Iterator[Operator]:
        """Yield the forward operators that a backward *operator* differentiates, once gradients are summed."""
        name, adding = _forward_operator_of(operator), operator.kind == "add"
        if not any(waiting_operator.name == name for waiting_operator in self.waiting):
            return
        while self.waiting[-1].name != name:
            yield self.waiting.pop()
        if not adding:
            yield self.waiting.pop()

    def rest(self) -> Iterator[Operator]:
        """Yield the forward operators without a backward operator."""
        while self.waiting:
            yield self.waiting.pop()


# ---- Tapes: the nodes of one task of a pipeline stage, as rows that repeat for every microbatch

NEXT, PREVIOUS, RING_NEXT, RING_PREVIOUS = range(4)
"""Indices of a rank's peers: on the neighbouring stages, and in the ring that passes keys and values. Those beside it
along the axes of collective-permutes follow, two for each kind: the next, and the one before."""
PEERS = 4
PERMUTE = "collective_permute"
COLLECTIVE_TYPES = {
    "all_reduce": CollectiveType.ALL_REDUCE,
    "all_gather": CollectiveType.ALL_GATHER,
    "reduce_scatter": CollectiveType.REDUCE_SCATTER,
    "all_to_all": CollectiveType.ALL_TO_ALL,
}
OVERLAPPED, EXPOSED = 0, 1
"""Priorities of communication: exposed communication goes first."""


class TapeRow(NamedTuple):
    """One node without its dependencies."""

    name: str
    type: int
    seconds: float
    num_ops: int = ABSENT
    tensor_size: int = ABSENT
    comm_type: int = ABSENT
    comm_size: int = ABSENT
    comm_tag: int = ABSENT
    group: int = ABSENT
    peer: int = ABSENT
    comm_priority: int = 0


def compute_row(run: ComputeRun, name: str) -> TapeRow:
    """Return the node of a run of compute; simulators divide by both of its sizes, so neither is 0."""
    return TapeRow(
        name, NodeType.COMP, run.seconds, num_ops=max(1, round(run.flop)), tensor_size=max(1, round(run.bytes))
    )


def collective_row(
    call: TracedCollective, name: str, groups: Sequence[tuple[str, ...]], priority: int = OVERLAPPED
) -> TapeRow:
    """Return the node of a collective; the size of an all-gather is one rank's shard."""
    size = call.bytes / call.members if call.kind == "all_gather" else call.bytes
    return TapeRow(
        f"{name}.{call.kind}",
        NodeType.COMM_COLL,
        call.seconds,
        comm_type=COLLECTIVE_TYPES[call.kind],
        comm_size=max(1, round(size)),
        group=groups.index(call.axes),
        comm_priority=priority,
    )


@dataclass(slots=True)
class TaskTape:
    """The rows of a task."""

    rows: list[TapeRow] = field(default_factory=list)
    data: list[tuple[int, int]] = field(default_factory=list)
    """Data dependencies: pairs of a row and the row that it reads."""
    control: list[tuple[int, int]] = field(default_factory=list)
    """Control dependencies: pairs of a row and the row that it follows."""
    early: list[int] = field(default_factory=list)
    """Gathers that may start in the task before."""
    heads: list[int] = field(default_factory=list)
    """Rows that depend on the receive and on the end of the task before."""
    tail: list[int] = field(default_factory=list)
    """Rows that end the task."""
    receive: int | None = None
    send: int | None = None
    ends: list[tuple[int, ...]] = field(default_factory=list)
    """Rows that end each block."""
    took: list[float] = field(default_factory=list)
    """Seconds that each block computes."""
    reduced: list[int] = field(default_factory=list)
    """Rows that reduce gradients."""
    begun: dict[str, int] = field(default_factory=dict)
    """The first step of each block."""
    made: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """The rows that complete the gradients of each block."""
    apart_s: float = 0.0
    """Seconds of the other half of a split backward pass, which overlaps reductions as well."""
    loads: list[int] = field(default_factory=list)
    """Rows that fetch outer state, the first of those that a ring of buffers has room for."""
    waiting: list[tuple[int, int]] = field(default_factory=list)
    """Rows that take a buffer of a task before, and of which block: so many before the first that takes one here."""
    stores: list[int] = field(default_factory=list)
    """Rows that bring state of the task's blocks to outer tiers."""
    freed: list[tuple[int, ...]] = field(default_factory=list)
    """The rows after which the buffer of each block that moves outer state is free."""
    offload: int | None = None
    rings: int = 0
    """Number of exchanges with neighbours: rings of keys and values, and collective-permutes."""


@dataclass(frozen=True, slots=True)
class PassPace:
    """How one pass through a part of the model goes, beside what its nodes take alone."""

    slowdown: float = 1.0
    """How many times longer compute takes: it waits for the host, and gives SMs and bandwidth to communication."""
    exposed: Mapping[Role, float] = field(default_factory=dict)
    """Share of blocking collectives that compute waits for, 1 where nothing is said."""
    efficiency: float = 1.0
    """Share of what is reduced and gathered once a step that compute can hide."""


class TierTransfers(NamedTuple):
    """What a block moves between the accelerator and outer tiers in one pass: seconds and bytes, in and out."""

    load_s: float
    load_bytes: float
    store_s: float
    store_bytes: float
    shards: bool = False
    """Whether what comes are weights alone: once shards are gathered, their buffer is free."""


@dataclass(slots=True)
class TapeRecorder:
    """Writes a tape."""

    groups: Sequence[tuple[str, ...]]
    pace: PassPace
    permuted: Sequence[tuple[str, ...]] = ()
    """The axes of each kind of collective-permute."""
    outer: Mapping[str, TierTransfers] = field(default_factory=dict)
    """What blocks move between the accelerator and outer tiers of memory, by label."""
    resident: int = 2
    """Blocks whose outer state is on the accelerator at a time."""
    tape: TaskTape = field(default_factory=TaskTape)
    late: list[tuple[str, FetchUnit, tuple[int, ...]]] = field(default_factory=list)
    """Reductions to write after the next unit, whose exposed communication goes first."""

    def add(self, row: TapeRow, reads: Iterable[int]) -> int:
        """Write one row; return its index."""
        row_index = len(self.tape.rows)
        self.tape.rows.append(row)
        self.tape.data += [(row_index, read) for read in reads]
        return row_index

    def link(self, row: TapeRow, reads: Iterable[int] = ()) -> int:
        """Write the next row of the chain."""
        row_index = self.add(row, (*self.tape.tail, *reads))
        if not self.tape.heads:
            self.tape.heads = [row_index]
        self.tape.tail = [row_index]
        return row_index

    # ---------------------------------------------------------------------------------------------- messages

    def receive(self, call: TracedCollective, peer: int, tag: int, name: str) -> None:
        """Write the receive of the task's input."""
        size = max(1, round(call.bytes))
        row = TapeRow(f"{name}.receive", NodeType.COMM_RECV, 0.0, comm_size=size, comm_tag=tag, peer=peer)
        self.tape.receive = self.add(row, ())

    def send(self, call: TracedCollective, peer: int, tag: int, name: str) -> None:
        """Write the send of the task's output."""
        size = max(1, round(call.bytes))
        row = TapeRow(f"{name}.send", NodeType.COMM_SEND, call.seconds, comm_size=size, comm_tag=tag, peer=peer)
        row = row._replace(comm_priority=EXPOSED)
        self.tape.send = self.add(row, self.tape.tail)
        if not self.tape.heads:
            self.tape.heads = [self.tape.send]

    def ring(self, call: TracedCollective, name: str, before: Sequence[int]) -> tuple[int, int]:
        """Write the send of keys and values to the next rank of the ring, and the receive from the previous one."""
        size = max(1, round(call.bytes))
        tag = self.tape.rings
        self.tape.rings += 1
        back = TapeRow(
            f"{name}.ring.receive", NodeType.COMM_RECV, 0.0, comm_size=size, comm_tag=tag, peer=RING_PREVIOUS
        )
        out = back._replace(name=f"{name}.ring.send", type=NodeType.COMM_SEND, seconds=call.seconds, peer=RING_NEXT)
        return self.add(out._replace(comm_priority=EXPOSED), before), self.add(back, before)

    def permute(self, call: TracedCollective, name: str) -> None:
        """Write a collective-permute that what follows waits for."""
        paced = replace(call, seconds=call.seconds * self.pace.exposed.get(call.role, 1.0))
        both = self.neighbours(paced, name, tuple(self.tape.tail), EXPOSED)
        self.tape.heads = self.tape.heads or both
        self.tape.tail = both

    def neighbours(self, call: TracedCollective, name: str, before: Sequence[int], priority: int) -> list[int]:
        """Write a collective-permute: every rank sends to the next along its axes, and waits for the one before.

        Of boundary rows the first and the last shard have one neighbour only; here they exchange theirs too.
        """
        peer = PEERS + 2 * self.permuted.index(call.axes)
        size, tag = max(1, round(call.bytes)), self.tape.rings
        self.tape.rings += 1
        back = TapeRow(f"{name}.permute.receive", NodeType.COMM_RECV, 0.0, comm_size=size, comm_tag=tag, peer=peer + 1)
        out = back._replace(name=f"{name}.permute.send", type=NodeType.COMM_SEND, seconds=call.seconds, peer=peer)
        return [self.add(out._replace(comm_priority=priority), before), self.add(back, before)]

    # ------------------------------------------------------------------------------------------------ blocks

    def block(self, label: str, units: Sequence[FetchUnit], work: TaskKind) -> None:
        """Write the units of a block for one kind of task."""
        tape, seconds = self.tape, 0.0
        moved = self.outer.get(label) if work != "W" else None
        loaded: list[int] = []
        gathered: list[int] = []
        for unit in units:
            # The steps of a unit in one kind of task
            chain = {"F": unit.steps, "B": unit.steps, "W": unit.weights, "BW": (*unit.steps, *unit.weights)}[work]
            if not chain:
                continue
            if moved and label not in tape.begun:
                loaded = self.load(label, moved)
            new = [self.gather(call, label, loaded) for call in unit.gathers] if work != "W" else []
            gathered += new
            if label not in tape.begun:
                tape.begun[label] = len(tape.rows)
                if moved and moved.store_s and not loaded:
                    self.take_buffer(tape.begun[label])  # what leaves is written there
            self.chain(label, chain, [*new, *loaded])
            self.flush()
            if unit.reduces and work in ("W", "BW"):
                self.late.append((label, unit, tuple(tape.tail)))
            seconds += self.pace.slowdown * sum(step.seconds for step in chain if isinstance(step, ComputeRun))
        if label in tape.begun:
            tape.ends.append(tuple(tape.tail))
            tape.took.append(seconds)
            tape.made[label] = (*tape.made.get(label, ()), *tape.tail)
            if moved and (moved.load_s or moved.store_s):
                early = self.resident > 1 and loaded and gathered and moved.shards
                stored = self.store(label, moved)
                tape.freed.append(tuple(gathered) if early else stored or tape.ends[-1])

    def load(self, label: str, moved: TierTransfers) -> list[int]:
        """Write what brings a block's outer state in, once there is a buffer for it; return its row."""
        if not moved.load_s:
            return []
        size = max(1, round(moved.load_bytes))
        row = self.add(TapeRow(f"{label}.load", NodeType.MEM_LOAD, moved.load_s, tensor_size=size), ())
        if len(self.tape.freed) < self.resident:
            self.tape.loads.append(row)
        self.take_buffer(row)
        return [row]

    def take_buffer(self, load: int) -> None:
        """Make a row wait for its buffer: that of the block so many before it as there are, of those that take one."""
        tape = self.tape
        if len(tape.freed) >= self.resident:
            tape.control += [(load, row) for row in tape.freed[-self.resident]]
        else:
            tape.waiting.append((load, self.resident - len(tape.freed)))

    def store(self, label: str, moved: TierTransfers) -> tuple[int, ...]:
        """Write what takes a block's state out; return its row."""
        if not moved.store_s:
            return ()
        size = max(1, round(moved.store_bytes))
        row = TapeRow(f"{label}.store", NodeType.MEM_STORE, moved.store_s, tensor_size=size)
        row_index = self.add(row, self.tape.tail)
        self.tape.stores.append(row_index)
        return (row_index,)

    def chain(self, label: str, steps: Sequence[ComputeRun | TracedCollective], fetched: Sequence[int]) -> None:
        """Write a chain of steps; the first that computes reads the *fetched* weights."""
        for step, turn in unroll_turns(steps):
            name, before = f"{label}.{step.name}{turn}", tuple(self.tape.tail)
            if isinstance(step, TracedCollective) and step.kind == PERMUTE:
                self.permute(step, name)
                continue
            if isinstance(step, TracedCollective):
                row = collective_row(step, name, self.groups, EXPOSED)
                self.link(row._replace(seconds=row.seconds * self.pace.exposed.get(step.role, 1.0)))
                continue
            run = compute_row(step, name)
            run_row = self.link(run._replace(seconds=run.seconds * self.pace.slowdown), fetched)
            fetched = ()
            if step.beside:
                self.tape.tail = [run_row, *self.ring(step.beside, name, before)]

    def gather(self, call: TracedCollective, label: str, loaded: Sequence[int]) -> int:
        """Write the all-gather of a block's weights, which has each rank's shard when it is *loaded*."""
        tape = self.tape
        row = self.add(collective_row(call, f"{label}.{call.name}", self.groups), loaded)
        if len(tape.ends) >= FETCHED_AHEAD:
            tape.control += [(row, end) for end in tape.ends[-FETCHED_AHEAD]]
        else:
            tape.early.append(row)
        return row

    def flush(self) -> None:
        """Write the pending reductions."""
        for label, unit, gradients in self.late:
            rows: list[int] = []
            for call in unit.reduces:
                name = f"{label}.{call.name}"
                if call.kind == PERMUTE:
                    rows += self.neighbours(call, name, gradients, OVERLAPPED)
                else:
                    rows.append(self.add(collective_row(call, name, self.groups), gradients))
            self.tape.reduced += rows
            self.tape.made[label] = (*self.tape.made.get(label, ()), *rows)
        self.late.clear()


def unroll_turns(steps: Sequence[ComputeRun | TracedCollective]) -> Iterator[tuple[ComputeRun | TracedCollective, str]]:
    """Yield the steps of a chain as they follow each other, with the number of the turn in names of recurrences."""
    for count, part in iterate_turns(steps):
        for turn in range(count):
            yield from ((step, f".{turn}" if count > 1 else "") for step in part)


def units_of(piece: Piece, work: TaskKind) -> tuple[FetchUnit, ...]:
    """Return the units of a block in one kind of task."""
    return piece.forward if work == "F" else piece.backward


Floats = npt.NDArray[np.float64]
NUMBERS = ("type", "num_ops", "tensor_size", "comm_type", "comm_size", "comm_tag", "group", "peer", "comm_priority")
TAG = NUMBERS.index("comm_tag")


@dataclass(frozen=True, slots=True)
class Layer:
    """A block at its place in the model."""

    label: str
    piece: Piece


@dataclass(frozen=True, slots=True)
class TracePlan:
    """What all stages of a job share."""

    parts: tuple[tuple[Layer, ...], ...]
    """The layers of each virtual stage, from the model's input on."""
    groups: tuple[tuple[str, ...], ...]
    """The axes of each kind of communicator group."""
    permuted: tuple[tuple[str, ...], ...]
    """The axes of each kind of collective-permute."""
    passed: TracedCollective | None
    """The message from stage to stage."""
    stages: int
    microbatches: int
    newest_first: bool
    training: bool
    updates: dict[str, ComputeRun]
    """The optimizer's work for each block, by label."""
    paces: tuple[Mapping[str, PassPace], ...]
    """How both passes go, for each part."""
    offloaded_states: tuple[float, float] = (0.0, 0.0)
    """Seconds and bytes of the update's traffic with outer memory tiers."""
    exchange_latency_s: float = 0.0
    """Of an exchange of parameters between islands, its mean over the steps between two of them."""
    offloaded: tuple[float, float] = (0.0, 0.0)
    """Seconds and bytes of each task's traffic with outer memory tiers."""
    outer: Mapping[str, Mapping[str, TierTransfers]] = field(default_factory=dict)
    """What blocks move between the accelerator and outer tiers, by pass and label, if it is fetched a layer ahead."""
    resident: int = 2
    """Blocks whose outer state is on the accelerator at a time."""
    gradients_out: tuple[float, float] = (0.0, 0.0)
    """Seconds and bytes of a stage's gradients on their way to the host's processor, once a step."""
    follows: bool = False
    """Whether a step follows another like it, which has fetched the first blocks."""


@dataclass(frozen=True)
class TapeArrays:
    """A tape as arrays."""

    tape: TaskTape
    passing: bool
    """Whether it has messages between stages: their tags depend on the microbatch."""

    @cached_property
    def names(self) -> list[str]:
        """Names of the rows."""
        return [row.name for row in self.tape.rows]

    @cached_property
    def numbers(self) -> Ints:
        """The columns `NUMBERS` of the rows."""
        return _rows_as_numbers(self.tape.rows)

    @cached_property
    def seconds(self) -> Floats:
        """Seconds of the rows."""
        return np.array([row.seconds for row in self.tape.rows])

    @cached_property
    def data(self) -> Ints:
        """Data dependencies, as pairs of rows."""
        return np.array(self.tape.data, np.int64).reshape(-1, 2)

    @cached_property
    def control(self) -> Ints:
        """Control dependencies, as pairs of rows."""
        return np.array(self.tape.control, np.int64).reshape(-1, 2)

    @cached_property
    def rings(self) -> list[int]:
        """Rows that exchange something with neighbours: keys and values in a ring, or boundary rows."""
        ends = (self.tape.receive, self.tape.send)
        tagged = np.flatnonzero(self.numbers[:, TAG] != ABSENT).tolist() if self.tape.rings else []
        return [row for row in tagged if row not in ends]


def _rows_as_numbers(rows: Sequence[TapeRow]) -> Ints:
    return np.array([[getattr(row, name) for name in NUMBERS] for row in rows], np.int64).reshape(-1, len(NUMBERS))


@dataclass
class StageTrace:
    """Writes the trace of one stage."""

    plan: TracePlan
    stage: int
    tapes: dict[tuple[int, TaskKind, bool], TapeArrays] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    numbers: list[Ints] = field(default_factory=list)
    seconds: list[Floats] = field(default_factory=list)
    data: list[Ints] = field(default_factory=list)
    control: list[Ints] = field(default_factory=list)
    count: int = 0
    rings: int = 0
    passed: list[tuple[tuple[int, ...], float]] = field(default_factory=list)
    """The rows that end every block so far, and the seconds that it computes."""
    pending: tuple[list[int], float] = ([], 0.0)
    """Reductions of the task before, and the seconds of compute that may still overlap them."""
    made: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """The rows that complete each block's gradients of the latest microbatch."""
    begun: dict[str, int] = field(default_factory=dict)
    """The first step of each block's first forward pass."""
    opened: set[int] = field(default_factory=set)
    """Virtual stages whose first forward pass was written."""
    freed: list[tuple[int, ...]] = field(default_factory=list)
    """The rows after which the buffer of each block so far that moves outer state is free."""
    stored: tuple[int, ...] = ()
    """The latest of the rows that bring state of blocks to outer tiers."""
    moved: tuple[int, ...] = ()
    """The latest task's traffic with outer memory tiers, which ends after that of all tasks before."""

    def write(self, tasks: Sequence[PipelineTask], detached: Iterable[int] = ()) -> tuple[Template, Floats]:
        """Return the nodes of the stage and their seconds; the input of *detached* tasks was sent before the step."""
        held = self.held(tasks)
        postponed = self.find_postponed(held) if self.plan.training else set()
        apart, pair = set(detached), None
        for index, task in enumerate(tasks):
            last = self.task(task, received=index not in apart)
            self.open(task, postponed)
            if pair is not None:
                self.join(pair, last)
            pair = last if task.with_next else None
        if self.plan.training:
            self.close([layer for layer in reversed(held) if layer.label not in postponed])
        return self.template(), np.concatenate(self.seconds) if self.seconds else np.zeros(0)

    def held(self, tasks: Sequence[PipelineTask]) -> list[Layer]:
        """Return the layers of the stage, in the order of the model."""
        parts = sorted({task.virtual_stage(self.stage, self.plan.stages) for task in tasks})
        return [layer for part in parts for layer in self.plan.parts[part]]

    # ------------------------------------------------------------------------------------------------ tasks

    def task(self, task: PipelineTask, received: bool) -> tuple[int, TapeArrays]:
        """Write one task; return where it starts."""
        compiled = self.compiled(task)
        tape, start = compiled.tape, self.count
        numbers = compiled.numbers
        if compiled.passing or tape.rings:
            numbers = numbers.copy()
            for row in (tape.receive, tape.send):
                if row is not None:
                    numbers[row, TAG] += task.microbatch * 2 * len(self.plan.parts)
            numbers[compiled.rings, TAG] += self.plan.microbatches * 2 * len(self.plan.parts) + self.rings
            self.rings += tape.rings
        prefix = f"mb{task.microbatch}."
        self.append([prefix + name for name in compiled.names], numbers, compiled.seconds)
        data = compiled.data
        if self.plan.follows and not self.passed and tape.loads:  # the step before has fetched the first blocks
            data = data[~np.isin(data[:, 1], tape.loads)]
        self.data.append(data + start)
        self.control.append(compiled.control + start)
        self.connect(tape, start, received)
        self.advance(tape, start, task.kind)
        self.moved = self.moved if tape.offload is None else (start + tape.offload,)
        return start, compiled

    def connect(self, tape: TaskTape, start: int, received: bool) -> None:
        """Make a task depend on its receive and on the task before, and its overlapped communication on both."""
        before = self.passed[-1][0] if self.passed else ()
        self.after(self.control, ((start + head, row) for head in tape.heads for row in before))
        if tape.receive is not None and received:
            receive = tape.receive
            self.after(self.data, ((start + head, start + receive) for head in tape.heads if head != receive))
        for row, back in tape.waiting:
            if back <= len(self.freed):
                self.after(self.control, ((start + row, end) for end in self.freed[-back]))
        if tape.early:
            gate = self.gate(tape.took[-1])
            self.after(self.control, ((start + row, end) for row in tape.early for end in gate))
        self.settle(tape, start)

    def gate(self, seconds: float) -> tuple[int, ...]:
        """Return the rows after which about *seconds* of compute remain before the next task."""
        for ends, task_s in reversed(self.passed):
            if seconds < task_s / 2:
                return ends
            seconds -= task_s
        return ()

    def settle(self, tape: TaskTape, start: int) -> None:
        """Make this task wait for the reductions of the task before once its compute has overlapped enough of them."""
        rows, seconds = self.pending
        for begun, pass_s in zip(tape.begun.values(), tape.took, strict=True):
            if rows and seconds < pass_s / 2:
                self.after(self.control, ((start + begun, row) for row in rows))
                rows = []
            seconds -= pass_s
        self.pending = rows, seconds
        if tape.reduced:
            self.pending = [*rows, *(start + row for row in tape.reduced)], tape.took[0] + tape.apart_s

    def advance(self, tape: TaskTape, start: int, work: TaskKind) -> None:
        """Record the blocks that the task began, ended and made gradients of."""
        if work == "F":
            for label, row in tape.begun.items():
                self.begun.setdefault(label, start + row)
        else:
            self.made |= {label: tuple(start + row for row in rows) for label, rows in tape.made.items()}
        ends = tape.ends or [tuple(tape.tail)][: len(tape.tail)]  # a stage without layers only forwards
        moved = [tuple(start + row for row in rows) for rows in ends]
        self.passed += zip(moved, tape.took or [0.0] * len(moved), strict=True)
        self.freed += [tuple(start + row for row in rows) for rows in tape.freed]
        self.stored = (start + tape.stores[-1],) if tape.stores else self.stored

    def join(self, first: tuple[int, TapeArrays], second: tuple[int, TapeArrays]) -> None:
        """Make two overlapped tasks start together and end together."""
        (start, before), (follows, after) = first, second
        if after.tape.receive is not None:
            arrival = follows + after.tape.receive
            self.after(self.data, ((start + head, arrival) for head in before.tape.heads))
        if before.tape.send is not None:
            sent = start + before.tape.send
            self.after(self.control, ((sent, follows + row) for row in after.tape.tail))

    def compiled(self, task: PipelineTask) -> TapeArrays:
        """Return the tape of a task."""
        part = task.virtual_stage(self.stage, self.plan.stages)
        key = (part, task.kind, task.reverse)
        if key not in self.tapes:
            self.tapes[key] = self.record(part, task)
        return self.tapes[key]

    def record(self, part: int, task: PipelineTask) -> TapeArrays:
        """Write the tape of a task."""
        plan, forward = self.plan, task.kind == "F"
        phase = "forward" if forward else "backward"
        pace = plan.paces[part][phase]
        recorder = TapeRecorder(plan.groups, pace, plan.permuted, plan.outer.get(phase, {}), plan.resident)
        last = len(plan.parts) - 1
        call = plan.passed if plan.stages > 1 and task.kind != "W" else None
        onward, back = (PREVIOUS, NEXT) if task.reverse else (NEXT, PREVIOUS)
        name = "activations" if forward else "gradients"
        if call and part != (0 if forward else last):
            tag = 2 * (part - 1) if forward else 2 * part + 1
            recorder.receive(call, back if forward else onward, tag, name)
        if plan.offloaded[0] and task.kind != "W":
            self.record_offload(recorder, forward)
        layers = plan.parts[part]
        for layer in layers if forward else reversed(layers):
            recorder.block(layer.label, units_of(layer.piece, task.kind), task.kind)
        recorder.flush()
        if task.kind == "W":
            recorder.tape.apart_s = sum(recorder.tape.took)
        if call and part != (last if forward else 0):
            tag = 2 * part if forward else 2 * (part - 1) + 1
            recorder.send(call, onward if forward else back, tag, name)
        if not recorder.tape.tail and recorder.tape.receive is not None:
            recorder.tape.tail = [recorder.tape.receive]
        return TapeArrays(recorder.tape, call is not None)

    def record_offload(self, recorder: TapeRecorder, forward: bool) -> None:
        """Write a task's traffic with outer memory tiers: no task waits for it, but the update does."""
        seconds, size = self.plan.offloaded
        stores = forward and self.plan.training
        kind, name = (NodeType.MEM_STORE, "store") if stores else (NodeType.MEM_LOAD, "load")
        row = recorder.add(TapeRow(f"offload.{name}", kind, seconds, tensor_size=max(1, round(size))), ())
        recorder.tape.offload = row

    # ---------------------------------------------------------------------------------------- once a step

    def find_postponed(self, held: Sequence[Layer]) -> set[str]:
        """Return the blocks whose reduction extends into the next step, if the newest always goes first."""
        if not self.plan.newest_first:
            return set()
        waiting: list[tuple[str, float]] = []
        now = free = 0.0
        for layer in reversed(held):
            now += layer.piece.backward_s
            while waiting and free < now:
                free += waiting.pop()[1]
            free = max(free, now)
            waiting.append((layer.label, self.efficiency * sum(call.seconds for call in layer.piece.reduces)))
        if waiting and free <= now:
            waiting.pop()
        return {label for label, seconds in waiting if seconds}

    def open(self, task: PipelineTask, postponed: set[str]) -> None:
        """Write what the step before left to a virtual stage, beside its first forward pass.

        Updated weights, and reductions that the last backward pass did not overlap. Their rows follow those of the
        pass, which depends on them, so that its other dependencies go first.
        """
        part = task.virtual_stage(self.stage, self.plan.stages)
        if not self.plan.training or part in self.opened:
            return
        self.opened.add(part)
        layers = self.plan.parts[part]
        late = [call for layer in layers if layer.label in postponed for call in layer.piece.reduces]
        rest = self.rest([*late, *(call for layer in layers for call in layer.piece.updates)], "previous", ())
        for layer in layers:
            label, ready = f"previous.{layer.label}", rest
            if layer.label in postponed:
                ready = (self.update(layer, label, self.overlapped(layer.piece.reduces, label, ready) or ready),)
            ready = self.overlapped(layer.piece.updates, label, ready, layer.piece.held_up[1]) or ready
            self.after(self.data, ((self.begun[layer.label], row) for row in ready))

    def close(self, layers: Sequence[Layer]) -> None:
        """Write the reductions and updates of *layers*, which are in the order of the backward pass.

        Weights are updated when all gradients are reduced, and passes have had their traffic with outer tiers.
        """
        reduced: dict[str, tuple[int, ...]] = {}
        calls = [call for layer in layers for call in layer.piece.reduces]
        for layer in reversed(layers) if self.plan.newest_first else layers:
            gradients = self.made.get(layer.label, ())  # none of a block that is frozen and has no gradients to pass on
            rows = self.overlapped(layer.piece.reduces, layer.label, gradients, layer.piece.held_up[0])
            reduced[layer.label] = rows or gradients
        last = self.passed[-1][0] if self.passed else ()
        rows = tuple(row for rows_of_layer in reduced.values() for row in rows_of_layer)
        before = (*dict.fromkeys((*rows, *self.moved, *last, *self.stored)),)
        before = self.rest(calls, "all", before) or before
        before = self.send_gradients(layers, reduced, before)
        seconds, size = self.plan.offloaded_states
        if seconds:
            self.write_row(
                TapeRow("optimizer.load", NodeType.MEM_LOAD, seconds, tensor_size=max(1, round(size))), before
            )
        for layer in layers:
            before = (self.update(layer, layer.label, before),)
        for call in merge_collectives((call for layer in layers for call in layer.piece.exchanged), "parameters"):
            longer = self.plan.exchange_latency_s if call.kind == "all_reduce" else 0.0
            row = collective_row(replace(call, seconds=call.seconds + longer), call.name, self.plan.groups, EXPOSED)
            before = (self.write_row(row, before),)

    def send_gradients(
        self, layers: Sequence[Layer], reduced: Mapping[str, tuple[int, ...]], before: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Write what brings the gradients of each layer to the host's processor, as soon as they are *reduced*."""
        seconds, size = self.plan.gradients_out
        elements = sum(layer.piece.elements for layer in layers)
        if not seconds or not elements:
            return before
        rows = []
        for layer in layers:
            share = layer.piece.elements / elements
            name, moved = f"{layer.label}.gradients.store", max(1, round(size * share))
            row = TapeRow(name, NodeType.MEM_STORE, seconds * share, tensor_size=moved)
            rows.append(self.write_row(row, reduced[layer.label]))
        return (*before, *rows)

    @property
    def efficiency(self) -> float:
        """The share of the collectives of weights and gradients that runs beside compute."""
        return self.plan.paces[0]["backward"].efficiency

    def rest(self, calls: Iterable[TracedCollective], label: str, before: Iterable[int]) -> tuple[int, ...]:
        """Write what of some collectives nothing overlaps, those of one kind and group as one."""
        share = 1 - self.efficiency
        shares = [call.share(share) for call in merge_collectives(calls, "rest")] if share else []
        rows = [collective_row(call, f"{label}.{call.name}", self.plan.groups, EXPOSED) for call in shares]
        return tuple(self.write_row(row, before) for row in rows)

    def update(self, layer: Layer, label: str, before: Iterable[int]) -> int:
        """Write the update of a block's weights."""
        return self.write_row(compute_row(self.plan.updates[layer.label], f"{label}.optimizer"), before)

    def overlapped(
        self, calls: Iterable[TracedCollective], label: str, before: Iterable[int], held_up: float = 1.0
    ) -> tuple[int, ...]:
        """Write the share of collectives that runs beside compute."""
        shares = [call.share(self.efficiency) for call in calls] if self.efficiency else []
        rows = [collective_row(call, f"{label}.{call.name}", self.plan.groups, OVERLAPPED) for call in shares]
        return tuple(self.write_row(row._replace(seconds=row.seconds * held_up), before) for row in rows)

    def write_row(self, row: TapeRow, before: Iterable[int]) -> int:
        """Write a single row."""
        row_index = self.count
        self.append([row.name], _rows_as_numbers([row]), np.array([row.seconds]))
        self.after(self.data, ((row_index, earlier) for earlier in before))
        return row_index

    # ---------------------------------------------------------------------------------------------- columns

    def append(self, names: list[str], numbers: Ints, seconds: Floats) -> None:
        """Add rows."""
        self.names += names
        self.numbers.append(numbers)
        self.seconds.append(seconds)
        self.count += len(names)

    @staticmethod
    def after(kind: list[Ints], pairs: Iterable[tuple[int, int]]) -> None:
        """Add dependencies: pairs of a row and one that comes before it."""
        dependencies = list(pairs)
        if dependencies:
            kind.append(np.array(dependencies, np.int64))

    def template(self) -> Template:
        """Return the rows as a template; ids are row numbers."""
        numbers = np.concatenate(self.numbers) if self.numbers else np.zeros((0, len(NUMBERS)), np.int64)
        columns = {name: numbers[:, index].copy() for index, name in enumerate(NUMBERS)}
        seconds = np.concatenate(self.seconds) if self.seconds else np.zeros(0)
        computes = columns["type"] == NodeType.COMP
        columns["id"] = np.arange(self.count, dtype=np.int64)
        columns["duration_us"] = np.where(computes, np.maximum(1, np.rint(seconds * 1e6)), 0).astype(np.int64)
        columns["on_cpu"] = np.zeros(self.count, np.int64)
        for name in ("involved_dims", *RECORDED):
            columns[name] = np.full(self.count, ABSENT, np.int64)
        for name, pairs in (("data", self.data), ("ctrl", self.control)):
            both = np.concatenate(pairs) if pairs else np.zeros((0, 2), np.int64)
            both = both[np.lexsort((both[:, 1], both[:, 0]))]
            columns[f"{name}_start"], columns[f"{name}_id"] = (
                np.searchsorted(both[:, 0], np.arange(self.count + 1)).astype(np.int64),
                both[:, 1].copy(),
            )
        return Template(**columns, names=self.names, kernels=(), process_groups={})
