"""A block of the model as steps: runs of compute, the collectives that they wait for, and those that hide.

The partitioned graph of a block is a list of operators with collectives before and after them. Here it is cut into
*sections* (attention, feed-forward, …: each ends where the residual stream is written), and each section into *runs*:
as much compute as fits between two collectives that somebody waits for. What weights alone need (gathering them,
scattering their gradients) is put together for each *unit*: a block or, where compute waits for collectives inside
it, a section, because one long transfer would hold up what is waited for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cosmic.design.batch import Batch
from cosmic.step.activations import weight_elements
from cosmic.step.communication import CollectiveUse, collectives
from cosmic.step.compute import OperatorUse, operators
from cosmic.step.costs import Prices
from cosmic.step.recomputation import repeated
from cosmic.traces.generation.pieces import Piece, Run, Talk, Unit, in_one_buffer, merged
from cosmic.workload.graph import Operator
from cosmic.workload.plan import BlockPlan, plan
from cosmic.workload.sharding import CollectiveOp, Transfer
from cosmic.workload.sharding.resharding import COLLECTIVES
from cosmic.workload.sizes import sizes_of
from cosmic.workload.strategies import STREAM, strategies_of

MESH = ("tp", "cp", "ep", "edp", "pp")
REPLICAS = ("edp", "ep", "cp")
WEIGHT_SHARE = 0.5
"""Of a backward pass, what makes the gradients of weights, as schedules that split it are told."""


def pieces(batch: Batch, prices: Prices) -> tuple[tuple[Piece, ...], Talk | None]:
    """Return the blocks of a design, in order, and what one stage sends to the next for a microbatch."""
    workload = batch.base.workload
    training = workload.task == "training"
    planned = plan(batch.base.model, strategies_of(workload), training, workload.dropout)
    uses = collectives(batch)
    passed = next((_talk("x", ("pp",), use, prices) for use in uses if use.kind == "send"), None)
    by_block = {each.block.name: [use for use in uses if use.block == each.block.name] for each in planned}
    work: dict[tuple[str, str, str], OperatorUse] = {(use.block, use.name, use.phase): use for use in operators(batch)}
    common = _common_weights(planned)
    late = {phase: _late(planned, phase, list(work.values()), uses, prices) for phase in ("forward", "backward")}
    return tuple(
        _Cutter(batch, prices, each, work, by_block[each.block.name], late).piece(common) for each in planned
    ), passed


def _late(
    planned: Sequence[BlockPlan], phase: str, work: Sequence[OperatorUse], uses: Sequence[CollectiveUse], prices: Prices
) -> float:
    """Return how much longer operators take where the host launches them more slowly than the device runs them.

    When it launches those of the head, the device still has others to run.
    """
    repeats = {each.block.name: each.block.repeats for each in planned}
    ahead = "head" if phase == "forward" else ""
    mine = [(use, repeats[use.block]) for use in work if use.phase == phase and use.block != ahead]
    ran = sum(float(prices.operator(use)) * times for use, times in mine)
    launched = sum(float(prices.hosted(use)) * times for use, times in mine)
    waited = [use for use in uses if use.phase == phase and not use.hides and use.kind != "send" and use.group > 1]
    launched += sum(float(prices.hosted_call(phase)) * repeats[use.block] for use in waited)
    sent = sum(_talk("", use.axes, use, prices).seconds * repeats[use.block] for use in waited if use.block != ahead)
    return max(1.0, (launched - sent) / ran) if ran else 1.0


def _common_weights(planned: Sequence[BlockPlan]) -> frozenset[str]:
    """Return the names of the weights that the embedding and the head share."""
    names = [{weight.name for weight in each.block.graph.weights} for each in planned if each.block.part != "layers"]
    return frozenset(names[0] & names[-1]) if len(names) > 1 else frozenset()


def _talk(name: str, axes: Iterable[str], use: CollectiveUse, prices: Prices, calls: float = 1) -> Talk:
    sizes = sizes_of(prices.batch)
    shown = prices.shown(use.axes[0]) if use.axes else 1.0
    ordered = tuple(axis for axis in MESH if axis in axes and sizes[axis] != 1)
    return Talk(
        name,
        use.kind,
        ordered,
        float(use.group),
        float(use.bytes) * calls,
        float(prices.collective(use.kind, use.axes, use.bytes, use.copies)) * calls * (1 if use.hides else shown),
    )


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
    steps: list[Run | Talk] = field(default_factory=list)
    weight: list[Run] = field(default_factory=list)
    gathers: list[Talk] = field(default_factory=list)
    reduces: list[Talk] = field(default_factory=list)
    run: list[Run] = field(default_factory=list)
    """The operators of the run that goes on."""

    def close(self) -> None:
        """End the run that goes on; it is called after its longest operator."""
        if self.run:
            longest = max(self.run, key=lambda each: each.seconds)
            self.steps.append(replace(_sum(longest.name, self.run), beside=longest.beside))
            self.run = []

    def wait(self, step: Run | Talk) -> None:
        """Add a step of its own."""
        self.close()
        self.steps.append(step)

    def finished(self, phase: str) -> _Section:
        """Return it with its longest run called after the section, and one run for all gradients of weights."""
        self.close()
        runs = [step for step in self.steps if isinstance(step, Run)]
        longest = max(runs, key=lambda run: run.seconds, default=None)
        for place, step in enumerate(self.steps):
            if isinstance(step, Run):
                apart = step.name if step.name != self.name else dotted(step.name, "core")
                own = self.name if step is longest else apart
                self.steps[place] = replace(step, name=dotted(own, phase))
            elif phase == "recompute":
                self.steps[place] = replace(step, name=dotted(step.name, phase))
        self.weight = [_sum(dotted(self.name, "weight_gradient"), self.weight)] if self.weight else []
        return self


def _sum(name: str, runs: Sequence[Run]) -> Run:
    return Run(name, sum(run.seconds for run in runs), sum(run.flop for run in runs), sum(run.bytes for run in runs))


@dataclass(frozen=True, slots=True)
class _Cutter:
    """Cuts one block."""

    batch: Batch
    prices: Prices
    planned: BlockPlan
    work: Mapping[tuple[str, str, str], OperatorUse]
    uses: Sequence[CollectiveUse]
    late: Mapping[str, float]
    """By phase, how much longer operators take for waiting until the host has launched them."""

    def piece(self, common: frozenset[str]) -> Piece:
        """Return the block cut into units."""
        block, workload, sizes = self.planned.block, self.batch.base.workload, sizes_of(self.batch)
        sections = _sections([part.operator for part in self.planned.partitioned.operators], block.part == "layers")
        passes = self._passes(sections)
        again = self._again(passes["forward"], repeated(block, workload))
        step = [call for items in passes.values() for call in items if isinstance(call, _Call)]
        reduces = [self._talk(call) for call in step if call.use.phase == "step" and call.use.group > 1]
        split = workload.weight_sharding != "none"
        backward = self._units(passes["backward"], "backward", sections)
        return Piece(
            name=block.name,
            part=block.part,
            repeats=block.repeats,
            forward=self._units(passes["forward"], "forward", sections),
            backward=self._with_recompute(again, sections, backward) if again else backward,
            reduces=in_one_buffer(reduces, "gradients", self.prices),
            returns=tuple(self._returns()),
            elements=float(weight_elements(self.planned, sizes, split)),
            shared=float(weight_elements(self.planned, sizes, split, only=common)),
        )

    # -------------------------------------------------------------------------------------------- in order

    def _passes(self, sections: _Sections) -> dict[str, list[Operator | _Call]]:
        """Return what is done forward and backward: operators (backward, of those that they undo) and collectives."""
        calls = iter(zip(self.planned.partitioned.collectives, self.uses, strict=False))
        placed = self.planned.partitioned.operators
        undoing = _Undoing([part.operator for part in placed if part.operator.phase == "forward"])
        passes: dict[str, list[Operator | _Call]] = {"forward": [], "backward": []}
        for part in placed:
            section = sections.of(part.operator)
            for transfers in (part.inputs, None, part.outputs):
                if transfers is not None:
                    for call in (_Call(section, *next(calls)) for _ in range(_sent(transfers))):
                        passes[call.planned.phase].append(call)
                elif part.operator.phase == "forward":
                    passes["forward"].append(part.operator)
                else:
                    passes["backward"] += undoing.reach(part.operator)
        if self.batch.base.workload.task == "training":
            passes["backward"] += undoing.rest()
        return passes

    def _again(self, items: Sequence[Operator | _Call], repeats: frozenset[str]) -> list[Operator | _Call]:
        """Return what of the forward pass is done again before the backward pass; weights are gathered for that."""
        return [item for item in items if (item.planned.operator if isinstance(item, _Call) else item.name) in repeats]

    # --------------------------------------------------------------------------------------------- sections

    def _units(self, items: Sequence[Operator | _Call], phase: str, sections: _Sections) -> tuple[Unit, ...]:
        found = self._cut(items, phase, sections)
        waits = any(isinstance(step, Talk) for section in found for step in section.steps)
        groups = [[section] for section in found] if waits else [found] if found else []
        return tuple(_unit(group, phase, self.prices) for group in groups)

    def _with_recompute(
        self, items: Sequence[Operator | _Call], sections: _Sections, backward: tuple[Unit, ...]
    ) -> tuple[Unit, ...]:
        """Return the backward units with the forward steps again before them; weights are gathered for both."""
        steps = tuple(step for section in self._cut(items, "recompute", sections) for step in section.steps)
        first = Unit("", steps, gathers=tuple(talk for unit in backward for talk in unit.gathers))
        return (first, *(replace(unit, gathers=()) for unit in backward))

    def _cut(self, items: Sequence[Operator | _Call], phase: str, sections: _Sections) -> list[_Section]:
        """Return the sections that *items* make, in the order in which the first of each is met."""
        rings = self._ring(items)
        share = self._weight_share(items, phase, bool(rings))
        found: dict[int, _Section] = {}
        last: _Section | None = None
        for item in items:
            place = item.section if isinstance(item, _Call) else sections.of(item)
            section = found.setdefault(place, _Section(sections.names[place]))
            if last is not None and last is not section:
                last.close()
            last = section
            if isinstance(item, _Call):
                self._call(item, section)
            elif use := self._use(item, phase):
                if rings and use.kind == "attention":
                    section.wait(self._run(use, 1.0, rings[0]))
                    continue
                section.run.append(self._run(use, 1 - share))
                if share:
                    section.weight.append(self._run(use, share))
        return [section.finished(phase) for section in found.values()]

    def _use(self, operator: Operator, phase: str) -> OperatorUse | None:
        """Return what an operator costs, or nothing for a view."""
        return self.work.get((self.planned.block.name, operator.name, "backward" if phase == "backward" else "forward"))

    def _run(self, use: OperatorUse, share: float, beside: Talk | None = None) -> Run:
        return Run(
            use.name,
            float(self.prices.operator(use)) * self.late[use.phase] * share,
            float(use.flop) * share,
            float(use.bytes) * share,
            beside,
        )

    def _weight_share(self, items: Sequence[Operator | _Call], phase: str, ring: bool) -> float:
        """Return the share of each backward operator that makes gradients of weights.

        Together they are half of the pass. Attention that something hides behind stays whole, and the others
        give more.
        """
        if phase != "backward":
            return 0.0
        uses = [self._use(item, phase) for item in items if isinstance(item, Operator)]
        seconds = [(use.kind, float(self.prices.operator(use))) for use in uses if use]
        whole = sum(taken for _, taken in seconds)
        kept = sum(taken for kind, taken in seconds if ring and kind == "attention")
        return min(1.0, WEIGHT_SHARE * whole / (whole - kept)) if whole > kept else 0.0

    # ------------------------------------------------------------------------------------------ collectives

    def _talk(self, call: _Call) -> Talk:
        return _talk(call.planned.tensor, call.planned.axes, call.use, self.prices)

    def _call(self, call: _Call, section: _Section) -> None:
        """Add a collective: a step where compute waits for it, otherwise one that weights or gradients need."""
        if call.use.group <= 1 or call.use.phase == "step" or call.use.kind == "collective_permute":
            return  # nobody to talk to; once a step; or beside attention
        talk = self._talk(call)
        if not call.use.hides:
            section.wait(talk)
        elif call.planned.tensor.startswith("d_"):
            section.reduces.append(talk)
        else:
            section.gathers.append(talk)

    def _ring(self, items: Sequence[Operator | _Call]) -> tuple[Talk, ...]:
        """Return what is passed round behind attention: all rounds, of keys and values and their gradients, in one."""
        rounds = float(self.batch["workload.cp"]) - 1
        calls = [item for item in items if isinstance(item, _Call) and item.use.kind == "collective_permute"]
        talks = [_talk("ring", call.planned.axes, call.use, self.prices, rounds) for call in calls]
        return merged(talks, "ring") if rounds > 0 else ()

    def _returns(self) -> Iterator[Talk]:
        """Yield the gathering of updated weights: see `cosmic.step.communication`, whose order this follows."""
        uses = [
            use for use in self.uses if use.tensor == "weights" and use.phase == "step" and use.kind == "all_gather"
        ]
        shardings = [self.planned.shardings[weight.name] for weight in self.planned.block.graph.weights]
        axes = dict.fromkeys(tuple(axis for axis in REPLICAS if axis not in each.used) for each in shardings)
        for use, group in zip(uses, axes, strict=False):
            if use.group > 1:
                yield _talk("weights", group, use, self.prices)


def _unit(sections: Sequence[_Section], phase: str, prices: Prices) -> Unit:
    """Return sections as a unit, in which one collective serves all weights alike."""
    name = sections[0].name if len(sections) == 1 else ""
    gathers = [talk for section in sections for talk in section.gathers]
    reduces = [talk for section in sections for talk in section.reduces]
    return Unit(
        name,
        tuple(step for section in sections for step in section.steps),
        tuple(run for section in sections for run in section.weight),
        in_one_buffer(gathers, f"weights.{phase}", prices),
        in_one_buffer(reduces, "gradients", prices),
    )


def _sent(transfers: Iterable[Transfer]) -> int:
    return sum(step.kind in COLLECTIVES for transfer in transfers for step in transfer.steps)


def dotted(*names: str) -> str:
    """Return the names that are not empty, with dots between."""
    return ".".join(name for name in names if name)


# ------------------------------------------------------------------------------------------------- sections


@dataclass(frozen=True, slots=True)
class _Sections:
    """To which section of a block each forward operator belongs."""

    names: tuple[str, ...]
    place: Mapping[str, int]

    def of(self, operator: Operator) -> int:
        """Return the section of an operator, or of the one whose gradients it makes."""
        return self.place.get(_undone(operator), 0)


def _sections(planned: Sequence[Operator], several: bool) -> _Sections:
    """Return the sections of a block; only layers have *several*."""
    forward = [operator for operator in planned if operator.phase == "forward"]
    place, names, current = {}, list[str](), list[Operator]()
    for operator in forward:
        current.append(operator)
        place[operator.name] = len(names)
        if several and operator.outputs[0].name in STREAM:
            names.append(_section_name(current))
            current = []
    if current:
        names.append(_section_name(current) if several and names else "")
    return _Sections(tuple(names), place)


def _section_name(members: Iterable[Operator]) -> str:
    kinds = {operator.kind: operator.name for operator in members}
    return kinds.get("attention", "experts" if "dispatch" in kinds else "ffn")


def _undone(operator: Operator) -> str:
    """Return the name of the forward operator whose gradients an operator makes, or its own."""
    if operator.phase == "forward":
        return operator.name
    name, dot, part = operator.name.removeprefix("d_").rpartition(".")
    return name if dot and part.isdigit() else operator.name.removeprefix("d_")


@dataclass(slots=True)
class _Undoing:
    """Forward operators, let out last to first: each when the first backward operator that belongs to it is met.

    Some have none of their own (a sum hands its gradient on) but are charged for all the same: they go with the next.
    """

    waiting: list[Operator]

    def reach(self, operator: Operator) -> Iterator[Operator]:
        """Yield what a backward *operator* undoes, and what lies behind; gradients are added up before their use."""
        name, adding = _undone(operator), operator.kind == "add"
        if not any(each.name == name for each in self.waiting):
            return
        while self.waiting[-1].name != name:
            yield self.waiting.pop()
        if not adding:
            yield self.waiting.pop()

    def rest(self) -> Iterator[Operator]:
        """Yield what no backward operator belongs to."""
        while self.waiting:
            yield self.waiting.pop()
