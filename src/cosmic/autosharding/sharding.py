"""`cosmic.shard`: the annotations of a program's tensors that make its step shortest, or its memory smallest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

from cosmic import catalog
from cosmic.autosharding.annotations import Given, as_propagated, check_sizes, read_annotations
from cosmic.autosharding.constrained import Choice, constrained
from cosmic.autosharding.costs import Costs, Fixed, choice_of, costs_of, held_bytes
from cosmic.autosharding.explaining import explained, warned
from cosmic.autosharding.exporting import stores
from cosmic.autosharding.mesh import Mesh, read_mesh
from cosmic.autosharding.models import design_of, is_model, load_point, model_parts
from cosmic.autosharding.parts import Part, Parts, counted_once
from cosmic.autosharding.planned import Planned, planned
from cosmic.autosharding.prices import Prices, system_prices, wire_prices
from cosmic.autosharding.reading import program_parts, resized
from cosmic.autosharding.result import Sharded, Use, step_cost
from cosmic.autosharding.solving import LITTLE, Chosen, lightest, solve
from cosmic.autosharding.written import forbid, otherwise
from cosmic.errors import SpecError, UnknownName, require
from cosmic.programs.program import Program
from cosmic.units import BYTES, read
from cosmic.workload.graph import SizeTable
from cosmic.workload.sharding import Mode, Sharding, propagate

Objective = Literal["step", "bytes", "memory"]
SearchMode = Literal["best", "as_compiled"]
GENERIC_MODEL = "gpt2"
"""Whose design stands for the machine of a program that is no model: nothing of the model is priced."""
TRIES = 8
"""How often a design may run something else than was chosen."""
WRONG = 100.0
"""What such choices cost from then on, in steps."""
MODES: tuple[Mode, ...] = ("as_written", "best")
"""How the planner may run what was found: operators where their tensors are, or where fewest bytes are sent."""


def shard(  # noqa: PLR0913  one option each
    program: Program | Parts | str,
    mesh: str | Mapping[str, int] | Mesh,
    *,
    annotate: Given = (),
    system: str | None = None,
    memory: str | float | None = None,
    objective: Objective = "step",
    mode: SearchMode = "best",
    training: bool = True,
    batch: int | None = None,
    sequence: int | None = None,
    free: bool = False,
    settings: Mapping[str, Any] | None = None,
) -> Sharded:
    """Return the best sharding of every tensor of *program* over *mesh*, with a bound and the planner's account of it.

    *program* is a `Program`, or a model of the catalog; a step has *batch* sequences of *sequence* tokens. *annotate*
    fixes some tensors (``w_q: [_, tp, _]``), beside the program's own annotations unless these are to be *free*; all
    others are chosen. On a *system* of the catalog, costs are seconds of kernels and collectives, otherwise bytes on
    the wire, among shardings in which no two devices do the same matrix product; ``bytes`` allows that too. *memory* is
    a limit for each device.
    ``as_compiled`` searches nothing: annotations are propagated and partitioned by the rules of XLA.

    >>> found = shard("gpt3-125m", {"dp": 4, "tp": 2}, batch=8)
    >>> found.gap < 1e-6, str(found.sharding("w_q"))
    (True, 'replicated')
    """
    for where, value, known in (("objective", objective, get_args(Objective)), ("mode", mode, get_args(SearchMode))):
        if value not in known:
            raise UnknownName.among(where, value, where, known)
    found_mesh = mesh if isinstance(mesh, Mesh) else read_mesh(mesh)
    design, parts, prices = _loaded(
        program, found_mesh, system, objective, training, batch, sequence, dict(settings or {})
    )
    clash = [axis for axis in found_mesh.sizes if axis in parts.sizes and axis not in ("dp", "cp", "tp")]
    require(not clash, "mesh", str(found_mesh), f"{', '.join(clash)} is the name of a dimension too")
    parts = Parts(parts.name, counted_once(parts.parts), {**parts.sizes, **found_mesh.sizes}, parts.element_bytes)
    own = {} if free or not isinstance(program, Program) else {k: list(v) for k, v in program.annotations.items()}
    fixed = {**read_annotations(own, parts, found_mesh), **read_annotations(annotate, parts, found_mesh)}
    check_sizes(fixed, parts, found_mesh)
    limit = None if memory is None else _limit(memory)
    job = _Job(parts, found_mesh, prices, fixed, objective, limit, design)
    if mode == "as_compiled":
        return job.compiled()
    found = job.searched()
    if design and training and stores(found):
        # Kernels do not accumulate gradients that are reduced and dropped: the design that runs this is another one.
        other = {**design, "workload": {**design["workload"], "weight_sharding": "zero3"}}
        again = _Job(
            parts, found_mesh, system_prices(found_mesh, {}, load_point(other)), fixed, objective, limit, other
        ).searched()
        found = again if stores(again) else found
    return found


def _loaded(  # noqa: PLR0913, PLR0917  the options of `shard`
    program: Program | Parts | str,
    mesh: Mesh,
    system: str | None,
    objective: str,
    training: bool,
    batch: int | None,
    sequence: int | None,
    settings: dict[str, Any],
) -> tuple[dict[str, Any], Parts, Prices]:
    """Return the design where *program* is a model, the parts, and the prices."""
    model = program if isinstance(program, str) else None
    if model is not None and not is_model(model):
        raise UnknownName.among("program", model, "model", catalog.names("models"))
    if isinstance(program, Program):
        program = resized(program, batch=batch, sequence=sequence)
    if model is None:
        batch = sequence = None
    design = design_of(model or GENERIC_MODEL, system, mesh, batch=batch, sequence=sequence, settings=settings)
    design["workload"]["task"] = "training" if training else "prefill"
    if model is None:
        design["workload"] |= {"global_batch": design["workload"]["dp"], "micro_batch": 1}
    point = load_point(design) if model is not None or system is not None else None
    if model is not None and point is not None:
        parts = model_parts(model, point, training=training)
    elif isinstance(program, Parts):
        parts = program
    else:
        assert isinstance(program, Program)  # noqa: S101  a text was handled above
        parts = program_parts(program, training=training)
    if system is not None and point is not None:
        return design if model else {}, parts, system_prices(mesh, parts.element_bytes, point)
    prices = wire_prices(mesh, parts.element_bytes, training=training, parallel=objective == "step")
    return {}, parts, prices


class _Job:
    """One question, with all that its answer needs."""

    def __init__(  # noqa: PLR0913, PLR0917  what `shard` read
        self,
        parts: Parts,
        mesh: Mesh,
        prices: Prices,
        fixed: Fixed,
        objective: Objective,
        limit: float | None,
        design: dict[str, Any],
    ) -> None:
        self.parts, self.mesh, self.prices, self.fixed = parts, mesh, prices, fixed
        self.objective, self.limit, self.design = objective, limit, design

    def searched(self) -> Sharded:
        """Search the shardings, and let the planner price the best."""
        costs = costs_of(self.parts, self.prices, self.fixed)
        chosen = (
            lightest(costs, self.limit) if self.objective == "memory" else solve(costs, self.prices.overlap, self.limit)
        )
        if self.design:
            return self.as_written(costs, chosen)
        choices = {part.name: choice_of(part, costs, chosen.states) for part in self.parts.parts}
        kept = {name: choice.kept for name, choice in choices.items()}
        best = min((self.account(kept, mode) for mode in MODES), key=self.weight)
        uses: list[Use] = []
        if self.weight(best) > self.weight_of(chosen) * (1 + LITTLE):
            spelled, found = self.spelled_out(choices)
            if self.weight(spelled) < self.weight(best) * (1 - LITTLE):
                best, uses = spelled, found
        return self.result(best, kept, chosen, "best", tuple(uses))

    def as_written(self, costs: Costs, first: Chosen) -> Sharded:
        """Return the best choice that a design runs as it was chosen: strategies cannot say how operators are split."""
        chosen, price = first, WRONG * max(first.value, LITTLE)
        found: tuple[list[Planned], dict[str, Choice], Chosen] | None = None
        known: set[tuple[str, int]] = set()
        for _ in range(TRIES):
            choices = {part.name: choice_of(part, costs, chosen.states) for part in self.parts.parts}
            account = self.account({name: choice.kept for name, choice in choices.items()}, "as_written")
            if found is None or self.weight(account) < self.weight(found[0]) * (1 - LITTLE):
                found = account, choices, chosen
            wrong = [(each.part, otherwise(each, choices[each.part.name])) for each in account]
            names = {(part.name, id(each)) for part, operators in wrong for each in operators}
            if self.objective == "memory" or names <= known:
                break  # it runs as chosen, or what was forbidden could not be avoided
            known |= names
            for part, operators in wrong:
                forbid(costs, part, operators, price)
            chosen = solve(costs, self.prices.overlap, self.limit)
        assert found is not None  # noqa: S101  there is at least one try
        best, choices, chosen = found
        kept = {name: choice.kept for name, choice in choices.items()}
        return self.result(best, kept, replace(chosen, bound=first.bound, exact=first.exact), "best")

    def compiled(self) -> Sharded:
        """Propagate the annotations and partition as XLA does."""
        kept, found = {}, []
        for part in self.parts.parts:
            sizes = self.sizes(part)
            annotations = as_propagated(self.fixed, part.name)
            named = {name: each for name, each in annotations.items() if name in part.graph.tensors}
            kept[part.name] = propagate(part.graph, named, sizes=sizes)
            found.append(planned(part, kept[part.name], self.prices, sizes, "as_compiled"))
        memory = sum(
            held_bytes(part, tensor, kept[part.name][tensor.name], self.prices, self.sizes(part))
            for part in self.parts.parts
            for tensor in part.graph.tensors.values()
        )
        fits = self.limit is None or memory <= self.limit
        chosen = Chosen([], self.step(found), memory, 0.0, fits, exact=False)
        return self.result(found, kept, chosen, "as_compiled")

    def sizes(self, part: Part) -> SizeTable:
        """Return all sizes that a part needs."""
        return SizeTable({**self.parts.sizes, **part.extra})

    def account(self, kept: Mapping[str, Mapping[str, Sharding]], mode: Mode) -> list[Planned]:
        """Return the planner's account of all parts."""
        return [planned(part, kept[part.name], self.prices, self.sizes(part), mode) for part in self.parts.parts]

    def spelled_out(self, choices: Mapping[str, Choice]) -> tuple[list[Planned], list[Use]]:
        """Return the planner's account of a program whose every split is spelled out, and what was added for it."""
        found, uses = [], []
        for part in self.parts.parts:
            graph, shardings, steps = constrained(part, choices[part.name])
            found.append(planned(part, shardings, self.prices, self.sizes(part), "as_written", graph))
            uses += [Use(part.name, *step) for step in steps]
        return found, uses

    def weight(self, found: Sequence[Planned]) -> float:
        """Return what is made small: the step, and work that devices do alike."""
        return self.step(found) + self.repeated(found)

    def weight_of(self, chosen: Chosen) -> float:
        """Return the same as the search added it up."""
        return chosen.value if self.objective != "memory" else 0.0

    def repeated(self, found: Sequence[Planned]) -> float:
        """Return what work that devices do alike weighs, where costs are bytes."""
        return sum(each.compute for each in found) if self.prices.unit == "bytes" else 0.0

    def step(self, found: Sequence[Planned]) -> float:
        """Return the time of a step, or the bytes that it sends."""
        compute = 0.0 if self.prices.unit == "bytes" else sum(each.compute + each.update for each in found)
        exposed, hidden = sum(each.exposed for each in found), sum(each.hidden for each in found)
        return step_cost(compute, exposed, hidden, self.prices.overlap)

    def result(
        self,
        found: Sequence[Planned],
        kept: Mapping[str, Mapping[str, Sharding]],
        chosen: Chosen,
        mode: str,
        uses: tuple[Use, ...] = (),
    ) -> Sharded:
        """Return all of it as one value."""
        sent = tuple(each for account in found for each in account.collectives)
        bytes_ = self.prices.unit == "bytes"
        step = self.step(found)
        memory = chosen.memory_bytes
        value = memory if self.objective == "memory" else step
        apart = self.repeated(found)  # what the bound counts beside bytes
        bound = chosen.bound if self.objective == "memory" else max(0.0, chosen.bound - apart)
        bound = min(bound, value)
        searched = chosen.value if self.objective == "memory" else chosen.value - apart
        return Sharded(
            program=self.parts.name,
            mesh=self.mesh,
            objective=self.objective,
            mode=mode,
            unit=self.prices.unit,
            value=value,
            searched_value=searched if mode == "best" else value,
            bound=bound,
            exact=chosen.exact,
            fits=chosen.fits,
            limit_bytes=self.limit,
            memory_bytes=memory,
            compute=0.0 if bytes_ else sum(each.compute for each in found),
            update=sum(each.update for each in found),
            exposed=sum(each.exposed for each in found),
            hidden=sum(each.hidden for each in found),
            overlap=self.prices.overlap,
            operators=self.parts.operators,
            annotations=explained(self.parts, kept, self.fixed, sent),
            collectives=sent,
            uses=uses,
            warnings=warned(found, self.sizes),
            design=self.design,
        )


def _limit(memory: str | float) -> float:
    """Return a limit on memory in bytes."""
    try:
        found = read(memory, BYTES) if isinstance(memory, str) else float(memory)
    except SpecError as error:
        raise SpecError("memory", memory, error.rule) from None
    require(found > 0, "memory", memory, "must be positive")
    return found
