"""A block of the model, cut into pieces: runs of compute, blocking collectives, and overlapped collectives.

The partitioned graph of a block is a list of operators with collectives before and after them. Here it is cut into
*sections* (attention, feed-forward, …: each ends where the residual stream is written), and each section into *runs*:
the compute between two blocking collectives. The collectives of weights and their gradients are merged for each
*unit*: a block or, where it has blocking collectives inside, a section, because one long transfer would delay them.
Seconds are those of the step's profile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from cosmic.design.workload_layer import Workload
from cosmic.step.block_memory import repeated_operators, replica_axes, weight_elements
from cosmic.step.communication import BLOCKING, CollectiveUse, CommunicationKind, Role, order_axes
from cosmic.step.network_costs import NetworkCosts
from cosmic.step.operator_work import OperatorUse
from cosmic.step.stage_time import Communicated, block_times
from cosmic.step.step_profile import OperatorCost, StepProfile
from cosmic.workload.block_plans import BlockPlan, plan_of
from cosmic.workload.lora_adapters import trained_weights, trains_adapters, weight_gradient_share
from cosmic.workload.mesh_sizes import exchanges_apart, sizes_of
from cosmic.workload.operator_graph import Operator
from cosmic.workload.sharding.graph_partition import CollectiveOp
from cosmic.workload.sharding.resharding import COLLECTIVES
from cosmic.workload.strategy_tables import STREAM

# ---- What a block of the model is cut into: runs of compute, collectives, and the units that they form


@dataclass(frozen=True, slots=True)
class TracedCollective:
    """One collective, or one round of messages, among the ranks along some mesh axes."""

    name: str
    kind: CommunicationKind
    axes: tuple[str, ...]
    """Those of dense layers, or those of experts: see `cosmic.workload.strategy_tables`."""
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
    used_axes = use.axes if exchanges_apart(profile.batch.base.workload) else tuple(axes)
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
        split = workload.weight_sharding != "none"
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
